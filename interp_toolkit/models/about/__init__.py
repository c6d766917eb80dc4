"""Records about a loaded model: its origin, assumptions, task and device.

- `record`: where a model came from, what was assumed, and what it was trained for
- `info`: the description that `interp info MODEL` prints; devices by name, tokens as text
"""
