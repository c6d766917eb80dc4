"""Identify the algorithm of a sorting transformer, given its layout: `--probe sorting`.

- `analysis`: the analysis from end to end, `sorting_fingerprint`, what it returns
- `evaluation`: how often a model sorts, which lists it sorts, and on which it fails
- `activations`: attention, the form of logits and outputs after a swap, on lists
- `weights`: QK and OV tables by value and output item, their form, how much positions matter
- `measures`: all of these numbers of a model, of each head, and of checkpoints along training
- `criteria`: the evidence for each algorithm, with thresholds, and the rule
- `figures`: pictures of weights and attention, of criteria against thresholds, along training
"""
