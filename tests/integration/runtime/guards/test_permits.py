"""Limits of suppliers: calls of all flows and workers share them, and a step without room holds nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from everstep import AsyncHost, Durability, Flow, Host, Limit, node
from everstep.engine.limits.permits import Asked, ask, give_back, prolong, supplier_key
from everstep.errors import BadRequest, FlowError
from everstep.model.leases import KeyLimit, KeyState
from everstep.ports.limits import LimitingStore
from everstep.testing import ManualClock

SECOND = 1_000_000
TTL = timedelta(seconds=30)


def test_a_place_is_held_until_it_is_given_back_or_runs_out() -> None:
    limit = KeyLimit(name="api", running=2)
    state, answered = ask(KeyState(), limit, [Asked("a"), Asked("b"), Asked("c")], 0, TTL)
    assert answered.given == ("a", "b") and answered.until is None
    state, again = ask(state, limit, [Asked("a")], SECOND, TTL)
    assert again.given == ("a",)
    state = prolong(state, limit, ["b"], 20 * SECOND, TTL)
    assert ask(state, limit, [Asked("c")], 30 * SECOND, TTL)[1].given == ()
    assert ask(state, limit, [Asked("c")], 32 * SECOND, TTL)[1].given == ("c",)
    state = give_back(state, limit, ["b"], 21 * SECOND)
    assert ask(state, limit, [Asked("c")], 21 * SECOND, TTL)[1].given == ("c",)


def test_what_a_supplier_asks_for_holds_for_all() -> None:
    limit = KeyLimit(name="api", starts=5, span=timedelta(seconds=1))
    state, answered = ask(KeyState(), limit, [Asked("a")], 0, TTL)
    state = give_back(state, limit, ["a"], SECOND, closed_until=9 * SECOND)
    _, answered = ask(state, limit, [Asked("b")], 2 * SECOND, TTL)
    assert (answered.given, answered.until, answered.why) == ((), 9 * SECOND, "told to wait")
    assert ask(state, limit, [Asked("b")], 9 * SECOND, TTL)[1].given == ("b",)


def test_nodes_that_write_one_limit_with_other_numbers_take_nothing_from_each_other() -> None:
    hourly = KeyLimit(name="api", starts=5, span=timedelta(hours=1))
    others = [KeyLimit(name="api", starts=10, span=timedelta(seconds=1)), KeyLimit(name="api", running=3)]
    state, given = KeyState(), 0
    for k in range(40):
        now = k * 2 * SECOND
        state, answered = ask(state, hourly, [Asked(f"h{k}")], now, TTL)
        given += len(answered.given)
        for limit in others:
            state, _ = ask(state, limit, [Asked(f"o{k}")], now, TTL)
            state = prolong(state, limit, [f"o{k}"], now, TTL)
            state = give_back(state, limit, [f"o{k}"], now)
    assert given <= 5
    assert ask(state, hourly, [Asked("later")], 7200 * SECOND, TTL)[1].given == ("later",)
    assert ask(state, others[0], [Asked("later")], 7200 * SECOND, TTL)[0].span == SECOND


@pytest.mark.parametrize(
    "weight", [float("nan"), float("inf"), float("-inf"), -5, 0, 10**400, "7", None, True]
)
def test_an_input_that_is_no_weight_is_one_and_one_beyond_all_is_all(url: str, weight: object) -> None:
    @node(output="b", limit=Limit("api", rate="10/1s", weight="a"))
    def call(a: Any) -> int:
        return 1

    with Host("memory:") as host:
        assert host.run(Flow("f", [call]), {"a": weight}).status == "completed"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: node(output="b", limit="openai")(lambda a: a),  # type: ignore[call-overload]
        lambda: node(output="b", limit=Limit("openai", running=1, by="a"))(lambda a: a),
        lambda: node(output="b", limit=Limit("openai", running=1, weight=2))(lambda a: a),
    ],
)
def test_limits_of_nodes_that_mean_nothing_are_refused(wrong: Callable[[], Any]) -> None:
    with pytest.raises(BadRequest):
        wrong()


def test_a_node_inside_an_atomic_flow_has_no_limit() -> None:
    @node(output="b", limit=Limit("api", running=1))
    def call(a: int) -> int:
        return a

    with pytest.raises(FlowError, match="has a limit"):
        Flow("outer", [Flow("inner", [call]).as_node(durability="atomic")])


class Api:
    """A supplier that counts."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.began: list[float] = []

    async def __call__(self, seconds: float = 0.002) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        self.began.append(time.monotonic())
        await asyncio.sleep(seconds)
        self.running -= 1


