import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import write

from interp_toolkit.data import read_data
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


def test_tables_of_zeros_and_ones(table):
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


def test_a_choice_of_features_ignores_other_columns(table):
    path = table([r | {"id": f"x{r['tokens'][0]}", "score": 0.5} for r in RECORDS])
    assert read_data(path, feature_names=["b", "a"]).names == ("b", "a")
    with pytest.raises(InputError, match=r"column 'score': 0\.5 is not a boolean"):
        read_data(path)
    data = read_data(table([r | {"id": f"x{r['tokens'][0]}"} for r in RECORDS]))
    assert "id" not in data.names
    assert "columns not read: id" in data.source


def test_text_needs_a_tokenizer(table):
    path = table([{"text": "ab", "a": True}, {"text": "c", "a": False}])
    with pytest.raises(InputError, match="holds text, and the model has no tokenizer"):
        read_data(path)

    def ids(text):
        return [ord(letter) - 97 for letter in text]

    forms = [ids, lambda t: {"input_ids": ids(t)}, lambda t: np.array([ids(t)])]
    for tokenizer in forms:
        data = read_data(path, tokenizer=tokenizer)
        assert [row.tolist() for row in data.tokens] == [[0, 1], [2]]
    with pytest.raises(InputError, match="the text has no tokens"):
        read_data(path, tokenizer=lambda text: [])


def test_vocabulary(table):
    assert len(read_data(table(RECORDS), d_vocab=7)) == 3
    with pytest.raises(InputError, match=r"data.*: row index 2 has token 6; the vocab"):
        read_data(table(RECORDS), d_vocab=6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": []}, "tokens must be a list of ids"),
        ({"tokens": [1, -2]}, "-2 is not a token id"),
        ({"tokens": [1.5]}, "1.5 is not a token id"),
        ({"tokens": None}, "tokens must be a list of ids"),
        ({"tokens": [[1]]}, "is not a token id"),
        ({"tokens": [2**40]}, "is not a token id"),
        ({"tokens": [True]}, "True is not a token id"),
        ({"tokens": "1 2"}, "tokens are text; call the column 'text'"),
        ({"a": 2}, "column 'a': 2 is not a boolean"),
        ({"a": None}, "column 'a': None is not a boolean"),
        ({"a": "true"}, "column 'a': 'true' is not a boolean"),
        ({"a": 1.0}, "column 'a': 1.0 is not a boolean"),
        ({"a": float("inf")}, "is no"),
        ({"position": 3}, "position 3 is outside row index 1, which has 2 tokens"),
        ({"position": None}, "column 'position': None is not an integer"),
        ({"position": 0.5}, "column 'position': 0.5 is not an integer"),
        ({"group": None}, "column 'group': None is neither a name nor a number"),
        ({"group": [1]}, r"column 'group': \[1\] is neither a name nor a number"),
    ],
)
def test_a_bad_value_is_named_with_file_line_and_column(tmp_path, changes, message):
    records = [RECORDS[0], RECORDS[1] | changes, RECORDS[2]]
    path = write(tmp_path / "data.jsonl", records)
    with pytest.raises(InputError, match=rf"^{path}: .*{message}") as caught:
        read_data(path)
    assert "\n" not in str(caught.value)
    assert "line 2" in str(caught.value) or "row index 1" in str(caught.value)


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("a", [True, None, False], "row index 1, column 'a': None is not a boolean"),
        ("a", [1.0, 0.0, float("nan")], "row index 0, column 'a': 1.0 is not a boolean"),
        ("tokens", [[1], None, [2]], "row index 1: tokens must be a list of ids"),
        ("tokens", [[1.0], [2.0], [3.0]], "row index 0: 1.0 is not a token id"),
        ("tokens", [b"\x01", b"\x02", b"\x03"], "row index 0: tokens must be a list"),
        ("position", [0, 0, None], "column 'position'"),
    ],
)
def test_a_bad_parquet_value(tmp_path, column, values, message):
    path = tmp_path / "data.parquet"
    pd.DataFrame(RECORDS).assign(**{column: values}).to_parquet(path)
    with pytest.raises(InputError, match=message):
        read_data(path)


