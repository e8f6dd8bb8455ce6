"""What nodes log and print, kept with their steps. Apart from the drive, as only flows that ask load it.

What is written goes where it went before, too. Which step it belongs to is said by a context variable, so
nodes that run at once, in threads or as tasks, are kept apart.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO

import msgspec

from everstep.codec.chain import Codecs
from everstep.errors import EverstepError, StateCorrupted
from everstep.ports.live import KeptLog, LiveRing, LogPlace
from everstep.ports.system import System
from everstep.runtime.events import Event, Listener
from everstep.runtime.live.bodies import Bound
from everstep.runtime.live.log_text import LogText
from everstep.runtime.live.side_writer import SideWriter

EVERY = 0.25
"""Seconds between two writes."""
_AT_WORK: ContextVar[StepLog | None] = ContextVar("everstep_step_log", default=None)
"""The log of the step whose node runs here."""
_EMITS = logging.StreamHandler.emit.__code__
_FORMAT = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")


class LoggedText(msgspec.Struct, frozen=True):
    """What is kept of a log, as JSON."""

    head: str
    omitted: int
    tail: str


_decode = msgspec.json.Decoder(LoggedText).decode


class StepLog:
    """The log of one attempt at a step."""

    def __init__(self, place: LogPlace, text: LogText, writer: LogWriter) -> None:
        self.place = place
        self.text = text
        self.writer = writer

    def add(self, text: str) -> None:
        """Take what was written."""
        self.text.add(text, self.writer.thread_id())
        self.writer.note(self)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep what is logged and printed from here, until this ends."""
        token = _AT_WORK.set(self)
        try:
            yield
        finally:
            _AT_WORK.reset(token)

    def leave(self) -> None:
        """Go on with this log where its node is entered again, as it waits for something."""
        self.writer.leave(self)


class _Tee:
    """A stream that passes everything on, and shows it to the log of the step that wrote it.

    It is none of Python's own kinds of streams: those close what they stand for when they are freed.
    """

    def __init__(self, inner: TextIO, writer: LogWriter) -> None:
        self.inner = inner
        """The stream that it stands before."""
        self._writer = writer

    def write(self, text: str) -> int:
        at_work = _at_work(self._writer)
        # What a handler of logging writes is kept as the record that it is.
        if at_work is not None and sys._getframe(1).f_code is not _EMITS:
            at_work.add(text)
        return self.inner.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __iter__(self) -> Iterator[str]:
        return iter(self.inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def unlogged(listener: Listener) -> Listener:
    """Return a listener whose words are in no log: it may be told on the thread of a node, inside of it."""

    def hear(event: Event) -> None:
        token = _AT_WORK.set(None)
        try:
            listener(event)
        finally:
            _AT_WORK.reset(token)

    return hear


def _at_work(writer: LogWriter) -> StepLog | None:
    """Return the log of the step whose node runs here, if it is one of this writer's."""
    found = _AT_WORK.get()
    return found if found is not None and found.writer is writer else None


class _Records(logging.Handler):
    """Shows log records to the log of the step that made them."""

    def __init__(self, writer: LogWriter) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        at_work = _at_work(self._writer)
        if at_work is not None:
            try:
                at_work.add(f"{_FORMAT.format(record)}\n")
            except Exception:  # its arguments do not fit: no handler lets that come to who logs
                self.handleError(record)
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and self._is_alone(record.name):
            last.handle(record)  # as it is without us

    def _is_alone(self, name: str) -> bool:
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return False  # of two of ours neither is alone, and a word too few is said
            logger = logger.parent if logger.propagate else None
        return True


class Catching:
    """Stands in for stdout and stderr, and listens to logging, while any flow that asks for it is driven."""

    def __init__(self, system: System, writer: LogWriter) -> None:
        self._lock = system.lock()
        self._users = 0
        self._writer = writer
        self._records = _Records(writer)
        self._tees: dict[str, _Tee] = {}

    def begin(self) -> None:
        """Catch from here on."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                logging.getLogger().addHandler(self._records)
                for name in ("stdout", "stderr"):
                    if (stream := getattr(sys, name)) is not None:
                        self._tees[name] = tee = _Tee(stream, self._writer)
                        setattr(sys, name, tee)

    def end(self) -> None:
        """Stop, unless others go on."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                logging.getLogger().removeHandler(self._records)
                for name, tee in self._tees.items():
                    if getattr(sys, name) is tee:  # else someone stands before us, and passes on
                        setattr(sys, name, tee.inner)
                self._tees = {}


class LogWriter(SideWriter[dict[LogPlace, StepLog]]):
    """Writes the logs that have changed, those of all steps of a host together, on a thread of its own."""

    def __init__(self, system: System, codecs: Codecs, ring: Callable[[], LiveRing]) -> None:
        super().__init__(
            system, ring, what="logs of steps", every=EVERY, thread="everstep-logs", hurries=True
        )
        self._codecs = codecs
        self._dirty: dict[LogPlace, StepLog] = {}
        self.thread_id = system.thread_id
        self._left: dict[LogPlace, StepLog] = {}
        """Of nodes that were left for a wait, while the drive that left them goes on."""
        self.catching = Catching(system, self)

    def log_of(self, run_id: str, path: str, visit: int, epoch: int, attempt: int) -> StepLog:
        """Return a log for an attempt at a step; nothing is written unless something comes.

        One that was left for a wait goes on behind what it had, as what is kept has one place.
        """
        place = LogPlace(run_id, path, visit, epoch, attempt)
        with self._changed:
            left = self._left.pop(place, None)
        return left or StepLog(place, LogText(self._system.lock()), self)

    def leave(self, step: StepLog) -> None:
        """Keep a log for when its node is entered again."""
        with self._changed:
            self._left[step.place] = step

    def end(self, run_id: str, epoch: int) -> None:
        """Let go of the logs of a drive that ends; the next has another epoch, and logs of its own."""
        with self._changed:
            for place in [p for p in self._left if (p.run_id, p.epoch) == (run_id, epoch)]:
                del self._left[place]

    def note(self, step: StepLog) -> None:
        """Have a log written that has changed."""
        with self._changed:
            self._dirty[step.place] = step
            self._note_added()

    def _take(self) -> dict[LogPlace, StepLog] | None:
        taken, self._dirty = self._dirty, {}
        return taken or None

    def _take_back(self, taken: dict[LogPlace, StepLog]) -> None:
        self._dirty = taken | self._dirty

    def _put(self, ring: LiveRing, taken: dict[LogPlace, StepLog]) -> None:
        ring.write_logs([self._kept(step) for step in taken.values()])

    def _kept(self, step: StepLog) -> KeptLog:
        body = msgspec.json.encode(LoggedText(*step.text.kept()))
        return KeptLog(step.place, Bound.log(step.place).closed(self._codecs, body))


def open_log(codecs: Codecs, kept: KeptLog) -> LoggedText:
    """Return a log as it was written, or raise what keeps it from being read here."""
    bound = Bound.log(kept.place)
    try:
        return _decode(bound.opened(codecs, kept.body))
    except (msgspec.DecodeError, ValueError) as error:
        raise StateCorrupted(f"{bound.where} was altered: {error}.") from error


def look_at_log(codecs: Codecs, kept: KeptLog) -> LoggedText:
    """Return a log as `open_log`, or one that says why it cannot be read."""
    try:
        return open_log(codecs, kept)
    except EverstepError as error:
        return LoggedText(f"(cannot be read: {error.message})", 0, "")
