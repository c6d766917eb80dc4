"""Status, headline and findings of the analysis of roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from interp_toolkit.circuits.behaviour.task import AtHome
from interp_toolkit.circuits.behaviour.words import in_words
from interp_toolkit.circuits.roles.causal import RoleCheck
from interp_toolkit.circuits.roles.find import PARKED, Roles
from interp_toolkit.circuits.roles.kinds import KINDS, NAME_MOVER, S_INHIBITION, SUCCESSOR, HeadKind
from interp_toolkit.circuits.roles.result import HeadRole, RolesEvidence
from interp_toolkit.finding import HEADLINE_WORDS
from interp_toolkit.formatting import capital, listed
from interp_toolkit.results import Status
from interp_toolkit.stats import LEVEL, Share

NAMED = 4  # heads of a kind in a sentence
NULL = (
    "like places of the same row, the same places in other rows, other rows' answers; rows' signs "
    "flipped; of lists, other orders and shifts"
)
ERROR = "any head wrongly named by attention and writing: at most the level (largest of all looks)"
QUICK = "attention and direct writing alone: no head was taken out (effort: quick)"
_MOVING = (NAME_MOVER.name, SUCCESSOR.name)


def not_tested(task_check: AtHome) -> RolesEvidence:
    """The evidence where the model is not seen to perform the task."""
    reason = f"the model is not seen to perform the task: {task_check.said}"
    return _evidence("not_tested", reason, task_check, {}, 1)


def evidence_of(task_check: AtHome, roles: Roles, *, quick: bool = False) -> RolesEvidence:
    """Counts of named heads, and the task; where no head was taken out, roles are described."""
    named = {
        kind.name: sum(h.named for h in roles.heads if h.kind == kind.name)
        for kind in KINDS
        if kind.name not in roles.untested
    }
    moving = [head for head in roles.heads if head.kind not in PARKED]
    if quick and any(head.named for head in moving):
        return _evidence("described", QUICK, task_check, named, roles.passes + 1)
    if any(head.named for head in moving):
        return _evidence("detected", None, task_check, named, roles.passes + 1)
    if any(head.word == "undecided" for head in moving):
        reason = "no head passes by attention and by writing, and some may"
        return _evidence("undecided", reason, task_check, named, roles.passes + 1)
    reason = "no head both attends and writes as these kinds do"
    return _evidence("not_detected", reason, task_check, named, roles.passes + 1)


def headline(roles: Roles, *, quick: bool = False) -> str:
    """The heads of every role, and the largest writer of none; at most 20 words."""
    moving = [h for h in roles.heads if h.named and h.kind not in PARKED]
    by_kind = {kind: [h for h in moving if h.kind == kind.name] for kind in KINDS}
    parts = [_names(kind, heads, 2) for kind, heads in by_kind.items() if heads]
    largest = max(roles.writers, key=lambda w: abs(w.direct.mean), default=None)
    if largest is not None and all(_surely_more(largest.direct, h.writing) for h in moving):
        parts.append(f"{largest.name} writes most, with none of these roles")
    if not moving:
        undecided = any(h.word == "undecided" and h.kind not in PARKED for h in roles.heads)
        start = "Undecided whether any head has" if undecided else "No head is detected in"
        beside = f"; {parts[0]}" if parts else ""
        return f"{start} one of the roles tested{beside}."
    start = "by attention and writing alone: " if quick else ""
    sentence = start + "; ".join(parts)
    if len(sentence.split()) > HEADLINE_WORDS:
        counts = [_counted(len(heads), kind) for kind, heads in by_kind.items() if heads]
        sentence = start + "; ".join(counts[:3]) + ("; and more roles" if len(counts) > 3 else "")
    return f"{capital(sentence)}."


def _surely_more(one: Share, other: Share | None) -> bool:
    """Whether the interval of the first effect is farther from 0 than all of the other's."""
    surely = max(one.low, -one.high)
    return surely > 0 and (other is None or surely > max(abs(other.low), abs(other.high)))


