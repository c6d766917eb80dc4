"""Every task, read back from its tokens: answers are right by rules of the test's own."""

import re
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_tokenizers import byte_level, task_words, word_level

import interp_toolkit as it
from interp_toolkit.errors import InputError
from interp_toolkit.registry import find, names
from interp_toolkit.tasks.language import PRONOUN_NAMES as OF_PRONOUN
from interp_toolkit.tasks.rows import Words

KINDS = {
    "words": word_level,
    "bytes": byte_level,
    "bytes, one special": partial(byte_level, one_special=True),
}


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request):
    return KINDS[request.param](task_words())


def texts_of(data, tokenizer):
    """(clean, corrupted, answer, wrong) in words, without what stands before every text."""

    def said(ids):
        return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    parts = (data.tokens, data.corrupted, data.answers, data.wrong)
    return [tuple(said(ids).strip() for ids in row) for row in zip(*parts, strict=True)]


@pytest.mark.parametrize("name", names("tasks"))
def test_rows_are_distinct_pairs_of_one_length_that_the_seed_decides(name, tokenizer):
    make = find("tasks", name).make
    data, again, other = (make(tokenizer, 32, seed) for seed in (3, 3, 4))
    tokens, corrupted = data.token_matrix(), np.array(data.corrupted)
    assert len(np.unique(tokens, axis=0)) == len(tokens) == 32
    assert (tokens != corrupted).any(1).all()
    assert (data.answers != data.wrong).all()
    assert (data.answer_positions == tokens.shape[1] - 1).all()
    assert data.digest() == again.digest() != other.digest()
    begins = tokenizer("the")["input_ids"][0] == tokenizer.bos_token_id
    assert (tokens[:, 0] == tokenizer.bos_token_id).all() == begins
    assert find("tasks", name).name == name


def answers_of(name, tokenizer, rows=64):
    return texts_of(find("tasks", name).make(tokenizer, rows, 0), tokenizer)


def test_the_indirect_object_is_the_name_that_comes_once(tokenizer):
    orders = set()
    for clean, corrupted, answer, wrong in answers_of("indirect-object", tokenizer):
        counts = {name: len(re.findall(rf"\b{name}\b", clean)) for name in (answer, wrong)}
        assert counts == {answer: 1, wrong: 2}
        assert len(re.findall(rf"\b({answer}|{wrong})\b", corrupted)) == 2
        assert len(changed(clean, corrupted)) == 1
        orders.add((clean.split()[0], clean.index(answer) < clean.index(wrong)))
    assert len(orders) == 8


def changed(clean, corrupted):
    pairs = zip(clean.split(), corrupted.split(), strict=True)
    return [pair for pair in pairs if pair[0] != pair[1]]


def test_a_span_ends_later_than_it_began(tokenizer):
    one_digit = len(tokenizer.tokenize("17")) == 2
    for clean, corrupted, answer, wrong in answers_of("greater-than", tokenizer):
        first, last = re.findall(r"year ([\d ]+)", clean)
        century, year = re.fullmatch(r"(\d\d)(\d\d)", first.replace(" ", "")).groups()
        assert last.replace(" ", "") == century
        bound = int(year[0]) if one_digit else int(year)
        assert len(answer) == len(wrong) == (1 if one_digit else 2)
        assert int(wrong) < bound < int(answer)
        assert f"{century}01" in corrupted.replace(" ", "")


def test_verbs_agree_with_the_first_noun(tokenizer):
    seen = set()
    for clean, corrupted, answer, wrong in answers_of("subject-verb-agreement", tokenizer):
        subject, other = clean.split()[1], clean.split()[-1]
        assert (answer, wrong) == (("are", "is") if subject.endswith("s") else ("is", "are"))
        assert corrupted.split()[1] == (subject[:-1] if subject.endswith("s") else subject + "s")
        seen.add((clean.split()[2], subject.endswith("s"), other.endswith("s")))
    assert len(seen) == 12


def test_pronouns_go_with_names(tokenizer):
    said = []
    for clean, corrupted, answer, wrong in answers_of("gendered-pronoun", tokenizer):
        (before, after), *rest = changed(clean, corrupted)
        assert not rest
        assert before in OF_PRONOUN[answer].split()
        assert after in OF_PRONOUN[wrong].split()
        said.append(answer)
    assert said.count("he") == said.count("she") == 32


def test_the_third_argument_is_documented_third(tokenizer):
    for clean, corrupted, answer, wrong in answers_of("docstring", tokenizer):
        arguments = re.search(r"\(\s*self\s*,(.*?)\)", clean).group(1).replace(" ", "").split(",")
        assert answer == arguments[2]
        assert wrong in arguments[:2]
        assert re.findall(r":\s*param (\w+)", clean) == arguments[:2]
        assert not re.search(rf"\b{answer}\b", corrupted)


