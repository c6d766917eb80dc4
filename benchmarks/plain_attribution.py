"""Edge attribution with TransformerLens' own hooks, as EAP-IG makes it: what ours is held against.

HookedTransformer gives every head its own query, key and value input (`use_split_qkv_input`), what
each head writes (`use_attn_result`) and the MLP's input (`use_hook_mlp_in`); the gradient at each
such input times the difference of what each earlier node writes is the estimate. No weights are
looked at, and nothing of the toolkit is used. TransformerLens 3 only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def hooked_attribution(
    model: Any,
    clean: Tensor,
    corrupted: Tensor,
    value: Callable[[Tensor], Tensor],
    steps: int,
) -> dict[str, Tensor]:
    """Of each edge, by EAP-IG's names, what cutting it would add to each row's value, [row].

    Args:
        model: a HookedTransformer with the three settings of the module.
        clean: tokens [row pos].
        corrupted: those of their counterparts.
        value: of logits [row pos d_vocab], one number a row.
        steps: gradients, at the midpoints of as many steps from clean to corrupted input.
    """
    here, there = writes(model, clean), writes(model, corrupted)
    scores: dict[str, Tensor] = {}
    start, change = here["input"], there["input"] - here["input"]
    for i in range(steps):
        gradients = _gradients(model, clean, start + (i + 0.5) / steps * change, value)
        for target, gradient in gradients.items():
            for source in here:
                if comes_before(source, target):
                    product = (gradient * (there[source] - here[source])).sum((-1, -2)) / steps
                    name = f"{source}->{target}"
                    scores[name] = scores.get(name, 0) + product
    return scores


def writes(model: Any, tokens: Tensor) -> dict[str, Tensor]:
    """What each node writes, in the order of the forward pass."""
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens)
    found = {"input": cache["blocks.0.hook_resid_pre"]}
    for layer in range(model.cfg.n_layers):
        result = cache[f"blocks.{layer}.attn.hook_result"]
        found |= {f"a{layer}.h{head}": result[:, :, head] for head in range(model.cfg.n_heads)}
        if not model.cfg.attn_only:
            found[f"m{layer}"] = cache[f"blocks.{layer}.hook_mlp_out"]
    return found


def _gradients(
    model: Any, tokens: Tensor, start: Tensor, value: Callable[[Tensor], Tensor]
) -> dict[str, Tensor]:
    """Of the value, at every reader's input."""
    kept: dict[str, Tensor] = {}

    def keep(gradient: Tensor, hook: Any) -> None:
        kept[hook.name] = gradient.detach()

    names = [f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"]
    for layer in range(model.cfg.n_layers):
        names += [f"blocks.{layer}.hook_{channel}_input" for channel in "qkv"]
        names += [] if model.cfg.attn_only else [f"blocks.{layer}.hook_mlp_in"]
    first = start.clone().requires_grad_()
    with model.hooks(
        fwd_hooks=[("blocks.0.hook_resid_pre", lambda stream, hook: first)],
        bwd_hooks=[(name, keep) for name in names],
    ):
        value(model(tokens)).sum().backward()
    model.zero_grad()
    found = {}
    for layer in range(model.cfg.n_layers):
        for channel in "qkv":
            at = kept[f"blocks.{layer}.hook_{channel}_input"]
            for head in range(model.cfg.n_heads):
                found[f"a{layer}.h{head}<{channel}>"] = at[:, :, head]
        if not model.cfg.attn_only:
            found[f"m{layer}"] = kept[f"blocks.{layer}.hook_mlp_in"]
    return {**found, "logits": kept[names[0]]}


def comes_before(source: str, target: str) -> bool:
    """Whether a node has written when another reads."""
    return _place(source) < _place(target)


def _place(name: str) -> tuple[int, int]:
    if name in ("input", "logits"):
        return (-1, 0) if name == "input" else (10**9, 0)
    layer = int(name[1:].partition(".")[0])
    return layer, int(name[0] == "m")
