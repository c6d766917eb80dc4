"""`--probe uand` on models: what it says of layers whose truth is known."""

from __future__ import annotations

import dataclasses
import json
import math
from math import comb
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from scipy import stats

import interp_toolkit as it
from interp_toolkit.data import FeatureData
from interp_toolkit.data.composites import all_composites, composite_data, task_data
from interp_toolkit.errors import InputError
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.features.samples import labelled_samples, read_at
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.models.weights.parts import neurons
from interp_toolkit.models.weights.view import weights
from interp_toolkit.probes import UANDReadout
from interp_toolkit.probes.uand import site
from interp_toolkit.probes.uand.analysis import UAND
from interp_toolkit.probes.uand.result import _random, evidence_of, headline
from interp_toolkit.probes.uand.site import (
    LayerReader,
    Split,
    in_random_order,
    reading,
    shuffled,
    split,
)
from interp_toolkit.report.html import to_json
from interp_toolkit.toys.hand_set.untrained import random_model
from interp_toolkit.toys.superposition.constructions.uand import universal_and
from interp_toolkit.toys.superposition.layers.layer import FeatureLayer, layer_model

M, MOST_ON, NEURONS = 12, 4, 300


def inputs(n_features=M, most_on=MOST_ON, seed=0):
    on = all_composites(n_features, most_on)
    return composite_data(on[np.random.default_rng(seed).permutation(len(on))], most_on)


def random_layer(seed, n_features=M, n_neurons=40, kind="normal"):
    generator = torch.Generator().manual_seed(seed)
    shape = (n_features, n_neurons)
    weights = torch.randn(shape, generator=generator, dtype=torch.float64)
    if kind == "sparse":
        weights *= torch.rand(shape, generator=generator) < 0.4
    bias = 0.3 * torch.randn(n_neurons, generator=generator, dtype=torch.float64)
    return FeatureLayer(weights, bias, torch.eye(n_features, dtype=torch.float64))


def as_model(layer):
    return layer_model(layer, torch.ones(1, layer.W_in.shape[1]).double(), MOST_ON, "layer")


@pytest.fixture(scope="module")
def constructed():
    return universal_and(M, NEURONS, 0.25).as_model(MOST_ON, [(0, 1)])


@pytest.fixture(scope="module")
def verdict(constructed):
    return it.analyze(constructed, "uand", data=inputs(), gates=("f0,f1", "f2,f3,f4"))


def test_the_construction_is_read_here_and_no_better_than_random(verdict, texts):
    assert verdict.status == "uninformative"
    texts(verdict.evidence.reason, numbers=False)
    site = verdict.layers[0]
    assert site.counts["computed"] >= 60
    assert site.counts["before"] == 0
    assert site.epsilon["input"].worst_after_offset >= 0.25
    assert site.shuffled_read == 0
    assert site.p_better > 0.05
    assert site.intersections["named_count"] == 66
    assert not site.intersections["targeted"]
    texts(verdict.headline, numbers=False)
    texts(verdict.verdict, numbers=False)


def test_plotly_takes_its_figures(verdict):
    titles = ["Errors of all pairs", "Pairs of features", "Against random layers"]
    assert [figure.title for figure in verdict.figures()] == titles
    for figure in verdict.figures():
        go.Figure(data=list(figure.data), layout=dict(figure.layout))


def test_its_json_has_the_documented_form(verdict):
    data = verdict.to_dict()
    json.dumps(data, allow_nan=False)
    assert set(data["pairs"]) >= {"best", "worst", "counts"}
    assert sum(data["pairs"]["counts"].values()) == 66
    assert set(data["epsilon"]) == {"layer", "input", "reinitialised", "shuffled"}
    for values in data["epsilon"].values():
        assert set(values) == {"worst", "q99", "rms", "worst_after_offset"}
    best = data["pairs"]["best"]
    errors = [pair["worst_after_offset"] for pair in best]
    assert errors == sorted(errors)
    frame = verdict.to_frame()
    assert len(frame) == 66
    assert frame["worst_after_offset"].min() == pytest.approx(errors[0])
    assert data["pairs"]["worst"][0]["worst_after_offset"] == pytest.approx(
        frame["worst_after_offset"].max()
    )
    assert [gate["gate"] for gate in data["gates"]] == ["f0, f1", "f2, f3, f4"]
    row = frame[(frame["first"] == "f0") & (frame["second"] == "f1")].iloc[0]
    assert data["gates"][0]["worst"] == pytest.approx(row["worst"], rel=1e-3)


