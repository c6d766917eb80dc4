"""Status, headline and findings of the analysis of heads.

If the model does not perform the task on these prompts, effects of heads are *not tested*, and
attention is only *described*. Labels come from the head rule (`rule`), causal words from
`metrics.causal_words`. Every finding has its interval.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from interp_toolkit.circuits.heads.described import Described
from interp_toolkit.circuits.heads.partner import Partner
from interp_toolkit.circuits.heads.result import HeadsEvidence, HeadVerdict, Reader
from interp_toolkit.circuits.heads.rule import (
    LEAST_EXCESS,
    RIVALS,
    ROUNDS_TO_ZERO,
    Group,
    Screen,
    in_unit,
    least,
    negated,
    with_interval,
)
from interp_toolkit.circuits.heads.significance import DetectorScores
from interp_toolkit.circuits.metrics.causal_words import in_words, matters
from interp_toolkit.circuits.metrics.task import TaskCheck
from interp_toolkit.evidence import any_of, untested
from interp_toolkit.finding import HEADLINE_WORDS, MOST_FINDINGS
from interp_toolkit.formatting import capital, equals_p, listed, percent
from interp_toolkit.models.model import Head
from interp_toolkit.results import Status, head_name
from interp_toolkit.stats import LEVEL

MOST_FEEDERS = 3  # earlier heads named in the finding on K-composition
NAMED = 4  # heads named in a finding by attention alone
MOST_KINDS = 4  # kinds of head named in a headline
#: the detector whose label refers to the head's effect, not only to its attention
DEFINED_BY_EFFECT = "induction"
NULL = (
    "matched controls: shifted keys, relabeled tokens, the same positions with other tokens, "
    "the same keys from other queries"
)
ERROR = (
    "probability of any wrong detection by attention in a model: at most the level (Holm); if the "
    "model performs the task, heads are named only if knocking out their attention lowers the "
    "metric, by intervals that are simultaneous within a pattern; checked on untrained models"
)
KNOCKED_OUT = (
    "attention to a pattern's keys is knocked out, with the remaining attention renormalized and "
    "with mean values, alone and after the other heads that have the pattern; against whole-head "
    "ablation and as much attention elsewhere in the head"
)
NO_TASK = "the prompts define no task that can be measured"


def evidence_of(
    heads: Sequence[HeadVerdict],
    groups: Sequence[Group],
    task_check: TaskCheck | None,
    how: str,
    untested: str = NO_TASK,
    screens: Sequence[Screen] = (),
) -> HeadsEvidence:
    """Evidence of the analysis: status, counts, controls, the task, and how heads are ablated."""
    outcome = status(heads, task_check, screens)
    return HeadsEvidence(
        status=outcome,
        reason=reason_of(outcome, heads, task_check, untested, screens),
        comparisons=sum(head.p_value is not None for head in heads),
        detected=sum(head.detected for head in heads),
        null=NULL,
        error=ERROR,
        level=LEVEL,
        performs_task=None if task_check is None else task_check.yes,
        behaviour=None if task_check is None else task_check.summary,
        knockout_rows=max((group.rows for group in groups), default=None),
        replaced_by=how if any(head.ablation is not None for head in heads) else None,
        causal=KNOCKED_OUT if groups or screens else f"none, attention alone: {untested}",
    )


def status(
    heads: Sequence[HeadVerdict], task_check: TaskCheck | None, screens: Sequence[Screen] = ()
) -> Status:
    """Status of the analysis: "detected" only if the head rule names a head.

    It is "not_detected" only if joint knockouts (`screens`) deny every pattern in all heads.
    """
    named = [head.status for head in heads if head.detected]
    not_knocked_out = any(_not_knocked_out(head) for head in heads)
    none = not_knocked_out and all(head.knockout is None for head in heads)
    if not named and (task_check is None or not task_check.yes or none):
        return untested(NO_TASK)[0]
    is_open = not_knocked_out or _open(heads) or _uncompared(heads)
    return any_of([*named, *(screen.status for screen in screens)], complete=not is_open)


def reason_of(
    outcome: Status,
    heads: Sequence[HeadVerdict],
    task_check: TaskCheck | None,
    untested: str = NO_TASK,
    screens: Sequence[Screen] = (),
) -> str | None:
    """Reason why no head is detected; None if one is.

    Args:
        outcome: the status.
        heads: every head under every detector.
        task_check: task performance; None if no task was tested.
        untested: why no task was tested.
        screens: joint knockouts of all heads.
    """
    if outcome == "detected":
        return None
    if task_check is None or not task_check.yes:
        if task_check is not None:
            return f"{task_check.failure}: {task_check.summary}"
        return untested
    if outcome == "described":
        return "attention alone: it could not be knocked out on prompts with answers"
    if outcome == "not_tested":
        return next(head.reason for head in heads if _not_knocked_out(head))
    if outcome == "undecided" and not _undecided(heads):
        return _screened(screens)
    return _decisive(heads).reason


def _screened(screens: Sequence[Screen]) -> str:
    """Reason why joint knockouts do not deny every pattern."""
    undecided = [screen for screen in screens if screen.status != "not_detected"]
    return undecided[0].reason if undecided else NOT_SCREENED


def _open(heads: Sequence[HeadVerdict]) -> list[HeadVerdict]:
    """Heads whose knockouts neither confirm nor deny that they are of a kind."""
    return [h for h in heads if h.knockout and h.status in ("undecided", "uninformative")]


def _undecided(heads: Sequence[HeadVerdict]) -> list[HeadVerdict]:
    """Heads that leave the status open; those with the largest excess first."""
    not_knocked_out = [head for head in heads if _not_knocked_out(head)]
    undecided = _open(heads) or _uncompared(heads) or not_knocked_out
    return sorted(undecided, key=lambda head: -(head.excess or 0.0))


def _decisive(heads: Sequence[HeadVerdict]) -> HeadVerdict:
    """Head whose reason explains best why none is detected."""
    return (_undecided(heads) or [nearest(heads)])[0]


QUICK = "heads were not knocked out (quick effort)"
ATTENTION = "% of its attention on the pattern's keys"
WHERE = "at queries that have such keys"
NOT_SCREENED = "no pattern was knocked out in all heads"
NO_CONTROL = "too few matched controls in these prompts"
CHANCE = "these prompts cannot tell it from chance"


def _not_knocked_out(head: HeadVerdict) -> bool:
    """Whether the head has the pattern, but was not knocked out alone."""
    return head.attends and not head.detected and head.knockout is None


def _uncompared(heads: Sequence[HeadVerdict]) -> list[HeadVerdict]:
    """Heads without a comparison to controls, or that more prompts could decide.

    If no comparison was possible at all, these are all heads.
    """
    if all(head.p_value is None for head in heads):
        return list(heads)
    return [
        h
        for h in heads
        if h.knockout is None
        and not h.detected
        and h.status != "not_detected"
        and h.reason is not None
        and (
            h.reason.endswith(CHANCE)
            or (h.reason == NO_CONTROL and (h.excess or 0.0) >= LEAST_EXCESS)
        )
    ]


def why_not(head: HeadVerdict, floor: float, rival: str | None = None) -> str | None:
    """Reason why a head does not have the pattern by attention alone; None if it does.

    Args:
        head: the head with its scores.
        floor: the detector's threshold of excess.
        rival: rival explanation of its attention (see `rival_of`).
    """
    if head.attends:
        return None
    if head.excess is None or head.score is None:
        return "no targets in these prompts"
    if head.p_value is None:
        return NO_CONTROL
    over_null = head.excess
    if head.null_mean is not None and head.uniform is not None and head.uniform < 1:
        over_null = min(over_null, (head.score - head.null_mean) / (1 - head.uniform))
    if rival is not None and head.excess >= LEAST_EXCESS and head.p_value > LEVEL:
        return f"not distinguishable from attention to {rival}"
    reasons = []
    if over_null < floor:
        reasons.append(f"its excess over the controls is below the threshold of {floor:g}")
    if head.p_adjusted is None or head.p_adjusted > LEVEL:
        threshold = f"its adjusted p is above {LEVEL:g}"
        if over_null >= LEAST_EXCESS and head.p_value <= LEVEL:
            return f"{threshold} (unadjusted {head.p_value:.2g}): {CHANCE}"
        reasons.append(threshold)
    return f"by attention alone, {' and '.join(reasons)}" if reasons else None


def rival_of(scores: DetectorScores, at: Head, described: Described | None) -> str | None:
    """Rival explanation of attention to a pattern's keys.

    It is the one that the family of matched controls with the largest p-value tests (see
    `controls`). The text includes the first position or token pattern of the head's description,
    with its fraction of the attention; without one, the first distance, if any.
    """
    kind = RIVALS.get(scores.weakest[at.layer][at.head])
    shares = [] if described is None else list(described.shares)
    for words in (("position", "token"), tuple("123")):
        for share in shares:
            if kind is not None and share.relation.startswith(words):
                return f"{kind}: {share.relation} has {percent(share.share)}"
    return kind


def _compared(heads: Sequence[HeadVerdict]) -> bool:
    """Whether attention to the keys of any pattern could be compared with controls."""
    return any(head.p_value is not None for head in heads)


def nearest(heads: Sequence[HeadVerdict]) -> HeadVerdict:
    """The head with the largest excess."""
    return max(heads, key=lambda head: head.excess if head.excess is not None else -1.0)


def headline(
    heads: Sequence[HeadVerdict],
    task_check: TaskCheck | None,
    untested: str = NO_TASK,
    screens: Sequence[Screen] = (),
) -> str:
    """Headline that lists the heads of each kind; at most 20 words."""
    detected = [head for head in heads if head.detected]
    detectors = list(dict.fromkeys(head.detector for head in heads))
    if task_check is None or not task_check.yes:
        why = untested.partition(";")[0] if task_check is None else task_check.failure
        if not detected:
            if not _compared(heads):
                return f"Effects not tested: {why}; attention could not be tested either."
            return f"Effects not tested: {why}; no head stands out by attention alone."
        return _fitted([f"By attention alone, as {why}: ", "By attention alone: "], detected)
    if detected:
        tested = any(head.knockout is not None for head in detected)
        return _fitted([""] if tested else ["By attention alone: "], detected)
    word = {"undecided": "Undecided", "not_tested": "Not tested"}.get(
        status(heads, task_check, screens)
    )
    if word:
        best = _decisive(heads)
        return f"{word}: no head is detected; the nearest is {best.name} ({best.detector})."
    if len(detectors) > MOST_KINDS:
        return f"No head of the {len(detectors)} kinds tested is detected."
    return f"No {_listed(detectors, 'or')} head is detected."


def _fitted(openings: Sequence[str], detected: Sequence[HeadVerdict]) -> str:
    """Most detailed list of heads by kind that fits into a headline."""
    by_kind: dict[str, list[HeadVerdict]] = {}
    for head in detected:
        by_kind.setdefault(head.detector, []).append(head)
    for kind in by_kind.values():
        kind.sort(key=_strength_alone, reverse=True)
    # kinds with the strongest head first; ties keep the order of detectors
    kinds = sorted(
        by_kind.items(), key=lambda item: max(map(_strength_alone, item[1])), reverse=True
    )
    named = [f"{kind} {_several(len(of), 'head')} {_names(of, 3)}" for kind, of in kinds]
    best = [f"{kind} {_several(len(of), 'head')} {_names(of, 1)}" for kind, of in kinds]
    counted = [f"{len(of)} {kind} {_several(len(of), 'head')}" for kind, of in kinds]
    for shown in (named, best, counted):
        for opening in openings:
            sentence = opening + "; ".join(shown)
            if len(sentence.split()) <= HEADLINE_WORDS:
                return f"{capital(sentence)}."
    shown = counted if len(kinds) == MOST_KINDS + 1 else counted[:MOST_KINDS]
    if len(shown) < len(kinds):
        shown = [*shown, f"{len(kinds) - MOST_KINDS} more kinds"]
    return capital(f"{openings[-1]}{'; '.join(shown)}.")


def _strength_alone(head: HeadVerdict) -> tuple[float, float]:
    """Sort key: the effect of knocking out this head alone, if it matters so, or with others."""
    knockout = head.knockout
    if knockout is None:
        return -math.inf, head.excess or 0.0
    own = knockout.effect.mean if knockout.claim is knockout.own else 0.0
    return (own if matters(knockout.word) else 0.0), knockout.effect.mean


def findings(
    heads: Sequence[HeadVerdict],
    readers: Sequence[Reader],
    groups: Sequence[Group],
    task_check: TaskCheck | None,
    untested: str = NO_TASK,
    screens: Sequence[Screen] = (),
) -> list[str]:
    """The findings: effects by pattern, patterns without effect, K-composition, the task."""
    if task_check is None or not task_check.yes:
        why = untested
        if task_check is not None:
            why = f"{task_check.failure}: {task_check.summary}"
        attending = sorted((h for h in heads if h.detected), key=lambda h: -(h.excess or 0.0))
        shown = [f"{h.name} ({h.detector}, {percent(h.attention or 0)})" for h in attending]
        if not attending:  # the headline has the reason, without the task's numbers
            most = "No head's attention is shown to match a tested pattern."
            if not _compared(heads):
                most = "No head's attention was tested; the notes give the reason."
            if task_check is None:
                return [f"Effects of heads are not tested, as {why}.", most]
            return [f"{capital(why)}.", most]
        count = len({(head.layer, head.head) for head in attending})
        most = (
            f"The {_several(count, 'head')} whose attention matches a tested pattern, with the "
            f"fraction of this attention on the pattern's keys {WHERE}"
        )
        listing = f"{most}: {_shortened(shown, NAMED)}."
        return [f"Effects of heads are not tested, as {why}.", listing]
    working = [g for g in groups if any(h.detected and h.detector == g.detector for h in heads)]
    working.sort(key=lambda group: -least(group.joint).mean)
    by_kind = {g.detector: [h for h in heads if h.detector == g.detector] for g in working}
    sentences = [_of_group(group, by_kind[group.detector]) for group in working]
    unnamed = [head for head in heads if head.attends and not head.detected]
    after = []
    if unnamed:
        more = f" Not named, by pattern: {_by_pattern(unnamed)}." if len(unnamed) > 1 else ""
        unnamed.sort(key=lambda head: -(head.excess or 0.0))
        after.append(
            f"{unnamed[0].name} has the {unnamed[0].detector} pattern "
            f"({_attention(unnamed[0])}), but {_but(unnamed[0])}.{more}"
        )
    if not working:
        best = _decisive(heads)
        which = "adjusted p" if best.knockout is None else "p"
        p = "" if best.deciding_p is None else f", {equals_p(best.deciding_p, which)}"
        after.insert(
            0,
            f"Nearest: {best.name} ({best.detector}, {_attention(best)}{p}): "
            f"{best.reason or 'by attention alone'}.",
        )
        if status(heads, task_check, screens) == "undecided" and not _undecided(heads):
            after.append(f"{capital(_screened(screens))}.")
    if feeding := _feeding(readers, task_check.unit):
        rest = len(feeding) - MOST_FEEDERS
        more = f" {rest} more heads that are read are in the table." if rest > 0 else ""
        after.append(f"K-composition: {' '.join(feeding[:MOST_FEEDERS])}{more}")
    metric = ""
    if groups or screens:
        n = task_check.value.n
        fewer = any(group.rows < n for group in groups)
        own = "; percentages are of it on the prompts of the knockout" if fewer else ""
        metric = f" (metric: {task_check.size}, n = {n}; {task_check.metric}{own})"
    after.append(f"Task{metric}: {task_check.summary}.")
    room = MOST_FINDINGS - len(after)
    if len(sentences) > room:
        others = _listed([group.detector for group in working[room - 1 :]], "and")
        sentences = [*sentences[: room - 1], f"Effects of {others}: see the table of patterns."]
    return _explained([*sentences, *after][:MOST_FINDINGS])


def _by_pattern(heads: Sequence[HeadVerdict]) -> str:
    """How many heads have each pattern, the commonest first, and how many were tested alone."""
    counts = Counter(head.detector for head in heads).most_common()
    alone = Counter(head.detector for head in heads if head.knockout is not None)
    rows = {h.detector: h.knockout.rows for h in heads if h.knockout is not None}
    return "; ".join(
        f"{detector} {number} ({alone[detector]} tested alone"
        + (f", n = {rows[detector]})" if detector in rows else ")")
        for detector, number in counts
    )


def _explained(sentences: Sequence[str]) -> list[str]:
    """Findings, the first mention of a head's attention with the queries it refers to."""
    explained = list(sentences)
    for i, sentence in enumerate(explained):
        if ATTENTION in sentence:
            explained[i] = sentence.replace(ATTENTION, f"{ATTENTION} {WHERE}", 1)
            break
    return explained


