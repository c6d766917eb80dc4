"""Train one-layer attention-only models to sort: `interp train sort-causal` and others.

Batches are drawn on the device, by default from the source's distribution; the loss is the
cross-entropy of the sorted list's items, each at the position where it is read. Without
normalization and with large batches, a step uses the model's tables
(`models.transformer.collapsed`): the same gradients, several times faster. Default sizes are the
source's.
Source: "How do tiny transformers sort lists of small integers?" (Qi and Zhong 2023), experiments 1
to 3. Its optimizer is Adam with an L2 term and a learning rate from 1e-3 to 1e-4, lowered by hand;
here it falls geometrically. AdamW from 3e-3 along a cosine, with β₂ = 0.99, reaches lower losses in
the same number of steps. It is the default of experiments 2 and 3 (`--variant post`: the source's),
and a variant of experiment 1.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from interp_toolkit.circuits.sorting.evaluation import list_accuracy
from interp_toolkit.data.lists.draws import (
    MAX_SETS,
    ListKind,
    Lists,
    ListSource,
    all_sets,
    joined,
)
from interp_toolkit.data.lists.layout import (
    ListLayout,
    ListRows,
    fresh_generator,
    parse_layout,
    standard_sets,
    two_valued_sets,
)
from interp_toolkit.formatting import percent
from interp_toolkit.models.transformer.collapsed import at_positions, table_logits, tables_pay
from interp_toolkit.models.transformer.config import DTYPES, TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.registry import Recipe, Session, TrainingRun
from interp_toolkit.training.engine.settings import Betas, Problem, Schedule, TrainingSettings
from interp_toolkit.training.engine.trainer import Fitted, train_seeds


class SortTraining(TrainingSettings):
    """Settings of the sorting recipes; each is a `--set` key.

    Attributes:
        n_values: the alphabet, 0 to n_values - 1.
        shortest, longest: smallest and largest length of the lists.
        distinct: whether lists have no repeats.
        bidirectional: the output is read at the list's own positions, not written after the list.
        d_model, d_head: widths; d_head is d_model by default.
        heads: heads of the single layer.
        normalization: "LN" or "RMS" before the layer and the unembedding; the source has none.
        batch: lists per step.
        loss_floor: lower bound on each item's loss (nats), so that items that are already right
            contribute no gradient.
        lists: distribution of lists with repeats: "hard", the source's; "uniform", with which the
            source reports poor results for a causal model; "two-valued"; "hard-and-two-valued",
            half of each, which it suggests as a remedy.
        held_out_sets: number of sets of values that are held out of training (distinct lists only).
        fixed_query: one learned query at every position: W_Q is zero and b_Q is initialized as a
            row of W_Q.
    """

    optimiser: Literal["adam", "adamw"] = "adamw"
    schedule: Schedule = "cosine"
    lr: float = Field(3e-3, gt=0, le=10, allow_inf_nan=False)
    final_lr: float = Field(3e-5, ge=0, allow_inf_nan=False)
    weight_decay: float = Field(1e-4, ge=0, allow_inf_nan=False)
    betas: Betas = (0.9, 0.99)
    n_values: int = Field(10, ge=2, le=10_000)
    shortest: int = Field(10, ge=1, le=10_000)
    longest: int = Field(10, ge=1, le=10_000)
    distinct: bool = False
    bidirectional: bool = False
    d_model: int = Field(56, ge=1, le=16_384)
    d_head: int | None = Field(None, ge=1, le=16_384)
    heads: int = Field(1, ge=1, le=1_024)
    normalization: Literal["LN", "RMS"] | None = None
    batch: int = Field(1_024, ge=1, le=10_000_000)
    loss_floor: float = Field(0.0, ge=0, allow_inf_nan=False)
    lists: Literal["hard", "uniform", "two-valued", "hard-and-two-valued"] = "hard"
    held_out_sets: int = Field(0, ge=0)
    fixed_query: bool = False

    @model_validator(mode="after")
    def _lists_exist(self) -> SortTraining:
        if self.shortest > self.longest:
            raise ValueError(f"shortest ({self.shortest}) is above longest ({self.longest})")
        if self.distinct and self.longest > self.n_values:
            raise ValueError(
                f"{self.longest} distinct items need as many values; n_values is {self.n_values}"
            )
        if self.distinct and self.lists != "hard":
            raise ValueError(f"lists={self.lists} needs repeats, which distinct=true excludes")
        if "two-valued" in self.lists and self.shortest < 2:
            raise ValueError("lists of two values need two items or more: give shortest=2 or more")
        if self.held_out_sets:
            self._check_held_out()
        return self

    def _check_held_out(self) -> None:
        if not (self.distinct and self.shortest == self.longest):
            raise ValueError("held_out_sets needs distinct=true, and shortest equal to longest")
        n_sets = math.comb(self.n_values, self.longest)
        if n_sets > MAX_SETS or self.held_out_sets >= n_sets:
            raise ValueError(f"{self.held_out_sets} sets cannot be held out of {n_sets}")

    @property
    def layout(self) -> ListLayout:
        """Layout of the prompts; ids: values, separator before the list, one after it, padding."""
        n, length = self.n_values, f"{self.shortest}-{self.longest}"
        length = str(self.longest) if self.shortest == self.longest else length
        words = f"{n} list{length} {n + 1}"
        words += "" if self.bidirectional else f" sorted{length}"
        words += f" pad{n + 2}" if self._padded else ""
        return parse_layout(words, d_vocab=n + 3, d_vocab_out=n)

    @property
    def source(self) -> ListSource:
        """The training lists: distinct ones, or of the first kind in `lists`."""
        lists = "hard" if self.lists == "hard-and-two-valued" else self.lists
        kind: ListKind = "distinct" if self.distinct else lists
        return ListSource(kind, self.n_values, self.shortest, self.longest)

    @property
    def _padded(self) -> bool:
        return self.bidirectional or self.shortest < self.longest

    def model_config_of(self, seed: int) -> TransformerConfig:
        """The model's configuration."""
        return TransformerConfig(
            n_layers=1,
            d_model=self.d_model,
            n_ctx=self.layout.n_positions,
            d_head=self.d_head or self.d_model,
            n_heads=self.heads,
            d_vocab=self.n_values + 2 + self._padded,
            d_vocab_out=self.n_values,
            attn_only=True,
            normalization_type=self.normalization,
            attention_dir="bidirectional" if self.bidirectional else "causal",
            dtype=DTYPES[self.dtype],
            seed=seed,
            model_name="sort",
        )


