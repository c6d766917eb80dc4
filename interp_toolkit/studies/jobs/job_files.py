"""What a study's jobs leave in its folder: for each its values, its model, files of its own.

NAME.json           what was computed, and what was found; written last
NAME.safetensors    the model, an ordinary checkpoint
NAME/               what the job itself keeps while it runs, and beyond
study.txt           says that the folder is a study's
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interp_toolkit.atomic import replacing
from interp_toolkit.bounded import read_whole_text
from interp_toolkit.errors import InputError
from interp_toolkit.results import jsonable
from interp_toolkit.studies.jobs.attempt import Attempt

_KEYS = {"function", "arguments", "values"}


class JobFiles:
    """The files of the jobs in one folder; job names must be file names."""

    def __init__(self, folder: Path):
        self._folder = folder

    def work(self, name: str) -> Path:
        """The folder for the files of a job's own; not made here."""
        return self._folder / name

    def model(self, name: str) -> Path:
        """Where a job's model is kept."""
        return self._folder / f"{name}.safetensors"

    def has(self, name: str, identity: Mapping[str, Any]) -> bool:
        """Whether this very job is done.

        Raises InputError when its file is damaged, or of a job with other arguments.
        """
        if not self._path(name).exists():
            return False
        found = self._load(name)
        # earlier versions wrote the module's path before the function's name
        if found["function"].rpartition(".")[2] != identity["function"]:
            raise InputError(f"{self._path(name)} is of another study: give another --out")
        differing = _differing(found["arguments"], jsonable(identity["arguments"]))
        if differing:
            raise InputError(
                f"{self._folder} was made with {', '.join(differing)}: give what the study was "
                "started with, or another --out"
            )
        return True

    def read(self, name: str) -> dict[str, Any]:
        """What a finished job found."""
        return dict(self._load(name)["values"])

    def write(self, name: str, identity: Mapping[str, Any], found: Attempt) -> None:
        """Keep what a job found, the model first, so that values are there only with it.

        Raises InputError when the folder cannot be written.
        """
        data = jsonable({**identity, "values": found.values})
        path = self._path(name)
        try:
            if found.checkpoint is not None:
                path = self.model(name)
                with replacing(path) as partial:
                    partial.write_bytes(found.checkpoint)
            path = self._path(name)
            with replacing(path) as partial:
                text = json.dumps(data, allow_nan=False, indent=1)
                partial.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror}") from error

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _load(self, name: str) -> dict[str, Any]:
        path = self._path(name)
        try:
            found = json.loads(read_whole_text(path))
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError):
            found = None
        if (
            not isinstance(found, dict)
            or found.keys() != _KEYS
            or not isinstance(found["function"], str)
            or not isinstance(found["arguments"], dict)
            or not isinstance(found["values"], dict)
        ):
            raise InputError(f"{path} is damaged: remove it to do that job again")
        return found


def _differing(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The arguments that differ, such as `steps=20, not 30`, each setting by itself."""
    found: list[str] = []
    for key in sorted(was.keys() | now.keys()):
        before, after = was.get(key), now.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            found += _differing(before, after)
        elif key not in was:
            found.append(f"{key} left out, not {_said(after)}")
        elif key not in now:
            found.append(f"{key}={_said(before)}, not left out")
        elif before != after:
            found.append(f"{key}={_said(before)}, not {_said(after)}")
    return found


def _said(value: Any) -> str:
    return "none" if value is None else str(value)
