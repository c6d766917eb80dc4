"""Units of a checkpoint with unknown names: weight and bias of a module together, and its sizes.

`Checkpoint` holds the tensors by name pattern, leaves out masks and tables, and collects a rule
(`Entry`) for each pattern; `guess_blocks` and `guess` fill them in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from interp_toolkit.models.loading.parameters.key_rules import BLANK
from interp_toolkit.models.loading.parameters.patterns import (
    MASK,
    is_mask,
    snake_case,
    with_layers,
    within_layer,
)

_PART = re.compile(
    r"^(?P<stem>.+?)[._](?P<part>weight|bias|gamma|beta|gain|scale|shift|kernel|[wgb]|a_2|b_2)$"
)
_BIASES = ("bias", "beta", "shift", "b", "b_2")
BLOCK = "blocks.{layer}."
BY_ORDER = "by its position among the tensors"


@dataclass(frozen=True)
class Entry:
    """A rule for one name pattern of a checkpoint.

    Attributes:
        pattern: the checkpoint's name, with `{layer}` and `{head}`.
        shape: shape of its tensors.
        to: TransformerLens names; empty to leave it out; `("?",)` to be filled in.
        axes: einops pattern, if axes are rearranged.
        guess: the reason why this is only a guess.
        why: the reason for leaving it out, or for "?".
        skip: number of first rows to leave out.
        scale: factor.
        offset: number added to all values.
    """

    pattern: str
    shape: tuple[int, ...]
    to: tuple[str, ...] = (BLANK,)
    axes: str | None = None
    guess: str = ""
    why: str = ""
    skip: int = 0
    scale: float = 1.0
    offset: float = 0.0


@dataclass
class Unit:
    """A module's tensors: one weight, one bias, or both.

    Attributes:
        stem: the name without the part, in snake case, without the layer's prefix.
        tensors: name pattern and shape by part, "weight" and "bias".
        in_block: whether it belongs to a layer.
    """

    stem: str
    in_block: bool
    tensors: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """The weight's shape without leading axes of size 1; the bias's if there is no weight."""
        shape = self.tensors.get("weight", self.tensors.get("bias", ("", ())))[1]
        while len(shape) > 2 and shape[0] == 1:
            shape = shape[1:]
        return shape

    @property
    def is_vector(self) -> bool:
        """Whether it is one vector, such as a norm's scale."""
        return len(self.shape) == 1

    def matches(self, words: re.Pattern[str]) -> bool:
        """Whether its name has one of the words."""
        return words.search(self.stem) is not None

    @property
    def leaf(self) -> str:
        """The last part of its name."""
        return self.stem.rpartition(".")[2]

    @property
    def parent(self) -> str:
        """Its name without the last part."""
        return self.stem.rpartition(".")[0]


