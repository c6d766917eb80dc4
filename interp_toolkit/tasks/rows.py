"""Prompts of a task for a model: distinct, of one length, and balanced over templates.

*Words as tokens.* Whether a word is one token is tested in context, after a space and another word:
tokenizers that put a space before every text would otherwise count it twice. Prompts begin with the
tokenizer's prefix (BOS) and end where the text does, even if the tokenizer would append an end
token.

*Sampling.* Prompts are sampled by seed, all of the length that yields the most of them. Templates
alternate, two prompts each, as evenly as possible. The first half of the prompts, the second, the
even-numbered and the odd-numbered ones then have the same templates, for analyses that select on
one half and test on the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from interp_toolkit.data import FeatureData
from interp_toolkit.data.text.tokenization import Tokenizer, bare_text, whole_text
from interp_toolkit.errors import InputError, takes
from interp_toolkit.options import MAX_SEED
from interp_toolkit.registry import find

LEAST = 8  # words of a kind: results on fewer would not generalize to others
_BEFORE = "the"


class PromptPair(NamedTuple):
    """Token ids of a clean prompt and its corrupted one, with the answer and a wrong answer."""

    clean: tuple[int, ...]
    corrupted: tuple[int, ...]
    answer: int
    wrong: int


def cannot_hold(why: str) -> InputError:
    """The error for a tokenizer that lacks the tokens for a task."""
    return InputError(f"this task does not work with this tokenizer: {why}")


class Words:
    """The tokens of words under one tokenizer.

    Attributes:
        first: ids that the tokenizer puts before every text.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._unknown = _unknown(tokenizer)
        self.first = self._first()

    def ids(self, text: str) -> tuple[int, ...]:
        """A prompt's ids, with the tokenizer's prefix."""
        return (*self.first, *bare_text(self._tokenizer, text))

    def is_one(self, word: str) -> bool:
        """Whether a word after a space is one token, and a known one."""
        before, both = self.ids(_BEFORE), self.ids(f"{_BEFORE} {word}")
        return both[:-1] == before and both[-1] not in self._unknown

    def single_tokens(self, words: str, what: str, least: int = LEAST) -> list[str]:
        """The words of a text that are single tokens, in their order.

        Raises InputError if there are fewer than `least`; `what` names their kind, as a plural.
        """
        distinct = list(dict.fromkeys(words.split()))
        single_tokens = [word for word in distinct if self.is_one(word)]
        if len(single_tokens) < least:
            raise cannot_hold(
                f"of {len(distinct)} {what} {len(single_tokens)} are one token, and {least} are "
                "needed"
            )
        return single_tokens

    def next_id(self, prompt: str, end: str, before: tuple[int, ...]) -> int | None:
        """The single token that `end` adds after the prompt, whose ids are `before`.

        None if it is not exactly one.
        """
        both = self.ids(prompt + end)
        one = both[:-1] == before and both[-1] not in self._unknown
        return both[-1] if one else None

    def pair(self, clean: str, corrupted: str, answer: str, wrong: str) -> PromptPair | None:
        """Tokenize a pair of prompts; answers begin with their own space.

        None if the tokenizer does not allow it: an unknown word, an answer of several tokens, or
        prompts that differ in length or are equal.
        """
        ids, others = self.ids(clean), self.ids(corrupted)
        right, bad = self.next_id(clean, answer, ids), self.next_id(clean, wrong, ids)
        if right is None or bad is None or right == bad:
            return None
        if len(ids) != len(others) or ids == others:
            return None
        mentioned = {*ids[len(self.first) :], *others[len(self.first) :]}
        # The prefix may contain the unknown token, as in GPT-2.
        if self._unknown & mentioned:
            return None
        return PromptPair(ids, others, right, bad)

    def vocabulary(self) -> list[int]:
        """All token ids that represent text: neither special nor unknown ones."""
        get_vocab = getattr(self._tokenizer, "get_vocab", None)
        if get_vocab is None:
            raise cannot_hold("it does not say what its tokens are")
        special = {*getattr(self._tokenizer, "all_special_ids", ()), *self._unknown}
        return sorted({*get_vocab().values()} - special)

    def _first(self) -> Sequence[int]:
        """The tokenizer's prefix of every text."""
        whole, bare = (encode(self._tokenizer, _BEFORE) for encode in (whole_text, bare_text))
        starts = range(len(whole) - len(bare) + 1)
        start = next((i for i in starts if whole[i : i + len(bare)] == bare), 0)
        return tuple(whole[:start])


def _unknown(tokenizer: Tokenizer) -> frozenset[int]:
    """The id of unknown words, if there is one."""
    token_id = getattr(tokenizer, "unk_token_id", None)
    return frozenset() if token_id is None else frozenset({int(token_id)})


FEWEST = 4  # prompts of a set, and of a template before another one is used
MOST = 100_000
TRIES, MORE_TRIES = 6, 48  # attempts per requested prompt, and in addition

#: draws a prompt from a template, by index; None if the tokenizer does not allow it
Draw = Callable[[int, np.random.Generator], PromptPair | None]


