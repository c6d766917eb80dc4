"""Attention summed over sets of pairs in one streaming pass, without storing patterns.

For every layer, prompt and head, the attention on each set's pairs is summed inside the hook, on
the model's device; the sums of a batch are copied to the host once. The pass stops at the last
pattern, so the last layer's MLP and the unembedding never run. Patterns that are no softmax (as in
MixiT, with signs) are divided by the sum of the absolute values of each row, so that 1 still means
all attention; the result records them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.circuits.heads.controls import MatchedControls
from interp_toolkit.errors import InputError
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.models.about.record import digest_of_arrays
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import StopForwardError, run
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.models.running.memory import (
    bytes_per_row,
    itemsize_of,
    parse_memory,
    rows_that_fit,
)
from interp_toolkit.models.running.stages import Store, not_stored, structured

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
    store: Store = not_stored,
) -> PatternSums:
    """Sum attention over every set of pairs, in one pass.

    Args:
        model: any TransformerLens model.
        controls: the rows to run, and the sets of pairs.
        look: called with the patterns of the first batch of prompts, and their layer.
        memory: memory limit, such as "4GiB".
        progress: called with a description of each step.
        store: keeps the sums of each batch.

    Raises:
        InputError: patterns cannot be read or are not finite, or the memory is too small.
    """
    cfg = model.cfg
    n_layers, n_heads = int(cfg.n_layers), int(cfg.n_heads)
    points = pattern_points(model)
    n_rows, n_pos = controls.tokens.shape
    itemsize = itemsize_of(model)
    per_row = bytes_per_row(cfg, n_pos, itemsize, logits=False, n_stored=0)
    size = rows_that_fit(parse_memory(memory), per_row + controls.row_bytes, n_pos)
    sums = np.full((n_layers, n_rows, n_heads, controls.n_sets), np.nan)
    kinds: list[RowKind] = ["softmax" if n in points else "none" for n in range(n_layers)]
    done = 0

    def measured(rows: Int[np.ndarray, " some"], first: bool) -> PatternSums:
        """The sums of one batch."""
        indices, read_by = _Indices(controls, rows), look if first else None
        while True:
            odd = [layer for layer, kind in enumerate(kinds) if kind not in ("softmax", "none")]
            batch = _Batch(indices, n_heads, n_pos, read_by, odd)
            hooks = [(point, partial(batch.reduce, layer=n)) for n, point in points.items()]
            batch.until = len(points)
            run(model, controls.tokens[rows], hooks)
            if len(batch.sums) < len(points):
                missing = min(set(points) - set(batch.sums))
                raise InputError(
                    f"layer {missing} shows no attention pattern: fused attention hides it; load "
                    "the model with interp_toolkit.load, or with attn_implementation='eager'"
                )
            values, read_kinds = batch.read()
            new = {layer: kind for layer, kind in read_kinds.items() if kind != "softmax"}
            fresh = [layer for layer in new if layer not in odd]
            for layer, kind in new.items():
                kinds[layer] = kind
            if not fresh:  # else the same rows are run again, with these layers divided
                break
            read_by = None
        part = np.full((n_layers, len(rows), n_heads, controls.n_sets), np.nan)
        for layer, of_layer in values.items():
            part[layer] = of_layer
        return PatternSums(part, tuple(kinds))

    def stage(rows: Int[np.ndarray, " some"]) -> str:
        sets = controls.sets(rows)
        about = (controls.tokens[rows].numpy(), *sets.entries, sets.which_set, sets.weights)
        return f"attention patterns {controls.n_sets} {digest_of_arrays(*about)}"

    for rows in controls.batches(size):
        if n_rows > size:
            progress(f"attention patterns, row {done + 1} of {n_rows}")
        part = structured(
            store, partial(stage, rows), partial(measured, rows, not done), PatternSums
        )
        kinds[:] = part.kinds
        sums[:, rows] = part.sums
        done += len(rows)
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
    """Indices of a batch's positions in each prompt's flattened pattern, on each device once."""

    def __init__(self, controls: MatchedControls, rows: Int[np.ndarray, " some"]):
        n_pos = controls.tokens.shape[1]
        sets = controls.sets(rows)
        row, query, key = sets.entries
        bounds = np.append(np.searchsorted(row, rows), len(row))
        self.n_rows, self.n_sets = len(rows), controls.n_sets
        self.n_prompts = int((rows < controls.n_prompts).sum())  # these come first
        self._parts = [
            tuple(
                torch.from_numpy(np.ascontiguousarray(values))
                for values in (
                    query[low:high] * n_pos + key[low:high],
                    sets.weights[low:high],
                    np.bincount(sets.which_set[low:high], minlength=controls.n_sets),
                )
            )
            for low, high in pairwise(bounds.tolist())
        ]
        self._on: dict[torch.device, list[tuple[Tensor, ...]]] = {}

    def reduce(self, pattern: Float[Tensor, "row head query key"]) -> Float[Tensor, "row head set"]:
        """Sums of each row's attention over its pairs, by set."""
        device = pattern.device
        if device not in self._on:
            self._on[device] = [tuple(one.to(device) for one in part) for part in self._parts]
        return torch.stack(
            [
                _segment_sums(of_row, *part)
                for of_row, part in zip(pattern, self._on[device], strict=True)
            ]
        )


