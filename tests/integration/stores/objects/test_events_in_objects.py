"""No act spans two objects: whatever comes between two calls of a client, and wherever it dies, a wait and an
event that is kept find each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from everstep import Flow, Host, wait
from everstep.model.enums import Status
from everstep.model.waits import WaitRow, WaitStatus
from everstep.ports.events import EventRow, fields_of, wanted_by
from everstep.ports.store import Commit, Verdict
from everstep.stores.objects.store import ObjectStore
from everstep.testing import ManualClock
from everstep.testing.conformance.kit import Chain
from everstep.testing.dict_bucket import DictBucket, DictObjects
from everstep.testing.killing import Crashed

T = TypeVar("T")
RUN = "run"
KEPT = timedelta(days=1)


class Watched:
    """A bucket that does something before one of its calls, and lets its client die at a later one."""

    def __init__(self, objects: DictObjects, *, at: int = 0, meanwhile: Callable[[], object] = bool) -> None:
        self._bucket = DictBucket(objects)
        self._at = at
        self._meanwhile = meanwhile
        self.dies_at = 0
        self.calls = 0
        self.is_local, self.place = True, "a bucket"

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._bucket, name)
        return call if name in ("now", "changes", "health", "close") else self._counted(call)

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls == self._at:
                self._meanwhile()
            if 0 < self.dies_at <= self.calls:
                raise Crashed(f"call {self.calls}")
            return call(*given, **named)

        return counted


class World:
    """A bucket, one run that waits for an event in it, and who publishes that."""

    def __init__(self) -> None:
        self.objects = DictObjects()
        self.clock = ManualClock()
        self.chain = Chain(RUN, self.clock)
        self.published = 0
        self.put(self.store(), self.chain.admission())

    def store(self, **about: Any) -> ObjectStore:
        return ObjectStore(Watched(self.objects, **about), self.clock)

    def put(self, store: ObjectStore, commit: Commit) -> None:
        """Write a record, and once more if what was there has changed meanwhile."""
        assert store.put_blocking([commit]) == [Verdict.ACCEPTED]
        self.chain.head = commit

    def opens(self, wait_id: str = "w", **changes: Any) -> Commit:
        row = self.chain.wait(wait_id, kind="event", topic=wanted_by("paid", {"order": 1}).topic)
        return self.chain.following(status=Status.HALTED, waits=(row,), pairs=True, **changes)

    def publish(self, store: ObjectStore | None = None, *, event_id: str = "e", keep: bool = True) -> int:
        now = self.clock.now()
        event = EventRow(
            event_id=event_id,
            name="paid",
            value=event_id.encode(),
            fields=fields_of({"order": 1}),
            published_at=now,
            expires_at=now + KEPT if keep else None,
        )
        return ask(_publish(store or self.store(), event))

    def wait(self, wait_id: str = "w") -> WaitRow | None:
        return ask(self.store().wait(wait_id))

    def answer(self, wait_id: str = "w") -> bytes | None:
        """Return what a wait was settled with, which must be there."""
        row = self.wait(wait_id)
        assert row is not None
        return row.answer

    def marks(self) -> list[str]:
        return DictBucket(self.objects).names("topics/")


def ask(call: Coroutine[Any, Any, T]) -> T:
    """Return what a call gives; one may be made in the middle of another."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, call).result()


async def _publish(store: ObjectStore, event: EventRow) -> int:
    topics = event.topics(await store.keep_event(event))
    settled = 0
    while topics and (some := await store.settle_event(event, topics)):
        settled += some
    return settled


def bucket_of(store: ObjectStore) -> Watched:
    bucket = store.bucket
    assert isinstance(bucket, Watched)
    return bucket


def calls_of(act: Callable[[World, ObjectStore], object]) -> int:
    """Return how many calls of the bucket an act takes, at least."""
    world = World()
    store = world.store()
    act(world, store)
    return bucket_of(store).calls


def opened(world: World, store: ObjectStore) -> None:
    world.put(store, world.opens())


def deaths() -> Iterator[tuple[int, int]]:
    """Yield when others act while a wait is being opened, and when who opens it dies then, if at all."""
    many = calls_of(opened)
    for at in range(1, many + 1):
        yield from ((at, dies_at) for dies_at in (0, *range(at, 2 * many + 3)))


