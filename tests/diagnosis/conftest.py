"""Models made anew for each test, which may spoil them."""

import functools
import tempfile
import warnings

import pytest
import tiny_models as tiny
import torch
from tiny_tokenizers import word_level
from transformers import AutoTokenizer


def _own_capped():
    return tiny.own(attn_scores_soft_cap=2.0, output_logits_soft_cap=5.0)


def _hooked_capped():
    return tiny.hooked(**tiny.ROTARY, attn_scores_soft_cap=2.0, output_logits_soft_cap=5.0)


def _told_tokens(kind):
    """A bridge with a tokenizer that puts BOS in front."""
    model = tiny.KINDS[kind]()
    tokenizer = word_level(["a", "b", "c", "of", "is"], digits=False)
    tokenizer.pad_token = tokenizer.bos_token
    model.tokenizer = tokenizer
    model.cfg.tokenizer_prepends_bos = True
    return model


def _hooked_with_tokens():
    """A HookedTransformer with a tokenizer, which it loads again from where it was saved."""
    model = tiny.hooked(normalization_type="LN")
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = word_level(["a", "b", "c", "of", "is"], digits=False)
        tokenizer.pad_token = tokenizer.bos_token
        tokenizer.save_pretrained(folder)
        model.set_tokenizer(AutoTokenizer.from_pretrained(folder))
    return model


MODELS = tiny.KINDS | {
    "own-capped": _own_capped,
    "hooked-capped": _hooked_capped,
    "gpt2-tokens": functools.partial(_told_tokens, "gpt2"),
    "llama-tokens": functools.partial(_told_tokens, "llama"),
    "qwen2": functools.partial(tiny.wrapped, "Qwen2ForCausalLM", "Qwen2Config", **tiny.LLAMA),
    "hooked-tokens": _hooked_with_tokens,
    "hooked-folded": lambda: _folded(tiny.hooked(normalization_type="LN")),
    "own-bfloat16": lambda: tiny.own().to(torch.bfloat16),
    "llama-float64": lambda: tiny.KINDS["llama"]().to(torch.float64),
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
