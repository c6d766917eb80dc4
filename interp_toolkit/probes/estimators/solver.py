"""Many L2-regularized logistic regressions on the activations of one site, minimized together.

`Site` prepares the activations once; L-BFGS then minimizes all targets at once in its coordinates.

*Principal axes.* A logistic fit penalizes |w|^2 and not the intercept. So the rows may be shifted
(the intercept absorbs it) and rotated (|w| is preserved) without changing the problem, but not
rescaled. In the principal axes of the rows the Hessian at w = 0 is diagonal, which is the solver's
starting point. With fewer rows than dimensions, the span of the rows suffices, since it contains
the optimal w. No step depends on labels, so one `Site` serves all targets and all folds.

*Solver.* Every target t has its own labels, and may have its own row weights; all share the rows
a_i:

    F_t(u) = 1/2 u' diag(penalty) u + C sum_i v_it softplus(-s_it a_i'u),    s = +1 or -1.

L-BFGS (Nocedal & Wright, algorithm 7.4) runs on all targets at once: margins and gradients are two
matrix products per iteration, the two-loop recursion works on rows of [target, param] arrays, and
the initial inverse Hessian is each target's own Hessian diagonal, which in the principal axes is
nearly the whole Hessian. A line search costs no product: margins are linear in the step. Targets
leave the active set as they converge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn.functional import logsigmoid

from interp_toolkit.errors import InputError

Rows = Float[np.ndarray, "batch d_model"] | Float[Tensor, "batch d_model"]
Labels = Shaped[np.ndarray, "..."] | Shaped[Tensor, "..."]  # 0 and 1, [batch target]; checked
Device = str | torch.device | None
ROW_CHUNK = 8192


class Site:
    """Activations at one site, shared by every target solved there.

    Attributes:
        fit_intercept: whether probes here have an intercept.
        device: where the products run.
        natural: float32 for activations of at most 32 bits, else float64.
        n_rows: number of rows.
        penalty: [param] 1, and 0 for the intercept, which is last when there is one.
    """

    def __init__(self, X: Rows, *, fit_intercept: bool, device: Device = None) -> None:
        activations = as_tensor(X, device)
        if not bool(torch.isfinite(activations).all()):
            raise InputError("the activations contain NaN or infinity; leave those rows out")
        self._activations = activations
        self.fit_intercept = fit_intercept
        self.device = activations.device
        self.natural = torch.float64 if activations.dtype == torch.float64 else torch.float32
        self.n_rows = len(activations)
        self._mean = self._column_means()
        self._axes = self._principal_axes()
        self.penalty = self._axes.new_ones(self._axes.shape[1] + fit_intercept)
        if fit_intercept:
            self.penalty[-1] = 0
        self._rows: dict[torch.dtype, Tensor] = {}

    def rows(self, dtype: torch.dtype) -> Float[Tensor, "batch param"]:
        """The rows in their principal axes, and a column of ones if an intercept is fitted."""
        if dtype not in self._rows:
            rows = self._axes.new_ones(self.n_rows, len(self.penalty), dtype=dtype)
            for part in self._chunks():
                rows[part, : self._axes.shape[1]] = (self._centred(part) @ self._axes).to(dtype)
            self._rows[dtype] = rows
        return self._rows[dtype]

    def to_coefficients(
        self, params: Float[Tensor, "target param"]
    ) -> tuple[Float[Tensor, "target d_model"], Float[Tensor, " target"]]:
        """Coefficients and intercepts for the original activations."""
        params = params.double()
        coef = params[:, : self._axes.shape[1]] @ self._axes.T
        if not self.fit_intercept:
            return coef, coef.new_zeros(len(coef))
        return coef, params[:, -1] - coef @ self._mean

    def margins(
        self, coef: Float[Tensor, "target d_model"], intercept: Float[Tensor, " target"]
    ) -> Float[Tensor, "batch target"]:
        """The decision values of linear probes on this site's rows, in float64."""
        parts = [
            torch.addmm(intercept + coef @ self._mean, self._centred(part), coef.T)
            for part in self._chunks()
        ]
        return torch.cat(parts)

    def _chunks(self) -> list[slice]:
        return [slice(at, at + ROW_CHUNK) for at in range(0, self.n_rows, ROW_CHUNK)]

    def _centred(self, part: slice) -> Float[Tensor, "batch d_model"]:
        return self._activations[part].double() - self._mean

    def _column_means(self) -> Float[Tensor, " d_model"]:
        if not self.fit_intercept:  # without one, a shift would change the problem
            return torch.zeros(self._activations.shape[1], dtype=torch.float64, device=self.device)
        return self._activations.mean(0, dtype=torch.float64)

    def _principal_axes(self) -> Float[Tensor, "d_model axis"]:
        """Orthonormal columns that span the rows, along the eigenvectors of their Gram matrix."""
        n_row, d_model = self._activations.shape
        span: Tensor | None = None
        if n_row < d_model:
            span = torch.linalg.qr(self._centred(slice(None)).T).Q
        size = d_model if span is None else n_row
        gram = torch.zeros(size, size, dtype=torch.float64, device=self.device)
        for part in self._chunks():
            rows = self._centred(part) if span is None else self._centred(part) @ span
            gram.addmm_(rows.T, rows)
        axes: Tensor = torch.linalg.eigh(gram).eigenvectors
        return axes if span is None else span @ axes


