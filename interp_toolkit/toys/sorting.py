"""Hand-set one-layer attention-only models that sort lists, by a known algorithm.

`sort_min_greater` outputs the least item greater than the previous one, `sort_refined` does so with
repeats, `sort_argmax` outputs the argmax of a sum of piecewise-linear functions, and `sort_mixed`
filters as `sort_min_greater` does and sums as `sort_argmax` does. Each docstring gives its
attention and logits in closed form and derives for which lists the model is right. In all of them n
is the list's length, k counts the sorted items from 0, p is the previous item (sorted item k - 1;
-1 for k = 0, when the query is a separator), x is a value, and D, A, w, Z are defined in the
docstring. Heads share the output: each has the stated attention and writes its fraction of the
output; a head with fraction 0 has zero weights.

The residual stream has one axis for each token, each position and each logit. A head is defined by
two tables: the score of every key axis for every query axis (a score is the sum over a query's
token and position, and a key's), and the logits that every attended token writes.

Source: "How do tiny transformers sort lists of small integers?" (Qi and Zhong 2023), on its two
algorithms, `min{>previous}` and `argmax f_k(x)`, and its hypothesis of a mix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.data.lists.layout import ListLayout, parse_layout
from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.registry import Toy
from interp_toolkit.toys.zeros import zeros

WIDTH = 56  # d_model and d_head, as in the source; wider if the axes need it


@dataclass(frozen=True, eq=False)
class ListModel:
    """A one-layer model to be filled in, and the meaning of its axes.

    Attributes:
        model: zero weights except for the embeddings (one-hot) and the unembedding.
        layout: layout of its prompts.
        values: axis of each value's token, and its column among the logits.
        others: axes of the tokens that are not values, such as separators and padding.
        items: axis of the position of each item of the list.
        reads: axis of the position where each item of the sorted list is read.
        sorted_axes: axes of the positions of the sorted list; empty if it is not in the prompt.
    """

    model: Transformer
    layout: ListLayout
    values: list[int]
    others: list[int]
    items: list[int]
    reads: list[int]
    sorted_axes: list[int]

    def no_scores(self) -> Float[Tensor, "axis axis"]:
        """A table of zeros, by the query's and the key's token and position."""
        n_axes = self.model.cfg.d_vocab + self.model.cfg.n_ctx
        return torch.zeros(n_axes, n_axes, dtype=torch.float64)

    def no_writes(self) -> Float[Tensor, "token value"]:
        """A table of zeros, by the token attended to and the logit of each value."""
        return torch.zeros(self.model.cfg.d_vocab, len(self.values), dtype=torch.float64)


def default_layout(n_values: int, length: int) -> str:
    """The list between its two separators, then sorted: "10 list10 11 sorted10"."""
    return f"{n_values} list{length} {n_values + 1} sorted{length}"


def blank(
    text: str, n_values: int, shares: Sequence[float], *, gain: float, dtype: torch.dtype
) -> ListModel:
    """A model of zeros that embeds prompts of a layout one-hot.

    Args:
        text: the layout.
        n_values: number of values: the lowest token ids that are neither separator nor padding.
        shares: fraction of the output that each head will write; they sum to 1.
        gain: scale of the logits; logits of tokens that are not values are -gain n_values.
        dtype: dtype of the parameters.

    Raises:
        InputError: fractions with another sum, fewer than two values, or an invalid layout.
    """
    if not shares or not math.isclose(sum(shares), 1.0, abs_tol=1e-12):
        raise InputError(f"the heads' fractions must sum to 1, got {list(shares)}")
    if n_values < 2:
        raise InputError(f"sorting needs at least 2 values, got {n_values}")
    names = [word.removeprefix("pad") for word in text.split()]
    reserved = {int(name) for name in names if name.isdecimal()}
    free = [i for i in range(n_values + len(reserved)) if i not in reserved]
    d_vocab_out = free[n_values - 1] + 1
    d_vocab = max(d_vocab_out, *(i + 1 for i in reserved)) if reserved else d_vocab_out
    layout = parse_layout(text, d_vocab=d_vocab, d_vocab_out=d_vocab_out)
    n_ctx = layout.n_positions
    width = max(WIDTH, d_vocab + n_ctx + d_vocab_out)
    config = TransformerConfig(
        n_layers=1,
        d_model=width,
        d_head=width,
        n_heads=len(shares),
        n_ctx=n_ctx,
        d_vocab=d_vocab,
        d_vocab_out=d_vocab_out,
        attn_only=True,
        normalization_type=None,
        attention_dir="causal" if layout.autoregressive else "bidirectional",
        dtype=dtype,
    )
    model = zeros(config)
    values = list(layout.values)
    model.embed.W_E.data[:, :d_vocab] = torch.eye(d_vocab, dtype=dtype)
    model.pos_embed.W_pos.data[:, d_vocab : d_vocab + n_ctx] = torch.eye(n_ctx, dtype=dtype)
    model.unembed.W_U.data[d_vocab + n_ctx :][:d_vocab_out] = torch.eye(d_vocab_out, dtype=dtype)
    model.unembed.b_U.data[[i for i in range(d_vocab_out) if i not in values]] = -gain * n_values
    items, reads, sorted_axes = (
        [d_vocab + p for p in positions] for positions in _position_lists(layout)
    )
    others = [i for i in range(d_vocab) if i not in values]
    return ListModel(model.eval(), layout, values, others, items, reads, sorted_axes)


def write_heads(
    target: ListModel,
    scores: Float[Tensor, "axis axis"],
    writes: Float[Tensor, "token value"],
    shares: Sequence[float] = (1.0,),
) -> Transformer:
    """Set the scores of all heads, and their fractions of the output; fraction 0 leaves zeros."""
    for head, share in enumerate(shares):
        if share != 0:
            write_head(target, head, scores, share * writes)
    return target.model


def write_head(
    target: ListModel,
    head: int,
    scores: Float[Tensor, "axis axis"],
    writes: Float[Tensor, "token value"],
) -> None:
    """Set one head's scores and its output."""
    model = target.model
    attn, scale = model.blocks[0].attn, model.cfg.attn_scale
    n_axes, d_vocab = len(scores), model.cfg.d_vocab
    columns = [n_axes + i for i in target.values]
    attn.W_Q.data[head, :n_axes, :n_axes] = (scores * scale).to(model.cfg.dtype)
    attn.W_K.data[head, :n_axes, :n_axes] = torch.eye(n_axes, dtype=model.cfg.dtype)
    attn.W_V.data[head, :d_vocab, :d_vocab] = torch.eye(d_vocab, dtype=model.cfg.dtype)
    attn.W_O.data[head, :d_vocab, columns] = writes.to(model.cfg.dtype)


