"""Task performance: whether a model performs the task of its prompts, and prompts on which it does.

*Prompts with answers.* Performance is the fraction of answers that are right, or preferred to the
wrong ones, with its interval, compared with chance (see `task`). Where prompts have corrupted
counterparts, the same fraction is measured on those for the clean prompts' answers. If it is as
large there, the preference does not depend on the tokens that were exchanged.

*Repeated random tokens* are the fallback for a model without prompts of its own. They assume that
any id may stand at any position, that prompts may be as long as the context, and how a prompt
begins. The weights often show traces of the training prompts' format. Prompts are therefore made in
several formats, and the model's use of repetition (see `repetition`) is measured on each. The
first format with a significant in-context advantage is used; if there is none, the plain format is,
on which the model is not seen to perform the task. Formats vary in
- the first token: the one requested, else the tokenizer's BOS, else none; then single ids that
  prompts may begin with: 0, the last few, and those whose embedding norm is far above or below
  the median;
- the length: the context; where position embeddings end earlier (their norm drops to that of
  untrained ones), up to that position; a half and a quarter of the context;
- the ids: all; all but those whose embedding norm is that of untrained ones.

A model trained on shorter prompts may use repetition in their first part only. The prompts are then
shortened to the position from which the loss on repeated tokens rises, and a note records it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int

from interp_toolkit.circuits.metrics.prompts import (
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
from interp_toolkit.circuits.metrics.repetition import (
    RepetitionLosses,
    repetition_losses,
    why_not_measurable,
)
from interp_toolkit.circuits.metrics.task import AnswerTask, TaskCheck, check_task, task_of
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.formatting import percent_ci
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.loading.check_assumptions import check_assumptions
from interp_toolkit.models.model import Model
from interp_toolkit.options import Effort
from interp_toolkit.stats import estimate


@dataclass(frozen=True)
class TaskPerformance:
    """Task performance on prompts with answers, and on their corrupted prompts.

    Attributes:
        clean: performance on the clean prompts, significantly above chance.
        corrupted: performance on the corrupted prompts, for the answers of the clean ones; or
            None.
    """

    clean: TaskCheck
    corrupted: TaskCheck | None

    @property
    def summary(self) -> str:
        """The performance in one sentence."""
        if self.corrupted is None:
            return self.clean.summary
        value = self.corrupted.value
        return f"{self.clean.summary}; on the corrupted prompts {percent_ci(value, 1)}"


def task_performance(
    model: Model, prompts: Prompts, memory: int | str | None = None
) -> TaskPerformance:
    """Task performance on prompts with answers; an error unless significantly above chance.

    Args:
        model: any TransformerLens model.
        prompts: prompts with answers.
        memory: bound for the run.

    Raises:
        InputError: prompts without answers; a performance whose interval does not lie above
            chance.

    Examples:
        >>> import interp_toolkit as it
        >>> from interp_toolkit.circuits.metrics.prompts import prompts_from_tokens
        >>> model = it.load("toy:induction")
        >>> rows = prompts_from_tokens(np.array([[5, 7, 9, 5, 7], [3, 8, 2, 3, 8]]), model)
        >>> task_performance(model, rows)
        Traceback (most recent call last):
            ...
        interp_toolkit.errors.InputError: these prompts have no answers, so they define no task; \
