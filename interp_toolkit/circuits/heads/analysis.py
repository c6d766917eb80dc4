"""The analysis of attention heads: `interp analyze MODEL --probe heads`, or one kind of head.

Steps:

1. Make synthetic prompts on which the model shows in-context learning, or take the user's, and test
   whether the model performs the task on them (`metrics`).
2. Score every head under every detector in one pass (`scores`).
3. Knock out the attention of all candidate heads of each pattern, together and one by one (`rule`).
4. Ablate the heads that are detected or have a pattern, each alone (`attention_knockout`).
5. For induction heads, ablate the paths from earlier heads into their keys (`partner`).
6. Split the attention of every head into named patterns (`described`).
7. Compute copying and matching scores from weights.

If the model performs the task, a head is *detected* by the head rule (`rule`) alone. If there is no
task, or its attention could not be knocked out, only its attention is known. The head is then named
by the rule of `significance`, and the result is *described*, never detected.

A large model is run for a BUDGET of passes unless the effort is thorough (`--effort thorough`). It
is run on fewer and shorter prompts, and heads with the largest apparent effect are tested first.
Notes list the heads and tests that were left out.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache, partial
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Int
from pydantic import BeforeValidator, Field
from torch import Tensor

from interp_toolkit.circuits.heads import figures
from interp_toolkit.circuits.heads.attention_knockout import INTACT, Knockout, KnockoutRunner
from interp_toolkit.circuits.heads.controls import targets_of
from interp_toolkit.circuits.heads.described import Described, Descriptions
from interp_toolkit.circuits.heads.detectors import OURS, as_detector, as_detectors
from interp_toolkit.circuits.heads.first_order import estimated_effects
from interp_toolkit.circuits.heads.partner import RUNS, partners
from interp_toolkit.circuits.heads.result import HeadsFinding, HeadVerdict, Reader
from interp_toolkit.circuits.heads.rule import (
    MOST_MEMBERS,
    Group,
    Screen,
    attention_controls,
    candidates,
    faint,
    group_effects,
    heads_with_pattern,
    least,
    screen,
)
from interp_toolkit.circuits.heads.scores import HeadScores, detect, is_causal
from interp_toolkit.circuits.heads.verdict import (
    DEFINED_BY_EFFECT,
    QUICK,
    evidence_of,
    findings,
    headline,
    rival_of,
    why_not,
)
from interp_toolkit.circuits.metrics.prompts import (
    FEWEST_TOKENS,
    SHORTEST,
    Prompts,
    copies_note,
    on_prompts,
    prompts_from_data,
)
from interp_toolkit.circuits.metrics.task import CircuitTask, TaskCheck, first_rows, task_of
from interp_toolkit.circuits.metrics.task_check import (
    LARGE_LENGTH,
    LARGE_ROWS,
    assumption_note,
    is_large,
    prompts_in,
    synthetic_prompts,
)
from interp_toolkit.circuits.weights.composition import CompositionScores, composition_scores
from interp_toolkit.circuits.weights.self_scores import weight_scores
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError, InterventionError
from interp_toolkit.evidence import any_of, only_described
from interp_toolkit.finding import Run, analysis
from interp_toolkit.formatting import in_words, prefixed
from interp_toolkit.models.about.info import token_words
from interp_toolkit.models.about.record import digest_of_tokens, provenance
from interp_toolkit.models.loading.formats.headless import without_logits
from interp_toolkit.models.model import Head
from interp_toolkit.models.running.interventions import require_heads
from interp_toolkit.models.weights.view import ModelWeights, weights
from interp_toolkit.options import Flag, Options
from interp_toolkit.registry import Analysis, names
from interp_toolkit.results import head_name, jsonable
from interp_toolkit.stats import COVERAGE, Estimate

MOST_ABLATED = 12  # heads that are ablated, those with the largest excess
MOST_READERS = 4  # induction heads whose partners are searched for
PARTNER_ROWS = 128  # prompts on which paths are ablated, at most
KNOCKOUT_ROWS = 64  # synthetic prompts on which attention is knocked out, at most
BUDGET = 10.0  # passes for knockouts in a large model, after which no single head is tested
LEAST_PASSES = 2  # passes that each pattern takes even if the budget is spent
LARGE_READERS = 1  # induction heads whose partners are searched for, in a large model
ESTIMATE_ROWS = 4  # prompts for first-order estimates of knockouts, in a large model
LARGE_PARTNER_ROWS = 8  # prompts on which paths are ablated, in a large model
LARGE_RUNS = 1  # ablated paths that are also measured on the task, in a large model
LARGE_TOKENS = 2**12  # tokens sampled for scores from weights, in a large model
LARGE_PARTNERS = 12  # earlier heads with the most K-composition tested, in a large model


def _as_several(value: Any) -> Any:
    return value if value is None or isinstance(value, list | tuple) else (value,)


class HeadKindOptions(Options):
    """Options of the analysis of one kind of head."""

    hops: int = Field(2, ge=2, le=16, description="Number of hops of the k-hop detector.")
    ablate: Literal["mean", "resample", "zero"] = Field(
        "mean",
        description="Ablation value of a head: the mean over the other prompts, another prompt's "
        "values, or zeros.",
    )
    length: int | None = Field(
        None,
        ge=SHORTEST + 1,
        description="Length of synthetic prompts; default: the context, at most 128 (40 in a "
        "large model).",
    )


class HeadsOptions(HeadKindOptions):
    """Options of `--probe heads`."""

    detectors: Annotated[
        tuple[Any, ...] | None, BeforeValidator(_as_several), Flag("--detector", metavar="NAME")
    ] = Field(
        None, description="Attention patterns to detect; default: all registered ones that fit."
    )


def analyze(run: Run[Any], detectors: Sequence[Any] | None = None) -> HeadsFinding:
    """Classify heads by attention pattern, with significance and causal effect.

    Args:
        run: model, data and options. The data's prompts replace synthetic ones; effects of heads
            are tested on them if they have answers or repeat.
        detectors: detectors as in `score_heads`; None: those of the options.

    Raises:
        InputError: attention patterns cannot be read, the context is too short, or the data do
            not fit the model.
    """
    model, data, options, progress = run.model, run.data, run.options, run.progress
    if isinstance(options, HeadsOptions):
        detectors = options.detectors
    if without_logits(model) is not None:  # only attention can be tested
        options = options.model_copy(update={"effort": "quick"})
        run = dataclasses.replace(run, options=options)
    large = is_large(model, data, options.effort, options.length)
    rows = _rows(model, data, options, progress, large)
    chosen = _fitting(model, rows.prompts) if detectors is None else list(detectors)
    described = Descriptions(
        model, rows.prompts, as_detectors(chosen, options.hops), causal=is_causal(model)
    )
    scores = detect(
        model,
        None if data is None else rows.prompts,
        chosen,
        hops=options.hops,
        seed=options.seed,
        made=rows.prompts,
        look=described.look,
        memory=options.memory,
        progress=progress,
        store=run.store,
    )
    descriptions = described.of_all(progress)
    untested = QUICK if options.effort == "quick" else rows.no_task
    untested = untested if without_logits(model) is None else NO_LOGITS
    finding = partial(_finding, run, rows, scores, descriptions)
    attention = _KnockoutResults(_judged(rows, scores, descriptions, {}, None), [], None, None, ())
    shown = nullcontext() if rows.task is None else run.early(finding(attention, FIRST_STAGE))
    with shown:
        results = _knock_out(run, rows, scores, descriptions, large)
        effects, ablation_notes = _ablate(run, results, large)
        heads = [
            dataclasses.replace(head, ablation=effects.get((head.layer, head.head)))
            if head.detected or head.attends
            else head
            for head in results.heads
        ]
        results = dataclasses.replace(results, heads=heads)
        view = cache(partial(weights, model))  # checks the weights against a forward pass
        readers, reader_notes = _readers(run, results, large, view)
        progress("scores from weights alone")
        from_weights, weight_notes = _from_weights(model, LARGE_TOKENS if large else None, view)
        progress("figures")
        more = [*ablation_notes, *reader_notes, *weight_notes]
        return finding(results, untested, readers, from_weights, more)


def _finding(
    run: Run[Any],
    rows: _Rows,
    scores: HeadScores,
    described: Sequence[Described],
    results: _KnockoutResults,
    untested: str,
    readers: Sequence[Reader] = (),
    from_weights: Sequence[Mapping[str, Any]] = (),
    more: Sequence[str] = (),
) -> HeadsFinding:
    model, data, options = run.model, run.data, run.options
    data_used = {
        "source": scores.prompts.source,
        "rows": len(scores.prompts),
        "sha256": digest_of_tokens(scores.prompts.tokens) if data is None else data.digest(),
    }
    task = rows.task if results.runner is None else results.runner.task
    if task is not None and (
        task.prompts is not scores.prompts or len(task.rows) < len(rows.prompts)
    ):
        data_used |= {
            "knockouts on": task.prompts.source,
            "knockout rows": len(task.rows),
            "knockout sha256": digest_of_tokens(task.prompts.tokens),
        }
    settings = options.settings(
        detectors=[s.detector for s in scores.scores], effort=options.effort
    )
    heads, notes = results.heads, [*rows.notes, *scores.notes, *results.notes, *more]
    if data is None and results.task_check is not None and not results.task_check.yes:
        notes.append("for a model of another task give its own prompts (--data), or --length")
    on = scores.prompts if task is None else task.prompts
    return HeadsFinding(
        headline=headline(heads, results.task_check, untested, results.screens),
        findings=on_prompts(
            findings(heads, readers, results.groups, results.task_check, untested, results.screens),
            on.source,
            len(on) if task is None else len(task.rows),
            synthetic=data is None,
        ),
        evidence=evidence_of(
            heads, results.groups, results.task_check, options.ablate, untested, results.screens
        ),
        provenance=provenance(model, data_used, settings, options.seed),
        heads=heads,
        readers=list(readers),
        from_weights=from_weights,
        groups=results.groups,
        screens=results.screens,
        task_check=results.task_check,
        described=described,
        notes=list(dict.fromkeys(notes)),
        plots=[
            figures.head_map(heads),
            *figures.patterns(model, scores.prompts, heads, token_words(model)),
        ],
    )


FIRST_STAGE = "heads were not knocked out yet (first stage: attention alone)"
QUICK_NOTE = f"{QUICK}; --effort standard tests the heads' effects"
NO_LOGITS = "the model has no logits for knockouts to change"


def untested_note(model: Any) -> str:
    """Note why no head was knocked out, and how to test effects."""
    return QUICK_NOTE if without_logits(model) is None else NO_LOGITS


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Prompts, the task, and notes; with synthetic prompts, the task has more of them.

    Attributes:
        no_task: why no task is tested; "" if one is.
    """

    prompts: Prompts
    task: CircuitTask | None
    notes: tuple[str, ...]
    no_task: str = ""


