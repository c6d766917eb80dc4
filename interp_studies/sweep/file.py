"""The YAML file of a sweep: a recipe, settings of all runs, a grid, and seeds.

    recipe: retrieval
    preset: small
    settings: {steps: 1000}
    grid:
      variant: [standard, mixit]
      lr: [0.001, 0.0005]
    seeds: 3

The points are all combinations of the grid's values. Every point is checked against the recipe's
settings before any run starts.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from interp_toolkit.errors import InputError, suggestion
from interp_toolkit.files import read_yaml
from interp_toolkit.registry import Recipe, find
from interp_toolkit.training.engine.settings import configure

VARIANT = "variant"
MOST_OF_FACTOR = 1e18  # that any setting counts for in what a run costs
MOST_JOBS = 100_000
MOST_OF_NAME = 60  # characters of a job's name before its hash
_OWN = {
    "seed": "a sweep trains seeds 0, 1, ...: say how many with seeds",
    "seeds": "say it beside grid, not inside",
    "device": "give --device",
}


class SweepFile(BaseModel):
    """The contents of a sweep's file.

    Attributes:
        recipe: name of the recipe.
        preset: preset of the recipe.
        settings: settings of the recipe that are equal at all points.
        grid: the values of each setting that is varied; `variant` may be one.
        seeds: number of seeds at each point.
        name: name of the sweep in its result; the file's name if it is not given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    recipe: str
    preset: str = "small"
    settings: dict[str, Any] = Field(default_factory=dict)
    grid: dict[str, list[Any]] = Field(min_length=1)
    seeds: int = Field(1, ge=1, le=MOST_JOBS)
    name: str = ""


@dataclass(frozen=True)
class Point:
    """A point of the grid.

    Attributes:
        at: the grid's settings at this point, as the recipe reads them.
        settings: all settings that differ from the recipe's defaults, as JSON data.
        cost: approximate cost of a run, relative to the other points.
    """

    at: Mapping[str, Any]
    settings: Mapping[str, Any]
    cost: float

    @property
    def name(self) -> str:
        """The name of the point's files: some of its values, and a hash of all settings."""
        text = json.dumps(self.at, sort_keys=True)
        values = re.sub(r"[^\w.+-]+", "-", "-".join(str(value) for value in self.at.values()))
        hashed = hashlib.sha256(text.encode()).hexdigest()[:8]
        return f"{values[:MOST_OF_NAME].strip('-.')}-{hashed}".lstrip("-")

    @property
    def said(self) -> str:
        """The point's settings as text for a sentence."""
        return said(self.at)


def said(at: Mapping[str, Any]) -> str:
    """Settings of the grid as text, such as `variant=mixit, lr=0.001`."""
    return ", ".join(f"{key}={_yaml_word(value)}" for key, value in at.items())


def read_sweep(path: Path) -> SweepFile:
    """Read and check a sweep's file; `grid_points` checks the settings.

    Raises:
        InputError: the file cannot be read, is not YAML, has a key twice, or has keys or values
            that do not fit.
    """
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise InputError(f"{path} must hold a mapping with the keys recipe and grid")
    try:
        read = SweepFile(**{str(key): value for key, value in data.items()})
    except ValidationError as error:
        raise InputError(f"{path}: {_explained(error)}") from error
    return read if read.name else read.model_copy(update={"name": path.stem})


def _explained(error: ValidationError) -> str:
    """The message of an invalid file, by key; an unknown key is named before a missing one."""
    first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    key = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        return f"there is no key {key!r}{suggestion(key, SweepFile.model_fields)}"
    if first["type"] == "missing":
        return f"the key {key!r} is missing"
    if first["loc"][-1] == "[key]":
        read = _yaml_word(first["input"])
        return f"a key of {first['loc'][0]} is read as {read}: put it in quotes"
    if (key, first["type"]) == ("grid", "too_short"):
        return "grid is empty: give at least one setting with values"
    value = "null" if first["input"] is None else repr(first["input"])
    return f"{key} = {value}: {first['msg'].replace('Input should', 'it must')}"


def _yaml_word(value: Any) -> str:
    """A value as YAML writes it, where Python writes it differently."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def grid_points(file: SweepFile) -> list[Point]:
    """All combinations of the grid's values, each of them checked.

    Raises:
        InputError: the recipe or preset does not exist, a key cannot be varied, a value does not
            fit the recipe, values do not fit each other, or two values are equal.
    """
    recipe = find("recipes", file.recipe)
    _check_keys(file)
    n_jobs = file.seeds * math.prod(map(len, file.grid.values()))
    if n_jobs > MOST_JOBS:
        raise InputError(f"the grid has {n_jobs:,} runs; {MOST_JOBS:,} at most")
    points: dict[str, Point] = {}
    for values in itertools.product(*file.grid.values()):
        asked = dict(zip(file.grid, values, strict=True))
        point = _point(recipe, file, asked)
        if point.name in points:
            raise InputError(f"the grid has the point {point.said} twice")
        points[point.name] = point
    return list(points.values())


def _check_keys(file: SweepFile) -> None:
    for key in (*file.settings, *file.grid):
        if key in _OWN:
            raise InputError(f"{key} is not a setting of a sweep: {_OWN[key]}")
        if key in file.settings and key in file.grid:
            raise InputError(f"{key} is both in settings and in grid")
    for key, values in file.grid.items():
        if not values:
            raise InputError(f"grid.{key} has no values")


def _point(recipe: Recipe, file: SweepFile, asked: Mapping[str, Any]) -> Point:
    given = {**file.settings, **asked}
    variant = given.get(VARIANT)
    if VARIANT in given:
        if not isinstance(variant, str):
            raise InputError(f"the point {said(asked)}: variant must be a name, not {variant!r}")
        del given[VARIANT]
    try:
        config = configure(recipe, variant, file.preset, {**given, "device": "cpu"})
    except InputError as error:
        raise InputError(f"the point {said(asked)}: {error}") from error
    chosen = config.model_dump(mode="json")
    settings = {key: chosen[key] for key in config.model_fields_set - _OWN.keys()}
    at = {key: chosen[key] if key in chosen else asked[key] for key in asked}
    return Point(at, dict(sorted(settings.items())), _cost(chosen))


def _cost(chosen: Mapping[str, Any]) -> float:
    """The approximate cost of a run, from those of the recipe's settings that determine it."""
    factors = (chosen.get(key, 1) for key in ("steps", "layers", "d_model", "rows"))
    known = (factor for factor in factors if isinstance(factor, int | float))
    return math.prod(float(min(factor, MOST_OF_FACTOR)) for factor in known)
