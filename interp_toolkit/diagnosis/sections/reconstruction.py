"""Recompute activations from weights and `cfg` in float64, and compare them with the hooks.

Each step is computed from the hooked values before it: the embedding, every layer's queries, keys,
values, pattern, z and output, its MLP, the logits. Keys and values belong to consecutive groups of
query heads (grouped-query attention: Ainslie et al. 2023, arXiv 2305.13245, section 2.2). A
difference is compared with 8 eps times the sum of the magnitudes of the terms.

Two passes are recomputed: one unchanged, and one in which hooks multiply queries until scores are
large, to reveal soft caps, which small numbers do not reach. If the logits have a soft cap, the
input of the unembedding is multiplied too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.diagnosis.bench import Recorded, eps_of
from interp_toolkit.diagnosis.checks import WORDS, Answer, Check, judged, listed
from interp_toolkit.diagnosis.sections.sums import by_its_class, has_norms_behind
from interp_toolkit.errors import InputError, first_line
from interp_toolkit.models.model import Model
from interp_toolkit.models.transformer.circuit import CircuitTransformer
from interp_toolkit.models.weights import read
from interp_toolkit.models.weights.parts import (
    LayerWeights,
    converted,
    mixed,
    projected,
    residual_hook,
    soft_capped,
)
from interp_toolkit.models.weights.positions import positions

ROUNDINGS = 8
BASIS = f"{ROUNDINGS} eps of the sum of the terms' magnitudes"
#: target size of scores, and of capped numbers relative to their cap
LARGE_SCORE, BEYOND = 4.0, 2.0

#: hook point at which the last residual stream is scaled
FINAL = "ln_final.hook_normalized"

#: kind of step -> name of the check
STEP_NAMES = {
    "embedding": "the first residual stream is the embedding",
    "q": "queries from weights",
    "k": "keys from weights",
    "v": "values from weights",
    "pattern": "patterns from queries and keys",
    "z": "mixed values from patterns and values",
    "attn_out": "attention's output from weights",
    "pre": "MLP's input from weights",
    "post": "the activation function",
    "mlp_out": "MLP's output from weights",
    "logits": "logits from the last residual stream",
}


@dataclass(frozen=True)
class Step:
    """One computation step, repeated from its inputs.

    Attributes:
        what: the key in STEP_NAMES.
        hook: the hook point.
        difference, tolerance, scale: measured for the step; None if it could not be computed.
        reason: why it could not be computed.
    """

    what: str
    hook: str
    difference: float | None = None
    tolerance: float | None = None
    scale: float | None = None
    reason: str | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the values agree; None if they could not be computed."""
        if self.difference is None or self.tolerance is None:
            return None
        return self.difference <= self.tolerance


def steps(
    model: Model, recorded: Recorded, only: Collection[str] = tuple(STEP_NAMES)
) -> list[Step]:
    """Recompute the steps of a recorded pass, all of them or some kinds."""
    to_check: list[tuple[str, str, Callable[[], Step]]] = [
        ("embedding", "blocks.0.hook_resid_pre", partial(_embedding, model, recorded))
    ]
    for layer in range(int(model.cfg.n_layers)):
        at = f"blocks.{layer}"
        for what in ("q", "k", "v", "z", "attn_out", "pattern"):
            hook = f"{at}.attn.hook_{what}" if what != "attn_out" else f"{at}.hook_attn_out"
            to_check.append((what, hook, partial(_attention, model, recorded, layer, what, hook)))
        for what in ("pre", "post", "mlp_out"):
            hook = f"{at}.mlp.hook_{what}" if what != "mlp_out" else f"{at}.hook_mlp_out"
            to_check.append((what, hook, partial(_mlp, model, recorded, layer, what, hook)))
    to_check.append(("logits", "logits", partial(_logits, model, recorded)))
    computed_steps = []
    with torch.no_grad():
        for what, hook, test in to_check:
            if what not in only:
                continue
            try:
                computed_steps.append(test())
            except (InputError, AttributeError, KeyError, RuntimeError, TypeError) as error:
                reason = first_line(error)
                computed_steps.append(Step(what, hook, reason=reason))
    return computed_steps


