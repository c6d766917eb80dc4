"""YAML files from anyone, as plain data: no tags, no anchors, each key once.

Anchors and aliases let a small file stand for data without bounds, and a key that stands twice
would be taken once without a word; both are refused by their line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from interp_toolkit.bounded import read_whole_text
from interp_toolkit.errors import InputError

LARGEST = 2**20  # bytes; to read as many takes ten seconds


def read_yaml(path: Path) -> Any:
    """What a file of YAML (or JSON, which YAML includes) holds.

    Raises:
        InputError: it cannot be read, is too large, no YAML in UTF-8, has an alias or a key twice.
    """
    try:
        return yaml.load(read_whole_text(path, LARGEST), _PlainLoader)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" (line {mark.line + 1}: {getattr(error, 'problem', '')})"
        raise InputError(f"{path} is not YAML{where}") from error


class _PlainLoader(yaml.SafeLoader):
    """YAML's safe subset, less aliases and repeated keys."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            line = self.peek_event().start_mark.line + 1  # type: ignore[no-untyped-call]
            raise InputError(f"aliases are not read (line {line}): write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        known: set[str] = set()
        for key_node, _ in node.value:
            key = repr(self.construct_object(key_node, deep=True))
            if key in known:
                line = key_node.start_mark.line + 1
                raise InputError(f"the key {key} stands twice (line {line})")
            known.add(key)
        return super().construct_mapping(node, deep)
