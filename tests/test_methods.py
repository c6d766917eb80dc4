"""The sentences on methods say what the record says, and nothing else."""

from __future__ import annotations

import json
import re

import pytest

import interp_toolkit as it
from interp_toolkit.report.html import to_html
from interp_toolkit.results import jsonable

NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])")
RESULTS = [
    ("toy:induction", "heads"),
    ("toy:induction", "circuit"),
    ("toy:induction", "patching"),
    ("toy:induction", "composition"),
    ("toy:xor-2head", "xor"),
]


def numbers_of(value) -> list[float]:
    """All numbers of a record, also those in its texts."""
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, int | float):
        return [float(value)]
    if isinstance(value, str):
        return [float(text.replace(",", "")) for text in NUMBER.findall(value)]
    items = value.values() if isinstance(value, dict) else value
    return [number for item in items for number in numbers_of(item)]


def check(result) -> None:
    record = {"provenance": jsonable(result.provenance), "evidence": jsonable(result.evidence)}
    text = result.methods
    recorded, plain = numbers_of(record), re.sub(r"SHA-256 \w+…", "", text)
    stated = [float(number.replace(",", "")) for number in NUMBER.findall(plain)]
    assert stated
    for number in stated:
        assert any(abs(number - one) <= 1e-3 * abs(one) for one in recorded), number
    about = record["provenance"]
    assert about["model"]["name"] in text
    assert f"Seed {about['seed']}" in text
    for name, version in about["versions"].items():
        assert f"{name} {version}" in text
    for option, value in about["settings"].items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            assert f"{option} {value:.4g}" in text
    if about["data"]:
        assert about["data"]["source"].rstrip(".") in text
        assert about["data"]["sha256"][:16] in text
        assert str(about["data"]["rows"]) in text
    for field in ("null", "ablation_value", "replaced_by", "metric", "measured", "causal", "error"):
        if record["evidence"].get(field):
            assert str(record["evidence"][field]) in text


@pytest.mark.parametrize(("model", "name"), RESULTS)
def test_every_number_stands_in_the_record(analyzed, model, name):
    result = analyzed(model, name)
    check(result)
    assert json.loads(json.dumps(result.to_dict()))["methods"] == result.methods
    assert result.methods.split(".")[0] in to_html([result])


@pytest.mark.parametrize("name", ["heads", "circuit", "patching"])
def test_less_effort_is_described_as_what_was_done(analyzed, name):
    """What was tested by interventions, and at which level, is told of each effort."""
    quick = it.analyze("toy:induction", name, effort="quick")
    check(quick)
    assert "effort quick" in quick.methods
    causal = [result.evidence.causal for result in (quick, analyzed("toy:induction", name))]
    assert all(causal)
    assert (causal[0] == causal[1]) is (name == "patching")  # fewer prompts, the same test


def test_the_level_of_a_screen_of_sites_is_told(analyzed):
    result = analyzed("toy:induction", "patching")
    assert f"level {result.evidence.level:g}" in result.methods
    assert result.evidence.null in result.methods


def test_an_audit_and_a_file_of_weights_are_described_too(tmp_path):
    check(it.audit("toy:induction", "L1H0 is an induction head", effort="quick"))
    path = tmp_path / "model.safetensors"
    it.save(it.load("toy:xor-2head"), path)
    result = it.analyze(str(path), "xor")
    check(result)
    assert result.provenance.model["sha256"][:16] in result.methods


def test_another_seed_and_setting_are_another_text(analyzed):
    other = it.analyze("toy:xor-2head", "xor", seed=5, shuffles=7)
    assert "Seed 5" in other.methods
    assert "shuffles 7" in other.methods
    assert other.methods != analyzed("toy:xor-2head", "xor").methods
