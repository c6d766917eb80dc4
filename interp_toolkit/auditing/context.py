"""The context of an audit: the model, the prompts, task performance on them, and the error level.

Duplicate prompts count once, since they are not independent evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float, Shaped

from interp_toolkit.auditing.parts import checked_level, coverage_of
from interp_toolkit.circuits.metrics.prompts import Prompts, prompts_from_data
from interp_toolkit.circuits.metrics.task import CircuitTask, TaskCheck, intact_readings, task_of
from interp_toolkit.circuits.metrics.task_check import (
    LARGE_LENGTH,
    LARGE_ROWS,
    is_large,
    prompts_in,
    synthetic_prompts,
)
from interp_toolkit.data import FeatureData
from interp_toolkit.models.model import Model
from interp_toolkit.options import Effort
from interp_toolkit.stats import Share, estimate

MADE_ROWS = 64  # synthetic prompts, if no data is given
MOST_ROWS = 512  # prompts sampled from the data


@dataclass(frozen=True, eq=False)
class AuditContext:
    """The context of an audit (see the module).

    Attributes:
        model: any TransformerLens model.
        data: distinct prompts, at most MOST_ROWS of them; None: synthetic prompts.
        seed: random seed of every draw.
        level: error level for the whole audit.
        claims: number of claims that are tested together.
        memory: bound on memory used at once in addition to the weights.
        progress: called with a description of each step.
        effort: "thorough" takes MADE_ROWS synthetic prompts for any model; otherwise a large model
            is tested on fewer and shorter ones. "quick" makes interventions `untestable`.
    """

    model: Model
    data: FeatureData | None
    seed: int
    level: float
    claims: int
    memory: int | str | None = None
    progress: Callable[[str], None] = field(default=lambda step: None, repr=False)
    effort: Effort = "standard"

    def correcting(self, claims: int) -> AuditContext:
        """The same context, with another number of claims tested together."""
        copy = replace(self, claims=claims)
        cached = ("prompts", "task", "task_check", "readings")
        copy.__dict__.update({n: self.__dict__[n] for n in cached if n in self.__dict__})
        return copy

    def coverage(self, asserted: int, alternatives: int = 1) -> float:
        """The coverage of each interval of a claim that asserts this many parts."""
        return coverage_of(self.level, self.claims, asserted, alternatives)

    @cached_property
    def prompts(self) -> Prompts:
        """The data's prompts, or synthetic repeated tokens (see `synthetic_prompts`).

        Raises InputError as `prompts_from_data` and `synthetic_prompts`.
        """
        if self.data is None:
            large = is_large(self.model, None, self.effort)
            _, prompt_format, _ = synthetic_prompts(
                self.model,
                seed=self.seed,
                memory=self.memory,
                progress=self.progress,
                large=large,
            )
            rows = LARGE_ROWS if large else MADE_ROWS
            return prompts_in(self.model, prompt_format, rows=rows, seed=self.seed + 2)
        return prompts_from_data(self.data, self.model)

    @cached_property
    def task(self) -> tuple[CircuitTask | None, str | None]:
        """The metric on the prompts, or the reason why there is none."""
        return task_of(self.model, self.prompts)

    @property
    def measured_task(self) -> CircuitTask:
        """The metric on prompts that are known to have one."""
        task, _ = self.task
        assert task is not None
        return task

    @cached_property
    def task_check(self) -> TaskCheck | None:
        """The model's performance on these prompts; None without a metric."""
        task, _ = self.task
        return None if task is None else task.check(self.readings)

    @cached_property
    def readings(self) -> Float[np.ndarray, "row column"]:
        """The task's readings of each prompt in the intact model."""
        task = self.measured_task
        self.progress("task performance")
        return intact_readings(self.model, task, self.memory)

    @property
    def groups(self) -> Shaped[np.ndarray, " row"] | None:
        """The group of each prompt, or None."""
        return (
            None if self.data is None or self.data.groups is None else np.asarray(self.data.groups)
        )

    @property
    def untestable(self) -> str | None:
        """Why interventions cannot be tested on these prompts; None if they can."""
        if self.effort == "quick":
            return "no interventions were made (effort: quick)"
        task, reason = self.task
        if task is None:
            return f"{reason}; give prompts with answers, or prompts that repeat tokens"
        assert self.task_check is not None
        if self.task_check.yes:
            return None
        return f"the model has not been shown to perform this task: {self.task_check.summary}"

    @property
    def cached_task_check(self) -> TaskCheck | None:
        """The model's performance, if it was measured already."""
        return self.__dict__.get("task_check")

    @property
    def cached_prompts(self) -> Prompts | None:
        """The prompts, if they were already generated or read."""
        return self.__dict__.get("prompts")

    def share(self, lost: Float[np.ndarray, " row"], coverage: float) -> Share:
        """A loss of the metric on the prompts, as a fraction of the metric."""
        assert self.task_check is not None
        return self.task_check.fraction(lost, coverage)

    def mean(self, values: Float[np.ndarray, " row"], coverage: float) -> Share:
        """The mean of one number per prompt."""
        interval = estimate(values, coverage)
        return Share(interval.mean, interval.low, interval.high)

    def rng(self, *key: int) -> np.random.Generator:
        """A generator seeded by the audit's seed and these numbers."""
        return np.random.default_rng([self.seed, *key])


def audit_context(
    model: Model,
    data: FeatureData | None,
    *,
    seed: int,
    level: float,
    claims: int,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
    effort: Effort = "standard",
) -> tuple[AuditContext, list[str]]:
    """The context of an audit, and notes on the prompts.

    Raises:
        InputError: a level out of range.
    """
    level, notes = checked_level(level), []
    if data is not None:
        distinct = _distinct(data)
        if len(distinct) < len(data):
            copies = len(data) - len(distinct)
            notes.append(f"{copies} of {len(data)} prompts are duplicates and were left out")
            data = data.at(distinct)
        if len(data) > MOST_ROWS:
            notes.append(f"{MOST_ROWS} of {len(data)} prompts were sampled")
            order = np.random.default_rng([seed, 1]).permutation(len(data))
            data = data.at(np.sort(order[:MOST_ROWS]))
    if data is None and is_large(model, None, effort):
        notes.append(
            f"a model of this size is tested on {LARGE_ROWS} prompts of at most {LARGE_LENGTH} "
            "tokens; --effort thorough takes more"
        )
    return AuditContext(model, data, seed, level, claims, memory, progress, effort), notes


def _distinct(data: FeatureData) -> np.ndarray:
    """Indices of distinct prompts: the first of each set that are equal except for their groups."""
    first_rows: dict[tuple[object, ...], int] = {}
    parts = (data.positions, data.answers, data.answer_positions, data.wrong, data.features)
    columns = [np.asarray(column) for column in parts if column is not None]
    for i, row in enumerate(data.tokens):
        other = b"" if data.corrupted is None else np.asarray(data.corrupted[i]).tobytes()
        rest = tuple(column[i].tobytes() for column in columns)
        first_rows.setdefault((np.asarray(row).tobytes(), other, *rest), i)
    return np.array(sorted(first_rows.values()))
