"""`it.audit(model, claims)`, and `interp audit CLAIM --model MODEL`: tests of claims about a model.

Steps: claims are split into single ones (`plan`); prompts are generated or read once (`context`);
the parts of each claim are tested (`heads`, `circuit`, `direction`, `pair`, `algorithm`); its
wording is compared with the tests (`sentence`); the answers of the parts are combined (`parts`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from interp_toolkit.analysis import as_data, trained_on
from interp_toolkit.auditing.algorithm import audit_algorithm
from interp_toolkit.auditing.circuit import audit_circuit
from interp_toolkit.auditing.claims.kinds import (
    KINDS,
    AlgorithmClaim,
    BaseClaim,
    CircuitClaim,
    DirectionClaim,
    HeadsClaim,
    PairClaim,
    PromptedClaim,
    as_claim,
    read_claims,
)
from interp_toolkit.auditing.claims.plan import single
from interp_toolkit.auditing.claims.seal import Sealed
from interp_toolkit.auditing.claims.sentence import sentence_part
from interp_toolkit.auditing.context import AuditContext, audit_context
from interp_toolkit.auditing.direction.audit import audit_direction
from interp_toolkit.auditing.heads import audit_head
from interp_toolkit.auditing.pair import audit_pair
from interp_toolkit.auditing.parts import Part, of_claim
from interp_toolkit.auditing.result import (
    AuditedClaim,
    AuditFinding,
    evidence_of,
    findings,
    headline,
    interval_figure,
)
from interp_toolkit.errors import InputError
from interp_toolkit.finding import partly
from interp_toolkit.models.about.record import digest_of_tokens, provenance, versions
from interp_toolkit.models.loading.loader import load
from interp_toolkit.models.running.stages import (
    Store,
    about_data,
    checked_tokens,
    resuming,
    store_of,
    structured,
)
from interp_toolkit.options import Effort, Options, read_options
from interp_toolkit.state import preserve_state


def audit(
    model: Any,
    claims: Any = (),
    *,
    data: Any = None,
    seed: int = 0,
    level: float = 0.05,
    sealed: Sealed | None = None,
    effort: Effort = "standard",
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
    resume: str | Path | None = None,
) -> AuditFinding:
    """Test claims about a model.

    Args:
        model: any TransformerLens model, or an argument of `load`.
        claims: one or several: mappings as `auditing.claims.kinds` describes them, sentences such
            as "L5H1 is an induction head", or the path of a file of claims.
        data: prompts, as `analyze` takes them; None: test rows of the task that the model was
            trained on with `train`, or synthetic repeated tokens, for claims about heads or a
            circuit, whose sentences then say so.
        seed: random seed of every draw.
        level: error level. It bounds the probability that any false claim is confirmed, and that
            any true claim is refuted, if the intervals have their nominal coverage. Claims about
            algorithms have no intervals and no such bound.
        sealed: a sealed audit (see `auditing.claims.seal`). Its claims are tested before `claims`,
            corrected among themselves, and marked; its seed and level apply to all claims.
        effort: "thorough" tests a large model on as many synthetic prompts as a small one; "quick"
            makes no interventions, except for pairs and algorithms; sealed claims are tested with
            "standard".
        memory: bound on memory used at once in addition to the weights, such as "4GiB".
        progress: called with a description of each step.
        resume: a folder in which the answers to tested claims are kept, for a run with the same
            arguments to go on from.

    Raises:
        InputError: no claim, an invalid one, one that names parts that the model or the data lack,
            one about synthetic prompts beside data, a level out of range, or another effort for
            sealed claims.

    Examples:
        >>> import interp_toolkit as it
        >>> it.audit("toy:induction", "L1H0 is an induction head").claims[0].answer
        'confirmed'
    """
    listed = [*(() if sealed is None else sealed.claims), *_listed(claims)]
    if not listed:
        raise InputError("there is no claim to test")
    effort = read_options(Options, {"effort": effort}, "audit").effort
    if sealed is not None and effort != "standard":
        raise InputError(f"sealed claims are tested with effort standard; leave out {effort!r}")
    listed = single(listed)
    before = 0 if sealed is None else len(single(sealed.claims))
    if sealed is not None:
        seed, level = sealed.seed, sealed.level
    claim_at: list[str] = []
    with preserve_state(model), resuming(resume):
        model = load(model)
        if data is None and sealed is None and not any(map(_is_synthetic, listed)):
            data = trained_on(model)
        every = [_on_prompts(claim, has_data=data is not None) for claim in listed]
        context, notes = audit_context(
            model,
            as_data(data, model),
            seed=seed,
            level=level,
            claims=len(every) - before or 1,
            memory=memory,
            progress=lambda step: progress(f"{'; '.join([*claim_at[-1:], step])}"),
            effort=effort,
        )
        tested: list[AuditedClaim] = []
        checked = partial(checked_tokens, context.model, context.data)
        store = store_of(model, partial(_depends_on, context), checked)

        def finding(*stopped: str) -> AuditFinding:
            return AuditFinding(
                probe="audit",
                headline=headline(tested),
                findings=findings(tested, context),
                evidence=evidence_of(tested, context, sealed),
                provenance=provenance(model, _described(context), _settings(context, every), seed),
                claims=tested,
                notes=[*notes, *stopped, *_notes(context, tested, sealed)],
                plots=interval_figure(tested),
            )

        def so_far() -> AuditFinding | None:
            note = f"stopped: {len(tested)} of {len(every)} claims were tested"
            return finding(note) if tested else None

        with partly(so_far):
            for number, claim in enumerate(every):
                claim_at.append(f"claim {number + 1} of {len(every)}")
                progress(f"{claim_at[-1]}: {claim.about}")
                if number == 0 and before:
                    context = context.correcting(before)
                elif number == before:
                    context = context.correcting(len(every) - before)
                tested.append(_tested(claim, context, store, sealed=number < before))
        return finding()


def _listed(claims: Any) -> list[BaseClaim]:
    several = isinstance(claims, Sequence) and not isinstance(claims, str)
    listed_claims: list[BaseClaim] = []
    for number, one in enumerate(claims if several else [claims], start=1):
        if isinstance(one, Path) or (isinstance(one, str) and Path(one).is_file()):
            listed_claims += read_claims(Path(one))
        else:
            listed_claims.append(as_claim(one, f"claim {number}"))
    return listed_claims


def _is_synthetic(claim: BaseClaim) -> bool:
    return isinstance(claim, PromptedClaim) and claim.prompts == "synthetic"


def _on_prompts(claim: BaseClaim, *, has_data: bool) -> BaseClaim:
    """The claim about the prompts on which it is tested."""
    if not isinstance(claim, PromptedClaim):
        return claim
    if not has_data:
        return claim.on_synthetic_prompts()
    if _is_synthetic(claim):
        raise InputError(f"{claim.about!r} is not about the given prompts; leave out --data")
    return claim


def _depends_on(context: AuditContext) -> Any:
    groups = None if context.groups is None else [str(group) for group in context.groups.tolist()]
    settings = [context.seed, context.level, context.effort]
    return ["audit", settings, about_data(context.data), groups, versions()]


def _tested(claim: BaseClaim, context: AuditContext, store: Store, *, sealed: bool) -> AuditedClaim:
    def measured() -> tuple[list[Part], bool, bool]:
        parts = _parts(claim, context)
        return parts, context.cached_prompts is not None, context.cached_task_check is not None

    def name() -> str:  # what earlier claims left cached is in it: the result tells what was used
        cached = [context.cached_prompts is not None, context.cached_task_check is not None]
        return f"{context.claims} claims, cached {cached}: {claim.model_dump_json()}"

    parts, prompts, task_check = structured(store, name, measured, Part)
    if prompts:  # as the test left them: the result tells both
        assert context.prompts is not None
    if task_check:
        assert context.task_check is not None
    (kind,) = (name for name, of in KINDS.items() if type(claim) is of)
    return AuditedClaim(
        claim.about,
        claim.text,
        kind,
        of_claim(parts),
        [*parts, sentence_part(claim, parts)],
        sealed,
    )


def _parts(claim: BaseClaim, context: AuditContext) -> list[Part]:
    if isinstance(claim, HeadsClaim):
        return audit_head(claim, context)
    if isinstance(claim, CircuitClaim):
        return audit_circuit(claim, context)
    if isinstance(claim, DirectionClaim):
        return audit_direction(claim, context)
    if isinstance(claim, PairClaim):
        return audit_pair(claim, context)
    assert isinstance(claim, AlgorithmClaim)
    return audit_algorithm(claim, context)


def _described(context: AuditContext) -> dict[str, Any]:
    if context.data is not None:
        rows = {"source": context.data.source, "rows": len(context.data)}
        reading = {"reading": list(context.data.reading)} if context.data.reading else {}
        return {**rows, "sha256": context.data.digest(), **reading}
    prompts = context.cached_prompts
    if prompts is None:
        return {"source": "none: weights and sampled prompts"}
    digest = digest_of_tokens(prompts.tokens)
    return {"source": prompts.source, "rows": len(prompts), "sha256": digest}


def _settings(context: AuditContext, claims: Sequence[BaseClaim]) -> dict[str, Any]:
    shown = [c.model_dump(mode="json", exclude_none=True) for c in claims]
    for one in shown:
        if len(one.get("direction", ())) > 16:
            one["direction"] = f"{len(one['direction'])} numbers"
    return {"level": context.level, "effort": context.effort, "claims": shown}


def _notes(
    context: AuditContext, tested: Sequence[AuditedClaim], sealed: Sealed | None
) -> list[str]:
    notes = []
    if sealed is not None:
        count = sum(claim.sealed for claim in tested)
        notes.append(
            f"{count} of {len(tested)} claims were sealed before this run ({sealed.sealed_at}, "
            f"SHA-256 {sealed.sha256[:16]}…); whether their data were unseen then, only their "
            "author can say"
        )
    if context.data is not None:
        notes.append(
            "answers hold for prompts like these; the audit does not know whether the claims "
            "were made on the same prompts"
        )
    return notes
