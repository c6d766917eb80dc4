"""Answers held against the truth: recall, precision, calibration, abstentions, cost.

A *claim* is an item that a tool gives a probability above 1/2; what it abstains from is no claim,
so that it counts against recall and not against precision. Brier's score is over what was answered;
the *reference* is that of always stating the share that is true among the same items. AUC is the
chance that a true item has a higher figure than a false one, whatever the threshold.
Intervals are Clopper and Pearson's, at 95 %. They take items as independent; those of one model
are not quite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from scipy.stats import rankdata

from interp_toolkit.stats import clopper_pearson

CLAIMED = 0.5
BINS = 10  # of the reliability diagram

Interval = tuple[float, float]


@dataclass(frozen=True)
class Scored:
    """A tool's answer to one question.

    Attributes:
        tool: its name.
        family, variant, strength, seed: of the model.
        kind, about: of the question.
        truths: truths of its items.
        stated: probabilities; None where it abstained.
        failed: why there is no answer, where it raised; None where it did not.
        seconds: seconds of processor time.
        rows: rows of tokens that went through the model.
    """

    tool: str
    family: str
    variant: str
    strength: float | None
    seed: int
    kind: str
    about: str
    truths: tuple[bool, ...]
    stated: tuple[float | None, ...]
    failed: str | None
    seconds: float
    rows: int


@dataclass(frozen=True)
class Score:
    """How right a tool is on some questions.

    Attributes:
        tool: its name.
        group: what the questions have in common.
        models: that they are of.
        items: asked about; true: how many of them are; answered: how many it did not abstain from.
        claimed: how many it claims; right: how many of these are true.
        recall: share of the true ones that it claims; precision: of its claims that are true. None
            where there are none.
        recall_interval, precision_interval: 95 %.
        auc: AUC of what it answered; None where all of it is true, or none.
        brier: mean squared difference of stated probability and truth; reference: see the module.
        failures: questions that it raised on.
        seconds, rows: in all.
    """

    tool: str
    group: tuple[str, ...]
    models: int
    items: int
    true: int
    answered: int
    claimed: int
    right: int
    recall: float | None
    recall_interval: Interval | None
    precision: float | None
    precision_interval: Interval | None
    auc: float | None
    brier: float | None
    reference: float | None
    failures: int
    seconds: float
    rows: int

    @property
    def abstained(self) -> float:
        """Share of the items."""
        return 1 - self.answered / self.items


@dataclass(frozen=True)
class Bin:
    """Of a reliability diagram: what was stated between two figures, and how much of it is true."""

    tool: str
    low: float
    high: float
    stated: float
    true: float
    interval: Interval
    items: int


def score(answers: Sequence[Scored], group: tuple[str, ...] = ()) -> Score:
    """The score of answers of one tool."""
    pairs = [pair for a in answers for pair in zip(a.truths, a.stated, strict=True)]
    true = sum(truth for truth, _ in pairs)
    given = [(truth, p) for truth, p in pairs if p is not None]
    claims = [truth for truth, p in given if p > CLAIMED]
    right = sum(claims)
    share = sum(truth for truth, _ in given) / len(given) if given else 0.0
    return Score(
        tool=answers[0].tool,
        group=group,
        models=len({(a.family, a.variant, a.seed) for a in answers}),
        items=len(pairs),
        true=true,
        answered=len(given),
        claimed=len(claims),
        right=right,
        recall=right / true if true else None,
        recall_interval=clopper_pearson(right, true) if true else None,
        precision=right / len(claims) if claims else None,
        precision_interval=clopper_pearson(right, len(claims)) if claims else None,
        auc=_auc(given),
        brier=sum((p - truth) ** 2 for truth, p in given) / len(given) if given else None,
        reference=share * (1 - share) if given else None,
        failures=sum(a.failed is not None for a in answers),
        seconds=sum(a.seconds for a in answers),
        rows=sum(a.rows for a in answers),
    )


def _auc(given: Sequence[tuple[bool, float]]) -> float | None:
    """Mann and Whitney's: ties count half."""
    true = sum(truth for truth, _ in given)
    false = len(given) - true
    if not true or not false:
        return None
    ranks = rankdata([p for _, p in given])
    of_true = sum(rank for rank, (truth, _) in zip(ranks, given, strict=True) if truth)
    return float((of_true - true * (true + 1) / 2) / (true * false))


def scores_by(answers: Iterable[Scored], key: Callable[[Scored], tuple[str, ...]]) -> list[Score]:
    """Scores of each tool in each group, groups in order, tools in the order they first answer."""
    listed = list(answers)
    tools = list(dict.fromkeys(a.tool for a in listed))

    def by(a: Scored) -> tuple[tuple[str, ...], int]:
        return key(a), tools.index(a.tool)

    return [
        score(list(some), group) for (group, _), some in groupby(sorted(listed, key=by), key=by)
    ]


def reliability(answers: Sequence[Scored]) -> list[Bin]:
    """Bins of each tool's stated probabilities that hold any; 1 is in the last."""
    bins = []
    for tool in dict.fromkeys(a.tool for a in answers):
        given = [
            (truth, p)
            for a in answers
            if a.tool == tool
            for truth, p in zip(a.truths, a.stated, strict=True)
            if p is not None
        ]
        for number in range(BINS):
            here = [(t, p) for t, p in given if min(int(p * BINS), BINS - 1) == number]
            if here:
                true = sum(t for t, _ in here)
                bins.append(
                    Bin(
                        tool,
                        number / BINS,
                        (number + 1) / BINS,
                        sum(p for _, p in here) / len(here),
                        true / len(here),
                        clopper_pearson(true, len(here)),
                        len(here),
                    )
                )
    return bins
