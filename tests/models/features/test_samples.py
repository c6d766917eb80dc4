"""Labeled places against a plain-Python walk over rows and positions, and activations there."""

import numpy as np
import pytest
import torch

from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.features.feature_sets import (
    FeatureSet,
    read_features,
    token_set_features,
)
from interp_toolkit.models.features.sae_files import read_sae
from interp_toolkit.models.features.samples import labelled_samples, read_at
from interp_toolkit.models.running.hooks import expand_hooks

ROWS = [[1, 2, 3], [4, 5], [6], [2, 2, 7, 8], [1, 9]]
COLUMNS = np.array([[1, 0, 0], [0, 0, 1], [1, 0, 1], [0, 0, 0], [1, 0, 0]], dtype=bool)
SETS = {"two or five": [2, 5], "never": [0], "one": [1]}
HOOK = "blocks.0.hook_resid_post"


@pytest.fixture
def own(zoo):
    return zoo("own")


def rows_of(tokens=ROWS, **further):
    return FeatureData(tokens, np.zeros((len(tokens), 0), bool), (), **further)


def places(samples):
    return list(zip(samples.rows.tolist(), samples.positions.tolist(), strict=True))


def test_columns_are_read_at_one_place_a_row(own):
    data = FeatureData(ROWS, COLUMNS, ("a", "b", "c"))
    samples = labelled_samples(own, data)
    assert places(samples) == [(0, 2), (1, 1), (2, 0), (3, 3), (4, 1)]
    assert (samples.names, samples.dropped, samples.feature_indices.tolist()) == (
        ("a", "c"),
        1,
        [0, 2],
    )
    assert np.array_equal(samples.labels, COLUMNS[:, [0, 2]])
    assert samples.groups.tolist() == [0, 1, 2, 3, 4]
    assert len(samples) == 5
    assert samples.data is data
    assert [p for _, p in places(labelled_samples(own, data, position=0))] == [0] * 5
    data = FeatureData(ROWS, COLUMNS, ("a", "b", "c"), positions=np.array([0, -2, 0, 1, 0]))
    assert [p for _, p in places(labelled_samples(own, data))] == [0, 0, 0, 1, 0]
    assert [p for _, p in places(labelled_samples(own, data, position=-1))] == [2, 1, 0, 3, 1]


@pytest.mark.parametrize("position", [None, "all"])
def test_tokens_are_labelled_everywhere(own, position):
    samples = labelled_samples(own, rows_of(), token_set_features(SETS, own), position=position)
    everywhere = [(r, p) for r, row in enumerate(ROWS) for p in range(len(row))]
    assert places(samples) == everywhere
    assert (samples.names, samples.dropped) == (("two or five", "one"), 1)
    expected = [[ROWS[r][p] in SETS[name] for name in samples.names] for r, p in everywhere]
    assert samples.labels.tolist() == expected
    assert samples.feature_indices.tolist() == [0, 2]
    assert samples.groups.tolist() == samples.rows.tolist()


def test_own_positions_and_groups(own):
    data = rows_of(positions=np.array([1, 0, 0, 0, 0]), groups=np.array(["x", "y", "x", "z", "y"]))
    features = token_set_features(SETS, own)
    samples = labelled_samples(own, data, features)
    assert places(samples) == [(0, 1), (1, 0), (2, 0), (3, 0), (4, 0)]
    assert samples.groups.tolist() == [0, 1, 0, 2, 1]
    everywhere = labelled_samples(own, data, features, position="all")
    assert len(everywhere) == 12
    assert everywhere.groups.tolist() == [0, 0, 0, 1, 1, 0, 2, 2, 2, 2, 1, 1]
    first = labelled_samples(own, data, features, position=-1)
    assert [p for _, p in places(first)] == [2, 1, 0, 3, 1]


def test_embeddings_keep_the_tokens_that_occur(own):
    samples = labelled_samples(own, rows_of(), read_features("embeddings", own))
    flat = [token for row in ROWS for token in row]
    assert samples.feature_indices.tolist() == sorted(set(flat))
    assert samples.names == tuple(map(str, samples.feature_indices))
    assert (samples.labels.sum(1) == 1).all()
    assert samples.feature_indices[samples.labels.argmax(1)].tolist() == flat


def test_many_places(own):
    tokens = torch.randint(11, (400, 8), generator=torch.Generator().manual_seed(0))
    samples = labelled_samples(own, rows_of(tokens.tolist()), token_set_features(SETS, own))
    flat = tokens.flatten().numpy()
    assert np.array_equal(samples.labels, np.stack([np.isin(flat, SETS[n]) for n in SETS], 1))


