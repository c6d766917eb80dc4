"""How many attention heads XOR needs: hand-set, random and trained layers, with witnesses.

    hand-set   the functions that the paper's layers separate, and the two heads' attention by input
    random     which conditions of the theorem are necessary: each is violated in turn
    trained    what gradient descent finds, and the lower bound of one head's loss

Every "separates" has a hyperplane, and every "does not separate" a certificate.
Source: "How many attention heads do you need to do XOR?". It contains the constructions and a
proof; the bounds on losses and the random layers are additions of this project.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from interp_studies.jobs.attempt import Job
from interp_studies.recipe_settings import as_read
from interp_studies.result import Quantity, StudyResult, compare, compare_range, missed, overall
from interp_studies.study import Grid, Plan, Study, StudyRun, Values
from interp_studies.train_seed import variant_of
from interp_studies.xor.layers import FUNCTIONS, KINDS, hand_set, random_layers, trained
from interp_toolkit import plots
from interp_toolkit.errors import InputError
from interp_toolkit.formatting import percent
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL
from interp_toolkit.probes.estimators.truth_tables import TABLES
from interp_toolkit.results import Evidence, Figure, Table
from interp_toolkit.stats import clopper_pearson

SEEDS = 4
LAYERS = 100  # random ones of each kind, a seed
ROUNDING = 1e-12
OURS = "this project's; the document has no figure"
E_ = math.e
EQUAL, MIXED = 2 * E_ / (2 * E_ + 1), 2 * E_ / (E_ + 2)  # along (1, 1), at a score of 1
#: which functions its layers separate, after the document
SEPARABLE: Mapping[str, Mapping[str, bool]] = {
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

HAND_SET = "hand-set"
SCORES = np.linspace(-3.0, 5.0, 161)  # of the figure

Layer = tuple[str, str]  # variant and function of trained layers
ByKind = Mapping[str, Sequence[Values]]


def grid(plan: Plan) -> Grid:
    """The hand-set layers, and all kinds of random and trained layers.

    Raises:
        InputError: a setting does not fit the study.
    """
    jobs: dict[str | Layer, list[Job]] = {HAND_SET: [Job("hand-set", hand_set, {})]}
    for kind in KINDS:
        jobs[kind] = plan.each_seed(f"random-{kind}", random_layers, kind=kind, n_layers=LAYERS)
    for variant, function in TRAINED:
        given = plan.runner.settings_for("xor", variant)
        if "table" in given:
            raise InputError("xor.table cannot be set: the study fixes which functions it tests")
        own = as_read("xor", variant, "small", {"table": TABLES[function]}, given)
        jobs[variant, function] = plan.each_seed(
            f"trained-{variant}-{function}",
            trained,
            cost=3.0,
            settings={**variant_of("xor", variant), **own},
            function=function,
            device=plan.runner.device,
        )
    return jobs


def hand_set_quantities(hand: Values) -> list[Quantity]:
    """The functions that hand-set layers separate; scores of two heads and their closed forms."""
    separates = {"separable": 1.0, "not_separable": 0.0}
    rows = [
        compare_range(
            f"hand-set, {name}",
            f"separates {function.upper()}",
            [separates.get(hand["verdicts"][name][function]["status"], 0.5)],
            (float(separable), float(separable)),
            remark="1: a hyperplane; 0: a certificate that there is none",
        )
        for name, functions in SEPARABLE.items()
        for function, separable in functions.items()
    ]
    equal, mixed = (
        statistics.mean(
            float(s) for i, s in zip(hand["inputs"], hand["scores"], strict=True) if i in inputs
        )
        for inputs in (("00", "11"), ("01", "10"))
    )
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


def random_quantities(random: ByKind) -> list[Quantity]:
    """The fraction of random layers of each kind that separate XOR."""
    rows = []
    for kind, seeds in random.items():
        shares = [v.get("separable", 0) / v["layers"] for v in seeds]
        of, name = f"random, {KINDS[kind].name}", "separates XOR"
        if KINDS[kind].expected:
            rows.append(compare_range(of, name, shares, (0.0, 0.0), unit="share"))
        else:
            rows.append(compare(of, name, shares, remark=OURS))
    return rows


def trained_quantities(learned: Mapping[Layer, Sequence[Values]]) -> list[Quantity]:
    """The losses of trained layers, the lower bound of one head, and the correct answers."""
    rows = []
    for (variant, function), seeds in learned.items():
        of = f"trained, {variant}, {function.upper()}"
        losses = [v["loss"] for v in seeds]
        floor = seeds[0]["floor"]
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
        rows.append(compare(of, "answers right", [v["right"] / 4 for v in seeds], remark=OURS))
    return rows


def verdict(hand: Values, shares: Mapping[str, tuple[int, int]], worst: float) -> str:
    """The separating layers, and the conditions of the theorem that are shown to be necessary."""
    one, n = shares[KINDS["one-head"].name]
    two, _ = shares[KINDS["two-heads"].name]
    low, high = (percent(x, 1) for x in clopper_pearson(two, n))
    most = percent(clopper_pearson(one, n)[1], 1)
    by_hand = hand["verdicts"]["one head (OR's)"]
    able = [f.upper() for f in FUNCTIONS if by_hand[f]["status"] == "separable"]
    dropped = [KINDS[k].name for k in ("sees-a-bit", "norm-after", "mlp")]
    needed = ", ".join(f"{name} ({shares[name][0]})" for name in dropped if shares[name][0])
    needed = (
        "The theorem's conditions are needed; random layers that violate one and separate XOR: "
        f"{needed}."
        if needed
        else "No random layer shows that a condition of the theorem is needed."
    )
    return (
        f"One hand-set head separates {' and '.join(able)}; XOR needs two heads or an MLP. Of "
        f"{n} random one-head layers {one or 'none'} separates XOR (95 % bound: {most}), and the "
        f"softmax denominators are a certificate for each (relative error at most {worst:.0e}); "
        f"of {n} random two-head layers {two} do ({low} to {high}). {needed}"
    )


def attention_figure(hand: Values) -> Figure:
    """Attention of the two heads from '=': one bar per input and head, in three parts."""
    names = [f"{bits}, head {h}" for bits in hand["inputs"] for h in (0, 1)]
    patterns = [pattern for heads in hand["attention"] for pattern in heads]
    parts = zip(
        ("first bit", "second bit", "'='"), (*CLASS_COLORS[:2], NEUTRAL), range(3), strict=True
    )
    data = [plots.bars(names, [p[i] for p in patterns], color, name) for name, color, i in parts]
    caption = (
        "Where '=' attends in the two-head layer. Head 0 looks for 0, head 1 for 1; a head that "
        "finds nothing attends evenly."
    )
    layout = plots.layout({}, plots.axis("attention weight")) | {"barmode": "stack"}
    return Figure("Attention of the two heads", caption, data, layout)


def scores_figure() -> Figure:
    """The two scores along (1, 1) and their difference, by the strength of the heads' attention."""
    a = np.exp(SCORES)
    equal, mixed = 2 * a / (2 * a + 1), 2 * a / (a + 2)
    data = [
        plots.line(SCORES, equal, CLASS_COLORS[0], "equal bits"),
        plots.line(SCORES, mixed, CLASS_COLORS[1], "different bits"),
        plots.line(SCORES, mixed - equal, NEUTRAL, "gap", dash="dash"),
    ]
    caption = (
        "In closed form. At a score of 0 attention is uniform and there is no gap; below, heads "
        f"avoid their token, and the gap is negative; at 1 it is {MIXED - EQUAL:.4f}."
    )
    layout = plots.layout(plots.axis("score of the token looked for"), plots.axis("score"))
    return Figure("Two values, and the gap between them", caption, data, layout)


