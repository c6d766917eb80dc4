"""Results to a terminal, to JSON and to one HTML page; knows results, not analyses."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("interp_toolkit.report", __file__)
