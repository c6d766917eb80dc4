"""`doctor(model)`: all checks of one live model, in under 20 bare passes.

The order: a pass without hooks; a pass that records everything and returns copies; the rounding
noise; a fresh copy; then the checks. `bench` describes how passes are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from interp_toolkit.diagnosis.bench import (
    NOISE_BASIS,
    Bench,
    Fresh,
    Recorded,
    breaking,
    eps_of,
    fresh_copy,
    noise,
    points_of,
    probe_rows,
    record,
    share_of,
    unlike_values,
)
from interp_toolkit.diagnosis.checks import (
    NAME,
    Answer,
    Check,
    DoctorFinding,
    evidence_of,
    findings,
    guarded,
    headline,
    listed,
    measured,
)
from interp_toolkit.diagnosis.sections import (
    configuration,
    firing,
    methods,
    reconstruction,
    reload,
    sums,
)
from interp_toolkit.diagnosis.sections.methods import check_prompts
from interp_toolkit.diagnosis.sections.reload import NAME as ORIGINAL
from interp_toolkit.diagnosis.sections.reload import check_original, find_original
from interp_toolkit.errors import InputError, check_texts, one_line
from interp_toolkit.files import machine_memory
from interp_toolkit.models.about.record import digest_of_tokens, provenance
from interp_toolkit.models.loading.loader import load
from interp_toolkit.models.model import check_model
from interp_toolkit.models.running.forward import device_of
from interp_toolkit.state import preserve_state, uncompiled

#: largest number of copies of the model at one time, including itself
COPIES = 3


def doctor(
    model: Any,
    *,
    prompt: str | Sequence[str] | torch.Tensor = (),
    original: Any = None,
    progress: Callable[[str], None] | None = None,
    **load_options: Any,
) -> DoctorFinding:
    """Check that a model's hooks read and edit what their names promise (`interp doctor`).

    The model's state is restored. Copies of it are made if memory allows.

    Args:
        model: a live TransformerLens model, or an argument of `load`.
        prompt: texts to check in addition; the checks run on the first one too. For a model that
            only takes rows of one length: rows of token ids [row position], by default random
            rows of its whole context.
        original: the Hugging Face model that it represents: a folder, or a live model. None: that
            of a bridge is rebuilt from its own tensors, if they were not processed.
        progress: called with a description of each step.
        load_options: options for `load`; none for a live model.

    Raises:
        InputError: from `load`; options for a live model; a prompt or an original that does not
            fit the model; or a model that cannot run or whose logits are not finite.

    Examples:
        >>> import interp_toolkit as it
        >>> it.doctor("toy:induction").status
        'sound'
    """
    rows = prompt if isinstance(prompt, torch.Tensor) else None
    if rows is None:
        check_texts(prompt)
    elif rows.ndim != 2 or not rows.numel() or rows.is_floating_point():
        raise InputError(f"prompt is a tensor {list(rows.shape)}: give token ids [row position]")
    say = progress or (lambda step: None)
    if load_options and not isinstance(model, str | Path):
        raise InputError(f"{next(iter(load_options))} applies only to a model that is loaded")
    live: Any = model if not isinstance(model, str | Path) else load(model, **load_options)
    check_model(live)
    prompts = [prompt] if isinstance(prompt, str) else [] if rows is not None else list(prompt)
    with preserve_state(live):
        live = uncompiled(live)
        return _Examination(live, prompts, original, say, rows).result()


LONGEST = 1024  # positions of a probe row for a model that takes rows of one length


class _Examination:
    """Examination of one model: the checks, and the passes that they share."""

    def __init__(
        self,
        model: Any,
        prompts: list[str],
        original: Any,
        say: Callable[[str], None],
        rows: torch.Tensor | None = None,
    ) -> None:
        self.model, self.prompts, self.say = model, prompts, say
        self.named_original: str | None = None
        self.original: tuple[Any, str] | None = None
        if original is not None:  # errors about it concern the user, so they are not caught
            is_path = isinstance(original, str | Path)
            self.named_original = str(original) if is_path else type(original).__name__
            self.original = find_original(model, original)
        prompt_rows = self._prompt_tokens() if rows is None else rows
        self.bench = Bench(probe_rows(model, prompt_rows, None if rows is None else rows.shape[1]))
        self.points = points_of(model)
        self.checks: list[Check] = []
        self.broken: dict[str, list[str]] = {}  # hook points whose hooks make the model fail
        self.noise = 0.0

    def _prompt_tokens(self) -> torch.Tensor | None:
        if not self.prompts:
            return None
        if getattr(self.model, "tokenizer", None) is None:
            raise InputError("this model has no tokenizer, so the prompt's text cannot be read")
        tokens: torch.Tensor = self.model.to_tokens(self.prompts[0])
        return tokens

    def result(self) -> DoctorFinding:
        """Run all checks and summarize them."""
        model = self.model
        self.hooks_before = firing.hooks_on(self.points)
        self.say("running without hooks and with all hooks")
        try:
            self.plain = self._first_pass()
        except InputError:
            raise
        except Exception as error:  # third-party models
            raise InputError(
                f"the model itself cannot be run: {type(error).__name__}: {one_line(error)}"
            ) from error
        bench = self.bench
        if not bool(self.plain.isfinite().all()):
            raise InputError("the model's own logits are not finite, so nothing can be compared")
        self.recorded = self._recorded()
        self.recorded.values["tokens"] = bench.tokens
        self.noise = noise(bench, model, self.points, self.plain)
        self.say("a fresh copy")
        self.fresh, self.why = self._fresh()
        self._breaks_by_design()
        self.fresh_points = points_of(self.fresh.model) if self.fresh else {}
        self.fresh_hooks = firing.hooks_on(self.fresh_points)
        self.fresh_points = {n: p for n, p in self.fresh_points.items() if n in self.points}
        self.fresh_recorded: Recorded | None = None
        if self.fresh is not None:
            self.fresh_recorded = record(bench, self.fresh.model, self.fresh_points)
            self.fresh_recorded.values["tokens"] = bench.tokens
        self._ask("hooks", firing.FREE, self._free)
        self._ask("hooks", firing.THERE, self._there)
        self._ask("hooks", "hook points fire", self._hooks)
        self._ask("hooks", methods.EDITS, self._by_name)
        self._ask("hooks", methods.CACHE, self._cached)
        self._ask("sums", "sums", self._sums)
        self._ask("weights", "steps from weights", self._weights)
        self._ask(
            "configuration",
            "norms are folded as cfg says",
            lambda: configuration.check_folding(model),
        )
        n_pos = bench.tokens.shape[1]
        for name, check in (
            ("norms use cfg's eps", configuration.check_eps),
            ("rotary tables", partial(configuration.check_rotary, n_pos=n_pos)),
        ):
            self._ask("configuration", name, partial(self._against_copy, check))
        self._ask(
            "invariance",
            "a row has the same logits alone and in a batch",
            partial(configuration.check_batch, *self._compared()),
        )
        self._ask(
            "invariance",
            "padding on the right changes nothing before it",
            partial(configuration.check_causal, *self._compared()),
        )
        self._ask(
            "invariance",
            "padding on the left, masked, changes nothing",
            partial(configuration.check_left_padding, *self._compared()),
        )
        self._ask("prompts", "BOS at most once", lambda: check_prompts(model, self.prompts))
        self._ask(
            "original",
            ORIGINAL,
            lambda: check_original(
                bench, model, self.original, self.recorded, self.plain, self.noise
            ),
        )
        self._ask("reload", "saving and loading", self._reload)
        self._ask("hooks", "hooks are gone afterwards", self._gone)
        return self._finding()

    def _first_pass(self) -> torch.Tensor:
        """The logits on the probe; if the model fails on short rows, on rows of its context."""
        n_ctx = int(getattr(self.model.cfg, "n_ctx", 0))
        try:
            return self.bench.run(self.model)
        except InputError:
            raise
        except Exception:  # third-party models
            if self.prompts or not self.bench.tokens.shape[1] < n_ctx <= LONGEST:
                raise
        self.bench = Bench(probe_rows(self.model, n_pos=n_ctx))
        return self.bench.run(self.model)

    def _recorded(self) -> Recorded:
        """A recorded pass; hook points that make the model fail are excluded and reported."""
        try:
            return record(self.bench, self.model, self.points)
        except Exception:  # third-party models
            kinds: dict[str, dict[str, Any]] = {}
            for name, point in self.points.items():
                kinds.setdefault(firing.kind_of(name), {})[name] = point
            broken = breaking(self.bench, self.model, kinds)
        self.broken = {kind: list(kinds[kind]) for kind in broken}
        names = [name for names in self.broken.values() for name in names]
        for name in names:
            del self.points[name]
        reason = next(iter(broken.values()), "not alone, only together")
        reason_text = (
            f"a hook at {listed(list(broken))} makes the model fail ({reason.splitlines()[0]})"
        )
        self.checks.append(Check("hooks", firing.RUNS, "failed", reason_text, locations=names))
        return record(self.bench, self.model, self.points)

    def _breaks_by_design(self) -> None:
        """Hooks with which a fresh copy of a bridge fails too are no fault of this model."""
        if not self.broken or self.fresh is None or not sums.by_its_class(self.model):
            return
        points = points_of(self.fresh.model)
        kinds = {
            kind: {name: points[name] for name in names if name in points}
            for kind, names in self.broken.items()
        }
        if breaking(self.bench, self.fresh.model, kinds).keys() == self.broken.keys():
            self.checks = [
                replace(check, answer="differs", summary=f"{check.summary}, and a fresh copy too")
                if check.name == firing.RUNS
                else check
                for check in self.checks
            ]

    def _compared(self) -> tuple[Bench, Any, torch.Tensor, float]:
        return self.bench, self.model, self.plain, self.noise

    def _ask(self, section: str, name: str, check: Callable[[], Any]) -> None:
        self.say(name)
        self.checks += guarded(section, name, check)

    def _fresh(self) -> tuple[Fresh | None, str]:
        size = sum(p.numel() * p.element_size() for p in self.model.parameters())
        most = machine_memory()
        if most is not None and device_of(self.model).type == "cpu" and COPIES * size > most:
            return None, "no room in memory for a copy"
        try:
            return fresh_copy(self.model), ""
        except Exception as error:  # third-party classes
            return None, f"no fresh copy could be made: {type(error).__name__}: {one_line(error)}"

    def _hooks(self) -> Iterator[Check]:
        model, bench, recorded = self.model, self.bench, self.recorded
        yield from firing.check_firing(
            model, self.points, recorded, self.fresh_recorded, bench.tokens
        )
        difference = float((recorded.logits - self.plain).abs().max())
        scale = float(self.plain.abs().max())
        yield measured(
            "hooks",
            "a zero edit everywhere changes nothing",
            difference,
            self.noise,
            scale,
            NOISE_BASIS,
            "returning a copy changes the logits",
        )
        linked = firing.links(bench, model, self.points)
        rows = firing.edited_rows(bench, model, self.points, recorded, self.plain, self.noise)
        in_copy = None
        if self.fresh is not None:
            in_copy = firing.links(bench, self.fresh.model, self.fresh_points)
        joined = None if in_copy is None else in_copy.joined
        yield from firing.check_reach(model, linked.joined, joined, rows)
        if in_copy is not None and self._copy_agrees():
            yield from firing.check_whole(linked, in_copy)

    def _free(self) -> Iterator[Check]:
        in_copy = None if self.fresh is None else self.fresh_hooks
        left = firing.more(self.hooks_before, in_copy or {})
        same = bool(left) and self._copy_shows_the_same()
        yield firing.check_free(left, in_copy is not None, same)

    def _there(self) -> Iterator[Check]:
        if self.fresh is None:
            yield Check("hooks", firing.THERE, "undecided", self.why)
            return
        yield firing.check_there(self.model, self.fresh.model)

    def _by_name(self) -> Iterator[Check]:
        return methods.check_edits(*self._compared(), points=self.points, recorded=self.recorded)

    def _cached(self) -> Iterator[Check]:
        fresh = None if self.fresh is None else (self.fresh.model, self.fresh_points)
        return methods.check_cache(*self._compared(), points=self.points, fresh=fresh)

    def _copy_shows_the_same(self) -> bool:
        """Whether hooks on the fresh copy see the same values as on the model."""
        if self.fresh_recorded is None or not self._copy_agrees():
            return False
        both = self.recorded.values.keys() & self.fresh_recorded.values.keys()
        in_copy = {name: self.fresh_recorded.values[name] for name in both}
        share = share_of(self.noise, float(self.plain.abs().max()))
        return not unlike_values(self.recorded.values, in_copy, share)

    def _copy_agrees(self) -> bool:
        """Whether the fresh copy gives the same logits."""
        if self.fresh_recorded is None:
            return False
        gap = (self.fresh_recorded.logits - self.plain).abs().max()
        return bool(gap <= self.noise)

    def _against_copy(self, check: Callable[[Any], Iterator[Check]]) -> Iterator[Check]:
        in_copy = None if self.fresh is None else check(self.fresh.model)
        return configuration.by_design(check(self.model), self.model, in_copy)

    def _sums(self) -> Iterator[Check]:
        yield from sums.check_residual(self.model, self.recorded, self.fresh_recorded)
        yield from sums.check_patterns(self.model, self.recorded, self.fresh_recorded)

    def _weights(self) -> Iterator[Check]:
        own = reconstruction.steps(self.model, self.recorded)
        wrong = any(step.holds is False for step in own)
        in_copy = None
        if wrong and self.fresh is not None and self.fresh_recorded is not None:
            in_copy = reconstruction.steps(self.fresh.model, self.fresh_recorded)
        yield from reconstruction.check_reconstruction(self.model, own, in_copy, "")
        edits = reconstruction.stress(self.model, self.recorded)
        if not edits:
            return
        own_large = self._stressed(self.model, self.points, edits)
        in_copy = None
        if any(s.holds is False for s in own_large) and self.fresh is not None:
            in_copy = self._stressed(self.fresh.model, self.fresh_points, edits)
        yield from reconstruction.check_reconstruction(
            self.model, own_large, in_copy, ", with scaled-up activations"
        )

    def _stressed(self, model: Any, points: Any, edits: Any) -> list[reconstruction.Step]:
        recorded = record(self.bench, model, points, edits)
        recorded.values |= {"tokens": self.bench.tokens, **reconstruction.factors(edits)}
        return reconstruction.steps(model, recorded, ("pattern", "logits"))

    def _reload(self) -> Iterator[Check]:
        model, bench, fresh = self.model, self.bench, self.fresh
        yield from guarded(
            "reload", "saving and loading restores all tensors", lambda: reload.check_file(model)
        )
        if fresh is None or self.fresh_recorded is None:
            yield Check("reload", reload.SAME, "undecided", self.why)
            return
        yield from reload.check_reload(
            model, fresh, self.fresh_recorded.logits, self.plain, self.noise
        )
        name = "this object's load_state_dict sets every tensor"
        yield from guarded("reload", name, lambda: reload.check_own_loading(model))
        yield from guarded(
            "invariance",
            "float64 gives the same logits",
            lambda: configuration.check_dtype(bench, fresh.model, self.plain, self.noise),
        )
        yield from guarded(
            "invariance",
            "another device gives the same logits",
            lambda: configuration.check_device(bench, model, fresh.model, self.plain, self.noise),
        )
        yield from guarded(
            "reload",
            "folding changes no probability",
            lambda: reload.check_folding(bench, model, fresh.model, self.plain, self.noise),
        )

    def _gone(self) -> Iterator[Check]:
        left = firing.more(firing.hooks_on(self.points), self.hooks_before)
        if left:
            text = f"{sum(left.values())} more than before at {listed(list(left))}"
            yield Check("hooks", "hooks are gone afterwards", "failed", text, locations=list(left))
            return
        after = self.bench.run(self.model)
        yield measured(
            "hooks",
            "hooks are gone afterwards",
            float((after - self.plain).abs().max()),
            self.noise,
            float(self.plain.abs().max()),
            NOISE_BASIS,
            "the logits have changed",
        )

    def _finding(self) -> DoctorFinding:
        checks = [self._with_fault(check) for check in self.checks]
        evidence = evidence_of(checks, self.bench.passes, self.bench.calls, self.noise)
        tokens = self.bench.tokens
        data = {
            "source": "random tokens" + (" and the prompt" if self.prompts else ""),
            "rows": len(tokens),
            "positions": tokens.shape[1],
            "tokens_sha256": digest_of_tokens(tokens),
        }
        settings = {"prompt": self.prompts, "original": self.named_original}
        return DoctorFinding(
            probe=NAME,
            headline=headline(checks, evidence),
            findings=findings(checks, evidence, str(data["source"])),
            evidence=evidence,
            provenance=provenance(self.model, data, settings, 0),
            notes=_notes(
                evidence.bare_passes,
                evidence.calls,
                eps_of(next(iter(self.model.parameters())).dtype, device_of(self.model)),
            ),
            checks=checks,
        )

    def _with_fault(self, check: Check) -> Check:
        fault = sums.present_in(self.model, check)
        if fault is None:
            return check
        of_library = check.answer == "failed" and check.section in ("hooks", "reload")
        answer: Answer = "differs" if of_library else check.answer
        return replace(check, answer=answer, summary=f"{check.summary} ({fault})")


def _notes(passes: float, calls: int, eps: float) -> tuple[str, ...]:
    return (
        f"cost: as much as {passes:.1f} forward passes on the probe prompts, in {calls} calls of "
        "the model, its copies or its original",
        f"tolerances are multiples of eps = {eps:.2g}; each check states its tolerance and source",
    )
