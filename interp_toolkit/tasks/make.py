"""A task's rows for a model, through the tokenizer that it comes with."""

from __future__ import annotations

from typing import Any

from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.registry import find

ROWS = 64


def task(model: Any, name: str, *, rows: int = ROWS, seed: int = 0) -> FeatureData:
    """The prompts of a task, with answers, wrong answers and corrupted prompts, for this model.

    Args:
        model: any TransformerLens model with a tokenizer.
        name: of the task, as `interp list tasks` shows them.
        rows: how many, all of one length.
        seed: of the draw; the same seed gives the same rows.

    Raises:
        InputError: an unknown name; a wrong seed or number of rows; a model without a tokenizer, or
            with one that has not the tokens, or whose context is too short for the rows.

    Examples:
        >>> import interp_toolkit as it
        >>> task(it.load("toy:induction"), "successor")
        Traceback (most recent call last):
            ...
        interp_toolkit.errors.InputError: this model has no tokenizer, so the task 'successor' \
cannot be made for it; give rows of token ids (--data)
    """
    maker = find("tasks", name)
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        raise InputError(
            f"this model has no tokenizer, so the task {name!r} cannot be made for it; give rows "
            "of token ids (--data)"
        )
    found: FeatureData = maker.make(tokenizer, rows, seed)
    n_ctx = int(model.cfg.n_ctx)
    if found.lengths.max() > n_ctx:
        raise InputError(
            f"rows of the task {name!r} have {found.lengths.max()} tokens, and the model's context "
            f"is {n_ctx}"
        )
    return found.check_vocabulary(int(model.cfg.d_vocab))
