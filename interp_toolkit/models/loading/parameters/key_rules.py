"""Rules of a naming layout: the TransformerLens tensor for each name, and its axes.

A layout maps the checkpoint's names to rules. A name may contain `{layer}` and `{head}`, which
match the same number everywhere in a rule. A rule contains TransformerLens's name, and optionally
the axes as an einops pattern:

    {"h.{layer}.ln_1.weight": "blocks.{layer}.ln1.w",
     "h.{layer}.proj.weight": {"to": "blocks.{layer}.attn.W_O",
                               "axes": "d_model (head d_head) -> head d_head d_model"},
     "h.{layer}.bias": null}

Several names in `to` divide the first axis of the pattern's result (a fused q, k, v); `{head}` in
the checkpoint's name only stacks the heads in order; null leaves a tensor out. Axes of the same
name have the same size everywhere, which determines sizes and distinguishes layouts; `n_heads` and
`d_head` (the axes `head`, `d_head`) may be set if no shape shows them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import einops
import torch
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.files import read_json

_PLACEHOLDERS = re.compile(r"\\\{(layer|head)\\\}")
_GROUP = re.compile(r"\(([^()]*)\)|(\S+)")
_PATTERN = re.compile(r"[a-z_0-9 ()]+->[a-z_0-9 ()]+")


@dataclass(frozen=True)
class KeyRule:
    """The rule for one tensor of a checkpoint.

    Attributes:
        to: its TransformerLens name, or several names that divide the first axis; empty to leave
            the tensor out.
        axes: rearrangement of its axes, as an einops pattern; None leaves them unchanged.
    """

    to: tuple[str, ...]
    axes: str | None = None


Layout = Mapping[str, KeyRule]


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


def read_layout(path: Path) -> dict[str, KeyRule]:
    """The layout in a JSON file; see the module.

    Raises InputError if the file does not hold a layout.
    """
    source = f"--keys {path}"
    return layout_of(read_json(path, source), source)


def layout_of(content: Any, source: str) -> dict[str, KeyRule]:
    """The layout in a mapping of names to rules; InputError if it is not valid."""
    if not isinstance(content, Mapping) or not content:
        raise InputError(
            f"{source} must be a non-empty object that maps the checkpoint's tensor names to "
            "TransformerLens's names"
        )
    return {str(name): _rule(name, rule, source) for name, rule in content.items()}


def _rule(name: Any, rule: Any, source: str) -> KeyRule:
    if rule is None:
        return KeyRule(())
    rule = rule if isinstance(rule, Mapping) else {"to": rule}
    to, axes = rule.get("to"), rule.get("axes")
    to = [to] if isinstance(to, str) else to
    fits = isinstance(to, list | tuple) and to and all(isinstance(one, str) for one in to)
    if not fits or rule.keys() - {"to", "axes"}:
        raise InputError(f'{source}: {name} needs "to", one name or several, and maybe "axes"')
    assert isinstance(to, list | tuple)
    if axes is not None and not (isinstance(axes, str) and _PATTERN.fullmatch(axes)):
        raise InputError(
            f'{source}: the axes of {name} must be a pattern such as "a (b c) -> b c a"'
        )
    return KeyRule(tuple(to), axes)


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
    patterns = [(_compiled(name), rule) for name, rule in layout.items()]
    placed, strange = [], []
    for name, tensor in tensors.items():
        match = next(((m, rule) for p, rule in patterns if (m := p.fullmatch(name))), None)
        if match is None:
            strange.append(name)
        else:
            placed.append(_Assigned(name, tensor, match[1], match[0].groupdict()))
    return placed, strange


def _compiled(name: str) -> re.Pattern[str]:
    names: set[str] = set()

    def number(match: re.Match[str]) -> str:
        again = match[1] in names
        names.add(match[1])
        return f"(?P={match[1]})" if again else rf"(?P<{match[1]}>\d+)"

    return re.compile(_PLACEHOLDERS.sub(number, re.escape(name)))


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
