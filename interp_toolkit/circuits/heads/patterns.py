"""Attention summed over sets of pairs in one streaming pass, without storing patterns.

For every layer, prompt and head, the attention on each set's pairs is summed inside the hook. The
pass stops at the last pattern, so the last layer's MLP and the unembedding never run. Patterns that
are no softmax (as in MixiT, with signs) are divided by the sum of the absolute values of each row,
so that 1 still means all attention; the result records them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.circuits.heads.controls import MatchedControls
from interp_toolkit.errors import InputError
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import StopForwardError, run
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.models.running.memory import (
    bytes_per_row,
    itemsize_of,
    parse_memory,
    rows_that_fit,
)

RowKind = Literal["softmax", "unnormalised", "signed", "none"]
ROW_SUM_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}
COARSE_TOLERANCE = 3e-2  # half precision


@dataclass(frozen=True, eq=False)
class PatternSums(ShortRepr):
    """Attention summed over every set of pairs.

    Attributes:
        sums: weighted sum of the attention over a prompt's pairs of a set.
            NaN for layers without attention heads.
        kinds: kind of each layer's patterns: "softmax", or "signed" or "unnormalised" ones, which
            were divided by the sum of the absolute values of each row; "none" without heads.
    """

    sums: Float[np.ndarray, "layer row head set"]
    kinds: tuple[RowKind, ...]


def pattern_sums(
    model: Model,
    controls: MatchedControls,
    *,
    look: Callable[[Float[Tensor, "row head query key"], int], None] | None = None,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> PatternSums:
    """Sum attention over every set of pairs, in one pass.

    Args:
        model: any TransformerLens model.
        controls: the rows to run, and the sets of pairs.
        look: called with the patterns of the first batch of prompts, and their layer.
        memory: memory limit, such as "4GiB".
        progress: called with a description of each step.

    Raises:
        InputError: patterns cannot be read or are not finite, or the memory is too small.
    """
    cfg = model.cfg
    n_layers, n_heads = int(cfg.n_layers), int(cfg.n_heads)
    points = pattern_points(model)
    n_rows, n_pos = controls.tokens.shape
    itemsize = itemsize_of(model)
    per_row = bytes_per_row(cfg, n_pos, itemsize, logits=False, n_stored=0)
    size = rows_that_fit(parse_memory(memory), per_row, n_pos)
    sums = np.full((n_layers, n_rows, n_heads, controls.n_sets), np.nan)
    kinds: list[RowKind] = ["softmax" if n in points else "none" for n in range(n_layers)]
    indices = _Indices(controls)
    for start in range(0, n_rows, size):
        rows = range(start, min(start + size, n_rows))
        if n_rows > size:
            progress(f"attention patterns, row {start + 1} of {n_rows}")
        done: set[int] = set()

        def reduce(
            pattern: Any, hook: Any, *, layer: int, rows: range = rows, done: set[int] = done
        ) -> None:
            pattern = _checked(pattern, len(rows), n_heads, n_pos)
            if look is not None and not rows.start:
                look(pattern, layer)
            pattern, kind = _shares(pattern, layer)
            if kind != "softmax":
                kinds[layer] = kind
            for i, row in enumerate(rows):
                sums[layer, row] = indices.reduce(pattern[i], row)
            done.add(layer)
            if len(done) == len(points):
                raise StopForwardError

        hooks = [(point, partial(reduce, layer=layer)) for layer, point in points.items()]
        run(model, controls.tokens[start : start + size], hooks)
        if len(done) < len(points):
            missing = min(set(points) - done)
            raise InputError(
                f"layer {missing} shows no attention pattern: fused attention hides it; load the "
                "model with interp_toolkit.load, or with attn_implementation='eager'"
            )
    return PatternSums(sums, tuple(kinds))


def pattern_points(model: Model) -> Mapping[int, Any]:
    """Hook point of the attention pattern of each layer with attention heads.

    Raises:
        InputError: no layer has such a hook point.
    """
    points = hook_points(model)
    layers = range(int(model.cfg.n_layers))
    names = {layer: f"blocks.{layer}.attn.hook_pattern" for layer in layers}
    by_layer = {layer: points[name] for layer, name in names.items() if name in points}
    if not by_layer:
        raise InputError("no layer of this model shows attention heads, so there are none to score")
    return by_layer


class _Indices:
    """Indices of each prompt's positions in its flattened pattern, on the pattern's device."""

    def __init__(self, controls: MatchedControls):
        n_rows, n_pos = controls.tokens.shape
        row, query, key = controls.entries
        bounds = np.searchsorted(row, np.arange(n_rows + 1))
        slices = [slice(low, high) for low, high in pairwise(bounds.tolist())]
        flat = torch.from_numpy(query * n_pos + key)
        self.flat = [flat[part] for part in slices]
        weights = torch.from_numpy(controls.weights)
        self.weights = [weights[part] for part in slices]
        self.lengths = [
            torch.from_numpy(np.bincount(controls.which_set[part], minlength=controls.n_sets))
            for part in slices
        ]

    def reduce(
        self, pattern: Float[Tensor, "head query key"], row: int
    ) -> Float[np.ndarray, "head set"]:
        """Sums of the attention over a row's pairs, by set."""
        flat, lengths = (part[row].to(pattern.device) for part in (self.flat, self.lengths))
        values = pattern.flatten(1).index_select(1, flat)
        values = values if values.dtype == torch.float64 else values.float()
        values = values * self.weights[row].to(values)
        each = lengths.expand(len(values), -1).contiguous()
        sums = torch.segment_reduce(values, "sum", lengths=each, axis=1, unsafe=True, initial=0)
        reduced: np.ndarray = sums.double().cpu().numpy()
        return reduced


