"""The registry of analyses, toys, tasks, recipes and artefacts, built in and from plugins.

`CATALOGUE` lists the objects of this package, one line each; other packages add entry points of
the group `interp_toolkit.GROUP`. Nothing here imports the listed modules. A plugin that fails to
import, or uses a name of the catalogue, causes a warning and is left out.

`TaskRecord` is the task that a model was trained or built for, as its checkpoint records it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from interp_toolkit.errors import InputError, suggestion, takes

if TYPE_CHECKING:
    from interp_toolkit.data import FeatureData
    from interp_toolkit.options import Options


Group = Literal["probes", "detectors", "toys", "tasks", "recipes", "artefacts", "commands"]
#: the groups that `interp list` shows
GROUPS: tuple[Group, ...] = ("probes", "detectors", "toys", "tasks", "recipes", "artefacts")

#: objects of this package: by group, names to "module:object", imported on first use
CATALOGUE: Mapping[str, Mapping[str, str]] = {
    "probes": {
        "xor": "probes.boolean.analysis:XOR",
        "and": "probes.boolean.analysis:AND",
        "or": "probes.boolean.analysis:OR",
        "boolean": "probes.boolean.analysis:BOOLEAN",
        "heads": "circuits.heads.analysis:HEADS",
        "induction": "circuits.heads.analysis:INDUCTION",
        "previous-token": "circuits.heads.analysis:PREVIOUS_TOKEN",
        "duplicate-token": "circuits.heads.analysis:DUPLICATE_TOKEN",
        "k-hop": "circuits.heads.analysis:K_HOP",
        "qk": "circuits.qk_ov:QK",
        "ov": "circuits.qk_ov:OV",
        "composition": "circuits.composition:COMPOSITION",
        "circuit": "circuits.edges.analysis:CIRCUIT",
        "sorting": "circuits.sorting.analysis:SORTING",
        "skip-bigrams": "circuits.skip_bigrams.analysis:SKIP_BIGRAMS",
        "universal-keys": "circuits.universal_keys.analysis:UNIVERSAL_KEYS",
        "uand": "probes.uand.analysis:UAND",
        "collapse": "circuits.collapse:COLLAPSE",
        "roles": "circuits.roles.analysis:ROLES",
        "logit-attribution": "circuits.logit_attribution:LOGIT_ATTRIBUTION",
        "patching": "circuits.patching.analysis:PATCHING",
    },
    "detectors": {
        "induction": "circuits.heads.detectors:INDUCTION",
        "previous-token": "circuits.heads.detectors:PREVIOUS_TOKEN",
        "duplicate-token": "circuits.heads.detectors:DUPLICATE_TOKEN",
        "k-hop": "circuits.heads.detectors:K_HOP",
        "first-token": "circuits.heads.detectors:FIRST_TOKEN",
        "next-token": "circuits.heads.detectors:NEXT_TOKEN",
        "answer": "circuits.heads.detectors:ANSWER",
    },
    "toys": {
        "xor-2head": "toys.hand_set.xor:XOR_2HEAD",
        "xor-1head": "toys.hand_set.xor:XOR_1HEAD",
        "or-1head": "toys.hand_set.xor:OR_1HEAD",
        "and-1head": "toys.hand_set.xor:AND_1HEAD",
        "xor-1head-mlp": "toys.hand_set.xor:XOR_1HEAD_MLP",
        "parity-3head": "toys.hand_set.boolean_heads:PARITY_3HEAD",
        "previous-token": "toys.hand_set.induction:PREVIOUS_TOKEN",
        "duplicate-token": "toys.hand_set.induction:DUPLICATE_TOKEN",
        "induction": "toys.hand_set.induction:INDUCTION",
        "induction-rotary": "toys.hand_set.induction:INDUCTION_ROTARY",
        "induction-gqa": "toys.hand_set.induction:INDUCTION_GQA",
        "induction-decoy": "toys.hand_set.induction:INDUCTION_DECOY",
        "decoy": "toys.hand_set.induction:DECOY",
        "induction-trained": "toys.trained:INDUCTION_TRAINED",
        "sort-causal-trained": "toys.trained:SORT_CAUSAL_TRAINED",
        "sort-distinct-trained": "toys.trained:SORT_DISTINCT_TRAINED",
        "sort-bidirectional-trained": "toys.trained:SORT_BIDIRECTIONAL_TRAINED",
        "uand-trained": "toys.trained:UAND_TRAINED",
        "sort-min-greater": "toys.sorting:SORT_MIN_GREATER",
        "sort-refined": "toys.sorting:SORT_REFINED",
        "sort-argmax": "toys.sorting:SORT_ARGMAX",
        "uand": "toys.superposition.toys:UAND",
        "uand-superposed": "toys.superposition.toys:UAND_SUPERPOSED",
        "uand-targeted": "toys.superposition.toys:UAND_TARGETED",
        "uand-fan-in-3": "toys.superposition.toys:UAND_FAN_IN_3",
        "uand-quadratic": "toys.superposition.toys:UAND_QUADRATIC",
        "stacked-circuit": "toys.superposition.toys:STACKED_CIRCUIT",
        "universal-keys": "toys.superposition.toys:UNIVERSAL_KEYS",
        "universal-keys-separate": "toys.superposition.toys:UNIVERSAL_KEYS_SEPARATE",
        "skip-bigrams": "toys.superposition.skip_bigrams:SKIP_BIGRAMS",
        "skip-bigrams-rotary": "toys.superposition.skip_bigrams:SKIP_BIGRAMS_ROTARY",
        "skip-bigrams-gqa": "toys.superposition.skip_bigrams:SKIP_BIGRAMS_GQA",
    },
    "tasks": {
        "indirect-object": "tasks.language:INDIRECT_OBJECT",
        "greater-than": "tasks.language:GREATER_THAN",
        "subject-verb-agreement": "tasks.language:SUBJECT_VERB",
        "gendered-pronoun": "tasks.language:GENDERED_PRONOUN",
        "docstring": "tasks.language:DOCSTRING",
        "copy-random": "tasks.copying:COPY_RANDOM",
        "copy-text": "tasks.copying:COPY_TEXT",
        "successor": "tasks.language:SUCCESSOR",
    },
    "recipes": {
        "xor": "training.xor:RECIPE",
        "induction": "training.induction:RECIPE",
        "sort-causal": "training.sorting:CAUSAL",
        "sort-distinct": "training.sorting:DISTINCT",
        "sort-bidirectional": "training.sorting:BIDIRECTIONAL",
        "uand": "training.uand:RECIPE",
        "retrieval": "training.tasks.recipes:RETRIEVAL",
        "k-hop": "training.tasks.recipes:K_HOP",
        "modular-addition": "training.tasks.recipes:MODULAR_ADDITION",
        "decimal-addition": "training.tasks.recipes:DECIMAL_ADDITION",
        "dyck-1": "training.tasks.recipes:DYCK",
        "memorization": "training.tasks.recipes:MEMORIZATION",
        "rows": "training.tasks.own_rows:ROWS",
        "yelp": "training.text.reviews:RECIPE",
        "wikitext": "training.text.language:WIKITEXT",
        "fineweb-edu": "training.text.language:FINEWEB_EDU",
        "toy-text": "training.text.language:TOY_TEXT",
    },
}


def _ignore(ignored: object) -> None:
    """Discard a report of progress."""


@dataclass(frozen=True)
class Analysis:
    """An analysis of a model: what `interp analyze --probe NAME` runs.

    Attributes:
        name: its name, as in its result's `probe`.
        summary: one line for `interp list`.
        options: its options class (see `options`), from which the command line makes flags.
        run: `run(model, data, options, progress) -> Result`; `data` is a `FeatureData` or None,
            `progress` is called with a description of each step.
        unfit: `unfit(model, data)` returns the reason why the analysis cannot run on this model
            and data, as a phrase, or None if it can; `interp analyze` without `--probe` uses it.
        source: the document and section that it follows, or empty.
        graph_formats: extensions of the files that its results' `write_graph` can write.
        reads_answers: whether it tests a task by prompts with answers; without data it then takes
            those of the task that a checkpoint's recipe trained it on (`Recipe.rows`).
    """

    name: str
    summary: str
    options: type[Options]
    run: Callable[[Any, FeatureData | None, Any, Callable[[str], None]], Any]
    unfit: Callable[[Any, FeatureData | None], str | None] = field(default=lambda model, data: None)
    source: str = ""
    graph_formats: tuple[str, ...] = ()
    reads_answers: bool = False

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
        progress: Callable[[str], None] = _ignore,
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
        progress: Callable[[str], None] = _ignore,
    ) -> Any:
        """Run it with checked options; the model's state is restored (`state.preserve_state`).

        Raises InputError as `run` and `preserve_state` do.
        """
        from interp_toolkit.state import preserve_state

        with preserve_state(model):
            return self.run(model, data, options, progress)


@dataclass(frozen=True)
class Toy:
    """A documented toy model with known ground truth.

    Attributes:
        name: as in `toy:NAME`.
        summary: one line for `interp list`.
        build: makes the model (a `Transformer`), with its weights.
        task: the task that it computes, as a checkpoint records it (see `models.about.record`).
        source: document and section.
    """

    name: str
    summary: str
    build: Callable[[], Any]
    task: Mapping[str, Any]
    source: str


@dataclass(frozen=True)
class PromptTask:
    """A language task: `interp analyze --task NAME` makes its prompts.

    Attributes:
        name: its name on the command line.
        summary: one line for `interp list`.
        make: `make(tokenizer, rows, seed) -> FeatureData`: that many distinct prompts of one
            length, with answers, wrong answers and corrupted prompts (see `data.FeatureData`).
        source: the document that it follows.
    """

    name: str
    summary: str
    make: Callable[[Any, int, int], FeatureData]
    source: str


@dataclass(frozen=True)
class Recipe:
    """A training recipe, run by `interp train NAME`.

    Attributes:
        name: its name on the command line.
        summary: one line for `interp list`.
        config: a pydantic model class that forbids unknown keys; its fields are the `--set` keys.
        variants: settings by `--variant` name.
        presets: settings by `--preset` name.
        train: `train(config, session) -> TrainingRun`; see `Session`.
        rows: `rows(config, most) -> FeatureData`: held-out prompts of the task with answers; None
            where there are none. It raises InputError where a configuration has no such prompts.
    """

    name: str
    summary: str
    config: type[Any]
    variants: Mapping[str, Mapping[str, Any]]
    presets: Mapping[str, Mapping[str, Any]]
    train: Callable[[Any, Session], TrainingRun]
    rows: Callable[[Any, int], FeatureData] | None = None


@dataclass(frozen=True)
class Progress:
    """The progress of a training run.

    Attributes:
        seed: the seed being trained.
        number, seeds: its index in the order of training, from 1, and the number of seeds.
        step, steps: updates done, and their total.
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
    """The environment of a training run: folder and callbacks; by default it stores nothing.

    Attributes:
        folder: created by the run for its metrics, the checkpoints of selected steps and, until
            it ends, the state to resume from. None: nothing is stored.
        resume: continue the unfinished run in the folder.
        report: called at each measurement of the loss.
        say: called with a description of every other step.
        log: called with every measurement: seed, step, lr, loss, and the recipe's own.
    """

    folder: Path | None = None
    resume: bool = False
    report: Callable[[Progress], None] = _ignore
    say: Callable[[str], None] = _ignore
    log: Callable[[Mapping[str, Any]], None] = _ignore


