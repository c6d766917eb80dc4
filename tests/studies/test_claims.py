"""Claims of open studies: what an interval says of one, and of all of them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interp_studies.claims import JudgedClaim, coverage_of_each
from interp_studies.result import FRESH, StudyResult, claims_evidence
from interp_toolkit.results import Provenance

finite = st.floats(-10, 10)


def finding(low: float, high: float, **bounds: float) -> JudgedClaim:
    return JudgedClaim("it is so", (low + high) / 2, low, high, "3 seeds", **bounds)


def test_outcomes_at_a_bound() -> None:
    assert finding(0.6, 0.8, above=0.5).judgement == "confirmed"
    assert finding(0.5, 0.8, above=0.5).judgement == "undecided"  # the bound itself is not above
    assert finding(0.4, 0.5, above=0.5).judgement == "undecided"
    assert finding(0.4, 0.49, above=0.5).judgement == "refuted"
    assert finding(-0.1, 0.1, above=-0.2, below=0.2).judgement == "confirmed"
    assert finding(-0.3, 0.1, above=-0.2, below=0.2).judgement == "undecided"
    assert finding(0.21, 0.4, above=-0.2, below=0.2).judgement == "refuted"


@given(finite, finite, finite)
def test_the_opposite_claim_has_the_opposite_outcome(a: float, b: float, bound: float) -> None:
    low, high = sorted((a, b))
    above = finding(low, high, above=bound).judgement
    below = finding(low, high, below=bound).judgement
    opposite = {"confirmed": "refuted", "refuted": "confirmed", "undecided": "undecided"}
    assert below == opposite[above]


def test_an_estimate_lies_in_its_interval() -> None:
    with pytest.raises(ValueError, match="lies outside"):
        JudgedClaim("it is so", 2.0, 0.0, 1.0, "3 seeds", above=0.0)
    with pytest.raises(ValueError, match="nothing lies above"):
        finding(0.0, 1.0, above=2.0, below=1.0)
    with pytest.raises(ValueError, match="lies outside"):
        JudgedClaim("it is so", math.nan, 0.0, 1.0, "3 seeds", above=0.0)


def test_claims_share_the_error() -> None:
    assert coverage_of_each(1) == pytest.approx(0.95)
    assert coverage_of_each(5) == pytest.approx(0.99)


def test_status_counts_what_is_decided(texts) -> None:
    yes, no, open_ = (finding(*ends, above=0.5) for ends in ((0.6, 1.0), (0.0, 0.4), (0.0, 1.0)))
    assert claims_evidence([yes, no]).status == "answered"
    assert claims_evidence([yes, open_]).status == "partly_answered"
    assert claims_evidence([open_]).status == "undecided"
    check = JudgedClaim("it is made so", 1.0, 1.0, 1.0, "all", above=0.5, check=True)
    assert claims_evidence([check, open_]).status == "undecided"
    found_on = claims_evidence([yes, no], range(2))
    assert found_on.status == "undecided"
    texts(found_on.reason)
    assert claims_evidence([yes, no], range(FRESH, FRESH + 2)).status == "answered"
    assert claims_evidence([yes, open_]).reason == "1 of 2 claims are undecided"
    assert claims_evidence([yes]).judgements == {"it is so": "confirmed"}


def test_tables_and_frame() -> None:
    yes = finding(0.6, 0.8, above=0.5)
    of = Provenance({}, {}, {}, 0, {})
    result = StudyResult(
        "open/x", "It is.", claims_evidence([yes]), of, {}, question="is it?", claims=[yes]
    )
    assert result.tables()[0].rows == [
        ["it is so", "claim", "confirmed", 0.7, 0.6, 0.8, "3 seeds", None]
    ]
    assert list(result.to_frame()["judgement"]) == ["confirmed"]
    assert result.to_dict()["claims"][0]["below"] is None
