"""Identify the algorithm of a sorting transformer, given its layout: `--probe sorting`.

- `analysis`: the whole analysis, `sorting_fingerprint`, and its result
- `evaluation`: sorting accuracy on test lists, and lists that the model sorts wrongly
- `activations`: attention, form of the logits, and outputs after a swap, on lists
- `weights`: QK and OV tables by value and output item, their form, and effects of positions
- `measures`: all metrics, for a model, for each head, and for checkpoints of training
- `criteria`: evidence for each algorithm, its thresholds, and the decision rule
- `figures`: plots of weights and attention, of criteria against thresholds, and along training
"""
