"""Heads planted at random places among random heads, at adjustable strength, and random models.

Every weight is drawn as an untrained model's is, but for the embeddings: tokens and positions get
random orthonormal codes of ordinary length. Into one or two heads, at places drawn at random, a
circuit is written that reads and writes along such codes. All other heads keep their random
weights and read and write the whole residual stream, the planted codes included.

Steps: draw the model (`random_model`); draw the codes by QR of a normal matrix; positions p are
points (cos θ_i p, sin θ_i p) in a code plane for each of several frequencies θ_i, so that a
rotation is a shift; write each head `planted * √s + random * √(1 - s)` in each of its four
matrices, so that attention scores and what OV writes grow in proportion to the strength s.
The score that a match adds is SCORE at strength 1, in a stream without the other heads; those add
noise to it. Heads: Olsson et al. 2022, "In-context Learning and Induction Heads".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Head
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.hand_set.heads import head_weights
from interp_toolkit.toys.hand_set.untrained import random_model

KINDS = ("previous-token", "duplicate-token", "induction", "decoy")

SCORE = 30.0  # a match's, at strength 1: noise of a fifth of it still leaves the match far ahead
GAIN = 10.0  # of the logit that a planted induction head writes
CODE_NORM = 0.8  # that of an untrained embedding: 0.8 / sqrt(d_model) in each of d_model places
FREQUENCIES = 16  # pairs of dimensions that hold the position
FREQUENCY_DRAWS = 64  # the draw whose positions are least alike is taken
ROTARY_DIM = 16
ROTARY_BASE = 100.0
WIDEST_HEAD = 64  # unless more is asked for


class PlantedHead(NamedTuple):
    """A planted head: the detector that should find it, and its place."""

    detector: str
    layer: int
    head: int


@dataclass(frozen=True)
class PlantedHeads:
    """What was planted.

    Attributes:
        kind: what was asked for; with "decoy" the head listed under "induction" attends like an
            induction head and writes nothing.
        heads: the planted heads, in the order of their layers.
        strength: 1: each attends where its name says; 0: ordinary random heads.
    """

    kind: str
    heads: tuple[PlantedHead, ...]
    strength: float


def planted(
    kind: str,
    *,
    seed: int,
    strength: float = 1.0,
    n_layers: int = 2,
    n_heads: int = 4,
    d_model: int | None = None,
    d_head: int | None = None,
    d_vocab: int = 16,
    n_ctx: int = 64,
    positions: str = "standard",
    n_key_value_heads: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Transformer:
    """A random attention-only model with planted heads; `.ground_truth` says which.

    Args:
        kind: "previous-token" or "duplicate-token": one head; "induction": a previous-token head
            and, in a later layer, the induction head that reads what it writes; "decoy": the same
            with an induction head that writes nothing.
        seed: of the places, the codes and the random weights.
        strength: from 0 (ordinary random heads) to 1, or beyond.
        n_layers: how many layers.
        n_heads: heads a layer.
        d_model: width of the residual stream; it must hold two codes a token and, with absolute
            positions, the code planes; None: that, or n_heads * d_head if greater.
        d_head: width of a head; None: room for what is matched, at most 64. With less room than
            tokens, tokens are told apart less sharply.
        d_vocab: how many tokens.
        n_ctx: how many positions.
        positions: absolute codes, or rotary positions that turn 16 of each head's dimensions.
        n_key_value_heads: fewer than n_heads for grouped-query attention.
        dtype: of the parameters.

    Raises:
        InputError: no such kind, or sizes that cannot hold it.
    """
    if positions not in ("standard", "rotary"):
        raise InputError(f'positions are "standard" or "rotary", not {positions!r}')
    absolute = positions == "standard"
    width = 2 * d_vocab + 2 * FREQUENCIES * absolute
    d_head = _head_width(kind, d_vocab, absolute) if d_head is None else d_head
    d_model = max(width, n_heads * d_head) if d_model is None else d_model
    _check(kind, strength, n_layers, d_model, d_head, width, absolute)
    model = random_model(
        seed,
        n_layers=n_layers,
        n_heads=n_heads,
        d_model=d_model,
        d_head=d_head,
        d_vocab=d_vocab,
        n_ctx=n_ctx,
        positions="standard" if absolute else "rotary",
        n_key_value_heads=n_key_value_heads,
        biases=not absolute,
        rotary_dim=ROTARY_DIM,
        rotary_base=ROTARY_BASE,
        dtype=dtype,
    )
    generator = torch.Generator().manual_seed(seed)
    model.init_weights(generator)  # the same weights again: what follows is drawn after them
    heads = _places(kind, n_layers, n_heads, generator)
    _Planter(model, strength, generator).plant(kind, heads)
    model.ground_truth = PlantedHeads(kind, heads, strength)
    return model


def _check(
    kind: str,
    strength: float,
    n_layers: int,
    d_model: int,
    d_head: int,
    width: int,
    absolute: bool,
) -> None:
    if kind not in KINDS:
        raise InputError(f"no heads of the kind {kind!r} can be planted: {', '.join(KINDS)}")
    if not 0 <= strength < math.inf:
        raise InputError(f"strength is {strength}; it goes from 0 (random heads) to 1 and beyond")
    needed = 2 if kind in ("induction", "decoy") else 1
    if n_layers < needed:
        raise InputError(f"{kind} needs {needed} layers, and the model has {n_layers}")
    if d_model < width:
        raise InputError(f"d_model is {d_model}; the codes of this vocabulary need {width}")
    if absolute and d_head < 2 * FREQUENCIES:
        raise InputError(f"d_head is {d_head}; absolute positions need {2 * FREQUENCIES}")
    if not absolute and d_head < 2 * ROTARY_DIM:
        raise InputError(f"d_head is {d_head}; rotary positions need {2 * ROTARY_DIM}")
    if not absolute and kind == "duplicate-token":
        raise InputError("a duplicate-token head is planted with absolute positions only")


def _head_width(kind: str, d_vocab: int, absolute: bool) -> int:
    """Room for the codes that a planted head matches."""
    if not absolute:
        wanted = d_vocab + ROTARY_DIM
    else:
        wanted = d_vocab + (2 * FREQUENCIES if kind == "duplicate-token" else 0)
    return min(max(wanted, 2 * FREQUENCIES), WIDEST_HEAD)


def _places(
    kind: str, n_layers: int, n_heads: int, generator: torch.Generator
) -> tuple[PlantedHead, ...]:
    """Layers at random, the later head behind the earlier; heads at random in them."""
    detectors = [kind] if kind.endswith("token") else ["previous-token", "induction"]
    layers = sorted(torch.randperm(n_layers, generator=generator)[: len(detectors)].tolist())
    heads = torch.randint(n_heads, (len(detectors),), generator=generator).tolist()
    return tuple(PlantedHead(*place) for place in zip(detectors, layers, heads, strict=True))


class _Planter:
    """Writes heads into a random model, along codes that it draws and embeds."""

    def __init__(self, model: Transformer, strength: float, generator: torch.Generator):
        self.model, self.generator = model, generator
        self.planted_share = math.sqrt(strength)
        self.random_share = math.sqrt(max(0.0, 1.0 - strength))
        cfg = model.cfg
        self.turning = cfg.rotary_dim or 0
        codes = _frame(cfg.d_model, cfg.d_model, generator)
        self.tokens, self.previous = codes[: cfg.d_vocab], codes[cfg.d_vocab : 2 * cfg.d_vocab]
        _put(model.embed.W_E, CODE_NORM * self.tokens)
        if not self.turning:
            self.places = codes[2 * cfg.d_vocab :][: 2 * FREQUENCIES]
            self.frequencies = _frequencies(cfg.n_ctx, generator)
            points = _points(self.frequencies, torch.arange(cfg.n_ctx).double())
            _put(model.pos_embed.W_pos, CODE_NORM * points @ self.places)

    def plant(self, kind: str, heads: Sequence[PlantedHead]) -> None:
        for detector, *place in heads:
            head = Head(*place)
            if detector == "previous-token":
                self._previous_token(head)
            elif detector == "duplicate-token":
                self._duplicate_token(head)
            else:
                self._induction(head, writes=kind == "induction")

    def _previous_token(self, head: Head) -> None:
        if self.turning:
            self._look_back_by_angle(head)
        else:
            back = _shift(self.frequencies)
            frame = self._still_frame(2 * FREQUENCIES)
            self._look(head, self.places.T @ back @ frame, self.places.T @ frame)
        self._write(head, CODE_NORM * self.previous)

    def _duplicate_token(self, head: Head) -> None:
        """Matches tokens, and takes off half a match at the query's own position."""
        n_tokens = len(self.tokens)
        frame = self._still_frame(n_tokens + 2 * FREQUENCIES)
        tokens, places = self.tokens.T @ frame[:n_tokens], self.places.T @ frame[n_tokens:]
        self._look(head, tokens - places / 2, tokens + places)
        self._write(head, CODE_NORM * self.previous)

    def _induction(self, head: Head, *, writes: bool) -> None:
        """Matches a token with keys that follow it, less those that are it (as position 0 is)."""
        frame = self._still_frame(len(self.tokens))
        self._look(head, self.tokens.T @ frame, (self.previous - self.tokens).T @ frame)
        unembed = self.model.unembed.W_U.detach().double()
        logits = GAIN * torch.linalg.pinv(unembed)
        self._write(head, logits if writes else torch.zeros_like(logits))

    def _look(self, head: Head, query: Tensor, key: Tensor) -> None:
        each = math.sqrt(SCORE * self.model.cfg.attn_scale) / CODE_NORM
        self._blend(head, "W_Q", each * query)
        self._blend(head, "W_K", each * key)

    def _look_back_by_angle(self, head: Head) -> None:
        cfg = self.model.cfg
        pairs = self.turning // 2
        frequencies = cfg.rotary_base ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
        distances = torch.tensor([d for d in range(cfg.n_ctx) if d != 1], dtype=torch.float64)
        best = (frequencies * (distances[:, None] - 1)).cos().sum(1).max().item()
        each = math.sqrt(SCORE * cfg.attn_scale / (pairs - best))
        query, key = torch.zeros(2, cfg.d_head, dtype=torch.float64)
        query[:pairs], query[pairs : 2 * pairs] = frequencies.cos(), -frequencies.sin()
        key[:pairs] = 1.0
        self._blend(head, "b_Q", each * query)
        self._blend(head, "b_K", each * key)

    def _write(self, head: Head, targets: Float[Tensor, "d_vocab d_model"]) -> None:
        """The value is the attended token, and each token writes its target."""
        frame = _frame(len(self.tokens), self.model.cfg.d_head, self.generator)
        self._blend(head, "W_V", self.tokens.T @ frame / CODE_NORM)
        self._blend(head, "W_O", frame.T @ targets)

    def _blend(self, head: Head, name: str, written: Float[Tensor, "..."]) -> None:
        weights = head_weights(self.model, head, name)
        _put(weights, self.planted_share * written + self.random_share * weights.double())

    def _still_frame(self, n: int) -> Float[Tensor, "n d_head"]:
        """A frame in those dimensions of a head that do not turn with the position."""
        still = self.model.cfg.d_head - self.turning
        frame = _frame(n, still, self.generator)
        return torch.cat([frame.new_zeros(n, self.turning), frame], dim=1)


