"""The user's settings of the recipes that a study trains, which replace the study's own.

A setting applies to all variants of a recipe that the study trains (`KEY`), or to one
(`VARIANT.KEY`), which takes precedence.
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
    """The user's settings for a variant; those for the variant alone take precedence."""
    shared = {key: value for key, value in given.items() if "." not in key}
    if variant is None:
        return shared
    own = {key.partition(".")[2]: v for key, v in given.items() if key.startswith(f"{variant}.")}
    return {**shared, **own}


def check_variants(recipe: str, given: Mapping[str, Any], trained: Collection[str]) -> None:
    """Raise InputError for settings of a variant that the study does not train.

    Args:
        recipe: name of the recipe.
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
    """The user's settings as the recipe reads them, together with the study's settings.

    Args:
        recipe: name of the recipe.
        variant: name of the variant.
        preset: name of the preset.
        own: settings of the study.
        given: the user's settings of this variant, which replace those of study and preset; texts
            are converted to numbers.

    Raises:
        InputError: the setting does not exist or is reserved for the study, or a value does not
            fit.
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
    """The user's settings as a phrase for a verdict; empty without settings."""
    settings = [
        f"{recipe}.{key}={value}" for recipe, own in given.items() for key, value in own.items()
    ]
    return f"Set in place of the study's own: {', '.join(settings)}." if settings else ""
