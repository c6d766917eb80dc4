"""The pairs of features whose AND a readout separates, among millions, in blocks.

A readout's worst error after the best gain and bias can only grow with the inputs on which it is
measured, and so can no pair become separated. A pair is therefore left out as soon as its scores
overlap on some of the held-out inputs: first on those with its first feature on, then on those with
its second one on, then on the others, part by part. What remains was measured on all inputs, and
its errors are those of `UANDReadout.errors`; no pair that they separate is missing, up to the
rounding of the sums.

Scores come from inner products of whitened rows (`readout`): the score of an input is the sum of
its products with the fitted rows that have both features on. For the pairs of one feature, only
the few rows with this feature on are needed, on either side. All other pairs are counted, and not
stored. No array is larger than a block of partners times these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import joblib
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve
from threadpoolctl import threadpool_limits

from interp_toolkit.boolean_functions import after_offset
from interp_toolkit.probes.estimators.splits import Groups, group_codes
from interp_toolkit.probes.uand.absence import LIMIT
from interp_toolkit.probes.uand.errors import N_BINS, PairErrors, Pairs, chance_of_order
from interp_toolkit.probes.uand.readout import RIDGE, UANDReadout
from interp_toolkit.stats import benjamini_yekutieli, holm

Left = Int[np.ndarray, "left 2"]  # pairs that remain
Item = TypeVar("Item")
Answer = TypeVar("Answer")
#: number of rows with both features on, by pair: fitted, held out, groups of those held out
Counts = tuple[Int[np.ndarray, " left"], Int[np.ndarray, " left"], Int[np.ndarray, " left"]]

PARTNERS = 1024  # of a feature, in a block
INPUTS = 512  # held-out inputs in a block; as many with a feature on serve to leave pairs out
ROUNDING = 1e-4  # overlap of scores, relative to their range, that may be rounding of float32
SPARSE = 1 / 12  # fraction of ones below which a sparse product is faster; measured


@dataclass(frozen=True, eq=False)
class Labels:
    """The features of the fitted and of the held-out rows.

    Attributes:
        fitted, held_out: the features that are on.
        groups: codes of the held-out rows' groups, from 0.
    """

    fitted: Bool[np.ndarray, "row feature"]
    held_out: Bool[np.ndarray, "input feature"]
    groups: Int[np.ndarray, " input"]

    @classmethod
    def of(
        cls,
        fitted: Bool[np.ndarray, "row feature"],
        held_out: Bool[np.ndarray, "input feature"],
        groups: Groups,
    ) -> Labels:
        """The same with any groups."""
        return cls(fitted, held_out, np.unique(group_codes(groups), return_inverse=True)[1])


@dataclass(frozen=True, eq=False)
class ActivationProducts:
    """Inner products of activations, as a fitted readout whitens them.

    Attributes:
        readout: the fitted readout.
        held_out: the whitened held-out activations.
    """

    readout: UANDReadout
    held_out: Float[np.ndarray, "input k"]

    @classmethod
    def of(cls, readout: UANDReadout, X: Float[np.ndarray, "input d"]) -> ActivationProducts:
        """Whiten held-out activations."""
        return cls(readout, readout.whitened(X))

    def __call__(
        self, fitted: Int[np.ndarray, " row"], held_out: Int[np.ndarray, " input"]
    ) -> Float[np.ndarray, "row input"]:
        """The products of some fitted rows with some held-out inputs."""
        return np.asarray(self.readout.whitened_rows[fitted] @ self.held_out[held_out].T)

    def scale(
        self, together: Bool[np.ndarray, "pair row"], rows: Int[np.ndarray, " row"]
    ) -> tuple[Float[np.ndarray, " pair"], Float[np.ndarray, " pair"]]:
        """Gain and bias that make a readout of a sum of products, by pair."""
        return self.readout.gain_and_bias(_weights(together), rows, together.sum(axis=1))


@dataclass(frozen=True, eq=False)
class LabelProducts:
    """Inner products of the features themselves, taken as activations of 0 and 1.

    Attributes:
        fitted: the features of the fitted rows.
        solved: (covariance + ridge)^-1 times the held-out inputs, less their mean.
        offset: products of the fitted rows' mean with the same.
    """

    fitted: sparse.csr_matrix
    solved: Float[np.ndarray, "feature input"]
    offset: Float[np.ndarray, " input"]

    @classmethod
    def of(cls, labels: Labels) -> LabelProducts:
        """Solve for the held-out inputs; the covariance follows from counts."""
        on = sparse.csr_matrix(labels.fitted, dtype=np.float32)
        mean = labels.fitted.mean(axis=0)
        deviation = np.sqrt(mean * (1 - mean))
        unit = np.where(deviation > 0, 1 / np.where(deviation > 0, deviation, 1.0), 0.0)
        gram = (on.T @ on).toarray().astype(np.float64)
        gram /= len(labels.fitted)
        gram -= np.outer(mean, mean)
        gram *= np.outer(unit, unit)
        gram[np.diag_indices(len(gram))] += np.where(unit > 0, RIDGE, 1.0)
        factor = cho_factor(gram, overwrite_a=True)
        solved = np.empty((len(mean), len(labels.held_out)), dtype=np.float32)
        for start in range(0, len(labels.held_out), INPUTS):
            part = slice(start, start + INPUTS)
            scaled = ((labels.held_out[part] - mean) * unit).T
            solved[:, part] = cho_solve(factor, scaled, overwrite_b=True) * unit[:, None]
        return cls(on, solved, mean.astype(np.float32) @ solved)

    def __call__(
        self, fitted: Int[np.ndarray, " row"], held_out: Int[np.ndarray, " input"]
    ) -> Float[np.ndarray, "row input"]:
        """The products of some fitted rows with some held-out inputs."""
        return np.asarray(self.fitted[fitted] @ self.solved[:, held_out] - self.offset[held_out])

    def scale(
        self, together: Bool[np.ndarray, "pair row"], rows: Int[np.ndarray, " row"]
    ) -> tuple[Float[np.ndarray, " pair"], Float[np.ndarray, " pair"]]:
        """The mean of the products, which has the same error after gain and bias."""
        return 1 / np.maximum(together.sum(axis=1), 1), np.zeros(len(together))


Products = ActivationProducts | LabelProducts


class Ends(NamedTuple):
    """Lowest and highest score of each pair on inputs with both on, and on the others.

    Infinite (the low end above the high one) where there are no such inputs.
    """

    on_low: Float[np.ndarray, " pair"]
    on_high: Float[np.ndarray, " pair"]
    off_low: Float[np.ndarray, " pair"]
    off_high: Float[np.ndarray, " pair"]

    def with_more(self, other: Ends) -> Ends:
        """The ends over the inputs of both."""
        ways = (np.minimum, np.maximum) * 2
        return Ends(*(way(a, b) for way, a, b in zip(ways, self, other, strict=True)))

    def overlap(self) -> Bool[np.ndarray, " pair"]:
        """Whether some score with both on lies below another one, beyond rounding."""
        with np.errstate(invalid="ignore"):
            spread = np.maximum(self.on_high, self.off_high) - np.minimum(self.on_low, self.off_low)
            return np.asarray(self.on_low < self.off_high - ROUNDING * spread)

    def of(self, chosen: Bool[np.ndarray, " pair"] | Int[np.ndarray, " chosen"]) -> Ends:
        """The ends of some pairs."""
        return Ends(*(end[chosen] for end in self))


@dataclass(frozen=True, eq=False)
class SeparatedPairs:
    """The pairs whose scores are separated on all held-out inputs, sorted.

    Attributes:
        n_features: number of features.
        n_observed: number of pairs on together in fitted and in held-out rows.
        n_groups: number of groups of held-out rows.
        pairs: the separated ones.
        ends: ranges of their scores.
        fitted: number of fitted rows with both on.
        together: number of held-out rows with both on.
        groups: number of groups of those.
    """

    n_features: int
    n_observed: int
    n_groups: int
    pairs: Pairs
    ends: Ends
    fitted: Int[np.ndarray, " pair"]
    together: Int[np.ndarray, " pair"]
    groups: Int[np.ndarray, " pair"]

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def codes(self) -> Int[np.ndarray, " pair"]:
        """One ascending number for each pair."""
        return codes_of(self.pairs, self.n_features)

    @property
    def worst_after_offset(self) -> Float[np.ndarray, " pair"]:
        """The worst error of each pair after its best gain and bias."""
        return after_offset(*self.ends)

    @property
    def read(self) -> Bool[np.ndarray, " pair"]:
        """Whether that error is below that of an affine function of two bits."""
        return np.asarray(self.worst_after_offset < LIMIT)

    @property
    def p(self) -> Float[np.ndarray, " pair"]:
        """P-values of the separation, as in `errors`; all other observed pairs have 1."""
        return chance_of_order(self.groups, self.n_groups)

    def q(self) -> Float[np.ndarray, " pair"]:
        """The p-values, adjusted for all observed pairs (Benjamini and Yekutieli)."""
        return benjamini_yekutieli(self.p, self.n_observed)

    def holm(self) -> Float[np.ndarray, " pair"]:
        """The p-values, adjusted for all observed pairs (Holm)."""
        return holm(self.p, self.n_observed)

    def errors_at(self, pairs: Pairs) -> PairErrors:
        """The errors of observed pairs; those that are not separated count as overlapping whole."""
        at = self.index(pairs)
        ends = Ends(*(np.where(at < 0, 0.0, np.append(end, 0.0)[at]) for end in self.ends))
        there = np.ones(len(pairs), dtype=np.int64)
        return pair_errors(pairs, ends, (there, there, there))

    def index(self, pairs: Pairs) -> Int[np.ndarray, " pair"]:
        """The index of each of these pairs; -1 for one that is not separated."""
        if not len(self):
            return np.full(len(pairs), -1)
        codes = codes_of(pairs, self.n_features)
        at = np.minimum(np.searchsorted(self.codes, codes), len(self) - 1)
        return np.where(self.codes[at] == codes, at, -1)


def codes_of(pairs: Pairs, n_features: int) -> Int[np.ndarray, " pair"]:
    """One number for each pair, in the order of the pairs."""
    return np.asarray(pairs[:, 0] * n_features + pairs[:, 1])


class _Some(NamedTuple):
    """Pairs of one feature: the feature, its partners, and the pairs' indices in a list."""

    first: int
    partners: Int[np.ndarray, " partner"]
    indices: Int[np.ndarray, " partner"]


