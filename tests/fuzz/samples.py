"""Sound contents of files: small models, rows, results, folders, as a user's would be."""

from __future__ import annotations

import contextlib
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from inputs import write_json
from safetensors.torch import save_file

import interp_toolkit as it
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

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
            "schema": "interp-toolkit/3",
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
    from interp_toolkit.data.text.texts import Document
    from interp_toolkit.data.text.token_store import write_store
    from interp_toolkit.data.text.tokenization import BYTES, learn_tokenizer

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
    from interp_toolkit.registry import Session, find

    recipe = find("recipes", "xor")

    def stop(progress: Any) -> None:
        if progress.step >= 4:
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        with contextlib.suppress(KeyboardInterrupt):
            recipe.train(run_settings(), Session(folder, report=stop))
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def run_settings() -> Any:
    from interp_toolkit.registry import find

    return find("recipes", "xor").config(steps=6, seeds=1, log_every=1, save_every=2)


def unfinished(folder: Path) -> None:
    for name, content in _unfinished_files().items():
        (folder / name).write_bytes(content)


@cache
def _hugging_face_files() -> dict[str, bytes]:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2)
    with tempfile.TemporaryDirectory() as name:
        GPT2LMHeadModel(config).save_pretrained(name)
        return {path.name: path.read_bytes() for path in Path(name).iterdir()}


def hugging_face(folder: Path) -> None:
    for name, content in _hugging_face_files().items():
        (folder / name).write_bytes(content)


JOB = {"function": "train", "arguments": {"steps": 3, "settings": {"lr": 0.1}}}


def job(folder: Path) -> None:
    write_json({**JOB, "values": {"loss": 0.25, "seed": 3}}, folder / "one.json")


@cache
def sealed() -> str:
    """An audit that was sealed, as its file says it."""
    from interp_toolkit.auditing.claims.kinds import as_claim
    from interp_toolkit.auditing.claims.seal import write_seal

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "s.json"
        write_seal([as_claim(claim) for claim in CLAIMS["claims"]], path)
        return path.read_text()


def tokenizer() -> str:
    return _store_files()["tokenizer.json"].decode()


GRAPHML = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="c" for="edge" attr.name="channels" attr.type="string"/>
<graph edgedefault="directed"><node id="input"/><node id="a0.h1"/>
<edge source="input" target="a0.h1"><data key="c">qk</data></edge></graph></graphml>
"""
PROSE = "The cat sat on the mat.\n\nA dog came by, and so did the postman.\n\nNobody minded.\n" * 4
LABELLED = [{"text": text, "label": n % 2} for n, text in enumerate(PROSE.split("\n\n"))]
