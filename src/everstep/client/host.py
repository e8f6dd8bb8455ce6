"""`AsyncHost`: the services a run needs, behind one URL."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from everstep.client.diff import Diff, compare_states
from everstep.client.views import CheckpointInfo, Divergence, Replay, RunInfo, RunResult, RunState
from everstep.codec.values import Values
from everstep.errors import BadRequest
from everstep.graph.flow import Flow
from everstep.model.enums import Status
from everstep.model.records import CheckpointRecord
from everstep.ports.store import RunFilter, RunRow
from everstep.ports.system import Clock, Ids
from everstep.registry import DEFAULT_URL, Opened, open_store
from everstep.runtime.bisect import bisect
from everstep.runtime.events import Listener
from everstep.runtime.forking import Edits, fork
from everstep.runtime.housekeeping import clean_up
from everstep.runtime.keeper import LeaseKeeper
from everstep.runtime.recall import recall
from everstep.runtime.replay import replay
from everstep.runtime.runs import Runs
from everstep.runtime.services import Services
from everstep.runtime.system import ProcFs, SystemClock, SystemIds


class AsyncHost:
    """Runs flows and keeps what they do. Without a URL, in a SQLite file under `./.everstep/`."""

    def __init__(
        self,
        url: str | Opened | None = None,
        *,
        on_event: Listener | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        max_threads: int = 32,
        create: bool = True,
        owns_loop: bool = False,
    ) -> None:
        clock = clock or SystemClock()
        if url is None and create:
            _make_own_folder()
        opened = url if isinstance(url, Opened) else open_store(url or DEFAULT_URL, clock, create=create)
        self.url = opened.url
        self._services = Services(
            store=opened.store,
            blobs=opened.blobs,
            clock=clock,
            ids=ids or SystemIds(),
            processes=ProcFs(),
            values=Values(),
            listener=on_event,
            owns_loop=owns_loop,
            max_threads=max_threads,
        )
        self._runs = Runs(self._services, LeaseKeeper(opened.store, clock))

    def twin(self) -> Self:
        """Return this host for another event loop: the same store, leases and types, commits of its own."""
        twin = object.__new__(type(self))
        twin.url = self.url
        twin._services = self._services.twin()
        twin._runs = Runs(twin._services, self._runs.keeper)
        return twin

    @property
    def values(self) -> Values:
        """How values become bytes; register serializers for types of your own here."""
        return self._services.values

    async def run(
        self,
        flow: Flow,
        inputs: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
        channel: Mapping[str, Any] | None = None,
    ) -> RunResult:
        """Run a flow to its end, with these values in its channel.

        With the id of an unfinished run it continues that one; with the id of a finished one it returns the
        recorded result and runs nothing. Other inputs than the recorded ones are refused.
        """
        return RunResult(await self._runs.run(flow, inputs, run_id, channel))

    async def resume(self, run_id: str, flow: Flow, *, start: str | None = None) -> RunResult:
        """Continue a run. One that failed is reopened at the node that failed, with a fresh retry budget.

        With `start` it begins at that node instead, whatever was due.
        """
        return RunResult(await self._runs.resume(run_id, flow, start))

    async def cancel(self, run_id: str) -> Status:
        """Cancel a run; `running` means that its owner was told and will stop at its next write."""
        return await self._runs.cancel(run_id)

    async def history(self, run_id: str, *, last: int | None = None) -> list[CheckpointRecord]:
        """Return the checkpoints of a run up to `last`, oldest first, each with the digest that covers it."""
        return await self._runs.history(run_id, last)

    async def state(self, run_id: str, at: int | str | None = None) -> RunState:
        """Return the values of a run at a checkpoint, given by sequence or id; by default the newest.

        An address such as A17@3 names both the run and the sequence.
        """
        return RunState(run_id.partition("@")[0], await self._runs.look_back(run_id, at))

    async def recall(self, run_id: str, versions: Collection[tuple[str, int]]) -> dict[tuple[str, int], Any]:
        """Return values as steps wrote them, by whole name and version, also those overwritten since.

        Where one cannot be read, what stands in its place says why.
        """
        return await recall(self._runs, run_id, versions)

    async def fork(
        self,
        run_id: str,
        *,
        at: int | str | None = None,
        inputs: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        channel: Mapping[str, Any] | None = None,
        fork_id: str | None = None,
        keep_keys: bool = False,
    ) -> RunInfo:
        """Make a run that goes on from a checkpoint of another, with what you edit; `resume` drives it.

        `at` is a sequence or a checkpoint id, by default the newest; RUN@N says the same. Nothing is copied.
        What read an edited value runs again. Idempotency keys differ from the original's unless `keep_keys`.
        """
        edits = Edits(inputs or {}, state or {}, channel or {})
        row = await fork(self._services, self._runs, run_id, at, edits, fork_id=fork_id, keep_keys=keep_keys)
        return self._info(row)

    async def checkpoints(
        self, run_id: str, *, first: int = 1, last: int | None = None
    ) -> list[CheckpointInfo]:
        """List the checkpoints of a run between two sequences, oldest first, those a fork shares included."""
        row = await self._runs.row(run_id)
        return [CheckpointInfo.of(*found) for found in await self._runs.lineage.open(row, first, last)]

    async def latest(self, run_id: str) -> CheckpointInfo:
        """Return the newest checkpoint of a run."""
        row = await self._runs.row(run_id)
        return CheckpointInfo.of(*await self._runs.lineage.read(row, row.checkpoints))

    async def clean_up(self, run_id: str, *, keep: int = 5) -> int:
        """Remove old checkpoints and return how many: what a resume from the last `keep` does not need.

        Whatever lies before a keyframe can go, so as much stays as lies between two of them. Nothing that a
        fork goes on from is removed.
        """
        return await clean_up(self._services.store, self._runs, run_id, keep)

    async def diff(
        self,
        run_id: str,
        other: str | None = None,
        *,
        start: int | str | None = None,
        end: int | str | None = None,
    ) -> Diff:
        """Compare a run at `start` with `other`, or with itself, at `end`: values, nodes and status.

        Both are sequences or checkpoint ids. `end` is the newest by default; so is `start` if there is
        another run, and otherwise the oldest that was not removed.
        """
        if start is None and other is None:
            start = max(1, (await self.info(run_id)).trimmed_before)
        before = await self.state(run_id, start)
        return compare_states(before, await self.state(other or run_id, end), self.values)

    async def bisect(self, good: str, bad: str) -> Divergence | None:
        """Return the first step of a bad run that a good one lacks, or that came out differently there.

        None if every finished step of the bad run is the same in the good one.
        """
        return await bisect(self._runs, self.values, good, bad)

    async def replay(self, run_id: str, step: str, flow: Flow, *, allow_effects: bool = False) -> Replay:
        """Run one recorded step again, alone, on the values it read, and compare. Nothing is written.

        `step` is an address: a node (its last finished visit), `"draft@2"`, `"rag/embed"`, `"check#7"`. An
        effectful node is refused unless `allow_effects` is true.
        """
        return await replay(self._runs, self._services, run_id, step, flow, allow_effects=allow_effects)

    async def runs(
        self,
        *,
        flow: str | None = None,
        status: Status | str | None = None,
        parent: str | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> list[RunInfo]:
        """List runs, newest first; with `parent`, the forks of that run."""
        if not isinstance(limit, int) or limit < 1:
            raise BadRequest(f"limit is {limit}.", fix="Give at least 1.")
        try:
            wanted = Status(status) if status is not None else None
        except ValueError:
            known = ", ".join(s.value for s in Status if s is not Status.RETRYING)
            raise BadRequest(f"{status!r} is not a status of runs.", fix=f"Use one of {known}.") from None
        rows = await self._services.store.list(
            RunFilter(flow_id=flow, status=wanted, parent_run_id=parent, limit=limit, before=before)
        )
        return [self._info(row) for row in rows]

    async def info(self, run_id: str) -> RunInfo:
        """Return one run's line."""
        return self._info(await self._runs.row(run_id))

    def _info(self, row: RunRow) -> RunInfo:
        lease = row.lease
        is_driven = lease is not None and lease.expires_at > self._services.clock.now()
        if is_driven and lease is not None and lease.process is not None:
            is_driven = not self._services.processes.is_gone(lease.process)
        return RunInfo(row, is_driven=is_driven)

    async def close(self) -> None:
        """Release threads and connections; runs under way are left to be resumed."""
        self._runs.close()
        self._services.close()
        await self._services.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _make_own_folder() -> None:
    """Make `./.everstep/`, and keep it out of version control."""
    folder = Path(".everstep")
    if not folder.exists():
        folder.mkdir()
        (folder / ".gitignore").write_text("*\n")
