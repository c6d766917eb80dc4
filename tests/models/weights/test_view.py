"""The view against the model's own hooks, recomputed here from the formulas in HookedTransformer's
papers: nothing of the view's own arithmetic is used but its tensors and numbers."""

import math

import pytest
import torch
import torch.nn.functional as F

from interp_toolkit.errors import InputError
from interp_toolkit.models.weights import read as weights_read
from interp_toolkit.models.weights.view import weights

ACTIVATIONS = {
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
}
#: their hook_attn_scores holds the pattern
NO_SCORES = ("native", "native-rotary", "bert")


def close(ours, theirs):
    scale = float(theirs.abs().max())
    assert ours.shape == theirs.shape
    assert float((ours - theirs).abs().max()) <= 1e-5 * max(scale, 1.0)


def normalise(norm, x):
    if norm.kind is None:
        return x
    if norm.kind == "LN":
        x = x - x.mean(-1, keepdim=True)
    x = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + norm.eps)
    x = x if norm.w is None else x * norm.w
    return x if norm.b is None else x + norm.b


def turn(rotary, base, x):
    """RoPE as a multiplication of complex numbers, frequencies from the base alone."""
    if rotary is None:
        return x
    half = rotary.dim // 2
    frequency = base ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.outer(torch.arange(x.shape[1], dtype=torch.float64), frequency)
    spin = torch.polar(torch.ones_like(angle), angle)[None, :, None]
    head, rest = x[..., : rotary.dim].double(), x[..., rotary.dim :]
    pairs = head.unflatten(-1, (half, 2) if rotary.adjacent else (2, half))
    pairs = pairs if rotary.adjacent else pairs.transpose(-1, -2)
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * spin)
    turned = (turned if rotary.adjacent else turned.transpose(-1, -2)).flatten(-2)
    return torch.cat([turned.to(x.dtype), rest], -1)


@pytest.fixture
def cache(model, tokens):
    with torch.no_grad():
        logits, cache = model.run_with_cache(tokens)
    return dict(cache.items()) | {"logits": logits}


@pytest.fixture(params=[0, 1])
def layer(request):
    return request.param


@torch.no_grad()
def test_queries_keys_values(model, cache, layer):
    w = weights(model).layer(layer)
    x = normalise(w.norm, cache[f"blocks.{layer}.hook_resid_pre"])
    for name in "qkv":
        W, b = getattr(w, f"W_{name.upper()}"), getattr(w, f"b_{name.upper()}")
        assert W.shape == (4, x.shape[-1], model.cfg.d_head)
        ours = torch.stack([x @ W[head] + b[head] for head in range(4)], dim=2)
        theirs = cache[f"blocks.{layer}.attn.hook_{name}"]
        group = 4 // theirs.shape[2]  # grouped keys and values: one for several query heads
        close(ours, theirs.repeat_interleave(group, dim=2))


@torch.no_grad()
def test_scores_pattern_and_output(model, cache, layer, request):
    w = weights(model).layer(layer)
    x = normalise(w.norm, cache[f"blocks.{layer}.hook_resid_pre"])
    base = float(model.cfg.rotary_base)
    q, k, v = (
        torch.einsum("bpm,hmd->bphd", x, W) + b
        for W, b in ((w.W_Q, w.b_Q), (w.W_K, w.b_K), (w.W_V, w.b_V))
    )
    q, k = turn(w.rotary, base, q), turn(w.rotary, base, k)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / w.attn_scale
    if w.soft_cap is not None:
        scores = w.soft_cap * torch.tanh(scores / w.soft_cap)
    if w.alibi is not None:  # 4 heads: slopes 2^-2, 2^-4, 2^-6, 2^-8
        slopes = 2.0 ** -torch.arange(2, 10, 2)[:, None, None]
        steps = torch.arange(7).expand(7, 7)
        if w.alibi.from_query:
            steps = (steps - steps.T).clamp(max=0)
        scores = scores + slopes * steps
    back = torch.arange(7)[:, None] - torch.arange(7)
    visible = torch.ones(7, 7, dtype=bool)
    if w.direction == "causal":
        visible = (back >= 0) & (back < (w.window or 7))
    assert torch.equal(w.visible(7), visible)
    if not any(kind in request.node.name for kind in NO_SCORES):
        theirs = cache[f"blocks.{layer}.attn.hook_attn_scores"].masked_fill(~visible, -math.inf)
        if w.alibi is not None and w.alibi.from_query:  # their table's last rows: see Alibi
            scores, theirs = scores - scores[..., :1], theirs - theirs[..., :1]
        close(scores.masked_fill(~visible, 0), theirs.masked_fill(~visible, 0))
    pattern = scores.masked_fill(~visible, -math.inf).softmax(-1)
    close(pattern, cache[f"blocks.{layer}.attn.hook_pattern"])
    z = torch.einsum("bhqk,bkhd->bqhd", pattern, v)
    close(z, cache[f"blocks.{layer}.attn.hook_z"])
    out = normalise(w.post_norm, sum(z[:, :, h] @ w.W_O[h] for h in range(4)) + w.b_O)
    if w.residual_norm.kind is not None:
        out = normalise(w.residual_norm, cache[f"blocks.{layer}.hook_resid_pre"] + out)
    close(out, cache[f"blocks.{layer}.hook_attn_out"])


