"""One-layer models trained in seconds on something else than sorting, with a sorter's rows.

What an analysis must call neither algorithm, though it was trained like one that sorts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from interp_toolkit.data.lists.draws import Lists, ListSource
from interp_toolkit.data.lists.layout import ListLayout, ListRows, parse_layout
from interp_toolkit.models.transformer.collapsed import table_logits
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

ROWS = 256
LAST = 50  # steps whose accuracy counts
SCRAMBLED = [3, 8, 1, 6, 0, 9, 4, 7, 2, 5]  # the place of each value in an order of its own


def from_the_end(lists: Lists) -> Tensor:
    """Items in reverse; what is beyond the length stays behind."""
    items = torch.arange(lists.values.shape[1])
    places = lists.lengths[:, None] - 1 - items
    return lists.values.gather(1, torch.where(places >= 0, places, items))


def descending(lists: Lists) -> Tensor:
    """Sorted downwards: sort -1 - value, so that what is beyond the length would come first."""
    negated = torch.where(lists.values < lists.n_values, -1 - lists.values, lists.n_values)
    ordered = negated.sort(dim=1).values
    return torch.where(ordered < 0, -1 - ordered, ordered)


def scrambled(lists: Lists) -> Tensor:
    """Sorted by another order of the ten values."""
    place = torch.tensor([*SCRAMBLED, lists.n_values])
    return place.argsort()[place[lists.values].sort(dim=1).values]


TASKS: dict[str, Callable[[Lists], Tensor]] = {
    "copy": lambda lists: lists.values,
    "reverse": from_the_end,
    "descending": descending,
    "scrambled": scrambled,
}


def rows_of(task: str, layout: ListLayout, lists: Lists) -> ListRows:
    """Rows whose outputs and answers are the task's."""
    rows = layout.rows(lists)
    answer = TASKS[task](lists).masked_fill(~rows.present, 0)
    tokens = rows.tokens
    if layout.autoregressive:
        tokens = tokens.scatter(1, rows.read + 1, torch.tensor(layout.values)[answer])
    return rows._replace(tokens=tokens, answer=answer)


@functools.cache
def trained(task: str, text: str, steps: int, seed: int) -> tuple[Transformer, float]:
    """A model of ten values after so many steps, and its share of whole lists right at the end."""
    d_vocab = 12 + ("pad" in text)
    layout = parse_layout(text, d_vocab=d_vocab, d_vocab_out=10)
    config = TransformerConfig(
        n_layers=1,
        n_heads=1,
        d_model=56,
        d_head=56,
        n_ctx=layout.n_positions,
        d_vocab=d_vocab,
        d_vocab_out=10,
        attn_only=True,
        normalization_type=None,
        attention_dir="causal" if layout.autoregressive else "bidirectional",
        seed=seed,
    )
    model = Transformer(config)
    source = ListSource("uniform", 10, layout.shortest, layout.longest)
    generator = torch.Generator().manual_seed(seed)
    first = layout.read_positions(layout.shortest)[0]
    reads = range(first, layout.read_positions(layout.longest)[-1] + 1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    right = []
    for step in range(steps):
        rows = rows_of(task, layout, source.draw(ROWS, generator))
        logits = table_logits(model, rows.tokens, rows.read, reads)
        loss = F.cross_entropy(logits[rows.present], rows.answer[rows.present])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step >= steps - LAST:
            whole = ((logits.argmax(-1) == rows.answer) | ~rows.present).all(1)
            right.append(whole.double().mean().item())
    return model.eval(), sum(right) / LAST


@pytest.fixture(scope="session")
def trained_otherwise() -> Callable[..., tuple[Transformer, float]]:
    """`trained_otherwise(task, layout, steps=..., seed=...)`: see `trained`; tasks are `TASKS`."""

    def train(
        task: str, layout: str = "10 list10 11 sorted10", *, steps: int = 400, seed: int = 0
    ) -> tuple[Transformer, float]:
        return trained(task, layout, steps, seed)

    return train
