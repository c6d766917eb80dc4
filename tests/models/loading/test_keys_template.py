"""Mappings written for other people's names: the logits of the plain PyTorch model."""

import json

import numpy as np
import pytest
import torch
from naming_schemes import CONTEXT, HEADS, SCHEMES, VOCAB

from interp_toolkit import InputError, analyze, load
from interp_toolkit.data import FeatureData
from interp_toolkit.models import keys_template
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.loading.settings import common_name

TOKENS = torch.randint(0, VOCAB, (4, CONTEXT), generator=torch.Generator().manual_seed(0))
AT_ONCE = 9  # of the twelve schemes
MOST_EDITS = 3


def written(tmp_path, name):
    scheme = SCHEMES[name]()
    torch.save(scheme.saved, tmp_path / "model.pt")
    return scheme, keys_template(tmp_path / "model.pt")


def edited(content, edits):
    """The mapping after the user's edits: a value, null, or another name for a tensor."""
    content = json.loads(json.dumps(content))
    for section, changes in edits.items():
        for key, value in changes.items():
            assert key in content[section]
            if section == "tensors" and value is not None:
                row = {n: v for n, v in content[section][key].items() if n != "guess"}
                content[section][key] = row | {"to": value}
            else:
                content[section][key] = value
    return content


def test_most_schemes_are_right_at_once():
    edits = {name: scheme().edits for name, scheme in SCHEMES.items()}
    assert sum(not edit for edit in edits.values()) >= AT_ONCE
    assert all(sum(map(len, edit.values())) <= MOST_EDITS for edit in edits.values())


@pytest.mark.parametrize("name", SCHEMES)
def test_logits_equal_those_of_the_plain_model(tmp_path, name):
    scheme, template = written(tmp_path, name)
    content = edited(json.loads(template.to_json()), scheme.edits)
    (tmp_path / "keys.json").write_text(json.dumps(content))
    model = load(tmp_path / "model.pt", keys=str(tmp_path / "keys.json"))
    with torch.no_grad():
        expected = scheme.model(TOKENS)
        assert expected.std() > 0.1  # no comparison of zeros
        assert torch.allclose(model(TOKENS), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", SCHEMES)
def test_parts_that_no_shape_shows_are_marked_and_reported(tmp_path, name):
    scheme, template = written(tmp_path, name)
    assert set(scheme.guesses) <= template.guesses.keys()
    content = edited(template.content, scheme.edits)
    model = load(tmp_path / "model.pt", keys=content)
    phrases = "\n".join(record_of(model).assumptions)
    changed = {key for changes in scheme.edits.values() for key in changes}
    for guess in set(scheme.guesses) - changed:
        assert f"guess: {guess}" in phrases


@pytest.mark.parametrize("name", [n for n in SCHEMES if n in ("minGPT", "Decision Transformer")])
def test_open_parts_are_asked_for(tmp_path, name):
    _, template = written(tmp_path, name)
    assert template.blanks
    with pytest.raises(InputError) as caught:
        load(tmp_path / "model.pt", keys=template.content)
    assert any(blank in str(caught.value) for blank in template.blanks)


RENAMED = {
    "positions by an unusual name": {"pos_emb": "place"},
    "tokens too": {"pos_emb": "place", "tok_emb": "symbols"},
    "positions first": {"pos_emb": "a_place", "tok_emb": "symbols"},
}


@pytest.mark.parametrize("words", RENAMED.values(), ids=list(RENAMED))
def test_a_table_of_positions_is_known_by_its_shape(tmp_path, words):
    """Its size is the context, not the vocabulary; its name says nothing."""
    scheme = SCHEMES["minGPT"]()
    state = {}
    for name, tensor in scheme.model.state_dict().items():
        for ours, other in (("wte", "tok_emb"), ("wpe", "pos_emb")):
            name = name.replace(ours, words.get(other, other))
        state[name] = tensor
    if "a_place" in str(words):
        state = dict(sorted(state.items(), key=lambda item: "a_place" not in item[0]))
    torch.save({"model": state, "config": {"n_head": HEADS}}, tmp_path / "model.pt")
    template = keys_template(tmp_path / "model.pt")
    [table] = [name for name in template.content["tensors"] if "place" in name]
    row = template.content["tensors"][table]
    assert row["to"] == "pos_embed.W_pos"
    assert table in template.guesses
    assert "positional_embedding_type" not in template.blanks
    content = edited(template.content, {"settings": {}})
    for name in template.blanks:
        content["settings"][name] = "gelu_new"
    model = load(tmp_path / "model.pt", keys=content, act_fn="gelu_new")
    with torch.no_grad():
        assert torch.allclose(model(TOKENS), scheme.model(TOKENS), atol=1e-4, rtol=1e-4)


def test_every_tensor_is_listed_with_its_shape(tmp_path):
    scheme, template = written(tmp_path, "Decision Transformer")
    shapes = []
    for name, row in template.content["tensors"].items():
        of_module = isinstance(row["shape"], dict)
        shapes += row["shape"].values() if of_module else [row["shape"]] * (2 - ("{" not in name))
    state = scheme.saved["state_dict"]
    assert sorted(map(list, shapes)) == sorted(list(t.shape) for t in state.values())


def test_a_mapping_of_another_model_is_refused(tmp_path):
    _, template = written(tmp_path, "lecture")
    content = edited(template.content, {"tensors": {"lm_head.bias": "unembed.b_U"}})
    content["tensors"]["lm_head.bias"]["shape"] = [VOCAB + 1]
    with pytest.raises(InputError, match=r"lm_head\.bias has shape \[11\]"):
        load(tmp_path / "model.pt", keys=content)


def test_a_setting_overrides_the_mapping(tmp_path):
    scheme, template = written(tmp_path, "nanoGPT")
    relu = load(tmp_path / "model.pt", keys=template.content, act_fn="relu")
    assert relu.cfg.act_fn == "relu"
    assert not any("act_fn" in phrase for phrase in record_of(relu).assumptions)
    assert not torch.allclose(relu(TOKENS), scheme.model(TOKENS))


def test_files_with_our_names_need_no_mapping(tmp_path):
    import interp_toolkit as it

    model = it.load("toy:induction")
    torch.save(model.state_dict(), tmp_path / "bare.pt")
    it.save(model, tmp_path / "own.pt")
    for name in ("bare.pt", "own.pt"):
        with pytest.raises(InputError, match="needs no mapping"):
            keys_template(tmp_path / name)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"to": "?"}, "still"),
        ({"to": "embed.W_E", "skip": -1}, "skip"),
        ({"to": "embed.W_E", "scale": 0}, "scale"),
        ({"to": "embed.W_E", "offset": "1"}, "offset"),
        ({"to": "embed.W_E", "shape": "11"}, "shape"),
        ({"to": "embed.W_E", "other": 1}, '"to"'),
    ],
)
def test_a_rule_that_is_not_valid_is_named(tmp_path, rule, words):
    written(tmp_path, "lecture")
    with pytest.raises(InputError, match=words) as caught:
        load(tmp_path / "model.pt", keys={"tensors": {"token_embedding_table.weight": rule}})
    assert "token_embedding_table" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "config", "setting", "value", "word"),
    [
        ("fairseq", "args", "decoder_normalize_before", False, "decoder_normalize_before"),
        ("GPT-NeoX", "config", "use_parallel_residual", True, "parallel"),
    ],
)
def test_what_the_toolkit_s_transformer_lacks_is_refused(
    tmp_path, name, config, setting, value, word
):
    scheme = SCHEMES[name]()
    scheme.saved[config][setting] = value
    torch.save(scheme.saved, tmp_path / "model.pt")
    with pytest.raises(InputError, match=word):
        keys_template(tmp_path / "model.pt")


