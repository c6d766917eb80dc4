"""The errors of pairwise readouts on inputs, and the classification of each pair.

For a pair, an input has both features on, one of them, or none. For each of these classes a pair
stores the number of inputs, the lowest and highest score and the sum of squared errors. All pairs
together share a histogram of absolute errors, with bins 1 % wide, for quantiles. One tile is a
feature i with its partners j. Its scores are processed in two parts: inputs with i on (both on, or
one) and inputs without (one on, or none).

A pair counts as readable if its held-out worst error after the best gain and bias is below 1/4,
which no affine function of two bits attains. Then every score with both on lies above all others
by some distance. If the labels were unrelated to the activations, all k groups of rows with both
on would come out on top of n in one out of C(n, k) orders: that is the p-value. It is adjusted for
all pairs after Benjamini and Yekutieli, which is valid under any dependence.

- computed: readable here, and the layer's input is shown to lack it (see `absence`): whatever the
  weights, no affine function of the input comes as near to the AND on the rows read well here;
- before: already readable at the layer's input, or from what enters its nonlinearity;
- absent: the worst error is 1/4 or more, and there were rows enough to find a readout;
- undecided: below 1/4, but on too few rows to exclude chance, or to exclude that the input has it,
  or on rows where an affine function of the features is below 1/4 too (for example if one feature
  is never on without the other); or not readable, with too few rows to find a readout;
- unseen: never on together in the fitted rows, or in the held-out ones: there is no error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Bool, Float, Int, Num
from scipy import sparse
from scipy.special import gammaln

from interp_toolkit.boolean_functions import Epsilon, after_offset
from interp_toolkit.evidence import first_shown
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.probes.estimators.splits import Groups, group_codes
from interp_toolkit.probes.uand.absence import LIMIT, SiteRows
from interp_toolkit.stats import benjamini_yekutieli

Pairs = Int[np.ndarray, "pair 2"]

CLASSES = ("both", "one", "none")
BOTH, ONE, NONE = range(3)
BIN = 0.01  # relative width of a bin
SMALLEST, LARGEST = 1e-8, 1e8  # errors outside are counted in the end bins
FEW = 20  # times fewer pairs than a table of all has entries, and they are counted one by one
N_BINS = int(np.log(LARGEST / SMALLEST) / BIN)


@dataclass(frozen=True, eq=False)
class PairErrors(ShortRepr):
    """Errors of the readouts of some pairs on some inputs.

    Attributes:
        pairs: the two features of each pair.
        fitted: inputs with both on in the fitted rows; pairs with 0 have no readout.
        together: inputs with both on in these rows; pairs with 0 have no error.
        count: inputs by class and pair; 0 for pairs without a readout or an error.
        low, high: range of the scores, by class and pair; NaN if there are none.
        squares: sums of squared errors, by class and pair.
        histogram: absolute errors by class, over pairs (see the module).

    Examples:
        >>> from interp_toolkit.probes import UANDReadout
        >>> rng = np.random.default_rng(0)
        >>> on = rng.random((200, 3)) < 0.5
        >>> X = np.column_stack([on, on[:, 0] & on[:, 1], rng.normal(size=200)]).astype(float)
        >>> (UANDReadout().fit(X, on).errors(X, on).worst < 0.25).tolist()
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
    def observed(self) -> Bool[np.ndarray, " pair"]:
        """Pairs on together in these inputs and in the fitted ones; the others have no error."""
        return np.asarray((self.together > 0) & (self.fitted > 0))

    @property
    def worst(self) -> Float[np.ndarray, " pair"]:
        """The largest |readout - AND| of each pair; NaN if the pair is not observed."""
        on, off = self._on(), self._off()
        sides = np.stack([np.abs(on - 1), np.abs(off)]).max(axis=(0, 1))
        return np.where(self.observed, sides, np.nan)

    @property
    def worst_after_offset(self) -> Float[np.ndarray, " pair"]:
        """The worst error after each pair's best gain and bias on these inputs; NaN as `worst`."""
        on, off = self._on(), self._off()
        least = after_offset(on[0], on[1], off[0], off[1])
        return np.where(self.observed, least, np.nan)

    @property
    def separated(self) -> Bool[np.ndarray, " pair"]:
        """Whether all scores with both on lie above all others."""
        return np.asarray(self.observed & (self._on()[0] > self._off()[1]))

    @property
    def worst_by_class(self) -> dict[str, float]:
        """The largest error over pairs, by class of input."""
        targets = np.array([1.0, 0.0, 0.0])[:, None]
        errors = np.fmax(np.abs(self.low - targets), np.abs(self.high - targets))[:, self.observed]
        return {name: _largest(errors[c]) for c, name in enumerate(CLASSES)}

    @property
    def rms_by_class(self) -> dict[str, float]:
        """The root mean square error over pairs and inputs, by class of input."""
        squares, count = (x[:, self.observed].sum(axis=1) for x in (self.squares, self.count))
        return {
            name: float(np.sqrt(squares[c] / count[c])) if count[c] else float("nan")
            for c, name in enumerate(CLASSES)
        }

    @property
    def q99_by_class(self) -> dict[str, float]:
        """The 99 % quantile of the errors over pairs and inputs, by class of input.

        For class "none" it is computed on a sample of the inputs if there are many.
        """
        worst = self.worst_by_class
        return {
            name: min(quantile(self.histogram[c], 0.99), worst[name])
            for c, name in enumerate(CLASSES)
        }

    def epsilon(self) -> Epsilon:
        """The errors over all observed pairs; NaN if there are none."""
        observed = self.observed
        total = self.count[:, observed].sum()
        return Epsilon(
            worst=_largest(self.worst),
            q99=min(quantile(self._weighted_histogram(), 0.99), _largest(self.worst)),
            rms=float(np.sqrt(self.squares[:, observed].sum() / total)) if total else float("nan"),
            worst_after_offset=_largest(self.worst_after_offset),
        )

    def _on(self) -> Float[np.ndarray, "2 pair"]:
        return np.stack([self.low[BOTH], self.high[BOTH]])

    def _off(self) -> Float[np.ndarray, "2 pair"]:
        """Lowest and highest score with one on or none."""
        low = np.fmin(self.low[ONE], self.low[NONE])
        return np.stack([low, np.fmax(self.high[ONE], self.high[NONE])])

    def _weighted_histogram(self) -> Float[np.ndarray, " bin"]:
        """All errors together: each class' sample is weighted by the number of its inputs."""
        weights = self.count[:, self.observed].sum(axis=1) / np.maximum(
            self.histogram.sum(axis=1), 1
        )
        return np.asarray(weights @ self.histogram)


