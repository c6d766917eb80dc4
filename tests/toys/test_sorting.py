"""The hand-set sorters against their closed forms, and on every list there is."""

from __future__ import annotations

import importlib.util
import itertools
import math

import pytest
import torch
from rewritten import rewritten
from tiny_models import as_hooked_transformer

from interp_toolkit import registry
from interp_toolkit.data.lists.layout import parse_layout
from interp_toolkit.errors import InputError
from interp_toolkit.toys import sorting as toys

BUILDERS = [toys.sort_min_greater, toys.sort_argmax, toys.sort_mixed]


def run(model, rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [row pos value] and the first head's pattern [row query key]."""
    logits, cache = model.run_with_cache(torch.tensor(rows))
    return logits.detach(), cache["pattern", 0][:, 0].detach()


def causal_row(items: tuple[int, ...], n_values: int) -> list[int]:
    return [n_values, *items, n_values + 1, *sorted(items)]


def padded_row(items: tuple[int, ...], n_values: int, longest: int) -> list[int]:
    return [n_values, *items, n_values + 1, *[n_values + 2] * (longest - len(items))]


def shuffled(items, seed: int) -> tuple[int, ...]:
    """In an order that differs from row to row."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(items), generator=generator).tolist()
    return tuple(items[i] for i in order)


def f(k: int, items: tuple[int, ...], x: int) -> float:
    return sum(min(0, a - x) for a in items) + (k + 0.5) * x


def double(numbers) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def outputs(model, tokens: torch.Tensor, first: int, n: int) -> torch.Tensor:
    """The model's outputs at the n positions from `first` on."""
    with torch.no_grad():
        found = [model(part)[:, first : first + n].argmax(-1) for part in tokens.split(8192)]
    return torch.cat(found)


@pytest.mark.parametrize(("filter_score", "prefer"), [(10.0, 3.0), (2.0, 0.5), (1.0, 0.0)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_min_greater_has_its_closed_form(filter_score: float, prefer: float, dtype) -> None:
    n, length, gain = 7, 4, 5.0
    model = toys.sort_min_greater(
        n, length, filter_score=filter_score, prefer=prefer, gain=gain, dtype=dtype
    )
    lists = [shuffled(s, i) for i, s in enumerate(itertools.combinations(range(n), length))]
    logits, pattern = run(model, [causal_row(items, n) for items in lists])
    a, d = math.exp(filter_score), math.exp(prefer)
    for items, got, attention in zip(lists, logits, pattern, strict=True):
        ordered = sorted(items)
        for k in range(length):
            previous = ordered[k - 1] if k else -1
            weight = {v: a * d ** (n - 1 - v) for v in items if v > previous}
            z = sum(weight.values()) + 2 * k + 2
            expected = [0.0] * n
            for v in items:
                expected[v] = gain * weight.get(v, 2) / z
            query = length + 1 + k
            close = {"rtol": 0, "atol": 1e-12 if dtype == torch.float64 else 1e-5}
            torch.testing.assert_close(got[query].double(), double(expected), **close)
            shares = double([1 / z] * (query + 1))
            for place, v in enumerate(items, start=1):
                shares[place] = weight.get(v, 1.0) / z
            torch.testing.assert_close(attention[query, : query + 1].double(), shares, **close)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_min_greater_sorts_all_sets_of_experiment_2_with_its_margin(dtype) -> None:
    n, length = 15, 10
    model = toys.sort_min_greater(dtype=dtype)
    sets = list(itertools.combinations(range(n), length))
    assert len(sets) == 3003
    tokens = torch.tensor([causal_row(shuffled(s, i), n) for i, s in enumerate(sets)])
    expected = torch.tensor(sets)
    with torch.no_grad():
        logits = model(tokens)[:, length + 1 : -1]
    assert torch.equal(logits.argmax(-1), expected)
    right = logits.gather(-1, expected[..., None])[..., 0]
    others = logits.scatter(-1, expected[..., None], -math.inf).amax(-1)
    margin = (right - others).double()
    a, d, gain = math.exp(toys.FILTER), math.exp(toys.PREFER), toys.GAIN
    exact = []
    for ordered in sets:
        for k, m in enumerate(ordered):
            weights = [a * d ** (n - 1 - v) for v in ordered[k:]]
            runner_up = max([*weights[1:2], 2.0 if k else 0.0])
            exact.append(gain * (weights[0] - runner_up) / (sum(weights) + 2 * k + 2))
            assert weights[0] == a * d ** (n - 1 - m)
    atol = 1e-11 if dtype == torch.float64 else 1e-4
    torch.testing.assert_close(margin.flatten(), double(exact), rtol=0, atol=atol)
    bound = gain * (1 - max(1 / d, 2 / a)) / (d / (d - 1) + (2 * length + 2) / a)
    assert bound - atol <= margin.min() < 1.1 * bound
    assert bound > 13


@pytest.mark.parametrize(
    ("filter_score", "prefer", "sorts"),
    [(0.70, 0.1, True), (0.68, 0.1, False), (5.0, 1e-3, True), (5.0, 0.0, False)],
)
def test_min_greater_sorts_just_where_it_says(
    filter_score: float, prefer: float, sorts: bool
) -> None:
    """D > 1 and A > 2: ln 2 = 0.693."""
    model = toys.sort_min_greater(6, 4, filter_score=filter_score, prefer=prefer)
    sets = list(itertools.combinations(range(6), 4))
    found = run(model, [causal_row(s[::-1], 6) for s in sets])[0][:, 5:9]
    right = found.gather(-1, torch.tensor(sets)[..., None])
    strictly = ((found >= right - 1e-12).sum(-1) == 1).all()
    assert bool(strictly) == sorts


def test_min_greater_gives_a_repeated_value_once() -> None:
    model = toys.sort_min_greater(5, 3)
    tokens = [5, 2, 2, 4, 6]
    for _ in range(3):
        tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    assert tokens[5:7] == [2, 4]


@pytest.mark.parametrize(("n_values", "length"), [(2, 6), (4, 5), (6, 3)])
def test_refined_sorts_every_multiset_with_its_margin(n_values: int, length: int) -> None:
    """Stay or go on: gain against 2 gain b / (c + b), with b = n - k - 0.5."""
    gain = 50.0
    model = toys.sort_refined(n_values, length, gain=gain)
    lists = list(itertools.combinations_with_replacement(range(n_values), length))
    rows = [causal_row(shuffled(items, seed), n_values) for seed, items in enumerate(lists)]
    logits, _ = run(model, rows)
    for items, row in zip(lists, logits, strict=True):
        for k, right in enumerate(items):
            found = row[length + 1 + k]
            assert int(found.argmax()) == right
            if k == 0:
                continue
            p, b = items[k - 1], length - k - 0.5
            above = [a for a in items if a > p]
            stay = 2 * gain * b / (len(above) + b)
            if above:
                assert float(found[p]) == pytest.approx(stay, abs=1e-6)
                assert float(found[min(above)]) == pytest.approx(gain, abs=1e-6)


def test_refined_follows_the_token_and_not_the_position() -> None:
    """At item 3 of 0 0 1 1 2, after a 0: three are above and two are left, so the least of them."""
    model = toys.sort_refined(4, 5)
    row = causal_row((0, 0, 1, 1, 2), 4)
    row[5 + 1 + 3] = 0
    logits, _ = run(model, [row])
    assert int(logits[0, 5 + 1 + 3].argmax()) == 1


@pytest.mark.parametrize("n_values", [2, 3, 6])
def test_argmax_has_its_closed_form_in_place(n_values: int) -> None:
    longest, gain = 4, 3.0
    model = toys.sort_argmax(n_values, longest, gain=gain)
    lists = [
        items
        for n in range(1, longest + 1)
        for items in itertools.product(range(n_values), repeat=n)
    ]
    logits, pattern = run(model, [padded_row(items, n_values, longest) for items in lists])
    expected, got, ratios, known = [], [], [], []
    for row, items in enumerate(lists):
        n = len(items)
        for k in range(n):
            z = n + k + 0.5
            expected.append([gain * f(k, items, x) / z for x in range(n_values)])
            got.append(logits[row, k + 1])
            ratios.append(pattern[row, k + 1, 0] / pattern[row, k + 1, 1 : n + 1].mean())
            known.append(k + 0.5)
            assert pattern[row, k + 1, 1 : n + 1].max() == pytest.approx(1 / z, abs=1e-15)
            assert pattern[row, k + 1, n + 1 :].max() < math.exp(-toys.EXCLUDED)
    torch.testing.assert_close(torch.stack(got), double(expected), rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.stack(ratios), double(known), rtol=1e-13, atol=0)


@pytest.mark.parametrize(
    ("layout", "before"),
    [(None, [10]), ("10 list3 sorted3", [10]), ("11 10 list3 12 sorted3 13", [11, 10])],
)
def test_argmax_has_its_closed_form_when_causal(layout: str | None, before: list[int]) -> None:
    model = toys.sort_argmax(10, 3, bidirectional=False, layout=layout, gain=1.0)
    between = {None: [11], "10 list3 sorted3": []}.get(layout, [12])
    after = [13] if layout and layout.endswith("13") else []
    read = len(before) + 3 + len(between) - 1
    for items in [(3, 1, 3), (9, 0, 5), (7, 7, 7), (0, 0, 9)]:
        given = [sorted(items), [4, 4, 4], [9, 0, 9]]  # whatever was given before
        rows = [[*before, *items, *between, *output, *after] for output in given]
        logits, _ = run(model, rows)
        for k in range(3):
            expected = [f(k, items, x) / (3 + k + 0.5) for x in range(10)]
            torch.testing.assert_close(
                logits[:, read + k], double([expected] * 3), rtol=0, atol=1e-12
            )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("length", [1, 5, 10])
def test_argmax_sorts_every_multiset_in_place(length: int, dtype) -> None:
    model = toys.sort_argmax(dtype=dtype)
    ordered = torch.tensor(list(itertools.combinations_with_replacement(range(10), length)))
    assert len(ordered) == math.comb(9 + length, length)
    if dtype == torch.float32:
        ordered = ordered[::5]
    generator = torch.Generator().manual_seed(length)
    order = torch.rand(ordered.shape, generator=generator).argsort(1)
    ends = torch.tensor([11, *[12] * (10 - length)]).expand(len(ordered), -1)
    first = torch.full((len(ordered), 1), 10)
    tokens = torch.cat([first, ordered.gather(1, order), ends], dim=1)
    assert torch.equal(outputs(model, tokens, 1, length), ordered)


def test_the_least_margin_of_argmax_is_the_documented_one() -> None:
    """gain / (2Z), at every k where item k occurs once."""
    n_values, n, gain = 6, 3, 1.0
    model = toys.sort_argmax(n_values, n, gain=gain)
    for items in itertools.product(range(n_values), repeat=n):
        logits = run(model, [padded_row(items, n_values, n)])[0][0]
        ordered = sorted(items)
        for k, answer in enumerate(ordered):
            others = [logits[k + 1, x].item() for x in range(n_values) if x != answer]
            lead = (logits[k + 1, answer].item() - max(others)) * 2 * (n + k + 0.5) / gain
            assert lead > 1 - 1e-12
            if items.count(answer) == 1 and answer > 0:
                assert lead == pytest.approx(1, abs=1e-11)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_tilt_changes_the_slopes_and_not_the_answers(bidirectional: bool) -> None:
    n_values, longest, gain = 5, 4, 2.0
    tilt = 0.16 if bidirectional else 1.5
    model = toys.sort_argmax(n_values, longest, bidirectional, tilt=tilt, gain=gain)
    for n in range(1 if bidirectional else longest, longest + 1):
        for items in itertools.combinations_with_replacement(range(n_values), n):
            row = (
                padded_row(items, n_values, longest)
                if bidirectional
                else causal_row(items, n_values)
            )
            logits, pattern = run(model, [row])
            start = 1 if bidirectional else longest + 1
            for k in range(n):
                ratio = k + 0.5 + tilt * longest
                got, attention = logits[0, start + k], pattern[0, start + k]
                assert (attention[0] / attention[1]).item() == pytest.approx(ratio, rel=1e-13)
                lean = tilt * (longest - n)
                expected = [
                    gain * (f(k, items, x) + lean * x) / (n + ratio) for x in range(n_values)
                ]
                assert got.tolist() == pytest.approx(expected, abs=1e-12)
                assert int(got.argmax()) == sorted(items)[k]
                rest = [v for x, v in enumerate(got.tolist()) if x != sorted(items)[k]]
                least = gain * (0.5 - lean) / (n + ratio)
                assert got.max().item() - max(rest) >= least - 1e-12


@pytest.mark.parametrize("relative_attention", [0.0, 0.3, 1.0])
def test_mixed_has_its_closed_form_and_sorts(relative_attention: float) -> None:
    n_values, n, gain = 5, 4, 3.0
    model = toys.sort_mixed(n_values, n, relative_attention=relative_attention, gain=gain)
    lists = list(itertools.product(range(n_values), repeat=n))
    logits, pattern = run(model, [causal_row(items, n_values) for items in lists])
    for row, items in enumerate(lists):
        ordered = sorted(items)
        for k in range(n):
            p = ordered[k - 1] if k else -1
            weights = [1.0 if a > p else relative_attention for a in items]
            z = sum(weights) + n - k - 0.5
            expected = [
                gain
                * (
                    sum(w * min(a, x) for w, a in zip(weights, items, strict=True))
                    - (n - k - 0.5) * x
                )
                / z
                - 2 * gain * n_values * (x < p)
                for x in range(n_values)
            ]
            got = logits[row, n + 1 + k]
            assert got.tolist() == pytest.approx(expected, abs=1e-11)
            assert int(got.argmax()) == ordered[k]
            rest = max(v for x, v in enumerate(got.tolist()) if x != ordered[k])
            assert got.max().item() - rest >= gain / (2 * z) - 1e-11
            listed = pattern[row, n + 1 + k, 1 : n + 1].tolist()
            assert listed == pytest.approx([w / z for w in weights], abs=1e-15)


def test_mixed_sorts_the_multisets_of_experiment_1() -> None:
    model = toys.sort_mixed()
    ordered = torch.tensor(list(itertools.combinations_with_replacement(range(10), 10)))[::7]
    order = torch.rand(ordered.shape, generator=torch.Generator().manual_seed(0)).argsort(1)
    column = torch.full((len(ordered), 1), 10)
    tokens = torch.cat([column, ordered.gather(1, order), column + 1, ordered], dim=1)
    assert torch.equal(outputs(model, tokens, 11, 10), ordered)


LAYOUTS = [
    ("list3 7 sorted3 8", [], [7], [8]),
    ("0 1 list3 9 0 sorted3", [0, 1], [9, 0], []),
    ("2 list3 2 sorted3", [2], [2], []),
]


@pytest.mark.parametrize(("layout", "before", "between", "after"), LAYOUTS)
@pytest.mark.parametrize("build", BUILDERS)
def test_separators_may_stand_anywhere(build, layout, before, between, after) -> None:
    model = build(5, layout=layout)
    reserved = {*before, *between, *after}
    values = [i for i in range(20) if i not in reserved][:5]
    assert model.cfg.d_vocab_out == values[-1] + 1
    assert model.cfg.d_vocab == max(*reserved, values[-1]) + 1
    for chosen in itertools.combinations(values, 3):
        for items in itertools.permutations(chosen):
            logits, _ = run(model, [[*before, *items, *between, *chosen, *after]])
            read = len(before) + 3 + len(between) - 1
            assert tuple(logits[0, read : read + 3].argmax(-1).tolist()) == chosen


def test_in_place_layouts_without_padding_and_with_late_separators() -> None:
    model = toys.sort_argmax(4, layout="list2-3 4 5 pad6")
    assert model.cfg.attention_dir == "bidirectional"
    for n in (2, 3):
        for items in itertools.product(range(4), repeat=n):
            row = [*items, 4, 5, *[6] * (3 - n)]
            logits, _ = run(model, [row])
            assert logits[0, :n].argmax(-1).tolist() == sorted(items)


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("shares", [(0.0, 1.0, 0.0), (0.5, 0.5), (3.0, -2.0)])
def test_heads_share_the_output(build, shares) -> None:
    one, several = build(6, 4), build(6, 4, shares=shares)
    row = torch.tensor([[6, 5, 0, 2, 4, 7, *([0, 2, 4, 5] if one.cfg.n_ctx == 10 else [])]])
    logits, cache = several.run_with_cache(row)
    torch.testing.assert_close(logits, one(row), rtol=0, atol=1e-11)
    for head, share in enumerate(shares):
        attn = several.blocks[0].attn
        written = attn.W_V[head] @ attn.W_O[head]
        reference = one.blocks[0].attn.W_V[0] @ one.blocks[0].attn.W_O[0]
        if several.cfg.d_model == one.cfg.d_model:
            torch.testing.assert_close(written, share * reference)
        if share == 0:
            seen = (cache["pattern", 0][0, head] > 0).double()
            uniform = seen / seen.sum(-1, keepdim=True)
            torch.testing.assert_close(cache["pattern", 0][0, head], uniform)


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("shares", [(1.0,), (0.25, 0.75)])
def test_rewritten_weights_compute_the_same(build, shares, assert_same_logits) -> None:
    model = build(6, 4, shares=shares)
    other = rewritten(model, seed=3)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(model.cfg.d_vocab, (50, model.cfg.n_ctx), generator=generator)
    assert_same_logits(other, model, rows)
    for name, weights in other.named_parameters():
        if name.split(".")[-1].startswith("W_"):
            assert (weights.abs() > 1e-6).float().mean() > 0.9, name
    again, another = rewritten(model, seed=3), rewritten(model, seed=4)
    assert torch.equal(again.embed.W_E, other.embed.W_E)
    assert not torch.allclose(another.embed.W_E, other.embed.W_E)


@pytest.mark.skipif(
    importlib.util.find_spec("transformer_lens.HookedTransformer") is None,
    reason="TransformerLens 4 has no HookedTransformer",
)
@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("shares", [(1.0,), (0.5, 0.5)])
def test_hooked_transformer_computes_the_same(build, shares) -> None:
    ours = build(shares=shares)
    assert ours.cfg.biases
    theirs = as_hooked_transformer(ours)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(ours.cfg.d_vocab, (50, ours.cfg.n_ctx), generator=generator)
    torch.testing.assert_close(theirs(rows), ours(rows), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("build", "parameters"),
    [(toys.sort_min_greater, 15_807), (toys.sort_mixed, 15_242), (toys.sort_argmax, 14_738)],
)
def test_the_defaults_have_the_shape_of_the_trained_models(build, parameters: int) -> None:
    model = build()
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert (model.cfg.d_model, model.cfg.d_head, model.cfg.n_heads) == (56, 56, 1)
    assert not model.training


@pytest.mark.parametrize("toy", [toys.SORT_MIN_GREATER, toys.SORT_ARGMAX])
def test_the_toys_say_which_rows_they_read(toy) -> None:
    model = toy.build()
    cfg = model.cfg
    assert registry.find("toys", toy.name) is toy
    assert toy.task["name"] == "sorting"
    layout = parse_layout(toy.task["layout"], d_vocab=cfg.d_vocab, d_vocab_out=cfg.d_vocab_out)
    assert layout.n_positions == cfg.n_ctx
    assert layout.autoregressive == (cfg.attention_dir == "causal")


@pytest.mark.parametrize(
    ("build", "options"),
    [
        (toys.sort_min_greater, {"n_values": 1}),
        (toys.sort_min_greater, {"layout": "15 list1-4 16 pad17"}),
        (toys.sort_min_greater, {"layout": "15 list4 sorted4"}),
        (toys.sort_mixed, {"layout": "15 list4 sorted4"}),
        (toys.sort_mixed, {"layout": "10 list1-4 11 sorted1-4 pad12"}),
        (toys.sort_mixed, {"relative_attention": 1.5}),
        (toys.sort_argmax, {"layout": "10 list1-4 11 sorted1-4 pad12"}),
        (toys.sort_argmax, {"layout": "list4 sorted4"}),
        (toys.sort_argmax, {"tilt": 0.06}),
        (toys.sort_argmax, {"tilt": -0.01}),
        (toys.sort_argmax, {"shares": (0.5, 0.4)}),
        (toys.sort_argmax, {"shares": ()}),
    ],
)
def test_what_cannot_sort_is_refused_in_one_line(build, options, texts) -> None:
    with pytest.raises(InputError, check=texts) as caught:
        build(**options)
    assert "\n" not in str(caught.value)
