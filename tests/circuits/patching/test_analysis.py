"""`--probe patching`: every cell against a pass with one hook, known circuits, refusals."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_models import HAS_HOOKED_TRANSFORMER

import interp_toolkit as it
from interp_toolkit.circuits.metrics.metrics import LogitDifference
from interp_toolkit.circuits.metrics.prompts import prompts_from_data
from interp_toolkit.circuits.patching.analysis import corrupted_repeats
from interp_toolkit.circuits.patching.passes import HOOKS, PatchSite, patch, patchable_hooks
from interp_toolkit.data import FeatureData
from interp_toolkit.stats import estimate


def hooked():
    """A small HookedTransformer with MLPs, norms and biases unlike 0."""
    if not HAS_HOOKED_TRANSFORMER:
        pytest.skip("this TransformerLens has no HookedTransformer")
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    config = {"n_layers": 2, "n_heads": 3, "d_model": 24, "d_head": 8, "n_ctx": 12, "d_mlp": 32}
    fixed = {"act_fn": "gelu", "normalization_type": "LN", "seed": 0, "device": "cpu"}
    model = HookedTransformer(HookedTransformerConfig(**config, **fixed, d_vocab=20))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def prompts_of(model, n=5, n_pos=9):
    rng = np.random.default_rng(0)
    tokens, corrupted = (rng.integers(0, 20, (n, n_pos)) for _ in range(2))
    corrupted[:, :2] = tokens[:, :2]
    answers = rng.integers(0, 20, n)
    data = FeatureData(
        tokens,
        np.zeros((n, 0), bool),
        (),
        answers=answers,
        wrong=(answers + 1) % 20,
        corrupted=corrupted,
    )
    return data, prompts_from_data(data, model)


def difference(logits, prompts):
    last = logits[:, -1].double()
    return (last.gather(1, prompts.answers) - last.gather(1, prompts.wrong))[:, 0].detach().numpy()


@pytest.mark.parametrize("into", ["corrupted", "clean"])
def test_every_cell_is_one_pass_with_one_hook(into):
    model = hooked()
    _, prompts = prompts_of(model)
    patched = patch(model, prompts, LogitDifference(prompts), into=into)
    sources = {"clean": prompts.tokens, "corrupted": prompts.corrupted}
    base, donor = sources.pop(into), next(iter(sources.values()))
    with torch.no_grad():
        _, cache = model.run_with_cache(donor)
        assert len(patched.values) == 2 * (3 * prompts.n_pos + 3)
        for site, values in patched.values.items():

            def put(value, hook, site=site):
                index = (
                    (slice(None), slice(None), site.at)
                    if site.kind == "head"
                    else (slice(None), site.at)
                )
                value[index] = cache[hook.name][index]
                return value

            logits = model.run_with_hooks(base, fwd_hooks=[(site.hook, put)])
            np.testing.assert_allclose(values, difference(logits, prompts), atol=1e-5)
    np.testing.assert_allclose(patched.clean, difference(model(prompts.tokens), prompts), atol=1e-5)


def test_other_prompts_activations_are_of_the_patched_kind():
    """Prompts that are corrupted alike have no other activations to differ by."""
    model = hooked()
    _, prompts = prompts_of(model)
    alike = replace(prompts, corrupted=prompts.corrupted[:1].expand_as(prompts.corrupted))
    site = PatchSite("head", 1, 0)
    patched = patch(model, alike, LogitDifference(alike), [site], others=True)
    np.testing.assert_allclose(patched.values[site], patched.corrupted, atol=1e-6)
    patched = patch(model, prompts, LogitDifference(prompts), [site], others=True)
    assert np.abs(patched.values[site] - patched.corrupted).max() > 1e-4


def test_batches_do_not_change_the_effects(monkeypatch):
    from interp_toolkit.circuits.patching import passes

    model = hooked()
    _, prompts = prompts_of(model)
    whole = patch(model, prompts, LogitDifference(prompts))
    monkeypatch.setattr(passes, "CACHED_TOKENS", 20)  # two prompts at once, one site at once
    parts = patch(model, prompts, LogitDifference(prompts))
    for site, values in whole.values.items():
        np.testing.assert_allclose(parts.values[site], values, atol=1e-5)


def test_the_induction_toy():
    """The induction head is detected and nothing else; the numbers are those of the passes."""
    model = it.load("toy:induction")
    result = it.analyze(model, "patching")
    heads = {site.name: site.status for site in result.sites if site.kind == "head"}
    assert heads == {"L1H0": "detected"} | dict.fromkeys(("L0H0", "L0H1", "L1H1"), "not_detected")
    data = corrupted_repeats(model)
    prompts = prompts_from_data(data, model)
    patched = patch(model, prompts, LogitDifference(prompts), [PatchSite("head", 1, 0)])
    effects = patched.values[PatchSite("head", 1, 0)] - patched.corrupted
    cell = next(site for site in result.sites if site.name == "L1H0")
    expected = estimate(effects, unseen=LogitDifference.unseen)
    assert (cell.effect, cell.low, cell.high) == pytest.approx(
        (expected.mean, expected.low, expected.high)
    )
    gap = patched.clean.mean() - patched.corrupted.mean()
    assert cell.fraction == pytest.approx(effects.mean() / gap)
    assert result.evidence.difference == pytest.approx(gap)
    assert result.evidence.tested == 2 * prompts.n_pos + 4


def test_the_synthetic_answer_follows_from_the_prompt():
    model = it.load("toy:induction-trained")
    data = corrupted_repeats(model, seed=3)
    for row, corrupted, answer, wrong in zip(
        data.tokens, data.corrupted, data.answers[:, 0], data.wrong[:, 0], strict=True
    ):
        before = np.flatnonzero(row[:-1] == row[-1])
        assert set(row[before + 1]) == {answer}
        assert set(corrupted[before + 1]) == {wrong}
        assert ((row != corrupted) == (row == answer)).all()


def test_removing_is_the_mirror_of_restoring_where_a_head_does_all():
    restored = it.analyze("toy:induction", "patching")
    removed = it.analyze("toy:induction", "patching", into="clean")
    for result in (restored, removed):
        cell = next(site for site in result.sites if site.name == "L1H0")
        assert cell.fraction == pytest.approx(1, abs=1e-6)
        assert cell.status == "detected"


def test_without_task_performance_nothing_is_judged():
    result = it.analyze("toy:decoy", "patching")
    assert result.status == "not_tested"
    assert {site.status for site in result.sites if site.kind != "residual"} == {"not_tested"}
    assert all(np.isnan(site.fraction) for site in result.sites)


def test_few_prompts_confirm_nothing():
    model = it.load("toy:induction-trained")
    data = corrupted_repeats(model)
    four = FeatureData(
        data.tokens[:4],
        np.zeros((4, 0), bool),
        (),
        answers=data.answers[:4],
        wrong=data.wrong[:4],
        corrupted=data.corrupted[:4],
    )
    assert it.analyze(model, "patching", data=four).status in ("undecided", "not_tested")


def test_maps_show_every_site():
    result = it.analyze("toy:induction-trained", "patching")
    model = it.load("toy:induction-trained")
    n_pos = 23
    shapes = {
        figure.title: (len(figure.data[0]["z"]), len(figure.data[0]["z"][0]))
        for figure in result.figures()
    }
    assert sorted(shapes.values()) == [(2, 3), (2, n_pos), (2, n_pos)]
    layers, missing = patchable_hooks(model)
    assert {kind: len(of) for kind, of in layers.items()} == {
        "residual": 2,
        "attention": 2,
        "mlp": 0,
        "head": 2,
    }
    assert missing == []
    assert json.dumps(result.to_dict(), allow_nan=True)
    assert len(result.sites) == 2 * 2 * n_pos + 2 * 3
    assert set(HOOKS) == {"residual", "attention", "mlp", "head"}


@pytest.mark.parametrize("lacking", ["--corrupted-column", "answers"])
def test_prompts_without_a_counterpart_are_refused(lacking):
    model = it.load("toy:induction-trained")
    data = corrupted_repeats(model)
    answers = None if lacking == "answers" else data.answers
    without = FeatureData(data.tokens, np.zeros((len(data), 0), bool), (), answers=answers)
    with pytest.raises(it.InputError, match=lacking):
        it.analyze(model, "patching", data=without)


def test_heads_alone_are_what_they_are_among_all_sites():
    """Effects and intervals are the same; fewer tests are corrected for."""
    model = it.load("toy:induction-trained")
    whole = it.analyze(model, "patching", effort="quick")
    heads = it.analyze(model, "patching", effort="quick", kinds=("head",))
    assert {site.kind for site in heads.sites} == {"head"}
    among = {site.name: site for site in whole.sites if site.kind == "head"}
    assert among.keys() == {site.name for site in heads.sites}
    for site in heads.sites:
        other = among[site.name]
        for field in ("effect", "low", "high", "fraction"):
            assert getattr(site, field) == pytest.approx(getattr(other, field), rel=1e-5, abs=1e-6)
        assert site.q_value <= other.q_value
    assert heads.evidence.tested == len(heads.sites) == 6
    assert heads.status == whole.status == "detected"


def test_only_what_is_asked_for_is_patched():
    model = it.load("toy:induction-trained")
    result = it.analyze(model, "patching", effort="quick", kinds=("mlp", "residual"))
    assert {site.kind for site in result.sites} <= {"mlp", "residual"}
    assert result.status != "detected"  # this model has no MLPs
    for kinds in (("heads",), ()):
        with pytest.raises(it.InputError):
            it.analyze(model, "patching", kinds=kinds)
