"""Sparse autoencoders as other libraries save them, brought to SAELens's names.

What a folder holds says whose it is:

- `cfg.json` and `sae.safetensors`: sparsify (EleutherAI). TopK; of a transcoder the encoder.
- `config.json` and `ae.pt`: dictionary_learning (Marks et al.). `AutoEncoder`, `AutoEncoderNew`,
  `GatedAutoEncoder`, `AutoEncoderTopK`, `JumpReluAutoEncoder`, and `BatchTopKSAE` with its
  Matryoshka kind, which at inference compare with the threshold that training found.
- `params.npz`: Gemma Scope. JumpReLU, without settings; the hook point is read off the path.

Latents are those of the library. Where it multiplies them by their decoder rows' lengths, the
lengths move from the decoder to the encoder, so that latents and reconstruction stay the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.files import read_json, read_npz
from interp_toolkit.models.loading.formats.files import read_file

#: settings that none of these libraries has
_PLAIN = {"normalize_activations": "none", "dtype": "float32"}
_SITES = {"res": "hook_resid_post", "mlp": "hook_mlp_out", "att": "attn.hook_z"}


@dataclass(frozen=True)
class Layout:
    """An SAE under SAELens's names.

    Attributes:
        settings: as SAELens's `cfg.json`.
        tensors: as its weights.
        weights: the file that they are from.
    """

    settings: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    weights: Path


def other_layout(folder: Path) -> Layout | None:
    """The SAE of another library in a folder; None where there is none.

    Raises InputError where it cannot be read, or is of a kind that is not known.
    """
    for names, read in _READERS:
        if all((folder / name).is_file() for name in names):
            return read(folder, folder / names[-1])
    return None


def _sparsify(folder: Path, weights: Path) -> Layout:
    cfg = settings_in(folder / "cfg.json")
    stored = tensors_in(weights, {"encoder.weight", "encoder.bias", "W_dec", "b_dec"})
    if (activation := cfg.get("activation", "topk")) != "topk":
        raise InputError(f"{folder}: the activation {str(activation)[:60]!r} is not read here")
    tensors = {
        "W_enc": stored["encoder.weight"].T,
        "b_enc": stored["encoder.bias"],
        "W_dec": stored["W_dec"],
        "b_dec": stored["b_dec"],
    }
    transcodes = bool(cfg.get("transcode", False))
    layer = re.fullmatch(r"(?:\w+\.)*(?:layers|h)\.(\d+)", folder.name)
    settings = {
        "architecture": "topk",
        "k": cfg.get("k"),
        "apply_b_dec_to_input": not transcodes,
        "hook_name": f"blocks.{layer[1]}.hook_resid_post" if layer and not transcodes else None,
    }
    return Layout(_PLAIN | settings, tensors, weights)


def _dictionary_learning(folder: Path, weights: Path) -> Layout:
    trainer = settings_in(folder / "config.json").get("trainer")
    if not isinstance(trainer, Mapping):
        raise InputError(
            f"{folder / 'config.json'} has no settings of a trainer, which name the SAE"
        )
    kind = str(trainer.get("dict_class"))
    if kind not in _KINDS:
        raise InputError(
            f"{folder}: the dictionary {kind[:60]!r} is not read here; known: {', '.join(_KINDS)}"
        )
    architecture, names, subtracts = _KINDS[kind]
    stored = tensors_in(weights, names.values())
    tensors = {ours: stored[source] for ours, source in names.items()}
    for name, source in names.items():
        if source in ("encoder.weight", "decoder.weight"):
            tensors[name] = tensors[name].T
    k = None
    if architecture == "topk":
        k = int(stored["k"]) if "k" in stored else trainer.get("k")
    elif "threshold" in tensors and tensors["threshold"].ndim == 0:
        if float(tensors["threshold"]) < 0:
            raise InputError(f"{weights}: its threshold was never set; train the SAE to its end")
        tensors["threshold"] = tensors["threshold"].expand(tensors["W_enc"].shape[1]).clone()
    if kind in ("GatedAutoEncoder", "JumpReluAutoEncoder"):
        tensors = _lengths_in_encoder(tensors)
    settings = {
        "architecture": architecture,
        "apply_b_dec_to_input": subtracts,
        "k": k,
        "hook_name": _hook(trainer.get("submodule_name")),
    }
    return Layout(_PLAIN | settings, tensors, weights)


def _hook(submodule: Any) -> str | None:
    match = re.fullmatch(r"(resid_pre|resid_post|attn_out|mlp_out)_layer_(\d+)", str(submodule))
    return f"blocks.{match[2]}.hook_{match[1]}" if match else None


def _lengths_in_encoder(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Latents times the lengths of their decoder rows, which are 1 then."""
    lengths = tensors["W_dec"].norm(dim=1)
    lengths = lengths.clamp_min(torch.finfo(lengths.dtype).tiny)  # of latents that write nothing
    changed = {"W_dec": tensors["W_dec"] / lengths[:, None]}
    if "r_mag" in tensors:  # the gate stays as it is
        changed["r_mag"] = tensors["r_mag"] + lengths.log()
        changed["b_mag"] = tensors["b_mag"] * lengths
    else:
        changed |= {name: tensors[name] * lengths for name in ("W_enc", "b_enc", "threshold")}
    return {**tensors, **changed}


