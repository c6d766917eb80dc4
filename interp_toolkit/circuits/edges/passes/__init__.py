"""Forward passes edge by edge: ablation, patching, paths and attribution.

- `blocks`: what each node writes when its readers read different inputs
- `stand_in`: the ablation value of an edge: corrupted, mean over other prompts, or zero
- `patched_pass`: a pass in which any edge's source can be replaced
- `cut`: the metric of each prompt with some edges ablated, in batches
- `subcircuit_pass`: a circuit alone: only some edges kept, all others ablated
- `attribution`: first-order estimates of every edge's effect (EAP-IG)
- `patching`: activation patching of the residual stream by layer and position
- `paths`: path patching of one direct path between two heads
"""
