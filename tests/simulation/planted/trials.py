"""General trials: flows in one process, in two that want the same run, and in fleets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from everstep import Context, Durability, Flow, Host, Node, node
from everstep.errors import DurabilityOff, FlowError, LeaseConflict, LeaseLost, StoreUnavailable
from everstep.model.enums import Status
from everstep.ports.store import RunRow
from everstep.testing.simulation.checks import Broken, Judge, Reader
from everstep.testing.simulation.faults import Decider, Fault
from everstep.testing.simulation.fleet import FleetTrial, FleetWorld, WorkerPlace, persist
from everstep.testing.simulation.hub import SECOND, current_thread
from everstep.testing.simulation.played import ITSELF, played
from everstep.testing.simulation.process import SimProcess
from everstep.testing.simulation.trial import RUN, End, FlowTrial, Trial, compared, ends_of
from everstep.testing.simulation.world import Here, World
from tests.simulation.flows import SUBJECTS
from tests.simulation.planted import flows

AGAIN = 10
"""Seconds after which a program tries again."""
_CLOCKS = (Fault.CLOCK_AHEAD, Fault.CLOCK_BACK)
STEADY = tuple(fault for fault in Fault if fault not in _CLOCKS)
"""All faults but clocks that jump: a pause of a second before a retry would last an hour after one."""


class Kind(NamedTuple):
    """A trial, how it is made, and which faults it is tried with."""

    make: Callable[[bool], Trial]
    """Given whether the store is elsewhere."""
    faults: Collection[Fault] = tuple(Fault)
    stores: Collection[bool] = (False, True)
    """Whether it is tried with a store elsewhere: some make sense only with one on the same machine."""
    is_long: bool = False
    """True if one schedule takes more than a tenth of a second."""
    is_fatal: bool = False
    """True if some run fails though nothing goes wrong."""


# -- several that want one run ----------------------------------------------------------------------------


class Contest(FlowTrial):
    """Two processes that both want to see the same run through, from different machines if they can."""

    def world(self, seed: int, decider: Decider) -> World:
        world = super().world(seed, decider)
        world.start("rival", self._program, machine="m2" if self._is_remote else "m1", after=1)
        return world


class Threads(FlowTrial):
    """A process with two threads that want the same run on one host, and a rival."""

    def world(self, seed: int, decider: Decider) -> World:
        world = World(seed, decider, is_remote=self._is_remote)
        world.start("app", self._both)
        world.start("rival", self._program, machine="m2" if self._is_remote else "m1", after=4)
        return world

    def _both(self, here: Here) -> None:
        with here.host(**self._options) as host:
            second = here.process.system.spawn(partial(self._insist, here, host, 2), "second")
            self._insist(here, host, 0)
            second.join()

    def _insist(self, here: Here, host: Host, after: float) -> None:
        """Ask for the run until it is over."""
        here.sleep(after)
        while True:
            try:
                if self._begin(here, host).status is not Status.HALTED:
                    return
            except (StoreUnavailable, LeaseLost, LeaseConflict) as error:
                here.world.ledger.tell(f"{here.process.tag} hears: {error}")
            here.sleep(AGAIN)


class Deploys(FlowTrial):
    """A process whose second life has a flow that keeps nothing. Where that is refused, it is rolled back."""

    def __init__(self, flow: Flow, other: Flow, inputs: Mapping[str, Any], *, is_remote: bool) -> None:
        super().__init__(flow, inputs, doubles=ITSELF, is_remote=is_remote)
        self._flows = self.flow, played(other, ITSELF)

    def _begin(self, here: Here, host: Host) -> Any:
        self.flow = self._flows[here.life == 2 and here.world.store.row(RUN) is not None]
        try:
            return super()._begin(here, host)
        except DurabilityOff as error:
            here.world.ledger.tell(f"{here.process.tag} hears: {error}")
            self.flow = self._flows[0]
            return super()._begin(here, host)


# -- fleets -----------------------------------------------------------------------------------------------


class Fleet:
    """A client that starts runs, and workers that drive whatever is due until all of it is done."""

    def __init__(
        self,
        flows: Sequence[Flow],
        runs: Mapping[str, tuple[int, Mapping[str, Any]]],
        *,
        workers: Mapping[str, str],
        is_remote: bool = False,
        groups: Iterable[str] = ("",),
        concurrency: int = 32,
    ) -> None:
        self._flows = [played(flow, ITSELF) for flow in flows]
        self._runs = runs
        """By id: which flow, and its inputs."""
        self._workers = workers
        self._is_remote = is_remote
        self._groups = list(groups)
        self._concurrency = concurrency

    def world(self, seed: int, decider: Decider) -> World:
        world = World(seed, decider, is_remote=self._is_remote)
        world.start("client", self._submit)
        for k, (name, machine) in enumerate(self._workers.items()):
            world.start(name, self._work, machine=machine, after=1 + k / 10)
        return world

    def _submit(self, here: Here) -> None:
        while True:
            try:
                with here.host() as host:
                    for k, (run_id, (which, inputs)) in enumerate(self._runs.items()):
                        group = self._groups[k % len(self._groups)] or None
                        host.start(self._flows[which], inputs, run_id=run_id, group=group)
                return
            except StoreUnavailable:
                here.sleep(AGAIN)

    def _work(self, here: Here) -> None:
        while not self._is_done(here.world):
            try:
                with here.host() as host:
                    host.work(self._flows, until_idle=True, concurrency=self._concurrency)
                self._look_at_rest(here)
            except StoreUnavailable as error:
                here.world.ledger.tell(f"{here.process.tag} hears: {error}")
            here.sleep(AGAIN)

    def _is_done(self, world: World) -> bool:
        rows = [world.store.row(run_id) for run_id in self._runs]
        return all(row is not None and row.status.is_final for row in rows)

    def _look_at_rest(self, here: Here) -> None:
        """A worker that has heard of no trouble is idle only if there is nothing that it could do."""
        rows = [row for run_id in self._runs if (row := here.world.store.row(run_id)) is not None]
        if here.process.was_cut_off or any(row.lease is not None for row in rows):
            return
        now = here.world.store.clock.now()
        due = [row.run_id for row in rows if _has_long_been_due(row, (now - row.created_at).total_seconds())]
        if due:
            said = f"{here.process.tag} says that nothing is due, though {', '.join(due)} could go on."
            here.world.troubles.append(said)

    def ends(self, world: World, reader: Reader) -> dict[str, End]:
        return ends_of(reader.kept(world))

    def judge(self, world: World, reader: Reader, whole: Mapping[str, End] | None) -> list[Broken]:
        judge = Judge(world, reader)
        broken = list(judge.all(world.explained))
        return broken + list(compared(ends_of(judge.kept), whole or {}))


def _has_long_been_due(row: RunRow, age: float) -> bool:
    return row.status is Status.RUNNING and age > 1


def hold_thread(seconds: float) -> None:
    """Be busy on this thread, as code is that computes."""
    thread = current_thread()
    if thread is not None:
        assert isinstance(thread.owner, SimProcess)
        thread.owner.hub.pass_time(round(seconds * SECOND))


def die() -> None:
    """End this process, as a fault in native code does."""
    thread = current_thread()
    if thread is not None:
        assert isinstance(thread.owner, SimProcess)
        thread.owner.world.kill(thread.owner)


def _slow_key(job: int) -> str:
    """A key that takes longer to make than a lease lasts, on the thread of the event loop."""
    hold_thread(45)
    return f"job-{job}"


def _grinding() -> Flow:
    """A job that keeps its worker's event loop from everything else for a while."""

    @node(output="found", effects="effectful", idempotency_key=_slow_key)
    def grind(job: int) -> int:
        return job * 2

    return Flow("a-grind", [grind], durability="strong")


