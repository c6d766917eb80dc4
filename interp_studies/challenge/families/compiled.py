"""Compiled programs with decoys and idle heads; heads, attention patterns and edges are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch

from interp_studies.challenge.case import Case, Truth
from interp_studies.challenge.disguise import disguised
from interp_studies.challenge.plain import measured_edges, paired
from interp_studies.challenge.programs import LIBRARY, Program, rows_of
from interp_studies.challenge.tracr_model import Compiled, compile_program
from interp_toolkit.data import FeatureData
from interp_toolkit.models.model import Head

ROWS = 256


def compiled_cases(seed: int, count: int) -> Iterator[Case]:
    """`count` models, program by program in turn, each with random sizes and weights."""
    names = list(LIBRARY)
    for number in range(count):
        drawn = int(np.random.default_rng([seed, number, 1]).integers(2**31))
        yield compiled_case(names[number % len(names)], drawn)


def compiled_case(name: str, seed: int) -> Case:
    """The model of one program.

    Args:
        name: name of a program in `programs.LIBRARY`.
        seed: random seed of sizes, weights and prompts.
    """
    program = LIBRARY[name](np.random.default_rng([seed, 2]))
    made = compile_program(program, seed)
    model, places, _ = disguised(made.model, seed, dtype=torch.float32)
    heads = frozenset(places[h] for h in made.heads)
    data = program_rows(program, seed)
    nodes = {_moved(node, places) for node in made.nodes}
    relations, attends = _relations(program, made, places)
    truth = Truth(
        heads=heads,
        relations=relations,
        attends=attends,
        edges=measured_edges(model, data, nodes),
    )
    return Case("compiled", program.name, None, seed, model, data, truth)


def program_rows(program: Program, seed: int, n: int = ROWS) -> FeatureData:
    """Prompts with answers, each with a counterpart that has another answer."""
    some, *others = (_plain_rows(program, n, 10 * seed + k) for k in range(6))
    return paired(some, others)


def _plain_rows(program: Program, n: int, seed: int) -> FeatureData:
    symbols = rows_of(program, n, seed)
    answers = [program.tells[program.answer(row)] for row in symbols.tolist()]
    tokens = np.concatenate([np.zeros((n, 1), dtype=np.int64), symbols + 1], axis=1)
    return FeatureData(
        tokens,
        np.zeros((n, 0), dtype=np.bool_),
        (),
        source=f"rows of {program.n_places} symbols",
        answers=np.array(answers),
        answer_positions=np.full((n, 1), 1 + program.asked),
    )


def _relations(
    program: Program, made: Compiled, places: Mapping[Head, Head]
) -> tuple[dict[str, frozenset[Head]], dict[str, frozenset[Head]]]:
    """By pattern: heads on whose attention the answers depend, and all heads that have it."""
    relations: dict[str, frozenset[Head]] = {}
    attends: dict[str, frozenset[Head]] = {}
    for detector, expressions in program.relations.items():
        mine = {made.places[id(expression)] for expression in expressions}
        like = {decoy for decoy, head in made.decoys.items() if head in mine}
        relations[detector] = frozenset(places[h] for h in mine)
        attends[detector] = frozenset(places[h] for h in mine | like)
    return relations, attends


def _moved(node: str, places: Mapping[Head, Head]) -> str:
    """The name of a node in the disguised model."""
    if node[0] != "a":
        return node
    layer, head = node[1:].split(".h")
    new = places[Head(int(layer), int(head))]
    return f"a{new.layer}.h{new.head}"
