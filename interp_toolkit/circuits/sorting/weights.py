"""Weights of a one-layer sorting model: QK and OV tables, their form, and effects of positions.

`weight_tables` returns two tables per head, as in the source's figures:

- QK: attention scores by output item, from each value at the query position to each value of the
  list and to each separator.
- OV: effect of attending to each value or separator alone on the logits of the values.

Entries of a value are means over the list's positions; entries of a separator are those at its own
position. List lengths have equal weight. OV includes the output of b_V, but no term that does not
depend on the head: b_O, b_U and the query's residual stream. Without an MLP, the logits are `direct
+ Σ attention x OV` (entries by position), divided by one number per list and item if there is a
final norm. As a check, the logits of a reading are rebuilt in this way from its attention, before
that division, and the unexplained fraction of their variance is reported. OV is divided by the mean
scale of the final norm.

`copy_score` and `piecewise_fits` describe a head's OV table. Algorithm 2 sums `min(0, i - x)` over
the list's values i, and softmax and separators allow any shift and any multiple of x in each row.
The table is therefore fitted by least squares as `v(x) + c_i + b_i x + s min(0, i - x)` with one
slope s >= 0. Lines alone explain most of the variance of many tables (90 % in the source's
experiment 3), so the contribution of the kinks is reported separately. A vector v(x) common to all
rows changes nothing that the model computes, since attention sums to 1. It is subtracted first,
which the source's formula does not do.

`position_shares` splits the variance of scores exactly into sequential effects: of the key token,
of the query token, of the query's position, and of the key's position. The mean score over all keys
of a query does not change the pattern and is subtracted first. The output of values to the logits,
minus its mean over logits and over sources, is split into effects of token and position.

Source: "How do tiny transformers sort lists of small integers?" (Qi and Zhong 2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.circuits.sorting.activations import ListReading
from interp_toolkit.circuits.weights.ov import ov_circuit
from interp_toolkit.circuits.weights.qk import qk_circuit
from interp_toolkit.circuits.weights.token_scores import read_through, written_through
from interp_toolkit.data.lists.layout import ListLayout
from interp_toolkit.errors import InputError
from interp_toolkit.finding import column
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.models.model import Model
from interp_toolkit.models.weights.parts import LayerWeights
from interp_toolkit.models.weights.view import ModelWeights, weights
from interp_toolkit.results import head_name


@dataclass(frozen=True)
class Source:
    """A value of the list, a separator or the padding.

    Attributes:
        name: name on axes; separators with the same id are numbered, as in "[10] 2nd".
        token: token id.
        positions: possible positions for each length of the list, from the shortest; empty for a
            length that needs no padding.
    """

    name: str
    token: int
    positions: tuple[tuple[int, ...], ...]


def sources(layout: ListLayout) -> tuple[Source, ...]:
    """Sources of a layout: values at the list's positions, then separators, then padding."""
    lengths = range(layout.shortest, layout.longest + 1)
    start = len(layout.before)
    listed = tuple(tuple(range(start, start + length)) for length in lengths)
    values = [Source(layout.token_name(token), token, listed) for token in layout.values]
    separators = [*layout.before, *layout.between, *layout.after]
    by_length = [_separator_positions(layout, length) for length in lengths]
    others = [
        Source(
            _name(layout, separators, i), token, tuple((positions[i],) for positions in by_length)
        )
        for i, token in enumerate(separators)
    ]
    padding = tuple(tuple(range(_row_length(layout, n), layout.n_positions)) for n in lengths)
    if layout.pad is not None and any(padding):
        others.append(Source("padding", layout.pad, padding))
    return (*values, *others)


def _separator_positions(layout: ListLayout, length: int) -> list[int]:
    """Position of each separator in a prompt whose list has this length."""
    between = len(layout.before) + length
    after = _row_length(layout, length) - len(layout.after)
    return [
        *range(len(layout.before)),
        *range(between, between + len(layout.between)),
        *range(after, after + len(layout.after)),
    ]