def quantile(histogram: Num[np.ndarray, " bin"], q: float) -> float:
    """A quantile of the absolute errors, rounded up to the edge of its bin; NaN without errors."""
    total = histogram.sum()
    if not total:
        return float("nan")
    index = int(np.searchsorted(np.cumsum(histogram), q * total))
    return float(SMALLEST * np.exp(BIN * (index + 1)))


def error_histogram(errors: Float[np.ndarray, " error"]) -> Int[np.ndarray, " bin"]:
    """The number of errors in each bin, by absolute size."""
    sizes = np.clip(np.abs(errors), SMALLEST, LARGEST)
    bins = (np.log(sizes / SMALLEST) / BIN).astype(np.int64)
    return np.bincount(np.minimum(bins, N_BINS - 1), minlength=N_BINS)


def _largest(values: Float[np.ndarray, " value"]) -> float:
    finite = values[~np.isnan(values)]
    return float(finite.max()) if len(finite) else float("nan")


def groups_together(
    features: Bool[np.ndarray, "n m"], groups: Groups | None, pairs: Pairs
) -> Int[np.ndarray, " pair"]:
    """Number of groups of rows (None: rows) in which each pair is on together at least once."""
    if groups is None and FEW * len(pairs) < features.shape[1] ** 2:
        together = np.zeros(len(pairs), dtype=np.int64)
        for tile in tiles_of(pairs, np.arange(len(pairs))):
            rows = features[features[:, tile.first]]
            together[tile.partner_indices] = rows[:, tile.partners].sum(axis=0)
        return together
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


class Tile(NamedTuple):
    """The pairs that share a first feature.

    Attributes:
        first: the feature.
        partners: the other features.
        partner_indices: indices of the pairs in the original list.
    """

    first: int
    partners: Int[np.ndarray, " partner"]
    partner_indices: Int[np.ndarray, " partner"]


def tiles_of(pairs: Pairs, chosen: Int[np.ndarray, " chosen"]) -> list[Tile]:
    """Group the chosen pairs by their first feature."""
    order = chosen[np.argsort(pairs[chosen, 0], kind="stable")]
    starts = np.flatnonzero(np.diff(pairs[order, 0], prepend=-1))
    parts = np.split(order, starts[1:]) if len(order) else []
    return [Tile(int(pairs[part[0], 0]), pairs[part, 1], part) for part in parts]


