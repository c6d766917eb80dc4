"""How often Python would wait for a GPU, per batch of prompts, counted on the CPU."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from synchronizations import counted

from interp_toolkit.circuits import repeated_prompts, score_heads
from interp_toolkit.circuits.heads import patterns
from interp_toolkit.circuits.heads.attention_knockout import WAYS, Knockout, KnockoutRunner
from interp_toolkit.circuits.heads.controls import targets_of
from interp_toolkit.circuits.heads.detectors import as_detector
from interp_toolkit.circuits.metrics.task import task_of
from interp_toolkit.models import TransformerConfig
from interp_toolkit.models.model import Head
from interp_toolkit.models.running.forward import run
from interp_toolkit.models.transformer.transformer import Transformer

MOST_PER_BATCH = 3
DETECTORS = ["induction", "previous-token", "duplicate-token", "first-token", "k-hop"]


def model_of(n_layers: int, n_heads: int = 4) -> Transformer:
    sizes = {"d_model": 16, "n_heads": n_heads, "d_head": 4, "n_ctx": 32, "d_vocab": 60}
    return Transformer(
        TransformerConfig(
            n_layers=n_layers, **sizes, d_mlp=32, act_fn="gelu", normalization_type="LN", seed=0
        )
    )


def waits(model, tokens, monkeypatch, size: int) -> tuple[int, int]:
    """Number of waits, and of batches of this size."""
    batches: list[int] = []

    def counting(*args, **options):
        batches.append(1)
        return run(*args, **options)

    monkeypatch.setattr(patterns, "rows_that_fit", lambda *_: size)
    monkeypatch.setattr(patterns, "run", counting)
    with counted() as counts:
        score_heads(model, tokens, DETECTORS)
    return sum(counts.values()), len(batches)


@pytest.mark.parametrize("n_layers", [2, 6])
def test_five_detectors_wait_a_few_times_per_batch(monkeypatch, n_layers) -> None:
    """However many layers, heads and prompts there are."""
    model = model_of(n_layers)
    tokens = repeated_prompts(model, rows=16, n_pos=24).tokens
    (few, n_few), (many, n_many) = (waits(model, tokens, monkeypatch, n) for n in (16, 4))
    assert n_many > n_few
    assert 0 < (many - few) / (n_many - n_few) <= MOST_PER_BATCH


def test_more_prompts_heads_and_layers_in_a_batch_wait_no_more_often(monkeypatch) -> None:
    counts = set()
    for n_layers, n_heads, rows in ((2, 4, 8), (5, 8, 16)):
        model = model_of(n_layers, n_heads)
        tokens = repeated_prompts(model, rows=rows, n_pos=24).tokens
        counts.add(waits(model, tokens, monkeypatch, rows))
    assert len(counts) == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rows", [4, 16])
def test_a_knockout_waits_a_few_times_per_batch(way, rows) -> None:
    """However many prompts are in it; prompts repeat, and their loss is that on repeated tokens."""
    model = model_of(3)
    prompts = repeated_prompts(model, rows=16, n_pos=24)
    task, _ = task_of(model, prompts)
    relation = partial(targets_of, as_detector("induction"), prompts, causal=True)
    runner = KnockoutRunner(model, task, {"induction": relation})
    runner.check_task()
    runner.check([(1, 1)])
    knockout = Knockout(frozenset([Head(1, 1), Head(2, 0)]), "induction", way)
    runner.readings([knockout], task.rows[:rows])  # sums over prompts are stored
    with counted() as counts:
        runner.readings([knockout], task.rows[:rows])
    assert 0 < sum(counts.values()) <= MOST_PER_BATCH


def test_waits_are_counted() -> None:
    x = torch.arange(4.0)
    with counted() as counts:
        bool(x.sum() > 0)
        x.nonzero()
        x[x > 1]
        x.cpu()
        x.tolist()
    assert counts == {
        "aten._local_scalar_dense": 1,
        "aten.nonzero": 1,
        "boolean mask": 1,
        "cpu": 1,
        "tolist": 1,
    }
