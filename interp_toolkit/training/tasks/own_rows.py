"""`interp train rows --set data=FILE`: the model variants on a user's own prompts with answers.

Each different prompt is one row of a finite task: a fifth of them, drawn at random, are test rows
that are never trained on. Shorter prompts are padded at the end, which earlier positions of a
causal model do not see.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int
from pydantic import Field, model_validator
from torch import Tensor

from interp_toolkit.data import read_data
from interp_toolkit.errors import InputError
from interp_toolkit.models.features.samples import equal_inputs
from interp_toolkit.toys.random_attention.tasks import PAD, FiniteTask, TaskRows
from interp_toolkit.training.tasks.problem import TaskTraining
from interp_toolkit.training.tasks.recipes import task_recipe

TESTED = 0.2  # of the different prompts
FEWEST = 20  # different prompts


@dataclass(frozen=True)
class OwnRows(FiniteTask):
    """Prompts from a file, each once, with the answers that should follow.

    Attributes:
        source: the file's name.
        sha256: hash of tokens, positions and answers.
        rows: the prompts.
    """

    name: ClassVar[str] = "rows"
    guess_rule: ClassVar[str] = "the commonest answer"

    source: str
    sha256: str
    rows: TaskRows = field(repr=False)

    @property
    def d_vocab(self) -> int:
        """One more than the largest id."""
        return 1 + int(max(self.rows.tokens.max(), self.rows.answer.max()))

    @property
    def n_ctx(self) -> int:
        """The length of the longest prompt."""
        return int(self.rows.tokens.shape[1])

    @property
    def n_rows(self) -> int:
        """The number of different prompts."""
        return len(self.rows.tokens)

    @property
    def guess(self) -> float:
        """The fraction of prompts that have the commonest answer."""
        answers = Counter(map(tuple, self.rows.answer.tolist()))
        return answers.most_common(1)[0][1] / self.n_rows

    def numbered(self, numbers: Int[Tensor, " taken"]) -> TaskRows:
        """The prompts with these numbers, in the file's order."""
        return self.rows.to(numbers.device).take(numbers)

    def record(self) -> dict[str, Any]:
        """The file's name and hash, and the number of prompts."""
        return {
            "name": self.name,
            "source": self.source,
            "sha256": self.sha256,
            "rows": self.n_rows,
        }


@lru_cache(maxsize=4)
def rows_of_file(path: str, changed: float) -> OwnRows:
    """The task of a file of prompts with answers, as ids; see `data.files.read_data`.

    `changed`: the time of its last change, so that a changed file is read again.

    Raises:
        InputError: a file without answers, with too few different prompts, or with one prompt and
            two answers.
    """
    data = read_data(path, feature_names=())
    if data.answers is None or data.answer_positions is None:
        raise InputError(f"{path}: the rows have no answers to learn; name them 'answer'")
    longest = max(len(row) for row in data.tokens)
    tokens = np.full((len(data), longest), PAD, dtype=np.int64)
    positions = np.asarray(data.answer_positions, dtype=np.int64).reshape(len(data), -1).copy()
    for number, row in enumerate(data.tokens):
        tokens[number, : len(row)] = row
        positions[number] = np.where(
            positions[number] < 0, positions[number] + len(row), positions[number]
        )
    answers = np.asarray(data.answers, dtype=np.int64).reshape(len(data), -1)
    group = equal_inputs([np.hstack(row) for row in zip(data.tokens, positions, strict=True)])
    first = np.unique(group, return_index=True)[1]  # groups are numbered in the rows' order
    differing = (answers != answers[first[group]]).any(1)
    if differing.any():
        other = int(differing.argmax())
        raise InputError(
            f"{path}: prompt {other + 1} is also prompt {int(first[group[other]]) + 1}, "
            "with another answer; keep one of them"
        )
    if len(first) < FEWEST:
        raise InputError(f"{path}: {len(first)} different prompts; give at least {FEWEST}")
    parts = tokens[first], positions[first], answers[first]
    sha256 = hashlib.sha256(b"".join(part.astype("<i8").tobytes() for part in parts)).hexdigest()
    return OwnRows(Path(path).name, sha256, TaskRows(*map(torch.from_numpy, parts)))


class RowsTraining(TaskTraining):
    """Settings of `interp train rows`, in addition to those of `TaskTraining`.

    Attributes:
        data: a file of prompts as token ids, with answers.
    """

    data: str = ""
    examples: int = Field(0, ge=0, le=100_000_000)
    test_examples: int = Field(0, ge=0, le=10_000_000)

    @property
    def task(self) -> OwnRows:
        """The prompts of the file."""
        if not self.data:
            raise InputError("give the file of prompts with answers: --set data=FILE")
        path = Path(self.data).expanduser()
        if not path.exists():
            raise InputError(f"{self.data}: no such file; give one of prompts with answers")
        return rows_of_file(str(path), path.stat().st_mtime)

    @model_validator(mode="after")
    def _rows_suffice(self) -> RowsTraining:
        if not self.data:
            return self
        if not self.test_examples:
            self.__dict__["test_examples"] = max(1, round(TESTED * self.task.n_rows))
        if self.examples + self.test_examples > self.task.n_rows - (not self.examples):
            raise ValueError(
                f"there are {self.task.n_rows:,} different prompts: too few for {self.examples:,} "
                f"examples and {self.test_examples:,} test_examples"
            )
        return self


ROWS = task_recipe(
    "your own prompts of token ids with answers: --set data=FILE",
    RowsTraining,
    {
        "small": {
            "layers": 2,
            "d_model": 64,
            "heads": 4,
            "lr": 3e-3,
            "rows": 128,
            "steps": 2000,
        }
    },
    name=OwnRows.name,
)
