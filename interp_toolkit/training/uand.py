"""One MLP layer trained to compute the AND of every pair of features: `interp train uand`.

*Task.* Inputs have at most `most_on` features on; the layer should compute the AND of every pair
such that one direction of its neurons reads it. With fewer neurons than pairs, the pairs must share
neurons. Sources: "Computation in superposition", sections 1.1 (the task), 1.2, 1.3 (features in
superposition) and 2 (errors); the paper trains nothing itself.

*Loss.* The p-norm of the errors, (mean over inputs of the sum over pairs of |error|^p)^(1/p). With
p = 2 it has the minimizers of the mean squared error; a high p approaches the worst error.

*Model.* A `toys.superposition.layers.layer` model that writes all pairs. Only the neurons' input
weights and biases and the readouts are trained; the readouts have no bias, as in the constructions.
Embedding, attention and unembedding keep the weights that add up features and read gates. A step
bypasses them: the gradients are the same, several times faster.

*Baselines.* Two need no training: an affine readout of the input, whose worst error is at least
1/4, and random 0/1 connections to as many neurons.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict
from itertools import combinations
from math import comb
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from interp_toolkit.boolean_functions import AFFINE, Epsilon, epsilon
from interp_toolkit.data.composites import all_composites, count_composites, sample_composites
from interp_toolkit.formatting import counted
from interp_toolkit.models.transformer.config import DTYPES
from interp_toolkit.registry import Recipe, Session, TrainingRun
from interp_toolkit.toys.superposition.layers.layer import (
    FeatureLayer,
    layer_model,
    layer_task,
    random_unit_features,
)
from interp_toolkit.toys.superposition.layers.readouts import exact_epsilon
from interp_toolkit.training.engine.settings import Problem, Schedule, TrainingSettings
from interp_toolkit.training.engine.trainer import Fitted, SeedRuns, train_seeds

#: largest size of a tensor in a step, in bytes
MOST_BYTES = 2**31


class UandTraining(TrainingSettings):
    """Settings of `interp train uand`, in addition to `TrainingSettings`; each is a `--set` key.

    Attributes:
        n_features: boolean features; the model has a logit for every pair of them.
        n_neurons: number of neurons of the single ReLU layer.
        d_in: width of the input, in which the features are random unit vectors. None: one-hot.
        most_on: the largest number of features that are on together.
        power: p of the loss; 2 minimizes the mean squared error, a high p nearly the worst error.
        balanced: whether, for each pair, the inputs with the pair on have the same total weight as
            all others.
        rows: inputs per step; all inputs, if there are no more than that.
    """

    n_features: int = Field(12, ge=2, le=64)
    n_neurons: int = Field(64, ge=1, le=16_384)
    d_in: int | None = Field(None, ge=1)
    most_on: int = Field(3, ge=2)
    power: int = Field(8, ge=2, le=64)
    balanced: bool = False
    rows: int = Field(4_096, ge=1, le=10_000_000)
    steps: int = Field(3_000, ge=1)
    lr: float = Field(0.02, gt=0, le=10, allow_inf_nan=False)
    schedule: Schedule = "linear"
    seeds: int = Field(4, ge=1, le=100_000)
    seed: int = Field(0, ge=0, lt=2**30)

    @model_validator(mode="after")
    def _sizes_fit(self) -> UandTraining:
        if self.most_on > self.n_features:
            raise ValueError(f"most_on ({self.most_on}) is above n_features ({self.n_features})")
        if self.d_in is not None and self.d_in > self.n_features:
            raise ValueError(
                f"d_in ({self.d_in}) is above n_features ({self.n_features}): leave it out for "
                "one-hot features"
            )
        self._check_bytes()
        return self

    def _check_bytes(self) -> None:
        """Refuse sizes at which inputs x neurons or inputs x pairs take more than MOST_BYTES."""
        inputs = min(self.rows, count_composites(self.n_features, self.most_on))
        columns = {"neurons": self.n_neurons, "pairs": comb(self.n_features, 2)}
        what, most = max(columns.items(), key=lambda column: column[1])
        size = (8 if self.dtype == "float64" else 4) * inputs * most
        if size > MOST_BYTES:
            raise ValueError(
                f"{inputs:,} inputs x {most:,} {what} take {size / 2**30:.1f} GiB a step, more "
                f"than {MOST_BYTES / 2**30:.0f}: lower rows"
            )


TRAINED = ("blocks.0.mlp.W_in", "blocks.0.mlp.b_in", "blocks.0.mlp.W_out")
READOUT_STD = 0.1  # of the initial readouts, times the square root of the number of neurons
TEST_ROWS = 20_000  # largest number of test inputs
TEST_SEED = 2**31  # of the test inputs


class UandProblem(Problem):
    """One seed's layer and its training inputs.

    Every step uses all inputs if there are no more than the settings' rows. Otherwise it samples
    that many: first the number of features that are on, then which ones.
    """

    capturable: ClassVar[bool] = True

    def __init__(self, config: UandTraining, seed: int):
        self.config = config
        self.pairs = pairs_of(config.n_features).to(config.device)
        self.layer = initial_layer(config, seed)
        generator = torch.Generator().manual_seed(seed + 1)
        shape, dtype = (len(self.pairs), config.n_neurons), torch.float64
        readoffs = torch.randn(shape, generator=generator, dtype=dtype)
        readoffs *= READOUT_STD / config.n_neurons**0.5
        model = layer_model(self.layer, readoffs, config.most_on, "uand")
        self.model = model.to(DTYPES[config.dtype]).to(config.device)
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in TRAINED)
        self.features = self.layer.features.to(self.model.embed.W_E)
        self.all: Bool[Tensor, "input feature"] | None = None
        if count_composites(config.n_features, config.most_on) <= config.rows:
            everything = all_composites(config.n_features, config.most_on)
            self.all = torch.from_numpy(everything).to(config.device)
        self.positive_weight = self._positive_weight()

    def draw(self, generator: torch.Generator) -> Bool[Tensor, "input feature"]:
        """Sample the active features."""
        if self.all is not None:
            return self.all
        return draw_composites(
            self.config.rows, self.config.n_features, self.config.most_on, generator
        )

    def readouts(self, on: Bool[Tensor, "input feature"]) -> Float[Tensor, "input pair"]:
        """The model's logits at its last position."""
        mlp, d_in = self.model.blocks[0].mlp, self.features.shape[1]
        x = on.to(self.features) @ self.features
        readouts: Tensor = (x @ mlp.W_in[:d_in] + mlp.b_in).relu() @ mlp.W_out[:, d_in:]
        return readouts

    def loss(self, batch: Bool[Tensor, "input feature"]) -> Float[Tensor, ""]:
        """The p-norm of the errors; with several ranks, the mean of their p-norms."""
        truth = pair_truth(batch, self.pairs)
        errors = (self.readouts(batch) - truth.to(self.features)).abs()
        weight = torch.where(truth, self.positive_weight, 1.0)
        return p_norm(errors, weight, self.config.power)

    def measured(self) -> Epsilon:
        """The errors on every input, or on a random sample if there are too many."""
        config = self.config
        sizes = config.n_features, config.most_on
        if count_composites(*sizes) <= TEST_ROWS:
            inputs = all_composites(*sizes)
        else:
            inputs = sample_composites(TEST_ROWS, *sizes, np.random.default_rng(TEST_SEED))
        on = torch.from_numpy(inputs).to(config.device)
        with torch.no_grad():
            scores = self.readouts(on).double().cpu().numpy()
        return epsilon(scores, pair_truth(on, self.pairs).cpu().numpy())

    def _positive_weight(self) -> float:
        """Weight of an error with the pair on.

        It is 1, or if balanced the number of inputs with the pair off for each with it on.
        """
        if not self.config.balanced:
            return 1.0
        m, most_on = self.config.n_features, self.config.most_on
        if self.all is not None:
            both = pair_truth(self.all, self.pairs).double().mean().item()
        else:  # the number of features that are on is uniform in 0..most_on
            on = sum(k * (k - 1) for k in range(most_on + 1)) / (most_on + 1)
            both = on / (m * (m - 1))
        return (1 - both) / both


