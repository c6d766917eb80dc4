"""How long the command line makes one wait, against importing TransformerLens itself.

Each figure is the median of several fresh interpreters, the commands taken in turn so that a busy
machine slows all alike. Run: python benchmarks/startup.py [--repeats 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from interp_toolkit.report.html import write_text

COMMANDS = {
    "import transformer_lens": ["-c", "import transformer_lens"],
    "import interp_toolkit": ["-c", "import interp_toolkit"],
    "interp --help": ["-m", "interp_toolkit", "--help"],
    "interp analyze toy:xor-2head": [
        *["-m", "interp_toolkit", "analyze", "toy:xor-2head", "--probe", "xor", "--quiet"]
    ],
}


def seconds(arguments: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    for arguments in COMMANDS.values():  # fill the disk cache
        seconds(arguments)
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(options.repeats):
        for name, arguments in COMMANDS.items():
            times[name].append(seconds(arguments))
    medians = {name: statistics.median(values) for name, values in times.items()}
    base = medians["import transformer_lens"]
    for name, median in medians.items():
        low, high = min(times[name]), max(times[name])
        relative = f"{median / base:6.1%} of TransformerLens's import"
        print(f"{name:30} {median:6.2f} s  ({low:.2f} to {high:.2f})  {relative}")
    extra = medians["interp analyze toy:xor-2head"] - base
    print(f"{'analyze beyond that import':30} {extra:6.2f} s")
    if options.json:
        times_as_long = {name: base / median for name, median in medians.items()}
        found = {
            "medians_s": medians,
            "import over it": times_as_long,
            "analyze beyond the import, s": extra,
            "times_s": times,
        }
        write_text(options.json, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
