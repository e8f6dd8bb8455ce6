"""Which runs of a store change, told to all who look on at once: ids and sequences, and no values. Apart from
the events of one run, which its records tell of.

A store says that it was written to, and not what. So once it was, its newest runs, the newest that wait,
those that are driven and those that are asked for by name are read and compared with how they stood before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from everstep.client.parts import Parts
from everstep.errors import BadRequest, EverstepError
from everstep.model.commits import ASK_FLOW
from everstep.model.enums import Status
from everstep.model.shapes import Count, Instant
from everstep.ports.store import PolledStore, RunFilter, RunRow, WaitFilter

WINDOW = 200
"""So many of the newest runs, and of the newest that wait, are compared."""
MOST_NAMED = 100
"""So many runs may one who looks on name."""
MOST_READ = 100
"""So many runs that are in no list any more are read one by one after a change; more is a gap."""
QUICK, IDLE = 0.1, 0.6
"""Seconds between two questions whether the store was written to: while runs are driven, and otherwise."""
STAYS_QUICK = 5.0
"""Seconds after a change that it is asked quickly."""
PACE = 0.25
"""Seconds between two readings of runs at least."""
SHARE = 4
"""How many times as long as the last reading took there is none: a store that is slow is read less often."""
RATIONED = 10.0
"""Seconds between two readings of a store that takes only so many calls."""
AGAIN = 1.0
"""Seconds before a store that did not answer is read again."""
ANYWAY = 15.0
"""Seconds after which runs are read though nothing was said to be written."""
QUIET = 1.0
"""Seconds between two messages that no run changed, though the store was written to."""
REMEMBERED = 60.0
"""Seconds after the last one has left that what was seen is still compared with."""
KEPT = 512
"""How many messages are kept for those who come back."""


class RunChange(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has changed, as it is now."""

    run_id: str
    flow: str
    sequence: Count
    """The sequence of its newest checkpoint."""
    status: Status
    is_gone: bool = False
    """True if it was erased; the rest is how it was seen last."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What has changed since the message before."""

    id: str
    """Where this stands among all that is told: hand it over to go on behind it."""
    kind: Literal["ready", "runs", "refetch", "trouble"]
    """`ready` comes first: what changes from then on is told. `runs` says that the store was written to, and
    which runs that changed. `refetch` comes after a gap: what is shown has to be read again. `trouble` says
    that the store does not answer."""
    at: Instant
    runs: list[RunChange] = []
    """Also waits, signals and labels may have changed, of these or of other runs."""


class _Seen(NamedTuple):
    """How a run stood; what differs from it is a change. A lease that is renewed is none."""

    row: RunRow
    facts: tuple[Any, ...]


class _Told(NamedTuple):
    """What one reading found."""

    number: int
    at: datetime
    kind: Literal["runs", "refetch", "trouble"]
    runs: Mapping[str, RunChange]


class _Looker:
    """One who looks on, at all runs or at those it names."""

    def __init__(self, run_ids: Iterable[str]) -> None:
        self.run_ids = frozenset(run_ids)

    def narrowed(self, runs: Iterable[RunChange]) -> list[RunChange]:
        return [run for run in runs if not self.run_ids or run.run_id in self.run_ids]