def pair_errors(pairs: Pairs, ends: Ends, counts: Counts) -> PairErrors:
    """The errors of observed pairs, without sums and histograms."""
    n = len(pairs)
    return PairErrors(
        pairs=pairs,
        fitted=counts[0],
        together=counts[1],
        count=np.stack([counts[1], *np.zeros((2, n), dtype=np.int64)]),
        low=np.stack([ends.on_low, ends.off_low, ends.off_low]),
        high=np.stack([ends.on_high, ends.off_high, ends.off_high]),
        squares=np.zeros((3, n)),
        histogram=np.zeros((3, N_BINS), dtype=np.int64),
    )


def separated_pairs(
    products: Products,
    labels: Labels,
    *,
    partners: int = PARTNERS,
    inputs: int = INPUTS,
    n_jobs: int | None = None,
) -> SeparatedPairs:
    """The pairs of all features that are separated on the held-out inputs.

    Args:
        products: of the activations, or of the features themselves.
        labels: the features.
        partners: partners of a feature in a block.
        inputs: held-out inputs in a block.
        n_jobs: threads; None: one per processor.
    """
    m = labels.fitted.shape[1]

    def left(first: int) -> tuple[int, Pairs]:
        return _left(products, labels, first, partners, inputs)

    parts = _in_threads(left, range(m), n_jobs)
    pairs = np.concatenate([pairs for _, pairs in parts])
    pairs, ends, counts = measured(
        products, labels, pairs, inputs=inputs, n_jobs=n_jobs, only_separated=True
    )
    n_observed, n_groups = sum(n for n, _ in parts), int(labels.groups.max()) + 1
    return SeparatedPairs(m, n_observed, n_groups, pairs, ends, *counts)


