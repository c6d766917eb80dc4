import contextlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interp_toolkit.auditing.claims.kinds import (
    AlgorithmClaim,
    CircuitClaim,
    DirectionClaim,
    HeadsClaim,
    PairClaim,
    as_claim,
    read_claims,
)
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Head


@pytest.mark.parametrize("word", ["L5H1", "a5.h1", "5.1", [5, 1]])
def test_a_head_may_be_written_in_four_ways(word):
    claim = as_claim({"heads": [word], "relation": "induction"})
    assert claim.heads == (Head(5, 1),)


def test_a_file_of_every_kind(tmp_path):
    np.save(tmp_path / "v.npy", np.array([[1.0, 2.0]]))
    (tmp_path / "c.json").write_text('{"edges": {"input->m0": {"in_graph": true}}}')
    (tmp_path / "claims.yaml").write_text(
        """
claims:
  - {heads: [L1H0, L0H1], relation: induction, says: carries, text: they carry induction}
  - {circuit: c.json, says: both}
  - {direction: v.npy, hook: blocks.0.hook_resid_post, features: [a], position: -1}
  - {direction: [1, 0], hook: blocks.0.hook_resid_post, says: steers, by: 3}
  - {pair: {head: L0H3, key: 12, query: 7}}
  - {algorithm: argmax_piecewise_linear, layout: 10 list10 11 sorted10}
"""
    )
    found = read_claims(tmp_path / "claims.yaml")
    kinds = [HeadsClaim, CircuitClaim, DirectionClaim, DirectionClaim, PairClaim, AlgorithmClaim]
    assert [type(claim) for claim in found] == kinds
    assert [one.heads for one in found[0].each()] == [(Head(1, 0),), (Head(0, 1),)]
    assert found[1].circuit == ("input->MLP0",)
    assert found[2].direction == (1.0, 2.0)


def test_one_claim_needs_no_list(tmp_path, texts):
    path = tmp_path / "claim.json"
    path.write_text(json.dumps({"heads": ["L1H0"], "relation": "induction"}))
    [claim] = read_claims(path)
    texts(claim.about)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"heads": ["L1H0"], "circuit": ["m0"]},
        {"heads": ["L1H0"]},
        {"heads": ["H1L0"], "relation": "x"},
        {"heads": [], "relation": "x"},
        {"heads": ["L1H0"], "relation": "x", "say": "y"},
        {"heads": ["L1H0"], "relation": "x", "says": "rules"},
        {"heads": ["L1H0"], "relation": "x", "at_least": float("nan")},
        {"circuit": ["m0", "m0->logits"]},
        {"circuit": ["spam"]},
        {"circuit": [3]},
        {"direction": [1, "x"], "hook": "h"},
        {"direction": [1.0, float("inf")], "hook": "h"},
        {"direction": "none.npy", "hook": "h"},
        {"direction": "none.txt", "hook": "h"},
        {"direction": [1.0], "hook": "h", "table": 110},
        {"direction": [1.0], "hook": "h", "table": "01x"},
        {"pair": {"head": "L0H0", "key": -1, "query": 2}},
        {"algorithm": "bogo"},
        {"direction": [10**400], "hook": "h"},
        {"circuit": "a\0b.json"},
        {"circuit": "/dev/zero"},
        "what a lovely day",
        "L1H0 is a fine head",
        7,
    ],
)
def test_nonsense_is_one_clear_line(given, texts):
    with pytest.raises(InputError) as caught:
        as_claim(given)
    texts(str(caught.value))
    assert "\n" not in str(caught.value)


def test_a_bad_claim_is_told_by_its_number(tmp_path):
    path = tmp_path / "claims.json"
    good = {"heads": ["L1H0"], "relation": "induction"}
    path.write_text(json.dumps([good, {"heads": ["L1H0"]}]))
    with pytest.raises(InputError, match="claim 2: the key 'relation' is missing"):
        read_claims(path)


@pytest.mark.parametrize("text", ["", "[]", "claims: 3", "claims: []", "7", "a: [", "\x00"])
def test_files_without_a_claim(tmp_path, text):
    path = tmp_path / "claims.yaml"
    path.write_text(text)
    with pytest.raises(InputError):
        read_claims(path)


_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_DATA = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
_KEYS = st.sampled_from(
    ["heads", "relation", "circuit", "direction", "hook", "pair", "algorithm", "says", "table"]
)


@given(st.dictionaries(_KEYS, _DATA, max_size=5) | _DATA)
def test_anything_is_a_claim_or_an_input_error(data):
    with contextlib.suppress(InputError):
        assert as_claim(data, folder=Path("nowhere")).about


def test_a_claim_file_reads_only_what_lies_beside_it(tmp_path, texts):
    inside = tmp_path / "claims"
    inside.mkdir()
    (tmp_path / "secret.json").write_text('["m0->logits"]')
    for name in ("../secret.json", str(tmp_path / "secret.json")):
        (inside / "c.json").write_text(json.dumps({"circuit": name}))
        with pytest.raises(InputError, match="claim's", check=texts):
            read_claims(inside / "c.json")
    assert as_claim({"circuit": str(tmp_path / "secret.json")}).circuit == ("MLP0->logits",)


def test_a_vector_may_be_saved_as_it_is(tmp_path):
    np.save(tmp_path / "v.npy", np.array([1.0, 2.0, 3.0]))
    claim = as_claim({"direction": str(tmp_path / "v.npy"), "hook": "h"})
    assert claim.direction == (1.0, 2.0, 3.0)


def test_a_head_that_is_named_twice_is_one_claim():
    claim = as_claim({"heads": ["L1H0", [1, 0], "a1.h0"], "relation": "induction"})
    assert len(claim.each()) == 1
