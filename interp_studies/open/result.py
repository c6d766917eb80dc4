"""What a study of an open question returns: its claims, each with its interval, and every number.

Status: `answered` where every claim is confirmed or refuted, `partly_answered` where some are, and
`undecided` where none is, or where the seeds are of those that the claims were found on: a study is
run on others, from `FRESH` on, where nobody says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from interp_studies.open.claim import JudgedClaim, claims_table
from interp_studies.result import study_provenance
from interp_toolkit.results import Evidence, Figure, Result, Status, Table

if TYPE_CHECKING:
    import pandas as pd

FRESH = 3_000  # claims were found, and seen, on seeds below


@dataclass(frozen=True)
class OpenEvidence(Evidence):
    """What the answer to an open question rests on.

    Attributes:
        judgements: the outcome of every claim, by its words.
    """

    judgements: Mapping[str, str]

    in_tables = frozenset({"judgements"})


def open_evidence(findings: Sequence[JudgedClaim], seeds: Iterable[int] = ()) -> OpenEvidence:
    """The status of a study with these findings.

    Args:
        findings: what came of the claims, and of checks, which do not count.
        seeds: that they are judged on; below `FRESH` lie those that claims were found on.
    """
    judgements = {f.claim: f.judgement for f in findings}
    if any(seed < FRESH for seed in seeds):
        found = "the claims were found on such seeds: these are no test of them"
        return OpenEvidence("undecided", judgements, reason=found)
    claims = [f for f in findings if not f.check]
    open_ = [f for f in claims if f.judgement == "undecided"]
    status: Status = "partly_answered"
    if not open_:
        status = "answered"
    elif len(open_) == len(claims):
        status = "undecided"
    reason = f"{len(open_)} of {len(claims)} claims are undecided" if open_ else None
    return OpenEvidence(status, judgements, reason=reason)


@dataclass(frozen=True)
class OpenResult(Result):
    """The answer to a question that a source leaves open.

    Attributes:
        question: in one sentence.
        claims: fixed before the numbers were seen, and what came of them.
        jobs: what each job found, by its name: every seed's numbers.
        details: tables of what was measured.
    """

    question: str
    claims: Sequence[JudgedClaim]
    jobs: Mapping[str, Mapping[str, Any]]
    details: Sequence[Table] = ()

    omit_from_json: ClassVar[frozenset[str]] = frozenset({"details"})

    def to_frame(self) -> pd.DataFrame:
        """One row a claim."""
        import pandas as pd

        rows = [dataclasses.asdict(f) | {"judgement": f.judgement} for f in self.claims]
        return pd.DataFrame(rows)

    def tables(self) -> list[Table]:
        """The claims; what was measured."""
        return [claims_table(self.claims), *self.details]


def open_result(
    name: str,
    source: str,
    question: str,
    verdict: str,
    findings: Sequence[JudgedClaim],
    jobs: Mapping[str, Mapping[str, Any]],
    *,
    settings: Mapping[str, Any],
    seeds: range,
    details: Sequence[Table] = (),
    notes: Sequence[str] = (),
    plots: Sequence[Figure] = (),
) -> OpenResult:
    """The result of a study that was judged on these seeds.

    Args:
        name: of the artefact.
        source: document and section.
        question: in one sentence.
        verdict: what the findings say.
        findings: the claims and checks.
        jobs: what each job found.
        settings: as run; how many seeds is added.
        seeds: that the claims are judged on.
        details: tables of what was measured.
        notes: what a reader must know beside.
        plots: the figures.
    """
    return OpenResult(
        probe=name,
        verdict=verdict,
        evidence=open_evidence(findings, seeds),
        provenance=study_provenance(name, source, {**settings, "seeds": len(seeds)}, seeds.start),
        question=question,
        claims=findings,
        jobs=jobs,
        details=details,
        notes=notes,
        plots=plots,
    )
