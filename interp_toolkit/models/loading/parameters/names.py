"""Recognize a state dict's naming scheme, and convert a bridge's names to `HookedTransformer`'s.

`HookedTransformer` (and this package's transformer) stores `blocks.0.attn.W_Q [head, d_model,
d_head]`, multiplied from the right. `TransformerBridge.state_dict()` stores
`blocks.0.attn.q.weight` with the heads concatenated, multiplied from the left (`torch.nn.Linear`),
except for the MLP of GPT-2, which is transposed (`Conv1D`). TransformerLens 3.9 and 4.3 write the
same names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping

import torch
from jaxtyping import Shaped
from torch import Tensor

from interp_toolkit.errors import InputError

Tensors = dict[str, Tensor]

#: name parts from wrappers (parallel training, torch.compile, checkpointing), at any level
_WRAPPERS = re.compile(
    r"(?<![^.])(module|_orig_mod|_forward_module|_(fsdp|checkpoint)_wrapped_module)\."
)
#: start of a model's names after a prefix (`model.`, `net.`, `ema_model.`), the first group
_PREFIXED = re.compile(
    r"(.*\.)?(embed\.(W_E|weight)|blocks\.\d+\.(attn|mlp|ln\d)\..+|transformer\.wte\.weight)"
)
_BUFFERS = re.compile(r"\.attn\.(mask|IGNORE|rotary_sin|rotary_cos)$")
_BLOCK = re.compile(r"^blocks\.(\d+)\.")
_ATTENTION = {"q": "Q", "k": "K", "v": "V"}
#: names in a bridge without a counterpart in the toolkit's transformer, with their meaning
_FOREIGN = {
    "ln1_post": "norms after the attention",
    "ln2_post": "norms after the MLP",
    "q_norm": "query norms",
    "k_norm": "key norms",
    "experts": "experts",
    "router": "experts",
    "sinks": "attention sinks",
    "token_type_embed": "token-type embeddings",
    "mlp.gate.bias": "a gate bias",
}


def unwrap_names(tensors: Mapping[str, Tensor], source: str) -> Tensors:
    """The tensors, their names without the parts of wrappers and without a prefix of all blocks.

    Raises InputError if two names become equal, or if blocks or embeddings have several prefixes
    and none stands without one.
    """
    named = _renamed(tensors, lambda name: _WRAPPERS.sub("", name), source)
    prefixes = {match[1] or "" for name in named if (match := _PREFIXED.fullmatch(name))}
    if "" in prefixes or not prefixes:
        return named
    if len(prefixes) > 1:
        first, second, *_ = sorted(prefixes)
        raise InputError(
            f"{source} has {len(prefixes)} sets of blocks or embeddings, under {first} and {second}"
            f": leave out all but one, for example --ignore '{second}*'"
        )
    prefix = prefixes.pop()
    return _renamed(named, lambda name: without_prefix(name, prefix), source)


def _renamed(tensors: Mapping[str, Tensor], rename: Callable[[str], str], source: str) -> Tensors:
    originals: dict[str, str] = {}
    for name in tensors:
        short = rename(name)
        if short in originals:
            raise InputError(
                f"{source} has {short} twice, as {originals[short]} and as {name}: leave one out "
                "with --ignore"
            )
        originals[short] = name
    return {short: tensors[name] for short, name in originals.items()}


def without_prefix(name: str, prefix: str) -> str:
    """The name without a prefix, or without as many leading parts of it as the name has.

    Examples:
        >>> without_prefix("base_model.model.lm_head.weight", "base_model.model.transformer.")
        'lm_head.weight'
    """
    while prefix and not name.startswith(prefix):
        prefix = prefix[: prefix[:-1].rfind(".") + 1]
    return name.removeprefix(prefix)


def split_buffers(tensors: Mapping[str, Tensor]) -> tuple[Tensors, Tensors]:
    """Separate parameters from buffers (masks and rotary tables)."""
    buffers = {name: t for name, t in tensors.items() if _BUFFERS.search(name)}
    return {name: t for name, t in tensors.items() if name not in buffers}, buffers


def is_bridge(names: Iterable[str]) -> bool:
    """Whether these are the names of a `TransformerBridge.state_dict()`."""
    unique_names = set(names)
    attention = {
        within_block(name) for name in unique_names if within_block(name).startswith("attn.")
    }
    whole = {"embed.weight", "unembed.weight"} <= unique_names and not attention
    return whole or "attn.q.weight" in attention


def is_hooked(names: Iterable[str]) -> bool:
    """Whether these are the names of a `HookedTransformer.state_dict()`."""
    return any(n == "embed.W_E" or re.search(r"^blocks\.\d+\.attn\.W_[QO]$", n) for n in names)


def block_number(name: str) -> int | None:
    """The index of a tensor's block; None outside the blocks."""
    match = _BLOCK.match(name)
    return int(match.group(1)) if match else None


