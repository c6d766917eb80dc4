"""The constructions at sizes that build quickly: `toy:uand`, `toy:uand-fan-in-3` and others.

Each has `.ground_truth` (see `layers.layer.GatesGroundTruth`). All except universal keys read
prompts made by `data.composites` with the task record's sizes; `constructions.universal_keys`
describes the tokens of the exception.
"""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import Any

import torch

from interp_toolkit.data.composites import all_composites
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.registry import Toy
from interp_toolkit.toys.superposition.constructions.fan_in import fan_in_and, quadratic_and
from interp_toolkit.toys.superposition.constructions.stacked import (
    StackedCircuit,
    random_circuit,
    stacked_circuit,
    supports,
)
from interp_toolkit.toys.superposition.constructions.targeted import (
    separate_ands,
    superposed_and,
    targeted_gates,
)
from interp_toolkit.toys.superposition.constructions.uand import (
    UniversalAND,
    and_layer,
    universal_and,
)
from interp_toolkit.toys.superposition.constructions.universal_keys import (
    UniversalKeys,
    universal_keys,
)
from interp_toolkit.toys.superposition.layers.gates import (
    BooleanFunction,
    function_of,
    random_gates,
)
from interp_toolkit.toys.superposition.layers.readouts import fitted_readoffs, function_readoffs

SOURCE = "Computation in superposition, sections 1.1 to 1.3"
MOST_ON = 3

N_FEATURES, N_NEURONS = 32, 1_024
N_SUPERPOSED, D_SUPERPOSED, N_SUPERPOSED_NEURONS = 72, 64, 2_048
N_TARGETED, D_TARGETED, N_TARGETED_NEURONS, N_TARGETS, NEURONS_PER_GATE = 256, 128, 256, 64, 4
TARGETS = random_gates(N_TARGETED, N_TARGETS)


def uand() -> Transformer:
    """Universal AND on 32 features, 1,024 neurons; it writes (0, 1), (2, 3), ... (14, 15).

    In the worst case, its own readouts are better than affine ones with two features on, but not
    with three; readouts fitted to its neurons are better with three, too (`--probe uand`).
    """
    return universal_and(N_FEATURES, N_NEURONS).as_model(MOST_ON, name="uand")


def uand_superposed() -> Transformer:
    """Universal AND on 72 features on 64 axes, 2,048 neurons.

    At this size, interference makes its own readouts worse than affine ones in the worst case.
    """
    built = superposed_and(N_SUPERPOSED, D_SUPERPOSED, N_SUPERPOSED_NEURONS)
    return built.as_model(MOST_ON, name="uand-superposed")


def uand_targeted() -> Transformer:
    """64 random pairs of 256 features on 128 axes, by 256 neurons, 4 per pair; all are written."""
    built = targeted_gates(TARGETS, N_TARGETED, N_TARGETED_NEURONS, NEURONS_PER_GATE, D_TARGETED)
    return built.as_model(MOST_ON)


def pairs_and_triples(n_features: int) -> UniversalAND:
    """A layer with one neuron for every pair of features and one for every triple, pairs first.

    A pair has m - 1 neurons, its own and m - 2 triples', and shares one with each third feature, so
    that every t is 1/(m-1). With at most l on, the worst error is (l-1)/(m-1), and (l-1)/(2(m-1))
    after the best gain and bias (with both on, scores exceed 1 by at most (l-2)/(m-1)).
    """
    sets = [s for size in (2, 3) for s in combinations(range(n_features), size)]
    connections = torch.zeros(n_features, len(sets), dtype=torch.bool)
    for neuron, members in enumerate(sets):
        connections[list(members), neuron] = True
    layer = and_layer(connections, torch.eye(n_features, dtype=torch.float64))
    density = float(connections.double().mean())
    return UniversalAND(layer, connections, density, "by hand", seed=0)


def _task(name: str, n_features: int, **further: Any) -> dict[str, Any]:
    sizes = {"n_features": n_features, "most_on": MOST_ON}
    return {"function": "uand", **sizes, "name": name, **further}


UAND = Toy(
    "uand",
    "a ReLU layer that computes the AND of all pairs of 32 features",
    uand,
    _task("uand", N_FEATURES),
    SOURCE,
)
UAND_SUPERPOSED = Toy(
    "uand-superposed",
    "a ReLU layer that computes the AND of all pairs of 72 features in 64 dimensions",
    uand_superposed,
    _task("uand-superposed", N_SUPERPOSED),
    SOURCE,
)
UAND_TARGETED = Toy(
    "uand-targeted",
    "a ReLU layer that computes 64 chosen ANDs of 256 features in 128 dimensions",
    uand_targeted,
    _task("uand-targeted", N_TARGETED, gates=[list(gate) for gate in TARGETS]),
    SOURCE,
)


TRIPLES, TRIPLE_NEURONS, TRIPLE_DENSITY, TRIPLE_MOST_ON = 15, 1_024, 0.36, 4
SQUARED, SQUARED_DIM, SQUARED_MOST_ON = 40, 24, 3
STACKED, STACKED_WIDTHS, STACKED_DIMS, STACKED_MOST_ON = 64, (48, 24), (None, 40), 5
STACKED_NEURONS, STACKED_PER_GATE = 1_024, 8
STACKED_PLAN = random_circuit(STACKED, STACKED_WIDTHS)
KEY_FEATURES, KEY_MOST_ON, KEY_FAN_IN, KEY_NEURONS, KEY_DENSITY = 10, 3, 5, 112, 0.4
KEY_SHARPNESS = 60.0

