"""Training of a model variant on a synthetic task: settings, rows, batches, loss, test.

*Settings* are shared by the recipes of "Is random attention sufficient for sequence modeling?".
The paper presets have the source's values if it states them: sizes in section 3.1, searched and
best hyperparameters in appendix C.

*Rows.* The test rows are the same for all seeds, and a seed's training set contains none of them,
except that a memorization task uses the same rows for training and testing. If a task's rows can be
numbered, all are different. Otherwise they are sampled, the training set on the device.

*Training.* Batches are drawn from the training set with replacement; without a training set, every
batch is new. Held-out test rows are never trained on. The loss is the mean cross-entropy (nats)
of the answers; logits are computed only where answers are read.

*Summary.* A sentence states the accuracy (on held-out rows with an interval) and that of a guess.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.formatting import percent
from interp_toolkit.models.transformer.collapsed import at_positions
from interp_toolkit.models.transformer.config import DTYPES, MixingVariance
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.stats import clopper_pearson
from interp_toolkit.toys.random_attention.tasks import (
    NOTHING,
    FiniteTask,
    Task,
    TaskRows,
    right_share,
)
from interp_toolkit.toys.random_attention.variants import (
    VARIANTS,
    Variant,
    variant_config,
    variant_model,
)
from interp_toolkit.training.engine.settings import Betas, Problem, Schedule, TrainingSettings
from interp_toolkit.training.engine.trainer import SeedRuns

#: a recipe's variants
BY_VARIANT: dict[str, dict[str, str]] = {variant: {"variant": variant} for variant in VARIANTS}


class VariantTraining(TrainingSettings):
    """Settings of a model variant, in addition to those of `TrainingSettings`.

    Attributes:
        variant: determines the model's parameters, and which of them are trained.
        layers, heads, d_model: sizes of the model; d_head is d_model / heads.
        mixing_variance: variance of mixit's matrices, n = d_model, m = the task's positions;
            "1/m unshaped" leaves out the identity and the centering.
        biases: whether attention and MLP have biases.
        tied: whether the unembedding is the embedding's transpose.
        initial_std: standard deviation of the initial weights; 0: 1/sqrt(d_model).
        qk_std: standard deviation of the initial W_Q and W_K; 0: as for all other weights.
        rows: number of rows in a batch.
    """

    curve_points: ClassVar[int] = 50

    variant: Variant = "standard"
    layers: int = Field(2, ge=1, le=1_000)
    heads: int = Field(4, ge=1, le=4_096)
    d_model: int = Field(128, ge=2, le=65_536)
    mixing_variance: MixingVariance = "1/(d_head m)"
    biases: bool = False
    tied: bool = False
    initial_std: float = Field(0.0, ge=0, le=10, allow_inf_nan=False)
    qk_std: float = Field(0.0, ge=0, le=10, allow_inf_nan=False)
    rows: int = Field(128, ge=1, le=1_000_000)
    lr: float = Field(1e-3, gt=0, le=10, allow_inf_nan=False)
    optimiser: Literal["adam", "adamw"] = "adamw"
    schedule: Schedule = "cosine"
    warm_up: int = Field(50, ge=0)
    betas: Betas = (0.9, 0.98)
    weight_decay: float = Field(0.01, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> VariantTraining:
        if self.d_model % self.heads:
            raise ValueError(f"{self.heads} heads do not divide a d_model of {self.d_model}")
        if self.variant != "mixit" and (self.d_model // self.heads) % 2:
            raise ValueError(
                f"{self.heads} heads of {self.d_model // self.heads} dimensions each: rotary "
                "positions need an even number"
            )
        return self

    def new_model(self, seed: int, *, d_vocab: int, n_ctx: int, name: str) -> Transformer:
        """A seed's untrained model with this vocabulary and context, on the device."""
        cfg = variant_config(
            self.variant,
            n_layers=self.layers,
            n_heads=self.heads,
            d_model=self.d_model,
            n_ctx=n_ctx,
            d_vocab=d_vocab,
            mixing=self.mixing_variance,
            biases=self.biases,
            tied_embeddings=self.tied,
            initial_std=self.initial_std or None,
            dtype=DTYPES[self.dtype],
            seed=seed,
            model_name=f"{name}-{self.variant}",
        )
        model = variant_model(cfg, self.variant, qk_std=self.qk_std or None)
        on_device: Transformer = model.to(self.device)
        return on_device


