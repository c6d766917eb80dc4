"""The verdict on a circuit: does it do what the model does, or a part of it, or only matter?

Cutting an edge shows that the behaviour needs it; that the edges found carry the behaviour is shown
by what they keep when all others are cut, on held-out rows: *detected* where the interval of that
share lies within EQUAL of 1 (equivalence), *partial* where it is above 0, else *not detected*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from interp_toolkit.circuits.edges.checks import EQUAL, STABLE, Checks, equivalent
from interp_toolkit.circuits.edges.circuit import Circuit, EdgeEffect
from interp_toolkit.circuits.edges.faithfulness import SHARE, Faithfulness
from interp_toolkit.circuits.edges.result import CircuitEvidence
from interp_toolkit.circuits.edges.screened import EDGES_KEEP, NODES_KEEP, Screening
from interp_toolkit.circuits.edges.stand_in import WORDS
from interp_toolkit.circuits.edges.wiring import label_of
from interp_toolkit.results import Status
from interp_toolkit.stats import COVERAGE

NAMED = 6  # edges that the verdict names
NODES_NAMED = 4  # nodes that it names of a large circuit


def status_of(circuit: Circuit) -> Status:
    """Whether the edges found do what the model does (see the module)."""
    held_out = circuit.held_out
    if circuit.objective.because is not None and circuit.kept and circuit.nothing is None:
        return "described"  # no behaviour, whatever the output is worth
    if circuit.nothing is not None or not circuit.kept or held_out is None:
        return "not_detected"
    if math.isnan(held_out.share):
        return "undecided"
    if equivalent(held_out):
        return "detected"
    return "partial" if held_out.low > 0 else "not_detected"


def reason_of(circuit: Circuit) -> str | None:
    """Why there is no circuit, or only a part of one; None where there is."""
    status = status_of(circuit)
    if status == "detected":
        return None
    if status == "described":
        return circuit.objective.because
    if circuit.nothing is not None:
        return circuit.nothing
    if not circuit.kept or circuit.held_out is None:
        return "no edge, cut alone, both matters and lies on a path of such edges"
    if status == "partial":
        return (
            "the interval of what the edges keep alone reaches beyond "
            f"{1 - EQUAL:.0%} to {1 + EQUAL:.0%}"
        )
    if status == "undecided":
        return "cutting every edge costs nothing on the held-out rows"
    if circuit.held_out.high < 0:
        return "alone, the edges do worse than with every edge cut"
    return "the interval of what the edges keep alone holds 0"


def evidence_of(circuit: Circuit) -> CircuitEvidence:
    """What the verdict rests on."""
    held_out, chosen_on = circuit.held_out, circuit.chosen_on
    found: dict[str, Any] = {}
    if circuit.nothing is None and held_out is not None and chosen_on is not None:
        found = {
            "edges_cut_one_by_one": circuit.n_measured,
            "edges_estimated_only": len(circuit.edges) - circuit.n_measured,
            "faithfulness": held_out.share,
            "faithfulness_low": held_out.low,
            "faithfulness_high": held_out.high,
            "faithfulness_where_chosen": chosen_on.share,
            "rule": _rule(circuit),
        }
    if held_out is not None and circuit.checks is not None:
        found |= _checked(circuit.checks, held_out)
    if circuit.screening is not None:
        found["screening"] = vars(circuit.screening)
    return CircuitEvidence(
        status=status_of(circuit),
        reason=reason_of(circuit),
        measured=f"{circuit.objective.name}: {circuit.objective.definition}",
        unit=circuit.objective.unit,
        intact=circuit.intact,
        every_edge_cut=circuit.all_cut,
        edges=len(circuit.edges),
        cut_edges_get=WORDS[circuit.stand_in],
        **found,
    )


def _rule(circuit: Circuit) -> str:
    if circuit.screening is not None:
        return (
            f"the fewest nodes that with all edges between them keep {NODES_KEEP:.0%}, then the "
            f"fewest of these edges that keep {EDGES_KEEP:.0%}, largest estimates first"
        )
    test = "Holm-adjusted p at most the level, " if circuit.objective.is_behaviour else ""
    return f"{test}effect at least {SHARE:.0%} of what cutting every edge costs"


def _checked(checks: Checks, held_out: Faithfulness) -> dict[str, Any]:
    rivals = [*checks.exchanged, *checks.drawn]
    return {
        "equivalent": equivalent(held_out),
        "equivalent_within": EQUAL,
        "rest_keeps": checks.rest.share,
        "rest_keeps_low": checks.rest.low,
        "rest_keeps_high": checks.rest.high,
        "edges_taken_out": checks.tested,
        "edges_needed": checks.needed,
        "jaccard_of_bootstraps": checks.jaccard,
        "edges_chosen_again": checks.n_stable,
        "rivals": len(rivals),
        "rivals_as_good": checks.as_good(held_out.share),
        "best_rival_keeps": max(rivals, default=None),
        "runner_up_keeps": None if checks.runner_up is None else checks.runner_up.share,
        "keeps_with": {kind: found.share for kind, found in checks.by_kind.items()},
        "jaccard_with": dict(checks.jaccard_by_kind),
    }


def verdict(circuit: Circuit) -> str:
    """What was found and no more: which edges, and how much they carry alone."""
    if circuit.nothing is not None:
        return f"No circuit: {circuit.nothing}."
    kept, held_out = circuit.kept, circuit.held_out
    if not kept or held_out is None:
        return (
            f"No circuit: of {circuit.n_measured} edges cut one by one, none both changes "
            f"the {circuit.objective.name} and lies on a path of such edges from input to logits."
        )
    if circuit.screening is not None:
        said = _screened(circuit, held_out, circuit.screening)
    else:
        said = _each_cut(circuit, kept, held_out)
    return " ".join([said, *_stands(circuit.checks, held_out, len(kept))])


def _each_cut(circuit: Circuit, kept: Sequence[EdgeEffect], held_out: Faithfulness) -> str:
    """Of a circuit whose edges were cut one by one."""
    name = circuit.objective.name
    named = ", ".join(label_of(e.edge.name) for e in kept[:NAMED])
    more = f" and {len(kept) - NAMED} more" if len(kept) > NAMED else ""
    against = sum((e.effect or 0.0) < 0 for e in kept)
    against_it = f" ({against} of them against it)" if against else ""
    n_edges, n_measured = len(circuit.edges), circuit.n_measured
    left = f"; {n_edges - n_measured} edges were estimated only" if n_measured < n_edges else ""
    n_added = sum(e.added is not None for e in kept)
    some = f"{len(kept) - n_added} of {n_edges}"
    more += f"; for {n_added} of all, others make up when they alone are cut" if n_added else ""
    says = {
        "described": f"Cutting any one of {some} edges changes the {name}: {named}{more}.",
        "detected": f"{len(kept)} of {n_edges} edges carry the {name}{against_it}: {named}{more}.",
        "partial": f"Cutting any one of {some} edges changes the "
        f"{name}{against_it}, "
        + (
            "but they carry only a part of it"
            if held_out.high < 1
            else "but how much of it they carry alone is not settled"
        )
        + f": {named}{more}.",
        "not_detected": f"Cutting any one of {some} edges changes the "
        f"{name}{against_it}, but alone they are not seen to carry it: {named}{more}.",
        "undecided": f"Cutting any one of {some} edges changes the "
        f"{name}{against_it}; what they carry alone cannot be told: {named}{more}.",
    }[status_of(circuit)]
    if math.isnan(held_out.share):
        return (
            f"{says} Cutting every edge costs nothing on the {held_out.n_rows} held-out rows{left}."
        )
    because = circuit.objective.because
    about = "" if because is None else f" This is the output, whatever it is worth: {because}."
    return (
        f"{says} With all others replaced by {WORDS[circuit.stand_in]}, they keep "
        f"{held_out.share:.0%} of what cutting every edge costs ({_interval(held_out)}, "
        f"{held_out.n_rows} held-out rows){left}.{about}"
    )


def _screened(circuit: Circuit, held_out: Faithfulness, found: Screening) -> str:
    """Of a large model's circuit: what it keeps, what in it costs most, how it was looked for."""
    kept = circuit.kept
    nodes = {e.edge.source for e in kept}
    heads, mlps = (sum(n.kind == kind for n in nodes) for kind in ("head", "mlp"))
    amount = {
        "detected": f"as much as the whole model, within {EQUAL:.0%}",
        "partial": "only a part of it" if held_out.high < 1 else "how much of it is not settled",
        "not_detected": "which is not certainly anything",
        "undecided": "which cannot be told",
        "described": "whatever it is worth",
    }[status_of(circuit)]
    sentences = [
        f"{len(kept):,} of {len(circuit.edges):,} edges, from {heads} of "
        f"{circuit.wiring.n_layers * circuit.wiring.n_heads} heads and {mlps} MLPs, keep "
        f"{held_out.share:.0%} of the {circuit.objective.name} with all others replaced by "
        f"{WORDS[circuit.stand_in]} ({_interval(held_out)}, {held_out.n_rows} held-out rows): "
        f"{amount}."
    ]
    effects = sorted(circuit.node_effects.items(), key=lambda item: -item[1].mean)
    sure = [(n, e) for n, e in effects if e.low > 0 and n.kind == "head"][:NODES_NAMED]
    if sure:
        named = ", ".join(f"{label_of(n.name)} ({e.mean:.2g})" for n, e in sure)
        whole = circuit.intact - circuit.all_cut
        sentences.append(
            f"Of its heads, cut one at a time, these cost most: {named}, of {whole:.2g} "
            f"{circuit.objective.unit}."
        )
    ended = (
        "the last of them no longer matter"
        if found.all_that_matter
        else "the search stopped for its price while some still mattered"
    )
    sentences.append(
        f"{found.in_order} edges were cut one by one, the largest estimates first: {ended}; of "
        f"{found.sampled} drawn from the rest {found.sample_matters or 'none'} "
        f"{'matters' if found.sample_matters == 1 else 'matter'}, so at most "
        f"{found.missed_at_most:.0%} of the rest do."
    )
    return " ".join(sentences)


