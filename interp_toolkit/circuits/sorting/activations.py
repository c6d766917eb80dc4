"""A sorting model's activations on lists: attention, form of the logits, outputs after a swap.

`read` runs the model on prompts of the layout and records logits and attention patterns at the
positions where the items of the sorted list are read. Measures of such a reading:

- `above_scores` (algorithm 1, min{> previous}, for models whose sorted list is in the prompt):
  attention to values above the previous output, relative to uniform attention. It also scores
  whether these values get more attention than the others (*filter*), and the smallest of them most.
- `separator_line` (algorithm 2): attention to the first separator over attention to all values
  except the largest, by output item: `exp(mean ln(separator / value))`.
- `logit_line`: whether logits have the form of algorithm 2, `β_k f(x) + γ_k x` with `f(x) = Σ_i
  min(0, a_i - x)` and `γ_k / β_k = k + 0.5`, whose maximum is the k-th item of the sorted list. The
  logits of many lists, centered over x, are regressed on f and x with β_k >= 0. Any model that
  sorts has its largest logit at the right item, which pulls γ/β towards k + 0.5: the line means
  little without its R². Item 0 is left out of the line, since the source reports that it is
  computed in another way. Logits are taken before the division by a final norm.
- `swap_previous`: whether the output follows the previous token (algorithm 1) or the position
  (algorithm 2). The two agree on sorted prefixes. The token at which item k is read is therefore
  replaced by the item before another item j of the same list, at most two items away. Larger
  distances make prefixes that no sorted list has. With repeats, algorithm 1 is the source's refined
  one: repeat the previous value t unless at least `n - k` items are above it. To test one of
  several heads, only the output of that head is patched from the changed prompt (at hook_z).

Source: "How do tiny transformers sort lists of small integers?" (Qi and Zhong 2023).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.circuits.heads.patterns import pattern_points
from interp_toolkit.data.lists.draws import Lists
from interp_toolkit.data.lists.layout import ListLayout, ListRows
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import cached_batches, device_of, run
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.models.running.interventions import put_heads
from interp_toolkit.models.running.streaming import collect
from interp_toolkit.models.transformer.collapsed import at_positions, read_logits
from interp_toolkit.models.weights.view import ModelWeights, weights
from interp_toolkit.stats import clopper_pearson

RESID = "blocks.0.hook_resid_post"
HOOK_Z = "blocks.0.attn.hook_z"


@dataclass(frozen=True, eq=False)
class ListReading:
    """Logits and attention patterns of a model on some lists.

    Attributes:
        layout, lists, rows: the layout, the lists, and the prompts made of them.
        logits: logits of the values at each item.
        undivided: logits before the division by a final norm and without the biases after it;
            equal to `logits` without such a norm. They are linear in the attention pattern.
        scale: divisor of the final norm; 1 without one.
        pattern: attention pattern at the position where each item is read.
        outside: largest logit of a token that is not a value; None if all tokens are values.
    """

    layout: ListLayout
    lists: Lists
    rows: ListRows
    logits: Float[Tensor, "row item value"]
    undivided: Float[Tensor, "row item value"]
    scale: Float[Tensor, "row item"]
    pattern: Float[Tensor, "row head item pos"]
    outside: Float[Tensor, "row item"] | None = None

    @property
    def at_list(self) -> Float[Tensor, "row head item list_pos"]:
        """Attention to the positions of the list, in the order of the list."""
        start = len(self.layout.before)
        return self.pattern[..., start : start + self.layout.longest]

    @property
    def answers(self) -> Int[Tensor, "row item"]:
        """Value with the largest logit; `n_values` where a token that is not a value has it."""
        best, answers = self.logits.max(-1)
        if self.outside is None:
            return answers
        return answers.masked_fill(self.outside > best, self.layout.n_values)


def require_one_layer(model: Model) -> None:
    """Raise InputError for a model of several layers."""
    if int(model.cfg.n_layers) != 1:
        raise InputError(
            f"the sorting analysis reads one-layer models; this one has {model.cfg.n_layers} layers"
        )


@torch.no_grad()
def read(model: Model, layout: ListLayout, lists: Lists) -> ListReading:
    """Run the model on these lists in batches; the result is on the CPU in float64.

    Raises:
        InputError: the model has several layers, or its attention patterns cannot be read.
    """
    require_one_layer(model)
    view = weights(model)
    rows = layout.rows(lists.to(device_of(model)))
    batches = cached_batches(model, rows.tokens)
    passes = [_pass(model, view, layout, ListRows(*(part[b] for part in rows))) for b in batches]
    logits, scale, pattern, outside = (torch.cat(parts) for parts in zip(*passes, strict=True))
    constant = view.b_U if view.final_norm.b is None else view.b_U + view.final_norm.b @ view.W_U
    behind = constant[list(layout.values)].double().cpu()
    return ListReading(
        layout,
        lists.to("cpu"),
        ListRows(*(part.cpu() for part in rows)),
        logits,
        logits if view.final_norm.kind is None else (logits - behind) * scale[..., None],
        scale,
        pattern,
        outside[..., 0] if outside.shape[-1] else None,
    )


class _Passes(NamedTuple):
    """Reading of one batch; the last axis of `outside` has one entry, or none."""

    logits: Float[Tensor, "row item value"]
    scale: Float[Tensor, "row item"]
    pattern: Float[Tensor, "row head item pos"]
    outside: Float[Tensor, "row item any"]


def _pass(model: Model, view: ModelWeights, layout: ListLayout, rows: ListRows) -> _Passes:
    values: dict[str, Tensor] = {}

    def keep(pattern: Tensor, hook: Any) -> None:
        at = rows.read[:, None, :, None].expand(-1, pattern.shape[1], -1, pattern.shape[3])
        values["pattern"] = pattern.gather(2, at).double().cpu()

    def divide(x: Tensor, hook: Any) -> None:
        x = at_positions(x, rows.read).double()
        x = x - x.mean(-1, keepdim=True) if view.final_norm.kind == "LN" else x
        values["scale"] = (x.pow(2).mean(-1) + view.final_norm.eps).sqrt().cpu()

    hooks: list[tuple[Any, Callable[..., None]]] = [(pattern_points(model)[0], keep)]
    if view.final_norm.kind is not None:
        hooks.append((hook_points(model)[RESID], divide))
    logits = run(model, rows.tokens, hooks)
    assert logits is not None
    at_read = at_positions(logits, rows.read).double().cpu()
    others = sorted(set(range(at_read.shape[-1])) - set(layout.values))
    ones = torch.ones(at_read.shape[:2], dtype=torch.float64)
    return _Passes(
        at_read[..., list(layout.values)],
        values.get("scale", ones),
        values["pattern"],
        at_read[..., others].amax(-1, keepdim=True) if others else at_read[..., :0],
    )


QUERIES = 2**12  # queries per batch; larger batches do not fit in a CPU's cache
SMALLEST_SHARE = 1e-30  # lower bound of attention before ln, since softmax underflows


@dataclass(frozen=True)
class AboveScores:
    """Attention to values above the previous output.

    Attributes:
        above, above_uniform: fraction of the attention to the list that goes to values above the
            previous one, and that fraction under uniform attention.
        filter_score: probability that a value above the previous one gets more attention than a
            value that is not (AUROC).
        smallest_first, smallest_chance: how often the smallest value above gets the most attention
            of those above, and how often a random one of these values is the smallest; None if no
            query has two different values above.
    """

    above: float
    above_uniform: float
    filter_score: float
    smallest_first: float | None
    smallest_chance: float | None

    @property
    def above_lift(self) -> float:
        """`above` rescaled: 0 for uniform attention, 1 for all attention."""
        return _lift(self.above, self.above_uniform)

    @property
    def smallest_lift(self) -> float | None:
        """`smallest_first` rescaled: 0 for chance, 1 for always."""
        if self.smallest_first is None or self.smallest_chance is None:
            return None
        return _lift(self.smallest_first, self.smallest_chance)


def above_scores(
    reading: ListReading,
    attention: Float[Tensor, "row item list_pos"],
    previous: range | None = None,
) -> AboveScores | None:
    """Scores of attention to the list's positions; None if no output follows another.

    Args:
        reading: the lists and the model's reading of them.
        attention: attention to the list's positions.
        previous: previous values whose next output is counted; None: all.
    """
    if not reading.layout.autoregressive or reading.layout.longest < 2:
        return None
    selected = reading.rows.present[:, 1:]
    if previous is not None:
        before = reading.rows.answer[:, :-1]
        selected = selected & (before >= previous.start) & (before < previous.stop)
    at = torch.nonzero(selected)
    tallies = [
        _tally(reading, attention, *at[start : start + QUERIES].T)
        for start in range(0, len(at), QUERIES)
    ]
    tally = _Tally(*map(sum, zip(*tallies, strict=True))) if tallies else None
    if tally is None or not tally.queries:
        return None
    return AboveScores(
        above=tally.share / tally.queries,
        above_uniform=tally.uniform / tally.queries,
        filter_score=(1 + tally.won / tally.pairs) / 2,
        smallest_first=tally.first / tally.several if tally.several else None,
        smallest_chance=tally.chance / tally.several if tally.several else None,
    )


class _Tally(NamedTuple):
    """Sums over the queries of a batch."""

    queries: float
    share: float
    uniform: float
    won: float  # pairs in which the value above gets more attention, minus those with less
    pairs: float
    several: float  # queries with several values above
    first: float
    chance: float


def _tally(
    reading: ListReading,
    attention: Float[Tensor, "row item list_pos"],
    row: Int[Tensor, " query"],
    item: Int[Tensor, " query"],
) -> _Tally:
    """Sums over the queries that have both values above the previous one and others."""
    previous, key = reading.rows.answer[row, item], reading.lists.values[row]
    paid = attention[row, item + 1, : key.shape[1]]
    held = key < reading.layout.n_values
    above = held & (key > previous[:, None])
    selected = above.any(1) & (held & ~above).any(1)
    key, paid, above, held = key[selected], paid[selected], above[selected], held[selected]
    n_above, n_held = above.sum(1), held.sum(1)
    share = (paid * above).sum(1) / (paid * held).sum(1).clamp(min=SMALLEST_SHARE)
    return _Tally(
        len(key),
        float(share.sum()),
        float((n_above / n_held.double()).sum()),
        _won(paid, above, held & ~above),
        int((n_above * (n_held - n_above)).sum()),
        *_smallest_first(key, paid, above),
    )


def _won(
    paid: Float[Tensor, "query list_pos"],
    above: Bool[Tensor, "query list_pos"],
    below: Bool[Tensor, "query list_pos"],
) -> int:
    """Pairs (above, not above) with more attention on the first, minus those with less."""
    order = paid.masked_fill(~(above | below), torch.inf).argsort(dim=1)
    paid, above, below = (part.gather(1, order) for part in (paid, above, below))
    starts = torch.ones_like(above)  # starts of runs of equal attention
    starts[:, 1:] = paid[:, 1:] != paid[:, :-1]
    first = (starts * torch.arange(paid.shape[1])).cummax(1).values
    won = (_earlier(below).gather(1, first) * above).sum()
    lost = (_earlier(above).gather(1, first) * below).sum()
    return int(won - lost)


def _earlier(counted: Bool[Tensor, "query list_pos"]) -> Int[Tensor, "query list_pos"]:
    """Number of counted entries at earlier positions."""
    return counted.cumsum(1) - counted.long()


def _smallest_first(
    key: Int[Tensor, "query list_pos"],
    paid: Float[Tensor, "query list_pos"],
    above: Bool[Tensor, "query list_pos"],
) -> tuple[int, float, float]:
    """Number of queries with several values above, and how many attend most to the smallest.

    Returns:
        Number of such queries; how many attend most to the smallest value; the number expected by
        chance.
    """
    if not len(key):
        return 0, 0.0, 0.0
    largest = int(key.max()) + 1
    smallest = key.masked_fill(~above, largest).amin(1)
    several = key.masked_fill(~above, -1).amax(1) > smallest
    key, paid, above = key[several], paid[several], above[several]
    top = paid.masked_fill(~above, -1.0).argmax(1)
    chosen = key.gather(1, top[:, None])[:, 0]
    kinds = torch.zeros(len(key), largest + 1, dtype=torch.bool)
    kinds.scatter_(1, key.masked_fill(~above, largest), True)
    first = (chosen == smallest[several]).sum()
    chance = (1 / kinds[:, :largest].sum(1).double()).sum()
    return len(key), float(first), float(chance)


@dataclass(frozen=True, eq=False)
class SeparatorLine:
    """Attention to the first separator, relative to the list's values except the largest.

    Attributes:
        ratio: ratio by output item; NaN if no list has the item.
        r2: R² of a straight line through the ratios from item 1 on; None for fewer than three.
        slope: slope of that line.
        rising: fraction of steps from one item to the next, from item 1 on, that go up; None if
            there is no step, or a ratio is undefined.
    """

    ratio: Float[np.ndarray, " item"]
    r2: float | None
    slope: float | None
    rising: float | None


def separator_line(
    reading: ListReading, pattern: Float[Tensor, "row item pos"]
) -> SeparatorLine | None:
    """Separator line of one head's pattern; None without a separator before the list."""
    layout = reading.layout
    if not layout.before:
        return None
    start = len(layout.before)
    logs = pattern.clamp(min=SMALLEST_SHARE).log()
    values = reading.lists.values
    width = values.shape[1]
    counted = (values < layout.n_values - 1)[:, None, :] & reading.rows.present[..., None]
    mean = (logs[..., start : start + width] * counted).sum(-1) / counted.sum(-1)
    selected = counted.any(-1)
    difference = torch.where(selected, logs[..., 0] - mean, 0.0)
    ratio = torch.where(
        selected.any(0), (difference.sum(0) / selected.sum(0)).exp(), torch.nan
    ).numpy()
    fit = straight_line(np.arange(len(ratio))[1:], ratio[1:])
    steps = np.diff(ratio[1:])
    return SeparatorLine(
        ratio=ratio,
        r2=None if fit is None else fit[2],
        slope=None if fit is None else fit[0],
        rising=float(np.mean(steps > 0)) if len(steps) and np.isfinite(steps).all() else None,
    )


