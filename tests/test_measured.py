"""Figures in the README and the docs are those of the result files they name (docs/figures.py)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
FEWEST = 40  # figures and tables that a file stands behind
#: measurements that no benchmark of their name makes
MADE_BY = {
    "parts": "benchmarks/gpu.py",
    "agreement_zoo": "benchmarks/agreement.py",
    "cost_again": "benchmarks/cost.py",
    "fuzz": "tests/fuzz/run.py",
    "fuzz_again": "tests/fuzz/run.py",
    "live": "tests/run_live.py",
    "memory_smollm2": "benchmarks/memory.py",
}


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("figures", ROOT / "docs" / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


figures = _script()


@pytest.mark.parametrize("page", figures.PAGES, ids=lambda page: page.stem)
def test_a_pages_figures_are_those_of_the_files(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert figures.anew(text) == text, "python docs/figures.py writes them anew"


@pytest.mark.parametrize("page", figures.PAGES, ids=lambda page: page.stem)
def test_every_reference_is_read(page: Path) -> None:
    """One that is written wrongly would be left as it is, and hold nothing."""
    assert figures.unread(page.read_text(encoding="utf-8")) == 0


def test_there_are_figures_to_hold() -> None:
    texts = [page.read_text(encoding="utf-8") for page in figures.PAGES]
    held = sum(len(figures.FIGURE.findall(t)) + len(figures.TABLE.findall(t)) for t in texts)
    assert held > FEWEST


@pytest.mark.parametrize(
    "file", sorted(figures.RESULTS.rglob("*.json")), ids=lambda file: file.stem
)
def test_a_result_file_is_of_an_artefact_or_a_benchmark(file: Path) -> None:
    from interp_toolkit.registry import names

    name = file.relative_to(figures.RESULTS).with_suffix("")
    if name.parts[0] == "benchmarks":
        assert (ROOT / MADE_BY.get(name.name, f"benchmarks/{name.name}.py")).is_file()
    else:
        assert str(name) in names("artefacts")


DOCUMENT = {
    "quantities": [{"of": "a", "name": "x", "median": 1}, {"of": "b", "name": "x", "median": 0.25}],
    "tables": [
        {
            "title": "t",
            "columns": ["k", "v %", "w"],
            "rows": [["d_head 1", 3.14, 1], ["not_so", 4.0, None]],
        }
    ],
}


@pytest.fixture
def document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "result", lambda name: DOCUMENT)


def test_steps_of_a_path() -> None:
    assert figures.follow(DOCUMENT, ["quantities", "b/x", "median"]) == 0.25
    assert figures.follow(DOCUMENT, ["tables", "t", "not_so", "v %"]) == 4
    assert figures.follow(DOCUMENT, ["tables", "t", "rows", "0", "1"]) == 3.14
    assert figures.follow(DOCUMENT, ["quantities", "0", "of"]) == "a"
    measured = {"seconds": [3.0, 1.0, 1.5]}
    assert figures.follow(measured, ["seconds", "median"]) == 1.5
    assert [figures.follow(measured, ["seconds", s]) for s in ("least", "most", "length")] == [
        *(1.0, 3.0, 3)
    ]
    with pytest.raises(ValueError, match="too many"):
        figures.follow(DOCUMENT, ["quantities", "x"])
    findings = [{"claim": "below 1"}, {"claim": "below 10"}, {"claim": "above 2"}]
    assert figures.follow(findings, ["below 1", "claim"]) == "below 1"  # whole before a part
    assert figures.follow(findings, ["above", "claim"]) == "above 2"


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (0.25, ".0%", "25 %"),
        (0.25, "100*.1f", "25.0"),
        (9_900_000, "1e-6*.1f", "9.9"),
        (0.25, "4*.0f", "1"),
        (-0.001, ".2f", "0.00"),
        (-0.51, ".1f", "-0.5"),
        (12345, ",d", "12,345"),
        ("not_reached", "s", "`not reached`"),
    ],
)
def test_how_a_figure_is_written(value: float, form: str, text: str) -> None:
    assert figures.written(value, form) == text


@pytest.mark.usefixtures("document")
@pytest.mark.parametrize("wrong", ["?", "3.2", "-1", "−1.5", "1,024", "24 %", "2e-05"])
def test_a_wrong_figure_is_put_right(wrong: str) -> None:
    page = "of which {}<!-- it :: quantities :: b/x :: median :: .0% --> hold"
    assert figures.anew(page.format(wrong)) == page.format("25 %")


@pytest.mark.usefixtures("document")
def test_nothing_in_front_of_a_figure_is_touched() -> None:
    page = "in 20-{}<!-- it :: quantities :: b/x :: median :: 100*.0f -->, L0H{}"
    assert figures.anew(page.format("24", 1)) == page.format("25", 1)


@pytest.mark.usefixtures("document")
def test_a_table_without_an_end_is_told_and_takes_nothing_with_it() -> None:
    begin = "<!-- table :: it :: t :: name={0} -->\n"
    page = begin + "prose\n" + begin + "<!-- end of table -->\n"
    assert figures.unread(page) == 1
    assert figures.anew(page).startswith(begin + "prose\n" + begin)
    assert figures.unread(page.replace("prose", "<!-- end of table -->")) == 0


@pytest.mark.usefixtures("document")
def test_a_wrong_word_is_put_right() -> None:
    page = "it is {}<!-- it :: tables :: t :: not_so :: k :: s -->"
    assert figures.anew(page.format("`so`")) == page.format("`not so`")


@pytest.mark.usefixtures("document")
def test_a_table_is_put_right() -> None:
    begin = "<!-- table :: it :: t :: name={0} | both={v %:.1f} ({w}) -->\n"
    right = "\n| name | both |\n| --- | --- |\n| d_head 1 | 3.1 (1) |\n| not so | – |\n\n"
    end = "<!-- end of table -->\n"
    assert figures.anew(begin + "| old |\n" + end) == begin + right + end
    assert figures.anew(begin + right + end) == begin + right + end
