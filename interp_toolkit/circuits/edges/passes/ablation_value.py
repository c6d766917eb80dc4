"""Ablation values of edges: another prompt's output, the mean over other prompts, or zero.

- *corrupted*: the source's output on the corrupted counterpart of the prompt (interchange or
  resample ablation): only what differs between the two is removed;
- *mean*: its average output over *other* prompts, position by position; an average over a few
  prompts that included its own would still contain it;
- *zero*: nothing; the embedding is set to its mean, since a norm needs a nonzero input.

How much a circuit keeps depends on the choice (Miller et al. 2024, arXiv 2407.08734).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from interp_toolkit.circuits.edges.passes.patched_pass import PatchedModel, Reference
from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.errors import InputError

Kind = Literal["corrupted", "mean", "zero"]
WORDS: dict[Kind, str] = {
    "corrupted": "their values on the corrupted prompt",
    "mean": "their mean over other prompts at each position",
    "zero": "zero",
}


def kinds_for(prompts: Prompts) -> tuple[Kind, ...]:
    """The ablation values that these prompts allow, the usual one first."""
    return ("mean", "zero") if prompts.corrupted is None else ("corrupted", "mean", "zero")


class AblationValue:
    """The ablation values of some prompts.

    Args:
        kind: see the module.
        engine: the model.
        prompts: all prompts.
        others: indices of the prompts that a mean is taken over.
        at_once: number of prompts that one pass may hold.

    Raises InputError for "corrupted" if the prompts have no corrupted counterparts.
    """

    def __init__(
        self,
        kind: Kind,
        engine: PatchedModel,
        prompts: Prompts,
        others: Int[Tensor, " other"],
        at_once: int,
    ):
        if kind == "corrupted" and prompts.corrupted is None:
            raise InputError("the prompts have no corrupted counterparts")
        self.kind = kind
        self._engine, self._corrupted = engine, prompts.corrupted
        self._all = None if kind == "corrupted" else self._of_all(prompts, others, at_once)

    def __call__(self, rows: Int[Tensor, " row"], engine: PatchedModel | None = None) -> Reference:
        """The ablation value of each writer on these prompts.

        `engine`: another one for the same model, as at the last positions only.
        """
        if self._all is not None:
            return self._all
        assert self._corrupted is not None
        engine = self._engine if engine is None else engine
        last = torch.full((len(rows), 1), self._corrupted.shape[1] - 1)
        return engine.whole(self._corrupted[rows], last - engine.begin).trace.writes

    def _of_all(self, prompts: Prompts, others: Int[Tensor, " other"], at_once: int) -> Reference:
        total: list[Tensor] = []
        for part in torch.split(others, at_once):
            sums = [write.sum(0) for write in self._writes(prompts.tokens[part])]
            total = [a + b for a, b in zip(total, sums, strict=True)] if total else sums
        means = [one / len(others) for one in total]
        n_zero = len(self._engine.wiring.writers) - len(means)
        return [*means, *(torch.zeros_like(means[0]) for _ in range(n_zero))]

    def _writes(self, tokens: Int[Tensor, "row pos"]) -> Sequence[Tensor]:
        """The outputs to average: every writer's; only the embedding's where others get zero."""
        if self.kind == "zero":
            return [self._engine.embedded(tokens)]
        return self._engine.whole(tokens).trace.writes
