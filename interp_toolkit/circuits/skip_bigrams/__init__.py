"""Skip-bigrams: pairs of features that a head's QK circuit checks for (`--probe skip-bigrams`).

- `directions`: feature directions as unit vectors, without their common mean
- `scores`: scores of all pairs against their own row and column, tile by tile; their p-values
- `pursuit`: explains one set of pairs after the other, and scores again
- `count`: how many pairs a head checks for, as an interval; complete blocks of pairs
- `head`: all of these steps for one head, and its control: permuted residual coordinates
- `find`: `find_skip_bigrams`, for all heads of a model and features of any kind; one token pair
- `analysis`: the probe: status over all heads, the finding, its sentences and tables
- `figures`: scores against chance, the graph of bigrams, a heatmap
"""
