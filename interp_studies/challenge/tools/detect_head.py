"""TransformerLens' `detect_head`: the fraction of attention on a known pattern.

It detects previous-token, duplicate-token and induction heads, from attention alone. Its score is
not a probability that the answers depend on the head; it is used as one here, as users do. It is
run on the model's own prompts, one by one, through an object with `cfg`, `to_tokens` and
`run_with_cache`. It does not support bidirectional attention.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from interp_studies.challenge.question import Question
from interp_studies.challenge.tools.tool import Answer
from interp_toolkit.models.model import Model

PATTERNS = {
    "previous-token": "previous_token_head",
    "duplicate-token": "duplicate_token_head",
    "induction": "induction_head",
}
ROWS = 16


class DetectHead:
    """`detect_head` as a tool; it answers questions about its patterns in causal models."""

    name = "detect_head"

    def score(self, model: Model, question: Question) -> Answer:
        """See `Tool`."""
        from transformer_lens.head_detector import detect_head

        pattern = PATTERNS.get(question.about)
        if question.kind != "head-relation" or pattern is None or question.data is None:
            return None
        if getattr(model.cfg, "attention_dir", "causal") != "causal":
            return None
        scores = [
            detect_head(_OneRow(model, torch.from_numpy(row)[None]), "row", pattern)
            for row in question.data.tokens[:ROWS]
        ]
        mean = torch.stack(scores).mean(0).clamp(0, 1)
        return [float(mean[head.layer, head.head]) for head in question.items]


class _OneRow:
    """The part of a model's interface that `detect_head` uses, for one prompt of token ids."""

    def __init__(self, model: Model, row: Tensor):
        cfg = model.cfg
        # detect_head wants rows shorter than the context; the model itself does not
        self.cfg = SimpleNamespace(
            n_layers=cfg.n_layers,
            n_heads=cfg.n_heads,
            n_ctx=max(cfg.n_ctx, row.shape[1] + 1),
            dtype=cfg.dtype,
            device="cpu",
        )
        self.model, self.row = model, row

    def to_tokens(self, text: str) -> Tensor:
        """The prompt's token ids, whatever the text."""
        return self.row

    def run_with_cache(self, tokens: Tensor, **options: Any) -> Any:
        """The model's `run_with_cache`."""
        return self.model.run_with_cache(tokens, **options)  # type: ignore[attr-defined]
