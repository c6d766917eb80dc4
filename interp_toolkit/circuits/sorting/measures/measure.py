"""Every number that a sorting verdict rests on, from one reading of a model.

The same numbers are taken of the model, of each head alone, of re-initialised models and of
checkpoints along training. Of several heads together, attention and OV are averaged with the sizes
of what the heads write as weights; of one head alone, the logits are what it adds to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.circuits.sorting.measures.attention import (
    SeparatorLine,
    above_scores,
    separator_line,
)
from interp_toolkit.circuits.sorting.measures.logit_line import LogitLine, logit_line
from interp_toolkit.circuits.sorting.measures.ov_shapes import copy_score, piecewise_fits
from interp_toolkit.circuits.sorting.measures.reading import HOOK_Z, ListReading
from interp_toolkit.circuits.sorting.measures.swap import SwapAnswers, Swaps, swap_previous
from interp_toolkit.circuits.sorting.measures.weight_tables import WeightTables, weight_tables
from interp_toolkit.circuits.weights.token_scores import read_through
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.streaming import collect
from interp_toolkit.models.transformer.collapsed import at_positions
from interp_toolkit.models.weights.view import weights


@dataclass(frozen=True)
class Region:
    """What a model does where the previous value is one of some.

    Attributes:
        lowest, highest: these values.
        above_lift: of its attention there (see `AboveScores`); None where it cannot be told.
        swaps: what the output follows when one of them is put there; None of too few.
    """

    lowest: int
    highest: int
    above_lift: float | None
    swaps: Swaps | None


@dataclass(frozen=True, eq=False)
class Measures:
    """What was measured, of a model or of one head.

    Attributes:
        metrics: the numbers by name; None where one cannot be told.
        line: of the logits.
        separator: attention to the separator before the list, if there is one.
        swaps: what the output follows, for outputs that follow the list.
        regions: attention and swaps by halves of the previous values; none where nothing follows.
    """

    metrics: Mapping[str, float | None]
    line: LogitLine
    separator: SeparatorLine | None
    swaps: Swaps | None
    regions: tuple[Region, ...] = ()

    @property
    def intervals(self) -> Mapping[str, tuple[float, float]]:
        """Of those metrics that have one, at 95 %."""
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
        model: the model that was read.
        reading: its answers and attention.
        tables: its weight tables, if they are at hand.
        head: one head alone; None: the model.
        seed: of the swaps.
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
        "above": above.above if above else None,
        "above_uniform": above.above_uniform if above else None,
        "above_lift": above.above_lift if above else None,
        "filter_score": above.filter_score if above else None,
        "smallest_first": above.smallest_first if above else None,
        "smallest_chance": above.smallest_chance if above else None,
        "smallest_lift": above.smallest_lift if above else None,
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
    attention: Float[Tensor, "row item place"],
    answers: SwapAnswers | None,
) -> tuple[Region, ...]:
    """The lower and the upper half of the previous values, apart."""
    if answers is None:
        return ()
    n = reading.layout.n_values
    found = []
    for half in (range(n // 2), range(n // 2, n)):
        above, swaps = above_scores(reading, attention, half), answers.summary(half)
        found.append(Region(half[0], half[-1], above.above_lift if above else None, swaps))
    return tuple(found)


def _shares(tables: WeightTables, head: int | None) -> Float[Tensor, " head"]:
    """How much each head counts: by the size of what it writes; or one head alone."""
    n_heads = len(tables.ov)
    if head is not None:
        return torch.eye(n_heads, dtype=torch.float64)[head]
    ov = tables.ov.double()
    size = (ov - ov.mean(-1, keepdim=True)).flatten(1).norm(dim=1)
    total = size.sum()
    return size / total if total > 0 else torch.full_like(size, 1 / n_heads)


@torch.no_grad()
def head_logits(model: Model, reading: ListReading, head: int) -> Float[Tensor, "row item value"]:
    """What one head adds to the values' logits where items are read.

    A final norm's division, one number for each position, is left out.
    """
    view = weights(model)
    z = collect(model, reading.rows.tokens, HOOK_Z, "all")[HOOK_Z][:, :, head].double()
    values = torch.tensor(reading.layout.values, device=view.W_U.device)
    logits = read_through(view.final_norm, view.W_U)[:, values].double()
    return at_positions(z, reading.rows.read) @ (view.ov(0).W_O[head].double() @ logits).cpu()
