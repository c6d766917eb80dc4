"""What a release is: one version, a public API that changes on purpose, a wheel that works."""

from __future__ import annotations

import email
import importlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from interp_toolkit._version import __version__

ROOT = Path(__file__).parents[1]
API = ROOT / "docs" / "public_api.txt"
ROOMS = ("", "probes", "circuits", "data", "models", "report")


def public_names() -> list[str]:
    """What `from interp_toolkit... import` offers, by each room's `__all__`."""
    found = []
    for room in ROOMS:
        module = importlib.import_module(f"interp_toolkit.{room}".rstrip("."))
        found += [f"{module.__name__}.{name}" for name in getattr(module, "__all__", ())]
    return sorted(found)


def test_the_public_names_are_those_of_the_list() -> None:
    assert API.read_text(encoding="utf-8").split() == public_names(), (
        "a name came or went: say so in CHANGELOG.md, and write docs/public_api.txt anew"
    )


def test_every_public_name_is_there() -> None:
    for name in public_names():
        room, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(room), attribute), name


def test_one_version_everywhere() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from the source distribution, of what git knows."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True)
    if done.returncode:
        pytest.skip("no git repository to build from")
    for name in done.stdout.decode().split("\0"):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    [found] = out.glob("*.whl")
    assert [path.name for path in out.glob("*.tar.gz")] == [f"interp_toolkit-{__version__}.tar.gz"]
    return found


@pytest.mark.slow
def test_a_wheel_holds_both_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = email.message_from_bytes(
            archive.read(next(name for name in names if name.endswith("METADATA")))
        )
    assert metadata["Version"] == __version__
    tops = {name.split("/")[0] for name in names}
    assert tops == {"interp_toolkit", "interp_studies", f"interp_toolkit-{__version__}.dist-info"}
    tracked = {
        str(path.relative_to(ROOT))
        for package in ("interp_toolkit", "interp_studies")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix not in (".pyc",)
    }
    missing = {
        name
        for name in tracked - set(names)
        if name.endswith(
            (".py", ".pyi", ".typed", ".html", ".css", ".js", ".gz", ".txt", ".safetensors")
        )
    }
    assert missing == set()
    assert wheel.stat().st_size < 3_000_000


@pytest.mark.slow
def test_the_wheel_works_outside_the_repository(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    alone = ["--no-index", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run([*pip, *alone], check=True)
    environment = os.environ | {"PYTHONPATH": str(target)}
    where = "import interp_toolkit; print(interp_toolkit.__file__)"
    command = [sys.executable, "-P"] if sys.version_info >= (3, 11) else [sys.executable]
    run = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
    done = subprocess.run([*command, "-c", where], **run)
    assert done.stdout.strip().startswith(str(target))
    line = ["-m", "interp_toolkit", "analyze", "toy:sort-causal-trained", "--probe", "sorting"]
    done = subprocess.run([*command, *line, "--html", "page.html", "--quiet"], **run)
    assert done.returncode == 0, done.stderr
    assert re.search(r"sort", done.stdout)
    assert (tmp_path / "page.html").stat().st_size > 5e5
