"""Where a prompt ends and its answer begins: the space between them, and the tokens on both sides.

A language model reads one text, in which a word takes the space before it into its token. `keep`
leaves the texts as they are, `add` gives the space at the border to the answer, and `auto` adds one
where words meet: not behind an opening bracket or quote, a line break, `=` or another operator
without spaces around it, not within a number, not in scripts without spaces, and not in a column
whose answers bring their own or are letters of prompts without spaces. Where the tokenizer makes
the space a token of its own, the prompt ends with it, so that the answer is scored. Prompt and
answer are tokenized as one text, too: where this gives other tokens than apart, the row is counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from interp_toolkit.data.schema import Space
from interp_toolkit.data.text.tokenization import Tokenizer, bare_texts

_TAIL = 48  # characters of a text without spaces that may belong to its last token
#: blocks of scripts that put no spaces between words: Thai to Myanmar, Khmer, Chinese and Japanese
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u312f\u31a0-\u9fff\uf900-\ufaff"
    r"\uff00-\uffef\U00020000-\U0003ffff]"
)
_OPERATOR = re.compile(r"\s(-+>|=+>|→|⇒|[-–—+*/&|<>]+)$")  # with a space before it
_STARTS = re.compile(r"\w|[-+−$£€]\.?\d")
_NUMBERS = re.compile(r"\d\s+\d+$")


def needs_space(prompt: str, answer: str) -> bool | None:
    """Whether text as people write it has a space between the two; None: it may or may not.

    Examples:
        >>> needs_space("The capital of France is", "Paris"), needs_space("2+2=", "4")
        (True, False)
    """
    if not prompt or not _STARTS.match(answer):
        return False
    last, first = prompt[-1], answer[0]
    if last.isspace() or _UNSPACED.match(last) or _UNSPACED.match(first):
        return False
    if last.isdigit() and first.isdigit():
        return True if _NUMBERS.search(prompt) else None  # a list of numbers, or one that goes on
    if last.isalnum():
        return True
    if last in ".," and first.isdigit():
        return not prompt[-2:-1].isdigit()  # decimals
    if last in "\"'`":
        return prompt[-2:-1].isalnum() if last == "'" else prompt.count(last) % 2 == 0
    if prompt.endswith(" ="):
        return None
    return last in ".,;:!?)]}%…»”’" or _OPERATOR.search(prompt) is not None


@dataclass(frozen=True)
class PromptTexts:
    """Prompts, their corrupted versions, answers and wrong answers; None: the table has none."""

    prompts: list[str]
    corrupted: list[str] | None
    answers: list[str]
    wrong: list[str] | None


def spaced(texts: PromptTexts, space: Space) -> tuple[PromptTexts, int]:
    """The texts with the space at each border, and the number of answers that got one."""
    if space == "keep" or (space == "auto" and _is_complete(texts)):
        return texts, 0
    if space == "add":
        return (
            PromptTexts(
                [text.rstrip(" ") for text in texts.prompts],
                texts.corrupted and [text.rstrip(" ") for text in texts.corrupted],
                [f" {answer.lstrip(' ')}" for answer in texts.answers],
                texts.wrong and [f" {answer.lstrip(' ')}" for answer in texts.wrong],
            ),
            sum(answer[:1] != " " for answer in texts.answers),
        )
    needs = list(map(needs_space, texts.prompts, texts.answers))
    usual = sum(need is True for need in needs) > sum(need is False for need in needs)
    answers = [
        f" {answer}" if need or (need is None and usual) else answer
        for need, answer in zip(needs, texts.answers, strict=True)
    ]
    wrong = texts.wrong and [
        f" {word}" if answer[:1] == " " != word[:1] and _STARTS.match(word) else word
        for answer, word in zip(answers, texts.wrong, strict=True)
    ]
    n = sum(map(len, answers)) - sum(map(len, texts.answers))
    return PromptTexts(texts.prompts, texts.corrupted, answers, wrong), n


def _is_complete(texts: PromptTexts) -> bool:
    """Whether most answers bring their space, or repeat a letter of prompts without spaces."""
    if 2 * sum(answer[:1].isspace() for answer in texts.answers) >= len(texts.answers):
        return True
    pairs = list(zip(texts.prompts, texts.answers, strict=True))
    letters = all(len(answer) == 1 and not re.search(r"\s", text) for text, answer in pairs)
    return letters and 2 * sum(answer in text for text, answer in pairs) > len(pairs)


@dataclass(frozen=True)
class Border:
    """Answers as token ids behind their prompts.

    Attributes:
        texts: the texts, with a space moved to a prompt's end where it is a token of its own.
        answers: the ids of each answer; empty for one without tokens.
        wrong: those of the wrong answers.
        moved: the number of rows whose space was moved.
        merged: indices of rows whose prompt and answer share a token in one text.
    """

    texts: PromptTexts
    answers: list[list[int]]
    wrong: list[list[int]] | None
    moved: int
    merged: list[int]


def at_border(tokenizer: Tokenizer, texts: PromptTexts, space: Space) -> Border:
    """The token ids of answers as they continue their prompts."""
    tails = [_tail(text) for text in texts.prompts]
    pairs = list(zip(tails, texts.answers, strict=True))
    against = None if texts.wrong is None else list(zip(tails, texts.wrong, strict=True))
    ids, merged = _continuations(tokenizer, dict.fromkeys([*pairs, *(against or ())]))
    prompts, corrupted = list(texts.prompts), texts.corrupted and list(texts.corrupted)
    answers, wrong = [ids[p] for p in pairs], None if against is None else [ids[p] for p in against]
    moved = 0
    alone = bare_texts(tokenizer, [" "])[0] if space != "keep" else []
    for row, answer in enumerate(answers):
        n = len(alone)
        if not n or len(answer) <= n or answer[:n] != alone or texts.answers[row][:1] != " ":
            continue
        moved += 1
        prompts[row] += " "
        answers[row] = answer[n:]
        if corrupted is not None:
            corrupted[row] += " "
        if wrong is not None and wrong[row][:n] == alone and len(wrong[row]) > n:
            wrong[row] = wrong[row][n:]
    texts = PromptTexts(prompts, corrupted, texts.answers, texts.wrong)
    rows = [row for row, pair in enumerate(pairs) if pair in merged]
    return Border(texts, answers, wrong, moved, rows)


def mending_space(tokenizer: Tokenizer, texts: PromptTexts, row: int, space: Space) -> Space | None:
    """The way to put the space that keeps prompt and answer apart in this row, if there is one."""
    one = PromptTexts([texts.prompts[row]], None, [texts.answers[row]], None)
    ways: tuple[Space, ...] = ("add", "keep")
    for way in ways:
        if way != space and not at_border(tokenizer, spaced(one, way)[0], way).merged:
            return way
    return None


def _tail(text: str) -> str:
    """The end of a text from the space before its last word."""
    start = text.rfind(" ", 0, len(text.rstrip()))
    return text[start:] if start >= 0 and len(text) - start <= _TAIL else text[-_TAIL:]


def _continuations(
    tokenizer: Tokenizer, pairs: dict[tuple[str, str], None]
) -> tuple[dict[tuple[str, str], list[int]], set[tuple[str, str]]]:
    """The ids of each answer behind its prompt's end, and the pairs that share a token."""
    tails, answers = (
        dict(zip(texts, bare_texts(tokenizer, list(texts)), strict=True))
        for texts in (dict.fromkeys(pair[side] for pair in pairs) for side in (0, 1))
    )
    joint = bare_texts(tokenizer, [tail + answer for tail, answer in pairs])
    ids: dict[tuple[str, str], list[int]] = {}
    merged = set()
    for pair, whole in zip(pairs, joint, strict=True):
        before = tails[pair[0]]
        if whole[: len(before)] == before and (len(whole) > len(before) or not answers[pair[1]]):
            ids[pair] = whole[len(before) :]
        else:
            ids[pair] = answers[pair[1]]
            merged.add(pair)
    return ids, merged
