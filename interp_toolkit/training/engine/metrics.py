"""The metrics of a run: one JSON object a line, one line a measurement, nothing about the clock.

So a resumed run ends with the very file that an uninterrupted one writes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from interp_toolkit.atomic import replacing
from interp_toolkit.errors import InputError
from interp_toolkit.results import jsonable


class Metrics:
    """A JSONL file that grows by whole lines."""

    def __init__(self, path: Path):
        self.path = path
        self._size = 0

    def restart(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Replace what is there by these lines; raises OSError when that cannot be done."""
        text = b"".join(_encoded(line) for line in lines)
        with replacing(self.path) as partial:
            partial.write_bytes(text)
        self._size = len(text)

    def add(self, line: Mapping[str, Any]) -> None:
        """Append a line; raises InputError where that cannot be done, and leaves no half of it."""
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
                f"{self.path} cannot be written: {error.strerror}; "
                "mend that and go on with --resume"
            ) from error
        self._size += len(text)


def _encoded(line: Mapping[str, Any]) -> bytes:
    return (json.dumps(jsonable(line), allow_nan=False) + "\n").encode()