def _frame(n: int, dim: int, generator: torch.Generator) -> Float[Tensor, "n dim"]:
    """Random unit vectors: orthogonal where there is room, else near to it."""
    normal = torch.randn(max(n, dim), min(n, dim), dtype=torch.float64, generator=generator)
    columns: Tensor = torch.linalg.qr(normal)[0]
    return columns.T if n <= dim else columns / columns.norm(dim=1, keepdim=True)


def _frequencies(n_ctx: int, generator: torch.Generator) -> Float[Tensor, " frequency"]:
    """One frequency from each of FREQUENCIES equal parts of 0 to π, for codes that differ."""
    jitter = torch.rand(FREQUENCY_DRAWS, FREQUENCIES, dtype=torch.float64, generator=generator)
    drawn = math.pi * (torch.arange(FREQUENCIES) + jitter) / FREQUENCIES
    distance = torch.arange(1, max(2, n_ctx), dtype=torch.float64)
    likeness = (drawn[:, :, None] * distance).cos().mean(1).abs().amax(1)
    best: Tensor = drawn[likeness.argmin()]
    return best


def _points(
    frequencies: Float[Tensor, " frequency"], positions: Float[Tensor, " pos"]
) -> Float[Tensor, "pos plane"]:
    angles = positions[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=1) / math.sqrt(len(frequencies))


def _shift(frequencies: Float[Tensor, " frequency"]) -> Float[Tensor, "plane plane"]:
    """The matrix that takes the point of a position (a row) to that of the position before."""
    cos, sin = torch.diag(frequencies.cos()), torch.diag(frequencies.sin())
    return torch.cat([torch.cat([cos, -sin], dim=1), torch.cat([sin, cos], dim=1)])


def _put(target: Tensor, values: Tensor) -> None:
    target.data.copy_(values)
