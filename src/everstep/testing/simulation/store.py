"""The simulated store: the real rules of a put, a claim and a wait, behind a line on which things go wrong.

What every process shares is in one place in memory. Each process has a line to it, on which requests and
replies take time, get lost or come twice, and which is cut while the store is away.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Sequence
from datetime import datetime, timedelta
from functools import partial
from operator import call
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import msgspec

from everstep.errors import EverstepError, StoreNotWritable, StoreUnavailable
from everstep.model.leases import Held, Lease, WorkerRow
from everstep.model.records import ArtifactRef
from everstep.model.waits import Sending, SignalRow
from everstep.ports.restoring import RestoringBlobs
from everstep.ports.retention import RetainingBlobStore
from everstep.ports.store import (
    Capabilities,
    CheckpointBlobStore,
    CheckpointStore,
    Commit,
    RunRow,
    TakenUp,
    Verdict,
)
from everstep.registry import Opened
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.stores.memory.store import MemoryLog
from everstep.testing.simulation.faults import Fault
from everstep.testing.simulation.hub import SECOND, Dead
from everstep.testing.simulation.process import BEGAN, SimProcess, Surroundings

T = TypeVar("T")
BEFORE = (
    *(Fault.CRASH, Fault.LOST_REQUEST, Fault.STALL, Fault.OUTAGE, Fault.POWER_CUT, Fault.FULL),
    *(Fault.LONG_OUTAGE, Fault.CLOCK_AHEAD, Fault.CLOCK_BACK),
)
BEFORE_TWICE = (*BEFORE, Fault.DOUBLED, Fault.REPEATED_LATE)
AFTER = (Fault.CRASH, Fault.LOST_REPLY, Fault.STALL, Fault.POWER_CUT)
SAFE_TWICE = frozenset(
    {
        *("put", "renew", "release_lease", "report", "introduce", "fire", "ack"),
        *("send", "keep_event", "settle_event", "tag", "mark", "pause_lane", "unpause_lane"),
    }
)
"""What may reach the store a second time without having been sent again."""
READS = (
    *(
        "get",
        "tail",
        "run",
        "blueprint",
        "stop_note",
        "waits",
        "wait",
        "wait_of_token",
        "leased",
        "workers",
    ),
    *("inbox", "had_events", "audit", "labels", "notices", "held"),
    "limit_states",
    *("next_due", "counts", "run_at", "list", "tombstone", "tombstones", "removals"),
)
WRITES = (
    *(
        "lease",
        "renew",
        "release_lease",
        "introduce",
        "request_stop",
        "settle",
        "fire",
        "change_wait",
        "claim_due",
    ),
    *("lease_within", "change_limit"),
    *("send", "keep_event", "settle_event", "tag", "mark", "pause_lane", "unpause_lane"),
    *(
        "set_aside",
        "report",
        "leave",
        "trim",
        "ack",
        "recode",
        "recode_signals",
        "erase",
        "restore",
        "fence",
        "forget",
        "pin",
        "note",
        "note_audit",
        "forget_audit",
        "take_notices",
        "change_notice",
    ),
    "tidy",
)
TRIP = 300
"""Microseconds that a request or a reply takes to a store that is elsewhere."""
WORK = 60
"""Microseconds that the store takes for a call."""
_CAPABILITIES = Capabilities(
    compares=True,
    takes_head=True,
    durable=True,
    single_writer=True,
    recodes=True,
    retains=True,
    restores=True,
    has_inbox=True,
    has_events=True,
    audits=True,
    has_labels=True,
    has_notices=True,
    pauses=True,
    has_children=True,
    limits=True,
    undoes=True,
)


class StoreClock:
    """The clock of the store, which is right."""

    def __init__(self, world: Surroundings) -> None:
        self._hub = world.hub

    def now(self) -> datetime:
        return BEGAN + timedelta(microseconds=self._hub.now)

    def monotonic(self) -> float:
        return self._hub.now / SECOND

    async def sleep_until(self, at: datetime) -> None:
        raise AssertionError("a store does not sleep")


class Rules(Protocol):
    """A real store, as far as a line asks it by itself; the rest is asked by name."""

    def put_blocking(self, commits: Sequence[Commit]) -> list[Verdict]: ...

    def renew_blocking(self, held: Sequence[Lease], ttl: timedelta, /) -> list[Lease | Verdict]: ...

    def release_blocking(self, lease: Lease) -> None: ...

    def report_blocking(self, worker: WorkerRow, ttl: timedelta) -> None: ...

    def changes(self) -> int: ...


class Blobs(CheckpointBlobStore, RestoringBlobs, RetainingBlobStore, Protocol):
    """Where artifacts are kept."""


class Shared(ABC):
    """What all processes see of a store, and whether it can be reached."""

    def __init__(self, world: Surroundings, *, is_remote: bool = False) -> None:
        self.world = world
        self.is_remote = is_remote
        self.clock = StoreClock(world)
        self.away_until = 0
        self.full_until = 0

    @abstractmethod
    def open_for(self, process: SimProcess) -> Opened:
        """Return a process's line to the store."""

    @abstractmethod
    def row(self, run_id: str) -> RunRow | None:
        """Return how a run stands, whatever happens to lines."""

    @abstractmethod
    def plain(self) -> Opened:
        """Return the store as it is once the world is over, for those who check; nothing happens to it."""

    def copied(self) -> Any:
        """Return a copy of what is kept, to go on from; none if that cannot be had."""
        return None

    def turn_to(self, copied: Any) -> None:
        """Go on with what such a copy holds."""
        raise NotImplementedError

    @abstractmethod
    def abandon(self, process: SimProcess) -> None:
        """Let go of what a process held that is killed."""

    @abstractmethod
    def lose_power(self, label: str) -> None:
        """Keep what a power cut at a point leaves. All processes of the machine are gone already."""

    @abstractmethod
    def flaws(self) -> list[str]:
        """Return what is wrong with the store itself, whatever it keeps."""

    @abstractmethod
    def close(self) -> None:
        """Free what outlives the world."""


