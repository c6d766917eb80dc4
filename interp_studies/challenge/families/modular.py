"""Two hand-set algorithms for addition modulo p, on prompts `a b =` with the sum as answer.

Number a is embedded as the points (cos w a, sin w a), w = 2 π k / p, for several frequencies k.

- Clock: one head copies a and another copies b. Neurons multiply, since xy = ((x + y)² - (x - y)²)
  / 4 and a square is approximated by a sum of ReLU pieces. This gives cos w(a + b) = cos wa cos wb
  - sin wa sin wb, and sin w(a + b). The logit of c is Σ_k cos w(a + b - c).
- Pizza: one head averages the points of a and b, which gives cos(w(a - b)/2) times the point at
  angle w(a + b)/2. Two neurons take the absolute value of its component along each angle φ.
  Weighted by cos(wc - 2φ) and summed over angles φ all around the circle, these give |cos(w(a -
  b)/2)| cos w(a + b - c) for each k.

Source: Zhong et al. 2023, "The Clock and the Pizza", arXiv 2306.17844, sections 2 and 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp_studies.challenge.plain import paired
from interp_toolkit.data import FeatureData
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.zeros import zeros

SCORE = 30.0
GAIN = 10.0
PIECES = 6  # of a square, on either side of 0, up to 2
ANGLES = 9  # of the pizza, over half a turn


def pairs_of(p: int) -> FeatureData:
    """All pairs with their sums, and for each a counterpart with another sum."""
    a, b = np.divmod(np.arange(p * p), p)

    def rows(a: np.ndarray, b: np.ndarray) -> FeatureData:
        return FeatureData(
            np.stack([a, b, np.full_like(a, p)], axis=1),
            np.zeros((p * p, 0), dtype=np.bool_),
            (),
            source=f"pairs of numbers below {p}",
            answers=(a + b) % p,
        )

    return paired(rows(a, b), [rows(np.roll(a, 2 * p + 1), np.roll(b, 2 * p + 1))])


@torch.no_grad()
def pizza(p: int, frequencies: Sequence[int]) -> Transformer:
    """The model of the pizza algorithm, which averages.

    Args:
        p: an odd modulus.
        frequencies: frequencies k, each between 1 and (p - 1) / 2.
    """
    angles = [math.pi * j / ANGLES for j in range(ANGLES)]
    n = len(frequencies)
    model = _blank(p, 2 * n + p, 2 * n * ANGLES, 2 * n)
    _embed(model, p, frequencies, 0)
    _fetch(model, 0, None, range(2 * n), range(2 * n), 3.0)
    mlp, number = model.blocks[0].mlp, torch.arange(p).double()
    for f, k in enumerate(frequencies):
        for j, angle in enumerate(angles):
            for sign, neuron in ((1, 2 * (f * ANGLES + j)), (-1, 2 * (f * ANGLES + j) + 1)):
                mlp.W_in[2 * f, neuron] = sign * math.cos(angle)
                mlp.W_in[2 * f + 1, neuron] = sign * math.sin(angle)
                told = torch.cos(2 * math.pi * k * number / p - 2 * angle)
                mlp.W_out[neuron, 2 * n : 2 * n + p] = GAIN / ANGLES * told
    model.unembed.W_U[2 * n : 2 * n + p, :p] = torch.eye(p).double()
    return model


@torch.no_grad()
def clock(p: int, frequencies: Sequence[int]) -> Transformer:
    """The model of the clock algorithm, which multiplies; arguments as in `pizza`."""
    n = len(frequencies)
    knots = [2.0 * i / PIECES for i in range(PIECES)]
    per_square = 2 * PIECES
    model = _blank(p, 6 * n + 2 + p, 8 * n * per_square, 2 * n)
    _embed(model, p, frequencies, 0)
    first, second = range(2 * n, 4 * n), range(4 * n, 6 * n)
    places = 6 * n
    model.pos_embed.W_pos[0, places] = model.pos_embed.W_pos[1, places + 1] = 1.0
    _fetch(model, 0, places, range(2 * n), first, 1.0)
    _fetch(model, 1, places + 1, range(2 * n), second, 1.0)
    logits = 6 * n + 2
    mlp, number, neuron = model.blocks[0].mlp, torch.arange(p).double(), 0
    for f, k in enumerate(frequencies):
        turn = 2 * math.pi * k * number / p
        cos_a, sin_a = first[2 * f], first[2 * f + 1]
        cos_b, sin_b = second[2 * f], second[2 * f + 1]
        products = (
            (cos_a, cos_b, turn.cos()),
            (sin_a, sin_b, -turn.cos()),
            (sin_a, cos_b, turn.sin()),
            (cos_a, sin_b, turn.sin()),
        )
        for x, y, told in products:
            for sign in (1.0, -1.0):
                for side in (1.0, -1.0):
                    for i, knot in enumerate(knots):
                        mlp.W_in[x, neuron], mlp.W_in[y, neuron] = side, side * sign
                        mlp.b_in[neuron] = -knot
                        # the chords of a square between knots h apart: first slope h, then 2 h more
                        slope = (1 if i == 0 else 2) * 2.0 / PIECES
                        mlp.W_out[neuron, logits : logits + p] = sign * slope / 4 * GAIN * told
                        neuron += 1
    model.unembed.W_U[logits : logits + p, :p] = torch.eye(p).double()
    return model


def _blank(p: int, d_model: int, d_mlp: int, d_head: int) -> Transformer:
    sizes: dict[str, Any] = {"d_model": d_model, "d_mlp": d_mlp, "d_head": d_head}
    model = zeros(
        TransformerConfig(
            n_layers=1,
            n_ctx=3,
            n_heads=3,
            d_vocab=p + 1,
            act_fn="relu",
            normalization_type=None,
            positional_embedding_type="standard",
            dtype=torch.float64,
            **sizes,
        )
    )
    model.eval()
    return model


def _embed(model: Transformer, p: int, frequencies: Sequence[int], start: int) -> None:
    number = torch.arange(p).double()
    for f, k in enumerate(frequencies):
        turn: Float[Tensor, " number"] = 2 * math.pi * k * number / p
        model.embed.W_E[:p, start + 2 * f] = turn.cos()
        model.embed.W_E[:p, start + 2 * f + 1] = turn.sin()


def _fetch(
    model: Transformer,
    head: int,
    place: int | None,
    source: range,
    target: range,
    gain: float,
) -> None:
    """Set a head to attend to one position (None: uniformly) and copy `source` to `target`."""
    attn = model.blocks[0].attn
    if place is not None:
        attn.b_Q[head, 0] = SCORE * model.cfg.attn_scale
        attn.W_K[head, place, 0] = 1.0
    for dim, (here, there) in enumerate(zip(source, target, strict=True)):
        attn.W_V[head, here, dim] = gain
        attn.W_O[head, dim, there] = 1.0
