"""What the next entry of a run will say: every rule of the log is here, and nothing is written here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import msgspec

from everstep.engine import leases
from everstep.engine.commits import admitted, closes_waits, followed, judge, judge_admission
from everstep.engine.settling import changed, is_free, judge_sending, pair, settled
from everstep.errors import RunNotFound
from everstep.model.acts import AuditRow
from everstep.model.commits import NO_LABELS, Labels, NoticeRow, NoticeState, Tag, Tagging, Told
from everstep.model.enums import Status
from everstep.model.leases import Lease, Process
from everstep.model.removal import Tombstone
from everstep.model.waits import (
    EVENT_KIND,
    HadEvent,
    Sending,
    SettledBy,
    SignalRow,
    WaitChange,
    WaitRow,
    WaitStatus,
    signal_in,
)
from everstep.on_demand import on_demand
from everstep.ports.events import EventRow, Wanted
from everstep.ports.restoring import wait_is_taken
from everstep.ports.store import Commit, RecodedSignal, RunRow, StopRequest, Verdict
from everstep.stores.columns import to_int
from everstep.stores.objects import names
from everstep.stores.objects.entries import Entry, Record, SignalMark, Standing, WaitMark
from everstep.stores.objects.marks.marks import Marks, about, as_told
from everstep.stores.objects.marks.tree import Page, Ref

if TYPE_CHECKING:
    from everstep.engine.notices.rows import is_same_try, rows_told, status_told, still_wanted, taken
    from everstep.engine.query.labels import attributed, tagged
else:
    is_same_try = on_demand("everstep.engine.notices.rows:is_same_try")
    rows_told = on_demand("everstep.engine.notices.rows:rows_told")
    status_told = on_demand("everstep.engine.notices.rows:status_told")
    still_wanted = on_demand("everstep.engine.notices.rows:still_wanted")
    taken = on_demand("everstep.engine.notices.rows:taken")
    attributed = on_demand("everstep.engine.query.labels:attributed")
    tagged = on_demand("everstep.engine.query.labels:tagged")

_replace = msgspec.structs.replace
_LEAVES_WAITS = frozenset({Status.HALTED, Status.FAILED, Status.ABANDONED})
"""A run in this status has no owner, and its waits are still wanted."""


class DraftReader(Protocol):
    """What a draft may ask while it is made."""

    def wait(self, mark: WaitMark) -> WaitRow:
        """Return the row of a wait."""

    def signal(self, mark: SignalMark) -> SignalRow:
        """Return the row of a signal as it was sent."""

    def page(self, ref: Ref) -> Page:
        """Return a page of the run's tree."""

    def checkpoint_at(self, sequence: int) -> str | None:
        """Return the id of the run's own checkpoint at a sequence."""

    def held(self, standing: Standing) -> Lease | None:
        """Return the lease as it was last prolonged."""

    def tick(self) -> int:
        """Return a number that rises."""


