"""The toolkit's own transformer, with `HookedTransformer`'s names and numbers.

`HookedTransformer` exists up to TransformerLens 3.x, and researchers have its state dicts on disk.
`Transformer` has its parameter names and shapes, its hook points and its semantics, for the
options of `TransformerConfig`, on `HookedRootModule`, which versions 3 and 4 both keep. Tokens are
embedded, each block adds the outputs of its heads and its MLP to the residual stream, and the last
residual is normalized and unembedded.

Differences from `HookedTransformer`, none of which changes a value at a hook:
    - the state dict holds only parameters (no masks, no rotary tables) and mixing matrices;
    - a shortformer model run from a later layer still has its positions, and their hook fires;
    - `ln1` runs once per block, not once each for queries, keys and values, so its hooks fire once;
    - hook points that would never fire do not exist, so an edit there is a KeyError;
    - a seed is used through its own generator and leaves the global ones alone;
    - `cfg` is frozen; `.to(dtype)` replaces it by one with the parameters' new dtype.

*Stacked weights*: every layer's weights in one tensor, under `HookedTransformer`'s names. The first
axis is the layer, the second (attention) the head; grouped key and value heads are repeated for
every query head. A model without biases has zeros here. Weights that a model does not have (`W_in`
of an attention-only one, `W_pos` of a rotary one, `W_Q` with fixed mixing) raise AttributeError;
`W_gate` and `b_gate` are None if MLPs have none. Each access stacks again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp_toolkit.errors import InputError
from interp_toolkit.models.running.hooks import has_hooks
from interp_toolkit.models.transformer.attention import MixingAttention, RotaryEmbedding, attention
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.hooks import ActivationCache, HookedRootModule, HookPoint
from interp_toolkit.models.transformer.layers import (
    MLP,
    Embed,
    GatedMLP,
    PosEmbed,
    TiedUnembed,
    Unembed,
    block_norm,
    final_norm,
    fire,
    soft_cap,
)

if TYPE_CHECKING:
    from interp_toolkit.models.transformer.hooks import FactoredMatrix


class StackedWeights:
    """The stacked weights of a model with `cfg`, `blocks`, `embed`, `unembed`."""

    cfg: Any
    blocks: Any
    embed: Any
    pos_embed: Any
    unembed: Any

    def _stack(self, part: str, name: str) -> Tensor:
        return torch.stack([getattr(getattr(block, part), name) for block in self.blocks])

    def _stack_biases(self, part: str, name: str, *shape: int | None) -> Tensor:
        if self.cfg.biases:
            return self._stack(part, name)
        getattr(getattr(self.blocks[0], part), name)  # raises AttributeError if it is missing
        return self.W_E.new_zeros(self.cfg.n_layers, *shape)

    @property
    def W_E(self) -> Float[Tensor, "d_vocab d_model"]:
        """Token embedding."""
        return self.embed.W_E  # type: ignore[no-any-return]

    @property
    def W_pos(self) -> Float[Tensor, "n_ctx d_model"]:
        """Learned absolute position embedding."""
        return self.pos_embed.W_pos  # type: ignore[no-any-return]

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab_out"]:
        """Unembedding."""
        return self.unembed.W_U  # type: ignore[no-any-return]

    @property
    def b_U(self) -> Float[Tensor, "d_vocab_out"]:
        """The unembedding's bias."""
        if self.cfg.unembed_bias:
            return self.unembed.b_U  # type: ignore[no-any-return]
        return self.W_E.new_zeros(self.cfg.d_vocab_out)

    @property
    def W_Q(self) -> Float[Tensor, "layer head d_model d_head"]:
        """Query weights."""
        return self._stack("attn", "W_Q")

    @property
    def W_K(self) -> Float[Tensor, "layer head d_model d_head"]:
        """Key weights."""
        return self._stack("attn", "W_K")

    @property
    def W_V(self) -> Float[Tensor, "layer head d_model d_head"]:
        """Value weights."""
        return self._stack("attn", "W_V")

    @property
    def W_O(self) -> Float[Tensor, "layer head d_head d_model"]:
        """Output weights."""
        return self._stack("attn", "W_O")

    @property
    def b_Q(self) -> Float[Tensor, "layer head d_head"]:
        """Query biases."""
        return self._stack_biases("attn", "b_Q", self.cfg.n_heads, self.cfg.d_head)

    @property
    def b_K(self) -> Float[Tensor, "layer head d_head"]:
        """Key biases."""
        return self._stack_biases("attn", "b_K", self.cfg.n_heads, self.cfg.d_head)

    @property
    def b_V(self) -> Float[Tensor, "layer head d_head"]:
        """Value biases."""
        return self._stack_biases("attn", "b_V", self.cfg.n_heads, self.cfg.d_head)

    @property
    def b_O(self) -> Float[Tensor, "layer d_model"]:
        """Output biases."""
        return self._stack_biases("attn", "b_O", self.cfg.d_model)

    @property
    def W_in(self) -> Float[Tensor, "layer d_model d_mlp"]:
        """The MLPs' input weights."""
        return self._stack("mlp", "W_in")

    @property
    def W_gate(self) -> Float[Tensor, "layer d_model d_mlp"] | None:
        """The MLPs' gate weights; None without gates."""
        return self._stack("mlp", "W_gate") if self.cfg.gated_mlp else None

    @property
    def W_out(self) -> Float[Tensor, "layer d_mlp d_model"]:
        """The MLPs' output weights."""
        return self._stack("mlp", "W_out")

    @property
    def b_in(self) -> Float[Tensor, "layer d_mlp"]:
        """The MLPs' input biases."""
        return self._stack_biases("mlp", "b_in", self.cfg.d_mlp)

    @property
    def b_gate(self) -> Float[Tensor, "layer d_mlp"] | None:
        """The gates' biases; None unless gated MLPs have a bias in each of their linear maps."""
        return self._stack("mlp", "b_gate") if self.cfg.gate_biases else None

    @property
    def mixing(self) -> Float[Tensor, "layer head query key"]:
        """The fixed mixing matrices, in a model that has these instead of queries and keys."""
        return self._stack("attn", "mixing")

    @property
    def b_out(self) -> Float[Tensor, "layer d_model"]:
        """The MLPs' output biases."""
        return self._stack_biases("mlp", "b_out", self.cfg.d_model)

    @property
    def QK(self) -> FactoredMatrix:
        """`W_Q @ W_K.T` of every head, factored: scores without scale, biases and positions."""
        from interp_toolkit.models.transformer.hooks import FactoredMatrix

        return FactoredMatrix(self.W_Q, self.W_K.transpose(-2, -1))

    @property
    def OV(self) -> FactoredMatrix:
        """`W_V @ W_O` of every head, factored: its output as a function of the attended input."""
        from interp_toolkit.models.transformer.hooks import FactoredMatrix

        return FactoredMatrix(self.W_V, self.W_O)


