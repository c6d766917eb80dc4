"""Local Hugging Face folders give the logits of transformers itself, silently and offline."""

import json
import logging
import shutil
import socket

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from interp_toolkit import InputError, load
from interp_toolkit.models import activations
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.loading.formats import huggingface
from interp_toolkit.models.weights.view import weights

SMALL = {
    "vocab_size": 16,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 12,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
GROUPED = SMALL | {"num_key_value_heads": 2}
MODELS = {
    "GPT-2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=16,
            n_positions=12,
            n_embd=16,
            n_layer=2,
            n_head=4,
            bos_token_id=0,
            eos_token_id=0,
        )
    ),
    "Llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**GROUPED)),
    "Pythia": lambda: transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**SMALL)),
    "Gemma 2": lambda: transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(**GROUPED, head_dim=4, pad_token_id=0)
    ),
    "Qwen 2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**GROUPED)),
}


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a local folder reached for the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def folder(tmp_path):
    """A function that makes a folder of a small random model, and gives it with the model."""

    def make(name="GPT-2", dtype=torch.float32):
        bars = transformers.utils.logging.is_progress_bar_enabled()
        transformers.utils.logging.disable_progress_bar()
        generator = torch.Generator().manual_seed(0)
        model = MODELS[name]().eval()
        for parameter in model.parameters():
            parameter.data = 0.3 * torch.randn(parameter.shape, generator=generator)
        model = model.to(dtype)
        model.save_pretrained(tmp_path / "saved")
        if bars:
            transformers.utils.logging.enable_progress_bar()
        return tmp_path / "saved", model

    return make


def add_tokenizer(path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"<s>": 0, "a": 1, "b": 2, "=": 3}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="<s>", unk_token="<s>"
    )
    wrapped.save_pretrained(path)


