"""A circuit as a model: each head and MLP reads only the outputs that the circuit's edges bring.

Every reader (a head's query, key and value, an MLP, the logits) gets the ablation value of each
earlier output, a constant at each position, plus the deviation of those outputs from it whose edge
is in the circuit. This is the pass of `circuits.edges` with every other edge ablated, so the logits
are those of `run_edges`, up to rounding. Heads outside the circuit are computed, and nothing reads
their output.

Readers of one layer have different inputs, so there is no residual stream: of the hook points of
`Transformer` those that name it are missing (hook_resid_mid, hook_resid_post, hook_attn_out, and
hook_resid_pre but for the first layer's, which is the embedding), as is `start_at_layer`. The
activations of ln1 have axes for the head and for its query, key and value. Analyses that read the
residual stream or the weights behind it refuse the model (`refusal`); those of attention and of
nodes' outputs (hook_result, hook_mlp_out) run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.layers import fire
from interp_toolkit.models.transformer.transformer import RETURN_TYPES, Output, Transformer

_AT = r"L(?P<layer>[0-9]{1,6})H(?P<head>[0-9]{1,6})"
_MLP = r"MLP(?P<mlp>[0-9]{1,6})"
_WRITER = re.compile(rf"input|{_AT}|{_MLP}")
_READER = re.compile(rf"logits|{_AT}<(?P<channel>[qkv])>|{_MLP}")
_RESIDUAL = ("hook_resid_pre", "hook_attn_out", "hook_resid_mid", "hook_resid_post")
CHANNELS = "qkv"


class CircuitTransformer(Transformer):
    """A circuit of a `Transformer`; see the module.

    Attributes:
        edges: names of the circuit's edges, such as `L0H1->L1H0<k>`.
        circuit: the edges, and where they come from, as JSON data.
        reference: ablation value of every output, [writer pos d_model]: the embedding, then the
            heads and the MLP of each layer.

    Args:
        cfg: the configuration; its context is the number of positions with ablation values.
        circuit: `edges`, and further entries that are kept.

    Raises:
        InputError: edges that this model does not have, or a configuration without heads.
    """

    reference: Float[Tensor, "writer pos d_model"]

    def __init__(self, cfg: TransformerConfig, circuit: Mapping[str, Any]):
        if cfg.mixing is not None or cfg.n_key_value_heads is not None:
            raise InputError("a circuit's model has learned attention, with keys for every head")
        if cfg.positional_embedding_type == "shortformer":
            raise InputError("a circuit's model has no shortformer positions")
        edges = circuit.get("edges")
        if not isinstance(edges, list) or not all(isinstance(edge, str) for edge in edges):
            raise InputError("a circuit's edges are a list of names such as L0H1->L1H0<k>")
        super().__init__(cfg, init_weights=False)
        self.circuit = dict(circuit)
        self.edges: Sequence[str] = list(edges)
        self._sources = _sources_of(self.edges, cfg)
        empty = torch.empty(_n_writers(cfg, cfg.n_layers), cfg.n_ctx, cfg.d_model, dtype=cfg.dtype)
        self.register_buffer("reference", empty)
        for number, block in enumerate(self.blocks):
            for name in _RESIDUAL:
                if hasattr(block, name) and (number, name) != (0, "hook_resid_pre"):
                    delattr(block, name)
        self.setup()

    def forward(  # type: ignore[override]
        self, input: Any, return_type: str | None = "logits", *, loss_per_token: bool = False
    ) -> Float[Tensor, "..."] | Output | None:
        """Run the circuit; see `Transformer.forward`."""
        if return_type not in RETURN_TYPES:
            raise InputError(f"return_type must be logits, loss, both or None, not {return_type!r}")
        tokens = self._checked_tokens(input)
        embedded: Tensor = fire(self.hook_embed, self.embed(tokens))
        if self.cfg.positional_embedding_type == "standard":
            embedded = embedded + self._positions(embedded)
        reference = self.reference[:, : tokens.shape[1]]
        embedded = fire(self.blocks[0].hook_resid_pre, embedded)
        changes, read = [embedded - reference[0]], reference[0]
        for layer, block in enumerate(self.blocks):
            attn = block.attn
            inputs = [
                [self._read(read, changes, ("head", layer, head, channel)) for channel in CHANNELS]
                for head in range(self.cfg.n_heads)
            ]
            normalized = block.ln1(torch.stack([torch.stack(own, 2) for own in inputs], 2))
            q, k, v = (
                _projected(normalized[..., c, :], W, b)
                for c, (W, b) in enumerate(
                    ((attn.W_Q, attn.b_Q), (attn.W_K, attn.b_K), (attn.W_V, attn.b_V))
                )
            )
            z = attn.mix(fire(attn.hook_q, q), fire(attn.hook_k, k), fire(attn.hook_v, v))
            by_head = torch.einsum("bphd,hdm->bphm", z.to(attn.W_O.dtype), attn.W_O)
            if attn.hook_result is not None:
                by_head = fire(attn.hook_result, by_head)
            own = reference[len(changes) : len(changes) + self.cfg.n_heads]
            changes += [by_head[:, :, head] - own[head] for head in range(self.cfg.n_heads)]
            read = read + own.sum(0)
            if attn.b_O is not None:
                read = read + attn.b_O
            if not self.cfg.attn_only:
                x = self._read(read, changes, ("mlp", layer, None, None))
                out = fire(block.hook_mlp_out, block.mlp(block.ln2(x)))
                own = reference[len(changes)]
                changes.append(out - own)
                read = read + own
        x = self._read(read, changes, ("logits", None, None, None))
        return self._output(x, tokens, return_type, per_token=loss_per_token)

    def _read(self, read: Tensor, changes: Sequence[Tensor], reader: _Reader) -> Tensor:
        """A reader's input [batch pos d_model]."""
        total = read.expand_as(changes[0])
        for source in self._sources.get(reader, ()):
            total = total + changes[source]
        return total


