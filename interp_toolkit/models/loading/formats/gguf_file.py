"""Load a GGUF file (llama.cpp's format) as a bridge: transformers reads it, dequantized.

The package `gguf` parses the file; every read is checked against the file's size, and the number of
reads is bounded. The model described by the settings is then built without memory and compared with
the file's tensors, so that nothing is allocated for a file with false claims. Transformers gets the
file alone in a separate folder, so nothing else is read. By default it would parse the metadata
three times (for configuration, weights and tokenizer), and list all tensor names once per module;
here each is done once.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import os
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from interp_toolkit.errors import InputError, one_line
from interp_toolkit.models.loading.formats.huggingface import bridge_to, check_complete
from interp_toolkit.models.loading.library_output import offline, suppress_output
from interp_toolkit.models.loading.memory_needed import announce

_NAME = "model.gguf"
_MAGIC = b"GGUF"
_TIMES = 2  # parameters that a configuration may describe, relative to those in the file
_MOST_READS = 8_000_000  # in a header; a vocabulary of 1e6 words takes 5e6 reads
_MOST_AXES = 8
_LONGEST = 200  # characters of another library's message
#: settings for numbers of parts, and the largest values accepted without a tensor for each part
_COUNTS = {"block_count": 0, "decoder_block_count": 0, "expert_count": 1024}
_BLOCK = re.compile(r"blk\.(\d{1,9})\.")
_PLAIN = ("F32", "F16", "BF16", "F64")  # formats that are not quantized


def is_gguf(path: Path) -> bool:
    """Whether a file is GGUF by its suffix or its first bytes; never raises."""
    if path.suffix.lower() == ".gguf":
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def load_gguf(
    path: Path,
    device: torch.device,
    dtype: torch.dtype | None,
    say: Callable[[str], None] | None = None,
) -> tuple[Any, tuple[str, ...]]:
    """The bridge to the model in a GGUF file, with its tokenizer, and notes on its weights.

    Args:
        path: the file.
        device: where to put the model.
        dtype: dtype of its weights; None is float32, whatever the file's formats.
        say: called with a line on the model's size.

    Raises:
        InputError: the package `gguf` is missing; the file is not GGUF, damaged, too large for this
            machine, of an architecture that transformers or TransformerLens cannot read, or
            its tensors do not fit its settings.
    """
    _require_package(path)
    kind = dtype or torch.float32
    silence = contextlib.redirect_stderr(io.StringIO())  # hides a progress bar without a switch
    with _alone(path) as folder, _parsed_once():
        with _refused_in_one_line(path, folder):
            header = _header(folder / _NAME)
        announce(str(path), _n_params(header), kind, say)
        with _refused_in_one_line(path, folder), suppress_output(), silence, offline():
            model, tokenizer = _read(path, folder, header, kind)
            notes = _notes(model, header)
            bridge = bridge_to(model.to(device), str(path), tokenizer)
    return bridge.eval(), notes


@contextlib.contextmanager
def _refused_in_one_line(path: Path, folder: Path) -> Iterator[None]:
    """Replace any exception of gguf and transformers by a one-line InputError."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        why = one_line(error).replace(str(folder / _NAME), "it")[:_LONGEST]
        raise InputError(f"{path} cannot be loaded as GGUF: {why}") from error


def check_no_gguf_only(folder: Path) -> None:
    """Raise InputError for a folder that holds GGUF files and no config.json."""
    if (folder / "config.json").is_file():
        return
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() == ".gguf")
    if files:
        more = f" (or one of {len(files) - 1} more)" if len(files) > 1 else ""
        raise InputError(
            f"{folder} holds GGUF files and no config.json: give the file itself, {files[0]}{more}"
        )


def _require_package(path: Path) -> None:
    if importlib.util.find_spec("gguf") is None:
        raise InputError(
            f"{path} is a GGUF file, which needs the package gguf: "
            'pip install "interp-toolkit[real]"'
        )