def test_the_same_seed_gives_the_same_bits(constructed, verdict):
    again = it.analyze(constructed, "uand", data=inputs(), gates=("f0,f1", "f2,f3,f4"))
    assert again.to_dict() == verdict.to_dict()


def hidden_among_random(seed, place=1, n_layers=3):
    """A model of random layers that write little, one of which reads the features by intersections.

    Every layer sees the features and what the layers before it wrote.
    """
    built = universal_and(M, NEURONS, 0.25, seed=seed)
    single = built.as_model(MOST_ON, [(0, 1)])
    cfg = single.cfg.model_dump()
    model = Transformer(TransformerConfig(**{**cfg, "n_layers": n_layers, "d_model": M + 8}))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.W_E[:, :M] = single.embed.W_E[:, :M]
        model.blocks[0].attn.W_V[:, :M] = single.blocks[0].attn.W_V[:, :M]
        model.blocks[0].attn.W_O[:, :, :M] = single.blocks[0].attn.W_O[:, :, :M]
        for number, block in enumerate(model.blocks):
            draw = torch.randn(block.mlp.W_in.shape, generator=generator).double()
            block.mlp.W_in[:] = draw / 2
            block.mlp.b_in[:] = torch.randn(NEURONS, generator=generator).double() / 2
            block.mlp.W_out[:, M:] = torch.randn(NEURONS, 8, generator=generator).double() / 50
            if number == place:
                block.mlp.W_in[:M] = built.layer.W_in
                block.mlp.W_in[M:] = 0
                block.mlp.b_in[:] = built.layer.b_in
        model.unembed.W_U[:] = torch.randn(model.unembed.W_U.shape, generator=generator)
    return model, built


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_constructed_layer_is_named_among_random_ones(place):
    model, built = hidden_among_random(seed=place, place=place)
    found = it.analyze(model, "uand", data=inputs(), reinitialisations=0)
    built_here = [site.intersections is not None for site in found.layers]
    assert built_here == [layer == place for layer in range(3)]
    sets = found.layers[place].intersections
    shared = (built.connections.double() @ built.connections.double().T).triu(1) > 0
    assert sets["named_count"] == int(shared.sum())
    assert sets["separated"] > 33


def test_random_layers_are_no_better_than_random_at_the_stated_rate():
    """p-values of random layers, normal and sparse: at most uniform on 0.1, 0.2, ..., 1."""
    data = inputs(8, 3)
    p = []
    for seed in range(60):
        model = as_model(random_layer(seed, 8, 24, "sparse" if seed % 2 else "normal"))
        site = UAND(model, data=data, reinitialisations=9, seed=seed).layers[0]
        p.append((site.p_better, site.p_worse))
    for values in np.array(p).T:
        low = (values <= 0.1 + 1e-9).sum()
        assert low <= stats.binom.ppf(0.999, len(p), 0.1)
    assert np.array(p).mean() > 0.4


def test_effort_sets_how_many_random_layers_there_are(constructed):
    quick = UAND(constructed, effort="quick")
    assert quick.layers[0].random_mean_worst == []
    assert quick.status != "better_than_random"
    assert quick.provenance.settings["reinitialisations"] == 0
    assert UAND(constructed, effort="quick", reinitialisations=1).layers[0].random_mean_worst
    settings = [UAND(constructed, effort=e).provenance.settings for e in ("standard", "thorough")]
    assert [s["reinitialisations"] for s in settings] == [19, 99]


