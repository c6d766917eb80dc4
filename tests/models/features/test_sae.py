"""Latents against plain-Python formulas and against SAELens itself, and what is refused."""

import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from interp_toolkit.errors import InputError
from interp_toolkit.models.features import sae_files
from interp_toolkit.models.features.sae_files import read_sae
from interp_toolkit.models.loading.formats.files import sha256

ARCHITECTURES = ["standard", "topk", "jumprelu", "gated"]
OPTIONS = [
    {},
    {"apply_b_dec_to_input": False},
    {"normalize_activations": "layer_norm"},
    {"normalize_activations": "constant_norm_rescale"},
    {"dtype": "float64"},
]


def assert_close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """To a millionth of the largest: sums of so many terms are rounded by each kernel otherwise."""
    largest = max(1.0, float(wanted.detach().abs().max()))
    torch.testing.assert_close(found, wanted, atol=1e-6 * largest, rtol=0)


def inputs(n=50, d_in=16):
    return torch.randn(n, d_in, generator=torch.Generator().manual_seed(1))


def latents_by_hand(folder, x):
    """One row of latents, in plain Python."""
    cfg = json.loads((folder / "cfg.json").read_text())
    w = {n: t.double().tolist() for n, t in load_file(folder / "sae_weights.safetensors").items()}
    if cfg["normalize_activations"] == "layer_norm":
        centred = [v - sum(x) / len(x) for v in x]
        std = math.sqrt(sum(v * v for v in centred) / (len(x) - 1))
        x = [v / (std + 1e-5) for v in centred]
    if cfg["normalize_activations"] == "constant_norm_rescale":
        norm = math.sqrt(sum(v * v for v in x))
        x = [v * math.sqrt(len(x)) / norm for v in x]
    if cfg["apply_b_dec_to_input"]:
        x = [v - b for v, b in zip(x, w["b_dec"], strict=True)]
    columns = list(zip(*w["W_enc"], strict=True))
    dots = [sum(v * c for v, c in zip(x, column, strict=True)) for column in columns]
    if cfg["architecture"] == "gated":
        parts = zip(dots, w["b_gate"], w["b_mag"], w["r_mag"], strict=True)
        return [max(0.0, d * math.exp(r) + m) * (d + g > 0) for d, g, m, r in parts]
    pre = [d + b for d, b in zip(dots, w["b_enc"], strict=True)]
    if cfg["architecture"] == "jumprelu":
        return [max(0.0, p) * (p > t) for p, t in zip(pre, w["threshold"], strict=True)]
    if cfg["architecture"] == "topk":
        if cfg.get("rescale_acts_by_decoder_norm"):
            norms = [math.sqrt(sum(v * v for v in row)) for row in w["W_dec"]]
            pre = [p * n for p, n in zip(pre, norms, strict=True)]
        last = sorted(pre)[-cfg["k"]]
        return [max(0.0, p) * (p >= last) for p in pre]
    return [max(0.0, p) for p in pre]


@pytest.mark.parametrize("options", [*OPTIONS, {"rescale_acts_by_decoder_norm": True}], ids=str)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_latents_equal_the_formulas(sae_folder, architecture, options):
    folder = sae_folder(architecture, **options)
    x = inputs(6)
    expected = [latents_by_hand(folder, row) for row in x.double().tolist()]
    found = read_sae(folder, through="files").encode(x)
    assert found.dtype == (torch.float64 if options.get("dtype") == "float64" else torch.float32)
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-5)


@pytest.mark.parametrize("options", [*OPTIONS, {"dtype": "bfloat16"}], ids=str)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_latents_equal_saelens(sae_lens, sae_folder, architecture, options):
    folder = sae_folder(architecture, **options)
    ours, theirs = (read_sae(folder, through=who) for who in ("files", "saelens"))
    assert theirs.encoder is not None
    x = inputs(3000)  # several batches
    assert_close(ours.encode(x), theirs.encode(x))
    with torch.no_grad():
        direct = sae_lens.SAE.load_from_disk(folder).encode(x)
    assert_close(theirs.encode(x), direct)
    assert (direct > 0).any()