@dataclass(frozen=True)
class TrainingRun:
    """The result of a recipe.

    Attributes:
        model: the best seed's model.
        verdict: one sentence that compares the result with the optimum.
        columns, rows: a table with one row per seed.
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
    """A reproduced table or figure of a source document, run by `interp reproduce NAME`.

    Attributes:
        name: its name on the command line.
        summary: one line for `interp list`.
        source: document and section.
        presets: a short description of each `--preset`, by name.
        run: `run(preset, seeds, runner) -> Result`; `seeds` overrides the preset's number of
            trained models (None: the preset's own); the jobs go through `runner`.
        first_seed: the default. A study whose claims were made on some seeds is tested on others.
        shares: an identifier common to the artefacts that train some of the same models under
            the same names, so that `reproduce all` trains them once; "": no shared jobs.
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
    """Entries by name; a plugin cannot replace an entry of the catalogue."""
    full = f"interp_toolkit.{group}"
    ours = {name: f"interp_toolkit.{at}" for name, at in CATALOGUE.get(group, {}).items()}
    entries = {name: EntryPoint(name, value, full) for name, value in ours.items()}
    for entry in entry_points(group=full):
        if entry.name not in ours:
            entries[entry.name] = entry
        elif not entry.value.startswith("interp_toolkit."):  # not from an older installation
            warnings.warn(
                f"{entry.value} is left out: its name, {entry.name!r}, is taken by a "
                f"{group[:-1]} of interp_toolkit",
                stacklevel=2,
            )
    return entries


def names(group: Group) -> list[str]:
    """The registered names of a group, sorted; imports nothing."""
    return sorted(_entries(group))


def entry_value(group: Group, name: str) -> str:
    """The entry point of a registered object, "module:object"; imports nothing.

    Raises InputError if there is none.
    """
    return _entry(group, name).value


def _entry(group: Group, name: str) -> EntryPoint:
    entry = _entries(group).get(name)
    if entry is None:
        raise InputError(f"no {group[:-1]} is called {name!r}{suggestion(name, names(group))}")
    return entry


@takes(name=str)
def find(group: Group, name: str) -> Any:
    """The object registered under this name.

    Raises InputError if there is none, or if its package fails to import.
    """
    entry = _entry(group, name)
    try:
        return entry.load()
    except Exception as error:
        raise InputError(
            f"the {group[:-1]} {name!r} ({entry.value}) could not be imported: {error}"
        ) from error


def load_all(group: Group) -> dict[str, Any]:
    """Every registered object of a group; one that fails to import is left out with a warning."""
    objects = {}
    for name in names(group):
        try:
            objects[name] = find(group, name)
        except InputError as error:
            warnings.warn(str(error), stacklevel=2)
    return objects


@dataclass(frozen=True)
class TaskRecord:
    """The task of a model; fields that a record lacks are None, and recipes add fields.

    Attributes:
        name: name of the task, such as "sorting".
        function: the computed function: a truth table such as "0110", "uand", "skip-bigrams".
        tokens: token ids by name, among them "0" and "1".
        layout: layout of a prompt: a list of words, or a sorting layout in one string.
        distinct: whether lists have no repeats.
        n_features: number of sparse boolean inputs.
        most_on: largest number of inputs that are on at once.
        gates: the sets of features whose ANDs are computed.
        written: the record as it stands in the file.
    """

    name: str | None = None
    function: str | None = None
    tokens: Any = None
    layout: Any = None
    distinct: bool | None = None
    n_features: int | None = None
    most_on: int | None = None
    gates: Sequence[Sequence[int]] | None = None
    written: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, written: Mapping[str, Any] | None) -> TaskRecord:
        """The record in a file; its fields are None if the file has none."""
        fields = dict(written or {})
        distinct = fields.get("distinct")
        return cls(
            name=fields.get("name"),
            function=fields.get("function"),
            tokens=fields.get("tokens"),
            layout=fields.get("layout"),
            distinct=None if distinct is None else bool(distinct),
            n_features=_whole(fields.get("n_features")),
            most_on=_whole(fields.get("most_on")),
            gates=fields.get("gates"),
            written=fields,
        )

    def to_json(self) -> dict[str, Any]:
        """The record as `from_json` received it."""
        return dict(self.written)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None
