"""An MLP layer on boolean features: as a model, its density of connections, its errors.

A layer computes `act(x W_in + b_in)` of `x`, the sum of the f-vectors of the features that are on;
f-vectors are the rows of `features`, the identity if nothing is in superposition. As a model it
reads the prompts of `data.composites`. One head attends uniformly and adds up the f-vectors of the
prompt at its last position, and the MLP is the layer. It writes the gates' readouts, each along its
own residual direction, which the unembedding reads as a logit.

*Density.* Each of m features is connected to each of d neurons with probability p. From p alone:

- a pair has no neuron in common with probability (1 - p^2)^d, and its AND then has error 1;
- with l features on, the mean error of a readout is (l-2) p if both features of the pair are on,
  (l-1) p if one is, l p - 1 + (1-p)^l if none is;
- the worst error over all pairs and inputs is near the M that only one of all sets of (pair, l-1
  others) is expected to reach, where a pair's neurons are Binomial(d, p^2) and the sum of the
  others' fractions of n of them is Binomial((l-1) n, p) / n.

At p = sqrt(1 - N^(-1/d)), N the number of pairs, one pair without neurons is expected. The source's
p = log(m)^2 / sqrt(d) is above 1 at practical sizes, so p is chosen by search for the least such M.
Source: "Computation in superposition", section 1.2.

*ε by sampling* is for gates without an exact worst case by counting. The inputs for every gate: all
of it on, then all but one of its features on (each left out once), both filled with random other
features to exactly l, and one input drawn from `data.composites`. A gate's own errors are those of
its readout on these. All gates' readouts on all of these inputs are measured too, and are often
worse, since gates that share neurons disturb each other. A sampled error is a lower bound of the
worst case.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.special import bdtrc
from scipy.stats import binom
from torch import Tensor

from interp_toolkit.boolean_functions import Epsilon, after_offset, epsilon
from interp_toolkit.data.composites import sample_composites
from interp_toolkit.errors import InputError
from interp_toolkit.formatting import ShortRepr, counted
from interp_toolkit.models.about.record import ModelRecord, plain_config, set_record
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.superposition.layers.gates import (
    Gate,
    checked_gates,
    gate_truth,
    inputs_about,
)
from interp_toolkit.toys.zeros import zeros

Activation = Literal["relu", "square"]
#: hook point of a layer model's neurons
HOOK = "blocks.0.mlp.hook_post"


@dataclass(frozen=True, eq=False)
class FeatureLayer(ShortRepr):
    """A layer that computes on boolean features; see the module.

    Attributes:
        W_in: input weights of each neuron.
        b_in: biases.
        features: f-vectors, one per row.
        activation: "relu", or "square": x -> x^2.
    """

    W_in: Float[Tensor, "d_in neuron"]
    b_in: Float[Tensor, " neuron"]
    features: Float[Tensor, "feature d_in"]
    activation: Activation = "relu"

    def input(self, on: Bool[Tensor, "input feature"]) -> Float[Tensor, "input d_in"]:
        """The sum of the f-vectors of the features that are on."""
        summed: Tensor = torch.sparse.mm(on.to(self.features).to_sparse(), self.features)
        return summed

    def activations(self, on: Bool[Tensor, "input feature"]) -> Float[Tensor, "input neuron"]:
        """The neurons' activations on these inputs."""
        return self.neurons(self.input(on))

    def neurons(self, x: Float[Tensor, "input d_in"]) -> Float[Tensor, "input neuron"]:
        """The neurons' activations for the layer input `x`."""
        pre = x @ self.W_in + self.b_in
        return pre.square() if self.activation == "square" else pre.relu()


@torch.no_grad()
def layer_model(
    layer: FeatureLayer, readoffs: Float[Tensor, "gate neuron"], most_on: int, name: str
) -> Transformer:
    """The layer as a model (see the module), in float64; its logits are the gates' readouts.

    A squared neuron is two neurons of a gated MLP: x^2 = relu(x) x + relu(-x) (-x).

    Args:
        layer: layer of the MLP.
        readoffs: readouts of the gates that the model writes.
        most_on: the largest number of features that are on together.
        name: name of the model.

    Raises:
        InputError: no gate, squares with a bias (which no gated MLP has), or no features that are
            on together.
    """
    (d_in, n_neurons), n_gates = layer.W_in.shape, len(readoffs)
    squared = layer.activation == "square"
    if not n_gates:
        raise InputError("a model of a layer needs at least one gate to write")
    if squared and layer.b_in.any():
        raise InputError("squared neurons with a bias cannot be made into a model")
    d_mlp = 2 * n_neurons if squared else n_neurons
    model = adding_model(layer.features, most_on, n_gates, d_in, d_mlp, name, gated=squared)
    mlp = model.blocks[0].mlp
    W_in, W_out = layer.W_in, readoffs.T
    if squared:
        W_in, W_out = torch.cat([W_in, -W_in], dim=1), torch.cat([W_out, W_out])
        mlp.W_gate[:d_in] = W_in
    else:
        mlp.b_in.copy_(layer.b_in)
    mlp.W_in[:d_in] = W_in
    mlp.W_out[:, d_in:] = W_out
    return model