@torch.no_grad()
def test_scores_and_pattern_of_the_last_queries_are_rows_of_all(model, cache, layer):
    w = weights(model).layer(layer)
    x = normalise(w.norm, cache[f"blocks.{layer}.hook_resid_pre"])
    q, k = (torch.einsum("bpd,hdk->bphk", x, W) + b for W, b in w.projections[:2])
    whole, last = w.scores(q, k), w.scores(q[:, -3:], k)
    close(last, whole[:, :, -3:])
    close(w.pattern(last), w.pattern(whole)[:, :, -3:])


@torch.no_grad()
def test_mlp(model, cache, layer):
    m = weights(model).mlp(layer)
    if m is None:
        assert model.cfg.attn_only
        return
    site = "pre" if weights(model).layer(layer).parallel else "mid"
    residual = cache[f"blocks.{layer}.hook_resid_{site}"]
    if m.residual_norm.kind is not None:
        residual = cache[f"blocks.{layer}.ln1.hook_out"]
    x = normalise(m.norm, residual)
    act = ACTIVATIONS[m.act_fn]
    if m.W_gate is None:
        post = act(x @ m.W_in + m.b_in)
    else:
        post = act(x @ m.W_gate + m.b_gate) * (x @ m.W_in + m.b_in) + m.b_post
    out = normalise(m.post_norm, post @ m.W_out + m.b_out)
    close(out, cache[f"blocks.{layer}.hook_mlp_out"])
    if m.residual_norm.kind is not None:
        after = normalise(m.residual_norm, residual + out)
        close(after, cache[f"blocks.{layer}.hook_resid_post"])


@torch.no_grad()
def test_embedding_and_logits(model, tokens, cache, texts):
    w = weights(model)
    residual = w.W_E[tokens]
    if w.W_pos is not None:
        residual = residual + w.W_pos[:7]
    if w.token_type is not None:
        residual = residual + w.token_type
    residual = normalise(w.embed_norm, residual)
    close(residual, cache["blocks.0.hook_resid_pre"])
    close(w.embed(tokens, torch.arange(7).expand(5, 7)), cache["blocks.0.hook_resid_pre"])
    if "mlm_head" in model._modules:
        with pytest.raises(InputError, check=texts):
            w.W_U  # noqa: B018
        return
    logits = normalise(w.final_norm, cache["blocks.1.hook_resid_post"]) @ w.W_U + w.b_U
    if w.logit_soft_cap is not None:
        logits = w.logit_soft_cap * torch.tanh(logits / w.logit_soft_cap)
    close(logits, cache["logits"])