class SharedStore(Shared):
    """The rules of a store, in memory that is never lost."""

    def __init__(self, world: Surroundings, *, is_remote: bool = False, is_awaited: bool = False) -> None:
        super().__init__(world, is_remote=is_remote or is_awaited)
        self._is_awaited = is_awaited
        self.data = MemoryData()

    def open_for(self, process: SimProcess) -> Opened:
        clock = self.clock if self.is_remote else process.system.clock
        memory = MemoryStore(clock, self.data)
        elsewhere: type[Line] = AwaitedLine if self._is_awaited else RemoteLine
        kind: type[Line] = elsewhere if self.is_remote else LocalLine
        line = kind(self, process, memory)
        return Opened(cast(CheckpointStore, line), BlobLine(line, memory.artifacts), "simulated:")

    def row(self, run_id: str) -> RunRow | None:
        log = self.data.logs.get(run_id)
        standing = log.standing if log is not None else None
        return standing.row if standing is not None else None

    def copied(self) -> MemoryData:
        return copy_of(self.data)

    def turn_to(self, copied: MemoryData) -> None:
        self.data = copy_of(copied)

    def plain(self) -> Opened:
        memory = MemoryStore(self.clock, self.data)
        for run_id in self.data.logs:  # nothing is written any more, so one look at each is enough
            memory.lines.known(run_id).read = {}
        return Opened(memory, memory.artifacts, "simulated:")

    def abandon(self, process: SimProcess) -> None:
        pass  # a line holds nothing

    def lose_power(self, label: str) -> None:
        pass  # it is elsewhere

    def flaws(self) -> list[str]:
        return []

    def close(self) -> None:
        pass


