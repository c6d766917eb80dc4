"""A live model in any state: the plain model's verdict, and all as it was afterwards."""

from __future__ import annotations

import contextlib
import copy
import functools
import random
import signal
import sys
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import nn

import interp_toolkit as it
from interp_toolkit.as_found import as_found, modules_of, notes, undoing
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.interventions import reinitialised

MODELS = ("own", "hooked", "gpt2")
#: with options that keep them short; one of each kind of reading
ANALYSES = {
    "xor": {"data": "given"},
    "heads": {},
    "circuit": {},
    "composition": {},
    "qk": {"layer": 0, "head": 1},
    "collapse": {"data": "given"},
    "uand": {"data": "given"},
}


@functools.cache  # what is made outside an analysis draws: beartype checks entries at random
def rows() -> FeatureData:
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, 11, (64, 7))
    features = np.stack([tokens[:, 1] > 5, tokens[:, 4] > 4], axis=1)
    return FeatureData(tokens, features, ("a", "b"))


def options_of(name: str) -> dict:
    return ANALYSES[name] | ({"data": rows()} if "data" in ANALYSES[name] else {})


def analysed(model: nn.Module, name: str) -> dict:
    found = it.analyze(model, name, **options_of(name)).to_dict()
    del found["provenance"]
    return found


def state_of(model: nn.Module) -> list[object]:
    """All that an analysis could leave changed."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "fwd_hooks", "bwd_hooks")
    found: list[object] = []
    for module in modules_of(model):
        own = module.__dict__
        found.append((own["training"], "forward" in own, [list(own.get(h) or ()) for h in hooks]))
        for parameter in module._parameters.values():
            if parameter is not None:
                value = parameter.detach().double().nan_to_num(7.0)
                grad = None if parameter.grad is None else parameter.grad.sum().item()
                found.append((value.sum().item(), parameter.requires_grad, grad))
    found += [torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())]  # noqa: NPY002
    found += [torch.get_default_dtype(), torch.get_default_device(), torch.get_num_threads()]
    return [*found, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")]


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


SITUATIONS: dict[str, Callable[[nn.Module], contextlib.AbstractContextManager[object]]] = {
    "training mode": in_training,
    "float64 by default": default_dtype,
    "another default device": default_device,
    "autocast": lambda model: torch.autocast("cpu", torch.bfloat16),
    "inference mode": lambda model: torch.inference_mode(),
    "no gradients": lambda model: torch.no_grad(),
    "live gradients": live_gradients,
    "a hook of the user's": watched,
}
SAID = {
    "training mode": "training mode",
    "float64 by default": "default dtype torch.float64",
    "another default device": "default device meta",
    "autocast": "autocast",
    "inference mode": "inference mode",
}


@pytest.fixture(scope="module")
def plain(zoo):
    """What is found of a model as it stands, each analysis once."""
    kept: dict[tuple[str, str], dict] = {}

    def found(kind: str, name: str) -> dict:
        if (kind, name) not in kept:
            kept[kind, name] = analysed(zoo(kind), name)
        return kept[kind, name]

    return found


def alike(one: object, other: object) -> bool:
    """The same, but for rounding: a hook of the user's changes how rows are batched."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == pytest.approx(other, rel=1e-3, abs=1e-5, nan_ok=True)
    return one == other


@pytest.mark.slow
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("kind", MODELS)
def test_each_analysis_says_what_it_says_of_the_plain_model(zoo, plain, kind, situation) -> None:
    """Every third analysis, so that each is tried in each situation on one kind of model."""
    model = zoo(kind)
    first = MODELS.index(kind) + list(SITUATIONS).index(situation)
    for name in list(ANALYSES)[first % 3 :: 3]:
        wanted = plain(kind, name)
        with SITUATIONS[situation](model):
            before = state_of(model)
            result = analysed(model, name)
            assert state_of(model) == before, name
        assert result["verdict"] == wanted["verdict"], name
        assert alike(result["evidence"], wanted["evidence"]), name