def measured(
    products: Products,
    labels: Labels,
    pairs: Pairs,
    *,
    inputs: int = INPUTS,
    n_jobs: int | None = None,
    only_separated: bool = False,
) -> tuple[Left, Ends, Counts]:
    """Pairs with their ends on all held-out inputs, and counts of rows with both on.

    Args:
        products: as for `separated_pairs`.
        labels: the features.
        pairs: observed pairs.
        inputs: held-out inputs in a block.
        n_jobs: threads; None: one per processor.
        only_separated: leave out pairs as soon as their scores overlap.
    """
    if only_separated:  # first on the inputs with the second feature on
        turned = list(_tiles(pairs[:, ::-1]))

        def apart(some: _Some) -> Bool[np.ndarray, " partner"]:
            rows = np.flatnonzero(labels.fitted[:, some.first])
            chosen = _spread(np.flatnonzero(labels.held_out[:, some.first]), inputs)
            return ~_ends(products(rows, chosen), labels, some, rows, chosen).overlap()

        pairs = _chosen(pairs, turned, _in_threads(apart, turned, n_jobs))
    everyone, n = np.arange(len(labels.fitted)), len(labels.held_out)
    ends: Ends | None = None
    order = np.random.default_rng(0).permutation(n) if only_separated else np.arange(n)
    for start in range(0, n, inputs):
        part = np.sort(order[start : start + inputs])
        block, tiles = products(everyone, part), list(_tiles(pairs))

        def of_tile(some: _Some, block: np.ndarray = block, part: np.ndarray = part) -> Ends:
            rows = np.flatnonzero(labels.fitted[:, some.first])
            return _ends(block[rows], labels, some, rows, part)

        new = _in_order(len(pairs), tiles, _in_threads(of_tile, tiles, n_jobs))
        ends = new if ends is None else ends.with_more(new)
        if only_separated:
            remaining = ~ends.overlap()
            pairs, ends = pairs[remaining], ends.of(remaining)
    assert ends is not None
    if only_separated:
        strictly = (ends.on_low > ends.off_high) & np.isfinite(ends.on_low - ends.off_high)
        pairs, ends = pairs[strictly], ends.of(strictly)
    return _scaled(products, labels, pairs, ends)