def _jobs() -> Flow:
    """Two short effects."""

    @node(output="found", effects="effectful", idempotency_key="auto")
    async def compute(job: int) -> int:
        return job * 2

    @node(output="sent", effects="effectful", idempotency_key="auto")
    def send(found: int) -> int:
        return found + 1

    return Flow("jobs", [compute, send], durability="strong")


def _hauls(seconds: float = 70, count: int = 3) -> Flow:
    """Effects that take long."""

    def haul(load: int) -> int:
        hold_thread(seconds)
        return load + 1

    def leg(k: int) -> Node:
        source, output = f"load{k}" if k else "load", f"load{k + 1}"
        made = Node(haul, name=f"haul{k}", output=output, effects="effectful", idempotency_key="auto")
        return made.with_inputs(load=source)

    return Flow("hauls", [leg(k) for k in range(count)], durability="strong")


def _killers(attempts: int = 3) -> Flow:
    """Jobs of a minute, beside one that ends its process after a second."""

    @node(output="done", effects="effectful", idempotency_key="auto")
    async def work(job: int, ctx: Context) -> int:
        if job == 0:
            hold_thread(0.5)
            die()
        return job

    @node(output="slept", effects="effectful", idempotency_key="auto")
    def sleep(job: int) -> int:
        hold_thread(60)
        return job

    @node(output="end")
    def end(slept: int, done: int) -> int:
        return slept + done

    return Flow("killers", [work, sleep, end], durability=Durability("strong", max_resume_attempts=attempts))


def _flow_trial(
    make: Callable[[], Flow], inputs: Mapping[str, Any], *, kind: type[FlowTrial] = FlowTrial, **more: Any
) -> Callable[[bool], Trial]:
    def trial(is_remote: bool) -> Trial:
        return kind(make(), inputs, doubles=ITSELF, is_remote=is_remote, **more)

    return trial


