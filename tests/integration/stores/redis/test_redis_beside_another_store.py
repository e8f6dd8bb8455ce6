"""The channel and the queue of runs in Redis, beside records that are kept elsewhere."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from everstep import AsyncHost, Context, Durability, Flow, Host, Status, node, wait
from everstep.checkpoints import CheckpointManager
from everstep.errors import BadRequest, ServiceMissing, StoreError, StoreUnavailable
from everstep.model.durability import DurabilityMode
from everstep.registry import open_channels, open_queue, open_store
from everstep.runtime.system import SystemClock
from tests.servers import warm
from tests.servers.running import free_port

AT = "127.0.0.1"


class Shop:
    """Three steps that use the channel in every way."""

    def __init__(self, mode: DurabilityMode = "strong") -> None:
        self.calls: Counter[str] = Counter()

        @node
        def order(ctx: Context) -> None:
            self.calls["order"] += 1
            ctx.channel["state"] = "ordered"
            ctx.channel.append("log", "ordered")
            ctx.channel.atomic_add("visits")
            ctx.channel["gone"] = 1

        @node
        def pay(ctx: Context) -> None:
            self.calls["pay"] += 1
            assert ctx.channel["state"] == "ordered"
            ctx.channel.delete("gone")
            ctx.channel.append("log", "paid")
            ctx.channel.prepend("log", "began")
            ctx.channel.atomic_add("visits", 10)

        @node
        def ship(ctx: Context) -> str:
            self.calls["ship"] += 1
            ctx.channel.append("log", "shipped")
            return " ".join(ctx.channel["log"])

        self.flow = Flow("orders", order >> pay >> ship, durability=mode)


DONE = {"state": "ordered", "log": ["began", "created", "ordered", "paid", "shipped"], "visits": 11}


@pytest.mark.parametrize("mode", ["strong", "partial"])
def test_the_channel_is_in_redis_and_the_chain_says_so_and_nothing_more(
    tmp_path: Path, redis_url: str, mode: DurabilityMode
) -> None:
    shop, store = Shop(mode), f"sqlite:///{tmp_path}/runs.db"
    with Host(store, channel=redis_url) as host:
        result = host.run(shop.flow, run_id="A", channel={"log": ["created"]})
        assert result["ship.__result__"] == "began created ordered paid shipped"
        assert host.channel("A") == result.channel == DONE
        _, told = CheckpointManager(host, tmp_path / "sets").create_checkpoint("A")
        assert told.backend == {"queue": "sqlite", "channel": redis_url.partition(":")[0]}
        written = [w.name for record in host.history("A") for s in record.steps for w in s.writes]
        assert not [name for name in written if name.startswith("@channel/")]
        assert host.state("A")["@kept/channel"] == "elsewhere"
        assert not [name for name in host.state("A", at=1) if name.startswith("@channel/")]
    kept = open_channels(redis_url).load("A")
    assert (sorted(kept.entries), kept.staged) == (["log", "state", "visits"], {})


def test_what_is_in_the_chain_is_shown_as_the_channel_too(tmp_path: Path) -> None:
    shop = Shop()
    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        host.run(shop.flow, run_id="A", channel={"log": ["created"]})
        assert host.channel("A") == DONE


class Interruption:
    """Fails at the n-th write of the records or of the channel, before it or after it."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.at, self.after, self.count, self.hit = at, after, 0, ""

    def __call__(self, kind: str, work: Any) -> Any:
        if self.hit:
            raise StoreError("the process is dead.")
        self.count += 1
        if self.count != self.at:
            return work()
        self.hit = kind
        if self.after:
            work()
        raise StoreError(f"interrupted at {kind}.")


class Interrupted:
    """Channels whose writes may fail."""

    def __init__(self, url: str, by: Interruption) -> None:
        self._channels, self._by = open_channels(url), by

    def load(self, run_id: str) -> Any:
        return self._channels.load(run_id)

    def stage(self, *arguments: Any) -> None:
        self._by("stage", lambda: self._channels.stage(*arguments))

    def settle(self, run_id: str, checkpoint_id: str, *, is_written: bool) -> None:
        self._by("settle", lambda: self._channels.settle(run_id, checkpoint_id, is_written=is_written))

    def close(self) -> None:
        self._channels.close()


