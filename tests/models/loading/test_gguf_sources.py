"""GGUF files where nothing can read them, and folders that hold them alone."""

import importlib.util

import pytest

from interp_toolkit import InputError, load


def test_without_the_package_the_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(100))
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "gguf" else found(name)
    )
    with pytest.raises(InputError, match=r'pip install "interp-toolkit\[real\]"'):
        load(tmp_path / "model.gguf")


def test_a_folder_of_such_files_alone_says_what_to_give(tmp_path, texts):
    for name in ("b.gguf", "a.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(InputError, match=r"\S*a\.gguf", check=texts):
        load(tmp_path)


def test_a_file_that_is_not_there(tmp_path, texts):
    with pytest.raises(InputError, match=r"no\.gguf", check=texts):
        load(tmp_path / "no.gguf")
