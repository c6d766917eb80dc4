"""Models in Hugging Face's format: a local folder, or a name on the hub, as a `TransformerBridge`.

A local folder is loaded with the network disabled, and with or without a tokenizer: bridges
otherwise require one, so without tokenizer files the model is loaded by transformers and wrapped
afterwards. Code that comes with a model is not run unless the caller trusts it. Progress bars and
log lines of the underlying libraries are suppressed.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from interp_toolkit.errors import InputError, one_line, reason_of
from interp_toolkit.files import RECORD, check_file, read_json
from interp_toolkit.models.loading.formats.adapters import (
    find_adapter,
    merged,
    without_adapter,
)
from interp_toolkit.models.loading.formats.files import check_no_pointer, options_inside
from interp_toolkit.models.loading.formats.headless import (
    headless_bridge,
    options,
    with_head,
    without_logits,
    without_pooler,
)
from interp_toolkit.models.loading.library_output import offline, suppress_output
from interp_toolkit.models.loading.memory_needed import (
    announce,
    check_layers,
    count_parameters,
    saved_row,
    stored_kinds,
    weight_files,
)
from interp_toolkit.models.loading.parameters.strict import check_finite, first_few
from interp_toolkit.models.model import longest_row

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "spiece.model",
    "vocab.json",
    "vocab.txt",
)
#: number formats of weights that are not quantized
_PLAIN = ("F64", "F32", "F16", "BF16", "float64", "float32", "float16", "bfloat16")
HUB_TIMEOUT = 10  # seconds
_PROBE = 3  # tokens on which a bridge is compared with its original
#: architectures that tests compare: on large models, passes take a third of the loading time
_COMPARED = (
    *("GPT2LMHeadModel", "LlamaForCausalLM", "GPTNeoXForCausalLM", "Gemma2ForCausalLM"),
    "Qwen2ForCausalLM",
)
_CHECKPOINTS = (".pt", ".pth", ".ckpt", ".safetensors")
#: a file that indicates a sharded training checkpoint: its framework, and the command to merge it
_IN_PARTS = {
    ".metadata": (
        "PyTorch",
        "python -m torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER model.pt",
    ),
    "latest": ("DeepSpeed", "python zero_to_fp32.py FOLDER OUT, with the script inside"),
}
#: files that transformers reads as a whole; other files are not checked
_READ_WHOLE = (
    *_TOKENIZER_FILES,
    *("special_tokens_map.json", "added_tokens.json", "merges.txt"),
    *("chat_template.jinja", "chat_template.json", "generation_config.json"),
    *("model.safetensors.index.json", "pytorch_model.bin.index.json", "adapter_config.json"),
)


def load_folder(
    folder: Path,
    device: torch.device,
    dtype: torch.dtype | None,
    trust_remote_code: bool,
    say: Callable[[str], None] | None = None,
) -> tuple[Any, tuple[str, ...]]:
    """The bridge to the model in a local folder, and notes for its record.

    Its `tokenizer` is None if the folder has none; an adapter is merged (see `adapters`).
    Raises InputError if the folder has no usable configuration or weights, needs code to be run, or
    is too large for this machine's memory. `say` is called first, with the model's size.
    """
    adapter = find_adapter(folder)
    outer, folder = folder, folder if adapter is None else adapter.base
    config = _read_config(folder, trust_remote_code)
    _check_small_files(folder)
    check_layers(folder, config)
    method = _quantization(folder, config)
    if config.get("is_encoder_decoder"):
        raise InputError(
            f"{folder} is a {(config.get('architectures') or ['model'])[0]}, an encoder-decoder "
            "model: the toolkit supports single stacks, such as its encoder alone or GPT-2"
        )
    dtype = dtype or _saved_dtype(config)
    n_params = count_parameters(folder, _saved_dtype(config))
    if n_params is not None:
        announce(str(folder), n_params, dtype, say)
    with suppress_output(), offline():
        try:
            with without_adapter(adapter, folder) as weights:
                model, loading = _load_module(weights, config, dtype, trust_remote_code)
            check_complete(folder, loading)
            if getattr(model, "is_quantized", False):
                model = model.dequantize()
            if adapter is not None:
                model = merged(model, adapter)
            check_finite(model.named_parameters(), str(folder))
            model = model.to(device)
            compared = type(model).__name__ in _COMPARED
            expected = None if compared else _logits(model, model)
            bridge = _bridge(folder, model, trust_remote_code, outer)
            if expected is not None:
                _check_same(folder, model, expected, bridge)
        except InputError:
            raise
        except pickle.UnpicklingError as error:
            raise InputError(
                f"{folder} has pickled weights that are damaged or would run code; nothing was run"
            ) from error
        except Exception as error:  # transformers' errors on a damaged folder
            quantized = f" (its weights are quantized: {method})" if method else ""
            raise InputError(f"{folder} cannot be loaded{quantized}: {one_line(error)}") from error
    dequantized = method and f"weights quantized by {method}, dequantized by transformers"
    notes = (without_logits(bridge), adapter and adapter.note, dequantized, _left_changed(model))
    return _with_context(bridge).eval(), tuple(note for note in notes if note)


@torch.no_grad()
def _logits(model: Any, original: Any) -> torch.Tensor | None:
    """Logits of a few tokens; None if there are none, or the model does not run on them."""
    try:
        embeddings = original.get_input_embeddings().weight
        tokens = torch.arange(1, _PROBE + 1, device=embeddings.device)[None] % len(embeddings)
        output = model(tokens)
        logits = output if isinstance(output, torch.Tensor) else output.logits
        return logits.detach().clone().double()
    except Exception:  # third-party models: the error appears when the model is used
        return None


def _check_same(folder: Path, model: Any, expected: torch.Tensor, bridge: Any) -> None:
    """Refuse a bridge that does not run, or whose logits differ from the original model's."""
    logits = _logits(bridge, model)
    if logits is None and "unembed" in bridge._modules:
        raise InputError(
            f"{folder}: TransformerLens' bridge to {type(model).__name__} does not run on tokens "
            "that transformers' own model runs on; try another release"
        )
    if logits is None or expected.shape != logits.shape:
        return
    difference = float((expected - logits).abs().max() / expected.abs().max().clamp_min(1e-30))
    if difference > max(1e-3, 8 * torch.finfo(next(model.parameters()).dtype).eps):
        raise InputError(
            f"{folder}: TransformerLens' bridge to {type(model).__name__} computes logits that "
            f"differ from transformers' (by {difference:.2g} of the largest); try another release"
        )


