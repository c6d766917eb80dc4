"""Checks of `run_with_hooks`, `run_with_cache` and the tokenizer.

Other checks attach hooks to the hook points themselves. Here the methods that users call are
compared with such hooks, on two rows. One hook point of each kind, in different layers, is edited
by name, all in one pass: each row is moved a third of the way to the other, or away from it. The
edits must show the same values at every hook, give the same logits as attached hooks, and be gone
afterwards. `run_with_cache` must return the values that attached hooks see.

Tokenized prompts are checked for the number of BOS tokens: none, one or two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.diagnosis.bench import (
    NOISE_BASIS,
    Bench,
    Edit,
    Recorded,
    gap,
    keeper,
    record,
    share_of,
    unlike_values,
)
from interp_toolkit.diagnosis.checks import Check, listed, measured
from interp_toolkit.diagnosis.sections.firing import hooks_on, kind_of, more
from interp_toolkit.errors import one_line
from interp_toolkit.models.running.forward import in_usual_form

EDITS = "run_with_hooks makes the requested edits"
GONE = "run_with_hooks removes its hooks"
CACHE = "run_with_cache returns the values that hooks see"
FEW, SHARE = 2, 1 / 3

Points = Mapping[str, Any]


def check_edits(
    bench: Bench, model: Any, plain: Tensor, tolerance: float, points: Points, recorded: Recorded
) -> Iterator[Check]:
    """Does an edit by name have the same effect as an attached hook?

    Args:
        bench: counts the passes.
        model: the model to run.
        plain: its logits without hooks.
        tolerance: tolerance for whole passes.
        points: its hook points.
        recorded: a recorded pass.
    """
    few = bench.tokens[:FEW]
    chosen = {name: points[name] for name in _one_of_each_kind(recorded, points)}
    edits = {name: _moved(SHARE * (-1) ** rank) for rank, name in enumerate(chosen)}
    attached = record(bench, model, chosen, edits, few)
    before, named = hooks_on(points), Recorded()
    fwd_hooks = [
        (name, in_usual_form(model, points[name], keeper(named, name, edit)))
        for name, edit in edits.items()
    ]
    try:
        by_name = partial(model.run_with_hooks, fwd_hooks=fwd_hooks)
        named.logits = bench.run(model, few, through=by_name)
    except Exception as error:  # third-party models
        yield Check(
            "hooks", EDITS, "failed", f"it raises {type(error).__name__}: {one_line(error)}"
        )
    else:
        yield _edited(attached, named, plain[:FEW], tolerance)
    left = more(hooks_on(points), before)
    if left:
        text = f"{sum(left.values())} hooks stay at {listed(list(left))}"
        yield Check("hooks", GONE, "failed", text, locations=list(left))
        return
    after = bench.run(model, few)
    scale = float(plain.abs().max())
    text = "the logits have changed"
    yield measured("hooks", GONE, gap(after, plain[:FEW]), tolerance, scale, NOISE_BASIS, text)


def _one_of_each_kind(recorded: Recorded, points: Points) -> list[str]:
    """A hook point of each kind that fires, from different layers, in the order of a pass."""
    kinds: dict[str, list[str]] = {}
    for name in points:
        if name in recorded.fired:
            kinds.setdefault(kind_of(name), []).append(name)
    chosen = {names[rank % len(names)] for rank, names in enumerate(kinds.values())}
    return [name for name in points if name in chosen]


def _moved(share: float) -> Edit:
    """Move every row this fraction of the way to the other; non-finite entries are unchanged."""

    def edit(value: Tensor) -> Tensor:
        if not value.is_floating_point() or value.ndim == 0:
            return value.clone()
        way = value.flip(0) - value
        return torch.where(way.isfinite(), value + share * way, value)

    return edit


def _edited(attached: Recorded, named: Recorded, plain: Tensor, tolerance: float) -> Check:
    uncalled = [n for n, times in attached.fired.items() if named.fired.get(n, 0) != times]
    if uncalled:
        text = f"hooks attached by name are not called as attached ones are: {listed(uncalled)}"
        return Check("hooks", EDITS, "failed", text, locations=uncalled)
    scale = float(plain.abs().max())
    other = unlike_values(named.values, attached.values, share_of(tolerance, scale))
    difference = gap(named.logits, attached.logits)
    if other and difference <= tolerance:
        text = f"hooks attached by name see other values: {listed(other)}"
        return Check("hooks", EDITS, "failed", text, locations=other)
    if difference <= tolerance and gap(attached.logits, plain) <= tolerance:
        return Check("hooks", EDITS, "undecided", "the edits tried change no logit of these rows")
    where = f"; from {other[0]} on" if other else ""
    text = f"the logits differ from those with the same hooks attached{where}"
    return measured("hooks", EDITS, difference, tolerance, scale, NOISE_BASIS, text, other)


def check_cache(
    bench: Bench,
    model: Any,
    plain: Tensor,
    tolerance: float,
    points: Points,
    fresh: tuple[Any, Points] | None,
) -> Iterator[Check]:
    """Does the cache hold the values that attached hooks see, with the same logits?

    Args:
        bench: counts the passes.
        model: the model to run.
        plain: its logits without hooks.
        tolerance: tolerance for whole passes.
        points: its hook points.
        fresh: a fresh copy and its hook points; None if there is none.
    """
    if not hasattr(model, "run_with_cache"):
        yield Check("hooks", CACHE, "not_applicable", "this model has no run_with_cache")
        return
    scale = float(plain.abs().max())
    share = share_of(tolerance, scale)
    try:
        logits, lacking, other = _cache(bench, model, points, share)
    except Exception as error:  # third-party models
        yield Check(
            "hooks", CACHE, "failed", f"it raises {type(error).__name__}: {one_line(error)}"
        )
        return
    bad = [*lacking, *other]
    if bad:
        also: set[str] = set()
        if fresh is not None:
            _, copy_lacking, copy_other = _cache(bench, *fresh, share)
            also = {*copy_lacking, *copy_other}
        own = [name for name in bad if name not in also]
        text = "; ".join(
            f"{what} {listed(names)}"
            for what, names in (("lacks", lacking), ("holds other values for", other))
            if names
        )
        if own or fresh is None:
            yield Check("hooks", CACHE, "failed", f"the cache {text}", locations=own or bad)
        else:
            text = f"the cache {text}; that of a fresh copy too"
            yield Check("hooks", CACHE, "differs", text, locations=bad, instead="run_with_hooks")
    difference = gap(logits, plain[:FEW])
    text = "the logits differ from those without a cache"
    answer = measured("hooks", CACHE, difference, tolerance, scale, NOISE_BASIS, text)
    if not bad or answer.answer == "failed":
        yield answer


def _cache(
    bench: Bench, model: Any, points: Points, share: float
) -> tuple[Tensor, list[str], list[str]]:
    """The logits of `run_with_cache`, and hook points missing or different in its cache."""
    few, stored = bench.tokens[:FEW], dict[str, Any]()

    def with_cache(tokens: Tensor) -> Any:
        output, cache = model.run_with_cache(tokens)
        stored.update(cache.items())
        return output

    shown = record(bench, model, points, tokens=few).values
    logits = bench.run(model, few, through=with_cache)
    lacking = [name for name in shown if not isinstance(stored.get(name), Tensor)]
    return logits, lacking, unlike_values(stored, shown, share)


PROMPT = "The capital of France is Paris."


def beginnings(model: Any, text: str, **options: Any) -> int:
    """The number of beginning-of-sequence tokens at the start of a text's tokens."""
    tokens = model.to_tokens(text, **options)
    bos, count = model.tokenizer.bos_token_id, 0
    for token in tokens.reshape(-1).tolist():
        if token != bos:
            break
        count += 1
    return count