class TileErrors:
    """Errors of a tile's scores on some inputs.

    Attributes: as in `PairErrors`, for the partners.
    """

    def __init__(self, n_partners: int):
        self.count = np.zeros((3, n_partners), dtype=np.int64)
        self.low = np.full((3, n_partners), np.inf)
        self.high = np.full((3, n_partners), -np.inf)
        self.squares = np.zeros((3, n_partners))
        self.histogram = np.zeros((3, N_BINS), dtype=np.int64)

    def add(
        self,
        scores: Float[np.ndarray, "partner input"],
        first: Bool[np.ndarray, " input"],
        others: Bool[np.ndarray, "partner input"],
        step: int,
    ) -> None:
        """Add the scores of inputs with these features on.

        Args:
            scores: scores of each pair.
            first: whether feature i is on.
            others: whether feature j is.
            step: every step-th score of class none enters the histogram.
        """
        with_first, without = scores[:, first], scores[:, ~first]
        both, one = others[:, first], others[:, ~first]
        self._add_few(BOTH, with_first, both, 1.0)
        self._add_few(ONE, with_first, ~both, 0.0)
        self._add_few(ONE, without, one, 0.0)
        self._add_rest(without, one, step)

    def _add_few(
        self,
        kind: int,
        scores: Float[np.ndarray, "partner input"],
        chosen: Bool[np.ndarray, "partner input"],
        target: float,
    ) -> None:
        """Add the chosen scores, gathered into one array."""
        rows, columns = np.nonzero(chosen)
        if not len(rows):
            return
        values = scores[rows, columns]
        counts = np.bincount(rows, minlength=len(scores))
        present = np.flatnonzero(counts)
        starts = np.concatenate([[0], np.cumsum(counts[present])[:-1]])
        self._extend(
            kind,
            present,
            np.minimum.reduceat(values, starts),
            np.maximum.reduceat(values, starts),
        )
        errors = values.astype(np.float64) - target
        self.count[kind] += counts
        self.squares[kind] += np.bincount(rows, errors**2, minlength=len(scores))
        self.histogram[kind] += error_histogram(errors)

    def _add_rest(
        self,
        scores: Float[np.ndarray, "partner input"],
        left_out: Bool[np.ndarray, "partner input"],
        step: int,
    ) -> None:
        """Add all scores except those left out; `scores` is overwritten."""
        count = scores.shape[1] - left_out.sum(axis=1)
        present = np.flatnonzero(count)
        if not len(present):
            return
        self.count[NONE] += count
        self.histogram[NONE] += error_histogram(scores[:, ::step][~left_out[:, ::step]])
        scores[left_out] = 0.0
        self.squares[NONE] += np.einsum("pi,pi->p", scores, scores, dtype=np.float64)
        scores[left_out] = np.inf
        low = scores.min(axis=1)
        scores[left_out] = -np.inf
        self._extend(NONE, present, low[present], scores.max(axis=1)[present])

    def _extend(
        self,
        kind: int,
        partners: Int[np.ndarray, " present"],
        low: Float[np.ndarray, " present"],
        high: Float[np.ndarray, " present"],
    ) -> None:
        self.low[kind, partners] = np.minimum(self.low[kind, partners], low)
        self.high[kind, partners] = np.maximum(self.high[kind, partners], high)


def gathered(
    pairs: Pairs,
    fitted: Int[np.ndarray, " pair"],
    together: Int[np.ndarray, " pair"],
    tiles: Sequence[Tile],
    errors: Sequence[TileErrors],
) -> PairErrors:
    """All tiles' errors, in the order of the pairs."""
    count, squares = np.zeros((3, len(pairs)), dtype=np.int64), np.zeros((3, len(pairs)))
    low, high = np.full((2, 3, len(pairs)), np.nan)
    histogram = np.zeros((3, N_BINS), dtype=np.int64)
    for tile, values in zip(tiles, errors, strict=True):
        count[:, tile.partner_indices], squares[:, tile.partner_indices] = (
            values.count,
            values.squares,
        )
        absent = values.count == 0
        low[:, tile.partner_indices] = np.where(absent, np.nan, values.low)
        high[:, tile.partner_indices] = np.where(absent, np.nan, values.high)
        histogram += values.histogram
    return PairErrors(pairs, fitted, together, count, low, high, squares, histogram)


Claim = Literal["computed", "before", "absent", "undecided", "unseen"]
CLAIMS: tuple[Claim, ...] = get_args(Claim)


class PairEvidence(NamedTuple):
    """Readouts of all pairs at one hook point.

    Attributes:
        errors: on held-out rows.
        q: adjusted p-values of the pairs, from `q_values`.
        rows: the activations on all rows; without them nothing is shown to be absent.
    """

    errors: PairErrors
    q: Float[np.ndarray, " pair"]
    rows: SiteRows | None = None

    def near(self, k: int) -> Bool[np.ndarray, " n"]:
        """Rows on which the readout of pair k, with its best gain and bias, is near the AND."""
        assert self.rows is not None
        (on_low, on_high), (off_low, off_high) = (
            ends[:, k] for ends in (self.errors._on(), self.errors._off())
        )
        spread = max(on_high - on_low, off_high - off_low)
        gain = 1 / (on_low - off_high + spread)
        return self.rows.near(self.errors.pairs[k], gain, gain * (spread / 2 - off_high))


