"""The verdict on a circuit: does it carry the behaviour alone, or does cutting it only hurt?

Cutting an edge shows that the behaviour needs it; that the edges found carry the behaviour is shown
by what they keep when all others are cut, on held-out rows: detected where the interval of that
share is at least FAITHFUL, partial where it is above 0, else not detected.
"""

from __future__ import annotations

import math

from interp_toolkit.circuits.edges.result import CircuitEvidence
from interp_toolkit.circuits.edges.search import SHARE, Circuit
from interp_toolkit.circuits.edges.wiring import label_of
from interp_toolkit.results import Status
from interp_toolkit.stats import COVERAGE

FAITHFUL = 0.5  # of what cutting every edge costs: half, by convention
NAMED = 6  # edges that the verdict names


def status_of(circuit: Circuit) -> Status:
    """Whether the edges found carry the behaviour alone (see the module)."""
    held_out = circuit.held_out
    if circuit.nothing is not None or not circuit.kept or held_out is None:
        return "not_detected"
    if math.isnan(held_out.share):
        return "undecided"
    if held_out.low >= FAITHFUL:
        return "detected"
    return "partial" if held_out.low > 0 else "not_detected"


def reason_of(circuit: Circuit) -> str | None:
    """Why there is no circuit, or only a part of one; None where there is."""
    status = status_of(circuit)
    if status == "detected":
        return None
    if circuit.nothing is not None:
        return circuit.nothing
    if not circuit.kept or circuit.held_out is None:
        return "no edge, cut alone, both matters and lies on a path of such edges"
    if status == "partial":
        return f"the interval of what the edges keep alone reaches below {FAITHFUL:.0%}"
    if status == "undecided":
        return "cutting every edge costs nothing on the held-out rows"
    if circuit.held_out.high < 0:
        return "alone, the edges do worse than with every edge cut"
    return "the interval of what the edges keep alone holds 0"


def evidence_of(circuit: Circuit) -> CircuitEvidence:
    """What the verdict rests on."""
    held_out, chosen_on = circuit.held_out, circuit.chosen_on
    found: dict[str, float | int | str] = {}
    if circuit.nothing is None and held_out is not None and chosen_on is not None:
        found = {
            "edges_cut_one_by_one": circuit.n_measured,
            "edges_estimated_only": len(circuit.edges) - circuit.n_measured,
            "faithfulness": held_out.share,
            "faithfulness_low": held_out.low,
            "faithfulness_high": held_out.high,
            "faithfulness_where_chosen": chosen_on.share,
            "rule": (
                "Holm-adjusted p at most the level, " if circuit.objective.is_behaviour else ""
            )
            + f"effect at least {SHARE:.0%} of what cutting every edge costs",
        }
    return CircuitEvidence(
        status=status_of(circuit),
        reason=reason_of(circuit),
        measured=f"{circuit.objective.name}: {circuit.objective.definition}",
        unit=circuit.objective.unit,
        intact=circuit.intact,
        every_edge_cut=circuit.all_cut,
        edges=len(circuit.edges),
        cut_edges_get="the mean over other prompts, position by position",
        **found,  # type: ignore[arg-type]
    )


def verdict(circuit: Circuit) -> str:
    """What was found and no more: which edges, and how much they carry alone."""
    if circuit.nothing is not None:
        return f"No circuit: {circuit.nothing}."
    kept, held_out = circuit.kept, circuit.held_out
    name = circuit.objective.name
    if not kept or held_out is None:
        return (
            f"No circuit: of {circuit.n_measured} edges cut one by one, none both changes "
            f"the {name} and lies on a path of such edges from input to logits."
        )
    named = ", ".join(label_of(e.edge.name) for e in kept[:NAMED])
    more = f" and {len(kept) - NAMED} more" if len(kept) > NAMED else ""
    against = sum((e.effect or 0.0) < 0 for e in kept)
    against_it = f" ({against} of them against it)" if against else ""
    n_edges, n_measured = len(circuit.edges), circuit.n_measured
    left = f"; {n_edges - n_measured} edges were estimated only" if n_measured < n_edges else ""
    interval = f"{COVERAGE:.0%} interval {held_out.low:.0%} to {held_out.high:.0%}"
    says = {
        "detected": f"{len(kept)} of {n_edges} edges carry the {name}{against_it}: {named}{more}.",
        "partial": f"Cutting any one of {len(kept)} of {n_edges} edges changes the "
        f"{name}{against_it}, "
        + (
            "but they carry only a part of it"
            if held_out.high < 1
            else "but how much of it they carry alone is not settled"
        )
        + f": {named}{more}.",
        "not_detected": f"Cutting any one of {len(kept)} of {n_edges} edges changes the "
        f"{name}{against_it}, but alone they are not seen to carry it: {named}{more}.",
        "undecided": f"Cutting any one of {len(kept)} of {n_edges} edges changes the "
        f"{name}{against_it}; what they carry alone cannot be told: {named}{more}.",
    }[status_of(circuit)]
    if math.isnan(held_out.share):
        return (
            f"{says} Cutting every edge costs nothing on the {held_out.n_rows} held-out rows{left}."
        )
    because = circuit.objective.because
    about = "" if because is None else f" This is the output, whatever it is worth: {because}."
    return (
        f"{says} With all others replaced by their mean over other prompts, they keep "
        f"{held_out.share:.0%} of what cutting every edge costs ({interval}, {held_out.n_rows} "
        f"held-out rows){left}.{about}"
    )