give answers
    """
    if prompts.answers is None:
        raise InputError("these prompts have no answers, so they define no task; give answers")
    task, _ = task_of(model, prompts)
    assert task is not None
    clean = check_task(model, task, memory)
    if not clean.yes:
        raise InputError(
            f"the model has not been shown to perform this task: {clean.summary}; give another "
            "model or task, or more prompts"
        )
    if prompts.corrupted is None:
        return TaskPerformance(clean, None)
    other, _ = task_of(model, replace(prompts, tokens=prompts.corrupted))
    assert other is not None
    return TaskPerformance(clean, check_task(model, other, memory))


LAST_IDS = 3  # ids at the vocabulary's end, where separators often are
ODD = 2.0  # times the median norm, either way: an embedding unlike most
RISE = 1.0  # nats that the loss rises by where a row becomes too long for the model
LARGE = 1e11  # operations on the usual prompts of a large model: seconds on one core
LARGE_SCORED, LARGE_LENGTH = 8, 40  # made prompts of a large model, and their positions
LARGE_ROWS = 12  # its made prompts that attention is knocked out on
FEWEST_AFTER, FEWEST_ROWS = 4, 6  # positions after a rise, and prompts, to detect it
TRIED_ROWS = 8  # for each way but the one that is taken
MOST_FORMATS = 24


@dataclass(frozen=True)
class PromptFormat:
    """A format of prompts of repeated tokens.

    Attributes:
        first: the token that prompts begin with; None: none.
        n_pos: their length.
        ids: the ids that tokens are drawn from; None: all.
    """

    first: int | None
    n_pos: int
    ids: tuple[int, ...] | None = None

    def describe(self) -> str:
        """The prompt format in a few words."""
        begin = "no first token" if self.first is None else f"first token {self.first}"
        n_ids = "" if self.ids is None else f", {len(self.ids)} ids"
        return f"{begin}, {self.n_pos} positions{n_ids}"


def is_large(
    model: Any, data: FeatureData | None, effort: Effort, length: int | None = None
) -> bool:
    """Whether the model is so expensive to run that analyses limit the number of passes.

    Args:
        model: any TransformerLens model.
        data: the prompts; None: synthetic ones.
        effort: no model is large for "thorough".
        length: positions of synthetic prompts; None: the context, at most LONGEST.
    """
    if effort == "thorough":
        return False
    parameters = float(sum(p.numel() for p in model.parameters()))
    if data is None:
        n_pos = min(int(model.cfg.n_ctx), LONGEST) if length is None else length
        return 2 * parameters * ROWS * n_pos >= LARGE
    rows = min(AnswerTask.first_look, len(data))
    return 2 * parameters * rows * int(np.max(data.lengths, initial=1)) >= LARGE


def synthetic_prompts(
    model: Model,
    *,
    bos: int | Literal["auto"] | None = "auto",
    length: int | None = None,
    seed: int = 0,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
    search: bool = True,
    large: bool = False,
) -> tuple[Prompts, PromptFormat, str | None]:
    """Repeated prompts in the first format in which the model significantly uses repetition.

    Args:
        model: any TransformerLens model.
        bos: as `repeated_prompts` takes it; an id or None fixes the first token.
        length: length of the prompts; None: chosen as the module describes.
        seed: random seed of the sampling.
        memory: bound for the run.
        progress: receives progress messages.
        search: whether to run the model to find that format; False: the plain format, untested.
        large: whether to make the fewer and shorter prompts of a large model (see `is_large`).

    Returns:
        The prompts, their format, and a note where it is not the plain one.

    Raises:
        InputError: as `repeated_prompts`, but not for a short context: prompts are random there.
    """
    first = bos_token(model) if bos == "auto" else bos
    rows, longest = (LARGE_SCORED, LARGE_LENGTH) if large else (ROWS, LONGEST)
    plain = PromptFormat(first, min(int(model.cfg.n_ctx), longest) if length is None else length)
    shortest = SHORTEST + (plain.first is not None)
    if length is None and plain.n_pos < shortest:
        note = (
            f"a context of {plain.n_pos} tokens is too short for repeated sequences (at least "
            f"{shortest} are needed), so the prompts are random tokens"
        )
        return random_prompts(model, plain.n_pos, seed=seed), plain, note
    prompts = prompts_in(model, plain, rows=rows, seed=seed)
    if not search or why_not_measurable(model, prompts) is not None:
        return prompts, plain, None
    plain_losses = repetition_losses(model, prompts, memory)
    if plain_losses.uses_repetition():
        if length is not None:
            return prompts, plain, None
        return _as_long_as_trained(model, prompts, plain, plain_losses, seed, memory)
    formats = [one for one in _formats(model, plain, bos, length) if one != plain][:MOST_FORMATS]
    for number, prompt_format in enumerate(formats, start=1):
        progress(f"searching for prompts with in-context learning, {number} of {len(formats)}")
        try:
            tried = prompts_in(model, prompt_format, rows=TRIED_ROWS, seed=seed)
        except InputError:  # too few ids are left, or positions
            continue
        if not repetition_losses(model, tried, memory).uses_repetition():
            continue
        # rows that took no part in choosing
        fresh = prompts_in(model, prompt_format, rows=rows, seed=seed + 1)
        if repetition_losses(model, fresh, memory).uses_repetition():
            note = (
                f"prompts were made with {prompt_format.describe()}: the model uses repetition "
                f"there, but not significantly with {plain.describe()}"
            )
            return fresh, prompt_format, note
    return prompts, plain, None


def _as_long_as_trained(
    model: Model,
    prompts: Prompts,
    prompt_format: PromptFormat,
    plain_losses: RepetitionLosses,
    seed: int,
    memory: int | str | None,
) -> tuple[Prompts, PromptFormat, str | None]:
    """The prompts, shortened to where the loss on repeated tokens rises along them."""
    position = rising_position(plain_losses.losses)
    if position is None or position < SHORTEST + 1:
        return prompts, prompt_format, None
    shorter = replace(prompt_format, n_pos=position)
    shortened = prompts_in(model, shorter, rows=len(prompts), seed=seed)
    if not repetition_losses(model, shortened, memory).uses_repetition():
        return prompts, prompt_format, None
    note = (
        f"prompts have {position} positions: beyond, the loss on repeated tokens rises, as if "
        "the model was not trained on longer ones (change with --length)"
    )
    return shortened, shorter, note


def rising_position(losses: Float[np.ndarray, "row pos"]) -> int | None:
    """The position from which the loss stays at least RISE nats higher, in every prompt.

    If there are several, it is the one with the largest rise of the mean loss. None if no rise is
    significantly that large (t interval over prompts).
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
    """Evidence in the answers against settings that were assumed when the model was loaded.

    None if nothing was assumed, the prompts have no answers, or no alternative is more accurate.
    """
    nothing = not record_of(model).alternatives
    if nothing or data.answers is None or len(np.unique(data.lengths)) > 1:
        return None
    positions = np.asarray(data.answer_positions)
    check = check_assumptions(model, data.token_matrix(), np.asarray(data.answers), positions)
    return check.sentence


def prompts_in(
    model: Model, prompt_format: PromptFormat, *, rows: int = ROWS, seed: int = 0
) -> Prompts:
    """Repeated prompts in a format."""
    return repeated_prompts(
        model,
        rows=rows,
        n_pos=prompt_format.n_pos,
        bos=prompt_format.first,
        ids=prompt_format.ids,
        seed=seed,
    )


def _formats(
    model: Model, plain: PromptFormat, bos: int | Literal["auto"] | None, length: int | None
) -> Iterator[PromptFormat]:
    """Alternative formats, the most plausible first."""
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
            yield PromptFormat(first, n_pos)
            if some is not None:
                yield PromptFormat(first, n_pos, some)


def _norms(model: Model, module: str, name: str) -> Float[np.ndarray, " row"] | None:
    weight: Any = getattr(getattr(model, module, None), name, None)
    if not isinstance(weight, torch.Tensor) or weight.ndim != 2 or len(weight) < FEWEST_TOKENS:
        return None
    norms: np.ndarray = weight.detach().float().norm(dim=1).cpu().numpy()
    return norms


def _odd(norms: Float[np.ndarray, " token"]) -> list[int]:
    """Ids whose embedding norm is far from the median, the farthest first."""
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
