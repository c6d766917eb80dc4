"""A small SAE, trained by SAELens on a toy model's activations, saved by it and read back.

At the last position the toy's residual stream holds the sum of the f-vectors of the features that
are on: 8 orthogonal ones in 16 dimensions, at most 2 on. So it is known what a dictionary finds.
"""

import copy
import itertools
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import interp_toolkit as it
from interp_toolkit.circuits import find_skip_bigrams
from interp_toolkit.data import FeatureData, read_data
from interp_toolkit.data.composites import composite_data, sample_composites
from interp_toolkit.models.features.feature_sets import read_features
from interp_toolkit.models.features.sae_files import read_sae
from interp_toolkit.models.features.samples import labelled_samples, read_at
from interp_toolkit.models.running.streaming import collect
from interp_toolkit.toys.superposition.layers.layer import FeatureLayer, layer_model

N_FEATURES, D_IN, MOST_ON, N_NEURONS, N_LATENTS = 8, 16, 2, 64, 64
RESID_MID = "blocks.0.hook_resid_mid"
STEPS, BATCH = 400, 256

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of TransformerLens, while importing
    sae_lens = pytest.importorskip("sae_lens", exc_type=ImportError)
    from sae_lens.config import SAETrainerConfig
    from sae_lens.training.sae_trainer import SAETrainer


class Trained(NamedTuple):
    """A toy, an SAE of its stream, rows that neither was made from, and toy and rows as files."""

    model: Any
    folder: Path
    data: FeatureData
    checkpoint: Path
    tokens: Path


def rows(n, seed, n_features=N_FEATURES):
    on = sample_composites(n, n_features, MOST_ON, np.random.default_rng(seed))
    return composite_data(on, MOST_ON)


def toy(n_features=N_FEATURES, d_in=D_IN):
    """Random 0/1 connections from each feature to 64 neurons, bias -1; it writes one AND."""
    rng = torch.Generator().manual_seed(0)
    vectors = torch.linalg.qr(torch.randn(d_in, d_in, generator=rng, dtype=torch.float64))[0]
    features = vectors[:n_features]
    connected = (torch.rand(n_features, N_NEURONS, generator=rng) < 0.4).double()
    layer = FeatureLayer(features.T @ connected, -torch.ones(N_NEURONS).double(), features)
    both = connected[0] * connected[1]
    return layer_model(layer, (both / both.sum())[None], MOST_ON, "features")


def train(model, data, architecture, folder, steps, **settings):
    """Train an SAE by SAELens' own trainer on the model's activations; save it by SAELens."""
    x = collect(model, data, RESID_MID)[RESID_MID].float()
    torch.manual_seed(0)
    batches = (x[torch.randint(len(x), (BATCH,))] for _ in itertools.count())
    sae_class, config_class = sae_lens.registry.get_sae_training_class(architecture)
    sae = sae_class(config_class(d_in=x.shape[1], **settings))
    sae.cfg.metadata.hook_name = RESID_MID
    config = SAETrainerConfig(
        total_training_samples=steps * BATCH, train_batch_size_samples=BATCH, lr=3e-3, lr_end=3e-4
    )
    SAETrainer(config, sae, batches).fit()
    sae.save_inference_model(folder)


SETTINGS = {
    "topk": {"k": 2, "aux_loss_coefficient": 0.0},
    "batchtopk": {"k": 1.2},  # saved as jumprelu
    "standard": {"l1_coefficient": 0.05},
    "gated": {"l1_coefficient": 0.05},
}


