"""QK circuits: attention scores from weights, and their singular vectors.

The attention score of a query and a key is

    score = cap((n_q W_Q + b_Q) T (n_k W_K + b_K)^T / attn_scale) + bias

Here n is the residual stream after the layer's norm, T the rotation between the two positions, and
the bias is that of ALiBi. The bilinear term is W_QK of Elhage et al. 2021, "A Mathematical
Framework for Transformer Circuits". The linear part of the norm (LN's centering, `w`) and its
constant `b` are folded into W and b (see `token_scores`). The rest of the norm divides each vector
by one number: `score`, `terms` and `tokens` include this division exactly, `matrix` and `svd` leave
it out.

Singular vectors: two thin QR decompositions give `W_Q W_K^T = Q_q R_q R_k^T Q_k^T`, so the SVD of
the small `R_q R_k^T` [d_head d_head] gives the SVD of the product. Each component pairs a query
direction with the key direction it attends to. The sign of a pair is arbitrary, so tables show both
ends: query tokens at the positive end attend to key tokens at the positive end, and query tokens at
the negative end to key tokens at the negative end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.circuits.weights.token_scores import (
    TokenScores,
    read_through,
    through,
    token_residual,
)
from interp_toolkit.errors import InputError, takes
from interp_toolkit.formatting import ShortRepr, listed
from interp_toolkit.models.weights.parts import (
    Direction,
    Division,
    LayerWeights,
    NormWeights,
    soft_capped,
)
from interp_toolkit.models.weights.positions import Alibi, RotaryTables
from interp_toolkit.models.weights.precision import at_least_single
from interp_toolkit.models.weights.view import ModelWeights, weights
from interp_toolkit.results import head_name

if TYPE_CHECKING:
    import pandas as pd

    from interp_toolkit.models.transformer.hooks import FactoredMatrix

#: directions [d_model r] -> projections of every token [d_vocab r]
Readout = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class QKDecomposition(ShortRepr):
    """SVD `W_Q W_K^T / attn_scale = query_directions diag(singular_values) key_directions^T`.

    Attributes:
        singular_values: in descending order.
        query_directions: unit directions in the normalized residual stream, one per column. The
            entry of largest absolute value is positive.
        key_directions: the key direction that each query direction attends to, one per column.
    """

    singular_values: Float[Tensor, " component"]
    query_directions: Float[Tensor, "d_model component"]
    key_directions: Float[Tensor, "d_model component"]
    _readout: Readout

    def spectrum(self) -> Float[Tensor, " component"]:
        """Cumulative fraction of the squared Frobenius norm in the first 1, 2, ... components."""
        squares = self.singular_values.double() ** 2
        total = squares.sum()
        return (squares.cumsum(0) / total if float(total) else torch.ones_like(squares)).float()

    @torch.no_grad()
    def top_tokens(self, k: int = 10, components: int = 5) -> pd.DataFrame:
        """Tokens with the largest projections of either sign, on the query and on the key side.

        Each token enters as its normalized embedding, with the mean position embedding if
        positions are learned, as in `QKCircuit.tokens` without positions.

        Args:
            k: number of tokens per end, at most all.
            components: number of components, at most all.

        Returns:
            One row per token: component, side ("query" or "key"), end ("+" or "-"), rank from 0,
            token, projection.

        Raises:
            InputError: `k` or `components` is below 1, or the embedding cannot be read exactly.
        """
        return self._ends(self._readout, "token", k, components)

    def _ends(self, readout: Readout, what: str, k: int, components: int) -> pd.DataFrame:
        import pandas as pd

        if k < 1 or components < 1:
            raise InputError(f"at least one {what} and one component are needed")
        components = min(components, len(self.singular_values))
        sides = {"query": self.query_directions, "key": self.key_directions}
        read = {side: readout(U[:, :components]) for side, U in sides.items()}
        rows = []
        for component in range(components):
            for side, projections in read.items():
                along = projections[:, component]
                for end, sign in (("+", 1), ("-", -1)):
                    ids = (sign * along).topk(min(k, len(along))).indices.tolist()
                    rows += [
                        (component, side, end, rank, item, float(along[item]))
                        for rank, item in enumerate(ids)
                    ]
        columns = ["component", "side", "end", "rank", what, "projection"]
        return pd.DataFrame(rows, columns=columns)


def decompose(
    W_Q: Float[Tensor, "d_model d_head"], W_K: Float[Tensor, "d_model d_head"], readout: Readout
) -> QKDecomposition:
    """SVD of `W_Q @ W_K.T`, computed from the factors."""
    Q_query, R_query = torch.linalg.qr(W_Q)
    Q_key, R_key = torch.linalg.qr(W_K)
    U, S, Vh = torch.linalg.svd(R_query @ R_key.T)
    query, key = Q_query @ U, Q_key @ Vh.T
    largest = query.gather(0, query.abs().argmax(0, keepdim=True))
    sign = torch.where(largest < 0, -1.0, 1.0).to(query)
    return QKDecomposition(S, query * sign, key * sign, readout)


CHUNK = 4096  # tokens per batch of residual vectors


@dataclass(frozen=True, eq=False)
class QKTerms(ShortRepr):
    """Four terms of a score, which sum to the score before soft cap and ALiBi.

    All are divided by `attn_scale`.

    Attributes:
        both: `n_q W_Q W_K^T n_k^T`, the bilinear term of query and key.
        query: `n_q W_Q b_K^T`, the term of the query alone. Without rotation, softmax cancels it.
        key: `b_Q W_K^T n_k^T`, the term of the key alone. Without rotation, it is the same for all
            queries.
        constant: `b_Q b_K^T`, the term of the biases. Without rotation, it is the same for all
            pairs.
    """

    both: Float[Tensor, "query key"]
    query: Float[Tensor, "query key"]
    key: Float[Tensor, "query key"]
    constant: Float[Tensor, "query key"]


@dataclass(frozen=True, eq=False)
class QKCircuit(ShortRepr):
    """QK circuit of one head; see the module and `qk_circuit`.

    Attributes:
        layer: layer of the head.
        head: index of the query head (with grouped-query attention, heads share keys).
        W_Q, W_K: query and key weights, with the linear part of the norm folded in, and the gains
            of norms of queries and keys (Qwen 3, OLMo 2).
        b_Q, b_K: query and key biases, with the norm's bias folded in.
        attn_scale: divisor of the scores.
        soft_cap: if not None, scores become `soft_cap * tanh(score / soft_cap)`.
        norm: the norm before attention without its weights: its division and its centering, which
            is also folded into the weights.
        norm_note: description of the norm's nonlinear part.
        rotary: rotary embedding of queries and keys, if any.
        alibi: ALiBi bias of this head, if any.
        direction, window: attention mask, as in `LayerWeights`; scores are those before the mask.
        distance: query position minus key position, in a circuit from `at_distance`.
        divided_by: what queries and keys are divided by, where they are normalized or computed from
            a normalized latent, else None; `matrix` and `svd` leave it out.
    """

    layer: int
    head: int
    W_Q: Float[Tensor, "d_model d_head"]
    W_K: Float[Tensor, "d_model d_head"]
    b_Q: Float[Tensor, " d_head"]
    b_K: Float[Tensor, " d_head"]
    attn_scale: float
    soft_cap: float | None
    norm: NormWeights
    norm_note: str
    rotary: RotaryTables | None
    alibi: Alibi | None
    direction: Direction
    window: int | None
    distance: int | None
    _view: ModelWeights = field(repr=False)
    divided_by: tuple[Division | None, Division | None] = (None, None)

    @property
    def matrix(self) -> FactoredMatrix:
        """Bilinear form `W_Q W_K^T / attn_scale` on normalized vectors, as two factors.

        Scales of norms of queries and keys are left out.

        For a rotary head without a distance, the form is that of distance 0.
        """
        from interp_toolkit.models.transformer.hooks import FactoredMatrix

        return FactoredMatrix(self._scaled_query(), self.W_K.T)

    @torch.no_grad()
    def score(
        self,
        x_query: Float[Tensor, "query d_model"],
        x_key: Float[Tensor, "key d_model"],
        query_pos: int | Int[Tensor, " query_positions"] | None = None,
        key_pos: int | Int[Tensor, " key_positions"] | None = None,
    ) -> Float[Tensor, "query key"]:
        """Attention scores of each query with each key, from residual vectors entering the layer.

        Args:
            x_query: residual vectors of the queries, before the norm.
            x_key: residual vectors of the keys, before the norm.
            query_pos: positions of the queries: one for all, or one each. Required for rotary and
                ALiBi heads, unless the circuit comes from `at_distance`.
            key_pos: positions of the keys, likewise.

        Raises:
            InputError: positions are missing, negative, wrong in number, or passed to a circuit
                from `at_distance`.
        """
        query, key = self._positions(query_pos, len(x_query)), self._positions(key_pos, len(x_key))
        q = self._through(x_query, self.W_Q, self.b_Q, self.divided_by[0])
        k = self._through(x_key, self.W_K, self.b_K, self.divided_by[1])
        scores = self._turned(q, query) @ self._turned(k, key).T / self.attn_scale
        return soft_capped(scores, self.soft_cap) + self._bias(query, key)

    @torch.no_grad()
    def terms(
        self,
        x_query: Float[Tensor, "query d_model"],
        x_key: Float[Tensor, "key d_model"],
        query_pos: int | Int[Tensor, " query_positions"] | None = None,
        key_pos: int | Int[Tensor, " key_positions"] | None = None,
    ) -> QKTerms:
        """Terms of a score before soft cap and ALiBi; arguments and errors as in `score`."""
        query, key = self._positions(query_pos, len(x_query)), self._positions(key_pos, len(x_key))
        q, k, b_Q, b_K = (
            self._turned(self._through(x, W, b, division), at)
            for x, W, b, division, at in (
                (x_query, self.W_Q, None, self.divided_by[0], query),
                (x_key, self.W_K, None, self.divided_by[1], key),
                (x_query, None, self.b_Q, self.divided_by[0], query),
                (x_key, None, self.b_K, self.divided_by[1], key),
            )
        )
        k, b_K = k.T, b_K.T
        s = self.attn_scale
        return QKTerms(q @ k / s, q @ b_K / s, b_Q @ k / s, b_Q @ b_K / s)

    @torch.no_grad()
    def tokens(self, query_pos: int | None = None, key_pos: int | None = None) -> TokenScores:
        """Scores between all pairs of tokens at one query and one key position, as factors.

        Scores are exact at layer 0. At deeper layers they cover the direct path from the
        embeddings, without outputs of earlier layers. The result's `exact` and `note` record this.

        Args:
            query_pos: position of the query. None takes the mean of learned position embeddings,
                which is exact for no position. Rotary and ALiBi heads require positions, unless
                the circuit comes from `at_distance`.
            key_pos: position of the key, likewise.

        Raises:
            InputError: positions are missing or do not exist, the mask or window hides the key
                from the query, or the embedding cannot be read exactly.
        """
        query, key = self._positions(query_pos, 1), self._positions(key_pos, 1)
        if query_pos is not None and key_pos is not None:
            self._check_distance(query_pos - key_pos)
        left, right = (
            self._turned(self._vocabulary(W, position, b, division), at)
            for W, b, division, position, at in (
                (self.W_Q, self.b_Q, self.divided_by[0], query_pos, query),
                (self.W_K, self.b_K, self.divided_by[1], key_pos, key),
            )
        )
        note = self._token_note(query_pos, key_pos)
        return TokenScores(
            left / self.attn_scale,
            right,
            soft_cap=self.soft_cap,
            offset=float(self._bias(query, key)),
            exact=not note,
            note=note,
        )

    @torch.no_grad()
    def at_distance(self, distance: int) -> QKCircuit:
        """Circuit between a query and a key at a fixed distance.

        The rotation is folded into W_Q and b_Q, and ALiBi becomes `-slope * distance`. If the model
        counts ALiBi from the first position (Bloom), the model's scores are `slope * query_pos`
        higher, which no softmax sees. Heads without positional terms are unchanged.

        Args:
            distance: query position minus key position.

        Raises:
            InputError: the model learns absolute positions, so that scores depend on both
                positions; the mask or window excludes the distance; or the circuit already has a
                distance.
        """
        if self._view.W_pos is not None:
            raise InputError(
                "this model learns absolute positions, so distance alone does not determine "
                "scores; give both: tokens(query_pos, key_pos)"
            )
        if self.distance is not None:
            raise InputError(f"this circuit already has a distance ({self.distance})")
        self._check_distance(distance)
        W_Q, b_Q = self.W_Q, self.b_Q
        if self.rotary is not None:
            turn = self._relative_turn(distance)
            W_Q, b_Q = W_Q @ turn, b_Q @ turn
        return dataclasses.replace(self, W_Q=W_Q, b_Q=b_Q, rotary=None, distance=distance)

    @torch.no_grad()
    def svd(self) -> QKDecomposition:
        """Singular value decomposition of `matrix`, computed from its factors.

        For a rotary head without a distance, the decomposition is that of distance 0.
        """
        return decompose(self._scaled_query(), self.W_K, self._vocabulary)

    def _scaled_query(self) -> Tensor:
        W_Q = self.W_Q / self.attn_scale
        return W_Q if self.rotary is None else W_Q @ self._relative_turn(0)

    def _relative_turn(self, distance: int) -> Tensor:
        """Rotation from query to key; scaled variants (YaRN) differ from 1 even at distance 0."""
        assert self.rotary is not None
        d_head = self.W_Q.shape[1]
        turn = self.rotary.matrix(distance, d_head) @ self.rotary.matrix(0, d_head).T
        return turn.to(self.W_Q)

    def _through(
        self, x: Tensor, W: Tensor | None, b: Tensor | None, division: Division | None
    ) -> Tensor:
        """Queries or keys of residual vectors; without the weights, or the bias, where None."""
        n = self._normalized(x)
        out = n.new_zeros(1) if W is None else n @ W
        out = out if b is None else out + b.expand(len(n), -1)
        return out if division is None else division(out.expand(len(n), -1), n)

    def _normalized(self, x: Tensor) -> Tensor:
        return self.norm(at_least_single(x.to(self.W_Q.device))).to(self.W_Q)

    def _vocabulary(
        self,
        W: Float[Tensor, "d_model r"],
        position: int | None = None,
        b: Float[Tensor, " r"] | None = None,
        division: Division | None = None,
    ) -> Float[Tensor, "d_vocab r"]:
        """Normalized embeddings of every token, times these weights, as in `_through`."""
        tokens = torch.arange(self._view.d_vocab, device=W.device)
        chunks = torch.split(tokens, CHUNK)
        residual = (token_residual(self._view, chunk, position) for chunk in chunks)
        return torch.cat([self._through(x, W, b, division) for x in residual])

    def _check_distance(self, distance: int) -> None:
        """Raise InputError if the mask or window hides keys at this distance."""
        if self.direction == "causal" and not 0 <= distance < (self.window or distance + 1):
            reach = "keys after it" if distance < 0 else f"{distance} positions back"
            raise InputError(f"a query of {head_name(self.layer, self.head)} does not see {reach}")

    def _positions(self, positions: int | Tensor | None, n: int) -> Int[Tensor, " n"] | None:
        """Positions of `n` vectors; None if scores do not depend on positions.

        Raises:
            InputError: positions are missing, superfluous, negative, or wrong in number.
        """
        if positions is None:
            if self.distance is None and (self.rotary is not None or self.alibi is not None):
                raise InputError(
                    f"scores of {head_name(self.layer, self.head)} depend on positions; give "
                    "query_pos and key_pos, or use at_distance(query position - key position)"
                )
            return None
        if self.distance is not None:
            raise InputError(
                f"this circuit has a fixed distance ({self.distance}); give no positions"
            )
        position_tensor = torch.as_tensor(positions, device=self.W_Q.device)
        if position_tensor.ndim and position_tensor.shape != (n,):
            raise InputError(f"there are {n} vectors and {position_tensor.numel()} positions")
        position_tensor = position_tensor.expand(n)
        if len(position_tensor) and int(position_tensor.min()) < 0:
            raise InputError(f"there is no position {int(position_tensor.min())}; the first is 0")
        return position_tensor

    def _turned(self, x: Tensor, positions: Tensor | None) -> Tensor:
        if self.rotary is None or positions is None:
            return x
        return self.rotary.turn(x, positions.expand(len(x)))

    def _bias(self, query: Tensor | None, key: Tensor | None) -> Tensor:
        zero = self.W_Q.new_zeros(1, 1)
        if self.alibi is None:
            return zero
        if self.distance is not None:
            back = max(self.distance, 0) if self.alibi.from_query else self.distance
            return zero - float(self.alibi.slopes) * back
        assert query is not None
        assert key is not None
        return self.alibi.bias(query, key)[0].to(zero)

    def _token_note(self, query_pos: int | None, key_pos: int | None) -> str:
        notes = []
        if self.layer > 0:
            notes.append(
                "direct path only: outputs of earlier layers are left out, and norms are those "
                "of the embedding"
            )
        if self._view.W_pos is not None and None in (query_pos, key_pos):
            notes.append("unspecified positions use the mean position embedding")
        if self.alibi is not None and self.distance is not None and not self.alibi.from_query:
            notes.append("up to a constant per query: the model counts ALiBi from position 0")
        return "; ".join(notes)


@takes(layer=Integral, head=Integral)
@torch.no_grad()
def qk_circuit(model: Any, layer: int, head: int, *, view: ModelWeights | None = None) -> QKCircuit:
    """QK circuit of one head.

    Args:
        model: any TransformerLens model.
        layer: layer of the head.
        head: index of the query head.
        view: `weights(model)`, if already computed.

    Raises:
        InputError: the model has no such head, or the layer's weights cannot be read exactly.

    Examples:
        >>> import interp_toolkit as it
        >>> circuit = qk_circuit(it.load("toy:induction"), layer=1, head=0)
        >>> circuit.W_Q.shape, circuit.soft_cap
        (torch.Size([288, 96]), None)
    """
    view = weights(model) if view is None else view
    raw = view.layer(layer)
    if not 0 <= head < view.n_heads:
        raise InputError(f"there is no head {head}; the model has heads 0 to {view.n_heads - 1}")
    w = raw.folded()
    return QKCircuit(
        layer=layer,
        head=head,
        W_Q=read_through(w.norm, w.W_Q[head]),
        W_K=read_through(w.norm, w.W_K[head]),
        b_Q=_bias_through(w.norm, w.W_Q[head], w.b_Q[head]),
        b_K=_bias_through(w.norm, w.W_K[head], w.b_K[head]),
        attn_scale=w.attn_scale,
        soft_cap=w.soft_cap,
        norm=w.norm.bare,
        norm_note=_norm_note(raw),
        rotary=w.rotary,
        alibi=None if w.alibi is None else Alibi(w.alibi.slopes[[head]], w.alibi.from_query),
        direction=w.direction,
        window=w.window,
        distance=None,
        _view=view,
        divided_by=(
            _division(raw, raw.q_norm, raw.W_Q, raw.b_Q, head) or through(raw.norm, raw.q_latent),
            _division(raw, raw.k_norm, raw.W_K, raw.b_K, head) or through(raw.norm, raw.kv_latent),
        ),
    )


def _division(
    w: LayerWeights, norm: NormWeights, W: Tensor, b: Tensor, head: int
) -> Division | None:
    """The division of one head's queries or keys; None where they are not normalized."""
    if norm.kind is None:
        return None
    joint = norm.w is not None and len(norm.w) > W.shape[-1]
    heads = slice(None) if joint else slice(head, head + 1)
    W, b = W[heads], b[heads]
    biases = torch.cat([_bias_through(w.norm, *pair) for pair in zip(W, b, strict=True)])
    return Division(read_through(w.norm, W).movedim(0, 1).flatten(1), norm.bare, b=biases)


