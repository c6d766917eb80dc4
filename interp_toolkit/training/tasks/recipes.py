"""`interp train TASK --variant V`: the model variants on the synthetic tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator, model_validator

from interp_toolkit.registry import Recipe, Session, TrainingRun
from interp_toolkit.toys.random_attention.tasks import (
    MOST_DIGITS,
    DecimalAddition,
    Dyck,
    KHop,
    Memorization,
    ModularAddition,
    Retrieval,
)
from interp_toolkit.toys.random_attention.variants import trainable_parameters
from interp_toolkit.training.engine.metrics import FinalScore
from interp_toolkit.training.engine.trainer import Fitted, SeedRuns, train_seeds
from interp_toolkit.training.tasks.problem import (
    BITS,
    BY_VARIANT,
    SyntheticTraining,
    TaskProblem,
    TaskTraining,
    held_out_rows,
    task_verdict,
)


def train_task(config: SyntheticTraining, session: Session | None = None) -> TrainingRun:
    """Train every seed and keep the most accurate; raises InputError if the device is missing."""
    task = config.task

    def score(problem: TaskProblem, fitted: Fitted) -> Mapping[str, Any]:
        accuracy, trainable = (
            problem.accuracy(problem.test_rows),
            trainable_parameters(problem.model),
        )
        scores = {
            "accuracy": accuracy,
            "error": 1 - accuracy,
            "loss": fitted.loss,
            "trainable": trainable,
        }
        bits = task.stored_bits
        return scores if bits is None else {**scores, BITS: bits * accuracy / trainable}

    runs = train_seeds(
        task.name,
        config,
        lambda seed: TaskProblem(config, seed),
        score,
        session,
        by="error",
        task=task.record(),
    )
    return TrainingRun(
        model=runs.model,
        verdict=task_verdict(config, runs),
        columns=runs.columns,
        rows=runs.rows,
        task=task.record(),
        training={**runs.record(), **_measured(config, runs).recorded()},
    )


def _measured(config: SyntheticTraining, runs: SeedRuns) -> FinalScore:
    return FinalScore(
        name="accuracy",
        value=runs.scores["accuracy"],
        better="higher",
        unit="share",
        guess=config.task.guess,
        examples=config.tested_rows,
        guess_rule=config.task.guess_rule,
    )


def task_recipe(
    summary: str,
    config: type[SyntheticTraining],
    presets: Mapping[str, Mapping[str, Any]],
    name: str | None = None,
) -> Recipe:
    """The recipe of a task in every variant; `name`: where no file of rows is named yet."""
    return Recipe(
        name=name or config().task.name,
        summary=summary,
        config=config,
        variants=BY_VARIANT,
        presets=presets,
        train=train_task,
        rows=held_out_rows,
    )


class RetrievalTraining(TaskTraining):
    """Settings of `interp train retrieval`, in addition to those of `TaskTraining`.

    Attributes:
        most_pairs: largest number of pairs of a prompt (the source's m_max).
        symbols: the source's V: values are below V/2, keys from there on.
        repeated_keys: whether a key may occur twice; the last occurrence counts.
    """

    most_pairs: int = Field(8, ge=1, le=100_000)
    symbols: int = Field(256, ge=4, le=1_000_000)
    repeated_keys: bool = False

    @model_validator(mode="after")
    def _keys_suffice(self) -> RetrievalTraining:
        if self.symbols % 2:
            raise ValueError(f"symbols ({self.symbols}) must be even: half are values, half keys")
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


RETRIEVAL = task_recipe(
    "the value of a key in the context; options: pairs, symbols, fresh or fixed data",
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


class KHopTraining(TaskTraining):
    """Settings of `interp train k-hop`, in addition to those of `TaskTraining`.

    The paper preset has the source's rows of 100 and up to 16 hops, 5 layers, 5,000 steps and the
    best sizes that its search found for MixiT; it tests on 100 rows, with an answer at every
    letter. The small preset has one or two hops in rows of 32, and new rows every step.

    Attributes:
        most_hops: the largest k.
        length: length of a row, including the token for k.
        alphabet: number of letters.
    """

    most_hops: int = Field(2, ge=1, le=10_000)
    length: int = Field(32, ge=3, le=100_000)
    alphabet: int = Field(4, ge=2, le=10_000)
    test_examples: int = Field(1_000, ge=1, le=10_000_000)

    @property
    def task(self) -> KHop:
        """The task with its sizes."""
        return KHop(self.most_hops, self.length, self.alphabet)


K_HOP = task_recipe(
    "k-hop induction; options: hops, length, alphabet",
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


class ModularAdditionTraining(TaskTraining):
    """Settings of `interp train modular-addition`, in addition to those of `TaskTraining`.

    The paper preset has the source's 40,000 pairs modulo 599 and the best sizes that its search
    found for MixiT; the number of steps is ours, as the source states none. The small preset has
    five sixths of the pairs of a small prime, small initial weights and a strong weight decay:
    otherwise models memorize their pairs long before they find the rule, if they do (Power et al.
    2022, "Grokking").

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


MODULAR_ADDITION = task_recipe(
    "a + b modulo p; options: p, fraction of pairs trained on",
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


class DecimalAdditionTraining(TaskTraining):
    """Settings of `interp train decimal-addition`, in addition to those of `TaskTraining`.

    The paper preset has the source's ten digits, 50,000 pairs and the best sizes that its search
    found for MixiT; the number of steps is ours, as the source states none. Sums start with the
    most significant digit, which depends on all carries, or with `reversed` with the least
    significant one, as in the small preset of three digits.

    Attributes:
        digits: number of digits of each number.
        reversed: whether numbers are written with the least significant digit first.
    """

    digits: int = Field(3, ge=1, le=MOST_DIGITS)
    reversed: bool = False
    examples: int = Field(50_000, ge=0, le=100_000_000)

    @property
    def task(self) -> DecimalAddition:
        """The task with its sizes."""
        return DecimalAddition(self.digits, self.reversed)


DECIMAL_ADDITION = task_recipe(
    "the sum of two numbers, digit by digit; options: number and order of digits",
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


class DyckTraining(TaskTraining):
    """Settings of `interp train dyck-1`, in addition to those of `TaskTraining`.

    The paper preset has the source's strings of 40, 100,000 of them for training, and the best
    sizes that its search found for MixiT; the number of steps is ours, as the source states none.
    The distribution of strings, half of them balanced, is ours too (see
    `toys.random_attention.tasks`). The small preset has strings of 20, and many heads, which MixiT
    needs.

    Attributes:
        length: length of the strings, an even number.
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


DYCK = task_recipe(
    "whether a string of parentheses is balanced; option: number of parentheses",
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


class MemorizationTraining(SyntheticTraining):
    """Settings of `interp train memorization`, in addition to those of `VariantTraining`.

    There is no rule, so accuracy is measured on the whole table. The paper preset is the source's
    comparison at one size, its table 4: two layers of width 128 with biases, 4 heads, 10,000 steps
    at a learning rate of 0.005, whose parameter counts it reproduces; the batch size is from the
    source's search. (The model of its table 3, with full accuracy, is d_model=1024 lr=0.001.) The
    small preset is too small for its table as well, so that no variant learns all of it.

    Attributes:
        side: number of keys of each of the two kinds, and of values; the table has side² entries.
        table_seed: random seed of the table; all seeds of a run learn the same table.
    """

    side: int = Field(64, ge=2, le=10_000)
    table_seed: int = Field(0, ge=0, le=2**31)
    biases: bool = True

    @property
    def task(self) -> Memorization:
        """The task with its sizes."""
        return Memorization(self.side, self.table_seed)

    @property
    def tested_rows(self) -> int:
        """The whole table."""
        return self.task.n_rows


MEMORIZATION = task_recipe(
    "a random table, learned by heart; reports bits per trainable parameter",
    MemorizationTraining,
    {
        "small": {
            "side": 64,
            "layers": 2,
            "d_model": 16,
            "heads": 4,
            "lr": 5e-3,
            "rows": 256,
            "steps": 2_000,
        },
        "paper": {
            "side": 512,
            "layers": 2,
            "d_model": 128,
            "heads": 4,
            "lr": 5e-3,
            "rows": 256,
            "steps": 10_000,
        },
    },
)
