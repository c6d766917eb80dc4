"""Local texts in every format, and one clear line where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interp_toolkit.data.text.texts import find_texts, split
from interp_toolkit.errors import InputError

TRAIN, TEST = ["one\ntwo lines", "three", "four"], ["five", "six"]


def write(folder: Path, name: str, texts: list[str]) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"text": text, "label": number % 2} for number, text in enumerate(texts)]
    if path.suffix in (".txt", ".tokens", ".raw"):
        path.write_text("\n\n".join(texts) + "\n")
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("train", "test", "labelled"),
    [
        ("a.txt", "test.txt", False),
        ("a.jsonl", "valid/b.jsonl", True),
        ("train.parquet", "Test-0.parquet", True),
        ("wiki.train.tokens", "wiki.test.tokens", False),
        ("a.raw", "my_validation/b.raw", False),
    ],
)
def test_a_folder_of_files_is_read_with_its_held_out_part(
    tmp_path: Path, train: str, test: str, labelled: bool
) -> None:
    write(tmp_path, train, [TRAIN[0], TRAIN[1], " ", TRAIN[2]] if labelled else TRAIN)
    write(tmp_path, test, TEST)
    write(tmp_path, ".hidden.jsonl", ["never"])
    held_out, reader = split(find_texts(str(tmp_path)), 0)
    held_out = list(held_out)
    assert [d.text.strip() for d in held_out] == TEST
    for _ in range(2):  # it can be read again
        assert [d.text.strip() for d in reader()] == TRAIN
    assert [d.label for d in held_out] == ([0, 1] if labelled else [None, None])
    assert len(list(split(find_texts(str(tmp_path)), 1)[0])) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # pyarrow's, through datasets
def test_what_save_to_disk_wrote_is_read(tmp_path: Path) -> None:
    from datasets import Dataset, DatasetDict

    parts = {"train": TRAIN, "validation": TEST}
    saved = {name: Dataset.from_dict({"text": texts}) for name, texts in parts.items()}
    DatasetDict(saved).save_to_disk(str(tmp_path / "both"))
    saved["train"].save_to_disk(str(tmp_path / "one"))
    held_out, reader = split(find_texts(str(tmp_path / "both")), 0)
    assert ([d.text for d in held_out], [d.text for d in reader()]) == (TEST, TRAIN)
    held_out, reader = split(find_texts(str(tmp_path / "one")), 1)
    assert ([d.text for d in held_out], [d.text for d in reader()]) == (TRAIN[:1], TRAIN[1:])


def test_where_nothing_is_held_out_the_first_documents_are(tmp_path: Path, texts) -> None:
    write(tmp_path, "a.jsonl", TRAIN)
    held_out, reader = split(find_texts(str(tmp_path / "a.jsonl")), 2)
    assert ([d.text for d in held_out], [d.text for d in reader()]) == (TRAIN[:2], TRAIN[2:])
    with pytest.raises(InputError, check=texts):
        split(find_texts(str(tmp_path)), 0)


def test_a_text_changes_its_version_with_its_files(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", TRAIN)
    before = find_texts(str(tmp_path)).version
    assert find_texts(str(tmp_path)).version == before
    write(tmp_path, "a.txt", TEST)
    assert find_texts(str(tmp_path)).version != before


def read(text: Path | str) -> None:
    held_out, reader = split(find_texts(str(text)), 1)
    list(held_out)
    list(reader())


def refused(text: Path | str) -> str:
    with pytest.raises(InputError) as error:
        read(text)
    return str(error.value)


def test_what_cannot_be_read_is_one_clear_line(tmp_path: Path, texts) -> None:
    texts(refused("/nowhere/at/all"))
    (tmp_path / "a").mkdir()
    assert refused(tmp_path / "a") == f"{tmp_path / 'a'} is empty"
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "a.csv").touch()
    texts(refused(tmp_path / "csv"))
    texts(refused(tmp_path / "csv" / "a.csv"))
    write(tmp_path, "mixed/a.txt", TRAIN)
    write(tmp_path, "mixed/b.jsonl", TRAIN)
    texts(refused(tmp_path / "mixed"))
    write(tmp_path, "held/test.txt", TRAIN)
    texts(refused(tmp_path / "held"))
    (tmp_path / "other.jsonl").write_text('{"body": "x"}\n')
    texts(refused(tmp_path / "other.jsonl"))
    (tmp_path / "label.jsonl").write_text('{"text": "x", "label": "good"}\n')
    texts(refused(tmp_path / "label.jsonl"))
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no parquet")
    for name in ("mixed", "held", "a"):
        assert "\n" not in refused(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("b.txt", "caf\u00e9".encode("latin-1")),
        ("b.jsonl", '{"text": "\u00e9 x"}\n'.encode("latin-1")),
        ("b.jsonl", b'{"text": "x"}\n{"te'),
        ("b.parquet", b"PAR1 no parquet"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, capfd, name: str, data: bytes, texts
) -> None:
    write(tmp_path, f"a{Path(name).suffix}", TRAIN)
    (tmp_path / name).write_bytes(data)
    said = refused(tmp_path)
    assert said.startswith(str(tmp_path / name))
    texts(said)
    assert "\n" not in said
    assert capfd.readouterr().err == ""


def test_whole_words_of_names_hold_out_and_are_told(tmp_path: Path, texts) -> None:
    for name in ("testimony.txt", "development/a.txt", "latest.txt", "wiki.train.tokens"):
        write(tmp_path, name, [name])
    held = ["b_DEV/b.txt", "corpus-eval.txt", "valid/c.txt", "wiki.test.tokens", "wiki.valid.txt"]
    for name in held:
        write(tmp_path, name, [name])
    said: list[str] = []
    tested, train = split(find_texts(str(tmp_path)), 0, said.append)
    assert [d.text.strip() for d in tested] == held
    assert sorted(d.text.strip() for d in train()) == [
        "development/a.txt",
        "latest.txt",
        "testimony.txt",
        "wiki.train.tokens",
    ]
    texts(said)
    write(tmp_path, "test/z.txt", ["z"])
    split(find_texts(str(tmp_path)), 0, said.append)
    assert said[1].endswith("wiki.test.tokens, wiki.valid.txt")


def test_a_hub_that_cannot_be_reached_is_said_at_once(
    monkeypatch: pytest.MonkeyPatch, texts
) -> None:
    asked = []

    def dataset_info(self, name: str, timeout: float):
        asked.append((name, timeout))
        raise OSError("Name or service not known")

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", dataset_info)
    said = refused("Salesforce/wikitext:wikitext-103-raw-v1")
    assert "wikitext-103-raw-v1" in said
    texts(said)
    assert [name for name, _ in asked] == ["Salesforce/wikitext"]


def test_offline_no_hub_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, texts) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *a, **k: pytest.fail("asked"))
    texts(refused("owner/never-cached"))


@pytest.mark.parametrize("begins", ["null\n", ' \n null {"text": "a"}\n'])
def test_json_that_begins_with_null_does_not_end_the_process(tmp_path: Path, begins: str) -> None:
    (tmp_path / "rows.jsonl").write_text(begins)
    with pytest.raises(InputError, match="begins with null"):
        split(find_texts(str(tmp_path)), 0)