def test_ranking_by_the_decoder_equals_saelens(sae_lens, sae_folder):
    folder = sae_folder("topk", rescale_acts_by_decoder_norm=True)
    found = [read_sae(folder, through=who).encode(inputs()) for who in ("files", "saelens")]
    assert_close(*found)


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "batchtopk"])
def test_what_saelens_trains_and_saves_is_read(sae_lens, tmp_path, architecture):
    make = sae_lens.registry.get_sae_training_class(architecture)
    further = {"k": 4} if "topk" in architecture else {}
    torch.manual_seed(0)
    sae = make[0](make[1](d_in=16, d_sae=24, **further))
    with torch.no_grad():
        for parameter in sae.parameters():
            parameter += 0.3 * torch.rand_like(parameter)
    sae.cfg.metadata.hook_name = "blocks.0.hook_resid_post"
    sae.save_inference_model(tmp_path / "sae")
    found = {who: read_sae(tmp_path / "sae", through=who) for who in ("files", "saelens")}
    encoded = [found[who].encode(inputs()) for who in ("files", "saelens")]
    assert_close(*encoded)
    assert found["files"].hook == "blocks.0.hook_resid_post"
    assert found["files"].architecture == (
        "jumprelu" if architecture == "batchtopk" else architecture
    )


@pytest.mark.parametrize(
    "older",
    [
        {"architecture": "standard", "activation_fn_str": "relu", "normalize_activations": "none"},
        {"activation_fn": "topk", "activation_fn_kwargs": {"k": 3}},
        {"activation_fn_str": "topk", "activation_fn_kwargs": {"k": 3}, "architecture": "standard"},
        {"normalize_activations": False, "hook_point_head_index": None, "hook_point_layer": 0},
    ],
    ids=str,
)
def test_older_settings_are_understood(sae_lens, sae_folder, older):
    folder = sae_folder()
    flat = {"d_in": 16, "d_sae": 24, "dtype": "torch.float32", "hook_point": "hook_embed"}
    (folder / "cfg.json").write_text(json.dumps(flat | older))
    ours, theirs = (read_sae(folder, through=who) for who in ("files", "saelens"))
    torch.testing.assert_close(ours.encode(inputs()), theirs.encode(inputs()), atol=1e-6, rtol=0)
    assert (ours.hook, ours.subtract_b_dec) == ("hook_embed", True)


def test_one_reader_without_saelens(sae_folder, monkeypatch, texts):
    monkeypatch.setattr(sae_files, "find_spec", lambda name: None)
    folder = sae_folder()
    assert read_sae(folder).encoder is None
    with pytest.raises(InputError, match="SAELens", check=texts):
        read_sae(folder, through="saelens")


def test_directions_provenance_and_batches(sae_folder):
    folder = sae_folder("jumprelu")
    sae = read_sae(folder, through="files")
    weights = load_file(folder / "sae_weights.safetensors")
    assert torch.equal(sae.directions("decoder"), weights["W_dec"])
    assert torch.equal(sae.directions("encoder"), weights["W_enc"].T)
    assert sae.sha256 == sha256(folder / "sae_weights.safetensors")
    assert str(folder) in sae.source
    assert len(sae) == 24
    x = inputs(2500)
    torch.testing.assert_close(sae.encode(x)[1999], sae.encode(x[1999:2000])[0])
    assert sae.encode(x[:0]).shape == (0, 24)
    for threshold in (0.0, 1.5):
        assert torch.equal(sae.on(x, threshold), sae.encode(x) > threshold)
    assert sae.on(x[:0]).shape == (0, 24)


def test_heads_come_side_by_side(sae_lens, sae_folder):
    x = inputs(5, 16).reshape(5, 4, 4)
    folder = sae_folder(reshape_activations="hook_z", hook="blocks.0.attn.hook_z")
    with torch.no_grad():
        expected = sae_lens.SAE.load_from_disk(folder).encode(x)
    for who in ("files", "saelens"):
        sae = read_sae(folder, through=who)
        torch.testing.assert_close(sae.encode(sae.flat_input(x)), expected, atol=1e-6, rtol=0)


