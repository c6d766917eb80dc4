import json

import pytest

import interp_toolkit as it
from interp_toolkit.auditing.claims.circuit_files import circuit_names, edges_of_file
from interp_toolkit.errors import InputError


@pytest.fixture(scope="module")
def found():
    from interp_toolkit.toys.hand_set.induction import induction

    return it.analyze(induction(32, 24), "circuit")


@pytest.mark.parametrize("name", ["c.graphml", "c.json", "c.eap.json"])
def test_what_we_write_comes_back(tmp_path, found, name):
    found.write_graph(tmp_path / name)
    assert set(edges_of_file(tmp_path / name)) == {row.edge for row in found.edges}


def test_eap_ig_with_scores_alone(tmp_path):
    path = tmp_path / "scores.json"
    path.write_text(json.dumps({"edges": {"a0.h1->m1": {"score": 0.5}, "m0->m1": {"score": 0}}}))
    assert edges_of_file(path) == ("L0H1->MLP1",)


def test_auto_circuit(tmp_path):
    path = tmp_path / "pruned.json"
    names = ["Resid Start->A0.1.V", "A0.1->A1.0.K", "MLP 0->MLP 1", "A1.0->Resid End"]
    path.write_text(json.dumps(dict.fromkeys(names, 1.5)))
    wanted = ("input->L0H1<v>", "L0H1->L1H0<k>", "MLP0->MLP1", "L1H0->logits")
    assert edges_of_file(path) == wanted
    path.write_text(json.dumps(names))
    assert edges_of_file(path) == wanted


def test_nodes_under_our_names():
    assert circuit_names(["L0H1", "MLP0", "a1.h0"]) == ("L0H1", "MLP0", "L1H0")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.json", "{"),
        ("c.json", "3"),
        ("c.json", "{}"),
        ("c.json", '{"edges": {"a0.h1->b": {"in_graph": true}}}'),
        ("c.json", "[" * 100_000),
        ("c.graphml", "<graphml"),
        ("c.graphml", '<!DOCTYPE x [<!ENTITY a "b">]><graphml/>'),
    ],
)
def test_damaged_files_are_one_line(tmp_path, name, text, texts):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        edges_of_file(path)
    texts(str(caught.value))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        edges_of_file(tmp_path / "none.json")
