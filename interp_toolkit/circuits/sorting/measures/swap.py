"""Which the output follows when they disagree: the previous token, or the position.

Algorithm 1, min{> previous}, finds the next item from the previous output; algorithm 2 from the
position alone. On sorted prefixes the two agree. So the token at the position where item k is read
is replaced by the item before another one, j, of the same list, and where the two algorithms then
name different values, the model's answer is compared with both. j is k's neighbour, or the next but
one: farther ones make prefixes that no sorted list has. With repeats, algorithm 1 is the
source's refined one: stay at the previous value t unless at least `n - k` items are above it.
For one head of several, the head's output alone is taken from the changed row (activation
patching at hook_z).
Source: the algorithms are those of "How do tiny transformers sort lists of small integers?" (Qi and
Zhong 2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp_toolkit.circuits.sorting.measures.reading import HOOK_Z, ListReading
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import device_of
from interp_toolkit.models.running.interventions import put_heads
from interp_toolkit.models.running.streaming import collect
from interp_toolkit.models.transformer.collapsed import read_logits
from interp_toolkit.stats import clopper_pearson

FEWEST_SWAPS = 30  # below this a share means nothing
OFFSETS = (-2, -1, 1, 2)  # of j from k


@dataclass(frozen=True)
class Swaps:
    """What the model answered where the algorithms disagree.

    Attributes:
        n: how many such swaps.
        token: share of answers that follow the swapped token (algorithm 1).
        position: share that follow the position (algorithm 2); the rest follow neither.
    """

    n: int
    token: float
    position: float

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """Clopper-Pearson intervals of both shares at 95 %, by metric; swaps are of other lists."""
        shares = {"follows_token": self.token, "follows_position": self.position}
        return {name: clopper_pearson(share * self.n, self.n) for name, share in shares.items()}


class SwapAnswers(NamedTuple):
    """Every swap that tells the algorithms apart, and what the model answered.

    Attributes:
        swapped: the value that was put in place of the previous one.
        token, position: whether the answer follows it, or the position.
    """

    swapped: Int[Tensor, " swap"]
    token: Bool[Tensor, " swap"]
    position: Bool[Tensor, " swap"]

    def summary(self, swapped: range | None = None) -> Swaps | None:
        """The shares, of swaps to these values or to all; None of too few."""
        asked = torch.ones_like(self.token)
        if swapped is not None:
            asked = (self.swapped >= swapped.start) & (self.swapped < swapped.stop)
        if int(asked.sum()) < FEWEST_SWAPS:
            return None
        return Swaps(
            n=int(asked.sum()),
            token=float(self.token[asked].double().mean()),
            position=float(self.position[asked].double().mean()),
        )


def swap_previous(
    model: Model, reading: ListReading, *, head: int | None = None, seed: int = 0
) -> SwapAnswers | None:
    """One swap a list; None where no output follows another.

    Args:
        model: the model that was read.
        reading: its lists.
        head: change what this head adds only; None: the token itself.
        seed: of the items that are swapped.
    """
    layout, rows = reading.layout, reading.rows
    if not layout.autoregressive or layout.longest < 3:
        return None
    generator = torch.Generator().manual_seed(seed)
    n, lengths = len(reading.lists), reading.lists.lengths
    item = 1 + (torch.rand(n, generator=generator) * (lengths - 1)).long()
    offset = torch.randint(len(OFFSETS), (n,), generator=generator)
    other = item + torch.tensor(OFFSETS)[offset]
    usable = torch.nonzero((lengths > 2) & (other >= 1) & (other < lengths))[:, 0]
    item, other = item[usable], other[usable]
    answer = rows.answer[usable]
    previous = answer.gather(1, other[:, None] - 1)[:, 0]
    by_position = answer.gather(1, item[:, None])[:, 0]
    by_token = _by_token(reading, usable, previous, item)
    tells = (by_token != by_position) & (by_token < layout.n_values)
    if not bool(tells.any()):
        return None
    usable, item, previous = usable[tells], item[tells], previous[tells]
    place = rows.read[usable].gather(1, item[:, None])
    ids = torch.tensor(layout.values)
    changed = rows.tokens[usable].scatter(1, place, ids[previous][:, None])
    answers = _answers(model, rows.tokens[usable], changed, place, head)
    return SwapAnswers(
        previous, answers == ids[by_token[tells]], answers == ids[by_position[tells]]
    )


def _by_token(
    reading: ListReading,
    rows: Int[Tensor, " swap"],
    previous: Int[Tensor, " swap"],
    item: Int[Tensor, " swap"],
) -> Int[Tensor, " swap"]:
    """What algorithm 1 answers; n_values where nothing is above the previous value."""
    n_values = reading.layout.n_values
    values = reading.lists.values[rows]
    above = (values > previous[:, None]) & (values < n_values)
    smallest = values.masked_fill(~above, n_values).amin(1)
    left = reading.lists.lengths[rows] - item
    repeats = bool((reading.lists.sorted().diff(dim=1) == 0)[reading.rows.present[:, 1:]].any())
    return torch.where(above.sum(1) >= left, smallest, previous) if repeats else smallest


def _answers(
    model: Model,
    clean: Int[Tensor, "swap pos"],
    changed: Int[Tensor, "swap pos"],
    place: Int[Tensor, "swap 1"],
    head: int | None,
) -> Int[Tensor, " swap"]:
    """The token with the largest logit, be it a value or not."""
    device = device_of(model)
    clean, changed, place = clean.to(device), changed.to(device), place.to(device)
    if head is None:
        logits = read_logits(model, changed, place)
    else:
        z = collect(model, changed, HOOK_Z, "all", device=device)[HOOK_Z]
        with put_heads(model, {(0, head): z[:, :, head]}):
            logits = read_logits(model, clean, place)
    return logits[:, 0].argmax(-1).cpu()
