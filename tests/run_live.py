"""Every analysis of a live model, in every state that it may be found in: `make live`.

Each analysis of each kind of tiny model, first as it stands. Then in each situation: is the verdict
the same (status and heads named), or is there one line that says why not, and are weights, modes,
hooks, gradients, generators, dtype, device and threads as before? Then Ctrl-C at Python calls
drawn at random, and errors in hooks of the user's: are they as before?

The kinds: random weights as ours, as `HookedTransformer` and as a bridge around Hugging Face's
GPT-2, with features of random rows; toys, in which there is something to be found, on the rows of
their task; the trained one also as a `HookedTransformer` and as a bridge. Weights in bfloat16, in
float64, on the meta device or made under inference mode are copies; of a model that `torch.compile`
was given, the backend fails where anything is compiled at all.

Run: python tests/run_live.py [--interrupts 20] [--only ANALYSIS ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent / "helpers"))

import tiny_models
import torch
from live_models import SITUATIONS, StoppedError, failing_at, interrupted_at, rows, state_of
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn

import interp_toolkit as it
from interp_toolkit.results import STATUS_TONES

TRAINED = "induction-trained"
TOYS = ("xor-2head", TRAINED, "uand-trained", "sort-causal-trained", "skip-bigrams")
#: presets of these are left out, and what asks for rows of a kind that neither toys nor chance have
ANALYSES = (
    *("xor", "uand", "collapse", "heads", "circuit", "composition", "qk", "ov", "skip-bigrams"),
    "sorting",
)


#: how each is made, and whether rows are given
KINDS: dict[str, tuple[Callable[[], nn.Module], bool]] = {
    "own": (tiny_models.KINDS["own"], True),
    "HookedTransformer": (tiny_models.KINDS["hooked"], True),
    "bridge": (tiny_models.KINDS["gpt2"], True),
    **{f"toy:{name}": (partial(it.load, f"toy:{name}"), False) for name in TOYS},
    f"HookedTransformer, toy:{TRAINED}": (
        lambda: tiny_models.as_hooked_transformer(it.load(f"toy:{TRAINED}")),
        False,
    ),
    f"bridge, toy:{TRAINED}": (
        lambda: tiny_models.as_native_bridge(it.load(f"toy:{TRAINED}")),
        False,
    ),
}
READ_ROWS = {"xor", "uand", "collapse"}
SAME, REFUSED, OTHER = "same verdict", "refused in a line", "another verdict"
STOPPED, WENT_ON = "ended there", "went on"
COLUMNS = ["situation", "runs", SAME, REFUSED, OTHER, STOPPED, WENT_ON, "not as before"]
Said = tuple[str, ...]


class Stop(NamedTuple):
    """An analysis that was stopped: in which way, whether it ended there, and how it left all."""

    way: str
    ended: bool
    as_before: bool


def said(model: nn.Module, name: str, *, given: bool) -> Said:
    """The status and the heads named; or one line."""
    data = {"data": rows()} if given and name in READ_ROWS else {}
    try:
        result = it.analyze(model, name, **data)
    except it.InputError as error:
        line = str(error)
        return (REFUSED, line) if "\n" not in line else ("refused in several lines", line)
    return result.status, *sorted(set(re.findall(r"L\d+H\d+", result.verdict)))


def fails(*given: object) -> Any:
    """A backend of `torch.compile` that nothing should reach."""
    raise StoppedError


def under_inference_mode(make: Callable[[], nn.Module]) -> nn.Module:
    """A model whose weights nothing may change."""
    with torch.inference_mode():
        return make()


#: what makes another model of one
COPIES: dict[str, Callable[[Callable[[], nn.Module]], nn.Module]] = {
    "bfloat16 weights": lambda make: make().to(torch.bfloat16),
    "float64 weights": lambda make: make().to(torch.float64),
    "weights on the meta device": lambda make: make().to("meta"),
    "weights of inference mode": under_inference_mode,
    "torch.compile": lambda make: torch.compile(make(), backend=fails),
}


def tried(model: nn.Module, analyse: Callable[..., Said], plain: Said) -> tuple[str, bool, Said]:
    """What became of the verdict, and whether all is as before."""
    before = state_of(model)
    try:
        found = analyse(model)
    except Exception as error:  # it is what is counted
        found = (f"{type(error).__name__}", str(error))
    outcome = SAME if found == plain else REFUSED if found[0] == REFUSED else OTHER
    return outcome, state_of(model) == before, found


def interrupted(
    model: nn.Module, analyse: Callable[..., Said], times: int, rng: random.Random
) -> Iterator[Stop]:
    """By Ctrl-C, and by an error in a hook of the user's."""
    ways: dict[str, Callable[[int | None], Any]] = {
        "Ctrl-C at a call drawn at random": interrupted_at,
        "an error in a user's hook, drawn at random": partial(failing_at, model),
    }
    analyse(model)  # what is kept for later runs costs calls of the first alone
    for way, at in ways.items():
        with at(None) as count:
            analyse(model)
        for moment in sorted(rng.sample(range(1, count[0] + 1), min(times, count[0]))):
            before = state_of(model)
            try:
                with at(moment) as count:
                    analyse(model)
                ended = False
            except (KeyboardInterrupt, StoppedError):
                ended = True
            if count[0] < moment:  # a run of fewer calls: nothing was struck
                continue
            yield Stop(way, ended, state_of(model) == before)


