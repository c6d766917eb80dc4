"""Options of an analysis: one class serves Python, the command line, the docs and plugins.

    class MyOptions(Options):
        level: float = Field(0.05, gt=0, lt=1, description="Significance level.")

Everything about an option is in the field's name, type, bounds, default and description.
`it.analyze(model, "mine", level=0.01)` checks values by the class, `interp analyze --probe mine`
turns the field into `--level`, and `interp show mine` prints it. Values may be texts, as the
command line passes them. Types with a text form of their own (`Names`, `Position`) are defined
here. A field whose flag has another name or form carries a `Flag`.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from interp_toolkit.errors import InputError, suggestion
from interp_toolkit.results import jsonable

MAX_SEED = 2**31 - 1  # the range that every random generator accepts

#: how much computation an analysis may use
Effort = Literal["quick", "standard", "thorough"]


@dataclass(frozen=True)
class Flag:
    """The command-line form of an option, if it is not `--its-name VALUE`.

    Attributes:
        name: such as "--hook" for `hooks`, or "--distinct/--repeats" for a boolean; None: the
            field's name.
        metavar: placeholder for the value in the help; None: derived from the type.
        repeated: whether a list takes the flag once per item; False for lists with a text form of
            their own.
    """

    name: str | None = None
    metavar: str | None = None
    repeated: bool | None = None


class Options(BaseModel):
    """The options of every analysis; an analysis' own options class adds fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    seed: int = Field(0, ge=0, le=MAX_SEED, description="Seed of every random draw.")
    memory: Annotated[int | str | None, Flag(metavar="4GiB")] = Field(
        None, description="Bound on memory used in addition to the weights."
    )
    effort: Effort = Field(
        "standard",
        description="quick: no causal tests or random controls; standard: all of them, of a large "
        "model on fewer prompts, heads and edges; thorough: on all. Some analyses ignore it.",
    )

    def settings(self, **resolved: Any) -> dict[str, Any]:
        """The options as run, for a result's provenance, without those common to all analyses.

        `resolved` replaces options that the analysis chose, and adds the effort if it matters.
        """
        own = [name for name in type(self).model_fields if name not in _EVERYWHERE]
        chosen = {name: getattr(self, name) for name in own} | resolved
        return {name: _plain(value) for name, value in chosen.items()}


_EVERYWHERE = frozenset({"seed", "memory", "effort"})
Chosen = TypeVar("Chosen", bound=Options)


def _plain(value: Any) -> Any:
    """A value for JSON: arrays by shape, values without a JSON form by name or text."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    for name in ("source", "name"):
        if isinstance(text := getattr(value, name, None), str):
            return text
    if getattr(value, "ndim", 0):
        return f"{type(value).__name__} {list(value.shape)}"
    try:
        return jsonable(value)
    except TypeError:
        return str(value)


def _as_names(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _as_words(value: Any) -> Any:
    return tuple(value.split()) if isinstance(value, str) else value


def _as_position(value: Any) -> Any:
    if not isinstance(value, str) or value == "all":
        return value
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{value!r} is neither a number nor 'all'") from None


#: several names; a single one may be a text
Names = Annotated[tuple[str, ...], BeforeValidator(_as_names)]
#: words of one text, such as "a b query"
Words = Annotated[tuple[str, ...], BeforeValidator(_as_words), Flag(repeated=False)]
#: a token position, or "all"
Position = Annotated[
    int | Literal["all"], BeforeValidator(_as_position), Flag(metavar="N|all", repeated=False)
]


def read_options(
    options: type[Chosen], values: Mapping[str, Any], name: str, *, as_flags: bool = False
) -> Chosen:
    """Check option values and return them as an instance of the options class.

    Args:
        options: the analysis' options class.
        values: by field name; texts are parsed by the field's type.
        name: the analysis' name.
        as_flags: name options by their flags in messages, for the command line.

    Raises:
        InputError: an unknown option, a missing one, or an invalid value.
    """
    flags_by_field = {flag.field: flag for flag in flags(options)}
    for field in values:
        if field not in flags_by_field:
            raise InputError(f"{name} takes no option {field!r}{suggestion(field, flags_by_field)}")
    for flag in flags_by_field.values():
        if flag.required and values.get(flag.field) is None:
            raise InputError(f"{name} needs {flag.field!r} ({flag.positive})")
    try:
        return options(**values)
    except ValidationError as error:
        first = error.errors()[0]
        reason = reason_of(error)
        if not first["loc"]:
            raise InputError(f"{name}: {reason}") from error
        field = str(first["loc"][0])
        value = values.get(field)
        flag_name = flags_by_field[field].positive if as_flags else field
        shown = value if isinstance(value, str | int | float) else jsonable_or_type(value)
        raise InputError(f"{name}: {flag_name} {shown!r} cannot be used: {reason}") from error


def jsonable_or_type(value: Any) -> Any:
    """The value if it has a JSON form, else its type's name, for a message."""
    try:
        return jsonable(value)
    except TypeError:
        return type(value).__name__


