"""Attribution patching with TransformerLens' hooks, in its common form with one gradient.

The estimate is the change from clean to corrupted prompts times the gradient of the logit
difference on the clean prompts. For a head, both are taken at `hook_z`. For an edge, the change is
that of the writer's output, and the gradient that of the reader's input (through W_Q, W_K, W_V or
W_in), as in edge attribution patching, for models without norms. A fraction s of the whole
difference is converted to the probability s / (s + HALF); the field has no rule for this. Sources:
Nanda 2023, "Attribution Patching"; Syed et al. 2023, "Attribution Patching Outperforms Automated
Circuit Discovery", arXiv 2310.10348.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp_studies.challenge.question import Question
from interp_studies.challenge.tools.tool import Answer
from interp_toolkit.data import FeatureData
from interp_toolkit.models.model import Head, Model

HALF = 0.1  # share of the whole difference that is as likely to matter as not
ROWS = 128
Kept = dict[str, Tensor]


class AttributionPatching:
    """Attribution patching, which answers questions about heads in the circuit and about edges."""

    name = "attribution-patching"

    def __init__(self) -> None:
        self._known: tuple[Kept, Kept, Kept, float] | None = None

    def score(self, model: Model, question: Question) -> Answer:
        """See `Tool`."""
        data = question.data
        if question.kind not in ("head-in-circuit", "edge") or data is None:
            return None
        if data.corrupted is None or data.wrong is None:
            return None
        if self._known is None:
            self._known = _passes(model, data)
        if question.kind == "edge" and getattr(model.cfg, "normalization_type", None) is not None:
            return None
        sizes = [
            self._head(item) if isinstance(item, Head) else self._edge(model, item)
            for item in question.items
        ]
        return [size / (size + HALF) for size in sizes]

    def _head(self, head: Head) -> float:
        clean, corrupted, gradients, whole = self._both()
        name = f"blocks.{head.layer}.attn.hook_z"
        change = (corrupted[name] - clean[name])[:, :, head.head]
        return _share(change * gradients[name][:, :, head.head], whole)

    def _edge(self, model: Model, name: str) -> float:
        clean, corrupted, gradients, whole = self._both()
        source, _, target = name.partition("->")
        change = _written(model, corrupted, source) - _written(model, clean, source)
        return _share(change * _read(model, gradients, target), whole)

    def _both(self) -> tuple[Kept, Kept, Kept, float]:
        assert self._known is not None
        return self._known


def _share(product: Tensor, whole: float) -> float:
    """The estimate's mean over prompts, as a fraction of the whole difference."""
    return abs(float(product.flatten(1).sum(1).mean())) / max(whole, 1e-12)


def _passes(model: Model, data: FeatureData) -> tuple[Kept, Kept, Kept, float]:
    """Activations on both kinds of prompts, gradients on clean ones, and the logit difference."""
    assert data.answers is not None
    assert data.answer_positions is not None
    assert data.wrong is not None
    assert data.corrupted is not None
    rows = torch.arange(min(ROWS, len(data)))[:, None]
    places, answers, wrong = (
        torch.from_numpy(part[: len(rows)])
        for part in (data.answer_positions, data.answers, data.wrong)
    )

    def advantage(logits: Tensor) -> Tensor:
        return (logits[rows, places, answers] - logits[rows, places, wrong]).mean(1)

    kept: tuple[Kept, Kept] = ({}, {})
    gradients: Kept = {}

    def keep(into: Kept) -> list[tuple[Any, Any]]:
        def hook_fn(value: Tensor, hook: Any) -> None:
            into[hook.name] = value.detach()

        return [(_kept, hook_fn)]

    def keep_gradient(value: Tensor, hook: Any) -> None:
        gradients[hook.name] = value.detach()

    clean = torch.from_numpy(np.stack(list(data.tokens[: len(rows)])))
    corrupted = torch.from_numpy(np.stack(list(data.corrupted[: len(rows)])))
    hooked: Any = model
    with torch.enable_grad():
        with hooked.hooks(fwd_hooks=keep(kept[0]), bwd_hooks=[(_kept, keep_gradient)]):
            told = advantage(hooked(clean))
            told.sum().backward()  # type: ignore[no-untyped-call]
        hooked.zero_grad()
    with torch.no_grad():
        other = advantage(hooked.run_with_hooks(corrupted, fwd_hooks=keep(kept[1])))
    return *kept, gradients, abs(float((told.detach() - other).mean()))


def _kept(name: str) -> bool:
    """Whether the hook is one from which heads and edges are computed."""
    ends = ("hook_q", "hook_k", "hook_v", "hook_z", "mlp.hook_pre", "mlp_out", "resid_post")
    return name.endswith(ends) or name == "blocks.0.hook_resid_pre"


def _written(model: Any, kept: Kept, node: str) -> Tensor:
    """The output of a node in the residual stream."""
    if node == "input":
        return kept["blocks.0.hook_resid_pre"]
    if node[0] == "m":
        return kept[f"blocks.{node[1:]}.hook_mlp_out"]
    layer, head = map(int, node[1:].split(".h"))
    z = kept[f"blocks.{layer}.attn.hook_z"][:, :, head]
    written: Tensor = z @ model.blocks[layer].attn.W_O[head].detach()
    return written


def _read(model: Any, gradients: Kept, target: str) -> Tensor:
    """The gradient with respect to the input of a node."""
    if target == "logits":
        return gradients[f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"]
    if target[0] == "m":
        layer = int(target[1:])
        W_in: Tensor = model.blocks[layer].mlp.W_in.detach()
        return gradients[f"blocks.{layer}.mlp.hook_pre"] @ W_in.T
    node, channel = target.rstrip(">").split("<")
    layer, head = map(int, node[1:].split(".h"))
    weight: Tensor = getattr(model.blocks[layer].attn, f"W_{channel.upper()}")[head].detach()
    return gradients[f"blocks.{layer}.attn.hook_{channel}"][:, :, head] @ weight.T
