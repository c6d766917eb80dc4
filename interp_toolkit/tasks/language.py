"""Named behaviors of language models: one prompt maker each, with its source.

*Indirect objects*: "Then, Mary and John went to the store. John gave a drink to" → " Mary".
Names, places and objects are sampled; the two names come in either order (ABBA and BABA), half of
the prompts each. The wrong answer is the subject. Corrupted: the subject's second mention is
replaced with a third name (ABC), so that no name comes twice and neither is preferred. Source: Wang
et al. 2023, "Interpretability in the Wild: a Circuit for Indirect Object Identification in GPT-2
Small", whose templates are similar.

*Greater than*: "The war lasted from the year 1732 to the year 17" → a number above 32.
If a tokenizer splits years into a century and two digits, the answer is the two digits, as in the
source; if it has every digit separately, the answer is the tens digit, above that of the first
year. The wrong answer is below it. Corrupted: the first year ends in 01, below every answer and
most wrong ones. Larger numbers are always right, so a model that prefers them regardless of the
first year succeeds too; only the effect of the corrupted prompt shows the difference. Source: Hanna
et al. 2023, "How does GPT-2 compute greater-than?".

*Agreement of subject and verb*: "The keys near the table" → " are", not " is".
The noun nearest to the verb has either number, in half of the prompts not the subject's. Corrupted:
the subject in the other number, so that the answers change places. Source: Linzen et al. 2016,
"Assessing the Ability of LSTMs to Learn Syntax-Sensitive Dependencies"; prompts as in Finlayson et
al. 2021, "Causal Analysis of Syntactic Agreement Mechanisms in Neural Language Models".

*Gendered pronouns*: "So Mary is a really great friend, isn't" → " she", not " he".
Corrupted: a name that is mostly of the other gender, so that the answers change places. Source:
Mathwin et al. 2023, "Identifying a Preliminary Circuit for Predicting Gendered Pronouns in GPT-2
Small", whose prompts are similar.

*Docstrings*: the arguments are documented in the order in which the function takes them.

    def port(self, load, size, files):
        \"\"\"oil column piece

        :param load: crime population
        :param size: unit dark
        :param                               → " files", not " load" or " size"

Corrupted: the third argument in the `def` line is another word, so that the answer is nowhere.
Source: Heimersheim and Janiak 2023, "A circuit for Python docstrings in a 4-layer attention-only
transformer".

*Successors*: "Tuesday comes next after Monday, and ..." for days, months, numbers and letters.
Corrupted: another member of the sequence; the wrong answer is that member's successor, so that the
answers change places. Source: Gould et al. 2023, "Successor Heads: Recurring, Interpretable
Attention Heads In The Wild".
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from interp_toolkit.data import FeatureData
from interp_toolkit.data.text.tokenization import Tokenizer
from interp_toolkit.registry import PromptTask
from interp_toolkit.tasks.rows import (
    LEAST,
    PromptPair,
    Words,
    cannot_hold,
    sample_rows,
)

IOI_TEMPLATES = (
    "Then, {first} and {second} went to the {place}. {subject} gave a {object} to",
    "When {first} and {second} got back to the {place}, {subject} gave a {object} to",
    "After {first} and {second} had walked to the {place}, {subject} passed a {object} to",
    "While {first} and {second} were sitting at the {place}, {subject} offered a {object} to",
)
IOI_NAMES = (
    "Mary John Anne Tom James Paul Mark Peter Sarah Emma Alice Bob Jack Kate Lisa Laura Mike David "
    "Robert Michael William Richard Thomas Daniel Matthew Andrew George Steven Edward Brian Kevin "
    "Jason Eric Scott Frank Adam Henry Ryan Jane Susan Karen Linda Helen Sandra Rachel Anna Amy "
    "Julia Maria Diana Martin Charles Simon Ben Sam Luke Alex Max Victoria Elizabeth"
)
LOCATIONS = "store park school office house station market garden hospital restaurant library"
OBJECTS = "drink ring book basket computer ball letter key cup picture box snack"


def make_indirect_object(tokenizer: Tokenizer, rows: int, seed: int) -> FeatureData:
    """Prompts of the task; templates count separately for each order of the names."""
    words = Words(tokenizer)
    names = words.single_tokens(IOI_NAMES, "names")
    locations, objects = (
        words.single_tokens(LOCATIONS, "places", 1),
        words.single_tokens(OBJECTS, "objects", 1),
    )

    def draw(template: int, rng: np.random.Generator) -> PromptPair | None:
        number, subject_first = divmod(template, 2)
        subject, other, third = rng.choice(names, 3, replace=False)
        first, second = (subject, other) if subject_first else (other, subject)
        slots = {"first": first, "second": second, "place": rng.choice(locations)}
        slots["object"] = rng.choice(objects)
        clean, corrupted = (
            IOI_TEMPLATES[number].format(subject=name, **slots) for name in (subject, third)
        )
        return words.pair(clean, corrupted, f" {other}", f" {subject}")

    return sample_rows(draw, 2 * len(IOI_TEMPLATES), rows, seed, "indirect-object")


INDIRECT_OBJECT = PromptTask(
    "indirect-object",
    "Name the person who receives something, not the giver (IOI).",
    make_indirect_object,
    "Wang et al. 2023, Interpretability in the Wild",
)


SPAN_TEMPLATE = "The {noun} lasted from the year {century}{year} to the year {century}"
SPAN_NOUNS = (
    "war siege reign drought famine strike campaign expedition conflict dispute marriage project "
    "journey plague rebellion revolution voyage operation effort program"
)
CENTURIES = tuple(range(11, 19))
_CORRUPTED = "01"


def make_greater_than(tokenizer: Tokenizer, rows: int, seed: int) -> FeatureData:
    """Prompts of the task."""
    words = Words(tokenizer)
    nouns = words.single_tokens(SPAN_NOUNS, "nouns")
    digits = _digits(words, nouns[0])

    def draw(template: int, rng: np.random.Generator) -> PromptPair | None:
        year = int(rng.integers(12, 89))
        if digits == 2:
            above, below = int(rng.integers(year + 1, 100)), int(rng.integers(2, year))
        else:
            tens = year // 10
            above, below = int(rng.integers(tens + 1, 10)), int(rng.integers(0, tens))
        slots = {"noun": rng.choice(nouns), "century": rng.choice(CENTURIES)}
        clean, corrupted = (
            SPAN_TEMPLATE.format(year=end, **slots) for end in (f"{year:02}", _CORRUPTED)
        )
        return words.pair(clean, corrupted, f"{above:0{digits}}", f"{below:0{digits}}")

    return sample_rows(draw, 1, rows, seed, "greater-than")


def _digits(words: Words, noun: str) -> int:
    """Number of digits in the token after a year's century; raises InputError for other numbers."""
    prompt = SPAN_TEMPLATE.format(noun=noun, century=17, year=32)
    before = words.ids(prompt)
    if words.next_id(prompt, "45", before) is not None:
        return 2
    if all(words.next_id(prompt, end, before) is not None for end in "0123456789"):
        return 1
    raise cannot_hold("it has neither two digits nor single digits of a year as tokens")


