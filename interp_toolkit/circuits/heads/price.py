"""What looking at heads costs, in forward passes, and how much of it a large model allows.

One pass is the model on all rows of the task. A cut runs on some of the rows, and where the model
can be started in the middle only from its first cut layer on, so it costs a part of a pass: the
share of the rows times the share of the operations. A model is *large* where one look at its rows
takes LARGE operations (2 for each parameter and token); there, cuts are chosen within PASSES (see
`within`), and everything else looks at fewer rows and heads. Operations, not seconds, are counted:
what is looked at must not depend on how busy the machine is.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from interp_toolkit.circuits.behaviour.task import RowTask
from interp_toolkit.circuits.heads.cuts import Cut
from interp_toolkit.countdown import so_far

LARGE = 1e11  # operations of a look: seconds on one core
PASSES = 9.0  # that cuts of a large model take, all relations together
SHARE_OF_ROWS, FEWEST_ROWS = 4, 16  # of the rows one in so many is looked at, these at least
MOST_ABLATED = 6  # heads of a large model that are ablated
MOST_READERS = 1  # induction heads of a large model whose partners are looked for


def is_large(model: Any, task: RowTask) -> bool:
    """Whether one look at the rows of the task takes LARGE operations."""
    parameters = float(sum(p.numel() for p in model.parameters()))
    rows = min(task.first_look, len(task.rows))
    return bool(2 * parameters * rows * task.prompts.n_pos >= LARGE)


def rows_looked_at(task: RowTask) -> int:
    """How many rows of a large model's task are looked at."""
    wanted = max(len(task.rows) // SHARE_OF_ROWS, FEWEST_ROWS)
    return min(wanted, task.first_look, len(task.rows))


@dataclass
class Price:
    """Passes that cuts may take, and those that they took.

    Attributes:
        share: of the rows of a pass that a cut runs on.
        n_layers: of the model.
        unembedding: share of a pass that no start in the middle saves.
        restarts: whether passes begin at the first layer that is cut.
        late: whether every cut layer takes a pass of its own.
        passes: that are allowed. spent: that were taken.
        since: when this began.
    """

    share: float
    n_layers: int
    unembedding: float
    restarts: bool = True
    late: bool = False
    passes: float = PASSES
    spent: float = 0.0
    since: float = field(default_factory=time.monotonic)

    def of(self, cuts: Sequence[Cut]) -> float:
        """What these cuts cost, in passes."""
        return sum(map(self._of_one, cuts))

    def allows(self, cuts: Sequence[Cut], kept: float = 0.0) -> bool:
        """Whether what is left, less what is kept for later, is enough for these cuts."""
        return self.spent + self.of(cuts) + kept <= self.passes

    def pay(self, cuts: Sequence[Cut]) -> None:
        """Take note of cuts that were made."""
        self.spent += self.of(cuts)

    def said(self) -> str:
        """How far it is."""
        return so_far(self.spent, self.passes, self.since)

    def _of_one(self, cut: Cut) -> float:
        layers = {head.layer for head in cut.heads}
        first = min(layers, default=0) if self.restarts else 0
        computed = self.unembedding + (1 - self.unembedding) * (1 - first / self.n_layers)
        return self.share * computed * (1 + len(layers) * self.late)


def unembedding_share(cfg: Any) -> float:
    """The share of a pass's operations that the unembedding takes."""
    d_model = int(cfg.d_model)
    out = d_model * int(getattr(cfg, "d_vocab_out", None) or cfg.d_vocab)
    attention = 4 * d_model * int(cfg.n_heads) * int(cfg.d_head)
    layer = attention + 3 * d_model * int(getattr(cfg, "d_mlp", None) or 0)
    return out / (out + int(cfg.n_layers) * layer)
