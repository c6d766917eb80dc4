"""A uniform view of the weights of every kind of model.

- `parts`: the parts of the view: attention layers, MLPs, norms
- `view`: `weights(model)`
- `read`: reads the parts from each kind of model
- `check`: tests whether the view computes the same as the model
- `positions`: learned, rotary and ALiBi positions
- `contributions`: each head's contribution to a score of the residual stream
- `precision`: precision of computations on weights, and their agreement with the model
"""
