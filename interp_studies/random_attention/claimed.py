"""A study of the source whose outcome is claims with intervals, beside quantities over seeds.

Claims are stated before the numbers are looked at, by the rules of `open.claim`; all
intervals of a study hold together at 95 % (see `open.seed_claim`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from interp_studies.open.claim import JudgedClaim, claims_table
from interp_studies.result import StudyResult
from interp_toolkit.results import Table


@dataclass(frozen=True)
class ClaimsResult(StudyResult):
    """A study of the source with claims.

    Attributes:
        claims: what was claimed and what came of it.
    """

    claims: Sequence[JudgedClaim] = field(kw_only=True)

    def tables(self) -> list[Table]:
        """The claims, then as every study has them."""
        return [claims_table(self.claims), *super().tables()]
