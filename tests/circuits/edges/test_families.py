"""Edges of many families of models against transformers' own modules.

Truth is made by hooks on the original: columns of the output projection's input are those of one
head; what a head reads in one channel is the input of that projection.
"""

import copy
import dataclasses
import functools
import tempfile

import numpy as np
import pytest
import torch
from family_models import loaded_or_skipped

import interp_toolkit as it
from interp_toolkit import load
from interp_toolkit.circuits.edges.graph import edge_json
from interp_toolkit.circuits.edges.passes.attribution import attribute
from interp_toolkit.circuits.edges.passes.edge_ablation import EdgeAblation, SubcircuitPass
from interp_toolkit.circuits.edges.passes.patched_pass import PatchedModel
from interp_toolkit.circuits.edges.run import run_edges
from interp_toolkit.circuits.edges.wiring import Edge, Node
from interp_toolkit.circuits.metrics.metrics import LogitDifference
from interp_toolkit.circuits.metrics.prompts import prompts_from_tokens
from interp_toolkit.errors import InputError
from interp_toolkit.models.weights import read
from interp_toolkit.testing.families import loaded

#: family -> where the stream between attention and MLP can be seen; None: they are parallel
MIDDLE = {
    "Llama": "post_attention_layernorm",
    "Mixtral": "post_attention_layernorm",
    "Qwen3": "post_attention_layernorm",
    "Granite": "post_attention_layernorm",
    "GptOss": "post_attention_layernorm",
    "Gemma2": "pre_feedforward_layernorm",
    "Gemma3": "pre_feedforward_layernorm",
    "Olmo2": "mlp",
    "Cohere": None,
    "Afmoe": "pre_mlp_layernorm",
    "Laguna": "post_attention_layernorm",
    "FalconH1": "pre_ff_layernorm",
    "MiniMaxM2": "post_attention_layernorm",
}
GATES = ("gate_proj", "g_proj")  # computed from what the queries read
ELSEWHERE = (
    *("GPTNeo", "GPTJ", "OPT", "Bloom", "DeepseekV3", "Qwen3Next", "Lfm2", "Mamba", "GlmMoeDsa"),
    *("OlmoHybrid", "BitNet", "Jamba", "NemotronH"),
)


@functools.cache
def case(family):
    original, model = loaded_or_skipped(family)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(3, 50, (3, 10), generator=generator)
    corrupted = tokens.clone()
    corrupted[:, 4:7] = torch.randint(3, 50, (3, 3), generator=generator)
    engine = PatchedModel(model)
    return original, engine, tokens, engine.whole(tokens), engine.whole(corrupted), corrupted


@torch.no_grad()
def logits_of(original, tokens, hooks=()):
    """The original's logits, with (module, input or output, function) in place."""
    handles = []
    for module, which, function in hooks:
        if which == "input":
            handles.append(
                module.register_forward_pre_hook(
                    lambda module, args, f=function: (f(args[0]), *args[1:])
                )
            )
        else:
            handles.append(module.register_forward_hook(lambda m, args, out, f=function: f(out)))
    try:
        return original(tokens).logits
    finally:
        for handle in handles:
            handle.remove()


def seen(original, tokens, modules, hooks=()):
    """The inputs of some modules."""
    values = {}
    watch = [(m, "input", lambda x, m=m: values.setdefault(m, x.clone())) for m in modules]
    logits_of(original, tokens, [*hooks, *watch])
    return [values[m] for m in modules]


@functools.cache
@torch.no_grad()
def rounding(family):
    """What one unit in the last place of every weight moves, of the largest logit."""
    original, _, tokens, *_ = case(family)
    other, generator = copy.deepcopy(original), torch.Generator().manual_seed(3)
    for weight in other.parameters():
        sign = 2 * torch.randint(0, 2, weight.shape, generator=generator) - 1
        weight.mul_(1 + torch.finfo(weight.dtype).eps * sign)
    before, after = (logits_of(m, tokens) for m in (original, other))
    return float((after - before).abs().max() / before.abs().max())