def reason_of(error: ValidationError) -> str:
    """The first error of a pydantic validation, as a phrase."""
    message: str = error.errors()[0]["msg"].removeprefix("Value error, ")
    return message.replace("Input should", "it must").partition(", unable to parse")[0]


@dataclass(frozen=True)
class OptionFlag:
    """An option as the command line takes it.

    Attributes:
        field: name in the options class.
        name: such as "--hook", or "--distinct/--repeats".
        metavar: placeholder for the value; None for a boolean.
        help: the field's description, with its default.
        choices: the allowed words; empty if any value is allowed.
        repeated: whether the flag may occur several times.
        boolean: whether it takes no value.
        required: whether there is no default.
        default: as text; empty if the analysis chooses it.
        type: as a word, for `interp show`.
    """

    field: str
    name: str
    metavar: str | None
    help: str
    choices: tuple[str, ...]
    repeated: bool
    boolean: bool
    required: bool
    default: str
    type: str

    @property
    def positive(self) -> str:
        """The flag alone, without the one that negates it."""
        return self.name.partition("/")[0]


def flags(options: type[Options]) -> list[OptionFlag]:
    """Every option of a class; those common to all analyses come last."""
    fields = options.model_fields
    own = [name for name in fields if name not in _EVERYWHERE]
    return [_flag(name, fields[name]) for name in [*own, *sorted(_EVERYWHERE)]]


def _flag(field: str, info: FieldInfo) -> OptionFlag:
    kinds, extras = _members(info.annotation, info.metadata)
    flag = _first_attributes([extra for extra in extras if isinstance(extra, Flag)])
    boolean = kinds == [bool]
    choices = tuple(str(c) for kind in kinds if get_origin(kind) is Literal for c in get_args(kind))
    several = any(get_origin(kind) in (tuple, list, Sequence) or kind is tuple for kind in kinds)
    only_choices = bool(choices) and len(kinds) == 1
    required = info.default is PydanticUndefined and info.default_factory is None
    default = "" if required or info.default in (None, ()) else _text(info.default)
    dashed = f"--{field.replace('_', '-')}"
    metavar = None if boolean else flag.metavar or ("|".join(choices) if only_choices else None)
    help_text = info.description or ""
    if default and "default:" not in help_text:
        help_text = f"{help_text.rstrip('.')}; default: {default}."
    return OptionFlag(
        field=field,
        name=flag.name or (f"{dashed}/--no-{dashed[2:]}" if boolean else dashed),
        metavar=metavar or (None if boolean else _word_of(kinds)),
        help=help_text,
        choices=choices if only_choices else (),
        repeated=several if flag.repeated is None else flag.repeated,
        boolean=boolean,
        required=required,
        default=default,
        type="|".join(choices) if only_choices else _word_of(kinds).lower(),
    )


def _first_attributes(candidates: Sequence[Flag]) -> Flag:
    """Combined attributes: each from the first candidate that sets it."""
    attributes: dict[str, Any] = {}
    for flag in candidates:
        for name, value in vars(flag).items():
            if value is not None:
                attributes.setdefault(name, value)
    return Flag(**attributes)


def _members(annotation: Any, metadata: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The types that a field may hold, without None, and all metadata annotated to them."""
    extras = list(metadata)
    if get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        extras += more
    if get_origin(annotation) in (Union, types.UnionType):
        kinds: list[Any] = []
        for member in get_args(annotation):
            if member is type(None):
                continue
            inner, more = _members(member, ())
            kinds += inner
            extras += more
        return kinds, extras
    return [annotation], extras


def _word_of(kinds: Sequence[Any]) -> str:
    if kinds == [bool]:
        return "yes or no"
    for kind, word in ((float, "NUMBER"), (int, "N")):
        if kind in kinds and str not in kinds:
            return word
    return "TEXT"


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
