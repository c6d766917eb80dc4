"""Tiny models with known ground truth, as pytest fixtures.

- `plugin`: the fixtures, which pytest finds once the package is installed
- `families`: tiny random models of many families, made from transformers' configurations
- `real`: the path of the language model for tests marked `real`
"""
