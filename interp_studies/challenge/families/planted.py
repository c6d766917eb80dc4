"""Heads with planted work (see `shared_work`): graded, shared, redundant, canceling, undone.

All layouts of `shared_work` but one are used, with decoys (heads with the same attention whose
output is not read), idle heads and attention sinks. *Canceling*: two decoys write the work head's
output, one of them with the opposite sign, so that together they change nothing. *Undone*: one
decoy subtracts half of what the work head writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from interp_studies.challenge.case import Case, Truth
from interp_studies.challenge.disguise import disguised
from interp_studies.challenge.families.layouts import RELATIONS, SHORTEST, Layout
from interp_studies.challenge.families.shared_work import Work, WorkDone, shared_work
from interp_studies.challenge.plain import measured_edges, paired
from interp_toolkit.models.model import Head
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.hand_set.heads import head_weights

ROWS = 384
LAYOUTS = tuple(name for name in RELATIONS if name != "mixed")
EXACT = ("duplicate-token",)  # its threshold needs all heads; noise is not needed for that
NEEDS_ALL = {2: 0.2, 3: 0.25}  # of the gain: noise under which a sum needs all of n heads
TAKEN_BACK = 0.5  # of the work head's output

#: how the work is done -> settings of `Work`
VARIANTS: dict[str, dict[str, Any]] = {
    "one head": {},
    "noise 0.1": {"noise": 0.1},
    "noise 0.2": {"noise": 0.2},
    "noise 0.4": {"noise": 0.4},
    "noise 0.8": {"noise": 0.8},
    "redundant, 2": {"n": 2, "sharing": "redundant"},
    "redundant, 3": {"n": 3, "sharing": "redundant", "across": True},
    "shared by attention, 2": {"n": 2, "dilution": "uniform"},
    "shared by output, 2": {"n": 2, "attention": 1.0},
    "shared by output, 3": {"n": 3, "attention": 1.0},
    "shared by tokens, 2": {"n": 2, "sharing": "tokens"},
    "cancelling": {},
    "undone": {},
}


def planted_cases(seed: int, count: int) -> Iterator[Case]:
    """`count` models: every variant in turn, with random layouts."""
    rng = np.random.default_rng([seed, 11])
    names = list(VARIANTS)
    for number in range(count):
        variant = names[number % len(names)]
        left_out = {"max"} if "attention" in variant else set()
        left_out |= set(EXACT) if variant in ("cancelling", "undone") else set()
        fits = [name for name in LAYOUTS if name not in left_out]
        yield planted_case(variant, str(rng.choice(fits)), int(rng.integers(2**31)))


def planted_case(variant: str, layout: str, seed: int) -> Case:
    """A model with planted heads.

    Args:
        variant: one of VARIANTS.
        layout: layout of the prompts, one of LAYOUTS.
        seed: random seed of everything else.
    """
    work = _draw_work(variant, layout, seed)
    source = shared_work(work)
    done: WorkDone = source.ground_truth
    relation = RELATIONS[layout]
    true = frozenset(Head(*at[1:]) for at in done.true)
    mine = sorted(Head(*at[1:]) for at in done.true if at[0] == relation)
    decoys = sorted(Head(*at[1:]) for at in done.attends - done.true if at[0] == relation)
    if variant == "cancelling":
        _copy_output(source, mine[0], decoys[0], 1.0)
        _copy_output(source, mine[0], decoys[1], -1.0)
    if variant == "undone":
        _copy_output(source, mine[0], decoys[0], -TAKEN_BACK)
    model, places, _ = disguised(source, seed, dtype=torch.float32)
    some, *others = (work.layout.rows(ROWS, seed % 2**20 + k) for k in range(4))
    data = paired(some, others)
    heads = frozenset(places[h] for h in true)
    plain = not work.noise and variant not in ("cancelling", "undone")
    truth = Truth(
        heads=heads,
        unasked=frozenset(places[h] for h in decoys[:2])
        if variant == "cancelling"
        else frozenset(),
        relations=_by_relation(done.true, places),
        attends=_by_relation(done.attends, places),
        edges=measured_edges(model, data, {f"a{h.layer}.h{h.head}" for h in heads})
        if plain
        else None,
    )
    strength = 1 / work.noise if work.noise else None
    return Case("planted", f"{variant}; {layout}", strength, seed, model, data, truth)


def _draw_work(variant: str, layout: str, seed: int) -> Work:
    rng = np.random.default_rng([seed, 12])
    settings = dict(VARIANTS[variant])
    n = settings.get("n", 1)
    if n > 1 and "sharing" not in settings and layout not in EXACT:
        settings["noise"] = NEEDS_ALL[n]
    n_ctx = int(rng.integers(max(SHORTEST[layout], 9), 15))
    n_ctx += layout == "lookup" and n_ctx % 2
    n_content = n_ctx + int(rng.integers(0, 7))
    least = 2 if variant in ("cancelling", "undone") else 0
    sinks = 0 if layout == "first-token" else int(rng.integers(0, 2))
    return Work(
        Layout(layout, n_ctx, n_content),
        decoys=int(rng.integers(least, 3)),
        sinks=sinks,
        idle=int(rng.integers(0, 3)),
        seed=seed,
        **settings,
    )


@torch.no_grad()
def _copy_output(model: Transformer, source: Head, target: Head, share: float) -> None:
    head_weights(model, target, "W_V").copy_(head_weights(model, source, "W_V"))
    head_weights(model, target, "W_O").copy_(share * head_weights(model, source, "W_O"))


def _by_relation(
    found: frozenset[tuple[str, int, int]], places: Mapping[Head, Head]
) -> dict[str, frozenset[Head]]:
    names = sorted({at[0] for at in found})
    return {
        name: frozenset(places[Head(*at[1:])] for at in found if at[0] == name) for name in names
    }
