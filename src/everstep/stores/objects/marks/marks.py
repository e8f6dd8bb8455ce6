"""What a run's log tells of signals, of waits that are over, and of events that nodes had: a tree of keys.

Apart from how the run stands, which every entry repeats: of these a run may have any number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import msgspec

from everstep.model.waits import HadEvent, SignalRow
from everstep.stores.objects.entries import SignalMark, WaitMark
from everstep.stores.objects.marks.tree import Page, Ref, Tree

_IDS, _SIGNALS, _UNTAKEN = b"i", b"s", b"u"
_WAITS, _HAD = b"w", b"h"
_encode = msgspec.msgpack.Encoder().encode
_signals = msgspec.msgpack.Decoder(SignalMark)
_waits = msgspec.msgpack.Decoder(WaitMark)
_had = msgspec.msgpack.Decoder(HadEvent)


class Marks:
    """The marks of one run, as they are read or changed."""

    def __init__(self, root: Ref | None, read: Callable[[Ref], Page]) -> None:
        self._tree = Tree(root, read)
        self.written = self._tree.written

    @property
    def is_empty(self) -> bool:
        return self._tree.is_empty

    # -- signals ------------------------------------------------------------------

    def number_of(self, signal_id: str) -> int | None:
        """Return the number of the signal that has an id, whatever became of it."""
        found = self._tree.get(_IDS + _short(signal_id))
        return None if found is None else int.from_bytes(found)

    def signal(self, number: int) -> SignalMark:
        """Return what is told of a signal that is there."""
        found = self._tree.get(_SIGNALS + _number(number))
        assert found is not None
        return _signals.decode(found)

    def add_signal(self, signal_id: str, mark: SignalMark) -> None:
        """Tell of a signal that is new."""
        self._tree.set(_IDS + _short(signal_id), _number(mark.number))
        if mark.taken_at is None:
            self._tree.set(_untaken(mark), b"")
        self.change_signal(mark)

    def change_signal(self, mark: SignalMark) -> None:
        """Tell something else of a signal."""
        self._tree.set(_SIGNALS + _number(mark.number), _encode(mark))

    def take(self, mark: SignalMark, sequence: int) -> None:
        """Tell that a signal was taken."""
        self._tree.remove(_untaken(mark))
        self.change_signal(msgspec.structs.replace(mark, taken_at=sequence))

    def untaken(self, name: str, after: int = 0) -> Iterator[SignalMark]:
        """Yield the signals of a name that were not taken, by their numbers."""
        prefix = _UNTAKEN + about(name)
        for key, _ in self._tree.scan(prefix, prefix + _number(after)):
            yield self.signal(int.from_bytes(key[-8:]))

    def all_untaken(self, after: int = 0) -> list[SignalMark]:
        """Return the signals that were not taken, by their numbers."""
        numbers = sorted(int.from_bytes(key[-8:]) for key, _ in self._tree.scan(_UNTAKEN))
        return [self.signal(number) for number in numbers if number > after]

    def taken(self, after: int = 0) -> Iterator[SignalMark]:
        """Yield the signals that were taken, by their numbers."""
        for _, value in self._tree.scan(_SIGNALS, _SIGNALS + _number(after)):
            mark = _signals.decode(value)
            if mark.taken_at is not None:
                yield mark

    # -- waits that are over, and events ---------------------------------------------

    def wait(self, wait_id: str) -> WaitMark | None:
        """Return what is told of a wait that is over and no longer told of elsewhere."""
        found = self._tree.get(_WAITS + _short(wait_id))
        return None if found is None else _waits.decode(found)

    def set_wait(self, mark: WaitMark) -> None:
        self._tree.set(_WAITS + _short(mark.wait_id), _encode(mark))

    def waits(self) -> Iterator[WaitMark]:
        for _, value in self._tree.scan(_WAITS):
            yield _waits.decode(value)

    def has_had(self, had: HadEvent) -> bool:
        return self._tree.get(_event(had)) is not None

    def add_had(self, had: HadEvent) -> None:
        self._tree.set(_event(had), _encode(had))

    def had(self) -> Iterator[HadEvent]:
        for _, value in self._tree.scan(_HAD):
            yield _had.decode(value)


def as_told(row: SignalRow, mark: SignalMark) -> SignalRow:
    """Return the row of a signal as it stands; the value of one that was taken is gone."""
    value = row.value if mark.taken_at is None else None
    return msgspec.structs.replace(row, value=value, wait_id=mark.wait_id, taken_at=mark.taken_at)


def about(name: str) -> bytes:
    """Return what stands for the name of a signal."""
    return _short(name)


def _short(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:16]


def _event(had: HadEvent) -> bytes:
    return _HAD + hashlib.sha256(_encode(had)).digest()[:16]


def _number(number: int) -> bytes:
    return number.to_bytes(8)


def _untaken(mark: SignalMark) -> bytes:
    return _UNTAKEN + mark.about + _number(mark.number)
