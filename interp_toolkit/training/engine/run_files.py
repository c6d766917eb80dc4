"""The folder of a training run, and the state from which the training of a seed resumes.

    run.json                             recipe, settings, and whether the run has ended
    metrics.jsonl                        measurements, one per line
    seed-0-step-000100.safetensors       the model after that many steps, an ordinary checkpoint
    tensorboard/, wandb/                 files of `--log`; wandb/ is never removed here
    seed-0.state                         state for `--resume`; removed when the run has ended

A state holds what one seed's training needs to continue bit for bit. It is a file of tensors and
plain data, which `torch.load(..., weights_only=True)` reads, written to a temporary file and moved
into place. The checksums of the archive are verified before reading, so that damage raises an error
instead of changing a number.

One process at a time may train in a folder; the operating system releases its lock if the process
dies. An interrupted run is never overwritten: it is resumed, or removed by hand.
"""

from __future__ import annotations

import json
import math
import pickle
import re
import shutil
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from interp_toolkit.errors import InputError, reason_of
from interp_toolkit.files import check_file, read_whole_text, replacing
from interp_toolkit.models.loading.formats.checkpoint import save
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.training.engine.metrics import EVENTS, Metrics
from interp_toolkit.training.engine.settings import TrainingSettings

FORMAT = "interp-toolkit-training/1"
#: exceptions of PyTorch, zipfile and pickle on damaged files
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
    """The training of one seed, before update number `step`.

    Attributes:
        recipe, settings, seed: those of the run.
        step: updates done.
        model: the parameters.
        optimiser: its state; None if the seed is finished.
        generators: the state of each rank's generator.
        lines: the measurements so far, a dictionary each.
        seconds: time spent so far.
        finished: whether the seed is finished.
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
    """Write the state atomically: the earlier content stays until the new one is complete.

    Raises InputError if it cannot be written, for example on a full disk.
    """
    data = {f.name: getattr(state, f.name) for f in fields(state)}
    try:
        with replacing(path) as partial, partial.open("wb") as file:
            torch.save({"format": FORMAT, **data}, file)
    except (
        OSError,
        RuntimeError,
    ) as error:  # PyTorch wraps the error in a RuntimeError
        cause = error.__context__ if isinstance(error.__context__, OSError) else error
        reason = reason_of(cause)
        raise InputError(
            f"{path} cannot be written: {reason}; fix that and continue with --resume"
        ) from error


def read(path: Path) -> State:
    """Read a state.

    Raises InputError if the file is damaged, or is not a state.
    """
    try:
        check_file(path)
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        data = None if damaged else torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason_of(error)}") from error
    except _UNREADABLE:
        data = None
    if isinstance(data, dict) and data.pop("format", None) == FORMAT and _is_sound(data):
        return State(**data)
    raise InputError(
        f"{path} is damaged, or a training state of another version: remove it to train that "
        "seed again"
    )


def _is_sound(data: Mapping[str, Any]) -> bool:
    """Whether a state has all its fields, with valid values."""
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
    """Whether this is a valid measurement."""
    return (
        isinstance(line, Mapping)
        and {"seed", "step", "loss"} <= line.keys()
        and all(isinstance(value, int | float) for value in line.values())
    )


LOCK = ".lock"  # file name; a killed process leaves the file, but unlocked


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder.

    Raises InputError if another process holds it, or the folder cannot be written.
    """
    path = folder / LOCK
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError(
            f"another process is training in {folder}: wait for it, or give another --out"
        ) from None
    except OSError as error:
        raise InputError(f"{folder} cannot be opened: {reason_of(error)}") from error
    try:
        yield
    finally:
        with suppress(OSError):  # Windows cannot remove open files
            path.unlink()
        lock.release()


#: incomplete files of a killed process: from `replacing`, or from safetensors
_HALF_WRITTEN = re.compile(r"\..*\.part|\.tmp\w{6}")
_CHECKPOINT_NAME = re.compile(r"seed-(\d+)-step-(\d+)\.safetensors")


class SavedCheckpoint(NamedTuple):
    """A checkpoint from the training of a seed."""

    seed: int
    step: int
    path: Path


def saved_checkpoints(folder: str | Path) -> list[SavedCheckpoint]:
    """The checkpoints of selected steps in a run's folder, by seed and step."""
    matches = ((_CHECKPOINT_NAME.fullmatch(path.name), path) for path in Path(folder).iterdir())
    return sorted(SavedCheckpoint(int(m[1]), int(m[2]), path) for m, path in matches if m)


