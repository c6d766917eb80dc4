"""Tasks and model variants of "Is random attention sufficient for sequence modeling?".

- `variants`: standard, frozen-qk, MixiT and others: their fixed and trained parameters
- `tasks`: retrieval, k-hop induction, sums, balanced parentheses, a random table
- `texts`: small generated corpora, for language modeling and for sentiment
"""
