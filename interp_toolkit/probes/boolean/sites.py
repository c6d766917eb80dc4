"""Measurement of a site: activations, separability, the logistic probe, controls, the theorem.

A site is a hook point at a position. Sites at one position are read together, as many as memory
allows (`SiteReader`). There are two kinds of data. *Exhaustive* data has one row per input of the
truth table (or few rows in all); separability of these points is the question. *Sampled* data has
many rows; the probe is tested on held-out rows against shuffled labels, and separability is
reported with Cover's probability. The same is measured on copies of the model with shuffled
weights, and p-values are corrected for the number of sites.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.boolean_functions import threshold_degree
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.finding import Run
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.interventions import reinitialised
from interp_toolkit.models.running.memory import together
from interp_toolkit.models.running.streaming import collect
from interp_toolkit.probes.boolean import theorem
from interp_toolkit.probes.boolean.result import (
    CHANCE,
    CopyNull,
    HeldOutFigures,
    LabelingNull,
    SiteVerdict,
    reaches,
)
from interp_toolkit.probes.estimators.heldout import GRID, HeldOutScores, cross_validate_targets
from interp_toolkit.probes.estimators.logistic import fit_logistic_targets
from interp_toolkit.probes.estimators.separability import (
    TOLERANCES,
    Certificate,
    Separability,
    check_separability,
)
from interp_toolkit.probes.estimators.splits import shuffled_labels
from interp_toolkit.probes.estimators.truth_tables import TABLES, depends_on, truth_values
from interp_toolkit.stats import clopper_pearson, max_statistic_p_values

COPIES_PER_LINE = 10  # of progress

Where = tuple[str, int | None]  # hook, position (None: the data's own for each row)


class SiteReader:
    """`reader(hook, position)` -> activations [n d] in float64, and the dtype they came from.

    Args:
        model: any TransformerLens model.
        data: the prompts.
        sites: all sites that will be read, in order.
        memory: bound on what is kept, and on each pass.
    """

    def __init__(
        self, model: Model, data: FeatureData, sites: Sequence[Where], memory: int | str | None
    ):
        self.model = model
        self.data = data
        self.sites = list(sites)
        self.memory = memory
        self._values: dict[Where, Tensor] = {}
        self._site_bytes = 0

    def __call__(self, hook: str, position: int | None) -> tuple[Float[np.ndarray, "n d"], str]:
        """Read one site; raises InputError when its activations are not all finite."""
        if (hook, position) not in self._values:
            self._fetch(hook, position)
        values = self._values[hook, position]
        flat = values.reshape(len(values), -1).double().numpy()
        if not np.isfinite(flat).all():
            raise InputError(f"{hook} has NaN or infinite activations on this data; choose others")
        return flat, precision_of(self.model, values)

    def forget(self) -> None:
        """Drop the cached activations, because the model has changed."""
        self._values = {}

    def _fetch(self, hook: str, position: int | None) -> None:
        self._values = {}
        hooks = self._together(hook, position)
        read = collect(self.model, self.data, hooks, position, memory=self.memory)
        self._values = {(name, position): value for name, value in read.items()}
        self._site_bytes = max(v.numel() * v.element_size() for v in read.values())

    def _together(self, hook: str, position: int | None) -> list[str]:
        """This hook and the following ones at the same position, as many as fit in memory."""
        sites = together(self.sites, (hook, position), self.memory, self._site_bytes)
        return list(dict.fromkeys(name for name, at in sites if at == position))


def precision_of(model: Model, values: Tensor) -> str:
    """The coarsest dtype behind some activations: norms of a bfloat16 model return float32."""
    dtypes = {values.dtype, *(p.dtype for p in model.parameters())}
    names = {str(dtype).removeprefix("torch.") for dtype in dtypes}
    return max(names & set(TOLERANCES), key=lambda name: TOLERANCES[name], default="float64")


SAMPLED_FROM = 50  # distinct inputs from which some can be held out
MOST_LABELINGS = 100  # all relabelings are tested up to this number, else that many at random
MOST_SPLITS = 5
ROUNDING = 1e-12  # a smaller spread, relative to the activations, counts as zero
SHUFFLES_SEPARATED = 20
UNLIKELY = 0.05  # if Cover's probability is higher, 'separable' is uninformative without more tests
WEAK = 1e4  # C of the probe on exhaustive data, activations scaled to a largest norm of 1


@dataclass(frozen=True)
class Targets:
    """The labels tested at a site: the function, and others of the same features as controls.

    Attributes:
        names: the function's name, such as "XOR", then the controls' names.
        labels: one column each.
        nulls: shuffled labels of the function, one column per draw (none on exhaustive data).
        inputs: an index per row, equal for rows that the site cannot distinguish.
        groups: groups of the rows, for splits: the data's groups joined with equal inputs; None if
            all rows differ.
        features: names of the controls that are features on which the function depends.
    """

    names: tuple[str, ...]
    labels: Bool[np.ndarray, "n target"]
    nulls: Bool[np.ndarray, "n draw"]
    inputs: Int[np.ndarray, " n"]
    groups: np.ndarray | None
    features: tuple[str, ...]

    @property
    def function(self) -> Bool[np.ndarray, " n"]:
        """The function's labels."""
        return self.labels[:, 0]

    @property
    def sampled(self) -> bool:
        """Whether there are enough distinct inputs to hold some out."""
        return is_sampled(self.inputs, self.groups)


