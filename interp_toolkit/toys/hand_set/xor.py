"""Attention-only models of boolean functions of two bits, with hand-set weights.

Prompts are `(a, b, '=')` over the vocabulary {0, 1, '='}; the answer is read at '='. Each model has
one layer whose heads score `score` on the tokens they look for and 0 elsewhere, so that with
`A = exp(score)` every attention weight and every update is a closed form (see each builder).
Source: "How many attention heads do you need to do XOR?", sections "One attention head can do OR
and AND", "One attention head cannot do XOR", "Two heads can do XOR", and its footnote on MLPs.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.registry import Toy
from interp_toolkit.toys.zeros import zeros

ZERO, ONE, QUERY = 0, 1, 2  # token ids, and the axes of their one-hot embeddings
FIRST_POSITION_AXIS, SECOND_POSITION_AXIS = (
    3,
    4,
)  # axes of the two bits' positions, in a model with positions
SOURCE = "How many attention heads do you need to do XOR?"


def task(name: str, function: str) -> dict[str, Any]:
    """The task record of a function of two bits (see `models.about.record`)."""
    return {
        "name": name,
        "function": function,
        "tokens": {"0": ZERO, "1": ONE, "query": QUERY},
        "layout": ["a", "b", "query"],
    }


def xor_2head(score: float = 1.0, dtype: torch.dtype = torch.float64) -> Transformer:
    """Two heads that separate XOR.

    Head 0 attends to zeros and writes along axis 0, head 1 attends to ones and writes along axis 1.
    Along (1, 1) equal bits score 2A/(2A+1) and different bits 2A/(A+2), a gap of
    2A(A-1)/((A+2)(2A+1)): 0.307596 at score 1. The threshold of the answer is midway.
    """
    A = math.exp(score)
    equal, different = 2 * A / (2 * A + 1), 2 * A / (A + 2)
    model = two_heads((ZERO, ONE), (score, score), (ZERO, ONE), dtype)
    _read_out(model, {ZERO: 1.0, ONE: 1.0}, threshold=(equal + different) / 2)
    return model


def two_heads(
    tokens: tuple[int, int],
    scores: tuple[float, float],
    axes: tuple[int, int],
    dtype: torch.dtype = torch.float64,
) -> Transformer:
    """Two heads, each of which attends to a token and writes its attention on it along an axis.

    Args:
        tokens: the token that each head attends to.
        scores: attention scores of that token, for each head; others score 0.
        axes: the axis that each head writes to.
        dtype: dtype of the weights.
    """
    model = _empty(n_heads=2, dtype=dtype)
    for head, (token, score, axis) in enumerate(zip(tokens, scores, axes, strict=True)):
        _look_for(model, head, token, score)
        _set(model.blocks[0].attn.W_V, (head, token, 0), 1.0)
        _set(model.blocks[0].attn.W_O, (head, 0, axis), 1.0)
    return model


def xor_1head(score: float = 1.0, dtype: torch.dtype = torch.float64) -> Transformer:
    """One head on the XOR task, which no weights of a single head can separate.

    The head attends to ones and also writes the attended position, so that its four updates span a
    plane: 00 at (0, 0), 11 at (2A/(2A+1), 0), 01 and 10 at (A/(A+2), ∓(A-1)/(A+2)). The segments
    00-11 and 01-10 cross: weights (3, 2A+1)/(2A+4) on the first and (1/2, 1/2) on the second.
    """
    A = math.exp(score)
    model = _empty(n_heads=1, d_model=5, d_head=2, positions=True, dtype=dtype)
    _set(model.pos_embed.W_pos, (0, FIRST_POSITION_AXIS), 1.0)
    _set(model.pos_embed.W_pos, (1, SECOND_POSITION_AXIS), 1.0)
    _look_for(model, 0, ONE, score)
    attn = model.blocks[0].attn
    _set(attn.W_V, (0, ONE, 0), 1.0)
    _set(attn.W_V, (0, FIRST_POSITION_AXIS, 1), 1.0)
    _set(attn.W_V, (0, SECOND_POSITION_AXIS, 1), -1.0)
    _set(attn.W_O, (0, 0, ONE), 1.0)
    _set(attn.W_O, (0, 1, FIRST_POSITION_AXIS), 1.0)
    _read_out(model, {ONE: 1.0}, threshold=A / (2 * (A + 2)))  # the best: three of four inputs
    return model


def or_1head(score: float = 1.0, dtype: torch.dtype = torch.float64) -> Transformer:
    """One head that computes OR: it attends to ones and writes the attention on them.

    That is 0 without ones, A/(A+2) with one, 2A/(2A+1) with two; the threshold is between the first
    two.
    """
    A = math.exp(score)
    return _count_ones(score, threshold=A / (A + 2) / 2, dtype=dtype)


def and_1head(score: float = 1.0, dtype: torch.dtype = torch.float64) -> Transformer:
    """One head that computes AND: the head of `or_1head`, with its threshold between 01 and 11."""
    A = math.exp(score)
    return _count_ones(score, threshold=(A / (A + 2) + 2 * A / (2 * A + 1)) / 2, dtype=dtype)


def xor_1head_mlp(score: float = 1.0, dtype: torch.dtype = torch.float64) -> Transformer:
    """One head and two ReLU neurons that separate XOR: the MLP folds the line.

    With t the attention on ones (0, t1 = A/(A+2), t2 = 2A/(2A+1)), the MLP writes
    relu(t) - t2/(t2-t1) relu(t - t1) along axis 0: t1 for different bits, 0 for equal ones.
    """
    A = math.exp(score)
    t1, t2 = A / (A + 2), 2 * A / (2 * A + 1)
    model = _empty(n_heads=1, d_mlp=2, dtype=dtype)
    _find_ones(model, score)
    mlp = model.blocks[0].mlp
    _set(mlp.W_in, (ONE, slice(None)), 1.0)
    _set(mlp.b_in, (1,), -t1)
    _set(mlp.W_out, (0, ZERO), 1.0)
    _set(mlp.W_out, (1, ZERO), -t2 / (t2 - t1))
    _read_out(model, {ZERO: 1.0}, threshold=t1 / 2)
    return model


def _count_ones(score: float, threshold: float, dtype: torch.dtype) -> Transformer:
    model = _empty(n_heads=1, dtype=dtype)
    _find_ones(model, score)
    _read_out(model, {ONE: 1.0}, threshold)
    return model


def _find_ones(model: Transformer, score: float) -> None:
    """Head 0 attends to ones and writes the attention on them along axis ONE."""
    _look_for(model, 0, ONE, score)
    _set(model.blocks[0].attn.W_V, (0, ONE, 0), 1.0)
    _set(model.blocks[0].attn.W_O, (0, 0, ONE), 1.0)


def _empty(
    n_heads: int,
    d_model: int = 3,
    d_head: int = 1,
    d_mlp: int | None = None,
    positions: bool = False,
    dtype: torch.dtype = torch.float64,
) -> Transformer:
    """A one-layer model of zeros with a one-hot token embedding."""
    config = TransformerConfig(
        n_layers=1,
        d_model=d_model,
        n_ctx=3,
        d_head=d_head,
        n_heads=n_heads,
        d_vocab=3,
        d_vocab_out=2,
        attn_only=d_mlp is None,
        d_mlp=d_mlp,
        act_fn=None if d_mlp is None else "relu",
        biases=d_mlp is not None,
        normalization_type=None,
        positional_embedding_type="standard" if positions else "none",
        dtype=dtype,
    )
    model = zeros(config)
    for token in (ZERO, ONE, QUERY):
        _set(model.embed.W_E, (token, token), 1.0)
    model.eval()
    return model


def _look_for(model: Transformer, head: int, token: int, score: float) -> None:
    """Set the head's score from '=' to `score` on this token and 0 on any other."""
    attn = model.blocks[0].attn
    _set(attn.W_Q, (head, QUERY, 0), score * model.cfg.attn_scale)
    _set(attn.W_K, (head, token, 0), 1.0)


def _read_out(model: Transformer, direction: dict[int, float], threshold: float) -> None:
    """Set logit 1 to the direction's score minus the threshold (on the query's own axis)."""
    for axis, weight in direction.items():
        _set(model.unembed.W_U, (axis, 1), weight)
    _set(model.unembed.W_U, (QUERY, 1), -threshold)


@torch.no_grad()
def _set(parameter: Float[Tensor, "..."], index: tuple[Any, ...], value: float) -> None:
    parameter[index] = value


XOR_2HEAD = Toy("xor-2head", "two heads that compute XOR", xor_2head, task("xor", "0110"), SOURCE)
XOR_1HEAD = Toy(
    "xor-1head",
    "one head on the task XOR, which one head cannot compute",
    xor_1head,
    task("xor", "0110"),
    SOURCE,
)
OR_1HEAD = Toy("or-1head", "one head that computes OR", or_1head, task("or", "0111"), SOURCE)
AND_1HEAD = Toy("and-1head", "one head that computes AND", and_1head, task("and", "0001"), SOURCE)
XOR_1HEAD_MLP = Toy(
    "xor-1head-mlp",
    "one head and two neurons that compute XOR",
    xor_1head_mlp,
    task("xor", "0110"),
    SOURCE,
)
