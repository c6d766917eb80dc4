"""Which heads attend more sharply than chance: `interp analyze MODEL --probe attention-entropy`.

A query with n keys can spread its attention over them with an entropy of up to ln n; in a causal
model they are those up to its own. The spread of a head is the mean of entropy / ln n over queries
with n > 1: 1 for uniform attention, 0 for attention to one key. It is held against copies of the
model with the entries of every weight tensor in random order, whose sharpest head, whichever it
is, is what a head has to beat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from pydantic import Field

from attention_entropy.entropy.figures import spread_figure
from attention_entropy.entropy.result import EntropyResult, HeadSpread
from attention_entropy.entropy.verdict import COPIES, evidence_of, verdict
from interp_toolkit.circuits import repeated_prompts
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models import activations, reinitialised
from interp_toolkit.models.about.record import digest_of_tokens, provenance
from interp_toolkit.options import Options
from interp_toolkit.registry import Analysis
from interp_toolkit.results import head_name

PATTERNS = "blocks.*.attn.hook_pattern"


# --8<-- [start:options]
class EntropyOptions(Options):
    """Options of `--probe attention-entropy`."""

    sharp: float = Field(
        0.5, gt=0, lt=1, description="Share of uniform attention's entropy that is sharp."
    )


# --8<-- [end:options]


# --8<-- [start:run]
def run(
    model: Any,
    data: FeatureData | None,
    options: EntropyOptions,
    progress: Callable[[str], None],
) -> EntropyResult:
    """Which heads attend sharply, and more so than any head of a shuffled copy.

    Args:
        model: any TransformerLens model that shows its attention patterns.
        data: rows of tokens of one length; None: random tokens that repeat.
        options: see `EntropyOptions`.
        progress: told what is being done.

    Raises:
        InputError: rows of several lengths, a context too short, attention that cannot be seen.
    """
    rows = repeated_prompts(model, seed=options.seed) if data is None else data
    tokens = torch.as_tensor(rows.tokens if data is None else data.token_matrix())
    progress("attention of the model")
    spreads = head_spreads(model, tokens, options.memory)
    sharpest = []
    for copy in range(COPIES):
        progress(f"shuffled copy {copy + 1} of {COPIES}")
        with reinitialised(model, seed=options.seed + copy):
            sharpest.append(float(head_spreads(model, tokens, options.memory).min()))
    heads = [
        HeadSpread.of(head_name(*place), float(spreads[place]), sharpest, options.sharp)
        for place in np.ndindex(*spreads.shape)
    ]
    evidence = evidence_of(heads, sharpest, options.sharp)
    described = {"source": rows.source, "rows": len(rows), "sha256": digest_of_tokens(tokens)}
    return EntropyResult(
        probe="attention-entropy",
        verdict=verdict(evidence, heads),
        evidence=evidence,
        provenance=provenance(model, described, options.settings(), options.seed),
        heads=heads,
        plots=[spread_figure(heads, sharpest, options.sharp)],
    )


# --8<-- [end:run]


def head_spreads(model: Any, tokens: torch.Tensor, memory: int | str | None) -> np.ndarray:
    """Each head's mean entropy as a share of uniform attention's, [layer head].

    Raises InputError for patterns that are no shares of attention.
    """
    causal = getattr(model.cfg, "attention_dir", "causal") == "causal"
    totals: list[np.ndarray] = []
    for batch in activations(model, tokens, PATTERNS, "all", memory=memory):
        found = np.stack([_spread(hook, batch[hook], causal=causal) for hook in batch])
        totals.append(found * len(batch.index))
    total: np.ndarray = np.sum(totals, axis=0)
    return total / len(tokens)


def _spread(hook: str, pattern: torch.Tensor, *, causal: bool) -> np.ndarray:
    """The spread of every head of a layer, [head], from patterns [row head query key]."""
    shares = pattern.double()
    if not bool(torch.isfinite(shares).all()) or bool((shares < 0).any()):
        raise InputError(f"{hook} holds no shares of attention")
    n_pos = shares.shape[-1]
    keys = torch.arange(1, n_pos + 1) if causal else torch.full((n_pos,), n_pos)
    entropy = torch.special.entr(shares).sum(-1).cpu()[..., keys > 1]
    spread: np.ndarray = (entropy / keys[keys > 1].double().log()).mean((0, 2)).numpy()
    return spread


def _unfit(model: Any, data: FeatureData | None) -> str | None:
    try:
        rows = repeated_prompts(model, rows=2).tokens if data is None else data.token_matrix()
        head_spreads(model, torch.as_tensor(rows[:2]), None)
    except InputError as error:
        return str(error)
    return None


# --8<-- [start:register]
ATTENTION_ENTROPY = Analysis(
    "attention-entropy",
    "which heads attend more sharply than any head of a shuffled copy",
    EntropyOptions,
    run,
    _unfit,
)
# --8<-- [end:register]
