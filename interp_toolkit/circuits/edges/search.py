"""The search for a circuit: edges that carry a task, and the metric they keep alone.

Steps:
1. Different prompts (duplicates count once) are split into two halves. Edges are selected on one
   and tested on the other; mean ablation values for one half are taken from the other.
2. If the intact model does not perform the task, or ablating all edges has no effect, that is the
   finding, and the circuit is empty.
3. Edges are selected: if there are at most MANY, by ablating each (or only those with the largest
   estimates); else by attribution, with exact ablation of candidates (`screened`).
4. The circuit alone, with all other edges ablated, is tested on the other half (`faithfulness`),
   with further checks (`checks`).

If every edge can be ablated alone:
- The effect of an edge is the change in each prompt's metric. With more than `max_edges` edges,
  effects are estimated by attribution (EAP-IG) and only the largest are measured; the others count
  in the correction for multiple comparisons but are not in the circuit.
- An edge is selected by one rule, `selected_edges`, if it also lies on a path of selected edges
  from the input to the logits.
- Backup edges (redundant heads) have no effect when ablated alone. If the selected edges alone keep
  less than ENOUGH of the metric, others are added with everything else ablated: edges between the
  selected nodes, and nodes with all edges to them, if their gain is significant and at least SHARE
  of the total, until enough is kept or none is left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.circuits.edges import checks, screened
from interp_toolkit.circuits.edges.checks import (
    ROUNDING,
    SHARE,
    Checks,
    Measured,
    Select,
    faithfulness,
    joined,
    measured,
)
from interp_toolkit.circuits.edges.circuit import Circuit, EdgeEffect, Nothing, described
from interp_toolkit.circuits.edges.passes.ablation_value import Kind, kinds_for
from interp_toolkit.circuits.edges.passes.attribution import patched_stream
from interp_toolkit.circuits.edges.passes.edge_ablation import EdgeAblation, prompts_at_once
from interp_toolkit.circuits.edges.passes.patched_pass import PatchedModel
from interp_toolkit.circuits.edges.screened import Screening
from interp_toolkit.circuits.edges.wiring import Edge, Node
from interp_toolkit.circuits.metrics.metrics import AnswerMetric, Metric
from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.circuits.metrics.task import TaskCheck, metric_for
from interp_toolkit.errors import InputError
from interp_toolkit.evidence import ANY_EFFECT, Control, effect_status, untested
from interp_toolkit.formatting import Stages, percent
from interp_toolkit.models.features.samples import equal_inputs, equal_up_to
from interp_toolkit.models.running.memory import parse_memory
from interp_toolkit.models.running.stages import Store, not_stored
from interp_toolkit.options import Effort
from interp_toolkit.stats import COVERAGE, Estimate, estimate

ENOUGH = 0.9  # of the behavior: what kept edges have alone when nothing more is looked for
MOST_ROUNDS = 3  # of adding edges
MOST_TRIED = 256  # of additions in a round


def selected_edges(
    effects: Float[np.ndarray, " edge"],
    p_adjusted: Float[np.ndarray, " edge"],
    total: float,
    level: float,
) -> Bool[np.ndarray, " edge"]:
    """The selection rule: adjusted p at most `level`, and an effect of at least SHARE of the total.

    Holm's adjustment bounds the chance of any edge without an effect by `level`. The threshold
    excludes negligible effects: with enough prompts every edge has one. Every ablation raises the
    KL divergence of every prompt: for that metric p-values are NaN and the threshold decides.
    """
    large: Bool[np.ndarray, " edge"] = np.nan_to_num(np.abs(effects)) >= SHARE * abs(total)
    return large & ~(p_adjusted > level)


def measured_edges(
    trial: EdgeAblation,
    intact: Float[np.ndarray, " row"],
    all_ablated: Float[np.ndarray, " row"],
    level: float,
    max_edges: int,
    progress: Callable[[str], None],
    *,
    test: bool,
    unseen: float = 0.0,
) -> tuple[list[EdgeEffect], Select]:
    """All edges, those with the largest estimates measured, and the rule for other prompts."""
    everything = trial.edges
    chosen, attributions = np.arange(len(everything)), None
    if len(everything) > max_edges:
        progress("attributing to edges")
        attributions = trial.attributions().mean(0)
        chosen = np.sort(np.argsort(-np.abs(attributions), kind="stable")[:max_edges])
    measurement = measured(trial, chosen, intact, progress)
    total = float(intact.mean() - all_ablated.mean())

    def select(rows: Int[np.ndarray, " row"]) -> Bool[np.ndarray, " edge"]:
        adjusted = np.full(len(everything), np.nan)
        of_rows = measurement.at(rows)
        if test:
            adjusted = of_rows.p_adjusted(len(everything), attributions)
        effects = np.full(len(everything), np.nan)
        effects[measurement.edges] = of_rows.losses.mean(0)
        return selected_edges(effects, adjusted, total, level)

    wiring = trial.engine.wiring
    on_paths = set(wiring.masked(wiring.on_paths(select(np.arange(len(intact))))))
    edges = described(everything, attributions, measurement, on_paths, test=test, unseen=unseen)
    return edges, select


def completed(
    trial: EdgeAblation,
    edges: list[EdgeEffect],
    intact: Float[np.ndarray, " row"],
    all_ablated: Float[np.ndarray, " row"],
    level: float,
    max_edges: int,
    progress: Callable[[str], None],
) -> list[EdgeEffect]:
    """Add backup edges: edges for whose ablation others compensate (see the module)."""
    everything = trial.edges
    total = float(intact.mean() - all_ablated.mean())
    included = {e.edge for e in edges if e.in_circuit or _by_rule(e, total, level)}
    added: dict[Edge, float] = {}
    for number in range(MOST_ROUNDS):
        alone = trial.alone([included])[:, 0]
        if (alone - all_ablated).mean() >= ENOUGH * total:
            break
        sets = _additions(everything, included)[: min(max_edges, MOST_TRIED)]
        if not sets:
            break
        progress(f"searching for backup edges, round {number + 1}")
        circuits = [included | more for more in sets]
        gains = trial.alone(circuits, progress, near=included) - alone[:, None]
        adjusted = Measured(np.arange(len(sets)), gains).p_adjusted(len(sets))
        chosen = selected_edges(gains.mean(0), adjusted, total, level / (1 + MOST_ROUNDS))
        chosen &= gains.mean(0) > 0
        if not chosen.any():
            break
        for more, gain, keep in zip(sets, gains.mean(0).tolist(), chosen, strict=True):
            if keep:
                added |= {e: gain for e in more if e not in included and e not in added}
        included |= added.keys()
    included -= _idle(trial, included, list(added), progress)
    on_path = set(trial.engine.wiring.connected(included))
    return [
        dataclasses.replace(e, in_circuit=True, added=added.get(e.edge)) if e.edge in on_path else e
        for e in edges
    ]


def _idle(
    trial: EdgeAblation,
    included: Collection[Edge],
    added: Sequence[Edge],
    progress: Callable[[str], None],
) -> set[Edge]:
    """Added edges, as of a node added whole, that change no prompt of the circuit alone."""
    if len(added) < 2:
        return set()
    less = [set(included) - {edge} for edge in added]
    values = trial.alone([included, *less], progress, near=included)
    change = np.abs(values[:, 1:] - values[:, :1]).max(0)
    least = ROUNDING * float(change.max())
    idle = {edge for edge, largest in zip(added, change.tolist(), strict=True) if largest <= least}
    together = trial.alone([set(included) - idle])[:, 0]  # they may stand in for one another
    return idle if np.abs(together - values[:, 0]).max() <= least else set()


def _by_rule(effect: EdgeEffect, total: float, level: float) -> bool:
    """Whether an edge's own ablation is enough to keep it, on a path of such edges or not."""
    if effect.effect is None:
        return False
    p = np.array([np.nan if effect.p_value is None else effect.p_value])
    return bool(selected_edges(np.array([effect.effect]), p, total, level)[0])


