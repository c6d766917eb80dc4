"""What is linearly readable.

`estimators` take arrays and know no model: read `separability` (a hyperplane, or a certificate that
there is none), then `boolean` and `logistic`. `boolean` and `uand` are the analyses of models:
where a boolean function of features can be read, and which ANDs of two features a layer computes.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("interp_toolkit.probes", __file__)