def test_an_event_that_comes_while_a_wait_opens_is_not_missed_if_who_opens_it_dies() -> None:
    found = []
    for at, dies_at in deaths():
        world = World()
        store = world.store(at=at, meanwhile=world.publish)
        bucket_of(store).dies_at = dies_at
        with suppress(Crashed):
            opened(world, store)
        if world.wait() is not None and world.answer() is None:
            found.append((at, dies_at))
    assert found == []


def test_an_event_that_was_kept_before_is_had_by_who_dies_right_after_opening_the_wait() -> None:
    for dies_at in range(1, calls_of(opened) + 9):
        world = World()
        world.publish()
        store = world.store()
        bucket_of(store).dies_at = dies_at
        with suppress(Crashed):
            opened(world, store)
        assert world.wait() is None or world.answer() == b"e", dies_at


def test_a_wait_that_opens_while_an_event_is_published_is_not_missed() -> None:
    def published(world: World, store: ObjectStore) -> None:
        world.publish(store)

    for at in range(1, calls_of(published) + 1):
        world = World()
        opener = world.store()
        store = world.store(at=at, meanwhile=lambda w=world, s=opener: opened(w, s))
        published(world, store)
        assert world.answer() == b"e", at


@pytest.mark.parametrize("keep", [True, False])
def test_a_node_that_waits_again_while_the_last_event_is_published_is_found_by_the_next(keep: bool) -> None:
    def published(world: World, store: ObjectStore) -> None:
        opened(world, world.store())
        world.publish(store, event_id="first", keep=keep)

    for at in range(1, calls_of(published) + 1):
        world = World()
        other = world.store()
        opened(world, other)

        def again(w: World = world, s: ObjectStore = other) -> None:
            row = ask(s.wait("w"))
            if row is not None and row.status is WaitStatus.SETTLED:
                w.put(s, w.opens("again", closed=("w",)))

        store = world.store(at=at, meanwhile=again)
        world.publish(store, event_id="first", keep=keep)
        if world.wait("again") is None:
            again()
        assert world.publish(event_id="second") == 1, at
        assert world.answer("again") == b"second", at


def test_nothing_is_left_of_waits_that_are_over() -> None:
    world = World()
    opened(world, world.store())
    assert len(world.marks()) == 1
    world.publish()
    assert world.marks() == []
    world.put(world.store(), world.opens("other", closed=("w",)))
    assert len(world.marks()) == 1
    world.put(world.store(), world.chain.final())
    assert world.marks() == []


def test_what_a_client_left_that_died_before_its_wait_was_there_is_removed_by_the_next_event() -> None:
    for dies_at in range(1, calls_of(opened) + 1):
        world = World()
        store = world.store()
        bucket_of(store).dies_at = dies_at
        with suppress(Crashed):
            opened(world, store)
        if world.wait() is None:
            world.publish()
            assert world.marks() == [], dies_at
            opened(world, world.store())
            assert world.answer() == b"e"


def test_who_publishes_again_after_a_death_reaches_every_wait_once() -> None:
    def published(world: World, store: ObjectStore) -> None:
        opened(world, world.store())
        world.publish(store)

    for dies_at in range(1, calls_of(published) + 1):
        world = World()
        opened(world, world.store())
        store = world.store()
        bucket_of(store).dies_at = dies_at
        with suppress(Crashed):
            world.publish(store)
        is_open = world.answer() is None
        assert world.publish() == is_open
        assert world.answer() == b"e"
        assert world.marks() == []
        assert len(DictBucket(world.objects).names("events/")) == 1


def test_a_file_that_is_no_event_and_no_mark_is_no_obstacle(tmp_path: Path) -> None:
    with Host(f"file://{tmp_path}") as host:
        flow = Flow("f", [wait.event("paid", match={"order": "order"})])
        host.publish("paid", {"order": 1}, keep="1d")
        host.run(flow, {"order": 2}, run_id="r")
        for kind in ("events", "topics", "shapes"):
            [folder] = (tmp_path / kind).iterdir()
            (folder / "copy of something.bak").write_text("?")
        host.run(flow, {"order": 1}, run_id="s")
        assert host.publish("paid", {"order": 2}).settled == 1
        assert [host.resume(run, flow).status for run in "rs"] == ["completed", "completed"]
