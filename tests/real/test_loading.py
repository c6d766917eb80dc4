"""A GGUF file of a real model, loaded, is what transformers makes of it."""

import copy

import pytest
import torch

from interp_toolkit import load
from interp_toolkit.models.about.info import describe
from interp_toolkit.models.about.record import provenance, record_of
from interp_toolkit.models.weights.view import weights

pytestmark = pytest.mark.real


def test_the_logits_are_those_of_transformers(bridge, plain_model, tokens):
    expected = plain_model.logits(tokens)
    with torch.no_grad():
        found = bridge(tokens)
    assert float((found - expected).abs().max() / expected.abs().max()) < 1e-4


def test_the_model_knows_what_a_language_model_knows(bridge):
    tokens = bridge.to_tokens("The capital of France is", prepend_bos=False)
    with torch.no_grad():
        best = bridge(tokens)[0, -1].topk(5).indices
    assert " Paris" in [bridge.tokenizer.decode([int(token)]) for token in best]


def test_the_tokenizer_is_the_file_s(bridge, plain_model):
    text = "Naïve café, 1234 + x_y;\n\ttabs"
    ids = bridge.tokenizer(text, add_special_tokens=False).input_ids
    assert ids == plain_model.tokenizer(text).input_ids
    assert bridge.tokenizer.decode(ids) == text
    assert bridge.tokenizer(text).input_ids == [bridge.tokenizer.bos_token_id, *ids]
    assert bridge.tokenizer.eos_token == plain_model.tokenizer.eos_token


def test_that_weights_were_quantised_is_told(bridge, smollm2):
    record = record_of(bridge)
    assert (record.kind, record.name) == ("gguf", smollm2.name)
    [told] = record.notes
    assert "Q4_1 and Q8_0" in told
    assert len(record.sha256) == 64
    info = describe(bridge)
    assert info.notes == (told,)
    assert info.n_params == 134_515_008
    assert provenance(bridge, {}, {}, None).model["notes"] == [told]


def test_how_large_it_is_is_told_before(smollm2):
    said = []

    class EnoughError(Exception):
        pass

    def stop(line):
        said.append(line)
        raise EnoughError

    with pytest.raises(EnoughError):
        load(smollm2, progress=stop)
    assert said == ["135M parameters, about 0.5 GiB in float32"]


def test_the_view_of_weights_agrees_with_the_forward_pass(bridge):
    view = weights(bridge)
    assert view.W_E.shape == (49152, 576)
    assert view.layer(29).W_Q.shape[0] == 9
    assert view.mlp(0) is not None


def test_the_model_can_be_copied_and_saved(bridge, tokens, tmp_path):
    copy.deepcopy(bridge.original_model.config)
    bridge.original_model.config.save_pretrained(tmp_path)
    assert "quantization" not in (tmp_path / "config.json").read_text()


def test_loading_prints_nothing_and_leaves_nothing_behind(smollm2, capfd):
    import gguf

    before = gguf.GGUFReader, gguf.get_tensor_name_map
    capfd.readouterr()
    load(smollm2)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == before


def test_what_lies_beside_the_file_is_not_read(smollm2, tmp_path):
    (tmp_path / "tokenizer_config.json").write_text(
        '{"auto_map": {"AutoTokenizer": ["t.T", null]}}'
    )
    (tmp_path / "config.json").write_text("no JSON")
    (tmp_path / "m.gguf").symlink_to(smollm2)
    assert load(tmp_path / "m.gguf").cfg.n_layers == 30
