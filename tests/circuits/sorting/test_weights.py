"""Weight tables, their form and their positions: against hooks, and what is planted."""

from __future__ import annotations

import importlib.util
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

from interp_toolkit.circuits.sorting.activations import read
from interp_toolkit.circuits.sorting.weights import (
    copy_score,
    piecewise_fits,
    position_shares,
    separator_line_of_weights,
    sources,
    split_scores,
    split_written,
    weight_tables,
)
from interp_toolkit.data.lists.draws import Lists, ListSource
from interp_toolkit.data.lists.layout import parse_layout
from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.sorting import sort_argmax, sort_min_greater


def kinked(n, slope, seed=0):
    """c + b x + slope min(0, i - x), with c and b of each row's own."""
    generator = torch.Generator().manual_seed(seed)
    i, x = torch.arange(n, dtype=torch.float64)[:, None], torch.arange(n, dtype=torch.float64)
    c, b = torch.randn(2, n, 1, generator=generator, dtype=torch.float64)
    return c + b * x + slope * (i - x).clamp(max=0)


@pytest.mark.parametrize("n", [4, 10, 15])
def test_exact_shapes_have_their_kink_and_slope(n):
    fits = piecewise_fits(kinked(n, 2.5))
    np.testing.assert_allclose(fits.r2, 1)
    assert fits.kink[1:-1].tolist() == list(range(1, n - 1))
    assert np.isnan(fits.kink[[0, -1]]).all()
    assert (fits.mean_r2, fits.kink_at_value) == (pytest.approx(1), 1)
    assert fits.kink_r2 == pytest.approx(1)
    assert fits.slope == pytest.approx(2.5)