GREATER_THAN = PromptTask(
    "greater-than",
    "Complete a span of years with an end year after its start year.",
    make_greater_than,
    "Hanna et al. 2023, How does GPT-2 compute greater-than?",
)


AGREEMENT_TEMPLATES = (
    "The {subject} near the {other}",
    "The {subject} behind the {other}",
    "The {subject} beside the {other}",
)
VERBS = ("is", "are")
AGREEMENT_NOUNS = (
    "key:keys car:cars table:tables door:doors tree:trees book:books boy:boys girl:girls dog:dogs "
    "cat:cats teacher:teachers doctor:doctors student:students picture:pictures house:houses "
    "window:windows chair:chairs bird:birds horse:horses flower:flowers truck:trucks king:kings "
    "writer:writers singer:singers player:players letter:letters building:buildings bridge:bridges"
)
LEAST_NOUNS = 8


def make_subject_verb(tokenizer: Tokenizer, rows: int, seed: int) -> FeatureData:
    """Prompts of the task; templates count separately for each number of either noun."""
    words = Words(tokenizer)
    pairs = [noun.split(":") for noun in AGREEMENT_NOUNS.split()]
    nouns = [pair for pair in pairs if all(words.is_one(word) for word in pair)]
    if len(nouns) < LEAST_NOUNS:
        raise cannot_hold(
            f"of {len(pairs)} nouns {len(nouns)} are one token in both numbers, and {LEAST_NOUNS} "
            "are needed"
        )

    def draw(template: int, rng: np.random.Generator) -> PromptPair | None:
        rest, number = divmod(template, 2)
        text, near = divmod(rest, 2)
        subject, other = (nouns[i] for i in rng.choice(len(nouns), 2, replace=False))
        clean, corrupted = (
            AGREEMENT_TEMPLATES[text].format(subject=subject[n], other=other[near])
            for n in (number, 1 - number)
        )
        return words.pair(clean, corrupted, f" {VERBS[number]}", f" {VERBS[1 - number]}")

    return sample_rows(draw, 4 * len(AGREEMENT_TEMPLATES), rows, seed, "subject-verb-agreement")


SUBJECT_VERB = PromptTask(
    "subject-verb-agreement",
    "Choose the verb's number by its subject, with another noun in between.",
    make_subject_verb,
    "Linzen et al. 2016; Finlayson et al. 2021, Causal Analysis of Syntactic Agreement Mechanisms",
)


PRONOUN_TEMPLATES = (
    "So {name} is a really great {noun}, isn't",
    "So {name} was a very good {noun}, wasn't",
    "And {name} is a rather nice {noun}, isn't",
    "Well, {name} was quite the {noun}, wasn't",
)
PRONOUN_NAMES = {
    "he": (
        "John Tom James Paul Mark Peter Bob Jack Mike David Robert Michael William Richard Thomas "
        "Daniel Matthew Andrew George Steven Edward Brian Kevin Jason Eric Frank Adam Henry"
    ),
    "she": (
        "Mary Anne Sarah Emma Alice Kate Lisa Laura Jane Susan Karen Linda Helen Sandra Rachel "
        "Anna Amy Julia Maria Diana Victoria Elizabeth Emily Jessica Jennifer Margaret Nancy"
    ),
}
PRONOUN_NOUNS = "friend cook neighbor leader player teacher student singer dancer writer person"


