"""The parts of an audit, and how their answers make one of a claim.

A claim falls into questions, each with an answer of its own:

    there    is it there (against matched nulls)?
    matters  does the behaviour rest on it (interventions)?
    all      is it all (what is left without it, or what it does alone)?
    special  do random claims of the same shape do as well?
    stable   does it hold on rows drawn anew, and in every group of them?
    sentence does the sentence say no more than the tests showed?

Some of them the claim *asserts*; the others stand beside it. An answer is *confirmed* where the
interval of what was measured lies wholly above the bound that the claim sets, *refuted* where it
lies wholly below, else *undecided*; *not testable* where it cannot be asked here. A claim is
confirmed where all that it asserts is, refuted where anything is, not testable where anything is
not, else undecided. (Claims about algorithms have no interval, and no error that is stated.)

ERRORS. With n claims of k asserted parts each, tested at `level`, every interval has one-sided
errors of level / (n k) at either end, shared between its alternatives where one of several is
enough. So the chance that any of n false claims is confirmed is at most `level`, and so is that of
any true one to be refuted (Bonferroni; a false claim has one part that must err, a true one has k
that may), as far as the intervals hold what they promise: t intervals are approximate.

POWER. `detectable_effect`: the distance from the bound that would have been seen with a chance of
POWER.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy import stats

from interp_toolkit.circuits.behaviour.words import Share
from interp_toolkit.stats import clopper_pearson

POWER = 0.8
TIE = 1e-5  # of a bound: what sums in single precision may be off by
AS_GOOD = 0.1  # of random claims of the same shape: fewer do as well as one that is special
Question = Literal["there", "matters", "all", "special", "stable", "sentence"]
Answer = Literal["confirmed", "refuted", "undecided", "not_testable"]
#: what was done to come to an answer: looked at, changed and looked at, computed from weights
Method = Literal["observed", "intervened", "computed"]

QUESTIONS: dict[Question, str] = {
    "there": "is it there?",
    "matters": "does it matter?",
    "all": "is it all?",
    "special": "is it special?",
    "stable": "is it stable?",
    "sentence": "does the sentence say no more?",
}


@dataclass(frozen=True)
class Part:
    """One question about a claim, answered.

    Attributes:
        question: which.
        answer: see the module.
        summary: one sentence with the figures.
        method: what was done.
        asserted: whether the claim's answer rests on it.
        value, low, high: what was measured, with its interval; None where it is no number.
        bound: what the interval is held against.
        detectable_effect: distance from the bound that would have been seen with a chance of POWER.
    """

    question: Question
    answer: Answer
    summary: str
    method: Method
    asserted: bool = False
    value: float | None = None
    low: float | None = None
    high: float | None = None
    bound: float | None = None
    detectable_effect: float | None = None


def answer_of(low: float, high: float, bound: float) -> Answer:
    """The answer that an interval gives to a claim of at least `bound`; ties count.

    Examples:
        >>> answer_of(0.2, 0.6, 0.05), answer_of(-0.01, 0.03, 0.05), answer_of(0.0, 0.3, 0.05)
        ('confirmed', 'refuted', 'undecided')
    """
    if math.isnan(low) or math.isnan(high):
        return "undecided"
    if low >= bound - TIE:
        return "confirmed"
    return "refuted" if high < bound - TIE else "undecided"


def of_alternatives(answers: Sequence[Answer]) -> Answer:
    """One is enough: confirmed where any is, refuted where all are."""
    if "confirmed" in answers:
        return "confirmed"
    if answers and all(answer == "refuted" for answer in answers):
        return "refuted"
    return "undecided" if set(answers) - {"not_testable"} else "not_testable"


def of_requirements(answers: Sequence[Answer]) -> Answer:
    """All are needed to confirm and all to refute: ways of measuring the same thing."""
    first = set(answers)
    return answers[0] if len(first) == 1 else "undecided"


def of_claim(parts: Sequence[Part]) -> Answer:
    """The claim's answer; see the module."""
    answers = [part.answer for part in parts if part.asserted]
    if "refuted" in answers:
        return "refuted"
    if "not_testable" in answers or not answers:
        return "not_testable"
    return "confirmed" if all(answer == "confirmed" for answer in answers) else "undecided"


def coverage_of(level: float, claims: int, asserted: int, alternatives: int = 1) -> float:
    """The coverage of each interval; see the module."""
    return 1 - 2 * level / (claims * asserted * alternatives)


def detectable_effect(share: Share, coverage: float, power: float = POWER) -> float | None:
    """The distance from the bound at which an effect is detected with this probability.

    From the interval's half-width, w = z_c s: one needs (z_c + z_power) s.
    """
    width = (share.high - share.low) / 2
    if not math.isfinite(width):
        return None
    z = float(stats.norm.ppf((1 + coverage) / 2))
    return width * (1 + float(stats.norm.ppf(power)) / z)


def measured(
    question: Question,
    answer: Answer,
    text: str,
    method: Method,
    share: Share,
    bound: float,
    coverage: float,
    asserted: bool,
) -> Part:
    """A part whose answer rests on an interval of this coverage."""
    ends = share.mean, share.low, share.high
    detectable = detectable_effect(share, coverage)
    return Part(question, answer, text, method, asserted, *ends, bound, detectable)


def percent(share: Share) -> str:
    """An effect as text, such as `43% [31%, 55%]`."""
    return f"{share.mean:.0%} [{share.low:.0%}, {share.high:.0%}]"


def share_of_random(good: int, of: int, text: str, method: Method, coverage: float) -> Part:
    """Whether few enough random claims of the same shape do as well."""
    low, high = clopper_pearson(good, of, coverage)
    answer: Answer = "undecided"
    if high <= AS_GOOD:
        answer = "confirmed"
    elif low > AS_GOOD:
        answer = "refuted"
    text = f"{text} (at most {high:.0%} of all such)"
    return Part("special", answer, text, method, False, good / of, low, high, AS_GOOD)
