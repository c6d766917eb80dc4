"""The toolkit's own checkpoints: the weights, the configuration, the task and the training record.

`.safetensors`: the weights as tensors, the rest as JSON in the file's metadata.
`.pt`: a dictionary `{format, config, task, training, state_dict}` of tensors and plain data, which
`torch.load(..., weights_only=True)` reads. Both restore the same bits. Both are written to a
temporary file and then moved, so that a reader never sees an incomplete file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from interp_toolkit.errors import PATH, InputError, a_kind, reason_of, takes
from interp_toolkit.files import parsed, replacing
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.transformer.circuit import CircuitTransformer
from interp_toolkit.models.transformer.transformer import Transformer

FORMAT = "interp-toolkit/1"
#: a single key for everything: safetensors writes several keys in an unstable order
METADATA_KEY = "interp_toolkit"


@takes(path=PATH)
def save(
    model: nn.Module,
    path: str | Path,
    *,
    task: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
) -> None:
    """Write a `Transformer` to a `.safetensors` or `.pt` file that `load` reads back bit for bit.

    Args:
        model: the model; other classes have their own ways to save.
        path: the file; its suffix chooses the format.
        task: the task that the model was made for (see `models.about.record`); default: the
            model's record.
        training: how it was trained, as JSON data; default: the model's record.

    Raises:
        InputError: another model class, another suffix, a missing folder, records that are not
            JSON data, or a file that cannot be written.

    Examples:
        >>> import interp_toolkit as it
        >>> it.save(it.load("toy:xor-2head"), "model.safetensors")
        >>> it.load("model.safetensors").cfg.n_heads
        2
    """
    path = Path(path)
    if not isinstance(model, Transformer):
        raise InputError(
            f"save takes this package's Transformer, not {a_kind(model)}: save its "
            "state dict with torch.save(model.state_dict(), path)"
        )
    check_model_file(path)
    record = record_of(model)
    about = {
        "format": FORMAT,
        "config": model.cfg.model_dump(mode="json"),
        "task": _json(record.task if task is None else task, "task"),
        "training": _json(record.training if training is None else training, "training"),
    }
    if isinstance(model, CircuitTransformer):
        about["circuit"] = _json(model.circuit, "circuit")
    tensors = {name: t.detach().cpu().contiguous() for name, t in model.state_dict().items()}
    _write(path, about, tensors)


def check_model_file(path: str | Path) -> None:
    """Raise InputError unless `save` takes this path."""
    path = Path(path)
    if path.suffix not in (".safetensors", ".pt"):
        raise InputError(f"{path} must end in .safetensors or .pt")
    if path.is_dir():
        raise InputError(f"{path} is a folder; give a file")
    if not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {path.parent}")


def read_own(data: Any, metadata: Mapping[str, str], source: str) -> dict[str, Any] | None:
    """The content of one of the toolkit's checkpoints: `{config, task, training, state_dict}`.

    None for other files. Raises InputError for a checkpoint of another version or a damaged one.
    """
    about: dict[str, Any]
    if METADATA_KEY in metadata:
        record = parsed(metadata[METADATA_KEY], f"{source} is damaged: its metadata")
        if not isinstance(record, dict):
            raise InputError(f"{source} is damaged: its metadata is not a JSON object")
        about = {**record, "state_dict": data}
    elif isinstance(data, Mapping) and str(data.get("format")).startswith("interp-toolkit/"):
        about = dict(data)
    else:
        return None
    if about.get("format") != FORMAT:
        raise InputError(f"{source} has format {about.get('format')}; this version reads {FORMAT}")
    for what in ("task", "training", "circuit"):
        if not isinstance(about.get(what), Mapping | None):
            raise InputError(f"{source} is damaged: its {what} record is not a dictionary")
    missing = {"config", "state_dict"} - about.keys()
    if missing:
        raise InputError(f"{source} is damaged: it has no {', '.join(sorted(missing))}")
    if not isinstance(about["config"], Mapping):
        raise InputError(f"{source} is damaged: its config is not a dictionary")
    return about


def _json(value: Mapping[str, Any] | None, what: str) -> Any:
    """The value as JSON data, with tuples as lists, as it will be read back."""
    try:
        return json.loads(json.dumps(None if value is None else dict(value)))
    except (TypeError, ValueError) as error:
        raise InputError(f"the {what} record is not JSON data: {error}") from error


def _write(path: Path, about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    try:
        with replacing(path) as partial:
            if path.suffix == ".safetensors":
                save_file(dict(tensors), partial, metadata={METADATA_KEY: json.dumps(about)})
            else:
                torch.save({**about, "state_dict": dict(tensors)}, partial)
    except (OSError, RuntimeError, SafetensorError) as error:  # PyTorch raises RuntimeError
        reason = reason_of(error)
        raise InputError(f"{path} cannot be written: {reason}") from error