def within_block(name: str) -> str:
    """The name without `blocks.N.`."""
    return _BLOCK.sub("", name)


def provisional_heads(tensors: Mapping[str, Tensor]) -> int:
    """A number of heads that divides queries and keys, used until the actual one is set."""
    rows = [t.shape[0] for n, t in tensors.items() if n.endswith("attn.q.weight") and t.ndim]
    rows += [t.shape[0] for n, t in tensors.items() if n.endswith("attn.k.weight") and t.ndim]
    return max(rows, default=1) // max(math.gcd(*rows), 1) or 1


def bridge_to_hooked(tensors: Mapping[str, Tensor], n_heads: int, source: str) -> Tensors:
    """A bridge's tensors with the names and shapes of `HookedTransformer`.

    Biases that the architecture lacks become zeros if other parts have biases.
    Raises InputError for parts that the toolkit's transformer lacks, or if the number of heads
    does not divide the projections.
    """
    for name in tensors:
        foreign = next((what for part, what in _FOREIGN.items() if part in name), None)
        if foreign:
            raise InputError(
                f"{source} has {foreign} ({name}), which the toolkit's transformer does not have: "
                "load the model from its Hugging Face folder instead"
            )
    converter = _BridgeNames(tensors, n_heads, source)
    hooked = dict(converter.convert(name, tensor) for name, tensor in tensors.items())
    return with_zero_biases(hooked)


