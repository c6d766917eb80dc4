"""Do verdicts agree with themselves? Each analysis of each model again, under other circumstances.

The circumstances: another seed (of rows, draws and nulls), float64 and bfloat16 weights, batches of
8 MiB, two threads, an older processor's kernels, and TransformerLens' next major (where `.venv-tl4`
is made). Agreement is of the status, and of the set of heads that the verdict names; a
*contradiction* is a yes that becomes a no or a nothing found, or the other way round. Where the
seed is another, rows are others too, and bfloat16 is another model within its precision: that a
verdict becomes *undecided* there is what it is for, and these stand apart from what nothing but
arithmetic changes.

With --zoo the models are those of a folder that `zoo_heads.py` takes, and the analyses those that
need no rows of theirs.

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
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

import interp_toolkit as it
from interp_toolkit.results import STATUS_TONES

MODELS = (
    *("xor-1head", "xor-2head", "induction", "induction-trained", "induction-decoy"),
    *("sort-causal-trained", "sort-bidirectional-trained", "uand-trained"),
)
ANALYSES = (
    *("xor", "heads", "circuit", "composition", "qk", "ov", "collapse", "uand", "sorting"),
    "roles",
)
WITHOUT_ROWS = ("heads", "composition", "qk", "ov", "collapse", "sorting")
MEMORY = "8MiB"
OTHER_MAJOR = Path(".venv-tl4/bin/python")
OLDER = {"OPENBLAS_CORETYPE": "Haswell", "ATEN_CPU_CAPABILITY": "default"}

#: the status and the heads named
Said = tuple[str, tuple[str, ...]]


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
    try:
        result = it.analyze(it.load(model, **loaded), analysis, **given)
    except it.InputError:
        return None
    return result.status, tuple(sorted(set(re.findall(r"L\d+H\d+", result.verdict))))


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
    analyses = ANALYSES if zoo is None else WITHOUT_ROWS
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
    return {(name, analysis): (status, tuple(heads)) for name, analysis, status, heads in rows}


def contradict(one: str, other: str) -> bool:
    """Whether one says yes and the other no, or that there is nothing."""
    tones = {STATUS_TONES.get(one), STATUS_TONES.get(other)}
    return "yes" in tones and bool(tones & {"no", "none", "against"})


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
        count = counts.setdefault(one.name, [0, 0, 0, 0])
        for at in plain.keys() & again.keys():  # others have no such option
            both = plain[at], again[at]
            count[0] += 1
            count[1] += both[0][0] == both[1][0]
            count[2] += both[0] == both[1]
            count[3] += contradict(*(status for status, _ in both))
            if both[0] != both[1]:
                differing.append({"model": _short(at[0]), "analysis": at[1], one.name: both})
    heads = [
        *("circumstance", "verdicts", "same status", "same status and heads", "contradictions"),
    ]
    rows = [[what, *count] for what, count in counts.items()]
    table = Table(*heads)
    for row in rows:
        table.add_row(*map(str, row))
    console = Console(width=100)
    console.print(table)
    for each in differing:
        console.print(each)
    if options.json:
        kept = {"title": "Agreement", "columns": heads, "rows": rows}
        content = {"tables": [kept], "differing": differing}
        options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
