"""Files of a study's jobs in its folder.

NAME.json           the job's function, arguments and values; written last
NAME.safetensors    the model, an ordinary checkpoint
NAME/               files that the job itself stores
study.txt           marks the folder as a study's
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interp_studies.jobs.attempt import Attempt
from interp_toolkit.errors import InputError, reason_of
from interp_toolkit.files import read_whole_text, replacing
from interp_toolkit.results import jsonable

_KEYS = {"function", "arguments", "values"}


class JobFiles:
    """The files of the jobs in one folder; job names must be file names."""

    def __init__(self, folder: Path):
        self._folder = folder

    def model(self, name: str) -> Path:
        """The path of a job's model."""
        return self._folder / f"{name}.safetensors"

    def has(self, name: str, identity: Mapping[str, Any]) -> bool:
        """Whether this job is done.

        Raises InputError if its file is damaged or belongs to a job with other arguments.
        """
        if not self._path(name).exists():
            return False
        found = self._load(name)
        if found["function"] != identity["function"]:
            raise InputError(f"{self._path(name)} belongs to another study: give another --out")
        differing = _differing(found["arguments"], jsonable(identity["arguments"]))
        if differing:
            raise InputError(
                f"{self._folder} was made with {', '.join(differing)}: give the settings the "
                "study was started with, or another --out"
            )
        return True

    def read(self, name: str) -> dict[str, Any]:
        """The values of a finished job."""
        return dict(self._load(name)["values"])

    def write(self, name: str, identity: Mapping[str, Any], found: Attempt) -> None:
        """Write a job's result, the model first, so that values exist only with their model.

        Raises InputError if the folder cannot be written.
        """
        values = jsonable({**identity, "values": found.values})
        text = json.dumps(values, allow_nan=False, indent=1) + "\n"
        contents = {self._path(name): text.encode()}
        if found.checkpoint is not None:
            contents = {self.model(name): found.checkpoint, **contents}
        for path, data in contents.items():
            try:
                with replacing(path) as partial:
                    partial.write_bytes(data)
            except OSError as error:
                raise InputError(f"{path} cannot be written: {reason_of(error)}") from error

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _load(self, name: str) -> dict[str, Any]:
        path = self._path(name)
        try:
            found = json.loads(read_whole_text(path))
        except OSError as error:
            raise InputError(f"{path} cannot be read: {reason_of(error)}") from error
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
    differences: list[str] = []
    for key in sorted(was.keys() | now.keys()):
        before, after = was.get(key), now.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            differences += _differing(before, after)
        elif before != after or (key in was) != (key in now):
            old = f"={'none' if before is None else before}" if key in was else " left out"
            new = ("none" if after is None else after) if key in now else "left out"
            differences.append(f"{key}{old}, not {new}")
    return differences