def initial_layer(config: UandTraining, seed: int) -> FeatureLayer:
    """Normal input weights, no biases; features one-hot, or random unit vectors if d_in is set."""
    generator = torch.Generator().manual_seed(seed)
    m, d_in, dtype = config.n_features, config.d_in or config.n_features, torch.float64
    features = torch.eye(m, dtype=dtype)
    if config.d_in is not None:
        features = random_unit_features(m, d_in, generator)
    W_in = torch.randn(d_in, config.n_neurons, generator=generator, dtype=dtype)
    return FeatureLayer(W_in, torch.zeros(config.n_neurons, dtype=dtype), features)


def pairs_of(n_features: int) -> Int[Tensor, "pair 2"]:
    """All pairs of features, in lexicographic order: the model's logits."""
    return torch.tensor(list(combinations(range(n_features), 2)))


def pair_truth(
    on: Bool[Tensor, "input feature"], pairs: Int[Tensor, "pair 2"]
) -> Bool[Tensor, "input pair"]:
    """Whether both features of a pair are on."""
    return on[:, pairs[:, 0]] & on[:, pairs[:, 1]]


def draw_composites(
    n: int, n_features: int, most_on: int, generator: torch.Generator
) -> Bool[Tensor, "input feature"]:
    """`data.composites.sample_composites`' distribution, on the generator's device."""
    device = generator.device
    sizes = torch.randint(0, most_on + 1, (n, 1), generator=generator, device=device)
    keys = torch.rand(n, n_features, generator=generator, device=device)
    chosen = keys.topk(most_on, dim=1).indices
    used = torch.arange(most_on, device=device) < sizes
    nothing = torch.zeros(n, n_features, dtype=torch.bool, device=device)
    return nothing.scatter(1, chosen, used)


