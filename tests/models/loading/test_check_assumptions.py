"""Rows with known answers tell which assumption about a checkpoint is wrong."""

import numpy as np
import pytest
import torch

from interp_toolkit import InputError, load
from interp_toolkit.models.loading.check_assumptions import check_assumptions
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

SHAPE = {"n_layers": 2, "d_model": 24, "n_ctx": 8, "d_head": 8, "n_heads": 3, "d_vocab": 13}
N_ROWS = 300


def random_model(**options) -> Transformer:
    """Weights large enough that every setting shows in the answers."""
    options = {"attn_only": True, "normalization_type": None, **options}
    model = Transformer(TransformerConfig(**SHAPE, **options, seed=0))
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        scale = 1.0 if name.endswith(("W_E", "W_pos", "W_Q", "W_K")) else 0.3
        parameter.data += scale * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def rows(model: Transformer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens, and what the model itself answers at its first and last but one position."""
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(0, 13, (N_ROWS, 8), generator=generator)
    places = torch.tensor([0, -2]).expand(N_ROWS, -1)
    with torch.no_grad():
        answers = model(tokens).argmax(-1)[:, [0, 6]]
    return tokens.numpy(), answers.numpy(), places.numpy()


def loaded(tmp_path, model: Transformer, **given) -> Transformer:
    torch.save(model.state_dict(), tmp_path / "model.pt")
    return load(tmp_path / "model.pt", **given)


@pytest.mark.parametrize(
    "settings",
    [
        {"attention_dir": "bidirectional"},
        {"positional_embedding_type": "shortformer"},
        {"normalization_type": "LNPre"},
        {"normalization_type": "RMSPre"},
        {"use_attn_scale": False},
        {"attention_dir": "bidirectional", "positional_embedding_type": "shortformer"},
    ],
    ids=str,
)
def test_the_wrong_assumption_is_found_and_what_is_so(tmp_path, settings, texts):
    model = random_model(**settings)
    check = check_assumptions(loaded(tmp_path, model), *rows(model))
    assert check.better is not None
    assert check.better.settings == settings
    assert check.better.right == 1
    assert check.as_loaded.right < 0.98
    assert check.n_rows == N_ROWS
    sentence = check.sentence
    assert sentence is not None
    for name, value in settings.items():
        assert f"--set {name}={str(value).lower() if value is False else value}" in sentence
    texts(sentence)
    assert "\n" not in sentence
    given = dict(pair.split("=") for pair in check.better.options.replace("--set ", "").split())
    again = check_assumptions(loaded(tmp_path, model, **given), *rows(model))
    assert again.as_loaded.right == 1  # what it says to do does it
    assert again.better is None


def test_nothing_is_said_of_what_is_right(tmp_path):
    model = random_model()
    check = check_assumptions(loaded(tmp_path, model), *rows(model))
    assert check.as_loaded.right == 1
    assert (check.better, check.sentence) == (None, None)
    tried = {name for other in check.alternatives for name in other.settings}
    expected = {"normalization_type", "use_attn_scale", "attention_dir"}
    assert tried == expected | {"positional_embedding_type"}


def test_only_what_was_assumed_is_tried(tmp_path):
    model = random_model(attention_dir="bidirectional")
    settled = {"attention_dir": "causal", "positional_embedding_type": "standard"}
    settled |= {"normalization_type": "none", "use_attn_scale": "true"}
    check = check_assumptions(loaded(tmp_path, model, **settled), *rows(model))
    assert check.alternatives == ()
    assert check.as_loaded.right < 0.9


def test_few_rows_decide_nothing(tmp_path):
    model = random_model(attention_dir="bidirectional")
    few = [part[:2] for part in rows(model)]
    check = check_assumptions(loaded(tmp_path, model), *few)
    assert check.better is None
    low, high = check.as_loaded.interval
    assert low < check.as_loaded.right + 1e-9
    assert high - low > 0.5


def test_answers_that_are_not_asked_do_not_count(tmp_path):
    model = random_model()
    tokens, answers, places = rows(model)
    wrong = np.stack([answers[:, 0], (answers[:, 1] + 1) % 13], axis=1)
    assert check_assumptions(model, tokens, wrong, places).as_loaded.right == 0.5
    wrong[:, 1] = -1
    assert check_assumptions(model, tokens, wrong, places).as_loaded.right == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda t, a, p: (t, a[:, :1], p),
        lambda t, a, p: (t[:5], a, p),
        lambda t, a, p: (t, a, p + 8),
        lambda t, a, p: (t, a + 13, p),
        lambda t, a, p: (t, a * 0 - 1, p),
        lambda t, a, p: (t + 13, a, p),
    ],
)
def test_rows_that_do_not_go_together(change, texts):
    model = random_model()
    with pytest.raises(InputError, check=texts):
        check_assumptions(model, *change(*rows(model)))