@pytest.mark.parametrize("name", ["copy-random", "copy-text"])
def test_what_came_before_comes_again(name, tokenizer):
    data = find("tasks", name).make(tokenizer, 64, 0)
    for i in range(len(data)):
        row, other = data.tokens[i].tolist(), data.corrupted[i].tolist()
        answer, wrong = data.answers[i, 0], data.wrong[i, 0]
        start = int(tokenizer.bos_token_id == row[0])
        longest = max(
            range(len(row) - 1), key=lambda end: common_end(row[start : end + 1], row[start:])
        )
        assert row[longest + 1] == answer
        assert answer not in other
        assert wrong in other
        assert [a for a, b in zip(row, other, strict=True) if a != b] == [answer]
    ends = tokenizer.all_special_ids
    assert not np.isin(data.token_matrix()[:, 1:], ends).any()


def common_end(a, b):
    n = 0
    while n < min(len(a), len(b)) and a[-1 - n] == b[-1 - n]:
        n += 1
    return n


ORDER = [
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "January February March April May June July August September October November December",
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen",
    "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z",
]


def test_successors_come_next(tokenizer):
    used = set()
    for clean, corrupted, answer, wrong in answers_of("successor", tokenizer):
        pairs = changed(clean, corrupted)
        (before, after), *rest = pairs
        assert not rest
        (words,) = [one.split() for one in ORDER if answer in one.split()]
        assert words[words.index(before) + 1] == answer
        assert words[words.index(after) + 1] == wrong
        used.add(words[0])
    assert used == {"Monday", "January", "one", "A"}


@pytest.mark.parametrize(
    "name",
    [
        "indirect-object",
        "greater-than",
        "subject-verb-agreement",
        "gendered-pronoun",
        "docstring",
        "copy-random",
        "copy-text",
        "successor",
    ],
)
def test_a_tokenizer_without_the_words_is_one_line(name, texts):
    small = word_level(["the", "is", "are"])
    with pytest.raises(InputError, check=texts):
        find("tasks", name).make(small, 64, 0)


def test_unknown_words_of_a_template_are_no_row(texts):
    words = [word for word in task_words() if word != "year"]
    with pytest.raises(InputError, check=texts):
        find("tasks", "greater-than").make(word_level(words), 64, 0)


def test_years_in_one_piece_cannot_be_asked_for(texts):
    with pytest.raises(InputError, check=texts):
        find("tasks", "greater-than").make(word_level(task_words(), digits=False), 64, 0)


def test_what_a_tokenizer_puts_around_a_text():
    begun = Words(word_level(["the", "keys"]))
    assert begun.first == (0,)
    assert begun.ids("the keys") == (0, 2, 3)
    assert Words(word_level(["the", "keys"], begin=False)).ids("the keys") == (2, 3)
    ended = byte_level(["the", "keys"], end=True)
    assert ended("the")["input_ids"][-1] == ended.eos_token_id
    ids = Words(ended).ids("the keys")
    assert Words(ended).first == ()
    assert ended.decode(ids) == "the keys"


def model_with(tokenizer, n_ctx=64, d_vocab=20_000):
    return SimpleNamespace(tokenizer=tokenizer, cfg=SimpleNamespace(n_ctx=n_ctx, d_vocab=d_vocab))


def test_a_task_for_a_model(tokenizer, texts):
    data = it.task(model_with(tokenizer), "indirect-object", rows=8, seed=1)
    assert len(data) == 8
    assert data.digest() == find("tasks", "indirect-object").make(tokenizer, 8, 1).digest()
    with pytest.raises(InputError, match="model's", check=texts):
        it.task(model_with(tokenizer, n_ctx=9), "indirect-object")
    with pytest.raises(InputError, match="the vocabulary is 0 to 3"):
        it.task(model_with(tokenizer, d_vocab=4), "indirect-object")
    with pytest.raises(InputError, match="'indirectobject'", check=texts):
        it.task(model_with(tokenizer), "indirectobject")
    with pytest.raises(InputError, match="'successor'", check=texts):
        it.task(model_with(None), "successor")


@pytest.mark.parametrize(
    "given",
    [
        {"seed": -1},
        {"seed": 2**31},
        {"seed": True},
        {"rows": 0},
        {"rows": -3},
        {"rows": True},
        {"rows": 10**12},
    ],
)
def test_a_wrong_seed_or_number_of_rows_is_one_line(given, texts):
    model = model_with(word_level(task_words()))
    with pytest.raises(InputError, check=texts):
        it.task(model, "successor", **given)


def test_a_begin_token_is_not_drawn():
    tokenizer = word_level(["a", "b"])
    assert Words(tokenizer).vocabulary() == [2, 3]
