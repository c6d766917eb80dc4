"""What cannot be a model is refused in one line that says what is wrong, and nothing is run."""

import io
import json
import os
import pickle
import struct

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from interp_toolkit import InputError, load, save
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer


@pytest.fixture
def model():
    cfg = TransformerConfig(
        n_layers=2, d_model=8, n_ctx=6, d_head=4, n_heads=2, d_vocab=5, attn_only=True, seed=0
    )
    return Transformer(cfg)


def refusal(path, **settings) -> str:
    with pytest.raises(InputError) as caught:
        load(path, **settings)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


class Touch:
    """A pickle of this touches a file when it is unpickled without care."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


class Plain:
    """A configuration object."""

    def __init__(self, **fields):
        vars(self).update(fields)


WRITERS = {
    "torch archive": lambda data, path: torch.save(data, path),
    "older torch file": lambda data, path: torch.save(
        data, path, _use_new_zipfile_serialization=False
    ),
    "pickle, protocol 2": lambda data, path: path.write_bytes(pickle.dumps(data, 2)),
    "pickle, newest protocol": lambda data, path: path.write_bytes(pickle.dumps(data, 5)),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("place", ["alone", "among the weights", "as a configuration"])
def test_a_pickle_that_runs_code_is_not_run(tmp_path, model, writer, place):
    bomb = Touch(tmp_path / "exploded")
    state = dict(model.state_dict())
    data = {
        "alone": bomb,
        "among the weights": {**state, "more": bomb},
        "as a configuration": {"cfg": bomb, "state_dict": state},
    }[place]
    path = tmp_path / "model.pt"
    WRITERS[writer](data, path)
    message = refusal(path)
    assert "would run code" in message
    assert f"{os.mkdir.__module__}.mkdir" in message
    assert not (tmp_path / "exploded").exists()


def test_a_pickle_of_the_oldest_protocol_is_not_run(tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(pickle.dumps(Touch(tmp_path / "exploded"), 0))
    assert "text file" in refusal(path)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("writer", WRITERS)
def test_a_net_that_is_no_transformer_is_described(tmp_path, writer, texts):
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    for data in (net, net.state_dict()):
        WRITERS[writer](data, tmp_path / "net.pt")
        message = refusal(tmp_path / "net.pt")
        texts(message)
        assert "--keys-template" in message


@pytest.mark.parametrize("kept", [0.2, 0.6, 0.99])
@pytest.mark.parametrize("kind", ["archive", "older", "safetensors"])
def test_truncated_files(tmp_path, model, kind, kept):
    path = tmp_path / "model.pt"
    if kind == "safetensors":
        save_file({n: t.contiguous() for n, t in model.state_dict().items()}, path)
    else:
        torch.save(model.state_dict(), path, _use_new_zipfile_serialization=kind == "archive")
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    assert "truncated or damaged" in refusal(path)


@pytest.mark.parametrize(
    "kind", ["archive", "older", "safetensors", "own archive", "pickle", "whole", "whole, older"]
)
def test_a_flipped_byte_anywhere_is_an_input_error_or_another_number(tmp_path, model, kind):
    path = tmp_path / "model.pt"
    if kind == "safetensors":
        path = tmp_path / "model.safetensors"
    if kind in ("safetensors", "own archive"):
        save(model, path)
    elif kind == "pickle":
        path.write_bytes(pickle.dumps({"cfg": Plain(n_heads=2), "model": model.state_dict()}))
    elif kind.startswith("whole"):
        net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
        torch.save(net, path, _use_new_zipfile_serialization=kind == "whole")
    else:
        torch.save(model.state_dict(), path, _use_new_zipfile_serialization=kind == "archive")
    content = path.read_bytes()
    random = np.random.default_rng(0)
    places = random.choice(len(content), 60, replace=False)
    for place in (*range(12), *places):  # the header, and anywhere
        changed = bytearray(content)
        changed[place] ^= int(random.integers(1, 256))
        path.write_bytes(changed)
        try:
            load(path)
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017 (loading may also succeed)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"epoch,loss\n1,0.5\n",
        "données\n".encode(),
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
        b"\x93NUMPY\x01\x00v\x00{'descr'",
        b"\xff\xd8\xff\xe0 a picture",
        b"\x80\x04.",
        struct.pack("<Q", 40) + b"{}",
    ],
)
def test_files_that_are_something_else(tmp_path, content, texts):
    (tmp_path / "model.pt").write_bytes(content)
    texts(refusal(tmp_path / "model.pt"))


def test_little_of_a_damaged_header_is_echoed(tmp_path):
    header = json.dumps({"a": {"dtype": "x" * 5000, "shape": [2], "data_offsets": [0, 8]}}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    message = refusal(path).removeprefix(str(path))
    assert "truncated or damaged" in message
    assert "x" * 20 in message
    assert "x" * 61 not in message
    assert len(message) <= 300


def test_numpy_archives_with_and_without_pickled_objects(tmp_path):
    np.savez(tmp_path / "objects.npz", a=np.array([Touch(tmp_path / "exploded")], dtype=object))
    np.savez(tmp_path / "numbers.npz", a=np.zeros(3))
    for name in ("objects.npz", "numbers.npz"):
        assert "NumPy archive" in refusal(tmp_path / name)
    assert not (tmp_path / "exploded").exists()


def test_a_zip_of_something_else(tmp_path, texts):
    import zipfile

    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("readme.txt", "hello")
    texts(refusal(tmp_path / "model.pt"))


def test_paths_that_lead_nowhere(tmp_path, texts):
    assert "does not exist" in refusal(tmp_path / "missing.pt")
    os.mkfifo(tmp_path / "pipe.pt")
    texts(refusal(tmp_path / "pipe.pt"))
    (tmp_path / "loop.pt").symlink_to(tmp_path / "loop.pt")
    assert "a broken link" in refusal(tmp_path / "loop.pt")
    (tmp_path / "dangling.pt").symlink_to(tmp_path / "missing.pt")
    assert "a broken link" in refusal(tmp_path / "dangling.pt")


def test_names_that_are_no_paths():
    with pytest.raises(InputError, match="name is empty"):
        load("")
    with pytest.raises(InputError, match="cannot be read"):
        load("~nobody-of-this-name/model.pt")
    with pytest.raises(InputError, match=r"cannot be read: .*too long") as error:
        load("x" * 5000)
    assert len(str(error.value)) < 6000


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root reads every file")
def test_a_file_without_permission(tmp_path):
    (tmp_path / "model.pt").write_bytes(b"x")
    (tmp_path / "model.pt").chmod(0)
    assert "cannot be read" in refusal(tmp_path / "model.pt")


@pytest.mark.parametrize(
    "data",
    [
        [torch.zeros(2)],
        {},
        {"lr": 0.1},
        {"weight": torch.zeros(2)},
        {"layers.0.attention.q": torch.zeros(2, 2)},
        {"embed.weight": torch.zeros(2, 2)},
        {"transformer.wte.weight": torch.zeros(2, 2)},
        {"model.layers.0.x": torch.zeros(2), "lm_head.weight": torch.zeros(2)},
        torch.zeros(3),
    ],
)
def test_data_that_is_no_state_dict(tmp_path, data, texts):
    torch.save(data, tmp_path / "model.pt")
    texts(refusal(tmp_path / "model.pt"))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4)])
def test_positions_of_another_rank(tmp_path, model, shape):
    torch.save({**model.state_dict(), "pos_embed.W_pos": torch.zeros(shape)}, tmp_path / "model.pt")
    assert "pos_embed.W_pos has shape" in refusal(tmp_path / "model.pt")


@pytest.mark.parametrize("instead", [0.5, "x", [1], torch.zeros(2), None])
def test_our_own_checkpoint_without_a_state_dict(tmp_path, instead, texts):
    path = tmp_path / "model.pt"
    save(load("toy:xor-2head"), path)
    saved = torch.load(path, weights_only=True)
    torch.save(saved | {"state_dict": instead}, path)
    texts(refusal(path))


@pytest.mark.parametrize("listed", [False, True])
def test_a_state_dict_that_holds_itself(tmp_path, listed):
    data = {}
    data["state_dict"] = [data] if listed else data
    torch.save(data, tmp_path / "model.pt")
    assert "its state_dict contains itself" in refusal(tmp_path / "model.pt")
    outer = {"cfg": {}, "model": data}
    data["state_dict"] = outer
    torch.save(outer, tmp_path / "model.pt")
    assert "its state_dict contains itself" in refusal(tmp_path / "model.pt")


# --- tensors that do not fit


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda t: t.to(torch.complex64), "complex"),
        (lambda t: t.to_sparse(), "sparse"),
        (lambda t: t.to("meta"), "without values"),
    ],
)
def test_weights_that_are_no_plain_numbers_are_named(tmp_path, model, change, kind):
    path = tmp_path / "model.pt"
    state = model.state_dict()
    torch.save({**state, "embed.W_E": change(state["embed.W_E"])}, path)
    assert f"embed.W_E is {kind}" in refusal(path)


def test_missing_tensors_are_listed(tmp_path, model):
    state = dict(model.state_dict())
    for name in list(state):
        torch.save({n: t for n, t in state.items() if n != name}, tmp_path / "model.pt")
        message = refusal(tmp_path / "model.pt")
        assert name in message, (name, message)


def test_control_characters_in_names_are_shown_not_obeyed(tmp_path, model, texts):
    torch.save({**model.state_dict(), "a\nb\x1b[31m": torch.zeros(1)}, tmp_path / "model.pt")
    texts(refusal(tmp_path / "model.pt"))


def test_many_missing_tensors_are_counted(tmp_path, model):
    state = {n: t for n, t in model.state_dict().items() if not n.startswith("blocks.1.attn.")}
    torch.save(state, tmp_path / "model.pt")
    message = refusal(tmp_path / "model.pt")
    assert "lacks blocks.1.attn.W_Q, " in message
    assert message.count("blocks.1") == 3
    assert "and 5 more" in message


def test_a_missing_block_is_named(tmp_path, model):
    state = {n.replace("blocks.1.", "blocks.7."): t for n, t in model.state_dict().items()}
    torch.save(state, tmp_path / "model.pt")
    assert "lacks blocks.1 and 5 more" in refusal(tmp_path / "model.pt")


def test_extra_tensors_are_listed(tmp_path, model, texts):
    state = {**model.state_dict(), "blocks.0.attn.sinks": torch.zeros(2), "step": torch.tensor(1)}
    torch.save(state, tmp_path / "model.pt")
    texts(refusal(tmp_path / "model.pt"))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("blocks.0.attn.W_Q", (2, 4, 8)),
        ("blocks.1.attn.b_O", (9,)),
        ("blocks.0.ln1.w", (7,)),
        ("pos_embed.W_pos", (6, 9)),
        ("unembed.b_U", (4,)),
        ("blocks.1.attn.W_V", (3, 8, 4)),
        ("blocks.0.attn.W_O", (64,)),
    ],
)
def test_a_misshapen_tensor_is_the_one_that_is_named(tmp_path, model, name, shape):
    torch.save({**model.state_dict(), name: torch.zeros(shape)}, tmp_path / "model.pt")
    message = refusal(tmp_path / "model.pt")
    expected = list(model.state_dict()[name].shape)
    assert f"has misshapen {name} ({list(shape)}, not {expected})" in message
    assert "more" not in message


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("how", ["bare", "own", "own .pt", "live"])
def test_weights_that_are_not_finite_are_named(tmp_path, model, bad, how, texts):
    model.blocks[1].attn.W_V.data[0, 0, 0] = bad
    if how == "live":
        with pytest.raises(InputError, match=r"blocks\.1\.attn\.W_V", check=texts):
            load(model)
        return
    path = tmp_path / ("model.safetensors" if how == "own" else "model.pt")
    if how == "bare":
        torch.save(model.state_dict(), path)
    else:
        save(model, path)
    texts(refusal(path))


# --- our own files, tampered with


def own_file(model, path, **changes):
    save(model, path)
    saved = torch.load(path, weights_only=True)
    torch.save({**saved, **changes}, path)


def test_own_files_of_another_version_or_with_damaged_parts(tmp_path, model, texts):
    path = tmp_path / "model.pt"
    own_file(model, path, format="interp-toolkit/99")
    assert "has format interp-toolkit/99" in refusal(path)
    own_file(model, path, config={"n_layers": 2})
    texts(refusal(path))
    own_file(model, path, config={**model.cfg.model_dump(mode="json"), "surprise": 1})
    assert "surprise" in refusal(path)
    own_file(model, path, config=None)
    assert "is damaged" in refusal(path)
    own_file(model, path, config={**model.cfg.model_dump(mode="json"), 3: None})
    for record in ("task", "training"):
        own_file(model, path, **{record: "xor"})
    own_file(model, path, config={**model.cfg.model_dump(mode="json"), "n_heads": 4})
    assert "misshapen blocks.0.attn.W_Q" in refusal(path)


def test_own_safetensors_with_damaged_metadata(tmp_path, model, texts):
    tensors = {n: t.contiguous() for n, t in model.state_dict().items()}
    for metadata in ("{", "[]", "3"):
        about = {"interp_toolkit": metadata}
        save_file(tensors, tmp_path / "model.safetensors", metadata=about)
        texts(refusal(tmp_path / "model.safetensors"))


def test_settings_do_not_change_an_own_file(tmp_path, model):
    save(model, tmp_path / "model.pt")
    assert load(tmp_path / "model.pt", n_heads="2").cfg == model.cfg
    assert "n_heads=3 contradicts" in refusal(tmp_path / "model.pt", n_heads="3")


# --- sources that are no file


def test_what_is_no_model_at_all(texts):
    with pytest.raises(InputError, match="TransformerLens", check=texts):
        load(3)
    with pytest.raises(InputError, match="TransformerLens", check=texts):
        load(torch.nn.Linear(2, 2))
    with pytest.raises(InputError, match="TransformerLens", check=texts):
        load(io.BytesIO())


def test_an_unknown_toy_is_named(texts):
    with pytest.raises(InputError, match="'nothing'", check=texts):
        load("toy:nothing")


def test_a_folder_without_a_configuration(tmp_path, texts):
    assert "without a config.json" in refusal(tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert "is not JSON" in refusal(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    texts(refusal(tmp_path))


def test_a_folder_with_remote_code_is_refused(tmp_path):
    config = {"auto_map": {"AutoModelForCausalLM": "modeling.Net"}, "model_type": "net"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "modeling.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'exploded')!r})\n")
    message = refusal(tmp_path)
    assert "--trust-remote-code" in message
    assert not (tmp_path / "exploded").exists()


def test_a_name_the_hub_does_not_have(texts):
    with pytest.raises(InputError, check=texts) as error:
        load("no-such-organisation/no-such-model")
    assert "\n" not in str(error.value)


def test_without_a_connection_only_the_cache_is_searched(monkeypatch):
    from huggingface_hub import constants

    from interp_toolkit.models.loading.formats import huggingface

    said, was_offline = [], []

    def boot(name, **options):
        was_offline.append(constants.HF_HUB_OFFLINE)
        raise OSError("not in the cache")

    monkeypatch.setattr(huggingface, "_hub_answers", lambda: False)
    monkeypatch.setattr(huggingface, "_boot", boot)
    before = constants.HF_HUB_OFFLINE
    with pytest.raises(InputError):
        load("no-such-model", progress=said.append)
    assert was_offline == [True]
    assert constants.HF_HUB_OFFLINE is before
    assert len(said) == 1  # before the search
    assert "no-such-model" in said[0]


def test_where_layers_and_embeddings_disagree_the_more_tensors_are_right(tmp_path, model):
    """Three tensors are 5 wide, four of two layers as wide as the model: the three are named."""
    state = dict(model.state_dict())
    for name, axis in (("embed.W_E", 1), ("pos_embed.W_pos", 1), ("unembed.W_U", 0)):
        state[name] = state[name].narrow(axis, 0, 5)
    torch.save(state, tmp_path / "model.pt")
    message = refusal(tmp_path / "model.pt")
    assert "embed.W_E" in message
    assert "attn.W_" not in message