@dataclass(frozen=True)
class SiteMeasurement:
    """A site's numbers, before they become a `SiteVerdict`.

    Attributes:
        separability: separability of the function.
        accuracy: accuracy of each target's probe on the points; if sampled, on held-out points,
            and balanced for the controls (whose classes may be of very different sizes).
        held_out: scores of the function, without the p-value (which needs all sites); None if
            exhaustive.
        null: balanced accuracy of each shuffled draw.
        direction, threshold: the probe: the hyperplane if there is one, else the logistic fit.
        labelings: the null of other labelings of the same points. If sampled, only present if the
            function is separable although Cover's probability is small; else None.
        unread: if sampled, the features on which the function depends whose own probe is not shown
            to be above chance on held-out rows.
    """

    separability: Separability
    accuracy: Mapping[str, float]
    held_out: HeldOutFigures | None
    null: Float[np.ndarray, " draw"]
    direction: Float[np.ndarray, " d"]
    threshold: float
    labelings: LabelingNull | None
    unread: tuple[str, ...] = ()


def function_name(table: str) -> str:
    """XOR for 0110 and so on; the table itself if the function has no name."""
    return next((name.upper() for name, bits in TABLES.items() if bits == table), table)


def controls(
    table: str, features: Bool[np.ndarray, "n k"], names: tuple[str, ...]
) -> dict[str, Bool[np.ndarray, " n"]]:
    """The control functions: the features themselves, their AND and their OR.

    A feature with the name of a function is called "NAME (feature)".
    """
    functions = {"AND": np.all(features, axis=1), "OR": np.any(features, axis=1)}
    taken = {*functions, function_name(table)}
    labels = {
        f"{name} (feature)" if name in taken else name: features[:, i]
        for i, name in enumerate(names)
    } | {name: column for name, column in functions.items() if name != function_name(table)}
    return {n: column for n, column in labels.items() if column.any() and not column.all()}


def measure(run: Run[Any], X: Any, precision: str, targets: Targets) -> SiteMeasurement:
    """Measure the site with activations X [n d] (float64 array), computed in `precision`.

    The option `C` is the probe's inverse regularization on sampled data; None: chosen by held-out
    log loss.
    """
    y = targets.function
    separability = check_separability(X[y], X[~y], precision=precision)
    judge = _sampled if targets.sampled else _exhaustive
    return judge(run, X, precision, targets, separability)


def _exhaustive(
    run: Run[Any],
    X: Float[np.ndarray, "n d"],
    precision: str,
    targets: Targets,
    separability: Separability,
) -> SiteMeasurement:
    size = separability.scale or 1.0
    fits = fit_logistic_targets(X / size, targets.labels, C=WEAK, max_iter=2_000)
    scores = X / size @ fits.coef.T + fits.intercept
    accuracy = ((scores > 0) == targets.labels).mean(axis=0)
    for i in range(len(targets.names)):  # prefer a hyperplane as the probe if there is one
        side = targets.labels[:, i]
        counts = (
            separability if i == 0 else check_separability(X[side], X[~side], precision=precision)
        )
        if counts.status == "separable":
            accuracy[i] = 1.0
    direction, threshold = fits.coef[0] / size, -float(fits.intercept[0])
    if separability.hyperplane is not None:
        direction, threshold = separability.direction, separability.threshold
    return SiteMeasurement(
        separability=separability,
        accuracy=dict(zip(targets.names, accuracy.tolist(), strict=True)),
        held_out=None,
        null=np.empty(0),
        direction=direction,
        threshold=threshold,
        labelings=_labelings(run, X, targets, precision, separability.margin),
    )


