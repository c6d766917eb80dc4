"""Run any model just far enough, without gradients or dropout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp_toolkit.errors import InputError, a_kind
from interp_toolkit.models.model import Model, sizes
from interp_toolkit.models.running.hooks import has_hooks, hook_points
from interp_toolkit.state import modules_of, once

#: large enough to involve all position-dependent parts, small enough to be cheap
PROBE_ROWS, PROBE_POSITIONS, SHORT = 2, 8, 64

#: tokens in a batch on a CPU: larger batches exceed its caches (one layer of 128 dimensions on rows
#: of 102 tokens: 2,000 rows at once take 3.6 times as long as 64 at a time)
CACHED_TOKENS = 2**13

#: tolerated difference between two ways to compute logits, relative to the largest: rounding only
SAME = 1e-5

Hook = Callable[..., Any]


class StopForwardError(Exception):
    """Raised by a hook to end a forward pass early; never leaves this package."""


def device_of(model: Model) -> torch.device:
    """The device of the model's first parameter."""
    parameter = next(iter(model.parameters()), None)
    return torch.device("cpu") if parameter is None else parameter.device


@contextmanager
def evaluating(model: Model) -> Iterator[None]:
    """Disable dropout in the block; every module's training flag is restored afterwards."""
    training = [module for module in modules_of(model) if module.training]
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def attached(model: Model, hooks: Iterable[tuple[Any, Hook]]) -> Iterator[None]:
    """Attach forward hooks to hook points for the block, and remove them afterwards.

    The arguments are hook points, not names: on a bridge, `model.hooks` lists all names again for
    each hook, which costs more than the forward pass. In a model that is spread over several
    devices, hooks read and return activations on the device of its first parameter. Hooks read and
    return queries, keys, values and head outputs as [row pos head d], also of latent attention.
    """
    device, forms = device_of(model), _forms(model)
    added: list[tuple[Any, Any]] = []
    try:
        for point, hook in hooks:
            hook = _in_form(hook, forms.get(id(point)))
            point.add_hook(_reading_on(device, hook))
            added.append((point, point.fwd_hooks[-1]))
        yield
    finally:
        for point, handle in added:
            handle.hook.remove()
            point.fwd_hooks = [other for other in point.fwd_hooks if other is not handle]


def by_head(value: Tensor, n_heads: int) -> Float[Tensor, "row pos head d"]:
    """What follows the positions, as one vector for each head."""
    return value.reshape(*value.shape[:2], n_heads, -1)


def is_latent(attention: Any) -> bool:
    """Whether a bridge's attention computes keys and values from latents (DeepSeek, GLM 5)."""
    return "kv_b_proj" in getattr(attention, "_modules", ())


Form = tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]


@once
def _forms(model: Model) -> dict[int, Form]:
    """Hook points whose values are not [row pos head d], with the change to that and back.

    Bridges have queries, keys and values of latent attention as [row head pos d]; they split its
    head outputs, whose size per head is not `cfg.d_head`, into heads of that size.
    """
    turned: Form = (lambda x: x.transpose(1, 2), lambda x, _: x.transpose(1, 2))
    forms: dict[int, Form] = {}
    for block in getattr(model, "blocks", ()):
        attn = getattr(block, "_modules", {}).get("attn")
        if not is_latent(attn):
            continue
        n_heads = int(cast("Any", model).cfg.n_heads)
        split: Form = (
            partial(by_head, n_heads=n_heads),
            lambda x, before: x.reshape(before.shape),
        )
        names = {"hook_q": turned, "hook_k": turned, "hook_v": turned, "hook_z": split}
        forms |= {id(getattr(attn, name)): form for name, form in names.items()}
    return forms


def in_usual_form(model: Model, point: Any, function: Hook) -> Hook:
    """The hook function as `attached` attaches it, for TransformerLens's own methods."""
    return _in_form(function, _forms(model).get(id(point)))


def _in_form(function: Hook, form: Form | None) -> Hook:
    """A hook function that reads and returns values in another form."""
    if form is None:
        return function
    to, back = form

    def formed(value: Any, hook: Any) -> Any:
        usual = to(value)
        edited = function(usual, hook=hook)
        return back(usual if edited is None else edited, value)

    return formed


def _reading_on(device: torch.device, function: Hook) -> Hook:
    """A hook function that reads the activation on this device and edits it on its own."""

    def moved(value: Any, hook: Any) -> Any:
        if not isinstance(value, Tensor) or value.device == device:
            return function(value, hook=hook)
        here = value.to(device)
        edited = function(here, hook=hook)
        edited = here if edited is None else edited  # the edit may have been in place
        return edited.to(value.device) if isinstance(edited, Tensor) else edited

    return moved


