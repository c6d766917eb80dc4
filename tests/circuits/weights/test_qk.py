"""QK circuits against the models' own attention scores, read through hooks, and dense algebra."""

import pytest
import torch

from interp_toolkit.circuits.weights.qk import qk_circuit
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.forward import run
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.models.weights.view import weights

#: their hook_attn_scores holds the pattern
NO_SCORES = ("native", "native-rotary", "bert")
#: theirs hold a constant per query that depends on the longest input so far
SHIFTED = ("alibi",)
KINDS = (
    *("own", "own-rotary", "own-bare", "hooked", "hooked-rotary", "hooked-parallel"),
    *("native", "native-rotary", "gpt2", "gpt2-folded", "llama", "neox", "gemma2"),
    *("mistral", "alibi", "bloom", "bert"),
)
NO_LEARNED_POSITIONS = ("own-rotary", "native-rotary", "llama", "mistral", "neox")
NO_LEARNED_POSITIONS += ("gemma2", "alibi", "bloom")


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def seen(zoo, kind, tokens):
    """What the model itself computes: residual streams, scores and patterns."""
    model = zoo(kind)
    points, kept = hook_points(model), {}

    def keeper(name):
        return lambda value, hook: kept.__setitem__(name, value.detach().clone())

    names = [
        f"blocks.{layer}.{name}"
        for layer in (0, 1)
        for name in ("hook_resid_pre", "attn.hook_attn_scores", "attn.hook_pattern")
    ]
    run(model, tokens, [(points[name], keeper(name)) for name in names])
    return kept


def agree(kind, layer, head, seen, row, ours, visible):
    """Scores where the model hooks them; else the log-pattern, up to a constant per query."""
    site = "attn.hook_pattern" if kind in NO_SCORES else "attn.hook_attn_scores"
    theirs = seen[f"blocks.{layer}.{site}"][row, head]
    for query in range(len(visible)):
        keys = visible[query]
        mine, model = ours[query, keys], theirs[query, keys]
        if kind in NO_SCORES:
            model = model.log()
        if kind in (*NO_SCORES, *SHIFTED):
            mine, model = mine - mine.mean(), model - model.mean()
        torch.testing.assert_close(mine, model, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("head", [0, 3])
def test_token_pairs_at_layer_0_are_the_model_s_own_scores(zoo, kind, seen, tokens, head):
    circuit = qk_circuit(zoo(kind), 0, head)
    row, n_pos = tokens[2], tokens.shape[1]
    visible = weights(zoo(kind)).layer(0).visible(n_pos)
    ours = torch.zeros(n_pos, n_pos)
    for query, key in visible.nonzero().tolist():
        scores = circuit.tokens(query, key)
        assert scores.exact, scores.note
        ours[query, key] = scores.score(row[[query]], row[[key]])[0]
    agree(kind, 0, head, seen, 2, ours, visible)


@pytest.mark.parametrize("layer", [0, 1])
def test_residual_vectors_score_as_in_the_model(zoo, kind, seen, tokens, layer):
    positions = torch.arange(tokens.shape[1])
    visible = weights(zoo(kind)).layer(layer).visible(len(positions))
    for head in range(4):
        circuit = qk_circuit(zoo(kind), layer, head)
        x = seen[f"blocks.{layer}.hook_resid_pre"][1]
        agree(kind, layer, head, seen, 1, circuit.score(x, x, positions, positions), visible)


def test_the_four_terms_sum_to_the_score(zoo, kind):
    circuit = qk_circuit(zoo(kind), 1, 2)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 5, circuit.W_Q.shape[0], generator=generator)
    terms = circuit.terms(x, y, 4, torch.arange(5))
    total = terms.both + terms.query + terms.key + terms.constant
    if circuit.soft_cap is not None:
        total = circuit.soft_cap * torch.tanh(total / circuit.soft_cap)
    scores = circuit.score(x, y, 4, torch.arange(5))
    if circuit.alibi is not None:
        back = torch.arange(5) - (4 if circuit.alibi.from_query else 0)
        scores = scores - circuit.alibi.slopes * back
    torch.testing.assert_close(total, scores)
    shifted = circuit.terms(x, y.roll(1, 0), 4, 0)
    torch.testing.assert_close(shifted.query, shifted.query[:, :1].expand(5, 5))


