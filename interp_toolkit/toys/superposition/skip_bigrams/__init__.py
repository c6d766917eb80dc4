"""Heads whose scores count which of a set of feature pairs is present."""
