"""Data sets with rules of their own, recognized by all their columns and their values together.

A rule rewrites a table into columns `text`, `answer`, `wrong` and `corrupted`; `None` if the values
are not those of the data set. A file that merely shares a column's name is read as any other. The
result names the data set, and any choice of columns by the user switches these rules off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from interp_toolkit.data.cells import PromptTable, items_of, plain_name

Values = Mapping[str, Sequence[Any]]
Rule = Callable[[Values], dict[str, list[Any]] | None]


def recognized(table: PromptTable) -> tuple[PromptTable, str, bool | None]:
    """The table in columns that the reader knows, the data set's name, and `Schema.answer_ids`.

    The name is "" for any other file.
    """
    plain = {plain_name(name): name for name in table.columns}
    for title, needed, rule in _RULES:
        if not needed <= plain.keys():
            continue
        values = rule({name: table.columns[plain[name]].values for name in needed})
        if values is None:
            continue
        used = {plain[name] for name in needed}
        rest = {n: c for n, c in table.columns.items() if n not in used and n not in values}
        read = PromptTable.of(table.path, values | rest, table.unit, table.first, table.notes)
        return read, title, rule is _token_ids or None
    return table, "", None


def _ioi(values: Values) -> dict[str, list[Any]] | None:
    """IOI: the indirect object ends the text in every row, or in none."""
    rows = list(zip(values["text"], values["io"], values["s"], strict=True))
    if not all(isinstance(cell, str) and cell for row in rows for cell in row):
        return None
    if not all(s in text and io in text and io != s for text, io, s in rows):
        return None
    cut = [text.rstrip(" .").removesuffix(f" {io.strip()}") for text, io, _ in rows]
    ends = [before != text.rstrip(" .") for before, (text, _, _) in zip(cut, rows, strict=True)]
    if any(ends) and not all(ends):
        return None
    texts = cut if all(ends) else [text for text, _, _ in rows]
    return {"text": texts, "answer": [io for _, io, _ in rows], "wrong": [s for _, _, s in rows]}


def _counterfact(values: Values) -> dict[str, list[Any]] | None:
    """CounterFact: records of a prompt with a blank, its subject, the true and the new object."""
    read: dict[str, list[Any]] = {"text": [], "answer": [], "wrong": []}
    for one in values["requested_rewrite"]:
        if not isinstance(one, Mapping) or "{}" not in str(one.get("prompt")):
            return None
        words = [one.get(name) for name in ("target_true", "target_new")]
        if not all(
            isinstance(word, Mapping) and isinstance(word.get("str"), str) for word in words
        ):
            return None
        read["text"].append(one["prompt"].replace("{}", str(one.get("subject"))))
        read["answer"].append(words[0]["str"])  # type: ignore[index]
        read["wrong"].append(words[1]["str"])  # type: ignore[index]
    return read


def _blimp(values: Values) -> dict[str, list[Any]] | None:
    """BLiMP: the words that both sentences share are the prompt, then one word each."""
    read: dict[str, list[Any]] = {"text": [], "answer": [], "wrong": []}
    for one, other in zip(values["sentence_good"], values["sentence_bad"], strict=True):
        if not isinstance(one, str) or not isinstance(other, str):
            return None
        good, bad = one.split(), other.split()
        same = [a == b for a, b in zip(good, bad, strict=False)]
        n = same.index(False) if False in same else len(same)
        read["text"].append(" ".join(good[:n]))
        read["answer"].append((good[n:] or [""])[0])
        read["wrong"].append((bad[n:] or [""])[0])
    return read


def _truthful(values: Values) -> dict[str, list[Any]] | None:
    """TruthfulQA: answers separated by semicolons, or lists of them; the first wrong one counts."""
    firsts = []
    for cell in values["incorrect_answers"]:
        items = items_of(cell)
        items = items.split(";") if isinstance(items, str) else items
        firsts.append(str(items[0]).strip() if isinstance(items, list) and items else "")
    return {
        "text": list(values["question"]),
        "answer": list(values["best_answer"]),
        "wrong": firsts,
    }


def _token_ids(values: Values) -> dict[str, list[Any]] | None:
    """EAP-IG: token ids of the right and the wrong answer."""
    ids = {"answer": "correct_idx", "wrong": "incorrect_idx"}
    if not all(str(v).isdigit() for name in ids.values() for v in values[name]):
        return None
    texts = {name: list(values[name]) for name in ("clean", "corrupted")}
    return texts | {ours: [[int(v)] for v in values[name]] for ours, name in ids.items()}


_RULES: tuple[tuple[str, frozenset[str], Rule], ...] = (
    ("IOI", frozenset(("text", "io", "s")), _ioi),
    ("CounterFact", frozenset(("requested_rewrite",)), _counterfact),
    ("BLiMP", frozenset(("sentence_good", "sentence_bad", "uid")), _blimp),
    (
        "TruthfulQA",
        frozenset(("question", "best_answer", "correct_answers", "incorrect_answers")),
        _truthful,
    ),
    ("EAP-IG", frozenset(("clean", "corrupted", "correct_idx", "incorrect_idx")), _token_ids),
)
