"""Runs of a bucket that are pinned, removed, or come whole from another store. Apart from what every run
needs, as few are pinned, removed or moved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Protocol, TypeVar

import msgspec

from everstep.engine.trimming import judge_erasure
from everstep.errors import StateCorrupted
from everstep.model.acts import AuditRow
from everstep.model.commits import NoticeRow
from everstep.model.leases import Held, LanePause
from everstep.model.removal import Erasure, Removal, Tombstone
from everstep.ports.restoring import Restored, WholeRun, judge_there, token_is_taken
from everstep.ports.retention import TombstoneFilter
from everstep.ports.store import StoredRecord, Verdict
from everstep.stores.objects import names
from everstep.stores.objects.drafts import Draft, index_of, is_due_notice, names_of, started_of
from everstep.stores.objects.entries import Record, Standing, read, sealed
from everstep.stores.objects.lines import Lines
from everstep.stores.objects.logs import RunLine
from everstep.stores.objects.records import Records

T = TypeVar("T")
_removals = msgspec.msgpack.Decoder(Removal)
_CHUNK = 8 << 20
"""How many bytes of records are put into one object, at least one record."""
_OLD = timedelta(days=1)
"""After this long, a name that leads nowhere is taken for the rest of an interrupted call."""
_PAGE = 1000
_AT_ONCE = 32


class BaseJudge(Protocol):
    """Says why a fork cannot go on from a record of its parent; none if it can."""

    def __call__(self, *, has_parent: bool, base: str | None) -> Verdict | None: ...


class RunKeeping:
    """What is asked about whole runs."""

    def __init__(self, lines: Lines, records: Records) -> None:
        self._lines = lines
        self._records = records

    # -- forks ------------------------------------------------------------------

    def pin_base(self, parent_id: str, run_id: str, at: int, judge: BaseJudge) -> Verdict | None:
        """Keep the base of a fork that is about to be admitted; returns why it cannot be, as `judge` says.

        The fork is named first, and the parent's log is written to in any case: trimming or removing the
        parent at the same time either finds its place taken, or was first.
        """
        if self._lines.fresh(parent_id).standing is None:
            return judge(has_parent=False, base=None)

        def work(parent: Draft) -> Verdict | None:
            base = self._whole_at(parent, at) if parent.exists else None
            refused = judge(has_parent=parent.exists, base=base)
            if refused is None:
                self._lines.bucket.mark([names.child_name(parent_id, run_id, at)])
                parent.set(what="forked", forked=True)
            return refused

        return self._lines.write(parent_id, work)

    def _whole_at(self, draft: Draft, sequence: int) -> str | None:
        """Return the id of a run's own record; none if it is not there, or a stub."""
        row = draft.row
        if not max(row.first, row.trimmed_before) <= sequence <= row.checkpoints:
            return None
        is_newest = sequence == row.checkpoints
        return draft.standing.head if is_newest else self._records.checkpoint_at(draft.run_id, sequence)

    # -- removing -----------------------------------------------------------------

    def erase(
        self, run_id: str, head: int, reason: str, summary: bytes | None, audit: AuditRow | None = None
    ) -> Erasure:
        """Remove a run: its log says so first, then its bytes are taken out."""
        was: Standing | None = None
        leading: list[str] = []

        def work(draft: Draft) -> Erasure:
            nonlocal was, leading
            was = draft.standing if draft.exists else None
            leading = names_of(was, draft.all_waits()) if was is not None else []
            held = self._lines.held(self._lines.known(run_id), was) if was is not None else None
            verdict = judge_erasure(
                is_there=was is not None,
                checkpoints=was.row.checkpoints if was is not None else 0,
                head=head,
                lease=held,
                now=draft.now,
                has_forks=was is not None and bool(self._records.children(draft)),
                pinned=was.row.pinned if was is not None else None,
            )
            if was is not None and verdict is Erasure.ERASED:
                draft.erase(
                    Tombstone(
                        run_id=run_id,
                        flow_id=was.row.flow_id,
                        created_at=was.row.created_at,
                        erased_at=draft.now,
                        reason=reason,
                        summary=summary,
                    )
                )
                draft.tell(audit)
            return verdict

        verdict = self._lines.write(run_id, work)
        if verdict is Erasure.ERASED and was is not None:
            beat = names.beat_name(run_id, was.epoch)
            self._lines.bucket.delete([*leading, beat])
            self._records.finish(run_id)
        return verdict

    def tombstone(self, run_id: str) -> Tombstone | None:
        head = self._lines.fresh(run_id).head
        return None if head is None else head.standing.erased

    def tombstones(self, wanted: TombstoneFilter) -> list[Tombstone]:
        """Return what is left of erased runs, those erased last first."""
        after = ""
        if wanted.before is not None:
            head = self._lines.fresh(wanted.before).head
            if head is None or not head.standing.erased_order:
                return []
            standing = head.standing
            after = names.erased_name(standing.erased_order, standing.row.flow_id, wanted.before)
        mark = None if wanted.flow_id is None else names.flow_mark(wanted.flow_id)
        found: list[Tombstone] = []
        for name, flow, run_id in self._erased(after):
            if len(found) >= wanted.limit:
                break
            standing_there = self._lines.fresh(run_id).head if mark in (None, flow) else None
            if standing_there is not None and _erased_name(standing_there.standing) == name:
                tombstone = standing_there.standing.erased
                found += [] if tombstone is None else [tombstone]
        return found

    def _erased(self, after: str) -> Iterator[tuple[str, str, str]]:
        while page := self._lines.bucket.names(names.ERASED, after=after, limit=_PAGE):
            after = page[-1]
            yield from ((name, *names.read_index(name)) for name in page)

    def forget(self, run_ids: Sequence[str]) -> int:
        """Free the ids of removed runs."""
        return sum(self._lines.each(self._forget, run_ids))

    def _forget(self, run_id: str) -> bool:
        head = self._lines.fresh(run_id).head
        done = self._lines.write(run_id, lambda draft: draft.forget())
        if done and head is not None:
            self._lines.bucket.delete([_erased_name(head.standing)])
        return done

    def note(self, removal: Removal) -> None:
        data = sealed(msgspec.msgpack.encode(removal))
        while not self._lines.bucket.create(names.removal_name(self._lines.tick()), data):
            continue

    def removals(self, limit: int, before: int | None) -> list[tuple[int, Removal]]:
        after = "" if before is None else names.removal_name(before)
        found = self._lines.bucket.names(names.REMOVALS, after=after, limit=limit)
        kept = self._lines.each(self._lines.bucket.get, found)
        return [
            (names.removal_number(name), read(_removals, there.data, name))
            for name, there in zip(found, kept, strict=True)
            if there is not None
        ]

    def tidy(self, limit: int) -> int:
        """Finish what was cut off, and remove names that lead nowhere."""
        done = 0
        unfinished = {names.read_unfinished(n).run_id for n in self._lines.bucket.names(names.UNFINISHED)}
        for run_id in sorted(unfinished)[:limit]:
            self._records.finish(run_id)
            done += 1
        for prefix in (names.INDEX, names.LIVE, names.WAITING, names.STARTED, names.NOTICES):
            done += self._sweep(prefix, limit - done)
        return done

    def _sweep(self, prefix: str, limit: int) -> int:
        oldest, bucket = self._lines.bucket.now() - _OLD, self._lines.bucket
        old = [listed.name for listed in bucket.listed(prefix) if listed.modified_at < oldest]
        lost: list[str] = []
        for name in old:
            if len(lost) >= limit:
                break
            if not self._leads_somewhere(prefix, name):
                lost.append(name)
        if lost:
            bucket.delete(lost)
        return len(lost)

    def _leads_somewhere(self, prefix: str, name: str) -> bool:
        """True if a run stands by a name, or cannot be read: what can be found of it stays."""
        try:
            return self._is_wanted(prefix, name)
        except StateCorrupted:
            return True

    def _is_wanted(self, prefix: str, name: str) -> bool:
        if prefix == names.INDEX:
            standing = self._lines.fresh(names.read_index(name)[1]).standing
            return standing is not None and index_of(standing) == name
        if prefix == names.STARTED:
            standing = self._lines.fresh(names.run_behind(name)).standing
            return standing is not None and started_of(standing) == name
        if prefix == names.NOTICES:
            standing = self._lines.fresh(names.run_with_notices(name)).standing
            return standing is not None and standing.telling == name
        is_live = prefix == names.LIVE
        marker = names.read_live(name) if is_live else names.read_waiting(name)
        standing = self._lines.fresh(marker.run_id).standing
        return standing is not None and name == (standing.live if is_live else standing.waiting)

    # -- restoring ------------------------------------------------------------------

    def restore(self, run: WholeRun) -> Restored:
        """Take in a run that another store kept: a large one in several objects, and the last shows it."""
        for flow_hash, blueprint in run.blueprints:
            self._lines.keep_flow(flow_hash, blueprint)
        chunks = list(_chunks(run.records))
        while True:
            judged = self._restore_all(run, chunks)
            if judged is not None:
                return judged

    def _restore_all(self, run: WholeRun, chunks: Sequence[Sequence[StoredRecord]]) -> Restored | None:
        """Write chunk after chunk; none if another client wrote in between."""
        begins = 0
        for number, chunk in enumerate(chunks):
            place = begins + number if number else None
            result = self._restore_chunk(run, chunk, place, begins, is_last=number == len(chunks) - 1)
            if result is None or isinstance(result, Restored):
                return result
            begins = begins or result
        return Restored.RESTORED

    def _restore_chunk(
        self, run: WholeRun, chunk: Sequence[StoredRecord], place: int | None, begins: int, *, is_last: bool
    ) -> Restored | int | None:
        """Write some records at a place, the first ones at any, and return it; none if it is taken."""
        kept = [Record(r.sequence, r.checkpoint_id, r.keyframe, r.body, r.digest) for r in chunk]

        def work(draft: Draft) -> Restored | int | None:
            refused = self._refused(draft, run)
            if refused is not None or place not in (None, draft.place):
                return refused
            draft.restore(run.row, kept, begins=begins or draft.place, is_last=is_last)
            if is_last:
                draft.restore_waits(run.waits)
                draft.restore_inbox(run.inbox)
                draft.restore_had(run.had)
                draft.restore_labels(run.labels)
                draft.restore_told(run.told, run.notices)
                draft.tell(run.audit)
            return draft.place

        run_id = run.row.run_id
        return self._lines.write(
            run_id, work, checkpoint_at=lambda sequence: self._records.checkpoint_at(run_id, sequence)
        )

    def _refused(self, draft: Draft, run: WholeRun) -> Restored | None:
        if draft.exists:
            newest, standing = draft.row.checkpoints, draft.standing

            def id_at(sequence: int) -> str | None:
                if sequence == newest:
                    return standing.head
                return self._records.checkpoint_at(draft.run_id, sequence)

            return judge_there(run, newest, id_at)
        row = run.row
        if row.forked_at is not None:

            def judge(*, has_parent: bool, base: str | None) -> Verdict | None:
                return None if base is not None and base == run.base else Verdict.MOVED

            if self.pin_base(row.parent_run_id or "", row.run_id, row.forked_at, judge) is not None:
                return Restored.NO_BASE
        for wait in run.waits:
            if wait.token_hash is not None and self._has_token(names.short(wait.token_hash), row.run_id):
                raise token_is_taken(wait.wait_id)
        return None

    def _has_token(self, token: str, run_id: str) -> bool:
        for other in self._lines.runs_behind(names.token_prefix(token)):
            marks = [] if other == run_id else self._lines.marks_of_waits(self._lines.fresh(other))
            if any(mark.token == token for mark in marks):
                return True
        return False


