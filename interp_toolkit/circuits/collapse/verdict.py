"""The verdict on hidden states by depth: do they become alike, and how sure is that?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from interp_toolkit.circuits.behaviour.advantage import Estimate
from interp_toolkit.circuits.collapse.layers import LayerSimilarity
from interp_toolkit.circuits.collapse.result import CollapseEvidence
from interp_toolkit.results import Status

RISE = 0.1  # of the mean cosine from the embedding to the last block, to be said to become alike
COPIES = "every weight tensor's entries in random order"
_REASONS = {
    "not_detected": f"the interval of the rise is below {RISE:g}",
    "undecided": f"the interval of the rise holds {RISE:g}",
}


def evidence_of(rise: Estimate, of_copies: Sequence[float]) -> CollapseEvidence:
    """What the verdict rests on.

    Args:
        rise: of the mean cosine from the embedding to the last block.
        of_copies: the same of each copy with shuffled weights.
    """
    status = _status(rise.low, rise.high)
    return CollapseEvidence(
        status=status,
        reason=_REASONS.get(status),
        rise=rise.mean,
        rise_low=rise.low,
        rise_high=rise.high,
        rows=rise.n,
        least_rise=RISE,
        copies=COPIES,
        rises_of_copies=list(of_copies),
    )


def _status(low: float, high: float) -> Status:
    if low >= RISE:
        return "detected"
    return "not_detected" if high < RISE else "undecided"


def verdict(
    evidence: CollapseEvidence, first: LayerSimilarity, last: LayerSimilarity, d_model: int
) -> str:
    """Whether hidden states become alike, beside shuffled weights and independent directions."""
    said = {
        "detected": f"become more alike with depth, by {RISE:g} or more",
        "not_detected": f"become more alike with depth by less than {RISE:g}, if at all",
        "undecided": f"may or may not become more alike with depth by {RISE:g}: rows differ",
    }[evidence.status]
    copies = [value for value in last.reinitialised_cosine if value is not None]
    beside = ""
    if copies:
        low, high = f"{min(copies):.2f}", f"{max(copies):.2f}"
        beside = f"; {low if low == high else f'{low} to {high}'} with the weights shuffled"
    return (
        f"Hidden states of different tokens {said}: their mean cosine is {last.cosine:.2f} (95 % "
        f"interval {last.low:.2f} to {last.high:.2f}) after the last block and {first.cosine:.2f} "
        f"at the embedding{beside}; independent directions would have 0, a single cosine with "
        f"a standard deviation of {1 / math.sqrt(d_model):.2f}.{_as_much(evidence)}"
    )


def _as_much(evidence: CollapseEvidence) -> str:
    """Where any such weights would make states as alike, it is no work of what was learned."""
    rises = evidence.rises_of_copies
    if evidence.status != "detected" or not rises or max(rises) < evidence.rise:
        return ""
    beside = f"{max(rises):.2f} against {evidence.rise:.2f}"
    return f" With the weights shuffled they rise as much ({beside})."
