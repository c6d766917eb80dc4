"""Skip-bigrams: pairs of features that a head's QK circuit checks for (`--probe skip-bigrams`).

- `directions`: feature directions as unit vectors, without the direction that all share
- `scores`: scores of all pairs against their own row and column, tile by tile; their p-values
- `head`: all of these steps for one head, and its control: permuted residual coordinates
- `find`: `find_skip_bigrams`, for all heads of a model and features of any kind; one token pair
- `pursuit`: finds bigrams by repeated scoring and subtraction, and estimates their number
- `analysis`: `interp analyze --probe skip-bigrams`: the analysis, its verdict and figures
"""
