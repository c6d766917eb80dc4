"""Tokenizers made on the spot that have every word of our tasks as one token, as two kinds do."""

from __future__ import annotations

import re
from importlib import import_module

from interp_toolkit.registry import _entries

BEGIN = "<s>"


def task_words() -> list[str]:
    """Every word, digit and mark in the texts of the task modules."""
    found: dict[str, None] = {"the": None}
    for entry in _entries("tasks").values():
        for value in vars(import_module(entry.module)).values():
            texts = value.values() if isinstance(value, dict) else [value]
            for text in texts:
                several = text if isinstance(text, tuple) else (text,)
                for one in several:
                    if isinstance(one, str):
                        found |= dict.fromkeys(re.findall(r"\w+|[^\w\s]+", one))
    found |= dict.fromkeys(["he", "she", '"""', "(", ")", ",", ":", ").", "):", *"0123456789"])
    return list(found)


def word_level(words: list[str], *, digits: bool = True, begin: bool = True):
    """Words and marks are tokens, spaces none; digits one by one."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {BEGIN: 0, "<unk>": 1} | {word: i for i, word in enumerate(words, 2)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    parts = [pre_tokenizers.Split(Regex(r"\w+|[^\w\s]"), "removed", invert=True)]
    if digits:
        parts.append(pre_tokenizers.Digits(individual_digits=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    if begin:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{BEGIN} $A", special_tokens=[(BEGIN, 0)]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BEGIN, unk_token="<unk>", eos_token=BEGIN
    )


def byte_level(words: list[str], *, end: bool = False, one_special: bool = False):
    """Words with the space before them are tokens (byte-level BPE); years are pairs of digits.

    `one_special`: one token begins every text, ends it and stands for unknown ones, as in GPT-2.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r" ?\d{1,2}| ?[^\s\d\w]+| ?\w+|\s"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=20_000,
        special_tokens=[BEGIN, "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        min_frequency=1,
    )
    years = [f"{year:02}" for year in range(100)]
    texts = [f"{word} {word}" for word in [*words, *years]]
    tokenizer.train_from_iterator(texts * 2, trainer=trainer)
    if end:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="$A </s>", special_tokens=[("</s>", tokenizer.token_to_id("</s>"))]
        )
    if one_special:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{BEGIN} $A", special_tokens=[(BEGIN, tokenizer.token_to_id(BEGIN))]
        )
        return PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, bos_token=BEGIN, eos_token=BEGIN, unk_token=BEGIN
        )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BEGIN, eos_token="</s>")
