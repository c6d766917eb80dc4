"""Settings that a user gives for the recipes that a study trains, in place of the study's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interp_toolkit.errors import InputError
from interp_toolkit.registry import find
from interp_toolkit.training.engine.configure import configure

_OWN = {
    "variant": "the study says which variants it trains",
    "seed": "a study trains seeds 0, 1, ...: give --seeds",
    "seeds": "give --seeds",
    "device": "give --device",
}

#: settings by the recipe that they are of
Given = Mapping[str, Mapping[str, Any]]


def as_read(
    recipe: str, variant: str, preset: str, own: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """What is given, as the recipe reads it beside the study's own settings.

    Args:
        recipe: its name.
        variant: its name.
        preset: its name.
        own: what the study sets.
        given: in place of these and the preset's; texts are turned into numbers.

    Raises:
        InputError: there is no such setting, it is the study's business, or a value does not fit.
    """
    for key, instead in _OWN.items():
        if key in given:
            raise InputError(f"{recipe}.{key} cannot be set: {instead}")
    if not given:
        return {}
    asked = {**own, **given, "device": "cpu"}
    chosen = configure(find("recipes", recipe), variant, preset, asked).model_dump(mode="json")
    return {key: chosen[key] for key in given}


def settings_phrase(given: Given) -> str:
    """For a verdict; empty where nothing is given."""
    said = [
        f"{recipe}.{key}={value}" for recipe, own in given.items() for key, value in own.items()
    ]
    return f"Set in place of the study's own: {', '.join(said)}." if said else ""