def p_values(
    errors: PairErrors, together: Int[np.ndarray, " pair"], n_groups: int
) -> Float[np.ndarray, " pair"]:
    """P-values of the pairs' separation (see the module); NaN for unobserved pairs.

    Args:
        errors: on held-out rows.
        together: number of independent groups of these rows in which both are on, by pair.
        n_groups: number of groups of held-out rows.
    """
    p = np.where(errors.separated, chance_of_order(together, n_groups), 1.0)
    return np.where(errors.observed, p, np.nan)


def chance_of_order(
    together: Int[np.ndarray, " pair"], n_groups: int
) -> Float[np.ndarray, " pair"]:
    """The chance that the groups with both on come out on top of all others (see the module)."""
    log_orders = gammaln(n_groups + 1) - gammaln(together + 1) - gammaln(n_groups - together + 1)
    return np.asarray(np.exp(-log_orders))


def q_values(
    errors: PairErrors, together: Int[np.ndarray, " pair"], n_groups: int
) -> Float[np.ndarray, " pair"]:
    """`p_values`, adjusted for all pairs."""
    return benjamini_yekutieli(p_values(errors, together, n_groups))


def claims(
    here: PairEvidence,
    before: Sequence[PairEvidence],
    affine: Bool[np.ndarray, " pair"],
    level: float,
) -> list[Claim]:
    """The class of each pair; if the layer's input is unknown, no pair counts as computed.

    Args:
        here: the readouts at the layer.
        before: those at its input, and at sites that are affine in its input.
        affine: whether the AND is an affine function of the features on these rows.
        level: false discovery rate.
    """
    read = is_read(here.errors)
    sure = read & (here.q <= level) & ~affine
    early = np.zeros(len(read), dtype=bool)
    surely_early = early.copy()
    for reading in before:
        also = is_read(reading.errors)
        early |= also
        surely_early |= also & (reading.q <= level) & ~affine
    enough = here.rows is not None and here.rows.enough
    computed = np.zeros(len(read), dtype=bool)
    if before and here.rows is not None and (rows := before[0].rows) is not None:
        chosen = np.flatnonzero(sure & ~early)
        for k in chosen[np.argsort(here.q[chosen], kind="stable")][: rows.most_pairs].tolist():
            if rows.lacks(here.errors.pairs[k], here.near(k)):
                computed[k] = True
    return first_shown(
        {
            "unseen": ~here.errors.observed,
            "computed": computed,
            "before": surely_early,
            "absent": ~(read | early) & enough,
        }
    )


def claim_of_unread(here: SiteRows | None) -> Claim:
    """The class of an observed pair that no readout separates, here or before."""
    shown: dict[Claim, np.ndarray] = {"absent": np.array([here is not None and here.enough])}
    return first_shown(shown)[0]


def never_apart(features: Bool[np.ndarray, "n m"], pairs: Pairs) -> Bool[np.ndarray, " pair"]:
    """Pairs for which one of the four inputs (both, either alone, none) does not occur."""
    together = groups_together(features, None, pairs)
    alone = features.sum(axis=0)[pairs] - together[:, None]
    neither = len(features) - together - alone.sum(axis=1)
    return np.asarray((together == 0) | (alone == 0).any(axis=1) | (neither == 0))


def counts(pair_claims: Sequence[Claim]) -> dict[Claim, int]:
    """The number of pairs in each class."""
    counted = Counter(pair_claims)
    return {claim: counted[claim] for claim in CLAIMS}


def main_claim(counted: Mapping[Claim, int]) -> Claim:
    """The class of the layer as a whole: computed or before, whichever has more pairs.

    A layer may be built for a few pairs out of many. Only if no pair is in these two classes is the
    layer absent or undecided, whichever has more pairs; undecided if all pairs are unseen.
    """
    rivals: tuple[tuple[Claim, Claim], ...] = (("computed", "before"), ("absent", "undecided"))
    return next(
        (max(both, key=lambda one: counted[one]) for both in rivals if any(map(counted.get, both))),
        rivals[-1][-1],
    )


def is_read(errors: PairErrors) -> Bool[np.ndarray, " pair"]:
    """Whether the worst error after offset is below the minimum of an affine function."""
    return errors.observed & (errors.worst_after_offset < LIMIT)
