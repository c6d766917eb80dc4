"""Models whose weights nearly hold what `ov`, `qk`, `composition` and others look for, or do.

One head of an untrained model gets a circuit that is set token by token, beside its random weights.
`strength` is its size over theirs (Frobenius norms of the token × token matrices).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.hand_set.untrained import random_model

TOKENS, WIDTH = 24, 64
PAIRS = 24  # planted skip-bigrams

Map = Literal["own", "other", "constant", "rare"]


def token_map(seed: int, kind: Map, n: int = TOKENS) -> Tensor:
    """A token × token matrix.

    "own" is the identity, "other" maps every token to another one, "constant" every token to the
    same few; "rare" maps one token to itself and all others away from themselves, with trace 0.
    """
    rng = np.random.default_rng([seed, 3])
    matrix = np.eye(n)
    if kind == "other":
        order = rng.permutation(n)
        matrix[order] = np.eye(n)[np.roll(order, 1)]
    elif kind == "constant":
        matrix = np.tile(rng.dirichlet(np.full(n, 0.1)), (n, 1))
    elif kind == "rare":
        own = int(rng.integers(n))
        matrix *= -1 / (n - 1)
        matrix[own, own] = 1
    return torch.from_numpy(matrix).float()


@torch.no_grad()
def head_of(
    seed: int, circuit: Literal["ov", "qk"], kind: Map, strength: float = 4.0, **shape: Any
) -> Transformer:
    """An untrained one-layer model whose first head also has this circuit."""
    shape = {"n_layers": 1, "n_heads": 2, "d_head": 2 * TOKENS, "d_vocab": TOKENS} | shape
    model = random_model(seed, d_model=WIDTH, n_ctx=8, **shape)
    a, E, U = model.blocks[0].attn, model.embed.W_E, model.unembed.W_U
    if circuit == "ov":
        right, own = U, E @ a.W_V[0] @ a.W_O[0] @ U
        sides = a.W_V, a.W_O
    else:
        right, own = E.T, E @ a.W_Q[0] @ a.W_K[0].T @ E.T
        sides = a.W_Q, a.W_K
    target = token_map(seed, kind)
    target *= strength * own.norm() / target.norm()
    u, s, v = torch.linalg.svd(torch.linalg.pinv(E) @ target @ torch.linalg.pinv(right))
    first, second = u[:, :TOKENS] * s[:TOKENS].sqrt(), s[:TOKENS].sqrt()[:, None] * v[:TOKENS]
    # half of the head's dimensions stay random
    sides[0][0, :, :TOKENS] = first
    if circuit == "ov":
        sides[1][0, :TOKENS] = second
    else:
        sides[1][0, :, :TOKENS] = second.T
    return model


@torch.no_grad()
def composing(seed: int, kind: Literal["written", "read", "mute"], strength: float = 4.0) -> Any:
    """Two layers; the later head reads what L0H0 writes, what L0H0 reads, or all but that."""
    model = random_model(
        seed, n_layers=2, n_heads=2, d_model=WIDTH, d_head=8, d_vocab=TOKENS, n_ctx=8,
        normalization=("LN", None)[seed % 2],
    )  # fmt: skip
    writer, reader = model.blocks[0].attn, model.blocks[1].attn
    mode = ("W_Q", "W_K", "W_V")[seed % 3]
    to = getattr(reader, mode)
    if kind == "mute":
        basis = torch.linalg.qr(writer.W_O[0].T).Q
        to[0] -= basis @ (basis.T @ to[0])
    else:
        plan = writer.W_O[0].T if kind == "written" else getattr(writer, mode)[0]
        to[0] += strength * to[0].norm() / plan.norm() * plan
    return model


@torch.no_grad()
def bigrams(seed: int, kind: Literal["pairs", "keys", "large"], strength: float = 4.0) -> Any:
    """One head that scores some pairs of tokens, some keys from every query, or large tokens.

    Of pairs, `strength` is the score in standard deviations of the other scores.
    """
    n, rng = 64, np.random.default_rng([seed, 4])
    model = random_model(
        seed, n_layers=1, n_heads=2, d_model=128, d_head=32, d_vocab=n, n_ctx=8,
        normalization=None if kind == "large" else (None, "LN")[seed % 2],
    )  # fmt: skip
    a, E = model.blocks[0].attn, model.embed.W_E
    if kind == "large":
        E[torch.from_numpy(rng.permutation(n)[:3])] *= 1 + strength
        return model
    target = torch.zeros(n, n)
    scale = strength * float((E @ a.W_Q[0] @ a.W_K[0].T @ E.T).std())
    keys = torch.from_numpy(rng.permutation(n))
    if kind == "pairs":
        target[torch.from_numpy(rng.permutation(n))[:PAIRS], keys[:PAIRS]] = scale
    else:
        target[:, keys[:4]] = scale
    inverse = torch.linalg.pinv(E)
    u, s, v = torch.linalg.svd(inverse @ target @ inverse.T)
    rank = min(PAIRS, a.W_Q.shape[-1])
    a.W_Q[0, :, :rank] = u[:, :rank] * s[:rank].sqrt()
    a.W_K[0, :, :rank] = v[:rank].T * s[:rank].sqrt()
    return model


@torch.no_grad()
def amplifying(seed: int, strength: float) -> Transformer:
    """Heads that write `strength` times as much of what all tokens have in common."""
    model = random_model(seed, n_layers=2, n_heads=2, d_model=32, d_head=8, d_vocab=TOKENS, n_ctx=8)
    common = torch.randn(32, generator=torch.Generator().manual_seed(seed))
    common /= common.norm()
    model.embed.W_E += 0.5 * model.embed.W_E.norm(dim=1).mean() * common
    for block in model.blocks:
        block.attn.W_V[0, :, 0] = common
        block.attn.W_O[0, 0] = strength * common
    return model


@torch.no_grad()
def biased(seed: int) -> Transformer:
    """A model that adds the same vector at every position, so that all become alike."""
    model = random_model(
        seed, n_layers=1 + seed % 3, n_heads=2, d_model=32, d_head=8, d_vocab=TOKENS, n_ctx=8,
        biases=True, normalization=(None, "LN")[seed % 2],
    )  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    for block in model.blocks:
        bias = torch.randn(block.attn.b_O.shape, generator=generator)
        block.attn.b_O.copy_(bias * (0.5, 2.0, 8.0)[seed % 3])
    return model
