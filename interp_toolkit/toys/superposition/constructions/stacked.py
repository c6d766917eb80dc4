"""A sparse boolean circuit executed in superposition, layer after layer, also as a transformer.

Each layer of the circuit consists of boolean functions of one or two features of the previous layer
(ANDs, XORs, copies). Their ANDs are computed by chosen neurons (`targeted`), and the readouts
become the next layer's input: each function's readout times its own f-vector, random unit vectors
of fewer dimensions than there are functions. All of this is one linear map from neurons and input
to the next input, so the errors of one layer are carried into the next. The source ("Computation in
superposition", section 1.3) leaves open how they grow, and `errors` measures it. With `rounded`,
every readout is rounded to 0 or 1 between layers, which no linear map can do: it shows the errors
that one layer adds to a clean input.

As a transformer with one block per layer, the residual stream holds the input of every layer and
the last layer's readouts, on separate axes. The first head adds up the f-vectors of the prompt's
tokens at its last position (see `layers.layer`); other heads write nothing. Each MLP reads its
layer's axes and writes to the next one's. If functions depend on features directly, two ReLU
neurons for each axis, for x and -x, pass them on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, product

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp_toolkit.boolean_functions import Epsilon, epsilon, mobius
from interp_toolkit.data.composites import random_subsets
from interp_toolkit.errors import InputError
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.superposition.constructions.targeted import targeted_gates
from interp_toolkit.toys.superposition.layers.gates import (
    BooleanFunction,
    Gate,
    check_function,
    function_values,
)
from interp_toolkit.toys.superposition.layers.layer import FeatureLayer, adding_model
from interp_toolkit.toys.superposition.layers.readouts import FunctionReadoffs, function_readoffs

XOR, AND = "0110", "0001"
Circuit = Sequence[Sequence[BooleanFunction]]


@dataclass(frozen=True)
class LayerErrors:
    """The errors of a layer's functions over some inputs.

    Attributes:
        written: errors of the readouts of this layer.
        read: errors of the next layer's input along the functions' f-vectors; for the last layer
            equal to `written`.
    """

    written: Epsilon
    read: Epsilon


@dataclass(frozen=True, eq=False)
class CircuitGroundTruth(ShortRepr):
    """The ground truth of a model of a stacked circuit.

    Attributes:
        circuit: the functions of each layer, of the previous layer's features; the last are the
            logits.
        features: the f-vectors of each layer's input.
        hooks: hook points of each layer's neurons; neurons that pass features on come first.
        most_on: largest number of input features that are on together.
    """

    circuit: tuple[tuple[BooleanFunction, ...], ...]
    features: tuple[Float[np.ndarray, "_ _"], ...]
    hooks: tuple[str, ...]
    most_on: int


@dataclass(frozen=True, eq=False)
class StackedCircuit:
    """A circuit and the layers that execute it; see the module.

    Attributes:
        circuit: the functions of each layer, of the previous layer's features.
        layers: the neurons, and the f-vectors of the features that they read.
        readoffs: readouts of the functions, by layer.
    """

    circuit: tuple[tuple[BooleanFunction, ...], ...]
    layers: tuple[FeatureLayer, ...]
    readoffs: tuple[FunctionReadoffs, ...]

    def exact(self, on: Bool[np.ndarray, "input feature"]) -> list[Bool[np.ndarray, "input _"]]:
        """The circuit's values, layer by layer."""
        values = []
        for functions in self.circuit:
            on = function_values(functions, on)
            values.append(on)
        return values

    def scores(
        self, on: Bool[np.ndarray, "input feature"], *, rounded: bool = False
    ) -> list[tuple[Float[np.ndarray, "input _"], Float[np.ndarray, "input _"]]]:
        """Each layer's readouts, and the next layer's input along its functions' f-vectors.

        Args:
            on: inputs.
            rounded: round readouts to 0 or 1 before the next layer.
        """
        x = self.layers[0].input(torch.from_numpy(on))
        following = [layer.features for layer in self.layers[1:]]
        values = []
        for i, (layer, readoffs) in enumerate(zip(self.layers, self.readoffs, strict=True)):
            written = readoffs.scores_at(layer, x)
            read = written
            if i < len(following):
                x = ((written > 0.5).double() if rounded else written) @ following[i]
                read = x @ following[i].T
            values.append((written.numpy(), read.numpy()))
        return values

    def errors(
        self, on: Bool[np.ndarray, "input feature"], *, rounded: bool = False
    ) -> list[LayerErrors]:
        """The errors of each layer on these inputs; arguments as `scores`."""
        return [
            LayerErrors(epsilon(written, truth), epsilon(read, truth))
            for (written, read), truth in zip(
                self.scores(on, rounded=rounded), self.exact(on), strict=True
            )
        ]

    def inputs(self, n: int, most_on: int, *, seed: int = 0) -> Bool[np.ndarray, "input feature"]:
        """Random inputs on which functions of the last layer have a chance to be true.

        Half of them have `most_on` random features on. In the others, the features on which a
        random function of the last layer depends are on (a random subset, if there are more than
        `most_on`), and random others.

        Raises InputError for more features than there are.
        """
        n_features = len(self.layers[0].features)
        if n < 0:
            raise InputError(f"{n} inputs requested: give 0 or more")
        if not 1 <= most_on <= n_features:
            raise InputError(f"{most_on} features cannot be on at once; there are {n_features}")
        rng = np.random.default_rng(seed)
        on = np.zeros((n, n_features), dtype=bool)
        on[np.arange(n)[:, None], random_subsets(n, n_features, most_on, rng)] = True
        supports = self.supports()
        for row in range(n // 2):
            needed = supports[rng.integers(len(supports))]
            chosen = rng.permutation(needed)[:most_on]
            others = rng.permutation(np.setdiff1d(np.flatnonzero(on[row]), chosen))
            on[row] = False
            on[row, chosen] = True
            on[row, others[: most_on - len(chosen)]] = True
        return on

    def supports(self) -> list[tuple[int, ...]]:
        """The features of the input that each function of the last layer depends on."""
        return supports(self.circuit, len(self.layers[0].features))

    def as_model(self, most_on: int, name: str = "stacked-circuit") -> Transformer:
        """A model with one block for each layer; its logits are the last layer's readouts.

        `.ground_truth` is `CircuitGroundTruth`.

        Raises InputError for more features than there are, or so few that no function of the last
        layer is ever true.
        """
        least = max(1, self._least_on())
        if most_on < least:
            raise InputError(
                f"with at most {most_on} features on no function of the last layer is ever true: "
                f"give most_on = {least} or more"
            )
        model = stacked_model(self.layers, self.readoffs, most_on, name)
        model.ground_truth = CircuitGroundTruth(
            circuit=self.circuit,
            features=tuple(layer.features.numpy() for layer in self.layers),
            hooks=tuple(f"blocks.{i}.mlp.hook_post" for i in range(len(self.layers))),
            most_on=most_on,
        )
        return model

    def _least_on(self) -> int:
        """A lower bound on the features that must be on for a function of the last layer."""
        least = [1] * len(self.layers[0].features)
        for depth, functions in enumerate(self.circuit):
            combine = max if depth else sum
            least = [
                min(
                    (
                        combine([least[i] for i, bit in zip(f.features, bits, strict=True) if bit])
                        if any(bits)
                        else 0
                        for bits, value in zip(
                            product((0, 1), repeat=len(f.features)), f.table, strict=True
                        )
                        if value == "1"
                    ),
                    default=len(self.layers[0].features),
                )
                for f in functions
            ]
        return min(least)


def stacked_circuit(
    circuit: Circuit,
    n_features: int,
    n_neurons: int,
    neurons_per_gate: int,
    dims: Sequence[int | None],
    *,
    spread: bool = False,
    seed: int = 0,
) -> StackedCircuit:
    """The layers that execute a circuit.

    Args:
        circuit: functions of one or two features, layer by layer.
        n_features: number of features of the circuit's input.
        n_neurons: number of neurons of each layer.
        neurons_per_gate: number of neurons for each AND.
        dims: dimension of the f-vectors of each layer's input; None: an axis for each feature.
        spread: whether f-vectors are spread evenly instead of random.
        seed: random seed of f-vectors and neurons.

    Raises:
        InputError: functions of more than two features or of unknown ones, layers without an AND,
            a number of `dims` other than the number of layers, or sizes that cannot work (see
            `targeted_gates`).
    """
    if not circuit or len(dims) != len(circuit):
        raise InputError(
            f"dims has {len(dims)} entries for {len(circuit)} layers; give one per layer"
        )
    layers, readoffs, n_in = [], [], n_features
    for i, functions in enumerate(circuit):
        ands = _ands(functions, n_in)
        if not ands:
            raise InputError(f"layer {i} of the circuit has no AND or XOR to compute")
        computed = targeted_gates(
            ands,
            n_in,
            n_neurons,
            neurons_per_gate,
            dims[i],
            spread=spread,
            seed=seed + i,
        )
        rows = dict(zip(computed.gates, computed.readoffs(), strict=True))

        def of(gates: Sequence[Gate], rows: dict[Gate, Tensor] = rows) -> Tensor:
            return torch.stack([rows[tuple(sorted(gate))] for gate in gates])

        layers.append(computed.layer)
        readoffs.append(function_readoffs(functions, of, computed.layer))
        n_in = len(functions)
    functions_by_layer = tuple(tuple(functions) for functions in circuit)
    return StackedCircuit(functions_by_layer, tuple(layers), tuple(readoffs))


def random_circuit(
    n_features: int, widths: Sequence[int], *, xor_share: float = 0.0, seed: int = 0
) -> list[list[BooleanFunction]]:
    """Layers of ANDs (and a fraction of XORs) of random distinct pairs of the previous layer.

    Raises InputError for a fraction outside 0..1, or more functions than pairs.
    """
    if not 0 <= xor_share <= 1:
        raise InputError(f"the fraction of XORs must be between 0 and 1, not {xor_share}")
    rng = np.random.default_rng(seed)
    circuit, n_in = [], n_features
    for width in widths:
        first, second = np.triu_indices(n_in, 1)
        if not 1 <= width <= len(first):
            raise InputError(
                f"a layer has {width} functions; it needs at least 1, and at most one for each of "
                f"the {len(first)} pairs of its {n_in} inputs"
            )
        chosen = rng.choice(len(first), width, replace=False)
        tables = np.where(rng.random(width) < xor_share, XOR, AND)
        circuit.append(
            [
                BooleanFunction(str(table), (int(first[pair]), int(second[pair])))
                for table, pair in zip(tables, chosen, strict=True)
            ]
        )
        n_in = width
    return circuit


def supports(circuit: Circuit, n_features: int) -> list[tuple[int, ...]]:
    """The features of the input that each function of the last layer depends on."""
    sets = [{i} for i in range(n_features)]
    for functions in circuit:
        sets = [set().union(*(sets[i] for i in f.features)) for f in functions]
    return [tuple(sorted(support)) for support in sets]


def _ands(functions: Sequence[BooleanFunction], n_features: int) -> list[Gate]:
    """The pairs whose AND has a nonzero coefficient in some function."""
    gates: dict[Gate, None] = {}
    for function in functions:
        check_function(function, n_features)
        if len(function.features) > 2:
            raise InputError(f"{function} has more than two features: spread it over two layers")
        if (0, 1) in mobius(function.table):
            gates[tuple(sorted(function.features))] = None
    return list(gates)


@torch.no_grad()
def stacked_model(
    layers: Sequence[FeatureLayer],
    readoffs: Sequence[FunctionReadoffs],
    most_on: int,
    name: str,
) -> Transformer:
    """The layers as a model (see the module), in float64; its logits are the last readouts.

    Args:
        layers: each reads the f-vectors of the previous layer's functions.
        readoffs: readouts of each layer's functions.
        most_on: the largest number of features that are on together.
        name: name of the model.

    Raises:
        InputError: layers whose sizes do not match, or that are not ReLU layers; no features that
            are on together.
    """
    n_out = len(readoffs[-1].constant)
    widths = [len(layer.features) for layer in layers[1:]]
    if widths != [len(r.constant) for r in readoffs[:-1]]:
        raise InputError(
            "each layer must read as many features as the previous layer has functions"
        )
    if any(layer.activation != "relu" for layer in layers):
        raise InputError("only ReLU layers can be stacked")
    targets = [layer.features for layer in layers[1:]]
    targets.append(torch.eye(n_out, dtype=torch.float64))
    blocks = [_mlp(*parts) for parts in zip(layers, readoffs, targets, strict=True)]
    starts = list(accumulate((layer.features.shape[1] for layer in layers), initial=0))
    widest = max(len(b_in) for _, b_in, _, _ in blocks)
    first, n_layers = layers[0].features, len(blocks)
    model = adding_model(first, most_on, n_out, starts[-1], widest, name, n_layers=n_layers)
    ends = [*starts[1:], starts[-1] + n_out]
    for block, (W_in, b_in, W_out, b_out), start, end, stop in zip(
        model.blocks, blocks, starts, starts[1:], ends[1:], strict=False
    ):
        n_neurons = len(b_in)
        block.mlp.W_in[start:end, :n_neurons] = W_in
        block.mlp.b_in[:n_neurons] = b_in
        block.mlp.W_out[:n_neurons, end:stop] = W_out
        block.mlp.b_out[end:stop] = b_out
    model.eval()
    return model


def _mlp(
    layer: FeatureLayer, readoffs: FunctionReadoffs, target: Float[Tensor, "function d_out"]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """W_in, b_in, W_out, b_out of the block that writes each function along its target."""
    W_in, b_in, W_out = layer.W_in, layer.b_in, readoffs.neurons.T @ target
    if readoffs.features.any():
        axes = torch.eye(layer.features.shape[1], dtype=torch.float64)
        passed = layer.features.T @ readoffs.features.T @ target
        W_in = torch.cat([W_in, axes, -axes], dim=1)
        b_in = torch.cat([b_in, torch.zeros(2 * len(axes), dtype=torch.float64)])
        W_out = torch.cat([W_out, passed, -passed])
    return W_in, b_in, W_out, readoffs.constant @ target
