"""Claims about a model, written as a small file, as flags, or as a sentence.

A file is YAML or JSON: one claim, or a list of them, also under `claims`. Each claim has one of
five keys, which gives its kind:

    claims:
      - heads: [L5H1, L6H9]          # each head is a claim of its own
        relation: induction          # a detector's name
        says: contributes            # attends | contributes | carries
      - circuit: edges.json          # EAP-IG or MIB edge JSON, our JSON or GraphML, or a list
        says: sufficient             # sufficient | necessary | both
      - direction: direction.npy     # or the numbers
        hook: blocks.3.hook_resid_post
        position: -1
        says: reads                  # reads | carries | steers
        features: [a, b]
        table: "0110"
      - pair: {head: L0H3, key: 12, query: 7}
      - algorithm: argmax_piecewise_linear
        layout: 10 list10 11 sorted10

A sentence is a claim about heads if the grammar of `grammar` accounts for every word of it.

A claim in a file may name only files inside that file's folder. Named files are read at once, so
that a claim in memory is complete and can be sealed (see `seal`). `text` keeps the author's words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from interp_toolkit.auditing.claims.circuit_files import circuit_names, edges_of_file
from interp_toolkit.auditing.claims.grammar import SYNTHETIC, fields_of, sentence_of
from interp_toolkit.circuits.sorting.criteria import ARGMAX, MIN_GREATER
from interp_toolkit.errors import InputError, reason_of, suggestion
from interp_toolkit.files import RECORD, check_file, read_yaml
from interp_toolkit.models.features.direction_files import SUFFIXES, read_directions
from interp_toolkit.models.model import Head, as_head
from interp_toolkit.results import head_name

MOST_CLAIMS = 1000


def _as_heads(value: Any) -> Any:
    several = isinstance(value, list | tuple) and not (
        len(value) == 2 and all(isinstance(n, int) for n in value)
    )
    return tuple(dict.fromkeys(as_head(one) for one in (value if several else [value])))


def _as_numbers(value: Any) -> Any:
    if not isinstance(value, list | tuple | np.ndarray):
        raise ValueError("give a direction as a list of numbers or a file name")
    numbers = np.asarray(value, dtype=object).ravel()
    if any(isinstance(n, bool) or not isinstance(n, int | float) for n in numbers.tolist()):
        raise ValueError("a direction is a list of numbers")
    return tuple(float(n) for n in numbers)


class BaseClaim(BaseModel):
    """The fields that all claims share.

    Attributes:
        text: the author's words.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    text: str | None = Field(None, max_length=2000)

    @property
    def about(self) -> str:
        """The claim as a phrase, for tables."""
        raise NotImplementedError

    def each(self) -> Sequence[BaseClaim]:
        """The claims that are tested separately: this one, or one per head."""
        return [self]


class PromptedClaim(BaseClaim):
    """A claim about what a model does on prompts with a task.

    Attributes:
        prompts: "synthetic": on synthetic repeated tokens; None: on the prompts of the audit. An
            audit without prompts makes the claims that it tests claims about synthetic ones.
    """

    prompts: Literal["synthetic"] | None = None

    def on_synthetic_prompts(self) -> PromptedClaim:
        """The same claim, about synthetic prompts."""
        return self.model_copy(update={"prompts": "synthetic"})


class HeadsClaim(PromptedClaim):
    """Heads have an attention pattern, and the model's performance may depend on it.

    Attributes:
        heads: each is tested separately.
        relation: name of a detector (see `interp list`).
        says: attends: the heads have the pattern; contributes: the metric depends on that
            attention, in part; carries: at least half of the metric does.
        at_least: the claimed fraction of the metric (for attends: the excess attention); None: the
            default of `says`.
        hops: number of hops of the relation k-hop.
    """

    heads: Annotated[tuple[Head, ...], BeforeValidator(_as_heads)] = Field(min_length=1)
    relation: str = Field(min_length=1)
    says: Literal["attends", "contributes", "carries"] = "contributes"
    at_least: float | None = Field(None, gt=0, le=1)
    hops: int = Field(2, ge=2, le=16)

    @property
    def about(self) -> str:
        """The claim as a sentence, such as `L5H1's induction attention contributes to the task`."""
        return sentence_of(
            self.heads, self.relation, self.says, self.at_least, self.hops, self.prompts
        )

    def each(self) -> Sequence[BaseClaim]:
        """One claim per head."""
        return [self.model_copy(update={"heads": (head,)}) for head in self.heads]


