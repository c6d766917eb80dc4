"""The configuration of the toolkit's own transformer, in TransformerLens's field names.

A frozen pydantic model: unknown keys are refused, so that a model the toolkit cannot represent
exactly is refused too, never approximated. `model.cfg` of a `Transformer` is one of these, and
code that reads `cfg` of a `HookedTransformer` or a `TransformerBridge` finds the same names.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, field_serializer, field_validator, model_validator

Normalization = Literal["LN", "LNPre", "RMS", "RMSPre"]
ActivationName = Literal["relu", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "silu"]
DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class TransformerConfig(BaseModel):
    """Shape and options of a `Transformer`; see `HookedTransformerConfig` for the shared names.

    Attributes that differ from `HookedTransformerConfig`:
        positional_embedding_type: "standard" (learned, absolute), "rotary" or "none".
        biases: whether attention, MLP and unembedding have bias parameters at all.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    n_layers: int = Field(ge=0)
    d_model: int = Field(ge=1)
    n_ctx: int = Field(ge=1)
    d_head: int = Field(ge=1)
    n_heads: int = Field(ge=1)
    d_vocab: int = Field(ge=1)
    d_vocab_out: int = -1
    n_key_value_heads: int | None = None
    d_mlp: int | None = None
    attn_only: bool = False
    gated_mlp: bool = False
    act_fn: ActivationName | None = None
    biases: bool = True
    normalization_type: Normalization | None = "LN"
    final_rms: bool = False
    eps: float = 1e-5
    positional_embedding_type: Literal["standard", "rotary", "none"] = "standard"
    rotary_dim: int | None = None
    rotary_base: float = 10000.0
    rotary_adjacent_pairs: bool = False
    attention_dir: Literal["causal", "bidirectional"] = "causal"
    use_attn_scale: bool = True
    attn_scale: float = -1.0
    attn_scores_soft_cap: float = -1.0
    output_logits_soft_cap: float = -1.0
    use_attn_result: bool = False
    dtype: torch.dtype = torch.float32
    initializer_range: float = -1.0
    seed: int | None = None
    model_name: str = "custom"
    tokenizer_name: str | None = None
    default_prepend_bos: bool = False

    @field_validator("dtype", mode="before")
    @classmethod
    def _dtype_by_name(cls, value: Any) -> Any:
        if isinstance(value, str):
            name = value.removeprefix("torch.")
            if name not in DTYPES:
                raise ValueError(f"dtype {value!r} is not one of {', '.join(DTYPES)}")
            return DTYPES[name]
        return value

    @field_serializer("dtype")
    def _dtype_name(self, value: torch.dtype) -> str:
        return str(value).removeprefix("torch.")

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, data: Any) -> Any:
        """Fill in what follows from other fields, as HookedTransformerConfig does."""
        if not isinstance(data, dict):
            return data
        data = dict(data)
        if data.get("d_vocab_out", -1) == -1 and "d_vocab" in data:
            data["d_vocab_out"] = data["d_vocab"]
        if data.get("use_attn_scale", True) and data.get("attn_scale", -1.0) == -1.0:
            if "d_head" in data:
                data["attn_scale"] = math.sqrt(int(data["d_head"]))
        if data.get("positional_embedding_type") == "rotary" and data.get("rotary_dim") is None:
            data["rotary_dim"] = data.get("d_head")
        if data.get("initializer_range", -1.0) < 0 and "d_model" in data:
            data["initializer_range"] = 0.8 / math.sqrt(int(data["d_model"]))
        if data.get("attn_only"):
            data["d_mlp"] = None
            data["act_fn"] = None
        return data

    @model_validator(mode="after")
    def _consistent(self) -> TransformerConfig:
        if not self.attn_only:
            if self.act_fn is None:
                raise ValueError("act_fn must be given for a model with MLPs (relu, gelu, ...)")
            if self.d_mlp is None:
                raise ValueError("d_mlp must be given for a model with MLPs")
        if self.n_key_value_heads is not None and self.n_heads % self.n_key_value_heads:
            raise ValueError(
                f"n_heads ({self.n_heads}) is not a multiple of "
                f"n_key_value_heads ({self.n_key_value_heads})"
            )
        if self.positional_embedding_type == "rotary":
            assert self.rotary_dim is not None
            if self.rotary_dim % 2 or not 0 < self.rotary_dim <= self.d_head:
                raise ValueError(f"rotary_dim ({self.rotary_dim}) must be even and at most d_head")
        return self

    @property
    def device(self) -> str | None:
        """None: a `Transformer` lives where its parameters are (TransformerLens names it here)."""
        return None

    @property
    def parallel_attn_mlp(self) -> bool:
        """False: the toolkit's transformer has no parallel blocks."""
        return False
