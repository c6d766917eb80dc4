"""`analyze(model, name)`: find an analysis by name, give it its options, run it.

Nothing here knows any analysis; names, ours and plugins', come from the registry.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from interp_toolkit.data import FeatureData, read_data
from interp_toolkit.errors import InputError, suggestion
from interp_toolkit.models.loading.loader import load
from interp_toolkit.registry import Analysis, find, load_all
from interp_toolkit.results import Result


def analyze(model: Any, name: str, *, data: Any = None, **options: Any) -> Result:
    """Run one analysis on a model.

    Args:
        model: any TransformerLens model, or what `load` takes.
        name: of the analysis, as `interp list probes` shows them.
        data: a `FeatureData`, or the path of a file that `read_data` takes.
        options: the analysis' own (see `options_of`); with `features` a file's columns are not
            read.

    Raises:
        InputError: an unknown name or option, or what the analysis says of its input.
    """
    analysis = find("probes", name)
    known = options_of(analysis)
    for option in options:
        if option not in known:
            raise InputError(f"{name} takes no option {option!r}{suggestion(option, known)}")
    for option in _required(analysis):
        if option not in options:
            raise InputError(f"{name} needs {option!r} (--{option})")
    model = load(model)
    columns = None if options.get("features") is None else ()
    result: Result = analysis.run(model, data=as_data(data, model, columns), **options)
    return result


def options_of(analysis: Analysis) -> set[str]:
    """The keywords an analysis takes, apart from the data and what its name settles."""
    fixed = analysis.run.keywords if isinstance(analysis.run, functools.partial) else {}
    parameters = inspect.signature(analysis.run).parameters.values()
    taken = {p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
    return taken - set(fixed) - {"data", "probe"}


def _required(analysis: Analysis) -> list[str]:
    fixed = analysis.run.keywords if isinstance(analysis.run, functools.partial) else {}
    return [
        p.name
        for p in inspect.signature(analysis.run).parameters.values()
        if p.kind is inspect.Parameter.KEYWORD_ONLY
        and p.default is inspect.Parameter.empty
        and p.name not in fixed
    ]


def fitting(model: Any, data: FeatureData | None) -> list[str]:
    """Names of the analyses that can run on this model and data without further options."""
    return [name for name, a in load_all("probes").items() if a.unfit(model, data) is None]


def as_data(data: Any, model: Any, columns: Sequence[str] | None = None) -> FeatureData | None:
    """Data as the analyses take it; a path is read with the model's tokenizer, if it has one.

    `columns` chooses the features of a file, in the function's order; without any, the file is
    read for its tokens alone.
    """
    if data is None or isinstance(data, FeatureData):
        return data
    if isinstance(data, str | Path):
        tokenizer, d_vocab = getattr(model, "tokenizer", None), model.cfg.d_vocab
        return read_data(data, tokenizer=tokenizer, d_vocab=d_vocab, feature_names=columns)
    raise InputError(f"data must be a FeatureData or a path, not {type(data).__name__}")