def _rows(
    model: Any,
    data: FeatureData | None,
    options: HeadKindOptions,
    progress: Callable[[str], None],
    large: bool,
) -> _Rows:
    quick = options.effort == "quick"
    if data is not None:
        user_prompts = prompts_from_data(data, model)
        prompts = user_prompts.distinct()
        copies = copies_note(user_prompts, prompts)
        if quick:
            return _Rows(prompts, None, tuple(n for n in (copies, untested_note(model)) if n))
        task, reason = task_of(model, prompts)
        advice = "give prompts with answers, or prompts that repeat"
        messages = (assumption_note(model, data), copies)
        no_task = f"{reason}; {advice}" if task is None else ""
        return _Rows(prompts, task, tuple(note for note in messages if note), no_task)
    prompts, prompt_format, note = synthetic_prompts(
        model,
        length=options.length,
        seed=options.seed,
        memory=options.memory,
        progress=progress,
        search=not quick,
        large=large,
    )
    if quick:
        return _Rows(prompts, None, tuple(n for n in (note, untested_note(model)) if n))
    repeats = bool((prompts.periods > 0).all())
    more = (
        prompts_in(model, prompt_format, rows=KNOCKOUT_ROWS, seed=options.seed + 1)
        if repeats
        else prompts
    )
    task, reason = task_of(model, more)
    return _Rows(prompts, task, (note,) if note else (), reason or "")