def test_flows_and_hosts_share_a_limit_by_its_name(url: str) -> None:
    api = Api()

    @node(output="b", limit=Limit("api", running=3))
    async def call(a: int) -> int:
        await api()
        return a

    @node(output="c", limit=Limit("api", running=3))
    async def another(a: int) -> int:
        await api()
        return a

    @node(output="n")
    def count(b: list[int]) -> int:
        return len(b)

    many, one = Flow("many", [call.map_over("a"), count]), Flow("one", [another])

    async def work() -> None:
        async with AsyncHost(url) as host:
            runs = [host.run(many, {"a": list(range(12))}), host.run(many, {"a": list(range(12))})]
            ended = await asyncio.gather(*runs, *(host.run(one, {"a": k}) for k in range(4)))
            assert [run.status for run in ended] == ["completed"] * 6
            store = cast(LimitingStore, host.durability.checkpoint_store)
            assert await store.limit_states("node ") == {}

    asyncio.run(work())
    assert 1 < api.most <= 3
    assert len(api.began) == 28


def test_a_map_takes_no_place_of_its_items(url: str) -> None:
    @node(output="b", limit=Limit("api", running=1))
    async def call(a: int) -> int:
        return a

    @node(output="n")
    def count(b: list[int]) -> int:
        return len(b)

    flow = Flow("many", [call.map_over("a"), count])

    async def work() -> None:
        async with AsyncHost(url) as host, asyncio.timeout(20):
            runs = (host.run(flow, {"a": list(range(4))}) for _ in range(2))
            assert [run["n"] for run in await asyncio.gather(*runs)] == [4, 4]

    asyncio.run(work())


def test_a_step_that_waits_for_a_slot_takes_no_place_and_counts_in_no_rate(url: str) -> None:
    seen: list[tuple[int, int]] = []

    async def work() -> None:
        async with AsyncHost(url) as host:
            store = cast(LimitingStore, host.durability.checkpoint_store)

            @node(output="b", limit=Limit("api", running=5, rate="1000/1m"))
            async def call(a: int) -> int:
                [body] = (await store.limit_states("node ")).values()
                state = KeyState.of(body)
                seen.append((len(state.holders), len(state.log)))
                return a

            @node(output="n")
            def count(b: list[int]) -> int:
                return len(b)

            flow = Flow("many", [call.map_over("a"), count], max_concurrency=1)
            assert (await host.run(flow, {"a": list(range(6))}))["n"] == 6

    asyncio.run(work())
    assert seen == [(1, k) for k in range(1, 7)]


def test_a_step_without_room_keeps_no_other_from_starting(url: str) -> None:
    api, order = Api(), list[str]()

    @node(output="b", limit=Limit("api", running=1))
    async def call(a: int) -> int:
        await api(0.05)
        order.append("call")
        return a

    @node(output="other")
    async def free(a: int) -> int:
        order.append("free")
        return a

    @node(output="end")
    def end(b: int, other: int) -> int:
        return b

    flow = Flow("f", [call, free, end], max_concurrency=1)

    async def work() -> None:
        async with AsyncHost(url) as host:
            await asyncio.gather(*(host.run(flow, {"a": k}) for k in range(3)))

    asyncio.run(work())
    assert order.count("free") == order.count("call") == 3
    assert order[:3].count("free") >= 2
    assert api.most == 1


