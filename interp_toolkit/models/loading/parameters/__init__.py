"""Parameter names and shapes: mapped to TransformerLens's names, and the configuration they imply.

- `names`: whose names a state dict uses; a bridge's turned into `HookedTransformer`'s
- `layouts`: built-in mappings: GPT-2's, nanoGPT's and older ones
- `key_rules`: the rules of a mapping, also of one that the user gives
- `conversion`: applies whichever of these fits
- `infer`: the configuration of a bare state dict
- `foreign_config`: a `cfg` dictionary saved beside a state dict
- `rotary_table`: the settings that a saved rotary table implies
- `strict`: loads weights only if none is missing, unused, misshaped or not finite
"""
