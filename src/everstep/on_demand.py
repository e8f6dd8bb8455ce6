"""Functions whose modules are loaded at their first call: for features that most runs do without."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def on_demand(place: str) -> Any:
    """Return a function that stands for `module:name`, and loads that module when it is called.

    Write it where type checkers see the real import:

        if TYPE_CHECKING:
            from everstep.runtime.travel.fork import fork
        else:
            fork = on_demand("everstep.runtime.travel.fork:fork")
    """
    module, _, name = place.partition(":")

    def call(*args: Any, **options: Any) -> Any:
        return getattr(import_module(module), name)(*args, **options)

    return call
