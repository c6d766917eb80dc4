"""Sparse autoencoders from files: SAELens's, and those of other libraries (`sae_layouts`).

*SAELens*: a folder of `cfg.json` and `sae_weights.safetensors`; for a transcoder the encoder is
read. The content is checked here, so that errors are single lines. If SAELens is installed, its own
`SAE.load_from_disk` computes the latents, also of architectures that have no formula in `sae`; and
it turns a training checkpoint into an SAE for inference, with its scaling of inputs folded in.
Otherwise (it does not yet run on TransformerLens 4) the formulas of `sae` do, which tests compare
with it. The settings of SAELens 6 and the older, flat ones are both supported.
"""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from interp_toolkit.errors import InputError, first_line, reason_of
from interp_toolkit.models.features.sae import SparseAutoencoder
from interp_toolkit.models.features.sae_layouts import other_layout, settings_in, tensors_in
from interp_toolkit.models.loading.formats.files import options_inside, sha256
from interp_toolkit.models.loading.parameters.strict import check_finite, first_few
from interp_toolkit.models.transformer.config import DTYPES

Through = Literal["saelens", "files"]
CONFIG, WEIGHTS = "cfg.json", "sae_weights.safetensors"
SCALER = "activation_scaler.json"
#: SAELens's architectures that exist only while they are trained
_TRAINING = ("batchtopk", "matryoshka_batchtopk")
#: vectors of each architecture besides W_enc, W_dec and b_dec
_VECTORS = {
    "standard": ("b_enc",),
    "topk": ("b_enc",),
    "groupmax": ("b_enc",),
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
    if layout is not None:
        if through == "saelens":
            raise InputError(f"{path} is not an SAE as SAELens saves it; leave `through` out")
        settings = dict(layout.settings)
        _check_settings(path, settings)
        tensors = dict(layout.tensors)
        sae = _from_files(path, settings, layout.weights, tensors, torch.device(device))
        return replace(sae, source=f"{sae.source} ({layout.note})") if layout.note else sae
    _check_names(path)
    with _for_inference(path) as folder:
        sae = _of_saelens(folder, torch.device(device), through)
    converted = "" if folder == path else ", a training checkpoint"
    return replace(
        sae,
        source=sae.source.replace(str(folder), str(path)) + converted,
        sha256=sha256(path / WEIGHTS),
    )


def _of_saelens(
    path: Path, device: torch.device, through: Through | None = None
) -> SparseAutoencoder:
    settings = _settings(path)
    loader = None if through == "files" else _saelens()
    if loader is None and through == "saelens":
        raise InputError("SAELens cannot be imported: install it with pip install sae-lens")
    if str(settings["architecture"]) not in _VECTORS:
        if loader is None:
            raise _unknown_architecture(path, settings)
        return _by_saelens(loader, path, settings, device)
    sae = _from_files(path, settings, path / WEIGHTS, _read_tensors(path / WEIGHTS), device)
    if loader is None or settings.get("transcoder"):
        return sae
    encoder = _loaded_by_saelens(loader, path, device).encode
    return replace(sae, encoder=encoder, source=f"{sae.source} (by SAELens)")


def _by_saelens(
    loader: Any, path: Path, settings: Mapping[str, Any], device: torch.device
) -> SparseAutoencoder:
    """An SAE of an architecture that SAELens alone knows.

    Raises InputError if it does not, or if latents depend on other rows than their own.
    """
    from sae_lens.registry import SAE_CLASS_REGISTRY

    name = str(settings["architecture"])
    if name not in SAE_CLASS_REGISTRY:
        raise _unknown_architecture(path, settings)
    sae = _loaded_by_saelens(loader, path, device)
    check_finite(sae.state_dict().items(), str(path / WEIGHTS))
    W_enc, W_dec = (getattr(sae, matrix, None) for matrix in ("W_enc", "W_dec"))
    if W_enc is None or W_dec is None or not _row_by_row(sae, len(W_enc)):
        raise InputError(
            f"{path}: latents of the architecture {name!r} depend on other positions, so they are "
            "no features of an activation"
        )
    return SparseAutoencoder(
        architecture=name,
        W_enc=W_enc.detach(),
        W_dec=W_dec.detach(),
        b_dec=sae.b_dec.detach(),
        vectors={},
        hook=settings["hook_name"],
        head=settings.get("hook_head_index"),
        source=f"the SAE in {path} (by SAELens)",
        encoder=sae.encode,
    )


@torch.no_grad()
def _row_by_row(sae: Any, d_in: int) -> bool:
    """Whether each row's latents are the same in a batch and alone."""
    x = torch.randn(4, d_in, generator=torch.Generator().manual_seed(0)).to(sae.W_dec)
    try:
        whole, rows = sae.encode(x), torch.cat([sae.encode(row[None]) for row in x])
    except Exception:  # it wants whole sequences
        return False
    return torch.allclose(whole, rows, atol=1e-5 * float(whole.abs().max()))


@contextlib.contextmanager
def _for_inference(path: Path) -> Iterator[Path]:
    """The folder itself, or of a training checkpoint what SAELens makes of it for inference."""
    settings = settings_in(path / CONFIG)
    scaled = settings.get("normalize_activations") in _FOLDED and (path / SCALER).is_file()
    if str(settings.get("architecture")) not in _TRAINING and not scaled:
        yield path
        return
    if _saelens() is None:
        raise InputError(
            f"{path} is a training checkpoint of SAELens: install sae-lens to read it, or save it "
            "with its save_inference_model"
        )
    with tempfile.TemporaryDirectory() as copy:
        folder = Path(copy) / path.name
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                _save_for_inference(path, folder, scaled)
        except Exception as error:  # SAELens and torch raise many types
            raise InputError(
                f"{path} is a training checkpoint that SAELens cannot load: {first_line(error)}"
            ) from error
        yield folder


def _save_for_inference(path: Path, folder: Path, scaled: bool) -> None:
    from sae_lens import TrainingSAE
    from sae_lens.training.activation_scaler import ActivationScaler

    sae: Any = TrainingSAE.load_from_disk(path, device="cpu")
    if scaled:
        scaler = ActivationScaler()
        scaler.load(path / SCALER)
        if scaler.scaling_factor is not None:
            sae.fold_activation_norm_scaling_factor(scaler.scaling_factor)
        if scaler.whitening is not None:
            white = scaler.whitening
            sae.fold_activation_whitening(white.mean, white.matrix, white.inverse_matrix)
    sae.save_inference_model(folder)


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


def _unknown_architecture(path: Path, settings: Mapping[str, Any]) -> InputError:
    named = f"{path}: the architecture {settings['architecture']!r}"
    if find_spec("sae_lens") is None:
        return InputError(f"{named} is known to SAELens alone, if at all: install sae-lens")
    of_saelens = [name for name in _VECTORS if name != "groupmax"]
    return InputError(f"{named} is not supported; known: {', '.join(of_saelens)}")


def _check_settings(path: Path, settings: Mapping[str, Any]) -> None:
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
    _check_tensors(tensors, weights, architecture, bool(settings.get("transcoder")))
    tensors = {name: tensor.to(device, dtype) for name, tensor in tensors.items()}
    d_in, n_latents = tensors["W_enc"].shape
    sizes = (("d_in", d_in), ("d_sae", n_latents), ("d_out", tensors["W_dec"].shape[1]))
    for name, size in sizes:
        if settings.get(name, size) != size:
            raise InputError(f"{path}: {name} is {settings[name]!r}, but its weights have {size}")
    return SparseAutoencoder(
        architecture=architecture,
        W_enc=tensors["W_enc"],
        W_dec=tensors["W_dec"],
        b_dec=tensors["b_dec"],
        vectors={name: tensors[name] for name in _VECTORS[architecture]},
        k=_k(path, settings, n_latents) if architecture in ("topk", "groupmax") else None,
        subtract_b_dec=bool(settings.get("apply_b_dec_to_input", True)),
        normalisation=settings.get("normalize_activations") or "none",
        rescale=bool(settings.get("rescale_acts_by_decoder_norm", False)),
        ranked_by_size=bool(settings.get("ranked_by_size", False)),
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
    if "log_threshold" in tensors:  # checkpoints of older releases
        tensors["threshold"] = tensors.pop("log_threshold").exp()
    return tensors


def _check_tensors(
    tensors: Mapping[str, Tensor], file: Path, architecture: str, transcoder: bool = False
) -> None:
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
    d_out = tensors["W_dec"].shape[-1] if transcoder else d_in
    shapes = {"W_enc": [d_in, n_latents], "W_dec": [n_latents, d_out], "b_dec": [d_out]}
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
    if settings["architecture"] == "groupmax" and isinstance(k, int) and k > 0 and n_latents % k:
        raise InputError(f"{path}: {n_latents} latents cannot be split in k = {k} groups")
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


def _loaded_by_saelens(loader: Any, path: Path, device: torch.device) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sae = loader.load_from_disk(path, device=str(device)).eval()
    except Exception as error:  # SAELens and torch raise many types
        reason = first_line(error)
        raise InputError(f"{path} cannot be loaded by SAELens: {reason}") from error
    sae.turn_off_forward_pass_hook_z_reshaping()  # heads arrive concatenated
    return sae
