"""The logs of runs: what stands at their ends, and how something is added there.

Every write to a run takes the next place of its log, and a place is taken once. So what a client believes of
a run need not be new: if another was quicker, its place is taken, and it looks and judges again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import TypeVar

import msgspec

from everstep.engine.commits import followed, judge
from everstep.errors import EverstepError, StateCorrupted, StoreUnavailable
from everstep.model.leases import Lease
from everstep.model.waits import SignalRow, WaitRow
from everstep.ports.events import Wanted
from everstep.ports.restoring import wait_is_taken
from everstep.ports.store import Commit, RunRow
from everstep.ports.system import Clock, time_for_store
from everstep.stores.objects import names
from everstep.stores.objects.bucket import Bucket
from everstep.stores.objects.drafts import Draft
from everstep.stores.objects.entries import Entry, Record, SignalMark, Standing, WaitMark, read, sealed
from everstep.stores.objects.logs import Logs, RunLine
from everstep.stores.objects.marks.marks import Marks
from everstep.stores.objects.marks.tree import Page, Ref

T = TypeVar("T")
S = TypeVar("S")
_KNOWN = 20_000
_STEPS = 4
"""How many places are tried one by one before the log is listed."""
_TRIES = 200
_AT_ONCE = 16
_PAGES = 2_000
"""Of so many entries the pages are remembered."""


class Lines:
    """The logs of all runs of a bucket."""

    def __init__(self, bucket: Bucket, clock: Clock, logs: Logs) -> None:
        self.bucket = bucket
        self.logs = logs
        self._clock = clock
        self._lines: OrderedDict[str, RunLine] = OrderedDict()
        self._last: RunLine | None = None
        self._lock = threading.Lock()
        self._pages: dict[tuple[str, int], tuple[Page, ...]] = {}
        """Those of entries that were read, by run and place: what an entry holds is never changed."""
        self._flows: set[str] = set()
        self._shapes: set[str] = set()
        self._pool: ThreadPoolExecutor | None = None

    def now(self) -> datetime:
        return time_for_store(self._clock) or self.bucket.now()

    def tick(self) -> int:
        """Return a number that rises."""
        return self.logs.numbers(1)[0]

    def each(self, work: Callable[[S], T], items: Iterable[S], *, syncs: bool = False) -> list[T]:
        """Do something for each; at once where every call waits for the network, or `syncs` a disk."""
        found = list(items)
        is_quick = self.bucket.is_local and not (syncs and self.logs.is_slow)
        if is_quick or len(found) < 2 or _is_inside(self._pool):
            return [work(item) for item in found]
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="everstep-objects")
            done = self._pool.map(work, found)
        return list(done)

    def close(self) -> None:
        """Let threads go; the renewal of leases still gets new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)

    # -- looking ------------------------------------------------------------------

    def known(self, run_id: str) -> RunLine:
        """Return what is known of a run, which may be nothing, or old."""
        last = self._last
        if last is not None and last.run_id == run_id:
            return last  # most calls are about the same run as the one before
        with self._lock:
            line = self._lines.get(run_id)
            if line is None:
                line = self._lines[run_id] = RunLine(run_id)
                if len(self._lines) > _KNOWN:
                    self._lines.popitem(last=False)
            else:
                self._lines.move_to_end(run_id)
            self._last = line
            return line

    def seen(self, run_id: str, place: int) -> RunLine | None:
        """Return what is known of a run if that is as new as a place of its log."""
        line = self._lines.get(run_id)
        return line if line is not None and line.head is not None and line.head.place >= place else None

    def fresh(self, run_id: str) -> RunLine:
        """Return what is known of a run after a look; while it is believed, without one."""
        line = self.known(run_id)
        if line.read is None or line.head is None:
            self.look(line)
        return line

    @contextmanager
    def believing(self, run_id: str) -> Iterator[None]:
        """Read each place of a run once, and look for its end no more, until this ends.

        For callers that read a run several times before they write: a write is still judged by what stands
        there, because its place is taken once.
        """
        line = self.known(run_id)
        line.read = {}
        try:
            yield
        finally:
            line.read = None

    def try_place(self, line: RunLine, place: int) -> None:
        """Begin with a place of a log that is likely to be its end, if nothing is known of it."""
        if line.head is None:
            self._see(line, place)

    def look(self, line: RunLine) -> None:
        """Find the end of a log."""
        if line.head is not None:
            for _ in range(_STEPS):
                if not self._see(line, line.head.place + 1):
                    return
        last = self.logs.last(line, line.head.place if line.head is not None else 0)
        if last:
            self.see(line, last)

    def see(self, line: RunLine, place: int) -> None:
        """Read what stands at a place that was found to be the end of a log."""
        if not self._see(line, place):
            line.move(place, self._before(line, place, str(self._missing(line, place))))

    def _see(self, line: RunLine, place: int) -> bool:
        """Take note of what stands at the end of a log, or that it cannot be read; false if nothing does."""
        try:
            entry = self.logs.at(line, place, anew=True)
        except StateCorrupted as damage:
            line.move(place, self._before(line, place, str(damage)))
            return True
        if entry is not None:
            self._take(line, place, entry)
        return entry is not None

    def _before(self, line: RunLine, place: int, why: str) -> Standing:
        """Return how a run stood before a damaged entry: with one more record, which is unreadable."""
        for earlier in range(place - 1, 0, -1):
            with suppress(StateCorrupted):
                standing = self.entry(line, earlier).standing
                if standing.gone:
                    return standing
                count = standing.row.checkpoints + 1
                row = msgspec.structs.replace(standing.row, checkpoints=count, needs_repair=why)
                return msgspec.structs.replace(standing, row=row, head="")
        raise StateCorrupted(why)

    def _take(self, line: RunLine, place: int, entry: Entry) -> None:
        for row in entry.waits:
            line.rows[row.wait_id] = (place, row)
        line.move(place, entry.standing)

    def entry(self, line: RunLine, place: int) -> Entry:
        """Return what stands at a place that was taken."""
        entry = self.logs.at(line, place)
        if entry is None:
            raise self._missing(line, place)
        return entry

    def _missing(self, line: RunLine, place: int) -> StateCorrupted:
        return StateCorrupted(f"{self._where(names.place_name(line.run_id, place))} is missing.")

    def _where(self, name: str) -> str:
        return f"{name} in {self.bucket.place}"

    def wait(self, line: RunLine, mark: WaitMark) -> WaitRow:
        """Return the row of a wait."""
        seen = line.rows.get(mark.wait_id)
        if seen is None or seen[0] != mark.place:
            entry = self.entry(line, mark.place)
            self._take(line, mark.place, entry)
            seen = line.rows.get(mark.wait_id)
            if seen is None or seen[0] != mark.place:
                raise StateCorrupted(f"wait {mark.wait_id!r} of run {line.run_id!r} is missing.")
        return seen[1]

    def signal(self, line: RunLine, mark: SignalMark) -> SignalRow:
        """Return the row of a signal as it was sent."""
        found = [row for row in self.entry(line, mark.place).signals if row.number == mark.number]
        if not found:
            raise StateCorrupted(f"signal {mark.number} of run {line.run_id!r} is missing.")
        return found[0]

    def page(self, line: RunLine, ref: Ref) -> Page:
        """Return a page of a run's tree."""
        key = (line.run_id, ref.place)
        pages = self._pages.get(key)
        if pages is None:
            pages = self.entry(line, ref.place).pages
            if len(self._pages) >= _PAGES:
                self._pages.clear()
            self._pages[key] = pages
        if ref.number >= len(pages):
            raise StateCorrupted(f"{self._where(names.place_name(line.run_id, ref.place))} lacks a page.")
        return pages[ref.number]

    def marks(self, line: RunLine) -> Marks:
        """Return what is told of a run beside how it stands."""
        standing = line.standing
        return Marks(None if standing is None else standing.tree, partial(self.page, line))

    def mark_of(self, line: RunLine, wait_id: str) -> WaitMark | None:
        """Return the mark of a wait of a run; none if it has no such wait."""
        for mark in line.standing.waits if line.standing is not None else ():
            if mark.wait_id == wait_id:
                return mark
        return self.marks(line).wait(wait_id)

    def marks_of_waits(self, line: RunLine, *, all_of_them: bool = True) -> list[WaitMark]:
        """Return the marks of a run's waits, perhaps without some that are closed."""
        found = [*line.standing.waits] if line.standing is not None else []
        return [*self.marks(line).waits(), *found] if all_of_them else found

    # -- leases that were prolonged ----------------------------------------------------

    def held(self, line: RunLine, standing: Standing) -> Lease | None:
        """Return the lease of a run as it was last prolonged."""
        lease = standing.row.lease
        if lease is None:
            return None
        found = self.bucket.get(names.beat_name(line.run_id, lease.epoch))
        if found is None:
            return lease
        try:
            beat = read(_beats, found.data, self._where(names.beat_name(line.run_id, lease.epoch)))
        except StateCorrupted:
            return lease  # its owner writes another one soon, and is fenced if it does not
        line.beat = beat if beat.owner == lease.owner else None
        return line.beat or lease

    def prolong(self, lease: Lease) -> None:
        line = self.known(lease.run_id)
        self.bucket.put(names.beat_name(lease.run_id, lease.epoch), sealed(msgspec.msgpack.encode(lease)))
        line.beat = lease

    def lease_seen(self, line: RunLine, standing: Standing) -> Lease | None:
        """Return the lease as it was last seen, without a look."""
        lease, beat = standing.row.lease, line.beat
        is_same = lease is not None and beat is not None and beat.epoch == lease.epoch
        return beat if is_same else lease

    def row(self, line: RunLine) -> RunRow | None:
        """Return the row of a run as it stands, with its lease as it was last prolonged."""
        standing = line.standing
        if standing is None:
            return None
        if standing.row.lease is None:
            return standing.row
        return msgspec.structs.replace(standing.row, lease=self.held(line, standing))

    # -- writing ------------------------------------------------------------------

    def put_steps(self, commits: Sequence[Commit]) -> bool:
        """Add plain steps of one run in the quickest way; false if they have to be judged with a look.

        They are, unless each follows the newest checkpoint that is known of the run, and changes nothing else
        of it.
        """
        line = self._lines.get(commits[0].run_id)
        if line is None or line.head is None:
            return False
        place, before = line.head
        if before.gone or before.waiting or not before.live:
            return False
        row, head, keyframe = before.row, before.head, before.keyframe
        records = []
        for commit in commits:
            if commit.run_id != line.run_id or not commit.is_plain or commit.sequence != row.checkpoints + 1:
                return False
            if (
                judge(commit, epoch=before.epoch, stop_request=row.stop_request, before=head, here=None)
                is not None
            ):
                return False
            row, head = followed(row, commit), commit.checkpoint_id
            keyframe = place + 1 if commit.keyframe else keyframe
            records.append(Record(commit.sequence, head, commit.keyframe, bytes(commit.body)))
        standing = msgspec.structs.replace(before, row=row, head=head, keyframe=keyframe)
        is_added = self.logs.add_steps(line, place + 1, standing, tuple(records))
        if is_added:
            line.move(place + 1, standing)
        return is_added

    def write(
        self,
        run_id: str,
        work: Callable[[Draft], T],
        checkpoint_at: Callable[[int], str | None] = lambda _: None,
        ticks: Iterable[int] = (),
        stale: list[str] | None = None,
    ) -> T:
        """Let `work` make the next entry of a run, and add it; again if another was quicker.

        It is judged by what stands at the end of the log: what is refused, or changes nothing, was so
        after a look. `ticks` are used up before others are. Names that lead nowhere then are added to
        `stale` for the caller to remove, if that is given.
        """
        line = self.known(run_id)
        is_fresh = line.head is None
        if is_fresh:
            self.look(line)
        reader = LineReader(self, line, checkpoint_at, ticks)
        for _ in range(_TRIES):
            place, before = line.head if line.head is not None else (0, None)
            draft = Draft(run_id, place + 1, before, self.now(), reader)
            try:
                result = work(draft)
            except EverstepError:
                if is_fresh:
                    raise
            else:
                if is_fresh and not draft.is_changed:
                    return result
                if draft.is_changed and self._add(line, draft, stale):
                    return result
            self.look(line)
            is_fresh = True
        raise StoreUnavailable(
            f"run {run_id!r} is written to by many at once.", fix="Try again.", run_id=run_id
        )

    def _add(self, line: RunLine, draft: Draft, left: list[str] | None) -> bool:
        """Write what a draft says; false if its place was taken meanwhile."""
        entry = draft.entry()
        for flow_hash, blueprint in draft.flows.items():
            self.keep_flow(flow_hash, blueprint)
        for wanted in draft.listening.values():
            self.keep_shape(wanted)
        if draft.opened:
            self.check_waits(draft)
        if draft.marks:
            self.bucket.mark(list(dict.fromkeys(draft.marks)))
        if not self.logs.add(line, draft.place, entry):
            return False
        self._take(line, draft.place, entry)
        stale = draft.stale_marks()
        if line.beat is not None:
            stale += self._stale_beat(line, draft.before, entry.standing)
        if stale and left is not None:
            left += stale
        elif stale:
            self.bucket.delete(stale)
        return True

    def _stale_beat(self, line: RunLine, before: Standing | None, after: Standing) -> list[str]:
        """Return the name of a prolonged lease that is over."""
        had, beat = before.row.lease if before is not None else None, line.beat
        if had is None or beat is None or beat.epoch != had.epoch:
            return []
        if after.row.lease is not None and after.epoch == had.epoch:
            return []
        line.beat = None
        return [names.beat_name(line.run_id, had.epoch)]

    def keep_flow(self, flow_hash: str, blueprint: bytes) -> None:
        """Keep the structure of a flow, unless it is known."""
        if flow_hash not in self._flows:
            known = KnownFlow(order=self.tick(), blueprint=blueprint)
            name = names.flow_name(flow_hash)
            self.bucket.create(name, sealed(msgspec.msgpack.encode(known)))
            self._flows.add(flow_hash)

    def keep_shape(self, wanted: Wanted) -> None:
        """Keep which fields of an event some wait goes by, unless it is known."""
        name = names.shape_name(wanted)
        if name not in self._shapes:
            self.bucket.create(name, sealed(wanted.shape.encode()))
            self._shapes.add(name)

    def flow(self, flow_hash: str) -> KnownFlow | None:
        name = names.flow_name(flow_hash)
        found = self.bucket.get(name)
        return None if found is None else read(_knowns, found.data, self._where(name))

    def check_waits(self, draft: Draft) -> None:
        """Refuse a draft that opens a wait which another run has."""
        self.each(lambda wait_id: self._check_wait(wait_id, draft.run_id), draft.opened)

    def _check_wait(self, wait_id: str, run_id: str) -> None:
        for other in self.runs_behind(names.wait_prefix(wait_id)):
            if other != run_id and self.mark_of(self.fresh(other), wait_id) is not None:
                raise wait_is_taken(wait_id)

    def runs_behind(self, prefix: str) -> Sequence[str]:
        """Return the runs that the names of a wait or token lead to."""
        return [names.run_behind(name) for name in self.bucket.names(prefix)]


