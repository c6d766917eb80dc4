"""A model variant that learns whether a review is positive, from its text.

A row is the first `length` - 1 tokens of a review and the end's token, at which the label is asked
for; shorter rows are padded behind, where a causal model cannot look back from. Rows are as long as
the longest of their batch, on a GPU `length`, since a recorded step has one shape. The labels are
tokens of their own, and the loss is the mean cross-entropy (nats) of the right one.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.data.text.token_store import TokenPart, TokenStore
from interp_toolkit.errors import InputError
from interp_toolkit.toys.random_attention.task import TaskRows, right_share
from interp_toolkit.training.engine.acceleration import mean_in_parts
from interp_toolkit.training.engine.problem import Problem
from interp_toolkit.training.tasks.problem import answer_logits
from interp_toolkit.training.text.settings import TextTraining

LABELS = ("<|negative|>", "<|positive|>")  # tokens, by label
WATCHED_REVIEWS = 512  # test reviews that are looked at along the training
TESTED_AT_ONCE = 256


class ReviewProblem(Problem):
    """One seed's model and the reviews.

    Attributes:
        reviews, tested: to learn from and to test on.
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
        """Reviews to learn from, with replacement."""
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
        """Accuracy on some of the test reviews."""
        return {"accuracy": self.accuracy(min(WATCHED_REVIEWS, len(self.tested)))}

    def accuracy(self, n_reviews: int) -> float:
        """The share of the first test reviews whose label is the likeliest token."""
        right = 0.0
        numbers = torch.arange(n_reviews, device=self.config.device)
        with torch.no_grad():
            for which in torch.split(numbers, TESTED_AT_ONCE):
                rows = self.tested.rows(which)
                logits = answer_logits(self.model, rows)
                right += right_share(logits.argmax(-1), rows.answer, whole_rows=True) * len(which)
        return right / n_reviews


class Reviews:
    """The reviews of a part as rows.

    Raises InputError when they have no labels, or others than 0 and 1.
    """

    def __init__(self, store: TokenStore, part: TokenPart, length: int, device: str):
        if not len(part.labels):
            raise InputError("the reviews have no column label: 0 for negative, 1 for positive")
        low, high = (int(label) for label in part.labels.aminmax())
        if low < 0 or high >= len(LABELS):
            raise InputError(f"labels are 0 and 1, but there are some from {low} to {high}")
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
        """Some of the reviews, by number."""
        starts = self.starts[which, None]
        ends = (self.ends[which, None] - starts - 1).clamp(max=len(self.positions) - 1)
        longest = len(self.positions) if ends.is_cuda else int(ends.max()) + 1
        positions = self.positions[:longest]
        tokens = self.tokens[starts + torch.minimum(positions, ends)].long()
        tokens = torch.where(positions < ends, tokens, self.end)
        return TaskRows(tokens, ends, self.labels[which, None])
