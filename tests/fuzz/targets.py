"""Readers of files of strangers: for each a sound file, ways to damage it, and the call."""

from __future__ import annotations

import contextlib
import json
import pickle
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml
from mutate import ODD, damaged, grown_odd
from safetensors.torch import save_file

import interp_toolkit as it
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer


@dataclass(frozen=True)
class Input:
    """Inputs of a reader.

    Attributes:
        sound: writes one that has to be read, into a folder; its path.
        damaged: writes one that is damaged.
    """

    sound: Callable[[Path], Path]
    damaged: Callable[[Path, random.Random], Path]


@dataclass(frozen=True)
class Target:
    """A reader.

    Attributes:
        name: of what it reads.
        given: what it is given.
        read: reads it: anything but its end or an InputError is a fault.
    """

    name: str
    given: Input
    read: Callable[[Path], Any]


@cache
def model() -> Transformer:
    """A model of two layers, a few hundred numbers."""
    return Transformer(
        TransformerConfig(
            n_layers=2, d_model=8, n_ctx=6, d_head=4, n_heads=2, d_vocab=5, d_mlp=6,
            act_fn="relu", seed=0,
        )
    )  # fmt: skip


def state() -> dict[str, torch.Tensor]:
    return dict(model().state_dict())


def load(path: Path) -> None:
    """As a user would, with what a bare state dict asks for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            it.load(path)
        except it.InputError as error:
            if "act_fn" not in str(error) and "n_heads" not in str(error):
                raise
            it.load(path, act_fn="relu", n_heads=2)


# -- ways to damage ---------------------------------------------------------------------------


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


# -- sound inputs -----------------------------------------------------------------------------


def own() -> dict[str, Any]:
    return {
        "format": "interp-toolkit/1",
        "config": model().cfg.model_dump(mode="json"),
        "task": {"kind": "truth-table", "function": "0110", "layout": "a b query"},
        "training": {"recipe": "xor", "seeds": [{"seed": 0, "loss": 0.1}]},
        "state_dict": state(),
    }


def foreign() -> dict[str, Any]:
    cfg = {
        "n_layers": 2, "d_model": 8, "n_ctx": 6, "d_head": 4, "n_heads": 2, "d_vocab": 5,
        "d_mlp": 6, "act_fn": "relu", "normalization_type": "LN", "device": "cpu", "seed": 0,
        "attn_only": False, "dtype": "torch.float32",
    }  # fmt: skip
    return {"cfg": cfg, "state_dict": state()}


def rows() -> list[dict[str, Any]]:
    return [
        {"tokens": [0, n % 5, 2, 3], "answer": n % 5, "wrong": (n + 1) % 5, "a": n % 2, "group": n}
        for n in range(6)
    ]


def arrays() -> dict[str, Any]:
    return {
        "tokens": np.arange(24).reshape(6, 4) % 5,
        "features": np.arange(12).reshape(6, 2) % 2,
        "names": np.array(["a", "b"]),
        "answers": np.arange(6)[:, None] % 5,
        "answer_positions": np.full((6, 1), 3),
        "lengths": np.full(6, 4),
    }


@cache
def results() -> str:
    return json.dumps(
        {
            "schema": "interp-toolkit/2",
            "version": "0.1.0",
            "results": [it.analyze("toy:xor-2head", "xor").to_dict()],
        }
    )


def sae(folder: Path) -> None:
    cfg = {
        "architecture": "standard", "d_in": 8, "d_sae": 12, "dtype": "float32", "device": "cpu",
        "apply_b_dec_to_input": True, "normalize_activations": "none",
        "metadata": {"hook_name": "blocks.0.hook_resid_post", "sae_lens_version": "6.0"},
    }  # fmt: skip
    write_json(cfg, folder / "cfg.json")
    generator = torch.Generator().manual_seed(0)
    weights = {
        "W_enc": torch.randn(8, 12, generator=generator),
        "W_dec": torch.randn(12, 8, generator=generator),
        "b_enc": torch.zeros(12),
        "b_dec": torch.zeros(8),
    }
    save_file(weights, folder / "sae_weights.safetensors")


@cache
def _store_files() -> dict[str, bytes]:
    import tempfile

    from interp_toolkit.data.texts import Document
    from interp_toolkit.data.token_store import write_store
    from interp_toolkit.data.tokenization import BYTES, learn_tokenizer

    texts = [Document("the cat sat", 0), Document("a dog", 1)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "store"
        tokenizer = learn_tokenizer([text.text for text in texts], BYTES + 4)
        write_store(folder, tokenizer, texts, texts[:1])
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def token_store(folder: Path) -> None:
    for name, content in _store_files().items():
        (folder / name).write_bytes(content)


@cache
def _unfinished_files() -> dict[str, bytes]:
    """The folder of a training run that was stopped in the middle."""
    import tempfile

    from interp_toolkit.registry import Session, find

    recipe = find("recipes", "xor")

    def stop(progress: Any) -> None:
        if progress.step >= 4:
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        with contextlib.suppress(KeyboardInterrupt):
            recipe.train(_run_settings(), Session(folder, report=stop))
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def _run_settings() -> Any:
    from interp_toolkit.registry import find

    return find("recipes", "xor").config(steps=6, seeds=1, log_every=1, save_every=2)


def unfinished(folder: Path) -> None:
    for name, content in _unfinished_files().items():
        (folder / name).write_bytes(content)


def go_on(folder: Path) -> None:
    from interp_toolkit.registry import Session, find

    find("recipes", "xor").train(_run_settings(), Session(folder, resume=True))


@cache
def _hugging_face_files() -> dict[str, bytes]:
    import tempfile

    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2)
    with tempfile.TemporaryDirectory() as name:
        GPT2LMHeadModel(config).save_pretrained(name)
        return {path.name: path.read_bytes() for path in Path(name).iterdir()}


def hugging_face(folder: Path) -> None:
    for name, content in _hugging_face_files().items():
        (folder / name).write_bytes(content)


def read_rows(path: Path) -> None:
    from interp_toolkit.data.files import read_data

    read_data(path)


def read_claims(path: Path) -> None:
    from interp_toolkit.auditing.claims import read_claims as read

    read(path)


def read_sweep(path: Path) -> None:
    from interp_toolkit.studies.sweep.file import grid_points
    from interp_toolkit.studies.sweep.file import read_sweep as read

    grid_points(read(path))


def read_layout(path: Path) -> None:
    from interp_toolkit.models.loading.key_rules import read_layout as read

    read(path)


def read_features(path: Path) -> None:
    from interp_toolkit.models.features.feature_sets import read_features as read

    read(str(path), model())


def read_edges(path: Path) -> None:
    from interp_toolkit.auditing.circuit_files import edges_of_file

    edges_of_file(path)


def compare(path: Path) -> None:
    sound = path.with_name("sound.json")
    sound.write_text(results())
    it.compare(sound, path)


def open_store(folder: Path) -> None:
    from interp_toolkit.data.token_store import open_store as read

    store = read(folder)
    if store is not None:
        for part in (store.train, store.test):
            part.tokens[:].sum()


def configure(path: Path) -> None:
    """Settings as `--set` has them, from a file of pairs."""
    from interp_toolkit.registry import find
    from interp_toolkit.training.engine.configure import configure as read

    given = pickle.loads(path.read_bytes())  # our own file, for values that no JSON has
    read(find("recipes", given.pop("recipe")), given.pop("variant"), "small", given)


def settings(folder: Path, rng: random.Random) -> Path:
    keys = ("steps", "lr", "seeds", "betas", "checkpoints", "schedule", "text", "pairs", "x", "")
    recipe = rng.choice(("xor", "sort-causal", "retrieval", "toy-text"))
    given = {rng.choice(keys): rng.choice(ODD)(rng) for _ in range(rng.randint(1, 3))}
    return _kept(folder / "settings", recipe, given)


def _kept(path: Path, recipe: str, given: Mapping[str, Any]) -> Path:
    path.write_bytes(pickle.dumps({"recipe": recipe, "variant": None, **given}))
    return path


def read_config(path: Path) -> None:
    from interp_toolkit.cli.options import read_config as read

    read(str(path))


CLAIMS = {
    "claims": [
        {"heads": ["L0H1"], "relation": "induction", "says": "contributes"},
        {"algorithm": "argmax_piecewise_linear"},
    ]
}
SWEEP = {
    "recipe": "retrieval",
    "preset": "small",
    "settings": {"steps": 10},
    "grid": {"variant": ["standard", "mixit"], "lr": [0.001, 0.0005]},
    "seeds": 2,
}
LAYOUT = {
    "tok.weight": "embed.W_E",
    "layers.{layer}.qkv.weight": {
        "to": ["blocks.{layer}.attn.W_Q", "blocks.{layer}.attn.W_K", "blocks.{layer}.attn.W_V"],
        "axes": "(parts head d_head) d_model -> parts head d_model d_head",
    },
    "layers.{layer}.mask": None,
}
EDGES = {
    "nodes": {"input": {"in_graph": True}, "a0.h1": {"in_graph": True}},
    "edges": {"input->a0.h1<q>": {"score": 0.5, "in_graph": True}},
}


def targets() -> Iterator[Target]:
    """All of them."""
    yield Target("own .pt", in_tree("m.pt", own, torch.save), load)
    yield Target("own .pt, bytes", in_bytes("m.pt", lambda p: it.save(model(), p)), load)
    yield Target(
        "own .safetensors, bytes", in_bytes("m.safetensors", lambda p: it.save(model(), p)), load
    )
    yield Target("own .safetensors, metadata", Input(_saved, _metadata), load)
    yield Target("state dict", in_tree("m.pt", state, torch.save), load)
    yield Target("cfg and state dict", in_tree("m.pt", foreign, torch.save), load)
    yield Target("pickle", in_tree("m.pkl", foreign, _pickled), load)
    yield Target("pickle, bytes", in_bytes("m.pkl", lambda path: _pickled(foreign(), path)), load)
    yield Target("Hugging Face folder", in_a_folder(hugging_face), load)
    yield Target("rows .jsonl", in_tree("r.jsonl", rows, write_lines), read_rows)
    yield Target(
        "rows .jsonl, bytes", in_bytes("r.jsonl", lambda p: write_lines(rows(), p)), read_rows
    )
    yield Target("rows .npz", in_tree("r.npz", arrays, write_npz), read_rows)
    yield Target("rows .npz, bytes", in_bytes("r.npz", lambda p: write_npz(arrays(), p)), read_rows)
    yield Target("rows .parquet", in_tree("r.parquet", rows, write_parquet), read_rows)
    yield Target(
        "rows .parquet, bytes", in_bytes("r.parquet", lambda p: write_parquet(rows(), p)), read_rows
    )
    yield Target("SAE folder", in_a_folder(sae), read_features)
    yield Target(
        "token sets",
        in_tree("f.json", lambda: {"even": [0, 2, 4], "odd": [1, 3]}, write_json),
        read_features,
    )
    yield Target("claims", in_tree("c.yaml", lambda: CLAIMS, write_yaml), read_claims)
    yield Target("claims, bytes", in_bytes("c.yaml", lambda p: write_yaml(CLAIMS, p)), read_claims)
    yield Target("sweep", in_tree("s.yaml", lambda: SWEEP, write_yaml), read_sweep)
    yield Target("sweep, bytes", in_bytes("s.yaml", lambda p: write_yaml(SWEEP, p)), read_sweep)
    yield Target("keys", in_tree("k.json", lambda: LAYOUT, write_json), read_layout)
    yield Target("circuit edges", in_tree("e.json", lambda: EDGES, write_json), read_edges)
    yield Target("results", in_tree("b.json", lambda: json.loads(results()), write_json), compare)
    yield Target(
        "results, bytes", in_bytes("b.json", lambda p: Path(p).write_text(results())), compare
    )
    yield Target("unfinished run", in_a_folder(unfinished), go_on)
    yield Target("token store", in_a_folder(token_store), open_store)
    yield Target("directions", in_bytes("d.npz", _directions), read_features)
    yield Target("config", in_bytes("c.json", lambda p: write_json({"lr": 0.1}, p)), read_config)
    yield Target(
        "settings",
        Input(lambda folder: _kept(folder / "settings", "xor", {"steps": 3}), settings),
        configure,
    )


def _directions(path: Path) -> None:
    write_npz({"directions": np.eye(8)}, path)


def _pickled(tree: Any, path: Path) -> None:
    path.write_bytes(pickle.dumps(tree))


def _metadata(folder: Path, rng: random.Random) -> Path:
    """A checkpoint of ours whose record is damaged, by node or by byte."""
    whole = own()
    weights = whole.pop("state_dict")
    text = json.dumps(grown_odd(whole, rng)).encode()
    if rng.random() < 0.4:
        text = damaged(text, rng)
    path = folder / "m.safetensors"
    save_file(weights, path, {"interp_toolkit": text.decode("utf-8", "replace")})
    return path


def _saved(folder: Path) -> Path:
    it.save(model(), folder / "m.safetensors")
    return folder / "m.safetensors"


def by_name() -> Mapping[str, Target]:
    return {target.name: target for target in targets()}
