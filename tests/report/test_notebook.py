"""What a notebook shows of a result."""

from __future__ import annotations

import json
import re
import types
from dataclasses import replace
from typing import Any

import pytest

from interp_toolkit.report import notebook
from interp_toolkit.results import Figure, Result, Table


def test_verdict_first_figure_and_main_table(separable: Result) -> None:
    text = separable._repr_html_()
    assert text.index(separable.headline[:20]) < text.index("Plotly.newPlot") < text.index("Sites")
    assert "✓" in text
    assert text.count("Plotly.newPlot") == 1
    assert len(text) < 60_000  # no plotly.js inside


def test_nothing_hostile_becomes_markup(separable: Result) -> None:
    attack = "</script><script>hacked()</script><img src=x onerror=hacked()>"
    figure = Figure(attack, attack, [{"type": "scatter", "x": [0], "y": [0], "name": attack}])

    class Hostile(type(separable)):  # type: ignore[misc]
        def tables(self) -> list[Table]:
            return [Table(attack, [attack], [[attack]], attack)]

    result = Hostile(**{**separable.arguments, "verdict": attack, "plots": [figure]})
    text = result._repr_html_()
    assert "<script>hacked" not in text
    assert "<img" not in text


def test_long_tables_are_cut_and_say_so(separable: Result) -> None:
    rows = [["h", i, "XOR", "separable", 0.1, 1.0] for i in range(40)]
    text = replace(separable, sites=rows)._repr_html_()  # type: ignore[call-arg]
    assert text.count("<tr>") + text.count("<tr ") == 1 + notebook.SHOWN_ROWS
    assert "28 more rows" in text


def test_without_a_notebook_show_prints(separable: Result, capsys: Any, texts) -> None:
    separable.show()
    printed = capsys.readouterr().out
    texts(printed)
    assert "Sites" in printed


@pytest.mark.parametrize("renders", [True, False])
def test_in_a_notebook_show_displays_every_figure_and_table(
    separable: Result, monkeypatch: pytest.MonkeyPatch, renders: bool
) -> None:
    import sys

    monkeypatch.setattr(notebook, "find_spec", lambda name: renders or None)

    shown: list[Any] = []
    display = types.ModuleType("IPython.display")
    display.HTML = lambda text: ("html", text)  # type: ignore[attr-defined]
    display.display = lambda *values: shown.extend(values)  # type: ignore[attr-defined]
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    separable.show()
    if not renders:  # plotly's own renderer needs a package that is not there
        drawn = [text for _, text in shown if "Plotly.newPlot" in text]
        assert len(drawn) == len(separable.figures())
        return
    figures = [value for value in shown if not isinstance(value, tuple)]
    assert [len(figure.data) for figure in figures] == [len(f.data) for f in separable.figures()]
    tables = [value for value in shown if isinstance(value, tuple) and "<table" in value[1]]
    assert len(tables) == len(separable.tables())


def test_a_figure_can_be_taken_apart() -> None:
    given = Figure("T", "c", [{"type": "bar", "x": ["a"], "y": [1]}], {"height": 300})
    drawn = given.to_plotly()
    assert drawn.layout.title.text == "T"
    assert drawn.layout.height > 300  # room for the title, so that it meets no legend
    assert list(drawn.data[0].y) == [1]
    drawn.data[0].marker.color = "red"
    assert given.data[0].get("marker") is None
    assert repr(given) == "Figure('T': 1 traces)"


def test_tables_are_frames() -> None:
    table = Table("T", ["a", "b"], [[1, None], [2, "x"]])
    frame = table.to_frame()
    assert list(frame.columns) == ["a", "b"]
    assert frame["a"].tolist() == [1, 2]
    assert repr(table) == "Table('T': 2 rows × 2 columns)"


def test_a_repr_is_one_line_and_names_the_status(separable: Result, analyzed) -> None:
    assert re.fullmatch(r"HandMade\(separable: .{1,100}\)", repr(separable))
    assert json.dumps(analyzed("toy:xor-2head", "xor").to_dict())  # nothing shown is stored
