"""The residual stream adds up, patterns sum to 1; faults of TransformerLens, by release.

Additions are compared with 8 eps times the sum of the magnitudes of the terms. The listed faults of
TransformerLens were reproduced by this package in the stated releases. Nothing is claimed about
releases that are not named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.diagnosis.bench import Recorded, eps_of
from interp_toolkit.diagnosis.checks import NOT_ASKED, Check, largest, listed, measured
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model
from interp_toolkit.models.weights import read
from interp_toolkit.models.weights.parts import visible_pairs

#: rounding errors of one addition of a few terms
ROUNDINGS = 8
BASIS = f"{ROUNDINGS} eps of the terms"


class _Gap:
    """The error of a sum, and its rounding bound."""

    def __init__(self, total: Tensor, *parts: Tensor):
        eps = eps_of(total.dtype, total.device)
        wide = [part.double() for part in parts]
        self.difference = float((total.double() - sum(wide)).abs().max())
        self.scale = float(sum(part.abs() for part in wide).max())  # type: ignore[union-attr]
        self.tolerance = ROUNDINGS * eps * self.scale

    @property
    def holds(self) -> bool:
        return self.difference <= self.tolerance


def check_residual(model: Model, recorded: Recorded, fresh: Recorded | None) -> Iterator[Check]:
    """Does every block add its parts to its input, and is the sum the next block's input?"""
    gaps: dict[str, _Gap] = {}
    replaced: dict[str, str] = {}
    for layer in range(int(model.cfg.n_layers)):
        gaps |= _block(model, recorded, layer)
    bad = {hook: gap for hook, gap in gaps.items() if not gap.holds}
    copy_gaps: dict[str, _Gap] = {}
    if bad and fresh is not None:
        for layer in range(int(model.cfg.n_layers)):
            copy_gaps |= _block(model, fresh, layer)
    by_design = (
        {p for p in bad if p in copy_gaps and not copy_gaps[p].holds}
        if by_its_class(model)
        else set()
    )
    for hook in by_design:
        entering = _entering(recorded, hook)
        if entering:
            replaced[hook] = entering
    faults = [hook for hook in bad if hook not in by_design]
    if faults:
        worst = max((bad[p] for p in faults), key=lambda gap: gap.difference)
        yield Check(
            "sums",
            "the residual stream adds up",
            "failed",
            f"not at {listed(faults)}",
            worst.difference,
            worst.tolerance,
            BASIS,
            faults,
        )
    elif not gaps:
        yield Check(
            "sums",
            "the residual stream adds up",
            "not_applicable",
            "this model has no hooks on both the residual stream and its parts",
        )
    if by_design:
        worst = max((bad[p] for p in by_design), key=lambda gap: gap.difference)
        names = sorted({p.rpartition(" = ")[2] for p in by_design})
        instead = sorted({name.split(".", 2)[-1] for name in replaced.values()})
        why = ": this encoder's norms follow its sums" if has_norms_behind(model) else ""
        yield Check(
            "sums",
            "the parts' hooks show the added values",
            "differs",
            f"not at {listed(sorted(by_design))}, nor in a fresh copy{why}",
            worst.difference,
            worst.tolerance,
            BASIS,
            names,
            ", ".join(instead) or None,
        )
    good = [gap for hook, gap in gaps.items() if hook not in bad]
    if good:
        worst = max(good, key=lambda gap: gap.difference / max(gap.tolerance, 1e-300))
        yield measured(
            "sums",
            f"terms add up to the residual stream, at {len(good)} hook points",
            worst.difference,
            worst.tolerance,
            worst.scale,
            BASIS,
        )


def by_its_class(model: Any) -> bool:
    """Whether deviations may be by design of the class: bridges, and encoders with post-norms."""
    return hasattr(model, "original_model") or has_norms_behind(model)


def has_norms_behind(model: Any) -> bool:
    """Whether the model is TransformerLens' own encoder, whose norms follow the hooked sums."""
    return any(type(block).__name__ == "BertBlock" for block in getattr(model, "blocks", ()))


def _block(model: Model, recorded: Recorded, layer: int) -> dict[str, _Gap]:
    """The sums of one block, by equation."""
    at = f"blocks.{layer}."
    have = recorded.values
    pre, mid, post = (have.get(f"{at}hook_resid_{where}") for where in ("pre", "mid", "post"))
    attn, mlp = have.get(f"{at}hook_attn_out"), have.get(f"{at}hook_mlp_out")
    gaps = {}
    following = have.get(f"blocks.{layer + 1}.hook_resid_pre")
    if post is not None and following is not None:
        gaps[f"{at}hook_resid_post = the next block's hook_resid_pre"] = _Gap(following, post)
    if _normalises(model, layer) or pre is None or attn is None:
        return gaps
    if mid is not None and not getattr(model.cfg, "parallel_attn_mlp", False):
        gaps[f"{at}hook_resid_mid = hook_resid_pre + hook_attn_out"] = _Gap(mid, pre, attn)
        if post is not None and mlp is not None:
            gaps[f"{at}hook_resid_post = hook_resid_mid + hook_mlp_out"] = _Gap(post, mid, mlp)
    elif post is not None and mlp is not None:
        equation = f"{at}hook_resid_post = hook_resid_pre + hook_attn_out + hook_mlp_out"
        gaps[equation] = _Gap(post, pre, attn, mlp)
    elif post is not None and getattr(model.cfg, "attn_only", False):
        gaps[f"{at}hook_resid_post = hook_resid_pre + hook_attn_out"] = _Gap(post, pre, attn)
    return gaps


