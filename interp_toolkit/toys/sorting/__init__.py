"""One-layer models that sort lists with hand-set weights, by a known algorithm.

- `list_heads`: rules for heads on lists, written into a model of zeros
- `sorters`: the models, one per algorithm, and a mixed one
"""
