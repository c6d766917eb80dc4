"""`interp train dyck-1`: is a string of parentheses balanced?

The paper preset has the source's strings of 40 and 100,000 of them to train on, and the best sizes
that its search found for MixiT; the steps are ours, as the source gives none. How strings are
drawn, half of them balanced, is ours too (see `toys.random_attention.dyck`). The small preset has
strings of 20, and many heads, which MixiT needs.
"""

from __future__ import annotations

from pydantic import Field, field_validator

from interp_toolkit.toys.random_attention.dyck import Dyck
from interp_toolkit.training.tasks.recipes import task_recipe
from interp_toolkit.training.tasks.settings import TaskTraining


class DyckTraining(TaskTraining):
    """Settings of `interp train dyck-1`, beside those of `TaskTraining`.

    Attributes:
        length: of the strings, an even number.
    """

    length: int = Field(24, ge=2, le=100_000)
    examples: int = Field(100_000, ge=0, le=100_000_000)

    @field_validator("length")
    @classmethod
    def _even(cls, length: int) -> int:
        if length % 2:
            raise ValueError(f"no string of {length} parentheses is balanced: give an even length")
        return length

    @property
    def task(self) -> Dyck:
        """The task with its sizes."""
        return Dyck(self.length)


RECIPE = task_recipe(
    "whether a string of parentheses is balanced; their number",
    DyckTraining,
    {
        "small": {
            "length": 20,
            "test_examples": 1_000,
            "layers": 2,
            "d_model": 64,
            "heads": 32,
            "lr": 3e-3,
            "rows": 128,
            "steps": 1_200,
        },
        "paper": {
            "length": 40,
            "layers": 4,
            "d_model": 512,
            "heads": 64,
            "lr": 1e-3,
            "rows": 512,
            "steps": 10_000,
        },
    },
)
