"""QK and OV circuits of heads, from weights alone: `--probe qk` and `--probe ov`.

For every head, the analysis reports the effective rank of its circuit. It also tests whether the
circuit maps tokens to themselves more than with randomly permuted and sign-flipped residual
coordinates (`weights.self_scores`: matching for QK, copying for OV). For a single head (`--layer N
--head N`), it reports the singular values, the tokens of the largest components, and the token
pairs with the largest scores (`weights.qk`, `weights.ov`).

Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from interp_toolkit import plots
from interp_toolkit.circuits.weights.ov import ov_circuit
from interp_toolkit.circuits.weights.permutations import MATTERS
from interp_toolkit.circuits.weights.qk import qk_circuit
from interp_toolkit.circuits.weights.self_scores import shared_tokens, weight_scores
from interp_toolkit.circuits.weights.token_scores import (
    TokenPair,
    TokenScores,
    read_through,
    written_through,
)
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.evidence import comparisons_status, only_described, power_of_z
from interp_toolkit.finding import Finding, Run, analysis, column, records
from interp_toolkit.formatting import capital, counted, equals_p, listed, p_cell, percent
from interp_toolkit.models.about.info import token_words
from interp_toolkit.models.weights.view import ModelWeights, weights
from interp_toolkit.options import Options, Position
from interp_toolkit.plots import CLASS_COLORS
from interp_toolkit.results import Evidence, Figure, Status, Table, head_name, jsonable
from interp_toolkit.stats import LEVEL

if TYPE_CHECKING:
    import pandas as pd

COMPONENTS = 5  # components listed for one head
PAIRS = 20  # token pairs listed for one head
TOKENS = 5  # tokens listed at either end of a component
AXIS = 12  # tokens on either axis of the figure of pairs
BASIS = "weights alone: the computation of a head, not whether the model uses it"
NULL = "the residual coordinates that the head reads, randomly permuted and with random signs"


class HeadCircuitOptions(Options):
    """Options of `--probe qk` and `--probe ov`."""

    layer: int | None = Field(
        None, ge=0, description="Layer of the head to analyze, with --head; default: all heads."
    )
    head: int | None = Field(None, ge=0, description="The query head to analyze.")
    position: Position | None = Field(
        None,
        description="Position of the head's query and key, or source, if positions are learned "
        "(default: their mean); for rotary and ALiBi heads, the distance from key to query.",
    )

    @model_validator(mode="after")
    def _together(self) -> HeadCircuitOptions:
        if self.position == "all":
            raise ValueError("takes one position, not all")
        if (self.layer is None) != (self.head is None):
            raise ValueError("takes --layer and --head together, or neither")
        if self.position is not None and self.layer is None:
            raise ValueError("--position needs one head: give --layer and --head")
        return self


@dataclass(frozen=True)
class QKScores:
    """Matching scores of a head's QK circuit; see `weight_scores`."""

    name: str = column("head")
    layer: int = column()
    head: int = column()
    effective_rank: float | None = column("effective rank")
    qk_matching: float | None = column("matching (eigenvalues)")
    qk_diagonal: float | None = column("diagonal")
    qk_z: float | None = column("z")
    qk_p: float | None = column("p", format=p_cell)
    qk_p_adjusted: float | None = column("adjusted p", format=p_cell)


@dataclass(frozen=True)
class OVScores:
    """Copying scores of a head's OV circuit; see `weight_scores`."""

    name: str = column("head")
    layer: int = column()
    head: int = column()
    effective_rank: float | None = column("effective rank")
    ov_copying: float | None = column("copying (eigenvalues)")
    ov_diagonal: float | None = column("diagonal")
    ov_z: float | None = column("z")
    ov_p: float | None = column("p", format=p_cell)
    ov_p_adjusted: float | None = column("adjusted p", format=p_cell)


@dataclass(frozen=True)
class QKPair:
    """Attention score of a query token for a key token."""

    query: str = column("query")
    key: str = column("key")
    score: float = column("score")
    query_id: int = column()
    key_id: int = column()


@dataclass(frozen=True)
class OVPair:
    """Effect of attending to a source token on a token's logit."""

    source: str = column("source")
    logit: str = column("logit")
    score: float = column("score")
    source_id: int = column()
    logit_id: int = column()


