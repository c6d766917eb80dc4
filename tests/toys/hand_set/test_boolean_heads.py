"""As many heads as the threshold degree: exact in fractions, and read by the probe."""

from __future__ import annotations

import itertools

import pytest
import torch

from interp_toolkit import analyze
from interp_toolkit.boolean_functions import threshold_degree
from interp_toolkit.errors import InputError
from interp_toolkit.toys.hand_set.boolean_heads import QUERY, boolean_heads, head_formula

THREE = [format(i, "08b") for i in range(1, 255)]


def inputs(n: int) -> list[tuple[int, ...]]:
    return list(itertools.product((0, 1), repeat=n))


def test_every_function_of_three_bits_with_as_many_heads_as_its_threshold_degree() -> None:
    for table in THREE:
        formula = head_formula(table)
        assert len(formula.heads) == threshold_degree(table).degree
        for bits, truth in zip(inputs(3), table, strict=True):
            assert (formula.value(bits) > 0) == (truth == "1")
        for _, z in formula.heads:  # a softmax denominator is positive, and so are its keys
            assert min(z.weights) > 0
            assert sum(z.weights) < z.constant


@pytest.mark.parametrize("n", [2, 4, 5, 6])
def test_parity_with_a_head_for_every_bit(n: int) -> None:
    table = "".join(str(i.bit_count() % 2) for i in range(2**n))
    assert len(head_formula(table).heads) == n


@pytest.mark.parametrize("table", ["0110", "0001", "01101001", "00010111", "01000001", "00101101"])
def test_the_model_writes_what_the_fractions_say(table: str) -> None:
    n = len(table).bit_length() - 1
    formula, model = head_formula(table), boolean_heads(table)
    assert model.cfg.n_heads == len(formula.heads)
    prompts = torch.tensor([[*bits, QUERY] for bits in inputs(n)])
    with torch.no_grad():
        logits = model(prompts)[:, -1]
    exact = torch.tensor([float(formula.value(b)) for b in inputs(n)], dtype=torch.float64)
    terms = [abs(float(h[0].at(b) / h[1].at(b))) for h in formula.heads for b in inputs(n)]
    torch.testing.assert_close(
        logits[:, 1] - logits[:, 0], exact, rtol=0, atol=1e-13 * (1 + max(terms))
    )


def test_the_probe_reads_parity_off_three_heads(texts) -> None:
    result = analyze("toy:parity-3head", "boolean", table="01101001")
    site = result.sites[result.focus]
    assert result.status == "separable"
    texts(site.theorem)
    assert site.heads_needed is None


def test_what_it_does_not_build_is_said_in_a_line(texts) -> None:
    with pytest.raises(InputError, match="constant"):
        head_formula("1111")
    with pytest.raises(InputError, check=texts):
        head_formula("0010100110010110")
