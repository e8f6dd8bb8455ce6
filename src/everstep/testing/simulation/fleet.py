"""A fleet in a simulated world: workers on some machines, and clients who start runs and act on them.

A worker is stopped as a service manager does it, with a signal that lets its runs end; when all clients have
ended, all workers are. What dies begins anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from everstep.errors import StoreError
from everstep.graph.author.flow import Flow
from everstep.runtime.workers.worker import Worker
from everstep.testing.simulation.checks import Broken, Judge, Reader
from everstep.testing.simulation.faults import Decider
from everstep.testing.simulation.process import SimProcess
from everstep.testing.simulation.trial import End, compared, ends_of
from everstep.testing.simulation.world import Here, MakeStore, World

T = TypeVar("T")
Client = Callable[["FleetWorld", Here], None]
"""What a client does: called anew in each of its lives, until it returns."""
PAUSE = 5.0
"""Seconds after which who could not reach the store tries again."""


class WorkerPlace(NamedTuple):
    """Where a worker is, and what it drives."""

    flows: Sequence[Flow]
    machine: str = "m1"
    concurrency: int = 8
    after: float = 0.0
    """Seconds until it is started."""


class _AtWork(NamedTuple):
    """A worker that can be told to stop."""

    process: SimProcess
    loop: asyncio.AbstractEventLoop
    worker: Worker

    def signal(self) -> None:
        if not self.process.is_dead and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.worker.stop)


class FleetWorld(World):
    """A world with workers in it, and clients."""

    def __init__(
        self,
        seed: int,
        decider: Decider,
        *,
        is_remote: bool,
        skew: float,
        options: Mapping[str, Any],
        make_store: MakeStore | None = None,
    ) -> None:
        super().__init__(seed, decider, is_remote=is_remote, skew=skew, make_store=make_store)
        self._options = dict(options)
        self._clients: dict[str, None] = {}
        """Those that have not ended."""
        self._at_work: dict[str, _AtWork] = {}
        self._dismissed: dict[str, None] = {}
        self.notes: dict[str, Any] = {}
        """What clients have written down, for their later lives and for who judges."""

    def hire(self, name: str, place: WorkerPlace) -> None:
        """Start a worker."""
        self.start(name, partial(self._work, place), machine=place.machine, after=place.after)

    def dismiss(self, name: str) -> None:
        """Tell a worker to let its runs end, and to leave for good."""
        self.ledger.tell(f"{name} is told to stop.")
        self._dismissed[name] = None
        if name in self._at_work:
            self._at_work[name].signal()

    def welcome(self, name: str, client: Client) -> None:
        """Start a client. When the last one has ended, all workers are told to stop."""
        self._clients[name] = None
        self.start(name, partial(self._serve, client))

    def has_spooled(self) -> bool:
        """True while checkpoints wait on a machine."""
        return any(machine.spooled for machine in self.machines.values())

    def _serve(self, client: Client, here: Here) -> None:
        client(self, here)
        self._clients.pop(here.process.name, None)
        if not self._clients:
            for at_work in self._at_work.values():
                at_work.signal()

    def _work(self, place: WorkerPlace, here: Here) -> None:
        """Work until told to stop, as a process that its service manager starts again."""
        while True:
            try:
                with here.runner() as runner:
                    runner.run(self._drive(place, here))
            except StoreError as error:
                self.ledger.tell(f"{here.process.tag} hears: {error}")
            else:
                # What the store could not take before it stopped is for the next worker of this machine.
                if self._clients or not here.process.machine.spooled:
                    return
            here.sleep(PAUSE)

    async def _drive(self, place: WorkerPlace, here: Here) -> None:
        name = here.process.name
        async with here.async_host(**self._options) as host:
            worker = host.worker(place.flows, concurrency=place.concurrency)
            self._at_work[name] = _AtWork(here.process, asyncio.get_running_loop(), worker)
            # Who is started again when all is over still brings to the store what waits on its machine.
            await worker.run(until_idle=name in self._dismissed or not self._clients)


class FleetTrial:
    """Workers of some flows, and clients that start runs of them."""

    def __init__(
        self,
        workers: Mapping[str, WorkerPlace],
        clients: Mapping[str, Client],
        *,
        is_remote: bool = False,
        skew: float = 0.0,
        options: Mapping[str, Any] | None = None,
        make_store: MakeStore | None = None,
    ) -> None:
        self._workers = workers
        self._clients = clients
        self._is_remote = is_remote
        self._skew = skew
        """By how many seconds all machines but the first are ahead of the store."""
        self._options = options or {}
        self._make_store = make_store

    def world(self, seed: int, decider: Decider) -> FleetWorld:
        world = FleetWorld(
            seed,
            decider,
            is_remote=self._is_remote,
            skew=self._skew,
            options=self._options,
            make_store=self._make_store,
        )
        world.machine("m1")
        for name, client in self._clients.items():
            world.welcome(name, client)
        for name, place in self._workers.items():
            world.hire(name, place)
        return world

    def ends(self, world: World, reader: Reader) -> dict[str, End]:
        return ends_of(reader.kept(world))

    def judge(self, world: World, reader: Reader, whole: Mapping[str, End] | None) -> list[Broken]:
        judge = Judge(world, reader)
        broken = list(judge.all(world.explained))
        if whole is not None:
            broken += compared(ends_of(judge.kept), whole)
        return broken


def persist(here: Here, act: Callable[[], T]) -> T:
    """Do something on the store, again and again until it can be reached, as a user would."""
    while True:
        try:
            return act()
        except StoreError as error:
            here.world.ledger.tell(f"{here.process.tag} hears: {error}")
            here.sleep(PAUSE)
