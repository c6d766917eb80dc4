"""Models whose heads are set by hand, and rows of the form that indirect objects are asked in.

Rows are `0 f g 1 ... s 2` with f, g the answer and the wrong token in either order, at one of a few
places, and s the wrong one again; fillers between. The asked place holds 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.models.model import Head
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.hand_set.heads import Axes, blank, head_weights

D_VOCAB, N_POS = 24, 14
START, MIDDLE, ASK = 0, 1, 2
FILLERS = range(3, 8)
NAMES = range(8, 24)
SCORE = 20.0


def rows(n: int = 32, seed: int = 0) -> Prompts:
    rng = np.random.default_rng(seed)
    tokens = rng.choice(list(FILLERS), (n, N_POS))
    tokens[:, 0], tokens[:, -1] = START, ASK
    answers, wrong = np.empty(n, int), np.empty(n, int)
    for row in range(n):
        answer, bad = rng.choice(list(NAMES), 2, replace=False)
        places = np.sort(rng.choice(np.arange(1, 8), 2, replace=False))
        tokens[row, places] = (answer, bad) if row % 2 else (bad, answer)
        tokens[row, rng.integers(9, 12)] = bad
        answers[row], wrong[row] = answer, bad
    asked = torch.full((n, 1), N_POS - 1)
    ids = [torch.from_numpy(a)[:, None] for a in (answers, wrong)]
    return Prompts(torch.from_numpy(tokens), 0, np.zeros(n, int), "planted", ids[0], asked, ids[1])


@dataclass
class Planted:
    """A model under construction: `blank` with head sizes for one dimension a token and place."""

    model: Transformer
    axes: Axes

    @classmethod
    def of(cls, n_layers: int = 1, n_heads: int = 4, groups: int | None = None) -> Planted:
        made = blank(
            D_VOCAB,
            N_POS,
            d_head=D_VOCAB + N_POS,
            dtype=torch.float64,
            n_layers=n_layers,
            n_heads=n_heads,
            n_key_value_heads=groups,
        )
        return cls(*made)

    def attend(self, head: Head, key: torch.Tensor) -> None:
        """From a place with ASK, the head scores `key` [d_model] times what stands there."""
        scale = SCORE * self.model.cfg.attn_scale
        head_weights(self.model, head, "W_Q")[self.axes.tokens[ASK], 0] = scale
        head_weights(self.model, head, "W_K")[:, 0] = key

    def direction(self, axes: range, chosen: list[int], value: float = 1.0) -> torch.Tensor:
        key = torch.zeros(self.model.cfg.d_model, dtype=torch.float64)
        key[[axes[i] for i in chosen]] = value
        return key

    def names(self) -> torch.Tensor:
        return self.direction(self.axes.tokens, list(NAMES))

    def write(self, head: Head, gain: float, shift: int = 0, to: range | None = None) -> None:
        """The head writes, for each token it attends to, the token `shift` on among the names."""
        target = self.axes.output if to is None else to
        for token in range(D_VOCAB):
            on = token
            if shift and token in NAMES:
                on = NAMES[(token - NAMES[0] + shift) % len(NAMES)]
            head_weights(self.model, head, "W_V")[self.axes.tokens[token], token] = 1.0
            head_weights(self.model, head, "W_O")[token, target[on]] = gain


INHIBITS, MOVES, AGAINST, ONLY_ATTENDS, ONLY_WRITES = (
    Head(0, 0),
    Head(1, 0),
    Head(1, 1),
    Head(1, 2),
    Head(1, 3),
)
SUPPRESSES, SUPPRESSES_NOTHING = Head(2, 0), Head(2, 1)
GAIN = 10.0


def movers(suppress: bool = False) -> Transformer:
    """An inhibiting head, a mover, a negative one, and decoys of both sides."""
    made = Planted.of(3 if suppress else 2)
    axes = made.axes
    made.attend(INHIBITS, made.names() + made.direction(axes.positions, [9, 10, 11]))
    made.write(INHIBITS, 1.0, to=axes.previous)
    for head in (MOVES, AGAINST, ONLY_ATTENDS):
        look_for_the_other(made, head)
    made.write(MOVES, GAIN)
    made.write(AGAINST, -GAIN / 3)
    made.write(ONLY_ATTENDS, GAIN, to=axes.previous)
    made.attend(ONLY_WRITES, made.direction(axes.tokens, [ASK]))
    for name in NAMES:
        head_weights(made.model, ONLY_WRITES, "W_V")[axes.previous[name], name] = 1.0
        head_weights(made.model, ONLY_WRITES, "W_O")[name, axes.output[name]] = -GAIN / 3
    if suppress:
        for head in (SUPPRESSES, SUPPRESSES_NOTHING):
            look_for_predicted(made, head)
        made.write(SUPPRESSES, -GAIN / 5)
        made.write(SUPPRESSES_NOTHING, -GAIN / 5, to=axes.previous)
    return made.model


def noisy_movers(noise: float, seed: int) -> Transformer:
    """`movers`, with normal noise on every weight."""
    model, generator = movers(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight += noise * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return model


def look_for_the_other(made: Planted, head: Head) -> None:
    """From ASK, names score; those that the inhibiting head has written lose twice as much."""
    scale = SCORE * made.model.cfg.attn_scale
    W_Q, W_K = (head_weights(made.model, head, name) for name in ("W_Q", "W_K"))
    W_Q[made.axes.tokens[ASK], D_VOCAB] = scale
    W_K[[made.axes.tokens[n] for n in NAMES], D_VOCAB] = 1.0
    for name in NAMES:
        W_Q[made.axes.previous[name], name] = -2 * scale
        W_K[made.axes.tokens[name], name] = 1.0


def look_for_predicted(made: Planted, head: Head) -> None:
    scale = SCORE * made.model.cfg.attn_scale / GAIN
    for name in NAMES:
        head_weights(made.model, head, "W_Q")[made.axes.output[name], name] = 4 * scale
        head_weights(made.model, head, "W_K")[made.axes.tokens[name], name] = 1.0
