"""Activation patching between clean and corrupted prompts: `--probe patching`.

- `passes`: the metric with one activation of one kind of prompt put into passes on the other
- `analysis`: the probe: cells with their intervals and statuses, the finding, its maps
"""
