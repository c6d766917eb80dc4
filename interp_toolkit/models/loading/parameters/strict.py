"""Load weights into a model only if all are present, finite and of the right shape."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.formatting import listed
from interp_toolkit.models.loading.parameters.names import block_number
from interp_toolkit.models.model import Model
from interp_toolkit.models.transformer.circuit import CircuitTransformer
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

#: tensor names in a `Transformer` of any configuration
_OWN_NAMES = re.compile(
    r"embed\.W_E|pos_embed\.W_pos|unembed\.[Wb]_U|ln_final\.[wb]|blocks\.\d+\.(ln[12]\.[wb]|"
    r"attn\._?[Wb]_[QKVO]|attn\.mixing|mlp\.[Wb]_(in|out|gate))"
)
_NAMED = 3  # tensors that a message names before counting the rest


def build_transformer(
    config: TransformerConfig,
    tensors: Mapping[str, Tensor],
    device: torch.device,
    source: str,
    circuit: Mapping[str, Any] | None = None,
) -> Transformer:
    """A `Transformer` with these weights, copied, in the configuration's dtype, in eval mode.

    `circuit`: the record of a `CircuitTransformer`.

    Raises InputError with a list of the tensors that are missing, unexpected or misshapen.
    """
    _check_blocks(config.n_layers, tensors, source)
    with torch.device("meta"):  # the model's names and shapes, without memory
        if circuit is None:
            model = Transformer(config, init_weights=False)
        else:
            model = CircuitTransformer(config, circuit)
    _check_shapes({name: t.shape for name, t in model.state_dict().items()}, tensors, source)
    check_floating(tensors, source)
    weights = {name: t.to(device, config.dtype, copy=True) for name, t in tensors.items()}
    model.load_state_dict(weights, strict=True, assign=True)
    model.eval()
    return model


def check_floating(tensors: Mapping[str, Tensor], source: str) -> None:
    """Raise InputError for integer or boolean weights: quantized, or not weights at all."""
    whole = {name: t.dtype for name, t in tensors.items() if not t.is_floating_point()}
    if whole:
        kinds = ", ".join(sorted({str(dtype).removeprefix("torch.") for dtype in whole.values()}))
        raise InputError(
            f"{source} has weights of {kinds}: {first_few(list(whole))}. Save them as the floating-"
            "point numbers that the model computes with (dequantized), or leave them out: --ignore"
        )


def check_names(names: Iterable[str], source: str) -> None:
    """Raise InputError for names that no transformer here has in any configuration."""
    strange = [name for name in names if not _OWN_NAMES.fullmatch(name)]
    if strange:
        raise InputError(
            f"{source} does not fit the model: unknown tensors {first_few(strange)} (skip: "
            f"--ignore '{strange[0]}'; rename: --keys FILE.json)"
        )


def check_finite(tensors: Iterable[tuple[str, Tensor]], source: str) -> None:
    """Raise InputError that names the weights with NaN or infinite values, if there are any."""
    bad = [
        name.replace("._original_component", "")  # bridges wrap modules, and PyTorch names both
        for name, tensor in tensors
        if tensor.is_floating_point() and not _finite(tensor)
    ]
    if bad:
        raise InputError(f"{source} has NaN or infinite values in {first_few(bad)}")


def _finite(tensor: Tensor) -> bool:
    """Whether all entries are finite; a finite sum shows it, any other sum may have overflowed."""
    total = tensor.sum(dtype=torch.promote_types(tensor.dtype, torch.float32))
    return bool(torch.isfinite(total)) or bool(torch.isfinite(tensor).all())


def model_weights(model: Model) -> Iterable[tuple[str, Tensor]]:
    """Tensors that must be finite, by name: parameters, and mixing matrices if any.

    Other buffers are exempt: HookedTransformer stores -inf in one.
    """
    mixing = ((name, t) for name, t in model.named_buffers() if name.endswith(".attn.mixing"))
    return chain(model.named_parameters(), mixing)


def first_few(names: Sequence[str]) -> str:
    """`a, b, c and 4 more`."""
    return listed(names, _NAMED)


def _check_blocks(n_layers: int, tensors: Mapping[str, Tensor], source: str) -> None:
    present = {number for name in tensors if (number := block_number(name)) is not None}
    missing = n_layers - len([number for number in present if number < n_layers])
    if missing > 0:
        first = next(number for number in range(n_layers) if number not in present)
        raise InputError(
            f"{source} lacks blocks.{first}" + (f" and {missing - 1} more" if missing > 1 else "")
        )


def _check_shapes(
    expected: Mapping[str, torch.Size], tensors: Mapping[str, Tensor], source: str
) -> None:
    missing = [name for name in expected if name not in tensors]
    extra = [name for name in tensors if name not in expected]
    misshapen = [
        f"{name} ({list(tensors[name].shape)}, not {list(shape)})"
        for name, shape in expected.items()
        if name in tensors and tensors[name].shape != shape
    ]
    problems = {"lacks": missing, "has no use for": extra, "has misshapen": misshapen}
    parts = [f"{what} {first_few(names)}" for what, names in problems.items() if names]
    if parts:
        hint = "" if missing or misshapen else "; leave these out with --ignore NAME"
        raise InputError(f"{source} does not fit the model: it {'; it '.join(parts)}{hint}")
