"""Modules of the suites under the names they had in 0.1: `conformance_leases` is `conformance.leases` now.
Apart, and gone with 0.3.

Apart from `everstep.testing`, which installs it: all of it goes with the next minor version.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_OLD = "everstep.testing.conformance_"
_NEW = "everstep.testing.conformance."
_RENAMED = {"client": "kit"}


class _OldModules(MetaPathFinder, Loader):
    """Finds a module under its old name, and passes on what the new one has."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname.startswith(_OLD) else None

    def exec_module(self, module: ModuleType) -> None:
        part = module.__name__.removeprefix(_OLD)
        name = _NEW + _RENAMED.get(part, part)
        try:
            new = import_module(name)
        except ModuleNotFoundError as missing:
            if missing.name != name:
                raise
            raise ModuleNotFoundError(f"No module named {module.__name__!r}", name=module.__name__) from None
        warnings.warn(f"{module.__name__} is {name} now", DeprecationWarning, stacklevel=2)
        vars(module).update({k: v for k, v in vars(new).items() if not k.startswith("__")})


def install() -> None:
    """Let the old names be imported."""
    sys.meta_path.append(_OldModules())