class Draft:
    """The next entry of a run, while it is being made."""

    def __init__(
        self, run_id: str, place: int, before: Standing | None, now: datetime, reader: DraftReader
    ) -> None:
        self.run_id = run_id
        self.place = place
        self.before = before
        self.now = now
        self._read = reader
        self._standing = before
        self._records: list[Record] = []
        self._rows: dict[str, WaitRow] = {}
        self._told = Marks(before.tree if before is not None else None, reader.page)
        self._signals: dict[int, SignalRow] = {}
        self._audit: list[AuditRow] = []
        self._wakes = False
        self.what = ""
        self.flows: dict[str, bytes] = {}
        """Structures that have to be kept first, by their hashes."""
        self.opened: list[str] = []
        """Waits that it opens."""
        self._unheard: list[str] = []
        """Names under which events no longer find a wait."""
        self.listening: dict[str, Wanted] = {}
        """Names under which events find waits that it opens, and which events each is for."""
        self.marks: list[str] = []
        """Names that have to be there first."""

    @property
    def standing(self) -> Standing:
        if self._standing is None or self._standing.gone:
            raise unknown(self.run_id)
        return self._standing

    @property
    def exists(self) -> bool:
        return self._standing is not None and not self._standing.gone

    @property
    def is_taken(self) -> bool:
        """True if the id of the run belongs to one that is there, or was removed."""
        return self._standing is not None and (not self._standing.gone or self._standing.erased is not None)

    @property
    def is_changed(self) -> bool:
        return self._standing is not self.before or bool(self._audit)

    @property
    def row(self) -> RunRow:
        return self.standing.row

    def set(self, *, what: str, wakes: bool = False, row: RunRow | None = None, **changes: object) -> None:
        """Change how the run stands; `wakes` tells others to look at it."""
        self.what = self.what or what
        self._wakes = self._wakes or wakes
        if row is not None:
            changes["row"] = row
        self._standing = _replace(self.standing, **changes)

    def tell(self, audit: AuditRow | None) -> None:
        """Say for the audit log who does this. The names that lead to the row have to be there first."""
        if audit is not None:
            mark = names.AuditMark(self._read.tick(), self.run_id, self.place)
            self._audit.append(
                _replace(audit, number=mark.number, at=self.now, run_id=self.run_id, once=False)
            )
            self.marks += mark.names

    def set_row(self, *, what: str, wakes: bool = False, **changes: object) -> None:
        self.set(what=what, wakes=wakes, row=_replace(self.row, **changes))

    # -- records ----------------------------------------------------------------

    def put(self, commit: Commit, *, is_told: bool = False, told: Told | None = None) -> Verdict:
        """Judge one commit, and take it in if it is accepted; `told` is who is told of a fork's parent."""
        if commit.admission is None and not self.exists:
            return Verdict.UNKNOWN_RUN
        refused = self._judge(commit, is_told) if commit.admission is None else self.judge_admission(commit)
        if refused is not None:
            return refused
        if commit.admission is None:
            self._follow(commit, self.standing, followed(self.row, commit))
        else:
            self._admit(commit, told)
        if commit.audit is not None:
            self.tell(commit.audit)
        return Verdict.ACCEPTED

    def _judge(self, commit: Commit, is_told: bool) -> Verdict | None:
        standing, newest = self.standing, self.row.checkpoints
        is_next = commit.sequence == newest + 1
        return judge(
            commit,
            epoch=standing.epoch,
            stop_request=standing.row.stop_request,
            before=standing.head if is_next else None,
            here=self._id_at(commit.sequence) if commit.sequence <= newest else None,
            is_told=is_told,
        )

    def judge_admission(self, commit: Commit) -> Verdict | None:
        """Return the verdict on an admission whose id is taken; none if it is free."""
        first = self._id_at(self.row.first) if self.exists else None
        return judge_admission(commit, first=first, is_erased=self.is_taken)

    def _id_at(self, sequence: int) -> str | None:
        standing = self.standing
        if sequence == standing.row.checkpoints:
            return standing.head
        drafted = next((r.checkpoint_id for r in self._records if r.sequence == sequence), None)
        return drafted or self._read.checkpoint_at(sequence)

    def _admit(self, commit: Commit, told: Told | None) -> None:
        self.what = self.what or "admitted"
        given = commit.admission.tags if commit.admission is not None else ()
        told = (commit.admission.told if commit.admission is not None else None) or told
        row = admitted(commit, self.now)
        order = self._read.tick()
        standing = Standing(
            row=row,
            epoch=commit.epoch,
            head="",
            order=order,
            claimed_at=commit.sequence,
            begins=self.place,
            tags=tagged((), given, ()) or () if given else (),
            told=told or None,
        )
        self.marks.append(names.index_name(order, row.flow_id, row.run_id))
        self.marks += _names_of_origin(row, order)
        self._follow(commit, standing, row)
        if commit.admission is not None and commit.admission.had:
            self.restore_had(commit.admission.had)

    def _follow(self, commit: Commit, standing: Standing, row: RunRow) -> None:
        before, self._standing = standing.row.status, standing
        self._records.append(
            Record(commit.sequence, commit.checkpoint_id, commit.keyframe, bytes(commit.body))
        )
        status = commit.status
        for brought in (commit.admission, commit.adopts):
            if brought is not None:
                self.flows[brought.flow_hash] = brought.blueprint
        self.set(
            what=status.value if status is not None else "record",
            wakes=status in (Status.HALTED, Status.RUNNING) or commit.adopts is not None,
            row=row,
            head=commit.checkpoint_id,
            keyframe=self.place if commit.keyframe else standing.keyframe,
        )
        if commit.waits:
            self._open(commit.waits)
        if commit.closed or (status is not None and self.standing.waits):
            self._close(None if status is not None and closes_waits(status) else commit.closed)
        if commit.taken:
            self._take(commit.taken, commit.sequence)
        if commit.pairs:
            self._pair()
        if commit.attributes:
            self.set(what="record", attributes=attributed(self.standing.attributes, commit.attributes))
        if commit.tells or (standing.told is not None and status is not None):
            occasion = status_told(before, status)
            of_status = () if occasion is None else (NoticeRow(occasion=occasion, at=commit.ended_at),)
            self._notice((*commit.tells, *of_status))
            if occasion is not None and self.row.status.is_final:
                left = still_wanted(self.standing.notices)
                self.set(what="notices", notices=left)
        if commit.undoing is not None:
            self.set(what="record", undoing=commit.undoing)

    # -- leases -----------------------------------------------------------------

    def claim(self, owner: str, ttl: timedelta, process: Process | None, void_epoch: int | None) -> Lease:
        """Claim the run, or raise `LeaseConflict`."""
        standing = self.standing
        granted = leases.claim(
            self._read.held(standing),
            run_id=self.run_id,
            owner=owner,
            process=process,
            now=self.now,
            ttl=ttl,
            newest_epoch=standing.epoch,
            has_progressed=standing.row.checkpoints > standing.claimed_at,
            void_epoch=void_epoch,
        )
        self.set(
            what="claimed",
            wakes=True,
            row=_replace(standing.row, lease=granted, needs_repair=standing.row.kept_mark),
            epoch=granted.epoch,
            claimed_at=standing.row.checkpoints,
        )
        return granted

    def release(self, lease: Lease) -> None:
        held = self.row.lease if self.exists else None
        if held is not None and held.epoch == lease.epoch:
            self.set_row(what="released", wakes=True, lease=None)

    def is_at(self, head: int | None) -> bool:
        """True if the newest record of the run has this sequence, or none is asked for."""
        return head is None or (self.exists and self.row.checkpoints == head)

    def request_stop(self, wanted: StopRequest, note: bytes, head: int | None) -> bool:
        if not self.exists or self.row.status.is_final or not self.is_at(head):
            return False
        if self.row.stop_request is not wanted or self.standing.stop_note != note:
            mark = None if self.row.is_paused else self.row.needs_repair  # workers are to end it
            row = _replace(self.row, stop_request=wanted, needs_repair=mark)
            self.set(what="asked to stop", wakes=True, row=row, stop_note=note)
        return True

    # -- signals ----------------------------------------------------------------

    def send(self, signal: SignalRow, most: int) -> Sending:
        """Put a signal into the inbox."""
        verdict = judge_sending(
            self.row.status if self.exists else None,
            is_there=self.exists and self._told.number_of(signal.signal_id) is not None,
            is_full=self.exists and self.standing.untaken >= most,
        )
        if verdict is Sending.SENT:
            self._keep(_replace(signal, number=self.standing.sent + 1, sent_at=self.now))
            self._pair()
        return verdict

    def tag(self, add: Sequence[Tag], remove: Collection[str], most: int, head: int | None) -> Tagging:
        """Change the tags of the run."""
        if not self.exists:
            return Tagging.UNKNOWN_RUN
        if not self.is_at(head):
            return Tagging.MOVED
        wanted = tagged(self.standing.tags, add, remove, most)
        if wanted is None:
            return Tagging.FULL
        if wanted != self.standing.tags:
            self.set(what="tagged", tags=wanted)
        return Tagging.TAGGED

    def restore_labels(self, labels: Labels) -> None:
        if labels != NO_LABELS:
            attributes, undoing = labels.attributes, labels.undoing
            self.set(what="restored", tags=labels.tags, attributes=attributes, undoing=undoing)

    def restore_told(self, told: Told, notices: Sequence[NoticeRow]) -> None:
        """Take in who is told of a run, and the notices that were not sent where it comes from."""
        if told:
            self.set(what="restored", told=told)
        self._notice(notices)

    def recode_signals(self, signals: Sequence[RecodedSignal]) -> int:
        """Give signals that were not taken, and still say what was read, other bytes for it."""
        replaced = 0
        for new in signals if self.exists else ():
            mark = self._told.signal(new.number) if new.number <= self.standing.sent else None
            row = self.signal(mark) if mark is not None and mark.taken_at is None else None
            if mark is not None and row is not None and row.value == new.was:
                self._signals[mark.number] = _replace(row, value=new.value)
                self._told.change_signal(_replace(mark, place=self.place))
                replaced += 1
        if replaced:
            self.set(what="recoded")
        return replaced

    def restore_inbox(self, signals: Sequence[SignalRow]) -> None:
        for signal in signals:
            self._keep(signal)

    def restore_had(self, had: tuple[HadEvent, ...]) -> None:
        for one in had:
            self._told.add_had(one)
            self.set(what="event")

    def _keep(self, signal: SignalRow) -> None:
        self._signals[signal.number] = signal
        mark = SignalMark(signal.number, self.place, about(signal.name), signal.wait_id, signal.taken_at)
        self._told.add_signal(signal.signal_id, mark)
        untaken = self.standing.untaken + (signal.taken_at is None)
        self.set(what="signal", wakes=True, sent=signal.number, untaken=untaken)

    def _take(self, signal_ids: Collection[str], sequence: int) -> None:
        for signal_id in signal_ids:
            number = self._told.number_of(signal_id)
            mark = None if number is None else self._told.signal(number)
            if mark is not None and mark.taken_at is None:
                self._told.take(mark, sequence)
                self.set(what="record", untaken=self.standing.untaken - 1)

    def _pair(self) -> None:
        """Settle open waits with the signals that they are for."""
        marks = self.standing.waits
        waits = [self._row(m) for m in marks if m.kind == "signal" and m.status is WaitStatus.OPEN]
        if not waits:
            return
        status = {mark.wait_id: mark.status for mark in marks}
        wanted = Counter(signal_in(wait.topic) or "" for wait in waits)
        free = [
            mark
            for name, many in wanted.items()
            for mark in islice(
                (m for m in self._told.untaken(name) if is_free(m.wait_id, status.get(m.wait_id or ""))), many
            )
        ]
        given = pair(map(self.signal, free), waits, self.now)
        if not given:
            return
        for signal, wait in given:
            mark = self._told.signal(signal.number)
            self._told.change_signal(_replace(mark, wait_id=wait.wait_id))
        settled_ones = {
            wait.wait_id: wait.settled(SettledBy.ANSWER, signal.value, self.now) for signal, wait in given
        }
        self.set(what="signal")
        self._set_waits(settled_ones, what="answered", wakes=True)

    def offer(self, event: EventRow, place: int) -> int:
        """Settle open waits with an event for which one is marked that a place of the log opens, or is to.

        If it is yet to, and the event is kept, this takes the place: who opens the wait looks again then.
        """
        given = self.give([event])
        if event.expires_at is not None and self.exists and self.place <= place and not given:
            self.set(what="event")
        return given

    def give(self, events: Iterable[EventRow]) -> int:
        """Settle open waits with events that they are for, each with the first; returns how many."""
        given = 0
        for event in events:
            for mark in self._waits():
                row = self._row(mark) if mark.kind == EVENT_KIND and mark.status is WaitStatus.OPEN else None
                if (
                    row is None
                    or not event.meets(row.topic or "")
                    or self._told.has_had(event.had_by(row.path))
                ):
                    continue
                if row.due_at is None or row.due_at > self.now:
                    self._told.add_had(event.had_by(row.path))
                    self.set(what="event")
                    over = {row.wait_id: row.settled(SettledBy.ANSWER, event.value, self.now)}
                    self._set_waits(over, what="event", wakes=True)
                    given += 1
        return given

    def signal(self, mark: SignalMark) -> SignalRow:
        """Return the row of a signal as it stands."""
        return as_told(self._signals.get(mark.number) or self._read.signal(mark), mark)

    def _row(self, mark: WaitMark) -> WaitRow:
        return self._rows.get(mark.wait_id) or self._read.wait(mark)

    def set_aside(self, epoch: int, reason: str, occasion: str = "") -> bool:
        if not self.exists or self.standing.epoch != epoch or self.row.status.is_final:
            return False
        self.set_row(what="set aside", wakes=True, lease=None, needs_repair=reason)
        if occasion:
            self._notice((NoticeRow(occasion=occasion),))
        return True

    # -- notices ----------------------------------------------------------------

    def _notice(self, tells: Sequence[NoticeRow]) -> None:
        """Write the notices that an act on the run means."""
        standing, rows = self.standing, []
        number = standing.noticed
        for given in tells:
            for row in rows_told(standing.told or {}, given, self.now):
                number = max(self._read.tick(), number + 1)
                rows.append(_replace(row, number=number, sequence=standing.row.checkpoints))
        if rows:
            self.set(what="notices", notices=(*standing.notices, *rows), noticed=number)

    def take_notices(self, notifiers: Collection[str], until: timedelta, most: int) -> list[NoticeRow]:
        """Take notices that are due, the longest first."""
        rows = self.standing.notices if self.exists else ()
        due = [row for row in rows if is_due_notice(row, notifiers, self.now)]
        due.sort(key=lambda row: (row.due_at, row.number))
        held = {row.number: taken(row, self.now + until) for row in due[:most]}
        if held:
            self.set(what="notices", notices=tuple(held.get(row.number, row) for row in rows))
        return [_replace(row, run_id=self.run_id) for row in held.values()]

    def change_notice(self, row: NoticeRow, to: NoticeRow | None) -> bool:
        """Replace how a notice stands, or remove it; false if it was tried since."""
        rows = self.standing.notices if self.exists else ()
        there = next((one for one in rows if one.number == row.number), None)
        if there is None or not is_same_try(row, there):
            return False
        kept = None if to is None else _replace(to, run_id="", number=row.number)
        changed = (kept if one is there else one for one in rows)
        self.set(what="notices", notices=tuple(one for one in changed if one is not None))
        return True

    def mark(self, was: str | None, mark: str | None) -> bool:
        """Replace the mark that keeps workers from an unfinished run, if that is still `was`."""
        if not self.exists or self.row.status.is_final or self.row.needs_repair != was:
            return False
        if mark is not None and self.row.stop_request is not None:
            return False
        self.set_row(what="marked" if mark is not None else "unmarked", wakes=True, needs_repair=mark)
        return True

    def fence(self, by: int) -> bool:
        if not self.exists or self.row.status in (Status.COMPLETED, Status.CANCELLED):
            return False
        row = _replace(self.row, lease=None)
        self.set(what="fenced", wakes=True, row=row, epoch=self.standing.epoch + by)
        return True

    def ack(self) -> None:
        if self.exists and self.row.acked_at is None:
            self.set_row(what="acknowledged", acked_at=self.now)

    # -- waits ------------------------------------------------------------------

    def wait(self, wait_id: str) -> WaitRow | None:
        """Return the row of a wait of this run as it stands."""
        if wait_id in self._rows:
            return self._rows[wait_id]
        mark = next((m for m in self._waits() if m.wait_id == wait_id), None) or self._told.wait(wait_id)
        return None if mark is None else self._read.wait(mark)

    def all_waits(self) -> list[WaitMark]:
        """Return the marks of all waits of the run."""
        return [*self._told.waits(), *self._waits()]

    def _waits(self) -> Sequence[WaitMark]:
        return self.standing.waits if self.exists else ()

    def settle(
        self,
        wait_id: str,
        by: SettledBy,
        answer: bytes | None,
        token_hash: bytes | None,
        at: datetime | None = None,
        details: bytes | None = None,
        was: bytes | None = None,
    ) -> bool:
        """Give an open wait its answer; true if this did it."""
        wait = settled(self.wait(wait_id), by, answer, token_hash, at or self.now, details, was)
        if wait is None:
            return False
        is_ours = wait.settled_by is by
        self._set_waits({wait_id: wait}, what="answered" if is_ours else "due", wakes=True)
        return is_ours

    def fire(self) -> None:
        """Settle what is due."""
        due = [m for m in self._waits() if m.due_at is not None and m.due_at <= self.now]
        rows = [self._rows.get(mark.wait_id) or self._read.wait(mark) for mark in due]
        if rows:
            over = {row.wait_id: row.settled(SettledBy.CLOCK, None, self.now) for row in rows}
            self._set_waits(over, what="due", wakes=True)

    def change_wait(
        self, wait_id: str, change: WaitChange, was: bytes | None = None
    ) -> tuple[bool, WaitRow | None]:
        """Change an open wait; says whether it did, and how it is now."""
        wait = self.wait(wait_id)
        new = None if wait is None else changed(wait, change, was)
        if new is None:
            return False, wait
        if new != wait:
            self._set_waits({wait_id: new}, what="wait changed")
        return True, new

    def replace_waits(self, rows: dict[str, WaitRow]) -> None:
        """Give waits other rows that mean the same."""
        if rows:
            self._set_waits(rows, what="recoded")

    def _open(self, waits: Sequence[WaitRow]) -> None:
        known = {mark.wait_id for mark in self.standing.waits}
        opened = []
        for wait in waits:
            if wait.wait_id in known or self._told.wait(wait.wait_id) is not None:
                raise wait_is_taken(wait.wait_id)
            known.add(wait.wait_id)
            mark = WaitMark(wait.wait_id, self.place, self._read.tick(), wait.kind, heard=self._heard(wait))
            opened.append(self._marked(mark, wait))
            self._rows[wait.wait_id] = wait
            self.opened.append(wait.wait_id)
            self.marks.append(names.wait_prefix(wait.wait_id) + names.quoted(self.run_id))
        self.set(what="record", waits=(*self.standing.waits, *opened))

    def _heard(self, wait: WaitRow) -> str:
        """Return the name under which events find a wait; empty if none is to."""
        wanted = Wanted.of(wait.topic) if wait.status is WaitStatus.OPEN else None
        if wanted is None:
            return ""
        name = names.topic_name(wanted, self.run_id, self.place, wait.wait_id)
        self.listening[name] = wanted
        self.marks.append(name)
        return name

    def _close(self, wait_ids: Sequence[str] | None) -> None:
        """Close these waits, or all."""
        rows: dict[str, WaitRow] = {}
        wanted = None if wait_ids is None else set(wait_ids)
        for mark in self.standing.waits:
            if mark.status is not WaitStatus.CLOSED and (wanted is None or mark.wait_id in wanted):
                row = self._rows.get(mark.wait_id) or self._read.wait(mark)
                rows[mark.wait_id] = _replace(row, status=WaitStatus.CLOSED)
        if rows:
            self._set_waits(rows, what="record")

    def _set_waits(self, rows: dict[str, WaitRow], *, what: str, wakes: bool = False) -> None:
        self._rows |= rows
        marks = tuple(
            self._marked(mark, rows[mark.wait_id]) if mark.wait_id in rows else mark
            for mark in self.standing.waits
        )
        for wait_id in rows.keys() - {mark.wait_id for mark in marks}:
            over = self._told.wait(wait_id)
            assert over is not None
            self._told.set_wait(self._marked(over, rows[wait_id]))
        self.set(what=what, wakes=wakes, waits=marks)

    def _marked(self, mark: WaitMark, row: WaitRow) -> WaitMark:
        is_ours = row.status is WaitStatus.OPEN and not row.scheduler
        token = "" if row.token_hash is None else names.short(row.token_hash)
        if token and token != mark.token:
            self.marks.append(names.token_prefix(token) + names.quoted(self.run_id))
        if mark.heard and row.status is not WaitStatus.OPEN:
            self._unheard.append(mark.heard)
        return WaitMark(
            wait_id=mark.wait_id,
            place=self.place,
            number=mark.number,
            kind=row.kind,
            status=row.status,
            due_at=row.due_at if is_ours else None,
            settled_at=row.settled_at if row.status is WaitStatus.SETTLED else None,
            token=token,
            heard=mark.heard if row.status is WaitStatus.OPEN else "",
        )

    # -- whole runs ---------------------------------------------------------------

    def erase(self, tombstone: Tombstone) -> None:
        """Leave nothing of the run but what is told of it."""
        standing = self.standing
        row = RunRow(
            run_id=self.run_id,
            flow_id=standing.row.flow_id,
            flow_version="",
            flow_hash="",
            parent_run_id=None,
            status=standing.row.status,
            created_at=standing.row.created_at,
            ended_at=None,
            checkpoints=0,
            lease=None,
        )
        order = self._read.tick()
        self.what, self._rows, self._records = "erased", {}, []
        self._told = Marks(None, self._read.page)
        self._standing = Standing(
            row=row,
            epoch=standing.epoch,
            head="",
            order=standing.order,
            claimed_at=0,
            begins=standing.begins,
            gone=True,
            erased=tombstone,
            erased_order=order,
        )
        self.marks.append(names.erased_name(order, row.flow_id, self.run_id))
        self.marks.append(names.unfinished_name(self.run_id, self.place))

    def forget(self) -> bool:
        """Free the id of a run that was removed."""
        if self._standing is None or self._standing.erased is None:
            return False
        self.what = "forgotten"
        self._standing = _replace(self._standing, erased=None)
        return True

    def restore(self, row: RunRow, records: Sequence[Record], *, begins: int, is_last: bool) -> None:
        """Take in records of a run that comes from another store; it is there with the last of them."""
        before = self._standing
        keyframe = before.keyframe if before is not None and begins < self.place else 0
        if any(r.keyframe for r in records):
            keyframe = self.place
        self.what = "restored"
        self._records = list(records)
        self._told = Marks(None, self._read.page)
        self._standing = Standing(
            row=_replace(row, lease=None, checkpoints=records[-1].sequence),
            epoch=0 if before is None else before.epoch,  # an owner may be asleep since before it was erased
            head=records[-1].checkpoint_id,
            order=self._read.tick(),
            claimed_at=row.checkpoints,
            keyframe=keyframe,
            begins=begins,
            gone=not is_last,
            erased=before.erased if before is not None and not is_last else None,
        )
        if is_last:
            self._wakes = True
            self.marks.append(names.index_name(self._standing.order, row.flow_id, row.run_id))
            self.marks += _names_of_origin(row, self._standing.order)

    def restore_waits(self, waits: Sequence[WaitRow]) -> None:
        if waits:
            self._open(waits)

    # -- the entry --------------------------------------------------------------

    def entry(self) -> Entry:
        """Return the entry; `marks` are complete then."""
        standing = self._standing
        assert standing is not None
        live = standing.live
        if self._wakes or (needs_driving(standing) and not live):
            live = names.live_name(self.run_id, self.place)
            self.marks.append(live)
        waiting = standing.waiting
        if not needs_driving(standing):
            live = ""
        is_wanted, due = waits_at(standing)
        if not is_wanted:
            waiting = ""
        elif not waiting or names.waiting_due(waiting) != to_int(due):
            waiting = names.waiting_name(due, self.run_id, self.place)
            self.marks.append(waiting)
        telling = standing.telling
        is_wanted, due = tells_at(standing) if standing.notices or telling else (False, None)
        if not is_wanted:
            telling = ""
        elif not telling or names.waiting_due(telling) != to_int(due):
            telling = names.notices_name(due, self.run_id, self.place)
            self.marks.append(telling)
        if telling != standing.telling:
            self._standing = standing = _replace(standing, telling=telling)
        tree, pages = self._written(standing)
        has_more = tree or standing.tags or standing.attributes or standing.row.started_by or standing.undoing
        is_told = standing.told or standing.notices
        if live != standing.live or waiting != standing.waiting or tree != standing.tree:
            waits = standing.waits if tree is None else tuple(filter(_is_unclosed, standing.waits))
            self._standing = standing = _replace(standing, live=live, waiting=waiting, tree=tree, waits=waits)
        return Entry(
            standing=standing,
            records=tuple(self._records),
            keyframe_before=self.before.keyframe if self.before is not None else 0,
            waits=tuple(self._rows.values()),
            signals=tuple(self._signals.values()),
            pages=pages,
            version=2 if has_more or is_told else 1,
            what=self.what,
            audit=tuple(self._audit),
        )

    def _written(self, standing: Standing) -> tuple[Ref | None, tuple[Page, ...]]:
        """Return the run's tree, with the waits that are over if there is one: 0.1.0 knows of none."""
        for mark in standing.waits if not self._told.is_empty else ():
            if not _is_unclosed(mark):
                self._told.set_wait(mark)
        return self._told.written(self.place)

    def stale_marks(self) -> list[str]:
        """Return the names that are no longer wanted once the entry is there."""
        before, standing = self.before, self._standing
        stale = self._unheard
        if before is None:
            return stale
        assert standing is not None
        if before.live and before.live != standing.live:
            stale.append(before.live)
        if before.waiting and before.waiting != standing.waiting:
            stale.append(before.waiting)
        if before.telling and before.telling != standing.telling:
            stale.append(before.telling)
        return stale