class _BridgeNames:
    """Conversion of one bridge state dict: number of heads, orientation of the MLP matrices."""

    def __init__(self, tensors: Mapping[str, Tensor], n_heads: int, source: str):
        self.source = source
        self.n_heads = n_heads
        self.d_head = self._d_head(tensors)
        self.gated = any(name.endswith(".mlp.gate.weight") for name in tensors)
        self.conv1d = _is_conv1d(tensors)
        shapes = {
            self._out_features(n, t) for n, t in tensors.items() if n.endswith("attn.k.weight")
        }
        self.grouped = any(out != n_heads * self.d_head for out in shapes)

    def _out_features(self, name: str, tensor: Tensor) -> int:
        if tensor.ndim != 2:
            raise InputError(f"{self.source}: {name} has shape {list(tensor.shape)}, not a matrix")
        return tensor.shape[0]

    def _d_head(self, tensors: Mapping[str, Tensor]) -> int:
        for name, tensor in tensors.items():
            if name.endswith("attn.q.weight"):
                width = self._out_features(name, tensor)
                if width % self.n_heads:
                    raise InputError(
                        f"n_heads={self.n_heads} does not divide the {width} query dimensions of "
                        f"{self.source}"
                    )
                return width // self.n_heads
        return 1

    def convert(self, name: str, tensor: Tensor) -> tuple[str, Tensor]:
        """Convert a tensor to `HookedTransformer`'s name and values; unknown ones are unchanged."""
        block, inner = name[: len(name) - len(within_block(name))], within_block(name)
        if match := re.fullmatch(r"attn\.([qkv])\.(weight|bias)", inner):
            return self._projection(block, match.group(1), match.group(2), tensor)
        if match := re.fullmatch(r"(ln1|ln2|ln_final)\.(weight|bias)", inner):
            return f"{block}{match.group(1)}.{match.group(2)[0]}", tensor
        mlp_matrix = inner.startswith("mlp.") and self.conv1d
        turned = tensor if mlp_matrix or tensor.ndim != 2 else tensor.T
        simple = {
            "embed.weight": ("embed.W_E", tensor),
            "pos_embed.weight": ("pos_embed.W_pos", tensor),
            "attn.o.bias": ("attn.b_O", tensor),
            "mlp.in.weight": ("mlp.W_in", turned),
            "mlp.in.bias": ("mlp.b_in", tensor),
            "mlp.gate.weight": ("mlp.W_gate", turned),
            "mlp.out.weight": ("mlp.W_out", turned),
            "mlp.out.bias": ("mlp.b_out", tensor),
            "unembed.weight": ("unembed.W_U", turned),
            "unembed.bias": ("unembed.b_U", tensor),
        }
        if inner == "attn.o.weight" and tensor.ndim == 2:
            stored = tensor if self.conv1d else tensor.T
            return f"{block}attn.W_O", self._heads_first(stored, name)
        if inner == "mlp.in.bias" and self.gated and bool(tensor.any()):
            raise InputError(
                f"{self.source} has a gated MLP with a bias inside the gate ({name}), "
                "which the toolkit's transformer does not have"
            )
        if inner in simple:
            new, values = simple[inner]
            return f"{block}{new}", values
        return name, tensor

    def _projection(self, block: str, which: str, kind: str, tensor: Tensor) -> tuple[str, Tensor]:
        letter = "W" if kind == "weight" else "b"
        own = "_" if self.grouped and which in "kv" else ""
        new = f"{block}attn.{own}{letter}_{_ATTENTION[which]}"
        heads = self._heads_first(tensor, new)
        return new, heads.transpose(-1, -2) if kind == "weight" else heads

    def _heads_first(
        self, tensor: Shaped[Tensor, "heads ..."], name: str
    ) -> Shaped[Tensor, "head d_head ..."]:
        if tensor.shape[0] % self.d_head:
            raise InputError(
                f"{self.source}: {name} has {tensor.shape[0]} rows, "
                f"not a multiple of the head size {self.d_head}"
            )
        return tensor.reshape(-1, self.d_head, *tensor.shape[1:])


def mlp_is_square(tensors: Mapping[str, Tensor]) -> bool:
    """Whether a bridge's MLP matrices are square, so that shapes do not show their orientation."""
    matrices = [t for name, t in tensors.items() if name.endswith("mlp.in.weight") and t.ndim == 2]
    return any(t.shape[0] == t.shape[1] for t in matrices)


def _is_conv1d(tensors: Mapping[str, Tensor]) -> bool:
    """Whether matrices are stored input-first (GPT-2's `Conv1D`), by the MLP's shape."""
    width = tensors["embed.weight"].shape[-1] if "embed.weight" in tensors else None
    shapes = [t.shape for name, t in tensors.items() if name.endswith("mlp.in.weight")]
    return any(len(s) == 2 and s[0] == width and s[1] != width for s in shapes)


def with_zero_biases(tensors: Tensors) -> Tensors:
    """Add zeros for the biases that no block has, if the model has other biases."""
    if not any(re.search(r"\.b_\w+$", name) for name in tensors):
        return tensors
    inner = {within_block(name) for name in tensors}
    filled = dict(tensors)
    for name, tensor in tensors.items():
        match = re.search(r"^(.*\.)(_?)W_(Q|K|V|O|in|out|U)$", name)
        if match is None:
            continue
        bias = f"{match.group(1)}{match.group(2)}b_{match.group(3)}"
        if within_block(bias) not in inner:
            per_head = match.group(3) in "QKV"
            shape = (tensor.shape[0], tensor.shape[-1]) if per_head else (tensor.shape[-1],)
            filled[bias] = torch.zeros(shape, dtype=tensor.dtype)
    return filled
