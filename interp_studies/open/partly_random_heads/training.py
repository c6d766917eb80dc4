"""Train a transformer on retrieval while the queries and keys of some heads are frozen.

A head's query-key pair is its W_Q and W_K. In each layer the first so many heads train theirs and
the others keep what they started with; everything else is trained in every model. Pairs can also
be frozen for the first part of the training alone. Frozen pairs get gradients of zero and no
weight decay, and so stay as they are to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp_studies.jobs.attempt import Outcome
from interp_toolkit.toys.random_attention.task import TaskRows
from interp_toolkit.training.engine.trainer import fit
from interp_toolkit.training.tasks.problem import TaskProblem
from interp_toolkit.training.tasks.retrieval import RetrievalTraining


@dataclass(frozen=True)
class Condition:
    """Which pairs are trained, from when on.

    Attributes:
        name: in words.
        trained: heads of each layer whose pairs are trained, the first of them.
        since: the share of the steps during which these are frozen too.
        qk_std: the standard deviation of all initial queries' and keys' weights: how sharp the
            attention of frozen pairs is.
    """

    name: str
    trained: tuple[int, ...]
    since: float = 0.0
    qk_std: float = 0.05


class PartlyFrozen(TaskProblem):
    """Retrieval with a model some of whose pairs are frozen; a target is one of its error.

    Attributes:
        steps: batches drawn so far.
        frozen_steps: during which no pair is trained at all.
    """

    capturable = False  # the steps are counted outside the model
    watched = "error"

    def __init__(self, config: RetrievalTraining, seed: int, condition: Condition):
        super().__init__(config, seed)
        self.steps, self.frozen_steps = 0, round(condition.since * config.steps)
        for block, trained in zip(self.model.blocks, condition.trained, strict=True):
            learns = (torch.arange(config.heads) < trained).to(config.device)[:, None, None]
            for weight in (block.attn.W_Q, block.attn.W_K):
                weight.register_hook(self._masked(learns))

    def draw(self, generator: torch.Generator) -> TaskRows:
        """A batch; counts it."""
        self.steps += 1
        return super().draw(generator)

    def evaluate(self) -> dict[str, float]:
        """Accuracy and error on some of the test rows."""
        found = super().evaluate()
        return {**found, "error": 1 - found["accuracy"]}

    def _masked(self, learns: Tensor) -> Any:
        def hook(gradient: Float[Tensor, "head d_model d_head"]) -> Tensor:
            masked: Tensor = gradient * (learns & (self.steps > self.frozen_steps))
            return masked

        return hook


def settings_of(settings: Mapping[str, Any], condition: Condition) -> RetrievalTraining:
    """The recipe's settings for a condition."""
    return RetrievalTraining(**{**settings, "qk_std": condition.qk_std, "weight_decay": 0.0})


def partly_frozen_job(
    *, folder: Path, settings: Mapping[str, Any], condition: Mapping[str, Any], seed: int
) -> Outcome:
    """Train one seed under a condition; its accuracy on rows it was not trained on, and its curve.

    Args:
        folder: not used: a training of this size is done again rather than gone on with.
        settings: of the retrieval recipe.
        condition: the fields of a `Condition`.
        seed: of the model and its batches.
    """
    chosen = Condition(**{**condition, "trained": tuple(condition["trained"])})
    config = settings_of(settings, chosen)
    problem = PartlyFrozen(config, seed, chosen)
    fitted = fit(problem, config, seed)
    return Outcome(
        {
            "seed": seed,
            "condition": chosen.name,
            "accuracy": problem.accuracy(problem.test_rows),
            "guess": config.task.guess,
            "steps": [step for step, _ in fitted.curve],
            "curve": list(fitted.measured["accuracy"]),
        }
    )
