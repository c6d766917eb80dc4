"""Copying and matching scores of every head, from weights alone.

A head *copies* if its circuit from source token to logits, `M = N W_V W_O U`, raises the token's
own logit. It *matches* if its attention scores, `M = N W_Q W_K^T N^T`, are higher between a token
and itself. N is the matrix of embeddings after the layer's norm (exact at layer 0; the direct path
in deeper layers), and U is the unembedding. The linear part of each norm is folded into the weights
(see `token_scores`); the final norm's division is left out. Each circuit has three scores, computed
from M after centering over sources and over targets:

- eigenvalue score: `sum(lambda) / sum(|lambda|)` over the eigenvalues of M, from -1 to 1; it is 1
  if all eigenvalues are positive (Elhage et al. 2021, "A Mathematical Framework for Transformer
  Circuits", on copying).
- diagonal score: the mean of M's diagonal minus the mean of its other entries, divided by the root
  mean square of all entries.
- z and p: M's trace (the numerator of both other scores) under the null that the head reads the
  embedding's residual coordinates in random order and with random signs (see `permutations`). The
  standard deviation is exact. P-values are one-sided and adjusted over all heads and both circuits
  (Holm). Without a norm, each coordinate is measured in units of the embeddings' writes to it.

M has one row and one column per token and is never formed. With N [token d_model], U [d_model
token] and a head's matrix A [d_model d_model] of rank d_head, the trace, norm and eigenvalues of
`N A U` follow from `N^T N`, `U N` and `U U^T`. These d_model x d_model matrices are the same for
all heads and are summed over tokens in chunks (`TokenMoments`). Centering loses nothing: a constant
added to all logits, or to a query's scores for all keys, changes no softmax, and a constant added
for all sources is a bias.

Learned positions enter as their mean. Rotary heads are scored without rotation (distance 0). Biases
add the same vector for all sources, or for all keys of a query, so centering removes them (the part
of b_Q differs by key, but not by query). b_O belongs to no head. Scores are computed before any
soft cap.

Permutations are applied after the norm's weights. If these weights are near 1, random models have
p <= 0.05 as often as they should; if they scatter around 0, up to three times as often.
Permutations of tokens would give too narrow a null, because all tokens share the head's few
dimensions: in untrained models with more tokens than dimensions, the standard deviation of traces
is sqrt(tokens / dimensions) times that of such permutations.

`own_rank` ranks each token's own entry in its row of `left @ right.T`, which is computed in tiles.
Unlike means, ranks distinguish a head that copies a few tokens strongly from one that copies all
tokens weakly.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Complex, Float, Int
from scipy import stats
from torch import Tensor

from interp_toolkit.circuits.weights.permutations import (
    WORK,
    coordinate_units,
    held_against_draws,
    reciprocal,
)
from interp_toolkit.circuits.weights.qk import folded_note
from interp_toolkit.circuits.weights.token_scores import (
    read_dimensions,
    read_through,
    token_residual,
    written_through,
)
from interp_toolkit.errors import InputError, takes
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.models.model import Model, check_model
from interp_toolkit.models.running.memory import parse_memory
from interp_toolkit.models.weights.parts import LayerWeights, NormWeights, OVWeights
from interp_toolkit.models.weights.precision import at_least_single
from interp_toolkit.models.weights.view import ModelWeights, weights
from interp_toolkit.stats import holm

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class TokenMoments:
    """Centered sums over tokens of embeddings n, after a norm without its weights.

    Attributes:
        count: number of tokens.
        embedding: sum of n n^T.
        crossed: sum of u n^T, where u is the token's own column of the unembedding, with the final
            norm folded in; None if not requested.
        unembedding: sum of u u^T; None if not requested.
    """

    count: int
    embedding: Float[Tensor, "d_model d_model"]
    crossed: Float[Tensor, "d_model d_model"] | None
    unembedding: Float[Tensor, "d_model d_model"] | None


def shared_tokens(view: ModelWeights) -> int:
    """Number of token ids that are both inputs and outputs, counted from 0."""
    return min(view.d_vocab, view.W_U.shape[1])


class TokenMomentsCache:
    """Moments of a model's vocabulary, computed once for every kind of norm.

    Args:
        view: the model's weights.
        memory: bytes for a chunk of tokens.
        sample: largest number of tokens, drawn at random from the vocabulary; None: all.
    """

    def __init__(self, view: ModelWeights, memory: int, sample: int | None = None):
        self._view = view
        #: how many tokens are drawn; None where the moments are over all
        self.sample = sample if sample is not None and sample < view.d_vocab else None
        rows = memory // (6 * 8 * view.d_model)
        self._chunk = max(min(rows, view.d_vocab), 1)
        self._made: dict[tuple[str | None, float, bool], TokenMoments] = {}

    def __call__(self, norm: NormWeights, unembedding: bool) -> TokenMoments:
        """Moments of the tokens after this norm, without the norm's weights.

        Args:
            norm: the norm before the layer that reads the tokens.
            unembedding: whether to add the moments with the unembedding, over ids that are both
                inputs and outputs.
        """
        with_it = norm.kind, norm.eps, True
        if with_it in self._made and shared_tokens(self._view) == self._view.d_vocab:
            return self._made[with_it]  # those without the unembedding are among them
        key = norm.kind, norm.eps, unembedding
        if key not in self._made:
            bare = norm.bare
            self._made[key] = self._make(bare, unembedding)
        return self._made[key]

    def _tokens(self, count: int) -> Int[Tensor, " token"]:
        """The first `count` ids, or a sample of them."""
        tokens = torch.arange(count)
        if self.sample is not None and self.sample < count:
            order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
            tokens = order[: self.sample].sort().values
        return tokens.to(self._view.W_E.device)

    def _make(self, norm: NormWeights, unembedding: bool) -> TokenMoments:
        view = self._view
        tokens = self._tokens(shared_tokens(view) if unembedding else view.d_vocab)
        count = len(tokens)
        U = read_through(view.final_norm, view.W_U[:, tokens]).T if unembedding else None
        mean = torch.zeros(view.d_model, dtype=torch.float64, device=tokens.device)
        for chunk in torch.split(tokens, self._chunk):
            mean += at_least_single(norm(token_residual(view, chunk))).sum(0, dtype=torch.float64)
        mean = mean / count
        square = mean.new_zeros(view.d_model, view.d_model)
        crossed, unembedded = torch.zeros_like(square), torch.zeros_like(square)
        U = None if U is None else U - U.mean(0, dtype=torch.float64).to(U.dtype)
        for chunk in torch.split(torch.arange(count), self._chunk):
            n = at_least_single(norm(token_residual(view, tokens[chunk])))
            n = n - mean.to(n.dtype)
            square += n.T @ n
            if U is not None:
                u = U[chunk]
                crossed += u.T @ n
                unembedded += u.T @ u
        if U is None:
            return TokenMoments(count, square, None, None)
        return TokenMoments(count, square, crossed, unembedded)


GIVES_UP = torch.linalg.LinAlgError  # type: ignore[attr-defined]
ROUNDING = 8 * torch.finfo(torch.float64).eps


@dataclass(frozen=True, eq=False)
class SelfScores(ShortRepr):
    """Self-scores of a layer's heads: how strongly their circuits map tokens to themselves.

    Attributes:
        eigenvalue: sum of the eigenvalues over the sum of their absolute values.
        diagonal: mean of the diagonal minus mean of the other entries, over the root mean square
            of all entries.
        z: z-score of the trace under signed permutations of coordinates.
        p_value: one-sided probability of so large a trace under such permutations.
        z_most: z-score of the largest trace that a circuit with these singular values can have.
    """

    eigenvalue: Float[np.ndarray, " head"]
    diagonal: Float[np.ndarray, " head"]
    z: Float[np.ndarray, " head"]
    p_value: Float[np.ndarray, " head"]
    z_most: Float[np.ndarray, " head"]


@takes(model=check_model)
@torch.no_grad()
def weight_scores(
    model: Model,
    memory: int | str | None = None,
    *,
    sample: int | None = None,
    view: ModelWeights | None = None,
) -> pd.DataFrame:
    """Copying and matching scores of every head, from weights alone.

    Args:
        model: any TransformerLens model.
        memory: memory limit in addition to the weights, such as "4GiB".
        sample: number of tokens to draw at random from a larger vocabulary; None: all are used.
        view: `weights(model)`, if already computed.

    Returns:
        One row per head: layer, head, ov_copying and qk_matching (eigenvalue scores), ov_diagonal,
        qk_diagonal, and ov_z, ov_p, ov_p_adjusted, ov_z_most, qk_z, qk_p, qk_p_adjusted,
        qk_z_most (defined in `circuits.weights.self_scores`). NaN where the weights cannot be
        read, and for heads with zero weights; `frame.attrs["notes"]` lists what was left out.

    Raises:
        InputError: a model whose embedding cannot be read.

    Examples:
        >>> import interp_toolkit as it
        >>> weight_scores(it.load("toy:induction"))[["layer", "head"]].to_numpy().tolist()
        [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    import pandas as pd

    view = weights(model) if view is None else view
    moments = TokenMomentsCache(view, parse_memory(memory), sample)
    notes = unreadable(view)
    if moments.sample is not None:
        notes.append(
            f"scores from weights are over {moments.sample} of {view.d_vocab} tokens, drawn at "
            "random"
        )
    rows = []
    for layer in range(view.n_layers):
        ov = qk = None
        with suppress(InputError):  # named in the notes
            ov = copying(view, view.ov(layer), moments)
        with suppress(InputError):
            qk = matching(view, view.layer(layer), moments)
        for head in range(view.n_heads):
            row: dict[str, Any] = {"layer": layer, "head": head}
            row |= _named(ov, head, "ov", "copying") | _named(qk, head, "qk", "matching")
            rows.append(row)
    frame = pd.DataFrame(rows)
    both = holm(np.concatenate([frame.ov_p.to_numpy(float), frame.qk_p.to_numpy(float)]))
    frame.insert(6, "ov_p_adjusted", both[: len(frame)])
    frame["qk_p_adjusted"] = both[len(frame) :]
    if frame.ov_p.notna().any() and view.W_U.shape[1] != view.d_vocab:
        ids = f"the {shared_tokens(view)} token ids that are both input and output"
        notes.append(f"OV copying scores cover only {ids}")
    read = set(frame.layer[frame.qk_p.notna()])
    notes += [f"matching scores are without all of the norms: {n}" for n in folded_note(view, read)]
    frame.attrs["notes"] = notes
    return frame


def copying(view: ModelWeights, w: OVWeights, moments: TokenMomentsCache) -> SelfScores | None:
    """Copying scores of a layer's heads; None if there is no direct path to the logits."""
    try:
        if shared_tokens(view) < 2 or w.residual_norm.kind is not None:
            return None
        norm_moments = moments(w.norm, unembedding=True)
    except InputError:
        return None
    assert norm_moments.crossed is not None
    assert norm_moments.unembedding is not None
    reads = read_through(w.norm, w.W_V).double()
    writes = written_through(w.post_norm, w.W_O).double()
    crossed, unembedding = (
        _product(writes, norm_moments.crossed),
        writes @ norm_moments.unembedding @ writes.mT,
    )
    embedding = _by_group(lambda heads: heads.mT @ norm_moments.embedding @ heads, reads)
    grams = embedding, unembedding
    return _self_scores(view, w.norm, reads, crossed, grams, norm_moments)


def matching(view: ModelWeights, w: LayerWeights, moments: TokenMomentsCache) -> SelfScores | None:
    """Matching scores of a layer's heads; None for a vocabulary of one token."""
    if view.d_vocab < 2:
        return None
    norm_moments = moments(w.norm, unembedding=False)
    w = w.folded()
    queries = read_through(w.norm, w.W_Q).double()
    keys = read_through(w.norm, w.W_K).double()
    crossed = _by_group(lambda heads: _product(heads.mT, norm_moments.embedding), keys)
    grams = queries.mT @ norm_moments.embedding @ queries, crossed @ keys
    return _self_scores(view, w.norm, queries, crossed, grams, norm_moments)


def unreadable(view: ModelWeights) -> list[str]:
    """Weights that the view cannot provide, and why. Raises InputError without an embedding."""
    notes = []
    assert view.W_E is not None
    try:
        shared_tokens(view)
    except InputError as error:
        notes.append(f"no copying scores: {error}")
    for layer in range(view.n_layers):
        try:
            w = view.ov(layer)
        except InputError as error:
            notes.append(f"layer {layer} is left out: {error}")
            continue
        if w.residual_norm.kind is not None:
            notes.append(
                f"no copying scores of layer {layer}: a norm rescales the residual stream after "
                "the heads' output is added to it (post-norm)"
            )
        try:
            view.layer(layer)
        except InputError as error:
            notes.append(f"no matching scores of layer {layer}: {error}")
    return notes


def _self_scores(
    view: ModelWeights,
    norm: NormWeights,
    reads: Float[Tensor, "head d_model d_head"],
    crossed: Float[Tensor, "head d_head d_model"],
    grams: tuple[Float[Tensor, "head k k"], Float[Tensor, "head k k"]],
    moments: TokenMoments,
) -> SelfScores:
    """Scores from the two factors of the circuit: `reads`, and `crossed` for the rest of M.

    The nonzero eigenvalues of a product are those of the factors multiplied in the other order,
    [d_head d_head]. Under permutations, M's trace has the standard deviation
    `||reads crossed|| / sqrt(d)`.
    """
    eigenvalues = _eigenvalues(_product(crossed, reads))
    trace = eigenvalues.real.sum(-1)
    root_mean_square = _trace(*grams).clamp(min=0).sqrt() / moments.count
    d = read_dimensions(norm, view.d_model)
    if norm.kind is None:
        scale = coordinate_units(moments.embedding.diagonal())
        written = scale > 0
        d = int(written.sum())
        reads = (reads * scale[:, None])[:, written]
        crossed = (crossed * reciprocal(scale))[..., written]
    spread = _trace(reads.mT @ reads, crossed @ crossed.mT).clamp(min=0).sqrt()
    z = (trace / (spread / d**0.5)).cpu().numpy()
    squares, U = torch.linalg.eigh(grams[0])
    root = U * squares.clamp(min=0).sqrt()[:, None]
    singular_values = torch.linalg.eigvalsh(root.mT @ grams[1] @ root).clamp(min=0).sqrt()

    def null_scores(heads: np.ndarray, order: Tensor, sign: Tensor) -> np.ndarray:
        permuted = reads[heads][:, order.to(reads.device)] * sign.to(reads)[:, None]
        values: np.ndarray = torch.einsum("hdk,hkd->h", permuted, crossed[heads]).cpu().numpy()
        return values

    p = held_against_draws(
        stats.norm.sf(z),
        trace.cpu().numpy(),
        null_scores,
        reads.shape[1],
        n_tests=2 * view.n_layers * view.n_heads,
        work=WORK / (2 * view.n_layers),
        cost=8 * reads.shape[1] * reads.shape[2],  # entries are moved, which takes longest
    )
    return SelfScores(
        eigenvalue=(trace / eigenvalues.abs().sum(-1)).cpu().numpy(),
        diagonal=(trace / (moments.count - 1) / root_mean_square).cpu().numpy(),
        z=z,
        p_value=p,
        z_most=(singular_values.sum(-1) / (spread / d**0.5)).cpu().numpy(),
    )


def _eigenvalues(matrices: Float[Tensor, "head k k"]) -> Complex[Tensor, "head k"]:
    """Eigenvalues of each matrix, or of its transpose if the solver fails; else NaN.

    LAPACK's iteration may fail to converge on matrices of low rank with many equal entries.
    """
    try:
        values: Tensor = torch.linalg.eigvals(matrices)
    except GIVES_UP:
        values = torch.stack([_eigenvalues_of_one(matrix) for matrix in matrices])
    return values


def _eigenvalues_of_one(matrix: Float[Tensor, "k k"]) -> Complex[Tensor, " k"]:
    for same in (matrix, matrix.mT):
        with suppress(GIVES_UP):
            values: Tensor = torch.linalg.eigvals(same)
            return values
    return torch.full_like(matrix[0], torch.nan, dtype=torch.complex128)


def _product(a: Float[Tensor, "head i j"], b: Float[Tensor, "*head j k"]) -> Tensor:
    """`a @ b`, with entries that are only rounding errors set to zero.

    Rounding errors would give a score to a head that reads nothing, and eigenvalue solvers can
    fail on matrices of rounding errors.
    """
    product = a @ b
    largest = b.norm(dim=-2).amax(-1)[..., None, None]  # b may hold the rounding already
    rounding = a.norm(dim=-1)[..., None] * largest * ROUNDING
    return torch.where(product.abs() > rounding, product, 0)


def _by_group(
    function: Callable[[Tensor], Tensor], weights: Float[Tensor, "head d_model d_head"]
) -> Tensor:
    """A function of the weights of heads, computed once for query heads that share them."""
    n_heads = len(weights)
    sizes = (size for size in range(n_heads, 1, -1) if n_heads % size == 0)
    size = next((n for n in sizes if torch.equal(weights, weights[::n].repeat_interleave(n, 0))), 1)
    return function(weights[::size]).repeat_interleave(size, dim=0)


def _trace(a: Float[Tensor, "head k k"], b: Float[Tensor, "head k k"]) -> Float[Tensor, " head"]:
    return torch.einsum("hij,hji->h", a, b)


def _named(scores: SelfScores | None, head: int, circuit: str, name: str) -> dict[str, float]:
    columns = {name: "eigenvalue", "diagonal": "diagonal", "z": "z", "p": "p_value"}
    columns["z_most"] = "z_most"
    return {
        f"{circuit}_{column}": float("nan") if scores is None else getattr(scores, field)[head]
        for column, field in columns.items()
    }


@dataclass(frozen=True)
class OwnRank:
    """Ranks of tokens' own entries in their rows.

    Attributes:
        first: fraction of tokens whose own entry is the only largest of its row.
        above: mean fraction of the row's other entries that are below the own entry (ties count one
            half); 0.5 by chance, 1 if the own entry is always the largest.
        tokens: number of ranked tokens.
    """

    first: float
    above: float
    tokens: int


def own_rank(
    left: Float[Tensor, "token rank"], right: Float[Tensor, "token rank"], memory: int
) -> OwnRank:
    """Ranks of the diagonal of `left @ right.T` in its rows.

    Args:
        left: one row for each token that is both a row and a column of the product.
        right: one row for each column of the product, in the same order of tokens. Adding one
            vector to all its rows changes no rank.
        memory: bytes for a tile and its comparisons.
    """
    count = len(left)
    if count < 2:
        return OwnRank(float("nan"), float("nan"), count)
    chunk = max(memory // (4 * count * max(left.element_size(), 4)), 1)
    first, above = 0, 0.0
    for start in range(0, count, chunk):
        tile = left[start : start + chunk] @ right.T
        rows = torch.arange(len(tile), device=tile.device)
        own = tile[rows, rows + start, None]
        below, ties = (tile < own).sum(1), (tile == own).sum(1) - 1
        first += int((below == count - 1).sum())
        above += float((below + ties / 2).sum()) / (count - 1)
    return OwnRank(first / count, above / count, count)
