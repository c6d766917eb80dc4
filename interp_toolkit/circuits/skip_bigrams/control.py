"""The control of skip-bigrams: the same head, reading residual coordinates in random order.

Sparse weights and features, as hand-set ones are, make scores that stand out from their row and
their column wherever their entries fall, so that p-values against random directions (`null`) say
little. Copies of the head read the coordinates of keys in random order and with random signs: they
keep the entries of weights and features. Where the copies' largest scores stand out as far, the
weights' entries explain the bigrams, and not which key feature meets which query feature.
"""

from __future__ import annotations

import numpy as np
import torch

from interp_toolkit.circuits.skip_bigrams.scores import NONE, Features, Form, Pairs, PairScores

COPIES = 199
ENOUGH = 20  # copies that reach the head, after which its p-value is known
MOST_FEATURES = 1024  # of a side: with more, copies take too long to look at all pairs
TIE = 1e-4  # relative: values so close are equal up to rounding
SMALLEST_P = 1 / (COPIES + 1)


def permuted_p_value(
    form: Form, features: Features, pairs: Pairs, floor: float, seed: int, memory: int
) -> float:
    """The share of copies whose largest |t| are as large, the head counted among them.

    NaN, no comparison, for more than MOST_FEATURES of a side: some of them would favor the head,
    whose bigrams are the largest of all pairs.

    Args:
        form: the head's.
        features: on both sides.
        pairs: the bigrams found; their number is that of the largest |t| that are compared.
        floor: as for `PairScores`.
        seed: of the copies.
        memory: bytes for a tile.
    """
    if max(len(features.query), len(features.key)) > MOST_FEATURES:
        return float("nan")
    rng = np.random.default_rng(seed)
    read = (features.key != 0).any(0).nonzero()[:, 0].numpy()

    def largest(head: Form) -> float:
        best = PairScores(head, features, floor, seed, memory).sweep(np.inf, NONE).row_best
        return float(np.sort(best)[-len(pairs.query) :].mean())

    observed, reached = largest(form), 0
    for copy in range(1, COPIES + 1):
        order = np.arange(len(form.right))
        order[read] = rng.permutation(read)
        sign = torch.from_numpy(rng.choice((-1.0, 1.0), len(order)))
        permuted = Form(form.left, form.right[torch.from_numpy(order)] * sign[:, None])
        reached += largest(permuted) >= observed * (1 - TIE)
        if reached == ENOUGH:
            return (reached + 1) / (copy + 1)
    return (reached + 1) / (COPIES + 1)
