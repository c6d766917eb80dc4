"""The analysis of attention heads: `interp analyze MODEL --probe heads`, or one kind of head.

Steps: make rows on which the model is at home, or take the given ones, and ask whether it does its
task there (`behaviour`); score every head under every detector in one pass (`scores`); cut the
attention of all that attend to a relation, together and one by one (`groups`); ablate the heads
that are detected or attend so (`ablation`); for induction heads, cut the paths from earlier heads
into their keys (`partner`); describe what every head attends to (`described`); read what weights
alone say.

A head is detected
- on rows with answers that the model gets right more often than chance: if the behaviour rests on
  its attention to the relation (`groups`, "named"), however little attention it is; attention that
  can be cut at no cost makes no head of that kind here;
- on repeated tokens that the model makes use of: if it attends so by the rule of `significance`, or
  is named; an induction head is defined by its effect, so one that is found to have none is not;
- else, by attention alone, and what it does is not tested.

Of a large model (see `price`) a part of the rows and heads is looked at, within a number of forward
passes (`within`); notes say what was left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from interp_toolkit.circuits.behaviour.at_home import assumption_note, home_prompts, made
from interp_toolkit.circuits.behaviour.prompts import (
    FEWEST_TOKENS,
    SHORTEST,
    Prompts,
    prompts_from_data,
)
from interp_toolkit.circuits.behaviour.task import (
    AtHome,
    RowTask,
    first_rows,
    measured_home,
    task_of,
)
from interp_toolkit.circuits.composition.scores import CompositionScores, composition_scores
from interp_toolkit.circuits.heads import figures, price
from interp_toolkit.circuits.heads.ablation import Ablations, ablation_effects
from interp_toolkit.circuits.heads.controls import displaced_targets, targets_of
from interp_toolkit.circuits.heads.cuts import Cutter
from interp_toolkit.circuits.heads.described import describe_heads
from interp_toolkit.circuits.heads.detectors import OURS, as_detector
from interp_toolkit.circuits.heads.groups import (
    MOST_CUT,
    Group,
    candidates,
    displaced_name,
    group_effects,
)
from interp_toolkit.circuits.heads.partner import partners
from interp_toolkit.circuits.heads.price import (
    Price,
    is_large,
    rows_looked_at,
    unembedding_share,
)
from interp_toolkit.circuits.heads.result import HeadsResult, HeadVerdict, Reader
from interp_toolkit.circuits.heads.scores import HeadScores, detect, is_causal
from interp_toolkit.circuits.heads.verdict import (
    DEFINED_BY_EFFECT,
    evidence_of,
    verdict,
    why_not,
)
from interp_toolkit.circuits.heads.within import groups_within
from interp_toolkit.circuits.weights.self_scores import weight_scores
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError, InterventionError
from interp_toolkit.models.about.provenance import digest_of_tokens, provenance
from interp_toolkit.models.about.tokens import token_words
from interp_toolkit.models.heads import Head
from interp_toolkit.models.loading.headless import without_logits
from interp_toolkit.options import Flag, Options
from interp_toolkit.registry import Analysis, names
from interp_toolkit.results import head_name, jsonable

MOST_ABLATED = 12  # detected heads, those with the largest excess: each costs two passes
MOST_READERS = 4  # induction heads whose partners are looked for
PARTNER_ROWS = 128  # that paths are cut on, at most
CUT_ROWS = 64  # made rows that attention is cut on, at most


def _as_bos(value: Any) -> Any:
    return None if value == "none" else value


def _as_several(value: Any) -> Any:
    return value if value is None or isinstance(value, list | tuple) else (value,)


class HeadKindOptions(Options):
    """Options of the analysis of one kind of head."""

    hops: int = Field(2, ge=2, le=16, description="Of the k-hop detector.")
    ablate: Literal["mean", "resample", "zero"] = Field(
        "mean",
        description="What an ablated head is replaced with: the mean of the other rows, another "
        "row's values, or zeros.",
    )
    bos: Annotated[
        int | Literal["auto"] | None, BeforeValidator(_as_bos), Flag(metavar="ID|auto|none")
    ] = Field(
        "auto",
        description="Token that made prompts begin with; auto: the tokenizer's, or what the model "
        "is at home with.",
    )
    length: int | None = Field(
        None, ge=SHORTEST + 1, description="Positions of made prompts; default: the context."
    )


class HeadsOptions(HeadKindOptions):
    """Options of `--probe heads`."""

    detectors: Annotated[
        tuple[Any, ...] | None, BeforeValidator(_as_several), Flag("--detector", metavar="NAME")
    ] = Field(
        None, description="Kinds of head to look for; default: all that are registered and fit."
    )


def run(
    model: Any,
    data: FeatureData | None,
    options: HeadKindOptions,
    progress: Callable[[str], None],
    *,
    probe: str = "heads",
    detectors: Sequence[Any] | None = None,
) -> HeadsResult:
    """Which heads are of which kind, with what certainty, and to what effect.

    Args:
        model: any TransformerLens model.
        data: rows to look at instead of those made for the model; with answers, or where they
            repeat, what heads do there is asked.
        options: see `HeadsOptions`; detectors are as `score_heads` takes them.
        progress: told what is being done.
        probe: the name the result goes by.
        detectors: those to look for; None: the options'.

    Raises:
        InputError: a model without visible patterns, a context too short, unfit data, another way
            to ablate.
    """
    if isinstance(options, HeadsOptions):
        detectors = options.detectors
    rows = _rows(model, data, options, progress)
    chosen = _fitting(model, rows.prompts) if detectors is None else list(detectors)
    scores = detect(
        model,
        None if data is None else rows.prompts,
        chosen,
        hops=options.hops,
        seed=options.seed,
        made=rows.prompts,
        memory=options.memory,
        progress=progress,
    )
    looked = _look(model, rows, scores, options, progress)
    ablations, ablation_notes = _ablate(model, looked, options, progress)
    heads = _with_ablations(looked.heads, ablations)
    readers, reader_notes = _readers(model, looked, heads, options.memory, progress)
    described = describe_heads(
        model, rows.prompts, scores.detectors, causal=is_causal(model), progress=progress
    )
    progress("scores from weights alone")
    from_weights, weight_notes = _from_weights(model)
    data_used = {
        "source": scores.prompts.source,
        "rows": len(scores.prompts),
        "sha256": digest_of_tokens(scores.prompts.tokens) if data is None else data.digest(),
    }
    progress("figures")
    settings = options.settings(detectors=[s.detector for s in scores.scores])
    notes = [*rows.notes, *scores.notes, *looked.notes, *ablation_notes, *reader_notes]
    return HeadsResult(
        probe=probe,
        verdict=verdict(heads, readers, looked.groups, looked.home),
        evidence=evidence_of(heads, looked.groups, looked.home, ablations),
        provenance=provenance(model, data_used, settings, options.seed),
        heads=heads,
        readers=readers,
        from_weights=from_weights,
        groups=looked.groups,
        home=looked.home,
        described=described,
        notes=list(dict.fromkeys([*notes, *weight_notes])),
        plots=[
            figures.head_map(heads),
            *figures.patterns(model, scores.prompts, heads, token_words(model)),
        ],
    )


@dataclasses.dataclass(frozen=True)
class _Rows:
    """The rows, the task on them (on more of them, where they are made), and notes."""

    prompts: Prompts
    task: RowTask | None
    notes: tuple[str, ...]


def _rows(
    model: Any,
    data: FeatureData | None,
    options: HeadKindOptions,
    progress: Callable[[str], None],
) -> _Rows:
    if data is not None:
        prompts = prompts_from_data(data, model)
        task, reason = task_of(model, prompts)
        asked = "give rows with answers, or rows that repeat"
        untested = f"what heads do is not tested: {reason}; {asked}" if task is None else None
        told = (assumption_note(model, data), untested)
        return _Rows(prompts, task, tuple(note for note in told if note))
    prompts, way, note = home_prompts(
        model,
        bos=options.bos,
        length=options.length,
        seed=options.seed,
        memory=options.memory,
        progress=progress,
    )
    repeats = bool((prompts.periods > 0).all())
    more = made(model, way, rows=CUT_ROWS, seed=options.seed + 1) if repeats else prompts
    task, reason = task_of(model, more)
    notes = tuple(n for n in (note, reason and f"what heads do is not tested: {reason}") if n)
    return _Rows(prompts, task, notes)


def _fitting(model: Any, prompts: Prompts) -> list[str]:
    """Every registered detector that this model's attention can show, ours first."""
    known = [*OURS, *(name for name in names("detectors") if name not in OURS)]
    causal = is_causal(model)
    found = [as_detector(name) for name in known]
    return [
        name
        for name, d in zip(known, found, strict=True)
        if not (causal and d.later) and (d.sought == "own" or prompts.answers is not None)
    ]


