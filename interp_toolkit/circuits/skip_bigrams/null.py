"""What a score says against chance: its p-value, and which of very many pairs stand out.

Fix a head's form W and a query feature f_q, and let a = W^T f_q. For a key feature drawn uniformly
from the unit sphere of R^d, (f_k . a / |a|)^2 is Beta(1/2, (d-1)/2) distributed, exactly and
whatever W is; t = sqrt(d) f_k . a / |a| has variance 1. A pair has one such t as an entry of its
row and one of its column, and the smaller of the two counts: both explanations must fail. Where
features are not like random directions (see `scores`), the tail is taken as the normal's, which is
heavier.

Discoveries are Benjamini & Hochberg's (1995) over all pairs. If no pair is a bigram, the chance of
any discovery is then at most the level (for independent or positively dependent pairs; the
benchmark `skip_bigram_levels` measures it on random heads).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy import special, stats

SMALLEST_P = 1e-300


def p_values(t: Float[np.ndarray, "*pair"], d: float) -> Float[np.ndarray, "*pair"]:
    """Two-sided p-values of t, for unit vectors in d dimensions; d infinite: the normal's."""
    p: np.ndarray
    if np.isinf(d):
        p = 2 * stats.norm.sf(np.abs(t))
    elif d <= 1:
        p = np.ones_like(t)
    else:
        p = special.betainc((d - 1) / 2, 0.5, np.clip(1 - t**2 / d, 0, 1))
    p = np.maximum(p, SMALLEST_P)
    return p


def t_at(p: float, d: float) -> float:
    """The |t| that has this p-value."""
    if np.isinf(d):
        return float(stats.norm.isf(p / 2))
    if d <= 1:
        return float("inf")
    return float(np.sqrt(d * (1 - special.betaincinv((d - 1) / 2, 0.5, p))))


def z_scores(t: Float[np.ndarray, "*pair"], d: float) -> Float[np.ndarray, "*pair"]:
    """The normal quantile of the same two-sided p-value, with the sign of t."""
    z: np.ndarray = np.sign(t) * stats.norm.isf(p_values(t, d) / 2)
    return z


def largest_p(p: Float[np.ndarray, " pair"], n_taken: int, n_pairs: int, level: float) -> float:
    """Benjamini & Hochberg's threshold: p-values up to it are discoveries; 0 where none is.

    Args:
        p: the small p-values; of all others only their number matters.
        n_taken: how many further pairs are discoveries already.
        n_pairs: of all pairs.
        level: of the false discovery rate.
    """
    ordered = np.sort(p)
    rank = n_taken + np.arange(1, len(p) + 1)
    below = np.flatnonzero(ordered <= level * rank / n_pairs)
    return float(ordered[below[-1]]) if len(below) else 0.0
