"""Sparse autoencoders as SAELens saves them: a folder of `cfg.json` and `sae_weights.safetensors`.

Of a transcoder the encoder is read; folders of other libraries: see `sae_layouts`. What is in the
folder is checked here, so that whatever does not fit is one line. Where SAELens is installed its
own `SAE.load_from_disk` computes the latents; elsewhere (it does not yet run on TransformerLens 4)
the formulas of `sae` do, which the tests hold against it. Both the settings of SAELens 6 and the
older, flat ones are understood.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from interp_toolkit.errors import InputError, first_line
from interp_toolkit.models.features.sae import SparseAutoencoder
from interp_toolkit.models.features.sae_layouts import other_layout, settings_in, tensors_in
from interp_toolkit.models.loading.formats.files import options_inside, sha256
from interp_toolkit.models.loading.parameters.strict import check_finite, first_few
from interp_toolkit.models.transformer.config import DTYPES

Through = Literal["saelens", "files"]
CONFIG, WEIGHTS = "cfg.json", "sae_weights.safetensors"
#: what each architecture has beside W_enc, W_dec and b_dec
_VECTORS = {
    "standard": ("b_enc",),
    "topk": ("b_enc",),
    "jumprelu": ("b_enc", "threshold"),
    "gated": ("b_gate", "b_mag", "r_mag"),
}
_NORMALISATIONS = ("none", "layer_norm", "constant_norm_rescale")
#: scalings that SAELens folds into the weights when training ends
_FOLDED = ("expected_average_only_in", "covariance_whitening")
_MATRICES = ("W_enc", "W_dec", "b_dec")
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
        folder: with `cfg.json` and `sae_weights.safetensors`, or as `sae_layouts` has them.
        device: where to put it.
        through: who computes latents: "saelens", or "files" (this package); None: SAELens where it
            can be imported.

    Raises:
        InputError: no such folder, none with an SAE in it, an architecture or a setting that is
            not understood (by name), parts that are missing, do not fit or are not finite.
    """
    try:
        path = Path(folder).expanduser()
    except RuntimeError as error:  # ~ of somebody unknown
        raise InputError(f"{str(folder)[:60]} cannot be looked up: {error}") from error
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
            raise InputError(f"{path} is no folder; give the folder of an SAE")
    except OSError as error:
        raise InputError(f"{path} cannot be looked up: {error.strerror}") from error


def _check_names(path: Path) -> None:
    saes = [*path.glob(f"*/{CONFIG}"), *path.glob("*/ae.pt"), *path.glob("*/params.npz")]
    for name in (CONFIG, WEIGHTS):
        if not (path / name).is_file():
            raise InputError(
                f"{path} is no folder of an SAE as SAELens saves it: it has no {name}; nor of "
                "sparsify, dictionary_learning or Gemma Scope"
                + options_inside([file.parent.name for file in saes])
            )


def _settings(path: Path) -> dict[str, Any]:
    """The settings under SAELens 6's names, the older ones among them renamed."""
    file = path / CONFIG
    content = settings_in(file)
    if not isinstance(content.get("metadata") or {}, dict):
        raise InputError(f"{file} must hold one JSON object of settings")
    settings = {
        **content,
        **(content.get("metadata") or {}),
        "architecture": _architecture(content),
    }
    if (kind := str(settings["architecture"])) in _TRANSCODERS:  # b_dec is of what it writes
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
            f"{path}: the architecture {settings['architecture']!r} is not read here; "
            f"known: {', '.join(_VECTORS)}"
        )
    normalisation = settings.get("normalize_activations") or "none"
    if normalisation in _FOLDED:
        raise InputError(
            f"{path}: its scaling of activations ({normalisation}) is not folded into the weights: "
            "fold it with SAELens and save the SAE again"
        )
    if normalisation not in _NORMALISATIONS:
        raise InputError(
            f"{path}: normalize_activations {normalisation!r} is not read here; "
            f"known: {', '.join(_NORMALISATIONS)}"
        )
    if (settings.get("reshape_activations") or "none") not in ("none", "hook_z"):
        raise InputError(
            f"{path}: reshape_activations {settings['reshape_activations']!r} is not read here; "
            "known: none, hook_z"
        )
    for name in ("apply_b_dec_to_input", "rescale_acts_by_decoder_norm"):
        if not isinstance(settings.get(name, False), bool):
            raise InputError(f"{path}: {name} is {settings[name]!r}; it is true or false")
    if str(settings.get("dtype", "float32")).removeprefix("torch.") not in DTYPES:
        raise InputError(f"{path}: dtype {settings['dtype']!r} is not one of {', '.join(DTYPES)}")
    for name in ("hook_name", "hook_head_index"):
        kind = str if name == "hook_name" else int
        if settings.get(name) is not None and not isinstance(settings[name], kind):
            raise InputError(f"{path}: {name} is {settings[name]!r}, which is no {kind.__name__}")


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
            raise InputError(f"{path}: {name} is {settings[name]!r}, and its weights have {size}")
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
        raise InputError(f"{file} has a fine-tuning scale, which SAELens 6 no longer applies")
    tensors.pop("W_skip", None)  # from a transcoder's input to its output, past the latents
    return tensors


def _check_tensors(tensors: Mapping[str, Tensor], file: Path, architecture: str) -> None:
    """Raise InputError where weights are missing, of a wrong shape or not finite."""
    names = (*_MATRICES, *_VECTORS[architecture])
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
    """SAELens's class of SAEs; None where it is not installed, or not for this TransformerLens."""
    if find_spec("sae_lens") is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it says of TransformerLens while importing
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
    except Exception as error:  # SAELens and torch raise many kinds
        reason = first_line(error)
        raise InputError(f"{path} cannot be loaded by SAELens: {reason}") from error
    sae.turn_off_forward_pass_hook_z_reshaping()  # heads come side by side
    encode: Callable[[Tensor], Tensor] = sae.encode
    return encode
