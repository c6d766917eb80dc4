"""Accuracy on held-out prompts by cross-validation.

A fold is a target with some rows' weights set to zero, so all folds of all targets are solved
together, on one rotation of the activations (`probes.estimators.logistic`).

Each fold chooses among several penalties the one with the lowest log loss on the rows of the
*other* folds, held out in turn: a row's label affects its own score only through the probes that it
helped to fit. From strong to weak penalties, a fold stops once that loss is 25 % above its minimum:
unreadable labels, such as most of a null's, would only be overfitted further. One penalty does not
suit all targets, since directions of an activation differ in size by orders of magnitude: a target
read from a small direction is lost under a penalty that suits a large one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from interp_toolkit.errors import InputError
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.probes.estimators import metrics
from interp_toolkit.probes.estimators.arrays import as_booleans, check_options
from interp_toolkit.probes.estimators.logistic import (
    BLOCK_ELEMENTS,
    fit_site,
    warn_unconverged,
)
from interp_toolkit.probes.estimators.solver import Device, Labels, Rows, Site
from interp_toolkit.probes.estimators.splits import Groups, grouped_folds, stratified_folds
from interp_toolkit.probes.estimators.splits import group_codes as group_codes
from interp_toolkit.probes.estimators.splits import shuffled_labels as shuffled_labels

#: Candidates for the inverse strength of the penalty, for activations of unit variance.
GRID = (1e-2, 1.0, 1e2, 1e4, 1e6)
HOPELESS = 1.25  # a fold tries no weaker penalty once its loss exceeds its minimum by this factor


@dataclass(frozen=True)
class HeldOutScores(ShortRepr):
    """Scores of probes on held-out rows; NaN for a target that could not be split.

    Accuracy, balanced accuracy, log loss and calibration error are over all rows, each scored by
    the probe that was not fitted on it. AUROC is the mean over the folds that hold both classes:
    scores of different folds come from different probes and are not comparable in rank
    (Forman & Scholz 2010).

    Attributes:
        accuracy: fraction of rows predicted correctly, at even odds.
        balanced_accuracy: mean of the accuracies on positive and on negative rows, with the
            threshold at the log-odds of a positive row in the fitted data. (At even odds a rare
            class would never be predicted, however well the scores rank it.)
        auroc: area under the ROC curve.
        log_loss: mean, in nats.
        calibration_error: see `metrics.calibration_error`.
        scores: out-of-fold log-odds, float32; None if not kept.
        reasons: the reason why a target has no scores; None if it has.
        converged: whether all folds of the target met the tolerance; True for a target without
            scores.
        C: the inverse strength of the penalty with the lowest log loss over all folds.
    """

    accuracy: Float[np.ndarray, " target"]
    balanced_accuracy: Float[np.ndarray, " target"]
    auroc: Float[np.ndarray, " target"]
    log_loss: Float[np.ndarray, " target"]
    calibration_error: Float[np.ndarray, " target"]
    scores: Float[np.ndarray, "batch target"] | None
    reasons: tuple[str | None, ...]
    converged: Bool[np.ndarray, " target"]
    C: Float[np.ndarray, " target"]


def cross_validate_targets(
    X: Rows,
    Y: Labels,
    *,
    groups: Groups | None = None,
    n_splits: int = 5,
    seed: int = 0,
    C: float | Sequence[float] = 1.0,
    fit_intercept: bool = True,
    tol: float = 1e-3,
    max_iter: int = 500,
    device: Device = None,
    dtype: torch.dtype | None = None,
    keep_scores: bool = True,
) -> HeldOutScores:
    """Score logistic probes of many targets on held-out rows.

    Folds are stratified, target by target; with groups they are made of whole groups instead,
    and shared by all targets. The same seed gives the same folds.

    Args:
        X: activations at one site, [n, d].
        Y: booleans, or numbers that are 0 or 1, [n, target]: the labels of every target.
        groups: the group (document) of every row, if any.
        n_splits: number of folds.
        seed: random seed of the folds.
        C: as in `fit_logistic_targets` (so are the following options), or several candidates, such
            as `GRID`, of which each fold chooses one by the log loss on other folds.
        fit_intercept: whether to fit an unpenalized intercept.
        tol: relative error of every fit.
        max_iter: largest number of iterations of every fit.
        device: where to compute.
        dtype: precision to work in.
        keep_scores: whether to return the out-of-fold scores, which are as large as `Y`.

    Raises:
        InputError: NaN or infinity, mismatched rows, fewer groups than folds, an invalid option. A
            target that cannot be split is no error (see `HeldOutScores.reasons`).

    Examples:
        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> scores = cross_validate_targets(X, X[:, :2] > 0)
        >>> (scores.accuracy > 0.9).tolist()
        [True, True]
    """
    strengths = tuple(float(c) for c in np.atleast_1d(C))
    if not strengths:
        raise InputError("C is empty: give at least one value")
    for strength in strengths:
        check_options(strength, tol, max_iter)
    labels = as_booleans(Y, "labels")
    n_row, n_target = labels.shape
    _check_split(n_row, len(X), n_splits, groups)
    shared = None if groups is None else grouped_folds(groups, n_splits, seed)
    site = Site(X, fit_intercept=fit_intercept, device=device)

    table = np.full((5, n_target), np.nan)  # a row per metric, in the order of HeldOut
    held_out = np.full(labels.shape, np.nan, dtype=np.float32) if keep_scores else None
    reasons: list[str | None] = [None] * n_target
    converged = np.ones(n_target, dtype=bool)
    best = np.full(n_target, np.nan)
    step = max(1, BLOCK_ELEMENTS // (n_row * n_splits))
    for at in range(0, n_target, step):
        block = labels[:, at : at + step]
        folds = stratified_folds(block, n_splits, seed) if shared is None else shared
        folds = np.broadcast_to(folds, block.shape)
        for column, reason in enumerate(_reasons(block, folds, n_splits)):
            reasons[at + column] = reason
        usable = [c for c in range(block.shape[1]) if reasons[at + c] is None]
        if not usable:
            continue
        block, folds = block[:, usable], folds[:, usable]
        scores, converged[np.add(at, usable)], best[np.add(at, usable)] = _best_out_of_fold(
            site, block, folds, n_splits, strengths, tol=tol, max_iter=max_iter, dtype=dtype
        )
        odds = _fitted_odds(block, folds, n_splits)
        table[:, np.add(at, usable)] = [
            metrics.accuracy(block, scores),
            metrics.balanced_accuracy(block, scores - odds),
            _mean_auroc(block, scores, folds, n_splits),
            metrics.log_loss(block, scores),
            metrics.calibration_error(block, scores),
        ]
        if held_out is not None:
            held_out[:, np.add(at, usable)] = scores
    warn_unconverged(converged)
    return HeldOutScores(
        accuracy=table[0],
        balanced_accuracy=table[1],
        auroc=table[2],
        log_loss=table[3],
        calibration_error=table[4],
        scores=held_out,
        reasons=tuple(reasons),
        converged=converged,
        C=best,
    )


def _check_split(n_row: int, n_activation: int, n_splits: int, groups: Groups | None) -> None:
    if n_row != n_activation:
        raise InputError(f"{n_activation} rows of activations but {n_row} rows of labels")
    if n_splits < 2:
        raise InputError(f"n_splits must be at least 2, got {n_splits}")
    if groups is not None and len(groups) != n_row:
        raise InputError(f"{n_row} rows of labels but {len(groups)} rows of groups")


def _reasons(
    Y: Bool[np.ndarray, "batch target"], folds: Int[np.ndarray, "batch target"], n_splits: int
) -> list[str | None]:
    """Why each target cannot be cross-validated, if so: a fold would train on one class only.

    Stratified folds also need a row of each class in every fold.
    """
    reasons: list[str | None] = [None] * Y.shape[1]
    for name, is_class in (("positive", Y), ("negative", ~Y)):
        total = is_class.sum(0)
        most = np.max([(is_class & (folds == fold)).sum(0) for fold in range(n_splits)], axis=0)
        for column in np.flatnonzero((most == total) | (total < n_splits)):
            where = "" if total[column] < n_splits else ", all in one fold"
            reasons[column] = reasons[column] or (
                f"{total[column]} {name} rows{where}, too few for {n_splits} folds"
            )
    return reasons


def _best_out_of_fold(
    site: Site,
    Y: Bool[np.ndarray, "batch target"],
    folds: Int[np.ndarray, "batch target"],
    n_splits: int,
    strengths: tuple[float, ...],
    *,
    tol: float,
    max_iter: int,
    dtype: torch.dtype | None,
) -> tuple[
    Float[np.ndarray, "batch target"], Bool[np.ndarray, " target"], Float[np.ndarray, " target"]
]:
    """Every row's score at its fold's strength; convergence in all folds; the best strength."""
    n_target = Y.shape[1]
    scores, converged = np.full(Y.shape, np.nan), np.ones(n_target, dtype=bool)
    best, strength = np.full(n_target, np.inf), np.full(n_target, np.nan)  # over all folds
    least = np.full((n_splits, n_target), np.inf)  # loss on the other folds, of what is chosen
    goes_on = np.ones((n_splits, n_target), dtype=bool)
    for C in sorted(strengths):
        active = np.flatnonzero(goes_on.any(0))
        if not active.size:
            break
        y, of = Y[:, active], folds[:, active]
        fold_scores, met = _out_of_fold(
            site, y, of, n_splits, C=C, tol=tol, max_iter=max_iter, dtype=dtype
        )
        by_row = np.logaddexp(0, np.where(y, -fold_scores, fold_scores))
        losses = np.stack([np.where(of == fold, by_row, 0).sum(0) for fold in range(n_splits)])
        total = losses.sum(0)
        better = total < best[active]
        best[active[better]], strength[active[better]] = total[better], C
        others = total - losses  # [fold target]
        chosen = goes_on[:, active] & (others < least[:, active])
        least[:, active] = np.where(chosen, others, least[:, active])
        takes = np.take_along_axis(chosen, of, axis=0)
        scores[:, active] = np.where(takes, fold_scores, scores[:, active])
        converged[active] &= met | ~chosen.any(0)
        goes_on[:, active] &= others <= HOPELESS * least[:, active]
    return scores, converged, strength


def _fitted_odds(
    Y: Bool[np.ndarray, "batch target"], folds: Int[np.ndarray, "batch target"], n_splits: int
) -> Float[np.ndarray, "batch target"]:
    """Log-odds of a positive label among the rows outside each row's fold."""
    odds = np.empty(Y.shape)
    for fold in range(n_splits):
        fitted = folds != fold
        positive = (Y & fitted).sum(0)
        np.copyto(odds, np.log(positive / (fitted.sum(0) - positive)), where=~fitted)
    return odds


