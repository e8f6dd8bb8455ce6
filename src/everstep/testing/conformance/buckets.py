"""The suite for places where runs are to be kept as objects. Inherit it and say how to open one:

class TestMyBucket(BucketConformance):
    @pytest.fixture
    def buckets(self, tmp_path):
        return functools.partial(MyBucket, tmp_path / "objects")

Whatever `buckets` returns is sent to other processes, so it has to be picklable.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from itertools import count

import pytest

from everstep.errors import StoreError
from everstep.ports.health import Level
from everstep.stores.objects.bucket import Bucket

Open = Callable[[], Bucket]
TEAM = 4
"""How many race each other."""
_CREW = 3
"""The same for processes, which take a while to start."""


class BucketConformance:
    """What a bucket promises. `buckets` opens one more client on the same place, which is empty at first."""

    races = 20
    """How many names are raced for."""
    bumps = 10
    """How often each of a team adds one to the same object."""
    many = 30
    """How many names are removed at once."""
    sizes: tuple[int, ...] = (0, 1, 1023, 65_536, (1 << 20) + 1)
    slack = timedelta(seconds=5)
    """By how much the time of an object may differ from `now`."""

    @pytest.fixture
    def buckets(self) -> Open:
        raise NotImplementedError("Say how to open a bucket: override the fixture `buckets`.")

    @pytest.fixture
    def bucket(self, buckets: Open) -> Iterator[Bucket]:
        with closing(buckets()) as bucket:
            yield bucket

    # One object

    def test_what_was_created_is_read_back_by_everybody(self, bucket: Bucket, buckets: Open) -> None:
        assert bucket.create("runs/r-1/log/0000000001", b"first")
        with closing(buckets()) as other:
            for each in (bucket, other):
                found = each.get("runs/r-1/log/0000000001")
                assert found is not None and found.data == b"first"

    def test_a_name_that_is_taken_is_not_created_again(self, bucket: Bucket, buckets: Open) -> None:
        assert bucket.create("a/b", b"first")
        assert not bucket.create("a/b", b"second")
        with closing(buckets()) as other:
            assert not other.create("a/b", b"third")
        found = bucket.get("a/b")
        assert found is not None and found.data == b"first"

    def test_creating_the_same_bytes_twice_succeeds_once(self, bucket: Bucket) -> None:
        assert [bucket.create("a/b", b"same") for _ in range(2)] == [True, False]

    def test_nothing_is_found_under_a_free_name(self, bucket: Bucket) -> None:
        assert bucket.get("nowhere/at/all") is None
        bucket.put("a/b/c", b"x")
        assert bucket.get("a/b") is None
        assert bucket.get("a/b/c2") is None

    def test_bytes_of_any_size_come_back_equal(self, bucket: Bucket) -> None:
        for size in self.sizes:
            data = bytes(k * 31 % 256 for k in range(251)) * (size // 251 + 1)
            assert bucket.create(f"sizes/{size}", data[:size])
            found = bucket.get(f"sizes/{size}")
            assert found is not None and found.data == data[:size]

    def test_put_replaces_whatever_was_there(self, bucket: Bucket) -> None:
        for data in (b"a longer first text", b"", b"third"):
            bucket.put("a/b", data)
            found = bucket.get("a/b")
            assert found is not None and found.data == data

    def test_long_and_odd_names_are_kept_apart(self, bucket: Bucket) -> None:
        names = ["x" * 200, "a~b=c_d-e.f", "a~b=c_d-e.", "odd/0/Zz", "odd/0/Z", "odd/0.json", "odd/00"]
        for name in names:
            assert bucket.create(name, name.encode())
        for name in names:
            found = bucket.get(name)
            assert found is not None and found.data == name.encode()
        assert bucket.names("") == sorted(names)

    @pytest.mark.parametrize(
        "name",
        [
            *("", "/", "/a", "a/", "a//b", "..", ".", "../a", "a/../b", "a/./b", ".hidden", "a/.hidden"),
            *("a\\b", "a\0b", "a b", "a\nb", "a%2fb", "ä", "a:b", "a*b", "a?b", "x" * 300),
        ],
    )
    def test_what_is_no_name_is_refused(self, bucket: Bucket, name: str) -> None:
        with pytest.raises(StoreError):
            bucket.create(name, b"x")
        with pytest.raises(StoreError):
            bucket.put(name, b"x")
        with pytest.raises(StoreError):
            bucket.get(name)
        assert bucket.names("") == []

    # Swapping

    def test_swap_replaces_what_has_the_tag(self, bucket: Bucket) -> None:
        bucket.put("a/b", b"first")
        first = bucket.get("a/b")
        assert first is not None
        assert bucket.swap("a/b", b"second", first.tag)
        second = bucket.get("a/b")
        assert second is not None and second.data == b"second"
        assert second.tag != first.tag

    def test_swap_is_refused_once_the_bytes_were_replaced(self, bucket: Bucket, buckets: Open) -> None:
        bucket.put("a/b", b"first")
        first = bucket.get("a/b")
        assert first is not None
        with closing(buckets()) as other:
            other.put("a/b", b"second")
        assert not bucket.swap("a/b", b"third", first.tag)
        found = bucket.get("a/b")
        assert found is not None and found.data == b"second"

    def test_swap_is_refused_once_the_bytes_were_removed(self, bucket: Bucket) -> None:
        bucket.put("a/b", b"first")
        first = bucket.get("a/b")
        assert first is not None
        bucket.delete(["a/b"])
        assert not bucket.swap("a/b", b"second", first.tag)
        assert bucket.get("a/b") is None
        assert not bucket.swap("never/there", b"x", first.tag)
        assert bucket.get("never/there") is None

    # Names without bytes

    def test_marks_are_names_like_others_and_may_be_set_again(self, bucket: Bucket, buckets: Open) -> None:
        bucket.mark([])
        bucket.mark(["live/r-1~1", "index/0001~r-1"])
        bucket.mark(["live/r-1~1", "live/r-2~1"])
        bucket.create("runs/r-1/log/0000000001", b"x")
        with closing(buckets()) as other:
            assert other.names("live/") == ["live/r-1~1", "live/r-2~1"]
            assert other.names("index/") == ["index/0001~r-1"]
            other.delete(["live/r-1~1"])
            other.mark(["live/r-3~1"])
        assert bucket.names("live/") == ["live/r-2~1", "live/r-3~1"]

    def test_marks_of_many_threads_are_all_there(self, bucket: Bucket) -> None:
        names = [f"live/r-{me}~{k}" for me in range(TEAM) for k in range(5)]

        def work(me: int) -> None:
            for k in range(5):
                bucket.mark([f"live/r-{me}~{k}"])
                assert bucket.create(f"runs/r-{me}/log/{k:010d}", b"x")

        with ThreadPoolExecutor(TEAM) as team:
            list(team.map(work, range(TEAM)))
        assert bucket.names("live/") == sorted(names)

    def test_what_others_write_shows_in_changes(self, bucket: Bucket, buckets: Open) -> None:
        with closing(buckets()) as other:
            seen = [bucket.changes()]
            if seen == [None]:
                return  # A place that cannot tell is looked at now and then.
            other.create("a", b"1")
            seen.append(bucket.changes())
            other.put("a", b"2")
            seen.append(bucket.changes())
            found = other.get("a")
            assert found is not None and other.swap("a", b"3", found.tag)
            seen.append(bucket.changes())
        assert len(set(seen)) == 4

    def test_it_says_how_it_is(self, bucket: Bucket) -> None:
        health = bucket.health()
        assert health.server
        assert not [finding for finding in health.findings if finding.level is Level.PROBLEM]

    # Removing

    def test_what_was_removed_is_gone_and_its_name_is_free(self, bucket: Bucket) -> None:
        bucket.put("a/b", b"first")
        bucket.put("a/c", b"stays")
        bucket.delete(["a/b", "never/there"])
        assert bucket.get("a/b") is None
        assert bucket.names("") == ["a/c"]
        assert bucket.create("a/b", b"second")

    def test_many_are_removed_in_one_call(self, bucket: Bucket) -> None:
        names = [f"many/{k:05d}" for k in range(self.many)]
        with ThreadPoolExecutor(TEAM) as team:
            list(team.map(lambda name: bucket.put(name, b"x"), names))
        assert bucket.names("many/") == names
        bucket.delete(iter(names[1:]))
        bucket.delete([])
        assert bucket.names("many/") == names[:1]

    # Listing

    def test_names_are_sorted_by_their_bytes(self, bucket: Bucket) -> None:
        names = ["a-b", "a.b", "a0", "a=", "B", "a/B", "a/x/y-", "a/x.y/z", "a~", "a_", "b/1/2/3", "a-b.c/d"]
        for name in names:
            bucket.put(name, b"")
        assert bucket.names("") == sorted(names)
        assert bucket.names("a") == sorted(name for name in names if name.startswith("a"))
        assert bucket.names("a/x") == ["a/x.y/z", "a/x/y-"]
        assert bucket.names("b/1/2/3") == ["b/1/2/3"]
        assert bucket.names("c") == bucket.names("a/x/y-/") == []

    def test_names_begin_behind_after_and_end_with_the_limit(self, bucket: Bucket) -> None:
        names = sorted(f"log/{part}" for part in ("1/a", "1/b", "10", "2", "2-x", "3/c/d"))
        for name in names:
            bucket.put(name, b"")
        for k, name in enumerate(names):
            assert bucket.names("log/", after=name) == names[k + 1 :]
            assert bucket.names("log/", after=name + "-") == names[k + 1 :]
            assert bucket.names("log/", after=name, limit=2) == names[k + 1 : k + 3]
            assert bucket.names("log/", limit=k) == names[:k]
        assert bucket.names("log/", after="a") == names
        assert bucket.names("log/", after="z") == []
        assert bucket.names("log/1", after="log/1/a", limit=5) == ["log/1/b", "log/10"]

    def test_a_listing_tells_sizes_and_times(self, bucket: Bucket) -> None:
        before = bucket.now()
        bucket.put("a/one", b"1")
        bucket.put("a/three", b"333")
        bucket.put("b/none", b"")
        after = bucket.now()
        listed = {each.name: each for each in bucket.listed("a/")}
        assert {name: each.size for name, each in listed.items()} == {"a/one": 1, "a/three": 3}
        assert sorted(each.name for each in bucket.listed("")) == ["a/one", "a/three", "b/none"]
        for each in listed.values():
            assert before - self.slack <= each.modified_at <= after + self.slack

    def test_everybody_shares_one_clock(self, bucket: Bucket, buckets: Open) -> None:
        with closing(buckets()) as other:
            first, second, third = bucket.now(), other.now(), bucket.now()
        assert first.utcoffset() == timedelta()
        assert first - self.slack <= second <= third + self.slack
        assert first <= third

    # Races

    def test_of_threads_that_create_one_name_one_succeeds(self, buckets: Open) -> None:
        names = [f"race/{k:03d}" for k in range(self.races)]
        barrier = threading.Barrier(TEAM)

        def compete(me: int) -> list[str]:
            with closing(buckets()) as mine:
                barrier.wait()
                return [name for name in names if mine.create(name, b"%d" % me * (me * 1000 + 1))]

        with ThreadPoolExecutor(TEAM) as team:
            won = list(team.map(compete, range(TEAM)))
        _judge_creates(buckets, names, won)

    def test_threads_may_share_a_client(self, bucket: Bucket, buckets: Open) -> None:
        names = [f"race/{k:03d}" for k in range(self.races)]
        barrier = threading.Barrier(TEAM)

        def compete(me: int) -> list[str]:
            barrier.wait()
            return [name for name in names if bucket.create(name, b"%d" % me * (me * 1000 + 1))]

        with ThreadPoolExecutor(TEAM) as team:
            won = list(team.map(compete, range(TEAM)))
        _judge_creates(buckets, names, won)

    def test_no_swap_of_threads_is_lost(self, bucket: Bucket) -> None:
        bucket.put("counter", b"0")
        barrier = threading.Barrier(TEAM)

        def bump(_: int) -> None:
            barrier.wait()
            _bump(bucket, self.bumps)

        with ThreadPoolExecutor(TEAM) as threads:
            list(threads.map(bump, range(TEAM)))
        found = bucket.get("counter")
        assert found is not None and int(found.data) == TEAM * self.bumps

    def test_processes_are_kept_apart_as_threads_are(self, bucket: Bucket, buckets: Open) -> None:
        names = [f"race/{k:03d}" for k in range(self.races)]
        bucket.put("counter", b"0")
        # Spawned, because drivers with threads do not survive a fork.
        with ProcessPoolExecutor(_CREW, multiprocessing.get_context("spawn")) as crew:
            tasks = [(buckets, me, names, self.bumps) for me in range(_CREW)]
            won = list(crew.map(_race_there, tasks))
        _judge_creates(buckets, names, won)
        found = bucket.get("counter")
        assert found is not None and int(found.data) == _CREW * self.bumps

    def test_no_reader_sees_half_an_object(self, bucket: Bucket, buckets: Open) -> None:
        sizes = (10, 200_000)
        bucket.put("torn", bytes(sizes[0]))
        done = threading.Event()
        seen: list[Counter[tuple[int, int]]] = []

        def read() -> None:
            with closing(buckets()) as mine:
                here: Counter[tuple[int, int]] = Counter()
                while not done.is_set():
                    found = mine.get("torn")
                    here[(-1, -1) if found is None else (len(found.data), len(set(found.data)))] += 1
                seen.append(here)

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        try:
            for k in range(self.races):
                bucket.put("torn", bytes([k % 256]) * sizes[k % 2])
        finally:
            done.set()
            for reader in readers:
                reader.join()
        assert len(seen) == 2
        assert {shape for here in seen for shape in here} <= {(size, 1) for size in sizes}


def _judge_creates(buckets: Open, names: list[str], won: list[list[str]]) -> None:
    """Check that each name has one winner, and holds what that one wrote."""
    winners = Counter(name for names_won in won for name in names_won)
    assert winners == Counter(names)
    with closing(buckets()) as bucket:
        for me, names_won in enumerate(won):
            for name in names_won:
                found = bucket.get(name)
                assert found is not None and found.data == b"%d" % me * (me * 1000 + 1)


def _meet(bucket: Bucket, me: int) -> None:
    """Return once the whole team is there."""
    bucket.put(f"meet/{me}", b"")
    for _ in range(6000):
        if len(bucket.names("meet/")) == _CREW:
            return
        threading.Event().wait(0.01)
    raise TimeoutError("the team did not come together")


def _race_there(task: tuple[Open, int, list[str], int]) -> list[str]:
    """Race for names, then for one object, from another process; return the names that were won."""
    buckets, me, names, bumps = task
    with closing(buckets()) as bucket:
        _meet(bucket, me)
        won = [name for name in names if bucket.create(name, b"%d" % me * (me * 1000 + 1))]
        _bump(bucket, bumps)
        return won


def _bump(bucket: Bucket, times: int) -> None:
    """Add one so many times, beginning anew whenever another client was faster."""
    for _ in range(times):
        for attempt in count():
            found = bucket.get("counter")
            assert found is not None
            if bucket.swap("counter", b"%d" % (int(found.data) + 1), found.tag):
                break
            assert attempt < 1000, "a swap is refused although no other client wrote"
