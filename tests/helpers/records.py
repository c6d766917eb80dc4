"""A result as plain data, for comparison with another and with itself."""

from __future__ import annotations

import json
from typing import Any

from shown import page


def record(result: Any) -> dict[str, Any]:
    """A result as plain data: JSON, tables, figures and what the terminal shows."""
    tables = [
        [t.title, t.caption, list(t.columns), list(map(list, t.rows))] for t in result.tables()
    ]
    plain = {
        "result": result.to_dict(),
        "tables": tables,
        "figures": [
            {"title": f.title, "caption": f.caption, "plot": f.to_plotly().to_plotly_json()}
            for f in result.figures()
        ],
        "terminal": page(result),
    }
    return json.loads(json.dumps(plain, default=_plain))


def _plain(value: Any) -> Any:
    """Arrays and their numbers as lists and numbers."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
