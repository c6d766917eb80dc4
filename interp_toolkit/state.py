"""Preserve a live model's state: it is restored after an analysis, however the analysis ends.

During an analysis the model is in eval mode, PyTorch's defaults are float32 and the CPU, autocast
and inference mode are off, and modules compiled by `torch.compile` run uncompiled. The caller's
settings are meant for training or inference and would silently change numbers. The result records
which of them were changed (`notes`).

Afterwards the following are restored, also after an error or Ctrl-C: each module's mode, hooks and
own `forward`; the parameters' `requires_grad` and `.grad`, which the analysis does not see; weights
that were changed (`undoing`); the random generators of PyTorch (those of GPUs if any is in use),
NumPy and Python; default dtype and device; gradient, inference and autocast mode; the number of
threads. Ctrl-C waits while state is set or restored. Analyses in other threads of the process wait
until this one has ended.

Modules of the model that a bridge wraps are included: they are not its children.
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import wraps
from types import FrameType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import nn

from interp_toolkit.errors import InputError, refuse_missing_part

Undo = Callable[[], None]
ValueT = TypeVar("ValueT")

#: attributes in which a module holds hooks and interventions
_HOOK_ATTRIBUTES = (
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
    *("_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs"),
    *("_forward_hooks_always_called", "fwd_hooks", "bwd_hooks", "forward"),
)
_ABSENT = object()

#: one lock for all threads, which share a model's hooks and modes, PyTorch's defaults and
#: the generators
_one_at_a_time = threading.RLock()
_notes: ContextVar[tuple[str, ...]] = ContextVar("notes", default=())
_pending: ContextVar[list[Undo] | None] = ContextVar("pending", default=None)
_tests: ContextVar[WeakKeyDictionary[Any, dict[Any, Any]] | None] = ContextVar(
    "tests", default=None
)


def notes() -> tuple[str, ...]:
    """Settings that the running analysis has overridden, for its result's provenance."""
    return _notes.get()


def modules_of(model: Any) -> list[nn.Module]:
    """Every module of a model, each once; an empty list for an object without modules."""
    if isinstance(model, type) or not callable(getattr(model, "modules", None)):
        return []
    wrapped = getattr(model, "original_model", None)
    inner = wrapped.modules() if isinstance(wrapped, nn.Module) else ()
    return list({id(module): module for module in (*model.modules(), *inner)}.values())


def uncompiled(model: Any) -> Any:
    """The original model inside a wrapper made by `torch.compile`."""
    return model._orig_mod if _is_wrapper(model) else model


@contextmanager
def preserve_state(model: Any) -> Iterator[None]:
    """Run the block on this model in eval mode, and restore the model's state.

    Args:
        model: a live model; for any other object only PyTorch's settings are preserved.

    Raises:
        InputError: weights made under `torch.inference_mode`, or without values; a part that the
            block needs and the model or its configuration lacks.
    """
    with _one_at_a_time:
        modules = modules_of(model)
        _refuse_weights(modules)
        record = _SavedState(modules)
        with _Interrupts() as interrupts:
            tests = _tests.get()
            _tests.set(WeakKeyDictionary())
            try:
                record.set_aside()
                interrupts.heed()
                yield
            except AttributeError as error:
                refuse_missing_part(error, model)
                raise
            finally:
                interrupts.held = True
                _tests.set(tests)
                record.put_back()


@contextmanager
def undoing(undo: Undo) -> Iterator[None]:
    """Undo a change of the model when the block ends, also after an error.

    If an interrupt prevents that, the enclosing `preserve_state` undoes the change when it ends.
    `undo` must therefore be safe to call twice.
    """
    pending = _pending.get()
    if pending is None:
        pending = []
    with _Interrupts() as interrupts:
        try:
            pending.append(undo)
            interrupts.heed()
            yield
        finally:
            interrupts.held = True
            undo()
            pending.remove(undo)


def once(test: Callable[[Any], ValueT]) -> Callable[[Any], ValueT]:
    """Decorate a test of a model, which takes passes, to run once per model in `preserve_state`.

    Elsewhere it runs at each call, since the model may have changed in between.
    """

    @wraps(test)
    def remembered(model: Any) -> ValueT:
        tests = _tests.get()
        if tests is None or not isinstance(model, nn.Module):
            return test(model)
        results = tests.setdefault(model, {})
        if test not in results:
            results[test] = test(model)
        value: ValueT = results[test]
        return value

    return remembered


class _Interrupts:
    """Delays Ctrl-C while `held`, which is True at the start and at the end; main thread only.

    The attribute is set without a call, so that no signal can come between it and the next line.
    """

    def __init__(self) -> None:
        self.held, self._came = True, False
        self._before = signal.getsignal(signal.SIGINT)
        main = threading.current_thread() is threading.main_thread()
        self._heeded = main and callable(self._before)

    def __enter__(self) -> _Interrupts:
        if self._heeded:
            signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *error: object) -> None:
        if self._heeded:
            signal.signal(signal.SIGINT, self._before)
        self.heed()

    def heed(self) -> None:
        """Allow Ctrl-C again, and act on one that came in the meantime."""
        self.held = False
        if self._came and callable(self._before):
            self._came = False
            self._before(signal.SIGINT, None)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.held:
            self._came = True
        elif callable(self._before):
            self._before(number, frame)


