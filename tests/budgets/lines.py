"""Counts lines of Python and instructions of SQLite: what is done, however busy the machine is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

from benchmarks import many_runs
from everstep.registry import open_store
from everstep.runtime.system import SystemClock


class Count:
    """Counts what is done inside `with`, also by threads that began after it was made."""

    def __init__(self) -> None:
        self.done = 0
        self._is_on = False

    def __enter__(self) -> Self:
        self.done, self._is_on = 0, True
        sys.settrace(self.enter_call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        self._is_on = False

    def of(self, work: Callable[[], Any], times: int = 1) -> float:
        """Return how much some work does; once is enough."""
        with self:
            work()
        return self.done

    async def among(self, url: str) -> dict[str, float]:
        """Do what is asked of a store of many runs; its plans are made before."""
        store: Any = open_store(url, SystemClock()).store
        found: dict[str, float] = {}
        for name, ask in many_runs.asked(store).items():
            await ask()
            with self:
                await ask()
            found[name] = self.done
        await store.close()
        return found

    def enter_call(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Take a call in: its lines are counted while anything is."""
        return self._line if self._is_on else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        self.done += event == "line"
        return self._line

    def instruction(self) -> bool:
        """Take an instruction of SQLite in, and go on."""
        self.done += self._is_on
        return False
