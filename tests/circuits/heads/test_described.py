"""What heads attend to, on patterns that are set by hand."""

import numpy as np
import pytest
import torch

from interp_toolkit.circuits.heads import described as module
from interp_toolkit.circuits.heads.described import ROWS, Descriptions
from interp_toolkit.circuits.heads.detectors import as_detector
from interp_toolkit.circuits.heads.scores import detect
from interp_toolkit.circuits.metrics.prompts import Prompts, repeated_prompts
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.hand_set.induction import induction

N_POS, D_VOCAB, SEPARATOR = 8, 10, 9


def model_of(patterns):
    """A model with these mixing patterns for heads, whatever the input."""
    cfg = TransformerConfig(
        n_layers=1,
        d_model=8,
        n_ctx=N_POS,
        d_head=4,
        n_heads=len(patterns),
        d_vocab=D_VOCAB,
        attn_only=True,
    )
    model = Transformer(cfg)
    stacked = torch.stack([torch.from_numpy(p).float() for p in patterns])
    point = model.blocks[0].attn.hook_pattern
    point.add_hook(lambda value, hook: stacked.expand(len(value), -1, -1, -1), is_permanent=True)
    return model


def rows():
    tokens = torch.randint(SEPARATOR, (16, N_POS), generator=torch.Generator().manual_seed(0))
    tokens[:, 4] = SEPARATOR
    return Prompts(tokens, 0, np.zeros(16, int), "rows")


def mixed(*parts):
    """Shares of the attention at these offsets or places; what is left over is uniform."""
    pattern = np.zeros((N_POS, N_POS))
    for query in range(N_POS):
        left = 1.0
        for share, key in parts:
            at = key(query)
            if 0 <= at <= query:
                pattern[query, at] += share
                left -= share
        pattern[query, : query + 1] += left / (query + 1)
    return pattern


def test_each_relation_is_told_with_its_share(texts):
    patterns = [
        mixed((0.9, lambda q: q - 1)),
        mixed((0.9, lambda q: q - 2)),
        mixed((0.95, lambda q: 4)),
        mixed((0.5, lambda q: 0), (0.4, lambda q: q - 1)),
        mixed(),
        mixed((0.95, lambda q: q)),
    ]
    detectors = [as_detector(n) for n in ("previous-token", "first-token")]
    found = Descriptions(model_of(patterns), rows(), detectors, causal=True).of_all()
    names = [[share.relation for share in head.shares] for head in found]
    assert names[0] == ["previous-token"]
    assert names[1][0] == "2 back"
    assert names[2][0] == "position 4"
    assert set(names[3][:2]) == {"first-token", "previous-token"}
    assert names[4] == []
    assert names[5] == ["itself"]
    texts(found[4].phrase())
    for head in found:
        if head.shares:
            total = sum(share.share for share in head.shares) + head.rest
            assert total == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("memory", [None, "300kB"])
def test_heads_are_described_alike_in_the_pass_that_scores_them(memory):
    """Of more prompts than are described, and where fewer run at once than are."""
    model, names = induction(d_vocab=20, n_ctx=24), ("induction", "previous-token")
    prompts = repeated_prompts(model, rows=ROWS + 8, n_pos=24)
    chosen = [as_detector(name) for name in names]
    described = Descriptions(model, prompts, chosen, causal=True)
    detect(model, None, names, made=prompts, look=described.look, memory=memory)
    alone = Descriptions(model, prompts, chosen, causal=True).of_all()
    assert described.of_all() == alone
    assert len(alone) == 4


def test_long_prompts_are_described_by_some_of_their_queries(monkeypatch):
    model = induction(d_vocab=8, n_ctx=420)
    prompts = repeated_prompts(model, rows=2, n_pos=420)
    detectors = [as_detector("induction"), as_detector("previous-token")]
    some = Descriptions(model, prompts, detectors, causal=True)
    assert len(range(420)[some.queries]) * 2 * 420 <= module.MOST_PAIRS
    few = some.of_all()
    monkeypatch.setattr(module, "MOST_PAIRS", 2 * 420**2)
    every = Descriptions(model, prompts, detectors, causal=True)
    assert len(range(420)[every.queries]) == 420
    for own, other in zip(few, every.of_all(), strict=True):
        assert [e.relation for e in own.shares] == [e.relation for e in other.shares]
        for part, whole in zip(own.shares, other.shares, strict=True):
            assert part.share == pytest.approx(whole.share, abs=0.1)


@pytest.mark.parametrize("n_pos", [32, 40])
def test_of_equal_patterns_the_detectors_is_named(n_pos):
    """Whatever a matrix product makes of equal rows: "1 back" holds the same keys."""
    model = induction(n_ctx=n_pos)
    prompts = repeated_prompts(model, rows=8, n_pos=n_pos)
    detectors = [as_detector(name) for name in ("induction", "previous-token", "duplicate-token")]
    rng = np.random.default_rng(0)
    for _ in range(50):
        scores = rng.normal(size=(8, 1, n_pos, n_pos)) + 6 * np.eye(n_pos, k=-1)
        scores[..., ~np.tri(n_pos, dtype=bool)] = -np.inf
        descriptions = Descriptions(model, prompts, detectors, causal=True)
        descriptions.look(torch.from_numpy(scores).softmax(-1), 0)
        assert "1 back" not in {s.relation for s in descriptions.of_all()[0].shares}
