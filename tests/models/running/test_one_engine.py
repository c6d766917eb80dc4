"""Hooks are put on models in one place, so that edits start late, are checked and are taken off."""

from __future__ import annotations

import ast
from pathlib import Path

import interp_toolkit

ROOT = Path(interp_toolkit.__file__).parent
REGISTERS = {
    "add_hook",
    "hooks",
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_hook",
    "run_with_cache",
    "run_with_hooks",
}
#: beside `models.running`: who registers hooks, and why
OTHERS = {
    "diagnosis/sections/methods.py": "these methods are what it examines",
    "models/transformer/transformer.py": "our transformer's own `run_with_cache`",
    "training/sorting.py": "on a gradient, not on a model",
}


def test_only_the_engine_registers_hooks() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in REGISTERS
    }
    assert found - OTHERS.keys() == {"models/running/forward.py", "models/running/restart.py"}
    assert OTHERS.keys() <= found