@dataclasses.dataclass(frozen=True)
class _Looked:
    """What cutting attention says of every head."""

    heads: list[HeadVerdict]
    groups: list[Group]
    home: AtHome | None
    task: RowTask | None
    notes: tuple[str, ...]


def _look(
    model: Any,
    rows: _Rows,
    scores: HeadScores,
    options: HeadKindOptions,
    progress: Callable[[str], None],
) -> _Looked:
    """Ask whether the model is at home, then cut what each detector's group attends to."""
    home, groups, notes = None, list[Group](), list[str]()
    if rows.task is not None:
        progress("does the model do its task here?")
        home = measured_home(model, rows.task, options.memory)
        if home.yes:
            task, bound = rows.task, None
            if is_large(model, task):
                bound = _price(model, task)
                task = first_rows(task, rows_looked_at(task))
            cutter = _cutter(model, task, scores, options, progress, keeps=bound is not None)
            groups, notes = _groups(cutter, scores, home, options.seed, bound)
    by_name = {group.detector: group for group in groups}
    answers = rows.prompts.answers is not None and home is not None and home.yes
    heads = [
        _head(row, scores, by_name, strict=answers) for row in scores.to_frame().to_dict("records")
    ]
    return _Looked(heads, groups, home, rows.task, tuple(notes))


