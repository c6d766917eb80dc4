"""Some rows of the table of families, measured here: what the page says runs, does."""

import json
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: with norms behind attention, latent attention, mixers, sinks and experts, and a refusal
FAMILIES = ("Olmo2", "DeepseekV2", "Lfm2", "GptOss", "Laguna")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_of_the_page_is_what_runs_here(family, benchmarks):
    benchmark = benchmarks("families")
    file = ROOT / "docs" / "results" / "benchmarks" / "families.json"
    releases = json.loads(file.read_text(encoding="utf-8"))["releases"]
    major = version("transformer-lens").partition(".")[0]
    stored = next(rows for release, rows in releases.items() if release.startswith(major))
    stored = next(row for row in stored if row["family"] == family)
    measured = benchmark.row(family)
    assert measured["exact"] < 1e-4
    names = (*benchmark.ANALYSES, "loads")
    assert {n: measured[n] for n in names} == {n: stored[n] for n in names}