def _additions(everything: Sequence[Edge], included: Collection[Edge]) -> list[set[Edge]]:
    """Candidate additions: single edges between included nodes, and nodes with all their edges."""
    nodes = {n for e in included for n in (e.source, e.target)} | {Node("input"), Node("logits")}
    single = [{e} for e in everything if e not in included and {e.source, e.target} <= nodes]
    by_node: dict[Node, set[Edge]] = {}
    for edge in everything:
        new = {edge.source, edge.target} - nodes
        if len(new) == 1:
            by_node.setdefault(new.pop(), set()).add(edge)
    return [*by_node.values(), *single]


FEWEST_ROWS = 8  # four in each half: with fewer no p-value survives the correction
MANY = 20_000  # edges of a model that are no longer all looked at one by one


@dataclass(frozen=True)
class Budget:
    """The extent of a search.

    Attributes:
        ablated: number of edges ablated one by one, largest estimates first, if not all can be;
            `sample`: number of others that are sampled.
        nodes: number of the circuit's nodes ablated one by one, largest estimates first.
        tested: number of edges removed from the circuit, and of others added, one by one.
        rivals: number of other circuits of the same size; fewer than 19 cannot be significant.
        values: whether the circuit is run with other ablation values; `chosen_with`: whether it is
            also chosen with them, and the residual stream is patched.
    """

    ablated: int
    sample: int
    nodes: int
    tested: int
    rivals: int
    values: bool
    chosen_with: bool


