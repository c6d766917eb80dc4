"""The verdict on composition in words: how many pairs, and which is the clearest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interp_toolkit.circuits.composition.result import (
    INTO,
    CompositionEvidence,
    pair_name,
)
from interp_toolkit.stats import LEVEL

NULL = "a random rotation between writer and reader, with their own singular values"
ADJUSTED = "Holm, over all pairs and the three kinds of composition"


def evidence_of(counts: Mapping[str, Mapping[str, int | float]]) -> CompositionEvidence:
    """What the verdict rests on."""
    significant = sum(int(count["significant"]) for count in counts.values())
    return CompositionEvidence(
        status="detected" if significant else "not_detected",
        reason=None if significant else f"adjusted p above {LEVEL:g} in all pairs",
        pairs=sum(int(count["pairs"]) for count in counts.values()),
        significant=significant,
        level=LEVEL,
        null=NULL,
        adjusted=ADJUSTED,
    )


def verdict(
    pairs: Sequence[Mapping[str, Any]], counts: Mapping[str, Mapping[str, int | float]]
) -> str:
    """How many pairs compose beyond chance, and the clearest of them."""
    looks = sum(count["pairs"] for count in counts.values())
    found = {mode: count["significant"] for mode, count in counts.items()}
    if not sum(found.values()):
        return (
            f"No pair of heads composes more than a random rotation between them would (of {looks} "
            "looks, adjusted p above 0.05 in all)."
        )
    first = pairs[0]
    by_mode = ", ".join(f"{mode} {count}" for mode, count in found.items())
    return (
        f"By their weights, {sum(found.values())} of {looks} pairs compose more than a random "
        f"rotation between them would ({by_mode}; adjusted p at most 0.05), the clearest being "
        f"{pair_name(first, 'writer')} into the {INTO[first['mode']]} of "
        f"{pair_name(first, 'reader')} "
        f"(score {first['score']:.3g}, baseline {first['baseline']:.3g}); whether the model makes "
        "use of it, weights do not say."
    )
