"""Running a model: activations streamed, hooks removed afterwards, edits checked to take effect.

- `hooks`: one name per hook point, whatever kind of model
- `forward`: a pass without gradients that stops where nothing more is needed
- `memory`: memory bounds, and the batch size that they allow
- `streaming`: activations in batches, for the requested hooks and positions only
- `interventions`: edits at hook points, ablated heads, shuffled weights
- `effect`: whether an edit at a hook point reaches the output
- `restart`: runs a model again from the first edited layer
"""
