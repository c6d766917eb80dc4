"""Constructions in superposition against the source's figures: `interp reproduce superposition`.

`settings` and `jobs` are the constructions, `study` the comparison; `capacity` and `packing` ask
how many features d dimensions store.
"""
