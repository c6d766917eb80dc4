"""One attempt at a job, in any process: its values or its error, as data to send back.

A model is sent as the bytes of its checkpoint, so that a worker needs no folder in common with the
process that writes it.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interp_toolkit.errors import InputError, first_line
from interp_toolkit.results import jsonable

_ONE_AT_A_TIME = threading.Lock()  # a Dask worker may have several threads, PyTorch one state


@dataclass(frozen=True)
class Outcome:
    """What a job found.

    Attributes:
        values: JSON data.
        model: a `Transformer` to keep beside them, if any.
        task, training: the records of its checkpoint.
    """

    values: Mapping[str, Any]
    model: Any = None
    task: Mapping[str, Any] | None = None
    training: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Job:
    """A part of a study that needs no other.

    Attributes:
        name: unique in the study; also the name of its files.
        function: a module-level function, so that another process can import it; takes the
            arguments and `folder`, a place for its own files that persists after a kill.
        arguments: JSON data; they settle, with the function, what comes out.
        beside: further arguments, that settle nothing of it.
        cost: how long it takes, roughly, beside the others: the longest are started first.
    """

    name: str
    function: Callable[..., Outcome]
    arguments: Mapping[str, Any]
    cost: float = 1.0
    beside: Mapping[str, Any] = field(default_factory=dict)

    def identity(self) -> dict[str, Any]:
        """What is computed, as JSON data: the function by its own name, wherever it lies."""
        return {"function": self.function.__qualname__, "arguments": dict(self.arguments)}


class ProcessKilledError(InputError):
    """The worker of a job died under it, or the cluster that had it."""


@dataclass(frozen=True)
class Attempt:
    """How a try at a job went.

    Attributes:
        name: name of the job.
        values: what it found, as plain data; None where it did not come to an end.
        checkpoint: the bytes of its model's `.safetensors`, if it has one.
        error: what it raised, or `ProcessKilledError`; None where it came to an end.
        trace: where it was raised, if that was in another process.
    """

    name: str
    values: Mapping[str, Any] | None = None
    checkpoint: bytes | None = None
    error: BaseException | None = None
    trace: str = ""

    def check(self) -> None:
        """Raise what the job raised, an InputError with its name."""
        if self.error is None:
            return
        cause = RuntimeError(f"in another process:\n{self.trace}") if self.trace else self.error
        if isinstance(self.error, InputError):
            raise InputError(f"{self.name}: {self.error}") from cause
        raise self.error from (cause if self.trace else None)

    def failure(self) -> str:
        """Why there are no values, on one line."""
        if isinstance(self.error, InputError):
            return str(self.error)
        assert self.error is not None
        return f"{type(self.error).__name__}: {first_line(self.error)}"


def attempt(job: Job, folder: Path) -> Attempt:
    """Do a job in this process on one thread; the attempt holds any error that it raises.

    Args:
        job: to do.
        folder: for files of its own.
    """
    try:
        with one_thread():
            outcome = job.function(folder=folder, **job.arguments, **job.beside)
        checkpoint = None
        if outcome.model is not None:
            from interp_toolkit.models.loading.formats.checkpoint import save

            with tempfile.TemporaryDirectory(prefix="interp-model-") as place:
                path = Path(place) / "model.safetensors"
                save(outcome.model, path, task=outcome.task, training=outcome.training)
                checkpoint = path.read_bytes()
        return Attempt(job.name, jsonable(outcome.values), checkpoint)
    except (Exception, SystemExit) as error:
        return Attempt(job.name, error=error, trace=traceback.format_exc())


def attempt_in_worker(name: str, data: bytes, study: Path) -> Attempt:
    """Try a pickled job in a worker, where an error of a class that cannot be sent is put in words.

    Args:
        name: name of the job.
        data: the job, pickled.
        study: the folder of the study; without it here, the job's own files are temporary.
    """
    with _ONE_AT_A_TIME, contextlib.ExitStack() as stack:
        if not study.is_dir():
            own = tempfile.TemporaryDirectory(prefix="interp-job-")
            study = Path(stack.enter_context(own))
        try:
            job: Job = pickle.loads(data)
        except Exception as error:
            return Attempt(name, error=InputError(f"a worker cannot load the job: {error}"))
        found = attempt(job, study / name)
    try:
        pickle.loads(pickle.dumps(found))
    except Exception:
        if found.error is None:
            raise
        return Attempt(name, error=RuntimeError(found.failure()), trace=found.trace)
    return found


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch and the linear algebra of numpy on one thread each, as far as they are imported."""
    from threadpoolctl import threadpool_limits

    torch = sys.modules.get("torch")
    with threadpool_limits(1), contextlib.ExitStack() as stack:
        if torch is not None:
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)
        yield
