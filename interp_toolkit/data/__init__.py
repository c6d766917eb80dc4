"""Prompts with the boolean features, answers and positions that analyses read.

- `files`: data files (`.npz`, `.parquet`, `.jsonl`, `.json`, `.csv`, `.tsv`, `.txt`) read as data
- `schema`: the role of each column, by names and values, or as the user says
- `published`: data sets with rules of their own
- `choices`: the right option of a multiple choice as the answer
- `templates`: prompts with placeholders, filled from columns
- `cells`: cells and columns, the same for text files and typed ones
- `border`: the space and the tokens between a prompt and its answer
- `preview`: how a file is read, line by line
- `arrays`: `.npz` files and arrays in memory
- `truth`: prompts for every row of a truth table
- `lists`: lists to sort, and their layout in a prompt
- `text`: prompts of plain text, corpora, tokenizers, token stores
- `features`: prompts with features, answers and corrupted counterparts, in one container
- `composites`: sparse boolean inputs, and the inputs that a task record describes
- `tables`: tables of prompts, read by their schema
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("interp_toolkit.data", __file__)
