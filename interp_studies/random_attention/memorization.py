"""Table 4 of the source: what each variant remembers, a parameter.

The source's setting is the recipe's paper preset. Its four counts of trained parameters are
compared exactly, in every preset: they need a model of that size and no training.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from interp_studies.random_attention.cells import TableCell
from interp_studies.random_attention.entries import (
    BITS,
    SHAPED,
    Entry,
    both,
)
from interp_studies.random_attention.table import TableStudy
from interp_studies.random_attention.tables import SMALLER
from interp_studies.result import Quantity, compare_range
from interp_toolkit.registry import find
from interp_toolkit.results import Table
from interp_toolkit.toys.random_attention.variants import trainable_parameters

RECIPE = "memorization"
#: the source's accuracy, bits per parameter and trained parameters
THEIRS: Mapping[str, tuple[float, float, int]] = {
    "standard": (1.0, 2.98, 790_400),
    "frozen-mlp": (0.19, 1.13, 394_880),
    "frozen-qk": (0.69, 2.25, 724_352),
    "mixit": (0.67, 2.18, 724_736),
}


def count_trained(variant: str) -> int:
    """How many parameters of the variant are trained at the source's size."""
    recipe = find("recipes", RECIPE)
    config = recipe.config(**{**recipe.presets["paper"], "variant": variant})
    task = config.task
    model = config.new_model(0, d_vocab=task.d_vocab, n_ctx=task.n_ctx, name=task.name)
    return trainable_parameters(model)


def counts() -> list[Quantity]:
    """The trained parameters of all variants; reached: exactly the source's."""
    return [
        compare_range(
            f"memorization, {variant}",
            "trained parameters at the source's size",
            [float(count_trained(variant))],
            (float(theirs), float(theirs)),
            remark="must be exact",
        )
        for variant, (_, _, theirs) in THEIRS.items()
    ]


def shaped(entries: Sequence[Entry]) -> Table:
    """Accuracy, bits per parameter and trained parameters of each variant: theirs / ours."""
    rows = []
    for entry in entries:
        _, bits, trained = THEIRS[entry.cell.member]
        ours = statistics.median(entry.bits)
        rows.append(
            [
                entry.cell.member,
                both(entry),
                f"{bits:.2f} / {ours:.2f}",
                f"{trained:,} / {entry.seeds[0]['trainable']:,}",
            ]
        )
    columns = ["", "accuracy", BITS, "trained parameters"]
    return Table(SHAPED, columns, rows, "Ours: the median over seeds, at this preset's size.")


CELLS = [
    TableCell("memorization", variant, RECIPE, variant, accuracy, bits=bits)
    for variant, (accuracy, bits, _) in THEIRS.items()
]
TABLE_4 = TableStudy(
    name="random-attention/table-4",
    summary="memorization at a fixed size: accuracy, bits per parameter, trained parameters",
    where="table 4",
    cells={"small": CELLS, "paper": CELLS},
    limits={
        "small": SMALLER,
        "paper": "Batches and learning-rate schedule are ours: the source does not give them here.",
    },
    notes={
        "two rows": (
            "The source's prose has frozen-qk at 1.13 bits per parameter and frozen-mlp and mixit "
            "at 2.25 and 2.18; its table has frozen-mlp at 1.13. The table is right: its "
            "accuracies and counts give its bits."
        ),
        "width": (
            "The source's table 8 has memorization at width 1,024; the four counts are those of "
            "width 128, with biases, an embedding and an unembedding of 1,024 tokens each, and "
            "three positions for mixit."
        ),
    },
    exact=counts,
    shape=shaped,
)
