"""Identify a one-layer model's sorting algorithm: `--probe sorting`, `sorting_fingerprint`.

Steps:

1. Test which lists the model sorts (`evaluation`).
2. Read its logits and attention on lists (`activations`).
3. Measure the criteria of both algorithms on the model, on each head, and on weight-shuffled copies
   (`measures`, `weights`).
4. Decide between the algorithms (`criteria`).
5. Measure the same metrics on checkpoints of training, if there are any.
6. Plot weights and attention (`figures`).

Source: "How do tiny transformers sort lists of small integers?" (Qi and Zhong 2023).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from jaxtyping import Float
from pydantic import Field

from interp_toolkit.circuits.sorting import figures
from interp_toolkit.circuits.sorting.activations import ListReading, Swaps, read, require_one_layer
from interp_toolkit.circuits.sorting.criteria import (
    ARGMAX,
    MIN_GREATER,
    SHORT,
    Algorithm,
    Controls,
    Criterion,
    State,
    criteria_of,
    decide,
    sorts,
    status_of,
)
from interp_toolkit.circuits.sorting.evaluation import (
    ListAccuracy,
    SortedList,
    accuracies,
    hard_lists,
    hardest,
)
from interp_toolkit.circuits.sorting.measures import (
    EvolutionStep,
    HeadFingerprint,
    Measures,
    Region,
    checkpoint_files,
    find_layout,
    guessed,
    head_parts,
    measure,
    read_lists,
    sorting_evolution,
)
from interp_toolkit.circuits.sorting.weights import (
    PositionShares,
    WeightTables,
    position_shares,
    separator_line_of_weights,
    weight_tables,
)
from interp_toolkit.data import FeatureData
from interp_toolkit.data.lists.draws import Lists
from interp_toolkit.data.lists.layout import ListLayout
from interp_toolkit.errors import InputError, takes
from interp_toolkit.finding import Finding, Run, analysis, column, records
from interp_toolkit.formatting import percent, percent_ci
from interp_toolkit.models.about.record import digest_of_tokens, record_of
from interp_toolkit.models.model import Model, check_model
from interp_toolkit.models.running.interventions import reinitialised
from interp_toolkit.options import Flag, Options, Words
from interp_toolkit.results import Evidence, Figure, Table, head_name
from interp_toolkit.stats import Share

MOST_HEADS = 4  # heads whose weights and patterns are plotted
NULLS = 20  # weight-shuffled models to compare with
LISTS = 2_000
EXAMPLES = 4  # lists kept for plots
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
    input_list: Annotated[Words | None, Flag("--list", metavar='"8 8 8 9 9"')] = Field(
        None, description="A list of your own, as token ids: sort it, and draw its pattern."
    )


@dataclass(frozen=True, eq=False)
class Lines:
    """Curves against the output item.

    Attributes:
        gamma_over_beta: ratio γ/β of the logits' regression; k + 0.5 in algorithm 2.
        fit_r2: R² of that regression.
        separator_ratio: each head's attention to the first separator, divided by its (geometric)
            mean attention to a value, the largest excepted; None without a separator before the
            list.
    """

    gamma_over_beta: Float[np.ndarray, " item"]
    fit_r2: Float[np.ndarray, " item"]
    separator_ratio: Float[np.ndarray, "head item"] | None


@dataclass(frozen=True)
class SortingEvidence(Evidence):
    """Evidence for a sorting model's status.

    Attributes:
        null: description of the null; None if no weight-shuffled models were compared.
        nulls: number of weight-shuffled models.
        nulls_alike: how many of them meet the criteria of the same algorithm.
        causal: the interventions.
        weights_residual: fraction of the logits' variance that the weight tables do not explain.
    """

    null: str | None = column()
    nulls: int = column("weight-shuffled models")
    nulls_alike: int = column("of these, meeting the criteria of the same algorithm")
    causal: str = column("interventions")
    weights_residual: float = column("variance of the logits that the weight tables leave")


def _count(state: State) -> Callable[[HeadFingerprint], int]:
    return lambda head: sum(c.state == state for c in head.criteria)


def _of_swaps(get: Callable[[Swaps], float]) -> Callable[[Region], float | None]:
    return lambda region: None if region.swaps is None else get(region.swaps)


def _end(metric: str, end: int) -> Callable[[Region], float | None]:
    return _of_swaps(lambda swaps: swaps.intervals[metric][end])


LISTS_CAPTION = "Token ids; loss: nats per item, given the correct prefix."


@dataclass(frozen=True, kw_only=True)
class SortingFinding(Finding):
    """Sorting algorithm of a model.

    Attributes:
        algorithm: algorithm whose criteria are met: "min_greater_than_previous",
            "argmax_piecewise_linear", "mixed" or "neither". The status says how strong the evidence
            is.
        metrics: metrics by name (see `measures.measure`); None where undetermined.
        null: mean and extreme of each metric over weight-shuffled models.
        criteria: evidence for either algorithm.
        accuracy: accuracy by set of test lists (see `evaluation.accuracies`).
        input_list: the list passed as `--list`, and the model's output for it.
        heads: metrics and criteria of each head.
        regions: attention and swaps, for the lower and the upper half of the previous values.
        positions: effects of tokens and positions on each head's scores and outputs.
        hardest: the test lists with the greatest loss (see `evaluation.hard_lists`).
        distinct: whether the lists had distinct values.
        layout: layout of the prompts, as text.
        lines: curves against the output item.
        evolution: metrics at checkpoints of training, if there were any.
        weights: weight tables; not in the JSON.
    """

    evidence: SortingEvidence
    algorithm: Algorithm
    metrics: Mapping[str, float | None]
    null: Mapping[str, tuple[float, float]]
    criteria: Sequence[Criterion] = records(
        Criterion,
        "Criteria of the two algorithms",
        "Algorithm 1: the smallest value above the previous one. Algorithm 2: the argmax of f(x) + "
        "(k + 0.5) x. Null: the weight-shuffled model nearest to the strong threshold. Where "
        "strong is below weak, small values meet the criterion. Low and high: 95 % interval of "
        "fractions of swaps; a criterion is strong or absent only if both ends are. γ/β being a "
        "line of slope 1 is no evidence without the other criteria.",
        lambda criterion: criterion.state == "strong",
    )
    accuracy: Mapping[str, ListAccuracy] = records(
        ListAccuracy,
        "Accuracy",
        "Low and high: 95 % interval of the fraction of whole lists right. Loss: nats per item.",
        key="lists",
    )
    input_list: SortedList | None = records(SortedList, "The list", LISTS_CAPTION, least=1)
    heads: Sequence[HeadFingerprint] = records(
        HeadFingerprint,
        "Heads",
        "Metrics of each head's own attention and direct effect on the logits. Without it: its "
        'output is replaced by its mean. "neither" includes heads that the model can sort '
        "without; their criteria still describe them.",
        least=2,
        cells={
            "head": lambda head: head_name(0, head.head),
            "algorithm": lambda head: head.algorithm,
            "lists right without it": lambda head: head.lists_right_without,
            "strong criteria": _count("strong"),
            "weak": _count("weak"),
            "undecided": _count("undecided"),
            "absent": _count("absent"),
        },
    )
    regions: Sequence[Region] = records(
        Region,
        "By previous value",
        "Lower and upper half of the values separately. Above, lift: attention to values above "
        "the previous one; 0: as much as uniform attention, 1: all of it. Swaps: the previous "
        "token replaced by a value of this half; fractions of outputs that follow it or the "
        "position, with 95 % intervals.",
        least=1,
        cells={
            "previous value": lambda region: f"{region.lowest} to {region.highest}",
            "above, lift": lambda region: region.above_lift,
            "swaps": _of_swaps(lambda swaps: swaps.n),
            "follow token": _of_swaps(lambda swaps: swaps.token),
            "low": _end("follows_token", 0),
            "high": _end("follows_token", 1),
            "follow position": _of_swaps(lambda swaps: swaps.position),
            "low ": _end("follows_position", 0),
            "high ": _end("follows_position", 1),
        },
    )
    positions: Sequence[PositionShares] = records(
        PositionShares,
        "Effects of tokens and positions",
        "From the weights: fractions of the variance of attention scores (without the part "
        "shared by all keys) and of the values' output to the logits. Effects are sequential: + "
        "marks what each adds. Order kept: how often the "
        "order of two keys for a query agrees with the order averaged over query positions.",
    )
    hardest: Sequence[SortedList] = records(
        SortedList, "Lists with the greatest loss", LISTS_CAPTION
    )
    distinct: bool
    layout: str
    lines: Lines
    evolution: Sequence[EvolutionStep]
    weights: WeightTables = field(repr=False)

    omit_from_json: ClassVar[frozenset[str]] = frozenset({"weights"})

    def tables(self) -> list[Table]:
        """Tables of the records, and one table of all metrics with their null."""
        rows = [
            [name, value, *self.null.get(name, (None, None))]
            for name, value in self.metrics.items()
        ]
        columns = ["metric", "value", "null, mean", "null, extreme"]
        caption = "Null: the same for weight-shuffled models, mean and largest magnitude."
        return [*super().tables(), Table("All numbers", columns, rows, caption)]


def analyze(run: Run[SortingOptions]) -> SortingFinding:
    """Identify the algorithm by which a one-layer model sorts, with the evidence for each.

    Raises:
        InputError: data were passed; the model has several layers; the layout is missing or does
            not fit the model; or the checkpoint folder has no checkpoints.
    """
    if run.data is not None:
        raise InputError("the sorting analysis draws its own lists; give --layout and no --data")
    return _fingerprint(run, LISTS, NULLS)


@takes(model=check_model)
def sorting_fingerprint(
    model: Model,
    layout: str | Sequence[str] | ListLayout | None = None,
    *,
    distinct: bool | None = None,
    lists: int = LISTS,
    nulls: int = NULLS,
    seed: int = 0,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> SortingFinding:
    """Identify the algorithm by which a one-layer model sorts: either of two, a mix, or neither.

    Args:
        model: any one-layer TransformerLens model.
        layout: layout of its prompts, as `data.lists.layout` parses it; None: that of its task
            record.
        distinct: whether lists have distinct values; None: as in the task record, or else as the
            accuracy shows.
        lists: number of lists to measure on; fewer if they are long.
        nulls: number of weight-shuffled models to compare with.
        seed: seed of lists, swaps and weight-shuffled models.
        memory: memory limit for batches of the accuracy, such as "4GiB".
        progress: called with a description of each step.

    Raises:
        InputError: the model has several layers, or the layout is missing or does not fit it.

    Examples:
        >>> import interp_toolkit as it
        >>> sorting_fingerprint(it.load("toy:sort-argmax"), lists=200, nulls=2).algorithm
        'argmax_piecewise_linear'
    """
    words: Any = str(layout) if isinstance(layout, ListLayout) else layout
    options = SortingOptions(layout=words, distinct=distinct, seed=seed, memory=memory)
    finding = _fingerprint(Run(model, None, options, progress), lists, nulls)
    return dataclasses.replace(finding, probe="sorting")


def _fingerprint(run: Run[SortingOptions], n_lists: int, n_nulls: int) -> SortingFinding:
    model, options, seed, progress = run.model, run.options, run.seed, run.progress
    require_one_layer(model)
    checkpoints = options.checkpoints
    if checkpoints is not None:
        checkpoint_files(checkpoints)  # a wrong folder should not wait for the analysis
    task, layout = record_of(model).made_for, find_layout(model, options.layout)
    own_list = None if options.input_list is None else one_list(options.input_list, layout)
    distinct = options.distinct
    if distinct is None and str(task.layout) == str(layout):
        distinct = task.distinct
    progress("accuracy on test lists")
    distinct, accuracy = accuracies(model, layout, distinct, run.memory)
    progress("logits and attention on lists")
    reading = read_lists(model, layout, distinct, n_lists, seed)
    tables = weight_tables(model, layout, reading)
    measured = measure(model, reading, tables, seed=seed)
    others = []
    for i in range(n_nulls):
        progress(f"weight-shuffled model {i + 1} of {n_nulls}")
        with reinitialised(model, seed=seed + i):
            others.append(measure(model, read(model, layout, reading.lists), seed=seed))
    null = {
        name: [value for other in others if (value := other.metrics[name]) is not None]
        for name in measured.metrics
    }

    def criteria_in(measures: Measures, null: Mapping[str, Sequence[float]]) -> list[Criterion]:
        follows = layout.autoregressive
        return criteria_of(
            measures.metrics, null, autoregressive=follows, intervals=measures.intervals
        )

    criteria, guess = criteria_in(measured, null), guessed(reading)
    sorting = sorts(measured.metrics["items_right"] or 0.0, guess)
    algorithm = decide(criteria, sorting)
    named = [decide(criteria_in(other, {}), sorts=True) for other in others]
    controls = Controls(named.count(algorithm) if algorithm != "neither" else 0, len(named))
    whole = algorithm, criteria, measured, sorting
    heads, per_head = head_parts(run, reading, tables, whole)
    separators = [m.separator.ratio for m in per_head if m.separator is not None]
    ratios = np.stack(separators) if separators else None
    lines = Lines(measured.line.ratio, measured.line.r2, ratios)
    status, reason = status_of(algorithm, criteria, sorting, controls)
    swapped = "outputs after the previous token is swapped; " if layout.autoregressive else ""
    metrics = {
        **measured.metrics,
        "items_guessed": guess,
        **{f"lists_right_{name}": result.lists_right for name, result in accuracy.items()},
    }
    user_list, example = None, _first(reading, EXAMPLES)
    if own_list is not None:
        user_list, example = hardest(model, layout, own_list)[0], read(model, layout, own_list)
    steps: list[EvolutionStep] = []
    if checkpoints is not None:
        steps = sorting_evolution(
            checkpoints, layout, distinct=distinct, seed=seed, progress=progress
        )
    notes = [tables.note] if tables.note else []
    if layout.autoregressive and measured.swaps is None:
        notes.append("too few swaps of the previous token distinguish the algorithms")
    evidence = SortingEvidence(
        status,
        "the same numbers of weight-shuffled models" if controls.models else None,
        controls.models,
        controls.alike,
        f"{swapped}heads replaced by their mean",
        tables.residual,
        reason=reason,
    )
    resolved = options.model_copy(update={"layout": str(layout), "distinct": distinct})
    return SortingFinding(
        headline=headline(algorithm, evidence, measured.swaps),
        findings=sentences(
            algorithm, evidence, criteria, accuracy, metrics, measured.swaps, distinct
        ),
        evidence=evidence,
        provenance=dataclasses.replace(run, options=resolved).provenance(
            source=f"drawn lists; {layout.describe()}",
            rows=sum(result.n for result in accuracy.values()),
            sha256=digest_of_tokens(_first(reading, EXAMPLES).rows.tokens),
        ),
        algorithm=algorithm,
        metrics=metrics,
        null={
            name: (float(np.mean(values)), float(max(values, key=abs)))
            for name, values in null.items()
            if values
        },
        criteria=criteria,
        accuracy=accuracy,
        input_list=user_list,
        heads=heads,
        regions=measured.regions,
        positions=position_shares(model, layout),
        hardest=hardest(model, layout, hard_lists(layout, distinct), memory=run.memory),
        distinct=distinct,
        layout=str(layout),
        lines=lines,
        evolution=steps,
        weights=tables,
        notes=notes,
        plots=_plots(layout, criteria, heads, lines, tables, example, steps),
    )


def one_list(words: Sequence[str], layout: ListLayout) -> Lists:
    """Parse one list; raises InputError if it does not fit the layout."""
    values = dict(zip(map(layout.token_name, layout.values), range(layout.n_values), strict=True))
    unknown = [word for word in words if word not in values]
    if unknown:
        names = list(values)
        raise InputError(
            f"--list: {unknown[0]!r} is not a value; values are {names[0]} to {names[-1]}"
        )
    if not layout.shortest <= len(words) <= layout.longest:
        sizes = {layout.shortest, layout.longest}
        raise InputError(
            f"--list: it has {len(words)} items; lists have {' to '.join(map(str, sorted(sizes)))}"
        )
    return Lists.from_rows([[values[word] for word in words]], layout.n_values)


def _first(reading: ListReading, n: int) -> ListReading:
    return dataclasses.replace(
        reading,
        lists=reading.lists.take(slice(n)),
        rows=type(reading.rows)(*(part[:n] for part in reading.rows)),
        logits=reading.logits[:n],
        undivided=reading.undivided[:n],
        scale=reading.scale[:n],
        pattern=reading.pattern[:n],
        outside=None if reading.outside is None else reading.outside[:n],
    )


PHRASES = {
    MIN_GREATER: "emitting the smallest value above the previous output",
    ARGMAX: "taking the argmax of a sum of piecewise-linear functions, one for each item",
}
ARGMAX_FORMULA = (
    "Output k is the argmax over values x of f(x) + (k + 0.5) x, with f(x) = Σ min(0, aᵢ − x) over "
    "the list's items aᵢ."
)
KINDS = {  # by the name of a test set, and whether its lists are distinct
    ("random", False): "random lists",
    ("hard", False): "hard lists (items from a random subset of the values)",
    ("two_values", False): "lists with two distinct values",
    ("distinct", False): "random lists without repeats",
    ("random", True): "random lists without repeats",
    ("sets", True): "possible sets of values, each in one random order",
    ("repeats", True): "random lists with repeats",
}


def headline(algorithm: Algorithm, evidence: SortingEvidence, swaps: Swaps | None) -> str:
    """Headline that names the algorithm as strongly as the status allows."""
    if evidence.status == "not_tested":
        return "The model does not sort, so no algorithm is named."
    if evidence.status == "not_detected":
        return "The model sorts by neither of the two algorithms that were tested."
    if evidence.status == "uninformative":
        return (
            "The model sorts; its algorithm is not identified: weight-shuffled models score as "
            "high."
        )
    if evidence.status == "undecided":
        if algorithm == "neither":
            return "The model sorts; its algorithm is undecided."
        if algorithm == "mixed":
            return "The model sorts, perhaps by a mix of two algorithms: undecided."
        return f"The model sorts, perhaps by {PHRASES[algorithm]}: undecided."
    if algorithm in PHRASES:
        return f"The model sorts by {PHRASES[algorithm]}."
    mostly = ""
    if swaps is not None:
        token, position = swaps.intervals.values()
        if token[0] > position[1]:
            mostly = ", mostly the first"
        elif position[0] > token[1]:
            mostly = ", mostly the second"
    return f"The model mixes two sorting algorithms: {' and '.join(SHORT.values())}{mostly}."


def sentences(
    algorithm: Algorithm,
    evidence: SortingEvidence,
    criteria: Sequence[Criterion],
    accuracy: Mapping[str, ListAccuracy],
    metrics: Mapping[str, float | None],
    swaps: Swaps | None,
    distinct: bool,
) -> list[str]:
    """The findings: reason, swaps, criteria, weight-shuffled models, accuracy."""
    shares = ", ".join(
        f"{percent_ci(Share(a.lists_right, a.low, a.high), 2)} of {a.n:,} {KINDS[name, distinct]}"
        for name, a in accuracy.items()
    )
    sorted_lists = f"Sorted correctly: {shares}."
    if evidence.status == "not_tested":
        right, guess = metrics["items_right"] or 0.0, metrics["items_guessed"] or 0.0
        return [
            sorted_lists,
            f"It gets {percent(right, 1)} of items right, a guess {percent(guess, 1)}; a model "
            "counts as sorting if it closes half of the gap between the guess and 100 %.",
        ]
    listed = []
    if evidence.status in ("undecided", "uninformative"):
        listed.append(f"{evidence.status.capitalize()}: {evidence.reason}.")
    if swaps is not None:
        token, position = (
            percent_ci(Share(share, low, high), 1)
            for share, (low, high) in zip(
                (swaps.token, swaps.position), swaps.intervals.values(), strict=True
            )
        )
        listed.append(
            f"With the previous token swapped, {token} of outputs follow the swapped-in token and "
            f"{position} follow the output position, n = {swaps.n:,}."
        )
    tallies = []
    for name, short in SHORT.items():
        states = [c.state for c in criteria if c.algorithm == name and c.state != "unknown"]
        if states:
            strong, weak = states.count("strong"), states.count("weak")
            tallies.append(f"for {short}, {strong} of {len(states)} strongly and {weak} weakly")
    listed.append(f"Criteria met: {'; '.join(tallies)}.")
    if algorithm == ARGMAX and evidence.status == "detected":
        listed.append(ARGMAX_FORMULA)
    if evidence.nulls and evidence.status == "detected":
        listed.append(
            "Weight-shuffled models that meet the criteria of the same algorithm: "
            f"{evidence.nulls_alike} of {evidence.nulls}."
        )
    return [*listed, sorted_lists]


def _plots(
    layout: ListLayout,
    criteria: Sequence[Criterion],
    heads: Sequence[HeadFingerprint],
    lines: Lines,
    tables: WeightTables,
    example: ListReading,
    steps: Sequence[EvolutionStep],
) -> list[Figure]:
    plots = [
        figures.criteria_scale(criteria),
        figures.logit_line(lines.gamma_over_beta, lines.fit_r2),
    ]
    longest = int(example.lists.lengths.argmax())
    needed = sorted(heads, key=lambda head: head.lists_right_without)[:MOST_HEADS]
    for head in sorted(h.head for h in needed):
        plots += [
            figures.qk_by_item(tables, head),
            figures.ov_map(tables, head),
            figures.ov_curves(tables, head),
            figures.pattern(example, head, longest),
        ]
    if len(tables.source_names) > layout.n_values:
        line = separator_line_of_weights(tables, layout)
        names = tables.source_names[layout.n_values :]
        plots.append(figures.separator_lines(lines.separator_ratio, line, names))
    if steps:
        plots.append(figures.evolution(steps))
        if any(step.qk for step in steps):
            plots.append(figures.qk_along_training(steps))
    return plots


def unfit(model: Any, data: FeatureData | None) -> str | None:
    """Reason why the analysis cannot run without further options; None if it can."""
    if int(model.cfg.n_layers) != 1:
        return "needs a one-layer model"
    task = record_of(model).task or {}
    if task.get("name") != "sorting" or not task.get("layout"):
        return "needs --layout: where the list and its sorted form stand in a row"
    if data is not None:
        return "run it with --probe sorting: the data are prompts for other probes"
    return None


SORTING = analysis(
    "sorting",
    "which of two algorithms a one-layer model uses to sort lists",
    SortingOptions,
    analyze,
    unfit,
    source=SOURCE,
    reads_stream=True,
)
