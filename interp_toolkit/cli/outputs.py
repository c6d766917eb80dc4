"""Results to terminal, JSON and HTML, and progress on standard error.

Output paths are checked before the work starts. Progress is a live line on a terminal and plain
lines elsewhere. Steps that state their total ("12 of 40") also get an estimate of the remaining
time, from the duration of the steps so far.
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interp_toolkit.cli import options
from interp_toolkit.formatting import time_left
from interp_toolkit.registry import Progress

SECONDS_BEFORE_AN_END = 1.0  # the last of steps that took less is not printed
SECONDS_BETWEEN_LINES = 15.0
COUNT = re.compile(r"(\d[\d,]*(?:\.\d+)?) of (\d[\d,]*(?:\.\d+)?)")
LEFT = re.compile(r", [\d.]+ (s|min|h) left")


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A function that shows the current step; on a terminal the line is removed at the end."""
    if quiet:
        yield lambda text: None
    elif not sys.stderr.isatty():
        yield _Steps().say
    else:
        from rich.console import Console
        from rich.markup import escape

        with Console(stderr=True).status("starting") as status:
            left = _TimeLeft()
            yield lambda text: status.update(escape(text + left.of(_Count(text))))


@contextmanager
def training_progress(
    quiet: bool,
) -> Iterator[tuple[Callable[[Progress], None], Callable[[str], None]]]:
    """Functions that report the progress of training, and describe other steps.

    On a terminal, a bar shows seed, step, loss, rate and time left, and is removed at the end.
    Elsewhere there is a line when a seed begins, at its last step, and every few seconds.
    """
    if quiet:
        yield (lambda progress: None), (lambda text: None)
    elif not sys.stderr.isatty():
        yield _Steps().report, _print
    else:
        with _bar() as bar:
            yield (
                _Bar(bar).report,
                lambda text: bar.console.print(text, markup=False, highlight=False),
            )


def _print(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


class _Count:
    """The count in a progress line, such as "3 of 12"."""

    def __init__(self, text: str):
        match = COUNT.search(text)
        self.at, self.total = (_number(match[1]), _number(match[2])) if match else (0.0, 0.0)
        before = text[: match.start()] if match else LEFT.sub("", text)
        after = text[match.end() :].split() if match else []
        self.kind = (before, *after[: 0 if before else 1])
        self.of = (self.total, *self.kind)
        self.says_left = LEFT.search(text) is not None

    @property
    def ended(self) -> bool:
        """Whether it is the last step."""
        return 0 < self.total <= self.at


def _number(digits: str) -> float:
    return float(digits.replace(",", ""))


class _TimeLeft:
    """The estimated time for the remaining steps; several kinds of step may alternate."""

    def __init__(self) -> None:
        self._begun: dict[tuple[Any, ...], tuple[float, float]] = {}
        self._at: dict[tuple[Any, ...], float] = {}

    def of(self, count: _Count) -> str:
        """The text to append to a step with this count; "" if no estimate is possible."""
        now = time.monotonic()
        if count.at < self._at.get(count.of, math.inf):  # the first step, or a restart
            self._begun[count.of] = now, count.at
        self._at[count.of] = count.at
        began, first = self._begun[count.of]
        left = time_left(now - began, count.at - first, count.total - count.at)
        return f", about {left} left" if left and not count.says_left else ""


class _Steps:
    """Steps as plain lines; steps that differ only in their counts appear every few seconds."""

    def __init__(self) -> None:
        self._kind: tuple[Any, ...] = ()
        self._last_printed = 0.0
        self._left = _TimeLeft()

    def say(self, text: str, more: str = "") -> None:
        """Print a step, with `more` after the time left."""
        count, now = _Count(text), time.monotonic()
        left = self._left.of(count)
        since = now - self._last_printed
        enough = SECONDS_BEFORE_AN_END if count.ended else SECONDS_BETWEEN_LINES
        done = count.ended and not count.kind[0]  # of what is counted alone, as jobs are
        if count.kind != self._kind or done or since >= enough:
            self._kind, self._last_printed = count.kind, now
            _print(f"{text}{left}{more}")

    def report(self, at: Progress) -> None:
        """Print the progress of training."""
        self.say(f"seed {at.seed}: step {at.step} of {at.steps}", f", loss {at.loss:.4f}")


class _Bar:
    """A progress bar that restarts with every seed."""

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


class Outputs:
    """The outputs of a command, checked to be writable before the work starts.

    Args:
        json: value of `--json`.
        html: value of `--html`.
        quiet: print only the headline, and no progress.
        read: files that the command reads, by description; they may not be overwritten.
        written: further files that the command writes, by flag.

    Raises:
        InputError: a file cannot be written, or would overwrite another.
    """

    def __init__(
        self,
        json: str | None,
        html: str | None,
        quiet: bool,
        read: Mapping[str, str | None],
        written: Mapping[str, Path | None] | None = None,
    ):
        self.quiet, self._to_stdout = quiet, json == "-"
        self._json_path = None if self._to_stdout else options.writable(json, "--json")
        self._html_path = options.writable(html, "--html")
        ours = {"--json": self._json_path, "--html": self._html_path}
        options.check_apart({**ours, **(written or {})}, read)

    def run(self, work: Callable[[Callable[[str], None]], Any]) -> None:
        """Call `work` with a progress function, and show its results, or part of them."""
        from interp_toolkit.finding import InterruptedAnalysis

        began = time.monotonic()
        try:
            with progress(self.quiet) as say:
                results = work(say)
        except InterruptedAnalysis as stopped:
            self.show([stopped.finding])
            raise
        if not self.quiet:
            print(f"done in {time.monotonic() - began:.0f} s", file=sys.stderr)
        self.show(results if isinstance(results, list) else [results])

    def show(self, results: list[Any]) -> None:
        """Print the results (or their JSON, if it goes to standard output), and write files."""
        from rich.console import Console

        from interp_toolkit.report.console import render
        from interp_toolkit.report.html import write_json

        to_stdout = self._to_stdout
        try:
            if not (to_stdout and self.quiet):
                console = Console(stderr=to_stdout, highlight=False)
                render(results, console, quiet=self.quiet or to_stdout)
            if to_stdout:
                write_json(results, "-")
        finally:  # write the files even if the reader of the output has closed it
            _write(results, self._json_path, self._html_path)


def _write(results: list[Any], json_path: Path | None, html_path: Path | None) -> None:
    """Write the requested files and print their paths on standard error."""
    from interp_toolkit.report.html import write_json

    if json_path is not None:
        write_json(results, json_path)
        print(f"JSON: {json_path}", file=sys.stderr)
    if html_path is not None:
        from interp_toolkit.report.html import write_report

        write_report(results, html_path)
        print(f"report: {html_path}", file=sys.stderr)
