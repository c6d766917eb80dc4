"""Files of NumPy arrays from anyone, `.npz` and `.npy`: as data, and no more than fits."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from interp_toolkit.bounded import check_claim
from interp_toolkit.errors import InputError, first_line


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an archive, by name.

    Raises:
        InputError: it is damaged, holds pickled objects, or more than there is room for.
    """
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("it is no archive of arrays; save it with numpy.savez")
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:  # reads no array before it is asked
                claimed = sum(entry.file_size for entry in archive.zip.infolist())
                check_claim(claimed, path.stat().st_size)
                return {name: archive[name] for name in archive.files}
    except Exception as error:
        raise _unreadable(path, error) from error


def read_npy(path: Path) -> np.ndarray:
    """The one array of a file; raises InputError as `read_npz`."""
    try:
        size = path.stat().st_size
        check_claim(size, size)
        with path.open("rb") as file:
            array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
            return array
    except Exception as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> InputError:
    """What numpy, which meets a broken file in many ways, says of it, in a line."""
    if "Object arrays" in str(error):
        return InputError(
            f"{path}: it holds pickled objects, which could run code; save plain arrays"
        )
    reason = first_line(error)[:200]
    return InputError(f"{path}: this is no readable {path.suffix} file ({reason})")
