"""A recipe's settings from its preset, its variant and what the user gives, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from interp_toolkit.errors import InputError, suggestion
from interp_toolkit.models.about.device import find_device
from interp_toolkit.options import reason_of
from interp_toolkit.registry import Recipe


def configure(recipe: Recipe, variant: str | None, preset: str, given: Mapping[str, Any]) -> Any:
    """An instance of the recipe's `config`: what is given goes before the variant, then the preset.

    Args:
        recipe: whose settings.
        variant: its name; None: none.
        preset: its name.
        given: by setting; texts, as the command line has them, are turned into numbers.

    Raises:
        InputError: there is no such variant, preset or setting; or a value does not fit.
    """
    for name, chosen, kind in (
        (preset, recipe.presets, "preset"),
        (variant, recipe.variants, "variant"),
    ):
        if name is not None and name not in chosen:
            raise InputError(f"{recipe.name} has no {kind} {name!r}{suggestion(name, chosen)}")
    settings = {**recipe.presets[preset], **(recipe.variants[variant] if variant else {}), **given}
    if "device" in recipe.config.model_fields:
        settings["device"] = str(find_device(settings.get("device", "auto")))
    try:
        return recipe.config(**{k: None if v == "none" else v for k, v in settings.items()})
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else None  # None: several settings together
        if key is not None and first["type"] == "extra_forbidden":
            hint = suggestion(key, recipe.config.model_fields)
            raise InputError(f"{recipe.name} has no setting {key!r}{hint}") from error
        reason = reason_of(error)
        value = None if key is None else settings[key]
        what = "" if key is None else f"{key} = {'null' if value is None else repr(value)}: "
        raise InputError(f"{recipe.name}: {what}{reason}") from error
