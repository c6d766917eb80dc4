"""`--probe uand` on models: what it says of layers whose truth is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import interp_toolkit as it
from interp_toolkit.data import FeatureData
from interp_toolkit.data.composites import all_composites, composite_data
from interp_toolkit.errors import InputError
from interp_toolkit.models.config import TransformerConfig
from interp_toolkit.models.transformer import Transformer
from interp_toolkit.probes.uand.analysis import run
from interp_toolkit.report.json import to_json
from interp_toolkit.toys.superposition.layer import FeatureLayer, layer_model
from interp_toolkit.toys.superposition.uand import universal_and

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


def test_the_construction_is_computed_here_and_no_better_than_random(verdict):
    assert verdict.status == "computed"
    site = verdict.layers[0]
    assert site.counts["computed"] >= 60
    assert site.counts["before"] == 0
    assert site.epsilon["input"].worst_after_offset >= 0.25
    assert site.shuffled_read == 0
    assert site.p_better > 0.05
    assert site.intersections["named_count"] == 66
    assert not site.intersections["targeted"]
    assert "computed here" in verdict.verdict
    assert "It is built by intersections" in verdict.verdict


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
    data = inputs(8, 2)
    p = []
    for seed in range(60):
        model = as_model(random_layer(seed, 8, 24, "sparse" if seed % 2 else "normal"))
        site = run(model, data=data_twice(data), reinitialisations=9, seed=seed).layers[0]
        p.append((site.p_better, site.p_worse))
    for values in np.array(p).T:
        low = (values <= 0.1 + 1e-9).sum()
        assert low <= stats.binom.ppf(0.999, len(p), 0.1)
    assert np.array(p).mean() > 0.4


def data_twice(data, times=4):
    """Each input several times, so that pairs are on both sides of a split."""
    tokens = np.concatenate([data.token_matrix()] * times)
    features = np.concatenate([data.features] * times)
    groups = np.arange(len(tokens))
    return FeatureData(tokens, features, data.names, np.full(len(tokens), -1), groups)


def test_shuffled_labels_are_not_found(constructed):
    """Whole labels dealt out anew: nothing is computed, in any of 15 draws."""
    data = inputs()
    for seed in range(15):
        rng = np.random.default_rng(seed)
        mixed = FeatureData(
            data.tokens, data.features[rng.permutation(len(data))], data.names, data.positions
        )
        found = run(constructed, data=mixed, reinitialisations=0, seed=seed)
        assert found.layers[0].counts["computed"] == found.layers[0].counts["before"] == 0
        assert found.status in ("absent", "undecided")
        assert found.layers[0].intersections is None


def test_ands_that_the_input_has_are_present_before():
    """The stream holds the readoffs of one layer; a random one reads them."""
    pairs = [(i, j) for i in range(6) for j in range(i)]
    connections = torch.zeros(6, len(pairs), dtype=torch.float64)
    for neuron, (i, j) in enumerate(pairs):
        connections[[i, j], neuron] = 1
    layer = FeatureLayer(connections, -torch.ones(15).double(), torch.eye(6).double())
    single = layer_model(layer, torch.eye(15).double(), MOST_ON, "ands")
    cfg = single.cfg.model_dump()
    model = Transformer(TransformerConfig(**{**cfg, "n_layers": 2}))
    model.load_state_dict(
        {k: v for k, v in model.state_dict().items() if k.startswith("blocks.1")}
        | single.state_dict()
    )
    with torch.no_grad():
        model.blocks[1].attn.W_V.zero_()
        model.blocks[1].mlp.W_in[:] = torch.randn(21, 15, generator=torch.manual_seed(0)).double()
        model.blocks[1].mlp.b_in.fill_(1.0)
    data = data_twice(inputs(6, MOST_ON))
    found = run(model, data=data, hooks="blocks.1.mlp.hook_post")
    assert found.status == "before"
    assert found.layers[0].counts == {
        "computed": 0, "before": 15, "absent": 0, "undecided": 0, "unseen": 0,
    }  # fmt: skip
    assert "present before the layer" in found.verdict
    first = run(model, data=data, hooks="blocks.0.mlp.hook_post")
    assert first.status == "computed"


def test_a_trained_layer_is_held_against_its_own_re_initialisations():
    found = it.analyze("toy:uand-trained", "uand")
    site = found.layers[0]
    assert len(site.random_mean_worst) == 19
    assert site.p_better == 0.05
    assert site.mean_worst < min(site.random_mean_worst)
    assert "better than random layers of the same weights" in found.verdict
    assert site.intersections is None


def test_pairs_that_never_meet_are_counted_and_nothing_is_said_of_them(constructed):
    on = np.eye(M, dtype=bool)[np.arange(300) % M]
    found = run(constructed, data=composite_data(on, MOST_ON))
    assert found.status == "undecided"
    assert found.layers[0].counts["unseen"] == 66
    assert "nothing can be said" in found.verdict
    assert found.epsilon["layer"].worst != found.epsilon["layer"].worst  # NaN, null in JSON
    json.dumps(found.to_dict(), allow_nan=False)


def test_truth_tables_of_chosen_features():
    model = universal_and(M, 400, 0.25).as_model(MOST_ON, [(0, 1)])
    found = run(model, data=inputs(), gates=("f1,f2",), table="0110", reinitialisations=0)
    assert found.gates[0]["function"] == "0110"
    assert found.gates[0]["worst_after_offset"] < 0.3 < found.gates[0]["input"]


def test_any_hook_point_can_be_asked(constructed):
    found = run(
        constructed, data=inputs(), hooks=["resid_pre", "resid_mid", "z"], reinitialisations=2
    )
    by_hook = {site.hook: site for site in found.layers}
    assert by_hook["blocks.0.hook_resid_pre"].input is None
    assert by_hook["blocks.0.hook_resid_mid"].input == "blocks.0.hook_resid_pre"
    assert by_hook["blocks.0.hook_resid_mid"].counts["computed"] == 0
    assert len(by_hook["blocks.0.attn.hook_z"].random_mean_worst) == 2


def test_rare_features_are_left_out_and_counted(constructed):
    found = run(constructed, data=inputs(), most_features=6, reinitialisations=0)
    assert found.features["count"] == 6
    assert "6 features that are on less often" in found.features["left_out"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"gates": ("f0,f99",)}, "no feature 'f99'"),
        ({"gates": ("f0",)}, "two to 6 different"),
        ({"gates": ("f0,f0",)}, "two to 6 different"),
        ({"gates": ("f0,f1,f2",), "table": "0110"}, "another number of features"),
        ({"table": "01"}, "--gate"),
        ({"gates": ("f0,f1",), "table": "0112"}, "0s and 1s"),
        ({"level": 0.0}, "level is 0.0"),
        ({"reinitialisations": -1}, "random layers"),
        ({"hooks": "nowhere"}, "no hook matches"),
        ({"features": "embeddings", "data": None}, "give rows of tokens"),
        ({"most_features": 1}, "at least 50 and 2"),
    ],
)
def test_bad_options_are_one_clear_line(constructed, options, said):
    with pytest.raises(InputError, match=said):
        run(constructed, **{"data": inputs(), **options})


def test_few_rows_or_no_data_are_refused():
    model = as_model(random_layer(0))
    with pytest.raises(InputError, match="at least 50"):
        run(model, data=composite_data(all_composites(M, 1), MOST_ON))
    with pytest.raises(InputError, match="no data"):
        run(it.load("toy:xor-2head"))


@pytest.mark.parametrize("probe", ["uand", "skip-bigrams"])
def test_the_document_fits_the_schema(probe):
    """What the schema requires of pairs, errors and heads, checked by hand: no validator here."""
    schema = json.loads((Path(__file__).parents[3] / "docs/results.schema.json").read_text())
    toy = {"uand": "toy:uand-trained", "skip-bigrams": "toy:skip-bigrams"}[probe]
    result = to_json([it.analyze(toy, probe)])["results"][0]
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
