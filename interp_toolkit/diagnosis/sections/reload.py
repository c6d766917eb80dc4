"""Saving, loading and folding change nothing, and the Hugging Face original agrees.

The state dict is loaded into a fresh copy whose tensors were NaN before. A toolkit model is also
saved to a file and loaded. The copy is then folded, as TransformerLens folds by default, and its
log-probabilities are compared: folding may add one constant to all logits of a position.

The original is loaded by transformers if a folder is given or the model came from one. For a bridge
whose weights were not processed, it is rebuilt from the bridge's configuration and tensors.
Log-probabilities are compared (TransformerLens may shift all logits of a position), then the
residual streams, to locate the first difference.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.diagnosis.bench import (
    NOISE_BASIS,
    Bench,
    Fresh,
    Recorded,
    never_set,
    poison,
    unset,
)
from interp_toolkit.diagnosis.checks import Check, listed, measured
from interp_toolkit.errors import InputError, a_kind, one_line
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.loading.formats.checkpoint import save
from interp_toolkit.models.loading.formats.huggingface import not_a_model
from interp_toolkit.models.loading.library_output import offline, suppress_output
from interp_toolkit.models.loading.loader import load
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import device_of, evaluating
from interp_toolkit.models.transformer.transformer import Transformer

SAME = "a fresh copy with this state dict gives the same logits"


def check_reload(
    model: Model, fresh: Fresh, logits: Tensor, plain: Tensor, tolerance: float
) -> Iterator[Check]:
    """Does a fresh copy with this model's state dict give the same logits, with all tensors set?"""
    name = "loading the state dict sets every tensor"
    nowhere = never_set(fresh.model) if bool(logits.isnan().any()) else []
    lost = tuple(dict.fromkeys([*fresh.unset, *fresh.absent, *nowhere]))
    if lost and hasattr(model, "original_model") and not set(lost) & set(fresh.model.state_dict()):
        text = f"a bridge's state dict lacks {listed(lost)}: save the model that it wraps"
        yield Check("reload", name, "differs", text, locations=lost)
    elif lost:
        yield Check("reload", name, "failed", f"not set: {listed(lost)}", locations=lost)
    elif fresh.unused:
        yield Check(
            "reload", name, "failed", f"unused: {listed(fresh.unused)}", locations=fresh.unused
        )
    else:
        yield Check("reload", name, "passed", f"{len(model.state_dict())} tensors")
    difference = float((logits - plain).abs().max())
    yield measured(
        "reload",
        SAME,
        difference,
        tolerance,
        float(plain.abs().max()),
        NOISE_BASIS,
        "the logits differ",
    )


def check_own_loading(model: Any) -> Iterator[Check]:
    """Does this object's own `load_state_dict` set every tensor? Tested on a deep copy."""
    name = "this object's load_state_dict sets every tensor"
    with suppress_output():
        twin = copy.deepcopy(model)
        weights = {
            key: value.detach().clone()
            for key, value in model.state_dict().items()
            if isinstance(value, Tensor)
        }
        poison(twin)
        twin.load_state_dict(weights)
    left = unset(twin)
    if left:
        yield Check("reload", name, "failed", f"not set: {listed(left)}", locations=left)
    else:
        yield Check("reload", name, "passed", f"{len(weights)} tensors")


def check_file(model: Any) -> Iterator[Check]:
    """For the toolkit's own models: does a file restore the same tensors, bit for bit?"""
    name = "saving and loading restores all tensors"
    if not isinstance(model, Transformer):
        yield Check("reload", name, "not_applicable", "the toolkit saves its own models only")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        try:
            save(model, path)
            back = load(path)
        except InputError as error:
            yield Check("reload", name, "failed", str(error).replace(f"{path}", "the file"))
            return
    parameters = dict(model.named_parameters()) | {
        n: b for n, b in model.named_buffers() if n in back.state_dict()
    }
    reloaded = back.state_dict()
    bad = [
        n
        for n, t in parameters.items()
        if n not in reloaded or not torch.equal(t.cpu(), reloaded[n])
    ]
    if bad:
        yield Check("reload", name, "failed", f"not the same: {listed(bad)}", locations=bad)
    else:
        yield Check("reload", name, "passed", f"{len(parameters)} tensors, bit for bit")


def check_folding(
    bench: Bench, model: Any, fresh: Any, plain: Tensor, tolerance: float
) -> Iterator[Check]:
    """Does TransformerLens's folding leave the log-probabilities unchanged?

    `fresh` is folded in place.
    """
    name = "folding changes no probability"
    norm_type = str(getattr(model.cfg, "normalization_type", None))
    if norm_type.endswith("Pre") or getattr(model, "compatibility_mode", False):
        yield Check("reload", name, "not_applicable", "this model is folded already")
        return
    if not hasattr(fresh, "process_weights_") and not hasattr(fresh, "enable_compatibility_mode"):
        yield Check("reload", name, "not_applicable", f"{a_kind(model)} does not fold")
        return
    with suppress_output():
        if hasattr(fresh, "enable_compatibility_mode"):
            fresh.enable_compatibility_mode(disable_warnings=True)
        else:
            fresh.process_weights_()
    folded = bench.run(fresh)
    difference = float((folded.log_softmax(-1) - plain.log_softmax(-1)).abs().max())
    tolerance, scale = 2 * tolerance, float(plain.log_softmax(-1).abs().max())
    check = measured(
        "reload",
        name,
        difference,
        tolerance,
        scale,
        f"twice {NOISE_BASIS}",
        "log-probabilities change",
    )
    if check.answer == "failed":  # a fault of the copy, not of this model
        norm_type = "log-probabilities of a folded copy are others: do not fold this model"
        check = Check("reload", name, "differs", norm_type, difference, tolerance, check.basis)
    yield check


