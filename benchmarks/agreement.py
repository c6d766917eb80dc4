"""Do verdicts agree with themselves? Each analysis of each model again, under other circumstances.

The circumstances: another seed (of rows, draws and nulls), float64 and bfloat16 weights, batches of
8 MiB, two threads, an older processor's kernels, and TransformerLens' next major (where `.venv-tl4`
is made). Agreement is of the status, and of the set of heads that the verdict names; a
*contradiction* is a yes that becomes a no or a nothing found, or the other way round. The same of
each head that the analysis of heads names as a kind: *denied* is one of which the other says that
it found no effect, or one against. Where the seed is another, rows are others too, and bfloat16 is
another model within its precision: that a verdict becomes *undecided* there is what it is for, and
these stand apart from what nothing but arithmetic changes.

With --zoo the models are those of a folder that `zoo_heads.py` takes, on rows and answers of their
own where the analysis takes some, and the analyses are those that need no more.

Run: python benchmarks/agreement.py [--seeds 3] [--zoo FOLDER] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

import interp_toolkit as it
from interp_toolkit.circuits.heads.result import HeadsFinding
from interp_toolkit.results import STATUS_TONES

MODELS = (
    *("xor-1head", "xor-2head", "induction", "induction-trained", "induction-decoy"),
    *("sort-causal-trained", "sort-bidirectional-trained", "uand-trained"),
)
ANALYSES = (
    *("xor", "heads", "circuit", "composition", "qk", "ov", "collapse", "uand", "sorting"),
    "roles",
)
OF_ANY_MODEL = ("heads", "circuit", "composition", "qk", "ov", "collapse")
WITH_ANSWERS = ("heads", "circuit")  # of these
MEMORY = "8MiB"
DENIALS = ("negligible", "suppresses")
OTHER_MAJOR = Path(".venv-tl4/bin/python")
COLUMNS = [
    *("circumstance", "verdicts", "same status", "same status and heads", "contradictions"),
    *("heads named", "in both", "named and denied"),
]
OLDER = {"OPENBLAS_CORETYPE": "Haswell", "ATEN_CPU_CAPABILITY": "default"}


class Said(NamedTuple):
    """What an analysis says: its status, the heads in its verdict; of heads as a kind, by name."""

    status: str
    heads: tuple[str, ...]
    named: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()


@dataclass(frozen=True)
class Circumstance:
    """What is otherwise.

    Attributes:
        name: in the table.
        loaded: how the model is loaded.
        given: to the analysis.
        threads: of PyTorch.
        environment: of the process.
        python: that runs it.
    """

    name: str
    loaded: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    threads: int = 1
    environment: dict[str, str] = field(default_factory=dict)
    python: str = sys.executable


def circumstances(seeds: int) -> list[Circumstance]:
    """The plain one first."""
    found = [
        Circumstance("plain"),
        *(Circumstance("another seed", given={"seed": seed}) for seed in range(1, seeds + 1)),
        Circumstance("bfloat16 weights", loaded={"dtype": "bfloat16"}),
        Circumstance("float64 weights", loaded={"dtype": "float64"}),
        Circumstance(f"batches of {MEMORY}", given={"memory": MEMORY}),
        Circumstance("two threads", threads=2),
        Circumstance("an older processor's kernels", environment=OLDER),
    ]
    if OTHER_MAJOR.exists():
        found.append(Circumstance("TransformerLens 4", python=str(OTHER_MAJOR)))
    return found


def models(zoo: Path | None) -> list[str]:
    """As `load` takes them."""
    if zoo is None:
        return [f"toy:{name}" for name in MODELS]
    return [str(path) for path in sorted(zoo.glob("*/model.pt"))]


def said(model: str, analysis: str, loaded: dict[str, Any], given: dict[str, Any]) -> Said | None:
    """None where the analysis does not fit the model."""
    answers = Path(model).parent / "answers.npz"
    data = {"data": answers} if analysis in WITH_ANSWERS and answers.exists() else {}
    try:
        result = it.analyze(it.load(model, **loaded), analysis, **data, **given)
    except it.InputError:
        return None
    heads = tuple(sorted(set(re.findall(r"L\d+H\d+", result.verdict))))
    if not isinstance(result, HeadsFinding):
        return Said(result.status, heads)
    named = [f"{h.name} {h.detector}" for h in result.heads if h.detected]
    denied = [f"{h.name} {h.detector}" for h in result.heads if h.causal in DENIALS]
    return Said(result.status, heads, tuple(named), tuple(denied))


def here(settings: dict[str, Any]) -> list[list[Any]]:
    """Model, analysis and what was said, of all that fit."""
    torch.set_num_threads(settings["threads"])
    found = []
    for model in settings["models"]:
        for analysis in settings["analyses"]:
            words = said(model, analysis, settings["loaded"], settings["given"])
            if words is not None:
                found.append([model, analysis, *words])
    return found


def apart(one: Circumstance, zoo: Path | None) -> dict[tuple[str, str], Said]:
    """The same in a process of its own."""
    analyses = ANALYSES if zoo is None else OF_ANY_MODEL
    settings = {"loaded": one.loaded, "given": one.given, "threads": one.threads}
    settings |= {"models": models(zoo), "analyses": analyses}
    done = subprocess.run(
        [one.python, __file__, "--here", json.dumps(settings)],
        env=os.environ | one.environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    rows = json.loads(done.stdout.strip().splitlines()[-1])
    return {
        (name, analysis): Said(status, *map(tuple, heads))
        for name, analysis, status, *heads in rows
    }


def contradict(one: str, other: str) -> bool:
    """Whether one says yes and the other no, or that there is nothing."""
    tones = {STATUS_TONES.get(one), STATUS_TONES.get(other)}
    return "yes" in tones and bool(tones & {"no", "none", "against"})


def compared(one: Said, other: Said) -> tuple[int, ...]:
    """What is counted of two verdicts, as the columns have it."""
    named = set(one.named) | set(other.named)
    kept = set(one.named) & set(other.named)
    denied = set(one.named) & set(other.denied) | set(other.named) & set(one.denied)
    same = one.status == other.status
    return (
        *(1, same, same and one.heads == other.heads, contradict(one.status, other.status)),
        *(len(named), len(kept), len(denied)),
    )


def _short(model: str) -> str:
    """A toy's name, or that of a model's folder."""
    return Path(model).parent.name or model.removeprefix("toy:")


def main() -> None:
    """Measure and print."""
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["--here"]:
        print(json.dumps(here(json.loads(sys.argv[2]))))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--zoo", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    counts: dict[str, list[int]] = {}
    differing: list[dict[str, Any]] = []
    asked = circumstances(options.seeds)
    plain: dict[tuple[str, str], Said] = {}
    for one in track(asked, "circumstances"):
        again = apart(one, options.zoo)
        if one.name == "plain":
            plain = again
            continue
        count = counts.setdefault(one.name, [0] * (len(COLUMNS) - 1))
        for at in sorted(plain.keys() & again.keys()):  # others have no such option
            both = plain[at], again[at]
            found = compared(*both)
            for number, value in enumerate(found):
                count[number] += value
            if both[0][:3] != both[1][:3] or found[-1]:
                differing.append({"model": _short(at[0]), "analysis": at[1], one.name: both})
    rows = [[what, *count] for what, count in counts.items()]
    table = Table(*COLUMNS)
    for row in rows:
        table.add_row(*map(str, row))
    console = Console(width=100)
    console.print(table)
    for each in differing:
        console.print(each)
    if options.json:
        kept = {"title": "Agreement", "columns": COLUMNS, "rows": rows}
        content = {"tables": [kept], "differing": differing}
        options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