def _fitting(model: Any, prompts: Prompts) -> list[str]:
    """Registered detectors that fit the model and the prompts, built-in ones first."""
    detector_names = [*OURS, *(name for name in names("detectors") if name not in OURS)]
    causal = is_causal(model)
    detectors = [as_detector(name) for name in detector_names]
    return [
        name
        for name, d in zip(detector_names, detectors, strict=True)
        if not (causal and d.later) and (d.sought == "own" or prompts.answers is not None)
    ]


@dataclasses.dataclass(frozen=True)
class _KnockoutResults:
    """The results of attention knockouts for every head."""

    heads: list[HeadVerdict]
    groups: list[Group]
    task_check: TaskCheck | None
    runner: KnockoutRunner | None
    notes: tuple[str, ...]
    screens: Sequence[Screen] = ()

    @property
    def performing(self) -> KnockoutRunner | None:
        """Runner on the task's prompts; None unless the model performs the task."""
        return self.runner if self.task_check is not None and self.task_check.yes else None


def _knock_out(
    run: Run[Any],
    rows: _Rows,
    scores: HeadScores,
    described: Sequence[Described],
    large: bool,
) -> _KnockoutResults:
    """Check task performance, then knock out each attention pattern in its candidate heads."""
    runner, task_check, groups, notes = None, None, list[Group](), list[str]()
    screens: list[Screen] = []
    task = rows.task
    if task is not None:
        run.progress("checking task performance")
        every_row = task.rows
        if large:
            task = first_rows(task, LARGE_ROWS)
        runner = _knockout_runner(run, task, scores)
        began = time.monotonic()
        task_check = runner.check_task()
        seconds = time.monotonic() - began
        if task_check.yes:
            shorter = max(1.0, LARGE_LENGTH / task.prompts.n_pos)
            budget = BUDGET * LARGE_ROWS * shorter if large else math.inf
            groups, notes = _groups(runner, scores, task_check, budget, seconds, every_row)
            screens = _screens(runner, scores, task_check, groups, by_layer=not large)
    heads = _judged(
        rows, scores, described, {group.detector: group for group in groups}, task_check, screens
    )
    return _KnockoutResults(heads, groups, task_check, runner, tuple(notes), screens)


