"""Throughput: what is timed, counted arithmetic, and figures from made rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import plotly.graph_objects as go
import pytest
import torch

from interp_studies.jobs.runner import Runner
from interp_studies.random_attention.throughput import study
from interp_studies.random_attention.throughput.timing import (
    TimingSizes,
    frozen_share,
    gains,
    products,
    rates,
    stepper,
    variant_loss,
)
from interp_toolkit.errors import InputError
from interp_toolkit.report.html import to_html

TINY = TimingSizes(2, 8, 2, 6, 11, rows=2, steps=1, rounds=3)


def test_rounds_are_taken_in_turn_and_the_first_is_not_counted() -> None:
    order: list[str] = []

    def made(name: str):
        def run() -> float:
            order.append(name)
            return float(len(order))

        return run

    found = rates({"standard": made("standard"), "mixit": made("mixit")}, 2)
    assert order == ["standard", "mixit"] * 3
    assert found == {"standard": [3.0, 5.0], "mixit": [4.0, 6.0]}
    assert gains(found, "mixit") == pytest.approx([1 / 3, 0.2])


@pytest.mark.parametrize("variant", ["standard", "frozen-qk", "mixit"])
def test_a_step_trains_what_the_variant_trains(variant: str) -> None:
    loss, parameters = variant_loss(TINY.config(variant, 0), variant, "cpu")
    parameters = list(parameters)
    before = [p.detach().clone() for p in parameters]
    tokens = TINY.tokens(0, "cpu")
    assert stepper(loss, parameters, tokens, 1, TINY.lr)() > 0
    moved = [not torch.equal(a, b) for a, b in zip(before, parameters, strict=True)]
    assert moved == [p.requires_grad for p in parameters]
    assert all(moved) == (variant != "frozen-qk")


def test_the_frozen_share_is_counted() -> None:
    """Products of one token's step by hand: forward, and twice that backward."""
    cfg = TINY.config("standard", 0)
    qkvo, scores, mlp = 4 * 8 * 8, 2 * 6 * 8, 3 * 8 * 32
    whole = 3 * (2 * (qkvo + scores + mlp) + 8 * 11)
    assert frozen_share(cfg) == pytest.approx(2 * (2 * 8 * 8) / whole)
    assert products(cfg) == whole / 3
    assert products(cfg, "mixed") == whole / 3 - 2 * (2 * 8 * 8 + 6 * 8)  # no queries, keys, scores
    assert products(cfg, "none") == 2 * mlp + 8 * 11


def test_study_from_made_rates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def made(
        sizes: TimingSizes, seed: int, device: str, variants: Sequence[str]
    ) -> dict[str, list[float]]:
        return {
            "standard": [10.0, 20.0, 30.0],
            "frozen-qk": [11.0, 22.0 + seed, 33.0],
            "mixit": [9.0, 30.0, 31.0 - seed],
        }

    monkeypatch.setattr(study, "variant_rates", made)
    result = study.THROUGHPUT.run("small", 3, Runner(tmp_path, workers=1))
    frozen, mixit = result.claims
    assert frozen.value == pytest.approx(0.1)  # rounds' medians: 10 %, whatever the second does
    assert mixit.value == pytest.approx((1 / 30 + 0.0 - 1 / 30) / 3, abs=1e-12)
    assert (frozen.judgement, mixit.judgement) == ("undecided", "undecided")
    assert frozen.high == float("inf")  # seeds that do not differ say nothing of how they do
    assert "frozen-qk trains +10.0 %" in result.verdict
    assert all(q.reached is None for q in result.quantities)
    paper = study.THROUGHPUT.run("paper", 3, Runner(workers=1))
    assert [q.reached for q in paper.quantities[:2]] == [False, False]


def test_study_end_to_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(study.PRESETS, "small", TINY)
    result = study.THROUGHPUT.run("small", 2, Runner(tmp_path, workers=1))
    assert [one["seed"] for one in result.jobs.values()] == [0, 1]
    assert "CPU thread" in result.verdict
    [figure] = result.figures()
    go.Figure({"data": list(figure.data), "layout": dict(figure.layout)})
    assert "Every repeat" in to_html([result])


def test_more_repeats_go_on_from_fewer_and_other_sizes_do_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(study.PRESETS, "small", TINY)
    one = study.THROUGHPUT.run("small", 1, Runner(tmp_path, workers=2))
    two = study.THROUGHPUT.run("small", 2, Runner(tmp_path, workers=2, resume=True))
    assert two.jobs["repeat-0"] == one.jobs["repeat-0"]
    assert list(two.jobs) == ["repeat-0", "repeat-1"]
    monkeypatch.setitem(study.PRESETS, "small", replace(TINY, rows=3))
    with pytest.raises(InputError, match="made with rows=2, not 3"):
        study.THROUGHPUT.run("small", 2, Runner(tmp_path, workers=2, resume=True))