class _SavedState:
    """The state of the model and PyTorch: recorded, overridden for the run, and restored."""

    def __init__(self, modules: list[nn.Module]) -> None:
        self.modules = [
            (module, module.training, {name: _own(module, name) for name in _HOOK_ATTRIBUTES})
            for module in modules
        ]
        parameters = {id(p): p for module in modules for p in module.parameters(recurse=False)}
        self.parameters = [(p, p.requires_grad, p.grad) for p in parameters.values()]
        self.dtype, self.device = torch.get_default_dtype(), torch.get_default_device()
        self.grad_mode, self.inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        self.autocast = {kind: torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")}
        self.threads, self.torch = torch.get_num_threads(), torch.get_rng_state()
        in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        self.cuda = torch.cuda.get_rng_state_all() if in_use else None
        self.python, self.numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
        self.compiled = any(
            _is_wrapper(m) or m.__dict__.get("_compiled_call_impl") is not None for m in modules
        )
        self.wrapped = [
            (module._modules, name, child)
            for module in modules
            if not _is_wrapper(module)
            for name, child in module._modules.items()
            if _is_wrapper(child)
        ]
        self.notes, self.outer = _notes.get(), _pending.get()
        self.pending: list[Undo] = []
        self.entered = ExitStack()

    def set_aside(self) -> None:
        """Set eval mode, clear gradients, and set PyTorch to its defaults."""
        _notes.set(tuple(dict.fromkeys((*self.notes, *self._changes()))))
        _pending.set(self.pending)
        for module, training, _ in self.modules:
            if training:
                module.training = False
        for parameter, _, grad in self.parameters:
            if grad is not None:
                parameter.grad = None
        for kind, enabled in self.autocast.items():
            if enabled:
                torch.set_autocast_enabled(kind, False)
        if self.inference:
            self.entered.enter_context(torch.inference_mode(False))
            self.entered.enter_context(torch.no_grad())
        if self.device.type != "cpu":
            self.entered.enter_context(torch.device("cpu"))
        if self.compiled:
            self.entered.enter_context(torch.compiler.set_stance("force_eager"))
        for children, name, wrapper in self.wrapped:
            children[name] = uncompiled(wrapper)
        torch.set_default_dtype(torch.float32)

    def put_back(self) -> None:
        """Restore everything, even if a part fails; raises the first error."""
        wrong: list[BaseException] = []
        parts = (*reversed(self.pending), self.entered.close, self._modules_back, self._grads_back)
        for part in (*parts, self._pytorch_back):
            try:
                part()
            except BaseException as error:  # restore the rest after any error
                wrong.append(error)
        if wrong:
            raise wrong[0]

    def _changes(self) -> Iterator[str]:
        if any(training for module, training, _ in self.modules if not _is_wrapper(module)):
            yield "training mode"
        if any(self.autocast.values()):
            yield "autocast"
        if self.inference:
            yield "inference mode"
        if self.dtype != torch.float32:
            yield f"default dtype {self.dtype}"
        if self.device.type != "cpu":
            yield f"default device {self.device}"
        if self.compiled:
            yield "torch.compile"

    def _modules_back(self) -> None:
        for children, name, wrapper in self.wrapped:
            children[name] = wrapper
        for module, training, values in self.modules:
            if module.training is not training:
                module.training = training
            for name, value in values.items():
                _give(module, name, value)

    def _grads_back(self) -> None:
        for parameter, required, grad in self.parameters:
            if parameter.requires_grad is not required:
                parameter.requires_grad_(required)
            if parameter.grad is not grad:
                parameter.grad = grad

    def _pytorch_back(self) -> None:
        _notes.set(self.notes)
        _pending.set(self.outer)
        torch.set_default_dtype(self.dtype)
        torch.set_grad_enabled(self.grad_mode)
        for kind, enabled in self.autocast.items():
            if torch.is_autocast_enabled(kind) is not enabled:
                torch.set_autocast_enabled(kind, enabled)
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        torch.set_rng_state(self.torch)
        if self.cuda is not None:
            torch.cuda.set_rng_state_all(self.cuda)
        random.setstate(self.python)
        np.random.set_state(self.numpy)  # noqa: NPY002 - the user's


def _is_wrapper(model: Any) -> bool:
    return type(model).__name__ == "OptimizedModule" and isinstance(model, nn.Module)


def _own(module: nn.Module, name: str) -> Any:
    """A copy of the module's own attribute of this name."""
    value = module.__dict__.get(name, _ABSENT)
    return value.copy() if isinstance(value, dict | list) else value


def _give(module: nn.Module, name: str, value: Any) -> None:
    """Restore a module's own attribute, in the same object if it is a container."""
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


def _refuse_weights(modules: list[nn.Module]) -> None:
    parameters = [p for module in modules for p in module.parameters(recurse=False)]
    if any(p.is_meta for p in parameters):
        raise InputError(
            "the model's weights are on PyTorch's meta device, without values: fill them first "
            "(model.to_empty, then model.load_state_dict)"
        )
    if any(p.is_inference() for p in parameters):
        raise InputError(
            "the model's weights were made under torch.inference_mode, where PyTorch allows "
            "neither gradients nor edits: load the model outside of it, or under torch.no_grad"
        )