@contextmanager
def unembedded_at(model: Model, at: Int[Tensor, " position"] | None) -> Iterator[None]:
    """Compute logits at these positions only, in this order; None: at all positions.

    The unembedding takes a fifth of a pass of a small language model (SmolLM2-135M), and rows are
    often read at few positions. The model must satisfy `can_unembed_at`.
    """
    if at is None:
        yield
        return

    def only(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (args[0].index_select(1, at.to(args[0].device)), *args[1:])

    handle = cast("Any", model).unembed.register_forward_pre_hook(only)
    try:
        yield
    finally:
        handle.remove()


@once
def can_unembed_at(model: Model) -> bool:
    """Whether logits computed at some positions equal those of a full pass, on a tiny input."""
    if not isinstance(getattr(model, "unembed", None), nn.Module):
        return False
    tokens = probe_tokens(model)
    at = torch.arange(tokens.shape[1])[1::2]
    whole = run(model, tokens)
    if whole is None or not len(at):
        return False
    try:
        with unembedded_at(model, at):
            some = run(model, tokens)
    except Exception:  # models that do not support it raise many types
        return False
    expected = whole[:, at.to(whole.device)]
    return some is not None and same(some, expected)


def same(one: Tensor, expected: Tensor) -> bool:
    """Whether two ways to compute the same differ by rounding only."""
    if one.shape != expected.shape:
        return False
    return bool((one - expected).abs().max() <= SAME * expected.abs().max().clamp_min(1e-30))


def run(
    model: Model,
    tokens: Int[Tensor, "batch pos"],
    hooks: Iterable[tuple[Any, Hook]] = (),
    *,
    graph: bool = False,
) -> Float[Tensor, "batch position d_vocab"] | None:
    """The logits, with forward hooks on these hook points; None if a hook stopped the pass.

    The hooks are removed afterwards, also after an error. `graph`: store what gradients need,
    where the caller has enabled them.
    """
    recording = nullcontext() if graph else torch.no_grad()
    with recording, evaluating(model), attached(model, hooks):
        try:
            output = model(tokens.to(device_of(model)))
        except StopForwardError:
            return None
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor):
        raise InputError(f"{a_kind(model)} returns no logits")
    return logits.to(device_of(model))


@once
def fired(model: Model) -> frozenset[str]:
    """The names of the hook points that fire in a plain pass, aliases included."""
    points = hook_points(model)
    fires: set[int] = set()

    def watch(point: Any) -> Hook:
        return lambda value, hook: fires.add(id(point))

    unique = {id(point): point for point in points.values()}
    run(model, probe_tokens(model), [(point, watch(point)) for point in unique.values()])
    return frozenset(name for name, point in points.items() if id(point) in fires)


def cached_batches(model: Model, tokens: Int[Tensor, "row pos"]) -> list[slice]:
    """Slices of rows to run at once: on a CPU few enough for its caches, elsewhere all rows.

    If anything is attached to the model, all rows are run at once, since hooks may depend on the
    batch.
    """
    n_rows, n_pos = tokens.shape
    size = max(n_rows, 1)
    if device_of(model).type == "cpu" and not any(map(has_hooks, model.modules())):
        size = max(CACHED_TOKENS // max(n_pos, 1), 1)
    return [slice(start, start + size) for start in range(0, max(n_rows, 1), size)]


_WINDOWS = ("sliding_window", "window_size", "attention_chunk_size")


def _short_window(model: Model) -> int:
    """The longest attention window or chunk of at most SHORT positions; 0 without one."""
    own = getattr(getattr(model, "original_model", None), "config", None)
    named = [getattr(cfg, name, None) for cfg in (model.cfg, own) for name in _WINDOWS]
    return max((n for n in named if isinstance(n, int) and 0 < n <= SHORT), default=0)


def probe_tokens(model: Model) -> Int[Tensor, "batch pos"]:
    """A small fixed input for checks: distinct rows of tokens in the vocabulary.

    They are longer than a short attention window, so that a window that is taken for another shows.
    """
    n_ctx, d_vocab = sizes(model, "n_ctx", "d_vocab")
    generator = torch.Generator().manual_seed(0)
    size = (PROBE_ROWS, min(n_ctx, max(PROBE_POSITIONS, _short_window(model) + 2)))
    return torch.randint(d_vocab, size, generator=generator).to(device_of(model))