def _out_of_fold(
    site: Site,
    Y: Bool[np.ndarray, "batch target"],
    folds: Int[np.ndarray, "batch target"],
    n_splits: int,
    *,
    C: float,
    tol: float,
    max_iter: int,
    dtype: torch.dtype | None,
) -> tuple[Float[np.ndarray, "batch target"], Bool[np.ndarray, " target"]]:
    """Every row's score from the probe fitted without its fold; convergence in all folds."""
    trained_on = np.concatenate([folds != fold for fold in range(n_splits)], axis=1)
    fitted = fit_site(
        site, np.tile(Y, n_splits), trained_on, C=C, tol=tol, max_iter=max_iter, dtype=dtype
    )
    coef = torch.from_numpy(fitted.coef).to(site.device)
    intercept = torch.from_numpy(fitted.intercept).to(site.device)
    scores = np.empty(Y.shape)
    for fold in range(n_splits):
        of_fold = slice(fold * Y.shape[1], (fold + 1) * Y.shape[1])
        margins = site.margins(coef[of_fold], intercept[of_fold]).cpu().numpy()
        np.copyto(scores, margins, where=folds == fold)
    return scores, np.asarray(fitted.converged.reshape(n_splits, -1).all(axis=0))


def _mean_auroc(
    Y: Bool[np.ndarray, "batch target"],
    scores: Float[np.ndarray, "batch target"],
    folds: Int[np.ndarray, "batch target"],
    n_splits: int,
) -> Float[np.ndarray, " target"]:
    by_fold = np.array([metrics.auroc(Y, scores, folds == fold) for fold in range(n_splits)])
    defined = np.isfinite(by_fold)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(defined, by_fold, 0).sum(0) / defined.sum(0))