class LineReader:
    """What the draft of a run's next entry may ask."""

    def __init__(
        self, lines: Lines, line: RunLine, checkpoint_at: Callable[[int], str | None], ticks: Iterable[int]
    ) -> None:
        self._lines = lines
        self._line = line
        self._ticks = iter(ticks)
        self.checkpoint_at = checkpoint_at

    def wait(self, mark: WaitMark) -> WaitRow:
        return self._lines.wait(self._line, mark)

    def signal(self, mark: SignalMark) -> SignalRow:
        return self._lines.signal(self._line, mark)

    def page(self, ref: Ref) -> Page:
        return self._lines.page(self._line, ref)

    def held(self, standing: Standing) -> Lease | None:
        return self._lines.held(self._line, standing)

    def tick(self) -> int:
        return next(self._ticks, None) or self._lines.tick()


class KnownFlow(msgspec.Struct, frozen=True):
    """The structure of a flow, and since when it is known."""

    order: int
    blueprint: bytes


_beats = msgspec.msgpack.Decoder(Lease)
_knowns = msgspec.msgpack.Decoder(KnownFlow)


def _is_inside(pool: ThreadPoolExecutor | None) -> bool:
    """True on a thread of the pool, which must not wait for another of its threads."""
    return pool is not None and threading.current_thread().name.startswith("everstep-objects")
