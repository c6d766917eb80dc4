"""Plugins: found by name, listed, and harmless when broken."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from interp_toolkit import registry
from interp_toolkit.errors import InputError


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch):
    """Add entry points to what is installed."""

    def add(**values: str) -> None:
        real = registry.entry_points

        def patched(group: str):
            extra = [EntryPoint(name, value, group) for name, value in values.items()]
            return [*real(group=group), *(extra if group.endswith("probes") else [])]

        monkeypatch.setattr(registry, "entry_points", patched)
        registry._entries.cache_clear()

    yield add
    registry._entries.cache_clear()


def test_ours_are_registered_like_any_other() -> None:
    assert {"xor", "and", "or", "boolean"} <= set(registry.names("probes"))
    assert registry.find("probes", "xor").name == "xor"
    assert {"xor-2head", "xor-1head", "or-1head", "and-1head", "xor-1head-mlp"} <= set(
        registry.names("toys")
    )
    for group in ("probes", "toys", "recipes"):
        for name, entry in registry.load_all(group).items():
            assert entry.name == name
            assert entry.summary


def test_a_plugin_that_fails_to_import_is_named_and_breaks_nothing(plugins) -> None:
    plugins(mine="interp_toolkit.probes.boolean.analysis:XOR", broken="no_such_package:THING")
    assert registry.find("probes", "mine").name == "xor"
    with pytest.warns(UserWarning, match="'broken' .*no_such_package"):
        found = registry.load_all("probes")
    assert "mine" in found
    assert "broken" not in found
    with pytest.raises(InputError, match="'broken'"):
        registry.find("probes", "broken")


def test_a_plugin_does_not_take_the_name_of_an_analysis_of_ours(plugins, texts) -> None:
    plugins(xor="somebody.else:XOR")
    with pytest.warns(UserWarning, match="'xor', is taken"):
        texts(registry.find("probes", "xor").source)


def test_everything_in_the_catalogue_is_there_and_needs_no_installation(monkeypatch) -> None:
    monkeypatch.setattr(registry, "entry_points", lambda group: [])
    registry._entries.cache_clear()
    for group, entries in registry.CATALOGUE.items():
        assert set(registry.load_all(group)) == set(entries)
    registry._entries.cache_clear()
