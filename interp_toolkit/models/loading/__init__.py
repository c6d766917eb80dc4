"""Load a model from a checkpoint, a folder or by name; code in a file is never run.

- `loader`: `load`, which detects the kind of source
- `source_names`: the kind of a name on the command line, without importing torch
- `formats`: file formats: own checkpoints, pickles, GGUF, Hugging Face folders
- `parameters`: parameter names mapped to TransformerLens's; the configuration they imply
- `settings`: configuration fields set by the user
- `plain_mlp`: an MLP on rows of numbers, as a model whose tokens are these rows
- `memory_needed`: the memory that weights need, estimated before they are read
- `library_output`: Hugging Face's libraries without messages and network
- `check_assumptions`: tests assumptions about a checkpoint on prompts with known answers
"""
