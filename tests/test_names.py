"""Names in the package."""

import ast
from collections import defaultdict
from pathlib import Path

import interp_toolkit

ROOT = Path(interp_toolkit.__file__).parent


def test_no_two_public_classes_share_a_name():
    homes = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}