def test_missing_columns(table):
    with pytest.raises(InputError, match="there is no column 'tokens' or 'text'"):
        read_data(table([{"token": [1], "a": True}]))
    assert read_data(table([{"tokens": [1]}])).names == ()
    with pytest.raises(InputError, match="there is no feature 'c'; known: a, b"):
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
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\n\n", "there is no text in it"),
        (b'{"tokens": [1], "a": tr', "line 1 is not a complete JSON object"),
        (b'{"tokens": [1], "a": true}\n{"tokens": [1]', "line 2 is not a complete JSON object"),
        (b'{"tokens": [1], "a": true}\n\n{"tokens": [1], "a": true}', "line 2 is not a complete"),
        (b'{"tokens": [1], "a": NaN}', "NaN is not a JSON number"),
        (b"[1, 2]", "line 1 is not a JSON object"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b"[" * 100_000, "line 1 is not a complete JSON object"),
        (b'{"tokens": [1], "a": true}\n{"tokens": [1]}', "line 2 has no 'a'"),
        (b'{"tokens": [1], "a": true}\n{"tokens": [1], "a": true, "b": true}', "line 2 has 'b'"),
    ],
)
def test_bad_jsonl(tmp_path, content, message):
    path = tmp_path / "data.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_data(path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"tokens": [[1]], "feature": [[1]]}, "unknown array 'feature'; did you mean features"),
        ({"tokens": [1], "features": [[1]]}, r"tokens must be integers .*, not int64 \[1\]"),
        ({"tokens": [[1.0]], "features": [[1]]}, "tokens must be integers"),
        ({"tokens": [[1]], "features": [1]}, "features must be"),
        ({"tokens": [[1]], "features": [[0.5]]}, "row index 0, column 'a': 0.5 is not a boolean"),
        (
            {"tokens": [[1]], "features": [[np.nan]]},
            "row index 0, column 'a': nan is not a boolean",
        ),
        ({"tokens": [[1]], "features": [[2]]}, "row index 0, column 'a': 2 is not a boolean"),
        ({"tokens": [[1]], "features": [[1], [0]]}, "2 feature rows for 1 rows"),
        ({"tokens": [[1]], "features": [[1]], "names": ["x", "y"]}, "names must be 1 strings"),
        (
            {"tokens": [[1]], "features": [[1]], "lengths": [2]},
            "row index 0 has length 2; rows hold 1",
        ),
        ({"tokens": [[1]], "features": [[1]], "lengths": [0]}, "row index 0 has length 0"),
        ({"tokens": [[1]], "features": [[1]], "lengths": [1, 1]}, "lengths must be 1 integers"),
        ({"tokens": [[1]], "features": [[1]], "position": 0.5}, "column 'position': 0.5 is no"),
        ({"tokens": [[1]], "features": [[1]], "position": [0, 0]}, "2 positions for 1 rows"),
        ({"tokens": [[1]], "features": [[1]], "group": [0.5]}, "group must be strings or"),
        ({"tokens": np.zeros((0, 3), int), "features": np.zeros((0, 1), int)}, "no rows"),
    ],
)
def test_bad_npz(npz, arrays, message):
    with pytest.raises(InputError, match=message):
        read_data(npz(**arrays))


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


def test_pickled_objects_are_refused_unread(npz):
    path = npz(tokens=[[1]], features=np.array([[Bomb()]], dtype=object))
    with pytest.raises(InputError, match="pickled objects, which could run code"):
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


def test_noise_is_not_called_a_pickle(tmp_path):
    path = tmp_path / "data.npz"
    path.write_bytes(b"\x13\x37" * 50)
    with pytest.raises(InputError, match="not an archive of arrays"):
        read_data(path)


def test_names_of_an_npz_must_differ(npz):
    path = npz(tokens=[[1]], features=[[True, False]], names=["a", "a"])
    with pytest.raises(InputError, match="two features have the same name"):
        read_data(path)


def test_a_single_array_is_no_npz(tmp_path):
    path = tmp_path / "data.npy"
    np.save(path, np.ones((2, 2)))
    with pytest.raises(InputError, match=r"cannot be read as a \.npz file"):
        read_data(path.rename(tmp_path / "data.npz"))


def test_no_file(tmp_path):
    with pytest.raises(InputError, match="there is no such file"):
        read_data(tmp_path / "none.npz")
    with pytest.raises(
        InputError, match=r"unknown kind of data file; give \.npz, \.parquet, \.jsonl"
    ):
        read_data(tmp_path / "data.xlsx")