def test_one_head_alone(sae_folder, texts):
    x = inputs(5, 16).reshape(5, 4, 4)
    metadata = {"hook_name": "blocks.0.attn.hook_z", "hook_head_index": 2}
    one = read_sae(sae_folder(d_in=4, metadata=metadata), through="files")
    assert torch.equal(one.flat_input(x), x[:, 2])
    with pytest.raises(InputError, match=r"blocks\.0\.attn\.hook_z", check=texts):
        one.flat_input(x[:, :2])
    with pytest.raises(InputError, match=r"reads 4 dimensions, but .* has 8"):
        one.flat_input(inputs(5, 16).reshape(5, 4, 4, 1).repeat(1, 1, 1, 2).flatten(2))


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("standard", {"normalize_activations": "expected_average_only_in"}),
        ("standard", {"normalize_activations": True}),
        ("standard", {"normalize_activations": "max"}),
        ("standard", {"reshape_activations": "mlp"}),
        ("standard", {"dtype": "int8"}),
        ("standard", {"apply_b_dec_to_input": "no"}),
        ("standard", {"metadata": {"hook_name": 3}}),
        ("standard", {"metadata": "x"}),
        ("standard", {"d_sae": 12}),
        ("topk", {"k": 0}),
        ("topk", {"k": 25}),
        ("topk", {"k": None}),
        ("standard", {"weights": {"W_dec": torch.zeros(3, 16)}}),
        ("standard", {"weights": {"W_enc": torch.zeros(16)}}),
        ("standard", {"weights": {"W_enc": torch.zeros(16, 0)}}),
        ("standard", {"weights": {"b_dec": torch.full((16,), torch.nan)}}),
        ("standard", {"weights": {"b_enc": torch.zeros(24).int()}}),
        ("standard", {"weights": {"log_gain": torch.zeros(24)}}),
        ("standard", {"weights": {"scaling_factor": torch.full((24,), 2.0)}}),
    ],
)
def test_what_does_not_fit_is_one_line(sae_folder, architecture, changes, texts):
    folder = sae_folder(architecture, **changes)
    with pytest.raises(InputError, check=texts) as caught:
        read_sae(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [("matching_pursuit", {}), ("temporal", {}), ("standard", {"activation_fn": "tanh-relu"})],
)
def test_an_architecture_without_a_formula_is_refused(sae_folder, architecture, changes):
    folder = sae_folder(architecture, **changes)
    for through in (None, "files"):
        with pytest.raises(InputError) as caught:
            read_sae(folder, through=through)
        assert str(folder) in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes", [{"metadata": []}, {"weights": {"scaling_factor": torch.ones(24)}}]
)
def test_what_makes_no_difference_is_read(sae_folder, changes):
    assert len(read_sae(sae_folder("standard", **changes), through="files")) == 24


def test_missing_and_damaged_parts(sae_folder, tmp_path, texts):
    with pytest.raises(InputError, check=texts):
        read_sae(tmp_path / "none")
    folder = sae_folder("gated")
    weights = folder / "sae_weights.safetensors"
    with pytest.raises(InputError, check=texts):
        read_sae(weights)
    tensors = load_file(weights)
    save_file({n: t for n, t in tensors.items() if n != "r_mag"}, weights)
    with pytest.raises(InputError, match="r_mag", check=texts):
        read_sae(folder)
    whole = weights.read_bytes()
    for content, message in (
        (whole[: len(whole) // 2], "truncated or damaged"),
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    ):
        weights.write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_sae(folder)
    weights.unlink()
    with pytest.raises(InputError, match=r"sae_weights\.safetensors", check=texts):
        read_sae(folder)
    weights.write_bytes(whole)
    (folder / "cfg.json").write_text('{"architecture": ["gated"]}')
    with pytest.raises(InputError, match=r"the architecture \['gated'\]"):
        read_sae(folder)
    (folder / "cfg.json").write_text("{")
    with pytest.raises(InputError, match=r"cfg\.json", check=texts):
        read_sae(folder)
    (folder / "cfg.json").unlink()
    with pytest.raises(InputError, match=r"cfg\.json", check=texts):
        read_sae(folder)
