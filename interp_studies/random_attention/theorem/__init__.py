"""What frozen heads and fixed mixing can fit: `interp reproduce random-attention/theorem-5-1`.

- `heads`: what frozen heads and MixiT's heads read
- `fits`: fits of W_V alone, or with an MLP
- `study`: the claims, errors by number of heads, the outcome
"""
