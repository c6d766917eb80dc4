"""A uniform view of the weights of every kind of model.

- `parts`: what the view consists of: attention layers, MLPs, norms
- `view`: `weights(model)`
- `read`: how the parts are read from each kind of model
- `check`: whether the view computes what the model does
- `positions`: learned, rotary and ALiBi positions
- `contributions`: what each head adds to a score of the residual stream
- `precision`: precision of computations on weights, and their agreement with the model
"""
