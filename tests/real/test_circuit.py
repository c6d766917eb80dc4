"""Effects of nodes and edges of a real model, against hooks on transformers' own modules."""

from contextlib import ExitStack

import pytest
import torch
from plain import HeadEdit

import interp_toolkit as it
from interp_toolkit.circuits.edges.passes.attribution import attribute
from interp_toolkit.circuits.edges.passes.edge_ablation import EdgeAblation
from interp_toolkit.circuits.edges.passes.patched_pass import PatchedModel
from interp_toolkit.circuits.edges.wiring import Edge, Node
from interp_toolkit.circuits.metrics.metrics import LogitDifference
from interp_toolkit.circuits.metrics.prompts import prompts_from_data

pytestmark = pytest.mark.real

APART = 1e-3  # nats
ROWS = 8
NODES = [Node("head", 23, 3), Node("head", 20, 0), Node("head", 29, 0), Node("head", 23, 0)]
EDGES = [
    Edge(Node("head", 20, 0), Node("head", 23, 0), "q"),
    Edge(Node("head", 23, 3), Node("head", 29, 1), "v"),
    Edge(Node("head", 20, 0), Node("mlp", 20)),
    Edge(Node("head", 23, 3), Node("logits")),
]


@pytest.fixture(scope="module")
def asked(bridge):
    """The rows, and what each is worth in the model with something cut."""
    data = it.task(bridge, "indirect-object", rows=ROWS)
    prompts = prompts_from_data(data, bridge)
    judged = LogitDifference(prompts)
    rows = torch.arange(ROWS)
    engine = PatchedModel(bridge)
    return prompts, judged, engine, EdgeAblation(engine, prompts, rows, rows, judged, 2**31)


def _worth(asked, logits):
    _, judged, *_ = asked
    return judged.from_full_logits(logits, torch.arange(ROWS))


def test_the_intact_model(asked, plain_model):
    found = torch.from_numpy(asked[-1].intact())
    expected = _worth(asked, plain_model.logits(asked[0].tokens))
    assert (found - expected).abs().max() < APART


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.name)
def test_a_head_at_its_corrupted_output(asked, plain_model, node):
    prompts, _, _, trial = asked
    found = torch.from_numpy(trial.without([node])[:, 0])
    value = plain_model.heads(prompts.corrupted)[node.layer][:, :, node.head]
    edited = plain_model.logits(prompts.tokens, [HeadEdit(node.layer, node.head, value)])
    expected = _worth(asked, edited)
    assert (found - expected).abs().max() < APART
    intact = torch.from_numpy(trial.intact())
    assert (intact - expected).abs().max() > 0.1  # each of these is worth something


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: edge.name)
def test_an_edge_at_its_corrupted_value(asked, plain_model, edge):
    prompts, _, _, trial = asked
    found = torch.from_numpy(trial.values([[edge]])[:, 0])
    change = _write(plain_model, prompts.corrupted, edge.source) - _write(
        plain_model, prompts.tokens, edge.source
    )
    expected = _worth(asked, _read_differently(plain_model, prompts.tokens, edge, change))
    assert (found - expected).abs().max() < APART
    assert (torch.from_numpy(trial.intact()) - expected).abs().max() > 0.05


def test_attribution_finds_the_largest_of_these(asked):
    """The estimates of the four edges and their effects have the same sign and are of one size."""
    prompts, judged, engine, trial = asked
    rows = torch.arange(ROWS)
    reference = trial.ablation_value(rows)
    estimates = -attribute(
        engine,
        engine.whole(prompts.tokens),
        reference,
        lambda logits: judged(logits, rows),
        prompts.answer_positions,
        steps=5,
    ).mean(0)
    index = {edge: i for i, edge in enumerate(engine.wiring.edges)}
    effects = (trial.intact()[:, None] - trial.values([[e] for e in EDGES])).mean(0)
    for edge, effect in zip(EDGES, effects.tolist(), strict=True):
        assert estimates[index[edge]] * effect > 0, edge.name
        assert 1 / 3 < estimates[index[edge]] / effect < 3, edge.name


def _write(plain, tokens, node):
    """What a head adds to the residual stream."""
    z = plain.heads(tokens)[node.layer][:, :, node.head]
    columns = slice(node.head * plain.d_head, (node.head + 1) * plain.d_head)
    return z @ plain.model.model.layers[node.layer].self_attn.o_proj.weight[:, columns].T


@torch.no_grad()
def _read_differently(plain, tokens, edge, change):
    """The logits where the edge's target alone reads a changed residual stream."""
    node, inner = edge.target, plain.model.model
    if node.kind == "logits":
        return _hooked(plain, tokens, [(inner.norm, lambda args: (args[0] + change,))], [])[0]
    layer = inner.layers[node.layer]
    if node.kind == "mlp":
        norm, target, columns = layer.post_attention_layernorm, layer.mlp, slice(None)
    else:
        shared = 1 if edge.channel == "q" else plain.n_heads // _n_key_heads(plain)
        begin = node.head // shared * plain.d_head
        norm, target = layer.input_layernorm, getattr(layer.self_attn, f"{edge.channel}_proj")
        columns = slice(begin, begin + plain.d_head)
    seen = []

    def anew(module, args, output):
        changed = output.clone()
        changed[..., columns] = module.forward(norm.forward(seen[-1] + change))[..., columns]
        return changed

    logits, z = _hooked(
        plain, tokens, [(norm, lambda args: seen.append(args[0]))], [(target, anew)]
    )
    if node.kind == "mlp":
        return logits
    # heads that share keys and values changed too: only this one's output is taken over
    value = z[node.layer][:, :, node.head]
    return plain.logits(tokens, [HeadEdit(node.layer, node.head, value)])


def _hooked(plain, tokens, before, behind):
    """The logits, and what the heads hand on, with hooks in front of modules and behind them."""
    with ExitStack() as stack:
        for module, look in before:
            hook = module.register_forward_pre_hook(lambda m, args, look=look: look(args))
            stack.callback(hook.remove)
        for module, change in behind:
            stack.callback(module.register_forward_hook(change).remove)
        return plain.logits(tokens), plain.heads(tokens)


def _n_key_heads(plain):
    return plain.model.config.num_key_value_heads
