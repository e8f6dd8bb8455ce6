"""Durable calls inside a node: what is recorded of them, and what another attempt or process makes of it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from everstep import END, Context, Durability, Flow, Host, KeyRing, Retry, ifelse, node, parallel
from everstep.errors import BadRequest, EverstepError, LeaseLost, StepFailed
from everstep.runtime.drive.units import calls
from everstep.testing import ManualClock
from tests.integration.runtime.drive.durable_calls import (
    MODES,
    Asking,
    World,
    ask,
    calls_of,
    die,
    error_of,
    steps_of,
)

pytestmark = pytest.mark.servers
Steps = Generator[Asking, Any, Any]


@pytest.fixture(params=MODES)
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


@pytest.fixture
def host(url: str) -> Iterator[Host]:
    """A host whose pauses pass at once."""
    with Host(url, clock=ManualClock(auto=True)) as opened:
        yield opened


# -- identity ---------------------------------------------------------------------------------------------


def test_a_recorded_call_is_not_made_again_wherever_the_process_dies(world: World, host: Host) -> None:
    def body(ctx: Context) -> Steps:
        found = []
        for what in ("a", "b", "c"):
            found.append((yield world.ask("look", what)))
        found.append((yield world.ask("think", "d")))
        return found

    flow = world.flow(body)
    for what in ("a", "b", "c", "d"):
        world.dies_at = {what}
        die(host, flow)
    world.dies_at = set()
    assert host.run(flow, run_id="r")["answer"] == ["known of a", "known of b", "known of c", "known of d"]
    assert world.calls == ["a", "a", "b", "b", "c", "c", "d", "d"]
    assert calls_of(host) == [
        ("agent/$look", 1, "completed", 1),
        ("agent/$look", 2, "completed", 1),
        ("agent/$look", 3, "completed", 1),
        ("agent/$think", 1, "completed", 1),
    ]


def test_a_key_tells_calls_apart_in_whichever_order_they_are_asked_for(world: World, host: Host) -> None:
    order = ["a", "b"]

    def body(ctx: Context) -> Steps:
        found = {}
        for what in order:
            found[what] = yield world.ask("look", what, key=what)
        return [*found.values(), (yield world.ask("end", "c"))]

    flow = world.flow(body)
    world.dies_at = {"c"}
    die(host, flow)
    order.reverse()
    world.dies_at = set()
    assert host.run(flow, run_id="r")["answer"] == ["known of b", "known of a", "known of c"]
    assert world.calls == ["a", "b", "c", "c"]
    paths = [path for path, *_ in calls_of(host)]
    assert len({*paths}) == 3
    assert all(path.startswith("agent/$look=") for path in paths[:2])


def test_the_same_key_is_the_same_call(world: World, host: Host) -> None:
    def body(ctx: Context) -> Steps:
        first = yield world.ask("look", "a", key=1)
        return [first, (yield world.ask("look", "a", key=1)), (yield world.ask("look", "a", key=2))]

    assert host.run(world.flow(body), run_id="r")["answer"] == ["known of a"] * 3
    assert world.calls == ["a", "a"]


def test_the_same_name_twice_at_once_needs_keys(host: Host) -> None:
    async def look(what: str) -> str:
        return what

    @node(output="found")
    async def agent(ctx: Context) -> list[str]:
        first = asyncio.create_task(ctx.step("look", look, "a"))
        try:
            return [await ctx.step("look", look, "b")]
        finally:
            await first

    assert "while it is under way" in error_of(host.run(Flow("f", [agent])))


@pytest.mark.parametrize("key", [object(), {1, object()}, threading.Lock()])
def test_a_key_that_cannot_be_stored_is_refused(world: World, host: Host, key: Any) -> None:
    def body(ctx: Context) -> Steps:
        return (yield world.ask("look", "a", key=key))

    assert "a key that cannot be stored" in error_of(host.run(world.flow(body)))
    assert world.calls == []


@pytest.mark.parametrize("name", ["", "a/b", "a@1", "a#1", "a=b", "$a", "na\udcffme", 7])
def test_a_name_that_would_be_part_of_a_path_is_refused(world: World, host: Host, name: Any) -> None:
    def body(ctx: Context) -> Steps:
        return (yield world.ask(name, "a"))

    assert "asks for a step" in error_of(host.run(world.flow(body)))


@pytest.mark.parametrize(
    "options", [{"effects": "destructive"}, {"on_change": "ignore"}, {"keep": "run"}, {"timeout": -1}]
)
def test_an_option_that_cannot_be_is_refused(world: World, host: Host, options: dict[str, Any]) -> None:
    def body(ctx: Context) -> Steps:
        return (yield world.ask("look", "a", **options))

    assert error_of(host.run(world.flow(body))).startswith("BadRequest")
    assert world.calls == []


def test_each_visit_of_a_loop_begins_without_calls(world: World, host: Host) -> None:
    def body(ctx: Context) -> Steps:
        return (yield world.ask("look", f"round {ctx.visit}"))

    @ifelse(when_true=END, when_false="agent")
    def is_enough(answer: str, ctx: Context) -> bool:
        return ctx.visit == 3

    flow = Flow("loops", [world.node(body), is_enough], entry="agent", durability="strong")
    world.dies_at = {"round 2"}
    die(host, flow)
    world.dies_at = set()
    assert host.run(flow, run_id="r")["answer"] == "known of round 3"
    assert world.calls == ["round 1", "round 2", "round 2", "round 3"]
    assert [path for path, *_ in calls_of(host)] == ["agent/$look", "agent@2/$look", "agent@3/$look"]


def test_items_of_a_map_have_calls_of_their_own(world: World, host: Host) -> None:
    def first(x: int) -> int:
        world.calls.append(x)
        if x in world.dies_at:
            raise KeyboardInterrupt
        return x * 10

    if world.mode == "sync":

        @node(output="y")
        def work(x: int, ctx: Context) -> int:
            return ctx.step("first", first, x) + ctx.step("second", world.look, x).count("k")
    else:

        @node(output="y")
        async def work(x: int, ctx: Context) -> int:
            one = await ctx.step("first", world.fn(first), x)
            two = await ctx.step("second", world.fn(world.look), x)
            return int(one) + str(two).count("k")

    flow = Flow("maps", [work.map_over("x", max_concurrency=1)], durability="strong")
    world.dies_at = {2}
    with pytest.raises(KeyboardInterrupt):
        host.run(flow, {"x": [1, 2, 3]}, run_id="r")
    world.dies_at = set()
    assert host.resume("r", flow)["y"] == [11, 21, 31]
    assert world.calls == [1, 1, 2, 2, 2, 3, 3]
    assert {path for path, *_ in calls_of(host)} == {
        f"work#{i}/${n}" for i in range(3) for n in ("first", "second")
    }


def test_flows_inside_flows_have_calls_of_their_own(world: World, host: Host) -> None:
    def body(ctx: Context) -> Steps:
        return [(yield world.ask("look", ctx.path)), (yield world.ask("end", "end"))]

    inner = Flow("inner", [world.node(body)])
    nodes = [inner.as_node(name=n).with_outputs(answer=n) for n in ("one", "two")]
    flow = Flow("outer", nodes, durability="strong", max_concurrency=1)
    world.dies_at = {"end"}
    die(host, flow)
    world.dies_at = set()
    assert host.run(flow, run_id="r").status == "completed"
    assert {path for path, *_ in calls_of(host)} == {
        f"{outer}/agent/${name}" for outer in ("one", "two") for name in ("look", "end")
    }
    assert sorted(set(world.calls)) == ["end", "one/agent", "two/agent"]
    assert world.calls.count("one/agent") == world.calls.count("two/agent") == 1


# -- results ----------------------------------------------------------------------------------------------


@dataclass
class Found:
    text: str
    when: datetime


VALUES = [
    None,
    ("a", 1),
    {"a": [1, 2.5, b"x"]},
    {1, 2},
    datetime(2030, 1, 1, tzinfo=UTC),
    Found("text", datetime(2030, 1, 1, tzinfo=UTC)),
    "x" * 2_000_000,
    list(range(200_000)),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_a_call_returned_is_returned_again(world: World, host: Host, value: Any) -> None:
    seen = []

    def body(ctx: Context) -> Steps:
        seen.append((yield ask("get", world.fn(lambda: value))))
        return (yield world.ask("end", "end"))

    flow = world.flow(body)
    world.dies_at = {"end"}
    die(host, flow)
    world.dies_at = set()
    assert host.run(flow, run_id="r").status == "completed"
    assert seen == [value, value]
    assert [type(one) for one in seen] == [type(value)] * 2


def test_what_a_node_does_to_a_result_is_not_recorded(world: World, host: Host) -> None:
    seen = []

    def body(ctx: Context) -> Steps:
        found = yield ask("get", world.fn(lambda: {"list": [1]}))
        seen.append(repr(found))
        found["list"].append(2)
        if ctx.attempt < 4:
            raise RuntimeError("again")
        return found

    flow = world.flow(body, retry=Retry(3, first=0))
    assert host.run(flow, run_id="r")["answer"] == {"list": [1, 2]}
    assert seen == ["{'list': [1]}"] * 4


def test_a_large_result_lies_beside_the_records(world: World, host: Host) -> None:
    def body(ctx: Context) -> Steps:
        found = yield ask("get", world.fn(lambda: "x" * 3_000_000))
        return len(found) + len((yield world.ask("end", "end")))

    flow = world.flow(body)
    world.dies_at = {"end"}
    die(host, flow)
    world.dies_at = set()
    assert host.run(flow, run_id="r")["answer"] == 3_000_000 + len("known of end")
    [step] = steps_of(host, path="agent/$get")
    assert step.writes[0].artifact is not None
    assert step.writes[0].artifact.size >= 3_000_000


def test_a_result_that_cannot_be_stored_fails_the_call_by_name(world: World, host: Host) -> None:
    def body(ctx: Context) -> Steps:
        try:
            yield ask("get", world.fn(threading.Lock), retry=Retry(3, first=0))
        except EverstepError as error:
            return error.code
        return "nothing was wrong"

    assert host.run(world.flow(body), run_id="r")["answer"] == "value.not_storable"
    assert calls_of(host) == [("agent/$get", 1, "failed", 1)]


# -- keys of calls ----------------------------------------------------------------------------------------


def test_a_function_that_takes_an_idempotency_key_gets_one_that_stays(world: World, host: Host) -> None:
    keys: list[tuple[str, str]] = []

    def pay(what: str, *, idempotency_key: str) -> None:
        keys.append((what, idempotency_key))
        if len(keys) == 1:
            raise ConnectionError("try again")
        if len(keys) == 2:
            raise KeyboardInterrupt

    def body(ctx: Context) -> Steps:
        yield ask("pay", world.fn(pay), "a", retry=Retry(2, first=0))
        yield ask("pay", world.fn(pay), "b")
        yield ask("pay", world.fn(pay), "c", key="c")
        yield ask("pay", world.fn(pay), "d", idempotency_key="my own")
        yield ask("pay", partial(world.fn(pay), "e"), key="e")

    flow = world.flow(body)
    die(host, flow)
    assert host.run(flow, run_id="r").status == "completed"
    assert [what for what, _ in keys] == ["a", "a", "a", "b", "c", "d", "e"]
    assert len({key for what, key in keys if what == "a"}) == 1
    assert len({key for _, key in keys}) == 5
    assert dict(keys)["d"] == "my own"


# -- retries ----------------------------------------------------------------------------------------------


def test_attempts_at_a_call_count_across_crashes(world: World, host: Host) -> None:
    tries: list[int] = []

    def flaky(what: str) -> str:
        tries.append(len(tries))
        if len(tries) == 3:
            raise KeyboardInterrupt
        raise ConnectionError(f"attempt {len(tries)}")

    def body(ctx: Context) -> Steps:
        try:
            yield ask("flaky", world.fn(flaky), "a", retry=Retry(3, first=1, jitter=0))
        except ConnectionError as error:
            return str(error)

    flow = world.flow(body)
    die(host, flow)
    # Two attempts have failed, and the third never reported: that costs nothing.
    assert host.run(flow, run_id="r")["answer"] == "attempt 5"
    assert calls_of(host) == [
        ("agent/$flaky", 1, "retrying", 1),
        ("agent/$flaky", 1, "retrying", 2),
        ("agent/$flaky", 1, "retrying", 3),
        ("agent/$flaky", 1, "failed", 4),
    ]


def test_only_what_a_retry_names_is_tried_again(world: World, host: Host) -> None:
    def fail(what: str) -> str:
        world.calls.append(what)
        raise KeyError(what)

    def body(ctx: Context) -> Steps:
        try:
            yield ask("fail", world.fn(fail), "a", retry=Retry(5, first=0, on=ConnectionError))
        except KeyError as error:
            return error.args

    assert tuple(host.run(world.flow(body), run_id="r")["answer"]) == ("a",)
    assert world.calls == ["a"]


def test_a_pause_before_another_attempt_goes_on_after_a_crash(world: World, url: str) -> None:
    if url == "memory:":
        pytest.skip("it ends with its process")
    clock = ManualClock(auto=True)

    def flaky() -> str:
        world.calls.append(clock.now())
        raise ConnectionError("down")

    def body(ctx: Context) -> Steps:
        try:
            yield ask("flaky", world.fn(flaky), retry=Retry(1, first="1h", jitter=0))
        except ConnectionError:
            return "down"

    with Host(url, clock=clock) as host:
        assert host.run(world.flow(body), run_id="r")["answer"] == "down"
    assert (world.calls[1] - world.calls[0]).total_seconds() == 3600


# -- failures ---------------------------------------------------------------------------------------------


class Declined(Exception):
    """One whose `__init__` takes something else than its args."""

    def __init__(self, card: str, *, amount: int) -> None:
        super().__init__(f"{card} was declined")
        self.card, self.amount = card, amount


class Slotted(Exception):
    """One that keeps something where `vars` does not show it."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason

    def __str__(self) -> str:
        return f"because {self.reason}"


