"""Lists of tokens: delimiters, and ordered lists (weekdays, numbers, letters).

The model's own tokenizer identifies punctuation and line breaks. Ordered lists identify prompts
whose answer is the successor of a token. They also give a score from weights alone: whether heads'
OV circuits map tokens to their successors.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.circuits.roles.reading import Queries
from interp_toolkit.circuits.weights.token_scores import read_through
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model
from interp_toolkit.models.weights.parts import converted, neurons
from interp_toolkit.models.weights.precision import at_least_single
from interp_toolkit.models.weights.view import ModelWeights
from interp_toolkit.stats import LEVEL, rank_p_values


def delimiter_positions(model: Model, queries: Queries) -> Bool[np.ndarray, "query pos"] | None:
    """Earlier positions of delimiters, without the first position; None without a tokenizer."""
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        return None
    ids = np.unique(queries.tokens)
    try:
        texts = [str(tokenizer.decode([token])) for token in ids.tolist()]
    except Exception:  # strangers' tokenizers, ids beyond theirs
        return None
    marks = ids[[is_delimiter(text) for text in texts]]
    at_delimiter: np.ndarray = queries.earlier & np.isin(queries.tokens, marks)
    at_delimiter[:, 0] = False
    return at_delimiter


def is_delimiter(text: str) -> bool:
    r"""Whether a token consists of punctuation only, or is a line break.

    Examples:
        >>> [is_delimiter(text) for text in (" ,", "\n", " a", " ")]
        [True, True, False, False]
    """
    bare = text.strip()
    if not bare:
        return "\n" in text
    return all(unicodedata.category(letter).startswith("P") for letter in bare)


FEWEST = 4  # members: with fewer, other shifts and orders say nothing
LISTS = (
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "January February March April May June July August September October November December",
    "one two three four five six seven eight nine ten eleven twelve",
    "first second third fourth fifth sixth seventh eighth ninth tenth",
    "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20",
    "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z",
)


@dataclass(frozen=True, eq=False)
class Successions:
    """The queries whose answer is a successor.

    Attributes:
        lists: token ids in order, of lists that contain some answer.
        which: index of each query's list; -1 if its answer is no successor.
        before: token before the answer on that list; -1 if the answer is no successor.
    """

    lists: tuple[Int[np.ndarray, " member"], ...]
    which: Int[np.ndarray, " query"]
    before: Int[np.ndarray, " query"]

    @property
    def is_successor(self) -> Bool[np.ndarray, " query"]:
        """Whether the answer of each query is a successor."""
        has_list: np.ndarray = self.which >= 0
        return has_list


def lists_of(
    model: Model, token_lists: Sequence[Sequence[int]] | None
) -> list[Int[np.ndarray, " m"]]:
    """Ordered lists of tokens: the user's, or those of the tokenizer; empty without either.

    Raises InputError for a list that is too short, or has a token twice or outside the vocabulary.
    """
    if token_lists is None:
        tokenizer = getattr(model, "tokenizer", None)
        return [] if tokenizer is None else _of_tokenizer(tokenizer)
    lists = [np.asarray(members, dtype=np.int64) for members in token_lists]
    d_vocab = int(model.cfg.d_vocab)
    for members in lists:
        if members.ndim != 1 or len(np.unique(members)) != len(members) or len(members) < FEWEST:
            raise InputError(f"a list of successors needs at least {FEWEST} different tokens")
        if members.min() < 0 or members.max() >= d_vocab:
            raise InputError(f"a list of successors has tokens outside 0 to {d_vocab - 1}")
    return lists


def successions(queries: Queries, lists: Sequence[Int[np.ndarray, " m"]]) -> Successions:
    """The queries whose answer is a successor, by the first list that contains it."""
    which, before = (np.full(len(queries), -1) for _ in range(2))
    for number, members in enumerate(lists):
        follows = dict(zip(members[1:].tolist(), members[:-1].tolist(), strict=True))
        token = np.array([follows.get(answer, -1) for answer in queries.answer.tolist()])
        starts = (which < 0) & (token >= 0) & queries.holding(token).any(1)
        which[starts], before[starts] = number, token[starts]
    used = [number for number in range(len(lists)) if (which == number).any()]
    renamed = np.array([used.index(n) if n in used else -1 for n in which.tolist()], dtype=int)
    return Successions(tuple(lists[n] for n in used), renamed, before)


def _of_tokenizer(tokenizer: Any) -> list[Int[np.ndarray, " member"]]:
    lists: list[Int[np.ndarray, " member"]] = []
    for text in LISTS:
        for space in (" ", ""):
            ids = [_single(tokenizer, space + word) for word in text.split()]
            longest = _longest(ids)
            if len(longest) >= FEWEST and not any(
                np.array_equal(longest, other) for other in lists
            ):
                lists.append(np.array(longest))
    return lists


def _single(tokenizer: Any, text: str) -> int | None:
    """The id of a text that is a single token, else None."""
    try:
        ids = tokenizer.encode(text, add_special_tokens=False)
    except Exception:  # strangers' tokenizers
        return None
    ids = getattr(ids, "ids", ids)
    return int(ids[0]) if len(ids) == 1 else None


def _longest(ids: Sequence[int | None]) -> list[int]:
    """The longest stretch without a gap, since a token before a gap has no successor."""
    best: list[int] = []
    run: list[int] = []
    for token in [*ids, None]:
        if token is None or token in run:
            best, run = max(best, run, key=len), []
        else:
            run.append(token)
    return best


DRAWS = 2000
TIE = 1e-6


@dataclass(frozen=True, eq=False)
class ListCircuits:
    """Effect of every head's OV circuit on lists of tokens.

    Attributes:
        score: mean entry at the successor, in units of the root mean square of all entries.
        p_value: adjusted for all heads.
        best_shift: whether no other shift along the lists scores as much.
        note: the approximation that was made, or None.
    """

    score: Float[np.ndarray, "layer head"]
    p_value: Float[np.ndarray, "layer head"]
    best_shift: Bool[np.ndarray, "layer head"]
    note: str | None

    @property
    def passes(self) -> Bool[np.ndarray, "layer head"]:
        """Whether a circuit maps tokens to their successors."""
        passing: np.ndarray = (self.p_value <= LEVEL) & self.may
        return passing

    @property
    def may(self) -> Bool[np.ndarray, "layer head"]:
        """Whether the shift to the successor scores highest, significantly or not."""
        possible: np.ndarray = (self.score > 0) & self.best_shift
        return possible


@torch.no_grad()
def list_circuits(
    view: ModelWeights, lists: Sequence[Int[np.ndarray, " member"]], *, seed: int = 0
) -> ListCircuits:
    """Successor scores of every head; raises InputError for weights that cannot be read."""
    tables, note = [], None
    for members in lists:
        embedded, embedding_note = effective_embedding(view, torch.from_numpy(members))
        note = note or embedding_note
        tables.append(_tables(view, members, embedded))
    flat = [_centred(table) for table in tables]  # layer head source target
    size = np.sqrt(sum(np.square(t).sum((-1, -2)) for t in flat))
    size = np.where(size > 0, size, 1.0)
    score = sum(_at_shift(t, 1) for t in flat) / size
    others = [s for s in range(-2, 4) if s != 1]
    rivals = np.stack([sum(_at_shift(t, s) for t in flat) / size for s in others])
    rng = np.random.default_rng(seed)
    null = np.empty(DRAWS)
    for draw in range(DRAWS):
        orders = [rng.permutation(t.shape[-1]) for t in flat]
        shuffled = sum(_at_shift(t[..., o], 1) for t, o in zip(flat, orders, strict=True)) / size
        null[draw] = shuffled.max()
    p_value = rank_p_values(score - TIE, null)
    return ListCircuits(score, p_value, np.all(score > rivals, axis=0), note)


@torch.no_grad()
def effective_embedding(
    view: ModelWeights, tokens: Int[Tensor, " token"]
) -> tuple[Float[Tensor, "token d_model"], str | None]:
    """Embeddings plus MLP 0's output, or without it if it cannot be computed, and the reason."""
    x = view.embed(tokens.to(view.W_E.device))
    try:
        w = view.mlp(0)
        if w is None:
            return x, None
        added = neurons(w, w.norm(x).to(w.W_in)) @ w.W_out + w.b_out
        return x + w.post_norm(added).to(x), None
    except InputError as error:
        return x, f"successor scores from weights leave out MLP 0: {error}"


