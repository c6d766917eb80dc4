"""Trains a recipe at all points of a grid, over seeds: `interp sweep FILE.yaml`.

- `file`: the YAML file: recipe, settings, grid, seeds
- `study`: runs it and says which point is best
- `result` and `figures`: what it returns, in tables, words and pictures
"""
