"""Naming layouts that are recognized automatically: GPT-2, nanoGPT, old TransformerLens.

GPT-2 as saved by transformers stores its matrices input-first (`Conv1D`); nanoGPT has the same
names and stores them output-first (`nn.Linear`). Predecessors of TransformerLens (before October
2022) had today's names with transposed matrices: EasyTransformer, and the code of "Progress
measures for grokking" (Nanda et al. 2023), whose W_O is flat. A layout is used if every name has a
rule and the shapes fit no other layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.errors import InputError, suggestion
from interp_toolkit.models.loading.parameters.key_rules import (
    KeyFile,
    KeyRule,
    Layout,
    UnknownSizeError,
    fits,
    guessed_rules,
    key_file_of,
    names_match,
    read_key_file,
    rename,
)
from interp_toolkit.models.loading.parameters.names import (
    is_hooked,
    with_zero_biases,
    within_block,
    without_prefix,
)

_BLOCK = "blocks.{layer}."
_QKV = tuple(f"{_BLOCK}attn.W_{part}" for part in "QKV")
_QKV_BIAS = tuple(f"{_BLOCK}attn.b_{part}" for part in "QKV")


def _gpt2(matrix: str) -> Layout:
    """GPT-2's layout; `matrix` gives the order of the axes IN and OUT of a matrix."""

    def axes(inputs: str, outputs: str, becomes: str) -> str:
        return f"{matrix.replace('IN', inputs).replace('OUT', outputs)} -> {becomes}"

    fused = axes("d_model", "(parts head d_head)", "parts head d_model d_head")
    out = axes("(head d_head)", "d_model", "head d_head d_model")
    return {
        "wte.weight": KeyRule(("embed.W_E",), "d_vocab d_model -> d_vocab d_model"),
        "wpe.weight": KeyRule(("pos_embed.W_pos",), "n_ctx d_model -> n_ctx d_model"),
        "h.{layer}.ln_1.weight": KeyRule((f"{_BLOCK}ln1.w",)),
        "h.{layer}.ln_1.bias": KeyRule((f"{_BLOCK}ln1.b",)),
        "h.{layer}.ln_2.weight": KeyRule((f"{_BLOCK}ln2.w",)),
        "h.{layer}.ln_2.bias": KeyRule((f"{_BLOCK}ln2.b",)),
        "h.{layer}.attn.c_attn.weight": KeyRule(_QKV, fused),
        "h.{layer}.attn.c_attn.bias": KeyRule(
            _QKV_BIAS, "(parts head d_head) -> parts head d_head"
        ),
        "h.{layer}.attn.c_proj.weight": KeyRule((f"{_BLOCK}attn.W_O",), out),
        "h.{layer}.attn.c_proj.bias": KeyRule((f"{_BLOCK}attn.b_O",)),
        "h.{layer}.attn.bias": KeyRule(()),  # the causal mask
        "h.{layer}.attn.masked_bias": KeyRule(()),
        "h.{layer}.mlp.c_fc.weight": KeyRule(
            (f"{_BLOCK}mlp.W_in",), axes("d_model", "d_mlp", "d_model d_mlp")
        ),
        "h.{layer}.mlp.c_fc.bias": KeyRule((f"{_BLOCK}mlp.b_in",)),
        "h.{layer}.mlp.c_proj.weight": KeyRule(
            (f"{_BLOCK}mlp.W_out",), axes("d_mlp", "d_model", "d_mlp d_model")
        ),
        "h.{layer}.mlp.c_proj.bias": KeyRule((f"{_BLOCK}mlp.b_out",)),
        "ln_f.weight": KeyRule(("ln_final.w",)),
        "ln_f.bias": KeyRule(("ln_final.b",)),
        "lm_head.weight": KeyRule(("unembed.W_U",), "d_vocab_out d_model -> d_model d_vocab_out"),
        "lm_head.bias": KeyRule(("unembed.b_U",)),
    }


def _forebear(W_pos: str, W_O: str, W_U: str) -> Layout:
    """Today's names, with matrices that multiply from the left."""
    turned = {
        "embed.W_E": "d_model d_vocab -> d_vocab d_model",
        "pos_embed.W_pos": W_pos,
        **dict.fromkeys(_QKV, "head d_head d_model -> head d_model d_head"),
        f"{_BLOCK}attn.W_O": W_O,
        f"{_BLOCK}mlp.W_in": "d_mlp d_model -> d_model d_mlp",
        f"{_BLOCK}mlp.W_out": "d_model d_mlp -> d_mlp d_model",
        "unembed.W_U": W_U,
    }
    plain = [*_QKV_BIAS, f"{_BLOCK}attn.b_O", f"{_BLOCK}mlp.b_in", f"{_BLOCK}mlp.b_out"]
    plain += [f"{_BLOCK}{norm}.{part}" for norm in ("ln1", "ln2") for part in "wb"]
    plain += ["ln_final.w", "ln_final.b", "unembed.b_U"]
    rules = {name: KeyRule((name,), axes) for name, axes in turned.items()}
    return rules | {name: KeyRule((name,)) for name in plain}


