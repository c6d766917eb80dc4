"""Linear readoffs of the AND of every pair of boolean features, all at once.

The readoff of a gate is the direction of least output power for its answer to the gate's own
inputs (minimum variance, distortionless response; Capon 1969): least squares up to gain and bias,
which are set so that the mean answer is 1 where the gate is true and 0 elsewhere. A plain fit
shrinks towards 0, the more the rarer the gate. In whitened activations y (see `whitening`) the
direction is the mean c of y over the rows with both features on, a share p of all rows, so that

    readoff(x) = p + (1 - p) y(x) . c / response,

with one factorisation for all pairs and n rows of weights 0 or 1 each. The response is that to rows
which were not fitted on: of each of the k rows with both on, its answer to the others' mean, as if
it had been left out of the covariance too, y_a . (sum y - y_a) / ((k - 1) (1 - |y_a|^2 / n)) by
Sherman and Morrison's formula, averaged. ANDs of any fan-in, single features and truth tables are
read off alike.
Source: "Computation in superposition", sections 1.1, 1.2 and 1.4 (readoffs and their errors).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import joblib
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from interp_toolkit.boolean_functions import Epsilon, mobius
from interp_toolkit.errors import InputError
from interp_toolkit.probes.estimators.boolean import truth_values
from interp_toolkit.probes.uand.errors import PairErrors, Pairs, groups_together
from interp_toolkit.probes.uand.inputs import checked, checked_gate, checked_pairs, numbers
from interp_toolkit.probes.uand.tiles import Tile, TileErrors, gathered, tiles_of
from interp_toolkit.probes.uand.whitening import whiten

RIDGE = 1e-3
MOST_LEVERAGE = 0.99  # of a row on its own readoff: beyond, leaving it out says nothing
LEAST_RESPONSE = 0.1  # to other rows, relative to that to itself: less is not told from none
HISTOGRAM_SCORES = 20_000_000  # of inputs with neither feature on, about so many at most
PRODUCTS_AT_ONCE = 2**29  # bytes of products of rows fitted on with held-out ones
SPARSE_COST = 12.0  # of a multiplication in a sparse product, in those of a dense one; measured


class UANDReadoff(BaseEstimator):
    """Readoffs of the AND of every pair of features from activations.

    Args:
        ridge: added to the activations' covariance, their columns scaled to a variance of 1.
        n_jobs: threads; None: as many as there are processors.

    Attributes:
        n_features_in_: number of columns of the activations.
        n_together_: [m, m] rows on which each two features are on together.

    Examples:
        >>> on = np.random.default_rng(0).random((200, 3)) < 0.5
        >>> X = np.column_stack([on, on[:, 0] & on[:, 1]]).astype(float)
        >>> readoff = UANDReadoff().fit(X, on)
        >>> readoff.score(X, [(0, 1), (1, 2)]).shape
        (200, 2)
    """

    def __init__(self, *, ridge: float = RIDGE, n_jobs: int | None = None) -> None:
        self.ridge = ridge
        self.n_jobs = n_jobs

    def fit(self, X: Any, features: Any) -> UANDReadoff:
        """Fit the readoffs of all pairs.

        Args:
            X: [n, d] activations.
            features: [n, m] booleans, which features are on in each row.

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
        on = sparse.csr_matrix(self._features, dtype=np.int64)
        self.n_together_ = (on.T @ on).toarray()
        return self

    def readoffs(
        self, gates: Sequence[Sequence[int]] | None = None
    ) -> tuple[Float[np.ndarray, "gate d"], Float[np.ndarray, " gate"]]:
        """Directions and intercepts: `readoff = X @ direction + intercept`.

        Args:
            gates: features by number, one or more a gate; None: all pairs i < j, in order.

        Raises:
            InputError: features that are not there, or that are never on together in the rows
                fitted on.
        """
        check_is_fitted(self)
        chosen = all_pairs(self._features.shape[1]).tolist() if gates is None else gates
        found = [self._whitened_readoff(gate) for gate in chosen]
        readoffs, shares = (np.stack(part) for part in zip(*found, strict=True))
        directions = self._whitening.directions(readoffs)
        return directions, shares - directions @ self._whitening.mean

    def score(
        self, X: Any, gates: Sequence[Sequence[int]] | None = None
    ) -> Float[np.ndarray, "n gate"]:
        """What the gates' readoffs say of these activations: near 1 for true, near 0 for false.

        Raises InputError as `readoffs` does.
        """
        directions, intercepts = self.readoffs(gates)
        return np.asarray(numbers(X, self.n_features_in_) @ directions.T + intercepts)

    def truth_table_readoff(
        self, table: str, features: Sequence[int]
    ) -> tuple[Float[np.ndarray, " d"], float]:
        """Direction and intercept of any boolean function of some features, through their ANDs.

        XOR is f_i + f_j - 2 AND_ij, and so on (`boolean_functions.mobius`); the errors of the ANDs
        and of the single features' readoffs add up with these coefficients.

        Args:
            table: 2^k bits, the first feature most significant.
            features: the k features by number.

        Raises:
            InputError: a table that does not fit, or what `readoffs` raises.
        """
        terms = {tuple(features[k] for k in chosen): c for chosen, c in mobius(table).items()}
        if 2 ** len(features) != len(table):
            raise InputError(f"the table {table} does not fit {len(features)} features")
        constant = float(terms.pop((), 0))
        gates = [gate for gate, coefficient in terms.items() if coefficient]
        if not gates:
            return np.zeros(self.n_features_in_), constant
        directions, intercepts = self.readoffs(gates)
        weights = np.array([terms[gate] for gate in gates], dtype=float)
        return weights @ directions, float(constant + weights @ intercepts)

    def fitted_readoff(
        self, table: str, features: Sequence[int]
    ) -> tuple[Float[np.ndarray, " d"], float]:
        """Direction and intercept of a boolean function, fitted to its own values.

        `truth_table_readoff` adds up its ANDs' errors; this takes the function as one gate, and
        says nothing of inputs unlike those fitted on.

        Args:
            table: 2^k bits, the first feature most significant.
            features: the k features by number.

        Raises:
            InputError: a table that does not fit, features that are not there, or a function that
                is true on none of the rows fitted on.
        """
        check_is_fitted(self)
        if 2 ** len(features) != len(table):
            raise InputError(f"the table {table} does not fit {len(features)} features")
        chosen = checked_gate(features, self._features.shape[1])
        rows = np.flatnonzero(truth_values(table, self._features[:, chosen]))
        if not len(rows):
            raise InputError(f"the table {table} is true on none of the rows fitted on")
        whitened, share = self._towards(rows)
        [direction] = self._whitening.directions(whitened[None])
        return direction, float(share - direction @ self._whitening.mean)

    def epsilon(self, X: Any, features: Any, pairs: Any = None) -> Epsilon:
        """The errors over all pairs; arguments and errors as `errors`, which has them by pair."""
        return self.errors(X, features, pairs).epsilon()

    def errors(self, X: Any, features: Any, pairs: Any = None) -> PairErrors:
        """The errors of the pairs' readoffs on these inputs, which should not be those fitted on.

        Args:
            X: [n, d] activations.
            features: [n, m] booleans.
            pairs: [pair, 2] features by number; None: all i < j.

        Raises:
            InputError: shapes or values that do not fit.
        """
        check_is_fitted(self)
        m = self._features.shape[1]
        X, features = checked(X, features, like=(self.n_features_in_, m))
        chosen = all_pairs(m) if pairs is None else checked_pairs(pairs, m)
        fitted = self.n_together_[chosen[:, 0], chosen[:, 1]]
        together = groups_together(features, None, chosen)
        seen = np.flatnonzero((fitted > 0) & (together > 0))
        tiles = tiles_of(chosen, seen)
        on = np.ascontiguousarray(features.T)
        sparsely = self._sparse_pays(tiles, len(X))
        row_bytes = self._rows.itemsize * max(len(self._rows) if sparsely else 0, m)
        at_once = max(1, PRODUCTS_AT_ONCE // row_bytes)
        step = max(1, len(seen) * len(X) // HISTOGRAM_SCORES)
        found = [TileErrors(len(tile.partners)) for tile in tiles]
        jobs = (self.n_jobs or joblib.cpu_count()) if sparsely else 1
        for start in range(0, len(X), at_once):
            part = slice(start, start + at_once)
            held_out = self._whitening(X[part].astype(self._rows.dtype, copy=False))
            products = self._rows @ held_out.T if sparsely else None
            joblib.Parallel(jobs, prefer="threads")(
                joblib.delayed(self._measure)(tile, held_out, products, on[:, part], step, errors)
                for tile, errors in zip(tiles, found, strict=True)
            )
        return gathered(chosen, fitted, together, tiles, found)

    def _measure(
        self,
        tile: Tile,
        held_out: Float[np.ndarray, "input d"],
        products: Float[np.ndarray, "row input"] | None,
        on: Bool[np.ndarray, "feature input"],
        step: int,
        errors: TileErrors,
    ) -> None:
        """Add a tile's scores to its errors; products, if given, are of all rows and inputs."""
        rows = np.flatnonzero(self._features[:, tile.first])
        together = self._features[rows][:, tile.partners].T
        weights: Any = together.astype(self._rows.dtype)
        if products is not None:
            weights = sparse.csr_matrix(weights)
        count = together.sum(axis=1)
        sums = weights @ self._rows[rows]
        boosted = weights @ (self._rows[rows] * self._boost[rows, None])
        own = weights @ (self._norms * self._boost)[rows]
        response = _response(sums, boosted, own, count)
        scores = sums @ held_out.T if products is None else weights @ products[rows]
        share = count / len(self._rows)
        scores *= ((1 - share) / (np.maximum(count, 1) * response))[:, None].astype(scores.dtype)
        scores += share[:, None].astype(scores.dtype)
        errors.add(scores, on[tile.first], on[tile.partners], step)

    def _whitened_readoff(
        self, gate: Sequence[int]
    ) -> tuple[Float[np.ndarray, " d"], np.floating[Any]]:
        """The direction in whitened activations, and the share of rows on which it is true."""
        chosen = checked_gate(gate, self._features.shape[1])
        rows = np.flatnonzero(self._features[:, chosen].all(axis=1))
        if not len(rows):
            names = ", ".join(map(str, chosen))
            raise InputError(f"features {names} are never on together in the rows fitted on")
        return self._towards(rows)

    def _towards(
        self, rows: Int[np.ndarray, " true"]
    ) -> tuple[Float[np.ndarray, " d"], np.floating[Any]]:
        """The same of what is true on these of the rows fitted on."""
        total = self._rows[rows].sum(axis=0)
        boosted = (self._rows[rows] * self._boost[rows, None]).sum(axis=0)
        own = (self._norms * self._boost)[rows].sum(keepdims=True)
        response = _response(total[None], boosted[None], own, np.array([len(rows)]))
        share = np.float64(len(rows) / len(self._rows))
        return total * ((1 - share) / (len(rows) * response[0])), share

    def _sparse_pays(self, tiles: Sequence[Tile], n_inputs: int) -> bool:
        """Whether sums over the few rows with both on cost less than dense products would."""
        n, d = self._rows.shape
        sparse_cost, dense_cost = float(n * d * n_inputs), 0.0
        for first, partners, _ in tiles:
            n_rows = int(self.n_together_[first, first])
            together = int(self.n_together_[first, partners].sum())
            dense_cost += len(partners) * d * (n_rows + n_inputs)
            sparse_cost += SPARSE_COST * together * (n_inputs + d)
        return sparse_cost < dense_cost


def all_pairs(n_features: int) -> Pairs:
    """Every pair i < j, in order."""
    return np.stack(np.triu_indices(n_features, 1), axis=1)


def _response(
    sums: Float[np.ndarray, "gate d"],
    boosted: Float[np.ndarray, "gate d"],
    own: Float[np.ndarray, " gate"],
    count: Int[np.ndarray, " gate"],
) -> Float[np.ndarray, " gate"]:
    """The mean answer to rows like those summed, each of them left out (see the module).

    A single row answers to itself; so does, for want of a better scale, a gate that answers less
    than LEAST_RESPONSE to others. 1 where nothing was summed.

    Args:
        sums: of the rows.
        boosted: of the rows, each times 1 / (1 - leverage).
        own: of the rows' squared norms times the same.
        count: of the rows.
    """
    squares, crossed = (
        np.einsum("gd,gd->g", sums, other).astype(np.float64) for other in (sums, boosted)
    )
    n = np.maximum(count, 1)
    to_itself = squares / n**2
    others = (crossed - own) / np.maximum(n * (n - 1), 1)
    kept = np.where((count > 1) & (others > LEAST_RESPONSE * to_itself), others, to_itself)
    return np.where(kept > 0, kept, 1.0)
