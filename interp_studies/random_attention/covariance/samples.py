"""Samples of the tokens' covariance Φ after random mixing layers, in three ways.

- `sample_sde`: the diffusion of `recursion` in small Euler steps, with the noise √dt [L S Lᵀ +
  √(c/(mH)) (W̃ᵀΦ + ΦW̃)], Φ = LLᵀ and S = (Z + Zᵀ)/√2. A step can leave the cone of covariances;
  negative eigenvalues are then set to zero, and such steps are counted.
- `sample_network`: the network in law, at a cost independent of its width. With S ~ Wishart(n/H,
  Φ), the values of a head have the covariance S = F T Tᵀ Fᵀ, Φ = FFᵀ, with T lower triangular
  (Bartlett 1933).
- `run_layers`: the network itself. Hidden states pass through the toolkit's own `MixingAttention`
  with new random weights in every layer.

At larger τ, Φ has heavy tails (it is a product of random matrices), so sample variances are much
less certain than the number of samples suggests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp_studies.random_attention.covariance.recursion import (
    FULL,
    MixingLaw,
    check_sizes,
    check_start,
    drift,
)
from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.attention import MixingAttention
from interp_toolkit.models.transformer.config import MixingVariance, TransformerConfig

STEP = 1 / 512  # the longest step of τ

Start = Float[np.ndarray, "m m"]
Draws = Float[np.ndarray, "time draw m m"]


@dataclass(frozen=True, eq=False)
class SdeSamples:
    """Samples of the diffusion.

    Attributes:
        phi: samples at each requested time.
        repaired: fraction of steps that left the cone of covariances and were projected back.
    """

    phi: Draws
    repaired: float


def sample_sde(
    phi0: Start,
    taus: Sequence[float],
    n_draws: int,
    *,
    law: MixingLaw = FULL,
    seed: int = 0,
    longest_step: float = STEP,
) -> SdeSamples:
    """Samples of the diffusion at some times.

    Raises:
        InputError: the initial value is not a covariance, times do not increase from 0, or there
            are no samples.
    """
    check_start(phi0)
    _check_draws(n_draws)
    if not all(0 <= a <= b for a, b in zip([0.0, *taus], taus, strict=False)):
        raise InputError(f"times {list(taus)} must increase from 0")
    rng = np.random.default_rng(seed)
    phi = np.broadcast_to(phi0, (n_draws, *phi0.shape)).copy()
    root = np.linalg.cholesky(phi)
    out, now, bad, steps = [], 0.0, 0, 0
    for tau in taus:
        n_steps = math.ceil((tau - now) / longest_step - 1e-9)
        for _ in range(n_steps):
            phi = phi + _euler_step(phi, root, (tau - now) / n_steps, law, rng)
            phi, root, repaired = _repaired(phi)
            bad, steps = bad + repaired, steps + n_draws
        now = tau
        out.append(phi)
    return SdeSamples(np.stack(out), bad / max(1, steps))


def sample_network(
    phi0: Start,
    width: int,
    depths: Sequence[int],
    n_draws: int,
    *,
    law: MixingLaw = FULL,
    seed: int = 0,
) -> Draws:
    """Samples of the network's Φ after each of these depths, in law.

    Raises:
        InputError: the initial value is not a covariance, the heads do not divide the width or get
            fewer rows than there are tokens, or depths do not increase.
    """
    check_start(phi0)
    _check_draws(n_draws)
    _check_depths(width, depths, law)
    m, H = len(phi0), law.n_heads
    if width // H < m:
        raise InputError(f"{width} / {H} rows a head are fewer than the {m} tokens")
    rng = np.random.default_rng(seed)
    factor = np.broadcast_to(np.linalg.cholesky(phi0), (n_draws, m, m)).copy()
    std = math.sqrt(law.scale / (width * m))
    out, done = [], 0
    for depth in depths:
        for _ in range(depth - done):
            mixing = np.eye(m) + std * _centred(rng.standard_normal((n_draws, H, m, m)), law)
            values = factor[:, None] @ _bartlett(rng, width // H, (n_draws, H), m)
            parts = np.swapaxes(mixing, -1, -2) @ values / math.sqrt(width)
            beside = np.moveaxis(parts, 1, 2).reshape(n_draws, m, H * m)
            factor = parts[:, 0] if H == 1 else _triangular(beside)
        done = depth
        out.append(factor @ np.swapaxes(factor, -1, -2))
    return np.stack(out)


@torch.no_grad()
def run_layers(
    phi0: Start,
    width: int,
    depths: Sequence[int],
    n_draws: int,
    *,
    causal: bool = False,
    n_heads: int = 1,
    mixing: MixingVariance = "1/(n m)",
    seed: int = 0,
) -> Draws:
    """Φ of hidden states after each of these depths of the toolkit's mixing layers.

    Every layer has new random weights. There are no norms, MLPs or skip connections except mixing's
    own. W_V is normal with variance 1/n and W_O is the identity, as in the recursion of the
    theorem.

    Raises:
        InputError: the initial value is not a covariance, the width is below the number of tokens
            or not divisible by the heads, or depths do not increase.
    """
    check_start(phi0)
    _check_draws(n_draws)
    _check_depths(width, depths, MixingLaw(causal, n_heads))
    m = len(phi0)
    if width < m:
        raise InputError(f"{m} tokens do not fit a width of {width} with any covariance")
    layer = bare_mixing_layer(width, m, n_heads, causal, mixing)
    generator = torch.Generator().manual_seed(seed)
    start = torch.zeros(1, m, width, dtype=torch.float64)
    start[0, :, :m] = math.sqrt(width) * torch.from_numpy(np.linalg.cholesky(phi0))
    out = np.empty((len(depths), n_draws, m, m))
    for draw in range(n_draws):
        hidden, done = start, 0
        for index, depth in enumerate(depths):
            for _ in range(depth - done):
                layer.W_V.normal_(0, 1 / math.sqrt(width), generator=generator)
                layer.draw_mixing(generator)
                hidden = layer(hidden)
            done = depth
            out[index, draw] = _gram(hidden).numpy()
    return out


def bare_mixing_layer(
    width: int, m: int, n_heads: int, causal: bool, mixing: MixingVariance
) -> MixingAttention:
    """A layer of the toolkit that only mixes: W_O is the identity, and W_V remains to be drawn.

    Args:
        width: d_model.
        m: number of positions.
        n_heads: number of heads.
        causal: whether a position sees only itself and earlier ones.
        mixing: variance of the mixing matrices.
    """
    cfg = TransformerConfig(
        n_layers=1,
        d_model=width,
        n_ctx=m,
        n_heads=n_heads,
        d_head=width // n_heads,
        d_vocab=1,
        attn_only=True,
        biases=False,
        mixing=mixing,
        normalization_type=None,
        positional_embedding_type="none",
        attention_dir="causal" if causal else "bidirectional",
        dtype=torch.float64,
    )
    layer = MixingAttention(cfg).requires_grad_(False)
    eye = torch.eye(width, dtype=torch.float64)
    layer.W_O.copy_(eye.view(n_heads, width // n_heads, width))
    return layer


def _gram(hidden: Float[Tensor, "1 pos d_model"]) -> Float[Tensor, "pos pos"]:
    return hidden[0] @ hidden[0].T / hidden.shape[-1]


def _euler_step(
    phi: np.ndarray, root: np.ndarray, dt: float, law: MixingLaw, rng: np.random.Generator
) -> np.ndarray:
    """The change of Φ in a step of length dt."""
    m = phi.shape[-1]
    drawn = rng.standard_normal(phi.shape)
    symmetric = (drawn + np.swapaxes(drawn, -1, -2)) / math.sqrt(2)
    mixed = phi @ _centred(rng.standard_normal(phi.shape), law)
    noise = root @ symmetric @ np.swapaxes(root, -1, -2)
    noise += math.sqrt(law.scale / (m * law.n_heads)) * (mixed + np.swapaxes(mixed, -1, -2))
    change: np.ndarray = dt * drift(phi, law) + math.sqrt(dt) * noise
    return change


def _repaired(phi: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """The nearest covariances, a square root of each, and how many were not covariances."""
    try:
        return phi, np.linalg.cholesky(phi), 0
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(phi)
        kept = np.maximum(values, 0)
        near = (vectors * kept[:, None, :]) @ np.swapaxes(vectors, -1, -2)
        return near, vectors * np.sqrt(kept)[:, None, :], int((values[:, 0] < 0).sum())


def _centred(
    drawn: Float[np.ndarray, "*draw m m"], law: MixingLaw
) -> Float[np.ndarray, "*draw m m"]:
    """W̃ from W, tokens mixed along the first axis: columns centered over the visible tokens."""
    m = drawn.shape[-1]
    seen = np.triu(np.ones((m, m))) if law.causal else np.ones((m, m))
    means = (drawn * seen).sum(-2, keepdims=True) / seen.sum(0)
    centred: np.ndarray = (drawn - means) * seen
    return centred


def _bartlett(rng: np.random.Generator, freedom: int, shape: tuple[int, ...], m: int) -> np.ndarray:
    """Lower triangular T with TTᵀ ~ Wishart(freedom, I)."""
    T = np.tril(rng.standard_normal((*shape, m, m)), -1)
    for i in range(m):
        T[..., i, i] = np.sqrt(rng.chisquare(freedom - i, shape))
    return T


def _triangular(wide: Float[np.ndarray, "draw m wide"]) -> Float[np.ndarray, "draw m m"]:
    """A square F with an equal FFᵀ."""
    _, triangle = np.linalg.qr(np.swapaxes(wide, -1, -2))
    return np.swapaxes(triangle, -1, -2)


def _check_draws(n_draws: int) -> None:
    if n_draws < 1:
        raise InputError(f"{n_draws} draws requested; give 1 or more")


def _check_depths(width: int, depths: Sequence[int], law: MixingLaw) -> None:
    for depth in depths:
        check_sizes(width, depth, law)
    if list(depths) != sorted(depths):
        raise InputError(f"depths {list(depths)} must increase")
