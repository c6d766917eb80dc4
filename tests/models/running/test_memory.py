from types import SimpleNamespace

import pytest

from interp_toolkit.errors import InputError
from interp_toolkit.models.running.memory import bytes_per_row, parse_memory, rows_that_fit


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4GiB", 4 * 2**30),
        ("4 gib", 4 * 2**30),
        ("500MB", 500_000_000),
        ("1.5k", 1500),
        ("2e9", 2_000_000_000),
        (123, 123),
        (None, 2**30),
    ],
)
def test_sizes_as_people_write_them(text, size):
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "lots", "4 GiBs", "-1GB", "0", 0, -5, "0.1", True, "1e999"])
def test_what_is_no_size(text):
    with pytest.raises(InputError, match="memory"):
        parse_memory(text)


def test_estimate_counted_by_hand():
    cfg = SimpleNamespace(d_model=8, n_heads=2, d_head=4, d_mlp=16, d_vocab=10)
    # per position: 4*8 residual, 4*2*4 attention, 3*2*5 scores, 3*16 MLP = 142; logits 2*10
    assert bytes_per_row(cfg, 5, 4, logits=False, n_stored=0) == 4 * 142 * 5
    assert bytes_per_row(cfg, 5, 4, logits=True, n_stored=7) == 4 * ((142 + 20) * 5 + 7)


def test_rows_that_fit(texts):
    assert rows_that_fit(1000, 100, 5) == 10
    assert rows_that_fit(10**15, 1, 5) == 4096
    with pytest.raises(InputError, match="100", check=texts):
        rows_that_fit(99, 100, 5)
