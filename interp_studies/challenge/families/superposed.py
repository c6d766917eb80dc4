"""Features in superposition: directions that read a feature, carry it, or do neither.

A prompt is a set of features. One head sums their vectors at the last position; there are more
features than dimensions.

- "one feature": the answer is whether feature t is on, read along the direction r with least
  interference. Two directions carry the answer: t's own vector, and r. Other features' reading
  directions read these features and carry nothing. Two directions read t and carry nothing: its
  *disconnected* vector, which the tokens write in addition and nothing reads, and t's own vector
  without its component along r. Random directions do neither.
- "AND of two": neurons compute the AND of t and u, and the answer is read from them; u is on in all
  prompts.
- "illusion": the answer does not pass through the neurons. One neuron follows t and is not read
  (*disconnected*); another is read and does not vary (*dormant*). Exchanging a sum of both moves
  the answers, although they do not depend on it (Makelov, Lange and Nanda 2023, "Is This the
  Subspace You Are Looking for?", arXiv 2311.17030).
- "U-AND": a layer of neurons from which the AND of any two features can be read. It writes one AND
  to the residual stream, so that the XOR of these features is linearly readable after the layer and
  not before.
- "no AND": a wide layer whose neurons never switch, so that no XOR is readable.

The effect of a direction is computed here from the weights, without hooks. Questions are asked only
if the effect is clear (see CARRIES, NOT, READS, READS_NOT). To exchange only what varies between
prompts, dimensions (of the undisguised model) that are equal in all prompts are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp_studies.challenge.case import (
    Case,
    KnownDirection,
    KnownReadout,
    Truth,
)
from interp_studies.challenge.disguise import disguised
from interp_studies.challenge.hulls import apart
from interp_toolkit.data import FeatureData
from interp_toolkit.data.composites import all_composites, composite_tokens, sample_composites
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.superposition.constructions.targeted import superposed_and
from interp_toolkit.toys.superposition.constructions.uand import universal_and
from interp_toolkit.toys.superposition.layers.layer import FeatureLayer, layer_model, own_axes
from interp_toolkit.toys.zeros import zeros

VARIANTS = ("one feature", "AND of two", "illusion", "U-AND", "no AND")
ROWS = 256
#: share of the way to the corrupted row's answer that exchanging a component takes the answer
CARRIES, NOT = 0.8, 0.2
#: balanced accuracy of the best threshold on the component: it reads on every row, or it does not
READS, READS_NOT = 1.0, 0.8
WORST = 0.4  # of a read-off feature, by the others that are on
DISCONNECTED = 3  # features that have a vector which nothing reads
SPARE = 3  # axes of the stream beside those: a constant, the answer's, and one that nothing reads
ROOM = 8.0  # of what a neuron that is always on may fall, in lengths of its weights
VARIES = 1e-9  # by how much rows differ along an axis at least, where they do
BASE, GAIN = 10.0, 10.0  # of the two answers' logits, and of what tells them apart
HOOKS = ("blocks.0.hook_attn_out", "blocks.0.hook_resid_mid")
BEFORE, NEURONS = "blocks.0.hook_resid_mid", "blocks.0.mlp.hook_post"
AFTER = "blocks.0.hook_resid_post"
XOR, AND = "0110", "0001"


def superposed_cases(seed: int, count: int) -> Iterator[Case]:
    """`count` models, every variant in turn; two thirds are for questions about directions."""
    rng = np.random.default_rng([seed, 41])
    order = ("one feature", "AND of two", "illusion", "U-AND", "one feature", "no AND")
    for number in range(count):
        yield superposed_case(order[number % len(order)], int(rng.integers(2**31)))


def superposed_case(variant: str, seed: int) -> Case:
    """A model with features in superposition.

    Args:
        variant: one of VARIANTS.
        seed: random seed of weights and prompts.
    """
    rng = np.random.default_rng([seed, 42])
    if variant in ("U-AND", "no AND"):
        return _readout_case(variant, seed, rng)
    return _direction_case(variant, seed, rng)


@dataclass(frozen=True, eq=False)
class _Parts:
    """Vectors of an undisguised model whose answer is whether something is on.

    Attributes:
        features: the features' vectors in the residual stream.
        disconnected: features that have a disconnected vector, and that vector.
        readers: the reading direction of each feature.
        asked: t, and u if the answer is an AND.
        n_axes: number of dimensions for the features' vectors, the first of the residual stream.
        most_on: largest number of features in a prompt.
    """

    features: Float[Tensor, "feature axis"]
    disconnected: dict[int, Float[Tensor, " axis"]]
    readers: Float[Tensor, "feature axis"]
    asked: tuple[int, ...]
    n_axes: int
    most_on: int


@dataclass(frozen=True, eq=False)
class _Told:
    """An undisguised model whose answer is whether something is on.

    Attributes:
        model: the model, in float64.
        written: the direction from which the answer is read; None: the features' sum.
        neurons: directions of neurons to ask about, each with its feature.
    """

    model: Transformer
    written: Float[Tensor, " axis"] | None
    neurons: tuple[tuple[Float[Tensor, " neuron"], int], ...]


def _direction_case(variant: str, seed: int, rng: np.random.Generator) -> Case:
    parts = _draw_parts(rng, 2 if variant == "AND of two" else 1)
    told = _passed_by(parts, rng) if variant == "illusion" else _told_by_neurons(parts)
    model, _, turn = disguised(told.model, seed, dtype=torch.float64)
    order = _order_of_neurons(told.model, model, turn)
    data = _toggled_rows(parts, rng)
    exchange = _Exchange(told.model, data)
    known: list[KnownDirection] = []

    def ask(vector: Tensor, feature: int, hook: str | None = None) -> None:
        unit = vector / vector.norm()
        place = hook or HOOKS[int(rng.integers(len(HOOKS)))]
        moves, carries = exchange(unit, place), exchange(unit, place, by_what_varies=True)
        reads = _threshold_accuracy(exchange.here[place] @ unit, data.column(f"f{feature}"))
        clear_read = reads >= READS or reads <= READS_NOT
        if clear_read and all(share >= CARRIES or share <= NOT for share in (moves, carries)):
            there = unit[order] if place == NEURONS else unit @ turn
            known.append(
                KnownDirection(
                    place,
                    -1,
                    there.numpy(),
                    (f"f{feature}",),
                    "01",
                    bool(reads >= READS),
                    bool(carries >= CARRIES),
                )
            )

    _ask_of_stream(parts, rng, told.model.cfg.d_model, ask)
    if told.written is not None:
        ask(told.written, parts.asked[0], AFTER)
    for vector, feature in told.neurons:
        ask(vector, feature, NEURONS)
    return Case("superposed", variant, None, seed, model, data, Truth(directions=tuple(known)))


def _ask_of_stream(
    parts: _Parts, rng: np.random.Generator, d_model: int, ask: Callable[[Tensor, int], None]
) -> None:
    """Ask about the vectors in the features' sum, the reading directions, and random directions."""
    t = parts.asked[0]
    own, reader = parts.features[t], parts.readers[t]
    ask(own, t)
    ask(reader, t)
    ask(parts.disconnected[t], t)
    along = reader / reader.norm()
    ask(own - (own @ along) * along, t)
    others = [f for f in range(len(parts.features)) if f not in parts.asked]
    for f in rng.permutation(others)[:3].tolist():
        ask(parts.readers[f], f)
        ask(parts.features[f], t)
    for f, vector in parts.disconnected.items():
        if f not in parts.asked:
            ask(vector, f)
    for _ in range(3):
        drawn = torch.zeros(d_model, dtype=torch.float64)
        drawn[: parts.n_axes] = torch.from_numpy(rng.standard_normal(parts.n_axes))
        ask(drawn, t)


