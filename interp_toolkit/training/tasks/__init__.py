"""Recipes of the synthetic tasks of "Is random attention sufficient for sequence modeling?".

- `recipes`: makes a recipe of a task for every model variant (`--variant`)
- `settings`: the settings that these recipes share
- `problem`: model, batches, loss and test accuracy
- `rows`: training and test rows of each seed
- `verdict`: the sentence that sums a run up

One module per task:

- `retrieval`: `interp train retrieval`
- `k_hop`: `interp train k-hop`
- `modular_addition`: `interp train modular-addition`
- `decimal_addition`: `interp train decimal-addition`
- `dyck`: `interp train dyck-1`
- `memorization`: `interp train memorization`
"""