def load_hub(
    name: str,
    device: torch.device,
    dtype: torch.dtype | None,
    trust_remote_code: bool,
    say: Callable[[str], None] | None = None,
) -> Any:
    """The bridge to a model on the Hugging Face hub (or in its local cache).

    `say` is called first. Without a connection only the cache is searched: the libraries repeat
    every look-up for a minute. Raises InputError if there is no such model, the hub cannot be
    reached, or TransformerLens has no bridge to it.
    """
    if say is not None:
        say(f"no file or folder here is called {name}: looking on the Hugging Face hub")
    with suppress_output(), nullcontext() if _hub_answers() else offline():
        try:
            bridge = _boot(
                name,
                device=str(device),
                dtype=dtype or torch.float32,
                trust_remote_code=trust_remote_code,
            )
        except Exception as error:
            raise InputError(
                f"{name!r} is not a local file and could not be loaded from the Hugging Face "
                f"hub: {one_line(error)}"
            ) from error
    return _with_context(bridge).eval()


def _hub_answers() -> bool:
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=HUB_TIMEOUT)
    except Exception:  # of requests, httpx or the system, by release
        return False
    return True


def _left_changed(model: Any) -> str | None:
    """A note on process-wide changes made by a bridge: transformers' Gemma 2 attention."""
    module = type(model).__module__
    attention = getattr(sys.modules[module], "eager_attention_forward", None)
    if getattr(attention, "__module__", "").startswith("transformer_lens"):
        return f"{module}.eager_attention_forward stays wrapped by TransformerLens in this process"
    return None


def _with_context(bridge: Any) -> Any:
    """The bridge, with its context limited by a field that TransformerLens does not read."""
    bridge.cfg.n_ctx = min(bridge.cfg.n_ctx, longest_row(bridge) or bridge.cfg.n_ctx)
    return bridge


def not_a_model(folder: Path) -> str:
    """Why a folder is not a Hugging Face model, and the models inside it."""
    inside = [path.parent.name for path in folder.glob("*/config.json")]
    files = [path.name for path in folder.glob("*.*") if path.suffix in _CHECKPOINTS]
    hint = options_inside(inside or files)
    for name, (kind, command) in _IN_PARTS.items():
        if (folder / name).is_file():
            hint = f" but a checkpoint of {kind} in parts; join them: {command}"
    return f"{folder} is a folder without a config.json: not a Hugging Face model{hint}"


def _read_config(folder: Path, trust_remote_code: bool) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise InputError(not_a_model(folder))
    config = _read_json(path)
    files = [path, folder / "tokenizer_config.json"]
    wanting = [file for file in files if file.is_file() and "auto_map" in _read_json(file)]
    if wanting and not trust_remote_code:
        raise InputError(
            f"{folder} needs its own code (auto_map in {wanting[0].name}), which was not run: if "
            "you trust it, give --trust-remote-code (trust_remote_code=True)"
        )
    return config


def _check_small_files(folder: Path) -> None:
    """Raise InputError if a configuration or tokenizer is not a regular file, or is too large."""
    for path in (folder / name for name in _READ_WHOLE):
        try:
            check_file(path, RECORD)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise InputError(f"{path} cannot be read: {reason_of(error)}") from error
    for path in filter(Path.is_file, weight_files(folder)):
        check_no_pointer(path)


