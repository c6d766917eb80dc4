"""What is saved is read back bit for bit, with its configuration and records."""

import json
import os

import pytest
import torch
from safetensors import safe_open

from interp_toolkit import InputError, load, save
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

TASK = {"name": "xor", "function": "0110", "tokens": {"0": 0, "1": 1, "query": 2}}
TRAINING = {"steps": 1500, "loss": 0.1 + 0.2, "curve": [1.0, 1e-300]}


def random_model(dtype=torch.float32, **options):
    cfg = {
        "n_layers": 2,
        "d_model": 8,
        "n_ctx": 6,
        "d_head": 4,
        "n_heads": 2,
        "d_vocab": 5,
        "d_mlp": 3,
        "act_fn": "gelu",
        "eps": 1e-7,
        "attention_dir": "bidirectional",
        "attn_scale": 1.7,
        "seed": 3,
    }
    return Transformer(TransformerConfig(**{**cfg, **options}, dtype=dtype)).eval()


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_round_trip_is_exact(tmp_path, suffix, dtype):
    model, path = random_model(dtype), tmp_path / f"model{suffix}"
    save(model, path, task=TASK, training=TRAINING)
    loaded = load(path)
    assert loaded.cfg == model.cfg
    for (name, ours), (other, theirs) in zip(
        loaded.state_dict().items(), model.state_dict().items(), strict=True
    ):
        assert name == other
        assert ours.dtype == dtype
        assert torch.equal(ours.view(torch.uint8), theirs.view(torch.uint8))
    record = record_of(loaded)
    assert record.kind == "checkpoint"
    assert record.task == TASK
    assert record.training == TRAINING
    assert record.assumptions == ()
    assert record.path == str(path)


@pytest.mark.parametrize(
    "options",
    [
        {"positional_embedding_type": "rotary", "rotary_base": 77.5, "rotary_adjacent_pairs": True},
        {"normalization_type": None, "attn_only": True, "d_mlp": None, "act_fn": None},
        {"n_heads": 4, "n_key_value_heads": 2, "biases": False},
        {"use_attn_scale": False, "attn_scale": -1.0},
        {"output_logits_soft_cap": 3.0, "attn_scores_soft_cap": 5.0, "final_rms": True},
    ],
)
def test_every_option_survives(tmp_path, options):
    model = random_model(**options)
    save(model, tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    tokens = torch.tensor([[0, 1, 2, 3, 4, 0]])
    assert loaded.cfg == model.cfg
    assert torch.equal(loaded(tokens), model(tokens))


def test_a_saved_file_holds_only_tensors_and_plain_data(tmp_path):
    model = random_model()
    save(model, tmp_path / "model.pt", task=TASK)
    saved = torch.load(tmp_path / "model.pt", weights_only=True)
    assert saved.keys() == {"format", "config", "task", "training", "state_dict"}
    assert saved["task"] == TASK
    json.dumps({name: value for name, value in saved.items() if name != "state_dict"})
    save(model, tmp_path / "model.safetensors", task=TASK)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert json.loads(file.metadata()["interp_toolkit"])["config"] == saved["config"]
        assert set(file.keys()) == set(saved["state_dict"])


def test_records_are_kept_when_a_loaded_model_is_saved_again(tmp_path):
    save(random_model(), tmp_path / "first.pt", task=TASK, training=TRAINING)
    save(load(tmp_path / "first.pt"), tmp_path / "second.safetensors", training={"steps": 1})
    record = record_of(load(tmp_path / "second.safetensors"))
    assert record.task == TASK
    assert record.training == {"steps": 1}


def test_the_same_model_gives_the_same_hash(tmp_path):
    for name in ("a.safetensors", "b.safetensors"):
        save(random_model(), tmp_path / name, task=TASK)
    hashes = {record_of(load(tmp_path / n)).sha256 for n in ("a.safetensors", "b.safetensors")}
    assert len(hashes) == 1


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, texts):
    path = tmp_path / "model.pt"
    save(random_model(), path)
    before = path.read_bytes()

    def full_disk(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(InputError, check=texts):
        save(random_model(seed=4), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.pt"]


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_link_is_followed_and_others_may_read_what_the_umask_lets_them(tmp_path, suffix):
    path, link = tmp_path / f"model{suffix}", tmp_path / f"latest{suffix}"
    path.touch()
    link.symlink_to(path)
    plain = path.stat().st_mode
    save(random_model(), link)
    assert link.is_symlink()
    assert path.stat().st_mode == plain
    assert load(path).cfg == random_model().cfg


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="this system has no /proc")
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_place_that_takes_no_files_is_one_clear_line(suffix):
    with pytest.raises(InputError, match="cannot be written"):
        save(random_model(), f"/proc/model{suffix}")


def test_what_cannot_be_saved_is_refused(tmp_path, texts):
    model = random_model()
    with pytest.raises(InputError, match="not a Linear"):
        save(torch.nn.Linear(2, 2), tmp_path / "model.pt")
    with pytest.raises(InputError, match=r"must end in \.safetensors or \.pt"):
        save(model, tmp_path / "model.onnx")
    with pytest.raises(InputError, check=texts):
        save(model, tmp_path / "missing" / "model.pt")
    with pytest.raises(InputError, match="JSON", check=texts):
        save(model, tmp_path / "model.pt", task={"tokens": torch.zeros(1)})
    assert not list(tmp_path.iterdir())