def _screens(
    runner: KnockoutRunner,
    scores: HeadScores,
    task_check: TaskCheck,
    groups: Sequence[Group],
    *,
    by_layer: bool,
) -> list[Screen]:
    """Joint knockouts that deny every pattern; none where a head is detected or undecided already.

    They end at the first pattern that they do not deny, since the result is undecided then.
    """
    members = [m for group in groups for m in group.members if not m.is_partial]
    screens: list[Screen] = []
    if any(member.status != "not_detected" for member in members):
        return screens
    for own in scores.scores:
        if not runner.targets[own.detector](runner.task.rows).any():
            continue
        try:
            runner.check(Head(*at) for at in np.argwhere(np.isfinite(own.score)).tolist())
        except InterventionError:
            return []
        screens += screen(runner, own, task_check, by_layer=by_layer)
        if screens[-1].status != "not_detected":
            break
    return screens


def _judged(
    rows: _Rows,
    scores: HeadScores,
    described: Sequence[Described],
    groups: Mapping[str, Group],
    task_check: TaskCheck | None,
    screens: Sequence[Screen] = (),
) -> list[HeadVerdict]:
    """Verdict of every head under every detector."""
    strict = rows.prompts.answers is not None and task_check is not None and task_check.yes
    heads = [
        _head(row, scores, groups, described, strict=strict)
        for row in scores.to_frame().to_dict("records")
    ]
    jointly = {
        own.detector: any_of([s.status for s in screens if s.detector == own.detector])
        for own in screens
    }
    return [
        dataclasses.replace(head, status=jointly[head.detector])
        if jointly.get(head.detector) == "not_detected"
        and (head.status == "not_tested" or (head.knockout and head.knockout.is_partial))
        else head
        for head in heads
    ]


def _knockout_runner(run: Run[Any], task: CircuitTask, scores: HeadScores) -> KnockoutRunner:
    causal, prompts = is_causal(run.model), task.prompts
    detectors = {d.name: d for d in scores.detectors}
    return KnockoutRunner(
        run.model,
        task,
        {n: partial(targets_of, d, prompts, causal=causal) for n, d in detectors.items()},
        memory=run.memory,
        seed=run.seed,
        progress=run.progress,
        store=run.store,
    )


