"""No fault in sound models, at the price told, and the model is left as it was."""

from __future__ import annotations

import json
import warnings
from importlib.metadata import version
from types import SimpleNamespace

import pytest
import torch
from family_models import loaded_or_skipped
from huggingface_files import save_quietly
from planted_faults import transposed_head
from tiny_models import LLAMA, hf_model
from torch import nn
from transformer_lens.hook_points import HookPoint

import interp_toolkit as it
from interp_toolkit.diagnosis.bench import Bench, breaking, points_of, probe_rows
from interp_toolkit.diagnosis.checks import Check, judged, listed
from interp_toolkit.diagnosis.sections.firing import RUNS
from interp_toolkit.diagnosis.sections.sums import FAULTS, present_in
from interp_toolkit.report.html import write_json, write_report
from interp_toolkit.testing.families import loaded

KINDS = (
    *("own", "own-rotary", "own-bare", "own-capped", "own-bfloat16"),
    *("hooked", "hooked-rotary", "hooked-parallel", "hooked-capped", "hooked-folded", "alibi"),
    *("native", "native-rotary", "gpt2", "gpt2-folded", "llama", "llama-float64", "mistral"),
    *("neox", "bloom", "bert", "gemma2", "qwen2", "gpt2-tokens", "hooked-tokens"),
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_sound_model_has_no_faults(made, kind, tokens) -> None:
    model = made(kind)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    calls = []
    counter = model.register_forward_pre_hook(lambda module, args: calls.append(args[0].numel()))
    result = it.doctor(model)
    counter.remove()
    assert result.status == "sound", result.faults
    probe = result.provenance.data["rows"] * result.provenance.data["positions"]
    assert sum(calls) / probe <= result.evidence.bare_passes < 20
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(not point.fwd_hooks for point in model.hook_dict.values()) or kind == "bert"


@pytest.mark.parametrize("toy", ["xor-2head", "induction-trained", "sort-argmax", "uand"])
def test_a_toy_is_sound(toy) -> None:
    assert it.doctor(f"toy:{toy}").status == "sound"


def test_where_edits_do_not_reach_it_is_told_what_to_use(zoo) -> None:
    result = it.doctor(zoo("native"))
    found = {check.name: check for check in result.checks}
    thrown = found["attn.hook_attn_scores reaches"]
    assert thrown.answer == "differs"
    assert thrown.instead == "hook_q and hook_k, or hook_z"
    assert found["attn.hook_result fires"].summary == "silent until model.set_use_attn_result(True)"


def test_a_result_is_shown_and_written(zoo, tmp_path) -> None:
    result = it.doctor(zoo("llama"))
    write_report([result], tmp_path / "report.html")
    write_json([result], tmp_path / "result.json")
    read = json.loads((tmp_path / "result.json").read_text())["results"][0]
    assert read["evidence"]["status"] == "sound"
    assert len(read["checks"]) == len(result.to_frame()) == len(result.checks)
    assert {"section", "name", "answer", "difference", "tolerance"} <= set(read["checks"][0])


def test_a_folder_is_the_original_of_its_model(made, tmp_path) -> None:
    model = made("llama")
    twin = made("llama")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save_quietly(hf_model("LlamaForCausalLM", "LlamaConfig", **LLAMA), tmp_path)
        same = it.doctor(model, original=tmp_path)
    assert [c.answer for c in same.checks if c.section == "original"] == ["passed"]
    transposed_head(twin)
    assert it.doctor(twin, original=str(tmp_path)).status == "faults_found"
    with pytest.raises(it.InputError, match="a config"):
        it.doctor(model, original=tmp_path / "nothing")


def test_a_prompt_needs_a_tokenizer(made, texts) -> None:
    with pytest.raises(it.InputError, match="no tokenizer"):
        it.doctor("toy:xor-2head", prompt="a b")
    result = it.doctor(made("gpt2-tokens"), prompt=["a b c", "<s> a"])
    answers = {check.name: check.answer for check in result.checks if check.section == "prompts"}
    assert answers["BOS at most once"] == "passed"
    assert answers["BOS in a prompt's text is not doubled"] == "differs"


def test_no_random_draw_of_the_user_changes(made) -> None:
    model = made("gpt2")  # a fresh copy of which draws its weights
    torch.manual_seed(5)
    expected = float(torch.rand(()))
    torch.manual_seed(5)
    it.doctor(model)
    assert float(torch.rand(())) == expected


def test_what_is_no_model_is_refused(zoo, texts) -> None:
    with pytest.raises(it.InputError, match="TransformerLens", check=texts):
        it.doctor(nn.Linear(2, 2))
    model = it.load("toy:xor-2head")
    with torch.no_grad():
        model.embed.W_E.fill_(torch.nan)
    with pytest.raises(it.InputError, match="not finite"):
        it.doctor(model)


def test_hook_points_that_make_a_model_fail_are_found() -> None:
    model = it.load("toy:induction")
    points = points_of(model)

    def fail(*args):
        raise RuntimeError("no")

    points["blocks.0.attn.hook_z"].register_forward_hook(fail)
    bench = Bench(probe_rows(model))
    kinds = {name: {name: point} for name, point in points.items()}
    with pytest.raises(RuntimeError):
        bench.run(model)
    assert "blocks.0.attn.hook_z" in breaking(bench, model, kinds)


@pytest.mark.parametrize("family", ["NanoChat", "Olmo"])
def test_hooks_that_a_fresh_bridge_cannot_take_either_are_no_fault(family) -> None:
    _, model = loaded_or_skipped(family)
    result = it.doctor(model)
    answers = {check.name: check.answer for check in result.checks}
    assert (result.status, answers.get(RUNS)) == ("sound", "differs")


def test_a_hook_that_breaks_this_bridge_alone_is_a_fault() -> None:
    _, model = loaded("Llama")

    def fail(*args):
        raise RuntimeError("no")

    class Breaking(HookPoint):
        def add_hook(self, *args, **kwargs):
            super().add_hook(fail)

    model.hook_dict["blocks.0.attn.hook_z"].__class__ = Breaking
    answers = {check.name: check.answer for check in it.doctor(model).checks}
    assert answers[RUNS] == "failed"


@pytest.mark.parametrize(
    ("difference", "tolerance", "scale", "answer"),
    [
        (0.0, 0.0, 0.0, "passed"),
        (1e-6, 1e-5, 1.0, "passed"),
        (2e-5, 1e-5, 1.0, "failed"),
        (0.5, 0.9, 1.0, "undecided"),
        (0.01, 0.9, 1.0, "passed"),
        (float("nan"), 1.0, 1.0, "failed"),
    ],
)
def test_a_difference_beside_its_tolerance(difference, tolerance, scale, answer) -> None:
    assert judged(difference, tolerance, scale) == answer


def test_known_faults_name_releases(texts) -> None:
    assert all(fault.releases and fault.gone not in fault.releases for fault in FAULTS)
    texts(listed(["a", "b", "c", "d", "e"]))


def test_norms_behind_the_sums_are_a_design_not_a_fault(recwarn, has_hooked_transformer) -> None:
    if not has_hooked_transformer:
        pytest.skip("TransformerLens 4 has no HookedEncoder")
    import transformer_lens as tl

    sizes = {"n_layers": 2, "d_model": 32, "n_heads": 4, "d_head": 8, "n_ctx": 16, "d_vocab": 20}
    config = tl.HookedTransformerConfig(
        **sizes, act_fn="gelu", normalization_type="LN", attention_dir="bidirectional"
    )
    model = tl.HookedEncoder(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    result = it.doctor(model)
    assert result.status == "sound", result.faults
    differing = [check for check in result.checks if check.answer == "differs"]
    assert any("norms follow" in check.summary for check in differing)
    with torch.no_grad():  # a fault of such a model is still one
        model.blocks[1].attn.hook_z.add_perma_hook(lambda z, hook: 1.5 * z)
    assert it.doctor(model).status == "faults_found"


def test_a_module_without_blocks_need_not_be_causal(texts) -> None:
    from transformer_lens import HookedRootModule
    from transformer_lens.hook_points import HookPoint

    class Bag(HookedRootModule):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.out = nn.Embedding(12, 16), nn.Linear(16, 12)
            self.hook_hidden = HookPoint()
            sizes = {"d_model": 16, "d_vocab": 12, "n_ctx": 3, "n_layers": 0}
            self.cfg = SimpleNamespace(**sizes, device="cpu", dtype=torch.float32)
            self.setup()

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.out(self.hook_hidden(self.embed(tokens).sum(1)))
            return logits

    result = it.doctor(Bag().eval())
    assert result.faults == [], result.faults
    said = {check.name: check.summary for check in result.checks}
    assert "without blocks" in said["padding on the right changes nothing before it"]


def test_a_mamba_bridge_that_loses_weights_is_a_known_fault() -> None:
    import transformers

    config = transformers.MambaConfig(
        vocab_size=32, hidden_size=16, state_size=4, num_hidden_layers=1, pad_token_id=0
    )
    model = transformers.MambaForCausalLM(config)
    check = Check("reload", "loading the state dict sets every tensor", "failed", "left unset")
    known = present_in(SimpleNamespace(original_model=model), check)
    here = version("transformer-lens")
    assert (known is not None) == (here in ("3.9.0", "4.3.0"))


def test_learned_sinks_take_the_rest_of_a_pattern() -> None:
    from interp_toolkit.diagnosis.bench import Recorded
    from interp_toolkit.diagnosis.sections.sums import check_patterns

    def answers(sinks):
        scores = torch.randn(2, 4, 6, 6).masked_fill(~torch.ones(6, 6).tril().bool(), -torch.inf)
        rest = torch.randn(4)[:, None, None].expand(2, 4, 6, 1)
        pattern = torch.cat([scores, rest], -1).softmax(-1)[..., :-1]
        attn = nn.Module()
        attn.sinks = sinks
        block = nn.Module()
        block.attn = attn
        cfg = SimpleNamespace(n_layers=1, attention_dir="causal")
        model = SimpleNamespace(blocks=[block], cfg=cfg)
        seen = Recorded({"blocks.0.attn.hook_pattern": pattern})
        return {check.name: check.answer for check in check_patterns(model, seen, None)}

    assert answers(torch.zeros(4))["patterns sum to 1"] == "differs"
    assert answers(None)["patterns sum to 1"] == "failed"


def test_a_model_that_takes_rows_of_one_length_is_examined(made, texts) -> None:
    model = made("hooked")
    n_ctx = int(model.cfg.n_ctx)
    mask = torch.zeros(n_ctx, n_ctx)
    handle = model.blocks[0].attn.hook_attn_scores.register_forward_hook(
        lambda module, args, scores: scores + mask
    )
    rows = torch.randint(int(model.cfg.d_vocab), (4, n_ctx))
    for options in ({}, {"prompt": rows}):
        result = it.doctor(model, **options)
        assert result.provenance.data["positions"] == n_ctx
        by_name = {check.name: check.answer for check in result.checks}
        assert by_name["padding on the right changes nothing before it"] == "not_applicable"
    handle.remove()
    with pytest.raises(it.InputError, match=r"give token ids \[row position\]"):
        it.doctor(model, prompt=torch.zeros(3))


def test_options_of_loading_are_refused_with_a_live_model(texts) -> None:
    with pytest.raises(it.InputError, check=texts):
        it.doctor(it.load("toy:induction"), device="cpu")