def straight_line(
    x: Float[np.ndarray, " point"] | Int[np.ndarray, " point"], y: Float[np.ndarray, " point"]
) -> tuple[float, float, float] | None:
    """Slope, intercept and R² of the least-squares line; None for fewer than three points.

    R² is 0 if y is constant. Points with non-finite y are left out.
    """
    finite = np.isfinite(y)
    x, y = x[finite].astype(np.float64), y[finite]
    if len(x) < 3:
        return None
    slope, intercept = np.polyfit(x, y, 1)
    spread = float(((y - y.mean()) ** 2).sum())
    left = float(((y - slope * x - intercept) ** 2).sum())
    flat = spread <= 1e-24 * max(1.0, float((y**2).sum()))
    return float(slope), float(intercept), 0.0 if flat else 1 - left / spread


def _lift(share: float, chance: float) -> float:
    return (share - chance) / (1 - chance) if chance < 1 else 0.0


@dataclass(frozen=True, eq=False)
class LogitLine:
    """Regression of the logits on f(x) and x, by output item.

    Attributes:
        ratio: γ_k / β_k; NaN if undetermined, for instance if β_k is 0.
        r2: fraction of the logits' variance over x that the form explains; NaN if undetermined.
        fit: median R² from item 1 on (of item 0 if it is the only one).
        slope, intercept: line through the ratios; None for fewer than three of them.
        line_r2: R² of that line.
    """

    ratio: Float[np.ndarray, " item"]
    r2: Float[np.ndarray, " item"]
    fit: float | None
    slope: float | None
    intercept: float | None
    line_r2: float | None