def test_what_each_architecture_says(zoo):
    llama, neox, gemma = (weights(zoo(kind)).layer(0) for kind in ("llama", "neox", "gemma2"))
    assert (llama.rotary.dim, llama.rotary.adjacent) == (4, False)
    assert (neox.rotary.dim, neox.parallel) == (4, True)
    assert gemma.attn_scale == pytest.approx(math.sqrt(6))  # query_pre_attn_scalar
    assert (gemma.soft_cap, gemma.window) == (1.5, 4)
    assert gemma.post_norm.kind == "RMS"
    assert weights(zoo("gemma2")).layer(1).window is None
    assert weights(zoo("mistral")).layer(1).window == 4  # kept in the config alone
    assert weights(zoo("gemma2")).logit_soft_cap == 30.0
    assert weights(zoo("native-rotary")).layer(0).rotary.adjacent
    assert weights(zoo("native")).layer(0).attn_scale == 2.0  # attn_scale=-1 means sqrt(d_head)
    assert not llama.b_Q.any()
    assert not weights(zoo("own-bare")).layer(0).b_O.any()
    assert weights(zoo("own-bare")).layer(0).direction == "bidirectional"


def test_what_bert_and_bloom_say(zoo):
    bert, bloom = weights(zoo("bert")), weights(zoo("bloom"))
    assert (bert.embed_norm.kind, bloom.embed_norm.kind) == ("LN", "LN")
    assert torch.equal(bert.token_type, zoo("bert").token_type_embed.weight[0])
    for layer in (0, 1):
        assert bert.layer(layer).direction == "bidirectional"
        assert bert.layer(layer).norm.kind is None
        assert bert.layer(layer).residual_norm.kind == "LN"
        assert bert.mlp(layer).residual_norm.kind == "LN"
        assert not bert.layer(layer).additive
        assert bloom.layer(layer).additive
        assert not bloom.layer(layer).alibi.from_query
    assert bloom.mlp(0).act_fn == "gelu_new"
    assert not weights(zoo("gemma2")).layer(0).additive


def test_embedding_without_positions_takes_their_mean(zoo):
    view, tokens = weights(zoo("bert")), torch.tensor([3, 5])
    mean = view.W_E[tokens] + view.W_pos.mean(0) + view.token_type
    torch.testing.assert_close(view.embed(tokens), normalise(view.embed_norm, mean))


@pytest.mark.parametrize(
    ("tokens", "positions"),
    [
        ([11], None),
        ([0, -2], None),
        ([0], [12]),
    ],
)
def test_embeddings_that_are_not_there(zoo, tokens, positions, texts):
    positions = None if positions is None else torch.tensor(positions)
    with pytest.raises(InputError, check=texts):
        weights(zoo("own")).embed(torch.tensor(tokens), positions)


def test_grouped_heads_are_repeated_for_consecutive_query_heads(zoo):
    W_K = weights(zoo("llama")).layer(0).W_K
    stored = zoo("llama").blocks[0].attn.k.weight  # [n_kv * d_head, d_model]
    for head in range(4):
        group = head // 2
        assert torch.equal(W_K[head].T, stored[group * 4 : group * 4 + 4])


def test_rotation_matrix_turns_like_rotate(zoo):
    for kind in ("llama", "neox", "native-rotary", "own-rotary"):
        rotary, d_head = weights(zoo(kind)).layer(0).rotary, zoo(kind).cfg.d_head
        x = torch.randn(1, 5, 1, d_head)
        turned = torch.stack([x[0, p, 0] @ rotary.matrix(p, d_head) for p in range(5)])
        torch.testing.assert_close(turned, rotary.rotate(x)[0, :, 0])
        relative = rotary.matrix(4, d_head) @ rotary.matrix(1, d_head).T
        torch.testing.assert_close(relative, rotary.matrix(3, d_head))
        torch.testing.assert_close(rotary.matrix(-3, d_head), rotary.matrix(3, d_head).T)


def test_rotary_tables_grow_with_the_context(zoo):
    rotary = weights(zoo("llama")).layer(0).rotary
    cos, sin = rotary.tables(3000)
    assert cos.shape == sin.shape == (3000, 4)
    assert cos[2999, 0] == pytest.approx(math.cos(2999), abs=1e-3)


