"""The kind of source that a model name on the command line denotes, without importing torch.

A name with a model file's suffix, or one that cannot be a hub name, is a path. Any other name that
does not exist on disk is taken for a hub name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from interp_toolkit.errors import InputError, reason_of

_MODEL_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".pkl", ".h5", ".zip", ".gguf")
_CHECKPOINT_SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors", ".pkl")
_DATA_SUFFIXES = (".npz", ".npy", ".json", ".jsonl", ".parquet")
#: weight files of a Hugging Face folder, here without its config.json
_OF_ONE_MODEL = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
_OF_A_MODEL = ("config.json", "adapter_config.json")
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def path_of(name: str) -> Path:
    """The name as a path, `~` expanded; raises InputError if it cannot be read."""
    try:
        path = Path(name).expanduser()
        path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        # no permission, a name too long, a null byte in it, ~ of an unknown user
        raise InputError(f"{name!r} cannot be read: {error}") from error
    return path


def looks_like_path(name: str, path: Path) -> bool:
    """Whether a name that is not on disk is meant as a path, not as a hub name."""
    if path.suffix.lower() in _MODEL_SUFFIXES + _DATA_SUFFIXES or not _HUB_NAME.fullmatch(name):
        return True
    return name.startswith(".") or ("/" in name and path.parent.is_dir())


def models_named(names: Sequence[str]) -> list[str]:
    """The models that names denote; a folder of checkpoints stands for each weight file in it.

    They are sorted by the numbers in their names, such as training steps. A folder with a
    config.json is one Hugging Face model.
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
        raise InputError(f"{folder} cannot be read: {reason_of(error)}") from error
    weights = [file for file in files if file.suffix.lower() in _CHECKPOINT_SUFFIXES]
    if all(_OF_ONE_MODEL.fullmatch(file.name) for file in weights):
        return []
    return sorted(weights, key=_by_numbers)


def _by_numbers(file: Path) -> list[tuple[int, str]]:
    """A sort key that orders numbers by value: step-90 before step-100."""
    pieces = re.split(r"(\d+)", file.name)
    return [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in pieces]


def check_source(name: str) -> None:
    """Raise InputError for a model that does not exist, before torch is imported."""
    if not name or name.startswith("toy:"):
        return
    path = path_of(name)
    if not path.exists() and looks_like_path(name, path):
        raise InputError(f"{path} does not exist")
