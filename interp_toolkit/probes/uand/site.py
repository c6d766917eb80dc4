"""Readouts of all pairs at one layer, and at its controls.

Rows are split once, whole groups on one side. The readouts are fitted on four fifths and measured
on the rest: at the layer, at its input, with shuffled labels, and in random layers of its shape.
The layer's statistic is the mean over pairs of the worst error after the best gain and bias; a
layer that is itself random has a smaller one than all but k of n random layers with probability
(k + 1) / (n + 1). For the layer and for random ones it is computed over the same pairs and rows.

*Controls.* The neurons of an MLP (`mlp.hook_post`) have as input the residual stream after the
MLP's norm. Random layers of the same shape have the MLP's own weights in random order: biases are
permuted among themselves, and so are weights on those coordinates of the input that vary. Each
keeps the distribution of the layer's weights and loses what was learned; a layer of independent,
identically distributed weights is as good as any of them. Other hook points have the block's input
as their input, and their random layers are the whole model with every weight tensor permuted.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.boolean_functions import after_offset
from interp_toolkit.errors import InputError
from interp_toolkit.finding import Run
from interp_toolkit.models.features.samples import Samples, read_at
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.models.running.interventions import reinitialised
from interp_toolkit.models.running.memory import together
from interp_toolkit.models.weights.parts import MLPWeights, neurons, residual_hook
from interp_toolkit.models.weights.view import weights
from interp_toolkit.probes.estimators.splits import grouped_folds, shuffled_labels
from interp_toolkit.probes.uand.absence import SiteRows
from interp_toolkit.probes.uand.blocks import (
    ActivationProducts,
    LabelProducts,
    Labels,
    SeparatedPairs,
    codes_of,
    measured,
    pair_errors,
    separated_pairs,
)
from interp_toolkit.probes.uand.errors import (
    Claim,
    PairErrors,
    PairEvidence,
    Pairs,
    claim_of_unread,
    claims,
    counts,
    groups_together,
    is_read,
    never_apart,
    p_values,
    q_values,
)
from interp_toolkit.probes.uand.intersections import (
    HigherFanIn,
    Intersections,
    feature_weights,
    find_higher,
    find_intersections,
)
from interp_toolkit.probes.uand.readout import UANDReadout, all_pairs
from interp_toolkit.stats import holm

FOLDS = 5  # of which one is held out
MOST_WHOLE = 1_000  # features, all of whose pairs are measured and kept
MOST_DESCRIBED = 4_000  # of more pairs, in figures and tables of errors
MOST_LISTED = 20_000  # of more pairs; those read best
DRAWS = 20  # of pairs, until enough are on together
MOST_COMPARED = 2_000  # pairs on which random layers are compared
ROWS_COMPARED = 8_000  # rows; at least four times the number of neurons


@dataclass(frozen=True, eq=False)
class ListedPairs:
    """Pairs with their classes.

    Attributes:
        errors: their errors at the layer.
        before: their worst errors after offset at its input; None if it has none.
        q: adjusted p-values of the pairs at the layer.
        claims: the class of each pair.
    """

    errors: PairErrors
    before: Float[np.ndarray, " pair"] | None
    q: Float[np.ndarray, " pair"]
    claims: list[Claim]


@dataclass(frozen=True, eq=False)
class SiteErrors:
    """The measurement of a layer.

    Attributes:
        hook, input_name: names of the layer's hook point and input (see `Layer`).
        behind_attention: whether `before` lacks information from other positions.
        here, before, shuffled, random: the errors of all pairs (of many: of some, drawn at random)
            at the layer, at its input (None if it has none), with shuffled labels, and in the first
            random layer (None without).
        listed: the pairs with their classes: all of them, or the readable ones of many.
        counts: number of pairs in each class.
        certain: number of pairs that are computed at the level for all pairs together (Holm).
        rows_needed: number of rows from which the lack of an AND at the input can be shown, about;
            None if there are so many, or no number would do.
        statistic: the layer's mean worst error after offset, as compared (see the module); NaN
            without random layers.
        random_statistics: the same for the random layers.
        shuffled_read: number of pairs that count as readable with shuffled labels.
        intersections: the construction, if the weights have it.
        higher: the same for ANDs of three features or more.
    """

    hook: str
    input_name: str | None
    behind_attention: bool
    here: PairErrors
    before: PairErrors | None
    shuffled: PairErrors
    random: PairErrors | None
    listed: ListedPairs
    counts: Mapping[Claim, int]
    certain: int
    rows_needed: int | None
    statistic: float
    random_statistics: Float[np.ndarray, " draw"]
    shuffled_read: int
    intersections: Intersections | None
    higher: HigherFanIn | None

    @property
    def p_better(self) -> float:
        """P-value that a random layer reads the pairs as well; NaN without random layers."""
        return _share(self.random_statistics <= self.statistic)

    @property
    def p_worse(self) -> float:
        """P-value that a random layer reads the pairs as badly."""
        return _share(self.random_statistics >= self.statistic)


@dataclass(frozen=True, eq=False)
class Split:
    """The rows that readouts are fitted on, and the held-out rows.

    Attributes:
        fitted, held_out: row indices.
        labels: the features that are on in each row.
        groups: groups of the rows.
        seed: random seed of the split and of all later draws.
    """

    fitted: Int[np.ndarray, " fitted"]
    held_out: Int[np.ndarray, " held_out"]
    labels: Bool[np.ndarray, "n m"]
    groups: Int[np.ndarray, " n"]
    seed: int


def split(samples: Samples, seed: int) -> Split:
    """Hold out about a fifth of the rows, by groups: the fold with the most groups.

    Raises InputError for fewer groups than folds.
    """
    fold = grouped_folds(samples.groups, FOLDS, seed)[:, 0]
    n_groups = [len(np.unique(samples.groups[fold == k])) for k in range(FOLDS)]
    chosen = int(np.argmax(n_groups))
    fitted, held_out = np.flatnonzero(fold != chosen), np.flatnonzero(fold == chosen)
    return Split(fitted, held_out, samples.labels, samples.groups, seed)


def measure_site(run: Run[Any], layer: Layer, rows: Split, n_random: int) -> SiteErrors:
    """Fit and measure the readouts at a layer and its controls (see the module)."""
    if rows.labels.shape[1] > MOST_WHOLE:
        return _measure_many(run, layer, rows, n_random)
    pairs, level, progress = all_pairs(rows.labels.shape[1]), run.options.level, run.progress
    progress(f"{layer.hook}: {len(pairs):,} pairs")
    here = reading(layer.activations, rows.labels, rows, pairs)
    before = []
    for what, control in (("input", layer.input), ("linear part", layer.pre)):
        if control is not None:
            progress(f"{layer.hook}: its {what}")
            before.append(reading(control, rows.labels, rows, pairs))
    if before and layer.behind_attention:
        attended = layer.attended()
        whole = None if attended is None else SiteRows(attended, rows.labels)
        before[0] = before[0]._replace(rows=whole)
    pair_claims = claims(here, before, affine_in(rows, pairs), level)
    p = holm(p_values(here.errors, *_together(rows.labels, rows, pairs)))
    progress(f"{layer.hook}: shuffled labels")
    mixed = reading(layer.activations, shuffled(rows), rows, pairs)
    random, statistic, statistics = _against_random(run, layer, rows, here.errors, n_random)
    intersections, higher = _constructions(layer, rows, pairs, level)
    return SiteErrors(
        hook=layer.hook,
        input_name=layer.input_name,
        behind_attention=layer.behind_attention,
        here=here.errors,
        before=before[0].errors if before else None,
        shuffled=mixed.errors,
        random=random,
        listed=ListedPairs(
            errors=here.errors,
            before=before[0].errors.worst_after_offset if before else None,
            q=here.q,
            claims=pair_claims,
        ),
        counts=counts(pair_claims),
        certain=int(((np.array(pair_claims) == "computed") & (p <= level)).sum()),
        rows_needed=_rows_needed(before[0].rows if before else None, rows),
        statistic=statistic,
        random_statistics=statistics,
        shuffled_read=int((is_read(mixed.errors) & (mixed.q <= level)).sum()),
        intersections=intersections,
        higher=higher,
    )


def _against_random(
    run: Run[Any], layer: Layer, rows: Split, here: PairErrors, n_random: int
) -> tuple[PairErrors | None, float, Float[np.ndarray, " draw"]]:
    """Errors in a random layer, and the statistics of the layer and of all random ones."""
    if not n_random or not here.observed.any():
        return None, float("nan"), np.array([])
    run.progress(f"{layer.hook}: random layers")
    random = _errors(layer.reinitialised(rows.seed), rows.labels, rows, here.pairs)
    compare = _Comparison(here, rows, layer.activations.shape[1])
    statistic, statistics = compare(layer.activations), list[float]()
    for draw in range(n_random):
        run.progress(f"{layer.hook}: random layer {draw + 1} of {n_random}")
        statistics.append(compare(layer.reinitialised(rows.seed + draw)))
    return random, statistic, np.array(statistics)


def _measure_many(run: Run[Any], layer: Layer, rows: Split, n_random: int) -> SiteErrors:
    """`measure_site` for more pairs than are kept: classes of all, errors of some."""
    level, progress, m = run.options.level, run.progress, rows.labels.shape[1]
    n_pairs = m * (m - 1) // 2
    labels, sample = _labels(rows.labels, rows), _observed_pairs(rows, MOST_DESCRIBED)
    progress(f"{layer.hook}: {n_pairs:,} pairs")
    here = _read_many(layer.activations, rows.labels, rows, sample)
    before: list[_ManyPairs] = []
    for what, control in (("input", layer.input), ("linear part", layer.pre)):
        if control is not None:
            progress(f"{layer.hook}: its {what}")
            if not before:
                before.append(_read_many(control, rows.labels, rows, sample))
                continue
            later = _read_many(control, rows.labels, rows, sample[:0])
            before.append(replace(later, products=None, rows=None))
    if before and layer.behind_attention:
        attended = layer.attended()
        whole = None if attended is None else SiteRows(attended, rows.labels)
        before[0] = replace(before[0], rows=whole)
    progress(f"{layer.hook}: classes of the pairs")
    pairs = _read_anywhere(here, before, m)
    evidence = [one.at(pairs) for one in (here, *before)]
    affine = _affine_among(pairs, evidence, labels, level)
    pair_claims = claims(evidence[0], evidence[1:], affine, level)
    counted = counts(pair_claims)
    counted["unseen"] = n_pairs - here.separated.n_observed
    unread = here.separated.n_observed - len(pairs)
    counted[claim_of_unread(here.rows)] += unread
    computed = np.array(pair_claims, dtype=object) == "computed"
    at = here.separated.index(pairs)
    certain = computed & (at >= 0) & (np.append(here.separated.holm(), 1.0)[at] <= level)
    listed = _listed(here, before, labels, evidence[0], pair_claims, computed)
    here = replace(here, products=None)
    del evidence, before[1:]
    progress(f"{layer.hook}: shuffled labels")
    mixed = _read_many(layer.activations, shuffled(rows), rows, sample)
    shuffled_read = int((mixed.separated.read & (mixed.separated.q() <= level)).sum())
    shuffled_errors = mixed.errors
    del mixed
    random, statistic, statistics = _against_random(run, layer, rows, here.errors, n_random)
    return SiteErrors(
        hook=layer.hook,
        input_name=layer.input_name,
        behind_attention=layer.behind_attention,
        here=here.errors,
        before=before[0].errors if before else None,
        shuffled=shuffled_errors,
        random=random,
        listed=listed,
        counts=counted,
        certain=int(certain.sum()),
        rows_needed=_rows_needed(before[0].rows if before else None, rows),
        statistic=statistic,
        random_statistics=statistics,
        shuffled_read=shuffled_read,
        intersections=None,
        higher=None,
    )


@dataclass(frozen=True, eq=False)
class _ManyPairs:
    """Readouts of many pairs at one site.

    Attributes:
        separated: the pairs that are separated.
        errors: of a sample of all pairs.
        products: for the scores of any pair; None once they are not needed.
        rows: as in `PairEvidence`.
    """

    separated: SeparatedPairs
    errors: PairErrors
    products: ActivationProducts | None
    rows: SiteRows | None

    def at(self, pairs: Pairs) -> PairEvidence:
        """Some observed pairs, with p-values that are adjusted for all."""
        index = self.separated.index(pairs)
        q = np.append(self.separated.q(), 1.0)[index]
        return PairEvidence(self.separated.errors_at(pairs), q, self.rows)


def _read_many(
    X: Float[np.ndarray, "n _"], labels: Bool[np.ndarray, "n m"], rows: Split, sample: Pairs
) -> _ManyPairs:
    readout = UANDReadout().fit(X[rows.fitted], labels[rows.fitted])
    products = ActivationProducts.of(readout, X[rows.held_out])
    separated = separated_pairs(products, _labels(labels, rows))
    errors = (
        readout.errors(X[rows.held_out], labels[rows.held_out], sample)
        if len(sample)
        else separated.errors_at(sample)
    )
    return _ManyPairs(separated, errors, products, SiteRows(X, labels, readout))


def _labels(labels: Bool[np.ndarray, "n m"], rows: Split) -> Labels:
    return Labels.of(labels[rows.fitted], labels[rows.held_out], rows.groups[rows.held_out])


def _observed_pairs(rows: Split, most: int) -> Pairs:
    """Up to `most` pairs that are on together in fitted and held-out rows, drawn at random."""
    m, rng = rows.labels.shape[1], np.random.default_rng(rows.seed)
    codes = np.zeros(0, dtype=np.int64)
    for _ in range(DRAWS):
        candidates = np.sort(rng.integers(0, m, (5 * most, 2)), axis=1)
        candidates = candidates[candidates[:, 0] < candidates[:, 1]]
        for side in (rows.fitted, rows.held_out):
            candidates = candidates[groups_together(rows.labels[side], None, candidates) > 0]
        codes = np.union1d(codes, codes_of(candidates, m))
        if len(codes) >= most:
            break
    codes = _some(codes, most, rng)
    return np.column_stack([codes // m, codes % m])


def _read_anywhere(here: _ManyPairs, before: Sequence[_ManyPairs], n_features: int) -> Pairs:
    """Pairs that are readable at the layer or before it."""
    parts = [one.separated.codes[one.separated.read] for one in (here, *before)]
    codes = np.unique(np.concatenate(parts))
    return np.column_stack([codes // n_features, codes % n_features])


def _affine_among(
    pairs: Pairs, evidence: Sequence[PairEvidence], labels: Labels, level: float
) -> Bool[np.ndarray, " pair"]:
    """`affine_in` for the pairs whose readout is significant somewhere; False for the others."""
    affine = np.zeros(len(pairs), dtype=bool)
    significant = np.zeros(len(pairs), dtype=bool)
    for one in evidence:
        significant |= is_read(one.errors) & (one.q <= level)
    chosen = np.flatnonzero(significant)
    if len(chosen):
        _, ends, counted = measured(LabelProducts.of(labels), labels, pairs[chosen])
        bits = pair_errors(pairs[chosen], ends, counted)
        affine[chosen] = is_read(bits) | never_apart(labels.held_out, pairs[chosen])
    return affine


def _listed(
    here: _ManyPairs,
    before: Sequence[_ManyPairs],
    labels: Labels,
    evidence: PairEvidence,
    pair_claims: list[Claim],
    computed: Bool[np.ndarray, " pair"],
) -> ListedPairs:
    """The computed pairs and those that are read best, sorted."""
    best = np.lexsort([evidence.errors.worst_after_offset, ~computed])
    chosen = np.sort(best[: max(MOST_LISTED, int(computed.sum()))])
    pairs = evidence.errors.pairs[chosen]
    assert here.products is not None
    errors = pair_errors(pairs, *measured(here.products, labels, pairs)[1:])
    at_input = None
    if before and before[0].products is not None:
        ends = measured(before[0].products, labels, pairs)[1]
        at_input = after_offset(*ends)
    return ListedPairs(errors, at_input, evidence.q[chosen], [pair_claims[k] for k in chosen])


def _rows_needed(before: SiteRows | None, rows: Split) -> int | None:
    if before is None:
        return None
    needed = before.rows_needed
    return needed if needed > len(np.unique(rows.groups)) else None


def against_more(
    run: Run[Any], layer: Layer, rows: Split, site: SiteErrors, most: int
) -> SiteErrors:
    """Compare the layer with up to `most` random layers, until one reads the pairs as well."""
    compare = _Comparison(site.here, rows, layer.activations.shape[1])
    statistics = site.random_statistics.tolist()
    while len(statistics) < most and min(statistics) > site.statistic:
        run.progress(f"{layer.hook}: random layer {len(statistics) + 1} of {most}")
        statistics.append(compare(layer.reinitialised(rows.seed + len(statistics))))
    return replace(site, random_statistics=np.array(statistics))


def _errors(
    X: Float[np.ndarray, "n _"], labels: Bool[np.ndarray, "n m"], rows: Split, pairs: Pairs
) -> PairErrors:
    return _fitted(X, labels, rows, pairs)[1]


def _fitted(
    X: Float[np.ndarray, "n _"], labels: Bool[np.ndarray, "n m"], rows: Split, pairs: Pairs
) -> tuple[UANDReadout, PairErrors]:
    """The readout of the fitted rows, and its errors on those held out."""
    readout = UANDReadout().fit(X[rows.fitted], labels[rows.fitted])
    return readout, readout.errors(X[rows.held_out], labels[rows.held_out], pairs)


def reading(
    X: Float[np.ndarray, "n _"], labels: Bool[np.ndarray, "n m"], rows: Split, pairs: Pairs
) -> PairEvidence:
    """The held-out errors of all pairs, with their adjusted p-values."""
    readout, errors = _fitted(X, labels, rows, pairs)
    q = q_values(errors, *_together(labels, rows, pairs))
    return PairEvidence(errors, q, SiteRows(X, labels, readout))


def _together(
    labels: Bool[np.ndarray, "n m"], rows: Split, pairs: Pairs
) -> tuple[Int[np.ndarray, " pair"], int]:
    """Number of held-out groups in which each pair is on together, and of all of them."""
    groups = rows.groups[rows.held_out]
    return groups_together(labels[rows.held_out], groups, pairs), len(np.unique(groups))


def affine_in(rows: Split, pairs: Pairs) -> Bool[np.ndarray, " pair"]:
    """Pairs whose AND equals an affine function of the features on these rows, to less than 1/4.

    This holds if the two features never differ, or if a third feature tells where they do.
    """
    bits = _errors(rows.labels.astype(np.float64), rows.labels, rows, pairs)
    return np.asarray(is_read(bits) | never_apart(rows.labels[rows.held_out], pairs))


def shuffled(rows: Split) -> Bool[np.ndarray, "n m"]:
    """Labels shuffled relative to the activations."""
    alone = len(np.unique(rows.groups)) == len(rows.groups)
    return np.asarray(shuffled_labels(rows.labels, 1, rows.seed, None if alone else rows.groups)[0])


class _Comparison:
    """The statistic of a layer, over the same pairs and rows for all layers."""

    def __init__(self, here: PairErrors, rows: Split, width: int):
        rng = np.random.default_rng(rows.seed)
        fraction = max(ROWS_COMPARED, 4 * width) / len(rows.labels)
        self._pairs = here.pairs[_some(np.flatnonzero(here.observed), MOST_COMPARED, rng)]
        self._labels = rows.labels
        self._fitted = _some(rows.fitted, int(fraction * len(rows.fitted)), rng)
        self._held_out = rows.held_out

    def __call__(self, X: Float[np.ndarray, "n d"]) -> float:
        fitted, held_out = self._fitted, self._held_out
        readout = UANDReadout().fit(X[fitted], self._labels[fitted])
        errors = readout.errors(X[held_out], self._labels[held_out], self._pairs)
        return float(np.nan_to_num(errors.worst_after_offset, nan=0.5).mean())


def _some(
    items: Int[np.ndarray, " item"], most: int, rng: np.random.Generator
) -> Int[np.ndarray, " kept"]:
    if len(items) <= most:
        return items
    return np.sort(rng.choice(items, most, replace=False))


def _constructions(
    layer: Layer, rows: Split, pairs: Pairs, level: float
) -> tuple[Intersections | None, HigherFanIn | None]:
    """The source's construction in the weights, for pairs or for more features."""
    if layer.plain_pre is None:
        return None, None
    weights, bias = feature_weights(layer.plain_pre[rows.fitted], rows.labels[rows.fitted])
    held_out = layer.activations[rows.held_out], rows.labels[rows.held_out]
    intersections = find_intersections(weights, bias, *held_out, pairs, level)
    return intersections, find_higher(
        weights, bias, *held_out, rows.seed
    ) if intersections is None else None


