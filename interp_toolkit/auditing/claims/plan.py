"""The tests of each claim and their error levels, fixed before any data are seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interp_toolkit.auditing import circuit, heads, pair
from interp_toolkit.auditing.claims.kinds import (
    MOST_CLAIMS,
    AlgorithmClaim,
    BaseClaim,
    CircuitClaim,
    DirectionClaim,
    HeadsClaim,
    PairClaim,
)
from interp_toolkit.auditing.direction.audit import KINDS
from interp_toolkit.auditing.parts import coverage_of
from interp_toolkit.errors import InputError


def asserted_of(claim: BaseClaim) -> tuple[str, ...]:
    """The questions on which a claim depends."""
    if isinstance(claim, HeadsClaim):
        return heads.ASSERTED[claim.says]
    if isinstance(claim, CircuitClaim):
        return circuit.ASSERTED[claim.says]
    if isinstance(claim, DirectionClaim):
        return KINDS[claim.says].asserted
    if isinstance(claim, PairClaim):
        return pair.ASSERTED
    assert isinstance(claim, AlgorithmClaim)
    return ("matters", "special")


def single(claims: Sequence[BaseClaim]) -> list[BaseClaim]:
    """Split claims into those that are tested separately.

    Raises InputError for more than MOST_CLAIMS.
    """
    singles = [one for claim in claims for one in claim.each()]
    if len(singles) > MOST_CLAIMS:
        raise InputError(
            f"these are {len(singles)} claims (a claim about several heads counts once per head); "
            f"the limit is {MOST_CLAIMS}"
        )
    return singles


def plan_of(claims: Sequence[BaseClaim], level: float) -> list[dict[str, Any]]:
    """The plan, with one entry for each claim that is tested separately.

    `error_of_a_part` is the error probability at either end of its interval. Alternatives of which
    one is enough share it (their number may depend on the model, see each kind of audit).
    """
    every = single(claims)
    return [
        {
            "claim": claim.about,
            "asserts": list(asserted_of(claim)),
            "error_of_a_part": (1 - coverage_of(level, len(every), len(asserted_of(claim)))) / 2,
        }
        for claim in every
    ]
