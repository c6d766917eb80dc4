"""The sorting analysis: `interp analyze MODEL --probe sorting --layout "10 list10 11 sorted10"`.

Steps: decide by which algorithm the model sorts (`fingerprint`); follow the same numbers along
training where there are checkpoints (`evolution`); draw what the weights and attention show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from interp_toolkit.circuits.sorting import evidence_figures, figures
from interp_toolkit.circuits.sorting.evolution import (
    EvolutionStep,
    checkpoint_files,
    sorting_evolution,
)
from interp_toolkit.circuits.sorting.fingerprint import SortingFingerprint, sorting_fingerprint
from interp_toolkit.circuits.sorting.measures.weight_tables import separator_line_of_weights
from interp_toolkit.circuits.sorting.result import SortingResult
from interp_toolkit.errors import InputError
from interp_toolkit.models.about.provenance import digest_of_tokens, provenance
from interp_toolkit.models.about.record import record_of
from interp_toolkit.registry import Analysis
from interp_toolkit.results import Figure

MOST_HEADS = 4  # whose weights and patterns are drawn
NULLS = 20


def run(
    model: Any,
    *,
    data: Any = None,
    layout: str | Sequence[str] | None = None,
    distinct: bool | None = None,
    checkpoints: str | Path | None = None,
    nulls: int = NULLS,
    seed: int = 0,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> SortingResult:
    """By which algorithm a one-layer model sorts, with the evidence for each.

    Args:
        model: any one-layer TransformerLens model.
        data: none; the lists are drawn.
        layout: of the rows, such as "10 list10 11 sorted10"; None: what the task record says.
        distinct: whether lists have distinct values; None: as `sorting_fingerprint` finds out.
        checkpoints: a folder of the training run's checkpoints, for the evolution.
        nulls: re-initialised models to compare with.
        seed: of lists, swaps and re-initialised models.
        memory: bound for batches, such as "4GiB".
        progress: told what is being done.

    Raises:
        InputError: data; a model of several layers; no layout, or one that does not fit; a folder
            without checkpoints.
    """
    if data is not None:
        raise InputError("the sorting analysis draws its own lists; give --layout and no --data")
    if checkpoints is not None:
        checkpoint_files(checkpoints)  # a wrong folder should not wait for the analysis
    found = sorting_fingerprint(
        model,
        layout,
        distinct=distinct,
        nulls=nulls,
        seed=seed,
        memory=memory,
        progress=progress,
    )
    steps: list[EvolutionStep] = []
    if checkpoints is not None:
        steps = sorting_evolution(
            checkpoints, found.layout, distinct=found.distinct, seed=seed, progress=progress
        )
    return SortingResult(
        probe="sorting",
        verdict=found.verdict,
        evidence=_evidence(found, nulls),
        provenance=provenance(
            model,
            {
                "source": f"drawn lists; {found.layout.describe()}",
                "rows": sum(accuracy.n for accuracy in found.accuracy.values()),
                "sha256": digest_of_tokens(found.example.rows.tokens),
            },
            {"layout": str(found.layout), "distinct": found.distinct, "nulls": nulls},
            seed,
        ),
        algorithm=found.algorithm,
        metrics=found.metrics,
        null=found.null,
        marks=found.marks,
        heads=found.heads,
        accuracy=found.accuracy,
        distinct=found.distinct,
        layout=str(found.layout),
        lines=found.lines,
        evolution=steps,
        notes=found.notes,
        weights=found.weights,
        plots=_plots(found, steps),
    )


def _evidence(found: SortingFingerprint, nulls: int) -> dict[str, Any]:
    evidence: dict[str, Any] = {
        "status": "not_detected" if found.algorithm == "neither" else "detected",
        "null": f"the same numbers of {nulls} re-initialised models",
        "causal": "outputs after the previous token is swapped; heads replaced by their mean"
        if found.layout.autoregressive
        else "heads replaced by their mean",
        "weights": f"logits rebuilt from tables of weights; {found.weights.residual:.2g} of their "
        "variance is missing",
    }
    if found.notes:
        evidence["notes"] = "; ".join(found.notes)
    return evidence


def _plots(found: SortingFingerprint, steps: Sequence[EvolutionStep]) -> list[Figure]:
    tables, n_values = found.weights, found.layout.n_values
    plots = [
        evidence_figures.mark_scale(found.marks),
        figures.logit_line(found.lines.gamma_over_beta, found.lines.fit_r2),
    ]
    longest = int(found.example.lists.lengths.argmax())
    needed = sorted(found.heads, key=lambda head: head.lists_right_without)[:MOST_HEADS]
    for head in sorted(h.head for h in needed):
        plots += [
            figures.qk_by_item(tables, head),
            figures.ov_map(tables, head),
            figures.ov_curves(tables, head),
            figures.pattern(found.example, head, longest),
        ]
    if len(tables.source_names) > n_values:
        line = separator_line_of_weights(tables, found.layout)
        ratio = found.lines.separator_ratio
        plots.append(figures.separator_lines(ratio, line, tables.source_names[n_values:]))
    return [*plots, evidence_figures.evolution(steps)] if steps else plots


def unfit(model: Any, data: Any) -> str | None:
    """Why the analysis cannot run without further options; None when it can."""
    if int(model.cfg.n_layers) != 1:
        return "the model has not one layer"
    task = record_of(model).task or {}
    if task.get("name") != "sorting" or not task.get("layout"):
        return "needs --layout: where the list and its sorted form stand in a row"
    if data is not None:
        return "ask for it by name: the data are prompts for other probes"
    return None


SORTING = Analysis("sorting", "by which algorithm a one-layer model sorts lists", run, unfit)
