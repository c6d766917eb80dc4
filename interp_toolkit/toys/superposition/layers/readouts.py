"""Readouts of boolean functions of features, and their errors: exact worst cases, and measured.

*Readouts* of any boolean function of a few features combine their ANDs and the features themselves.
A truth table is a polynomial with integer coefficients (see `boolean_functions`): its readout is
the same combination of AND readouts from the neurons, of the features' own readouts from the
layer's input (f-vectors), and a constant. XOR is f_i + f_j - 2 AND_ij; that of three features is
A + B + C - 2AB - 2AC - 2BC + 4ABC. The ANDs' errors add up, weighted by the coefficients. At
practical sizes this sum often exceeds 1/2 from three features on. `fitted_readoffs` are the best
readouts of the same layer, which do not follow the source's construction.
Source: "Computation in superposition", sections 1.2 (universal XOR) and 1.4.

*Measured ε* comes from running the layer: on every input with at most l features on if these are
few, which makes it exact; otherwise on a sample about the features of each readout (see
`data.composites.sample_about`), whose worst error is a lower bound.

*Exact worst cases of universal AND* follow from how many neurons each triple shares. With
`t_ijx = |S_i ∩ S_j ∩ S_x| / |S_i ∩ S_j|`, a neuron holds max(0, c - 1) if c of its features are on,
and the readout of (i, j) is the mean over S_i ∩ S_j:

- both on, and X others: 1 + sum over X of t_ijx, so the worst error is the l-2 largest t's sum;
- one on, and X others: the sum over X of t_ijx, so the worst is the l-1 largest t's sum;
- none on, and X others: the mean of max(0, c - 1), which is at most the mean of c without any one
  of X: the sum over l-1 others of t_ijx. So it is never worse than the case before.

The best and worst scores are attained, the least are 1 and 0, and both classes' ranges are exact.
A pair without neurons reads 0 everywhere: its error is 1. Counts come from one matrix product per
feature, so nothing larger than (features x features) is held. Source: section 1.2; the exact worst
case is derived here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import linprog
from torch import Tensor

from interp_toolkit.boolean_functions import Epsilon, after_offset, epsilon, mobius
from interp_toolkit.data.composites import (
    all_composites,
    count_composites,
    sample_about,
    sample_composites,
)
from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.superposition.layers.gates import (
    BooleanFunction,
    Gate,
    check_function,
    function_values,
)
from interp_toolkit.toys.superposition.layers.layer import (
    FeatureLayer,
    checked_most_on,
    layer_model,
)

#: a function from gates to readouts of their ANDs, such as a construction's `readoffs`
ANDReadoffs = Callable[[Sequence[Gate]], Float[Tensor, "gate neuron"]]


@dataclass(frozen=True, eq=False)
class FunctionReadoffs:
    """Affine readouts of a layer's neurons and its features.

    Attributes:
        neurons: weight of each neuron.
        features: weight of each feature's own readout, `x @ f_i`.
        constant: the constant term.
    """

    neurons: Float[Tensor, "function neuron"]
    features: Float[Tensor, "function feature"]
    constant: Float[Tensor, " function"]

    def scores(
        self, layer: FeatureLayer, on: Bool[Tensor, "input feature"]
    ) -> Float[Tensor, "input function"]:
        """The readout scores on these inputs."""
        return self.scores_at(layer, layer.input(on))

    def scores_at(
        self, layer: FeatureLayer, x: Float[Tensor, "input d_in"]
    ) -> Float[Tensor, "input function"]:
        """The readout scores for the layer input `x`."""
        own = x @ layer.features.T
        return layer.neurons(x) @ self.neurons.T + own @ self.features.T + self.constant

    def epsilon(
        self,
        functions: Sequence[BooleanFunction],
        layer: FeatureLayer,
        most_on: int,
        *,
        seed: int = 0,
    ) -> MeasuredEpsilon:
        """The errors as readouts of these functions, exact if the inputs are few.

        Args:
            functions: functions of each readout, in order.
            layer: the layer to read.
            most_on: largest number of features that are on together.
            seed: random seed of the sample, if the inputs are many.

        Raises:
            InputError: a number of functions other than that of readouts, an invalid table or
                features, or sizes that are invalid or do not fit.
        """
        if len(functions) != len(self.constant):
            raise InputError(
                f"{len(self.constant)} readouts but {len(functions)} functions: "
                "give one function per readout"
            )
        for function in functions:
            check_function(function, len(layer.features))
        return measured_epsilon(
            lambda on: self.scores(layer, on),
            lambda on: function_values(functions, on),
            [function.features for function in functions],
            len(layer.features),
            most_on,
            seed=seed,
        )

    @torch.no_grad()
    def as_model(self, layer: FeatureLayer, most_on: int, name: str) -> Transformer:
        """The layer as a model whose logits are these functions; see `layer_model`."""
        model = layer_model(layer, self.neurons, most_on, name)
        d_in = layer.features.shape[1]
        model.unembed.W_U[:d_in] = (self.features @ layer.features).T
        model.unembed.b_U.copy_(self.constant)
        return model


def function_readoffs(
    functions: Sequence[BooleanFunction], ands: ANDReadoffs, layer: FeatureLayer
) -> FunctionReadoffs:
    """Readouts of functions, by combining the construction's readouts of ANDs.

    Args:
        functions: functions of the layer's features.
        ands: the construction's `readoffs`; called with every AND that has a coefficient.
        layer: the construction's layer.

    Raises:
        InputError: an invalid table or features, or an AND that the construction lacks.
    """
    n_features, n_neurons = len(layer.features), layer.W_in.shape[1]
    neurons = torch.zeros(len(functions), n_neurons, dtype=torch.float64)
    features = torch.zeros(len(functions), n_features, dtype=torch.float64)
    constant = torch.zeros(len(functions), dtype=torch.float64)
    for row, function in enumerate(functions):
        check_function(function, n_features)
        for indices, weight in mobius(function.table).items():
            chosen = tuple(function.features[i] for i in indices)
            if not chosen:
                constant[row] = weight
            elif len(chosen) == 1:
                features[row, chosen[0]] = weight
            else:
                neurons[row] += weight * ands([chosen])[0]
    return FunctionReadoffs(neurons, features, constant)


def fitted_readoffs(
    functions: Sequence[BooleanFunction],
    layer: FeatureLayer,
    on: Bool[np.ndarray, "input feature"],
) -> FunctionReadoffs:
    """The affine readouts of neurons and features with the least worst error on these inputs.

    One linear program per function; the layer itself is unchanged.

    Raises InputError for an invalid table or features.
    """
    inside = torch.from_numpy(on)
    own = layer.input(inside) @ layer.features.T
    held = torch.cat([layer.activations(inside), own], dim=1).numpy()
    read = [_minimax(held, values) for values in function_values(functions, on).T]
    weights = torch.from_numpy(np.array(read).reshape(len(functions), held.shape[1] + 1))
    n_neurons = layer.W_in.shape[1]
    return FunctionReadoffs(weights[:, :n_neurons], weights[:, n_neurons:-1], weights[:, -1])


def _minimax(
    held: Float[np.ndarray, "input readout"], values: Bool[np.ndarray, " input"]
) -> Float[np.ndarray, " readout_and_constant"]:
    """Weights and a constant that minimize max |held @ weights + constant - values|."""
    affine = np.hstack([held, np.ones((len(held), 1))])
    bound = -np.ones((len(held), 1))
    least = linprog(
        np.r_[np.zeros(affine.shape[1]), 1.0],
        A_ub=np.block([[affine, bound], [-affine, bound]]),
        b_ub=np.r_[values.astype(float), -values.astype(float)],
        bounds=(None, None),
        method="highs-ds",
    )
    if least.status != 0:
        raise RuntimeError(f"the linear program of a readoff failed: {least.message}")
    return np.asarray(least.x[:-1])


MOST_INPUTS = 20_000  # all inputs are used up to this number, else a sample of this size
MOST_SCORES = 2**27  # inputs x readouts: 1 GiB of scores
BLOCK = 2_048  # inputs that run through the layer at once

Scores = Callable[[Bool[Tensor, "input feature"]], Float[Tensor, "input readoff"]]
Truth = Callable[[Bool[np.ndarray, "input feature"]], Bool[np.ndarray, "input readoff"]]


@dataclass(frozen=True, eq=False)
class MeasuredEpsilon:
    """The errors of readouts on inputs with at most l features on.

    Attributes:
        over_all: errors over all readouts and inputs.
        worst: each readout's largest error.
        exact: whether every input was run; otherwise `worst` is a lower bound.
        how: a description of the inputs.
    """

    over_all: Epsilon
    worst: Float[np.ndarray, " readoff"]
    exact: bool
    how: str


def measured_epsilon(
    scores: Scores,
    truth: Truth,
    about: Sequence[Sequence[int]],
    n_features: int,
    most_on: int,
    *,
    seed: int = 0,
) -> MeasuredEpsilon:
    """Measure the errors on every input, or on a sample.

    Args:
        scores: computes the readouts.
        truth: computes the functions.
        about: the features of each readout.
        n_features: number of features of the inputs.
        most_on: largest number of features that are on together.
        seed: random seed of a sample.

    Raises:
        InputError: sizes that are invalid or do not fit.
    """
    inputs = f"with at most {most_on} of {n_features} features on"
    n_inputs = count_composites(n_features, most_on) if most_on <= n_features else 0
    exact = n_inputs <= MOST_INPUTS
    if len(about) * min(n_inputs, MOST_INPUTS) > MOST_SCORES:
        raise InputError(f"{len(about):,} readouts do not fit in memory: measure fewer at once")
    if exact:
        on, how = all_composites(n_features, most_on), f"every input {inputs}"
    else:
        rng = np.random.default_rng(seed)
        sets = [members for members in about if 0 < len(members) <= most_on]
        size = MOST_INPUTS, n_features, most_on
        on = sample_about(size[0], sets, *size[1:], rng) if sets else sample_composites(*size, rng)
        how = f"{MOST_INPUTS:,} random inputs {inputs}; seed {seed}"
    blocks = (torch.from_numpy(on[k : k + BLOCK]) for k in range(0, len(on), BLOCK))
    values = torch.cat([scores(block) for block in blocks]).numpy()
    right = truth(on)
    return MeasuredEpsilon(
        over_all=epsilon(values, right),
        worst=np.asarray(np.abs(values - right).max(axis=0)),
        exact=exact,
        how=how,
    )


ROWS = 1_024  # pairs (i, j) with the same i that are counted at once


@dataclass(frozen=True, eq=False)
class ExactEpsilon:
    """The worst errors of every pair's readout over every input with at most l features on.

    Pairs are in the order (0, 1), (0, 2), ...; a pair without neurons has error 1.

    Attributes:
        most_on: l.
        neurons: number of neurons of each pair.
        both_on: each pair's worst error with both features on.
        one_on: each pair's worst error with one feature on; with none on, it is never larger.
        mean_t: the mean of t over all pairs with neurons and all third features; NaN if no pair
            has neurons.
    """

    most_on: int
    neurons: Int[np.ndarray, " pair"]
    both_on: Float[np.ndarray, " pair"]
    one_on: Float[np.ndarray, " pair"]
    mean_t: float

    @property
    def by_pair(self) -> Float[np.ndarray, " pair"]:
        """Each pair's worst error."""
        return np.asarray(np.maximum(self.both_on, self.one_on))

    @property
    def by_pair_after_offset(self) -> Float[np.ndarray, " pair"]:
        """Each pair's worst error after its best gain and bias (see `boolean_functions`)."""
        there = (self.neurons > 0).astype(float)
        return after_offset(there, there * (1 + self.both_on), 0 * there, self.one_on)

    @property
    def worst(self) -> float:
        """The largest error over all pairs."""
        return float(self.by_pair.max())

    @property
    def worst_after_offset(self) -> float:
        """The largest error over pairs after each pair's best gain and bias."""
        return float(self.by_pair_after_offset.max())

    @property
    def n_empty(self) -> int:
        """The number of pairs without a neuron."""
        return int((self.neurons == 0).sum())


