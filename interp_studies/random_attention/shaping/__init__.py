"""The effect of shaping the mixing matrices: `interp reproduce random-attention/shaping`.

- `signals`: hidden states and gradients through depth, at initialization
- `study`: unshaped and shaped mixing, by depth
"""
