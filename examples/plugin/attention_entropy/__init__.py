"""A plugin of interp-toolkit: how spread a head's attention is, and heads that look two back.

`entropy` is a probe, `two_back` a detector, `two_back_toy` a toy; `pyproject.toml` registers them.
"""
