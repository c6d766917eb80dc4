"""All that wants a GPU, in parts of a few minutes each: tests, speed, recipes, one paper preset.

Each part is a process of its own with a time limit, and what it measures is written to
`docs/results/benchmarks/gpu/PART.json`; a part that fails does not stop the others. Without a GPU
nothing runs, in one line.
Run: python benchmarks/gpu.py [PART ...] [--folder docs/results/benchmarks/gpu] (make gpu)
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
MOST_SECONDS = 9 * 60  # of a part
#: a recipe of each source, at sizes that end within a minute
RECIPES = {
    "train-xor": ["xor", "--variant", "2-head"],
    "train-uand": ["uand", "--seeds", "2"],
    "train-sort-causal": ["sort-causal", "--preset", "paper", "--seeds", "1"],
    "train-retrieval": ["retrieval", "--seeds", "1"],
}


def parts(folder: Path) -> dict[str, list[str]]:
    """Name -> the command, without Python."""
    marked = (
        path for path in (ROOT / "tests").rglob("test_*.py") if "mark.gpu" in path.read_text()
    )
    found = {"tests": ["-m", "pytest", "-q", "-m", "gpu", *sorted(map(str, marked))]}
    speed = {
        "logistic_targets": [],
        "sorting_steps": [],
        "head_detectors": [],
        "variant_throughput": ["--preset", "paper"],
        "language_model_price": ["random-gpt2"],
    }
    for name, options in speed.items():
        script = str(ROOT / "benchmarks" / f"{name}.py")
        json_file = str(folder / f"{name}.json")
        found[name] = [script, "--device", "cuda", *options, "--json", json_file]
    interp = ["-m", "interp_toolkit"]
    for name, options in RECIPES.items():
        found[name] = [*interp, "train", *options, "--device", "cuda", "--quiet"]
    throughput = ["random-attention/throughput", "--preset", "paper", "--device", "cuda"]
    written = ["--json", str(folder / "throughput.json")]
    found["reproduce"] = [*interp, "reproduce", *throughput, *written]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="*")
    parser.add_argument("--folder", type=Path, default=ROOT / "docs/results/benchmarks/gpu")
    options = parser.parse_args()
    known = parts(options.folder.resolve())
    if unknown := set(options.part) - known.keys():
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if not torch.cuda.is_available():
        print("no GPU: nothing measured")
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    record = options.folder / "parts.json"
    done = json.loads(record.read_text()) if record.exists() else {}
    failed = []
    for name in options.part or known:
        print(f"== {name}", flush=True)
        start = time.perf_counter()
        try:
            code = subprocess.run([sys.executable, *known[name]], timeout=MOST_SECONDS).returncode
        except subprocess.TimeoutExpired:
            code = 124
        seconds = round(time.perf_counter() - start, 1)
        print(f"== {name}: {'done' if code == 0 else f'exit {code}'} in {seconds} s", flush=True)
        done[name] = {"card": torch.cuda.get_device_name(), "seconds": seconds, "exit": code}
        record.write_text(json.dumps(done, indent=1) + "\n")
        failed += [name] if code else []
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
