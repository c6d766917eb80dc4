"""Where the settings of the recipes differ from those that the sources state.

`docs/source_settings.yaml` has what each source states, and where; the recipes' presets are read
from the code. The table in `docs/sources.md` between the marks is made of both. Every setting of a
recipe is either stated by the source or listed as not stated.

Run: python docs/deviations.py    writes the table
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "sources.md"
BEGIN, END = "<!-- deviations -->", "<!-- end of deviations -->"
#: settings that do not change what is trained
_TECHNICAL = {
    *("device", "seed", "dtype", "checkpoints", "log_every", "save_every", "graphs", "target"),
    "variant",
}
#: settings of 0 or None that stand for something else
_MEANS = {
    ("initial_std", 0.0): "1/√d_model",
    ("qk_std", 0.0): "as all weights",
    ("examples", 0): "new rows every step",
    ("documents", 0): "all",
    ("test_documents", 0): "all",
    ("loss_floor", 0.0): "none",
}


class Difference(NamedTuple):
    """A setting of a preset that is not the source's; `source` is None where it states none."""

    recipe: str
    preset: str
    setting: str
    source: Any
    place: str
    here: Any


def stated(source: str, recipe: str) -> tuple[dict[str, tuple[Any, str]], set[str]]:
    """What a source states about a recipe's settings, with its place, and what it does not."""
    content = yaml.safe_load((ROOT / "docs" / "source_settings.yaml").read_text(encoding="utf-8"))
    common, own = content[source]["common"], content[source]["recipes"][recipe]
    values = {**common["stated"], **own["stated"]}
    silent = {*common["unstated"], *own["unstated"]} - own["stated"].keys()
    return {name: (value, place) for name, (value, place) in values.items()}, silent


def sources() -> Mapping[str, list[str]]:
    """Each source and its recipes."""
    content = yaml.safe_load((ROOT / "docs" / "source_settings.yaml").read_text(encoding="utf-8"))
    return {source: list(entry["recipes"]) for source, entry in content.items()}


def settings(recipe: str, preset: str) -> dict[str, Any]:
    """All settings of a preset that change what is trained."""
    from interp_toolkit import registry

    entry = registry.find("recipes", recipe)
    values = entry.config(**entry.presets[preset]).model_dump()
    return {name: value for name, value in values.items() if name not in _TECHNICAL}


def defaults(recipe: str) -> dict[str, Any]:
    """The recipe's settings without a preset."""
    from interp_toolkit import registry

    return dict(registry.find("recipes", recipe).config().model_dump())


def differences(source: str, recipe: str, preset: str) -> Iterator[Difference]:
    """Settings unlike the source's, and those that the source leaves open and the preset chooses.

    Raises ValueError for a setting that the table of the source's settings does not have.
    """
    values, silent = stated(source, recipe)
    plain = defaults(recipe)
    for name, here in settings(recipe, preset).items():
        if name in values:
            value, place = values[name]
            if shown(name, value) != shown(name, here):
                yield Difference(recipe, preset, name, value, place, here)
        elif name not in silent:
            raise ValueError(f"docs/source_settings.yaml says nothing of {name} of {recipe}")
        elif here != plain[name]:
            yield Difference(recipe, preset, name, None, "", here)


def shown(name: str, value: Any) -> str:
    """A setting's value as the page writes it."""
    key = (name, value) if isinstance(value, int | float | str | bool) else None
    if key in _MEANS:
        return _MEANS[key]
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(source: str) -> str:
    """The table of a source's recipes; settings of `paper` only where they differ."""
    rows: dict[tuple[str, str], dict[str, Difference]] = {}
    for recipe in sources()[source]:
        for preset in ("small", "paper"):
            for one in differences(source, recipe, preset):
                rows.setdefault((recipe, one.setting), {})[preset] = one
    lines = ["| recipe | setting | source | preset `small` | preset `paper` |", "|" + "---|" * 5]
    for (recipe, setting), by_preset in rows.items():
        one = next(iter(by_preset.values()))
        of_source = "not stated" if one.source is None else shown(setting, one.source)
        place = f" ({one.place})" if one.place else ""
        cells = [
            shown(setting, by_preset[preset].here) if preset in by_preset else "as the source"
            for preset in ("small", "paper")
        ]
        if one.source is None:
            cells = [c if c != "as the source" else "the recipe's default" for c in cells]
        lines.append(f"| `{recipe}` | `{setting}` | {of_source}{place} | {' | '.join(cells)} |")
    return "\n".join(lines)


def text() -> str:
    """Everything between the marks."""
    parts = []
    for source, recipes in sources().items():
        _, silent = stated(source, recipes[0])
        choices = settings(recipes[0], "paper")
        common = [f"`{n}` {shown(n, choices[n])}" for n in sorted(silent) if n in choices]
        parts.append(f"### {source}\n\n{table(source)}")
        parts.append(
            f"Not stated by the source, and chosen here for `{recipes[0]}` (others as `interp show "
            f"RECIPE` lists them): {', '.join(common)}."
        )
    return "\n\n".join(parts)


def main() -> None:
    """Write the table into the page."""
    page = PAGE.read_text(encoding="utf-8")
    between = re.compile(re.escape(BEGIN) + r".*?" + re.escape(END), re.DOTALL)
    PAGE.write_text(
        between.sub(lambda match: f"{BEGIN}\n\n{text()}\n\n{END}", page), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
