"""`--features` and its settings, from the command line to the analysis that takes them."""

import json
from dataclasses import dataclass
from importlib.metadata import EntryPoint

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from interp_toolkit import registry
from interp_toolkit.models.features.feature_sets import FeatureOptions
from interp_toolkit.models.features.samples import labelled_samples
from interp_toolkit.results import Evidence, Provenance, Result


@dataclass(frozen=True)
class Labelled(Result):
    """What `labelled` saw."""

    seen: dict

    def to_frame(self):
        return pd.DataFrame([self.seen])

    def tables(self):
        return []


def label(model, data, options, progress):
    found = options.read(options.features, model)
    samples = labelled_samples(model, data, found)
    seen = {"names": list(samples.names), "n": len(samples), "source": samples.source}
    if found is not None and found.directions is not None:
        seen["norms"] = found.directions.norm(dim=1).tolist()
    return Labelled(
        "labelled", "Labelled.", Evidence("described"), Provenance({}, {}, {}, 0, {}), seen
    )


LABELLED = registry.Analysis("labelled", "labels places", FeatureOptions, label)


@pytest.fixture(name="call")
def with_features(call, monkeypatch):
    """`main(...)` in this process, with an analysis that takes features: (code, out, err)."""
    real = registry.entry_points

    def patched(group):
        mine = EntryPoint("labelled", "unused", group)
        return [*real(group=group), *([mine] if group.endswith("probes") else [])]

    def load(entry):
        return LABELLED if entry.name == "labelled" else real_load(entry)

    real_load = EntryPoint.load
    monkeypatch.setattr(registry, "entry_points", patched)
    monkeypatch.setattr(EntryPoint, "load", load)
    registry._entries.cache_clear()

    yield call
    registry._entries.cache_clear()


@pytest.fixture
def tokens_only(tmp_path):
    path = tmp_path / "tokens.npz"
    np.savez(path, tokens=[[0, 1, 2], [1, 1, 2]])
    return path


@pytest.fixture
def sae(tmp_path):
    """Latent k is on at token k of toy:xor-2head; the encoder is three times the decoder."""
    folder = tmp_path / "sae"
    folder.mkdir()
    from interp_toolkit.toys.hand_set.xor import XOR_2HEAD

    W_E = XOR_2HEAD.build().embed.W_E.detach().float()
    decoder = torch.linalg.pinv(W_E).T
    weights = {"W_enc": 3 * decoder.T, "W_dec": decoder}
    weights |= {"b_dec": torch.zeros(W_E.shape[1]), "b_enc": torch.full((len(W_E),), -1.5)}
    save_file({n: t.contiguous() for n, t in weights.items()}, folder / "sae_weights.safetensors")
    cfg = {"architecture": "standard", "dtype": "float32", "d_in": W_E.shape[1], "d_sae": len(W_E)}
    (folder / "cfg.json").write_text(json.dumps(cfg | {"metadata": {"hook_name": "hook_embed"}}))
    return folder


def seen(out):
    return json.loads(out)["results"][0]["seen"]


START = ("analyze", "toy:xor-2head", "--json", "-", "--quiet", "--probe", "labelled")


def test_tokens_alone_are_enough(call, tokens_only):
    code, out, err = call(*START, "--features", "embeddings", "--data", tokens_only)
    assert (code, err) == (0, "")
    assert (seen(out)["names"], seen(out)["n"]) == (["0", "1", "2"], 6)


def test_latents_with_their_side_and_threshold(call, tokens_only, sae, texts):
    code, out, err = call(*START, "--features", sae, "--data", tokens_only)
    assert (code, err) == (0, "")
    assert seen(out)["names"] == ["latent0", "latent1", "latent2"]
    decoder = seen(out)["norms"]
    code, out, _ = call(
        *START, "--features", sae, "--data", tokens_only, "--feature-side", "encoder"
    )
    assert seen(out)["norms"] == pytest.approx([3 * norm for norm in decoder])
    code, out, err = call(*START, "--features", sae, "--data", tokens_only, "--threshold", 2)
    assert code == 2
    texts(err)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--probe", "xor", "--features", "embeddings"],
        ["--probe", "labelled", "--features", "embedings"],
        ["--probe", "labelled", "--features", "none.npy"],
        ["--probe", "labelled", "--features", "~nosuchuser/x"],
        ["--probe", "labelled", "--features", "x" * 5000],
        ["--probe", "labelled", "--features", ""],
        ["--probe", "labelled", "--feature-side", "encoder"],
        ["--probe", "labelled", "--threshold", "1"],
        ["--probe", "labelled", "--features", "embeddings", "--threshold", "1"],
        ["--probe", "labelled", "--features", "embeddings", "--column", "a", "--data", "x.npz"],
        ["--probe", "labelled", "--features", "embeddings"],
    ],
)
def test_a_slip_is_one_line(call, arguments, texts):
    code, _, err = call("analyze", "toy:xor-2head", "--quiet", *arguments)
    assert code == 2
    texts(err)
    assert len(err.strip().splitlines()) == 1


def test_a_file_of_the_sae_is_not_written_over(call, sae, tokens_only, texts):
    before = (sae / "cfg.json").read_bytes()
    for written in ("--json", "--html"):
        features = ("--features", sae, "--data", tokens_only)
        code, _, err = call(*START, *features, written, sae / "cfg.json")
        assert code == 2
        texts(err)
    assert (sae / "cfg.json").read_bytes() == before
    code, _, err = call(*START, "--features", sae, "--data", tokens_only, "--html", tokens_only)
    assert code == 2
    assert "would overwrite --data" in err


def test_data_without_columns_is_an_error_for_analyses_that_need_them(call, tokens_only, tmp_path):
    table = tmp_path / "tokens.jsonl"
    table.write_text('{"tokens": [0, 1, 2]}\n')
    for path, message in (
        (tokens_only, "there is no feature column"),
        (table, "there is no feature column"),
    ):
        for further in ((), ("--probe", "labelled", "--features", "embeddings")):
            arguments = ("--quiet", "--probe", "xor", *further, "--data", path)
            code, _, err = call("analyze", "toy:xor-2head", *arguments)
            assert code == 2
            assert message in err
            assert len(err.strip().splitlines()) == 1


def test_in_a_notebook(call, tokens_only, texts):
    import interp_toolkit as it

    features = np.random.default_rng(0).normal(size=(4, 7))
    result = it.analyze("toy:xor-2head", "labelled", data=tokens_only, features="embeddings")
    assert result.seen["n"] == 6
    with pytest.raises(it.InputError, match=r"\[4, 7\]", check=texts):
        it.analyze("toy:xor-2head", "labelled", data=tokens_only, features=features)
    with pytest.raises(it.InputError, check=texts):
        it.analyze("toy:xor-2head", "labelled", data=tokens_only)
