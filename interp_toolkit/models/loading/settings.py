"""Configuration fields set by the user: `load(path, act_fn="relu")`, `--set n_heads=4`.

Values may be strings, as on the command line, and are parsed by the field's type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from interp_toolkit.errors import InputError, suggestion
from interp_toolkit.models.transformer.config import TransformerConfig


def parse_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with their values in the types of `TransformerConfig`'s fields.

    `"none"` means None for a field that can be None; numbers and booleans may be strings.
    Raises InputError for an unknown field, or a value of the wrong type.
    """
    return {name: _parse(name, value) for name, value in settings.items()}


def _parse(name: str, value: Any) -> Any:
    fields = {n: f for n, f in TransformerConfig.model_fields.items() if n != "dtype"}
    if name not in fields:
        raise InputError(f"no setting is called {name!r}{suggestion(name, fields)}")
    annotation: Any = fields[name].annotation
    optional = type(None) in get_args(annotation)
    if optional and isinstance(value, str) and value.lower() in ("none", "null"):
        return None
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError as error:
        raise InputError(f"{name}={value} cannot be used: {_reason(error)}") from error


def build_config(fields: Mapping[str, Any], source: str) -> TransformerConfig:
    """A `TransformerConfig`; InputError that names the source if the fields are invalid."""
    try:
        return TransformerConfig(**{str(name): value for name, value in fields.items()})
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        reason = f"{where}: {_reason(error)}" if where else _reason(error)
        raise InputError(f"{source} has a configuration that cannot be used: {reason}") from error


def _reason(error: ValidationError) -> str:
    message: str = error.errors()[0]["msg"]
    return message.removeprefix("Value error, ").replace("Input should be", "it must be")