def test_distance_is_all_that_counts_without_learned_positions(zoo, kind, texts):
    circuit = qk_circuit(zoo(kind), 0, 1)
    if kind not in (*NO_LEARNED_POSITIONS, "hooked-parallel", "hooked-rotary"):
        with pytest.raises(InputError, match="give both: tokens\\(query_pos, key_pos\\)"):
            circuit.at_distance(1)
        return
    for distance in (0, 3):
        ours = circuit.at_distance(distance).tokens()
        theirs = circuit.tokens(5, 5 - distance)
        constant = 0.0
        if kind == "bloom":  # counts from position 0, and says so
            constant = 5 * float(circuit.alibi.slopes)
            texts(ours.note)
        else:
            assert ours.exact
        torch.testing.assert_close(ours.matrix() + constant, theirs.matrix())


def test_svd_is_that_of_the_dense_matrix(zoo, kind):
    circuit = qk_circuit(zoo(kind), 1, 1)
    circuit = circuit if circuit.rotary is None else circuit.at_distance(2)
    svd = circuit.svd()
    dense = circuit.W_Q @ circuit.W_K.T / circuit.attn_scale
    torch.testing.assert_close(circuit.matrix.AB, dense)
    d_head = circuit.W_Q.shape[1]
    expected = torch.linalg.svdvals(dense)[:d_head]
    torch.testing.assert_close(svd.singular_values, expected, atol=1e-5, rtol=1e-4)
    for directions in (svd.query_directions, svd.key_directions):
        torch.testing.assert_close(directions.T @ directions, torch.eye(d_head), atol=1e-4, rtol=0)
    again = (svd.query_directions * svd.singular_values) @ svd.key_directions.T
    torch.testing.assert_close(again, dense, atol=1e-5, rtol=1e-4)
    shares = expected.pow(2).cumsum(0) / expected.pow(2).sum()
    torch.testing.assert_close(svd.spectrum(), shares, atol=1e-5, rtol=0)


def test_directions_are_read_out_in_tokens(zoo):
    circuit = qk_circuit(zoo("own"), 0, 0)
    view = weights(zoo("own"))
    x = view.W_E + view.W_pos.mean(0)
    x = x - x.mean(-1, keepdim=True)
    x = x / (x.pow(2).mean(-1, keepdim=True) + circuit.norm.eps).sqrt()
    svd = circuit.svd()
    frame = svd.top_tokens(k=3, components=2)
    assert len(frame) == 2 * 2 * 2 * 3
    for (component, side, end), found in frame.groupby(["component", "side", "end"]):
        U = svd.query_directions if side == "query" else svd.key_directions
        along = x @ U[:, component]
        order = along.argsort(descending=end == "+")[:3]
        assert found.token.tolist() == order.tolist()
        assert found.projection.tolist() == pytest.approx(along[order].tolist(), abs=1e-5)


def test_deeper_layers_are_the_direct_path_and_say_so(zoo):
    view = weights(zoo("own"))
    scores = qk_circuit(zoo("own"), 1, 2).tokens(4, 1)
    assert not scores.exact
    assert "direct path" in scores.note
    w = view.layer(1)
    x = view.W_E[:, None] + view.W_pos[[4, 1]]
    q, k = w.norm(x[:, 0]) @ w.W_Q[2] + w.b_Q[2], w.norm(x[:, 1]) @ w.W_K[2] + w.b_K[2]
    torch.testing.assert_close(scores.matrix(), q @ k.T / w.attn_scale)


