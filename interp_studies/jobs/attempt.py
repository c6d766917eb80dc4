"""One attempt at a job, in any process: its values or its error, as data.

A model is sent as the bytes of its checkpoint, so workers need no shared folder.
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
    """The result of a job.

    Attributes:
        values: JSON data.
        model: a `Transformer` to store with them, if any.
        task, training: records of its checkpoint.
    """

    values: Mapping[str, Any]
    model: Any = None
    task: Mapping[str, Any] | None = None
    training: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Job:
    """An independent part of a study.

    Attributes:
        name: name, unique in the study; also the name of its files.
        function: a module-level function, so that another process can import it; it takes the
            arguments and `folder`, a folder for its own files that persists after a kill.
        arguments: JSON data; with the function, they determine the result.
        beside: further arguments that do not affect the result.
        cost: relative run time; the longest jobs start first.
    """

    name: str
    function: Callable[..., Outcome]
    arguments: Mapping[str, Any]
    cost: float = 1.0
    beside: Mapping[str, Any] = field(default_factory=dict)

    def identity(self) -> dict[str, Any]:
        """What is computed, as JSON data: arguments, and the function's name without module."""
        return {"function": self.function.__qualname__, "arguments": dict(self.arguments)}


class ProcessKilledError(InputError):
    """The worker of a job, or its cluster, died."""


@dataclass(frozen=True)
class Attempt:
    """The outcome of an attempt at a job.

    Attributes:
        name: name of the job.
        values: its values, as plain data; None if it failed.
        checkpoint: the bytes of its model's `.safetensors`, if it has a model.
        error: the exception, or `ProcessKilledError`; None if it succeeded.
        trace: traceback from another process.
    """

    name: str
    values: Mapping[str, Any] | None = None
    checkpoint: bytes | None = None
    error: BaseException | None = None
    trace: str = ""

    def check(self) -> None:
        """Raise the job's exception; an InputError with the job's name."""
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
    """Run a job in this process on one thread; an exception becomes part of the attempt.

    Args:
        job: the job.
        folder: folder for the job's own files.
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
    """Run a pickled job in a worker; an exception that cannot be sent becomes text.

    Args:
        name: name of the job.
        data: the pickled job.
        study: folder of the study; if it does not exist here, the job's own files are temporary.
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
    """Run PyTorch and numpy's linear algebra on one thread each, if they are imported."""
    from threadpoolctl import threadpool_limits

    torch = sys.modules.get("torch")
    with threadpool_limits(1), contextlib.ExitStack() as stack:
        if torch is not None:
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)
        yield
