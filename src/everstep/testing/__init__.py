"""What tests of flows and of stores need: a clock to move, answers to give, the suite for every store.

The suites need pytest, which is loaded when one of them is asked for. Read `playing` first. May import
everything but the command line and the service.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from everstep.registry import Opened, open_store
from everstep.testing import old_names
from everstep.testing.clock import ManualClock
from everstep.testing.killing import KillingSpool, KillingStore, killing
from everstep.testing.playing import UNANSWERED, play

if TYPE_CHECKING:
    from everstep.testing.conformance import BucketConformance, StoreConformance, StoreKit

__all__ = [
    "BucketConformance",
    "KillingSpool",
    "KillingStore",
    "ManualClock",
    "Opened",
    "StoreConformance",
    "StoreKit",
    "UNANSWERED",
    "killing",
    "open_store",
    "play",
]

old_names.install()


def __getattr__(name: str) -> Any:
    if name == "NOBODY":  # 0.1's name, until 0.3
        warnings.warn("everstep.testing.NOBODY is UNANSWERED now", DeprecationWarning, stacklevel=2)
        return UNANSWERED
    if name in __all__:
        return getattr(import_module("everstep.testing.conformance"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
