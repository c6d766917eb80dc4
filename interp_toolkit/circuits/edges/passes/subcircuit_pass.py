"""A circuit alone: a pass in which only some edges are kept and every other edge is cut.

What a reader without a kept edge reads is known beforehand (the references of all its sources, the
same for every circuit), so only nodes that a kept edge leaves are computed: a circuit of a tenth of
the nodes costs about a tenth of a pass. Circuits that differ little from one that is remembered
begin where they differ. The result is that of `PatchedModel.logits` with all other
edges cut, but for rounding.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.circuits.edges.passes.patched_pass import PatchedModel, Reference, at_positions
from interp_toolkit.circuits.edges.wiring import CHANNELS, Edge, Node, Stage

Stream = Float[Tensor, "row pos d_model"]
#: the sources of the kept edges into each reader
Inputs = dict[tuple[Node, str | None], list[int]]


class SubcircuitPass:
    """Passes of circuits alone on the same rows.

    Args:
        engine: the model.
        embedded: what the input node writes for these rows.
        reference: what is read over every cut edge.
        places: where logits are wanted, [row place] positions; None: everywhere.
    """

    def __init__(
        self,
        engine: PatchedModel,
        embedded: Stream,
        reference: Reference,
        positions: Int[Tensor, "row place"] | None = None,
    ):
        self._engine, self._blocks, self._wiring = engine, engine.blocks, engine.wiring
        self._embedded, self._reference, self._positions = embedded, reference, positions
        self._reads = self._cut_reads()
        self._projected: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        self._base: tuple[frozenset[Edge], dict[int, Stream]] = frozenset(), {}

    @torch.no_grad()
    def remember(self, edges: Collection[Edge]) -> None:
        """Keep what a circuit's nodes write, for others that begin where they differ from it."""
        changes: dict[int, Stream] = {}
        self._run(edges, changes, 0)
        self._base = frozenset(edges), changes

    @torch.no_grad()
    def logits(self, edges: Collection[Edge]) -> Float[Tensor, "row place d_vocab"]:
        """The logits with every edge but these cut."""
        base, cached = self._base
        different = base.symmetric_difference(edges)
        stages = [self._wiring.stage_of(edge) for edge in different]
        index = self._wiring.index
        missing = {edge.source for edge in different if index[edge.source] not in cached}
        stages += [0 if node.kind == "input" else self._wiring.stage_at(node) for node in missing]
        first = min(stages, default=len(self._reads) - 1)
        written = self._wiring.written_before(first)
        return self._run(edges, {i: c for i, c in cached.items() if i < written}, first)

    def _run(
        self, edges: Collection[Edge], changes: dict[int, Stream], first: int
    ) -> Float[Tensor, "row place d_vocab"]:
        """The logits, from a stage on; `changes`, what earlier nodes write, is added to."""
        inputs: Inputs = {}
        for edge in edges:
            sources = inputs.setdefault((edge.target, edge.channel), [])
            sources.append(self._wiring.index[edge.source])
        needed = {edge.source for edge in edges}
        if Node("input") in needed and 0 not in changes:
            changes[0] = self._embedded - self._reference[0]
        for stage, read in list(zip(self._wiring.stages, self._reads, strict=True))[first:]:
            if stage.kind == "logits":
                return self._unembedded(read, inputs, changes)
            nodes = dict.fromkeys(node for node, _ in self._wiring.readers(stage))
            writers = [node for node in nodes if node in needed]
            if not writers:
                continue
            for node, write in zip(
                writers, self._writes(stage, read, writers, inputs, changes), strict=True
            ):
                i = self._wiring.index[node]
                changes[i] = write - self._reference[i]
        raise AssertionError("the last stage is the logits")

    def _writes(
        self,
        stage: Stage,
        read: Tensor,
        writers: list[Node],
        inputs: Inputs,
        changes: dict[int, Stream],
    ) -> list[Stream]:
        """The outputs of these nodes of a stage."""
        if stage.kind == "mlp":
            x = self._read(read, inputs.get((writers[0], None)), changes)
            return [self._blocks.mlp(stage.layer, x.expand_as(self._embedded), None)]
        heads = [int(node.head or 0) for node in writers]
        plain = self._cut_projections(stage.layer, read)
        writes = []
        for c, channel in enumerate(CHANNELS):
            own = [inputs.get((node, channel)) for node in writers]
            out = plain[c][:, :, heads]
            here = [i for i, sources in enumerate(own) if sources]
            if here:
                x = torch.stack([self._read(read, own[i], changes) for i in here])
                projected = self._blocks.project(stage.layer, c, x, [heads[i] for i in here])
                out = out.expand(len(self._embedded), -1, -1, -1)
                out = out.index_copy(2, torch.tensor(here, device=out.device), projected)
            writes.append(out.expand(len(self._embedded), -1, -1, -1))
        q, k, v = writes
        return list(self._blocks.attend(stage.layer, q, k, v, heads).unbind(0))

    def _unembedded(self, read: Tensor, inputs: Inputs, changes: dict[int, Stream]) -> Tensor:
        x = self._read(read, inputs.get((Node("logits"), None)), changes)
        x = x.expand_as(self._embedded)
        return self._blocks.unembed(at_positions(x, self._positions))

    def _read(
        self, read: Tensor, sources: list[int] | None, changes: dict[int, Stream]
    ) -> Float[Tensor, "*row pos d_model"]:
        """A reader's input: the reference values, and the changes of its included sources."""
        for source in sorted(sources or ()):  # sets have no order, and sums of floats have one
            read = read + changes[source]
        return read

    def _cut_projections(self, layer: int, read: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if layer not in self._projected:
            with_rows = read if read.ndim == 3 else read[None]
            self._projected[layer] = self._blocks.projected(layer, with_rows)
        return self._projected[layer]

    def _cut_reads(self) -> list[Float[Tensor, "*row pos d_model"]]:
        """The input of each stage with all its edges ablated."""
        total, reads = self._reference[0], list[Tensor]()
        for stage, following in pairwise([*self._wiring.stages, None]):
            assert stage is not None
            beside = self._wiring.beside_attention(stage)
            reads.append(reads[-1] if beside else total)
            if stage.kind == "attention":
                total = total + self._blocks.layers[stage.layer].b_O
            if following is not None:
                begin = stage.n_sources + (self._wiring.n_heads if beside else 0)
                end = begin + (self._wiring.n_heads if stage.kind == "attention" else 1)
                for i in range(begin, end):
                    total = total + self._reference[i]
        return reads