@pytest.mark.parametrize("how", ["a wrapper", "in place", "a block of it"])
@pytest.mark.parametrize("kind", ["own", "hooked"])
def test_a_compiled_model_is_looked_at_as_it_was_written(zoo, plain, kind, how) -> None:
    """The backend fails where anything is compiled at all."""
    model = copy.deepcopy(zoo(kind)).eval()

    def backend(*given: object) -> object:
        raise StoppedError

    given = model
    if how == "a wrapper":
        given = torch.compile(model, backend=backend)
    elif how == "in place":
        model.compile(backend=backend)
    else:
        model.blocks[1] = torch.compile(model.blocks[1], backend=backend)
    before = [model.__dict__.get("_compiled_call_impl"), *model.blocks]
    for name in ("xor", "heads", "qk"):
        result = it.analyze(given, name, **options_of(name))
        wanted = plain(kind, name)
        assert result.verdict == wanted["verdict"]
        assert alike(result.to_dict()["evidence"], wanted["evidence"])
        assert result.provenance.model["set_aside"] == ["torch.compile"]
    assert it.doctor(given).status == it.doctor(zoo(kind)).status
    after = [model.__dict__.get("_compiled_call_impl"), *model.blocks]
    assert all(one is other for one, other in zip(before, after, strict=True))
    if kind == "hooked":  # of our own the types of tensors are checked here, which nothing compiles
        with torch.no_grad(), pytest.raises(Exception, match="StoppedError"):
            given(torch.as_tensor(rows().token_matrix()[:1]))


@pytest.mark.parametrize("situation", SAID)
def test_what_was_set_aside_is_said(zoo, situation) -> None:
    model = zoo("gpt2")
    with SITUATIONS[situation](model):
        result = it.analyze(model, "qk", layer=0, head=1)
    assert result.provenance.model["set_aside"] == [SAID[situation]]
    assert "set_aside" not in it.analyze(model, "qk", layer=0, head=1).provenance.model


def test_weights_made_in_inference_mode_are_refused_in_a_line() -> None:
    with torch.inference_mode():
        model = it.load("toy:xor-2head")
    for call in (
        lambda: it.analyze(model, "xor"),
        lambda: it.audit(model, "L0H0 is an induction head"),
    ):
        with pytest.raises(InputError, match=r"torch.inference_mode, and PyTorch lets nobody") as e:
            call()
        assert "\n" not in str(e.value)


class StoppedError(Exception):
    """Raised in the middle."""


def test_after_an_error_all_is_as_it_was(zoo) -> None:
    model = zoo("gpt2").train()
    parameter = next(model.parameters())
    before = state_of(model)

    def spoil() -> None:
        next(iter(model.hook_dict.values())).add_hook(lambda value, hook: value)
        model.blocks[0].register_forward_hook(lambda *given: None)
        parameter.requires_grad_(False)
        parameter.grad = torch.zeros_like(parameter)
        model.blocks[1].train()
        torch.manual_seed(3)
        raise StoppedError

    with pytest.raises(StoppedError), as_found(model):
        spoil()
    assert state_of(model) == before
    model.eval()


def test_what_is_undone_in_part_is_undone_again() -> None:
    """An undoing that fails the first time is made up for at the end."""
    tries: list[int] = []

    def undo() -> None:
        tries.append(len(tries))
        if len(tries) == 1:
            raise StoppedError

    with pytest.raises(StoppedError), as_found(None), undoing(undo):
        pass
    assert tries == [0, 1]
    with as_found(None), undoing(undo):
        pass
    assert tries == [0, 1, 2]


