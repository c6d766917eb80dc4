"""What the recipes on text leave in a checkpoint and in a verdict, whatever the text is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from interp_toolkit.data.text.token_store import TokenStore
from interp_toolkit.training.text.settings import TextTraining


def text_task(name: str, config: TextTraining, store: TokenStore, **further: Any) -> dict[str, Any]:
    """The task record: what the tokens are of, and what else belongs to the task."""
    return {
        "name": name,
        "text": config.text,
        "length": config.length,
        "end": store.tokenizer.end,
        **further,
        "tokenizer_sha256": store.tokenizer.sha256(),
    }


def document_facts(store: TokenStore) -> dict[str, Any]:
    """The numbers of documents and tokens."""
    return {
        "train_documents": len(store.train.ends),
        "test_documents": len(store.test.ends),
        "left_out_as_repeated": store.repeated,
        "vocabulary": store.tokenizer.n_tokens,
    }


def worst_of(
    reached: Sequence[float],
    worst: Callable[[Sequence[float]], float],
    written: Callable[[float], str],
) -> str:
    """How the worst seed did, to end a sentence with; nothing of a single seed.

    Args:
        reached: by the seeds.
        worst: picks the worst of several.
        written: a figure as text.
    """
    if len(reached) < 2:
        return ""
    return f"; the worst of {len(reached)} seeds: {written(worst(reached))}"
