"""TransformerLens' `detect_head`, of either major: the share of attention on a known pattern.

It knows previous-token, duplicate-token and induction heads, and reads attention alone, so that its
score is no probability that answers rest on it; it is taken as one, as users take it. It is given
rows that the model is for, one by one, through what it asks of a model: `cfg`, `to_tokens` and
`run_with_cache`. Bidirectional attention it does not know.
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
    """See the module; other questions, and causal models' other relations, it does not answer."""

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
    """What `detect_head` asks of a model, for a row of token ids instead of text."""

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
        """The row, whatever the text."""
        return self.row

    def run_with_cache(self, tokens: Tensor, **options: Any) -> Any:
        """As the model does it."""
        return self.model.run_with_cache(tokens, **options)  # type: ignore[attr-defined]