class CircuitClaim(PromptedClaim):
    """Some edges are sufficient for what the model does, necessary for it, or both.

    Attributes:
        circuit: names of edges, as EAP-IG writes them, or of nodes, which stand for all edges
            between them.
        says: sufficient: the edges alone do what the model does; necessary: without them it fails.
        within: tolerated deviation of a sufficient circuit from the whole metric, as a fraction.
    """

    circuit: tuple[str, ...] = Field(min_length=1)
    says: Literal["sufficient", "necessary", "both"] = "sufficient"
    within: float = Field(0.2, gt=0, lt=1)

    @property
    def about(self) -> str:
        """The claim as text, such as `a circuit of 8 edges is sufficient`."""
        edges = all("->" in name for name in self.circuit)
        n, what = len(self.circuit), "edge" if edges else "node"
        word = "sufficient and necessary" if self.says == "both" else self.says
        where = "" if self.prompts is None else f" {SYNTHETIC}"
        return f"a circuit of {n} {what}{'s' * (n != 1)} is {word}{where}"


class DirectionClaim(BaseClaim):
    """A direction of activations reads a function of features, or the answers depend on it.

    Attributes:
        direction: its components; its length matters to steering only.
        hook, position: hook point and position of the activations; negative positions count from
            the end; None: the data's own, or the last.
        head: at a hook with one entry per head.
        says: reads: a threshold on the component along it classifies the function of the features;
            carries: exchanging that component with that of the corrupted prompt moves the answers
            most of the way to those of the corrupted prompt; steers: adding `by` times the
            direction makes the model prefer the wrong answers.
        features, table: the function, for reads: names of the data's features, the first most
            significant, and its truth table; without a table, a single feature.
        at_least: the claimed fraction: of prompts classified correctly in each class, of the way to
            the corrupted prompt, of answers changed; None: the default of `says`.
        by: factor of the direction for steering.
    """

    direction: Annotated[tuple[float, ...], BeforeValidator(_as_numbers)] = Field(min_length=1)
    hook: str = Field(min_length=1)
    position: int | None = None
    head: int | None = Field(None, ge=0)
    says: Literal["reads", "carries", "steers"] = "reads"
    features: tuple[str, ...] = ()
    table: str | None = Field(None, pattern="^[01]+$")
    at_least: float | None = Field(None, gt=0, le=1)
    by: float = 1.0

    @property
    def about(self) -> str:
        """The claim as text: `a direction at blocks.0.hook_resid_post reads 0110 of a, b`."""
        what = f" {self.function}" if self.says == "reads" else " the answers"
        return f"a direction at {self.hook} {self.says}{what}"

    @property
    def function(self) -> str:
        """The function that is read, as a phrase."""
        names = ", ".join(self.features)
        return names if self.table is None else f"{self.table} of {names}"