def _of_group(group: Group, heads: Sequence[HeadVerdict]) -> str:
    """Finding on the effect of knocking out one pattern in all heads that have it."""
    strongest = max((h for h in heads if h.detected), key=_strength_alone)
    best = "Strongest alone" if _strength_alone(strongest)[0] > 0 else "Strongest"
    rows = strongest.knockout.rows if strongest.knockout else group.rows
    if len(group.heads) == 1:
        return (
            f"{strongest.name} ({group.detector}, {_attention(strongest)}), "
            f"{_effect_words(strongest)} (n = {rows})."
        )
    number = len(group.heads)
    how_many = "both" if number == 2 else f"all {number}"
    joint = least(group.joint)
    smallest = _listed([head_name(*head) for head in group.smallest[:3]], "and")
    if len(group.smallest) > 3:
        smallest = f"{len(group.smallest)} heads"
    backed = "; the others back it up" if group.structure == "backed up" else ""
    keeps = f" Left in {smallest} only, it keeps about 90 % or more of this effect{backed}."
    keeps = "" if group.structure == "none" else keeps
    alone = f" (n = {rows})" if rows < group.rows else ""
    return (
        f"{group.detector.capitalize()}: knocking out attention to this pattern's keys in "
        f"{how_many} heads that may have the pattern removes {with_interval(joint)} of the metric "
        f"(n = {group.rows}).{keeps} "
        f"{best}: {strongest.name} ({_attention(strongest)}), "
        f"{_effect_words(strongest)}{alone}."
    )