def _stands(checks: Checks | None, held_out: Faithfulness, n_kept: int) -> list[str]:
    """What the circuit stood up to, in one sentence."""
    if checks is None or math.isnan(held_out.share):
        return []
    said = []
    if not math.isnan(checks.rest.share):
        low, high = checks.rest.low, checks.rest.high
        kept = f"{_percent(checks.rest.share)} [{_percent(low)}, {_percent(high)}]"
        said.append(f"without them the model keeps {kept}")
    rivals = len(checks.exchanged) + len(checks.drawn)
    as_good = checks.as_good(held_out.share)
    said.append(f"{as_good or 'none'} of {rivals} circuits of the same shape keep as much")
    unstable = n_kept - checks.n_stable
    if unstable:
        said.append(
            f"{unstable:,} of the {n_kept:,} edges are chosen in fewer than {STABLE:.0%} of "
            "bootstraps of the rows"
        )
    sentence = "; ".join(said) + "."
    return [sentence[0].upper() + sentence[1:]]


def _interval(found: Faithfulness) -> str:
    return f"{COVERAGE:.0%} interval {found.low:.0%} to {found.high:.0%}"


def _percent(share: float) -> str:
    """Whole percents, and no minus in front of a nought."""
    return f"{round(100 * share) + 0:d}%"