@dataclass(frozen=True)
class SingularComponent:
    """A singular component of a circuit, with the tokens that stand out on one side of zero."""

    component: int = column("component")
    singular_value: float = column("singular value")
    share: float = column("share")
    sign: str = column("sign")


@dataclass(frozen=True)
class QKComponent(SingularComponent):
    """The component's tokens as queries and as keys."""

    query: str = column("query")
    key: str = column("key")


@dataclass(frozen=True)
class OVComponent(SingularComponent):
    """The component's tokens as sources and as outputs."""

    source: str = column("source")
    logit: str = column("logit")


@dataclass(frozen=True)
class HeadCircuitEvidence(Evidence):
    """Counts of heads whose circuits significantly map tokens to themselves."""

    basis: str = column("basis")
    null: str = column("null")
    level: float = column("level of the adjusted p-values")
    heads: int = column("heads with a score")
    significant: int = column("significant heads")


HEADS = (
    "Effective rank: participation ratio of the circuit's squared singular values. Eigenvalues: "
    "their sum over the sum of their absolute values. Diagonal: mean diagonal entry minus mean "
    "off-diagonal entry, over the root mean square of all entries. z and p test the trace against "
    "randomly permuted residual coordinates; p is adjusted over the OV and QK circuits of all "
    "heads."
)
PARTS = (
    "Singular components and their strongest tokens on either side; a component raises scores "
    "where both sides have the same sign. Share: fraction of the squared singular values."
)
LARGEST = "The largest scores."


@dataclass(frozen=True, kw_only=True)
class HeadCircuitFinding(Finding):
    """Scores of every head's circuit and, for a selected head, the parts of its circuit.

    Attributes:
        layer, head: the selected head; None if none was selected.
        singular_values: singular values of its circuit, in descending order.
        pairs, components: top token pairs and components of its circuit; empty without a selection.
        heads: scores of every head of the model.
    """

    evidence: HeadCircuitEvidence
    layer: int | None
    head: int | None
    singular_values: Sequence[float] = ()
    pairs: Sequence[Any] = ()
    components: Sequence[Any] = ()
    heads: Sequence[Any] = ()

    def tables(self) -> list[Table]:
        """Table of heads; for a selected head, tables of pairs and components come first."""
        return super().tables()[-1 if self.head is None else 0 :]

    def to_frame(self) -> pd.DataFrame:
        """Table of heads, or of the components of a selected head."""
        import pandas as pd

        return pd.DataFrame(list(self.heads if self.head is None else self.components))


@dataclass(frozen=True, kw_only=True)
class QKFinding(HeadCircuitFinding):
    """QK circuits: attention scores between tokens, from weights."""

    pairs: Sequence[QKPair] = records(QKPair, "Token pairs", LARGEST)
    components: Sequence[QKComponent] = records(QKComponent, "Components", PARTS)
    heads: Sequence[QKScores] = records(
        QKScores, "Heads", HEADS, lambda head: (head.qk_p_adjusted or 1) <= LEVEL
    )


@dataclass(frozen=True, kw_only=True)
class OVFinding(HeadCircuitFinding):
    """OV circuits: effects of attended tokens on the logits, from weights."""

    pairs: Sequence[OVPair] = records(OVPair, "Token pairs", LARGEST)
    components: Sequence[OVComponent] = records(OVComponent, "Components", PARTS)
    heads: Sequence[OVScores] = records(
        OVScores, "Heads", HEADS, lambda head: (head.ov_p_adjusted or 1) <= LEVEL
    )


class KindOfCircuit(NamedTuple):
    """The terms that differ between the QK and the OV analysis."""

    name: Literal["qk", "ov"]
    score: str
    kind: str  # kind of circuit with a significant score
    favors: str  # what a significant circuit does, compared with the null
    zero: str  # what a circuit without a score has
    sides: tuple[str, str]
    head: type[Any]
    pair: type[Any]
    component: type[Any]


