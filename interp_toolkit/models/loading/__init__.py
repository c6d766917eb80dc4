"""A file or a name becomes a model.

Read `loader` (what kind of thing is it?), `from_file` and `files` (bytes, never code; `unpickler`,
`records` and `pickled_files` for pickles that PyTorch refuses), `conversion` (whose names?),
`names`, `layouts` and `key_rules`, `infer` (the configuration, from names and shapes),
`foreign_config`, `settings`, `strict` (no parameter unset or unused), `checkpoint` (our own
format), `huggingface`.
"""