def exact_epsilon(connections: Bool[Tensor, "feature neuron"], most_on: int) -> ExactEpsilon:
    """The exact errors of the readouts along intersections; see the module.

    Raises InputError for fewer than 2 features, and if `most_on` is below 2 or above their number.
    """
    n_features = len(connections)
    if checked_most_on(most_on) > n_features:
        raise InputError(f"{most_on} features cannot be on at once; there are {n_features}")
    n_top = min(most_on - 1, n_features - 2)
    sizes, tops, totals = zip(*_counts(connections, n_top), strict=True)
    neurons, largest, total = torch.cat(sizes), torch.cat(tops), torch.cat(totals)
    empty = neurons == 0
    shares = largest / neurons.clamp(min=1)[:, None]
    both_on = shares[:, : most_on - 2].sum(dim=1).masked_fill(empty, 1.0)
    one_on = shares.sum(dim=1)
    n_thirds = int((~empty).sum()) * (n_features - 2)
    return ExactEpsilon(
        most_on=most_on,
        neurons=neurons.long().numpy(),
        both_on=both_on.numpy(),
        one_on=one_on.numpy(),
        mean_t=float((total / neurons.clamp(min=1)).sum()) / n_thirds if n_thirds else float("nan"),
    )


def pair_sizes(connections: Bool[Tensor, "feature neuron"]) -> Int[Tensor, "feature feature"]:
    """|S_i ∩ S_j| of all i and j."""
    as_numbers = connections.float()
    return (as_numbers @ as_numbers.T).long()


def _counts(
    connections: Bool[Tensor, "feature neuron"], n_top: int
) -> Iterator[tuple[Float[Tensor, " pair"], Float[Tensor, "pair top"], Float[Tensor, " pair"]]]:
    """Blocks of pairs: |S_i ∩ S_j|, the largest |S_i ∩ S_j ∩ S_x|, and their sum over x.

    Float32 holds these whole numbers exactly up to 2^24 neurons.
    """
    as_numbers = connections.float()
    n_features = len(connections)
    for i in range(n_features - 1):
        shared = as_numbers[:, connections[i]]
        for start in range(i + 1, n_features, ROWS):
            j = torch.arange(start, min(start + ROWS, n_features))
            counts = shared[j] @ shared.T
            rows = torch.arange(len(j))
            sizes = counts[:, i].clone()
            counts[:, i] = 0
            counts[rows, j] = 0
            tops = counts.topk(n_top, dim=1).values if n_top else counts[:, :0]
            yield sizes.double(), tops.double(), counts.double().sum(dim=1)
