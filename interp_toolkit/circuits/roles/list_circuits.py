"""Do heads' OV circuits take tokens of a list to the one after? From weights alone.

Each token's effective embedding (its embedding, and what MLP 0 makes of it where there is one:
Gould et al. 2023, "Successor Heads") goes through a head's values and outputs to the logits of its
list. Rows and columns are centred, so that a token which is likely everywhere counts for nothing.
The score is the mean entry at the successor over the root mean square of all; the null is the same
with the list's columns in another order, the same one for all heads, the largest head of each draw
counting. Other shifts along the list (the token itself, the one before, two on) must score less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.circuits.roles.flips import among_largest
from interp_toolkit.circuits.weights.folding import read_through
from interp_toolkit.errors import InputError
from interp_toolkit.models.weights.mlp import neurons
from interp_toolkit.models.weights.precision import at_least_single
from interp_toolkit.models.weights.view import ModelWeights
from interp_toolkit.stats import LEVEL

DRAWS = 2000
TIE = 1e-6


@dataclass(frozen=True, eq=False)
class ListCircuits:
    """What OV circuits do on lists, every head's.

    Attributes:
        score: mean entry at the successor, in root mean squares.
        p_value: adjusted for all heads.
        best_shift: whether no other shift along the lists scores as much.
        note: what is approximate, or None.
    """

    score: Float[np.ndarray, "layer head"]
    p_value: Float[np.ndarray, "layer head"]
    best_shift: Bool[np.ndarray, "layer head"]
    note: str | None

    @property
    def passes(self) -> Bool[np.ndarray, "layer head"]:
        """Whether a circuit takes tokens to their successors."""
        found: np.ndarray = (self.p_value <= LEVEL) & self.may
        return found

    @property
    def may(self) -> Bool[np.ndarray, "layer head"]:
        """Whether it does so more than any other shift, whether by chance or not."""
        found: np.ndarray = (self.score > 0) & self.best_shift
        return found


@torch.no_grad()
def list_circuits(
    view: ModelWeights, lists: Sequence[Int[np.ndarray, " member"]], *, seed: int = 0
) -> ListCircuits:
    """Successor scores of every head; raises InputError for weights that cannot be read."""
    tables, note = [], None
    for members in lists:
        embedded, said = effective_embedding(view, torch.from_numpy(members))
        note = note or said
        tables.append(_tables(view, members, embedded))
    flat = [_centred(table) for table in tables]  # layer head source target
    size = np.sqrt(sum(np.square(t).sum((-1, -2)) for t in flat))
    size = np.where(size > 0, size, 1.0)
    score = sum(_at_shift(t, 1) for t in flat) / size
    others = [s for s in range(-2, 4) if s != 1]
    rivals = np.stack([sum(_at_shift(t, s) for t in flat) / size for s in others])
    rng = np.random.default_rng(seed)
    null = np.empty(DRAWS)
    for draw in range(DRAWS):
        orders = [rng.permutation(t.shape[-1]) for t in flat]
        drawn = sum(_at_shift(t[..., o], 1) for t, o in zip(flat, orders, strict=True)) / size
        null[draw] = drawn.max()
    p_value = among_largest(score - TIE, null)
    return ListCircuits(score, p_value, np.all(score > rivals, axis=0), note)


@torch.no_grad()
def effective_embedding(
    view: ModelWeights, tokens: Int[Tensor, " token"]
) -> tuple[Float[Tensor, "token d_model"], str | None]:
    """Embeddings with what MLP 0 adds to them; or without, and why."""
    x = view.embed(tokens.to(view.W_E.device))
    try:
        w = view.mlp(0)
        if w is None:
            return x, None
        added = neurons(w, w.norm(x).to(w.W_in)) @ w.W_out + w.b_out
        return x + w.post_norm(added).to(x), None
    except InputError as error:
        return x, f"successor scores from weights leave out MLP 0: {error}"


def _tables(
    view: ModelWeights, members: Int[np.ndarray, " m"], embedded: Float[Tensor, "m d_model"]
) -> Float[np.ndarray, "layer head m m"]:
    U = read_through(view.final_norm, view.W_U[:, members])
    alone = view.embed(torch.from_numpy(members).to(view.W_E.device))
    tables = []
    for layer in range(view.n_layers):
        w = view.ov(layer)
        x = at_least_single(w.norm(embedded if layer else alone).to(w.W_V))
        v = torch.einsum("nm,hmd->hnd", x, at_least_single(w.W_V))
        tables.append((v @ (at_least_single(w.W_O) @ U)).cpu().numpy())
    return np.stack(tables)


def _centred(table: Float[np.ndarray, "*some m m"]) -> Float[np.ndarray, "*some m m"]:
    table = table - table.mean(-1, keepdims=True)
    centred: np.ndarray = table - table.mean(-2, keepdims=True)
    return centred


def _at_shift(table: Float[np.ndarray, "*some m m"], shift: int) -> Float[np.ndarray, "*some"]:
    """The mean entry so many columns to the right of the diagonal, in units of the table's side."""
    m = table.shape[-1]
    along = np.diagonal(table, shift, -2, -1)
    mean: np.ndarray = along.mean(-1) * m if along.shape[-1] else np.zeros(table.shape[:-2])
    return mean
