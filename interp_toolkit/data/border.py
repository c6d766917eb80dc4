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
from functools import cached_property

import numpy as np

from interp_toolkit.data.cells import Column
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
_UNDECIDED = frozenset("0123456789\"'` .")  # behind which more than a prompt's last word decides


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
    answers: Column
    wrong: Column | None

    @cached_property
    def tails(self) -> Column:
        """The end of each prompt from the space before its last word."""
        tails = [
            text[start:]
            if (start := text.rfind(" ", 0, len(text.rstrip()))) >= 0 and len(text) - start <= _TAIL
            else text[-_TAIL:]
            for text in self.prompts
        ]
        return Column.of("tail", tails)

    @cached_property
    def ends(self) -> Column:
        """What decides on the space behind a prompt: its tail, or all of it."""
        whole = self.tails.where(lambda tail: tail[:1] != " " or tail[-1] in _UNDECIDED)
        if not whole:
            return self.tails
        ends = list(self.tails.values)
        for row in whole:
            ends[row] = self.prompts[row]
        return Column.of("end", ends)


def spaced(texts: PromptTexts, space: Space) -> tuple[PromptTexts, int]:
    """The texts with the space at each border, and the number of answers that got one."""
    if space == "keep" or (space == "auto" and _is_complete(texts)):
        return texts, 0
    if space == "add":
        return (
            PromptTexts(
                [text.rstrip(" ") for text in texts.prompts],
                texts.corrupted and [text.rstrip(" ") for text in texts.corrupted],
                texts.answers.mapped(lambda answer: f" {answer.lstrip(' ')}"),
                texts.wrong and texts.wrong.mapped(lambda word: f" {word.lstrip(' ')}"),
            ),
            len(texts.answers.where(lambda answer: answer[:1] != " ")),
        )
    needs = texts.ends.paired(texts.answers, needs_space)
    usual = len(needs.where(lambda need: need is True)) > len(needs.where(lambda n: n is False))
    adds = needs.mapped(lambda need: usual if need is None else need)
    answers = adds.paired(texts.answers, lambda add, answer: f" {answer}" if add else answer)
    wrong = texts.wrong and answers.paired(
        texts.wrong,
        lambda answer, word: (
            f" {word}" if answer[:1] == " " != word[:1] and _STARTS.match(word) else word
        ),
    )
    return PromptTexts(texts.prompts, texts.corrupted, answers, wrong), len(adds.where(bool))


def _is_complete(texts: PromptTexts) -> bool:
    """Whether most answers bring their space, or repeat a letter of prompts without spaces."""
    answers = texts.answers
    if 2 * len(answers.where(lambda answer: answer[:1].isspace())) >= len(answers):
        return True
    if any(len(answer) != 1 for answer in answers.levels):
        return False
    letters = not any(re.search(r"\s", text) for text in texts.prompts)
    pairs = zip(texts.prompts, answers.values, strict=True)
    return letters and 2 * sum(answer in text for text, answer in pairs) > len(answers)


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
    answers: Column
    wrong: Column | None
    moved: int
    merged: list[int]


def at_border(tokenizer: Tokenizer, texts: PromptTexts, space: Space) -> Border:
    """The token ids of answers as they continue their prompts."""
    pairs = texts.tails.paired(texts.answers, lambda tail, answer: (tail, answer))
    against = texts.wrong and texts.tails.paired(texts.wrong, lambda tail, word: (tail, word))
    ids, merged = _continuations(
        tokenizer, dict.fromkeys([*pairs.levels, *(against.levels if against else ())])
    )
    answers, wrong = pairs.mapped(ids.__getitem__), against and against.mapped(ids.__getitem__)
    shared = pairs.where(merged.__contains__)
    alone = bare_texts(tokenizer, [" "])[0] if space != "keep" else []
    n = len(alone)

    def starts_alone(answer: list[int]) -> bool:
        return 0 < n < len(answer) and answer[:n] == alone

    def behind_space(moves: bool, answer: list[int]) -> list[int]:
        return answer[n:] if moves and starts_alone(answer) else answer

    moves = pairs.mapped(lambda pair: pair[1][:1] == " " and starts_alone(ids[pair]))
    moved = moves.where(bool)
    if moved:
        prompts, corrupted = list(texts.prompts), texts.corrupted and list(texts.corrupted)
        for row in moved:
            prompts[row] += " "
            if corrupted is not None:
                corrupted[row] += " "
        texts = PromptTexts(prompts, corrupted, texts.answers, texts.wrong)
        answers = moves.paired(answers, behind_space)
        wrong = wrong and moves.paired(wrong, behind_space)
    return Border(texts, answers, wrong, len(moved), shared)


def mending_space(tokenizer: Tokenizer, texts: PromptTexts, row: int, space: Space) -> Space | None:
    """The way to put the space that keeps prompt and answer apart in this row, if there is one."""
    one = PromptTexts([texts.prompts[row]], None, texts.answers.select(np.array([row])), None)
    ways: tuple[Space, ...] = ("add", "keep")
    for way in ways:
        if way != space and not at_border(tokenizer, spaced(one, way)[0], way).merged:
            return way
    return None


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
