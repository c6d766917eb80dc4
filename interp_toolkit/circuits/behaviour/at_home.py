"""Prompts on which a model is at home: which first token, which length, which ids.

Repeated random tokens are a fallback for models that come without rows of their own, and assume
much: that any id may stand anywhere, that rows may be as long as the context, that they begin
without or with a certain token. What a model was trained with is often to be seen in it. So rows
are made in several ways and the model's use of repetition is measured on each; the first way in
which it is certain is taken (else the plain one, and the model is said not to be at home there):
- first token: what was asked for, or the tokenizer's BOS, or none; then single ids that rows may
  begin with: 0, the last few, and those whose embedding is much larger or smaller than most;
- length: the context; where position embeddings end earlier (their norm falls to untrained size),
  up to there; a half and a quarter of it;
- ids: all; without those whose embedding has the norm of none that was trained.
Rows that the model is at home on in their first part only (trained on shorter ones) are shortened
to where its loss on repeated tokens rises, and that is said.

Also here:
- whether a model does a behaviour at all, asked before anything is said of what carries it.

The share of answers that are right, or preferred to the wrong ones, with its interval, against
chance (see `task`). Where rows have corrupted prompts, the same share on these stands beside it,
of the clean prompts' answers: where it is as large there, what was exchanged is not what the
preference rests on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int

from interp_toolkit.circuits.behaviour.advantage import Behaviour, behaviour, why_none
from interp_toolkit.circuits.behaviour.prompts import (
    FEWEST_TOKENS,
    LONGEST,
    ROWS,
    SHORTEST,
    Prompts,
    bos_token,
    plain_ids,
    random_prompts,
    repeated_prompts,
)
from interp_toolkit.circuits.behaviour.task import AtHome, measured_home, task_of
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.loading.check_assumptions import check_assumptions
from interp_toolkit.models.model import Model
from interp_toolkit.stats import estimate


@dataclass(frozen=True)
class CheckedHome:
    """Task performance on prompts with answers, and on their corrupted prompts.

    Attributes:
        clean: on the rows; certainly above chance.
        corrupted: on the corrupted prompts, with the answers of the clean ones; None: there are
            none.
    """

    clean: AtHome
    corrupted: AtHome | None

    @property
    def said(self) -> str:
        """The performance in one sentence."""
        if self.corrupted is None:
            return self.clean.said
        value = self.corrupted.value
        return (
            f"{self.clean.said}; on the corrupted prompts {value.mean:.1%} "
            f"[{value.low:.1%}, {value.high:.1%}]"
        )


def checked_home(model: Model, prompts: Prompts, memory: int | str | None = None) -> CheckedHome:
    """Task performance on prompts with answers; an error unless it is certainly above chance.

    Args:
        model: any TransformerLens model.
        prompts: rows with answers.
        memory: bound for the run.

    Raises:
        InputError: rows without answers; a model whose interval does not lie above chance, with
            its figure.

    Examples:
        >>> import interp_toolkit as it
        >>> from interp_toolkit.circuits.behaviour.prompts import prompts_from_tokens
        >>> model = it.load("toy:induction")
        >>> rows = prompts_from_tokens(np.array([[5, 7, 9, 5, 7], [3, 8, 2, 3, 8]]), model)
        >>> checked_home(model, rows)
        Traceback (most recent call last):
            ...
        interp_toolkit.errors.InputError: these rows have no answers, so there is no behaviour to \
