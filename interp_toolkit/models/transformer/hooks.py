"""`HookPoint` and `HookedRootModule`, imported without the rest of TransformerLens.

    from interp_toolkit.models.transformer.hooks import HookedRootModule, HookPoint

The `__init__` of `transformer_lens` imports every model class, and with them transformers, which
takes most of the time of a short run. Here its packages are registered without running their
`__init__`, and the two classes are imported from their own modules. Access to any other name or
submodule of TransformerLens runs the `__init__`, like a plain `import transformer_lens`. Nothing
is replaced or patched, and a TransformerLens that is already imported is left alone.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = [
    "SUPPORTED_ACTIVATIONS",
    "ActivationCache",
    "FactoredMatrix",
    "HookPoint",
    "HookedRootModule",
]
ROOT = "transformer_lens"
PACKAGES = (  # parents before children
    ROOT,
    f"{ROOT}.utilities",
    f"{ROOT}.conversion_utils",
    f"{ROOT}.conversion_utils.conversion_steps",
)
LIGHT = ("hook_points", "HookedRootModule", "ActivationCache", "FactoredMatrix")


class _PutOff(ModuleType):
    """A package whose `__init__` runs on access to a name that no light module has."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__all__", "__version__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        module = vars(self)["_modules"].get(name)
        if module is not None and (self.__name__ != ROOT or module in LIGHT):
            return getattr(importlib.import_module(f"{self.__name__}.{module}"), name)
        run(self)
        return getattr(self, name)


def run(package: ModuleType) -> None:
    """Run the deferred `__init__` of a package."""
    package.__class__ = ModuleType  # first, since the `__init__` imports from the package itself
    assert package.__spec__ is not None
    assert package.__spec__.loader is not None
    package.__spec__.loader.exec_module(package)


class _Finder(MetaPathFinder):
    """Runs the deferred `__init__` of TransformerLens just before a submodule needs it.

    Submodules in `LIGHT` and `PACKAGES` do not need it.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, _, rest = fullname.partition(".")
        package = sys.modules.get(root)
        light = rest in LIGHT or fullname.startswith(PACKAGES[1:])
        if root == ROOT and rest and not light and isinstance(package, _PutOff):
            run(package)
        return None


def _imported_names(init: Path) -> dict[str, str]:
    """The module of each name that a package's `__init__` imports from its own modules."""
    package = ".".join(init.parent.parts[init.parent.parts.index(ROOT) :])
    modules: dict[str, str] = {}
    for node in ast.parse(init.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            module = node.module if node.level else node.module.removeprefix(f"{package}.")
            if node.level == 1 or module != node.module:
                modules |= {alias.asname or alias.name: module for alias in node.names}
    return modules


def put_off() -> None:
    """Register TransformerLens' packages without running their `__init__`."""
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is None or spec.origin is None:  # a package that this release lacks
            continue
        module = module_from_spec(spec)
        module.__class__ = _PutOff
        vars(module)["_modules"] = _imported_names(Path(spec.origin))
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            vars(sys.modules[parent])[child] = module
    sys.meta_path.insert(0, _Finder())


if ROOT not in sys.modules:
    put_off()

from transformer_lens.ActivationCache import ActivationCache  # noqa: E402
from transformer_lens.FactoredMatrix import FactoredMatrix  # noqa: E402
from transformer_lens.hook_points import HookPoint  # noqa: E402
from transformer_lens.HookedRootModule import HookedRootModule  # noqa: E402
from transformer_lens.utilities.activation_functions import SUPPORTED_ACTIVATIONS  # noqa: E402

if isinstance(sys.modules[ROOT], _PutOff):  # the import has set it as an attribute of its parent
    vars(sys.modules[ROOT]).update(
        ActivationCache=ActivationCache,
        FactoredMatrix=FactoredMatrix,
        HookedRootModule=HookedRootModule,
    )
