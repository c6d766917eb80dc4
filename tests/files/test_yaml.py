from pathlib import Path

import pytest

from interp_toolkit.errors import InputError
from interp_toolkit.files import read_yaml


def write(folder: Path, text: str) -> Path:
    path = folder / "file.yaml"
    path.write_text(text)
    return path


def test_plain_data_comes_back(tmp_path):
    path = write(tmp_path, "a: [1, 2.5, yes]\nb: {c: null, d: 'x'}\n")
    assert read_yaml(path) == {"a": [1, 2.5, True], "b": {"c": None, "d": "x"}}


def test_json_is_yaml(tmp_path):
    assert read_yaml(write(tmp_path, '{"a": [1, {"b": false}]}')) == {"a": [1, {"b": False}]}


@pytest.mark.parametrize(
    "text",
    [
        "a: &x [1]\nb: *x\n",
        "a: 1\na: 2\n",
        "a: [1\n",
        "a: !!python/object/apply:os.system [echo]\n",
        "[" * 5000 + "]" * 5000,
    ],
)
def test_what_is_refused(tmp_path, text, texts):
    with pytest.raises(InputError, match=r".") as caught:
        read_yaml(write(tmp_path, text))
    texts(str(caught.value))


def test_nested_anchors_end_at_once(tmp_path):
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    with pytest.raises(InputError, match="aliases"):
        read_yaml(write(tmp_path, "\n".join(lines)))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_yaml(tmp_path / "none.yaml")