QK_CIRCUIT = KindOfCircuit(
    "qk",
    "matching",
    "same-token QK",
    "gives same-token pairs higher scores than",
    "attention scores between token embeddings are zero",
    ("query", "key"),
    QKScores,
    QKPair,
    QKComponent,
)
OV_CIRCUIT = KindOfCircuit(
    "ov",
    "copying",
    "copying OV",
    "maps tokens to themselves more than",
    "direct path from token embeddings to logits of input tokens is zero",
    ("source", "logit"),
    OVScores,
    OVPair,
    OVComponent,
)


def analyze_qk(run: Run[HeadCircuitOptions]) -> QKFinding:
    """Analyze QK circuits; errors as in `analyze`."""
    return QKFinding(**analyze(run, QK_CIRCUIT))


def analyze_ov(run: Run[HeadCircuitOptions]) -> OVFinding:
    """Analyze OV circuits; errors as in `analyze`."""
    return OVFinding(**analyze(run, OV_CIRCUIT))


def analyze(run: Run[HeadCircuitOptions], circuit: KindOfCircuit) -> dict[str, Any]:
    """Fields of the finding: scores of all heads, and the parts of the selected head.

    Raises:
        InputError: the model has no such head, or its weights cannot be read exactly.
    """
    layer, head = run.options.layer, run.options.head
    run.progress(f"{circuit.name.upper()} scores of all heads")
    view = weights(run.model)
    frame = weight_scores(run.model, run.memory)
    other = OV_CIRCUIT if circuit is QK_CIRCUIT else QK_CIRCUIT
    beside = f"no {other.score} scores", f"{other.score} scores are"
    notes = [note for note in frame.attrs["notes"] if not any(b in note for b in beside)]
    scores = frame[["layer", "head"]].assign(effective_rank=effective_ranks(view, circuit.name))
    for name in (circuit.score, "diagonal", "z", "p", "p_adjusted"):
        scores[name.replace(circuit.score, "score")] = frame[f"{circuit.name}_{name}"]
    p_values = scores.p_adjusted.dropna().to_numpy(float)
    z_most = frame[f"{circuit.name}_z_most"].to_numpy(float)
    status, reason = comparisons_status(
        p_values,
        LEVEL,
        power=power_of_z(MATTERS * z_most, LEVEL, int(frame[["ov_p", "qk_p"]].count().sum())),
        least=f"a {circuit.kind} circuit of {percent(MATTERS)} of the largest {circuit.score}",
    )
    if not len(p_values):
        reason = reason_of_no_score(circuit, view, notes)
    counts = BASIS, NULL, LEVEL, len(p_values), int((p_values <= LEVEL).sum())
    heads = [
        circuit.head(head_name(*at), *at, *map(jsonable, values))
        for *at, values in zip(
            frame["layer"].tolist(),
            frame["head"].tolist(),
            scores.iloc[:, 2:].to_numpy(float),
            strict=True,
        )
    ]
    fields: dict[str, Any] = {"pairs": [], "components": [], "plots": [score_map(circuit, scores)]}
    if layer is None or head is None:
        sentences = sentences_of_all(circuit, scores, status, reason, notes)
    else:
        run.progress(head_name(layer, head))
        status, reason = only_described(None)
        fields, more = parts_of(circuit, view, (layer, head), run)
        notes += more
        own = scores[(scores["layer"] == layer) & (scores["head"] == head)].iloc[0]
        sentences = sentences_of_one(circuit, own, fields)
    return fields | {
        "headline": sentences[0],
        "findings": [*sentences[1:], *([USE] if len(p_values) else [])],
        "evidence": HeadCircuitEvidence(status, *counts, reason=reason),
        "provenance": run.provenance(),
        "layer": layer,
        "head": head,
        "heads": heads,
        "notes": notes,
    }


@torch.no_grad()
def effective_ranks(view: ModelWeights, circuit: Literal["qk", "ov"]) -> list[float]:
    """Effective rank `(sum s^2)^2 / sum s^4` over the singular values s of each head's circuit."""
    ranks: list[float] = []
    for layer in range(view.n_layers):
        try:
            if circuit == "qk":
                qk = view.layer(layer).folded()
                X, Y = read_through(qk.norm, qk.W_Q), read_through(qk.norm, qk.W_K)
            else:
                ov = view.ov(layer)
                X, Y = read_through(ov.norm, ov.W_V), written_through(ov.post_norm, ov.W_O).mT
        except InputError:
            ranks += [float("nan")] * view.n_heads
            continue
        small = torch.linalg.qr(X, mode="r").R @ torch.linalg.qr(Y, mode="r").R.mT
        squares = torch.linalg.svdvals(small.double()).square()
        ranks += (squares.sum(-1).square() / squares.square().sum(-1)).tolist()
    return ranks