@torch.no_grad()
def adding_model(
    features: Float[Tensor, "feature d_in"],
    most_on: int,
    n_out: int,
    width: int,
    d_mlp: int,
    name: str,
    *,
    n_layers: int = 1,
    gated: bool = False,
) -> Transformer:
    """A model whose first head adds up a prompt's f-vectors at its last position; MLPs are zero.

    Args:
        features: the f-vectors; they take the first residual directions.
        most_on: the largest number of features that are on together.
        n_out: logits, each read along its own residual direction, the last ones.
        width: number of residual directions before these.
        d_mlp: neurons of a block.
        name: name of the model.
        n_layers: blocks; only the first one's head writes anything.
        gated: whether the MLPs are gated.

    Raises:
        InputError: no features that are on together, or more than there are.
    """
    n_features, d_in = features.shape
    if not 1 <= most_on <= n_features:
        raise InputError(f"{most_on} features cannot be on at once; there are {n_features}")
    config = TransformerConfig(
        n_layers=n_layers,
        d_model=width + n_out,
        n_ctx=most_on + 1,
        d_head=d_in,
        n_heads=1,
        d_vocab=n_features + 2,
        d_vocab_out=n_out,
        attn_only=False,
        d_mlp=d_mlp,
        act_fn="relu",
        gated_mlp=gated,
        biases=True,
        normalization_type=None,
        positional_embedding_type="none",
        dtype=torch.float64,
        model_name=name,
    )
    model = zeros(config)
    model.embed.W_E[:n_features, :d_in] = features
    attn = model.blocks[0].attn
    attn.W_V[0, :d_in] = (most_on + 1) * torch.eye(d_in)
    attn.W_O[0, :, :d_in] = torch.eye(d_in)
    model.unembed.W_U[width:] = torch.eye(n_out)
    return model


def layer_task(layer: FeatureLayer, most_on: int, **further: object) -> dict[str, object]:
    """The task record of such a model, from which `data.composites` makes its inputs."""
    return {
        "function": "uand",
        "n_features": len(layer.features),
        "most_on": most_on,
        **further,
    }


N_DENSITIES = 80
N_HALVINGS = 20
TAIL = 12.0  # standard deviations over which a pair's number of neurons is summed


@dataclass(frozen=True)
class ClassMeans:
    """The mean error of a readout with l features on, by how many of the pair are on."""

    both_on: float
    one_on: float
    none_on: float


def class_means(density: float, most_on: int) -> ClassMeans:
    """The mean errors with exactly `most_on` features on; see the module."""
    p, n_on = checked_density(density), checked_most_on(most_on)
    return ClassMeans((n_on - 2) * p, (n_on - 1) * p, n_on * p - 1 + (1 - p) ** n_on)


def empty_probability(density: float, n_neurons: int, fan_in: int = 2) -> float:
    """The probability that a pair of features (a set of `fan_in`) has no neuron in common."""
    return float((1 - checked_density(density) ** fan_in) ** n_neurons)


def source_density(n_features: int, n_neurons: int) -> float:
    """The source's density log(m)^2 / sqrt(d); above 1 it is not a probability."""
    return math.log(n_features) ** 2 / math.sqrt(n_neurons)


def sparsest_density(n_features: int, n_neurons: int) -> float:
    """The density at which one pair is expected to have no neuron in common."""
    n_pairs = math.comb(n_features, 2)
    return math.sqrt(-math.expm1(-math.log(n_pairs) / n_neurons)) if n_pairs > 1 else 0.5


