"""Which random layers compute universal AND, and from which width? `open/random-layers`.

- `layers`: the kinds of random layers
- `width`: the error of a layer's readouts, and the width at which it crosses 1/4
- `study`: the claims, the grid of layers, the result
- `figures`: tables and figures
"""
