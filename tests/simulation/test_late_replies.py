"""What comes late is not taken for new: a lease lasts from when it was asked for."""

from __future__ import annotations

import asyncio

from everstep import Context, node
from everstep.model.enums import Status
from everstep.testing.simulation.faults import Chosen, Nothing, parse
from everstep.testing.simulation.fleet import FleetTrial, FleetWorld, WorkerPlace
from everstep.testing.simulation.played import ITSELF, played
from everstep.testing.simulation.world import Here
from tests.simulation.users.flows import flow


@node(output="receipt", effects="effectful", idempotency_key="auto")
async def charge(order: int, ctx: Context) -> str:
    await asyncio.sleep(150)  # of the world's time: longer than a process is suspended
    return f"{order} paid"


CHARGES = played(flow("charges", [charge], "strong"), ITSELF)


def trial() -> FleetTrial:
    """One run, and two workers on two machines: the first is there when it comes."""

    def client(world: FleetWorld, here: Here) -> None:
        with here.host() as host:
            host.start(CHARGES, {"order": 7}, run_id="A17")
            while host.info("A17").status is not Status.COMPLETED:
                here.sleep(10)
            here.sleep(200)

    workers = {"first": WorkerPlace([CHARGES], "m1"), "second": WorkerPlace([CHARGES], "m2", after=5)}
    return FleetTrial(workers, {"client": client}, is_remote=True)


def test_a_worker_that_was_suspended_while_it_claimed_drives_nothing_that_others_have_taken_over() -> None:
    world = trial().world(0, Nothing())
    world.ledger.keeps_points = True
    world.run()
    assert [body.tag for body in world.ledger.bodies] == ["first.1"]
    claims = [label for label, _ in world.ledger.points if label.startswith("first.1 after claim_due")]
    taking = next(label for label in claims if _is_taken(label))
    late = trial().world(0, Chosen([parse(f"{taking}: stall")]))
    late.run()
    assert [body.tag for body in late.ledger.bodies] == ["second.1"], "\n".join(late.ledger.lines())
    assert not late.troubles


def _is_taken(label: str) -> bool:
    world = trial().world(0, Chosen([parse(f"{label}: stall")]))
    world.run()
    return any("first.1 claims run" in line for line in world.ledger.lines())
