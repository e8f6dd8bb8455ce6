"""Processes of an example that die at a write, one after the other, on one store in memory."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from everstep import Host
from everstep.registry import Opened
from everstep.stores.memory.store import MemoryData, MemoryStore
from everstep.testing import ManualClock, killing
from everstep.testing.killing import Crashed, Killer, crash

T = TypeVar("T")
FOLDER = Path(__file__).parents[3] / "examples"


def example(name: str) -> ModuleType:
    """Return an example, loaded anew as a fresh process has it."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lives(
    main: Callable[[Host, ManualClock], T],
    dies: int = 0,
    counts: Killer | None = None,
    clock: ManualClock | None = None,
    **options: Any,
) -> T:
    """Return what `main` does; a first process dies at write `dies`, and another goes on."""
    data, clock = MemoryData(), clock or ManualClock(auto=True)
    for act in (Killer(dies, act=crash) if dies else counts, None):
        store = Opened(MemoryStore(clock, data), None, "memory:")
        try:
            with Host(store if act is None else killing(store, by=act), clock=clock, **options) as host:
                return main(host, clock)
        except Crashed:
            clock.advance(timedelta(minutes=5))
    raise AssertionError("it died twice")