def described(circuit: Mapping[str, Any]) -> str:
    """Where a circuit's model comes from, in a phrase."""
    return (
        f"a circuit of {len(circuit['edges']):,} of {circuit.get('edges_of_model')} edges of "
        f"{circuit.get('model')}, the others at their mean over {circuit.get('rows')} prompts "
        f"({circuit.get('prompts')}); it has no residual stream, so analyses that read one need "
        "the whole model"
    )


def refusal(model: Any) -> str | None:
    """Why an analysis of the residual stream cannot run on a model; None if it is no circuit."""
    if not isinstance(model, CircuitTransformer):
        return None
    return (
        "this model is a circuit (--keep-circuit) and has no residual stream to read: run this "
        f"analysis on the whole model, {model.circuit.get('model')}"
    )


_Reader = tuple[str, int | None, int | None, str | None]


def _projected(x: Tensor, W: Tensor, b: Tensor | None) -> Float[Tensor, "batch pos head d_head"]:
    out = torch.einsum("bphm,hmd->bphd", x, W)
    return out if b is None else out + b


def _n_writers(cfg: TransformerConfig, layer: int) -> int:
    """The number of outputs that are written before a layer."""
    return 1 + layer * (cfg.n_heads + (not cfg.attn_only))


def _sources_of(edges: Any, cfg: TransformerConfig) -> dict[_Reader, list[int]]:
    """Indices of the outputs that each reader reads; raises InputError for other edges."""
    sources: dict[_Reader, list[int]] = {}
    for edge in edges:
        ends = edge.split("->") if isinstance(edge, str) else []
        matches = [kind.fullmatch(end) for kind, end in zip((_WRITER, _READER), ends, strict=False)]
        if len(ends) != 2 or None in matches:
            raise InputError(f"{str(edge)[:60]!r} is not an edge such as L0H1->L1H0<k>")
        writer, reader = (match.groupdict() for match in matches if match is not None)
        number, behind = _index(writer, cfg)
        at, before = _reader(reader, cfg)
        if number is None or at is None or behind > before:
            raise InputError(f"the model has no edge {edge}")
        sources.setdefault(at, []).append(number)
    return {reader: sorted(set(numbers)) for reader, numbers in sources.items()}


def _index(writer: Mapping[str, str | None], cfg: TransformerConfig) -> tuple[int | None, float]:
    """Index of a writer, and the step behind which it can be read; None if there is none."""
    if writer["head"] is not None:
        layer, head = int(writer["layer"] or 0), int(writer["head"])
        inside = layer < cfg.n_layers and head < cfg.n_heads
        return (_n_writers(cfg, layer) + head if inside else None), layer + 0.5
    if writer["mlp"] is not None:
        layer = int(writer["mlp"])
        inside = layer < cfg.n_layers and not cfg.attn_only
        return (_n_writers(cfg, layer) + cfg.n_heads if inside else None), layer + 1.0
    return 0, 0.0


def _reader(reader: Mapping[str, str | None], cfg: TransformerConfig) -> tuple[Any, float]:
    """A reader, and the step at which it reads; None if the model has none of that name."""
    if reader["head"] is not None:
        layer, head = int(reader["layer"] or 0), int(reader["head"])
        inside = layer < cfg.n_layers and head < cfg.n_heads
        return (("head", layer, head, reader["channel"]) if inside else None), float(layer)
    if reader["mlp"] is not None:
        layer = int(reader["mlp"])
        inside = layer < cfg.n_layers and not cfg.attn_only
        return (("mlp", layer, None, None) if inside else None), layer + 0.5
    return ("logits", None, None, None), float(cfg.n_layers)
