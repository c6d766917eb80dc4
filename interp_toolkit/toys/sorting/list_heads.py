"""Hand-set heads on lists: a one-layer model of zeros for a layout, and rules written into it.

The residual stream has one axis for each token, each position and each logit. A head's rule is
two tables: the score of every key axis for every query axis (a score is the sum over a query's
token and position, and a key's), and what every token that is attended to writes to the logits.
Used by `toys.sorting.sorters`, whose docstrings derive what comes out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.data.lists.layout import ListLayout, parse_layout
from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.zeros import zeros

WIDTH = 56  # d_model and d_head, the post's; wider where the axes need it


@dataclass(frozen=True, eq=False)
class ListModel:
    """A one-layer model to be filled in, and which axes of its tables mean what.

    Attributes:
        model: weights of zero but for the embeddings (one-hot) and the unembedding.
        layout: of its rows.
        values: axis of each value's token, and its column among the logits.
        others: axes of the separators and of padding.
        items: axis of the position of each item of the list.
        reads: axis of the position where each item of the sorted list is read.
        sorted_axes: axes of the positions of the sorted list; none if not in the row.
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
    """A model of zeros that embeds rows of a layout one-hot.

    Args:
        text: the layout.
        n_values: values are the lowest token ids that are no separator and no padding.
        shares: what each head will write of the output; they sum to 1.
        gain: scale of the logits; those that are no value's are set to -gain n_values.
        dtype: of the parameters.
    """
    if not shares or not math.isclose(sum(shares), 1.0, abs_tol=1e-12):
        raise InputError(f"the heads' shares must sum to 1, got {list(shares)}")
    if n_values < 2:
        raise InputError(f"a list needs at least 2 values to be sorted, not {n_values}")
    reserved = {int(word.removeprefix("pad")) for word in text.split() if _is_token(word)}
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
    """Every head attends by the scores and writes its share; a share of 0 leaves a head at zero."""
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
    """One head attends by the scores and writes."""
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
    """`blank` for a rule that reads the output before; a separator stands where there is none.

    Raises InputError for a layout without the sorted list, or with nothing between the lists.
    """
    target = blank(text, n_values, shares, gain=gain, dtype=dtype)
    if not target.layout.autoregressive:
        raise InputError(
            "this model reads the output before: the layout needs the sorted list after the list, "
            "as in '10 list5 11 sorted5'"
        )
    if not target.layout.between:
        raise InputError(
            "the first output is read at an item of the list, as if that were an output: put a "
            "separator between the two, as in 'list5 10 sorted5'"
        )
    return target


def fixed_length(layout: ListLayout) -> int:
    """The length of every list. Raises InputError where lists of a row with outputs vary."""
    if layout.shortest != layout.longest:
        raise InputError(
            f"lists of {layout.shortest} to {layout.longest} items move the places where outputs "
            "are read: this model reads them by position, so give every list one length"
        )
    return layout.longest


def _is_token(word: str) -> bool:
    return word.removeprefix("pad").isdecimal()


def _position_lists(layout: ListLayout) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Positions of the longest list's items, of its read-outs, and of its outputs in the row."""
    start, reads = len(layout.before), layout.read_positions(layout.longest)
    sorted_positions = [p + 1 for p in reads] if layout.autoregressive else []
    return range(start, start + layout.longest), reads, sorted_positions
