"""Classification metrics for many targets at once (one column each).

Scores are log-odds: above 0 means a prediction of True. A metric is NaN where it is undefined, such
as AUROC and balanced accuracy with one class only.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit

CALIBRATION_BINS = 10

Labels = Bool[np.ndarray, "batch target"]
Scores = Float[np.ndarray, "batch target"]
PerTarget = Float[np.ndarray, " target"]


def accuracy(Y: Labels, scores: Scores) -> PerTarget:
    """The fraction of rows predicted correctly."""
    return np.asarray(((scores > 0) == Y).mean(0))


def balanced_accuracy(Y: Labels, scores: Scores) -> PerTarget:
    """The mean of the accuracies on positive and on negative rows."""
    predicted = scores > 0
    sensitivity = _ratio((predicted & Y).sum(0), Y.sum(0))
    specificity = _ratio((~predicted & ~Y).sum(0), (~Y).sum(0))
    return np.asarray((sensitivity + specificity) / 2)


def auroc(Y: Labels, scores: Scores, rows: Labels | None = None) -> PerTarget:
    """The probability that a positive row scores above a negative one; ties count one half.

    `rows` restricts each target to some of its rows; None: all.
    """
    from scipy.stats import rankdata  # takes long to import

    rows = np.ones_like(Y) if rows is None else rows
    ranks = rankdata(np.where(rows, scores, np.inf), axis=0)  # excluded rows rank last
    positive, negative = (Y & rows).sum(0), (~Y & rows).sum(0)
    wins = np.where(Y & rows, ranks, 0).sum(0) - positive * (positive + 1) / 2
    return _ratio(wins, positive * negative)


def log_loss(Y: Labels, scores: Scores) -> PerTarget:
    """The mean negative log-probability of the label, in nats."""
    return np.asarray(np.logaddexp(0, np.where(Y, -scores, scores)).mean(0))


def calibration_error(Y: Labels, scores: Scores, bins: int = CALIBRATION_BINS) -> PerTarget:
    """Expected calibration error over bins of equal mass (Naeini et al. 2015; Nixon et al. 2019).

    Rows are sorted by predicted probability and split into `bins` runs whose sizes differ by at
    most one; the error is the mean over rows of |mean probability - fraction of True| of the row's
    run. Rows of equal score share their mean label, so that the order of rows does not matter.
    It is biased upwards by about 0.4 * sqrt(bins / rows) even for a perfectly calibrated probe.
    """
    order = np.argsort(scores, axis=0, kind="stable")
    scores = np.take_along_axis(scores, order, axis=0)
    labels = _mean_over_ties(np.take_along_axis(Y, order, axis=0), scores)
    n_row = len(scores)
    cuts = np.unique(np.arange(bins) * n_row // bins)
    gaps = np.add.reduceat(expit(scores) - labels, cuts, axis=0)
    return np.asarray(np.abs(gaps).sum(0) / n_row)


def _mean_over_ties(Y: Labels, scores: Scores) -> Scores:
    """Labels replaced by their mean among the rows of equal score; columns are sorted."""
    starts = np.ones(Y.shape, dtype=bool)
    starts[1:] = scores[1:] != scores[:-1]
    run = np.cumsum(starts.T.ravel()) - 1  # a new column always starts a new run
    values = Y.T.ravel().astype(float)
    means = np.bincount(run, values) / np.bincount(run)
    return np.asarray(means[run].reshape(Y.T.shape).T)


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> PerTarget:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(denominator > 0, numerator / denominator, np.nan)
