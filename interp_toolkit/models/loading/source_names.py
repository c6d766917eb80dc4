"""What a model's name on the command line stands for, told without importing torch.

A name with a model file's ending, or one that no hub would have, is a path; whatever else is not
there on disk is taken for a hub's.
"""

from __future__ import annotations

import re
from pathlib import Path

from interp_toolkit.errors import InputError

_MODEL_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".pkl", ".h5", ".zip", ".gguf")
_DATA_SUFFIXES = (".npz", ".npy", ".json", ".jsonl", ".parquet")
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def path_of(name: str) -> Path:
    """The name as a path, `~` expanded; raises InputError where it cannot be looked up."""
    try:
        path = Path(name).expanduser()
        path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        # no permission, a name too long, a zero byte in it, ~ of somebody unknown
        raise InputError(f"{name[:200]!r} cannot be looked up: {error}") from error
    return path


def looks_like_path(name: str, path: Path) -> bool:
    """Whether a name of nothing on disk is meant as a path, not as a hub's name."""
    if path.suffix.lower() in _MODEL_SUFFIXES + _DATA_SUFFIXES or not _HUB_NAME.fullmatch(name):
        return True
    return name.startswith(".") or ("/" in name and path.parent.is_dir())


def check_source(name: str) -> None:
    """Raise InputError for a model that is plainly not there, before anything heavy is imported."""
    if not name or name.startswith("toy:"):
        return
    path = path_of(name)
    if not path.exists() and looks_like_path(name, path):
        raise InputError(f"{path} does not exist")
