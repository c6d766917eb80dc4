"""`--probe circuit`: find the circuit and test on held-out prompts what it does alone.

Ablating an edge shows that the behavior needs it. That the edges carry the behavior is shown by
what they keep when all others are ablated, on held-out prompts. A circuit is *detected* if the
model performs the task, the interval of faithfulness lies within EQUAL of 1 (equivalence), the
circuit is not most of the model, and other circuits of the same size keep less. It is
*uninformative* if those keep as much, and *partial* if the interval is above 0. Without a known
task (prompts without answers or repeats, a custom metric) a circuit is *described*. If the model
does not perform the task, it is *not tested*. Everything else is *undecided*: ablating all edges
has no significant effect, too few other circuits were compared, or no edge matters alone while all
together do.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import networkx as nx
from pydantic import Field

from interp_toolkit.circuits.edges.checks import (
    EQUAL,
    MOST,
    ROUNDING,
    SHARE,
    STABLE,
    Faithfulness,
    equivalent,
)
from interp_toolkit.circuits.edges.circuit import Circuit, EdgeEffect, Nothing
from interp_toolkit.circuits.edges.figures import circuit_figure, head_map, size_figure
from interp_toolkit.circuits.edges.graph import (
    FORMATS,
    LONGEST,
    as_graph,
    circuit_prompts,
    composition_of,
    composition_of_edge,
    node_link,
    write_graph,
)
from interp_toolkit.circuits.edges.passes.ablation_value import WORDS
from interp_toolkit.circuits.edges.passes.attribution import patching_figure
from interp_toolkit.circuits.edges.passes.patched_pass import PatchedModel
from interp_toolkit.circuits.edges.reduced import check_reducible, circuit_model
from interp_toolkit.circuits.edges.screened import EDGES_KEEP, NODES_KEEP, Screening
from interp_toolkit.circuits.edges.search import different_prompts, find_circuit
from interp_toolkit.circuits.edges.wiring import Node
from interp_toolkit.circuits.metrics.metrics import LogProbability, RepeatedTokens
from interp_toolkit.circuits.metrics.prompts import (
    on_prompts,
    prompts_from_data,
    repeated_prompts,
    unseen_note,
)
from interp_toolkit.circuits.metrics.task_check import assumption_note
from interp_toolkit.circuits.weights.composition import CompositionScores
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.evidence import Verdict, equivalence_status, left_open, only_described
from interp_toolkit.finding import Finding, Run, analysis, column, records, table_of
from interp_toolkit.formatting import capital, counted, listed, p_cell, percent, percent_ci
from interp_toolkit.models.about.info import token_words
from interp_toolkit.models.about.record import digest_of_tokens, record_of
from interp_toolkit.models.loading.formats.checkpoint import check_model_file, save
from interp_toolkit.models.loading.loader import load
from interp_toolkit.models.transformer.circuit import CircuitTransformer
from interp_toolkit.options import Flag, Options
from interp_toolkit.results import Evidence, Provenance, Table
from interp_toolkit.stats import COVERAGE, Share

MOST_HEADS = 64  # of a model that is analyzed without being named: a few hundred passes
SATURATED = 0.05  # nats per answer: a smaller loss is that of a model certain of its answers
LISTED = 60  # edges in the table
NAMED = 6  # edges that a sentence names
NODES_NAMED = 4  # nodes that the headline names, and heads of a large circuit


class CircuitOptions(Options):
    """Options of `--probe circuit`."""

    level: float = Field(0.05, gt=0, lt=1, description="Significance level for an edge.")
    max_edges: int = Field(
        512, ge=1, description="Edges measured at most; the others are estimated."
    )
    metric: str | None = Field(
        None,
        description="Metric: logit-difference, log-probability or kl; default: chosen by the "
        "prompts' columns.",
    )
    keep_circuit: Annotated[str | None, Flag(metavar="FILE")] = Field(
        None,
        description="Write the circuit as a model, to a .safetensors or .pt file that load reads.",
    )


@dataclass(frozen=True)
class CircuitEvidence(Evidence):
    """Faithfulness of the circuit on held-out prompts, and the circuits it is compared with.

    Attributes:
        measured: the metric and its definition; `unit`: its unit.
        intact: its mean in the whole model; `every_edge_ablated`: with every edge ablated.
        faithfulness: the fraction that the circuit keeps alone, on held-out prompts, and its
            interval; `faithfulness_where_chosen`: on the prompts that edges were chosen on.
        rule: the criterion for an edge to be kept.
        equivalent: whether the interval of the faithfulness lies within `equivalent_within` of 1.
        rest_keeps: the fraction that the model keeps without the circuit's edges; its interval.
        edges_taken_out: number of edges removed from the circuit one by one; `edges_needed`: the
            number whose removal changes more than adding nearly any edge outside the circuit.
        jaccard_of_bootstraps: Jaccard index of the chosen edges with those chosen on bootstraps.
        edges_chosen: number of chosen edges, without those added because others compensate for
            them; `edges_chosen_again`: the number that four of five bootstraps choose.
        rivals: number of other circuits of the same size; `rivals_as_good`: the number that keep
            as much; `best_rival_keeps`: the largest fraction that one of them keeps.
        runner_up_keeps: the fraction that as many of the best edges outside the circuit keep.
        keeps_with: the fraction that the circuit keeps with another ablation value.
        jaccard_with: Jaccard index with the circuit chosen under that ablation value.
        screening: see `edges.screened.Screening`; None where every edge could be ablated.
        causal: how edges were chosen and the circuit was tested.
        instead: what to measure instead, where no edge is found because the metric is saturated.
    """

    measured: str = column("metric")
    unit: str = column("unit")
    intact: float = column("metric of the intact model")
    every_edge_ablated: float = column("metric with all edges ablated")
    edges: int = column("edges of the model")
    ablation_value: str = column("ablation value")
    edges_ablated_one_by_one: int | None = column("edges ablated one by one", default=None)
    edges_estimated_only: int | None = column("edges estimated only", default=None)
    faithfulness: float | None = column("faithfulness on held-out prompts", default=None)
    faithfulness_low: float | None = column("faithfulness, 95 % CI from", default=None)
    faithfulness_high: float | None = column("faithfulness, 95 % CI to", default=None)
    faithfulness_where_chosen: float | None = column(
        "faithfulness on the selection's prompts", default=None
    )
    rule: str | None = column("selection rule", default=None)
    equivalent: bool | None = column("equivalent", default=None)
    equivalent_within: float | None = column("equivalent within", default=None)
    rest_keeps: float | None = column("kept by the other edges", default=None)
    rest_keeps_low: float | None = column("kept by the others, 95 % CI from", default=None)
    rest_keeps_high: float | None = column("kept by the others, 95 % CI to", default=None)
    edges_taken_out: int | None = column("edges removed one by one", default=None)
    edges_needed: int | None = column("removals that matter", default=None)
    jaccard_of_bootstraps: float | None = column("mean Jaccard index, bootstraps", default=None)
    edges_chosen: int | None = column("selected edges", default=None)
    edges_chosen_again: int | None = column("selected in 80 % of bootstraps", default=None)
    rivals: int | None = column("other circuits", default=None)
    rivals_as_good: int | None = column("other circuits as good", default=None)
    best_rival_keeps: float | None = column("kept by the best of these", default=None)
    runner_up_keeps: float | None = column("kept by the best edges outside", default=None)
    keeps_with: Mapping[str, float] | None = column(
        "faithfulness with other ablation values", default=None
    )
    jaccard_with: Mapping[str, float] | None = column(
        "Jaccard index with their circuits", default=None
    )
    screening: Mapping[str, Any] | None = column("screening", default=None)
    instead: str | None = column("the metric is saturated; instead", default=None)
    causal: str | None = column("causal test", default=None)


@dataclass(frozen=True)
class EdgeRow:
    """An edge of the circuit, such as `L0H1->L1H0<k>`.

    Attributes:
        effect: mean loss of the metric when it alone is ablated, with its interval.
        p_value: p-value of the effect, Holm-adjusted over all edges of the model.
        estimate: estimate of the effect, by attribution; None where every edge was ablated.
        chosen_again: the fraction of bootstraps of the prompts that choose it again.
        composition: composition of the two heads' weights by this channel; None where there are not
            two heads.
        composition_p: the chance that permuted coordinates compose as much, Holm-adjusted.
        added: gain when it, or its node with it, was added to the circuit, all else ablated,
            because others compensate for its ablation; None where its own effect selected it.
    """

    edge: str = column("edge")
    effect: float | None = column("effect")
    low: float | None = column("low")
    high: float | None = column("high")
    p_value: float | None = column("p", format=p_cell)
    estimate: float | None = column("estimate")
    chosen_again: float | None = column("chosen again")
    composition: float | None = column("composition")
    composition_p: float | None = column("composition p", format=p_cell)
    added: float | None = column()


@dataclass(frozen=True, kw_only=True)
class CircuitFinding(Finding):
    """The circuit of a task.

    Attributes:
        edges: edges of the circuit, by absolute effect, largest first; those only estimated last.
        nodes: name -> effect of each node of the circuit, without the logits; in a large circuit
            only of those with the largest estimates.
        node_intervals: name -> the ends of its effect's interval.
        graph: the circuit as node-link data.
        network: the circuit as `composition_graph` returns it, for `write_graph`.
    """

    evidence: CircuitEvidence
    edges: Sequence[EdgeRow] = records(EdgeRow, "Edges")
    nodes: Mapping[str, float]
    node_intervals: Mapping[str, tuple[float, float]]
    graph: Mapping[str, Any] = field(repr=False)
    network: nx.DiGraph = field(repr=False)

    omit_from_json = frozenset({"network"})

    def tables(self) -> list[Table]:
        """Edges, nodes and checks of the circuit; no table if there is no circuit."""
        if not self.edges:
            return []
        unit, more = self.evidence.unit, len(self.edges) - LISTED
        edges = table_of(EdgeRow, "Edges", self.edges[:LISTED], sparse=True)
        caption = [
            f"Effect: loss of the metric ({unit}) when only this edge is ablated, with its "
            "interval. p: Holm-adjusted over all edges."
            if "effect" in edges.columns
            else "",
            "Estimate: by attribution." if "estimate" in edges.columns else "",
            "Chosen again: the fraction of bootstraps of the prompts that select the edge; "
            "below 80 % it is not stable."
            if "chosen again" in edges.columns
            else "",
            "Composition: of the two heads' weights, 0 to 1; its p: with coordinates in random "
            "order."
            if "composition" in edges.columns
            else "",
            f"{more:,} more are in the JSON and the graph." if more > 0 else "",
        ]
        nodes = Table(
            "Nodes",
            ["node", "effect", "low", "high"],
            [
                [name, self.nodes[name], *self.node_intervals[name]]
                for name in sorted(self.nodes, key=lambda name: -abs(self.nodes[name]))
            ],
            f"Effect: loss of the metric ({unit}) when the node's whole output is ablated, with "
            "its interval.",
        )
        edges = dataclasses.replace(edges, caption=" ".join(filter(None, caption)))
        return [table for table in (edges, nodes, check_table(self.evidence)) if table.rows]

    def write_graph(self, path: Path) -> None:
        """Write the graph; `path` ends in one of `graph.FORMATS`, such as .graphml or .eap.json."""
        write_graph(self.network, path)


def check_table(e: CircuitEvidence) -> Table:
    """The table of robustness checks; see `edges.checks`."""

    def fraction(part: int | None, whole: int | None) -> float | None:
        return part / whole if part is not None and whole else None

    rows: list[list[Any]] = [
        ["kept by the circuit", e.faithfulness],
        ["  95 % CI, from", e.faithfulness_low],
        ["  to", e.faithfulness_high],
        ["kept by the edges outside it", e.rest_keeps],
        *[[f"kept by it, ablation value: {k}", v] for k, v in (e.keeps_with or {}).items()],
        ["kept by the best other circuit of its size", e.best_rival_keeps],
        ["kept by as many of the best edges outside", e.runner_up_keeps],
        ["edges needed, of those taken out", fraction(e.edges_needed, e.edges_taken_out)],
        ["edges chosen again", fraction(e.edges_chosen_again, e.edges_chosen)],
        ["Jaccard with bootstraps' circuits", e.jaccard_of_bootstraps],
        *[[f"Jaccard, ablation value: {kind}", v] for kind, v in (e.jaccard_with or {}).items()],
    ]
    return Table(
        "Checks of the circuit",
        ["check", "fraction"],
        [row for row in rows if row[1] is not None],
        "Fractions of the effect of ablating all edges, on held-out prompts; fractions of "
        "edges; and the overlap of selections (Jaccard), on the prompts used for selection.",
    )


def analyze(run: Run[CircuitOptions]) -> CircuitFinding:
    """Find and test the circuit; see `composition_graph`.

    Without data the prompts are repeated random tokens. A user's prompts need one length.

    Raises:
        InputError: as `composition_graph`; prompts of different lengths.
    """
    model, data, options = run.model, run.data, run.options
    if options.keep_circuit is not None:  # before the work
        check_reducible(model)
        replaced = _replaced(options.keep_circuit, record_of(model).path)
    user_prompts = None if data is None else prompts_from_data(data, model)
    prompts = circuit_prompts(model, user_prompts, run.seed)
    n_user_prompts, prompts = len(prompts), different_prompts(model, prompts)
    sha256 = digest_of_tokens(prompts.tokens) if data is None else data.digest()
    about = run.provenance(source=prompts.source, rows=n_user_prompts, sha256=sha256)
    recorded = {name: v for name, v in about.settings.items() if name != "keep_circuit"}
    about = dataclasses.replace(
        about, settings={**recorded, "share": SHARE, "effort": options.effort}
    )
    circuit = find_circuit(
        model,
        prompts,
        seed=run.seed,
        level=options.level,
        max_edges=options.max_edges,
        memory=run.memory,
        metric=options.metric,
        effort=options.effort,
        progress=run.progress,
        store=run.store,
        early=lambda estimates: run.early(first_stage(estimates, about)),
    )
    composition = composition_of(model, circuit, run.memory)
    graph = as_graph(circuit, prompts, composition, options.level)
    notes = [] if data is None else [assumption_note(model, data)]
    notes += [
        f"the heads of layer {layer} are one node, Mixer{layer}: {reason}"
        for layer, reason in circuit.wiring.whole.items()
    ]
    if len(prompts) < n_user_prompts:
        notes.append(f"{n_user_prompts - len(prompts)} prompts are duplicates and are not counted")
    if options.keep_circuit is not None and circuit.included:
        chosen = [effect.edge for effect in circuit.included]
        reduced = circuit_model(model, prompts, chosen, memory=run.memory)
        save(reduced, options.keep_circuit)
        instead = ", in place of the circuit that was there" if replaced else ""
        name = Path(options.keep_circuit).name
        notes.append(f"the circuit is kept in {name}, as a model{instead}")
    elif options.keep_circuit is not None:
        notes.append("no circuit is kept, as none was chosen")
    if circuit.held_out is not None:
        notes.append(unseen_note(circuit.held_out.n_rows))
    figures = []
    if circuit.included:
        figures.append(circuit_figure(graph))
        if circuit.patching is not None:
            figures.append(patching_figure(circuit.patching, token_words(model)))
        if circuit.screening is not None:
            figures += [head_map(circuit), size_figure(circuit.screening)]
    return CircuitFinding(
        headline=headline(circuit),
        findings=on_prompts(
            sentences(circuit), prompts.source, len(prompts), synthetic=data is None
        ),
        evidence=evidence_of(circuit),
        provenance=about,
        edges=[edge_row(effect, composition, circuit) for effect in circuit.included],
        nodes={node.name: effect.mean for node, effect in circuit.node_effects.items()},
        node_intervals={n.name: (e.low, e.high) for n, e in circuit.node_effects.items()},
        graph=node_link(graph),
        network=graph,
        notes=[note for note in notes if note is not None],
        plots=figures,
    )


FIRST_STAGE = "no edge was ablated yet (first stage: estimates by attribution alone)"


def first_stage(circuit: Circuit, about: Provenance) -> CircuitFinding:
    """The estimates of all edges, before any is ablated."""
    by_node: dict[Node, float] = {}
    for e in circuit.edges:
        by_node[e.edge.source] = by_node.get(e.edge.source, 0.0) + e.weight
    nodes = sorted(by_node, key=lambda node: -abs(by_node[node]))
    heads = [node.name for node in nodes if node.kind == "head"]
    largest = sorted(circuit.edges, key=lambda e: -abs(e.weight))[:LISTED]
    whole = circuit.intact - circuit.all_ablated
    named = ", ".join(f"{n.name} {by_node[n]:.2g}" for n in nodes[: 2 * NODES_NAMED])
    status, reason = left_open(FIRST_STAGE)
    nothing = dataclasses.replace(circuit, nothing=Nothing(status, reason or ""))
    return CircuitFinding(
        headline=f"Largest estimates by attribution: {listed(heads, NODES_NAMED)}; not ablated.",
        findings=[
            f"Estimated losses of {circuit.metric.name} when a whole node is ablated, largest "
            f"first: {named}; ablating all edges costs {whole:.2g} {circuit.metric.unit}.",
            f"Largest edges: {listed([e.edge.name for e in largest], NAMED)}.",
        ],
        evidence=evidence_of(nothing),
        provenance=about,
        edges=[edge_row(effect, None, circuit) for effect in largest],
        nodes={},
        node_intervals={},
        graph={},
        network=nx.DiGraph(),
        notes=[FIRST_STAGE],
        plots=[],
    )


def edge_row(
    effect: EdgeEffect, composition: CompositionScores | None, circuit: Circuit
) -> EdgeRow:
    """The record of an edge of the circuit."""
    score, p = composition_of_edge(effect, composition) or (None, None)
    checks = circuit.checks
    return EdgeRow(
        edge=effect.edge.name,
        effect=effect.effect,
        low=effect.low,
        high=effect.high,
        p_value=effect.p_value,
        estimate=effect.attribution,
        chosen_again=None if checks is None else checks.chosen_again.get(effect.edge),
        composition=score,
        composition_p=p,
        added=effect.added,
    )


def _replaced(path: str, source: str | None) -> bool:
    """Whether a circuit of an earlier run is at this path, which a new one may take.

    Raises InputError for a path that cannot be written or that has another file.
    """
    check_model_file(path)
    if source is not None and Path(path).resolve() == Path(source):
        raise InputError(f"keep_circuit {path} is the model: give another file")
    if not Path(path).exists():
        return False
    with suppress(InputError):
        if isinstance(load(path), CircuitTransformer):
            return True
    raise InputError(f"keep_circuit {path} exists and is not a circuit: give another file")


def status_of(circuit: Circuit) -> Verdict:
    """The status by the rule of evidence, and why it is not "detected" (see the module)."""
    held_out, checks = circuit.held_out, circuit.checks
    if circuit.nothing is not None:
        return circuit.nothing.status, circuit.nothing.reason
    if not circuit.included or held_out is None:
        return left_open(_no_edge(circuit))
    if (because := only_output(circuit)) is not None:
        return only_described(because)
    if _is_uncertain(held_out):
        reason = "ablating all edges does not significantly lower the metric on held-out prompts"
        return left_open(reason)
    most = len(circuit.included) > MOST * len(circuit.edges)
    return equivalence_status(
        *(held_out.low, held_out.high, EQUAL),
        [] if checks is None else [checks.control(held_out.share)],
        nothing="the circuit is most of the model, so nothing is singled out" if most else None,
        effect="faithfulness",
    )


def instead_of_saturated(circuit: Circuit) -> str | None:
    """What finds the edges of a model that is certain of its answers; None where it is not.

    Where a log-probability is near 0 no single edge lowers it much: what is left keeps the model
    certain enough. A difference of logits has no such limit.
    """
    metric = circuit.metric
    if not isinstance(metric, LogProbability | RepeatedTokens) or circuit.intact < -SATURATED:
        return None
    if isinstance(metric, RepeatedTokens):
        return "give prompts with answers and wrong answers (--data), for a difference of logits"
    if metric.prompts.wrong is None:
        return "give a wrong answer for each answer (column `wrong`), for a difference of logits"
    return "use --metric logit-difference"


def only_output(circuit: Circuit) -> str | None:
    """Why no task is measured, so that its circuit cannot be confirmed; else None."""
    if circuit.metric.because is not None:
        return circuit.metric.because
    if circuit.task_check is None:
        return "prompts without answers or repeats define no task"
    return None


def _no_edge(circuit: Circuit) -> str:
    if circuit.screening is not None:
        return "the selected edges are on no path from input to logits"
    if (instead := instead_of_saturated(circuit)) is not None:
        return (
            f"the model is certain of the answers ({circuit.intact:.2g} {circuit.metric.unit}), so "
            f"ablating single edges hardly changes that: {instead}"
        )
    left = len(circuit.edges) - circuit.n_measured
    unmeasured = f"; {left:,} edges with smaller estimates were not ablated" if left else ""
    return (
        "ablating all edges at once has an effect, but no single edge both is shown to have one "
        f"of {percent(SHARE)} or more and is on a path of such edges{unmeasured}: paths may be "
        "redundant, or prompts too few"
    )


def _is_uncertain(held_out: Faithfulness) -> bool:
    """Whether ablating every edge has no significant effect, so that fractions are undefined."""
    return math.isinf(held_out.low) or math.isnan(held_out.share)


def evidence_of(circuit: Circuit) -> CircuitEvidence:
    """Status, reason, and the numbers that support them."""
    held_out, chosen_on, checks = circuit.held_out, circuit.chosen_on, circuit.checks
    values: dict[str, Any] = {}
    if circuit.nothing is None and held_out is not None and chosen_on is not None:
        test = "Holm-adjusted p at most the level, " if circuit.metric.measures_task else ""
        rule = f"{test}effect at least {percent(SHARE)} of that of ablating all edges"
        if circuit.screening is not None:
            rule = (
                "the fewest nodes that with all edges between them keep "
                f"{percent(NODES_KEEP)}, then the fewest of these edges that keep "
                f"{percent(EDGES_KEEP)}, largest estimates first"
            )
        values |= {
            "edges_ablated_one_by_one": circuit.n_measured,
            "edges_estimated_only": len(circuit.edges) - circuit.n_measured,
            "faithfulness": held_out.share,
            "faithfulness_low": _finite(held_out.low),
            "faithfulness_high": _finite(held_out.high),
            "faithfulness_where_chosen": chosen_on.share,
            "rule": rule,
        }
    if held_out is not None and checks is not None:
        rivals = [*checks.exchanged, *checks.random]
        values |= {
            "equivalent": equivalent(held_out),
            "equivalent_within": EQUAL,
            "rest_keeps": checks.rest.share,
            "rest_keeps_low": _finite(checks.rest.low),
            "rest_keeps_high": _finite(checks.rest.high),
            "edges_taken_out": checks.tested,
            "edges_needed": checks.needed,
            "jaccard_of_bootstraps": checks.jaccard,
            "edges_chosen": len(checks.chosen_again),
            "edges_chosen_again": checks.n_stable,
            "rivals": len(rivals),
            "rivals_as_good": checks.as_good(held_out.share),
            "best_rival_keeps": max(rivals, default=None),
            "runner_up_keeps": None if checks.runner_up is None else checks.runner_up.share,
            "keeps_with": {
                kind: faithfulness.share for kind, faithfulness in checks.by_kind.items()
            },
            "jaccard_with": dict(checks.jaccard_by_kind),
        }
    if circuit.screening is not None:
        values["screening"] = vars(circuit.screening)
    if circuit.nothing is None:
        values["causal"] = _causal(circuit)
    status, reason = status_of(circuit)
    return CircuitEvidence(
        status=status,
        reason=reason,
        measured=f"{circuit.metric.name}: {circuit.metric.definition}",
        unit=circuit.metric.unit,
        intact=circuit.intact,
        every_edge_ablated=circuit.all_ablated,
        edges=len(circuit.edges),
        ablation_value=WORDS[circuit.ablation_kind],
        instead=None if circuit.included else instead_of_saturated(circuit),
        **values,
    )


def _causal(circuit: Circuit) -> str:
    """How edges were chosen, and how the circuit was tested."""
    alone = "the circuit runs alone, with all other edges ablated, on held-out prompts"
    if circuit.n_measured == len(circuit.edges):
        return f"every edge is ablated by itself; {alone}"
    if circuit.n_measured:
        return f"edges with the largest attributions are ablated one by one; {alone}"
    return f"no edge is ablated by itself: edges are estimated by attribution; {alone}"


def _finite(end: float) -> float | None:
    return None if math.isinf(end) else end


def headline(circuit: Circuit) -> str:
    """The headline: the number of edges, their nodes, and the metric they keep alone."""
    status, name, edges = status_of(circuit)[0], circuit.metric.name, circuit.included
    if circuit.nothing is not None:
        return {
            "not_tested": "Circuits are not tested: the model has not been shown to perform the "
            "task.",
            "undecided": "Whether there is a circuit is undecided.",
        }.get(
            status, "No circuit: on these prompts, ablating all edges does not change the metric."
        )
    held_out = circuit.held_out
    if not edges or held_out is None:
        why = "no edge that matters alone lies on a path to the logits"
        if instead_of_saturated(circuit) is not None:
            why = "the metric is saturated, and single edges hardly change it"
        return f"No circuit is found: {why}."
    writers = dict.fromkeys(e.edge.source for e in edges if e.edge.source.kind != "input")
    through = f", through {listed([n.name for n in writers], NODES_NAMED)}"
    start = f"{len(edges):,} of {len(circuit.edges):,} edges"
    matter = _chosen(circuit)
    if status == "detected":
        return f"{start} suffice for the {name}{through if writers else ''}."
    if status == "described" and only_output(circuit) is not None:
        return f"{start} form a circuit for the {name}; no task is tested."
    if status == "described":
        return f"{start}, most of the model, carry the {name}: nothing is singled out."
    if status == "uninformative":
        return f"{start} carry the {name}, but other circuits of the same size do too."
    if status == "partial" and held_out.low > 1:
        return f"{start} alone keep more of the {name} than the whole model has."
    if status == "partial" and held_out.high < 1:
        return f"{start} {matter} for the {name}; alone, these edges carry only a part."
    if status == "partial":
        return f"{start} {matter} for the {name}; how much these edges carry alone is undecided."
    if not _is_uncertain(held_out) and held_out.high < 1 - EQUAL:
        return f"{start} {matter} for the {name}; alone, these edges do not suffice."
    return f"{start} {matter} for the {name}; whether these edges suffice is undecided."


def _chosen(circuit: Circuit) -> str:
    """How the circuit's edges were chosen; *matter* where each has a significant effect."""
    if circuit.screening is not None:
        return "are chosen by their estimates"
    alone = sum(e.added is None for e in circuit.included)
    if alone == len(circuit.included):
        return "matter"
    return f"are chosen ({alone} {'matters' if alone == 1 else 'matter'} alone)"


