"""Cutting edges on some rows of prompts, a few rows at a time, and what each row is worth then."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.circuits.behaviour.objective import AskedObjective, Objective
from interp_toolkit.circuits.behaviour.prompts import Prompts
from interp_toolkit.circuits.edges.passes.attribution import STEPS, attribute
from interp_toolkit.circuits.edges.passes.patched_pass import Pass, PatchedModel, Reference
from interp_toolkit.circuits.edges.passes.stand_in import Kind, StandIn, kinds_for
from interp_toolkit.circuits.edges.passes.subcircuit_pass import SubcircuitPass
from interp_toolkit.circuits.edges.wiring import Edge, Node
from interp_toolkit.formatting import Countdown
from interp_toolkit.models.running.memory import rows_that_fit

Rows = Int[Tensor, " row"]


@dataclass(frozen=True, eq=False)
class _Part:
    """Some of the rows: which they are, and the passes to start from."""

    rows: Rows
    whole: Pass
    reference: Reference
    alone: SubcircuitPass


class CutObjective:
    """The objective on some rows when edges are cut.

    Args:
        engine: the model.
        prompts: all rows.
        rows: which of them are judged.
        others: which of them a mean is taken over, where one stands in.
        objective: what each row is worth.
        memory: bytes to hold at once beside the weights.
        kind: what is read over a cut edge; None: the first of `kinds_for`.

    Attributes:
        rows: which rows of the prompts.
        engine: the model.
        stand_in: what is read over a cut edge.
    """

    def __init__(
        self,
        engine: PatchedModel,
        prompts: Prompts,
        rows: Rows,
        others: Int[Tensor, " other"],
        objective: Objective,
        memory: int,
        kind: Kind | None = None,
    ):
        self.rows, self.engine = rows, engine
        self._prompts, self._others, self._objective = prompts, others, objective
        self._memory = memory
        self._at_once = rows_that_fit(memory, _pass_bytes(engine, prompts.n_pos), prompts.n_pos)
        of_gradients = _gradient_bytes(engine, prompts.n_pos)
        self._graded_at_once = rows_that_fit(memory, of_gradients, prompts.n_pos)
        kind = kinds_for(prompts)[0] if kind is None else kind
        self.stand_in = StandIn(kind, engine, prompts, others, self._at_once)
        self._held: _Part | None = None

    @property
    def edges(self) -> Sequence[Edge]:
        """Every edge of the model."""
        return self.engine.wiring.edges

    def with_stand_in(self, kind: Kind) -> CutObjective:
        """The same rows, with something else read over cut edges."""
        return CutObjective(
            self.engine,
            self._prompts,
            self.rows,
            self._others,
            self._objective,
            self._memory,
            kind,
        )

    def release(self) -> None:
        """Let go of the passes that were kept for the next question."""
        self._held = None

    def intact(self) -> Float[np.ndarray, " row"]:
        """The metric of each row in the whole model."""
        return self._each(1, lambda part, _: part.whole.logits)[:, 0]

    def values(
        self,
        cuts: Sequence[Collection[Edge]],
        progress: Callable[[str], None] = lambda step: None,
    ) -> Float[np.ndarray, "row cut"]:
        """The metric of each row under each set of ablated edges."""

        def of(part: _Part, i: int) -> Tensor:
            positions = self._read_positions(part.rows)
            return self.engine.logits(part.whole, part.reference, cuts[i], positions)

        return self._each(len(cuts), of, progress, "cutting edges")

    def alone(
        self,
        circuits: Sequence[Collection[Edge]],
        progress: Callable[[str], None] = lambda step: None,
        near: Collection[Edge] = (),
    ) -> Float[np.ndarray, "row circuit"]:
        """The metric of each row with all edges but these ablated.

        Where the circuits differ little from one, `near` is that one, and passes begin late.
        """

        def of(part: _Part, i: int) -> Tensor:
            if i == 0:
                part.alone.remember(near)
            return part.alone.logits(circuits[i])

        return self._each(len(circuits), of, progress, "circuits alone")

    def without(
        self,
        nodes: Sequence[Node],
        progress: Callable[[str], None] = lambda step: None,
    ) -> Float[np.ndarray, "row node"]:
        """The metric of each row with the output of one node ablated."""

        def of(part: _Part, i: int) -> Tensor:
            positions = self._read_positions(part.rows)
            return self.engine.without(part.whole, part.reference, nodes[i], positions)

        return self._each(len(nodes), of, progress, "cutting nodes")

    def attributions(
        self, steps: int = STEPS, progress: Callable[[str], None] = lambda step: None
    ) -> Float[np.ndarray, "row edge"]:
        """A first-order estimate of the loss of worth when each edge is cut."""
        self._held = None  # gradients need the room
        parts = []
        count = Countdown(progress, len(self.rows), "attribution to edges", "rows")
        for rows in torch.split(self.rows, self._graded_at_once):
            parts.append(self._attributed(rows, steps))
            count.step(len(rows))
        return np.concatenate(parts)

    def _attributed(self, rows: Rows, steps: int) -> Float[np.ndarray, "row edge"]:
        """The estimates of some rows."""
        positions = self._read_positions(rows)
        whole = self.engine.whole(self._prompts.tokens[rows], positions)

        def metric(logits: Tensor) -> Tensor:
            return self._metric(logits, rows, whole.logits)

        estimate = attribute(self.engine, whole, self.stand_in(rows), metric, positions, steps)
        attributed: np.ndarray = -estimate.float().cpu().numpy()
        return attributed

    def _each(
        self,
        n: int,
        logits: Callable[[_Part, int], Tensor],
        progress: Callable[[str], None] = lambda step: None,
        what: str = "",
    ) -> Float[np.ndarray, "row set"]:
        values = np.empty((len(self.rows), n))
        at_once = len(self.rows) if self._held is not None else self._at_once
        starts = range(0, len(self.rows), at_once)
        count = Countdown(progress if n > 1 else lambda step: None, n * len(starts), what)
        for part in (slice(start, start + at_once) for start in starts):
            for i, value in enumerate(self._of_part(part, n, logits)):
                values[part, i] = value
                count.step()
        return values

    def _of_part(
        self, batch: slice, n: int, logits: Callable[[_Part, int], Tensor]
    ) -> Iterator[Float[np.ndarray, " row"]]:
        """The worth of some rows under each cut; their passes are gone before those of others."""
        part = self._held or self._part(batch)
        for i in range(n):
            yield self._metric(logits(part, i), part.rows, part.whole.logits).double().cpu().numpy()

    def _part(self, batch: slice) -> _Part:
        """Some rows; where they are all, what is known of them is kept."""
        rows = self.rows[batch]
        positions = self._read_positions(rows)
        whole = self.engine.whole(self._prompts.tokens[rows], positions)
        reference = self.stand_in(rows)
        alone = SubcircuitPass(self.engine, whole.trace.writes[0], reference, positions)
        part = _Part(rows, whole, reference, alone)
        if len(rows) == len(self.rows):
            self._held = part
        return part

    def _read_positions(self, rows: Rows) -> Int[Tensor, "row asked"] | None:
        judged = self._objective
        return judged.positions[rows] if isinstance(judged, AskedObjective) else None

    def _metric(self, logits: Tensor, rows: Rows, whole: Tensor) -> Tensor:
        judged = self._objective
        if isinstance(judged, AskedObjective):
            return judged.of_asked(logits, rows)
        return judged(logits, rows, whole)


def _pass_bytes(engine: PatchedModel, n_pos: int) -> int:
    """Upper bound of a prompt's bytes while edges are ablated: writes, references and reads."""
    wiring = engine.wiring
    streams = 3 * len(wiring.writers) + 4 * len(wiring.stages) + 8 * wiring.n_layers
    streams += 3 * len(wiring.readers(wiring.stages[0]))
    return 4 * n_pos * (streams * wiring.d_model + 4 * n_pos * wiring.n_heads + engine.widest)


def _gradient_bytes(engine: PatchedModel, n_pos: int) -> int:
    """Upper bound of a prompt's bytes in attribution: readers' gradients twice, and the graph."""
    wiring = engine.wiring
    readers = sum(len(wiring.readers(stage)) for stage in wiring.stages)
    streams = 4 * len(wiring.writers) + 2 * readers + 24 * len(wiring.stages)
    inside = 4 * n_pos * wiring.n_heads * wiring.n_layers + engine.hidden
    return 4 * n_pos * (streams * wiring.d_model + inside)