QUICK = Budget(ablated=0, sample=0, nodes=0, tested=0, rivals=0, values=False, chosen_with=False)
THOROUGH = Budget(
    ablated=128,
    sample=32,
    nodes=48,
    tested=checks.TESTED,
    rivals=checks.RIVALS,
    values=True,
    chosen_with=True,
)
STANDARD = replace(THOROUGH, ablated=32, sample=24, nodes=16, tested=6, chosen_with=False)
#: effort -> budget for a model of more than MANY edges; a smaller one has all but for "quick"
BUDGETS: Mapping[Effort, Budget] = {
    "quick": QUICK,
    "standard": STANDARD,
    "thorough": THOROUGH,
}
STEPS = 5  # of the integral in screening, as EAP-IG's authors take

Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class _Choice:
    """The chosen edges.

    Attributes:
        edges: every edge, with its measurements.
        select: the rule, for other prompts.
        chosen: the edges that it chooses on all prompts; others may have been added.
        screening: the choice by attribution, if there was one.
        jaccard_by_kind: Jaccard index with the choice under another ablation value.
    """

    edges: list[EdgeEffect]
    select: Select
    chosen: Collection[Edge]
    screening: Screening | None = None
    jaccard_by_kind: Mapping[Kind, float] | None = None


def find_circuit(
    model: Any,
    prompts: Prompts,
    *,
    seed: int = 0,
    level: float = 0.05,
    max_edges: int = 512,
    memory: int | str | None = None,
    metric: Any = None,
    effort: Effort = "standard",
    progress: Progress = lambda step: None,
    store: Store = not_stored,
    early: Callable[[Circuit], AbstractContextManager[None]] = lambda circuit: nullcontext(),
) -> Circuit:
    """The edges that carry a task on these prompts; see the module.

    Args:
        model: any TransformerLens model that `PatchedModel` takes.
        prompts: at least FEWEST_ROWS prompts.
        seed: random seed of bootstraps and sampling.
        level: significance level.
        max_edges: the most edges that are ablated, one forward pass from the edge on each.
        memory: bound on memory in addition to the weights, such as "4GiB".
        metric: name or function, as in `metric_for`; None: the one that fits the prompts.
        effort: quick: edges by attribution alone, and no other circuits to compare with; standard:
            with edges ablated one by one, and all checks, of which thorough has more for large
            models.
        progress: called with a description of each step.
        store: keeps what was measured; see `models.running.stages`.
        early: called with the edges' estimates alone, where edges are chosen by these; the rest of
            the search runs inside the context that it returns.

    Raises:
        InputError: too few rows, options out of range, or as `PatchedModel`.
    """
    prompts = different_prompts(model, prompts)
    groups = _equal_prompts(model, prompts, prompts.tokens)
    if groups.max() + 1 < FEWEST_ROWS:
        raise InputError(
            f"too few different prompts ({groups.max() + 1}) to select edges on one half and "
            f"test them on the other; give at least {FEWEST_ROWS}"
        )
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, got {level}")
    if max_edges < 1:
        raise InputError(f"max_edges must be at least 1, got {max_edges}")
    engine = PatchedModel(model)
    limit = parse_memory(memory)
    prompts_at_once(engine, prompts.n_pos, limit)  # raises before anything is computed
    stages = Stages(progress, stage_costs(engine, effort))
    progress = stages.begin("task")
    progress("checking task performance")
    judged_by, task_check = metric_for(model, prompts, memory, metric=metric)
    progress("running the intact model")
    halves = _halves(groups, seed, shuffle=prompts.answers is not None)
    choosing, judging = (
        EdgeAblation(engine, prompts, half, other, judged_by, limit, store=store)
        for half, other in (halves, halves[::-1])
    )
    intact, all_ablated = choosing.intact(), choosing.alone([()])[:, 0]
    circuit = Circuit(
        wiring=engine.wiring,
        metric=judged_by,
        ablation_kind=choosing.ablation_value.kind,
        edges=[EdgeEffect(e, None, None, None, in_circuit=False) for e in engine.wiring.edges],
        node_effects={},
        held_out=None,
        chosen_on=None,
        intact=float(intact.mean()),
        all_ablated=float(all_ablated.mean()),
        nothing=_nothing(task_check, intact - all_ablated, judged_by),
        task_check=task_check,
    )
    if circuit.nothing is not None:
        return circuit

    def tested(choice: _Choice, budget: Budget) -> Circuit:
        trials, chosen_on = (choosing, judging), equal_inputs(groups[halves[0].numpy(), None])
        return _tested(circuit, trials, choice, prompts, chosen_on, budget, seed, stages)

    values = intact, all_ablated
    if effort != "quick" and len(engine.wiring.edges) <= MANY:
        one_by_one = stages.begin("edges one by one")
        return tested(
            _exhaustive(choosing, values, level, max_edges, judged_by, one_by_one), THOROUGH
        )
    budget = BUDGETS[effort]
    # before passes are held for what follows
    scores = choosing.attributions(STEPS, stages.begin("attribution"))
    nothing = Measured(np.empty(0, dtype=int), np.empty((len(intact), 0)))
    estimates = described(choosing.edges, scores.mean(0), nothing, (), test=False)
    with early(replace(circuit, edges=estimates)):
        unseen = judged_by.unseen
        choice = _screened(
            choosing, scores, prompts, values, budget, max_edges, seed, stages, unseen=unseen
        )
        return tested(choice, budget)