def close(ours, truth, family=None):
    """Equal up to rounding of float32: 5e-5, more for families that are worse conditioned."""
    allowed = 5e-5 if family is None else max(5e-5, 20 * rounding(family))
    torch.testing.assert_close(ours, truth, atol=allowed * float(truth.abs().max()), rtol=0)


@pytest.mark.parametrize("family", [*MIDDLE, *ELSEWHERE])
def test_all_edges_are_the_model_and_none_the_corrupted_one(family):
    original, engine, tokens, whole, other, corrupted = case(family)
    close(whole.logits, logits_of(original, tokens), family)
    gone = engine.logits(whole, other.trace.writes, engine.wiring.edges)
    close(gone, logits_of(original, corrupted), family)
    alone = SubcircuitPass(engine, whole.trace.writes[0], other.trace.writes)
    close(alone.logits(engine.wiring.edges), whole.logits, family)


@pytest.mark.parametrize("family", [*MIDDLE, *ELSEWHERE])
def test_the_rest_ablated_is_the_circuit_alone(family):
    _, engine, _, whole, other, _ = case(family)
    drawn = np.random.default_rng(2).random(len(engine.wiring.edges)) < 0.5
    inside = engine.wiring.masked(drawn)
    alone = SubcircuitPass(engine, whole.trace.writes[0], other.trace.writes).logits(inside)
    close(alone, engine.logits(whole, other.trace.writes, engine.wiring.masked(~drawn)), family)


def parts(original, layer, head, n_heads):
    """The layer, its attention and the columns of one head in the output projection's input."""
    block = original.model.layers[layer]
    width = block.self_attn.o_proj.in_features // n_heads
    return block, block.self_attn, slice(head * width, (head + 1) * width)


def put(columns, z):
    def replaced(x):
        x = x.clone()
        x[..., columns] = z[..., columns]
        return x

    return replaced


@pytest.mark.parametrize("family", list(MIDDLE))
@pytest.mark.parametrize("head", [0, 3])
def test_a_head_s_edges_are_the_head_replaced(family, head):
    original, engine, tokens, whole, other, corrupted = case(family)
    source = Node("head", 0, head)
    _, attn, columns = parts(original, 0, head, engine.wiring.n_heads)
    (z,) = seen(original, corrupted, [attn.o_proj])
    truth = logits_of(original, tokens, [(attn.o_proj, "input", put(columns, z))])
    assert (truth - whole.logits).abs().max() > 1e-3
    close(engine.without(whole, other.trace.writes, source), truth)
    outgoing = [edge for edge in engine.wiring.edges if edge.source == source]
    close(engine.logits(whole, other.trace.writes, outgoing), truth)


@pytest.mark.parametrize("family", list(MIDDLE))
@pytest.mark.parametrize("channel", ["q", "k", "v"])
def test_an_edge_between_heads_is_the_replaced_input_of_one_projection(family, channel):
    original, engine, tokens, whole, other, corrupted = case(family)
    source, target = Node("head", 0, 1), Node("head", 1, 2)
    first, attn, columns = parts(original, 0, 1, engine.wiring.n_heads)
    second, reading, own = parts(original, 1, 2, engine.wiring.n_heads)
    (z,) = seen(original, corrupted, [attn.o_proj])
    middle = second if MIDDLE[family] is None else getattr(first, MIDDLE[family])
    replaced = [(attn.o_proj, "input", put(columns, z))]
    (before,), (after,) = (
        seen(original, tokens, [middle]),
        seen(original, tokens, [middle], replaced),
    )
    (read,) = seen(original, tokens, [second])
    with torch.no_grad():
        x = read + after - before
        x = x if family == "Olmo2" else second.input_layernorm(x)
    gates = [getattr(reading, name) for name in GATES if channel == "q" and hasattr(reading, name)]
    reads = [(p, "input", lambda old: x) for p in [getattr(reading, f"{channel}_proj"), *gates]]
    (altered,) = seen(original, tokens, [reading.o_proj], reads)
    truth = logits_of(original, tokens, [(reading.o_proj, "input", put(own, altered))])
    edge = Edge(source, target, channel)
    assert (truth - whole.logits).abs().max() > 1e-4
    close(engine.logits(whole, other.trace.writes, [edge]), truth)


