"""Trains a recipe at all points of a grid, over seeds: `interp sweep FILE.yaml`.

- `file`: the YAML file with recipe, settings, grid and seeds
- `study`: trains all points and selects the best
- `result` and `figures`: the result with its tables, text and figures
"""
