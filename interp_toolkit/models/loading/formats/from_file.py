"""Load a checkpoint file as a `Transformer`: read, mapped by names, configured, filled.

The file is read without running anything in it (`files`). The configuration is the file's own
(`checkpoint`), that of a dictionary saved with the weights (`foreign_config`), or inferred from
names and shapes (`conversion`, `infer`), completed by the user's settings. The weights must then
fit exactly (`strict`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.errors import PATH, InputError, a_kind, suggestion, takes
from interp_toolkit.models.about.record import Kind, ModelRecord, set_record
from interp_toolkit.models.loading.formats.checkpoint import read_own
from interp_toolkit.models.loading.formats.files import read_file, sha256
from interp_toolkit.models.loading.formats.records import PICKLED_CLASS
from interp_toolkit.models.loading.parameters.conversion import Keys, convert, with_output
from interp_toolkit.models.loading.parameters.foreign_config import (
    ForeignConfig,
    read_foreign_config,
)
from interp_toolkit.models.loading.parameters.infer import (
    Assumption,
    InferredConfig,
    MissingSettingError,
    read_state_dict,
    settle,
)
from interp_toolkit.models.loading.parameters.key_rules import KeyFile
from interp_toolkit.models.loading.parameters.layouts import read_keys
from interp_toolkit.models.loading.parameters.names import is_bridge, is_hooked
from interp_toolkit.models.loading.parameters.strict import (
    build_transformer,
    check_finite,
    check_names,
    first_few,
)
from interp_toolkit.models.loading.parameters.template import Template, template_of
from interp_toolkit.models.loading.settings import build_config, parse_settings
from interp_toolkit.models.transformer.circuit import described
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

_CONFIG_KEYS = (
    *("cfg", "model_cfg", "model_config", "model_args", "config"),
    *("hparams", "hyper_parameters", "args"),
)
_STATE_KEYS = ("state_dict", "model_state_dict", "model", "module", "net", "params", "state_dicts")


def load_file(
    path: Path,
    device: torch.device,
    dtype: torch.dtype | None,
    settings: Mapping[str, Any],
    *,
    keys: Keys | None = None,
    ignore: Sequence[str] = (),
) -> Transformer:
    """The model in a checkpoint file, with its record; see `loader.load` for the arguments.

    Raises InputError if the file cannot be read or is inconsistent, its weights are not finite, or
    a setting is unknown, missing, without effect, or contradicts the file.
    """
    contents = _read(path, parse_settings(settings), keys, ignore)
    check_finite(contents.tensors.items(), contents.source)
    config = (
        contents.config if dtype is None else contents.config.model_copy(update={"dtype": dtype})
    )
    model = build_transformer(config, contents.tensors, device, contents.source, contents.circuit)
    record = ModelRecord(
        name=path.name,
        kind=contents.kind,
        path=str(path.resolve()),
        sha256=sha256(path),
        assumptions=contents.phrases,
        alternatives=tuple(other for one in contents.assumptions for other in one.alternatives),
        config=config.model_dump(mode="json"),
        task=contents.task,
        training=contents.training,
        notes=() if contents.circuit is None else (described(contents.circuit),),
    )
    set_record(model, record)
    return model


@takes(path=PATH)
def keys_template(path: str | Path, ignore: Sequence[str] = ()) -> Template:
    """A mapping to edit for a checkpoint whose tensors have other names than TransformerLens's.

    Args:
        path: the checkpoint file.
        ignore: names of tensors to leave out; `*` matches anything.

    Returns:
        The mapping: `to_json()` is a file for `load(keys=)`; `guesses` and `blanks` are the parts
        to check and to fill in.

    Raises:
        InputError: the file cannot be read, holds no state dict, or needs no mapping.

    Examples:
        >>> import torch
        >>> torch.save({"tok.weight": torch.zeros(5, 4), "head.weight": torch.zeros(5, 4)}, "m.pt")
        >>> keys_template("m.pt").content["tensors"]["tok.weight"]["to"]
        'embed.W_E'
    """
    source = str(path)
    saved = None
    if not source.startswith("toy:"):
        contents = read_file(Path(path))
        if read_own(contents.data, contents.metadata, source) is None:
            saved = _saved(contents.data, ignore, source)
    if saved is None or is_hooked(saved.tensors) or is_bridge(saved.tensors):
        raise InputError(f"{source} has TransformerLens's names and needs no mapping")
    cfg = saved.config or {}
    return template_of(saved.tensors, read_foreign_config(cfg, source), cfg)


@dataclass(frozen=True)
class _Saved:
    """A saved file's contents: tensors by their own names, a configuration, ignored entries."""

    tensors: Mapping[str, Tensor]
    config: Mapping[str, Any] | None
    phrases: tuple[str, ...]


