"""What the weights of a one-layer model say about sorting: who attends to whom, who writes what.

Two tables a head, as the source draws them, from the weights alone:
- QK: attention scores by output item, from each value as the previous token (or as the token that
  stands where the item is read) to each value of the list and to each separator;
- OV: what each of these, attended to alone, adds to the logits of the values.
A value's entries are means over the list's positions, be the query at one of them or not; a
separator's are at its own. Lengths of lists count alike. Rows of OV hold what b_V writes, but not
what does not depend on the head: b_O, b_U and the query's own residual stream.

Without an MLP the logits are sums of such entries, `direct + Σ attention x OV` (entries by
position, not their means), divided by one number for each list and item where there is a final
norm. Whether they are is not taken on trust: the logits of a reading, before that division, are
rebuilt in this way from its attention, and what is missing is reported. OV is given at the norm's
mean scale over the reading; an MLP is left out.
Source: "How do tiny transformers sort lists of small integers?" (Qi and Zhong 2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.circuits.sorting.measures.logit_line import Source, sources
from interp_toolkit.circuits.sorting.measures.reading import ListReading
from interp_toolkit.circuits.weights.ov import ov_circuit
from interp_toolkit.circuits.weights.qk import qk_circuit
from interp_toolkit.circuits.weights.token_scores import read_through, written_through
from interp_toolkit.data.lists.layout import ListLayout
from interp_toolkit.formatting import Brief
from interp_toolkit.models.model import Model
from interp_toolkit.models.weights.parts import LayerWeights, NormWeights
from interp_toolkit.models.weights.view import ModelWeights, weights

EXACT = 1e-6  # share of the logits' variance; rounding in float32 leaves 1e-12
MOST_ROWS = 256  # lists of the reading whose logits are rebuilt
MOST_NUMBERS = 8_000_000  # held at once for it: fewer lists where they are long


@dataclass(frozen=True, eq=False)
class WeightTables(Brief):
    """The tables; see the module.

    Attributes:
        qk: attention scores, divided by the attention scale; -inf where the mask hides the key.
            Item 0 may be read at a separator in front of the sorted list; its rows are then all
            that separator's.
        ov: what each source adds to the logits of the values.
        ov_posted: of the values alone, as the source's formula has it: without position
            embeddings, b_O and b_U included.
        query_names: of the queries, the values.
        first_query: of the separator where item 0 is read; None where it is read at a value.
        source_names: of keys and sources: the values, then separators, then padding.
        exact: whether the rebuilt logits are the model's, and no norm divides them.
        residual: share of the logits' variance over the values, before a final norm's division,
            that the tables do not explain.
        note: why they are not exact, "" where they are.
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
        """A head's scores from each value, the mean over the items that are read at values."""
        first = 0 if self.first_query is None else 1
        scores = self.qk[head, first:] if self.qk.shape[1] > first else self.qk[head]
        return scores.mean(0)


@torch.no_grad()
def weight_tables(model: Model, layout: ListLayout, reading: ListReading) -> WeightTables:
    """The tables of a one-layer model.

    Args:
        model: any one-layer TransformerLens model.
        layout: of its rows.
        reading: what it does on lists, to check the tables against.

    Raises:
        InputError: weights that cannot be given exactly, or heads that do not add up.
    """
    view = weights(model)
    listed = sources(layout)
    written = _written(view, layout)
    residual = _residual(view, layout, reading, written)
    scale = float(reading.scale[reading.rows.present].mean())
    values = torch.tensor(layout.values)
    means = [
        torch.stack(
            [written[:, torch.tensor(at), source.token].mean(1) for at in source.places if at]
        ).mean(0)
        for source in listed
    ]
    exact = residual < EXACT and view.final_norm.kind is None
    return WeightTables(
        qk=_scores(view, layout, listed),
        ov=torch.stack(means, dim=1) / scale,
        ov_posted=_posted(view, values),
        query_names=layout.value_names(),
        first_query=None if _standing(layout, 0) == layout.values else _last_name(layout),
        source_names=tuple(source.name for source in listed),
        exact=exact,
        residual=residual,
        note="" if exact else _note(view, residual),
    )


def separator_line_of_weights(
    tables: WeightTables, layout: ListLayout
) -> Float[Tensor, "head separator item"]:
    """Attention to each separator over that to the values but the largest, as the source draws it.

    `exp(mean over queries of (QK to the separator - mean QK to values 0 to n - 2))`, from the
    scores alone; 0 where the mask hides the separator.
    """
    n = layout.n_values
    values = tables.qk[..., : n - 1].mean(-1, keepdim=True)
    gap = (tables.qk[..., n:] - values).mean(2)
    return gap.exp().transpose(1, 2)


