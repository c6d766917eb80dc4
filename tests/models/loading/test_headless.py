"""Models without a head, of several families: their activations are those of transformers."""

import pytest
import torch
import transformers
from huggingface_files import save_quietly

import interp_toolkit as it
from interp_toolkit import InputError, load
from interp_toolkit.analysis import fitting
from interp_toolkit.circuits.weights.self_scores import weight_scores
from interp_toolkit.models import activations
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.weights.view import weights

SIZES = {"vocab_size": 40, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
LLAMA_LIKE = SIZES | {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
GROUPED = LLAMA_LIKE | {"num_key_value_heads": 2}
GPT2 = SIZES | {"n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 4}
OPT = LLAMA_LIKE | {"ffn_dim": 24, "word_embed_proj_dim": 16}
FAMILIES = {
    "GPT2": GPT2,
    "Llama": GROUPED,
    "GPTNeoX": LLAMA_LIKE,
    "Qwen2": GROUPED,
    "Gemma2": GROUPED | {"head_dim": 4},
    "OPT": OPT,
    "Bloom": SIZES | {"hidden_size": 16, "n_layer": 2, "n_head": 4},
    "Bert": LLAMA_LIKE,
}
TOKENS = torch.randint(0, 40, (3, 7), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def folder(tmp_path):
    """A function that makes a folder of a small random trunk, and gives it with the trunk."""

    def make(family):
        config = getattr(transformers, f"{family}Config")(**FAMILIES[family])
        torch.manual_seed(0)
        model = getattr(transformers, f"{family}Model")(config).eval()
        return save_quietly(model, tmp_path / family), model

    return make


@pytest.mark.parametrize("family", FAMILIES)
def test_activations_are_those_of_transformers(folder, family):
    path, model = folder(family)
    bridge = load(path)
    with torch.no_grad():
        expected = model(TOKENS, output_hidden_states=True).hidden_states
    (batch,) = activations(bridge, TOKENS.numpy(), ["blocks.0.hook_out"], positions=6)
    found = batch["blocks.0.hook_out"].reshape(3, 16)
    assert torch.allclose(found, expected[1][:, 6], atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_that_there_are_no_logits_is_said(folder, family, texts):
    bridge = load(folder(family)[0])
    texts(record_of(bridge).notes)
    with pytest.raises(InputError, check=texts) as caught:
        bridge(TOKENS)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, check=texts):
        _ = weights(bridge).W_U


def test_scores_from_weights_sample_all_inputs_where_there_is_no_unembedding(folder):
    frame = weight_scores(load(folder("GPT2")[0]), sample=10)
    assert any("10 of 40 tokens" in note for note in frame.attrs["notes"])
    assert frame.ov_copying.isna().all()
    assert frame.qk_matching.notna().all()


@pytest.mark.parametrize("probe", ["logit-attribution", "circuit"])
def test_analyses_that_need_logits_say_so(folder, probe):
    with pytest.raises(InputError, match="has no head"):
        it.analyze(load(folder("GPT2")[0]), probe)


def test_analyses_that_need_logits_are_left_out_where_none_is_named(folder):
    fit, unfit = fitting(load(folder("GPT2")[0]), None)
    assert "composition" in fit
    assert "heads" in fit  # by their attention alone
    assert "circuit" in unfit


def test_what_weights_alone_say_can_be_asked(folder):
    assert it.analyze(load(folder("Llama")[0]), "qk").probe == "qk"


@pytest.mark.parametrize("named", ["T5EncoderModel", "LlamaForSequenceClassification"])
def test_what_has_no_bridge_is_one_line(folder, named):
    path, _ = folder("Llama")
    if named == "T5EncoderModel":
        made = transformers.T5Config(vocab_size=16, d_model=16, d_kv=4, d_ff=24, num_layers=2)
        save_quietly(transformers.T5EncoderModel(made), path)
    else:
        made = transformers.LlamaConfig(**GROUPED)
        save_quietly(transformers.LlamaForSequenceClassification(made), path)
    with pytest.raises(InputError, match=f"cannot be loaded: .*{named}") as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_heads_of_an_encoder_are_judged_by_their_attention_alone(tmp_path, texts):
    import transformers

    import interp_toolkit as it
    from interp_toolkit import registry
    from tests.helpers.huggingface_files import save_quietly

    sizes = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.BertConfig(**sizes, intermediate_size=24, max_position_embeddings=40)
    save_quietly(transformers.BertModel(config).eval(), tmp_path / "encoder")
    model = it.load(tmp_path / "encoder")
    result = it.analyze(model, "heads", detectors=("induction", "previous-token"))
    assert result.status == "not_tested"
    texts(" ".join((result.headline, *result.findings, *result.notes)))
    assert {(head.layer, head.head) for head in result.heads} == {
        (layer, head) for layer in range(2) for head in range(4)
    }
    assert "no logits" not in str(registry.find("probes", "heads").unfit(model, None))
