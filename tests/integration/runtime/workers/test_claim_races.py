"""Clients of one server that are at the same runs in the same moment."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from everstep.model.enums import Status
from everstep.model.leases import WorkerRow
from everstep.ports.store import Adoption, Verdict
from everstep.registry import open_store
from everstep.stores.postgres.store import PostgresStore
from everstep.stores.redis.store import RedisStore
from everstep.testing import ManualClock
from everstep.testing.conformance.kit import Chain, Client, StoreKit, fork_of

NEXT = Adoption(flow_version="2", flow_hash="f" * 64, blueprint=b'{"entry":[],"nodes":[],"v":2}')


@pytest.fixture(params=["postgres_url", "redis_url"])
def clients(request: pytest.FixtureRequest) -> Any:
    url, clock = request.getfixturevalue(request.param), ManualClock()
    kit = StoreKit(lambda: open_store(url, clock), clock, None)  # type: ignore[arg-type]  # not looked at
    both = Client(kit), Client(kit)
    yield both
    for client in both:
        client.close()


def after_look(client: Client, meanwhile: Callable[[], None]) -> None:
    """Let something happen once, when a client has looked for due runs and not yet claimed them."""
    store, todo = client.store, [meanwhile]

    def act() -> None:
        while todo:
            todo.pop()()

    if isinstance(store, PostgresStore):
        choose = store._due._choose

        def chosen(*given: Any) -> Any:
            found = choose(*given)
            act()
            return found

        store._due._choose = chosen  # type: ignore[method-assign, assignment]
    else:
        assert isinstance(store, RedisStore)
        call = store._call

        def called(name: str, *arguments: Any, once: bool = False) -> Any:
            found = call(name, *arguments, once=once)
            if name == "due":
                act()
            return found

        store._call = called  # type: ignore[method-assign]


def driven(other: Client, chain: Chain, **last: Any) -> Callable[[], None]:
    """Return what a quicker worker does: it claims the run and makes one step of it."""

    def drive() -> None:
        [(_, lease)] = other.claim_due()
        chain.epoch = lease.epoch
        other.accept(chain, chain.following(**last))

    return drive


def accepted(client: Client) -> Chain:
    chain = Chain("run", client.clock, has_lease=False)
    client.accept(chain, chain.admission())
    return chain


def test_one_that_has_ended_meanwhile_is_not_claimed(clients: tuple[Client, Client]) -> None:
    slow, quick = clients
    chain = accepted(slow)
    end = {"status": Status.COMPLETED, "ended_at": slow.clock.now()}
    after_look(slow, driven(quick, chain, **end))
    assert slow.due() == []
    assert slow.row("run").lease is None


def test_one_that_has_halted_meanwhile_is_not_claimed(clients: tuple[Client, Client]) -> None:
    slow, quick = clients
    chain = accepted(slow)
    after_look(slow, driven(quick, chain, status=Status.HALTED, waits=(chain.wait("answer"),)))
    assert slow.due() == []
    assert slow.row("run").lease is None


def test_one_that_went_over_to_an_unknown_version_meanwhile_is_not_claimed(
    clients: tuple[Client, Client],
) -> None:
    slow, quick = clients
    chain = accepted(slow)

    def go_over() -> None:
        driven(quick, chain, adopts=NEXT)()
        lease = quick.row("run").lease
        assert lease is not None
        quick.release(lease)

    after_look(slow, go_over)
    assert slow.due() == []
    assert quick.due(flows=[NEXT.flow_hash]) == ["run"]


def test_groups_that_fork_the_same_runs_in_another_order_do_not_wait_for_each_other(
    postgres_url: str,
) -> None:
    clock = ManualClock()
    kit = StoreKit(lambda: open_store(postgres_url, clock), clock, None)  # type: ignore[arg-type]  # not looked at
    first = Client(kit)
    parents = [first.admit(f"parent-{number}") for number in range(4)]
    start, failures = threading.Barrier(4), list[BaseException]()

    def work(who: int) -> None:
        client, shuffled = Client(kit), random.Random(who)
        try:
            start.wait(30)
            for k in range(25):
                chains = [
                    fork_of(parent.head, f"{who}-{k}-{parent.run_id}", clock)
                    for parent in parents
                    if parent.head is not None
                ]
                chains += [Chain(f"{who}-{k}-{n}", clock, flow_hash=f"{4 * k + n:064}") for n in range(4)]
                shuffled.shuffle(chains)
                assert set(client.put(*(chain.admission() for chain in chains))) == {Verdict.ACCEPTED}
        except BaseException as error:
            failures.append(error)
            start.abort()
        finally:
            client.close()

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first.close()
    assert failures == []


def test_workers_that_come_back_together_do_not_wait_for_each_other(postgres_url: str) -> None:
    """Each finds the others' reports too old, and its own among what they forget."""
    clock = ManualClock()
    kit = StoreKit(lambda: open_store(postgres_url, clock), clock, None)  # type: ignore[arg-type]  # not looked at
    start, failures = threading.Barrier(6, action=lambda: clock.advance(60)), list[BaseException]()

    def work(who: int) -> None:
        client = Client(kit)
        try:
            for _ in range(300):
                start.wait(30)
                row = WorkerRow(
                    worker_id=f"{who}",
                    host="here",
                    pid=who,
                    flows=(),
                    concurrency=1,
                    started_at=clock.now(),
                    driving=0,
                )
                client.report(row)
        except BaseException as error:
            failures.append(error)
            start.abort()
        finally:
            client.close()

    threads = [threading.Thread(target=work, args=(who,)) for who in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