def concave_sum(lists: Lists) -> Float[Tensor, "row value"]:
    """The function f(x) = Σ_i min(0, a_i - x) of each list, for every value x."""
    x = torch.arange(lists.n_values, dtype=torch.float64)
    total = torch.zeros(len(lists), lists.n_values, dtype=torch.float64)
    for item in lists.values.T:  # entries beyond a list's end are n_values, which adds 0
        total += (item[:, None] - x).clamp(max=0.0)
    return total


def logit_line(reading: ListReading, logits: Float[Tensor, "row item value"]) -> LogitLine:
    """Regression of logits (the model's, or the contribution of one head) on f(x) and x."""
    n_items, n_values = logits.shape[1:]
    f = concave_sum(reading.lists)
    f = f - f.mean(1, keepdim=True)
    x = torch.arange(n_values, dtype=torch.float64) - (n_values - 1) / 2
    ratio, r2 = np.full(n_items, np.nan), np.full(n_items, np.nan)
    for item in range(n_items):
        rows = reading.rows.present[:, item]
        if int(rows.sum()) > 1:
            y = logits[rows, item]
            ratio[item], r2[item] = _regress(y - y.mean(1, keepdim=True), f[rows], x)
    line = straight_line(np.arange(n_items)[1:], ratio[1:])
    r2_read = r2[1:] if n_items > 1 else r2
    r2_read = r2_read[np.isfinite(r2_read)]
    return LogitLine(
        ratio=ratio,
        r2=r2,
        fit=float(np.median(r2_read)) if len(r2_read) else None,
        slope=None if line is None else line[0],
        intercept=None if line is None else line[1],
        line_r2=None if line is None else line[2],
    )


