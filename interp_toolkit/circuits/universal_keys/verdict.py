"""The verdict of the analysis of universal keys in words."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from interp_toolkit.circuits.universal_keys.attention import left_open
from interp_toolkit.circuits.universal_keys.result import KeysEvidence, Outcome, QueryFunction

#: why no head selects, the outcome that comes nearest first
REASONS: dict[Outcome, str] = {
    "by_chance": "functions of as few features fit shuffled sets too",
    "not_attended": "the scores tell where functions hold, attention hardly follows",
    "not_foretold": "the functions that fit are wrong on sets of features left out",
    "no_function": "no function of few features fits the scores",
    "no_split": "the scores make no two groups",
    "constant": "no head tells keys apart",
}
UNSEEN = "the scores tell where functions hold, and too few rows show where attention goes"


def evidence_of(found: Sequence[QueryFunction], n_queries: int, n_sets: int) -> KeysEvidence:
    """The head that selects for most query tokens, and how surely."""
    by_head: dict[tuple[int, int], list[QueryFunction]] = {}
    for one in found:
        if one.outcome == "selects":
            by_head.setdefault((one.layer, one.head), []).append(one)
    if not by_head:
        nearest = next(why for why in REASONS if why in {one.outcome for one in found})
        unseen = nearest == "not_attended" and any(
            left_open(vars(one)) for one in found if one.outcome == "not_attended"
        )
        return KeysEvidence(
            status="undecided" if unseen or nearest == "by_chance" else "not_detected",
            head=None,
            selecting=0,
            queries=n_queries,
            functions=0,
            sets=n_sets,
            on_right=None,
            p_value=None,
            reason=UNSEEN if unseen else REASONS[nearest],
        )
    head = max(by_head, key=lambda h: len(by_head[h]))
    mine = by_head[head]
    return KeysEvidence(
        status="detected",
        head=head,
        selecting=len(mine),
        queries=n_queries,
        functions=_different(mine),
        sets=n_sets,
        on_right=statistics.fmean(one.on_right for one in mine if one.on_right is not None),
        p_value=max(one.p_value for one in mine if one.p_value is not None),
    )


def _different(mine: Sequence[QueryFunction]) -> int:
    """How many functions differ for certain: in features, or where both tables say something."""
    kept: list[QueryFunction] = []
    for one in mine:
        if not any(_may_be_one(one, other) for other in kept):
            kept.append(one)
    return len(kept)


def _may_be_one(one: QueryFunction, other: QueryFunction) -> bool:
    if list(one.features) != list(other.features):
        return False
    cells = zip(one.table or "", other.table or "", strict=True)
    return all(a == b or "?" in (a, b) for a, b in cells)


def verdict(found: Sequence[QueryFunction], evidence: KeysEvidence) -> str:
    """Which head attends to what, and how well."""
    if evidence.head is None:
        does = "attends" if evidence.status == "not_detected" else "is shown to attend"
        return (
            f"No head {does} by a boolean function of the key's features for any of the "
            f"{evidence.queries} query tokens: {evidence.reason}."
        )
    layer, head = evidence.head
    mine = [
        one for one in found if one.outcome == "selects" and (one.layer, one.head) == evidence.head
    ]
    largest = max(len(one.features) for one in mine)
    least = min(one.foretold for one in mine if one.foretold is not None)
    uniform = statistics.fmean(one.uniform for one in mine if one.uniform is not None)
    which = f"one function of {largest} features"
    if evidence.functions > 1:
        which = (
            f"the query token chooses which, {evidence.functions} different functions of up to "
            f"{largest} features"
        )
    return (
        f"Head {layer}.{head} attends where a boolean function of the key's features holds, for "
        f"{evidence.selecting} of {evidence.queries} query tokens: {which}, right on "
        f"{100 * least:.0f} % or more of the sets of features left out of their fit. In rows not "
        f"used for that, {_share(evidence.on_right)} of its attention is on keys where the "
        f"function holds, which are {100 * uniform:.0f} % of the keys there. Functions of as few "
        f"features fit shuffled sets with p = {evidence.p_value:.1g} at most, corrected for all "
        "heads and query tokens."
    )


def _share(value: float | None) -> str:
    """A share near 1 with as many digits as it takes to tell it from 1."""
    value = value or 0.0
    return f"{100 * value:.4f} %" if value > 0.999 else f"{100 * value:.1f} %"
