"""Interventions: edits at hook points, ablated heads, a model with shuffled weights.

Each is a context manager. It checks on entry that it takes effect (`models.running.effect`) and
restores the model on exit, also after an error. Heads are ablated at `hook_z`, the one hook point
at which a head can be edited in every kind of model. It has one entry per query head, also with
grouped keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.errors import InputError, InterventionError, a_kind, takes
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.models.model import Head, HeadLike, Model, as_head, check_model, sizes
from interp_toolkit.models.running.effect import everything, require_effect
from interp_toolkit.models.running.forward import attached, probe_tokens, run
from interp_toolkit.models.running.hooks import expand_hooks, hook_points
from interp_toolkit.models.running.streaming import collect, position_sums
from interp_toolkit.state import undoing

HOWS = ("mean", "zero", "resample")
Edit = Callable[..., Any]


@takes(model=check_model, edits=Mapping)
@contextmanager
def edit(model: Model, edits: Mapping[str, Edit]) -> Iterator[Any]:
    """Edit activations at hook points: hook name -> `function(value, hook=...)`, the new value.

    Args:
        model: any TransformerLens model.
        edits: names as `expand_hooks` takes them; a pattern edits every matching hook. A function
            may return None to leave the value unchanged.

    Yields:
        The model, edited until the block ends.

    Raises:
        InputError: no edits, or a name that matches no hook.
        InterventionError: edits at one of these hooks do not reach the model's output, or a
            function returns a value of another shape, dtype or device.

    Examples:
        >>> import interp_toolkit as it
        >>> model, tokens = it.load("toy:xor-2head"), torch.tensor([[0, 1, 2]])
        >>> with edit(model, {"blocks.0.attn.hook_z": lambda z, hook: 0 * z}):
        ...     without = model(tokens)
        >>> bool(torch.equal(without, model(tokens)))
        False
    """
    hooks = [
        (name, function)
        for pattern, function in edits.items()
        for name in expand_hooks(model, pattern)
    ]
    if not hooks:
        raise InputError("give at least one edit")
    require_effect(model, {name: everything for name, _ in hooks})
    points = hook_points(model)
    with attached(model, ((points[name], _same_kind(name, function)) for name, function in hooks)):
        yield model


def _same_kind(name: str, function: Edit) -> Edit:
    """Wrap an edit so that it may only return a value of the same shape, dtype and device."""

    def checked(value: Any, hook: Any) -> Any:
        edited = function(value, hook=hook)
        if edited is None or not isinstance(value, Tensor):
            return edited
        returned, expected = _kind(edited), _kind(value)
        if returned != expected:
            raise InterventionError(
                f"the edit at {name} returned {returned}, not {expected}: return a tensor of "
                "the same shape, dtype and device, or None"
            )
        return edited

    return checked


def _kind(value: Any) -> str:
    """`[2, 8, 16] torch.float32 on cpu`."""
    if not isinstance(value, Tensor):
        return a_kind(value)
    return f"{list(value.shape)} {value.dtype} on {value.device}"


@dataclass(frozen=True, eq=False)
class HeadMeans(ShortRepr):
    """Mean head outputs over the reference prompts that reach a position; see `head_means`.

    Attributes:
        heads: indices of the heads, by layer.
        z: [pos head d_head] by layer, in the order of `heads`.
    """

    heads: Mapping[int, Sequence[int]]
    z: Mapping[int, Float[Tensor, "pos head d_head"]] = field(repr=False)

    def of(self, by_layer: Mapping[int, Sequence[int]]) -> dict[int, Tensor]:
        """The means of some heads, by layer.

        Raises InputError for heads without stored means.
        """
        for layer, heads in by_layer.items():
            if missing := set(heads) - set(self.heads.get(layer, ())):
                raise InputError(
                    f"the means of L{layer}H{min(missing)} were not read: give every head that is "
                    "ablated to head_means"
                )
        return {
            layer: self.z[layer][:, [self.heads[layer].index(head) for head in heads]]
            for layer, heads in by_layer.items()
        }


def head_means(
    model: Model,
    heads: HeadLike | Iterable[HeadLike],
    reference: Any,
    *,
    memory: int | str | None = None,
) -> HeadMeans:
    """Mean outputs of heads for `ablate`, read once for many ablations with one reference.

    Args:
        model: any TransformerLens model.
        heads: heads such as "L0H3" or (0, 3), one or several (of grouped attention: query heads).
        reference: tokens or data, as `activations` takes them.
        memory: limit on memory for the run, such as "4GiB".

    Raises:
        InputError: heads that the model does not have.
    """
    by_layer = _by_layer(model, heads)
    hooks = _hooks_z(model, by_layer)
    sums, counts = position_sums(model, reference, list(hooks.values()), memory=memory)
    rows = counts[:, None, None]
    return HeadMeans(
        by_layer,
        {n: sums[name][:, by_layer[n]] / rows.to(sums[name]) for n, name in hooks.items()},
    )


@takes(model=check_model, how=str)
@contextmanager
def ablate(
    model: Model,
    heads: HeadLike | Iterable[HeadLike],
    how: str = "mean",
    *,
    reference: Any = None,
    seed: int = 0,
) -> Iterator[Any]:
    """Ablate heads: their outputs at `hook_z` are replaced, at every position.

    Args:
        model: any TransformerLens model.
        heads: heads such as "L0H3" or (0, 3), one or several (of grouped attention: query heads).
        how: "zero"; "mean", each position's mean over the reference's rows; "resample", the values
            of one of its rows, drawn at random, the same row for all heads. Positions count from
            the row's start.
        reference: tokens or data, as `activations` takes them, or for "mean" the result of
            `head_means`. None: the running batch, of at least two rows; its mean includes the row
            itself, and "resample" takes another row.
        seed: random seed of the rows that "resample" draws.

    Yields:
        The model, ablated until the block ends.

    Raises:
        InputError: no heads, or heads the model does not have; another `how`; in the block, a batch
            of one row without a reference, or rows longer than the reference's.
        InterventionError: the model ignores edits of its heads.

    Examples:
        >>> import interp_toolkit as it
        >>> model, tokens = it.load("toy:xor-2head"), torch.tensor([[0, 1, 2]])
        >>> with it.ablate(model, heads=["L0H1"], how="zero"):
        ...     without = model(tokens)
        >>> bool(torch.equal(without, model(tokens)))
        False
    """
    by_layer = _by_layer(model, heads)
    if how not in HOWS:
        raise InputError(f'how is {how!r}; it must be "mean", "zero" or "resample"')
    if isinstance(reference, HeadMeans) and how != "mean":
        raise InputError(f'reference holds means of heads, which need how="mean", not "{how}"')
    hooks = _hooks_z(model, by_layer)
    require_effect(model, {hooks[n]: _marker(model, by_layer[n]) for n in by_layer})
    replace: Edit
    if how == "zero":
        replace = _zero
    elif how == "mean":
        if reference is not None and not isinstance(reference, HeadMeans):
            every = [(layer, head) for layer, chosen in by_layer.items() for head in chosen]
            reference = head_means(model, every, reference)
        replace = _Mean(None if reference is None else reference.of(by_layer))
    else:
        donors = None if reference is None else _donor_z(model, reference, by_layer, hooks)
        replace = _Resample(donors, min(by_layer), seed)
    points = hook_points(model)
    with attached(
        model, ((points[hooks[n]], _replacing(by_layer[n], n, replace)) for n in by_layer)
    ):
        yield model


def require_heads(model: Model, heads: HeadLike | Iterable[HeadLike]) -> None:
    """Check once that these (layer, query head) pairs can be edited, before using `put_heads`.

    Raises:
        InputError: heads the model does not have.
        InterventionError: the model ignores edits of its heads.
    """
    by_layer = _by_layer(model, heads)
    hooks = _hooks_z(model, by_layer)
    require_effect(model, {name: _marker(model, by_layer[n]) for n, name in hooks.items()})


@contextmanager
def put_heads(
    model: Model, values: Mapping[tuple[int, int], Float[Tensor, "batch pos d_head"]]
) -> Iterator[Any]:
    """Set the outputs of heads at `hook_z` to fixed values, for one batch.

    For many runs on the same rows. Unlike `ablate`, it does not check that the edits take effect;
    see `require_heads`.

    Args:
        model: any TransformerLens model.
        values: (layer, query head) -> its output on the rows of the batch.

    Yields:
        The model, edited until the block ends.

    Raises:
        InputError: heads the model does not have.
    """
    by_layer = _by_layer(model, values)

    def replace(z: Tensor, layer: int) -> Tensor:
        return torch.stack([values[layer, head] for head in by_layer[layer]], dim=2)

    hooks, points = _hooks_z(model, by_layer), hook_points(model)
    with attached(
        model, ((points[hooks[n]], _replacing(by_layer[n], n, replace)) for n in by_layer)
    ):
        yield model


@takes(model=check_model, seed=Integral)
@contextmanager
def reinitialised(model: Model, seed: int = 0) -> Iterator[Any]:
    """A control: the same model with the entries of every weight and bias tensor permuted.

    Each tensor keeps its distribution and loses its structure. Tied weights stay tied, and the
    parts of fused weights are permuted separately. The original values are kept in CPU memory (as
    much as the model takes) and restored exactly.

    Args:
        model: any TransformerLens model.
        seed: random seed of the permutations.

    Yields:
        The model, shuffled until the block ends.

    Raises:
        InterventionError: shuffling changed nothing in the output.

    Examples:
        >>> import interp_toolkit as it
        >>> model, tokens = it.load("toy:xor-2head"), torch.tensor([[0, 1, 2]])
        >>> with reinitialised(model, seed=0):
        ...     shuffled = model(tokens)
        >>> bool(torch.equal(shuffled, model(tokens)))
        False
    """
    generator = torch.Generator().manual_seed(seed)
    before = run(model, probe_tokens(model))
    saved: list[tuple[Tensor, Tensor]] = []

    @torch.no_grad()
    def put_back() -> None:
        for tensor, original in saved:
            tensor.copy_(original)

    with undoing(put_back):
        with torch.no_grad():
            for tensor in _separate_parameters(model):
                original = tensor.detach().to("cpu", copy=True)
                saved.append((tensor, original))
                order = torch.randperm(original.numel(), generator=generator)
                tensor.copy_(original.flatten()[order].view(original.shape))
        after = run(model, probe_tokens(model))
        if before is not None and after is not None and torch.equal(before, after):
            raise InterventionError("shuffling the weights did not change the model's output")
        yield model


def _separate_parameters(model: Model) -> list[Tensor]:
    """The floating-point parameters, without those that share memory with an earlier one.

    The smallest come first, so that for a fused tensor the views that split it are listed.
    """
    listed, locations = [], set()
    for parameter in sorted((p.data for p in model.parameters()), key=Tensor.numel):
        location = (parameter.untyped_storage().data_ptr(), parameter.storage_offset())
        if parameter.is_floating_point() and parameter.numel() > 1 and location not in locations:
            locations.add(location)
            listed.append(parameter)
    return listed


def _heads(heads: Any) -> list[Head]:
    """Heads by name or as pairs of numbers; one alone, or several."""
    with suppress(ValueError):
        return [as_head(heads)]
    several = heads if isinstance(heads, Iterable) and not isinstance(heads, str) else [heads]
    return [_head(head) for head in several]


def _head(head: Any) -> Head:
    try:
        return as_head(head)
    except ValueError:
        raise InputError(
            f"{head!r} is not a head: write it as L0H3 or (0, 3), such as heads=['L0H3']"
        ) from None


def _by_layer(model: Model, heads: Any) -> dict[int, list[int]]:
    n_layers, n_heads = sizes(model, "n_layers", "n_heads")
    by_layer: dict[int, list[int]] = {}
    for layer, head in _heads(heads):
        if not (0 <= layer < n_layers and 0 <= head < n_heads):
            raise InputError(
                f"there is no head {head} in layer {layer}; the model has layers 0 to "
                f"{n_layers - 1} with heads 0 to {n_heads - 1}"
            )
        chosen = by_layer.setdefault(int(layer), [])
        if head not in chosen:
            chosen.append(int(head))
    if not by_layer:
        raise InputError("give at least one head to ablate")
    return dict(sorted(by_layer.items()))


def _hooks_z(model: Model, layers: Iterable[int]) -> dict[int, str]:
    names, points = {n: f"blocks.{n}.attn.hook_z" for n in layers}, hook_points(model)
    for layer, name in names.items():
        if name not in points:
            raise InputError(f"layer {layer} has no hook_z, so its heads cannot be edited")
    return names


def _marker(model: Model, heads: Sequence[int]) -> Callable[[Tensor], None]:
    (n_heads,) = sizes(model, "n_heads")

    def mark(z: Tensor) -> None:
        if z.ndim != 4 or z.shape[2] != n_heads:
            raise InputError("hook_z is not split into heads, so heads cannot be edited")
        z[:, :, heads] = 1

    return mark


def _replacing(heads: list[int], layer: int, replace: Edit) -> Edit:
    def hook_z(z: Float[Tensor, "batch pos head d_head"], hook: Any) -> Tensor:
        edited = z.clone()
        edited[:, :, heads] = replace(z[:, :, heads], layer).to(z)
        return edited

    return hook_z


def _zero(z: Tensor, layer: int) -> Tensor:
    return torch.zeros_like(z)


class _Mean:
    """The mean at each position, over the reference or the running batch."""

    def __init__(self, reference: dict[int, Tensor] | None):
        self.reference = reference

    def __call__(self, z: Tensor, layer: int) -> Tensor:
        if self.reference is None:
            _two_rows(z)
            return z.mean(0, keepdim=True).expand_as(z)
        return _prefix(self.reference[layer], 0, z.shape[1]).expand_as(z)


class _Resample:
    """The values of another row: of the reference, or of the batch by a random cyclic order."""

    def __init__(self, donors: dict[int, Tensor] | None, first: int, seed: int):
        self.donors, self.first = donors, first
        self.generator = torch.Generator().manual_seed(seed)
        self.chosen = torch.empty(0, dtype=torch.long)

    def __call__(self, z: Tensor, layer: int) -> Tensor:
        if layer == self.first:  # a new forward pass: draw new rows, once for all layers
            self.chosen = self._draw(z)
        if self.donors is None:
            return z[self.chosen.to(z.device)]
        donors = _prefix(self.donors[layer], 1, z.shape[1])
        return donors[self.chosen]

    def _draw(self, z: Tensor) -> Tensor:
        if self.donors is not None:
            n_donors = len(self.donors[self.first])
            return torch.randint(n_donors, (len(z),), generator=self.generator)
        _two_rows(z)
        order = torch.randperm(len(z), generator=self.generator)
        chosen = torch.empty_like(order)
        chosen[order] = order.roll(1)
        return chosen


def _two_rows(z: Tensor) -> None:
    if len(z) < 2:
        raise InputError("a batch of one row has no other rows to ablate with; give a reference")


def _prefix(values: Tensor, axis: int, n_pos: int) -> Tensor:
    if values.shape[axis] < n_pos:
        raise InputError(
            f"the model runs on {n_pos} positions, the reference of the ablation has "
            f"{values.shape[axis]}; give a longer reference"
        )
    return values.narrow(axis, 0, n_pos)


def _donor_z(
    model: Model, reference: Any, by_layer: dict[int, list[int]], hooks: dict[int, str]
) -> dict[int, Tensor]:
    """Layer -> [row pos head d_head] of the ablated heads, on the CPU."""
    values = collect(model, reference, list(hooks.values()), "all")
    return {layer: values[hooks[layer]][:, :, by_layer[layer]] for layer in by_layer}
