"""Language modeling: `interp train wikitext`, `fineweb-edu` and `toy-text`, every model variant.

Rows are windows of `length` tokens at random positions of the concatenated training documents; a
window may begin in the middle of a document and continue into the next. The test consists of the
concatenated held-out documents, cut into rows. The loss is the mean cross-entropy (nats) of all
tokens of a row but the first: the log perplexity.

The metric is the log perplexity: nats per token on held-out text. It depends on the tokenizer,
which the source does not name; numbers of runs with different tokenizers are not comparable.
Source: "Is random attention sufficient for sequence modeling?", sections 3.1 and C.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.data.text.texts import Document
from interp_toolkit.data.text.token_store import TokenStore
from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.transformer import next_token_loss
from interp_toolkit.registry import Recipe, Session, TrainingRun
from interp_toolkit.toys.random_attention import texts
from interp_toolkit.toys.random_attention.variants import trainable_parameters
from interp_toolkit.training.engine.acceleration import mean_in_parts
from interp_toolkit.training.engine.metrics import FinalScore
from interp_toolkit.training.engine.settings import Problem
from interp_toolkit.training.engine.trainer import Fitted, SeedRuns, train_seeds
from interp_toolkit.training.tasks.problem import BY_VARIANT
from interp_toolkit.training.text.store import (
    GENERATED,
    TEST_SEED,
    TextTraining,
    document_facts,
    keep_tokenizer,
    text_store,
    text_task,
    worst_of,
)

WATCHED_ROWS = 128  # test rows for measurements during training
TESTED_AT_ONCE = 64  # rows per pass


class LanguageProblem(Problem):
    """One seed's model, the training tokens and the test rows.

    Attributes:
        tokens: token ids of the training documents.
        test_rows: those of the held-out documents, cut into rows, without an incomplete last row.
    """

    capturable = True

    def __init__(self, config: TextTraining, seed: int, store: TokenStore, name: str):
        self.config = config
        self.model = config.new_model(
            seed, d_vocab=store.tokenizer.n_tokens, n_ctx=config.length, name=name
        )
        self.tokens = store.train.tokens.to(config.device)
        self.n_starts = len(self.tokens) - config.length + 1
        self.test_rows = cut(store.test.tokens, config.length)
        if self.n_starts < 1 or not len(self.test_rows):
            raise InputError(
                f"the text is too short: {len(self.tokens)} tokens to train on and "
                f"{len(store.test.tokens)} to test on hold no row of {config.length} each: "
                "give more text, or a smaller length"
            )
        self.window = torch.arange(config.length, device=config.device)

    def draw(self, generator: torch.Generator) -> Int[Tensor, "row pos"]:
        """Windows at random positions."""
        shape = (self.config.rows, 1)
        start = torch.randint(self.n_starts, shape, generator=generator, device=generator.device)
        return self.tokens[start + self.window].long()

    def loss(self, batch: Int[Tensor, "row pos"]) -> Float[Tensor, ""]:
        """The log perplexity."""
        return mean_in_parts(self._log_perplexity, [batch], self.config.rows_at_once)

    def evaluate(self) -> dict[str, float]:
        """The log perplexity of a part of the test rows."""
        return {"log_perplexity": self.log_perplexity(self.test_rows[:WATCHED_ROWS])}

    def log_perplexity(self, rows: Int[Tensor, "row pos"]) -> float:
        """The mean loss (nats) over all tokens of these rows except each row's first."""
        total = 0.0
        with torch.no_grad():
            for part in torch.split(rows, TESTED_AT_ONCE):
                loss = self._log_perplexity(part.to(self.config.device).long())
                total += loss.item() * len(part)
        return total / len(rows)

    def _log_perplexity(self, tokens: Int[Tensor, "row pos"]) -> Float[Tensor, ""]:
        return next_token_loss(self.model(tokens), tokens)


def cut(tokens: Int[Tensor, " token"], length: int) -> Int[Tensor, "row pos"]:
    """Split tokens into consecutive rows, without an incomplete last row."""
    n_rows = len(tokens) // length
    return tokens[: n_rows * length].view(n_rows, length)


MEASURE = "log_perplexity"


class LanguageTraining(TextTraining):
    """Settings of the language models."""

    generated_name = "a generated text about people"

    def generate(self, number: int, seed: int) -> Iterator[Document]:
        """Documents about people (see `toys.random_attention.texts`)."""
        return map(Document, texts.passages(number, seed))


def train_language(
    name: str, config: LanguageTraining, session: Session | None = None
) -> TrainingRun:
    """Train every seed and keep the one with the lowest held-out log perplexity.

    Args:
        name: the recipe's.
        config: its settings.
        session: folder and callbacks.

    Raises:
        InputError: the text or the device is missing, or the text is too short.
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
    """Facts about the text: sizes, and, for a generated one, a lower bound for any model.

    `least` is the mean surprisal of the test rows for a predictor that knows the grammar, per word,
    and so per token if the tokenizer has one token per word.
    """
    facts: dict[str, Any] = {
        "train_tokens": len(store.train.tokens),
        "test_tokens": len(store.test.tokens),
        **document_facts(store),
        "unigram": store.unigram,
    }
    if config.text == GENERATED:
        reading = texts.read(texts.passages(config.test_documents, TEST_SEED), config.length)
        facts["least"], facts["told_by_context"] = reading
    return facts


def _verdict(name: str, config: LanguageTraining, runs: SeedRuns, measured: FinalScore) -> str:
    reached = [scores[MEASURE] for scores in runs.by_seed.values()]
    seeds = worst_of(reached, max, "{:.3f}".format)
    return (
        f"{name}, {config.variant}: log perplexity {measured.value:.3f} nats per token on "
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
    "language modeling on Wikitext-103, from a hub or a local copy (--set text=FOLDER)",
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
    "language modeling on FineWeb-Edu, from a hub or a local copy (--set text=FOLDER)",
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
    "language modeling on a small generated text in which names recur",
    {"small": {"d_model": 64, "rows": 32, "lr": 2e-3, "steps": 1_200}},
)
