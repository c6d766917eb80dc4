"""Prompts of behaviors from the literature, clean and corrupted, for any tokenizer.

Each task has one line in `CATALOGUE` (`interp_toolkit/registry.py`); run one with `--task NAME`.

- `rows`: prompts of a task for a model: distinct, of one length, balanced over templates
- `language`: indirect objects, greater-than, agreement and others, each with its source
- `copying`: repeated random tokens or text
"""
