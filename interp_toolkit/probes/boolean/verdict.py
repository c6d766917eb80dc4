"""The verdict on a boolean function: which site says most, whether a null explains it, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from interp_toolkit.probes.boolean.result import (
    BooleanEvidence,
    HeadEffect,
    SiteVerdict,
)
from interp_toolkit.results import head_name
from interp_toolkit.stats import LEVEL

SELDOM_REPEATED = 0.5  # share of distinct activations below which most rows repeat another


def focus_of(sites: Sequence[SiteVerdict]) -> int:
    """The index of the site that says most.

    The best one held out where any is, else the widest gap among the separable, else the last
    with a witness, else the last.
    """

    def says(i: int) -> tuple[float, float]:
        site = sites[i]
        if site.held_out is not None:
            return 3 + np.nan_to_num(site.held_out.balanced_accuracy), site.relative_margin
        order = {"separable": 2.0, "not_separable": 1.0, "undecided": 0.0}[site.status]
        return order, site.relative_margin if site.status == "separable" else float(i)

    return max(range(len(sites)), key=says)


def evidence_of(site: SiteVerdict) -> BooleanEvidence:
    """What the verdict rests on, at the site that says most."""
    found = site.separability
    witness = "hyperplane" if site.hyperplane else "certificate" if site.certificate else None
    return BooleanEvidence(
        status=site.outcome,
        reason=site.judgement[1],
        site=site.name,
        witness=witness,
        certificate_residual=site.certificate.residual if site.certificate else None,
        smallest_gap=found.floor,
        heads_theorem=site.theorem,
        denominator_residual=site.denominator_residual,
        cover_chance=found.chance,
        labelings=site.labelings,
        reinitialised=site.reinitialised,
        controls=site.controls,
    )


def verdict(
    function: str, sites: Sequence[SiteVerdict], heads: Sequence[HeadEffect], focus: int
) -> str:
    """The verdict in one sentence, or two where there is something to add."""
    site = sites[focus]
    sentence = _about(function, site)
    if len(sites) > 1:
        counts = ", ".join(
            f"{n} {status.replace('_', ' ')}"
            for status in ("separable", "not_separable", "uninformative", "undecided")
            if (n := sum(s.outcome == status for s in sites))
        )
        sentence = f"Of {len(sites)} sites: {counts}. {sentence}"
    return sentence + _caveat(site) + _carried(heads)


def _about(function: str, site: SiteVerdict) -> str:
    where = f"at {site.name}"
    if site.status == "separable":
        return (
            f"{function} is linearly separable {where}: a verified hyperplane leaves a gap of "
            f"{site.margin:.4g} ({site.relative_margin:.2g} of the largest activation) between "
            f"its classes on {_inputs(site)}."
        )
    if site.status == "not_separable":
        certificate = site.certificate
        residual = certificate.residual if certificate else 0.0
        theorem = ""
        if site.theorem == "applies":
            theorem = _too_few(site)
        return (
            f"{function} is not linearly separable {where}, on {_inputs(site)}: convex "
            "combinations of the two classes coincide to "
            f"{site.separability.precision} precision (residual {residual:.1g}).{theorem}"
        )
    return (
        f"Undecided whether {function} is linearly separable {where}: {site.separability.reason}."
    )


def _too_few(site: SiteVerdict) -> str:
    """What the theorem adds, in a sentence."""
    subject, whose = "No head alone", "its softmax denominators"
    if site.heads_needed != 2:
        subject = f"No layer of fewer than {site.heads_needed} heads"
        whose = "products of the softmax denominators"
    if not site.evenly_weighted:
        whose += ", weighted by the inputs that the function's threshold degree rests on,"
    return (
        f" {subject} could do it, whatever its weights: {whose} are such weights "
        f"(relative error {site.denominator_residual:.1g})."
    )


def _inputs(site: SiteVerdict) -> str:
    rows = f"{site.n_rows} {'rows' if site.held_out else 'inputs'}"
    if site.separability.n_points == site.n_rows:
        return rows
    return f"{rows} ({site.separability.n_points} distinct activations)"


def _caveat(site: SiteVerdict) -> str:
    """What keeps a reader from making too much of it."""
    caveats = []
    found = site.separability
    if found.contradictions:
        caveats.append(_contradiction(site))
    if site.status == "separable" and site.labelings is not None:
        separable, tried = site.labelings.separable, site.labelings.tried
        if tried:
            kind = "shuffled labelings" if site.held_out else "other labelings"
            caveats.append(f"Also separable: {separable} of {tried} {kind} of them")
            if site.labelings.contradictory:
                n = site.labelings.contradictory
                caveats[-1] += f" ({n} give one activation both labels)"
            if site.reinitialised is not None:
                copies = site.reinitialised
                caveats[-1] += (
                    f"; {site.function} in {copies.separable} of {copies.tried} re-initialised "
                    "models"
                )
            caveats[-1] += "."
    elif site.status == "separable" and found.chance > LEVEL:
        caveats.append(
            f"By itself that says little: random labels of {found.n_points} points in "
            f"{found.affine_dim} dimensions are separable with chance {found.chance:.2g}."
        )
    if site.held_out is not None:
        caveats.append(_held_out(site))
        if found.n_points < SELDOM_REPEATED * site.n_rows:
            caveats.append("Most rows held out repeat activations that it was fitted on.")
    if site.explained_by_null:
        caveats.append(f"So this says nothing of the function: {site.judgement[1]}.")
    elif site.status == "separable" and site.outcome == "undecided":
        caveats.append(f"Whether that says anything is undecided: {site.judgement[1]}.")
    return "".join(f" {caveat}" for caveat in caveats)


def _contradiction(site: SiteVerdict) -> str:
    n = site.separability.contradictions
    shared = f"{n} activation{'s' if n > 1 else ''}"
    if site.same_input:
        return (
            f"{shared} belong{'' if n > 1 else 's'} to both classes, and so does a prompt itself: "
            "a contradiction in the data that no probe can resolve."
        )
    return f"Inputs of both classes share {shared} there, which nothing can tell apart."


def _held_out(site: SiteVerdict) -> str:
    figures = site.held_out
    assert figures is not None
    if math.isnan(figures.balanced_accuracy):
        return "There are too few rows of one class to hold any out."
    if math.isnan(figures.p_value):
        return (
            f"Held out, the probe's balanced accuracy is {figures.balanced_accuracy:.3g}; there is "
            "no null to compare it with."
        )
    beats = "above" if figures.p_value <= LEVEL else "not above"
    return (
        f"Held out, the probe's balanced accuracy is {figures.balanced_accuracy:.3g}, {beats} "
        f"shuffled labels ({figures.null_balanced_accuracy:.3g}; corrected "
        f"p = {figures.p_value:.2g})."
    )


def _carried(heads: Sequence[HeadEffect]) -> str:
    needed = [h for h in heads if h.status_ablated == "not_separable"]
    if not needed:
        return ""
    names = ", ".join(head_name(h.layer, h.head) for h in needed)
    word = names if len(needed) == 1 else f"any one of {names}"
    return f" Without {word} it is not separable."