def _checked(
    pattern: Any, n_rows: int, n_heads: int, n_pos: int
) -> Float[Tensor, "row head query key"]:
    if not isinstance(pattern, Tensor) or pattern.ndim != 4:
        raise InputError("hook_pattern of this model is not a [batch head query key] tensor")
    if len(pattern) == 1 and n_rows > 1:  # mixing that does not depend on the input
        pattern = pattern.expand(n_rows, -1, -1, -1)
    if pattern.shape != (n_rows, n_heads, n_pos, n_pos):
        raise InputError(
            f"hook_pattern has shape {list(pattern.shape)}, not {[n_rows, n_heads, n_pos, n_pos]}"
        )
    detached: Tensor = pattern.detach()
    return detached


def _shares(
    pattern: Float[Tensor, "row head query key"], layer: int
) -> tuple[Float[Tensor, "row head query key"], RowKind]:
    """Pattern as fractions of each query's attention, and its kind.

    Raises:
        InputError: a pattern is not finite, or is 0 for all queries of a prompt (TransformerLens
            replaces values that are not finite by 0).
    """
    signed = bool(pattern.min() < 0)
    sums = pattern.sum(-1, dtype=torch.promote_types(pattern.dtype, torch.float32))
    nowhere = (sums == 0).all(-1).any(0).nonzero() if not signed else sums.new_zeros(0)
    if len(nowhere) or not bool(sums.isfinite().all()):
        which = f"head {int(nowhere[0])} of layer {layer}" if len(nowhere) else f"layer {layer}"
        raise InputError(
            f"{which} has no attention to score: its scores are not finite, or all keys are masked"
        )
    tolerance = ROW_SUM_TOLERANCE.get(pattern.dtype, COARSE_TOLERANCE)
    off = (sums - 1).abs() > tolerance
    if not signed and not bool((off & (sums != 0)).any()):
        return pattern, "softmax"
    size = pattern.abs().sum(-1, keepdim=True)
    shares = pattern / torch.where(size > 0, size, 1)
    return shares, "signed" if signed else "unnormalised"