def _row_length(layout: ListLayout, length: int) -> int:
    n_lists = 2 if layout.autoregressive else 1
    separators = len(layout.before) + len(layout.between) + len(layout.after)
    return n_lists * length + separators


def _name(layout: ListLayout, separators: list[int], number: int) -> str:
    """Name of a separator, numbered if another has the same id."""
    token = separators[number]
    name = layout.token_name(token)
    if separators.count(token) == 1:
        return name
    order = separators[: number + 1].count(token)
    return f"{name} {order}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(order, 'th') }"


EXACT = 1e-6  # fraction of the logits' variance; rounding in float32 leaves 1e-12
MOST_ROWS = 256  # lists of the reading whose logits are rebuilt
MOST_NUMBERS = 8_000_000  # numbers in memory while rebuilding, which limits the number of lists


@dataclass(frozen=True, eq=False)
class WeightTables(ShortRepr):
    """QK and OV tables of every head; see the module.

    Attributes:
        qk: attention scores, divided by the attention scale; -inf where the mask hides the key.
            If item 0 is read at the separator before the sorted list, all queries of item 0 have
            the scores of that separator.
        ov: effect of each source on the logits of the values.
        ov_posted: effect of each value by the source's formula: without position embeddings, and
            with b_O and b_U.
        query_names: names of the queries (the values).
        first_query: name of the separator at which item 0 is read; None if it is read at a value.
        source_names: names of the keys: values, then separators, then padding.
        exact: whether the rebuilt logits equal the model's and no final norm divides them.
        residual: fraction of the logits' variance over the values, before the division by a final
            norm, that the tables do not explain.
        note: why the tables are not exact; "" if they are.
    """

    qk: Float[Tensor, "head item query source"]
    ov: Float[Tensor, "head source value"]
    ov_posted: Float[Tensor, "head value value"]
    query_names: tuple[str, ...]
    first_query: str | None
    source_names: tuple[str, ...]
    exact: bool
    residual: float
    note: str

    def average_qk(self, head: int) -> Float[Tensor, "query source"]:
        """Scores of a head from each value, averaged over the items that are read at values."""
        first = 0 if self.first_query is None else 1
        scores = self.qk[head, first:] if self.qk.shape[1] > first else self.qk[head]
        return scores.mean(0)


@torch.no_grad()
def weight_tables(model: Model, layout: ListLayout, reading: ListReading) -> WeightTables:
    """QK and OV tables of a one-layer model.

    Args:
        model: any one-layer TransformerLens model.
        layout: layout of its prompts.
        reading: logits and attention on lists, against which the tables are checked.

    Raises:
        InputError: the weights cannot be read exactly, or a norm rescales the residual stream after
            the heads' output is added to it (post-norm, as in BERT).
    """
    view = weights(model)
    listed = sources(layout)
    written = _written(view, layout)
    residual = _residual(view, layout, reading, written)
    scale = float(reading.scale[reading.rows.present].mean())
    values = torch.tensor(layout.values)
    means = [
        torch.stack(
            [written[:, torch.tensor(at), source.token].mean(1) for at in source.positions if at]
        ).mean(0)
        for source in listed
    ]
    exact = residual < EXACT and view.final_norm.kind is None
    return WeightTables(
        qk=_scores(view, layout, listed),
        ov=torch.stack(means, dim=1) / scale,
        ov_posted=_posted(view, values),
        query_names=layout.value_names(),
        first_query=None
        if _standing(layout, 0) == layout.values
        else layout.token_name(layout.between[-1]),
        source_names=tuple(source.name for source in listed),
        exact=exact,
        residual=residual,
        note="" if exact else _note(view, residual),
    )


def separator_line_of_weights(
    tables: WeightTables, layout: ListLayout
) -> Float[Tensor, "head separator item"]:
    """Attention to each separator over attention to all values except the largest, from QK.

    The ratio is `exp(mean over queries of (QK to the separator - mean QK to values 0 to n - 2))`,
    as in the source's figures; 0 where the mask hides the separator.
    """
    n = layout.n_values
    values = tables.qk[..., : n - 1].mean(-1, keepdim=True)
    gap = (tables.qk[..., n:] - values).mean(2)
    return gap.exp().transpose(1, 2)