def check_prompts(model: Any, prompts: Sequence[str]) -> Iterator[Check]:
    """Does each prompt begin with BOS at most once, and as `prepend_bos` requests?"""
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        yield Check("prompts", "BOS at most once", "not_applicable", "this model has no tokenizer")
        return
    bos = getattr(tokenizer, "bos_token_id", None)
    if bos is None:
        yield Check("prompts", "BOS at most once", "not_applicable", "the tokenizer has no BOS")
        return
    if bos in tokenizer(PROMPT, add_special_tokens=False)["input_ids"]:
        yield Check(
            "prompts",
            "BOS at most once",
            "undecided",
            "the tokenizer uses BOS for unknown words, so counting it is not informative",
        )
        return
    text = tokenizer.bos_token
    twice: list[str] = []
    counts = []
    for prompt in prompts or (PROMPT,):
        if text and prompt.startswith(text):
            prompt = prompt[len(text) :]
        counts.append(beginnings(model, prompt))
        if counts[-1] > 1:
            twice.append(prompt)
    alone = int(_starts(tokenizer(PROMPT)["input_ids"], bos))
    if twice:
        yield Check(
            "prompts",
            "BOS at most once",
            "failed",
            f"to_tokens prepends {max(counts)} (the tokenizer itself {alone}): "
            "set cfg.tokenizer_prepends_bos, or give prepend_bos=False",
            instead="prepend_bos=False",
        )
    elif max(counts) == 0:
        yield Check("prompts", "BOS at most once", "passed", "to_tokens prepends none")
    else:
        yield Check(
            "prompts",
            "BOS at most once",
            "passed",
            f"to_tokens prepends one (the tokenizer itself {alone})",
        )
    yield from _as_asked(model)
    beginning = beginnings(model, f"{text}{PROMPT}")
    if beginning > 1:
        yield Check(
            "prompts",
            "BOS in a prompt's text is not doubled",
            "differs",
            f"a prompt that begins with {text!r} gets {beginning}: leave it out of the text",
            instead="prepend_bos=False",
        )


def _starts(tokens: Any, bos: int) -> bool:
    return bool(len(tokens)) and tokens[0] == bos


def _as_asked(model: Any) -> Iterator[Check]:
    """Do prompts have one BOS with prepend_bos=True and none with prepend_bos=False?"""
    for prepend, expected in ((True, 1), (False, 0)):
        beginning = beginnings(model, PROMPT, prepend_bos=prepend)
        name = f"prepend_bos={prepend} prepends {'one BOS' if expected else 'none'}"
        answer = "passed" if beginning == expected else "failed"
        if prepend and beginning == 0:  # the tokenizer's BOS is another special token (BERT)
            answer = "differs"
        yield Check("prompts", name, answer, f"{beginning} prepended")  # type: ignore[arg-type]