def stage_costs(engine: PatchedModel, effort: Effort) -> dict[str, float]:
    """The stages of a search, with what each costs at most, in passes over half the prompts.

    Measured on a language model: a circuit alone costs ALONE passes, an ablated edge or node less.
    """
    n_edges, n_nodes = len(engine.wiring.edges), len(engine.wiring.writers) - 1
    few = effort != "quick" and n_edges <= MANY
    budget = THOROUGH if few else BUDGETS[effort]
    costs = {"task": 4.0}
    if few:
        costs["edges one by one"] = EDGE * n_edges
    else:
        costs["attribution"] = GRADED * STEPS
        costs["circuit size"] = ALONE * screened.trials_at_most(n_nodes, n_edges)
        costs["edges one by one"] = EDGE * (budget.ablated + budget.sample)
    costs["nodes"] = NODE * budget.nodes
    costs["held-out prompts"] = ALONE * (2 + 2 * budget.tested)
    costs["other circuits"] = ALONE * budget.rivals
    costs["other ablation values"] = 2 * ALONE * (bool(budget.values) + budget.chosen_with)
    return {name: cost for name, cost in costs.items() if cost}


ALONE, EDGE, NODE, GRADED = 1.2, 0.3, 0.5, 3.0  # passes


def _tested(
    circuit: Circuit,
    trials: tuple[EdgeAblation, EdgeAblation],
    choice: _Choice,
    prompts: Prompts,
    chosen_on: Int[np.ndarray, " row"],
    budget: Budget,
    seed: int,
    stages: Stages,
) -> Circuit:
    """The circuit with what the chosen edges do: by themselves, and on the other prompts.

    `trials`: on the prompts that edges were chosen on, whose groups are `chosen_on`, and on others.
    """
    choosing, judging = trials
    judged_by, intact = circuit.metric, choosing.intact()
    circuit = replace(circuit, edges=choice.edges, screening=choice.screening, chosen=choice.chosen)
    edges = [e.edge for e in choice.edges if e.in_circuit]
    progress = stages.begin("nodes" if budget.nodes else "held-out prompts")
    progress("ablating the circuit's nodes" if budget.nodes else "running the circuit alone")
    circuit = replace(
        circuit,
        node_effects=_node_effects(
            choosing, choice.edges, intact, budget.nodes, judged_by.unseen, progress
        ),
        chosen_on=faithfulness(choosing, edges),
    )
    choosing.release()
    circuit = replace(circuit, held_out=faithfulness(judging, edges))
    if edges:
        checked = _checks(judging, edges, choice, prompts, chosen_on, budget, seed, stages)
        circuit = replace(circuit, checks=checked)
    judging.release()
    if budget.chosen_with and isinstance(judged_by, AnswerMetric):
        progress = stages.begin("other ablation values")
        patching = patched_stream(choosing.engine, prompts, judged_by, choosing.memory, progress)
        circuit = replace(circuit, patching=patching)
    return circuit


