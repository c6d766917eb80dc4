"""Faults of TransformerLens that were reproduced here, with the release they were seen in.

Only what this package saw itself is listed, with the very release; of others nothing is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from interp_toolkit.diagnosis.checks import NOT_ASKED, Check


@dataclass(frozen=True)
class Fault:
    """A fault of a release.

    Attributes:
        check: how the name of the check begins that shows it, or of each of several.
        models: class names of the models that have it: a bridge's original's, or the model's own.
        releases: in which it was reproduced.
        gone: the release in which it was looked for and not found; None where it was not.
        said: what happens.
    """

    check: str | tuple[str, ...]
    models: tuple[str, ...]
    releases: tuple[str, ...]
    gone: str | None
    said: str


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
        ("patterns see what they may", "padding on the right", "the Hugging Face original agrees"),
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
        "with transformers 5, cfg.rotary_base of these bridges is 10000 whatever the model's is",
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
        "folding changes no probability",
        ("HookedTransformer",),
        ("3.9.0",),
        None,
        "process_weights_ of a HookedTransformer with experts changes its probabilities",
    ),
    Fault(
        "norms are folded as told",
        (ANY_BRIDGE,),
        ("3.9.0", "4.3.0"),
        None,
        "after enable_compatibility_mode cfg.normalization_type is what it was before folding",
    ),
)


def present_in(model: Any, check: Check) -> str | None:
    """A known fault that explains a check's result in this release; None where there is none."""
    here = version("transformer-lens")
    if check.answer in ("passed", "not_applicable") or check.said.startswith(NOT_ASKED):
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
            return f"known of transformer-lens {here}{also}{gone}: {fault.said}"
    return None
