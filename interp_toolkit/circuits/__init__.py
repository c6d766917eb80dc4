"""What weights and heads compute: detectors, QK/OV circuits, composition, circuit graphs.

Names are imported when first used, so that `import interp_toolkit.circuits` takes no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interp_toolkit.circuits.causal import ablation_effects as ablation_effects
    from interp_toolkit.circuits.collapse import similarity_by_depth as similarity_by_depth
    from interp_toolkit.circuits.composition import composition_scores as composition_scores
    from interp_toolkit.circuits.detectors import Detector as Detector
    from interp_toolkit.circuits.export import write_graph as write_graph
    from interp_toolkit.circuits.graph import composition_graph as composition_graph
    from interp_toolkit.circuits.heads import score_heads as score_heads
    from interp_toolkit.circuits.ov import ov_circuit as ov_circuit
    from interp_toolkit.circuits.partner import partners as partners
    from interp_toolkit.circuits.prompts import repeated_prompts as repeated_prompts
    from interp_toolkit.circuits.qk import qk_circuit as qk_circuit
    from interp_toolkit.circuits.self_scores import weight_scores as weight_scores
    from interp_toolkit.circuits.skip_bigrams.find import find_skip_bigrams as find_skip_bigrams
    from interp_toolkit.circuits.skip_bigrams.head import skip_bigrams_of as skip_bigrams_of
    from interp_toolkit.circuits.sorting.evolution import sorting_evolution as sorting_evolution
    from interp_toolkit.circuits.sorting.fingerprint import (
        sorting_fingerprint as sorting_fingerprint,
    )

_HOMES = {
    "Detector": "detectors",
    "ablation_effects": "causal",
    "composition_graph": "graph",
    "composition_scores": "composition",
    "find_skip_bigrams": "skip_bigrams.find",
    "ov_circuit": "ov",
    "partners": "partner",
    "qk_circuit": "qk",
    "repeated_prompts": "prompts",
    "score_heads": "heads",
    "similarity_by_depth": "collapse",
    "skip_bigrams_of": "skip_bigrams.head",
    "sorting_evolution": "sorting.evolution",
    "sorting_fingerprint": "sorting.fingerprint",
    "weight_scores": "self_scores",
    "write_graph": "export",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"interp_toolkit.circuits.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
