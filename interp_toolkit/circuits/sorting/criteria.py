"""Evidence for each sorting algorithm, and the rule that turns it into a status.

A *criterion* compares one metric of an algorithm with two thresholds, weak and strong, and with the
closest value among weight-shuffled models (the entries of each weight tensor shuffled). The
thresholds are conventions, set between the values of trained models of the source's three
experiments and those of weight-shuffled models: every trained model with the algorithm reaches
`strong`. Two criteria are no evidence alone, since weight-shuffled models can meet them: that γ/β
is a line, and its slope. With few values or an unusual layout, weight-shuffled models can meet
others too, so every criterion must be read with its null.

    algorithm 1 (min{> previous}): attention goes to values above the previous output, most to the
        smallest of them; heads copy the attended tokens; the output follows a swapped token.
    algorithm 2 (argmax of f_k): logits have the form β f(x) + γ x, with γ/β a line in k of slope 1;
        each value's OV output has a kink at the value; swapped tokens do not change the output.

An algorithm is *shown* if all its criteria are strong. It is *there* if its causal criterion (the
output after the previous token is swapped) and at least one more are weak or strong, and beyond
every weight-shuffled model. Copying does not count as that other criterion, since the heads of
algorithm 2 copy as well. Criteria that cannot be measured, as on lists of two, are left out if
enough remain. A criterion with an interval (for swaps, over a few hundred outputs) is strong or
absent only if both ends are. It is weak if its interval reaches from weak to strong, and undecided
if it reaches below weak; undecided criteria count as no evidence.

The verdict is one algorithm if it is shown and the other is not. It is "mixed" if both are shown or
both are there. Otherwise, or if the model does not sort, it is "neither". `status_of` gives the
strength of that verdict. A model sorts if its accuracy per item reaches the midpoint between the
best guess (the most frequent value of each item, or the previous correct item) and 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from interp_toolkit.evidence import (
    Control,
    Verdict,
    all_of,
    any_of,
    control_of_rank,
    effect_status,
    left_open,
    untested,
)
from interp_toolkit.finding import column
from interp_toolkit.formatting import percent
from interp_toolkit.stats import LEVEL

Algorithm = Literal["min_greater_than_previous", "argmax_piecewise_linear", "mixed", "neither"]
State = Literal["strong", "weak", "undecided", "absent", "unknown"]
Interval = tuple[float, float]
MIN_GREATER: Algorithm = "min_greater_than_previous"
ARGMAX: Algorithm = "argmax_piecewise_linear"
NUMBERS = {MIN_GREATER: "1", ARGMAX: "2"}  # numbers of the algorithms in tables
SHORT = {MIN_GREATER: "the smallest value above the previous", ARGMAX: "piecewise-linear argmax"}
CAUSAL = {MIN_GREATER: "follows_token", ARGMAX: "follows_position"}
SHARED = "copy_score"  # criterion of algorithm 1 that heads of algorithm 2 meet too
FEWEST = {MIN_GREATER: 3, ARGMAX: 2}  # measurable criteria needed for a verdict
CLOSED = 0.5  # fraction of the gap between a guess and all items right that counts as sorting


@dataclass(frozen=True)
class Rule:
    """Thresholds of a criterion.

    Attributes:
        algorithm: algorithm that the criterion supports.
        name: name of the metric.
        weak, strong: thresholds; if `strong` is below `weak`, small values meet the criterion.
        needs_previous: whether the criterion requires the sorted list to be in the prompt.
        says: short description of the criterion.
    """

    algorithm: Algorithm
    name: str
    weak: float
    strong: float
    says: str
    needs_previous: bool = False

    def shown_by(self, value: float | None, interval: Interval | None = None) -> State:
        """State of the criterion for this value, or for both ends of its interval."""
        if interval is None:
            return self.state(value)
        ends = {self.state(end) for end in interval}
        if len(ends) == 1:
            return ends.pop()
        return "undecided" if "absent" in ends else "weak"

    def state(self, value: float | None) -> State:
        """State of the criterion for this value alone."""
        if value is None:
            return "unknown"
        sign = 1 if self.strong >= self.weak else -1
        if sign * value >= sign * self.strong:
            return "strong"
        return "weak" if sign * value >= sign * self.weak else "absent"


RULES = (
    Rule(MIN_GREATER, "above_lift", 0.05, 0.5, "attention goes to values above the previous", True),
    Rule(MIN_GREATER, "smallest_lift", 0.1, 0.4, "most of it to the smallest of them", True),
    Rule(MIN_GREATER, "follows_token", 0.2, 0.5, "the output follows a swapped token", True),
    Rule(MIN_GREATER, "copy_score", 0.35, 0.45, "heads copy what they attend to", True),
    Rule(ARGMAX, "logit_fit_r2", 0.65, 0.9, "logits are β f(x) + γ x"),
    Rule(ARGMAX, "logit_line_r2", 0.7, 0.95, "γ/β is a line in k"),
    Rule(ARGMAX, "logit_slope_error", 0.5, 0.25, "of slope 1"),
    Rule(ARGMAX, "kink_r2", 0.3, 0.8, "each value's output has its kink at the value"),
    Rule(ARGMAX, "follows_position", 0.2, 0.4, "swapped tokens leave the output", True),
)


@dataclass(frozen=True)
class Criterion:
    """One criterion of an algorithm.

    Attributes:
        algorithm: algorithm that the criterion supports.
        name: name of the metric.
        says: short description of the criterion.
        value: value for this model; None if undetermined.
        low, high: 95 % interval of the value; None if it has none.
        null: value nearest to `strong` among weight-shuffled models; None without such models.
        weak, strong: the thresholds.
        state: "strong" or "weak", the threshold that is reached; "absent", "undecided" (see the
            module), or "unknown" without a value.
    """

    algorithm: Algorithm = column("algorithm", format=lambda name: NUMBERS[name])
    name: str = column()
    says: str = column("criterion")
    value: float | None = column("value")
    low: float | None = column("low")
    high: float | None = column("high")
    null: float | None = column("null")
    weak: float = column("weak")
    strong: float = column("strong")
    state: State = column("state")

    @property
    def beyond_null(self) -> bool:
        """Whether the value, with its interval, exceeds that of every weight-shuffled model.

        Exceeding means being nearer to `strong`. The answer is False without such models.
        """
        if self.value is None or self.null is None:
            return False
        if self.strong >= self.weak:
            return (self.value if self.low is None else self.low) > self.null
        return (self.value if self.high is None else self.high) < self.null


def criteria_of(
    metrics: Mapping[str, float | None],
    null: Mapping[str, Sequence[float]],
    *,
    autoregressive: bool,
    intervals: Mapping[str, Interval] | None = None,
) -> list[Criterion]:
    """All criteria that apply to this kind of layout.

    Args:
        metrics: metrics of the model by name.
        null: values of each metric for weight-shuffled models.
        autoregressive: whether the sorted list is in the prompt.
        intervals: 95 % intervals of the metrics that have one.
    """
    criteria = []
    for rule in RULES:
        if rule.needs_previous and not autoregressive:
            continue
        value, others = metrics.get(rule.name), null.get(rule.name, ())
        nearest = max if rule.strong >= rule.weak else min
        interval = (intervals or {}).get(rule.name)
        low, high = interval or (None, None)
        criteria.append(
            Criterion(
                rule.algorithm,
                rule.name,
                rule.says,
                value,
                low,
                high,
                nearest(others) if others else None,
                rule.weak,
                rule.strong,
                rule.shown_by(value, interval),
            )
        )
    return criteria


def shown(criteria: Sequence[Criterion], algorithm: Algorithm) -> bool:
    """Whether all measurable criteria of the algorithm are strong, and there are enough."""
    states = _with_state(criteria, algorithm)
    return len(states) >= FEWEST[algorithm] and all(state == "strong" for state in states)


def there(criteria: Sequence[Criterion], algorithm: Algorithm) -> bool:
    """Whether the algorithm's causal criterion and one other are met, beyond the null."""
    own = [
        m.name
        for m in criteria
        if m.algorithm == algorithm
        and m.name != SHARED
        and m.state in ("strong", "weak")
        and m.beyond_null
    ]
    return CAUSAL[algorithm] in own and len(own) >= 2


