"""Every number that a sorting verdict rests on.

Read `reading` (logits and attention on lists), then `attention`, `logit_line`, `swap` (behaviour),
`weight_tables` and `ov_shapes` (weights), `head_parts` (each head's share); `measure` joins them.
"""
