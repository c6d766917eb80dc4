"""Hand-set models with the rows of a sorter that do something else.

`sort_descending`, `copy_list`, `reverse_list` and `echo_previous` answer exactly, but not with the
sorted list: an analysis that names a sorting algorithm must name neither for them.
Lists are those of `toys.sorting`: n, k and the arguments mean the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.sorting import (
    FILTER,
    GAIN,
    PREFER,
    ListModel,
    autoregressive,
    blank,
    default_layout,
    fixed_length,
    write_heads,
)

SCORE = 20.0  # exp(20) = 5e8: the rest of the row gets less than 1e-7


def sort_descending(
    n_values: int = 15,
    length: int = 10,
    *,
    layout: str | None = None,
    shares: Sequence[float] = (1.0,),
    dtype: torch.dtype = torch.float64,
) -> Transformer:
    """Descending order, max{< previous}: `sort_min_greater` with the alphabet turned around."""
    text = layout or default_layout(n_values, length)
    target = autoregressive(text, n_values, shares, gain=GAIN, dtype=dtype)
    value = torch.arange(n_values)
    wanted = FILTER + PREFER * value.double()
    scores = target.no_scores()
    less = value < value[:, None]  # [query key]
    scores[torch.tensor(target.values)[:, None], target.values] = wanted * less
    scores[torch.tensor(target.others)[:, None], target.values] = wanted
    return write_heads(target, scores, _copy(target), shares)


def copy_list(
    n_values: int = 10,
    length: int = 10,
    *,
    layout: str | None = None,
    shares: Sequence[float] = (1.0,),
    dtype: torch.dtype = torch.float64,
) -> Transformer:
    """The list as it was given: where output k is read, the head attends to item k, by position.

    Item k gets A/(A + r), r the other keys, with A = exp(SCORE). In place where the layout has no
    sorted list, and then for lists of any length.
    """
    text = layout or default_layout(n_values, length)
    target = blank(text, n_values, shares, gain=GAIN, dtype=dtype)
    if target.layout.autoregressive:
        fixed_length(target.layout)
    return _by_place(target, target.items, shares)


def reverse_list(
    n_values: int = 10,
    length: int = 10,
    *,
    layout: str | None = None,
    shares: Sequence[float] = (1.0,),
    dtype: torch.dtype = torch.float64,
) -> Transformer:
    """The list from its end: `copy_list` with the items counted backwards."""
    text = layout or default_layout(n_values, length)
    target = blank(text, n_values, shares, gain=GAIN, dtype=dtype)
    fixed_length(target.layout)
    return _by_place(target, target.items[::-1], shares)


def echo_previous(
    n_values: int = 10,
    length: int = 10,
    *,
    layout: str | None = None,
    shares: Sequence[float] = (1.0,),
    dtype: torch.dtype = torch.float64,
) -> Transformer:
    """The output before, again: keys with the query's own token; a separator's outputs are 0."""
    text = layout or default_layout(n_values, length)
    target = autoregressive(text, n_values, shares, gain=GAIN, dtype=dtype)
    scores = target.no_scores()
    tokens = target.values + target.others
    scores[tokens, tokens] = SCORE
    writes = _copy(target)
    writes[target.others, 0] = GAIN
    return write_heads(target, scores, writes, shares)


def _by_place(target: ListModel, items: Sequence[int], shares: Sequence[float]) -> Transformer:
    scores = target.no_scores()
    scores[target.reads, items] = SCORE
    return write_heads(target, scores, _copy(target), shares)


def _copy(target: ListModel) -> Float[Tensor, "token value"]:
    writes = target.no_writes()
    writes[target.values] = GAIN * torch.eye(len(target.values), dtype=torch.float64)
    return writes
