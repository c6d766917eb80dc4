"""The errors of pairwise readoffs on inputs, gathered tile by tile, by class of input.

For a pair, an input has both features on, one of them, or none. Of each class a pair keeps how many
inputs there are, the lowest and highest score and the sum of squared errors; of all pairs together
there is a histogram of absolute errors, whose bins are 1 % wide, for quantiles.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int, Num
from scipy import sparse

from interp_toolkit.boolean_functions import Epsilon, after_offset
from interp_toolkit.formatting import Brief
from interp_toolkit.probes.estimators.splits import Groups, group_codes

Pairs = Int[np.ndarray, "pair 2"]

CLASSES = ("both", "one", "none")
BOTH, ONE, NONE = range(3)
BIN = 0.01  # relative width of a bin
SMALLEST, LARGEST = 1e-8, 1e8  # errors beyond are counted in the end bins
N_BINS = int(np.log(LARGEST / SMALLEST) / BIN)


@dataclass(frozen=True, eq=False)
class PairErrors(Brief):
    """What the readoffs of some pairs do on some inputs.

    Attributes:
        pairs: the two features of each pair.
        fitted: inputs with both on that each readoff was fitted on; without any there is none.
        together: of these inputs, those with both on; without any there is no error.
        count: inputs by class and pair; 0 for pairs without a readoff or an error.
        low, high: of the scores, by class and pair; NaN where there are none.
        squares: sums of squared errors, by class and pair.
        histogram: absolute errors by class, over pairs (see the module).

    Examples:
        >>> from interp_toolkit.probes import UANDReadoff
        >>> rng = np.random.default_rng(0)
        >>> on = rng.random((200, 3)) < 0.5
        >>> X = np.column_stack([on, on[:, 0] & on[:, 1], rng.normal(size=200)]).astype(float)
        >>> (UANDReadoff().fit(X, on).errors(X, on).worst < 0.25).tolist()
        [True, False, False]
    """

    pairs: Pairs
    fitted: Int[np.ndarray, " pair"]
    together: Int[np.ndarray, " pair"]
    count: Int[np.ndarray, "3 pair"]
    low: Float[np.ndarray, "3 pair"]
    high: Float[np.ndarray, "3 pair"]
    squares: Float[np.ndarray, "3 pair"]
    histogram: Int[np.ndarray, "3 bin"] = field(repr=False)

    @property
    def seen(self) -> Bool[np.ndarray, " pair"]:
        """Pairs that occur together among these inputs and those fitted on, so have an error."""
        return np.asarray((self.together > 0) & (self.fitted > 0))

    @property
    def worst(self) -> Float[np.ndarray, " pair"]:
        """The largest |readoff - AND| of each pair; NaN where it is not seen."""
        on, off = self._on(), self._off()
        sides = np.stack([np.abs(on - 1), np.abs(off)]).max(axis=(0, 1))
        return np.where(self.seen, sides, np.nan)

    @property
    def worst_after_offset(self) -> Float[np.ndarray, " pair"]:
        """The same after each pair's best gain and bias on these inputs (see `epsilon`)."""
        on, off = self._on(), self._off()
        least = after_offset(on[0], on[1], off[0], off[1])
        return np.where(self.seen, least, np.nan)

    @property
    def separated(self) -> Bool[np.ndarray, " pair"]:
        """Whether all scores with both on lie above all others."""
        return np.asarray(self.seen & (self._on()[0] > self._off()[1]))

    @property
    def worst_by_class(self) -> dict[str, float]:
        """The largest error over pairs, by class of input."""
        targets = np.array([1.0, 0.0, 0.0])[:, None]
        errors = np.fmax(np.abs(self.low - targets), np.abs(self.high - targets))[:, self.seen]
        return {name: _largest(errors[c]) for c, name in enumerate(CLASSES)}

    @property
    def rms_by_class(self) -> dict[str, float]:
        """The root mean square error over pairs and inputs, by class of input."""
        squares, count = (x[:, self.seen].sum(axis=1) for x in (self.squares, self.count))
        return {
            name: float(np.sqrt(squares[c] / count[c])) if count[c] else float("nan")
            for c, name in enumerate(CLASSES)
        }

    @property
    def q99_by_class(self) -> dict[str, float]:
        """The 99 % quantile of the errors over pairs and inputs, by class of input.

        Of class "none" over a sample of the inputs where there are many.
        """
        worst = self.worst_by_class
        return {
            name: min(quantile(self.histogram[c], 0.99), worst[name])
            for c, name in enumerate(CLASSES)
        }

    def epsilon(self) -> Epsilon:
        """The errors over all seen pairs; NaN where no pair is seen."""
        seen = self.seen
        total = self.count[:, seen].sum()
        return Epsilon(
            worst=_largest(self.worst),
            q99=min(quantile(self._weighted_histogram(), 0.99), _largest(self.worst)),
            rms=float(np.sqrt(self.squares[:, seen].sum() / total)) if total else float("nan"),
            worst_after_offset=_largest(self.worst_after_offset),
        )

    def _on(self) -> Float[np.ndarray, "2 pair"]:
        return np.stack([self.low[BOTH], self.high[BOTH]])

    def _off(self) -> Float[np.ndarray, "2 pair"]:
        """Lowest and highest score with one on or none."""
        low = np.fmin(self.low[ONE], self.low[NONE])
        return np.stack([low, np.fmax(self.high[ONE], self.high[NONE])])

    def _weighted_histogram(self) -> Float[np.ndarray, " bin"]:
        """All errors together: each class' sample weighs as much as its inputs do."""
        weights = self.count[:, self.seen].sum(axis=1) / np.maximum(self.histogram.sum(axis=1), 1)
        return np.asarray(weights @ self.histogram)


def quantile(histogram: Num[np.ndarray, " bin"], q: float) -> float:
    """A quantile of the absolute errors, to the upper edge of its bin; NaN of no errors."""
    total = histogram.sum()
    if not total:
        return float("nan")
    place = int(np.searchsorted(np.cumsum(histogram), q * total))
    return float(SMALLEST * np.exp(BIN * (place + 1)))


def error_histogram(errors: Float[np.ndarray, " error"]) -> Int[np.ndarray, " bin"]:
    """How many errors fall into each bin, by their absolute size."""
    sizes = np.clip(np.abs(errors), SMALLEST, LARGEST)
    bins = (np.log(sizes / SMALLEST) / BIN).astype(np.int64)
    return np.bincount(np.minimum(bins, N_BINS - 1), minlength=N_BINS)


def _largest(values: Float[np.ndarray, " value"]) -> float:
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else float("nan")


def groups_together(
    features: Bool[np.ndarray, "n m"], groups: Groups | None, pairs: Pairs
) -> Int[np.ndarray, " pair"]:
    """In how many groups of rows (None: rows) each pair is on together at least once."""
    on = sparse.csr_matrix(features, dtype=np.int64)
    if groups is None:
        return np.asarray((on.T @ on).toarray()[pairs[:, 0], pairs[:, 1]])
    codes = group_codes(groups)
    counts = np.zeros((features.shape[1],) * 2, dtype=np.int64)
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        members = on[rows]
        joint = (members.T @ members).tocoo()
        counts[joint.row, joint.col] += 1
    return np.asarray(counts[pairs[:, 0], pairs[:, 1]])
