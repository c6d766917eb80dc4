"""What is being done, said on standard error: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from interp_toolkit.registry import Progress

SECONDS_BETWEEN_LINES = 5.0
NUMBERS = r", [\d.]+ (s|min|h) left|([\d.,]+) of ([\d.,]+)"  # what differs between like steps


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A function that says the current step; nothing is left of it on a terminal afterwards."""
    if quiet:
        yield lambda text: None
    elif not sys.stderr.isatty():
        yield _Steps().say
    else:
        from rich.console import Console
        from rich.markup import escape

        with Console(stderr=True).status("starting") as status:
            yield lambda text: status.update(escape(text))


@contextmanager
def training_progress(
    quiet: bool,
) -> Iterator[tuple[Callable[[Progress], None], Callable[[str], None]]]:
    """Functions that show how far training is, and say in words what else is being done.

    A bar with seed, step, loss, rate and time left on a terminal, of which nothing is left
    afterwards; elsewhere a line when a seed begins, at its last step, and every few seconds.
    """
    if quiet:
        yield (lambda progress: None), (lambda text: None)
    elif not sys.stderr.isatty():
        yield _Lines().report, _print
    else:
        with _bar() as bar:
            yield (
                _Bar(bar).report,
                lambda text: bar.console.print(text, markup=False, highlight=False),
            )


def _print(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


class _Steps:
    """Steps as plain lines; those that differ in how far they are only, every few seconds."""

    def __init__(self) -> None:
        self._words = ""
        self._said = 0.0

    def say(self, text: str) -> None:
        words, now = re.sub(NUMBERS, "", text), time.monotonic()
        ended = any(of and of == all_ for _, of, all_ in re.findall(NUMBERS, text))
        if words != self._words or ended or now - self._said >= SECONDS_BETWEEN_LINES:
            self._words, self._said = words, now
            _print(text)


class _Lines:
    """Plain lines, not too many."""

    def __init__(self) -> None:
        self._seed: int | None = None
        self._said = 0.0

    def report(self, at: Progress) -> None:
        now = time.monotonic()
        begins, ends = at.seed != self._seed, at.step == at.steps
        if begins or ends or now - self._said >= SECONDS_BETWEEN_LINES:
            self._seed, self._said = at.seed, now
            _print(f"seed {at.seed}: step {at.step} of {at.steps}, loss {at.loss:.4f}")


class _Bar:
    """A bar that starts anew with every seed."""

    def __init__(self, bar: Any):
        self._bar = bar
        self._task = bar.add_task("starting", total=None, loss="", rate="")
        self._seed: int | None = None
        self._began, self._first_step = 0.0, 0

    def report(self, at: Progress) -> None:
        now = time.monotonic()
        if at.seed != self._seed:
            self._seed, self._began, self._first_step = at.seed, now, at.step
            which = f"seed {at.seed}" + (f" ({at.number} of {at.seeds})" if at.seeds > 1 else "")
            self._bar.reset(self._task, description=which, total=at.steps)
        spent = now - self._began
        rate = f"{(at.step - self._first_step) / spent:.0f} steps/s" if spent > 0 else ""
        self._bar.update(self._task, completed=at.step, loss=f"loss {at.loss:.4f}", rate=rate)


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
