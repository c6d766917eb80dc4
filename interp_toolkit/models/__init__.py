"""A uniform interface to TransformerLens models: load, run and edit them, read their weights.

- `model`: the interface that all kinds of models share; the name of a head
- `loading`: loads a model from a file or by name
- `running`: streamed activations, and interventions that are checked to take effect
- `weights`: one view of the weights of every kind of model
- `transformer`: the toolkit's own transformer, a replacement for `HookedTransformer`
- `features`: SAE latents, token sets, directions
- `about`: records and summaries of models; devices by name
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("interp_toolkit.models", __file__)
