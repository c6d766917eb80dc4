"""Results of the analysis of a boolean function: sites, nulls, heads, findings.

A site is a hook point at a position; its status comes from `separability`, its accuracy from
the logistic probe, its controls from the same activations under other labels and other weights.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from interp_toolkit.evidence import (
    Control,
    control_of_copies,
    control_of_p,
    control_of_rank,
    effect_status,
    left_open,
)
from interp_toolkit.finding import Finding, column, records
from interp_toolkit.formatting import listed
from interp_toolkit.probes.estimators.separability import Certificate, Hyperplane, Separability
from interp_toolkit.probes.estimators.separability import Status as SeparabilityStatus
from interp_toolkit.results import Evidence, Status, Table, head_name, jsonable
from interp_toolkit.stats import LEVEL, TIE

if TYPE_CHECKING:
    import pandas as pd


SELDOM_REPEATED = 0.5  # fraction of distinct activations below which most rows are repeats
SHUFFLED_LABELS, OTHER_LABELS, RANDOM_LABELS = "shuffled labels", "other labels", "random labels"
COPIES = "weight-shuffled models"
CHANCE = 0.5  # balanced accuracy of a guess
COPIES_LEVEL = LEVEL / 2  # of the rank among copies, whose margins have no interval
MARGIN_COPIES = round(1 / COPIES_LEVEL) - 1  # none of which may be as good


def reaches(value: float, own: float) -> bool:
    """Whether a value under a null is as large as the model's own."""
    return value >= own * (1 - TIE)


@dataclass(frozen=True)
class HeldOutFigures:
    """The logistic probe's scores on held-out rows, and the null of shuffled labels.

    Attributes:
        accuracy: fraction of rows classified correctly.
        balanced_accuracy: mean of the two classes' accuracies, at the odds of the fitted rows.
        low, high: its exact interval at 95 %, over distinct inputs or groups of rows.
        auroc: area under the ROC curve.
        calibration_error: expected calibration error of the probabilities.
        null_balanced_accuracy: mean over shuffled labels, same folds and choice of
            regularization.
        reinitialised_balanced_accuracy: mean at this site over copies with permuted weights.
        p_value: p-value of the balanced accuracy, corrected for the number of sites (max
            statistic).
        shuffles: number of shuffled labels in the null.
    """

    accuracy: float
    balanced_accuracy: float
    low: float
    high: float
    auroc: float
    calibration_error: float
    null_balanced_accuracy: float
    reinitialised_balanced_accuracy: float
    p_value: float
    shuffles: int


@dataclass(frozen=True)
class LabelingNull:
    """Other labelings of the same points, with the same class sizes.

    Attributes:
        separable: number of linearly separable labelings.
        tried: number of labelings tested.
        contradictory: number that give one activation both labels, and so cannot be separable.
        as_good: number that are separable with at least the function's own margin.
    """

    separable: int
    tried: int
    contradictory: int
    as_good: int


@dataclass(frozen=True)
class CopyNull:
    """Copies of the model in which the entries of every weight tensor are permuted.

    Attributes:
        separable: number of copies in which the function is separable at this site; None for
            sampled data.
        tried: number of copies. None are added once those that reach the model's value at some site
            are too many for a finding at any.
        best: each copy's largest value over all sites: relative margin, or held-out balanced
            accuracy for sampled data.
    """

    separable: int | None
    tried: int
    best: Sequence[float]

    def as_good(self, value: float) -> int:
        """Number of copies that reach a value at some site."""
        return sum(reaches(best, value) for best in self.best)