def _groups(
    runner: KnockoutRunner,
    scores: HeadScores,
    task_check: TaskCheck,
    budget: float,
    seconds: float,
    rows: Int[Tensor, " row"],
) -> tuple[list[Group], list[str]]:
    """Groups of heads for each detector with candidates and keys in the prompts, and notes.

    Args:
        runner: runner of the knockouts.
        scores: scores of every head.
        task_check: task performance of the intact model.
        budget: prompts to run at most; infinite for no limit.
        seconds: duration of one pass over the task's prompts, for the progress estimate.
        rows: indices of all prompts of the task, of which a large model runs only the first.
    """
    heads_by_detector, notes = _heads_to_knock_out(
        runner, scores, task_check, limited=math.isfinite(budget)
    )
    attention = {own.detector: attention_controls(own) for own in scores.scores}
    if math.isfinite(budget) and heads_by_detector:
        passes = budget / LARGE_ROWS + LEAST_PASSES * len(heads_by_detector)
        runner.progress(
            f"knockouts in heads with {len(heads_by_detector)} attention patterns: about "
            f"{passes:.0f} passes of {LARGE_ROWS} prompts, {in_words(passes * seconds)}"
        )
    alone: Mapping[str, Sequence[Head]] = {}
    estimated_on, selected_on = _rows_for_estimates(rows, runner.task.rows)
    if math.isfinite(budget) and heads_by_detector:
        runner.progress("first-order estimates of all knockouts")
        alone = _to_knock_out_alone(runner, scores, heads_by_detector, task_check, estimated_on)
    groups: list[Group] = []
    for number, (name, heads) in enumerate(heads_by_detector.items()):
        left = max(budget - runner.rows_run, 0.0) / (len(heads_by_detector) - number)
        until = runner.rows_run + left if math.isfinite(budget) else math.inf
        group = group_effects(
            runner, name, heads, task_check,
            attention=attention[name], most=MOST_MEMBERS, until=until, budget=budget,
            alone=alone.get(name), selected_on=selected_on,
        )  # fmt: skip
        groups.append(group)
        if together := len(heads) - len(group.members):
            limited = math.isfinite(budget)
            which = " (those with the least attention)"
            if limited:
                which = " (those with a small estimated effect, or little attention)"
            more = "; --effort thorough tests more" if limited else ""
            notes.append(
                f"{together} of {len(heads)} heads with the pattern {name}{which} were knocked out "
                f"only together with the others{more}"
            )
    return groups, notes


def _rows_for_estimates(
    rows: Int[Tensor, " row"], tested: Int[Tensor, " tested"]
) -> tuple[Int[Tensor, " estimated"], bool]:
    """Prompts for first-order estimates, and whether knockouts use them too.

    They are others than those of the knockouts where there are enough, so that the selection of
    heads is independent of the effects that are then measured.
    """
    unused = rows[len(tested) :][:ESTIMATE_ROWS]
    if len(unused) == ESTIMATE_ROWS:
        return unused, False
    return tested[:ESTIMATE_ROWS], True


def _to_knock_out_alone(
    runner: KnockoutRunner,
    scores: HeadScores,
    heads_by_detector: Mapping[str, Sequence[Head]],
    task_check: TaskCheck,
    rows: Int[Tensor, " row"],
) -> dict[str, list[Head]]:
    """Heads of each pattern to knock out one by one in a large model, largest excess first.

    These are all whose first-order effect, estimated on these prompts, reaches the threshold; and
    those that have the pattern by attention alone, up to MOST_MEMBERS in all, since a gradient
    misses saturated effects.
    """
    estimates = estimated_effects(runner, list(heads_by_detector), rows)
    least_effect = runner.task.least(task_check.whole)
    alone: dict[str, list[Head]] = {}
    for name, heads in heads_by_detector.items():
        size = {head: float(estimates[name][head]) for head in heads}
        chosen = [head for head in heads if size[head] >= least_effect]
        attending = [
            head for head in scores.detected_heads(name) if head in size and head not in chosen
        ]
        attending.sort(key=lambda head: -abs(size[head]))
        chosen += attending[: max(MOST_MEMBERS - len(chosen), 0)]
        alone[name] = [head for head in heads if head in chosen]
    return alone


