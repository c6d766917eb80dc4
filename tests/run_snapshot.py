"""What the toolkit says, frozen: `make snapshot` before a restructure, `make snapshot-check` after.

Recorded are the JSON, tables, figures and terminal text of every analysis on every toy that it
fits, on untrained models of six shapes, on third-party models with their own answers (`ZOO`, where
that folder is there) and on SmolLM2 (where it is installed), of `doctor`, of an audit of each kind
of claim, `compare`, a recipe and a study. An analysis that refuses a model is recorded by its line.
Numbers are the same within 1e-9 (relative); all else is the same to the letter. Renamed keys, and
differences that a change is meant to make, stand in `tests/snapshot_changes.yaml`:

    renamed: {old_key: new_key}
    ignored: [key]                       # times and versions
    words: {old_word: new_word}          # values that were renamed
    changed: [{case: PATTERN, path: PATTERN, reason: TEXT}]

`check` and `read` also read each result against its own records (`helpers/contradictions.py`);
`read` runs nothing, and takes the last records.

Run: python tests/run_snapshot.py record|check|read [--folder .snapshot] [--zoo FOLDER]
    [--only TEXT]
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import os
import re
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent / "helpers"))

from contradictions import contradictions
from records import record
from shown import steady

RELATIVE = 1e-9
ABSOLUTE = 1e-12  # of numbers that are zero but for rounding
CHANGES = Path(__file__).with_name("snapshot_changes.yaml")
UNTRAINED: dict[str, dict[str, Any]] = {
    "standard": {"n_layers": 2},
    "rotary": {"n_layers": 3, "positional_embedding_type": "rotary"},
    "grouped": {"n_layers": 2, "n_key_value_heads": 2, "normalization_type": "RMS"},
    "mlp": {
        "n_layers": 2,
        "attn_only": False,
        "d_mlp": 64,
        "act_fn": "gelu",
        "normalization_type": "LN",
    },
    "one-layer": {"n_layers": 1, "d_vocab": 60},
    "deep": {"n_layers": 4, "n_heads": 2, "d_head": 16},
}
ZOO = (
    *("hop_d2", "listmax_42", "gross_abcab_0", "gross_l_2_2", "arena_unique", "arena_cumsum"),
    *("alejo_paren20", "ckk_majority", "mb_sort_1", "mb_sort_3", "neel_addition5"),
    "pizza_dy65ktpiij",
)
ZOO_PROBES = ("heads", "circuit", "roles", "qk", "ov", "composition", "collapse", "skip-bigrams")
TOO_LONG = {("hop_d2", "roles")}  # nine minutes
WITH_ANSWERS = ("heads", "circuit", "roles")
OF_FEATURES = ("xor", "and", "or", "boolean", "uand")
DOCTORED = ("xor-2head", "induction", "sort-argmax", "uand", "induction-trained")
AUDITS: dict[str, tuple[str, Any]] = {
    "head, sentence": ("toy:induction", "L1H0 is an induction head"),
    "head, contributes": (
        "toy:induction-trained",
        {"heads": ["L1H0", "L1H1"], "relation": "induction", "says": "contributes"},
    ),
    "head, decoy": ("toy:decoy", "L1H0 is an induction head"),
    "circuit": (
        "toy:induction",
        {"circuit": ["L0H0->L1H0<k>", "input->L1H0<v>"], "says": "sufficient"},
    ),
    "pair": ("toy:skip-bigrams", {"pair": {"head": "L0H0", "key": 1, "query": 2}}),
    "algorithm": ("toy:sort-argmax", {"algorithm": "argmax_piecewise_linear"}),
    "direction": (
        "models/standard.safetensors",
        {
            "direction": [1.0] + [0.0] * 31,
            "hook": "blocks.0.hook_resid_post",
            "position": -1,
            "says": "reads",
            "features": ["has1", "has2"],
            "table": "0110",
        },
    ),
}
SMOLLM2: dict[str, dict[str, Any]] = {
    "heads": {"data": "rows", "memory": "256MiB"},
    "qk": {"layer": 3, "head": 0},
    "ov": {"layer": 3, "head": 0},
    "collapse": {"data": "rows"},
}
COMMANDS: dict[str, list[str]] = {
    "list": ["list"],
    "show xor": ["show", "xor"],
    "show superposition": ["show", "superposition"],
    "analyze": ["analyze", "toy:xor-2head", "--probe", "xor", "--json", "-"],
    "analyze all that fits": ["analyze", "toy:induction"],
    "train": [
        *("train", "xor", "--variant", "2-head", "--steps", "50", "--seeds", "1"),
        *("--out", "trained.safetensors"),
    ],
    "reproduce": ["reproduce", "xor", "--preset", "small", "--json", "-"],
}


class Case(NamedTuple):
    """One thing recorded: its name, and what makes its record."""

    name: str
    make: Callable[[], Any]


def cases(folder: Path, zoo: Path | None) -> list[Case]:
    """Every case; longest first, so that two processes end together."""
    from interp_toolkit.registry import names
    from interp_toolkit.testing.real import smollm2_path

    models = {f"toy:{name}": f"toy:{name}" for name in names("toys")}
    models |= {f"untrained:{name}": f"models/{name}.safetensors" for name in UNTRAINED}
    found = []
    if (smollm2 := smollm2_path()) is not None:
        found += [
            Case(f"SmolLM2/{probe}", partial(analysis, str(smollm2), probe, options))
            for probe, options in SMOLLM2.items()
        ]
    for name in ZOO if zoo is not None and zoo.is_dir() else ():
        for probe in ZOO_PROBES:
            if (name, probe) in TOO_LONG:
                continue
            options = {"data": str(zoo / name / "answers.npz")} if probe in WITH_ANSWERS else {}
            path = str(zoo / name / "model.pt")
            found.append(Case(f"zoo:{name}/{probe}", partial(analysis, path, probe, options)))
    found += [Case(f"command/{name}", partial(command, line)) for name, line in COMMANDS.items()]
    found += [Case(f"audit/{name}", partial(audited, *claim)) for name, claim in AUDITS.items()]
    for name, model in models.items():
        found += [Case(f"{name}/{p}", partial(analysis, model, p, {})) for p in names("probes")]
        if name.startswith("untrained") or name.removeprefix("toy:") in DOCTORED:
            found.append(Case(f"{name}/doctor", partial(examined, model)))
    found.append(Case("compare", compared))
    return found


def analysis(model: str, probe: str, options: dict[str, Any]) -> Any:
    """The record of an analysis with default options, or why it refuses."""
    import interp_toolkit as it

    options = dict(options)
    if options.get("data") == "rows":
        options["data"] = _rows(2, 16)
    if probe in OF_FEATURES and model.startswith("models/"):
        options |= {"data": _bits()}
    if probe == "boolean":
        options |= {"table": "1001"}
    try:
        return record(it.analyze(it.load(model), probe, **options))
    except it.InputError as error:
        return {"refused": str(error)}


def _rows(count: int, length: int) -> Any:
    """Repeated token ids."""
    import numpy as np

    half = np.random.default_rng(0).integers(100, 30000, (count, length // 2))
    return np.concatenate([half, half], axis=1)


def _bits() -> dict[str, Any]:
    """Rows of tokens with two features: which of two tokens are in the row."""
    import numpy as np

    tokens = np.random.default_rng(0).integers(0, 16, (128, 8))
    return {"tokens": tokens, "features": {f"has{t}": (tokens == t).any(1) for t in (1, 2)}}


def audited(model: str, claim: Any) -> Any:
    """The record of an audit."""
    import interp_toolkit as it

    data = _bits() if isinstance(claim, dict) and "direction" in claim else None
    try:
        return record(it.audit(it.load(model), claim, data=data))
    except it.InputError as error:
        return {"refused": str(error)}


def examined(model: str) -> Any:
    """The record of `doctor`."""
    import interp_toolkit as it

    return record(it.doctor(it.load(model)))


def compared() -> Any:
    """The record of `compare` of two results."""
    import interp_toolkit as it

    for name in ("xor-1head", "xor-2head"):
        it.write_json([it.analyze(f"toy:{name}", "xor")], f"{name}.json")
    return record(it.compare("xor-1head.json", "xor-2head.json"))


def command(line: list[str]) -> Any:
    """What a command prints and leaves with."""
    run = subprocess.run(
        [sys.executable, "-m", "interp_toolkit", *line],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "100", "NO_COLOR": "1", "PYTHONWARNINGS": "ignore"},
    )
    out: Any = run.stdout
    if "-" in line:
        out = json.loads(out)
    return {"code": run.returncode, "out": out}


def run(case: Case, folder: str) -> tuple[str, Any, float]:
    """A case, in the snapshot's folder, on one thread."""
    import torch

    os.chdir(folder)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    began = time.monotonic()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            found = case.make()
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"}
    return case.name, found, time.monotonic() - began