@torch.no_grad()
def _order_of_neurons(source: Transformer, model: Transformer, turn: Tensor) -> Tensor:
    """For each neuron of a disguised model, the neuron of the source."""
    old, new = source.blocks[0].mlp, model.blocks[0].mlp
    here = torch.cat([old.W_in, old.b_in[None], old.W_out.T])
    there = torch.cat([turn @ new.W_in, new.b_in[None], turn @ new.W_out.T])
    return torch.cdist(there.T, here.T).argmin(1)


def _draw_parts(rng: np.random.Generator, n_asked: int) -> _Parts:
    """Random unit vectors, more than dimensions, such that the asked features can be separated."""
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
    others = [int(f) for f in rng.permutation(m) if f not in asked][: DISCONNECTED - 1]
    wide = torch.zeros(m, d + DISCONNECTED + SPARE, dtype=torch.float64)
    wide[:, :d] = features
    reading = torch.zeros_like(wide)
    reading[:, :d] = readers
    disconnected = {}
    for number, f in enumerate([asked[0], *others]):
        vector = torch.zeros(d + DISCONNECTED + SPARE, dtype=torch.float64)
        vector[d + number] = float(rng.uniform(0.7, 2.0))
        disconnected[f] = vector
    return _Parts(wide, disconnected, reading, asked, d, most_on)