def test_a_rate_of_weights_holds_while_time_is_moved(tmp_path: Path) -> None:
    clock = ManualClock(auto=True)
    began: list[tuple[float, int]] = []

    @node(output="b", limit=Limit("tokens", rate="100/1m", weight="size"))
    async def call(size: int) -> int:
        began.append((clock.now().timestamp(), size))
        return size

    @node(output="n")
    def count(b: list[int]) -> int:
        return sum(b)

    flow = Flow("f", [call.map_over("size"), count])
    sizes = [40, 40, 40, 10, 90, 30, 100, 5, 5, 300, 20]

    async def work() -> None:
        async with AsyncHost(f"sqlite:///{tmp_path}/runs.db", clock=clock) as host:
            assert (await host.run(flow, {"size": sizes}))["n"] == sum(sizes)

    asyncio.run(work())
    assert sorted(size for _, size in began) == sorted(sizes)
    for at, _ in began:
        assert sum(min(size, 100) for other, size in began if at <= other <= at + 60) <= 100


def test_retry_after_lowers_it_for_all(tmp_path: Path) -> None:
    clock = ManualClock(auto=True)
    began: list[float] = []

    class TooMany(Exception):
        retry_after = 0.0

        def __init__(self, seconds: float) -> None:
            super().__init__("429")
            self.retry_after = seconds

    @node(output="b", limit=Limit("api", running=5), retry=2)
    async def call(a: int) -> int:
        began.append(clock.now().timestamp())
        if len(began) == 1:
            raise TooMany(120)
        return a

    flow = Flow("f", [call])

    async def work() -> None:
        async with AsyncHost(f"sqlite:///{tmp_path}/runs.db", clock=clock) as host:
            assert (await host.run(flow, {"a": 1})).status == "completed"
            assert (await host.run(flow, {"a": 2})).status == "completed"

    asyncio.run(work())
    assert began[1] - began[0] >= 120


def test_the_places_of_a_process_that_died_run_out_as_its_lease_does(tmp_path: Path) -> None:
    clock = ManualClock()
    url = f"sqlite:///{tmp_path}/runs.db"
    made: list[int] = []

    @node(output="b", limit=Limit("api", running=1))
    async def call(a: int) -> int:
        made.append(a)
        if len(made) == 1:
            await asyncio.Event().wait()
        return a

    flow = Flow("f", [call], durability=Durability(lease_ttl=timedelta(seconds=10)))

    async def work() -> None:
        host = AsyncHost(url, clock=clock)
        await host.__aenter__()
        dead = asyncio.ensure_future(host.run(flow, {"a": 1}, run_id="dead"))
        while not made:
            await asyncio.sleep(0.01)
        async with AsyncHost(url, clock=clock) as other:
            waits = asyncio.ensure_future(other.run(flow, {"a": 2}, run_id="waits"))
            for _ in range(8):
                clock.advance(0.5)
                await asyncio.sleep(0.02)
            assert made == [1]
            store = cast(LimitingStore, other.durability.checkpoint_store)
            [held] = (await store.limit_states(supplier_key("api"))).values()
            assert list(KeyState.of(held).holders) == ["dead call@1#1"]
            dead.cancel()
            with suppress(asyncio.CancelledError):
                await dead
            for _ in range(200):
                if waits.done():
                    break
                clock.advance(0.5)
                await asyncio.sleep(0.01)
            assert (await waits).status == "completed"
            assert (await other.resume("dead", flow)).status == "completed"
        await host.__aexit__(None, None, None)

    asyncio.run(work())
    assert made == [1, 2, 1]


def test_without_a_store_nothing_is_limited() -> None:
    @node(output="b", limit=Limit("api", running=1))
    def call(a: int) -> int:
        return a

    with Host(None) as host:
        assert host.run(Flow("f", [call]), {"a": 1})["b"] == 1
