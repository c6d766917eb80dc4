"""State dicts as training leaves them: wrappers' words in names, bundles, other numbers."""

import pytest
import torch

from interp_toolkit import InputError, load
from interp_toolkit.models.about.record import record_of
from tests.models.loading.test_state_dict import ATTENTION_ONLY, random_model, tokens

NAMES = {
    "DDP over compile": lambda n: f"module._orig_mod.{n}",
    "compile of each block": lambda n: n.replace("blocks.0.", "blocks.0._orig_mod."),
    "compile of each attention": lambda n: n.replace("attn.", "_orig_mod.attn."),
    "checkpointing": lambda n: n.replace("blocks.0.", "blocks.0._checkpoint_wrapped_module."),
    "FSDP": lambda n: (
        "_fsdp_wrapped_module." + n.replace("blocks.0.", "blocks.0._fsdp_wrapped_module.")
    ),
    "an attribute": lambda n: f"net.{n}",
    "several": lambda n: f"ema_model.module.student.{n}",
    "PEFT, merged": lambda n: f"base_model.model.{n}",
}


@pytest.fixture
def model():
    return random_model(**ATTENTION_ONLY)


def saved(path, content):
    torch.save(content, path / "model.pt")
    return path / "model.pt"


def same(loaded, model):
    return torch.equal(loaded(tokens(model)), model(tokens(model)))


@pytest.mark.parametrize("name", NAMES)
def test_words_of_wrappers_in_names_change_nothing(tmp_path, model, name):
    state = {NAMES[name](n): t for n, t in model.state_dict().items()}
    assert same(load(saved(tmp_path, state)), model)


def test_a_tensor_beside_prefixed_names_is_named_and_can_be_ignored(tmp_path, model):
    state = {f"model.{n}": t for n, t in model.state_dict().items()}
    path = saved(tmp_path, {"state_dict": {**state, "train_acc.correct": torch.tensor(3)}})
    with pytest.raises(InputError, match=r"train_acc\.correct"):
        load(path)
    assert same(load(path, ignore=["train_acc.*"]), model)


def test_two_models_in_one_state_dict_are_asked_about(tmp_path, model):
    other = {f"ema.{n}": 2 * t for n, t in model.state_dict().items()}
    path = saved(tmp_path, {f"net.{n}": t for n, t in model.state_dict().items()} | other)
    with pytest.raises(InputError, match=r"under ema\. and net\.: .*--ignore 'net\.\*'"):
        load(path)
    assert same(load(path, ignore=["ema.*"]), model)


def with_mask(state):
    weight = state.pop("blocks.0.attn.W_O")
    return state | {"blocks.0.attn.W_O_orig": weight, "blocks.0.attn.W_O_mask": weight > 0}


def with_norm(state):
    name = "blocks.0.attn.parametrizations.W_O.original"
    weight = state.pop("blocks.0.attn.W_O")
    return state | {f"{name}0": weight.norm(dim=0, keepdim=True), f"{name}1": weight}


def changed(kind):
    return lambda state: state | {"embed.W_E": kind(state["embed.W_E"])}


