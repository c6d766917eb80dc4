"""The verdict of the QK and OV analyses: what heads would do, by their weights, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from interp_toolkit.circuits.qk_ov.result import (
    RESULTS,
    Circuit,
    HeadCircuitEvidence,
    Records,
)
from interp_toolkit.evidence import comparisons_status
from interp_toolkit.results import head_name
from interp_toolkit.stats import LEVEL

BASIS = "weights alone: what a head would do, not whether the model makes use of it"
NULL = "the residual coordinates that the head reads, in random order and with random signs"
_DOES = {"qk": "attend to a token's own kind", "ov": "copy"}


def scored(circuit: Circuit, records: Records) -> tuple[Records, Records]:
    """The heads that have a score, and those of them that are beyond the null."""
    known = [r for r in records if r[f"{circuit}_p_adjusted"] is not None]
    return known, [r for r in known if r[f"{circuit}_p_adjusted"] <= LEVEL]


def evidence_of(circuit: Circuit, records: Records, *, one_head: bool) -> HeadCircuitEvidence:
    """What the verdict rests on; of one head taken apart nothing is claimed, it is described."""
    known, found = scored(circuit, records)
    p_values = np.array([r[f"{circuit}_p_adjusted"] for r in known], dtype=float)
    status, reason = comparisons_status(p_values, LEVEL)
    if one_head:
        status, reason = "described", None
    return HeadCircuitEvidence(
        status=status,
        reason=reason,
        basis=BASIS,
        null=NULL,
        level=LEVEL,
        heads=len(known),
        found=len(found),
    )


def about_all(circuit: Circuit, records: Records) -> str:
    """How many heads join tokens to themselves, by their weights, and which most purely."""
    known, found = scored(circuit, records)
    name = RESULTS[circuit].words[1]
    if not known:
        return f"No head of this model has a {name} score from weights alone."
    if not found:
        return (
            f"By their weights, none of {len(known)} heads would {_DOES[circuit]} more than if it "
            "read the residual coordinates in random order (adjusted p above 0.05)."
        )
    score = f"{circuit}_{name}"
    # of scores that read alike, that of the largest diagonal: rounding decides between no two
    best = max(found, key=lambda r: (float(f"{r[score]:.3g}"), r[f"{circuit}_diagonal"]))
    return (
        f"By their weights, {len(found)} of {len(known)} heads would {_DOES[circuit]}: the "
        "circuit from embeddings joins tokens to themselves more than with residual coordinates "
        "in random order (adjusted p at most 0.05), most purely in "
        f"{head_name(best['layer'], best['head'])} (eigenvalue score {best[score]:.3g})."
    )


def about_one(
    circuit: Circuit, layer: int, head: int, record: Mapping[str, Any], detail: Mapping[str, Any]
) -> str:
    """The size of one head's circuit, its score and its largest entry."""
    _, name, left, right = RESULTS[circuit].words
    first, count = detail["pairs"][0], len(detail["singular_values"])
    rank, score = record["effective_rank"], record[f"{circuit}_{name}"]
    copies = "" if score is None else f", its {name} score is {score:.3g}"
    size = "is zero" if rank is None else f"has effective rank {rank:.3g} of {count}"
    return (
        f"The {circuit.upper()} circuit of {head_name(layer, head)} {size}{copies}, and its "
        f"largest score is {first['score']:.4g}, from {left} {first[left]} to {right} "
        f"{first[right]}."
    )