def as_tensor(X: Any, device: Device = None) -> Float[Tensor, "batch d_model"]:
    """Activations as a float32 or float64 tensor on `device` (default: their own).

    Raises InputError unless they are a two-dimensional array of numbers.
    """
    try:
        tensor = X.detach() if isinstance(X, Tensor) else torch.from_numpy(np.array(X))
    except TypeError as error:
        raise InputError(f"the activations are not numbers: {error}") from error
    if tensor.ndim != 2 or 0 in tensor.shape:
        raise InputError(f"the activations must be [rows, dimensions], got {tuple(tensor.shape)}")
    if tensor.is_complex():
        raise InputError("the activations are complex numbers; give their real parts")
    narrow = tensor.is_floating_point() and tensor.dtype != torch.float64
    return tensor.to(device=device, dtype=torch.float32 if narrow else torch.float64)


MEMORY = 10  # curvature pairs kept
REFRESH = 5  # iterations between updates of the Hessian's diagonal
SUFFICIENT_DECREASE, CURVATURE = 1e-4, 0.9  # the weak Wolfe conditions
MAX_TRIALS = 40  # step lengths tried before a line search gives up
COMPACT_BELOW = 0.8  # finished targets are dropped when at most this fraction is still active


@dataclass(frozen=True)
class LogisticProblem:
    """Many logistic regressions that share their rows.

    Attributes:
        rows: the design matrix, one row per observation; with a column of ones for an intercept.
        penalty: 1 for a penalized parameter, 0 for the intercept.
        signs: +1 or -1 per target and row.
        weights: weights of the rows, per target or shared; None for ones.
        C: weight of the data relative to the penalty.
    """

    rows: Float[Tensor, "batch param"]
    penalty: Float[Tensor, " param"]
    signs: Float[Tensor, "target batch"]
    weights: Float[Tensor, "target batch"] | Float[Tensor, "1 batch"] | None
    C: float

    def take(self, keep: Int[Tensor, " kept"]) -> LogisticProblem:
        """The same problem for a subset of its targets."""
        weights = self.weights
        if weights is not None and len(weights) == len(self.signs):
            weights = weights[keep]
        return LogisticProblem(self.rows, self.penalty, self.signs[keep], weights, self.C)

    def losses(
        self, margins: Float[Tensor, "target batch"]
    ) -> tuple[Float[Tensor, " target"], Float[Tensor, "target batch"]]:
        """C times the weighted log-loss of every target, and its derivative by every margin."""
        signed = self.signs * margins
        logs = logsigmoid(signed)
        residuals = torch.sigmoid_(signed.neg_()).mul_(self.signs)
        if self.weights is not None:
            logs, residuals = logs.mul_(self.weights), residuals.mul_(self.weights)
        return logs.sum(-1).mul_(-self.C), residuals.mul_(-self.C)

    def hessian_diagonal(
        self, margins: Float[Tensor, "target batch"]
    ) -> Float[Tensor, "target param"]:
        """The diagonal of every target's Hessian."""
        p = torch.sigmoid(margins)
        curvatures = p.mul_(1 - p).mul_(self.C)
        if self.weights is not None:
            curvatures.mul_(self.weights)
        diagonal = self.penalty.repeat(len(margins), 1)
        for at in range(0, len(self.rows), ROW_CHUNK):  # no second copy of the design
            part = slice(at, at + ROW_CHUNK)
            diagonal.addmm_(curvatures[:, part], self.rows[part].square())
        return diagonal

    def penalties(self, params: Float[Tensor, "target param"]) -> Float[Tensor, " target"]:
        """The penalty of every target's parameters."""
        return 0.5 * (self.penalty * params.square()).sum(-1)


@dataclass(frozen=True)
class Solution:
    """The result of the minimization.

    Attributes:
        params: the minimizers.
        loss: the objectives at the minimizers.
        start_loss: the objectives relative to which the tolerance measured the decrease.
        n_iter: L-BFGS iterations.
        converged: whether the target met the tolerance.
    """

    params: Float[Tensor, "target param"]
    loss: Float[Tensor, " target"]
    start_loss: Float[Tensor, " target"]
    n_iter: Int[Tensor, " target"]
    converged: Bool[Tensor, " target"]