class Holding(Exception):
    """One that holds what cannot be stored."""

    def __init__(self, response: object) -> None:
        super().__init__("the server said no")
        self.response = response
        self.status = 503


class Several(ExceptionGroup[Exception]):
    """A group that is called as one of the flow's own."""


class Quota(ConnectionError):
    def __init__(self, left: int) -> None:
        super().__init__(7, f"{left} left")
        self.left = left


def local_error(text: str = "local to a function") -> Exception:
    class Local(ValueError):
        pass

    return Local(text)


def missing_file() -> Exception:
    return FileNotFoundError(2, "No such file or directory", "a.txt")


def undecodable() -> Exception:
    try:
        b"\xff".decode()
    except UnicodeDecodeError as error:
        return error
    raise AssertionError


def noted(note: str) -> Exception:
    error = ValueError("no")
    error.add_note(note)
    return error


def come_of(origin: Exception) -> Exception:
    error = ValueError("no")
    error.__cause__ = origin
    return error


ERRORS: dict[str, Callable[[], Exception]] = {
    "half a character": lambda: ValueError("na\udcffme"),
    "half a character in a file's name": lambda: FileNotFoundError(2, "No such file", "na\udcffme"),
    "half a character in a note": lambda: noted("na\udcffme"),
    "half a character in its cause": lambda: come_of(ValueError("na\udcffme")),
    "builtin": lambda: ValueError("no", 7),
    "no args": KeyError,
    "custom init": lambda: Declined("visa", amount=3),
    "slots": lambda: Slotted("it rains"),
    "unstorable attribute": lambda: Holding(threading.Lock()),
    "unstorable args": lambda: ValueError(threading.Lock()),
    "local": local_error,
    "file": missing_file,
    "decode": undecodable,
    "own os error": lambda: Quota(3),
    "import": lambda: ImportError("no module", name="x"),
    "unprintable": lambda: Slotted.__new__(Slotted),
    "long and local": lambda: local_error("x" * 3_000_000),
    "group": lambda: ExceptionGroup("several", [ValueError("a"), KeyError("b")]),
    "group in a group": lambda: ExceptionGroup(
        "several", [noted("a"), ExceptionGroup("b", [missing_file()])]
    ),
    "group of a local one": lambda: ExceptionGroup("several", [local_error(), ValueError(threading.Lock())]),
    "own group": lambda: Several("several", [ValueError("a")]),
    "long": lambda: ValueError("x" * 3_000_000),
    "ours": lambda: BadRequest("that was bad.", fix="Be good."),
}