@dataclass(frozen=True)
class _LoadedFile:
    """A file's weights under our names, their configuration, and further information."""

    source: str
    kind: Kind
    tensors: Mapping[str, Tensor]
    config: TransformerConfig
    phrases: tuple[str, ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    task: Mapping[str, Any] | None = None
    training: Mapping[str, Any] | None = None
    circuit: Mapping[str, Any] | None = None


def _read(
    path: Path, settings: Mapping[str, Any], keys: Keys | None, ignore: Sequence[str]
) -> _LoadedFile:
    source = str(path)
    contents = read_file(path)
    own = read_own(contents.data, contents.metadata, source)
    if own is None:
        return _foreign(_saved(contents.data, ignore, source), keys, settings, source)
    if keys is not None or ignore:
        raise InputError(
            f"{source} is the toolkit's own file and needs no keys or ignore: leave them out"
        )
    return _own(own, settings, source)


def _own(own: Mapping[str, Any], settings: Mapping[str, Any], source: str) -> _LoadedFile:
    config = build_config(own["config"], source)
    reading = InferredConfig(shown=dict(config), assumptions=())
    settle(reading, settings, source)  # raises if settings contradict the file
    return _LoadedFile(
        source,
        "checkpoint",
        _tensors_only(own["state_dict"], source),
        config,
        circuit=own.get("circuit"),
        task=own.get("task"),
        training=own.get("training"),
    )


def _foreign(
    saved: _Saved, keys: Keys | None, settings: Mapping[str, Any], source: str
) -> _LoadedFile:
    """Weights from elsewhere, with the configuration saved with them or inferred from them."""
    cfg = saved.config
    foreign = read_foreign_config(cfg or {}, source)
    key_file = None if keys is None else read_keys(keys)
    if isinstance(key_file, KeyFile):
        settings = {**_key_settings(key_file, foreign), **settings}
    file_settings = dict(foreign.fields)
    for name in file_settings.keys() & settings.keys():
        if file_settings[name] != settings[name]:
            raise InputError(
                f"{name}={settings[name]} contradicts {source}, which says {file_settings[name]}"
            )
    user_settings, settings = settings, {**file_settings, **settings}
    architecture = (cfg or {}).get("architecture")
    converted = convert(saved.tensors, key_file, {**settings, "architecture": architecture}, source)
    parameters = with_output(converted.parameters, settings)
    reading = read_state_dict(parameters, converted.buffers, source)
    overruled = _overruled(foreign, settings, reading)
    settings = {name: value for name, value in settings.items() if name not in overruled}
    needed = {**converted.needed, **reading.needed}
    missing = {name: need for name, need in needed.items() if name not in settings}
    if missing:
        check_names(converted.parameters, source)
        raise MissingSettingError(reading, missing, source)
    settled = settle(reading, settings, source, answered=frozenset(cfg or ()))
    _refuse_without_effect(user_settings, settled.config, source)
    phrases = (*settled.phrases, *converted.phrases, *saved.phrases, *overruled.values())
    if foreign.ignored:
        phrases += (f"configuration fields {first_few(foreign.ignored)} ignored",)
    return _LoadedFile(
        source, converted.kind, parameters, settled.config, phrases, settled.assumptions
    )


def _key_settings(keys: KeyFile, foreign: ForeignConfig) -> dict[str, Any]:
    """The settings of a mapping; InputError if they are not the toolkit's transformer's."""
    parallel = keys.settings.get("parallel_attn_mlp", False)
    if parallel is not False:
        raise InputError(
            f"keys: parallel_attn_mlp={parallel}: the toolkit's transformer has no parallel blocks"
        )
    return parse_settings({n: v for n, v in keys.settings.items() if n != "parallel_attn_mlp"})


def _overruled(
    foreign: ForeignConfig, settings: Mapping[str, Any], reading: InferredConfig
) -> dict[str, str]:
    """Fields under other names in the file that its weights contradict, each with a phrase."""
    return {
        own: f"{name}={foreign.fields[own]} of the file set aside: its weights have {own}="
        f"{reading.shown[own]}"
        for own, name in foreign.names.items()
        if own in foreign.fields
        and own in reading.shown
        and settings[own] == foreign.fields[own] != reading.shown[own]
    }


def _refuse_without_effect(
    settings: Mapping[str, Any], config: TransformerConfig, source: str
) -> None:
    """Refuse settings that do nothing, since they indicate a misunderstanding."""
    idle = {
        "act_fn": config.attn_only,
        "d_mlp": config.attn_only,
        "eps": config.normalization_type is None,
        "final_rms": config.normalization_type is None,
        "attn_scale": not config.use_attn_scale or config.mixing is not None,
        "rotary_dim": config.positional_embedding_type != "rotary",
        "rotary_base": config.positional_embedding_type != "rotary",
        "rotary_adjacent_pairs": config.positional_embedding_type != "rotary",
    }
    for name, has_no_effect in idle.items():
        if name in settings and has_no_effect:
            raise InputError(
                f"{name}={settings[name]} would have no effect on the model in {source}"
            )


def _saved(data: Any, ignore: Sequence[str], source: str) -> _Saved:
    """Read a saved file without ignored entries; for a training checkpoint, only its model."""
    if not isinstance(data, Mapping):
        raise InputError(f"{source} holds {a_kind(data)}, not a state dict")
    phrases: tuple[str, ...] = ()
    cfg: Mapping[str, Any] | None = None
    visited = {id(data)}  # the outermost object keeps all alive, so ids are unique
    unused = set(ignore)
    while (rest := _without(data, ignore, unused)) and (states := _states(rest)):
        key = _choose(states, source)
        state = rest[key]
        cfg = cfg or next((rest[k] for k in _CONFIG_KEYS if isinstance(rest.get(k), Mapping)), None)
        if PICKLED_CLASS in rest:
            phrases += (f"a pickled {rest[PICKLED_CLASS]}, read as data: its code was not run",)
        if others := [str(other) for other in states if other != key]:
            phrases += (f"{key} is the model, {first_few(others)} left aside",)
        if isinstance(state, list):
            phrases += (f"the last of {len(state)} state dicts",)
            state = state[-1]
        if id(state) in visited:
            raise InputError(f"{source} holds no state dict: its {key} contains itself")
        visited.add(id(state))
        data = state
    for pattern in unused:
        raise InputError(f"{source} has no tensor {pattern} to ignore{suggestion(pattern, data)}")
    return _Saved(_tensors_only(rest, source), cfg, phrases)


def _states(data: Mapping[Any, Any], depth: int = 3) -> list[Any]:
    """The keys of possible state dicts of a model, or of lists of them (from training steps)."""
    return [key for key, value in data.items() if _is_state(value, depth) and not _is_aside(key)]


def _is_state(value: Any, depth: int) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(one, Mapping) for one in value)
    if not isinstance(value, Mapping):
        return False
    if not depth:  # nested deeper than any real file, or in itself
        return bool(value)
    return any(isinstance(one, Tensor) for one in value.values()) or bool(_states(value, depth - 1))


