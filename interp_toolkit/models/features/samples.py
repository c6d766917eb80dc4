"""Activations and labels at sampled positions of prompts, without counting duplicates twice.

A sample is a (row, position) pair with one boolean for each feature. Labels are the data's own
columns, at one position per row, or come from a `FeatureSet`: from the tokens, or, in batches, from
the activations at the hook point that an SAE reads. Features that are never on are left out.
`read_at` returns the model's activations at the samples' positions; batches hold rows of one
length, and only the values at those positions are kept.

Equal inputs form one group, which counts as one observation: a deterministic model gives them equal
activations, so copies of a prompt on both sides of a split, or separated by a permutation, would
look like evidence. Groups are kept together wherever rows are split, permuted or resampled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.features.feature_sets import TOKENS, FeatureSet
from interp_toolkit.models.features.sae import BATCH
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.hooks import expand_hooks
from interp_toolkit.models.running.streaming import activations


def equal_inputs(inputs: Iterable[Shaped[np.ndarray, "..."]]) -> Int[np.ndarray, " row"]:
    """The group of every input, numbered in order of first occurrence; equal inputs share one.

    Examples:
        >>> equal_inputs([np.array([5, 7]), np.array([5]), np.array([5, 7])]).tolist()
        [0, 1, 0]
    """
    codes: dict[tuple[tuple[int, ...], bytes], int] = {}
    keys = ((array.shape, array.tobytes()) for array in map(np.ascontiguousarray, inputs))
    return np.array([codes.setdefault(key, len(codes)) for key in keys], dtype=np.int64)


def equal_up_to(
    rows: Sequence[Int[np.ndarray, "..."]],
    positions: Sequence[int] | Int[np.ndarray, " row"],
    *,
    causal: bool = True,
) -> Int[np.ndarray, " row"]:
    """Group rows whose activations at their position must be equal, because their inputs are.

    Args:
        rows: token ids.
        positions: one per row; negative ones count from the row's end.
        causal: whether later tokens have no influence; if False, whole rows and their positions
            are compared.

    Examples:
        >>> rows = [np.array([5, 7, 9]), np.array([5, 7]), np.array([5, 8, 9])]
        >>> equal_up_to(rows, [1, 1, 1]).tolist(), equal_up_to(rows, [0, 0, 0]).tolist()
        ([0, 0, 1], [0, 0, 0])
    """
    ends = [int(p) % len(row) for row, p in zip(rows, positions, strict=True)]
    if causal:
        return equal_inputs([row[: p + 1] for row, p in zip(rows, ends, strict=True)])
    return equal_inputs([np.append(row, p) for row, p in zip(rows, ends, strict=True)])


def joined(*groupings: Sequence[int] | Int[np.ndarray, " row"]) -> Int[np.ndarray, " row"]:
    """The finest grouping that is coarser than all of these (connected components).

    Groups are numbered in order of first occurrence.

    Examples:
        >>> joined(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2])).tolist()
        [0, 0, 0, 1]
    """
    codes = [np.unique(np.asarray(grouping), return_inverse=True)[1] for grouping in groupings]
    n, rows = len(codes[0]), np.arange(len(codes[0]))
    offsets = np.cumsum([n, *(code.max() + 1 for code in codes)])
    columns = np.concatenate([o + code for o, code in zip(offsets[:-1], codes, strict=True)])
    links = (np.ones(len(columns)), (np.tile(rows, len(codes)), columns))
    size = int(offsets[-1])
    component = connected_components(coo_matrix(links, shape=(size, size)), directed=False)[1][:n]
    return equal_inputs(component[:, None])


Position = int | Literal["all"] | None


@runtime_checkable
class TokenRows(Protocol):
    """The source of labeled samples, such as `data.FeatureData`."""

    @property
    def tokens(self) -> Any:
        """Rows of token ids."""

    @property
    def features(self) -> Any:
        """Booleans [row feature]; no columns if features come from elsewhere."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the feature columns."""

    @property
    def positions(self) -> Any:
        """The position of each row, counted from its start, or None."""

    @property
    def groups(self) -> Any:
        """The group of each row, or None."""

    @property
    def source(self) -> str:
        """The source of the rows."""


class RowPositions(NamedTuple):
    """Samples, sorted by row and then by position: row index, and position in the row."""

    rows: Int[np.ndarray, " n"]
    positions: Int[np.ndarray, " n"]


def all_positions(data: TokenRows, position: Position, *, one_a_row: bool) -> RowPositions:
    """The candidate positions in all rows, as selected by `position` (see `labelled_samples`).

    Raises InputError for positions outside a row, and for "all" if `one_a_row` is required.
    """
    lengths = np.array([len(row) for row in data.tokens])
    numbers = np.arange(len(lengths))
    if one_a_row and position == "all":
        raise InputError(
            f"{data.source}: feature columns hold one value for each row, so they need one "
            "position (--position N)"
        )
    if position is None and data.positions is not None:
        return RowPositions(numbers, data.positions)
    if position is None and one_a_row:
        return RowPositions(numbers, lengths - 1)
    if position is None or position == "all":
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        return RowPositions(np.repeat(numbers, lengths), np.arange(lengths.sum()) - starts)
    outside = np.flatnonzero((position >= lengths) | (position < -lengths))
    if len(outside):
        row = int(outside[0])
        raise InputError(
            f"{data.source}: position {position} is outside row index {row}, which has "
            f"{lengths[row]} tokens"
        )
    return RowPositions(numbers, np.where(position < 0, lengths + position, position))


