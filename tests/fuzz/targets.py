"""Readers of files of strangers: for each a sound input, ways to damage it, and the call."""

from __future__ import annotations

import io
import json
import pickle
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from inputs import (
    Input,
    in_a_folder,
    in_bytes,
    in_tree,
    write_json,
    write_lines,
    write_npz,
    write_parquet,
    write_yaml,
)
from mutate import MARKUP, ODD, damaged, grown_odd
from safetensors.torch import save_file
from samples import (
    CLAIMS,
    EDGES,
    GRAPHML,
    JOB,
    LABELLED,
    LAYOUT,
    PROSE,
    SWEEP,
    arrays,
    foreign,
    hugging_face,
    job,
    model,
    own,
    results,
    rows,
    run_settings,
    sae,
    sealed,
    state,
    token_store,
    tokenizer,
    unfinished,
)

import interp_toolkit as it

CONTROL = {chr(n) for n in [*range(32), *range(127, 160)]} - {"\n"}


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


def go_on(folder: Path) -> None:
    from interp_toolkit.registry import Session, find

    find("recipes", "xor").train(run_settings(), Session(folder, resume=True))


def read_rows(path: Path) -> None:
    from interp_toolkit.data.files import read_data

    read_data(path)


def read_claims(path: Path) -> None:
    from interp_toolkit.auditing.claims.kinds import read_claims as read

    read(path)


def read_sweep(path: Path) -> None:
    from interp_studies.sweep.file import grid_points
    from interp_studies.sweep.file import read_sweep as read

    grid_points(read(path))


def read_key_file(path: Path) -> None:
    from interp_toolkit.models.loading.parameters.key_rules import read_key_file as read

    read(path)


def keys_template(path: Path) -> None:
    from interp_toolkit.models import keys_template as template

    template(path).to_json()


def renamed() -> dict[str, object]:
    """A state dict under names of its own, with a configuration under common names."""
    tensors = {name.replace("embed", "tok").replace("W_", "w"): t for name, t in state().items()}
    return {"model": tensors, "config": {"n_head": 2, "activation": "relu", "dim": 4}}


def read_features(path: Path) -> None:
    from interp_toolkit.models.features.feature_sets import read_features as read

    read(str(path), model())


def read_edges(path: Path) -> None:
    from interp_toolkit.auditing.claims.circuit_files import edges_of_file

    edges_of_file(path)


def compare(path: Path) -> None:
    sound = path.with_name("sound.json")
    sound.write_text(results())
    show(it.compare(sound, path))


def show(result: Any) -> None:
    """On a terminal and a page, where nothing of a file may act."""
    from rich.console import Console

    from interp_toolkit.report.console import render
    from interp_toolkit.report.html import to_html

    console = Console(file=io.StringIO(), width=80, record=True)
    render([result], console)
    said = console.export_text()
    assert not set(said) & CONTROL, "a control character on the terminal"
    assert MARKUP not in to_html([result]), "markup on the page"


def open_store(folder: Path) -> None:
    from interp_toolkit.data.text.token_store import open_store as read

    store = read(folder)
    if store is not None:
        counted = torch.zeros(store.tokenizer.n_tokens)
        for part in (store.train, store.test):
            counted[part.tokens.long()] += 1


def configure(path: Path) -> None:
    """Settings as `--set` has them, from a file of pairs."""
    from interp_toolkit.registry import find
    from interp_toolkit.training.engine.settings import configure as read

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


def read_seal(path: Path) -> None:
    from interp_toolkit.auditing.claims.seal import read_seal as read

    read(path)


def write_sealed(tree: Any, path: Path) -> None:
    """With the hash of what it holds, as someone would who knows how."""
    from interp_toolkit.auditing.claims.seal import _digest

    if isinstance(tree, dict) and "sha256" in tree:
        tree["sha256"] = _digest(tree)
    write_json(tree, path)


def read_job(folder: Path) -> None:
    from interp_studies.jobs.job_files import JobFiles

    files = JobFiles(folder)
    if files.has("one", JOB):
        files.read("one")


