"""ANDs of ANDs: a stacked circuit's second layer, and names of what is found."""

from __future__ import annotations

import json

import numpy as np
import pytest

import interp_toolkit as it
from interp_toolkit.data.composites import composite_data, sample_about
from interp_toolkit.probes.uand.gates import and_name
from interp_toolkit.toys.superposition.constructions.stacked import stacked_circuit
from interp_toolkit.toys.superposition.layers.gates import BooleanFunction

FEATURES, MOST_ON = 20, 5


@pytest.fixture(scope="module")
def circuit():
    """Ten gates of pairs, five gates of those, an axis for each: nothing is in superposition."""
    plan = [[BooleanFunction("0001", (i, i + 1)) for i in range(0, n, 2)] for n in (FEATURES, 10)]
    return stacked_circuit(plan, FEATURES, 400, 6, [None, None])


@pytest.fixture(scope="module")
def found(circuit):
    rng = np.random.default_rng(0)
    on = sample_about(8_000, circuit.supports(), FEATURES, MOST_ON, rng)
    data = composite_data(on, MOST_ON)
    return it.analyze(circuit.as_model(MOST_ON), "uand", data=data, reinitialisations=1)


def names(functions, inputs):
    return {and_name(*(inputs[i] for i in f.features)) for f in functions}


def test_the_second_layer_computes_the_circuits_ands_of_ands(circuit, found):
    features = [f"f{i}" for i in range(FEATURES)]
    first = [and_name(*(features[i] for i in f.features)) for f in circuit.circuit[0]]
    [deeper] = found.composed
    assert (deeper.depth, deeper.site.hook) == (2, "blocks.1.mlp.hook_post")
    assert set(first) <= set(deeper.features)
    wanted = names(circuit.circuit[1], first)
    assert len(wanted & set(deeper.computed)) >= 4
    assert len(wanted) == 5
    assert deeper.site.counts["computed"] == len(deeper.computed)
    assert deeper.site.shuffled_read == 0
    assert len(deeper.site.random_mean_worst) == 1
    assert "4 of 15" in found.verdict
    assert [table.title for table in found.tables()][1] == "ANDs of ANDs"
    json.dumps(found.to_dict(), allow_nan=False)


def test_nothing_is_said_of_pairs_the_first_layer_does_not_compute(found):
    [deeper] = found.composed
    assert len(deeper.features) == found.layers[0].counts["computed"]
    assert set(deeper.computed) <= {
        and_name(a, b) for i, a in enumerate(deeper.features) for b in deeper.features[i + 1 :]
    }


def test_the_rarest_ands_are_left_out(circuit, monkeypatch):
    rng = np.random.default_rng(1)
    on = sample_about(2_000, circuit.supports(), FEATURES, MOST_ON, rng)
    model, data = circuit.as_model(MOST_ON), composite_data(on, MOST_ON)
    monkeypatch.setattr("interp_toolkit.probes.uand.analysis.MOST_ANDS", 3)
    found = it.analyze(model, "uand", data=data, reinitialisations=0)
    assert [len(c.features) for c in found.composed] == [3]


def test_names_of_nested_ands():
    assert and_name("a", "b") == "a & b"
    assert and_name("a & b", "c") == "(a & b) & c"
    assert and_name("(a & b) & c", "d & e") == "((a & b) & c) & (d & e)"
