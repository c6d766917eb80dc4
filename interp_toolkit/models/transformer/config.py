"""The configuration of the toolkit's own transformer, in TransformerLens's field names.

A frozen pydantic model. Unknown keys are refused, so that a model that the toolkit cannot represent
exactly is refused, never approximated. `model.cfg` of a `Transformer` is one of these, and
code that reads `cfg` of a `HookedTransformer` or a `TransformerBridge` finds the same names.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_serializer,
    field_validator,
    model_validator,
)

Normalization = Literal["LN", "LNPre", "RMS", "RMSPre"]
ActivationName = Literal["relu", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "silu"]
Positions = Literal["standard", "shortformer", "rotary", "none"]
MixingVariance = Literal["1/(d_head m)", "1/(n m)", "1/sqrt(n m)", "1/m unshaped"]
UNSHAPED: MixingVariance = "1/m unshaped"
LARGEST = 2**31 - 1  # of a size
MOST_ENTRIES = 2**59  # of a weight: PyTorch counts its bytes in 63 bits
DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class TransformerConfig(BaseModel):
    """Shape and options of a `Transformer`; see `HookedTransformerConfig` for the shared names.

    Attributes that differ from `HookedTransformerConfig`:
        positional_embedding_type: "standard" (learned, absolute), "shortformer" (learned, added to
            the input of queries and keys only), "rotary" or "none".
        biases: whether attention, MLP and unembedding have bias parameters at all.
        gate_biases: whether a gated MLP has a bias in each of its linear maps (`b_gate`, and `b_in`
            before the product); HookedTransformer has one `b_in` after the product.
        unembed_bias: whether the unembedding has a bias; None: the same as `biases`.
        tied_embeddings: whether the unembedding is the embedding's transpose, not a parameter.
        final_norm: whether a norm comes before the unembedding if the blocks have norms.
        mixing: None, or the variance of the entries of fixed random mixing matrices that replace
            queries, keys and softmax, with n = d_model and m = n_ctx; "1/m unshaped" leaves
            out the identity and the centering (see `models.transformer.attention`).

    Raises:
        ValidationError: pydantic's, a ValueError: unknown, missing or inconsistent fields.

    Examples:
        >>> cfg = TransformerConfig(
        ...     n_layers=1, d_model=8, d_head=4, n_heads=2, n_ctx=6, d_vocab=5, attn_only=True
        ... )
        >>> cfg.positional_embedding_type
        'standard'
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    n_layers: int = Field(ge=0, le=LARGEST)
    d_model: int = Field(ge=1, le=LARGEST)
    n_ctx: int = Field(ge=1, le=LARGEST)
    d_head: int = Field(ge=1, le=LARGEST)
    n_heads: int = Field(ge=1, le=LARGEST)
    d_vocab: int = Field(ge=1, le=LARGEST)
    d_vocab_out: int = Field(default=-1, le=LARGEST)
    n_key_value_heads: int | None = Field(default=None, ge=1, le=LARGEST)
    d_mlp: int | None = Field(default=None, ge=1, le=LARGEST)
    attn_only: bool = False
    gated_mlp: bool = False
    act_fn: ActivationName | None = None
    biases: bool = True
    gate_biases: bool = False
    unembed_bias: bool | None = None
    tied_embeddings: bool = False
    mixing: MixingVariance | None = None
    normalization_type: Normalization | None = "LN"
    final_rms: bool = False
    final_norm: bool = True
    eps: float = 1e-5
    positional_embedding_type: Positions = "standard"
    rotary_dim: int | None = Field(default=None, le=LARGEST)
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

    @model_validator(mode="after")
    def _resolve(self) -> TransformerConfig:
        """Fill in fields that follow from others, as HookedTransformerConfig does."""
        follows: dict[str, Any] = {}
        if self.d_vocab_out == -1:
            follows["d_vocab_out"] = self.d_vocab
        if self.use_attn_scale and self.attn_scale == -1.0:
            follows["attn_scale"] = math.sqrt(self.d_head)
        if self.positional_embedding_type == "rotary" and self.rotary_dim is None:
            follows["rotary_dim"] = self.d_head
        if self.initializer_range < 0:
            follows["initializer_range"] = 0.8 / math.sqrt(self.d_model)
        if self.attn_only:
            follows.update(d_mlp=None, act_fn=None, gated_mlp=False, gate_biases=False)
        if self.unembed_bias is None:
            follows["unembed_bias"] = self.biases
        for name, value in follows.items():
            object.__setattr__(self, name, value)
        return self

    def _largest_weight(self) -> int:
        """Number of entries of the largest weight or mixing matrix."""
        tokens = max(self.d_vocab, self.d_vocab_out, self.n_ctx, self.d_mlp or 0)
        mixed = self.n_heads * self.n_ctx**2 if self.mixing else 0
        return max(self.n_heads * self.d_head * self.d_model, tokens * self.d_model, mixed)

    @model_validator(mode="after")
    def _consistent(self) -> TransformerConfig:
        entries = self._largest_weight()
        if entries > MOST_ENTRIES:
            raise ValueError(f"a weight would have {entries:.0e} entries, which is too many")
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
        if self.use_attn_scale and not self.attn_scale > 0:
            raise ValueError(
                f"attn_scale ({self.attn_scale}) must be positive: scores / attn_scale"
            )
        if self.gate_biases and not (self.gated_mlp and self.biases):
            raise ValueError("gate_biases are biases of gated MLPs: give gated_mlp and biases too")
        if self.tied_embeddings and self.d_vocab_out != self.d_vocab:
            raise ValueError(
                f"tied_embeddings need one vocabulary, not {self.d_vocab} ids and "
                f"{self.d_vocab_out} logits"
            )
        if self.mixing is not None:
            self._check_mixing()
        if self.d_vocab_out < 1:
            raise ValueError(f"d_vocab_out ({self.d_vocab_out}) must be positive")
        if self.dtype not in DTYPES.values():
            raise ValueError(f"dtype {self.dtype} is not one of {', '.join(DTYPES)}")
        return self

    def _check_mixing(self) -> None:
        if self.positional_embedding_type in ("rotary", "shortformer"):
            raise ValueError(
                f"{self.positional_embedding_type} positions act on queries and keys, which "
                "mixing does not have"
            )
        if self.n_key_value_heads is not None:
            raise ValueError("mixing has no key-value heads to share")
        if self.attn_scores_soft_cap > 0:
            raise ValueError("attn_scores_soft_cap caps scores, which mixing does not have")

    @property
    def device(self) -> str | None:
        """None: a `Transformer` is where its parameters are (TransformerLens stores it here)."""
        return None

    @property
    def parallel_attn_mlp(self) -> bool:
        """False: the toolkit's transformer has no parallel blocks."""
        return False