@dataclass(frozen=True)
class SiteVerdict:
    """The verdict at one hook point and position.

    Attributes:
        hook: hook name.
        position: token position; None if it differs from row to row.
        function: the function's name, or its truth table.
        separability: separability of the classes, with its witness.
        basis: the source of the status: "points" (a witness on the activations) or "theorem" (too
            few heads, verified by the denominators where the points alone were undecided).
        accuracy: accuracy of the probe, on held-out data if there is any, else on the points.
        denominators: the (weighted) softmax denominators as a certificate, if the theorem on
            heads applies and the certificate verifies; else None.
        denominator_residual: distance of the two combinations under these weights,
            relative to the largest activation's norm; None if the theorem does not apply.
        theorem: "applies", or the hypothesis that fails.
        heads_needed: least number of heads for the function, if the theorem applies.
        evenly_weighted: whether all inputs have equal weight, as for XOR and parity: the
            certificate then consists of the denominators, or their products, alone. Otherwise
            inputs are weighted as in `threshold_degree`.
        n_rows: rows of data.
        same_input: whether one and the same prompt has both labels.
        labelings: the null of other labelings. On sampled data these are shuffled labels, present
            only if Cover's probability is inconclusive; else None.
        reinitialised: the null of weight-shuffled models; None if there were no copies.
        held_out: scores on held-out rows; None if the data has one row per input.
        controls: accuracy of probes for other functions of the same features at this site; on
            sampled data balanced and held out.
        unread: features on which the function depends that are not shown to be readable at this
            site, on sampled data.
    """

    hook: str
    position: int | None
    function: str
    separability: Separability
    basis: str
    accuracy: float
    denominators: Certificate | None
    denominator_residual: float | None
    theorem: str
    heads_needed: int | None
    evenly_weighted: bool
    n_rows: int
    same_input: bool
    labelings: LabelingNull | None
    reinitialised: CopyNull | None
    held_out: HeldOutFigures | None
    controls: Mapping[str, float]
    unread: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name for display."""
        return self.hook if self.position is None else f"{self.hook}, position {self.position}"

    @property
    def status(self) -> SeparabilityStatus:
        """Separable, not_separable or undecided."""
        return self.separability.status

    @property
    def margin(self) -> float:
        """Gap along the best direction tried, in activation units; negative if classes overlap."""
        return self.separability.margin

    @property
    def relative_residual(self) -> float | None:
        """The certificate's residual relative to the largest activation's norm."""
        if self.certificate is None:
            return None
        return self.certificate.residual / (self.separability.scale or 1.0)

    @property
    def relative_margin(self) -> float:
        """The gap relative to the largest activation's norm."""
        return self.separability.relative_margin

    @property
    def hyperplane(self) -> Hyperplane | None:
        """The hyperplane, if the classes are separable."""
        return self.separability.hyperplane

    @property
    def certificate(self) -> Certificate | None:
        """The certificate, if the classes are not separable."""
        return self.separability.certificate

    @property
    def value(self) -> float:
        """What nulls are compared by: held-out balanced accuracy, else the relative margin."""
        figures = self.held_out
        if figures is None or math.isnan(figures.balanced_accuracy):
            return self.relative_margin
        return figures.balanced_accuracy

    @property
    def judgement(self) -> tuple[Status, str | None]:
        """The status by the evidence rule, and why the function is not shown to be readable.

        A certificate needs no control; on sampled data it says nothing about the function where a
        feature that the function depends on cannot be read either. A hyperplane does, since any
        labels may have one. On sampled data the effect is the held-out balanced accuracy, the
        control shuffled labels. Otherwise the effect is the margin, known exactly, and the control
        is its rank among other labelings of the points or, where the data is sampled and that null
        was not needed, Cover's probability. In addition, models with shuffled weights must not
        reach the same value at any site. Where held-out rows are read but most labels would be
        separable, the status is "detected": a probe reads the function, and separability by itself
        is not informative.
        """
        if self.status == "not_separable" and self.unread:
            names = ", ".join(f"{name} {self.controls[name]:.2f}" for name in self.unread)
            return left_open(
                f"this does not test {self.function}, since the features are not shown to be "
                f"readable there (held-out balanced accuracy: {names})"
            )
        if self.status != "separable":
            return self.status, self.separability.reason
        if self.held_out is None or math.isnan(self.held_out.low):
            low, high, threshold, effect = self.value, self.value, 0.0, "margin"
        else:
            low, high, threshold = self.held_out.low, self.held_out.high, CHANCE
            effect = "held-out balanced accuracy"
        separates = self.held_out is None or self._labels_control().outcome == "passed"
        return effect_status(
            *(low, high, threshold, self._controls()),
            effect=effect,
            confirmed=self.status if separates else "detected",
            denied="uninformative",
        )

    @property
    def failed_control(self) -> str | None:
        """Name of the first control that separability does not exceed; None if there is none."""
        return next((c.name for c in self._controls() if c.outcome == "failed"), None)

    def _controls(self) -> list[Control]:
        controls = [self._held_out_control()]
        if not controls[0].counts:
            controls.append(self._labels_control())
        return [*controls, dataclasses.replace(self._copies_control(), required=True)]

    def _held_out_control(self) -> Control:
        name, figures = SHUFFLED_LABELS, self.held_out
        if figures is None:
            return Control(name, "powerless")
        return control_of_p(name, figures.p_value, LEVEL, 1 / (1 + figures.shuffles))

    def _labels_control(self) -> Control:
        name, null, chance = OTHER_LABELS, self.labelings, self.separability.chance
        if null is None or not null.tried:
            reason = f"random labels of as many points would be separable with chance {chance:.2g}"
            return Control(RANDOM_LABELS, "failed" if chance > LEVEL else "passed", reason)
        p_value, smallest = (1 + null.as_good) / (1 + null.tried), 1 / (1 + null.tried)
        control = control_of_p(name, p_value, LEVEL, smallest)
        if not control.counts and null.separable == null.tried:
            others = f"all {null.tried} other labelings tested, with the same class sizes,"
            return Control(name, "failed", f"{others} are separable too")
        if control.outcome != "failed":
            return control
        share = f"{null.as_good} of {null.tried} other labelings of these points, with the same"
        return Control(name, "failed", f"{share} class sizes, are separable with as large a margin")

    def _copies_control(self) -> Control:
        null, figures = self.reinitialised, self.held_out
        if null is None or not null.tried:
            return Control(COPIES, "powerless", f"not compared with {COPIES}")
        if figures is not None and not math.isnan(figures.low):
            return control_of_copies(COPIES, self.value, figures.low, np.array(null.best))
        reason = "reach as large a margin at some site"
        return control_of_rank(COPIES, null.as_good(self.value), null.tried, COPIES_LEVEL, reason)

    @property
    def explained_by_null(self) -> bool:
        """Whether separability is not informative here (see `judgement`)."""
        return self.outcome == "uninformative"

    @property
    def outcome(self) -> Status:
        """The status by the evidence rule (see `judgement`)."""
        return self.judgement[0]

    def to_dict(self) -> dict[str, Any]:
        """JSON data, with the fields of `separability` at the top level."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        separability: Separability = own.pop("separability")
        flat = {f.name: getattr(separability, f.name) for f in dataclasses.fields(separability)}
        del flat["direction"], flat["threshold"], flat["scale"]
        flat["cover_chance"] = flat.pop("chance")
        flat |= {"relative_margin": self.relative_margin, "hyperplane": self.hyperplane}
        flat["explained_by_null"] = self.explained_by_null
        data: dict[str, Any] = jsonable(own | flat)
        return data


@dataclass(frozen=True)
class HeadEffect:
    """The contribution of one head to the probe's score at the site, and the effect of ablating it.

    Attributes:
        layer, head: indices of the head.
        contrast: mean score it adds where the function is true, minus that where it is false.
        share: fraction of the contrasts' sum over all heads and other components.
        status_ablated: separability with this head replaced by its mean (None: not tested).
        accuracy_ablated: accuracy of the unchanged probe under the ablation, on all rows.
        accuracy_intact: accuracy of that probe without ablation. It was fitted on these rows, so
            `accuracy_ablated` must be compared with this and not with the held-out accuracy.
    """

    layer: int
    head: int
    contrast: float
    share: float
    status_ablated: Status | None
    accuracy_ablated: float
    accuracy_intact: float


@dataclass(frozen=True)
class BooleanEvidence(Evidence):
    """The evidence of the status, at the most informative site.

    Attributes:
        witness: "hyperplane" or "certificate", verified in float64 on the points; None if neither.
        certificate_residual: distance of the certificate's two combinations, relative to the
            largest activation's norm.
        smallest_margin: smallest margin above rounding at this precision, in activation units.
        heads_theorem: "applies", or the hypothesis that fails.
        denominator_residual: relative error of the softmax denominators as a certificate.
        cover_chance: probability that random labels of as many points in general position are
            separable; for points in special position, see `labelings`.
        labelings: the null of other labelings of these points.
        reinitialised: the null of weight-shuffled models.
        controls: accuracy of probes for other functions at this site.
    """

    site: str = column("site")
    witness: str | None = column("witness")
    certificate_residual: float | None = column("certificate's residual, relative")
    smallest_margin: float = column("margin threshold", unit="activation units")
    heads_theorem: str = column("theorem on heads")
    denominator_residual: float | None = column("denominators' relative error")
    cover_chance: float = column("Cover's chance for random labels")
    labelings: LabelingNull | None = column("other labelings")
    reinitialised: CopyNull | None = column("weight-shuffled models")
    controls: Mapping[str, float] = column("accuracy for other functions")


def _held_out(name: str) -> Callable[[SiteVerdict], float | None]:
    return lambda site: None if site.held_out is None else getattr(site.held_out, name)


@dataclass(frozen=True, kw_only=True)
class BooleanFinding(Finding):
    """The linear readability of one boolean function in one model.

    Attributes:
        sites: one verdict per hook point and position.
        heads: the split of the probe's score at the focus site, if it is a sum over heads.
        focus: index of the site that headline, figures and split are about.
    """

    evidence: BooleanEvidence
    sites: Sequence[SiteVerdict] = records(
        SiteVerdict,
        "Sites",
        "Margin: distance between the classes along the best direction found, in activation "
        "units; negative where they overlap. Accuracy: on sampled data held out, with its p "
        "corrected for the sites; else on the points themselves. Cover: the probability that "
        "random labels of as many points in general position are separable.",
        sparse=True,
        cells={
            "hook": lambda site: site.hook,
            "position": lambda site: site.position,
            "status": lambda site: site.outcome,
            "margin": lambda site: site.margin,
            "accuracy": lambda site: site.accuracy,
            "balanced": _held_out("balanced_accuracy"),
            "p": _held_out("p_value"),
            "AUROC": _held_out("auroc"),
            "Cover": lambda site: None if site.held_out else site.separability.chance,
        },
    )
    heads: Sequence[HeadEffect] = records(
        HeadEffect,
        "Heads",
        "The probe's score, split by head: a head's mean score where the function is true minus "
        "where it is false. Share: fraction of the sum over all heads and other components. "
        "Ablated: accuracy with the head replaced by its mean, on the rows that the probe was "
        "fitted to; all heads: accuracy of the same probe without ablation.",
        least=1,
        sparse=True,
        cells={
            "head": lambda head: head_name(head.layer, head.head),
            "contrast": lambda head: head.contrast,
            "share": lambda head: head.share,
            "accuracy ablated": lambda head: head.accuracy_ablated,
            "status ablated": lambda head: head.status_ablated,
            "all heads": lambda head: head.accuracy_intact,
        },
    )
    focus: int

    def to_dict(self) -> dict[str, Any]:
        """JSON data, each site on one level (see `SiteVerdict.to_dict`)."""
        return super().to_dict() | {"sites": [site.to_dict() for site in self.sites]}

    def to_frame(self) -> pd.DataFrame:
        """One row per site, with its separability and its held-out scores."""
        import pandas as pd

        return pd.DataFrame([_site_row(site) for site in self.sites])

    def tables(self) -> list[Table]:
        """The records' tables, and the table of controls, whose columns depend on the data."""
        sites, *heads = super().tables()
        bold = [self.focus] if len(self.sites) > 1 else []
        return [dataclasses.replace(sites, highlight=bold), _control_table(self.sites), *heads]