def _scores(
    view: ModelWeights, layout: ListLayout, listed: tuple[Source, ...]
) -> Float[Tensor, "head item query source"]:
    """Mean scores over the lengths that have the item, and over a source's visible places."""
    n, longest = layout.n_values, layout.longest
    lengths = range(layout.shortest, longest + 1)
    visible = view.layer(0).visible(layout.n_positions).cpu()
    circuits = [qk_circuit(view, 0, head, view=view) for head in range(view.n_heads)]
    cells = _keys(listed)
    keys = view.embed(cells.tokens, cells.positions)
    total = torch.zeros(view.n_heads, longest, n, len(listed), dtype=torch.float64)
    count = torch.zeros(longest, len(listed))
    asked: dict[tuple[int, tuple[int, ...]], list[tuple[int, int]]] = {}
    for number, length in enumerate(lengths):
        for item, read in enumerate(layout.read_positions(length)):
            stands = _standing(layout, item)
            asked.setdefault((read, stands), []).append((item, number))
    for (read, stands), uses in asked.items():
        at = torch.full((len(stands),), read)
        queries = view.embed(torch.tensor(stands), at)
        scores = torch.stack([c.score(queries, keys, at, cells.positions) for c in circuits])
        scores = scores.double().cpu()
        for item, number in uses:
            seen = cells.stands[number] & visible[read, cells.positions]
            places = cells.source[seen].bincount(minlength=len(listed))
            sums = scores.new_zeros(*scores.shape[:2], len(listed))
            sums.index_add_(2, cells.source[seen], scores[:, :, seen])
            total[:, item] += sums / places.clamp(min=1)
            count[item] += places > 0
    mean = total / count.clamp(min=1)[:, None, :]
    return mean.masked_fill((count == 0)[:, None, :], -torch.inf)


def _standing(layout: ListLayout, item: int) -> tuple[int, ...]:
    """The tokens that can stand where an item is read."""
    if layout.autoregressive and item == 0 and layout.between:
        return layout.between[-1:]
    return layout.values


def _last_name(layout: ListLayout) -> str:
    return layout.token_name(layout.between[-1])


class _Keys(NamedTuple):
    """Every source at every place it has, and with which lengths (from the shortest) of a list."""

    tokens: Int[Tensor, " cell"]
    positions: Int[Tensor, " cell"]
    source: Int[Tensor, " cell"]
    stands: Bool[Tensor, "length cell"]


def _keys(listed: tuple[Source, ...]) -> _Keys:
    cells = [
        (source.token, place, number, *(place in at for at in source.places))
        for number, source in enumerate(listed)
        for place in sorted(set().union(*source.places))
    ]
    tokens, positions, source, *stands = torch.tensor(cells).T
    return _Keys(tokens, positions, source, torch.stack(stands).bool())


def _written(view: ModelWeights, layout: ListLayout) -> Float[Tensor, "head pos token value"]:
    """What each token at each position adds to the undivided logits; 0 where it never stands."""
    cells = layout.key_cells()
    x = view.embed(cells.tokens, cells.positions).double()
    norm = view.layer(0).norm
    x = NormWeights(norm.kind, eps=norm.eps)(x)
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
    """What the query's residual stream and b_O add, before a final norm's division."""
    x = (view.embed(tokens, positions) + _bias(view.layer(0))).double()
    return (x @ read_through(view.final_norm, view.W_U[:, values]).double()).cpu()


def _residual(
    view: ModelWeights,
    layout: ListLayout,
    reading: ListReading,
    written: Float[Tensor, "head pos token value"],
) -> float:
    """Share of the variance of the undivided logits, centred over values, that is not rebuilt."""
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
    asked, found = reading.undivided[:n_rows][present], rebuilt[present]
    asked, found = (y - y.mean(-1, keepdim=True) for y in (asked, found))
    missing, spread = float(((asked - found) ** 2).sum()), float((asked**2).sum())
    return missing / spread if spread > 0 else 0.0


def _posted(view: ModelWeights, values: Int[Tensor, " value"]) -> Float[Tensor, "head value value"]:
    """`((W_E W_V + b_V) W_O + b_O) W_U + b_U` of the values, norms as far as they are linear."""
    w = view.layer(0)
    x = view.embed_norm(view.W_E[values.to(view.W_E.device)]).double()
    x = NormWeights(w.norm.kind, eps=w.norm.eps)(x)
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
    """b_O as it reaches the residual stream."""
    return written_through(w.post_norm, w.b_O[None])[0]


def _note(view: ModelWeights, residual: float) -> str:
    reasons = []
    if view.final_norm.kind is not None:
        reasons.append("a final norm divides the logits: OV is given at its mean")
    if view.layer(0).post_norm.kind is not None:
        reasons.append("the norm behind the heads is left out")
    if view.mlp(0) is not None:
        reasons.append("what the MLP writes is left out")
    if view.logit_soft_cap is not None:
        reasons.append("the soft cap of the logits is left out")
    if view.W_U.dtype in (torch.bfloat16, torch.float16):
        reasons.append(f"the model rounds to {str(view.W_U.dtype).removeprefix('torch.')}")
    reasons = reasons or ["the model computes something that its weights do not show"]
    return (
        f"tables of weights are approximate ({'; '.join(reasons)}); checked against activations, "
        f"{residual:.1g} of the variance of the undivided logits is not in them"
    )
