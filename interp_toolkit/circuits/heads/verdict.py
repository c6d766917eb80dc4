"""The verdict on a model's heads: what is detected, and what knocking out attention says of it.

First comes whether the model performs the task on these prompts: of a model that does not, nothing
is said of what its heads do (*not tested*), and attention is only *described*. Labels come from the
head rule (`rule`), causal words from `behaviour.words`; every sentence gives its interval.
"""

from __future__ import annotations

from collections.abc import Sequence

from interp_toolkit.circuits.behaviour.task import AtHome
from interp_toolkit.circuits.behaviour.words import Share, in_words, matters
from interp_toolkit.circuits.heads.ablation import Ablations
from interp_toolkit.circuits.heads.described import Described
from interp_toolkit.circuits.heads.partner import Partner
from interp_toolkit.circuits.heads.result import HeadsEvidence, HeadVerdict, Reader
from interp_toolkit.circuits.heads.rule import LEAST_EXCESS, Group, least
from interp_toolkit.circuits.heads.significance import DetectorScores
from interp_toolkit.models.model import Head
from interp_toolkit.results import Status, head_name
from interp_toolkit.stats import LEVEL

NAMED = 8  # heads of one detector that the verdict names
MANY = 24  # detected heads beyond which it names those whose work is known, and counts the others
#: the detector whose label says what the head does, not only where it attends
DEFINED_BY_EFFECT = "induction"
NULL = (
    "matched controls: shifted keys, relabelled tokens, the same positions with other tokens, the "
    "same keys from other queries"
)
ERROR = (
    "any wrong detection by attention in a model: at most the level, by Holm; where the model "
    "performs the task heads are named only where knocking out their attention costs it, by "
    "intervals that are simultaneous within a pattern; both checked on untrained models"
)
#: what a family of controls that has as much attention could be
RIVALS = {
    "shifted": "nearby keys (a window)",
    "relabelled": "other tokens (a class of tokens)",
    "displaced": "the same positions whatever stands there (a fixed position or distance)",
    "other queries": (
        "the same keys from every query (a fixed position, a separator or a class of tokens)"
    ),
}


def evidence_of(
    heads: Sequence[HeadVerdict],
    groups: Sequence[Group],
    home: AtHome | None,
    ablations: Ablations | None,
) -> HeadsEvidence:
    """What the verdict rests on."""
    said = status(heads, home)
    return HeadsEvidence(
        status=said,
        reason=reason_of(said, heads, home),
        looks=sum(head.p_value is not None for head in heads),
        detected=sum(head.detected for head in heads),
        null=NULL,
        error=ERROR,
        level=LEVEL,
        at_home=None if home is None else home.yes,
        behaviour=None if home is None else home.said,
        cut_rows=max((group.rows for group in groups), default=None),
        replaced_by=None if ablations is None else ablations.how,
    )


def status(heads: Sequence[HeadVerdict], home: AtHome | None) -> Status:
    """The verdict in one machine word: ✓ only for a head that the head rule names."""
    if any(head.detected and head.cut is not None for head in heads):
        return "detected"
    if any(head.detected for head in heads):
        return "described"
    if home is None or not home.yes or any(_uncut(head) for head in heads):
        return "not_tested"
    return "undecided" if _open(heads) or _uncompared(heads) else "not_detected"


def reason_of(said: Status, heads: Sequence[HeadVerdict], home: AtHome | None) -> str | None:
    """Why no head is detected; None where one is."""
    if said == "detected":
        return None
    if home is None or not home.yes:
        return NO_TASK if home is None else f"the model is not seen to do the task: {home.said}"
    if said == "described":
        return (
            "attention alone: it could not be knocked out on prompts that the task is measured on"
        )
    if said == "not_tested":
        return next(head.reason for head in heads if _uncut(head))
    return _decisive(heads).reason


def _open(heads: Sequence[HeadVerdict]) -> list[HeadVerdict]:
    """Heads whose knockouts leave open whether they are of a kind."""
    cut = [head for head in heads if head.cut is not None and not head.detected]
    return [h for h in cut if h.causal == "undecided" or (h.cut is not None and h.cut.is_open)]


def _decisive(heads: Sequence[HeadVerdict]) -> HeadVerdict:
    """The head that says most of why none is detected."""
    return (_open(heads) or _uncompared(heads) or [nearest(heads)])[0]


NO_TASK = "these rows ask nothing of the model that could be measured"
NO_CONTROL = "too few matched controls in these prompts"


def _uncut(head: HeadVerdict) -> bool:
    """Whether it attends so, and that was not knocked out by itself."""
    return head.attends and not head.detected and head.cut is None


def _uncompared(heads: Sequence[HeadVerdict]) -> list[HeadVerdict]:
    """Heads whose attention no control could be compared with, or that more prompts might decide.

    All heads where no comparison was made at all.
    """
    if all(head.p_value is None for head in heads):
        return list(heads)
    return [
        h
        for h in heads
        if h.cut is None
        and not h.detected
        and h.reason is not None
        and (
            "cannot tell" in h.reason
            or (h.reason == NO_CONTROL and (h.excess or 0.0) >= LEAST_EXCESS)
        )
    ]


