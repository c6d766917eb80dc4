"""Faults of TransformerLens that were reproduced here, with the release they were seen in.

Only what this package saw itself is listed, with the very release; of others nothing is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from interp_toolkit.diagnosis.checks import Check


@dataclass(frozen=True)
class KnownFault:
    """A fault of a release.

    Attributes:
        kind: the hook point's name without its layer, or the check's.
        where: "native", "wrapped" or "any" bridge.
        releases: in which it was reproduced.
        said: what happens.
    """

    kind: str
    where: str
    releases: tuple[str, ...]
    said: str


KNOWN: tuple[KnownFault, ...] = ()


def seen_in(model: Any, check: Check) -> str | None:
    """The releases in which what a check found was reproduced, with this one marked; None: not."""
    here = version("transformer-lens")
    bridge = hasattr(model, "original_model")
    if not bridge or check.answer not in ("failed", "differs", "undecided"):
        return None
    native = type(model.original_model).__name__ == "NativeModel"
    where = "native" if native else "wrapped"
    for fault in KNOWN:
        if check.name.startswith(fault.kind) and fault.where in (where, "any"):
            if here in fault.releases:
                others = [release for release in fault.releases if release != here]
                also = f" and {', '.join(others)}" if others else ""
                return f"known of transformer-lens {here}{also}: {fault.said}"
    return None