def test_a_vector_that_all_rows_share_changes_nothing():
    table = torch.randn(9, 9, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    shared = torch.randn(9, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    for bare in (table, kinked(9, 2.0)):
        first, second = piecewise_fits(bare), piecewise_fits(bare + 10 * shared)
        np.testing.assert_allclose(first.r2, second.r2)
        np.testing.assert_array_equal(first.kink, second.kink)
        assert first.slope == pytest.approx(second.slope)


def test_the_bare_functions_of_algorithm_2_fit():
    i = torch.arange(10, dtype=torch.float64)
    fits = piecewise_fits((i[:, None] - i).clamp(max=0))
    assert fits.mean_r2 == pytest.approx(1)
    assert fits.slope == pytest.approx(1)


def test_kinks_the_other_way_are_none():
    fits = piecewise_fits(-kinked(10, 1.0))
    assert fits.slope == 0
    assert np.isnan(fits.kink).all()
    assert fits.kink_at_value == 0
    assert fits.mean_r2 < 1 - 1e-3
    assert fits.kink_r2 == 0


def test_lines_alone_have_no_kink():
    """The fit explains them all, by its lines."""
    fits = piecewise_fits(kinked(10, 0.0))
    assert fits.mean_r2 == pytest.approx(1)
    assert fits.kink_r2 == 0


def test_kinks_elsewhere_are_found_there():
    table = kinked(10, 3.0)[[0, 4, 1, 2, 3, 5, 6, 7, 8, 9]]
    fits = piecewise_fits(table)
    assert fits.r2[1] < 0.999
    assert fits.kink_at_value == pytest.approx(4 / 8)


def test_any_table_is_fitted_as_a_general_solver_does():
    n = 7
    table = torch.randn(n, n, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    table += 0.5 * kinked(n, 1.0)
    fits = piecewise_fits(table)
    x, one = np.arange(n), np.eye(n)
    kink = np.minimum(0.0, x[:, None] - x)
    columns = [np.outer(np.ones(n), row) for row in one]  # v(x)
    columns += [np.outer(row, np.ones(n)) for row in one]  # c_i
    columns += [np.outer(row, x) for row in one]  # b_i
    low = [-np.inf] * len(columns) + [0]
    design = np.stack([c.ravel() for c in [*columns, kink]], axis=1)
    y = table.numpy()
    solved = lsq_linear(design, y.ravel(), bounds=(low, np.inf), tol=1e-14)
    centred = y - y.mean(0)
    centred = centred - centred.mean(1, keepdims=True)
    assert fits.slope == pytest.approx(solved.x[-1], abs=1e-6)
    assert fits.slope > 0
    assert fits.mean_r2 == pytest.approx(1 - 2 * solved.cost / (centred**2).sum(), abs=1e-6)
    bare = lsq_linear(design[:, :-1], y.ravel(), tol=1e-14)  # without the kinks
    assert fits.kink_r2 == pytest.approx(1 - solved.cost / bare.cost, abs=1e-6)
    residual = (y.ravel() - design @ solved.x).reshape(n, n)
    rows = 1 - (residual**2).sum(1) / (centred**2).sum(1)
    np.testing.assert_allclose(fits.r2, rows, atol=1e-5)


def test_what_cannot_be_told_is_not():
    written = piecewise_fits(torch.ones(5, 5))
    assert (written.mean_r2, written.kink_r2, written.kink_at_value) == (None, None, None)
    assert np.isnan(written.r2).all()
    assert piecewise_fits(kinked(3, 1.0)).mean_r2 is None
    assert copy_score(torch.zeros(5, 5)) == 0


def test_copying():
    assert copy_score(torch.eye(6)) == 1
    assert copy_score(torch.eye(6).roll(1, 0)) == 0
    half = torch.eye(6)
    half[:3] = half[:3].roll(1, 0)
    assert copy_score(half, centre=False) == pytest.approx(4 / 6 - 1 / 6)
    shared = torch.eye(6) + torch.tensor([0.0, 0, 5, 0, 0, 0])  # as a position embedding adds
    assert copy_score(shared) == 1
    assert copy_score(shared, centre=False) == pytest.approx(1 / 6)


def test_one_value_has_no_shape():
    with pytest.raises(InputError, match="two values"):
        piecewise_fits(torch.zeros(1, 1))


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.floats(0, 3), st.floats(0, 3), st.floats(0, 3))
def test_planted_parts_come_back(seed: int, a: float, b: float, c: float) -> None:
    """Key, key × query, and key × query's place, each drawn without the others' means."""
    draw = torch.Generator().manual_seed(seed)

    def centred(*shape: int) -> torch.Tensor:
        part = torch.randn(*shape, generator=draw, dtype=torch.float64)
        for axis in range(len(shape)):
            part = part - part.mean(axis, keepdim=True)
        return part

    key, query, place = a * centred(6), b * centred(5, 6), c * centred(4, 5, 6)
    scores = (key + query + place)[:, :, None].expand(4, 5, 3, 6)
    common = torch.randn(4, 5, 1, 1, generator=draw, dtype=torch.float64)  # of no pattern
    shares, _ = split_scores(scores + 10 * common)
    sizes = np.array([float((part**2).mean()) for part in (key, query, place)])
    total = sizes.sum()
    if total < 1e-6:
        return
    np.testing.assert_allclose(shares[:3], sizes / total, atol=1e-9)
    assert shares[3] == pytest.approx(0, abs=1e-9)


def test_a_key_place_is_told_from_a_token() -> None:
    draw = torch.Generator().manual_seed(0)
    scores = torch.randn(1, 1, 7, 1, generator=draw, dtype=torch.float64).expand(4, 5, 7, 6)
    shares, kept = split_scores(scores)
    assert shares[3] == pytest.approx(1)
    assert kept == 1.0  # no two keys differ but by place
    written = torch.randn(7, 1, 6, generator=draw, dtype=torch.float64).expand(7, 5, 6)
    token, place = split_written(written)
    assert (token, place) == pytest.approx((0, 1))


def test_an_order_that_turns_with_the_place_is_not_kept() -> None:
    up = torch.arange(4, dtype=torch.float64)
    scores = torch.stack([up, up, up, -up])[:, None, None, :]
    _, kept = split_scores(scores)
    assert kept == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("model", "words", "d_vocab_out"),
    [
        (sort_min_greater(), "15 list10 16 sorted10", 15),
        (sort_argmax(), "10 list1-10 11 pad12", 10),
    ],
)
def test_hand_set_sorters_do_not_look_at_where_keys_stand(model, words, d_vocab_out) -> None:
    layout = parse_layout(words, d_vocab=model.cfg.d_vocab, d_vocab_out=d_vocab_out)
    for found in position_shares(model, layout):
        assert found.qk_key_position == pytest.approx(0, abs=1e-9)
        assert found.ov_position == pytest.approx(0, abs=1e-9)
        assert found.order_preserved > 0.99


HAS_HOOKED_TRANSFORMER = importlib.util.find_spec("transformer_lens.HookedTransformer") is not None
BARE = {"attn_only": True, "normalization_type": None}
ROTARY = {"positional_embedding_type": "rotary"}
MLP = {"d_mlp": 16, "act_fn": "relu"}
SIZES = {"n_layers": 1, "d_model": 16, "n_ctx": 14, "d_head": 8, "n_heads": 2, "d_vocab": 7}
LAYOUTS = {
    "after": "4 list3 5 sorted3",
    "at": "4 list1-4 5 pad6",
    "lengths": "4 list1-3 5 sorted1-3 4 pad6",
    "bare": "list3 sorted3",
}


def scrambled(model):
    """Every parameter random, biases and norms too."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def own(**options):
    sizes = SIZES | {"d_vocab_out": 4, "seed": 0} | BARE | options
    return scrambled(Transformer(TransformerConfig(**sizes)))


def parsed(name):
    return parse_layout(LAYOUTS[name], d_vocab=7, d_vocab_out=4)


def reading_of(model, layout, n=40):
    source = ListSource("uniform", layout.n_values, layout.shortest, layout.longest)
    return read(model, layout, source.draw(n, torch.Generator().manual_seed(0)))


def tables_of(model, layout):
    return weight_tables(model, layout, reading_of(model, layout))


KINDS = {
    "one head": {"n_heads": 1},
    "two heads": {},
    "both ways": {"attention_dir": "bidirectional"},
    "grouped": {"n_heads": 4, "n_key_value_heads": 2},
    "rotary": {**ROTARY, "rotary_dim": 8},
    "soft cap of scores": {"attn_scores_soft_cap": 2.0},
    "no biases": {"biases": False},
}


@pytest.mark.parametrize("options", KINDS.values(), ids=list(KINDS))
@pytest.mark.parametrize("name", LAYOUTS)
def test_without_norm_the_logits_are_rebuilt_exactly(options, name):
    tables = tables_of(own(**options), parsed(name))
    assert tables.exact
    assert tables.residual < 1e-10
    assert tables.note == ""


@pytest.mark.parametrize(
    ("options", "why"),
    [({"attn_only": False, **MLP}, "MLP"), ({"output_logits_soft_cap": 1.0}, "soft cap")],
)
def test_what_is_left_out_is_said_and_measured(options, why):
    tables = tables_of(own(**options), parsed("after"))
    assert not tables.exact
    assert tables.residual > 1e-4
    assert why in tables.note
    assert f"{tables.residual:.1g}" in tables.note


def test_rounding_is_called_that(texts):
    tables = tables_of(own(dtype=torch.bfloat16), parsed("after"))
    assert not tables.exact
    assert tables.residual < 1e-2
    texts(tables.note)


@pytest.mark.parametrize(
    "options",
    [
        {"normalization_type": "LN"},
        {"normalization_type": "LNPre"},
        {"normalization_type": "RMS", **ROTARY, "rotary_dim": 8},
    ],
)
def test_before_a_final_norm_divides_the_logits_are_rebuilt_exactly(options, texts):
    model = own(**options)
    layout = parsed("after")
    tables = tables_of(model, layout)
    assert not tables.exact
    assert tables.residual < 1e-10
    texts(tables.note)
    reading = reading_of(model, layout)
    _, cache = model.run_with_cache(reading.rows.tokens)
    scale = cache["ln_final.hook_scale"][..., 0].gather(1, reading.rows.read)
    torch.testing.assert_close(reading.scale, scale.double(), rtol=1e-5, atol=1e-7)
    doubled = own(**options)
    doubled.unembed.W_U.data *= 2
    other = reading_of(doubled, layout)
    bent, straight = (x - x.mean(-1, keepdim=True) for x in (other.undivided, reading.undivided))
    torch.testing.assert_close(bent, 2 * straight, rtol=1e-3, atol=1e-4)


def test_ov_is_given_at_the_mean_scale_of_a_final_norm():
    model, layout = own(normalization_type="LNPre"), parsed("after")
    reading = reading_of(model, layout)
    _, cache = model.run_with_cache(reading.rows.tokens)
    attn, x = model.blocks[0].attn, cache["blocks.0.ln1.hook_normalized"][0, 0]  # of token 4
    scale = cache["ln_final.hook_scale"][..., 0].gather(1, reading.rows.read).mean()
    ov = weight_tables(model, layout, reading).ov[:, 4]
    for head in range(2):
        out = (x @ attn.W_V[head] + attn.b_V[head]) @ attn.W_O[head]
        expected = (out - out.mean()) @ model.unembed.W_U / scale
        torch.testing.assert_close(ov[head], expected.detach().double(), rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not HAS_HOOKED_TRANSFORMER, reason="TransformerLens 4 has none")
@pytest.mark.parametrize(
    ("options", "exact"),
    [
        (BARE, True),
        (BARE | {"n_heads": 4, "n_key_value_heads": 2}, True),
        (BARE | {"positional_embedding_type": "alibi"}, True),
        (BARE | {"positional_embedding_type": "shortformer"}, None),
        ({"attn_only": True, "normalization_type": "LNPre"}, False),
    ],
)
def test_hooked_transformers(options, exact):
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    sizes = SIZES | {"d_vocab_out": 4, "seed": 0} | options
    model = scrambled(HookedTransformer(HookedTransformerConfig(**sizes)))
    if exact is None:  # positions that the view of the weights cannot give
        with pytest.raises(InputError):
            tables_of(model, parsed("after"))
    else:
        assert tables_of(model, parsed("after")).exact is exact


def test_a_bridge():
    from transformer_lens.model_bridge import TransformerBridge

    sizes = SIZES | BARE | {"d_vocab_out": 7, "attn_scale": -1, "seed": 0}
    model = TransformerBridge.boot_native(sizes | {"architecture": "TransformerLensNative"})
    assert tables_of(
        scrambled(model), parse_layout("4 list3 5 sorted3 6", d_vocab=7, d_vocab_out=7)
    ).exact


def every_list(layout):
    lengths = range(layout.shortest, layout.longest + 1)
    rows = [row for n in lengths for row in itertools.product(range(layout.n_values), repeat=n)]
    return layout.rows(Lists.from_rows(rows, layout.n_values))


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
def test_qk_is_the_mean_of_the_scores_that_queries_and_keys_make(name, direction):
    layout, model = parsed(name), own(attention_dir=direction)
    tables = tables_of(model, layout)
    one_token_each = torch.arange(7)[:, None].expand(-1, layout.n_positions)
    seen = {}
    hooks = [f"blocks.0.attn.hook_{part}" for part in "qk"]
    model.run_with_hooks(
        one_token_each,
        fwd_hooks=[
            (h, lambda x, hook: seen.update({hook.name: x.detach().double()})) for h in hooks
        ],
    )
    q, k = (seen[hook] for hook in hooks)  # [token pos head d_head]
    for item, (number, source) in itertools.product(
        range(layout.longest), enumerate(sources(layout))
    ):
        for query, token in enumerate(layout.values):
            stands = layout.between[-1] if item == 0 and layout.between else token
            means = []
            for i, length in enumerate(range(layout.shortest, layout.longest + 1)):
                if item >= length:
                    continue
                at = layout.read_positions(length)[item]
                keys = [p for p in source.positions[i] if direction == "bidirectional" or p <= at]
                scores = [(q[stands, at] * k[source.token, p]).sum(-1) / 8**0.5 for p in keys]
                means += [torch.stack(scores).mean(0)] if scores else []
            expected = torch.stack(means).mean(0) if means else torch.full((2,), -torch.inf)
            found = tables.qk[:, item, query, number]
            torch.testing.assert_close(found, expected.to(found), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["after", "at"])
def test_ov_is_what_the_logits_gain_when_only_a_source_is_attended_to(name):
    layout = parsed(name)
    model = own(attention_dir="bidirectional" if name == "at" else "causal")
    tables, rows = tables_of(model, layout), every_list(layout)
    for head, (number, source) in itertools.product(range(2), enumerate(sources(layout))):
        gained = {}
        for places in source.positions:
            for place in places:
                row = next(i for i, t in enumerate(rows.tokens) if t[place] == source.token)
                tokens = rows.tokens[row : row + 1]

                def look(pattern, hook, head=head, place=place, share=1.0):
                    pattern = torch.zeros_like(pattern)
                    pattern[:, head, :, place] = share
                    return pattern

                def away(pattern, hook):
                    return torch.zeros_like(pattern)

                hook = "blocks.0.attn.hook_pattern"
                with_it = model.run_with_hooks(tokens, fwd_hooks=[(hook, look)])
                without = model.run_with_hooks(tokens, fwd_hooks=[(hook, away)])
                gained[place] = (with_it - without)[0, -1].detach().double()
        by_length = [
            torch.stack([gained[p] for p in places]).mean(0)
            for places in source.positions
            if places
        ]
        expected = torch.stack(by_length).mean(0)
        torch.testing.assert_close(tables.ov[head, number], expected, rtol=1e-4, atol=1e-4)


def test_the_posted_formula():
    model = own(n_heads=1)
    attn = model.blocks[0].attn
    x = model.embed.W_E[:4]
    z = (x @ attn.W_V[0] + attn.b_V[0]) @ attn.W_O[0] + attn.b_O
    expected = (z @ model.unembed.W_U + model.unembed.b_U).detach().double()
    tables = tables_of(model, parsed("after"))
    torch.testing.assert_close(tables.ov_posted[0], expected, rtol=1e-4, atol=1e-5)


def test_the_separator_line_is_the_ratio_of_attention_where_keys_of_values_are_alike():
    model = own(n_heads=1)
    with torch.no_grad():
        model.embed.W_E[:4] = model.embed.W_E[0].clone()  # all values attended to alike
        model.pos_embed.W_pos[1:4] = model.pos_embed.W_pos[1].clone()
    layout = parsed("after")
    reading = reading_of(model, layout)
    line = separator_line_of_weights(weight_tables(model, layout, reading), layout)
    ratio = reading.pattern[:, 0, :, 0] / reading.pattern[:, 0, :, 1]
    assert line.shape == (1, 2, 3)
    torch.testing.assert_close(line[0, 0], ratio[0], rtol=1e-4, atol=1e-5)


def test_what_the_mask_hides_is_never_attended_to():
    layout = parse_layout("list3 5 4", d_vocab=7, d_vocab_out=4)  # separators behind all queries
    tables = tables_of(own(), layout)
    assert (tables.qk[..., 4:] == -torch.inf).all()
    assert (separator_line_of_weights(tables, layout) == 0).all()
    assert tables.qk[:, 0, :, :4].isfinite().all()  # of its own place, the first


def test_names_and_places_of_sources():
    layout = parse_layout("4 list1-2 5 sorted1-2 4 pad6", d_vocab=7, d_vocab_out=4)
    listed = {source.name: source.positions for source in sources(layout)}
    assert list(listed) == ["0", "1", "2", "3", "[4] 1st", "[5]", "[4] 2nd", "padding"]
    assert listed["0"] == ((1,), (1, 2))
    assert listed["[5]"] == ((2,), (3,))
    assert listed["[4] 2nd"] == ((4,), (6,))
    assert listed["padding"] == ((5, 6), ())