def _is_unclosed(mark: WaitMark) -> bool:
    return mark.status is not WaitStatus.CLOSED


def needs_driving(standing: Standing) -> bool:
    """True if the run has an owner, or is due."""
    row = standing.row
    if standing.gone:
        return False
    if row.lease is not None:
        return True
    if row.status.is_final:
        return False
    if row.stop_request is not None or row.status is Status.RUNNING:
        return True
    return any(mark.status is WaitStatus.SETTLED for mark in standing.waits)


def waits_at(standing: Standing) -> tuple[bool, datetime | None]:
    """Return whether the run has waits and no owner, and when the first wait of a halted one is due."""
    row = standing.row
    if standing.gone or row.status not in _LEAVES_WAITS:
        return False, None
    unclosed = [mark for mark in standing.waits if _is_unclosed(mark)]
    if row.status is not Status.HALTED:
        return bool(unclosed), None
    return True, min((mark.due_at for mark in unclosed if mark.due_at is not None), default=None)


def tells_at(standing: Standing) -> tuple[bool, datetime | None]:
    """Return whether the run has notices that were not sent, and when the first of them is due."""
    unsent = () if standing.gone else [row for row in standing.notices if row.state is not NoticeState.SENT]
    return bool(unsent), min((row.due_at for row in unsent if row.due_at is not None), default=None)


