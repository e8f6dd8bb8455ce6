"""People of a simulated fleet who act on many runs while others act on single ones; what must come of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from everstep import Host, chain, wait
from everstep.client.views import RunInfo
from everstep.errors import BadRequest, EverstepError, RunErased, StoreError
from everstep.graph.author.flow import Flow
from everstep.graph.author.node import Node
from everstep.model.acts import AuditOutcome, AuditRow
from everstep.model.commits import BULK_FLOW
from everstep.model.enums import Status, Trigger
from everstep.ports.audit import AuditFilter
from everstep.stores.memory import MemoryStore
from everstep.testing.simulation.checks import Broken, Judge, Kept, Reader
from everstep.testing.simulation.fleet import FleetTrial, FleetWorld, WorkerPlace, persist
from everstep.testing.simulation.hub import SECOND
from everstep.testing.simulation.store import SharedStore, finished
from everstep.testing.simulation.trial import End
from everstep.testing.simulation.world import Here, World
from tests.simulation.stores import place
from tests.simulation.users.flows import effect, flow

LOOK = 2.0
OPERATOR, OTHER = "operator", "other"


def _pay(x: int) -> int:
    if x % 2:
        raise ValueError("the bank is down")
    return x


def fragile() -> Flow:
    """Fails each time if its number is odd."""
    lead = effect("lead", ["x"], "led", lambda x: x)
    return flow("fragile", [lead, Node(_pay, name="pay", inputs=["x"], output="paid")], "partial")


def asking() -> Flow:
    """Waits for a person."""
    takes = effect("take", ["ask"], "took", lambda ask: ask)
    return flow("asking", [chain(wait.question("ask", answer_type=int), takes)], "strong")


FLOWS: Mapping[str, Flow] = {made.name: made for made in (fragile(), asking())}
ORDERS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("retry", "status = failed", {}),
    ("retry", "flow = fragile", {"at_most": 2}),
    ("tag", "status in (failed, halted)", {"add": ["seen"]}),
    ("tag", "not tag = seen", {"add": ["seen"], "remove": ["old"]}),
    ("pin", "flow = fragile and status != running", {}),
    ("unpin", "pinned = true", {}),
    ("pause", "status = halted", {}),
    ("unpause", "paused = true", {}),
    ("fork", "parent is not set", {}),
    ("cancel", "status in (running, halted)", {"per_second": 2}),
    ("erase", "status = cancelled", {}),
)


@dataclass(frozen=True)
class Start:
    """A run that is started."""

    at: float
    run_id: str
    flow: str
    x: int


@dataclass(frozen=True)
class Single:
    """An act on one run meanwhile."""

    at: float
    what: str
    run_id: str


@dataclass(frozen=True)
class Script:
    """What happens in a fleet besides faults."""

    starts: tuple[Start, ...]
    singles: tuple[Single, ...]
    orders: tuple[tuple[float, int], ...]
    """When what is done to many, as a place in `ORDERS`."""


def script(seed: int) -> Script:
    """Return what happens, as it follows from a seed."""
    chance = Random(seed)

    def at(least: float, most: float) -> float:
        return round(chance.uniform(least, most), 3)

    starts = tuple(
        Start(at(0, 3), f"R{k}", chance.choice(list(FLOWS)), chance.randint(0, 3))
        for k in range(chance.randint(3, 6))
    )
    singles = tuple(
        Single(at(1, 9), chance.choice(["reopen", "answer", "cancel", "tag"]), chance.choice(starts).run_id)
        for _ in range(chance.randint(1, 5))
    )
    orders = sorted((at(2, 8), chance.randrange(len(ORDERS))) for _ in range(chance.randint(1, 3)))
    return Script(starts, singles, tuple(orders))


class Person:
    """Starts runs and acts on single ones, or gives the orders for many, and stays until those are done."""

    def __init__(self, name: str, plan: Script) -> None:
        self._name = name
        self._plan = plan

    def __call__(self, world: FleetWorld, here: Here) -> None:
        with here.host() as host:
            agenda: list[tuple[float, str, Any]] = []
            if self._name == OTHER:
                agenda += [
                    (one.at, f"start {one.run_id}", partial(_start, host, one)) for one in self._plan.starts
                ]
                agenda += [
                    (one.at, f"{one.what} {one.run_id} {k}", partial(_single, host, one))
                    for k, one in enumerate(self._plan.singles)
                ]
            else:
                agenda += [
                    (at, f"order {k}", partial(_order, host, which))
                    for k, (at, which) in enumerate(self._plan.orders)
                ]
            for at, label, act in sorted(agenda, key=lambda it: it[:2]):
                here.sleep(max(0.0, at - world.hub.now / SECOND))
                if label not in world.notes:
                    world.notes[label] = persist(here, act)
            while not _are_done(here, host):
                here.sleep(LOOK)


def _are_done(here: Here, host: Host) -> bool:
    rows: list[RunInfo] = persist(here, partial(host.runs, limit=100))
    return all(row.status.is_final or row.paused_at or _waits(here, host, row) for row in rows)


def _waits(here: Here, host: Host, row: RunInfo) -> bool:
    """True of a run that is not about to take in an answer."""
    if row.status is not Status.HALTED:
        return False
    return not persist(here, partial(host.waits, row.run_id, status="settled"))


def _start(host: Host, one: Start) -> None:
    inputs = {"x": one.x} if one.flow == "fragile" else {}
    with suppress(RunErased):  # the life before this one did, and the run is gone by now
        host.start(FLOWS[one.flow], inputs, run_id=one.run_id, tags=["old"])


def _single(host: Host, one: Single) -> object:
    try:
        if one.what == "reopen":
            return host.fleet.reopen(one.run_id, FLOWS[host.info(one.run_id).flow])
        if one.what == "answer":
            return [host.answer(opened.id, 7) for opened in host.waits(one.run_id)]
        if one.what == "tag":
            return host.fleet.tag(one.run_id, ["seen"])
        return host.cancel(one.run_id)
    except StoreError:
        raise
    except EverstepError as error:  # it has ended, is gone, or has another owner
        return error.code


def _order(host: Host, which: int) -> object:
    act, where, options = ORDERS[which]
    try:
        return host.fleet.bulk(act, where, by=OPERATOR, comment="for many", **options)
    except BadRequest as error:
        return error.code


class BulkTrial(FleetTrial):
    """Two workers that were told of no bulk runs, and people. A local store is on one machine."""

    def __init__(self, plan: Script, *, is_remote: bool = False, skew: float = 0.0) -> None:
        flows, elsewhere = list(FLOWS.values()), "m2" if is_remote else "m1"
        workers = {"worker-1": WorkerPlace(flows, "m1"), "worker-2": WorkerPlace(flows, elsewhere)}
        people = {name: Person(name, plan) for name in (OPERATOR, OTHER)}
        super().__init__(workers, people, is_remote=is_remote, skew=skew)

    def judge(self, world: World, reader: Reader, whole: Mapping[str, End] | None) -> list[Broken]:
        assert isinstance(world, FleetWorld) and isinstance(world.store, SharedStore)
        judge = Judge(world, reader)
        broken = list(judge.all(world.explained))
        store = MemoryStore(world.store.clock, world.store.data)
        rows = finished(store.audit, (AuditFilter(limit=100_000),), {})
        for kept in judge.kept.values():
            if kept.row.flow_id == BULK_FLOW:
                broken += _judged(kept, judge.kept, rows, world.ledger.puts)
        return broken


def _judged(
    bulk: Kept, kept: Mapping[str, Kept], rows: list[AuditRow], puts: Mapping[tuple[str, int], int]
) -> Iterator[Broken]:
    """Yield runs that were acted on twice, or are said to be and were not."""
    name = bulk.row.run_id
    if bulk.row.status is not Status.COMPLETED or bulk.folded is None:
        yield Broken("bulk", f"bulk run {name} is {bulk.row.status.value}.")
        return
    told: Mapping[str, Any] = bulk.folded.space.peek("progress", "")
    act = bulk.folded.space.peek("order", "")["act"]
    mine = [row for row in rows if f"(bulk {name})" in row.comment]
    done = Counter(row.run_id or "" for row in mine if row.outcome is AuditOutcome.DONE)
    if done and max(done.values()) > 1:
        yield Broken("bulk", f"{act} was done more than once: {dict(done)}.")
    if told["done"] != done.total():
        yield Broken("bulk", f"{act} says {told['done']}, and was done to {dict(done)}.")
    many = told["done"] + sum(told["skipped"].values()) + sum(told["refused"].values())
    if many != told["looked_at"]:
        yield Broken("bulk", f"{act} looked at {told['looked_at']}, and says what came of {many}.")
    for run_id, one in kept.items():
        own = [record for record in one.records if record.sequence >= one.row.first]
        records = [record for record in own if record.act and f"(bulk {name})" in record.act.comment]
        triggers = Counter(record.trigger for record in records)
        is_ending = one.row.status is Status.CANCELLED or one.row.stop_request is not None
        if act == "cancel" and done[run_id] and not is_ending:
            yield Broken("bulk", f"{act} was done to {run_id!r}, which is {one.row.status.value}.")
        wanted = {"retry": Trigger.RESUME, "fork": Trigger.FORK}.get(act)
        if wanted is not None and triggers != Counter({wanted: done[run_id]} if done[run_id] else {}):
            yield Broken("bulk", f"{act} has {dict(triggers)} in run {run_id!r}, {done[run_id]} in the log.")
        if done[run_id] and act != "fork" and puts[run_id, one.row.first] > puts[name, 1]:
            yield Broken("bulk", f"{act} was done to {run_id!r}, which is newer.")


def trial(seed: int, store: str) -> BulkTrial:
    """Return what happens in a fleet, as it follows from a seed."""
    return BulkTrial(script(seed), **place(seed, store))