RETURN_TYPES = ("logits", "loss", "both", None)


class Output(NamedTuple):
    """The output for `return_type="both"`."""

    logits: Float[Tensor, "batch pos d_vocab"]
    loss: Float[Tensor, "*batch_pos"]


class Block(nn.Module):
    """Attention, then (unless `attn_only`) an MLP, each added to the residual stream.

    Hook points `[batch, pos, d_model]`: hook_resid_pre, hook_attn_out, hook_resid_post; with an
    MLP also hook_resid_mid and hook_mlp_out.
    """

    def __init__(self, cfg: TransformerConfig, rotary: RotaryEmbedding | None):
        super().__init__()
        self.ln1 = block_norm(cfg)
        self.attn = MixingAttention(cfg) if cfg.mixing else attention(cfg, rotary)
        self.hook_resid_pre = HookPoint()
        self.hook_attn_out = HookPoint()
        self.hook_resid_post = HookPoint()
        self.attn_only = cfg.attn_only
        if not cfg.attn_only:
            self.ln2 = block_norm(cfg)
            self.mlp = GatedMLP(cfg) if cfg.gated_mlp else MLP(cfg)
            self.hook_resid_mid = HookPoint()
            self.hook_mlp_out = HookPoint()

    def forward(
        self,
        resid: Float[Tensor, "batch pos d_model"],
        position: Float[Tensor, "batch pos d_model"] | None = None,
    ) -> Float[Tensor, "batch pos d_model"]:
        """The residual stream after this block; `position` is for its queries and keys only."""
        resid = fire(self.hook_resid_pre, resid)
        resid = resid + fire(self.hook_attn_out, self.attn(self.ln1(resid), position))
        if not self.attn_only:
            resid = fire(self.hook_resid_mid, resid)
            resid = resid + fire(self.hook_mlp_out, self.mlp(self.ln2(resid)))
        return fire(self.hook_resid_post, resid)


