"""A live model is handed back as it was found, however an analysis of it ends.

While the analysis runs the model is in eval mode, PyTorch makes float32 tensors on the CPU, and
neither autocast nor inference mode is on: what is set outside says how a model is trained or run,
and would change numbers without a word. Afterwards each module's mode and hooks, what parameters
keep (`requires_grad`, `.grad`), the generators of random numbers and PyTorch's settings are as
before, also after an error or Ctrl-C; weights that were changed on the way are put back. Ctrl-C
waits for as long as things are put back.

Of a bridge the wrapped model's modules count too: they are no children of its own.
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import nn

from interp_toolkit.errors import InputError

Undo = Callable[[], None]

#: what of a module's own attributes hooks and interventions live in
_KEPT = (
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
    *("_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs"),
    *("_forward_hooks_always_called", "fwd_hooks", "bwd_hooks", "training", "forward"),
)
_ABSENT = object()

_changed: ContextVar[tuple[str, ...]] = ContextVar("changed", default=())
_undone_last: ContextVar[list[Undo] | None] = ContextVar("undone_last", default=None)


def notes() -> tuple[str, ...]:
    """What the running analysis has set aside of what it found, for its result's provenance."""
    return _changed.get()


def modules_of(model: Any) -> list[nn.Module]:
    """Every module of a model, each once; none of what is no module."""
    if not isinstance(model, nn.Module):
        return []
    wrapped = model.__dict__.get("original_model")
    inner = wrapped.modules() if isinstance(wrapped, nn.Module) else ()
    return list({id(module): module for module in (*model.modules(), *inner)}.values())


@contextmanager
def as_found(model: Any) -> Iterator[None]:
    """Run what is inside on this model, in eval mode, and hand it back as it was.

    Args:
        model: a live model; for anything else only PyTorch's settings are seen to.

    Raises:
        InputError: weights that were made under `torch.inference_mode`.
    """
    modules = modules_of(model)
    _refuse_inference(modules)
    kept = [(module, {name: _own(module, name) for name in _KEPT}) for module in modules]
    parameters = {id(p): p for module in modules for p in module._parameters.values()}.values()
    grads = [(p, p.requires_grad, p.grad) for p in parameters if p is not None]
    pytorch = _of_pytorch()
    pending: list[Undo] = []

    def put_back() -> None:
        for undo in pending:
            undo()
        for module, values in kept:
            for name, value in values.items():
                _give(module, name, value)
        for parameter, wanted, grad in grads:
            if parameter.requires_grad is not wanted:
                parameter.requires_grad_(wanted)
            if parameter.grad is not grad:
                parameter.grad = grad
        pytorch()

    said = _changed.set((*_changed.get(), *_set_aside(modules)))
    outer = _undone_last.set(pending)
    with _then(put_back):
        try:
            for module in modules:
                module.__dict__["training"] = False
            with _plain_pytorch():
                yield
        finally:
            _undone_last.reset(outer)
            _changed.reset(said)


@contextmanager
def undoing(undo: Undo) -> Iterator[None]:
    """Undo a change of the model at the block's end, whatever happens there.

    Inside `as_found` it is undone again when that ends, where the first time did not come to its
    end: `undo` must be one that can be called twice.
    """
    pending = _undone_last.get()
    if pending is None:
        pending = []
    pending.append(undo)

    def whole() -> None:
        undo()
        pending.remove(undo)

    with _then(whole):
        yield


@contextmanager
def _then(action: Callable[[], None]) -> Iterator[None]:
    """Do this at the block's end; a Ctrl-C that comes meanwhile is heeded when it is done."""
    ending, came = False, False
    before = signal.getsignal(signal.SIGINT)
    heeded = callable(before) and threading.current_thread() is threading.main_thread()

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if ending:
            came = True
        elif callable(before):
            before(number, frame)

    if heeded:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        ending = True  # no call, so that nothing can come before it
        try:
            action()
        finally:
            if heeded:
                signal.signal(signal.SIGINT, before)
                if came and callable(before):
                    before(signal.SIGINT, None)


def _own(module: nn.Module, name: str) -> Any:
    """A copy of what the module itself has under this name."""
    value = module.__dict__.get(name, _ABSENT)
    return value.copy() if isinstance(value, dict | list) else value


def _give(module: nn.Module, name: str, value: Any) -> None:
    """Give the module its own value back, in the very object that it has for it."""
    now = module.__dict__.get(name, _ABSENT)
    if value is _ABSENT:
        module.__dict__.pop(name, None)
    elif isinstance(now, dict) and now != value:
        now.clear()
        now.update(value)
    elif isinstance(now, list) and now != value:
        now[:] = value
    elif not isinstance(now, dict | list):
        module.__dict__[name] = value


def _refuse_inference(modules: list[nn.Module]) -> None:
    if any(p is not None and p.is_inference() for m in modules for p in m._parameters.values()):
        raise InputError(
            "the model's weights were made under torch.inference_mode, and PyTorch lets nobody "
            "take gradients through such or change them: make them outside of it, or under "
            "torch.no_grad"
        )


def _set_aside(modules: list[nn.Module]) -> list[str]:
    """What is not as an analysis needs it, in words."""
    found = []
    if any(module.training for module in modules):
        found.append("given in training mode, analysed in eval mode")
    if any(torch.is_autocast_enabled(kind) for kind in _kinds()):
        found.append("called under autocast, analysed without")
    if torch.get_default_dtype() != torch.float32:
        found.append(f"called with {torch.get_default_dtype()} as default, analysed with float32")
    device = torch.get_default_device()
    if device.type != "cpu":
        found.append(f"called with {device} as default device, analysed with the CPU")
    return [each for each in found if each not in _changed.get()]


def _kinds() -> list[str]:
    return ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@contextmanager
def _plain_pytorch() -> Iterator[None]:
    """PyTorch as it is where nothing is set."""
    with ExitStack() as stack:
        for kind in _kinds():
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.no_grad())
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        if torch.get_default_dtype() != torch.float32:
            stack.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(torch.float32)
        yield


def _of_pytorch() -> Undo:
    """Puts back generators and threads as they are now."""
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the user's

    def put_back() -> None:
        torch.set_rng_state(state)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)

    return put_back