def _cutter(
    model: Any,
    task: RowTask,
    scores: HeadScores,
    options: HeadKindOptions,
    progress: Callable[[str], None],
    *,
    keeps: bool,
) -> Cutter:
    causal, prompts = is_causal(model), task.prompts
    detectors = {d.name: d for d in scores.detectors}
    return Cutter(
        model,
        task,
        {n: partial(targets_of, d, prompts, causal=causal) for n, d in detectors.items()}
        | {
            displaced_name(n): partial(displaced_targets, d, prompts, causal=causal)
            for n, d in detectors.items()
        },
        memory=options.memory,
        seed=options.seed,
        progress=progress,
        keeps=keeps,
    )


def _price(model: Any, task: RowTask) -> Price:
    """What cutting may cost, in passes over all rows of the task."""
    share = rows_looked_at(task) / len(task.rows)
    return Price(share, int(model.cfg.n_layers), unembedding_share(model.cfg))


def _groups(
    cutter: Cutter, scores: HeadScores, home: AtHome, seed: int, bound: Price | None
) -> tuple[list[Group], list[str]]:
    """The group of each detector that has one and whose relation these rows hold."""
    everyone = [Head(*at) for at in np.ndindex(*scores.detected.shape[1:])]
    asked, notes = _asked(cutter, scores)
    if bound is not None and asked:
        bound.restarts, bound.late = cutter.restarts, cutter.late
        cutter.progress("which heads to cut first")
        groups = groups_within(cutter, asked, home, bound, everyone=everyone, seed=seed)
        return groups, [*notes, _bounded(groups, bound, len(cutter.task.rows))]
    for name, heads in asked.items():
        if len(heads) > MOST_CUT:
            notes.append(
                f"{len(heads) - MOST_CUT} of {len(heads)} heads that attend as {name} (those with "
                "the least attention) were cut with the others only, not one by one"
            )
    groups = [
        group_effects(cutter, name, heads, home, everyone=everyone, seed=seed)
        for name, heads in asked.items()
    ]
    return groups, notes


