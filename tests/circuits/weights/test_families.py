"""Weights of many families: scores of queries and keys, and what heads write."""

import pytest
import torch

import interp_toolkit as it
from interp_toolkit.circuits import ov_circuit, qk_circuit
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.forward import run
from interp_toolkit.models.running.hooks import hook_points, store_in
from interp_toolkit.models.running.interventions import edit
from interp_toolkit.models.weights.view import weights
from interp_toolkit.testing.families import loaded

FAMILIES = (
    *("Qwen3", "Olmo2", "Olmo3", "Gemma3", "GptOss", "Cohere", "GPTNeo", "GPTJ", "Exaone4"),
    *(
        "SmolLM3",
        "Qwen3Next",
        "OPT",
        "Apertus",
        "DeepseekV2",
        "DeepseekV3",
        "NanoChat",
        "FalconH1",
        "XGLM",
    ),
)
LATENT = ("DeepseekV2", "DeepseekV3")


@pytest.fixture(params=FAMILIES)
def model(request):
    try:
        return loaded(request.param)[1]
    except (InputError, AttributeError) as error:
        pytest.skip(str(error))


def values(model, names):
    tokens = torch.randint(3, 50, (1, 12), generator=torch.Generator().manual_seed(2))
    points, out = hook_points(model), {}
    run(model, tokens, [(points[name], store_in(out, name)) for name in names])
    return out


def test_scores_through_the_norms_are_the_models(model):
    layer = model.cfg.n_layers - 1
    at = f"blocks.{layer}"
    names = [f"{at}.hook_resid_pre", f"{at}.attn.hook_pattern"]
    seen = values(model, names)
    x, pattern = seen[names[0]][0], seen[names[1]][0]
    for head in (0, 3):
        circuit = qk_circuit(model, layer, head)
        positions = torch.arange(12)
        placed = (positions, positions) if circuit.rotary is not None else ()
        scores = circuit.score(x, x, *placed)
        terms = circuit.terms(x, x, *placed)
        together = terms.both + terms.query + terms.key + terms.constant
        torch.testing.assert_close(scores, together, atol=1e-4, rtol=1e-4)
        # differences of scores are those of log-probabilities, whatever sinks take
        shown = pattern[head] > 1e-4
        log = pattern[head].clamp_min(1e-30).log()
        for query in range(2, 12):
            keys = shown[query].nonzero()[:, 0]
            own = (scores[query, keys] - scores[query, keys[0]]).detach()
            torch.testing.assert_close(
                own, log[query, keys] - log[query, keys[0]], atol=2e-3, rtol=1e-3
            )


def test_factors_are_scores_up_to_a_scale_of_query_and_key(model):
    """The division by the norms of queries and keys is one positive number for each."""
    layer = model.cfg.n_layers - 1
    x = values(model, [f"blocks.{layer}.hook_resid_pre"])[f"blocks.{layer}.hook_resid_pre"][0]
    circuit = qk_circuit(model, layer, 1)
    if circuit.rotary is not None:
        circuit = circuit.at_distance(0)
    if any(bool(b.any()) for b in (circuit.b_Q, circuit.b_K)):
        pytest.skip("biases are no part of the matrix")
    if circuit.divided_by[1] is not None and circuit.divided_by[1].last is not None:
        pytest.skip("only a part of each key is divided")
    n = circuit.norm(x)
    matrix = n @ circuit.matrix.AB @ n.T
    ratio = (circuit.score(x, x) / matrix)[:6, :6]
    assert (ratio > 0).all()
    torch.testing.assert_close(ratio, ratio[:, :1] * ratio[:1] / ratio[0, 0], atol=1e-3, rtol=1e-3)
    assert (torch.linalg.svdvals(ratio)[1:] < 1e-3 * torch.linalg.svdvals(ratio)[0]).all()


def test_what_heads_write_is_the_layers_output(model):
    layer = model.cfg.n_layers - 1
    names = [f"blocks.{layer}.attn.hook_z", f"blocks.{layer}.hook_attn_out"]
    seen = values(model, names)
    w = weights(model).outputs(layer)
    wrote = w.post_norm(w.written(seen[names[0]]))
    torch.testing.assert_close(wrote, w.factor * seen[names[1]], atol=1e-4, rtol=1e-4)
    assert ov_circuit(model, layer, 0).svd().singular_values.min() >= 0


@pytest.mark.parametrize("family", LATENT)
def test_values_from_latents_reach_the_logits_as_in_the_original(family):
    """At position 0 a token attends to itself alone: what it writes is its value."""
    original, model = loaded(family)
    attention, tokens = original.model.layers[0].self_attn, torch.arange(50)
    with torch.no_grad():
        x = original.model.layers[0].input_layernorm(original.model.embed_tokens(tokens))
        rank = attention.kv_lora_rank
        latent = attention.kv_a_layernorm(attention.kv_a_proj_with_mqa(x)[:, :rank])
        both = attention.kv_b_proj(latent).reshape(50, 4, -1)
        v = both[..., attention.qk_nope_head_dim :]
        for head in range(4):
            n = attention.v_head_dim
            wrote = v[:, head] @ attention.o_proj.weight[:, n * head : n * head + n].T
            truth = (wrote * original.model.norm.weight) @ original.lm_head.weight.T
            truth = truth - truth.mean(-1, keepdim=True)
            circuit = ov_circuit(model, 0, head)
            torch.testing.assert_close(circuit.tokens().matrix(), truth, atol=1e-4, rtol=1e-4)
            # without the division, up to one positive number for each token
            linear = circuit._sources(None, circuit.W_V) @ circuit._logits().T
            factor = (truth * linear).sum(-1) / linear.square().sum(-1)
            assert (factor > 0).all()
            torch.testing.assert_close(linear * factor[:, None], truth, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", LATENT)
def test_the_typical_size_of_a_latent_is_that_of_random_vectors(family):
    _, model = loaded(family)
    w = weights(model).layer(0)
    x = torch.randn(4000, w.W_V.shape[1], generator=torch.Generator().manual_seed(0))
    scales = w.kv_latent.norm.scale(w.norm(x).detach() @ w.kv_latent.W) / w.kv_latent.unit
    assert float((scales**2).mean()) == pytest.approx(1, abs=0.05)


def test_ablation_by_head_is_by_head():
    original, model = loaded("DeepseekV3")
    tokens = torch.tensor([[5, 9, 12, 7, 33, 21, 5, 9, 40, 3]])
    for head in range(4):

        def zero(module, args, at=slice(6 * head, 6 * head + 6)):
            x = args[0].clone()
            x[..., at] = 0
            return (x,)

        handle = original.model.layers[0].self_attn.o_proj.register_forward_pre_hook(zero)
        with torch.no_grad():
            truth = original(tokens).logits
            handle.remove()
            with it.ablate(model, heads=[(0, head)], how="zero"):
                ours = model(tokens)
        torch.testing.assert_close(ours, truth, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("family", "hook"),
    [("GPTJ", "blocks.0.attn.hook_pattern"), ("Mixtral", "blocks.0.mlp.gate.hook_out")],
)
def test_edits_that_do_nothing_are_told_before(family, hook):
    _, model = loaded(family)
    with pytest.raises(it.InterventionError), edit(model, {hook: lambda x, hook: 0 * x}):
        pass
