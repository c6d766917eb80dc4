"""A checkpoint, a folder or a name becomes a model; no code in a file is ever run.

- `loader`: `load`, which finds out what the source is
- `source_names`: what a name on the command line stands for, without importing torch
- `formats`: file formats: own checkpoints, pickles, GGUF, Hugging Face folders
- `parameters`: parameter names mapped to TransformerLens's; the configuration they imply
- `settings`: configuration fields that users give
- `memory_needed`: the memory that weights need, estimated before they are read
- `library_output`: Hugging Face's libraries without messages and network
- `check_assumptions`: tests assumptions about a checkpoint on prompts with known answers
"""