def _site_row(site: SiteVerdict) -> dict[str, Any]:
    row: dict[str, Any] = {
        "hook": site.hook,
        "position": site.position,
        "function": site.function,
        "status": site.status,
        "margin": site.margin,
        "relative_margin": site.relative_margin,
        "accuracy": site.accuracy,
        "n_points": site.separability.n_points,
        "affine_dim": site.separability.affine_dim,
        "cover_chance": site.separability.chance,
    }
    if site.held_out is not None:
        row |= {
            "balanced_accuracy": site.held_out.balanced_accuracy,
            "auroc": site.held_out.auroc,
            "calibration_error": site.held_out.calibration_error,
            "p_value": site.held_out.p_value,
        }
    return row


def _control_table(sites: Sequence[SiteVerdict]) -> Table:
    names = list(sites[0].controls)
    rows = []
    for site in sites:
        cells: list[Any]
        if site.held_out is not None:
            null, again = (
                site.held_out.null_balanced_accuracy,
                site.held_out.reinitialised_balanced_accuracy,
            )
            cells = [None if math.isnan(value) else value for value in (null, again)]
        else:
            pairs = (site.labelings, site.reinitialised)
            cells = [
                None
                if null is None or null.separable is None
                else f"{null.separable} of {null.tried}"
                for null in pairs
            ]
        rows.append([site.hook, site.position, *[site.controls[n] for n in names], *cells])
    relabelled = "shuffled labels" if sites[0].held_out else "other labelings"
    columns = ["hook", "position", *names, relabelled, "weight-shuffled"]
    filled = [i for i in range(len(columns)) if any(row[i] is not None for row in rows)]
    return Table(
        "Controls",
        [columns[i] for i in filled],
        [[row[i] for i in filled] for row in rows],
        (
            "Held-out balanced accuracy of probes for other functions at the same site; and of the "
            "function itself under shuffled labels and on weight-shuffled models."
            if sites[0].held_out
            else "Accuracy of probes for other functions at the same site; and the function itself "
            "under other labelings of the same inputs and on weight-shuffled models (separable)."
        ),
    )


