"""Sorting accuracy: how often a model sorts, and the lists on which it fails.

A list is sorted correctly if every item of its sorted order has the largest logit at its position.
If the sorted list is part of the prompt, the model sees the correct items (teacher forcing), and
one forward pass reads all outputs. For a causal model, a whole list is right under teacher forcing
if and only if it is right under greedy decoding, since both see the same tokens up to the first
wrong item. Later items can differ, so the outputs shown are greedy ones.

If it is not specified whether lists have repeats, both kinds are tested (`accuracies`): lists of
distinct values, and uniform lists with at least one repeat. The model counts as made for distinct
lists if it sorts more of them, with 95 % intervals at least DISTINCT_ACCURACY_MARGIN apart.
Unfiltered uniform lists would not work: with five items of 64 values, only one list in seven has a
repeat, so a model that sorts no repeats would lose little. Both accuracies are reported.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.data.lists.draws import Lists, ListSource
from interp_toolkit.data.lists.layout import (
    ListLayout,
    ListRows,
    fresh_generator,
    standard_sets,
    two_valued_sets,
)
from interp_toolkit.errors import InputError
from interp_toolkit.finding import column
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import device_of
from interp_toolkit.models.running.memory import bytes_per_row, parse_memory, rows_that_fit
from interp_toolkit.models.transformer.collapsed import read_logits
from interp_toolkit.stats import clopper_pearson

MESSAGES = 10  # progress messages per search


@dataclass(frozen=True)
class ListAccuracy:
    """Accuracy of a model on some lists.

    Attributes:
        n: number of lists.
        lists_right: fraction of lists with every item right.
        low, high: Clopper-Pearson 95 % interval of that fraction.
        items_right: fraction of items right, with teacher forcing.
        loss: mean cross-entropy per item, in nats, with teacher forcing.
    """

    n: int = column("number")
    lists_right: float = column("whole list right")
    low: float = column("low")
    high: float = column("high")
    items_right: float = column("items right")
    loss: float = column("loss")


def _as_text(ids: Sequence[int]) -> str:
    return " ".join(map(str, ids))


@dataclass(frozen=True)
class SortedList:
    """A list and the model's output for it, as token ids.

    Attributes:
        input_list, output, correct: the list, the model's greedy output, the sorted list.
        right: whether every item of the output is right.
        loss: mean cross-entropy per item, in nats, with teacher forcing.
    """

    input_list: tuple[int, ...] = column("list", format=_as_text)
    output: tuple[int, ...] = column("output", format=_as_text)
    correct: tuple[int, ...] = column("sorted", format=_as_text)
    right: bool = column("right")
    loss: float = column("loss")


class Counterexample(NamedTuple):
    """A list that a model sorts wrongly, the output, and the sorted list, as token ids."""

    input_list: tuple[int, ...]
    output: tuple[int, ...]
    correct: tuple[int, ...]


@dataclass(frozen=True)
class Counterexamples:
    """The result of a search for wrongly sorted lists.

    Attributes:
        searched: number of lists drawn, not necessarily different.
        failed: number of lists sorted wrongly.
        rate: fraction of lists sorted wrongly.
        low, high: Clopper-Pearson 95 % interval of the rate.
        examples: the first lists sorted wrongly.
    """

    searched: int
    failed: int
    rate: float
    low: float
    high: float
    examples: tuple[Counterexample, ...]


def list_accuracy(
    model: Model, layout: ListLayout, lists: Lists, memory: int | str | None = None
) -> ListAccuracy:
    """Accuracy of a model on these lists.

    Args:
        model: any TransformerLens model.
        layout: layout of its prompts.
        lists: lists to sort.
        memory: memory limit for a batch, such as "4GiB".

    Raises:
        InputError: there are no lists, or the layout does not fit the lists or the model.
    """
    if not len(lists):
        raise InputError("there are no lists to sort")
    _check_model(model, layout)
    size = _batch_size(model, layout, memory)
    lists_right = items_right = n_items = 0
    loss = 0.0
    for start in range(0, len(lists), size):
        batch = lists.take(slice(start, start + size)).to(device_of(model))
        judged = _judge(model, layout, layout.rows(batch))
        lists_right += int(judged.list_right.sum())
        items_right += int(judged.item_right.sum())
        n_items += int(batch.lengths.sum())
        loss += float(judged.loss.sum())
    low, high = clopper_pearson(lists_right, len(lists))
    return ListAccuracy(
        lists_right=lists_right / len(lists),
        low=low,
        high=high,
        items_right=items_right / n_items,
        loss=loss / n_items,
        n=len(lists),
    )


def counterexamples(
    model: Model,
    layout: ListLayout,
    source: ListSource,
    n: int = 1_000_000,
    keep: int = 20,
    seed: int = 0,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Counterexamples:
    """Search `n` random lists for lists that a model sorts wrongly.

    Args:
        model: any TransformerLens model.
        layout: layout of its prompts.
        source: distribution of the lists.
        n: number of lists to draw.
        keep: maximal number of failures to return.
        seed: seed of the draws; the lists differ from those that a recipe of this seed trains on.
        memory: memory limit for a batch, such as "4GiB".
        progress: called with a description of the progress.

    Raises:
        InputError: `n` is below 1, `keep` is below 0, or the layout does not fit the source or the
            model.
    """
    if n < 1 or keep < 0:
        raise InputError(f"a search needs n of at least 1 and keep of at least 0, got {n}, {keep}")
    _check_model(model, layout)
    if not layout.shortest <= source.shortest <= source.longest <= layout.longest:
        raise InputError(
            f"the layout {layout} has lists of {layout.shortest} to {layout.longest} items, "
            f"the source draws {source.shortest} to {source.longest}"
        )
    generator = fresh_generator(seed, device_of(model))
    size = _batch_size(model, layout, memory)
    failed, n_shown = 0, 0
    examples: list[Counterexample] = []
    for start in range(0, n, size):
        done = min(start + size, n)
        lists = source.draw(done - start, generator)
        wrong = (~_judge(model, layout, layout.rows(lists)).list_right).nonzero().flatten()
        failed += len(wrong)
        examples += _shown(model, layout, lists.take(wrong[: keep - len(examples)]))
        if done * MESSAGES // n > n_shown:
            n_shown = done * MESSAGES // n
            progress(f"{done:,} of {n:,} lists sorted, {failed:,} wrong")
    low, high = clopper_pearson(failed, n)
    return Counterexamples(n, failed, failed / n, low, high, tuple(examples))


def hardest(
    model: Model,
    layout: ListLayout,
    lists: Lists,
    keep: int = 10,
    memory: int | str | None = None,
) -> list[SortedList]:
    """Lists with the greatest mean loss per item, in descending order of loss.

    Args:
        model: any TransformerLens model.
        layout: layout of its prompts.
        lists: lists to sort.
        keep: maximal number of lists to return.
        memory: memory limit for a batch, such as "4GiB".

    Raises:
        InputError: the layout does not fit the lists or the model.
    """
    _check_model(model, layout)
    size = _batch_size(model, layout, memory)
    hard = [torch.zeros(0, dtype=torch.float64)]
    for start in range(0, len(lists), size):
        batch = lists.take(slice(start, start + size)).to(device_of(model))
        hard.append((_judge(model, layout, layout.rows(batch)).loss / batch.lengths).cpu())
    losses = torch.cat(hard)
    worst = losses.argsort(descending=True, stable=True)[:keep]
    shown = _shown(model, layout, lists.take(worst))
    return [
        SortedList(*one, one.output == one.correct, float(losses[w]))
        for one, w in zip(shown, worst, strict=True)
    ]


def greedy_outputs(model: Model, layout: ListLayout, lists: Lists) -> Int[Tensor, "row item"]:
    """Token ids of a model's greedy output; -1 beyond a list's length.

    Raises:
        InputError: the layout does not fit the lists or the model.
    """
    _check_model(model, layout)
    rows = layout.rows(lists.to(device_of(model)))
    if not layout.autoregressive:
        return _answers(model, rows.tokens, rows.read).masked_fill(~rows.present, -1)
    slots = rows.read + 1
    tokens = rows.tokens.scatter(1, slots, layout.values[0])  # hides the sorted list
    outputs = torch.full_like(rows.answer, -1)
    for item in range(layout.longest):
        here, slot, read = rows.present[:, item], slots[:, item, None], rows.read[:, item, None]
        answer = _answers(model, tokens, read)[:, 0]
        outputs[:, item] = torch.where(here, answer, -1)
        answers = tokens.gather(1, slot)[:, 0]
        tokens = tokens.scatter(1, slot, torch.where(here, answer, answers)[:, None])
    return outputs


class _Judged(NamedTuple):
    item_right: Bool[Tensor, "row item"]
    list_right: Bool[Tensor, " row"]
    loss: Float[Tensor, " row"]  # summed over items


def _judge(model: Model, layout: ListLayout, rows: ListRows) -> _Judged:
    """Correctness and loss of items and lists, with teacher forcing."""
    logits = read_logits(model, rows.tokens, rows.read)
    answer = torch.tensor(layout.values, device=logits.device)[rows.answer]
    right = logits.argmax(dim=-1) == answer
    log_p = logits.double().log_softmax(dim=-1).gather(2, answer.unsqueeze(2)).squeeze(2)
    return _Judged(
        item_right=right & rows.present,
        list_right=(right | ~rows.present).all(dim=1),
        loss=-log_p.masked_fill(~rows.present, 0).sum(1),
    )


def _answers(
    model: Model, tokens: Int[Tensor, "row pos"], read: Int[Tensor, "row item"]
) -> Int[Tensor, "row item"]:
    return read_logits(model, tokens, read).argmax(dim=-1)


def _shown(model: Model, layout: ListLayout, lists: Lists) -> Iterator[Counterexample]:
    if not len(lists):
        return
    outputs = greedy_outputs(model, layout, lists).tolist()
    columns = (lists.values.tolist(), outputs, lists.sorted().tolist(), lists.lengths.tolist())
    for items, output, correct, length in zip(*columns, strict=True):
        yield Counterexample(
            input_list=tuple(layout.values[value] for value in items[:length]),
            output=tuple(output[:length]),
            correct=tuple(layout.values[value] for value in correct[:length]),
        )


def _batch_size(model: Model, layout: ListLayout, memory: int | str | None) -> int:
    """Number of prompts per forward pass that fit in memory, including the loss."""
    parameter = next(iter(model.parameters()), None)
    itemsize = 4 if parameter is None else parameter.element_size()
    n_stored = 3 * layout.longest * _n_logits(model)  # logits read, and two copies in float64
    row = bytes_per_row(model.cfg, layout.n_positions, itemsize, logits=True, n_stored=2 * n_stored)
    return rows_that_fit(parse_memory(memory), row, layout.n_positions)


def _n_logits(model: Model) -> int:
    n_logits = int(getattr(model.cfg, "d_vocab_out", -1))
    return n_logits if n_logits > 0 else int(model.cfg.d_vocab)


def _check_model(model: Model, layout: ListLayout) -> None:
    """Raise InputError unless the layout fits the model and attention hides the answers."""
    d_vocab, n_ctx, n_logits = int(model.cfg.d_vocab), int(model.cfg.n_ctx), _n_logits(model)
    pad = () if layout.pad is None else (layout.pad,)
    largest = max(itertools.chain(layout.values, layout.before, layout.between, layout.after, pad))
    if largest >= d_vocab:
        raise InputError(
            f"the layout {str(layout)!r} has token id {largest}; the model has ids 0 to "
            f"{d_vocab - 1}"
        )
    if layout.values[-1] >= n_logits:
        raise InputError(
            f"the layout {str(layout)!r} has value {layout.values[-1]}, which has no logit"
        )
    if layout.n_positions > n_ctx:
        raise InputError(
            f"the layout {layout} has prompts of {layout.n_positions} tokens; the model takes "
            f"at most {n_ctx}"
        )
    if layout.autoregressive and getattr(model.cfg, "attention_dir", None) == "bidirectional":
        raise InputError(
            f"attention is bidirectional, so in the layout {layout} the model would see the "
            "answers; drop the sorted list from the layout"
        )
    if layout.autoregressive and n_logits > d_vocab:
        raise InputError(
            f"the model has logits for {n_logits} tokens, but its vocabulary has only {d_vocab}"
        )


#: minimal distance between the intervals: a model trained on repeats can be a few points worse on
#: them (the source's first experiment sorts 98.6 % of uniform lists and 96.8 % of hard ones)
DISTINCT_ACCURACY_MARGIN = 0.05


def with_repeats(lists: Lists) -> Lists:
    """Lists in which some value occurs at least twice."""
    ordered = lists.sorted()
    equal = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] < lists.n_values)
    return lists.take(equal.any(1))


def distinct_only(apart: ListAccuracy, repeating: ListAccuracy) -> bool:
    """Whether a model sorts lists of distinct values better by DISTINCT_ACCURACY_MARGIN."""
    return apart.low - repeating.high > DISTINCT_ACCURACY_MARGIN


def accuracies(
    model: Model, layout: ListLayout, distinct: bool | None, memory: int | str | None = None
) -> tuple[bool, Mapping[str, ListAccuracy]]:
    """Accuracy of a model on each test set, and whether its lists have distinct values.

    With repeats, lists of two values are a test set of their own ("two_values"), on which the
    source's causal model fails. If `distinct` is None, the accuracy on the other kind of list is
    added: "repeats" (uniform lists with repeats) beside the sets of distinct lists, "distinct"
    beside the others.

    Args:
        model: any TransformerLens model.
        layout: layout of its prompts.
        distinct: whether lists have distinct values; None: decide by the accuracies.
        memory: memory limit for a batch, such as "4GiB".

    Returns:
        Whether lists have distinct values, and the accuracy by name of the test set.

    Raises:
        InputError: the layout does not fit the model, or has no lists of distinct values.
    """

    def right(lists: Lists) -> ListAccuracy:
        return list_accuracy(model, layout, lists, memory)

    if distinct is not None or layout.longest > layout.n_values:
        by_name = standard_sets(layout, bool(distinct)) | _two_values(layout, bool(distinct))
        return bool(distinct), {name: right(lists) for name, lists in by_name.items()}
    sets, free = standard_sets(layout, True), standard_sets(layout, False)
    apart, repeating = right(sets.pop("random")), with_repeats(free["random"])
    other = right(repeating) if len(repeating) else None
    if other is not None and distinct_only(apart, other):
        rest = {name: right(lists) for name, lists in sets.items()}
        return True, {"random": apart, **rest, "repeats": other}
    free |= _two_values(layout, False)
    return False, {**{name: right(lists) for name, lists in free.items()}, "distinct": apart}


def hard_lists(layout: ListLayout, distinct: bool) -> Lists:
    """Test lists among which to search for the greatest loss.

    These are all sets (distinct values) or all multisets of two values. If those are too many to
    list, they are the hard lists, or else the random lists.
    """
    by_name = standard_sets(layout, distinct) | _two_values(layout, distinct)
    names = ("sets", "two_values", "hard", "random")
    return next(by_name[name] for name in names if name in by_name)


def _two_values(layout: ListLayout, distinct: bool) -> dict[str, Lists]:
    """Test set of all multisets of two values; empty if there is none."""
    lists = None if distinct else two_valued_sets(layout)
    return {} if lists is None else {"two_values": lists}