def relative_error(bridge, model):
    tokens = torch.randint(0, 16, (4, 12), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model(tokens).logits
        return float((bridge(tokens) - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tokenizer", [False, True])
def test_the_logits_are_those_of_transformers(folder, name, tokenizer):
    path, model = folder(name)
    if tokenizer:
        add_tokenizer(path)
    bridge = load(path)
    assert relative_error(bridge, model) < 1e-5
    assert not bridge.training
    if tokenizer:
        assert bridge.tokenizer.get_vocab()["="] == 3
    else:
        assert bridge.tokenizer is None
    record = record_of(bridge)
    assert record.kind == "huggingface"
    assert record.name == "saved"
    assert record.config["n_heads"] == 4


def test_loading_is_silent_and_leaves_the_libraries_as_they_were(folder, capfd):
    path, _ = folder("Llama")
    logger = transformers.utils.logging
    before = (
        logger.get_verbosity(),
        logger.is_progress_bar_enabled(),
        logging.root.manager.disable,
    )
    capfd.readouterr()
    load(path)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == ""
    after = (logger.get_verbosity(), logger.is_progress_bar_enabled(), logging.root.manager.disable)
    assert after == before


def test_dtype_is_the_saved_one_unless_asked(folder):
    path, _ = folder("Llama", torch.bfloat16)
    assert load(path).cfg.dtype == torch.bfloat16
    bridge = load(path, dtype="float32")
    assert all(p.dtype == torch.float32 for p in bridge.parameters())


def test_settings_are_not_for_folders(folder, texts):
    path, _ = folder()
    with pytest.raises(InputError, match="n_heads", check=texts):
        load(path, n_heads=4)


def refusal(path) -> str:
    with pytest.raises(InputError) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_missing_weights(folder):
    path, _ = folder()
    (path / "model.safetensors").unlink()
    assert "cannot be loaded" in refusal(path)


def test_truncated_weights(folder):
    path, _ = folder()
    content = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(content[: len(content) // 2])
    assert "cannot be loaded" in refusal(path)


def change(path, edit):
    tensors = load_file(path / "model.safetensors")
    edit(tensors)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})


def configure(path, **fields):
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | fields))


def test_a_missing_tensor_is_not_made_up(folder):
    path, _ = folder("Llama")
    name = "model.layers.1.mlp.up_proj.weight"
    change(path, lambda tensors: tensors.pop(name))
    assert f"lacks {name}" in refusal(path)


def test_a_tensor_too_many_is_not_dropped(folder, texts):
    path, _ = folder("Llama")
    change(path, lambda tensors: tensors.update({"model.layers.0.extra": torch.zeros(2)}))
    texts(refusal(path))


def test_a_misshapen_tensor(folder):
    path, _ = folder("Llama")
    name = "model.layers.1.mlp.up_proj.weight"
    change(path, lambda tensors: tensors.update({name: torch.zeros(3, 3)}))
    assert f"has misshapen {name}" in refusal(path)


def test_weights_that_are_not_finite(folder, texts):
    path, _ = folder("Llama")
    name = "model.layers.1.mlp.up_proj.weight"
    change(path, lambda tensors: tensors[name].view(-1)[3:4].fill_(float("nan")))
    texts(refusal(path))


def test_weights_of_8_bits_are_dequantized_by_their_scales_or_refused(folder, texts):
    path, model = folder("Llama")
    tensors, by_hand = load_file(path / "model.safetensors"), dict(model.named_parameters())
    for name in [name for name in tensors if "proj" in name]:
        scale = tensors[name].abs().max() / 448
        tensors[name] = (tensors[name] / scale).to(torch.float8_e4m3fn)
        by_hand[name].data = tensors[name].float() * scale
        tensors[f"{name}_scale_inv"] = scale.reshape(1, 1)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    assert "F8_E4M3 and no quantization_config" in refusal(path)
    quantized = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    configure(path, quantization_config=quantized)
    bridge = load(path)
    assert relative_error(bridge, model) < 1e-5
    texts(record_of(bridge).notes)


def test_weights_of_whole_numbers_are_refused(folder, texts):
    path, _ = folder()
    tensors = load_file(path / "model.safetensors")
    name = "transformer.h.0.attn.c_proj.weight"
    tensors[name] = (100 * tensors[name]).to(torch.int8)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    texts(refusal(path))


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("shards", [1, 2])
def test_pickled_weights_of_other_numbers_are_refused(folder, dtype, shards):
    path, _ = folder()
    tensors = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    name = "transformer.h.0.attn.c_proj.weight"
    tensors[name] = (10 * tensors[name]).to(dtype)
    if shards == 1:
        torch.save(tensors, path / "pytorch_model.bin")
    else:
        first = dict(list(tensors.items())[:2])
        parts = [first, {n: t for n, t in tensors.items() if n not in first}]
        files = [f"pytorch_model-0000{i}-of-00002.bin" for i in (1, 2)]
        for file, part in zip(files, parts, strict=True):
            torch.save(part, path / file)
        weight_map = {n: files[n not in first] for n in tensors}
        index = {"metadata": {}, "weight_map": weight_map}
        (path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    kind = str(dtype).removeprefix("torch.")
    assert f"weights of {kind} and no quantization_config" in refusal(path)


def test_bridges_that_are_not_compared_on_loading_are_compared_here():
    assert {type(make()).__name__ for make in MODELS.values()} == set(huggingface._COMPARED)


def test_a_bridge_that_computes_something_else_is_refused(folder, monkeypatch, texts):
    made = huggingface._bridge

    def changed(*arguments):
        bridge = made(*arguments)
        with torch.no_grad():
            bridge.original_model.transformer.ln_f.weight.mul_(1.1)
        return bridge

    path, _ = folder()
    monkeypatch.setattr(huggingface, "_bridge", changed)
    monkeypatch.setattr(huggingface, "_COMPARED", ())  # here the logits of all MODELS are compared
    texts(refusal(path))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("GPT-2", {"vocab_size": 15}),
        ("Llama", {"vocab_size": 20}),
    ],
)
def test_a_stale_configuration_is_refused(folder, name, changes, texts):
    path, _ = folder(name)
    configure(path, **changes)
    texts(refusal(path))