def sentences(circuit: Circuit) -> list[str]:
    """The findings: limits, faithfulness, comparisons, edges, and the search."""
    status, reason = status_of(circuit)
    held_out, checks = circuit.held_out, circuit.checks
    first = []
    if status in ("undecided", "uninformative", "not_tested", "partial"):
        named = {"undecided": "Undecided", "uninformative": "Not informative", "partial": "Partial"}
        first = [f"{named.get(status, 'Not tested')}: {reason}."]
    elif circuit.nothing is not None:
        first = [f"{capital(circuit.nothing.reason)}."]
    elif (because := only_output(circuit)) is not None:
        what = f"The metric is the {circuit.metric.definition}, not task performance"
        first = [f"{what}: {because}."]
    if circuit.nothing is not None or not circuit.included or held_out is None:
        return first
    if not _is_uncertain(held_out):
        first.append(
            f"Alone, with the values on all other edges replaced by "
            f"{WORDS[circuit.ablation_kind]}, these edges "
            f"keep {_with_interval(held_out)} of the metric (0 %: all edges ablated, 100 %: the "
            f"intact model), n = {held_out.n_rows} held-out prompts."
        )
    compared = []
    if checks is not None and not _is_uncertain(held_out):
        if not math.isinf(checks.rest.low):
            compared.append(f"without these edges the model keeps {_with_interval(checks.rest)}")
        n_rivals, as_good = (
            len(checks.exchanged) + len(checks.random),
            checks.as_good(held_out.share),
        )
        if not n_rivals:
            quick = circuit.screening is not None and not circuit.screening.in_order
            compared.append(
                "no other circuit of the same size was compared (effort: quick)"
                if quick
                else "sampling found no other circuit of the same size that shares at most half of "
                "these edges"
            )
        elif n_rivals == 1:
            keeps = "keeps" if as_good else "does not keep"
            compared.append(f"the only other circuit of the same size {keeps} as much")
        else:
            compared.append(
                f"{as_good or 'none'} of {n_rivals} other circuits of the same size "
                f"keep{'' if as_good > 1 else 's'} as much as this circuit"
            )
    large = circuit.screening is not None
    facts = [*first, _and(compared)]
    facts += [_largest_heads(circuit) if large else _largest_edges(circuit)]
    facts += [_next_edges(circuit) if status == "partial" else "", _search(circuit)]
    return [fact for fact in facts if fact]