def _tables(
    view: ModelWeights, members: Int[np.ndarray, " m"], embedded: Float[Tensor, "m d_model"]
) -> Float[np.ndarray, "layer head m m"]:
    U = read_through(view.final_norm, view.W_U[:, members])
    alone = view.embed(torch.from_numpy(members).to(view.W_E.device))
    tables = []
    for layer in range(view.n_layers):
        try:
            w = converted(view.ov(layer), at_least_single)
        except InputError:  # no score, so no head there passes
            tables.append(np.zeros((view.n_heads, len(members), len(members)), np.float32))
            continue
        x = w.norm(embedded if layer else alone).to(w.W_V)
        v = w.values(x[None])[0].movedim(1, 0)
        tables.append((v @ (w.W_O @ U)).cpu().numpy())
    return np.stack(tables)


def _centred(table: Float[np.ndarray, "*some m m"]) -> Float[np.ndarray, "*some m m"]:
    table = table - table.mean(-1, keepdims=True)
    centred: np.ndarray = table - table.mean(-2, keepdims=True)
    return centred


def _at_shift(table: Float[np.ndarray, "*some m m"], shift: int) -> Float[np.ndarray, "*some"]:
    """Mean entry `shift` columns to the right of the diagonal, times the table's side m."""
    m = table.shape[-1]
    along = np.diagonal(table, shift, -2, -1)
    mean: np.ndarray = along.mean(-1) * m if along.shape[-1] else np.zeros(table.shape[:-2])
    return mean