def focus_of(sites: Sequence[SiteVerdict]) -> int:
    """The index of the most informative site.

    The site with the best balanced accuracy on held-out rows if there are any, else the separable
    site with the largest relative margin, else the last not separable one, else the last.
    """

    def says(i: int) -> tuple[float, float]:
        site = sites[i]
        if site.held_out is not None:
            return 3 + np.nan_to_num(site.held_out.balanced_accuracy), site.relative_margin
        order = {"separable": 2.0, "not_separable": 1.0, "undecided": 0.0}[site.status]
        return order, site.relative_margin if site.status == "separable" else float(i)

    return max(range(len(sites)), key=says)


def evidence_of(site: SiteVerdict) -> BooleanEvidence:
    """The evidence of the status, at the most informative site."""
    separability = site.separability
    witness = "hyperplane" if site.hyperplane else "certificate" if site.certificate else None
    return BooleanEvidence(
        status=site.outcome,
        reason=site.judgement[1],
        site=site.name,
        witness=witness,
        certificate_residual=site.relative_residual,
        smallest_margin=separability.tolerance,
        heads_theorem=site.theorem,
        denominator_residual=site.denominator_residual,
        cover_chance=separability.chance,
        labelings=site.labelings,
        reinitialised=site.reinitialised,
        controls=site.controls,
    )