def random_figure(shares: Mapping[str, tuple[int, int]]) -> Figure:
    """The fraction of random layers of each kind that separate XOR, with exact intervals."""
    names = list(shares)
    values = [100 * k / n for k, n in shares.values()]
    ends = [clopper_pearson(k, n) for k, n in shares.values()]
    above = [100 * high - v for (_, high), v in zip(ends, values, strict=True)]
    below = [v - 100 * low for (low, _), v in zip(ends, values, strict=True)]
    data = [
        plots.markers(names, values, CLASS_COLORS[0], "random layers", size=10)
        | {"error_y": plots.spread(above, below)}
    ]
    caption = (
        "One attention head whose query does not see the bits never separates XOR, with a norm "
        "before it or without. Drop a condition of the theorem and random layers do."
    )
    layout = plots.layout({"automargin": True}, plots.axis("separate XOR (%)"))
    return Figure("Which condition is needed", caption, data, layout)


@dataclass(frozen=True)
class XorEvidence(Evidence):
    """The evidence of the verdict on heads and XOR.

    Attributes:
        random: number of random layers of each kind that separate XOR.
        worst_certificate: largest relative residual of the softmax denominators as a certificate,
            over all random layers to which the theorem applies.
    """

    random: Mapping[str, int]
    worst_certificate: float