def _chunks(records: Sequence[StoredRecord]) -> Iterator[list[StoredRecord]]:
    chunk: list[StoredRecord] = []
    size = 0
    for record in records:
        if chunk and size + len(record.body) > _CHUNK:
            yield chunk
            chunk, size = [], 0
        chunk.append(record)
        size += len(record.body)
    yield chunk


def _erased_name(standing: Standing) -> str:
    return names.erased_name(standing.erased_order, standing.row.flow_id, standing.row.run_id)


def pin(draft: Draft, *, reason: str | None, head: int | None) -> bool:
    """Pin a run, or let go of it; false if it is not there, or not at this checkpoint."""
    if not draft.exists or not draft.is_at(head):
        return False
    if draft.row.pinned != reason:
        draft.set_row(what="pinned" if reason is not None else "unpinned", pinned=reason)
    return True


# -- what is paused: a run says so in its log, flows and groups have an object each as long as they are -----

_lanes = msgspec.msgpack.Decoder(LanePause)


def pause_lane(lines: Lines, lane: LanePause) -> bool:
    """Pause a flow or a group."""
    return lines.bucket.create(names.pause_name(lane.flow_id, lane.group), _bytes(lane))


def unpause_lane(lines: Lines, flow_id: str, group: str) -> bool:
    """Let a flow or a group go on."""
    name = names.pause_name(flow_id, group)
    is_there = lines.bucket.get(name) is not None
    lines.bucket.delete([name])
    return is_there


