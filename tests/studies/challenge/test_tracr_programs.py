"""The benchmark on tracr's programs: its truth, and MIB's area, on graphs small enough to check."""

import numpy as np
import pytest
import torch

pytest.importorskip("tracr")
pytest.importorskip("transformer_lens.HookedTransformer")

from interp_studies.challenge.families.compiled import program_rows
from interp_studies.challenge.tracr_model import compile_program

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
EDGES = [("input", "m0"), ("m0", "m1"), ("input", "m1"), ("m0", "logits"), ("m1", "logits")]
TRUE = {"input->m1", "m1->logits"}
FALSE = {"input->m0", "m0->m1", "m0->logits"}


@pytest.fixture(scope="module")
def study(benchmarks):
    return benchmarks("tracr_programs")


def made(study, name):
    program = study.PROGRAMS[name](np.random.default_rng([0, 2]))
    return program, compile_program(program, 0)


def test_a_greedy_circuit_grows_from_the_logits_and_drops_what_nothing_reaches(study):
    scores = {"input->m0": 9.0, "input->m1": 2.0, "m1->logits": 3.0, "m0->m1": 1.0}
    assert study.greedy_circuit(scores, EDGES, 1) == set()  # m1 reads nothing yet
    assert study.greedy_circuit(scores, EDGES, 2) == {"m1->logits", "input->m1"}
    assert study.greedy_circuit(scores, EDGES, 5) == {"->".join(edge) for edge in EDGES}


def test_areas_of_a_right_a_useless_and_a_wrong_ranking(study):
    right = {"m1->logits": -3.0, "input->m1": 2.0, "m0->logits": 1.0}
    assert study.rank_auroc(right, TRUE, FALSE) == 1
    assert study.rank_auroc({}, TRUE, FALSE) == 0.5
    assert study.rank_auroc(dict.fromkeys(FALSE, 1.0), TRUE, FALSE) == 0
    assert study.mib_auroc(right, EDGES, TRUE, FALSE) == 1
    wrong = {"m0->logits": 3.0, "input->m0": 2.0, "m0->m1": 0.1}
    assert study.mib_auroc(wrong, EDGES, TRUE, FALSE) < 0.5


def test_edges_of_a_program_by_hand(study):
    _, compiled = made(study, "count")
    [head] = compiled.heads
    edges, known = study.program_edges(compiled)
    name = f"a0.h{head.head}"
    reads = {f"input->{name}<{channel}>" for channel in "qkv"}
    assert known == reads | {f"{name}->m0", "input->m0", "m0->logits"}
    assert len(edges) == 3 * 3 + (1 + 3) + (1 + 3 + 1)


@pytest.mark.parametrize(
    "name", ["pair balance", "sort with ties", "detect pattern", "alternation"]
)
def test_nothing_outside_the_program_moves_its_answers(study, name):
    program, compiled = made(study, name)
    plain = study.Plain(compiled, program_rows(program, 0, 24))  # answers are right, it asserts
    edges, known = study.program_edges(compiled)
    effects, heads = plain.effects(edges, compiled.heads)
    assert max(effect for edge, effect in effects.items() if edge not in known) < 1e-9
    assert max(heads.values()) > study.MATTERS


def test_hooks_see_the_compiled_model(study):
    program, compiled = made(study, "count of rare")
    data = program_rows(program, 0, 8)
    plain = study.Plain(compiled, data)
    with torch.no_grad():
        assert torch.allclose(plain.model(plain.clean), compiled.model(plain.clean), atol=1e-9)
