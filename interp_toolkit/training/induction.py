"""Train small models on repeated random tokens: `interp train induction`.

Each row is a prefix of random tokens, then a segment of random tokens repeated up to the row's end;
lengths vary by row and every batch is new. From the second occurrence of the segment on, the next
token follows from the context alone, by an induction head and the previous-token head that it
depends on. The loss is over those tokens only, which makes the circuit form several times sooner
than a loss over all. The prefix keeps the head from learning only the positions at which repeats
start.
Source: Olsson et al. 2022, "In-context Learning and Induction Heads"; the prompts are their
repeated random tokens.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from interp_toolkit.formatting import percent
from interp_toolkit.models.transformer.config import DTYPES, TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer, next_token_loss
from interp_toolkit.registry import Recipe, Session, TrainingRun
from interp_toolkit.training.engine.settings import Betas, Problem, Schedule, TrainingSettings
from interp_toolkit.training.engine.trainer import Fitted, SeedRuns, train_seeds

SOLVED = 0.95  # accuracy on repeated tokens
TEST_ROWS = 256
TEST_SEED = 2**31  # differs from all training seeds


class InductionTraining(TrainingSettings):
    """Settings of `interp train induction`, in addition to those of `TrainingSettings`.

    Attributes:
        layers, heads, d_model, d_head: sizes of the model.
        d_vocab: number of tokens.
        n_ctx: number of positions.
        positions: "standard" (learned, absolute), "rotary" or "none".
        d_mlp: neurons of a ReLU MLP in each layer; 0: attention only.
        normalization: "LN" or "RMS" before attention, MLP and unembedding; None: none.
        shortest, longest: smallest and largest length of the segments that repeat.
        rows: number of rows in a batch.
        initial_std: standard deviation of the initial weights; with a small one, a single head
            learns what several could share.
    """

    layers: int = Field(2, ge=1, le=100)
    heads: int = Field(3, ge=1, le=1_024)
    d_model: int = Field(32, ge=1, le=16_384)
    d_head: int = Field(8, ge=1, le=16_384)
    d_vocab: int = Field(48, ge=3, le=1_000_000)
    n_ctx: int = Field(48, ge=8, le=100_000)
    positions: Literal["standard", "rotary", "none"] = "standard"
    d_mlp: int = Field(0, ge=0, le=65_536)
    normalization: Literal["LN", "RMS"] | None = None
    shortest: int = Field(6, ge=3)
    longest: int = Field(24, ge=3)
    rows: int = Field(64, ge=1, le=1_000_000)
    steps: int = Field(2_000, ge=1)
    lr: float = Field(0.01, gt=0, le=10, allow_inf_nan=False)
    schedule: Schedule = "linear"
    warm_up: int = Field(50, ge=0)
    optimiser: Literal["adam", "adamw"] = "adamw"
    betas: Betas = (0.9, 0.98)
    weight_decay: float = Field(0.1, ge=0, allow_inf_nan=False)
    initial_std: float = Field(0.03, gt=0, le=10, allow_inf_nan=False)
    seed: int = Field(0, ge=0, lt=2**30)

    @model_validator(mode="after")
    def _repeats_fit(self) -> InductionTraining:
        if not self.shortest <= self.longest <= self.n_ctx // 2:
            raise ValueError(
                f"segments of {self.shortest} to {self.longest} tokens must fit twice into "
                f"{self.n_ctx} positions, the shortest first"
            )
        if self.positions == "rotary" and self.d_head % 2:
            raise ValueError(f"d_head is {self.d_head}; rotary positions need an even one")
        return self

    def model_config_of(self, seed: int) -> TransformerConfig:
        """The model's configuration."""
        return TransformerConfig(
            n_layers=self.layers,
            d_model=self.d_model,
            n_ctx=self.n_ctx,
            d_head=self.d_head,
            n_heads=self.heads,
            d_vocab=self.d_vocab,
            attn_only=self.d_mlp == 0,
            d_mlp=self.d_mlp or None,
            act_fn="relu" if self.d_mlp else None,
            biases=self.d_mlp > 0,
            normalization_type=self.normalization,
            positional_embedding_type=self.positions,
            dtype=DTYPES[self.dtype],
            seed=seed,
            initializer_range=self.initial_std,
            model_name="induction",
        )


class InductionRows(NamedTuple):
    """Prompts: token ids, and for each next token whether it is a repeat or a first occurrence."""

    tokens: Int[Tensor, "row pos"]
    repeated: Bool[Tensor, "row next"]
    first: Bool[Tensor, "row next"]