def _normalises(model: Any, layer: int) -> bool:
    """Whether a norm follows the sum (BERT)."""
    try:
        return read.ov(model, layer).residual_norm.kind is not None
    except (InputError, AttributeError):
        return False


def _entering(recorded: Recorded, hook: str) -> str | None:
    """A hook point of the same block with the value that is actually added."""
    total, _, right = hook.partition(" = ")
    at = total.rpartition("hook_")[0]
    parts = [f"{at}{name}" for name in right.split(" + ")]
    if total not in recorded.values or any(part not in recorded.values for part in parts):
        return None
    *others, _last = parts
    for name, value in recorded.values.items():
        if not name.startswith(at) or value.shape != recorded.values[total].shape or name in parts:
            continue
        if (
            name != total
            and _Gap(recorded.values[total], value, *(recorded.values[o] for o in others)).holds
        ):
            return name
    return None


def check_patterns(model: Model, recorded: Recorded, fresh: Recorded | None) -> Iterator[Check]:
    """Do attention patterns sum to 1, with nothing on keys that a query may not see?"""
    off, hidden, tolerance = {}, {}, 0.0
    for layer in range(int(model.cfg.n_layers)):
        name = f"blocks.{layer}.attn.hook_pattern"
        pattern = recorded.values.get(name)
        if pattern is None or pattern.ndim != 4 or read.mixes(model, layer):
            continue
        wide = pattern.double()
        tolerance = (
            ROUNDINGS * eps_of(pattern.dtype, pattern.device) * max(pattern.shape[-1] ** 0.5, 1)
        )
        off[name] = float((wide.sum(-1) - 1).abs().max())
        direction, window = read.visibility(model, layer)
        seeing = visible_pairs(direction, window, pattern.shape[-1]).to(pattern.device)
        hidden[name] = float(wide.masked_fill(seeing, 0).abs().max())
    if not off:
        reason = "no attention pattern is hooked"
        yield Check("sums", "patterns sum to 1", "not_applicable", reason)
        return
    for name, failing in (("patterns sum to 1", off), ("patterns respect the mask", hidden)):
        bad = [name for name, value in failing.items() if not value <= tolerance]
        check = measured(
            "sums",
            name,
            largest(failing.values()),
            tolerance,
            1.0,
            f"{ROUNDINGS} eps times √keys",
            f"not at {listed(bad)}",
            bad,
        )
        if bad and name == "patterns sum to 1" and _sinks(model, recorded, bad):
            check = replace(
                check,
                answer="differs",
                summary="learned attention sinks take the rest of each query",
            )
        elif bad and fresh is not None and by_its_class(model) and _same(recorded, fresh, bad):
            check = Check(
                "sums",
                name,
                "differs",
                f"{check.summary}, nor in a fresh copy",
                check.difference,
                check.tolerance,
                check.basis,
                bad,
            )
        yield check


def _sinks(model: Any, recorded: Recorded, names: list[str]) -> bool:
    """Whether these patterns sum to less than 1, in layers that have learned attention sinks."""
    for name in names:
        attn = model.blocks[int(name.split(".")[1])].attn
        inner = getattr(attn, "original_component", attn)
        rows = recorded.values[name].double().sum(-1)
        below = bool((rows <= 1 + ROUNDINGS * eps_of(torch.float32, rows.device)).all())
        if not below or not isinstance(getattr(inner, "sinks", None), Tensor):
            return False
    return True


def _same(recorded: Recorded, fresh: Recorded, names: list[str]) -> bool:
    return all(
        name in fresh.values
        and torch.allclose(recorded.values[name].float(), fresh.values[name].float(), atol=1e-4)
        for name in names
    )


@dataclass(frozen=True)
class Fault:
    """A fault of a TransformerLens release.

    Attributes:
        check: prefix of the name of the check that shows it, or several prefixes.
        models: class names of the affected models: a bridge's original's, or the model's own.
        releases: releases in which the fault was reproduced.
        gone: the release in which it is fixed; None if unknown.
        summary: its description.
    """

    check: str | tuple[str, ...]
    models: tuple[str, ...]
    releases: tuple[str, ...]
    gone: str | None
    summary: str


