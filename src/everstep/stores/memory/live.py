"""A ring of what runs emit, in this process. Apart from the store, which makes it when it is asked for."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from everstep.ports.live import (
    ATTEMPTS,
    MOST,
    PAGE,
    KeptLog,
    LiveBatch,
    LogPlace,
    Offset,
    RecodedBatch,
    RecodedLog,
)

RUNS = 1000
"""How many runs are kept."""


class MemoryRing:
    """The newest batches of each run."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._kept: dict[str, deque[LiveBatch]] = {}
        """By run, those that emitted last at the end."""
        self._logs: dict[str, dict[LogPlace, KeptLog]] = {}

    def append(self, batches: Sequence[LiveBatch]) -> None:
        with self._changed:
            for batch in batches:
                kept = self._kept.pop(batch.run_id, None) or deque(maxlen=MOST)
                self._kept[batch.run_id] = kept
                if not kept or kept[-1].offset < batch.offset:
                    kept.append(batch)
            while len(self._kept) > RUNS:
                del self._kept[next(iter(self._kept))]
            self._changed.notify_all()

    def read(self, after: Mapping[str, Offset], seconds: float) -> list[LiveBatch]:
        with self._changed:
            found = self._look(after)
            if not found and seconds > 0:
                self._changed.wait(seconds)
                found = self._look(after)
            return found

    def _look(self, after: Mapping[str, Offset]) -> list[LiveBatch]:
        found: list[LiveBatch] = []
        for run_id, offset in after.items():
            new = [batch for batch in self._kept.get(run_id, ()) if batch.offset > offset]
            found += new[:PAGE]
        return found

    def write_logs(self, logs: Sequence[KeptLog]) -> None:
        with self._changed:
            for log in logs:
                kept = self._logs.setdefault(log.place.run_id, {})
                kept[log.place] = log
                kept.pop(log.place._replace(attempt=log.place.attempt - ATTEMPTS), None)

    def read_logs(self, run_id: str, path: str | None = None) -> list[KeptLog]:
        with self._changed:
            kept = self._logs.get(run_id, {}).values()
            return sorted(log for log in kept if path in (None, log.place.path))

    def recode(self, batches: Sequence[RecodedBatch], logs: Sequence[RecodedLog]) -> int:
        replaced = 0
        with self._changed:
            for batch, body in batches:
                kept = self._kept.get(batch.run_id)
                if kept is not None and batch in kept:
                    kept[kept.index(batch)] = msgspec.structs.replace(batch, body=body)
                    replaced += 1
            for log, body in logs:
                own = self._logs.get(log.place.run_id, {})
                if own.get(log.place) == log:
                    own[log.place] = KeptLog(log.place, body)
                    replaced += 1
        return replaced

    def forget(self, run_id: str) -> None:
        """Remove what is kept of a run that is erased."""
        with self._changed:
            self._kept.pop(run_id, None)
            self._logs.pop(run_id, None)

    def close(self) -> None:
        """Nothing to close; other stores of this process may share it."""