Ends = Mapping[Any, Sequence[int]]  # (component, sign) -> top tokens at that end


def parts_of(
    circuit: KindOfCircuit, view: ModelWeights, head: tuple[int, int], run: Run[HeadCircuitOptions]
) -> tuple[dict[str, Any], list[str]]:
    """Singular values, components, pairs and figures of one head's circuit, and notes."""
    position = None if run.options.position == "all" else run.options.position
    parts = _qk_parts if circuit is QK_CIRCUIT else _ov_parts
    values, ends, scores, notes = parts(view, head, position)
    top, words = scores.top(PAIRS, run.memory), token_words(run.model)
    squares = values.double() ** 2
    shares = (squares / squares.sum()).tolist()
    components = []
    for i, value in enumerate(values.tolist()[:COMPONENTS]):
        for sign in "+-":
            texts = [", ".join(map(words, tokens[i, sign])) for tokens in ends]
            components.append(circuit.component(i, value, shares[i], sign, *texts))
    what = f"the {circuit.name.upper()} circuit of {head_name(*head)}"
    fields = {
        "singular_values": values.tolist(),
        "components": components,
        "pairs": [
            circuit.pair(words(p.row), words(p.column), p.score, p.row, p.column) for p in top
        ],
        "plots": [pair_figure(scores, top, words, circuit.sides), spectrum(values.tolist(), what)],
    }
    return fields, [*notes, *([scores.note] if scores.note else [])]


Parts = tuple[Tensor, tuple[Ends, Ends], TokenScores, list[str]]


def _ov_parts(view: ModelWeights, head: tuple[int, int], position: int | None) -> Parts:
    ov = ov_circuit(None, *head, view=view)
    parts = ov.svd(position)

    def ends(readout: Float[Tensor, "component token"]) -> Ends:
        signs = {"+": readout, "-": -readout}
        top = {sign: r.topk(min(TOKENS, r.shape[1])).indices.tolist() for sign, r in signs.items()}
        return {(i, sign): top[sign][i] for sign in top for i in range(len(readout))}

    at_ends = ends(parts.source_readout), ends(parts.logit_readout)
    return parts.singular_values, at_ends, ov.tokens(position), []


def _qk_parts(view: ModelWeights, head: tuple[int, int], position: int | None) -> Parts:
    """Parts of a QK circuit at a position, or at a distance for rotary and ALiBi heads."""
    qk, notes = qk_circuit(None, *head, view=view), list[str]()
    if qk.rotary is not None or qk.alibi is not None:
        qk = qk.at_distance(position or 0)
        notes.append(f"the key is {position or 0} positions before the query")
        scores = qk.tokens()
    else:
        scores = qk.tokens(position, position)
    parts = qk.svd()
    tokens: dict[str, dict[Any, list[int]]] = {"query": {}, "key": {}}
    for component, side, end, _, token, _ in parts.top_tokens(TOKENS, COMPONENTS).to_numpy():
        tokens[side].setdefault((component, end), []).append(token)
    return parts.singular_values, (tokens["query"], tokens["key"]), scores, notes


SCALE = "scale: -1 if all eigenvalues are negative, 1 if all are positive"
USE = "Weights alone do not show whether the model uses such a circuit."


def name_of(head: pd.Series) -> str:
    """Name of the head in a row of scores."""
    return head_name(int(head["layer"]), int(head["head"]))


def reason_of_no_score(circuit: KindOfCircuit, view: ModelWeights, notes: Sequence[str]) -> str:
    """Why no head has a score: weights that cannot be read, too few tokens, or zero circuits."""
    if unread := _unread(circuit, notes):
        return unread[0].partition(": ")[2]
    if (view.d_vocab if circuit is QK_CIRCUIT else shared_tokens(view)) < 2:
        return "there are fewer than two tokens to compare"
    undefined = "so the score (sum of eigenvalues over sum of their absolute values) is undefined"
    return f"every head's {circuit.zero}, {undefined}"