def different_prompts(model: Any, prompts: Prompts) -> Prompts:
    """The prompts without duplicates, which are equal up to their last answer.

    Later tokens have no influence in a causal model; they count if there are no answers.
    """
    parts = [prompts.answers, prompts.answer_positions, prompts.wrong]
    groups = [_equal_prompts(model, prompts, prompts.tokens)]
    if prompts.corrupted is not None:
        groups.append(_equal_prompts(model, prompts, prompts.corrupted))
    groups += [equal_inputs(part.numpy()) for part in parts if part is not None]
    first = np.unique(np.column_stack(groups), axis=0, return_index=True)[1]
    return prompts if len(first) == len(prompts) else prompts.at(np.sort(first))


def _equal_prompts(
    model: Any, prompts: Prompts, tokens: Int[Tensor, "row pos"]
) -> Int[np.ndarray, " row"]:
    """Groups of prompts that are equal up to the last position that the metric reads."""
    positions = prompts.answer_positions
    last = np.full(len(prompts), -1) if positions is None else positions.numpy().max(axis=1)
    causal = getattr(model.cfg, "attention_dir", "causal") != "bidirectional"
    return equal_up_to(list(tokens.numpy()), last, causal=causal)


def _halves(
    groups: Int[np.ndarray, " row"], seed: int, *, shuffle: bool
) -> tuple[Int[Tensor, " one"], Int[Tensor, " other"]]:
    """Split the prompts into halves, groups whole; shuffled, since files are often sorted."""
    order = torch.arange(len(groups))
    if shuffle:
        order = torch.randperm(len(groups), generator=torch.Generator().manual_seed(seed))
    members: dict[int, list[int]] = {}
    for row in order.tolist():
        members.setdefault(int(groups[row]), []).append(row)
    halves: tuple[list[int], list[int]] = ([], [])
    for rows in members.values():
        min(halves, key=len).extend(rows)
    return torch.tensor(halves[0]), torch.tensor(halves[1])


def _nothing(
    task_check: TaskCheck | None, lost: Float[np.ndarray, " row"], judged_by: Metric
) -> Nothing | None:
    """Why there is no circuit to search for on these prompts, or None."""
    if task_check is not None and not task_check.yes:
        why = f"{task_check.failure}: {task_check.summary}"
        return Nothing(untested(why)[0], why)
    cost = estimate(lost)
    if cost.low > 0:
        return None
    interval = f"{cost.mean:.3g}, {percent(COVERAGE)} CI [{cost.low:.3g}, {cost.high:.3g}]"
    text = f"ablating all edges does not significantly lower the metric ({interval})"
    if not lost.any():
        text = f"the metric ({judged_by.definition}) is the same with all edges ablated"
        text += ", on every prompt"
    ablated = Control("all edges ablated", "passed")
    status, _ = effect_status(cost.low, cost.high, ANY_EFFECT, [ablated], unconfirmed=text)
    return Nothing(status, text)


def _exhaustive(
    trial: EdgeAblation,
    values: tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]],
    level: float,
    max_edges: int,
    judged_by: Metric,
    progress: Progress,
) -> _Choice:
    """Edges chosen by ablating each, and the added backup edges."""
    test = judged_by.measures_task
    edges, select = measured_edges(
        trial, *values, level, max_edges, progress, test=test, unseen=judged_by.unseen
    )
    chosen = {e.edge for e in edges if e.in_circuit}
    edges = completed(trial, edges, *values, level, max_edges, progress)
    wiring = trial.engine.wiring
    return _Choice(edges, lambda rows: wiring.on_paths(select(rows)), chosen)