@pytest.mark.parametrize("family", ["Qwen3", "Gemma2", "Olmo2", "DeepseekV3", "Lfm2", "Granite"])
def test_attribution_is_the_derivative_of_small_ablations(family):
    _, engine, _, whole, other, _ = case(family)
    own = whole.trace.writes
    small = [w + 1e-3 * (r - w) for w, r in zip(own, other.trace.writes, strict=True)]

    def value(logits):
        return logits[:, -1, 5] - logits[:, -1, 9]

    estimates = attribute(engine, whole, small, value, None, 1)
    largest = estimates.abs().mean(0).topk(5).indices.tolist()
    edges = [engine.wiring.edges[i] for i in largest]
    truth = [value(engine.logits(whole, small, [edge])) - value(whole.logits) for edge in edges]
    truth = torch.stack(truth, dim=1)
    torch.testing.assert_close(
        estimates[:, largest], truth, atol=0.02 * float(truth.abs().max()), rtol=0
    )


def test_layers_without_heads_are_one_node():
    _, engine, *_ = case("Lfm2")
    names = {node.name for node in engine.wiring.writers}
    assert {"Mixer0", "MLP0", "L1H0", "MLP1"} <= names
    assert "L0H0" not in names


def test_a_mixer_beside_heads_is_a_node_of_its_own():
    original, engine, tokens, whole, other, corrupted = case("FalconH1")
    projection = original.model.layers[0].mamba.out_proj
    (z,) = seen(original, corrupted, [projection])
    truth = logits_of(original, tokens, [(projection, "input", lambda old: z)])
    assert (truth - whole.logits).abs().max() > 1e-3
    close(engine.without(whole, other.trace.writes, Node("mixer", 0)), truth)
    middle = original.model.layers[0].pre_ff_layernorm
    (plain,) = seen(original, tokens, [middle])
    (moved,) = seen(original, tokens, [middle], [(projection, "input", lambda old: z)])
    alone = [(middle, "input", lambda old: moved)]
    assert (moved - plain).abs().max() > 1e-3
    edge = Edge(Node("mixer", 0), Node("mlp", 0))
    close(engine.logits(whole, other.trace.writes, [edge]), logits_of(original, tokens, alone))


def test_heads_that_cannot_be_taken_apart_are_one_node_and_told():
    _, engine, *_ = case("BitNet")  # a norm over all heads' values
    assert {node.name for node in engine.wiring.writers} == {
        "input",
        "Mixer0",
        "MLP0",
        "Mixer1",
        "MLP1",
    }
    assert set(engine.wiring.whole) == {0, 1}
    finding = it.analyze(engine._model, "circuit", effort="quick")
    assert sum("Mixer0" in note or "Mixer1" in note for note in finding.notes) == 2
    with pytest.raises(InputError):
        edge_json(finding.network)


@pytest.mark.parametrize("family", ["Gemma3", "DeepseekV3", "Lfm2"])
def test_run_edges_is_the_model_with_these_edges(family):
    original, engine, tokens, whole, other, corrupted = case(family)
    model, edges = engine._model, engine.wiring.edges
    prompts = dataclasses.replace(prompts_from_tokens(tokens, model), corrupted=corrupted)
    close(run_edges(model, prompts, edges), logits_of(original, tokens))
    close(run_edges(model, prompts, []), logits_of(original, corrupted))
    some = [edges[i].name for i in range(0, len(edges), 3)]
    only = engine.logits(whole, other.trace.writes, edges[::3])
    close(run_edges(model, prompts, some, ablate=True), only)
    rest = [edge for edge in edges if edge.name not in some]
    close(run_edges(model, prompts, [e.eap_name for e in rest]), only)
    means = torch.stack(list(whole.trace.writes)).mean(1)
    truth = engine.logits(whole, list(means), edges[::3])
    close(run_edges(model, tokens, some, ablate=True), truth)
    with pytest.raises(InputError):
        run_edges(model, tokens, ["L9H0->logits"])
    with pytest.raises(InputError):
        run_edges(model, tokens, some, ablation="corrupted")


