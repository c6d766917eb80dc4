"""Run the studies' tests, or say that they passed on exactly these files: `make test-studies`.

Studies train models, so their tests take long and are no part of `make test`. After they passed, a
hash of what they depend on (interp_studies, its tests, and every module of interp_toolkit that it
imports, directly or not) is written to `tests/studies/passed.sha256`, which is committed. CI runs
them only where that hash is another.

Run: python tests/run_studies.py [--if-changed] [-- PYTEST OPTIONS]
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PASSED = ROOT / "tests" / "studies" / "passed.sha256"


def sources() -> list[Path]:
    """The files whose change can change what the studies' tests find."""
    import grimp

    graph = grimp.build_graph("interp_toolkit", "interp_studies")
    studies = {m for m in graph.modules if m.split(".")[0] == "interp_studies"}
    needed = studies.union(*(graph.find_upstream_modules(m) for m in studies))
    found = [path for module in needed for path in _files_of(module)]
    for folder in ("tests/studies", "tests/helpers"):
        found += (ROOT / folder).rglob("*.py")
    return sorted({*found, ROOT / "tests" / "conftest.py"})


def _files_of(module: str) -> list[Path]:
    at = ROOT.joinpath(*module.split("."))
    return [path for path in (at.with_suffix(".py"), at / "__init__.py") if path.exists()]


def digest() -> str:
    """The hash of their names and contents."""
    total = hashlib.sha256()
    for path in sources():
        total.update(f"{path.relative_to(ROOT).as_posix()}\0".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def main() -> int:
    """Run them, where asked for only if something changed."""
    options = sys.argv[1:]
    now = digest()
    if "--if-changed" in options:
        options.remove("--if-changed")
        if PASSED.exists() and PASSED.read_text().strip() == now:
            print("the studies' tests passed on these files: not run again")
            return 0
    command = [sys.executable, "-m", "pytest", "-n", "2", "tests/studies"]
    code = subprocess.run([*command, *(o for o in options if o != "--")], cwd=ROOT).returncode
    if code == 0 and not options:
        PASSED.write_text(f"{now}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
