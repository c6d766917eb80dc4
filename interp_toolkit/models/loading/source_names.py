"""The kind of source that a model name on the command line denotes, without importing torch.

A name with a model file's ending, or one that no hub would have, is a path; whatever else is not
there on disk is taken for a hub's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from interp_toolkit.errors import InputError

_MODEL_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".pkl", ".h5", ".zip", ".gguf")
_CHECKPOINT_SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors", ".pkl")
_DATA_SUFFIXES = (".npz", ".npy", ".json", ".jsonl", ".parquet")
#: what a Hugging Face folder has, here without its config.json
_OF_ONE_MODEL = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
_OF_A_MODEL = ("config.json", "adapter_config.json")
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def path_of(name: str) -> Path:
    """The name as a path, `~` expanded; raises InputError where it cannot be looked up."""
    try:
        path = Path(name).expanduser()
        path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        # no permission, a name too long, a zero byte in it, ~ of somebody unknown
        raise InputError(f"{name!r} cannot be looked up: {error}") from error
    return path


def looks_like_path(name: str, path: Path) -> bool:
    """Whether a name of nothing on disk is meant as a path, not as a hub's name."""
    if path.suffix.lower() in _MODEL_SUFFIXES + _DATA_SUFFIXES or not _HUB_NAME.fullmatch(name):
        return True
    return name.startswith(".") or ("/" in name and path.parent.is_dir())


def models_named(names: Sequence[str]) -> list[str]:
    """The models that names stand for; a folder of checkpoints is each file of weights in it.

    They come in the order of the numbers in their names, such as those along a training. A folder
    with a config.json is one model, a Hugging Face one.
    """
    models: list[str] = []
    for name in names:
        path = Path(name) if name.startswith("toy:") else path_of(name)
        one = not path.is_dir() or any((path / name).exists() for name in _OF_A_MODEL)
        inside = [] if one else _weights_in(path)
        models += map(str, inside) if inside else [name]
    return models


def _weights_in(folder: Path) -> list[Path]:
    try:
        files = [file for file in folder.iterdir() if file.is_file()]
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror}") from error
    weights = [file for file in files if file.suffix.lower() in _CHECKPOINT_SUFFIXES]
    if all(_OF_ONE_MODEL.fullmatch(file.name) for file in weights):
        return []
    return sorted(weights, key=_by_numbers)


def _by_numbers(file: Path) -> list[tuple[int, str]]:
    """A sort key with numbers by size: step-90 comes before step-100."""
    pieces = re.split(r"(\d+)", file.name)
    return [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in pieces]


def check_source(name: str) -> None:
    """Raise InputError for a model that is plainly not there, before anything heavy is imported."""
    if not name or name.startswith("toy:"):
        return
    path = path_of(name)
    if not path.exists() and looks_like_path(name, path):
        raise InputError(f"{path} does not exist")
