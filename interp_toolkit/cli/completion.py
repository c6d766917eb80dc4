"""Shell completion of registry names, without importing the objects they name.

`interp --install-completion` teaches it to bash, zsh, fish or PowerShell. Where nothing here fits,
the shell completes files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp_toolkit.registry import Group

Completer = Callable[[str], list[str]]


def of(*groups: Group, more: Sequence[str] = ()) -> Completer:
    """The names of these groups, and `more`, that begin with what is typed."""

    def complete(incomplete: str) -> list[str]:
        from interp_toolkit.registry import names

        known = [*more, *(name for group in groups for name in names(group))]
        return [name for name in known if name.startswith(incomplete)]

    return complete


def models(incomplete: str) -> list[str]:
    """Toys, from `to` on; before that files are likelier.

    bash takes `toy:xor-1` for three words, of which it has the last completed.
    """
    words = os.environ.get("COMP_WORDS", "").split()
    before = words[: int(os.environ.get("COMP_CWORD") or 0)]
    if before[-2:] == ["toy", ":"]:
        return of("toys")(incomplete)
    if not incomplete.startswith("to"):
        return []
    toys = (f"toy:{toy}" for toy in of("toys")(""))
    return [name for name in toys if name.startswith(incomplete)]


def shown(incomplete: str) -> list[str]:
    """All that `interp show` knows."""
    return sorted({*of("probes", "detectors", "tasks", "recipes", "artefacts")(incomplete)}) + (
        models(incomplete)
    )