#: functions of the universal keys' queries; the first is the source's example
KEY_FUNCTIONS: tuple[BooleanFunction, ...] = (
    function_of(lambda f1, f4, f9, f2, f8: (f1 and f4 and not f9) or f2 != f8, (1, 4, 9, 2, 8)),
    function_of(lambda a, b: a and b, (0, 3)),
    function_of(lambda a, b: a != b, (5, 7)),
    function_of(lambda a, b, c: a + b + c > 1, (3, 6, 9)),
    function_of(lambda a, b, c: (a != b) != c, (0, 4, 8)),
    function_of(lambda a, b: a and not b, (2, 6)),
)


def uand_fan_in_3() -> Transformer:
    """Universal AND of fan-in 3 on 15 features, 1,024 neurons; it writes (0, 1, 2), (3, 4, 5)...

    Over all triples, the errors of its own readouts are at most 0.64 with three features on, 1.18
    with four.
    """
    gates = [(i, i + 1, i + 2) for i in range(0, TRIPLES, 3)]
    return fan_in_and(TRIPLES, TRIPLE_NEURONS, 3, TRIPLE_DENSITY).as_model(gates, TRIPLE_MOST_ON)


def uand_quadratic() -> Transformer:
    """Universal AND on 40 features on 24 axes by 300 squares; it writes (0, 1), (2, 3), ...

    At this size, single readouts have errors above 1. Over inputs with up to three on, the root
    mean square is 0.49 with both features of a pair on and 0.36 with one, over all pairs.
    """
    gates = [(i, i + 1) for i in range(0, SQUARED, 2)]
    return quadratic_and(SQUARED, SQUARED_DIM).as_model(gates, SQUARED_MOST_ON)


def stacked() -> StackedCircuit:
    """Two layers of random ANDs: 48 of pairs of 64 features, kept on 40 axes, and 24 of those.

    The 48 are spread evenly over the 40 axes: along random f-vectors the worst errors of the second
    layer's ANDs would exceed 1/4, that of an affine function.
    """
    sizes = STACKED, STACKED_NEURONS, STACKED_PER_GATE, STACKED_DIMS
    return stacked_circuit(STACKED_PLAN, *sizes, spread=True)


def stacked_model() -> Transformer:
    """`stacked` as a model."""
    return stacked().as_model(STACKED_MOST_ON)


def keys(*, superposed: bool = True) -> UniversalKeys:
    """Universal keys of sets of up to 3 of 10 features, for six functions.

    Superposed, 112 neurons of a random universal AND layer are read by fitted readouts, fewer than
    the 165 ANDs of two or three features. Otherwise each AND of up to 5 features has a neuron, and
    there is no error.
    """
    functions = list(KEY_FUNCTIONS)
    if superposed:
        layer = fan_in_and(KEY_FEATURES, KEY_NEURONS, 2, KEY_DENSITY).layer
        readoffs = fitted_readoffs(functions, layer, all_composites(KEY_FEATURES, KEY_MOST_ON))
    else:
        ands = separate_ands(KEY_FEATURES, KEY_FAN_IN)
        layer, readoffs = ands.layer, function_readoffs(functions, ands.readoffs, ands.layer)
    return universal_keys(functions, layer, readoffs, KEY_MOST_ON, KEY_SHARPNESS)


def keys_model(*, superposed: bool = True) -> Transformer:
    """`keys` as a model."""
    name = "universal-keys" if superposed else "universal-keys-separate"
    return keys(superposed=superposed).as_model(name)


_KEYS_TASK = {
    "function": "universal-keys",
    "key_features": KEY_FEATURES,
    "features_on": KEY_MOST_ON,
    "functions": [[f.table, list(f.features)] for f in KEY_FUNCTIONS],
}
UAND_FAN_IN_3 = Toy(
    "uand-fan-in-3",
    "a ReLU layer that computes the AND of all triples of 15 features",
    uand_fan_in_3,
    {"function": "uand", "fan_in": 3, "n_features": TRIPLES, "most_on": TRIPLE_MOST_ON},
    "Computation in superposition, section 1.4",
)
UAND_QUADRATIC = Toy(
    "uand-quadratic",
    "300 quadratic neurons that compute the AND of all pairs of 40 features in 24 dimensions",
    uand_quadratic,
    {"function": "uand", "n_features": SQUARED, "most_on": SQUARED_MOST_ON},
    "Computation in superposition, section 1.5",
)
STACKED_CIRCUIT = Toy(
    "stacked-circuit",
    "two layers that compute chosen ANDs; the second reads features in superposition",
    stacked_model,
    {
        "function": "stacked-circuit",
        "n_features": STACKED,
        "most_on": STACKED_MOST_ON,
        "gates": [list(support) for support in supports(STACKED_PLAN, STACKED)],
    },
    "Computation in superposition, section 1.3",
)
UNIVERSAL_KEYS = Toy(
    "universal-keys",
    "one head that attends where the query token's boolean function of the key's features is true",
    keys_model,
    _KEYS_TASK,
    "Computation in superposition, section 1.6",
)
UNIVERSAL_KEYS_SEPARATE = Toy(
    "universal-keys-separate",
    "as universal-keys, with one neuron per AND, so without error",
    partial(keys_model, superposed=False),
    _KEYS_TASK,
    "Computation in superposition, section 1.6",
)
