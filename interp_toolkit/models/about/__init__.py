"""Records about a loaded model: its origin, assumptions, task and device.

- `record`: a model's origin, assumptions and task; the provenance of results
- `info`: the summary that `interp info MODEL` prints; devices by name, token ids as text
"""
