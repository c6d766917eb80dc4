"""How fast the variants train: `interp reproduce random-attention/throughput`.

- `timing`: training steps per second, variants in turn in one process
- `study`: ratios to the standard transformer, beside the source's
"""