def test_layers_are_read_when_asked_for(zoo):
    model = zoo("own")
    view = weights(model)
    before = view.layer(0).W_O.clone()
    with torch.no_grad():
        model.blocks[0].attn.W_O *= 2
        try:
            assert torch.equal(view.layer(0).W_O, 2 * before)
            assert view.layer(0).W_O.data_ptr() == model.blocks[0].attn.W_O.data_ptr()
        finally:
            model.blocks[0].attn.W_O /= 2


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("experts", "mlp"),
        ("shortformer", "layer"),
    ],
)
def test_what_cannot_be_given_is_refused_by_name_and_the_rest_is_given(zoo, kind, part, texts):
    view = weights(zoo(kind))
    with pytest.raises(InputError, check=texts):
        getattr(view, part)(0)
    assert view.W_E.shape[0] == view.W_U.shape[1] == 11
    if part == "layer":
        assert view.mlp(0) is not None
    else:
        assert view.layer(0).W_Q.shape == (4, 16, 4)


def test_a_model_that_computes_something_else_is_found_out(zoo, monkeypatch, texts):
    """The view's own check, on models that differ in one step from what their weights say."""
    model = zoo("own")
    attn = model.blocks[1].attn
    scores, values = attn._scores, attn._values
    monkeypatch.setattr(attn, "_scores", lambda q, k: scores(q, 1.05 * k))
    with pytest.raises(InputError, check=texts):
        weights(model).layer(1)
    assert weights(model).layer(0) is not None
    monkeypatch.setattr(attn, "_scores", scores)
    monkeypatch.setattr(attn, "_values", lambda x: values(x) + 0.01)
    with pytest.raises(InputError, match="hook_v of layer 1"):
        weights(model).layer(1)


def test_parts_read_wrongly_are_found_out(zoo, monkeypatch, texts):
    from transformer_lens.model_bridge.generalized_components import alibi_utils

    bert, slopes = zoo("bert"), alibi_utils.build_alibi_slopes
    monkeypatch.setattr(bert.cfg, "act_fn", "relu")
    monkeypatch.setattr(weights_read, "token_type", lambda model: None)
    view = weights(bert)
    with pytest.raises(InputError, match="hook_post of layer 0 cannot be computed"):
        view.mlp(0)
    with pytest.raises(InputError, check=texts):
        view.embed(torch.tensor([0]))
    assert view.layer(0) is not None
    monkeypatch.setattr(alibi_utils, "build_alibi_slopes", lambda *args: 0.9 * slopes(*args))
    with pytest.raises(InputError, match="of layer 0 cannot be computed"):
        weights(zoo("bloom")).layer(0)


@pytest.mark.parametrize(
    "softmax",
    [
        lambda scores: scores.softmax(-1),
        lambda scores: scores.double().softmax(-1).to(scores.dtype),
        lambda scores: scores.movedim(-1, 0).contiguous().softmax(0).movedim(0, -1),
    ],
    ids=["last axis", "exact", "first axis"],
)
def test_small_scores_do_not_hide_other_pairs(zoo, monkeypatch, softmax):
    """With tiny weights every pattern is nearly uniform; other pairs must show all the same.

    Whichever kernel made the pattern: their last digits are not the same.
    """
    from interp_toolkit.models.transformer import attention

    monkeypatch.setattr(attention, "softmax_of_keys", softmax)
    model = zoo("own-rotary")
    attn = model.blocks[0].attn
    with torch.no_grad():
        saved = attn.W_Q.clone(), attn.b_Q.clone()
        attn.W_Q *= 1e-4
        attn.b_Q *= 1e-4
    try:
        assert weights(model).layer(0) is not None
        assert not weights(model).layer(0).rotary.adjacent
        monkeypatch.setattr(attn.rotary, "adjacent", True)
        monkeypatch.setattr(attn.rotary, "_tables", None)
        assert weights(model).layer(0).rotary.adjacent
    finally:
        with torch.no_grad():
            attn.W_Q.copy_(saved[0])
            attn.b_Q.copy_(saved[1])


def test_layers_that_are_not_there(zoo, texts):
    for layer in (2, -1):
        with pytest.raises(InputError, check=texts):
            weights(zoo("own")).layer(layer)


def test_no_decoder(texts):
    with pytest.raises(InputError, check=texts):
        weights(torch.nn.Linear(1, 1))


def test_half_precision(zoo):
    import copy

    model = copy.deepcopy(zoo("own")).to(torch.bfloat16)
    view = weights(model)
    assert view.layer(1).W_Q.dtype == torch.bfloat16
    assert view.mlp(1) is not None
    assert view.W_U is not None
