"""Run the tests that take long, or say that they passed on exactly these files.

    make test-studies    # of interp_studies, which train models
    make test-long       # of tests/long_tests.txt: calibrations, whole pages and examples

Neither is part of `make test`. After all of a part passed, a hash of what they depend on is written
to `tests/PART.sha256`, which is committed: for the studies interp_studies, its tests, and every
module of interp_toolkit that it imports, directly or not; for the others every file of the project
but the changelog. CI runs a part only where its hash is another.

Run: python tests/run_long.py studies|long [--if-changed]
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = {"studies": ["tests/studies"], "long": ["-m", "long and not real", "tests"]}
NOT_READ = {"CHANGELOG.md", *(f"tests/{part}.sha256" for part in TESTS)}


def sources(part: str) -> list[Path]:
    """The files whose change can change what the tests find."""
    if part == "long":
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        return sorted(
            path
            for name in {*names.split("\0")} - {*NOT_READ, ""}
            if (path := ROOT / name).is_file()
        )
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


def digest(part: str) -> str:
    """The hash of their names and contents."""
    total = hashlib.sha256()
    for path in sources(part):
        total.update(f"{path.relative_to(ROOT).as_posix()}\0".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def main() -> int:
    """Run them, where asked for only if something changed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=list(TESTS))
    parser.add_argument("--if-changed", action="store_true")
    options = parser.parse_args()
    passed, now = ROOT / "tests" / f"{options.part}.sha256", digest(options.part)
    if options.if_changed and passed.exists() and passed.read_text().strip() == now:
        print(f"the tests of {options.part!r} passed on these files: not run again")
        return 0
    command = [sys.executable, "-m", "pytest", "-n", "2", *TESTS[options.part]]
    code = subprocess.run(command, cwd=ROOT).returncode
    if code == 0:
        passed.write_text(f"{now}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
