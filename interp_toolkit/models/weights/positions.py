"""Positional information: learned embeddings, rotary embeddings (RoPE) and ALiBi.

Learned positions are a tensor, added to the residual stream. Rotary tables and ALiBi slopes are
read from the model's own modules, whose location depends on the architecture; their effect is not
checked here.

*Rotary* (Su et al. 2021, arXiv 2104.09864): pairs of coordinates of queries and keys are rotated by
an angle proportional to the position. A rotary model has no single QK matrix; with `matrix(p)`, the
rotation at position p, it has one for every pair of positions,
`W_Q matrix(q) matrix(k).T W_K.T`, which depends only on q - k.

*ALiBi* (Press et al. 2022, arXiv 2108.12409): a bias of the attention scores, linear in the
distance. Each head has a slope; the score of a key falls by one slope per position of distance. The
softmax depends only on differences between the keys of one query, so models differ in where the
bias is zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.errors import InputError, one_line
from interp_toolkit.models.running.forward import device_of


def turned(
    x: Float[Tensor, "... d_head"], cos: Tensor, sin: Tensor, *, adjacent: bool
) -> Float[Tensor, "... d_head"]:
    """Queries or keys, each rotated by its own angles.

    Args:
        x: the vectors; their first coordinates are rotated, as many as there are angles.
        cos: cosines of the angles, one per coordinate, [... rotary_dim], broadcast against x.
        sin: sines, of the same shape.
        adjacent: pairs are (0, 1), (2, 3), ... (GPT-J) rather than (0, dim/2), ... (Llama).
    """
    dim = cos.shape[-1]
    turning, rest = x[..., :dim], x[..., dim:]
    out = turning * cos + quarter_turn(turning, adjacent=adjacent) * sin
    return torch.cat([out, rest], dim=-1) if rest.shape[-1] else out


def quarter_turn(x: Float[Tensor, "... dim"], *, adjacent: bool) -> Float[Tensor, "... dim"]:
    """Each pair (a, b) becomes (-b, a)."""
    if adjacent:
        return torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)


Table = Callable[[int], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class RotaryTables:
    """The rotary tables of one layer.

    Attributes:
        dim: the first `dim` coordinates of a head are rotated, the others are unchanged.
        adjacent: pairs are (0, 1), (2, 3), ... (GPT-J) rather than (0, dim/2), ... (Llama).
        base: base of the frequencies, as configured; scaled variants (NTK, YaRN) keep their base
            here and differ in the tables.
        tables: the model's own cosines and sines of positions 0 to n - 1, [n dim] each.
    """

    dim: int
    adjacent: bool
    base: float | None
    tables: Table = field(repr=False)

    def cached(self) -> RotaryTables:
        """The same with tables that are made once for each number of positions."""
        return replace(self, tables=lru_cache(maxsize=4)(self.tables))

    def rotate(
        self, x: Float[Tensor, "*batch pos head d_head"], n_pos: int | None = None
    ) -> Tensor:
        """Queries or keys at the last of `n_pos` positions, rotated; None: at all of them."""
        cos, sin = (t[-x.shape[-3] :] for t in self.tables(n_pos or x.shape[-3]))
        return turned(x, cos[:, None].to(x), sin[:, None].to(x), adjacent=self.adjacent)

    def turn(
        self, x: Float[Tensor, "n d_head"], positions: Int[Tensor, " n"]
    ) -> Float[Tensor, "n d_head"]:
        """Queries or keys of one head, each rotated for its own position."""
        cos, sin = self.tables(int(positions.max()) + 1 if len(positions) else 1)
        indices = positions.to(cos.device)
        return turned(x, cos[indices].to(x), sin[indices].to(x), adjacent=self.adjacent)

    def matrix(self, position: int, d_head: int) -> Float[Tensor, "d_head d_head"]:
        """M with `turned = x @ M` at this position; negative positions rotate the other way."""
        cos, sin = self.tables(abs(position) + 1)
        cos, sin = cos[-1], sin[-1] if position >= 0 else -sin[-1]
        turn = torch.eye(d_head, dtype=cos.dtype, device=cos.device)
        head = turn[: self.dim, : self.dim]
        turn[: self.dim, : self.dim] = head * cos + quarter_turn(head, adjacent=self.adjacent) * sin
        return turn


@dataclass(frozen=True, eq=False)
class Alibi:
    """The ALiBi slopes of one layer.

    Attributes:
        slopes: one per query head.
        from_query: whether the bias is `slope * (key - query)` and 0 for later keys
            (HookedTransformer), else `slope * key`, counted from the first position (Bloom). A
            model's hooked scores may differ from these by a constant per query, to which the
            pattern is invariant: MPT counts from the last position, and HookedTransformer adds the
            last rows of a table that grows to the longest input so far.
    """

    slopes: Float[Tensor, "head"]
    from_query: bool

    def bias(
        self, query: Int[Tensor, " query"], key: Int[Tensor, " key"]
    ) -> Float[Tensor, "head query key"]:
        """The bias added to the scores of these positions, after any soft cap."""
        steps = key.expand(len(query), -1)
        if self.from_query:
            steps = torch.clamp(steps - query[:, None], max=0)
        return self.slopes[:, None, None] * steps.to(self.slopes)


#: position types outside the residual stream, for which HookedTransformer may keep an unused W_pos
_POSITIONS_ELSEWHERE = ("alibi", "shortformer", "relative_positional_bias", "rotary", "none")


def positions(model: Any) -> Tensor | None:
    """W_pos as stored, [pos d_model]; None for models without learned or sinusoidal positions."""
    if "pos_embed" not in model._modules:
        return _sinusoidal(model)
    if getattr(model.cfg, "positional_embedding_type", "standard") in _POSITIONS_ELSEWHERE:
        return None
    W_pos = read_tensor(model.pos_embed, "W_pos", "the position embedding").to(device_of(model))
    inner = getattr(model.pos_embed, "original_component", None)
    return W_pos[int(getattr(inner, "offset", 0)) :]  # OPT's first rows are of no position


def _sinusoidal(model: Any) -> Tensor | None:
    """Fixed positions that transformers adds outside the modules that a bridge shows (XGLM)."""
    inside = getattr(getattr(model, "original_model", None), "model", None)
    module = getattr(inside, "embed_positions", None)
    table = getattr(module, "weights", None)
    if not isinstance(table, Tensor):
        return None
    return table[int(getattr(module, "offset", 0)) :].to(device_of(model))


def alibi(attn: Any, cfg: Any) -> Alibi | None:
    """The ALiBi bias of attention; None for models without ALiBi."""
    kind = type(attn).__name__.lower()
    if getattr(cfg, "positional_embedding_type", "standard") != "alibi" and "alibi" not in kind:
        return None
    n_heads, device = int(cfg.n_heads), next(attn.parameters()).device
    if getattr(attn, "original_component", None) is None:  # HookedTransformer
        return Alibi(attn.create_alibi_multipliers(n_heads, device), from_query=True)
    from transformer_lens.model_bridge.generalized_components.alibi_utils import build_alibi_slopes

    return Alibi(build_alibi_slopes(n_heads, device), from_query=False)


Turn = Literal["own", "flipped", "reversed"]


def rotary(model: Any, attn: Any, cfg: Any, turn: Turn = "own") -> RotaryTables | None:
    """The rotary tables of attention; None for models without rotary positions.

    Args:
        model: the model.
        attn: the attention.
        cfg: the configuration.
        turn: "flipped" where pairs of coordinates are adjacent and the configuration says halves,
            or the reverse (Cohere); "reversed" where they turn the other way (nanochat).
    """
    if getattr(cfg, "positional_embedding_type", "standard") != "rotary":
        return None
    adjacent = bool(getattr(cfg, "rotary_adjacent_pairs", False)) != (turn == "flipped")
    base = getattr(cfg, "rotary_base", None)
    inner = getattr(attn, "original_component", None)
    if hasattr(inner, "rotary"):  # the native bridge always rotates adjacent pairs
        adjacent = True
    tables = _tables(model, attn, inner, adjacent)
    if turn == "reversed":
        tables = _reversed(tables)
    dim = tables(1)[0].shape[-1]
    return RotaryTables(dim, adjacent, None if base is None else float(base), tables)


def _reversed(tables: Table) -> Table:
    """Angles of the opposite sign."""

    def turned_back(n_pos: int) -> tuple[Tensor, Tensor]:
        cos, sin = tables(n_pos)
        return cos, -sin

    return turned_back


def _tables(model: Any, attn: Any, inner: Any, adjacent: bool) -> Table:
    """A function from the number of positions to the model's own cosines and sines."""
    if inner is None and hasattr(attn, "rotary_cos"):  # HookedTransformer

        def from_buffers(n_pos: int) -> tuple[Tensor, Tensor]:
            if n_pos > len(attn.rotary_cos):
                attn._extend_rotary_embeddings(n_pos)
            return attn.rotary_cos[:n_pos], attn.rotary_sin[:n_pos]

        return from_buffers
    if inner is None:  # the toolkit's

        def from_own(n_pos: int) -> tuple[Tensor, Tensor]:
            sin, cos = attn.rotary.tables(n_pos, attn.W_Q)
            return cos, sin

        return from_own
    if hasattr(inner, "rotary"):  # the native bridge

        def from_native(n_pos: int) -> tuple[Tensor, Tensor]:
            end = len(inner.rotary.cos_cached)
            if n_pos > end:
                raise InputError(
                    f"there is no position {n_pos - 1}; the model has positions 0 to {end - 1}"
                )
            return inner.rotary.cos_cached[:n_pos], inner.rotary.sin_cached[:n_pos]

        return from_native
    buffer = getattr(inner, "embed_positions", None)
    if isinstance(buffer, Tensor):  # GPT-J: sines, then cosines

        def from_buffer(n_pos: int) -> tuple[Tensor, Tensor]:
            sin, cos = buffer[:n_pos].chunk(2, dim=-1)
            return cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)

        return from_buffer
    module = getattr(inner, "rotary_emb", None) or getattr(model, "rotary_emb", None)
    module = getattr(module, "original_component", module)
    if module is None:
        raise InputError("the rotary positions of this architecture cannot be read")

    def from_transformers(n_pos: int) -> tuple[Tensor, Tensor]:
        like = next(iter(model.parameters()))
        try:
            with torch.no_grad():
                # at position 0 alone every table is 1, and its order cannot be seen
                positions = torch.arange(max(n_pos, 2), device=like.device)[None]
                kinds = getattr(getattr(inner, "config", None), "layer_types", None)
                kind = kinds[inner.layer_idx] if kinds and hasattr(inner, "layer_idx") else None
                try:
                    angles = module(like, positions, kind)
                except TypeError:
                    angles = module(like, positions)
                cos, sin = (angles.real, angles.imag) if torch.is_tensor(angles) else angles
        except TypeError as error:
            raise InputError(f"rotary positions that differ by layer: {error}") from error
        return _of_pairs(cos[0], adjacent)[:n_pos], _of_pairs(sin[0], adjacent)[:n_pos]

    return from_transformers


def _of_pairs(table: Tensor, adjacent: bool) -> Tensor:
    """One angle for each coordinate, from a table with an angle for each pair, once or twice.

    Families repeat the angles in two halves (Llama), one after the other (Cohere) or not at all
    (GPT-OSS).
    """
    half = table.shape[1] // 2
    if torch.equal(table[:, :half], table[:, half:]):
        table = table[:, :half]
    elif torch.equal(table[:, ::2], table[:, 1::2]):
        table = table[:, ::2]
    return table.repeat_interleave(2, -1) if adjacent else torch.cat([table, table], dim=-1)


def read_tensor(module: Any, name: str, what: str) -> Tensor:
    """A plain floating-point tensor of a module; raises InputError if it is not one."""
    try:
        value = getattr(module, name)
    except Exception as error:  # accessors of bridges raise many types
        raise InputError(f"{what} cannot be read: {one_line(error)}") from error
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise InputError(f"{what} cannot be read as a plain tensor (quantized?)")
    return value.detach()
