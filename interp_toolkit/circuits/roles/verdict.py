"""The verdict on roles, in three sentences: what carries, what feeds it, what is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from interp_toolkit.circuits.behaviour.task import AtHome
from interp_toolkit.circuits.behaviour.words import in_words
from interp_toolkit.circuits.roles.causal import RoleCheck
from interp_toolkit.circuits.roles.find import PARKED, Roles
from interp_toolkit.circuits.roles.kinds import KINDS, NAME_MOVER, S_INHIBITION, SUCCESSOR, HeadKind
from interp_toolkit.circuits.roles.result import HeadRole, RolesEvidence
from interp_toolkit.results import Status
from interp_toolkit.stats import LEVEL

NAMED = 4  # heads of a kind in a sentence
NULL = (
    "like places of the same row, the same places in other rows, other rows' answers; rows' signs "
    "flipped; of lists, other orders and shifts"
)
ERROR = "any head wrongly named by attention and writing: at most the level (largest of all looks)"
_CARRIES = (NAME_MOVER.name, SUCCESSOR.name)


def not_tested(home: AtHome) -> tuple[str, RolesEvidence]:
    """The verdict on a model that is not seen to do the task."""
    reason = f"the model is not seen to do the task: {home.said}"
    return f"What heads do is not tested: {reason}.", _evidence("not_tested", reason, home, {}, 1)


def evidence_of(home: AtHome, roles: Roles) -> RolesEvidence:
    """What the verdict rests on."""
    named = {
        kind.name: sum(h.named for h in roles.heads if h.kind == kind.name)
        for kind in KINDS
        if kind.name not in roles.untested
    }
    moving = [head for head in roles.heads if head.kind not in PARKED]
    if any(head.named for head in moving):
        return _evidence("detected", None, home, named, roles.passes + 1)
    if any(head.word == "undecided" for head in moving):
        reason = "no head passes by attention and by writing, and some may"
        return _evidence("undecided", reason, home, named, roles.passes + 1)
    reason = "no head both attends and writes as these kinds do"
    return _evidence("not_detected", reason, home, named, roles.passes + 1)


def verdict(roles: Roles) -> str:
    """Three sentences; see the module."""
    bringing = [part for part in (_of_kind(roles.heads, name) for name in _CARRIES) if part]
    writing = f"Attending to what tells the answer, and writing it: {_and(bringing)}"
    sentences = [writing if bringing else NOBODY]
    if roles.writers:
        listed = ", ".join(f"{w.name}{_lost(w.check)}" for w in roles.writers[:NAMED])
        sentences[0] += f"; of none of these kinds, yet writing much: {listed}"
    names = [k.name for k in KINDS if k.name not in (*_CARRIES, *PARKED, S_INHIBITION.name)]
    against = [part for part in (_of_kind(roles.heads, name) for name in names) if part]
    feeding = _of_kind(roles.heads, S_INHIBITION.name)
    parts = [f"Turning the name movers from the wrong token: {feeding}"] if feeding else []
    if against:
        parts.append(f"writing against the answer or what is predicted: {_and(against)}")
    if parts:
        said = "; ".join(parts)
        sentences.append(said[:1].upper() + said[1:])
    sentences.append(_rest(roles))
    return ". ".join(sentences) + "."


NOBODY = "No head is seen both to attend to what tells the answer and to write it"


def _and(parts: Sequence[str]) -> str:
    return " and ".join(parts)


def _of_kind(heads: Sequence[HeadRole], kind: str) -> str:
    """The named heads of a kind, the first few with what their absence does."""
    found = sorted(
        (head for head in heads if head.kind == kind and head.named),
        key=lambda head: -abs((head.writing or head.attention).mean),
    )
    if not found:
        return ""
    names = [f"{h.name}{_lost(h.check)}" for h in found[:NAMED]]
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    counted = _counted(len(found), next(k for k in KINDS if k.name == kind))
    return f"{counted}, {', '.join(names)}{more}"


def _counted(count: int, kind: HeadKind) -> str:
    """Such as "1 name mover", "2 heads parked on delimiters"."""
    return f"{count} {kind.singular if count == 1 else kind.plural}"


def _lost(check: RoleCheck | None) -> str:
    if check is None:
        return " (not taken out)"
    share = check.loss
    return f" ({in_words(check.word)} alone, loss {share.low:.0%} to {share.high:.0%})"


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
    said = "; ".join(parts)
    return said[:1].upper() + said[1:]


def _evidence(
    status: Status, reason: str | None, home: AtHome, named: Mapping[str, int], passes: int
) -> RolesEvidence:
    return RolesEvidence(
        status=status,
        reason=reason,
        behaviour=home.said,
        at_home=home.yes,
        null=NULL,
        error=ERROR,
        level=LEVEL,
        named=named,
        passes=passes,
    )