def test_positions_not_given_are_the_mean_embedding(zoo):
    view, w = weights(zoo("own")), weights(zoo("own")).layer(0)
    scores = qk_circuit(zoo("own"), 0, 2).tokens(key_pos=3)
    assert not scores.exact
    assert "mean position embedding" in scores.note
    q = w.norm(view.W_E + view.W_pos.mean(0)) @ w.W_Q[2] + w.b_Q[2]
    k = w.norm(view.W_E + view.W_pos[3]) @ w.W_K[2] + w.b_K[2]
    torch.testing.assert_close(scores.matrix(), q @ k.T / w.attn_scale)


def test_what_of_the_norm_is_not_linear_is_said(zoo):
    assert "root mean square" in qk_circuit(zoo("llama"), 0, 0).norm_note
    assert "standard deviation" in qk_circuit(zoo("own"), 0, 0).norm_note
    assert "scores are bilinear" in qk_circuit(zoo("bert"), 0, 0).norm_note


@pytest.mark.parametrize(
    ("kind", "layer", "head"),
    [
        ("own", 2, 0),
        ("own", 0, 4),
        ("own", 0, -1),
        ("shortformer", 0, 0),
    ],
)
def test_heads_that_cannot_be_given(zoo, kind, layer, head, texts):
    with pytest.raises(InputError, check=texts):
        qk_circuit(zoo(kind), layer, head)


@pytest.mark.parametrize(
    ("kind", "positions"),
    [
        ("own", (12, 0)),
        ("own", (3, -1)),
        ("llama", (3, -1)),
        ("llama", (None, 2)),
        ("bloom", (2, None)),
    ],
)
def test_positions_that_are_not_there(zoo, kind, positions, texts):
    with pytest.raises(InputError, check=texts):
        qk_circuit(zoo(kind), 0, 0).tokens(*positions)


def test_distances_that_are_not_there(zoo, texts):
    circuit = qk_circuit(zoo("gemma2"), 0, 0)
    x = torch.ones(3, 16)
    with pytest.raises(InputError, match="there are 3 vectors and 1 positions"):
        circuit.score(x, x, torch.tensor([1]), 0)
    with pytest.raises(InputError, check=texts):
        circuit.at_distance(-1)
    with pytest.raises(InputError, match="does not see 4 positions back"):  # sliding_window=4
        circuit.at_distance(4)
    with pytest.raises(InputError, check=texts):
        circuit.at_distance(3).at_distance(1)
    with pytest.raises(InputError, match="give no positions"):
        circuit.at_distance(3).tokens(4, 1)


def test_positions_beyond_a_table_that_does_not_grow(zoo, texts):
    circuit = qk_circuit(zoo("native-rotary"), 0, 0)  # n_ctx=12
    circuit.at_distance(11)
    with pytest.raises(InputError, match="12", check=texts):
        circuit.at_distance(12)
    with pytest.raises(InputError, match="no position 40"):
        circuit.tokens(40, 3)


def test_summaries_that_are_not_there(zoo, texts):
    svd = qk_circuit(zoo("own"), 0, 0).svd()
    for nothing in ({"k": 0}, {"components": 0}):
        with pytest.raises(InputError, check=texts):
            svd.top_tokens(**nothing)


def test_tokens_are_not_scored_for_keys_that_a_query_cannot_see(zoo, texts):
    causal, both_ways = qk_circuit(zoo("own"), 0, 0), qk_circuit(zoo("own-bare"), 0, 0)
    assert causal.tokens(3, 3).top(1)
    assert causal.tokens(3, 1).top(1)
    with pytest.raises(InputError, check=texts):
        causal.tokens(1, 3)
    assert both_ways.tokens(1, 3).top(1)
    with pytest.raises(InputError, match="does not see 5 positions back"):
        qk_circuit(zoo("mistral"), 0, 0).tokens(6, 1)  # sliding_window=4
