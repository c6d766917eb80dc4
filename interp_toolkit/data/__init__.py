"""Prompts with the boolean features, answers and positions that analyses read.

- `features`: `FeatureData`, the container that analyses take
- `pairs`: corrupted prompts and wrong answers, checked against their clean counterparts
- `files`: data files (`.npz`, `.parquet`, `.jsonl`, `.json`, `.csv`, `.tsv`, `.txt`) read as data
- `published`: column names of published data sets
- `arrays`: `.npz` files and arrays in memory
- `tables`: columns of tables, checked value by value
- `truth`: prompts for every row of a truth table
- `composites`: sparse boolean inputs as rows of tokens
- `task`: inputs for a model whose task record says that it computes on sparse boolean inputs
- `lists`: lists to sort, and their layout in a prompt
- `text`: prompts of plain text, corpora, tokenizers, token stores
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("interp_toolkit.data", __file__)