def count_there(criteria: Sequence[Criterion], algorithm: Algorithm) -> int:
    """Number of the algorithm's criteria that are weak or strong."""
    return sum(state in ("strong", "weak") for state in _with_state(criteria, algorithm))


def sorts(items_right: float, guess: float) -> bool:
    """Whether this fraction of items right counts as sorting, compared with that of a guess."""
    return items_right >= guess + CLOSED * (1 - guess)


def decide(criteria: Sequence[Criterion], sorts: bool) -> Algorithm:
    """The verdict; see the module."""
    if not sorts:
        return "neither"
    first, second = shown(criteria, MIN_GREATER), shown(criteria, ARGMAX)
    if first != second:
        return MIN_GREATER if first else ARGMAX
    both = there(criteria, MIN_GREATER) and there(criteria, ARGMAX)
    return "mixed" if first or both else "neither"


def _with_state(criteria: Sequence[Criterion], algorithm: Algorithm) -> list[State]:
    return [m.state for m in criteria if m.algorithm == algorithm and m.state != "unknown"]


class Controls(NamedTuple):
    """Numbers of weight-shuffled models: those that meet the same criteria (`alike`), and all."""

    alike: int
    models: int


def status_of(
    algorithm: Algorithm, criteria: Sequence[Criterion], sorting: bool, controls: Controls
) -> Verdict:
    """Status of the verdict, and the reason if it is not "detected".

    The rule of `evidence` decides, on each criterion of the algorithm that has a value: with its
    interval (or the value alone) against its strong threshold, or for "mixed", on the swaps against
    their weak ones. The controls are weight-shuffled models: they do not meet the same criteria,
    and their outputs follow swaps less often. "Neither" is not detected if the intervals of both
    swap fractions (outputs that follow the swapped-in token; outputs that follow the position) are
    below their weak thresholds.
    """
    if not sorting:
        return untested("the model does not sort")
    swaps = [c for c in criteria if c.name in CAUSAL.values() and c.value is not None]
    if algorithm == "neither":
        return _status_of_neither(criteria, swaps, controls)
    name, judged = "weight-shuffled models", []
    alike = control_of_rank(name, controls.alike, controls.models, LEVEL, "meet the same criteria")
    for criterion in swaps if algorithm == "mixed" else criteria:
        if criterion.value is None or algorithm not in ("mixed", criterion.algorithm):
            continue
        compared = [alike]
        if criterion in swaps and criterion.null is not None:
            reason = f"after a swap the outputs of {name} follow as often as the model's own"
            passed = control_of_rank("swaps", 0, controls.models, LEVEL, "")
            compared.append(passed if criterion.beyond_null else Control("swaps", "failed", reason))
        threshold = criterion.weak if algorithm == "mixed" else criterion.strong
        judged.append(_status(criterion, threshold, compared))
    return all_of(judged)


