"""Second moments of embeddings and unembeddings: all that weights-only scores need of a vocabulary.

A head's circuit from tokens to tokens, `N A U` with N [token d_model], A [d_model d_model] of rank
d_head and U [d_model token], is large; its trace, size and eigenvalues follow from matrices of
d_model x d_model that are the same for all heads: `N^T N`, `U N`, `U U^T`, summed over tokens in
chunks. Everything is centred over tokens: a constant added to all logits, or to a query's scores
for all keys, changes no softmax, and one added for all sources is a bias.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.circuits.weights.folding import read_through
from interp_toolkit.circuits.weights.residual import token_residual
from interp_toolkit.models.weights.parts import NormWeights
from interp_toolkit.models.weights.precision import at_least_single
from interp_toolkit.models.weights.view import ModelWeights


@dataclass(frozen=True, eq=False)
class TokenMoments:
    """Centred sums over tokens of embeddings n, through a norm without its weights.

    Attributes:
        count: number of tokens.
        embedding: sum of n n^T.
        crossed: sum of u n^T, u the token's own column of the unembedding, final norm folded in;
            None where not asked for.
        unembedding: sum of u u^T; None likewise.
    """

    count: int
    embedding: Float[Tensor, "d_model d_model"]
    crossed: Float[Tensor, "d_model d_model"] | None
    unembedding: Float[Tensor, "d_model d_model"] | None


def shared_tokens(view: ModelWeights) -> int:
    """How many ids are both input and output: all, or the first few of a smaller output."""
    return min(view.d_vocab, view.W_U.shape[1])


class TokenMomentsCache:
    """Moments of a model's vocabulary, made once for every kind of norm that reads it."""

    def __init__(self, view: ModelWeights, memory: int):
        self._view = view
        rows = memory // (6 * 8 * view.d_model)
        self._chunk = max(min(rows, view.d_vocab), 1)
        self._made: dict[tuple[str | None, float, bool], TokenMoments] = {}

    def __call__(self, norm: NormWeights, unembedding: bool) -> TokenMoments:
        """The moments of the tokens as this norm leaves them, its weights apart.

        Args:
            norm: in front of the layer that reads them.
            unembedding: also the moments with the unembedding, over the tokens both have.
        """
        key = norm.kind, norm.eps, unembedding
        if key not in self._made:
            bare = NormWeights(norm.kind, eps=norm.eps)
            self._made[key] = self._make(bare, unembedding)
        return self._made[key]

    def _make(self, norm: NormWeights, unembedding: bool) -> TokenMoments:
        view = self._view
        count = shared_tokens(view) if unembedding else view.d_vocab
        U = read_through(view.final_norm, view.W_U)[:, :count].T if unembedding else None
        tokens = torch.arange(count, device=view.W_E.device)
        mean = torch.zeros(view.d_model, dtype=torch.float64, device=tokens.device)
        for chunk in torch.split(tokens, self._chunk):
            mean += at_least_single(norm(token_residual(view, chunk))).sum(0, dtype=torch.float64)
        mean = mean / count
        square = mean.new_zeros(view.d_model, view.d_model)
        crossed, unembedded = torch.zeros_like(square), torch.zeros_like(square)
        U = None if U is None else U - U.mean(0, dtype=torch.float64).to(U.dtype)
        for chunk in torch.split(tokens, self._chunk):
            n = at_least_single(norm(token_residual(view, chunk)))
            n = n - mean.to(n.dtype)
            square += n.T @ n
            if U is not None:
                crossed += U[chunk].T @ n
                unembedded += U[chunk].T @ U[chunk]
        if U is None:
            return TokenMoments(count, square, None, None)
        return TokenMoments(count, square, crossed, unembedded)
