"""QK circuits: attention scores from weights, and their singular vectors.

A head scores a query against a key by

    score = cap((n_q W_Q + b_Q) T (n_k W_K + b_K)^T / attn_scale) + bias

(Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", whose W_QK is the bilinear
term), with n the residual stream after the layer's norm, T the rotation between the two positions
and the bias ALiBi's. The linear part of the norm (LN's centering, `w`) and its constant `b` are
folded into W and b, see `token_scores`; what remains is a division by one number per vector, which
`score`, `terms` and `tokens` include exactly and `matrix` and `svd` leave out.

Singular vectors: `W_Q W_K^T = Q_q R_q R_k^T Q_k^T` by two thin QR decompositions; the SVD of the
small `R_q R_k^T` [d_head d_head] gives that of the whole. Each component is a direction of queries
and the direction that they match in keys. The sign of a pair is arbitrary, so both ends are shown:
tokens at the positive end on the query side attend to those at the positive end on the key side,
and negative to negative.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.circuits.weights.token_scores import TokenScores, read_through, token_residual
from interp_toolkit.errors import InputError, takes
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.models.weights.parts import Direction, LayerWeights, NormWeights, soft_capped
from interp_toolkit.models.weights.positions import Alibi, RotaryTables
from interp_toolkit.models.weights.precision import at_least_single
from interp_toolkit.models.weights.view import ModelWeights, weights
from interp_toolkit.results import head_name

if TYPE_CHECKING:
    import pandas as pd

    from interp_toolkit.models.transformer.hooks import FactoredMatrix

#: directions [d_model r] -> every token's projection on them [d_vocab r]
Readout = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class QKDecomposition(ShortRepr):
    """`W_Q W_K^T / attn_scale = query_directions diag(singular_values) key_directions^T`.

    Attributes:
        singular_values: the largest first.
        query_directions: unit directions of the normalized residual stream, one per column,
            signed so that its largest-magnitude entry is positive.
        key_directions: what each looks for in keys.
    """

    singular_values: Float[Tensor, " component"]
    query_directions: Float[Tensor, "d_model component"]
    key_directions: Float[Tensor, "d_model component"]
    _readout: Readout

    def spectrum(self) -> Float[Tensor, " component"]:
        """The share of the squared size that the first 1, 2, ... components hold."""
        squares = self.singular_values.double() ** 2
        total = squares.sum()
        return (squares.cumsum(0) / total if float(total) else torch.ones_like(squares)).float()

    @torch.no_grad()
    def top_tokens(self, k: int = 10, components: int = 5) -> pd.DataFrame:
        """The tokens at both ends of the first components, on the query and on the key side.

        Tokens are taken as `QKCircuit.tokens` takes them without positions: the normalized
        embedding, with the mean position embedding where positions are learned.

        Args:
            k: tokens per end; all of them where there are not so many.
            components: how many components, likewise.

        Returns:
            One row per token: component, side ("query" or "key"), end ("+" or "-"), rank from 0,
            token, projection.

        Raises:
            InputError: no token or no component asked for, or an embedding that the model's
                weights do not give exactly.
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
    """The SVD of `W_Q @ W_K.T` through its factors."""
    Q_query, R_query = torch.linalg.qr(W_Q)
    Q_key, R_key = torch.linalg.qr(W_K)
    U, S, Vh = torch.linalg.svd(R_query @ R_key.T)
    query, key = Q_query @ U, Q_key @ Vh.T
    largest = query.gather(0, query.abs().argmax(0, keepdim=True))
    sign = torch.where(largest < 0, -1.0, 1.0).to(query)
    return QKDecomposition(S, query * sign, key * sign, readout)


CHUNK = 4096  # tokens whose inputs are made at once


@dataclass(frozen=True, eq=False)
class QKTerms(ShortRepr):
    """A score before soft cap and ALiBi, in its four parts, which sum to it.

    Attributes:
        both: `n_q W_Q W_K^T n_k^T`: query against key.
        query: `n_q W_Q b_K^T`: the query alone; no softmax sees it.
        key: `b_Q W_K^T n_k^T`: the key alone, the same for every query but for the rotary turn.
        constant: `b_Q b_K^T`, the same for all but for the rotary turn.
    """

    both: Float[Tensor, "query key"]
    query: Float[Tensor, "query key"]
    key: Float[Tensor, "query key"]
    constant: Float[Tensor, "query key"]


