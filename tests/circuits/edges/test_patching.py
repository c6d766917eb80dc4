"""Prompts in pairs: ablation values of edges, and patching by position, against plain hooks."""

import dataclasses

import numpy as np
import pytest
import torch

from interp_toolkit.circuits.edges.passes.ablation_value import AblationValue, kinds_for
from interp_toolkit.circuits.edges.passes.attribution import patched_stream, patching_figure
from interp_toolkit.circuits.edges.passes.edge_ablation import EdgeAblation
from interp_toolkit.circuits.edges.passes.patched_pass import PatchedModel
from interp_toolkit.circuits.metrics.metrics import LogitDifference
from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.forward import run
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.results import jsonable

ROWS, N_POS, D_VOCAB = 6, 7, 11


@pytest.fixture
def pairs():
    rng = np.random.default_rng(0)
    tokens = torch.from_numpy(rng.integers(0, D_VOCAB, (ROWS, N_POS)))
    corrupted = tokens.clone()
    corrupted[:, 2] = (corrupted[:, 2] + 3) % D_VOCAB
    answers = torch.from_numpy(rng.integers(0, D_VOCAB, (ROWS, 1)))
    return Prompts(
        tokens,
        0,
        np.zeros(ROWS, dtype=np.int64),
        "pairs",
        answers,
        torch.full((ROWS, 1), N_POS - 1),
        (answers + 1) % D_VOCAB,
        corrupted,
    )


def judged(pairs):
    return LogitDifference(pairs)


def trial(engine, pairs, memory=2**30, kind=None):
    rows = torch.arange(ROWS)
    return EdgeAblation(engine, pairs, rows[1:], rows[:1], judged(pairs), memory, kind)


@pytest.mark.parametrize("kind", ["own", "llama", "gpt2"])
def test_patching_is_what_a_hook_does(zoo, pairs, kind):
    """Made so that the answer's advantage is above the corrupted prompt's: signs of answers."""
    model = zoo(kind)
    rows = torch.arange(ROWS)

    def worth(logits):
        return judged(pairs).from_full_logits(logits, rows)

    gains = worth(run(model, pairs.tokens)) - worth(run(model, pairs.corrupted))
    turned = (gains < 0)[:, None]
    pairs = dataclasses.replace(
        pairs,
        answers=torch.where(turned, pairs.wrong, pairs.answers),
        wrong=torch.where(turned, pairs.answers, pairs.wrong),
    )
    found = patched_stream(PatchedModel(model), pairs, judged(pairs), 2**30)
    assert found is not None
    chosen = torch.linspace(0, ROWS - 1, found.n_rows).round().long()
    clean, other = pairs.tokens[chosen], pairs.corrupted[chosen]
    some = judged(pairs.at(chosen.numpy()))

    def value(logits):
        return some.from_full_logits(logits, torch.arange(len(chosen)))

    intact, gone = value(run(model, clean)), value(run(model, other))
    whole = float((intact - gone).mean())
    for i, layer in enumerate(found.layers):
        point = hook_points(model)[f"blocks.{layer}.hook_resid_pre"]
        seen = {}
        run(model, other, [(point, lambda x, hook, seen=seen: seen.update(x=x.detach().clone()))])
        for position in range(N_POS):

            def patch(x, hook, seen=seen, position=position):
                x = x.clone()
                x[:, position] = seen["x"][:, position]
                return x

            lost = float((intact - value(run(model, clean, [(point, patch)]))).mean())
            assert found.effect[i, position] == pytest.approx(lost / whole, abs=1e-3)
    assert found.effect[0, 2] == pytest.approx(1, abs=1e-3)  # all that differs is there
    jsonable(patching_figure(found, str))


def test_memory_changes_neither_patching_nor_ablations(zoo, pairs):
    engine = PatchedModel(zoo("llama"))
    few, many = (trial(engine, pairs, memory) for memory in (140_000, 2**30))
    edges = engine.wiring.edges
    circuits = [edges[::2], edges[::3]]
    np.testing.assert_allclose(few.alone(circuits), many.alone(circuits), atol=2e-5)
    np.testing.assert_allclose(
        few.values([[e] for e in edges[:5]]), many.values([[e] for e in edges[:5]]), atol=2e-5
    )
    assert few._held is None
    assert many._held is not None


def test_what_stands_in(zoo, pairs):
    engine = PatchedModel(zoo("own"))
    rows, others = torch.tensor([4, 5]), torch.tensor([0, 1, 2])
    corrupted = AblationValue("corrupted", engine, pairs, others, 2)(rows)
    expected = engine.whole(pairs.corrupted[rows]).trace.writes
    for a, b in zip(corrupted, expected, strict=True):
        torch.testing.assert_close(a, b)
    means = AblationValue("mean", engine, pairs, others, 2)(rows)
    expected = [w.mean(0) for w in engine.whole(pairs.tokens[others]).trace.writes]
    for a, b in zip(means, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)
    zeros = AblationValue("zero", engine, pairs, others, 2)(rows)
    torch.testing.assert_close(zeros[0], means[0])
    assert all(not bool(z.any()) for z in zeros[1:])


def test_kinds_that_prompts_allow(zoo, pairs):
    assert kinds_for(pairs) == ("corrupted", "mean", "zero")
    alone = dataclasses.replace(pairs, corrupted=None)
    assert kinds_for(alone) == ("mean", "zero")
    with pytest.raises(InputError, match="no corrupted counterparts"):
        AblationValue("corrupted", PatchedModel(zoo("own")), alone, torch.arange(2), 2)
    assert patched_stream(PatchedModel(zoo("own")), alone, judged(pairs), 2**30) is None


def test_a_metric_without_a_gradient_is_refused_in_one_line(zoo, pairs, texts):
    from interp_toolkit.circuits.metrics.task import metric_for

    def right(logits, rows, whole):
        return (logits[:, -1].argmax(-1) == 3).double()

    model = zoo("own")
    asked, _ = metric_for(model, pairs, metric=right)
    rows = torch.arange(ROWS)
    cut = EdgeAblation(PatchedModel(model), pairs, rows[1:], rows[:1], asked, 2**30)
    with pytest.raises(InputError, check=texts):
        cut.attributions()