class SortCausal(SortTraining):
    """Experiment 1: lists of ten with repeats, followed by the sorted list."""

    lr: float = Field(1e-3, gt=0, le=10, allow_inf_nan=False)
    final_lr: float = Field(1e-4, ge=0, allow_inf_nan=False)
    optimiser: Literal["adam", "adamw"] = "adam"
    schedule: Schedule = "exponential"
    betas: Betas = (0.9, 0.999)
    steps: int = Field(9_000, ge=1)


class SortDistinct(SortTraining):
    """Experiment 2: ten distinct values of fifteen, followed by the sorted list."""

    steps: int = Field(5_000, ge=1)
    n_values: int = Field(15, ge=2, le=10_000)
    distinct: bool = True


class SortBidirectional(SortTraining):
    """Experiment 3: one to ten items with repeats, sorted in place."""

    steps: int = Field(5_000, ge=1)
    shortest: int = Field(1, ge=1, le=10_000)
    bidirectional: bool = True


class Sorting(Problem):
    """One seed's model and the lists it learns to sort."""

    watched: ClassVar[str] = "smoothed"
    capturable: ClassVar[bool] = True

    def __init__(self, config: SortTraining, seed: int):
        self.config = config
        self.layout, self.source = config.layout, config.source
        self.trained_on = set_split(config)[0] if config.held_out_sets else None
        self.model = Transformer(config.model_config_of(seed)).to(config.device)
        if config.fixed_query:
            fix_query(self.model)
        first = self.layout.read_positions(config.shortest)[0]
        self.reads = range(first, self.layout.read_positions(config.longest)[-1] + 1)
        self.through_tables = tables_pay(self.model, config.batch)

    def draw(self, generator: torch.Generator) -> ListRows:
        """Prompts of a new random batch of lists."""
        n = self.config.batch
        if self.config.lists == "hard-and-two-valued" and not self.config.distinct:
            beside = dataclasses.replace(self.source, kind="two-valued")
            halves = self.source.draw(n - n // 2, generator), beside.draw(n // 2, generator)
            return self.layout.rows(joined(halves))
        if self.trained_on is None:
            return self.layout.rows(self.source.draw(n, generator))
        size, device = (n,), generator.device
        rows = torch.randint(len(self.trained_on), size, generator=generator, device=device)
        return self.layout.rows(self.trained_on.to(device).take(rows).shuffled(generator))

    def logits(self, batch: ListRows) -> Float[Tensor, "row item logit"]:
        """The logits at the read positions."""
        if self.through_tables:
            return table_logits(self.model, batch.tokens, batch.read, self.reads)
        return at_positions(self.model(batch.tokens), batch.read)

    def loss(self, batch: ListRows) -> Float[Tensor, ""]:
        """Mean cross-entropy (nats) over all items, each at least `loss_floor`."""
        losses = item_losses(self.logits(batch), batch.answer)
        if self.config.loss_floor:
            losses = losses.clamp(min=self.config.loss_floor)
        return (losses * batch.present).sum() / batch.present.sum()


def set_split(config: SortTraining) -> tuple[Lists, Lists]:
    """The sets for training and the held-out ones, which are the same for every seed."""
    sets = all_sets(config.n_values, config.longest)
    order = torch.randperm(len(sets), generator=fresh_generator(0))
    held_out, rest = order[: config.held_out_sets], order[config.held_out_sets :]
    return sets.take(rest), sets.take(held_out)


def item_losses(
    logits: Float[Tensor, "row item logit"], answer: Int[Tensor, "row item"]
) -> Float[Tensor, "row item"]:
    """Cross-entropy of each item, in nats.

    The class axis is moved first: PyTorch's softmax over a short last axis is seven times slower.
    """
    n_logits = logits.shape[-1]
    if logits.requires_grad:  # otherwise the backward pass stays transposed too
        logits.register_hook(Tensor.contiguous)  # type: ignore[no-untyped-call]
    first = logits.reshape(-1, n_logits).T.contiguous()[None]
    return F.cross_entropy(first, answer.reshape(1, -1), reduction="none").view_as(answer)


def fix_query(model: Transformer) -> None:
    """Fix one query for all tokens and positions: b_Q becomes a row of W_Q, and W_Q zero.

    W_Q is no longer trained; otherwise the model is unchanged.
    """
    attn = model.blocks[0].attn
    with torch.no_grad():
        attn.b_Q.copy_(attn.W_Q[:, 0])
        attn.W_Q.zero_()
    attn.W_Q.requires_grad_(False)


#: the test set of each training distribution
TESTED_ON: Mapping[ListKind, str] = {
    "hard": "hard",
    "uniform": "random",
    "distinct": "random",
    "two-valued": "two_values",
}


class SeedScores(NamedTuple):
    """The loss and the accuracies of a trained model.

    Attributes:
        loss: nats per item, on the test lists of its training distribution.
        random, hard, sets: accuracy on whole lists of the source's test sets; None if a set does
            not exist (`data.lists.layout`).
        two_values: accuracy on all multisets of two values; None for distinct items.
        held_out: accuracy on the held-out sets; None if there are none.
    """

    loss: float
    random: float | None = None
    hard: float | None = None
    sets: float | None = None
    two_values: float | None = None
    held_out: float | None = None

    @property
    def solved(self) -> bool:
        """Whether all test lists were sorted correctly."""
        return all(share in (None, 1.0) for share in self[1:])


def evaluate(model: Transformer, config: SortTraining) -> SeedScores:
    """Loss and accuracy on the source's test lists, lists of two values, and held-out sets."""
    lists = standard_sets(config.layout, config.distinct)
    pairs = None if config.distinct else two_valued_sets(config.layout)
    if pairs is not None:
        lists["two_values"] = pairs
    accuracy = {name: list_accuracy(model, config.layout, some) for name, some in lists.items()}
    kind = TESTED_ON[config.source.kind]
    trained_on = accuracy.get(kind, accuracy["random"])
    shares = {name: f.lists_right for name, f in accuracy.items()}
    return SeedScores(trained_on.loss, **shares, held_out=held_out_right(model, config))


def held_out_right(model: Transformer, config: SortTraining) -> float | None:
    """The accuracy on held-out sets; None if there are none."""
    if not config.held_out_sets:
        return None
    lists = set_split(config)[1].shuffled(fresh_generator(0))
    return list_accuracy(model, config.layout, lists).lists_right


def train(config: SortTraining, session: Session, *, recipe: str) -> TrainingRun:
    """Train every seed and keep the one with the least loss (see `SeedScores`)."""

    def score(problem: Problem, fitted: Fitted) -> Mapping[str, Any]:
        scores = evaluate(problem.model, config)
        shown = {k: v for k, v in scores._asdict().items() if v is not None}
        return {**shown, "solved": scores.solved}

    task = {"name": "sorting", "layout": str(config.layout), "distinct": config.distinct}
    runs = train_seeds(
        recipe, config, lambda seed: Sorting(config, seed), score, session, task=task
    )
    return TrainingRun(
        model=runs.model,
        verdict=_verdict(config, runs.scores, [row[-1] for row in runs.rows]),
        columns=runs.columns,
        rows=runs.rows,
        task=task,
        training=runs.record(),
    )


def _verdict(config: SortTraining, best: Mapping[str, Any], solved: list[bool]) -> str:
    names = {
        "random": "random lists",
        "hard": "hard lists",
        "sets": "sets",
        "two_values": "lists with two distinct values",
        "held_out": "held-out sets",
    }
    right = ", ".join(f"{percent(best[k], 2)} of {name}" for k, name in names.items() if k in best)
    return (
        f"{sum(solved)} of {config.seeds} seeds sort every test list; the best one's loss is "
        f"{best['loss']:.2g} nats per item, and it sorts {right}."
    )


def _recipe(
    name: str, summary: str, config: type[SortTraining], variants: Mapping[str, Mapping[str, Any]]
) -> Recipe:
    def run(settings: SortTraining, session: Session | None = None) -> TrainingRun:
        return train(settings, session or Session(), recipe=name)

    return Recipe(
        name=name,
        summary=summary,
        config=config,
        variants=variants,
        presets={"small": {}, "paper": {"steps": 10_000, "seeds": 8}},
        train=run,
    )


def _optimiser_of(config: type[SortTraining]) -> dict[str, Any]:
    names = ("optimiser", "schedule", "lr", "final_lr", "weight_decay", "betas")
    return {name: config.model_fields[name].default for name in names}


ADAMW, POST = _optimiser_of(SortTraining), _optimiser_of(SortCausal)
CAUSAL = _recipe(
    "sort-causal",
    "one layer that sorts 10 digits with repeats and writes them after the list",
    SortCausal,
    {
        "post": {},
        "adamw": {**ADAMW, "steps": 5_000},
        "clipped": {"loss_floor": 0.02},
        "wide": {"d_model": 300},
        "wide-clipped": {"d_model": 300, "loss_floor": 0.02},
        "fixed-query": {**ADAMW, "steps": 5_000, "fixed_query": True},
        "fixed-query-adam": {"fixed_query": True},
        "uniform": {"lists": "uniform"},
        "with-two-valued": {"lists": "hard-and-two-valued"},
        "plateau": {"schedule": "plateau"},
    },
)
DISTINCT = _recipe(
    "sort-distinct",
    "one layer that sorts 10 distinct values of 15 and writes them after the list",
    SortDistinct,
    {"adamw": {}, "post": POST, "held-out": {"held_out_sets": 300}},
)
BIDIRECTIONAL = _recipe(
    "sort-bidirectional",
    "one bidirectional layer that sorts 1 to 10 digits in place",
    SortBidirectional,
    {"adamw": {}, "post": POST},
)
