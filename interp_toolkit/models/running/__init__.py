"""Run a model: activations streamed, hooks removed afterwards, edits checked to take effect.

- `hooks`: one name per hook point, for every kind of model
- `forward`: a pass without gradients that stops as early as possible
- `memory`: memory bounds, and the batch size that they allow
- `streaming`: activations in batches, for the requested hooks and positions only
- `interventions`: edits at hook points, ablated heads, shuffled weights
- `effect`: tests whether an edit at a hook point reaches the output
- `restart`: runs a model again from the first edited layer
- `stages`: arrays that finished stages of an analysis made, for a later run to go on from
- `layers`: single layers of any model, run by its own modules from a given residual stream
"""