ANY_BRIDGE = "*"
FAULTS = (
    Fault(
        "attn.hook_pattern reaches",
        ("NativeModel",),
        ("3.9.0",),
        "4.3.0",
        "native bridges show the pattern after it was used",
    ),
    Fault(
        "attn.hook_attn_scores reaches",
        ("NativeModel",),
        ("3.9.0", "4.3.0"),
        None,
        "native bridges show the scores after they were used",
    ),
    Fault(
        "attn.hook_pattern reaches",
        ("BertForMaskedLM",),
        ("3.9.0", "4.3.0"),
        None,
        "BERT bridges show the pattern after it was used",
    ),
    Fault(
        "attn.hook_attn_scores reaches",
        ("BertForMaskedLM",),
        ("3.9.0", "4.3.0"),
        None,
        "BERT bridges show the scores after they were used",
    ),
    Fault(
        "mlp.hook_",
        ("BertForMaskedLM",),
        ("3.9.0",),
        "4.3.0",
        "mlp.hook_in and mlp.hook_out of BERT bridges never fire",
    ),
    Fault(
        ("patterns respect the mask", "padding on the right", "the Hugging Face original agrees"),
        ("DeepseekV3ForCausalLM",),
        ("3.9.0",),
        "4.3.0",
        "DeepSeek-V3 bridges attend to later tokens, which the original does not",
    ),
    Fault(
        "the Hugging Face original agrees",
        ("CohereForCausalLM",),
        ("3.9.0",),
        "4.3.0",
        "Cohere bridges give other logits than the original",
    ),
    Fault(
        ("loading the state dict sets every tensor", "a fresh copy with this state dict"),
        ("MixtralForCausalLM",),
        ("3.9.0", "4.3.0"),
        None,
        "a Mixtral bridge's state dict lacks the experts",
    ),
    Fault(
        ("loading the state dict sets every tensor", "a fresh copy with this state dict"),
        ("MambaForCausalLM", "Mamba2ForCausalLM"),
        ("3.9.0", "4.3.0"),
        None,
        "a Mamba bridge's state dict lacks A_log and D, and of Mamba 2 dt_bias",
    ),
    Fault(
        "rotary tables are those of cfg's base",
        (
            *("LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM", "Qwen2ForCausalLM"),
            *("Qwen3ForCausalLM", "Gemma2ForCausalLM", "GPTNeoXForCausalLM", "Phi3ForCausalLM"),
        ),
        ("3.9.0", "4.3.0"),
        None,
        "with transformers 5, cfg.rotary_base of these bridges is always 10000",
    ),
    Fault(
        "the activation function",
        ("FalconForCausalLM", "MptForCausalLM"),
        ("3.9.0", "4.3.0"),
        None,
        "cfg.act_fn of these bridges is relu; the model computes gelu",
    ),
    Fault(
        "the model runs with hooks",
        ("OlmoForCausalLM",),
        ("3.9.0", "4.3.0"),
        None,
        "hooks on the norms of OLMo bridges, which have no weights, raise an AttributeError",
    ),
    Fault(
        ("a zero edit everywhere changes nothing", "a fresh copy with this state dict"),
        ("Qwen3NextForCausalLM", "Qwen3_5ForCausalLM", "NemotronForCausalLM"),
        ("3.9.0",),
        "4.3.0",
        "norms of these bridges with hooks on them multiply with weight, not with 1 + weight",
    ),
    Fault(
        "folding changes no probability",
        ("HookedTransformer",),
        ("3.9.0",),
        None,
        "process_weights_ of a HookedTransformer with experts changes its probabilities",
    ),
    Fault(
        "norms are folded as cfg says",
        (ANY_BRIDGE,),
        ("3.9.0", "4.3.0"),
        None,
        "after enable_compatibility_mode cfg.normalization_type still has its value before folding",
    ),
)


def present_in(model: Any, check: Check) -> str | None:
    """A known fault that explains a check's result in this release; None if there is none."""
    here = version("transformer-lens")
    if check.answer in ("passed", "not_applicable") or check.summary.startswith(NOT_ASKED):
        return None
    original = getattr(model, "original_model", None)
    kinds: tuple[str, ...] = (type(original if original is not None else model).__name__,)
    kinds += () if original is None else (ANY_BRIDGE,)
    for fault in FAULTS:
        fits = check.name.startswith(fault.check) and any(kind in fault.models for kind in kinds)
        if fits and here in fault.releases:
            others = [release for release in fault.releases if release != here]
            also = f" and {', '.join(others)}" if others else ""
            gone = f", not of {fault.gone}" if fault.gone else ""
            return f"known of transformer-lens {here}{also}{gone}: {fault.summary}"
    return None
