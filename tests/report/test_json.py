from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from interp_toolkit._version import __version__
from interp_toolkit.errors import InputError
from interp_toolkit.report.html import dumps, to_json, write_json
from interp_toolkit.results import Evidence


@dataclass(frozen=True)
class Loose(Evidence):
    """Evidence of any shape, as a plugin's may be."""

    held: Any


SCHEMA_FILE = Path(__file__).parents[2] / "docs" / "results.schema.json"


def strict(text: str):
    """Parse JSON as the standard has it: without NaN and Infinity."""

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_document_round_trips(separable):
    document = strict(dumps([separable]))
    assert document == to_json([separable])
    assert document["schema"] == "interp-toolkit/3"
    assert document["version"] == __version__
    assert document["model"]["name"] == "toy:xor-2head"
    [result] = document["results"]
    assert result["probe"] == "xor"
    assert result["evidence"]["hyperplane"]["gap"] == pytest.approx(0.21750, abs=5e-6)
    assert result["provenance"]["seed"] == 0
    assert result["sites"][3] == ["blocks.0.hook_resid_post", 1, "XOR", "undecided", 2e-13, None]
    assert "shown" not in result


def test_floats_keep_every_bit(separable):
    values = [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -0.0]
    document = strict(dumps([replace(separable, evidence=Loose("separable", values))]))
    assert [v.hex() for v in document["results"][0]["evidence"]["held"]] == [
        v.hex() for v in values
    ]


def test_arrays_tensors_and_what_is_not_finite(separable):
    evidence = {
        "array": np.array([[1.5, np.nan], [np.inf, -np.inf]]),
        "tensor": torch.tensor([0.5, float("nan")], dtype=torch.bfloat16),
        "count": np.int64(3),
        "flag": np.bool_(True),
        "nan": float("nan"),
    }
    [result] = strict(dumps([replace(separable, evidence=Loose("separable", evidence))]))["results"]
    assert result["evidence"]["held"] == {
        "array": [[1.5, None], [None, None]],
        "tensor": [0.5, None],
        "count": 3,
        "flag": True,
        "nan": None,
    }
    assert result["evidence"]["held"]["flag"] is True


def test_what_has_no_json_form_is_refused(separable, texts):
    with pytest.raises(TypeError, match="JSON", check=texts):
        dumps([replace(separable, evidence=Loose("separable", object()))])


def test_lists_of_numbers_stand_on_one_line_and_text_is_left_alone(separable):
    evidence = {"weights": [0.25, 0.75, None], "text": ["[\n  1\n]", "a"], "rows": [[1, 2], [3]]}
    text = dumps([replace(separable, evidence=Loose("separable", evidence))])
    assert '"weights": [0.25, 0.75, null]' in text
    assert strict(text)["results"][0]["evidence"]["held"] == evidence


def test_results_of_several_models_have_no_common_model(separable, not_separable):
    document = to_json([separable, not_separable])
    assert document["model"] is None
    names = [r["provenance"]["model"]["name"] for r in document["results"]]
    assert names == ["toy:xor-2head", "toy:xor-1head"]
    assert to_json([separable, separable])["model"]["name"] == "toy:xor-2head"


def test_no_results_are_a_document_too():
    assert strict(dumps([])) == {
        "schema": "interp-toolkit/3",
        "version": __version__,
        "model": None,
        "results": [],
    }


def test_a_dash_writes_the_document_and_nothing_else_to_standard_output(separable, capsys):
    write_json([separable], "-")
    captured = capsys.readouterr()
    assert strict(captured.out) == to_json([separable])
    assert captured.out.isascii()  # so that no terminal or pipe can refuse a letter
    assert captured.err == ""


def test_a_file_is_replaced_whole(separable, tmp_path):
    path = tmp_path / "results.json"
    path.write_text("what was there before, and longer than nothing")
    write_json([separable], path)
    assert strict(path.read_text()) == to_json([separable])
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file(separable, tmp_path):
    path = tmp_path / "results.json"
    path.write_text("old")
    with pytest.raises(TypeError):
        write_json([replace(separable, evidence=Loose("separable", object()))], path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_path_that_cannot_be_written_is_one_clear_line(separable, tmp_path, texts):
    with pytest.raises(InputError, match=r".*/no/results\.json", check=texts):
        write_json([separable], tmp_path / "no" / "results.json")
    with pytest.raises(InputError, check=texts):
        write_json([separable], tmp_path)


def test_a_link_is_followed_and_a_device_is_not_replaced(separable, tmp_path):
    target = tmp_path / "target.json"
    target.write_text("old")
    link = tmp_path / "link.json"
    link.symlink_to(target)
    write_json([separable], link)
    assert link.is_symlink()
    assert strict(target.read_text()) == to_json([separable])

    write_json([separable], "/dev/null")
    assert Path("/dev/null").is_char_device()


TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def violations(value, schema, root, at="$"):
    """What JSON Schema would object to, for the keywords that the schema file uses."""
    known = {"$schema", "$defs", "$ref", "title", "description", "type", "const", "enum"}
    known |= {"required", "properties", "additionalProperties", "items"}
    assert set(schema) <= known, f"the test does not know {set(schema) - known}"
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    names = schema.get("type", [])
    types = tuple(TYPES[name] for name in ([names] if isinstance(names, str) else names))
    if types and (isinstance(value, bool) or not any(isinstance(value, t) for t in types)):
        yield f"{at} is {value!r}, not {names}"
    if "const" in schema and value != schema["const"]:
        yield f"{at} is not {schema['const']}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at} is not one of {schema['enum']}"
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        yield from (f"{at} lacks {key}" for key in schema.get("required", []) if key not in value)
        if schema.get("additionalProperties") is False:
            yield from (f"{at} has {key}" for key in value if key not in properties)
        for key in value.keys() & properties.keys():
            yield from violations(value[key], properties[key], root, f"{at}.{key}")
    if isinstance(value, list) and "items" in schema:
        for i, item in enumerate(value):
            yield from violations(item, schema["items"], root, f"{at}[{i}]")


def test_the_documented_schema_holds(separable, not_separable, texts):
    schema = json.loads(SCHEMA_FILE.read_text())
    document = to_json([separable, not_separable])
    sites = [{**dict(zip(SITE, row, strict=True)), "certificate": None} for row in separable.sites]
    document["results"][0]["sites"] = json.loads(json.dumps(sites).replace("NaN", "null"))
    document["results"][1]["sites"] = []
    assert list(violations(document, schema, schema)) == []

    document["version"] = 1
    document["results"][0]["sites"][0]["status"] = "maybe"
    del document["results"][1]["verdict"]
    texts(sorted(violations(document, schema, schema)))


SITE = ("hook", "position", "function", "status", "margin", "accuracy")
