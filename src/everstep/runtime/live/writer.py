"""Writes what nodes emit beside the store, batched over all runs of a host: at most 40 writes a second.
Apart from the outlets of drives, which are many.

The first entry after a pause is written at once. What cannot be written is held up to a bound, then the
oldest goes; those who follow learn of it by the numbers that are missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from everstep.codec.chain import Codecs
from everstep.ports.live import LiveBatch, LiveRing
from everstep.ports.system import System
from everstep.runtime.live.entries import close_batch
from everstep.runtime.live.side_writer import SideWriter

EVERY = 0.025
"""Seconds between two writes."""
MOST_ENTRIES, MOST_BYTES = 20_000, 16 * 2**20
"""What is held while it cannot be written."""


class _Waiting(NamedTuple):
    run_id: str
    epoch: int
    number: int
    body: bytes


class LiveWriter(SideWriter[list[_Waiting]]):
    """Takes what is emitted on any thread, and writes it on one of its own."""

    def __init__(self, system: System, codecs: Codecs, ring: Callable[[], LiveRing]) -> None:
        super().__init__(system, ring, what="live data", every=EVERY, thread="everstep-live")
        self._codecs = codecs
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0

    def add(self, run_id: str, epoch: int, number: int, body: bytes) -> None:
        """Have an entry written soon; those of one run come in the order of their numbers."""
        with self._changed:
            if self._is_closed:
                return
            self._waiting.append(_Waiting(run_id, epoch, number, body))
            self._bytes += len(body)
            while len(self._waiting) > MOST_ENTRIES or self._bytes > MOST_BYTES:
                self._bytes -= len(self._waiting.popleft().body)
            self._note_added()

    def _take(self) -> list[_Waiting] | None:
        if not self._waiting:
            return None
        taken = list(self._waiting)
        self._waiting.clear()
        self._bytes = 0
        return taken

    def _take_back(self, taken: list[_Waiting]) -> None:
        self._waiting.extendleft(reversed(taken))
        self._bytes += sum(len(entry.body) for entry in taken)

    def _put(self, ring: LiveRing, taken: list[_Waiting]) -> None:
        runs: dict[tuple[str, int], list[_Waiting]] = {}
        for entry in taken:
            runs.setdefault((entry.run_id, entry.epoch), []).append(entry)
        ring.append([self._batch(*run, entries) for run, entries in runs.items()])

    def _batch(self, run_id: str, epoch: int, entries: list[_Waiting]) -> LiveBatch:
        bodies = [entry.body for entry in entries]
        return close_batch(self._codecs, run_id, epoch, entries[-1].number, bodies)