def _effect_words(head: HeadVerdict) -> str:
    """Causal word with the effect on which it rests."""
    if head.knockout is None:
        return "its effect was not tested"
    word, alone = head.causal, head.knockout.claim is head.knockout.own
    own = head.knockout.effect if alone else least(head.knockout.own)
    effect = "major effect" if word == "major" else in_words(word)
    knocked = f"knocking out this attention removes {with_interval(own)} of the metric"
    if head.knockout.output and not matters(word):
        other = min(head.knockout.output.values(), key=lambda s: s.mean)
        removed = with_interval(other)
        return f"{in_words(word)}: {knocked}, but replacing its whole output removes {removed}"
    if word == "negligible":
        shares = [*head.knockout.own.values(), *head.knockout.restored.values()]
        widest = max(abs(end) for s in shares for end in (s.low, s.high))
        if widest < ROUNDS_TO_ZERO:
            changes = f"changes the metric by less than {100 * ROUNDS_TO_ZERO:g} %"
            return f"negligible effect: knocking out this attention {changes}"
        amounts = [s for s in map(in_unit, shares) if s is not None]
        if amounts:
            widest = max(abs(end) for a, _ in amounts for end in (a.low, a.high))
            return f"negligible effect: {knocked}, within ± {widest:.2g} {amounts[0][1]}"
        return f"negligible effect: {knocked}, within ± {percent(widest, 1)}"
    if matters(word) and not alone:
        return (
            f"{effect}: alone, {knocked}, and {with_interval(head.knockout.effect)} once it is "
            "knocked out in the others too"
        )
    if word == "suppresses":
        gain = head.knockout.effect
        return (
            f"suppresses: without this attention the metric rises by {with_interval(negated(gain))}"
        )
    if word == "undecided":
        more = head.knockout.rows_needed
        prompts_needed = f"; about {more} prompts would decide" if more else ""
        why = head.knockout.reason if head.knockout.reason else ""
        because = f" ({why})" if why else ""
        return f"undecided: {knocked}{prompts_needed}{because}"
    return f"{effect}: {knocked}"


