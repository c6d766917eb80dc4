"""Grammar of claims about heads: the sentences that are read as claims, and the claim of each.

A sentence is read only if one of FORMS accounts for every word of it. Other sentences are refused,
since a word that is left out may deny, limit or compare the rest: "lacks", "rarely", "the only",
"unlike L1H1", "in 10 % of prompts". In a form, `a|b` is one of two words, `[a]` may be left out,
and a slot in braces stands for:

    {head}      L5H1, a5.h1, "head L5H1", "the (attention) head L5H1"
    {heads}     two or more: "L5H1 and L6H9", "heads L5H1, L6H9 and L7H0"
    {owner}     "L5H1's"
    {name}      a registered detector, or "3-hop" for k-hop with 3 hops
    {kind}      the same; the name of a built-in detector also without hyphen ("previous token")
    {keys}      a phrase of `detectors.KEY_PHRASES`, such as "the previous token"
    {quantity}  "at least" or "more than", then a fraction: 0.3, 30 %, half

Every form may end in "on synthetic repeated tokens": the claim is then about these prompts. A word
counts as a whole ("anti-induction" is not "induction"). Case, the kind of dash and one full stop at
the end do not matter. `sentence_of` is the one sentence that shows a claim; reading it gives the
same claim.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache
from itertools import product
from typing import Any

from interp_toolkit.circuits.heads.detectors import KEY_PHRASES, OURS
from interp_toolkit.errors import InputError, some_of, with_article
from interp_toolkit.models.model import Head
from interp_toolkit.results import head_name

_SUBJECTS = (
    "{owner} {kind} attention",
    "the {kind} attention of {head}",
    "the {kind} attention of each of {heads}",
)
_EXCESS = "with an excess of {quantity}"
SYNTHETIC = "on synthetic repeated tokens"  # the end of a claim about these prompts
#: forms of each value of `says`
FORMS: Mapping[str, tuple[str, ...]] = {
    "attends": (
        f"{{head}} attends to {{keys}} [{_EXCESS}]",
        f"{{head}} attends by {{name}} [{_EXCESS}]",
        f"{{head}} has|shows [a|an] {{kind}} attention [pattern] [{_EXCESS}]",
        f"{{head}} has|shows a|an {{kind}} pattern [{_EXCESS}]",
        "{heads} attend to {keys}",
        "{heads} attend by {name}",
        "{heads} have|show [a|an] {kind} attention [pattern]",
        "{heads} have|show a|an {kind} pattern",
        "{heads} have|show {kind} [attention] patterns",
        f"{{heads}} each attend to {{keys}} [{_EXCESS}]",
        f"{{heads}} each attend by {{name}} [{_EXCESS}]",
        f"{{heads}} each have|show [a|an] {{kind}} attention [pattern] [{_EXCESS}]",
        f"{{heads}} each have|show a|an {{kind}} pattern [{_EXCESS}]",
    ),
    "contributes": (
        "{head} is a|an {kind} [attention] head",
        "{head} acts as a|an {kind} [attention] head",
        "{head} contributes to {name}",
        "{head} matters for {name}",
        "{heads} are [each] {kind} [attention] heads",
        "{heads} [each] act as {kind} [attention] heads",
        "{heads} [each] contribute to {name}",
        "{heads} [each] matter for {name}",
        *(f"{subject} contributes to the task|metric" for subject in _SUBJECTS),
        *(f"{subject} matters for the task|metric" for subject in _SUBJECTS),
        *(f"{subject} contributes {{quantity}} of|to the task|metric" for subject in _SUBJECTS),
    ),
    "carries": (
        "{head} implements|performs|carries|does {name}",
        "{head} is major for {name}",
        "{heads} [each] implement|perform|carry|do {name}",
        "{heads} are [each] major for {name}",
        *(f"{subject} is major for the task|metric" for subject in _SUBJECTS),
        *(f"{subject} carries {{quantity}} of the task|metric" for subject in _SUBJECTS),
    ),
}
LONGEST = 2000  # characters of a sentence
_TOKEN = re.compile(r"[^\s,%]+|[,%]")
_PLAIN = str.maketrans(
    dict.fromkeys("_\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d", "-") | {"\u2019": "'"}
)
_HEAD = re.compile(r"l([0-9]{1,4})h([0-9]{1,4})|a([0-9]{1,4})\.h([0-9]{1,4})")
_HOPS = re.compile(r"([2-9]|1[0-6])-hop")
_NUMBER = re.compile(r"[0-9]{1,400}(?:\.[0-9]{1,400})?")
_MOST_SHOWN = 4  # heads in the sentence that an error proposes
_ATTENDING = {"attend", "attends", "attention", "has", "have", "pattern", "patterns"}

_Words = tuple[str, ...]
_Fields = dict[str, Any]


def fields_of(sentence: str) -> dict[str, Any]:
    """The fields of the claim that a sentence makes: those of a `HeadsClaim`, except `text`.

    Raises:
        InputError: no form of the grammar accounts for every word. The message names the first word
            that is not understood, and the nearest sentence that is.

    Examples:
        >>> claim = fields_of("L5H1's induction attention contributes at least 30 % of the metric")
        >>> claim["relation"], claim["says"], claim["at_least"]
        ('induction', 'contributes', 0.3)
    """
    if len(sentence) > LONGEST:
        raise InputError(f"a claim in words has at most {LONGEST} characters, not {len(sentence)}")
    tokens = _tokens(sentence)
    reader = _Reader([_plain(token) for token in tokens])
    claims: list[_Fields] = []
    for says, forms in FORMS.items():
        for form in (elements for text in forms for elements in _elements(f"{text} [{{prompts}}]")):
            for fields in reader.read(form, 0):
                claim = fields | {"says": says}
                if claim not in claims:
                    claims.append(claim)
    if len(claims) == 1:
        return claims[0]
    if claims:
        readings = " or ".join(sentence_of(**claim) for claim in claims[:2])
        raise InputError(f"the claim is ambiguous: {readings}; give it in a file or as options")
    raise InputError(_problem(sentence, tokens, reader))


def sentence_of(
    heads: Sequence[Head],
    relation: str,
    says: str = "contributes",
    at_least: float | None = None,
    hops: int = 2,
    prompts: str | None = None,
) -> str:
    """The sentence that shows a claim about heads.

    Examples:
        >>> sentence_of([Head(5, 1)], "induction")
        "L5H1's induction attention contributes to the task"
        >>> sentence_of([Head(5, 1), Head(6, 9)], "k-hop", "attends", 0.5, hops=3)
        'L5H1 and L6H9 each have 3-hop attention with an excess of at least 50 %'
    """
    names, single = _listed(heads), len(heads) == 1
    kind = f"{hops}-hop attention" if relation == "k-hop" else f"{relation} attention"
    amount = "" if at_least is None else f"at least {_percent(at_least)}"
    where = "" if prompts is None else f" {SYNTHETIC}"
    if says == "attends":
        excess = f" with an excess of {amount}" if amount else ""
        return f"{names} {'has' if single else 'each have'} {kind}{excess}{where}"
    subject = f"{names}'s {kind}" if single else f"the {kind} of each of {names}"
    if amount:
        return f"{subject} {says} {amount} of the metric{where}"
    role = "contributes to" if says == "contributes" else "is major for"
    return f"{subject} {role} the task{where}"


def _listed(heads: Sequence[Head]) -> str:
    names = [head_name(*head) for head in heads]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _percent(fraction: float) -> str:
    """A fraction as a percentage with all of its digits."""
    return f"{(Decimal(repr(fraction)) * 100).normalize():f} %"


def _plain(token: str) -> str:
    return token.translate(_PLAIN).lower()


def _tokens(sentence: str) -> list[str]:
    """The words of a sentence, without a full stop at its end."""
    tokens = _TOKEN.findall(sentence)
    if tokens and tokens[-1].endswith("."):
        tokens[-1:] = [tokens[-1][:-1]] if len(tokens[-1]) > 1 else []
    return tokens


def _words(text: str) -> _Words:
    return tuple(_plain(token) for token in _TOKEN.findall(text))


@cache
def _elements(form: str) -> list[tuple[frozenset[str] | str, ...]]:
    """A form as sequences of slots and sets of words, one sequence for each choice of options."""
    options = [
        [part[1:-1], ""] if part.startswith("[") else [part]
        for part in re.findall(r"\[[^\]]*\]|\S+", form)
    ]
    return [
        tuple(
            word.strip("{}") if word.startswith("{") else frozenset(word.split("|"))
            for word in " ".join(chosen).split()
        )
        for chosen in product(*options)
    ]


def _names() -> dict[_Words, list[_Fields]]:
    """The registered detectors by the words of their names."""
    from interp_toolkit.registry import names

    fields_of: dict[_Words, list[_Fields]] = {}
    for name in names("detectors"):
        fields_of.setdefault(_words(name), []).append({"relation": name})
    return fields_of


def _kinds(by_name: Mapping[_Words, list[_Fields]]) -> dict[_Words, list[_Fields]]:
    """The detectors by their names, those of built-in ones also without hyphen."""
    spaced: dict[_Words, list[_Fields]] = {
        _words(name.replace("-", " ")): [{"relation": name}] for name in OURS
    }
    return spaced | dict(by_name)


_KEYS: dict[_Words, list[_Fields]] = {
    _words(phrase): [{"relation": name}]
    for name, phrases in KEY_PHRASES.items()
    for phrase in phrases
}


class _Reader:
    """Reads a sentence by forms, and records how far any of them reached."""

    def __init__(self, words: Sequence[str]):
        self.words = words
        self.furthest = 0
        self.phrases = {"name": _names(), "keys": _KEYS}
        self.phrases["kind"] = _kinds(self.phrases["name"])

    def read(self, form: Sequence[frozenset[str] | str], at: int) -> Iterator[_Fields]:
        """The fields of every reading of the words from `at` on that leaves none over."""
        if not form:
            self.furthest = max(self.furthest, at)
            if at == len(self.words):
                yield {}
            return
        first = form[0]
        ends = self._slot(first, at) if isinstance(first, str) else self._word(first, at)
        for end, fields in ends:
            for rest in self.read(form[1:], end):
                yield fields | rest

    def _is(self, at: int, *words: str) -> bool:
        """Whether one of the words stands at a place."""
        self.furthest = max(self.furthest, at)
        return at < len(self.words) and self.words[at] in words

    def _word(self, words: frozenset[str], at: int) -> Iterator[tuple[int, _Fields]]:
        if self._is(at, *words):
            yield at + 1, {}

    def _slot(self, slot: str, at: int) -> Iterator[tuple[int, _Fields]]:
        if slot in ("head", "heads", "owner"):
            return self._heads(slot, at)
        if slot == "prompts":
            return self._prompts(at)
        return self._quantity(at) if slot == "quantity" else self._phrase(slot, at)

    def _prompts(self, at: int) -> Iterator[tuple[int, _Fields]]:
        words = _words(SYNTHETIC)
        if all(self._is(at + i, word) for i, word in enumerate(words)):
            yield at + len(words), {"prompts": "synthetic"}

    def _heads(self, slot: str, at: int) -> Iterator[tuple[int, _Fields]]:
        the = self._is(at, "the")
        attention = self._is(at + the, "attention")
        noun = self._is(at + the + attention, "heads" if slot == "heads" else "head")
        if (the or attention) and not noun:
            return
        at += the + attention + noun
        heads = [self._head(at, "'s" if slot == "owner" else "")]
        at += 1
        while slot == "heads" and heads[-1] is not None and self._is(at, ",", "and"):
            at += 2 if self.words[at] == "," and self._is(at + 1, "and") else 1
            heads.append(self._head(at))
            at += 1
        if None not in heads and (len(heads) > 1) == (slot == "heads"):
            yield at, {"heads": tuple(dict.fromkeys(heads))}

    def _head(self, at: int, ending: str = "") -> Head | None:
        self.furthest = max(self.furthest, at)
        if at < len(self.words) and self.words[at].endswith(ending):
            return _as_head(self.words[at].removesuffix(ending))
        return None

    def _phrase(self, slot: str, at: int) -> Iterator[tuple[int, _Fields]]:
        for words, readings in self.phrases[slot].items():
            if all(self._is(at + i, word) for i, word in enumerate(words)):
                for fields in readings:
                    yield at + len(words), fields
        hops = _HOPS.fullmatch(self.words[at]) if at < len(self.words) else None
        if hops and slot != "keys" and ("k-hop",) in self.phrases["name"]:
            number = {} if hops[1] == "2" else {"hops": int(hops[1])}
            yield at + 1, {"relation": "k-hop"} | number

    def _quantity(self, at: int) -> Iterator[tuple[int, _Fields]]:
        at_least = self._is(at, "at") and self._is(at + 1, "least")
        if not at_least and not (self._is(at, "more") and self._is(at + 1, "than")):
            return
        at += 2
        if self._is(at, "half"):
            yield at + 1, {"at_least": 0.5}
        elif at < len(self.words) and _NUMBER.fullmatch(self.words[at]):
            number, after = Decimal(self.words[at]), self.words[at + 1 : at + 2]
            percent = after in (["%"], ["percent"])
            fraction = float(number / 100 if percent else number)
            if 0 < fraction < 1 or (at_least and fraction == 1):
                yield at + 1 + percent, {"at_least": fraction}


def _as_head(word: str) -> Head | None:
    match = _HEAD.fullmatch(word)
    return Head(*(int(part) for part in match.groups() if part)) if match else None


#: the words that stand in forms
_IN_FORMS = frozenset(
    word
    for forms in FORMS.values()
    for form in forms
    for elements in _elements(form)
    for words in elements
    if not isinstance(words, str)
    for word in words
)


def _problem(sentence: str, tokens: Sequence[str], reader: _Reader) -> str:
    """The first word that is not understood, and the nearest sentence that is."""
    from interp_toolkit.registry import names

    at, detectors = reader.furthest, some_of(names("detectors"))
    heads, relations = _heads_in(reader.words[:at]) or _heads_in(reader.words), _relations(reader)
    if not heads and not relations:
        return (
            f"{sentence!r} is neither a file nor a claim such as 'L5H1 is an induction head' "
            f"(detectors: {detectors})"
        )
    after = f" after {tokens[at - 1]!r}" if at else ""
    length = 2 if reader.words[at : at + 1] and reader.words[at] in {*_IN_FORMS, ","} else 1
    problem = f"{' '.join(tokens[at : at + length])!r}{after} is not understood in a claim"
    if at == len(tokens):
        problem = f"the claim is incomplete{after}"
    elif tokens[at].endswith(";"):
        return f"{problem}; give several claims one by one, in Python as a list"
    if not relations:
        near = difflib.get_close_matches(tokens[at] if at < len(tokens) else "", names("detectors"))
        hint = (
            f"; did you mean {near[0]}?" if near else f"; name one attention pattern: {detectors}"
        )
        return problem + hint
    word = reader.words[at] if at < len(tokens) else ""
    near = [] if word in _IN_FORMS else difflib.get_close_matches(word, _IN_FORMS, 1, cutoff=0.75)
    if near and len(word) > 3:
        return f"{problem}; did you mean {near[0]}?"
    proposed = _proposed(heads[:_MOST_SHOWN] or [Head(5, 1)], relations[0], reader.words)
    return f"{problem}; the nearest claim that is: {proposed}"


def _heads_in(words: Sequence[str]) -> list[Head]:
    heads = [_as_head(word.removesuffix("'s")) for word in words]
    return list(dict.fromkeys(head for head in heads if head is not None))


def _relations(reader: _Reader) -> list[str]:
    """The relations that a sentence names, also within hyphenated words."""
    words = reader.words
    texts = (words, [piece for word in words for piece in word.split("-")])
    phrases = reader.phrases["keys"] | reader.phrases["kind"]
    return [
        fields["relation"]
        for phrase, readings in phrases.items()
        if any(
            tuple(text[i : i + len(phrase)]) == phrase for text in texts for i in range(len(text))
        )
        for fields in readings
    ]


def _proposed(heads: Sequence[Head], relation: str, words: Sequence[str]) -> str:
    """An accepted sentence with these heads and this relation."""
    if _ATTENDING & set(words):
        return sentence_of(heads, relation, "attends")
    if len(heads) > 1:
        return f"{_listed(heads)} are {relation} heads"
    return f"{_listed(heads)} is {with_article(relation)} head"