@torch.no_grad()
def _summing_model(parts: _Parts, d_mlp: int) -> Transformer:
    """A model that sums the features at the last position, with prior logits of two answers.

    Token ids: features, "nothing", "read", yes, no. Dimensions: those of the features, and SPARE.
    """
    m, d_model = parts.features.shape
    width = d_model - SPARE  # features and disconnected vectors
    constant, answer = width, width + 1
    model: Transformer = zeros(
        TransformerConfig(
            n_layers=1,
            d_model=d_model,
            n_ctx=parts.most_on + 1,
            d_head=width,
            n_heads=2,
            d_vocab=m + 4,
            d_mlp=d_mlp,
            act_fn="relu",
            normalization_type=None,
            positional_embedding_type="none",
            dtype=torch.float64,
        )
    ).eval()
    model.embed.W_E[:m] = parts.features
    for feature, vector in parts.disconnected.items():
        model.embed.W_E[feature] += vector
    model.embed.W_E[m + 1, constant] = 1.0
    attn = model.blocks[0].attn
    attn.W_V[0, :width] = (parts.most_on + 1) * torch.eye(width, dtype=torch.float64)
    attn.W_O[0, :, :width] = torch.eye(width, dtype=torch.float64)
    yes, no = m + 2, m + 3
    model.unembed.W_U[constant, [yes, no]] = torch.tensor(
        [BASE - GAIN / 2, BASE + GAIN / 2]
    ).double()
    model.unembed.W_U[answer, yes], model.unembed.W_U[answer, no] = GAIN, -GAIN
    return model


@torch.no_grad()
def _told_by_neurons(parts: _Parts) -> _Told:
    """Two neurons turn the reading into a step; the answer is read from their difference."""
    d_model = parts.features.shape[1]
    answer = d_model - SPARE + 1
    model = _summing_model(parts, 8)
    mlp = model.blocks[0].mlp
    # a step between 0.4 and 0.6 of the reading, or 1.4 and 1.6 of the sum of two
    reading = sum(parts.readers[f] for f in parts.asked)
    cut = len(parts.asked) - 0.5
    neurons = torch.zeros(8, dtype=torch.float64)
    for n, (end, sign) in enumerate(((-1, 1.0), (1, -1.0))):
        mlp.W_in[:, n] = reading / 0.2
        mlp.b_in[n] = -(cut + end * 0.1) / 0.2
        mlp.W_out[n, answer] = neurons[n] = sign
    return _Told(model, torch.eye(d_model).double()[answer], ((neurons, parts.asked[0]),))


@torch.no_grad()
def _passed_by(parts: _Parts, rng: np.random.Generator) -> _Told:
    """The answer is read from the features' sum; unread neurons follow features, one is dormant."""
    m, d_model = parts.features.shape
    constant, answer, unread = range(d_model - SPARE, d_model)
    d_mlp, t = int(rng.integers(6, 17)), parts.asked[0]
    model = _summing_model(parts, d_mlp)
    yes, no = m + 2, m + 3
    model.unembed.W_U[:, yes] += GAIN * parts.readers[t]
    model.unembed.W_U[:, no] -= GAIN * parts.readers[t]
    mlp, axes = model.blocks[0].mlp, torch.eye(d_mlp, dtype=torch.float64)
    # every neuron but the second follows a feature, the first t, and is always on
    followed = [t, t, *(int(f) for f in rng.permutation(m) if f != t)][:d_mlp]
    steep = torch.from_numpy(rng.uniform(0.5, 2.0, d_mlp) * rng.choice([-1.0, 1.0], d_mlp))
    for n, f in enumerate(followed):
        mlp.W_in[:, n] = steep[n] * parts.readers[f]
        mlp.b_in[n] = float(steep[n].abs() * parts.readers[f].norm() * ROOM)
        mlp.W_out[n, unread] = float(rng.standard_normal())
    value, angle = float(rng.uniform(0.5, 2.0)), float(rng.uniform(0.6, 1.0))
    moved = float(rng.uniform(0.9, 1.4))  # of the way, by exchanging what mixes the two
    mlp.W_in[:, 1], mlp.b_in[1] = 0.0, 0.0
    mlp.W_in[constant, 1] = value
    weight = moved / (float(steep[0]) * np.sin(angle) * np.cos(angle))
    mlp.W_out[1, answer], mlp.b_out[answer] = weight, -weight * value
    mixed = np.cos(angle) * axes[0] + np.sin(angle) * axes[1]
    asked = [(mixed, t), (axes[0], t), (axes[1], t)]
    asked += [(axes[n], followed[n]) for n in range(2, min(d_mlp, 5))]
    asked.append((torch.from_numpy(rng.standard_normal(d_mlp)), t))
    return _Told(model, None, tuple(asked))


