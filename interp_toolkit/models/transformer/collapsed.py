"""A one-layer model as two lookup tables, so that a prompt costs a few look-ups.

In a one-layer attention-only model without normalization, the residual stream at a position depends
only on its token and its position: a *cell* (token, position). So all scores are in one table,
query cells by key cells, and all contributions of keys to the logits are in another, key cells by
logits:

    S = (x W_Q + b_Q)(x W_K + b_K)^T / scale,   L = (x W_V + b_V) W_O W_U,   D = (x + b_O) W_U + b_U
    logits(query) = D[query] + Σ_heads softmax(S[query, keys]) L[keys],      x = W_E + W_pos

Both are computed once per step and gathered for each row. Automatic differentiation goes through
them: the same parameters get the same gradients, up to the order of additions. Masked scores are
-inf in the table.

Source: the factorization is that of Elhage et al. 2021, "A Mathematical Framework for Transformer
Circuits", with positions.
"""

from __future__ import annotations

from typing import NamedTuple, TypeGuard

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import cached_batches, run
from interp_toolkit.models.running.hooks import has_hooks
from interp_toolkit.models.transformer.attention import softmax_of_keys
from interp_toolkit.models.transformer.transformer import Transformer


class Tables(NamedTuple):
    """A model's tables; cells are numbered position by position.

    Attributes:
        scores: masked attention scores.
        written: a key's contribution to the logits if all attention is on it.
        direct: the contribution of a query's own residual stream and the biases.
    """

    scores: Float[Tensor, "head query key"]
    written: Float[Tensor, "head key logit"]
    direct: Float[Tensor, "query logit"]


def collapses(model: Model) -> TypeGuard[Transformer]:
    """Whether a model equals its two tables exactly, with no hooks, which the tables would skip."""
    if not isinstance(model, Transformer):
        return False
    cfg = model.cfg
    return (
        cfg.n_layers == 1
        and cfg.attn_only
        and cfg.normalization_type is None
        and cfg.mixing is None
        and cfg.positional_embedding_type in ("standard", "none")
        and cfg.attn_scores_soft_cap <= 0
        and cfg.output_logits_soft_cap <= 0
        and not any(has_hooks(module) for module in model.modules())
    )


def tables(model: Transformer, reads: range, n_pos: int) -> Tables:
    """The tables of such a model, for queries at `reads` and keys before `n_pos`."""
    attn = model.blocks[0].attn
    x = model.embed.W_E.expand(n_pos, -1, -1)
    if model.cfg.positional_embedding_type == "standard":
        x = x + model.pos_embed.W_pos[:n_pos, None]
    queries = x[reads.start : reads.stop].flatten(0, 1)
    x = x.flatten(0, 1)
    q = queries @ attn.W_Q + _row(attn.b_Q)
    k = x @ attn.W_K + _row(attn.b_K)
    scores = q @ k.transpose(1, 2) / attn.scale
    if attn.causal:
        d_vocab = model.cfg.d_vocab
        positions = torch.arange(n_pos, device=x.device).repeat_interleave(d_vocab)
        own = torch.arange(reads.start, reads.stop, device=x.device).repeat_interleave(d_vocab)
        scores = scores.masked_fill(positions > own[:, None], -torch.inf)
    written = (x @ attn.W_V + _row(attn.b_V)) @ attn.W_O @ model.unembed.W_U
    direct = (queries if attn.b_O is None else queries + attn.b_O) @ model.unembed.W_U
    return Tables(
        scores, written, direct if model.unembed.b_U is None else direct + model.unembed.b_U
    )


def table_logits(
    model: Transformer,
    tokens: Int[Tensor, "row pos"],
    read: Int[Tensor, "row item"],
    reads: range,
) -> Float[Tensor, "row item logit"]:
    """Logits at the positions `read` of each row, through the tables.

    Args:
        model: one for which `collapses` is true.
        tokens: ids within the vocabulary, which is not checked here.
        read: positions, all of them in `reads`.
        reads: the query positions of the tables.
    """
    causal, d_vocab = model.blocks[0].attn.causal, model.cfg.d_vocab
    n_pos = reads.stop if causal else tokens.shape[1]
    made = tables(model, reads, n_pos)
    (n_rows, n_items), n_keys = read.shape, n_pos * d_vocab
    key = tokens[:, :n_pos] + d_vocab * torch.arange(n_pos, device=tokens.device)
    query = tokens.gather(1, read) + d_vocab * (read - reads.start)
    small = (
        torch.int32 if made.scores[0].numel() < 2**31 else torch.int64
    )  # half the memory traffic
    pair = (query.to(small)[:, :, None] * n_keys + key.to(small)[:, None, :]).flatten()
    key, query = key.flatten(), query.flatten()
    logits = made.direct.index_select(0, query).view(n_rows, n_items, -1)
    for scores, written in zip(made.scores, made.written, strict=True):
        of_pairs = scores.flatten().index_select(0, pair).view(n_rows, n_items, n_pos)
        values = written.index_select(0, key).view(n_rows, n_pos, -1)
        logits = torch.baddbmm(logits, softmax_of_keys(of_pairs), values)
    return logits


def tables_pay(model: Model, n_rows: int) -> TypeGuard[Transformer]:
    """Whether a model collapses, and its score table is no larger than the scores of `n_rows`."""
    return collapses(model) and int(model.cfg.d_vocab) ** 2 <= n_rows


def read_logits(
    model: Model, tokens: Int[Tensor, "row pos"], read: Int[Tensor, "row item"]
) -> Float[Tensor, "row item logit"]:
    """Logits of any TransformerLens model at some positions of each row, without gradient.

    They are computed through tables if the model collapses and this is cheaper, else by forward
    passes.

    Raises:
        InputError: tokens that the model cannot take (from the forward pass).
    """
    if tables_pay(model, len(tokens)) and read.numel() and _within(model, tokens):
        reads = range(int(read.min()), int(read.max()) + 1)
        with torch.no_grad():
            return table_logits(model, tokens, read, reads)
    batches = cached_batches(model, tokens)
    return torch.cat([_passed(model, tokens[batch], read[batch]) for batch in batches])


def _passed(
    model: Model, tokens: Int[Tensor, "row pos"], read: Int[Tensor, "row item"]
) -> Float[Tensor, "row item logit"]:
    logits = run(model, tokens)
    assert logits is not None  # no hook stops the pass
    return at_positions(logits, read)


def at_positions(
    x: Float[Tensor, "row pos width"], read: Int[Tensor, "row item"]
) -> Float[Tensor, "row item width"]:
    """The values at each row's own positions."""
    return x.gather(1, read[:, :, None].expand(-1, -1, x.shape[-1]))


def _within(model: Transformer, tokens: Int[Tensor, "row pos"]) -> bool:
    low, high = (int(end) for end in tokens.aminmax())
    return low >= 0 and high < model.cfg.d_vocab and tokens.shape[1] <= model.cfg.n_ctx


def _row(bias: Float[Tensor, "head d_head"] | None) -> Float[Tensor, "head 1 d_head"] | float:
    return 0.0 if bias is None else bias[:, None]
