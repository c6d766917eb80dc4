"""Recipes of the synthetic tasks of "Is random attention sufficient for sequence modeling?".

- `problem`: settings, rows, loss, test accuracy and the sentence that summarizes a run
- `recipes`: the recipe of every task, for every model variant (`--variant`)
- `own_rows`: the same for a user's own prompts with answers (`interp train rows`)
"""