def folded_note(view: ModelWeights, layers: Collection[int]) -> list[str]:
    """What is left out where queries and keys are normalized."""
    read = {n: view.layer(n) for n in layers}
    normed = [n for n, w in read.items() if w.q_norm.kind or w.k_norm.kind]
    latent = [n for n, w in read.items() if w.kv_latent is not None]
    notes = []
    if normed:
        notes.append(
            f"norms of queries and keys in {_which(normed, view)}: their weights are folded in, "
            "and their division, one positive number for each query and each key, is left out"
        )
    if latent:
        notes.append(
            f"norms of latents in {_which(latent, view)}: their weights are folded in; of their "
            "division, one positive number for each query, each value and the unrotated part of "
            "each key, the size for a residual vector in a random direction is taken"
        )
    return notes


def _which(layers: Sequence[int], view: ModelWeights) -> str:
    if len(layers) == view.n_layers:
        return "every layer"
    return f"layers {listed([str(n) for n in layers])}"


def _bias_through(norm: NormWeights, W: Tensor, b: Tensor) -> Tensor:
    W, b = at_least_single(W), at_least_single(b)
    return b if norm.b is None else b + at_least_single(norm.b) @ W


def _norm_note(w: LayerWeights) -> str:
    inside = w.q_norm.kind or w.k_norm.kind or w.kv_latent
    if w.norm.kind is None and not inside:
        return "no norm precedes the head: scores are bilinear in the residual stream"
    if w.norm.kind is None:
        return (
            "queries and keys are divided by norms of their own or of their latents: score, terms "
            "and tokens apply the division, matrix and svd leave it out"
        )
    by = "standard deviation" if w.norm.kind == "LN" else "root mean square"
    return (
        f"each vector is divided by its own {by}, which is not linear: score, terms and tokens "
        "apply the division, matrix and svd act on divided vectors"
        + (" and leave out the norms of queries, keys or their latents" if inside else "")
    )