@pytest.fixture(scope="module", params=SETTINGS)
def trained(request, tmp_path_factory):
    return make(request.param, tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    """The architecture whose latents become the toy's features."""
    return make("batchtopk", tmp_path_factory.mktemp("exact"))


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """32 features in 64 dimensions, where a pair of directions can stand out."""
    return make("topk", tmp_path_factory.mktemp("wide"), 32, 64, n_latents=128, steps=800)


def make(architecture, folder, n_features=N_FEATURES, d_in=D_IN, n_latents=N_LATENTS, steps=STEPS):
    model, data = toy(n_features, d_in), rows(2_000, 2, n_features)
    fresh = rows(20_000, 1, n_features)
    settings = {"d_sae": n_latents, **SETTINGS[architecture]}
    train(model, fresh, architecture, folder / "sae", steps, **settings)
    it.save(model, folder / "toy.safetensors")
    np.savez(folder / "tokens.npz", tokens=data.token_matrix(), position=MOST_ON)
    return Trained(model, folder / "sae", data, folder / "toy.safetensors", folder / "tokens.npz")


def test_latents_are_the_same_both_ways(trained):
    x = collect(trained.model, trained.data, RESID_MID)[RESID_MID].float()
    ours, theirs = (read_sae(trained.folder, through=who) for who in ("files", "saelens"))
    torch.testing.assert_close(ours.encode(x), theirs.encode(x), atol=1e-6, rtol=0)
    with torch.no_grad():
        direct = sae_lens.SAE.load_from_disk(trained.folder).encode(x)
    torch.testing.assert_close(ours.encode(x), direct, atol=1e-6, rtol=0)
    assert (direct > 0).any(1).float().mean() > 0.6  # a third of the rows have nothing on


def test_the_dictionary_holds_the_features(trained):
    features = read_features(trained.folder, trained.model)
    assert features.reads == RESID_MID
    samples = labelled_samples(trained.model, trained.data, features)
    assert samples.dropped == N_LATENTS - len(samples.names)
    found = features.directions[samples.feature_indices]
    true = trained.model.embed.W_E[:N_FEATURES].float()
    cosines = true @ (found / found.norm(dim=1, keepdim=True)).T
    assert cosines.max(1).values.min() > 0.98


def test_labels_are_the_toy_s_own_features(exact):
    samples = labelled_samples(exact.model, exact.data, read_features(exact.folder, exact.model))
    agree = (exact.data.features[:, :, None] == samples.labels[:, None, :]).mean(0)
    assert agree.max(1).min() > 0.99
    assert len(set(agree.argmax(1))) == N_FEATURES


def test_from_files(exact):
    model = it.load(exact.checkpoint)
    data = read_data(exact.tokens, feature_names=())
    found = labelled_samples(model, data, read_features(exact.folder, model))
    made = labelled_samples(exact.model, exact.data, read_features(exact.folder, exact.model))
    assert found.names == made.names
    assert np.array_equal(found.labels, made.labels)
    assert found.positions.tolist() == [MOST_ON] * len(data)
    neurons = read_at(model, found, "blocks.0.mlp.hook_post")["blocks.0.mlp.hook_post"]
    assert neurons.shape == (len(data), N_NEURONS)


def test_uand_on_latents_finds_what_it_finds_on_the_features(exact, texts):
    """Latents are the toy's features under other names; each pair is on in one prompt only."""
    by_latent = it.analyze(exact.model, "uand", data=exact.data, features=exact.folder)
    by_feature = it.analyze(exact.model, "uand", data=exact.data)
    assert by_latent.status == by_feature.status == "undecided"
    for found in (by_latent, by_feature):
        assert found.layers[0].counts["unseen"] == len(found.to_frame())
        texts(found.verdict)
    assert by_latent.provenance.settings["features_sha256"]
    assert by_latent.layers[0].intersections is not None


def test_skip_bigrams_between_latents(wide):
    """A head that attends from eight features to eight others, by the SAE's decoder directions."""
    head = copy.deepcopy(wide.model)
    truth = head.embed.W_E[:32].detach()
    features = read_features(wide.folder, wide.model)
    samples = labelled_samples(wide.model, wide.data, features)
    cosines = features.directions[samples.feature_indices].double() @ truth.T
    name_of = {k: samples.names[best] for k, best in enumerate(cosines.argmax(0).tolist())}
    with torch.no_grad():
        attn = head.blocks[0].attn
        attn.W_Q[0, :, :8], attn.W_K[0, :, :8] = truth[:8].T, truth[8:16].T
    found = find_skip_bigrams(head, 0, 0, features=wide.folder)[0]
    pairs = [(b.query_feature, b.key_feature) for b in found.bigrams]  # the largest |z| first
    planted = {(name_of[k], name_of[k + 8]) for k in range(8)}
    assert set(pairs[:8]) == planted
    assert len(pairs) <= 9  # of the discoveries 5 % may be false, and the SAE is trained


def test_both_finders_on_the_command_line(exact, tmp_path):
    out = tmp_path / "found.json"
    arguments = ["analyze", str(exact.checkpoint), "--probe", "uand", "--probe", "skip-bigrams"]
    files = ["--data", str(exact.tokens), "--features", str(exact.folder), "--json", str(out)]
    command = [sys.executable, "-m", "interp_toolkit", *arguments, *files, "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    results = json.loads(out.read_text())["results"]
    assert [result["probe"] for result in results] == ["uand", "skip-bigrams"]
    assert results[0]["features"]["count"] >= N_FEATURES
    assert {"bigrams", "estimated_count", "capacity"} <= set(results[1]["heads"][0])