def _left(
    products: Products, labels: Labels, first: int, at_once: int, inputs: int
) -> tuple[int, Pairs]:
    """Number of a feature's observed pairs, and those that do not overlap where it is on."""
    rows = np.flatnonzero(labels.fitted[:, first])
    held_out = np.flatnonzero(labels.held_out[:, first])
    together, apart = labels.fitted[rows, first + 1 :], labels.held_out[held_out, first + 1 :]
    partners = first + 1 + np.flatnonzero(together.any(axis=0) & apart.any(axis=0))
    remaining = [np.zeros(0, dtype=np.int64)]
    if len(partners):
        chosen = _spread(held_out, inputs)
        block = products(rows, chosen)
        for start in range(0, len(partners), at_once):
            some = _Some(first, partners[start : start + at_once], np.zeros(0, dtype=np.int64))
            remaining.append(some.partners[~_ends(block, labels, some, rows, chosen).overlap()])
    left = np.concatenate(remaining)
    return len(partners), np.column_stack([np.full(len(left), first), left])


def _ends(
    products: Float[np.ndarray, "row input"],
    labels: Labels,
    some: _Some,
    rows: Int[np.ndarray, " row"],
    inputs: Int[np.ndarray, " input"],
) -> Ends:
    """Ends of the pairs' scores on these inputs, without gain and bias.

    Args:
        products: of these rows with these inputs.
        labels: the features.
        some: the pairs.
        rows: fitted rows with the first feature on.
        inputs: the inputs.
    """
    weights = _weights(labels.fitted[rows][:, some.partners].T)
    scores = np.asarray(weights @ products)
    on = labels.held_out[inputs][:, some.partners].T & labels.held_out[inputs, some.first]
    low = np.where(on, scores, np.inf), np.where(on, np.inf, scores)
    high = np.where(on, scores, -np.inf), np.where(on, -np.inf, scores)
    on_low, off_low = (side.min(axis=1, initial=np.inf) for side in low)
    on_high, off_high = (side.max(axis=1, initial=-np.inf) for side in high)
    return Ends(on_low, on_high, off_low, off_high)