@pytest.mark.parametrize("after", [False, True])
def test_a_process_that_dies_at_any_write_changes_the_channel_once_with_its_step(
    tmp_path: Path, redis_url: str, after: bool
) -> None:
    kinds: Counter[str] = Counter()
    for at in range(1, 40):
        shop, run_id = Shop(), f"{'after' if after else 'before'}-{at}"
        interruption, store = Interruption(at, after=after), f"sqlite:///{tmp_path}/runs.db"
        opened = open_store(store, SystemClock())
        real = opened.store.put_blocking  # type: ignore[attr-defined]  # SQLite's is a blocking store
        opened.store.put_blocking = (  # type: ignore[attr-defined]
            lambda commits, real=real, by=interruption: by("put", lambda: real(commits))
        )
        with suppress(StoreError), Host(opened, channel=redis_url) as host:
            host._host._services.channels = Interrupted(redis_url, interruption)
            host.run(shop.flow, run_id=run_id, channel={"log": ["created"]})
        with Host(store, channel=redis_url) as host:
            result = host.run(shop.flow, run_id=run_id, channel={"log": ["created"]})
            assert result.status is Status.COMPLETED, result.error
            assert host.channel(run_id) == DONE, (at, interruption.hit)
        if not interruption.hit:
            break
        kinds[interruption.hit] += 1
    assert kinds.keys() == {"put", "stage", "settle"}


def test_a_host_that_does_not_know_the_channel_refuses_the_run(tmp_path: Path, redis_url: str) -> None:
    shop, store = Shop(), f"sqlite:///{tmp_path}/runs.db"
    with Host(store, channel=redis_url) as host:
        host.start(shop.flow, run_id="A", channel={"log": ["created"]})
    with Host(store) as host:
        with pytest.raises(ServiceMissing, match="does not know where") as caught:
            host.resume("A", shop.flow)
        assert "channel=" in caught.value.fix
        with pytest.raises(ServiceMissing):
            host.channel("A")
    with Host(store, channel=redis_url) as host:
        assert host.run(shop.flow, run_id="A", channel={"log": ["created"]}).status is Status.COMPLETED
        assert host.channel("A") == DONE


def test_a_run_that_began_with_its_channel_in_the_chain_keeps_it_there(
    tmp_path: Path, redis_url: str
) -> None:
    shop, store = Shop(), f"sqlite:///{tmp_path}/runs.db"
    with Host(store) as host:
        host.start(shop.flow, run_id="A", channel={"log": ["created"]})
    with Host(store, channel=redis_url) as host:
        host.resume("A", shop.flow)
        assert host.state("A")["@channel/visits"] == 11
    assert open_channels(redis_url).load("A").entries == {}