class InductionScores(NamedTuple):
    """Losses (nats) on repeated tokens and on those before, and accuracy on repeated tokens."""

    second: float
    first: float
    accuracy: float


def draw_rows(config: InductionTraining, n_rows: int, generator: torch.Generator) -> InductionRows:
    """A new random batch, on the generator's device.

    The tokens of prefix and segment are distinct if d_vocab is at least n_ctx. `repeated` marks
    next tokens that the context determines, `first` those in the prefix and the segment's first
    occurrence. The first token of the second occurrence belongs to neither.
    """
    n_pos, d_vocab = config.n_ctx, config.d_vocab
    drawing: dict[str, Any] = {"generator": generator, "device": generator.device}
    period = torch.randint(config.shortest, config.longest + 1, (n_rows, 1), **drawing)
    share = torch.rand(n_rows, 1, **drawing)
    prefix = (share * (n_pos - 2 * period + 1)).long()
    order = torch.rand(n_rows, -(-n_pos // d_vocab), d_vocab, **drawing)
    letters = order.argsort(-1).flatten(1)
    positions = torch.arange(n_pos, device=generator.device)
    source = torch.where(positions < prefix, positions, prefix + (positions - prefix) % period)
    repeated = positions[:-1] >= prefix + period
    first = positions[:-1] < prefix + period - 1
    return InductionRows(letters.gather(1, source), repeated, first)


def evaluate(model: Transformer, rows: InductionRows) -> InductionScores:
    """Losses and accuracy on these rows."""
    with torch.no_grad():
        logits = model(rows.tokens)
    losses = next_token_loss(logits, rows.tokens, per_token=True)
    right = logits[:, :-1].argmax(-1) == rows.tokens[:, 1:]
    return InductionScores(
        losses[rows.repeated].mean().item(),
        losses[rows.first].mean().item(),
        right[rows.repeated].double().mean().item(),
    )


class InductionProblem(Problem):
    """One seed's model on new random rows; the loss is on tokens that the context determines."""

    capturable = True

    def __init__(self, config: InductionTraining, seed: int):
        self.config = config
        self.model = Transformer(config.model_config_of(seed)).to(config.device)

    def draw(self, generator: torch.Generator) -> InductionRows:
        """New random rows."""
        return draw_rows(self.config, self.config.rows, generator)

    def loss(self, batch: InductionRows) -> Float[Tensor, ""]:
        """The mean cross-entropy of the tokens that the context determines."""
        losses = next_token_loss(self.model(batch.tokens), batch.tokens, per_token=True)
        return (losses * batch.repeated).sum() / batch.repeated.sum()


def train(config: InductionTraining, session: Session | None = None) -> TrainingRun:
    """Train every seed and keep the best; raises InputError if the device is missing."""
    test_rows = draw_rows(config, TEST_ROWS, torch.Generator().manual_seed(TEST_SEED))

    def score(problem: Problem, fitted: Fitted) -> dict[str, Any]:
        test = InductionRows(*(tensor.to(config.device) for tensor in test_rows))
        scores = evaluate(problem.model, test)
        return {**scores._asdict(), "solved": scores.accuracy > SOLVED}

    about = {"name": "induction"}
    runs = train_seeds(
        "induction",
        config,
        lambda seed: InductionProblem(config, seed),
        score,
        session,
        by="second",
        task=about,
    )
    return TrainingRun(
        model=runs.model,
        verdict=_verdict(config, runs),
        columns=[
            "seed",
            "loss, repeated tokens",
            "loss, before",
            "accuracy, repeated tokens",
            "solved",
        ],
        rows=runs.rows,
        task=about,
        training={
            **runs.record(),
            "loss": runs.scores["second"],
            "loss_first_repeat": runs.scores["first"],
        },
    )


def _verdict(config: InductionTraining, runs: SeedRuns) -> str:
    solved = sum(scores["solved"] for scores in runs.by_seed.values())
    return (
        f"{solved} of {config.seeds} seeds solve it; the best one's loss on repeated tokens is "
        f"{runs.scores['second']:.4f} nats, before repetition {runs.scores['first']:.4f}, and it "
        f"predicts {percent(runs.scores['accuracy'], 1)} of the repeated tokens right."
    )


RECIPE = Recipe(
    name="induction",
    summary="two layers on repeated random tokens; options: layers, heads, sizes, positions, MLP",
    config=InductionTraining,
    variants={
        "attention-only": {},
        "rotary": {"positions": "rotary"},
        "mlp": {"d_mlp": 64, "normalization": "LN"},
        "1-layer": {"layers": 1},
    },
    presets={"small": {}},
    train=train,
)
