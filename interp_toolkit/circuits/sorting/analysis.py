"""The sorting analysis: `interp analyze MODEL --probe sorting --layout "10 list10 11 sorted10"`.

Steps: decide by which algorithm the model sorts (`fingerprint`); follow the same numbers along
training where there are checkpoints (`evolution`); draw what the weights and attention show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from interp_toolkit.circuits.sorting import evidence_figures, figures
from interp_toolkit.circuits.sorting.evaluation import hardest
from interp_toolkit.circuits.sorting.evolution import (
    EvolutionStep,
    checkpoint_files,
    sorting_evolution,
)
from interp_toolkit.circuits.sorting.fingerprint import (
    SortingFingerprint,
    find_layout,
    sorting_fingerprint,
)
from interp_toolkit.circuits.sorting.measures.reading import ListReading, read
from interp_toolkit.circuits.sorting.measures.weight_tables import separator_line_of_weights
from interp_toolkit.circuits.sorting.result import SortingResult
from interp_toolkit.circuits.sorting.verdict import evidence_of
from interp_toolkit.data import FeatureData
from interp_toolkit.data.lists.draws import Lists
from interp_toolkit.data.lists.layout import ListLayout
from interp_toolkit.errors import InputError
from interp_toolkit.models.about.record import digest_of_tokens, provenance, record_of
from interp_toolkit.options import Flag, Options, Words
from interp_toolkit.registry import Analysis
from interp_toolkit.results import Figure

MOST_HEADS = 4  # whose weights and patterns are drawn
NULLS = 20  # re-initialised models to compare with
SOURCE = "How do tiny transformers sort lists of small integers? (Qi and Zhong 2023)"


class SortingOptions(Options):
    """Options of `--probe sorting`."""

    layout: Annotated[Words | None, Flag(metavar='"10 list10 11 sorted10"')] = Field(
        None,
        description="Where the list and its sorted form stand in a row; default: the model's task.",
    )
    distinct: Annotated[bool | None, Flag("--distinct/--repeats")] = Field(
        None, description="Whether lists have distinct values; default: what the model sorts."
    )
    checkpoints: Annotated[str | Path | None, Flag(metavar="FOLDER")] = Field(
        None, description="Checkpoints along training, for the evolution."
    )
    given: Annotated[Words | None, Flag("--list", metavar='"8 8 8 9 9"')] = Field(
        None, description="A list of your own, as token ids: sort it, and draw its pattern."
    )


def run(
    model: Any,
    data: FeatureData | None,
    options: SortingOptions,
    progress: Callable[[str], None],
) -> SortingResult:
    """By which algorithm a one-layer model sorts, with the evidence for each.

    Args:
        model: any one-layer TransformerLens model.
        data: none; the lists are drawn.
        options: see `SortingOptions`.
        progress: told what is being done.

    Raises:
        InputError: data; a model of several layers; no layout, or one that does not fit; a folder
            without checkpoints.
    """
    if data is not None:
        raise InputError("the sorting analysis draws its own lists; give --layout and no --data")
    checkpoints = options.checkpoints
    if checkpoints is not None:
        checkpoint_files(checkpoints)  # a wrong folder should not wait for the analysis
    if options.given is not None:  # nor should a wrong list
        _lists_of(options.given, find_layout(model, options.layout))
    found = sorting_fingerprint(
        model,
        options.layout,
        distinct=options.distinct,
        nulls=NULLS,
        seed=options.seed,
        memory=options.memory,
        progress=progress,
    )
    own = None
    if options.given is not None:
        lists = _lists_of(options.given, found.layout)
        own = hardest(model, found.layout, lists)[0], read(model, found.layout, lists)
    steps: list[EvolutionStep] = []
    if checkpoints is not None:
        steps = sorting_evolution(
            checkpoints,
            found.layout,
            distinct=found.distinct,
            seed=options.seed,
            progress=progress,
        )
    described = {
        "source": f"drawn lists; {found.layout.describe()}",
        "rows": sum(accuracy.n for accuracy in found.accuracy.values()),
        "sha256": digest_of_tokens(found.example.rows.tokens),
    }
    settings = options.settings(layout=str(found.layout), distinct=found.distinct)
    return SortingResult(
        probe="sorting",
        verdict=found.verdict,
        evidence=evidence_of(
            found.algorithm,
            found.marks,
            found.sorting,
            autoregressive=found.layout.autoregressive,
            alike=found.alike,
            weights_residual=found.weights.residual,
        ),
        provenance=provenance(model, described, settings, options.seed),
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
        regions=found.regions,
        positions=found.positions,
        hardest=found.hardest,
        given=own and own[0],
        notes=found.notes,
        weights=found.weights,
        plots=_plots(found, steps, own and own[1]),
    )


def _lists_of(words: Sequence[str], layout: ListLayout) -> Lists:
    """The one list that the words are; raises InputError where the layout has no such list."""
    values = dict(zip(map(layout.token_name, layout.values), range(layout.n_values), strict=True))
    unknown = [word for word in words if word not in values]
    if unknown:
        names = list(values)
        raise InputError(f"--list: {unknown[0]!r} is no value; they are {names[0]} to {names[-1]}")
    if not layout.shortest <= len(words) <= layout.longest:
        sizes = {layout.shortest, layout.longest}
        raise InputError(
            f"--list: it has {len(words)} items; lists have {' to '.join(map(str, sorted(sizes)))}"
        )
    return Lists.from_rows([[values[word] for word in words]], layout.n_values)


def _plots(
    found: SortingFingerprint, steps: Sequence[EvolutionStep], own: ListReading | None
) -> list[Figure]:
    tables, n_values = found.weights, found.layout.n_values
    plots = [
        evidence_figures.mark_scale(found.marks),
        figures.logit_line(found.lines.gamma_over_beta, found.lines.fit_r2),
    ]
    example = found.example if own is None else own
    longest = int(example.lists.lengths.argmax())
    needed = sorted(found.heads, key=lambda head: head.lists_right_without)[:MOST_HEADS]
    for head in sorted(h.head for h in needed):
        plots += [
            figures.qk_by_item(tables, head),
            figures.ov_map(tables, head),
            figures.ov_curves(tables, head),
            figures.pattern(example, head, longest),
        ]
    if len(tables.source_names) > n_values:
        line = separator_line_of_weights(tables, found.layout)
        ratio = found.lines.separator_ratio
        plots.append(figures.separator_lines(ratio, line, tables.source_names[n_values:]))
    if steps:
        plots.append(evidence_figures.evolution(steps))
        if any(step.qk for step in steps):
            plots.append(evidence_figures.qk_along_training(steps))
    return plots


def _unfit(model: Any, data: FeatureData | None) -> str | None:
    """Why the analysis cannot run without further options; None when it can."""
    if int(model.cfg.n_layers) != 1:
        return "the model has not one layer"
    task = record_of(model).task or {}
    if task.get("name") != "sorting" or not task.get("layout"):
        return "needs --layout: where the list and its sorted form stand in a row"
    if data is not None:
        return "ask for it by name: the data are prompts for other probes"
    return None


SORTING = Analysis(
    "sorting",
    "by which algorithm a one-layer model sorts lists",
    SortingOptions,
    run,
    _unfit,
    SOURCE,
)
