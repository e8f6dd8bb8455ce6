"""What the conformance suite works with: a kit to open the store, clients of it, and chains to put."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from everstep.model.commits import StartedBy, Tag, Told
from everstep.model.enums import Status
from everstep.model.leases import Lease, Process, Quota, WorkerRow
from everstep.model.waits import HadEvent, SettledBy, WaitChange, WaitRow
from everstep.ports.store import (
    Admission,
    Capabilities,
    Commit,
    RunFilter,
    RunRow,
    StoredRecord,
    Traits,
    Verdict,
    WaitFilter,
)
from everstep.ports.system import Clock
from everstep.registry import Opened
from everstep.testing.clock import ManualClock

T = TypeVar("T")
Group = TypeVar("Group", bound=Callable[..., Any])
TTL = timedelta(seconds=30)


@dataclass(frozen=True)
class StoreKit:
    """How the suite gets at the store under test."""

    open: Callable[[], Opened]
    """Return a fresh client on the same, at first empty, data; two calls are as two processes."""
    clock: ManualClock
    """The clock that every client was given."""
    capabilities: Capabilities
    """What the store is meant to promise."""
    open_at: Callable[[Clock], Opened] | None = None
    """Return a client with another clock. Wanted of a remote store, which goes by its own."""
    most: int = 10_000
    """How many runs or waits the tests make that are about a crowd; a place with a quota takes fewer."""


@dataclass
class Chain:
    """The commits of one run, as its owner makes them."""

    run_id: str
    clock: ManualClock
    owner: str = field(default_factory=lambda: str(uuid4()))
    flow_id: str = "flow"
    flow_version: str = "1"
    flow_hash: str = "0" * 64
    blueprint: bytes = b'{"entry":[],"nodes":[]}'
    process: Process | None = None
    parent_run_id: str | None = None
    forked_at: int | None = None
    base: str | None = None
    has_lease: bool = True
    traits: Traits = field(default_factory=Traits)
    tags: tuple[Tag, ...] = ()
    had: tuple[HadEvent, ...] = ()
    started_by: StartedBy | None = None
    told: Told | None = None
    epoch: int = 1
    head: Commit | None = None

    def admission(self, body: bytes = b"first", **changes: Any) -> Commit:
        """Return the commit that admits the run."""
        admission = Admission(
            flow_id=self.flow_id,
            flow_version=self.flow_version,
            flow_hash=self.flow_hash,
            blueprint=self.blueprint,
            parent_run_id=self.parent_run_id,
            forked_at=self.forked_at,
            created_at=self.clock.now(),
            owner=self.owner if self.has_lease else None,
            ttl=TTL,
            process=self.process,
            tags=self.tags,
            had=self.had,
            started_by=self.started_by,
            told=self.told,
            **self.traits.traits(),
        )
        fields: dict[str, Any] = {
            "run_id": self.run_id,
            "sequence": 1 if self.forked_at is None else self.forked_at + 1,
            "checkpoint_id": str(uuid4()),
            "base": self.base,
            "epoch": 1 if self.has_lease else 0,
            "body": body,
            "status": Status.RUNNING,
            "admission": admission,
        }
        return Commit(**(fields | changes))

    def following(self, body: bytes = b"step", **changes: Any) -> Commit:
        """Return a commit that follows the head, or, changed, one that ought to be refused."""
        assert self.head is not None
        fields: dict[str, Any] = {
            "run_id": self.run_id,
            "sequence": self.head.sequence + 1,
            "checkpoint_id": str(uuid4()),
            "base": self.head.checkpoint_id,
            "epoch": self.epoch,
            "body": body,
        }
        return Commit(**(fields | changes))

    def final(self, status: Status = Status.COMPLETED, **changes: Any) -> Commit:
        """Return the commit that ends the run."""
        changes = {"status": status, "ended_at": self.clock.now(), "answers_stop": True} | changes
        return self.following(b"last", **changes)

    def wait(self, wait_id: str, **changes: Any) -> WaitRow:
        """Return a wait for this run to open: one for an answer, unless `due_at` makes it due."""
        fields: dict[str, Any] = {
            "wait_id": wait_id,
            "run_id": self.run_id,
            "flow_id": self.flow_id,
            "path": "ask",
            "visit": 1,
            "kind": "approval",
            "opened_at": self.clock.now(),
            "details": b"{}",
        }
        return WaitRow(**(fields | changes))

    def lease(self) -> Lease:
        """Return the lease the admission gave."""
        return Lease(self.run_id, self.owner, self.epoch, self.clock.now() + TTL, self.process)


class Client:
    """A store as a test calls it: without awaiting, on a loop of its own."""

    def __init__(self, kit: StoreKit) -> None:
        self.clock = kit.clock
        self._most = kit.most
        self._runner = asyncio.Runner()
        self.opened = self._runner.run(_open(kit))
        self.store = self.opened.store
        self._is_closed = False

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def crowd(self, many: int) -> int:
        """Return how many make a crowd here, where elsewhere it is so many."""
        return min(many, self._most)

    def put(self, *commits: Commit) -> list[Verdict]:
        return self.call(self.store.put(commits))

    def accept(self, chain: Chain, commit: Commit) -> Commit:
        """Put a commit that must be accepted, and let the chain go on from it."""
        assert self.put(commit) == [Verdict.ACCEPTED]
        chain.head = commit
        return commit

    def admit(self, run_id: str, **about: Any) -> Chain:
        """Admit a run and return its chain."""
        chain = Chain(run_id, self.clock, **about)
        self.accept(chain, chain.admission())
        return chain

    def trim(self, run_id: str, before: int) -> int:
        return self.call(self.store.trim(run_id, before=before))

    def extend(self, chain: Chain, bodies: Sequence[bytes]) -> list[Commit]:
        """Put one record after the other."""
        return [self.accept(chain, chain.following(body)) for body in bodies]

    def get(self, run_id: str, *, first: int = 1, last: int | None = None) -> list[StoredRecord]:
        return self.call(self.store.get(run_id, first=first, last=last))

    def tail(self, run_id: str, *, at: int | None = None) -> list[StoredRecord]:
        return self.call(self.store.tail(run_id, at=at))

    def claim(
        self,
        run_id: str,
        owner: str = "another",
        *,
        ttl: timedelta = TTL,
        process: Process | None = None,
        void_epoch: int | None = None,
    ) -> Lease:
        work = self.store.lease(run_id, owner=owner, ttl=ttl, process=process, void_epoch=void_epoch)
        return self.call(work)

    def renew(self, *leases: Lease, ttl: timedelta = TTL) -> list[Lease | Verdict]:
        return self.call(self.store.renew(leases, ttl))

    def release(self, lease: Lease) -> None:
        self.call(self.store.release_lease(lease))

    def halt(self, chain: Chain, *waits: WaitRow) -> Commit:
        """Open these waits and let the run halt."""
        return self.accept(chain, chain.following(b"halt", status=Status.HALTED, waits=waits))

    def halted(self, run_id: str, wait_id: str, *, due_in: float | None = None, **about: Any) -> Chain:
        """Admit a run that halts at once, for an answer or for so many seconds."""
        chain = self.admit(run_id, **about)
        due_at = None if due_in is None else self.clock.now() + timedelta(seconds=due_in)
        self.halt(chain, chain.wait(wait_id, due_at=due_at))
        return chain

    def wait(self, wait_id: str) -> WaitRow:
        found = self.call(self.store.wait(wait_id))
        assert found is not None, f"the store does not know wait {wait_id!r}"
        return found

    def waits(self, **wanted: Any) -> list[str]:
        return [wait.wait_id for wait in self.call(self.store.waits(WaitFilter(**wanted)))]

    def settle(
        self,
        wait_id: str,
        answer: bytes | None = b"1",
        *,
        by: SettledBy = SettledBy.ANSWER,
        token_hash: bytes | None = None,
    ) -> bool:
        """Settle a wait; the row that comes with the reply must be the wait as it is."""
        done, row = self.call(self.store.settle(wait_id, by=by, answer=answer, token_hash=token_hash))
        assert row == self.call(self.store.wait(wait_id))
        return done

    def fire(self, run_id: str) -> list[str]:
        return [wait.wait_id for wait in self.call(self.store.fire(run_id))]

    def change(self, wait_id: str, **changes: Any) -> WaitRow | None:
        return self.call(self.store.change_wait(wait_id, WaitChange(**changes)))

    def claim_due(
        self,
        limit: int = 100,
        *,
        flows: Collection[str] = ("0" * 64,),
        flow_id: str = "flow",
        names: Collection[str] = (),
        apart_from: Collection[str] = (),
        new_owner: Callable[[], str] = lambda: str(uuid4()),
        process: Process | None = None,
        quotas: Mapping[str, Quota] | None = None,
    ) -> list[tuple[RunRow, Lease]]:
        """Claim what is due of one flow by its hashes, or of several by their names."""
        work = self.store.claim_due(
            flows=[(name, flow_hash) for name in names or [flow_id] for flow_hash in flows],
            new_owner=new_owner,
            ttl=TTL,
            process=process,
            limit=limit,
            apart_from=apart_from,
            quotas=quotas,
        )
        return self.call(work)

    def due(self, limit: int = 100, **narrowed: Any) -> list[str]:
        """Claim what is due and return the ids of those runs."""
        return [row.run_id for row, _ in self.claim_due(limit, **narrowed)]

    def next_due(self, after: datetime | None = None) -> datetime | None:
        return self.call(self.store.next_due(after=after))

    def leased(self, owners: Collection[str] | None = None) -> list[str]:
        return [row.run_id for row in self.call(self.store.leased(owners))]

    def set_aside(self, run_id: str, epoch: int, reason: str = "a record is damaged") -> bool:
        return self.call(self.store.set_aside(run_id, epoch=epoch, reason=reason))

    def report(self, worker: WorkerRow, ttl: timedelta = TTL) -> None:
        self.call(self.store.report(worker, ttl))

    def workers(self) -> list[WorkerRow]:
        return self.call(self.store.workers())

    def row(self, run_id: str) -> RunRow:
        found = self.call(self.store.run(run_id))
        assert found is not None, f"the store does not know run {run_id!r}"
        return found

    def listing(self, **wanted: Any) -> list[str]:
        return [row.run_id for row in self.call(self.store.list(RunFilter(**wanted)))]

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.call(self.store.close())
            self._runner.close()


async def _open(kit: StoreKit) -> Opened:
    return kit.open()


def fork_of(base: Commit, run_id: str, clock: ManualClock, **about: Any) -> Chain:
    """Return a chain that goes on from a commit of another run, without a lease unless told otherwise."""
    fields: dict[str, Any] = {
        "parent_run_id": base.run_id,
        "forked_at": base.sequence,
        "base": base.checkpoint_id,
        "has_lease": False,
    }
    return Chain(run_id, clock, **(fields | about))


def bodies_of(records: Sequence[StoredRecord]) -> list[bytes]:
    return [record.body for record in records]


def kept(commits: Sequence[Commit]) -> list[StoredRecord]:
    """Return commits as a store should give them back."""
    return [StoredRecord(c.sequence, c.checkpoint_id, c.keyframe, c.body) for c in commits]


_NEEDS = "_everstep_needs_many_writers"


def for_many_writers(tests: Group) -> Group:
    """Mark tests, or all tests of a group, that a store may fail which declares `single_writer=False`."""
    found = vars(tests).values() if isinstance(tests, type) else [tests]
    for test in found:
        if callable(test) and getattr(test, "__name__", "").startswith("test_"):
            setattr(test, _NEEDS, True)
    return tests


class Suite:
    """The fixtures that every part of the suite uses."""

    @pytest.fixture(autouse=True)
    def promised(self, request: pytest.FixtureRequest, store_kit: StoreKit) -> None:
        """Leave out, loudly, what the store does not promise."""
        if getattr(request.function, _NEEDS, False) and not store_kit.capabilities.single_writer:
            pytest.skip("this store declares single_writer=False: hosts let no workers on it")

    @pytest.fixture
    def store_kit(self) -> StoreKit:
        """The one fixture to supply: override it."""
        raise NotImplementedError("a class that inherits the suite supplies the fixture store_kit")

    @pytest.fixture
    def clients(self, store_kit: StoreKit) -> Iterator[Callable[[], Client]]:
        """Open clients, and close them when the test is over."""
        opened: list[Client] = []

        def open_one() -> Client:
            opened.append(Client(store_kit))
            return opened[-1]

        yield open_one
        for client in opened:
            client.close()

    @pytest.fixture
    def client(self, clients: Callable[[], Client]) -> Client:
        return clients()
