"""Layouts of published data sets, as files of two made-up rows each (`tests/data/published`)."""

import csv
import io
import json
import re
from pathlib import Path

import pandas as pd
import yaml

FILE = Path(__file__).parents[1] / "data" / "published" / "layouts.yaml"


def layouts():
    """The registry: one mapping for each data set."""
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))


def written(layout, folder):
    """The path of a file in the data set's own form."""
    path = Path(folder) / f"data.{layout['ending']}"
    names = layout["columns"]
    records = [dict(zip(names, row, strict=True)) for row in layout["rows"]]
    save(path, records * layout.get("times", 1), under=layout.get("under"))
    if "beside" in layout:
        path.write_text(json.dumps(layout["beside"] | json.loads(path.read_text())))
    if layout.get("mapping"):
        path.write_text(json.dumps(dict(layout["rows"])))
    if layout.get("bom"):
        path.write_text("\ufeff" + path.read_text())
    return path


def save(path, records, under=None):
    """Records in the format of the path's ending; a JSON list may lie under a key."""
    ending = path.suffix
    if ending == ".parquet":
        pd.DataFrame(records).to_parquet(path)
    elif ending in (".csv", ".tsv"):
        text = io.StringIO()
        delimiter = "\t" if ending == ".tsv" else ","
        writer = csv.writer(text, delimiter=delimiter)
        writer.writerow(records[0])
        writer.writerows([_cell(value) for value in record.values()] for record in records)
        path.write_text(text.getvalue())
    elif ending == ".jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    else:
        path.write_text(json.dumps(records if under is None else {"name": "x", under: records}))
    return path


def _cell(value):
    return "" if value is None else json.dumps(value) if isinstance(value, list) else value


class WordTokenizer:
    """Words with the space before them, as GPT-2 and Llama 3 split text; ids in order of use."""

    _PIECES = re.compile(r" ?[^\W\d_]+| ?[0-9]+|\n| ?[^\s\w]+|_+|\s", re.UNICODE)

    def __init__(self, bos=None):
        self.words = [] if bos is None else [bos]
        self.bos = bos

    def __call__(self, text, add_special_tokens=True):
        pieces = [self.bos] if self.bos is not None and add_special_tokens else []
        if self.bos is not None and text.startswith(self.bos):
            pieces.append(self.bos)
            text = text.removeprefix(self.bos)
        pieces += self._PIECES.findall(text)
        self.words += [piece for piece in dict.fromkeys(pieces) if piece not in self.words]
        return [self.words.index(piece) for piece in pieces]

    def decode(self, ids):
        return "".join(self.words[i] if i < len(self.words) else f"<{i}>" for i in ids)