def _is_aside(key: Any) -> bool:
    return re.search(r"optim|sched|scaler|rng|callback|loop", str(key), re.IGNORECASE) is not None


def _choose(states: Sequence[Any], source: str) -> Any:
    """The state dict that is the model by its name; InputError if that is ambiguous."""
    main = [key for key in states if not re.search(r"(^|_)(ema|avg|swa)(_|$)", str(key))] or states
    state_keys = [key for key in _STATE_KEYS if key in main]
    if len(main) > 1 and len(state_keys) != 1:
        raise InputError(
            f"{source} holds {len(main)} state dicts, {first_few(list(map(str, main)))}: leave out "
            f"all but one, for example --ignore '{main[0]}'"
        )
    return (state_keys or main)[0]


def _without(data: Mapping[Any, Any], ignore: Sequence[str], unused: set[str]) -> dict[Any, Any]:
    """The entries that match none of the patterns (`*`: anything); notes the used patterns."""
    unused -= {pattern for pattern in unused if any(fnmatchcase(str(n), pattern) for n in data)}
    return {n: v for n, v in data.items() if not any(fnmatchcase(str(n), p) for p in ignore)}


def _tensors_only(state: Any, source: str) -> dict[str, Tensor]:
    if not isinstance(state, Mapping):
        raise InputError(f"{source} holds {a_kind(state)} instead of a state dict")
    wrong = [key for key, value in state.items() if not isinstance(value, Tensor)]
    if wrong or not state:
        what = f"{wrong[0]!r} is no tensor" if wrong else "it is empty"
        if state and len(wrong) == len(state):
            what = f"{wrong[0]!r} is not a tensor; its keys are {first_few(list(map(str, state)))}"
        raise InputError(f"{source} holds no state dict: {what}")
    for name, tensor in state.items():
        kind = _unusable(tensor)
        if kind:
            raise InputError(f"{source}: {name} is {kind}: weights must be plain real numbers")
    return {str(name): tensor for name, tensor in state.items()}


def _unusable(tensor: Tensor) -> str | None:
    """The reason why a tensor cannot be a weight, or None."""
    if tensor.is_complex():
        return "complex"
    if tensor.is_floating_point() and tensor.itemsize < 2:
        kind = str(tensor.dtype).removeprefix("torch.")
        return f"{kind}, which its scales belong to"
    if tensor.is_quantized:
        return "quantized"
    if tensor.is_meta:
        return "without values (on the meta device)"
    return None if tensor.layout == torch.strided else "sparse"