def _heads_to_knock_out(
    runner: KnockoutRunner, scores: HeadScores, task_check: TaskCheck, *, limited: bool
) -> tuple[dict[str, list[Head]], list[str]]:
    """Heads to knock out for each detector, and notes on detectors that have none."""
    heads_by_detector, notes = dict[str, list[Head]](), list[str]()
    for detector_scores in scores.scores:
        name, heads = detector_scores.detector, candidates(detector_scores)
        if not runner.targets[name](runner.task.rows).any():
            if heads:
                notes.append(
                    f"no {name} pattern is in the prompts that attention was knocked out on"
                )
            continue
        if not limited:
            try:
                runner.check(faint(detector_scores))
                heads = heads_with_pattern(runner, detector_scores, task_check)
            except InterventionError as error:
                notes.append(f"heads with little attention were not knocked out: {error}")
        if not heads:
            continue
        heads_by_detector[name] = heads
    try:
        runner.check(dict.fromkeys(head for heads in heads_by_detector.values() for head in heads))
    except InterventionError as error:
        notes.append(f"not all attention was knocked out: {error}")
        heads_by_detector = {
            name: heads
            for name, heads in heads_by_detector.items()
            if _can_be_knocked_out(runner, heads)
        }
    return heads_by_detector, notes


def _can_be_knocked_out(runner: KnockoutRunner, heads: Sequence[Head]) -> bool:
    try:
        runner.check(heads)
    except InterventionError:
        return False
    return True


def _head(
    row: Mapping[Any, Any],
    scores: HeadScores,
    groups: Mapping[str, Group],
    described: Sequence[Described],
    *,
    strict: bool,
) -> HeadVerdict:
    """Verdict of one head under one detector.

    It follows the head rule; without a knockout, and unless `strict`, it follows attention alone.
    """
    fields = {str(key): jsonable(value) for key, value in row.items()}
    attends = fields.pop("detected")
    at = fields["layer"], fields["head"]
    group = groups.get(fields["detector"])
    knockout = next((m for m in group.members if m.head == at), None) if group else None
    own = next(s for s in scores.scores if s.detector == fields["detector"])
    control = least(group.control).mean if group is not None and group.control else None
    head = HeadVerdict(
        **fields, detected=False, attends=attends, knockout=knockout, control_effect=control
    )
    if knockout is not None:
        return dataclasses.replace(
            head, detected=knockout.named, status=knockout.status, reason=knockout.reason
        )
    own_keys = next((d for d in described if d.head == at), None)
    if reason := why_not(head, own.floor, rival_of(own, Head(*at), own_keys)):
        return dataclasses.replace(head, reason=reason)
    if group is not None and at in group.heads:
        return dataclasses.replace(head, reason=WITH_OTHERS)
    if strict:
        return dataclasses.replace(head, reason=UNCUT)
    status, reason = only_described(None)
    return dataclasses.replace(head, detected=True, status=status, reason=reason)


UNCUT = "it has this pattern, but it could not be knocked out where these prompts have answers"
WITH_OTHERS = (
    "it has this pattern, but was knocked out only together with the other heads that have it"
)


def _ablate(
    run: Run[Any], results: _KnockoutResults, large: bool
) -> tuple[Mapping[tuple[int, int], Estimate], list[str]]:
    """Effect on the metric of ablating each head that is detected or has a pattern, and notes.

    Intervals are simultaneous over the heads (Bonferroni).
    """
    selected = sorted(
        (head for head in results.heads if head.detected or head.attends),
        key=lambda head: (not head.detected, -(head.excess or 0.0)),
    )
    heads = list(dict.fromkeys(Head(head.layer, head.head) for head in selected))
    runner = results.performing
    if not heads or runner is None:
        return {}, []
    if large:
        return {}, ["whole heads were not ablated; --effort thorough ablates them"]
    notes = []
    if left := len(heads[MOST_ABLATED:]):
        notes.append(
            f"{left} of {len(heads)} heads (those with the least attention) were not ablated"
        )
    heads = heads[:MOST_ABLATED]
    ablated = {h: Knockout(way=run.options.ablate, output=frozenset([h])) for h in heads}
    try:
        require_heads(run.model, heads)
        readings = runner.readings([INTACT, *ablated.values()], runner.task.rows)
    except InterventionError as error:
        return {}, [*notes, f"not ablated: {error}"]
    intact, coverage = readings[INTACT][:, 0], 1 - (1 - COVERAGE) / len(heads)
    return {
        head: runner.task.interval(intact - readings[knockout][:, 0], coverage)
        for head, knockout in ablated.items()
    }, notes