class SyntheticTraining(VariantTraining, ABC):
    """Settings of a variant on a synthetic task."""

    @property
    @abstractmethod
    def task(self) -> Task:
        """The task with its sizes."""

    @property
    @abstractmethod
    def tested_rows(self) -> int:
        """The number of test rows."""


class TaskTraining(SyntheticTraining, ABC):
    """Settings of a variant on a task with held-out test rows.

    Attributes:
        examples: training rows, drawn once; 0: new rows every step.
        test_examples: test rows, which are not trained on.
    """

    examples: int = Field(40_000, ge=0, le=100_000_000)
    test_examples: int = Field(4_000, ge=1, le=10_000_000)

    @property
    def tested_rows(self) -> int:
        """The number of test rows."""
        return self.test_examples

    @model_validator(mode="after")
    def _rows_suffice(self) -> TaskTraining:
        task = self.task
        if isinstance(task, FiniteTask) and self.examples + self.test_examples > task.n_rows:
            raise ValueError(
                f"there are {task.n_rows:,} different rows: too few for {self.examples:,} examples "
                f"and {self.test_examples:,} test_examples"
            )
        return self


TEST_SEED = 2**31
AT_ONCE = 10_000  # rows sampled at once
LEAST_LEFT = 0.1  # fraction of the sampled rows that must remain for training


def task_rows(config: SyntheticTraining, seed: int) -> tuple[TaskRows | None, TaskRows]:
    """The training set (None: rows are sampled at every step) and the test rows, on the device.

    Raises:
        InputError: nearly all rows of the task are in the test.
    """
    task = config.task
    if not isinstance(config, TaskTraining):
        assert isinstance(task, FiniteTask)
        rows = task.numbered(torch.arange(task.n_rows)).to(config.device)
        return rows, rows
    if isinstance(task, FiniteTask):
        train, test = _numbered(task, config, seed)
    else:
        train, test = _sampled(task, config, seed)
    return (train.to(config.device) if config.examples else None), test.to(config.device)


def held_out_rows(config: SyntheticTraining, most: int) -> FeatureData:
    """Test rows of a task as prompts with answers and wrong answers, on the CPU.

    The wrong answer for one of the rows' answers is the next larger one (for the largest, the
    smallest), so that a difference of logits can be measured where the model is certain.

    Raises:
        InputError: the rows have different numbers of answers.
    """
    on_cpu = config.model_copy(update={"device": "cpu"})
    _, test = task_rows(on_cpu, config.seed)
    rows = test.take(slice(most))
    if bool((rows.answer == NOTHING).any()):
        raise InputError(f"rows of {config.task.name} have different numbers of answers")
    count, total = len(rows.tokens), len(test.tokens)
    answers = rows.answer.numpy()
    distinct, which = np.unique(answers, return_inverse=True)
    wrong = np.roll(distinct, -1)[which].reshape(answers.shape)
    return FeatureData(
        rows.tokens.numpy(),
        np.zeros((count, 0), dtype=bool),
        (),
        answers=answers,
        answer_positions=rows.read.numpy(),
        wrong=wrong if len(distinct) > 1 else None,
        source=f"held-out rows of {config.task.name}, the model's own task ({count:,} of "
        f"{total:,})",
    )


def _numbered(task: FiniteTask, config: TaskTraining, seed: int) -> tuple[TaskRows, TaskRows]:
    """A random selection of numbered rows, each at most once."""
    order = torch.randperm(task.n_rows, generator=torch.Generator().manual_seed(TEST_SEED))
    test, others = order[: config.test_examples], order[config.test_examples :]
    mixed = torch.randperm(len(others), generator=torch.Generator().manual_seed(seed))
    return task.numbered(others[mixed[: config.examples]]), task.numbered(test)


def _sampled(task: Task, config: TaskTraining, seed: int) -> tuple[TaskRows, TaskRows]:
    """Test rows and training rows, sampled without overlap."""
    test = task.draw(config.test_examples, torch.Generator().manual_seed(TEST_SEED))
    test = test.to(config.device)
    held_out = RowSet(test.tokens)
    generator = torch.Generator(config.device).manual_seed(seed)
    n_examples, batches, n_sampled = max(config.examples, 1), list[TaskRows](), 0
    while n_sampled < n_examples:
        rows = task.draw(AT_ONCE, generator)
        batches.append(rows.take(~held_out.has(rows.tokens)))
        n_sampled += len(batches[-1].tokens)
        if len(batches[-1].tokens) < LEAST_LEFT * AT_ONCE:
            raise InputError(
                f"test_examples={config.test_examples:,} leaves hardly any rows of {task.name} "
                "to train on: give fewer, or a larger task"
            )
    return TaskRows(*(torch.cat(parts)[:n_examples] for parts in zip(*batches, strict=True))), test


