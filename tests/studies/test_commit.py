"""Stored results name the commit that made them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from interp_studies import result

ROOT = Path(result.__file__).resolve().parent.parent


def git(folder, *arguments):
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_checkout_is_named_by_its_commit_and_whether_it_was_changed(tmp_path, monkeypatch):
    (tmp_path / "package").mkdir()
    file = tmp_path / "package" / "result.py"
    file.write_text("1\n")
    monkeypatch.setattr(result, "__file__", str(file))
    assert result.commit() == {}
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "one")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert result.commit() == {"commit": head[:12]}
    file.write_text("2\n")
    assert result.commit() == {"commit": f"{head[:12]}-dirty"}


def test_a_study_s_versions_include_it():
    made = result.study_provenance("name", "source", {}, 0).versions
    assert "interp-toolkit" in made
    if (ROOT / ".git").exists() and shutil.which("git"):
        assert re.fullmatch(r"[0-9a-f]{7,40}(-dirty)?", made["commit"])
