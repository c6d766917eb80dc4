"""Columns of published data sets under the names that `files` reads, and CSV cells as values.

IOI (`text` with the indirect object at its end, `IO`, `S`), BLiMP (`sentence_good`,
`sentence_bad`: the words that they share are the prompt, the first that differs is the answer),
CounterFact (`requested_rewrite`, or `prompt`, `target_true`, `target_false`), TruthfulQA
(`question`, `best_answer`, `incorrect_answers`), EAP-IG's token ids (`correct_idx` beside
`incorrect_idx`; alone it may be a year), feature-circuits (`clean_prefix`, `patch_prefix`, ...),
auto-circuit (`answers`, `wrong_answers`), MIB (`choices`, `answerKey`), and what others call
prompts and answers. A name that `files` reads itself goes before any other.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Columns = dict[str, list[Any]]

#: what others call our columns, in lower case, spaces as underscores; the first that is there
_NAMES = {
    "clean": ("clean_prompt", "prompt_clean", "clean_prefix"),
    "corrupted": (
        *("corrupt", "corrupted_prompt", "counterfactual_prompt", "corrupted_hard"),
        "patch_prefix",
    ),
    "text": ("prompt", "question", "sentence", "input", "prefix"),
    "answer": (
        *("target_true", "correct_answer", "best_answer", "clean_answer", "answers", "correct"),
        *("target", "output", "io"),
    ),
    "wrong": (
        *("target_false", "target_new", "wrong_answer", "incorrect_answer"),
        *("best_incorrect_answer", "incorrect_answers", "wrong_answers", "patch_answer"),
        *("incorrect", "s"),
    ),
}
_TOKEN_IDS = {"answer": "correct_idx", "wrong": "incorrect_idx"}
_IDS = ("tokens", "clean", "corrupted", "position", "answer_position", "answer", "wrong")
_WORDS = ("text", "clean", "corrupted", "answer", "wrong")
_INDEX = ("", "Unnamed: 0")  # what pandas calls its row numbers
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


def as_read(columns: Mapping[str, Sequence[Any]]) -> tuple[Columns, str]:
    """The columns under our names, and in words what was renamed or cut; empty where nothing was.

    Answers of renamed columns are words behind a prompt, so that they begin with a space.
    """
    read = {str(name): list(values) for name, values in columns.items()}
    read = _choices(_pairs_of_sentences(_counterfact(read)))
    plain = {name.strip().lower().replace(" ", "_"): name for name in read}
    prompts = {"tokens", "text", "clean"} & read.keys()
    renamed: dict[str, str] = {}
    for ours, others in _NAMES.items():
        texts = (plain[name] for name in others if name in plain and _are_texts(read[plain[name]]))
        original = next(texts, None)
        taken = ours in read or (ours in ("text", "clean") and bool(prompts))
        if original is not None and not taken and original not in renamed.values():
            renamed[ours] = original
            prompts |= {ours} & {"text", "clean"}
    if "answer" not in {*read, *renamed}:
        renamed.pop("wrong", None)  # such as a column "s" of something else
    for ours, original in renamed.items():
        read[ours] = read.pop(original)
    several = _first_of_several(read, renamed)
    if "answer" in renamed:
        _as_words(read)
    if not {"answer", "wrong"} & read.keys() and set(_TOKEN_IDS.values()) <= read.keys():
        for ours, original in _TOKEN_IDS.items():
            read[ours] = [_parsed(str(cell)) for cell in read.pop(original)]
            renamed[ours] = f"{original} (token ids)"
    renames = ", ".join(f"{original} as {ours}" for ours, original in renamed.items())
    notes = [f"read {renames}" if renames else "", several]
    return read, "; ".join(note for note in notes if note)


def cell_values(columns: Mapping[str, Sequence[str]]) -> Columns:
    """Cells of a table of text as values: ids, whole numbers and booleans where those are meant.

    The row numbers that pandas writes are left out.
    """
    of_ids = any(
        name in columns and all(cell.lstrip().startswith("[") for cell in columns[name])
        for name in ("tokens", "clean", "text")
    )
    read: Columns = {}
    for name, cells in columns.items():
        if name.strip() in _INDEX:
            continue
        numbers = name in ("tokens", "position", "answer_position") or (of_ids and name in _IDS)
        if numbers:
            read[name] = [_parsed(cell) for cell in cells]
        elif name not in _WORDS and all(cell.strip().lower() in _BOOLEANS for cell in cells):
            read[name] = [_BOOLEANS[cell.strip().lower()] for cell in cells]
        else:
            read[name] = list(cells)
    return read


def _parsed(cell: str) -> Any:
    try:
        return json.loads(cell)
    except ValueError:  # its reader says what it is
        return cell


def _counterfact(columns: Columns) -> Columns:
    """CounterFact's nested records, flat: prompt with subject, the true word, the new one."""
    records = columns.get("requested_rewrite")
    if not records or not all(isinstance(one, Mapping) for one in records):
        return columns
    flat: Columns = {"prompt": [], "target_true": [], "target_new": []}
    for one in records:
        flat["prompt"].append(str(one.get("prompt")).replace("{}", str(one.get("subject"))))
        for name in ("target_true", "target_new"):
            word = one.get(name)
            flat[name].append(word.get("str") if isinstance(word, Mapping) else word)
    return flat


