"""What is trained: attention × optimiser × rates, and Adam without decay at the high rates."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

STEPS, EARLY = 3_000, 300
SEARCHED = 100_000  # hard lists, for each model
Key = tuple[str, str, str]  # layout, optimiser, rates
#: recipe and what differs from it, by layout; lists of ten in all
LAYOUTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "causal": ("sort-causal", {}),
    "fixed query": ("sort-causal", {"fixed_query": True}),
    "bidirectional": ("sort-bidirectional", {"shortest": 10}),
}
OPTIMISERS: Mapping[str, Mapping[str, Any]] = {
    "adam": {"optimiser": "adam"},
    "adamw": {"optimiser": "adamw"},
    "adam, no decay": {"optimiser": "adam", "weight_decay": 0.0},
}
#: "low": the source's, lowered geometrically; "high": this project's, on a cosine
RATES: Mapping[str, Mapping[str, Any]] = {
    "low": {"schedule": "exponential", "lr": 1e-3, "final_lr": 1e-4, "betas": (0.9, 0.999)},
    "high": {"schedule": "cosine", "lr": 3e-3, "final_lr": 3e-5, "betas": (0.9, 0.99)},
}
KEYS: Sequence[Key] = [
    *itertools.product(LAYOUTS, ("adam", "adamw"), ["low"]),
    *itertools.product(("causal", "fixed query"), OPTIMISERS, ["high"]),
    ("bidirectional", "adamw", "high"),
]
SOURCES_OWN: Key = ("causal", "adam", "low")
#: ways that no claim is about; they stand in the table alone
UNCLAIMED: Sequence[Key] = [(layout, "adamw", "low") for layout in LAYOUTS]

Values = Mapping[str, Any]
Found = Mapping[Key, Sequence[Values]]