class _Pair(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    head: Annotated[Head, BeforeValidator(as_head)]
    key: int = Field(ge=0)
    query: int = Field(ge=0)


class PairClaim(BaseClaim):
    """A head has a skip-bigram: one token's query checks for another token's key.

    Attributes:
        pair: the head, and the tokens' ids.
        at_least: distance of the query's score for the key above its scores for other tokens, in
            standard deviations of these; None: the default.
    """

    pair: _Pair
    at_least: float | None = Field(None, gt=0)

    @property
    def about(self) -> str:
        """The claim as text, such as `L0H3 has the skip-bigram 12 ... 7 on random tokens`."""
        return (
            f"{head_name(*self.pair.head)} has the skip-bigram {self.pair.key} … {self.pair.query} "
            "on random tokens"
        )


class AlgorithmClaim(BaseClaim):
    """A one-layer model sorts lists by this algorithm.

    Attributes:
        algorithm: its name.
        layout: positions of the list and its sorted form in a prompt; None: that of the model's
            task.
    """

    algorithm: Literal["min_greater_than_previous", "argmax_piecewise_linear"]
    layout: str | None = None

    @property
    def about(self) -> str:
        """The claim as text: `the model sorts random lists by argmax_piecewise_linear`."""
        return f"the model sorts random lists by {self.algorithm}"


KINDS: Mapping[str, type[BaseClaim]] = {
    "heads": HeadsClaim,
    "circuit": CircuitClaim,
    "direction": DirectionClaim,
    "pair": PairClaim,
    "algorithm": AlgorithmClaim,
}
assert {ARGMAX, MIN_GREATER} <= set(
    AlgorithmClaim.model_fields["algorithm"].annotation.__args__  # type: ignore[union-attr]
)


def read_claims(path: Path) -> list[BaseClaim]:
    """The claims of a file.

    Raises:
        InputError: the file cannot be read, or a claim in it is invalid; names the claim.
    """
    data = read_yaml(path)
    if isinstance(data, Mapping) and set(data) == {"claims"}:
        data = data["claims"]
        if not isinstance(data, list):
            raise InputError(f"{path}: claims must be a list of claims")
    items = data if isinstance(data, list) else [data]
    if not items:
        raise InputError(f"{path} holds no claim")
    if len(items) > MOST_CLAIMS:
        raise InputError(f"{path} holds {len(items)} claims; the limit is {MOST_CLAIMS}")
    several = len(items) > 1
    return [
        as_claim(one, f"{path}, claim {n}" if several else str(path), path.parent)
        for n, one in enumerate(items, start=1)
    ]


def as_claim(content: Any, source: str = "the claim", folder: Path | None = None) -> BaseClaim:
    """A claim from a mapping, as a file has it, or a sentence.

    Args:
        content: the mapping, the sentence, or a claim, which is returned unchanged.
        source: its origin, for errors.
        folder: where files that it names must lie; None: anywhere (for the user's own claims).

    Raises:
        InputError: an invalid claim, or a file in it that cannot be read.

    Examples:
        >>> as_claim({"heads": ["L5H1"], "relation": "induction"}).about
        "L5H1's induction attention contributes to the task"
        >>> as_claim("L5H1 and L6H9 are induction heads").about
        'the induction attention of each of L5H1 and L6H9 contributes to the task'
    """
    if isinstance(content, BaseClaim):
        return content
    if isinstance(content, str):
        return HeadsClaim(**fields_of(content), text=content)
    if not isinstance(content, Mapping):
        raise InputError(f"{source} must be a mapping that begins with {', '.join(KINDS)}")
    keys = [str(key) for key in content]
    kinds = [key for key in keys if key in KINDS]
    if len(kinds) != 1:
        problem = f"says {' and '.join(kinds)}" if kinds else "does not name its subject"
        raise InputError(f"{source} {problem}; give one of {', '.join(KINDS)}")
    fields = {str(key): value for key, value in content.items()}
    try:
        return KINDS[kinds[0]](**_resolved(fields, folder))
    except ValidationError as error:
        raise InputError(f"{source}: {_explained(error, KINDS[kinds[0]])}") from error
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    except OverflowError as error:
        raise InputError(f"{source} contains a number that is too large") from error


def _file(name: str, folder: Path | None) -> Path:
    """The path of an existing file that a claim names, in an allowed folder."""
    if "\0" in name:
        raise InputError("a file name cannot contain a null character")
    path = Path(name) if folder is None else folder / name
    if folder is not None and not path.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{name} is outside the claim's folder; put it into that folder")
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    try:
        check_file(path, RECORD)
    except OSError as error:
        raise InputError(f"{path}: {reason_of(error)}") from error
    return path


def _resolved(fields: dict[str, Any], folder: Path | None) -> dict[str, Any]:
    """The fields with the contents of the files that they name."""
    direction, circuit = fields.get("direction"), fields.get("circuit")
    if isinstance(direction, str):
        fields["direction"] = _vector(direction, folder)
    if isinstance(circuit, str):
        fields["circuit"] = edges_of_file(_file(circuit, folder))
    elif isinstance(circuit, list | tuple):
        fields["circuit"] = circuit_names(circuit)
    if isinstance(fields.get("table"), int):
        raise InputError(f'put the table in quotes: table: "{fields["table"]}"')
    return fields


def _vector(name: str, folder: Path | None) -> list[float]:
    if Path(name).suffix.lower() not in SUFFIXES:
        raise InputError(
            f"{name}: give the direction as numbers or as a file: {', '.join(SUFFIXES)}, or its "
            "numbers"
        )
    path = _file(name, folder)
    matrix, _ = read_directions(path, one=True)
    if len(matrix) != 1:
        raise InputError(f"{path} holds {len(matrix)} directions; give a file with exactly one")
    vector: list[float] = matrix[0].double().tolist()
    return vector


def _explained(error: ValidationError, kind: type[BaseClaim]) -> str:
    """One error as text, with its key; an unknown key comes first."""
    first = min(error.errors(), key=lambda detail: detail["type"] != "extra_forbidden")
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"there is no key {key!r}{suggestion(key[:60], kind.model_fields)}"
    if first["type"] == "missing":
        return f"the key {key!r} is missing"
    message = first["msg"].removeprefix("Value error, ").replace("Input should", "it must")
    return f"{key[:60]}: {message}"
