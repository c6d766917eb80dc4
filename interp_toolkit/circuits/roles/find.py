"""Classify heads by role on these prompts: measures, rule, causal check.

One pass over the prompts records all heads (see `reading`). The causal check takes one more, and
one for each checked head, which begins at its layer if the model can be run from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.circuits.roles.causal import RoleCheck, RoleChecks, logit_difference_check
from interp_toolkit.circuits.roles.kinds import (
    DELIMITER,
    KINDS,
    MUCH,
    NAME_MOVER,
    NEGATIVE,
    S_INHIBITION,
    SINK,
    SUCCESSOR,
    WORDS,
    WRITES,
    KindSides,
    MeasureMeans,
    RoleWord,
    means_of,
    sides_of,
)
from interp_toolkit.circuits.roles.measures import answer_sources, measured
from interp_toolkit.circuits.roles.reading import Queries, Writing, queries_of, read
from interp_toolkit.circuits.roles.result import HeadRole, PlainWriter
from interp_toolkit.circuits.roles.token_lists import (
    ListCircuits,
    delimiter_positions,
    list_circuits,
    lists_of,
    successions,
)
from interp_toolkit.errors import InterventionError
from interp_toolkit.evidence import control_of_excess, effect_status
from interp_toolkit.models.model import Head
from interp_toolkit.models.running.stages import Store, not_stored
from interp_toolkit.models.weights.view import weights
from interp_toolkit.options import Effort
from interp_toolkit.stats import LEVEL, Share

#: effort -> heads taken out one by one, at most; None: all
CHECKED: dict[Effort, int | None] = {"quick": 0, "standard": 24, "thorough": None}
PARKED = (SINK.name, DELIMITER.name)


@dataclass(frozen=True, eq=False)
class Roles:
    """The roles of all heads.

    Attributes:
        heads: one entry per testable kind and head, sorted by kind, then by head.
        writers: heads with a large direct effect for or against the answer that are not shown to be
            of one of these kinds.
        groups: effect of ablating all heads of a kind together, by kind.
        direct: every head's direct effect on the preference for the answer, in logits.
        attention: attention of every head from the answer position to each position, mean over
            queries.
        difference: the model's mean preference for the answer, in logits.
        untested: kinds that cannot be tested on these prompts or this model, and why.
        passes: number of passes over the prompts; a pass that begins at a later layer counts as
            one.
        notes: limits of the result, one sentence each.
    """

    heads: tuple[HeadRole, ...]
    writers: tuple[PlainWriter, ...]
    groups: dict[str, RoleCheck]
    direct: MeasureMeans
    attention: Float[np.ndarray, "layer head pos"]
    difference: float
    untested: dict[str, str]
    passes: int
    notes: tuple[str, ...]


@torch.no_grad()
def find_roles(
    model: Any,
    prompts: Prompts,
    *,
    lists: Sequence[Sequence[int]] | None = None,
    checked: int | None = CHECKED["standard"],
    seed: int = 0,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
    store: Store = not_stored,
) -> Roles:
    """Test every head for every role; task performance is not checked.

    Args:
        model: any TransformerLens model whose heads add to the residual stream.
        prompts: prompts with answers, and with wrong answers for name movers.
        lists: ordered lists of token ids, for successor heads; None: weekdays, months, numbers and
            letters of the tokenizer.
        checked: largest number of heads to ablate one by one; 0: no causal check; None: all heads.
        seed: random seed of the sampling.
        memory: bound for a batch.
        progress: called with a description of each step.
        store: keeps the effects of ablations (`models.running.stages`).

    Raises:
        InputError: too few prompts or no answers; a model whose heads cannot be read.

    Examples:
        >>> from dataclasses import replace
        >>> import interp_toolkit as it
        >>> from interp_toolkit.circuits import repeated_prompts
        >>> model = it.load("toy:induction")
        >>> made = repeated_prompts(model, rows=12, n_pos=24)
        >>> positions = torch.full((12, 1), 22)
        >>> prompts = replace(made, answers=made.tokens[:, 23:], answer_positions=positions)
        >>> heads = find_roles(model, prompts).heads
        >>> [head.name for head in heads if head.kind == "name-mover" and head.named]
        ['L1H0']
    """
    queries, view = queries_of(prompts), weights(model)
    follows = successions(queries, lists_of(model, lists))
    delimiters = delimiter_positions(model, queries)
    reading = read(model, view, queries, answer_sources(queries), memory=memory, progress=progress)
    writing = Writing(view, reading, queries)
    measures = measured(writing, follows, delimiters, seed)
    needs = [need.measure for kind in KINDS for need in (*kind.attention, *kind.writing)]
    used = [name for name in dict.fromkeys(needs) if name in measures.of_rows]
    means = means_of(measures, used, seed=seed)
    difference = float(measures.difference.mean())
    judged = {k.name: sides_of(k, means, difference) for k in KINDS}
    circuits = list_circuits(view, follows.lists, seed=seed) if follows.lists else None
    heads = _in_front(
        [
            _head(sides, at, circuits)
            for sides in judged.values()
            if sides is not None
            for at in np.ndindex(view.n_layers, view.n_heads)
            if at[0] not in reading.left_out
        ]
    )
    writers = _writers(heads, means["direct"], means["direct, displaced"], difference)
    notes = [*_notes(judged), *reading.left_out.values()]
    if circuits is not None and circuits.note:
        notes.append(circuits.note)
    movers = [Head(h.layer, h.head) for h in heads if h.kind == NAME_MOVER.name and h.named]
    ablation = RoleChecks(model, writing, movers, memory, progress, store)
    checks, groups, n_runs = _checked(ablation, heads, writers, checked, notes)
    heads = [_with_check(head, checks) for head in heads]
    named = {(h.layer, h.head) for h in heads if h.kind not in PARKED and h.named}
    return Roles(
        heads=tuple(heads),
        writers=tuple(
            replace(w, check=checks.get(Head(w.layer, w.head)))
            for w in writers
            if (w.layer, w.head) not in named
        ),
        groups=groups,
        direct=means["direct"],
        attention=reading.attention.mean(2),
        difference=difference,
        untested=_untested(judged, queries, delimiters is not None, bool(lists_of(model, lists))),
        passes=1 + n_runs,
        notes=tuple(notes),
    )


def _head(sides: KindSides, at: tuple[int, ...], circuits: ListCircuits | None) -> HeadRole:
    layer, head = at
    word = sides.word(layer, head)
    attention, p_values = _share(sides.attention.size, at), [float(sides.attention.p_value[at])]
    writing = None
    if sides.writing is not None:
        writing = _share(sides.writing.size, at)
        p_values.append(float(sides.writing.p_value[at]))
    score, reason = None, None
    if sides.kind.name == SUCCESSOR.name and circuits is not None:
        score = float(circuits.score[at])
        p_values.append(float(circuits.p_value[at]))
        if not circuits.passes[at]:
            open_ = word == "named" or (word == "undecided" and circuits.may[at])
            word = WORDS["undecided"] if open_ else WORDS["not_detected"]
            reason = NO_CIRCUIT if open_ else None
    return HeadRole(
        layer=layer,
        head=head,
        kind=sides.kind.name,
        word=word,
        attention=attention,
        writing=writing,
        p_value=max(p_values),
        attends=sides.attention.passes(layer, head),
        writes=None if sides.writing is None else sides.writing.passes(layer, head),
        list_score=score,
        reason=reason,
    )


NO_CIRCUIT = (
    "from weights alone, its OV circuit does not significantly map tokens to their successors"
)


def _share(size: MeasureMeans, at: tuple[int, ...]) -> Share:
    return Share(float(size.mean[at]), float(size.low[at]), float(size.high[at]))


def _in_front(heads: Sequence[HeadRole]) -> list[HeadRole]:
    """Reject S-inhibition heads without a name mover (or a candidate) in a later layer.

    Without a named name mover, no head is rejected.
    """
    movers = [h for h in heads if h.kind == NAME_MOVER.name and h.word in ("named", "undecided")]
    if not any(mover.named for mover in movers):
        return list(heads)
    last = max(mover.layer for mover in movers)
    reason = "no name mover is in a later layer"
    return [
        replace(h, word="no", reason=reason)
        if h.kind == S_INHIBITION.name and h.word != "no" and h.layer >= last
        else h
        for h in heads
    ]


def _writers(
    heads: Sequence[HeadRole], direct: MeasureMeans, alone: MeasureMeans, difference: float
) -> list[PlainWriter]:
    """Heads with a large direct effect, specific to the answer, and no writing kind, largest first.

    Args:
        heads: every head's roles.
        direct: direct effects.
        alone: their parts that depend on the answer (see `reading.asked_alone`).
        difference: the model's preference for the answer.
    """
    writing = [h for h in heads if h.kind not in PARKED and h.writing is not None]
    taken = {(h.layer, h.head) for h in writing if h.word != "no"}
    writers = []
    for layer, head in np.ndindex(*direct.mean.shape):
        share = _share(direct, (layer, head))
        specific = _share(alone, (layer, head))
        certain = all(
            measure.p_value[layer, head] <= LEVEL and max(of.low, -of.high) > 0
            for measure, of in ((direct, share), (alone, specific))
        )
        certain = certain and share.mean * specific.mean > 0
        large = abs(share.mean) >= MUCH * abs(difference)
        if certain and large and (layer, head) not in taken:
            writers.append(PlainWriter(layer, head, share))
    return sorted(writers, key=lambda writer: -abs(writer.direct.mean))


def _checked(
    ablation: RoleChecks,
    heads: Sequence[HeadRole],
    writers: Sequence[PlainWriter],
    most: int | None,
    notes: list[str],
) -> tuple[dict[Head, RoleCheck], dict[str, RoleCheck], int]:
    """Ablate named heads and candidates one by one, and the heads of each kind together."""
    writing = ablation.writing
    heads_to_test = sorted(
        (h for h in heads if h.word in ("named", "candidate") and h.kind not in PARKED),
        key=lambda h: (h.word != "named", -abs((h.writing or h.attention).mean)),
    )
    named = [Head(h.layer, h.head) for h in heads_to_test if h.named]
    rest = [Head(w.layer, w.head) for w in writers]
    singles = list(dict.fromkeys([*named, *rest, *(Head(h.layer, h.head) for h in heads_to_test)]))
    if not singles or not logit_difference_check(writing.queries.by_row(writing.difference())).yes:
        if singles:
            notes.append("no head was ablated: the preference for the answer may be zero")
        return {}, {}, 0
    if most == 0:
        notes.append("no head was ablated (effort: quick); --effort standard ablates some")
        return {}, {}, 0
    if most is not None and len(singles) > most:
        notes.append(f"{len(singles) - most} of {len(singles)} heads were not ablated")
    chosen = singles[:most]
    by_kind: dict[str, frozenset[Head]] = {}
    for kind in dict.fromkeys(h.kind for h in heads_to_test):
        members = {Head(h.layer, h.head) for h in heads_to_test if h.kind == kind and h.named}
        if len(members) > 1:
            by_kind[kind] = frozenset(members)
    sets = [*(frozenset([head]) for head in chosen), *by_kind.values()]
    try:
        effects = ablation.of(sets)
    except InterventionError as error:
        notes.append(f"no head was ablated: {error}")
        return {}, {}, 0
    singly = dict(zip(chosen, effects, strict=False))
    groups = dict(zip(by_kind, effects[len(chosen) :], strict=True))
    return singly, groups, 1 + len(sets)


def _with_check(head: HeadRole, checks: dict[Head, RoleCheck]) -> HeadRole:
    """The head with its causal check, which decides on S-inhibition candidates."""
    if head.word not in ("named", "candidate", "undecided"):
        return head
    check = checks.get(Head(head.layer, head.head))
    if head.word != "candidate":
        return replace(head, check=check)
    word, reason = inhibits(check)
    return replace(head, check=check, word=word, reason=reason)


def inhibits(check: RoleCheck | None) -> tuple[RoleWord, str | None]:
    """Whether ablation shows that a head that attends to the repeated wrong token inhibits."""
    if check is None:
        return WORDS["undecided"], "it has the pattern, but was not ablated"
    beyond, direct, shift = check.downstream, check.direct, check.shift
    low = beyond.low - max(direct.high, -direct.low)
    high = beyond.high - max(direct.low, -direct.high)
    is_ = "is" if high < 0 else "may be"
    turns, why_not = np.nan, "no name mover is in a later layer"
    if shift is not None:
        turns, why_not = shift.low, "the name movers may not turn to the wrong token"
    why_no_loss = "ablating it may not lower the metric"
    controls = [
        control_of_excess(
            "direct effect", low, high, f"its effect {is_} more direct than downstream"
        ),
        control_of_excess("loss", check.loss.low, np.inf, why_no_loss),
        control_of_excess("attention", turns, np.inf, why_not),
    ]
    status, why = effect_status(beyond.low, beyond.high, WRITES, controls, effect="indirect effect")
    return "no" if status == "uninformative" else WORDS[status], why


def _notes(judged: dict[str, KindSides | None]) -> list[str]:
    notes = []
    for name, sides in judged.items():
        if sides is not None and any("attention" in need for need in sides.left_out):
            notes.append(
                f"{name}: the attended token has the same position in all prompts, so a head "
                "that attends by position cannot be distinguished"
            )
    return notes


def _untested(
    judged: dict[str, KindSides | None], queries: Queries, has_tokenizer: bool, has_lists: bool
) -> dict[str, str]:
    """The kinds that could not be tested, and why."""
    why = {
        NAME_MOVER.name: "too few prompts contain their answer",
        NEGATIVE.name: "too few prompts contain their answer",
        S_INHIBITION.name: "no wrong token occurs twice before the answer's position"
        if queries.wrong is not None
        else "these prompts have no wrong answers",
        SUCCESSOR.name: "no answer succeeds a token of its prompt in a list"
        if has_lists
        else "no lists of tokens in order: no tokenizer, and none were given",
        DELIMITER.name: "no punctuation or line break in these prompts"
        if has_tokenizer
        else "the model has no tokenizer, so delimiters are unknown",
    }
    fallback = "its measures are defined on too few prompts"
    return {name: why.get(name, fallback) for name, sides in judged.items() if sides is None}
