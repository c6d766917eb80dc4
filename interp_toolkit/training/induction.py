"""Train small models on repeated random tokens: `interp train induction`.

Each row is a prefix of random tokens, then a segment of random tokens tiled to the row's end;
lengths vary by row and every batch is fresh. From the segment's second time on, the next token
follows from the context alone: what an induction head and the previous-token head it builds on
compute. The loss is over those tokens only, which makes the circuit form several times sooner than
a loss over all. The prefix keeps the head from learning only the places that repeats start at.
Source: Olsson et al. 2022, "In-context Learning and Induction Heads"; the prompts are their
repeated random tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.config import DTYPES, TransformerConfig
from interp_toolkit.models.transformer import Transformer, next_token_loss
from interp_toolkit.registry import Recipe, TrainingRun

SOLVED = 0.95  # accuracy on the second repeat
WARM_UP = 50  # steps up to the full learning rate, from which it falls to zero linearly
BETAS = (0.9, 0.98)
CURVE_POINTS = 100
REPORT_EVERY = 100  # steps between two reports of progress
TEST_ROWS = 256
TEST_SEED = 2**31  # its rows are none of those trained on


class InductionTraining(BaseModel):
    """Settings of `interp train induction`; each is a `--set` key.

    Attributes:
        layers, heads, d_model, d_head: of the model.
        d_vocab, n_ctx: tokens, and positions a row.
        positions: "standard" (learned, absolute), "rotary" or "none".
        d_mlp: neurons of a ReLU MLP in each layer; 0: attention only.
        normalization: "LN" or "RMS" before each layer and the unembedding.
        shortest, longest: of the segments that repeat.
        rows: of a batch.
        steps, lr, weight_decay: of AdamW.
        initial_std: standard deviation of the initial weights; small ones leave one head to do
            what several could share.
        seeds, seed: how many seeds, and the first.
        device, dtype: where and in what to train.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

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
    weight_decay: float = Field(0.1, ge=0, allow_inf_nan=False)
    initial_std: float = Field(0.03, gt=0, le=10, allow_inf_nan=False)
    seeds: int = Field(1, ge=1, le=100_000)
    seed: int = Field(0, ge=0, lt=2**30)
    device: str = "cpu"
    dtype: Literal["float32", "float64"] = "float32"

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


class Rows(NamedTuple):
    """Prompts: token ids, and whether each row's next token is told by the context."""

    tokens: Int[Tensor, "row pos"]
    known: Bool[Tensor, "row next"]
    first: Bool[Tensor, "row next"]


class Scores(NamedTuple):
    """Losses (nats) on the second repeat and on the first, and accuracy on the second."""

    second: float
    first: float
    accuracy: float


def draw_rows(config: InductionTraining, n_rows: int, generator: torch.Generator) -> Rows:
    """A fresh batch, drawn on the CPU, so that a seed means the same rows on every device.

    The tokens of a row are distinct as long as the vocabulary lasts. `known` marks next tokens
    within a later time round the segment, `first` those within the first and the prefix.
    """
    n_pos, d_vocab = config.n_ctx, config.d_vocab
    period = torch.randint(config.shortest, config.longest + 1, (n_rows, 1), generator=generator)
    share = torch.rand(n_rows, 1, generator=generator)
    prefix = (share * (n_pos - 2 * period + 1)).long()
    order = torch.rand(n_rows, -(-n_pos // d_vocab), d_vocab, generator=generator)
    drawn = order.argsort(-1).flatten(1)
    place = torch.arange(n_pos)
    source = torch.where(place < prefix, place, prefix + (place - prefix) % period)
    known = place[:-1] >= prefix + period
    first = place[:-1] < prefix + period - 1
    return Rows(*(x.to(config.device) for x in (drawn.gather(1, source), known, first)))


def evaluate(model: Transformer, rows: Rows) -> Scores:
    """Losses and accuracy on these rows."""
    with torch.no_grad():
        logits = model(rows.tokens)
    losses = next_token_loss(logits, rows.tokens, per_token=True)
    right = logits[:, :-1].argmax(-1) == rows.tokens[:, 1:]
    return Scores(
        losses[rows.known].mean().item(),
        losses[rows.first].mean().item(),
        right[rows.known].double().mean().item(),
    )


def train(config: InductionTraining, progress: Callable[[str], None]) -> TrainingRun:
    """Train every seed and keep the best; raises InputError when the device is not there."""
    if config.device.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("no CUDA device is available here: use --device cpu")
    test = draw_rows(config, TEST_ROWS, torch.Generator().manual_seed(TEST_SEED))
    best: tuple[Scores, Transformer, list[tuple[int, float]]] | None = None
    rows = []
    for seed in range(config.seed, config.seed + config.seeds):
        model, curve = _train_seed(config, seed, progress)
        scores = evaluate(model, test)
        rows.append([seed, *scores, scores.accuracy > SOLVED])
        if best is None or scores.second < best[0].second:
            best = scores, model, curve
    assert best is not None
    scores, model, curve = best
    return TrainingRun(
        model=model.eval(),
        verdict=_verdict(config, scores, sum(bool(row[-1]) for row in rows)),
        columns=["seed", "loss, second repeat", "loss, first", "accuracy, second", "solved"],
        rows=rows,
        task={"name": "induction"},
        training=_record(config, scores, rows, curve),
    )


def _train_seed(
    config: InductionTraining, seed: int, progress: Callable[[str], None]
) -> tuple[Transformer, list[tuple[int, float]]]:
    """One seed's model and its curve (step, loss on the second repeat)."""
    model = Transformer(config.model_config_of(seed)).to(config.device)
    model.check_tokens = False
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=config.lr, betas=BETAS, weight_decay=config.weight_decay
    )
    every = max(1, config.steps // CURVE_POINTS)
    curve: list[tuple[int, float]] = []
    for step in range(config.steps):
        loss = _loss(model, draw_rows(config, config.rows, generator))
        if step % every == 0 or step == config.steps - 1:
            curve.append((step, loss.item()))
            if step % REPORT_EVERY < every:
                progress(f"seed {seed}: step {step} of {config.steps}, loss {curve[-1][1]:.4f}")
        for group in optimiser.param_groups:
            group["lr"] = config.lr * min(1, (step + 1) / WARM_UP) * (1 - step / config.steps)
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimiser.step()
    model.check_tokens = True
    return model, curve


def _loss(model: Transformer, rows: Rows) -> Float[Tensor, ""]:
    losses = next_token_loss(model(rows.tokens), rows.tokens, per_token=True)
    return (losses * rows.known).sum() / rows.known.sum()


def _record(
    config: InductionTraining,
    scores: Scores,
    rows: list[list[Any]],
    curve: list[tuple[int, float]],
) -> dict[str, Any]:
    return {
        "recipe": "induction",
        "settings": config.model_dump(),
        "loss": scores.second,
        "loss_first_repeat": scores.first,
        "accuracy": scores.accuracy,
        "seeds": [{"seed": row[0], **Scores(*row[1:4])._asdict()} for row in rows],
        "curve": {"step": [c[0] for c in curve], "loss": [c[1] for c in curve]},
    }


def _verdict(config: InductionTraining, scores: Scores, solved: int) -> str:
    return (
        f"{solved} of {config.seeds} seeds solve it; the best one's loss on the second repeat is "
        f"{scores.second:.4f} nats, on the first {scores.first:.4f}, and it predicts "
        f"{scores.accuracy:.1%} of the second repeat right."
    )


RECIPE = Recipe(
    name="induction",
    summary="two layers on repeated random tokens; layers, heads, sizes, positions, MLP as options",
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
