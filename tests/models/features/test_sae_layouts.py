"""SAEs of other libraries, each saved as its library saves it, against its library's formula."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.features.sae_files import read_sae

D_IN, LATENTS, K = 6, 10, 3


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def linear() -> dict[str, Tensor]:
    """Two `nn.Linear`s as a state dict has them."""
    return {
        "encoder.weight": drawn(LATENTS, D_IN),
        "encoder.bias": 0.1 * drawn(LATENTS),
        "decoder.weight": 2 * drawn(D_IN, LATENTS),
    }


def matrices() -> dict[str, Tensor]:
    return {
        "W_enc": drawn(D_IN, LATENTS),
        "W_dec": 2 * drawn(LATENTS, D_IN),
        "b_enc": 0.1 * drawn(LATENTS),
        "b_dec": drawn(D_IN),
        "threshold": drawn(LATENTS).abs(),
    }


def pre(w: dict[str, Tensor], x: Tensor) -> Tensor:
    return torch.nn.functional.linear(x, w["encoder.weight"], w["encoder.bias"])


def top(values: Tensor, k: int = K) -> Tensor:
    least = values.topk(k, dim=-1).values[:, -1:]
    return torch.where(values >= least, values.relu(), 0.0)


def gated(w: dict[str, Tensor], x: Tensor) -> Tensor:
    inside = (x - w["decoder_bias"]) @ w["encoder.weight"].T
    on = (inside + w["gate_bias"] > 0).float()
    size = (w["r_mag"].exp() * inside + w["mag_bias"]).relu()
    return on * size


GATES = {
    "decoder_bias": drawn(D_IN),
    "gate_bias": 0.1 * drawn(LATENTS),
    "mag_bias": 0.2 * drawn(LATENTS),
    "r_mag": 0.3 * drawn(LATENTS),
}
Formula = Callable[[dict[str, Tensor], Tensor], Tensor]
#: class -> its state dict, and its latents of some activations
DICTIONARIES: dict[str, tuple[dict[str, Tensor], Formula]] = {
    "AutoEncoder": (
        linear() | {"bias": drawn(D_IN)},
        lambda w, x: pre(w, x - w["bias"]).relu() * w["decoder.weight"].norm(dim=0),
    ),
    "AutoEncoderNew": (
        linear() | {"decoder.bias": drawn(D_IN)},
        lambda w, x: pre(w, x).relu(),
    ),
    "GatedAutoEncoder": (
        {n: t for n, t in linear().items() if n != "encoder.bias"} | GATES,
        gated,
    ),
    "AutoEncoderTopK": (
        linear() | {"b_dec": drawn(D_IN), "k": torch.tensor(K), "threshold": torch.tensor(0.5)},
        lambda w, x: top(pre(w, x - w["b_dec"])),
    ),
    "BatchTopKSAE": (
        linear() | {"b_dec": drawn(D_IN), "k": torch.tensor(K), "threshold": torch.tensor(0.5)},
        lambda w, x: pre(w, x - w["b_dec"]).relu() * (pre(w, x - w["b_dec"]).relu() > 0.5),
    ),
    "JumpReluAutoEncoder": (
        matrices(),
        lambda w, x: jump(w, x),
    ),
    "MatryoshkaBatchTopKSAE": (
        matrices() | {"threshold": torch.tensor(0.4), "k": torch.tensor(K)},
        lambda w, x: jump(w, x - w["b_dec"]),
    ),
}


def jump(w: dict[str, Tensor], x: Tensor) -> Tensor:
    inside = x @ w["W_enc"] + w["b_enc"]
    return inside.relu() * (inside > w["threshold"])


def dictionary(folder: Path, kind: str, weights: dict[str, Tensor], **trainer: object) -> Path:
    folder.mkdir(exist_ok=True)
    trainer = {"dict_class": kind, "submodule_name": "resid_post_layer_1"} | trainer
    (folder / "config.json").write_text(json.dumps({"trainer": trainer}))
    torch.save(weights, folder / "ae.pt")
    return folder


@pytest.mark.parametrize("kind", DICTIONARIES)
def test_latents_of_dictionary_learning(kind: str, tmp_path: Path) -> None:
    weights, formula = DICTIONARIES[kind]
    sae, x = read_sae(dictionary(tmp_path, kind, weights)), drawn(20, D_IN)
    wanted = formula(weights, x)
    assert 0 < int((wanted > 0).sum()) < wanted.numel()
    torch.testing.assert_close(sae.encode(x), wanted, atol=1e-5, rtol=1e-5)
    assert sae.hook == "blocks.1.hook_resid_post"


def test_lengths_move_from_the_decoder_to_the_latents(tmp_path: Path) -> None:
    weights, _ = DICTIONARIES["AutoEncoder"]
    sae, x = read_sae(dictionary(tmp_path, "AutoEncoder", weights)), drawn(20, D_IN)
    wanted = pre(weights, x - weights["bias"]).relu() @ weights["decoder.weight"].T
    torch.testing.assert_close(sae.encode(x) @ sae.W_dec, wanted, atol=1e-5, rtol=1e-5)
    assert torch.allclose(sae.W_dec.norm(dim=1), torch.ones(LATENTS))
    assert "0.1.0" in sae.source


@pytest.mark.parametrize("transcode", [False, True])
def test_latents_of_sparsify(transcode: bool, tmp_path: Path) -> None:
    folder = tmp_path / "layers.2"
    folder.mkdir()
    weights = {n: t for n, t in linear().items() if n.startswith("encoder")}
    weights |= {"W_dec": drawn(LATENTS, D_IN), "b_dec": drawn(D_IN)}
    (folder / "cfg.json").write_text(json.dumps({"k": K, "d_in": D_IN, "transcode": transcode}))
    save_file(weights, folder / "sae.safetensors")
    sae, x = read_sae(folder), drawn(20, D_IN)
    wanted = top(pre(weights, x if transcode else x - weights["b_dec"]).relu())
    torch.testing.assert_close(sae.encode(x), wanted, atol=1e-5, rtol=1e-5)
    assert torch.equal(sae.directions("decoder"), weights["W_dec"])
    assert sae.hook == (None if transcode else "blocks.2.hook_resid_post")


def test_groupmax_is_the_largest_of_each_group(tmp_path: Path) -> None:
    folder = tmp_path / "layers.2"
    folder.mkdir()
    weights = {n: t for n, t in linear().items() if n.startswith("encoder")}
    weights |= {"W_dec": drawn(LATENTS, D_IN), "b_dec": drawn(D_IN)}
    cfg = {"k": 5, "d_in": D_IN, "activation": "groupmax"}
    (folder / "cfg.json").write_text(json.dumps(cfg))
    save_file(weights, folder / "sae.safetensors")
    x = drawn(20, D_IN)
    latents = read_sae(folder).encode(x)
    inside = pre(weights, x - weights["b_dec"]).relu()
    for row, own in zip(inside.tolist(), latents.tolist(), strict=True):
        for group in range(5):
            both = row[2 * group : 2 * group + 2]
            expected = [value if value == max(both) else 0.0 for value in both]
            assert own[2 * group : 2 * group + 2] == pytest.approx(expected, abs=1e-5)
    (folder / "cfg.json").write_text(json.dumps(cfg | {"k": 3}))
    with pytest.raises(InputError):
        read_sae(folder)


def llamascopium(folder: Path, **settings: object) -> tuple[Path, dict[str, Tensor], dict]:
    hook = "blocks.1.hook_resid_post"
    cfg = {"sae_type": "sae", "d_model": D_IN, "hook_point_in": hook, "hook_point_out": hook}
    cfg |= {"norm_activation": "inference", "top_k": K} | settings
    w = matrices()
    stored = {"W_E": w["W_enc"], "b_E": w["b_enc"], "W_D": w["W_dec"], "b_D": w["b_dec"]}
    stored["activation_function.log_jumprelu_threshold"] = w["threshold"].log()
    stored[f"dataset_average_activation_norm.{hook}"] = torch.tensor(5.0)
    (folder / "config.json").write_text(json.dumps(cfg))
    save_file({n: t.contiguous() for n, t in stored.items()}, folder / "sae_weights.safetensors")
    return folder, w, cfg


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("scaling", ["inference", "dataset-wise", "token-wise"])
@pytest.mark.parametrize("activation", ["relu", "jumprelu", "topk"])
def test_latents_of_llamascopium(
    activation: str, scaling: str, include: bool, tmp_path: Path
) -> None:
    folder, w, _ = llamascopium(
        tmp_path,
        act_fn=activation,
        norm_activation=scaling,
        sparsity_include_decoder_norm=include,
    )
    x = drawn(20, D_IN)
    lengths = {"inference": D_IN**0.5, "dataset-wise": 5.0, "token-wise": x.norm(dim=1)[:, None]}
    inside = (x * D_IN**0.5 / lengths[scaling]) @ w["W_enc"] + w["b_enc"]
    gate = inside * w["W_dec"].norm(dim=1) if include else inside
    on = {
        "relu": gate > 0,
        "jumprelu": gate > w["threshold"],
        "topk": (gate >= gate.topk(K, dim=-1).values[:, -1:]) & (gate > 0),
    }[activation]
    wanted = inside * on
    assert 0 < int(on.sum()) < on.numel()
    sae = read_sae(folder)
    torch.testing.assert_close(sae.encode(x), wanted, atol=1e-5, rtol=1e-5)
    assert sae.hook == "blocks.1.hook_resid_post"


@pytest.mark.parametrize(
    "settings",
    [
        {"act_fn": "batchtopk"},
        {"norm_activation": "batch-wise"},
        {"use_glu_encoder": True},
        {"sae_type": "crosscoder"},
    ],
    ids=str,
)
def test_what_llamascopium_computes_otherwise_is_refused(settings, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read_sae(llamascopium(tmp_path, **settings)[0])
    assert len(str(error.value)) <= 300 + len(str(tmp_path))


@pytest.mark.parametrize(
    ("place", "hook"),
    [
        ("gemma-scope-2b-pt-res/layer_3/width_16k/average_l0_71", "blocks.3.hook_resid_post"),
        ("gemma-scope-2b-pt-mlp/layer_3/width_16k", "blocks.3.hook_mlp_out"),
        ("of-mine", None),
    ],
)
def test_latents_of_gemma_scope(place: str, hook: str | None, tmp_path: Path) -> None:
    folder = tmp_path / place
    folder.mkdir(parents=True)
    weights = matrices()
    np.savez(folder / "params.npz", **{name: t.numpy() for name, t in weights.items()})
    sae, x = read_sae(folder), drawn(20, D_IN)
    torch.testing.assert_close(sae.encode(x), jump(weights, x), atol=1e-5, rtol=1e-5)
    assert sae.hook == hook


@pytest.mark.parametrize("kind", ["transcoder", "skip_transcoder", "jumprelu_transcoder"])
def test_latents_of_saelens_transcoders(kind: str, sae_folder) -> None:
    base = "jumprelu" if kind.startswith("jumprelu") else "standard"
    folder = sae_folder(base)
    cfg = json.loads((folder / "cfg.json").read_text())
    plain = read_sae(folder, through="files")
    cfg |= {"architecture": kind, "d_out": 16}
    (folder / "cfg.json").write_text(json.dumps(cfg))
    sae, x = read_sae(folder), drawn(20, 16)
    inside = x @ plain.W_enc + plain.vectors["b_enc"]  # b_dec is of the output
    floor = plain.vectors["threshold"] if base == "jumprelu" else torch.tensor(0.0)
    wanted = inside.relu() * (inside > floor)
    torch.testing.assert_close(sae.encode(x), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "files",
    [
        {"config.json": "{}", "sae.pt": ""},  # BatchTopK
        {"hyperparams.json": "{}", "final.safetensors": ""},  # Llama Scope
        {"cfg.json": "{}", "cc_weights.pt": ""},  # crosscoders
        {"layers.0/cfg.json": "{}", "layers.10/cfg.json": "{}"},
        {"trainer_0/config.json": "{}", "trainer_0/ae.pt": ""},
    ],
)
def test_folders_of_other_layouts_are_refused_with_what_is_inside(
    tmp_path: Path, files: dict[str, str], texts
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, check=texts):
        read_sae(tmp_path)


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    weights, _ = DICTIONARIES["BatchTopKSAE"]
    unset = dictionary(
        tmp_path / "unset", "BatchTopKSAE", weights | {"threshold": torch.tensor(-1.0)}
    )
    other = dictionary(tmp_path / "other", "CrossCoder", weights)
    lacking = dictionary(tmp_path / "lacking", "AutoEncoder", weights)
    (tmp_path / "empty").mkdir()
    np.savez(tmp_path / "empty" / "params.npz", W_enc=np.array(["a"]))
    for folder, words in (
        (unset, "threshold was never set"),
        (other, "'CrossCoder' is not supported"),
        (lacking, "lacks bias"),
        (tmp_path / "empty", "not an array of floating-point numbers"),
    ):
        with pytest.raises(InputError, match=words) as error:
            read_sae(folder)
        assert len(str(error.value).removeprefix(str(folder))) <= 300
    with pytest.raises(InputError, match="leave `through` out"):
        read_sae(dictionary(tmp_path / "fine", "BatchTopKSAE", weights), through="saelens")