def test_shuffled_labels_are_not_found(constructed):
    """Whole labels dealt out anew: nothing is computed, in any of 15 draws."""
    data = inputs()
    for seed in range(15):
        rng = np.random.default_rng(seed)
        mixed = FeatureData(
            data.tokens, data.features[rng.permutation(len(data))], data.names, data.positions
        )
        found = UAND(constructed, data=mixed, reinitialisations=0, seed=seed)
        assert found.layers[0].counts["computed"] == found.layers[0].counts["before"] == 0
        assert found.status in ("absent", "undecided")
        assert found.layers[0].intersections is None


def test_ands_that_the_input_has_are_present_before(texts):
    """The stream holds the readouts of one layer; a random one reads them."""
    pairs = [(i, j) for i in range(9) for j in range(i)]
    connections = torch.zeros(9, len(pairs), dtype=torch.float64)
    for neuron, (i, j) in enumerate(pairs):
        connections[[i, j], neuron] = 1
    layer = FeatureLayer(connections, -torch.ones(36).double(), torch.eye(9).double())
    single = layer_model(layer, torch.eye(36).double(), MOST_ON, "ands")
    cfg = single.cfg.model_dump()
    model = Transformer(TransformerConfig(**{**cfg, "n_layers": 2}))
    model.load_state_dict(
        {k: v for k, v in model.state_dict().items() if k.startswith("blocks.1")}
        | single.state_dict()
    )
    with torch.no_grad():
        model.blocks[1].attn.W_V.zero_()
        model.blocks[1].mlp.W_in[:] = torch.randn(45, 36, generator=torch.manual_seed(0)).double()
        model.blocks[1].mlp.b_in.fill_(1.0)
    data = inputs(9, MOST_ON)
    found = UAND(model, data=data, hooks="blocks.1.mlp.hook_post")
    assert found.status == "before"
    assert found.layers[0].counts == {
        "computed": 0, "before": 36, "absent": 0, "undecided": 0, "unseen": 0,
    }  # fmt: skip
    texts(found.headline, numbers=False)
    first = UAND(model, data=data, hooks="blocks.0.mlp.hook_post")
    assert first.layers[0].counts["computed"] > 0


def layer_on(X, on, W, b, groups=None, **options):
    """The analysis of act(X W + b), X the embeddings of as many tokens as rows."""
    n = len(X)
    single = FeatureLayer(torch.as_tensor(W), torch.as_tensor(b), torch.as_tensor(X))
    model = layer_model(single, torch.ones(1, W.shape[1]).double(), 1, "layer")
    tokens = np.stack([np.arange(n), np.full(n, n + 1)], axis=1)
    names = tuple(f"f{k}" for k in range(on.shape[1]))
    return UAND(model, data=FeatureData(tokens, on, names, np.ones(n, int), groups), **options)


@pytest.mark.parametrize("big", [1.0, 300.0])
def test_a_linear_layer_computes_nothing(big):
    """Its input holds every AND, beside a coordinate that may be much larger; no neuron clips."""
    rng = np.random.default_rng(0)
    on = rng.random((1500, 6)) < 0.3
    ands = np.stack([on[:, i] & on[:, j] for i in range(6) for j in range(i)], axis=1)
    X = np.column_stack([on, ands, big * rng.normal(size=1500)])
    W = rng.normal(size=(22, 60))
    W[-1] = 0
    found = layer_on(X, on, W, np.full(60, 50.0), reinitialisations=0)
    assert found.status == "before"
    assert found.layers[0].counts["before"] == 15


def test_identity_weights_are_not_called_intersections():
    on = np.random.default_rng(0).random((600, 8)) < 0.2
    found = layer_on(on.astype(float), on, np.eye(8), -np.ones(8), reinitialisations=1)
    assert found.layers[0].intersections is None
    assert found.layers[0].counts["computed"] == 0


def test_a_construction_on_rows_that_never_join_is_named_without_errors():
    on = np.eye(9, dtype=bool)[np.random.default_rng(0).integers(0, 9, 400)][:, :8]
    W = (np.random.default_rng(1).random((8, 60)) < 0.3).astype(float)
    found = layer_on(on.astype(float), on, W, -np.ones(60), reinitialisations=0)
    assert found.headline.startswith("Undecided at ")
    assert found.layers[0].intersections["worst"] is None


