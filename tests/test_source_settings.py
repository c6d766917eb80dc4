"""What the recipes' presets change is told: the table of the page is made of the code."""

import importlib.util
import sys
from pathlib import Path

import pytest

from interp_toolkit import registry

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def deviations():
    spec = importlib.util.spec_from_file_location("docs_deviations", DOCS / "deviations.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def recipes(deviations):
    return [(source, name) for source, names in deviations.sources().items() for name in names]


def test_the_table_of_the_page_is_that_of_the_code(deviations):
    page = (DOCS / "sources.md").read_text(encoding="utf-8")
    between = page.split(deviations.BEGIN)[1].split(deviations.END)[0]
    assert between.strip() == deviations.text().strip()


def test_every_setting_of_every_recipe_is_stated_or_said_not_to_be(deviations):
    for source, name in recipes(deviations):
        values, silent = deviations.stated(source, name)
        settings = deviations.settings(name, "small")
        assert settings.keys() <= values.keys() | silent, name
        assert values.keys() <= settings.keys(), name  # no setting that the recipe does not have


def test_recipes_of_the_sources_are_in_the_table(deviations):
    of_sources = {name for _, name in recipes(deviations)}
    own = {"induction", "toy-text", "uand", "xor", "rows"}  # their sources state no settings
    assert of_sources | own == set(registry.names("recipes"))


def test_a_preset_that_is_changed_by_hand_is_noticed(deviations, monkeypatch):
    before = deviations.text()
    recipe = registry.find("recipes", "k-hop")
    changed = {**recipe.presets["paper"], "layers": 4}
    monkeypatch.setitem(recipe.presets, "paper", changed)
    assert deviations.text() != before
    rows = list(deviations.differences(*recipes(deviations)[4], "paper"))
    assert [(d.setting, d.source, d.here) for d in rows if d.setting == "layers"] == [
        ("layers", 5, 4)
    ]


def test_the_named_deviations_of_the_review_are_told(deviations):
    """Settings that no page named once: order of digits, weight decay, initial weights, layers."""
    told = {
        (d.recipe, d.setting)
        for source, name in recipes(deviations)
        for d in deviations.differences(source, name, "small")
    }
    assert {
        ("decimal-addition", "reversed"),
        ("modular-addition", "weight_decay"),
        ("modular-addition", "examples"),
        ("k-hop", "layers"),
        ("retrieval", "qk_std"),
        ("retrieval", "initial_std"),
        ("retrieval", "symbols"),
        ("retrieval", "examples"),
        ("retrieval", "d_model"),
        ("retrieval", "repeated_keys"),
        ("sort-distinct", "optimiser"),
        ("decimal-addition", "mixing_variance"),
    } <= told