def _and(parts: Sequence[str]) -> str:
    """Join the parts into one sentence; "" without any."""
    return f"{capital('; '.join(parts))}." if parts else ""


def _largest_edges(circuit: Circuit) -> str:
    """Edges with the largest effects, edges that lower the metric, and backup edges."""
    own = [e for e in circuit.included if e.added is None]
    added = len(circuit.included) - len(own)
    against = sum((e.effect or 0.0) < 0 for e in own)
    names = listed([e.edge.name for e in circuit.included], NAMED)
    parts = [f"the circuit's edges, largest effect first: {names}"]
    if added:
        raises = "raises" if added == 1 else "raise"
        parts.append(
            f"{added} of them {raises} what the circuit keeps, and no other effect is shown"
        )
    if against:
        parts.append(f"ablating {against} of them raises the metric")
    return _and(parts)


def _next_edges(circuit: Circuit) -> str:
    """The edges outside the circuit with the largest effects or estimates, which none shows."""
    least = ROUNDING * abs(circuit.intact - circuit.all_ablated)
    others = [e for e in circuit.edges if not e.in_circuit and abs(e.weight) > least]
    others.sort(key=lambda e: -abs(e.weight))
    names = listed([e.edge.name for e in others], NAMED)
    nothing = sum(not e.in_circuit for e in circuit.edges) - len(others)
    rest = f"; {counted(nothing, 'more edge')} estimated at 0" if nothing else ""
    return f"Not shown to matter, largest estimates first: {names}{rest}." if others else ""


