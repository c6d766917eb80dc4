"""Name patterns of a checkpoint: the numbers that count layers and heads as `{layer}`, `{head}`.

Layers are counted by the number that occurs, with the same rest of the name and the same shape, for
0, 1, 2, ...; of several such numbers the one with most tensors. A list that alternates attention
and MLPs has the even and odd numbers `{2*layer}` and `{2*layer+1}`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

_NUMBER = re.compile(r"\d+")
MASK = re.compile(
    r"(?<![a-z])(masked_bias|mask|tril|triu|causal|attn_mask|position_ids|inv_freq|freqs?_?"
    r"(cis|cos|sin)?|cos|sin|cos_cached|sin_cached|version|_?float_tensor|alibi|slopes)(?![a-z])"
)


def words(pattern: str) -> re.Pattern[str]:
    """A pattern for whole words of a name in snake case."""
    return re.compile(rf"(?<![a-z0-9])({pattern})(?![a-z0-9])")


QUERY = words(r"w?q|quer(y|ies)")
KEY = words(r"w?k|keys?")
VALUE = words(r"w?v|values?")


def snake_case(name: str) -> str:
    """The name in lower case, its words separated by underscores or dots."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return name.lower().replace("/", ".").replace("-", "_")


def within_layer(pattern: str) -> str:
    """The name within the layer: without the number of the layer and what stands before it."""
    match = re.search(r"\{(2\*)?layer(\+1)?\}", pattern)
    if match is None:
        return pattern
    side = "odd." if match[2] else "even." if match[1] else ""
    rest = pattern[match.end() :].lstrip("._") or pattern[: match.start()].rstrip("._")
    before = pattern[: match.start()].rstrip("._").rpartition(".")[2]
    own = before if re.search(r"(?<![a-z])[qkvo]$|^w|^b_|attn|mlp|norm|ln", before) else ""
    return side + (f"{own}.{rest}" if own and own != rest else rest)


@dataclass(frozen=True)
class _Layers:
    """The names that count layers: what stands before the number, and how the numbers run.

    Attributes:
        start: the text before the number.
        stride: 1, or 2 if even numbers are attention's and odd ones MLPs'.
        n_layers: number of layers.
        covered: number of tensors with such names.
        n_slots: number of different names apart from the number.
    """

    start: str
    stride: int
    n_layers: int
    covered: int
    n_slots: int


def with_layers(tensors: Mapping[str, Tensor]) -> tuple[dict[str, list[str]], int]:
    """The names by their pattern with `{layer}` and `{head}`, in order; the number of layers."""
    slots: dict[str, dict[str, dict[int, str]]] = defaultdict(lambda: defaultdict(dict))
    for name in tensors:
        for match in _NUMBER.finditer(name):
            slots[name[: match.start()]][name[match.end() :]][int(match[0])] = name
    lists = [one for start, ends in slots.items() if (one := _layers(start, ends, tensors))]
    best = max(lists, key=lambda one: (one.covered, -len(one.start)), default=None)
    if best is None:
        return _with_heads({name: [name] for name in tensors}, tensors), 0
    if best.n_slots > 3:
        chosen = [best]
    else:  # a list for each kind of tensor: `wq.0`, `wk.0`
        chosen = [one for one in lists if (one.n_layers, one.stride) == (best.n_layers, 1)]
    patterns: dict[str, list[str]] = defaultdict(list)
    for name in tensors:
        patterns[_pattern(name, chosen)].append(name)
    return _with_heads(patterns, tensors), best.n_layers


def _layers(
    start: str, ends: Mapping[str, Mapping[int, str]], tensors: Mapping[str, Tensor]
) -> _Layers | None:
    """The layers that the numbers after `start` count, if they count layers."""
    even = [names for names in ends.values() if _same_shapes(tensors, names.values())]
    numbers = [sorted(names) for names in even]
    if not numbers:
        return None
    n = max(one[-1] for one in numbers) + 1
    halves = [list(range(first, n, 2)) for first in (0, 1)]
    if n % 2 == 0 and all(half in numbers for half in halves) and n > 1:
        fit = [one for one in numbers if one in halves or one == list(range(n))]
        return _Layers(start, 2, n // 2, sum(map(len, fit)), len(fit))
    lengths = Counter(len(one) for one in numbers if one == list(range(len(one))))
    if not lengths:
        return None
    n_layers, n_slots = lengths.most_common(1)[0]
    return _Layers(start, 1, n_layers, n_layers * n_slots, n_slots)


def _same_shapes(tensors: Mapping[str, Tensor], names: Iterable[str]) -> bool:
    return len({tensors[name].shape for name in names}) == 1


def _pattern(name: str, lists: Iterable[_Layers]) -> str:
    for match in _NUMBER.finditer(name):
        number = int(match[0])
        for one in lists:
            if name[: match.start()] == one.start and number < one.stride * one.n_layers:
                form = "layer" if one.stride == 1 else "2*layer+1" if number % 2 else "2*layer"
                return f"{one.start}{{{form}}}{name[match.end() :]}"
    return name


def _with_heads(
    patterns: Mapping[str, list[str]], tensors: Mapping[str, Tensor]
) -> dict[str, list[str]]:
    """Numbers that count heads become `{head}`: `heads.0.key` and so on, in queries or keys."""
    slots: dict[str, list[str]] = defaultdict(list)
    for pattern in patterns:
        text = snake_case(pattern)
        for match in _NUMBER.finditer(pattern):
            before = pattern[: match.start()].lower()
            if before.endswith(("heads.", "head.", "heads_", "head_", "head", "attns.", "attn.")):
                parts = any(part.search(text) for part in (QUERY, KEY, VALUE, MASK))
                if parts or is_mask(tensors[patterns[pattern][0]]):
                    merged = f"{pattern[: match.start()]}{{head}}{pattern[match.end() :]}"
                    slots[merged].append(pattern)
                break
    renamed = {pattern: merged for merged, several in slots.items() for pattern in several}
    out: dict[str, list[str]] = defaultdict(list)
    for pattern, names in patterns.items():
        out[renamed.get(pattern, pattern)] += names
    return dict(out)


def is_mask(tensor: Tensor) -> bool:
    """Whether a tensor is no weight: whole numbers or booleans, a scalar, or a causal mask."""
    if not tensor.is_floating_point() or tensor.ndim == 0:
        return True
    if tensor.ndim < 2 or tensor.shape[-1] != tensor.shape[-2] or tensor.shape[-1] < 2:
        return False
    square = tensor.reshape(-1, *tensor.shape[-2:])[0]
    lower = torch.ones_like(square).tril()
    return bool(torch.equal(square, lower) or torch.equal(square.isinf(), lower == 0))
