"""A file or a name becomes a model.

Read `loader` (what kind of thing is it?), `from_file` and `files` (bytes, never code), `names` and
`infer` (the configuration, from names and shapes), `foreign_config`, `settings`, `strict` (no
parameter unset or unused), `checkpoint` (our own format), `huggingface`.
"""