def _but(head: HeadVerdict) -> str:
    if head.knockout is None:
        return "its effect was not tested"
    if matters(head.causal) and head.reason:
        return f"{head.reason} ({_effect_words(head)})"
    return f"its effect is {_effect_words(head)}".replace("is negligible effect", "is negligible")


def _attention(head: HeadVerdict) -> str:
    return "–" if head.attention is None else f"{100 * head.attention:.0f} {ATTENTION}"


def _feeding(readers: Sequence[Reader], unit: str) -> list[str]:
    """K-composition of each earlier head that is read, those with most readers first."""
    by_feeder: dict[tuple[int, int], list[tuple[Reader, Partner]]] = {}
    for reader in readers:
        for partner in reader.named:
            feeder = partner.layer, partner.head
            by_feeder.setdefault(feeder, []).append((reader, partner))
    sentences = list[str]()

    def readers_then_effect(fed: Sequence[tuple[Reader, Partner]]) -> tuple[int, float]:
        return len(fed), max(partner.attention_drop for _, partner in fed)

    ranked = sorted(by_feeder.items(), key=lambda item: readers_then_effect(item[1]), reverse=True)
    for feeder, fed in ranked:
        names = _listed([head_name(reader.layer, reader.head) for reader, _ in fed], "and")
        partners = [partner for _, partner in fed]
        lost = [p.value_drop for p in partners if p.value_drop is not None]
        lows = [p.value_low for p in partners if p.value_low is not None]
        effect = (
            f" and the metric by {_span(lost, '{:.2g}'.format)} {unit}"
            if lows and min(lows) > 0
            else "; the metric is not shown to fall"
            if lost
            else ""
        )
        before = _span([p.attention for p in partners], percent)
        after = _span([p.attention - p.attention_drop for p in partners], percent)
        sentences.append(
            f"{'T' if sentences else 't'}he keys of {names} read the output of "
            f"{head_name(*feeder)}; without this path, induction attention falls from {before} to "
            f"{after}{effect}."
        )
    return sentences


def _span(values: Sequence[float], shown: Callable[[float], str]) -> str:
    low, high = shown(min(values)), shown(max(values))
    return low if low == high else f"{low}–{high}"


def _several(number: int, noun: str) -> str:
    return noun if number == 1 else f"{noun}s"


def _names(heads: Sequence[HeadVerdict], most: int) -> str:
    return _shortened([head.name for head in heads], most)


def _shortened(names: Sequence[str], most: int) -> str:
    return _listed(names, "and") if len(names) <= most + 1 else listed(names, most)


def _listed(names: Sequence[str], word: str) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {word} {names[-1]}"
