"""Prompts with their answers, and synthetic prompts of repeated random tokens.

A synthetic prompt is a segment of random token ids, tiled to the prompt's end (`s1 s2 ... sp s1 s2
...`). From the second period on, the context alone determines each next token. No tokenizer is
needed. Prompts have different periods: with a single period, attention to a fixed distance would
look the same as attention to the token after an earlier occurrence. The tokens of a segment are
distinct where the vocabulary allows; neighbors always differ.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError, takes
from interp_toolkit.formatting import ShortRepr, listed
from interp_toolkit.models.model import Model, sizes
from interp_toolkit.stats import clopper_pearson

ROWS = 16
LONGEST = 128  # positions a row, where the context allows
SHORTEST = 8  # positions: fewer hold no repeat and no controls
SHORTEST_USER_PROMPT = 2  # of a user's own: a query and a key position
VISITS = 8  # of each token in a random walk, about
LENGTHS_NAMED = 6  # in a sentence
FEWEST_TOKENS = 3  # with two, neighbours that differ leave one sequence only


@dataclass(frozen=True, eq=False)
class Prompts(ShortRepr):
    """Prompts as token ids, with their answers and the periods of their repetition.

    Attributes:
        tokens: ids, on the CPU.
        first: the position where the repeating part begins: 1 behind a BOS token, else 0.
        periods: period of each prompt, in positions; 0 where it does not repeat.
        source: a short description of their origin.
        answers: the correct token ids; None: the prompts have no answers.
        answer_positions: the positions whose logits should predict the answers, from the start.
        wrong: a wrong token id for each answer, at the same position; or None.
        corrupted: a counterpart of each prompt, of the same length, in which the tokens that
            determine the answer differ; or None.
    """

    tokens: Int[Tensor, "row pos"]
    first: int
    periods: Int[np.ndarray, " row"]
    source: str
    answers: Int[Tensor, "row answer"] | None = None
    answer_positions: Int[Tensor, "row answer"] | None = None
    wrong: Int[Tensor, "row answer"] | None = None
    corrupted: Int[Tensor, "row pos"] | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def n_pos(self) -> int:
        """Number of positions in a prompt."""
        return int(self.tokens.shape[1])

    def some(self, n: int) -> Prompts:
        """Select `n` prompts, evenly spaced from the first to the last."""
        rows = np.linspace(0, len(self) - 1, n).round().astype(int)
        return replace(self.at(rows), source=f"{self.source}, {n} of the rows")

    def at(self, rows: Int[np.ndarray, " chosen"]) -> Prompts:
        """Select prompts by their indices, in this order."""
        names = ("answers", "answer_positions", "wrong", "corrupted")
        parts = {name: getattr(self, name) for name in names}
        chosen: dict[str, Any] = {n: p if p is None else p[rows] for n, p in parts.items()}
        return replace(self, tokens=self.tokens[rows], periods=self.periods[rows], **chosen)

    def distinct(self) -> Prompts:
        """Drop duplicate prompts; raises InputError if all are identical."""
        parts = (self.tokens, self.answers, self.answer_positions, self.wrong, self.corrupted)
        columns = torch.cat([part for part in parts if part is not None], dim=1).numpy()
        _, first = np.unique(columns, axis=0, return_index=True)
        if len(first) == 1:
            raise InputError(
                f"all {len(self)} prompts are identical; give at least 2 different ones"
            )
        return self if len(first) == len(self) else self.at(np.sort(first))

    def sought_answers(self) -> Int[np.ndarray, "row pos"]:
        """The answer at each answer position, -1 elsewhere; all -1 without answers."""
        sought = np.full(self.tokens.shape, -1)
        if self.answers is not None and self.answer_positions is not None:
            rows = np.arange(len(self))[:, None]
            sought[rows, self.answer_positions.numpy()] = self.answers.numpy()
        return sought

    def repeated(self) -> Bool[Tensor, "row pos"]:
        """Positions whose *next* token already followed the same token before."""
        positions = torch.arange(self.n_pos)
        periods = torch.from_numpy(self.periods)[:, None]
        return (periods > 0) & (positions >= self.first + periods) & (positions < self.n_pos - 1)

    def unrepeated(self) -> Bool[Tensor, "row pos"]:
        """Positions whose next token is in the first period too, and so unpredictable."""
        positions = torch.arange(self.n_pos)
        periods = torch.from_numpy(self.periods)[:, None]
        return (periods > 0) & (positions >= self.first) & (positions < self.first + periods - 1)


@takes(rows=Integral)
def repeated_prompts(
    model: Model,
    *,
    rows: int = ROWS,
    n_pos: int | None = None,
    bos: int | Literal["auto"] | None = "auto",
    ids: Collection[int] | None = None,
    seed: int = 0,
) -> Prompts:
    """Prompts of repeated random tokens for this model.

    Args:
        model: any TransformerLens model; its `cfg` has the vocabulary and the context.
        rows: number of prompts, at least 2.
        n_pos: positions of a prompt, BOS included; default: the context, at most 128.
        bos: id that each prompt begins with; "auto": the tokenizer's, if the model has one and
            prepends it; None: no BOS.
        ids: ids to sample from; None: the tokenizer's without special ones, or all without a
            tokenizer. BOS is excluded in any case.
        seed: random seed of the sampling.

    Raises:
        InputError: a context, a vocabulary or a number of rows too small for repeats; more
            positions than the context has; or a BOS id outside the vocabulary.

    Examples:
        >>> import interp_toolkit as it
        >>> repeated_prompts(it.load("toy:induction"), rows=4, n_pos=32).tokens.shape
        torch.Size([4, 32])
    """
    d_vocab, n_ctx = sizes(model, "d_vocab", "n_ctx")
    start = bos_token(model) if bos == "auto" else bos
    first = 0 if start is None else 1
    n_pos = min(n_ctx, LONGEST) if n_pos is None else n_pos
    if rows < 2:
        raise InputError(f"too few prompts ({rows}): give at least 2")
    if not SHORTEST + first <= n_pos <= n_ctx:
        raise InputError(
            f"prompts of {n_pos} positions cannot be made of repeated tokens: at least "
            f"{SHORTEST + first} are needed, and the model's context is {n_ctx}"
        )
    if start is not None and not 0 <= start < d_vocab:
        raise InputError(f"the BOS token {start} is outside the vocabulary of {d_vocab}")
    pool = plain_ids(model) if ids is None else np.array(sorted(ids), dtype=np.int64)
    candidates = pool[pool != (-1 if start is None else start)]
    if len(candidates) < FEWEST_TOKENS:
        raise InputError(
            f"a vocabulary of {d_vocab} tokens is too small for random prompts that repeat; "
            f"{FEWEST_TOKENS} are needed besides BOS"
        )
    rng = np.random.default_rng(seed)
    periods = _periods(n_pos - first, rows, rng)
    tokens = np.empty((rows, n_pos), dtype=np.int64)
    tokens[:, :first] = 0 if start is None else start
    for row, period in enumerate(periods):
        tokens[row, first:] = np.resize(_segment(candidates, int(period), rng), n_pos - first)
    source = f"repeated random tokens, {rows} × {n_pos}, periods {min(periods)} to {max(periods)}"
    return Prompts(torch.from_numpy(tokens), first, periods, source)


def repeated_answers(model: Model, *, rows: int = 4 * ROWS, seed: int = 0) -> FeatureData:
    """Repeated prompts whose answer is their last token, which the context determines.

    Raises InputError as `repeated_prompts`, and for a model whose outputs are not its tokens.
    """
    outputs, ids = int(model.cfg.d_vocab_out), int(model.cfg.d_vocab)
    if outputs not in (-1, ids):  # -1: as many, in TransformerLens' configuration
        raise InputError(
            f"the model has {ids} tokens and {outputs} outputs, so a repeated token cannot be "
            "the answer; give prompts with answers (--data)"
        )
    prompts = repeated_prompts(model, rows=rows, seed=seed)
    tokens = prompts.tokens.numpy()
    return FeatureData(
        tokens,
        np.zeros((rows, 0), bool),
        (),
        source=f"{prompts.source}, their last token",
        answers=tokens[:, -1],
        answer_positions=np.full((rows, 1), prompts.n_pos - 2),
    )


def random_prompts(model: Model, n_pos: int, *, rows: int = ROWS, seed: int = 0) -> Prompts:
    """Prompts of random tokens, for contexts that are too short for repeats."""
    generator = torch.Generator().manual_seed(seed)
    pool = torch.from_numpy(plain_ids(model))
    tokens = pool[torch.randint(len(pool), (rows, n_pos), generator=generator)]
    return Prompts(tokens, 0, np.zeros(rows, dtype=np.int64), f"random tokens, {rows} × {n_pos}")


def walks(model: Model, like: Prompts, *, seed: int = 0) -> Prompts:
    """Random tokens over a small alphabet per prompt, in which every token recurs often.

    Hops from one occurrence to the next need such prompts. Neighbors differ; shape and BOS are
    those of `like`.
    """
    ids = np.setdiff1d(plain_ids(model), like.tokens[:, : like.first].numpy())
    rng = np.random.default_rng([seed, 1])
    tokens = like.tokens.numpy().copy()
    length = like.n_pos - like.first
    size = min(len(ids), max(FEWEST_TOKENS + 1, length // VISITS))
    for row in tokens:
        row[like.first :] = _segment(rng.choice(ids, size, replace=False), length, rng)
    source = f"random walks over {size} tokens, {len(tokens)} × {like.n_pos}"
    return Prompts(torch.from_numpy(tokens), like.first, np.zeros(len(tokens), int), source)


def prompts_from_data(data: FeatureData, model: Model) -> Prompts:
    """A user's prompts with their answers, wrong answers and corrupted prompts, if any.

    Raises InputError for prompts of different lengths, or as `prompts_from_tokens`.
    """
    _check_one_length(data)
    prompts = prompts_from_tokens(data.token_matrix(), model)
    if data.answers is None or data.answer_positions is None:
        return prompts
    corrupted = None
    if data.corrupted is not None:
        corrupted = prompts_from_tokens(np.stack(list(data.corrupted)), model).tokens
    return replace(
        prompts,
        answers=torch.from_numpy(np.asarray(data.answers)),
        answer_positions=torch.from_numpy(np.asarray(data.answer_positions)),
        wrong=None if data.wrong is None else torch.from_numpy(np.asarray(data.wrong)),
        corrupted=corrupted,
        source=f"{data.source}: rows with answers, {len(prompts)} × {prompts.n_pos}",
    )


def copies_note(prompts: Prompts, distinct: Prompts) -> str | None:
    """A note that duplicate prompts were left out; None where there were none."""
    copies = len(prompts) - len(distinct)
    return (
        f"{copies} of {len(prompts)} prompts are duplicates and were left out" if copies else None
    )


def on_prompts(findings: Sequence[str], source: str, n: int, *, synthetic: bool) -> list[str]:
    """Findings of which the first names the prompts that they are about.

    Args:
        findings: sentences.
        source: short description of the prompts.
        n: number of prompts.
        synthetic: whether they were made, for lack of the user's.
    """
    which = f"{n} synthetic prompts ({source}), not your data" if synthetic else f"{n} prompts"
    where = which if synthetic else f"{which} ({source})"
    return [f"On {where}: {first}" if not i else first for i, first in enumerate(findings)]


def unseen_note(n: int) -> str:
    """What intervals over prompts allow for (see `stats.estimate`).

    Args:
        n: number of prompts.
    """
    most = clopper_pearson(0, n)[1]
    return (
        f"CIs allow for a kind of prompt that none of these {n} is: up to {100 * most:.1f} % of "
        "all prompts may be of one; more prompts narrow them"
    )


def _check_one_length(data: FeatureData) -> None:
    """Raise InputError with the lengths, if prompts have more than one."""
    lengths, counts = np.unique(data.lengths, return_counts=True)
    if len(lengths) == 1:
        return
    pairs = list(zip(lengths.tolist(), counts.tolist(), strict=True))
    named = listed([f"{length} ({count})" for length, count in pairs], LENGTHS_NAMED)
    commonest = max(pairs, key=lambda pair: pair[1])[0]
    raise InputError(
        f"{data.source}: this needs prompts of one length; tokens (prompts): {named}; keep "
        f"those of one length, such as {commonest}"
    )


def prompts_from_tokens(tokens: Any, model: Model) -> Prompts:
    """A user's token ids, integers [row pos], with their periods of repetition.

    Raises InputError for another kind of array, fewer than two rows, rows that are too short or too
    long, and tokens that the model does not have.
    """
    try:
        values = tokens.detach().cpu().numpy() if isinstance(tokens, Tensor) else np.asarray(tokens)
    except ValueError:  # ragged
        values = np.empty(0)
    if values.ndim != 2 or values.dtype.kind not in "iu" or 0 in values.shape:
        raise InputError("tokens must be integers [row pos], rows of one length")
    d_vocab, n_ctx = int(model.cfg.d_vocab), int(model.cfg.n_ctx)
    if len(values) < 2:
        raise InputError("one prompt is too few; give at least 2")
    if not SHORTEST_USER_PROMPT <= values.shape[1] <= n_ctx:
        raise InputError(
            f"rows have {values.shape[1]} tokens; {SHORTEST_USER_PROMPT} to {n_ctx} are needed"
        )
    if values.min() < 0 or values.max() >= d_vocab:
        raise InputError(f"token ids lie outside the vocabulary (0 to {d_vocab - 1})")
    values = values.astype(np.int64)
    first = int((values[:, 0] == values[0, 0]).all() and (values[:, 1:] != values[0, 0]).all())
    periods = np.array([_period(row[first:]) for row in values])
    rows, n_pos = values.shape
    return Prompts(torch.from_numpy(values), first, periods, f"given tokens, {rows} × {n_pos}")


def plain_ids(model: Model) -> Int[np.ndarray, " token"]:
    """The ids of ordinary tokens: the tokenizer's, without special ones.

    All ids of the vocabulary if there is no tokenizer, or if it has too few tokens for prompts.
    """
    d_vocab, tokenizer = int(model.cfg.d_vocab), getattr(model, "tokenizer", None)
    every = np.arange(d_vocab, dtype=np.int64)
    if tokenizer is None or not hasattr(tokenizer, "get_vocab"):
        return every
    added = getattr(tokenizer, "added_tokens_decoder", {})
    special = {number for number, token in added.items() if getattr(token, "special", False)}
    special |= set(getattr(tokenizer, "all_special_ids", ()))
    valid = {number for number in tokenizer.get_vocab().values() if 0 <= number < d_vocab}
    plain = np.array(sorted(valid - special), dtype=np.int64)
    return plain if len(plain) > FEWEST_TOKENS else every


def bos_token(model: Model) -> int | None:
    """The tokenizer's BOS id, if the model prepends it to prompts."""
    token = getattr(getattr(model, "tokenizer", None), "bos_token_id", None)
    prepends_bos = getattr(model.cfg, "default_prepend_bos", True)
    return int(token) if token is not None and prepends_bos else None


def _periods(n_pos: int, rows: int, rng: np.random.Generator) -> Int[np.ndarray, " row"]:
    """Random periods of a third to a half of the prompt; none recurs before all were used."""
    choices = np.arange(max(3, -(-n_pos // 3)), n_pos // 2 + 1)
    full = np.concatenate([rng.permutation(choices) for _ in range(-(-rows // len(choices)))])
    return full[:rows]


def _segment(
    ids: Int[np.ndarray, " id"], period: int, rng: np.random.Generator
) -> Int[np.ndarray, " period"]:
    """A segment of distinct tokens; if there are too few, neighbors differ, also across its end."""
    if len(ids) >= period:
        return rng.choice(ids, period, replace=False)
    segment = [int(rng.choice(ids))]
    while len(segment) < period:
        barred = {segment[-1], segment[0]} if len(segment) == period - 1 else {segment[-1]}
        segment.append(int(rng.choice([t for t in ids.tolist() if t not in barred])))
    return np.array(segment)


def _period(row: Int[np.ndarray, " pos"]) -> int:
    """The shortest period that the prompt contains at least one and a half times; 0 for none."""
    for period in range(2, 2 * len(row) // 3 + 1):
        if (row[period:] == row[:-period]).all():
            return period
    return 0
