"""Sparse autoencoders from files of several libraries, converted to SAELens's names.

*SAELens*: a folder of `cfg.json` and `sae_weights.safetensors`; for a transcoder the encoder is
read. The content is checked here, so that errors are single lines. If SAELens is installed, its own
`SAE.load_from_disk` computes the latents. Otherwise (it does not yet run on TransformerLens 4) the
formulas of `sae` do, which tests compare with it. The settings of SAELens 6 and the older, flat
ones are both supported.

*Other libraries* (`Layout`) are recognized by the files in the folder:

- `cfg.json` and `sae.safetensors`: sparsify (EleutherAI). TopK; for a transcoder the encoder.
- `config.json` and `ae.pt`: dictionary_learning (Marks et al.). `AutoEncoder`, `AutoEncoderNew`,
  `GatedAutoEncoder`, `AutoEncoderTopK`, `JumpReluAutoEncoder`, and `BatchTopKSAE` with its
  Matryoshka variant, whose latents are compared with a trained threshold at inference.
- `params.npz`: Gemma Scope. JumpReLU, without settings; the hook point is read from the path.

Latents are those of the library. If it multiplies them by the norms of their decoder rows, the
norms are moved from the decoder to the encoder, so that latents and reconstruction are unchanged.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from interp_toolkit.errors import InputError, first_line, reason_of
from interp_toolkit.files import read_json, read_npz
from interp_toolkit.models.features.sae import SparseAutoencoder
from interp_toolkit.models.loading.formats.files import options_inside, read_file, sha256
from interp_toolkit.models.loading.parameters.strict import check_finite, first_few
from interp_toolkit.models.transformer.config import DTYPES

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
    """

    settings: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    weights: Path


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
    if (activation := cfg.get("activation", "topk")) != "topk":
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
    """Fold the norms of the decoder rows into the encoder: rows of norm 1, and the same output."""
    lengths = tensors["W_dec"].norm(dim=1)
    lengths = lengths.clamp_min(torch.finfo(lengths.dtype).tiny)  # for latents that write nothing
    changed = {"W_dec": tensors["W_dec"] / lengths[:, None]}
    if "r_mag" in tensors:  # the gate is unchanged
        changed["r_mag"] = tensors["r_mag"] + lengths.log()
        changed["b_mag"] = tensors["b_mag"] * lengths
    else:
        changed |= {name: tensors[name] * lengths for name in ("W_enc", "b_enc", "threshold")}
    return {**tensors, **changed}


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
    (("params.npz",), _gemma_scope),
)


Through = Literal["saelens", "files"]
CONFIG, WEIGHTS = "cfg.json", "sae_weights.safetensors"
#: vectors of each architecture besides W_enc, W_dec and b_dec
_VECTORS = {
    "standard": ("b_enc",),
    "topk": ("b_enc",),
    "jumprelu": ("b_enc", "threshold"),
    "gated": ("b_gate", "b_mag", "r_mag"),
}
_NORMALISATIONS = ("none", "layer_norm", "constant_norm_rescale")
#: scalings that SAELens folds into the weights when training ends
_FOLDED = ("expected_average_only_in", "covariance_whitening")
_REQUIRED = ("W_enc", "W_dec", "b_dec")
_TRANSCODERS = {
    "transcoder": "standard",
    "skip_transcoder": "standard",
    "jumprelu_transcoder": "jumprelu",
    "jumprelu_skip_transcoder": "jumprelu",
}


def read_sae(
    folder: str | Path,
    *,
    device: str | torch.device = "cpu",
    through: Through | None = None,
) -> SparseAutoencoder:
    """The sparse autoencoder in a folder.

    Args:
        folder: a folder with `cfg.json` and `sae_weights.safetensors`, or as another library wrote
            it.
        device: where to put it.
        through: the implementation that computes latents: "saelens", or "files" (this package);
            None: SAELens if it can be imported.

    Raises:
        InputError: no such folder, no SAE in it, an architecture or setting that is not supported
            (named in the message), parts that are missing, do not fit or are not finite.
    """
    try:
        path = Path(folder).expanduser()
    except RuntimeError as error:  # ~ of an unknown user
        raise InputError(f"{str(folder)[:60]} cannot be read: {error}") from error
    _check_folder(path)
    layout = other_layout(path)
    if layout is not None and through == "saelens":
        raise InputError(f"{path} is not an SAE as SAELens saves it; leave `through` out")
    if layout is None:
        _check_names(path)
        settings, weights = _settings(path), path / WEIGHTS
        tensors = _read_tensors(weights)
    else:
        settings, weights, tensors = dict(layout.settings), layout.weights, dict(layout.tensors)
        _check_settings(path, settings)
    sae = _from_files(path, settings, weights, tensors, torch.device(device))
    own = layout is None and not settings.get("transcoder")
    loader = _saelens() if own and through != "files" else None
    if loader is None:
        if through == "saelens":
            raise InputError("SAELens cannot be imported: install it with pip install sae-lens")
        return sae
    return replace(
        sae, encoder=_saelens_encoder(loader, path, device), source=f"{sae.source} (by SAELens)"
    )