def draw(sites: RowPositions, most: int, seed: int) -> RowPositions:
    """Sample whole rows in random order, with at most `most` positions in total.

    Raises InputError if not even the first row fits.
    """
    if len(sites.rows) <= most:
        return sites
    counts = np.bincount(sites.rows)
    order = np.random.default_rng(seed).permutation(len(counts))
    taken = order[np.cumsum(counts[order]) <= most]
    if not len(taken):
        raise InputError(
            f"a row has {counts[order[0]]:,} positions, more than the limit of {most:,}: give "
            "one position"
        )
    chosen = np.isin(sites.rows, taken)
    return RowPositions(sites.rows[chosen], sites.positions[chosen])


@dataclass(frozen=True)
class _Rows:
    """Some of the data's rows, each read at one position or (None) at all positions."""

    tokens: Sequence[Any]
    positions: np.ndarray | None


def stream(
    model: Model,
    data: TokenRows,
    sites: RowPositions,
    hooks: Sequence[str],
    memory: int | str | None,
) -> Iterator[tuple[Int[np.ndarray, " batch"], Mapping[str, Shaped[Tensor, "batch ..."]]]]:
    """Activations in batches: indices into `sites`, and hook -> values there."""
    used, first, counts = np.unique(sites.rows, return_index=True, return_counts=True)
    tokens = [data.tokens[row] for row in used.tolist()]
    single = bool((counts == 1).all())
    rows = _Rows(tokens, sites.positions[first] if single else None)
    where = None if single else "all"
    for batch in activations(model, rows, hooks, where, memory=memory):
        chosen = batch.index.numpy()
        if single:
            yield first[chosen], batch
            continue
        repeats = np.repeat(np.arange(len(chosen)), counts[chosen])
        offsets = np.arange(len(repeats)) - np.repeat(
            np.cumsum(counts[chosen]) - counts[chosen], counts[chosen]
        )
        index = first[chosen][repeats] + offsets
        at = torch.from_numpy(repeats), torch.from_numpy(sites.positions[index])
        yield index, {hook: value[at] for hook, value in batch.items()}


_RAGGED = ("hook_attn_scores", "hook_pattern")  # their width is the row's length


@dataclass(frozen=True, eq=False)
class Samples:
    """Sampled positions with the features that are on at each.

    Attributes:
        data: the rows.
        rows, positions: row and position of each sample, sorted by row and then by position.
        labels: the features that are on at each sample; every feature is on somewhere.
        names: names of these features.
        feature_indices: their indices in the feature set, or among the data's columns.
        groups: groups of the samples; a group must not be split. These are the data's groups,
            joined with rows of the same tokens (up to the position, if there is one position per
            row).
        source: rows and features, and what was left out, as a phrase.
        dropped: number of features that are never on, and left out.
    """

    data: TokenRows
    rows: Int[np.ndarray, " n"]
    positions: Int[np.ndarray, " n"]
    labels: Bool[np.ndarray, "n feature"]
    names: tuple[str, ...]
    feature_indices: Int[np.ndarray, " feature"]
    groups: Int[np.ndarray, " n"]
    source: str
    dropped: int

    def __len__(self) -> int:
        return len(self.rows)


def labelled_samples(
    model: Model,
    data: TokenRows | None,
    features: FeatureSet | None = None,
    *,
    position: Position = None,
    most: int | None = None,
    seed: int = 0,
    memory: int | str | None = None,
) -> Samples:
    """Labeled samples of some rows.

    Args:
        model: any TransformerLens model.
        data: the rows.
        features: the features to label; None: the data's own columns, at one position per row.
        position: the position to read in each row (negative: from its end); "all" for every
            position; None: the data's own positions; without these, the last one for the data's
            columns, and all for other features.
        most: largest number of samples, from whole rows drawn at random; None: all.
        seed: random seed of that draw.
        memory: bound on activations held at once, such as "4GiB".

    Raises:
        InputError: no rows, no columns, "all" positions for columns, positions outside a row, a
            row with more positions than `most`, no feature that is ever on.
    """
    if data is None:
        raise InputError("no data: features need rows of tokens to be read in (--data FILE)")
    if features is None and not data.features.shape[1]:
        raise InputError(f"{data.source}: there is no feature column; add one or give --features")
    sites = all_positions(data, position, one_a_row=features is None)
    total = len(sites.rows)
    if most is not None:
        sites = draw(sites, most, seed)
    source = data.source if features is None else f"{features.source}, on {data.source}"
    if len(sites.rows) < total:
        source += f" ({len(sites.rows):,} of {total:,} positions, from randomly sampled rows)"
    if features is None:
        names, labels = data.names, data.features[sites.rows]
        columns = np.flatnonzero(labels.any(0))
        labels = labels[:, columns]
    else:
        names = features.names
        labels, columns = _labels(model, data, features, sites, memory)
    if not len(columns):
        raise InputError(f"{source}: none of the {len(names)} features is on at any position")
    return Samples(
        data=data,
        rows=sites.rows,
        positions=sites.positions,
        labels=labels,
        names=tuple(names[k] for k in columns),
        feature_indices=columns,
        groups=_groups(model, data, sites),
        source=source,
        dropped=len(names) - len(columns),
    )


