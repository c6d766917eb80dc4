"""The parts of the XOR study: what hand-set, random and trained layers separate.

Separability is settled with a witness either way (see `probes.estimators.separability`), never by
the failure of a fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from interp_studies.jobs.attempt import Outcome
from interp_studies.train_seed import train_seed
from interp_studies.xor.layers import (
    AFTER_BLOCK,
    FUNCTIONS,
    HAND_SET,
    INPUTS,
    KINDS,
    QUERY,
    TWO_HEADS,
    classes,
    separability,
)
from interp_toolkit.models.running.streaming import collect
from interp_toolkit.probes.boolean import theorem
from interp_toolkit.probes.estimators.boolean import TABLES
from interp_toolkit.toys.hand_set.xor import two_heads, xor_2head
from interp_toolkit.training.engine.run_files import end_run
from interp_toolkit.training.xor import loss_floor

PATTERN = "blocks.0.attn.hook_pattern"


def hand_set(*, folder: Path) -> Outcome:
    """What each hand-set layer separates; the two heads' attention and scores, by input."""
    verdicts = {}
    for name, build in HAND_SET.items():
        model = build()
        verdicts[name] = {f: _told(separability(model, f)) for f in FUNCTIONS}
    variants = {name: _told(separability(two_heads(*v), "xor")) for name, v in TWO_HEADS.items()}
    model = xor_2head()
    read = collect(model, INPUTS, [PATTERN, "blocks.0.hook_attn_out"], QUERY)
    scores = read["blocks.0.hook_attn_out"].sum(-1)  # along (1, 1)
    return Outcome(
        {
            "verdicts": verdicts,
            "two_heads": variants,
            "inputs": ["".join(str(int(b)) for b in row) for row in INPUTS.features],
            "attention": read[PATTERN].tolist(),
            "scores": scores.tolist(),
        }
    )


def _told(found: Any) -> dict[str, Any]:
    return {"status": found.status, "margin": found.margin if found.margin > 0 else None}


def random_layers(*, folder: Path, kind: str, n_layers: int, seed: int) -> Outcome:
    """How many random layers of a kind separate XOR; where the theorem holds, its certificates."""
    chosen = KINDS[kind]
    counts: Counter[str] = Counter()
    worst = 0.0
    for number in range(n_layers):
        model = chosen.layer(1_000_003 * seed + number)
        counts[separability(model, "xor", chosen.hook, chosen.position).status] += 1
        if chosen.expected:
            worst = max(worst, _certificate_error(model))
    return Outcome({"kind": kind, "seed": seed, "layers": n_layers, **counts, "residual": worst})


def _certificate_error(model: Any) -> float:
    """The relative residual of the softmax denominators; infinite where the theorem fails."""
    table = TABLES["xor"]
    if theorem.why_not(model, INPUTS, table, AFTER_BLOCK, QUERY) is not None:
        return float("inf")
    found = theorem.denominators(model, INPUTS, table, QUERY)
    if isinstance(found, str):
        return float("inf")
    X_positive, X_negative = classes(model, "xor")
    scale = max(float(abs(X).max()) for X in (X_positive, X_negative))
    return found.certificate(X_positive, X_negative).residual / scale


def trained(
    *, folder: Path, settings: Mapping[str, Any], function: str, seed: int, device: str
) -> Outcome:
    """One trained layer: its answers, its loss, whether its update separates the function."""
    given = {**settings, "table": TABLES[function]}
    config, run = train_seed("xor", given, seed, device, folder)
    model = run.model.double()
    with torch.no_grad():
        logits = model(torch.as_tensor(INPUTS.token_matrix()))[:, -1]
    answers = torch.tensor([int(bit) for bit in TABLES[function]])
    values = {
        "seed": seed,
        "function": function,
        "loss": float(torch.nn.functional.cross_entropy(logits, answers)),
        "right": int((logits.argmax(-1) == answers).sum()),
        "floor": loss_floor(config),
        "status": separability(model, function).status,
    }
    end_run(folder)
    return Outcome(values)