def test_a_window_that_only_long_prompts_reach_is_the_modules(monkeypatch):
    """The weights are told a window that the probe does not reach, and that is not the model's."""
    _, model = loaded("Llama")
    monkeypatch.setattr(read, "_window", lambda attn, cfg, layer: 12)
    engine = PatchedModel(model)
    tokens = torch.randint(3, 50, (2, 20), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        truth = model(tokens)
    assert (engine.whole(tokens).logits - truth).abs().max() > 1e-2
    engine.check_on(tokens)
    close(engine.whole(tokens).logits, truth)


@pytest.mark.parametrize("family", ["DeepseekV3", "Olmo2", "Llama4"])
def test_a_pruned_head_is_no_obstacle(family):
    original, _ = loaded(family)
    attn = original.model.layers[1].self_attn
    with torch.no_grad():
        attn.o_proj.weight[:, : attn.o_proj.in_features // 4] = 0
        values = attn.kv_b_proj if hasattr(attn, "kv_b_proj") else attn.v_proj
        values.weight[: values.out_features // (4 if family == "DeepseekV3" else 2)] = 0
    with tempfile.TemporaryDirectory() as folder:
        original.save_pretrained(folder)
        model = load(folder)
    tokens = torch.randint(3, 50, (2, 9), generator=torch.Generator().manual_seed(0))
    close(run_edges(model, tokens, PatchedModel(model).wiring.edges), logits_of(original, tokens))


@pytest.mark.parametrize("family", ["Olmo2", "Gemma2", "Qwen3", "DeepseekV3"])
def test_half_precision_runs(family):
    _, model = loaded(family)
    model = model.to(torch.bfloat16)
    tokens = torch.randint(3, 50, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        truth = model(tokens).float()
    ours = run_edges(model, tokens, PatchedModel(model).wiring.edges)
    assert (ours - truth).abs().max() < 0.1 * truth.abs().max()


@pytest.mark.parametrize("family", [*MIDDLE, *ELSEWHERE])
def test_positions_that_all_passes_share_are_computed_once(family):
    _, engine, tokens, whole, other, corrupted = case(family)
    rows, last = torch.arange(len(tokens)), torch.full((len(tokens), 1), tokens.shape[1] - 1)
    answers, wrong = torch.tensor([[3], [7], [9]]), torch.tensor([[4], [3], [20]])
    prompts = dataclasses.replace(
        prompts_from_tokens(tokens, engine._model),
        answers=answers,
        answer_positions=last,
        wrong=wrong,
        corrupted=corrupted,
    )
    metric = LogitDifference(prompts)
    trial = EdgeAblation(engine, prompts, rows, rows, metric, 2**30)
    shared = 4 if engine.blocks.sequential(tokens.shape[1]) else 0
    assert trial._part(slice(0, 2)).reference[0].shape[1] == tokens.shape[1] - shared
    edges, nodes = engine.wiring.edges, engine.wiring.writers
    drawn = np.random.default_rng(4).random(len(edges)) < 0.5
    circuit, rest = engine.wiring.masked(drawn), engine.wiring.masked(~drawn)
    writes = other.trace.writes

    def value(logits):
        return metric(logits[:, -1:], rows).numpy()

    expected = {
        "intact": (trial.intact(), value(whole.logits)),
        "ablated": (trial.values([circuit])[:, 0], value(engine.logits(whole, writes, circuit))),
        "alone": (trial.alone([rest])[:, 0], value(engine.logits(whole, writes, circuit))),
        "without": (
            trial.without(nodes[:3]),
            np.stack([value(engine.without(whole, writes, node)) for node in nodes[:3]], 1),
        ),
    }
    scale = 20 * max(rounding(family), 2e-6) * float(whole.logits.abs().max())
    for ours, truth in expected.values():
        np.testing.assert_allclose(ours, truth, atol=scale, rtol=0)
    full = attribute(engine, whole, writes, lambda x: metric(x[:, -1:], rows), None, 3)
    np.testing.assert_allclose(
        trial.attributions(3), -full.numpy(), atol=2e-4 * float(full.abs().max())
    )
