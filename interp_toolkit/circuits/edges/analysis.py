"""The analysis behind `--probe circuit`: find the circuit, judge it on held-out rows, draw it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
from pydantic import Field

from interp_toolkit.circuits.behaviour.at_home import assumption_note
from interp_toolkit.circuits.behaviour.prompts import (
    Prompts,
    prompts_from_data,
    repeated_prompts,
)
from interp_toolkit.circuits.edges.checks import Checks
from interp_toolkit.circuits.edges.circuit import Circuit, EdgeEffect
from interp_toolkit.circuits.edges.export import FORMATS, node_link
from interp_toolkit.circuits.edges.faithfulness import SHARE
from interp_toolkit.circuits.edges.figures import circuit_figure, head_map, size_figure
from interp_toolkit.circuits.edges.graph import (
    LONGEST,
    as_graph,
    circuit_prompts,
    composition_of,
    composition_of_edge,
)
from interp_toolkit.circuits.edges.passes.patched_pass import PatchedModel
from interp_toolkit.circuits.edges.passes.patching import patching_figure
from interp_toolkit.circuits.edges.result import CircuitResult, EdgeRow
from interp_toolkit.circuits.edges.search import different_prompts, find_circuit
from interp_toolkit.circuits.edges.verdict import evidence_of, verdict
from interp_toolkit.circuits.weights.composition import CompositionScores
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.about.info import token_words
from interp_toolkit.models.about.record import digest_of_tokens, provenance
from interp_toolkit.options import Options
from interp_toolkit.registry import Analysis
from interp_toolkit.results import Figure

MOST_HEADS = 64  # of a model that is looked at without being asked: a few hundred passes


class CircuitOptions(Options):
    """Options of `--probe circuit`."""

    level: float = Field(0.05, gt=0, lt=1, description="Of significance of an edge.")
    max_edges: int = Field(
        512, ge=0, description="Edges measured at most; the others are estimated."
    )
    metric: str | None = Field(
        None,
        description="What rows are judged by: logit-difference, log-probability or kl; default: "
        "what fits them.",
    )


def run(
    model: Any,
    data: FeatureData | None,
    options: CircuitOptions,
    progress: Callable[[str], None],
) -> CircuitResult:
    """The circuit graph of a model as a result; see `composition_graph`.

    Args:
        model: any TransformerLens model.
        data: rows of tokens of one length, with answers or without; None: repeated random tokens.
        options: see `CircuitOptions`.
        progress: told what is being done.

    Raises:
        InputError: as `composition_graph`; rows of different lengths.
    """
    given = None if data is None else prompts_from_data(data, model)
    prompts = circuit_prompts(model, given, options.seed)
    given_rows, prompts = len(prompts), different_prompts(model, prompts)
    circuit = find_circuit(
        model,
        prompts,
        seed=options.seed,
        level=options.level,
        max_edges=options.max_edges,
        memory=options.memory,
        metric=options.metric,
        progress=progress,
    )
    composition = composition_of(model, circuit, options.memory)
    graph = as_graph(circuit, prompts, composition, options.level)
    notes = [] if data is None else [assumption_note(model, data)]
    if len(prompts) < given_rows:
        notes.append(f"{given_rows - len(prompts)} rows repeat others, and do not count again")
    described = {
        "source": prompts.source,
        "rows": given_rows,
        "sha256": digest_of_tokens(prompts.tokens) if data is None else data.digest(),
    }
    settings = options.settings() | {"share": SHARE}
    return CircuitResult(
        probe="circuit",
        verdict=verdict(circuit),
        evidence=evidence_of(circuit),
        provenance=provenance(model, described, settings, options.seed),
        edges=[_row(e, composition, circuit.checks) for e in circuit.kept],
        nodes={node.name: effect.mean for node, effect in circuit.node_effects.items()},
        node_intervals={n.name: (e.low, e.high) for n, e in circuit.node_effects.items()},
        graph=node_link(graph),
        network=graph,
        notes=[note for note in notes if note is not None],
        plots=_plots(circuit, graph, token_words(model)),
    )


def _plots(circuit: Circuit, graph: nx.DiGraph, words: Callable[[int], str]) -> list[Figure]:
    if not circuit.kept:
        return []
    found = [circuit_figure(graph)]
    if circuit.patching is not None:
        found.append(patching_figure(circuit.patching, words))
    if circuit.screening is not None:
        found += [head_map(circuit), size_figure(circuit.screening)]
    return found


def _row(
    effect: EdgeEffect, composition: CompositionScores | None, checks: Checks | None
) -> EdgeRow:
    score, p = composition_of_edge(effect, composition) or (None, None)
    return EdgeRow(
        edge=effect.edge.name,
        effect=effect.effect,
        p_value=effect.p_value,
        composition=score,
        composition_p=p,
        added=effect.added,
        low=effect.low,
        high=effect.high,
        estimate=effect.attribution,
        chosen_again=None if checks is None else checks.chosen_again.get(effect.edge),
    )


def _unfit(model: Any, data: FeatureData | None) -> str | None:
    if data is not None and data.answers is None:
        return "looks at repeated tokens of its own; ask for it by name: --probe circuit"
    n_heads = int(model.cfg.n_layers) * int(model.cfg.n_heads)
    if n_heads > MOST_HEADS:
        return f"{n_heads} heads take many passes; ask for it by name: --probe circuit"
    try:
        if data is None:
            _prompts_fit(model)
        PatchedModel(model)
    except InputError as error:
        return str(error)
    return None


def _prompts_fit(model: Any) -> Prompts:
    return repeated_prompts(model, rows=2, n_pos=min(int(model.cfg.n_ctx), LONGEST))


CIRCUIT = Analysis(
    "circuit",
    "which heads, MLPs and edges between them carry the answers, or the use of repeated tokens",
    CircuitOptions,
    run,
    _unfit,
    graph_formats=FORMATS,
)
