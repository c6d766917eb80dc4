"""One MLP layer that learns to read every pair out: its inputs, its readoffs, its loss.

The model is a `toys.superposition.layers.layer` model that writes all pairs; what is trained are
the neurons' input weights and biases and the readoffs, without a bias of their own, as in the
constructions. Embedding, attention and unembedding stay at the weights that add features up and
read gates off, and a step goes past them: the same gradients, several times sooner. The loss is the
p-norm of the errors, (mean over inputs of the sum over pairs of |error|^p)^(1/p).
Source: "Computation in superposition", sections 1.1 (the task), 1.3 (features in superposition)
and 2 (errors: p = 2 is the mean squared error, a high p approaches the worst error).
"""

from __future__ import annotations

from itertools import combinations
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.data.composites import all_composites, count_composites, sample_composites
from interp_toolkit.epsilon import Epsilon, epsilon
from interp_toolkit.models.transformer.config import DTYPES
from interp_toolkit.toys.superposition.layers.gate_model import random_unit_features
from interp_toolkit.toys.superposition.layers.layer import FeatureLayer, layer_model
from interp_toolkit.training.engine.problem import Problem
from interp_toolkit.training.uand.settings import UandTraining

TRAINED = ("blocks.0.mlp.W_in", "blocks.0.mlp.b_in", "blocks.0.mlp.W_out")
READOFF_STD = 0.1  # of the initial readoffs, times the root of the neurons' number
TEST_ROWS = 20_000  # inputs to measure on, where there are more
TEST_SEED = 2**31  # of the inputs measured on


class UandProblem(Problem):
    """One seed's layer and the inputs that it learns on.

    Every step sees all inputs where they are no more than the settings' rows; otherwise it draws
    so many, first how many features are on, then which ones.
    """

    capturable: ClassVar[bool] = True

    def __init__(self, config: UandTraining, seed: int):
        self.config = config
        self.pairs = pairs_of(config.n_features).to(config.device)
        self.layer = initial_layer(config, seed)
        generator = torch.Generator().manual_seed(seed + 1)
        shape, dtype = (len(self.pairs), config.n_neurons), torch.float64
        readoffs = torch.randn(shape, generator=generator, dtype=dtype)
        readoffs *= READOFF_STD / config.n_neurons**0.5
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
        """Which features are on."""
        if self.all is not None:
            return self.all
        return draw_composites(
            self.config.rows, self.config.n_features, self.config.most_on, generator
        )

    def readouts(self, on: Bool[Tensor, "input feature"]) -> Float[Tensor, "input pair"]:
        """What the model's logits are at its last position."""
        mlp, d_in = self.model.blocks[0].mlp, self.features.shape[1]
        x = on.to(self.features) @ self.features
        readouts: Tensor = (x @ mlp.W_in[:d_in] + mlp.b_in).relu() @ mlp.W_out[:, d_in:]
        return readouts

    def loss(self, batch: Bool[Tensor, "input feature"]) -> Float[Tensor, ""]:
        """The p-norm of the errors; over several ranks, the mean of theirs."""
        truth = pair_truth(batch, self.pairs)
        errors = (self.readouts(batch) - truth.to(self.features)).abs()
        weight = torch.where(truth, self.positive_weight, 1.0)
        return p_norm(errors, weight, self.config.power)

    def measured(self) -> Epsilon:
        """The errors on every input; on random ones where there are too many."""
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
        """What an error where the pair is on counts; 1, or as much as all where it is off."""
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
    """Normal input weights, no biases; features one-hot, or random unit vectors if told d_in."""
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
    kept = torch.arange(most_on, device=device) < sizes
    nothing = torch.zeros(n, n_features, dtype=torch.bool, device=device)
    return nothing.scatter(1, chosen, kept)


def p_norm(
    errors: Float[Tensor, "input pair"], weight: Float[Tensor, "input pair"], power: int
) -> Float[Tensor, ""]:
    """(mean over inputs of the sum over pairs of weight * error^p)^(1/p).

    Errors are divided by the largest first, so that high powers of small ones do not vanish.
    """
    largest = errors.detach().max().clamp(min=1e-30)
    terms = weight * (errors / largest) ** power
    norm: Tensor = largest * terms.sum(1).mean() ** (1 / power)
    return norm