def _labelings(
    run: Run[Any],
    X: Float[np.ndarray, "n d"],
    targets: Targets,
    precision: str,
    margin: float,
) -> LabelingNull:
    """Number of other labelings with as many positives that are separable on these inputs."""
    y = targets.function
    first = np.unique(np.column_stack([targets.inputs, y]), axis=0, return_index=True)[1]
    X, y = X[np.sort(first)], y[np.sort(first)]
    n, n_positive = len(y), int(y.sum())
    if comb(n, n_positive) <= MOST_LABELINGS:
        chosen = [np.array(rows) for rows in combinations(range(n), n_positive)]
    else:
        rng = np.random.default_rng(run.seed)
        chosen = [rng.permutation(n)[:n_positive] for _ in range(MOST_LABELINGS)]
    labelings = np.zeros((len(chosen), n), dtype=bool)
    for labeling, rows in zip(labelings, chosen, strict=True):
        labeling[rows] = True
    # Exclude the function and its negation, which is equally separable.
    others = labelings[(labelings != y).any(axis=1) & (labelings == y).any(axis=1)]
    return _count_separable(X, others, precision, margin)


def _count_separable(
    X: Float[np.ndarray, "n d"],
    labelings: Bool[np.ndarray, "labeling n"],
    precision: str,
    margin: float,
) -> LabelingNull:
    """The number of separable labelings, those with at least this margin, and all labelings."""
    results = [check_separability(X[y], X[~y], precision=precision) for y in labelings]
    return LabelingNull(
        separable=sum(one.status == "separable" for one in results),
        tried=len(results),
        contradictory=sum(one.contradictions > 0 for one in results),
        as_good=sum(one.status == "separable" and reaches(one.margin, margin) for one in results),
    )


def _sampled(
    run: Run[Any],
    X: Float[np.ndarray, "n d"],
    precision: str,
    targets: Targets,
    separability: Separability,
) -> SiteMeasurement:
    every = np.column_stack([targets.labels, targets.nulls])
    scored = _cross_validate(run, X, every, targets.groups)
    size = _spread(X)
    estimable = np.isfinite(scored.C[0])  # False if the function could not be held out
    whole = fit_logistic_targets(
        X / size, targets.labels[:, :1], C=float(scored.C[0]) if estimable else run.options.C or 1.0
    )
    n_named = len(targets.names)
    accuracy = scored.balanced_accuracy[:n_named].copy()
    accuracy[0] = scored.accuracy[0]
    null = scored.balanced_accuracy[n_named:]
    measured = null[~np.isnan(null)]
    own = float(scored.balanced_accuracy[0])
    low, high = _accuracy_interval(own, targets, 0)
    of_features = [targets.names.index(name) for name in targets.features]
    unread = [
        targets.names[i]
        for i in of_features
        if not _accuracy_interval(float(accuracy[i]), targets, i)[0] > CHANCE
    ]
    held_out = HeldOutFigures(
        accuracy=float(scored.accuracy[0]),
        balanced_accuracy=own,
        low=low,
        high=high,
        auroc=float(scored.auroc[0]),
        calibration_error=float(scored.calibration_error[0]),
        null_balanced_accuracy=float(measured.mean()) if len(measured) else float("nan"),
        reinitialised_balanced_accuracy=float("nan"),
        shuffles=len(measured),
        p_value=float("nan"),
    )
    return SiteMeasurement(
        separability=separability,
        accuracy=dict(zip(targets.names, accuracy.tolist(), strict=True)),
        held_out=held_out,
        null=null,
        direction=whole.coef[0] / size,
        threshold=-float(whole.intercept[0]),
        labelings=_shuffled(X, precision, targets, separability),
        unread=tuple(unread),
    )


def _accuracy_interval(
    balanced_accuracy: float, targets: Targets, number: int
) -> tuple[float, float]:
    """Clopper and Pearson's interval, of as many rows as have the variance of a balanced accuracy.

    The mean of two classes' accuracies varies as that of 4 n p (1 - p) rows, n independent rows
    being a fraction p positive. Rows of one group, or of one input, are not independent.
    """
    if math.isnan(balanced_accuracy):
        return math.nan, math.nan
    rows = targets.inputs if targets.groups is None else targets.groups
    share = float(targets.labels[:, number].mean())
    n = 4 * len(np.unique(rows)) * share * (1 - share)
    return clopper_pearson(balanced_accuracy * n, n)


def _shuffled(
    X: Float[np.ndarray, "n d"],
    precision: str,
    targets: Targets,
    separability: Separability,
) -> LabelingNull | None:
    """Number of label shuffles that are separable, if the function is and Cover is inconclusive.

    Cover's probability assumes labels that are true half the time; rare ones separate more easily.
    """
    draws = targets.nulls.T[:SHUFFLES_SEPARATED]
    draws = draws[draws.any(axis=1) & ~draws.all(axis=1)]
    if separability.status != "separable" or separability.chance > UNLIKELY or not len(draws):
        return None
    return _count_separable(X, draws, precision, 0.0)


