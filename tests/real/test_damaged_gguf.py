"""GGUF files that are damaged or lie end in one line, at once, and without memory."""

import struct

import pytest

pytest.importorskip("gguf", reason="gguf is not installed: make real")

from tiny_gguf import SETTINGS, write_tiny

from interp_toolkit import InputError, load
from interp_toolkit.models.about.record import record_of

pytestmark = pytest.mark.real


@pytest.fixture
def tiny(tmp_path):
    return write_tiny(tmp_path / "tiny.gguf")


def refusal(path) -> str:
    with pytest.raises(InputError) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)
    return str(caught.value)


def test_the_file_is_fine_as_it_is(tiny):
    model = load(tiny)
    assert model.tokenizer("A!AB").input_ids == [0, 33, 1, 63]
    assert model.cfg.n_ctx == SETTINGS["context_length"]
    assert len(record_of(model).notes) == 1


def test_what_is_left_out_is_told(tmp_path):
    path = write_tiny(tmp_path / "tiny.gguf", rope_factors=True)
    notes = record_of(load(path)).notes
    assert any(told.startswith("4 of ") and "left out" in told for told in notes)


@pytest.mark.parametrize("share", [0, 0.001, 0.02, 0.1, 0.5, 0.999])
def test_a_file_that_is_cut_off(tiny, share):
    content = tiny.read_bytes()
    tiny.write_bytes(content[: int(len(content) * share)])
    assert "GGUF" in refusal(tiny)


def test_another_format(tiny):
    tiny.write_bytes(b"PK\x03\x04" * 100)
    assert "GGUF magic invalid" in refusal(tiny)


@pytest.mark.parametrize("at", [8, 16])
def test_counts_without_end(tiny, at):
    content = bytearray(tiny.read_bytes())
    content[at : at + 8] = struct.pack("<Q", 2**62)
    tiny.write_bytes(content)
    assert "longer than" in refusal(tiny)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("block_count", 10**9, "its block_count is 1000000000, with 20 tensors"),
        ("block_count", 3, "lacks model.layers.2"),
        ("block_count", 1, "its block_count is 1, and it has 2 blocks"),
        ("embedding_length", 2**31, "its settings describe"),
        ("embedding_length", 64, "has misshapen model.embed_tokens.weight"),
        ("feed_forward_length", 2**31, "its settings describe"),
        ("vocab_size", 2**31, "its settings describe"),
        ("attention__head_count", 0, "cannot be loaded"),
        ("attention__head_count", 2**31, "cannot be loaded"),
        ("expert_count", 2**31, "its expert_count is"),
    ],
)
def test_settings_that_lie(tmp_path, name, value, said):
    assert said in refusal(write_tiny(tmp_path / "tiny.gguf", **{name: value}))


def test_a_context_without_end_takes_no_memory(tmp_path):
    assert load(write_tiny(tmp_path / "tiny.gguf", context_length=2**31)).cfg.n_ctx == 2**31


def test_an_architecture_that_is_unknown(tmp_path):
    assert "nosuch" in refusal(write_tiny(tmp_path / "tiny.gguf", "nosuch"))


def test_settings_are_not_for_such_files(tiny):
    with pytest.raises(InputError, match="own configuration; n_heads"):
        load(tiny, n_heads=4)