def headline(site: SiteVerdict, heads: Sequence[HeadEffect]) -> str:
    """Whether the function is linearly separable at the site, and the heads necessary for it."""
    function, where = _subject(site), f"at {site.name}"
    if site.status == "undecided":
        return f"Undecided whether {function} is linearly separable {where}."
    if site.status == "not_separable" and site.outcome == "undecided":
        return f"{function} is not linearly separable {where}, but that does not test it."
    if site.status == "not_separable":
        return f"{function} is not linearly separable {where}."
    separable = f"{function} is linearly separable {where}"
    if site.outcome == "detected":
        separable = f"A linear probe reads {function} {where} on held-out rows"
    if site.outcome == "uninformative":
        return f"{separable}, but {_no_better(site)}."
    if site.outcome == "undecided":
        return f"{separable}; whether its separability is informative is undecided."
    needed = [head_name(h.layer, h.head) for h in heads if h.status_ablated == "not_separable"]
    if not needed:
        return f"{separable}."
    if len(needed) == 1:
        return f"{separable}; {needed[0]} is necessary."
    if len(needed) > 4:
        return f"{separable}; each of {listed(needed, 3)} is necessary."
    return f"{separable}; {', '.join(needed[:-1])} and {needed[-1]} are each necessary."


def _no_better(site: SiteVerdict) -> str:
    """What is separable, or read, as well as the function."""
    if site.failed_control == SHUFFLED_LABELS:
        return "held-out rows are not read significantly better than shuffled labels"
    if site.failed_control == RANDOM_LABELS:
        return f"so are random labels with chance {site.separability.chance:.2g}"
    if site.failed_control == OTHER_LABELS:
        return "so are other labelings of the same points"
    if site.failed_control != COPIES:
        return "held-out rows are read no better than by chance"
    if site.held_out is None:
        return "also in weight-shuffled models, with as large a margin"
    return "weight-shuffled models read it as well"