def write_models(folder: Path) -> None:
    """The untrained models, as files: a later version reads the same weights."""
    import torch

    import interp_toolkit as it
    from interp_toolkit.models import Transformer, TransformerConfig

    sizes = {"d_model": 32, "d_head": 8, "n_heads": 4, "n_ctx": 24, "d_vocab": 16}
    sizes |= {"attn_only": True, "normalization_type": None}
    (folder / "models").mkdir(exist_ok=True)
    for seed, (name, shape) in enumerate(UNTRAINED.items()):
        if (folder / "models" / f"{name}.safetensors").exists():
            continue
        torch.manual_seed(seed)
        model = Transformer(TransformerConfig(**(sizes | shape)))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter) * 0.8 / 32**0.5)
        it.save(model, folder / "models" / f"{name}.safetensors")


class Changes(NamedTuple):
    """What may differ."""

    renamed: dict[str, str]
    ignored: frozenset[str]
    words: dict[str, str]
    changed: list[dict[str, str]]

    @classmethod
    def read(cls, path: Path) -> Changes:
        import yaml

        content = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
        return cls(
            content.get("renamed") or {},
            frozenset(content.get("ignored") or ()),
            content.get("words") or {},
            content.get("changed") or [],
        )

    def meant(self, case: str, path: str) -> bool:
        return any(
            fnmatchcase(case, one["case"]) and fnmatchcase(path, one["path"])
            for one in self.changed
        )


