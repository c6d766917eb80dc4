"""Many pairs in blocks: the same pairs, errors and classes as all at once, in less memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import interp_toolkit as it
from interp_toolkit.boolean_functions import after_offset
from interp_toolkit.data.composites import all_composites, composite_data
from interp_toolkit.probes.uand import analysis, site
from interp_toolkit.probes.uand.absence import LIMIT
from interp_toolkit.probes.uand.blocks import (
    ActivationProducts,
    LabelProducts,
    Labels,
    measured,
    separated_pairs,
)
from interp_toolkit.probes.uand.errors import groups_together, q_values
from interp_toolkit.probes.uand.readout import UANDReadout
from interp_toolkit.stats import benjamini_yekutieli, holm
from interp_toolkit.toys.superposition.constructions.uand import universal_and

N, FITTED = 1_500, 1_200


def drawn(m=40, d=30, rate=0.1, dense=(), seed=0):
    """Features, noisy neurons of which three hold an AND, and groups of five rows."""
    rng = np.random.default_rng(seed)
    on = rng.random((N, m)) < rate
    on[:, list(dense)] = rng.random((N, len(dense))) < 0.6
    W = (rng.random((m, d)) < 0.3).astype(np.float32)
    X = np.maximum(on.astype(np.float32) @ W - 1, 0)
    X += 0.05 * rng.normal(size=X.shape).astype(np.float32)
    for k in range(3):
        X[:, k] = on[:, 2 * k] & on[:, 2 * k + 1]
    return X, on, np.arange(N) // 5


def prepared(**changed):
    X, on, groups = drawn(**changed)
    readout = UANDReadout().fit(X[:FITTED], on[:FITTED])
    labels = Labels.of(on[:FITTED], on[FITTED:], groups[FITTED:])
    return readout, X, on, groups, labels


@pytest.mark.parametrize("dense", [(), (1, 5, 8)])
@pytest.mark.parametrize(("partners", "inputs"), [(1, 512), (7, 11), (1_000, 64), (16, 1_000)])
def test_blocks_of_any_size_give_what_all_at_once_does(partners, inputs, dense):
    readout, X, on, groups, labels = prepared(dense=dense)
    errors = readout.errors(X[FITTED:], on[FITTED:])
    products = ActivationProducts.of(readout, X[FITTED:])
    found = separated_pairs(products, labels, partners=partners, inputs=inputs)
    separated = errors.separated
    assert 20 < separated.sum() < len(separated) / 2
    np.testing.assert_array_equal(found.pairs, errors.pairs[separated])
    assert found.n_observed == errors.observed.sum()
    tolerance = {"rtol": 1e-3, "atol": 1e-4}  # float32 sums in another order
    least = errors.worst_after_offset[separated]
    np.testing.assert_allclose(found.worst_after_offset, least, **tolerance)
    for end, wanted in zip(found.ends[:2], errors._on(), strict=True):
        np.testing.assert_allclose(end, wanted[separated], **tolerance)
    for end, wanted in zip(found.ends[2:], errors._off(), strict=True):
        np.testing.assert_allclose(end, wanted[separated], **tolerance)
    np.testing.assert_array_equal(found.fitted, errors.fitted[separated])
    np.testing.assert_array_equal(found.together, errors.together[separated])
    together = groups_together(on[FITTED:], groups[FITTED:], errors.pairs)
    q = q_values(errors, together, len(np.unique(groups[FITTED:])))
    np.testing.assert_allclose(found.q(), q[separated], rtol=1e-9)


def test_the_features_themselves_are_read_as_activations():
    _, _, on, _, labels = prepared()
    bits = on.astype(float)
    errors = UANDReadout().fit(bits[:FITTED], on[:FITTED]).errors(bits[FITTED:], on[FITTED:])
    some = errors.pairs[errors.observed][::7]
    pairs, ends, _ = measured(LabelProducts.of(labels), labels, some)
    np.testing.assert_array_equal(pairs, some)
    wanted = errors.worst_after_offset[errors.observed][::7]
    np.testing.assert_allclose(after_offset(*ends), wanted, atol=1e-4)


def test_p_values_of_the_others_are_1():
    p = np.random.default_rng(0).random(30) ** 3
    padded = np.append(p, np.ones(70))
    np.testing.assert_allclose(benjamini_yekutieli(p, 100), benjamini_yekutieli(padded)[:30])
    np.testing.assert_allclose(holm(p, 100), holm(padded)[:30])


def peak_bytes(m):
    readout, X, _, _, labels = prepared(m=m, rate=0.03, seed=1)
    products = ActivationProducts.of(readout, X[FITTED:])
    tracemalloc.start()
    separated_pairs(products, labels, partners=32, inputs=64, n_jobs=1)
    return tracemalloc.get_traced_memory()[1] - tracemalloc.get_traced_memory()[0]


def test_memory_does_not_grow_with_the_number_of_pairs():
    """16 times as many pairs, 4 times as many features, whose labels are read in each block."""
    few, many = peak_bytes(60), peak_bytes(240)
    assert many < 4 * few


@pytest.fixture(scope="module")
def several():
    """A hand-set layer of 0/1 connections, its prompts, and all of its pairs at once."""
    on = all_composites(12, 4)
    data = composite_data(on[np.random.default_rng(0).permutation(len(on))], 4)
    model = universal_and(12, 300, 0.25).as_model(4, [(0, 1)])
    return model, data, it.analyze(model, "uand", data=data, reinitialisations=1)


def test_classes_of_many_pairs_are_those_of_all(several, monkeypatch):
    model, data, whole = several
    for module in (site, analysis):
        monkeypatch.setattr(module, "MOST_WHOLE", 8)
    many = it.analyze(model, "uand", data=data, reinitialisations=1)
    assert many.status == whole.status
    assert many.layers[0].counts == whole.layers[0].counts
    assert many.layers[0].certain == whole.layers[0].certain
    assert many.layers[0].shuffled_read == whole.layers[0].shuffled_read
    assert many.layers[0].rows_needed == whole.layers[0].rows_needed
    names = ["first", "second"]
    every, listed = (result.to_frame().set_index(names) for result in (whole, many))
    readable = every[every.worst_after_offset.to_numpy() < LIMIT]
    assert set(readable.index) <= set(listed.index)
    both = every.loc[listed.index]
    assert (both.claim == listed.claim).all()
    for column in ("worst", "worst_after_offset", "worst_after_offset_at_input"):
        np.testing.assert_allclose(listed[column], both[column], rtol=1e-3, atol=1e-4)
    for column in ("together_fitted", "together_held_out"):
        np.testing.assert_array_equal(listed[column], both[column])


def test_only_some_of_many_pairs_are_listed(several, monkeypatch):
    model, data, whole = several
    for module in (site, analysis):
        monkeypatch.setattr(module, "MOST_WHOLE", 8)
        monkeypatch.setattr(module, "MOST_LISTED", 5)
    monkeypatch.setattr(site, "MOST_DESCRIBED", 30)
    many = it.analyze(model, "uand", data=data, reinitialisations=0)
    assert many.layers[0].counts == whole.layers[0].counts
    computed = (many.to_frame().claim == "computed").sum()
    assert computed == many.layers[0].counts["computed"]
    assert len(many.to_frame()) == max(5, computed)
    errors = whole.to_frame().worst_after_offset.sort_values()
    if not computed:
        np.testing.assert_allclose(
            many.to_frame().worst_after_offset.sort_values(), errors[:5], rtol=1e-3, atol=1e-4
        )
    assert many.layers[0].epsilon["layer"].worst_after_offset <= whole.epsilon[
        "layer"
    ].worst_after_offset * (1 + 1e-4)