def _largest_heads(circuit: Circuit) -> str:
    """The heads of a large circuit whose ablation, one at a time, costs most."""
    heads = [(n, e) for n, e in circuit.node_effects.items() if n.kind == "head"]
    certain = sorted((item for item in heads if item[1].low > 0), key=lambda item: -item[1].mean)
    if not certain:
        return ""
    named = ", ".join(
        f"{n.name} {e.mean:.2g} [{e.low:.2g}, {e.high:.2g}]" for n, e in certain[:NODES_NAMED]
    )
    whole = circuit.intact - circuit.all_ablated
    return (
        f"Of its {len({e.edge.source for e in circuit.included if e.edge.source.kind == 'head'})} "
        f"heads {len(heads)} were ablated one at a time; largest losses: {named}, of {whole:.2g} "
        f"{circuit.metric.unit}."
    )


def _search(circuit: Circuit) -> str:
    """The search: its extent, edges it may have missed, and the stability of its choice."""
    parts, checks, screening = [], circuit.checks, circuit.screening
    if screening is not None:
        parts.append(_screened(screening))
    elif left := len(circuit.edges) - circuit.n_measured:
        parts.append(f"{left} edges were estimated only")
    chosen = {} if checks is None else checks.chosen_again
    if checks is not None and (unstable := len(chosen) - checks.n_stable):
        of = (
            "edges"
            if len(chosen) == len(circuit.included)
            else "edges that were chosen by themselves"
        )
        are = "is" if unstable == 1 else "are"
        parts.append(
            f"{unstable:,} of the circuit's {len(chosen):,} {of} {are} chosen in fewer than "
            f"{percent(STABLE)} of the bootstrap samples of the prompts"
        )
    return _and(parts)