def _deploys(is_remote: bool) -> Trial:
    return Deploys(flows.deliveries(), flows.deliveries("off"), {"order": 3}, is_remote=is_remote)


def _own_keys(is_remote: bool) -> Trial:
    """An atomic flow whose effect has a key of its own making; a plain one where that is refused."""
    try:
        flow = flows.parcels("strong", flows.own_key)
    except FlowError:
        flow = flows.parcels("strong")
    return FlowTrial(flow, {"order": 5}, doubles=ITSELF, is_remote=is_remote)


def _grouped() -> Flow:
    """Short jobs, of each group one at a time."""

    @node(output="done", effects="effectful", idempotency_key="auto")
    def work(job: int) -> int:
        hold_thread(0.003 + 0.0004 * job)
        return job + 1

    return Flow("grouped", [work], durability="strong", max_per_group=1)


def _fleet(
    make: Callable[[], Flow], count: int, *, beside: Callable[[], Flow] | None = None, **how: Any
) -> Callable[[bool], Trial]:
    def trial(is_remote: bool) -> Trial:
        made = [make()] if beside is None else [make(), beside()]
        name = made[0].nodes[0].params[0].name
        runs: dict[str, tuple[int, Mapping[str, Any]]] = {f"r{k}": (0, {name: k}) for k in range(count)}
        if beside is not None:
            runs["s0"] = (1, {"job": 7})
        return Fleet(made, runs, is_remote=is_remote, **how)

    return trial


def _service(is_remote: bool) -> Trial:
    """A worker that goes on until its client has seen all runs through."""
    flow, ids = played(_jobs(), ITSELF), ["r0", "r1", "r2"]

    def client(world: FleetWorld, here: Here) -> None:
        with here.host() as host:
            for k, run_id in enumerate(ids):
                persist(here, partial(host.start, flow, {"job": k}, run_id=run_id))
        while not all((row := world.store.row(run_id)) and row.status.is_final for run_id in ids):
            here.sleep(AGAIN)

    return FleetTrial({"w1": WorkerPlace([flow])}, {"client": client}, is_remote=is_remote)


def _subject(name: str) -> Callable[[bool], Trial]:
    """One of the flows of all simulations."""

    def trial(is_remote: bool) -> Trial:
        return SUBJECTS[name].trial("remote" if is_remote else "local")

    return trial


APPROVED = {"approved": True}
_ANSWERS = {"approve": APPROVED, "ask": 7}
TRIALS: Mapping[str, Kind] = {
    "orders": Kind(_flow_trial(flows.orders, {"items": 3}, is_chancy=True)),
    "deliveries": Kind(_flow_trial(flows.deliveries, {"order": 3}), STEADY),
    "approvals": Kind(_flow_trial(flows.approvals, {}, answers=_ANSWERS, is_chancy=True), STEADY),
    "rounds": Kind(_flow_trial(flows.rounds, {"topic": "bees"}), STEADY),
    "ticks": Kind(_flow_trial(partial(flows.ticks, 260), {"seen": 0}), is_long=True),
    "papers": Kind(
        _flow_trial(
            flows.papers, {"topic": "bees"}, answers=dict.fromkeys(["write", "review", "publish"], APPROVED)
        )
    ),
    "sensors": Kind(_flow_trial(flows.sensors, {"place": 4})),
    "parcels": Kind(_flow_trial(flows.parcels, {"order": 5})),
    "machines": Kind(_flow_trial(flows.machines, {"part": 2}, channel={"log": ["made"]})),
    "steps": Kind(_subject("steps in turn")),
    "midway": Kind(_subject("waits inside"), STEADY),
    "own keys": Kind(_own_keys),
    "contest": Kind(_flow_trial(flows.deliveries, {"order": 3}, kind=Contest), STEADY),
    "long contest": Kind(_flow_trial(_hauls, {"load": 3}, kind=Contest), STEADY),
    "answers": Kind(_flow_trial(flows.approvals, {}, kind=Contest, answers=_ANSWERS, is_chancy=True), STEADY),
    "threads": Kind(_flow_trial(partial(_hauls, 150, 2), {"load": 3}, kind=Threads), STEADY, [False]),
    "deploys": Kind(_deploys),
    "fleet": Kind(_fleet(_jobs, 3, beside=_grinding, workers={"w1": "m1", "w2": "m1"}), STEADY, [False]),
    "service": Kind(_service, STEADY),
    "far fleet": Kind(_fleet(flows.deliveries, 3, workers={"w1": "m1", "w2": "m2"}), STEADY, [True]),
    "groups": Kind(_fleet(_grouped, 8, workers={"w1": "m1"}, groups="a"), STEADY),
    "killers": Kind(_fleet(_killers, 3, workers={"w1": "m1", "w2": "m1"}), is_fatal=True),
}
"""By name."""