def autoregressive(
    text: str, n_values: int, shares: Sequence[float], *, gain: float, dtype: torch.dtype
) -> ListModel:
    """`blank` for a rule that reads the previous output; a separator takes its role at first.

    Raises InputError for a layout without the sorted list, or without a separator between the
    lists.
    """
    target = blank(text, n_values, shares, gain=gain, dtype=dtype)
    if not target.layout.autoregressive:
        raise InputError(
            "this model reads the previous output: the layout needs the sorted list after the "
            "list, as in '10 list5 11 sorted5'"
        )
    if not target.layout.between:
        raise InputError(
            "the first output would be predicted at a list item: put a separator between list "
            "and output, as in 'list5 10 sorted5'"
        )
    return target


def fixed_length(layout: ListLayout) -> int:
    """The length of every list. Raises InputError if lists before outputs vary in length."""
    if layout.shortest != layout.longest:
        raise InputError(
            f"lists of {layout.shortest} to {layout.longest} items move the output positions, "
            "which this model has fixed: give all lists the same length"
        )
    return layout.longest


def _position_lists(layout: ListLayout) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Positions of the longest list's items, of their readouts, and of the sorted list."""
    start, reads = len(layout.before), layout.read_positions(layout.longest)
    sorted_positions = [p + 1 for p in reads] if layout.autoregressive else []
    return range(start, start + layout.longest), reads, sorted_positions


FILTER = 10.0  # A = 22,026: 20 keys that are filtered out get less than 1e-3 of the attention
PREFER = 3.0  # D = 20: the next smallest item gets 1/20 of the smallest one's
EXCLUDED = 40.0  # exp(-40) = 4e-18 is negligible in float64 relative to attention of order 1
GAIN = 20.0  # of `sort_min_greater`'s logits: margins of 18 and more
SUM_GAIN = 400.0  # of the others': their least margin is gain / 39 for lists of 10
SOURCE = "How do tiny transformers sort lists of small integers? (Qi and Zhong 2023)"


