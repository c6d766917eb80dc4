"""Training speed of the variants: `interp reproduce random-attention/throughput`.

- `timing`: training steps per second, with variants in turn in one process
- `study`: ratios to the standard transformer, compared with the paper
"""