def _status(criterion: Criterion, threshold: float, controls: Sequence[Control]) -> Verdict:
    """The status of one criterion, whose effect is its value."""
    assert criterion.value is not None
    value, sign = criterion.value, 1 if criterion.strong >= criterion.weak else -1
    ends = [value if end is None else end for end in (criterion.low, criterion.high)][::sign]
    low, high = (sign * end for end in ends)
    return effect_status(low, high, sign * threshold, controls, effect=criterion.says)


def _status_of_neither(
    criteria: Sequence[Criterion], swaps: Sequence[Criterion], controls: Controls
) -> Verdict:
    """Status of a model that sorts, but meets the criteria of neither algorithm."""
    if not swaps:
        reason = "too few criteria are strong, and the previous token cannot be swapped"
        return left_open(reason)
    shuffled = Control(
        "weight-shuffled models",
        "passed" if controls.models else "powerless",
        "no weight-shuffled models were compared",
    )
    judged = {swap.name: _status(swap, swap.weak, [shuffled]) for swap in swaps}
    status = any_of([status for status, _ in judged.values()])
    if status == "not_detected":
        return status, "outputs follow neither the swapped token nor the position"
    if not shuffled.counts:
        return left_open(shuffled.reason or "")
    followed = [swap for swap in swaps if judged[swap.name][0] == "detected"]
    if not followed:
        reason = "whether outputs follow the swapped token or the position is undecided"
        return left_open(reason)
    most = max(followed, key=lambda swap: swap.value or 0.0)
    missing = [c.says for c in criteria if c.algorithm == most.algorithm and c.state != "strong"]
    return left_open(
        f"after a swap {percent(most.value or 0.0, 1)} of outputs follow as with the algorithm "
        f"'{SHORT[most.algorithm]}', but these criteria are not strong: "
        f"{', '.join(missing) or 'too few could be measured'}"
    )
