"""OV circuit of a head as two factors: its output for each token that it attends to.

A head that attends to a source token adds `n W_OV` to the residual stream. Here `W_OV = W_V W_O`
has rank d_head, and n is the normalized residual vector at the source (Elhage et al. 2021, "A
Mathematical Framework for Transformer Circuits"). The linear part of each norm is folded into the
weights (see `token_scores`): the norms before the head, after it (Gemma 2), and before the
unembedding. Approximations:

- Source: exact at layer 0. At deeper layers only the direct path from the embeddings is included.
  Learned positions enter as one requested position or as the mean position embedding.
- Logits: only the direct path is included, before any soft cap of the logits. The division by the
  final norm (and by a norm after the head) is left out: one positive factor per position. Logits
  are centered over target tokens, which no softmax sees.
- Biases: attention sums to 1, so b_V and the norm's bias add the same vector for every source. It
  is `constant`, and the scores leave it out. b_O belongs to the layer, not to a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.circuits.weights.self_scores import (
    OwnRank,
    TokenMomentsCache,
    copying,
    own_rank,
    shared_tokens,
)
from interp_toolkit.circuits.weights.token_scores import (
    TokenPair,
    TokenScores,
    read_through,
    through,
    token_residual,
    written_through,
)
from interp_toolkit.errors import InputError, takes
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.models.running.memory import parse_memory
from interp_toolkit.models.weights.parts import Division, OVWeights
from interp_toolkit.models.weights.precision import at_least_single
from interp_toolkit.models.weights.view import ModelWeights, weights
from interp_toolkit.results import head_name

CHUNK = 4096  # tokens per batch of residual vectors


@dataclass(frozen=True)
class Copying:
    """Copying scores of a head: its effect on the logit of the attended token.

    Attributes:
        eigenvalue: sum of the circuit's eigenvalues over the sum of their absolute values, -1 to 1.
        diagonal: mean diagonal entry minus mean off-diagonal entry, over the root mean square of
            all entries.
        z: z-score of the trace under signed permutations (see `weight_scores`).
        p_value: one-sided probability of so large a trace under such permutations.
        rank: rank of each token's own logit among all logits.
    """

    eigenvalue: float
    diagonal: float
    z: float
    p_value: float
    rank: OwnRank


@dataclass(frozen=True, eq=False)
class OVDecomposition(ShortRepr):
    """Singular value decomposition `W_OV = reads^T diag(singular_values) writes`, with readouts.

    Attributes:
        singular_values: in descending order.
        reads: unit input directions in the normalized residual stream, one per row.
        writes: unit output directions in the residual stream, one per row.
        source_readout: projection of each source token on `reads`. The signs of a component's
            `source_readout` and `logit_readout` are arbitrary, but tied to each other.
        logit_readout: effect of a unit step along `writes` on each logit, centered over tokens.
    """

    singular_values: Float[Tensor, " component"]
    reads: Float[Tensor, "component d_model"]
    writes: Float[Tensor, "component d_model"]
    source_readout: Float[Tensor, "component d_vocab"]
    logit_readout: Float[Tensor, "component d_vocab_out"]

    def effective_rank(self) -> float:
        """Effective rank: participation ratio of the squared singular values."""
        squares = self.singular_values.double() ** 2
        return float(squares.sum() ** 2 / (squares**2).sum())


@dataclass(frozen=True, eq=False)
class OVCircuit(ShortRepr):
    """OV circuit of one head; see the module.

    Attributes:
        layer: layer of the head.
        head: index of the query head (with grouped-query attention, heads share values).
        W_V: value weights with the norm's weights folded in; they act on the unweighted norm's
            output.
        W_O: output weights, with the weights of a norm after attention folded in.
        constant: output of the biases, which does not depend on the attended token.
        notes: approximations for this head in this model.
        divided_by: what values are divided by, where they are computed from a normalized latent;
            `tokens` divides, `svd` and `copying` leave it out.
    """

    layer: int
    head: int
    W_V: Float[Tensor, "d_model d_head"]
    W_O: Float[Tensor, "d_head d_model"]
    constant: Float[Tensor, " d_model"]
    notes: Sequence[str]
    _view: ModelWeights = field(repr=False)
    divided_by: Division | None = None

    @torch.no_grad()
    def tokens(self, position: int | None = None) -> TokenScores:
        """Effect of each attended source token on each logit, as factors.

        Args:
            position: source position, for learned positions; None takes their mean.

        Raises:
            InputError: the position does not exist, or the unembedding cannot be read.
        """
        notes = list(self.notes)
        if self._view.W_pos is not None and position is None:
            notes.append("the source has the mean position embedding")
        left, right = self._sources(position), self._logits()
        return TokenScores(left, right, exact=not notes, note="; ".join(notes))

    def top(
        self, k: int = 10, position: int | None = None, memory: int | str | None = None
    ) -> list[TokenPair]:
        """The k largest entries of `tokens`: source token, target token, score."""
        return self.tokens(position).top(k, memory)

    @torch.no_grad()
    def svd(self, position: int | None = None) -> OVDecomposition:
        """Singular value decomposition of W_OV, with projections of tokens and effects on logits.

        Raises:
            InputError: the position does not exist, or the unembedding cannot be read.
        """
        Q_in, R_in = torch.linalg.qr(self.W_V)
        Q_out, R_out = torch.linalg.qr(self.W_O.T)
        U, S, Vh = torch.linalg.svd(R_in @ R_out.T)
        reads, writes = (Q_in @ U).T, Vh @ Q_out.T
        return OVDecomposition(
            singular_values=S,
            reads=reads,
            writes=writes,
            source_readout=self._sources(position, reads.T).T,
            logit_readout=self._logits(writes).T,
        )

    @torch.no_grad()
    def copying(self, memory: int | str | None = None) -> Copying:
        """Eigenvalue, diagonal and rank scores of the circuit from source token to logits.

        Raises:
            InputError: fewer than two token ids are both inputs and outputs, a norm after the
                addition blocks the direct path, or the unembedding cannot be read.
        """
        limit = parse_memory(memory)
        moments = TokenMomentsCache(self._view, limit)
        scores = copying(self._view, self._view.ov(self.layer), moments)
        if scores is None:
            raise InputError(
                f"{head_name(self.layer, self.head)} has no copying score: its circuit must map "
                "at least two tokens to logits of the same tokens"
            )
        count = shared_tokens(self._view)
        logits = self._logits()[:count]
        return Copying(
            eigenvalue=float(scores.eigenvalue[self.head]),
            diagonal=float(scores.diagonal[self.head]),
            z=float(scores.z[self.head]),
            p_value=float(scores.p_value[self.head]),
            rank=own_rank(self._sources(None)[:count], logits - logits.mean(0), limit),
        )

    def _sources(
        self, position: int | None, reads: Float[Tensor, "d_model rank"] | None = None
    ) -> Float[Tensor, "d_vocab rank"]:
        """Normalized embedding of every token, projected by W_V or other directions."""
        bare = self._view.ov(self.layer).norm.bare
        tokens: Int[Tensor, " token"] = torch.arange(self._view.d_vocab, device=self.W_V.device)
        division = self.divided_by if reads is None else None
        rows = []
        for chunk in torch.split(tokens, CHUNK):
            n = at_least_single(bare(token_residual(self._view, chunk, position)))
            out = n @ (self.W_V if reads is None else reads)
            rows.append(out if division is None else division(out, n))
        return torch.cat(rows)

    def _logits(
        self, writes: Float[Tensor, "rank d_model"] | None = None
    ) -> Float[Tensor, "d_vocab_out rank"]:
        """Effect of W_O, or of other directions, on every logit, centered over tokens."""
        W = self.W_O if writes is None else writes
        logits = (W @ read_through(self._view.final_norm, self._view.W_U)).T
        return logits - logits.mean(0)


@takes(layer=Integral, head=Integral)
@torch.no_grad()
def ov_circuit(model: Any, layer: int, head: int, *, view: ModelWeights | None = None) -> OVCircuit:
    """OV circuit of one head.

    Args:
        model: any TransformerLens model.
        layer: layer of the head.
        head: index of the query head.
        view: `weights(model)`, if already computed.

    Raises:
        InputError: the model has no such head, the layer's weights cannot be read exactly, or a
            norm rescales the residual stream after the heads' output is added to it (post-norm, as
            in BERT).

    Examples:
        >>> import interp_toolkit as it
        >>> round(ov_circuit(it.load("toy:induction"), layer=1, head=0).copying().eigenvalue, 3)
        1.0
    """
    view = weights(model) if view is None else view
    w = view.ov(layer)
    if not 0 <= head < view.n_heads:
        raise InputError(f"there is no head {head}; the model has heads 0 to {view.n_heads - 1}")
    if w.residual_norm.kind is not None:
        raise InputError(
            f"{head_name(layer, head)} has no direct path to the logits: a norm rescales the "
            "residual stream after the head's output is added (post-norm, as in BERT)"
        )
    W_V, W_O = read_through(w.norm, w.W_V[head]), written_through(w.post_norm, w.W_O[head])
    value = at_least_single(w.b_V[head])
    if w.norm.b is not None:
        value = value + at_least_single(w.norm.b) @ at_least_single(w.W_V[head])
    divided_by, notes = through(w.norm, w.value_latent), _notes(view, w, layer)
    return OVCircuit(layer, head, W_V, W_O, value @ W_O, notes, view, divided_by)


def _notes(view: ModelWeights, w: OVWeights, layer: int) -> list[str]:
    notes = []
    if layer > 0:
        notes.append("sources are embeddings only: outputs of earlier layers are left out")
    if w.post_norm.kind is not None:
        notes.append("the division by the norm after attention is left out")
    if view.final_norm.kind is not None:
        notes.append("the division by the final norm is left out: logits are up to that factor")
    if view.logit_soft_cap is not None:
        notes.append("logits are taken before the soft cap")
    return notes
