"""The theorem on too few attention heads, and its certificate on a concrete model.

From a query that does not see the bits, a head's update is `N / Z`, with `Z = Σ exp(score)` over
the keys and `N = Σ exp(score) value`. Every key sees at most one bit, so both are affine functions
of the bits. Multiplied by all heads' Z, the updates of h heads are polynomials of degree h, and so
is every linear readout of them minus its threshold; the factor does not change its sign. Therefore
**h heads cannot separate a function whose threshold degree is above h**, in any dimension and with
any embedding. XOR has degree 2, so one head fails; the parity of n bits needs n heads.

The weights mu that balance all monomials of degree h between the classes (see `threshold_degree`)
give the certificate: the convex combination of the updates with weights proportional to
`mu(x) Π_h Z_h(x)` is the same for both classes. For XOR mu is 1 everywhere, and the softmax
denominators themselves are the weights: `Z00 u00 + Z11 u11 = Z01 u01 + Z10 u10`.
Source: "How many attention heads do you need to do XOR?", section "One attention head cannot do
XOR", for two bits; the step to h heads and n bits is this project's (`docs/open/boolean-heads.md`).

The theorem is applied only if its hypotheses hold, each checked here on the model and data. The
certificate is then verified on the actual activations, in the model's own precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from interp_toolkit.boolean_functions import MOST_BITS, threshold_degree
from interp_toolkit.data import FeatureData
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.streaming import collect
from interp_toolkit.models.weights.view import weights
from interp_toolkit.probes.estimators.separability import TOLERANCES, Certificate
from interp_toolkit.probes.estimators.truth_tables import truth_values

RESIDUAL = "blocks.0.hook_resid_pre"
SCORES, PATTERN = "blocks.0.attn.hook_attn_scores", "blocks.0.attn.hook_pattern"
QUERIES, KEYS = "blocks.0.attn.hook_q", "blocks.0.attn.hook_k"
#: hook points of the update plus a constant, including TransformerBridge's names
SITES = (
    "blocks.0.hook_attn_out",
    "blocks.0.attn.hook_out",
    "blocks.0.hook_resid_post",
    "blocks.0.hook_out",
)


@dataclass(frozen=True)
class Denominators(ShortRepr):
    """Products of the softmax denominators, weighted by mu, as a certificate.

    Attributes:
        positive_weights: normalized weights of the rows labeled 1, in the data's order.
        negative_weights: normalized weights of the rows labeled 0.
        sum_difference: difference of the two classes' sums, relative to their total; 0 in exact
            arithmetic.
    """

    positive_weights: Float[np.ndarray, " positive"]
    negative_weights: Float[np.ndarray, " negative"]
    sum_difference: float

    def certificate(
        self,
        X_positive: Float[np.ndarray, "positive d"],
        X_negative: Float[np.ndarray, "negative d"],
    ) -> Certificate:
        """The certificate with its residual as verified on these activations."""
        bare = Certificate(self.positive_weights, self.negative_weights, np.inf)
        residual = bare.verify(X_positive, X_negative)
        return Certificate(self.positive_weights, self.negative_weights, residual)


def verifies(certificate: Certificate, X: Float[np.ndarray, "row d"], precision: str) -> bool:
    """Whether the residual is within the precision of the activations' size."""
    scale = np.linalg.norm(X, axis=1).max()
    return bool(certificate.residual <= TOLERANCES[precision] * scale)


def why_not(model: Model, data: FeatureData, table: str, hook: str, position: int) -> str | None:
    """The hypothesis that fails here, as a phrase; None if the theorem applies."""
    cfg = model.cfg
    if cfg.n_layers != 1:
        return f"the model has {cfg.n_layers} layers"
    if len(table) > 2**MOST_BITS:
        return f"the function has more than {MOST_BITS} features"
    enough = threshold_degree(table).degree
    if cfg.n_heads >= enough:
        return f"{enough} heads are not too few" if enough > 1 else "one head is not too few"
    if not cfg.attn_only:
        return "the layer has an MLP"
    if getattr(cfg, "use_normalization_before_and_after", False):
        return "the head's output is normalized"
    if getattr(cfg, "use_attention_sinks", False):
        return "attention has a learned sink"
    if getattr(cfg, "mixing", None) is not None:
        return "fixed matrices mix instead of a softmax"
    if hook not in SITES:
        return f"{hook} is not the head's update plus a constant"
    return _data_unfit(data, len(table), position)