class RunFiles:
    """The files of one run, open for writing on the first rank and for reading on the others.

    Args:
        folder: their folder, which need not exist.
        recipe: its name.
        settings: settings of the run.
        resume: continue the unfinished run in the folder.

    Raises:
        InputError: the folder holds an unfinished run and `resume` is False; or `resume` is True,
            and the run in it has ended or has other settings; or its run.json is damaged.
    """

    def __init__(
        self, folder: Path, recipe: str, settings: TrainingSettings, *, resume: bool = False
    ):
        self.folder = folder
        self.recipe = recipe
        self.settings = dict(settings.recorded())
        self.metrics = Metrics(folder / "metrics.jsonl")
        about, unfinished = _about(folder), bool(_states(folder))
        ended = about is not None and about["ended"]
        if resume and ended:
            end_run(folder)  # complete a cleanup that was interrupted
            raise InputError(f"{folder} holds a finished run: leave out --resume to train again")
        if resume and about is not None and unfinished:
            _check_same(folder, about, self.recipe, self.settings)
        if unfinished and not resume and not ended:
            raise InputError(
                f"{folder} holds an unfinished run: give --resume to continue it, or remove the "
                "folder to start again"
            )
        self._resumes = resume and unfinished

    @contextmanager
    def opened(self, seeds: Iterable[int]) -> Iterator[None]:
        """Create the folder, and keep other processes from training in it.

        Files of a killed process are removed, and, unless resuming, those of an earlier run.

        Raises InputError if it cannot be written, another process trains in it, or a state for
        resuming is damaged.
        """
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.folder} cannot be written: {reason_of(error)}") from error
        with locked(self.folder):
            self._prepare(seeds)
            yield

    def _prepare(self, seeds: Iterable[int]) -> None:
        about = {"recipe": self.recipe, "settings": self.settings, "ended": False}
        try:
            for path in self.folder.iterdir():
                if _HALF_WRITTEN.fullmatch(path.name):
                    path.unlink()
            if not self._resumes:
                _clear(self.folder)
            states = (self.state(seed) for seed in seeds)
            self.metrics.restart(line for state in states if state for line in state.lines)
            _write_about(self.folder, about)
        except OSError as error:
            raise InputError(f"{self.folder} cannot be written: {reason_of(error)}") from error

    def state(self, seed: int) -> State | None:
        """The saved state of a seed to resume, or None.

        Raises InputError if it is damaged or of another run.
        """
        path = self._state_path(seed)
        if not self._resumes or not path.exists():
            return None
        state = read(path)
        if (state.recipe, state.settings, state.seed) != (self.recipe, self.settings, seed):
            raise InputError(f"{path} belongs to another run: remove it to train seed {seed} again")
        return state

    def save_state(self, seed: int, **state: Any) -> None:
        """Write a seed's state; the keywords are the other fields of `State`."""
        write(State(self.recipe, self.settings, seed, **state), self._state_path(seed))

    def keep(
        self, model: Transformer, seed: int, step: int, task: Mapping[str, Any] | None
    ) -> None:
        """Write the model of this step as an ordinary checkpoint."""
        digits = len(str(self.settings["steps"]))
        path = self.folder / f"seed-{seed}-step-{step:0{digits}d}.safetensors"
        about = {"recipe": self.recipe, "seed": seed, "step": step, "settings": self.settings}
        save(model, path, task=task, training=about)

    def _state_path(self, seed: int) -> Path:
        return self.folder / f"seed-{seed}.state"


def end_run(folder: Path) -> None:
    """Mark the run in a folder as ended, and remove the files for resuming.

    Called once the trained model is saved; does nothing if there is no run.
    Raises InputError if the folder cannot be written.
    """
    about = _about(folder)
    if about is None:
        return
    try:
        _write_about(folder, {**about, "ended": True})
        for path in _states(folder):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {reason_of(error)}") from error


def has_unfinished(folder: Path) -> bool:
    """Whether the folder has a run to resume."""
    about = _about(folder)
    return about is not None and not about["ended"] and bool(_states(folder))


def _states(folder: Path) -> list[Path]:
    return sorted(folder.glob("seed-*.state"))


def _about(folder: Path) -> dict[str, Any] | None:
    """The content of `run.json`, or None."""
    path = folder / "run.json"
    try:
        about = json.loads(read_whole_text(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason_of(error)}") from error
    except (ValueError, RecursionError):
        about = None
    kinds = {"recipe": str, "settings": dict, "ended": bool}
    if (
        not isinstance(about, dict)
        or about.keys() != kinds.keys()
        or not all(isinstance(about[key], kind) for key, kind in kinds.items())
    ):
        raise InputError(f"{path} is damaged: remove {folder} to start again")
    return about


def _write_about(folder: Path, about: Mapping[str, Any]) -> None:
    with replacing(folder / "run.json") as partial:
        partial.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _check_same(
    folder: Path, about: Mapping[str, Any], recipe: str, settings: Mapping[str, Any]
) -> None:
    """Raise InputError that names the first setting in which a saved run differs."""
    if about["recipe"] != recipe:
        raise InputError(f"{folder} holds a run of {about['recipe']}, not of {recipe}")
    for name in sorted(settings.keys() | about["settings"].keys()):
        was, now = about["settings"].get(name), settings.get(name)
        if was != now:
            raise InputError(
                f"{folder} holds a run with {name} = {was}, not {now}: "
                "give the settings it was started with, or another --out"
            )


def _clear(folder: Path) -> None:
    """Remove the files of an earlier run, `run.json` last."""
    checkpoints = [checkpoint.path for checkpoint in saved_checkpoints(folder)]
    shutil.rmtree(folder / EVENTS, ignore_errors=True)
    for path in [*_states(folder), *checkpoints, folder / "metrics.jsonl", folder / "run.json"]:
        path.unlink(missing_ok=True)
