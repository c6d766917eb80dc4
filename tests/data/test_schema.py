"""What a column of a table is: by names and values together, as the user says, or refused."""

import json
import string

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layouts import WordTokenizer, save

from interp_toolkit import InputError
from interp_toolkit.data import data_from_arrays, read_data
from interp_toolkit.data.files import check_header, preview


def read(folder, records, ending=".json", **options):
    """The data, and the texts of its prompts, answers and wrong answers."""
    tokenizer = options.pop("tokenizer", None) or WordTokenizer()
    data = read_data(save(folder / f"rows{ending}", records), tokenizer, **options)
    columns = (data.tokens, data.answers, data.wrong)
    texts = [c if c is None else [tokenizer.decode(row.tolist()) for row in c] for c in columns]
    return data, *texts


def rows(n, **columns):
    """Records whose cells repeat the values of each column."""
    return [
        {name: values[i % len(values)] for name, values in columns.items()} | {"n": i}
        for i in range(n)
    ]


@pytest.mark.parametrize(
    ("names", "pairs"),
    [
        (("input", "output"), [("mint, apple, goose", "goose"), ("goose, mint", "mint")]),
        (("prompt", "target"), [("red blue red blue", "blue"), ("red blue red", "red")]),
        (("question", "correct"), [("no no no no", "no"), ("Is it yes or no", "no")]),
        (("sentence", "IO"), [("Ann and Bob met. Bob thanked Ann", "Ann")] * 2),
    ],
)
def test_a_prompt_that_ends_with_its_answer_stays_whole(tmp_path, names, pairs):
    records = [dict(zip(names, pair, strict=True)) for pair in pairs]
    data, prompts, answers, _ = read(tmp_path, records)
    assert prompts == [prompt for prompt, _ in pairs]
    if answers is not None:
        assert f"in {len(pairs)} of {len(pairs)} rows" in data.source


IOI = [
    {"text": "Ann and Bob met. Bob thanked Ann", "IO": "Ann", "S": "Bob"},
    {"text": "Kim and Joe sat. Joe called Kim.", "IO": "Kim", "S": "Joe"},
]


def test_rules_of_a_data_set_need_all_its_columns_and_values_and_no_choice_of_the_user(tmp_path):
    data, prompts, answers, wrong = read(tmp_path, IOI)
    assert "read as IOI" in data.source
    cut = [row["text"].rstrip(".").rpartition(" ")[0] for row in IOI]
    assert prompts == cut
    assert (answers, wrong) == ([" Ann", " Kim"], [" Bob", " Joe"])
    chosen, prompts, answers, _ = read(tmp_path, IOI, schema={"answer_column": "S"})
    assert "read as" not in chosen.source
    assert prompts == [row["text"] for row in IOI]
    assert answers == [" Bob", " Joe"]
    other = [{**IOI[0], "text": "Ann and Bob met. Ann thanked Bob"}, IOI[1]]
    data, prompts, answers, _ = read(tmp_path, other)
    assert (prompts, answers) == ([row["text"] for row in other], None)
    assert "IO" in data.source.partition("not read: ")[2]


@pytest.mark.parametrize(
    ("classes", "prompts"),
    [
        (("bigram", "not_bigram"), ["we sat in the living room"]),
        (("yes", "no"), ["is this so"]),
        (("World", "Sports", "Business"), ["It rained in Oslo.", "The cup went home."]),
        ((0, 1, 2), ["It rained in Oslo.", "The cup went home."]),
    ],
)
@pytest.mark.parametrize("name", ["target", "output", "correct"])
def test_class_labels_are_not_taken_for_answers(tmp_path, name, classes, prompts):
    records = rows(30, prompt=prompts, **{name: classes})
    with pytest.raises(InputError) as error:
        read(tmp_path, records)
    assert f"--answer-column {name}" in str(error.value)
    assert f"--feature-column {name}" in str(error.value)
    _, _, answers, _ = read(tmp_path, records, schema={"answer_column": name})
    assert [answer.strip() for answer in answers[: len(classes)]] == [
        str(one).split("_")[0] for one in classes
    ]
    feature = f"{name}={classes[0]}"
    for options in ({"feature_names": [feature]}, {"schema": {"feature_column": feature}}):
        data, _, answers, _ = read(tmp_path, records, **options)
        assert data.names == (feature,)
        assert data.features[:, 0].tolist() == [row[name] == classes[0] for row in records]
        assert answers is None