def _names(kind: HeadKind, heads: Sequence[HeadRole], most: int) -> str:
    names = listed([head.name for head in heads], most)
    return f"{kind.singular if len(heads) == 1 else kind.plural} {names}"


def findings(roles: Roles) -> list[str]:
    """Heads that move the answer, other writers, S-inhibition, writers against it, the rest."""
    bringing = [part for part in (_of_kind(roles.heads, name) for name in _MOVING) if part]
    sentences = [
        f"Attending to the answer's token and writing it: {' and '.join(bringing)}."
        if bringing
        else f"{NOBODY}."
    ]
    if roles.writers:
        listed = ", ".join(
            f"{w.name}, {w.direct.mean:+.2f} [{w.direct.low:+.2f}, {w.direct.high:+.2f}] logits"
            f"{_lost(w.check)}"
            for w in roles.writers[:NAMED]
        )
        sentences.append(f"Writing much, of none of these roles: {listed}.")
    if feeding := _of_kind(roles.heads, S_INHIBITION.name):
        sentences.append(f"Turning the name movers from the wrong token: {feeding}.")
    names = [k.name for k in KINDS if k.name not in (*_MOVING, *PARKED, S_INHIBITION.name)]
    against = [part for part in (_of_kind(roles.heads, name) for name in names) if part]
    if against:
        sentences.append(
            f"Writing against the answer or against predicted tokens: {' and '.join(against)}."
        )
    return [*sentences, f"{_rest(roles)}."]


NOBODY = "No head is seen both to attend to the answer's token and to write it"


def _of_kind(heads: Sequence[HeadRole], kind: str) -> str:
    """The named heads of a kind, the first few with what their absence does."""
    matching = sorted(
        (head for head in heads if head.kind == kind and head.named),
        key=lambda head: -abs((head.writing or head.attention).mean),
    )
    if not matching:
        return ""
    names = listed([f"{h.name}{_lost(h.check)}" for h in matching], NAMED)
    return f"{_counted(len(matching), next(k for k in KINDS if k.name == kind))}, {names}"


def _counted(count: int, kind: HeadKind) -> str:
    """Such as "1 name mover", "2 heads parked on delimiters"."""
    return f"{count} {kind.singular if count == 1 else kind.plural}"


def _lost(check: RoleCheck | None) -> str:
    if check is None:
        return " (not ablated)"
    mean, low, high = (
        f"{100 * end:.0f}" for end in (check.loss.mean, check.loss.low, check.loss.high)
    )
    return f" ({in_words(check.word)} alone: ablation loses {mean} % [{low}, {high}])"


def _rest(roles: Roles) -> str:
    """What is not there, what nothing can be said of, and those that park, as counts."""
    names = [k.name for k in KINDS if k.name not in PARKED and k.name not in roles.untested]
    here = {head.kind for head in roles.heads if head.word != "no"}
    absent = [name for name in names if name not in here]
    parts = [f"looked for and not found: {', '.join(absent)}"] if absent else []
    open_ = {(h.layer, h.head) for h in roles.heads if h.word == "undecided"}
    if open_:
        parts.append(f"undecided: {len(open_)} {'head' if len(open_) == 1 else 'heads'}")
    if roles.untested:
        parts.append(f"not testable here: {', '.join(roles.untested)}")
    for kind in KINDS:
        if kind.name in PARKED and kind.name not in roles.untested:
            count = sum(head.named for head in roles.heads if head.kind == kind.name)
            parts.append(_counted(count, kind))
    text = "; ".join(parts)
    return capital(text)


def _evidence(
    status: Status, reason: str | None, task_check: AtHome, named: Mapping[str, int], passes: int
) -> RolesEvidence:
    return RolesEvidence(
        status=status,
        reason=reason,
        behaviour=task_check.said,
        performs_task=task_check.yes,
        null=NULL,
        error=ERROR,
        level=LEVEL,
        named=named,
        passes=passes,
    )
