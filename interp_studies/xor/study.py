"""How many attention heads XOR needs, again: hand-set, random and trained layers, with witnesses.

    hand-set   what the document's layers separate, and its two heads' attention, input by input
    random     which of the theorem's conditions are needed: each is dropped, the others kept
    trained    what gradient descent finds, beside the loss that one head cannot go below

Every "separates" has a hyperplane, every "does not" a certificate that none exists.
Source: "How many attention heads do you need to do XOR?". It gives constructions and a proof; the
losses' bounds and the random layers are this project's.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from interp_studies.jobs.runner import Job, Runner
from interp_studies.recipe_settings import as_read, settings_phrase
from interp_studies.result import (
    Quantity,
    StudyResult,
    compare,
    compare_range,
    missed,
    overall,
    study_provenance,
)
from interp_studies.train_seed import variant_of
from interp_studies.xor import jobs
from interp_studies.xor.figures import attention_figure, random_figure, scores_figure
from interp_studies.xor.layers import FUNCTIONS, KINDS
from interp_toolkit.errors import InputError
from interp_toolkit.probes.estimators.boolean import TABLES
from interp_toolkit.registry import Artefact
from interp_toolkit.results import Evidence, Table
from interp_toolkit.stats import clopper_pearson

NAME = "xor"
SOURCE = "How many attention heads do you need to do XOR?"
SEEDS = 4
LAYERS = 100  # random ones of each kind, a seed
ROUNDING = 1e-12
OURS = "this project's; the document has no figure"
E_ = math.e
EQUAL, MIXED = 2 * E_ / (2 * E_ + 1), 2 * E_ / (E_ + 2)  # along (1, 1), at a score of 1
#: what the document says of its layers: which functions they separate
SAID: Mapping[str, Mapping[str, bool]] = {
    "one head (OR's)": {"or": True, "and": True, "xor": False},
    "one head, writing places too": {"xor": False},
    "two heads": {"xor": True},
    "one head and an MLP": {"xor": True},
}
#: trained layers: the recipe's variant, the function
TRAINED = (
    ("1-head", "or"),
    ("1-head", "and"),
    ("1-head", "xor"),
    ("2-head", "xor"),
    ("1-head-mlp", "xor"),
    ("1-head-ln", "xor"),
)

Values = Mapping[str, Any]


def reproduce_xor(preset: str, seeds: int | None, runner: Runner) -> StudyResult:
    """Ask every layer; `seeds` overrides how many seeds of random and trained ones."""
    numbers = runner.seeds(seeds or SEEDS)
    by_hand = Job("hand-set", jobs.hand_set, {})
    drawn = {k: [_random_job(k, seed) for seed in numbers] for k in KINDS}
    learned = {
        (v, f): [
            _trained_job(v, f, seed, runner.device, runner.settings_for("xor", v))
            for seed in numbers
        ]
        for v, f in TRAINED
    }
    groups = [[by_hand], *drawn.values(), *learned.values()]
    found = runner.run([job for group in groups for job in group])
    hand = found[by_hand.name]
    random = {k: [found[job.name] for job in mine] for k, mine in drawn.items()}
    trained = {t: [found[job.name] for job in mine] for t, mine in learned.items()}
    quantities = [*_by_hand(hand), *_random(random), *_trained(trained)]
    settings = {"preset": preset, "seeds": len(numbers), "layers": LAYERS, "device": runner.device}
    return StudyResult(
        probe=NAME,
        verdict=" ".join(s for s in (_verdict(hand, random), settings_phrase(runner.given)) if s),
        evidence=XorEvidence(
            status=overall(quantities),
            reason=missed(quantities),
            random={k: sum(v.get("separable", 0) for v in mine) for k, mine in random.items()},
            worst_certificate=_worst_certificate(random),
        ),
        provenance=study_provenance(NAME, SOURCE, settings, runner.first_seed),
        quantities=quantities,
        jobs=found,
        details=[
            _by_seed(trained),
            _functions(hand),
            _triplets(hand),
            _conditions(hand),
            _dropped(random),
        ],
        plots=[attention_figure(hand), scores_figure(), random_figure(_shares(random))],
    )


@dataclass(frozen=True)
class XorEvidence(Evidence):
    """What the verdict on heads and XOR rests on.

    Attributes:
        random: how many random layers of each kind separate XOR.
        worst_certificate: the largest relative residual of the softmax denominators as a
            certificate, over all random layers of which the theorem holds.
    """

    random: Mapping[str, int]
    worst_certificate: float


def _random_job(kind: str, seed: int) -> Job:
    arguments = {"kind": kind, "n_layers": LAYERS, "seed": seed}
    return Job(f"random-{kind}-seed-{seed}", jobs.random_layers, arguments)


def _trained_job(variant: str, function: str, seed: int, device: str, given: Values) -> Job:
    own = {"table": TABLES[function]}
    if "table" in given:
        raise InputError("xor.table cannot be set: the study says which functions it asks")
    settings = {**variant_of("xor", variant), **as_read("xor", variant, "small", own, given)}
    arguments = {"settings": settings, "function": function, "seed": seed, "device": device}
    return Job(f"trained-{variant}-{function}-seed-{seed}", jobs.trained, arguments, cost=3.0)


def _by_hand(hand: Values) -> list[Quantity]:
    rows = [
        compare_range(
            f"hand-set, {name}",
            f"separates {function.upper()}",
            [_separates(hand["verdicts"][name][function])],
            (float(said), float(said)),
            remark="1: a hyperplane; 0: a certificate that there is none",
        )
        for name, functions in SAID.items()
        for function, said in functions.items()
    ]
    equal, mixed = (_scores(hand, *inputs) for inputs in (("00", "11"), ("01", "10")))
    for name, value, closed in (
        ("score of equal bits, 2e/(2e+1)", equal, EQUAL),
        ("score of different bits, 2e/(e+2)", mixed, MIXED),
        ("gap, 2e(e-1)/((e+2)(2e+1))", mixed - equal, MIXED - EQUAL),
    ):
        rows.append(
            compare_range(
                "hand-set, two heads", name, [value], (closed, closed), tolerance=ROUNDING
            )
        )
    return rows


def _separates(found: Values) -> float:
    return {"separable": 1.0, "not_separable": 0.0}.get(found["status"], 0.5)


def _scores(hand: Values, *inputs: str) -> float:
    """The mean score of these inputs along (1, 1)."""
    return statistics.mean(
        float(s) for i, s in zip(hand["inputs"], hand["scores"], strict=True) if i in inputs
    )


def _random(random: Mapping[str, Sequence[Values]]) -> list[Quantity]:
    rows = []
    for kind, mine in random.items():
        shares = [v.get("separable", 0) / v["layers"] for v in mine]
        of, name = f"random, {KINDS[kind].name}", "separates XOR"
        if KINDS[kind].expected:
            rows.append(compare_range(of, name, shares, (0.0, 0.0), unit="share"))
        else:
            rows.append(compare(of, name, shares, remark=OURS))
    return rows


def _trained(trained: Mapping[tuple[str, str], Sequence[Values]]) -> list[Quantity]:
    rows = []
    for (variant, function), mine in trained.items():
        of = f"trained, {variant}, {function.upper()}"
        losses = [v["loss"] for v in mine]
        floor = mine[0]["floor"]
        if floor is None:
            rows.append(compare(of, "loss", losses, unit="nats", remark=OURS))
        else:
            rows.append(
                compare_range(
                    of,
                    "loss, at least ln 2/2",
                    losses,
                    (floor, math.inf),
                    unit="nats",
                    remark="no weights can go below: this project's consequence of the theorem",
                )
            )
        rows.append(compare(of, "answers right", [v["right"] / 4 for v in mine], remark=OURS))
    return rows


def _worst_certificate(random: Mapping[str, Sequence[Values]]) -> float:
    return max(
        float(v["residual"]) for k, mine in random.items() if KINDS[k].expected for v in mine
    )


def _shares(random: Mapping[str, Sequence[Values]]) -> dict[str, tuple[int, int]]:
    """How many of how many separate XOR, by the kind's name."""
    return {
        KINDS[k].name: (
            sum(v.get("separable", 0) for v in mine),
            sum(v["layers"] for v in mine),
        )
        for k, mine in random.items()
    }


