"""Where a result comes from: the model's record, the data, the settings, the versions."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
from torch import Tensor

from interp_toolkit import state as as_found
from interp_toolkit._version import __version__
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.model import Model
from interp_toolkit.results import Provenance


def provenance(
    model: Model, data: Mapping[str, Any], settings: Mapping[str, Any], seed: int | None
) -> Provenance:
    """The provenance of a result about this model.

    Args:
        model: what was analysed.
        data: what it ran on: source, rows, hash; empty for an analysis of weights alone.
        settings: the analysis' options, as run.
        seed: of every random draw, if there were any.
    """
    record = record_of(model)
    return Provenance(
        model={
            "name": record.name,
            "kind": record.kind,
            "path": record.path,
            "sha256": record.sha256,
            "assumptions": list(record.assumptions),
            "notes": list(record.notes),
            "config": dict(record.config),
            **({"set_aside": list(as_found.notes())} if as_found.notes() else {}),
        },
        data=data,
        settings=settings,
        seed=seed,
        versions=versions(),
    )


def versions() -> dict[str, str]:
    """The versions that numbers may depend on."""
    return {
        "interp-toolkit": __version__,
        "torch": version("torch"),
        "transformer-lens": version("transformer-lens"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
    }


def digest_of_tokens(tokens: Tensor) -> str:
    """SHA-256 of an array of token ids, shape included."""
    values = np.ascontiguousarray(tokens.cpu().numpy().astype("<i8"))
    return hashlib.sha256(f"{values.shape}".encode() + values.tobytes()).hexdigest()
