"""Results as terminal tables, JSON or one HTML page; no analysis is known here.

- `format`: how values and statuses are written, on every output
- `console`: the terminal report and its tables
- `files`: reports written to files; the JSON document
- `html`: the self-contained HTML page
- `notebook`: results in a notebook
- `side_by_side`: several models in one report
- `compare`: differences between two files of results (`interp compare`)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("interp_toolkit.report", __file__)