def check_reconstruction(
    model: Model, own: list[Step], fresh: list[Step] | None, how: str
) -> Iterator[Check]:
    """A check for each kind of step, from the steps of this model and of a fresh copy."""
    in_copy = {(s.what, s.hook): s for s in fresh or []}
    designed, behind = by_its_class(model), has_norms_behind(model)
    for what, name in STEP_NAMES.items():
        own_steps = [step for step in own if step.what == what]
        if not own_steps:
            continue
        bad = [s for s in own_steps if s.holds is False]
        shared = [
            s
            for s in bad
            if designed
            and (o := in_copy.get((s.what, s.hook)))
            and o.holds is False
            and _alike(s, o)
        ]
        own_bad = [s for s in bad if s not in shared]
        check_name = f"{name}{how}"
        if own_bad:
            text = f"not at {listed([s.hook for s in own_bad])}"
            yield _about(check_name, "failed", own_bad, text)
        elif shared:
            reason = (
                f"not at {listed([s.hook for s in shared])}, nor in a fresh copy: this "
                "architecture computes something else there"
            )
            if behind:
                reason = f"not at {listed([s.hook for s in shared])}: norms follow the sums"
            yield _about(check_name, "differs" if behind else "undecided", shared, reason)
        good = [s for s in own_steps if s.holds]
        if not good and not bad:
            reasons = list(dict.fromkeys(s.reason or "" for s in own_steps))
            yield Check("weights", check_name, "not_applicable", listed(reasons, 1))
        if good and not bad:
            answers = [
                judged(s.difference or 0.0, s.tolerance or 0.0, s.scale or 0.0) for s in good
            ]
            answer: Answer = "undecided" if "undecided" in answers else "passed"
            coarse = [s for s, a in zip(good, answers, strict=True) if a == answer]
            yield _about(
                check_name, answer, coarse, f"{WORDS[answer]}, compared {len(coarse)} times"
            )


def _alike(own: Step, in_copy: Step) -> bool:
    """Whether a step is off by as much in both, so that the class computes another function."""
    a, b = own.difference or 0.0, in_copy.difference or 0.0
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return abs(a - b) <= max(own.tolerance or 0.0, 1e-3 * max(a, b))


def _about(name: str, answer: Any, failing: list[Step], text: str) -> Check:
    def ratio(step: Step) -> float:
        value = (step.difference or 0.0) / max(step.tolerance or 0.0, 1e-300)
        return math.inf if math.isnan(value) else value

    worst = max(failing, key=ratio)
    hooks = [s.hook for s in failing] if answer != "passed" else []
    return Check("weights", name, answer, text, worst.difference, worst.tolerance, BASIS, hooks)


def _step(what: str, hook: str, expected: Tensor, ours: Tensor, sizes: Tensor | float) -> Step:
    """A step with its difference; `sizes`: the sum of the terms' magnitudes."""
    if ours.shape != expected.shape:
        raise InputError(f"{hook} has the shape {list(expected.shape)}, not {list(ours.shape)}")
    size = float(sizes.max()) if isinstance(sizes, Tensor) else sizes
    eps = eps_of(expected.dtype, expected.device)
    difference = float((expected.double() - ours.double()).abs().max())
    scale = float(ours.double().abs().max())
    return Step(what, hook, difference, ROUNDINGS * eps * size, scale)


def _double(x: Tensor) -> Tensor:
    return x.detach().double()


def documented_scale(model: Any) -> float:
    """The scale of the embeddings according to the configuration."""
    original = getattr(model, "original_model", None)
    config = getattr(original, "config", None)
    if config is None:  # HookedTransformer puts the scale into its weights
        return 1.0
    config = getattr(config, "text_config", None) or config
    if str(getattr(config, "model_type", "")).startswith(("gemma", "recurrent_gemma")):
        return math.sqrt(int(model.cfg.d_model))
    for name in ("embedding_multiplier", "scale_emb"):  # Granite, MiniCPM
        if isinstance(getattr(config, name, None), int | float):
            return float(getattr(config, name))
    return math.sqrt(int(model.cfg.d_model)) if getattr(config, "scale_embedding", False) else 1.0


def _embedding(model: Any, recorded: Recorded) -> Step:
    hook = "blocks.0.hook_resid_pre"
    residual = recorded.get(hook)
    tokens = recorded.values["tokens"]
    scale = documented_scale(model)
    embedded = read.embedding(model)[tokens].double() * scale
    parts = [embedded]
    W_pos, token_type = positions(model), read.token_type(model)
    if W_pos is not None:
        rows = W_pos[: tokens.shape[1]].double()
        parts.append(rows.expand(len(tokens), -1, -1))
    if token_type is not None:
        parts.append(token_type.double().expand_as(embedded))
    ours = torch.stack(parts).sum(0)
    norm = converted(read.embedding_norm(model), _double)
    sizes = float(torch.stack(parts).abs().sum(0).max())
    if norm.kind is not None:
        ours = norm(ours)
        sizes = float(ours.abs().max()) * max(1.0, sizes)
    return _step("embedding", hook, residual, ours, sizes)