def _asked(cutter: Cutter, scores: HeadScores) -> tuple[dict[str, list[Head]], list[str]]:
    """By detector, the heads whose attention is cut; and why some detector has none."""
    asked, notes = dict[str, list[Head]](), list[str]()
    for found in scores.scores:
        heads = candidates(found)
        name = found.detector
        if not heads:
            continue
        if not cutter.targets[name](cutter.task.rows).any():
            notes.append(f"no {name} relation is in the rows that attention was cut on")
            continue
        try:
            cutter.check(heads)
        except InterventionError as error:
            notes.append(f"no attention was cut: {error}")
            break
        asked[name] = heads
    return asked, notes


def _bounded(groups: Sequence[Group], bound: Price, rows: int) -> str:
    """What the price of a large model's passes left out."""
    alone = ", ".join(f"{len(g.members)} of {len(g.heads)} as {g.detector}" for g in groups)
    return (
        f"attention was cut within about {bound.passes:.0f} forward passes ({bound.spent:.1f} "
        f"were taken), on {rows} rows: one by one in {alone}, first where gradients say that it "
        "costs most; other heads were cut with their group only, and how heads share the work was "
        "not asked"
    )


def _head(
    row: Mapping[Any, Any], scores: HeadScores, groups: Mapping[str, Group], *, strict: bool
) -> HeadVerdict:
    """One head under one detector; `strict`: only what the behaviour rests on is detected."""
    known = {str(key): jsonable(value) for key, value in row.items()}
    attends = known.pop("detected")
    group = groups.get(known["detector"])
    at = known["layer"], known["head"]
    cut = next((m for m in group.members if m.head == at), None) if group else None
    floor = next(s.floor for s in scores.scores if s.detector == known["detector"])
    head = HeadVerdict(**known, detected=attends, attends=attends, cut=cut)
    if cut is None:
        detected = attends and not strict
        with_others = group is not None and at in group.heads
        if group is not None and known["detector"] == DEFINED_BY_EFFECT and with_others:
            detected = detected and group.word not in IDLE
        uncut = WITH_OTHERS if with_others else NO_TARGETS
        reason = why_not(head, floor) or (None if detected else uncut)
        return dataclasses.replace(head, detected=detected, reason=None if detected else reason)
    idle = cut.word in IDLE
    by_attention = attends and not strict and not (known["detector"] == DEFINED_BY_EFFECT and idle)
    detected = cut.named or by_attention
    return dataclasses.replace(head, detected=detected, reason=None if detected else cut.reason)


IDLE = ("no_effect_found", "works_against")
NO_TARGETS = "it attends so, but that could not be cut where these rows ask"
WITH_OTHERS = "it attends so, but that was cut with the other heads of its group only"


def _ablate(
    model: Any, looked: _Looked, options: HeadKindOptions, progress: Callable[[str], None]
) -> tuple[Ablations | None, list[str]]:
    """What the behaviour loses without each head that is detected, or attends so."""
    found = sorted(
        (head for head in looked.heads if head.detected or head.attends),
        key=lambda head: (not head.detected, -(head.excess or 0.0)),
    )
    heads = list(dict.fromkeys(Head(head.layer, head.head) for head in found))
    if not heads or looked.task is None or looked.home is None or not looked.home.yes:
        return None, []
    notes, most, task = [], MOST_ABLATED, looked.task
    if is_large(model, task):
        most, task = price.MOST_ABLATED, first_rows(task, rows_looked_at(task))
    if len(heads) > most:
        notes.append(
            f"{len(heads) - most} of {len(heads)} heads (those with the least attention) were not "
            "ablated"
        )
    try:
        ablations = ablation_effects(
            model,
            task.prompts,
            heads[:most],
            task=task,
            n_others=0,
            how=options.ablate,
            seed=options.seed,
            memory=options.memory,
            progress=progress,
        )
    except InterventionError as error:
        return None, [*notes, f"not ablated: {error}"]
    return ablations, [*notes, *ablations.notes]


