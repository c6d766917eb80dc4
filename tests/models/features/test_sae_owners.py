"""SAEs written by the libraries themselves, against the latents that these compute.

SAELens is part of the test installation. The others are not: a test runs where they are installed,
last with dictionary-learning 0.1.0, eai-sparsify 1.3.3 and llamascopium 2.0.0b34.
"""

import contextlib
import dataclasses
import io
import json

import pytest
import torch

from interp_toolkit.errors import InputError
from interp_toolkit.models.features.sae_files import read_sae

D_IN, LATENTS, K = 8, 32, 4


def inputs(n=64):
    return torch.randn(n, D_IN, generator=torch.Generator().manual_seed(3)) * 3 + 0.5


def randomised(module, seed=1):
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        values = torch.randn(parameter.shape, generator=generator) * 0.5
        values = values.abs() if "threshold" in name else values
        parameter.data = values.to(parameter.dtype)
    return module.eval()


@torch.no_grad()
def check(folder, encode, x=None):
    x = inputs() if x is None else x
    wanted = encode(x)
    found = read_sae(folder).encode(x)
    assert int((wanted != 0).sum()) > 0
    torch.testing.assert_close(found, wanted, atol=1e-5 * float(wanted.abs().max()), rtol=0)


def of_saelens(registry, name, **more):
    cls, config = registry[name]
    more |= {"decoder_init_norm": 1.0} if name == "matching_pursuit" else {}
    fields = {field.name for field in dataclasses.fields(config)}
    settings = {"d_in": D_IN, "d_sae": LATENTS, "k": K, "matryoshka_widths": [8, LATENTS]} | more
    if "transcoder" in name:
        settings |= {"d_out": 6, "apply_b_dec_to_input": False}
    return randomised(cls(config(**{k: v for k, v in settings.items() if k in fields})))


def test_every_architecture_of_saelens_is_read_or_refused(sae_lens, tmp_path):
    from sae_lens.registry import SAE_CLASS_REGISTRY as REGISTRY

    for name in REGISTRY:
        if name == "temporal":
            continue
        sae = of_saelens(REGISTRY, name)
        sae.save_model(tmp_path / name)
        check(tmp_path / name, sae.encode)
        if "transcoder" in name:
            assert read_sae(tmp_path / name).directions("decoder").shape == (LATENTS, 6)


def test_latents_of_sequences_are_refused(sae_lens, tmp_path):
    from sae_lens.registry import SAE_CLASS_REGISTRY as REGISTRY

    cls, config = REGISTRY["temporal"]
    sae = cls(config(d_in=D_IN, d_sae=LATENTS, n_heads=1, bottleneck_factor=2))
    sae.save_model(tmp_path / "sae")
    with pytest.raises(InputError):
        read_sae(tmp_path / "sae")


@pytest.mark.parametrize("scaled", [None, 0.4])
def test_training_checkpoints_are_what_saelens_makes_of_them(sae_lens, tmp_path, scaled):
    from sae_lens import SAE
    from sae_lens.registry import SAE_TRAINING_CLASS_REGISTRY as REGISTRY

    for name in REGISTRY:
        if scaled and name == "matching_pursuit":
            continue
        more = {"normalize_activations": "expected_average_only_in"} if scaled else {}
        sae = of_saelens(REGISTRY, name, **more)
        if hasattr(sae, "topk_threshold"):
            sae.topk_threshold.fill_(0.7)
        folder = tmp_path / name
        sae.save_model(folder)
        if scaled:
            (folder / "activation_scaler.json").write_text(json.dumps({"scaling_factor": scaled}))
            sae.fold_activation_norm_scaling_factor(scaled)
        sae.save_inference_model(tmp_path / f"{name} for inference")
        check(folder, SAE.load_from_disk(tmp_path / f"{name} for inference").encode)


def test_checkpoints_without_saelens_are_refused(sae_lens, tmp_path, monkeypatch):
    from sae_lens.registry import SAE_TRAINING_CLASS_REGISTRY as REGISTRY

    from interp_toolkit.models.features import sae_files

    of_saelens(REGISTRY, "batchtopk").save_model(tmp_path / "sae")
    monkeypatch.setattr(sae_files, "_saelens", lambda: None)
    with pytest.raises(InputError, match="sae-lens"):
        read_sae(tmp_path / "sae")


