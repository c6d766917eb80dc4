"""Packed files, arrow files, shards, and folders of the `datasets` library."""

import bz2
import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from layouts import WordTokenizer, save

from interp_toolkit import InputError
from interp_toolkit.data import read_data
from interp_toolkit.data.files import is_data

RECORDS = [
    {"text": "the sky is", "answer": " blue", "odd": True},
    {"text": "the sun is", "answer": " hot", "odd": False},
]


def digest(path):
    return read_data(path, WordTokenizer()).digest()


@pytest.fixture
def expected(tmp_path):
    return digest(save(tmp_path / "plain.jsonl", RECORDS))


def packed(path, content):
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(content))
    elif path.suffix == ".bz2":
        path.write_bytes(bz2.compress(content))
    else:
        with pa.CompressedOutputStream(str(path), "zstd") as stream:
            stream.write(content)
    return path


@pytest.mark.parametrize("packing", [".gz", ".bz2", ".zst"])
@pytest.mark.parametrize("ending", [".csv", ".tsv", ".json", ".jsonl"])
def test_packed_texts_are_read(tmp_path, expected, ending, packing):
    plain = save(tmp_path / f"rows{ending}", RECORDS).read_bytes()
    path = packed(tmp_path / f"rows{ending}{packing}", plain)
    assert is_data(path)
    assert digest(path) == expected
    path.write_bytes(path.read_bytes()[: len(path.read_bytes()) // 2])
    with pytest.raises(InputError, match=path.name):
        read_data(path, WordTokenizer())
    path.write_bytes(b"not packed at all")
    with pytest.raises(InputError, match=path.name):
        read_data(path, WordTokenizer())


def test_a_packed_file_of_far_more_content_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("interp_toolkit.data.files.most_text", lambda: 1000)
    path = packed(tmp_path / "rows.csv.gz", b"text\n" + b"a" * 100_000)
    with pytest.raises(InputError, match="memory"):
        read_data(path, WordTokenizer())


@pytest.mark.parametrize("form", ["stream", "file"])
def test_arrow_files(tmp_path, expected, form):
    table, path = pa.Table.from_pylist(RECORDS), tmp_path / "rows.arrow"
    new = pa.ipc.new_stream if form == "stream" else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, new(sink, table.schema) as writer:
        writer.write_table(table)
    assert digest(path) == expected
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(InputError, match="arrow"):
        read_data(path, WordTokenizer())


def test_shards_of_parquet_are_one_table(tmp_path, expected):
    folder = tmp_path / "shards"
    folder.mkdir()
    for number, record in enumerate(RECORDS):
        pd.DataFrame([record]).to_parquet(folder / f"train-{number:05}-of-00002.parquet")
    assert is_data(folder)
    assert digest(folder) == expected
    pd.DataFrame([{"text": "a"}]).to_parquet(folder / "train-x.parquet")
    with pytest.raises(InputError, match="other columns"):
        read_data(folder, WordTokenizer())
    pd.DataFrame(RECORDS).to_parquet(folder / "test-00000-of-00001.parquet")
    with pytest.raises(InputError, match="splits"):
        read_data(folder, WordTokenizer())


def test_folders_that_datasets_saves(tmp_path, expected):
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_list(RECORDS)
    data.save_to_disk(tmp_path / "one")
    assert is_data(tmp_path / "one")
    assert digest(tmp_path / "one") == expected
    datasets.DatasetDict({"train": data}).save_to_disk(tmp_path / "split")
    assert digest(tmp_path / "split") == expected
    datasets.DatasetDict({"train": data, "test": data}).save_to_disk(tmp_path / "splits")
    with pytest.raises(InputError, match="splits/train"):
        read_data(tmp_path / "splits", WordTokenizer())
    assert digest(tmp_path / "splits" / "train") == expected
    data.select([1, 0]).save_to_disk(tmp_path / "other")  # by an index, not in the file's order
    rows = read_data(tmp_path / "other", WordTokenizer())
    assert rows.features[:, 0].tolist() == [False, True]
    state = tmp_path / "one" / "state.json"
    state.write_text("{")
    with pytest.raises(InputError, match="one"):
        read_data(tmp_path / "one", WordTokenizer())


def test_other_folders_are_refused(tmp_path):
    assert not is_data(tmp_path)
    with pytest.raises(InputError, match="folder"):
        read_data(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    np.savez(tmp_path / "a.npz", tokens=[[1]])
    assert not is_data(tmp_path)