def _data_unfit(data: FeatureData, n_inputs: int, position: int) -> str | None:
    features = data.features
    if len(features) != n_inputs or len(np.unique(features, axis=0)) != n_inputs:
        return f"the data is not the {n_inputs} inputs of the truth table"
    if len(np.unique(data.lengths)) != 1:
        return "the prompts differ in length"
    tokens = data.token_matrix()
    if len(np.unique(tokens[:, position])) != 1:
        return "the query's own token depends on the bits"
    for i in range(tokens.shape[1]):
        if not any(_function_of(tokens[:, i], bit) for bit in features.T):
            return f"the token at position {i} depends on several bits"
    return None


def _function_of(values: Int[np.ndarray, " n"], bit: Bool[np.ndarray, " n"]) -> bool:
    return all(len(np.unique(values[bit == side])) == 1 for side in (False, True))


def denominators(model: Model, data: FeatureData, table: str, position: int) -> Denominators | str:
    """Weighted products of the softmax denominators, from the model's own attention scores.

    Returns a reason instead, as a phrase, if the attention pattern is not the softmax of the
    scores, or if the query's residual before the head depends on the bits. Other parts of the model
    may cause that dependence even though the query's token does not.
    """
    read = collect(model, data, [RESIDUAL, SCORES, PATTERN], position)
    if not torch.equal(read[RESIDUAL], read[RESIDUAL][:1].expand_as(read[RESIDUAL])):
        return "the query's residual depends on the bits"
    tolerance = 10 * TOLERANCES[str(read[PATTERN].dtype).removeprefix("torch.")]
    pattern = read[PATTERN].double()
    score = read[SCORES].double()
    if not torch.allclose(score.softmax(-1), pattern, rtol=0, atol=tolerance):
        score = _scores_from_weights(model, data, position)  # native bridges have no score hook
    if not torch.allclose(score.softmax(-1), pattern, rtol=0, atol=tolerance):
        return "the pattern is not the softmax of the attention scores"
    # One shift per head for all inputs: a shift per row would break the identity.
    log_z = score.logsumexp(dim=-1).sum(dim=1)
    products = _mu(table, data) * (log_z - log_z.max()).exp().numpy()
    positive = truth_values(table, data.features)
    sums = products[positive].sum(), products[~positive].sum()
    return Denominators(
        positive_weights=products[positive] / sums[0],
        negative_weights=products[~positive] / sums[1],
        sum_difference=float(abs(sums[0] - sums[1]) / (sums[0] + sums[1])),
    )


def _mu(table: str, data: FeatureData) -> Float[np.ndarray, " row"]:
    """Weights under which both classes have equal sums of the lower-degree monomials, by row."""
    weights = threshold_degree(table).weights
    assert weights is not None  # only constants have none, and they are excluded
    codes = np.asarray(data.features) @ (1 << np.arange(data.features.shape[1])[::-1])
    return np.asarray(weights[codes], dtype=np.float64)


def _scores_from_weights(
    model: Model, data: FeatureData, position: int
) -> Float[torch.Tensor, "row head pos"]:
    """The query's scores, computed from its query and the keys; masked ones are -inf."""
    layer = weights(model).layer(0)
    read = collect(model, data, [QUERIES, KEYS], "all")
    q, k = (read[hook].double() for hook in (QUERIES, KEYS))
    hidden = ~layer.visible(q.shape[1])
    scores: torch.Tensor = layer.scores(q, k).masked_fill(hidden, -torch.inf)
    return scores[:, :, position]
