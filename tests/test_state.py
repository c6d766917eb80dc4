"""A live model in any state: the plain model's verdict, and all as it was afterwards."""

from __future__ import annotations

import copy
import functools
import random
import signal
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import tiny_models
import torch
from live_models import (
    SITUATIONS,
    StoppedError,
    default_device,
    default_dtype,
    interrupted_at,
    rows,
    state_of,
    state_of_modules,
)
from torch import nn

import interp_toolkit as it
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.interventions import reinitialised
from interp_toolkit.state import notes, once, preserve_state, undoing

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


@pytest.fixture(autouse=True)
def _ctrl_c_is_heeded():
    """Also where the tests are started in the background, in which shells have it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@functools.cache  # what is made outside an analysis draws: beartype checks entries at random
def given_rows() -> FeatureData:
    return rows()


def options_of(name: str) -> dict:
    return ANALYSES[name] | ({"data": given_rows()} if "data" in ANALYSES[name] else {})


def analysed(model: nn.Module, name: str) -> dict:
    found = it.analyze(model, name, **options_of(name)).to_dict()
    del found["provenance"]
    return found


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


@pytest.mark.parametrize("how", ["wrapper", "in place", "block"])
@pytest.mark.parametrize("kind", ["own", "hooked"])
def test_a_compiled_model_is_looked_at_as_it_was_written(zoo, plain, kind, how) -> None:
    """The backend fails where anything is compiled at all."""
    model = copy.deepcopy(zoo(kind)).eval()

    def backend(*given: object) -> object:
        raise StoppedError

    given = model
    if how == "wrapper":
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
            given(torch.as_tensor(given_rows().token_matrix()[:1]))


@pytest.mark.parametrize("situation", SAID)
def test_what_was_set_aside_is_said(zoo, situation) -> None:
    model = zoo("gpt2")
    with SITUATIONS[situation](model):
        result = it.analyze(model, "qk", layer=0, head=1)
    assert result.provenance.model["set_aside"] == [SAID[situation]]
    assert "set_aside" not in it.analyze(model, "qk", layer=0, head=1).provenance.model


def test_weights_made_in_inference_mode_are_refused_in_a_line(texts) -> None:
    with torch.inference_mode():
        model = it.load("toy:xor-2head")
    for call in (
        lambda: it.analyze(model, "xor"),
        lambda: it.audit(model, "L0H0 is an induction head"),
    ):
        with pytest.raises(InputError, match=r"torch\.inference_mode", check=texts) as e:
            call()
        assert "\n" not in str(e.value)


@pytest.mark.parametrize("kind", MODELS)
def test_weights_without_values_are_refused_in_a_line(kind, texts) -> None:
    model = tiny_models.KINDS[kind]().to("meta")
    calls = [
        *(functools.partial(it.analyze, model, name, **options_of(name)) for name in ANALYSES),
        lambda: it.audit(model, "L0H0 is an induction head"),
        lambda: it.doctor(model),
    ]
    for call in calls:
        with pytest.raises(InputError, match="PyTorch's", check=texts) as refused:
            call()
        assert "\n" not in str(refused.value)


def test_a_test_of_a_model_runs_once_per_model_in_an_analysis_and_never_outlives_it() -> None:
    one, other, tested = nn.Linear(2, 2), nn.Linear(2, 2), []

    @once
    def width(model: nn.Linear) -> int | None:
        tested.append(model)
        return model.out_features if model is one else None

    with preserve_state(one):
        assert [width(one), width(other), width(one), width(other)] == [2, None, 2, None]
        assert tested == [one, other]
        with preserve_state(other):
            assert width(one) == 2
        assert len(tested) == 3
        assert width(one) == 2
        assert len(tested) == 3
    one.out_features = 3
    assert [width(one), width(one)] == [3, 3]
    assert len(tested) == 5


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

    with pytest.raises(StoppedError), preserve_state(model):
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

    with pytest.raises(StoppedError), preserve_state(None), undoing(undo):
        pass
    assert tries == [0, 1]
    with preserve_state(None), undoing(undo):
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

    with pytest.raises(StoppedError), preserve_state(model):
        change()
    assert found == ["inner", "outer", "inner", "outer"]
    assert all(module.training for module in model.modules())


def test_gradients_that_are_added_to_meanwhile_are_the_users_again() -> None:
    layer = nn.Linear(2, 2)
    layer.weight.grad = torch.zeros(2, 2)
    with preserve_state(layer):
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
    ones = torch.ones(1_000)
    for model in (dropping, Wrapper(dropping)):
        with preserve_state(model):
            assert torch.equal(dropping(ones), ones)
        assert not torch.equal(dropping(ones), ones)  # their sums may be the same by chance
        assert dropping[0].training


def test_pytorchs_settings_are_put_back_whoever_changed_them() -> None:
    model = it.load("toy:induction")
    before = state_of(model)
    with preserve_state(model):
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        torch.set_autocast_enabled("cpu", True)
        torch.set_num_threads(torch.get_num_threads() + 1)
    assert state_of(model) == before


def test_ctrl_c_at_any_moment_leaves_pytorch_as_it_was() -> None:
    """At every call of a guard around nothing, under all that it sets aside."""
    model = it.load("toy:induction").train()

    def guarded() -> None:
        with preserve_state(model), undoing(lambda: None):
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
    with pytest.raises(KeyboardInterrupt), preserve_state(model), undoing(undo):
        model.train()
    assert done == ["all of it"]
    assert state_of(model) == before
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.slow
# where Python clears things away it lets no Ctrl-C through, and says so
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
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


def test_analyses_in_several_threads_are_each_what_they_are_alone() -> None:
    """They share the model, whose hooks and modes they would change under each other."""
    model = it.load("toy:induction-trained").train()
    names = ["heads", "qk", "composition", "collapse"] * 2
    alone = {name: it.analyze(model, name).to_dict() for name in names[:4]}
    before = state_of_modules(model)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda name: it.analyze(model, name).to_dict(), names))
    for name, one in zip(names, found, strict=True):
        assert one["verdict"] == alone[name]["verdict"]
        assert one["evidence"] == alone[name]["evidence"]
    assert state_of_modules(model) == before
