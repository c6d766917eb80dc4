"""Which heads attend more sharply than chance: `interp analyze MODEL --probe attention-entropy`.

Spread is entropy / ln(number of visible keys), mean over queries. The null: shuffled weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from pydantic import Field

from interp_toolkit.circuits.metrics.prompts import repeated_answers
from interp_toolkit.data import FeatureData
from interp_toolkit.finding import Finding, Run, analysis, column, records
from interp_toolkit.models import activations, reinitialised
from interp_toolkit.options import Options
from interp_toolkit.plots import at_y, axis, layout
from interp_toolkit.results import Evidence, Figure, Status, head_name

COPIES, LEVEL = 19, 0.05  # the fewest copies with which a p-value can be 0.05


class EntropyOptions(Options):
    sharp: float = Field(0.5, gt=0, lt=1, description="Spread below which attention is sharp.")


@dataclass(frozen=True)
class HeadSpread:
    head: str = column("head")
    spread: float = column("spread")
    p: float = column("p, against the sharpest head of copies")
    status: Status = column("status")


@dataclass(frozen=True, kw_only=True)
class EntropyFinding(Finding):
    heads: Sequence[HeadSpread] = records(HeadSpread, "Attention entropy")


def analyze(run: Run[EntropyOptions]) -> EntropyFinding:
    data = run.data or repeated_answers(run.model, seed=run.seed)
    spreads, sharpest = head_spreads(run, data), []
    for copy in range(COPIES):
        run.progress(f"shuffled copy {copy + 1} of {COPIES}")
        with reinitialised(run.model, seed=run.seed + copy):
            sharpest.append(head_spreads(run, data).min())
    heads, level = [], run.options.sharp
    for head, spread in np.ndenumerate(spreads):
        p = float((1 + sum(null <= spread for null in sharpest)) / (1 + COPIES))
        status: Status = "detected" if spread < level and p <= LEVEL else "not_detected"
        heads.append(HeadSpread(head_name(*head), float(spread), p, status))
    detected = [head.head for head in heads if head.status == "detected"]
    reason = None if detected else f"no head is below {level:g} and below every copy"
    bars = {"type": "bar", "x": [h.head for h in heads], "y": [h.spread for h in heads]}
    axes = layout(axis("head"), axis("spread")) | {"shapes": [at_y(level), at_y(min(sharpest))]}
    return EntropyFinding(
        headline=f"Sharp attention: {', '.join(detected) or 'no head'}.",
        findings=[f"Smallest spread in {COPIES} weight-shuffled copies: {min(sharpest):.2f}."],
        evidence=Evidence("detected" if detected else "not_detected", reason=reason),
        provenance=run.provenance(data),
        heads=heads,
        plots=[Figure("Spread by head", "Below both lines: sharp.", [bars], axes)],
    )


def head_spreads(run: Run[EntropyOptions], data: FeatureData) -> np.ndarray:
    totals, causal = [], run.model.cfg.attention_dir == "causal"
    for batch in activations(run.model, data, "*.hook_pattern", "all", memory=run.memory):
        patterns = torch.stack(list(batch.values()), 1).double().cpu()  # row layer head query key
        n_pos = patterns.shape[-1]
        keys = torch.arange(1, n_pos + 1) if causal else torch.full((n_pos,), n_pos)
        entropy = torch.special.entr(patterns).sum(-1)[..., keys > 1]
        totals.append((entropy / keys[keys > 1].double().log()).mean(-1))
    return torch.cat(totals).mean(0).numpy()


ATTENTION_ENTROPY = analysis("attention-entropy", "sharp heads", EntropyOptions, analyze)