def _share(as_far: Bool[np.ndarray, " draw"]) -> float:
    return (1 + int(as_far.sum())) / (1 + len(as_far)) if len(as_far) else float("nan")


_NEURONS = re.compile(r"blocks\.(\d+)\.mlp\.hook_post$")
_IN_BLOCK = re.compile(r"(blocks\.\d+)\.(.+)$")


@dataclass(frozen=True, eq=False)
class Layer:
    """A hook point with its input.

    Attributes:
        hook: the hook point.
        input_name: name of its input; None if it has none.
        activations: activations at the hook point, float32.
        input: the layer's input; None if it has none.
        pre: the input of the neurons' nonlinearity, affine in the layer's input (for gated MLPs
            both parts side by side); None for other hook points.
    """

    hook: str
    input_name: str | None
    activations: Float[np.ndarray, "n d"]
    input: Float[np.ndarray, "n _"] | None
    pre: Float[np.ndarray, "n _"] | None
    _mlp: MLPWeights | None
    _model: Any
    _samples: Samples
    _memory: int | str | None

    @property
    def plain_pre(self) -> Float[np.ndarray, "n d"] | None:
        """`pre`, if the activation function takes one number per neuron; else None."""
        return self.pre if self._mlp is not None and self._mlp.W_gate is None else None

    @property
    def behind_attention(self) -> bool:
        """Whether attention may have brought information from positions that `input` lacks."""
        return self._mlp is None and not _after_attention(self.hook)

    def attended(self) -> Float[np.ndarray, "n _"] | None:
        """The input at all positions that attention may read, side by side.

        None if they differ between samples, or are more numbers than there are samples.
        """
        assert self.input is not None
        assert self.input_name is not None
        ends = np.unique(self._samples.positions)
        n, d = self.input.shape
        if len(ends) > 1 or (ends[0] + 1) * d >= n:
            return None
        if getattr(self._model.cfg, "attention_dir", "causal") == "bidirectional":
            return None
        parts = [self.input]
        for position in range(int(ends[0])):
            earlier = replace(self._samples, positions=np.full(n, position))
            parts += _read(self._model, earlier, [self.input_name], self._memory).values()
        return np.concatenate(parts, axis=1)

    def reinitialised(self, seed: int) -> Float[np.ndarray, "n d"]:
        """The activations of a random layer of the same shape (see the module).

        Raises InputError for an activation function with parameters of its own.
        """
        if self._mlp is None:
            with reinitialised(self._model, seed=seed):
                return _read(self._model, self._samples, [self.hook], self._memory)[self.hook]
        assert self.input is not None
        shuffled = in_random_order(self._mlp, self.input.std(axis=0) > 0, seed)
        x = torch.from_numpy(self.input).to(shuffled.W_in)
        with torch.no_grad():
            return _single(neurons(shuffled, x))