def _scaled(
    products: Products, labels: Labels, pairs: Pairs, ends: Ends
) -> tuple[Left, Ends, Counts]:
    """The ends of readouts, and counts of fitted rows, held-out rows and their groups."""
    gain, bias = np.ones(len(pairs)), np.zeros(len(pairs))
    counts = np.zeros((3, len(pairs)), dtype=np.int64)
    for some in _tiles(pairs):
        rows = np.flatnonzero(labels.fitted[:, some.first])
        together = labels.fitted[rows][:, some.partners].T
        gain[some.indices], bias[some.indices] = products.scale(together, rows)
        held_out = np.flatnonzero(labels.held_out[:, some.first])
        held_out = held_out[np.argsort(labels.groups[held_out], kind="stable")]
        on = labels.held_out[held_out][:, some.partners]
        starts = np.flatnonzero(np.diff(labels.groups[held_out], prepend=-1))
        counts[:, some.indices] = (
            together.sum(axis=1),
            on.sum(axis=0),
            np.logical_or.reduceat(on, starts, axis=0).sum(axis=0),
        )
    defined = [np.where(np.isfinite(end), end, np.nan) for end in ends]  # as of pairs always on
    ends = Ends(*(end * gain + bias for end in defined))
    return pairs, ends, (counts[0], counts[1], counts[2])


def _weights(together: Bool[np.ndarray, "pair row"]) -> np.ndarray | sparse.csr_matrix:
    """The rows' weights in a sum; sparse if that is faster."""
    if together.size and together.mean() < SPARSE:
        return sparse.csr_matrix(together, dtype=np.float32)
    return np.asarray(together, dtype=np.float32)


def _spread(rows: Int[np.ndarray, " row"], most: int) -> Int[np.ndarray, " some"]:
    """Some rows, spread evenly over all."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]


def _tiles(pairs: Pairs, most: int = PARTNERS) -> Iterator[_Some]:
    """Pairs grouped by their first feature, in blocks of partners."""
    order = np.argsort(pairs[:, 0], kind="stable")
    starts = np.flatnonzero(np.diff(pairs[order, 0], prepend=-1))
    for indices in np.split(order, starts[1:]) if len(order) else []:
        for start in range(0, len(indices), most):
            part = indices[start : start + most]
            yield _Some(int(pairs[part[0], 0]), pairs[part, 1], part)


def _chosen(pairs: Pairs, tiles: Sequence[_Some], chosen: Sequence[Bool[np.ndarray, " _"]]) -> Left:
    if not tiles:
        return pairs
    indices = [some.indices[one] for some, one in zip(tiles, chosen, strict=True)]
    return np.asarray(pairs[np.sort(np.concatenate(indices))])


def _in_order(n: int, tiles: Sequence[_Some], parts: Sequence[Ends]) -> Ends:
    ends = Ends(*np.zeros((4, n)))
    for some, part in zip(tiles, parts, strict=True):
        for end, values in zip(ends, part, strict=True):
            end[some.indices] = values
    return ends


def _in_threads(
    work: Callable[[Item], Answer], items: Iterable[Item], n_jobs: int | None
) -> list[Answer]:
    """The answers to independent pieces of work, in order; each on one thread."""
    with threadpool_limits(1):
        parallel = joblib.Parallel(n_jobs or joblib.cpu_count(), prefer="threads", batch_size=16)
        return list(parallel(joblib.delayed(work)(item) for item in items))
