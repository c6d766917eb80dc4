"""The layers of the XOR study, hand-set, random and trained, and the functions that they separate.

A random layer has Gaussian weights of standard deviation 1/√d_model, so that attention is neither
uniform nor saturated, and learned positions. Each kind of random layer violates one condition of
the theorem that one head cannot separate XOR, and is read where a linear probe would read it.
Separability is decided by a hyperplane or a certificate (see `probes.estimators.separability`),
never by the failure of a fit.
Source: "How many attention heads do you need to do XOR?".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from interp_studies.jobs.attempt import Outcome
from interp_studies.train_seed import train_seed
from interp_toolkit.data import FeatureData, truth_table
from interp_toolkit.models.running.streaming import collect
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.probes.boolean import theorem
from interp_toolkit.probes.estimators.separability import Separability, check_separability
from interp_toolkit.probes.estimators.truth_tables import TABLES, truth_values
from interp_toolkit.toys.hand_set import xor
from interp_toolkit.training.engine.run_files import end_run
from interp_toolkit.training.xor import loss_floor

PATTERN = "blocks.0.attn.hook_pattern"
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
    """Random layers that violate one condition of the theorem.

    Attributes:
        name: name in tables.
        changes: changes of the configuration.
        hook, position: where activations are read.
        expected: whether the theorem implies that no layer separates XOR; None if it implies
            nothing.
    """

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    hook: str = AFTER_BLOCK
    position: int = QUERY
    expected: bool | None = None

    def layer(self, seed: int) -> Transformer:
        """A random layer of this kind."""
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
    """Whether a hyperplane separates a function of the two bits in the activations at this hook."""
    return check_separability(*classes(model, function, hook, position))


def classes(
    model: Transformer, function: str, hook: str = AFTER_BLOCK, position: int = QUERY
) -> tuple[Float[np.ndarray, "positive d"], Float[np.ndarray, "negative d"]]:
    """The activations of inputs for which the function is true, and for which it is false."""
    X = collect(model, INPUTS, [hook], position)[hook].double().numpy()
    true = truth_values(TABLES[function], INPUTS.features)
    return X[true], X[~true]


def hand_set(*, folder: Path) -> Outcome:
    """The functions that each hand-set layer separates; attention and scores of both heads."""

    def verdict(model: Transformer, function: str) -> dict[str, Any]:
        found = separability(model, function)
        return {"status": found.status, "margin": found.margin if found.margin > 0 else None}

    models = {name: build() for name, build in HAND_SET.items()}
    model = xor.xor_2head()
    read = collect(model, INPUTS, [PATTERN, "blocks.0.hook_attn_out"], QUERY)
    scores = read["blocks.0.hook_attn_out"].sum(-1)  # along (1, 1)
    return Outcome(
        {
            "verdicts": {
                name: {f: verdict(model, f) for f in FUNCTIONS} for name, model in models.items()
            },
            "two_heads": {n: verdict(xor.two_heads(*v), "xor") for n, v in TWO_HEADS.items()},
            "inputs": ["".join(str(int(b)) for b in row) for row in INPUTS.features],
            "attention": read[PATTERN].tolist(),
            "scores": scores.tolist(),
        }
    )


def random_layers(*, folder: Path, kind: str, n_layers: int, seed: int) -> Outcome:
    """The number of random layers of a kind that separate XOR, and certificates."""
    chosen = KINDS[kind]
    counts: Counter[str] = Counter()
    worst = 0.0
    for number in range(n_layers):
        model = chosen.layer(1_000_003 * seed + number)
        counts[separability(model, "xor", chosen.hook, chosen.position).status] += 1
        if chosen.expected:
            worst = max(worst, _certificate_error(model))
    return Outcome({"kind": kind, "seed": seed, "layers": n_layers, **counts, "residual": worst})


def _certificate_error(model: Any) -> float:
    """The relative residual of the softmax denominators; infinite if the theorem does not apply."""
    table = TABLES["xor"]
    if theorem.why_not(model, INPUTS, table, AFTER_BLOCK, QUERY) is not None:
        return float("inf")
    found = theorem.denominators(model, INPUTS, table, QUERY)
    if isinstance(found, str):
        return float("inf")
    X_positive, X_negative = classes(model, "xor")
    scale = max(float(abs(X).max()) for X in (X_positive, X_negative))
    return found.certificate(X_positive, X_negative).residual / scale


def trained(
    *, folder: Path, settings: Mapping[str, Any], function: str, seed: int, device: str
) -> Outcome:
    """Train one layer; returns its answers, its loss, and whether its output separates."""
    given = {**settings, "table": TABLES[function]}
    config, run = train_seed("xor", given, seed, device, folder)
    model = run.model.double()
    with torch.no_grad():
        logits = model(torch.as_tensor(INPUTS.token_matrix()))[:, -1]
    answers = torch.tensor([int(bit) for bit in TABLES[function]])
    values = {
        "seed": seed,
        "function": function,
        "loss": float(torch.nn.functional.cross_entropy(logits, answers)),
        "right": int((logits.argmax(-1) == answers).sum()),
        "floor": loss_floor(config),
        "status": separability(model, function).status,
    }
    end_run(folder)
    return Outcome(values)