@dataclass
class _State:
    """The active targets: their current parameters and L-BFGS memory."""

    index: Int[Tensor, " target"]
    params: Float[Tensor, "target param"]
    margins: Float[Tensor, "target batch"]
    loss: Float[Tensor, " target"]
    gradient: Float[Tensor, "target param"]
    diagonal: Float[Tensor, "target param"]
    pairs: list[tuple[Tensor, Tensor, Tensor]]  # steps, gradient changes, 1 / their product

    def take(self, keep: Int[Tensor, " kept"]) -> _State:
        pairs = [(s[keep], y[keep], rho[keep]) for s, y, rho in self.pairs]
        return _State(
            self.index[keep],
            self.params[keep],
            self.margins[keep],
            self.loss[keep],
            self.gradient[keep],
            self.diagonal[keep],
            pairs,
        )


def minimise(
    problem: LogisticProblem,
    start: Float[Tensor, "target param"],
    *,
    tol: float,
    max_iter: int,
    start_loss: Float[Tensor, " target"] | None = None,
) -> Solution:
    """Minimize every target's objective.

    A target has converged when its squared Newton decrement (L-BFGS's estimate of twice the
    remaining decrease of the objective) is at most tol**2 of the decrease since `start`. The
    parameters' relative error, in the norm of the Hessian, is then about `tol`. A decrement at the
    level of rounding counts as converged for any `tol`. A target without a descending step, or
    out of iterations, has not converged.

    Args:
        problem: the targets.
        start: initial parameters.
        tol: see above.
        max_iter: largest number of iterations for any target.
        start_loss: the objectives from which to measure the decrease, if `start` is not where the
            fit began.
    """
    state = _begin(problem, start)
    n_target = len(start)
    result = Solution(
        start.clone(),
        state.loss.clone(),
        state.loss.clone() if start_loss is None else start_loss,
        torch.zeros(n_target, dtype=torch.int64, device=start.device),
        torch.zeros(n_target, dtype=torch.bool, device=start.device),
    )
    alive = torch.ones(n_target, dtype=torch.bool, device=start.device)
    floor = _decrement_floor(problem)

    for iteration in range(max_iter + 1):
        if iteration and iteration % REFRESH == 0:
            state.diagonal = problem.hessian_diagonal(state.margins)
        direction, decrement = _direction(state)
        fall = (result.start_loss[state.index] - state.loss).clamp_min_(0)
        small = decrement.abs() <= tol**2 * (fall + 0.5 * decrement) + floor[state.index]
        newly = alive & small
        _record(result, state, newly, iteration)
        result.converged[state.index[newly]] = True
        alive = alive & ~small
        n_alive = int(alive.sum())
        if n_alive == 0 or iteration == max_iter:
            break
        if n_alive <= COMPACT_BELOW * len(alive):
            keep = alive.nonzero().squeeze(1)
            state, problem = state.take(keep), problem.take(keep)
            direction, alive = direction[keep], alive[keep]
        moved = _step(problem, state, direction)
        _record(result, state, alive & ~moved, iteration)
        alive = alive & moved
    _record(result, state, alive, max_iter)
    return result


def _begin(problem: LogisticProblem, start: Tensor) -> _State:
    margins = start @ problem.rows.T
    losses, residuals = problem.losses(margins)
    return _State(
        index=torch.arange(len(start), device=start.device),
        params=start.clone(),
        margins=margins,
        loss=losses + problem.penalties(start),
        gradient=residuals @ problem.rows + problem.penalty * start,
        diagonal=problem.hessian_diagonal(margins),
        pairs=[],
    )


def _decrement_floor(problem: LogisticProblem) -> Float[Tensor, " target"]:
    """Squared decrement that rounding alone causes: residuals carry an error of about eps."""
    eps = torch.finfo(problem.rows.dtype).eps
    n_target, n_row = problem.signs.shape
    total = problem.rows.new_full((n_target,), float(n_row))
    if problem.weights is not None:
        total = problem.weights.sum(-1).expand(n_target)
    return (4 * eps) ** 2 * problem.C * total


def _record(result: Solution, state: _State, which: Tensor, iteration: int) -> None:
    where = state.index[which]
    result.params[where] = state.params[which]
    result.loss[where] = state.loss[which]
    result.n_iter[where] = iteration


def _direction(state: _State) -> tuple[Float[Tensor, "target param"], Float[Tensor, " target"]]:
    """L-BFGS's descent direction, and the squared Newton decrement it implies."""
    q = state.gradient.clone()
    alphas = []
    for s, y, rho in reversed(state.pairs):
        alpha = rho * (s * q).sum(-1)
        q.addcmul_(y, alpha[:, None], value=-1)
        alphas.append(alpha)
    q /= state.diagonal
    for (s, y, rho), alpha in zip(state.pairs, reversed(alphas), strict=True):
        beta = rho * (y * q).sum(-1)
        q.addcmul_(s, (alpha - beta)[:, None])
    decrement = (q * state.gradient).sum(-1)
    return q.neg_(), decrement


