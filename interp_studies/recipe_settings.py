"""Settings that a user gives for the recipes that a study trains, in place of the study's own.

A setting is of all variants of a recipe that the study trains, `KEY`, or of one, `VARIANT.KEY`;
the latter goes before the former.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from interp_toolkit.errors import InputError, suggestion
from interp_toolkit.registry import find
from interp_toolkit.training.engine.settings import configure

_OWN = {
    "variant": "the study says which variants it trains",
    "seed": "a study trains seeds 0, 1, ...: give --seeds",
    "seeds": "give --seeds",
    "device": "give --device",
}

#: settings by the recipe that they are of, each by `KEY` or `VARIANT.KEY`
Given = Mapping[str, Mapping[str, Any]]


def of_variant(given: Mapping[str, Any], variant: str | None) -> dict[str, Any]:
    """What is given for a variant of a recipe: for all of them, or for it alone, which counts."""
    shared = {key: value for key, value in given.items() if "." not in key}
    if variant is None:
        return shared
    own = {key.partition(".")[2]: v for key, v in given.items() if key.startswith(f"{variant}.")}
    return {**shared, **own}


def check_variants(recipe: str, given: Mapping[str, Any], trained: Collection[str]) -> None:
    """Raise InputError where settings are given for a variant that the study does not train.

    Args:
        recipe: its name.
        given: settings by `KEY` or `VARIANT.KEY`.
        trained: the recipe's variants that the study trains.
    """
    for variant in sorted({key.partition(".")[0] for key in given if "." in key} - {*trained}):
        known = find("recipes", recipe).variants
        if variant not in known:
            raise InputError(f"{recipe} has no variant {variant!r}{suggestion(variant, known)}")
        own = " and ".join(sorted(trained)) or "no variant of it"
        raise InputError(f"the study trains {recipe} as {own}, not as {variant}")


def as_read(
    recipe: str, variant: str, preset: str, own: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """What is given, as the recipe reads it beside the study's own settings.

    Args:
        recipe: its name.
        variant: its name.
        preset: its name.
        own: what the study sets.
        given: for this variant, in place of these and the preset's; texts are turned into
            numbers.

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
    settings = [
        f"{recipe}.{key}={value}" for recipe, own in given.items() for key, value in own.items()
    ]
    return f"Set in place of the study's own: {', '.join(settings)}." if settings else ""
