"""Checking runs one by one: their own records, those they share, and what the store says beside them."""

from __future__ import annotations

from collections.abc import Callable

from everstep.engine.scope import place_of
from everstep.errors import EverstepError, StateCorrupted
from everstep.model.enums import Status
from everstep.model.records import DEADLINE, START
from everstep.model.waits import WaitRow, WaitStatus
from everstep.ports.store import RunRow, WaitFilter
from everstep.runtime.integrity.artifact_check import BlobCheck
from everstep.runtime.integrity.chain_check import MOST_FLAWS, ChainBase, Examined, Walk
from everstep.runtime.integrity.findings import FlawKind, Verified
from everstep.runtime.lineage import FlowAt, Link, claimed_digest
from everstep.runtime.reader import RunReader
from everstep.runtime.rehydrate import Rehydrated
from everstep.runtime.services import Services

_PAGE = 256
_TRIES = 3
"""How often a run that is driven meanwhile is looked at anew."""
_MOST_FORKS = 10_000
_TAKEN_UP = (Status.RUNNING, Status.HALTED)
_WAITLESS = (Status.COMPLETED, Status.CANCELLED)

Progress = Callable[[str, int, int], object]
"""Told of a run, how many of its checkpoints were checked, and how many there are."""


class Checking:
    """One check under way. What runs share is looked at once."""

    def __init__(
        self,
        services: Services,
        runs: RunReader,
        on_progress: Progress | None = None,
        *,
        blobs: bool = True,
        is_for_all: bool = False,
    ) -> None:
        self._services = services
        self._runs = runs
        self._on_progress = on_progress
        self._blobs = BlobCheck(services.blobs, services.system) if blobs else None
        self._is_for_all = is_for_all
        self._known: dict[str, Examined] = {}
        """Runs that others were forked from, whole."""

    async def run(self, row: RunRow) -> Verified:
        """Check one run with all that it shares with those it was forked from."""
        shared = await self._ancestors(row)
        own = await self._own(row, shared)
        flaws = [flaw for one, last in shared for flaw in one.up_to(last)] + own.flaws
        newest = own.newest_sound(own.row.checkpoints)
        for one, last in reversed(shared):
            newest = one.newest_sound(last) if newest is None else newest
        locked_by = {key: None for one in (own, *(one for one, _ in shared)) for key in one.locked_by}
        if self._blobs is not None:
            locked_by |= self._blobs.locked_by
        return Verified(
            run_id=row.run_id,
            checkpoints=own.row.checkpoints,
            removed=own.removed + sum(one.removed for one, _ in shared),
            artifacts=own.artifacts,
            newest_valid=newest,
            flaws=tuple(flaws[:MOST_FLAWS]),
            locked=len(own.locked) + sum(k <= last for one, last in shared for k in one.locked),
            locked_by=tuple(locked_by),
        )

    async def _ancestors(self, row: RunRow) -> list[tuple[Examined, int]]:
        """Return what a run shares, the oldest first, each with the last sequence that is shared."""
        rows: list[tuple[RunRow, int]] = []
        while row.forked_at is not None and row.parent_run_id is not None:
            parent = await self._services.store.run(row.parent_run_id)
            if parent is None or len(rows) > _MOST_FORKS or parent.first > row.forked_at:
                break
            rows.append((parent, row.forked_at))
            row = parent
        found: list[tuple[Examined, int]] = []
        for ancestor, last in reversed(rows):
            one = self._known.get(ancestor.run_id)
            if one is None:
                last_read = max(last, ancestor.checkpoints) if self._is_for_all else last
                one = await self._walk(ancestor, found, last_read)
                if self._is_for_all:
                    self._known[ancestor.run_id] = one
            found.append((one, last))
        return found

    async def _own(self, row: RunRow, shared: list[tuple[Examined, int]]) -> Examined:
        """Return what is wrong with a run's own records, and with what the store says of it."""
        for _ in range(_TRIES):
            found = await self._walk(row, shared, row.checkpoints)
            now = await self._services.store.run(row.run_id)
            if now is None:
                return found
            if (now.checkpoints, now.trimmed_before) == (row.checkpoints, row.trimmed_before):
                found.row = now
                await self._check_row(found, shared)
                return found
            row = now
        return found  # it is driven all the while: its owner reads what it writes

    async def _walk(self, row: RunRow, shared: list[tuple[Examined, int]], last: int) -> Examined:
        tell, on_page = self._on_progress, None
        if tell is not None:
            on_page = lambda done: tell(row.run_id, done, last)  # noqa: E731
        before = await self._before(row, shared[-1][0] if shared else None)
        return await self._walk_along(row, before, on_page).to(last)

    def _walk_along(self, row: RunRow, before: ChainBase, on_page: Callable[[int], object] | None) -> Walk:
        return Walk(self._services, self._runs, row, before, self._blobs, on_page)

    async def _before(self, row: RunRow, parent: Examined | None) -> ChainBase:
        if row.forked_at is None:
            return ChainBase()
        if parent is None or parent.row.run_id != row.parent_run_id:
            return ChainBase(digest=None, is_sound=False)
        stored = await self._services.store.get(parent.row.run_id, first=row.forked_at, last=row.forked_at)
        if not stored:
            return ChainBase(digest=None, is_sound=False)
        try:
            digest = claimed_digest(Link(parent.row, stored[0], self._services.codecs))
        except EverstepError:
            return ChainBase(digest=None, is_sound=False)
        is_sound = parent.newest_sound(row.forked_at) == row.forked_at
        folded = await self._folded(parent.row, row.forked_at) if is_sound else None
        return ChainBase(digest, stored[0].checkpoint_id, folded, is_sound)

    async def _folded(self, row: RunRow, at: int) -> Rehydrated | None:
        try:
            plan = await self._runs.plan_at(row, at)
            return await self._runs.rehydrate(row, plan, at=at, needs_values=False)
        except EverstepError:
            return None

    # -- what the store says beside the records -----------------------------------------------------------

    async def _check_row(self, found: Examined, shared: list[tuple[Examined, int]]) -> None:
        row = found.row
        is_lone = row.forked_at is not None and (not shared or shared[-1][0].row.run_id != row.parent_run_id)
        if is_lone:
            said = f"run {row.parent_run_id!r}, which {row.run_id!r} comes from, is gone."
            found.flaw(FlawKind.MISSING, said)
        if row.checkpoints < row.first:
            found.flaw(FlawKind.MISSING, f"the records of run {row.run_id!r} are missing.")
            return
        self._check_flow(found)
        await self._check_blueprint(found)
        # What waited on another machine and became a fork is driven, that its waits are opened there.
        is_fork_of_steps = row.forked_at is not None and (row.status, found.status) == _TAKEN_UP
        is_other = found.status is not None and found.status is not row.status and not is_fork_of_steps
        if is_other and found.status is not None and not found.flaws:
            said = f"run {row.run_id!r} is {row.status.value}, but its records end with {found.status.value}."
            found.flaw(FlawKind.ROW, said)
        if found.folded is not None:
            await self._check_waits(found, found.folded)

    def _check_flow(self, found: Examined) -> None:
        row, last = found.row, found.flow
        if last is not None and last != FlowAt(row.flow_version, row.flow_hash):
            said = f"run {row.run_id!r} goes by {row.flow_hash[:8]}, version {row.flow_version!r} of its flow"
            told = f"but its records by {last.flow_hash[:8]}, version {last.flow_version!r}"
            found.flaw(FlawKind.ROW, f"{said}, {told}.")
        is_told = found.adopted_at is not None or not found.removed
        if is_told and row.adopted_at != found.adopted_at and not found.flaws:
            said = f"run {row.run_id!r} went over to its flow at checkpoint {row.adopted_at}"
            found.flaw(FlawKind.ROW, f"{said}, but its records say {found.adopted_at}.")

    async def _check_blueprint(self, found: Examined) -> None:
        try:
            await self._runs.plan(found.row)
        except StateCorrupted as error:
            if not any(flaw.kind is FlawKind.BLUEPRINT for flaw in found.flaws):
                found.flaw(FlawKind.BLUEPRINT, error.message)

    async def _check_waits(self, found: Examined, folded: Rehydrated) -> None:
        row = found.row
        found.waits = await self._waits(row.run_id)
        kept = {wait.wait_id: wait for wait in found.waits}
        if row.status in _WAITLESS:
            opened: dict[str, str] = {}
        else:
            opened = {wait_id: place_of(*place) for wait_id, place in folded.state.waits.items()}
            times = {START: folded.state.delay, DEADLINE: folded.state.deadline}
            opened |= {wait.wait_id: path for path, wait in times.items() if wait is not None}
        for wait_id, path in opened.items():
            wait = kept.get(wait_id)
            if wait is None:
                said = f"run {row.run_id!r} waits at {path!r}, and the store has no such wait: {wait_id}."
                found.flaw(FlawKind.WAIT, said)
            elif wait.status is WaitStatus.CLOSED:
                said = f"run {row.run_id!r} waits at {path!r}, and wait {wait_id} is closed."
                found.flaw(FlawKind.WAIT, said)
            elif wait.path != path:
                said = f"wait {wait_id} of run {row.run_id!r} is at {path!r}, not at {wait.path!r}."
                found.flaw(FlawKind.WAIT, said)
        for wait in kept.values():
            if wait.status is not WaitStatus.CLOSED and wait.wait_id not in opened:
                said = f"wait {wait.wait_id} is open, and no record of run {row.run_id!r} opened it."
                found.flaw(FlawKind.WAIT, said)

    async def _waits(self, run_id: str) -> list[WaitRow]:
        found: list[WaitRow] = []
        after: str | None = None
        while True:
            page = await self._services.store.waits(WaitFilter(run_id=run_id, limit=_PAGE, after=after))
            found += page
            if len(page) < _PAGE:
                return found
            after = page[-1].wait_id


async def newest_valid(services: Services, runs: RunReader, row: RunRow) -> int | None:
    """Return the newest checkpoint of a run that is valid, its artifacts not looked at; none if none is."""
    return (await Checking(services, runs, blobs=False).run(row)).newest_valid