def _check_folder(path: Path) -> None:
    try:
        if not path.exists():
            raise InputError(f"{path}: there is no such folder")
        if not path.is_dir():
            raise InputError(f"{path} is not a folder; give the folder of an SAE")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason_of(error)}") from error


def _check_names(path: Path) -> None:
    saes = [*path.glob(f"*/{CONFIG}"), *path.glob("*/ae.pt"), *path.glob("*/params.npz")]
    for name in (CONFIG, WEIGHTS):
        if not (path / name).is_file():
            raise InputError(
                f"{path} is not an SAE folder of SAELens (it has no {name}), sparsify, "
                "dictionary_learning or Gemma Scope"
                + options_inside([file.parent.name for file in saes])
            )


def _settings(path: Path) -> dict[str, Any]:
    """The settings under SAELens 6's names; older ones are renamed."""
    file = path / CONFIG
    content = settings_in(file)
    if not isinstance(content.get("metadata") or {}, dict):
        raise InputError(f"{file} must hold one JSON object of settings")
    settings = {
        **content,
        **(content.get("metadata") or {}),
        "architecture": _architecture(content),
    }
    if (kind := str(settings["architecture"])) in _TRANSCODERS:  # b_dec belongs to the output
        settings["transcoder"] = True
        settings["architecture"] = _TRANSCODERS[kind]
        settings["apply_b_dec_to_input"] = False
    settings["hook_name"] = settings.get("hook_name") or settings.get("hook_point")
    if isinstance(settings.get("normalize_activations"), bool):
        settings["normalize_activations"] = (
            "expected_average_only_in" if settings["normalize_activations"] else "none"
        )
    _check_settings(path, settings)
    return settings


def _architecture(settings: Mapping[str, Any]) -> Any:
    """The architecture; before SAELens 6 topk was an activation function of "standard"."""
    activation = settings.get("activation_fn", settings.get("activation_fn_str", "relu"))
    if activation not in ("relu", "topk"):
        return f"{settings.get('architecture', 'standard')} with {activation}"
    return "topk" if activation == "topk" else settings.get("architecture", "standard")


def _check_settings(path: Path, settings: Mapping[str, Any]) -> None:
    if str(settings["architecture"]) not in _VECTORS:
        raise InputError(
            f"{path}: the architecture {settings['architecture']!r} is not supported; known: "
            f"{', '.join(_VECTORS)}"
        )
    normalisation = settings.get("normalize_activations") or "none"
    if normalisation in _FOLDED:
        raise InputError(
            f"{path}: its scaling of activations ({normalisation}) is not folded into the weights: "
            "fold it with SAELens and save the SAE again"
        )
    if normalisation not in _NORMALISATIONS:
        raise InputError(
            f"{path}: normalize_activations {normalisation!r} is not supported; known: "
            f"{', '.join(_NORMALISATIONS)}"
        )
    if (settings.get("reshape_activations") or "none") not in ("none", "hook_z"):
        raise InputError(
            f"{path}: reshape_activations {settings['reshape_activations']!r} is not supported; "
            "known: none, hook_z"
        )
    for name in ("apply_b_dec_to_input", "rescale_acts_by_decoder_norm"):
        if not isinstance(settings.get(name, False), bool):
            raise InputError(f"{path}: {name} is {settings[name]!r}; it must be true or false")
    if str(settings.get("dtype", "float32")).removeprefix("torch.") not in DTYPES:
        raise InputError(f"{path}: dtype {settings['dtype']!r} is not one of {', '.join(DTYPES)}")
    for name in ("hook_name", "hook_head_index"):
        kind = str if name == "hook_name" else int
        if settings.get(name) is not None and not isinstance(settings[name], kind):
            raise InputError(
                f"{path}: {name} is {settings[name]!r}, which is not of type {kind.__name__}"
            )


