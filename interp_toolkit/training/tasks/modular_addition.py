"""`interp train modular-addition`: a + b modulo p.

The paper preset has the source's 40,000 pairs modulo 599 and, as for the other sizes, the best
that its search found for MixiT; the steps are ours, as it gives none. The small preset has five
sixths of the pairs of a small prime, small initial weights and a strong weight decay: otherwise
models know their pairs by heart long before they find the rule, if they do (Power et al. 2022,
"Grokking").
"""

from __future__ import annotations

from pydantic import Field

from interp_toolkit.toys.random_attention.modular_addition import ModularAddition
from interp_toolkit.training.tasks.recipes import task_recipe
from interp_toolkit.training.tasks.settings import TaskTraining


class ModularAdditionTraining(TaskTraining):
    """Settings of `interp train modular-addition`, beside those of `TaskTraining`.

    Attributes:
        modulus: the source's p.
    """

    modulus: int = Field(97, ge=2, le=100_000)
    examples: int = Field(8_000, ge=0, le=100_000_000)
    test_examples: int = Field(1_000, ge=1, le=10_000_000)

    @property
    def task(self) -> ModularAddition:
        """The task with its sizes."""
        return ModularAddition(self.modulus)


RECIPE = task_recipe(
    "a + b modulo p; p and how many of the pairs are trained on",
    ModularAdditionTraining,
    {
        "small": {
            "modulus": 59,
            "examples": 2_900,
            "test_examples": 500,
            "layers": 2,
            "d_model": 64,
            "heads": 32,
            "initial_std": 0.05,
            "weight_decay": 0.3,
            "lr": 3e-3,
            "rows": 256,
            "steps": 1_500,
        },
        "paper": {
            "modulus": 599,
            "examples": 40_000,
            "test_examples": 4_000,
            "layers": 2,
            "d_model": 512,
            "heads": 32,
            "lr": 1e-3,
            "rows": 256,
            "steps": 20_000,
        },
    },
)
