"""The metric with edges ablated: with a few edges ablated, or with all except those of a circuit.

A circuit alone is a pass in which only its edges are kept. A reader without a kept edge reads the
ablation values of all its sources, which are the same for every circuit. Only nodes with an
outgoing kept edge are therefore computed: a circuit of a tenth of the nodes costs about a tenth of
a pass. A circuit that differs little from a cached one starts where the two differ. Up to rounding,
the result is that of `PatchedModel.logits` with all other edges ablated.

What all passes have in common is computed once: where the ablation value is that of a corrupted
prompt, the positions before the first that differs, of which later ones need the keys and values
alone; and no logits are made that the metric does not read.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from interp_toolkit.circuits.edges.passes.ablation_value import AblationValue, Kind, kinds_for
from interp_toolkit.circuits.edges.passes.attribution import STEPS, attribute
from interp_toolkit.circuits.edges.passes.blocks import ReaderInput
from interp_toolkit.circuits.edges.passes.patched_pass import (
    Pass,
    PatchedModel,
    Reference,
    at_positions,
)
from interp_toolkit.circuits.edges.wiring import Edge, Node, Stage
from interp_toolkit.circuits.metrics.metrics import Metric
from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.errors import InputError
from interp_toolkit.formatting import ProgressEstimate
from interp_toolkit.models.running.memory import format_size, rows_that_fit
from interp_toolkit.models.running.stages import Store, not_stored

Stream = Float[Tensor, "row pos d_model"]
DENSE = 0.1  # of the terms: from here on sums are a product of matrices
#: edges of a circuit among all, or among those into one reader
Inside = Bool[np.ndarray, " edge"]
#: the same of a stage
StageEdges = Bool[np.ndarray, "channel node source"]


class _Changes:
    """The changes of nodes' outputs, and sums of them.

    Args:
        rows: memory, a row for each node.
    """

    def __init__(self, rows: Float[Tensor, "node row pos d_model"]):
        self._rows, self._row_of = rows, dict[int, int]()
        self._sum: Stream | None = None
        self._summed: frozenset[int] = frozenset()

    def __contains__(self, writer: int) -> bool:
        return writer in self._row_of

    def __getitem__(self, writer: int) -> Stream:
        return self._rows[self._row_of[writer]]

    def keep(self, writer: int, write: Stream, reference: Tensor) -> None:
        """The change from the ablation value, of a writer that has none yet."""
        torch.sub(
            write, reference, out=self._rows[self._row_of.setdefault(writer, len(self._row_of))]
        )

    def of(self, writers: Sequence[int], rows: Float[Tensor, "node row pos d_model"]) -> _Changes:
        """A copy for some writers, in other memory."""
        some = _Changes(rows)
        some._row_of = {writer: i for i, writer in enumerate(writers)}
        at = torch.tensor([self._row_of[writer] for writer in writers], dtype=torch.long)
        torch.index_select(self._rows, 0, at.to(rows.device), out=rows[: len(at)])
        return some

    def sums(
        self, read: Float[Tensor, "*row pos d_model"], edges: Bool[np.ndarray, "reader source"]
    ) -> Float[Tensor, "reader row pos d_model"]:
        """What readers read, and the sum over each one's sources."""
        readers, sources = edges.nonzero()
        if len(edges) == 1:
            return (read + self._going_on(sources.tolist()))[None]
        at, n = np.array([self._row_of[i] for i in sources.tolist()], dtype=int), len(self._row_of)
        rows = self._rows.flatten(1)[:n]
        if len(at) > DENSE * len(edges) * n:
            of_each = np.zeros((len(edges), n))
            of_each[readers, at] = 1
            total = torch.from_numpy(of_each).to(rows) @ rows
        else:
            begins = torch.from_numpy(np.searchsorted(readers, np.arange(len(edges))))
            at_rows, begins = torch.from_numpy(at).to(rows.device), begins.to(rows.device)
            total = functional.embedding_bag(at_rows, rows, begins, mode="sum")
        return total.reshape(len(edges), *self._rows.shape[1:]).add_(read)

    def _going_on(self, sources: list[int]) -> Stream:
        """The sum over these, to be read before the next; the last is added to if it is a part."""
        if not sources:
            return self._rows.new_zeros(self._rows.shape[1:])
        if len(self._summed) < 2 or not self._summed.issubset(sources):
            first, *more = sources
            total = self[first].clone()
        else:
            assert self._sum is not None
            total, more = self._sum, [i for i in sources if i not in self._summed]
        for i in more:
            total += self[i]
        self._sum, self._summed = total, frozenset(sources)
        return total


