"""The parts of an audit, and how their answers combine into the answer to a claim.

A claim is split into questions, each with its own answer:

    there    is the pattern or component there (against matched nulls)?
    matters  does the metric depend on it (interventions)?
    all      is it complete (what remains without it, or what it does alone)?
    special  do random claims of the same shape do as well?
    stable   does it hold on resampled prompts, and in every group of them?
    sentence is the wording supported by the tests?

The claim *asserts* some of them; the others are reported as well. Where at least a bound is
claimed, the answer is *confirmed* if the interval of the measured number lies entirely above the
bound, *refuted* if it lies entirely below, else *undecided*. It is *not testable* if the question
cannot be tested here. A claim is refuted if any asserted part is, otherwise not testable if any
of them is, confirmed if all are, and else undecided. (Claims about algorithms have neither an
interval nor a stated error rate.)

ERRORS. With n claims of k asserted parts each, tested at `level`, every interval has one-sided
errors of level / (n k) at either end, shared between alternatives if one of several is enough. By
Bonferroni's inequality, the probability that any false claim is confirmed is then at most `level`,
and so is the probability that any true one is refuted: a false claim has one part that must err, a
true one has k that may. This assumes nominal coverage of the intervals; t intervals are
approximate.

POWER. `detectable_effect` is the minimum detectable distance from the bound, at a power of POWER.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from scipy import stats

from interp_toolkit.errors import InputError
from interp_toolkit.evidence import POWER, Answer, all_answers, answer_by, answer_of
from interp_toolkit.formatting import percent
from interp_toolkit.stats import Share, clopper_pearson

AS_GOOD = 0.1  # a special claim exceeds all but this fraction of random claims of the same shape
Question = Literal["there", "matters", "all", "special", "stable", "sentence"]
#: how an answer was obtained: by observation, by intervention, or computed from weights
Method = Literal["observed", "intervened", "computed"]

QUESTIONS: dict[Question, str] = {
    "there": "is it there?",
    "matters": "does it matter?",
    "all": "is it complete?",
    "special": "is it special?",
    "stable": "is it stable?",
    "sentence": "is the wording supported?",
}


@dataclass(frozen=True)
class Part:
    """One question about a claim, answered.

    Attributes:
        question: the question.
        answer: see the module.
        summary: one sentence with the numbers.
        method: how the answer was obtained.
        asserted: whether the claim's answer depends on it.
        value, low, high: the estimate and its interval; each None if there is none.
        bound: the claimed bound, compared with the interval.
        detectable_effect: distance from the bound that is detected with probability POWER.
        effects: the interventions that were compared, each [mean, low, high], in the unit of
            `value`.
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
    effects: Mapping[str, list[float]] = field(default_factory=dict)


def untestable(question: Question, reason: str, method: Method, *, asserted: bool = True) -> Part:
    """A part that cannot be tested here."""
    return Part(question, answer_by(False, testable=False), reason, method, asserted)


def of_claim(parts: Sequence[Part]) -> Answer:
    """The claim's answer; see the module."""
    return all_answers([part.answer for part in parts if part.asserted])


def checked_level(level: float) -> float:
    """The error level as a float; raises InputError unless it lies between 0 and 0.5."""
    if not 0 < level < 0.5:
        raise InputError(f"the level {level} must lie between 0 and 0.5")
    return float(level)


def coverage_of(level: float, claims: int, asserted: int, alternatives: int = 1) -> float:
    """The coverage of each interval; see the module."""
    return 1 - 2 * level / (claims * asserted * alternatives)


def detectable_effect(share: Share, coverage: float) -> float | None:
    """The distance from the bound at which an effect is detected with probability POWER.

    The interval's half-width is w = z_c s; the distance is (z_c + z_POWER) s.
    """
    width = (share.high - share.low) / 2
    if not math.isfinite(width):
        return None
    z = float(stats.norm.ppf((1 + coverage) / 2))
    return width * (1 + float(stats.norm.ppf(POWER)) / z)


def measured(
    question: Question,
    answer: Answer,
    text: str,
    method: Method,
    share: Share,
    bound: float,
    coverage: float,
    asserted: bool,
    effects: Mapping[str, Share] | None = None,
) -> Part:
    """A part whose answer was obtained from an interval of this coverage."""
    ends = share.mean, share.low, share.high
    detectable = detectable_effect(share, coverage)
    compared = {name: [one.mean, one.low, one.high] for name, one in (effects or {}).items()}
    return Part(question, answer, text, method, asserted, *ends, bound, detectable, compared)


def share_of_random(good: int, of: int, text: str, method: Method, coverage: float) -> Part:
    """Whether few enough random claims of the same shape do as well."""
    low, high = clopper_pearson(good, of, coverage)
    answer = answer_of(-high, -low, -AS_GOOD)
    text = f"{text} (by the interval, at most {percent(high)} of all such random ones)"
    return Part("special", answer, text, method, False, good / of, low, high, AS_GOOD)