def _header(path: Path) -> Any:
    """The reader of a file whose tensors lie within it and match the counts in its settings.

    Raises ValueError, or any exception of gguf, for a damaged or inconsistent file.
    """
    import gguf

    with warnings.catch_warnings():  # about overflowing sums, which are refused below
        warnings.simplefilter("ignore")
        header = gguf.GGUFReader(str(path))
    tensors = header.tensors
    claimed = sum(t.n_bytes for t in tensors)
    if claimed > len(header.data) or any(t.data_offset < header.data_offset for t in tensors):
        raise ValueError(f"its tensors take {claimed:,} bytes, and it has {len(header.data):,}")
    family = header.get_field("general.architecture")
    if family is None:
        raise ValueError("it names no architecture")
    blocks = [int(match[1]) for t in tensors if (match := _BLOCK.match(t.name))]
    for name, most in _COUNTS.items():  # without this check a false count could be unbounded
        field = header.get_field(f"{bytes(family.parts[-1]).decode()}.{name}")
        count = 0 if field is None else int(field.parts[-1][0])
        if count > max(len(tensors), most):
            raise ValueError(f"its {name} is {count}, with {len(tensors)} tensors")
        if field is not None and name == "block_count" and count <= max(blocks, default=-1):
            raise ValueError(f"its block_count is {count}, and it has {max(blocks) + 1} blocks")
    return header


def _n_params(header: Any) -> int:
    """The number of entries of a file's tensors."""
    return sum(t.n_elements for t in header.tensors)


def _read(path: Path, folder: Path, header: Any, dtype: torch.dtype) -> tuple[Any, Any | None]:
    """The model and the tokenizer, if there is one, as transformers reads them from the file."""
    import transformers

    settings: dict[str, Any] = {
        "gguf_file": _NAME,
        "local_files_only": True,
        "trust_remote_code": False,
    }
    config = transformers.AutoConfig.from_pretrained(folder, **settings)
    _scale_positions(path, config, header)
    _check_size(path, config, _n_params(header))
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(
        folder,
        config=config,
        attn_implementation="eager",  # other implementations hide the attention pattern from hooks
        dtype=dtype,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # mismatches are listed and refused below
        **_dequantised(),
        **settings,
    )
    check_complete(path, loading)
    _forget_quantisation(model)
    model.config.architectures = [type(model).__name__]
    model.config.name_or_path = model.name_or_path = str(path)
    tokenizer = None
    if header.get_field("tokenizer.ggml.tokens") is not None:
        tokenizer = _as_in_a_folder(
            transformers.AutoTokenizer.from_pretrained(folder, **settings), folder / "tokenizer"
        )
        tokenizer.name_or_path = str(path)
    return model, tokenizer


def _scale_positions(path: Path, config: Any, header: Any) -> None:
    """Give the configuration the file's scaling of rotary positions, which transformers leaves out.

    Raises InputError for a scaling that is not linear and not given as a factor per frequency.
    """
    parameters = getattr(config, "rope_parameters", None)
    if not isinstance(parameters, dict) or parameters.get("rope_type") not in (None, "default"):
        return
    family = bytes(header.get_field("general.architecture").parts[-1]).decode()

    def setting(name: str) -> Any:
        field = header.get_field(f"{family}.rope.scaling.{name}")
        return None if field is None else field.contents()

    kind, factor = setting("type"), setting("factor")
    factors = next((t for t in header.tensors if t.name == "rope_freqs.weight"), None)
    if kind == "linear" and factor is not None:
        config.rope_parameters = {**parameters, "rope_type": "linear", "factor": float(factor)}
    elif factors is not None and kind in (None, "none"):
        each = np.asarray(factors.data, dtype=float).ravel().tolist()
        config.rope_parameters = {
            **parameters,
            "rope_type": "longrope",
            "short_factor": each,
            "long_factor": each,
            "original_max_position_embeddings": int(config.max_position_embeddings),
            "attention_factor": 1.0,
        }
    elif kind not in (None, "none"):
        raise InputError(
            f"{path} scales its rotary positions ({kind}), which transformers does not read from "
            "GGUF: give the model's Hugging Face folder"
        )