_POSITIONS = "n_ctx d_model -> n_ctx d_model"
_TURNED_POSITIONS = "d_model n_ctx -> n_ctx d_model"
_PER_HEAD = "head d_model d_head -> head d_head d_model"
_FLAT = "d_model (head d_head) -> head d_head d_model"
_TURNED = "d_vocab_out d_model -> d_model d_vocab_out"
_STRAIGHT = "d_model d_vocab_out -> d_model d_vocab_out"

#: the named layouts, each with its variants
LAYOUTS: Mapping[str, tuple[Layout, ...]] = {
    "gpt2": (_gpt2("IN OUT"),),
    "nanogpt": (_gpt2("OUT IN"),),
    "easytransformer": (
        _forebear(_POSITIONS, _FLAT, _STRAIGHT),
        _forebear(_POSITIONS, _PER_HEAD, _TURNED),
        _forebear(_TURNED_POSITIONS, _PER_HEAD, _TURNED),
    ),
}
_ANCHOR = "wte.weight"  # shows GPT-2's prefix


@dataclass(frozen=True)
class Named:
    """Tensors under TransformerLens' names.

    Attributes:
        tensors: the tensors, by name.
        phrases: assumptions, one phrase each.
        unknown: axes whose size must be set (`head`); the tensors are then provisional.
    """

    tensors: Mapping[str, Tensor]
    phrases: tuple[str, ...] = ()
    unknown: tuple[str, ...] = field(default=())