def test_settings_of_the_file_under_common_names_are_read(tmp_path):
    _, template = written(tmp_path, "own arrays")
    assert template.content["settings"]["act_fn"]["value"] == "relu"
    assert common_name("num_attention_heads") == "n_heads"
    assert common_name("embedding") is None


def test_a_common_name_that_the_weights_contradict_is_set_aside_and_reported(tmp_path):
    scheme = SCHEMES["nanoGPT"]()
    scheme.saved["model_args"]["block_size"] = 4
    torch.save(scheme.saved, tmp_path / "model.pt")
    model = load(tmp_path / "model.pt", keys=keys_template(tmp_path / "model.pt").content)
    assert model.cfg.n_ctx == CONTEXT
    assert any("block_size=4" in phrase for phrase in record_of(model).assumptions)


@pytest.mark.parametrize(
    ("name", "own"), [("activation", "act_fn"), ("num_attention_heads", "n_heads")]
)
def test_an_unknown_setting_with_a_common_name_gets_ours(tmp_path, name, own):
    written(tmp_path, "nanoGPT")
    with pytest.raises(InputError, match=rf"{name}.*\b{own}\b") as caught:
        load(tmp_path / "model.pt", **{name: HEADS})
    assert "and" not in str(caught.value)  # no list of all settings


def test_a_model_without_a_final_norm_runs_through_the_analyses(tmp_path):
    _, template = written(tmp_path, "own arrays")
    model = load(tmp_path / "model.pt", keys=template.content)
    assert not hasattr(model, "ln_final")
    tokens = torch.randint(0, VOCAB, (16, CONTEXT), generator=torch.Generator().manual_seed(1))
    answers = model(tokens)[:, -1].argmax(-1).numpy()
    data = FeatureData(tokens.numpy(), np.zeros((16, 0), bool), (), answers=answers)
    attribution = analyze(model, "logit-attribution", data=data)
    assert attribution.evidence.sum_error < 1e-4
    assert analyze(model, "circuit", data=data, effort="quick").headline


def test_the_command_writes_the_mapping_and_names_what_is_open(tmp_path):
    from typer.testing import CliRunner

    from interp_toolkit.cli.main import app

    written(tmp_path, "minGPT")
    keys = tmp_path / "keys.json"
    command = ["info", str(tmp_path / "model.pt")]
    result = CliRunner().invoke(app, [*command, "--keys-template", str(keys)])
    assert (result.exit_code, "n_heads" in result.output) == (0, True)
    content = edited(json.loads(keys.read_text()), SCHEMES["minGPT"]().edits)
    keys.write_text(json.dumps(content))
    result = CliRunner().invoke(app, [*command, "--keys", str(keys)])
    assert (result.exit_code, "n_heads 4" in " ".join(result.output.split())) == (0, True)
