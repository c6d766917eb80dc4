"""Universal keys: a head that attends where g(features) holds, with g chosen by the query token.

A key token stands for a set of at most l of n features, a query token for a boolean function g of
some of them. The first MLP computes ANDs of the key token's features, before g is known, with the
neurons of a construction of this package. The second layer's head has as its keys the features, the
neurons and a constant, and as its query g's affine readout of them. It scores a key token
sharpness x (readout - 1/2), so sharpness/2 where g holds and -sharpness/2 where it does not, up to
the readout's error, and any query token 0. So a query without a right key attends to itself.
The head copies the features of the attended token, which are the logits.
Source: "Computation in superposition", section 1.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.boolean_functions import Epsilon, epsilon
from interp_toolkit.data.composites import all_composites, count_composites
from interp_toolkit.errors import InputError
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.models.running.forward import run
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.superposition.layers.gates import BooleanFunction, function_values
from interp_toolkit.toys.superposition.layers.layer import FeatureLayer
from interp_toolkit.toys.superposition.layers.readouts import FunctionReadoffs
from interp_toolkit.toys.zeros import zeros

MOST_TOKENS = 20_000
HEAD = (1, 0)


@dataclass(frozen=True, eq=False)
class KeysGroundTruth(ShortRepr):
    """The ground truth of a model of universal keys.

    Attributes:
        head: layer and head that attend to keys for which the query's function holds.
        functions: functions of the query tokens, len(inputs) and after.
        inputs: the features of each key token.
        truth: whether each function holds on each key token.
        epsilon: errors of the readouts, over all key tokens and functions.
    """

    head: tuple[int, int]
    functions: tuple[BooleanFunction, ...]
    inputs: Bool[np.ndarray, "key_token feature"]
    truth: Bool[np.ndarray, "key_token function"]
    epsilon: Epsilon


@dataclass(frozen=True, eq=False)
class UniversalKeys(ShortRepr):
    """The head's parts; see the module.

    Attributes:
        functions: functions of the query tokens.
        layer: computes the ANDs, on features with an axis each.
        readoffs: readouts of the functions from the layer.
        most_on: largest number of features of a key token.
        sharpness: difference in score between a right and a wrong key.
        inputs: the features of each key token.
    """

    functions: tuple[BooleanFunction, ...]
    layer: FeatureLayer
    readoffs: FunctionReadoffs
    most_on: int
    sharpness: float
    inputs: Bool[np.ndarray, "key_token feature"]

    def truth(self) -> Bool[np.ndarray, "key_token function"]:
        """The values of each function on each key token."""
        return function_values(self.functions, self.inputs)

    def scores(self) -> Float[np.ndarray, "key_token function"]:
        """The readout of each function on each key token."""
        return self.readoffs.scores(self.layer, torch.from_numpy(self.inputs)).numpy()

    def epsilon(self) -> Epsilon:
        """The errors of the readouts over all key tokens and functions."""
        return epsilon(self.scores(), self.truth())

    def key_token(self, features: Sequence[int]) -> int:
        """The token of this set of features.

        Raises InputError for a set without a token.
        """
        n_features = self.inputs.shape[1]
        if any(not 0 <= i < n_features for i in features):
            raise InputError(f"the features {features} must be among 0..{n_features - 1}")
        active = np.zeros(n_features, dtype=bool)
        active[list(features)] = True
        matches = np.flatnonzero((self.inputs == active).all(axis=1))
        if not len(matches):
            raise InputError(f"no key token has more than {self.most_on} features: {features}")
        return int(matches[0])

    def query_token(self, function: int) -> int:
        """The query token of this function.

        Raises InputError for an unknown function.
        """
        if not 0 <= function < len(self.functions):
            raise InputError(f"function {function} is not in 0 to {len(self.functions) - 1}")
        return len(self.inputs) + function

    def rows(
        self, n_rows: int, n_keys: int, *, seed: int = 0
    ) -> tuple[Int[np.ndarray, "row pos"], Bool[np.ndarray, "row pos"]]:
        """Random prompts of key tokens and a query, and the positions that it should attend to.

        About half of a prompt's keys (at least one) are right for its function, if any key token
        is. If none is, the query should attend to itself.

        Raises InputError for prompts without keys.
        """
        if n_keys < 1 or n_rows < 1:
            raise InputError(f"n_rows is {n_rows} and n_keys {n_keys}; each must be at least 1")
        rng = np.random.default_rng(seed)
        truth = self.truth()
        tokens = np.empty((n_rows, n_keys + 1), dtype=np.int64)
        right = np.zeros(tokens.shape, dtype=bool)
        for row in range(n_rows):
            function = int(rng.integers(len(self.functions)))
            tokens[row, :-1] = _keys(truth[:, function], n_keys, rng)
            tokens[row, -1] = self.query_token(function)
            right[row, :-1] = truth[tokens[row, :-1], function]
        right[:, -1] = ~right.any(axis=1)
        return tokens, right

    def attention_on_right(
        self, n_rows: int, n_keys: int, *, seed: int = 0
    ) -> Float[np.ndarray, " row"]:
        """Fraction of the model's attention on matching keys, in each of n random prompts."""
        tokens, right = self.rows(n_rows, n_keys, seed=seed)
        model = self.as_model(n_ctx=n_keys + 1)
        attention: list[Tensor] = []
        layer, head = HEAD
        point = model.hook_dict[f"blocks.{layer}.attn.hook_pattern"]
        hook = (point, lambda pattern, hook: attention.append(pattern[:, head, -1]))
        run(model, torch.from_numpy(tokens), [hook])
        return np.asarray((attention[0].numpy() * right).sum(axis=1))

    @torch.no_grad()
    def as_model(self, name: str = "universal-keys", n_ctx: int = 32) -> Transformer:
        """Key tokens are 0, 1, ..., query tokens follow; the head is `HEAD`; in float64.

        `.ground_truth` is `KeysGroundTruth`.

        Raises InputError for no positions.
        """
        if n_ctx < 1:
            raise InputError(f"n_ctx is {n_ctx}: a model needs at least 1 position")
        n_keys, n_features = self.inputs.shape
        n_neurons, n_functions = len(self.layer.b_in), len(self.functions)
        held = n_features + n_neurons + 1  # entries of a key: features, neurons, the constant
        config = TransformerConfig(
            n_layers=2,
            d_model=held + n_functions,
            n_ctx=n_ctx,
            d_head=held,
            n_heads=1,
            d_vocab=n_keys + n_functions,
            d_vocab_out=n_features,
            d_mlp=n_neurons,
            act_fn="relu",
            biases=True,
            normalization_type=None,
            positional_embedding_type="none",
            use_attn_scale=False,
            dtype=torch.float64,
            model_name=name,
        )
        model = zeros(config)
        features, neurons = slice(n_features), slice(n_features, held - 1)
        model.embed.W_E[:n_keys, features] = torch.from_numpy(self.inputs).double()
        model.embed.W_E[:n_keys, held - 1] = 1.0
        model.embed.W_E[n_keys:, held:] = torch.eye(n_functions)
        layer, head = HEAD
        mlp, attn = model.blocks[0].mlp, model.blocks[layer].attn
        mlp.W_in[features] = self.layer.W_in
        mlp.b_in.copy_(self.layer.b_in)
        mlp.W_out[:, neurons] = torch.eye(n_neurons)
        attn.W_K[head, :held] = torch.eye(held)
        attn.W_Q[head, held:] = self.sharpness * self._queries()
        attn.W_V[head, features, features] = torch.eye(n_features)
        attn.W_O[head, features, features] = torch.eye(n_features)
        model.unembed.W_U[features] = torch.eye(n_features)
        model.eval()
        model.ground_truth = KeysGroundTruth(
            HEAD, self.functions, self.inputs, self.truth(), self.epsilon()
        )
        return model

    def _queries(self) -> Float[Tensor, "function held"]:
        constant = self.readoffs.constant[:, None] - 0.5
        return torch.cat([self.readoffs.features, self.readoffs.neurons, constant], dim=1)