class LayerReader:
    """`reader(hook)` -> its `Layer`; reads several hooks per pass, as many as memory allows.

    Args:
        model: any TransformerLens model.
        samples: the positions.
        hooks: all hooks that will be read, in order.
        memory: bound on each pass, and on the activations kept from it.
    """

    def __init__(
        self, model: Model, samples: Samples, hooks: Sequence[str], memory: int | str | None
    ):
        self.model, self.samples, self.hooks, self.memory = model, samples, list(hooks), memory
        self._values: dict[str, Float[np.ndarray, "n _"]] = {}
        self._before: dict[str, str | None] = {}
        self._layer_bytes = 0

    def __call__(self, hook: str) -> Layer:
        """The activations at a hook point and at its input; raises InputError as `read_at`."""
        if hook not in self._before:
            self._fetch(hook)
        mlp, before = _mlp_at(self.model, hook), self._before[hook]
        here, layer_input = self._values[hook], None if before is None else self._values[before]
        about = mlp, self.model, self.samples, self.memory
        if mlp is None:
            return Layer(hook, before, here, layer_input, None, *about)
        assert layer_input is not None
        with torch.no_grad():
            x = mlp.norm(torch.from_numpy(layer_input).to(mlp.W_in))
            pre = x @ mlp.W_in + mlp.b_in
            if mlp.W_gate is not None and mlp.b_gate is not None:
                pre = torch.cat([x @ mlp.W_gate + mlp.b_gate, pre], dim=1)
        name = f"{before}, as the MLP reads it" if mlp.norm.kind else before
        return Layer(hook, name, here, _single(x), _single(pre), *about)

    def _fetch(self, hook: str) -> None:
        """Read this hook and the following ones, as many as fit in half of the memory."""
        self._values = {}
        hooks = together(self.hooks, hook, self.memory, self._layer_bytes)
        self._before = {one: _before(self.model, one) for one in hooks}
        names = dict.fromkeys([*hooks, *filter(None, self._before.values())])
        self._values = _read(self.model, self.samples, list(names), self.memory)
        self._layer_bytes = sum(values.nbytes for values in self._values.values()) // len(hooks)


