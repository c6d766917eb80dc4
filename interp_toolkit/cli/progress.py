"""What is being done, said on standard error: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A function that says the current step; nothing is left of it on a terminal afterwards."""
    if quiet:
        yield lambda text: None
    elif not sys.stderr.isatty():
        yield lambda text: print(f"  {text}", file=sys.stderr, flush=True)
    else:
        from rich.console import Console
        from rich.markup import escape

        with Console(stderr=True).status("starting") as status:
            yield lambda text: status.update(escape(text))
