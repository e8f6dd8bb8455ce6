"""A run's whole chain: its own records, and of a fork those it shares with the runs it comes from."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from typing import Protocol

import msgspec

from everstep.codec.chain import Codecs
from everstep.codec.records import OpenRecord, check_digest, digest_of, unseal
from everstep.codec.sealing import look_at, open_record
from everstep.errors import RunNotFound, StateCorrupted
from everstep.model.enums import Trigger
from everstep.model.records import CheckpointRecord
from everstep.ports.store import CheckpointStore, RunRow, StoredRecord

_PAGE = 256

Place = tuple[str, str, bool]
"""Of a record: its run, its id, and whether its values were read."""


class OpenedRecords(Protocol):
    """Records that were opened lately, where a process keeps them."""

    def find(self, place: Place, body: bytes, before: bytes | None) -> OpenRecord | None:
        """Return what these bytes were read as behind this digest, if that is known."""

    def keep(self, place: Place, body: bytes, before: bytes | None, opened: OpenRecord) -> None:
        """Keep what was read."""


class Link(msgspec.Struct, frozen=True):
    """One record of a chain, and the run it lies in."""

    row: RunRow
    stored: StoredRecord
    codecs: Codecs
    kept: OpenedRecords | None = None
    """What was opened lately, where that is kept."""

    @property
    def sequence(self) -> int:
        return self.stored.sequence

    @property
    def where(self) -> str:
        return f"checkpoint {self.stored.sequence} of run {self.row.run_id!r}"

    def open(self, base_digest: bytes | None, *, needs_values: bool = True) -> OpenRecord:
        """Return the record, checked; without its key only if no values are needed: they are locked then."""
        where, stored = self.where, self.stored
        opened = unseal(stored.body, where, base_digest, stored.checkpoint_id)
        read = open_record if needs_values else look_at
        return read(opened, self.row.run_id, where, self.codecs)

    def look(self, base_digest: bytes | None, *, at_values: bool) -> OpenRecord:
        """Return the record, checked, to be looked at; without `at_values`, its values are as stored."""
        kept = self.kept
        if kept is None:
            return self._looked(base_digest, at_values)
        place, body = (self.row.run_id, self.stored.checkpoint_id, at_values), self.stored.body
        found = kept.find(place, body, base_digest)
        if found is None:
            found = self._looked(base_digest, at_values)
            kept.keep(place, body, base_digest, found)
        return found

    def _looked(self, base_digest: bytes | None, at_values: bool) -> OpenRecord:
        return self.open(base_digest, needs_values=False) if at_values else self.unseal(base_digest)

    def unseal(self, base_digest: bytes | None) -> OpenRecord:
        """Return the record, checked, with its values as they are stored."""
        return unseal(self.stored.body, self.where, base_digest, self.stored.checkpoint_id)


class FlowAt(msgspec.Struct, frozen=True):
    """The version of its flow that a run went by at a checkpoint."""

    flow_version: str
    flow_hash: str


class Lineage:
    """Reads chains across the places where runs were forked. Nothing here goes deeper by recursion."""

    def __init__(self, store: CheckpointStore, codecs: Codecs) -> None:
        self._store = store
        self._codecs = codecs
        self.kept: OpenedRecords | None = None
        """Where opened records are kept for a while, if they are."""

    async def back(self, row: RunRow) -> AsyncGenerator[RunRow, None]:
        """Yield the run, the one it was forked from, and so on to the first."""
        while True:
            yield _whole(row)
            if row.forked_at is None:
                return
            row = await self._parent(row, row.forked_at)

    async def _parent(self, row: RunRow, forked_at: int) -> RunRow:
        parent = await self._store.run(row.parent_run_id or "")
        if parent is None or parent.first > forked_at:
            raise StateCorrupted(f"run {row.parent_run_id!r}, which {row.run_id!r} comes from, is gone.")
        return parent

    async def root(self, row: RunRow) -> RunRow:
        """Return the first run of the family."""
        async for ancestor in self.back(row):
            row = ancestor
        return row

    async def home(self, row: RunRow, sequence: int) -> RunRow:
        """Return the run that a checkpoint of this one lies in: itself, or one it comes from."""
        if sequence >= row.first:
            return _whole(row)
        async with aclosing(self.back(row)) as ancestors:
            async for ancestor in ancestors:
                row = ancestor
                if sequence >= row.first:
                    break
        return row

    async def flow_at(self, row: RunRow, sequence: int) -> FlowAt:
        """Return the version of its flow that a run went by at a checkpoint.

        Only if it went over to another one later does this read anything but rows: the newest record up to
        there that says so, with which a tail begins.
        """
        home = await self.home(row, sequence)
        if home.adopted_at is None or sequence >= home.adopted_at:
            return FlowAt(home.flow_version, home.flow_hash)
        first = (await self.tail(home, sequence))[0]
        record = first.unseal(None).record
        return FlowAt(record.flow_version, record.flow_hash)

    async def tail(
        self, row: RunRow, at: int | None = None, known: list[StoredRecord] | None = None
    ) -> list[Link]:
        """Return the newest keyframe (not after `at`) and what follows it, in order.

        `known` are the run's own of these, if they were read before.
        """
        parts: list[list[Link]] = []
        while True:
            _whole(row)
            if at is None or at >= row.first:
                if at is not None and at < row.trimmed_before:
                    raise trimmed(row, at)
                own = await self._store.tail(row.run_id, at=at) if known is None else known
                known = None
                if not own:
                    raise _missing(row)
                parts.append([Link(row, stored, self._codecs) for stored in own])
                if own[0].keyframe:
                    break
                at = row.forked_at
            if row.forked_at is None:
                break
            row = await self._parent(row, row.forked_at)
        return [link for part in reversed(parts) for link in part]

    async def get(self, row: RunRow, first: int = 1, last: int | None = None) -> list[Link]:
        """Return the records between two sequences, in order; trimmed ones as stubs."""
        if first >= row.first and (last is None or last >= row.first):
            own = await self._store.get(_whole(row).run_id, first=first, last=last)
            return [Link(row, stored, self._codecs, self.kept) for stored in own]
        parts: list[list[Link]] = []
        async with aclosing(self.back(row)) as ancestors:
            async for run in ancestors:
                if last is None or last >= run.first:
                    own = await self._store.get(run.run_id, first=max(first, run.first), last=last)
                    parts.append([Link(run, stored, self._codecs, self.kept) for stored in own])
                if first >= run.first:
                    break
                last = run.first - 1 if last is None else min(last, run.first - 1)
        return [link for part in reversed(parts) for link in part]

    async def sequence_of(self, row: RunRow, checkpoint_id: str, *, own: bool = False) -> int | None:
        """Find a checkpoint by its id, the newest first; this reads the chain back to it.

        With `own`, not among those that a fork shares.
        """
        last, oldest = row.checkpoints, row.first if own else 1
        while last >= oldest:
            page = await self.get(row, max(oldest, last - _PAGE + 1), last)
            for link in page:
                if link.stored.checkpoint_id == checkpoint_id:
                    return link.sequence
            last -= _PAGE
        return None

    async def open(
        self, row: RunRow, first: int = 1, last: int | None = None
    ) -> list[tuple[Link, OpenRecord | None]]:
        """Return the records between two sequences, each verified against the one before it.

        The values of those whose key is not at hand are locked.
        """
        links = await self.get(row, max(1, first - 1), last)
        if first <= 1:
            return list(verified(links, needs_values=False))
        if not links:
            return []
        return list(verified(links[1:], claimed_digest(links[0]), needs_values=False))

    async def read(self, row: RunRow, sequence: int, *, needs_values: bool = True) -> tuple[Link, OpenRecord]:
        """Return one checkpoint, verified against the one before it, without reading any other."""
        link, before = await self._with_base(row, sequence)
        return link, link.open(before, needs_values=needs_values)

    async def digest(self, row: RunRow, sequence: int) -> tuple[Link, bytes]:
        """Return one checkpoint and its digest, verified as a resume does it, but not what it holds.

        A keyframe says itself what it was hashed onto, so what lies before it may be damaged.
        """
        links = await self.get(row, max(1, sequence - 1), sequence)
        link = self._last_of(links, row, sequence)
        if link.stored.keyframe:
            return link, check_digest(link.stored.body, link.where, None, link.stored.checkpoint_id)
        before = _base_of(links, sequence)
        return link, check_digest(link.stored.body, link.where, before, link.stored.checkpoint_id)

    async def _with_base(self, row: RunRow, sequence: int) -> tuple[Link, bytes | None]:
        """Return one checkpoint and the digest that it was hashed onto."""
        links = await self.get(row, max(1, sequence - 1), sequence)
        return self._last_of(links, row, sequence), _base_of(links, sequence)

    @staticmethod
    def _last_of(links: list[Link], row: RunRow, sequence: int) -> Link:
        if not links or links[-1].sequence != sequence:
            raise StateCorrupted(f"checkpoint {sequence} of run {row.run_id!r} is missing.")
        if links[-1].stored.is_stub:
            raise trimmed(links[-1].row, sequence)
        return links[-1]


def _base_of(links: list[Link], sequence: int) -> bytes | None:
    """Return the digest that the last of two records was hashed onto, as the first claims it."""
    return claimed_digest(links[0]) if len(links) > 1 else b"" if sequence == 1 else None


def _whole(row: RunRow) -> RunRow:
    """Return the run; raises if it has no record of its own."""
    if row.checkpoints < row.first:
        raise _missing(row)
    return row


def _missing(row: RunRow) -> StateCorrupted:
    return StateCorrupted(
        f"the records of run {row.run_id!r} are missing.", fix="Restore the store from a copy."
    )


def claimed_digest(link: Link) -> bytes:
    """Return the digest that a record says it has; whether it is true shows in the record after it."""
    return digest_of(link.stored.body) if link.stored.digest is None else link.stored.digest


def flows_met(links: Iterable[Link]) -> set[str]:
    """Return the wirings that a run goes over to in these records."""
    opened = (link.unseal(None).record for link in links if link.stored.keyframe)
    return {record.flow_hash for record in opened if record.trigger is Trigger.MIGRATION}


def trimmed(row: RunRow, sequence: int) -> RunNotFound:
    """Say that a checkpoint is gone, and what is the oldest one still there."""
    return RunNotFound(
        f"checkpoint {sequence} of run {row.run_id!r} was removed; "
        f"the oldest one still there is {row.trimmed_before}.",
        fix=f"Take one from {row.trimmed_before} on.",
        oldest=row.trimmed_before,
    )


def headers(links: Iterable[Link], before: bytes | None = b"") -> Iterator[tuple[Link, CheckpointRecord]]:
    """Yield what records say, each checked against the digest before it, but not the values they name.

    Of an encrypted one, texts of errors stay sealed; who did what is opened where a key is at hand.
    """
    previous: Link | None = None
    for link in links:
        if previous is not None and link.sequence != previous.sequence + 1:
            raise StateCorrupted(f"{link.where} follows checkpoint {previous.sequence}: records are missing.")
        previous = link
        if link.stored.is_stub:
            before = link.stored.digest
            continue
        opened = link.look(before, at_values=False)
        before = opened.digest
        if opened.notes:
            opened = look_at(opened, link.row.run_id, link.where, link.codecs)
        yield link, opened.record


def verified(
    links: Iterable[Link],
    before: bytes | None = b"",
    *,
    needs_values: bool = True,
    is_read_only: bool = False,
) -> Iterator[tuple[Link, OpenRecord | None]]:
    """Open records one after the other, each checked against the digest before it; of a stub there is none.

    `before` is the digest that the first was hashed onto; with none, it must be a keyframe. With
    `is_read_only` no values are needed, and others may look at the same records.
    """
    previous: Link | None = None
    for link in links:
        if previous is not None and link.sequence != previous.sequence + 1:
            raise StateCorrupted(f"{link.where} follows checkpoint {previous.sequence}: records are missing.")
        previous = link
        if link.stored.is_stub:
            before = link.stored.digest
            yield link, None
            continue
        opened = (
            link.look(before, at_values=True)
            if is_read_only
            else link.open(before, needs_values=needs_values)
        )
        if opened.record.run_id not in ("", link.row.run_id):
            raise StateCorrupted(f"{link.where} belongs to run {opened.record.run_id!r}.")
        before = opened.digest
        yield link, opened
