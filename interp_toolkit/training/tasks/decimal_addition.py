"""`interp train decimal-addition`: the sum of two numbers, digit by digit.

The paper preset has the source's ten digits, 50,000 pairs and the best sizes that its search found
for MixiT; the steps are ours, as the source gives none. Sums come with the most significant digit
first, where each depends on all carries behind it, or the least with `reversed`, as in the
small preset of three digits.
"""

from __future__ import annotations

from pydantic import Field

from interp_toolkit.toys.random_attention.decimal_addition import MOST_DIGITS, DecimalAddition
from interp_toolkit.training.tasks.recipes import task_recipe
from interp_toolkit.training.tasks.settings import TaskTraining


class DecimalAdditionTraining(TaskTraining):
    """Settings of `interp train decimal-addition`, beside those of `TaskTraining`.

    Attributes:
        digits: of each number.
        reversed: whether numbers are written with the least significant digit first.
    """

    digits: int = Field(3, ge=1, le=MOST_DIGITS)
    reversed: bool = False
    examples: int = Field(50_000, ge=0, le=100_000_000)

    @property
    def task(self) -> DecimalAddition:
        """The task with its sizes."""
        return DecimalAddition(self.digits, self.reversed)


RECIPE = task_recipe(
    "the sum of two numbers, digit by digit; digits and their order",
    DecimalAdditionTraining,
    {
        "small": {
            "digits": 3,
            "reversed": True,
            "layers": 2,
            "d_model": 64,
            "heads": 16,
            "lr": 3e-3,
            "rows": 64,
            "steps": 2_000,
        },
        "paper": {
            "digits": 10,
            "layers": 8,
            "d_model": 512,
            "heads": 64,
            "lr": 1e-3,
            "rows": 128,
            "steps": 20_000,
        },
    },
)
