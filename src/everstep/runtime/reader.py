"""Reading runs back: which run a name leads to, the wiring it goes by, its chain folded up to a checkpoint.

Nothing here claims, drives or writes. Whatever looks at runs, checks, forks or keeps them gets a `RunReader`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from everstep.engine.state import RunState
from everstep.errors import LeaseConflict, RunErased, RunNotFound, StateCorrupted
from everstep.graph.compile.plan import Plan, hash_of
from everstep.model.durability import BLOB_THRESHOLD, Durability
from everstep.model.records import CHANNEL
from everstep.on_demand import on_demand
from everstep.ports.store import RunFilter, RunRow, StoredRecord
from everstep.runtime.judges import Judges
from everstep.runtime.lineage import Lineage, flows_met
from everstep.runtime.outcome import Outcome
from everstep.runtime.rehydrate import Rehydrated
from everstep.runtime.run_ids import check_run_id, missing_run, split_address
from everstep.runtime.services import Services

if TYPE_CHECKING:
    from everstep.graph.compile.blueprint import read_plan
    from everstep.runtime.drive.channel import ChannelDesk
    from everstep.runtime.drive.external_channel import fill
    from everstep.runtime.waits.tokens import looks_like_token
else:
    ChannelDesk = on_demand("everstep.runtime.drive.channel:ChannelDesk")
    fill = on_demand("everstep.runtime.drive.external_channel:fill")
    looks_like_token = on_demand("everstep.runtime.waits.tokens:looks_like_token")
    read_plan = on_demand("everstep.graph.compile.blueprint:read_plan")

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_PAGE, _LOOKING = 100, 5.0
"""How many runs are listed at once, and for how many seconds, to find whose an old checkpoint is."""
_PLANS = 16
"""How many wirings a host keeps in mind."""


class RunReader:
    """The runs of one store, to be looked at."""

    def __init__(
        self, services: Services, newest_valid: Callable[[Services, RunReader, RunRow], Awaitable[int | None]]
    ) -> None:
        self._services = services
        self._newest_valid = newest_valid
        """Finds the newest checkpoint of a damaged run that is valid."""
        self.lineage = Lineage(services.store, services.codecs)
        self.judges = Judges()
        self._plans: dict[str, Plan] = {}
        """Wirings that were read back lately, by hash."""

    def over(self, services: Services) -> RunReader:
        """Return a reader of what other services see."""
        return RunReader(services, self._newest_valid)

    async def row(self, run_id: str) -> RunRow:
        """Return what the store knows of a run."""
        row = await self._services.store.run(check_run_id(run_id))
        if row is None:
            raise await missing_run(self._services.store, run_id)
        return row

    async def named(self, name: str) -> RunRow:
        """Return the run that its id, its newest checkpoint's id, or a token of one of its waits names."""
        if looks_like_token(name):
            name = await self._services.tokens.run_of(name)
        row = await self._services.store.run(check_run_id(name))
        if row is not None:
            return row
        if not looks_like_uuid(name):
            raise await missing_run(self._services.store, name)
        run_id = await self._services.store.run_at(name)
        return await self.row(run_id) if run_id is not None else await self._that_went_on(name)

    async def _that_went_on(self, checkpoint_id: str) -> RunRow:
        """Say which run has gone on from this checkpoint, or that none has it.

        No index leads from a checkpoint to its run: all runs are gone through, newest first, for a while.
        """
        missing = await missing_run(self._services.store, checkpoint_id)
        if isinstance(missing, RunErased):  # it is the id of a run
            raise missing
        until, before, seen = self._services.clock.monotonic() + _LOOKING, None, 0
        while page := await self._services.store.list(RunFilter(limit=_PAGE, before=before)):
            for row in page:
                sequence = None
                with suppress(StateCorrupted):
                    sequence = await self.lineage.sequence_of(row, checkpoint_id, own=True)
                if sequence is not None and sequence == row.checkpoints:
                    return row
                if sequence is not None:
                    raise gone_on(row, sequence)
                seen += 1
                if self._services.clock.monotonic() > until:
                    raise RunNotFound(
                        f"no run stands at checkpoint {checkpoint_id!r}, and none of the newest {seen:,} "
                        "ever did. Older ones were not looked through.",
                        fix="Name its run, as in: everstep fork RUN --at CHECKPOINT",
                    )
                await self._services.system.pause(0)
            before = page[-1].run_id
        raise missing

    async def find(self, run_id: str, at: int | str | None = None) -> tuple[RunRow, int]:
        """Return a run and the sequence of a checkpoint, given by sequence, id, or in the run id as RUN@N."""
        run_id, at = split_address(run_id, at)
        row = await self.row(run_id)
        sequence: int | None = None
        if at is None:
            sequence = row.checkpoints
        elif isinstance(at, str):
            sequence = await self.lineage.sequence_of(row, at)
        elif type(at) is int and 1 <= at <= row.checkpoints:
            sequence = at
        if sequence is None:
            raise RunNotFound(
                f"run {row.run_id!r} has no checkpoint {at!r}.", fix=f"It has 1 to {row.checkpoints}."
            )
        return row, sequence

    async def plan(self, row: RunRow, flow_hash: str | None = None) -> Plan:
        """Return the wiring a run goes by, or another one that it went by, without its functions."""
        flow_hash = flow_hash or row.flow_hash
        if flow_hash in self._plans:
            return self._plans[flow_hash]
        return await self.structure(row.flow_id, flow_hash)

    async def structure(self, flow_id: str, flow_hash: str) -> Plan:
        """Return the wiring of a version of a flow as the store keeps it, without its functions."""
        if flow_hash in self._plans:
            return self._plans[flow_hash]
        blueprint = await self._services.store.blueprint(flow_hash)
        if blueprint is None:
            fix = "Start any run of the same flow to write it again, or restore the store from a copy."
            raise StateCorrupted(f"the structure of flow {flow_id!r} is missing from the store.", fix=fix)
        if hash_of(blueprint) != flow_hash:
            raise StateCorrupted(f"the structure of flow {flow_id!r} was altered; restore a copy.")
        if len(self._plans) >= _PLANS:
            self._plans.clear()
        plan = self._plans[flow_hash] = read_plan(blueprint, flow_id)
        return plan

    async def plan_at(self, row: RunRow, sequence: int) -> Plan:
        """Return the wiring that a run went by at a checkpoint."""
        return await self.plan(row, (await self.lineage.flow_at(row, sequence)).flow_hash)

    async def rehydrate(
        self,
        row: RunRow,
        plan: Plan,
        durability: Durability | None = None,
        *,
        at: int | None = None,
        needs_values: bool = True,
        tail: list[StoredRecord] | None = None,
    ) -> Rehydrated:
        """Fold a run's chain up to a checkpoint, with the wiring that was in force there.

        With `tail`, the run's own records to its end were read before.
        """
        links = await self.lineage.tail(row, at, tail)
        threshold = BLOB_THRESHOLD if durability is None else durability.blob_threshold
        folded = Rehydrated(plan, self._services.values, self._services.blobs, threshold)
        try:
            folded.fold(links, needs_values=needs_values)
            if folded.head.sequence < (row.checkpoints if at is None else at):
                raise StateCorrupted(
                    f"checkpoint {folded.head.sequence + 1} of run {row.run_id!r} is missing."
                )
            return folded
        except StateCorrupted as error:
            raise await self.with_way_back(row, error) from error

    async def look_back(self, run_id: str, at: int | str | None) -> Rehydrated:
        """Fold a run up to a checkpoint, given by sequence or id; by default the newest.

        Values whose key is not at hand are locked, so that the rest can be looked at.
        """
        row, sequence = await self.find(run_id, at)
        return await self.rehydrate(row, await self.plan_at(row, sequence), at=sequence, needs_values=False)

    async def go_on(self, folded: Rehydrated, run_id: str, first: int, last: int) -> None:
        """Fold further records of a run, also across places where it went over to another wiring."""
        row = await self.row(run_id)
        links = await self.lineage.get(row, first, last)
        for flow_hash in flows_met(links):
            folded.plans[flow_hash] = await self.plan(row, flow_hash)
        folded.fold(links, needs_values=False)

    async def recorded(self, row: RunRow) -> Outcome:
        """Return what a run came to, from its records alone."""
        # Another process may have gone on since the row was read: what it says of its end is meant.
        folded = await self.rehydrate(row, await self.plan(row), at=row.checkpoints)
        if folded.status is not row.status:
            raise StateCorrupted(
                f"run {row.run_id!r} is {row.status.value}, but its records end with {folded.status.value}.",
                fix="Some are missing; restore a copy.",
            )
        return Outcome(row.run_id, folded.status, folded.state, folded.space, folded.error)

    async def key_run(self, row: RunRow, state: RunState) -> str:
        """Return the run whose id goes into idempotency keys."""
        if row.forked_at is None:
            return row.run_id
        # A fork that keeps its keys uses those of the run that its family began with.
        return state.key_run or (await self.lineage.root(row)).run_id

    async def with_way_back(self, row: RunRow, error: StateCorrupted) -> StateCorrupted:
        """Return the error with the newest checkpoint that is valid, if any is: there a fork can go on."""
        newest = await self._newest_valid(self._services, self, row)
        if newest is None:
            return error
        way = f"everstep resume {row.run_id} --fallback, or everstep fork {row.run_id} --at {newest}"
        fix = f"Checkpoint {newest} is valid; go on from it: {way}"
        return StateCorrupted(error.message, fix=fix, newest_valid=newest)


def looks_like_uuid(text: str) -> bool:
    """True for what may be the id of a checkpoint."""
    return re.fullmatch(_UUID, text) is not None


def gone_on(row: RunRow, sequence: int) -> LeaseConflict:
    """Return why a run cannot go on from a checkpoint that it has left behind."""
    return LeaseConflict(
        f"run {row.run_id!r} has gone on from checkpoint {sequence}; it is at {row.checkpoints}.",
        fix=f"To go on from there as another run: everstep fork {row.run_id}@{sequence}",
    )


async def current_channel(services: Services, runs: RunReader, run_id: str) -> dict[str, Any]:
    """Return the channel of a run as it is now, wherever it is kept."""
    folded = await runs.look_back(run_id, None)
    if folded.space.has_channel_elsewhere:
        await fill(services, run_id, folded.space, is_owner=False)
    keys = ChannelDesk(folded.state, folded.space, services.system).keys()
    return {key: folded.space.peek(key, CHANNEL) for key in keys}
