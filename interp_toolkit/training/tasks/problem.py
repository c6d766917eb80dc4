"""A model variant on a synthetic task: batches, loss, accuracy on the test rows.

Batches are drawn from the training set with replacement; without a training set, every batch is
fresh. Rows that the test holds out are never learned from. The loss is the mean cross-entropy
(nats) of the answers; logits are computed only where answers are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.models.transformer.collapsed import at_positions
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.random_attention.task import NOTHING, TaskRows, right_share
from interp_toolkit.training.engine.problem import Problem
from interp_toolkit.training.tasks.rows import RowSet, task_rows
from interp_toolkit.training.tasks.settings import SyntheticTraining

WATCHED_ROWS = 512  # test rows that are looked at along the training
CHUNK = 1_024  # rows at once in a test


class TaskProblem(Problem):
    """One seed's model, its training set and the test rows.

    Attributes:
        task: what is learned.
        train_rows: drawn once; None: fresh ones every step.
        test_rows: of the task (see `training.tasks.rows`).
    """

    capturable: ClassVar[bool] = True

    def __init__(self, config: SyntheticTraining, seed: int):
        self.config, self.task = config, config.task
        self.model = config.new_model(
            seed, d_vocab=self.task.d_vocab, n_ctx=self.task.n_ctx, name=self.task.name
        )
        self.train_rows, self.test_rows = task_rows(config, seed)
        self.held_out = RowSet(self.test_rows.tokens)

    def draw(self, generator: torch.Generator) -> TaskRows:
        """A batch of the training set, or fresh rows, without answers to rows of the test."""
        n_rows = self.config.rows
        if self.train_rows is not None:
            n_train = len(self.train_rows.tokens)
            drawing: dict[str, Any] = {"generator": generator, "device": generator.device}
            return self.train_rows.take(torch.randint(n_train, (n_rows,), **drawing))
        rows = self.task.draw(n_rows, generator)
        held_out = self.held_out.has(rows.tokens)[:, None]
        return rows._replace(answer=torch.where(held_out, NOTHING, rows.answer))

    def loss(self, batch: TaskRows) -> Float[Tensor, ""]:
        """The mean cross-entropy of the answers."""
        logits, answer = answer_logits(self.model, batch), batch.answer
        total = F.cross_entropy(
            logits.flatten(0, 1), answer.flatten(), ignore_index=NOTHING, reduction="sum"
        )
        return total / (answer != NOTHING).sum().clamp(min=1)

    def evaluate(self) -> dict[str, float]:
        """Accuracy on some of the test rows."""
        return {"accuracy": self.accuracy(self.test_rows.take(slice(WATCHED_ROWS)))}

    def accuracy(self, rows: TaskRows) -> float:
        """The share of rows (or answers) that are right."""
        with torch.no_grad():
            predictions = [answer_logits(self.model, part).argmax(-1) for part in _parts(rows)]
        return right_share(torch.cat(predictions), rows.answer, whole_rows=self.task.whole_rows)


def answer_logits(model: Transformer, rows: TaskRows) -> Float[Tensor, "row item d_vocab"]:
    """The model's logits where answers are read; the last MLP, too, runs nowhere else."""
    last = model.blocks[-1]
    resid = model(rows.tokens, stop_at_layer=model.cfg.n_layers - 1)
    resid = at_positions(resid + last.attn(last.ln1(resid)), rows.read)
    resid = resid + last.mlp(last.ln2(resid))
    logits: Tensor = model.unembed(model.ln_final(resid))
    return logits


def _parts(rows: TaskRows) -> Iterator[TaskRows]:
    for start in range(0, len(rows.tokens), CHUNK):
        yield rows.take(slice(start, start + CHUNK))
