"""Cutting edges on some rows of prompts, a few rows at a time, and what each row is worth then.

Where an edge is cut, what the source wrote on average over *other* rows stands in, position by
position: in an average over a few rows that held its own, a row would still find itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.circuits.behaviour.objective import Objective
from interp_toolkit.circuits.edges.attribution import attribute
from interp_toolkit.circuits.edges.patched_pass import PatchedModel, Reference
from interp_toolkit.circuits.edges.wiring import Edge
from interp_toolkit.models.running.memory import rows_that_fit

Rows = Int[Tensor, " row"]


class CutObjective:
    """The objective on some rows when edges are cut, and what stands in for what is cut there.

    Attributes:
        rows: which rows of the prompts.
    """

    def __init__(
        self,
        engine: PatchedModel,
        tokens: Int[Tensor, "all pos"],
        rows: Int[Tensor, " row"],
        others: Int[Tensor, " other"],
        objective: Objective,
        memory: int,
    ):
        self.rows = rows
        self._engine, self._tokens, self._objective = engine, tokens, objective
        self._at_once = rows_that_fit(memory, _row_bytes(engine, tokens.shape[1]), tokens.shape[1])
        self._reference = self._means(others)

    @property
    def edges(self) -> Sequence[Edge]:
        """Every edge of the model."""
        return self._engine.wiring.edges

    def values(
        self,
        cuts: Sequence[Collection[Edge]],
        progress: Callable[[str], None] = lambda step: None,
    ) -> Float[np.ndarray, "row cut"]:
        """What each row is worth under each set of cut edges."""
        values = np.empty((len(self.rows), len(cuts)))
        done = 0
        for part, rows in self._parts(self.rows):
            whole = self._engine.whole(self._tokens[rows])
            for i, cut in enumerate(cuts):
                logits = self._engine.logits(whole, self._reference, cut)
                value = self._objective(logits, rows, whole.logits)
                values[part, i] = value.double().cpu().numpy()
                done += len(rows)
                if i % 32 == 31:
                    progress(f"cutting edges, {done * 100 // values.size} %")
        return values

    def attributions(self) -> Float[np.ndarray, "row edge"]:
        """A first-order estimate of the change in worth when each edge is cut."""
        found = []
        for _, rows in self._parts(self.rows):
            whole = self._engine.whole(self._tokens[rows]).logits

            def worth(logits: Tensor, rows: Rows = rows, whole: Tensor = whole) -> Tensor:
                return self._objective(logits, rows, whole)

            estimate = attribute(self._engine, self._tokens[rows], self._reference, worth)
            found.append(estimate.double().cpu().numpy())
        return np.concatenate(found)

    def _parts(self, rows: Rows) -> Iterator[tuple[slice, Rows]]:
        for start in range(0, len(rows), self._at_once):
            part = slice(start, start + self._at_once)
            yield part, rows[part]

    def _means(self, rows: Rows) -> Reference:
        total: list[Tensor] = []
        for _, part in self._parts(rows):
            sums = [w.sum(0) for w in self._engine.whole(self._tokens[part]).trace.writes]
            total = [a + b for a, b in zip(total, sums, strict=True)] if total else sums
        return [one / len(rows) for one in total]


def _row_bytes(engine: PatchedModel, n_pos: int) -> int:
    """What a row takes at most, in attribution: every write and every reader's input is kept."""
    wiring = engine.wiring
    readers = sum(len(wiring.readers(stage)) for stage in wiring.stages)
    streams = 2 * len(wiring.writers) + 3 * readers + 9 * len(wiring.stages)
    inside = 4 * n_pos * wiring.n_heads * wiring.n_layers + engine.hidden
    return 8 * n_pos * (streams * wiring.d_model + inside)