def make_gendered_pronoun(tokenizer: Tokenizer, rows: int, seed: int) -> FeatureData:
    """Prompts of the task; templates count separately for each gender of the names."""
    words = Words(tokenizer)
    names = {
        pronoun: words.single_tokens(of, f"names that go with {pronoun!r}")
        for pronoun, of in PRONOUN_NAMES.items()
    }
    nouns = words.single_tokens(PRONOUN_NOUNS, "nouns", 1)

    def draw(template: int, rng: np.random.Generator) -> PromptPair | None:
        text, number = divmod(template, 2)
        answer, wrong = tuple(PRONOUN_NAMES)[:: -1 if number else 1]
        noun = rng.choice(nouns)
        clean, corrupted = (
            PRONOUN_TEMPLATES[text].format(name=rng.choice(names[pronoun]), noun=noun)
            for pronoun in (answer, wrong)
        )
        return words.pair(clean, corrupted, f" {answer}", f" {wrong}")

    return sample_rows(draw, 2 * len(PRONOUN_TEMPLATES), rows, seed, "gendered-pronoun")


GENDERED_PRONOUN = PromptTask(
    "gendered-pronoun",
    "Refer to a name by the pronoun that is usual for it.",
    make_gendered_pronoun,
    "Mathwin et al. 2023, Identifying a Preliminary Circuit for Predicting Gendered Pronouns",
)


DOCSTRING_TEMPLATE = '''def {0}(self, {1}, {2}, {3}):
    """{4} {5} {6}

    :param {1}: {7} {8}
    :param {2}: {9} {10}
    :param'''
WORDS = (
    "port load size files date name value key model shape source target group order level index "
    "page line text color image user event state time cost unit table field point oil column piece "
    "crime population dark water paper market field garden river street letter picture number"
)
LEAST_WORDS = 16  # a prompt has twelve


def make_docstring(tokenizer: Tokenizer, rows: int, seed: int) -> FeatureData:
    """Prompts of the task."""
    words = Words(tokenizer)
    vocabulary = words.single_tokens(WORDS, "words", LEAST_WORDS)

    def draw(template: int, rng: np.random.Generator) -> PromptPair | None:
        *mentioned, another = rng.choice(vocabulary, 12, replace=False).tolist()
        clean = DOCSTRING_TEMPLATE.format(*mentioned)
        definition, rest = clean.split("\n", 1)
        corrupted = definition.replace(f", {mentioned[3]})", f", {another})") + "\n" + rest
        return words.pair(clean, corrupted, f" {mentioned[3]}", f" {mentioned[rng.integers(1, 3)]}")

    return sample_rows(draw, 1, rows, seed, "docstring")


DOCSTRING = PromptTask(
    "docstring",
    "List a function's arguments in its docstring, in their order.",
    make_docstring,
    "Heimersheim and Janiak 2023, A circuit for Python docstrings",
)


SUCCESSOR_TEMPLATES = (
    "In order, the one right after {0} is",
    "In order, what comes right after {0} is",
    "In sequence, the one that follows {0} is",
    "In sequence, what follows right after {0} is",
)
SEQUENCES = (
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "January February March April May June July August September October November December",
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen",
    " ".join("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
)
LEAST_STEPS = 4  # of a usable sequence


def make_successor(tokenizer: Tokenizer, rows: int, seed: int) -> FeatureData:
    """Prompts of the task; templates count separately for each sequence."""
    words = Words(tokenizer)
    steps = [_steps(words, sequence.split()) for sequence in SEQUENCES]
    held = [one for one in steps if len(one) >= LEAST_STEPS]
    if sum(map(len, held)) < LEAST:
        raise cannot_hold(
            f"of its days, months, numbers and letters {sum(map(len, held))} are one token as "
            f"their successors are, and {LEAST} are needed"
        )

    def draw(template: int, rng: np.random.Generator) -> PromptPair | None:
        text, number = divmod(template, len(held))
        chosen = rng.choice(len(held[number]), 2, replace=False)
        (one, after), (another, wrong) = (held[number][i] for i in chosen)
        clean, corrupted = (SUCCESSOR_TEMPLATES[text].format(word) for word in (one, another))
        return words.pair(clean, corrupted, f" {after}", f" {wrong}")

    return sample_rows(draw, len(SUCCESSOR_TEMPLATES) * len(held), rows, seed, "successor")


def _steps(words: Words, sequence: list[str]) -> list[tuple[str, str]]:
    """Neighbors in a sequence that are one token each."""
    pairs = pairwise(sequence)
    return [pair for pair in pairs if all(words.is_one(word) for word in pair)]


SUCCESSOR = PromptTask(
    "successor",
    "Name the next day, month, number or letter.",
    make_successor,
    "Gould et al. 2023, Successor Heads",
)
