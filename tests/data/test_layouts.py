"""Layouts of published data sets are read as meant, or refused with the option that helps."""

import runpy
from pathlib import Path

import pytest
from layouts import WordTokenizer, layouts, written

from interp_toolkit import InputError
from interp_toolkit.data import read_data

LAYOUTS = layouts()


def test_there_are_enough_and_no_two_are_one():
    assert len(LAYOUTS) >= 60
    assert len({layout["name"] for layout in LAYOUTS}) == len(LAYOUTS)


@pytest.mark.parametrize("layout", LAYOUTS, ids=[layout["name"] for layout in LAYOUTS])
def test_a_published_layout_is_read_rightly_or_refused(tmp_path, layout):
    path, tokenizer = written(layout, tmp_path), WordTokenizer()
    schema = layout.get("options")
    if "refused" in layout:
        with pytest.raises(InputError) as error:
            read_data(path, tokenizer, schema=schema)
        assert layout["refused"] in str(error.value)
        assert len(str(error.value)) <= 300
        return
    if schema is not None:  # it is not read otherwise than meant without them
        try:
            plain = read_data(path, tokenizer)
        except InputError:
            plain = None
        if plain is not None and "answers" in layout:
            assert plain.answers is None or "not read" in plain.source
    data = read_data(path, tokenizer, schema=schema)
    assert layout.get("told", "") in data.source
    if "ids" in layout:
        assert [row.tolist() for row in data.tokens] == layout["ids"]
        return
    times = layout.get("times", 1)

    def texts(rows):
        return [tokenizer.decode(row.tolist()) for row in rows]

    assert texts(data.tokens) == layout["prompts"] * times
    for name in ("answers", "wrong"):
        column = getattr(data, name)
        assert (column is None) == (name not in layout)
        if column is not None:
            assert texts(column) == layout[name] * times
    features = {n: data.features[:, k].tolist() for k, n in enumerate(data.names)}
    expected = {n: values * times for n, values in layout.get("features", {}).items()}
    assert {n: features.get(n) for n in expected} == expected
    if "features" in layout:
        assert features.keys() == expected.keys()


def test_the_page_has_the_table_of_these_layouts():
    docs = Path(__file__).parents[2] / "docs"
    table = runpy.run_path(str(docs / "layouts.py"))["table"]()
    assert table in (docs / "compatibility.md").read_text(encoding="utf-8")
