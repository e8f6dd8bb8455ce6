"""A bucket on another machine: how it is watched, and what is still done when it was closed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from everstep.registry import Opened
from everstep.stores.objects.store import ObjectStore
from everstep.testing import ManualClock
from everstep.testing.conformance.kit import TTL, Client, StoreKit
from everstep.testing.dict_bucket import DictBucket, DictObjects


class MuteBucket(DictBucket):
    """A bucket that cannot tell of writes."""

    is_local = False

    def changes(self) -> int | None:
        return None


@pytest.fixture
def both() -> Iterator[tuple[Client, Client]]:
    """A client that writes, and one that watches."""
    clock, objects = ManualClock(), DictObjects()

    def opened() -> Opened:
        store = ObjectStore(MuteBucket(objects), clock, poll=3600)
        return Opened(store, store.artifacts)

    kit = StoreKit(opened, clock, None)  # type: ignore[arg-type]  # not looked at
    clients = Client(kit), Client(kit)
    yield clients
    for client in clients:
        client.close()


def look(client: Client) -> int:
    """Let the client look, and return what it counts then."""
    assert isinstance(client.store, ObjectStore)
    client.store._watch.look()
    return client.store.changes()


def test_what_is_written_between_the_first_question_and_the_first_look_is_seen(
    both: tuple[Client, Client],
) -> None:
    writer, reader = both
    chain = writer.admit("run")
    before = reader.store.changes()
    assert reader.row("run").checkpoints == 1
    writer.accept(chain, chain.final())
    after = look(reader)
    assert after != before
    assert look(reader) == after


def test_a_run_that_was_asked_for_is_watched_without_an_owner(both: tuple[Client, Client]) -> None:
    writer, reader = both
    chain = writer.admit("run")
    writer.accept(chain, chain.final())
    reader.row("run")
    before = look(reader)
    writer.call(writer.store.ack("run"))
    assert look(reader) != before


def test_leases_are_prolonged_and_given_back_after_the_store_was_closed(both: tuple[Client, Client]) -> None:
    owner, other = both
    leases = [owner.admit(run_id).lease() for run_id in ("one", "two")]
    owner.renew(*leases)
    owner.call(owner.store.close())
    assert isinstance(owner.store, ObjectStore)
    assert len(owner.store.renew_blocking(leases, TTL)) == 2
    for lease in leases:
        owner.store.release_blocking(lease)
    assert other.due() == ["one", "two"]
