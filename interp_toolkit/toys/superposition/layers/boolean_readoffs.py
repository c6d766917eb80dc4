"""Readoffs of any boolean function of few features, from their ANDs and the features themselves.

A truth table is a polynomial with integer coefficients (see `boolean_functions`): its
readoff is the same combination of AND readoffs from the neurons, of the features' own readoffs from
the layer's input (f-vectors), and a constant. XOR is f_i + f_j - 2 AND_ij, of three features
A + B + C - 2AB - 2AC - 2BC + 4ABC. The ANDs' errors add up with the coefficients' weights.
Source: "Computation in superposition", sections 1.2 (universal XOR) and 1.4.

At sizes that fit a machine the sum of the ANDs' errors is often more than 1/2 from three features
on. `fitted_readoffs` are the best of the same layer, with no claim that they follow the source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.optimize import linprog
from torch import Tensor

from interp_toolkit.boolean_functions import mobius
from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.superposition.layers.functions import (
    BooleanFunction,
    check_function,
    function_values,
)
from interp_toolkit.toys.superposition.layers.gates import Gate
from interp_toolkit.toys.superposition.layers.layer import FeatureLayer, layer_model
from interp_toolkit.toys.superposition.layers.measured_epsilon import (
    MeasuredEpsilon,
    measured_epsilon,
)

#: an AND's readoffs by its features, as a construction's `readoffs`
ANDReadoffs = Callable[[Sequence[Gate]], Float[Tensor, "gate neuron"]]


@dataclass(frozen=True, eq=False)
class FunctionReadoffs:
    """Affine readoffs of a layer's neurons and its features.

    Attributes:
        neurons: weight of each neuron.
        features: weight of each feature's own readoff, `x @ f_i`.
        constant: what is added.
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
        """The errors as readoffs of these functions, exact where the inputs are few.

        Args:
            functions: what should be read off, in order.
            layer: what is read.
            most_on: how many features are on together, at most.
            seed: of the inputs that are drawn where they are many.

        Raises:
            InputError: another number of functions than of readoffs, a bad table or features, or
                sizes that are not there or do not fit.
        """
        if len(functions) != len(self.constant):
            raise InputError(f"{len(self.constant)} readoffs for {len(functions)} functions")
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
    """The readoffs of these functions.

    Args:
        functions: of the layer's features.
        ands: the construction's `readoffs`; asked for every AND that has a coefficient.
        layer: the construction's layer.

    Raises:
        InputError: a bad table or features, or an AND that the construction does not have.
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
    """The affine readoffs of neurons and features with the least worst error on these inputs.

    One linear programme a function: the layer is fixed, only how it is read is fitted.

    Raises InputError for a bad table or features.
    """
    inside = torch.from_numpy(on)
    own = layer.input(inside) @ layer.features.T
    held = torch.cat([layer.activations(inside), own], dim=1).numpy()
    read = [_minimax(held, values) for values in function_values(functions, on).T]
    weights = torch.from_numpy(np.array(read).reshape(len(functions), held.shape[1] + 1))
    n_neurons = layer.W_in.shape[1]
    return FunctionReadoffs(weights[:, :n_neurons], weights[:, n_neurons:-1], weights[:, -1])


def _minimax(
    held: Float[np.ndarray, "input place"], values: Bool[np.ndarray, " input"]
) -> Float[np.ndarray, " place_and_constant"]:
    """Weights and a constant that minimise max |held @ weights + constant - values|."""
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
        raise RuntimeError(f"the linear programme of a readoff failed: {least.message}")
    return np.asarray(least.x[:-1])
