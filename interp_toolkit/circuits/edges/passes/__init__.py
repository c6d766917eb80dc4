"""Forward passes edge by edge: ablation, patching, paths and attribution.

- `ablation_value`: the ablation value of an edge: corrupted, mean over other prompts, or zero
- `paths`: path patching of one direct path between two heads
- `blocks`: the nodes' computations, from the weights or by the model's own modules
- `patched_pass`: a forward pass in which readers have inputs of their own
- `attribution`: effects of edges estimated from gradients, and measured by patching
- `edge_ablation`: the metric with edges ablated, one by one or all but a circuit
"""
