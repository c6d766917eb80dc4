"""Pickles are read as data: tensors and attributes come out, and nothing in them is run."""

import builtins
import collections
import io
import os
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch

from interp_toolkit import InputError, load
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.loading.formats.pickled_files import read_as_data
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

CFG = TransformerConfig(
    n_layers=2, d_model=8, n_ctx=6, d_head=4, n_heads=2, d_vocab=5, attn_only=True, seed=0
)
TOKENS = torch.tensor([[0, 1, 2, 3, 4, 0], [4, 4, 3, 2, 1, 0]])
WRITERS = {
    "archive": lambda data, path: torch.save(data, path),
    "older file": lambda data, path: torch.save(data, path, _use_new_zipfile_serialization=False),
    "protocol 2": lambda data, path: path.write_bytes(pickle.dumps(data, 2)),
    "protocol 4": lambda data, path: path.write_bytes(pickle.dumps(data, 4)),
    "protocol 5": lambda data, path: path.write_bytes(pickle.dumps(data, 5)),
}


class Settings:
    """A configuration class of somebody's."""

    def __init__(self, **fields):
        vars(self).update(fields)


class Slotted:
    """One with slots."""

    __slots__ = ("depth",)


class Munch(dict):
    """A dictionary with another name."""


class Calls:
    """A pickle of this calls a function, and sets the state of what it gives."""

    def __init__(self, function, *arguments, state=None):
        self.called = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self):
        return self.called


@pytest.mark.parametrize("writer", WRITERS)
def test_a_state_dict_in_any_pickle(tmp_path, writer):
    model = Transformer(CFG)
    WRITERS[writer](model.state_dict(), tmp_path / "model.pkl")
    assert torch.equal(load(tmp_path / "model.pkl")(TOKENS), model(TOKENS))


@pytest.mark.parametrize("writer", WRITERS)
def test_a_configuration_object_beside_the_weights(tmp_path, writer):
    model = Transformer(CFG.model_copy(update={"attention_dir": "bidirectional"}))
    fields = dict(model.cfg) | {"attn_scale": np.float64(2.0), "device": torch.device("cpu")}
    saved = {"config": Settings(**fields), "model": model.state_dict(), "losses": np.ones(3)}
    WRITERS[writer](saved, tmp_path / "model.pkl")
    loaded = load(tmp_path / "model.pkl")
    assert torch.equal(loaded(TOKENS), model(TOKENS))
    assert not any("attention_dir" in phrase for phrase in record_of(loaded).assumptions)


@pytest.mark.parametrize("writer", WRITERS)
def test_what_was_pickled_comes_back_as_plain_data(tmp_path, writer):
    slotted = Slotted()
    slotted.depth = 3
    shared = torch.arange(6.0).view(2, 3)
    data = {
        "settings": Settings(lr=0.1, act=torch.nn.functional.relu, kind=Settings),
        "slotted": slotted,
        "munch": Munch(a=1),
        "turned": shared.T,
        "row": shared[1],
        "half": torch.ones(2, dtype=torch.bfloat16),
        "none": torch.zeros(0, 4),
        "numbers": (np.int64(3), np.float32(0.5), np.bool_(True), {1, 2}, 2 + 1j, b"ab"),
        "default": collections.defaultdict(list, x=[1]),
        "count": collections.Counter("aab"),
    }
    data["itself"] = data["settings"].me = data["settings"]
    WRITERS[writer](data, tmp_path / "data.pkl")
    found = read_as_data(tmp_path / "data.pkl")
    assert found["settings"]["lr"] == 0.1
    assert found["settings"]["act"].endswith(".relu")
    assert found["settings"]["kind"].endswith(".Settings")
    assert found["settings"]["me"] is None
    assert found["slotted"] == {"depth": 3}
    assert found["munch"] == {"a": 1}
    assert torch.equal(found["turned"], shared.T)
    assert torch.equal(found["row"], shared[1])
    assert torch.equal(found["half"], data["half"])
    assert found["none"].shape == (0, 4)
    assert found["numbers"] == [3, 0.5, True, {1, 2}, 2 + 1j, b"ab"]
    assert found["default"] == {"x": [1]}
    assert found["count"] == {"a": 2, "b": 1}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(
    "bomb",
    [
        Calls(os.system, "true"),
        Calls(builtins.eval, "1"),
        Calls(builtins.getattr, {}, "pop"),
        Calls(subprocess.Popen, ["true"]),
        Calls(torch.load, "x.pt"),
        Calls(torch.hub.load, "x"),
        Calls(Settings),
        Calls(pickle.loads, b"N."),
    ],
    ids=["system", "eval", "getattr", "Popen", "torch.load", "torch.hub", "class", "loads"],
)
def test_every_other_call_is_refused_in_one_line(tmp_path, writer, bomb, texts):
    for data in (bomb, {"cfg": bomb, "state_dict": Transformer(CFG).state_dict()}):
        WRITERS[writer](data, tmp_path / "model.pkl")
        with pytest.raises(InputError, check=texts) as caught:
            load(tmp_path / "model.pkl")
        assert "\n" not in str(caught.value)
        assert bomb.called[0].__name__ in str(caught.value)