def _segment_sums(
    pattern: Float[Tensor, "head query key"],
    flat: Int[Tensor, " pair"],
    weights: Float[Tensor, " pair"],
    lengths: Int[Tensor, " set"],
) -> Float[Tensor, "head set"]:
    values = pattern.flatten(1).index_select(1, flat)
    values = values if values.dtype == torch.float64 else values.float()
    values = values * weights.to(values)
    each = lengths.expand(len(values), -1).contiguous()
    return torch.segment_reduce(values, "sum", lengths=each, axis=1, unsafe=True, initial=0)


class _Batch:
    """The sums of one batch, kept on the device until its pass is over.

    Args:
        indices: indices of the batch's pairs.
        n_heads, n_pos: sizes of a pattern.
        look: as in `pattern_sums`.
        divided: layers whose patterns are divided by the sum of the absolute values of each row.
    """

    def __init__(
        self,
        indices: _Indices,
        n_heads: int,
        n_pos: int,
        look: Callable[[Float[Tensor, "row head query key"], int], None] | None,
        divided: Sequence[int],
    ):
        self._indices, self._look, self._divided = indices, look, set(divided)
        self._n_heads, self._n_pos = n_heads, n_pos
        self.until = 0
        self.sums: dict[int, Tensor] = {}
        self._flags: dict[int, Tensor] = {}

    def reduce(self, pattern: Any, hook: Any, *, layer: int) -> None:
        """Take one layer's sums; the pass stops after the last layer."""
        pattern = _checked(pattern, self._indices.n_rows, self._n_heads, self._n_pos)
        if self._look is not None:
            self._look(pattern[: self._indices.n_prompts], layer)
        self._flags[layer] = _flags(pattern)
        self.sums[layer] = self._indices.reduce(
            _divided(pattern) if layer in self._divided else pattern
        )
        if len(self.sums) == self.until:
            raise StopForwardError

    def read(self) -> tuple[dict[int, Float[np.ndarray, "row head set"]], dict[int, RowKind]]:
        """The sums by layer, and the kinds of patterns; one copy to the host.

        Raises InputError for patterns that cannot be scored.
        """
        device = next(iter(self.sums.values())).device
        rows = [
            torch.cat([self._flags[n].to(device), self.sums[n].double().flatten().to(device)])
            for n in self.sums
        ]
        values: np.ndarray = torch.stack(rows).cpu().numpy()
        n_flags, n_heads = N_FLAGS + self._n_heads, self._n_heads
        kinds = {
            layer: _kind(flags, layer)
            for layer, flags in zip(self.sums, values[:, :n_flags], strict=True)
        }
        shape = self._indices.n_rows, n_heads, self._indices.n_sets
        return {
            layer: of_layer.reshape(shape)
            for layer, of_layer in zip(self.sums, values[:, n_flags:], strict=True)
        }, kinds


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


N_FLAGS = 3  # before one flag for each head


def _flags(pattern: Float[Tensor, "row head query key"]) -> Float[Tensor, " flag"]:
    """Whether a pattern has signs, is not finite, is no softmax, and which heads attend nowhere."""
    sums = pattern.sum(-1, dtype=torch.promote_types(pattern.dtype, torch.float32))
    tolerance = ROW_SUM_TOLERANCE.get(pattern.dtype, COARSE_TOLERANCE)
    empty = sums == 0
    off = (((sums - 1).abs() > tolerance) & ~empty).any()
    signed, infinite = pattern.amin() < 0, ~sums.isfinite().all()
    nowhere = empty.all(-1).any(0)
    return torch.cat([torch.stack([signed, infinite, off]), nowhere]).double()


def _kind(flags: Float[np.ndarray, " flag"], layer: int) -> RowKind:
    """The kind of a layer's pattern, from its flags.

    Raises:
        InputError: a pattern is not finite, or is 0 for all queries of a prompt (TransformerLens
            replaces values that are not finite by 0).
    """
    signed, infinite, off = flags[:N_FLAGS].astype(bool)
    nowhere = np.flatnonzero(flags[N_FLAGS:]) if not signed else np.zeros(0)
    if len(nowhere) or infinite:
        which = f"head {int(nowhere[0])} of layer {layer}" if len(nowhere) else f"layer {layer}"
        raise InputError(
            f"{which} has no attention to score: its scores are not finite, or all keys are masked"
        )
    return "signed" if signed else "unnormalised" if off else "softmax"


def _divided(pattern: Float[Tensor, "row head query key"]) -> Float[Tensor, "row head query key"]:
    """Pattern as fractions of each query's attention."""
    size = pattern.abs().sum(-1, keepdim=True)
    return pattern / torch.where(size > 0, size, 1)
