"""States in which a live model may be found, and all of it that an analysis could leave changed."""

from __future__ import annotations

import contextlib
import hashlib
import random
import signal
import sys
from collections.abc import Callable, Iterator

import numpy as np
import tiny_models
import torch
from torch import nn

from interp_toolkit.data import FeatureData
from interp_toolkit.state import modules_of


class StoppedError(Exception):
    """Raised in the middle."""


def rows() -> FeatureData:
    """Two features of random prompts, for the tiny models."""
    tokens = np.random.default_rng(0).integers(1, tiny_models.D_VOCAB, (64, 7))
    features = np.stack([tokens[:, 1] > 5, tokens[:, 4] > 4], axis=1)
    return FeatureData(tokens, features, ("a", "b"))


def bytes_of(tensor: torch.Tensor) -> str:
    """A digest of every entry in its place: shuffled weights have the same sums."""
    flat = tensor.detach().cpu().reshape(-1).contiguous().view(torch.uint8)
    return hashlib.sha256(flat.numpy().tobytes()).hexdigest()


def state_of(model: nn.Module) -> list[object]:
    """All that an analysis could leave changed."""
    found: list[object] = [torch.get_rng_state().tolist(), random.getstate()]
    found += [str(np.random.get_state())]  # noqa: NPY002
    found += [torch.get_default_dtype(), torch.get_default_device(), torch.get_num_threads()]
    found += [torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")]
    return [*found, *state_of_modules(model)]


def state_of_modules(model: nn.Module) -> list[object]:
    """What of it is the model's."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "fwd_hooks", "bwd_hooks")
    found: list[object] = []
    for module in modules_of(model):
        own = module.__dict__
        found.append(
            (own.get("training"), "forward" in own, [list(own.get(h) or ()) for h in hooks])
        )
        for parameter in module._parameters.values():
            if parameter is not None and not parameter.is_meta:
                grad = None if parameter.grad is None else bytes_of(parameter.grad)
                found.append((bytes_of(parameter), parameter.dtype, parameter.requires_grad, grad))
    return found


@contextlib.contextmanager
def in_training(model: nn.Module) -> Iterator[None]:
    """With dropout of one half behind a block."""

    def drop(module: nn.Module, given: object, out: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(out, 0.5, module.training)

    handle = model.hook_dict["blocks.0.hook_resid_post"].register_forward_hook(drop)
    model.train()
    yield
    model.eval()
    handle.remove()


@contextlib.contextmanager
def default_dtype(model: nn.Module) -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def default_device(model: nn.Module) -> Iterator[None]:
    with torch.device("meta"):
        yield


@contextlib.contextmanager
def live_gradients(model: nn.Module) -> Iterator[None]:
    """Half of the parameters frozen, the rest with a gradient."""
    parameters = list(model.parameters())
    for number, parameter in enumerate(parameters):
        parameter.requires_grad_(number % 2 == 0)
        parameter.grad = torch.ones_like(parameter) if number % 2 == 0 else None
    yield
    for parameter in parameters:
        parameter.requires_grad_(True)
        parameter.grad = None


@contextlib.contextmanager
def watched(model: nn.Module) -> Iterator[None]:
    """A user's own hook, that changes nothing."""
    handle = next(iter(model.hook_dict.values())).register_forward_hook(lambda m, a, out: None)
    yield
    handle.remove()


@contextlib.contextmanager
def watched_for_good(model: nn.Module) -> Iterator[None]:
    """A permanent hook of TransformerLens', that changes nothing."""
    point = next(iter(model.hook_dict.values()))
    point.add_perma_hook(lambda value, hook: None)
    yield
    point.remove_hooks("fwd", including_permanent=True)


@contextlib.contextmanager
def more_threads(model: nn.Module) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    yield
    torch.set_num_threads(threads)


SITUATIONS: dict[str, Callable[[nn.Module], contextlib.AbstractContextManager[object]]] = {
    "training mode": in_training,
    "float64 by default": default_dtype,
    "another default device": default_device,
    "autocast": lambda model: torch.autocast("cpu", torch.bfloat16),
    "inference mode": lambda model: torch.inference_mode(),
    "no gradients": lambda model: torch.no_grad(),
    "live gradients": live_gradients,
    "a hook of the user's": watched,
    "a permanent hook": watched_for_good,
    "one thread more": more_threads,
}


@contextlib.contextmanager
def interrupted_at(call: int | None) -> Iterator[list[int]]:
    """Ctrl-C at that call of a Python function, counted from here; None: calls are counted."""
    calls = [0]

    def count(frame: object, event: str, argument: object) -> None:
        if event == "call":
            calls[0] += 1
            if calls[0] == call:
                signal.raise_signal(signal.SIGINT)

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


@contextlib.contextmanager
def failing_at(model: nn.Module, firing: int | None) -> Iterator[list[int]]:
    """Hooks of the user's, one of which raises when it is the turn of that firing among all."""
    firings = [0]

    def fail(*given: object) -> None:
        firings[0] += 1
        if firings[0] == firing:
            raise StoppedError

    handles = [point.register_forward_hook(fail) for point in model.hook_dict.values()]
    try:
        yield firings
    finally:
        for handle in handles:
            handle.remove()
