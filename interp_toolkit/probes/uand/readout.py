"""Linear readouts of the AND of every pair of boolean features, all at once.

The readout of a gate is the direction of least output power with a fixed response to the gate's own
inputs (minimum variance, distortionless response; Capon 1969). It equals least squares up to gain
and bias, which are set so that the mean output is 1 where the gate is true and 0 elsewhere. A plain
least-squares fit shrinks towards 0, the more the rarer the gate.

One factorization serves all readouts (`whiten`). Columns are scaled to a standard deviation of 1,
so that a ridge has the same weight on all. With mean m and covariance G = V Λ V^T of the scaled
columns, y = (Λ + ridge)^(-1/2) V^T (x - m). With fewer rows than columns there are at most n
directions, and they are computed from the rows' Gram matrix. In these coordinates the direction is
the mean c of y over the rows with both features on, a fraction p of all rows, so that

    readout(x) = p + (1 - p) y(x) . c / response,

with n rows of weights 0 or 1 for each pair. The response is estimated on left-out rows. Each of the
k rows with both on is left out of the mean and of the covariance in turn, and its output is
y_a . (sum y - y_a) / ((k - 1) (1 - |y_a|^2 / n)) by the Sherman-Morrison formula; these are
averaged. ANDs of any fan-in, single features and truth tables are read alike.
Source: "Computation in superposition", sections 1.1, 1.2 and 1.4 (readoffs and their errors).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import joblib
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse
from scipy.linalg import cholesky, eigh, lapack
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from interp_toolkit.boolean_functions import Epsilon, mobius
from interp_toolkit.errors import InputError
from interp_toolkit.formatting import counted
from interp_toolkit.probes.estimators.arrays import checked_rows
from interp_toolkit.probes.estimators.truth_tables import truth_values
from interp_toolkit.probes.uand.errors import (
    PairErrors,
    Pairs,
    Tile,
    TileErrors,
    gathered,
    groups_together,
    tiles_of,
)

RIDGE = 1e-3
MOST_LEVERAGE = 0.99  # of a row on its own readout; above, leaving it out is not informative
LEAST_RESPONSE = 0.1  # to other rows, relative to that to itself; less counts as none
HISTOGRAM_SCORES = 20_000_000  # largest number of scores with neither feature on, about
PRODUCTS_AT_ONCE = 2**29  # bytes of products of fitted and held-out rows
PAIRS_AT_ONCE = 512  # scored by one product
SPARSE_COST = 12.0  # of a multiplication in a sparse product, relative to a dense one; measured


class UANDReadout(BaseEstimator):
    """Readouts of the AND of every pair of features from activations.

    Args:
        ridge: added to the activations' covariance, after scaling columns to a variance of 1.
        n_jobs: threads; None: one per processor.

    Attributes:
        n_features_in_: number of columns of the activations.
        n_together_: [m, m] number of rows on which two of the m features are on together.

    Examples:
        >>> on = np.random.default_rng(0).random((200, 3)) < 0.5
        >>> X = np.column_stack([on, on[:, 0] & on[:, 1]]).astype(float)
        >>> readout = UANDReadout().fit(X, on)
        >>> readout.score(X, [(0, 1), (1, 2)]).shape
        (200, 2)
    """

    def __init__(self, *, ridge: float = RIDGE, n_jobs: int | None = None) -> None:
        self.ridge = ridge
        self.n_jobs = n_jobs

    def fit(self, X: Any, features: Any) -> UANDReadout:
        """Fit the readouts of all pairs.

        Args:
            X: [n, d] activations.
            features: [n, m] booleans, or 0 and 1: the features that are on in each row.

        Raises:
            InputError: shapes that do not fit, values that are not finite or not boolean, a ridge
                too small for these activations.
        """
        if not 0 <= self.ridge < np.inf:
            raise InputError(f"ridge is {self.ridge}; it must be 0 or more")
        X, self._features = checked(X, features)
        self.n_features_in_ = X.shape[1]
        self._whitening = whiten(X, self.ridge)
        self._rows = self._whitening(X)
        self._norms = np.einsum("nd,nd->n", self._rows, self._rows)
        leverage = np.minimum(self._norms / len(X), MOST_LEVERAGE)
        self._boost = 1 / (1 - leverage)
        return self

    @property
    def n_together_(self) -> Int[np.ndarray, "m m"]:
        """Number of fitted rows on which two features are on together."""
        on = sparse.csr_matrix(self._features, dtype=np.int64)
        return np.asarray((on.T @ on).toarray())

    def readouts(
        self, gates: Sequence[Sequence[int]] | None = None
    ) -> tuple[Float[np.ndarray, "gate d"], Float[np.ndarray, " gate"]]:
        """Directions and intercepts: `readout = X @ direction + intercept`.

        Args:
            gates: the feature indices of each gate, one or more; None: all pairs i < j, in order.

        Raises:
            InputError: unknown or repeated features, or a gate that is true on none of the fitted
                rows.
        """
        check_is_fitted(self)
        chosen = all_pairs(self._features.shape[1]).tolist() if gates is None else gates
        if not len(chosen):
            raise InputError("gates is empty: give at least one")
        columns = [self._whitened_readout(gate) for gate in chosen]
        readouts, shares = (np.stack(part) for part in zip(*columns, strict=True))
        directions = self._whitening.directions(readouts)
        return directions, shares - directions @ self._whitening.mean

    def score(
        self, X: Any, gates: Sequence[Sequence[int]] | None = None
    ) -> Float[np.ndarray, "n gate"]:
        """The gates' scores on these activations: near 1 if true, near 0 if false.

        Raises InputError as `readouts` does, and for activations of another width.
        """
        directions, intercepts = self.readouts(gates)
        return np.asarray(numbers(X, self.n_features_in_) @ directions.T + intercepts)

    def truth_table_readout(
        self, table: str, features: Sequence[int]
    ) -> tuple[Float[np.ndarray, " d"], float]:
        """Direction and intercept of any boolean function of some features, through their ANDs.

        XOR is f_i + f_j - 2 AND_ij, and so on (`boolean_functions.mobius`); the errors of the ANDs
        and of the single features' readouts add up with these coefficients.

        Args:
            table: 2^k bits, the first feature most significant.
            features: indices of the k features.

        Raises:
            InputError: a table that does not fit, or what `readouts` raises.
        """
        _check_size(table, features)
        terms = {tuple(features[k] for k in chosen): c for chosen, c in mobius(table).items()}
        constant = float(terms.pop((), 0))
        gates = [gate for gate, coefficient in terms.items() if coefficient]
        if not gates:
            return np.zeros(self.n_features_in_), constant
        directions, intercepts = self.readouts(gates)
        weights = np.array([terms[gate] for gate in gates], dtype=float)
        return weights @ directions, float(constant + weights @ intercepts)

    def fitted_readout(
        self, table: str, features: Sequence[int]
    ) -> tuple[Float[np.ndarray, " d"], float]:
        """Direction and intercept of a boolean function, fitted to its own values.

        `truth_table_readout` adds up the errors of its ANDs; this readout treats the function as
        one gate, and may not generalize to inputs unlike the fitted ones.

        Args:
            table: 2^k bits, the first feature most significant.
            features: indices of the k features.

        Raises:
            InputError: a table that does not fit, unknown features, or a function that is true on
                none of the fitted rows.
        """
        check_is_fitted(self)
        _check_size(table, features)
        chosen = checked_gate(features, self._features.shape[1])
        rows = np.flatnonzero(truth_values(table, self._features[:, chosen]))
        if not len(rows):
            raise InputError(f"the table {table} is true on none of the fitted rows")
        whitened, share = self._towards(rows)
        [direction] = self._whitening.directions(whitened[None])
        return direction, float(share - direction @ self._whitening.mean)

    def epsilon(self, X: Any, features: Any, pairs: Any = None) -> Epsilon:
        """The errors over all pairs; arguments and exceptions as for `errors`, which is by pair."""
        return self.errors(X, features, pairs).epsilon()

    def errors(self, X: Any, features: Any, pairs: Any = None) -> PairErrors:
        """The errors of the pairs' readouts on these inputs, which should be held out.

        Args:
            X: [n, d] activations.
            features: [n, m] booleans.
            pairs: [pair, 2] feature indices; None: all i < j.

        Raises:
            InputError: shapes or values that do not fit.
        """
        check_is_fitted(self)
        m = self._features.shape[1]
        X, features = checked(X, features, like=(self.n_features_in_, m))
        chosen = all_pairs(m) if pairs is None else checked_pairs(pairs, m)
        fitted = groups_together(self._features, None, chosen)
        together = groups_together(features, None, chosen)
        fitted_pairs = np.flatnonzero((fitted > 0) & (together > 0))
        tiles = tiles_of(chosen, fitted_pairs)
        on = np.ascontiguousarray(features.T)
        sparsely = self._sparse_pays(tiles, fitted, len(X))
        row_bytes = self._rows.itemsize * max(len(self._rows) if sparsely else 0, m)
        at_once = max(1, PRODUCTS_AT_ONCE // row_bytes)
        step = max(1, len(fitted_pairs) * len(X) // HISTOGRAM_SCORES)
        tile_errors = [TileErrors(len(tile.partners)) for tile in tiles]
        for start in range(0, len(X), at_once):
            part = slice(start, start + at_once)
            held_out = self._whitening(X[part].astype(self._rows.dtype, copy=False))
            if not sparsely:
                for group in _groups_of(tiles):
                    self._measure_together(
                        [tiles[k] for k in group],
                        held_out,
                        on[:, part],
                        step,
                        [tile_errors[k] for k in group],
                    )
                continue
            products = self._rows @ held_out.T
            joblib.Parallel(self.n_jobs or joblib.cpu_count(), prefer="threads")(
                joblib.delayed(self._measure)(tile, products, on[:, part], step, errors)
                for tile, errors in zip(tiles, tile_errors, strict=True)
            )
        return gathered(chosen, fitted, together, tiles, tile_errors)

    def _measure(
        self,
        tile: Tile,
        products: Float[np.ndarray, "row input"],
        on: Bool[np.ndarray, "feature input"],
        step: int,
        errors: TileErrors,
    ) -> None:
        """Add a tile's scores to its errors, from products of all rows and inputs."""
        rows, together = self._together(tile)
        weights = sparse.csr_matrix(together.astype(self._rows.dtype))
        scaling = self.gain_and_bias(weights, rows, together.sum(axis=1))
        _add_scaled(np.asarray(weights @ products[rows]), scaling, tile, on, step, errors)

    def _measure_together(
        self,
        tiles: Sequence[Tile],
        held_out: Float[np.ndarray, "input d"],
        on: Bool[np.ndarray, "feature input"],
        step: int,
        errors: Sequence[TileErrors],
    ) -> None:
        """Add the scores of several tiles to their errors, from one product for all."""
        summed = [self._summed(tile) for tile in tiles]
        every = np.concatenate([sums for sums, _ in summed]) @ held_out.T
        ends = np.cumsum([len(sums) for sums, _ in summed])[:-1]
        for tile, scores, (_, scaling), one in zip(
            tiles, np.split(every, ends), summed, errors, strict=True
        ):
            _add_scaled(scores, scaling, tile, on, step, one)

    def _summed(
        self, tile: Tile
    ) -> tuple[
        Float[np.ndarray, "partner d"],
        tuple[Float[np.ndarray, " partner"], Float[np.ndarray, " partner"]],
    ]:
        """Sums of the rows with both features on, and gain and bias."""
        rows, together = self._together(tile)
        weights = together.astype(self._rows.dtype)
        sums = weights @ self._rows[rows]
        return sums, self._gain_and_bias(weights, sums, rows, together.sum(axis=1))

    def _together(
        self, tile: Tile
    ) -> tuple[Int[np.ndarray, " row"], Bool[np.ndarray, "partner row"]]:
        """Rows with the first feature on, and whether each partner is on too."""
        rows = np.flatnonzero(self._features[:, tile.first])
        return rows, self._features[rows][:, tile.partners].T

    def whitened(self, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
        """Activations in the coordinates in which readouts are sums of the fitted rows."""
        return self._whitening(X.astype(self._rows.dtype, copy=False))

    @property
    def whitened_rows(self) -> Float[np.ndarray, "row k"]:
        """The fitted rows in these coordinates."""
        return self._rows

    def gain_and_bias(
        self, weights: Any, rows: Int[np.ndarray, " row"], count: Int[np.ndarray, " gate"]
    ) -> tuple[Float[np.ndarray, " gate"], Float[np.ndarray, " gate"]]:
        """The readout of a gate is gain * (products with the sum of its rows) + bias.

        Args:
            weights: [gate row], dense or sparse: 1 for a row on which the gate is true.
            rows: the fitted rows.
            count: number of rows with weight 1.
        """
        return self._gain_and_bias(weights, weights @ self._rows[rows], rows, count)

    def _gain_and_bias(
        self,
        weights: Any,
        sums: Float[np.ndarray, "gate k"],
        rows: Int[np.ndarray, " row"],
        count: Int[np.ndarray, " gate"],
    ) -> tuple[Float[np.ndarray, " gate"], Float[np.ndarray, " gate"]]:
        boosted = weights @ (self._rows[rows] * self._boost[rows, None])
        own = weights @ (self._norms * self._boost)[rows]
        share = count / len(self._rows)
        return (1 - share) / (np.maximum(count, 1) * _response(sums, boosted, own, count)), share

    def _whitened_readout(
        self, gate: Sequence[int]
    ) -> tuple[Float[np.ndarray, " d"], np.floating[Any]]:
        """The direction in whitened activations, and the fraction of rows with a true gate."""
        chosen = checked_gate(gate, self._features.shape[1])
        rows = np.flatnonzero(self._features[:, chosen].all(axis=1))
        if not len(rows):
            names = ", ".join(map(str, chosen))
            raise InputError(f"the AND of features {names} is true on none of the fitted rows")
        return self._towards(rows)

    def _towards(
        self, rows: Int[np.ndarray, " true"]
    ) -> tuple[Float[np.ndarray, " d"], np.floating[Any]]:
        """The direction and fraction for a function that is true on these fitted rows."""
        total = self._rows[rows].sum(axis=0)
        boosted = (self._rows[rows] * self._boost[rows, None]).sum(axis=0)
        own = (self._norms * self._boost)[rows].sum(keepdims=True)
        response = _response(total[None], boosted[None], own, np.array([len(rows)]))
        share = np.float64(len(rows) / len(self._rows))
        return total * ((1 - share) / (len(rows) * response[0])), share

    def _sparse_pays(
        self, tiles: Sequence[Tile], fitted: Int[np.ndarray, " pair"], n_inputs: int
    ) -> bool:
        """Whether sums over the few rows with both on cost less than dense products."""
        n, d = self._rows.shape
        sparse_cost, dense_cost = float(n * d * n_inputs), 0.0
        often = self._features.sum(axis=0)
        for first, partners, indices in tiles:
            n_rows = int(often[first])
            together = int(fitted[indices].sum())
            dense_cost += len(partners) * d * (n_rows + n_inputs)
            sparse_cost += SPARSE_COST * together * (n_inputs + d)
        return sparse_cost < dense_cost


def _groups_of(tiles: Sequence[Tile]) -> Iterator[list[int]]:
    """Tiles in groups of about PAIRS_AT_ONCE pairs, as one product for few pairs is slow."""
    group, size = list[int](), 0
    for k, tile in enumerate(tiles):
        if group and size + len(tile.partners) > PAIRS_AT_ONCE:
            yield group
            group, size = [], 0
        group.append(k)
        size += len(tile.partners)
    if group:
        yield group


def _add_scaled(
    scores: Float[np.ndarray, "partner input"],
    scaling: tuple[Float[np.ndarray, " partner"], Float[np.ndarray, " partner"]],
    tile: Tile,
    on: Bool[np.ndarray, "feature input"],
    step: int,
    errors: TileErrors,
) -> None:
    """Add scores to a tile's errors, after gain and bias."""
    gain, bias = (values[:, None].astype(scores.dtype) for values in scaling)
    scores *= gain
    scores += bias
    errors.add(scores, on[tile.first], on[tile.partners], step)


UANDReadoff = UANDReadout  # the name in the source's words


def all_pairs(n_features: int) -> Pairs:
    """Every pair i < j, in order."""
    return np.stack(np.triu_indices(n_features, 1), axis=1)


def _response(
    sums: Float[np.ndarray, "gate d"],
    boosted: Float[np.ndarray, "gate d"],
    own: Float[np.ndarray, " gate"],
    count: Int[np.ndarray, " gate"],
) -> Float[np.ndarray, " gate"]:
    """The mean leave-one-out response to the summed rows (see the module).

    A single row is not left out; nor are the rows of a gate whose response to the others is below
    LEAST_RESPONSE, because no better scale is available. 1 if nothing was summed.

    Args:
        sums: sums of the rows.
        boosted: sums of the rows, each times 1 / (1 - leverage).
        own: sums of the rows' squared norms times the same factor.
        count: number of the rows.
    """
    squares, crossed = (
        np.einsum("gd,gd->g", sums, other).astype(np.float64) for other in (sums, boosted)
    )
    n = np.maximum(count, 1)
    to_itself = squares / n**2
    others = (crossed - own) / np.maximum(n * (n - 1), 1)
    response = np.where((count > 1) & (others > LEAST_RESPONSE * to_itself), others, to_itself)
    return np.where(response > 0, response, 1.0)


def checked(
    X: Any, features: Any, like: tuple[int, int] | None = None
) -> tuple[Float[np.ndarray, "n d"], Bool[np.ndarray, "n m"]]:
    """Activations as float32 or float64, and features as booleans.

    Args:
        X: [n, d] finite numbers.
        features: [n, m] booleans, or the numbers 0 and 1, of at least two features.
        like: required d and m, those of the fitted rows.

    Raises:
        InputError: anything else.
    """
    X = numbers(X, like[0] if like else None)
    on = np.asarray(_array(features))
    if on.ndim != 2 or on.shape[1] < 2:
        raise InputError(f"features must be [n, m] with m of at least 2, not {list(on.shape)}")
    if on.dtype != np.bool_:
        if on.dtype.kind not in "iuf" or not np.isin(on, (0, 1)).all():
            raise InputError("features must be booleans: threshold them first")
        on = on.astype(bool)
    if len(on) != len(X):
        raise InputError(f"{len(X)} rows of activations and {len(on)} of features")
    if like and on.shape[1] != like[1]:
        raise InputError(f"there are {on.shape[1]} features; the readouts were fitted on {like[1]}")
    return X, on


def numbers(X: Any, width: int | None = None) -> Float[np.ndarray, "n d"]:
    """Activations as float32 or float64. Raises InputError for anything else."""
    rows = checked_rows(X)
    if width is not None and rows.shape[1] != width:
        has = f"X has {rows.shape[1]} features"
        raise InputError(f"{has}, but UANDReadout is expecting {width} features as input")
    return rows


def checked_pairs(pairs: Any, n_features: int) -> Pairs:
    """Pairs of distinct features as an array; InputError for others, or none."""
    chosen = np.asarray(pairs)
    if chosen.ndim != 2 or chosen.shape[1] != 2 or not len(chosen) or chosen.dtype.kind not in "iu":
        raise InputError(f"pairs must be feature indices [pair, 2], not {list(chosen.shape)}")
    if chosen.min() < 0 or chosen.max() >= n_features or (chosen[:, 0] == chosen[:, 1]).any():
        raise InputError(f"a pair must be two different features from 0 to {n_features - 1}")
    return chosen.astype(np.int64)


def checked_gate(gate: Sequence[int], n_features: int) -> list[int]:
    """Check that a gate has at least one feature and no duplicates; else InputError."""
    chosen = [int(k) for k in gate]
    if not chosen or len(set(chosen)) < len(chosen) or not all(0 <= k < n_features for k in chosen):
        raise InputError(f"gate {chosen}: give different features from 0 to {n_features - 1}")
    return chosen


def _array(values: Any) -> np.ndarray:
    if hasattr(values, "detach"):  # a torch tensor; numpy has no bfloat16
        values = values.detach().cpu()
        values = (
            values.float() if "16" in str(values.dtype) and values.is_floating_point() else values
        )
        values = values.numpy()
    return np.asarray(values)


ROWS = 4096  # whose products are summed in the activations' precision; more in float64
CONSTANT = 1e-6  # relative deviation of a column below which it counts as constant


@dataclass(frozen=True, eq=False)
class Whitening:
    """A whitening of activations: y = ((x - mean) * unit) @ turn.

    Attributes:
        mean: mean of the rows.
        unit: inverse of the columns' standard deviations; 0 for constant columns.
        turn: the matrix that whitens the scaled columns.
    """

    mean: Float[np.ndarray, " d"]
    unit: Float[np.ndarray, " d"]
    turn: Float[np.ndarray, "d k"]

    def __call__(self, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
        """The rows of X, whitened, in the precision of X."""
        turn = self.turn.astype(X.dtype)
        whitened = np.empty((len(X), turn.shape[1]), dtype=X.dtype)
        for start in range(0, len(X), ROWS):
            part = slice(start, start + ROWS)
            np.matmul(_scaled(X[part], self.mean, self.unit), turn, out=whitened[part])
        return whitened

    def directions(self, whitened: Float[np.ndarray, "gate k"]) -> Float[np.ndarray, "gate d"]:
        """Directions in activation space, from those in whitened coordinates."""
        return np.asarray((whitened.astype(np.float64) @ self.turn.T) * self.unit)


def whiten(X: Float[np.ndarray, "n d"], ridge: float) -> Whitening:
    """The whitening of these rows.

    Args:
        X: activations.
        ridge: added to the covariance of the columns, scaled to a variance of 1.

    Activations that do not vary at all become zeros.

    Raises:
        InputError: the covariance needs a larger ridge.
    """
    n, d = X.shape
    mean = X.mean(axis=0, dtype=np.float64)
    squares = np.zeros(d)
    for start in range(0, n, ROWS):
        squares += np.square(X[start : start + ROWS] - mean).sum(axis=0)
    deviation = np.sqrt(squares / n)
    least = np.finfo(X.dtype).tiny  # the inverse of a smaller number may be infinite
    varies = deviation > np.maximum(CONSTANT * np.abs(mean), least)
    if not varies.any():
        return Whitening(mean, np.zeros(d), np.eye(d))
    unit = np.where(varies, 1 / np.where(varies, deviation, 1.0), 0.0)
    turn = _from_rows(X, mean, unit, ridge) if n < d else _from_columns(X, mean, unit, ridge)
    return Whitening(mean, unit, turn)


def _from_columns(
    X: Float[np.ndarray, "n d"], mean: np.ndarray, unit: np.ndarray, ridge: float
) -> Float[np.ndarray, "d d"]:
    """L^-T of G + ridge = L L^T."""
    n, d = X.shape
    gram = np.zeros((d, d))
    for start in range(0, n, ROWS):
        scaled = _scaled(X[start : start + ROWS], mean, unit)
        gram += scaled.T @ scaled
    gram /= n
    gram[np.diag_indices(d)] += np.where(unit > 0, ridge, 1.0)  # keeps constant columns regular
    try:
        factor = cholesky(gram, lower=True, overwrite_a=True)
    except np.linalg.LinAlgError as error:
        raise InputError(
            f"the activations' covariance is singular with ridge={ridge}; give a larger ridge"
        ) from error
    inverse, _ = lapack.dtrtri(factor, lower=1)
    return np.asarray(inverse.T)


def _from_rows(
    X: Float[np.ndarray, "n d"], mean: np.ndarray, unit: np.ndarray, ridge: float
) -> Float[np.ndarray, "d k"]:
    """V (Λ + ridge)^(-1/2), from the rows' Gram matrix, without directions of zero variance."""
    scaled = _scaled(X, mean, unit).astype(np.float64)
    sizes, U = eigh(scaled @ scaled.T / len(X))
    large = sizes > len(X) * np.finfo(X.dtype).eps * sizes[-1]
    V = scaled.T @ U[:, large] / np.sqrt(len(X) * sizes[large])
    return np.asarray(V / np.sqrt(sizes[large] + ridge))


def _scaled(X: Float[np.ndarray, "n d"], mean: np.ndarray, unit: np.ndarray) -> np.ndarray:
    return np.asarray((X - mean.astype(X.dtype)) * unit.astype(X.dtype))


def _check_size(table: str, features: Sequence[int]) -> None:
    if len(table) != 2 ** len(features):
        raise InputError(
            f"the table {table} has {counted(len(table), 'bit')}, not the {2 ** len(features)} of "
            f"{counted(len(features), 'feature')}"
        )