def test_forks_and_replays_say_that_the_channel_has_no_past(
    tmp_path: Path, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop()
    with Host(f"sqlite:///{tmp_path}/runs.db", channel=redis_url) as host:
        host.run(shop.flow, run_id="A", channel={"log": ["created"]})
        with pytest.raises(BadRequest, match="outside forks"):
            host.fork("A", at=2, channel={"log": []}, fork_id="B")
        with caplog.at_level(logging.WARNING, "everstep"):
            host.fork("A", at=1, fork_id="B")
        assert "the fork's begins empty" in caplog.text
        assert host.resume("B", shop.flow)["ship.__result__"] == "began ordered paid shipped"
        assert host.channel("B")["log"] == ["began", "ordered", "paid", "shipped"]
        assert host.channel("A") == DONE
        with pytest.raises(BadRequest, match="no past"):
            host.debug.replay("A", "pay", shop.flow)


def test_a_channel_out_of_reach_stops_the_run_which_goes_on_later(tmp_path: Path, redis_url: str) -> None:
    shop, store = Shop(), f"sqlite:///{tmp_path}/runs.db"
    with Host(store, channel=redis_url) as host:
        host.start(shop.flow, run_id="A", channel={"log": ["created"]})
    with Host(store, channel=f"redis://{AT}:{free_port()}/0") as host, pytest.raises(StoreUnavailable):
        host.resume("A", shop.flow)
    with Host(store, channel=redis_url) as host:
        host.resume("A", shop.flow)
        assert host.channel("A") == DONE
    assert shop.calls == {"order": 1, "pay": 1, "ship": 1}


def test_a_flow_that_tolerates_outages_keeps_its_channel_in_its_records(
    tmp_path: Path, redis_url: str
) -> None:
    flow = Flow("f", Shop().flow.nodes, durability=Durability("strong", on_store_failure="best_effort"))
    with (
        Host(f"sqlite:///{tmp_path}/runs.db", channel=redis_url) as host,
        pytest.raises(BadRequest, match="keeps its channel in its records"),
    ):
        host.run(flow)


def test_only_a_redis_keeps_channels_and_queues() -> None:
    for option in ("channel", "queue"):
        with pytest.raises(BadRequest, match=f"a {option} cannot be kept in") as caught:
            Host("memory:", **{option: "sqlite:///x.db"})  # type: ignore[arg-type]
        assert "redis://" in caught.value.fix


@pytest.fixture
def queue(redis_url: str) -> Iterator[Any]:
    opened = open_queue(redis_url, SystemClock())
    yield opened
    opened.close()


def test_a_run_is_queued_once_however_often_it_is_announced(queue: Any, redis_url: str) -> None:
    assert [queue.announce("A", "orders"), queue.announce("A", "orders")] == [True, False]
    assert queue.announce("B", "orders") is True
    assert queue.waiting() == ["A", "B"]
    queue.take(["A", "unknown"])
    queue.take([])
    assert queue.waiting() == ["B"]
    assert queue.announce("A", "orders") is True


def test_a_run_that_was_not_taken_out_is_rung_for_again(queue: Any, redis_url: str) -> None:
    for is_new in (True, False):
        heard = queue.changes()
        assert queue.announce("A", "orders") is is_new
        until = time.monotonic() + 20
        while queue.changes() == heard:  # what is published comes on a connection of its own
            assert time.monotonic() < until
            time.sleep(0.01)


def test_a_run_that_is_driven_or_cancelled_by_name_is_in_the_queue_no_more(
    tmp_path: Path, redis_url: str, queue: Any
) -> None:
    asks = Flow("asks", [wait.callback("paid")], durability="strong")
    with Host(f"sqlite:///{tmp_path}/runs.db", queue=redis_url) as host:
        for name in ("run", "cancelled"):
            host.start(asks, run_id=name)
        assert queue.waiting() == ["run", "cancelled"]
        host.run(asks, run_id="run")
        host.cancel("cancelled")
        assert queue.waiting() == []
        host.answer(host.waits()[0].id, {"receipt": 1})
        assert queue.waiting() == ["run"]
        assert host.resume("run", asks).status is Status.COMPLETED
        assert queue.waiting() == []


def test_workers_hear_of_runs_through_the_queue_and_take_them_out(
    tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everstep.runtime.workers.worker.POLL", 3600.0)  # it does not look by itself
    shop = Shop()

    async def work() -> None:
        store = f"sqlite:///{tmp_path}/runs.db"
        async with AsyncHost(store, queue=redis_url) as host, AsyncHost(store, queue=redis_url) as other:
            # A store that never says that something changed, as some cannot.
            host._services.store.changes = lambda: 0  # type: ignore[method-assign]
            worker = host.worker([shop.flow])
            working = asyncio.create_task(worker.run())
            for done, run_id in enumerate(("A", "B"), 1):
                await asyncio.sleep(0.2)  # until the worker has nothing to do
                await other.start(shop.flow, run_id=run_id, channel={"log": ["created"]})
                async with asyncio.timeout(60):
                    while worker.stats.completed < done:
                        await asyncio.sleep(0.01)
            worker.stop()
            await working

    asyncio.run(work())
    assert open_queue(redis_url, SystemClock()).waiting() == []
    assert shop.calls == {"order": 2, "pay": 2, "ship": 2}


def test_a_queue_out_of_reach_costs_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop()
    with Host(f"sqlite:///{tmp_path}/runs.db", queue=f"redis://{AT}:{free_port()}/0") as host:
        host.start(shop.flow, run_id="A", channel={"log": ["created"]})
        assert "queue message failed" in caplog.text
        assert host.work([shop.flow], until_idle=True).completed == 1


FILE = """
from everstep import Context, Flow, node

@node
def order(ctx: Context) -> None:
    ctx.channel["state"] = "ordered"

flow = Flow("orders", [order], durability="strong")
"""


def test_the_command_line_is_told_by_the_environment(
    tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flows, store = tmp_path / "orders.py", f"sqlite:///{tmp_path}/runs.db"
    flows.write_text(FILE)
    monkeypatch.setenv("EVERSTEP_CHANNEL", redis_url)
    monkeypatch.setenv("EVERSTEP_QUEUE", redis_url)

    def everstep(command: str, *words: str) -> None:
        line = [sys.executable, "-m", "everstep", command, str(flows), *words, "--store", store]
        done = warm.run(line, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr

    everstep("run", "--run-id", "A")
    everstep("run", "--start", "--run-id", "B")
    assert open_queue(redis_url, SystemClock()).waiting() == ["B"]
    everstep("worker", "--once")
    with Host(store, channel=redis_url) as host:
        assert host.channel("A") == host.channel("B") == {"state": "ordered"}
    assert open_queue(redis_url, SystemClock()).waiting() == []