def test_whole_rows_are_drawn(own, texts):
    tokens = torch.randint(11, (60, 5), generator=torch.Generator().manual_seed(0)).tolist()
    features = token_set_features({"a": [1], "b": [2, 3]}, own)
    drawn = [labelled_samples(own, rows_of(tokens), features, most=23, seed=s) for s in (0, 0, 1)]
    for samples in drawn:
        rows, counts = np.unique(samples.rows, return_counts=True)
        assert (len(rows), counts.tolist()) == (4, [5] * 4)
        texts(samples.source)
        for r, p, on in zip(samples.rows, samples.positions, samples.labels, strict=True):
            expected = {"a": tokens[r][p] == 1, "b": tokens[r][p] in (2, 3)}
            assert on.tolist() == [expected[name] for name in samples.names]
    assert np.array_equal(drawn[0].rows, drawn[1].rows)
    assert not np.array_equal(drawn[0].rows, drawn[2].rows)
    assert len(labelled_samples(own, rows_of(tokens), features, most=20)) == 20
    whole = labelled_samples(own, rows_of(tokens), features, most=300)
    assert (len(whole), "drawn" in whole.source) == (300, False)
    with pytest.raises(InputError, check=texts):
        labelled_samples(own, rows_of(tokens), features, most=4)


def test_latents_are_those_of_the_activations(model, sae_folder):
    """On every kind of model, rows of several lengths, through batches of one row."""
    folder = sae_folder(d_in=int(model.cfg.d_model), hook=HOOK)
    features, sae = read_features(folder, model), read_sae(folder)
    samples = labelled_samples(model, rows_of(), features, memory=40_000)
    for r, row in enumerate(ROWS):
        with torch.no_grad():
            x = model.run_with_cache(torch.tensor([row]))[1][HOOK][0].cpu().float()
        pre = ((x - sae.b_dec) @ sae.W_enc + sae.vectors["b_enc"])[
            :, samples.feature_indices
        ].numpy()
        at, clear = samples.rows == r, np.abs(pre) > 1e-3
        assert samples.positions[at].tolist() == list(range(len(row)))
        assert np.array_equal(samples.labels[at][clear], pre[clear] > 0)
        assert clear.mean() > 0.9
    assert samples.labels.any(0).all()
    assert samples.dropped == 24 - len(samples.feature_indices)


def test_activations_at_the_places(model):
    hooks = expand_hooks(model, ["resid_post", "blocks.1.attn.hook_z"])
    data = rows_of()
    features = token_set_features({"some": [2, 5, 6]}, model)
    for position in ("all", -1, 0):
        samples = labelled_samples(model, data, features, position=position)
        found = read_at(model, samples, ["resid_post", "blocks.1.attn.hook_z"], memory=40_000)
        assert list(found) == hooks
        for n, (r, p) in enumerate(places(samples)):
            with torch.no_grad():
                cache = model.run_with_cache(torch.tensor([ROWS[r]]))[1]
            for hook in hooks:
                expected = cache[hook][0, p].flatten().cpu().numpy()
                np.testing.assert_allclose(found[hook][n], expected, atol=2e-5)


def test_half_precision_comes_back_as_single(zoo):
    import copy

    model = copy.deepcopy(zoo("own")).to(torch.bfloat16)
    samples = labelled_samples(model, rows_of(), token_set_features({"a": [2]}, model))
    assert read_at(model, samples, HOOK)[HOOK].dtype == np.float32
    double = copy.deepcopy(zoo("own")).double()
    samples = labelled_samples(double, rows_of(), token_set_features({"a": [2]}, double))
    assert read_at(double, samples, HOOK)[HOOK].dtype == np.float64


def test_what_cannot_be_looked_at(own, texts):
    columns = FeatureData(ROWS, COLUMNS, ("a", "b", "c"))
    features = token_set_features(SETS, own)
    with pytest.raises(InputError, match="no data: "):
        labelled_samples(own, None, features)
    with pytest.raises(InputError, match="--features", check=texts):
        labelled_samples(own, rows_of())
    with pytest.raises(InputError, check=texts):
        labelled_samples(own, columns, position="all")
    for position in (1, -2):
        with pytest.raises(InputError, check=texts):
            labelled_samples(own, columns, position=position)
    with pytest.raises(InputError, check=texts):
        labelled_samples(own, rows_of(), token_set_features({"a": [0]}, own))
    with pytest.raises(InputError, match="40", check=texts):
        labelled_samples(own, rows_of([[1, 40]]), features)
    with pytest.raises(InputError, check=texts):
        labelled_samples(own, rows_of(), FeatureSet(("a",), "directions", torch.ones(1, 16)))
    samples = labelled_samples(own, rows_of(), features)
    with pytest.raises(InputError, match="row's", check=texts):
        read_at(own, samples, "blocks.*.hook_pattern")
    with pytest.raises(InputError, match="no hook matches 'resid_pots'"):
        read_at(own, samples, "resid_pots")


def test_nan_activations_are_named(zoo, texts):
    import copy

    model = copy.deepcopy(zoo("own"))
    with torch.no_grad():
        model.embed.W_E[5] = torch.nan
    samples = labelled_samples(model, rows_of(), token_set_features({"a": [2]}, zoo("own")))
    with pytest.raises(InputError, match=r"blocks\.0\.hook_resid_post", check=texts):
        read_at(model, samples, HOOK)