def _scores(
    view: ModelWeights, layout: ListLayout, listed: tuple[Source, ...]
) -> Float[Tensor, "head item query source"]:
    """Scores, averaged over the lengths that have the item and a source's visible positions."""
    n, longest = layout.n_values, layout.longest
    lengths = range(layout.shortest, longest + 1)
    visible = view.layer(0).visible(layout.n_positions).cpu()
    circuits = [qk_circuit(view, 0, head, view=view) for head in range(view.n_heads)]
    cells = _keys(listed)
    keys = view.embed(cells.tokens, cells.positions)
    total = torch.zeros(view.n_heads, longest, n, len(listed), dtype=torch.float64)
    count = torch.zeros(longest, len(listed))
    uses_of_query: dict[tuple[int, tuple[int, ...]], list[tuple[int, int]]] = {}
    for number, length in enumerate(lengths):
        for item, read in enumerate(layout.read_positions(length)):
            stands = _standing(layout, item)
            uses_of_query.setdefault((read, stands), []).append((item, number))
    for (read, stands), uses in uses_of_query.items():
        at = torch.full((len(stands),), read)
        queries = view.embed(torch.tensor(stands), at)
        scores = torch.stack([c.score(queries, keys, at, cells.positions) for c in circuits])
        scores = scores.double().cpu()
        for item, number in uses:
            visible_cells = cells.stands[number] & visible[read, cells.positions]
            counts = cells.source[visible_cells].bincount(minlength=len(listed))
            sums = scores.new_zeros(*scores.shape[:2], len(listed))
            sums.index_add_(2, cells.source[visible_cells], scores[:, :, visible_cells])
            total[:, item] += sums / counts.clamp(min=1)
            count[item] += counts > 0
    mean = total / count.clamp(min=1)[:, None, :]
    return mean.masked_fill((count == 0)[:, None, :], -torch.inf)


def _standing(layout: ListLayout, item: int) -> tuple[int, ...]:
    """Possible tokens at the position where an item is read."""
    if layout.autoregressive and item == 0 and layout.between:
        return layout.between[-1:]
    return layout.values


class _Keys(NamedTuple):
    """Every source at each of its positions; `stands` says for which lengths it can be there."""

    tokens: Int[Tensor, " cell"]
    positions: Int[Tensor, " cell"]
    source: Int[Tensor, " cell"]
    stands: Bool[Tensor, "length cell"]


def _keys(listed: tuple[Source, ...]) -> _Keys:
    cells = [
        (source.token, position, number, *(position in at for at in source.positions))
        for number, source in enumerate(listed)
        for position in sorted(set().union(*source.positions))
    ]
    tokens, positions, source, *stands = torch.tensor(cells).T
    return _Keys(tokens, positions, source, torch.stack(stands).bool())


def _written(view: ModelWeights, layout: ListLayout) -> Float[Tensor, "head pos token value"]:
    """Effect of each token on the undivided logits by position; 0 where it never occurs."""
    cells = layout.key_cells()
    x = view.embed(cells.tokens, cells.positions).double()
    norm = view.layer(0).norm
    x = norm.bare(x)
    logits = read_through(view.final_norm, view.W_U)[:, list(layout.values)].double()
    shape = (view.n_heads, layout.n_positions, view.d_vocab, layout.n_values)
    table = torch.zeros(shape, dtype=torch.float64)
    for head in range(view.n_heads):
        ov = ov_circuit(view, 0, head, view=view)
        out = (x @ ov.W_V.double()) @ (ov.W_O.double() @ logits) + ov.constant.double() @ logits
        table[head, cells.positions, cells.tokens] = out.cpu()
    return table


def _direct(
    view: ModelWeights,
    tokens: Int[Tensor, "row item"],
    positions: Int[Tensor, "row item"],
    values: Int[Tensor, " value"],
) -> Float[Tensor, "row item value"]:
    """Effect of the query's residual stream and b_O, before the division by a final norm."""
    x = (view.embed(tokens, positions) + _bias(view.layer(0))).double()
    return (x @ read_through(view.final_norm, view.W_U[:, values]).double()).cpu()


