"""Computation in superposition: the source's constructions, each with weights and readoffs."""
