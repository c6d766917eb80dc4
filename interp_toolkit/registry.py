"""What can be run, found by name: analyses, toys, tasks, recipes, artefacts; ours and plugins'.

Everything is an entry point, so that a name on the command line, a name in `analyze(model, name)`
and a plugin's contribution are one mechanism, and nothing here imports what it lists.
A plugin that fails to import is named in a warning and breaks nothing else.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from interp_toolkit.errors import InputError, suggestion

if TYPE_CHECKING:
    from interp_toolkit.data import FeatureData
    from interp_toolkit.options import Options

Group = Literal["probes", "detectors", "toys", "tasks", "recipes", "artefacts"]
GROUPS: tuple[Group, ...] = ("probes", "detectors", "toys", "tasks", "recipes", "artefacts")


def _unsaid(said: object) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Analysis:
    """An analysis of a model: what `interp analyze --probe NAME` runs.

    Attributes:
        name: its name, as in its result's `probe`.
        summary: one line for `interp list`.
        options: its options class (see `options`), from which the command line makes flags.
        run: `run(model, data, options, progress) -> Result`; `data` is a `FeatureData` or None,
            `progress` is told in words what is being done.
        unfit: `unfit(model, data)` says in a few words why the analysis cannot run on this
            model and data (None when it can); `interp analyze` without `--probe` asks it.
        source: document and section that it follows, or empty.
        graph_formats: endings of the files that its results' `write_graph` can write.
    """

    name: str
    summary: str
    options: type[Options]
    run: Callable[[Any, FeatureData | None, Any, Callable[[str], None]], Any]
    unfit: Callable[[Any, FeatureData | None], str | None] = field(default=lambda model, data: None)
    source: str = ""
    graph_formats: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (isinstance(self.options, type) and hasattr(self.options, "model_fields")):
            raise TypeError(
                f"the analysis {self.name!r} has no options class: give a subclass of "
                "interp_toolkit.options.Options before its run function"
            )

    def __call__(
        self,
        model: Any,
        *,
        data: FeatureData | None = None,
        progress: Callable[[str], None] = _unsaid,
        **options: Any,
    ) -> Any:
        """Run it on a live model; raises InputError as `read_options` and `run` do."""
        from interp_toolkit.options import read_options

        return self.apply(model, data, read_options(self.options, options, self.name), progress)

    def apply(
        self,
        model: Any,
        data: FeatureData | None,
        options: Options,
        progress: Callable[[str], None] = _unsaid,
    ) -> Any:
        """Run it with checked options; the model is handed back as it was (see `as_found`).

        Raises InputError as `run` and `as_found` do.
        """
        from interp_toolkit.as_found import as_found

        with as_found(model):
            return self.run(model, data, options, progress)


@dataclass(frozen=True)
class Toy:
    """A documented toy model with known ground truth.

    Attributes:
        name: as in `toy:NAME`.
        summary: one line for `interp list`.
        build: makes the model (a `Transformer`), with its weights.
        task: what it computes, as a checkpoint records it (see `models.about.record`).
        source: document, section.
    """

    name: str
    summary: str
    build: Callable[[], Any]
    task: Mapping[str, Any]
    source: str


@dataclass(frozen=True)
class PromptTask:
    """A behaviour to ask of a language model: what `interp analyze --task NAME` makes rows of.

    Attributes:
        name: its name on the command line.
        summary: one line for `interp list`.
        make: `make(tokenizer, rows, seed) -> FeatureData`: so many distinct rows of one length,
            with answers, wrong answers and corrupted rows (see `data.FeatureData`).
        source: document that it follows.
    """

    name: str
    summary: str
    make: Callable[[Any, int, int], FeatureData]
    source: str


@dataclass(frozen=True)
class Recipe:
    """A training recipe: what `interp train NAME` runs.

    Attributes:
        name: its name on the command line.
        summary: one line for `interp list`.
        config: a pydantic model class that forbids unknown keys; its fields are the `--set` keys.
        variants: settings by `--variant` name.
        presets: settings by `--preset` name.
        train: `train(config, session) -> TrainingRun`; see `Session`.
    """

    name: str
    summary: str
    config: type[Any]
    variants: Mapping[str, Mapping[str, Any]]
    presets: Mapping[str, Mapping[str, Any]]
    train: Callable[[Any, Session], TrainingRun]


@dataclass(frozen=True)
class Progress:
    """How far a training run is.

    Attributes:
        seed: the one that is being trained.
        number, seeds: which it is in the order of training, from 1, and of how many.
        step, steps: updates done, and to do.
        loss: measured at this step.
    """

    seed: int
    number: int
    seeds: int
    step: int
    steps: int
    loss: float


@dataclass(frozen=True)
class Session:
    """What a training run has beside its settings; without any it keeps and says nothing.

    Attributes:
        folder: where the run keeps its metrics, the checkpoints of chosen steps and, until it has
            ended, the state to resume from; made by the run. None: nothing is kept.
        resume: go on with the unfinished run in the folder.
        report: is told how far the run is, at each measurement of the loss.
        say: is told in words what else is being done.
        log: is given every measurement: seed, step, lr, loss, what else the recipe measures.
    """

    folder: Path | None = None
    resume: bool = False
    report: Callable[[Progress], None] = _unsaid
    say: Callable[[str], None] = _unsaid
    log: Callable[[Mapping[str, Any]], None] = _unsaid


@dataclass(frozen=True)
class TrainingRun:
    """What a recipe returns.

    Attributes:
        model: the best seed's model.
        verdict: one sentence: what was reached, against what was possible.
        columns, rows: one row a seed, for a table.
        task: the task record, for the checkpoint (see `models.about.record`).
        training: the training record, for the checkpoint: settings, losses, the best seed's curve.
    """

    model: Any
    verdict: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    task: Mapping[str, Any]
    training: Mapping[str, Any]


@dataclass(frozen=True)
class Artefact:
    """A table or figure of a source document, made again: what `interp reproduce NAME` runs.

    Attributes:
        name: its name on the command line.
        summary: one line for `interp list`.
        source: document, section.
        presets: what each `--preset` does, in a few words, by its name.
        run: `run(preset, seeds, runner) -> Result`; `seeds` overrides how many the preset trains
            of each model (None: its own numbers); the jobs go through `runner` (see
            `studies.jobs.runner`).
        first_seed: where nobody says; a study whose claims were found on some seeds is judged on
            others.
        shares: a word for all artefacts that train some of the same models, each under one name,
            so that `reproduce all` trains them once; "": its jobs are its own.
    """

    name: str
    summary: str
    source: str
    presets: Mapping[str, str]
    run: Callable[[str, int | None, Any], Any]
    first_seed: int = 0
    shares: str = ""


@cache
def _entries(group: Group) -> dict[str, EntryPoint]:
    return {e.name: e for e in entry_points(group=f"interp_toolkit.{group}")}


def names(group: Group) -> list[str]:
    """The registered names of a group, sorted; imports nothing."""
    return sorted(_entries(group))


def find(group: Group, name: str) -> Any:
    """The object registered under this name.

    Raises InputError when there is none, or when its package fails to import.
    """
    entry = _entries(group).get(name)
    if entry is None:
        raise InputError(f"no {group[:-1]} is called {name!r}{suggestion(name, names(group))}")
    try:
        return entry.load()
    except Exception as error:
        raise InputError(
            f"the {group[:-1]} {name!r} ({entry.value}) could not be imported: {error}"
        ) from error


def load_all(group: Group) -> dict[str, Any]:
    """Every registered object of a group; one that fails to import is warned about and left out."""
    found = {}
    for name in names(group):
        try:
            found[name] = find(group, name)
        except InputError as error:
            warnings.warn(str(error), stacklevel=2)
    return found