def expected_worst(
    n_features: int, n_neurons: int, density: float, most_on: int = 2, *, fan_in: int = 2
) -> float:
    """Approximate worst error over all pairs and inputs; see the module.

    The sets are treated as independent, which they nearly are where it matters. The result is at
    least 1 if a pair without neurons is expected. With another fan-in k, it is for gates of k
    features (see `fan_in`), which share Binomial(d, p^k) neurons.
    """
    p, n_on = checked_density(density), checked_most_on(most_on)
    n_others = min(n_on - fan_in + 1, n_features - fan_in)
    n_gates = math.comb(n_features, fan_in)
    empty = n_gates * empty_probability(p, n_neurons, fan_in) > 0.5
    if n_others <= 0:
        return float(empty)
    sets = n_gates * math.comb(n_features - fan_in, n_others)
    sizes, weights = _sizes(n_neurons, p**fan_in)
    low, high = (1.0 if empty else 0.0), float(n_others)
    for _ in range(N_HALVINGS):
        middle = (low + high) / 2
        reach = np.floor(middle * sizes * (1 + 1e-12))
        above = sets * float(weights @ bdtrc(reach, n_others * sizes, p))
        low, high = (middle, high) if above > 0.5 else (low, middle)
    return high


def choose_density(n_features: int, n_neurons: int, most_on: int = 2, *, fan_in: int = 2) -> float:
    """The density with the least `expected_worst`, from a grid between d^(-1/k) and 0.9.

    Raises InputError if the least is 1 or more: then no density makes a readout that is right on
    every pair and input.
    """
    densities = np.geomspace(min(n_neurons ** (-1 / fan_in), 0.9), 0.9, N_DENSITIES)
    worst = [
        expected_worst(n_features, n_neurons, float(p), most_on, fan_in=fan_in) for p in densities
    ]
    best = int(np.argmin(worst))
    if worst[best] >= 1:
        raise InputError(
            f"{counted(n_neurons, 'neuron')} are too few for the ANDs of fan-in {fan_in} of "
            f"{n_features} features with up to {most_on} on: at the best density, "
            f"{densities[best]:.2f}, the worst error is about {worst[best]:.2f}; give more "
            "neurons, or set the density to build it anyway"
        )
    return float(densities[best])


def checked_density(density: float) -> float:
    """The density; raises InputError if it is not a probability above 0."""
    if not 0 < density <= 1:
        raise InputError(
            f"the density must be a probability above 0 and at most 1, not {density:.4g}"
        )
    return float(density)


def checked_most_on(most_on: int) -> int:
    """The number; raises InputError if it is too small for an AND to be true."""
    if most_on < 2:
        raise InputError(f"most_on is {most_on}; an AND needs 2 features on or more")
    return most_on


def _sizes(
    n_neurons: int, chance: float
) -> tuple[Int[np.ndarray, " size"], Float[np.ndarray, " size"]]:
    """Possible numbers of neurons of a gate, except 0, and their probabilities."""
    mean = n_neurons * chance
    spread = TAIL * math.sqrt(mean) + TAIL
    sizes = np.arange(max(1, int(mean - spread)), min(n_neurons, int(mean + spread)) + 1)
    return sizes, binom.pmf(sizes, n_neurons, chance)


BLOCK = 4_096  # inputs that run through the layer at once
KINDS = ("on", "one off", "random")
MOST_SCORES = 2**27  # inputs x gates: 1 GiB of scores


@dataclass(frozen=True)
class SampledEpsilon:
    """Errors of gates' readouts on sampled inputs; see the module.

    Attributes:
        own: errors of each gate's readout on the inputs about it.
        every: errors of every gate's readout on all the inputs.
        rms_on: rms error of a gate's readout with all of the gate on.
        rms_one_off: rms error with all but one of its features on.
        rms_random: rms error on random inputs.
        worst_after_common_offset: the worst own error after one gain and bias for all gates.
        how: a description of the sample.
    """

    own: Epsilon
    every: Epsilon
    rms_on: float
    rms_one_off: float
    rms_random: float
    worst_after_common_offset: float
    how: str

    @property
    def rms_of_classes(self) -> float:
        """The root mean square of a gate's own errors, with equal weight for the three classes."""
        squares = self.rms_on**2 + self.rms_one_off**2 + self.rms_random**2
        return math.sqrt(squares / len(KINDS))


