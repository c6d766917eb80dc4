"""The verdict on a circuit: does it do what the model does, or a part of it, or only matter?

Cutting an edge shows that the behaviour needs it; that the edges found carry the behaviour is shown
by what they keep when all others are cut, on held-out rows: *detected* where the model performs the
task, the interval of that share lies within EQUAL of 1 (equivalence), the circuit is not most of
the model and other circuits of the same size keep less; *uninformative* where they keep as much;
*partial* where the interval is above 0. Where no task is known that the model performs (rows
without answers or repeats, a metric of one's own), a circuit is *described*. Where the model does
not do the task it is *not tested*. All else is *undecided*: what could be lost is not certain,
there are too few other circuits, or no edge matters alone while all together do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from interp_toolkit.circuits.edges.checks import EQUAL, MOST, STABLE, Checks, equivalent
from interp_toolkit.circuits.edges.circuit import Circuit, EdgeEffect
from interp_toolkit.circuits.edges.faithfulness import SHARE, Faithfulness
from interp_toolkit.circuits.edges.passes.stand_in import WORDS
from interp_toolkit.circuits.edges.result import CircuitEvidence
from interp_toolkit.circuits.edges.screened import EDGES_KEEP, NODES_KEEP, Screening
from interp_toolkit.circuits.edges.wiring import label_of
from interp_toolkit.evidence import effect_status
from interp_toolkit.results import Status
from interp_toolkit.stats import COVERAGE

NAMED = 6  # edges that the verdict names
NODES_NAMED = 4  # nodes that it names of a large circuit


def status_of(circuit: Circuit) -> Status:
    """Whether the edges found do what the model does (see the module)."""
    return judged(circuit)[0]


def reason_of(circuit: Circuit) -> str | None:
    """Why there is no circuit, or only a part of one; None where there is."""
    return judged(circuit)[1]


def judged(circuit: Circuit) -> tuple[Status, str | None]:
    """The status by the rule of evidence, and why it is not "detected" (see the module)."""
    held_out, checks = circuit.held_out, circuit.checks
    if circuit.nothing is not None:
        return circuit.nothing.status, circuit.nothing.reason
    if not circuit.kept or held_out is None:
        return "undecided", _no_edge(circuit)
    if (because := only_output(circuit)) is not None:
        return "described", because
    if math.isinf(held_out.low) or math.isnan(held_out.share):
        return (
            "undecided",
            "cutting every edge is not certain to cost anything on the held-out rows",
        )
    if not equivalent(held_out):
        if held_out.low > 0:
            within = f"{1 - EQUAL:.0%} to {1 + EQUAL:.0%}"
            return "partial", f"the interval of what the edges keep alone reaches beyond {within}"
        worse = held_out.high < 0
        return "undecided", (
            "alone, the edges do worse than with every edge cut"
            if worse
            else "the interval of what the edges keep alone includes 0"
        )
    if len(circuit.kept) > MOST * len(circuit.edges):
        return "described", "the circuit is most of the model, so nothing is singled out"
    controls = [] if checks is None else [checks.control(held_out.share)]
    return effect_status(held_out.low, held_out.high, 1 - EQUAL, controls)


def only_output(circuit: Circuit) -> str | None:
    """Why no behaviour is measured, so that a circuit of it cannot be confirmed; else None."""
    if circuit.objective.because is not None:
        return circuit.objective.because
    if circuit.home is None:
        return "without answers or repeats there is no task that the model is seen to perform"
    return None


def _no_edge(circuit: Circuit) -> str:
    if circuit.screening is not None:
        return "the estimates chosen lie on no path from input to logits"
    left = len(circuit.edges) - circuit.n_measured
    uncut = f"; {left:,} edges, with smaller estimates, were not cut" if left else ""
    return (
        "cutting every edge at once costs the behaviour, but no edge, cut alone, both matters and "
        f"lies on a path of such edges{uncut}: paths may be redundant, or rows too few"
    )


def evidence_of(circuit: Circuit) -> CircuitEvidence:
    """What the verdict rests on."""
    held_out, chosen_on = circuit.held_out, circuit.chosen_on
    found: dict[str, Any] = {}
    if circuit.nothing is None and held_out is not None and chosen_on is not None:
        found = {
            "edges_cut_one_by_one": circuit.n_measured,
            "edges_estimated_only": len(circuit.edges) - circuit.n_measured,
            "faithfulness": held_out.share,
            "faithfulness_low": _finite(held_out.low),
            "faithfulness_high": _finite(held_out.high),
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
        "keeps_with": {kind: found.share for kind, found in checks.by_kind.items()},
        "jaccard_with": dict(checks.jaccard_by_kind),
    }


def verdict(circuit: Circuit) -> str:
    """What was found and no more: which edges, and how much they carry alone."""
    if circuit.nothing is not None:
        first = {"not_tested": "Not tested", "undecided": "Undecided"}
        return f"{first.get(circuit.nothing.status, 'No circuit')}: {circuit.nothing.reason}."
    kept, held_out = circuit.kept, circuit.held_out
    if not kept or held_out is None:
        if circuit.screening is not None:
            return f"Undecided: {_no_edge(circuit)}."
        left = len(circuit.edges) - circuit.n_measured
        uncut = f"; {left:,} with smaller estimates were not cut" if left else ""
        return (
            f"Undecided: of {circuit.n_measured} edges cut one by one, none both changes "
            f"the {circuit.objective.name} and lies on a path of such edges from input to logits"
            f"{uncut}. Together they matter, so paths may be redundant: give more rows."
        )
    if circuit.screening is not None:
        said = _screened(circuit, held_out, circuit.screening)
    else:
        said = _each_cut(circuit, kept, held_out)
    return " ".join([said, *_stands(circuit.checks, held_out, len(kept))])


def _each_cut(circuit: Circuit, kept: Sequence[EdgeEffect], held_out: Faithfulness) -> str:
    """Of a circuit whose edges were cut one by one."""
    name, status = circuit.objective.name, status_of(circuit)
    own, added = [e for e in kept if e.added is None], [e for e in kept if e.added is not None]
    named = ", ".join(label_of(e.edge.name) for e in kept[:NAMED])
    more = f" and {len(kept) - NAMED} more" if len(kept) > NAMED else ""
    against = sum((e.effect or 0.0) < 0 for e in own)
    against_it = f" ({against} of them against it)" if against else ""
    n_edges, n_measured = len(circuit.edges), circuit.n_measured
    left = f"; {n_edges - n_measured} edges were estimated only" if n_measured < n_edges else ""
    more += f"; for {len(added)} of them others make up when they alone are cut" if added else ""
    if status == "detected":
        says = f"{len(kept)} of {n_edges} edges carry the {name}{against_it}: {named}{more}."
    elif status == "described" and only_output(circuit) is None:
        says = (
            f"{len(kept)} of {n_edges} edges, most of the model, carry the {name}{against_it}, so "
            f"nothing is singled out: {named}{more}."
        )
    else:
        cut = f"Cutting any one of {len(own)} of {n_edges} edges changes the {name}{against_it}"
        if not own:
            cut = f"No one of {n_edges} edges, cut alone, is certain to change the {name}"
        but = {
            "partial": _how_much(held_out),
            "uninformative": ", but others of the same size carry as much",
            "undecided": "; whether they carry it alone is undecided",
        }.get(status, "")
        says = f"{cut}{but}: {named}{more}."
    if math.isinf(held_out.low) or math.isnan(held_out.share):
        return (
            f"{says} Cutting every edge is not certain to cost anything on the {held_out.n_rows} "
            f"held-out rows{left}."
        )
    because = only_output(circuit)
    about = "" if because is None else f" This is the output, whatever it is worth: {because}."
    if status in ("undecided", "uninformative"):
        about = f" The reason: {reason_of(circuit)}."
    return (
        f"{says} With all others replaced by {WORDS[circuit.stand_in]}, they keep "
        f"{_percent(held_out.share)} of what cutting every edge costs ({_interval(held_out)}, "
        f"{held_out.n_rows} held-out rows){left}.{about}"
    )


def _how_much(held_out: Faithfulness) -> str:
    """How a part is told: certainly less than all, certainly more, or not settled."""
    if held_out.high < 1:
        return ", but they carry only a part of it"
    if held_out.low > 1:
        return ", and alone they keep more than the whole model has"
    return ", but how much of it they carry alone is not settled"


def _screened(circuit: Circuit, held_out: Faithfulness, found: Screening) -> str:
    """Of a large model's circuit: what it keeps, what in it costs most, how it was looked for."""
    kept = circuit.kept
    nodes = {e.edge.source for e in kept}
    heads, mlps = (sum(n.kind == kind for n in nodes) for kind in ("head", "mlp"))
    status, reason = judged(circuit)
    part = {True: "only a part of it", False: "how much of it is not settled"}[held_out.high < 1]
    amount = {
        "detected": f"as much as the whole model, within {EQUAL:.0%}",
        "partial": "more than the whole model has" if held_out.low > 1 else part,
        "uninformative": f"but {reason}",
        "undecided": f"what that says is undecided: {reason}",
        "described": f"but {reason}",
    }[status]
    sentences = [
        f"{len(kept):,} of {len(circuit.edges):,} edges, from {heads} of "
        f"{circuit.wiring.n_layers * circuit.wiring.n_heads} heads and {mlps} MLPs, keep "
        f"{_percent(held_out.share)} of the {circuit.objective.name} with all others replaced by "
        f"{WORDS[circuit.stand_in]} ({_interval(held_out)}, {held_out.n_rows} held-out rows): "
        f"{amount}."
    ]
    cut = [(n, e) for n, e in circuit.node_effects.items() if n.kind == "head"]
    sure = sorted((item for item in cut if item[1].low > 0), key=lambda item: -item[1].mean)
    if sure:
        named = ", ".join(
            f"{label_of(n.name)} ({e.mean:.2g} [{e.low:.2g}, {e.high:.2g}])"
            for n, e in sure[:NODES_NAMED]
        )
        whole = circuit.intact - circuit.all_cut
        sentences.append(
            f"Of the {len(cut)} heads in it that were cut one at a time these cost most: {named}, "
            f"of {whole:.2g} {circuit.objective.unit}."
        )
    sentences.append(_looked_for(found))
    return " ".join(sentences)


