"""How large a model is told before it is loaded, and refused where it cannot fit."""

import json
import os

import pytest
import torch
import transformers
from huggingface_files import save_quietly
from safetensors.torch import save_file

from interp_toolkit import InputError, load
from interp_toolkit.files import RECORD, machine_memory
from interp_toolkit.models.loading import memory_needed
from interp_toolkit.models.loading.memory_needed import (
    announce,
    count_parameters,
    size_in_words,
)


@pytest.mark.parametrize(
    ("n_params", "dtype", "words"),
    [
        (134_515_008, torch.float32, "135M parameters, about 0.5 GiB in float32"),
        (7_241_732_096, torch.bfloat16, "7.2B parameters, about 13.5 GiB in bfloat16"),
        (70_000_000_000, torch.float16, "70.0B parameters, about 130.4 GiB in float16"),
        (1_000, torch.float32, "1,000 parameters, about 0.0 MiB in float32"),
    ],
)
def test_sizes_in_words(n_params, dtype, words):
    assert size_in_words(n_params, dtype) == words


def test_what_no_machine_can_hold_is_refused():
    with pytest.raises(InputError, match=r"model has .* parameters, .*; this machine has"):
        announce("model", 10**15, torch.float32, None)


def test_this_machine_says_what_it_has():
    limit = machine_memory()
    assert limit is None or 2**28 < limit < 2**60


@pytest.fixture
def folder(tmp_path):
    config = transformers.LlamaConfig(
        vocab_size=16, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
        num_attention_heads=4, max_position_embeddings=12,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    save_quietly(model, tmp_path / "saved")
    return tmp_path / "saved", sum(p.numel() for p in model.parameters())


def test_a_folder_says_its_size_first(folder):
    path, n_params = folder
    said = []
    load(path, progress=said.append)
    assert said == [size_in_words(n_params, torch.float32)]


@pytest.fixture
def sharded(tmp_path):
    """A folder of two files with six and ten numbers, and their index."""
    names = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    for name, size in zip(names, (6, 10), strict=True):
        save_file({f"w{size}": torch.zeros(size)}, tmp_path / name)
    index = {"weight_map": {"w6": names[0], "w10": names[1]}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    return tmp_path


def test_variants_of_the_weights_are_not_counted(sharded):
    variants = ("model.fp16", "model-fp16", "model.fp16-00001-of-00002", "model-00001-of-00003")
    for name in variants:
        save_file({"v": torch.zeros(100)}, sharded / f"{name}.safetensors")
    assert count_parameters(sharded, torch.float32) == 16
    save_file({"w": torch.zeros(7)}, sharded / "model.safetensors")  # what transformers takes first
    assert count_parameters(sharded, torch.float32) == 7


def test_without_an_index_shards_are_counted_by_their_names(sharded):
    (sharded / "model.safetensors.index.json").unlink()
    save_file({"v": torch.zeros(100)}, sharded / "model.fp16.safetensors")
    assert count_parameters(sharded, torch.float32) == 16


@pytest.mark.parametrize(
    "index", ["{", "[]", '{"weight_map": 3}', '{"weight_map": {"w": "../model.safetensors"}}']
)
def test_an_index_that_says_nothing_is_left_to_the_loading(sharded, index):
    (sharded / "model.safetensors.index.json").write_text(index)
    assert count_parameters(sharded, torch.float32) is None


def test_variants_of_pickles_are_not_counted(tmp_path):
    for name, size in (("pytorch_model.bin", 40), ("pytorch_model.fp16.bin", 400)):
        (tmp_path / name).write_bytes(bytes(size))
    assert count_parameters(tmp_path, torch.float32) == 10
    assert count_parameters(tmp_path / "none", torch.float32) is None


def test_a_folder_that_does_not_fit_is_refused(folder, monkeypatch):
    path, _ = folder
    monkeypatch.setattr(memory_needed, "machine_memory", lambda: 1000)
    with pytest.raises(InputError, match=r"this machine has 0.0 GiB of memory"):
        load(path)


def test_what_is_read_whole_is_small_whatever_else_lies_beside_a_model(folder, texts):
    path, _ = folder
    (path / "rows.json").touch()
    os.truncate(path / "rows.json", RECORD + 1)
    assert load(path).cfg.n_layers == 1
    for name in ("generation_config.json", "merges.txt", "model.safetensors.index.json"):
        (path / name).touch()
        before = (path / name).stat().st_size
        os.truncate(path / name, RECORD + 1)
        with pytest.raises(InputError, check=texts):
            load(path)
        os.truncate(path / name, before)


@pytest.mark.parametrize("layers", [257, 10**6, 2**63])
@pytest.mark.parametrize("pickled", [False, True])
def test_more_layers_than_tensors_are_refused_before_any_is_built(folder, layers, pickled):
    path, _ = folder
    if pickled:
        torch.save({"model.norm.weight": torch.zeros(1)}, path / "pytorch_model.bin")
        (path / "model.safetensors").unlink()
        layers += 10**6  # of a pickle only the bytes are known
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": layers}))
    refusal = f"num_hidden_layers is {layers}, but the folder has at most"
    with pytest.raises(InputError, match=refusal):
        load(path)