@pytest.mark.parametrize(
    ("values", "true"),
    [
        (("bigram", "not_bigram"), "bigram"),
        (("negative", "positive"), "positive"),
        (("unsafe", "safe"), "safe"),
    ],
)
def test_of_two_values_the_true_one_is_reported(tmp_path, values, true):
    data, *_ = read(tmp_path, rows(6, text=["a b", "c"], kind=values), feature_names=["kind"])
    assert data.features[:, 0].tolist() == [value == true for value in values] * 3
    assert repr(true) in data.source
    with pytest.raises(InputError, match="kind=VALUE"):
        read(tmp_path, rows(6, text=["a b"], kind=["a", "b", "c"]), feature_names=["kind"])


def test_a_mark_is_true_and_an_empty_cell_beside_it_false(tmp_path):
    records = rows(8, text=["a b", "c"], checked=["x", ""])
    data, *_ = read(tmp_path, records, ".csv", feature_names=["checked=x"])
    assert data.features[:, 0].tolist() == [True, False] * 4


@pytest.mark.parametrize("name", ["answer", "correct_answer"])
def test_booleans_under_the_name_of_answers_are_asked_about(tmp_path, name):
    for values in ((True, False), ("true", "False"), (1, 0)):
        records = rows(8, question=["a b", "c d"], **{name: values})
        with pytest.raises(InputError, match=f"--feature-column {name}"):
            read(tmp_path, records)
        data, _, answers, _ = read(tmp_path, records, schema={"feature_column": [name]})
        assert (data.features[:, 0].tolist(), answers) == ([True, False] * 4, None)


@pytest.mark.parametrize("name", ["target", "output", "completion"])
def test_true_and_false_as_words_are_asked_about(tmp_path, name):
    records = rows(8, input=["not ( True ) is", "True and True is"], **{name: ["False", "True"]})
    with pytest.raises(InputError, match=f"--feature-column {name} or --answer-column {name}"):
        read(tmp_path, records, ".csv")
    chosen = {"answer_column": name}
    assert read(tmp_path, records, ".csv", schema=chosen)[2][:2] == [" False", " True"]
    data, *_ = read(tmp_path, rows(8, text=["a b"], correct=[True, False]))
    assert data.names == ("correct",)


def test_a_table_without_a_header_is_refused(tmp_path):
    path = tmp_path / "rows.tsv"
    for lines in (
        ["the cat sat on a mat\t1", "the dog lay in the sun\t0", "a cow ate all the grass\t1"],
        ["7\tcat\t7", "8\tdog\t9"],
    ):
        path.write_text("\n".join(lines))
        with pytest.raises(InputError, match="header"):
            read_data(path, WordTokenizer())


@pytest.mark.parametrize("mark", [";", "\t"])
def test_columns_that_other_marks_separate_are_refused(tmp_path, mark):
    path = tmp_path / "rows.csv"
    rows_of_words = [["text", "label"], ["the cat sat on a mat", "1"], ["the dog lay here", "0"]]
    path.write_text("\n".join(mark.join(row) for row in rows_of_words))
    with pytest.raises(InputError, match="separated"):
        read_data(path, WordTokenizer())


def test_text_and_prompt_in_one_file_are_asked_about(tmp_path):
    records = rows(4, text=["the sky is blue", "the sun is hot"], prompt=["the sky is", "it is so"])
    with pytest.raises(InputError, match="--prompt-column text or --prompt-column prompt"):
        read(tmp_path, records)


@pytest.mark.parametrize("answer", [";", ";\n", "); x", "red; not blue"])
@pytest.mark.parametrize("names", [("prompt", "target"), ("question", "best_answer")])
def test_semicolons_stay_in_answers(tmp_path, answer, names):
    records = [dict(zip(names, ("int x = 1", answer), strict=True))] * 2
    _, _, answers, _ = read(tmp_path, records)
    tokenizer = WordTokenizer()
    first = tokenizer.decode(tokenizer(f" {answer}" if answer[0].isalpha() else answer)[:1])
    assert answers == [first] * 2


