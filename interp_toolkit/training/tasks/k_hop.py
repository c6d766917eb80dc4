"""`interp train k-hop`: follow a bigram's last occurrence, k times over.

The paper preset has the source's rows of 100 and up to 16 hops, 5 layers, 5,000 steps and the best
sizes that its search found for MixiT; it tests on 100 rows, with an answer at every letter. The
small preset has one or two hops in rows of 32, and fresh rows every step.
"""

from __future__ import annotations

from pydantic import Field

from interp_toolkit.toys.random_attention.k_hop import KHop
from interp_toolkit.training.tasks.recipes import task_recipe
from interp_toolkit.training.tasks.settings import TaskTraining


class KHopTraining(TaskTraining):
    """Settings of `interp train k-hop`, beside those of `TaskTraining`.

    Attributes:
        most_hops: the largest k.
        length: of a row, the token that says k included.
        alphabet: how many letters.
    """

    most_hops: int = Field(2, ge=1, le=10_000)
    length: int = Field(32, ge=3, le=100_000)
    alphabet: int = Field(4, ge=2, le=10_000)
    test_examples: int = Field(1_000, ge=1, le=10_000_000)

    @property
    def task(self) -> KHop:
        """The task with its sizes."""
        return KHop(self.most_hops, self.length, self.alphabet)


RECIPE = task_recipe(
    "follow a bigram's last occurrence k times; hops, length, alphabet",
    KHopTraining,
    {
        "small": {
            "most_hops": 2,
            "length": 32,
            "examples": 0,
            "test_examples": 1_000,
            "layers": 3,
            "d_model": 64,
            "heads": 4,
            "lr": 2e-3,
            "rows": 64,
            "steps": 800,
        },
        "paper": {
            "most_hops": 16,
            "length": 100,
            "examples": 100_000,
            "test_examples": 100,
            "layers": 5,
            "d_model": 512,
            "heads": 8,
            "lr": 1e-4,
            "rows": 128,
            "steps": 5_000,
        },
    },
)