def test_no_module_is_imported_on_a_pickles_word(tmp_path):
    (tmp_path / "strangers_code.py").write_text("raise SystemExit('imported')\n")
    content = b"\x80\x02cstrangers_code\nConfig\n)\x81}X\x01\x00\x00\x00aK\x01sb."
    (tmp_path / "model.pkl").write_bytes(content)
    sys.path.insert(0, str(tmp_path))
    try:
        assert read_as_data(tmp_path / "model.pkl") == {"a": 1}
    finally:
        sys.path.remove(str(tmp_path))
    assert "strangers_code" not in sys.modules


def test_no_part_of_torch_is_imported_on_a_pickles_word(tmp_path, monkeypatch):
    asked = []

    def lazily(name):  # how torch imports torch._dynamo and others once they are named
        asked.append(name)
        raise AttributeError(name)

    monkeypatch.setattr(torch, "__getattr__", lazily)
    content = b"\x80\x02}(X\x01\x00\x00\x00actorch\n_of_later\nX\x01\x00\x00\x00bctorch\nhalf\nu."
    (tmp_path / "model.pkl").write_bytes(content)
    assert read_as_data(tmp_path / "model.pkl") == {"a": "torch._of_later", "b": torch.half}
    assert not asked


@pytest.mark.parametrize("inner", [b"not a file", pickle.dumps(Calls(os.system, "true"), 2)])
def test_the_bytes_of_a_storage_are_read_without_running_them_too(tmp_path, inner):
    data = {"w": Calls(torch.storage._load_from_bytes, inner)}
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(data))
    with pytest.raises(InputError, match="truncated or damaged"):
        load(tmp_path / "model.pkl")


def test_the_bytes_of_a_storage_are_no_archive(tmp_path, texts):
    content = io.BytesIO()  # a compressed one could be of any size
    torch.save(torch.zeros(4)._typed_storage(), content, _use_new_zipfile_serialization=True)
    data = {"w": Calls(torch.storage._load_from_bytes, content.getvalue())}
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(data))
    with pytest.raises(InputError, check=texts):
        load(tmp_path / "model.pkl")


def test_a_tensor_larger_than_its_storage_is_damage(tmp_path):
    storage = torch.zeros(4)._typed_storage()
    for size, stride, offset in (((5,), (1,), 0), ((4,), (1,), 1), ((2,), (-1,), 3)):
        rebuild = torch._utils._rebuild_tensor_v2
        call = Calls(rebuild, storage, offset, size, stride, False, collections.OrderedDict())
        (tmp_path / "model.pkl").write_bytes(pickle.dumps({"w": call}))
        with pytest.raises(InputError, match="truncated or damaged"):
            load(tmp_path / "model.pkl")


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("kind", ["tensor", "parameter", "storage"])
def test_the_state_of_a_tensor_is_no_pickles_to_set(tmp_path, writer, kind):
    storage = torch.zeros(2)._typed_storage()
    rebuild = torch._utils._rebuild_tensor_v2
    arguments = storage, 0, (2,), (1,), False, collections.OrderedDict()
    grown = storage, 0, (1_000_000,), (1,)  # numbers that nobody wrote
    if kind == "tensor":
        call = Calls(rebuild, *arguments, state=grown)
    elif kind == "parameter":
        inner = Calls(rebuild, *arguments)
        call = Calls(torch._utils._rebuild_parameter, inner, False, {}, state=grown)
    else:
        content = io.BytesIO()
        torch.save(storage, content, _use_new_zipfile_serialization=False)
        call = Calls(torch.storage._load_from_bytes, content.getvalue(), state=grown)
    WRITERS[writer]({"w": call}, tmp_path / "model.pkl")
    with pytest.raises(InputError, match="truncated or damaged") as caught:
        load(tmp_path / "model.pkl")
    assert "\n" not in str(caught.value)
    with pytest.raises(pickle.UnpicklingError, match="cannot be set"):
        read_as_data(tmp_path / "model.pkl")


