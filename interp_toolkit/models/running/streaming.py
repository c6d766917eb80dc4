"""Activations of a model, streamed in batches for the requested hooks and positions only.

Rows of equal length are run together, so nothing is ever padded. A hook keeps only the requested
positions, and the forward pass stops as soon as every hook has fired: layers above the last one
needed do not run. Nothing is kept between batches.

`position_sums` adds up activations over rows, position by position, so that means over rows can be
computed from these sums.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from interp_toolkit.errors import InputError, a_kind, check_texts, takes
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.models.model import Model, check_model
from interp_toolkit.models.running.forward import StopForwardError, run
from interp_toolkit.models.running.hooks import expand_hooks, hook_points
from interp_toolkit.models.running.memory import (
    bytes_per_row,
    heads_of,
    itemsize_of,
    parse_memory,
    rows_that_fit,
    together,
)

#: one position, "all", several positions, or None for the data's own
Positions = int | str | slice | Sequence[int] | None

#: hook points whose axes are [batch head query key]; for others, positions are on axis 1
_QUERY_BY_KEY = ("hook_attn_scores", "hook_pattern")


@dataclass(frozen=True, eq=False)
class ActivationBatch(ShortRepr, Mapping[str, Tensor]):
    """Activations of some rows: hook name -> tensor, the batch first.

    Attributes:
        index: indices of these rows in the data.
        tensors: activations; for one position with the hook's axes without the position; else with
            it.

    Examples:
        >>> import interp_toolkit as it
        >>> [batch] = it.activations(it.load("toy:xor-2head"), [[0, 1, 2]], "blocks.0.*_post")
        >>> list(batch), batch.index.tolist()
        (['blocks.0.hook_resid_post'], [0])
    """

    index: Int[Tensor, " batch"]
    tensors: Mapping[str, Tensor] = field(repr=False)

    def __getitem__(self, hook: str) -> Tensor:
        return self.tensors[hook]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


@takes(model=check_model, hooks=check_texts, batch_size=Integral)
def activations(
    model: Model,
    data: Any,
    hooks: str | Iterable[str],
    positions: Positions = None,
    *,
    batch_size: int | None = None,
    memory: int | str | None = None,
    device: str | torch.device | None = None,
) -> Iterator[ActivationBatch]:
    """The model's activations at some hooks and positions, batch by batch.

    Args:
        model: any TransformerLens model.
        data: integer tokens [n pos] or a sequence of rows of any lengths, or an object with these
            as `.tokens` and optionally `.positions` ([n] integers or None).
        hooks: names or patterns, as `expand_hooks` takes them.
        positions: one position (negative: from the row's end), "all", a slice or a list; None is
            the data's own position for each row, or the last one if it has none.
        batch_size: rows per batch; None: as many as fit in `memory`.
        memory: bytes, or text such as "4GiB", for activations (see `models.running.memory`); 1 GiB
            if None.
        device: where to keep the activations; None: where the model computes.

    Yields:
        Batches in the order of row length, then row. Values are detached; one position gives
        [batch ...], several [batch pos ...] (patterns and scores: the query's position, axis 2).

    Raises:
        InputError: unknown hooks, hooks that never fire, positions outside a row, tokens that the
            model does not have, rows longer than its context, too little memory.

    Examples:
        >>> import interp_toolkit as it
        >>> model, hook = it.load("toy:xor-2head"), "blocks.0.hook_resid_post"
        >>> for batch in it.activations(model, [[0, 1, 2], [1, 1, 2]], hook, -1):
        ...     print(tuple(batch[hook].shape))
        (2, 3)
    """
    names = expand_hooks(model, hooks)
    rows = rows_of(data, model)
    chosen = _row_positions(data, rows, positions)
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch_size is {batch_size}; it must be at least 1")
    budget = parse_memory(memory)
    return _stream(model, rows, names, chosen, batch_size, budget, device)


@takes(model=check_model, hooks=check_texts, batch_size=Integral)
def collect(
    model: Model,
    data: Any,
    hooks: str | Iterable[str],
    positions: Positions = None,
    *,
    batch_size: int | None = None,
    memory: int | str | None = None,
    device: str | torch.device = "cpu",
) -> dict[str, Shaped[Tensor, "n ..."]]:
    """`activations` of all rows as one tensor per hook, in the data's order: hook -> [n ...].

    Arguments are those of `activations`; by default the tensors are on the CPU.
    Raises InputError as `activations` does, and when rows keep different numbers of positions.

    Examples:
        >>> import interp_toolkit as it
        >>> values = collect(it.load("toy:xor-2head"), [[0, 1, 2], [1, 1, 2]], "*.hook_z", "all")
        >>> {hook: tuple(value.shape) for hook, value in values.items()}
        {'blocks.0.attn.hook_z': (2, 3, 2, 1)}
    """
    n_rows = len(rows_of(data, model))
    batches = activations(
        model, data, hooks, positions, batch_size=batch_size, memory=memory, device=device
    )
    out: dict[str, Tensor] = {}
    for batch in batches:
        for hook, value in batch.items():
            if hook not in out:
                out[hook] = value.new_empty((n_rows, *value.shape[1:]))
            if value.shape[1:] != out[hook].shape[1:]:
                raise InputError(
                    f"rows keep different numbers of positions at {hook}: "
                    f"{tuple(out[hook].shape[1:])} and {tuple(value.shape[1:])}; "
                    "request one position, or read them with activations()"
                )
            out[hook][batch.index.to(out[hook].device)] = value
    return out


def _stream(
    model: Model,
    rows: list[np.ndarray],
    names: list[str],
    chosen: _Chosen,
    batch_size: int | None,
    budget: int,
    device: str | torch.device | None,
) -> Iterator[ActivationBatch]:
    lengths = np.array([len(row) for row in rows])
    named = hook_points(model)
    points = {name: named[name] for name in names}
    for n_pos in np.unique(lengths).tolist():
        where = np.flatnonzero(lengths == n_pos)
        size = batch_size or _fitting(model, names, chosen.count(n_pos), n_pos, budget)
        for start in range(0, len(where), size):
            index = torch.from_numpy(where[start : start + size])
            tokens = torch.from_numpy(np.stack([rows[i] for i in index.tolist()]))
            at = chosen.of(index, n_pos)
            values = _read(model, tokens, points, at, device)
            yield ActivationBatch(index, values)


def _read(
    model: Model,
    tokens: Int[Tensor, "batch pos"],
    points: Mapping[str, Any],
    at: _At,
    device: str | torch.device | None,
) -> dict[str, Tensor]:
    """One forward pass, stopped once every hook has fired."""
    values: dict[str, Tensor] = {}

    def keep(value: Any, hook: Any, *, name: str) -> None:
        values[name] = _keep(value, name, at, len(tokens)).to(device)
        if len(values) == len(points):
            raise StopForwardError

    run(model, tokens, [(p, functools.partial(keep, name=n)) for n, p in points.items()])
    missing = [name for name in points if name not in values]
    if missing:
        raise InputError(f"hook {missing[0]} never fires in this model; leave it out")
    return {name: values[name] for name in points}


def _keep(value: Any, name: str, at: _At, n_rows: int) -> Tensor:
    if not isinstance(value, Tensor) or value.ndim < 2:
        raise InputError(f"hook {name} carries no tensor with positions; leave it out")
    if value.shape[0] == 1 and n_rows > 1:  # values shared by all rows, such as positions
        value = value.expand(n_rows, *value.shape[1:])
    axis = 2 if name.endswith(_QUERY_BY_KEY) else 1
    return at.take(value.detach(), axis)


@dataclass(frozen=True)
class _At:
    """Positions to keep in one batch: one per row, or the same list for every row."""

    one: Int[Tensor, " batch"] | None
    several: Int[Tensor, " kept"] | None

    def take(self, value: Tensor, axis: int) -> Tensor:
        if self.several is not None:
            return value.index_select(axis, self.several.to(value.device))
        assert self.one is not None
        rows = torch.arange(len(value), device=value.device)
        return value.movedim(axis, 1)[rows, self.one.to(value.device)]


@dataclass(frozen=True)
class _Chosen:
    """Positions to keep in all rows, checked against their lengths."""

    per_row: Int[np.ndarray, " n"] | None
    selection: slice | list[int] | None

    def of(self, index: Int[Tensor, " batch"], n_pos: int) -> _At:
        if self.per_row is not None:
            one = torch.from_numpy(self.per_row[index.numpy()])
            return _At(torch.where(one < 0, one + n_pos, one), None)
        several = torch.arange(n_pos)[self.selection]
        if not len(several):
            raise InputError(
                f"positions {self.selection} select none of the {n_pos} tokens of a prompt"
            )
        return _At(None, several)

    def count(self, n_pos: int) -> int:
        return 1 if self.per_row is not None else len(range(n_pos)[self._slice(n_pos)])

    def _slice(self, n_pos: int) -> slice:
        if isinstance(self.selection, slice):
            return self.selection
        return slice(0, len(self.selection or ()))


def _row_positions(data: Any, rows: list[np.ndarray], positions: Positions) -> _Chosen:
    """The positions to keep; raises InputError if a row does not have them."""
    if positions is None:
        own = getattr(data, "positions", None)
        positions = -1 if own is None else own
        if own is not None:
            return _Chosen(_checked(np.asarray(own), rows), None)
    if isinstance(positions, str):
        if positions != "all":
            raise InputError(f'positions is {positions!r}; give numbers, a slice or "all"')
        return _Chosen(None, slice(None))
    if isinstance(positions, slice):
        return _Chosen(None, _forward(positions))
    if isinstance(positions, int | np.integer):
        return _Chosen(_checked(np.full(len(rows), int(positions)), rows), None)
    try:
        listed = [operator.index(position) for position in positions]
    except TypeError as error:
        raise InputError(
            f'positions is {a_kind(positions)}; give whole numbers, a slice or "all"'
        ) from error
    if not listed:
        raise InputError("positions is an empty list")
    for position in listed:
        _checked(np.full(len(rows), position), rows)
    return _Chosen(None, listed)


def _forward(positions: slice) -> slice:
    if positions.step is not None and positions.step < 1:
        raise InputError("positions is a slice that runs backwards")
    return positions


def _checked(positions: np.ndarray, rows: list[np.ndarray]) -> np.ndarray:
    if len(positions) != len(rows):
        raise InputError(f"{len(positions)} positions for {len(rows)} rows")
    lengths = np.array([len(row) for row in rows])
    bad = np.flatnonzero((positions >= lengths) | (positions < -lengths))
    if len(bad):
        row = int(bad[0])
        raise InputError(
            f"position {positions[row]} is outside row index {row} of {lengths[row]} tokens"
        )
    return positions.astype(np.int64)


def rows_of(data: Any, model: Model) -> list[np.ndarray]:
    """The data's rows of token ids.

    Raises InputError for data that is not tokens of this model.
    """
    tokens = getattr(data, "tokens", data)
    if isinstance(tokens, Tensor):
        tokens = tokens.detach().cpu().numpy()
    if isinstance(tokens, np.ndarray) and tokens.ndim != 2 and tokens.dtype != object:
        raise InputError(f"tokens have {tokens.ndim} axes; they must be [row position]")
    try:
        rows = [np.asarray(row) for row in tokens]
    except TypeError:
        raise InputError(
            f"{a_kind(data)} cannot be used as tokens; give an integer array"
        ) from None
    if not rows:
        raise InputError("the data has no rows")
    d_vocab, n_ctx = int(model.cfg.d_vocab), int(model.cfg.n_ctx)
    for number, row in enumerate(rows):
        if row.ndim != 1 or not len(row) or row.dtype.kind not in "iu":
            raise InputError(f"row index {number} is not a list of token ids")
        if len(row) > n_ctx:
            raise InputError(f"row index {number} has {len(row)} tokens; the model takes {n_ctx}")
        if row.min() < 0 or row.max() >= d_vocab:
            raise InputError(
                f"row index {number} has token ids outside the vocabulary of {d_vocab}"
            )
    return [row.astype(np.int64, copy=False) for row in rows]


def _fitting(model: Model, names: list[str], n_positions: int, n_pos: int, budget: int) -> int:
    """The number of rows of a batch, from the memory estimate."""
    logits = any("unembed" in name for name in names)
    n_stored = numbers_stored(model.cfg, names, n_positions, n_pos)
    row = bytes_per_row(model.cfg, n_pos, itemsize_of(model), logits=logits, n_stored=n_stored)
    return rows_that_fit(budget, row, n_pos)


def numbers_stored(cfg: Any, names: Sequence[str], n_positions: int, n_pos: int) -> int:
    """The number of values per row that a loop over batches stores for some hooks.

    It is twice that of one batch, because a batch is held until the next one is complete.

    Args:
        cfg: the model's configuration (TransformerLens's field names).
        names: names of the hooks.
        n_positions: number of positions kept.
        n_pos: tokens in the row.
    """
    n_heads, d_head = heads_of(cfg)
    widest = max(int(cfg.d_model), n_heads * d_head)
    per_position = 0
    for name in names:
        if name.endswith(_QUERY_BY_KEY):
            per_position += n_heads * n_pos
        elif ".mlp." in name:
            per_position += max(widest, int(getattr(cfg, "d_mlp", None) or 0))
        elif name.endswith("hook_result"):
            per_position += n_heads * int(cfg.d_model)
        else:
            per_position += widest
    return 2 * per_position * n_positions


BATCH = 32  # rows per batch that hooks read together should allow


def position_sums(
    model: Model, data: Any, hooks: Sequence[str], *, memory: int | str | None = None
) -> tuple[dict[str, Float[Tensor, "pos ..."]], Float[Tensor, " pos"]]:
    """Sums over the rows that reach each position, by hook, and the number of those rows.

    Args:
        model: any TransformerLens model.
        data: tokens or data, as `activations` takes them.
        hooks: names of hook points.
        memory: bound for the run; as many hooks are read together as it allows.
    """
    lengths = torch.tensor([len(row) for row in rows_of(data, model)])
    longest = int(lengths.max())
    counts = (lengths[:, None] > torch.arange(longest)).sum(0).float()
    # per hook: values of BATCH rows, and their sums
    n_stored = numbers_stored(model.cfg, hooks[:1], longest, longest)
    hook_bytes = n_stored * (itemsize_of(model) * min(len(lengths), BATCH) + 4)
    sums: dict[str, Tensor] = {}
    left = list(hooks)
    while left:
        some = together(left, left[0], memory, hook_bytes)
        left = left[len(some) :]
        for batch in activations(model, data, some, "all", memory=memory):
            for name, values in batch.items():
                batch_sums = values.double().sum(0)
                total = sums.setdefault(
                    name, batch_sums.new_zeros((longest, *batch_sums.shape[1:]))
                )
                total[: len(batch_sums)] += batch_sums
    return sums, counts
