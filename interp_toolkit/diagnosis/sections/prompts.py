"""Prompts as the tokenizer makes them: with a beginning-of-sequence token once, twice or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from interp_toolkit.diagnosis.checks import Check

PROMPT = "The capital of France is Paris."


def beginnings(model: Any, text: str, **options: Any) -> int:
    """The number of beginning-of-sequence tokens at the start of a text's tokens."""
    tokens = model.to_tokens(text, **options)
    bos, count = model.tokenizer.bos_token_id, 0
    for token in tokens.reshape(-1).tolist():
        if token != bos:
            break
        count += 1
    return count


def check_prompts(model: Any, prompts: Sequence[str]) -> Iterator[Check]:
    """Does each prompt begin with BOS at most once, and as it is asked for?"""
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        yield Check("prompts", "BOS at most once", "not_applicable", "this model has no tokenizer")
        return
    bos = getattr(tokenizer, "bos_token_id", None)
    if bos is None:
        yield Check("prompts", "BOS at most once", "not_applicable", "the tokenizer has no BOS")
        return
    if bos in tokenizer(PROMPT, add_special_tokens=False)["input_ids"]:
        yield Check(
            "prompts",
            "BOS at most once",
            "undecided",
            "the tokenizer gives BOS for unknown words, so counting it says nothing",
        )
        return
    text = tokenizer.bos_token
    twice: list[str] = []
    counts = []
    for prompt in prompts or (PROMPT,):
        if text and prompt.startswith(text):
            prompt = prompt[len(text) :]
        counts.append(beginnings(model, prompt))
        if counts[-1] > 1:
            twice.append(prompt)
    alone = int(_starts(tokenizer(PROMPT)["input_ids"], bos))
    if twice:
        yield Check(
            "prompts",
            "BOS at most once",
            "failed",
            f"to_tokens puts {max(counts)} in front (the tokenizer itself {alone}): "
            "set cfg.tokenizer_prepends_bos, or give prepend_bos=False",
            instead="prepend_bos=False",
        )
    elif max(counts) == 0:
        yield Check("prompts", "BOS at most once", "passed", "to_tokens puts none in front")
    else:
        yield Check(
            "prompts",
            "BOS at most once",
            "passed",
            f"to_tokens puts one in front (the tokenizer itself {alone})",
        )
    yield from _as_asked(model)
    beginning = beginnings(model, f"{text}{PROMPT}")
    if beginning > 1:
        yield Check(
            "prompts",
            "BOS in a prompt's text is not doubled",
            "differs",
            f"a prompt that begins with {text!r} gets {beginning}: leave it out of the text",
            instead="prepend_bos=False",
        )


def _starts(tokens: Any, bos: int) -> bool:
    return bool(len(tokens)) and tokens[0] == bos


def _as_asked(model: Any) -> Iterator[Check]:
    """prepend_bos=True gives one, prepend_bos=False none."""
    for asked, expected in ((True, 1), (False, 0)):
        beginning = beginnings(model, PROMPT, prepend_bos=asked)
        name = f"prepend_bos={asked} gives {'one' if expected else 'none'}"
        answer = "passed" if beginning == expected else "failed"
        if asked and beginning == 0:  # a tokenizer whose BOS was lent to it (BERT)
            answer = "differs"
        yield Check("prompts", name, answer, f"{beginning} in front")  # type: ignore[arg-type]