def _pairs_of_sentences(columns: Columns) -> Columns:
    """BLiMP's pairs as prompts: the words that both share from the start, then one word each."""
    if not {"sentence_good", "sentence_bad"} <= columns.keys():
        return columns
    rest = {n: v for n, v in columns.items() if n not in ("sentence_good", "sentence_bad")}
    rest |= {"prompt": [], "target_true": [], "target_false": []}
    pairs = zip(columns["sentence_good"], columns["sentence_bad"], strict=True)
    for good, bad in ((str(one).split(), str(other).split()) for one, other in pairs):
        same = [a == b for a, b in zip(good, bad, strict=False)]
        n = same.index(False) if False in same else min(len(good), len(bad))
        rest["prompt"].append(" ".join(good[:n]))
        rest["target_true"].append((good[n:] or [""])[0])
        rest["target_false"].append((bad[n:] or [""])[0])
    return rest


def _choices(columns: Columns) -> Columns:
    """MIB's choices as words: the one whose index the key is, and the others."""
    choices, keys = columns.get("choices", []), columns.get("answerKey", [])
    if not choices or not all(
        isinstance(some, list) and _are_texts(some) and type(key) is int and 0 <= key < len(some)
        for some, key in itertools.zip_longest(choices, keys)
    ):
        return columns
    rest = {name: v for name, v in columns.items() if name not in ("choices", "answerKey")}
    pairs = list(zip(choices, keys, strict=True))
    rest["target_true"] = [some[key] for some, key in pairs]
    if all(len(some) > 1 for some in choices):
        rest["target_false"] = [some[:key] + some[key + 1 :] for some, key in pairs]
    return rest


def _first_of_several(columns: Columns, renamed: Iterable[str]) -> str:
    """Keep the first of several answers in words, and say how often."""
    count = 0
    for name in {"answer", "wrong"} & columns.keys():
        values = columns[name]
        firsts = [
            _first(value) if name in renamed or isinstance(value, list) else value
            for value in values
        ]
        count += sum(
            value not in (first, [first]) for value, first in zip(values, firsts, strict=True)
        )
        columns[name] = firsts
    return f"the first of several answers counts, {count} times" if count else ""


def _as_words(columns: Columns) -> None:
    """Answers as the words that follow: cut off the prompt, with a space before them."""
    prompt = "clean" if "clean" in columns else "text"
    for row, text in enumerate(columns.get(prompt, ())):
        answer = columns["answer"][row]
        if not isinstance(text, str) or not isinstance(answer, str):
            continue
        if answer.strip() and text.rstrip(" .").endswith(f" {answer.strip()}"):
            text = columns[prompt][row] = text.rstrip(" .").removesuffix(f" {answer.strip()}")
        for name in ("answer", "wrong"):
            word = columns[name][row] if name in columns else None
            if isinstance(word, str) and not text.endswith(" ") and word[:1].strip():
                columns[name][row] = f" {word}"


def _are_texts(values: Sequence[Any]) -> bool:
    return all(isinstance(_first(value), str) for value in values)


def _first(value: Any) -> Any:
    """The first of a list of texts, or of texts between semicolons."""
    if isinstance(value, list) and value and isinstance(value[0], str):
        return value[0]
    return value.split(";")[0].strip() if isinstance(value, str) and ";" in value else value
