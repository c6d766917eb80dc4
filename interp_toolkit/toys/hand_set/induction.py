"""Attention-only models with hand-set previous-token, duplicate-token and induction heads.

The residual stream has one axis for each token and each position, and axes that heads write to:
`previous` (for the previous token), `output` (read by the unembedding). A head that looks for
something scores `score` on it and 0 elsewhere, so that with `A = exp(score)` its attention is a
closed form (see each builder). Other heads have zero weights: uniform attention, no output. An
induction head reads, at each key, the output of a previous-token head (K-composition). It therefore
attends to the token after an earlier occurrence of its own token, which its OV circuit copies.
Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", and Olsson et al.
2022, "In-context Learning and Induction Heads"; rotary previous-token heads after Su et al. 2021.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from interp_toolkit.models.model import Head
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.registry import Toy
from interp_toolkit.toys.hand_set.heads import (
    ROTARY_PAIRS,
    blank,
    copy_axes,
    head_weights,
    look_back,
    look_back_by_angle,
    look_for_continuation,
    match,
)

SCORE = 20.0  # A = 5e8: the rest of the context, hundreds of tokens, gets less than 1e-6
GAIN = 10.0  # logit of the answer
SINGLE_HEAD = Head(0, 1)  # of the one-layer models
PREVIOUS_HEAD = Head(0, 1)
INDUCTION_HEAD = Head(1, 0)
DECOY_HEAD = Head(1, 1)
GQA_INDUCTION_HEAD = Head(1, 2)
SOURCE = "In-context Learning and Induction Heads (Olsson et al. 2022)"


def task(name: str, heads: Mapping[str, Sequence[Head]]) -> dict[str, Any]:
    """The task record: its name, and the heads of the circuit, by type."""
    return {
        "name": name,
        "heads": {what: [list(h) for h in heads_of_kind] for what, heads_of_kind in heads.items()},
    }


def previous_token(
    d_vocab: int = 64, n_ctx: int = 96, score: float = SCORE, dtype: torch.dtype = torch.float64
) -> Transformer:
    """One layer: head (0, 1) attends to the previous position and outputs the token there.

    From position q > 0 it gives A/(A + q) to position q - 1 and 1/(A + q) to every other position.
    """
    model, axes = blank(d_vocab, n_ctx, d_head=max(d_vocab, n_ctx), dtype=dtype)
    look_back(model, SINGLE_HEAD, axes, score)
    copy_axes(model, SINGLE_HEAD, axes.tokens, axes.output, GAIN)
    return model


def duplicate_token(
    d_vocab: int = 64, n_ctx: int = 96, score: float = SCORE, dtype: torch.dtype = torch.float64
) -> Transformer:
    """One layer: head (0, 1) attends to earlier positions with its own token and copies the token.

    The same token scores `score`, the same position -`score`/2. With m earlier occurrences they
    share mA/(mA + √A + q - m) at position q. A first occurrence attends to itself, √A/(√A + q).
    """
    model, axes = blank(d_vocab, n_ctx, d_head=d_vocab + n_ctx, dtype=dtype)
    match(model, SINGLE_HEAD, axes.tokens, axes.tokens, range(d_vocab), score)
    positions = range(d_vocab, d_vocab + n_ctx)
    match(model, SINGLE_HEAD, axes.positions, axes.positions, positions, -score / 2)
    copy_axes(model, SINGLE_HEAD, axes.tokens, axes.output, GAIN)
    return model


def induction(
    d_vocab: int = 64,
    n_ctx: int = 96,
    score: float = SCORE,
    gain: float = GAIN,
    dtype: torch.dtype = torch.float64,
) -> Transformer:
    """Two layers: previous-token head (0, 1), induction head (1, 0); absolute positions.

    The previous-token head is that of `previous_token`. Position 0 has no previous token and that
    head attends to position 0 itself, so the induction head's key there loses `score`. From
    position q > 0, with m earlier occurrences of its token, the tokens after them share
    mA/(mA + q - m + f), with f = 1 if the token is that of position 0, else 1/A, all up to a
    relative `score * n_ctx / A`. With one earlier occurrence the next token has logit `gain`, all
    others 0, so the loss there is ln(1 + (d_vocab - 1)exp(-gain)).
    """
    return _absolute_circuit(d_vocab, n_ctx, score, gain, dtype, induction_head=INDUCTION_HEAD)


def induction_gqa(
    d_vocab: int = 64,
    n_ctx: int = 96,
    score: float = SCORE,
    gain: float = GAIN,
    dtype: torch.dtype = torch.float64,
) -> Transformer:
    """`induction` with four query heads per layer on two key-value heads; induction head (1, 2).

    The other heads share their group's keys and values, but have zero queries and outputs.
    """
    return _absolute_circuit(
        d_vocab,
        n_ctx,
        score,
        gain,
        dtype,
        induction_head=GQA_INDUCTION_HEAD,
        n_heads=4,
        n_key_value_heads=2,
    )


def induction_decoy(
    d_vocab: int = 64,
    n_ctx: int = 96,
    score: float = SCORE,
    gain: float = GAIN,
    dtype: torch.dtype = torch.float64,
) -> Transformer:
    """`induction` and a decoy, head (1, 1), with the same queries and keys.

    The decoy has the induction head's attention pattern, but writes along `previous`, which
    nothing reads after layer 1: without it the logits are the same.
    """
    return _absolute_circuit(
        d_vocab, n_ctx, score, gain, dtype, induction_head=INDUCTION_HEAD, decoy=True
    )


def decoy(
    d_vocab: int = 64, n_ctx: int = 96, score: float = SCORE, dtype: torch.dtype = torch.float64
) -> Transformer:
    """The decoy (1, 1) of `induction_decoy` and its previous-token head, no induction head.

    All logits are 0, so the loss is ln(d_vocab) everywhere.
    """
    return _absolute_circuit(d_vocab, n_ctx, score, 0.0, dtype, induction_head=None, decoy=True)


def induction_rotary(
    d_vocab: int = 64,
    n_ctx: int = 96,
    score: float = SCORE,
    gain: float = GAIN,
    adjacent_pairs: bool = False,
    dtype: torch.dtype = torch.float64,
) -> Transformer:
    """Two layers: previous-token head (0, 1), induction head (1, 0); rotary positions.

    The previous-token head's query and key are biases, one angle apart: with frequencies θ_i it
    scores c Σ cos(θ_i (q - k - 1)), which is largest at distance 1, and c makes all other distances
    lower by at least `score`. Only the first dimensions of a head rotate; the induction head
    matches tokens in the others. At position 0 the previous-token head attends to itself, and
    without absolute positions this cannot be corrected as in `induction`. So the induction head
    scores `score` on keys that follow its token and -`score` on keys that *are* its token, and does
    not complete a token that follows itself. From position q, with m earlier occurrences that are
    not neighbors, the tokens after them share mA/(mA + q - 2m + (m + 1)/A), and if the token is
    that of position 0, mA/(mA + q + 1 - 2m + m/A).
    """
    model, axes = blank(
        d_vocab, n_ctx, d_head=2 * ROTARY_PAIRS + d_vocab, rotary=adjacent_pairs, dtype=dtype
    )
    look_back_by_angle(model, PREVIOUS_HEAD, score)
    copy_axes(model, PREVIOUS_HEAD, axes.tokens, axes.previous)
    still = range(2 * ROTARY_PAIRS, 2 * ROTARY_PAIRS + d_vocab)
    match(model, INDUCTION_HEAD, axes.tokens, axes.previous, still, score)
    head_weights(model, INDUCTION_HEAD, "W_K")[list(axes.tokens), list(still)] = -1.0
    copy_axes(model, INDUCTION_HEAD, axes.tokens, axes.output, gain)
    return model


def _absolute_circuit(
    d_vocab: int,
    n_ctx: int,
    score: float,
    gain: float,
    dtype: torch.dtype,
    *,
    induction_head: Head | None,
    decoy: bool = False,
    n_heads: int = 2,
    n_key_value_heads: int | None = None,
) -> Transformer:
    model, axes = blank(
        d_vocab,
        n_ctx,
        d_head=max(d_vocab + 1, n_ctx),
        n_layers=2,
        n_heads=n_heads,
        n_key_value_heads=n_key_value_heads,
        dtype=dtype,
    )
    look_back(model, PREVIOUS_HEAD, axes, score)
    copy_axes(model, PREVIOUS_HEAD, axes.tokens, axes.previous)
    if induction_head is not None:
        look_for_continuation(model, induction_head, axes, score)
        copy_axes(model, induction_head, axes.tokens, axes.output, gain)
    if decoy:
        look_for_continuation(model, DECOY_HEAD, axes, score)
        copy_axes(model, DECOY_HEAD, axes.tokens, axes.previous)
    return model


def _circuit(induction_head: Head | None, **others: Sequence[Head]) -> dict[str, Sequence[Head]]:
    circuit: dict[str, Sequence[Head]] = {"previous-token": [PREVIOUS_HEAD]}
    if induction_head is not None:
        circuit["induction"] = [induction_head]
    return {**circuit, **others}


PREVIOUS_TOKEN = Toy(
    "previous-token",
    "one head that attends to the previous token",
    previous_token,
    task("previous-token", {"previous-token": [SINGLE_HEAD]}),
    SOURCE,
)
DUPLICATE_TOKEN = Toy(
    "duplicate-token",
    "one head that attends to earlier occurrences of its token",
    duplicate_token,
    task("duplicate-token", {"duplicate-token": [SINGLE_HEAD]}),
    SOURCE,
)
INDUCTION = Toy(
    "induction",
    "the two-layer induction circuit with absolute positions",
    induction,
    task("induction", _circuit(INDUCTION_HEAD)),
    SOURCE,
)
INDUCTION_ROTARY = Toy(
    "induction-rotary",
    "the two-layer induction circuit with rotary positions",
    induction_rotary,
    task("induction", _circuit(INDUCTION_HEAD)),
    SOURCE,
)
INDUCTION_GQA = Toy(
    "induction-gqa",
    "the two-layer induction circuit with grouped-query attention",
    induction_gqa,
    task("induction", _circuit(GQA_INDUCTION_HEAD)),
    SOURCE,
)
INDUCTION_DECOY = Toy(
    "induction-decoy",
    "the two-layer induction circuit, and a second head with the induction pattern and no effect",
    induction_decoy,
    task("induction", _circuit(INDUCTION_HEAD, decoy=[DECOY_HEAD])),
    SOURCE,
)
DECOY = Toy(
    "decoy",
    "a head with an induction pattern and no effect on the logits",
    decoy,
    task("decoy", _circuit(None, decoy=[DECOY_HEAD])),
    SOURCE,
)