def _toggled_rows(parts: _Parts, rng: np.random.Generator) -> FeatureData:
    """Prompts and counterparts that differ in feature t only; with an AND, u is on in all."""
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
    """The effect of exchanging a component on the answers, computed from the weights.

    Attributes:
        here, there: activations of the prompts and of their counterparts, by hook.
    """

    def __init__(self, model: Transformer, data: FeatureData):
        self.model = model
        assert data.corrupted is not None
        assert data.answers is not None
        assert data.wrong is not None
        self.here, self.there = (
            self._activations(torch.from_numpy(np.stack(list(rows))))
            for rows in (data.tokens, data.corrupted)
        )
        self.answers = torch.from_numpy(data.answers[:, 0])
        self.wrong = torch.from_numpy(data.wrong[:, 0])

    @torch.no_grad()
    def __call__(self, unit: Tensor, hook: str, by_what_varies: bool = False) -> float:
        """How far the answers move to those of the counterparts, as a fraction.

        Args:
            unit: the direction.
            hook: name of the hook.
            by_what_varies: whether dimensions that are equal in all prompts are left out.
        """
        here, there = self.here[hook], self.there[hook]
        along = unit * _varies(torch.cat([here, there])) if by_what_varies else unit
        after = self._behind(hook, here + ((there - here) @ unit)[:, None] * along)
        clean, corrupted = self._told(self.here[AFTER]), self._told(self.there[AFTER])
        return float((clean - self._told(after)).mean() / (clean - corrupted).mean())

    @torch.no_grad()
    def _activations(self, tokens: Tensor) -> dict[str, Tensor]:
        stream = self._summed(tokens)
        found = dict.fromkeys(HOOKS, stream)
        return found | {NEURONS: self._neurons(stream), AFTER: self._behind(BEFORE, stream)}

    @torch.no_grad()
    def _behind(self, hook: str, x: Tensor) -> Tensor:
        """The residual stream after the MLP, from the activation at a hook."""
        if hook == AFTER:
            return x
        neurons = x if hook == NEURONS else self._neurons(x)
        stream = self.here[BEFORE] if hook == NEURONS else x
        mlp = self.model.blocks[0].mlp
        after: Tensor = stream + neurons @ mlp.W_out + mlp.b_out
        return after

    @torch.no_grad()
    def _neurons(self, x: Tensor) -> Tensor:
        mlp = self.model.blocks[0].mlp
        found: Tensor = (x @ mlp.W_in + mlp.b_in).relu()
        return found

    @torch.no_grad()
    def _summed(self, tokens: Tensor) -> Tensor:
        """The residual stream after attention at the last position."""
        x = self.model.embed.W_E[tokens]
        attn = self.model.blocks[0].attn
        summed: Tensor = x[:, -1] + x.mean(1) @ attn.W_V[0] @ attn.W_O[0]
        return summed

    @torch.no_grad()
    def _told(self, x: Tensor) -> Tensor:
        logits = x @ self.model.unembed.W_U
        rows = torch.arange(len(x))
        advantage: Tensor = logits[rows, self.answers] - logits[rows, self.wrong]
        return advantage


def _varies(values: Float[Tensor, "row axis"]) -> Bool[Tensor, " axis"]:
    """Dimensions in which prompts differ."""
    return values.amax(0) - values.amin(0) > VARIES


def _threshold_accuracy(values: Tensor, told: Bool[np.ndarray, " row"]) -> float:
    """Balanced accuracy of the best threshold, in the better direction."""
    order = np.argsort(values.numpy())
    sorted_told = told[order]
    positive = np.concatenate([[0], np.cumsum(sorted_told)]) / max(told.sum(), 1)
    negative = np.concatenate([[0], np.cumsum(~sorted_told)]) / max((~told).sum(), 1)
    gap = float(np.abs(positive - negative).max())
    return (1 + gap) / 2


def _readout_case(variant: str, seed: int, rng: np.random.Generator) -> Case:
    """A U-AND layer, or one whose neurons never switch; prompts contain all values of the pair."""
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
