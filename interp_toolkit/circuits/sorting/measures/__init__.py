"""Every number that a sorting verdict rests on.

From the model's output and attention on lists:

- `reading`: logits and attention at the positions that are read
- `attention`: attention to larger values, to the smallest of them, and to separators
- `logit_line`: whether logits have the form of algorithm 2
- `swap`: whether the output follows the previous token or the position, where they disagree

From the weights:

- `weight_tables`: QK and OV tables by value and output item
- `ov_shapes`: whether an OV table copies, and whether its rows have a kink at their value
- `positions`: how much positions matter, as shares of variance

Together:

- `head_parts`: what each head contributes
- `measure`: all numbers from one reading of a model
"""
