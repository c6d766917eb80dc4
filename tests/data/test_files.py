import json
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import write

from interp_toolkit.data import Schema, read_data
from interp_toolkit.errors import InputError

SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]

ROWS = [[1, 2, 3], [4, 5], [6]]
A, B = [True, False, True], [False, False, True]
RECORDS = [
    {"tokens": row, "a": a, "b": b, "position": 0, "group": f"doc{i // 2}"}
    for i, (row, a, b) in enumerate(zip(ROWS, A, B, strict=True))
]


@pytest.fixture
def npz(tmp_path):
    def make(**arrays):
        path = tmp_path / "data.npz"
        np.savez(path, **arrays)
        return path

    return make


def assert_is_the_data(data):
    assert [row.tolist() for row in data.tokens] == ROWS
    assert data.features.T.tolist() == [A, B]
    assert data.names == ("a", "b")
    assert data.positions.tolist() == [0, 0, 0]
    assert data.groups.tolist() == ["doc0", "doc0", "doc1"]


def test_tables(table):
    assert_is_the_data(read_data(table(RECORDS)))


def test_tables_of_zeros_and_ones_and_of_words(table):
    words = [r | {"a": str(r["a"]), "b": "yes" if r["b"] else "no"} for r in RECORDS]
    assert_is_the_data(read_data(table(words)))
    assert_is_the_data(
        read_data(table([r | {"a": int(r["a"]), "b": int(r["b"])} for r in RECORDS]))
    )


def test_npz_with_padding(npz):
    tokens = np.array([[1, 2, 3], [4, 5, 0], [6, 0, 0]])
    features = np.stack([A, B], 1)
    groups = np.array(["doc0", "doc0", "doc1"])
    for matrix in (features, features.astype(np.int8)):
        path = npz(tokens=tokens, lengths=[3, 2, 1], features=matrix, position=0, group=groups)
        assert_is_the_data(read_data(path))


def test_npz_names_and_choice_of_features(npz):
    path = npz(tokens=[[1], [2]], features=[[0, 1], [1, 0]], names=["wet", "red"])
    assert read_data(path).names == ("wet", "red")
    chosen = read_data(path, feature_names=["red"])
    assert (chosen.names, chosen.features.tolist()) == (("red",), [[True], [False]])


def test_a_choice_of_features_ignores_other_columns(table, texts):
    path = table([r | {"id": f"x{r['tokens'][0]}", "score": 0.5} for r in RECORDS])
    assert read_data(path, feature_names=["b", "a"]).names == ("b", "a")
    data = read_data(path)
    assert data.names == ("a", "b")
    texts(data.source)
    with pytest.raises(InputError, match="score", check=texts):
        read_data(path, feature_names=["score"])


def test_text_needs_a_tokenizer(table, texts):
    path = table([{"text": "ab", "a": True}, {"text": "c", "a": False}])
    with pytest.raises(InputError, check=texts):
        read_data(path)

    def ids(text):
        return [ord(letter) - 97 for letter in text]

    forms = [ids, lambda t: {"input_ids": ids(t)}, lambda t: np.array([ids(t)])]
    for tokenizer in forms:
        data = read_data(path, tokenizer=tokenizer)
        assert [row.tolist() for row in data.tokens] == [[0, 1], [2]]
    with pytest.raises(InputError, check=texts):
        read_data(path, tokenizer=lambda text: [])


def test_vocabulary(table):
    assert len(read_data(table(RECORDS), d_vocab=7)) == 3
    with pytest.raises(InputError, match=r"data.*: row index 2 has token 6; the vocab"):
        read_data(table(RECORDS), d_vocab=6)


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens": []},
        {"tokens": [1, -2]},
        {"tokens": [1.5]},
        {"tokens": None},
        {"tokens": [[1]]},
        {"tokens": [2**40]},
        {"tokens": [True]},
        {"tokens": "1 2"},
        {"a": 2},
        {"a": None},
        {"a": float("inf")},
        {"position": 3},
        {"position": None},
        {"position": 0.5},
        {"group": None},
        {"group": [1]},
    ],
)
def test_a_bad_value_is_named_with_file_line_and_column(tmp_path, changes, texts):
    records = [RECORDS[0], RECORDS[1] | changes, RECORDS[2]]
    path = write(tmp_path / "data.jsonl", records)
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}: ", check=texts) as caught:
        read_data(path)
    assert "\n" not in str(caught.value)
    assert "line 2" in str(caught.value) or "row index 1" in str(caught.value)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("a", [True, None, False]),
        ("a", [1.0, 0.0, float("nan")]),
        ("tokens", [[1], None, [2]]),
        ("tokens", [[1.0], [2.0], [3.0]]),
        ("tokens", [b"\x01", b"\x02", b"\x03"]),
        ("position", [0, 0, None]),
    ],
)
def test_a_bad_parquet_value(tmp_path, column, values, texts):
    path = tmp_path / "data.parquet"
    pd.DataFrame(RECORDS).assign(**{column: values}).to_parquet(path)
    with pytest.raises(InputError, check=texts):
        read_data(path)


