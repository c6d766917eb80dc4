"""The nodes and edges of a transformer as a circuit.

Writers to the residual stream are `input`, the heads `L{layer}H{head}` and the MLPs `MLP{layer}`
(experts included); its readers are the heads, each by three channels, the MLPs and `logits`. An
edge joins a writer to each later reader: `input->MLP0`, `L0H1->L1H0<k>`, `MLP0->logits`. Query
heads that share keys and values (grouped attention) have a copy each, so every head has three
channels. What mixes positions without attention heads (linear attention, convolution, a state-space
model), in their place or beside them, is one writer and one reader, `Mixer{layer}`; so is attention
whose heads cannot be taken apart. Files for EAP-IG have its names: `a0.h1->a1.h0<k>`, `m0`.
Source: Hanna, Pezzelle & Belinkov 2024, "Have Faith in Faithfulness", arXiv 2403.17806.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

INPUT, LOGITS = "input", "logits"
Channel = Literal["q", "k", "v"]
CHANNELS: tuple[Channel, ...] = ("q", "k", "v")
Kind = Literal["input", "head", "mixer", "mlp", "logits"]


#: the names of nodes, in papers and in EAP-IG, with the layer and the head
_NAMES: Mapping[Kind, tuple[str, str]] = {
    "input": ("input", "input"),
    "head": ("L{}H{}", "a{}.h{}"),
    "mixer": ("Mixer{}", "x{}"),
    "mlp": ("MLP{}", "m{}"),
    "logits": ("logits", "logits"),
}


class Node(NamedTuple):
    """A node; layer and head are None where it has none."""

    kind: Kind
    layer: int | None = None
    head: int | None = None

    @property
    def name(self) -> str:
        """The name as papers write it."""
        return _NAMES[self.kind][0].format(self.layer, self.head)

    @property
    def eap_name(self) -> str:
        """The name in the notation of EAP-IG, which has no mixers (here `x{layer}`)."""
        return _NAMES[self.kind][1].format(self.layer, self.head)


class Edge(NamedTuple):
    """An edge: the output of `source` as read by `target`, for a head through one channel."""

    source: Node
    target: Node
    channel: Channel | None = None

    @property
    def name(self) -> str:
        """The name, such as `L0H1->L1H0<k>`."""
        return f"{self.source.name}->{self.target.name}{self._channel}"

    @property
    def eap_name(self) -> str:
        """The name in the notation of EAP-IG, such as `a0.h1->a1.h0<k>`."""
        return f"{self.source.eap_name}->{self.target.eap_name}{self._channel}"

    @property
    def _channel(self) -> str:
        return "" if self.channel is None else f"<{self.channel}>"


@dataclass(frozen=True)
class Stage:
    """A step of the forward pass: readers that read the same residual stream.

    Attributes:
        kind: "attention", "mixer" (in place of heads, or beside them), "mlp" or "logits".
        layer: layer of the block; the number of blocks for "logits".
        n_sources: number of writers that it reads, the first in the order of the pass.
    """

    kind: Literal["attention", "mixer", "mlp", "logits"]
    layer: int
    n_sources: int


@dataclass(frozen=True)
class Wiring:
    """The nodes of a model and the edges between them.

    Attributes:
        n_layers, n_heads, d_model: sizes.
        mlps: whether each layer has an MLP.
        parallel: whether MLPs read what attention of the same layer reads, not what it writes.
        mixers: layers with a mixer in place of attention heads.
        beside: layers with a mixer beside attention heads.
        whole: mixers that are attention -> why its heads are one node.
    """

    n_layers: int
    n_heads: int
    d_model: int
    mlps: Sequence[bool]
    parallel: bool
    mixers: Collection[int] = ()
    beside: Collection[int] = ()
    whole: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def writers(self) -> tuple[Node, ...]:
        """The writers, in the order of the forward pass."""
        nodes = [Node("input")]
        for layer in range(self.n_layers):
            nodes += self._mixing(layer)
            nodes += [Node("mixer", layer)] if layer in self.beside else []
            nodes += [Node("mlp", layer)] if self.mlps[layer] else []
        return tuple(nodes)

    def _mixing(self, layer: int) -> list[Node]:
        """What moves information between positions in a layer: its heads, or the one mixer."""
        if layer in self.mixers:
            return [Node("mixer", layer)]
        return [Node("head", layer, head) for head in range(self.n_heads)]

    @cached_property
    def index(self) -> dict[Node, int]:
        """The index of each writer among the writers."""
        return {node: i for i, node in enumerate(self.writers)}

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The steps of the forward pass."""
        stages, written = list[Stage](), 1
        for layer in range(self.n_layers):
            kind: Literal["attention", "mixer"]
            kind = "mixer" if layer in self.mixers else "attention"
            stages.append(Stage(kind, layer, written))
            readable = written
            written += len(self._mixing(layer))
            if layer in self.beside:
                stages.append(Stage("mixer", layer, readable))
                written += 1
            if self.mlps[layer]:
                stages.append(Stage("mlp", layer, readable if self.parallel else written))
                written += 1
        return (*stages, Stage("logits", self.n_layers, written))

    def readers(self, stage: Stage) -> list[tuple[Node, Channel | None]]:
        """The readers at a stage: for attention, each channel of each head."""
        channels = CHANNELS if stage.kind == "attention" else (None,)
        return [(node, channel) for channel in channels for node in self.nodes(stage)]

    def nodes(self, stage: Stage) -> list[Node]:
        """The nodes that read at a stage."""
        if stage.kind == "logits":
            return [Node("logits")]
        if stage.kind == "attention":
            return self._mixing(stage.layer)
        return [Node(stage.kind, stage.layer)]

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Every edge, in the order of the forward pass."""
        return tuple(
            Edge(source, target, channel)
            for stage in self.stages
            for target, channel in self.readers(stage)
            for source in self.writers[: stage.n_sources]
        )

    @cached_property
    def ends(self) -> tuple[Int[np.ndarray, " edge"], Int[np.ndarray, " edge"]]:
        """The indices of each edge's source and target: writers, then the logits."""
        number = {**self.index, Node("logits"): len(self.writers)}
        pairs = np.array([(number[e.source], number[e.target]) for e in self.edges])
        return pairs[:, 0], pairs[:, 1]

    @cached_property
    def number(self) -> dict[Edge, int]:
        """The index of each edge among all edges."""
        return {edge: i for i, edge in enumerate(self.edges)}

    def mask(self, some: Collection[Edge]) -> Bool[np.ndarray, " edge"]:
        """Some edges as a mask over all."""
        inside = np.zeros(len(self.edges), dtype=bool)
        inside[[self.number[edge] for edge in some]] = True
        return inside

    def masked(self, inside: Bool[np.ndarray, " edge"]) -> list[Edge]:
        """The edges of a mask, in the order of the forward pass."""
        return [self.edges[i] for i in np.flatnonzero(inside).tolist()]

    def connected(self, some: Collection[Edge]) -> list[Edge]:
        """Drop edges that lie on no path from the input to the logits."""
        return self.masked(self.on_paths(self.mask(some)))

    def on_paths(self, inside: Bool[np.ndarray, " edge"]) -> Bool[np.ndarray, " edge"]:
        """Drop edges on no input-to-logits path, for masks."""
        left = inside.copy()
        begun = np.zeros(len(self.writers) + 1, dtype=bool)
        begun[0] = True
        for begin, edges in zip(self.first_writers, self.by_stage(left), strict=True):
            edges &= begun[: edges.shape[2]]
            begun[begin : begin + edges.shape[1]] = edges.any((0, 2))
        return self.to_logits(left)

    def to_logits(self, inside: Bool[np.ndarray, " edge"]) -> Bool[np.ndarray, " edge"]:
        """Drop edges on no path to the logits, for masks."""
        left = inside.copy()
        ended = np.zeros(len(self.writers) + 1, dtype=bool)
        ended[-1] = True
        stages = list(zip(self.first_writers, self.by_stage(left), strict=True))
        for begin, edges in reversed(stages):
            edges &= ended[begin : begin + edges.shape[1], None]
            ended[: edges.shape[2]] |= edges.any((0, 1))
        return left

    def read(self, inside: Bool[np.ndarray, " edge"]) -> Bool[np.ndarray, " writer"]:
        """The writers that these edges start from."""
        sources = np.zeros(len(self.writers), dtype=bool)
        for edges in self.by_stage(inside):
            sources[: edges.shape[2]] |= edges.any((0, 1))
        return sources

    def by_stage(
        self, inside: Bool[np.ndarray, " edge"]
    ) -> list[Bool[np.ndarray, "channel node source"]]:
        """The parts of a mask that are of each stage, as views of it."""
        parts, begin = [], 0
        for shape in self._shapes:
            parts.append(inside[begin : (begin := begin + math.prod(shape))].reshape(shape))
        return parts

    @cached_property
    def _shapes(self) -> list[tuple[int, int, int]]:
        """Numbers of channels, nodes and sources of each stage."""
        channels = [len(CHANNELS) if stage.kind == "attention" else 1 for stage in self.stages]
        return [
            (n, len(self.nodes(stage)), stage.n_sources)
            for n, stage in zip(channels, self.stages, strict=True)
        ]

    @cached_property
    def first_writers(self) -> list[int]:
        """The index of the first node of each stage among the writers; for the logits, behind."""
        return [self.index.get(self.nodes(stage)[0], len(self.writers)) for stage in self.stages]

    def beside_attention(self, stage: Stage) -> bool:
        """Whether a stage reads what attention of its layer reads, not what it writes."""
        if stage.kind == "mixer":
            return stage.layer in self.beside
        return stage.kind == "mlp" and self.parallel

    def written_before(self, stage: int) -> int:
        """The number of writers before a stage; one beside attention reads fewer."""
        begun = self.stages[stage]
        if not self.beside_attention(begun):
            return begun.n_sources
        return self.index[self.nodes(begun)[0]]

    def stage_of(self, edge: Edge) -> int:
        """The stage at which an edge is read."""
        return self._stage_of[edge.target]

    def stage_at(self, node: Node) -> int:
        """The stage at which a node reads."""
        return self._stage_of[node]

    @cached_property
    def _stage_of(self) -> dict[Node, int]:
        return {
            target: i for i, stage in enumerate(self.stages) for target, _ in self.readers(stage)
        }