@pytest.mark.parametrize(
    ("cells", "row"),
    [
        (("1", "", "0"), 2),
        (("0", "1", "x"), 3),
        (("true", "false", "n/a"), 3),
        (("yes", "no", "yes", "maybe"), 4),
        (("1", "0", "1", "0", "1", "2.5x"), 6),
        (("1", "0", "1", "0", "1", "9"), 6),
    ],
)
def test_a_bad_label_is_named_by_row_column_and_text(tmp_path, cells, row):
    records = [{"text": f"word {i}", "label": cell} for i, cell in enumerate(cells)]
    with pytest.raises(InputError) as error:
        read(tmp_path, records, ".csv")
    assert f"row {row}, column 'label': {cells[row - 1]!r}" in str(error.value)


@pytest.mark.parametrize("values", [(1.0, 0.0), ("1.0", "0.0"), (" True", "false "), ("YES", "no")])
@pytest.mark.parametrize("ending", [".csv", ".json"])
def test_labels_in_other_spellings_are_labels(tmp_path, values, ending):
    data, *_ = read(tmp_path, rows(6, text=["a b", "c"], label=values), ending)
    assert data.features[:, data.names.index("label")].tolist() == [True, False] * 3


def test_few_values_under_the_name_of_answers_are_reported(tmp_path):
    records = rows(20, text=["A fine film.", "A dull film."], answer=["good", "bad"])
    data, _, answers, _ = read(tmp_path, records)
    assert answers[:2] == [" good", " bad"]
    assert "'answer' has 2 values" in data.source


@pytest.mark.parametrize("missing", ["", "n/a", "N/A", "nan", None, "?"])
def test_rows_without_a_label_are_left_out_and_counted(tmp_path, missing):
    records = [{"text": f"word {i}", "label": i % 2} for i in range(12)]
    records[4]["label"] = missing
    data, prompts, *_ = read(tmp_path, records, ".csv")
    assert prompts == [f"word {i}" for i in range(12) if i != 4]
    assert data.features[:, 0].tolist() == [bool(i % 2) for i in range(12) if i != 4]
    assert "1 of 12 prompts" in data.source
    assert "row 5, column 'label'" in data.source


def test_numbers_are_text_unless_they_are_called_ids(tmp_path):
    records = [{"text": "2+2=", "answer": 4}, {"text": "3+5=", "answer": 8}]
    for ending in (".json", ".csv"):
        assert read(tmp_path, records, ending)[2] == ["4", "8"]
        data, *_ = read(tmp_path, records, ending, schema={"answer_ids": True})
        assert data.answers.tolist() == [[4], [8]]
    ids = [{"tokens": [1, 2], "answer": 4}, {"tokens": [3, 2], "answer": 8}]
    for ending in (".json", ".csv"):
        assert read(tmp_path, ids, ending)[0].answers.tolist() == [[4], [8]]


@pytest.mark.parametrize("ending", [".json", ".csv", ".parquet"])
def test_lists_in_cells_are_lists(tmp_path, ending):
    records = rows(3, clean=["oaks and other"], answers=[["trees", "plants"], ["woods"]])
    data, _, answers, _ = read(tmp_path, records, ending)
    assert answers == [" trees", " woods", " trees"]
    assert "2 times" in data.source
    spelled = [record | {"answers": str(record["answers"])} for record in records]
    assert read(tmp_path, spelled, ".csv")[2] == answers
    with pytest.raises(InputError, match=r"row 1, column 'answers'"):
        read(tmp_path, [r | {"answers": "['trees' 'plants']"} for r in records], ".csv")


def test_lists_of_numbers_are_asked_about(tmp_path):
    records = rows(3, text=["a b"], answer=[[4, 5], [6]])
    with pytest.raises(InputError, match=r"--answer-ids .*--answer-column answer"):
        read(tmp_path, records)
    for schema in ({"answer_ids": False}, {"answer_column": "answer"}):
        assert read(tmp_path, records, schema=schema)[2] == [" 4", " 6", " 4"]


CHOSEN = [
    {"a": "the sky is", "b": "blue", "c": "red", "d": "the sea is", "e": 1, "f": "x"},
    {"a": "the sun is", "b": "hot", "c": "cold", "d": "the ice is", "e": 0, "f": "y"},
]
SCHEMA = {
    "prompt_column": "d",
    "answer_column": "c",
    "wrong_column": "b",
    "corrupted_column": "a",
    "feature_column": ["e"],
    "group_column": "f",
    "answer_space": "add",
}


