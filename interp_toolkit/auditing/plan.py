"""What will be asked of each claim, and how sure an answer must be, before any data are seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interp_toolkit.auditing import circuit, direction, heads
from interp_toolkit.auditing.claims import (
    AlgorithmClaim,
    CircuitClaim,
    Claim,
    DirectionClaim,
    HeadsClaim,
    PairClaim,
)
from interp_toolkit.auditing.parts import coverage_of


def asserted_of(claim: Claim) -> tuple[str, ...]:
    """The questions that a claim rests on."""
    if isinstance(claim, HeadsClaim):
        return heads.ASSERTED[claim.says]
    if isinstance(claim, CircuitClaim):
        return circuit.ASSERTED[claim.says]
    if isinstance(claim, DirectionClaim):
        return direction.ASSERTED[claim.says]
    if isinstance(claim, PairClaim):
        return ("matters",)
    assert isinstance(claim, AlgorithmClaim)
    return ("matters", "special")


def single(claims: Sequence[Claim]) -> list[Claim]:
    """Every claim that is judged by itself."""
    return [one for claim in claims for one in claim.each()]


def plan_of(claims: Sequence[Claim], level: float) -> list[dict[str, Any]]:
    """The plan, one entry for each claim that is judged by itself."""
    every = single(claims)
    return [
        {
            "claim": claim.about,
            "asserts": list(asserted_of(claim)),
            "one_sided_error": (1 - coverage_of(level, len(every), len(asserted_of(claim)))) / 2,
        }
        for claim in every
    ]
