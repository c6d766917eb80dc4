"""Jobs in a process of their own, so that one that is killed takes nothing else with it.

Whoever wants a job done, a thread here or a worker of a cluster, sends it to a process that does
nothing else and waits; if that process dies, this job is known to be the one that was lost. A
process is used again for the next job, so that what it imports is paid for once.

The two talk through pipes. When whoever asked dies, the pipe ends and the process leaves at once,
so that a study that was killed and resumed never has two writers of the same files. Plain pipes,
because the workers of a cluster may be daemons, which `multiprocessing` forbids children.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

from interp_toolkit.errors import InputError
from interp_toolkit.studies.jobs.attempt import Attempt, Job, ProcessKilledError, attempt, packed

IDLE = 60.0  # seconds without a job after which a process leaves by itself
LOCK_PATIENCE = 5.0  # seconds for the process of a killed worker to be gone
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class OwnProcesses:
    """As many processes as jobs are done at once, each used again; safe to use from threads.

    Args:
        idle: seconds without a job after which a process leaves.
    """

    def __init__(self, idle: float = IDLE) -> None:
        self._idle_for = idle
        self._lock = threading.Lock()
        self._idle: list[_OwnProcess] = []
        self._busy: set[_OwnProcess] = set()
        self._stopped = False

    def attempt(self, name: str, job: bytes, folder: Path, seconds: float | None = None) -> Attempt:
        """Do a job apart; a process that dies under it is an attempt that failed.

        Args:
            name: of the job.
            job: pickled; whoever watches over it need not import what it is made of.
            folder: for files of its own.
            seconds: after which its process is killed; None: never.
        """
        while True:
            process = self._take()
            if process is None:
                return Attempt(name, error=ProcessKilledError("stopped"))
            try:
                found = process.attempt(name, job, folder, seconds)
            finally:
                self._give_back(process)
            if found is not None:
                return found

    def stop(self) -> None:
        """Kill all of them, whatever they do; further jobs are refused."""
        with self._lock:
            self._stopped = True
            processes = [*self._idle, *self._busy]
            self._idle.clear()
        for process in processes:
            process.kill()

    def _take(self) -> _OwnProcess | None:
        with self._lock:
            if self._stopped:
                return None
            process = self._idle.pop() if self._idle else _OwnProcess(self._idle_for)
            self._busy.add(process)
            return process

    def _give_back(self, process: _OwnProcess) -> None:
        with self._lock:
            self._busy.discard(process)
            if process.alive and not self._stopped:
                self._idle.append(process)
                return
        process.kill()


class _OwnProcess:
    """The near side of a process that does jobs one after another."""

    def __init__(self, idle: float) -> None:
        path = f"import sys; sys.path[:] = {sys.path!r}"
        started = f"{path}; import {__name__} as here; here.serve({idle!r})"
        with _interrupts_held_back():
            self._process = subprocess.Popen(
                [sys.executable, "-c", started],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **dict.fromkeys(_THREADS, "1")},
            )
        self._fresh = True

    @property
    def alive(self) -> bool:
        """Whether it can be given another job."""
        return self._process.poll() is None

    def attempt(self, name: str, job: bytes, folder: Path, seconds: float | None) -> Attempt | None:
        """How the job went; None where the process had left for want of jobs before."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        fresh, self._fresh = self._fresh, False
        try:
            with self._killed_after(seconds) as late:
                _send(self._process.stdin, pickle.dumps((job, folder)))
                found: Attempt = pickle.loads(pickle.load(self._process.stdout))
            return replace(found, name=name)
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):
            self._process.kill()  # changes nothing where it is dead, or leaving
            code = self._process.wait()
        if late.is_set():
            return Attempt(name, error=ProcessKilledError(f"took longer than {seconds:g} s"))
        if code == 0 and not fresh:
            return None
        return Attempt(name, error=ProcessKilledError(_death(code)))

    @contextlib.contextmanager
    def _killed_after(self, seconds: float | None) -> Iterator[threading.Event]:
        """Kill the process after so many seconds within; the event says whether it was."""
        late = threading.Event()
        if seconds is None:
            yield late
            return

        def end() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            yield late
        finally:
            timer.cancel()

    def kill(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def _death(code: int) -> str:
    """How a process ended, and what to do."""
    how = f"left with code {code}"
    if code < 0:
        with contextlib.suppress(ValueError):
            how = f"was killed ({signal.Signals(-code).name})"
    return (
        f"a process {how}, perhaps for want of memory: give fewer --workers, and --resume if "
        "there is an --out folder"
    )


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """A process started here is not reached by Ctrl-C: who started it ends it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _send(stream: IO[bytes], data: bytes) -> None:
    pickle.dump(data, stream)
    stream.flush()


def serve(idle: float) -> None:
    """Do the jobs that standard input brings, until it ends or brings none for so many seconds."""
    inbox: queue.Queue[bytes] = queue.Queue()
    with os.fdopen(os.dup(0), "rb") as asked, os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)  # what a job prints is no answer
        threading.Thread(target=_receive, args=(asked, inbox), daemon=True).start()
        while True:
            try:
                message = inbox.get(timeout=idle)
            except queue.Empty:
                os._exit(0)
            _send(answers, packed(_attempted(message)))


def _receive(asked: IO[bytes], inbox: queue.Queue[bytes]) -> None:
    while True:
        try:
            inbox.put(pickle.load(asked))
        except (OSError, EOFError, pickle.UnpicklingError):
            os._exit(1)


def _attempted(message: bytes) -> Attempt:
    try:
        data, folder = pickle.loads(message)
        job: Job = pickle.loads(data)
    except Exception as error:
        return Attempt("", error=InputError(f"a worker cannot load the job: {error}"))
    _wait_until_free(folder)
    return attempt(job, folder)


def _wait_until_free(folder: Path) -> None:
    """Let the process of a worker that was killed, and whose job this one has, leave first."""
    from interp_toolkit.training.engine.folder_lock import locked

    latest = time.monotonic() + LOCK_PATIENCE
    while folder.is_dir() and time.monotonic() < latest:
        try:
            with locked(folder):
                return
        except InputError:
            time.sleep(0.05)


_OF_RUNS: dict[str, OwnProcesses] = {}
_OF_RUNS_LOCK = threading.Lock()


def processes_of(run: str) -> OwnProcesses:
    """The processes of a run, here or in a worker of a cluster."""
    with _OF_RUNS_LOCK:
        return _OF_RUNS.setdefault(run, OwnProcesses())


def stop_processes(run: str) -> None:
    """End the processes that a run has here."""
    processes_of(run).stop()