def _looked_for(found: Screening) -> str:
    """How far the search went, and what it may have missed."""
    ended = (
        "of the last of them none is seen to matter"
        if found.last_block_idle
        else "the search stopped for its price while some still mattered"
    )
    said = f"{found.in_order} edges were cut one by one, the largest estimates first: {ended}"
    if not found.sampled:
        return f"{said}."
    seen = "none is" if not found.sample_matters else f"{found.sample_matters} are"
    return (
        f"{said}; of {found.sampled} drawn from the rest {seen} seen to (that share is at most "
        f"{found.missed_at_most:.0%}, one-sided {COVERAGE:.0%})."
    )


def _stands(checks: Checks | None, held_out: Faithfulness, n_kept: int) -> list[str]:
    """What the circuit stood up to, in one sentence."""
    if checks is None or math.isinf(held_out.low) or math.isnan(held_out.share):
        return []
    said = []
    if not math.isinf(checks.rest.low):
        low, high = checks.rest.low, checks.rest.high
        kept = f"{_percent(checks.rest.share)} [{_percent(low)}, {_percent(high)}]"
        said.append(f"without them the model keeps {kept}")
    rivals = len(checks.exchanged) + len(checks.drawn)
    as_good = checks.as_good(held_out.share)
    said.append(
        f"{as_good or 'none'} of {rivals} other circuits of the same size keep as much"
        if rivals
        else "there is no other circuit of the same size"
    )
    asked = len(checks.chosen_again)
    unstable = asked - checks.n_stable
    if unstable:
        of = f"{unstable:,} of its {asked:,} edges"
        of += " that were chosen by themselves" if asked < n_kept else ""
        said.append(f"{of} are chosen in fewer than {STABLE:.0%} of bootstraps of the rows")
    sentence = "; ".join(said) + "."
    return [sentence[0].upper() + sentence[1:]]


def _interval(found: Faithfulness) -> str:
    """With a decimal where the bound of a verdict is so near that whole percents would hide it."""
    ends = (found.low, found.high)
    near = any(abs(end - bound) < 0.01 for end in ends for bound in (1 - EQUAL, 1, 1 + EQUAL))
    low, high = (f"{100 * end:.1f}%" if near else _percent(end) for end in ends)
    return f"{COVERAGE:.0%} interval {low} to {high}"


def _percent(share: float) -> str:
    """Whole percents, and no minus in front of a nought."""
    return f"{round(100 * share):d}%"


def _finite(end: float) -> float | None:
    return None if math.isinf(end) else end
