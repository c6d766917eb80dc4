"""Shared parts of checks: the probe prompts, the count of passes, tolerances, a fresh copy.

The probe is 16 rows, of 8 tokens unless the prompt or the model needs another length. A *bare pass*
is the model on the probe. Passes on fewer or more tokens count in proportion, a backward pass
counts as two forward ones, and passes of copies and of the Hugging Face original count like the
model's own.

Whole passes are compared up to a measured noise. The residual stream and the outputs of attention
and MLPs are multiplied by 1 ± NOISE eps with random signs (eps: the dtype's rounding). The
resulting change of the logits estimates the effect of another order of summation, so the tolerance
reflects the model's own sensitivity to rounding. Single steps are compared with eps times the sum
of the magnitudes of the terms.

A fresh copy is a new object of the same class and configuration with the same weights. Behavior
shared by the copy belongs to the class; behavior of the live model alone is a fault of that object.
The copy's tensors are NaN before the state dict is loaded, which reveals tensors that loading
leaves unset.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.diagnosis.checks import largest
from interp_toolkit.errors import InputError, a_kind
from interp_toolkit.models.loading.library_output import suppress_output
from interp_toolkit.models.model import Model
from interp_toolkit.models.running import hooks
from interp_toolkit.models.running.forward import attached, device_of, evaluating
from interp_toolkit.models.transformer.circuit import CircuitTransformer
from interp_toolkit.models.transformer.transformer import Transformer

ROWS, POSITIONS = 16, 8
#: rounding errors of a value in the residual stream
NOISE = 4
NOISE_BASIS = f"effect of ±{NOISE} eps on the residual stream, plus {NOISE} eps of the logits"

Hooks = Iterable[tuple[Any, Callable[..., Any]]]


def eps_of(dtype: torch.dtype, device: torch.device | None = None) -> float:
    """The relative rounding error of a model's numbers.

    It is at least float32's, because libraries keep norms and rotary tables of wider models in
    float32 too. On a GPU that multiplies in TensorFloat-32, it is at least that format's.
    """
    eps = max(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)
    on_gpu = device is not None and device.type == "cuda"
    if on_gpu and torch.backends.cuda.matmul.allow_tf32:
        eps = max(eps, 2.0**-10)
    return eps


@dataclass
class Bench:
    """The probe prompts and the count of passes.

    Attributes:
        tokens: the probe, [row pos].
        passes: cost of all passes so far, in units of a bare pass.
        calls: number of calls, of all models.
    """

    tokens: Tensor
    passes: float = 0.0
    calls: int = 0

    def count(self, tokens: Tensor, backward: bool = False) -> None:
        """Count one more call on these tokens."""
        self.passes += tokens.numel() / self.tokens.numel() * (3 if backward else 1)
        self.calls += 1

    def run(
        self,
        model: Any,
        tokens: Tensor | None = None,
        at: Hooks = (),
        through: Callable[..., Any] | None = None,
        **options: Any,
    ) -> Tensor:
        """The logits of a pass, in float64 on the CPU.

        Args:
            model: the model to run.
            tokens: the rows; default: the probe.
            at: hook points, with the hooks to attach during the pass.
            through: called with the tokens in place of the model, such as one of its methods.
            options: options for the call.

        Raises:
            InputError: no logits came back.
        """
        tokens = self.tokens if tokens is None else tokens
        self.count(tokens)
        with torch.no_grad(), evaluating(model), attached(model, at), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TransformerLens warns about the faults tested here
            output = (through or model)(tokens.to(device_of(model)), **options)
        logits = getattr(output, "logits", output)
        if not isinstance(logits, Tensor):
            raise InputError(f"{a_kind(model)} returns no logits")
        return logits.detach().double().cpu()


@dataclass
class Recorded:
    """The activations and logits of a recorded pass.

    Attributes:
        values: the tensor of each hook point's last firing, by name.
        fired: number of times each hook point fired.
        logits: logits of the pass.
    """

    values: dict[str, Tensor] = field(default_factory=dict)
    fired: dict[str, int] = field(default_factory=dict)
    logits: Tensor = field(default_factory=lambda: torch.empty(0))

    def get(self, name: str) -> Tensor:
        """The activation recorded at a hook; raises InputError if there is none."""
        if name not in self.values:
            raise InputError(f"{name} does not fire")
        return self.values[name]


def points_of(model: Model) -> dict[str, Any]:
    """The hook points, each under one name, in the order of a pass."""
    points = hooks.hook_points(model)
    return {name: points[name] for name in hooks.one_name_each(points)}


Edit = Callable[[Tensor], Tensor]


def keeper(recorded: Recorded, name: str, edit: Edit = Tensor.clone) -> Callable[..., Any]:
    """A hook that stores its edited value and returns it; by default a copy."""

    def keep(value: Any, hook: Any) -> Any:
        recorded.fired[name] = recorded.fired.get(name, 0) + 1
        if not isinstance(value, Tensor):
            return None
        value = edit(value)
        recorded.values[name] = value.detach().clone()
        return value

    return keep


def record(
    bench: Bench,
    model: Any,
    points: Mapping[str, Any],
    edits: Mapping[str, Edit] | None = None,
    tokens: Tensor | None = None,
) -> Recorded:
    """A pass that stores the value at every hook point and returns a copy of it (a zero edit).

    Args:
        bench: counts the pass.
        model: the model to run.
        points: its hook points.
        edits: name -> a function of the value, whose result is stored and returned instead.
        tokens: the rows; default: the probe.
    """
    recorded, edits = Recorded(), edits or {}
    at = [
        (point, keeper(recorded, name, edits.get(name, Tensor.clone)))
        for name, point in points.items()
    ]
    recorded.logits = bench.run(model, tokens, at=at)
    return recorded


def breaking(bench: Bench, model: Any, kinds: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The kinds of hook point at which a hook that returns a copy makes the model fail, and how.

    They are located by bisection, on two rows. `kinds`: the hook points of each, by name.
    """
    few, failures = Bench(bench.tokens[:2]), dict[str, str]()

    def look(some: list[str]) -> None:
        try:
            record(few, model, {n: point for kind in some for n, point in kinds[kind].items()})
        except Exception as error:  # any error of the model
            if len(some) == 1:
                failures[some[0]] = f"{type(error).__name__}: {error}"
                return
            middle = len(some) // 2
            look(some[:middle])
            look(some[middle:])

    look(list(kinds))
    bench.passes += few.passes * len(few.tokens) / len(bench.tokens)
    bench.calls += few.calls
    return failures


