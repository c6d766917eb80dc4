"""Training steps per second of model variants of equal shape, timed in turn in one process.

A step is the next-token loss on random tokens, its gradient, and an AdamW update of the variant's
trained parameters. Every round times a few steps of each variant in turn, so that other load on the
machine affects all of them. Ratios within a round are compared.

Freezing weights saves their gradients and optimizer steps; gradients still pass through queries and
keys to earlier trained parameters. `frozen_share` is the fraction of the matrix products'
arithmetic that this saves, a bound on the gain of frozen-qk. `products` counts the arithmetic for
mixed attention or none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.random_attention.variants import Variant, freeze, variant_config

TIMED: tuple[Variant, ...] = ("standard", "frozen-qk", "mixit")

Attention = Literal["softmax", "mixed", "none"]
Loss = Callable[[torch.Tensor], Any]
Steps = Callable[[], float]


@dataclass(frozen=True)
class TimingSizes:
    """Sizes of the timed models.

    Attributes:
        n_layers, d_model, n_heads, n_ctx, d_vocab: sizes of the models.
        rows: number of prompts in a batch.
        steps: steps of each variant in a round.
        rounds: number of rounds, after one that is not counted.
        lr: learning rate of AdamW.
    """

    n_layers: int
    d_model: int
    n_heads: int
    n_ctx: int
    d_vocab: int
    rows: int
    steps: int
    rounds: int
    lr: float = 1e-4

    def config(
        self, variant: Variant, seed: int, dtype: torch.dtype = torch.float32
    ) -> TransformerConfig:
        """A variant of this shape."""
        return variant_config(
            variant,
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            d_model=self.d_model,
            n_ctx=self.n_ctx,
            d_vocab=self.d_vocab,
            dtype=dtype,
            seed=seed,
        )

    def tokens(self, seed: int, device: str) -> torch.Tensor:
        """A batch of random tokens."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(self.d_vocab, (self.rows, self.n_ctx), generator=generator).to(device)


def variant_loss(cfg: TransformerConfig, variant: Variant, device: str) -> tuple[Loss, Any]:
    """The loss of a model, and the parameters that the variant trains."""
    model = Transformer(cfg).to(device)
    model.check_tokens = False
    freeze(model, variant)
    return lambda tokens: model(tokens, return_type="loss"), model.parameters()


def stepper(loss: Loss, parameters: Any, tokens: torch.Tensor, steps: int, lr: float) -> Steps:
    """A function that takes `steps` steps and returns steps per second."""
    trained = [p for p in parameters if p.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=lr)

    def run() -> float:
        _wait(tokens)
        start = time.perf_counter()
        for _ in range(steps):
            optimiser.zero_grad()
            loss(tokens).backward()
            optimiser.step()
        _wait(tokens)
        return steps / (time.perf_counter() - start)

    return run


def rates(timed: Mapping[str, Steps], rounds: int) -> dict[str, list[float]]:
    """Steps per second by round, after one round that is not counted."""
    for run in timed.values():
        run()
    found: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(rounds):
        for name, run in timed.items():
            found[name].append(run())
    return found


def variant_rates(
    sizes: TimingSizes, seed: int, device: str, variants: Sequence[Variant] = TIMED
) -> dict[str, list[float]]:
    """Steps per second of every variant, by round, with models and tokens of a seed."""
    tokens = sizes.tokens(seed, device)
    timed: dict[str, Steps] = {}
    for variant in variants:
        loss, parameters = variant_loss(sizes.config(variant, seed), variant, device)
        timed[variant] = stepper(loss, parameters, tokens, sizes.steps, sizes.lr)
    return rates(timed, sizes.rounds)


def gains(of: Mapping[str, Sequence[float]], variant: str) -> list[float]:
    """The relative gain in steps per second over standard, by round."""
    return [a / b - 1 for a, b in zip(of[variant], of["standard"], strict=True)]


def products(cfg: TransformerConfig, attention: Attention = "softmax") -> int:
    """Multiplications per position in a forward pass's matrix products, with this attention."""
    assert cfg.d_mlp is not None
    projection, pattern = (
        cfg.d_model * cfg.n_heads * cfg.d_head,
        cfg.n_ctx * cfg.n_heads * cfg.d_head,
    )
    inside = {
        "softmax": 4 * projection + 2 * pattern,
        "mixed": 2 * projection + pattern,
        "none": 0,
    }
    layer = inside[attention] + 3 * cfg.d_model * cfg.d_mlp
    return cfg.n_layers * layer + cfg.d_model * cfg.d_vocab


def frozen_share(cfg: TransformerConfig) -> float:
    """Weight gradients of W_Q and W_K as a fraction of all matrix products of a standard step."""
    projections = 2 * cfg.d_model * cfg.n_heads * cfg.d_head
    return cfg.n_layers * projections / (3 * products(cfg))


def _wait(tokens: torch.Tensor) -> None:
    if tokens.is_cuda:
        torch.cuda.synchronize()