def _subject(site: SiteVerdict) -> str:
    return site.function if site.function.isalpha() else f"Function {site.function}"


def findings(sites: Sequence[SiteVerdict], heads: Sequence[HeadEffect], focus: int) -> list[str]:
    """Findings about the most informative site, the most important first."""
    site = sites[focus]
    separability = site.separability
    listed = []
    if site.outcome in ("undecided", "uninformative"):
        word = "Undecided" if site.outcome == "undecided" else "Not informative"
        listed.append(f"{word}: {(site.judgement[1] or '').replace(': ', ', ')}.")
    if site.status == "separable":
        listed.append(
            f"A verified hyperplane has a margin of {site.margin:.4g} "
            f"({site.relative_margin:.2g} of the largest activation norm) between the classes on "
            f"{_inputs(site)}."
        )
    if site.certificate is not None:
        listed.append(
            "Certificate: the classes' convex hulls intersect to "
            f"{separability.precision} precision (residual {site.certificate.residual:.1g}), on "
            f"{_inputs(site)}."
        )
    if separability.contradictions:
        listed.append(_contradiction(site))
    if site.status == "not_separable" and site.theorem == "applies":
        listed.append(_theorem(site))
    needed = [head_name(h.layer, h.head) for h in heads if h.status_ablated == "not_separable"]
    if needed:
        either = {1: needed[0], 2: f"either {' or '.join(needed)}"}
        heads_named = either.get(len(needed), f"any of {', '.join(needed)}")
        listed.append(f"If {heads_named} is mean-ablated, {_subject(site)} is not separable.")
    if site.held_out is not None:
        listed.append(_held_out_words(site))
    if site.status == "separable":
        listed += _null_words(site)
    if len(sites) > 1:
        counts = ", ".join(
            f"{n} {status.replace('_', ' ')}"
            for status in ("separable", "detected", "not_separable", "uninformative", "undecided")
            if (n := sum(s.outcome == status for s in sites))
        )
        listed.append(f"Verdicts at the {len(sites)} sites: {counts}.")
    return listed


