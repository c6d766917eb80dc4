"""One pass over the rows: what every head attends to and holds where the rows ask.

Kept are, for each asked place: every head's attention and `hook_z`, the residual stream in front of
each layer and behind the last, and from each place of the row the norm of what the head would write
if it attended there alone. Values are computed from the residual stream by the weights' view, and
attention times values is compared with the model's own `hook_z`, so that a pattern that is not the
one in use is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp_toolkit.circuits.behaviour.replacement import hook_z
from interp_toolkit.circuits.heads.patterns import pattern_points
from interp_toolkit.circuits.roles.asks import Asks
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import StopForwardError, run
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.models.running.memory import (
    bytes_per_row,
    itemsize_of,
    parse_memory,
    rows_that_fit,
)
from interp_toolkit.models.running.restart import entry
from interp_toolkit.models.weights.contributions import additive
from interp_toolkit.models.weights.parts import OVWeights
from interp_toolkit.models.weights.precision import agrees, at_least_single
from interp_toolkit.models.weights.view import ModelWeights


@dataclass(frozen=True, eq=False)
class Reading:
    """What the pass saw; on the CPU, in single precision or better.

    Attributes:
        attention: from the asked place to every place.
        reach: norm of what the head would write with all its attention on a place.
        z: what heads hold at the asked place.
        sources: values at some places (see `read`), the mean over them; zero where there are none.
        ahead: the residual stream in front of each layer, at the asked place.
        final: and behind the last one.
    """

    attention: Float[np.ndarray, "layer head ask pos"]
    reach: Float[np.ndarray, "layer head ask pos"]
    z: Float[Tensor, "layer ask head d_head"]
    sources: Float[Tensor, "source layer ask head d_head"]
    ahead: Float[Tensor, "layer ask d_model"]
    final: Float[Tensor, "ask d_model"]


@torch.no_grad()
def read(
    model: Model,
    view: ModelWeights,
    asks: Asks,
    sources: Bool[np.ndarray, "source ask pos"],
    *,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> Reading:
    """One pass over all rows; its result does not depend on how they are batched.

    Args:
        model: any TransformerLens model.
        view: its weights.
        asks: what is asked, one row of tokens each; rows with several answers run once for each.
        sources: sets of places whose values are kept.
        memory: bound for a batch.
        progress: told what is being done.

    Raises:
        InputError: hook points that are not there or silent, patterns that are not those in use,
            heads that do not add to the residual stream.
    """
    layers = [additive(view, layer) for layer in range(view.n_layers)]
    n_asks, n_pos = asks.tokens.shape
    recorder = _Recorder(view, layers, asks, sources)
    points, patterns = hook_points(model), pattern_points(model)
    last = f"blocks.{view.n_layers - 1}.hook_resid_post"
    names = [name(n) for n in range(view.n_layers) for name in (entry, hook_z)] + [last]
    for name in names:
        if name not in points:
            raise InputError(f"the model has no hook point {name}, so its heads cannot be read")
    itemsize = itemsize_of(model)
    of_values = 2 * n_pos * view.n_heads * view.d_head
    row = bytes_per_row(model.cfg, n_pos, itemsize, logits=False, n_stored=of_values)
    size = rows_that_fit(parse_memory(memory), row, n_pos)
    for start in range(0, n_asks, size):
        progress(f"what heads attend to and write, row {start + 1} of {n_asks}")
        batch = slice(start, min(start + size, n_asks))
        hooks_read: set[str] = set()
        hooks: list[tuple[Any, Callable[..., Any]]] = []
        for n in range(view.n_layers):
            hooks += [
                (
                    points[entry(n)],
                    partial(recorder.residual, layer=n, at=batch, hooks_read=hooks_read),
                ),
                (patterns[n], partial(recorder.pattern, layer=n, at=batch, hooks_read=hooks_read)),
                (
                    points[hook_z(n)],
                    partial(recorder.heads, layer=n, at=batch, hooks_read=hooks_read),
                ),
            ]
        hooks.append((points[last], partial(recorder.end, at=batch, hooks_read=hooks_read)))
        run(model, torch.from_numpy(asks.tokens[batch]), hooks)
        recorder.check_hooks(hooks_read)
        recorder.check_values(batch)
    return recorder.reading()


class _Recorder:
    """Fills in a `Reading`, batch by batch."""

    def __init__(
        self,
        view: ModelWeights,
        layers: list[OVWeights],
        asks: Asks,
        sources: Bool[np.ndarray, "source ask pos"],
    ):
        L, H, D = view.n_layers, view.n_heads, view.d_head
        n, n_pos = asks.tokens.shape
        self.layers, self.position = layers, torch.from_numpy(asks.position)
        self.dtype = at_least_single(layers[0].W_V[:0]).dtype
        zeros = partial(torch.zeros, dtype=self.dtype)
        self.attention, self.reach = zeros(L, n, H, n_pos), zeros(L, n, H, n_pos)
        self.z, self.summed = zeros(L, n, H, D), zeros(L, n, H, D)
        self.sources = zeros(len(sources), L, n, H, D)
        self.ahead, self.final = zeros(L, n, view.d_model), zeros(n, view.d_model)
        share = sources / np.maximum(sources.sum(-1, keepdims=True), 1)
        self.share = torch.from_numpy(share).to(self.dtype)
        self.values: dict[int, Tensor] = {}

    def _at(self, value: Tensor, at: slice) -> Tensor:
        rows = torch.arange(len(value), device=value.device)
        return value[rows, self.position[at].to(value.device)].detach()

    def residual(
        self, value: Tensor, hook: Any, *, layer: int, at: slice, hooks_read: set[str]
    ) -> None:
        """The stream in front of a layer: what its heads' values are made of."""
        w = self.layers[layer]
        self.ahead[layer, at] = self._at(value, at).to(self.ahead)
        normed = at_least_single(w.norm(value.detach()).to(w.W_V))
        v = torch.einsum("npm,hmd->nphd", normed, at_least_single(w.W_V)) + w.b_V
        W_O = at_least_single(w.W_O)
        gram = W_O @ W_O.mT  # squared norms of v W_O without forming it
        squared = torch.einsum("nphd,hde,nphe->nhp", v, gram.to(v), v)
        self.reach[layer, at] = squared.clamp(min=0).sqrt().to(self.reach)
        share = self.share[:, at].to(v)
        self.sources[:, layer, at] = torch.einsum("snp,nphd->snhd", share, v).to(self.sources)
        self.values[layer] = v
        self._sum(layer, at, hooks_read)
        hooks_read.add(f"{layer} residual")

    def pattern(
        self, value: Tensor, hook: Any, *, layer: int, at: slice, hooks_read: set[str]
    ) -> None:
        """Attention from the asked place."""
        if not isinstance(value, Tensor) or value.ndim != 4:
            raise InputError(f"layer {layer} shows no attention pattern [batch head query key]")
        n = at.stop - at.start
        value = value.expand(n, -1, -1, -1) if len(value) == 1 else value
        self.attention[layer, at] = self._at(value.movedim(2, 1), at).to(self.attention)
        hooks_read.add(f"{layer} pattern")
        self._sum(layer, at, hooks_read)

    def _sum(self, layer: int, at: slice, hooks_read: set[str]) -> None:
        """Attention times values, once both are there."""
        if layer in self.values and f"{layer} pattern" in hooks_read:
            v = self.values.pop(layer)
            paid = self.attention[layer, at].to(v)
            self.summed[layer, at] = torch.einsum("nhp,nphd->nhd", paid, v).to(self.summed)

    def heads(
        self, value: Tensor, hook: Any, *, layer: int, at: slice, hooks_read: set[str]
    ) -> None:
        """Record the heads' outputs."""
        held = self._at(value, at)
        self.z[layer, at] = held.reshape(self.z[layer, at].shape).to(self.z)
        hooks_read.add(f"{layer} z")

    def end(self, value: Tensor, hook: Any, *, at: slice, hooks_read: set[str]) -> None:
        """The stream behind the last layer; the unembedding need not run."""
        self.final[at] = self._at(value, at).to(self.final)
        n_expected = 3 * len(self.layers)
        if len(hooks_read) >= n_expected:
            raise StopForwardError

    def check_hooks(self, hooks_read: set[str]) -> None:
        for layer in range(len(self.layers)):
            for what in ("residual", "pattern", "z"):
                if f"{layer} {what}" not in hooks_read:
                    raise InputError(
                        f"layer {layer} shows no {what}: fused attention hides it; load the model "
                        "with interp_toolkit.load, or with attn_implementation='eager'"
                    )

    def check_values(self, at: slice) -> None:
        """Raise InputError where attention times values is not what heads hold."""
        if not bool(self.final[at].isfinite().all()):
            raise InputError("the model's residual stream is not finite on these rows")
        for layer, w in enumerate(self.layers):
            if not agrees(self.summed[layer, at], self.z[layer, at], w.W_V.dtype):
                raise InputError(
                    f"layer {layer}: attention times values is not what its heads hold, so what "
                    "they write cannot be traced to places"
                )

    def reading(self) -> Reading:
        """The numbers, heads in front."""
        attention, reach = (t.movedim(2, 1).numpy() for t in (self.attention, self.reach))
        return Reading(attention, reach, self.z, self.sources, self.ahead, self.final)
