"""The configuration of a bare `HookedTransformer.state_dict()`, from its names and shapes.

Names and shapes determine some fields; a setting may repeat but not contradict them. Other fields
are assumed. Each assumption is a phrase in the record, and a setting replaces it: no normalization
without norm weights, position embeddings added to the residual stream, scores divided by
sqrt(d_head), causal attention, eps, the rotary base.

Fields that are neither determined nor safe to assume must be set, and the error requests all of
them at once: an MLP's activation function, the positions of a model that has neither position
embeddings nor rotary tables, the unembedding if it is missing. Sizes that appear in several
tensors are decided by the majority, so that a single misshapen tensor is the one reported.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.loading.parameters.names import block_number, within_block
from interp_toolkit.models.loading.parameters.rotary_table import RotaryTable, read_rotary_table
from interp_toolkit.models.loading.settings import build_config
from interp_toolkit.models.transformer.config import TransformerConfig

#: for each size, the tensors and axes that show it
_SIZES: dict[str, list[tuple[str, int]]] = {
    "d_vocab": [("embed.W_E", 0)],
    "d_model": [
        ("embed.W_E", 1),
        ("unembed.W_U", 0),
        ("pos_embed.W_pos", 1),
        ("attn.W_Q", 1),
        ("attn.W_O", 2),
    ],
    "d_vocab_out": [("unembed.W_U", 1), ("unembed.b_U", 0)],
    "n_heads": [("attn.W_Q", 0), ("attn.W_O", 0), ("attn.b_Q", 0)],
    "d_head": [("attn.W_Q", 2), ("attn.W_O", 1), ("attn.b_Q", 1)],
    "n_key_value_heads": [("attn._W_K", 0), ("attn._W_V", 0), ("attn._b_K", 0)],
    "d_mlp": [("mlp.W_in", 1), ("mlp.W_out", 0), ("mlp.b_in", 0)],
}
#: rows of the rotary table that TransformerLens 3 starts with, and the context assumed for a file
#: that shows none (it only limits the length of a prompt)
FIRST_TABLE = 2048


_SEQUENTIAL = "MLP after the attention, not parallel to it"
_LEARNED = {"positional_embedding_type": "standard"}


@dataclass(frozen=True)
class Assumption:
    """A property that a file does not specify and that is assumed.

    Attributes:
        fields: the assumed values, by configuration field.
        phrase: the assumption as a phrase.
        settled_by: fields each of which, if set, replaces the assumption.
        alternatives: other values of the fields that fit the file.
    """

    fields: Mapping[str, Any]
    phrase: str
    settled_by: frozenset[str]
    alternatives: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Need:
    """A setting that a file does not specify and that cannot be assumed.

    Attributes:
        what: phrase that continues "the file does not say".
        example: a possible value.
    """

    what: str
    example: str


@dataclass(frozen=True)
class InferredConfig:
    """The configuration fields that a state dict determines, and those that it leaves open.

    Attributes:
        shown: fields determined by names and shapes.
        assumptions: about other fields.
        needed: fields that must be set, each with its description.
    """

    shown: Mapping[str, Any]
    assumptions: tuple[Assumption, ...]
    needed: Mapping[str, Need] = field(default_factory=dict)


@dataclass(frozen=True)
class Settled:
    """A configuration and what was assumed in it."""

    config: TransformerConfig
    assumptions: tuple[Assumption, ...]

    @property
    def phrases(self) -> tuple[str, ...]:
        """The assumptions, one phrase each."""
        return tuple(assumption.phrase for assumption in self.assumptions)


class MissingSettingError(InputError):
    """A file does not specify everything that a model needs; the message requests all of it.

    Attributes:
        shown: fields that the file specifies.
        assumptions: further assumptions, one phrase each.
        needed: the missing settings.
    """

    def __init__(self, reading: InferredConfig, needed: Mapping[str, Need], source: str):
        of_heads = {"n_heads", "d_head", "n_key_value_heads", "attn_scale"}
        unsettled = of_heads if "n_heads" in needed else set()
        self.shown = {n: v for n, v in reading.shown.items() if n not in unsettled}
        self.needed = dict(needed)
        if "normalization_type" not in reading.shown:
            unsettled.add("eps")
        left = [a for a in reading.assumptions if not a.settled_by & {*unsettled, *needed}]
        self.assumptions = tuple(a.phrase for a in left)
        whats = " or ".join(need.what for need in needed.values())
        options = " ".join(f"--set {name}={need.example}" for name, need in needed.items())
        super().__init__(f"{source} does not say {whats}: give, for example, {options}")


def read_state_dict(
    parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], source: str
) -> InferredConfig:
    """Infer the configuration from the tensors of a `HookedTransformer`.

    Raises InputError if a size cannot be determined (the tensors that show it are missing), or if
    a buffer shows a feature that the toolkit's transformer lacks.
    """
    inner = {within_block(name) for name in parameters}
    fields = _sizes(parameters, source)
    fields["attn_only"] = not any(name.startswith("mlp.") for name in inner)
    fields["gated_mlp"] = "mlp.W_gate" in inner
    fields["gate_biases"] = "mlp.b_gate" in inner
    fields.update(_biases(inner))
    fields["dtype"] = _common_dtype(parameters)
    fields.update(_norms(inner))
    fields.update(_mixing(parameters, source))
    assumptions = _open_questions(fields, inner)
    needed: dict[str, Need] = {}
    if "unembed.W_U" in inner:
        fields["tied_embeddings"] = False
    else:
        needed["tied_embeddings"] = Need(
            "its unembedding, since unembed.W_U is missing (tied_embeddings=true: the "
            "embedding's transpose; =false: nothing, the outputs are the last residual stream)",
            "true",
        )
    if not fields["attn_only"]:
        needed["act_fn"] = Need(
            "the activation function of its MLPs (relu, gelu, gelu_new, silu, ...)", "relu"
        )
    table = _rotary_table(buffers, source)
    fields.update(_positions(table))
    if table is None and "pos_embed.W_pos" in parameters:
        W_pos = parameters["pos_embed.W_pos"]
        if W_pos.ndim != 2:
            raise InputError(
                f"{source}: pos_embed.W_pos has shape {list(W_pos.shape)}, not [n_ctx d_model]"
            )
        fields["n_ctx"] = W_pos.shape[0]
        if "mixing" not in fields or fields["mixing"] is not None:
            fields.update(_LEARNED)
        phrase = "positional_embedding_type=standard (shortformer has pos_embed.W_pos too)"
        among = frozenset(_LEARNED), ({"positional_embedding_type": "shortformer"},)
        assumptions.append(Assumption(_LEARNED, phrase, *among))
    elif "positional_embedding_type" not in fields:
        needed["positional_embedding_type"] = Need(
            "its positions, since it has neither pos_embed.W_pos nor rotary tables (rotary or "
            "none)",
            "none",
        )
        assumptions.append(_assume("rotary_base", 10000.0))
        assumptions.append(_assume("rotary_adjacent_pairs", False, others=(True,)))
    _context_length(fields, assumptions, _mask_length(buffers, source), table)
    return InferredConfig(fields, tuple(assumptions), needed)


def settle(
    reading: InferredConfig,
    settings: Mapping[str, Any],
    source: str,
    answered: frozenset[str] = frozenset(),
) -> Settled:
    """The configuration from the file, the settings, and the assumptions that remain.

    `answered` names settings that replace an assumption but are not configuration fields.
    Raises InputError if a setting contradicts the file.
    """
    _check_settings(reading, settings, source)
    shown = {**reading.shown, **settings}
    rotary = shown.get("positional_embedding_type") == "rotary"
    normalized = shown.get("normalization_type") is not None
    open_ = [
        a
        for a in reading.assumptions
        if not a.settled_by & (settings.keys() | answered)
        and (rotary or not any(name.startswith("rotary") for name in a.fields))
    ]
    open_ = [a for a in open_ if "eps" not in a.fields or normalized]
    fields: dict[str, Any] = {}
    for assumption in open_:
        fields.update(assumption.fields)
    config = build_config({**fields, **reading.shown, **settings}, source)
    return Settled(config, tuple(open_))


def _check_settings(reading: InferredConfig, settings: Mapping[str, Any], source: str) -> None:
    for name, value in settings.items():
        if name in reading.shown and not _same(value, reading.shown[name]):
            raise InputError(
                f"{name}={value} contradicts {source}, which says {reading.shown[name]}"
            )
    choice = settings.get("positional_embedding_type", "standard")
    for assumption in reading.assumptions:
        if assumption.fields == _LEARNED and choice not in ("standard", "shortformer"):
            raise InputError(
                f"positional_embedding_type={choice} contradicts {source}, which has "
                "pos_embed.W_pos: standard or shortformer"
            )


def _sizes(parameters: Mapping[str, Tensor], source: str) -> dict[str, Any]:
    votes: dict[str, Counter[int]] = {size: Counter() for size in _SIZES}
    for name, tensor in parameters.items():
        inner = within_block(name)
        for size, witnesses in _SIZES.items():
            for witness, axis in witnesses:
                if inner == witness and axis < tensor.ndim:
                    votes[size][tensor.shape[axis]] += 1
    blocks = [number for name in parameters if (number := block_number(name)) is not None]
    sizes: dict[str, Any] = {"n_layers": max(blocks, default=-1) + 1}
    if not blocks:  # no attention: any head size is valid
        votes["n_heads"][1] = votes["d_head"][1] = 1
    for size, count in votes.items():
        if count:
            sizes[size] = count.most_common(1)[0][0]
        elif size not in ("n_key_value_heads", "d_mlp", "d_vocab_out"):
            raise InputError(f"{source} lacks {_SIZES[size][0][0]}, which every model needs")
    return sizes


def _biases(inner: set[str]) -> dict[str, Any]:
    """Whether there are biases, and, if the unembedding differs, whether it has one."""
    names = {name for name in inner if name.rpartition(".")[2].lstrip("_").startswith("b_")}
    if not inner & {"unembed.W_U", "unembed.b_U"}:  # a tied unembedding without a bias
        return {"biases": bool(names), "unembed_bias": False}
    if names == {"unembed.b_U"} and any(name.startswith("attn.") for name in inner):
        return {"biases": False, "unembed_bias": True}
    return {"biases": bool(names)}


def _mixing(parameters: Mapping[str, Tensor], source: str) -> dict[str, Any]:
    """Settings of the fixed mixing matrices that replace queries and keys, if any."""
    matrices = [t for name, t in parameters.items() if within_block(name) == "attn.mixing"]
    if not matrices:
        return {"mixing": None}
    first = matrices[0]
    if first.ndim != 3 or first.shape[1] != first.shape[2]:
        raise InputError(f"{source}: attn.mixing has shape {list(first.shape)}, not [head, m, m]")
    fields: dict[str, Any] = {"n_ctx": first.shape[1]}
    if first.shape[1] > 1:
        causal = all(torch.equal(t, t.tril()) for t in matrices)
        fields["attention_dir"] = "causal" if causal else "bidirectional"
    return fields


def _common_dtype(parameters: Mapping[str, Tensor]) -> torch.dtype:
    """The widest floating dtype among the weights (almost always there is only one)."""
    dtype = None
    for tensor in parameters.values():
        if tensor.is_floating_point():
            dtype = tensor.dtype if dtype is None else torch.promote_types(dtype, tensor.dtype)
    return dtype or torch.float32


def _norms(inner: set[str]) -> dict[str, Any]:
    weights = [name for name in inner if name.startswith("ln") and name.endswith(".w")]
    biases = [name for name in inner if name.startswith("ln") and name.endswith(".b")]
    if not weights and not biases:
        return {}
    return {"normalization_type": "LN" if biases else "RMS"}


def _assume(name: str, value: Any, why: str = "", others: tuple[Any, ...] = ()) -> Assumption:
    alternatives = tuple({name: other} for other in others)
    return Assumption({name: value}, f"{name}={value}{why}", frozenset((name,)), alternatives)


def _open_questions(fields: Mapping[str, Any], inner: set[str]) -> list[Assumption]:
    open_ = []
    if "normalization_type" not in fields:
        why = " (no norm weights; LNPre and RMSPre have none either)"
        open_.append(_assume("normalization_type", None, why, ("LNPre", "RMSPre")))
    open_.append(_assume("eps", 1e-5))
    if "mixing" not in fields:
        why = " (how its matrices were drawn, which no output depends on)"
        open_.append(_assume("mixing", "1/(d_head m)", why))
    elif fields["n_layers"] > 0:
        scale = math.sqrt(fields["d_head"])
        open_.append(
            Assumption(
                {"attn_scale": scale},
                f"attn_scale={scale:.6g} (sqrt(d_head))",
                frozenset({"attn_scale", "use_attn_scale"}),
                ({"use_attn_scale": False},),
            )
        )
        open_.append(_assume("attention_dir", "causal", others=("bidirectional",)))
    if not fields["attn_only"]:
        open_.append(Assumption({}, _SEQUENTIAL, frozenset({"parallel_attn_mlp"})))
    return open_


def _rotary_table(buffers: Mapping[str, Tensor], source: str) -> RotaryTable | None:
    tables = set()
    for name, sin in buffers.items():
        if not name.endswith(".rotary_sin"):
            continue
        cos = buffers.get(name.removesuffix("sin") + "cos")
        if cos is None or cos.shape != sin.shape or sin.ndim != 2:
            raise InputError(f"{source}: {name} has no rotary_cos of the same shape")
        tables.add(read_rotary_table(sin, cos, f"{source}: {name}"))
    if len(tables) > 1:
        raise InputError(f"{source} has different rotary tables in different layers: unsupported")
    return tables.pop() if tables else None


def _positions(table: RotaryTable | None) -> dict[str, Any]:
    if table is None:
        return {}
    read = {
        "positional_embedding_type": "rotary",
        "rotary_dim": table.dim,
        "rotary_base": table.base,
        "rotary_adjacent_pairs": table.adjacent_pairs,
    }
    return {name: value for name, value in read.items() if value is not None}


def _mask_length(buffers: Mapping[str, Tensor], source: str) -> int | None:
    """The context length if a mask shows it: TransformerLens before 3 saved causal masks.

    They are saved for bidirectional models too, so they do not show the direction.
    """
    for name, mask in buffers.items():
        if name.endswith(".mask") and mask.numel():
            if mask.ndim != 2 or not torch.equal(mask, torch.ones_like(mask).tril()):
                raise InputError(f"{source} has windowed attention ({name}), which is unsupported")
            return mask.shape[0]
    return None


def _context_length(
    fields: dict[str, Any],
    assumptions: list[Assumption],
    mask_length: int | None,
    table: RotaryTable | None,
) -> None:
    if "n_ctx" in fields:
        return
    if mask_length is not None:
        fields["n_ctx"] = mask_length
    elif table is not None and table.n_ctx != FIRST_TABLE:
        fields["n_ctx"] = table.n_ctx
    else:  # a table of FIRST_TABLE rows serves any longer context too
        assumptions.append(_assume("n_ctx", FIRST_TABLE))


def _same(setting: Any, value: Any) -> bool:
    if isinstance(setting, float) and isinstance(value, int | float):
        return math.isclose(setting, value, rel_tol=1e-6)
    return bool(setting == value)
