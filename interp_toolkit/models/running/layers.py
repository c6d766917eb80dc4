"""Single layers of a model, computed by its own modules from any residual stream.

A pass is begun at the layer with a given residual stream, values are set at hook points, and the
pass stops where the values of interest have been read. So norms on queries and keys or behind the
sum over heads, rotary positions of any kind, windows, attention sinks, gates, experts and
multipliers are whatever the model does.

A layer's attention is taken apart at four hook points: queries, keys and values, each as late in
the module as an edit of one head changes nothing but that head, and `hook_z`. A gate that a head
computes from the residual stream (Afmoe, Laguna) is read with its query. Where several query heads
share keys and values (grouped attention), each has a copy of its own: if these differ, the module
runs once for each member of the groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model, sizes
from interp_toolkit.models.running.forward import (
    StopForwardError,
    by_head,
    probe_tokens,
    run,
    same,
)
from interp_toolkit.models.running.hooks import hook_points, store_in
from interp_toolkit.models.running.restart import can_restart, run_from
from interp_toolkit.models.weights.precision import agrees
from interp_toolkit.state import once

Stream = Float[Tensor, "row pos d_model"]
#: queries (with a head's gate, if it has one), keys and values of every query head
Projected = tuple[
    Float[Tensor, "row pos head d_query"],
    Float[Tensor, "row pos head d_key"],
    Float[Tensor, "row pos head d_value"],
]

#: hook points of queries, keys and values, the earliest in the module first
_CHANNELS: Mapping[str, tuple[str, ...]] = {
    "queries": ("hook_q", "hook_q_normed", "q_norm.hook_out", "hook_rot_q"),
    "keys": ("hook_k", "hook_k_normed", "k_norm.hook_out", "hook_rot_k"),
    "values": ("hook_v",),
}
_GATE = "gate.hook_out"


@dataclass(frozen=True)
class LayerParts:
    """What a layer consists of.

    Attributes:
        heads: whether it shows attention heads.
        mixer: whether something else moves information between positions, beside the heads
            (Falcon-H1) or in their place.
        mlp: whether it has an MLP (or experts) apart from these.
        middle: the hook point of the residual stream behind heads and mixer; None if the MLP is
            beside them.
        factor: what `hook_attn_out` is multiplied with before it is added (Falcon-H1); None if the
            residual stream behind it is no such sum (BERT).
        apart: whether the MLP's input can be seen, so that it can be run without what is before it.
    """

    heads: bool
    mixer: bool
    mlp: bool
    middle: str | None
    factor: float | None = 1.0
    apart: bool = True


@once
@torch.no_grad()
def layer_parts(model: Model) -> tuple[LayerParts, ...]:
    """What each layer consists of, as a pass on a few tokens shows."""
    (n_layers,) = sizes(model, "n_layers")
    points, values = hook_points(model), dict[str, Tensor]()
    hooks = ["hook_resid_pre", "attn.hook_z", "hook_attn_out", "hook_resid_mid", "hook_mlp_out"]
    names = [f"blocks.{n}.{hook}" for n in range(n_layers) for hook in hooks]
    at = [(points[name], store_in(values, name)) for name in names if name in points]
    run(model, probe_tokens(model), at)
    parts = []
    for n in range(n_layers):
        before, z, out, middle, mlp_out = (values.get(f"blocks.{n}.{hook}") for hook in hooks)
        heads, mlp = z is not None and out is not None, mlp_out is not None
        mlp = mlp and (heads or middle is not None)  # else the layer is one part
        behind = None if middle is None else f"blocks.{n}.hook_resid_mid"
        behind = behind if mlp else f"blocks.{n}.hook_resid_post"
        mixer = not heads
        factor: float | None = 1.0
        if (before is not None and out is not None and middle is not None) and not agrees(
            before + out, middle
        ):
            mixer, factor = True, _factor(model, f"blocks.{n}", out, middle)
        apart = behind is not None or bool(getattr(model.cfg, "parallel_attn_mlp", False))
        parts.append(LayerParts(heads, mixer, mlp, behind, factor, apart))
    return tuple(parts)


def _factor(model: Model, block: str, out: Tensor, middle: Tensor) -> float | None:
    """What heads' outputs are multiplied with before they are added; None if they are not added."""
    points, without = hook_points(model), dict[str, Tensor]()
    name = f"{block}.hook_resid_mid"
    zeroed = (points[f"{block}.hook_attn_out"], lambda value, hook: torch.zeros_like(value))
    run(model, probe_tokens(model), [zeroed, (points[name], store_in(without, name))])
    added, out = (middle - without[name]).double(), out.double()
    factor = float((added * out).sum() / out.square().sum().clamp_min(1e-300))
    fits = agrees(without[name] + factor * out, middle, middle.dtype)
    return (1.0 if math.isclose(factor, 1, rel_tol=1e-3) else factor) if fits and factor else None