look for; give answers
    """
    if prompts.answers is None:
        raise InputError(
            "these rows have no answers, so there is no behaviour to look for; give answers"
        )
    task, _ = task_of(model, prompts)
    assert task is not None
    clean = measured_home(model, task, memory)
    if not clean.yes:
        raise InputError(
            f"the model is not seen to do this: {clean.said}; nothing can be said of what carries "
            "it; take another model or task, or more rows"
        )
    if prompts.corrupted is None:
        return CheckedHome(clean, None)
    other, _ = task_of(model, replace(prompts, tokens=prompts.corrupted))
    assert other is not None
    return CheckedHome(clean, measured_home(model, other, memory))


LAST_IDS = 3  # ids at the vocabulary's end, where separators often are
ODD = 2.0  # times the median norm, either way: an embedding unlike most
RISE = 1.0  # nats that the loss rises by where a row becomes too long for the model
FEWEST_AFTER, FEWEST_ROWS = 4, 6  # places after a rise, and rows, that tell it
TRIED_ROWS = 8  # for each way but the one that is taken
MOST_WAYS = 24


@dataclass(frozen=True)
class Way:
    """One way to make rows.

    Attributes:
        first: the token that rows begin with; None: none.
        n_pos: their length.
        ids: those that are drawn from; None: all.
    """

    first: int | None
    n_pos: int
    ids: tuple[int, ...] | None = None

    def said(self) -> str:
        """The prompt format in a few words."""
        begin = "no first token" if self.first is None else f"first token {self.first}"
        n_ids = "" if self.ids is None else f", {len(self.ids)} ids"
        return f"{begin}, {self.n_pos} positions{n_ids}"


def home_prompts(
    model: Model,
    *,
    bos: int | Literal["auto"] | None = "auto",
    length: int | None = None,
    seed: int = 0,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
    search: bool = True,
    rows: int = ROWS,
    longest: int = LONGEST,
) -> tuple[Prompts, Way, str | None]:
    """Repeated prompts in the first way in which the model certainly uses repetition.

    Args:
        model: any TransformerLens model.
        bos: as `repeated_prompts` takes it; an id or None is kept to.
        length: of the rows; None: as in the module.
        seed: of the draws.
        memory: bound for the run.
        progress: told what is being done.
        search: whether the model is run to find that way; False: the plain way, untested.
        rows: how many.
        longest: positions of a row at most, where `length` is None.

    Returns:
        The prompts, how they were made, and a note where that is not the plain way.

    Raises:
        InputError: as `repeated_prompts`, but for a short context: rows are random tokens there.
    """
    first = bos_token(model) if bos == "auto" else bos
    plain = Way(first, min(int(model.cfg.n_ctx), longest) if length is None else length)
    shortest = SHORTEST + (plain.first is not None)
    if length is None and plain.n_pos < shortest:
        note = f"a context of {plain.n_pos} holds no repeats: rows are random tokens"
        return random_prompts(model, plain.n_pos, seed=seed), plain, note
    prompts = made(model, plain, rows=rows, seed=seed)
    if not search or why_none(model, prompts) is not None:
        return prompts, plain, None
    plainly = behaviour(model, prompts, memory)
    if plainly.is_there():
        if length is not None:
            return prompts, plain, None
        return _as_long_as_trained(model, prompts, plain, plainly, seed, memory)
    ways = [way for way in _ways(model, plain, bos, length) if way != plain][:MOST_WAYS]
    for number, way in enumerate(ways, start=1):
        progress(f"looking for rows the model is at home on, {number} of {len(ways)}")
        try:
            tried = made(model, way, rows=TRIED_ROWS, seed=seed)
        except InputError:  # too few ids are left, or positions
            continue
        if not behaviour(model, tried, memory).is_there():
            continue
        fresh = made(model, way, rows=rows, seed=seed + 1)  # rows that took no part in choosing
        if behaviour(model, fresh, memory).is_there():
            note = (
                f"prompts were made with {way.said()}: the model makes use of repetition there, "
                f"and none is seen with {plain.said()}"
            )
            return fresh, way, note
    return prompts, plain, None


def _as_long_as_trained(
    model: Model,
    prompts: Prompts,
    way: Way,
    plainly: Behaviour,
    seed: int,
    memory: int | str | None,
) -> tuple[Prompts, Way, str | None]:
    """The prompts, shortened where the loss on repeated tokens rises along the row."""
    position = rising_position(plainly.losses)
    if position is None or position < SHORTEST + 1:
        return prompts, way, None
    shorter = replace(way, n_pos=position)
    shortened = made(model, shorter, rows=len(prompts), seed=seed)
    if not behaviour(model, shortened, memory).is_there():
        return prompts, way, None
    note = (
        f"prompts have {position} positions: from there on its loss on repeated tokens rises, "
        "as if it was trained on no longer rows (--length chooses)"
    )
    return shortened, shorter, note


def rising_position(losses: Float[np.ndarray, "row pos"]) -> int | None:
    """The position from which the loss stays at least RISE nats higher, in every prompt.

    Of all places the one with the largest difference of the means after and before; None where
    that is less, or not certain (t interval over rows).
    """
    best, where = 0.0, None
    n_pos = losses.shape[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # rows that do not repeat that early
        for position in range(1, n_pos - FEWEST_AFTER):
            rises = np.nanmean(losses[:, position:], axis=1) - np.nanmean(
                losses[:, :position], axis=1
            )
            rises = rises[~np.isnan(rises)]
            if len(rises) < FEWEST_ROWS or rises.mean() <= best:
                continue
            if estimate(rises).low >= RISE:
                best, where = float(rises.mean()), position
    return where


def assumption_note(model: Model, data: FeatureData) -> str | None:
    """Evidence from the answers against settings assumed when the model was loaded.

    None where nothing was assumed, the rows ask nothing, or no alternative answers them better.
    """
    nothing = not record_of(model).alternatives
    if nothing or data.answers is None or len(np.unique(data.lengths)) > 1:
        return None
    positions = np.asarray(data.answer_positions)
    check = check_assumptions(model, data.token_matrix(), np.asarray(data.answers), positions)
    return check.sentence


def made(model: Model, way: Way, *, rows: int = ROWS, seed: int = 0) -> Prompts:
    """Repeated prompts made in a way."""
    return repeated_prompts(
        model, rows=rows, n_pos=way.n_pos, bos=way.first, ids=way.ids, seed=seed
    )


def _ways(
    model: Model, plain: Way, bos: int | Literal["auto"] | None, length: int | None
) -> Iterator[Way]:
    """Other ways, the likeliest first."""
    norms = _norms(model, "embed", "W_E")
    odd = [] if norms is None else _odd(norms)
    d_vocab = int(model.cfg.d_vocab)
    ends = [0, *range(d_vocab - 1, max(d_vocab - 1 - LAST_IDS, 0), -1)]
    starts: list[int | None] = [plain.first]
    if bos == "auto":
        starts += [None, *ends, *odd[:LAST_IDS]]
    shortest = SHORTEST + 1
    lengths = [plain.n_pos]
    if length is None:
        trained = _trained_positions(model)
        lengths += [n for n in (trained, plain.n_pos // 2, plain.n_pos // 4) if n and n >= shortest]
    usual = tuple(t for t in plain_ids(model).tolist() if t not in odd)
    some = usual if odd and len(usual) > FEWEST_TOKENS else None
    for n_pos in dict.fromkeys(lengths):
        for first in dict.fromkeys(starts):
            yield Way(first, n_pos)
            if some is not None:
                yield Way(first, n_pos, some)


def _norms(model: Model, module: str, name: str) -> Float[np.ndarray, " row"] | None:
    weight: Any = getattr(getattr(model, module, None), name, None)
    if not isinstance(weight, torch.Tensor) or weight.ndim != 2 or len(weight) < FEWEST_TOKENS:
        return None
    norms: np.ndarray = weight.detach().float().norm(dim=1).cpu().numpy()
    return norms


def _odd(norms: Float[np.ndarray, " token"]) -> list[int]:
    """Ids whose embedding is much larger or smaller than most, the oddest first."""
    middle = float(np.median(norms))
    if middle <= 0:
        return []
    ratio = np.maximum(norms, 1e-12) / middle
    away: Int[np.ndarray, " token"] = np.argsort(-np.abs(np.log(ratio)), kind="stable")
    return [int(t) for t in away if ratio[t] >= ODD or ratio[t] <= 1 / ODD]


def _trained_positions(model: Model) -> int | None:
    """The number of trained position embeddings, by their norm; None where all or none are."""
    norms = _norms(model, "pos_embed", "W_pos")
    if norms is None:
        return None
    last = norms[-1]
    differ = np.flatnonzero(np.abs(norms - last) > 0.5 * max(float(norms.max()), 1e-12))
    n_pos = int(differ.max()) + 1 if len(differ) else 0
    return n_pos if 0 < n_pos < len(norms) else None
