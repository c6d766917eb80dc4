"""Models made anew for each test, which may spoil them."""

import functools
import tempfile
import warnings

import pytest
import torch
from tiny_tokenizers import word_level
from transformers import AutoTokenizer

import tests.conftest as top


def _own_capped():
    return top._own(attn_scores_soft_cap=2.0, output_logits_soft_cap=5.0)


def _hooked_capped():
    return top._hooked(**top._ROTARY, attn_scores_soft_cap=2.0, output_logits_soft_cap=5.0)


def _told_tokens(kind):
    """A bridge with a tokenizer that puts BOS in front."""
    model = top.KINDS[kind]()
    tokenizer = word_level(["a", "b", "c", "of", "is"], digits=False)
    tokenizer.pad_token = tokenizer.bos_token
    model.tokenizer = tokenizer
    model.cfg.tokenizer_prepends_bos = True
    return model


def _hooked_with_tokens():
    """A HookedTransformer with a tokenizer, which it loads again from where it was saved."""
    model = top._hooked(normalization_type="LN")
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = word_level(["a", "b", "c", "of", "is"], digits=False)
        tokenizer.pad_token = tokenizer.bos_token
        tokenizer.save_pretrained(folder)
        model.set_tokenizer(AutoTokenizer.from_pretrained(folder))
    return model


MODELS = top.KINDS | {
    "own-capped": _own_capped,
    "hooked-capped": _hooked_capped,
    "gpt2-tokens": functools.partial(_told_tokens, "gpt2"),
    "llama-tokens": functools.partial(_told_tokens, "llama"),
    "qwen2": functools.partial(top._wrapped, "Qwen2ForCausalLM", "Qwen2Config", **top._LLAMA),
    "hooked-tokens": _hooked_with_tokens,
    "hooked-folded": lambda: _folded(top._hooked(normalization_type="LN")),
    "own-bfloat16": lambda: top._own().to(torch.bfloat16),
    "llama-float64": lambda: top.KINDS["llama"]().to(torch.float64),
}


def _folded(model):
    model.process_weights_()
    return model


@pytest.fixture
def made():
    """Kind -> a new model of it."""

    def make(kind):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what TransformerLens says while building
            return MODELS[kind]()

    return make
