"""The trainer and the recipes of documented toy models: `interp train RECIPE`.

- `engine`: the trainer: seeds, and state for resuming
- `xor`: a boolean function of two bits
- `induction`: repeated random tokens
- `sorting`: lists, causal and bidirectional
- `uand`: one MLP layer that computes the AND of every pair of features
- `tasks`: recipes of synthetic tasks, for all model variants
- `text`: recipes on text, for all model variants
"""
