"""The fixtures as another package meets them: registered by installing, true to their word."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from interp_toolkit.data.lists.draws import Lists
from interp_toolkit.data.lists.layout import parse_layout
from interp_toolkit.probes.estimators.separability import Certificate, check_separability

INPUTS = torch.tensor([[0, 0, 2], [0, 1, 2], [1, 0, 2], [1, 1, 2]])
pytest_plugins = ["pytester"]


def activations_of(model: torch.nn.Module) -> np.ndarray:
    _, cache = model.run_with_cache(INPUTS)
    return cache[model.ground_truth.hook][:, -1].detach().numpy()


def test_the_xor_model_keeps_its_word(tiny_xor_model) -> None:
    truth = tiny_xor_model.ground_truth
    y = np.array([bit == "1" for bit in truth.function])
    X = activations_of(tiny_xor_model)
    verdict = check_separability(X[y], X[~y])
    assert (verdict.status == "separable") == truth.separable
    assert verdict.margin == pytest.approx(truth.margin, rel=1e-9)


def test_the_one_head_model_keeps_its_word(tiny_one_head_model) -> None:
    truth = tiny_one_head_model.ground_truth
    X = activations_of(tiny_one_head_model)
    y = np.array([bit == "1" for bit in truth.function])
    weights = np.array([truth.certificate[key] for key in ("00", "01", "10", "11")])
    assert Certificate(weights[y], weights[~y], 0.0).verify(X[y], X[~y]) < 1e-15
    assert not truth.separable


def test_a_test_may_change_its_model(tiny_xor_model) -> None:
    with torch.no_grad():
        tiny_xor_model.embed.W_E.zero_()


def test_and_the_next_one_gets_a_new_one(tiny_xor_model) -> None:
    assert tiny_xor_model.embed.W_E.abs().sum() == 3


def test_installing_registers_them_without_importing_torch(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_not_yet():
            assert "torch" not in sys.modules

        def test_there(tiny_xor_model):
            assert tiny_xor_model.ground_truth.separating_head_count == 2
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_the_induction_model_keeps_its_word(tiny_induction_model) -> None:
    truth = tiny_induction_model.ground_truth
    n_pos = 2 * truth.d_vocab
    assert n_pos == truth.n_ctx
    segment = torch.randperm(truth.d_vocab, generator=torch.Generator().manual_seed(0))
    tokens = segment.repeat(2)[None]
    logits, cache = tiny_induction_model.run_with_cache(tokens)
    places = torch.arange(1, n_pos)
    layer, head = truth.previous_token
    before = cache["pattern", layer][0, head, places, places - 1]
    assert before.min().item() == pytest.approx(truth.previous_token_share, rel=1e-9)
    layer, head = truth.induction
    places = torch.arange(truth.d_vocab + 1, n_pos)
    after = cache["pattern", layer][0, head, places, places - truth.d_vocab + 1]
    assert after.min().item() == pytest.approx(truth.induction_share, rel=1e-5)
    answers = tokens.roll(-1, dims=1)[0, truth.d_vocab : -1]
    loss = torch.nn.functional.cross_entropy(logits[0, truth.d_vocab : -1], answers)
    assert loss.item() == pytest.approx(truth.loss, rel=1e-3)


def test_the_sorting_model_keeps_its_word(tiny_sort_model) -> None:
    truth = tiny_sort_model.ground_truth
    cfg, (layer, head) = tiny_sort_model.cfg, truth.head
    layout = parse_layout(truth.layout, d_vocab=cfg.d_vocab, d_vocab_out=cfg.d_vocab_out)
    assert (layout.n_values, layout.longest) == (truth.n_values, truth.longest)
    margins = []
    for n in range(truth.shortest, truth.longest + 1):
        items = list(itertools.product(range(truth.n_values), repeat=n))[:: 1 + n]
        rows = layout.rows(Lists.from_rows(items, truth.n_values))
        logits, cache = tiny_sort_model.run_with_cache(rows.tokens)
        pattern = cache["pattern", layer][:, head]
        separator = (rows.tokens == truth.separator).nonzero()[:, 1]
        for row, values in enumerate(items):
            for k, answer in enumerate(sorted(values)):
                query = rows.read[row, k]
                z = n + truth.ratios[k]
                sums = [
                    sum(min(0, a - x) for a in values) + truth.ratios[k] * x
                    for x in range(truth.n_values)
                ]
                expected = torch.tensor([truth.gain * s / z for s in sums], dtype=torch.float64)
                torch.testing.assert_close(logits[row, query], expected, rtol=0, atol=1e-9)
                share = pattern[row, query, separator[row]].item()
                assert share == pytest.approx(truth.ratios[k] / z, rel=1e-12)
                assert logits[row, query].argmax() == answer
                best, second = logits[row, query].topk(2).values
                margins.append((best - second).item())
    assert min(margins) == pytest.approx(truth.margin, rel=1e-9)


def test_the_universal_and_model_keeps_its_word(tiny_uand_model) -> None:
    truth = tiny_uand_model.ground_truth
    sets = [s for n in range(truth.most_on + 1) for s in itertools.combinations(range(6), n)]
    filled = [[*s, *[truth.nothing] * (truth.most_on - len(s)), truth.read] for s in sets]
    logits, cache = tiny_uand_model.run_with_cache(torch.tensor(filled))
    neurons = cache[truth.hook][:, -1]
    for row, on in zip(neurons, sets, strict=True):
        counts = [sum(n in truth.neurons[i] for i in on) for n in range(len(row))]
        assert row.tolist() == pytest.approx([max(0, count - 1) for count in counts], abs=1e-12)
    for p, (i, j) in enumerate(truth.pairs):
        common = sorted(set(truth.neurons[i]) & set(truth.neurons[j]))
        assert len(common) == truth.shared
        scores = logits[:, -1, p]
        torch.testing.assert_close(scores, neurons[:, common].mean(1), rtol=0, atol=1e-12)
        true = torch.tensor([i in on and j in on for on in sets])
        assert (scores - true.double()).abs().max().item() == pytest.approx(truth.worst)
        on, off = scores[true], scores[~true]
        width = max(on.max() - on.min(), off.max() - off.min())
        least = width / (2 * (on.min() - off.max() + width))
        assert least.item() == pytest.approx(truth.worst_after_offset)


def test_the_doctor_lists_the_faults_of_a_model(pytester) -> None:
    pytester.makepyfile(
        """
        import interp_toolkit as it

        def test_sound(model_doctor):
            assert model_doctor("toy:xor-2head").status == "sound"

        def test_faulty(model_doctor):
            model = it.load("toy:induction")
            model.embed.register_forward_hook(lambda module, args, output: output / 2)
            model_doctor(model)
        """
    )
    result = pytester.runpytest("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*the first residual stream is the embedding*"])
