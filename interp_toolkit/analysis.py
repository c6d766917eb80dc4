"""`analyze(model, name)`: look up an analysis by name and run it with its options.

The registry holds the names of all analyses, built in and from plugins; none is named here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from interp_toolkit.data import FeatureData, data_from_arrays, read_data
from interp_toolkit.data.text.tokenization import data_from_texts
from interp_toolkit.errors import InputError
from interp_toolkit.files import read_npz
from interp_toolkit.finding import shown_early
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.loading.loader import load
from interp_toolkit.models.running.stages import resuming
from interp_toolkit.options import Options, read_options
from interp_toolkit.registry import Analysis, Recipe, find, load_all, names
from interp_toolkit.results import Result
from interp_toolkit.state import preserve_state

if TYPE_CHECKING:
    from interp_toolkit.circuits.collapse import CollapseFinding
    from interp_toolkit.circuits.composition import CompositionFinding
    from interp_toolkit.circuits.edges.analysis import CircuitFinding
    from interp_toolkit.circuits.heads.result import HeadsFinding
    from interp_toolkit.circuits.logit_attribution import LogitAttributionFinding
    from interp_toolkit.circuits.patching.analysis import PatchingFinding
    from interp_toolkit.circuits.qk_ov import OVFinding, QKFinding
    from interp_toolkit.circuits.roles.result import RolesFinding
    from interp_toolkit.circuits.skip_bigrams.analysis import SkipBigramFinding
    from interp_toolkit.circuits.sorting.analysis import SortingFinding
    from interp_toolkit.circuits.universal_keys.analysis import UniversalKeysFinding
    from interp_toolkit.probes.boolean.result import BooleanFinding
    from interp_toolkit.probes.uand.result import UANDFinding

# The result class of each built-in analysis, for type checkers; plugins return `Result`.
Functions = Literal["xor", "and", "or", "boolean"]
Heads = Literal["heads", "induction", "previous-token", "duplicate-token", "k-hop"]


@overload
def analyze(model: Any, name: Functions, *, data: Any = None, **options: Any) -> BooleanFinding: ...
@overload
def analyze(model: Any, name: Heads, *, data: Any = None, **options: Any) -> HeadsFinding: ...
@overload
def analyze(model: Any, name: Literal["qk"], *, data: Any = None, **options: Any) -> QKFinding: ...
@overload
def analyze(model: Any, name: Literal["ov"], *, data: Any = None, **options: Any) -> OVFinding: ...
@overload
def analyze(
    model: Any, name: Literal["composition"], *, data: Any = None, **options: Any
) -> CompositionFinding: ...
@overload
def analyze(
    model: Any, name: Literal["circuit"], *, data: Any = None, **options: Any
) -> CircuitFinding: ...
@overload
def analyze(
    model: Any, name: Literal["sorting"], *, data: Any = None, **options: Any
) -> SortingFinding: ...
@overload
def analyze(
    model: Any, name: Literal["skip-bigrams"], *, data: Any = None, **options: Any
) -> SkipBigramFinding: ...
@overload
def analyze(
    model: Any, name: Literal["universal-keys"], *, data: Any = None, **options: Any
) -> UniversalKeysFinding: ...
@overload
def analyze(
    model: Any, name: Literal["uand"], *, data: Any = None, **options: Any
) -> UANDFinding: ...
@overload
def analyze(
    model: Any, name: Literal["collapse"], *, data: Any = None, **options: Any
) -> CollapseFinding: ...
@overload
def analyze(
    model: Any, name: Literal["roles"], *, data: Any = None, **options: Any
) -> RolesFinding: ...
@overload
def analyze(
    model: Any, name: Literal["logit-attribution"], *, data: Any = None, **options: Any
) -> LogitAttributionFinding: ...
@overload
def analyze(
    model: Any, name: Literal["patching"], *, data: Any = None, **options: Any
) -> PatchingFinding: ...
@overload
def analyze(model: Any, name: str, *, data: Any = None, **options: Any) -> Result: ...
def analyze(model: Any, name: str, *, data: Any = None, **options: Any) -> Result:
    """Run one analysis on a model, and return its `Result`.

    Args:
        model: any TransformerLens model, or an argument of `load`.
        name: the analysis, as `interp list probes` shows it.
        data: a `FeatureData` (`task` makes one for a named behavior), the path of a file that
            `read_data` takes, a list of texts, rows of token ids (an array, a tensor, lists), or a
            mapping of arrays as `data_from_arrays` takes it. With an array `inputs` of numbers, in
            a mapping or .npz file, `model` is a plain MLP with one hidden layer (see `on_rows`).
        options: the options of the analysis, as `interp show NAME` lists them. In addition:
            `progress`, a function called with a description of each step, and `early`, a function
            called with the finding of a first stage (such as attention, before knockouts) if the
            rest takes long, `schema`, the columns of a file as `read_data` takes them, and
            `resume`, a folder in which finished stages of long analyses are kept, for a run with
            the same arguments to go on from. With `features`, the feature columns of `data` are
            not read.

    Raises:
        InputError: an unknown name or option, or input that the analysis cannot use.
        InterruptedAnalysis: a KeyboardInterrupt after a first stage; its `finding` holds the
            results of that stage.

    Examples:
        >>> import interp_toolkit as it
        >>> it.analyze("toy:xor-2head", "xor").status
        'separable'
    """
    analysis = find("probes", name)
    progress = options.pop("progress", None) or (lambda step: None)
    early = options.pop("early", None) or (lambda finding: None)
    schema, folder = options.pop("schema", None), options.pop("resume", None)
    chosen = read_options(analysis.options, options, name)
    columns = () if reads_features(chosen) else None
    if (arrays := rows_of_numbers(data)) is not None:
        model, data = on_rows(model, arrays, columns)
    with preserve_state(model), shown_early(early), resuming(folder):
        model = load(model)
        return run(analysis, model, as_data(data, model, columns, schema), chosen, progress)


def rows_of_numbers(data: Any) -> Mapping[str, Any] | None:
    """The arrays of rows of numbers for a plain MLP, with the array `inputs`; None for prompts."""
    if isinstance(data, Mapping):
        return data if "inputs" in data else None
    if not isinstance(data, str | Path) or Path(data).suffix.lower() != ".npz":
        return None
    if not Path(data).expanduser().is_file():
        return None  # the reader of prompts says so
    arrays = read_npz(Path(data).expanduser())
    return {**arrays, "source": str(data)} if "inputs" in arrays else None


def on_rows(
    mlp: Any,
    arrays: Mapping[str, Any],
    columns: Sequence[str] | None = None,
    act_fn: str | None = None,
) -> tuple[Any, FeatureData]:
    """A plain MLP and its rows, as a model and its prompts (see `models.loading.plain_mlp`).

    Args:
        mlp: a module with one hidden layer, its state dict, or the file of one.
        arrays: `inputs` [row, d_in], `features` [row, feature], and `outputs` where the
            nonlinearity is not known.
        columns: the features to take; None: all.
        act_fn: the nonlinearity, if it is known.
    """
    from interp_toolkit.models.loading.plain_mlp import model_on_rows

    model, tokens = model_on_rows(mlp, arrays["inputs"], arrays.get("outputs"), act_fn)
    rest = {name: arrays[name] for name in arrays if name not in ("inputs", "outputs", "source")}
    data = data_from_arrays({**rest, "tokens": tokens}, columns)
    return model, dataclasses.replace(data, source=str(arrays.get("source", "rows of numbers")))


def run(
    analysis: Analysis,
    model: Any,
    data: FeatureData | None,
    options: Options,
    progress: Callable[[str], None],
) -> Result:
    """Run an analysis with checked options; raises InputError as `Analysis.apply` does.

    Without data, one that tests answers takes the rows of the task that the model was trained on.
    """
    if data is None and analysis.reads_answers and getattr(options, "length", None) is None:
        data = trained_on(model)
        if data is not None:
            progress(f"prompts: {data.source}")
    result: Result = analysis.apply(model, data, options, progress)
    return result


ROWS = 256  # held-out rows of the task that a model was trained on


def trained_on(model: Any) -> FeatureData | None:
    """Held-out prompts of the task that `interp train` trained a checkpoint on; else None."""
    training = record_of(model).training or {}
    name, settings = training.get("recipe"), training.get("settings")
    if name not in names("recipes") or not isinstance(settings, Mapping):
        return None
    recipe: Recipe = find("recipes", name)
    if recipe.rows is None:
        return None
    try:
        rows = recipe.rows(recipe.config(**settings), ROWS)
    except ValueError:  # also InputError: a file of another version, or without such prompts
        return None
    fits = max(map(len, rows.tokens)) <= int(model.cfg.n_ctx)
    return rows if fits else None


def reads_features(options: Options) -> bool:
    """Whether the options name the source of the features, instead of the data's columns."""
    return getattr(options, "features", None) is not None


