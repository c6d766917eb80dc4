"""The verdict on a model's heads: what is detected, what ablation says of it, in words.

Labels come from attention and its null (`significance`), roles from ablation (`ablation`). An
induction head is defined by what it does: one that attends like one and makes no difference is
refuted. For other kinds of head the ablation says whether they serve in-context prediction, not
what they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from interp_toolkit.circuits.behaviour.advantage import LEAST_ADVANTAGE
from interp_toolkit.circuits.heads.ablation import Ablations
from interp_toolkit.circuits.heads.partner import Partner
from interp_toolkit.circuits.heads.result import HeadsEvidence, HeadVerdict, Interval, Reader
from interp_toolkit.results import Status, head_name
from interp_toolkit.stats import LEVEL

NAMED = 8  # heads of one detector that the verdict names
#: the detector whose label says what the head does, not only where it attends
DEFINED_BY_EFFECT = "induction"
NULL = "matched controls: shifted keys, relabelled tokens, the same places in other rows"
ERROR = (
    "any wrong detection in a model: at most the level, by Holm; checked on untrained models, "
    "prompts made for them, and our own detectors"
)


def evidence_of(heads: Sequence[HeadVerdict], ablations: Mapping[str, Ablations]) -> HeadsEvidence:
    """What the verdict rests on."""
    looks = [head for head in heads if head.p_value is not None]
    found = [head for head in heads if head.detected]
    about_ablation: dict[str, object] = {}
    if ablations:
        first = next(iter(ablations.values()))
        about_ablation = {
            "replaced_by": first.how,
            "other_heads": len(first.others),
            "others_largest_effect": max(first.others.values(), default=None),
        }
    said = status(heads)
    reason = None
    if said == "not_detected" or said == "undecided":
        reason = nearest(heads).reason
    elif said == "refuted":
        reason = "ablation costs no material share of the in-context advantage"
    return HeadsEvidence(
        status=said,
        reason=reason,
        looks=len(looks),
        detected=len(found),
        null=NULL,
        error=ERROR,
        level=LEVEL,
        **about_ablation,  # type: ignore[arg-type]
    )


def why_not(head: HeadVerdict, floor: float) -> str | None:
    """Why a head is not detected: too little attention, no significance, or nothing to see."""
    if head.detected:
        return None
    if head.excess is None or head.score is None:
        return "no targets in these prompts"
    if head.p_value is None:
        return "too few matched controls in these prompts"
    over_null = head.excess
    if head.null_mean is not None and head.uniform is not None and head.uniform < 1:
        over_null = min(over_null, (head.score - head.null_mean) / (1 - head.uniform))
    reasons = []
    if over_null < floor:
        reasons.append(f"attention beyond its null below the floor of {floor:.0%}")
    if head.p_adjusted is None or head.p_adjusted > LEVEL:
        reasons.append(f"adjusted p above {LEVEL:g}")
    return " and ".join(reasons) or None


def nearest(heads: Sequence[HeadVerdict]) -> HeadVerdict:
    """The head with the largest excess."""
    return max(heads, key=lambda head: head.excess if head.excess is not None else -1.0)


def status(heads: Sequence[HeadVerdict]) -> Status:
    """The verdict in one machine word."""
    found = [head for head in heads if head.detected]
    if any(not is_refuted(head) for head in found):
        return "detected"
    if found:
        return "refuted"
    return "undecided" if all(head.p_value is None for head in heads) else "not_detected"


def is_refuted(head: HeadVerdict) -> bool:
    """Whether the ablation refutes the label itself."""
    return head.detector == DEFINED_BY_EFFECT and head.causal == "refuted"


def verdict(
    heads: Sequence[HeadVerdict],
    readers: Sequence[Reader],
    joint: Mapping[str, Interval],
    advantage: Interval | None,
) -> str:
    """The heads of every kind, what ablation says of them, and what feeds the induction heads."""
    found = [head for head in heads if head.detected]
    detectors = list(dict.fromkeys(head.detector for head in heads))
    if not found:
        if status(heads) == "undecided":
            return f"Undecided: these prompts cannot tell {_listed(detectors, 'or')} heads."
        return f"No head is detected as {_listed(detectors, 'or')} ({_best(heads)})."
    sentences = []
    for detector in detectors:
        kept = [h for h in found if h.detector == detector and not is_refuted(h)]
        denied = [h for h in found if h.detector == detector and is_refuted(h)]
        if kept:
            together = ""
            if len(kept) > 1 and not denied and detector in joint:
                together = f"; ablating all of them costs {joint[detector][0]:.3g} nats"
            sentences.append(f"{detector.capitalize()}: {_named(kept)}{together}.")
        if denied:
            sentences += _refutations(denied)
    sentences += _all_feeding(readers)
    checked = [h for h in found if h.causal is not None]
    if checked and advantage is not None:
        sentences.append(
            f"The in-context advantage is {advantage[0]:.3g} nats "
            f"(95% interval {advantage[1]:.3g} to {advantage[2]:.3g})."
        )
    return " ".join(sentences)


def _named(heads: Sequence[HeadVerdict]) -> str:
    named = [_with_effect(head) for head in heads[:NAMED]]
    rest = len(heads) - len(named)
    return ", ".join(named) + (f" and {rest} more" if rest else "")


def _with_effect(head: HeadVerdict) -> str:
    text = f"{head.name} ({_share(head)} of its attention"
    found = head.ablation
    if found is not None and found.verdict == "confirmed":
        text += f"; ablation costs {found.effect:.3g} nats"
        if found.effect <= 0 or found.low <= 0:
            text = f"{head.name} ({_share(head)} of its attention; redundant: alone it restores "
            text += f"{found.restored:.3g} nats"
    elif found is not None and found.verdict == "refuted":
        text += "; " + (
            f"ablation gains {-found.effect:.3g} nats in context"
            if _works_against(head)
            else f"ablation costs {_range([found.low, found.high])} nats in context"
        )
    elif found is not None:
        text += "; ablation undecided"
    return text + ")"


def _share(head: HeadVerdict) -> str:
    return "–" if head.score is None else f"{head.score:.0%}"


def _works_against(head: HeadVerdict) -> bool:
    """Whether the model does materially better without it."""
    return head.ablation is not None and head.ablation.high <= -LEAST_ADVANTAGE


def _refutations(heads: Sequence[HeadVerdict]) -> list[str]:
    against = [head for head in heads if _works_against(head)]
    idle = [head for head in heads if not _works_against(head)]
    sentences = []
    if idle:
        found = [head.ablation for head in idle if head.ablation]
        low, high = min(one.low for one in found), max(one.high for one in found)
        them = "them" if len(idle) > 1 else "it"
        sentences.append(
            f"{_alike(idle)} but ablating {them} costs {_range([low, high])} nats of in-context "
            "advantage: refuted."
        )
    if against:
        gained = _range([-head.ablation.effect for head in against if head.ablation])
        them, work = ("them", "work") if len(against) > 1 else ("it", "works")
        sentences.append(
            f"{_alike(against)} but {work} against in-context prediction (ablating {them} gains "
            f"{gained} nats): refuted."
        )
    return sentences


def _alike(heads: Sequence[HeadVerdict]) -> str:
    names = _listed([head.name for head in heads], "and")
    if len(heads) > 1:
        return f"{names} attend like induction heads"
    return f"{names} attends like an induction head"


def _all_feeding(readers: Sequence[Reader]) -> list[str]:
    by_feeder: dict[tuple[int, int], list[tuple[Reader, Partner]]] = {}
    for reader in readers:
        if reader.partner is not None:
            feeder = reader.partner.layer, reader.partner.head
            by_feeder.setdefault(feeder, []).append((reader, reader.partner))
    return [_feeding(*zip(*fed, strict=True)) for fed in by_feeder.values()]


def _feeding(readers: Sequence[Reader], partners: Sequence[Partner]) -> str:
    """One earlier head, and the induction heads whose keys it feeds."""
    names = _listed([head_name(reader.layer, reader.head) for reader in readers], "and")
    lost = [p.advantage_drop for p in partners if p.advantage_drop is not None]
    effect = f" and {_range(lost)} nats" if lost and min(lost) > 0 else ""
    feeder = head_name(partners[0].layer, partners[0].head)
    return (
        f"{feeder} feeds the keys of {names}: cutting {'that path' if len(readers) == 1 else 'one'}"
        f"{'' if len(readers) == 1 else ' of these paths'} costs "
        f"{_range([p.attention_drop for p in partners])} of "
        f"{_range([p.attention for p in partners])} induction attention{effect}."
    )


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2g}", f"{max(values):.2g}"
    return low if low == high else f"{low} to {high}"


def _best(heads: Sequence[HeadVerdict]) -> str:
    best = nearest(heads)
    p = "–" if best.p_adjusted is None else f"{best.p_adjusted:.2g}"
    return (
        f"the nearest is {best.name} as {best.detector}, {_share(best)} of its attention, "
        f"adjusted p = {p}: {best.reason}"
    )


def _listed(names: Sequence[str], word: str) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {word} {names[-1]}"
