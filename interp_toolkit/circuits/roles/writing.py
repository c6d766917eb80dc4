"""What heads write at the asked place, in logits: direct effects through the final norm.

A head's output times the unembedding, through the final norm with its scale frozen at what it is in
the intact pass (centring and weights are linear): the direct logit attribution of Wang et al. 2023,
"Interpretability in the Wild". Logits are those before a soft cap.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.circuits.roles.asks import Asks
from interp_toolkit.circuits.roles.reading import Reading
from interp_toolkit.circuits.weights.token_scores import read_through
from interp_toolkit.models.weights.parts import NormWeights
from interp_toolkit.models.weights.precision import at_least_single
from interp_toolkit.models.weights.view import ModelWeights


class Writing:
    """Direct effects on logits.

    Args:
        view: the model's weights.
        reading: of the pass.
        asks: what is asked.
    """

    def __init__(self, view: ModelWeights, reading: Reading, asks: Asks):
        self.view, self.reading, self.asks = view, reading, asks
        ids = np.unique(np.concatenate([asks.tokens.ravel(), asks.at_hand]))
        self.ids = ids[ids < view.W_U.shape[1]]
        self.U, self.b_U = readout(view, self.ids)
        self.scale = norm_scale(view.final_norm, reading.final)

    def columns(self, tokens: Int[np.ndarray, "..."]) -> Int[Tensor, "..."]:
        """The indices of tokens among `ids`."""
        return torch.from_numpy(np.searchsorted(self.ids, tokens).clip(max=len(self.ids) - 1))

    def of_heads(
        self, layer: int, z: Float[Tensor, "ask head d_head"]
    ) -> Float[Tensor, "ask head d_model"]:
        """What heads that hold these add, over the final norm's scale."""
        W_O = at_least_single(self.view.ov(layer).W_O).cpu()
        return torch.einsum("nhd,hdm->nhm", z.to(W_O), W_O) / self.scale[:, None, None]

    def on(
        self, written: Float[Tensor, "ask head d_model"], tokens: Int[np.ndarray, " token"]
    ) -> Float[np.ndarray, "ask head token"]:
        """Effects on some tokens' logits, the same for all asks."""
        logits: np.ndarray = (written @ self.U[:, self.columns(tokens)].to(written)).numpy()
        return logits

    def on_own(
        self, written: Float[Tensor, "ask head d_model"], tokens: Int[np.ndarray, "ask token"]
    ) -> Float[np.ndarray, "ask head token"]:
        """Effects on tokens' logits, each ask's own tokens."""
        own = self.U.T[self.columns(tokens)].to(written)  # ask token d_model
        logits: np.ndarray = torch.einsum("nhm,ntm->nht", written, own).numpy()
        return logits

    def lens(self, layer: int) -> Float[np.ndarray, "ask pos"]:
        """The logit lens in front of a layer, at the asked place, on the row's own tokens."""
        stream = self.reading.ahead[layer]
        read = stream / norm_scale(self.view.final_norm, stream)[:, None]
        columns = self.columns(self.asks.tokens)
        U = self.U.T[columns].to(read)
        logits = torch.einsum("nm,npm->np", read, U) + self.b_U[columns].to(read)
        values: np.ndarray = logits.numpy()
        return values

    def difference(self) -> Float[np.ndarray, " ask"]:
        """The model's own logits: the answer's less what stands against it."""
        return self.difference_of(self.reading.final, slice(0, len(self.asks)))

    def difference_of(
        self, final: Float[Tensor, "some d_model"], at: slice
    ) -> Float[np.ndarray, " some"]:
        """The same of another stream behind the last layer, for some of the asks."""
        read = final.double() / norm_scale(self.view.final_norm, final.double())[:, None]
        columns = self.columns(self.asks.at_hand)
        logits = read @ self.U[:, columns].to(read) + self.b_U[columns].to(read)
        difference: np.ndarray = (
            logits.numpy() * _preferred(self.asks.at_hand, self.asks)[at]
        ).sum(1)
        return difference


