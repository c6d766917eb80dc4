"""Similarity of hidden states by depth at initialization: `random-attention/table-6`.

- `models`: untrained transformers and MixiT, initialized in three ways
- `likeness`: similarity of the hidden states of different tokens
- `on_text`: the same for language models on held-out text, before and after training
- `study`: the grid of models, the outcome
"""
