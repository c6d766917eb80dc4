"""Roles of heads at answer positions, as `interp analyze MODEL --probe roles --data FILE`.

The analysis first tests whether the model performs the task of the prompts (`metrics`). It then
judges every head under every kind of `kinds` by what the head attends to and writes, and ablates
the heads that it names (`find`). One figure shows the direct effect of every head on the logit
difference between answer and wrong answer; the other shows what the named heads attend to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field

from interp_toolkit import plots
from interp_toolkit.circuits.metrics.causal_words import in_words
from interp_toolkit.circuits.metrics.prompts import (
    Prompts,
    copies_note,
    on_prompts,
    prompts_from_data,
)
from interp_toolkit.circuits.metrics.task import TaskCheck, check_task, task_of
from interp_toolkit.circuits.roles.causal import RoleCheck
from interp_toolkit.circuits.roles.find import CHECKED, PARKED, Roles, find_roles
from interp_toolkit.circuits.roles.kinds import (
    KINDS,
    NAME_MOVER,
    S_INHIBITION,
    STATUSES,
    SUCCESSOR,
    HeadKind,
)
from interp_toolkit.circuits.roles.reading import queries_of, readable
from interp_toolkit.circuits.roles.result import HeadRole, PlainWriter, RolesEvidence, RolesFinding
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.evidence import Verdict, any_of, only_described, untested
from interp_toolkit.finding import HEADLINE_WORDS, Run, analysis
from interp_toolkit.formatting import capital, equals_p, listed, percent_ci
from interp_toolkit.models.about.record import provenance
from interp_toolkit.models.weights.view import weights
from interp_toolkit.options import Flag, Options
from interp_toolkit.plots import CLASS_COLORS
from interp_toolkit.results import Figure, Status
from interp_toolkit.stats import LEVEL


def _as_lists(value: Any) -> Any:
    """Lists of ids from a text such as "1,2,3,4;7,8,9,10"."""
    if not isinstance(value, str):
        return value
    try:
        return tuple(tuple(int(token) for token in part.split(",")) for part in value.split(";"))
    except ValueError:
        raise ValueError(f"{value!r} is not a list of token ids such as 1,2,3,4;7,8,9,10") from None


class RolesOptions(Options):
    """Options of `--probe roles`."""

    lists: Annotated[
        tuple[tuple[int, ...], ...] | None,
        BeforeValidator(_as_lists),
        Flag(metavar="IDS;IDS", repeated=False),
    ] = Field(
        None,
        description="Token ids in order, for successor heads; default: the tokenizer's weekdays, "
        "months, numbers and letters.",
    )


def analyze(run: Run[RolesOptions]) -> RolesFinding:
    """Find name movers and heads of the other kinds at the answer positions of prompts.

    The model's heads must add to the residual stream; the prompts have one length, answers and,
    for S-inhibition, wrong answers beside them.

    Raises:
        InputError: no prompts with answers, too few, or a model whose heads cannot be read.
    """
    model, data, options = run.model, run.data, run.options
    quick = options.effort == "quick"
    if data is None:
        raise InputError(_NO_ROWS)
    run.progress("does the model do its task here?")
    user_prompts, prompts, task_check = task_prompts(run, data)
    described = {"source": data.source, "rows": len(prompts), "sha256": data.digest()}
    about = provenance(model, described, options.settings(effort=options.effort), options.seed)
    if not task_check.yes:
        return RolesFinding(
            headline="Not tested: the model has not been shown to perform the task on these "
            "prompts.",
            findings=[f"Task: {task_check.summary}."],
            evidence=not_tested(task_check),
            provenance=about,
            task_check=task_check,
            difference=None,
            heads=[],
            writers=[],
            groups={},
            untested={},
        )
    roles = find_roles(
        model,
        prompts,
        lists=options.lists,
        checked=CHECKED[options.effort],
        seed=run.seed,
        memory=run.memory,
        progress=run.progress,
        store=run.store,
    )
    return RolesFinding(
        headline=headline(roles, quick=quick),
        findings=on_prompts(
            [*findings(roles), _preference(roles, prompts)],
            data.source,
            len(prompts),
            synthetic=False,
        ),
        evidence=evidence_of(task_check, roles, quick=quick),
        provenance=about,
        task_check=task_check,
        difference=roles.difference,
        heads=roles.heads,
        writers=roles.writers,
        groups=roles.groups,
        untested=roles.untested,
        notes=[
            *(f"{name} is not tested: {why}" for name, why in roles.untested.items()),
            *roles.notes,
            *filter(None, [copies_note(user_prompts, prompts)]),
        ],
        plots=[direct_map(roles), *attention_panels(roles)],
    )


def task_prompts(run: Run[Any], data: FeatureData) -> tuple[Prompts, Prompts, TaskCheck]:
    """All prompts, the prompts without duplicates, and whether the model performs their task.

    Raises InputError for prompts without answers, too few of them, or all with the same answer.
    """
    user_prompts = prompts_from_data(data, run.model)
    prompts = user_prompts.distinct()
    queries_of(prompts)
    task, reason = task_of(run.model, prompts)
    if task is None:
        raise InputError(str(reason))
    return user_prompts, prompts, check_task(run.model, task, run.memory)


_NO_ROWS = "roles are defined by the prompts' answers; give prompts with answers (--data)"


def unfit(model: Any, data: FeatureData | None) -> str | None:
    """Why the analysis cannot run on this model and data; None where it can."""
    if int(model.cfg.n_layers) < 1:
        return "the model has no layers"
    if data is None or data.answers is None:
        return "needs rows with answers (--data)"
    try:
        queries_of(prompts_from_data(data, model))
        readable(model, weights(model))
    except InputError as error:
        return str(error)
    return None


ROLES = analysis(
    "roles",
    "which heads are name movers, S-inhibition, successor, copy-suppression or sink heads",
    RolesOptions,
    analyze,
    unfit,
    reads_stream=True,
    reads_answers=True,
)


NAMED = 4  # heads of a kind in a sentence
NULL = (
    "similar positions of the same prompt, the same positions in other prompts; sign flips over "
    "prompts; permuted answers; for lists, other orders and shifts"
)
ERROR = (
    "any head wrongly named by attention and direct effect: at most the level for each null (sign "
    "flips, permuted answers; maximum over all comparisons)"
)
QUICK = "attention and direct effects only: no head was ablated (effort: quick)"
_MOVING = (NAME_MOVER.name, SUCCESSOR.name)


def not_tested(task_check: TaskCheck) -> RolesEvidence:
    """The evidence if the model has not been shown to perform the task."""
    reason = f"the model has not been shown to perform the task: {task_check.summary}"
    return _evidence(untested(reason), task_check, {}, 1)


def evidence_of(task_check: TaskCheck, roles: Roles, *, quick: bool = False) -> RolesEvidence:
    """Counts of named heads, and the task; where no head was ablated, roles are descriptive."""
    named = {
        kind.name: sum(h.named for h in roles.heads if h.kind == kind.name)
        for kind in KINDS
        if kind.name not in roles.untested
    }
    moving = [head for head in roles.heads if head.kind not in PARKED]
    status = any_of([STATUSES[head.word] for head in moving])
    verdict = status, _WHY_NOT.get(status)
    if quick and any(head.named for head in moving):
        verdict = only_described(QUICK)
    return _evidence(verdict, task_check, named, roles.passes + 1)


_WHY_NOT: Mapping[Status, str] = {
    "undecided": "no head is significant in both attention and direct effect, though some may have "
    "both",
    "not_detected": "no head has both the attention and the direct effect that a role requires",
}


def headline(roles: Roles, *, quick: bool = False) -> str:
    """The heads of every role, and one without a role that writes most; at most 20 words."""
    moving = [h for h in roles.heads if h.named and h.kind not in PARKED]
    moving.sort(key=lambda h: -abs(roles.direct.mean[h.layer, h.head]))
    by_kind = {kind: [h for h in moving if h.kind == kind.name] for kind in KINDS}
    parts = [_names(kind, heads, 2) for kind, heads in by_kind.items() if heads]
    if (largest := largest_writer(roles)) is not None:
        parts.append(f"{largest.name} writes most, with no role shown")
    if not moving:
        undecided = any(h.word == "undecided" and h.kind not in PARKED for h in roles.heads)
        start = "Undecided whether any head has" if undecided else "No head is detected in"
        beside = f"; {parts[0]}" if parts else ""
        return f"{start} {'one' if undecided else 'any'} of the roles tested{beside}."
    start = "by attention and writing alone: " if quick else ""
    sentence = start + "; ".join(parts)
    if len(sentence.split()) > HEADLINE_WORDS:
        counts = [_counted(len(heads), kind) for kind, heads in by_kind.items() if heads]
        sentence = start + listed(counts)
    return f"{capital(sentence)}."


def largest_writer(roles: Roles) -> PlainWriter | None:
    """The head without a role whose direct effect exceeds that of every other head, if any does.

    Its whole interval must be farther from 0 than that of each other head, with a role or not.
    """
    low, high = roles.direct.low, roles.direct.high
    farthest = np.maximum(np.abs(low), np.abs(high))
    for writer in roles.writers:
        others = np.delete(farthest, writer.layer * farthest.shape[1] + writer.head)
        if max(writer.direct.low, -writer.direct.high) > others.max(initial=0.0):
            return writer
    return None


def _names(kind: HeadKind, heads: Sequence[HeadRole], most: int) -> str:
    names = listed([head.name for head in heads], most)
    return f"{kind.singular if len(heads) == 1 else kind.plural} {names}"


def findings(roles: Roles) -> list[str]:
    """Findings: name movers, other writers, S-inhibition, writers against the answer, the rest."""
    bringing = [part for part in (_of_kind(roles.heads, name) for name in _MOVING) if part]
    sentences = [
        f"Heads that attend to the answer's token and write it: {' and '.join(bringing)}."
        if bringing
        else f"{NOBODY}."
    ]
    if roles.writers:
        listed = ", ".join(
            f"{w.name}, {w.direct.mean:+.2f} [{w.direct.low:+.2f}, {w.direct.high:+.2f}] logits"
            f"{_lost(w.check)}"
            for w in roles.writers[:NAMED]
        )
        n = len(roles.writers)
        first = f" (the {NAMED} largest of {n})" if n > NAMED else ""
        sentences.append(f"Large direct effects of heads without a role shown{first}: {listed}.")
    if feeding := _of_kind(roles.heads, S_INHIBITION.name):
        sentences.append(f"Heads that turn the name movers away from the wrong token: {feeding}.")
    names = [k.name for k in KINDS if k.name not in (*_MOVING, *PARKED, S_INHIBITION.name)]
    against = [part for part in (_of_kind(roles.heads, name) for name in names) if part]
    if against:
        sentences.append(
            f"Heads that write against the answer or predicted tokens: {' and '.join(against)}."
        )
    return [*sentences, f"{_rest(roles)}."]


def _preference(roles: Roles, prompts: Prompts) -> str:
    """What effects are fractions of, its size, and the number of prompts."""
    other = "that of the wrong answer" if prompts.wrong is not None else "the mean of other answers"
    return (
        f"Preference for the answer: its logit less {other}, {roles.difference:.2f} logits "
        f"(n = {len(prompts)})."
    )


NOBODY = "No head is shown both to attend to the answer's token and to write it"


def _of_kind(heads: Sequence[HeadRole], kind: str) -> str:
    """The named heads of a kind, the first few with the effect of their ablation."""
    matching = sorted(
        (head for head in heads if head.kind == kind and head.named),
        key=lambda head: -abs((head.writing or head.attention).mean),
    )
    if not matching:
        return ""
    names = listed([f"{h.name}{_lost(h.check)}" for h in matching], NAMED)
    return f"{_counted(len(matching), next(k for k in KINDS if k.name == kind))}, {names}"


def _counted(count: int, kind: HeadKind) -> str:
    """Counts in words, such as "1 name mover", "2 heads parked on delimiters"."""
    return f"{count} {kind.singular if count == 1 else kind.plural}"


def _lost(check: RoleCheck | None) -> str:
    if check is None:
        return " (not ablated)"
    less = check.loss.mean >= 0
    loss = check.loss if less else check.loss.negated()
    effect = f"{'removes' if less else 'adds'} {percent_ci(loss)}"
    return f" ({in_words(check.word)}: ablating it alone {effect} of the preference for the answer)"


def _rest(roles: Roles) -> str:
    """Kinds without heads, undecided heads, kinds not testable here, counts of parked heads."""
    names = [k.name for k in KINDS if k.name not in PARKED and k.name not in roles.untested]
    here = {head.kind for head in roles.heads if head.word != "no"}
    absent = [name for name in names if name not in here]
    parts = [f"tested, no head found: {', '.join(absent)}"] if absent else []
    open_ = sorted((h for h in roles.heads if h.word == "undecided"), key=lambda h: h.p_value)
    if open_:
        shown = [f"{h.name} ({h.kind}, {equals_p(h.p_value, 'adjusted p')})" for h in open_]
        parts.append(f"undecided: {listed(shown, NAMED)}")
    if roles.untested:
        parts.append(f"not testable here: {', '.join(roles.untested)}")
    for kind in KINDS:
        if kind.name in PARKED and kind.name not in roles.untested:
            count = sum(head.named for head in roles.heads if head.kind == kind.name)
            parts.append(_counted(count, kind))
    text = "; ".join(parts)
    return capital(text)


def _evidence(
    verdict: Verdict, task_check: TaskCheck, named: Mapping[str, int], passes: int
) -> RolesEvidence:
    return RolesEvidence(
        status=verdict[0],
        reason=verdict[1],
        behaviour=task_check.summary,
        performs_task=task_check.yes,
        null=NULL,
        error=ERROR,
        level=LEVEL,
        named=named,
        passes=passes,
    )


MOST_PANELS, PER_ROW = 9, 3
PANEL_HEIGHT = 190  # pixels


def direct_map(roles: Roles) -> Figure:
    """Layers by heads: the direct effect on the preference for the answer, with its sign."""
    mean = roles.direct.mean
    n_layers, n_heads = mean.shape
    labels: dict[tuple[int, int], list[str]] = {}
    for head in roles.heads:
        if head.named:
            labels.setdefault((head.layer, head.head), []).append(head.kind)
    texts = [
        [_hover(roles, layer, head, labels.get((layer, head), [])) for head in range(n_heads)]
        for layer in range(n_layers)
    ]
    axes = list(range(n_heads)), list(range(n_layers))
    cells = plots.signed_heatmap(*axes, plots.rounded(mean), "logits")
    cells |= {"text": texts} | plots.hover("%{text}")
    data = [cells]
    moving = sorted({(h.layer, h.head) for h in roles.heads if h.named and h.kind not in PARKED})
    if moving:
        layers, heads = zip(*moving, strict=True)
        marks = plots.markers(heads, layers, "#000000", symbol="diamond-open", size=9)
        data.append(marks | plots.NO_HOVER | plots.NO_LEGEND)
    layout = plots.layout(
        plots.axis("head") | plots.whole(n_heads) | plots.BARE,
        plots.axis("layer") | plots.whole(n_layers) | plots.BARE,
    )
    caption = (
        "Direct effect of each head at the answer's position, in logits, with the final norm "
        "frozen; above 0: for the answer. Diamonds: named heads, without sink and delimiter heads."
    )
    return Figure("Direct effects", caption, data, layout | {"height": 140 + 16 * n_layers})


def _hover(roles: Roles, layer: int, head: int, kinds: list[str]) -> str:
    direct = roles.direct
    ends = f"{direct.low[layer, head]:.3g} to {direct.high[layer, head]:.3g}"
    kind = f"<br>{', '.join(kinds)}" if kinds else ""
    return f"L{layer}H{head}: {direct.mean[layer, head]:.3g} ({ends}){kind}"


def attention_panels(roles: Roles) -> list[Figure]:
    """The named heads' mean attention from the answer position, by key position."""
    named = [head for head in roles.heads if head.named and head.kind not in PARKED]
    chosen: dict[tuple[int, int], HeadRole] = {}
    for head in named:
        chosen.setdefault((head.layer, head.head), head)
    heads = list(chosen.values())[:MOST_PANELS]
    if not heads:
        return []
    panels = plots.beside(len(heads), PER_ROW)
    data: list[plots.Part] = []
    layout: plots.Part = {
        "annotations": [
            p.heading(f"{h.name}, {h.kind}") for p, h in zip(panels, heads, strict=True)
        ],
        "height": 60 + PANEL_HEIGHT * -(-len(heads) // PER_ROW),
        "showlegend": False,
        "margin": {"t": 50},
    }
    for panel, head in zip(panels, heads, strict=True):
        paid = roles.attention[head.layer, head.head]
        order = list(range(len(paid)))
        data.append(plots.bars(order, plots.rounded(paid), CLASS_COLORS[0]) | panel.trace)
        layout |= panel.layout(
            plots.axis("place" if panel.lowest else ""),
            plots.axis("attention" if panel.leftmost else "") | {"range": [0, 1]},
        )
    caption = (
        "Mean attention of the named heads from the answer's position to every position of the "
        "prompt."
    )
    return [Figure("What named heads attend to", caption, data, layout)]
