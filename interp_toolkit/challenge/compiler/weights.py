"""Programs as weights of the toolkit's transformer, exact up to exp(-SCORE).

Every expression has axes of the residual stream, one a value. A head's queries score each key's
value by its level, its OV moves the values' axes to its own; a bin is a difference of two steps,
each a difference of two ReLU neurons; a map has a neuron for each combination of its arguments'
values. BOS switches every neuron off. An expression is computed in the first part of the model
(attention or MLP) that comes after all that it reads, or, if drawn so, a layer later.

Beside the program's heads stand *decoys*, which attend as one of them and write where nothing
reads, and *idle* heads, which attend at random and write there too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch

from interp_toolkit.challenge.compiler.language import (
    Attend,
    Bins,
    Expression,
    Indices,
    Map,
    Tokens,
    in_order,
    parts_of,
)
from interp_toolkit.models.heads import Head
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.zeros import zeros

SCORE = 30.0  # of a level: the rest of a row gets less than 1e-12
GAIN = 20.0  # of a logit whose value has all the share
IDLE_SCORE = 3.0  # standard deviation of an idle head's scores
DELAYED = 0.25  # chance that an expression comes a layer later than it could
BOS = 0  # its token id; symbol s is token 1 + s


@dataclass(frozen=True, eq=False)
class Compiled:
    """A program's model.

    Attributes:
        model: its weights.
        places: where each `Attend` is, by its `id`.
        nodes: of the program, as EAP-IG names them: heads, and MLPs that hold some of it.
        decoys: heads that attend as a head of the program does, and do nothing: which one.
    """

    model: Transformer
    places: Mapping[int, Head]
    nodes: frozenset[str]
    decoys: Mapping[Head, Head]

    @property
    def heads(self) -> tuple[Head, ...]:
        """All heads of the program."""
        return tuple(self.places.values())


@torch.no_grad()
def compiled(
    output: Expression,
    answers: Sequence[int],
    *,
    n_symbols: int,
    n_places: int,
    d_vocab: int,
    causal: bool,
    beside: int = 2,
    seed: int = 0,
) -> Compiled:
    """The program as a model, in float64.

    Args:
        output: the program.
        answers: token id that each of the output's values is told by.
        n_symbols: of the rows, tokens 1 to n_symbols.
        n_places: symbols of a row, after BOS.
        d_vocab: of the tokens, answers among them.
        causal: the attention's direction.
        beside: further heads a layer.
        seed: of what stands beside, and of delays.
    """
    return _Writer(output, n_symbols, n_places, d_vocab, causal, beside, seed).written(answers)


class _Writer:
    """Gives every expression axes and a place, then writes the weights."""

    def __init__(
        self,
        output: Expression,
        n_symbols: int,
        n_places: int,
        d_vocab: int,
        causal: bool,
        beside: int,
        seed: int,
    ):
        self.rng = np.random.default_rng([seed, 0xC0])
        self.output, self.all = output, in_order(output)
        self.n_symbols, self.n_places = n_symbols, n_places
        self._schedule()
        self._lay_out()
        layers = max(1, *((stage + 1) // 2 for stage in self.stage.values()))
        by_layer = [0] * layers
        for expression in self.all:
            if isinstance(expression, Attend):
                by_layer[self.layer(expression)] += 1
        neurons = [0] * layers
        for expression in self.all:
            if isinstance(expression, Bins | Map):
                neurons[self.layer(expression)] += _neurons(expression)
        widths = [max(e.keys.size + 1, e.size) for e in self.all if isinstance(e, Attend)]
        self.model = zeros(
            TransformerConfig(
                n_layers=layers,
                d_model=self.n_axes,
                n_ctx=n_places + 1,
                d_head=max([n_symbols, *widths]),
                n_heads=max(by_layer) + beside,
                d_vocab=d_vocab,
                attn_only=not any(neurons),
                d_mlp=max(neurons) or None,
                act_fn="relu" if any(neurons) else None,
                normalization_type=None,
                positional_embedding_type="standard",
                attention_dir="causal" if causal else "bidirectional",
                dtype=torch.float64,
            )
        ).eval()

    def written(self, answers: Sequence[int]) -> Compiled:
        """All weights."""
        self._embed()
        heads, free = self._places()
        used = [0] * self.model.cfg.n_layers
        for expression in self.all:
            if isinstance(expression, Attend):
                self._write_head(expression, heads[id(expression)], self.axes[id(expression)])
            elif isinstance(expression, Bins | Map):
                layer = self.layer(expression)
                self._write_neurons(expression, layer, used[layer])
                used[layer] += _neurons(expression)
        decoys = self._write_beside(heads, free)
        for axis, answer in zip(self.axes[id(self.output)], answers, strict=True):
            self.model.unembed.W_U[axis, answer] = GAIN
        mlps = {f"m{layer}" for layer, n in enumerate(used) if n}
        mine = {f"a{h.layer}.h{h.head}" for h in heads.values()}
        return Compiled(self.model, heads, frozenset(mine | mlps), decoys)

    def layer(self, expression: Expression) -> int:
        """That computes it."""
        return (self.stage[id(expression)] - 1) // 2

    def _schedule(self) -> None:
        """Stages: 0 is the embedding, 2 l + 1 attention and 2 l + 2 the MLP of layer l."""
        self.stage: dict[int, int] = {}
        for expression in self.all:
            if isinstance(expression, Tokens | Indices):
                self.stage[id(expression)] = 0
                continue
            after = max(self.stage[id(part)] for part in parts_of(expression))
            wanted = 1 if isinstance(expression, Attend) else 0
            stage = after + 1 + ((after + 1) % 2 != wanted)
            self.stage[id(expression)] = stage + 2 * int(self.rng.random() < DELAYED)

    def _lay_out(self) -> None:
        self.axes: dict[int, range] = {}
        start = 1  # axis 0 is BOS
        for expression in self.all:
            alike = next((e for e in self.all if _same_leaf(e, expression)), expression)
            if id(alike) in self.axes:
                self.axes[id(expression)] = self.axes[id(alike)]
                continue
            self.axes[id(expression)] = range(start, start + expression.size)
            start += expression.size
        self.symbols = self._axes_of(Tokens, start)
        start = max(start, self.symbols.stop)
        self.indices = self._axes_of(Indices, start)
        start = max(start, self.indices.stop)
        self.aside = range(start, start + self.n_symbols)
        self.n_axes = self.aside.stop

    def _axes_of(self, kind: type, start: int) -> range:
        """Of the tokens or the places; some programs do not read them, decoys do."""
        for expression in self.all:
            if isinstance(expression, kind):
                return self.axes[id(expression)]
        return range(start, start + (self.n_symbols if kind is Tokens else self.n_places))

    def _embed(self) -> None:
        self.model.embed.W_E[BOS, 0] = 1.0
        for symbol, axis in enumerate(self.symbols):
            self.model.embed.W_E[1 + symbol, axis] = 1.0
        for place, axis in enumerate(self.indices):
            self.model.pos_embed.W_pos[1 + place, axis] = 1.0

    def _places(self) -> tuple[dict[int, Head], dict[int, list[Head]]]:
        """Of the program's heads, and what is free in each layer."""
        cfg = self.model.cfg
        free = {
            layer: [Head(layer, int(h)) for h in self.rng.permutation(cfg.n_heads)]
            for layer in range(cfg.n_layers)
        }
        heads = {id(e): free[self.layer(e)].pop() for e in self.all if isinstance(e, Attend)}
        return heads, free

    def _write_head(self, program: Attend, head: Head, target: range) -> None:
        attn, scale = self.model.blocks[head.layer].attn, self.model.cfg.attn_scale
        keys, queries = self.axes[id(program.keys)], self.axes[id(program.queries)]
        bos = len(keys)
        for j, query in enumerate(queries):
            for i in range(len(keys)):
                attn.W_Q[head.head, query, i] = SCORE * scale * program.level(i, j)
            attn.W_Q[head.head, query, bos] = SCORE * scale * (1 if program.counts_bos else 0.5)
        for i, key in enumerate(keys):
            attn.W_K[head.head, key, i] = 1.0
        attn.W_K[head.head, 0, bos] = 1.0
        values = [0] if program.values is None else self.axes[id(program.values)]
        for dim, (value, axis) in enumerate(zip(values, target, strict=False)):
            attn.W_V[head.head, value, dim] = 1.0
            attn.W_O[head.head, dim, axis] = 1.0

    def _write_neurons(self, program: Bins | Map, layer: int, start: int) -> None:
        mlp, target = self.model.blocks[layer].mlp, self.axes[id(program)]
        most = len(program.of) if isinstance(program, Map) else 2 / program.margin
        mlp.W_in[0, start : start + _neurons(program)] = -(most + 2.0)
        if isinstance(program, Map):
            arguments = [self.axes[id(part)] for part in program.of]
            for n, values in enumerate(product(*(range(len(a)) for a in arguments)), start):
                for value, axes in zip(values, arguments, strict=True):
                    mlp.W_in[axes[value], n] = 1.0
                mlp.b_in[n] = 1.0 - len(arguments)
                mlp.W_out[n, target[program.function(*values)]] = 1.0
            return
        mlp.b_in[start] = 1.0  # where no cut is passed, the first bin
        mlp.W_out[start, target[0]] = 1.0
        for number, cut in enumerate(program.cuts):
            for end, sign in ((-1, 1.0), (1, -1.0)):
                n = start + 1 + 2 * number + (end > 0)
                steep = 1 / program.margin  # from half a margin below the cut to half above
                for axis, weight in zip(self.axes[id(program.of)], program.weights, strict=True):
                    mlp.W_in[axis, n] = steep * weight
                mlp.b_in[n] = -steep * (cut + end * program.margin / 2)
                mlp.W_out[n, target[number + 1]] = sign
                mlp.W_out[n, target[number]] = -sign

    def _write_beside(
        self, heads: Mapping[int, Head], free: Mapping[int, list[Head]]
    ) -> dict[Head, Head]:
        """Decoys, of half of the heads that can have one, and idle heads."""
        decoys: dict[Head, Head] = {}
        for layer, left in free.items():
            here = [(key, head) for key, head in heads.items() if head.layer == layer]
            for head in left:
                if here and self.rng.random() < 1 / 2:
                    key, like = here[int(self.rng.integers(len(here)))]
                    program = next(e for e in self.all if id(e) == key)
                    assert isinstance(program, Attend)
                    self._write_head(program, head, self.aside)
                    decoys[head] = like
                else:
                    self._write_idle(head)
        return decoys

    def _write_idle(self, head: Head) -> None:
        attn, cfg = self.model.blocks[head.layer].attn, self.model.cfg
        read = [*self.symbols, *self.indices]
        factor = math.sqrt(IDLE_SCORE * cfg.attn_scale / (2 * math.sqrt(cfg.d_head)))
        for name in ("W_Q", "W_K"):
            drawn = self.rng.normal(size=(len(read), cfg.d_head))
            getattr(attn, name)[head.head, read] = factor * torch.from_numpy(drawn)
        for dim, (value, axis) in enumerate(zip(self.symbols, self.aside, strict=True)):
            attn.W_V[head.head, value, dim] = attn.W_O[head.head, dim, axis] = 1.0


def _same_leaf(one: Expression, other: Expression) -> bool:
    """Whether both are the tokens, or both the places."""
    return isinstance(one, Tokens | Indices) and type(one) is type(other)


def _neurons(program: Bins | Map) -> int:
    if isinstance(program, Bins):
        return 1 + 2 * len(program.cuts)
    return math.prod(part.size for part in program.of)
