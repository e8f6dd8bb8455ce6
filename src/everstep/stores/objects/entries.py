"""What stands at one place of a run's log: what happened there, and how the run stands after it."""

from __future__ import annotations

import hashlib
import os
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from everstep.errors import IncompatibleVersion, StateCorrupted
from everstep.model.acts import AuditRow
from everstep.model.commits import Attribute, NoticeRow, Tag, Told
from everstep.model.removal import Tombstone
from everstep.model.waits import SignalRow, WaitRow, WaitStatus
from everstep.ports.store import RunRow, StoredRecord
from everstep.stores.objects.marks.tree import Page, Ref

T = TypeVar("T")
VERSION = 2
"""The newest that is known. 2 is for a run with an inbox or with labels, that another one started, or of
which people are told: clients that know only 1 would lose these."""
_MAGIC = b"es\x01"
_SUM = 12


class WaitMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """A wait as the log tells of it: how it stands, and where its row is."""

    wait_id: str
    place: int
    """Of the entry that holds its row."""
    number: int
    """Counts waits in the order they were opened."""
    kind: str
    status: WaitStatus = WaitStatus.OPEN
    due_at: datetime | None = None
    """By the store's own scheduler, while it is open."""
    settled_at: datetime | None = None
    token: str = ""
    """What stands for its token."""
    heard: str = ""
    """The name under which events find it, while it is open."""


class SignalMark(msgspec.Struct, frozen=True, array_like=True):
    """A signal as the log tells of it: how it stands, and where its row is."""

    number: int
    place: int
    """Of the entry that holds its row."""
    about: bytes
    """What stands for its name."""
    wait_id: str | None = None
    taken_at: int | None = None


class Standing(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How a run stands."""

    row: RunRow
    """With the lease as it was claimed; renewals are kept apart."""
    epoch: int
    head: str
    """The newest checkpoint."""
    order: int
    """Counts runs in the order they came in, in microseconds."""
    claimed_at: int
    """The newest checkpoint when the run was last claimed."""
    keyframe: int = 0
    """The place of the newest keyframe; 0 if there is none."""
    begins: int = 1
    """The place of the run's first entry: what lies before belongs to a run of that id which was removed."""
    forked: bool = False
    """It may have forks: `children/` tells."""
    waits: tuple[WaitMark, ...] = ()
    """Those that are not closed; while there is no tree, all."""
    sent: int = 0
    """The number of its newest signal."""
    untaken: int = 0
    """How many signals were not taken."""
    tree: Ref | None = None
    """Where marks of its signals, of events that its nodes had, and of closed waits are found."""
    tags: tuple[Tag, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    told: Told | None = None
    """Who is told of it."""
    notices: tuple[NoticeRow, ...] = ()
    noticed: int = 0
    """The largest number that one of its notices had."""
    telling: str = ""
    """The name under which it is marked as one with notices that were not sent."""
    undoing: str = ""
    """What it says of undoing."""
    live: str = ""
    """The name under which it is marked as one to be driven."""
    waiting: str = ""
    """The name under which it is marked as one with waits."""
    stop_note: bytes = msgspec.field(default=b"", name="signal_note")
    """Who asked it to stop, and why, if that was said."""
    gone: bool = False
    """There is no such run: it was removed, or is only just coming from another store."""
    erased: Tombstone | None = None
    """What is told of a run that was removed; its id stays taken."""
    erased_order: int = 0
    """Counts removed runs in the order they went."""


class Record(msgspec.Struct, frozen=True, array_like=True):
    """A record of a run, or what trimming left of it."""

    sequence: int
    checkpoint_id: str
    keyframe: bool
    body: bytes
    digest: bytes | None = None

    def stored(self) -> StoredRecord:
        return StoredRecord(self.sequence, self.checkpoint_id, self.keyframe, self.body, self.digest)


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One place of a log."""

    version: int = 1
    nonce: bytes = b""
    """Tells a client of a bucket that lost the reply whether it was its own write."""
    standing: Standing
    records: tuple[Record, ...] = ()
    keyframe_before: int = 0
    """The place of the newest keyframe before this entry."""
    waits: tuple[WaitRow, ...] = ()
    """Rows of waits that this entry opened or changed."""
    signals: tuple[SignalRow, ...] = ()
    """Rows of signals that this entry brought."""
    pages: tuple[Page, ...] = ()
    """What this entry changed of the run's tree."""
    what: str = ""
    """What happened, in a word, for people."""
    audit: tuple[AuditRow, ...] = ()
    """Who did what this entry tells of."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Entry)


def new_nonce() -> bytes:
    return os.urandom(9)


def encode(entry: Entry) -> bytes:
    return sealed(_encoder.encode(entry))


def decode(data: bytes, where: str) -> Entry:
    """Read an entry, and check that it is whole."""
    body = opened(data, where)
    try:
        entry = _decoder.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        found = _version(body)
        if found is not None and found > VERSION:
            raise newer(where, found) from None
        raise StateCorrupted(f"{where} cannot be read: {error}.") from error
    if entry.version > VERSION:
        raise newer(where, entry.version)
    return entry


def _version(body: bytes) -> int | None:
    try:
        found: Any = msgspec.msgpack.decode(body)
    except msgspec.DecodeError:
        return None
    version = found.get("version", 1) if isinstance(found, dict) else None
    return version if isinstance(version, int) else None


def sealed(body: bytes) -> bytes:
    """Return bytes with what tells whether they are whole."""
    return _MAGIC + hashlib.sha256(body).digest()[:_SUM] + body


def opened(data: bytes, where: str) -> bytes:
    """Return what was sealed; `StateCorrupted` if it is not what it was."""
    body = data[len(_MAGIC) + _SUM :]
    if len(data) < len(_MAGIC) + _SUM or not data.startswith(_MAGIC[:2]):
        raise StateCorrupted(f"{where} was not written by everstep, or is damaged.")
    if data[2] > _MAGIC[2]:
        raise newer(where, data[2])
    if hashlib.sha256(body).digest()[:_SUM] != data[len(_MAGIC) : len(_MAGIC) + _SUM]:
        raise StateCorrupted(f"{where} was altered or cut off.")
    return body


def read(decoder: msgspec.msgpack.Decoder[T], data: bytes, where: str) -> T:
    """Return what a small object says."""
    try:
        return decoder.decode(opened(data, where))
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StateCorrupted(f"{where} cannot be read: {error}.") from error


def newer(where: str, version: int) -> IncompatibleVersion:
    return IncompatibleVersion(
        f"{where} has version {version}; this everstep knows up to {VERSION}.",
        fix="Use the newer everstep that wrote it.",
    )
