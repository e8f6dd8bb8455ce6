"""Everyone at a fleet at once: users and a service, people who send and publish, an operator of many runs.

What each does, and what must come of it, is said where they are alone. Here their runs share three workers,
so what is done to all of them meets what the others are about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from everstep import Host
from everstep.errors import EverstepError, StoreError
from everstep.testing.simulation.checks import Broken, Kept
from everstep.testing.simulation.fleet import FleetWorld, WorkerPlace, persist
from everstep.testing.simulation.hub import SECOND
from everstep.testing.simulation.world import Here
from tests.simulation.signals import senders
from tests.simulation.signals.flows import FLOWS as LISTENING
from tests.simulation.stores import place
from tests.simulation.users.flows import OLD
from tests.simulation.users.people import LOOK, Script, UsersTrial, script

OPERATOR = "operator"
MANY: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("tag", "status is set", {"add": ["seen"]}),
    ("tag", "tag = seen", {"remove": ["seen"]}),
    ("pin", "status in (running, halted)", {}),
    ("pause", "status in (running, halted)", {}),
    ("unpause", "paused = true", {}),
    ("retry", "status = failed", {}),
)
"""What is done to many runs: it is in the way of others, and changes nothing that their runs come to."""


class Operator:
    """Gives orders for many runs, and sees to it in the end that all go on."""

    def __init__(self, orders: Sequence[tuple[float, int]]) -> None:
        self._orders = orders
        """When, and what, as a place in `MANY`."""

    def __call__(self, world: FleetWorld, here: Here) -> None:
        with here.host() as host:
            for at, which in self._orders:
                here.sleep(max(0.0, at - world.hub.now / SECOND))
                label = f"order {which} at {at}"
                if label not in world.notes:
                    world.notes[label] = persist(here, partial(_order, host, which))
            while True:
                rows = persist(here, partial(host.runs, limit=100))
                if all(row.status.is_final for row in rows):
                    return
                for row in rows:
                    if row.paused_at is not None:
                        persist(here, partial(_let_go_on, host, row.run_id))
                here.sleep(LOOK)


def _order(host: Host, which: int) -> str:
    act, where, options = MANY[which]
    run_id: str = host.fleet.bulk(act, where, by=OPERATOR, **options)
    return run_id


def _let_go_on(host: Host, run_id: str) -> None:
    try:
        host.fleet.unpause(run_id)
    except StoreError:
        raise
    except EverstepError:  # it has ended, or is gone
        return


class EveryoneTrial(UsersTrial):
    """Three workers on two machines, who have all flows, and everyone at once."""

    def __init__(
        self,
        plan: Script,
        sent: senders.Script,
        orders: Sequence[tuple[float, int]],
        *,
        is_remote: bool = False,
        skew: float = 0.0,
    ) -> None:
        super().__init__(plan, is_remote=is_remote, skew=skew)
        flows = [*OLD.values(), *LISTENING.values()]
        self._workers: Mapping[str, WorkerPlace] = {
            name: at._replace(flows=flows) for name, at in self._workers.items()
        }
        others = {f"{name}-send": senders.Person(name, sent) for name in senders.PEOPLE}
        self._clients = {**self._clients, **others, OPERATOR: Operator(orders)}
        self._sent, self._signals = sent, senders.SignalTrial(sent)

    def of_others(self, kept: Mapping[str, Kept]) -> Iterator[Broken]:
        for wish in self._sent.wishes:
            for run_id in (wish.run_id, wish.fork_id):
                if run_id in kept:
                    yield from self._signals.judged(wish, kept[run_id])


def _renamed(plan: senders.Script) -> senders.Script:
    """Return a script about other runs than those of the users."""
    return senders.Script(
        tuple(replace(wish, run_id=f"S{wish.run_id}") for wish in plan.wishes),
        tuple(replace(send, run_id=f"S{send.run_id}") for send in plan.sends),
        plan.publishes,
    )


def trial(seed: int, store: str) -> EveryoneTrial:
    """Return what happens in a fleet, as it follows from a seed."""
    chance = Random(~seed)
    count = chance.randint(1, 4)
    orders = sorted((round(chance.uniform(0.5, 8), 3), chance.randrange(len(MANY))) for _ in range(count))
    return EveryoneTrial(script(seed), _renamed(senders.script(seed)), orders, **place(seed, store))
