"""Features in superposition: directions that read one, that carry an answer, and placebos.

A row is a set of features; a head adds up their vectors at the last place, more of them than axes.

- "one feature": the answer says whether feature t is on, read off along the direction r that finds
  it with least interference. What carries it: its own vector, and r. What reads others and carries
  nothing: other features' r. What reads t and carries nothing: its *dormant* vector, which the
  tokens write beside its own and nothing reads (Makelov et al. 2023, arXiv 2311.17030), and what is
  left of its own vector without its part along r. What does nothing: random directions.
- "AND of two": neurons compute the AND of t and u, and the answer is read off them; rows have u on.
- "U-AND": a layer of neurons from which the AND of any two features can be read, and which writes
  one such AND beside the features, so that their XOR can be read there, and not before.
- "no AND": a layer that is wide and computes nothing, its neurons never switching: no XOR at all.

What a direction does is worked out here from the weights, without hooks: it is asked only where it
is clear (see CARRIES, NOT, READS, READS_NOT).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp_toolkit.challenge.case import Case, KnownDirection, KnownReadout, Truth
from interp_toolkit.challenge.disguise import disguised
from interp_toolkit.challenge.hulls import apart
from interp_toolkit.data import FeatureData
from interp_toolkit.data.composites import all_composites, composite_tokens, sample_composites
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.superposition.constructions.superposed import superposed_and
from interp_toolkit.toys.superposition.constructions.uand import universal_and
from interp_toolkit.toys.superposition.layers.gate_model import own_axes
from interp_toolkit.toys.superposition.layers.layer import FeatureLayer, layer_model
from interp_toolkit.toys.zeros import zeros

VARIANTS = ("one feature", "AND of two", "U-AND", "no AND")
ROWS = 256
#: share of the way to the corrupted row's answer that exchanging a component takes the answer
CARRIES, NOT = 0.8, 0.2
#: balanced accuracy of the best threshold on the component: it reads on every row, or it does not
READS, READS_NOT = 1.0, 0.8
WORST = 0.4  # of a read-off feature, by the others that are on
DORMANT = 3  # features that have a vector which nothing reads
BASE, GAIN = 10.0, 10.0  # of the two answers' logits, and of what tells them apart
HOOKS = ("blocks.0.hook_attn_out", "blocks.0.hook_resid_mid")
BEFORE, NEURONS = "blocks.0.hook_resid_mid", "blocks.0.mlp.hook_post"
AFTER = "blocks.0.hook_resid_post"
XOR, AND = "0110", "0001"


def superposed_cases(seed: int, count: int) -> Iterator[Case]:
    """So many models, every variant in turn; two thirds ask about directions."""
    rng = np.random.default_rng([seed, 41])
    order = ("one feature", "AND of two", "one feature", "U-AND", "AND of two", "no AND")
    for number in range(count):
        yield superposed_case(order[number % len(order)], int(rng.integers(2**31)))


def superposed_case(variant: str, seed: int) -> Case:
    """One model.

    Args:
        variant: one of VARIANTS.
        seed: of everything about it.
    """
    rng = np.random.default_rng([seed, 42])
    if variant in ("U-AND", "no AND"):
        return _readout_case(variant, seed, rng)
    return _direction_case(variant, seed, rng)


@dataclass(frozen=True, eq=False)
class _Parts:
    """Of a model that says whether something is on, in the axes it was written in.

    Attributes:
        features: their vectors, in the stream.
        dormant: beside which features, vectors that nothing reads.
        readers: the direction that finds each feature.
        asked: t, and u where there is an AND.
        n_axes: of the features' own vectors, the first of the stream.
        most_on: features of a row, at most.
    """

    features: Float[Tensor, "feature axis"]
    dormant: dict[int, Float[Tensor, " axis"]]
    readers: Float[Tensor, "feature axis"]
    asked: tuple[int, ...]
    n_axes: int
    most_on: int


def _direction_case(variant: str, seed: int, rng: np.random.Generator) -> Case:
    parts = _draw_parts(rng, 2 if variant == "AND of two" else 1)
    source, written = _told_model(parts)
    model, _, turn = disguised(source, seed, dtype=torch.float64)
    data = _toggled_rows(parts, rng)
    moved = _Exchange(source, data)
    stream, after = moved.stream, moved.after
    t = parts.asked[0]
    known: list[KnownDirection] = []

    def ask(vector: Tensor, feature: int, hook: str | None = None) -> None:
        unit = vector / vector.norm()
        late = hook is not None
        here = after if late else stream
        share = moved(unit, late)
        reads = _threshold_accuracy(here @ unit, data.column(f"f{feature}"))
        clear_read = reads >= READS or reads <= READS_NOT
        clear = share >= CARRIES or share <= NOT
        if clear_read and clear:
            place = hook or HOOKS[int(rng.integers(len(HOOKS)))]
            known.append(
                KnownDirection(
                    place,
                    -1,
                    (unit @ turn).numpy(),
                    (f"f{feature}",),
                    "01",
                    bool(reads >= READS),
                    bool(share >= CARRIES),
                )
            )

    own, reader = parts.features[t], parts.readers[t]
    ask(own, t)
    ask(reader, t)
    ask(parts.dormant[t], t)
    along = reader / reader.norm()
    ask(own - (own @ along) * along, t)
    others = [f for f in range(len(parts.features)) if f not in parts.asked]
    for f in rng.permutation(others)[:3].tolist():
        ask(parts.readers[f], f)
        ask(parts.features[f], t)
    for f, vector in parts.dormant.items():
        if f not in parts.asked:
            ask(vector, f)
    for _ in range(3):
        drawn = torch.zeros(source.cfg.d_model, dtype=torch.float64)
        drawn[: parts.n_axes] = torch.from_numpy(rng.standard_normal(parts.n_axes))
        ask(drawn, t)
    ask(written, t, "blocks.0.hook_resid_post")
    return Case("superposed", variant, None, seed, model, data, Truth(directions=tuple(known)))


def _draw_parts(rng: np.random.Generator, n_asked: int) -> _Parts:
    """Random unit vectors, more than axes, of which the asked ones can be told apart."""
    while True:
        d = int(rng.integers(9, 17))
        m, most_on = int(d * rng.uniform(1.15, 1.4)), 3
        drawn = torch.from_numpy(rng.standard_normal((m, d)))
        features = torch.nn.functional.normalize(drawn, dim=1)
        readers = torch.linalg.solve(features.T @ features, features.T).T
        readers = readers / (readers * features).sum(1, keepdim=True)
        heard = (readers @ features.T).abs().fill_diagonal_(0)
        worst = heard.topk(most_on - 1, dim=1).values.sum(1)
        good = torch.nonzero(worst < WORST)[:, 0].numpy()
        if len(good) >= n_asked:
            break
    asked = tuple(int(f) for f in rng.permutation(good)[:n_asked])
    others = [int(f) for f in rng.permutation(m) if f not in asked][: DORMANT - 1]
    wide = torch.zeros(m, d + DORMANT + 2, dtype=torch.float64)
    wide[:, :d] = features
    reading = torch.zeros_like(wide)
    reading[:, :d] = readers
    dormant = {}
    for number, f in enumerate([asked[0], *others]):
        vector = torch.zeros(d + DORMANT + 2, dtype=torch.float64)
        vector[d + number] = float(rng.uniform(0.7, 2.0))
        dormant[f] = vector
    return _Parts(wide, dormant, reading, asked, d, most_on)


@torch.no_grad()
def _told_model(parts: _Parts) -> tuple[Transformer, Tensor]:
    """The model, and the direction along which it writes what the answer is read from.

    Vocabulary: features, "nothing", "read", yes, no. Axes: the features', a constant, the answer's.
    """
    m, d_model = parts.features.shape
    width = d_model - 2  # features and dormant vectors
    constant, answer = width, width + 1
    model = zeros(
        TransformerConfig(
            n_layers=1,
            d_model=d_model,
            n_ctx=parts.most_on + 1,
            d_head=width,
            n_heads=2,
            d_vocab=m + 4,
            d_mlp=8,
            act_fn="relu",
            normalization_type=None,
            positional_embedding_type="none",
            dtype=torch.float64,
        )
    ).eval()
    model.embed.W_E[:m] = parts.features
    for feature, vector in parts.dormant.items():
        model.embed.W_E[feature] += vector
    model.embed.W_E[m + 1, constant] = 1.0
    attn, mlp = model.blocks[0].attn, model.blocks[0].mlp
    attn.W_V[0, :width] = (parts.most_on + 1) * torch.eye(width, dtype=torch.float64)
    attn.W_O[0, :, :width] = torch.eye(width, dtype=torch.float64)
    # a step between 0.4 and 0.6 of the reading, or 1.4 and 1.6 of the sum of two
    reading = sum(parts.readers[f] for f in parts.asked)
    cut = len(parts.asked) - 0.5
    for n, (end, sign) in enumerate(((-1, 1.0), (1, -1.0))):
        mlp.W_in[:, n] = reading / 0.2
        mlp.b_in[n] = -(cut + end * 0.1) / 0.2
        mlp.W_out[n, answer] = sign
    yes, no = m + 2, m + 3
    model.unembed.W_U[constant, [yes, no]] = torch.tensor(
        [BASE - GAIN / 2, BASE + GAIN / 2]
    ).double()
    model.unembed.W_U[answer, yes], model.unembed.W_U[answer, no] = GAIN, -GAIN
    written = torch.zeros(d_model, dtype=torch.float64)
    written[answer] = 1.0
    return model, written


def _toggled_rows(parts: _Parts, rng: np.random.Generator) -> FeatureData:
    """Rows and counterparts that differ in feature t alone; with an AND, u is on in all."""
    m = len(parts.features)
    room = parts.most_on - len(parts.asked)
    on = sample_composites(ROWS, m, room, rng)
    on[:, list(parts.asked)] = False
    on[:, list(parts.asked[1:])] = True
    on[:, parts.asked[0]] = rng.random(ROWS) < 1 / 2
    other = on.copy()
    other[:, parts.asked[0]] ^= True
    yes, no = m + 2, m + 3
    told = on[:, parts.asked[0]]
    return FeatureData(
        composite_tokens(on, parts.most_on),
        on,
        tuple(f"f{f}" for f in range(m)),
        source=f"sets of {m} features",
        answers=np.where(told, yes, no),
        wrong=np.where(told, no, yes),
        corrupted=composite_tokens(other, parts.most_on),
    )


class _Exchange:
    """What exchanging a component does to the answers, from the weights."""

    def __init__(self, model: Transformer, data: FeatureData):
        self.model = model
        assert data.corrupted is not None
        assert data.answers is not None
        assert data.wrong is not None
        self.stream, self.there = (
            self._summed(torch.from_numpy(np.stack(list(rows))))
            for rows in (data.tokens, data.corrupted)
        )
        self.answers = torch.from_numpy(data.answers[:, 0])
        self.wrong = torch.from_numpy(data.wrong[:, 0])
        self.after, self.after_there = self._layer(self.stream), self._layer(self.there)

    @torch.no_grad()
    def __call__(self, unit: Tensor, late: bool) -> float:
        """The share of the way to the corrupted rows' answers, behind the MLP or before it."""
        here, there = (self.after, self.after_there) if late else (self.stream, self.there)
        x = here + ((there - here) @ unit)[:, None] * unit
        moved = self._told(x if late else self._layer(x))
        clean, corrupted = self._told(self.after), self._told(self.after_there)
        return float((clean - moved).mean() / (clean - corrupted).mean())

    @torch.no_grad()
    def _summed(self, tokens: Tensor) -> Tensor:
        """The stream behind attention at the last place."""
        x = self.model.embed.W_E[tokens]
        attn = self.model.blocks[0].attn
        summed: Tensor = x[:, -1] + x.mean(1) @ attn.W_V[0] @ attn.W_O[0]
        return summed

    @torch.no_grad()
    def _layer(self, x: Tensor) -> Tensor:
        mlp = self.model.blocks[0].mlp
        after: Tensor = x + (x @ mlp.W_in + mlp.b_in).relu() @ mlp.W_out
        return after

    @torch.no_grad()
    def _told(self, x: Tensor) -> Tensor:
        logits = x @ self.model.unembed.W_U
        rows = torch.arange(len(x))
        advantage: Tensor = logits[rows, self.answers] - logits[rows, self.wrong]
        return advantage


