"""Pausing runs, flows and groups, and letting them go on. Apart: most stores have nothing that is paused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import msgspec

from everstep.errors import BadRequest, RunEnded, RunPaused
from everstep.model.acts import Act
from everstep.model.leases import Held, LanePause, Pause, is_pause, lane_of, pause_of
from everstep.ports.pausing import PausingStore
from everstep.ports.store import RunFilter, RunRow
from everstep.runtime.operations.acting import riding, told, written
from everstep.runtime.reader import RunReader
from everstep.runtime.run_ids import check_still_here
from everstep.runtime.services import Services

MOST = 1000
"""Paused runs that are listed at most."""


def pausing_store(services: Services) -> PausingStore:
    """Return the store, if runs on it can be paused."""
    if not services.store.capabilities.pauses:
        raise BadRequest(
            "on this store nothing can be paused.", fix="Use a store that can: all of everstep's own do."
        )
    return cast("PausingStore", services.store)


class Paused(Protocol):
    """A drive, as far as it can be paused."""

    def pause(self, mark: str) -> None: ...


class Keeper(Protocol):
    """What knows the drives of this host."""

    def drive_of(self, run_id: str) -> Paused | None: ...

    def has_marks(self) -> None: ...

    def take_pauses(self, found: Held) -> None: ...


class Pauses:
    """What is paused on a store, and how that changes."""

    def __init__(self, services: Services, reader: RunReader, keeper: Keeper) -> None:
        self._services = services
        self._reader = reader
        self._keeper = keeper

    async def pause(self, run_id: str, act: Act | None = None) -> RunRow:
        """Pause a run. Its owner starts nothing more, records what is under way and gives it back.

        One that is paused already stays as it is.
        """
        pausing_store(self._services)
        while True:
            row = check_still_here(await self._reader.row(run_id))
            if row.is_paused:
                self._tell(row)
                return row
            # If that is not done it was changed meanwhile, or the reply to an earlier try was lost.
            await self.pause_at(row, act)

    async def pause_at(self, row: RunRow, act: Act | None) -> bool:
        """Pause a run that has the mark with which it was looked at; false if not, or if it has ended."""
        store = pausing_store(self._services)
        self._check_pausable(row)
        await self._services.time.hear()
        mark = Pause(self._services.time.now(), act).mark()
        return await self._mark(store, row, mark, act)

    async def _mark(self, store: PausingStore, row: RunRow, mark: str | None, act: Act | None) -> bool:
        audit = riding(act, row.run_id) if act is not None or self._services.notes_unnamed else None
        is_done = await store.mark(row.run_id, was=row.needs_repair, mark=mark, **told(audit))
        written(audit, is_done=is_done)
        return is_done

    def _check_pausable(self, row: RunRow) -> None:
        if row.status.is_final:
            raise RunEnded(
                f"run {row.run_id!r} has ended ({row.status.value}), so it cannot be paused.",
                fix="Look at it with: everstep show " + row.run_id,
                run_id=row.run_id,
            )
        if row.stop_request is not None:
            raise BadRequest(
                f"run {row.run_id!r} is being cancelled, so it cannot be paused.",
                fix="Wait until it has ended.",
                run_id=row.run_id,
            )
        if row.needs_repair is not None and not is_pause(row.needs_repair):
            raise BadRequest(
                f"workers leave run {row.run_id!r} alone already: {row.needs_repair}.",
                fix=f"See what it needs: everstep show {row.run_id}",
                run_id=row.run_id,
            )

    def _tell(self, row: RunRow) -> None:
        """Let the drive know at once, if it is here."""
        drive = self._keeper.drive_of(row.run_id)
        if drive is not None and row.needs_repair is not None:
            self._keeper.has_marks()
            drive.pause(row.needs_repair)

    async def unpause(self, run_id: str, act: Act | None = None) -> bool:
        """Let a paused run go on: it is due at once if it does not wait for anything; false if it was not."""
        pausing_store(self._services)
        was_paused = False
        while True:
            row = await self._reader.row(run_id)
            if not row.is_paused:
                return was_paused
            was_paused = True
            await self.unpause_at(row, act)

    async def unpause_at(self, row: RunRow, act: Act | None) -> bool:
        """Let a paused run go on that has the mark with which it was looked at; false if it has another."""
        is_done = await self._mark(pausing_store(self._services), row, None, act)
        if is_done:
            await self._services.ring(row.run_id, row.flow_id)
        return is_done

    async def pause_lane(self, flow_id: str, group: str, act: Act | None = None) -> LanePause:
        """Pause a flow, a group of it, or a group of every flow; what is paused already stays as it is."""
        store = pausing_store(self._services)
        await self._services.time.hear()
        note = None if act is None else msgspec.json.encode(act)
        lane = LanePause(flow_id=flow_id, group=group, since=self._services.time.now(), note=note)
        audit = riding(act, None, lane.name) if act is not None or self._services.notes_unnamed else None
        if await store.pause_lane(lane, **told(audit)):
            written(audit)
        found = await store.held(())
        self._keeper.take_pauses(found)
        there = (one for one in found.lanes if (one.flow_id, one.group) == (flow_id, group))
        return next(there, lane)

    async def unpause_lane(self, flow_id: str, group: str, act: Act | None = None) -> bool:
        """Let a flow or a group go on; false if it was not paused."""
        store = pausing_store(self._services)
        lane = LanePause(flow_id=flow_id, group=group, since=self._services.time.now())
        audit = riding(act, None, lane.name) if act is not None or self._services.notes_unnamed else None
        if is_done := await store.unpause_lane(flow_id, group, **told(audit)):
            written(audit)
        self._keeper.take_pauses(await store.held(()))
        await self._services.ring("", flow_id)
        return is_done

    async def lanes(self) -> Sequence[LanePause]:
        """Return the flows and groups that are paused."""
        return (await pausing_store(self._services).held(())).lanes

    async def rows(self) -> Sequence[RunRow]:
        """Return the runs that are paused, each by itself."""
        pausing_store(self._services)
        return await self._services.store.list(RunFilter(paused=True, limit=MOST))


async def paused_lanes(services: Services) -> tuple[LanePause, ...]:
    """Return the flows and groups that are paused."""
    if not services.store.capabilities.pauses:
        return ()
    return (await pausing_store(services).held(())).lanes


async def check_going_on(services: Services, row: RunRow) -> RunPaused | None:
    """Return what keeps an unfinished run from going on; none if nothing is paused of it."""
    if row.status.is_final:
        return None
    if row.is_paused:
        return run_paused(row)
    lane = lane_of(await paused_lanes(services), row.flow_id, row.group)
    return None if lane is None else run_paused(row, lane)


def run_paused(row: RunRow, lane: LanePause | None = None) -> RunPaused:
    """Say that a run is not to go on, and what to do."""
    what, how, pause = f"run {row.run_id!r}", row.run_id, pause_of(row.needs_repair)
    if lane is not None:
        what, how, pause = lane.text, lane.option, lane.pause
    who = f" by {pause.act.by}" if pause is not None and pause.act is not None and pause.act.by else ""
    since = f" since {pause.since:%Y-%m-%d %H:%M} UTC" if pause is not None else ""
    why = (
        f": {pause.act.comment}" if pause is not None and pause.act is not None and pause.act.comment else ""
    )
    return RunPaused(
        f"{what} is paused{since}{who}{why}.",
        fix=f"Let it go on with: everstep unpause {how}",
        run_id=row.run_id,
    )
