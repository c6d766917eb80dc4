"""Numbers in the README and the docs are those of their result files (docs/figures.yaml)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
FEWEST = 390  # numbers and tables on pages that are held to a result file
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


@pytest.mark.parametrize("name", figures.REFERENCES)
def test_numbers_on_a_page_are_those_of_the_result_files(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    updated = figures.update_page(text, figures.REFERENCES[name])
    assert updated == text, "python docs/figures.py rewrites them"


def test_numbers_are_held_to_result_files() -> None:
    held = sum(map(figures.count_references, figures.REFERENCES.values()))
    assert held >= FEWEST


@pytest.mark.parametrize(
    "file", sorted(figures.RESULTS.rglob("*.json")), ids=lambda file: file.stem
)
def test_a_result_file_is_of_an_artefact_a_sweep_or_a_benchmark(file: Path) -> None:
    from interp_toolkit.registry import names

    name = file.relative_to(figures.RESULTS).with_suffix("")
    if name.parts[0] == "benchmarks":
        assert (ROOT / MADE_BY.get(name.name, f"benchmarks/{name.name}.py")).is_file()
    elif name.parts[0] == "sweeps":
        assert (ROOT / "examples" / "sweeps" / f"{name.name}.yaml").is_file()
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
    monkeypatch.setattr(figures, "load_result", lambda name: DOCUMENT)


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
def test_how_a_number_is_written(value: float, form: str, text: str) -> None:
    assert figures.format_value(value, form) == text


SHARE = "{quantities :: b/x :: median :: .0%}"


@pytest.mark.usefixtures("document")
@pytest.mark.parametrize("wrong", ["3.2", "-1", "−1.5", "1,024", "24 %", "2e-05"])
def test_a_wrong_number_is_corrected(wrong: str) -> None:
    page = "of these\n{}, in 24\nmodels"
    sentence = f"of these {SHARE}, in {{}} models"
    assert figures.update_sentence(page.format(wrong), "it", sentence) == page.format("25 %")


@pytest.mark.usefixtures("document")
def test_neighbors_of_a_number_are_left_alone() -> None:
    page = "in 20-{}, L0H{}, 3.1. {}"
    wrong, right = page.format("24 %", 1, "7 %"), page.format("25 %", 1, "25 %")
    for sentence in (f"20-{SHARE}", f"3.1. {SHARE}"):
        wrong = figures.update_sentence(wrong, "it", sentence)
    assert wrong == right


@pytest.mark.usefixtures("document")
@pytest.mark.parametrize("page", ["it is so", "25 % of it; 25 % of it", "25 % of its"])
def test_a_sentence_that_does_not_occur_once_is_refused(page: str) -> None:
    with pytest.raises(LookupError, match=r"matches, not 1"):
        figures.update_sentence(page, "it", f"{SHARE} of it{{}}")


@pytest.mark.usefixtures("document")
def test_a_wrong_word_is_corrected() -> None:
    sentence = "it is {tables :: t :: not_so :: k :: s}"
    assert figures.update_sentence("it is `so`", "it", sentence) == "it is `not so`"


@pytest.mark.usefixtures("document")
def test_a_table_is_corrected() -> None:
    columns = "name={0} | both={v %:.1f} ({w})"
    head, right = "\n| name | both |\n", "| --- | --- |\n| d_head 1 | 3.1 (1) |\n| not so | – |\n"
    for rows in ("", "| --- | --- |\n| old | 2 |\n", right):
        assert figures.update_table(f"{head}{rows}\n", "it", "t", columns) == f"{head}{right}\n"
    with pytest.raises(LookupError, match="0 tables"):
        figures.update_table("| name |\n", "it", "t", columns)
