"""Walking along a run's own records, from the first to the last, and saying what is wrong with them. Apart
from `run_check`, which says of which records.

A page of records is in memory at a time, and the state that they fold to. After something is wrong the walk
goes on: the next record that follows the one before it, or a keyframe, is firm ground again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from everstep.codec.records import Glance, OpenRecord, digest_of, glance
from everstep.codec.sealing import look_at, open_record
from everstep.errors import EverstepError, IncompatibleVersion, KeyUnavailable, StateCorrupted
from everstep.model.enums import Status, Trigger
from everstep.model.records import CheckpointRecord
from everstep.model.waits import WaitRow
from everstep.ports.store import RunRow, StoredRecord
from everstep.runtime.integrity.artifact_check import BlobCheck
from everstep.runtime.integrity.findings import Flaw, FlawKind
from everstep.runtime.integrity.keyframe_check import artifacts_of, difference
from everstep.runtime.lineage import FlowAt, Link
from everstep.runtime.reader import RunReader
from everstep.runtime.rehydrate import Rehydrated
from everstep.runtime.services import Services

PAGE = 64
MOST_FLAWS = 100


class ChainBase(NamedTuple):
    """What the first record of a run follows: nothing, or a record of the run it was forked from."""

    digest: bytes | None = b""
    checkpoint_id: str | None = None
    folded: Rehydrated | None = None
    is_sound: bool = True
    """True if all that leads up to it is as it was written."""


class Examined:
    """What was found of one run's own records."""

    def __init__(self, row: RunRow) -> None:
        self.row = row
        self.flaws: list[Flaw] = []
        self.removed = 0
        self.artifacts = 0
        self.locked: list[int] = []
        """The checkpoints whose values were not checked."""
        self.locked_by: dict[str, None] = {}
        self.sound: list[list[int]] = []
        """The checkpoints that a run can go on from: the first and the last of each stretch."""
        self.folded: Rehydrated | None = None
        """Where the run stands, if its records tell."""
        self.status: Status | None = None
        self.flow: FlowAt | None = None
        self.adopted_at: int | None = None
        self.records: list[CheckpointRecord] | None = None
        """All that could be read, if someone wants them: they may be too many to keep."""
        self.waits: list[WaitRow] | None = None
        """What the store has of its waits, if they were compared."""

    def flaw(self, kind: FlawKind, message: str, sequence: int | None = None) -> None:
        if len(self.flaws) < MOST_FLAWS:
            self.flaws.append(Flaw(kind=kind, message=message, run_id=self.row.run_id, sequence=sequence))

    def newest_sound(self, at: int) -> int | None:
        """Return the newest checkpoint up to a sequence that a run can go on from."""
        found = [min(last, at) for first, last in self.sound if first <= at]
        return max(found, default=None)

    def up_to(self, last: int) -> list[Flaw]:
        """Return what is wrong with the records that a fork shares, and whatever concerns all of them."""
        general = (FlawKind.BLUEPRINT,)
        return [
            flaw
            for flaw in self.flaws
            if (flaw.sequence is None and flaw.kind in general)
            or (flaw.sequence is not None and flaw.sequence <= last)
        ]