def test_documents_of_repeated_rows_are_read_as_few():
    """Labels and activations that repeat within a document: nothing, if documents are given."""
    rng = np.random.default_rng(0)
    base, labels = rng.normal(size=(60, 24)), rng.random((60, 6)) < 0.3
    rows = np.repeat(np.arange(60), 10)
    X = base[rows] + 0.02 * rng.normal(size=(600, 24))
    W = rng.normal(size=(24, 200))
    alone = layer_on(X, labels[rows], W, np.zeros(200), reinitialisations=0)
    told = layer_on(X, labels[rows], W, np.zeros(200), groups=rows, reinitialisations=0)
    assert alone.layers[0].counts["computed"] > 5  # they look independent
    assert told.layers[0].counts["computed"] == 0


def test_rows_of_the_same_tokens_are_one_group(constructed):
    data = inputs()
    twice = FeatureData(
        np.concatenate([data.token_matrix()] * 2), np.concatenate([data.features] * 2), data.names
    )
    samples = labelled_samples(constructed, twice)
    half = len(data)
    np.testing.assert_array_equal(samples.groups[:half], samples.groups[half:])
    assert len(np.unique(samples.groups)) == half
    rows = split(samples, 0)
    assert not set(samples.groups[rows.fitted]) & set(samples.groups[rows.held_out])


