"""How large a model is told before it is loaded, and refused where it cannot fit."""

import pytest
import torch
import transformers
from huggingface_files import save_quietly

from interp_toolkit import InputError, load
from interp_toolkit.models.loading import memory_needed
from interp_toolkit.models.loading.memory_needed import announce, machine_memory, size_in_words


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


def test_a_folder_that_does_not_fit_is_refused(folder, monkeypatch):
    path, _ = folder
    monkeypatch.setattr(memory_needed, "machine_memory", lambda: 1000)
    with pytest.raises(InputError, match=r"this machine has 0.0 GiB of memory"):
        load(path)
