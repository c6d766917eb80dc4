"""Recipes of the synthetic tasks of "Is random attention sufficient for sequence modeling?".

- `problem`: settings, rows, loss, test accuracy and the sentence that sums a run up
- `recipes`: the recipe of every task, for every model variant (`--variant`)
"""