def _threshold_accuracy(values: Tensor, told: Bool[np.ndarray, " row"]) -> float:
    """Balanced accuracy of the best threshold, in the better direction."""
    order = np.argsort(values.numpy())
    sorted_told = told[order]
    positive = np.concatenate([[0], np.cumsum(sorted_told)]) / max(told.sum(), 1)
    negative = np.concatenate([[0], np.cumsum(~sorted_told)]) / max((~told).sum(), 1)
    gap = float(np.abs(positive - negative).max())
    return (1 + gap) / 2


def _readout_case(variant: str, seed: int, rng: np.random.Generator) -> Case:
    """A U-AND layer, or one whose neurons never switch; rows hold all four of a pair's values."""
    m, most_on, n_neurons = int(rng.integers(13, 16)), 4, 128
    i, j = (int(f) for f in rng.permutation(m)[:2])
    data, on = _pair_rows(m, most_on, i, j)
    crowded = variant == "U-AND" and bool(rng.random() < 1 / 2)
    if variant == "U-AND":
        built = (
            superposed_and(m, m - 2, n_neurons, 0.3, allow_empty=True, seed=seed)
            if crowded
            else universal_and(m, n_neurons, 0.35, allow_empty=True, seed=seed)
        )
        layer, readoffs = built.layer, built.readoffs([(min(i, j), max(i, j))])
    else:
        W_in = torch.from_numpy(rng.standard_normal((m, n_neurons)))
        b_in = most_on * W_in.abs().amax(0) + 1.0  # no neuron is ever off
        layer = FeatureLayer(W_in, b_in, own_axes(m))
        readoffs = torch.from_numpy(rng.standard_normal((1, n_neurons))) / n_neurons
    neurons = layer.activations(torch.from_numpy(on)).numpy()
    summed = layer.input(torch.from_numpy(on)).numpy()
    at = {BEFORE: summed, NEURONS: neurons, AFTER: np.c_[summed, neurons @ readoffs.numpy().T]}
    # features add up before the layer, and behind one that never switches; where no other is on,
    # the neurons of a U-AND are all off for 00 and for 01 alike
    # (without interference); two such pairs of rows that are alike would contradict any plane
    never = {(BEFORE, XOR)} if crowded else {(BEFORE, XOR), (NEURONS, XOR)}
    never |= {(AFTER, XOR)} if variant == "no AND" else set()
    readouts = []
    for hook, points in at.items():
        for table in (XOR, AND):
            told = np.array([table[2 * a + b] == "1" for a, b in on[:, [i, j]].astype(int)])
            readable = (hook, table) not in never
            if not readable or apart(points, told):
                readouts.append(KnownReadout(hook, -1, data.names, table, readable))
    model, _, _ = disguised(layer_model(layer, readoffs, most_on, "layer"), seed)
    name = f"{variant}, fewer axes" if crowded else variant
    return Case("superposed", name, None, seed, model, data, Truth(readouts=tuple(readouts)))


def _pair_rows(m: int, most_on: int, i: int, j: int) -> tuple[FeatureData, np.ndarray]:
    contexts = all_composites(m, most_on - 2)
    contexts = contexts[~contexts[:, [i, j]].any(1)]
    on = np.repeat(contexts, 4, axis=0)
    on[:, i], on[:, j] = np.tile([0, 0, 1, 1], len(contexts)), np.tile([0, 1, 0, 1], len(contexts))
    data = FeatureData(
        composite_tokens(on, most_on),
        on[:, [i, j]],
        ("a", "b"),
        source=f"sets of {m} features about a pair",
    )
    return data, on
