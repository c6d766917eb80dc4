"""Linear readability: estimators on arrays, and analyses of models.

- `estimators`: separability certificates, logistic probes and their scores; no model needed
- `boolean`: sites where a boolean function is readable (`--probe xor`, `and`, `or`, `boolean`)
- `uand`: the ANDs of two features that a layer computes (`--probe uand`)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("interp_toolkit.probes", __file__)