class Walk:
    """One walk along the records of one run."""

    def __init__(
        self,
        services: Services,
        runs: RunReader,
        row: RunRow,
        before: ChainBase,
        blobs: BlobCheck | None,
        on_page: Callable[[int], object] | None,
    ) -> None:
        self._services = services
        self._runs = runs
        self._row = row
        self._before = before
        self._blobs = blobs
        self._on_page = on_page
        self._digest = before.digest
        """The digest that the next record should be hashed onto; none if it is not known."""
        self._last = row.first - 1
        """The sequence that the newest record read says it has."""
        self._after_stub = False
        self._is_sound = before.is_sound
        self._lacks: set[str] = set()
        """Structures of flows that are not there."""
        self._places = Places(row.first)
        self.found = Examined(row)
        self.found.folded = before.folded

    async def to(self, last: int) -> Examined:
        """Walk to a sequence."""
        first, window = self._row.first, PAGE
        while first <= last:
            until = min(first + window - 1, last)
            page = await self._page(first, until)
            for stored in page:
                await self._take(stored)
            # Where nothing is, steps become longer: what moved far away leaves a gap as long as it likes.
            window = PAGE if page else 2 * window
            first = until + 1
            if self._on_page is not None:
                self._on_page(until)
        self._end(last)
        return self.found

    async def _page(self, first: int, last: int) -> list[StoredRecord]:
        """Return the records between two sequences; of those that the store cannot make out, none."""
        store, run_id = self._services.store, self._row.run_id
        try:
            return await store.get(run_id, first=first, last=last)
        except StateCorrupted as error:
            if first == last:
                self.found.flaw(FlawKind.ALTERED, error.message, first)
                self._places.take(first, None)
                self._digest, self._last = None, first
                return []
        found: list[StoredRecord] = []
        for place in range(first, last + 1):
            found += await self._page(place, place)
        return found

    def _end(self, last: int) -> None:
        for flaw in self._places.flaws(last, self._row.run_id):
            self.found.flaw(*flaw)
        if self._places.newest < last:
            self._break()
        self.found.flaws.sort(key=lambda flaw: flaw.sequence or 0)

    def _break(self) -> None:
        """What follows is not firm ground before a keyframe comes."""
        self._is_sound, self.found.folded = False, None

    async def _take(self, stored: StoredRecord) -> None:
        found, place = self.found, stored.sequence
        link = Link(self._row, stored, self._services.codecs)
        where = link.where
        if place != self._places.newest + 1:
            self._break()
        if stored.is_stub:
            self._places.take(place, place)
            self._take_stub(stored)
            return
        try:
            seen = glance(stored.body, where, stored.checkpoint_id)
        except EverstepError as error:
            self._places.take(place, None)
            found.flaw(_unreadable(error), error.message, place)
            self._digest = _claimed(stored.body)
            self._last = place if self._digest is not None else -1
            self._after_stub = False
            self._break()
            return
        self._places.take(place, seen.record.sequence)
        if found.records is not None:
            found.records.append(seen.record)
        is_proven = self._prove(link, seen)
        self._digest, self._last, self._after_stub = seen.digest, seen.record.sequence, False
        is_proven = self._compare(link, seen.record) and is_proven
        if not is_proven or seen.record.sequence != place:
            self._break()
        opened = self._open(link, where, seen)
        if opened is None:
            self._break()
            return
        await self._check_artifacts(link, seen.record)
        if is_proven and seen.record.sequence == place and (seen.record.keyframe or place == 1):
            self._is_sound = True
        if is_proven:
            self._note(seen.record, place)
        await self._fold(link, opened)
        if self._is_sound and not self._lives_on_bad():
            _extend(found.sound, place)

    def _note(self, record: CheckpointRecord, place: int) -> None:
        """Note what the store should say of the run."""
        found = self.found
        found.status = record.status
        if record.flow_hash:
            found.flow = FlowAt(record.flow_version, record.flow_hash)
        if record.trigger is Trigger.MIGRATION:
            found.adopted_at = place

    def _take_stub(self, stored: StoredRecord) -> None:
        found = self.found
        found.removed += 1
        self._digest, self._last, self._after_stub = stored.digest, stored.sequence, True
        if len(stored.digest or b"") != 32:
            said = f"of checkpoint {stored.sequence} of run {self._row.run_id!r} no digest is left."
            found.flaw(FlawKind.STUB, said, stored.sequence)
            self._digest = None
        self._break()

    def _prove(self, link: Link, seen: Glance) -> bool:
        """True if a record is as it was written, as far as what lies before it tells."""
        follows = seen.record.sequence == self._last + 1
        if not follows or self._digest is None:
            if seen.record.keyframe and not seen.stands_alone:
                self.found.flaw(FlawKind.ALTERED, f"{link.where} was altered.", link.sequence)
            return seen.stands_alone
        if seen.joins(self._digest):
            return True
        if not seen.stands_alone:
            self.found.flaw(FlawKind.ALTERED, f"{link.where} was altered.", link.sequence)
            return False
        if self._after_stub:
            said = f"{link.where} was hashed onto another digest than the one that is left of checkpoint"
            self.found.flaw(FlawKind.STUB, f"{said} {link.sequence - 1}.", link.sequence - 1)
        else:
            said = f"{link.where} was not written after the checkpoint before it."
            self.found.flaw(FlawKind.ALTERED, said, link.sequence)
        return True

    def _compare(self, link: Link, record: CheckpointRecord) -> bool:
        """True if a record is the one that the store says it is."""
        stored, found, run_id = link.stored, self.found, self._row.run_id
        if record.sequence != link.sequence:
            return False  # its place tells why
        if record.run_id not in ("", run_id):
            said = f"{link.where} belongs to run {record.run_id!r}."
            found.flaw(FlawKind.FOREIGN, said, link.sequence)
            return False
        if record.checkpoint_id != stored.checkpoint_id:
            said = f"{link.where} is called {stored.checkpoint_id!r} by the store, and is another."
            found.flaw(FlawKind.ALTERED, said, link.sequence)
            return False
        if record.keyframe != stored.keyframe:
            is_one = "a keyframe" if stored.keyframe else "no keyframe"
            said = f"{link.where} is {is_one} to the store, which is wrong."
            found.flaw(FlawKind.ALTERED, said, link.sequence)
            return not stored.keyframe
        base = self._before.checkpoint_id
        if link.sequence == self._row.first and base is not None and record.base != base:
            found.flaw(FlawKind.ROW, f"{link.where} goes on from another checkpoint.", link.sequence)
        return True

    def _open(self, link: Link, where: str, seen: Glance) -> OpenRecord | None:
        """Return a record with its values checked; if their key is not at hand, without."""
        found, codecs, run_id = self.found, self._services.codecs, self._row.run_id
        record = OpenRecord(seen.record, seen.digest, seen.payloads, seen.notes)
        try:
            return open_record(record, run_id, where, codecs)
        except KeyUnavailable as error:
            found.locked.append(link.sequence)
            found.locked_by[str(error.details.get("key_id"))] = None
        except EverstepError as error:
            kind = FlawKind.NEWER if isinstance(error, IncompatibleVersion) else FlawKind.VALUE
            said = error.message if run_id in error.message else f"{where}: {error.message}"
            found.flaw(kind, said, link.sequence)
            return None
        try:
            return look_at(record, run_id, where, codecs)
        except EverstepError as error:
            found.flaw(FlawKind.VALUE, f"{where}: {error.message}", link.sequence)
            return None

    async def _check_artifacts(self, link: Link, record: CheckpointRecord) -> None:
        if self._blobs is None:
            return
        for write in record.writes():
            if write.artifact is None:
                continue
            wrong = await self._blobs.check(write.artifact)
            if wrong is not None:
                kind, said = wrong
                self.found.flaw(kind, f"{link.where}, value {write.name!r}: {said}", link.sequence)
            else:
                self.found.artifacts += 1

    def _lives_on_bad(self) -> bool:
        """True if a value that is still read is in an artifact that is missing or altered."""
        folded = self.found.folded
        if self._blobs is None or folded is None or not self._blobs.has_found:
            return False
        return any(map(self._blobs.is_bad, artifacts_of(folded.space)))

    async def _fold(self, link: Link, opened: OpenRecord) -> None:
        found, record = self.found, opened.record
        if not self._is_sound:
            return
        try:
            if found.folded is None:
                if record.keyframe or link.sequence == 1:
                    found.folded = await self._begin(link, opened)
                return
            if record.trigger is Trigger.MIGRATION:
                found.folded.plans[record.flow_hash] = await self._runs.plan(self._row, record.flow_hash)
            found.folded.take(link, opened)
        except EverstepError as error:
            found.folded = None
            is_known = bool(found.locked) or (self._blobs is not None and self._blobs.has_found)
            if not is_known and record.flow_hash not in self._lacks:
                said = error.message if "checkpoint" in error.message else f"{link.where}: {error.message}"
                found.flaw(FlawKind.KEYFRAME, said, link.sequence)
            return
        if record.keyframe and record.trigger is not Trigger.MIGRATION:
            told = difference(found.folded, record, self._services.values)
            if told:
                said = f"{link.where} says of {told} something else than the checkpoints before it."
                found.flaw(FlawKind.KEYFRAME, said, link.sequence)
                found.folded = await self._begin(link, opened)

    async def _begin(self, link: Link, opened: OpenRecord) -> Rehydrated | None:
        flow_hash = opened.record.flow_hash or self._row.flow_hash
        try:
            plan = await self._runs.plan(self._row, flow_hash)
        except StateCorrupted as error:
            if flow_hash not in self._lacks:
                self._lacks.add(flow_hash)
                self.found.flaw(FlawKind.BLUEPRINT, error.message)
            return None
        services = self._services
        folded = Rehydrated(plan, services.values, services.blobs, 1 << 62)
        folded.take(link, opened)
        return folded


