"""Metrics that identify a sorting algorithm, for a model, for each head, and along training.

The same metrics are measured for the model, for each head alone, for weight-shuffled models and for
checkpoints. For a model with several heads, attention and OV are averaged over heads, weighted by
the norm of the heads' outputs. For one head alone, the logits are its contribution to them.

Source: "How do tiny transformers sort lists of small integers?" (Qi and Zhong 2023). It reads an
early triangular pattern of algorithm 1 as evidence that a causal model learns by the slow route.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp_toolkit.circuits.sorting.activations import (
    HOOK_Z,
    ListReading,
    LogitLine,
    SeparatorLine,
    SwapAnswers,
    Swaps,
    above_scores,
    logit_line,
    read,
    separator_line,
    swap_previous,
)
from interp_toolkit.circuits.sorting.criteria import Algorithm, Criterion, criteria_of, decide
from interp_toolkit.circuits.sorting.weights import (
    WeightTables,
    copy_score,
    piecewise_fits,
    weight_tables,
)
from interp_toolkit.circuits.weights.token_scores import read_through
from interp_toolkit.data.lists.draws import ListSource
from interp_toolkit.data.lists.layout import ListLayout, fresh_generator, parse_layout
from interp_toolkit.errors import InputError
from interp_toolkit.finding import Run
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.loading.loader import load
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import device_of
from interp_toolkit.models.running.interventions import ablate
from interp_toolkit.models.running.streaming import collect
from interp_toolkit.models.transformer.collapsed import at_positions, read_logits
from interp_toolkit.models.weights.view import weights

ABOVE = (  # attributes of `AboveScores`
    *("above", "above_uniform", "above_lift", "filter_score"),
    *("smallest_first", "smallest_chance", "smallest_lift"),
)


@dataclass(frozen=True)
class Region:
    """Attention and swaps for a range of previous values.

    Attributes:
        lowest, highest: the range, both included.
        above_lift: see `AboveScores`; None if undetermined.
        swaps: outputs after the previous token is replaced by a value of the range; None for too
            few swaps.
    """

    lowest: int
    highest: int
    above_lift: float | None
    swaps: Swaps | None


@dataclass(frozen=True, eq=False)
class Measures:
    """Measurements of a model or of one head.

    Attributes:
        metrics: metrics by name; None where undetermined.
        line: regression of the logits.
        separator: attention to the separator before the list, if there is one.
        swaps: outputs after swaps of the previous token; None if none were possible.
        regions: attention and swaps for the lower and upper half of the previous values; empty if
            no swap was possible.
    """

    metrics: Mapping[str, float | None]
    line: LogitLine
    separator: SeparatorLine | None
    swaps: Swaps | None
    regions: tuple[Region, ...] = ()

    @property
    def intervals(self) -> Mapping[str, tuple[float, float]]:
        """95 % intervals of the metrics that have one."""
        return self.swaps.intervals if self.swaps else {}


def measure(
    model: Model,
    reading: ListReading,
    tables: WeightTables | None = None,
    *,
    head: int | None = None,
    seed: int = 0,
) -> Measures:
    """Measure a model, or one head of it, on the lists of a reading.

    Args:
        model: the model of the reading.
        reading: logits and attention of the model.
        tables: weight tables of the model, if already computed.
        head: head to measure alone; None: the model.
        seed: seed of the swaps.
    """
    tables = weight_tables(model, reading.layout, reading) if tables is None else tables
    share = _shares(tables, head)
    pattern = torch.einsum("h,rhip->rip", share, reading.pattern)
    ov = torch.einsum("h,hsv->sv", share.to(tables.ov), tables.ov)
    posted = torch.einsum("h,hsv->sv", share.to(tables.ov_posted), tables.ov_posted)
    logits = reading.undivided if head is None else head_logits(model, reading, head)
    at_list = torch.einsum("h,rhip->rip", share, reading.at_list)
    above = above_scores(reading, at_list)
    line = logit_line(reading, logits)
    separator = separator_line(reading, pattern)
    answers = swap_previous(model, reading, head=head, seed=seed)
    swaps = None if answers is None else answers.summary()
    fits = piecewise_fits(ov[: reading.layout.n_values])
    right = (reading.answers == reading.rows.answer)[reading.rows.present]
    metrics: dict[str, float | None] = {
        "items_right": float(right.double().mean()),
        **{name: getattr(above, name, None) for name in ABOVE},
        "follows_token": swaps.token if swaps else None,
        "follows_position": swaps.position if swaps else None,
        "copy_score": copy_score(ov[: reading.layout.n_values]),
        "copy_score_posted": copy_score(posted, centre=False),
        "piecewise_r2": fits.mean_r2,
        "piecewise_r2_posted": piecewise_fits(posted).mean_r2,
        "kink_r2": fits.kink_r2,
        "kink_at_value": fits.kink_at_value,
        "logit_fit_r2": line.fit,
        "logit_line_slope": line.slope,
        "logit_line_intercept": line.intercept,
        "logit_line_r2": line.line_r2,
        "logit_slope_error": None if line.slope is None else abs(line.slope - 1),
        "separator_line_r2": separator.r2 if separator else None,
        "separator_line_slope": separator.slope if separator else None,
        "separator_rising": separator.rising if separator else None,
        "tables_residual": tables.residual,
    }
    return Measures(metrics, line, separator, swaps, _regions(reading, at_list, answers))


def _regions(
    reading: ListReading,
    attention: Float[Tensor, "row item list_pos"],
    answers: SwapAnswers | None,
) -> tuple[Region, ...]:
    """Attention and swaps for the lower and the upper half of the previous values."""
    if answers is None:
        return ()
    n = reading.layout.n_values
    regions = []
    for half in (range(n // 2), range(n // 2, n)):
        above, swaps = above_scores(reading, attention, half), answers.summary(half)
        regions.append(Region(half[0], half[-1], above.above_lift if above else None, swaps))
    return tuple(regions)


def _shares(tables: WeightTables, head: int | None) -> Float[Tensor, " head"]:
    """Weights of the heads in averages: norms of their outputs, or 1 for a single head."""
    n_heads = len(tables.ov)
    if head is not None:
        return torch.eye(n_heads, dtype=torch.float64)[head]
    ov = tables.ov.double()
    size = (ov - ov.mean(-1, keepdim=True)).flatten(1).norm(dim=1)
    total = size.sum()
    return size / total if total > 0 else torch.full_like(size, 1 / n_heads)


@torch.no_grad()
def head_logits(model: Model, reading: ListReading, head: int) -> Float[Tensor, "row item value"]:
    """Contribution of one head to the values' logits at the positions where items are read.

    The division by a final norm, one number per position, is left out.
    """
    view = weights(model)
    z = collect(model, reading.rows.tokens, HOOK_Z, "all")[HOOK_Z][:, :, head].double()
    values = torch.tensor(reading.layout.values, device=view.W_U.device)
    logits = read_through(view.final_norm, view.W_U)[:, values].double()
    return at_positions(z, reading.rows.read) @ (view.ov(0).W_O[head].double() @ logits).cpu()


@dataclass(frozen=True, eq=False)
class HeadFingerprint:
    """Metrics and criteria of one head.

    Attributes:
        head: index of the head.
        algorithm: verdict from the head's own criteria; "neither" for a head whose ablation does
            not reduce the fraction of lists sorted.
        metrics, criteria: metrics and criteria of the head alone.
        lists_right_without: fraction of lists sorted with the head's output replaced by its mean.
    """

    head: int
    algorithm: Algorithm
    metrics: Mapping[str, float | None]
    criteria: Sequence[Criterion]
    lists_right_without: float


def head_parts(
    run: Run[Any],
    reading: ListReading,
    tables: WeightTables,
    whole: tuple[Algorithm, Sequence[Criterion], Measures, bool],
) -> tuple[list[HeadFingerprint], list[Measures]]:
    """Metrics, criteria and mean ablation of each head.

    Args:
        run: the run, with the model of the reading.
        reading: logits and attention of the model.
        tables: weight tables of the model.
        whole: algorithm, criteria and measurements of the model, which also hold for the only head
            of a one-head model; and whether the model sorts.

    Returns:
        The fingerprint and the measurements of each head.
    """
    model, (algorithm, criteria, measured, sorting) = run.model, whole
    rows, layout, n_heads = reading.rows, reading.layout, int(model.cfg.n_heads)
    tokens, read = rows.tokens.to(device_of(model)), rows.read.to(device_of(model))
    answer = torch.tensor(layout.values)[rows.answer]

    def lists_right(correct: Bool[Tensor, "row item"]) -> float:
        return float((correct | ~rows.present).all(1).double().mean())

    right = lists_right(reading.answers == rows.answer)
    heads, measures = [], []
    for head in range(n_heads):
        with ablate(model, [(0, head)], how="mean", reference=rows.tokens):
            without = lists_right(read_logits(model, tokens, read).argmax(-1).cpu() == answer)
        if n_heads > 1:
            run.progress(f"head {head + 1} of {n_heads}")
            measured = measure(model, reading, tables, head=head, seed=run.seed)
            criteria = criteria_of(
                measured.metrics,
                {},
                autoregressive=layout.autoregressive,
                intervals=measured.intervals,
            )
            algorithm = decide(criteria, sorting and without < right)
        heads.append(HeadFingerprint(head, algorithm, measured.metrics, criteria, without))
        measures.append(measured)
    return heads, measures


MOST_NUMBERS = 20_000_000  # attention weights in memory, which limits the number of long lists
LISTS = 500
CHECKPOINT = re.compile(r"seed-(\d+)-step-(\d+)\.(safetensors|pt)")


@dataclass(frozen=True)
class EvolutionStep:
    """Metrics at one checkpoint.

    Attributes:
        seed: seed of the training run.
        step: number of updates.
        metrics: metrics by name (see `measure`); None where undetermined.
        qk: scores of head 0 from each value to each value, averaged over output items.
    """

    seed: int
    step: int
    metrics: Mapping[str, float | None]
    qk: Sequence[Sequence[float]] = ()


def sorting_evolution(
    checkpoints: str | Path | Iterable[tuple[int, Any]],
    layout: str | Sequence[str] | ListLayout | None = None,
    *,
    distinct: bool | None = None,
    lists: int = LISTS,
    seed: int = 0,
    progress: Callable[[str], None] = lambda step: None,
) -> list[EvolutionStep]:
    """Metrics of every checkpoint along training, sorted by seed and step.

    Args:
        checkpoints: a folder of files named as in `seed-0-step-000100.safetensors`, or pairs of a
            step and a model (of one run).
        layout: layout of the prompts; None: that of the checkpoints' task record.
        distinct: whether lists have distinct values; None: as in the task record, else False.
        lists: number of lists to measure on, the same at every checkpoint.
        seed: seed of the lists and swaps.
        progress: called with a description of each step.

    Raises:
        InputError: the folder has no such files, a model has several layers, or the layout is
            missing or does not fit a model.

    Examples:
        >>> import interp_toolkit as it
        >>> model = it.load("toy:sort-argmax")
        >>> [(step.seed, step.step) for step in sorting_evolution([(0, model)], lists=50)]
        [(0, 0)]
    """
    steps = []
    for run, step, model in _models(checkpoints):
        progress(f"checkpoint of step {step}, seed {run}")
        resolved = find_layout(model, layout)
        apart = bool(record_of(model).made_for.distinct) if distinct is None else distinct
        reading = read_lists(model, resolved, apart, lists, seed)
        tables = weight_tables(model, resolved, reading)
        metrics = measure(model, reading, tables, seed=seed).metrics
        qk = tables.average_qk(0)[:, : resolved.n_values]
        steps.append(EvolutionStep(run, step, metrics, qk.tolist()))
    return sorted(steps, key=lambda at: (at.seed, at.step))


def _models(
    checkpoints: str | Path | Iterable[tuple[int, Any]],
) -> Iterator[tuple[int, int, Any]]:
    """Iterate over seed, step and model of the checkpoints."""
    if not isinstance(checkpoints, str | Path):
        for step, model in checkpoints:
            yield 0, step, model
        return
    for run, step, path in checkpoint_files(checkpoints):
        yield run, step, load(path)


def checkpoint_files(folder: str | Path) -> list[tuple[int, int, Path]]:
    """Seed, step and file of every checkpoint in a folder.

    Raises InputError if there is no such folder, or no checkpoint in it.
    """
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise InputError(f"checkpoints: there is no folder {folder}")
    files = []
    for path in folder.iterdir():
        match = CHECKPOINT.fullmatch(path.name)
        if match is not None:
            files.append((int(match[1]), int(match[2]), path))
    if not files:
        raise InputError(
            f"checkpoints: {folder} has no files named as in seed-0-step-000100.safetensors"
        )
    return sorted(files)


def find_layout(model: Model, layout: str | Sequence[str] | ListLayout | None) -> ListLayout:
    """Layout passed by the caller, or else that of the model's task record.

    Raises:
        InputError: there is neither, or the layout does not fit the model.
    """
    if isinstance(layout, ListLayout):
        return layout
    if layout is None:
        task = record_of(model).made_for
        layout = task.layout if task.name == "sorting" else None
    if layout is None:
        raise InputError(
            'the layout of the lists is not known: give --layout, such as "10 list10 11 sorted10"'
        )
    cfg = model.cfg
    return parse_layout(
        layout, d_vocab=int(cfg.d_vocab), d_vocab_out=int(cfg.d_vocab_out), n_ctx=int(cfg.n_ctx)
    )


def read_lists(
    model: Model, layout: ListLayout, distinct: bool, lists: int, seed: int
) -> ListReading:
    """Run the model on random lists, with or without distinct values."""
    size = int(model.cfg.n_heads) * layout.longest * layout.n_positions
    n = max(min(lists, MOST_NUMBERS // size), 1)
    source = ListSource(
        "distinct" if distinct else "hard", layout.n_values, layout.shortest, layout.longest
    )
    return read(model, layout, source.draw(n, fresh_generator(seed)))


def guessed(reading: ListReading) -> float:
    """Fraction of items that the best guess without the model gets right.

    The guesses are the most frequent value of each item and, in autoregressive layouts, the
    previous correct item.
    """
    answer, present = reading.rows.answer, reading.rows.present
    counts = torch.stack([((answer == v) & present).sum(0) for v in range(reading.layout.n_values)])
    guesses = [int(counts.amax(0).sum())]
    if reading.layout.autoregressive:
        guesses.append(int(((answer[:, 1:] == answer[:, :-1]) & present[:, 1:]).sum()))
    return max(guesses) / int(present.sum())
