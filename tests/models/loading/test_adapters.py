"""LoRA adapters in Hugging Face folders: merged by peft, or refused; never left out."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from interp_toolkit import InputError, load
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.loading.formats import adapters
from interp_toolkit.testing.families import tiny
from tests.helpers.huggingface_files import save_quietly

SHAPE = {"vocab_size": 16, "n_positions": 12, "n_embd": 16, "n_layer": 2, "n_head": 4}
RANK, ALPHA = 2, 6.0
TOKENS = torch.randint(0, 16, (4, 12), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def base(tmp_path):
    """A random GPT-2 and its folder."""
    generator = torch.Generator().manual_seed(0)
    config = transformers.GPT2Config(**SHAPE, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config).eval()
    for parameter in model.parameters():
        parameter.data = 0.3 * torch.randn(parameter.shape, generator=generator)
    save_quietly(model, tmp_path / "base")
    return tmp_path / "base", model


def add_adapter(folder, base, **changes):
    """A LoRA adapter on the fused projections, as PEFT's files have it; its tensors."""
    generator = torch.Generator().manual_seed(2)
    folder.mkdir(exist_ok=True)
    tensors = {}
    for layer in range(2):
        stem = f"base_model.model.transformer.h.{layer}.attn.c_attn"
        tensors[f"{stem}.lora_A.weight"] = torch.randn(RANK, 16, generator=generator)
        tensors[f"{stem}.lora_B.weight"] = torch.randn(48, RANK, generator=generator)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(base),
        "r": RANK,
        "lora_alpha": ALPHA,
        "target_modules": ["c_attn"],
        "fan_in_fan_out": True,
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config | changes))
    save_file(tensors, folder / "adapter_model.safetensors")
    return tensors


def with_adapter(model, tensors):
    """The model's logits with W + alpha / r * (B A) for W, by hand."""
    with torch.no_grad():
        for layer, block in enumerate(model.transformer.h):
            stem = f"base_model.model.transformer.h.{layer}.attn.c_attn"
            A, B = tensors[f"{stem}.lora_A.weight"], tensors[f"{stem}.lora_B.weight"]
            block.attn.c_attn.weight += ALPHA / RANK * (B @ A).T  # Conv1D keeps the transpose
        return model(TOKENS).logits


@pytest.mark.parametrize("where", ["apart", "beside"])
def test_an_adapter_is_merged(tmp_path, base, where):
    pytest.importorskip("peft")
    folder, model = base
    place = folder if where == "beside" else tmp_path / "adapter"
    tensors = add_adapter(place, folder)
    bridge = load(place)
    expected = with_adapter(model, tensors)
    with torch.no_grad():
        error = (bridge(TOKENS) - expected).abs().max() / expected.abs().max()
    assert error < 1e-5
    assert any("LORA adapter" in note for note in record_of(bridge).notes)


@pytest.mark.parametrize("where", ["apart", "beside"])
def test_without_peft_an_adapter_is_refused_with_the_line_that_merges_it(
    tmp_path, base, where, monkeypatch
):
    folder, _ = base
    place = folder if where == "beside" else tmp_path / "adapter"
    add_adapter(place, folder)
    monkeypatch.setattr(adapters, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"merge_and_unload\(\) and save_pretrained") as refused:
        load(place)
    assert len(str(refused.value).replace(str(place), "")) <= 300


def test_an_adapter_that_does_not_fit_is_refused(tmp_path, base):
    pytest.importorskip("peft")
    add_adapter(tmp_path / "adapter", base[0])
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    tensors = load_file(file)
    tensors.pop(sorted(tensors)[0])
    save_file(tensors, file)
    with pytest.raises(InputError, match=r"does not fit .* it lacks base_model"):
        load(tmp_path / "adapter")


def test_an_adapter_whose_base_is_not_here_names_it(tmp_path, texts):
    add_adapter(tmp_path / "adapter", "nobody/has-this")
    with pytest.raises(InputError, match="'nobody/has-this'", check=texts):
        load(tmp_path / "adapter")


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_half_an_adapter_is_refused(base, name):
    add_adapter(*base[:1], base[0])
    (base[0] / name).unlink()
    with pytest.raises(InputError, match=r"adapter_(config|model)"):
        load(base[0])


def test_the_layers_of_an_adapter_in_a_state_dict_are_refused(tmp_path, base, texts):
    folder, model = base
    state = {f"base_model.model.{n}": t.clone() for n, t in model.state_dict().items()}
    stem = "base_model.model.transformer.h.0.attn.c_attn"
    state[f"{stem}.base_layer.weight"] = state.pop(f"{stem}.weight")
    tensors = add_adapter(tmp_path / "adapter", folder)
    state[f"{stem}.lora_A.default.weight"] = tensors[f"{stem}.lora_A.weight"]
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(InputError, check=texts):
        load(tmp_path / "model.pt", n_heads=4, act_fn="gelu_new")
    with pytest.raises(InputError, match=r"adapter_config\.json"):
        load(tmp_path / "adapter" / "adapter_model.safetensors")


@pytest.mark.parametrize(
    ("settings", "loads"),
    [
        ({"target_modules": ["embed_tokens", "q_proj"]}, True),
        ({"target_modules": ["lm_head", "q_proj"]}, True),
        ({"target_modules": ["q_proj"], "layer_replication": [[0, 2], [1, 2]]}, False),
        ({"prefix": True}, False),
    ],
    ids=["embedding", "unembedding", "copied layers", "prefix"],
)
def test_what_merging_changes_is_refused(tmp_path, settings, loads):
    peft = pytest.importorskip("peft")
    original = tiny("Llama")
    save_quietly(original, tmp_path / "base")
    if "prefix" in settings:
        config = peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    else:
        config = peft.LoraConfig(r=2, **settings)
    adapted = peft.get_peft_model(original, config)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name or "lora_embedding_B" in name:
            parameter.data = 0.3 * torch.randn(parameter.shape, generator=generator)
    folder = tmp_path / "adapter"
    adapted.save_pretrained(folder, save_embedding_layers="lm_head" in str(settings))
    file = folder / "adapter_config.json"
    content = json.loads(file.read_text()) | {"base_model_name_or_path": str(tmp_path / "base")}
    file.write_text(json.dumps(content))
    tokens = torch.tensor([[5, 9, 12, 7, 33]])
    if not loads:
        with pytest.raises(InputError):
            load(folder)
        return
    with torch.no_grad():
        torch.testing.assert_close(
            load(folder)(tokens), adapted.eval()(tokens).logits, atol=1e-4, rtol=1e-4
        )