@pytest.mark.parametrize("writer", WRITERS)
def test_tensors_that_claim_far_more_than_the_file_holds(tmp_path, writer, texts):
    one = torch.zeros(1)
    for data in (
        {"w": one.expand(1 << 20, 1 << 20)},
        {"more": [{f"w{i}": one.expand(1 << 20) for i in range(300)}], "cfg": Settings()},
    ):
        WRITERS[writer](data, tmp_path / "model.pkl")
        with pytest.raises(InputError, match=r"4\.1e\+03 GiB|1\.17 GiB") as caught:
            load(tmp_path / "model.pkl")
        texts(caught, numbers=False)  # a pickle's size varies
        assert "\n" not in str(caught.value)


def deflated(path) -> None:
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


def test_a_compressed_archive_has_the_same_numbers(tmp_path):
    model = Transformer(CFG)
    for data in (model.state_dict(), {"model": model.state_dict(), "cfg": Settings()}):
        torch.save(data, tmp_path / "model.pt")
        deflated(tmp_path / "model.pt")
        assert torch.equal(load(tmp_path / "model.pt")(TOKENS), model(TOKENS))


def test_a_compressed_archive_that_claims_too_much(tmp_path, monkeypatch, texts):
    path = tmp_path / "model.pt"
    torch.save({"w": torch.zeros(1 << 20)}, path)
    deflated(path)
    monkeypatch.setattr("interp_toolkit.files.ALWAYS_FINE", 1 << 20)
    with pytest.raises(InputError, match="GiB", check=texts) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_storages_larger_together_than_an_older_file_are_damage(tmp_path, texts):
    storages = [torch.zeros(1000)._typed_storage() for _ in range(9)]
    torch.save(storages, tmp_path / "model.pt", _use_new_zipfile_serialization=False)
    content = (tmp_path / "model.pt").read_bytes()
    (tmp_path / "model.pt").write_bytes(content[: len(content) // 2])
    with pytest.raises(pickle.UnpicklingError, check=texts):
        read_as_data(tmp_path / "model.pt")


def test_deep_and_wide_nesting_ends(tmp_path, texts):
    deep = []
    for _ in range(60):
        deep = [deep, deep]  # 2^60 lists if they were told apart
    (tmp_path / "model.pkl").write_bytes(pickle.dumps({"more": deep}))
    with pytest.raises(InputError, check=texts):
        load(tmp_path / "model.pkl")


def test_modules_that_share_their_parts_at_every_level_end(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "interp_toolkit.models.loading.formats.records._LETTERS", 100_000
    )  # for speed
    net = torch.nn.Linear(2, 2)
    for _ in range(40):
        net = torch.nn.Sequential(net, net)  # 2^40 names in a state dict
    for data in (net, [net[0], net[1]], {"model": net}):
        torch.save(data, tmp_path / "model.pkl")
        with pytest.raises(InputError, match="modules share parts") as caught:
            load(tmp_path / "model.pkl")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_shared_module_has_every_name_that_its_state_dict_gives_it(tmp_path, writer):
    net = torch.nn.Linear(2, 2)
    for _ in range(3):
        net = torch.nn.Sequential(net, torch.nn.ReLU(), net)
    WRITERS[writer](net, tmp_path / "model.pkl")
    found = read_as_data(tmp_path / "model.pkl")["state_dict"]
    assert list(found) == list(net.state_dict())
    assert all(torch.equal(found[name], tensor) for name, tensor in net.state_dict().items())
