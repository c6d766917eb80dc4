"""A mapping file to edit: every tensor of a checkpoint with its guessed name, and the settings.

`keys_template` reads a checkpoint's names, shapes and configuration and writes what `load(keys=)`
reads (`key_rules`): rules by name pattern, each with its shape; guesses with their reason under
"guess"; "?" where only the user knows. Settings come from the file's own configuration under any
common name ("from"), from the names (a guess), or are "?".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from interp_toolkit.models.loading.parameters.foreign_config import ForeignConfig
from interp_toolkit.models.loading.parameters.guess import GuessedNames, guess_names
from interp_toolkit.models.loading.parameters.key_rules import BLANK
from interp_toolkit.models.loading.parameters.units import Entry

#: settings that a mapping names even where they are plain, and their order
_ORDER = (
    *("n_heads", "d_head", "act_fn", "normalization_type", "eps", "final_norm"),
    *("positional_embedding_type", "rotary_dim", "rotary_base", "rotary_adjacent_pairs"),
    *("attention_dir", "tied_embeddings", "n_ctx"),
)
_NEEDED = {
    "n_heads": "how many attention heads each layer has",
    "positional_embedding_type": "rotary or none: there are no position embeddings",
}


@dataclass(frozen=True)
class Template:
    """A mapping to edit.

    Attributes:
        content: what the JSON file holds.
        n_tensors: number of tensors of the checkpoint.
        guesses: what is only guessed, by name of tensor or setting.
        blanks: what has to be filled in, by name of tensor or setting, with the reason.
    """

    content: Mapping[str, Mapping[str, Any]]
    n_tensors: int
    guesses: Mapping[str, str]
    blanks: Mapping[str, str]

    def to_json(self) -> str:
        """The file: one line for each tensor or setting."""
        parts = []
        for name, rows in self.content.items():
            lines = [f"    {json.dumps(key)}: {json.dumps(row)}" for key, row in rows.items()]
            parts.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n  }")
        return "{\n" + ",\n".join(parts) + "\n}\n"


def template_of(
    tensors: Mapping[str, Tensor], foreign: ForeignConfig, cfg: Mapping[str, Any]
) -> Template:
    """The mapping for a checkpoint's tensors and configuration, in our fields and as saved."""
    fields = dict(foreign.fields)
    guessed = guess_names(tensors, fields.get("n_heads"))
    if cfg.get("no_scale_embedding") is False:  # Fairseq's
        guessed = guessed.with_scaled_embedding("no_scale_embedding is false in the file")
    rules = {entry.pattern: _rule(entry, tensors) for entry in guessed.entries}
    settings = _settings(guessed, fields, foreign.names)
    both = {**{n: r for n, r in rules.items() if r is not None}, **settings}
    return Template(
        {"tensors": rules, "settings": settings},
        len(tensors),
        {name: row["guess"] for name, row in both.items() if "guess" in row},
        {
            name: str(row.get("why", row.get("needed", "")))
            for name, row in both.items()
            if BLANK in (row.get("to"), row.get("value"))
        },
    )


def _rule(entry: Entry, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    to: Any = None if not entry.to else entry.to[0] if len(entry.to) == 1 else list(entry.to)
    blank = entry.pattern.endswith(".*")
    row: dict[str, Any] = {"to": BLANK if blank else to}
    if entry.axes is not None:
        row["axes"] = entry.axes
    if entry.skip:
        row["skip"] = entry.skip
    if entry.scale != 1:
        row["scale"] = entry.scale
    if entry.offset:
        row["offset"] = entry.offset
    if blank:
        start = entry.pattern.removesuffix("*")
        row["shape"] = {n: list(t.shape) for n, t in tensors.items() if n.startswith(start)}
    else:
        row["shape"] = list(entry.shape)
    if entry.guess:
        row["guess"] = entry.guess
    if entry.why:
        row["why"] = entry.why
    return row


def _settings(
    guessed: GuessedNames, fields: Mapping[str, Any], names: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Each setting with its origin; the configuration's before a guess."""
    rows: dict[str, dict[str, Any]] = {}
    for name in _ORDER:
        value, reason = guessed.settings.get(name, (None, ""))
        own = f"the file's configuration, {names.get(name, name)}"
        named = {"n_heads", "eps", "attention_dir", "act_fn", *guessed.settings}
        if name in fields and name in named - {"tied_embeddings"}:
            rows[name] = {"value": fields[name], "from": own}
        elif name not in guessed.settings:
            continue
        elif value == BLANK:
            rows[name] = {"value": BLANK, "needed": _NEEDED[name]}
        else:
            rows[name] = {"value": value, "guess": reason} if reason else {"value": value}
    return rows