def _screened(
    trial: EdgeAblation,
    scores: Float[np.ndarray, "row edge"],
    prompts: Prompts,
    values: tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]],
    budget: Budget,
    max_edges: int,
    seed: int,
    stages: Stages,
    *,
    unseen: float,
) -> _Choice:
    """Edges chosen by attribution; see `screened`."""
    progress = stages.begin("circuit size")
    intact, all_ablated = values
    total = float((intact - all_ablated).mean())
    mean = scores.mean(0)
    order = screened.ranked(mean)
    selection, *sizes = screened.selected(trial, scores, values, progress)
    most = min(max_edges, budget.ablated)
    progress = stages.begin("edges one by one" if budget.ablated else "circuit size")
    in_order = screened.until_none_matters(trial, order, intact, total, most, progress)
    rest = order[len(in_order[0].edges) :]
    sampled = np.random.default_rng([seed, 4]).permutation(rest)[: budget.sample]
    sample = measured(trial, sampled, intact, progress)
    trial.release()
    chosen = selection(mean)
    selected = set(trial.engine.wiring.masked(chosen))
    measurement = joined(in_order[0], sample)
    edges = described(trial.edges, mean, measurement, selected, test=False, unseen=unseen)
    alike: dict[Kind, float] = {}
    for kind in kinds_for(prompts)[1:] if budget.chosen_with else ():
        progress(f"attribution with ablated edges at {kind}")
        again = trial.with_ablation_value(kind).attributions(1)
        alike[kind] = checks.jaccard(chosen, selection(again.mean(0)))
    screening = screened.screening(scores, (sizes[0], sizes[1]), in_order, sample, total)

    def select(rows: Int[np.ndarray, " row"]) -> Bool[np.ndarray, " edge"]:
        share = np.bincount(rows, minlength=len(scores)) / len(rows)
        return selection(share.astype(scores.dtype) @ scores)

    return _Choice(edges, select, selected, screening, alike)


def _node_effects(
    trial: EdgeAblation,
    edges: Sequence[EdgeEffect],
    intact: Float[np.ndarray, " row"],
    most: int,
    unseen: float,
    progress: Progress,
) -> dict[Node, Estimate]:
    """Effects of ablating the whole output of a node, for at most this many of the circuit's."""
    weight: dict[Node, float] = {}
    for e in edges:
        if e.in_circuit:
            weight[e.edge.source] = weight.get(e.edge.source, 0.0) + abs(e.weight)
    largest = sorted(weight, key=lambda node: -weight[node])[:most]
    nodes = sorted(largest, key=trial.engine.wiring.index.__getitem__)
    if not nodes:
        return {}
    without = trial.without(nodes, progress)
    losses = intact[:, None] - without
    effects = (estimate(loss, unseen=unseen) for loss in losses.T)
    return dict(zip(nodes, effects, strict=True))


def _checks(
    trial: EdgeAblation,
    edges: list[Edge],
    choice: _Choice,
    prompts: Prompts,
    groups: Int[np.ndarray, " row"],
    budget: Budget,
    seed: int,
    stages: Stages,
) -> Checks:
    """The checks of the circuit, on held-out prompts."""
    progress = stages.begin("held-out prompts")
    progress("running the model without the circuit")
    rest = checks.rest_of(trial, edges)
    tested, needed, idle = checks.minimality(trial, edges, seed, progress, budget.tested)
    again, alike = checks.stability(choice.select, groups, choice.chosen, trial.engine.wiring, seed)
    progress = stages.begin("other circuits" if budget.rivals else "held-out prompts")
    progress("comparing with other circuits of the same size")
    exchanged, random = checks.rivals(trial, edges, seed, progress, budget.rivals)
    inside = set(edges)
    others = [e for e in choice.edges if e.edge not in inside]
    others.sort(key=lambda e: -abs(e.weight))
    runner_up = trial.engine.wiring.connected([e.edge for e in others[: len(edges)]])
    best_other = faithfulness(trial, runner_up) if runner_up else None
    by_kind = {}
    trial.release()
    for kind in kinds_for(prompts)[1:] if budget.values else ():
        progress = stages.begin("other ablation values")
        progress(f"with ablation value {kind}")
        by_kind[kind] = faithfulness(trial.with_ablation_value(kind), edges)
    return Checks(
        rest=rest,
        tested=tested,
        needed=needed,
        idle_change=idle,
        chosen_again=again,
        jaccard=alike,
        by_kind=by_kind,
        jaccard_by_kind=choice.jaccard_by_kind or {},
        exchanged=exchanged,
        random=random,
        runner_up=best_other,
    )
