"""Where one drive puts what its nodes emit and yield: its host's listener, and a place beside the store.
Apart from the events, as only runs that are watched or followed need it.
"""

from __future__ import annotations

import asyncio
import contextvars
from contextlib import suppress
from functools import partial
from typing import Any

from everstep.ports.system import Clock, System
from everstep.runtime.drive.invoke import soon
from everstep.runtime.events import Event, EventKind, Listener, tell
from everstep.runtime.live.entries import LiveEntry, entry_bytes
from everstep.runtime.live.writer import LiveWriter


class RunOutlet:
    """Numbers what the nodes of one drive emit. May be used from any thread."""

    def __init__(
        self,
        run_id: str,
        epoch: int,
        system: System,
        loop: asyncio.AbstractEventLoop,
        listener: Listener | None,
        writer: LiveWriter | None,
    ) -> None:
        self._run_id = run_id
        self._epoch = epoch
        self._clock: Clock = system.clock
        self._loop = loop
        self._listener = listener
        self._writer = writer
        self._lock = system.lock()
        self._context = contextvars.copy_context()
        self._number = 0

    def put(self, kind: EventKind, node: str, visit: int, attempt: int, data: dict[str, Any]) -> None:
        """Take what a node has to say, as it is now."""
        at = self._clock.now()
        body = (
            entry_bytes(LiveEntry(kind, node, visit, attempt, at, data)) if self._writer is not None else b""
        )
        with self._lock:
            self._number = number = self._number + 1
            if self._writer is not None:
                self._writer.add(self._run_id, self._epoch, number, body)
        if self._listener is not None:
            self._tell(
                Event(
                    id=f"~{self._epoch}.{number}",
                    kind=kind,
                    run_id=self._run_id,
                    at=at,
                    node=node,
                    visit=visit,
                    attempt=attempt,
                    data=data,
                )
            )

    def _tell(self, event: Event) -> None:
        # The listener is the host's, not the node's: what it prints is no word of the step.
        said = partial(self._context.copy().run, tell, self._listener, event)
        with suppress(RuntimeError):  # the loop is closed: a thread that outlived its drive
            soon(self._loop, said)

    async def settle(self) -> None:
        """Return once what was emitted can be read elsewhere, as far as that is possible now."""
        if self._writer is not None and self._number:
            await self._writer.settle()