def sort_min_greater(
    n_values: int = 15,
    length: int = 10,
    *,
    layout: str | None = None,
    shares: Sequence[float] = (1.0,),
    filter_score: float = FILTER,
    prefer: float = PREFER,
    gain: float = GAIN,
    dtype: torch.dtype = torch.float64,
) -> Transformer:
    """Algorithm 1, min{> previous}: attend to keys greater than the query, most to the least; copy.

    A value v > p as a key scores F + s(n_values - 1 - v), anything else 0, at all positions. So
    with A = exp(F), D = exp(s), R the items of the list greater than p and u the number of
    separators up to the query, v in R gets attention A D^(n_values - 1 - v) / Z, all else 1 / Z,
        Z = A Σ_{v in R} D^(n_values - 1 - v) + 2k + u
    (k items are filtered out of the list, and their copies among the outputs). The output copies:
        logit(v) = gain A D^(n_values - 1 - v) / Z in R, 2 gain / Z for previous outputs, else 0.
    The least item m of R leads by
        margin = gain (A D^(n_values - 1 - m) - max(A D^(n_values - 1 - m'), 2)) / Z,
    m' the next greater item (without the term if there is none): every list of distinct values
    is sorted if, and with n > 1 only if, D > 1 and A > 2. The margin is at least
    gain (1 - max(1/D, 2/A)) / (D/(D - 1) + (2n + u)/A). A value that occurs twice is output once,
    and lists with repeats are not sorted correctly.

    Args:
        n_values: size of the alphabet.
        length: number of items of a list; a layout overrides it.
        layout: layout of the prompts, with the sorted list after a separator; None: BOS, list, MOS,
            sorted list.
        shares: fractions of the output, by head; they sum to 1.
        filter_score: F, the score of values greater than the previous item.
        prefer: s, the difference in score between a value and the next greater one.
        gain: scale of the logits.
        dtype: dtype of the parameters.
    """
    target = autoregressive(
        layout or default_layout(n_values, length), n_values, shares, gain=gain, dtype=dtype
    )
    value = torch.arange(n_values)
    preference = filter_score + prefer * (n_values - 1 - value).double()
    greater = value > value[:, None]  # [query key]
    scores, writes = target.no_scores(), target.no_writes()
    scores[torch.tensor(target.values)[:, None], target.values] = preference * greater
    scores[torch.tensor(target.others)[:, None], target.values] = preference
    writes[target.values] = gain * torch.eye(n_values, dtype=torch.float64)
    return write_heads(target, scores, writes, shares)


def sort_refined(
    n_values: int = 10,
    length: int = 10,
    *,
    layout: str | None = None,
    excluded: float = EXCLUDED,
    gain: float = SUM_GAIN,
    dtype: torch.dtype = torch.float64,
) -> Transformer:
    """Algorithm 1 refined for repeats, by three heads: the least item above p, or p again.

    The source's `element_at_pos`: with m the least of the items above p, output m if at least
    n - k items are above p, else p again. Let b = n - k - 0.5 and c = #{a > p}.
        head 0   the items above p score 0, the query's own token ln b, all else at most
                 -`excluded`; attended tokens write 2 gain to their own logit
        head 1   the same with the prompt's first separator in place of the query's token; items
                 write -2 gain, the separator nothing: together with head 0, to the logit of p
                     2 gain b / (c + b)
                 and nothing else
        head 2   attends only to the least item above p (to all keys alike if there is none); an
                 attended token writes gain to its own logit
    So p is the answer exactly if b > c, that is c < n - k, by gain 0.5 / (2b + 0.5) or more, up
    to exp(-excluded). For k = 0 the query is a separator: heads 0 and 1 cancel, and head 2 finds
    the least item.

    Args:
        n_values: size of the alphabet.
        length: number of items of a list; a layout overrides it.
        layout: layout of the prompts, with the sorted list after a separator; None: BOS, list, MOS,
            sorted list.
        excluded: score of excluded keys below that of an item.
        gain: scale of the logits.
        dtype: dtype of the parameters.
    """
    text = layout or default_layout(n_values, length)
    target = autoregressive(text, n_values, (0.4, 0.3, 0.3), gain=gain, dtype=dtype)
    n = fixed_length(target.layout)
    carrier, words = _first_separator(target)
    value = torch.arange(n_values)
    greater = (value > value[:, None]).double()  # [query key]
    values = torch.tensor(target.values)
    copies = torch.eye(n_values, dtype=torch.float64)
    by_value = target.no_scores()
    _exclude(target, by_value, carrier, excluded)
    by_value[:, carrier] = -excluded
    by_value[values[:, None], target.values] = -excluded * (1 - greater)
    own, other = by_value.clone(), by_value.clone()
    for k, position in list(enumerate(target.reads))[1:]:
        weight = math.log(n - k - 0.5)
        own[position, position] = (
            2 * excluded + weight
        )  # exceeds the exclusion of its token and its position
        other[position, carrier] = excluded + weight - math.log(words)
    least = target.no_scores()
    preference = excluded * (1 + n_values - value).double()
    least[values[:, None], target.values] = preference * greater
    least[torch.tensor(target.others)[:, None], target.values] = preference
    writes = target.no_writes()
    writes[target.values] = gain * copies
    write_head(target, 0, own, 2 * writes)
    write_head(target, 1, other, -2 * writes)
    write_head(target, 2, least, writes)
    return target.model


