"""Train small models on a boolean function of two bits: `interp train xor`.

Prompts are those of `toys.hand_set.xor`; two logits at '=' give the answer; every step uses all
four inputs. Several seeds are trained and the one with the smallest loss is kept, since some get
stuck. One attention-only head cannot compute XOR, and so its mean cross-entropy is at least ln2/2
(with positions) or (3 ln3 - 2 ln2)/4 (without). `loss_floor` returns that bound if it applies.
Source: "How many attention heads do you need to do XOR?"; the bounds are derived from its theorem.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from pydantic import Field, field_validator
from torch import Tensor

from interp_toolkit.models.transformer.config import DTYPES, TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.registry import Recipe, Session, TrainingRun
from interp_toolkit.toys.hand_set.xor import ONE, QUERY, ZERO, task
from interp_toolkit.training.engine.settings import Problem, TrainingSettings
from interp_toolkit.training.engine.trainer import Fitted, train_seeds

SOLVED = 0.01  # nats: every answer is right with a probability above 0.96


class XorTraining(TrainingSettings):
    """Settings of `interp train xor`, in addition to `TrainingSettings`; each is a `--set` key.

    Attributes:
        table: truth table over (a, b), "0110" for XOR.
        heads, d_model, d_head: sizes of the single layer.
        positions: whether there are learned positions.
        d_mlp: neurons of a ReLU MLP after the heads; 0: none.
        normalization: "LN" for LayerNorm before the layer and before the unembedding.
        biases: whether there are biases; with an MLP there always are.

    The loss is on all four inputs, so the best seed is known exactly.
    """

    curve_points: ClassVar[int] = 150

    table: str = "0110"
    heads: int = Field(2, ge=1, le=1_024)
    d_model: int = Field(8, ge=1, le=16_384)
    d_head: int = Field(4, ge=1, le=16_384)
    positions: bool = True
    d_mlp: int = Field(0, ge=0, le=65_536)
    normalization: Literal["LN"] | None = None
    biases: bool = False
    steps: int = Field(1_500, ge=1)
    lr: float = Field(0.02, gt=0, le=10, allow_inf_nan=False)
    target: float = Field(1e-3, ge=0, allow_inf_nan=False)
    seeds: int = Field(4, ge=1, le=100_000)

    @field_validator("table")
    @classmethod
    def _two_features(cls, table: str) -> str:
        if len(table) != 4 or not set(table) == {"0", "1"}:
            raise ValueError("a truth table of two bits has four bits, of both kinds, like 0110")
        return table

    def model_config_of(self, seed: int) -> TransformerConfig:
        """The model's configuration."""
        return TransformerConfig(
            n_layers=1,
            d_model=self.d_model,
            n_ctx=3,
            d_head=self.d_head,
            n_heads=self.heads,
            d_vocab=3,
            d_vocab_out=2,
            attn_only=self.d_mlp == 0,
            d_mlp=self.d_mlp or None,
            act_fn="relu" if self.d_mlp else None,
            biases=self.biases or self.d_mlp > 0,
            normalization_type=self.normalization,
            positional_embedding_type="standard" if self.positions else "none",
            dtype=DTYPES[self.dtype],
            seed=seed,
            initializer_range=1 / math.sqrt(self.d_model),
            model_name=f"xor-{self.heads}head",
        )


def loss_floor(config: XorTraining) -> float | None:
    """A lower bound on the mean cross-entropy (nats) of these models; None if none is known.

    It is known for one attention-only head on XOR or its negation, without LayerNorm.
    """
    bounded = config.heads == 1 and not config.d_mlp and config.normalization is None
    if not bounded or config.table not in ("0110", "1001"):
        return None
    if config.positions:
        return math.log(2) / 2
    return (3 * math.log(3) - 2 * math.log(2)) / 4


class XorProblem(Problem):
    """One seed's model on the four prompts."""

    capturable = True

    def __init__(self, config: XorTraining, seed: int):
        self.model = Transformer(config.model_config_of(seed)).to(config.device)
        self.tokens, self.answers = batch(config)

    def draw(self, generator: torch.Generator) -> Int[Tensor, "4 3"]:
        """The four prompts, the same in every draw."""
        return self.tokens

    def loss(self, batch: Int[Tensor, "4 3"]) -> Float[Tensor, ""]:
        """The mean cross-entropy of the answers at '='."""
        return F.cross_entropy(self.model(batch)[:, -1], self.answers)

    def accuracy(self) -> float:
        """The accuracy on the four prompts."""
        with torch.no_grad():
            right = self.model(self.tokens)[:, -1].argmax(-1) == self.answers
        return float(right.double().mean())


def batch(config: XorTraining) -> tuple[Int[Tensor, "4 3"], Int[Tensor, " 4"]]:
    """The four prompts and their answers."""
    tokens = [[a, b, QUERY] for a in (ZERO, ONE) for b in (ZERO, ONE)]
    answers = [int(bit) for bit in config.table]
    return (
        torch.tensor(tokens, device=config.device),
        torch.tensor(answers, device=config.device),
    )


def train(config: XorTraining, session: Session | None = None) -> TrainingRun:
    """Train every seed and keep the best; raises InputError if the device is missing."""
    about = task("xor" if config.table == "0110" else config.table, config.table)
    runs = train_seeds(
        "xor", config, lambda seed: XorProblem(config, seed), _score, session, task=about
    )
    floor = loss_floor(config)
    solved = sum(scores["solved"] for scores in runs.by_seed.values())
    return TrainingRun(
        model=runs.model,
        verdict=_verdict(config, solved, runs.best.loss, floor),
        columns=runs.columns,
        rows=runs.rows,
        task=about,
        training={**runs.record(), "loss_floor": floor},
    )


def _score(problem: XorProblem, fitted: Fitted) -> dict[str, Any]:
    accuracy = problem.accuracy()
    return {
        "steps": fitted.steps,
        "loss": fitted.loss,
        "accuracy": accuracy,
        "solved": accuracy == 1.0 and fitted.loss < SOLVED,
    }


def _verdict(config: XorTraining, solved: int, loss: float, floor: float | None) -> str:
    heads = f"{config.heads} head{'s' if config.heads > 1 else ''}"
    reached = f"{heads}: {solved} of {config.seeds} seeds solve it; the best loss is {loss:.4f}"
    if floor is None:
        return f"{reached} nats."
    return f"{reached} nats, and no weights can go below {floor:.4f} (one head cannot do XOR)."


RECIPE = Recipe(
    name="xor",
    summary="one layer on a boolean function of two bits; options: heads, width, MLP, LayerNorm",
    config=XorTraining,
    variants={
        "2-head": {"heads": 2},
        "1-head": {"heads": 1},
        "1-head-mlp": {"heads": 1, "d_mlp": 8},
        "1-head-ln": {"heads": 1, "normalization": "LN"},
    },
    presets={"small": {}},
    train=train,
)
