"""When the source's ordering holds, when it does not, and when nothing is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from interp_studies.random_attention.ordering import (
    Claim,
    Range,
    claims_of,
    judge,
    of_group,
    ordering_table,
    range_of,
    sentence,
    status_of,
)

shares = st.lists(st.floats(0, 1), min_size=1, max_size=4)


def losses(*values: float) -> Range:
    return range_of(values, 0, better="lower", unit="nats")


def bits(*values: float) -> Range:
    return range_of([float(value) for value in values], 0, unit="")


def test_claims_are_read_from_the_sources_figures() -> None:
    theirs = {"standard": 1.0, "frozen-qk": 0.97, "mixit": 0.11}
    claims = claims_of("retrieval", theirs, guess=0.01)
    assert [(c.first, c.second, c.alike) for c in claims] == [
        ("standard", "frozen-qk", True),
        ("standard", "mixit", False),
        ("frozen-qk", "mixit", False),
    ]
    assert [c.half_way for c in claims] == [0.49, 0.06, 0.06]
    assert claims[1].theirs == "100.00 % and 11.00 %"
    [loss] = claims_of("text", {"mixit": 3.73, "standard": 2.78}, "lower", "nats")
    assert (loss.first, loss.second, loss.alike, loss.half_way) == (
        "standard",
        "mixit",
        False,
        None,
    )


def test_a_share_has_the_range_that_its_examples_allow() -> None:
    found = range_of([0.5, 0.6], 100)
    low, high = stats.beta.ppf(0.025, 50, 51), stats.beta.ppf(0.975, 61, 40)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert range_of([1.0], 4_000).low == pytest.approx(0.025 ** (1 / 4_000))
    assert range_of([1.0], 4_000).high == 1
    assert (losses(2.5, 2.25).low, losses(2.5, 2.25).high) == (2.25, 2.5)


@pytest.mark.parametrize(
    ("first", "second", "outcome", "by_seed"),
    [
        (losses(2.0, 2.1), losses(2.25, 2.5), "reached", [True, True]),
        (losses(2.25, 2.5), losses(2.0, 2.1), "not_reached", [False, False]),
        (losses(2.0, 2.3), losses(2.2, 2.5), "undecided", [True, True]),
        (losses(2.3, 2.0), losses(2.2, 2.5), "undecided", [False, True]),
        (losses(2.0), losses(2.0), "undecided", [False]),
        (losses(2.0), losses(2.05), "undecided", [True]),
        (bits(3.0), bits(2.0), "reached", [True]),
        (bits(2.0), bits(3.0), "not_reached", [False]),
    ],
)
def test_the_first_is_better(first: Range, second: Range, outcome: str, by_seed) -> None:
    judged = judge(Claim("g", "a", "b"), first, second)
    assert (judged.outcome, list(judged.by_seed)) == (outcome, by_seed)


@pytest.mark.parametrize(
    ("first", "second", "outcome", "by_seed"),
    [
        (bits(2.0, 2.05), bits(2.02, 2.0), "reached", [True, True]),
        (bits(2.0, 2.2), bits(2.05, 2.15), "undecided", [True, True]),
        (bits(2.5, 2.6), bits(2.0, 2.1), "not_reached", [False, False]),
        (bits(2.0, 2.1), bits(2.5, 2.6), "not_reached", [False, False]),
    ],
)
def test_they_are_alike(first: Range, second: Range, outcome: str, by_seed) -> None:
    judged = judge(Claim("g", "a", "b", alike=True), first, second)
    assert (judged.outcome, list(judged.by_seed)) == (outcome, by_seed)


def test_models_that_learn_nothing_are_not_called_alike() -> None:
    claim = Claim("g", "a", "b", alike=True, half_way=0.5)
    nothing, most, all_ = (range_of([x], 100_000) for x in (0.01, 0.51, 1.0))
    judged = judge(claim, nothing, nothing)
    assert (judged.outcome, list(judged.by_seed)) == ("undecided", [False])
    assert "not half way" in judged.ours
    assert judge(claim, most, most).outcome == "reached"
    assert judge(claim, nothing, all_).outcome == "not_reached"


def test_a_lead_below_guessing_is_none(texts) -> None:
    claim = Claim("retrieval", "standard", "mixit", guess=0.34)
    low, lower, high = (range_of([x], 4_000) for x in (0.14, 0.10, 0.9))
    judged = judge(claim, low, lower)
    assert judged.outcome == "undecided"
    texts(judged.ours)
    assert judge(claim, high, lower).outcome == "reached"
    assert judge(claim, lower, high).outcome == "not_reached"


@given(first=shares, second=shares, alike=st.booleans(), examples=st.integers(1, 5_000))
def test_naming_the_two_the_other_way_round(first, second, alike: bool, examples: int) -> None:
    n = min(len(first), len(second))
    a, b = range_of(first[:n], examples), range_of(second[:n], examples)
    one, other = judge(Claim("g", "a", "b", alike), a, b), judge(Claim("g", "b", "a", alike), b, a)
    turned = {"reached": "not_reached", "not_reached": "reached", "undecided": "undecided"}
    assert other.outcome == (one.outcome if alike else turned[one.outcome])
    assert a.low <= min(a.values) <= max(a.values) <= a.high
    if not alike and one.outcome == "reached":
        assert all(one.by_seed)


def test_the_sentence_says_where_and_why_not(texts) -> None:
    pairs = [
        judge(Claim("retrieval", "standard", "mixit"), bits(3, 3), bits(1, 1)),
        judge(Claim("retrieval", "standard", "frozen-qk"), bits(3, 2), bits(1.5, 1.5)),
        judge(Claim("k-hop", "standard", "mixit", False, "3 and 1"), bits(1, 1), bits(2, 3)),
        judge(Claim("Dyck-1", "standard", "mixit", alike=True), bits(1, 2), bits(1, 1)),
    ]
    texts(sentence(pairs))
    texts(sentence(pairs[2:3]))
    [one] = [judge(Claim("retrieval", "standard", "mixit"), bits(3), bits(1))]
    texts(sentence([one]))
    assert of_group(pairs[:2]) == "reached"
    assert of_group([pairs[0], pairs[3]]) == "undecided"
    assert of_group(pairs) == "not_reached"
    table = ordering_table(pairs)
    assert [row[1] for row in table.rows] == [
        "standard > mixit",
        "standard > frozen-qk",
        "standard > mixit",
        "standard ≈ mixit",
    ]
    assert [row[-1] for row in table.rows] == ["reached", "reached", "not_reached", "undecided"]


@pytest.mark.parametrize(
    ("outcomes", "word"),
    [
        (["reached", "reached"], "reached"),
        (["reached", "undecided"], "partly_reached"),
        (["reached", "not_reached"], "partly_reached"),
        (["not_reached", "undecided"], "not_reached"),
        (["undecided", "undecided"], "undecided"),
    ],
)
def test_the_machine_word(outcomes, word: str) -> None:
    assert status_of(outcomes) == word