def test_missing_columns(table, texts):
    with pytest.raises(InputError, match="'tokens'", check=texts):
        read_data(table([{"token": [1], "a": True}]))
    assert read_data(table([{"tokens": [1]}])).names == ()
    with pytest.raises(InputError, match="'c'", check=texts):
        read_data(table(RECORDS), feature_names=["c"])


def test_tokens_alone_where_no_feature_is_asked_for(table, npz):
    rows = [{"tokens": row, "group": str(i), "score": 0.5} for i, row in enumerate(ROWS)]
    padded = np.array([[1, 2, 3], [4, 5, 0], [6, 0, 0]])
    for path in (table(rows), npz(tokens=padded, lengths=[3, 2, 1], group=["0", "1", "2"])):
        data = read_data(path, feature_names=())
        assert [row.tolist() for row in data.tokens] == ROWS
        assert (data.features.shape, data.names) == ((3, 0), ())
        assert data.groups.tolist() == ["0", "1", "2"]
    with_columns = read_data(npz(tokens=padded, features=np.eye(3, dtype=bool)), feature_names=())
    assert with_columns.names == ()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n",
        b'{"tokens": [1], "a": tr',
        b'{"tokens": [1], "a": true}\n{"tokens": [1]',
        b'{"tokens": [1], "a": true}\n\n{"tokens": [1], "a": true}',
        b'{"tokens": [1], "a": NaN}',
        b"[1, 2]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"tokens": [1], "a": true}\n{"tokens": [1]}',
        b'{"tokens": [1], "a": true}\n{"tokens": [1], "a": true, "b": true}',
    ],
)
def test_bad_jsonl(tmp_path, content, texts):
    path = tmp_path / "data.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, check=texts):
        read_data(path)


@pytest.mark.parametrize(
    "arrays",
    [
        {"tokens": [[1]], "feature": [[1]]},
        {"tokens": [1], "features": [[1]]},
        {"tokens": [[1.0]], "features": [[1]]},
        {"tokens": [[1]], "features": [1]},
        {"tokens": [[1]], "features": [[0.5]]},
        {"tokens": [[1]], "features": [[np.nan]]},
        {"tokens": [[1]], "features": [[2]]},
        {"tokens": [[1]], "features": [[1], [0]]},
        {"tokens": [[1]], "features": [[1]], "names": ["x", "y"]},
        {"tokens": [[1]], "features": [[1]], "lengths": [2]},
        {"tokens": [[1]], "features": [[1]], "lengths": [0]},
        {"tokens": [[1]], "features": [[1]], "lengths": [1, 1]},
        {"tokens": [[1]], "features": [[1]], "position": 0.5},
        {"tokens": [[1]], "features": [[1]], "position": [0, 0]},
        {"tokens": [[1]], "features": [[1]], "group": [0.5]},
        {"tokens": np.zeros((0, 3), int), "features": np.zeros((0, 1), int)},
    ],
)
def test_bad_npz(npz, arrays, texts):
    with pytest.raises(InputError, check=texts):
        read_data(npz(**arrays))


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


def test_pickled_objects_are_refused_unread(npz, texts):
    path = npz(tokens=[[1]], features=np.array([[Bomb()]], dtype=object))
    with pytest.raises(InputError, check=texts):
        read_data(path)


