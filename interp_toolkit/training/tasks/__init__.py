"""Recipes of the synthetic tasks: one recipe a file, on `recipes`, `problem`, `rows`, `verdict`."""
