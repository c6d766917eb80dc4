"""Prompts with the boolean features, answers and positions that analyses read.

- `files`: data files (`.npz`, `.parquet`, `.jsonl`, `.json`, `.csv`, `.tsv`, `.txt`) read as data
- `arrays`: `.npz` files and arrays in memory
- `truth`: prompts for every row of a truth table
- `lists`: lists to sort, and their layout in a prompt
- `text`: prompts of plain text, corpora, tokenizers, token stores
- `features`: prompts with features, answers and corrupted counterparts, in one container
- `composites`: sparse boolean inputs, and the inputs that a task record describes
- `tables`: tables of prompts (CSV, JSON lines, parquet), and columns of published data sets
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("interp_toolkit.data", __file__)
