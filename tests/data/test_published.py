"""Tables in the formats and under the column names of published data sets."""

import csv
import io
import json

import pytest

from interp_toolkit import InputError
from interp_toolkit.data import read_data
from interp_toolkit.data.files import check_header

RECORDS = [
    {"clean": "a b c", "corrupted": "a d c", "answer": " b", "wrong": " d", "short": True},
    {"clean": "b c d", "corrupted": "b a d", "answer": " c", "wrong": " a", "short": False},
]
OF_IDS = [
    {"tokens": [1, 2, 3], "answer": 2, "wrong": 4, "position": 1},
    {"tokens": [2, 3, 4], "answer": 3, "wrong": 1, "position": 2},
]


def ids(text):
    """A tokenizer of whole words, which share one id with and without a space before them."""
    return [sum(map(ord, word)) for word in text.split()]


def separated(records, delimiter):
    text = io.StringIO()
    writer = csv.DictWriter(text, records[0], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(
        {k: json.dumps(v) if isinstance(v, list) else v for k, v in r.items()} for r in records
    )
    return text.getvalue()


FORMATS = {
    ".csv": lambda records: "\ufeff" + separated(records, ","),
    ".tsv": lambda records: separated(records, "\t"),
    ".json": json.dumps,
    "lists.json": lambda records: json.dumps({k: [r[k] for r in records] for k in records[0]}),
}


def saved(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("records", [RECORDS, OF_IDS], ids=["words", "ids"])
@pytest.mark.parametrize("ending", FORMATS)
def test_a_table_gives_what_its_records_give_as_jsonl(tmp_path, ending, records):
    lines = saved(tmp_path / "data.jsonl", "\n".join(map(json.dumps, records)))
    data = read_data(saved(tmp_path / f"data{ending}", FORMATS[ending](records)), ids)
    assert data.digest() == read_data(lines, ids).digest()
    assert data.names == read_data(lines, ids).names


def only(path, records):
    """The one prompt's ids, answer and wrong answer, and what was reported."""
    data = read_data(saved(path, "\n".join(map(json.dumps, records))), ids)
    return data.tokens[0].tolist(), data.answers[0].tolist(), data.wrong[0].tolist(), data.source


PUBLISHED = {
    "IOI": {"text": "Ann and Bob met. Bob thanked Ann", "IO": "Ann", "S": "Bob", "template": "ABB"},
    "CounterFact": {
        "requested_rewrite": {
            "prompt": "{} met Bob. Bob thanked",
            "subject": "Ann and",
            "target_true": {"str": "Ann"},
            "target_new": {"str": "Bob"},
        }
    },
    "CounterFact, flat": {
        "prompt": "Ann and met Bob. Bob thanked",
        "target_true": " Ann",
        "target_false": " Bob",
        "relation_id": "P27",
    },
    "BLiMP": {
        "sentence_good": "Ann and met Bob. Bob thanked Ann here",
        "sentence_bad": "Ann and met Bob. Bob thanked Bob here",
        "UID": "made_here",
    },
    "TruthfulQA": {
        "Question": "Ann and met Bob. Bob thanked",
        "Best Answer": "Ann was thanked",
        "Correct Answers": "Ann was; she was",
        "Incorrect Answers": "Bob was; nobody was",
    },
    "feature-circuits": {
        "clean_prefix": "Ann and met Bob. Bob thanked",
        "patch_prefix": "Ann and met Bob. Ann thanked",
        "clean_answer": " Ann",
        "patch_answer": " Bob",
        "case": "subject",
    },
    "auto-circuit": {
        "clean": "Ann and met Bob. Bob thanked",
        "corrupt": "Ann and met Bob. Ann thanked",
        "answers": [" Ann", " Anne"],
        "wrong_answers": [" Bob"],
    },
    "MIB": {
        "prompt": "Ann and met Bob. Bob thanked",
        "choices": ["Bob", "Ann"],
        "answerKey": "B",
        "random_names_counterfactual": {"prompt": "Joe and met Kim. Kim thanked"},
    },
    "greater-than": {
        "prompt": "Ann and met Bob. Bob thanked",
        "corrupted_prompt": "Ann and met Bob. Ann thanked",
        "correct": "Ann",
        "incorrect": "Bob",
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_columns_of_published_data_sets_are_recognized(tmp_path, name):
    prompt, answer, wrong, source = only(tmp_path / "data.jsonl", [PUBLISHED[name]])
    text = "Ann and Bob met. Bob thanked" if name == "IOI" else "Ann and met Bob. Bob thanked"
    assert (prompt, answer, wrong) == (ids(text), ids("Ann"), ids("Bob"))
    rules = ("IOI", "CounterFact", "BLiMP", "TruthfulQA")
    assert (f"read as {name}" in source) == (name in rules)


@pytest.mark.parametrize(("choices", "key"), [(["Ann", "Bob"], 0), (["Bob", "Ann"], 2)])
def test_the_choice_of_the_key_is_the_answer_and_another_is_wrong(tmp_path, choices, key):
    record = {"prompt": "Ann and met Bob. Bob thanked", "choices": choices, "answerKey": key}
    _, answer, wrong, _ = only(tmp_path / "data.jsonl", [record])
    assert (answer, wrong) == (ids("Ann"), ids("Bob"))


def test_records_in_a_record_and_lines_in_a_json_file(tmp_path, texts):
    records = [PUBLISHED["auto-circuit"]] * 2
    lines = read_data(saved(tmp_path / "a.jsonl", "\n".join(map(json.dumps, records))), ids)
    nested = {"seq_labels": ["a", "b", "c"], "prompts": records}
    for text in (json.dumps(nested, indent=1), "\n".join(map(json.dumps, records))):
        data = read_data(saved(tmp_path / "a.json", text), ids)
        assert data.digest() == lines.digest()
        texts(data.source)


def test_input_and_output_are_prompt_and_answer(tmp_path, texts):
    text = json.dumps([{"input": "hot", "output": "cold"}, {"input": "up", "output": "down"}])
    data = read_data(saved(tmp_path / "antonym.json", text), ids)
    assert data.answers.tolist() == [[sum(map(ord, word))] for word in ("cold", "down")]
    texts(data.source)
    assert "not read" not in data.source


def choice(folder, records):
    data = read_data(saved(folder / "choice.jsonl", "\n".join(map(json.dumps, records))), ids)
    wrong = None if data.wrong is None else data.wrong.ravel().tolist()
    return data.answers.ravel().tolist(), wrong, [row.tolist() for row in data.tokens]


TEXTS = ["red ink", "blue sky", "dry tea"]
OPTIONS = {
    "list": ({"choices": TEXTS}, (0, 1, 2)),
    "from 1": ({"options": TEXTS}, (1, 2, 3)),
    "letters": ({"options": [f"({c}) {t}" for c, t in zip("ABC", TEXTS, strict=True)]}, "ABC"),
    "record": ({"choices": {"text": TEXTS, "label": ["1", "2", "3"]}}, "123"),
    "records": (
        {"choices": [{"label": c, "text": t} for c, t in zip("ABC", TEXTS, strict=True)]},
        "ABC",
    ),
    "by letter": ({"choices": dict(zip("ABC", TEXTS, strict=True))}, ("A.", "(B)", "C")),
    "columns": (dict(zip("ABC", TEXTS, strict=True)), "ABC"),
    "numbered": ({f"option{i}": t for i, t in enumerate(TEXTS, 1)}, "123"),
    "numbered from 0": ({f"sol{i}": t for i, t in enumerate(TEXTS, 1)}, (0, 1, 2)),
    "lettered": ({f"answer{c}": t for c, t in zip("ABC", TEXTS, strict=True)}, "ABC"),
}


@pytest.mark.parametrize("key", ["answer", "label", "correct"])
@pytest.mark.parametrize("form", OPTIONS)
def test_the_option_that_a_key_names_is_the_answer(tmp_path, form, key):
    options, keys = OPTIONS[form]
    rows = [{"question": "What is it", **options, key: one} for one in keys]
    answers, wrong, _ = choice(tmp_path, rows)
    assert answers == [ids(text)[0] for text in TEXTS]
    assert wrong == [ids(text)[0] for text in ("blue", "red", "red")]


@pytest.mark.parametrize("form", ["list", "numbered"])
def test_an_index_that_may_count_from_0_or_1_is_refused_unless_the_user_says(tmp_path, form):
    rows = [
        {"question": f"What is it {i}", **OPTIONS[form][0], "cop": k} for i, k in [(1, 1), (2, 2)]
    ]
    for start, words in ((0, ["blue", "dry"]), (1, ["red", "blue"])):
        path = saved(tmp_path / "cop.json", json.dumps(rows))
        data = read_data(path, ids, schema={"answer_index_from": start})
        assert data.answers.ravel().tolist() == [ids(f"{word} x")[0] for word in words]
        for read in (check_header, lambda path: read_data(path, ids)):
            with pytest.raises(InputError, match=f"'cop'.*--answer-index-from {start}") as error:
                read(path)
            assert len(str(error.value)) <= 300
        decides = {**rows[0], "question": "Which", "cop": 3 * start}
        data = read_data(saved(path, json.dumps([*rows, decides])), ids)
        assert data.answers.ravel().tolist()[:2] == [ids(f"{word} x")[0] for word in words]
        assert f"from {start}" in data.source
        with pytest.raises(InputError, match=f"--answer-index-from {1 - start}"):
            read_data(path, ids, schema={"answer_index_from": 1 - start})


def test_an_index_needs_options_and_labels_of_options_are_none(tmp_path):
    path = saved(tmp_path / "a.json", json.dumps([{"text": "a b", "answer": "c"}]))
    with pytest.raises(InputError, match="--answer-index-from"):
        read_data(path, ids, schema={"answer_index_from": 0})
    options = {"choices": {"text": TEXTS, "label": ["1", "2", "3"]}}
    answers, _, _ = choice(tmp_path, [{"question": "What is it", **options, "answerKey": "1"}])
    assert answers == [ids("red")[0]]


SPLITS = {"train": [{"text": "a b", "answer": "c"}], "test": [{"text": "d e", "answer": "f"}] * 2}


@pytest.mark.parametrize("name", ["train", "test"])
def test_one_of_several_lists_of_records_is_read_by_its_key(tmp_path, name):
    path = saved(tmp_path / "a.json", json.dumps(SPLITS))
    with pytest.raises(InputError, match="--records train"):
        read_data(path, ids)
    data = read_data(path, ids, schema={"records": name})
    assert data.answers.ravel().tolist() == [ids(r["answer"])[0] for r in SPLITS[name]]
    assert f"'{name}'" in data.source
    path = saved(tmp_path / "b.json", json.dumps({"all": SPLITS}))
    assert read_data(path, ids, schema={"records": f"all.{name}"}).digest() == data.digest()
    columns = {n: {k: [r[k] for r in rows] for k in rows[0]} for n, rows in SPLITS.items()}
    path = saved(tmp_path / "c.json", json.dumps(columns))
    with pytest.raises(InputError, match="--records train"):
        read_data(path, ids)
    assert read_data(path, ids, schema={"records": name}).digest() == data.digest()
    for one, other in ((path, "tests"), (saved(tmp_path / "a.csv", "text\na b\n"), "train")):
        with pytest.raises(InputError, match=r"--records|'tests'"):
            read_data(one, ids, schema={"records": other})


def test_lists_beside_the_usual_one_are_told(tmp_path):
    path = saved(
        tmp_path / "a.json", json.dumps({"data": SPLITS["train"], "other": SPLITS["test"]})
    )
    data = read_data(path, ids)
    assert len(data) == 1
    assert "'other'" in data.source


SUBJECTS = [("Rome", "Italy"), ("Oslo", "Norway")]


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("[X] lies in [Y] .", ("sub_label", "obj_label")),
        ("{} lies in", ("subject", "object")),
        ("{subject} lies in {object}.", ("subject", "object")),
        ("{{city}} lies in", ("city", "answer")),
        ("$CITY lies in", ("City", "target_true")),
    ],
)
def test_placeholders_are_filled_from_their_columns(tmp_path, template, names):
    samples = [dict(zip(names, pair, strict=True)) for pair in SUBJECTS]
    rows = [{"prompt": template, **sample} for sample in samples]
    data = read_data(saved(tmp_path / "rows.json", json.dumps(rows)), ids)
    assert [row.tolist() for row in data.tokens] == [ids(f"{one} lies in") for one, _ in SUBJECTS]
    assert data.answers.ravel().tolist() == [ids(other)[0] for _, other in SUBJECTS]
    assert f"filled from '{names[0]}'" in data.source
    assert "not read: " not in data.source
    file = {
        "prompt_templates": [template, "x {}"],
        "samples": [dict(zip(names, p, strict=True)) for p in SUBJECTS],
    }
    same = read_data(saved(tmp_path / "lre.json", json.dumps(file)), ids)
    assert same.digest() == data.digest()
    assert "'prompt_templates'" in same.source


def test_prompts_that_begin_with_their_blank_are_told(tmp_path):
    texts = ("[X] is in [Y]", "[Y] has [X]")
    rows = [{"prompt": text, "sub_label": "Ann", "obj_label": "Rome"} for text in texts]
    source = read_data(saved(tmp_path / "rows.json", json.dumps(rows)), ids).source
    assert "1 of 2 prompts" in source
    assert "whole" in source


@pytest.mark.parametrize(
    "row",
    [
        {"pattern": "[X] lies in the [Y]."},
        {"prompt": "{} lies in", "name": "Rome"},
        {"prompt": "{} lies in {}", "subject": "Rome"},
        {"prompt": "[X] lies in", "subject": "Rome", "sub_label": "Oslo"},
        {"prompt": "{river} lies in", "city": "Rome"},
    ],
)
def test_placeholders_that_no_column_fills_are_refused_or_read_as_written(tmp_path, row):
    path, name = saved(tmp_path / "rows.json", json.dumps([row] * 2)), next(iter(row))
    with pytest.raises(InputError, match=f"--prompt-column {name}") as error:
        read_data(path, ids)
    assert len(str(error.value)) <= 300
    data = read_data(path, ids, schema={"prompt_column": name})
    assert data.tokens[0].tolist() == ids(row[name])
    assert "as written" in data.source


@pytest.mark.parametrize("text", ["x = {}", r"so \\frac{ab}{cd} is", "of {1, 2} and x^{th}"])
def test_braces_of_code_and_formulas_in_some_prompts_are_no_placeholders(tmp_path, text):
    rows = [{"prompt": text, "subject": "math"}, {"prompt": "a plain one", "subject": "art"}]
    data = read_data(saved(tmp_path / "rows.json", json.dumps(rows)), ids)
    assert data.tokens[0].tolist() == ids(text)


def test_an_answer_that_does_not_fill_the_blank_is_told(tmp_path):
    rows = [
        {"context": f"The {who} is BLANK.", "target": who, "whole": f"The {who} is {what}."}
        for who, what in (("cook", "calm"), ("judge", "fair"))
    ]
    path = saved(tmp_path / "rows.json", json.dumps(rows))
    for name in ("target", "whole"):
        schema = {"prompt_column": "context", "answer_column": name}
        assert "does not fill" in read_data(path, ids, schema=schema).source


@pytest.mark.parametrize("cells", [[[0.0, 1.5], [2.5, 1.0]], [[0.0, 1.5], [2, 1]]])
def test_lists_of_numbers_are_no_answers(tmp_path, cells):
    rows = [{"text": f"a b {i}", "answer": cell} for i, cell in enumerate(cells)]
    path = saved(tmp_path / "rows.json", json.dumps(rows))
    with pytest.raises(InputError, match=r"'answer'.*list of numbers"):
        read_data(path, ids, schema={"answer_column": "answer"})
    if any(isinstance(one, int) for one in cells[1]):  # floats, or token ids
        with pytest.raises(InputError, match=r"'answer'.*list of numbers"):
            read_data(path, ids)
        return
    data = read_data(path, ids)
    assert data.answers is None
    assert "'answer'" in data.source


def test_a_key_without_an_option_is_refused_and_features_are_no_options(tmp_path, texts):
    row = {"sentence": "Ann helped as _ was nice", "option1": "Ann", "option2": "Bob"}
    path = saved(tmp_path / "winogrande.jsonl", json.dumps(row | {"answer": "3"}))
    for read in (check_header, lambda path: read_data(path, ids)):
        with pytest.raises(InputError, check=texts):
            read(path)
    rows = [{"question": f"What is {key}", "choices": TEXTS, "answer": key} for key in (-1, 0, 2)]
    with pytest.raises(InputError, match="choices"):
        choice(tmp_path, rows)
    bits = [{"text": f"x {a} {b}", "a": a, "b": b, "answer": a ^ b} for a in (0, 1) for b in (0, 1)]
    data = read_data(saved(tmp_path / "xor.json", json.dumps(bits)), ids)
    assert data.answers.ravel().tolist() == [ids(str(row["answer"]))[0] for row in bits]
    assert data.names == ("a", "b")


@pytest.mark.parametrize("blank", ["_", "___", "[MASK]", "<mask>", "BLANK"])
def test_prompts_end_before_their_blank_and_stay_whole_without_answers(tmp_path, blank):
    rows = [{"sentence": f"Ann helped as {blank} was nice."}, {"sentence": f"I am {blank}."}]
    path = saved(tmp_path / "rows.json", json.dumps(rows))
    assert [row.tolist() for row in read_data(path, ids).tokens] == [
        ids(r["sentence"]) for r in rows
    ]
    path = saved(tmp_path / "rows.json", json.dumps([r | {"answer": "Kim"} for r in rows]))
    data = read_data(path, ids)
    assert [row.tolist() for row in data.tokens] == [ids("Ann helped as"), ids("I am")]
    assert "2 of 2 prompts" in data.source


def test_values_in_records_are_columns_by_their_paths(tmp_path):
    rows = [
        {"turns": [{"who": "a", "say": "It is in"}], "about": {"right": ["Rome"], "kind": 1}}
    ] * 2
    path = saved(tmp_path / "rows.json", json.dumps(rows))
    with pytest.raises(InputError, match=r"turns\.0\.say"):
        read_data(path, ids)
    schema = {"prompt_column": "turns.0.say", "answer_column": "about.right"}
    data = read_data(path, ids, schema=schema)
    assert (data.tokens[0].tolist(), data.answers[0].tolist()) == (ids("It is in"), ids("Rome"))
    with pytest.raises(InputError, match=r"--answer-column about\.right"):
        read_data(path, ids, schema=schema | {"answer_column": "about"})
    flag = read_data(path, ids, schema={**schema, "feature_column": "about.kind"})
    assert flag.column("about.kind").tolist() == [True, True]


def test_lists_of_texts_pairs_and_lists_of_words_are_prompts(tmp_path):
    data = read_data(saved(tmp_path / "a.json", json.dumps(["a b", "c d"])), ids)
    assert [row.tolist() for row in data.tokens] == [ids("a b"), ids("c d")]
    data = read_data(saved(tmp_path / "a.json", json.dumps([["hot", "cold"], ["up", "down"]])), ids)
    assert (data.tokens[0].tolist(), data.answers[0].tolist()) == (ids("hot"), ids("cold"))
    data = read_data(saved(tmp_path / "a.jsonl", json.dumps({"tokens": ["a", "b"]})), ids)
    assert data.tokens[0].tolist() == ids("a b")


def test_rows_without_an_answer_are_left_out_and_counted(tmp_path, texts):
    data = read_data(saved(tmp_path / "data.csv", "text,answer\na b,c\nd e,\nf g,h\n"), ids)
    assert data.answers.tolist() == [[ord("c")], [ord("h")]]
    texts(data.source)
    with pytest.raises(InputError, check=texts):
        read_data(saved(tmp_path / "data.csv", "text,answer\na b,\nd e,\nf g,h\n"), ids)


def test_token_ids_of_right_and_wrong_answers_are_answers(tmp_path):
    header = ",clean,corrupted,corrupted_hard,correct_idx,incorrect_idx\n"
    path = saved(
        tmp_path / "ioi.csv", header + "7,a b c,a d c,a c c,47,26\n1,b c d,b a d,b d d,5,0\n"
    )
    data = read_data(path, ids)
    assert (data.answers.tolist(), data.wrong.tolist()) == ([[47], [5]], [[26], [0]])
    assert "read as EAP-IG" in data.source
    assert [row.tolist() for row in data.corrupted] == [ids("a d c"), ids("b a d")]


def test_a_number_beside_a_pair_that_may_be_a_year_is_no_answer(tmp_path):
    text = "clean,corrupted,correct_idx\nfrom 1752 to 17,from 1701 to 17,52\n"
    with pytest.raises(InputError, match="--answer-column"):
        read_data(saved(tmp_path / "greater.csv", text), ids)


def test_answers_that_are_digits_in_words_stay_words(tmp_path):
    path = tmp_path / "digits.csv"
    path.write_text("text,answer,wrong,even\none,1,0,0\nnought,0,1,1\n")
    data = read_data(path, ids)
    assert data.answers.tolist() == [[ord("1")], [ord("0")]]
    assert data.wrong.tolist() == [[ord("0")], [ord("1")]]
    assert data.features.tolist() == [[False], [True]]


def test_a_feature_under_such_a_name_stays_a_feature(tmp_path):
    records = [{"text": "a b", "correct": True}, {"text": "b a", "correct": False}]
    data = read_data(saved(tmp_path / "data.json", json.dumps(records)), ids)
    assert (data.names, data.answers) == (("correct",), None)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("data.csv", "body,answer\na,b\n"),
        ("data.csv", "text,wrong\na,b\n"),
        ("data.csv", "text,answer\na,b\na\n"),
        ("data.csv", "text,text\na,b\n"),
        ("data.csv", 'text\n"a\n'),
        ("data.tsv", "text\n"),
        ("data.json", "[1, 2]"),
        ("data.json", '{"text": ["a"], "answer": []}'),
        ("data.json", "[{]"),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_header(tmp_path, name, text, texts):
    path = saved(tmp_path / name, text)
    with pytest.raises(InputError, check=texts) as refused:
        check_header(path, None)
    assert len(str(refused.value)) <= 300


def test_a_feature_that_is_not_there_is_refused_by_the_header(tmp_path):
    path = saved(tmp_path / "data.jsonl", '{"tokens": [1], "a": true}')
    with pytest.raises(InputError, match="'b'"):
        check_header(path, ["b"])


def test_prompts_longer_than_the_context_are_left_out_and_counted(tmp_path, texts):
    records = [{"tokens": [1, 2], "answer": 3}, {"tokens": [1, 2, 3], "answer": 4}]
    data = read_data(saved(tmp_path / "data.json", json.dumps([*records, records[0]])))
    short = data.within_context(2)
    assert [row.tolist() for row in short.tokens] == [[1, 2], [1, 2]]
    assert short.answers.tolist() == [[3], [3]]
    texts(short.source)
    assert data.within_context(1) is data
