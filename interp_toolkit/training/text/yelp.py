"""`interp train yelp`: is a review positive? The model variants on sentiment classification.

Reviews come from the data set Yelp polarity, a local copy of it or any other text with labels 0
and 1, or are generated (`--set text=generated`).
Source: "Is random attention sufficient for sequence modeling?", sections 3.1 and C.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from interp_toolkit.data.text.texts import Document
from interp_toolkit.data.text.token_store import TokenStore
from interp_toolkit.registry import Recipe, Session, TrainingRun
from interp_toolkit.toys.random_attention import reviews
from interp_toolkit.toys.random_attention.variants import trainable_parameters
from interp_toolkit.training.engine.metrics import FinalScore, percent
from interp_toolkit.training.engine.seeds import SeedRuns, train_seeds
from interp_toolkit.training.engine.trainer import Fitted
from interp_toolkit.training.tasks.settings import BY_VARIANT
from interp_toolkit.training.text.record import document_facts, text_task, worst_of
from interp_toolkit.training.text.review_problem import LABELS, ReviewProblem
from interp_toolkit.training.text.settings import (
    GENERATED,
    TextTraining,
)
from interp_toolkit.training.text.store import keep_tokenizer, text_store

NAME = "yelp"


class YelpTraining(TextTraining):
    """Settings of `interp train yelp`."""

    specials = LABELS
    generated_name = "generated reviews"

    def generate(self, number: int, seed: int) -> Iterator[Document]:
        """Reviews of places (see `toys.random_attention.reviews`)."""
        return (Document(text, label) for text, label in reviews.reviews(number, seed))


def train(config: YelpTraining, session: Session | None = None) -> TrainingRun:
    """Train every seed and keep the most accurate.

    Raises InputError when the text or the device is not there, or the text has no labels.
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
        guess_rule="naming the commoner label",
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
    """What is known of the reviews: sizes, and, for generated ones, what can be reached."""
    facts = document_facts(store)
    if config.text == GENERATED:
        facts["best_accuracy"] = reviews.best_accuracy()
    return facts


def _verdict(config: YelpTraining, runs: SeedRuns, measured: FinalScore) -> str:
    reached = [scores["accuracy"] for scores in runs.by_seed.values()]
    seeds = worst_of(reached, min, percent)
    guess = "" if measured.guess is None else percent(measured.guess)
    return (
        f"{NAME}, {config.variant}: {percent(measured.value)} of {measured.examples:,} held-out "
        f"reviews are told right, where {measured.guess_rule} gives {guess}{seeds}."
    )


_YELP = {"text": "fancyzhx/yelp_polarity:plain_text"}
RECIPE = Recipe(
    name=NAME,
    summary="is a review positive? Yelp polarity, a local copy (--set text=FOLDER), or generated",
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
