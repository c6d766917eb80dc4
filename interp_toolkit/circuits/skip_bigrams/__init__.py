"""Skip-bigrams: pairs of features that a head's QK circuit checks for (`--probe skip-bigrams`).

- `directions`: feature directions as unit vectors, without their common mean
- `scores`: scores of all pairs against their own row and column, tile by tile; their p-values
- `head`: all of these steps for one head, and its control: permuted residual coordinates
- `find`: `find_skip_bigrams`, for all heads of a model and features of any kind; one token pair
- `pursuit`: takes bigrams out one after another, and estimates how many there are
- `analysis`: `interp analyze --probe skip-bigrams`: the analysis, its verdict and figures
"""