def report(run: StudyRun) -> StudyResult:
    """The paper's layers, random layers without each condition, and trained layers."""
    [hand] = run.by_point[HAND_SET]
    random = {kind: run.by_point[kind] for kind in KINDS}
    learned = {layer: run.by_point[layer] for layer in TRAINED}
    separating = {kind: sum(v.get("separable", 0) for v in of) for kind, of in random.items()}
    shares = {  # how many of how many, by the kind's name
        KINDS[kind].name: (separating[kind], sum(v["layers"] for v in of))
        for kind, of in random.items()
    }
    worst = max(float(v["residual"]) for k in KINDS if KINDS[k].expected for v in random[k])
    quantities = [
        *hand_set_quantities(hand),
        *random_quantities(random),
        *trained_quantities(learned),
    ]
    return run.result(
        verdict(hand, shares, worst),
        settings={"layers": LAYERS, "device": run.runner.device},
        quantities=quantities,
        evidence=XorEvidence(overall(quantities), separating, worst, reason=missed(quantities)),
        details=[
            Table(
                "Every trained layer",
                ["layer", "function", "seed", "loss", "no less than", "right of 4", "update"],
                [
                    [
                        *(variant, function.upper()),
                        *(v[key] for key in ("seed", "loss", "floor", "right", "status")),
                    ]
                    for (variant, function), seeds in learned.items()
                    for v in seeds
                ],
                "Loss in nats; update: whether a hyperplane separates the function after the "
                "block.",
            ),
            Table(
                "What hand-set layers separate",
                ["layer", *map(str.upper, FUNCTIONS)],
                [
                    [name, *(verdicts[f]["status"] for f in FUNCTIONS)]
                    for name, verdicts in hand["verdicts"].items()
                ],
                "Read at '=' after the block, on the four inputs.",
            ),
            Table(
                "Attention of the two heads",
                ["input", "head", "on bit 1", "on bit 2", "on '='", "score"],
                [
                    [bits, head, *pattern, score]
                    for bits, heads, score in zip(
                        hand["inputs"], hand["attention"], hand["scores"], strict=True
                    )
                    for head, pattern in enumerate(heads)
                ],
                "From '=': the weights on the first bit, the second bit and '='. The score is of "
                "both heads' writing along (1, 1): it takes two values.",
            ),
            Table(
                "Which two heads separate XOR",
                ["heads", "XOR", "gap"],
                [[name, v["status"], v["margin"]] for name, v in hand["two_heads"].items()],
                "Two heads are needed. They need not write in different directions, nor attend "
                "(they may avoid), nor both depend on the bits; but two alike, or two that attend "
                "uniformly, are no more than one.",
            ),
            Table(
                "Random layers that separate XOR",
                ["layer", "drawn", "separate XOR", "low %", "high %"],
                [
                    [name, n, k, *(100 * end for end in clopper_pearson(k, n))]
                    for name, (k, n) in shares.items()
                ],
                "Random layers, d_model 8, d_head 4, with positions; each kind changes one "
                "condition of the theorem. A norm before the head changes none. Exact 95 % "
                "intervals.",
            ),
        ],
        plots=[attention_figure(hand), scores_figure(), random_figure(shares)],
    )


XOR = Study(
    "xor",
    "how many heads XOR needs: hand-set, random and trained layers, each with a certificate or "
    "hyperplane",
    "How many attention heads do you need to do XOR?",
    {"small": f"{SEEDS} seeds: {LAYERS} random layers of each kind, six trained ones"},
    grid,
    report,
    SEEDS,
)
