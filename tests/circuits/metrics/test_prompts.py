"""Prompts that repeat, for any vocabulary and context, where they are said to."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp_toolkit.circuits.metrics.prompts import prompts_from_tokens, repeated_prompts, walks
from interp_toolkit.errors import InputError


class Shape:
    """As much of a model as prompts ask for."""

    def __init__(self, d_vocab, n_ctx, bos=None, wants_bos=True):
        self.cfg = type("cfg", (), {})()
        self.cfg.d_vocab, self.cfg.n_ctx, self.cfg.default_prepend_bos = d_vocab, n_ctx, wants_bos
        self.tokenizer = None if bos is None else type("tokenizer", (), {"bos_token_id": bos})()


@settings(max_examples=60)
@given(
    d_vocab=st.integers(4, 300),
    n_ctx=st.integers(9, 150),
    bos=st.sampled_from([None, 0, 3]),
    seed=st.integers(0, 5),
)
def test_rows_repeat_where_they_say(d_vocab, n_ctx, bos, seed):
    model = Shape(d_vocab, n_ctx, bos)
    prompts = repeated_prompts(model, rows=6, seed=seed)
    tokens = prompts.tokens.numpy()
    assert prompts.first == (0 if bos is None else 1)
    if bos is not None:
        assert (tokens[:, 0] == bos).all()
        assert (tokens[:, 1:] != bos).all()
    for row, period in zip(tokens[:, prompts.first :], prompts.periods.tolist(), strict=True):
        assert (row[period:] == row[:-period]).all()
        assert (np.diff(row) != 0).all()
        if d_vocab > period + 1:
            assert len(set(row.tolist())) == period
    repeated, unrepeated = prompts.repeated(), prompts.unrepeated()
    assert repeated.any(1).all()
    assert unrepeated.any(1).all()
    assert not (repeated & unrepeated).any()
    for row, query in repeated.nonzero().tolist():
        period = int(prompts.periods[row])
        assert tokens[row, query + 1] == tokens[row, query + 1 - period]


def test_rows_differ_in_period_where_the_context_allows():
    prompts = repeated_prompts(Shape(100, 64), rows=10)
    assert len(set(prompts.periods.tolist())) == 10


def test_same_seed_same_rows():
    first, again = (repeated_prompts(Shape(30, 40), seed=3).tokens for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, repeated_prompts(Shape(30, 40), seed=4).tokens)


def test_walks_come_back_to_every_token():
    like = repeated_prompts(Shape(50, 64, bos=0))
    prompts = walks(Shape(50, 64, bos=0), like)
    assert (prompts.tokens[:, 0] == 0).all()
    for row in prompts.tokens[:, 1:].tolist():
        assert len(set(row)) <= 64 // 8 + 1
        assert all(a != b for a, b in itertools.pairwise(row))


def test_given_rows_have_their_periods_found():
    row = torch.tensor([5, 1, 2, 3, 1, 2, 3, 1, 2])
    other = torch.tensor([5, 1, 2, 3, 4, 1, 2, 3, 4])
    prompts = prompts_from_tokens(torch.stack([row, other]), Shape(6, 12))
    assert prompts.first == 1
    assert prompts.periods.tolist() == [3, 4]
    unrepeated = prompts_from_tokens(torch.arange(16).view(2, 8), Shape(16, 12))
    assert unrepeated.periods.tolist() == [0, 0]
    assert not unrepeated.repeated().any()


@pytest.mark.parametrize(
    ("model", "options", "what"),
    [
        (Shape(3, 64, bos=0), {}, "vocabulary of 3"),
        (Shape(50, 6), {}, "context is 6"),
        (Shape(50, 64), {"rows": 1}, r"too few prompts \(1\)"),
        (Shape(50, 64), {"bos": 50}, "BOS token 50"),
        (Shape(50, 64), {"n_pos": 65}, "65 positions"),
    ],
)
def test_what_cannot_be_is_one_line(model, options, what):
    with pytest.raises(InputError, match=what):
        repeated_prompts(model, **options)


@pytest.mark.parametrize(
    "tokens",
    [
        np.zeros((2, 10)),
        np.zeros(10, int),
        np.zeros((1, 10), int),
        np.zeros((2, 1), int),
        np.full((2, 10), 6),
    ],
)
def test_given_rows_that_are_none(tokens, texts):
    with pytest.raises(InputError, check=texts):
        prompts_from_tokens(tokens, Shape(6, 12))


def test_a_model_that_wants_no_bos_gets_none():
    assert repeated_prompts(Shape(50, 64, bos=1, wants_bos=False)).first == 0
    assert repeated_prompts(Shape(50, 64, bos=1)).first == 1
    assert repeated_prompts(Shape(50, 64, bos=1), bos=None).first == 0


def test_prompts_are_of_tokens_that_texts_contain():
    from types import SimpleNamespace

    from transformers import PreTrainedTokenizerFast

    from interp_toolkit.circuits.metrics.prompts import plain_ids, random_prompts, walks

    tokenizers = pytest.importorskip("tokenizers")
    words = {"<s>": 0, "<pad>": 1, **{f"w{n}": n for n in range(2, 24)}}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w2"))
    inner.add_special_tokens(["<tool>"])  # id 24
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", pad_token="<pad>")
    cfg = SimpleNamespace(
        d_vocab=40, n_ctx=32, n_layers=1, d_model=4
    )  # padded beyond the tokenizer
    model = SimpleNamespace(
        cfg=cfg, tokenizer=tokenizer, hook_dict={}, run_with_hooks=None, blocks=()
    )
    assert plain_ids(model).tolist() == list(range(2, 24))
    made = repeated_prompts(model, rows=8, n_pos=24, bos=0)
    for prompts in (made, walks(model, made)):
        assert (prompts.tokens[:, 0] == 0).all()
        assert ((prompts.tokens[:, 1:] >= 2) & (prompts.tokens[:, 1:] < 24)).all()
    tokens = random_prompts(model, 24).tokens
    assert ((tokens >= 2) & (tokens < 24)).all()
    model.tokenizer = None
    assert plain_ids(model).tolist() == list(range(40))
