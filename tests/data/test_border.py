"""The space between prompt and answer, tokens that both share, and BOS."""

import re

import pytest
from layouts import WordTokenizer, save

from interp_toolkit.data import read_data
from interp_toolkit.data.border import needs_space
from interp_toolkit.data.text.tokenization import data_from_prose, whole_text, whole_texts

JOINED = [
    ("f(", "x"),
    ('He said "', "yes"),
    ("He said “", "yes"),
    ("It is '", "so"),
    ("one\n", "two"),
    ("one\t", "two"),
    ("a [", "b"),
    ("{", "b"),
    ("2+2=", "4"),
    ("x=", "y"),
    ("from 1752 to 17", "84"),
    ("3.", "14"),
    ("path/", "to"),
    ("well-", "known"),
    ("snake_", "case"),
    ("$", "5"),
    ("a@", "b"),
    ("hot->", "cold"),
    ("法国的首都是", "巴黎"),
    ("首都はパリ", "です"),
    ("the end ", "of"),
    ("int x = 1", ";"),
    ("the end", "."),
    ("the end", ")"),
    ("it", "'s"),
    ("the end", " of"),
    ("the end", "\n"),
]
SPACED = [
    ("The capital of France is", "Paris"),
    ("Q: where?\nA:", "Paris"),
    ("red, blue,", "green"),
    ("It ended.", "Then"),
    ('The word "cat"', "is"),
    ("the dogs'", "tails"),
    ("(see above)", "and"),
    ("hot ->", "cold"),
    ("1 2 3", "4"),
    ("is", "42"),
    ("it was", "-5"),
    ("it cost", "$5"),
    ("50%", "of"),
    ("über", "öl"),
]


@pytest.mark.parametrize(("prompt", "answer"), JOINED)
def test_no_space_where_none_belongs(tmp_path, prompt, answer):
    assert not needs_space(prompt, answer)
    for name in ("answer", "target"):
        records = [{"prompt": prompt, name: answer}] * 2
        tokenizer = WordTokenizer()
        data = read_data(save(tmp_path / "rows.json", records), tokenizer)
        got = tokenizer.decode(data.tokens[0].tolist()) + tokenizer.decode(data.answers[0].tolist())
        assert (prompt + answer).startswith(got)


@pytest.mark.parametrize(("prompt", "answer"), SPACED)
def test_a_space_where_words_meet(tmp_path, prompt, answer):
    assert needs_space(prompt, answer)
    records = [{"prompt": prompt, "target": answer}] * 2
    tokenizer = WordTokenizer()
    data = read_data(save(tmp_path / "rows.json", records), tokenizer)
    got = tokenizer.decode(data.tokens[0].tolist()) + tokenizer.decode(data.answers[0].tolist())
    assert f"{prompt} {answer}".startswith(got)
    assert len(got) > len(prompt) + 1
    kept = read_data(tmp_path / "rows.json", tokenizer, schema={"answer_space": "keep"})
    assert not tokenizer.decode(kept.answers[0].tolist()).startswith(" ")


def test_a_column_that_brings_its_spaces_keeps_them(tmp_path):
    records = [{"text": "un", "answer": "known"}, *[{"text": "it is", "answer": " so"}] * 2]
    tokenizer = WordTokenizer()
    data = read_data(save(tmp_path / "rows.json", records), tokenizer)
    assert [tokenizer.decode(row.tolist()) for row in data.answers] == ["known", " so", " so"]


def test_what_the_border_leaves_open_follows_the_column(tmp_path):
    words = [{"input": "one", "output": "two"}, {"input": "six", "output": "seven"}]
    for records, answers in (
        ([*words, {"input": "1", "output": "2"}], [" two", " seven", " 2"]),
        ([{"input": "a is 1", "output": "2"}, {"input": "b is 3", "output": "4"}], ["2", "4"]),
        ([{"input": "2 + 2 =", "output": "4"}] * 2, ["4", "4"]),
        ([{"input": "abcab", "output": "c"}, {"input": "xyx", "output": "y"}], ["c", "y"]),
    ):
        tokenizer = WordTokenizer()
        data = read_data(save(tmp_path / "rows.json", records), tokenizer)
        assert [tokenizer.decode(row.tolist()) for row in data.answers] == answers


class Merging(WordTokenizer):
    """Pairs of letters are one token, across any border."""

    _PIECES = re.compile(r" ?[a-z]{2}| ?[a-z]|\s")


