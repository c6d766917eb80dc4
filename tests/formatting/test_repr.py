"""One line for objects that hold arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import interp_toolkit as it
from interp_toolkit.formatting import ShortRepr, short_repr


@dataclass(frozen=True)
class Held(ShortRepr):
    name: str
    values: Any
    missing: int | None = None
    hidden: int = field(default=3, repr=False)


@dataclass(frozen=True)
class Further(Held):
    more: float = 0.5


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.zeros((3, 4)), "float64[3, 4]"),
        (torch.zeros(2, dtype=torch.bfloat16), "bfloat16[2]"),
        (np.float32(0.5), "0.5"),
        (torch.tensor(7), "7"),
        (0.123456789, "0.1235"),
        (True, "True"),
        ("x" * 100, f"'{'x' * 39}…'"),
        ([1, 2], "[1, 2]"),
        ([1] * 5, "[5 items]"),
        ([np.zeros(3)], "[1 items]"),
        ({"a": 1}, "{1 entries}"),
        (np.zeros, "zeros"),
        (Held("a", 1), "Held"),
    ],
)
def test_a_value_in_a_few_letters(value: Any, said: str) -> None:
    assert short_repr(value) == said


def test_one_line_whatever_is_held() -> None:
    assert repr(Held("w", np.zeros((900, 900)))) == "Held(name='w', values=float64[900, 900])"
    assert repr(Further("w", [], missing=2)) == (
        "Further(name='w', values=[], missing=2, more=0.5)"
    )


@given(st.text())
def test_names_from_files_do_not_become_markup(text: str) -> None:
    found: set[str] = set()

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            found.add(tag)

    Tags().feed(Held(text, None)._repr_html_())
    assert found <= {"strong", "table", "tr", "th", "td"}
    assert "\n" not in repr(Held(text, None))


def test_what_the_toolkit_hands_out_is_one_line(analyzed) -> None:
    from interp_toolkit.circuits import ov_circuit, qk_circuit, score_heads
    from interp_toolkit.probes import check_separability

    model = it.load("toy:induction")
    X = np.array([[0.0, 0], [1, 1], [0, 1], [1, 0]])
    qk = qk_circuit(model, layer=1, head=0)
    found = check_separability(X[:2], X[2:])
    shown = [found, found.certificate, qk, qk.tokens(), ov_circuit(model, layer=1, head=0)]
    shown += [it.analyze(model, "composition"), analyzed("toy:xor-2head", "xor")]
    shown += [*shown[-1].figures(), *shown[-1].tables()]
    for value in shown:
        assert "\n" not in repr(value), type(value)
        assert len(repr(value)) < 500, type(value)
    assert len(score_heads(model)) > 0