class RowSet:
    """A set of token rows, each identified by a random linear form modulo 2^64.

    Two different rows have the same number with a chance below 2^-40. Look-ups do not synchronize
    with the device.
    """

    def __init__(self, tokens: Int[Tensor, "known pos"]):
        generator = torch.Generator().manual_seed(0)
        factors = torch.randint(-(2**62), 2**62, (tokens.shape[1],), generator=generator)
        self.factors = factors.to(tokens.device)
        self.sorted_numbers = self._numbers(tokens).sort().values

    def has(self, tokens: Int[Tensor, "row pos"]) -> Bool[Tensor, " row"]:
        """Membership of these rows in the set."""
        numbers = self._numbers(tokens)
        index = torch.searchsorted(self.sorted_numbers, numbers).clamp(
            max=len(self.sorted_numbers) - 1
        )
        return self.sorted_numbers[index] == numbers

    def _numbers(self, tokens: Int[Tensor, "row pos"]) -> Int[Tensor, " row"]:
        return (tokens * self.factors).sum(1)


WATCHED_ROWS = 512  # test rows for measurements during training
CHUNK = 1_024  # rows per pass of a test


class TaskProblem(Problem):
    """One seed's model, its training set and the test rows.

    Attributes:
        task: the task.
        train_rows: drawn once; None: new rows every step.
        test_rows: test set of the task (see `training.tasks.problem`).
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
        """A batch of the training set, or new rows, with the answers of test rows removed."""
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
        """Accuracy on a part of the test rows."""
        return {"accuracy": self.accuracy(self.test_rows.take(slice(WATCHED_ROWS)))}

    def accuracy(self, rows: TaskRows) -> float:
        """The accuracy on rows (or answers)."""
        with torch.no_grad():
            predictions = [answer_logits(self.model, part).argmax(-1) for part in _parts(rows)]
        return right_share(torch.cat(predictions), rows.answer, whole_rows=self.task.whole_rows)


def answer_logits(model: Transformer, rows: TaskRows) -> Float[Tensor, "row item d_vocab"]:
    """The model's logits where answers are read; the last MLP runs only there."""
    last = model.blocks[-1]
    resid = model(rows.tokens, stop_at_layer=model.cfg.n_layers - 1)
    resid = at_positions(resid + last.attn(last.ln1(resid)), rows.read)
    resid = resid + last.mlp(last.ln2(resid))
    logits: Tensor = model.unembed(model.ln_final(resid))
    return logits


def _parts(rows: TaskRows) -> Iterator[TaskRows]:
    for start in range(0, len(rows.tokens), CHUNK):
        yield rows.take(slice(start, start + CHUNK))


BITS = "bits_per_parameter"


def task_verdict(config: SyntheticTraining, runs: SeedRuns) -> str:
    """The verdict on a recipe: the best seed, the other seeds, and the size of the model."""
    task, scores = config.task, runs.scores
    parts = [
        f"{task.name}, {config.variant}: {percent(scores['accuracy'], 2)} of {_tested(config)} "
        "are right"
    ]
    if isinstance(config, TaskTraining):
        rows = config.test_examples
        low, high = clopper_pearson(scores["accuracy"] * rows, rows)
        parts[0] += f" (95 % interval {percent(low, 2)} to {percent(high, 2)})"
    if task.guess is not None:
        parts.append(f"{task.guess_rule} is right in {percent(task.guess, 2)}")
    parts.append(f"{scores['trainable']:,} parameters are trained")
    if BITS in scores:
        parts[-1] += f" and hold {scores[BITS]:.3g} bits each"
    return "; ".join(parts) + "." + _of_seeds(runs)


def _tested(config: SyntheticTraining) -> str:
    rows = f"{config.tested_rows:,} rows"
    if not isinstance(config, TaskTraining):
        return f"all {rows}, which are those trained on,"
    return (
        f"{rows} not trained on"
        if config.task.whole_rows
        else f"the answers in {rows} not trained on"
    )


def _of_seeds(runs: SeedRuns) -> str:
    """A remark that the best of several seeds is reported; "" for a single seed."""
    if len(runs.by_seed) < 2:
        return ""
    reached = sorted(scores["accuracy"] for scores in runs.by_seed.values())
    return (
        f" The best of {len(reached)} seeds, chosen on these rows; their accuracies go from "
        f"{percent(reached[0], 2)} to {percent(reached[-1], 2)}."
    )