def _residual(
    view: ModelWeights,
    layout: ListLayout,
    reading: ListReading,
    written: Float[Tensor, "head pos token value"],
) -> float:
    """Unexplained fraction of the variance of the undivided logits, centered over values."""
    n_heads, n_pos, _, n_values = written.shape
    n_rows = max(1, min(MOST_ROWS, MOST_NUMBERS // (n_heads * n_pos * n_values)))
    tokens, read, _, present = (part[:n_rows] for part in reading.rows)
    values = torch.tensor(layout.values, device=view.W_U.device)
    rebuilt = _direct(view, tokens.gather(1, read), read, values)
    if view.final_norm.kind is None:
        rebuilt = rebuilt + view.b_U[values].double().cpu()
    pattern = reading.pattern[:n_rows]
    for head in range(n_heads):
        rebuilt = rebuilt + pattern[:, head] @ written[head, torch.arange(n_pos), tokens]
    logits, rebuilt = reading.undivided[:n_rows][present], rebuilt[present]
    logits, rebuilt = (y - y.mean(-1, keepdim=True) for y in (logits, rebuilt))
    missing, spread = float(((logits - rebuilt) ** 2).sum()), float((logits**2).sum())
    return missing / spread if spread > 0 else 0.0


def _posted(view: ModelWeights, values: Int[Tensor, " value"]) -> Float[Tensor, "head value value"]:
    """Table `((W_E W_V + b_V) W_O + b_O) W_U + b_U` of the values, without the final division."""
    w = view.layer(0)
    x = view.embed_norm(view.W_E[values.to(view.W_E.device)]).double()
    x = w.norm.bare(x)
    W_U = read_through(view.final_norm, view.W_U)[:, values.to(view.W_U.device)].double()
    b_U = view.b_U[values.to(view.b_U.device)].double()
    b_O = _bias(w).double()
    tables = []
    for head in range(view.n_heads):
        ov = ov_circuit(view, 0, head, view=view)
        out = x @ ov.W_V.double() @ ov.W_O.double() + ov.constant.double()
        tables.append((out + b_O) @ W_U + b_U)
    return torch.stack(tables).cpu()


def _bias(w: LayerWeights) -> Float[Tensor, " d_model"]:
    """Bias b_O with the linear part of a norm after attention applied."""
    return written_through(w.post_norm, w.b_O[None])[0]


def _note(view: ModelWeights, residual: float) -> str:
    reasons = []
    if view.final_norm.kind is not None:
        reasons.append("a final norm divides the logits: OV is divided by its mean scale")
    if view.layer(0).post_norm.kind is not None:
        reasons.append("the norm after the heads is left out")
    if view.mlp(0) is not None:
        reasons.append("the MLP's output is left out")
    if view.logit_soft_cap is not None:
        reasons.append("the soft cap of the logits is left out")
    if view.W_U.dtype in (torch.bfloat16, torch.float16):
        reasons.append(f"the model rounds to {str(view.W_U.dtype).removeprefix('torch.')}")
    reasons = reasons or ["the model computes something that its weights do not show"]
    return (
        f"weight tables are approximate ({'; '.join(reasons)}): they leave {residual:.1g} of the "
        "variance of the undivided logits unexplained"
    )


FLAT = 1e-24  # fraction of a table's sum of squares that counts as rounding
FEWEST_VALUES = 4  # with three, lines and a common vector fit every table


@dataclass(frozen=True, eq=False)
class PiecewiseFits:
    """Fit of an OV table by lines with kinks.

    Attributes:
        r2: explained fraction of each row's variance over x, without the common vector; NaN for a
            row without variance.
        slope: change of slope s at the kinks, common to all rows.
        kink: the inner value whose kink fits each row best; NaN if s is 0, and for the first and
            last row, where `min(0, i - x)` is a line.
        mean_r2: explained fraction over all rows; None for fewer than four values, or a table
            without variance.
        kink_r2: fraction of the residual of lines alone (s = 0) that kinks explain; None likewise.
        kink_at_value: fraction of inner rows whose best kink is at their own value; None likewise.
    """

    r2: Float[np.ndarray, " value"]
    slope: float
    kink: Float[np.ndarray, " value"]
    mean_r2: float | None
    kink_r2: float | None
    kink_at_value: float | None


def copy_score(ov: Float[Tensor, "value value"], *, centre: bool = True) -> float:
    """Fraction of values whose largest effect is on their own logit; ties do not count.

    Args:
        ov: effect of each value on every value's logit.
        centre: whether to subtract the mean over values first.
    """
    table = _square(ov)
    table = table - table.mean(0) if centre else table
    others = np.where(np.eye(len(table), dtype=bool), -np.inf, table).max(1)
    return float((table.diagonal() > others).mean())


def piecewise_fits(ov: Float[Tensor, "value value"]) -> PiecewiseFits:
    """Fit an OV table by lines with kinks; see the module."""
    table = _square(ov)
    n = len(table)
    x = np.arange(n, dtype=np.float64)
    line = np.linalg.qr(np.stack([np.ones(n), x], axis=1))[0]
    own = table - table.mean(0)
    bent = own - own @ line @ line.T  # residual of lines
    kinks = np.minimum(0.0, x[:, None] - x)
    kinks = kinks - kinks @ line @ line.T
    shared = kinks.mean(0)
    shape = kinks - shared
    size = float((shape**2).sum())
    spread = ((own - own.mean(1, keepdims=True)) ** 2).sum(1)
    rounding = FLAT * max(float((table**2).sum()), 1.0)
    flat = spread <= rounding
    beside_lines = float((bent**2).sum())
    bends = size > FLAT and beside_lines > rounding
    slope = max(float((bent * shape).sum()) / size, 0.0) if bends else 0.0
    explained = min(slope**2 * size / beside_lines, 1.0) if bends else 0.0
    left = ((bent - slope * shape) ** 2).sum(1)
    determined = n >= FEWEST_VALUES and not flat.all()
    best = _best_kinks(bent + slope * shared, kinks) if slope > 0 else np.full(n, np.nan)
    return PiecewiseFits(
        r2=np.where(flat, np.nan, 1 - left / np.where(flat, 1.0, spread)),
        slope=slope,
        kink=best,
        mean_r2=1 - float(left.sum() / spread.sum()) if determined else None,
        kink_r2=explained if determined else None,
        kink_at_value=float((best == x)[1:-1].mean()) if determined else None,
    )


def shared_part(ov: Float[Tensor, "value value"]) -> Float[Tensor, " value"]:
    """Vector v(x) of the fit: the output common to all values, beside their lines and kinks."""
    slope = piecewise_fits(ov).slope
    x = torch.arange(len(ov), dtype=ov.dtype, device=ov.device)
    return (ov - slope * (x[:, None] - x).clamp(max=0)).mean(0)


def _best_kinks(
    bent: Float[np.ndarray, "value value"], kinks: Float[np.ndarray, "value value"]
) -> Float[np.ndarray, " value"]:
    """Inner value whose kink, with a free slope, explains most of each row."""
    inner = kinks[1:-1]
    along = np.maximum(bent @ inner.T, 0.0)
    best: np.ndarray = 1.0 + (along**2 / (inner**2).sum(1)).argmax(1)
    best[[0, -1]] = np.nan
    best[along.max(1) ** 2 <= FLAT * (bent**2).sum() * (inner**2).sum(1).max()] = np.nan
    return best


def _square(ov: Tensor) -> Float[np.ndarray, "value value"]:
    if ov.shape[0] < 2:
        raise InputError("the shape of an OV table needs two values or more")
    table: np.ndarray = ov.detach().double().cpu().numpy()
    return table


ROUNDING = 1e-9  # scores that differ by less than this fraction of the largest count as equal


def _percent(share: float) -> float:
    return 100 * share


@dataclass(frozen=True)
class PositionShares:
    """Fractions of variance of one head by effect; the QK and the OV group each add up to 1.

    Attributes:
        head: index of the head.
        qk_key, qk_query, qk_query_position, qk_key_position: fractions of the variance of scores;
            see the module.
        order_preserved: how often the order of two keys for a query agrees with their order in the
            average over query positions.
        ov_token, ov_position: fractions of the variance of outputs to the logits.
    """

    head: int = column("head", format=lambda head: head_name(0, head))
    qk_key: float = column("QK: key", unit="%", format=_percent)
    qk_query: float = column("+ query", unit="%", format=_percent)
    qk_query_position: float = column("+ query's position", unit="%", format=_percent)
    qk_key_position: float = column("+ key's position", unit="%", format=_percent)
    order_preserved: float = column("order kept", unit="%", format=_percent)
    ov_token: float = column("OV: token", unit="%", format=_percent)
    ov_position: float = column("position", unit="%", format=_percent)


@torch.no_grad()
def position_shares(model: Model, layout: ListLayout) -> list[PositionShares]:
    """Effects of tokens and positions for every head, for lists of the longest length."""
    view = weights(model)
    start = len(layout.before)
    positions = list(range(start, start + layout.longest))
    read = layout.read_positions(layout.longest)
    read = read[1:] if layout.autoregressive and layout.between else read
    written = _written(view, layout)[:, positions][:, :, list(layout.values)]
    shares = []
    for head in range(view.n_heads):
        scores = _scores_by_position(view, layout, head, list(read), positions)
        parts, order_fraction = split_scores(scores)
        token, position_part = split_written(written[head])
        shares.append(PositionShares(head, *parts, order_fraction, token, position_part))
    return shares


def split_scores(
    scores: Float[Tensor, "query_pos query key_pos key"],
) -> tuple[tuple[float, float, float, float], float]:
    """Four fractions of the variance of scores, and how often the order of keys is preserved."""
    centered = scores - scores.mean((2, 3), keepdim=True)
    by_position = centered.mean(2)  # place, query, key
    by_query = by_position.mean(0)
    by_key = by_query.mean(0)
    sizes = [float((part**2).mean()) for part in (centered, by_position, by_query, by_key)]
    total = sizes[0] or 1.0
    parts = [sizes[3], sizes[2] - sizes[3], sizes[1] - sizes[2], sizes[0] - sizes[1]]
    shares = tuple(max(0.0, part) / total for part in parts)
    same = ROUNDING * float(centered.abs().max())
    average = by_query[:, :, None] - by_query[:, None]
    each = by_position[:, :, :, None] - by_position[:, :, None]
    apart = average.abs() > same
    average, each = average.sign(), torch.where(each.abs() > same, each.sign(), 0.0)
    order_fraction = (
        float((each == average)[:, apart].double().mean()) if bool(apart.any()) else 1.0
    )
    return (shares[0], shares[1], shares[2], shares[3]), order_fraction


def split_written(written: Float[Tensor, "pos token value"]) -> tuple[float, float]:
    """Fractions of variance due to token and position, without the mean over all sources."""
    centered = written - written.mean(-1, keepdim=True)
    centered = centered - centered.mean((0, 1), keepdim=True)
    total, token = float((centered**2).mean()), float((centered.mean(0) ** 2).mean())
    if total == 0:
        return 1.0, 0.0
    return token / total, max(0.0, total - token) / total


def _scores_by_position(
    view: ModelWeights, layout: ListLayout, head: int, read: list[int], positions: list[int]
) -> Float[Tensor, "query_pos query key_pos key"]:
    """Scores of the head, regardless of the mask."""
    circuit = qk_circuit(view, 0, head, view=view)
    values = torch.tensor(layout.values)
    keys, key_at = (
        values.repeat(len(positions)),
        torch.tensor(positions).repeat_interleave(len(values)),
    )
    embedded = view.embed(keys, key_at)
    by_length = []
    for at in read:
        here = torch.full_like(values, at)
        scores = circuit.score(view.embed(values, here), embedded, here, key_at)
        by_length.append(scores.double().cpu().reshape(len(values), len(positions), len(values)))
    return torch.stack(by_length)