def _screened(screening: Screening) -> str:
    if not screening.in_order:
        return "no edge was ablated by itself (effort: quick)"
    ended = (
        f"none of the last ones is shown to have an effect of {percent(SHARE)} or more"
        if screening.last_block_idle
        else "the compute budget ended while some still had an effect"
    )
    in_order = (
        f"{screening.in_order} edges were ablated one by one, largest estimates first: {ended}"
    )
    if not screening.sampled:
        return in_order
    shown = "none is" if not screening.sample_matters else f"{screening.sample_matters} are"
    return (
        f"{in_order}; of {screening.sampled} sampled from the rest {shown} shown to (at most "
        f"{percent(screening.missed_at_most)} of the rest, one-sided {percent(COVERAGE)})"
    )


def _with_interval(faithfulness: Faithfulness) -> str:
    """A fraction with its interval, with a decimal if whole percents would hide a bound."""
    bounds = (1 - EQUAL, 1, 1 + EQUAL)
    near = any(
        abs(end - bound) < 0.01 for end in (faithfulness.low, faithfulness.high) for bound in bounds
    )
    share = Share(faithfulness.share, faithfulness.low, faithfulness.high)
    return percent_ci(share, 1 if near else 0)


def unfit(model: Any, data: FeatureData | None) -> str | None:
    """Why the analysis cannot run, or runs only on request; None where it runs."""
    if data is not None and data.answers is None:
        return "uses synthetic repeated tokens; run it with --probe circuit"
    n_heads = int(model.cfg.n_layers) * int(model.cfg.n_heads)
    if n_heads > MOST_HEADS:
        return f"{n_heads} heads need many forward passes; run it with --probe circuit"
    try:
        if data is None:
            repeated_prompts(model, rows=2, n_pos=min(int(model.cfg.n_ctx), LONGEST))
        PatchedModel(model)
    except InputError as error:
        return str(error)
    return None


CIRCUIT = analysis(
    "circuit",
    "which heads, MLPs and edges produce the answers, or the in-context advantage on repeated "
    "tokens",
    CircuitOptions,
    analyze,
    unfit,
    graph_formats=FORMATS,
    reads_stream=True,
    reads_answers=True,
)
