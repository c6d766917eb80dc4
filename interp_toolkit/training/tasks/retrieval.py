"""`interp train retrieval`: which value goes with a key that the context has named?"""

from __future__ import annotations

from pydantic import Field, model_validator

from interp_toolkit.toys.random_attention.retrieval import Retrieval
from interp_toolkit.training.tasks.recipes import task_recipe
from interp_toolkit.training.tasks.settings import TaskTraining


class RetrievalTraining(TaskTraining):
    """Settings of `interp train retrieval`, beside those of `TaskTraining`.

    Attributes:
        most_pairs: pairs of a row, at most (the source's m_max).
        symbols: the source's V: values are below V/2, keys from there on.
        repeated_keys: whether a key may come twice; the last one counts.
    """

    most_pairs: int = Field(8, ge=1, le=100_000)
    symbols: int = Field(256, ge=4, le=1_000_000)
    repeated_keys: bool = False

    @model_validator(mode="after")
    def _keys_suffice(self) -> RetrievalTraining:
        if self.symbols % 2:
            raise ValueError(f"symbols ({self.symbols}) must be even: values below half, keys from")
        if not self.repeated_keys and self.most_pairs > self.symbols // 2 + 1:
            raise ValueError(
                f"{self.most_pairs} distinct keys are more than the {self.symbols // 2 + 1} there "
                "are: give more symbols, or repeated_keys=true"
            )
        return self

    @property
    def task(self) -> Retrieval:
        """The task with its sizes."""
        return Retrieval(self.most_pairs, self.symbols, self.repeated_keys)


RECIPE = task_recipe(
    "the value of a key that the context has named; pairs, symbols, fresh or fixed data",
    RetrievalTraining,
    {
        "small": {
            "symbols": 64,
            "examples": 0,
            "layers": 2,
            "d_model": 32,
            "heads": 2,
            "initial_std": 0.05,
            "qk_std": 0.2,
            "rows": 512,
            "lr": 5e-3,
            "schedule": "linear",
            "warm_up": 100,
            "steps": 500,
        },
        "paper": {
            "most_pairs": 30,
            "layers": 2,
            "d_model": 1_024,
            "heads": 4,
            "lr": 1e-4,
            "rows": 1_024,
            "steps": 10_000,
        },
    },
)
