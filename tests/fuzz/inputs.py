"""Files and folders for readers: sound ones, and damaged ones made of them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from mutate import damaged, grown_odd


@dataclass(frozen=True)
class Input:
    """Inputs of a reader.

    Attributes:
        sound: writes one that has to be read, into a folder; its path.
        damaged: writes one that is damaged.
    """

    sound: Callable[[Path], Path]
    damaged: Callable[[Path, random.Random], Path]


def in_bytes(name: str, write: Callable[[Path], Any]) -> Input:
    """A file whose bytes are damaged."""

    def sound(folder: Path) -> Path:
        write(folder / name)
        return folder / name

    def worse(folder: Path, rng: random.Random) -> Path:
        path = sound(folder)
        path.write_bytes(damaged(path.read_bytes(), rng))
        return path

    return Input(sound, worse)


def in_tree(name: str, tree: Callable[[], Any], write: Callable[[Any, Path], None]) -> Input:
    """A file of a tree, some node of which is odd."""

    def sound(folder: Path) -> Path:
        write(tree(), folder / name)
        return folder / name

    def worse(folder: Path, rng: random.Random) -> Path:
        while True:
            try:
                write(grown_odd(tree(), rng), folder / name)
            except Exception:  # what nobody can write: another one
                continue
            return folder / name

    return Input(sound, worse)


def in_a_folder(make: Callable[[Path], None]) -> Input:
    """A folder, one file of which is damaged: JSON as a tree too."""

    def sound(folder: Path) -> Path:
        place = folder / "folder"
        place.mkdir()
        make(place)
        return place

    def worse(folder: Path, rng: random.Random) -> Path:
        place = sound(folder)
        path = rng.choice(sorted(p for p in place.rglob("*") if p.is_file()))
        if rng.random() < 0.1:
            path.unlink()
        elif path.suffix == ".json" and rng.random() < 0.8:
            write_json(grown_odd(json.loads(path.read_text()), rng), path)
        else:
            path.write_bytes(damaged(path.read_bytes(), rng))
        return place

    return Input(sound, worse)


def write_json(tree: Any, path: Path) -> None:
    path.write_text(json.dumps(tree))


def write_yaml(tree: Any, path: Path) -> None:
    path.write_text(yaml.safe_dump(tree))


def write_lines(tree: Any, path: Path) -> None:
    rows = tree if isinstance(tree, list) else [tree]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_npz(tree: Any, path: Path) -> None:
    np.savez(path, **{key: np.asarray(value) for key, value in tree.items()})


def write_parquet(tree: Any, path: Path) -> None:
    pd.DataFrame(tree).to_parquet(path)