def universal_keys(
    functions: Sequence[BooleanFunction],
    layer: FeatureLayer,
    readoffs: FunctionReadoffs,
    most_on: int,
    sharpness: float = 40.0,
) -> UniversalKeys:
    """The parts of such a head.

    Args:
        functions: functions of the query tokens.
        layer: the key tokens' MLP, such as the `layer` of a `universal_and` or `fan_in_and`.
        readoffs: readouts of the functions: from `function_readoffs` or `fitted_readoffs`.
        most_on: largest number of features of a key token.
        sharpness: difference in score between a right and a wrong key.

    Raises:
        InputError: features in superposition, squared neurons, too many key tokens, readouts that
            do not fit the functions, or no functions.
    """
    n_features = len(layer.features)
    if not torch.equal(layer.features, torch.eye(n_features, dtype=torch.float64)):
        raise InputError("universal keys need one axis for each key feature")
    if layer.activation != "relu":
        raise InputError("universal keys need ReLU neurons")
    n_tokens = count_composites(n_features, most_on)
    if n_tokens > MOST_TOKENS:
        raise InputError(
            f"{n_tokens} sets of up to {most_on} of {n_features} features make too many tokens "
            f"(more than {MOST_TOKENS})"
        )
    if not functions or len(functions) != len(readoffs.constant):
        raise InputError(
            f"{len(readoffs.constant)} readouts but {len(functions)} functions: "
            "give one function per readout"
        )
    inputs = all_composites(n_features, most_on)
    return UniversalKeys(tuple(functions), layer, readoffs, most_on, sharpness, inputs)


def _keys(
    truth: Bool[np.ndarray, " key_token"], n_keys: int, rng: np.random.Generator
) -> Int[np.ndarray, " key"]:
    """Random key tokens, about half of them right."""
    right, wrong = np.flatnonzero(truth), np.flatnonzero(~truth)
    n_right = max(1, n_keys // 2) if len(right) else 0
    if not len(wrong):
        n_right = n_keys
    keys = [rng.choice(pool, n) for pool, n in ((right, n_right), (wrong, n_keys - n_right)) if n]
    return np.concatenate(keys)
