"""The suite: how many models of each family are drawn from a seed.

Seed 0 is the public set. Models of any other seed have not been looked at. A model depends only on
the seed and on its number within its family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec

from interp_studies.challenge.case import Case
from interp_toolkit.errors import InputError

PUBLIC_SEED, MODELS = 0, 100
#: of 100 models
SHARES: Mapping[str, int] = {
    "compiled": 20,
    "planted": 26,
    "twins": 18,
    "superposed": 18,
    "xor": 8,
    "bigrams": 6,
    "imitated": 4,
}
_BUILDERS = {
    "compiled": ("compiled", "compiled_cases"),
    "planted": ("planted", "planted_cases"),
    "twins": ("twins", "twin_cases"),
    "superposed": ("superposed", "superposed_cases"),
    "xor": ("xor", "xor_cases"),
    "bigrams": ("bigrams", "bigram_cases"),
    "imitated": ("imitated", "imitated_cases"),
}
FAMILIES = tuple(SHARES)
WITH_TRACR = ("compiled", "twins", "imitated")  # families of programs that tracr compiles
HOW_TO_GET_TRACR = "pip install 'interp-toolkit[benchmarks]'"


def builder(family: str) -> Callable[[int, int], Iterator[Case]]:
    """The function that draws a family's cases from a seed and a count."""
    module, name = _BUILDERS[family]
    found: Callable[[int, int], Iterator[Case]] = getattr(
        import_module(f"interp_studies.challenge.families.{module}"), name
    )
    return found


def available() -> tuple[str, ...]:
    """The families that can be drawn here: without tracr, all that do not need it."""
    has_tracr = find_spec("tracr") is not None
    return tuple(name for name in FAMILIES if has_tracr or name not in WITH_TRACR)


def counts(models: int, families: Sequence[str] | None = None) -> dict[str, int]:
    """Number of models of each family, in proportion to SHARES, at least one each.

    Args:
        models: total number of models.
        families: some of FAMILIES; None: those that are available.

    Raises:
        InputError: a family is unknown or needs tracr, which is missing, or there are fewer models
            than families.
    """
    families = available() if families is None else families
    unknown = [name for name in families if name not in SHARES]
    if unknown or not families:
        raise InputError(f"no family {', '.join(unknown)}; there are {', '.join(FAMILIES)}")
    for name in families:
        if name not in available():
            raise InputError(f"family {name!r} needs tracr: {HOW_TO_GET_TRACR}")
    chosen = [name for name in FAMILIES if name in families]
    if models < len(chosen):
        raise InputError(f"{models} models are too few for {len(chosen)} families")
    whole = sum(SHARES[name] for name in chosen)
    found = {name: max(1, models * SHARES[name] // whole) for name in chosen}
    by_size = sorted(chosen, key=lambda name: -SHARES[name])
    step = 1 if sum(found.values()) < models else -1
    for number in range(10 * models):
        if sum(found.values()) == models:
            break
        name = by_size[number % len(by_size)]
        found[name] = max(1, found[name] + step)
    return found


def draw(
    seed: int = PUBLIC_SEED, models: int = MODELS, families: Sequence[str] | None = None
) -> Iterator[Case]:
    """The suite's cases, family by family; raises InputError as `counts` does.

    Args:
        seed: PUBLIC_SEED, or a secret seed.
        models: total number of models.
        families: some of FAMILIES; None: those that are available.
    """
    for family, count in counts(models, families).items():
        yield from builder(family)(seed, count)