def _as_in_a_folder(tokenizer: Any, folder: Path) -> Any:
    """The tokenizer as loaded from a Hugging Face folder: it prepends the BOS token.

    Transformers' tokenizer for a GGUF file lacks this option until it is saved and read again.
    """
    from transformers import AutoTokenizer

    tokenizer.save_pretrained(folder)
    options = {} if tokenizer.bos_token is None else {"add_bos_token": True}
    return AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False, **options
    )


def _check_size(path: Path, config: Any, n_params: int) -> None:
    """Raise InputError if the settings describe a model larger than the file's tensors."""
    import transformers

    with torch.device("meta"):  # names and shapes, without memory
        model = transformers.AutoModelForCausalLM.from_config(config)
    described = sum(t.numel() for t in (*model.parameters(), *model.buffers()))
    if described > _TIMES * n_params + (1 << 20):
        raise InputError(
            f"{path} is inconsistent: its settings describe {described:,} parameters, its tensors "
            f"hold {n_params:,}"
        )


def _dequantised() -> dict[str, Any]:
    """Arguments that make transformers dequantize weights instead of leaving them in blocks."""
    import transformers

    config = getattr(transformers, "GgufConfig", None)
    return {} if config is None else {"quantization_config": config(dequantize=True)}


def _forget_quantisation(model: Any) -> None:
    """Remove the quantization settings: the weights are dequantized, and could not be saved."""
    for owner, name in (
        (model.config, "quantization_config"),
        (model, "hf_quantizer"),
        (model, "quantization_method"),
        (model, "is_quantized"),
    ):
        if name in vars(owner):
            delattr(owner, name)


def _notes(model: Any, header: Any) -> tuple[str, ...]:
    """Notes on the weights: their quantization, and unused tensors of the file."""
    notes, kinds = [], Counter[str]()
    for tensor in header.tensors:
        kinds[tensor.tensor_type.name] += tensor.n_elements
    quantised = sorted(kinds.keys() - set(_PLAIN), key=lambda kind: (-kinds[kind], kind))
    if quantised:
        named = " and ".join(", ".join(quantised).rsplit(", ", 1))
        notes.append(f"weights were quantized to {named}: results use the dequantized weights")
    left_out = kinds.total() - sum(t.numel() for t in model.parameters())
    if left_out > 0:  # transformers drops tensors without a counterpart, such as rotary factors
        notes.append(f"{left_out:,} of the file's parameters are not part of the model: left out")
    return tuple(notes)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[Path]:
    """A folder that contains only this file."""
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(path.resolve(), Path(folder) / _NAME)
        yield Path(folder)


@contextlib.contextmanager
def _parsed_once() -> Iterator[None]:
    """Make `gguf` parse a file once, fast and with bounded reads, while the block runs."""
    import gguf

    class BoundedReader(gguf.GGUFReader):
        """A reader with a bounded number of reads, none of them beyond the file's end.

        It slices a plain array, which is several times faster than a `memmap`.
        """

        reads = 0

        def _get(self, offset: int, dtype: Any, count: Any = 1, *rest: Any, **more: Any) -> Any:
            self.reads += 1
            if self.reads > _MOST_READS:
                raise ValueError(f"its header has more than {_MOST_READS:,} parts")
            if dtype is np.uint64 and count > _MOST_AXES:
                raise ValueError(f"it has a tensor of {count} axes")
            if int(offset) + int(count) * np.dtype(dtype).itemsize > len(self.data):
                raise ValueError("it is longer than the file (truncated?)")
            return super()._get(offset, dtype, count, *rest, **more)

        @property
        def data(self) -> Any:
            return self._plain

        @data.setter
        def data(self, value: Any) -> None:
            self._plain = np.asarray(value)

    before = gguf.GGUFReader, gguf.get_tensor_name_map
    gguf.GGUFReader = functools.cache(BoundedReader)
    gguf.get_tensor_name_map = functools.cache(gguf.get_tensor_name_map)
    try:
        yield
    finally:
        gguf.GGUFReader, gguf.get_tensor_name_map = before