def _before(model: Model, hook: str) -> str | None:
    """The hook point of the layer's input."""
    mlp = _mlp_at(model, hook)
    if mlp is None:
        return _block_input(model, hook)
    return residual_hook(model, int(hook.split(".")[1]), mlp)


def _read(
    model: Model, samples: Samples, hooks: Sequence[str], memory: int | str | None
) -> dict[str, Float[np.ndarray, "n _"]]:
    read = read_at(model, samples, hooks, memory=memory)
    return {hook: values.astype(np.float32, copy=False) for hook, values in read.items()}


def _single(values: Tensor) -> Float[np.ndarray, "n _"]:
    return np.asarray(values.float().cpu().numpy())


def _mlp_at(model: Model, hook: str) -> MLPWeights | None:
    """The weights of the MLP whose neurons are at this hook, if they can be read."""
    match = _NEURONS.match(hook)
    try:
        return weights(model).mlp(int(match[1])) if match else None
    except InputError:
        return None


def _after_attention(hook: str) -> bool:
    """Whether the hook reads its block's attention, if at all, at its own position only."""
    match = _IN_BLOCK.match(hook)
    return match is not None and match[2].startswith(("mlp.", "hook_mlp", "ln2."))


def _block_input(model: Model, hook: str) -> str | None:
    """The residual stream at the input of the hook's block; None outside a block."""
    match = _IN_BLOCK.match(hook)
    if match is None or match[2] == "hook_resid_pre":
        return None
    residual = f"{match[1]}.hook_resid_{'mid' if _after_attention(hook) else 'pre'}"
    return residual if residual in hook_points(model) else f"{match[1]}.hook_resid_pre"


def in_random_order(
    mlp: MLPWeights, varying: Bool[np.ndarray, " d_model"], seed: int
) -> MLPWeights:
    """The MLP with its weights on varying coordinates, and its biases, permuted at random."""
    generator = torch.Generator().manual_seed(seed)
    live = torch.from_numpy(varying).to(mlp.W_in.device)

    def shuffled(values: Tensor) -> Tensor:
        order = torch.randperm(values.numel(), generator=generator).to(values.device)
        return values.flatten()[order].view(values.shape)

    def weights_of(W: Tensor) -> Tensor:
        W = W.detach().clone()
        W[live] = shuffled(W[live])
        return W

    gate = None if mlp.W_gate is None else weights_of(mlp.W_gate)
    gate_bias = None if mlp.b_gate is None else shuffled(mlp.b_gate.detach())
    return dataclasses.replace(
        mlp,
        W_in=weights_of(mlp.W_in),
        b_in=shuffled(mlp.b_in.detach()),
        W_gate=gate,
        b_gate=gate_bias,
    )
