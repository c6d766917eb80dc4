"""Sentences that are claims about heads: every word counts, and no other sentence is read."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interp_toolkit import registry
from interp_toolkit.auditing.claims.grammar import FORMS, fields_of
from interp_toolkit.auditing.claims.kinds import HeadsClaim, as_claim
from interp_toolkit.circuits.heads.detectors import KEY_PHRASES, OURS
from interp_toolkit.errors import LONGEST, InputError
from interp_toolkit.models.model import Head

ONE, TWO = (Head(5, 1),), (Head(5, 1), Head(6, 9))
THREE = (*TWO, Head(7, 0))
READ = [
    ("L5H1 is an induction head", ONE, "induction", "contributes", None),
    ("L5H1 is an induction head.", ONE, "induction", "contributes", None),
    ("l5h1 IS an Induction head", ONE, "induction", "contributes", None),
    ("a5.h1 is an induction attention head", ONE, "induction", "contributes", None),
    ("Head L5H1 is a previous-token head", ONE, "previous-token", "contributes", None),
    ("The head L5H1 is a previous token head", ONE, "previous-token", "contributes", None),
    ("the attention head L5H1 acts as a first‑token head", ONE, "first-token", "contributes", None),
    ("L5H1 and L6H9 are induction heads", TWO, "induction", "contributes", None),
    ("L5H1, L6H9 and L7H0 are each induction heads", THREE, "induction", "contributes", None),
    ("heads L5H1, L6H9, and a7.h0 act as induction heads", THREE, "induction", "contributes", None),
    ("L5H1 contributes to induction", ONE, "induction", "contributes", None),
    ("L5H1's answer attention contributes to the task", ONE, "answer", "contributes", None),
    ("L5H1’s induction attention matters for the task", ONE, "induction", "contributes", None),
    (
        "L5H1's induction attention contributes at least 50 % of the metric",
        ONE,
        "induction",
        "contributes",
        0.5,
    ),
    (
        "L5H1's induction attention contributes at least half to the task",
        ONE,
        "induction",
        "contributes",
        0.5,
    ),
    (
        "L5H1's induction attention contributes more than 0.3 of the metric",
        ONE,
        "induction",
        "contributes",
        0.3,
    ),
    (
        "L5H1's induction attention carries at least 12.5% of the task",
        ONE,
        "induction",
        "carries",
        0.125,
    ),
    ("L5H1 implements induction", ONE, "induction", "carries", None),
    ("L5H1 and L6H9 each perform induction", TWO, "induction", "carries", None),
    ("L5H1 does duplicate-token", ONE, "duplicate-token", "carries", None),
    ("L5H1 is major for induction", ONE, "induction", "carries", None),
    ("L5H1's induction attention is major for the task", ONE, "induction", "carries", None),
    ("L5H1 has an induction pattern", ONE, "induction", "attends", None),
    ("L5H1 has induction attention", ONE, "induction", "attends", None),
    (
        "L5H1 and L6H9 show duplicate token attention patterns",
        TWO,
        "duplicate-token",
        "attends",
        None,
    ),
    ("L5H1 attends to the previous token", ONE, "previous-token", "attends", None),
    ("L5H1, L6H9 attend to duplicate tokens", TWO, "duplicate-token", "attends", None),
    ("L5H1 attends to the answer", ONE, "answer", "attends", None),
    ("L5H1 attends by induction", ONE, "induction", "attends", None),
    (
        "L5H1 attends to the first token with an excess of at least 30 percent",
        ONE,
        "first-token",
        "attends",
        0.3,
    ),
    ("L5H1 is a k-hop head", ONE, "k-hop", "contributes", None),
]


@pytest.mark.parametrize(("sentence", "heads", "relation", "says", "at_least"), READ)
def test_a_plain_sentence_is_a_claim(sentence, heads, relation, says, at_least):
    claim = as_claim(sentence)
    assert (claim.heads, claim.relation, claim.says) == (heads, relation, says)
    assert (claim.at_least, claim.text) == (at_least, sentence)


#: sentences that a reader of known words takes for the plain claim, and that say something else
REFUSED = [
    "L1H0 lacks an induction pattern",
    "L1H0 is an anti-induction head",
    "L0H1 ignores the previous token",
    "Ablating L1H0 improves induction",
    "L1H0 is the sole induction head",
    "L1H0 might be an induction head",
    "L1H0 is an induction head in 10 % of prompts",
    "L1H0 is an induction head, unlike L1H1",
    "L1H0 is independent of induction",
    "L1H0 suppresses induction",
    "L1H0 is far from an induction head",
    "L0H1 rarely attends to the previous token",
    "L0H1 refuses to attend to the previous token",
    "L1H0 is an induction head with 90 % of the effect",
    "all heads other than L0H1 are induction heads",
    "L1H0 is an induction head that copies from L0H1",
    "L1H0 is an induction head and L0H1 feeds it",
    "L1H0 is not an induction head",
    "L1H0 isn't an induction head",
    "L0H1 does not attend to the previous token",
    "L1H0 has no induction attention",
    "L1H0 is no induction head",
    "L1H0 may be an induction head",
    "L1H0 seems to be an induction head",
    "L1H0 is one of the induction heads",
    "L1H0 is the only induction head",
    "the only induction head is L1H0",
    "only L1H0 is an induction head",
    "L1H0 contributes more than L1H1 to induction",
    "L1H0 is more than an induction head",
    "L1H0 is a non-induction head",
    "L1H0 is an un-induction head",
    "L1H0 is a pre-induction head",
    "L1H0 is a pre induction head",
    "L1H0 is an induction-like head",
    "L1H0 is a former induction head",
    "L1H0 is a fake induction head",
    "L1H0 is a reverse induction head",
    "L0H1 attends to the previous-tokens-ish",
    "L0H1 attends to previous tokens",
    "L1H0 was an induction head",
    "L1H0 used to be an induction head",
    "L1H0 is an induction head?",
    "Is L1H0 an induction head",
    "L1H0 is an induction head. L1H1 is not.",
    "L1H0 is an induction head — not",
    "If L0H1 is ablated, L1H0 is an induction head",
    "L1H0's induction attention does not matter",
    "removing L1H0 leaves induction intact",
    "L1H0's induction attention contributes at most 50 % of the metric",
    "L1H0's induction attention contributes about 50 % of the metric",
    "L1H0's induction attention contributes at least 150 % of the metric",
    "L1H0's induction attention contributes more than 100 % of the metric",
    "L1H0's induction attention contributes at least 0 % of the metric",
    "L1H0's induction attention contributes at least 30 of the metric",
    "L1H0's induction attention contributes at least ５0 % of the metric",
    "L1H0 and L1H1 together carry at least half of the metric",
    "the induction attention of L1H0 and L1H1 contributes to the task",
    "L0H1 attends to the previous token with at least 50 % of its attention",
    "L0H1 usually attends to the previous token",
    "L1H0 and not L1H1 are induction heads",
    "L1H0 or L1H1 is an induction head",
    "L1H0 and L1H1 is an induction head",
    "L1H0 contributes to the task",
    "L1H0 is an induction",
    "L1H0²  is an induction head",
    "L1H0 is an induction head" + " indeed" * 400,
    "L1H0",
    "induction",
    ".",
    "",
]


def refusal(sentence):
    """The message of the error that refuses a sentence; None if it is read."""
    try:
        as_claim(sentence)
    except InputError as error:
        return str(error)
    return None


@pytest.mark.parametrize("sentence", REFUSED)
def test_another_sentence_is_refused_in_one_line(sentence):
    message = refusal(sentence)
    assert message is not None
    assert len(message) <= LONGEST
    assert "\n" not in message


def test_the_words_of_a_refusal(texts):
    texts(refusal(sentence) for sentence in REFUSED[:20])
    many = ", ".join(f"L1H{n}" for n in range(90))
    texts(refusal(f"{many} are fine induction heads"))


@pytest.mark.parametrize("sentence", REFUSED[:20])
def test_a_refusal_proposes_a_sentence_that_is_read(sentence):
    proposed = as_claim(refusal(sentence).rpartition(": ")[2])
    assert proposed.heads[0] in (Head(1, 0), Head(0, 1))
    assert proposed.relation in sentence.replace(" token", "-token")


@st.composite
def claims(draw):
    relation = draw(st.sampled_from(OURS))
    return HeadsClaim(
        heads=draw(
            st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=3)
        ),
        relation=relation,
        says=draw(st.sampled_from(sorted(FORMS))),
        at_least=draw(st.none() | st.floats(1e-9, 1)),
        hops=draw(st.integers(2, 16)) if relation == "k-hop" else 2,
    )


def same(claim, other):
    return claim.model_dump(exclude={"text"}) == other.model_dump(exclude={"text"})


@given(claims())
def test_the_sentence_of_a_claim_is_read_as_that_claim(claim):
    again = as_claim(claim.about)
    assert same(claim, again)
    assert again.about == claim.about


@pytest.mark.parametrize("name", registry.names("detectors"))
def test_every_detector_can_be_claimed(name):
    for words in (f"L5H1 is a {name} head", f"L5H1, L6H9 are {name.upper()} heads"):
        assert as_claim(words).relation == name
    for phrase in KEY_PHRASES.get(name, ()):
        claim = as_claim(f"L5H1 attends to {phrase}")
        assert (claim.relation, claim.says) == (name, "attends")


def test_a_plugin_is_claimed_by_its_name(monkeypatch):
    names = [*OURS, "two-back", "Odd_One", "no-induction"]
    monkeypatch.setattr(registry, "names", lambda group: names)
    assert as_claim("L5H1 is a two-back head").relation == "two-back"
    assert as_claim("L5H1 has odd-one attention").relation == "Odd_One"
    for name in names[-3:]:
        claim = HeadsClaim(heads=ONE, relation=name)
        assert same(claim, as_claim(claim.about))
    # a hyphen may be left out in names of built-in detectors only
    assert refusal("L5H1 has no induction attention") is not None


def test_a_name_that_two_detectors_share_is_refused(monkeypatch, texts):
    monkeypatch.setattr(registry, "names", lambda group: ["induction", "Induction"])
    texts(refusal("L5H1 is an induction head"))


DENYING_WORDS = """
not no never neither nor none without lacks fails hardly barely isn't doesn't cannot unlike except
but only sole solely exclusively just merely might may could would should seems appears possibly
probably perhaps likely supposedly allegedly rarely sometimes often usually mostly partly some most
few many all every any about roughly almost nearly anti-induction non-induction induction-like
former fake reverse other if unless when because although whether or was were been ignores
suppresses inhibits destroys
"""
OTHER_WORDS = """
L1H0 L0H1 L5H1's a1.h0 heads head the a an is are be being has have attends attend contributes
contribute implements perform carries does do matters matter major copies moves writes reads feeds
uses composes induction previous-token duplicate-token first-token k-hop 3-hop answer previous first
next token tokens pattern patterns attention to of for by with in from on as at least more than half
50 0.3 % percent excess task metric effect prompts layer model circuit and , . ; each both together
it its that which while strongly weakly clearly
"""
DENYING = sorted(set(DENYING_WORDS.split()))
VOCABULARY = [*DENYING, *OTHER_WORDS.split()]
PLAIN = [sentence for sentence, *_ in READ]
GRAMMAR = {
    word
    for text in (*(form for forms in FORMS.values() for form in forms), *OURS)
    for word in re.findall(r"[\w'-]+", text.lower())
}
GRAMMAR |= {word for name in OURS for word in name.split("-")}
GRAMMAR |= {word for phrases in KEY_PHRASES.values() for p in phrases for word in p.split()}
GRAMMAR |= {"and", "at", "least", "more", "than", "half", "%", "percent", ",", "head", "heads"}
NUMBER_OR_HEAD = re.compile(r"\d+(\.\d+)?|(l\d+h\d+|a\d+\.h\d+)('s)?|\d+-hop")


@st.composite
def edited(draw):
    """Words at random, or a plain sentence with up to three words changed, added or left out."""
    words = draw(
        st.lists(st.sampled_from(VOCABULARY), max_size=12) | st.sampled_from(PLAIN).map(str.split)
    )
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(words)))
        words = [
            *words[:at],
            *draw(st.lists(st.sampled_from(VOCABULARY), max_size=2)),
            *words[at + draw(st.integers(0, 1)) :],
        ]
    return " ".join(words)


@settings(max_examples=200)
@given(edited())
def test_a_sentence_is_read_whole_or_refused(sentence):
    if (message := refusal(sentence)) is not None:
        assert len(message) <= LONGEST
        assert "\n" not in message
        return
    claim = as_claim(sentence)
    assert same(claim, as_claim(claim.about))
    plain = sentence.lower().replace("’", "'").replace("‑", "-").removesuffix(".")
    words = set(re.findall(r"[^\s,%]+|[,%]", plain))
    assert not words & set(DENYING)
    assert all(word in GRAMMAR or NUMBER_OR_HEAD.fullmatch(word) for word in words)


@pytest.mark.parametrize("sentence", [PLAIN[0], PLAIN[13], PLAIN[25]])
def test_no_denying_word_can_be_added(sentence):
    words = sentence.split()
    for word in DENYING:
        for at in range(len(words) + 1):
            assert refusal(" ".join([*words[:at], word, *words[at:]])) is not None


ROW = re.compile(r"^\| `([^`]+)` \|.*\| \*(\w+)\*[^|]*\|$", re.M)


def test_the_examples_of_the_page_are_read():
    page = Path(__file__).parents[2] / "docs" / "audit.md"
    rows = ROW.findall(page.read_text(encoding="utf-8"))
    assert {says for _, says in rows} == set(FORMS)
    for sentence, says in rows:
        assert as_claim(sentence).says == says


@pytest.mark.parametrize(
    ("claim", "word"),
    [
        ("L1H0 caries induction attention", "carries"),
        ("L1H0 contribtes to induction", "contributes"),
        ("L1H0 is an inducton head", "induction"),
        ("L1H0's induction attention maters for the task", "matters"),
    ],
)
def test_a_misspelled_word_gets_the_word_that_was_meant(claim, word):
    with pytest.raises(InputError, match=rf"did you mean {word}\?"):
        fields_of(claim)


def test_several_claims_in_one_sentence_are_to_be_given_one_by_one():
    with pytest.raises(InputError, match="one by one"):
        fields_of("L1H0 is an induction head; L0H1 is a previous-token head")