@pytest.mark.parametrize("ending", [".json", ".csv", ".parquet"])
def test_the_user_overrules_every_column(tmp_path, ending):
    named = tmp_path / "columns.yaml"
    named.write_text(yaml.safe_dump({k.replace("_", "-"): v for k, v in SCHEMA.items()}))
    for schema in (SCHEMA, named):
        data, prompts, answers, wrong = read(tmp_path, CHOSEN, ending, schema=schema)
        assert prompts == ["the sea is", "the ice is"]
        assert (answers, wrong) == ([" red", " cold"], [" blue", " hot"])
        assert data.features.tolist() == [[True], [False]]
        assert data.groups.tolist() == ["x", "y"]
        assert len(data.corrupted) == 2


@pytest.mark.parametrize(
    "schema",
    [
        {"prompt_column": "z"},
        {"prompt": "a"},
        {"answer_space": "none"},
        {"feature_column": ["f=z"]},
        {"answer_ids": "yes"},
        {"answer_index_from": 2},
        {"answer_index_from": True},
        {"records": 3},
        {"prompt_column": 3},
        {"prompt_column": "a", "answer_column": "a"},
        ["a"],
    ],
)
def test_choices_that_do_not_fit_are_one_line(tmp_path, schema):
    path = save(tmp_path / "rows.json", CHOSEN)
    if isinstance(schema, list):
        file = tmp_path / "schema.yaml"
        file.write_text(yaml.safe_dump(schema))
        schema = file
    for attempt in (read_data, check_header):
        options = {} if attempt is check_header else {"tokenizer": WordTokenizer()}
        with pytest.raises(InputError) as error:
            attempt(path, schema=schema, **options)
        assert len(str(error.value)) <= 300


def test_without_a_column_of_prompts_the_files_own_columns_are_listed(tmp_path):
    records = [{"left": "Rome", "right": "Italy"}, {"left": "Oslo", "right": "Norway"}]
    with pytest.raises(InputError, match=r"--prompt-column .*left, right"):
        read(tmp_path, records)
    texts = rows(4, body=["what a fine day it is", "this was a long night"], x=["a", "b"])
    assert read(tmp_path, texts)[1][0] == texts[0]["body"]  # the only texts of many words
    both = rows(
        4, one=["what a fine day", "a long night it"], two=["so it goes on", "let it be so"]
    )
    with pytest.raises(InputError, match="--prompt-column one or --prompt-column two"):
        read(tmp_path, both)


def test_a_name_whose_values_do_not_fit_is_not_followed(tmp_path):
    records = rows(
        12,
        prompt=["a", "b"],
        body=[f"this is text number {c}" for c in string.ascii_lowercase[:12]],
        position=["left", "right"],
        wrong=[True, False],
    )
    data, prompts, *_ = read(tmp_path, records)
    assert prompts == [record["body"] for record in records]
    assert data.positions is None
    assert data.names == ("wrong",)


@pytest.mark.parametrize("key", ["prompts", "data", "pairs", "items"])
def test_records_under_a_key_are_rows(tmp_path, key):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"about": "x", key: [{"text": "a b", "answer": "c"}] * 2}))
    data = read_data(path, WordTokenizer())
    assert len(data) == 2
    assert repr(key) in data.source
    by_id = {"one": {"text": "a b"}, "two": {"text": "c d"}}
    path.write_text(json.dumps(by_id))
    assert len(read_data(path, WordTokenizer())) == 2
    path.write_text(json.dumps({"text": {"0": "a b", "1": "c d", "2": "e f"}}))
    assert len(read_data(path, WordTokenizer())) == 3
    path.write_text(json.dumps({"x": [{"text": "a"}], "y": [{"text": "b"}]}))
    with pytest.raises(InputError, match="x, y"):
        read_data(path, WordTokenizer())


def test_features_that_tell_little_are_reported(tmp_path):
    records = [
        {"text": "word " * (2 + 5 * (i % 2)) + "end", "long": i % 2, "same": 1, "rare": i == 3}
        for i in range(200)
    ]
    data, *_ = read(tmp_path, records)
    notes = data.source.split("; ")
    for name in ("'long'", "'same'", "'rare'"):
        assert sum(name in note for note in notes) == 1
    assert set(data.reading) > {note.rstrip(")") for note in notes if "'long'" in note}


def test_positions_that_fit_few_prompts_are_no_positions(tmp_path):
    records = rows(6, text=["a b c", "d e f"], position=[50, 70, 1])
    data, *_ = read(tmp_path, records)
    assert data.positions is None
    assert "'position'" in data.source
    records = rows(6, text=["a b c", "d e f"], position=[0, 1, 2])
    assert read(tmp_path, records)[0].positions.tolist() == [0, 1, 2] * 2