def _spread(X: Float[np.ndarray, "n d"]) -> float:
    """Root mean square deviation of a coordinate: the unit of `C`."""
    spread = float(np.sqrt(X.var(axis=0).mean()))
    size = float(np.sqrt((X**2).mean()))
    return spread if spread > ROUNDING * size else size or 1.0


def held_out_accuracy(run: Run[Any], X: Float[np.ndarray, "n d"], targets: Targets) -> float:
    """Held-out balanced accuracy of the function alone, with the same folds and regularization."""
    scored = _cross_validate(run, X, targets.labels[:, :1], targets.groups)
    return float(scored.balanced_accuracy[0])


def _cross_validate(
    run: Run[Any],
    X: Float[np.ndarray, "n d"],
    labels: Bool[np.ndarray, "n target"],
    groups: np.ndarray | None,
) -> HeldOutScores:
    return cross_validate_targets(
        X / _spread(X),
        labels,
        groups=groups,
        n_splits=_splits(groups),
        seed=run.seed,
        C=GRID if run.options.C is None else run.options.C,
        keep_scores=False,
    )


def _splits(groups: np.ndarray | None) -> int:
    """Number of folds: five, or the number of groups if there are fewer."""
    return MOST_SPLITS if groups is None else min(MOST_SPLITS, len(np.unique(groups)))


def is_sampled(inputs: Int[np.ndarray, " n"], groups: np.ndarray | None) -> bool:
    """Whether there are enough distinct rows and groups to hold some out."""
    several = groups is None or len(np.unique(groups)) > 1
    return several and len(np.unique(inputs)) >= SAMPLED_FROM


def make_targets(
    run: Run[Any],
    table: str,
    prompts: FeatureData,
    inputs: Int[np.ndarray, " n"],
    groups: np.ndarray | None,
) -> Targets:
    """The function, its controls and, on sampled data, its shuffled labels (see `Targets`)."""
    features, n_draws = np.asarray(prompts.features), run.options.shuffles
    y = truth_values(table, features)
    others = controls(table, features, prompts.names)
    columns = [features[:, i] for i in depends_on(table)]
    draws = np.empty((len(features), 0), dtype=bool)
    if is_sampled(inputs, groups):
        moved = shuffled_labels(features, n_draws=n_draws, seed=run.seed, groups=groups)
        targets = [truth_values(table, draw) for draw in moved]
        draws = np.stack(targets, axis=1) if targets else draws
    return Targets(
        names=(function_name(table), *others),
        labels=np.column_stack([y, *others.values()]),
        nulls=draws,
        inputs=inputs,
        groups=groups,
        features=tuple(
            name
            for name, labels in others.items()
            if name not in ("AND", "OR") and any(np.array_equal(labels, one) for one in columns)
        ),
    )


def in_reinitialised(
    run: Run[Any],
    sites: Sequence[Where],
    read: SiteReader,
    targets: Sequence[Targets],
    verdicts: Sequence[SiteVerdict],
    copies: int,
) -> Float[np.ndarray, "site copy"]:
    """The value of every site in weight-shuffled models (see `SiteVerdict.value`).

    There are no more copies once each site that may be a finding is reached by one of them.
    """
    pending = {i for i, verdict in enumerate(verdicts) if verdict.status == "separable"}
    columns: list[Float[np.ndarray, " site"]] = []
    store = run.store
    about = f"{[target.names[0] for target in targets]} {read.data.digest()} at {list(sites)}"

    def values_of(copy: int) -> Float[np.ndarray, " site"]:
        read.forget()
        with reinitialised(run.model, seed=run.seed + copy):
            return np.array(
                [_value(run, *read(*site), of) for site, of in zip(sites, targets, strict=True)]
            )

    while pending and len(columns) < copies:
        if len(columns) % COPIES_PER_LINE == 0:
            run.progress(f"weight-shuffled model {len(columns) + 1} of at most {copies}")
        columns.append(store(f"{about} in copy {len(columns)}", partial(values_of, len(columns))))
        best = float(np.nanmax(columns[-1], initial=-np.inf))
        pending = {i for i in pending if not reaches(best, verdicts[i].value)}
    read.forget()
    return np.stack(columns, axis=1) if columns else np.empty((len(sites), 0))


def _value(run: Run[Any], X: Float[np.ndarray, "n d"], precision: str, targets: Targets) -> float:
    if targets.sampled:
        return held_out_accuracy(run, X, targets)
    y = targets.function
    separability = check_separability(X[y], X[~y], precision=precision)
    margin = separability.relative_margin
    return margin if separability.status == "separable" else min(margin, 0.0)