def told(error: Exception) -> list[str]:
    """Return all that a node may ask an error about."""
    attributes = {name: repr(value) for name, value in vars(error).items() if not name.startswith("__")}
    more = [f"{name}={getattr(error, name, None)!r}" for name in ("filename", "errno", "start", "name")]
    branch = next(
        kind.__name__
        for kind in (StepFailed, Declined, OSError, ValueError, LookupError, Exception)
        if isinstance(error, kind)
    )
    try:
        text = str(error)
    except AttributeError:
        text = "unprintable"
    return [branch, type(error).__qualname__, text, repr(error.args), repr(attributes), *more]


def test_a_group_of_errors_has_its_members_live_and_from_the_records(world: World, host: Host) -> None:
    seen = []

    def fail() -> None:
        raise Several("several", [ValueError("a"), ExceptionGroup("b", [missing_file(), local_error()])])

    def body(ctx: Context) -> Steps:
        try:
            yield ask("fail", world.fn(fail))
        except* ValueError as group:
            seen.append(repr(group))
        except* OSError as group:
            seen.append(repr(group.exceptions[0]))
        except* StepFailed as group:
            seen.append(repr(group.exceptions[0]))
        yield world.ask("end", "end")
        return (yield world.ask("last", "last"))

    flow = world.flow(body)
    world.dies_at = {"last"}
    die(host, flow)
    world.dies_at = set()
    assert host.run(flow, run_id="r").status == "completed"
    live, replayed = seen[:3], seen[3:]
    assert live == replayed
    assert live[0] == "ExceptionGroup('several', [ValueError('a')])"  # of which `except*` makes parts
    assert "FileNotFoundError(2, " in live[1] and "StepFailed(" in live[2]