def held(lines: Lines, run_ids: Collection[str]) -> Held:
    """Say which of these runs are paused, and which flows and groups.

    Of a run elsewhere what its owner last saw of the log counts: it sees the end with each put and renewal.
    """
    look = lines.fresh if lines.bucket.is_local else lines.known
    runs = {}
    for run_id in run_ids:
        standing = look(run_id).standing
        if standing is not None and standing.row.is_paused:
            runs[run_id] = standing.row.needs_repair or ""
    found = [(name, lines.bucket.get(name)) for name in lines.bucket.names(names.PAUSES)]
    return Held(runs, tuple(read(_lanes, one.data, name) for name, one in found if one is not None))


def _bytes(lane: LanePause) -> bytes:
    return sealed(msgspec.msgpack.encode(lane))


# -- notices: each run has its own, and a name leads to it while some were not sent --------------------------


def take_notices(
    lines: Lines, notifiers: Collection[str], hold: timedelta, limit: int, run_id: str | None
) -> list[NoticeRow]:
    """Take notices that are due, the longest first."""
    found: list[NoticeRow] = []
    now = lines.now()
    runs = [run_id] if run_id is not None else list(runs_with_notices(lines, names.notices_bound(now)))
    for k in range(0, len(runs), _AT_ONCE):
        for line in lines.each(partial(_readable, lines), runs[k : k + _AT_ONCE]):
            standing, left = line.standing, limit - len(found)
            rows = standing.notices if standing is not None and not standing.gone else ()
            if left > 0 and any(is_due_notice(row, notifiers, now) for row in rows):
                take = partial(Draft.take_notices, notifiers=notifiers, until=hold, most=left)
                found += lines.write(line.run_id, take)
    return found


def runs_with_notices(lines: Lines, bound: str) -> Iterable[str]:
    """Return the runs that have notices which were not sent, those that are due first."""
    marked = (name for name in lines.bucket.names(names.NOTICES) if name < bound)
    return dict.fromkeys(names.run_with_notices(name) for name in marked)


def _readable(lines: Lines, run_id: str) -> RunLine:
    """Return a run as it stands; one that cannot be read is as if not there, and must not stop others."""
    try:
        return lines.fresh(run_id)
    except StateCorrupted:
        return RunLine(run_id)
