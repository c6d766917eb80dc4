"""A model variant that learns to predict the next token of a text.

Rows are windows of `length` tokens at random places of the training documents, one after another;
a window may begin in the middle of a document and go on into the next. The test is all of the held
out documents, cut into rows. The loss is the mean cross-entropy (nats) of all tokens of a row but
the first: the log perplexity.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.data.text.token_store import TokenStore
from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.transformer import next_token_loss
from interp_toolkit.training.engine.acceleration import mean_in_parts
from interp_toolkit.training.engine.problem import Problem
from interp_toolkit.training.text.settings import TextTraining

WATCHED_ROWS = 128  # test rows that are looked at along the training
TESTED_AT_ONCE = 64  # rows


class LanguageProblem(Problem):
    """One seed's model, the training tokens and the test rows.

    Attributes:
        tokens: the training documents.
        test_rows: the held-out documents, cut; an incomplete row at the end is left out.
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
        """Windows at random places."""
        shape = (self.config.rows, 1)
        start = torch.randint(self.n_starts, shape, generator=generator, device=generator.device)
        return self.tokens[start + self.window].long()

    def loss(self, batch: Int[Tensor, "row pos"]) -> Float[Tensor, ""]:
        """The log perplexity."""
        return mean_in_parts(self._log_perplexity, [batch], self.config.rows_at_once)

    def evaluate(self) -> dict[str, float]:
        """The log perplexity of some test rows."""
        return {"log_perplexity": self.log_perplexity(self.test_rows[:WATCHED_ROWS])}

    def log_perplexity(self, rows: Int[Tensor, "row pos"]) -> float:
        """The mean over all tokens of these rows but the first ones."""
        total = 0.0
        with torch.no_grad():
            for part in torch.split(rows, TESTED_AT_ONCE):
                loss = self._log_perplexity(part.to(self.config.device).long())
                total += loss.item() * len(part)
        return total / len(rows)

    def _log_perplexity(self, tokens: Int[Tensor, "row pos"]) -> Float[Tensor, ""]:
        return next_token_loss(self.model(tokens), tokens)


def cut(tokens: Int[Tensor, " token"], length: int) -> Int[Tensor, "row pos"]:
    """Tokens as rows, one after another, without what is left at the end."""
    n_rows = len(tokens) // length
    return tokens[: n_rows * length].view(n_rows, length)
