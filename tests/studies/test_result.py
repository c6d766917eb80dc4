"""Theirs beside ours: medians, what counts as reached, and the sentence that says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from interp_studies.result import (
    Quantity,
    StudyResult,
    compare,
    compare_range,
    overall,
    shown,
    study_provenance,
    tally,
)
from interp_toolkit.report.html import dumps, to_html
from interp_toolkit.results import Evidence, Table

SCHEMA_FILE = Path(__file__).parents[2] / "docs" / "results.schema.json"


def test_the_median_is_held_against_theirs_and_ties_count() -> None:
    found = compare("a", "right", [0.9, 1.0, 0.95, 0.96], 0.955, remark="note")
    assert found == Quantity(
        "a", "right", "share", 0.955, (0.95 + 0.96) / 2, 0.9, 1.0, 4, 2, True, "note"
    )
    lower = compare("a", "loss", [0.5, 0.2, 0.3], 0.2, better="lower", unit="nats")
    assert (lower.median, lower.reached, lower.seeds_reaching) == (0.3, False, 1)
    assert compare("a", "loss", [0.2], 0.2, better="lower").reached
    assert compare("a", "right", [1.0], 1.0).reached
    without = compare("a", "right", [1.0])
    assert (without.reached, without.seeds_reaching) == (None, None)


@pytest.mark.parametrize("ours", [[], [float("nan")], [1.0, float("inf")]])
def test_no_median_of_nothing(ours: list[float]) -> None:
    with pytest.raises(ValueError, match="finite values"):
        compare("a", "right", ours)
    with pytest.raises(ValueError, match="finite values"):
        compare_range("a", "right", ours, (0.0, 1.0))


def test_the_median_is_held_against_a_range_and_what_is_allowed_beside_it() -> None:
    found = compare_range("a", "error", [0.1, 0.25, 0.5], (0.5, 0.54), tolerance=0.25)
    assert (found.median, found.reached, found.seeds_reaching) == (0.25, True, 2)
    assert (found.theirs, found.expected, found.tolerance) == (None, (0.5, 0.54), 0.25)
    assert compare_range("a", "e", [0.5625], (0.5, 0.54)).reached is False
    assert compare_range("a", "e", [0.49], (0.5, 0.54)).reached is False
    assert compare_range("a", "e", [0.5], (0.5, 0.5)).reached is True
    assert tally([compare_range("a", "e", [0.7], (0.5, 0.54), tolerance=0.04)]).endswith(
        "a: e 0.7, theirs 0.5 to 0.54 (± 0.04) (0 of 1 seeds reach it)."
    )
    assert "theirs 0.5 (" in tally([compare_range("a", "e", [0.7], (0.5, 0.5))])


def quantities(*medians: float) -> list[Quantity]:
    return [compare(f"e{i}", "right", [m], 0.5) for i, m in enumerate(medians)]


def test_the_sentence_names_what_was_not_reached(texts) -> None:
    unknown = compare("e9", "rate", [3.0], unit="per million")
    texts(tally([*quantities(0.6, 0.7), unknown]))
    texts(tally(quantities(0.6, 0.25)))
    assert tally(quantities(*[0.1] * 5)).endswith("(0 of 1 seeds reach it); and 2 more.")


def test_the_word_for_it() -> None:
    assert overall(quantities(0.6, 0.7)) == "reached"
    assert overall(quantities(0.6, 0.1)) == "partly_reached"
    assert overall(quantities(0.2, 0.1)) == "not_reached"


def test_values_with_their_units() -> None:
    assert shown(None, "share") is None
    assert shown(0.98625, "share") == "98.62 %"
    assert shown(0.00034, "nats") == "0.00034"
    assert shown(2.0, "per million") == "2"
    assert shown(939753.2, "per million") == "939,753"
    assert shown(1234.567, "") == "1235"


def test_tables_json_and_page() -> None:
    rows = [
        compare("e", "right", [0.4, 0.6], 0.5),
        compare("e", "rate", [1.0], unit=""),
        compare_range("e", "error", [0.5], (0.25, 0.5)),
    ]
    result = StudyResult(
        probe="p",
        verdict="v",
        evidence=Evidence(overall(rows)),
        provenance=study_provenance("p", "somewhere", {"preset": "small"}, 0),
        quantities=rows,
        jobs={"job": {"x": 1.5}},
        details=[Table("Every seed", ["seed"], [[0]])],
    )
    assert result.status == "reached"
    assert result.tables()[0].rows[0][:7] == [
        *("e", "right", "50.00 %", "50.00 %", "40.00 % to 60.00 %", 2, "reached")
    ]
    assert result.tables()[0].rows[1][4] is None
    assert list(result.to_frame()["median"]) == [0.5, 1.0, 0.5]
    assert result.tables()[0].rows[2][2] == "0.25 to 0.5"
    [data] = json.loads(dumps([result]))["results"]
    assert data["quantities"][0]["seeds_reaching"] == 1
    assert data["quantities"][0]["reached"] is True
    assert data["quantities"][1]["theirs"] is None
    assert data["quantities"][1]["expected"] is None
    assert data["quantities"][2]["expected"] == [0.25, 0.5]
    assert data["jobs"] == {"job": {"x": 1.5}}
    assert data["provenance"]["model"]["kind"] == "study"
    assert "details" not in data
    documented = json.loads(SCHEMA_FILE.read_text())["$defs"]["quantity"]
    assert list(data["quantities"][0]) == list(documented["properties"]) == documented["required"]
    assert "Theirs beside ours" in to_html([result])