def fitting(model: Any, data: FeatureData | None) -> tuple[dict[str, Analysis], dict[str, str]]:
    """The analyses that can run on this model and data, and the reason for each that cannot."""
    fit: dict[str, Analysis] = {}
    unfit: dict[str, str] = {}
    trained = trained_on(model) if data is None else None
    for name, analysis in load_all("probes").items():
        reason = analysis.unfit(model, trained if data is None and analysis.reads_answers else data)
        if reason is None:
            fit[name] = analysis
        else:
            unfit[name] = reason
    return fit, unfit


def as_data(
    data: Any, model: Any, columns: Sequence[str] | None = None, schema: Any = None
) -> FeatureData | None:
    """Convert data to `FeatureData`; paths and texts are read with the model's tokenizer.

    `columns` selects the features of a file or of arrays, in this order; None: all; empty: none.
    `schema`: as `read_data` takes it, for paths.
    """
    if schema is not None and not isinstance(data, str | Path):
        raise InputError("schema names the columns of a file: give the path of one as data")
    if data is None or isinstance(data, FeatureData):
        return data
    if isinstance(data, str | Path):
        tokenizer, d_vocab = getattr(model, "tokenizer", None), model.cfg.d_vocab
        read = read_data(data, tokenizer, d_vocab, columns, schema)
        return read.within_context(int(getattr(model.cfg, "n_ctx", read.lengths.max())))
    if isinstance(data, list | tuple) and data and all(isinstance(text, str) for text in data):
        texts = data_from_texts(data, getattr(model, "tokenizer", None))
        return texts.check_vocabulary(model.cfg.d_vocab)
    return data_from_arrays(data, columns).check_vocabulary(model.cfg.d_vocab)
