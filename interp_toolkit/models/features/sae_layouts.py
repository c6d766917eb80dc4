"""Sparse autoencoders as libraries other than SAELens save them, under SAELens's names.

They are recognized by the files in the folder:

- `cfg.json` and `sae.safetensors`: sparsify (EleutherAI). TopK and groupmax; for a transcoder the
  encoder.
- `config.json` and `ae.pt`: dictionary_learning (Marks et al.). `AutoEncoder`, `AutoEncoderNew`,
  `GatedAutoEncoder`, `AutoEncoderTopK`, `JumpReluAutoEncoder`, and `BatchTopKSAE` with its
  Matryoshka variant, whose latents are compared with a trained threshold at inference.
- `config.json` and `sae_weights.safetensors`: llamascopium (OpenMOSS). ReLU, JumpReLU and TopK, of
  activations that it scales to a mean norm (of the data set, or each by its own).
- `params.npz`: Gemma Scope. JumpReLU, without settings; the hook point is read from the path.

Latents are those of the library: where it is installed they are compared with its own, which decide
between the conventions below. dictionary_learning 0.1.0 multiplies latents of `AutoEncoder` by the
norms of their decoder rows when it loads them, and no others; its repository did so with gated ones
from August to December 2024. Where latents are multiplied, the norms are moved from the decoder to
the encoder, so that the reconstruction is unchanged.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.files import read_json, read_npz
from interp_toolkit.models.features.sae import SparseAutoencoder
from interp_toolkit.models.loading.formats.files import read_file

Encoder = Callable[[Tensor], Tensor]
#: settings absent from these libraries
_PLAIN = {"normalize_activations": "none", "dtype": "float32"}
_SITES = {"res": "hook_resid_post", "mlp": "hook_mlp_out", "att": "attn.hook_z"}


@dataclass(frozen=True)
class Layout:
    """An SAE converted to SAELens's names.

    Attributes:
        settings: the entries of SAELens's `cfg.json`.
        tensors: weights under SAELens's names.
        weights: the file of the weights.
        note: what to say about the latents.
    """

    settings: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    weights: Path
    note: str = ""


def other_layout(folder: Path) -> Layout | None:
    """The SAE of another library in a folder; None if there is none.

    Raises InputError if it cannot be read, or is of an unknown kind.
    """
    for names, read in _READERS:
        if all((folder / name).is_file() for name in names):
            return read(folder, folder / names[-1])
    return None


def _sparsify(folder: Path, weights: Path) -> Layout:
    cfg = settings_in(folder / "cfg.json")
    stored = tensors_in(weights, {"encoder.weight", "encoder.bias", "W_dec", "b_dec"})
    if (activation := cfg.get("activation", "topk")) not in ("topk", "groupmax"):
        raise InputError(f"{folder}: the activation {str(activation)!r} is not supported")
    tensors = {
        "W_enc": stored["encoder.weight"].T,
        "b_enc": stored["encoder.bias"],
        "W_dec": stored["W_dec"],
        "b_dec": stored["b_dec"],
    }
    transcodes = bool(cfg.get("transcode", False))
    layer = re.fullmatch(r"(?:\w+\.)*(?:layers|h)\.(\d+)", folder.name)
    settings = {
        "architecture": activation,
        "k": cfg.get("k"),
        "transcoder": transcodes,
        "apply_b_dec_to_input": not transcodes,
        "hook_name": f"blocks.{layer[1]}.hook_resid_post" if layer and not transcodes else None,
    }
    layout = Layout(_PLAIN | settings, tensors, weights)
    release = _release("sparsify", "eai-sparsify")
    if release is not None:
        encode = _own_sparsify(folder, stored)
        if encode is not None and not _same_latents(layout, encode):
            raise _other_latents(folder, f"sparsify {release}")
    return layout


def _own_sparsify(folder: Path, stored: Mapping[str, Tensor]) -> Encoder | None:
    """The encoder of the installed sparsify; None if it cannot be used here."""
    try:
        with _quiet():
            from safetensors.torch import save_file
            from sparsify import SparseCoder  # type: ignore[import-not-found]

            with tempfile.TemporaryDirectory() as copy:  # its loader takes files; ours are checked
                weights = {name: tensor.contiguous() for name, tensor in stored.items()}
                save_file(weights, Path(copy) / "sae.safetensors")
                cfg = (folder / "cfg.json").read_text(encoding="utf-8")
                (Path(copy) / "cfg.json").write_text(cfg, encoding="utf-8")
                coder = SparseCoder.load_from_disk(copy, device="cpu")
    except Exception:  # of an installation that does not work, or another release's settings
        return None

    def encode(x: Tensor) -> Tensor:
        out = coder.encode(x.to(coder.dtype))
        zeros = torch.zeros(len(x), coder.num_latents, dtype=out.top_acts.dtype)
        return zeros.scatter_(1, out.top_indices, out.top_acts)

    return encode


def _dictionary_learning(folder: Path, weights: Path) -> Layout:
    trainer = settings_in(folder / "config.json").get("trainer")
    if not isinstance(trainer, Mapping):
        raise InputError(
            f"{folder / 'config.json'} has no trainer settings, which say what kind of SAE it is"
        )
    kind = str(trainer.get("dict_class"))
    if kind not in _KINDS:
        raise InputError(
            f"{folder}: the dictionary class {kind!r} is not supported; known: {', '.join(_KINDS)}"
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
            raise InputError(f"{weights}: its threshold was never set; finish the SAE's training")
        tensors["threshold"] = tensors["threshold"].expand(tensors["W_enc"].shape[1]).clone()
    settings = _PLAIN | {
        "architecture": architecture,
        "apply_b_dec_to_input": subtracts,
        "k": k,
        "hook_name": _hook(trainer.get("submodule_name")),
    }
    plain = Layout(settings, tensors, weights)
    rescaled = replace(plain, tensors=_lengths_in_encoder(tensors))
    release, layout = "0.1.0", rescaled if kind == "AutoEncoder" else plain
    installed = _release("dictionary_learning", "dictionary-learning")
    encode = None if installed is None else _own_dictionary(kind, stored)
    if installed is not None and encode is not None:
        fitting = [one for one in (layout, plain, rescaled) if _same_latents(one, encode)]
        if not fitting:
            raise _other_latents(folder, f"dictionary_learning {installed}")
        release, layout = installed, fitting[0]
    lengths = tensors["W_dec"].norm(dim=1)
    if torch.allclose(lengths, torch.ones_like(lengths)):
        return layout
    times = "times" if layout is rescaled else "not multiplied with"
    note = f"latents as dictionary_learning {release} has them, {times} the norms of decoder rows"
    return replace(layout, note=note)


def _own_dictionary(kind: str, stored: Mapping[str, Tensor]) -> Encoder | None:
    """The encoder of the installed dictionary_learning; None if it cannot be used here."""
    try:
        with _quiet():
            from dictionary_learning import utils  # type: ignore[import-not-found]

            with tempfile.TemporaryDirectory() as copy:  # its loader takes a file; ours is checked
                torch.save(dict(stored), Path(copy) / "ae.pt")
                library = getattr(utils, kind)
                encode: Encoder = library.from_pretrained(str(Path(copy) / "ae.pt")).eval().encode
    except Exception:  # of an installation that does not work, or without this class
        return None
    return encode


def _release(module: str, package: str) -> str | None:
    """The release of an installed library; None if it is not installed."""
    if find_spec(module) is None:
        return None
    try:
        return version(package)
    except PackageNotFoundError:
        return "as installed"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


@torch.no_grad()
def _same_latents(layout: Layout, encode: Encoder) -> bool:
    """Whether a library's encoder gives the latents of a layout, up to rounding."""
    settings, tensors = layout.settings, {n: t.float() for n, t in layout.tensors.items()}
    d_in, n_latents = tensors["W_enc"].shape
    ours = SparseAutoencoder(
        architecture=settings["architecture"],
        W_enc=tensors["W_enc"],
        W_dec=tensors["W_dec"],
        b_dec=tensors["b_dec"],
        vectors={n: t for n, t in tensors.items() if len(t) == n_latents and t.ndim == 1},
        k=settings.get("k"),
        subtract_b_dec=bool(settings["apply_b_dec_to_input"]),
    )
    x = torch.randn(16, d_in, generator=torch.Generator().manual_seed(0))
    x = tensors["b_dec"] + x if settings["apply_b_dec_to_input"] else x
    try:
        own, library = ours.encode(x), encode(x)
    except Exception:  # of settings that do not fit, which are refused later
        return True
    return bool((own - library).abs().max() <= 1e-4 * library.abs().max().clamp_min(1e-6))


