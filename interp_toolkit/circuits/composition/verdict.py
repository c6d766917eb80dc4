"""The verdict on composition in words: how many pairs, and which has the largest score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from interp_toolkit.circuits.composition.result import (
    INTO,
    CompositionEvidence,
    pair_name,
)
from interp_toolkit.evidence import comparisons_status
from interp_toolkit.stats import LEVEL

NULL = "the residual coordinates that the reader reads, in random order and with random signs"
ADJUSTED = "Holm, over all pairs and the three kinds of composition"


def evidence_of(p_adjusted: Float[np.ndarray, " pair"]) -> CompositionEvidence:
    """What the verdict rests on: p-values of all pairs and modes, NaN where none could be made."""
    status, reason = comparisons_status(p_adjusted, LEVEL)
    return CompositionEvidence(
        status=status,
        reason=reason,
        pairs=int((~np.isnan(p_adjusted)).sum()),
        significant=int((p_adjusted <= LEVEL).sum()),
        level=LEVEL,
        null=NULL,
        adjusted=ADJUSTED,
    )


def verdict(
    pairs: Sequence[Mapping[str, Any]], counts: Mapping[str, Mapping[str, int | float]]
) -> str:
    """How many pairs compose beyond chance, and which of them has the largest score."""
    n_pairs = sum(count["pairs"] for count in counts.values())
    significant = {mode: count["significant"] for mode, count in counts.items()}
    if not n_pairs:
        return "Undecided: no pair of heads has weights that could be compared with permuted ones."
    if not sum(significant.values()):
        return (
            "No pair of heads composes more than with residual coordinates in random order (of "
            f"{n_pairs} comparisons, adjusted p above 0.05 in all)."
        )
    first = max((pair for pair in pairs if pair["p_adjusted"] <= LEVEL), key=lambda p: p["score"])
    by_mode = ", ".join(f"{mode} {count}" for mode, count in significant.items())
    return (
        f"By their weights, {sum(significant.values())} of {n_pairs} pairs compose more than with "
        f"residual coordinates in random order ({by_mode}; adjusted p at most 0.05), the largest "
        "score being that of "
        f"{pair_name(first, 'writer')} into the {INTO[first['mode']]} of "
        f"{pair_name(first, 'reader')} "
        f"(score {first['score']:.3g}, baseline {first['baseline']:.3g}); whether the model makes "
        "use of it, weights do not say."
    )
