"""Rules of a naming layout: the TransformerLens tensor for each name, and its axes.

A layout maps the checkpoint's names to rules. A name may contain `{layer}` and `{head}`, which
match the same number everywhere in a rule. A rule contains TransformerLens's name, and optionally
the axes as an einops pattern:

    {"h.{layer}.ln_1.weight": "blocks.{layer}.ln1.w",
     "h.{layer}.proj.weight": {"to": "blocks.{layer}.attn.W_O",
                               "axes": "d_model (head d_head) -> head d_head d_model"},
     "h.{layer}.bias": null}

Several names in `to` divide the first axis of the pattern's result (a fused q, k, v); `{head}` in
the checkpoint's name only stacks the heads in order; null leaves a tensor out. `{2*layer}` and
`{2*layer+1}` are the even and odd numbers of files that count attention and MLPs in one list.
`skip` leaves out first rows, `scale` multiplies, `offset` is then added. Axes of the same name have
the same size everywhere, which determines sizes and distinguishes layouts; `n_heads` and `d_head`
(the axes `head`, `d_head`) may be set if no shape shows them.

A mapping file (`template` writes it) may hold settings too: `{"tensors": {...}, "settings":
{"act_fn": "gelu"}}`. A rule or setting with "guess" is used and reported as a guess; "?" has to be
filled in; "shape" is compared with the tensor's; "why" and "from" are comments.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import einops
import torch
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.files import read_json

_PLACEHOLDERS = re.compile(r"\{(2\*)?(layer|head)(\+1)?\}")
_GROUP = re.compile(r"\(([^()]*)\)|(\S+)")
_PATTERN = re.compile(r"[a-z_0-9 ()]+->[a-z_0-9 ()]+")
#: a value that has to be filled in
BLANK = "?"
_COMMENTS = {"why", "from", "needed"}
_PARTS = {"to", "axes", "skip", "scale", "offset", "shape", "guess", *_COMMENTS}


@dataclass(frozen=True)
class KeyRule:
    """The rule for one tensor of a checkpoint.

    Attributes:
        to: its TransformerLens name, or several names that divide the first axis; empty to leave
            the tensor out.
        axes: rearrangement of its axes, as an einops pattern; None leaves them unchanged.
        skip: number of first rows to leave out.
        scale: factor of all values.
        offset: number added to all values after that.
        shape: the tensor's shape, if the rule is for tensors of this shape only.
        guess: the reason why the rule is only a guess; empty if it is not.
    """

    to: tuple[str, ...]
    axes: str | None = None
    skip: int = 0
    scale: float = 1.0
    offset: float = 0.0
    shape: tuple[int, ...] | None = None
    guess: str = ""


Layout = Mapping[str, KeyRule]


@dataclass(frozen=True)
class KeyFile:
    """A mapping with the settings that come with it.

    Attributes:
        rules: the rules, by the checkpoint's names.
        settings: configuration fields.
        guesses: the settings that are guesses, with their reasons.
    """

    rules: Layout
    settings: Mapping[str, Any] = field(default_factory=dict)
    guesses: Mapping[str, str] = field(default_factory=dict)


class UnknownSizeError(Exception):
    """A shape can be split in several ways; the message names the axes whose sizes are needed.

    Args:
        axes: their names.
    """

    def __init__(self, axes: Iterable[str]):
        self.axes = frozenset(axes)
        super().__init__(", ".join(sorted(self.axes)))


@dataclass(frozen=True)
class _Assigned:
    """A tensor, its rule, and the layer and head numbers in its name."""

    name: str
    tensor: Tensor
    rule: KeyRule
    numbers: Mapping[str, str]


def read_key_file(path: Path) -> KeyFile:
    """The mapping in a JSON file; see the module.

    Raises InputError if the file does not hold a mapping, or has something to fill in.
    """
    source = f"--keys {path}"
    return key_file_of(read_json(path, source), source)


def key_file_of(content: Any, source: str) -> KeyFile:
    """The mapping, and settings if it has some; InputError if it is not valid."""
    if not isinstance(content, Mapping) or not content:
        raise InputError(
            f"{source} must be a non-empty object that maps the checkpoint's tensor names to "
            "TransformerLens's names"
        )
    settings: Any = {}
    tensors = content.get("tensors")
    if isinstance(tensors, Mapping) and "to" not in tensors:
        settings = content.get("settings", {})
        if content.keys() - {"tensors", "settings"} or not isinstance(settings, Mapping):
            raise InputError(f'{source} must hold "tensors" and maybe "settings", both objects')
        content = tensors
    rules = {str(name): _rule(name, rule, source) for name, rule in content.items()}
    blank = [name for name, rule in rules.items() if BLANK in rule.to]
    if blank:
        more = f" and {len(blank) - 1} more" if len(blank) > 1 else ""
        raise InputError(
            f'{source}: "to" of {blank[0]}{more} is still "?": give its TransformerLens name, or '
            "null to leave it out"
        )
    values: dict[str, Any] = {}
    guesses: dict[str, str] = {}
    for name, entry in settings.items():
        entry = entry if isinstance(entry, Mapping) else {"value": entry}
        if "value" not in entry or entry.keys() - {"value", "guess", *_COMMENTS}:
            raise InputError(f'{source}: the setting {name} needs a value, such as "{name}": ...')
        if entry["value"] == BLANK:
            continue  # asked for like any missing setting
        values[str(name)] = entry["value"]
        if "guess" in entry:
            guesses[str(name)] = str(entry["guess"])
    return KeyFile(rules, values, guesses)


def _rule(name: Any, rule: Any, source: str) -> KeyRule:
    if rule is None:
        return KeyRule(())
    rule = rule if isinstance(rule, Mapping) else {"to": rule}
    to, axes, skip = rule.get("to"), rule.get("axes"), rule.get("skip")
    scale, offset = rule.get("scale", 1), rule.get("offset", 0)
    if to is None and "to" in rule:
        return KeyRule((), guess=str(rule.get("guess", "")))
    to = [to] if isinstance(to, str) else to
    fits = isinstance(to, list | tuple) and to and all(isinstance(one, str) for one in to)
    if not fits or rule.keys() - _PARTS:
        raise InputError(f'{source}: {name} needs "to", one name or several, and maybe "axes"')
    assert isinstance(to, list | tuple)
    if "*" in _PLACEHOLDERS.sub("", str(name)) and BLANK not in to:
        raise InputError(f'{source}: {name}, a name with "*", can only be left out: null')
    if axes is not None and not (isinstance(axes, str) and _PATTERN.fullmatch(axes)):
        raise InputError(
            f'{source}: the axes of {name} must be a pattern such as "a (b c) -> b c a"'
        )
    if skip is not None and not (type(skip) is int and skip >= 0):
        raise InputError(f'{source}: "skip" of {name} must be a number of rows, such as 2')
    if not all(type(one) in (int, float) and math.isfinite(one) for one in (scale, offset)):
        raise InputError(f'{source}: "scale" and "offset" of {name} must be numbers')
    if not scale:
        raise InputError(f'{source}: "scale" of {name} is 0, which leaves nothing of it')
    shape = rule.get("shape")
    if isinstance(shape, Mapping):  # of the tensors that a name with "*" stands for
        shape = None
    if shape is not None and not (
        isinstance(shape, list | tuple) and all(type(size) is int for size in shape)
    ):
        raise InputError(f'{source}: "shape" of {name} must be a list of sizes')
    return KeyRule(
        tuple(to),
        axes,
        skip=skip or 0,
        scale=float(scale),
        offset=float(offset),
        shape=None if shape is None else tuple(shape),
        guess=str(rule.get("guess", "")),
    )


def guessed_rules(layout: Layout) -> list[str]:
    """The rules that are marked as guesses, one phrase each."""
    return [
        f"{name} is {' and '.join(rule.to) or 'left out'} ({rule.guess})"
        for name, rule in layout.items()
        if rule.guess
    ]


def names_match(tensors: Mapping[str, Tensor], layout: Layout) -> bool:
    """Whether every tensor has a rule."""
    return not _assign(tensors, layout)[1]


def fits(tensors: Mapping[str, Tensor], layout: Layout) -> bool:
    """Whether every tensor has a rule, and their sizes agree."""
    placed, strange = _assign(tensors, layout)
    try:
        _sizes(placed, {})
    except (InputError, UnknownSizeError):
        return False
    return not strange


def rename(
    tensors: Mapping[str, Tensor], layout: Layout, axis_sizes: Mapping[str, int], source: str
) -> dict[str, Tensor]:
    """The tensors under our names and in our shapes; those without a rule are unchanged.

    Args:
        tensors: the checkpoint's tensors.
        layout: layout of the checkpoint.
        axis_sizes: sizes of axes that no shape shows, such as `head`.
        source: name of the file, for messages.

    Raises:
        InputError: the shapes contradict the layout, or heads are missing.
        UnknownSizeError: a size must be set.
    """
    for pattern, rule in layout.items():
        matcher = _NamePattern(pattern)
        for name, tensor in tensors.items() if rule.shape is not None else ():
            if matcher.numbers_in(name) is not None and tuple(tensor.shape) != rule.shape:
                raise InputError(
                    f"{source}: {name} has shape {list(tensor.shape)}, and the mapping was written "
                    f"for {list(rule.shape or ())}"
                )
    placed, strange = _assign(tensors, layout)
    try:
        sizes = _sizes(placed, axis_sizes)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    renamed = {name: tensors[name] for name in strange}
    stacks: dict[str, dict[int, Tensor]] = {}
    for one in placed:
        for name, part in _parts(one, sizes):
            if "head" in one.numbers and "{head}" not in "".join(one.rule.to):
                stacks.setdefault(name, {})[int(one.numbers["head"])] = part
            elif name in renamed:
                raise InputError(f"{source}: {one.name} is not the only tensor for {name}")
            else:
                renamed[name] = part
    for name, heads in stacks.items():
        if sorted(heads) != list(range(len(heads))):
            raise InputError(f"{source} lacks a head of {name}: it has {sorted(heads)}")
        renamed[name] = torch.stack([heads[head] for head in range(len(heads))])
    return renamed


def _assign(tensors: Mapping[str, Tensor], layout: Layout) -> tuple[list[_Assigned], list[str]]:
    """Pair tensors with their rules; also return the names without a rule."""
    patterns = [(_NamePattern(name), rule) for name, rule in layout.items()]
    placed, strange = [], []
    for name, tensor in tensors.items():
        match = next(
            ((n, rule) for p, rule in patterns if (n := p.numbers_in(name)) is not None), None
        )
        if match is None:
            strange.append(name)
        else:
            numbers, rule = match
            if rule.skip or rule.scale != 1 or rule.offset:
                tensor = tensor[rule.skip :] * rule.scale + rule.offset
            placed.append(_Assigned(name, tensor, rule, numbers))
    return placed, strange


class _NamePattern:
    """A name with placeholders, and `*` for anything."""

    def __init__(self, name: str):
        self._forms: dict[str, tuple[int, int]] = {}  # of a number n: n = factor * number + rest
        regex, end = "", 0
        for match in _PLACEHOLDERS.finditer(name):
            regex += _literal(name[end : match.start()]) + self._number(match)
            end = match.end()
        self._regex = re.compile(regex + _literal(name[end:]))

    def _number(self, match: re.Match[str]) -> str:
        form = (2 if match[1] else 1, 1 if match[3] else 0)
        group = f"{match[2]}_{form[0]}_{form[1]}"
        again = group in self._forms
        self._forms[group] = form
        return f"(?P={group})" if again else rf"(?P<{group}>\d+)"

    def numbers_in(self, name: str) -> dict[str, str] | None:
        """The layer's and the head's number in a name; None for a name of another form."""
        match = self._regex.fullmatch(name)
        if match is None:
            return None
        numbers: dict[str, str] = {}
        for group, (factor, rest) in self._forms.items():
            number, remainder = divmod(int(match[group]) - rest, factor)
            axis = group.split("_")[0]
            if remainder or number < 0 or numbers.setdefault(axis, str(number)) != str(number):
                return None
        return numbers


def _literal(text: str) -> str:
    return re.escape(text).replace(r"\*", ".*")


def _filled(name: str, numbers: Mapping[str, str]) -> str:
    for axis, number in numbers.items():
        name = name.replace(f"{{{axis}}}", number)
    return name


def _groups(axes: str) -> list[list[str]]:
    """The axes on the left side of a pattern, each as the names that it combines."""
    left = axes.partition("->")[0]
    return [(inner or single).split() for inner, single in _GROUP.findall(left)]


def _sizes(placed: list[_Assigned], axis_sizes: Mapping[str, int]) -> dict[str, int]:
    """The size of every named axis; InputError if two tensors disagree."""
    sizes, with_axes = dict(axis_sizes), [one for one in placed if one.rule.axes is not None]
    learned: dict[str, str] = {}  # the tensor from which each size was determined
    while True:
        n_sizes = len(sizes)
        for one in with_axes:
            assert one.rule.axes is not None
            groups = _groups(one.rule.axes)
            if len(groups) != one.tensor.ndim:
                raise InputError(
                    f"{one.name} has shape {list(one.tensor.shape)}, not {one.rule.axes}"
                )
            for group, size in zip(groups, one.tensor.shape, strict=True):
                _solve(group, size, sizes, learned, one)
        if len(sizes) == n_sizes:
            return sizes


def _solve(
    group: list[str], size: int, sizes: dict[str, int], learned: dict[str, str], one: _Assigned
) -> None:
    """Determine the one unknown size of an axis, or check that all sizes agree."""
    numbers = {**sizes, "parts": len(one.rule.to)}
    rest, open_ = 1, []
    for name in group:
        number = numbers.get(name)
        if number is None:
            open_.append(name)
        else:
            rest *= number
    if len(open_) == 1 and rest and size % rest == 0:
        sizes[open_[0]] = size // rest
        learned[open_[0]] = one.name
    elif len(open_) == 1 or (not open_ and rest != size):
        solved = ", ".join(f"{n}={numbers[n]}" for n in group if n in numbers)
        others = [f"{n} is {sizes[n]} in {learned[n]}" for n in group if n in learned]
        raise InputError(
            f"{one.name} has shape {list(one.tensor.shape)}, which does not match "
            f"{one.rule.axes} with {solved}"
            + (f" (an axis has one size in all tensors; {', '.join(others)})" if others else "")
        )


def _parts(one: _Assigned, sizes: Mapping[str, int]) -> Iterator[tuple[str, Tensor]]:
    """The TransformerLens names and tensors for one tensor of the checkpoint."""
    tensor = one.tensor
    if one.rule.axes is not None and one.rule.to:
        groups = _groups(one.rule.axes)
        names = {name for group in groups if len(group) > 1 for name in group}
        lengths_by_name = {**sizes, "parts": len(one.rule.to)}
        missing = names - lengths_by_name.keys()
        if missing:
            raise UnknownSizeError(missing)
        try:
            lengths = {name: lengths_by_name[name] for name in names}
            tensor = einops.rearrange(tensor, one.rule.axes, **lengths)
        except einops.EinopsError as error:
            reason = str(error).strip().splitlines()[-1].strip()
            raise InputError(
                f"{one.name} cannot be rearranged by {one.rule.axes}: {reason}"
            ) from error
    named = [_filled(name, one.numbers) for name in one.rule.to]
    if len(named) == 1:
        yield named[0], tensor
    elif named:
        if tensor.ndim == 0 or len(tensor) != len(named):
            raise InputError(f"{one.name} cannot be split into {len(named)} parts")
        yield from zip(named, tensor, strict=True)