TRAINERS = {
    "standard.StandardTrainer": {"l1_penalty": 0.1},
    "standard.StandardTrainerAprilUpdate": {"l1_penalty": 0.1},
    "gdm.GatedSAETrainer": {"l1_penalty": 0.1},
    "jumprelu.JumpReluTrainer": {},
    "top_k.TopKTrainer": {"k": K},
    "batch_top_k.BatchTopKTrainer": {"k": K},
    "matryoshka_batch_top_k.MatryoshkaBatchTopKTrainer": {"k": K, "group_fractions": [0.5, 0.5]},
    "p_anneal.PAnnealTrainer": {},
}


@pytest.mark.parametrize("name", TRAINERS)
def test_what_dictionary_learning_trains_and_loads(name, tmp_path, monkeypatch):
    training = pytest.importorskip("dictionary_learning.training")
    import importlib
    import inspect

    from dictionary_learning.utils import load_dictionary

    module, _, trainer = name.partition(".")
    cls = getattr(importlib.import_module(f"dictionary_learning.trainers.{module}"), trainer)
    settings = {"activation_dim": D_IN, "dict_size": LATENTS, "layer": 0, "lm_name": "m"}
    settings |= {"device": "cpu", "steps": 60, "warmup_steps": 2, "sparsity_warmup_steps": 2}
    settings |= {"seed": 0, "lr": 3e-2, "threshold_start_step": 5} | TRAINERS[name]
    takes = inspect.signature(cls.__init__).parameters
    config = {k: v for k, v in settings.items() if k in takes} | {"trainer": cls}
    data = (inputs() for _ in range(200))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        training.trainSAE(data, [config], steps=60, save_dir=str(tmp_path), device="cpu")
        sae, _ = load_dictionary(str(tmp_path / "trainer_0"), "cpu")
    check(tmp_path / "trainer_0", sae.encode)
    from interp_toolkit.models.features import sae_layouts

    monkeypatch.setattr(sae_layouts, "_release", lambda module, package: None)
    check(tmp_path / "trainer_0", sae.encode)  # by the formulas alone


@pytest.mark.parametrize("activation", ["topk", "groupmax"])
@pytest.mark.parametrize("transcode", [False, True])
def test_what_sparsify_saves(activation, transcode, tmp_path):
    sparsify = pytest.importorskip("sparsify")
    config = sparsify.SparseCoderConfig(
        num_latents=LATENTS, k=K, activation=activation, transcode=transcode
    )
    coder = randomised(sparsify.SparseCoder(D_IN, config))
    coder.save_to_disk(tmp_path / "sae")
    out = coder.encode(inputs())
    wanted = torch.zeros(len(inputs()), LATENTS).scatter_(1, out.top_indices, out.top_acts)
    check(tmp_path / "sae", lambda x: wanted)


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("scaling", ["dataset-wise", "token-wise", "inference"])
@pytest.mark.parametrize("activation", ["relu", "jumprelu", "topk"])
def test_what_llamascopium_saves(activation, scaling, include, tmp_path):
    module = pytest.importorskip("llamascopium.models.sae")
    hook = "blocks.1.hook_resid_post"
    config = module.SAEConfig(
        d_model=D_IN,
        expansion_factor=LATENTS / D_IN,
        hook_point_in=hook,
        hook_point_out=hook,
        act_fn=activation,
        norm_activation=scaling,
        sparsity_include_decoder_norm=include,
        top_k=K,
        dtype=torch.float32,
        device="cpu",
    )
    sae = randomised(module.SparseAutoEncoder(config))
    sae.set_dataset_average_activation_norm({hook: 7.0})
    (tmp_path / "sae").mkdir()
    sae.save_pretrained(str(tmp_path / "sae"))
    sae.cfg.save_hyperparameters(str(tmp_path / "sae"))
    check(tmp_path / "sae", lambda x: sae.encode(sae.normalize_activations({hook: x})[hook]))
