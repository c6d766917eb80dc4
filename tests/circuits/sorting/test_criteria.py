"""The rule from marks to a verdict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interp_toolkit.circuits.sorting.criteria import (
    ARGMAX,
    MIN_GREATER,
    RULES,
    Criterion,
    criteria_of,
    decide,
    sorts,
)

STATES = ("strong", "weak", "absent", "unknown")


def marks(first: str, second: str) -> list[Criterion]:
    """Marks of algorithm 1 and of algorithm 2 by their states' initials."""
    states = {s[0]: s for s in STATES}
    return [
        Criterion(algorithm, rule.name, "", 1.0, None, None, 0.0, 0.5, 0.5, states[letter])
        for algorithm, letters in ((MIN_GREATER, first), (ARGMAX, second))
        for rule, letter in zip(
            (r for r in RULES if r.algorithm == algorithm), letters, strict=False
        )
    ]


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        ("ssss", "aaaaa", MIN_GREATER),
        ("ssss", "wwwws", MIN_GREATER),
        ("sssu", "aaaaa", MIN_GREATER),
        ("awsa", "sssss", ARGMAX),
        ("", "ssss", ARGMAX),
        ("ssss", "sssss", "mixed"),
        ("wwsw", "wwsws", "mixed"),
        ("awsw", "wwsws", "mixed"),
        ("ssaw", "saaaw", "neither"),
        ("aaws", "wwsws", "neither"),
        ("aawa", "wwsws", "neither"),
        ("wawa", "wwsws", "mixed"),
        ("wwsw", "wwssa", "neither"),
        ("aaws", "saaaw", "neither"),
        ("sssw", "aaaaw", "neither"),
        ("ssas", "awaaw", "neither"),
        ("wwww", "wswsw", "mixed"),
        ("aaaa", "aaaaa", "neither"),
        ("", "wsss", "neither"),
        ("suuu", "aaaaa", "neither"),
        ("suus", "aauuu", "neither"),
        ("ssus", "aauuu", MIN_GREATER),
        ("", "suus", ARGMAX),
        ("uuuu", "uuuuu", "neither"),
    ],
)
def test_verdicts(first: str, second: str, verdict: str) -> None:
    assert decide(marks(first, second), sorts=True) == verdict
    assert decide(marks(first, second), sorts=False) == "neither"


@given(st.text("swau", max_size=4), st.text("swau", max_size=5))
def test_an_algorithm_is_named_only_if_every_known_mark_of_it_is_strong(first, second) -> None:
    verdict = decide(marks(first, second), sorts=True)
    for algorithm, letters in ((MIN_GREATER, first), (ARGMAX, second)):
        if verdict == algorithm:
            assert set(letters) <= {"s", "u"}
            assert letters.count("s") >= 2


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.algorithm[:3]}-{rule.name}")
def test_thresholds_are_reached_from_the_right_side(rule) -> None:
    step = 1e-6 if rule.strong >= rule.weak else -1e-6
    assert rule.state(rule.strong + step) == "strong"
    assert rule.state(rule.strong - step) == "weak"
    assert rule.state(rule.weak + step) == "weak"
    assert rule.state(rule.weak - step) == "absent"
    assert rule.state(None) == "unknown"


def test_the_null_beside_a_mark_is_the_one_nearest_to_strong() -> None:
    null = {"follows_token": [0.3, 0.9, 0.5], "logit_slope_error": [0.3, 0.9, 0.5]}
    found = {m.name: m.null for m in criteria_of({}, null, autoregressive=True)}
    assert found["follows_token"] == 0.9
    assert found["logit_slope_error"] == 0.3
    assert found["copy_score"] is None


def test_in_place_there_are_no_marks_of_what_follows_an_output() -> None:
    names = {m.name for m in criteria_of({}, {}, autoregressive=False)}
    assert names == {"logit_fit_r2", "logit_line_r2", "logit_slope_error", "kink_r2"}


@pytest.mark.parametrize(
    ("right", "guess", "verdict"),
    [(1.0, 0.9, True), (0.95, 0.9, True), (0.94, 0.9, False), (0.63, 0.63, False)],
)
def test_sorting_is_half_way_from_a_guess_to_all(right, guess, verdict) -> None:
    assert sorts(right, guess) is verdict


def test_copying_and_what_untrained_models_show_too_make_no_mix() -> None:
    """Both algorithms' heads copy, and reinitialized models follow a swapped token at times."""
    values = {"copy_score": 1.0, "above_lift": 0.3, "follows_token": 0.4, "kink_r2": 0.5}
    values |= {"follows_position": 0.5, "smallest_lift": 0.0}
    null = {"above_lift": [0.1], "follows_token": [0.2], "kink_r2": [0.1]}
    null |= {"follows_position": [0.2]}
    assert decide(criteria_of(values, null, autoregressive=True), sorts=True) == "mixed"
    for name in ("above_lift", "follows_token", "kink_r2", "follows_position"):
        as_untrained = null | {name: [values[name]]}
        found = criteria_of(values, as_untrained, autoregressive=True)
        assert decide(found, sorts=True) == "neither", name
    assert decide(criteria_of(values, {}, autoregressive=True), sorts=True) == "neither"  # no null
    interval = {"follows_token": (0.19, 0.6)}  # reaches into the null
    found = criteria_of(values, null, autoregressive=True, intervals=interval)
    assert decide(found, sorts=True) == "neither"


def test_an_undecided_criterion_is_known_and_no_evidence() -> None:
    """Left out, as one that cannot be told, it would leave three strong ones: enough."""
    found = [
        *marks("sss", "aaaaa"),
        Criterion(MIN_GREATER, "m", "", 0.3, None, None, None, 0.2, 0.5, "undecided"),
    ]
    assert decide(found, sorts=True) == "neither"


@pytest.mark.parametrize(
    ("interval", "state"),
    [
        ((0.55, 0.9), "strong"),
        ((0.45, 0.9), "weak"),
        ((0.25, 0.45), "weak"),
        ((0.1, 0.45), "undecided"),
        ((0.1, 0.6), "undecided"),
        ((0.0, 0.15), "absent"),
    ],
)
def test_a_criterion_says_no_more_than_its_interval(
    interval: tuple[float, float], state: str
) -> None:
    """The thresholds of `follows_token` are 0.2 and 0.5."""
    value = sum(interval) / 2
    found = criteria_of(
        {"follows_token": value},
        {},
        autoregressive=True,
        intervals={"follows_token": interval},
    )
    [mark] = [m for m in found if m.name == "follows_token"]
    assert (mark.state, mark.low, mark.high) == (state, *interval)
