"""Files from anyone are taken in within bounds, whatever a few bytes of them stand for."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interp_toolkit import InputError
from interp_toolkit import files as bounded
from interp_toolkit.data.files import read_data
from interp_toolkit.data.text.texts import find_texts, split
from interp_toolkit.files import (
    LARGEST,
    check_claim,
    check_file,
    most_text,
    read_whole,
    read_whole_text,
    read_yaml,
)
from interp_toolkit.models.features.direction_files import read_directions

GIB = 2**30


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may always stand for 1 MiB, not for 1 GiB."""
    monkeypatch.setattr(bounded, "ALWAYS_FINE", 2**20)


def archive(path: Path, **arrays: np.ndarray) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, array in arrays.items():
            with file.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array(entry, array)
    return path


def test_a_file_is_read_whole_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a\r\nb\xc3\xa9")
    (tmp_path / "link").symlink_to("file")
    assert read_whole(tmp_path / "link", 6) == b"a\r\nb\xc3\xa9"
    assert read_whole_text(tmp_path / "link") == (tmp_path / "link").read_text("utf-8") == "a\nbé"


def test_what_is_no_file_or_too_large_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(7))
    os.mkfifo(tmp_path / "pipe")
    for path, said in {
        tmp_path / "file": "larger than",
        tmp_path / "pipe": "not a regular file",
        Path("/dev/zero"): "not a regular file",
    }.items():
        with pytest.raises(OSError, match=said):
            check_file(path, 6)  # which opens nothing that has no end
    with pytest.raises(OSError, match="larger than"):
        read_whole(tmp_path / "file", 6)
    with pytest.raises(IsADirectoryError):
        read_whole(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_whole(tmp_path / "none")


def test_claims_are_held_against_the_file_and_the_machine(
    monkeypatch: pytest.MonkeyPatch, texts
) -> None:
    monkeypatch.setattr(bounded, "machine_memory", lambda: None)
    assert most_text() == GIB
    check_claim(GIB, 1)
    check_claim(100 * GIB, 2 * GIB)
    with pytest.raises(OSError, match=r"1\.5 GiB", check=texts):
        check_claim(3 * GIB // 2, 1000)
    monkeypatch.setattr(bounded, "machine_memory", lambda: 8 * GIB)
    assert most_text() == GIB // 2
    check_claim(2 * GIB, 2 * GIB)
    with pytest.raises(OSError, match="machine's 8 GiB", check=texts):
        check_claim(3 * GIB, 2 * GIB)


@pytest.mark.usefixtures("little")
def test_archives_are_counted_before_they_are_unpacked(tmp_path: Path, texts) -> None:
    zeros = np.zeros((2**12, 2**10), dtype=np.int8)  # 4 MiB; deflate makes a thousandth of it
    data = archive(tmp_path / "rows.npz", tokens=zeros)
    with pytest.raises(InputError, match=r"4,\d\d\d", check=texts):
        read_data(data)
    directions = archive(tmp_path / "d.npz", directions=zeros.astype(np.float32))
    with pytest.raises(InputError, match="claims to hold 16 MiB"):
        read_directions(directions)
    honest = archive(tmp_path / "honest.npz", tokens=zeros[:2, :8])
    assert len(read_data(honest)) == 2


def test_an_array_that_does_not_fit_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts
) -> None:
    np.save(tmp_path / "d.npy", np.ones((4, 8)))
    assert read_directions(tmp_path / "d.npy")[0].shape == (4, 8)
    monkeypatch.setattr(bounded, "machine_memory", lambda: 1000)
    with pytest.raises(InputError, check=texts):
        read_directions(tmp_path / "d.npy")


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize(
    ("column", "claim"),
    [
        # values, before any is unpacked: a row alone may have any number
        pytest.param({"tokens": [[0] * 1000] * 1000}, f"{16e6 / 2**20:.3g} MiB", id="values"),
        pytest.param({"text": ["a" * 10_000] * 1000}, r"9\.\d+ MiB", id="bytes"),
    ],
)
def test_tables_are_counted_before_they_are_unpacked(
    tmp_path: Path, column: dict, claim: str, texts
) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(column), path, compression="zstd")
    assert path.stat().st_size < 2**15
    with pytest.raises(InputError, check=texts):
        read_data(path, lambda text: [0])


def test_a_table_of_many_batches_is_read_whole(tmp_path: Path) -> None:
    tokens = [[n % 7, n % 5] for n in range(2500)]
    table = pa.table({"tokens": tokens, "odd": [n % 2 == 1 for n in range(2500)]})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=700)
    data = read_data(tmp_path / "rows.parquet")
    assert [row.tolist() for row in data.tokens] == tokens
    assert data.features[:, 0].tolist() == [n % 2 == 1 for n in range(2500)]


def test_long_yaml_is_not_begun(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"a: {'b' * LARGEST}")
    with pytest.raises(InputError, match="larger than 1 MiB"):
        read_yaml(tmp_path / "a.yaml")


def test_a_text_that_was_never_written_whole_is_none(tmp_path: Path, texts) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("the cat sat\n\na dog\n")
    assert split(find_texts(str(path)), 1)
    os.truncate(path, 10_000)
    with pytest.raises(InputError, check=texts):
        split(find_texts(str(path)), 1)
