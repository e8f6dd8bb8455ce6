"""What all event loops of a host share of live data: one writer, one reader, and the place beside the store.
Apart from the services, as only hosts load it whose runs emit for others or are followed.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING

from everstep.codec.chain import Codecs
from everstep.on_demand import on_demand
from everstep.ports.live import BEGINNING, NOT_HERE, KeptLog, LiveRing, LiveStore
from everstep.ports.store import CheckpointStore
from everstep.ports.system import System
from everstep.runtime.live.bodies import batch_anew, log_anew
from everstep.runtime.live.reader import LiveReader
from everstep.runtime.live.writer import LiveWriter

if TYPE_CHECKING:
    from everstep.runtime.live.step_logs import LogWriter
else:
    LogWriter = on_demand("everstep.runtime.live.step_logs:LogWriter")

log = logging.getLogger("everstep")


class LiveData:
    """Made once a host. A store without such a place has no writer, no reader and no ring."""

    writer: LiveWriter | None = None
    reader: LiveReader | None = None

    def __init__(self, store: CheckpointStore, system: System, codecs: Codecs) -> None:
        self._store = store
        self._system = system
        self._is_told = False
        if self.is_there:
            self.writer = LiveWriter(system, codecs, lambda: self.ring)
            self.reader = LiveReader(system, lambda: self.ring)
        self._codecs = codecs
        self._logs: dict[str, LogWriter] = {}

    @property
    def is_there(self) -> bool:
        """True if the store keeps what runs emit; one that stands for another may not pass that on."""
        return self._store.capabilities.live and isinstance(self._store, LiveStore)

    @cached_property
    def ring(self) -> LiveRing:
        """The place itself."""
        assert isinstance(self._store, LiveStore)
        return self._store.live()

    def writes(self) -> LiveWriter | None:
        """Return the writer; of a store without such a place say once that there is none."""
        if self.writer is None and not self._is_told:
            self._is_told = True
            log.warning("live data not kept: %s", NOT_HERE)
        return self.writer

    def logs(self) -> LogWriter | None:
        """Return what keeps logs of steps; none if the store has no place for them, which is said once."""
        if self.writes() is None:
            return None
        if "logs" not in self._logs:  # of two threads that make it, one is kept
            self._logs.setdefault("logs", LogWriter(self._system, self._codecs, lambda: self.ring))
        return self._logs["logs"]

    async def logs_of(self, run_id: str, path: str | None = None) -> list[KeptLog]:
        """Return what is kept of the logs of a run, or of one of its nodes."""
        if not self.is_there:
            return []
        return await self._system.to_thread(self.ring.read_logs, run_id, path)

    async def rekey(self, run_id: str, *, dry_run: bool) -> tuple[int, int]:
        """Encrypt what is kept of a run with the active key: how many batches, and how many logs."""
        if not self.is_there:
            return 0, 0
        return await self._system.to_thread(self._rekey, run_id, dry_run)

    def _rekey(self, run_id: str, dry_run: bool) -> tuple[int, int]:
        batches, after = 0, BEGINNING
        while page := self.ring.read({run_id: after}, 0.0):
            after = page[-1].offset
            changed = [(b, body) for b in page if (body := batch_anew(self._codecs, b)) is not None]
            batches += len(changed) if dry_run or not changed else self.ring.recode(changed, ())
        kept = self.ring.read_logs(run_id)
        anew = [(log, body) for log in kept if (body := log_anew(self._codecs, log)) is not None]
        return batches, len(anew) if dry_run or not anew else self.ring.recode((), anew)

    def close(self) -> None:
        """Write what waits, let followers go, and close the place."""
        for logs in self._logs.values():
            logs.close()
        if self.writer is not None and self.reader is not None:
            self.writer.close()
            self.reader.close()
        if "ring" in vars(self):
            self.ring.close()
