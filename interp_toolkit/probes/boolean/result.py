"""What the analysis of a boolean function on a model returns, and how it words its verdict.

A site is a hook point at a position; its status comes from `separability`, its accuracy from
the logistic probe, its controls from the same activations under other labels and other weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from interp_toolkit.probes.estimators.separability import Status
from interp_toolkit.probes.estimators.witness import Certificate, Hyperplane
from interp_toolkit.results import Figure, Result, Table, head_name

if TYPE_CHECKING:
    import pandas as pd

SELDOM_REPEATED = 0.5  # share of distinct activations below which most rows repeat another
SIGNIFICANCE = 0.05  # of the corrected p-value, for a held-out accuracy to be called above chance


@dataclass(frozen=True)
class HeldOut:
    """The logistic probe's figures on rows it was not fitted on, and what shuffled labels give.

    Attributes:
        accuracy: share of rows right.
        balanced_accuracy: mean of the two classes' shares.
        auroc: area under the ROC curve.
        calibration_error: expected calibration error of the probabilities.
        null_balanced_accuracy: mean over shuffled labels, same folds and regularisation.
        reinitialised_balanced_accuracy: mean over copies of the model with permuted weights.
        p_value: of the balanced accuracy, corrected for the sites looked at (max statistic).
    """

    accuracy: float
    balanced_accuracy: float
    auroc: float
    calibration_error: float
    null_balanced_accuracy: float
    reinitialised_balanced_accuracy: float
    p_value: float


@dataclass(frozen=True)
class SiteVerdict:
    """The verdict at one hook point and position.

    Attributes:
        hook: hook name.
        position: token position; None when it differs from row to row.
        function: the function's name, or its truth table.
        status: separable, not_separable or undecided.
        basis: what the status rests on: "points" (a witness on the activations) or "theorem" (one
            head, verified through its denominators where the points alone left it undecided).
        margin: gap along the best direction found, in activation units; negative: overlap.
        relative_margin: the same over the largest activation's norm.
        accuracy: of the probe, held out if there is held-out data, else on the points.
        hyperplane: the witness of 'separable'.
        certificate: the witness of 'not separable'.
        denominators: the softmax denominators as a certificate, where the one-head theorem applies
            and it verifies; None elsewhere.
        denominator_residual: distance of the two combinations under the softmax denominators,
            over the largest activation's norm; None where the theorem does not apply.
        theorem: "applies", or the hypothesis that fails.
        reason: why this status, in a phrase.
        precision: dtype the activations were computed in.
        floor: smallest gap that counts at this precision, in activation units.
        n_rows: rows of data; n_points: distinct activations; affine_dim: dimension they span.
        chance: that random labels of so many points in general position are separable.
        contradictions: activations that occur under both labels.
        same_input: whether, in one of them, the very same prompt has both labels.
        labelings: (separable, tried) relabellings of the same points with the same class sizes;
            on sampled data shuffled labels, where Cover's chance alone would not say enough.
        reinitialised: (separable, tried) re-initialised models on which the function is separable;
            None for sampled data (see `HeldOut`).
        held_out: see `HeldOut`; None when the data is one row per input.
        controls: accuracy of probes for other functions of the same features here; on sampled data
            balanced and held out.
    """

    hook: str
    position: int | None
    function: str
    status: Status
    basis: str
    margin: float
    relative_margin: float
    accuracy: float
    hyperplane: Hyperplane | None
    certificate: Certificate | None
    denominators: Certificate | None
    denominator_residual: float | None
    theorem: str
    reason: str
    precision: str
    floor: float
    n_rows: int
    n_points: int
    affine_dim: int
    chance: float
    contradictions: int
    same_input: bool
    labelings: tuple[int, int] | None
    reinitialised: tuple[int, int] | None
    held_out: HeldOut | None
    controls: Mapping[str, float]

    @property
    def name(self) -> str:
        """As a person would say it."""
        return self.hook if self.position is None else f"{self.hook}, position {self.position}"


@dataclass(frozen=True)
class HeadEffect:
    """What one head contributes to the probe's score at the site, and what its absence leaves.

    Attributes:
        layer, head: which.
        contrast: mean score it adds where the function is true, less where it is false.
        share: of the contrasts' sum over all heads and everything else.
        status_ablated: separability with this head replaced by its mean (None: not asked).
        accuracy_ablated: of the unchanged probe then, on all rows.
        accuracy_intact: of that probe with every head in place. It was fitted on these rows, so
            this is what to compare `accuracy_ablated` with, not the accuracy held out.
    """

    layer: int
    head: int
    contrast: float
    share: float
    status_ablated: Status | None
    accuracy_ablated: float
    accuracy_intact: float


@dataclass(frozen=True)
class BooleanResult(Result):
    """The analysis of one boolean function on one model.

    Attributes:
        sites: one verdict per hook point and position.
        heads: the split of the probe's score at the focus site, if it is a sum over heads.
        focus: index of the site the figures and the split are about.
        notes: what was left out, and why.
    """

    sites: Sequence[SiteVerdict]
    heads: Sequence[HeadEffect]
    focus: int
    notes: Sequence[str]
    plots: Sequence[Figure] = field(repr=False, default=())

    omit_from_json: ClassVar[frozenset[str]] = frozenset({"plots"})

    def to_frame(self) -> pd.DataFrame:
        """One row per site."""
        import pandas as pd

        return pd.DataFrame([_site_row(site) for site in self.sites])

    def tables(self) -> list[Table]:
        """The sites; then their controls; then the heads."""
        tables = [_site_table(self.sites, self.focus), _control_table(self.sites)]
        if self.heads:
            tables.append(_head_table(self.heads, self.sites[self.focus]))
        return tables

    def figures(self) -> list[Figure]:
        """The picture that explains the verdict first."""
        return list(self.plots)


def _site_row(site: SiteVerdict) -> dict[str, Any]:
    row: dict[str, Any] = {
        "hook": site.hook,
        "position": site.position,
        "function": site.function,
        "status": site.status,
        "margin": site.margin,
        "relative_margin": site.relative_margin,
        "accuracy": site.accuracy,
        "n_points": site.n_points,
        "affine_dim": site.affine_dim,
        "chance": site.chance,
    }
    if site.held_out is not None:
        row |= {
            "balanced_accuracy": site.held_out.balanced_accuracy,
            "auroc": site.held_out.auroc,
            "calibration_error": site.held_out.calibration_error,
            "p_value": site.held_out.p_value,
        }
    return row


def _site_table(sites: Sequence[SiteVerdict], focus: int) -> Table:
    held_out = any(site.held_out for site in sites)
    columns = ["hook", "position", "status", "gap", "accuracy"]
    columns += ["balanced", "p", "AUROC"] if held_out else ["chance"]
    rows: list[list[Any]] = []
    for site in sites:
        row = [site.hook, site.position, site.status, site.margin, site.accuracy]
        if held_out:
            figures = site.held_out
            row += (
                [figures.balanced_accuracy, figures.p_value, figures.auroc]
                if figures
                else [None, None, None]
            )
        else:
            row.append(site.chance)
        rows.append(row)
    caption = (
        "Gap: distance between the classes along the best direction found, in activation units; "
        "negative where they overlap. Accuracy: "
        + ("held out. p: corrected for the sites." if held_out else "on the points themselves. ")
        + ("" if held_out else "Chance: that random labels would be separable (Cover).")
    )
    return Table("Sites", columns, rows, caption, highlight=[focus] if len(sites) > 1 else [])


def _control_table(sites: Sequence[SiteVerdict]) -> Table:
    names = list(sites[0].controls)
    rows = []
    for site in sites:
        cells: list[Any]
        if site.held_out:
            null, again = (
                site.held_out.null_balanced_accuracy,
                site.held_out.reinitialised_balanced_accuracy,
            )
            cells = [None if math.isnan(value) else value for value in (null, again)]
        else:
            pairs = (site.labelings, site.reinitialised)
            cells = [f"{pair[0]} of {pair[1]}" if pair else None for pair in pairs]
        rows.append([site.hook, site.position, *[site.controls[n] for n in names], *cells])
    relabelled = "shuffled labels" if sites[0].held_out else "other labelings"
    columns = ["hook", "position", *names, relabelled, "re-initialised"]
    kept = [i for i in range(len(columns)) if any(row[i] is not None for row in rows)]
    return Table(
        "Controls",
        [columns[i] for i in kept],
        [[row[i] for i in kept] for row in rows],
        (
            "Held-out balanced accuracy of probes for other functions at the same site; and of the "
            "function itself under shuffled labels and on re-initialised models."
            if sites[0].held_out
            else "Accuracy of probes for other functions at the same site; and the function itself "
            "under other labelings of the same inputs and on re-initialised models (separable)."
        ),
    )


def _head_table(heads: Sequence[HeadEffect], site: SiteVerdict) -> Table:
    columns = ["head", "contrast", "share", "accuracy ablated", "status ablated"]
    rows = [
        [head_name(h.layer, h.head), h.contrast, h.share, h.accuracy_ablated, h.status_ablated]
        for h in heads
    ]
    if all(h.status_ablated is None for h in heads):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return Table(
        "Heads",
        columns,
        rows,
        f"The probe's score at {site.name}, split by head: the score a head adds where the "
        "function is true less where it is false. Ablated: the head replaced by its mean; with "
        f"all heads, the same probe is right on {heads[0].accuracy_intact:.3g} of these rows.",
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
            for status in ("separable", "not_separable", "undecided")
            if (n := sum(s.status == status for s in sites))
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
            theorem = (
                " No head alone could do it, whatever its weights: its softmax denominators are "
                f"such weights (relative error {site.denominator_residual:.1g})."
            )
        return (
            f"{function} is not linearly separable {where}, on {_inputs(site)}: convex "
            f"combinations of the two classes coincide to {site.precision} precision (residual "
            f"{residual:.1g}).{theorem}"
        )
    return f"Undecided whether {function} is linearly separable {where}: {site.reason}."


def _inputs(site: SiteVerdict) -> str:
    rows = f"{site.n_rows} {'rows' if site.held_out else 'inputs'}"
    if site.n_points == site.n_rows:
        return rows
    return f"{rows} ({site.n_points} distinct activations)"


def _caveat(site: SiteVerdict) -> str:
    """What keeps a reader from making too much of it."""
    caveats = []
    if site.contradictions:
        caveats.append(_contradiction(site))
    if site.status == "separable" and site.labelings is not None:
        separable, tried = site.labelings
        if tried:
            kind = "shuffled labelings" if site.held_out else "other labelings"
            caveats.append(f"Also separable: {separable} of {tried} {kind} of them")
            if site.reinitialised is not None:
                count, copies = site.reinitialised
                caveats[-1] += f"; {site.function} in {count} of {copies} re-initialised models"
            caveats[-1] += "."
    elif site.status == "separable" and site.chance > SIGNIFICANCE:
        caveats.append(
            f"By itself that says little: random labels of {site.n_points} points in "
            f"{site.affine_dim} dimensions are separable with chance {site.chance:.2g}."
        )
    if site.held_out is not None:
        caveats.append(_held_out(site.held_out))
        if site.n_points < SELDOM_REPEATED * site.n_rows:
            caveats.append("Most rows held out repeat activations that it was fitted on.")
    return "".join(f" {caveat}" for caveat in caveats)


def _contradiction(site: SiteVerdict) -> str:
    n = site.contradictions
    shared = f"{n} activation{'s' if n > 1 else ''}"
    if site.same_input:
        return (
            f"{shared} belong{'' if n > 1 else 's'} to both classes, and so does a prompt itself: "
            "a contradiction in the data that no probe can resolve."
        )
    return f"Inputs of both classes share {shared} there, which nothing can tell apart."


def _held_out(figures: HeldOut) -> str:
    if math.isnan(figures.balanced_accuracy):
        return "There are too few rows of one class to hold any out."
    if math.isnan(figures.p_value):
        return (
            f"Held out, the probe's balanced accuracy is {figures.balanced_accuracy:.3g}; there is "
            "no null to compare it with."
        )
    beats = "above" if figures.p_value <= SIGNIFICANCE else "not above"
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