def readout(
    view: ModelWeights, ids: Int[np.ndarray, " token"]
) -> tuple[Float[Tensor, "d_model token"], Float[Tensor, " token"]]:
    """U and b of some tokens, on the CPU: their logits are `x / scale @ U + b`, before a soft cap.

    The final norm's centring and weights are in U, its bias in b; `norm_scale` has its scale.
    """
    norm, W_U = view.final_norm, at_least_single(view.W_U[:, ids])
    constant = at_least_single(view.b_U[ids])
    if norm.b is not None:
        constant = constant + at_least_single(norm.b) @ W_U
    return read_through(norm, W_U).detach().cpu(), constant.detach().cpu()


def preference(
    logits: Float[np.ndarray, "ask some token"], tokens: Int[np.ndarray, " token"], asks: Asks
) -> Float[np.ndarray, "ask some"]:
    """The answer's logit less the wrong one's; without those, less the mean of other answers'."""
    preferences: np.ndarray = np.einsum("ast,at->as", logits, _preferred(tokens, asks))
    return preferences


def displaced_preference(
    logits: Float[np.ndarray, "ask some token"], tokens: Int[np.ndarray, " token"], asks: Asks
) -> Float[np.ndarray, "ask some"]:
    """The mean of what the same logits prefer by the other rows' answers and wrong answers.

    Of rows that share no token with this one, where there are some; else of those that ask for
    something else; NaN where all ask for the same.
    """
    weights, others = _preferred(tokens, asks), other_asks(asks)
    out = np.full(logits.shape[:2], np.nan)
    for ask in np.flatnonzero(others.any(1)):
        out[ask] = logits[ask] @ weights[others[ask]].mean(0)
    return out


def other_asks(asks: Asks) -> Bool[np.ndarray, "ask other"]:
    """For each ask those of other rows that share no token with it, where there are some.

    Else those that ask for something else; none where all ask for the same.
    """
    wrong = asks.answer if asks.wrong is None else asks.wrong
    out = np.zeros((len(asks), len(asks)), dtype=bool)
    for ask in range(len(asks)):
        pair = (asks.answer[ask], wrong[ask])
        differ = (asks.answer != pair[0]) | (wrong != pair[1])
        apart = differ & ~np.isin(asks.answer, pair) & ~np.isin(wrong, pair)
        out[ask] = apart if apart.any() else differ
    return out


def _preferred(tokens: Int[np.ndarray, " token"], asks: Asks) -> Float[np.ndarray, "ask token"]:
    """1 at the answer, and minus 1 in all at what stands against it."""
    own: np.ndarray = tokens == asks.answer[:, None]
    against: np.ndarray = ~own / (~own).sum(1, keepdims=True)
    if asks.wrong is not None:
        against = (tokens == asks.wrong[:, None]).astype(float)
    preferred: np.ndarray = own - against
    return preferred


def norm_scale(norm: NormWeights, stream: Float[Tensor, "*some d_model"]) -> Float[Tensor, "*some"]:
    """The divisor of the norm."""
    x = at_least_single(stream)
    if norm.kind is None:
        return torch.ones_like(x[..., 0])
    x = x - x.mean(-1, keepdim=True) if norm.kind == "LN" else x
    return (x.square().mean(-1) + norm.eps).sqrt()


def mean_of_others(
    values: Float[np.ndarray, "ask some token"],
    left_out: Sequence[Int[np.ndarray, " ask"]],
    tokens: Int[np.ndarray, " token"],
) -> Float[np.ndarray, "ask some"]:
    """The mean over tokens but those left out; NaN where none is left."""
    included = np.ones((len(values), len(tokens)), dtype=bool)
    for ids in left_out:
        included &= tokens != ids[:, None]
    with np.errstate(invalid="ignore"):
        mean: np.ndarray = np.einsum("ast,at->as", values, included) / included.sum(1)[:, None]
    return mean
