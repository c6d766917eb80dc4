"""`interp train wikitext | fineweb-edu | toy-text`: the model variants on language modelling.

The measure is the log perplexity: nats a token on held-out text. It depends on the tokenizer, which
the source does not name; figures of runs with different tokenizers are not comparable.
Source: "Is random attention sufficient for sequence modeling?", sections 3.1 and C.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from interp_toolkit.data.text.texts import Document
from interp_toolkit.data.text.token_store import TokenStore
from interp_toolkit.registry import Recipe, Session, TrainingRun
from interp_toolkit.toys.random_attention import generated_text
from interp_toolkit.toys.random_attention.variants import trainable_parameters
from interp_toolkit.training.engine.metrics import FinalScore
from interp_toolkit.training.engine.seeds import SeedRuns, train_seeds
from interp_toolkit.training.engine.trainer import Fitted
from interp_toolkit.training.tasks.settings import BY_VARIANT
from interp_toolkit.training.text.language_problem import LanguageProblem, cut
from interp_toolkit.training.text.record import document_facts, text_task, worst_of
from interp_toolkit.training.text.settings import (
    GENERATED,
    TEST_SEED,
    TextTraining,
)
from interp_toolkit.training.text.store import keep_tokenizer, text_store

MEASURE = "log_perplexity"


class LanguageTraining(TextTraining):
    """Settings of the language models."""

    generated_name = "a generated text about people"

    def generate(self, number: int, seed: int) -> Iterator[Document]:
        """Documents about people (see `toys.random_attention.generated_text`)."""
        return map(Document, generated_text.passages(number, seed))


def train_language(
    name: str, config: LanguageTraining, session: Session | None = None
) -> TrainingRun:
    """Train every seed and keep the one that predicts held-out text best.

    Args:
        name: the recipe's.
        config: its settings.
        session: where to keep files and whom to tell.

    Raises:
        InputError: the text or the device is not there, or the text is too short.
    """
    store = text_store(config, session)
    task = text_task("language-modelling", config, store)

    def score(problem: LanguageProblem, fitted: Fitted) -> Mapping[str, Any]:
        log_perplexity = problem.log_perplexity(problem.test_rows)
        return {
            MEASURE: log_perplexity,
            "perplexity": math.exp(min(log_perplexity, 700.0)),
            "loss": fitted.loss,
            "trainable": trainable_parameters(problem.model),
        }

    runs = train_seeds(
        name,
        config,
        lambda seed: LanguageProblem(config, seed, store, name),
        score,
        session,
        by=MEASURE,
        task=task,
    )
    keep_tokenizer(store, session)
    measured = FinalScore(
        name=MEASURE,
        value=runs.scores[MEASURE],
        better="lower",
        unit="nats",
        guess=store.unigram,
        examples=len(cut(store.test.tokens, config.length)),
        guess_rule="token frequencies alone",
    )
    return TrainingRun(
        model=runs.model,
        verdict=_verdict(name, config, runs, measured),
        columns=runs.columns,
        rows=runs.rows,
        task=task,
        training={**runs.record(), **measured.recorded(), "text": _facts(config, store)},
    )


def _facts(config: LanguageTraining, store: TokenStore) -> dict[str, Any]:
    """What is known of the text: sizes, and, for a generated one, what no model can beat.

    `least` is the mean surprise of the test's rows to whoever knows the grammar, word by word, and
    so token by token where the tokenizer makes one of each word.
    """
    facts: dict[str, Any] = {
        "train_tokens": len(store.train.tokens),
        "test_tokens": len(store.test.tokens),
        **document_facts(store),
        "unigram": store.unigram,
    }
    if config.text == GENERATED:
        reading = generated_text.read(
            generated_text.passages(config.test_documents, TEST_SEED), config.length
        )
        facts["least"], facts["told_by_context"] = reading
    return facts


def _verdict(name: str, config: LanguageTraining, runs: SeedRuns, measured: FinalScore) -> str:
    reached = [scores[MEASURE] for scores in runs.by_seed.values()]
    seeds = worst_of(reached, max, "{:.3f}".format)
    return (
        f"{name}, {config.variant}: log perplexity {measured.value:.3f} nats a token on "
        f"{measured.examples:,} held-out rows of {config.length}, where {measured.guess_rule} "
        f"give {measured.guess:.3f}{seeds}."
    )


def language_recipe(name: str, summary: str, presets: Mapping[str, Mapping[str, Any]]) -> Recipe:
    """The recipe of a text in every variant."""
    return Recipe(
        name=name,
        summary=summary,
        config=LanguageTraining,
        variants=BY_VARIANT,
        presets=presets,
        train=partial(train_language, name),
    )


_PAPER = {
    "layers": 12,
    "d_model": 512,
    "heads": 8,
    "lr": 5e-4,
    "rows": 512,
    "steps": 40_000,
    "warm_up": 1_000,
    "vocabulary": 32_000,
}
_SMALL = {"layers": 4, "d_model": 128, "rows": 32, "steps": 2_000, "vocabulary": 2_048}
_WIKITEXT = {"text": "Salesforce/wikitext:wikitext-103-raw-v1"}
_FINEWEB_EDU = {"text": "HuggingFaceFW/fineweb-edu:sample-10BT"}

WIKITEXT = language_recipe(
    "wikitext",
    "language modelling on Wikitext-103, from a hub or a local copy (--set text=FOLDER)",
    {
        "small": {**_WIKITEXT, **_SMALL, "documents": 50_000, "test_documents": 1_000},
        "paper": {
            **_WIKITEXT,
            **_PAPER,
            "length": 256,
            "documents": 0,
            "test_documents": 0,
            "rows_at_once": 128,
        },
    },
)
FINEWEB_EDU = language_recipe(
    "fineweb-edu",
    "language modelling on FineWeb-Edu, from a hub or a local copy (--set text=FOLDER)",
    {
        "small": {**_FINEWEB_EDU, **_SMALL, "documents": 5_000, "test_documents": 200},
        "paper": {
            **_FINEWEB_EDU,
            **_PAPER,
            "length": 2_048,
            "documents": 1_048_576,
            "test_documents": 4_096,
            "rows_at_once": 16,
        },
    },
)
TOY_TEXT = language_recipe(
    "toy-text",
    "language modelling on a small generated text whose people's names recur",
    {"small": {"d_model": 64, "rows": 32, "lr": 2e-3, "steps": 1_200}},
)