class Watch:
    """Looks at a store for all who want to know on one event loop; it rests while there is no one."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._services = parts.services
        self._lookers: set[_Looker] = set()
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._reading = asyncio.Lock()
        self._error: BaseException | None = None
        self._left_at = 0.0
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._generation = self._services.ids.new_id()[:8]
        self._number = 0
        self._log: deque[_Told] = deque(maxlen=KEPT)
        self._known: dict[str, _Seen] = {}
        self._newest: list[str] = []
        self._halted: list[str] = []
        self._waits: dict[str, tuple[Any, ...]] = {}
        self._is_whole = False
        """True once all runs were looked at, not only some that were named."""
        self._written: tuple[str, int] | None = None
        """What the store said when it was read last, and to which question."""
        self._is_well = True
        self._changed_at = self._read_at = self._told_at = float("-inf")
        self._cost = 0.0

    async def follow(
        self, run_ids: Collection[str] = (), after: str | None = None
    ) -> AsyncGenerator[Changes, None]:
        """Yield what changes, of all runs or of some, from now on or since a message.

        One who is slow gets several messages as one, and none is kept for it alone.
        """
        looker = _Looker(run_ids)
        self._join(looker)
        try:
            known = await self._place(looker, after)
            first, place = self._first(looker, after, known), self._number
            yield first
            while True:
                news = self._news
                if self._number == place:
                    await news.wait()
                    if self._error is not None:
                        raise self._error
                told = self._since(place)
                place = self._number
                if (message := self._message(looker, told)) is not None:
                    yield message
        finally:
            self._leave(looker)

    async def look(self, run_ids: Collection[str] = (), after: str | None = None) -> Changes:
        """Return what has changed since a message, as one; without one, where to go on from."""
        looker = _Looker(run_ids)
        self._join(looker)
        try:
            place = await self._place(looker, after)
            if place is not None:
                async with self._reading:
                    await self._read()
            return self._first(looker, after, place)
        finally:
            self._leave(looker)

    # -- those who look on ---------------------------------------------------------

    def _join(self, looker: _Looker) -> None:
        loop = asyncio.get_running_loop()
        if not self._lookers and loop.time() - self._left_at > REMEMBERED:
            self._begin_anew()
        self._lookers.add(looker)
        if self._task is None:
            self._error = None
            self._task = loop.create_task(self._work())

    def _leave(self, looker: _Looker) -> None:
        self._lookers.discard(looker)
        if not self._lookers:
            self._left_at = asyncio.get_running_loop().time()
            if self._task is not None:
                self._task.cancel()
                self._task = None

    async def _place(self, looker: _Looker, after: str | None) -> int | None:
        """Return the number of the message behind which one goes on; none if it is not known here.

        What is looked at was read once when this returns, so that from now on no change is missed.
        """
        generation, number = _parsed(after)
        is_known = generation == self._generation and number <= self._number
        is_seen = looker.run_ids <= self._known.keys() if looker.run_ids else self._is_whole
        if not is_seen:
            async with self._reading:
                await self._read()
        return number if is_known and is_seen else None

    def _first(self, looker: _Looker, after: str | None, place: int | None) -> Changes:
        told = None if place is None else self._since(place)
        if not self._is_well:
            return self._made("trouble")
        if told is None:
            return self._made("ready" if after is None else "refetch")
        return self._message(looker, told) or self._made("ready")

    def _since(self, place: int) -> list[_Told] | None:
        """Return what was told behind a message; none if that is no longer kept."""
        if place == self._number:
            return []
        if not self._log or self._log[0].number > place + 1:
            return None
        return [told for told in self._log if told.number > place]

    def _message(self, looker: _Looker, told: Sequence[_Told] | None) -> Changes | None:
        """Return what one is told; none if nothing of it is about the runs that it names."""
        if told is None or any(one.kind == "refetch" for one in told):
            return self._made("refetch")
        if told and told[-1].kind == "trouble":
            return self._made("trouble")
        runs = looker.narrowed({run_id: run for one in told for run_id, run in one.runs.items()}.values())
        if not runs and (looker.run_ids or not told):
            return None
        return self._made("runs", runs)

    def _made(
        self, kind: Literal["ready", "runs", "refetch", "trouble"], runs: Sequence[RunChange] = ()
    ) -> Changes:
        at = self._services.clock.now()
        return Changes(id=f"{self._generation}.{self._number}", kind=kind, at=at, runs=list(runs))

    # -- the store -----------------------------------------------------------------

    async def _work(self) -> None:
        try:
            while True:
                await self._services.system.pause(QUICK if self._is_quick else IDLE)
                async with self._reading:
                    await self._look()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._error = error
            self._task = None
            self._wake()
            raise

    @property
    def _is_quick(self) -> bool:
        """True while runs change, or are driven: then it is asked often whether there is more."""
        is_new = asyncio.get_running_loop().time() - self._changed_at < STAYS_QUICK
        return is_new or any(seen.row.lease is not None for seen in self._known.values())

    async def _ask(self) -> tuple[str, int]:
        """Return a number that is another one once the store was written to."""
        store = self._services.store
        if not self._is_quick and isinstance(store, PolledStore):
            return "written", await store.written()
        return "changes", store.changes()

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        least = PACE if self._is_well else AGAIN
        if self._services.store.capabilities.rationed:
            least = RATIONED
        if now - self._read_at < max(least, SHARE * self._cost):
            return
        is_due = now - self._read_at >= ANYWAY or not self._is_well
        if is_due or self._has_lapsed() or await self._was_written():
            await self._read()

    async def _was_written(self) -> bool:
        try:
            return await self._ask() != self._written
        except EverstepError:
            return True  # reading says what is wrong

    def _has_lapsed(self) -> bool:
        """True if the lease of a run seems to be over, which is written nowhere."""
        return any(
            seen.facts[0] and not self._parts.is_driven(seen.row)
            for seen in self._known.values()
            if seen.row.lease is not None
        )

    async def _read(self) -> None:
        """Read what may have changed, and tell of what has."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            written = await self._ask()  # before it is read: what comes meanwhile counts
            changed, is_gap = await self._changed()
            # What looks on may be what asks: to tell it of its question would make it ask again.
            changed = {name: run for name, run in changed.items() if not run.flow.startswith(ASK_FLOW)}
        except EverstepError:
            self._read_at, self._cost = loop.time(), loop.time() - began
            if self._is_well:
                self._is_well = False
                self._tell("trouble", {})
            return
        is_said = written != self._written and self._written is not None
        self._written, self._read_at = written, loop.time()
        self._cost = self._read_at - began
        if changed or is_said:
            self._changed_at = self._read_at
        if is_gap or not self._is_well:
            self._is_well = True
            self._tell("refetch", changed)
        elif changed or (is_said and self._read_at - self._told_at >= QUIET):
            self._tell("runs", changed)

    def _tell(self, kind: Literal["runs", "refetch", "trouble"], runs: Mapping[str, RunChange]) -> None:
        self._number += 1
        self._log.append(_Told(self._number, self._services.clock.now(), kind, runs))
        self._told_at = asyncio.get_running_loop().time()
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _changed(self) -> tuple[dict[str, RunChange], bool]:
        """Return the runs that differ from how they stood, and whether others may have been missed."""
        named = {run_id for looker in self._lookers for run_id in looker.run_ids}
        wants_all = any(not looker.run_ids for looker in self._lookers)
        rows: dict[str, RunRow] = {}
        newest: list[str] = []
        halted: list[str] = []
        gone_by: set[str] = set()
        is_gap = False
        if wants_all:
            newest, halted, rows = await self._listed()
            if self._is_whole:
                gone_by = _fallen(self._newest, newest) | _fallen(self._halted, halted)
                is_gap = bool(self._newest) and not {*self._newest} & {*newest} and len(newest) == WINDOW
        listed = {*rows}
        looked_for = [*named - listed]
        if wants_all:
            missing = self._known.keys() - listed - named - gone_by
            is_gap = is_gap or len(missing) > MOST_READ
            looked_for += sorted(missing)[:MOST_READ]
        erased: set[str] = set()
        for run_id in looked_for:
            row = await self._services.store.run(run_id)
            if row is None:
                erased.add(run_id)
            else:
                rows[run_id] = row
        waits = await self._waits_of([rows[run_id] for run_id in named & rows.keys()])
        changed = self._compared(rows, listed, erased, waits, is_whole=wants_all)
        self._newest, self._halted = newest, halted
        return changed, is_gap

    async def _listed(self) -> tuple[list[str], list[str], dict[str, RunRow]]:
        """Return the newest runs, the newest that wait, and the rows of both and of all that are driven."""
        store = self._services.store
        newest = await store.list(RunFilter(limit=WINDOW))
        halted = await store.list(RunFilter(status=Status.HALTED, limit=WINDOW))
        rows = {row.run_id: row for row in (*newest, *halted, *await store.leased())}
        return [row.run_id for row in newest], [row.run_id for row in halted], rows

    async def _waits_of(self, rows: Iterable[RunRow]) -> dict[str, tuple[Any, ...]]:
        """Return how the waits of runs stand: one may be settled before its run is written to."""
        found: dict[str, tuple[Any, ...]] = {}
        for row in rows:
            if not row.status.is_final:
                wanted = WaitFilter(run_id=row.run_id, is_unclosed=True)
                waits = await self._services.store.waits(wanted)
                found[row.run_id] = tuple((wait.wait_id, wait.status, wait.details) for wait in waits)
        return found

    def _compared(
        self,
        rows: Mapping[str, RunRow],
        listed: Collection[str],
        erased: Collection[str],
        waits: Mapping[str, tuple[Any, ...]],
        *,
        is_whole: bool,
    ) -> dict[str, RunChange]:
        """Return what differs, and note how all stands now."""
        before, waited = self._known, self._waits
        now = {run_id: _Seen(row, self._facts(row)) for run_id, row in rows.items()}
        changed: dict[str, RunChange] = {}
        for run_id, seen in now.items():
            was = before.get(run_id)
            # One that is named for the first time is not new.
            is_new = was is None and is_whole and self._is_whole and run_id in listed
            differs = was is not None and was.facts != seen.facts
            if is_new or differs or waited.get(run_id, waits.get(run_id)) != waits.get(run_id):
                changed[run_id] = _change(seen.row)
        for run_id in erased:
            if (was := before.get(run_id)) is not None:
                changed[run_id] = _change(was.row, is_gone=True)
        self._known, self._waits, self._is_whole = now, dict(waits), is_whole
        return changed

    def _facts(self, row: RunRow) -> tuple[Any, ...]:
        lease = row.lease
        held = None if lease is None else (lease.owner, lease.epoch)
        marks = row.stop_request, row.needs_repair, row.pinned, row.acked_at, row.trimmed_before
        return (self._parts.is_driven(row), held, row.checkpoints, row.status, *marks, row.adopted_at)


def _change(row: RunRow, *, is_gone: bool = False) -> RunChange:
    return RunChange(
        run_id=row.run_id,
        flow=row.flow_id,
        sequence=row.checkpoints,
        status=row.status,
        is_gone=is_gone,
    )


def _fallen(before: Sequence[str], now: Sequence[str]) -> set[str]:
    """Return what a list that has grown at its front has lost at its end."""
    here = {*now}
    last = max((n for n, run_id in enumerate(before) if run_id in here), default=-1)
    return {*before[last + 1 :]} if len(now) >= WINDOW else set()


def _parsed(after: str | None) -> tuple[str, int]:
    if after is None:
        return "", 0
    generation, dot, number = after.partition(".")
    if not dot or not number.isdecimal() or len(number) > 18:
        raise BadRequest(f"{after[:40]!r} is not the id of a message.", fix="Use the last one you saw.")
    return generation, int(number)