class Line:
    """One process's line to the store."""

    looks_every = 0.25
    tells_pauses = True

    def __init__(self, shared: Shared, process: SimProcess, rules: Rules) -> None:
        self.shared = shared
        self.process = process
        self.rules = rules
        self._world = shared.world
        self.capabilities = msgspec.structs.replace(_CAPABILITIES, remote=shared.is_remote)

    def do(self, name: str, work: Callable[[], T], *, commits: Sequence[Commit] = ()) -> T:
        """Do what a request asks for, once it has reached the store; the reply may still be lost."""
        process, world = self.process, self._world
        if process.is_dead:
            raise Dead
        number = process.count(name)
        fault = world.reach(process, f"before {name} {number}", self.possible(name, commits))
        if fault is Fault.TORN:
            self._tear(commits)
        self.check_reachable(is_write=True)
        if fault is Fault.LOST_REQUEST:
            process.was_cut_off = True
            raise self._lost(name)
        result = self._judged(name, work)
        if fault is Fault.DOUBLED:
            result = self._judged(name, work)
        elif fault is Fault.REPEATED_LATE:
            world.hub.at(world.hub.now + 40 * SECOND, partial(self._repeat, work))
        world.ledger.note_write(process, name, number, commits, result)
        if world.reach(process, f"after {name} {number}", AFTER) is Fault.LOST_REPLY:
            process.was_cut_off = True
            raise self._lost(name)
        return result

    def _work(self, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> Callable[[], Any]:
        work = partial(finished, getattr(self.rules, name), given, named)
        return partial(self._send, work, *given[:2]) if name == "send" else work

    def _send(self, work: Callable[[], Sending], run_id: str, signal: SignalRow) -> Sending:
        verdict = work()
        if verdict is Sending.SENT:
            self._world.ledger.sent.append((run_id, signal.signal_id))
        return verdict

    def possible(self, name: str, commits: Sequence[Commit]) -> tuple[Fault, ...]:
        """Return what may go wrong before a request is done."""
        possible = BEFORE if name not in SAFE_TWICE else BEFORE_TWICE
        is_group = len(commits) > 1 and len({commit.run_id for commit in commits}) > 1
        return (*possible, Fault.TORN) if is_group else possible

    if TYPE_CHECKING:

        def carry_out(self, work: Callable[[], T]) -> T:
            """Let the store do something."""
    else:
        carry_out = staticmethod(call)

    def _judged(self, name: str, work: Callable[[], T]) -> T:
        try:
            return self.carry_out(work)
        except EverstepError as error:
            self._world.ledger.note_refusal(self.process, name, error)
            raise

    def _tear(self, commits: Sequence[Commit]) -> None:
        """Take the first run's commits of a group; then the process dies."""
        first = [commit for commit in commits if commit.run_id == commits[0].run_id]
        self._world.ledger.note_write(self.process, "put", 0, first, self.rules.put_blocking(first))
        self._world.kill(self.process)

    def _repeat(self, work: Callable[[], object]) -> None:
        try:
            work()
        except EverstepError:
            return  # no caller waits for it

    def look(self, name: str, work: Callable[[], T]) -> T:
        """Do what a question asks for."""
        if self.process.is_dead:
            raise Dead
        if self._world.hub.now < self.shared.away_until:
            self.check_reachable(is_write=False)
        return self.carry_out(work)

    def check_reachable(self, *, is_write: bool) -> None:
        """Raise while the store is away, or full."""
        now = self._world.hub.now
        if now < self.shared.away_until:
            self.process.was_cut_off = True
            raise StoreUnavailable("the store is away.", fix="It comes back.")
        if is_write and now < self.shared.full_until:
            self.process.was_cut_off = True
            raise StoreNotWritable("the store is full.", fix="There is room again later.")

    def _lost(self, name: str) -> StoreUnavailable:
        return StoreUnavailable(f"the connection broke during {name}.", fix="Ask again.")

    def changes(self) -> int:
        return 0 if self.process.is_dead else self.carry_out(self.rules.changes)

    async def now(self) -> datetime | None:
        return self.look("now", self.shared.clock.now) if self.shared.is_remote else None

    async def close(self) -> None:
        """The line ends with its process."""


class LocalLine(Line):
    """A store on the same machine, as a SQLite file is: calls are short, and made wherever it suits."""

    async def put(self, commits: Sequence[Commit]) -> list[Verdict]:
        return self.put_blocking(commits)

    def put_blocking(self, commits: Sequence[Commit]) -> list[Verdict]:
        self._world.hub.pass_time(WORK)
        return self.do("put", partial(self.rules.put_blocking, commits), commits=commits)

    def renew_blocking(self, leases: Sequence[Lease], ttl: timedelta) -> list[Lease | Verdict]:
        self._world.hub.pass_time(WORK)
        return self.do("renew", partial(self.rules.renew_blocking, leases, ttl))

    def release_blocking(self, lease: Lease) -> None:
        self._world.hub.pass_time(WORK)
        self.do("release_lease", partial(self.rules.release_blocking, lease))

    def held_blocking(self, run_ids: Collection[str]) -> Held:
        self._world.hub.pass_time(WORK)
        found: Held = self.look("held", partial(cast(Any, self.rules).held_blocking, run_ids))
        return found

    def report_blocking(self, worker: WorkerRow, ttl: timedelta) -> None:
        self._world.hub.pass_time(WORK)
        self.do("report", partial(self.rules.report_blocking, worker, ttl))

    async def ask(self, name: str, given: tuple[Any, ...], named: dict[str, Any], *, writes: bool) -> Any:
        self._world.hub.pass_time(WORK)
        if writes:
            return self.do(name, self._work(name, given, named))
        if self.process.is_dead:
            raise Dead
        if self._world.hub.now < self.shared.away_until:
            self.check_reachable(is_write=False)
        return self.carry_out(partial(finished, getattr(self.rules, name), given, named))


class AwaitedLine(Line):
    """A store elsewhere that has only calls to await: they take their time, in which others go on."""

    async def put(self, commits: Sequence[Commit]) -> list[Verdict]:
        await asyncio.sleep(TRIP / SECOND)
        verdicts = self.do("put", partial(self.rules.put_blocking, commits), commits=commits)
        await asyncio.sleep(TRIP / SECOND)
        return verdicts

    async def ask(self, name: str, given: tuple[Any, ...], named: dict[str, Any], *, writes: bool) -> Any:
        await asyncio.sleep(TRIP / SECOND)
        work = self._work(name, given, named)
        found = self.do(name, work) if writes else self.look(name, work)
        await asyncio.sleep(TRIP / SECOND)
        return found


class RemoteLine(AwaitedLine):
    """A store elsewhere, as those that ship with everstep are: a thread may wait for it, and what a resume
    reads comes with the claim.
    """

    def put_blocking(self, commits: Sequence[Commit]) -> list[Verdict]:
        return self._travel("put", partial(self.rules.put_blocking, commits), commits)

    def renew_blocking(self, leases: Sequence[Lease], ttl: timedelta) -> list[Lease | Verdict]:
        return self._travel("renew", partial(self.rules.renew_blocking, leases, ttl))

    def release_blocking(self, lease: Lease) -> None:
        self._travel("release_lease", partial(self.rules.release_blocking, lease))

    def held_blocking(self, run_ids: Collection[str]) -> Held:
        hub = self._world.hub
        hub.pass_time(2 * TRIP)
        found: Held = self.look("held", partial(cast(Any, self.rules).held_blocking, run_ids))
        return found

    def report_blocking(self, worker: WorkerRow, ttl: timedelta) -> None:
        self._travel("report", partial(self.rules.report_blocking, worker, ttl))

    def _travel(self, name: str, work: Callable[[], T], commits: Sequence[Commit] = ()) -> T:
        hub = self._world.hub
        hub.pass_time(TRIP)
        found = self.do(name, work, commits=commits)
        hub.pass_time(TRIP)
        return found

    async def take_up(self, run_id: str, **how: Any) -> TakenUp:
        await asyncio.sleep(TRIP / SECOND)
        lease = self.do("lease", partial(finished, cast(Any, self.rules).lease, (run_id,), how))
        row = finished(cast(Any, self.rules).run, (run_id,), {})
        tail = finished(cast(Any, self.rules).tail, (run_id,), {})
        await asyncio.sleep(TRIP / SECOND)
        return TakenUp(lease, row, tail)


def copy_of(data: MemoryData) -> MemoryData:
    """Return the same data for another world. Entries are never changed, so they are shared."""
    twin = MemoryData()
    twin.kept, twin.names = data.kept.copy(), data.names.copy()
    twin.writes, twin.numbers = data.writes, data.numbers
    for run_id, log in data.logs.items():
        twin.logs[run_id] = copied = MemoryLog()
        copied.places, copied.standing = log.places.copy(), log.standing
    return twin


def finished(call: Callable[..., Coroutine[Any, Any, T]], given: tuple[Any, ...], named: dict[str, Any]) -> T:
    """Return what a call gives that never waits."""
    asking = call(*given, **named)
    try:
        asking.send(None)
    except StopIteration as done:
        found: T = done.value
        return found
    raise AssertionError("a store on this machine does not wait")


def method(name: str, *, writes: bool) -> Callable[..., Any]:
    def ask(self: Any, *given: Any, **named: Any) -> Any:
        return self.ask(name, given, named, writes=writes)

    ask.__name__ = name
    return ask


for _name in READS:
    setattr(Line, _name, method(_name, writes=False))
for _name in WRITES:
    setattr(Line, _name, method(_name, writes=True))


class BlobLine:
    """Artifacts, by the same line."""

    def __init__(self, line: Line, blobs: Blobs) -> None:
        self._line = line
        self._blobs = blobs

    def put_checkpoint_blob(
        self, header: bytes, data: bytes, *, content_type: str, plain: bytes | None = None
    ) -> ArtifactRef:
        work = partial(self._blobs.put_checkpoint_blob, header, data, content_type=content_type, plain=plain)
        return self._line.do("blob", work)

    def get_checkpoint_blob(self, ref: ArtifactRef) -> bytes:
        return self._line.look("blob", partial(self._blobs.get_checkpoint_blob, ref))

    def restore_checkpoint_blob(self, ref: ArtifactRef, stored: bytes) -> None:
        self._line.do("blob", partial(self._blobs.restore_checkpoint_blob, ref, stored))

    def list_checkpoint_blobs(self, *, after: str = "", limit: int = 1000) -> list[Any]:
        return self._line.look("blobs", partial(self._blobs.list_checkpoint_blobs, after=after, limit=limit))

    def delete_checkpoint_blobs(self, keys: Sequence[str], *, untouched_for: timedelta) -> list[str]:
        work = partial(self._blobs.delete_checkpoint_blobs, keys, untouched_for=untouched_for)
        return self._line.do("unblob", work)
