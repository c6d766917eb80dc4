"""How often does an audit err? True and false claims about the challenge's models.

Claims of each kind are made from what is known of the models (`interp_studies.challenge`), with the
words that they would come in:
- heads: "H contributes by R"; false: heads that attend to R and do nothing, and any others;
- circuit: "these edges are sufficient"; false: the same with the heads at work exchanged for others
  of their layer, and of compiled programs without one of their heads;
- reads, carries: directions of features; false: of other features, random, disconnected, and the
  illusion of a dormant part;
- pair: skip-bigrams that a head was made for, and others;
- algorithm: of sorting models; false: the other one.

Each is audited alone at a level of 5 %, on all rows of its model and on few. Told: of false claims
the share confirmed, of true ones the share refuted, with Clopper and Pearson's intervals, and what
stays open. The level bounds both shares for each audit; claims of one model share its rows, so that
intervals over claims are too narrow where models differ.

Run: python benchmarks/audit_calibration.py [--claims 200] [--rows 384 64] [--seed 0] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

import interp_toolkit as it
from interp_studies.challenge.case import Case
from interp_studies.challenge.families.bigrams import bigram_cases
from interp_studies.challenge.families.compiled import compiled_cases
from interp_studies.challenge.families.planted import planted_cases
from interp_studies.challenge.families.superposed import superposed_cases
from interp_studies.challenge.families.twins import twin_cases
from interp_toolkit.auditing.claims.kinds import BaseClaim, as_claim
from interp_toolkit.circuits.edges.passes.patched_pass import PatchedModel
from interp_toolkit.circuits.heads.detectors import OURS
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.files import replacing
from interp_toolkit.models.model import Head
from interp_toolkit.stats import clopper_pearson

A_MODEL = 4  # claims of each truth that a model gives
UNREADABLE: Counter[str] = Counter()  # models that cannot be taken apart into edges
Told = tuple[Case, BaseClaim, bool]  # a model, a claim about it, and whether it is true


def told_heads(case: Case, rng: np.random.Generator) -> Iterator[Told]:
    """Heads that do the work by a relation, and others."""
    n_layers, n_heads = int(case.model.cfg.n_layers), int(case.model.cfg.n_heads)
    everyone = [Head(n, h) for n in range(n_layers) for h in range(n_heads)]
    for relation, true in case.truth.relations.items():
        if relation not in OURS:
            continue
        decoys = sorted(case.truth.attends.get(relation, frozenset()) - true - case.truth.unasked)
        others = [h for h in everyone if h not in true | case.truth.unasked and h not in decoys]
        for heads, so in ((sorted(true), True), (decoys, False), (others, False)):
            for i in rng.permutation(len(heads))[: A_MODEL if so else A_MODEL // 2].tolist():
                yield case, as_claim({"heads": [heads[i]], "relation": relation}), so


def told_circuits(case: Case, rng: np.random.Generator) -> Iterator[Told]:
    """The circuit, and the same with other heads."""
    if case.truth.edges is None or not case.truth.heads:
        return
    try:
        wiring = PatchedModel(case.model).wiring
    except InputError as error:
        UNREADABLE[f"{case.family}, {case.variant}: {error}"] += 1
        return
    yield case, as_claim({"circuit": sorted(case.truth.edges)}), True
    if case.family == "compiled" and len(case.truth.heads) > 1:
        head = sorted(case.truth.heads)[int(rng.integers(len(case.truth.heads)))]
        name = f"a{head.layer}.h{head.head}"
        rest = [e for e in sorted(case.truth.edges) if name not in re.split(r"->|<", e)]
        if rest:
            yield case, as_claim({"circuit": rest}), False
    layers: dict[int, list[int]] = {}
    for head in case.truth.heads:
        layers.setdefault(head.layer, []).append(head.head)
    names: dict[str, str] = {}
    for layer, heads in layers.items():
        others = [h for h in range(wiring.n_heads) if h not in heads]
        for i, head in enumerate(heads):
            if i < len(others):
                names[f"a{layer}.h{head}"] = (
                    f"a{layer}.h{others[int(rng.permutation(len(others))[i])]}"
                )
    if len(names) < sum(map(len, layers.values())):
        return  # too few heads to exchange all
    edges = []
    for edge in sorted(case.truth.edges):
        source, _, target = edge.partition("->")
        node, bracket, channel = target.partition("<")
        renamed = f"{names.get(source, source)}->{names.get(node, node)}{bracket}{channel}"
        edges.append(renamed)
    yield case, as_claim({"circuit": sorted(set(edges))}), False


def told_directions(says: str) -> Callable[[Case, np.random.Generator], Iterator[Told]]:
    """Directions that read or carry, and others."""

    def told(case: Case, rng: np.random.Generator) -> Iterator[Told]:
        for known in case.truth.directions:
            so = known.reads if says == "reads" else known.carries
            if so is None:
                continue
            claim = {
                "direction": known.vector.tolist(),
                "hook": known.hook,
                "position": known.position,
                "says": says,
            }
            if says == "reads":
                claim |= {"features": list(known.features), "table": known.table}
            yield case, as_claim(claim), so

    return told


def told_pairs(case: Case, rng: np.random.Generator) -> Iterator[Told]:
    """Skip-bigrams that are there, and others."""
    for known in case.truth.pairs:
        pair = {"head": known.head, "key": known.key, "query": known.query}
        yield case, as_claim({"pair": pair}), known.present


def told_algorithms(case: Case, rng: np.random.Generator) -> Iterator[Told]:
    """The algorithm, and the other one."""
    if case.truth.algorithm is None:
        return
    for name in case.truth.algorithms:
        if name in ("min_greater_than_previous", "argmax_piecewise_linear"):
            claim = as_claim({"algorithm": name, "layout": case.context["layout"]})
            yield case, claim, name == case.truth.algorithm


def _alternating(*families: Callable[[int, int], Iterator[Case]]) -> Callable[..., Iterator[Case]]:
    def cases(seed: int, count: int) -> Iterator[Case]:
        running = [family(seed, count) for family in families]
        while running:
            for one in list(running):
                case = next(one, None)
                if case is None:
                    running.remove(one)
                else:
                    yield case

    return cases


KINDS: dict[str, tuple[Callable[..., Iterator[Case]], Callable[..., Iterator[Told]]]] = {
    "heads": (_alternating(planted_cases, compiled_cases), told_heads),
    "circuit": (_alternating(planted_cases, compiled_cases), told_circuits),
    "reads": (superposed_cases, told_directions("reads")),
    "carries": (superposed_cases, told_directions("carries")),
    "pair": (bigram_cases, told_pairs),
    "algorithm": (twin_cases, told_algorithms),
}


def fewer(data: FeatureData | None, rows: int) -> FeatureData | None:
    """The first so many rows."""
    if data is None or len(data) <= rows:
        return data
    return data.at(np.arange(rows))


def claims_of(kind: str, count: int, seed: int) -> Iterator[Told]:
    """So many true and so many false claims, model by model."""
    family, told = KINDS[kind]
    rng = np.random.default_rng([seed, 77])
    left = {True: count, False: count}
    for case in family(seed, 40 * count):
        given: Counter[bool] = Counter()
        for one in told(case, rng):
            if left[one[2]] and given[one[2]] < A_MODEL:
                given[one[2]] += 1
                left[one[2]] -= 1
                yield one
        if not any(left.values()):
            return


def calibrate(kind: str, count: int, rows: int, seed: int) -> dict[str, Any]:
    """Answers by truth and by how the model was made."""
    answers: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    wrong: list[dict[str, Any]] = []
    began = time.process_time()
    for case, claim, so in track(list_of(kind, count, seed), f"{kind}, {rows} rows"):
        try:
            found = it.audit(case.model, [claim], data=fewer(case.data, rows), seed=seed)
            (one,) = found.claims
            answer = one.answer
        except InputError as error:
            answer, one = f"error: {error}", None
        answers[so][answer] += 1
        if answer == ("refuted" if so else "confirmed") or one is None:
            said = (
                [] if one is None else [f"{p.question} {p.answer}: {p.summary}" for p in one.parts]
            )
            wrong.append(
                {
                    "claim": claim.about,
                    "true": so,
                    "family": case.family,
                    "variant": case.variant,
                    "seed": case.seed,
                    "answer": answer,
                    "said": said,
                }
            )
    n_true, n_false = (sum(answers[so].values()) for so in (True, False))
    return {
        "kind": kind,
        "rows": rows,
        "true": dict(answers[True]),
        "false": dict(answers[False]),
        "true refuted": [answers[True]["refuted"], n_true],
        "false confirmed": [answers[False]["confirmed"], n_false],
        "intervals": {
            "false confirmed": clopper_pearson(answers[False]["confirmed"], n_false),
            "true refuted": clopper_pearson(answers[True]["refuted"], n_true),
        },
        "cpu seconds": time.process_time() - began,
        "wrong": wrong,
    }


def list_of(kind: str, count: int, seed: int) -> list[Told]:
    """The claims, made before the clock of the audits starts."""
    return list(islice(claims_of(kind, count, seed), 2 * count))


def told_line(found: dict[str, Any]) -> str:
    """A line for the terminal."""
    parts = []
    for name in ("false confirmed", "true refuted"):
        bad, n = found[name]
        low, high = clopper_pearson(bad, n) if n else (0.0, 1.0)
        parts.append(f"{name} {bad}/{n} [{low:.1%}, {high:.1%}]")
    decided = found["true"].get("confirmed", 0), found["false"].get("refuted", 0)
    return (
        f"{found['kind']:10s} {found['rows']:4d} rows  {'  '.join(parts)}  "
        f"decided rightly {decided[0]} true, {decided[1]} false  {found['cpu seconds']:.0f} s CPU"
    )


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--claims", type=int, default=200, help="true ones, and false ones, a kind")
    parser.add_argument("--rows", type=int, nargs="+", default=[384, 64])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = []
    for kind in arguments.kinds:
        without_rows = kind in ("pair", "algorithm")
        for rows in arguments.rows[:1] if without_rows else arguments.rows:
            found.append(calibrate(kind, arguments.claims, rows, arguments.seed))
            print(told_line(found[-1]), flush=True)
            for bad in found[-1]["wrong"][:6]:
                print("   ", bad, flush=True)
    for reason, count in UNREADABLE.items():
        print(f"{count} left out: {reason}")
    if arguments.json:
        with replacing(arguments.json) as partial:
            partial.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
