"""What tests of flows and of stores need: a clock to move, and the suite that every store must pass.

`StoreConformance` and `StoreKit` need pytest, which is loaded when one of them is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from everstep.testing.clock import ManualClock

if TYPE_CHECKING:
    from everstep.testing.conformance import StoreConformance, StoreKit

__all__ = ["ManualClock", "StoreConformance", "StoreKit"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("everstep.testing.conformance"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
