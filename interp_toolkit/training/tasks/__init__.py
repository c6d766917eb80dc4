"""Recipes of the synthetic tasks of "Is random attention sufficient for sequence modeling?".

- `problem`: settings, rows, loss, test accuracy and the sentence that summarizes a run
- `recipes`: the recipe of every task, for every model variant (`--variant`)
"""
