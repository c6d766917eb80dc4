"""What frozen heads and fixed mixing can fit: `interp reproduce random-attention/theorem-5-1`.

- `heads`: the outputs of frozen heads and of MixiT's heads
- `fits`: fits of W_V alone, or with an MLP
- `study`: the claims, errors by number of heads, the verdict
"""