def _theorem(site: SiteVerdict) -> str:
    subject, whose = "no single head", "its softmax denominators give"
    if site.heads_needed != 2:
        subject = f"no layer of fewer than {site.heads_needed} heads"
        whose = "products of the softmax denominators give"
    if not site.evenly_weighted:
        whose = whose.replace(" give", ", weighted by the inputs of its threshold degree, give")
    return (
        f"Theorem, whose hypotheses this model meets: {subject} can separate {site.function}, "
        f"whatever its weights; {whose} the "
        f"certificate (relative error {site.denominator_residual:.1g})."
    )


def _inputs(site: SiteVerdict) -> str:
    rows = f"{site.n_rows} {'rows' if site.held_out else 'inputs'}"
    if site.separability.n_points == site.n_rows:
        return rows
    return f"{rows} ({site.separability.n_points} distinct activations)"


def _null_words(site: SiteVerdict) -> list[str]:
    """The nulls as text: other labels and weight-permuted controls."""
    separability, null, copies = site.separability, site.labelings, site.reinitialised
    if null is None and separability.chance > LEVEL:
        return [
            f"Random labels of {separability.n_points} points in {separability.affine_dim} "
            f"dimensions are separable with chance {separability.chance:.2g}, so separability by "
            "itself says little."
        ]
    if null is None or not null.tried:
        return []
    kind = "Shuffled" if site.held_out else "Other"
    text = (
        f"{kind} labelings with the same class sizes that are separable too: {null.separable} of "
        f"{null.tried}"
    )
    if null.contradictory:
        others = null.tried - null.separable
        put = "puts" if null.contradictory == 1 else "put"
        which = f"{null.contradictory} of the {others} others {put}"
        if not null.separable:
            which = f"{null.contradictory} of these {put}"
        if null.contradictory == others:
            which = "the other puts" if others == 1 else "the others put"
            if not null.separable:
                which = "it puts" if others == 1 else "all of them put"
        text += (
            f" ({which} inputs with the same activation in different classes, which no hyperplane "
            "can separate)"
        )
    if not site.held_out:
        text += f", with as large a margin: {null.as_good}"
    if copies is not None and copies.separable is not None:
        text += (
            f"; weight-shuffled models in which {_subject(site)} is separable: {copies.separable} "
            f"of {copies.tried}, with as large a margin at some site: {copies.as_good(site.value)}"
        )
    return [f"{text}."]


def _contradiction(site: SiteVerdict) -> str:
    n = site.separability.contradictions
    shared = f"{n} activation{'s' if n > 1 else ''}"
    if site.same_input:
        return (
            f"{shared} belong{'' if n > 1 else 's'} to both classes, and so does a prompt itself: "
            "a contradiction in the data that no probe can resolve."
        )
    return f"Inputs of both classes share {shared} there, so nothing can distinguish them."


def _held_out_words(site: SiteVerdict) -> str:
    figures = site.held_out
    assert figures is not None
    if math.isnan(figures.balanced_accuracy):
        return "One class has too few rows for held-out data."
    accuracy = f"On held-out rows the probe's balanced accuracy is {figures.balanced_accuracy:.3g}"
    if math.isnan(figures.p_value):
        text = f"{accuracy}; it was not compared with shuffled labels"
    else:
        beats = "above" if figures.p_value <= LEVEL else "not significantly above"
        text = (
            f"{accuracy}, {beats} that for shuffled labels ({figures.null_balanced_accuracy:.3g}; "
            f"corrected p = {figures.p_value:.2g}), n = {site.n_rows}"
        )
    if site.separability.n_points < SELDOM_REPEATED * site.n_rows:
        text += "; most of these rows repeat activations that it was fitted on"
    return f"{text}."
