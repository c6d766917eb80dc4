"""Activation patching: one activation of the clean prompt put into the corrupted prompt's pass.

A site is a hook point of a layer (residual stream before it, attention output, MLP output) at one
position, or one head's output at all positions. Passes are begun at the patched layer, several
sites at once as further rows of the batch. Sites whose activations do not differ between the two
prompts are not run: their effect is 0. Hook points whose edits do not reach the model's output are
left out and named.

Source: Meng et al. 2022, "Locating and Editing Factual Associations in GPT"; Heimersheim & Nanda
2024, "How to use and interpret activation patching".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.circuits.metrics.metrics import Metric, logits_at
from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.errors import InterventionError
from interp_toolkit.formatting import so_far
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.effect import everything, require_effect
from interp_toolkit.models.running.forward import (
    CACHED_TOKENS,
    can_unembed_at,
    run,
    unembedded_at,
)
from interp_toolkit.models.running.hooks import hook_points, store_in
from interp_toolkit.models.running.restart import can_restart, entry, run_from

Kind = Literal["residual", "attention", "mlp", "head"]
#: hook point of each kind in a layer
HOOKS: Mapping[Kind, str] = {
    "residual": "hook_resid_pre",
    "attention": "hook_attn_out",
    "mlp": "hook_mlp_out",
    "head": "attn.hook_z",
}


class PatchSite(NamedTuple):
    """What is patched: `at` is a position, or a head's number, at all positions."""

    kind: Kind
    layer: int
    at: int

    @property
    def hook(self) -> str:
        """The name of the hook point."""
        return f"blocks.{self.layer}.{HOOKS[self.kind]}"


@dataclass(frozen=True)
class Patched:
    """The metric by site and prompt.

    Attributes:
        clean: on the clean prompts.
        corrupted: on the corrupted prompts.
        values: by site, with the site's activation replaced.
    """

    clean: Float[np.ndarray, " row"]
    corrupted: Float[np.ndarray, " row"]
    values: Mapping[PatchSite, Float[np.ndarray, " row"]]


def patchable_hooks(
    model: Model, kinds: Collection[str] | None = None
) -> tuple[dict[Kind, list[int]], list[str]]:
    """The layers whose hook points of each kind can be patched, and the hook points that cannot.

    Args:
        model: any TransformerLens model.
        kinds: the kinds that are asked for; None: all.
    """
    n_layers, points = int(model.cfg.n_layers), hook_points(model)
    names = {
        (kind, layer): f"blocks.{layer}.{hook}"
        for kind, hook in HOOKS.items()
        for layer in range(n_layers)
        if f"blocks.{layer}.{hook}" in points and (kinds is None or kind in kinds)
    }
    bad: set[str] = set()
    try:
        require_effect(model, dict.fromkeys(names.values(), everything))
    except InterventionError:
        for name in names.values():
            try:
                require_effect(model, {name: everything})
            except InterventionError:
                bad.add(name)
    layers: dict[Kind, list[int]] = {kind: [] for kind in HOOKS}
    for (kind, layer), name in names.items():
        if name not in bad:
            layers[kind].append(layer)
    return layers, sorted(bad)


def every_site(model: Model, layers: Mapping[Kind, Sequence[int]], n_pos: int) -> list[PatchSite]:
    """All sites of these layers, as `patchable_hooks` gives them, on prompts of this length."""
    n_heads = int(model.cfg.n_heads)
    return [
        PatchSite(kind, layer, at)
        for kind, of_kind in layers.items()
        for layer in of_kind
        for at in range(n_heads if kind == "head" else n_pos)
    ]


def patch(
    model: Model,
    prompts: Prompts,
    metric: Metric,
    sites: Sequence[PatchSite] | None = None,
    *,
    into: Literal["corrupted", "clean"] = "corrupted",
    others: bool = False,
    seed: int = 0,
    progress: Callable[[str], None] = lambda step: None,
) -> Patched:
    """The metric with the activation of one prompt put into the pass on its counterpart.

    Args:
        model: any TransformerLens model.
        prompts: clean prompts with `corrupted` ones.
        metric: the metric, of the clean prompts' answers.
        sites: what to patch; None: everything that can be (see `patchable_hooks`).
        into: the prompts whose pass is patched; the activation is that of the other kind.
        others: patch with the activation of another prompt of the *same* kind instead, a control
            for replacing the activation at all.
        seed: random seed of these other prompts.
        progress: called with a description of each step.
    """
    assert prompts.corrupted is not None
    n_rows, n_pos = prompts.tokens.shape
    if sites is None:
        sites = every_site(model, patchable_hooks(model)[0], n_pos)
    rng = np.random.default_rng(seed)
    values: dict[PatchSite, np.ndarray] = {}
    ends = np.empty((2, n_rows))
    batches, begin = _batches(n_rows, n_pos), time.monotonic()
    for index, rows in enumerate(batches):
        batch = _Batch(model, prompts, metric, rows, into, {site.hook for site in sites})
        ends[:, rows] = batch.clean, batch.corrupted
        order = torch.from_numpy(_other_rows(len(rows), rng)) if others else None
        by_hook: dict[str, list[PatchSite]] = {}
        for site in sites:
            by_hook.setdefault(site.hook, []).append(site)
        n_hooks = len(by_hook)
        for number, (hook, of_hook) in enumerate(by_hook.items(), start=index * n_hooks):
            done = so_far(number, n_hooks * len(batches), begin, "steps")
            progress(f"patching {hook}, {done}")
            for site, measured in batch.patched(hook, of_hook, order):
                values.setdefault(site, np.empty(n_rows))[rows] = measured
    return Patched(ends[0], ends[1], values)