def _from_files(
    path: Path,
    settings: Mapping[str, Any],
    weights: Path,
    tensors: dict[str, Tensor],
    device: torch.device,
) -> SparseAutoencoder:
    dtype = DTYPES[str(settings.get("dtype", "float32")).removeprefix("torch.")]
    architecture = settings["architecture"]
    _check_tensors(tensors, weights, architecture)
    tensors = {name: tensor.to(device, dtype) for name, tensor in tensors.items()}
    d_in, n_latents = tensors["W_enc"].shape
    for name, size in (("d_in", d_in), ("d_sae", n_latents)):
        if settings.get(name, size) != size:
            raise InputError(f"{path}: {name} is {settings[name]!r}, but its weights have {size}")
    return SparseAutoencoder(
        architecture=architecture,
        W_enc=tensors["W_enc"],
        W_dec=tensors["W_dec"],
        b_dec=tensors["b_dec"],
        vectors={name: tensors[name] for name in _VECTORS[architecture]},
        k=_k(path, settings, n_latents) if architecture == "topk" else None,
        subtract_b_dec=bool(settings.get("apply_b_dec_to_input", True)),
        normalisation=settings.get("normalize_activations") or "none",
        rescale=bool(settings.get("rescale_acts_by_decoder_norm", False)),
        hook=settings["hook_name"],
        head=settings.get("hook_head_index"),
        source=f"the SAE in {path}",
        sha256=sha256(weights),
    )


def _read_tensors(file: Path) -> dict[str, Tensor]:
    """The weights of SAELens's file, by name."""
    tensors = tensors_in(file)
    scaling = tensors.pop("scaling_factor", None)
    if scaling is not None and not bool((scaling == 1).all()):
        raise InputError(f"{file} has a fine-tuning scale, which SAELens 6 no longer supports")
    tensors.pop("W_skip", None)  # a transcoder's skip connection, which does not affect latents
    return tensors


def _check_tensors(tensors: Mapping[str, Tensor], file: Path, architecture: str) -> None:
    """Raise InputError if weights are missing, have a wrong shape or are not finite."""
    names = (*_REQUIRED, *_VECTORS[architecture])
    missing = [name for name in names if name not in tensors]
    extra = [name for name in tensors if name not in names]
    for what, listed in (("lacks", missing), ("has no use for", extra)):
        if listed:
            raise InputError(
                f"{file}: an SAE of architecture {architecture} {what} {first_few(listed)}"
            )
    if tensors["W_enc"].ndim != 2 or not tensors["W_enc"].numel():
        raise InputError(
            f"{file}: W_enc has shape {list(tensors['W_enc'].shape)}, not [d_in latent]"
        )
    d_in, n_latents = tensors["W_enc"].shape
    shapes = {"W_enc": [d_in, n_latents], "W_dec": [n_latents, d_in], "b_dec": [d_in]}
    for name in names:
        shape = shapes.get(name, [n_latents])
        if list(tensors[name].shape) != shape or not tensors[name].is_floating_point():
            raise InputError(
                f"{file}: {name} has shape {list(tensors[name].shape)} of {tensors[name].dtype}, "
                f"not {shape} of floating-point numbers"
            )
    check_finite(tensors.items(), str(file))


def _k(path: Path, settings: Mapping[str, Any], n_latents: int) -> int:
    further = settings.get("activation_fn_kwargs") or {}
    k = settings.get("k", further.get("k") if isinstance(further, dict) else None)
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= n_latents:
        raise InputError(f"{path}: k is {k!r}; it must be 1 to {n_latents}, the number of latents")
    return k


def _saelens() -> Any | None:
    """SAELens's SAE class; None if it is not installed, or not for this TransformerLens."""
    if find_spec("sae_lens") is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its warnings about TransformerLens on import
            from sae_lens import SAE
    except ImportError:
        return None
    return SAE


def _saelens_encoder(
    loader: Any, path: Path, device: str | torch.device
) -> Callable[[Tensor], Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sae = loader.load_from_disk(path, device=str(device)).eval()
    except Exception as error:  # SAELens and torch raise many types
        reason = first_line(error)
        raise InputError(f"{path} cannot be loaded by SAELens: {reason}") from error
    sae.turn_off_forward_pass_hook_z_reshaping()  # heads arrive concatenated
    encode: Callable[[Tensor], Tensor] = sae.encode
    return encode
