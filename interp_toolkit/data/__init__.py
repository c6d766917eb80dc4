"""What an analysis runs on: rows of tokens, boolean features of each, a position in each.

Read `features` (the record that analyses take), `pairs` (what stands against a prompt and its
answer), `files` (read from disk; tables by `tables` and `columns`), `plain_texts`, `truth` (all
inputs of a truth table); then `encoding` (text to token ids), `list_layout` and `lists` (lists to
sort), `composites` (features that are on together), `texts` and `token_store` (corpora), `task`
(inputs of a toy's own task).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("interp_toolkit.data", __file__)