def why_not(head: HeadVerdict, floor: float, rival: str | None = None) -> str | None:
    """Why attention alone does not say that a head is of a kind; None where it does.

    Args:
        head: with its scores.
        floor: the detector's threshold.
        rival: what else its attention could be (see `rival_of`).
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
        reasons.append(f"attention above its controls is below the threshold of {floor:.0%}")
    if head.p_adjusted is None or head.p_adjusted > LEVEL:
        said = f"adjusted p above {LEVEL:g}"
        if over_null >= LEAST_EXCESS and head.p_value <= LEVEL:
            return f"{said}, {head.p_value:.2g} alone: these prompts cannot tell it from chance"
        reasons.append(said)
    return " and ".join(reasons) or None


def rival_of(scores: DetectorScores, at: Head, described: Described | None) -> str | None:
    """What attention to a pattern's keys could be instead, by the controls that have most of it.

    With the position, token or distance that most of the head's attention goes to, if any.
    """
    kind = RIVALS.get(scores.weakest[at.layer][at.head])
    shares = [] if described is None else list(described.shares)
    for words in (("place", "token"), tuple("123")):
        for share in shares:
            if kind is not None and share.relation.startswith(words):
                return f"{kind}: {share.relation} has {share.share:.0%}"
    return kind


def nearest(heads: Sequence[HeadVerdict]) -> HeadVerdict:
    """The head with the largest excess."""
    return max(heads, key=lambda head: head.excess if head.excess is not None else -1.0)


def verdict(
    heads: Sequence[HeadVerdict],
    readers: Sequence[Reader],
    groups: Sequence[Group],
    home: AtHome | None,
) -> str:
    """What the model does here, the heads of every kind, and what feeds the induction heads."""
    found = [head for head in heads if head.detected]
    detectors = list(dict.fromkeys(head.detector for head in heads))
    by_name = {group.detector: group for group in groups}
    said = status(heads, home)
    sentences = []
    if home is None or not home.yes:
        what = NO_TASK if home is None else f"the model is not seen to do the task ({home.said})"
        sentences.append(f"What heads do is not tested: {what}.")
        if not found:
            return f"{sentences[0]} By attention alone none is {_listed(detectors, 'or')}."
        sentences.append("By attention alone:")
    elif not found:
        first = {"undecided": "Undecided", "not_tested": "Not tested"}.get(
            said, "No head is detected"
        )
        what = f" as {_listed(detectors, 'or')}" if said == "not_detected" else ""
        sentences.append(f"{first}{what} ({_best(heads)}).")
    if len(found) > MANY:
        sentences += _in_short(found, detectors)
    else:
        for detector in detectors:
            kept = [head for head in found if head.detector == detector]
            if kept:
                together = _together(by_name.get(detector))
                sentences.append(f"{detector.capitalize()}: {_named(kept)}{together}.")
        sentences += _unnamed(heads)
    sentences += _all_feeding(readers, "of the value" if home is None else home.unit)
    if home is not None and home.yes:
        sentences.append(f"{home.said[0].upper()}{home.said[1:]}.")
    return " ".join(sentences)


def _in_short(found: Sequence[HeadVerdict], detectors: Sequence[str]) -> list[str]:
    """Of many heads: those whose work is known, the largest first, and how many there are else."""
    known = [head for head in found if head.cut is not None and matters(head.causal)]
    known.sort(key=lambda head: -least(head.cut.claim).mean if head.cut is not None else 0.0)
    sentences = []
    if known:
        named = "; ".join(
            f"{head.name} as {head.detector}, {_effect_words(head)}" for head in known[:NAMED]
        )
        more = f"; and {len(known) - NAMED} more" if len(known) > NAMED else ""
        sentences.append(f"What the behaviour rests on: {named}{more}.")
    counts = [
        f"{number} {detector}"
        for detector in detectors
        if (number := sum(head.detector == detector for head in found if head not in known))
    ]
    none = [name for name in detectors if all(head.detector != name for head in found)]
    absent = f"; none is detected as {_listed(none, 'or')}" if none else ""
    sentences.append(f"By attention alone: {_listed(counts, 'and')} heads{absent} (see the table).")
    return sentences


def _named(heads: Sequence[HeadVerdict]) -> str:
    named = [_with_effect(head) for head in heads[:NAMED]]
    rest = len(heads) - len(named)
    return ", ".join(named) + (f" and {rest} more" if rest else "")


def _with_effect(head: HeadVerdict) -> str:
    text = f"{head.name} ({_share(head)} of its attention"
    if head.cut is not None:
        text += f"; {_effect_words(head)}"
    return text + ")"


def _effect_words(head: HeadVerdict) -> str:
    """The causal word with the figures that it rests on."""
    assert head.cut is not None
    word, alone = head.causal, head.cut.claim is head.cut.own
    own = head.cut.effect if alone else least(head.cut.own)
    if head.cut.output and not matters(word):
        other = min(head.cut.output.values(), key=lambda s: s.mean)
        return (
            f"{in_words(word)}: cutting it costs {_range(own)} of the behaviour, but replacing all "
            f"that the head writes {_range(other)}"
        )
    if word == "negligible":
        shares = [*head.cut.own.values(), *head.cut.restored.values()]
        widest = max(abs(end) for s in shares for end in (s.low, s.high))
        return f"no effect found: cutting it costs {_range(own)}, within ±{widest:.1%}"
    if matters(word) and not alone:
        return (
            f"{in_words(word)}: cutting it alone costs {_range(own)} of the behaviour, but with "
            f"the rest of its group cut it restores {_range(head.cut.effect)}"
        )
    if word == "suppresses":
        gain = head.cut.effect
        turned = Share(-gain.mean, -gain.high, -gain.low)
        return f"works against the behaviour, which gains {_range(turned)} of itself without it"
    if word == "undecided":
        more = head.cut.rows_needed
        wanted = f"; about {more} rows would tell" if more else ""
        why = head.cut.reason if head.cut.reason else ""
        return f"undecided: cutting it costs {_range(own)} of the behaviour{wanted}" + (
            f" ({why})" if why.startswith("its effect depends") else ""
        )
    return f"{in_words(word)}: cutting it costs {_range(own)} of the behaviour"


def _range(share: Share) -> str:
    return f"{share.mean:.1%} [{share.low:.1%}, {share.high:.1%}]"


def _together(group: Group | None) -> str:
    if group is None or len(group.heads) < 2 or not matters(group.word):
        return ""
    smallest = ", ".join(head_name(*head) for head in group.smallest[:NAMED])
    how = {
        "shared": f"shared by {len(group.smallest)} ({smallest})",
        "one head": f"{smallest} keeps about nine tenths or more of that alone",
        "backed up": f"{smallest} keeps about nine tenths or more of that alone, and others make "
        "up for it",
        "spread": f"spread over {len(group.smallest)} heads",
        "none": "",
    }[group.structure]
    return (
        f"; cut in all {len(group.heads)} heads that attend so it costs "
        f"{_range(least(group.joint))}{', ' + how if how else ''}"
    )


def _unnamed(heads: Sequence[HeadVerdict]) -> list[str]:
    """Heads that attend to a relation and are not named by it, with what was found."""
    told = [h for h in heads if not h.detected and h.attends]
    sentences = [
        f"{h.name} attends as {h.detector} ({_share(h)}), but {_but(h)}." for h in told[:NAMED]
    ]
    if len(told) > NAMED:
        sentences.append(f"{len(told) - NAMED} more attend so and are not named (see the table).")
    return sentences


def _but(head: HeadVerdict) -> str:
    if head.cut is None:
        return "what that does was not tested"
    words = _effect_words(head)
    if matters(head.causal) and head.reason:
        return f"{head.reason} ({words})"
    return words


def _share(head: HeadVerdict) -> str:
    return "–" if head.score is None else f"{head.score:.0%}"


def _all_feeding(readers: Sequence[Reader], unit: str) -> list[str]:
    by_feeder: dict[tuple[int, int], list[tuple[Reader, Partner]]] = {}
    for reader in readers:
        if reader.partner is not None:
            feeder = reader.partner.layer, reader.partner.head
            by_feeder.setdefault(feeder, []).append((reader, reader.partner))
    sentences = []
    for fed in by_feeder.values():
        readers_fed, partners = zip(*fed, strict=True)
        sentences.append(_feeding(readers_fed, partners, unit))
    return sentences


def _feeding(readers: Sequence[Reader], partners: Sequence[Partner], unit: str) -> str:
    """One earlier head, and the induction heads whose keys it feeds."""
    names = _listed([head_name(reader.layer, reader.head) for reader in readers], "and")
    lost = [p.value_drop for p in partners if p.value_drop is not None]
    lows = [p.value_low for p in partners if p.value_low is not None]
    effect = f" and {_numbers(lost)} {unit}" if lows and min(lows) > 0 else ""
    feeder = head_name(partners[0].layer, partners[0].head)
    return (
        f"{feeder} feeds the keys of {names}: cutting {'that path' if len(readers) == 1 else 'one'}"
        f"{'' if len(readers) == 1 else ' of these paths'} costs "
        f"{_numbers([p.attention_drop for p in partners])} of "
        f"{_numbers([p.attention for p in partners])} induction attention{effect}."
    )


def _numbers(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2g}", f"{max(values):.2g}"
    return low if low == high else f"{low} to {high}"


def _best(heads: Sequence[HeadVerdict]) -> str:
    best = _decisive(heads)
    p = "–" if best.p_adjusted is None else f"{best.p_adjusted:.2g}"
    return (
        f"the nearest is {best.name} as {best.detector}, {_share(best)} of its attention, "
        f"adjusted p = {p}: {best.reason}"
    )


def _listed(names: Sequence[str], word: str) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {word} {names[-1]}"
