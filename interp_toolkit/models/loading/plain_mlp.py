"""A plain MLP on rows of numbers, as a model whose tokens are these rows.

`W_out act(W_in x + b_in) + b_out` on given inputs x becomes a `Transformer` of one layer without
norms or attention: its embedding holds the distinct inputs, so that every analysis of a layer's
neurons reads `blocks.0.mlp.hook_post`, with the inputs before it. What the MLP writes is left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp_toolkit.errors import InputError, a_kind, suggestion
from interp_toolkit.models.about.record import ModelRecord, set_record
from interp_toolkit.models.loading.formats.files import read_file, sha256
from interp_toolkit.models.loading.parameters.strict import check_finite
from interp_toolkit.models.transformer.config import ActivationName, TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

SAME = 1e-4  # relative difference between the MLP's own outputs and those of its two matrices
_ACTIVATIONS: Mapping[ActivationName, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


@dataclass(frozen=True, eq=False)
class PlainMLP:
    """Two matrices and what is known of the nonlinearity between them.

    Attributes:
        W_in, b_in: the first map.
        W_out, b_out: the second.
        source: where they are from, as a phrase.
        path: the file, if any.
        compute: the module itself, if there is one.
    """

    W_in: Float[Tensor, "d_in hidden"]
    b_in: Float[Tensor, " hidden"]
    W_out: Float[Tensor, "hidden d_out"]
    b_out: Float[Tensor, " d_out"]
    source: str
    path: str | None = None
    compute: Callable[[Tensor], Tensor] | None = None

    def __call__(self, x: Float[Tensor, "row d_in"], activation: ActivationName) -> Tensor:
        """The outputs with this nonlinearity."""
        inside = x.to(self.W_in) @ self.W_in + self.b_in
        return _ACTIVATIONS[activation](inside) @ self.W_out + self.b_out


def model_on_rows(
    mlp: Any, inputs: Any, outputs: Any = None, act_fn: str | None = None
) -> tuple[Transformer, Int[np.ndarray, "row 1"]]:
    """A model of the MLP on these inputs, and each row's token.

    Args:
        mlp: a module with two linear layers, a mapping of its two matrices and their biases by
            name (a state dict), or the path of a file with one.
        inputs: numbers [row, d_in].
        outputs: the MLP's outputs [row, d_out], which tell the nonlinearity; a module tells it.
        act_fn: the nonlinearity; None: the one that gives these outputs, else relu, as assumed.

    Raises:
        InputError: inputs or weights that do not fit, or a module that computes something else.
    """
    x = _numbers(inputs, "inputs")
    plain = read_mlp(mlp, x.shape[1])
    if plain.W_in.shape[0] != x.shape[1]:
        raise InputError(
            f"{plain.source} reads {plain.W_in.shape[0]} numbers, but inputs have {x.shape[1]}"
        )
    rows = torch.from_numpy(x)
    activation, note = _activation(plain, rows, outputs, act_fn)
    distinct, token = np.unique(x, axis=0, return_inverse=True)
    d_in, hidden = plain.W_in.shape
    cfg = TransformerConfig(
        n_layers=1,
        d_model=d_in,
        d_mlp=hidden,
        d_vocab=len(distinct),
        d_vocab_out=1,
        n_ctx=1,
        n_heads=1,
        d_head=1,
        act_fn=activation,
        normalization_type=None,
        positional_embedding_type="none",
        model_name="mlp",
    )
    model = Transformer(cfg)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.W_E.copy_(torch.from_numpy(distinct))
        model.blocks[0].mlp.W_in.copy_(plain.W_in)
        model.blocks[0].mlp.b_in.copy_(plain.b_in)
    left_out = "what it writes is left out; each token is a distinct input row"
    record = ModelRecord(
        name=Path(plain.path).name if plain.path else plain.source,
        kind="state_dict" if plain.path else "live",
        path=plain.path,
        sha256=None if plain.path is None else sha256(Path(plain.path)),
        assumptions=() if note is None else (note,),
        notes=(f"an MLP of {d_in}, {hidden} and {plain.W_out.shape[1]} numbers: {left_out}",),
        config=cfg.model_dump(),
    )
    set_record(model, record)
    return model.eval(), token.reshape(-1, 1).astype(np.int64)


def read_mlp(mlp: Any, d_in: int) -> PlainMLP:
    """The two matrices of an MLP on inputs of this width. Raises InputError if there are others."""
    if isinstance(mlp, nn.Module):
        device = next((p.device for p in mlp.parameters()), torch.device("cpu"))

        @torch.no_grad()
        def compute(x: Tensor) -> Tensor:
            output: Tensor = mlp(x.to(device)).cpu()
            return output

        return _of_tensors(mlp.state_dict(), d_in, f"this {type(mlp).__name__}", None, compute)
    if isinstance(mlp, Mapping):
        tensors = {str(n): torch.as_tensor(np.asarray(t)) for n, t in mlp.items()}
        return _of_tensors(tensors, d_in, "these arrays", None)
    if not isinstance(mlp, str | os.PathLike):
        raise InputError(f"{a_kind(mlp)} is not an MLP: give a module, its state dict, or its file")
    path = os.fspath(mlp)
    content = read_file(Path(path).expanduser()).data
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping) or not all(isinstance(t, Tensor) for t in content.values()):
        raise InputError(f"{path} holds no state dict of an MLP")
    return _of_tensors(content, d_in, path, path)


def _of_tensors(
    tensors: Mapping[str, Any],
    d_in: int,
    source: str,
    path: str | None,
    compute: Callable[[Tensor], Tensor] | None = None,
) -> PlainMLP:
    tensors = {name: t.detach().cpu().float() for name, t in tensors.items()}
    matrices = {name: t for name, t in tensors.items() if t.ndim == 2}
    vectors = [t for t in tensors.values() if t.ndim == 1]
    if len(matrices) != 2 or len(matrices) + len(vectors) != len(tensors):
        raise InputError(
            f"{source} has {len(matrices)} matrices among its {len(tensors)} tensors; an MLP with "
            "one hidden layer has two, and at most a bias for each"
        )
    check_finite(tensors.items(), source)
    (first, W_in), (second, W_out) = matrices.items()
    if d_in not in W_in.shape and d_in in W_out.shape:
        (first, W_in), (second, W_out) = (second, W_out), (first, W_in)
    if d_in not in W_in.shape:
        shapes = " and ".join(str(list(t.shape)) for t in matrices.values())
        raise InputError(f"{source} has matrices {shapes}, none of which reads {d_in} numbers")
    linear = not (first.rpartition(".")[2].startswith("W") or W_in.shape[1] != d_in)
    W_in = W_in.T if linear else W_in
    hidden = W_in.shape[1]
    W_out = W_out.T if linear else W_out
    if W_in.shape[0] != d_in or W_out.shape[0] != hidden:
        raise InputError(
            f"{source}: {second} {list(W_out.shape)} does not read the {hidden} numbers that "
            f"{first} gives"
        )
    b_in, b_out = torch.zeros(hidden), torch.zeros(W_out.shape[1])
    sizes = [hidden, W_out.shape[1]]
    for vector in vectors:
        if len(vector) not in sizes:
            raise InputError(f"{source}: a bias of {len(vector)} numbers fits neither matrix")
        number = 0 if len(vector) == hidden and sizes[0] else 1
        sizes[number] = 0
        b_in, b_out = (vector, b_out) if number == 0 else (b_in, vector)
    return PlainMLP(W_in, b_in, W_out, b_out, source, path, compute)


def _activation(
    plain: PlainMLP, x: Float[Tensor, "row d_in"], outputs: Any, act_fn: str | None
) -> tuple[ActivationName, str | None]:
    """The nonlinearity, and what was assumed about it."""
    if act_fn is not None and act_fn not in _ACTIVATIONS:
        raise InputError(f"act_fn is {act_fn!r}{suggestion(str(act_fn), _ACTIVATIONS)}")
    named = [name for name in _ACTIVATIONS if act_fn in (None, name)]
    if outputs is not None:
        actual = torch.from_numpy(_numbers(outputs, "outputs"))
    elif plain.compute is not None:
        try:
            actual = plain.compute(x)
        except Exception as error:  # of a module that takes other inputs
            raise InputError(f"{plain.source} does not run on the inputs: {error}") from error
    elif act_fn is not None:
        return named[0], None
    else:
        return "relu", "act_fn=relu, which outputs in the data would tell"
    for name in named:
        ours = plain(x, name)
        if ours.shape == actual.shape:
            gap = float((ours - actual).abs().max())
            if gap <= SAME * max(float(actual.abs().max()), 1e-30):
                return name, None
    raise InputError(
        f"{plain.source} computes something else than two linear maps with "
        f"{', '.join(named)} between them"
    )


def _numbers(values: Any, name: str) -> Float[np.ndarray, "row d"]:
    values = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if values.ndim != 2 or values.dtype.kind not in "fiub" or not values.size:
        raise InputError(f"{name} must be numbers [row, dimension]")
    values = values.astype(np.float32)
    if not np.isfinite(values).all():
        raise InputError(f"{name} have NaN or infinite values")
    return np.ascontiguousarray(values)