def _unread(circuit: KindOfCircuit, notes: Sequence[str]) -> list[str]:
    """The notes on weights that cannot be read for this circuit."""
    return [note for note in notes if note.startswith((f"no {circuit.score} scores", "layer "))]


def _others(circuit: KindOfCircuit, n: int, notes: Sequence[str]) -> str:
    """The number of heads without a score, and why they have none."""
    if not n:
        return ""
    heads, whose = ("other head has", "its") if n == 1 else ("other heads have", "their")
    why = f"{whose} {circuit.zero}"
    if _unread(circuit, notes):
        why = f"the notes give the reason, or {why}"
    return f" {n} {heads} no score: {why}."


def sentences_of_all(
    circuit: KindOfCircuit,
    scores: pd.DataFrame,
    status: Status,
    reason: str | None,
    notes: Sequence[str],
) -> list[str]:
    """Headline and findings: heads with significant scores, highest score first."""
    scored = scores[scores.p_adjusted.notna()]
    if not len(scored):
        headline = f"No {circuit.score} score can be computed for any head."
        return [headline, f"Undecided: {reason}."]
    # scores that print alike are sorted by the diagonal score, so rounding does not decide
    scored = scored.assign(read=[float(f"{score:.3g}") for score in scored.score])
    scored = scored.sort_values(["read", "diagonal"], ascending=False, kind="stable")
    beyond = scored[scored.p_adjusted <= LEVEL]
    names = [head_name(*at) for at in zip(beyond["layer"], beyond["head"], strict=True)]
    headline = f"No {circuit.kind} circuit is detected from weights alone."
    if status == "undecided":
        headline = f"Whether any head has a {circuit.kind} circuit is undecided from weights alone."
    if names:
        plural = "s" if len(names) > 1 else ""
        headline = (
            f"{capital(circuit.kind)} circuit{plural}, from weights alone: {listed(names, 6)}."
        )
    if len(names) == len(scored) > 1:
        headline = f"{capital(circuit.kind)} circuits, from weights alone: all {len(names)} heads."
    of = beyond if names else scored
    best = of.iloc[0]
    alike = listed([name_of(head) for _, head in of[of["read"] == best["read"]].iterrows()], 4)
    which = "significant " if names else ""
    highest = f"Highest {which}{circuit.score} score: {best.score:.3g} in {alike} ({SCALE})"
    if math.isnan(best.score):
        highest = f"The {circuit.score} score of {name_of(best)} is undefined (eigenvalues of 0)"
    return [
        headline,
        f"Heads whose circuit {circuit.favors} with randomly permuted residual "
        f"coordinates: {len(names)} of {len(scored)} (p ≤ {LEVEL:g}, Holm over the OV and QK "
        "circuits of all heads)." + _others(circuit, len(scores) - len(scored), notes),
        f"{highest}; the trace of {name_of(best)}'s, the sum of the eigenvalues, has "
        f"z = {best.z:.1f}, "
        f"{equals_p(best.p_adjusted, 'adjusted one-sided p')}"
        f"{'' if names else '; not significant against permuted coordinates'}.",
    ]


def sentences_of_one(
    circuit: KindOfCircuit, head: pd.Series, fields: Mapping[str, Any]
) -> list[str]:
    """Headline and findings for one head: effective rank, largest entry, and score."""
    what = f"The {circuit.name.upper()} circuit of {name_of(head)}"
    if math.isnan(head.effective_rank):
        return [f"{what} is zero."]
    first, count = fields["pairs"][0], len(fields["singular_values"])
    left, right = (f"{side} {getattr(first, side)}" for side in circuit.sides)
    ties = sum(f"{pair.score:.4g}" == f"{first.score:.4g}" for pair in fields["pairs"]) - 1
    more = f", and of {counted(ties, 'more pair')} in the table" if ties else ""
    sentences = [
        f"{what} has an effective rank (participation ratio) of "
        f"{head.effective_rank:.3g}, of at most {count}.",
        f"Its largest score is {first.score:.4g}, from {left} to {right}{more}.",
    ]
    if not math.isnan(head.score):
        sentences.append(
            f"Its {circuit.score} score is {head.score:.3g} ({SCALE}), z = {head.z:.1f}, "
            f"{equals_p(head.p_adjusted, 'adjusted p')} (Holm over the OV and QK circuits of all "
            "heads)."
        )
    return sentences


