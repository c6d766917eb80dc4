"""The verdict of the analysis of universal keys in words."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from interp_toolkit.circuits.universal_keys.result import KeysEvidence, QueryFunction
from interp_toolkit.stats import LEVEL


def evidence_of(found: Sequence[QueryFunction], n_queries: int, n_sets: int) -> KeysEvidence:
    """The head that selects for most query tokens, and how surely."""
    by_head: dict[tuple[int, int], list[QueryFunction]] = {}
    for one in found:
        if one.outcome == "selects":
            by_head.setdefault((one.layer, one.head), []).append(one)
    if not by_head:
        outcomes = {one.outcome for one in found}
        reason = {
            "not_foretold": "the functions that fit are wrong on sets of features left out",
            "no_function": "no function of few features fits the scores",
            "no_split": "the scores make no two groups",
        }
        why = next((said for outcome, said in reason.items() if outcome in outcomes), None)
        why = why or "no head tells keys apart"
        return KeysEvidence("not_detected", None, 0, n_queries, 0, n_sets, None, None, reason=why)
    head = max(by_head, key=lambda h: len(by_head[h]))
    mine = by_head[head]
    chances = [one.chance for one in mine if one.chance is not None]
    attention = [one.on_right for one in mine if one.on_right is not None]
    sure = not chances or max(chances) <= LEVEL
    return KeysEvidence(
        status="detected" if sure else "undecided",
        head=head,
        selecting=len(mine),
        queries=n_queries,
        functions=len({(tuple(one.features), one.table) for one in mine}),
        sets=n_sets,
        on_right=statistics.fmean(attention) if attention else None,
        chance=max(chances) if chances else None,
        reason=None if sure else "functions of as few features fit shuffled sets too",
    )


def verdict(found: Sequence[QueryFunction], evidence: KeysEvidence) -> str:
    """Which head attends to what, and how well."""
    if evidence.head is None:
        return (
            f"No head attends by a boolean function of the key's features for any of the "
            f"{evidence.queries} query tokens: {evidence.reason}."
        )
    layer, head = evidence.head
    mine = [
        one for one in found if one.outcome == "selects" and (one.layer, one.head) == evidence.head
    ]
    largest = max(len(one.features) for one in mine)
    least = min(one.foretold for one in mine if one.foretold is not None)
    text = (
        f"Head {layer}.{head} attends where a boolean function of the key's features holds, and "
        f"the query token chooses which: so for {evidence.selecting} of {evidence.queries} query "
        f"tokens, {evidence.functions} different functions of up to {largest} features, right on "
        f"{100 * least:.0f} % or more of the sets of features left out of their fit"
    )
    if evidence.on_right is not None:
        uniform = statistics.fmean(one.uniform for one in mine if one.uniform is not None)
        text += (
            f". In rows not used for that, {_share(evidence.on_right)} of its attention is on "
            f"keys where the function holds, which are {100 * uniform:.0f} % of the keys there"
        )
    if evidence.chance is not None:
        text += (
            f". Functions of as few features fit {100 * evidence.chance:.0f} % of shuffled sets at "
            "most"
        )
    return f"{text}."


def _share(value: float) -> str:
    """A share near 1 with as many digits as it takes to tell it from 1."""
    return f"{100 * value:.4f} %" if value > 0.999 else f"{100 * value:.1f} %"