def test_tokens_that_prompt_and_answer_share_are_counted_with_the_option_that_helps(tmp_path):
    records = [{"text": "abcd e ", "answer": "fg"}, {"text": "abc ", "answer": "ef"}]
    path = save(tmp_path / "rows.json", records)
    data = read_data(path, Merging())
    assert "in 2 of 2 rows" in data.source
    assert "--answer-space add" in data.source
    tokenizer = Merging()
    mended = read_data(path, tokenizer, schema={"answer_space": "add"})
    assert "share" not in mended.source
    assert [tokenizer.decode(row.tolist()) for row in mended.tokens] == ["abcd e", "abc"]
    assert [tokenizer.decode(row.tolist()) for row in mended.answers] == [" fg", " ef"]
    apart = read_data(save(tmp_path / "x.json", [{"text": "abcd", "answer": "ef"}]), Merging())
    assert "share" not in apart.source


class Digits(WordTokenizer):
    """A space before a digit is a token of its own, as in SmolLM2 and Llama 3."""

    _PIECES = re.compile(r" ?[a-z]+|[0-9]|\s")


def test_a_space_that_is_a_token_of_its_own_ends_the_prompt(tmp_path):
    records = [{"clean": "it is", "corrupted": "it was", "answer": "4", "wrong": "5"}] * 2
    tokenizer = Digits()
    data = read_data(save(tmp_path / "rows.json", records), tokenizer)
    texts = [tokenizer.decode(rows[0].tolist()) for rows in (data.tokens, data.corrupted)]
    assert texts == ["it is ", "it was "]
    assert [tokenizer.decode(c[0].tolist()) for c in (data.answers, data.wrong)] == ["4", "5"]
    assert "2 of 2 rows the space" in data.source


class Pieces(WordTokenizer):
    """A space before every text, as in SentencePiece: an answer alone begins with another token."""

    def __call__(self, text, add_special_tokens=True):
        return super().__call__(f" {text}", add_special_tokens)


def test_answers_are_the_tokens_that_continue_the_prompt(tmp_path):
    tokenizer = Pieces()
    records = [{"text": "it is", "answer": "so"}, {"text": "f(", "answer": "x"}]
    data = read_data(save(tmp_path / "rows.json", records), tokenizer)
    assert [tokenizer.decode(row.tolist()) for row in data.answers] == [" so", "x"]


def test_bos_stands_once_before_a_text_that_begins_with_it():
    tokenizer = WordTokenizer(bos="<s>")
    bos, *rest = tokenizer("the sky")
    assert whole_text(tokenizer, "the sky") == [bos, *rest]
    assert whole_text(tokenizer, "<s>the sky") == [bos, *rest]
    assert whole_texts(tokenizer, ["<s>the sky", "the sky"]) == [[bos, *rest]] * 2
    again = whole_text(tokenizer, "the the")
    assert len(again) == 3
    assert whole_text(WordTokenizer(), "no no no") == [0, 1, 1]


def test_bos_stands_once_in_files(tmp_path):
    tokenizer = WordTokenizer(bos="<s>")
    path = save(tmp_path / "rows.json", [{"text": "<s>it is", "answer": "so"}] * 2)
    data = read_data(path, tokenizer)
    assert tokenizer.decode(data.tokens[0].tolist()) == "<s>it is"
    lines = tmp_path / "lines.txt"
    lines.write_text("<s>it is\nit is\n")
    rows = read_data(lines, tokenizer).tokens
    assert rows[0].tolist() == rows[1].tolist()


def test_bos_stands_once_before_pieces_of_a_text():
    tokenizer = WordTokenizer(bos="<s>")
    for text in ("a b c d e f", "<s>a b c d e f"):
        rows = data_from_prose(text, tokenizer, 4).tokens
        assert [tokenizer.decode(row.tolist()) for row in rows][:2] == ["<s>a b c", "<s> d e f"]


class Fast(WordTokenizer):
    """Several texts in one call, as a tokenizer of the library."""

    is_fast = True

    def __init__(self):
        super().__init__(bos="<s>")
        self.calls = 0

    def __call__(self, text, add_special_tokens=True):
        self.calls += 1
        texts = [text] if isinstance(text, str) else text
        ids = [WordTokenizer.__call__(self, one, add_special_tokens) for one in texts]
        return {"input_ids": ids[0] if isinstance(text, str) else ids}


def test_a_fast_tokenizer_reads_all_texts_in_a_few_calls(tmp_path):
    records = [{"text": f"it is {i}", "answer": f"so{i}"} for i in range(50)]
    path, fast = save(tmp_path / "rows.json", records), Fast()
    data, plain = read_data(path, fast), WordTokenizer(bos="<s>")
    assert fast.calls < 20
    one = read_data(path, plain)
    for rows, others in ((data.tokens, one.tokens), (data.answers, one.answers)):
        texts = [fast.decode(row.tolist()) for row in rows]
        assert texts == [plain.decode(row.tolist()) for row in others]