def score_map(circuit: KindOfCircuit, scores: pd.DataFrame) -> Figure:
    """Plot the eigenvalue score of every head as a map of layers by heads."""
    shape = scores["layer"].nunique(), scores["head"].nunique(), -1
    cells = scores["score"].to_numpy(float).reshape(shape[:2]).tolist()
    beside = scores[["effective_rank", "z", "p_adjusted"]].to_numpy(float).reshape(shape)
    rows, columns = list(range(shape[0])), list(range(shape[1]))
    trace = plots.heatmap(columns, rows, cells, "score", low=-1, high=1) | plots.TILES
    trace |= plots.hover(
        "head %{y}.%{x}<br>score %{z:.3g}<br>effective rank %{customdata[0]}"
        "<br>z %{customdata[1]}<br>adjusted p %{customdata[2]}",
        plots.rounded(beside.tolist(), 3),
    )
    layout = plots.layout(
        plots.axis("head") | plots.whole(len(columns)), plots.axis("layer") | plots.whole(len(rows))
    )
    caption = (
        f"The {circuit.score} score of every head, from its circuit's eigenvalues: 1 where all are "
        "positive, 0 where they cancel, -1 where all are negative."
    )
    return Figure(f"{circuit.score.capitalize()} scores", caption, [trace], layout)


def pair_figure(
    scores: TokenScores,
    top: Sequence[TokenPair],
    words: Callable[[int], str],
    sides: tuple[str, str],
) -> Figure:
    """Plot the scores among the tokens of the top pairs."""
    rows = list(dict.fromkeys(pair.row for pair in top))[:AXIS]
    columns = list(dict.fromkeys(pair.column for pair in top))[:AXIS]
    grid = torch.cartesian_prod(torch.tensor(rows), torch.tensor(columns))
    values = scores.score(grid[:, 0], grid[:, 1]).reshape(len(rows), len(columns))
    largest, cells = float(values.abs().max()), plots.rounded(values.tolist())
    texts = distinct(columns, words), distinct(rows, words)
    trace = plots.heatmap(*texts, cells, "score", low=-largest, high=largest)
    trace |= plots.hover(f"{sides[0]} %{{y}}<br>{sides[1]} %{{x}}<br>score %{{z:.4g}}")
    layout = plots.layout(
        plots.axis(sides[1], "category"), plots.axis(sides[0], "category") | plots.DOWNWARD
    )
    caption = f"Scores of the top pairs' tokens: {sides[0]} (rows) by {sides[1]} (columns)."
    return Figure("Token pairs", caption, [trace], layout)


def distinct(tokens: Sequence[int], words: Callable[[int], str]) -> list[str]:
    """Tokens as text, with ids if two have the same text."""
    texts = [words(token) for token in tokens]
    if len(set(texts)) == len(texts):
        return texts
    return [f"{text} ({token})" for text, token in zip(texts, tokens, strict=True)]


def spectrum(values: Sequence[float], what: str) -> Figure:
    """Plot the singular values of a circuit."""
    trace = plots.bars(range(len(values)), values, CLASS_COLORS[0]) | plots.NO_LEGEND
    layout = plots.layout(plots.axis("component"), plots.axis("singular value") | plots.FROM_ZERO)
    return Figure("Spectrum", f"Singular values of {what}, the largest first.", [trace], layout)


def unfit(model: Any, data: FeatureData | None) -> str | None:
    """Reason why a plain `interp analyze` does not run the analysis."""
    return "needs --layer and --head, or --probe with its name"


QK = analysis(
    "qk",
    "which tokens each head attends to from each query token, from weights",
    HeadCircuitOptions,
    analyze_qk,
    unfit,
    reads_stream=True,
)
OV = analysis(
    "ov",
    "how each head changes the logits for a token that it attends to, from weights",
    HeadCircuitOptions,
    analyze_ov,
    unfit,
    reads_stream=True,
)