def _unreadable(error: EverstepError) -> FlawKind:
    if isinstance(error, IncompatibleVersion):
        return FlawKind.NEWER
    return FlawKind.CUT_SHORT if "truncated" in error.message else FlawKind.ALTERED


def _claimed(body: bytes) -> bytes | None:
    try:
        return digest_of(body)
    except EverstepError:
        return None


def _extend(stretches: list[list[int]], place: int) -> None:
    if stretches and stretches[-1][1] == place - 1:
        stretches[-1][1] = place
    else:
        stretches.append([place, place])


Told = tuple[FlawKind, str, int]
_MOST = 1000


class Places:
    """Notes what each place of a chain holds; a stretch of places that are all off alike costs one note."""

    def __init__(self, first: int) -> None:
        self.newest = first - 1
        """The last place that holds something."""
        self._gaps: list[tuple[int, int]] = []
        self._off: list[list[int]] = []
        """Stretches of places that hold the records of others: first, last, and by how much they are off."""

    def take(self, place: int, sequence: int | None) -> None:
        """Note the sequence that the record in a place says it has; none if it cannot be read."""
        if place > self.newest + 1 and len(self._gaps) < _MOST:
            self._gaps.append((self.newest + 1, place - 1))
        self.newest = max(self.newest, place)
        shift = 0 if sequence is None else sequence - place
        if not shift:
            return
        if self._off and self._off[-1][1] == place - 1 and self._off[-1][2] == shift:
            self._off[-1][1] = place
        elif len(self._off) < _MOST:
            self._off.append([place, place, shift])

    def flaws(self, last: int, run_id: str) -> Iterator[Told]:
        """Yield what is wrong with the places up to a sequence."""
        made_up: list[tuple[int, int]] = []
        for first, until, shift in self._off:
            if until == self.newest and shift > 0:
                # All that follows stands too low: what belongs before it was taken out.
                yield _missing(first, first + shift - 1, run_id)
                made_up.append((until + 1, until + shift))
            else:
                yield self._moved(first, until, shift, run_id)
        gaps = list(self._gaps)
        if self.newest < last:
            gaps.append((self.newest + 1, last))
        for first, until in gaps:
            if (first, until) not in made_up:
                yield _missing(first, until, run_id)

    def _moved(self, first: int, until: int, shift: int, run_id: str) -> Told:
        sequence = first + shift
        what = f"checkpoint {sequence} of run {run_id!r}"
        if self._holds(sequence) or (until == self.newest and shift < 0):
            return FlawKind.DUPLICATED, f"{what} is there a second time, in the place of {first}.", first
        return FlawKind.REORDERED, f"{what} lies in the place of {first}.", first

    def _holds(self, sequence: int) -> bool:
        """True if a place holds the record that belongs there."""
        gone = any(first <= sequence <= until for first, until in self._gaps)
        other = any(first <= sequence <= until for first, until, _ in self._off)
        return not gone and not other and sequence <= self.newest


def _missing(first: int, last: int, run_id: str) -> Told:
    if first == last:
        return FlawKind.MISSING, f"checkpoint {first} of run {run_id!r} is missing.", first
    return FlawKind.MISSING, f"checkpoints {first} to {last} of run {run_id!r} are missing.", first
