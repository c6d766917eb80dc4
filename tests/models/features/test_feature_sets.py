"""What counts as a feature: its direction, where it is on, and what is refused."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import interp_toolkit as it
from interp_toolkit.errors import InputError
from interp_toolkit.models.features.feature_sets import FeatureSet, read_features
from interp_toolkit.models.features.sae_files import read_sae
from interp_toolkit.models.loading.formats.files import sha256
from interp_toolkit.models.weights.view import weights

RESID = "blocks.0.hook_resid_post"


@pytest.fixture
def own(zoo):
    return zoo("own")


@pytest.fixture
def written(tmp_path):
    """Content -> a file of that name with it."""

    def write(name, content):
        path = tmp_path / name
        if path.suffix == ".json":
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        elif path.suffix == ".npz":
            np.savez(path, **content)
        elif path.suffix == ".npy":
            np.save(path, content)
        else:
            save_file(content, path)
        return path

    return write


def test_embeddings_are_what_tokens_add_to_the_first_residual(model, tokens):
    """Differences of the residual stream between tokens at one place, on every kind of model."""
    features = read_features("embeddings", model)
    n = int(model.cfg.d_vocab)
    assert (len(features), features.reads) == (n, "tokens")
    assert len(set(features.names)) == n
    every = torch.arange(n)[:, None]
    with torch.no_grad():
        first = model.run_with_cache(every)[1]["blocks.0.hook_resid_pre"][:, 0].cpu()
    directions = features.directions.detach().cpu()
    view = weights(model)
    if view.embed_norm.kind is None:  # a position adds the same to every token
        directions, first = directions - directions[0], first - first[0]
    if view.embed_norm.kind is None or view.W_pos is None:
        torch.testing.assert_close(directions, first, atol=2e-5, rtol=1e-4)
    on = features.label(torch.tensor([3, 0, 3]))
    assert on.nonzero().tolist() == [[0, 3], [1, 0], [2, 3]]


def test_token_sets(own, written):
    path = written("sets.json", {"even": [0, 2, 4], "two": [2], "all but": [0, 1]})
    features = read_features(path, own)
    assert features.names == ("even", "two", "all but")
    assert features.sha256 == sha256(path)
    assert str(path) in features.source
    assert features.described()["features"] == 3
    on = features.label(torch.tensor([0, 1, 2, 5]))
    assert on.int().tolist() == [[1, 0, 1], [0, 0, 1], [1, 1, 0], [0, 0, 0]]
    W_E = own.embed.W_E.detach()
    expected = torch.stack([(W_E[0] + W_E[2] + W_E[4]) / 3, W_E[2], (W_E[0] + W_E[1]) / 2])
    torch.testing.assert_close(features.directions, expected)
    assert read_features(str(path), own).names == features.names


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[1, 2]",
        {},
        {"a": []},
        {"a": 3},
        {"a": [True]},
        {"a": [1.0]},
        {"": [1]},
        {"a": [1], "b": [11]},
        {"a": [-1]},
        '{"a": [1], "b": [1], "a": [2]}',
    ],
)
def test_bad_token_sets(own, written, content, texts):
    path = written("sets.json", content)
    with pytest.raises(InputError, check=texts) as caught:
        read_features(path, own)
    assert str(path) in str(caught.value)


def test_directions_from_files_and_arrays(own, written, texts):
    matrix = np.random.default_rng(0).normal(size=(5, 16)).astype(np.float32)
    files = {
        written("d.npy", matrix): ("f0", "f1", "f2", "f3", "f4"),
        written("d.npz", {"directions": matrix, "names": list("vwxyz")}): tuple("vwxyz"),
        written("plain.npz", {"directions": matrix}): ("f0", "f1", "f2", "f3", "f4"),
        written("d.safetensors", {"any": torch.from_numpy(matrix)}): ("f0", "f1", "f2", "f3", "f4"),
    }
    for path, names in files.items():
        features = read_features(path, own)
        assert (features.names, features.reads) == (names, None)
        np.testing.assert_array_equal(features.directions.numpy(), matrix)
        assert features.sha256 == sha256(path)
    for array in (matrix, torch.from_numpy(matrix)):
        assert torch.equal(read_features(array, own).directions, torch.from_numpy(matrix))
    assert read_features(np.eye(16, dtype=int), own).directions.dtype == torch.float64
    swapped = read_features(written("swapped.npy", matrix.astype(">f4")), own)
    np.testing.assert_array_equal(swapped.directions.numpy(), matrix)
    assert read_features(features, own) is features
    with pytest.raises(InputError, check=texts):
        features.label(torch.zeros(3, 16))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("d.npy", np.ones((3, 7))),
        ("d.npy", np.ones((0, 16))),
        ("d.npy", np.ones(16)),
        ("d.npy", np.ones((2, 16), bool)),
        ("d.npy", np.ones((2, 16), complex)),
        ("d.npy", np.array([[1, None]], object)),
        ("d.npy", np.full((2, 16), np.nan)),
        ("d.npy", np.eye(17, 16)),
        ("d.npz", {"vectors": np.ones((2, 16))}),
        ("d.npz", {"directions": np.ones((2, 16)), "labels": [1]}),
        ("d.npz", {"directions": np.ones((2, 16)), "names": ["a", "a"]}),
        ("d.npz", {"directions": np.ones((2, 16)), "names": ["a"]}),
        ("d.npz", {"directions": np.ones((2, 16)), "names": [1, 2]}),
        ("d.npz", {"directions": np.array([[None]])}),
        ("d.safetensors", {"a": torch.ones(2, 16), "b": torch.ones(1)}),
        ("d.safetensors", {"a": torch.ones(16)}),
    ],
)
def test_bad_directions(own, written, name, content, texts):
    path = written(name, content)
    with pytest.raises(InputError, check=texts) as caught:
        read_features(path, own)
    assert str(path) in str(caught.value)


def test_bad_specs(own, written, tmp_path, texts):
    for name in ("none.npy", "none.json", "none.safetensors"):
        with pytest.raises(InputError, check=texts):
            read_features(tmp_path / name, own)
    with pytest.raises(InputError, match="'embeddings'", check=texts):
        read_features("embedings", own)
    for name in ("d.npy", "d.npz", "d.safetensors"):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(InputError, match="empty"):
            read_features(tmp_path / name, own)
        (tmp_path / name).write_bytes(b"\x93NUMPY noise and more noise")
        with pytest.raises(InputError, match=name):
            read_features(tmp_path / name, own)
    for array in (np.ones(3), np.ones((2, 3, 16)), np.array(1.0), torch.ones(2, 3)):
        with pytest.raises(InputError, check=texts):
            read_features(array, own)
    with pytest.raises(InputError, match="<U1", check=texts):
        read_features(np.array([["a"]]), own)
    for asked in ({"side": "encoder"}, {"threshold": 1.0}):
        with pytest.raises(InputError, match="SAE", check=texts):
            read_features("embeddings", own, **asked)
    with pytest.raises(InputError, check=texts):
        FeatureSet(("a", "a"), "mine")
    with pytest.raises(InputError, match="2 names for 3 directions"):
        FeatureSet(("a", "b"), "mine", torch.ones(3, 16))


def test_latents(own, sae_folder, tokens):
    folder = sae_folder("jumprelu", hook=RESID)
    features, sae = read_features(folder, own), read_sae(folder)
    assert (features.reads, features.names[:2]) == (RESID, ("latent0", "latent1"))
    assert torch.equal(features.directions, sae.W_dec)
    assert torch.equal(read_features(folder, own, side="encoder").directions, sae.W_enc.T)
    assert features.sha256 == sae.sha256
    with torch.no_grad():
        activations = own.run_with_cache(tokens)[1][RESID].flatten(0, 1)
    assert torch.equal(features.label(activations), sae.encode(activations) > 0)
    above = read_features(folder, own, threshold=2.0)
    assert torch.equal(above.label(activations), sae.encode(activations) > 2)
    assert 0 < above.label(activations).sum() < features.label(activations).sum()
    assert "above 2" in above.source


def test_latents_of_heads_side_by_side(model, sae_folder, tokens):
    n = int(model.cfg.n_heads) * int(model.cfg.d_head)
    hook = "blocks.1.attn.hook_z"
    features = read_features(sae_folder(d_in=n, hook=hook, reshape_activations="hook_z"), model)
    with torch.no_grad():
        z = model.run_with_cache(tokens)[1][hook].flatten(0, 1).cpu()
    assert features.label(z).shape == (35, 24)


@pytest.mark.parametrize(
    ("folder", "options"),
    [
        ({"hook": "blocks.9.hook_resid_post"}, {}),
        ({"hook": "resid_post"}, {}),
        ({"d_in": 8}, {}),
        ({}, {"threshold": -1.0}),
        ({}, {"threshold": float("nan")}),
    ],
)
def test_an_sae_of_another_model(own, sae_folder, folder, options, texts):
    with pytest.raises(InputError, check=texts):
        read_features(sae_folder(**folder), own, **options)


def test_an_sae_at_a_silenced_hook(zoo, sae_folder, texts):
    model = zoo("native")
    hook = next(h for h in model.hook_dict if h.endswith("attn.hook_result"))
    with pytest.raises(InputError, match=r"model\.set_use_attn_result\(True\)", check=texts):
        read_features(sae_folder(hook=hook), model)


def test_an_sae_without_a_hook_has_directions_only(own, sae_folder, texts):
    features = read_features(sae_folder(metadata={}), own)
    assert features.directions.shape == (24, 16)
    with pytest.raises(InputError, match=r"cfg\.json", check=texts):
        features.label(torch.zeros(2, 16))


@pytest.mark.parametrize("options", [{"side": "encoder"}, {"threshold": 0.5}])
def test_an_array_of_directions_has_no_side_and_no_threshold(options, texts):
    model = it.load("toy:induction")
    with pytest.raises(InputError, match="SAE", check=texts):
        read_features(np.eye(int(model.cfg.d_model))[:1], model, **options)