def _read_json(path: Path) -> dict[str, Any]:
    content = read_json(path, str(path))
    if not isinstance(content, dict):
        raise InputError(f"{path} is not a JSON object")
    return content


def _saved_dtype(config: dict[str, Any]) -> torch.dtype:
    """The dtype in the folder's configuration; float32 if it has none."""
    dtype = getattr(torch, str(config.get("dtype") or config.get("torch_dtype")), None)
    return dtype if isinstance(dtype, torch.dtype) else torch.float32


def _quantization(folder: Path, config: dict[str, Any]) -> str | None:
    """The quantization method of a folder's weights; None if they are not quantized.

    Raises InputError for a method that transformers would ignore, and for integer or 8-bit weights
    without a method.
    """
    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

    quantization = config.get("quantization_config")
    if isinstance(quantization, dict):
        method = str(quantization.get("quant_method") or "bitsandbytes")
        if method not in AUTO_QUANTIZATION_CONFIG_MAPPING:
            raise InputError(
                f"{folder} is quantized by {method!r}, which the installed transformers does not "
                "support: save it dequantized, or remove quantization_config if the weights are "
                "not quantized"
            )
        return method
    kinds = stored_kinds(folder)
    whole = [n for n, kind in kinds.items() if n.endswith("weight") and kind not in _PLAIN]
    if whole:
        raise InputError(
            f"{folder} has weights of {kinds[whole[0]]} and no quantization_config to decode "
            f"them: {first_few(whole)}; save them dequantized"
        )
    return None


def _load_module(
    folder: Path, config: dict[str, Any], dtype: torch.dtype, trust_remote_code: bool
) -> tuple[Any, dict[str, Any]]:
    """The model as transformers loads it, with its report on missing and unused tensors."""
    import transformers

    named = str((config.get("architectures") or [None])[0])
    loader = getattr(transformers, named, transformers.AutoModelForCausalLM)
    extra: dict[str, Any] = {"trust_remote_code": True} if trust_remote_code else {}
    bare = with_head(str(config.get("model_type")), named) is not None
    if bare:
        extra |= options(loader)
    model, loading = loader.from_pretrained(
        folder,
        local_files_only=True,
        attn_implementation="eager",  # other implementations hide the attention pattern from hooks
        dtype=dtype,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # mismatches are listed and refused below
        **extra,
    )
    if bare:
        loading = {**loading, "unexpected_keys": without_pooler(loading["unexpected_keys"])}
    _restore_padding(model, folder)
    return model, loading


def _restore_padding(model: Any, folder: Path) -> None:
    """Set the embedding of the padding token as saved: for some models transformers zeroes it."""
    for name, module in model.named_modules():
        row = module.padding_idx if isinstance(module, torch.nn.Embedding) else None
        if row is not None and not module.weight[row].any():
            saved = saved_row(folder, f"{name}.weight", row)
            if saved is not None and saved.shape == module.weight[row].shape:
                module.weight.data[row] = saved.to(module.weight)


def check_complete(source: Path, loading: dict[str, Any]) -> None:
    """Raise InputError for tensors that transformers would initialize randomly, or drop."""
    problems = {
        "lacks": sorted(loading.get("missing_keys", ())),
        "has no use for": sorted(loading.get("unexpected_keys", ())),
        "has misshapen": sorted(str(key[0]) for key in loading.get("mismatched_keys", ())),
    }
    parts = [f"{what} {first_few(names)}" for what, names in problems.items() if names]
    if parts:
        raise InputError(f"{source} does not fit its configuration: it {'; it '.join(parts)}")


def _bridge(folder: Path, model: Any, trust_remote_code: bool, outer: Path) -> Any:
    """The bridge; `outer` is the folder of an adapter, whose tokenizer takes precedence."""
    has_tokenizer = any((folder / name).is_file() for name in _TOKENIZER_FILES)
    if outer != folder and any((outer / name).is_file() for name in _TOKENIZER_FILES):
        return bridge_to(model, str(folder), _tokenizer(outer))
    like = with_head(model.config.model_type, type(model).__name__)
    if like is not None:
        tokenizer = _tokenizer(folder) if has_tokenizer else None
        return headless_bridge(model, like, tokenizer, str(folder))
    if has_tokenizer:
        return _boot_with(model, str(folder), trust_remote_code=trust_remote_code)
    return bridge_to(model, str(folder), None)


def bridge_to(model: Any, name: str, tokenizer: Any) -> Any:
    """The bridge to a model loaded by transformers, with a tokenizer or None."""
    if tokenizer is not None:
        return _boot_with(model, name, tokenizer=tokenizer)
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    return build_bridge_from_module(
        model, type(model).__name__, hf_config=model.config, model_name=name
    )


def _tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def _boot_with(model: Any, name: str, **options: Any) -> Any:
    return _boot(name, hf_model=model, device=str(model.device), dtype=model.dtype, **options)


def _boot(name: str, **options: Any) -> Any:
    from transformer_lens.model_bridge import TransformerBridge

    return TransformerBridge.boot_transformers(name, **options)
