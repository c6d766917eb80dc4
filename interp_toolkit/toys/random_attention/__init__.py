"""Tasks and model variants of "Is random attention sufficient for sequence modeling?".

- `variants`: standard, frozen-qk, MixiT and others: what is fixed and what is trained
- `task`: the record of a synthetic task

One module per task:

- `retrieval`: a value by its key
- `k_hop`: k-hop induction
- `modular_addition`: a + b modulo p
- `decimal_addition`: sums digit by digit
- `dyck`: balanced parentheses
- `memorization`: a random table
- `generated_text`: a small generated corpus for language modelling
- `reviews`: small generated reviews for sentiment classification
"""