def probe_rows(model: Model, prompt: Tensor | None = None, n_pos: int | None = None) -> Tensor:
    """The probe: fixed random tokens, with the prompt's rows first if there is one.

    Args:
        model: any TransformerLens model.
        prompt: [row position] token ids; None: only random tokens.
        n_pos: positions per row; None: enough for the checks, and for one prompt.
    """
    n_ctx, d_vocab = int(getattr(model.cfg, "n_ctx", POSITIONS)), int(model.cfg.d_vocab)
    shortest = max(min(n_ctx - 2, POSITIONS), min(n_ctx, 2), 1)  # leaves two for padding
    if n_pos is None:
        n_pos = shortest
        if prompt is not None:
            n_pos = min(max(int(prompt.shape[-1]), n_pos), n_ctx)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(d_vocab, (ROWS, n_pos), generator=generator)
    if prompt is not None:
        rows = prompt.reshape(-1, prompt.shape[-1])[:ROWS, :n_pos].cpu()
        tokens[: len(rows), : rows.shape[1]] = rows
    return tokens.to(device_of(model))


def noise(bench: Bench, model: Any, points: Mapping[str, Any], plain: Tensor) -> float:
    """The rounding error of the logits; see the module."""
    dtype = next(iter(model.parameters())).dtype
    eps = eps_of(dtype, device_of(model))
    generator = torch.Generator().manual_seed(1)

    def shake(value: Any, hook: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return None
        signs = torch.randint(0, 2, value.shape, generator=generator).to(value) * 2 - 1
        return value + value * signs * max(NOISE * eps, 2 * torch.finfo(value.dtype).eps)

    shaken = [
        (point, shake)
        for name, point in points.items()
        if name.rpartition(".")[2]
        in ("hook_embed", "hook_resid_pre", "hook_resid_mid", "hook_attn_out", "hook_mlp_out")
    ]
    changed = bench.run(model, at=shaken)
    floor = NOISE * eps * float(plain.abs().max())
    change = (changed - plain).abs().nan_to_num(nan=0.0, posinf=0.0)
    return float(change.max()) + floor


def share_of(tolerance: float, scale: float) -> float:
    """A tolerance as a fraction of the size of the compared values, at most 1."""
    return tolerance / max(scale, tolerance, torch.finfo(torch.float64).tiny)


def unlike_values(
    actual: Mapping[str, Any], expected: Mapping[str, Tensor], share: float
) -> list[str]:
    """The names of tensors that differ by more than this fraction of the largest magnitude.

    Names without a tensor in `actual` are skipped.
    """
    wrong = []
    for name, value in expected.items():
        other = actual.get(name)
        if not isinstance(other, Tensor):
            continue
        size = (
            float(value.detach().cpu().double().abs().nan_to_num(nan=0, posinf=0).max())
            if value.numel()
            else 0
        )
        if not gap(other, value) <= share * size:
            wrong.append(name)
    return wrong


def gap(a: Tensor, b: Tensor) -> float:
    """The largest difference; equal infinities and NaN count as 0; inf if shapes differ."""
    if a.shape != b.shape:
        return torch.inf
    a, b = (x.detach().cpu().double() for x in (a, b))
    same = (a == b) | (a.isnan() & b.isnan())
    return largest([float(torch.where(same, 0.0, (a - b).abs()).max())] if a.numel() else [])


@dataclass
class Fresh:
    """A new object of the model's class, into which the model's weights are loaded.

    Attributes:
        model: the new object.
        unset: tensors that loading left unset.
        unused: names in the state dict that the new object does not use.
        absent: names that the new object needs and the state dict lacks.
    """

    model: Any
    unset: tuple[str, ...]
    unused: tuple[str, ...]
    absent: tuple[str, ...]


def fresh_copy(model: Model) -> Fresh:
    """Load the weights into a new object; raises the error of the class if none can be made."""
    with suppress_output():
        new = again(model)
        like = next(iter(model.parameters()))
        move(new, like.device)
        move(new, like.dtype)
        new.eval()
        for gate in set(hooks.GATES.values()):
            if getattr(model.cfg, gate, False) and hasattr(new, f"set_{gate}"):
                getattr(new, f"set_{gate}")(True)
        poison(new)
        weights = {
            name: value.detach().clone() if isinstance(value, Tensor) else value
            for name, value in model.state_dict().items()
        }
        names = set(new.state_dict())
        new.load_state_dict(weights, strict=False)
        lost = tuple(unset(new))
        _complete(new, model)
    return Fresh(
        new,
        unset=lost,
        unused=tuple(sorted(set(weights) - names)),
        absent=tuple(sorted(names - set(weights))),
    )


@torch.no_grad()
def _complete(new: Any, model: Any) -> None:
    """Take what a bridge's state dict lacks (experts, sinks) from the model that it wraps."""
    if not hasattr(model, "original_model"):
        return
    have = {**dict(model.original_model.named_parameters())}
    have |= dict(model.original_model.named_buffers())
    wrapped = new.original_model
    for name, tensor in [*wrapped.named_parameters(), *wrapped.named_buffers()]:
        if name in have and tensor.is_floating_point() and bool(tensor.isnan().any()):
            tensor.copy_(have[name])


def again(model: Any) -> Any:
    """A new object of this class and configuration, with arbitrary weights."""
    if isinstance(model, CircuitTransformer):
        return CircuitTransformer(model.cfg, model.circuit)
    if isinstance(model, Transformer):
        return type(model)(model.cfg, init_weights=False)
    original = getattr(model, "original_model", None)
    if original is not None:
        return _bridge_again(model, original)
    cfg = copy.deepcopy(model.cfg)
    if type(model).__name__ == "HookedTransformer":
        cfg.tokenizer_name = None  # otherwise the constructor accesses the hub
    return type(model)(cfg)


def _bridge_again(model: Any, original: Any) -> Any:
    from transformer_lens.model_bridge import TransformerBridge
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    config = getattr(original, "config", None)
    if config is None:
        return TransformerBridge.boot_native(copy.deepcopy(model.cfg))
    name = type(original).__name__
    bridge = build_bridge_from_module(
        type(original)(copy.deepcopy(config)), name, hf_config=copy.deepcopy(config)
    )
    if getattr(model, "compatibility_mode", False):
        bridge.enable_compatibility_mode(disable_warnings=True)
    return bridge


def move(model: Any, target: torch.device | torch.dtype) -> None:
    """Move a copy to a device, or convert it to a dtype.

    A bridge's own `to` is not used, because its time is quadratic in the number of parameters.
    """
    if not hasattr(model, "original_model"):
        model.to(target)
        return
    torch.nn.Module.to(model, target)
    if isinstance(target, torch.dtype):
        model.cfg.dtype = target
    else:
        model.cfg.device = str(target)


def poison(model: Any) -> None:
    """Set every parameter to NaN, and every buffer in the state dict."""
    saved = {tensor.data_ptr() for tensor in model.state_dict().values() if tensor.numel()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.data.fill_(torch.nan)
        for _, buffer in model.named_buffers():
            if buffer.is_floating_point() and buffer.data_ptr() in saved:
                buffer.fill_(torch.nan)


def unset(model: Any) -> list[str]:
    """The entries of the state dict that are still NaN.

    Not all parameters are in it: bridges store fused and split projections, and save one of them.
    """
    return [
        name
        for name, tensor in model.state_dict().items()
        if tensor.is_floating_point() and bool(tensor.isnan().any())
    ]


def never_set(model: Any) -> list[str]:
    """Parameters that are still NaN, although no state dict contains them."""
    return [
        name.replace("._original_component", "")
        for name, parameter in model.named_parameters()
        if bool(parameter.isnan().any())
    ]