class ModelLayers:
    """The layers of a model.

    Raises InputError for a model that cannot be started at a layer.
    """

    def __init__(self, model: Any):
        if not can_restart(model) and int(model.cfg.n_layers) > 1:
            raise InputError(
                f"this {type(model).__name__} cannot be started at a layer, so its layers cannot "
                "be run one by one"
            )
        self.model = model
        self.n_layers, self.n_heads = int(model.cfg.n_layers), int(model.cfg.n_heads)
        self._points = hook_points(model)
        parameter = next(iter(model.parameters()))
        self._dtype = parameter.dtype

    def read(
        self,
        layer: int,
        residual: Stream,
        names: Sequence[str],
        edits: Mapping[str, Callable[[Tensor], Tensor]] | None = None,
    ) -> list[Tensor]:
        """Values at hook points of a pass that begins at a layer and stops when all were read.

        Raises InputError for a hook point that does not exist or does not fire.
        """
        values: dict[str, Tensor] = {}

        def keep(name: str) -> Callable[..., None]:
            def store(value: Any, hook: Any) -> None:
                values[name] = value if torch.is_grad_enabled() else value.detach()
                if len(values) == len(names):
                    raise StopForwardError

            return store

        def put(edit: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
            return lambda value, hook: edit(value).to(value)

        missing = [name for name in names if name not in self._points]
        if not missing:
            hooks: list[tuple[Any, Callable[..., Any]]]
            hooks = [(self._points[name], put(edit)) for name, edit in (edits or {}).items()]
            hooks += [(self._points[name], keep(name)) for name in names]
            self._run(layer, residual, hooks)
            missing = [name for name in names if name not in values]
        if missing:
            raise InputError(f"{missing[0]} does not fire, so its layer cannot be run alone")
        return [values[name] for name in names]

    def logits(self, residual: Stream) -> Float[Tensor, "row pos d_vocab"]:
        """The logits of a last residual stream."""
        logits = self._run(self.n_layers, residual, [])
        assert logits is not None
        return logits

    def _run(self, layer: int, residual: Stream, hooks: list[Any]) -> Tensor | None:
        tokens = torch.full(residual.shape[:2], self._token, device=residual.device)
        residual = residual.to(self._dtype)
        return run_from(self.model, residual, layer, tokens, hooks, graph=True)

    @cached_property
    def _token(self) -> int:
        """A token that no model takes for padding."""
        pad = getattr(getattr(self.model, "tokenizer", None), "pad_token_id", None)
        pads = {pad, getattr(getattr(self.model.cfg, "hf_config", None), "pad_token_id", None)}
        return next(t for t in range(len(pads) + 1) if t not in pads)

    @cached_property
    def probe(self) -> dict[str, Tensor]:
        """Everything that fires in the blocks, on a few tokens."""
        tokens = probe_tokens(self.model)[:, : self._n_probe]
        values: dict[str, Tensor] = {}
        names = [name for name in self._points if name.startswith("blocks.")]
        run(self.model, tokens, [(self._points[name], store_in(values, name)) for name in names])
        return values

    @cached_property
    def _n_probe(self) -> int:
        """A number of positions that is no number of heads, so that the axes can be told apart."""
        cfg = self.model.cfg
        heads = {self.n_heads, 2 * self.n_heads, getattr(cfg, "n_key_value_heads", None)}
        n_probe = probe_tokens(self.model).shape[1]
        return next((n for n in range(n_probe, 1, -1) if n not in heads), n_probe)

    @cached_property
    def _parts(self) -> tuple[LayerParts, ...]:
        return layer_parts(self.model)

    def parts(self, layer: int) -> LayerParts:
        """What a layer consists of."""
        return self._parts[layer]

    def mixed(self, layer: int, x: Stream, *, heads: bool) -> Stream:
        """What a layer adds to the residual stream before its MLP, with its heads or without.

        If its MLP cannot be told apart, what the whole layer adds.
        """
        parts, out = self.parts(layer), f"blocks.{layer}.hook_attn_out"
        middle, factor = parts.middle, parts.factor
        if not parts.apart:
            return self.read(layer, x, [f"blocks.{layer}.hook_resid_post"])[0] - x
        if middle is None:
            return self.read(layer, x, [out])[0]
        if heads or not parts.heads or factor is None:
            return self.read(layer, x, [middle])[0] - x
        after, of_heads = self.read(layer, x, [middle, out])
        return after - x - factor * of_heads

    def mlp(self, layer: int, x: Stream) -> Stream:
        """What a layer's MLP adds, given the residual stream that it reads."""
        edits = self._mlp_edits[layer]
        out = self.read(layer, x, [f"blocks.{layer}.hook_mlp_out"], edits(x))
        return out[0]

    @cached_property
    def _mlp_edits(self) -> dict[int, Callable[[Stream], dict[str, Callable[[Tensor], Tensor]]]]:
        """How the MLP of each layer is given its input."""
        parts = {n: self.parts(n) for n in range(self.n_layers)}
        return {n: self._mlp_edit(n) for n, of in parts.items() if of.mlp and of.apart}

    @torch.no_grad()
    def _mlp_edit(self, layer: int) -> Callable[[Stream], dict[str, Callable[[Tensor], Tensor]]]:
        block, fires = f"blocks.{layer}", self.probe
        if f"{block}.hook_resid_mid" not in fires:  # beside attention
            return lambda x: {}
        mid, out = fires[f"{block}.hook_resid_mid"], fires[f"{block}.hook_mlp_out"]
        ways: list[Callable[[Stream], dict[str, Callable[[Tensor], Tensor]]]] = [
            lambda x: {f"{block}.hook_attn_out": torch.zeros_like},
            lambda x: {f"{block}.hook_resid_mid": lambda value: x},
        ]
        for way in ways[not self.parts(layer).heads :]:
            own, other = (
                self.read(layer, x, [f"{block}.hook_mlp_out"], way(x))[0]
                for x in (mid, mid + mid.roll(1, 1))
            )
            if same(own, out) and not same(other, out):
                return way
        raise InputError(f"the MLP of layer {layer} cannot be run alone")

    @torch.no_grad()
    def attention(self, layer: int) -> LayerAttention:
        """The attention of a layer, by head.

        Raises InputError if its heads cannot be edited one by one.
        """
        z = self._site(layer, "hook_z")
        sites = []
        for what, names in _CHANNELS.items():
            here = (self._site(layer, name, names[0]) for name in names)
            site = next((s for s in here if s is not None and self._apart(layer, s)), None)
            if z is None or site is None:
                raise InputError(f"the {what} of single heads in layer {layer} cannot be edited")
            sites.append(site)
        assert z is not None
        gate = self._site(layer, _GATE)
        gate = gate if gate is not None and self._apart(layer, gate) else None
        attention = LayerAttention(self, layer, (sites[0], sites[1], sites[2]), z, gate)
        x = self.probe[f"blocks.{layer}.hook_resid_pre"]
        if not agrees(attention.z(*attention.projected(x)), z.heads(self.probe[z.name])):
            raise InputError(
                f"the heads of layer {layer} read the residual stream by more than queries, keys "
                "and values"
            )
        return attention

    def _site(self, layer: int, name: str, like: str | None = None) -> HeadSite | None:
        """Where the heads are in a hook point's value; None if it does not fire or has none.

        Args:
            layer: the layer.
            name: the hook point in its attention.
            like: one that tells the number of heads, if this one has them in one axis.
        """
        full = f"blocks.{layer}.attn.{name}"
        value = self.probe.get(full)
        if value is None:
            return None
        first = value.ndim == 4 and value.shape[1] != self._n_probe
        if name in ("hook_z", _GATE):
            n = self.n_heads  # whatever its shape says: latent attention's is exchanged
        elif value.ndim == 4:
            n = value.shape[1 if first else 2]
        else:
            shown = None if like in (None, name) else self._site(layer, str(like))
            n = self.n_heads if shown is None else shown.n_heads
        n = min(n, self.n_heads)
        size = value[0].numel() // self._n_probe
        return None if size % n or self.n_heads % n else HeadSite(full, n, heads_first=first)

    def _apart(self, layer: int, site: HeadSite) -> bool:
        """Whether an edit of one head at this hook point changes that head's output alone.

        A head that writes nothing (pruned) shows nothing: other heads are then edited.
        """
        fires, z_site = self.probe, self._site(layer, "hook_z")
        assert z_site is not None
        before, parts = z_site.heads(fires[z_site.name]), site.heads(fires[site.name])
        shown = False
        for one in dict.fromkeys([0, site.n_heads - 1, *range(site.n_heads)]):
            if shown and one not in (0, site.n_heads - 1):
                break
            changed = parts.clone()
            changed[:, :, one] += parts[:, :, one].roll(1, 1)
            put = {site.name: partial(site.put, changed)}
            residual = fires[f"blocks.{layer}.hook_resid_pre"]
            z = self.read(layer, residual, [z_site.name], put)[0]
            moved = (z_site.heads(z) - before).abs().amax((0, 1, 3)) > 0
            of = torch.arange(self.n_heads, device=z.device) // (self.n_heads // site.n_heads)
            if bool(moved[of != one].any()):
                return False
            shown = shown or bool(moved[of == one].any())
        return shown


@dataclass(frozen=True)
class HeadSite:
    """Where the heads are in the value of a hook point.

    Attributes:
        name: the hook point.
        n_heads: the number of heads; fewer than query heads where groups share.
        heads_first: whether the heads' axis is before that of positions.
    """

    name: str
    n_heads: int
    heads_first: bool = False

    def heads(self, value: Tensor) -> Float[Tensor, "row pos head d"]:
        """The value by head; what belongs to one head (query and gate) is joined."""
        value = value.transpose(1, 2) if self.heads_first else value
        return by_head(value, self.n_heads)

    def put(self, parts: Float[Tensor, "row pos head d"], value: Tensor) -> Tensor:
        """Parts by head in the form of a value of the hook point."""
        if not self.heads_first:
            return parts.reshape(value.shape)
        return parts.reshape(value.transpose(1, 2).shape).transpose(1, 2)


@dataclass(frozen=True, eq=False)
class LayerAttention:
    """The attention of a layer, by head, computed by its own module.

    Attributes:
        layers: the model.
        layer: the layer.
        sites: the hook points of queries, keys and values.
        z_site: that of the heads' outputs.
        gate: that of gates that are computed from the residual stream; None without them.
    """

    layers: ModelLayers
    layer: int
    sites: tuple[HeadSite, HeadSite, HeadSite]
    z_site: HeadSite
    gate: HeadSite | None = None

    def projected(self, x: Stream) -> Projected:
        """Queries (and gates), keys and values of every query head, for a residual stream."""
        sites = [*self.sites, *([self.gate] if self.gate else [])]
        values = self.layers.read(self.layer, x, [site.name for site in sites])
        q, k, v, *gates = (
            site.heads(value).repeat_interleave(self.layers.n_heads // site.n_heads, dim=2)
            for site, value in zip(sites, values, strict=True)
        )
        return torch.cat([q, *gates], dim=-1), k, v

    def z(self, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "row pos head d_value"]:
        """The heads' outputs before the output projection, from such queries, keys and values."""
        members, of_member = self._read(q, k, v, self.z_site.name)
        z = torch.cat([self.z_site.heads(part) for part in of_member])
        if members == 1:
            return z
        H, rows = self.layers.n_heads, len(q)
        heads = torch.arange(H, device=z.device)
        z = z.reshape(members, rows, *z.shape[1:])
        return z[heads % members, :, :, heads].permute(1, 2, 0, 3)

    def pattern(self, q: Tensor, k: Tensor, v: Tensor, head: int) -> Float[Tensor, "row query key"]:
        """The attention pattern of one head, from such queries, keys and values."""
        members, of_member = self._read(q, k, v, f"blocks.{self.layer}.attn.hook_pattern")
        return of_member[head % members][:, head]

    def _read(self, q: Tensor, k: Tensor, v: Tensor, name: str) -> tuple[int, list[Tensor]]:
        """The number of passes, one for each member of the groups, and a value of each."""
        H, rows = self.layers.n_heads, len(q)
        members = H // min(site.n_heads for site in self.sites)
        copies = [(x, H // s.n_heads) for x, s in zip((q, k, v), self.sites, strict=True)]
        one_pass = not torch.is_grad_enabled()  # else each copy has a gradient of its own
        if one_pass and all(_equal_in_groups(x, shared) for x, shared in copies):
            members = 1
        edits: dict[str, Callable[[Tensor], Tensor]] = {}
        for site, (x, shared) in zip(self.sites, copies, strict=True):
            of_member = torch.cat([x[:, :, m % shared :: shared] for m in range(members)])
            if self.gate is not None and site is self.sites[0]:  # behind each query
                d_gate = self.gate.heads(self.layers.probe[self.gate.name]).shape[-1]
                edits[self.gate.name] = partial(self.gate.put, of_member[..., -d_gate:])
                of_member = of_member[..., :-d_gate]
            edits[site.name] = partial(site.put, of_member)
        empty = q.new_zeros(rows * members, q.shape[1], int(self.layers.model.cfg.d_model))
        return members, list(self.layers.read(self.layer, empty, [name], edits)[0].chunk(members))


def _equal_in_groups(x: Float[Tensor, "row pos head d"], shared: int) -> bool:
    return all(torch.equal(x[:, :, m::shared], x[:, :, ::shared]) for m in range(1, shared))