def _batches(n_rows: int, n_pos: int) -> list[Int[np.ndarray, " row"]]:
    """Indices of prompts to run together, two or more, so that each has others beside it."""
    n_batches = max(min(-(-n_rows * n_pos // CACHED_TOKENS), n_rows // 2), 1)
    return list(np.array_split(np.arange(n_rows), n_batches))


def _other_rows(n: int, rng: np.random.Generator) -> Int[np.ndarray, " row"]:
    """For each prompt of a batch another one, each used once."""
    order = rng.permutation(n)
    others = np.empty(n, dtype=np.int64)
    others[order] = np.roll(order, 1)
    return others


class _Batch:
    """The passes on some prompts: activations of both kinds, and the metric with one replaced."""

    def __init__(
        self,
        model: Model,
        prompts: Prompts,
        metric: Metric,
        rows: Int[np.ndarray, " row"],
        into: Literal["corrupted", "clean"],
        patched_at: Collection[str],
    ):
        self.model, self.metric = model, metric
        self.rows = torch.from_numpy(rows)
        positions = metric.positions(self.rows)
        assert positions is not None
        self.positions = positions
        self.read = torch.unique(positions)
        self.some = can_unembed_at(model)
        assert prompts.corrupted is not None
        self.tokens = {
            "clean": prompts.tokens[self.rows],
            "corrupted": prompts.corrupted[self.rows],
        }
        self.points = hook_points(model)
        self.n_heads = int(model.cfg.n_heads)
        entries = {entry(layer) for layer in range(int(model.cfg.n_layers))}
        self.names = [name for name in self.points if name in entries or name in patched_at]
        self.base, self.donor = into, "clean" if into == "corrupted" else "corrupted"
        self.values: dict[str, dict[str, Tensor]] = {}
        measured = {kind: self._intact(kind) for kind in ("clean", "corrupted")}
        self.clean, self.corrupted = measured["clean"], measured["corrupted"]
        self.restarts = can_restart(model)

    def _intact(self, kind: str) -> Float[np.ndarray, " row"]:
        held = self.values.setdefault(kind, {})
        hooks = [(self.points[name], store_in(held, name)) for name in self.names]
        with unembedded_at(self.model, self.read if self.some else None):
            logits = run(self.model, self.tokens[kind], hooks)
        assert logits is not None
        return self._metric(logits)

    def _metric(self, logits: Float[Tensor, "row pos d_vocab"]) -> Float[np.ndarray, " row"]:
        at = torch.searchsorted(self.read, self.positions) if self.some else self.positions
        values: np.ndarray = self.metric(logits_at(logits, at), self.rows).double().cpu().numpy()
        return values

    def patched(
        self, hook: str, sites: Sequence[PatchSite], order: Int[Tensor, " row"] | None
    ) -> Iterator[tuple[PatchSite, Float[np.ndarray, " row"]]]:
        """The metric with each of the sites of one hook point replaced."""
        base = self.values[self.base][hook]
        donor = self.values[self.donor][hook] if order is None else base[order]
        intact = self.corrupted if self.base == "corrupted" else self.clean
        differing = []
        for site in sites:
            if torch.equal(self._part(base, site), self._part(donor, site)):
                yield site, intact
            else:
                differing.append(site)
        n_rows, n_pos = self.tokens[self.base].shape
        at_once = max(CACHED_TOKENS // (n_rows * n_pos), 1)
        for start in range(0, len(differing), at_once):
            some = differing[start : start + at_once]
            logits = self._logits(hook, some, donor)
            for site, own in zip(some, logits.chunk(len(some)), strict=True):
                yield site, self._metric(own)

    def _part(self, value: Tensor, site: PatchSite) -> Tensor:
        """A view of what the site is in the value of its hook point."""
        if site.kind != "head":
            return value[:, site.at]
        return value.view(*value.shape[:2], self.n_heads, -1)[:, :, site.at]

    def _logits(self, hook: str, sites: Sequence[PatchSite], donor: Tensor) -> Tensor:
        """The logits with one site after the other replaced, as further rows."""
        n = len(self.rows)

        def replaced(value: Tensor, hook: Any) -> Tensor:
            value = value.clone(memory_format=torch.contiguous_format)
            for number, site in enumerate(sites):
                own = value[number * n : (number + 1) * n]
                self._part(own, site).copy_(self._part(donor, site))
            return value

        tokens = self.tokens[self.base].repeat(len(sites), 1)
        hooks = [(self.points[hook], replaced)]
        layer = sites[0].layer
        with unembedded_at(self.model, self.read if self.some else None):
            if self.restarts:
                start = self.values[self.base][entry(layer)]
                residual = start.repeat(len(sites), *([1] * (start.ndim - 1)))
                logits = run_from(self.model, residual, layer, tokens, hooks)
            else:
                logits = run(self.model, tokens, hooks)
        assert logits is not None
        return logits