def sample_rows(draw: Draw, templates: int, rows: int, seed: int, source: str) -> FeatureData:
    """Sample distinct prompts of one length, balanced over templates.

    Args:
        draw: makes a prompt from a template.
        templates: number of templates.
        rows: number of prompts.
        seed: random seed of the sampling.
        source: name of the set.

    Raises:
        InputError: an invalid seed; fewer than FEWEST prompts are requested, or more than MOST; the
            tokenizer allows none, or fewer than requested.
    """
    _check(rows, seed)
    used = min(templates, rows // FEWEST)
    per_template = -(-rows // used)
    drafts = [
        _distinct(draw, template, np.random.default_rng([seed, template]), per_template)
        for template in range(used)
    ]
    lengths = {len(pair.clean) for pairs in drafts for pair in pairs}
    if not lengths:
        raise cannot_hold("no prompt has words and answers that are single tokens")
    by_length = {
        length: [[pair for pair in pairs if len(pair.clean) == length] for pairs in drafts]
        for length in sorted(lengths)
    }
    chosen = max(
        by_length.values(), key=lambda pools: sum(min(len(p), per_template) for p in pools)
    )
    sampled = _in_turn([pool for pool in chosen if pool], rows)
    if len(sampled) < rows:
        raise cannot_hold(
            f"it has tokens for {len(sampled)} different prompts of one length, not {rows}; "
            "request fewer"
        )
    return FeatureData(
        np.array([pair.clean for pair in sampled]),
        np.zeros((rows, 0), dtype=bool),
        (),
        source=f"{source}, {rows} rows, seed {seed}",
        answers=np.array([pair.answer for pair in sampled]),
        wrong=np.array([pair.wrong for pair in sampled]),
        corrupted=np.array([pair.corrupted for pair in sampled]),
    )


def _check(rows: int, seed: int) -> None:
    """Raise InputError for an invalid number of prompts or seed."""
    if not _whole(rows):
        raise InputError(f"the number of prompts must be an integer, not {rows!r}")
    if rows < FEWEST:
        raise InputError(f"too few prompts ({rows}): give at least {FEWEST}")
    if rows > MOST:
        raise InputError(f"too many prompts ({rows}): give at most {MOST}")
    if not _whole(seed) or not 0 <= seed <= MAX_SEED:
        raise InputError(f"the seed {seed!r} cannot be used; give an integer from 0 to {MAX_SEED}")


def _whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _distinct(
    draw: Draw, template: int, rng: np.random.Generator, count: int
) -> Sequence[PromptPair]:
    """Prompts from a template, with no clean prompt twice."""
    distinct: dict[tuple[int, ...], PromptPair] = {}
    for _ in range(TRIES * count + MORE_TRIES):
        pair = draw(template, rng)
        if pair is not None:
            distinct.setdefault(pair.clean, pair)
    return list(distinct.values())


def _in_turn(pools: Sequence[Sequence[PromptPair]], rows: int) -> list[PromptPair]:
    """Sample prompts, two of each template at a time; exhausted templates are skipped."""
    turns: dict[int, list[PromptPair]] = defaultdict(list)
    for pool in pools:
        for i, pair in enumerate(pool):
            turns[i // 2].append(pair)
    in_turn = [pair for turn in sorted(turns) for pair in turns[turn]]
    return list({pair.clean: pair for pair in in_turn}.values())[:rows]


ROWS = 64


ALIASES = {"ioi": "indirect-object"}  # other names that everyone uses


def task_name(name: str) -> str:
    """A task's name as `interp list tasks` shows it, for that or another common name of it."""
    return ALIASES.get(name.lower(), name)


@takes(name=str, rows=Integral)
def task(model: Any, name: str, *, rows: int = ROWS, seed: int = 0) -> FeatureData:
    """The prompts of a task, with answers, wrong answers and corrupted prompts, for this model.

    Args:
        model: any TransformerLens model with a tokenizer.
        name: the task, as `interp list tasks` shows it.
        rows: number of prompts, 4 to 100,000, all of one length.
        seed: random seed of the draw; the same seed gives the same prompts.

    Raises:
        InputError: an unknown name; an invalid seed or number of prompts; a model without a
            tokenizer, with one that lacks the tokens, or with a context that is too short.

    Examples:
        >>> import interp_toolkit as it
        >>> task(it.load("toy:induction"), "successor")
        Traceback (most recent call last):
            ...
        interp_toolkit.errors.InputError: this model has no tokenizer, so the task 'successor' \
cannot be made for it; give rows of token ids (--data)
    """
    maker = find("tasks", task_name(name))
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        raise InputError(
            f"this model has no tokenizer, so the task {name!r} cannot be made for it; give rows "
            "of token ids (--data)"
        )
    sampled: FeatureData = maker.make(tokenizer, rows, seed)
    n_ctx = int(model.cfg.n_ctx)
    if sampled.lengths.max() > n_ctx:
        raise InputError(
            f"prompts of the task {name!r} have {sampled.lengths.max()} tokens, but the model's "
            f"context is {n_ctx}"
        )
    return sampled.check_vocabulary(int(model.cfg.d_vocab))