def read_at(
    model: Model,
    samples: Samples,
    hooks: str | Iterable[str],
    *,
    memory: int | str | None = None,
) -> dict[str, Float[np.ndarray, "n _"]]:
    """The activations at the samples: hook -> [sample, d], with heads concatenated.

    Half precision is returned as float32, other dtypes are unchanged.

    Raises:
        InputError: unknown hooks, hooks that never fire or whose width is the row's length, values
            that are NaN or infinite.
    """
    names = _readable(expand_hooks(model, hooks))
    sites = RowPositions(samples.rows, samples.positions)
    out: dict[str, np.ndarray] = {}
    for index, values in stream(model, samples.data, sites, names, memory):
        for hook, value in values.items():
            flat = _as_numpy(value.flatten(1))
            if hook not in out:
                out[hook] = np.empty((len(samples), flat.shape[1]), dtype=flat.dtype)
            if not np.isfinite(flat).all():
                raise InputError(f"{hook} has NaN or infinite activations on this data")
            out[hook][index] = flat
    return out


def _groups(model: Model, data: TokenRows, sites: RowPositions) -> Int[np.ndarray, " n"]:
    """The data's groups, joined with rows of equal inputs up to their positions."""
    if len(np.unique(sites.rows)) == len(sites.rows):
        causal = getattr(model.cfg, "attention_dir", "causal") != "bidirectional"
        rows = [np.asarray(data.tokens[row]) for row in sites.rows]
        equal = equal_up_to(rows, sites.positions, causal=causal)
    else:
        equal = equal_inputs(map(np.asarray, data.tokens))[sites.rows]
    if data.groups is None:
        return equal
    return joined(equal, np.unique(data.groups, return_inverse=True)[1][sites.rows])


def _labels(
    model: Model,
    data: TokenRows,
    features: FeatureSet,
    sites: RowPositions,
    memory: int | str | None,
) -> tuple[Bool[np.ndarray, "n feature"], Int[np.ndarray, " feature"]]:
    """Labels of the features that are on somewhere, and the indices of these features.

    Until these features are known, only the labels that are on are kept.
    """
    samples: list[np.ndarray] = []
    numbers: list[np.ndarray] = []
    for index, values in _label_inputs(model, data, features, sites, memory):
        for start in range(0, len(index), BATCH):
            on = features.label(values[start : start + BATCH])
            sample, number = np.nonzero(on.cpu().numpy())
            samples.append(index[start + sample])
            numbers.append(number)
    active, columns = np.unique(np.concatenate(numbers), return_inverse=True)
    labels = np.zeros((len(sites.rows), len(active)), dtype=bool)
    labels[np.concatenate(samples), columns.reshape(-1)] = True
    return labels, active


def _label_inputs(
    model: Model,
    data: TokenRows,
    features: FeatureSet,
    sites: RowPositions,
    memory: int | str | None,
) -> Iterator[tuple[Int[np.ndarray, " batch"], Tensor]]:
    """The input of a feature set at the positions: token ids, or activations."""
    if features.reads is None:
        features.label(torch.zeros(0, 0))  # raises: it is unknown when the features are on
    elif features.reads == TOKENS:
        starts = np.cumsum([0, *(len(row) for row in data.tokens)])[:-1]
        tokens = np.concatenate(list(data.tokens))[starts[sites.rows] + sites.positions]
        if len(tokens) and tokens.max() >= int(model.cfg.d_vocab):
            raise InputError(f"{data.source}: token {tokens.max()} is not in the vocabulary")
        yield np.arange(len(tokens)), torch.from_numpy(tokens)
    else:
        hook = features.reads
        for index, values in stream(model, data, sites, [hook], memory):
            yield index, values[hook]


def _readable(hooks: list[str]) -> list[str]:
    """Raise InputError for hooks whose width is the row's length."""
    for hook in hooks:
        if hook.endswith(_RAGGED):
            raise InputError(f"{hook} depends on the row's length: choose another hook")
    return hooks


def _as_numpy(value: Tensor) -> np.ndarray:
    value = value.cpu()
    return (value.float() if value.dtype in (torch.bfloat16, torch.float16) else value).numpy()