def _gemma_scope(folder: Path, weights: Path) -> Layout:
    arrays = read_npz(weights)
    names = {str(name): re.sub("^w_", "W_", str(name)) for name in arrays}
    if wrong := [name for name, value in arrays.items() if value.dtype.kind != "f"]:
        raise InputError(f"{weights}: {wrong[0][:60]} is no array of floating-point numbers")
    tensors = {names[name]: torch.from_numpy(value) for name, value in arrays.items()}
    path = folder.resolve().as_posix()
    layer = re.search(r"/layer_(\d+)/", path + "/")
    site = re.search(r"gemma-scope-[\w.-]*-(res|mlp|att)\b", path)
    hook = f"blocks.{layer[1]}.{_SITES[site[1]]}" if layer and site else None
    settings = {"architecture": "jumprelu", "apply_b_dec_to_input": False, "hook_name": hook}
    return Layout(_PLAIN | settings, tensors, weights)


def settings_in(file: Path) -> dict[str, Any]:
    """The content of a settings file; raises InputError unless it is a JSON object."""
    content = read_json(file, str(file))
    if not isinstance(content, dict):
        raise InputError(f"{file} must hold one JSON object of settings")
    return content


def tensors_in(file: Path, names: Iterable[str] = ()) -> dict[str, Tensor]:
    """The tensors of a file; raises InputError where one of these names is not among them."""
    tensors = read_file(file).data
    if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
        raise InputError(f"{file} holds no weights of an SAE")
    if missing := sorted(set(names) - tensors.keys()):
        raise InputError(f"{file} lacks {missing[0]}, which an SAE of this kind has")
    return tensors


_LINEAR = {"W_enc": "encoder.weight", "W_dec": "decoder.weight"}
_RELU = _LINEAR | {"b_enc": "encoder.bias"}
_MATRICES = {name: name for name in ("W_enc", "W_dec", "b_enc", "b_dec", "threshold")}
_GATED = {"b_gate": "gate_bias", "b_mag": "mag_bias", "r_mag": "r_mag", "b_dec": "decoder_bias"}
#: of dictionary_learning: architecture, our names and theirs, whether the encoder subtracts b_dec
_KINDS: dict[str, tuple[str, dict[str, str], bool]] = {
    "AutoEncoder": ("standard", _RELU | {"b_dec": "bias"}, True),
    "AutoEncoderNew": ("standard", _RELU | {"b_dec": "decoder.bias"}, False),
    "GatedAutoEncoder": ("gated", _LINEAR | _GATED, True),
    "AutoEncoderTopK": ("topk", _RELU | {"b_dec": "b_dec"}, True),
    "JumpReluAutoEncoder": ("jumprelu", _MATRICES, False),
    "BatchTopKSAE": ("jumprelu", _RELU | {"b_dec": "b_dec", "threshold": "threshold"}, True),
    "MatryoshkaBatchTopKSAE": ("jumprelu", _MATRICES, True),
}
_READERS = (
    (("cfg.json", "sae.safetensors"), _sparsify),
    (("config.json", "ae.pt"), _dictionary_learning),
    (("params.npz",), _gemma_scope),
)
