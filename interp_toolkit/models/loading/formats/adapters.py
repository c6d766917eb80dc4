"""PEFT adapters (LoRA and similar) in a folder, merged into the weights of their base model.

An adapter either names its base model or lies in one folder with the base model's weights. The
library `peft` merges it. If `peft` is not installed, the folder is refused, since the base model
alone is another model.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from interp_toolkit.errors import InputError, one_line
from interp_toolkit.files import read_json
from interp_toolkit.models.loading.library_output import offline
from interp_toolkit.models.loading.parameters.strict import first_few

_CONFIG = "adapter_config.json"
#: kinds of adapters that prepend learned vectors to each layer's keys or to the embeddings
_VIRTUAL_TOKENS = ("PREFIX_TUNING", "PROMPT_TUNING", "P_TUNING", "MULTITASK_PROMPT_TUNING", "CPT")
_OF_BASE = ".base_layer.weight"  # an adapted embedding, saved beside its adapter
MERGED = 1e-2  # relative difference of logits that half precision allows
_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")


@dataclass(frozen=True)
class Adapter:
    """An adapter and its base model.

    Attributes:
        folder: folder of the adapter.
        base: folder of the base model; may be the same folder.
        kind: as PEFT calls it, such as `LORA`.
    """

    folder: Path
    base: Path
    kind: str

    @property
    def note(self) -> str:
        """A note on the adapter for the model's record."""
        where = "the weights in that folder" if self.base == self.folder else f"{self.base}"
        return f"the {self.kind} adapter of the folder is merged into {where}"


def find_adapter(folder: Path) -> Adapter | None:
    """The adapter in a folder; None if there is none.

    Raises InputError if it is incomplete, its base model is not on this machine, or `peft` is not
    installed.
    """
    weights = [name for name in _WEIGHTS if (folder / name).is_file()]
    if not (folder / _CONFIG).is_file():
        if weights:
            raise InputError(f"{folder} has {weights[0]} without its {_CONFIG}: add that file")
        return None
    config = read_json(folder / _CONFIG, str(folder / _CONFIG))
    if not isinstance(config, Mapping) or not weights:
        lack = f"no {_WEIGHTS[0]}" if isinstance(config, Mapping) else "no JSON object"
        raise InputError(
            f"{folder} has {_CONFIG} but {lack}: complete the adapter, or remove the file"
        )
    kind, base = str(config.get("peft_type")), _base(folder, config)
    if find_spec("peft") is None:
        raise InputError(
            f"{folder} is a {kind} adapter: install peft (pip install 'interp-toolkit[peft]'), "
            "or merge the adapter yourself with peft's merge_and_unload() and "
            "save_pretrained(FOLDER)"
        )
    return Adapter(folder, base, kind)


def _base(folder: Path, config: Mapping[str, Any]) -> Path:
    own = [*folder.glob("model*.safetensors"), *folder.glob("pytorch_model*.bin")]
    if own and (folder / "config.json").is_file():
        return folder
    name = str(config.get("base_model_name_or_path") or "")
    for path in (Path(name).expanduser(), folder / name):
        if name and path != folder and (path / "config.json").is_file():
            return path
    from huggingface_hub import snapshot_download

    try:
        with offline():
            return Path(snapshot_download(name, local_files_only=True))
    except Exception as error:  # not in the cache, or not a hub name
        raise InputError(
            f"{folder} is an adapter to {name!r}, which is not on this machine: download that "
            f"model, and name its folder as base_model_name_or_path in {_CONFIG}"
        ) from error


@contextmanager
def without_adapter(adapter: Adapter | None, folder: Path) -> Iterator[Path]:
    """A folder to load the base model from without the adapter, which transformers would apply."""
    if adapter is None or adapter.base != folder:
        yield folder
        return
    with tempfile.TemporaryDirectory() as links:
        for file in folder.iterdir():
            if file.name != _CONFIG and file.name not in _WEIGHTS:
                (Path(links) / file.name).symlink_to(file.resolve())
        yield Path(links)


def merged(model: Any, adapter: Adapter) -> Any:
    """The model with the adapter merged into its weights.

    Raises InputError if tensors of the adapter do not match the model's, if this kind of adapter
    changes more than weights, or if the merged model is another (layers that share their weights
    and have adapters of their own, embeddings tied to an adapted unembedding).
    """
    import peft

    if adapter.kind in _VIRTUAL_TOKENS:
        raise InputError(
            f"{adapter.folder}: a {adapter.kind} adapter adds virtual tokens, which are no weights "
            "and cannot be merged into a model; give the base model"
        )
    try:
        adapted = peft.PeftModel.from_pretrained(model, str(adapter.folder), is_trainable=False)
        expected = set(peft.get_peft_model_state_dict(adapted, save_embedding_layers=False))
        saved = {n for n in _names(adapter.folder) if not n.endswith(_OF_BASE)}
        for what, names in (("lacks", expected - saved), ("has no use for", saved - expected)):
            if names:
                raise InputError(
                    f"{adapter.folder}: the adapter does not fit {adapter.base}: it {what} "
                    f"{first_few(sorted(names))}"
                )
        before = _logits(adapted)
        with warnings.catch_warnings():  # of tied weights, which the comparison below tells
            warnings.simplefilter("ignore")
            whole = adapted.merge_and_unload(safe_merge=True)
        off = float((_logits(whole) - before).abs().max() / before.abs().max())
        if not off <= MERGED:
            raise InputError(
                f"{adapter.folder}: merging this {adapter.kind} adapter changes the model (logits "
                f"by {off:.0%} of the largest; shared layers or tied embeddings?): untie them, or "
                "save the model merged"
            )
        return whole
    except InputError:
        raise
    except Exception as error:  # peft's errors on a damaged adapter, or on one that cannot merge
        raise InputError(
            f"{adapter.folder}: its {adapter.kind} adapter cannot be merged into {adapter.base}: "
            f"{one_line(error)[:150]}"
        ) from error


def _logits(model: Any) -> Any:
    """Logits of some tokens, in double precision."""
    import torch

    config = model.config
    generator = torch.Generator().manual_seed(0)
    n_ctx = getattr(config, "max_position_embeddings", None) or 8
    size = (2, min(8, int(n_ctx)))
    tokens = torch.randint(int(config.vocab_size), size, generator=generator)
    with torch.no_grad():
        return model.eval()(tokens.to(model.device)).logits.double()


def _names(folder: Path) -> set[str]:
    import torch
    from safetensors import safe_open

    whole, pickled = (folder / name for name in _WEIGHTS)
    if whole.is_file():
        with safe_open(whole, framework="pt") as file:
            return set(file.keys())
    return set(torch.load(pickled, map_location="cpu", weights_only=True))
