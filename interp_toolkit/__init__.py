"""Mechanistic-interpretability analyses for any TransformerLens model, with verdicts to check.

    import interp_toolkit as it
    model = it.load("model.pt")
    result = it.analyze(model, "xor", tokens={"0": 0, "1": 1, "query": 2})
    it.write_report([result], "report.html")

Names load on first use: importing this package imports no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from interp_toolkit._version import __version__ as __version__

if TYPE_CHECKING:
    from interp_toolkit.analysis import analyze as analyze
    from interp_toolkit.errors import InputError as InputError
    from interp_toolkit.errors import InterventionError as InterventionError
    from interp_toolkit.models.activations import activations as activations
    from interp_toolkit.models.checkpoint import save as save
    from interp_toolkit.models.interventions import ablate as ablate
    from interp_toolkit.models.load import load as load
    from interp_toolkit.report.html import write_report as write_report
    from interp_toolkit.report.json import write_json as write_json

_HOMES = {
    "InputError": "errors",
    "InterventionError": "errors",
    "ablate": "models.interventions",
    "activations": "models.activations",
    "analyze": "analysis",
    "load": "models.load",
    "save": "models.checkpoint",
    "write_json": "report.json",
    "write_report": "report.html",
}

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'interp_toolkit' has no attribute {name!r}")
    return getattr(importlib.import_module(f"interp_toolkit.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