def sampled_epsilon(
    layer: FeatureLayer,
    readoffs: Float[Tensor, "gate neuron"],
    gates: Sequence[Sequence[int]],
    most_on: int,
    *,
    rounds: int = 1,
    seed: int = 0,
) -> SampledEpsilon:
    """Measure the readouts of these gates; see the module.

    Args:
        layer: computes the neurons.
        readoffs: readouts of the gates, in order.
        gates: their features.
        most_on: the largest number of features that are on together.
        rounds: number of times that the inputs about each gate are drawn.
        seed: random seed of the draws.

    Raises:
        InputError: unknown gates, or gates that cannot be true with so few features on; more inputs
            and gates than fit.
    """
    n_features = len(layer.features)
    checked = checked_gates(gates, n_features)
    fan_in = max(map(len, checked))
    if not fan_in <= most_on <= n_features:
        raise InputError(
            f"most_on is {most_on}; it must be between the largest fan-in, {fan_in}, and the "
            f"number of features, {n_features}"
        )
    if rounds < 1:
        raise InputError(f"rounds is {rounds}: give 1 or more")
    n_inputs = rounds * sum(len(gate) + 2 for gate in checked)
    if n_inputs * len(checked) > MOST_SCORES:
        raise InputError(
            f"{len(checked):,} gates on {n_inputs:,} inputs do not fit in memory: give fewer gates"
        )
    rng = np.random.default_rng(seed)
    kinds, about, on = _inputs(checked * rounds, len(checked), n_features, most_on, rng)
    scores, truth = _scores(layer, readoffs, on), gate_truth(on, checked)
    rows = np.arange(len(about))
    own, own_truth = scores[rows, about], truth[rows, about]
    rms = {kind: float(np.sqrt(np.mean((own - own_truth)[kinds == kind] ** 2))) for kind in KINDS}
    return SampledEpsilon(
        own=_own(own, own_truth, about, len(checked)),
        every=epsilon(scores, truth),
        rms_on=rms["on"],
        rms_one_off=rms["one off"],
        rms_random=rms["random"],
        worst_after_common_offset=float(_after_offset(own, own_truth, 0 * about, 1)[0]),
        how=(
            f"{rounds} round{'s' * (rounds > 1)} of inputs about each of {len(checked):,} gates, "
            f"{most_on} features on: all of the gate, all but each one of it, and one random input "
            f"with up to {most_on} on; seed {seed}"
        ),
    )


def _inputs(
    gates: Sequence[Gate], n_gates: int, n_features: int, most_on: int, rng: np.random.Generator
) -> tuple[np.ndarray, Int[np.ndarray, " input"], Bool[np.ndarray, "input feature"]]:
    """Each input's class, the index of its gate, and its features.

    `gates` are those of all rounds; their indices repeat after `n_gates`.
    """
    lacking = [(k, i) for k, gate in enumerate(gates) for i in range(len(gate))]
    every = np.arange(len(gates))
    about = [every, np.array([k for k, _ in lacking]), every]
    absent = np.array([i for _, i in lacking])
    on = [
        inputs_about(gates, np.full(len(gates), -1), n_features, most_on, rng),
        inputs_about([gates[k] for k, _ in lacking], absent, n_features, most_on, rng),
        sample_composites(len(gates), n_features, most_on, rng),
    ]
    kinds = np.repeat(KINDS, [len(part) for part in about])
    return kinds, np.concatenate(about) % n_gates, np.concatenate(on)


def _scores(
    layer: FeatureLayer,
    readoffs: Float[Tensor, "gate neuron"],
    on: Bool[np.ndarray, "input feature"],
) -> Float[np.ndarray, "input gate"]:
    inputs = torch.from_numpy(on)
    blocks = (inputs[start : start + BLOCK] for start in range(0, len(inputs), BLOCK))
    scores = torch.cat([layer.activations(block) @ readoffs.T for block in blocks])
    return np.asarray(scores)


def _own(
    scores: Float[np.ndarray, " input"],
    truth: Bool[np.ndarray, " input"],
    about: Int[np.ndarray, " input"],
    n_gates: int,
) -> Epsilon:
    flat = epsilon(scores[:, None], truth[:, None])
    least = _after_offset(scores, truth, about, n_gates)
    return replace(flat, worst_after_offset=float(least.max()))


def _after_offset(
    scores: Float[np.ndarray, " input"],
    truth: Bool[np.ndarray, " input"],
    group: Int[np.ndarray, " input"],
    n_groups: int,
) -> Float[np.ndarray, " group"]:
    """`epsilon.after_offset` of groups of scores."""
    ranges = []
    for side in (truth, ~truth):
        low, high = np.full(n_groups, np.inf), np.full(n_groups, -np.inf)
        np.minimum.at(low, group[side], scores[side])
        np.maximum.at(high, group[side], scores[side])
        ranges += [low, high]
    return after_offset(*ranges)


#: largest size of a construction's weights or readouts, in bytes
MOST_BYTES = 2**31
SPREAD_STEPS = 50


