"""How alike hidden states of different tokens become with depth: `--probe collapse`.

- `by_depth`: cosine similarity and effective dimension from the embedding to the final norm
- `analysis`: the steps: compares the last block with the embedding and re-initialised copies
- `result`: the result, its verdict and its figures
"""
