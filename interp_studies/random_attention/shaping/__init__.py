"""What shaping the mixing matrices is for: `interp reproduce random-attention/shaping`.

- `signals`: hidden states and gradients through depth, at initialization
- `study`: unshaped against shaped mixing, by depth
"""