META = {"tok_embeddings.weight": (20, 8), "output.weight": (20, 8), "norm.weight": (8,)}
META |= {f"layers.0.attention.w{part}.weight": (8, 8) for part in "qkvo"}
UNREADABLE = {
    "torch.nn.utils.prune": (with_mask, "no use for .*W_O_orig, .*W_O_mask|weights of bool"),
    "weight_norm": (with_norm, r"lacks blocks\.0\.attn\.W_O; .*parametrizations"),
    "complex": (changed(lambda t: t.to(torch.complex64)), "embed.W_E is complex"),
    "sparse": (changed(torch.Tensor.to_sparse), "embed.W_E is sparse"),
    "without values": (changed(lambda t: t.to("meta")), "on the meta device"),
    "Meta's names": (
        lambda state: {name: torch.randn(size) for name, size in META.items()},
        r"unknown names: tok_embeddings\.weight.*--keys",
    ),
    "DeepSpeed ZeRO-3": (lambda state: {"module": {}, "ds_config": {}}, "holds no state dict"),
    "an optimizer": (lambda state: {"state": {}, "param_groups": []}, "holds no state dict"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_no_plain_state_dict_is_refused_with_the_reason(tmp_path, model, name):
    make, words = UNREADABLE[name]
    with pytest.raises(InputError, match=words) as refused:
        load(saved(tmp_path, make(dict(model.state_dict()))))
    assert len(str(refused.value).removeprefix(str(tmp_path))) <= 300


TEXTS = {
    "a sign-in page.pt": (b"<!DOCTYPE html><title>Sign in</title>", "is a text file, not a model"),
    "pointer.pt": (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
    "model.onnx": (b"\x08\x0a\x12\x07pytorch\x1a\x05\xff\xfe2.0", "not a model"),
    "tf_model.h5": (b"\x89HDF\r\n\x1a\n" + bytes(64), "of no known format, not a model"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_of_another_kind_is_refused_by_what_it_is(tmp_path, name):
    content, words = TEXTS[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=words):
        load(tmp_path / name)


def test_names_that_become_one_are_refused(tmp_path, model):
    state = model.state_dict()
    path = saved(tmp_path, {**state, "module.embed.W_E": state["embed.W_E"]})
    with pytest.raises(InputError, match=r"embed\.W_E twice"):
        load(path)


@pytest.mark.parametrize("key", ["model", "module", "net", "params", "state_dict", "generator"])
def test_a_bundle_of_training_gives_its_model(tmp_path, model, key):
    moments = {"state": {0: {"exp_avg": torch.ones(3)}}, "param_groups": []}
    bundle = {"optimizer": moments, key: model.state_dict(), "step": 7, "loss": torch.tensor(1.0)}
    assert same(load(saved(tmp_path, bundle)), model)


def test_averaged_weights_beside_a_model_are_reported_and_can_be_chosen(tmp_path, model, texts):
    average = {name: 0.5 * tensor for name, tensor in model.state_dict().items()}
    path = saved(tmp_path, {"model": model.state_dict(), "ema": average, "epoch": 3})
    loaded = load(path)
    assert same(loaded, model)
    texts(record_of(loaded).assumptions)
    assert not same(load(path, ignore=["model"]), model)


def test_several_state_dicts_are_asked_about(tmp_path, model):
    steps = {0: model.state_dict(), 100: model.state_dict()}
    path = saved(tmp_path, steps)
    with pytest.raises(InputError, match=r"holds 2 state dicts, 0, 100: .*--ignore '0'"):
        load(path)
    assert same(load(path, ignore=["0"]), model)


def test_a_bundle_without_a_model_lists_its_keys(tmp_path, texts):
    with pytest.raises(InputError, check=texts):
        load(saved(tmp_path, {"epoch": 3, "optimizer": {"state": {}}}))


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.int64])
def test_whole_numbers_are_no_weights(tmp_path, model, dtype):
    state = model.state_dict()
    state["blocks.0.attn.W_O"] = (100 * state["blocks.0.attn.W_O"]).to(dtype)
    kind = str(dtype).removeprefix("torch.")
    for content in (
        state,
        {"cfg": dict(model.cfg) | {"dtype": torch.float32}, "state_dict": state},
    ):
        with pytest.raises(InputError, match=rf"weights of {kind}: blocks\.0\.attn\.W_O"):
            load(saved(tmp_path, content))


def test_numbers_of_eight_bits_are_no_weights(tmp_path, model):
    state = model.state_dict()
    state["embed.W_E"] = state["embed.W_E"].to(torch.float8_e4m3fn)
    with pytest.raises(InputError, match=r"embed\.W_E is float8_e4m3fn, .*scales"):
        load(saved(tmp_path, state))


def test_linear_layers_under_our_names_are_not_taken_for_a_bridge(tmp_path):
    state = {"embed.weight": torch.randn(12, 8), "unembed.weight": torch.randn(12, 8)}
    state |= {f"blocks.0.attn.W_{part}.weight": torch.randn(8, 8) for part in "QKVO"}
    with pytest.raises(InputError, match=r"unknown names.*--keys"):
        load(saved(tmp_path, state))


def test_shared_keys_without_a_number_of_heads_ask_for_it(tmp_path, texts):
    state = {"embed.weight": torch.randn(20, 32), "unembed.weight": torch.randn(20, 32)}
    for part, rows in {"q": 32, "k": 16, "v": 16}.items():
        state[f"blocks.0.attn.{part}.weight"] = torch.randn(rows, 32)
    state["blocks.0.attn.o.weight"] = torch.randn(32, 32)
    given = {"positional_embedding_type": "none"}
    with pytest.raises(InputError, check=texts) as refused:
        load(saved(tmp_path, state), **given)
    assert "head size" not in str(refused.value)
    loaded = load(saved(tmp_path, state), n_heads=4, **given)
    assert (loaded.cfg.n_heads, loaded.cfg.n_key_value_heads, loaded.cfg.d_head) == (4, 2, 8)
