"""What tests of flows and of stores need: a clock to move, answers to give, the suite for every store.

The suites need pytest, which is loaded when one of them is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from everstep.registry import Opened, open_store
from everstep.testing import old_names
from everstep.testing.clock import ManualClock
from everstep.testing.killing import KillingSpool, KillingStore, killing
from everstep.testing.playing import NOBODY, play

if TYPE_CHECKING:
    from everstep.testing.conformance import BucketConformance, StoreConformance, StoreKit

__all__ = [
    "BucketConformance",
    "KillingSpool",
    "KillingStore",
    "ManualClock",
    "NOBODY",
    "Opened",
    "StoreConformance",
    "StoreKit",
    "killing",
    "open_store",
    "play",
]

old_names.install()


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("everstep.testing.conformance"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