def _readers(
    run: Run[Any], results: _KnockoutResults, large: bool, view: Callable[[], ModelWeights]
) -> tuple[list[Reader], list[str]]:
    """Earlier heads that compose with the keys of the detected induction heads, and notes."""
    induction_heads = sorted(
        (
            h
            for h in results.heads
            if h.detector == DEFINED_BY_EFFECT and h.detected and h.layer > 0
        ),
        key=lambda head: -(head.excess or 0.0),
    )
    runner = results.performing
    if not induction_heads or runner is None:
        return [], []
    most = LARGE_READERS if large else MOST_READERS
    task = first_rows(runner.task, LARGE_PARTNER_ROWS if large else PARTNER_ROWS)
    readers, notes = [], list[str]()
    if len(induction_heads) > most:
        clearest = f"{most} clearest induction heads" if most > 1 else "clearest induction head"
        notes.append(f"composition was tested for the {clearest}")
    if large:
        notes.append(
            f"only the {LARGE_PARTNERS} earlier heads with the most K-composition were tested"
        )
    composition: CompositionScores | None = None
    for head in induction_heads[:most]:
        at = head.layer, head.head
        try:
            if composition is None:
                run.progress("composition of pairs of heads")
                layers = [h.layer for h in induction_heads[:most]]
                composition = composition_scores(
                    run.model, run.memory, layers, modes=["K"], null=False, view=view()
                )
            feeding = partners(
                run.model,
                task.prompts,
                at,
                task=task,
                most=LARGE_PARTNERS if large else None,
                runs=LARGE_RUNS if large else RUNS,
                composition=composition,
                view=view(),
                memory=run.memory,
                progress=prefixed(run.progress, f"composition with {head_name(*at)}"),
            )
        except (InputError, InterventionError) as error:
            notes.append(f"composition was not tested: {error}")
            break
        readers.append(Reader(*at, feeding))
    return readers, notes


def _from_weights(
    model: Any, sample: int | None, view: Callable[[], ModelWeights]
) -> tuple[list[dict[str, Any]], list[str]]:
    try:
        frame = weight_scores(model, sample=sample, view=view())
    except InputError as error:
        return [], [f"no scores from weights: {error}"]
    return [
        {str(key): jsonable(value) for key, value in row.items()}
        for row in frame.to_dict("records")
    ], [] if sample is None else frame.attrs["notes"]


def _unfit(model: Any, data: FeatureData | None) -> str | None:
    """Reason why heads cannot be analyzed; None if they can."""
    cfg = model.cfg
    if int(cfg.n_layers) < 1:
        return "the model has no layers"
    if data is not None:
        others = "run it with --probe and its name: the data are prompts for other probes"
        return None if data.answers is not None else others
    if int(cfg.n_ctx) < SHORTEST + 1 or int(cfg.d_vocab) <= FEWEST_TOKENS:
        return (
            "needs a longer context or a larger vocabulary, for prompts that repeat; or prompts "
            "with answers (--data)"
        )
    return None


def _one(name: str, summary: str) -> Analysis:
    return analysis(
        name,
        summary,
        HeadKindOptions,
        partial(analyze, detectors=(name,)),
        lambda model, data: "part of heads",
        reads_answers=True,
    )


HEADS = analysis(
    "heads",
    "which heads have a known attention pattern, and the effect of knocking it out",
    HeadsOptions,
    analyze,
    _unfit,
    reads_answers=True,
)
INDUCTION = _one(
    "induction", "which heads are induction heads, and with which earlier heads they compose"
)
PREVIOUS_TOKEN = _one("previous-token", "which heads attend to the previous token")
DUPLICATE_TOKEN = _one("duplicate-token", "which heads attend to the same token elsewhere")
K_HOP = _one("k-hop", "which heads attend several induction hops back")