@dataclass(frozen=True, eq=False)
class QKCircuit(ShortRepr):
    """One head's QK circuit; see the module and `qk_circuit`.

    Attributes:
        layer: of the head.
        head: query head (its keys may be shared with others).
        W_Q, W_K: what query and key read of the normalized residual stream, norm folded in.
        b_Q, b_K: what is added, the norm's own bias included.
        attn_scale: scores are divided by this.
        soft_cap: `soft_cap * tanh(score / soft_cap)`, if not None.
        norm: what remains of the norm in front: its division (and centering, which is also folded).
        norm_note: in words, what of the norm is not linear.
        rotary: how query and key are turned before they meet, if not None.
        alibi: what is added for distance, of this head alone, if not None.
        direction, window: which keys a query sees, as in `LayerWeights`; scores are those before
            the mask.
        distance: query position less key position, in a circuit from `at_distance`.
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

    @property
    def matrix(self) -> FactoredMatrix:
        """The bilinear form `W_Q W_K^T / attn_scale` on normalized vectors, as two factors.

        Of a rotary head without a distance: that of distance 0.
        """
        from interp_toolkit.models.transformer.hooks import FactoredMatrix

        return FactoredMatrix(self._scaled_query(), self.W_K.T)

    @torch.no_grad()
    def score(
        self,
        x_query: Float[Tensor, "query d_model"],
        x_key: Float[Tensor, "key d_model"],
        query_pos: int | Int[Tensor, " query_places"] | None = None,
        key_pos: int | Int[Tensor, " key_places"] | None = None,
    ) -> Float[Tensor, "query key"]:
        """Attention scores of residual vectors, as they enter the layer, each query with each key.

        Args:
            x_query: residual vectors at the queries.
            x_key: residual vectors at the keys.
            query_pos: where the queries stand: one position for all or one each. Only rotary and
                ALiBi heads need positions, and those not after `at_distance`.
            key_pos: where the keys stand, likewise.

        Raises:
            InputError: positions that are missing, negative, or one too many or few.
        """
        query, key = self._positions(query_pos, len(x_query)), self._positions(key_pos, len(x_key))
        q, k = self._query(x_query) + self.b_Q, self._key(x_key) + self.b_K
        scores = self._turned(q, query) @ self._turned(k, key).T / self.attn_scale
        return soft_capped(scores, self.soft_cap) + self._bias(query, key)

    @torch.no_grad()
    def terms(
        self,
        x_query: Float[Tensor, "query d_model"],
        x_key: Float[Tensor, "key d_model"],
        query_pos: int | Int[Tensor, " query_places"] | None = None,
        key_pos: int | Int[Tensor, " key_places"] | None = None,
    ) -> QKTerms:
        """The terms of a score, before soft cap and ALiBi; arguments and errors as `score`."""
        query, key = self._positions(query_pos, len(x_query)), self._positions(key_pos, len(x_key))
        q, k = self._turned(self._query(x_query), query), self._turned(self._key(x_key), key).T
        b_Q = self._turned(self.b_Q.expand(len(x_query), -1), query)
        b_K = self._turned(self.b_K.expand(len(x_key), -1), key).T
        s = self.attn_scale
        return QKTerms(q @ k / s, q @ b_K / s, b_Q @ k / s, b_Q @ b_K / s)

    @torch.no_grad()
    def tokens(self, query_pos: int | None = None, key_pos: int | None = None) -> TokenScores:
        """Scores between all tokens, the query at one position and the key at another; factored.

        Exact at layer 0. Deeper they are the direct path: the embeddings alone, without what
        earlier layers write; `exact` and `note` of the result say so.

        Args:
            query_pos: where the query stands. None takes the mean position embedding of models
                that learn positions, which is exact for no position; rotary and ALiBi heads need
                positions, or none and a circuit from `at_distance`.
            key_pos: where the key stands, likewise.

        Raises:
            InputError: positions that are missing or not there, a key that the query does not see
                (after it, or beyond its window), or an embedding that the model's
                weights do not give exactly.
        """
        query, key = self._positions(query_pos, 1), self._positions(key_pos, 1)
        if query_pos is not None and key_pos is not None:
            self._check_distance(query_pos - key_pos)
        left = self._turned(self._vocabulary(self.W_Q, query_pos) + self.b_Q, query)
        right = self._turned(self._vocabulary(self.W_K, key_pos) + self.b_K, key)
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
        """The circuit between a query and a key this many positions before it.

        The rotary turn goes into W_Q and b_Q, and ALiBi becomes `-slope * distance`; where the
        model counts ALiBi from the first position (Bloom), its own scores lie `slope * query_pos`
        higher, which no softmax sees. Without positions in attention nothing changes.

        Raises:
            InputError: a model with learned positions, whose scores depend on both positions; a
                distance that the head never looks across; a circuit at a distance already.
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
        """Singular values and directions of `matrix`, through its factors.

        Of a rotary head without a distance: those of distance 0.
        """
        return decompose(self._scaled_query(), self.W_K, self._vocabulary)

    def _scaled_query(self) -> Tensor:
        W_Q = self.W_Q / self.attn_scale
        return W_Q if self.rotary is None else W_Q @ self._relative_turn(0)

    def _relative_turn(self, distance: int) -> Tensor:
        """Rotation from query to key; in scaled variants (YaRN) it is not 1 even at distance 0."""
        assert self.rotary is not None
        d_head = self.W_Q.shape[1]
        turn = self.rotary.matrix(distance, d_head) @ self.rotary.matrix(0, d_head).T
        return turn.to(self.W_Q)

    def _query(self, x: Tensor) -> Tensor:
        return self._normalised(x) @ self.W_Q

    def _key(self, x: Tensor) -> Tensor:
        return self._normalised(x) @ self.W_K

    def _normalised(self, x: Tensor) -> Tensor:
        return self.norm(at_least_single(x.to(self.W_Q.device))).to(self.W_Q)

    def _vocabulary(
        self, W: Float[Tensor, "d_model r"], position: int | None = None
    ) -> Float[Tensor, "d_vocab r"]:
        """Every token's normalized embedding, read by these weights."""
        tokens = torch.arange(self._view.d_vocab, device=W.device)
        chunks = torch.split(tokens, CHUNK)
        residual = (token_residual(self._view, chunk, position) for chunk in chunks)
        return torch.cat([self._normalised(x) @ W for x in residual])

    def _check_distance(self, distance: int) -> None:
        """Raise InputError where no query sees a key this many positions before it."""
        if self.direction == "causal" and not 0 <= distance < (self.window or distance + 1):
            reach = "keys after it" if distance < 0 else f"{distance} positions back"
            raise InputError(f"a query of {head_name(self.layer, self.head)} does not see {reach}")

    def _positions(self, positions: int | Tensor | None, n: int) -> Int[Tensor, " n"] | None:
        """One position for each vector; None if the head does not depend on positions."""
        if positions is None:
            if self.distance is None and (self.rotary is not None or self.alibi is not None):
                raise InputError(
                    f"scores of {head_name(self.layer, self.head)} depend on positions; give "
                    "query_pos and key_pos, or take at_distance(query less key position)"
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
            notes.append("positions that were not given use the mean position embedding")
        if self.alibi is not None and self.distance is not None and not self.alibi.from_query:
            notes.append("up to a constant per query: the model counts ALiBi from position 0")
        return "; ".join(notes)


@takes(layer=Integral, head=Integral)
@torch.no_grad()
def qk_circuit(model: Any, layer: int, head: int, *, view: ModelWeights | None = None) -> QKCircuit:
    """The QK circuit of one head.

    Args:
        model: any TransformerLens model.
        layer: of the head.
        head: query head.
        view: `weights(model)`, if it is at hand.

    Raises:
        InputError: a head that is not there, or a layer whose weights cannot be given exactly.

    Examples:
        >>> import interp_toolkit as it
        >>> circuit = qk_circuit(it.load("toy:induction"), layer=1, head=0)
        >>> circuit.W_Q.shape, circuit.soft_cap
        (torch.Size([288, 96]), None)
    """
    view = weights(model) if view is None else view
    w = view.layer(layer)
    if not 0 <= head < view.n_heads:
        raise InputError(f"there is no head {head}; the model has heads 0 to {view.n_heads - 1}")
    return QKCircuit(
        layer=layer,
        head=head,
        W_Q=read_through(w.norm, w.W_Q[head]),
        W_K=read_through(w.norm, w.W_K[head]),
        b_Q=_bias_through(w.norm, w.W_Q[head], w.b_Q[head]),
        b_K=_bias_through(w.norm, w.W_K[head], w.b_K[head]),
        attn_scale=w.attn_scale,
        soft_cap=w.soft_cap,
        norm=NormWeights(w.norm.kind, eps=w.norm.eps),
        norm_note=_norm_note(w),
        rotary=w.rotary,
        alibi=None if w.alibi is None else Alibi(w.alibi.slopes[[head]], w.alibi.from_query),
        direction=w.direction,
        window=w.window,
        distance=None,
        _view=view,
    )


def _bias_through(norm: NormWeights, W: Tensor, b: Tensor) -> Tensor:
    W, b = at_least_single(W), at_least_single(b)
    return b if norm.b is None else b + at_least_single(norm.b) @ W


def _norm_note(w: LayerWeights) -> str:
    if w.norm.kind is None:
        return "no norm precedes the head: scores are bilinear in the residual stream"
    by = "standard deviation" if w.norm.kind == "LN" else "root mean square"
    return (
        f"each vector is divided by its own {by}, which is not linear: score, terms and tokens do "
        "it exactly, matrix and svd act on the divided vectors"
    )
