"""Sentiment of reviews, positive or not, by every model variant: `interp train yelp`.

A row is the first `length` - 1 tokens of a review and the end token, at which the label is
predicted; shorter rows are padded at their ends, which a causal model does not see. Rows have the
length of the longest in their batch, or on a GPU `length`, since a recorded step has one shape. The
labels are separate tokens, and the loss is the mean cross-entropy (nats) of the right one.

Reviews come from the data set Yelp polarity, a local copy of it or any other text with labels 0
and 1, or are generated (`--set text=generated`).
Source: "Is random attention sufficient for sequence modeling?", sections 3.1 and C.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.data.text.texts import Document
from interp_toolkit.data.text.token_store import TokenPart, TokenStore
from interp_toolkit.errors import InputError
from interp_toolkit.formatting import percent
from interp_toolkit.registry import Recipe, Session, TrainingRun
from interp_toolkit.toys.random_attention import texts
from interp_toolkit.toys.random_attention.tasks import TaskRows, right_share
from interp_toolkit.toys.random_attention.variants import trainable_parameters
from interp_toolkit.training.engine.acceleration import mean_in_parts
from interp_toolkit.training.engine.metrics import FinalScore
from interp_toolkit.training.engine.settings import Problem
from interp_toolkit.training.engine.trainer import Fitted, SeedRuns, train_seeds
from interp_toolkit.training.tasks.problem import BY_VARIANT, answer_logits
from interp_toolkit.training.text.store import (
    GENERATED,
    TextTraining,
    document_facts,
    keep_tokenizer,
    text_store,
    text_task,
    worst_of,
)

LABELS = ("<|negative|>", "<|positive|>")  # tokens, by label
WATCHED_REVIEWS = 512  # test reviews for measurements during training
TESTED_AT_ONCE = 256


class ReviewProblem(Problem):
    """One seed's model and the reviews.

    Attributes:
        reviews, tested: the reviews for training and for testing.
    """

    capturable = True

    def __init__(self, config: TextTraining, seed: int, store: TokenStore, name: str):
        self.config = config
        self.model = config.new_model(
            seed, d_vocab=store.tokenizer.n_tokens, n_ctx=config.length, name=name
        )
        self.reviews = Reviews(store, store.train, config.length, config.device)
        self.tested = Reviews(store, store.test, config.length, config.device)

    def draw(self, generator: torch.Generator) -> TaskRows:
        """Training reviews, drawn with replacement."""
        shape, device = (self.config.rows,), generator.device
        return self.reviews.rows(
            torch.randint(len(self.reviews), shape, generator=generator, device=device)
        )

    def loss(self, batch: TaskRows) -> Float[Tensor, ""]:
        """The mean cross-entropy of the labels."""

        def mean(*parts: Tensor) -> Float[Tensor, ""]:
            rows = TaskRows(*parts)
            return F.cross_entropy(answer_logits(self.model, rows)[:, 0], rows.answer[:, 0])

        return mean_in_parts(mean, batch, self.config.rows_at_once)

    def evaluate(self) -> dict[str, float]:
        """Accuracy on a part of the test reviews."""
        return {"accuracy": self.accuracy(min(WATCHED_REVIEWS, len(self.tested)))}

    def accuracy(self, n_reviews: int) -> float:
        """The accuracy on the first `n_reviews` test reviews: is the label the likeliest token?"""
        right = 0.0
        numbers = torch.arange(n_reviews, device=self.config.device)
        with torch.no_grad():
            for which in torch.split(numbers, TESTED_AT_ONCE):
                rows = self.tested.rows(which)
                logits = answer_logits(self.model, rows)
                right += right_share(logits.argmax(-1), rows.answer, whole_rows=True) * len(which)
        return right / n_reviews


class Reviews:
    """The training or test reviews as rows.

    Raises InputError if they have no labels, or labels other than 0 and 1.
    """

    def __init__(self, store: TokenStore, part: TokenPart, length: int, device: str):
        if not len(part.labels):
            raise InputError("the reviews have no column label: 0 for negative, 1 for positive")
        low, high = (int(label) for label in part.labels.aminmax())
        if low < 0 or high >= len(LABELS):
            raise InputError(f"labels must be 0 or 1, but they range from {low} to {high}")
        self.tokens = part.tokens.to(device)
        self.ends = part.ends.to(device)
        self.starts = F.pad(self.ends[:-1], (1, 0))
        tokens = [store.tokenizer.id_of(label) for label in LABELS]
        self.labels = torch.tensor(tokens)[part.labels].to(device)
        self.positions = torch.arange(length, device=device)
        self.end = store.tokenizer.end

    def __len__(self) -> int:
        return len(self.ends)

    def rows(self, which: Int[Tensor, " row"]) -> TaskRows:
        """The reviews with these indices."""
        starts = self.starts[which, None]
        ends = (self.ends[which, None] - starts - 1).clamp(max=len(self.positions) - 1)
        longest = len(self.positions) if ends.is_cuda else int(ends.max()) + 1
        positions = self.positions[:longest]
        tokens = self.tokens[starts + torch.minimum(positions, ends)].long()
        tokens = torch.where(positions < ends, tokens, self.end)
        return TaskRows(tokens, ends, self.labels[which, None])


NAME = "yelp"


class YelpTraining(TextTraining):
    """Settings of `interp train yelp`."""

    specials = LABELS
    generated_name = "generated reviews"

    def generate(self, number: int, seed: int) -> Iterator[Document]:
        """Reviews of places (see `toys.random_attention.texts`)."""
        return (Document(text, label) for text, label in texts.reviews(number, seed))


def train(config: YelpTraining, session: Session | None = None) -> TrainingRun:
    """Train every seed and keep the most accurate.

    Raises InputError if the text or the device is missing, or the text has no labels.
    """
    store = text_store(config, session)
    labels = [store.tokenizer.id_of(label) for label in LABELS]
    task = text_task(NAME, config, store, labels=labels)

    def score(problem: ReviewProblem, fitted: Fitted) -> Mapping[str, Any]:
        accuracy = problem.accuracy(len(problem.tested))
        return {
            "accuracy": accuracy,
            "error": 1 - accuracy,
            "loss": fitted.loss,
            "trainable": trainable_parameters(problem.model),
        }

    runs = train_seeds(
        NAME,
        config,
        lambda seed: ReviewProblem(config, seed, store, NAME),
        score,
        session,
        by="error",
        task=task,
    )
    keep_tokenizer(store, session)
    positive = store.test.labels.double().mean().item()
    measured = FinalScore(
        name="accuracy",
        value=runs.scores["accuracy"],
        better="higher",
        unit="share",
        guess=max(positive, 1 - positive),
        examples=len(store.test.labels),
        guess_rule="always naming the more frequent label",
    )
    return TrainingRun(
        model=runs.model,
        verdict=_verdict(config, runs, measured),
        columns=runs.columns,
        rows=runs.rows,
        task=task,
        training={**runs.record(), **measured.recorded(), "text": _facts(config, store)},
    )


def _facts(config: YelpTraining, store: TokenStore) -> dict[str, Any]:
    """Facts about the reviews: sizes, and, for generated ones, the best possible accuracy."""
    facts = document_facts(store)
    if config.text == GENERATED:
        facts["best_accuracy"] = texts.best_accuracy()
    return facts


def _verdict(config: YelpTraining, runs: SeedRuns, measured: FinalScore) -> str:
    reached = [scores["accuracy"] for scores in runs.by_seed.values()]
    seeds = worst_of(reached, min, partial(percent, digits=2))
    guess = "" if measured.guess is None else percent(measured.guess, 2)
    return (
        f"{NAME}, {config.variant}: {percent(measured.value, 2)} of {measured.examples:,} held-out "
        f"reviews are classified correctly, where {measured.guess_rule} gives {guess}{seeds}."
    )


_YELP = {"text": "fancyzhx/yelp_polarity:plain_text"}
RECIPE = Recipe(
    name=NAME,
    summary="whether a review is positive: Yelp polarity from a local copy (--set text=FOLDER), "
    "or generated reviews",
    config=YelpTraining,
    variants=BY_VARIANT,
    presets={
        "small": {
            **_YELP,
            "d_model": 64,
            "lr": 3e-3,
            "rows": 64,
            "steps": 800,
            "vocabulary": 4_096,
            "documents": 20_000,
            "test_documents": 2_000,
            "length": 128,
        },
        "paper": {
            **_YELP,
            "layers": 4,
            "d_model": 1_024,
            "heads": 16,
            "lr": 5e-4,
            "rows": 256,
            "steps": 10_000,
            "warm_up": 500,
            "vocabulary": 32_000,
            "documents": 0,
            "test_documents": 0,
            "length": 256,
            "rows_at_once": 64,
        },
    },
    train=train,
)