def _verdict(hand: Values, random: Mapping[str, Sequence[Values]]) -> str:
    shares = _shares(random)
    one, n = shares[KINDS["one-head"].name]
    two, _ = shares[KINDS["two-heads"].name]
    low, high = (f"{100 * x:.1f} %" for x in clopper_pearson(two, n))
    most = f"{100 * clopper_pearson(one, n)[1]:.1f} %"
    by_hand = hand["verdicts"]["one head (OR's)"]
    able = [f.upper() for f in FUNCTIONS if by_hand[f]["status"] == "separable"]
    return (
        f"One hand-set head separates {' and '.join(able)}; XOR takes two heads, or an MLP. Of {n} "
        f"random one-head layers {one or 'none'} separates it (95 %: at most {most}), and the "
        f"softmax denominators prove it of each (relative error at most "
        f"{_worst_certificate(random):.0e}); of {n} random two-head layers {two} do ({low} to "
        f"{high}). {_needed(shares)}"
    )


def _needed(shares: Mapping[str, tuple[int, int]]) -> str:
    """Which of the theorem's conditions random layers show to be needed."""
    dropped = [k for k in ("sees-a-bit", "norm-after", "mlp") if shares[KINDS[k].name][0]]
    if not dropped:
        return "No random layer shows that a condition of the theorem is needed."
    said = [f"{KINDS[k].name} ({shares[KINDS[k].name][0]})" for k in dropped]
    return f"The theorem's conditions are needed: XOR is separated by {', '.join(said)}."