def _other_latents(folder: Path, library: str) -> InputError:
    return InputError(
        f"{folder}: {library}, which is installed, computes other latents than the formulas here; "
        "convert the SAE with SAELens, or report it"
    )


def _hook(submodule: Any) -> str | None:
    match = re.fullmatch(r"(resid_pre|resid_post|attn_out|mlp_out)_layer_(\d+)", str(submodule))
    return f"blocks.{match[2]}.hook_{match[1]}" if match else None


def _lengths_in_encoder(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Fold the norms of the decoder rows into the encoder: rows of norm 1, and the same output."""
    lengths = tensors["W_dec"].norm(dim=1)
    lengths = lengths.clamp_min(torch.finfo(lengths.dtype).tiny)  # for latents that write nothing
    changed = {"W_dec": tensors["W_dec"] / lengths[:, None]}
    if "r_mag" in tensors:  # the gate is unchanged
        changed["r_mag"] = tensors["r_mag"] + lengths.log()
        changed["b_mag"] = tensors["b_mag"] * lengths
    else:
        scaled = tensors.keys() & {"W_enc", "b_enc", "threshold"}
        changed |= {name: tensors[name] * lengths for name in scaled}
    return {**tensors, **changed}


def _llamascopium(folder: Path, weights: Path) -> Layout:
    cfg = settings_in(folder / "config.json")
    kind, activation = cfg.get("sae_type"), str(cfg.get("act_fn", "relu")).lower()
    if kind != "sae" or cfg.get("use_glu_encoder"):
        what = f"the type {str(kind)!r}" if kind != "sae" else "a gated encoder (GLU)"
        raise InputError(f"{folder}: {what} is not supported; of llamascopium, plain SAEs are")
    if activation not in ("relu", "jumprelu", "topk"):
        raise InputError(
            f"{folder}: with act_fn {activation!r} latents depend on the other rows of a batch; "
            "convert it to jumprelu with llamascopium"
        )
    stored = tensors_in(weights, {"W_E", "b_E", "W_D"})
    d_in, d_out = len(stored["W_E"]), stored["W_D"].shape[-1]
    tensors = {"W_enc": stored["W_E"], "b_enc": stored["b_E"], "W_dec": stored["W_D"]}
    tensors["b_dec"] = stored.get("b_D", stored["W_D"].new_zeros(d_out))
    includes = bool(cfg.get("sparsity_include_decoder_norm", True))
    if activation == "jumprelu":
        name = "activation_function.log_jumprelu_threshold"
        if name not in stored:
            raise InputError(f"{weights} lacks {name}, which its configuration requires")
        lengths = stored["W_D"].norm(dim=1) if includes else 1.0
        tensors["threshold"] = stored[name].exp() / lengths
    hook, out = cfg.get("hook_point_in"), cfg.get("hook_point_out")
    scaling, note = cfg.get("norm_activation", "dataset-wise"), ""
    if scaling == "dataset-wise":
        name = f"dataset_average_activation_norm.{hook}"
        if name not in stored:
            raise InputError(f"{weights} lacks {name}, the mean norm by which inputs are divided")
        tensors["W_enc"] = tensors["W_enc"] * (math.sqrt(d_in) / stored[name])
        note = "latents of inputs scaled to the mean norm of its data set, as llamascopium has them"
    elif scaling not in ("token-wise", "inference"):
        raise InputError(
            f"{folder}: with norm_activation {str(scaling)!r} latents depend on the other rows"
        )
    settings = {
        "architecture": {"relu": "standard"}.get(activation, activation),
        "k": cfg.get("top_k"),
        "ranked_by_size": includes and activation == "topk",
        "apply_b_dec_to_input": False,
        "transcoder": out != hook,
        "normalize_activations": "constant_norm_rescale" if scaling == "token-wise" else "none",
        "hook_name": hook,
    }
    return Layout(_PLAIN | settings, tensors, weights, note)


def _gemma_scope(folder: Path, weights: Path) -> Layout:
    arrays = read_npz(weights)
    names = {str(name): re.sub("^w_", "W_", str(name)) for name in arrays}
    if wrong := [name for name, value in arrays.items() if value.dtype.kind != "f"]:
        raise InputError(f"{weights}: {wrong[0][:60]} is not an array of floating-point numbers")
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
    """The tensors of a file; raises InputError if one of these names is missing."""
    tensors = read_file(file).data
    if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
        raise InputError(f"{file} holds no weights of an SAE")
    if missing := sorted(set(names) - tensors.keys()):
        raise InputError(f"{file} lacks {missing[0]}, which its configuration requires")
    return tensors


_LINEAR = {"W_enc": "encoder.weight", "W_dec": "decoder.weight"}
_RELU = _LINEAR | {"b_enc": "encoder.bias"}
_MATRICES = {name: name for name in ("W_enc", "W_dec", "b_enc", "b_dec", "threshold")}
_GATED = {"b_gate": "gate_bias", "b_mag": "mag_bias", "r_mag": "r_mag", "b_dec": "decoder_bias"}
#: dictionary_learning: architecture, our names and theirs, whether the encoder subtracts b_dec
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
    (("config.json", "sae_weights.safetensors"), _llamascopium),
    (("params.npz",), _gemma_scope),
)
