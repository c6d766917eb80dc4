"""The edge-level pass against the model itself, against hooks, and against plain loops."""

import dataclasses
import math

import pytest
import torch

from interp_studies.challenge.families.planted import planted_case
from interp_toolkit.circuits.edges.passes import blocks
from interp_toolkit.circuits.edges.passes.patched_pass import PatchedModel
from interp_toolkit.circuits.edges.wiring import Edge, Node
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.forward import run
from interp_toolkit.models.weights.parts import NormWeights
from interp_toolkit.models.weights.view import weights

KINDS = (
    *("own", "own-rotary", "own-bare", "hooked", "hooked-rotary", "hooked-parallel"),
    *("native", "native-rotary", "gpt2", "gpt2-folded", "gpt2-folder", "llama", "neox"),
    *("alibi", "bloom", "gemma2", "qwen3", "mla"),
)


def _reference(engine, tokens, seed=0):
    """Something of the right size in place of every write: the mean over rows, and noise."""
    generator = torch.Generator().manual_seed(seed)
    writes = engine.whole(tokens).trace.writes
    return [w.mean(0) + 0.3 * torch.randn(w[0].shape, generator=generator) for w in writes]


@pytest.mark.parametrize("kind", KINDS)
def test_no_edge_cut_is_the_model(zoo, tokens, kind):
    model = zoo(kind)
    logits = PatchedModel(model).whole(tokens).logits
    torch.testing.assert_close(logits, run(model, tokens), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_every_edge_ablated_leaves_nothing_of_the_prompt(zoo, tokens, kind):
    engine = PatchedModel(zoo(kind))
    whole = engine.whole(tokens)
    logits = engine.logits(whole, _reference(engine, tokens), engine.wiring.edges)
    torch.testing.assert_close(logits, logits[:1].expand_as(logits), atol=2e-5, rtol=1e-5)
    assert (whole.logits - logits).abs().max() > 0.01


@pytest.mark.parametrize("kind", ["own", "own-rotary", "neox"])
def test_a_rows_own_writes_as_reference_change_nothing(zoo, tokens, kind):
    engine = PatchedModel(zoo(kind))
    whole = engine.whole(tokens)
    logits = engine.logits(whole, whole.trace.writes, engine.wiring.edges)
    torch.testing.assert_close(logits, whole.logits, atol=2e-5, rtol=1e-5)


def test_a_stream_that_is_no_sum_is_refused(zoo, monkeypatch, texts):
    real = weights(zoo("own"))
    layer = dataclasses.replace(real.layer(0), residual_norm=NormWeights("LN"))
    monkeypatch.setattr(blocks, "weights", lambda model: real)
    monkeypatch.setattr(real, "layer", lambda number: layer)
    with pytest.raises(InputError, check=texts):
        PatchedModel(zoo("own"))


def test_weights_that_are_not_the_models_are_not_used(zoo, tokens, monkeypatch):
    silu = torch.nn.functional.silu
    monkeypatch.setattr(blocks, "neurons", lambda w, x: silu(x @ w.W_in + w.b_in))
    model = zoo("own")
    logits = PatchedModel(model).whole(tokens).logits
    torch.testing.assert_close(logits, run(model, tokens), atol=2e-5, rtol=1e-5)


def test_parts_that_are_not_the_models_are_refused(zoo, monkeypatch, texts):
    monkeypatch.setattr(blocks.Blocks, "node", lambda self, stage, x, change: 2 * x)
    with pytest.raises(InputError, check=texts):
        PatchedModel(zoo("own"))


def test_an_activation_unlike_its_name_is_the_models_own(zoo, tokens, monkeypatch):
    model = zoo("own")
    monkeypatch.setattr(model.blocks[0].mlp, "activation", torch.nn.functional.silu)
    logits = PatchedModel(model).whole(tokens).logits
    torch.testing.assert_close(logits, run(model, tokens), atol=2e-5, rtol=1e-5)


def test_half_precision_is_computed_in_single(zoo, tokens):
    import copy

    model = copy.deepcopy(zoo("own")).to(torch.bfloat16)
    whole = PatchedModel(model).whole(tokens)
    assert whole.logits.dtype == torch.float32
    torch.testing.assert_close(whole.logits, run(model, tokens).float(), atol=0.1, rtol=0.1)


def test_names_and_wiring_are_those_of_eap(zoo):
    wiring = PatchedModel(zoo("own")).wiring
    names = [edge.name for edge in wiring.edges]
    assert names[:2] == ["input->L0H0<q>", "input->L0H1<q>"]
    assert {"L0H1->L1H0<k>", "L0H3->MLP0", "input->MLP1", "MLP1->logits"} <= set(names)
    # 4 heads: 12 readers of 1 writer, an MLP of 5, 12 of 6, an MLP of 10, the logits of 11
    assert len(names) == 12 + 5 + 72 + 10 + 11 == len(set(names))
    parallel = {edge.name for edge in PatchedModel(zoo("neox")).wiring.edges}
    assert "L0H0->MLP0" not in parallel
    assert "L0H0->MLP1" in parallel


def _some(edges, share, seed):
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(len(edges), generator=generator) < share
    return [edge for edge, cut in zip(edges, drawn, strict=True) if cut]


@pytest.fixture
def split(zoo):
    """A HookedTransformer of this kind with an input for every head and channel."""
    changed = []

    def switch(model, on):
        model.set_use_split_qkv_input(on)
        model.set_use_attn_result(on)
        model.set_use_hook_mlp_in(on)

    def build(kind):
        model = zoo(kind)
        switch(model, True)
        changed.append(model)
        return model

    yield build
    for model in changed:
        switch(model, False)


def _patched(model, tokens, reference, cut, writers):
    """TransformerLens's own hooks: every reader's input is edited where its edges are ablated."""
    seen, index = {}, {node: i for i, node in enumerate(writers)}

    def delta(edge):
        return reference[index[edge.source]] - seen[edge.source]

    def keep_heads(layer):
        def hook(value, hook):
            for head in range(value.shape[2]):
                seen[Node("head", layer, head)] = value[:, :, head].clone()

        return hook

    def keep(node):
        def hook(value, hook):
            seen[node] = value.clone()

        return hook

    def edit(node, channel):
        def hook(value, hook):
            for edge in cut:
                if (edge.target.kind, edge.target.layer, edge.channel) == (*node, channel):
                    if channel is None:
                        value = value + delta(edge)
                    else:
                        value[:, :, edge.target.head] += delta(edge)
            return value

        return hook

    hooks = [("blocks.0.hook_resid_pre", keep(Node("input")))]
    for layer in range(model.cfg.n_layers):
        block = f"blocks.{layer}"
        hooks += [(f"{block}.hook_{c}_input", edit(("head", layer), c)) for c in "qkv"]
        hooks.append((f"{block}.attn.hook_result", keep_heads(layer)))
        hooks.append((f"{block}.hook_mlp_in", edit(("mlp", layer), None)))
        hooks.append((f"{block}.hook_mlp_out", keep(Node("mlp", layer))))
    hooks.append((f"{block}.hook_resid_post", edit(("logits", None), None)))
    with torch.no_grad():
        return model.run_with_hooks(tokens, fwd_hooks=hooks)


@pytest.mark.parametrize("kind", ["hooked", "hooked-parallel"])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_cut_edges_as_hooks_cut_them(split, tokens, kind, share):
    model = split(kind)
    engine = PatchedModel(model)
    reference = _reference(engine, tokens)
    cut = _some(engine.wiring.edges, share, seed=int(100 * share))
    ours = engine.logits(engine.whole(tokens), reference, cut)
    theirs = _patched(model, tokens, reference, cut, engine.wiring.writers)
    torch.testing.assert_close(ours, theirs, atol=3e-5, rtol=1e-4)


def _bare(n_layers=2, n_heads=2, seed=0):
    from interp_toolkit.models.transformer.config import TransformerConfig
    from interp_toolkit.models.transformer.transformer import Transformer

    cfg = TransformerConfig(
        n_layers=n_layers,
        d_model=6,
        n_ctx=5,
        d_head=3,
        n_heads=n_heads,
        d_vocab=7,
        attn_only=True,
        biases=False,
        normalization_type=None,
        dtype=torch.float64,
    )
    model = Transformer(cfg)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return model


def _by_loops(model, row, reference, cut):
    """One row of an attention-only model without norms, one number at a time where it can be."""
    names = {edge.name for edge in cut}
    written = {"input": [model.embed.W_E[t] + model.pos_embed.W_pos[p] for p, t in enumerate(row)]}

    def read(target, position, channel=""):
        total = 0
        for source, vectors in written.items():
            gone = f"{source}->{target}{channel}" in names
            total = total + (reference[source][position] if gone else vectors[position])
        return total

    for layer, block in enumerate(model.blocks):
        new = {}
        for head in range(model.cfg.n_heads):
            W_Q, W_K, W_V, W_O = (getattr(block.attn, f"W_{c}")[head] for c in "QKVO")
            name = f"L{layer}H{head}"
            new[name] = []
            for query in range(len(row)):
                q = read(name, query, "<q>") @ W_Q
                weights = [
                    math.exp(float(q @ (read(name, key, "<k>") @ W_K)) / math.sqrt(3))
                    for key in range(query + 1)
                ]
                z = sum(
                    w / sum(weights) * (read(name, key, "<v>") @ W_V)
                    for key, w in enumerate(weights)
                )
                new[name].append(z @ W_O)
        written |= new
    return torch.stack([read("logits", p) @ model.unembed.W_U for p in range(len(row))])


@torch.no_grad()
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_cut_edges_as_loops_cut_them(share):
    model = _bare()
    tokens = torch.tensor([[0, 3, 6, 3], [5, 1, 1, 2]])
    engine = PatchedModel(model)
    reference = [w.double() for w in _reference(engine, tokens)]
    named = {node.name: r for node, r in zip(engine.wiring.writers, reference, strict=True)}
    for seed in range(3):
        cut = _some(engine.wiring.edges, share, seed)
        ours = engine.logits(engine.whole(tokens), reference, cut)
        for row, logits in zip(tokens.tolist(), ours, strict=True):
            expected = _by_loops(model, row, named, cut)
            torch.testing.assert_close(logits, expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("kind", ["own", "own-rotary", "hooked-parallel", "llama", "neox"])
def test_a_node_without_its_edges_is_all_of_them_cut(zoo, tokens, kind):
    engine = PatchedModel(zoo(kind))
    whole, reference = engine.whole(tokens), _reference(engine, tokens)
    for node in engine.wiring.writers:
        cut = [e for e in engine.wiring.edges if e.source == node]
        expected = engine.logits(whole, reference, cut)
        torch.testing.assert_close(
            engine.without(whole, reference, node), expected, atol=2e-5, rtol=1e-5
        )


def test_a_pass_may_begin_at_a_layer(zoo, tokens):
    engine = PatchedModel(zoo("llama"))
    whole = engine.whole(tokens)
    for i, stage in enumerate(engine.wiring.stages):
        if stage.kind == "attention":
            again = engine.from_stream(i, whole.trace.totals[i])
            torch.testing.assert_close(again, whole.logits, atol=2e-5, rtol=1e-5)


def test_no_hook_is_left_behind(zoo, tokens, count_hooks):
    model = zoo("own")
    engine = PatchedModel(model)
    edge = Edge(Node("input"), Node("head", 1, 2), "k")
    engine.logits(engine.whole(tokens), _reference(engine, tokens), [edge])
    assert count_hooks(model) == 0


@pytest.mark.parametrize("kind", ["own", "neox"])
def test_a_cut_that_changes_nothing_may_come_first(zoo, tokens, kind):
    """Where the first ablated edge is in front of an MLP, beside attention or behind it."""
    engine = PatchedModel(zoo(kind))
    whole = engine.whole(tokens)
    means = _reference(engine, tokens)[1:]
    reference = [whole.trace.writes[0], *(mean.expand_as(whole.trace.writes[0]) for mean in means)]
    edges = {edge.name: edge for edge in engine.wiring.edges}
    later = [edges["L0H1->MLP1"], edges["MLP0->logits"], edges["L0H2->L1H0<k>"]]
    ours = engine.logits(whole, reference, [edges["input->MLP0"], *later])
    torch.testing.assert_close(ours, engine.logits(whole, reference, later), atol=2e-5, rtol=1e-5)
    assert (ours - whole.logits).abs().max() > 1e-3


@pytest.mark.parametrize("seed", [13800655, 1, 2])
def test_logits_that_cancel_to_nothing_are_no_disagreement(seed: int) -> None:
    """A model that answers with labels alone: on other tokens its logits are rounding, no more."""
    case = planted_case("cancelling", "first-token", seed)
    assert case.data is not None
    tokens = torch.from_numpy(case.data.token_matrix()[:4])
    logits = PatchedModel(case.model).whole(tokens).logits
    torch.testing.assert_close(logits, run(case.model, tokens), atol=1e-4, rtol=1e-5)
