"""Modules and functions that are loaded at their first use: for what most runs do without."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def on_demand(place: str) -> Any:
    """Return what stands for a function, `module:name`, or for a `module`, and loads it at its first use.

    Write it where type checkers see the real import:

        if TYPE_CHECKING:
            from everstep.runtime.travel.fork import fork
        else:
            fork = on_demand("everstep.runtime.travel.fork:fork")
    """
    module, _, name = place.partition(":")
    if not name:
        return _Module(module)

    found: Callable[..., Any] | None = None

    def call(*args: Any, **options: Any) -> Any:
        nonlocal found
        if found is None:
            found = getattr(import_module(module), name)
        return found(*args, **options)

    return call


class _Module:
    """A module until its first use; each name of it is looked up once."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self._module), name)
        setattr(self, name, found)
        return found
