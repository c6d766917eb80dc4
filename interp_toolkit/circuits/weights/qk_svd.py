"""Singular directions of a QK circuit, with the tokens that lie along them.

`W_Q W_K^T = Q_q R_q R_k^T Q_k^T` by two thin QR decompositions; the SVD of the small `R_q R_k^T`
[d_head d_head] gives that of the whole. Each component is a direction that queries have and one
that they look for in keys. The sign of a pair is arbitrary, so both ends are read out: tokens at
the positive end on the query side attend to those at the positive end on the key side, and
negative to negative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.formatting import Brief

if TYPE_CHECKING:
    import pandas as pd

#: directions [d_model r] -> every token's projection on them [d_vocab r]
Readout = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class QKDecomposition(Brief):
    """`W_Q W_K^T / attn_scale = query_directions diag(singular_values) key_directions^T`.

    Attributes:
        singular_values: the largest first.
        query_directions: unit directions of the normalised residual stream, one a column; the
            entry of largest size is positive.
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

        Tokens are taken as `QKCircuit.tokens` takes them without positions: the normalised
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
            raise InputError(f"at least one {what} and one component must be asked for")
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
