"""The verdict on hidden states by depth: do they become alike, and how sure is that?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from interp_toolkit.circuits.behaviour.advantage import Estimate
from interp_toolkit.circuits.collapse.layers import LayerSimilarity
from interp_toolkit.circuits.collapse.result import CollapseEvidence
from interp_toolkit.evidence import control_of_copies, effect_status

RISE = 0.1  # of the mean cosine from the embedding to the last block, to be said to become alike
COPIES = "every weight tensor's entries in random order"


def evidence_of(
    rise: Estimate, of_copies: Sequence[float], largest: float = math.inf
) -> CollapseEvidence:
    """The status of the claim that states become alike, and the numbers that it follows from.

    Args:
        rise: of the mean cosine from the embedding to the last block.
        of_copies: the same of each copy with shuffled weights.
        largest: rise that is possible.
    """
    copies = control_of_copies(
        "models with shuffled weights", rise.mean, rise.low, np.array(of_copies), largest
    )
    status, reason = effect_status(rise.low, rise.high, RISE, [copies])
    return CollapseEvidence(
        status=status,
        reason=reason,
        rise=rise.mean,
        rise_low=rise.low,
        rise_high=rise.high,
        rows=rise.n,
        least_rise=RISE,
        copies=COPIES,
        rises_of_copies=list(of_copies),
    )


def verdict(
    evidence: CollapseEvidence, first: LayerSimilarity, last: LayerSimilarity, d_model: int
) -> str:
    """Whether hidden states become alike, beside shuffled weights and independent directions."""
    finding = {
        "detected": f"become more alike with depth, by {RISE:g} or more and by more than with "
        "shuffled weights",
        "uninformative": "become more alike with depth no more than with shuffled weights",
        "not_detected": f"become more alike with depth by less than {RISE:g}, if at all",
    }.get(evidence.status, f"may or may not become more alike with depth ({evidence.reason})")
    copies = [value for value in last.reinitialised_cosine if value is not None]
    beside = ""
    if copies:
        low, high = f"{min(copies):.2f}", f"{max(copies):.2f}"
        beside = f"; {low if low == high else f'{low} to {high}'} with the weights shuffled"
    return (
        f"Hidden states of different tokens {finding}: their mean cosine is {last.cosine:.2f} "
        f"(95 % interval {last.low:.2f} to {last.high:.2f}) after the last block and "
        f"{first.cosine:.2f} at the embedding{beside}; independent directions would have 0, "
        f"a single cosine with a standard deviation of {1 / math.sqrt(d_model):.2f}."
    )
