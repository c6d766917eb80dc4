"""Metrics of a training run: in a file, in trackers, and the score by which runs are compared.

*File.* `metrics.jsonl` has one JSON object per measurement, one per line, and no clock times, so
that a resumed run ends with the same file as an uninterrupted one.

*Final score.* `FinalScore` is the number by which runs of a task are compared, with the information
that the comparison needs. Every recipe in `tasks` and `text` stores one in its training record,
under "measured", so that tables, sweeps and the litmus test need not know the task.

*Trackers.* The lines of `metrics.jsonl` are sent to TensorBoard or Weights & Biases as they come,
seed by seed. Everything else that Weights & Biases would collect (the command, the machine, its
load, installed packages, code) is switched off. Tracking is off by default; each tracker needs
the package's extra of its name. A resumed run continues in the same tracker run. It sends the
measurements after its saved state once more: the same values at the same steps.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from interp_toolkit.errors import InputError, reason_of, suggestion
from interp_toolkit.files import replacing
from interp_toolkit.report.html import write_text
from interp_toolkit.results import jsonable


class Metrics:
    """A JSONL file to which whole lines are appended."""

    def __init__(self, path: Path):
        self.path = path
        self._size = 0

    def restart(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Replace the content by these lines; raises OSError on failure."""
        text = b"".join(_encoded(line) for line in lines)
        with replacing(self.path) as partial:
            partial.write_bytes(text)
        self._size = len(text)

    def add(self, line: Mapping[str, Any]) -> None:
        """Append a line; raises InputError on failure, without leaving a partial line."""
        text = _encoded(line)
        try:
            with self.path.open("r+b") as file:
                file.seek(self._size)
                try:
                    file.write(text)
                    file.flush()
                except OSError:
                    os.truncate(self.path, self._size)
                    raise
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be written: {reason_of(error)}; fix that and continue with "
                "--resume"
            ) from error
        self._size += len(text)


def _encoded(line: Mapping[str, Any]) -> bytes:
    return (json.dumps(jsonable(line), allow_nan=False) + "\n").encode()


KEY = "measured"


@dataclass(frozen=True)
class FinalScore:
    """A task's score, comparable between runs.

    Attributes:
        name: name of the score, in the run's table and in its curve.
        value: the best seed's score.
        better: direction of improvement.
        unit: "share" (0 to 1) or "nats".
        guess: score of a rule that does not solve the task; None: unknown.
        examples: number of independent test examples in the mean.
        guess_rule: description of that rule; empty without one.
    """

    name: str
    value: float
    better: Literal["higher", "lower"]
    unit: Literal["share", "nats"]
    guess: float | None
    examples: int
    guess_rule: str = ""

    def recorded(self) -> dict[str, Any]:
        """The score as JSON data, for the training record."""
        return {KEY: asdict(self)}


def final_score_of(training: Mapping[str, Any]) -> FinalScore:
    """The final score in a training record."""
    return FinalScore(**training[KEY])


Log = Callable[[Mapping[str, Any]], None]

EVENTS, WANDB = "tensorboard", "wandb"  # the trackers' folders in the run's folder
PROJECT = "interp-toolkit"  # of Weights & Biases, unless WANDB_PROJECT is set


def check_log(to: str | None, out: object) -> None:
    """Check before a run that measurements can be sent to the tracker.

    Args:
        to: "tensorboard", "wandb" or None.
        out: path of the saved run, or None.

    Raises:
        InputError: an unknown tracker, a missing package, or a run that is not saved.
    """
    if to is None:
        return
    if to not in _TRACKERS:
        raise InputError(
            f"--log {to}: give one of {', '.join(_TRACKERS)}{suggestion(to, _TRACKERS)}"
        )
    if out is None:
        raise InputError("--log needs a saved run: give --out")
    try:
        _package(to)
    except ImportError as error:
        raise InputError(
            f'--log {to} needs its package: pip install "interp-toolkit[{to}]"'
        ) from error


@contextmanager
def tracked(
    to: str | None, folder: str | Path | None, name: str, *, restart: bool
) -> Iterator[Log]:
    """A function that sends measurements to the tracker; without effect if `to` is None.

    Args:
        to: destination of the log, as `check_log` accepts it.
        folder: the run's, which exists by the time of the first measurement.
        name: name of the run.
        restart: whether to remove an earlier run's local records of the same seeds.
    """
    if to is None or folder is None:
        yield lambda line: None
        return
    with _TRACKERS[to](Path(folder), name, restart) as log:
        yield log


def _package(to: str) -> Any:
    if to == "wandb":
        import wandb

        return wandb
    from torch.utils import tensorboard

    return tensorboard


@contextmanager
def _tensorboard(folder: Path, name: str, restart: bool) -> Iterator[Log]:
    """Write event files in the run's folder, with a tracker run for each seed."""
    writers: dict[int, Any] = {}

    def log(line: Mapping[str, Any]) -> None:
        seed = line["seed"]
        if seed not in writers:
            path = folder / EVENTS / name / f"seed-{seed}"
            if restart:
                shutil.rmtree(path, ignore_errors=True)
            writers[seed] = _package("tensorboard").SummaryWriter(str(path))
        for key, value in _measured(line):
            writers[seed].add_scalar(key, value, line["step"])

    try:
        yield log
    finally:
        for writer in writers.values():
            writer.close()


@contextmanager
def _wandb(folder: Path, name: str, restart: bool) -> Iterator[Log]:
    """A Weights & Biases run for all seeds, started at the first measurement."""
    runs: list[Any] = []
    seeds: set[int] = set()

    def log(line: Mapping[str, Any]) -> None:
        if not runs:
            runs.append(_run(folder, name, restart))
        prefix = f"seed-{line['seed']}"
        if line["seed"] not in seeds:
            seeds.add(line["seed"])
            runs[0].define_metric(f"{prefix}/*", step_metric=f"{prefix}/step")
        values = {f"{prefix}/{key}": value for key, value in _measured(line)}
        runs[0].log({**values, f"{prefix}/step": line["step"]})

    try:
        yield log
    except BaseException:
        for run in runs:
            run.finish(exit_code=1)
        raise
    for run in runs:
        run.finish()


def _run(folder: Path, name: str, restart: bool) -> Any:
    """The tracker run in the folder, or a new one; the folder stores its id."""
    wandb = _package("wandb")
    id_file = folder / WANDB / f"{name}.id"
    resumes = id_file.is_file() and not restart
    quiet = wandb.Settings(
        console="off", disable_code=True, disable_git=True, x_disable_machine_info=True,
        x_disable_meta=True, x_disable_stats=True, x_save_requirements=False,
    )  # fmt: skip
    id_file.parent.mkdir(exist_ok=True)
    try:
        run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=name,
            dir=str(folder),
            id=id_file.read_text(encoding="utf-8").strip() if resumes else None,
            resume="allow" if resumes else None,
            settings=quiet,
        )
    except wandb.Error as error:
        raise InputError(
            f"--log wandb: {error}; WANDB_MODE=offline keeps the run on this machine"
        ) from error
    write_text(id_file, f"{run.id}\n")
    return run


def _measured(line: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in line.items():
        if key not in ("seed", "step") and isinstance(value, (int, float)):
            yield key, value


_TRACKERS: Mapping[str, Callable[[Path, str, bool], AbstractContextManager[Log]]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
}
