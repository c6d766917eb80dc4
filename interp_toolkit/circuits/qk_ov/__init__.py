"""What one head would do, from its weights alone: `--probe qk` and `--probe ov`.

- `analysis`: a table of all heads, or the spectrum and largest token pairs of one
- `result`: the result, its verdict and its figures

The circuits themselves are in `circuits.weights`.
"""
