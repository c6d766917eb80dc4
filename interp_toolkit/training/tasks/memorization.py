"""`interp train memorization`: a random table by heart, and how many bits a parameter holds.

There is no rule, so accuracy is that on the table itself, all of it. The paper preset is the
source's comparison at one size, its table 4: two layers of width 128 with biases, 4 heads, 10,000
steps at a rate of 0.005, whose parameter counts it reproduces; the batch size is its search's.
(The model of its table 3, which knows everything, is d_model=1024 lr=0.001.) The small
preset is too small for its table as well, so that no variant learns all of it.
"""

from __future__ import annotations

from pydantic import Field

from interp_toolkit.toys.random_attention.memorization import Memorization
from interp_toolkit.training.tasks.recipes import task_recipe
from interp_toolkit.training.tasks.settings import SyntheticTraining


class MemorizationTraining(SyntheticTraining):
    """Settings of `interp train memorization`, beside those of `VariantTraining`.

    Attributes:
        side: keys of each of the two kinds, and values; the table has side² entries.
        table_seed: of the table; all seeds of a run learn the same.
    """

    side: int = Field(64, ge=2, le=10_000)
    table_seed: int = Field(0, ge=0, le=2**31)
    biases: bool = True

    @property
    def task(self) -> Memorization:
        """The task with its sizes."""
        return Memorization(self.side, self.table_seed)

    @property
    def tested_rows(self) -> int:
        """The whole table."""
        return self.task.n_rows


RECIPE = task_recipe(
    "a random table by heart; bits per trainable parameter",
    MemorizationTraining,
    {
        "small": {
            "side": 64,
            "layers": 2,
            "d_model": 16,
            "heads": 4,
            "lr": 5e-3,
            "rows": 256,
            "steps": 2_000,
        },
        "paper": {
            "side": 512,
            "layers": 2,
            "d_model": 128,
            "heads": 4,
            "lr": 5e-3,
            "rows": 256,
            "steps": 10_000,
        },
    },
)