def test_a_head_of_its_own_is_kept_whatever_the_configuration_says_of_ties(folder):
    path, model = folder("Llama")
    configure(path, tie_word_embeddings=True)
    assert relative_error(load(path), model) < 1e-5
    tensors = load_file(path / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    configure(path, tie_word_embeddings=False)
    assert "it lacks lm_head.weight" in refusal(path)


@pytest.mark.parametrize("name", ["model.fp16.safetensors", "tf_model.h5", "flax_model.msgpack"])
def test_weights_under_other_names_alone_are_refused(folder, name, texts):
    path, _ = folder()
    (path / "model.safetensors").rename(path / name)
    texts(refusal(path))


def test_a_git_lfs_pointer_in_the_place_of_weights(folder, texts):
    path, _ = folder()
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n"
    (path / "model.safetensors").write_text(pointer)
    texts(refusal(path))


@pytest.mark.parametrize(
    ("file", "command"), [(".metadata", "dcp_to_torch"), ("latest", "zero_to")]
)
def test_a_checkpoint_in_parts_says_what_joins_them(tmp_path, file, command, texts):
    (tmp_path / file).write_text("global_step10")
    message = refusal(tmp_path)
    texts(message)
    assert command in message


def test_a_folder_of_checkpoints_names_them(folder, tmp_path, texts):
    outer = tmp_path / "out"
    for step in (500, 1000, 1500, 2000):
        shutil.copytree(folder()[0], outer / f"checkpoint-{step}")
    (outer / "trainer_state.json").write_text("{}")
    texts(refusal(outer))
    (tmp_path / "runs").mkdir()
    torch.save({}, tmp_path / "runs" / "ckpt.pt")
    texts(refusal(tmp_path / "runs"))


@pytest.mark.parametrize(
    ("method", "words"), [("somethingnew", "does not support"), ("gptq", r"quantized: gptq\)")]
)
def test_a_quantized_folder_without_its_library_says_how_it_is_quantized(folder, method, words):
    path, _ = folder("Llama")
    quantized = {"quant_method": method, "bits": 4}
    configure(path, quantization_config=quantized)
    with pytest.raises(InputError, match=words):
        load(path)


def test_an_architecture_without_a_bridge(folder):
    path, _ = folder("Llama")
    config = json.loads((path / "config.json").read_text())
    config |= {"model_type": "no-such-type", "architectures": ["NoSuchModel"]}
    (path / "config.json").write_text(json.dumps(config))
    assert "cannot be loaded" in refusal(path)


def test_a_tokenizer_with_its_own_code_is_refused(folder):
    path, _ = folder("Llama")
    (path / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["t.T", null]}}')
    assert "auto_map in tokenizer_config.json" in refusal(path)


def test_pickled_weights_that_run_code_are_not_run(folder, tmp_path):
    import os

    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    path, _ = folder("Llama")
    tensors = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    torch.save({**tensors, "bomb": Bomb()}, path / "pytorch_model.bin")
    assert "nothing was run" in refusal(path)
    assert not (tmp_path / "exploded").exists()


@pytest.fixture
def encoder(tmp_path):
    """A small random BERT without a head, in a folder."""
    config = transformers.BertConfig(
        vocab_size=16,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=24,
        max_position_embeddings=12,
    )
    bars = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    model = transformers.BertModel(config).eval()
    model.save_pretrained(tmp_path / "encoder")
    if bars:
        transformers.utils.logging.enable_progress_bar()
    return tmp_path / "encoder", model