class Checkpoint:
    """A checkpoint's tensors, their units, and the rules and settings that were derived so far.

    Attributes:
        tensors: the tensors as saved.
        n_heads: number of heads if the file's configuration has it.
        patterns: the names, by pattern.
        n_layers: number of layers.
        entries: the rules so far, by pattern.
        settings: configuration fields with a reason each; "" if it is not a guess.
        text: all patterns in snake case.
        units: the modules, without masks and tables.
        d_model: the size that most of them share.
        turned: whether matrices are stored input-first; None if no shape shows it.
    """

    def __init__(self, tensors: Mapping[str, Tensor], n_heads: int | None):
        self.tensors = tensors
        self.n_heads = n_heads
        self.patterns, self.n_layers = with_layers(tensors)
        self.first = {pattern: names[0] for pattern, names in self.patterns.items()}
        self.entries: dict[str, Entry] = {}
        self.settings: dict[str, tuple[object, str]] = {}
        self.text = "\n".join(snake_case(pattern) for pattern in self.patterns)
        self._leave_out_buffers()
        self.units = self._units()
        self.d_model = self._d_model()
        #: whether matrices are stored input-first; None if no shape shows it
        self.turned: bool | None = None

    def shape_of(self, pattern: str) -> tuple[int, ...]:
        """The shape of the tensors with these names."""
        return tuple(self.tensors[self.first[pattern]].shape)

    def _leave_out_buffers(self) -> None:
        for pattern, name in self.first.items():
            tensor, text = self.tensors[name], snake_case(pattern)
            if not (MASK.search(text) or is_mask(tensor)):
                continue
            if text.endswith("inv_freq") and tensor.ndim == 1 and len(tensor):
                self._rotary(2 * len(tensor), base_of(tensor))
            elif re.search(r"freqs?_?(cis|cos|sin)|(?<![a-z])(cos|sin)(?![a-z])", text):
                self.settings["positional_embedding_type"] = ("rotary", "")
            self.entries[pattern] = Entry(
                pattern, self.shape_of(pattern), (), why="no weight: a mask or a table"
            )

    def _rotary(self, dim: int, base: float | None) -> None:
        self.settings["positional_embedding_type"] = ("rotary", "")
        self.settings["rotary_dim"] = (dim, "")
        if base is not None:
            self.settings["rotary_base"] = (base, "")

    def _units(self) -> list[Unit]:
        units: dict[tuple[bool, str], Unit] = {}
        for pattern in self.patterns:
            if pattern in self.entries:
                continue
            in_block = "layer}" in pattern or "layer+1}" in pattern
            text = snake_case(within_layer(pattern))
            match = _PART.fullmatch(text)
            stem, part = (match["stem"], match["part"]) if match else (text, "weight")
            kind = "bias" if part in _BIASES else "weight"
            unit = units.setdefault((in_block, stem), Unit(stem, in_block))
            unit.tensors[kind] = (pattern, self.shape_of(pattern))
        return self._with_separate_biases(list(units.values()))

    def _with_separate_biases(self, units: list[Unit]) -> list[Unit]:
        """Attach a bias to a weight: a bias that is named with its weight's letter replaced."""
        by_stem = {(unit.in_block, unit.stem): unit for unit in units}
        left = []
        for unit in units:
            match = re.fullmatch(r"(.*?)(?<![a-z0-9])b(_?\w+)", unit.stem)
            owner = match and by_stem.get((unit.in_block, f"{match[1]}w{match[2]}"))
            if owner and "bias" not in owner.tensors and unit.tensors.keys() == {"weight"}:
                owner.tensors["bias"] = unit.tensors["weight"]
            else:
                left.append(unit)
        return left

    def _d_model(self) -> int:
        counts: Counter[int] = Counter()
        for unit in self.units:
            counts.update(set(unit.shape))
        embeddings = [u.shape[-1] for u in self.units if not u.in_block and len(u.shape) == 2]
        return max(counts, key=lambda n: (counts[n], n in embeddings, -n), default=1)

    def add_norm(self, unit: Unit, to: str, guess: str) -> None:
        """Add the rules of a norm's scale and shift."""
        for part, letter in (("weight", "w"), ("bias", "b")):
            if part in unit.tensors:
                pattern, shape = unit.tensors[part]
                entry = Entry(pattern, shape, (f"{to}{letter}",), None, guess)
                if letter == "w" and abs(float(self.tensors[self.first[pattern]].mean())) < 0.3:
                    reason = "its values lie around 0: factors that are stored less 1"
                    entry = replace(entry, offset=1.0, guess=reason)
                self.entries[pattern] = entry


def base_of(inv_freq: Tensor) -> float | None:
    """The base of rotary frequencies `base ** (-i / n)`; None if it cannot be read from them."""
    n = len(inv_freq)
    if n < 2 or not 0 < float(inv_freq[1]) < 1:
        return None
    base = float(inv_freq[1].double()) ** -n
    rounded = float(f"{base:.3g}")
    powers = rounded ** (-torch.arange(n, dtype=torch.float64) / n)
    return rounded if torch.allclose(powers, inv_freq.double(), rtol=1e-3) else base
