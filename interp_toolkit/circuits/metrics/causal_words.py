"""The rule from the intervals of an ablation's effects to a causal word.

An effect is the loss of the metric when a component is ablated (a head, an attention pattern of a
head, a group of heads, an edge), as a fraction of the metric above chance. The same component may
be ablated in several ways, and alone or with all others of its group (the effect that it then
restores). Each of these gives a confidence interval.

THE RULE (`causal_word`). A *claim* is a set of intervals that must all hold (ways of ablation);
the word rests on several claims (alone, restored), of which one is enough:
- major: in some claim every interval lies at or above MAJOR;
- contributes: in some claim every interval lies above 0;
- suppresses: in some claim every interval lies below 0, and no interval of any above it;
- negligible: every interval of every claim lies within NEGLIGIBLE of 0;
- undecided: all else, such as an interval that holds 0 and more than NEGLIGIBLE, or two ways of
  ablation that disagree.
So no word says more than the intervals beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

from interp_toolkit.stats import Share

CausalWord = Literal["major", "contributes", "negligible", "suppresses", "undecided", "not_tested"]
UNDECIDED: CausalWord = "undecided"
NOT_TESTED: CausalWord = "not_tested"
WORDS: tuple[CausalWord, ...] = get_args(CausalWord)

MAJOR = 0.5  # of the metric
NEGLIGIBLE = 0.05  # of the metric: bound that an interval must lie within for "negligible"


Claim = Sequence[Share]


def causal_word(claims: Sequence[Claim], bound: float = NEGLIGIBLE) -> CausalWord:
    """The rule; see the module.

    Args:
        claims: each a set of intervals that must hold together; one claim is enough for an effect.
        bound: half-width, as a fraction of the metric, within which an effect is negligible.

    Examples:
        >>> causal_word([[Share(0.7, 0.6, 0.8)]]), causal_word([[Share(0.01, -0.01, 0.03)]])
        ('major', 'negligible')
    """
    return judged(claims, bound)[0]


def judged(claims: Sequence[Claim], bound: float = NEGLIGIBLE) -> tuple[CausalWord, int | None]:
    """The word and the index of the claim that it rests on.

    A claim without intervals, or with NaN in one, is ignored; if none is left, the result is
    "not_tested" and None. "Negligible" and "undecided" rest on all claims; the index is that of the
    claim whose intervals reach furthest from 0.
    """
    words = [
        (number, claim)
        for number, claim in enumerate(claims)
        if claim and not any(math.isnan(end) for s in claim for end in (s.mean, s.low, s.high))
    ]
    if not words:
        return NOT_TESTED, None
    lowest = [(min(s.low for s in claim), number) for number, claim in words]
    best, number = max(lowest)
    if best >= MAJOR:
        return "major", number
    if best > 0:
        return "contributes", number
    against = [(max(s.high for s in c), n) for n, c in words if all(s.high < 0 for s in c)]
    if against and not any(s.low > 0 for _, claim in words for s in claim):
        return "suppresses", min(against)[1]
    reach = [(max(max(-s.low, s.high) for s in claim), number) for number, claim in words]
    furthest, number = max(reach)
    return ("negligible" if furthest <= bound else UNDECIDED), number


def matters(word: CausalWord | None) -> bool:
    """Whether the word says that the metric depends on the component, wholly or in part."""
    return word in ("major", "contributes")


def in_words(word: CausalWord) -> str:
    """A name for display: spaces instead of underscores."""
    return word.replace("_", " ")