def test_one_large_document_is_fitted_on_and_not_held_out():
    on = np.random.default_rng(0).random((700, 5)) < 0.3
    groups = np.concatenate([np.zeros(300, int), 1 + np.arange(400) // 20])
    W = np.random.default_rng(1).normal(size=(5, 40))
    found = layer_on(on.astype(float), on, W, -np.ones(40), groups=groups, reinitialisations=1)
    assert found.rows["held_out"] < 300


def test_pairs_that_never_come_apart_are_undecided():
    """f1 is on whenever f0 is: their AND is f0, which any layer shows."""
    on = np.random.default_rng(0).random((900, 5)) < 0.4
    on[:, 1] |= on[:, 0]
    W = np.random.default_rng(1).normal(size=(5, 60))
    found = layer_on(on.astype(float), on, W, np.ones(60), reinitialisations=0)
    frame = found.to_frame()
    pair = frame[(frame["first"] == "f0") & (frame["second"] == "f1")].iloc[0]
    assert pair["worst_after_offset"] < 0.25
    assert pair["claim"] == "undecided"


def test_quantiles_are_of_the_pairs_that_were_seen():
    rng = np.random.default_rng(0)
    on = rng.random((400, 60)) < 0.03
    X = np.maximum(on @ (rng.random((60, 100)) < 0.2) - 1.0, 0)
    readout = UANDReadout().fit(X[:300], on[:300])
    every = readout.errors(X[300:], on[300:])
    seen = readout.errors(X[300:], on[300:], every.pairs[every.observed])
    assert 0 < every.observed.sum() < len(every.pairs) / 2
    assert every.epsilon() == seen.epsilon()
    assert every.q99_by_class == seen.q99_by_class
    scores = readout.score(X[300:], every.pairs[every.observed].tolist())
    truth = np.stack([on[300:, i] & on[300:, j] for i, j in every.pairs[every.observed]], axis=1)
    assert seen.epsilon().q99 == pytest.approx(np.quantile(np.abs(scores - truth), 0.99), rel=0.03)


def test_what_attention_may_have_brought_is_said(texts):
    found = UAND(it.load("toy:uand"), hooks="resid_post", reinitialisations=0)
    texts(found.verdict, numbers=False)
    assert found.evidence.behind_attention


def copying_model(X, turn, kind):
    """A model whose layer copies the first ten coordinates of `X @ turn`, all else dead."""
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    n, d = X.shape
    config = {"n_layers": 1, "d_model": d, "n_ctx": 2, "d_head": d, "n_heads": 1, "d_mlp": d}
    fixed = {"act_fn": "relu", "normalization_type": None, "device": "cpu", "seed": 0}
    model = HookedTransformer(HookedTransformerConfig(**config, **fixed, d_vocab=n + 1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.W_E[:n] = torch.from_numpy(X)
        model.unembed.W_U[:] = 0.01 * torch.randn(d, n + 1, generator=torch.manual_seed(0))
        block = model.blocks[0]
        if kind == "neurons":
            block.mlp.W_in.copy_(torch.from_numpy(turn))
            block.mlp.b_in[:] = -100
            block.mlp.b_in[:10] = 5
        else:
            block.attn.W_V[0] = torch.from_numpy(turn)
            block.attn.W_O[0, :10] = 30 * torch.eye(d)[:10]
    return model


@pytest.mark.parametrize(
    ("kind", "hook", "n", "d", "earlier"),
    [
        ("neurons", "mlp.hook_post", 400, 256, False),
        ("attention", "hook_attn_out", 400, 256, False),
        ("attention", "hook_resid_post", 500, 200, False),
        ("attention", "hook_attn_out", 600, 64, True),
        ("attention", "hook_attn_out", 300, 150, True),
    ],
)
def test_linear_copies_are_not_computed(kind, hook, n, d, earlier, has_hooked_transformer):
    """ANDs that are directions of the input, at the position read or (`earlier`) one before it."""
    if not has_hooked_transformer:
        pytest.skip("TransformerLens 4 has no HookedTransformer")
    rng = np.random.default_rng(0)
    on = rng.random((n, 4)) < 0.5
    ands = np.stack([on[:, i] & on[:, j] for i in range(4) for j in range(i + 1, 4)], axis=1)
    core = np.concatenate([on, ands], axis=1) + 0.05 * rng.normal(size=(n, 10))
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    X = np.concatenate([core, rng.normal(size=(n, d - 10))], axis=1) @ turn.T
    tokens = np.arange(n)[:, None]
    if earlier:
        tokens = np.concatenate([tokens, np.full((n, 1), n)], axis=1)
    data = FeatureData(tokens, on, tuple("abcd"))
    found = UAND(copying_model(X, turn, kind), data=data, hooks=f"blocks.0.{hook}")
    assert found.layers[0].counts["computed"] == 0
    assert found.status in ("before", "undecided")


def test_several_layers_need_more_draws(constructed, texts):
    site = UAND(constructed, data=inputs(), reinitialisations=1).layers[0]
    better = dataclasses.replace(site, p_better=0.05, p_worse=1.0, intersections=None)

    def judged(draws, p_better, n_layers, mean_worst=0.1):
        others = (0.4 + 0.01 * np.sin(np.arange(draws))).tolist()
        of = dataclasses.replace(
            better, random_mean_worst=others, p_better=p_better, mean_worst=mean_worst
        )
        found = evidence_of(of, "computed", n_layers, n_positions=0, held_out=5)
        return found.status, headline(of, "computed", found), _random(of, n_layers)

    status, first, words = judged(19, 0.05, 1)
    assert status == "computed"
    assert "are computed at" in first
    texts(words, numbers=False)
    for draws, p, n_layers in ((19, 0.05, 2), (3, 0.25, 1), (0, math.nan, 1)):
        status, first, words = judged(draws, p, n_layers)
        assert status == "undecided"
        assert "is undecided" in words
    status, first, words = judged(19, 0.05, 1, mean_worst=0.389)
    assert status == "uninformative"
    texts(first, numbers=False)
    status, first, words = judged(40, 2 / 41, 2)
    assert status == "uninformative"


def test_the_best_of_several_layers_is_held_against_more_random_ones():
    """Two layers: 40 draws at most for the one that the verdict is about, and 3 where it fails."""
    trained = it.load("toy:uand-trained")
    data = task_data(record_of(trained).task)
    hooks = ["blocks.0.mlp.hook_post", "blocks.0.hook_resid_post"]
    found = UAND(trained, data=data, hooks=hooks)
    assert found.evidence.random_layers == 40
    assert found.status == "computed"
    few = UAND(trained, data=data, hooks=hooks, reinitialisations=3)
    assert few.status == "undecided"


def test_an_untrained_layer_computes_no_more_than_others_of_its_kind():
    statuses = [
        UAND(as_model(random_layer(seed, 6, 150)), data=inputs(6), seed=seed).status
        for seed in range(12)
    ]
    assert statuses.count("computed") <= 2  # 0.6 at the level
    assert "uninformative" in statuses


def test_without_random_layers_nothing_is_computed(constructed, texts):
    alone = UAND(constructed, data=inputs(), reinitialisations=0)
    assert alone.layers[0].counts["computed"] >= 60
    assert alone.status == "undecided"
    texts(alone.verdict, numbers=False)


def test_prompts_that_differ_after_the_place_are_one_group(constructed):
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, M, (40, MOST_ON + 1))
    tokens[20:, :2] = tokens[:20, :2]
    on = rng.random((40, 2)) < 0.5
    groups = np.arange(40) % 20
    groups[1] = 0
    data = FeatureData(tokens, on, ("a", "b"), np.ones(40, int))
    codes = labelled_samples(constructed, data).groups
    assert (codes[:20] == codes[20:]).all()
    both = dataclasses.replace(data, groups=groups)
    codes = labelled_samples(constructed, both).groups
    assert (codes[:20] == codes[20:]).all()
    assert codes[0] == codes[1]


def test_random_layers_lose_what_was_learned_and_nothing_else():
    """Weights in random order on the coordinates that vary, biases among themselves."""
    model = it.load("toy:uand-trained")
    samples = labelled_samples(model, task_data(record_of(model).task))
    layer = LayerReader(model, samples, ["blocks.0.mlp.hook_post"], None)("blocks.0.mlp.hook_post")
    mlp = weights(model).mlp(0)
    varying = layer.input.std(axis=0) > 0
    assert 0 < varying.sum() < len(varying)
    again = in_random_order(mlp, varying, seed=3)
    live = torch.from_numpy(varying)
    assert torch.equal(again.W_in[~live], mlp.W_in[~live])
    for ours, theirs in ((again.W_in[live], mlp.W_in[live]), (again.b_in, mlp.b_in)):
        assert not torch.equal(ours, theirs)
        assert torch.equal(ours.flatten().sort().values, theirs.flatten().sort().values)
    neurons_again = neurons(again, torch.from_numpy(layer.input).to(again.W_in))
    np.testing.assert_allclose(layer.reinitialised(3), neurons_again.detach(), atol=1e-6)


@pytest.mark.parametrize("kind", ["RMS", "LN"])
def test_gated_layers_are_shuffled_whole_and_read_through_their_norm(kind):
    config = TransformerConfig(
        n_layers=1, d_model=8, n_ctx=4, d_head=4, n_heads=2, d_vocab=30, attn_only=False, d_mlp=12,
        act_fn="silu", gated_mlp=True, normalization_type=kind, seed=0,
        positional_embedding_type="rotary", rotary_dim=4, biases=kind == "LN",
    )  # fmt: skip
    model = Transformer(config)
    tokens = np.random.default_rng(0).integers(0, 30, (80, 4))
    on = np.random.default_rng(1).random((80, 3)) < 0.4
    samples = labelled_samples(model, FeatureData(tokens, on, ("a", "b", "c")))
    layer = LayerReader(model, samples, ["blocks.0.mlp.hook_post"], None)("blocks.0.mlp.hook_post")
    mlp = weights(model).mlp(0)
    found = neurons(mlp, torch.from_numpy(layer.input)).detach()
    np.testing.assert_allclose(found, layer.activations, atol=1e-5)
    assert layer.pre.shape == (80, 24)
    assert layer.plain_pre is None
    again = in_random_order(mlp, np.ones(8, bool), seed=0)
    assert not torch.equal(again.W_gate, mlp.W_gate)
    assert torch.equal(again.W_gate.flatten().sort().values, mlp.W_gate.flatten().sort().values)


@pytest.mark.parametrize(("memory", "passes"), [(None, 2), (26_000, 3), (8_000, 4)])
def test_layers_are_read_together_as_memory_allows(monkeypatch, memory, passes):
    """The first alone, as its size tells how many fit; each is what it is when read alone."""
    model = random_model(0, n_layers=4, d_model=8, n_heads=2, d_head=4, d_mlp=12, n_ctx=4)
    tokens = np.random.default_rng(0).integers(0, 16, (80, 4))
    samples = labelled_samples(model, FeatureData(tokens, tokens[:, :2] > 7, ("a", "b")))
    hooks = [f"blocks.{n}.mlp.hook_post" for n in range(4)]
    read = LayerReader(model, samples, hooks, memory)
    began: list[object] = []
    monkeypatch.setattr(site, "read_at", lambda *a, **k: began.append(a) or read_at(*a, **k))
    together = [read(hook) for hook in hooks]
    assert len(began) == passes
    for hook, layer in zip(hooks, together, strict=True):
        alone = LayerReader(model, samples, [hook], None)(hook)
        for part in ("activations", "input", "pre"):
            np.testing.assert_allclose(getattr(layer, part), getattr(alone, part), atol=1e-5)


def test_shuffled_labels_keep_their_documents():
    groups = np.repeat(np.arange(20), 5)
    labels = (np.random.default_rng(0).random((20, 4)) < 0.5)[groups]
    rows = Split(np.arange(80), np.arange(80, 100), labels, groups, seed=0)
    mixed = shuffled(rows)
    assert not np.array_equal(mixed, labels)
    assert all(len(np.unique(mixed[groups == g], axis=0)) == 1 for g in range(20))


def test_places_of_one_row_count_once():
    groups, labels = np.repeat(np.arange(10), 4), np.zeros((40, 2), dtype=bool)
    labels[:8] = True
    X = np.random.default_rng(0).normal(size=(40, 3)) + 5.0 * labels[:, :1]
    rows = Split(np.arange(40), np.arange(40), labels, groups, seed=0)
    found = reading(X, labels, rows, np.array([[0, 1]]))
    assert found.errors.separated[0]
    assert found.q[0] == pytest.approx(1 / comb(10, 2))


def test_a_trained_layer_is_held_against_its_own_re_initialisations(texts, analyzed):
    found = analyzed("toy:uand-trained", "uand")
    site = found.layers[0]
    assert len(site.random_mean_worst) == 19
    assert site.p_better == 0.05
    assert site.mean_worst < min(site.random_mean_worst)
    texts(found.verdict, numbers=False)
    assert site.intersections is None


def test_pairs_that_never_meet_are_counted_and_nothing_is_said_of_them(constructed):
    on = np.eye(M, dtype=bool)[np.arange(300) % M]
    found = UAND(constructed, data=composite_data(on, MOST_ON))
    assert found.status == "undecided"
    assert found.layers[0].counts["unseen"] == 66
    assert found.headline.startswith("Undecided at ")
    assert found.epsilon["layer"].worst != found.epsilon["layer"].worst  # NaN, null in JSON
    json.dumps(found.to_dict(), allow_nan=False)


def test_truth_tables_of_chosen_features():
    model = universal_and(M, 400, 0.25).as_model(MOST_ON, [(0, 1)])
    found = UAND(model, data=inputs(), gates=("f1,f2",), table="0110", reinitialisations=0)
    assert found.gates[0]["function"] == "0110"
    assert found.gates[0]["worst_after_offset"] < 0.3 < found.gates[0]["input"]


def test_a_function_that_cannot_be_read_says_why(texts):
    """With at most 3 on, one input has any three features on: no readout can be fitted to it."""
    model = universal_and(M, 400, 0.25).as_model(3, [(0, 1)])
    found = UAND(
        model, data=inputs(most_on=3), gates=("f0,f1,f2",), table="01101001", reinitialisations=0
    )
    [gate] = found.gates
    assert gate["worst"] > 1
    assert gate["fitted"]["worst"] < gate["worst"]
    assert gate["summary"] in found.verdict
    assert "weights of 10" in gate["summary"]
    assert "weight 4," in gate["summary"]
    texts(gate["summary"], numbers=False)
    columns = found.tables()[-1].columns
    assert list(columns[-2:]) == ["fitted to itself", "after offset "]


def test_any_hook_point_can_be_asked(constructed):
    found = UAND(
        constructed, data=inputs(), hooks=["resid_pre", "resid_mid", "z"], reinitialisations=2
    )
    by_hook = {site.hook: site for site in found.layers}
    assert by_hook["blocks.0.hook_resid_pre"].input is None
    assert by_hook["blocks.0.hook_resid_mid"].input == "blocks.0.hook_resid_pre"
    assert by_hook["blocks.0.hook_resid_mid"].counts["computed"] == 0
    assert len(by_hook["blocks.0.attn.hook_z"].random_mean_worst) == 2


def test_rare_features_are_left_out_and_counted(constructed, texts):
    found = UAND(constructed, data=inputs(), most_features=6, reinitialisations=0)
    assert found.features["count"] == 6
    texts(found.features["left_out"], numbers=False)


@pytest.mark.parametrize(
    "options",
    [
        {"gates": ("f0,f99",)},
        {"gates": ("f0",)},
        {"gates": ("f0,f0",)},
        {"gates": ("f0,f1,f2",), "table": "0110"},
        {"table": "01"},
        {"gates": ("f0,f1",), "table": "0112"},
        {"level": 0.0},
        {"reinitialisations": -1},
        {"hooks": "nowhere"},
        {"features": "embeddings", "data": None},
        {"most_features": 1},
    ],
)
def test_bad_options_are_one_clear_line(constructed, options, texts):
    with pytest.raises(InputError, check=texts):
        UAND(constructed, **{"data": inputs(), **options})


def test_few_rows_or_no_data_are_refused():
    model = as_model(random_layer(0))
    with pytest.raises(InputError, match="at least 50"):
        UAND(model, data=composite_data(all_composites(M, 1), MOST_ON))
    with pytest.raises(InputError, match="no data"):
        UAND(it.load("toy:xor-2head"))


@pytest.mark.parametrize(
    ("toy", "probe"),
    [("uand-trained", "uand"), ("uand-fan-in-3", "uand"), ("skip-bigrams", "skip-bigrams")],
)
def test_the_document_fits_the_schema(toy, probe):
    """What the schema requires of pairs, errors and heads, checked by hand: no validator here."""
    schema = json.loads((Path(__file__).parents[3] / "docs/results.schema.json").read_text())
    result = to_json([it.analyze(f"toy:{toy}", probe)])["results"][0]
    if toy == "uand-fan-in-3":
        higher = [layer["higher_fan_in"] for layer in result["layers"] if layer["higher_fan_in"]]
        required = schema["$defs"]["higher_fan_in"]["required"]
        assert [set(one) for one in higher] == [set(required)]
        assert set(schema["$defs"]["higher_fan_in"]["properties"]) == set(required)
    checked = _check(result, schema["$defs"]["result"], schema["$defs"])
    assert checked > 50


def _check(value, rule, definitions):
    """How many values were held against their rule: type, required, enum, items, properties."""
    rule = definitions[rule["$ref"].rpartition("/")[2]] if "$ref" in rule else rule
    kinds = {"object": dict, "array": list, "string": str, "number": (int, float), "integer": int}
    kinds |= {"null": type(None), "boolean": bool}
    named = rule.get("type", [])
    named = [named] if isinstance(named, str) else named
    assert not named or isinstance(value, tuple(kinds[name] for name in named)), (value, rule)
    assert value in rule.get("enum", [value])
    n = 1
    if isinstance(value, dict):
        assert set(rule.get("required", [])) <= value.keys()
        for key, item in value.items():
            of = rule.get("properties", {}).get(key, rule.get("additionalProperties"))
            n += _check(item, of, definitions) if isinstance(of, dict) else 0
    if isinstance(value, list) and "items" in rule:
        n += sum(_check(item, rule["items"], definitions) for item in value)
    return n