def _regress(
    y: Float[Tensor, "row value"], f: Float[Tensor, "row value"], x: Float[Tensor, " value"]
) -> tuple[float, float]:
    """Ratio γ/β and R² of y = β f + γ x with β >= 0; NaN if undetermined.

    Both are NaN if f is a multiple of x or if y is constant; γ/β is also NaN if β is 0.
    """
    ff, fx, xx = (f * f).sum(), (f @ x).sum(), len(f) * (x @ x)
    determinant = float(ff * xx - fx * fx)
    spread = float((y * y).sum())
    if determinant <= 1e-12 * float(ff * xx) or spread == 0:
        return np.nan, np.nan
    yf, yx = (y * f).sum(), (y @ x).sum()
    beta = float(yf * xx - yx * fx) / determinant
    if beta <= 0:
        return np.nan, float(yx * yx / xx) / spread
    gamma = float(yx * ff - yf * fx) / determinant
    return gamma / beta, (beta * float(yf) + gamma * float(yx)) / spread


FEWEST_SWAPS = 30  # fewer swaps give no fractions
OFFSETS = (-2, -1, 1, 2)  # j - k


@dataclass(frozen=True)
class Swaps:
    """Outputs after swaps for which the two algorithms predict different outputs.

    Attributes:
        n: number of such swaps.
        token: fraction of outputs that follow the swapped token (algorithm 1).
        position: fraction that follow the position (algorithm 2); the rest follow neither.
    """

    n: int
    token: float
    position: float

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """Clopper-Pearson 95 % intervals of both fractions, by metric; one swap per list."""
        shares = {"follows_token": self.token, "follows_position": self.position}
        return {name: clopper_pearson(share * self.n, self.n) for name, share in shares.items()}