@pytest.mark.parametrize("kind", ERRORS)
def test_a_call_that_failed_raises_the_same_live_and_from_the_records(
    world: World, host: Host, kind: str
) -> None:
    seen = []

    def fail() -> None:
        world.calls.append("fail")
        raise ERRORS[kind]()

    def body(ctx: Context) -> Steps:
        try:
            yield ask("fail", world.fn(fail))
        except Exception as error:
            seen.append(told(error))
        return (yield world.ask("end", "end"))

    flow = world.flow(body)
    world.dies_at = {"end"}
    die(host, flow)
    world.dies_at = set()
    assert host.run(flow, run_id="r").status == "completed"
    assert world.calls == ["fail", "end", "end"]
    live, replayed = seen
    assert live == replayed


def test_the_cause_of_an_error_stays_with_it(world: World, host: Host) -> None:
    def fail() -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error

    def body(ctx: Context) -> Steps:
        try:
            yield ask("fail", world.fn(fail))
        except ValueError as error:
            return repr(error.__cause__)

    assert host.run(world.flow(body), run_id="r")["answer"] == "KeyError('inner')"


def test_a_failed_call_fails_alike_in_the_same_attempt_and_is_made_again_in_the_next(
    world: World, host: Host
) -> None:
    def fail(n: int) -> int:
        world.calls.append(n)
        if len(world.calls) < 3:
            raise ConnectionError(f"call {len(world.calls)}")
        return n

    def body(ctx: Context) -> Steps:
        yield world.ask("look", "kept")
        return (yield ask("fail", world.fn(fail), 7))

    flow = world.flow(body, retry=Retry(1, first=0))
    assert host.run(flow, run_id="r")["answer"] == 7
    assert world.calls == ["kept", 7, 7]
    assert calls_of(host) == [
        ("agent/$look", 1, "completed", 1),
        ("agent/$fail", 1, "failed", 1),
        ("agent/$fail", 1, "completed", 1),
    ]


def test_a_reopened_run_makes_failed_calls_again_and_keeps_the_others(world: World, host: Host) -> None:
    is_well: list[bool] = []

    def fail(what: str) -> str:
        world.calls.append(what)
        if not is_well:
            raise ConnectionError("down")
        return "well"

    def body(ctx: Context) -> Steps:
        return [(yield world.ask("look", "kept")), (yield ask("fail", world.fn(fail), "fails"))]

    flow = world.flow(body)
    assert error_of(host.run(flow, run_id="r")) == "ConnectionError: down"
    assert error_of(host.resume("r", flow)) == "ConnectionError: down"
    is_well.append(True)
    assert host.resume("r", flow)["answer"] == ["known of kept", "well"]
    assert world.calls == ["kept", "fails", "fails", "fails"]


def test_a_caught_failure_of_an_attempt_that_fails_later_is_made_again(world: World, host: Host) -> None:
    def fail(attempt: int) -> str:
        world.calls.append(attempt)
        if attempt == 1:
            raise ConnectionError("down")
        return "well"

    def body(ctx: Context) -> Steps:
        try:
            found = yield ask("fail", world.fn(fail), ctx.attempt)
        except ConnectionError:
            found = "not well"
        if ctx.attempt == 1:
            raise RuntimeError("again")
        return found

    assert host.run(world.flow(body, retry=Retry(1, first=0)), run_id="r")["answer"] == "well"
    assert world.calls == [1, 2]


@pytest.mark.parametrize(
    ("units", "options", "expected"),
    [
        ("keep", {}, ["a", "b", "b", "b"]),
        ("fresh", {}, ["a", "b", "a", "b", "a", "b"]),
        ("keep", {"keep": "attempt"}, ["a", "b", "a", "b", "a", "b"]),
    ],
)
def test_an_attempt_keeps_completed_calls_unless_told_otherwise(
    world: World, host: Host, units: Any, options: dict[str, Any], expected: list[str]
) -> None:
    def body(ctx: Context) -> Steps:
        yield world.ask("look", "a", **options)
        found = yield world.ask("more", "b", keep="attempt")
        if ctx.attempt < 3:
            raise RuntimeError("again")
        return found

    flow = world.flow(body, retry=Retry(2, first=0, units=units))
    assert host.run(flow, run_id="r")["answer"] == "known of b"
    assert world.calls == expected


def test_what_counts_for_one_attempt_counts_across_its_crashes(world: World, host: Host) -> None:
    def body(ctx: Context) -> Steps:
        yield world.ask("look", "a", keep="attempt")
        return (yield world.ask("more", "b"))

    flow = world.flow(body, retry=Retry(2, first=0, units="fresh"))
    world.dies_at = {"b"}
    die(host, flow)
    world.dies_at = set()
    assert host.run(flow, run_id="r").status == "completed"
    assert world.calls == ["a", "b", "b"]


# -- other code -------------------------------------------------------------------------------------------