def test_features_of_arrays_that_tell_little_are_reported_too():
    arrays = {"tokens": [[1, 2]] * 4, "features": {"same": [True] * 4, "half": [True, False] * 2}}
    reading = data_from_arrays(arrays).reading
    assert len(reading) == 1
    assert "'same'" in reading[0]


def test_what_is_read_is_shown_as_the_model_sees_it(tmp_path):
    records = [{"text": "the sky is", "answer": "blue"}, {"text": "the sea is", "answer": ""}] * 3
    path = save(tmp_path / "rows.csv", [*records, records[0]])
    tokenizer = WordTokenizer()
    lines = preview(path, tokenizer)
    assert list(lines) == list(read_data(path, tokenizer).reading)
    shown = [line for line in lines if "' blue'" in line]
    assert len(shown) == 3
    assert [line.partition(":")[0] for line in shown] == ["row 1", "row 3", "row 5"]
    assert any("3 of 7" in line for line in lines)
    untokenized = preview(path)
    assert sum("' blue'" in line for line in untokenized) == 3
    assert any("3 of 7" in line for line in untokenized)


ENDINGS = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
WORDS = st.text(string.ascii_letters + " ;=(\"'é漢0-[]", min_size=1, max_size=12)
CELLS = {
    "text": WORDS,
    "sentence": st.lists(
        st.sampled_from(["the", "sky", "is", "blue", "or", "not."]), min_size=3
    ).map(" ".join),
    "label": st.sampled_from(["good", "not good"]),
    "bit": st.sampled_from([0, 1]),
    "boolean": st.booleans(),
    "number": st.integers(2, 99),
    "texts": st.lists(st.sampled_from(["red", "blue"]), max_size=2),
    "missing": st.sampled_from(["", "n/a", "yes"]),
}
NAMES = (
    *("text", "prompt", "question", "input", "answer", "target", "output", "wrong", "corrupted"),
    *("position", "group", "label", "correct", "clean", "answers", "tokens", "IO", "S", "x"),
)


@st.composite
def tables(draw):
    """Records whose columns have any of the names, with values that need not suit them."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=5, unique=True))
    kinds = [draw(st.sampled_from(sorted(CELLS))) for _ in names]
    n = draw(st.integers(2, 8))
    return [
        {name: draw(CELLS[kind]) for name, kind in zip(names, kinds, strict=True)} for _ in range(n)
    ]


def outcome(path, schema):
    tokenizer = WordTokenizer()
    try:
        data = read_data(path, tokenizer, schema=schema)
    except InputError as error:
        return None if len(str(error)) <= 300 else str(error)
    texts = [
        None if column is None else [tokenizer.decode(row.tolist()) for row in column]
        for column in (data.tokens, data.answers, data.wrong, data.corrupted)
    ]
    groups = None if data.groups is None else data.groups.tolist()
    return texts, data.names, data.features.tolist(), groups


@settings(max_examples=150, suppress_health_check=list(HealthCheck), deadline=None)
@given(records=tables(), choose=st.booleans())
def test_every_format_is_read_alike_or_refused(tmp_path, records, choose):
    schema = None
    if choose:
        names = list(records[0])
        schema = {"prompt_column": names[0], "answer_column": names[1]}
    outcomes = [outcome(save(tmp_path / f"rows{ending}", records), schema) for ending in ENDINGS]
    assert all(one == outcomes[0] for one in outcomes[1:])


def test_columns_of_one_token_each_are_told_from_a_missing_prompt(tmp_path, texts):
    path = tmp_path / "tokens.csv"
    names = [f"t{number}" for number in range(13)]
    rows = [",".join([*names, "answer"]), *(",".join(map(str, range(n, n + 14))) for n in range(4))]
    path.write_text("\n".join(rows))
    with pytest.raises(InputError, match="t0 to t12") as caught:
        read_data(path)
    texts(str(caught.value).replace(str(tmp_path), ""))
    assert len(str(caught.value).replace(str(tmp_path), "")) <= 300
    lists = ["tokens,answer", *(f'"{list(range(n, n + 13))}",{n + 13}' for n in range(4))]
    path.write_text("\n".join(lists))  # as the message says
    data = read_data(path)
    assert [row.tolist() for row in data.tokens] == [list(range(n, n + 13)) for n in range(4)]
    assert data.answers.ravel().tolist() == [13, 14, 15, 16]