class SwapAnswers(NamedTuple):
    """Outputs after every swap for which the two algorithms predict different outputs.

    Attributes:
        swapped: value that replaced the previous one.
        token, position: whether the output follows that value, or the position.
    """

    swapped: Int[Tensor, " swap"]
    token: Bool[Tensor, " swap"]
    position: Bool[Tensor, " swap"]

    def summary(self, swapped: range | None = None) -> Swaps | None:
        """Fractions over swaps to these values (None: all); None for too few swaps."""
        selected = torch.ones_like(self.token)
        if swapped is not None:
            selected = (self.swapped >= swapped.start) & (self.swapped < swapped.stop)
        if int(selected.sum()) < FEWEST_SWAPS:
            return None
        return Swaps(
            n=int(selected.sum()),
            token=float(self.token[selected].double().mean()),
            position=float(self.position[selected].double().mean()),
        )


def swap_previous(
    model: Model, reading: ListReading, *, head: int | None = None, seed: int = 0
) -> SwapAnswers | None:
    """Swap the previous output in each list once, and compare the outputs with both algorithms.

    Args:
        model: the model of the reading.
        reading: reading of the lists.
        head: head whose output is patched; None: replace the token itself.
        seed: seed of the choice of items.

    Returns:
        The outputs; None if no output follows another, lists are shorter than three, or no swap
        distinguishes the algorithms.
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
    distinguishes = (by_token != by_position) & (by_token < layout.n_values)
    if not bool(distinguishes.any()):
        return None
    usable, item, previous = usable[distinguishes], item[distinguishes], previous[distinguishes]
    positions = rows.read[usable].gather(1, item[:, None])
    ids = torch.tensor(layout.values)
    changed = rows.tokens[usable].scatter(1, positions, ids[previous][:, None])
    answers = _answers(model, rows.tokens[usable], changed, positions, head)
    return SwapAnswers(
        previous,
        answers == ids[by_token[distinguishes]],
        answers == ids[by_position[distinguishes]],
    )


def _by_token(
    reading: ListReading,
    rows: Int[Tensor, " swap"],
    previous: Int[Tensor, " swap"],
    item: Int[Tensor, " swap"],
) -> Int[Tensor, " swap"]:
    """Outputs of algorithm 1; `n_values` where it has none."""
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
    positions: Int[Tensor, "swap 1"],
    head: int | None,
) -> Int[Tensor, " swap"]:
    """Token with the largest logit at each position, over the whole vocabulary."""
    device = device_of(model)
    clean, changed, positions = clean.to(device), changed.to(device), positions.to(device)
    if head is None:
        logits = read_logits(model, changed, positions)
    else:
        z = collect(model, changed, HOOK_Z, "all", device=device)[HOOK_Z]
        with put_heads(model, {(0, head): z[:, :, head]}):
            logits = read_logits(model, clean, positions)
    return logits[:, 0].argmax(-1).cpu()