class SubcircuitPass:
    """Passes of circuits alone on the same prompts.

    Args:
        engine: the model.
        embedded: the output of the input node on these prompts.
        reference: the ablation values.
        positions: the positions whose logits are computed; None: all.
        of_a_pass: whether the reference is a pass of the model. A node that no kept edges join to
            the input then writes its ablation value, and is not computed.
    """

    def __init__(
        self,
        engine: PatchedModel,
        embedded: Stream,
        reference: Reference,
        positions: Int[Tensor, "row position"] | None = None,
        *,
        of_a_pass: bool = False,
    ):
        self._engine, self._blocks, self._wiring = engine, engine.blocks, engine.wiring
        self._embedded, self._reference, self._positions = embedded, reference, positions
        self._of_a_pass = of_a_pass
        self._reads = self._reference_reads()
        self._projected: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        self._normed = np.isin(np.arange(len(self._wiring.writers)), list(engine.normed))
        self._memory = embedded.new_empty(0, *embedded.shape)
        self._base = self._wiring.mask(()), _Changes(self._memory)

    @torch.no_grad()
    def remember(self, edges: Collection[Edge]) -> None:
        """Cache the outputs of a circuit's nodes, for circuits that differ from it late."""
        inside = self._with_effect(edges)
        changes = _Changes(self._rows(inside))
        self._memory = self._embedded.new_empty(
            0, *self._embedded.shape
        )  # other circuits have their own
        self._run(inside, changes, 0)
        self._base = inside, changes

    @torch.no_grad()
    def logits(self, edges: Collection[Edge]) -> Float[Tensor, "row position d_vocab"]:
        """The logits with every edge but these ablated."""
        wiring, inside, (base, cached) = self._wiring, self._with_effect(edges), self._base
        different = np.flatnonzero(inside != base)
        stages = [wiring.stage_of(wiring.edges[different[0]])] if len(different) else []
        needed = np.flatnonzero(wiring.read(inside)).tolist()
        nodes = [wiring.writers[i] for i in needed if i not in cached]
        stages += [0 if node.kind == "input" else wiring.stage_at(node) for node in nodes]
        first = min(stages, default=len(self._reads) - 1)
        written = wiring.written_before(first)
        before = [i for i in needed if i < written and i in cached]
        return self._run(inside, cached.of(before, self._rows(inside)), first)

    def _rows(self, inside: Inside) -> Float[Tensor, "node row pos d_model"]:
        """Memory for the changes of a circuit, used again for the next."""
        n = int(self._wiring.read(inside).sum())
        if len(self._memory) < n:
            self._memory = self._embedded.new_empty(n, *self._embedded.shape)
        return self._memory

    def _with_effect(self, edges: Collection[Edge]) -> Inside:
        """The edges without those that cannot change the logits."""
        inside = self._wiring.mask(edges)
        wiring = self._wiring
        return wiring.on_paths(inside) if self._of_a_pass else wiring.to_logits(inside)

    def _run(
        self, inside: Inside, changes: _Changes, first: int
    ) -> Float[Tensor, "row position d_vocab"]:
        """The logits, computed from a stage on; adds the nodes' changed outputs to `changes`."""
        needed = self._wiring.read(inside)
        if needed[0] and 0 not in changes:
            changes.keep(0, self._embedded, self._reference[0])
        for stage, read, begin, edges in list(
            zip(
                self._wiring.stages,
                self._reads,
                self._wiring.first_writers,
                self._wiring.by_stage(inside),
                strict=True,
            )
        )[first:]:
            if stage.kind == "logits":
                x = self._inputs(read, edges[0], changes)[0]
                return self._blocks.unembed(at_positions(x, self._positions))
            nodes = np.flatnonzero(needed[begin : begin + edges.shape[1]]).tolist()
            if not nodes:
                continue
            if stage.kind == "attention":
                writes = self._attended(stage, read, nodes, edges, changes)
            else:
                x = self._inputs(read, edges[0], changes)[0]
                writes = self._blocks.node(stage, x, None)[None]
            for node, write in zip(nodes, writes, strict=True):
                changes.keep(begin + node, write, self._reference[begin + node])
        raise AssertionError("the last stage is the logits")

    def _attended(
        self, stage: Stage, read: Tensor, heads: list[int], edges: StageEdges, changes: _Changes
    ) -> Float[Tensor, "head row pos d_model"]:
        """The outputs of these heads of a layer."""
        plain = self._reference_projections(stage.layer, read)
        parts = [part[:, :, heads] for part in plain]
        numbers: dict[bytes, int] = {}  # of different inputs: readers often have equal sources
        sources, readers, columns = list[np.ndarray](), list[ReaderInput](), list[tuple[int, int]]()
        for channel in range(len(parts)):
            for column, head in enumerate(heads):
                own = edges[channel, head]
                if not own.any():
                    continue
                number = numbers.setdefault(own.tobytes(), len(sources))
                if number == len(sources):
                    sources.append(own)
                readers.append((channel, head, number))
                columns.append((channel, column))
        if sources:
            x = self._inputs(read, np.stack(sources), changes)
            parts = [part.expand(len(x[0]), -1, -1, -1).contiguous() for part in parts]
            of_heads = self._blocks.project(stage.layer, x, readers)
            for (channel, column), part in zip(columns, of_heads, strict=True):
                parts[channel][:, :, column] = part
        q, k, v = (part.expand(len(self._embedded), -1, -1, -1) for part in parts)
        return self._blocks.attend(stage.layer, q, k, v, heads)

    def _inputs(
        self, read: Tensor, edges: Bool[np.ndarray, "reader source"], changes: _Changes
    ) -> Float[Tensor, "reader row pos d_model"]:
        """Readers' inputs: the reference values, and the changes of their included sources."""
        normed = edges & self._normed[: edges.shape[1]]
        x = changes.sums(read, edges & ~normed)
        for number in np.flatnonzero(normed.any(1)).tolist():
            sources: list[int] = np.flatnonzero(normed[number]).tolist()
            other = {i: self._reference[i] + changes[i] for i in sources}
            every = torch.ones(1, len(sources), dtype=torch.bool)
            x[number] += self._engine.changes(self._reference, other, sources, every)[0]
        return x

    def _reference_projections(self, layer: int, read: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if layer not in self._projected:
            with_rows = read if read.ndim == 3 else read[None]
            self._projected[layer] = self._blocks.projected(layer, with_rows)
        return self._projected[layer]

    def _reference_reads(self) -> list[Float[Tensor, "*row pos d_model"]]:
        """The input of each stage with all its edges ablated."""
        total, reads, written = self._reference[0], list[Tensor](), [self._reference[0]]
        for stage, following in pairwise([*self._wiring.stages, None]):
            assert stage is not None
            beside = self._wiring.beside_attention(stage)
            reads.append(reads[-1] if beside else total)
            if following is not None:
                begin = len(written)
                end = begin + len(self._wiring.nodes(stage))
                written.extend(self._reference[begin:end])
                total = total + self._engine.added(stage, torch.stack(written[begin:end]))
        return reads


Rows = Int[Tensor, " row"]


@dataclass(frozen=True, eq=False)
class _Part:
    """Some of the prompts, their engine, and the passes to start from, made where needed."""

    rows: Rows
    tokens: Int[Tensor, "row n_pos"]
    engine: PatchedModel
    positions: Int[Tensor, "row position"] | None
    reference: Reference
    of_a_pass: bool

    @cached_property
    def whole(self) -> Pass:
        """The pass with no edge ablated."""
        return self.engine.whole(self.tokens, self.positions)

    @cached_property
    def alone(self) -> SubcircuitPass:
        """Passes of circuits alone."""
        start = self.engine.embedded(self.tokens)
        return SubcircuitPass(
            self.engine, start, self.reference, self.positions, of_a_pass=self.of_a_pass
        )


class EdgeAblation:
    """The metric of some prompts when edges are ablated.

    Args:
        engine: the model.
        prompts: all prompts.
        rows: indices of the prompts that are measured.
        others: indices of the prompts that mean ablation values are taken over.
        metric: the metric of a prompt.
        memory: bytes to hold at once, in addition to the weights.
        kind: kind of the ablation value; None: the first of `kinds_for`.
        store: keeps what was measured; see `models.running.stages`.

    Attributes:
        rows: indices of the prompts.
        engine: the model.
        ablation_value: the ablation values.
        memory: bytes to hold at once, in addition to the weights.
    """

    def __init__(
        self,
        engine: PatchedModel,
        prompts: Prompts,
        rows: Rows,
        others: Int[Tensor, " other"],
        metric: Metric,
        memory: int,
        kind: Kind | None = None,
        store: Store = not_stored,
    ):
        self.rows, self.engine, self._store = rows, engine, store
        self._prompts, self._others, self._metric = prompts, others, metric
        self.memory = memory
        engine.check_on(prompts.tokens[rows[:1]])
        kind = kinds_for(prompts)[0] if kind is None else kind
        self._begin = self._common(kind)
        self._narrow, self._read = self._narrowed()
        self._at_once, self._graded_at_once = prompts_at_once(
            self._narrow, prompts.n_pos, memory, self._begin
        )
        self.ablation_value = AblationValue(kind, engine, prompts, others, self._at_once)
        self._held: _Part | None = None
        self._later: PatchedModel | None = None  # the engine behind all prompts' common positions
        self._intact: Float[np.ndarray, " row"] | None = None

    def _common(self, kind: Kind) -> int:
        """Positions before which no pass differs from another: they are computed once."""
        read, corrupted = self._metric.positions(self.rows), self._prompts.corrupted
        if kind != "corrupted" or corrupted is None or read is None:
            return 0
        equal = (self._prompts.tokens[self.rows] == corrupted[self.rows]).all(0)
        begin = min(int(equal.int().cumprod(0).sum()), int(read.min()))
        return begin if self.engine.blocks.sequential(self._prompts.n_pos) else 0

    def _narrowed(self) -> tuple[PatchedModel, Metric]:
        """The engine and the metric with no more logits than the metric reads."""
        if (narrowed := self._metric.narrowed()) is not None:
            tokens, metric = narrowed
            if (engine := self.engine.among(tokens)) is not None:
                return engine, metric
        return self.engine, self._metric

    @property
    def edges(self) -> Sequence[Edge]:
        """Every edge of the model."""
        return self.engine.wiring.edges

    def with_ablation_value(self, kind: Kind) -> EdgeAblation:
        """The same prompts with another ablation value."""
        other = EdgeAblation(
            self.engine,
            self._prompts,
            self.rows,
            self._others,
            self._metric,
            self.memory,
            kind,
            self._store,
        )
        other._intact = self._intact
        return other

    def release(self) -> None:
        """Free the passes that were cached for the next call."""
        self._held = self._later = None

    def intact(self) -> Float[np.ndarray, " row"]:
        """The metric of each row in the whole model."""
        if self._intact is None:
            self._intact = self._each(1, lambda part, _: part.whole.logits, "intact", lambda: [()])[
                :, 0
            ]
        return self._intact.copy()

    def values(
        self,
        edge_sets: Sequence[Collection[Edge]],
        progress: Callable[[str], None] = lambda step: None,
    ) -> Float[np.ndarray, "row set"]:
        """The metric of each row under each set of ablated edges."""

        def of(part: _Part, i: int) -> Tensor:
            return part.engine.logits(part.whole, part.reference, edge_sets[i], part.positions)

        return self._each(
            len(edge_sets),
            of,
            "ablating edges",
            lambda: [_names(edges) for edges in edge_sets],
            progress,
        )

    def alone(
        self,
        circuits: Sequence[Collection[Edge]],
        progress: Callable[[str], None] = lambda step: None,
        near: Collection[Edge] = (),
    ) -> Float[np.ndarray, "row circuit"]:
        """The metric of each row with all edges but these ablated.

        If the circuits differ little from one circuit, `near` is that one, and passes begin late.
        """

        def of(part: _Part, i: int) -> Tensor:
            if i == 0:
                part.alone.remember(near)
            return part.alone.logits(circuits[i])

        return self._each(
            len(circuits),
            of,
            "circuits alone",
            lambda: [_names(edges) for edges in circuits],
            progress,
        )

    def without(
        self,
        nodes: Sequence[Node],
        progress: Callable[[str], None] = lambda step: None,
    ) -> Float[np.ndarray, "row node"]:
        """The metric of each row with the output of one node ablated."""

        def of(part: _Part, i: int) -> Tensor:
            return part.engine.without(part.whole, part.reference, nodes[i], part.positions)

        return self._each(
            len(nodes), of, "ablating nodes", lambda: [node.name for node in nodes], progress
        )

    def attributions(
        self, steps: int = STEPS, progress: Callable[[str], None] = lambda step: None
    ) -> Float[np.ndarray, "row edge"]:
        """A first-order estimate of the loss of the metric when each edge is ablated."""
        name = self._name("attribution", [str(steps)])
        return self._store(name, lambda: self._all_attributed(steps, progress))

    def _all_attributed(
        self, steps: int, progress: Callable[[str], None]
    ) -> Float[np.ndarray, "row edge"]:
        self._held = None  # gradients need the room
        parts = []
        count = ProgressEstimate(progress, len(self.rows), "attribution to edges", "rows")
        for start in range(0, len(self.rows), self._graded_at_once):
            part = self._part(slice(start, start + self._graded_at_once))
            parts.append(self._attributed(part, steps))
            count.step(len(part.rows))
        return np.concatenate(parts)

    def _attributed(self, part: _Part, steps: int) -> Float[np.ndarray, "row edge"]:
        """The estimates for some prompts."""
        whole, engine = part.whole, part.engine

        def metric(logits: Tensor) -> Tensor:
            return self._read(logits, part.rows, whole.logits)

        estimate = attribute(engine, whole, part.reference, metric, part.positions, steps)
        attributed: np.ndarray = -estimate.float().cpu().numpy()
        return attributed

    def _name(self, what: str, ablated: Sequence[Any]) -> str:
        """The name of a stage: what is measured, where, and on which rows."""
        where = [what, self.ablation_value.kind, self._metric.name, self._metric.definition]
        return json.dumps([*where, self.rows.tolist(), self._others.tolist(), ablated])

    def _each(
        self,
        n: int,
        logits: Callable[[_Part, int], Tensor],
        what: str,
        names: Callable[[], Sequence[Any]],
        progress: Callable[[str], None] = lambda step: None,
    ) -> Float[np.ndarray, "row set"]:
        """The metric of each row and set; `names`: the sets as JSON data, where they are stored."""
        if self._store is not_stored:
            return self._passes(n, logits, what, progress)
        name = self._name(what, names())
        return self._store(name, lambda: self._passes(n, logits, what, progress))

    def _passes(
        self,
        n: int,
        logits: Callable[[_Part, int], Tensor],
        what: str,
        progress: Callable[[str], None],
    ) -> Float[np.ndarray, "row set"]:
        values = np.empty((len(self.rows), n))
        at_once = len(self.rows) if self._held is not None else self._at_once
        starts = range(0, len(self.rows), at_once)
        count = ProgressEstimate(progress if n > 1 else lambda step: None, n * len(starts), what)
        for part in (slice(start, start + at_once) for start in starts):
            for i, value in enumerate(self._of_part(part, n, logits)):
                values[part, i] = value
                count.step()
        return values

    def _of_part(
        self, batch: slice, n: int, logits: Callable[[_Part, int], Tensor]
    ) -> Iterator[Float[np.ndarray, " row"]]:
        """The metric of some prompts under each ablation; their passes are then freed."""
        part = self._held or self._part(batch)
        if len(part.rows) == len(self.rows):
            self._held = part
        for i in range(n):
            whole = part.whole.logits if self._read.compares else None
            yield self._read(logits(part, i), part.rows, whole).double().cpu().numpy()

    def _part(self, batch: slice) -> _Part:
        """A part of the prompts."""
        rows, engine = self.rows[batch], self._behind(batch)
        positions = self._metric.positions(rows)
        if positions is not None:
            positions = positions - self._begin
        tokens = self._prompts.tokens[rows]
        values = self.ablation_value
        return _Part(
            rows, tokens, engine, positions, values(rows, engine), values.kind == "corrupted"
        )

    def _behind(self, batch: slice) -> PatchedModel:
        """The engine for some prompts; that for all is cached if they fit at once."""
        if not self._begin:
            return self._narrow
        common = self._prompts.tokens[self.rows, : self._begin]
        if len(self.rows) > self._at_once:
            return self._narrow.behind(common[batch])
        if self._later is None:
            self._later = self._narrow.behind(common)
        return self._later.at(batch)


def _names(edges: Collection[Edge]) -> list[str]:
    return sorted(edge.name for edge in edges)


def prompts_at_once(
    engine: PatchedModel, n_pos: int, memory: int, begin: int = 0
) -> tuple[int, int]:
    """The number of prompts of this length that fit in one pass, and in one with gradients.

    Passes begin at position `begin`.

    Raises InputError, with the length that fits, if not even one does.
    """
    in_pass, graded = _pass_bytes(engine, n_pos, begin), _gradient_bytes(engine, n_pos, begin)
    most = max(in_pass, graded)
    if most > memory:
        longest = bisect_right(
            range(1, n_pos),
            memory,
            key=lambda n: max(_pass_bytes(engine, n), _gradient_bytes(engine, n)),
        )
        shorter = f" or shorten the prompts to at most {longest} tokens" if longest else ""
        raise InputError(
            f"one prompt of {n_pos} tokens needs about {format_size(most)}, more than the "
            f"{format_size(memory)} of memory allowed; raise the limit{shorter}"
        )
    later = n_pos - begin
    return rows_that_fit(memory, in_pass, later), rows_that_fit(memory, graded, later)


def _earlier(engine: PatchedModel, begin: int) -> int:
    """Numbers of the keys and values before the position where passes begin."""
    view = engine.blocks.view
    return 2 * begin * view.n_layers * view.n_heads * view.d_head


def _pass_bytes(engine: PatchedModel, n_pos: int, begin: int = 0) -> int:
    """Upper bound of a prompt's bytes while edges are ablated: writes, references and reads."""
    wiring = engine.wiring
    streams = 3 * len(wiring.writers) + 4 * len(wiring.stages) + 8 * wiring.n_layers
    streams += 3 * len(wiring.readers(wiring.stages[0]))
    each = streams * wiring.d_model + 4 * n_pos * wiring.n_heads + engine.widest
    return 4 * ((n_pos - begin) * each + _earlier(engine, begin))


def _gradient_bytes(engine: PatchedModel, n_pos: int, begin: int = 0) -> int:
    """Upper bound of a prompt's bytes in attribution: readers' gradients twice, and the graph."""
    wiring = engine.wiring
    readers = sum(len(wiring.readers(stage)) for stage in wiring.stages)
    streams = 4 * len(wiring.writers) + 2 * readers + 24 * len(wiring.stages)
    inside = 4 * n_pos * wiring.n_heads * wiring.n_layers + engine.hidden
    each = streams * wiring.d_model + inside
    return 4 * ((n_pos - begin) * each + _earlier(engine, begin))
