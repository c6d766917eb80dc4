"""Scores of a tool's answers: recall, precision, calibration, abstentions, cost.

A tool *claims* an item if it states a probability above 1/2. An abstention is not a claim: it
lowers recall, but not precision. The Brier score and AUC are computed over the answered items. The
*reference* is the Brier score of always stating the fraction of true items among them.
Intervals are 95 % Clopper-Pearson intervals. They treat items as independent, although items of one
model are correlated.
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
        tool: name of the tool.
        family, variant, strength, seed: of the model.
        kind, about: of the question.
        truths: truth of each item.
        stated: stated probabilities; None for abstentions.
        failed: error message if the tool raised; else None.
        seconds: processor time.
        rows: number of prompts that were run through the model.
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
    """Scores of a tool on some questions.

    Attributes:
        tool: name of the tool.
        group: what the questions have in common.
        models: number of models.
        items: number of items; true: number of true items; answered: number without abstentions.
        claimed: number of claimed items; right: number of these that are true.
        recall: fraction of true items that are claimed; precision: fraction of claims that are
            true. None without such items.
        recall_interval, precision_interval: 95 % CIs.
        auc: AUC over the answered items; None if all or none of them are true.
        brier: Brier score over the answered items; reference: see the module.
        failures: number of questions on which the tool raised an error.
        seconds, rows: totals of processor time and prompts.
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
        """Fraction of the items that the tool abstained from."""
        return 1 - self.answered / self.items


@dataclass(frozen=True)
class Bin:
    """A bin of the reliability diagram: stated probabilities and the fraction true."""

    tool: str
    low: float
    high: float
    stated: float
    true: float
    interval: Interval
    items: int


def score(answers: Sequence[Scored], group: tuple[str, ...] = ()) -> Score:
    """The scores of one tool's answers."""
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
    """Area under the ROC curve, with ties counted as one half."""
    true = sum(truth for truth, _ in given)
    false = len(given) - true
    if not true or not false:
        return None
    ranks = rankdata([p for _, p in given])
    of_true = sum(rank for rank, (truth, _) in zip(ranks, given, strict=True) if truth)
    return float((of_true - true * (true + 1) / 2) / (true * false))


def scores_by(answers: Iterable[Scored], key: Callable[[Scored], tuple[str, ...]]) -> list[Score]:
    """Scores of each tool in each group; groups are sorted, tools in order of appearance."""
    listed = list(answers)
    tools = list(dict.fromkeys(a.tool for a in listed))

    def by(a: Scored) -> tuple[tuple[str, ...], int]:
        return key(a), tools.index(a.tool)

    return [
        score(list(some), group) for (group, _), some in groupby(sorted(listed, key=by), key=by)
    ]


def reliability(answers: Sequence[Scored]) -> list[Bin]:
    """Non-empty bins of each tool's stated probabilities; the last bin includes 1."""
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