def is_due_notice(row: NoticeRow, notifiers: Collection[str], now: datetime) -> bool:
    """True if a notice is to be sent to one of these."""
    return row.due_at is not None and row.due_at <= now and row.notifier in notifiers


def index_of(standing: Standing) -> str:
    """Return the name under which a run is listed."""
    return names.index_name(standing.order, standing.row.flow_id, standing.row.run_id)


def started_of(standing: Standing) -> str:
    """Return the name under which the run that started this one lists it; empty without one."""
    start, run_id = standing.row.started_by, standing.row.run_id
    return "" if start is None else names.started_name(start.run, standing.order, run_id)


def names_of(standing: Standing, waits: Iterable[WaitMark]) -> list[str]:
    """Return the names that lead to a run, which has these waits."""
    row, run = standing.row, names.quoted(standing.row.run_id)
    found = [index_of(standing), standing.live, standing.waiting, standing.telling]
    found += _names_of_origin(row, standing.order)
    for mark in waits:
        found.append(names.wait_prefix(mark.wait_id) + run)
        if mark.token:
            found.append(names.token_prefix(mark.token) + run)
        found.append(mark.heard)
    return [name for name in found if name]


def _names_of_origin(row: RunRow, order: int) -> list[str]:
    """Return the names under which a run is found by what it goes on from, or by who started it."""
    found = []
    if row.parent_run_id is not None:
        found.append(names.child_name(row.parent_run_id, row.run_id, row.forked_at))
    if row.started_by is not None:
        found.append(names.started_name(row.started_by.run, order, row.run_id))
    return found


def unknown(run_id: str) -> RunNotFound:
    return RunNotFound(f"there is no run {run_id!r}.", fix="Look with: everstep runs")
