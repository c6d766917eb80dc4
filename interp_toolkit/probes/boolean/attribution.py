"""Attribution of a readable function to heads: the probe's score by head, and head ablation.

The residual stream is a sum over all components that write to it, and so is a linear probe's score:
each head contributes `direction · (z W_O)`. The contrast of a head is its mean contribution where
the function is true minus that where it is false. The causal effect of a head is measured by mean
ablation: the head's output is replaced by its mean over the data, the activations are read again,
and the same probe and separability test are applied to them.
"""

from __future__ import annotations

import hashlib
import re
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.finding import Run
from interp_toolkit.models.running.interventions import ablate, head_means
from interp_toolkit.models.running.stages import structured
from interp_toolkit.models.running.streaming import collect
from interp_toolkit.models.weights.contributions import head_scores
from interp_toolkit.probes.boolean.result import HeadEffect
from interp_toolkit.probes.estimators.separability import Status, check_separability
from interp_toolkit.results import head_name

#: hook points whose value is a sum over heads, including TransformerBridge's names
SUMS = re.compile(
    r"blocks\.(\d+)\.(hook_attn_out|attn\.hook_out|hook_resid_mid|hook_resid_post|hook_out)$"
)
MOST_ABLATED = 24  # heads with the largest contrast; each one costs passes over the data
MOST_ABLATED_SAMPLED = 8  # the same for sampled data, which takes long


def layers_written(hook: str) -> range | None:
    """Layers whose heads are summed at this hook point; None if the value is not such a sum."""
    match = SUMS.match(hook)
    if match is None:
        return None
    layer = int(match[1])
    return range(layer, layer + 1) if "attn" in match[2] else range(layer + 1)


def head_effects(
    run: Run[Any],
    data: FeatureData,
    hook: str,
    position: int | None,
    X: Float[np.ndarray, "n d"],
    precision: str,
    direction: Float[np.ndarray, " d"],
    threshold: float,
    positive: Bool[np.ndarray, " n"],
    *,
    ask_separability: bool,
) -> tuple[list[HeadEffect], list[str]]:
    """The contrast of every head, ablations of the strongest, and notes on what was left out.

    Args:
        run: the run, with the model.
        data: the prompts.
        hook: a site that is a sum over heads.
        position: position of the site; None for the data's own.
        X: the site's activations without ablation.
        precision: dtype in which they were computed.
        direction: direction of the probe, in activation units.
        threshold: threshold of the probe.
        positive: the function's value for each row.
        ask_separability: whether to test separability after each ablation.
    """
    layers = layers_written(hook)
    if layers is None:
        return [], [f"the score at {hook} is not a sum over heads, so it was not split"]
    model, memory = run.model, run.memory
    run.progress("splitting the score by head")
    try:
        scores = head_scores(model, data, layers, direction, position, memory=memory)
    except InputError as error:
        return [], [f"the score was not split by head: {error}"]
    gains = scores[positive].mean(axis=0) - scores[~positive].mean(axis=0)
    contrasts = {
        (layer, head): float(gains[i, head])
        for i, layer in enumerate(layers)
        for head in range(gains.shape[1])
    }
    total = float((X[positive] @ direction).mean() - (X[~positive] @ direction).mean())
    intact = float(((X @ direction > threshold) == positive).mean())
    order = sorted(contrasts, key=lambda key: -abs(contrasts[key]))
    notes = []
    most = MOST_ABLATED if ask_separability else MOST_ABLATED_SAMPLED
    if len(order) > most:
        notes.append(
            f"{len(order) - most} of {len(order)} heads (those with the least contrast) were "
            "not ablated"
        )
    if not order:
        return [], notes
    effects = []
    means = head_means(model, order[:most], data, memory=memory)

    def ablated(layer: int, head: int) -> tuple[Status | None, float]:
        run.progress(f"ablating {head_name(layer, head)}")
        with ablate(model, [(layer, head)], how="mean", reference=means):
            after = collect(model, data, hook, position, memory=memory)[hook]
        without = after.double().cpu().numpy()
        status: Status | None = None
        if ask_separability:
            status = check_separability(
                without[positive], without[~positive], precision=precision
            ).status
        return status, float(((without @ direction > threshold) == positive).mean())

    probe = hashlib.sha256(np.array([*direction, threshold, *positive], dtype=float).tobytes())
    about = f"{data.digest()} at {hook}, {position}, probe {probe.hexdigest()}"
    for layer, head in order[:most]:
        status, right = structured(
            run.store,
            partial("{} without {}, {}".format, about, layer, head),
            partial(ablated, layer, head),
        )
        contrast = contrasts[layer, head]
        share = contrast / total if total else float("nan")
        effects.append(HeadEffect(layer, head, contrast, share, status, right, intact))
    return sorted(effects, key=lambda e: (e.layer, e.head)), notes