@dataclass(frozen=True, eq=False)
class GatesGroundTruth(ShortRepr):
    """The ground truth of a model of a layer of gates.

    Attributes:
        hook: hook point of its neurons.
        n_features: number of input features.
        most_on: largest number of features that are on together.
        gates: the gates in the order of the logits; logit g is the readout of gate g.
        connections: the features that each neuron reads; None if neurons read axes.
        readoffs: readouts of the gates, from the neurons.
        worst: each gate's worst |logit - AND| over all inputs; None if it can only be sampled.
    """

    hook: str
    n_features: int
    most_on: int
    gates: tuple[Gate, ...]
    connections: Bool[np.ndarray, "feature neuron"] | None
    readoffs: Float[np.ndarray, "gate neuron"]
    worst: Float[np.ndarray, " gate"] | None


def gate_model(
    layer: FeatureLayer,
    readoffs: Float[Tensor, "gate neuron"],
    gates: Sequence[Gate],
    connections: Bool[Tensor, "feature neuron"] | None,
    most_on: int,
    name: str,
    worst: Float[np.ndarray, " gate"] | None = None,
    *,
    about: Sequence[Gate] = (),
) -> Transformer:
    """The layer as a model (see `layer`), with `.ground_truth` and a task record.

    `about` are gates for sampled inputs, because uniform inputs would rarely activate them.

    Raises InputError if so few features are on together that a gate is never true.
    """
    fan_in = max(map(len, gates), default=0)
    if most_on < fan_in:
        raise InputError(
            f"with at most {most_on} features on a gate of {fan_in} is never true: "
            f"give most_on = {fan_in} or more"
        )
    model = layer_model(layer, readoffs, most_on, name)
    model.eval()
    model.ground_truth = GatesGroundTruth(
        hook=HOOK,
        n_features=len(layer.features),
        most_on=most_on,
        gates=tuple(gates),
        connections=None if connections is None else connections.numpy(),
        readoffs=readoffs.numpy(),
        worst=worst,
    )
    further = {"gates": [list(gate) for gate in about]} if about else {}
    task = layer_task(layer, most_on, name=name, **further)
    set_record(model, ModelRecord(name, "live", config=plain_config(model.cfg), task=task))
    return model


def mean_readoffs(neurons: Bool[Tensor, "gate neuron"]) -> Float[Tensor, "gate neuron"]:
    """Readouts: the mean over each gate's neurons; zero for a gate without any."""
    counts = neurons.sum(dim=1, keepdim=True).clamp(min=1)
    return neurons.double() / counts


def random_unit_features(
    n_features: int, d_in: int, generator: torch.Generator
) -> Float[Tensor, "feature d_in"]:
    """Random f-vectors of length 1, one per row."""
    check_bytes(n_features, d_in, "f-vectors")
    directions = torch.randn(n_features, d_in, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(directions, dim=1)


def spread_features(
    n_features: int, d_in: int, generator: torch.Generator
) -> Float[Tensor, "feature d_in"]:
    """F-vectors of length 1 that interfere less than random ones: a nearly tight frame.

    Starting with random ones, rows are normalized and columns orthonormalized in turn. The mean
    square of inner products becomes (m - d) / (d (m - 1)), the minimum (Welch), instead of 1/d.

    Raises InputError for more axes than features.
    """
    if d_in > n_features:
        raise InputError(f"d_in must be {n_features}, the number of features, got {d_in}")
    vectors = random_unit_features(n_features, d_in, generator)
    for _ in range(SPREAD_STEPS):
        U, _, V = torch.linalg.svd(vectors, full_matrices=False)
        vectors = torch.nn.functional.normalize(U @ V, dim=1)
    return vectors


def own_axes(n_features: int) -> Float[Tensor, "feature d_in"]:
    """F-vectors with an axis each; InputError if they do not fit in memory."""
    check_bytes(n_features, n_features, "features with an axis each")
    return torch.eye(n_features, dtype=torch.float64)


def check_bytes(rows: int, columns: int, what: str) -> None:
    """Raise InputError if a matrix of these sizes is too large, or a size is below 1."""
    if rows < 1 or columns < 1:
        raise InputError(f"{what} of {rows} x {columns}: give sizes of at least 1")
    if 8 * rows * columns > MOST_BYTES:
        raise InputError(
            f"{what} of {rows:,} x {columns:,} take {8 * rows * columns / 2**30:.1f} GiB, more "
            f"than {MOST_BYTES / 2**30:.0f}: request fewer at once"
        )