def test_a_call_with_other_arguments_returns_its_record_and_says_so(
    world: World, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    what = ["first"]

    def body(ctx: Context) -> Steps:
        found = yield world.ask("look", what[0])
        return [found, (yield world.ask("end", "end"))]

    flow = world.flow(body)
    world.dies_at = {"end"}
    die(host, flow)
    world.dies_at = set()
    what[0] = "second"
    assert host.run(flow, run_id="r")["answer"] == ["known of first", "known of end"]
    assert world.calls == ["first", "end", "end"]
    [warning] = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert (
        warning
        == "step 'look@1' of node 'agent' is recorded with other arguments; its recorded result is used."
    )
    assert [(s.path, s.unit.changed) for s in steps_of(host) if s.unit and s.unit.changed] == [
        ("agent/$end", ("$look@1",))
    ]


CHANGES = {
    "another": (("a",), {}, ("b",), {}),
    "more": (("a",), {}, ("a", 1), {}),
    "none before": ((), {}, ("a",), {}),
    "none now": (("a",), {}, (), {}),
    "by name": (("a",), {}, (), {"x": "a"}),
    "another by name": ((), {"x": 1}, (), {"x": 2}),
    "another type": ((1,), {}, ("1",), {}),
    "beside what cannot be stored": ((threading.Lock(), 1), {}, (threading.Lock(), 2), {}),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("on_change", ["warn", "fail", "again"])
def test_every_difference_of_arguments_is_seen(world: World, host: Host, change: str, on_change: str) -> None:
    args, kwargs, other_args, other_kwargs = CHANGES[change]
    given: list[Any] = [args, kwargs]

    def get(*args: Any, **kwargs: Any) -> int:
        world.calls.append("get")
        return len(world.calls)

    def body(ctx: Context) -> Steps:
        found = yield ask("get", world.fn(get), *given[0], on_change=on_change, **given[1])
        yield world.ask("end", "end")
        return found

    flow = world.flow(body)
    world.dies_at = {"end"}
    die(host, flow)
    world.dies_at = set()
    given[:] = [other_args, other_kwargs]
    result = host.run(flow, run_id="r")
    changed = [s.unit.changed for s in steps_of(host) if s.unit and s.unit.changed]
    if on_change == "fail":
        assert error_of(result).startswith("StepChanged: step 'get@1' of node 'agent' is recorded with other")
        assert world.calls == ["get", "end"]
    elif on_change == "warn":
        assert result["answer"] == 1
        assert changed == [("$get@1",)]
    else:
        assert result["answer"] == 3
        assert world.calls == ["get", "end", "get", "end"]
        assert not changed


def test_what_is_the_same_or_cannot_be_stored_is_no_difference(
    world: World, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    def get(*args: Any, **kwargs: Any) -> int:
        return len(args)

    def body(ctx: Context) -> Steps:
        found = yield ask("get", world.fn(get), threading.Lock(), {"b": 1, "a": [2, (3,)]}, z=1, a={1, 2})
        yield world.ask("end", "end")
        return found

    flow = world.flow(body)
    world.dies_at = {"end"}
    die(host, flow)
    world.dies_at = set()
    assert host.run(flow, run_id="r")["answer"] == 2
    assert not [r for r in caplog.records if r.levelname == "WARNING"]
    assert not [s for s in steps_of(host) if s.unit and s.unit.changed]


def test_the_order_of_names_is_no_difference(world: World, host: Host) -> None:
    given = [("b", 1), ("a", {"d": 1, "c": 2})]

    def get(*args: Any, **kwargs: Any) -> int:
        world.calls.append("get")
        return len(kwargs)

    def body(ctx: Context) -> Steps:
        yield ask("get", world.fn(get), dict(given), **dict(given), on_change="again")
        yield ask("keyed", world.fn(get), key=dict(given))
        yield world.ask("end", "end")

    flow = world.flow(body)
    world.dies_at = {"end"}
    die(host, flow)
    world.dies_at = set()
    given = [("a", {"c": 2, "d": 1}), ("b", 1)]
    assert host.run(flow, run_id="r").status == "completed"
    assert world.calls == ["get", "get", "end", "end"]


def test_calls_that_the_last_attempt_did_not_ask_for_are_listed_in_its_step(world: World, host: Host) -> None:
    asks = ["a", "b", "c"]

    def body(ctx: Context) -> Steps:
        for what in asks:
            yield world.ask(f"look {what}", what)
        yield world.ask("end", "end")

    flow = world.flow(body)
    world.dies_at = {"end"}
    die(host, flow)
    world.dies_at = set()
    asks[:] = ["b"]
    assert host.run(flow, run_id="r").status == "completed"
    [*_, last] = steps_of(host, path="agent")
    assert last.unit is not None
    assert last.unit.unasked == ("$look a@1", "$look c@1")
    assert world.calls == ["a", "b", "c", "end", "end"]


def test_a_node_that_asks_for_none_any_more_lists_them_too(world: World, host: Host) -> None:
    def body(ctx: Context) -> Steps:
        yield world.ask("look", "a")
        yield world.ask("end", "end")

    world.dies_at = {"end"}
    die(host, world.flow(body))

    @node(name="agent", output="answer")
    def plain(ctx: Context) -> str:
        return "without"

    assert host.run(Flow("agents", [plain], durability="strong"), run_id="r")["answer"] == "without"
    [*_, last] = steps_of(host, path="agent")
    assert last.unit is not None
    assert last.unit.unasked == ("$look@1",)


# -- limits -----------------------------------------------------------------------------------------------


def test_a_visit_records_so_many_calls_and_then_asks_for_another(
    world: World, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MOST", 5)

    def body(ctx: Context) -> Steps:
        for n in range(6):
            yield world.ask("look", n)

    flow = world.flow(body)
    error = error_of(host.run(flow, run_id="r"))
    assert "has 5 recorded steps in one visit" in error
    assert "ctx.next_iteration" in error
    assert world.calls == [0, 1, 2, 3, 4]
    assert error_of(host.resume("r", flow)) == error


def test_the_limit_counts_calls_that_are_under_way(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MOST", 5)
    made = []

    async def look(n: int) -> int:
        made.append(n)
        await asyncio.sleep(0)
        return n

    @node(output="found")
    async def agent(ctx: Context) -> int:
        found = await asyncio.gather(
            *(ctx.step("look", look, n, key=n) for n in range(8)), return_exceptions=True
        )
        return sum(isinstance(one, int) for one in found)

    assert host.run(Flow("f", [agent]), run_id="r")["found"] == 5
    assert len(made) == len(calls_of(host)) == 5


def test_calls_do_not_nest(world: World, host: Host) -> None:
    def body(ctx: Context) -> Steps:
        def outer() -> str:
            asked: Any = ctx.step("inner", world.look, "a")
            if world.mode != "sync":
                asked.close()
            return "never"

        try:
            return (yield ask("outer", world.fn(outer)))
        except BadRequest as error:
            return str(error)

    assert "is asked for inside step 'outer@1'" in host.run(world.flow(body))["answer"]
    assert world.calls == []


def test_what_is_no_function_is_refused_before_it_is_tried(world: World, host: Host) -> None:
    def body(ctx: Context) -> Steps:
        return (yield ask("add", 5, retry=3))  # type: ignore[arg-type]  # on purpose

    failed = error_of(host.run(world.flow(body), run_id="A1"))
    assert failed.startswith("BadRequest: step 'add' of node 'agent' is to call 5.")
    assert calls_of(host, "A1") == []


def test_a_result_that_cannot_be_stored_is_named_by_its_step(world: World, host: Host) -> None:
    def body(ctx: Context) -> Steps:
        return (yield ask("add", lambda: {"parts": [object()]}))

    failed = error_of(host.run(world.flow(body)))
    assert "cannot store `result.parts[0]` of step 'add@1' of node 'agent':" in failed
    assert "persist" not in failed


def test_a_call_that_was_not_awaited_is_refused_by_name(host: Host) -> None:
    made: list[Any] = []

    @node(output="out")
    async def agent(ctx: Context) -> Any:
        made.append(ctx.step("add", int))
        return made[0]

    failed = error_of(host.run(Flow("f", [agent])))
    made[0].close()
    assert "cannot store `out`: a coroutine was not awaited. Await it" in failed


def test_an_async_function_in_a_sync_node_is_refused(host: Host) -> None:
    async def look() -> None: ...

    @node(output="found")
    def agent(ctx: Context) -> str:
        found = ctx.step("look", look)
        return f"never {found}"

    assert "is async, and its node is not" in error_of(host.run(Flow("f", [agent])))


def test_a_sync_function_that_returns_something_to_await_is_awaited(host: Host) -> None:
    async def look(what: str) -> str:
        return f"found {what}"

    @node(output="found")
    async def agent(ctx: Context) -> list[str]:
        return [await ctx.step("a", lambda: look("a")), await ctx.step("b", partial(look, "b"))]

    assert host.run(Flow("f", [agent]))["found"] == ["found a", "found b"]


@pytest.mark.parametrize("retries", [0, 1])
def test_a_call_that_takes_too_long_fails(world: World, host: Host, retries: int) -> None:
    ends = threading.Event()

    async def slow_async() -> str:
        world.calls.append("slow")
        await asyncio.sleep(20)
        return "never"

    def slow() -> str:
        world.calls.append("slow")
        ends.wait(20)
        return "never"

    def body(ctx: Context) -> Steps:
        try:
            yield ask(
                "slow",
                slow_async if world.mode == "async" else slow,
                timeout=0.05,
                retry=Retry(retries, first=0),
            )
        except TimeoutError as error:
            return [type(error).__name__, str(error), (yield world.ask("end", "end"))]

    flow = world.flow(body)
    world.dies_at = {"end"}
    die(host, flow)
    world.dies_at = set()
    name, text, _ = host.run(flow, run_id="r")["answer"]
    ends.set()
    assert (name, text.partition(".")[0]) == (
        "NodeTimeout",
        "step 'slow@1' of node 'agent' took longer than 0",
    )
    assert world.calls == ["slow"] * (retries + 1) + ["end", "end"]


def test_a_call_that_raises_a_timeout_of_its_own_raises_that(world: World, host: Host) -> None:
    def slow() -> None:
        raise TimeoutError("the server was slow")

    def body(ctx: Context) -> Steps:
        try:
            yield ask("slow", world.fn(slow), timeout=20)
        except TimeoutError as error:
            return [type(error).__name__, str(error)]

    assert host.run(world.flow(body))["answer"] == ["TimeoutError", "the server was slow"]


def test_a_call_is_a_heartbeat(host: Host) -> None:
    @node(output="found", timeout=1.2)
    async def agent(ctx: Context) -> int:
        for n in range(4):
            await ctx.step("nap", asyncio.sleep, 0.4, key=n)
        return 4

    assert host.run(Flow("f", [agent], durability="strong"))["found"] == 4


def test_an_attempt_that_was_given_up_records_nothing_more(host: Host) -> None:
    goes_on, has_tried = threading.Event(), threading.Event()
    errors: list[EverstepError] = []
    made: list[str] = []

    @node(output="found", timeout=0.2, retry=Retry(1, first=0))
    def agent(ctx: Context) -> str:
        if ctx.attempt == 2:
            found = ctx.step("look", made.append, "second")
            goes_on.set()
            has_tried.wait(20)
            return f"{found} in attempt 2"
        goes_on.wait(20)
        for late in (lambda: ctx.step("look", made.append, "first"), ctx.now, ctx.uuid):
            try:
                late()
            except EverstepError as error:
                errors.append(error)
        has_tried.set()
        return "never"

    assert host.run(Flow("f", [agent], durability="strong"), run_id="r")["found"] == "None in attempt 2"
    assert len(errors) == 3
    assert all(isinstance(error, LeaseLost | BadRequest) for error in errors)
    assert made == ["second"]
    assert calls_of(host) == [("agent/$look", 1, "completed", 1)]


def test_the_loser_of_a_race_records_nothing_more(host: Host) -> None:
    is_won, has_tried = threading.Event(), threading.Event()
    made: list[int] = []

    @node
    def win() -> None:
        pass

    @node
    def lose(ctx: Context) -> None:
        is_won.wait(20)
        try:
            ctx.step("look", made.append, 1)
        finally:
            has_tried.set()

    @node
    def after() -> int:
        is_won.set()
        has_tried.wait(20)
        return 1

    flow = Flow("f", parallel(win, lose, policy="first_success") >> after, durability="strong")
    assert host.run(flow, run_id="r")["after.__result__"] == 1
    assert made == []
    assert calls_of(host) == []


def test_a_context_of_a_node_that_is_over_is_refused(host: Host) -> None:
    kept = []

    @node(output="first")
    def keep(ctx: Context) -> int:
        kept.append(ctx)
        return 1

    @node(output="found")
    def use(first: int) -> str:
        try:
            kept[0].step("look", int)
        except EverstepError as error:
            return error.code
        return "it was made"

    assert host.run(Flow("f", [keep, use]), run_id="r")["found"] != "it was made"
    assert calls_of(host) == []


def test_an_atomic_flow_refuses_calls_by_name(world: World, host: Host) -> None:
    refused = []

    def body(ctx: Context) -> Steps:
        for asked in (world.ask("look", "a"), Context.now, Context.uuid, Context.random):
            try:
                asked(ctx)
            except EverstepError as error:
                refused.append(error.code)
        return "went on"
        yield

    inner = Flow("inner", [world.node(body)]).as_node(durability="atomic")
    assert host.run(Flow("outer", [inner]))["answer"] == "went on"
    assert refused == ["flow.not_in_atomic"] * 4
    assert world.calls == []


def test_off_makes_calls_and_records_none(world: World, host: Host) -> None:
    def body(ctx: Context) -> Steps:
        yield ask("flaky", world.fn(lambda: world.look("x")), retry=1)
        found = [(yield world.ask("look", "a")), (yield world.ask("look", "b", key=1))]
        try:
            yield ask("fail", world.fn(lambda: 1 / 0))
        except ZeroDivisionError as error:
            found.append(str(error))
        assert ctx.now() <= ctx.now()
        assert ctx.uuid() != ctx.uuid()
        assert ctx.random() != ctx.random()
        return found

    result = host.run(world.flow(body, durability="off"))
    assert result["answer"] == ["known of a", "known of b", "division by zero"]
    assert world.calls == ["x", "a", "b"]


# -- time and chance --------------------------------------------------------------------------------------


def test_time_and_chance_are_the_same_on_every_attempt(world: World, host: Host) -> None:
    seen: list[Any] = []

    def body(ctx: Context) -> Steps:
        seen.append([ctx.now(), ctx.now(), ctx.uuid(), ctx.uuid(), ctx.random(), ctx.random()])
        yield world.ask("look", f"attempt {ctx.attempt}")
        if ctx.attempt == 1:
            raise RuntimeError("again")

    flow = world.flow(body, retry=Retry(1, first="1h", jitter=0))
    world.dies_at = {"attempt 1"}
    die(host, flow)
    world.dies_at = set()
    assert host.run(flow, run_id="r").status == "completed"
    # What rode with nothing that was kept when the process died is made anew; then it stays.
    assert len(seen) == 3
    assert seen[1] == seen[2]
    assert seen[0][2] != seen[0][3]
    assert seen[0][4] != seen[0][5]
    assert all(0 <= number < 1 for number in seen[0][4:])
    assert seen[0][0].tzinfo is UTC


def test_what_follows_from_chance_was_kept_before_an_effect(world: World, host: Host) -> None:
    given = []

    def pay(order: str) -> None:
        given.append(order)
        if len(given) == 1:
            raise KeyboardInterrupt

    def body(ctx: Context) -> Steps:
        yield ask("pay", world.fn(pay), ctx.uuid())

    flow = world.flow(body)
    die(host, flow)
    assert host.run(flow, run_id="r").status == "completed"
    assert len(given) == 2
    assert given[0] == given[1]


# -- many at once -----------------------------------------------------------------------------------------


def test_calls_at_once_are_each_made_once(host: Host) -> None:
    made, dies = [], [True]

    async def look(n: int) -> int:
        made.append(n)
        await asyncio.sleep(0.001 * (20 - n))
        if dies and n == 3:
            raise KeyboardInterrupt
        return n * n

    @node(output="found")
    async def agent(ctx: Context) -> list[int]:
        return await asyncio.gather(*(ctx.step("look", look, n, key=n) for n in range(20)))

    flow = Flow("f", [agent], durability="strong")
    die(host, flow)
    dies.clear()
    recorded = {path for path, *_ in calls_of(host)}
    begun = len(made)
    assert host.run(flow, run_id="r")["found"] == [n * n for n in range(20)]
    assert begun == 20
    assert len(made) == 20 + 20 - len(recorded)
    assert len(calls_of(host)) == len({path for path, *_ in calls_of(host)}) == 20


def test_threads_of_a_sync_node_may_make_calls(host: Host) -> None:
    @node(output="found")
    def agent(ctx: Context) -> list[int]:
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(lambda n: ctx.step("square", lambda: n * n, key=n), range(40)))

    assert host.run(Flow("f", [agent], durability="strong"), run_id="r")["found"] == [
        n * n for n in range(40)
    ]
    assert len(calls_of(host)) == 40


# -- what else a run can do -------------------------------------------------------------------------------


def test_a_generator_may_make_calls_between_what_it_yields(host: Host) -> None:
    made = []

    def look(n: int) -> int:
        made.append(n)
        if len(made) == 2:
            raise KeyboardInterrupt
        return n

    @node(output="found", replayable=True)
    def agent(ctx: Context) -> Iterator[int]:
        for n in range(3):
            yield ctx.step("look", look, n)

    flow = Flow("f", [agent], durability="strong")
    die(host, flow)
    assert host.run(flow, run_id="r")["found"] == [0, 1, 2]
    assert made == [0, 1, 1, 2]


@pytest.mark.stores("sqlite")
@pytest.mark.parametrize("records", [True, False])
def test_finished_calls_are_progress_for_the_number_of_resumes(url: str, *, records: bool) -> None:
    def flow_that_kills_at(death: int | None) -> Flow:
        @node(output="found")
        def agent(ctx: Context) -> None:
            for n in range(5):
                ctx.step("look", lambda n=n: os._exit(139) if n == death else n)

        return Flow("f", [agent], durability=Durability("strong", max_resume_attempts=2))

    for death in range(5) if records else [0] * 5:
        child = os.fork()
        if child == 0:
            try:
                with Host(url) as host:
                    host.run(flow_that_kills_at(death), run_id="r")
            finally:
                os._exit(1)
        os.waitpid(child, 0)
    with Host(url) as host:
        assert host.run(flow_that_kills_at(None), run_id="r").status == (
            "completed" if records else "abandoned"
        )


def test_an_encrypted_store_has_the_names_of_calls_and_not_what_they_are_about(
    world: World, url: str, tmp_path: Path
) -> None:
    def fail() -> None:
        raise ValueError("secret-error")

    def body(ctx: Context) -> Steps:
        found = yield world.ask("look", "secret-argument", key="secret-key")
        try:
            yield ask("fail", world.fn(fail))
        except ValueError as error:
            return [found, str(error), (yield world.ask("end", "end"))]

    flow = world.flow(body)
    with Host(url, encrypt=KeyRing({"2030": b"1" * 32})) as host:
        world.dies_at = {"end"}
        die(host, flow)
        world.dies_at = set()
        result = host.run(flow, run_id="r")
        assert result["answer"] == ["known of secret-argument", "secret-error", "known of end"]
        assert world.calls == ["secret-argument", "end", "end"]
        kept = b"".join(path.read_bytes() for path in tmp_path.glob("runs.db*"))
    assert b"secret" not in kept
    assert (b"$look" in kept) is url.startswith("sqlite")


# -- forks ------------------------------------------------------------------------------------------------


def middle_of(host: Host, path: str) -> int:
    """Return the checkpoint that has the step of a path."""
    return next(r.sequence for r in host.history("r") for s in r.steps if s.path == path)


def test_a_fork_from_the_middle_of_a_node_makes_only_what_came_later(world: World, host: Host) -> None:
    def body(ctx: Context) -> Steps:
        return [(yield world.ask("one", 1)), (yield world.ask("two", 2)), (yield world.ask("three", 3))]

    flow = world.flow(body)
    host.run(flow, run_id="r")
    host.fork("r", at=middle_of(host, "agent/$two"), fork_id="f")
    world.calls.clear()
    assert host.resume("f", flow)["answer"] == ["known of 1", "known of 2", "known of 3"]
    assert world.calls == [3]


def test_a_fork_that_edits_an_input_makes_all_calls_again(host: Host) -> None:
    made: list[int] = []

    def note(n: int, value: int) -> int:
        made.append(n)
        return value

    @node(output="x")
    def begin(start: int) -> int:
        return start

    @node(output="found")
    def agent(x: int, other: int, ctx: Context) -> list[int]:
        return [
            ctx.step("one", note, 1, x),
            ctx.step("two", note, 2, other),
        ]

    flow = Flow("f", [begin, agent], durability="strong")
    host.run(flow, {"start": 5, "other": 6}, run_id="r")
    at = middle_of(host, "agent/$one")
    edits: list[dict[str, Any]] = [{"inputs": {"other": 7}}, {"state": {"x": 8}}]
    for number, edit in enumerate(edits):
        host.fork("r", at=at, fork_id=f"f{number}", **edit)
    host.fork("r", at=at, fork_id="f2")
    made.clear()
    assert host.resume("f0", flow)["found"] == [5, 7]
    assert made == [1, 2]
    assert host.resume("f1", flow)["found"] == [8, 6]
    assert made == [1, 2, 1, 2]
    assert host.resume("f2", flow)["found"] == [5, 6]
    assert made == [1, 2, 1, 2, 2]


def test_calls_of_a_fork_have_keys_of_their_own_unless_they_are_kept(host: Host) -> None:
    keys = []

    @node(output="found")
    def agent(ctx: Context) -> None:
        ctx.step("one", int)
        ctx.step("pay", lambda idempotency_key: keys.append(idempotency_key))

    flow = Flow("f", [agent], durability="strong")
    host.run(flow, run_id="r")
    at = middle_of(host, "agent/$one")
    host.fork("r", at=at, fork_id="f1")
    host.fork("r", at=at, fork_id="f2", keep_keys=True)
    host.resume("f1", flow)
    host.resume("f2", flow)
    assert keys[0] == keys[2] != keys[1]


def test_a_node_whose_result_is_not_kept_makes_no_durable_calls(host: Host) -> None:
    made: list[str] = []

    @node(output="client", persist="no")
    def connect(ctx: Context) -> str:
        ctx.step("charge", made.append, "charged")
        return "client"

    result = host.run(Flow("shop", [connect]), run_id="r")
    assert result.status == "failed" and made == []
    assert result.error is not None and "its own result is not kept" in result.error.message