def with_reinitialised(
    verdicts: Sequence[SiteVerdict], values: Float[np.ndarray, "site copy"]
) -> list[SiteVerdict]:
    """Add the results of weight-shuffled models."""
    if not values.size:
        return list(verdicts)
    best = np.nanmax(np.where(np.isnan(values), -np.inf, values), axis=0)
    best = [float(value) if math.isfinite(value) else math.nan for value in best]
    compared = []
    for site, own in zip(verdicts, values, strict=True):
        held_out, separable = site.held_out, int((own > 0).sum())
        null = CopyNull(None if held_out else separable, len(best), best)
        if held_out is not None and not np.isnan(own).all():
            mean = float(np.nanmean(own))
            held_out = dataclasses.replace(held_out, reinitialised_balanced_accuracy=mean)
        compared.append(dataclasses.replace(site, reinitialised=null, held_out=held_out))
    return compared


def site_verdict(
    model: Any,
    data: FeatureData,
    table: str,
    hook: str,
    position: int | None,
    measurement: SiteMeasurement,
    read: SiteReader,
) -> SiteVerdict:
    """One site's verdict: its measurement, and the theorem on heads if its hypotheses hold.

    If the points alone are undecided, a certificate by the theorem decides.
    """
    separability, basis = measurement.separability, "points"
    residual: float | None = None
    by_head: Certificate | None = None
    fails = (
        "positions differ"
        if position is None
        else theorem.why_not(model, data, table, hook, position)
    )
    if fails is None and position is not None:
        Z = theorem.denominators(model, data, table, position)
        if isinstance(Z, str):
            fails = Z
        else:
            X, precision = read(hook, position)
            y = truth_values(table, np.asarray(data.features))
            by_head = Z.certificate(X[y], X[~y])
            residual = by_head.residual / separability.scale
            if not theorem.verifies(by_head, X, precision):
                fails = f"its certificate does not verify here (relative error {residual:.1g})"
                by_head = None
            elif separability.status == "undecided":
                basis = "theorem"
                separability = separability.refuted_by(by_head)
    contradictory = separability.contradictions > 0
    return SiteVerdict(
        hook=hook,
        position=position,
        function=function_name(table),
        separability=separability,
        basis=basis,
        accuracy=next(iter(measurement.accuracy.values())),
        denominators=by_head,
        denominator_residual=residual,
        theorem=fails or "applies",
        heads_needed=None if fails else threshold_degree(table).degree,
        evenly_weighted=fails is not None or _even(table),
        n_rows=len(data),
        same_input=contradictory and _same_prompt_both_ways(data, table, position),
        labelings=measurement.labelings,
        reinitialised=None,
        held_out=measurement.held_out,
        controls=dict(list(measurement.accuracy.items())[1:]),
        unread=measurement.unread,
    )


def _even(table: str) -> bool:
    """Whether all inputs have equal weight in the certificate of the threshold degree."""
    weights = threshold_degree(table).weights
    return weights is not None and len(set(weights.tolist())) == 1


def _same_prompt_both_ways(data: FeatureData, table: str, position: int | None) -> bool:
    """Whether one prompt, read at one position, occurs with both values of the function."""
    y = truth_values(table, np.asarray(data.features))
    positions = (
        [position] * len(data) if data.positions is None or position is not None else data.positions
    )
    labels: dict[tuple[bytes, int | None], set[bool]] = {}
    for row, at, label in zip(data.tokens, positions, y, strict=True):
        key = np.asarray(row).tobytes(), None if at is None else int(at)
        labels.setdefault(key, set()).add(bool(label))
    return any(len(values) == 2 for values in labels.values())


def corrected(
    verdicts: list[SiteVerdict], measured: Sequence[SiteMeasurement]
) -> list[SiteVerdict]:
    """Correct the p-values of the held-out scores over the sites (same shuffles at each)."""
    held = {i: v.held_out for i, v in enumerate(verdicts) if v.held_out is not None}
    if not held or not all(len(measured[i].null) for i in held):
        return verdicts
    observed = np.array([figures.balanced_accuracy for figures in held.values()])
    p_values = max_statistic_p_values(observed, np.stack([measured[i].null for i in held], axis=1))
    corrected = list(verdicts)
    for (i, figures), p in zip(held.items(), p_values.tolist(), strict=True):
        held_out = dataclasses.replace(figures, p_value=p)
        corrected[i] = dataclasses.replace(verdicts[i], held_out=held_out)
    return corrected
