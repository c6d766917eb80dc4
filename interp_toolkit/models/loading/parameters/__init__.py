"""Parameter names and shapes: mapped to TransformerLens's names, and the configuration they imply.

- `units`: the modules of a checkpoint with unknown names, and their sizes
- `guess`, `guess_blocks`: guessed names outside and inside the layers
- `patterns`: the numbers in names that count layers and heads
- `template`: a mapping to edit, with the guesses and settings
- `names`: recognizes a state dict's naming scheme; converts a bridge's names
- `layouts`: built-in mappings: GPT-2's, nanoGPT's and older ones
- `key_rules`: the rules of a mapping, also of one from the user
- `conversion`: applies the mapping that fits
- `infer`: the configuration of a bare state dict
- `foreign_config`: a `cfg` dictionary saved beside a state dict
- `rotary_table`: the settings that a saved rotary table implies
- `strict`: loads weights only if none is missing, unused, misshaped or not finite
"""