@pytest.mark.parametrize("times", [1, 2])
def test_what_fails_to_be_undone_keeps_nothing_else_from_it(times: int) -> None:
    """What was changed last is undone first, and modes are put back whatever becomes of it."""
    model = it.load("toy:induction").train()
    found: list[str] = []

    def undo(name: str) -> None:
        found.append(name)
        if found.count(name) <= times:
            raise StoppedError

    def change() -> None:
        with undoing(lambda: undo("outer")), undoing(lambda: undo("inner")):
            model.blocks[0].eval()

    with pytest.raises(StoppedError), as_found(model):
        change()
    assert found == ["inner", "outer", "inner", "outer"]
    assert all(module.training for module in model.modules())


def test_gradients_that_are_added_to_meanwhile_are_the_users_again() -> None:
    layer = nn.Linear(2, 2)
    layer.weight.grad = torch.zeros(2, 2)
    with as_found(layer):
        layer(torch.ones(1, 2)).sum().backward()
    assert layer.weight.grad.sum() == 0
    assert layer.bias.grad is None


def test_a_scripted_module_and_a_wrapper_are_in_eval_mode() -> None:
    class Wrapper:
        """No module, and has one's."""

        def __init__(self, inner: nn.Module) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch would have one compile; there are such models
        dropping = nn.Sequential(torch.jit.script(nn.Dropout(0.5)))
    for model in (dropping, Wrapper(dropping)):
        with as_found(model):
            assert dropping(torch.ones(1_000)).sum() == 1_000
        assert dropping(torch.ones(1_000)).sum() != 1_000
        assert dropping[0].training


def test_pytorchs_settings_are_put_back_whoever_changed_them() -> None:
    model = it.load("toy:induction")
    before = state_of(model)
    with as_found(model):
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        torch.set_autocast_enabled("cpu", True)
        torch.set_num_threads(torch.get_num_threads() + 1)
    assert state_of(model) == before


def test_ctrl_c_at_any_moment_leaves_pytorch_as_it_was() -> None:
    """At every call of a guard around nothing, under all that it sets aside."""
    model = it.load("toy:induction").train()

    def guarded() -> None:
        with as_found(model), undoing(lambda: None):
            pass

    with default_dtype(model), default_device(model), torch.autocast("cpu", torch.bfloat16):
        with interrupted_at(None) as calls:
            guarded()
        before = [*state_of(model), notes()]
        stopped = 0
        for call in range(1, calls[0]):
            try:
                with interrupted_at(call):
                    guarded()
            except KeyboardInterrupt:
                stopped += 1
            assert [*state_of(model), notes()] == before, f"Ctrl-C at call {call} of {calls[0]}"
    assert stopped > calls[0] // 2


def test_ctrl_c_waits_for_what_is_put_back() -> None:
    model = it.load("toy:induction")
    before = state_of(model)
    done: list[str] = []

    def undo() -> None:
        signal.raise_signal(signal.SIGINT)
        done.append("all of it")

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), as_found(model), undoing(undo):
        model.train()
    assert done == ["all of it"]
    assert state_of(model) == before
    assert signal.getsignal(signal.SIGINT) is handler


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


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", ["xor", "heads", "collapse"])
def test_ctrl_c_at_any_moment_leaves_the_model_as_it_was(zoo, kind, name) -> None:
    model = zoo(kind).train()
    analysed(model, name)  # what is made once is there
    with interrupted_at(None) as calls:
        analysed(model, name)
    rng = random.Random(f"{kind} {name}")
    before = state_of(model)
    stopped = 0
    for call in sorted(rng.sample(range(1, calls[0]), 5)):
        try:
            with interrupted_at(call):
                analysed(model, name)
        except KeyboardInterrupt:
            stopped += 1
        assert state_of(model) == before, f"Ctrl-C at call {call} of {calls[0]}"
    assert stopped >= 3  # one may come where PyTorch waits for its end
    model.eval()


def test_shuffled_weights_are_put_back_after_ctrl_c() -> None:
    model = it.load("toy:induction")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def interrupt() -> None:
        assert any(not torch.equal(before[name], t) for name, t in model.state_dict().items())
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), reinitialised(model, 3):
        interrupt()
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())
