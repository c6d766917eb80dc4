"""One attention head cannot separate XOR: the theorem, and its certificate on a given model.

From a query that does not see the bits, a head's update is `N / Z`, with `Z = Σ exp(score)` over
the keys and `N = Σ exp(score) value`. Every key sees at most one of the two bits, so both are
a function of `a` plus a function of `b`, and so `Z00 + Z11 = Z01 + Z10`, `N00 + N11 = N01 + N10`.
Divided by the former, the latter says that the convex combination of the updates of 00 and 11
with weights `Z00, Z11` is that of 01 and 10 with weights `Z01, Z10`: the softmax denominators
are a certificate that no hyperplane separates the classes, in exact arithmetic and for any
dimension, embedding and position. Source: "How many attention heads do you need to do XOR?",
section "One attention head cannot do XOR".

The theorem is claimed only where its hypotheses hold, each checked here on the model and data at
hand; the certificate is then verified on the very activations, in the model's own precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from interp_toolkit.data import FeatureData
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.streaming import collect
from interp_toolkit.models.weights.view import weights
from interp_toolkit.probes.estimators.boolean import truth_values
from interp_toolkit.probes.estimators.separability import FLOORS
from interp_toolkit.probes.estimators.witness import Certificate

XOR_TABLES = ("0110", "1001")
RESIDUAL = "blocks.0.hook_resid_pre"
SCORES, PATTERN = "blocks.0.attn.hook_attn_scores", "blocks.0.attn.hook_pattern"
QUERIES, KEYS = "blocks.0.attn.hook_q", "blocks.0.attn.hook_k"
#: the update, plus a constant; with a bridge's own names for them
SITES = (
    "blocks.0.hook_attn_out",
    "blocks.0.attn.hook_out",
    "blocks.0.hook_resid_post",
    "blocks.0.hook_out",
)


@dataclass(frozen=True)
class Denominators:
    """The softmax denominators as a certificate.

    Attributes:
        positive_weights: normalised denominators of the rows labelled 1, in the data's order.
        negative_weights: of the rows labelled 0.
        sum_difference: |Z00 + Z11 - Z01 - Z10| over their total; 0 in exact arithmetic.
    """

    positive_weights: Float[np.ndarray, " 2"]
    negative_weights: Float[np.ndarray, " 2"]
    sum_difference: float

    def certificate(
        self, X_positive: Float[np.ndarray, "2 d"], X_negative: Float[np.ndarray, "2 d"]
    ) -> Certificate:
        """The certificate with its residual as verified on these activations."""
        bare = Certificate(self.positive_weights, self.negative_weights, np.inf)
        residual = bare.verify(X_positive, X_negative)
        return Certificate(self.positive_weights, self.negative_weights, residual)


def verifies(certificate: Certificate, X: Float[np.ndarray, "4 d"], precision: str) -> bool:
    """Whether the residual is within the precision of the activations' size."""
    scale = np.linalg.norm(X, axis=1).max()
    return bool(certificate.residual <= FLOORS[precision] * scale)


def why_not(model: Model, data: FeatureData, table: str, hook: str, position: int) -> str | None:
    """The hypothesis that fails here, in a few words; None when the theorem applies."""
    cfg = model.cfg
    if table not in XOR_TABLES:
        return "the function is not XOR"
    if cfg.n_layers != 1:
        return f"the model has {cfg.n_layers} layers"
    if cfg.n_heads != 1:
        return f"the layer has {cfg.n_heads} heads"
    if not cfg.attn_only:
        return "the layer has an MLP"
    if getattr(cfg, "use_normalization_before_and_after", False):
        return "the head's output is normalised"
    if getattr(cfg, "use_attention_sinks", False):
        return "attention has a learned sink"
    if getattr(cfg, "mixing", None) is not None:
        return "fixed matrices mix instead of a softmax"
    if hook not in SITES:
        return f"{hook} is not the head's update plus a constant"
    return _data_unfit(data, position)


def _data_unfit(data: FeatureData, position: int) -> str | None:
    features = data.features
    if features.shape != (4, 2) or len(np.unique(features, axis=0)) != 4:
        return "the data is not the four inputs of the truth table"
    if len(np.unique(data.lengths)) != 1:
        return "the four prompts differ in length"
    tokens = data.token_matrix()
    if len(np.unique(tokens[:, position])) != 1:
        return "the query's own token depends on the bits"
    for place in range(tokens.shape[1]):
        if not any(_function_of(tokens[:, place], features[:, bit]) for bit in (0, 1)):
            return f"the token at position {place} depends on both bits"
    return None


def _function_of(values: Int[np.ndarray, " n"], bit: Bool[np.ndarray, " n"]) -> bool:
    return all(len(np.unique(values[bit == side])) == 1 for side in (False, True))


def denominators(model: Model, data: FeatureData, table: str, position: int) -> Denominators | str:
    """The softmax denominators of the four inputs, from the model's own attention scores.

    Returns a reason instead, in a few words, when the query's residual before the head turns out
    to depend on the bits (its token does not, but something else in the model may make it so), or
    when the attention pattern is not the softmax of the scores.
    """
    read = collect(model, data, [RESIDUAL, SCORES, PATTERN], position)
    if not torch.equal(read[RESIDUAL], read[RESIDUAL][:1].expand_as(read[RESIDUAL])):
        return "the query's residual depends on the bits"
    tolerance = 10 * FLOORS[str(read[PATTERN].dtype).removeprefix("torch.")]
    pattern = read[PATTERN][:, 0].double()
    score = read[SCORES][:, 0].double()
    if not torch.allclose(score.softmax(-1), pattern, rtol=0, atol=tolerance):
        score = _scores_from_weights(model, data, position)  # native bridges hook no scores
    if not torch.allclose(score.softmax(-1), pattern, rtol=0, atol=tolerance):
        return "the pattern is not the softmax of the attention scores"
    # One shift for the four inputs: a shift per row would break the identity.
    Z = (score - score.max()).exp().sum(dim=-1).numpy()
    positive = truth_values(table, data.features)
    sums = Z[positive].sum(), Z[~positive].sum()
    return Denominators(
        positive_weights=Z[positive] / sums[0],
        negative_weights=Z[~positive] / sums[1],
        sum_difference=float(abs(sums[0] - sums[1]) / (sums[0] + sums[1])),
    )


def _scores_from_weights(
    model: Model, data: FeatureData, position: int
) -> Float[torch.Tensor, "4 pos"]:
    """The query's scores, computed from its query and the keys; masked ones are -inf."""
    layer = weights(model).layer(0)
    read = collect(model, data, [QUERIES, KEYS], "all")
    q, k = (read[hook].double() for hook in (QUERIES, KEYS))
    hidden = ~layer.visible(q.shape[1])
    scores: torch.Tensor = layer.scores(q, k).masked_fill(hidden, -torch.inf)
    return scores[:, 0, position]
