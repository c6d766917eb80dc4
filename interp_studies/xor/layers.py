"""The layers that the XOR study asks: hand-set ones, and random ones with one condition changed.

A random layer has dense Gaussian weights of deviation 1/√d_model, so that attention is neither
uniform nor saturated, and learned positions. Each kind changes one condition of the theorem that
one head cannot separate XOR, and is read where a linear probe would read it.
Source: "How many attention heads do you need to do XOR?".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from interp_toolkit.data import FeatureData, truth_table
from interp_toolkit.models.running.streaming import collect
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.probes.estimators.boolean import TABLES, truth_values
from interp_toolkit.probes.estimators.separability import Separability, check_separability
from interp_toolkit.toys.hand_set import xor

D_MODEL, D_HEAD, D_MLP = 8, 4, 16
QUERY, SECOND_BIT = 2, 1  # positions
AFTER_BLOCK = "blocks.0.hook_resid_post"
AFTER_NORM = "ln_final.hook_normalized"
FUNCTIONS = ("or", "and", "xor")
INPUTS: FeatureData = truth_table(xor.task("xor", TABLES["xor"]))

#: the layers of the document, hand-set, by what they are called in tables
HAND_SET: Mapping[str, Callable[[], Transformer]] = {
    "one head (OR's)": xor.or_1head,
    "one head, writing places too": xor.xor_1head,
    "two heads": xor.xor_2head,
    "one head and an MLP": xor.xor_1head_mlp,
}
ZERO, ONE = xor.ZERO, xor.ONE
#: two hand-set heads: the tokens they look for, their scores, where they write
TWO_HEADS: Mapping[str, tuple[tuple[int, int], tuple[float, float], tuple[int, int]]] = {
    "one finds 0, one finds 1, orthogonal": ((ZERO, ONE), (1.0, 1.0), (ZERO, ONE)),
    "both write along the same direction": ((ZERO, ONE), (1.0, 1.0), (ZERO, ZERO)),
    "both avoid their token": ((ZERO, ONE), (-1.0, -1.0), (ZERO, ONE)),
    "one attends uniformly": ((ZERO, ONE), (1.0, 0.0), (ZERO, ONE)),
    "both attend uniformly": ((ZERO, ONE), (0.0, 0.0), (ZERO, ONE)),
    "both find 1, alike": ((ONE, ONE), (1.0, 1.0), (ZERO, ONE)),
    "both find 1, one more sharply": ((ONE, ONE), (1.0, 2.0), (ZERO, ONE)),
}


@dataclass(frozen=True)
class RandomLayers:
    """Random layers that differ from the theorem's in one condition.

    Attributes:
        name: in tables.
        changes: of the configuration.
        hook, position: where it is read.
        expected: whether the theorem says that none separates XOR; None where it says nothing.
    """

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    hook: str = AFTER_BLOCK
    position: int = QUERY
    expected: bool | None = None

    def layer(self, seed: int) -> Transformer:
        """One of them."""
        options: dict[str, Any] = {
            "n_layers": 1,
            "d_model": D_MODEL,
            "n_ctx": 3,
            "d_head": D_HEAD,
            "n_heads": 1,
            "d_vocab": 3,
            "d_vocab_out": 2,
            "attn_only": True,
            "biases": False,
            "normalization_type": None,
            "positional_embedding_type": "standard",
            "dtype": torch.float64,
            "initializer_range": D_MODEL**-0.5,
            "seed": seed,
        }
        model = Transformer(TransformerConfig(**(options | dict(self.changes))))
        model.eval()
        return model


KINDS = {
    "one-head": RandomLayers("one head", expected=True),
    "norm-before": RandomLayers(
        "one head behind a LayerNorm", {"normalization_type": "LN"}, expected=True
    ),
    "norm-after": RandomLayers(
        "one head, then a LayerNorm", {"normalization_type": "LN"}, hook=AFTER_NORM
    ),
    "sees-a-bit": RandomLayers("one head, read at the second bit", position=SECOND_BIT),
    "mlp": RandomLayers(
        "one head and a ReLU MLP",
        {"attn_only": False, "d_mlp": D_MLP, "act_fn": "relu", "biases": True},
    ),
    "two-heads": RandomLayers("two heads", {"n_heads": 2}),
}


def separability(
    model: Transformer, function: str, hook: str = AFTER_BLOCK, position: int = QUERY
) -> Separability:
    """Whether a hyperplane separates a function of the two bits there."""
    return check_separability(*classes(model, function, hook, position))


def classes(
    model: Transformer, function: str, hook: str = AFTER_BLOCK, position: int = QUERY
) -> tuple[Float[np.ndarray, "positive d"], Float[np.ndarray, "negative d"]]:
    """The activations of the inputs where the function is true, and where it is false."""
    X = collect(model, INPUTS, [hook], position)[hook].double().numpy()
    true = truth_values(TABLES[function], INPUTS.features)
    return X[true], X[~true]