def sort_argmax(
    n_values: int = 10,
    longest: int = 10,
    bidirectional: bool = True,
    *,
    layout: str | None = None,
    shares: Sequence[float] = (1.0,),
    tilt: float = 0.0,
    excluded: float = EXCLUDED,
    gain: float = SUM_GAIN,
    dtype: torch.dtype = torch.float64,
) -> Transformer:
    """Algorithm 2, argmax_x f_k(x) with f_k(x) = Σ_i min(0, a_i - x) + (k + 0.5) x.

    The step f_k(x + 1) - f_k(x) = k + 0.5 - #{i: a_i <= x} is positive below the sorted item k and
    negative from there on, and at least 1/2 in size. So the maximum is there, by 1/2 or more, for
    every list. Every item of the list scores 0 as a key, the prompt's first separator ln(k + 0.5)
    by the query's position, and all else (other separators, padding, outputs) at most -`excluded`.
    An item a writes min(0, a - x) and the separator writes x, so up to exp(-excluded),
        logit(x) = gain f_k(x) / Z,   Z = n + k + 0.5.
    Attention is 1/Z on each item and k + 0.5 times that on the separator, for any token of the
    query: in a causal model previous outputs are ignored. The margin is at least gain / (2Z), with
    equality at every k at which item k occurs once.

    A tilt t adds -t x to the output of each item and t longest to the separator's ratio of k + 0.5.
    The logits become gain (f_k(x) + t (longest - n) x) / Z, Z = n + k + 0.5 + t longest: the same
    algorithm with other slopes, and right by gain (1/2 - t (longest - n)) / Z.

    Args:
        n_values: size of the alphabet.
        longest: items of the longest list.
        bidirectional: whether lists of 1 to `longest` items are sorted in place, with padding; else
            lists of one length are followed by their outputs, in a causal model.
        layout: layout of the prompts, with a separator that every query sees; it overrides the
            lengths and the direction. None: as described, with BOS first.
        shares: fractions of the output, by head; they sum to 1.
        tilt: t, at least 0.
        excluded: score of excluded keys below that of an item.
        gain: scale of the logits.
        dtype: dtype of the parameters.
    """
    padded_layout = f"{n_values} list1-{longest} {n_values + 1} pad{n_values + 2}"
    text = layout or (padded_layout if bidirectional else default_layout(n_values, longest))
    target = blank(text, n_values, shares, gain=gain, dtype=dtype)
    spread = target.layout.longest - target.layout.shortest
    if tilt < 0 or tilt * spread >= 0.5:
        raise InputError(f"tilt must be 0 or more, and below 1/2 divided by {spread}, not {tilt}")
    if target.layout.autoregressive:
        fixed_length(target.layout)
    value = torch.arange(n_values, dtype=torch.float64)
    carrier, words = _first_separator(target)
    scores, writes = target.no_scores(), target.no_writes()
    _exclude(target, scores, carrier, excluded)
    for k, position in enumerate(target.reads):
        scores[position, carrier] = math.log((k + 0.5 + tilt * target.layout.longest) / words)
    writes[target.values] = gain * ((value[:, None] - value).clamp(max=0) - tilt * value)
    writes[carrier] = gain * value
    return write_heads(target, scores, writes, shares)