def find_layout(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of the layout of these tensors by their names and shapes; None if unknown."""
    stripped = _without_prefix(tensors)
    if _ANCHOR in stripped and _has_blocks(stripped):
        candidates = [name for name in ("gpt2", "nanogpt") if _fits_any(stripped, name)]
        return candidates[0] if candidates else _by_orientation(stripped)
    if is_hooked(tensors) and not _is_straight(tensors) and _fits_any(tensors, "easytransformer"):
        return "easytransformer"
    return None


def read_keys(keys: str | Path | Mapping[str, Any]) -> str | KeyFile:
    """The name of a layout as it is; a file or a mapping as rules and settings.

    Args:
        keys: a key of `LAYOUTS`, a JSON file, or the content of such a file.

    Raises:
        InputError: there is no such layout, or the mapping is not valid.
    """
    if isinstance(keys, str) and keys in LAYOUTS:
        return keys
    if isinstance(keys, Mapping):
        return key_file_of(keys, "keys")
    if isinstance(keys, str) and not keys.endswith(".json"):
        names = ", ".join(LAYOUTS)
        raise InputError(
            f"--keys {keys} is neither a layout's name ({names}) nor a .json file"
            f"{suggestion(keys, LAYOUTS)}"
        )
    return read_key_file(Path(keys))


def as_named(
    tensors: Mapping[str, Tensor],
    keys: str | KeyFile,
    settings: Mapping[str, Any],
    source: str,
) -> Named:
    """The tensors under TransformerLens' names, by a named layout or a mapping.

    Args:
        tensors: the tensors as saved.
        keys: a key of `LAYOUTS`, or a mapping.
        settings: `n_heads` and `d_head` are the sizes of the axes `head` and `d_head`; with
            `normalization_type="LN"` norms without a shift get zeros.
        source: name of the file, for messages.

    Raises:
        InputError: it does not fit.
    """
    axes = {"n_heads": "head", "d_head": "d_head"}
    sizes = {axis: int(settings[name]) for name, axis in axes.items() if name in settings}
    if isinstance(keys, str):
        return _by_name(_without_prefix(tensors), keys, sizes, source)
    layout = keys.rules
    if not any(names_match({name: tensor}, layout) for name, tensor in tensors.items()):
        first = next(iter(layout))
        raise InputError(f"{source} has none of the tensors that the keys name, such as {first}")
    named = _renamed(tensors, layout, sizes, source)
    guesses = [f"guess: {one}" for one in guessed_rules(layout)]
    guesses += [
        f"guess: {name}={keys.settings[name]} ({reason})"
        for name, reason in keys.guesses.items()
        if settings.get(name) == keys.settings[name]
    ]
    named = Named(named.tensors, (*named.phrases, *guesses), named.unknown)
    if "normalization_type" not in settings and _has_unshifted_norms(named.tensors):
        phrase = "normalization_type=RMS (norms without a shift, which an LN may lack too)"
        return Named(named.tensors, (*named.phrases, phrase), named.unknown)
    if settings.get("normalization_type") != "LN":
        return named
    return Named(_with_norm_shifts(named.tensors), named.phrases, named.unknown)


def _has_unshifted_norms(tensors: Mapping[str, Tensor]) -> bool:
    inner = {within_block(name) for name in tensors}
    norms = {name.rpartition(".")[0] for name in inner if name.startswith("ln")}
    return any(f"{norm}.w" in inner and f"{norm}.b" not in inner for norm in norms)


def could_be_turned(tensors: Mapping[str, Tensor]) -> bool:
    """Whether the shapes allow matrices that multiply from the left, as before TransformerLens."""
    return any(name.endswith(".attn.W_Q") for name in tensors) and _fits_any(
        tensors, "easytransformer"
    )


def _by_name(
    tensors: Mapping[str, Tensor], name: str, sizes: Mapping[str, int], source: str
) -> Named:
    layouts = LAYOUTS[name]
    layout = next((one for one in layouts if fits(tensors, one)), layouts[0])
    named = _renamed(tensors, layout, sizes, source)
    if name == "easytransformer":
        return Named(named.tensors, ("matrices turned, as before TransformerLens",), named.unknown)
    return Named(_with_norm_shifts(named.tensors), named.phrases, named.unknown)


def _renamed(
    tensors: Mapping[str, Tensor], layout: Layout, sizes: Mapping[str, int], source: str
) -> Named:
    try:
        return Named(with_zero_biases(rename(tensors, layout, sizes, source)))
    except UnknownSizeError as error:
        unknown = error
    if "head" in unknown.axes:
        try:
            provisional = rename(tensors, layout, {**sizes, "head": 1}, source)
            return Named(with_zero_biases(provisional), unknown=("head",))
        except UnknownSizeError as error:
            unknown = error  # other sizes than the number of heads are needed
    raise InputError(f"{source}: no shape determines the size of the axis {unknown}") from unknown


def _without_prefix(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors without the prefix of GPT-2's embedding (`transformer.`, `backbone.`)."""
    anchor = next((name for name in tensors if name.endswith(f".{_ANCHOR}")), "")
    prefix = anchor.removesuffix(_ANCHOR)
    return {without_prefix(name, prefix): tensor for name, tensor in tensors.items()}


def _fits_any(tensors: Mapping[str, Tensor], name: str) -> bool:
    return any(fits(tensors, layout) for layout in LAYOUTS[name])


def _has_blocks(tensors: Mapping[str, Tensor]) -> bool:
    return any(name.startswith("h.") and name.endswith("attn.c_attn.weight") for name in tensors)


def _by_orientation(tensors: Mapping[str, Tensor]) -> str:
    """The orientation of fused projections in a file that fits neither layout."""
    shapes = [t.shape for name, t in tensors.items() if name.endswith("attn.c_attn.weight")]
    return "nanogpt" if any(len(s) == 2 and s[0] == 3 * s[1] for s in shapes) else "gpt2"


def _is_straight(tensors: Mapping[str, Tensor]) -> bool:
    """Whether the shapes are those of current TransformerLens versions."""
    axes = {
        "embed.W_E": "d_vocab d_model",
        "pos_embed.W_pos": "n_ctx d_model",
        **dict.fromkeys(_QKV, "head d_model d_head"),
        f"{_BLOCK}attn.W_O": "head d_head d_model",
        f"{_BLOCK}mlp.W_in": "d_model d_mlp",
        f"{_BLOCK}mlp.W_out": "d_mlp d_model",
        "unembed.W_U": "d_model d_vocab_out",
    }
    layout = {name: KeyRule((name,), f"{shape} -> {shape}") for name, shape in axes.items()}
    parameters = {name: t for name, t in tensors.items() if names_match({name: t}, layout)}
    return fits(parameters, layout)


def _with_norm_shifts(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Add zero shifts to LayerNorms that have none, because GPT-2's kind centers regardless."""
    filled = dict(tensors)
    for name, tensor in tensors.items():
        inner = within_block(name)
        if inner in ("ln1.w", "ln2.w", "ln_final.w"):
            filled.setdefault(f"{name[:-1]}b", torch.zeros_like(tensor))
    return filled