def differences(
    before: Any, now: Any, changes: Changes, path: str = ""
) -> Iterator[tuple[str, str]]:
    """Where two records differ, and how."""
    if isinstance(before, dict) and isinstance(now, dict):
        before = {changes.renamed.get(k, k): v for k, v in before.items()}
        for key in dict.fromkeys([*before, *now]):
            if key in changes.ignored:
                continue
            at = f"{path}.{key}" if path else key
            if key not in before or key not in now:
                yield at, "new" if key in now else "gone"
            else:
                yield from differences(before[key], now[key], changes, at)
    elif isinstance(before, list) and isinstance(now, list):
        if len(before) != len(now):
            yield path, f"{len(before)} entries, now {len(now)}"
        for number, (one, other) in enumerate(zip(before, now, strict=False)):
            yield from differences(one, other, changes, f"{path}.{number}")
    elif _number(before) and _number(now):
        if abs(before - now) > max(RELATIVE * max(abs(before), abs(now)), ABSOLUTE):
            yield path, f"{before!r}, now {now!r}"
    elif now != changes.words.get(str(before)) and _steady(before) != _steady(now):
        yield path, f"{str(before)[:100]!r}, now {str(now)[:100]!r}"


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _steady(value: Any) -> Any:
    """Text without what changes from run to run: times, hashes and places."""
    if not isinstance(value, str):
        return value
    return steady(re.sub(r"/\S*/(?:site-packages|models)/", "", value))


def stored(path: Path) -> dict[str, Any]:
    """A snapshot's records by case."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return dict(json.loads(line) for line in file)


def main() -> int:
    """Record or check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["record", "check", "read"])
    parser.add_argument("--folder", type=Path, default=Path(".snapshot"))
    parser.add_argument("--zoo", type=Path, default=Path("../shared/zoo"))
    parser.add_argument("--only", default="", help="cases whose names hold this")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    import joblib
    from rich.progress import track

    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if options.what == "read":
        last = max(folder.glob("*.jsonl.gz"), key=lambda path: path.stat().st_mtime)
        return read(stored(last))
    before = stored(folder / "before.jsonl.gz") if options.what == "check" else {}
    write_models(folder)
    zoo = options.zoo.resolve()
    todo = [c for c in cases(folder, zoo) if options.only in c.name]
    parallel = joblib.Parallel(options.processes, return_as="generator", batch_size=1)
    found, seconds = {}, {}
    for name, one, took in track(
        parallel(joblib.delayed(run)(case, str(folder)) for case in todo), "cases", len(todo)
    ):
        found[name], seconds[name] = one, took
    name = "before" if options.what == "record" else "now"
    if options.what == "record" and options.only and (folder / "before.jsonl.gz").exists():
        found = stored(folder / "before.jsonl.gz") | found
    with gzip.open(folder / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
        for entry in found.items():
            file.write(json.dumps(entry) + "\n")
    print(f"{len(found)} cases in {folder}")
    slowest = sorted(seconds, key=seconds.__getitem__, reverse=True)[:12]
    print("slowest:", ", ".join(f"{n} {seconds[n]:.0f} s" for n in slowest))
    print("errors:", [n for n, one in found.items() if "error" in one] or "none")
    refused = sum("refused" in one for one in found.values())
    print(
        f"{refused} refused; {len(seconds)} run in {sum(seconds.values()):.0f} s of one processor"
    )
    if options.what == "record":
        return 0
    return max(judged(before, found, options.only), read(found))


def read(records: dict[str, Any]) -> int:
    """Print every sentence that its own result contradicts; 0 where there is none."""
    objections = {name: contradictions(one) for name, one in records.items() if "result" in one}
    for name, lines in objections.items():
        print(*(f"{name}: {line}" for line in lines), sep="\n", end="\n" if lines else "")
    count = sum(map(len, objections.values()))
    print(f"{count} sentences contradicted by their own records, in {len(objections)} results")
    return 1 if count else 0


def judged(before: dict[str, Any], found: dict[str, Any], only: str) -> int:
    """Print how two snapshots differ; 0 where they do not but as meant."""
    changes = Changes.read(CHANGES)
    meant: Counter[str] = Counter()
    unmeant: list[str] = []
    for case in found if only else dict.fromkeys([*before, *found]):
        if case not in before or case not in found:
            pairs = [("", "new" if case in found else "gone")]
        else:
            pairs = list(differences(before[case], found[case], changes))
        for path, how in pairs:
            if changes.meant(case, path):
                meant[case] += 1
            else:
                unmeant.append(f"{case}: {path}: {how}")
    print(*unmeant[:200], sep="\n")
    kinds = Counter(re.sub(r"\d+", "N", line.split(": ")[1])[:60] for line in unmeant)
    print("by place:", dict(kinds.most_common(20)))
    print(f"{len(unmeant)} differences, and {sum(meant.values())} as meant in {len(meant)} cases")
    return 1 if unmeant else 0


if __name__ == "__main__":
    sys.exit(main())