def sort_mixed(
    n_values: int = 10,
    length: int = 10,
    *,
    layout: str | None = None,
    shares: Sequence[float] = (1.0,),
    relative_attention: float = 0.0,
    excluded: float = EXCLUDED,
    gain: float = SUM_GAIN,
    dtype: torch.dtype = torch.float64,
) -> Transformer:
    """A model of both algorithms, with repeats: the filter of min{> previous}, the sum of f_k(x).

    Since Σ_i min(0, a_i - x) = Σ_i min(a_i, x) - n x, f_k(x) is a sum of min(a_i, x) minus
    (n - k - 0.5) x, in which for x >= p the items a_i <= p are constants. So these may be filtered
    out: items greater than the query score 0 as keys, others ln(w), the prompt's first separator
    ln(n - k - 0.5), and all else at most -`excluded`. An item a writes min(a, x), the separator
    -x, and the query's own token writes, past the head, -2 gain n_values to every x < p. Up to
    exp(-excluded),
        logit(x) = gain (Σ_{a > p} min(a, x) + w Σ_{a <= p} min(a, x) - (n - k - 0.5) x) / Z
            - 2 gain n_values [x < p],
        Z = #{a > p} + w #{a <= p} + n - k - 0.5, w = relative_attention.
    For x >= p this is gain f_k(x) / Z plus a constant, and every x < p is lower. So every list is
    sorted, with or without repeats, by at least gain / (2Z). With w = 1 the query does not filter.

    Args:
        n_values: size of the alphabet.
        length: number of items of a list; a layout overrides it.
        layout: layout of the prompts, with the sorted list after a separator; None: BOS, list, MOS,
            sorted list.
        shares: fractions of the output, by head; they sum to 1.
        relative_attention: w, 0 to 1: attention to an item up to the query, relative to one above
            it.
        excluded: score of excluded keys below that of an item.
        gain: scale of the logits.
        dtype: dtype of the parameters.
    """
    if not 0 <= relative_attention <= 1:
        raise InputError(f"relative_attention lies between 0 and 1, got {relative_attention}")
    target = autoregressive(
        layout or default_layout(n_values, length), n_values, shares, gain=gain, dtype=dtype
    )
    n = fixed_length(target.layout)
    value = torch.arange(n_values, dtype=torch.float64)
    carrier, words = _first_separator(target)
    scores, writes = target.no_scores(), target.no_writes()
    _exclude(target, scores, carrier, excluded)
    filtered = (
        -excluded if relative_attention == 0 else max(-excluded, math.log(relative_attention))
    )
    not_greater = value <= value[:, None]  # [query key]
    scores[torch.tensor(target.values)[:, None], target.values] = filtered * not_greater.double()
    for k, position in enumerate(target.reads):
        scores[position, carrier] = math.log((n - k - 0.5) / words)
    writes[target.values] = gain * torch.minimum(value[:, None], value)
    writes[carrier] = -gain * value
    penalty = 2 * gain * n_values * (value < value[:, None]).to(dtype)  # [query value]
    model = write_heads(target, scores, writes, shares)
    model.unembed.W_U.data[torch.tensor(target.values)[:, None], target.values] = -penalty
    return model


def task(layout: str, distinct: bool, algorithm: str) -> dict[str, Any]:
    """The task record: layout of the prompts, whether items are distinct, and the algorithm."""
    return {"name": "sorting", "layout": layout, "distinct": distinct, "algorithm": algorithm}


def _first_separator(target: ListModel) -> tuple[int, int]:
    """The axis of the first separator's token, and its number of copies that every query sees."""
    layout = target.layout
    separators = [*layout.before, *layout.between]
    if not layout.autoregressive:
        separators += layout.after
    if not separators:
        raise InputError(
            "this algorithm attends to a separator that every query sees, and the layout has "
            "none: put one first, as in '10 list5 11 sorted5'"
        )
    return separators[0], separators.count(separators[0])


def _exclude(target: ListModel, scores: torch.Tensor, carrier: int, by: float) -> None:
    """Make every query score -`by` on other separators, on padding, and on the outputs."""
    ignored = [axis for axis in target.others if axis != carrier] + target.sorted_axes
    tokens = torch.arange(target.model.cfg.d_vocab)
    scores[tokens[:, None], ignored] = -by


MIN_GREATER_TASK = task(default_layout(15, 10), True, "min-greater")
ARGMAX_TASK = task("10 list1-10 11 pad12", False, "argmax")
SORT_MIN_GREATER = Toy(
    "sort-min-greater",
    "sorts 10 distinct values of 15, by the smallest value above the previous output",
    sort_min_greater,
    MIN_GREATER_TASK,
    SOURCE,
)
SORT_REFINED = Toy(
    "sort-refined",
    "sorts 10 of 10 values with repeats, by the smallest value above the previous output, or "
    "that output",
    sort_refined,
    task(default_layout(10, 10), False, "min-greater"),
    SOURCE,
)
SORT_ARGMAX = Toy(
    "sort-argmax",
    "sorts up to 10 of 10 values in place, by the piecewise-linear argmax",
    sort_argmax,
    ARGMAX_TASK,
    SOURCE,
)