@pytest.mark.parametrize("tokenizer", [False, True])
@pytest.mark.parametrize("pooler", [True, False])
def test_a_bare_bert_encoder_gives_its_activations(encoder, tokenizer, pooler):
    path, model = encoder
    if tokenizer:
        add_tokenizer(path)
    if not pooler:
        state = load_file(path / "model.safetensors")
        kept = {name: t for name, t in state.items() if not name.startswith("pooler.")}
        save_file(kept, path / "model.safetensors", metadata={"format": "pt"})
    bridge = load(path)
    tokens = torch.randint(0, 16, (3, 7), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model(tokens, output_hidden_states=True).hidden_states
    names = ["blocks.0.hook_out", "blocks.1.hook_out"]
    (batch,) = activations(bridge, tokens.numpy(), names, positions=6)
    for layer, name in enumerate(names):
        found = batch[name].reshape(3, 16)
        assert torch.allclose(found, expected[layer + 1][:, 6], atol=1e-5)
    assert (bridge.tokenizer is not None) == tokenizer
    assert record_of(bridge).config["attention_dir"] == "bidirectional"


def test_what_needs_logits_of_a_bare_encoder_says_that_there_are_none(encoder, texts):
    bridge = load(encoder[0])
    with pytest.raises(InputError, check=texts) as caught:
        bridge(torch.zeros(1, 3, dtype=torch.int64))
    assert "\n" not in str(caught.value)
    view = weights(bridge)
    assert view.layer(1).direction == "bidirectional"
    with pytest.raises(InputError, check=texts):
        _ = view.W_U


def test_a_bare_encoder_gets_the_inputs_besides_the_tokens(encoder):
    path, model = encoder
    bridge = load(path)
    tokens = torch.randint(0, 16, (2, 6), generator=torch.Generator().manual_seed(1))
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]])
    kinds = torch.tensor([[0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]])

    def last_layer(**inputs) -> torch.Tensor:
        kept = []

        def keep(value, hook):
            kept.append(value.detach().clone())

        with pytest.raises(InputError, match="no head"), torch.no_grad():
            bridge.run_with_hooks(tokens, fwd_hooks=[("blocks.1.hook_out", keep)], **inputs)
        return kept[0]

    plain = last_layer()
    for inputs in ({"attention_mask": mask}, {"token_type_ids": kinds}):
        with torch.no_grad():
            expected = model(tokens, **inputs).last_hidden_state
        assert torch.allclose(last_layer(**inputs), expected, atol=1e-5)
        assert not torch.allclose(plain, expected, atol=1e-3)


def test_a_module_of_transformers_that_stays_changed_is_reported(folder):
    from transformers.models.gemma2 import modeling_gemma2

    path, _ = folder("Gemma 2")
    for _again in range(2):
        notes = " ".join(record_of(load(path)).notes)
        changed = modeling_gemma2.eager_attention_forward.__module__ != modeling_gemma2.__name__
        assert changed == ("modeling_gemma2.eager_attention_forward stays wrapped" in notes)


@pytest.mark.parametrize("format_", ["safetensors", "bin"])
def test_the_padding_token_keeps_its_embedding(tmp_path, format_):
    """For Youtu, transformers zeroes that row after loading (see findings)."""
    sizes = {"q_lora_rank": 12, "kv_lora_rank": 10, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4}
    config = transformers.YoutuConfig(**SMALL, **sizes, v_head_dim=6, pad_token_id=3)
    model = transformers.YoutuForCausalLM(config).eval()
    with torch.no_grad():
        model.model.embed_tokens.weight.normal_(generator=torch.Generator().manual_seed(0))
    model.save_pretrained(tmp_path)
    if format_ == "bin":
        state = load_file(tmp_path / "model.safetensors")
        (tmp_path / "model.safetensors").unlink()
        torch.save(state, tmp_path / "pytorch_model.bin")
    tokens = torch.tensor([[5, 3, 7, 3]])
    with torch.no_grad():
        expected = model(tokens).logits
        assert torch.allclose(load(tmp_path)(tokens), expected, atol=1e-5)
    assert expected[..., 3].abs().max() > 0.1
