"""Skip-bigrams: pairs of features that a head's QK circuit checks for (`--probe skip-bigrams`).

- `directions`: feature directions as unit vectors, without their common mean
- `scores`: scores of all pairs against their own row and column, tile by tile
- `null`: p-values of scores against random directions, and discoveries among all pairs
- `pair_score`: the same for one pair
- `control`: the same head with permuted residual coordinates
- `pursuit`: explains one set of pairs after the other, and scores again
- `count`: how many pairs a head checks for, as an interval; complete blocks of pairs
- `head`: all of these steps for one head
- `head_views`: which heads are analysed, and at which distances
- `find`: `find_skip_bigrams`, for all heads of a model and features of any kind
- `analysis`: runs it as a probe
- `result`, `verdict` and `figures`: what it returns, in tables, words and pictures
"""