def main() -> None:
    """Try all, count, print."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background shells ignore it
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interrupts", type=int, default=20, help="of each way, kind and analysis")
    parser.add_argument("--only", nargs="*", choices=ANALYSES, default=ANALYSES)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    counts: dict[str, dict[str, int]] = {}
    odd: list[dict[str, Any]] = []
    unfit: list[str] = []
    statuses: list[str] = []
    rng = random.Random(0)

    def counted(situation: str, outcome: str, as_before: bool, **about: Any) -> None:
        count = counts.setdefault(situation, dict.fromkeys(COLUMNS[1:], 0))
        count["runs"] += 1
        count[outcome] += 1
        count["not as before"] += not as_before
        if outcome == OTHER or not as_before:
            odd.append({"situation": situation, "outcome": outcome, "as before": as_before} | about)

    asked = [(kind, name) for kind in KINDS for name in options.only]
    for kind, name in track(asked, "kinds and analyses"):
        make, given = KINDS[kind]
        model, analyse = make().eval(), partial(said, name=name, given=given)
        plain = analyse(model)
        about: dict[str, Any] = {"model": kind, "analysis": name, "plain": plain}
        if plain[0] == REFUSED:
            unfit.append(f"{kind}, {name}: {plain[1]}")
            continue
        statuses.append(plain[0])
        for situation, enter in SITUATIONS.items():
            with enter(model):
                outcome, as_before, found = tried(model, analyse, plain)
            counted(situation, outcome, as_before, **about, found=found)
        for situation, change in COPIES.items():
            with contextlib.redirect_stdout(io.StringIO()):  # TransformerLens says that it moves
                other = change(make)
            outcome, as_before, found = tried(other, analyse, plain)
            counted(situation, outcome, as_before, **about, found=found)
        for stop in interrupted(make().train(), analyse, options.interrupts, rng):
            counted(stop.way, STOPPED if stop.ended else WENT_ON, stop.as_before, **about)
    table = Table(*COLUMNS)
    kept = [[what, *(count[c] for c in COLUMNS[1:])] for what, count in counts.items()]
    for row in kept:
        table.add_row(*map(str, row))
    console = Console(width=120)
    console.print(table)
    for each in odd:
        console.print(each, markup=False)
    positive = sum(STATUS_TONES.get(status) == "yes" for status in statuses)
    console.print(
        f"{len(statuses)} pairs of a model and an analysis, {positive} with a positive verdict"
    )
    for line in unfit:
        console.print("does not fit:", line, markup=False)
    if options.json:
        content = {"tables": [{"title": "Live", "columns": COLUMNS, "rows": kept}]}
        content |= {"pairs": len(statuses), "positive": positive, "odd": odd, "unfit": unfit}
        options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
