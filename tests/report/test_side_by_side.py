"""Several models in one report."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import Any

import pytest
from rich.console import Console

from interp_toolkit.finding import column
from interp_toolkit.report.console import render
from interp_toolkit.report.format import figures, model_names, numbered, tables
from interp_toolkit.report.html import to_html
from interp_toolkit.results import Evidence, Result


@dataclass(frozen=True)
class Counted(Evidence):
    found: int = column("significant heads", default=0)
    share: float = 0.0
    share_low: float = 0.0
    share_high: float = 0.0
    level: float = 0.05
    said: str = "words"


def of(result: Result, name: str, path: str | None = None, **evidence: Any) -> Result:
    model = {**result.provenance.model, "name": name, "path": path}
    return replace(
        result,
        provenance=replace(result.provenance, model=model),
        evidence=Counted("detected", **evidence),
    )


def test_a_row_a_model_and_only_numbers_that_differ(separable: Result) -> None:
    results = [of(separable, "a", found=1, share=0.5), of(separable, "b", found=2, share=0.5)]
    [table] = tables(results, model_names(results))
    assert table.columns == ["model", "status", "significant heads"]
    assert table.rows == [["a", "detected", 1], ["b", "detected", 2]]
    assert tables(results[:1], ["a"]) == []
    assert tables(results[:1] * 2, ["a", "a"]) == []  # one model twice


def test_models_of_one_name_are_told_apart(separable: Result) -> None:
    one = of(separable, "model.pt", "/x/first/model.pt")
    two = of(separable, "model.pt", "/x/second/model.pt")
    assert model_names([one, two, one]) == ["first/model.pt", "second/model.pt", "first/model.pt"]
    live = [of(separable, "Transformer", found=n) for n in (1, 2)]
    models = [{**result.provenance.model, "n": n} for n, result in enumerate(live)]
    live = [
        replace(result, provenance=replace(result.provenance, model=model))
        for result, model in zip(live, models, strict=True)
    ]
    assert model_names(live) == ["Transformer", "Transformer (2)"]
    text = to_html([one, two])
    assert "first/model.pt, second/model.pt" in text
    assert "Side by side" in text


@pytest.mark.parametrize(
    ("names", "runs"),
    [
        (["s-1.pt", "s-10.pt", "s-5.pt"], {"s-….pt": {1: 0, 5: 2, 10: 1}}),
        (
            [f"seed-{seed}-step-{step:03}.pt" for seed in (0, 1) for step in (0, 10, 100)],
            {
                "seed-0-step-….pt": {0: 0, 10: 1, 100: 2},
                "seed-1-step-….pt": {0: 3, 10: 4, 100: 5},
            },
        ),
        (["s-1.pt", "s-2.pt"], None),  # two make no line
        (["s-1.pt", "t-5.pt", "s-10.pt"], None),
        (["s-1.pt", "s-01.pt", "s-10.pt"], None),
        (["lr-0.1", "lr-0.2", "lr-0.25"], None),
        (["lr-0.1.pt", "lr-0.2.pt", "lr-0.25.pt"], None),
        (["a", "b", "c"], None),
    ],
)
def test_numbers_in_names(names: list[str], runs: dict[str, dict[int, int]] | None) -> None:
    assert numbered(names) == runs


def test_an_interval_is_shown_although_one_end_is_the_same(separable: Result) -> None:
    results = [
        of(separable, name, share=x, share_high=x + 0.1) for name, x in (("a", 0.1), ("b", 0.2))
    ]
    [table] = tables(results, model_names(results))
    assert table.columns == ["model", "status", "share", "share low", "share high"]
    assert table.rows[0] == ["a", "detected", 0.1, 0.0, 0.2]


def test_checkpoints_along_a_training_get_a_figure(separable: Result) -> None:
    results = [
        of(separable, f"step-{n}.pt", found=n, share=n / 9, share_low=n / 10, share_high=n / 8)
        for n in (1, 2, 4)
    ]
    [figure] = figures(results, model_names(results))
    drawn = figure.to_plotly()
    assert [list(trace.y) for trace in drawn.data if trace.mode == "lines+markers"] == [
        [1, 2, 4],
        [1 / 9, 2 / 9, 4 / 9],
    ]
    assert len(drawn.data) == 3  # the share's interval too
    assert figures(results[:2], model_names(results[:2])) == []


def test_the_terminal_names_each_model(separable: Result) -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    render([of(separable, "a", found=1), of(separable, "b", found=2)], console, quiet=True)
    lines = console.export_text().splitlines()
    assert [line.split(":")[0] for line in lines] == ["xor of a", "xor of b"]
