"""`@step` and `everstep.current()`: durable helper functions, and the node that is running."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest

from everstep import AsyncHost, Budget, Context, Flow, Host, Retry, current, node, step
from everstep.errors import BadRequest
from tests.integration.runtime.drive.durable_calls import calls_of, die, error_of

MADE: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_made() -> None:
    MADE.clear()


@step
def look(what: Any) -> str:
    MADE.append(what)
    return f"known of {what}"


@step
async def look_soon(what: Any) -> str:
    MADE.append(what)
    return f"known of {what}"


@step(name="pay", key=lambda order, **_: order, retry=Retry(2, first=0), timeout="20s")
def charge(order: str, *, idempotency_key: str = "") -> str:
    MADE.append((order, idempotency_key))
    if len(MADE) == 1:
        raise ConnectionError("try again")
    return idempotency_key


def test_outside_of_a_node_it_is_a_plain_call() -> None:
    assert look("a") == "known of a"
    assert asyncio.run(look_soon("b")) == "known of b"
    assert look.__name__ == "look"
    assert MADE == ["a", "b"]
    with pytest.raises(BadRequest, match="no node is running"):
        current()


@pytest.mark.parametrize("has_context", [False, True])
def test_inside_a_node_it_is_a_step_of_it_under_its_own_name(host: Host, has_context: bool) -> None:
    dies = [True]

    def work() -> list[str]:
        found = [look("a"), look("b")]
        if dies:
            raise KeyboardInterrupt
        return found

    if has_context:

        @node(output="found")
        def agent(ctx: Context) -> list[str]:
            assert current() is ctx
            return work()
    else:

        @node(output="found")
        def agent() -> list[str]:
            assert current().path == "agent"
            return work()

    flow = Flow("f", [agent], durability="strong")
    die(host, flow)
    dies.clear()
    assert host.run(flow, run_id="r")["found"] == ["known of a", "known of b"]
    assert MADE == ["a", "b"]
    assert calls_of(host) == [("agent/$look", 1, "completed", 1), ("agent/$look", 2, "completed", 1)]


def test_it_takes_the_options_of_a_step(host: Host) -> None:
    @node(output="keys")
    def agent() -> list[str]:
        return [charge("a"), charge("b"), charge("a")]

    first, second, third = host.run(Flow("f", [agent], durability="strong"), run_id="r")["keys"]
    assert first == third != second
    assert [("a", first), ("a", first), ("b", second)] == MADE
    assert all(path.startswith("agent/$pay=") for path, *_ in calls_of(host))


def test_deep_in_other_functions_and_tasks_it_still_belongs_to_the_node(host: Host) -> None:
    async def deep(what: str) -> str:
        await asyncio.sleep(0)
        return await look_soon(what)

    @node(output="found")
    async def agent() -> list[str]:
        first = await asyncio.create_task(deep("a"))
        return [first, await deep("b")]

    assert host.run(Flow("f", [agent], durability="strong"), run_id="r")["found"] == [
        "known of a",
        "known of b",
    ]
    assert [path for path, *_ in calls_of(host)] == ["agent/$look_soon"] * 2


def test_nodes_side_by_side_are_not_mixed_up(host: Host) -> None:
    both = threading.Barrier(2)

    @node(output="one")
    def first() -> str:
        both.wait(20)
        look("a")
        return current().node

    @node(output="two")
    def second() -> str:
        both.wait(20)
        look("b")
        return current().node

    result = host.run(Flow("f", [first, second], durability="strong"), run_id="r")
    assert (result["one"], result["two"]) == ("first", "second")
    assert sorted(path for path, *_ in calls_of(host)) == ["first/$look", "second/$look"]


def test_threads_like_the_node_know_it_and_bare_ones_do_not(host: Host) -> None:
    def bare() -> str:
        try:
            return current().node
        except BadRequest:
            return "none"

    @node(output="found")
    def agent() -> list[str]:
        found: list[str] = []
        for target in (bare, lambda: contextvars.copy_context().run(bare)):
            thread = threading.Thread(target=lambda target=target: found.append(target()))
            thread.start()
            thread.join(20)
        copied = contextvars.copy_context()
        thread = threading.Thread(target=lambda: found.append(copied.run(bare)))
        thread.start()
        thread.join(20)
        return found

    @node(output="more")
    async def agent_async() -> str:
        return await asyncio.to_thread(bare)

    result = host.run(Flow("f", [agent, agent_async], durability="strong"), run_id="r")
    assert result["found"] == ["none", "none", "agent"]
    assert result["more"] == "agent_async"


def test_a_thread_of_a_sync_node_makes_steps_of_it(host: Host) -> None:
    @node(output="found")
    def agent() -> list[str]:
        found: list[str] = []
        for what in ("a", "b"):
            copied = contextvars.copy_context()
            thread = threading.Thread(
                target=lambda what=what, copied=copied: found.append(copied.run(look, what))
            )
            thread.start()
            thread.join(20)
        return found

    assert host.run(Flow("f", [agent], durability="strong"), run_id="r")["found"] == [
        "known of a",
        "known of b",
    ]
    assert len(calls_of(host)) == 2


def test_a_helper_that_is_unlike_its_node_is_refused_by_name(host: Host) -> None:
    @node(output="a")
    def sync_node() -> Any:
        return look_soon("a").send(None)  # as a loop begins it

    @node(output="b")
    async def async_node() -> Any:
        return look("b")

    @node(output="c")
    async def in_a_thread() -> Any:
        return await asyncio.to_thread(look, "c")

    assert "is async, and its node is not" in error_of(host.run(Flow("f", [sync_node])))
    assert "await ctx.step(name, fn)" in error_of(host.run(Flow("f", [async_node])))
    assert "await ctx.step(name, fn)" in error_of(host.run(Flow("f", [in_a_thread])))
    assert MADE == []


def test_the_time_and_chance_of_a_thread_of_an_async_node_are_the_same_on_every_attempt(host: Host) -> None:
    def draw() -> list[Any]:
        return [current().now(), current().uuid(), current().random()]

    drawn: list[list[Any]] = []

    @node(output="known", retry=Retry(1, first=0))
    async def agent() -> str:
        drawn.append([*await asyncio.to_thread(draw), current().uuid()])
        known: str = await look_soon("a")
        if len(drawn) == 1:
            raise ConnectionError
        return known

    assert host.run(Flow("agents", [agent]), run_id="r")["known"] == "known of a"
    assert drawn[0] == drawn[1]
    names = [path.rpartition("$")[2] for path, *_ in calls_of(host)]
    assert names == ["now", "uuid", "random", "uuid", "look_soon"]


def test_an_async_helper_is_a_coroutine_function(host: Host) -> None:
    @node(output="found")
    @step
    async def agent(what: str) -> str:
        MADE.append(what)
        return what

    class Shop:
        @step
        async def look(self, what: str) -> str:
            return what

    assert inspect.iscoroutinefunction(look_soon)
    assert inspect.iscoroutinefunction(Shop().look)
    assert not inspect.iscoroutinefunction(look)
    assert agent.is_async
    assert host.run(Flow("f", [agent], durability="strong"), {"what": "a"}, run_id="r")["found"] == "a"
    assert [path for path, *_ in calls_of(host)] == ["agent/$agent"]


class Looking:
    async def __call__(self, what: str) -> str:
        return what


@pytest.mark.parametrize("made", [partial(look_soon.__wrapped__, "a"), partial(Looking(), "a")])  # type: ignore[attr-defined]
def test_what_has_no_name_of_its_own_is_given_one(host: Host, made: Any) -> None:
    with pytest.raises(
        BadRequest, match=r'no name of its own. Give it one that stays: step\(name="search"\)'
    ):
        step(made)
    named = step(name="look")(made)

    @node(output="found")
    async def agent() -> str:
        found: str = await named()
        return found

    assert host.run(Flow("f", [agent], durability="strong"), run_id="r")["found"].endswith("a")
    assert [path for path, *_ in calls_of(host)] == ["agent/$look"]


def test_what_cannot_be_a_step_is_refused_when_it_is_defined() -> None:
    def yields() -> Iterator[int]:
        yield 1

    for made, said in (
        (3, "is given 3"),
        (yields, "which yields"),
        (classmethod(look), "is given a classmethod"),
    ):
        with pytest.raises(BadRequest, match=said):
            step(made)  # type: ignore[arg-type]


def test_a_helper_inside_another_is_a_part_of_it(host: Host) -> None:
    @step
    def outer(what: str) -> str:
        with pytest.raises(BadRequest, match="no node is running"):
            current()
        return look(what) + "!"

    @node(output="found")
    def agent() -> str:
        return outer("a")

    assert host.run(Flow("f", [agent], durability="strong"), run_id="r")["found"] == "known of a!"
    assert [path for path, *_ in calls_of(host)] == ["agent/$outer"]


def test_generators_know_their_node(host: Host) -> None:
    @node(output="one", replayable=True)
    def sync_one() -> Iterator[str]:
        yield look("a")
        yield current().node

    @node(output="two", replayable=True)
    async def async_one() -> AsyncIterator[str]:
        yield await look_soon("b")
        yield current().node

    result = host.run(Flow("f", [sync_one, async_one], durability="strong"), run_id="r")
    assert (result["one"], result["two"]) == (["known of a", "sync_one"], ["known of b", "async_one"])
    assert sorted(path for path, *_ in calls_of(host)) == ["async_one/$look_soon", "sync_one/$look"]


def test_an_atomic_flow_refuses_a_helper_by_name(host: Host) -> None:
    @node(output="found")
    def agent() -> str:
        return look("a")

    flow = Flow("outer", [Flow("inner", [agent]).as_node(durability="atomic")])
    assert "NotInAtomic" in error_of(host.run(flow))
    assert MADE == []


def test_under_off_a_helper_is_made_and_not_recorded(host: Host) -> None:
    @node(output="found")
    def agent() -> str:
        return look("a")

    assert host.run(Flow("f", [agent], durability="off"))["found"] == "known of a"


def test_a_method_may_be_a_helper(host: Host) -> None:
    class Client:
        @step
        def get(self, what: str) -> str:
            MADE.append(what)
            return f"got {what}"

    client = Client()

    @node(output="found")
    def agent() -> str:
        return client.get("a")

    assert client.get("x") == "got x"
    assert host.run(Flow("f", [agent], durability="strong"), run_id="r")["found"] == "got a"
    assert calls_of(host) == [("agent/$get", 1, "completed", 1)]


def test_threads_of_a_node_that_ask_at_once_get_one_context(host: Host) -> None:
    @node(output="is_one")
    def agent() -> bool:
        together, found = threading.Barrier(8), []

        def ask() -> None:
            together.wait(20)
            found.append(current())

        threads = [threading.Thread(target=contextvars.copy_context().run, args=(ask,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        return len(found) == 8 and all(context is current() for context in found)

    assert host.run(Flow("f", [agent], durability="strong"))["is_one"] is True


def test_what_a_node_leaves_running_is_refused_when_it_is_over(host: Host) -> None:
    is_over, said = threading.Event(), []

    def late() -> None:
        is_over.wait(20)
        try:
            look("late")
        except BadRequest as error:
            said.append(error.fix)

    @node(output="thread")
    def agent() -> int:
        left.append(threading.Thread(target=contextvars.copy_context().run, args=(late,)))
        left[0].start()
        return 1

    left: list[threading.Thread] = []
    host.run(Flow("f", [agent], durability="strong")).raise_for_status()
    is_over.set()
    left[0].join(20)
    assert said == ["Await all that a node begins before it returns."]
    assert MADE == []


def test_runs_side_by_side_on_one_loop_record_the_steps_of_their_helpers(url: str) -> None:
    @node(output="found")
    async def agent(who: int) -> list[str]:
        return [await look_soon((who, k)) for k in range(2)]

    flow = Flow("f", [agent], durability="strong")

    async def work() -> tuple[list[Any], list[str]]:
        async with AsyncHost(url) as host:
            results = await asyncio.gather(*(host.run(flow, {"who": k}, run_id=f"r{k}") for k in range(3)))
            triggers = [record.trigger.value for record in await host.history("r0")]
        return [result["found"] for result in results], triggers

    found, triggers = asyncio.run(work())
    assert found == [[f"known of ({k}, 0)", f"known of ({k}, 1)"] for k in range(3)]
    assert triggers == ["admission", "unit", "unit", "completed"]


def test_a_flow_with_a_budget_records_the_steps_of_helpers(host: Host) -> None:
    @node(output="found")
    def agent() -> str:
        current().spend(usd="1")
        return look("a")

    flow = Flow("f", [agent], durability="strong", budgets=[Budget("usd", "5")])
    assert host.run(flow, run_id="r")["found"] == "known of a"
    assert [path for path, *_ in calls_of(host)] == ["agent/$look"]


def test_the_visit_at_which_a_run_is_taken_up_says_so_to_who_asks(host: Host) -> None:
    dies = [True]

    @node(output="first")
    def one() -> bool:
        return current().is_resumed

    @node(output="second")
    def two(first: bool) -> bool:
        if dies:
            raise KeyboardInterrupt
        return current().is_resumed

    @node(output="third")
    def three(second: bool) -> bool:
        return current().is_resumed

    flow = Flow("f", [one, two, three], durability="strong")
    die(host, flow)
    dies.clear()
    result = host.run(flow, run_id="r")
    assert [result[name] for name in ("first", "second", "third")] == [False, True, False]
