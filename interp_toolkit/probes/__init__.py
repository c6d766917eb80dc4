"""Linear readability: estimators on arrays, and analyses of models.

- `estimators`: separability certificates, logistic probes and their scores; no model needed
- `boolean`: where a boolean function can be read (`--probe xor`, `and`, `or`, `boolean`)
- `uand`: which ANDs of two features a layer computes (`--probe uand`)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("interp_toolkit.probes", __file__)
