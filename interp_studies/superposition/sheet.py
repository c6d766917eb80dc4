"""A page of figures that the source does not have: described, and held against nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interp_studies.jobs.runner import Runner
from interp_studies.result import Quantity, StudyResult, study_provenance
from interp_toolkit.results import Evidence, Figure, Table


def sheet(
    name: str,
    source: str,
    runner: Runner,
    *,
    settings: Mapping[str, Any],
    verdict: str,
    quantities: Sequence[Quantity],
    jobs: Mapping[str, Mapping[str, Any]],
    details: Sequence[Table],
    plots: Sequence[Figure] = (),
) -> StudyResult:
    """The result of a study whose figures are described.

    Args:
        name: of the artefact.
        source: document and section.
        runner: what ran the jobs.
        settings: of the study.
        verdict: what was found.
        quantities: what was measured.
        jobs: every job's values.
        details: tables of them.
        plots: figures.
    """
    return StudyResult(
        probe=name,
        verdict=verdict,
        evidence=Evidence(status="described", reason="the source gives no figures"),
        provenance=study_provenance(name, source, settings, runner.first_seed),
        quantities=quantities,
        jobs=jobs,
        details=details,
        plots=list(plots),
    )
