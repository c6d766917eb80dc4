"""Skip-bigrams: pairs of features that a head's QK circuit checks for (`--probe skip-bigrams`).

- `directions`: feature directions as unit vectors, without their common direction
- `scores`: scores of all pairs relative to their own row and column, and their p-values
- `head`: skip-bigrams of one head, and its control: permuted residual coordinates
- `find`: `find_skip_bigrams` for all heads of a model; the score of one pair of tokens
- `pursuit`: search for bigrams by repeated scoring and subtraction, and an estimate of their number
- `analysis`: `interp analyze --probe skip-bigrams`, with its verdict and figures
"""