def read_texts(path: Path) -> None:
    from interp_toolkit.data.text.texts import find_texts, split

    test, train = split(find_texts(str(path)), 1)
    assert all(document.text.strip() for document in [*test, *train()])


def read_tokenizer(path: Path) -> None:
    from interp_toolkit.data.text.tokenization import read_tokenizer as read

    found = read(path)
    [ids] = found.encode(["the cat sat"])
    torch.zeros(found.n_tokens)[torch.from_numpy(ids)]
    found.decode(ids.tolist())


def read_prose(path: Path) -> None:
    from interp_toolkit.data.text.tokenization import data_from_prose, read_text

    data_from_prose(read_text(path), lambda text: [ord(sign) % 97 for sign in text], 8)


def read_prompts(path: Path) -> None:
    from interp_toolkit.data.files import read_data

    read_data(path, lambda text: [ord(sign) % 97 for sign in text])


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
    yield Target("keys", in_tree("k.json", lambda: LAYOUT, write_json), read_key_file)
    yield Target("keys template", in_tree("m.pt", renamed, torch.save), keys_template)
    yield Target("circuit edges", in_tree("e.json", lambda: EDGES, write_json), read_edges)
    yield Target("results", in_tree("b.json", lambda: json.loads(results()), write_json), compare)
    yield Target(
        "results, bytes", in_bytes("b.json", lambda p: Path(p).write_text(results())), compare
    )
    yield Target("unfinished run", in_a_folder(unfinished), go_on)
    yield Target("token store", in_a_folder(token_store), open_store)
    yield Target(
        "token sets, bytes",
        in_bytes("f.json", lambda p: write_json({"even": [0, 2, 4], "odd": [1, 3]}, p)),
        read_features,
    )
    yield Target("keys, bytes", in_bytes("k.json", lambda p: write_json(LAYOUT, p)), read_key_file)
    yield Target("edges, bytes", in_bytes("e.json", lambda p: write_json(EDGES, p)), read_edges)
    yield Target(
        "edges .graphml", in_bytes("e.graphml", lambda p: p.write_text(GRAPHML)), read_edges
    )
    yield Target("seal", in_tree("s.json", lambda: json.loads(sealed()), write_sealed), read_seal)
    yield Target("seal, bytes", in_bytes("s.json", lambda p: p.write_text(sealed())), read_seal)
    yield Target("job", in_a_folder(job), read_job)
    yield Target("prose", in_bytes("t.txt", lambda p: p.write_text(PROSE)), read_prose)
    yield Target("prompts", in_bytes("t.txt", lambda p: p.write_text(PROSE)), read_prompts)
    yield Target("texts .txt", in_bytes("t.txt", lambda p: p.write_text(PROSE)), read_texts)
    yield Target("texts .jsonl", in_tree("t.jsonl", lambda: LABELLED, write_lines), read_texts)
    yield Target(
        "texts .jsonl, bytes", in_bytes("t.jsonl", lambda p: write_lines(LABELLED, p)), read_texts
    )
    yield Target(
        "texts .parquet", in_bytes("t.parquet", lambda p: write_parquet(LABELLED, p)), read_texts
    )
    yield Target(
        "tokenizer",
        in_tree("tokenizer.json", lambda: json.loads(tokenizer()), write_json),
        read_tokenizer,
    )
    yield Target(
        "tokenizer, bytes",
        in_bytes("tokenizer.json", lambda p: p.write_text(tokenizer())),
        read_tokenizer,
    )
    if find_spec("gguf"):
        yield Target("GGUF, bytes", in_bytes("m.gguf", _gguf), load)
    yield Target("directions", in_bytes("d.npz", _directions), read_features)
    yield Target("config", in_bytes("c.json", lambda p: write_json({"lr": 0.1}, p)), read_config)
    yield Target(
        "settings",
        Input(lambda folder: _kept(folder / "settings", "xor", {"steps": 3}), settings),
        configure,
    )


def _directions(path: Path) -> None:
    write_npz({"directions": np.eye(8)}, path)


def _gguf(path: Path) -> None:
    sys.path.append(str(Path(__file__).parents[1] / "real"))
    from tiny_gguf import write_tiny

    write_tiny(path)


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
