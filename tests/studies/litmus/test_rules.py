"""Which sentence the rules allow: every sentence and every reason, on outcomes made by hand."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interp_studies.litmus.rules import Seeds, Trained, decide
from interp_toolkit.training.engine.metrics import FinalScore

EXAMPLES = 4_000


def made(
    name: str,
    values: list[float],
    *,
    before: float | None = None,
    unit: Literal["share", "nats"] = "share",
    better: Literal["higher", "lower"] = "higher",
    guess: float | None = 0.1,
    curve: bool = True,
) -> Seeds:
    """Seeds whose curves went from `before` (None: the end) at three quarters to their values."""
    return Seeds(
        name,
        [
            Trained(
                seed,
                FinalScore("accuracy", value, better, unit, guess, EXAMPLES),
                (0, 30, 60, 75, 90, 100) if curve else (),
                (guess or 0.0, 0.5, 0.5, value if before is None else before, value, value)
                if curve
                else (),
            )
            for seed, value in enumerate(values)
        ],
    )


WELL, BADLY, MIDDLING = [0.998, 1.0, 0.999], [0.11, 0.12, 0.115], [0.4, 0.42, 0.41]


def test_a_gap_that_nothing_else_explains_needs_it() -> None:
    found = decide(made("standard", WELL), made("MixiT", BADLY))
    assert (found.status, found.margin) == ("needs", 0.05)
    assert found.gap.value == pytest.approx(0.884)
    assert 0.05 < found.gap.low < found.gap.value < found.gap.high


def test_no_gap_on_a_task_that_both_learn_does_not_need_it(texts) -> None:
    assert decide(made("standard", WELL), made("MixiT", WELL)).status == "does_not_need"
    close = decide(made("standard", [0.8, 0.801, 0.8]), made("MixiT", [0.79, 0.8, 0.795]))
    assert close.status == "does_not_need"
    texts(close.why)


def test_what_mixit_solves_needs_none_whatever_standard_does() -> None:
    solved = made("MixiT", WELL)
    for standard in (made("standard", BADLY), made("standard", [0.1, 0.9, 0.5], before=0.1)):
        found = decide(standard, solved)
        assert (found.status, found.why) == ("does_not_need", "MixiT solves it")
    # standard may still rise, and cannot rise past the margin
    assert decide(made("standard", WELL, before=0.8), solved).status == "does_not_need"


@pytest.mark.parametrize(
    ("standard", "mixit"),
    [
        (made("standard", [1.0]), made("MixiT", [0.1])),
        (made("standard", [1.0, 1.0]), made("MixiT", [0.1])),
        (made("standard", WELL), made("MixiT", [0.9, 1.0, 0.95])),
        (made("standard", [0.2, 1.0, 0.9]), made("MixiT", BADLY)),
        (made("standard", [0.11, 0.2, 0.05]), made("MixiT", BADLY)),
        (made("standard", WELL), made("MixiT", MIDDLING, before=0.3)),
        (made("standard", WELL), made("MixiT", MIDDLING, curve=False)),
        (made("standard", WELL), made("MixiT", [0.8, 0.81, 0.82])),
        (
            made("standard", [0.33, 0.34, 0.33], guess=0.3),
            made("MixiT", [0.1, 0.1, 0.11], guess=0.3),
        ),
        (made("standard", BADLY), made("MixiT", BADLY)),
        # a plateau that is well above guessing is not yet a task learned
        (made("standard", MIDDLING), made("MixiT", MIDDLING)),
        (made("standard", MIDDLING), made("MixiT", [0.7, 0.7, 0.7])),
        (made("standard", [0.575] * 3), made("MixiT", [0.555] * 3)),
        (made("standard", [0.8, 0.8, 0.8], before=0.6), made("MixiT", [0.8, 0.8, 0.8])),
        (made("standard", [0.8, 0.8, 0.8], curve=False), made("MixiT", [0.8, 0.8, 0.8])),
        (made("standard", [0.8, 0.8, 0.8], guess=None), made("MixiT", [0.8, 0.8, 0.8], guess=None)),
    ],
)
def test_otherwise_it_is_undecided_and_says_why(standard: Seeds, mixit: Seeds, texts) -> None:
    found = decide(standard, mixit)
    assert found.status == "undecided"
    texts(found.why)


def nats(name: str, values: list[float], **more: object) -> Seeds:
    return made(name, values, unit="nats", better="lower", **more)


def test_losses_are_compared_downwards(texts) -> None:
    low, high = [2.78, 2.79, 2.78], [3.73, 3.75, 3.74]
    found = decide(nats("standard", low, guess=7.0), nats("MixiT", high, guess=7.0))
    assert (found.status, found.margin) == ("needs", 0.1)
    assert found.gap.value == pytest.approx(0.957, abs=1e-3)
    falling = nats("MixiT", high, guess=7.0, before=4.0)
    assert "still improving" in decide(nats("standard", low, guess=7.0), falling).why
    assert decide(nats("standard", low, guess=None), nats("MixiT", high, guess=None)).status == (
        "needs"
    )
    alike = decide(nats("standard", low, guess=7.0), nats("MixiT", [2.8, 2.79, 2.8], guess=7.0))
    assert alike.status == "does_not_need"
    behind = decide(nats("standard", low, guess=2.8), nats("MixiT", low, guess=2.8))
    texts(behind.why)


def test_the_margin_is_the_users() -> None:
    standard, mixit = made("standard", WELL), made("MixiT", [0.5, 0.5, 0.5])
    assert decide(standard, mixit, 0.3).status == "needs"
    assert decide(standard, mixit, 0.499).status == "undecided"


def test_the_late_rise_is_from_the_last_measurement_before_the_quarter() -> None:
    def run(steps: tuple[int, ...], curve: tuple[float, ...]) -> Trained:
        measured = FinalScore("accuracy", curve[-1], "higher", "share", 0.1, EXAMPLES)
        return Trained(0, measured, steps, curve)

    assert run((0, 70, 80, 100), (0.0, 0.25, 0.5, 1.0)).rise == 0.75
    assert run((0, 100), (0.25, 1.0)).rise == 0.75
    assert run((0,), (0.25,)).rise is None


levels = st.lists(st.integers(0, EXAMPLES), min_size=1, max_size=4)


@given(levels, levels, st.integers(0, EXAMPLES), st.integers(0, EXAMPLES))
def test_shares_wrong_get_the_same_sentence_as_shares_right(
    first: list[int], second: list[int], guess: int, before: int
) -> None:
    """Counted as mistakes, where lower is better, everything is mirrored."""

    def right(name: str, counts: list[int]) -> Seeds:
        values = [n / EXAMPLES for n in counts]
        return made(name, values, guess=guess / EXAMPLES, before=before / EXAMPLES)

    def wrong(name: str, counts: list[int]) -> Seeds:
        values = [(EXAMPLES - n) / EXAMPLES for n in counts]
        mirrored = (EXAMPLES - guess) / EXAMPLES, (EXAMPLES - before) / EXAMPLES
        return made(name, values, better="lower", guess=mirrored[0], before=mirrored[1])

    margin = 0.0501234567  # on no boundary of these counts
    there = decide(right("standard", first), right("MixiT", second), margin)
    back = decide(wrong("standard", first), wrong("MixiT", second), margin)
    assert (there.status, there.why) == (back.status, back.why)
    assert there.gap.low == pytest.approx(back.gap.low, abs=1e-9)
    assert there.gap.high == pytest.approx(back.gap.high, abs=1e-9)


def test_a_margin_beyond_half_of_all_rows_decides_nothing() -> None:
    for values in ([0.1], [0.10, 0.12, 0.10]):
        found = decide(made("standard", [1.0] * len(values)), made("MixiT", values), 5.0)
        assert (found.status, "500 points" in found.why) == ("undecided", True)
    wide = decide(made("standard", [1.0] * 3), made("MixiT", [0.56] * 3), 0.45)
    assert wide.status != "does_not_need"


def test_a_task_that_guessing_nearly_solves_says_nothing(texts) -> None:
    near = made("MixiT", [0.961, 0.962, 0.961], guess=0.96)
    for standard in ([1.0] * 3, [0.961] * 3):
        found = decide(made("standard", standard, guess=0.96), near)
        assert found.status == "undecided"
        texts(found.why)
    # three quarters of the way from guessing are not come
    found = decide(made("standard", WELL, guess=0.88), made("MixiT", [0.965] * 3, guess=0.88))
    assert found.why != "MixiT solves it"


def test_one_seed_that_takes_off_keeps_it_open() -> None:
    mixit = made("MixiT", BADLY)
    late = Trained(3, mixit.runs[0].measured, (0, 75, 100), (0.1, 0.11, 0.25))
    found = decide(made("standard", WELL), Seeds("MixiT", [*mixit.runs, late]))
    assert (found.status, "still improving" in found.why) == ("undecided", True)


def test_a_curve_that_starts_late_has_no_last_quarter() -> None:
    measured = made("MixiT", BADLY).measured
    assert Trained(0, measured, (90, 100), (0.1, 0.2)).rise is None
