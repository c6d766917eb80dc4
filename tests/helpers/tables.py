"""Data files of rows, in the formats that hold them."""

import json

import pandas as pd


def write(path, records):
    """The records as `.jsonl` or `.parquet`, by the path's ending; gives the path back."""
    if path.suffix == ".parquet":
        pd.DataFrame(records).to_parquet(path)
    else:
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path