def _reach(x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
    """The sum of the terms' magnitudes in `x @ W + b`, W [..., in, out]."""
    total = torch.einsum("bpm,...mn->bp...n", x.abs(), W.abs())
    return total if b is None else total + b.abs()


def _attention(model: Any, recorded: Recorded, layer: int, what: str, hook: str) -> Step:
    at = f"blocks.{layer}"
    expected = recorded.get(hook)
    if what in ("z", "attn_out", "v"):
        w: Any = converted(read.ov(model, layer), _double)
    else:
        w = converted(read.layer(model, layer), _double)
    if what in ("q", "k", "v"):
        if isinstance(model, CircuitTransformer):
            raise InputError("queries, keys and values of a circuit have inputs of their own")
        x = w.norm(recorded.get(f"{at}.hook_resid_pre").double())
        if what != "v" and getattr(model.cfg, "positional_embedding_type", "") == "shortformer":
            raise InputError("queries and keys read separate position embeddings")
        if w.kv_latent is not None:
            return _behind_latent(recorded, layer, w, x, what)
        W, b = getattr(w, f"W_{what.upper()}"), getattr(w, f"b_{what.upper()}")
        group = W.shape[0] // expected.shape[2] if expected.ndim == 4 else 1
        W, b = W[::group], b[::group]
        ours = projected(x, W, b)
        if expected.ndim == 3:
            expected = _by_head(expected, W.shape[-1])
        factor = recorded.values.get(f"{hook}:factor")
        if factor is not None:
            ours = ours * factor
        sizes = float(_reach(x, W, b).max()) * (1.0 if factor is None else float(factor.abs()))
        return _step(what, hook, expected, ours, sizes * _norm_condition(recorded, layer))
    if what == "z":
        pattern, v = (
            recorded.get(f"{at}.attn.hook_pattern").double(),
            recorded.get(f"{at}.attn.hook_v"),
        )
        v = _per_head(v.double(), pattern.shape[1])
        ours = mixed(pattern, v)
        if expected.ndim == 3:
            expected = _by_head(expected, ours.shape[-1])
        return _step(what, hook, expected, ours, mixed(pattern.abs(), v.abs()))
    if what == "attn_out":
        z = recorded.get(f"{at}.attn.hook_z").double()
        z = _by_head(z, w.W_O.shape[1]) if z.ndim == 3 else z
        inside, sizes = w.written(z), converted(w, torch.abs).written(z.abs())
        ours = w.post_norm(inside)
        if w.residual_norm.kind is not None:
            ours = w.residual_norm(recorded.get(f"{at}.hook_resid_pre").double() + inside)
        size = float(sizes.max())
        if w.post_norm.kind is not None or w.residual_norm.kind is not None:
            size = float(ours.abs().max()) * max(1.0, size / float(inside.std() + 1e-9))
        return _step(what, hook, expected, ours, size)
    return _pattern(recorded, layer, w, hook)


def _behind_latent(recorded: Recorded, layer: int, w: Any, x: Tensor, what: str) -> Step:
    """Values from a latent; queries and keys are shown rotated, in another order."""
    hook = f"blocks.{layer}.attn.hook_{what}"
    expected = recorded.get(hook)
    if what != "v":
        raise InputError("queries and keys of latent attention are shown after their rotation")
    ours, latent = w.values(x), w.kv_latent
    inside = (x.abs() @ latent.W.abs()).max(-1).values / latent.norm.scale(x @ latent.W)
    sizes = ours.abs().max() * inside.max() * latent.W.shape[1] ** 0.5
    return _step(what, hook, expected, ours, sizes * _norm_condition(recorded, layer))


def _norm_condition(recorded: Recorded, layer: int) -> float:
    """The factor by which a mean-subtracting norm enlarges rounding errors."""
    x = recorded.get(f"blocks.{layer}.hook_resid_pre").double()
    spread = x.std(-1, correction=0).clamp_min(1e-30)
    return float((1 + x.mean(-1).abs() / spread).max())


def _by_head(x: Tensor, d_head: int) -> Tensor:
    return x.reshape(*x.shape[:-1], -1, d_head)


def _per_head(x: Tensor, heads: int) -> Tensor:
    return x if x.shape[2] == heads else x.repeat_interleave(heads // x.shape[2], dim=2)


def _pattern(recorded: Recorded, layer: int, w: LayerWeights, hook: str) -> Step:
    heads = w.W_Q.shape[0]
    expected = recorded.get(hook)
    if w.kv_latent is not None:  # its queries and keys are shown after their rotation
        x = w.norm(recorded.get(f"blocks.{layer}.hook_resid_pre").double())
        q, k = w.queries_and_keys(x)
    else:
        q, k = (recorded.get(f"blocks.{layer}.attn.hook_{name}").double() for name in "qk")
        if q.ndim == 3:
            q, k = (_by_head(x, w.W_Q.shape[-1]) for x in (q, k))
        q, k = _per_head(q, heads), _per_head(k, heads)
    scores = w.scores(q, k)
    size = torch.einsum("bqhd,bkhd->bhqk", q.abs(), k.abs()) / w.attn_scale
    if w.alibi is not None:
        size = size + scores.abs()
    # an error d in the scores changes a probability p by at most 2 p d
    sizes = 1 + 2 * float(size.masked_fill(~w.visible(scores.shape[-1]), 0).max())
    return _step("pattern", hook, expected, w.pattern(scores), sizes)


def _mlp(model: Any, recorded: Recorded, layer: int, what: str, hook: str) -> Step:
    mlp_weights = read.mlp(model, layer)
    if mlp_weights is None:
        raise InputError("there is no MLP")
    w: Any = converted(mlp_weights, _double)
    expected, at = recorded.get(hook), f"blocks.{layer}"
    if what == "pre":
        x = w.norm(recorded.get(residual_hook(model, layer, mlp_weights)).double())
        W, b = (w.W_in, w.b_in) if w.W_gate is None else (w.W_gate, w.b_gate)
        sizes = float(_reach(x, W, b).max()) * _norm_condition(recorded, layer)
        return _step(what, hook, expected, x @ W + b, sizes)
    if what == "post":
        pre, linear = recorded.get(f"{at}.mlp.hook_pre").double(), None
        terms = pre.abs()
        if w.W_gate is not None:
            linear = recorded.get(f"{at}.mlp.hook_pre_linear").double()
            terms = terms * linear.abs() + w.b_post.abs()
        return _step(what, hook, expected, w.post(pre, linear), terms)
    post = recorded.get(f"{at}.mlp.hook_post").double()
    inside = post @ w.W_out + w.b_out
    size = float((post.abs() @ w.W_out.abs() + w.b_out.abs()).max())
    ours = w.post_norm(inside)
    if w.post_norm.kind is not None:
        size = float(ours.abs().max()) * max(1.0, size / float(inside.std() + 1e-9))
    return _step(what, hook, expected, ours, size)


def _logits(model: Any, recorded: Recorded) -> Step:
    W_U, b_U = (t.double() for t in read.unembedding(model))
    norm = converted(read.final_norm(model), _double)
    last = recorded.get(f"blocks.{int(model.cfg.n_layers) - 1}.hook_resid_post").double()
    x = norm(last)
    factor = recorded.values.get(f"{FINAL}:factor")
    if factor is not None:
        shift = 0.0 if norm.b is None else norm.b
        x = (x - shift) * factor + shift
    size = float(_reach(x, W_U, b_U).max())
    spread = last.std(-1, correction=0).clamp_min(1e-30)
    size *= float((1 + last.mean(-1).abs() / spread).max())
    cap = read.positive(getattr(model.cfg, "output_logits_soft_cap", None))
    ours = soft_capped(x @ W_U + b_U, cap)
    expected = recorded.logits
    dtype = next(iter(model.parameters())).dtype
    eps = eps_of(dtype, W_U.device)
    difference = float((expected.to(ours) - ours).abs().max())
    return Step("logits", "logits", difference, ROUNDINGS * eps * size, float(ours.abs().max()))


def stress(model: Model, recorded: Recorded) -> dict[str, Callable[[Tensor], Tensor]]:
    """Edits that make scores large: they scale queries, and with capped logits the last norm too.

    Each edit is a partial whose keyword `other` is its factor; see `factors`.
    """
    edits: dict[str, Callable[[Tensor], Tensor]] = {}
    for layer in range(int(model.cfg.n_layers)):
        hook = f"blocks.{layer}.attn.hook_q"
        try:
            w = read.layer(model, layer)
            q, k = recorded.get(hook).double(), recorded.get(f"blocks.{layer}.attn.hook_k").double()
        except InputError:
            continue
        if q.ndim != 4 or w.kv_latent is not None:
            continue
        heads = w.W_Q.shape[0]
        sizes = torch.einsum("bqhd,bkhd->bhqk", _per_head(q, heads), _per_head(k, heads))
        most = float(sizes.abs().max()) / w.attn_scale
        aim = BEYOND * w.soft_cap if w.soft_cap is not None else LARGE_SCORE
        if most > 0:
            edits[hook] = partial(torch.mul, other=max(aim / most, 1.0))
    cap = read.positive(getattr(model.cfg, "output_logits_soft_cap", None))
    most = float(recorded.logits.abs().max())
    if cap is not None and FINAL in recorded.values and most > 0:
        edits[FINAL] = partial(torch.mul, other=max(BEYOND * cap / most, 1.0))
    return edits


def factors(edits: dict[str, Callable[[Tensor], Tensor]]) -> dict[str, Tensor]:
    """The factors of the edits of `stress`, under the names that `steps` looks up."""
    return {
        f"{hook}:factor": torch.tensor(edit.keywords["other"], dtype=torch.float64)  # type: ignore[attr-defined]
        for hook, edit in edits.items()
    }