NAME = "the Hugging Face original agrees"


def find_original(model: Any, source: Any) -> tuple[Any, str]:
    """The original and its description, or None and the reason why there is none.

    Args:
        model: the model being checked.
        source: a folder, a live transformers or TransformerLens model, or None.

    Raises:
        InputError: a folder that transformers cannot load, or a source that is not a model.
    """
    if source is not None and not isinstance(source, str | Path):
        if not callable(source):
            raise InputError(f"{a_kind(source)} is not a model to compare with: give a folder")
        return source, "the model given"
    path = source if source is not None else _folder_of(model)
    if path is not None:
        return _from_folder(Path(path), model), "its folder, loaded again by transformers"
    original = getattr(model, "original_model", None)
    config = getattr(original, "config", None)
    if config is None:
        return None, "no Hugging Face original is available: give its folder (--original)"
    if getattr(model, "compatibility_mode", False):
        return None, "the weights were processed in place: give the original's folder (--original)"
    return _from_parts(original, config, model)


def _folder_of(model: Model) -> str | None:
    record = record_of(model)
    usable = record.kind == "huggingface" and record.path and Path(record.path).is_dir()
    return record.path if usable else None


def _from_folder(path: Path, model: Any) -> Any:
    import transformers

    config_path = path / "config.json"
    if not config_path.is_file():
        raise InputError(not_a_model(path))
    with suppress_output(), offline():
        try:
            config = transformers.AutoConfig.from_pretrained(path, local_files_only=True)
            named = str((config.architectures or [None])[0])
            loader = getattr(transformers, named, transformers.AutoModelForCausalLM)
            original = loader.from_pretrained(
                path,
                local_files_only=True,
                attn_implementation="eager",
                dtype=next(iter(model.parameters())).dtype,
            )
        except Exception as error:  # transformers' errors on a damaged folder
            raise InputError(f"{path} cannot be loaded: {one_line(error)}") from error
    return original.to(device_of(model)).eval()


def _from_parts(original: Any, config: Any, model: Any) -> tuple[Any, str]:
    like = next(iter(model.parameters()))
    with suppress_output():
        new: Any = type(original)(copy.deepcopy(config))
    state = new.state_dict()
    weights = {
        name.replace("._original_component", ""): value
        for name, value in original.state_dict().items()
    }
    lacking = [name for name in state if name not in weights]
    if lacking:
        return None, f"the original cannot be rebuilt: nothing for {lacking[0]}"
    new.load_state_dict({name: weights[name] for name in state})
    return new.to(device=like.device, dtype=like.dtype).eval(), (
        "rebuilt from the bridge's configuration and tensors"
    )


def check_original(
    bench: Bench,
    model: Any,
    located: tuple[Any, str] | None,
    recorded: Recorded,
    plain: Tensor,
    tolerance: float,
) -> Iterator[Check]:
    """Does the original, if it is available, give the same log-probabilities?"""
    original, what = find_original(model, None) if located is None else located
    if original is None:
        yield Check("original", NAME, "not_applicable", what)
        return
    bench.count(bench.tokens)
    options: dict[str, Any] = {}
    if not hasattr(original, "hook_dict"):
        options = {"output_hidden_states": True}
    with torch.no_grad(), evaluating(original), suppress_output():
        output = original(bench.tokens.to(device_of(original)), **options)
    logits = getattr(output, "logits", output).detach().double().cpu()
    if logits.shape != plain.shape:
        wider = min(logits.shape[-1], plain.shape[-1])  # TransformerLens may drop padding
        logits, plain = logits[..., :wider], plain[..., :wider]
    expected, ours = logits.log_softmax(-1), plain.log_softmax(-1)
    difference = float((expected - ours).abs().max())
    plain_gap = float((logits - plain).abs().max())
    folded = getattr(model, "compatibility_mode", False) or str(
        getattr(model.cfg, "normalization_type", "")
    ).endswith("Pre")
    where = "" if folded else _begins(output, recorded)
    check = measured(
        "original",
        NAME,
        min(difference, plain_gap),
        2 * tolerance,
        float(ours.abs().max()),
        f"twice {NOISE_BASIS}",
        f"other log-probabilities than {what}{where}",
    )
    if check.answer == "passed":
        check = Check(
            "original", NAME, "passed", what, check.difference, check.tolerance, check.basis
        )
    yield check


def _begins(output: Any, recorded: Recorded) -> str:
    """The first layer at which the residual streams differ, as text."""
    hidden = getattr(output, "hidden_states", None)
    if not hidden:
        return ""
    for layer, expected in enumerate(hidden[:-1]):
        actual = recorded.values.get(f"blocks.{layer}.hook_resid_pre")
        if actual is None or actual.shape != expected.shape:
            return ""
        gap = (actual.double() - expected.double()).abs().max()
        if not gap <= 1e-3 * expected.double().abs().max():
            return "; from the embedding on" if layer == 0 else f"; from layer {layer - 1} on"
    return "; from the last layer on"
