"""The state of one seed's training: what it takes to go on, bit for bit, as if never stopped.

A file of tensors and plain data, which `torch.load(..., weights_only=True)` reads, written beside
its place and moved there. Before reading, the checksums of the archive are verified, so that
damage is an error and not another number.
"""

from __future__ import annotations

import math
import pickle
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.errors import InputError, one_line
from interp_toolkit.files import check_file, replacing

FORMAT = "interp-toolkit-training/1"
#: what damage makes PyTorch, zipfile and pickle raise
_UNREADABLE = (
    zipfile.BadZipFile, pickle.UnpicklingError, zlib.error, EOFError, RuntimeError, ValueError,
    TypeError, LookupError, AttributeError,
)  # fmt: skip
_KINDS: Mapping[str, Any] = {
    "recipe": str, "settings": Mapping, "seed": int, "step": int, "model": Mapping,
    "optimiser": Mapping | None, "generators": Sequence, "lines": Sequence,
    "seconds": int | float, "finished": bool,
}  # fmt: skip


@dataclass(frozen=True)
class State:
    """One seed's training before the update after `step` others.

    Attributes:
        recipe, settings, seed: of the run.
        step: updates done.
        model: the parameters.
        optimiser: its state; None once the seed is finished.
        generators: the state of each rank's generator.
        lines: what was measured so far, a dictionary each.
        seconds: spent so far.
        finished: whether the seed is.
    """

    recipe: str
    settings: Mapping[str, Any]
    seed: int
    step: int
    model: Mapping[str, Tensor]
    optimiser: Mapping[str, Any] | None
    generators: Sequence[Tensor]
    lines: Sequence[Mapping[str, Any]]
    seconds: float
    finished: bool


def write(state: State, path: Path) -> None:
    """Write the state; the file's earlier content is there until the new one is whole.

    Raises InputError when the disk is full, or anything else is in the way.
    """
    data = {f.name: getattr(state, f.name) for f in fields(state)}
    try:
        with replacing(path) as partial, partial.open("wb") as file:
            torch.save({"format": FORMAT, **data}, file)
    except (
        OSError,
        RuntimeError,
    ) as error:  # PyTorch's own is a RuntimeError around it
        cause = error.__context__ if isinstance(error.__context__, OSError) else error
        reason = getattr(cause, "strerror", None) or one_line(cause)
        raise InputError(
            f"{path} cannot be written: {reason}; mend that and go on with --resume"
        ) from error


def read(path: Path) -> State:
    """Read a state.

    Raises InputError when the file is damaged, or holds something else.
    """
    try:
        check_file(path)
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        data = None if damaged else torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except _UNREADABLE:
        data = None
    if isinstance(data, dict) and data.pop("format", None) == FORMAT and _is_sound(data):
        return State(**data)
    raise InputError(
        f"{path} is no training state of this version, or is damaged: "
        "remove it to train that seed again"
    )


def _is_sound(data: Mapping[str, Any]) -> bool:
    """Whether a state has all its fields, and these what a run has written."""
    return (
        data.keys() == _KINDS.keys()
        and all(isinstance(data[key], kind) for key, kind in _KINDS.items())
        and data["step"] >= 0
        and 0 <= data["seconds"] < math.inf
        and all(isinstance(tensor, Tensor) for tensor in data["model"].values())
        and all(isinstance(state, Tensor) for state in data["generators"])
        and all(_is_line(line) for line in data["lines"])
        and len({frozenset(line) for line in data["lines"]}) <= 1
        and (data["optimiser"] is not None or (data["finished"] and len(data["lines"]) > 0))
    )


def _is_line(line: Any) -> bool:
    """Whether this is a measurement."""
    return (
        isinstance(line, Mapping)
        and {"seed", "step", "loss"} <= line.keys()
        and all(isinstance(value, int | float) for value in line.values())
    )
