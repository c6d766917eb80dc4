"""A tokenizer as tasks need it: which words are one token, and prompts whose next token is a word.

Whether a word is one token is asked where it stands, behind a space and another word: tokenizers
that put a space before every text would otherwise count it twice. Prompts begin with what the
tokenizer puts before every text (BOS) and end where the text does, even where it would add an end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from interp_toolkit.data.text.encoding import Tokenizer, bare_text, whole_text
from interp_toolkit.errors import InputError

LEAST = 8  # words of a kind: with fewer a set of rows says little of others
_BEFORE = "the"


class PromptPair(NamedTuple):
    """One row: token ids of a clean prompt and its corrupted one, the answer, a wrong answer."""

    clean: tuple[int, ...]
    corrupted: tuple[int, ...]
    answer: int
    wrong: int


def cannot_hold(why: str) -> InputError:
    """The error of a task that a tokenizer has no tokens for."""
    return InputError(f"the tokenizer cannot hold this task: {why}")


class Words:
    """What a tokenizer makes of words.

    Attributes:
        first: ids that the tokenizer puts before every text.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._unknown = _unknown(tokenizer)
        self.first = self._first()

    def ids(self, text: str) -> tuple[int, ...]:
        """A prompt's ids, with what stands before every text."""
        return (*self.first, *bare_text(self._tokenizer, text))

    def is_one(self, word: str) -> bool:
        """Whether a word behind a space is one token, and a known one."""
        before, both = self.ids(_BEFORE), self.ids(f"{_BEFORE} {word}")
        return both[:-1] == before and both[-1] not in self._unknown

    def known(self, words: str, what: str, least: int = LEAST) -> list[str]:
        """Those of the words in a text that are one token, in their order.

        Raises InputError when there are fewer than `least`; `what` says what they are, in plural.
        """
        asked = list(dict.fromkeys(words.split()))
        found = [word for word in asked if self.is_one(word)]
        if len(found) < least:
            raise cannot_hold(
                f"of {len(asked)} {what} {len(found)} are one token, and {least} are needed"
            )
        return found

    def next_id(self, prompt: str, end: str, before: tuple[int, ...]) -> int | None:
        """The token that `end` is behind the prompt, whose ids are `before`.

        None where it is not exactly one more.
        """
        both = self.ids(prompt + end)
        one = both[:-1] == before and both[-1] not in self._unknown
        return both[-1] if one else None

    def pair(self, clean: str, corrupted: str, answer: str, wrong: str) -> PromptPair | None:
        """A row of texts as tokens; answers begin with their own space.

        None where the tokenizer cannot hold it: an unknown word, an answer of several tokens,
        prompts that differ in length, or not at all.
        """
        ids, others = self.ids(clean), self.ids(corrupted)
        right, bad = self.next_id(clean, answer, ids), self.next_id(clean, wrong, ids)
        if right is None or bad is None or right == bad:
            return None
        if len(ids) != len(others) or ids == others:
            return None
        said = {*ids[len(self.first) :], *others[len(self.first) :]}
        if self._unknown & said:  # what stands before every text may be the same token, as in GPT-2
            return None
        return PromptPair(ids, others, right, bad)

    def vocabulary(self) -> list[int]:
        """Every id that stands for text: none that is special, none unknown."""
        get_vocab = getattr(self._tokenizer, "get_vocab", None)
        if get_vocab is None:
            raise cannot_hold("it does not say what its tokens are")
        special = {*getattr(self._tokenizer, "all_special_ids", ()), *self._unknown}
        return sorted({*get_vocab().values()} - special)

    def _first(self) -> Sequence[int]:
        """What stands before every text."""
        whole, bare = (encode(self._tokenizer, _BEFORE) for encode in (whole_text, bare_text))
        starts = range(len(whole) - len(bare) + 1)
        start = next((i for i in starts if whole[i : i + len(bare)] == bare), 0)
        return tuple(whole[:start])


def _unknown(tokenizer: Tokenizer) -> frozenset[int]:
    """The id of unknown words, where there is one."""
    found = getattr(tokenizer, "unk_token_id", None)
    return frozenset() if found is None else frozenset({int(found)})