class Transformer(HookedRootModule, StackedWeights):
    """A decoder or (with `attention_dir="bidirectional"`) encoder with hooks everywhere.

    Attributes:
        cfg: the configuration; `cfg.dtype` is the parameters' dtype, also after `.to(dtype)`.
        tokenizer: None; the model reads token ids.
        check_tokens: whether `forward` checks that ids lie within the vocabulary. On a GPU this
            synchronizes once per call; CUDA graphs and `torch.func.vmap` need it off, and
            `torch.compile` makes a single graph only without it.

    Args:
        cfg: the configuration.
        init_weights: False leaves the weights unset, for a caller that loads them from a file.

    The methods `run_with_hooks`, `run_with_cache`, `hooks`, `reset_hooks` are TransformerLens's.

    Examples:
        >>> from interp_toolkit.models import TransformerConfig
        >>> sizes = dict(n_layers=1, d_model=8, d_head=4, n_heads=2, n_ctx=6, d_vocab=5)
        >>> model = Transformer(TransformerConfig(**sizes, attn_only=True))
        >>> model(torch.tensor([[0, 1, 2]])).shape
        torch.Size([1, 3, 5])
    """

    tokenizer: None = None

    def __init__(self, cfg: TransformerConfig, *, init_weights: bool = True):
        super().__init__()
        self.cfg = cfg
        self.check_tokens = True
        self.embed = Embed(cfg)
        self.hook_embed = HookPoint()
        if cfg.positional_embedding_type in ("standard", "shortformer"):
            self.pos_embed = PosEmbed(cfg)
            self.hook_pos_embed = HookPoint()
        rotary = RotaryEmbedding(cfg) if cfg.positional_embedding_type == "rotary" else None
        self.blocks = nn.ModuleList(Block(cfg, rotary) for _ in range(cfg.n_layers))
        if cfg.normalization_type is not None and cfg.final_norm:
            self.ln_final = final_norm(cfg)
        tied = cfg.tied_embeddings
        self.unembed = TiedUnembed(cfg, self.embed) if tied else Unembed(cfg)
        if init_weights:
            self.init_weights()
        self.setup()

    def init_weights(self, seed: int | torch.Generator | None = None) -> None:
        """GPT-2's initialization: every `W_` normal, biases zero, normalization scales one.

        The standard deviation is `cfg.initializer_range`, `0.8 / sqrt(d_model)` by default.
        Values are drawn in float64 on the generator's device, so one seed means the same weights
        in every dtype and on every device.

        Args:
            seed: a seed, or a generator to draw from; None: `cfg.seed`. With a seed or a generator
                PyTorch's global generator is neither used nor advanced; without any, the global
                generator is used, as usual in PyTorch.
        """
        seed = self.cfg.seed if seed is None else seed
        generator = torch.Generator().manual_seed(seed) if isinstance(seed, int) else seed
        device = generator.device if generator is not None else torch.device("cpu")
        for name, parameter in self.named_parameters():
            if "W_" in name:
                shape, kind = parameter.shape, torch.float64
                values = torch.randn(shape, generator=generator, dtype=kind, device=device)
                parameter.data.copy_(values * self.cfg.initializer_range)
            else:
                parameter.data.fill_(1.0 if name.endswith(".w") else 0.0)
        for block in self.blocks if self.cfg.mixing else ():
            block.attn.draw_mixing(generator)

    def forward(
        self,
        input: Any,
        return_type: str | None = "logits",
        *,
        loss_per_token: bool = False,
        start_at_layer: int | None = None,
        stop_at_layer: int | None = None,
        tokens: Tensor | None = None,
    ) -> Float[Tensor, "..."] | Output | None:
        """Run the model, or some of its layers.

        Args:
            input: token ids, integers `[batch, pos]`; with `start_at_layer` the residual stream
                before that layer, `[batch, pos, d_model]`.
            return_type: "logits" `[batch, pos, d_vocab_out]`; "loss", the next-token cross-entropy
                in nats; "both" as an `Output`; None runs the model for its hooks only.
            loss_per_token: the loss as `[batch, pos - 1]` instead of its mean.
            start_at_layer: the first block to run, as an index into `blocks` (may be negative).
            stop_at_layer: the block to stop before, as an index; the residual stream there is
                returned, and `return_type` is ignored.
            tokens: the token ids for a loss if `start_at_layer` is set.

        Raises:
            InputError: the input is not token ids (or a residual stream) of this model, or no loss
                can be computed from it.
        """
        if return_type not in RETURN_TYPES:
            raise InputError(f"return_type must be logits, loss, both or None, not {return_type!r}")
        if start_at_layer is None:
            tokens = self._checked_tokens(input)
            resid: Tensor = fire(self.hook_embed, self.embed(tokens))
        else:
            tokens = None if tokens is None else self._checked_tokens(tokens)
            resid = self._checked_residual(input)
        positions = self.cfg.positional_embedding_type
        if positions == "standard" and start_at_layer is None:
            resid = resid + self._positions(resid)
        compared = self._positions(resid) if positions == "shortformer" else None
        for block in list(self.blocks)[start_at_layer:stop_at_layer]:
            resid = block(resid, compared)
        if stop_at_layer is not None:
            return resid
        return self._output(resid, tokens, return_type, per_token=loss_per_token)

    def _output(
        self,
        resid: Float[Tensor, "batch pos d_model"],
        tokens: Int[Tensor, "batch pos"] | None,
        return_type: str | None,
        *,
        per_token: bool,
    ) -> Float[Tensor, "..."] | Output | None:
        """What `forward` returns, from what the final norm reads."""
        if self.cfg.normalization_type is not None and self.cfg.final_norm:
            resid = self.ln_final(resid)
        if return_type is None:
            return None
        logits = soft_cap(self.unembed(resid), self.cfg.output_logits_soft_cap)
        if return_type == "logits":
            return logits
        loss = self._loss(logits, tokens, per_token=per_token)
        return loss if return_type == "loss" else Output(logits, loss)

    def run_with_cache(
        self, *model_args: Any, return_cache_object: bool = True, **kwargs: Any
    ) -> tuple[Any, Any]:
        """The output, and every activation by its hook's name; see `HookedRootModule`.

        The activations come as TransformerLens's `ActivationCache` (`cache["pattern", 0]`), or as
        a plain dictionary with `return_cache_object=False`.
        """
        output, cache = super().run_with_cache(*model_args, **kwargs)
        if return_cache_object:
            has_batch = not kwargs.get("remove_batch_dim", False)
            cache = ActivationCache(cache, self, has_batch_dim=has_batch)
        return output, cache

    def to_tokens(self, text: object, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise InputError, because there is no tokenizer."""
        raise InputError(
            "this model has no tokenizer: give it token ids, an integer tensor [batch, pos]"
        )

    def _positions(self, resid: Tensor) -> Float[Tensor, "batch pos d_model"]:
        position: Tensor = self.pos_embed(resid[..., 0])
        if has_hooks(self.hook_pos_embed):
            position = self.hook_pos_embed(position.clone())
        return position

    def _loss(
        self, logits: Tensor, tokens: Tensor | None, per_token: bool
    ) -> Float[Tensor, "*batch_pos"]:
        if tokens is None:
            raise InputError("a loss needs the token ids: pass tokens= with start_at_layer=")
        d_out = self.cfg.d_vocab_out
        if d_out < self.cfg.d_vocab and self.check_tokens and (tokens[:, 1:] >= d_out).any():
            raise InputError(f"a token to predict has no logit: the model has only {d_out}")
        return next_token_loss(logits, tokens, per_token=per_token)

    def _checked_tokens(self, tokens: Any) -> Int[Tensor, "batch pos"]:
        if not isinstance(tokens, Tensor):
            self.to_tokens(tokens)
        if tokens.dtype == torch.bool or tokens.is_floating_point() or tokens.is_complex():
            raise InputError(f"token ids are integers, got a tensor of {tokens.dtype}")
        if tokens.ndim != 2 or not tokens.shape[1]:
            raise InputError(f"token ids have the shape [batch, pos], got {list(tokens.shape)}")
        if tokens.shape[1] > self.cfg.n_ctx:
            raise InputError(
                f"{tokens.shape[1]} positions are more than the model's context, {self.cfg.n_ctx}"
            )
        if self.check_tokens and len(tokens):
            low, high = torch.stack(tokens.aminmax()).tolist()  # one copy from the device
            if low < 0 or high >= self.cfg.d_vocab:
                raise InputError(
                    f"token id {low if low < 0 else high} is outside the model's vocabulary, "
                    f"0 to {self.cfg.d_vocab - 1}"
                )
        return tokens.long()

    def _checked_residual(self, resid: Any) -> Float[Tensor, "batch pos d_model"]:
        d_model, n_ctx = self.cfg.d_model, self.cfg.n_ctx
        shape = list(resid.shape) if isinstance(resid, Tensor) else type(resid).__name__
        if not isinstance(resid, Tensor) or not resid.is_floating_point():
            raise InputError("with start_at_layer the input must be a residual stream of floats")
        if resid.ndim != 3 or resid.shape[2] != d_model or not 0 < resid.shape[1] <= n_ctx:
            raise InputError(
                f"with start_at_layer the input must be [batch, pos, {d_model}] with at most "
                f"{n_ctx} positions, got {shape}"
            )
        return resid

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Transformer:
        """The common path of `.to`, `.double` and `.cuda`, which keeps `cfg.dtype` up to date."""
        super()._apply(fn, recurse)
        dtype = self.W_E.dtype
        if dtype != self.cfg.dtype:
            self.cfg = self.cfg.model_copy(update={"dtype": dtype})
        return self


def next_token_loss(
    logits: Float[Tensor, "batch pos d_vocab"],
    tokens: Int[Tensor, "batch pos"],
    *,
    per_token: bool = False,
) -> Float[Tensor, "*batch_pos"]:
    """Cross-entropy, in nats, of each token but the first, from the logits one position earlier.

    Returns the mean, or with `per_token` all values, `[batch, pos - 1]`.
    Raises InputError if there is nothing to predict.
    """
    batch, n_pos, d_vocab = logits.shape
    if n_pos < 2:
        raise InputError("a next-token loss needs at least 2 positions, got 1")
    targets = tokens[:, 1:].to(device=logits.device, dtype=torch.int64)
    reduction = "none" if per_token else "mean"
    loss = F.cross_entropy(
        logits[:, :-1].reshape(-1, d_vocab), targets.reshape(-1), reduction=reduction
    )
    return loss.view(batch, n_pos - 1) if per_token else loss
