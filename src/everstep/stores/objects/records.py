"""The records in the logs of runs: reading, trimming and replacing them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from everstep.codec.records import LOST, digest_of
from everstep.engine.trimming import check_trim
from everstep.errors import StateCorrupted
from everstep.on_demand import on_demand
from everstep.ports.store import Recoded, RecodedWait, StoredRecord
from everstep.stores.objects import names
from everstep.stores.objects.drafts import Draft, unknown
from everstep.stores.objects.entries import Entry, Record, Standing
from everstep.stores.objects.lines import Lines
from everstep.stores.objects.logs import RunLine

if TYPE_CHECKING:
    from everstep.stores.objects.audit import ObjectAudit
else:
    ObjectAudit = on_demand("everstep.stores.objects.audit:ObjectAudit")

_replace = msgspec.structs.replace
_COMING = timedelta(minutes=10)
"""How long a run that is being forked may take until it is there."""


class Records:
    """The records of all runs of a bucket."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def get(self, run_id: str, first: int, last: int | None) -> list[StoredRecord]:
        """Return a run's own records between two sequences, in order; trimmed ones as stubs."""
        while True:
            line = self._lines.fresh(run_id)
            standing = line.standing
            if standing is None:
                return []
            newest, oldest = standing.row.checkpoints, standing.row.first
            begins, ends = max(first, oldest), newest if last is None else min(last, newest)
            found = self._between(line, begins, ends) if begins <= ends else []
            if LOST not in [record.body for record in found]:
                return found
            # The run may have been trimmed or erased while it was read.
            if self._lines.fresh(run_id).standing == standing:
                return found

    def _between(self, line: RunLine, first: int, last: int) -> list[StoredRecord]:
        assert line.head is not None
        row = line.head.standing.row
        begins = line.head.standing.begins if first == row.first else self._place_at(line, first)
        ends = line.head.place if last == row.checkpoints else self._place_at(line, last)
        groups: Sequence[Sequence[Record] | None] | None = self._lines.logs.records(line, begins, ends)
        if groups is None:
            entries = self._lines.each(partial(self._readable, line), range(begins, ends + 1))
            groups = [None if entry is None else entry.records for entry in entries]
        records = [r for group in groups if group for r in group if first <= r.sequence <= last]
        trimmed = row.trimmed_before
        found = {r.sequence: r.stored() if r.sequence >= trimmed else _shown(r, trimmed) for r in records}
        if len(found) < last - first + 1 and None in groups:
            # What cannot be read is returned as such: the fold says what that means.
            lost = {k: StoredRecord(k, "", False, LOST) for k in range(first, last + 1)}
            found = lost | found
        return [found[k] for k in sorted(found)]

    def _readable(self, line: RunLine, place: int) -> Entry | None:
        try:
            return self._lines.logs.at(line, place)
        except StateCorrupted:
            return None

    def _place_at(self, line: RunLine, sequence: int) -> int:
        """Return the place of a record."""
        assert line.head is not None
        low, high = line.head.standing.begins, line.head.place
        guess = low + sequence - line.head.standing.row.first
        while low < high:
            middle = guess if low <= guess < high else (low + high) // 2
            guess = 0
            if self._count_at(line, middle) >= sequence:
                high = middle
            else:
                low = middle + 1
        return low

    def _count_at(self, line: RunLine, place: int) -> int:
        if place not in line.counts:
            entry = self._readable(line, place)
            if entry is None:
                return self._count_at(line, place - 1) if place > 1 else 0
            records = entry.records
            line.counts[place] = records[-1].sequence if records else entry.standing.row.checkpoints
        return line.counts[place]

    def checkpoint_at(self, run_id: str, sequence: int) -> str | None:
        """Return the id of a run's own checkpoint."""
        line = self._lines.known(run_id)
        standing = line.standing
        if standing is None or not standing.row.first <= sequence <= standing.row.checkpoints:
            return None
        entry = self._readable(line, self._place_at(line, sequence))
        if entry is None:
            return None
        return next((r.checkpoint_id for r in entry.records if r.sequence == sequence), None)

    def tail(self, run_id: str, at: int | None) -> list[StoredRecord]:
        """Return the newest keyframe (not after `at`) and what follows it."""
        line = self._lines.fresh(run_id)
        standing = line.standing
        if standing is None:
            return []
        row = standing.row
        last = row.checkpoints if at is None else min(at, row.checkpoints)
        if last < row.first:
            return []
        first = self._keyframe(line, last) if last >= row.trimmed_before else None
        return self._between(line, first or row.first, last)

    def _keyframe(self, line: RunLine, last: int) -> int | None:
        """Return the sequence of the newest keyframe that is not after another."""
        assert line.head is not None
        place, standing = line.head
        place = standing.keyframe if last == standing.row.checkpoints else self._place_at(line, last)
        while place:
            entry = self._readable(line, place)
            if entry is None:
                place -= 1
                continue
            found = [r.sequence for r in entry.records if r.keyframe and r.sequence <= last]
            if found:
                return found[-1] if found[-1] >= standing.row.trimmed_before else None
            place = entry.keyframe_before
        return None

    # -- trimming -------------------------------------------------------------------

    def trim(self, run_id: str, before: int) -> int:
        """Turn every record before a keyframe into a stub; the log says so first."""
        trimmed = self._lines.write(run_id, lambda draft: self._trim(draft, before))
        if trimmed:
            self.finish(run_id)
        return trimmed

    def _trim(self, draft: Draft, before: int) -> int:
        row = draft.row
        line = self._lines.known(draft.run_id)
        is_there = max(row.first, row.trimmed_before) <= before <= row.checkpoints
        is_keyframe = is_there and any(r.keyframe for r in self._between(line, before, before))
        if is_there and not is_keyframe and self._lines.fresh(draft.run_id).standing is None:
            raise unknown(draft.run_id)  # it was erased while it was read
        check_trim(
            draft.run_id,
            before=before,
            is_keyframe=is_keyframe,
            oldest_fork=self.oldest_fork(draft),
            pinned=row.pinned,
        )
        trimmed = before - max(row.first, row.trimmed_before)
        if trimmed:
            draft.set_row(what="trimmed", trimmed_before=before)
            draft.marks.append(names.unfinished_name(draft.run_id, draft.place))
        return trimmed

    def oldest_fork(self, draft: Draft) -> int | None:
        """Return the oldest checkpoint that a fork goes on from."""
        found = [at for _, at in self.children(draft) if at is not None]
        return min(found, default=None)

    def children(self, draft: Draft) -> list[tuple[str, int | None]]:
        """Return the runs that have this one as their parent; also one that is only just being admitted."""
        if not draft.standing.forked:
            return []
        bucket, found = self._lines.bucket, []
        for listed in bucket.listed(names.child_prefix(draft.run_id)):
            run_id, at = names.read_child(listed.name)
            standing = self._lines.fresh(run_id).standing
            is_there = standing is not None and standing.row.parent_run_id == draft.run_id
            if is_there or bucket.now() - listed.modified_at < _COMING:
                found.append((run_id, at))
        return found

    def finish(self, run_id: str) -> int:
        """Take out the bytes of what was trimmed or removed; returns of how many places."""
        line = self._lines.fresh(run_id)
        if line.head is None:
            return 0
        standing, last = line.head.standing, line.head.place
        marks = self._lines.bucket.names(f"{names.UNFINISHED}{names.quoted(run_id)}~")
        if standing.gone:
            ObjectAudit(self._lines).keep_of(run_id, last)
            places = range(1, last)
            done = sum(self._lines.each(lambda place: self._empty(line, place, standing), places))
        else:
            before = standing.row.trimmed_before
            places = range(standing.begins, self._place_at(line, before) + 1 if before else 0)
            done = sum(self._lines.each(lambda place: self._strip(line, place, before), places))
        self._lines.bucket.delete([m for m in marks if names.read_unfinished(m).place <= last])
        return done

    def _empty(self, line: RunLine, place: int, standing: Standing) -> int:
        """Leave a place taken, and nothing there."""
        return self._lines.logs.rewrite(
            line, place, lambda entry: Entry(nonce=entry.nonce, standing=standing)
        )

    def _strip(self, line: RunLine, place: int, before: int) -> int:
        def stripped(entry: Entry) -> Entry:
            return _replace(
                entry,
                records=tuple(
                    Record(r.sequence, r.checkpoint_id, False, b"", digest_of(r.body))
                    if r.sequence < before and r.digest is None
                    else r
                    for r in entry.records
                ),
            )

        return self._lines.logs.rewrite(line, place, stripped)

    # -- other bytes that mean the same --------------------------------------------------

    def recode(self, run_id: str, records: Sequence[Recoded], waits: Sequence[RecodedWait]) -> int:
        """Replace the bytes of records and waits, each while it says what was read."""
        line = self._lines.fresh(run_id)
        standing = line.standing
        if standing is None:
            raise unknown(run_id)
        row = standing.row
        wanted: dict[int, list[Recoded]] = {}
        for new in records:
            if max(row.first, row.trimmed_before) <= new.sequence <= row.checkpoints:
                wanted.setdefault(self._place_at(line, new.sequence), []).append(new)
        replaced = sum(self._lines.each(lambda item: self._recode_at(line, item[0], item[1]), wanted.items()))
        return replaced + (self._lines.write(run_id, lambda d: _recode_waits(d, waits)) if waits else 0)

    def _recode_at(self, line: RunLine, place: int, records: Sequence[Recoded]) -> int:
        count = 0

        def recoded(entry: Entry) -> Entry:
            nonlocal count
            count, kept = 0, []
            by_sequence = {new.sequence: new for new in records}
            for old in entry.records:
                new = by_sequence.get(old.sequence)
                if new is not None and _means_the_same(old, new):
                    count += 1
                    kept.append(_replace(old, body=bytes(new.body)))
                else:
                    kept.append(old)
            return _replace(entry, records=tuple(kept))

        self._lines.logs.rewrite(line, place, recoded)
        return count


def _means_the_same(old: Record, new: Recoded) -> bool:
    is_there = old.digest is None and old.checkpoint_id == new.checkpoint_id
    return is_there and digest_of(old.body) == digest_of(new.body)


def _recode_waits(draft: Draft, waits: Sequence[RecodedWait]) -> int:
    rows = {}
    for new in waits:
        row = draft.wait(new.wait_id)
        if row is not None and (row.details, row.answer) == new.was:
            rows[new.wait_id] = _replace(row, details=new.details, answer=new.answer)
    draft.replace_waits(rows)
    return len(rows)


def _shown(record: Record, trimmed_before: int) -> StoredRecord:
    if record.sequence < trimmed_before and record.digest is None:
        return StoredRecord(record.sequence, record.checkpoint_id, False, b"", digest_of(record.body))
    return record.stored()