def _functions(hand: Values) -> Table:
    rows = [
        [name, *(verdicts[f]["status"] for f in FUNCTIONS)]
        for name, verdicts in hand["verdicts"].items()
    ]
    caption = "Read at '=' after the block, on the four inputs."
    return Table(
        "What hand-set layers separate", ["layer", *map(str.upper, FUNCTIONS)], rows, caption
    )


def _triplets(hand: Values) -> Table:
    rows = [
        [given, head, *pattern, score]
        for given, heads, score in zip(
            hand["inputs"], hand["attention"], hand["scores"], strict=True
        )
        for head, pattern in enumerate(heads)
    ]
    caption = (
        "From '=': the weights on the first bit, the second bit and '='. The score is of both "
        "heads' writing along (1, 1): it takes two values."
    )
    columns = ["input", "head", "on bit 1", "on bit 2", "on '='", "score"]
    return Table("Attention of the two heads", columns, rows, caption)


def _conditions(hand: Values) -> Table:
    rows = [[name, v["status"], v["margin"]] for name, v in hand["two_heads"].items()]
    caption = (
        "Two heads are needed. They need not write in different directions, nor attend (they may "
        "avoid), nor both depend on the bits; but two alike, or two that attend uniformly, are no "
        "more than one."
    )
    return Table("Which two heads separate XOR", ["heads", "XOR", "gap"], rows, caption)


def _dropped(random: Mapping[str, Sequence[Values]]) -> Table:
    rows = []
    for name, (separable, n) in _shares(random).items():
        low, high = clopper_pearson(separable, n)
        rows.append([name, n, separable, 100 * low, 100 * high])
    caption = (
        "Random layers, d_model 8, d_head 4, with positions; each kind changes one condition of "
        "the theorem. A norm before the head changes none. Exact 95 % intervals."
    )
    columns = ["layer", "drawn", "separate XOR", "low %", "high %"]
    return Table("Random layers that separate XOR", columns, rows, caption)


def _by_seed(trained: Mapping[tuple[str, str], Sequence[Values]]) -> Table:
    rows = [
        [variant, function.upper(), v["seed"], v["loss"], v["floor"], v["right"], v["status"]]
        for (variant, function), mine in trained.items()
        for v in mine
    ]
    columns = ["layer", "function", "seed", "loss", "no less than", "right of 4", "update"]
    caption = "Loss in nats; update: whether a hyperplane separates the function after the block."
    return Table("Every trained layer", columns, rows, caption)


XOR = Artefact(
    name=NAME,
    summary="how many heads XOR needs: hand-set, random and trained layers, each with a witness",
    source=SOURCE,
    presets={"small": f"{SEEDS} seeds: {LAYERS} random layers of each kind, six trained ones"},
    run=reproduce_xor,
)
