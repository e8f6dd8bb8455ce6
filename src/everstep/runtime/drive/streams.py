"""Streams whose chunks are kept as they come, so that they go on where they stopped. Apart from the loop, as
only flows with streams load it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from everstep.engine import decide
from everstep.engine.flush import MAX_LAG, MAX_LAG_BYTES, MAX_LAG_STEPS
from everstep.errors import OutputError, ValueNotStorable
from everstep.model.records import STREAM, StepRecord, StreamAt
from everstep.runtime.drive.context import RunContext
from everstep.runtime.drive.invoke import Call, soon
from everstep.runtime.drive.values import Slot

_UNKNOWN_WEIGHT = MAX_LAG_BYTES // MAX_LAG_STEPS
"""Bytes that a chunk of unknown size counts for before it is encoded."""

Record = Callable[[Call, StepRecord, tuple[Slot, ...]], None]


class Streams:
    """The streams of one drive. Their chunks are recorded on its loop."""

    def __init__(self, run: RunContext, record: Record) -> None:
        self._services = run.services
        self._space = run.space
        self._record = record

    def begin(self, call: Call) -> str | None:
        """Let a call go on where its stream stopped; returns the cursor to go on from."""
        at = call.scope.streams.get(call.index)
        if at is None or at.reads != call.reads:
            at = StreamAt(self._services.ids.new_id(), 0, reads=call.reads)
        loop = asyncio.get_running_loop()
        call.stream = KeptStream(self, call, at, lambda: soon(loop, lambda: self.keep(call)))
        return at.cursor

    def keep(self, call: Call) -> None:
        """Record what a stream has handed over."""
        stream = call.stream
        assert isinstance(stream, KeptStream)
        while stream.parts:
            part, at = stream.parts.popleft()
            if not call.is_dropped and call.scope.awaits(call.index):
                now = self._services.clock.now()
                step = decide.streamed(
                    call.scope,
                    call.index,
                    at=at,
                    writes=(part.written,),
                    started_at=call.started_at,
                    now=now,
                )
                self._record(call, step, (part,))

    def keep_rest(self, call: Call) -> None:
        """Record all that a stream that failed has yielded."""
        stream = call.stream
        assert isinstance(stream, KeptStream)
        with suppress(ValueNotStorable):  # what it fails for
            stream.hand_over()
        self.keep(call)

    def kept(self, at: StreamAt) -> tuple[list[Any], int]:
        """Return the chunks that are kept of a stream, and the version they have."""
        prefix = f"{STREAM}{at.stream_id}/"
        if prefix not in self._space.under_way:
            return [], 0
        slot = self._space.areas[prefix]["chunks"]
        return self._space.read(slot), slot.written.version

    def part(self, at: StreamAt, version: int, fresh: list[Any]) -> Slot:
        """Encode what a stream has yielded since it last handed something over. May be called anywhere."""
        return self._space.part(f"{STREAM}{at.stream_id}/chunks", version, fresh)

    def monotonic(self) -> float:
        return self._services.clock.monotonic()


class KeptStream:
    """One attempt at a stream. `take` and `end` are called wherever the node runs."""

    def __init__(self, streams: Streams, call: Call, at: StreamAt, tell: Callable[[], None]) -> None:
        self._streams = streams
        self._name = call.path
        self._every = call.node.keep_every or MAX_LAG_STEPS
        self._tell = tell
        self._at = at
        self.chunks, self._version = streams.kept(at)
        self._again = at.since
        """Chunks that come again before anything new."""
        self._fresh: list[Any] = []
        self._weight = 0
        self._handed_over = streams.monotonic()
        self.parts: deque[tuple[Slot, StreamAt]] = deque()
        """What is to be recorded next."""

    def take(self, chunk: Any, cursor: str | None) -> bool:
        if self._again:
            self._again -= 1
            return False
        at = self._at
        since = at.since + 1 if cursor is None else 0
        self._at = StreamAt(at.stream_id, at.chunks + 1, cursor or at.cursor, since, at.reads)
        self.chunks.append(chunk)
        self._fresh.append(chunk)
        self._weight += _weight(chunk)
        is_late = self._streams.monotonic() - self._handed_over >= MAX_LAG.total_seconds()
        if len(self._fresh) >= self._every or self._weight >= MAX_LAG_BYTES or is_late:
            self.hand_over()
        return True

    def hand_over(self) -> None:
        """Have what is new recorded."""
        if not self._fresh:
            return
        fresh, self._fresh, self._weight = self._fresh, [], 0
        part = self._streams.part(self._at, self._version + 1, fresh)
        self._version += 1
        self._handed_over = self._streams.monotonic()
        self.parts.append((part, self._at))
        self._tell()

    def end(self) -> None:
        if self._again:
            raise OutputError(
                f"{self._name!r} was to go on behind {self._at.chunks} chunks that are kept, and ended "
                f"{self._again} before that.",
                fix="It does not yield the same again: yield Chunk(value, cursor) and begin at ctx.cursor.",
            )


def _weight(chunk: Any) -> int:
    if isinstance(chunk, (str, bytes, bytearray)):
        return len(chunk)
    size = getattr(chunk, "nbytes", None)
    return size if isinstance(size, int) else _UNKNOWN_WEIGHT