def test_pickled_files_are_refused_unread(tmp_path):
    import pickle

    for name in ("data.npz", "data.parquet", "data.jsonl"):
        (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
        with pytest.raises(InputError, match=name):
            read_data(tmp_path / name)


@pytest.mark.parametrize("suffix", [".npz", ".parquet", ".jsonl"])
def test_truncated_files(tmp_path, suffix):
    path = tmp_path / f"data{suffix}"
    if suffix == ".npz":
        np.savez(path, tokens=np.ones((50, 3), int), features=np.ones((50, 2), bool))
    else:
        write(path, RECORDS * 20)
    whole = path.read_bytes()
    for end in range(1, len(whole) - 2, max(1, len(whole) // 40)):
        path.write_bytes(whole[:end])
        if suffix == ".jsonl" and path.read_text().rstrip().endswith("}"):
            continue  # cut where a line ends, and so complete
        with pytest.raises(InputError, match=str(path)) as caught:
            read_data(path)
        assert "\n" not in str(caught.value)


@settings(max_examples=150, suppress_health_check=SHARED)
@given(noise=st.binary(max_size=200), suffix=st.sampled_from([".npz", ".parquet", ".jsonl"]))
def test_noise_is_one_clear_error(tmp_path, noise, suffix):
    path = tmp_path / f"data{suffix}"
    path.write_bytes(noise)
    with pytest.raises(InputError, match="data"):
        read_data(path)


@settings(max_examples=30, suppress_health_check=SHARED)
@given(
    rows=st.lists(
        st.tuples(st.lists(st.integers(0, 999), min_size=1, max_size=5), st.booleans()),
        min_size=1,
        max_size=8,
    )
)
def test_every_format_gives_the_same_data(tmp_path, rows):
    records = [{"tokens": tokens, "a": a} for tokens, a in rows]
    lengths = [len(tokens) for tokens, _ in rows]
    padded = np.zeros((len(rows), max(lengths)), dtype=int)
    for row, (tokens, _) in zip(padded, rows, strict=True):
        row[: len(tokens)] = tokens
    path = tmp_path / "data.npz"
    np.savez(path, tokens=padded, lengths=lengths, features=[[a] for _, a in rows])
    digests = {read_data(path).digest()}
    digests |= {
        read_data(write(tmp_path / f"d{s}", records)).digest() for s in (".jsonl", ".parquet")
    }
    assert len(digests) == 1


def test_strings_may_hold_unicode_line_ends_and_the_file_a_byte_order_mark(tmp_path):
    path = tmp_path / "data.jsonl"
    rows = [{"tokens": [1, 2], "a": bool(i), "group": f"x\u2028y\x85{i}"} for i in range(2)]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("\r\n".join(lines), encoding="utf-8-sig", newline="")
    data = read_data(path)
    assert data.groups.tolist() == [row["group"] for row in rows]


def test_noise_is_not_called_a_pickle(tmp_path, texts):
    path = tmp_path / "data.npz"
    path.write_bytes(b"\x13\x37" * 50)
    with pytest.raises(InputError, check=texts):
        read_data(path)


def test_names_of_an_npz_must_differ(npz, texts):
    path = npz(tokens=[[1]], features=[[True, False]], names=["a", "a"])
    with pytest.raises(InputError, check=texts):
        read_data(path)


def test_a_single_array_is_no_npz(tmp_path, texts):
    path = tmp_path / "data.npy"
    np.save(path, np.ones((2, 2)))
    with pytest.raises(InputError, check=texts):
        read_data(path.rename(tmp_path / "data.npz"))


def test_no_file(tmp_path, texts):
    with pytest.raises(InputError, check=texts):
        read_data(tmp_path / "none.npz")
    with pytest.raises(InputError, check=texts):
        read_data(tmp_path / "data.xlsx")


@pytest.mark.parametrize("sign", [" ", ", ", "  "])
def test_ids_separated_by_spaces_are_ids_in_a_column_named_for_them(tmp_path, sign) -> None:
    rows = [[5, 17, 8], [1, 2, 30]]
    for name in ("tokens", "input_ids", "Token_IDs"):
        path = tmp_path / "rows.csv"
        cells = [f'"{sign.join(map(str, row))}",{i}' for i, row in enumerate(rows)]
        path.write_text("\n".join([f"{name},odd", *cells]) + "\n")
        data = read_data(path, schema=Schema(prompt_column=name))
        assert [row.tolist() for row in data.tokens] == rows
        assert data.names == ("odd",)
    path.write_text("text,odd\n5 17 8,0\n1 2 30,1\n")
    with pytest.raises(InputError, match="no tokenizer"):
        read_data(path)
