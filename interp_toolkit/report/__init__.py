"""Results as terminal tables, JSON or one HTML page; no analysis is known here.

- `console`: the terminal report and its tables
- `notebook`: results in a notebook
- `compare`: differences between two files of results (`interp compare`)
- `html`: results in files: one HTML page, or JSON
- `format`: verdicts, numbers and tables as text; comparisons of several models
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("interp_toolkit.report", __file__)