def _with_ablations(heads: Sequence[HeadVerdict], ablations: Ablations | None) -> list[HeadVerdict]:
    ablated = {} if ablations is None else {(h.layer, h.head): h for h in ablations.heads}
    return [
        dataclasses.replace(head, ablation=ablated.get((head.layer, head.head)))
        if head.detected or head.attends
        else head
        for head in heads
    ]


def _told(progress: Callable[[str], None], what: str) -> Callable[[str], None]:
    return lambda step: progress(f"{what}: {step}")


def _readers(
    model: Any,
    looked: _Looked,
    heads: Sequence[HeadVerdict],
    memory: int | str | None,
    progress: Callable[[str], None],
) -> tuple[list[Reader], list[str]]:
    """What feeds the keys of the detected induction heads."""
    found = sorted(
        (h for h in heads if h.detector == DEFINED_BY_EFFECT and h.detected and h.layer > 0),
        key=lambda head: -(head.excess or 0.0),
    )
    if not found or looked.task is None or looked.home is None or not looked.home.yes:
        return [], []
    large = is_large(model, looked.task)
    most = price.MOST_READERS if large else MOST_READERS
    rows = rows_looked_at(looked.task) if large else PARTNER_ROWS
    task = first_rows(looked.task, rows)
    readers, notes = [], list[str]()
    if len(found) > most:
        clearest = f"{most} clearest induction heads" if most > 1 else "clearest induction head"
        notes.append(f"partners were looked for of the {clearest}")
    composition: CompositionScores | None = None
    for head in found[:most]:
        at = head.layer, head.head
        try:
            if composition is None:
                progress("composition of all pairs of heads")
                composition = composition_scores(model, memory)
            feeding = partners(
                model,
                task.prompts,
                at,
                task=task,
                composition=composition,
                memory=memory,
                progress=_told(progress, f"what feeds {head_name(*at)}"),
            )
        except (InputError, InterventionError) as error:
            notes.append(f"no partner was looked for: {error}")
            break
        readers.append(Reader(*at, feeding))
    return readers, notes


def _from_weights(model: Any) -> tuple[list[dict[str, Any]], list[str]]:
    try:
        frame = weight_scores(model)
    except InputError as error:
        return [], [f"no scores from weights: {error}"]
    return [
        {str(key): jsonable(value) for key, value in row.items()}
        for row in frame.to_dict("records")
    ], []


def _unfit(model: Any, data: FeatureData | None) -> str | None:
    """Why heads cannot be looked at; None when they can."""
    cfg = model.cfg
    if int(cfg.n_layers) < 1:
        return "the model has no layers"
    if (reason := without_logits(model)) is not None:
        return reason
    if data is not None:
        asks = data.answers is not None
        return None if asks else "ask for it by name: the data are prompts for other probes"
    if int(cfg.n_ctx) < SHORTEST + 1 or int(cfg.d_vocab) <= FEWEST_TOKENS:
        return (
            "needs a longer context or a larger vocabulary, for prompts that repeat; or rows with "
            "answers (--data)"
        )
    return None


def _one(name: str, summary: str) -> Analysis:
    return Analysis(
        name,
        summary,
        HeadKindOptions,
        partial(run, detectors=(name,), probe=name),
        lambda model, data: "part of heads",
    )


HEADS = Analysis(
    "heads",
    "every head under every detector, ablated, with its partners",
    HeadsOptions,
    run,
    _unfit,
)
INDUCTION = _one("induction", "which heads are induction heads, and what feeds them")
PREVIOUS_TOKEN = _one("previous-token", "which heads attend to the token before")
DUPLICATE_TOKEN = _one("duplicate-token", "which heads attend to the same token elsewhere")
K_HOP = _one("k-hop", "which heads attend several induction hops back")