def p_norm(
    errors: Float[Tensor, "input pair"], weight: Float[Tensor, "input pair"], power: int
) -> Float[Tensor, ""]:
    """(mean over inputs of the sum over pairs of weight * error^p)^(1/p).

    Errors are divided by the largest first, so that high powers of small ones do not underflow.
    """
    largest = errors.detach().max().clamp(min=1e-30)
    terms = weight * (errors / largest) ** power
    norm: Tensor = largest * terms.sum(1).mean() ** (1 / power)
    return norm


DENSITIES = tuple(k / 20 for k in range(1, 19))  # tested densities of the 0/1 connections
DRAWS = 5  # of connections at each density


def train(config: UandTraining, session: Session | None = None) -> TrainingRun:
    """Train every seed and keep the one with the smallest worst error.

    Raises InputError if the device is missing.
    """
    task = layer_task(initial_layer(config, config.seed), config.most_on)

    def score(problem: UandProblem, fitted: Fitted) -> Mapping[str, Any]:
        return {**asdict(problem.measured()), "loss": fitted.loss}

    runs = train_seeds(
        "uand",
        config,
        lambda seed: UandProblem(config, seed),
        score,
        session,
        by="worst",
        task=task,
    )
    return TrainingRun(
        model=runs.model,
        verdict=_verdict(config, runs),
        columns=["seed", "worst", "99 %", "rms", "worst after offset", "loss"],
        rows=runs.rows,
        task=task,
        training=runs.record(),
    )


class Untrained(NamedTuple):
    """Random 0/1 connections: the best density, and the median of its samples' worst errors."""

    density: float
    worst: float


def untrained(n_features: int, n_neurons: int, most_on: int) -> Untrained:
    """Universal AND by random 0/1 connections of one-hot features, at the best of DENSITIES.

    The worst error is exact, for each pair's own readout; it is 1 if two features share no neuron.
    """
    generator = torch.Generator().manual_seed(0)

    def median(density: float) -> float:
        connected = torch.rand(DRAWS, n_features, n_neurons, generator=generator) < density
        return statistics.median(
            exact_epsilon(connections, most_on).worst for connections in connected
        )

    return min((Untrained(p, median(p)) for p in DENSITIES), key=lambda tried: tried.worst)


def _verdict(config: UandTraining, runs: SeedRuns) -> str:
    best, m = runs.scores, config.n_features
    below = sum(scores["worst"] < AFFINE for scores in runs.by_seed.values())
    exact = count_composites(m, config.most_on) <= TEST_ROWS
    inputs = "on every input" if exact else f"on {TEST_ROWS:,} random inputs"
    return (
        f"{counted(config.n_neurons, 'neuron')}, {counted(m * (m - 1) // 2, 'pair')}: "
        f"{below} of {counted(config.seeds, 'seed')} "
        f"read every pair {inputs} with a worst error below {AFFINE}, the least that an affine "
        f"readout of the input can have; the best one's is {best['worst']:.3f}, "
        f"{best['worst_after_offset']:.3f} after each pair's best gain and bias, rms "
        f"{best['rms']:.3f}; random 0/1 connections of one-hot features to as many neurons have "
        f"{_beside(untrained(m, config.n_neurons, config.most_on))}."
    )


def _beside(random: Untrained) -> str:
    if random.worst >= 1:
        return "1 or more with their own readouts, at every density"
    return f"{random.worst:.2f} with their own readouts, at their best density, {random.density:g}"


RECIPE = Recipe(
    name="uand",
    summary="one MLP layer that computes the AND of all pairs of features; options: loss, sizes, "
    "superposed inputs",
    config=UandTraining,
    variants={
        "epsilon": {},
        "mse": {"power": 2},
        "superposed": {"d_in": 8},
    },
    presets={"small": {}},
    train=train,
)