def _step(problem: LogisticProblem, state: _State, direction: Tensor) -> Bool[Tensor, " target"]:
    """Move every target along its direction; returns True for targets with a descending step."""
    ascent = direction @ problem.rows.T
    slope = (state.gradient * direction).sum(-1)
    length, moved, at = _line_search(problem, state, direction, ascent, slope)
    step = direction * length[:, None]
    state.params = state.params + step
    if at is None:
        state.margins = state.margins.addcmul_(ascent, length[:, None])
        losses, residuals = problem.losses(state.margins)
    else:
        state.margins, losses, residuals = at
    state.loss = losses + problem.penalties(state.params)
    gradient = residuals @ problem.rows + problem.penalty * state.params
    change = gradient - state.gradient
    state.gradient = gradient
    product = (step * change).sum(-1)
    eps = torch.finfo(product.dtype).eps
    usable = product > eps * (change.square() / state.diagonal).sum(-1)
    rho = torch.where(usable, 1 / product, 0.0)
    state.pairs = [*state.pairs[-(MEMORY - 1) :], (step, change, rho)]
    return moved


def _line_search(
    problem: LogisticProblem, state: _State, direction: Tensor, ascent: Tensor, slope: Tensor
) -> tuple[Float[Tensor, " target"], Bool[Tensor, " target"], tuple[Tensor, ...] | None]:
    """A step length for every target, by the weak Wolfe conditions (0 if none satisfies them).

    Bisection as in Lewis & Overton (2013), with the secant of the slopes in place of the
    midpoint if it lies well inside the bracket. Only unsettled targets are tried again.

    Returns:
        The lengths; whether each satisfies the conditions; and the margins, losses and residuals
        there, None where some target was not tried or has no length.
    """
    n_target = len(slope)
    length = torch.ones_like(slope)
    settled = slope >= 0  # no descent: only rounding is left to gain
    length[settled] = 0
    low, low_slope = torch.zeros_like(slope), slope.clone()
    high = torch.full_like(slope, torch.inf)
    slack = 4 * torch.finfo(slope.dtype).eps * state.loss.abs()
    bend = (problem.penalty * direction.square()).sum(-1)
    tilt = (problem.penalty * direction * state.params).sum(-1)
    base = problem.penalties(state.params)
    open_ = (~settled).nonzero().squeeze(1)
    part, margins, along = problem, state.margins, ascent
    if len(open_) < n_target:
        part, margins, along = problem.take(open_), margins[open_], along[open_]
    at: tuple[Tensor, ...] | None = None
    for trial_number in range(MAX_TRIALS):
        if len(open_) == 0:
            break
        t = length[open_]
        trial = torch.addcmul(margins, along, t[:, None])
        losses, residuals = part.losses(trial)
        if trial_number == 0 and len(open_) == n_target:
            at = trial, losses, residuals
        elif at is not None:
            for whole, new in zip(at, (trial, losses, residuals), strict=True):
                whole[open_] = new
        value = losses + base[open_] + t * tilt[open_] + 0.5 * t**2 * bend[open_]
        trial_slope = torch.linalg.vecdot(residuals, along) + tilt[open_] + t * bend[open_]
        allowed = state.loss[open_] + SUFFICIENT_DECREASE * t * slope[open_] + slack[open_]
        too_far = ~(value <= allowed)
        too_near = ~too_far & (trial_slope < CURVATURE * slope[open_])
        again = (too_far | too_near).nonzero().squeeze(1)
        if len(again) == 0:
            return length, ~settled, at
        high[open_[too_far]] = t[too_far]
        secant = t - trial_slope * (t - low[open_]) / (trial_slope - low_slope[open_])
        low[open_[too_near]] = t[too_near]
        low_slope[open_[too_near]] = trial_slope[too_near]
        length[open_] = torch.where(
            too_far | too_near, _next_length(secant, low[open_], high[open_]), t
        )
        open_, part = open_[again], part.take(again)
        margins, along = margins[again], along[again]
    length[open_] = 0
    settled[open_] = True
    return length, ~settled, None


def _next_length(secant: Tensor, low: Tensor, high: Tensor) -> Float[Tensor, " target"]:
    """The secant's length, within the inner 80 % of the bracket (2..10 times low if it is open)."""
    bounded = torch.isfinite(high)
    least = torch.where(bounded, low + 0.1 * (high - low), 2 * low)
    most = torch.where(bounded, low + 0.9 * (high - low), 10 * low)
    guess = torch.where(torch.isfinite(secant), secant, 0.5 * (least + most))
    return torch.minimum(torch.maximum(guess, least), most)
