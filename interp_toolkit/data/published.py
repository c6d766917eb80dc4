"""Columns of published data sets under the names that `files` reads, and CSV cells as values.

IOI (`text` with the indirect object at its end, `IO`, `S`), BLiMP (`sentence_good`,
`sentence_bad`: the words that they share are the prompt, the first that differs is the answer),
CounterFact (`requested_rewrite`, or `prompt`, `target_true`, `target_false`), TruthfulQA
(`question`, `best_answer`, `incorrect_answers`), and what others call prompts and answers. A name
that `files` reads itself goes before any other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Columns = dict[str, list[Any]]

#: what others call our columns, in lower case, spaces as underscores; the first that is there
_NAMES = {
    "clean": ("clean_prompt", "prompt_clean"),
    "corrupted": ("corrupt", "corrupted_prompt", "counterfactual_prompt", "corrupted_hard"),
    "text": ("prompt", "question", "sentence", "input", "prefix"),
    "answer": ("target_true", "correct_answer", "best_answer", "correct", "target", "io"),
    "wrong": (
        *("target_false", "target_new", "wrong_answer", "incorrect_answer"),
        *("best_incorrect_answer", "incorrect_answers", "incorrect", "s"),
    ),
}
_IDS = ("tokens", "clean", "corrupted", "position", "answer_position", "answer", "wrong")
_WORDS = ("text", "clean", "corrupted", "answer", "wrong")
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


def as_read(columns: Mapping[str, Sequence[Any]]) -> tuple[Columns, str]:
    """The columns under our names, and in words what was renamed or cut; empty where nothing was.

    Answers of renamed columns are words behind a prompt, so that they begin with a space.
    """
    read = {str(name): list(values) for name, values in columns.items()}
    read = _pairs_of_sentences(_counterfact(read))
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
    read = {**read, **{ours: read.pop(original) for ours, original in renamed.items()}}
    if "answer" in renamed:
        _as_words(read)
    renames = ", ".join(f"{original} as {ours}" for ours, original in renamed.items())
    return read, f"read {renames}" if renames else ""


def cell_values(columns: Mapping[str, Sequence[str]]) -> Columns:
    """Cells of a table of text as values: ids, whole numbers and booleans where those are meant."""
    of_ids = any(
        name in columns and all(cell.lstrip().startswith("[") for cell in columns[name])
        for name in ("tokens", "clean", "text")
    )
    read: Columns = {}
    for name, cells in columns.items():
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


def _as_words(columns: Columns) -> None:
    """Answers as the words that follow: the first of several, cut off the prompt, with a space."""
    for name in ("answer", "wrong"):
        if name in columns:
            columns[name] = [_first(value) for value in columns[name]]
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
