"""Small trained models, shipped with the package.

Each was trained by its command in COMMANDS; its file records the settings, the losses and the
curve. Nothing in these models was set by hand. The causal sorter is a seed that shows the source's
failure: it sorts most lists and fails on others.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

from interp_toolkit.models.loading.loader import load
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.registry import Toy

FOLDER = Path(__file__).parent
_TRAIN = "OMP_NUM_THREADS=1 interp train"
COMMANDS = {
    "induction": f"{_TRAIN} induction --device cpu --out induction.safetensors",
    "sort-causal": f"{_TRAIN} sort-causal --device cpu --set seed=1 --out sort-causal.safetensors",
    "sort-distinct": f"{_TRAIN} sort-distinct --device cpu --out sort-distinct.safetensors",
    "sort-bidirectional": (
        f"{_TRAIN} sort-bidirectional --device cpu --out sort-bidirectional.safetensors"
    ),
    "uand": f"{_TRAIN} uand --device cpu --out uand.safetensors",
}
SORTING = "How do tiny transformers sort lists of small integers? (Qi and Zhong 2023)"


def file_of(name: str) -> Path:
    """The file of a trained model, by its name in COMMANDS."""
    return FOLDER / f"{name}.safetensors"


def trained(name: str) -> Transformer:
    """A trained model, in float32, by its name in COMMANDS."""
    return cast("Transformer", load(file_of(name)))


def _toy(name: str, summary: str, task: Mapping[str, Any], source: str) -> Toy:
    return Toy(f"{name}-trained", summary, partial(trained, name), task, source)


def _sorting(layout: str, distinct: bool) -> dict[str, Any]:
    return {"name": "sorting", "layout": layout, "distinct": distinct}


INDUCTION_TRAINED = _toy(
    "induction",
    "two attention-only layers, trained on repeated random tokens",
    {"name": "induction"},
    "In-context Learning and Induction Heads (Olsson et al. 2022)",
)
SORT_CAUSAL_TRAINED = _toy(
    "sort-causal",
    "one layer, trained to sort 10 digits with repeats; fails on some lists",
    _sorting("10 list10 11 sorted10", False),
    SORTING,
)
SORT_DISTINCT_TRAINED = _toy(
    "sort-distinct",
    "one layer, trained to sort 10 distinct values of 15",
    _sorting("15 list10 16 sorted10", True),
    SORTING,
)
SORT_BIDIRECTIONAL_TRAINED = _toy(
    "sort-bidirectional",
    "one bidirectional layer, trained to sort 1 to 10 digits in place",
    _sorting("10 list1-10 11 pad12", False),
    SORTING,
)
UAND_TRAINED = _toy(
    "uand",
    "32 ReLU neurons, trained to compute the AND of all 66 pairs of 12 features",
    {"function": "uand", "n_features": 12, "most_on": 3},
    "Computation in superposition, section 1.1 (the task; the source trains nothing)",
)
