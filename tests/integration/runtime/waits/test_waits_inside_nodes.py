"""Waits in the middle of a node: it is left, and entered again once there is an answer."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from everstep import END, Context, Flow, Host, Retry, ifelse, node, wait
from everstep.errors import AnswerInvalid, EverstepError, WaitSettled, WaitTimeout
from everstep.testing.clock import START, ManualClock
from everstep.wait import Wait
from tests.integration.runtime.drive.durable_calls import (
    MODES,
    Asking,
    Body,
    World,
    ask,
    calls_of,
    die,
    error_of,
    steps_of,
)

pytestmark = pytest.mark.servers
YES = {"approved": True, "approver": "Ada", "comment": "fine"}


@pytest.fixture(params=MODES[:2])
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


def waiting(what: Any) -> Asking:
    return lambda ctx: ctx.wait(what)


def sleeping(span: str) -> Asking:
    return lambda ctx: ctx.sleep(span)


def flow_of(world: World, body: Body, **options: Any) -> Flow:
    return world.flow(body, halts=True, **options)


def token_of(host: Host, run_id: str = "r") -> str:
    [opened] = host.waits(run_id)
    return opened.id


def test_a_node_is_left_and_goes_on_with_the_answer(world: World, host: Host) -> None:
    left = []

    def body(ctx: Context) -> Any:
        try:
            draft = yield world.ask("write", "draft")
            said = yield waiting(wait.approval("ok", context=draft, timeout="3d"))
            return [said.approved, said.approver, said.comment, (yield world.ask("send", "sent"))]
        finally:
            left.append(True)

    flow = flow_of(world, body)
    result = host.run(flow, run_id="r")
    assert result.status == "halted"
    assert left == [True], "what is in finally is done when the node is left"
    [opened] = result.waits
    assert (opened.kind, opened.node, opened.visit, opened.context) == (
        "approval",
        "agent/$ok",
        1,
        "known of draft",
    )
    assert opened.due_at == START + timedelta(days=3)
    assert host.resume("r", flow).status == "halted", "nothing was said yet"
    host.answer(opened.token or "", YES)
    with pytest.raises(WaitSettled):
        host.answer(opened.id, YES)
    result = host.resume("r", flow)
    assert result["answer"] == [True, "Ada", "fine", "known of sent"]
    assert world.calls == ["draft", "sent"]
    [taken] = steps_of(host, path="agent/$ok")
    assert taken.wait is not None
    assert taken.wait.wait_id == opened.id
    assert [s.status for s in steps_of(host, path="agent")] == ["halted", "completed"]


def test_several_waits_one_after_the_other_each_have_their_place(world: World, host: Host) -> None:
    def body(ctx: Context) -> Any:
        said = []
        for n in range(3):
            said.append((yield waiting(wait.question("q", kind="text", prompt=f"number {n}"))))
            yield world.ask("look", n)
        said.append((yield waiting(Wait(kind="text"))))
        return said

    flow = flow_of(world, body)
    result = host.run(flow, run_id="r")
    seen = []
    while result.status == "halted":
        [opened] = result.waits
        seen.append((opened.node, opened.visit, opened.prompt))
        host.answer(opened.id, f"answer {len(seen)}")
        result = host.resume("r", flow)
    assert result["answer"] == ["answer 1", "answer 2", "answer 3", "answer 4"]
    assert world.calls == [0, 1, 2]
    assert seen == [
        ("agent/$q", 1, "number 0"),
        ("agent/$q", 2, "number 1"),
        ("agent/$q", 3, "number 2"),
        ("agent/$wait", 1, ""),
    ]


def test_the_type_of_an_answer_is_not_that_of_the_node(host: Host) -> None:
    @node(output="length", halts=True)
    def measure(ctx: Context) -> int:
        return len(ctx.wait(Wait(kind="text")))

    flow = Flow("f", [measure])
    host.run(flow, run_id="r")
    host.answer(token_of(host), "four")
    assert host.resume("r", flow)["length"] == 4


def test_a_question_says_of_what_type_its_answer_is(world: World, host: Host) -> None:
    def body(ctx: Context) -> Any:
        count = yield waiting(wait.question("q", kind="text", answer_type=int))
        paid = yield waiting(wait.callback("paid", answer_type=dict[str, int]))
        return [count + 1, paid.payload]

    flow = flow_of(world, body)
    host.run(flow, run_id="r")
    with pytest.raises(AnswerInvalid):
        host.answer(token_of(host), "three")
    host.answer(token_of(host), 3)
    host.resume("r", flow)
    host.answer(token_of(host), {"cents": 5})
    assert host.resume("r", flow)["answer"] == [4, {"cents": 5}]


def test_sleeping_lets_time_pass_without_a_process(world: World, host: Host, clock: ManualClock) -> None:
    def body(ctx: Context) -> Any:
        begun = ctx.now()
        yield sleeping("3d")
        yield sleeping("1h")
        return (ctx.now() - begun).total_seconds()

    flow = flow_of(world, body)
    assert host.run(flow, run_id="r").status == "halted"
    clock.advance("2d")
    assert host.resume("r", flow).status == "halted"
    clock.advance("1d")
    assert host.resume("r", flow).status == "halted"
    clock.advance("1h")
    assert host.resume("r", flow)["answer"] == timedelta(days=3, hours=1).total_seconds()


def test_time_that_is_over_raises_at_the_call_and_the_same_again(
    world: World, host: Host, clock: ManualClock
) -> None:
    seen = []

    def body(ctx: Context) -> Any:
        try:
            said = yield waiting(wait.question("q", kind="text", timeout="1h"))
        except WaitTimeout as error:
            seen.append(str(error))
            said = "no answer"
        return [said, (yield world.ask("end", "end"))]

    flow = flow_of(world, body)
    host.run(flow, run_id="r")
    clock.advance("1h")
    world.dies_at = {"end"}
    with pytest.raises(KeyboardInterrupt):
        host.resume("r", flow)
    world.dies_at = set()
    clock.advance("1h")
    assert host.resume("r", flow)["answer"] == ["no answer", "known of end"]
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert world.calls == ["end", "end"]


def test_a_time_out_that_is_not_caught_fails_the_node_and_a_resume_asks_again(
    world: World, host: Host, clock: ManualClock
) -> None:
    def body(ctx: Context) -> Any:
        yield world.ask("look", "a")
        return (yield waiting(wait.question("q", kind="text", timeout="1h")))

    flow = flow_of(world, body)
    host.run(flow, run_id="r")
    clock.advance("1h")
    result = host.resume("r", flow)
    assert error_of(result).startswith("WaitTimeout")
    assert "Resume the run to ask again" in error_of(result)
    assert host.resume("r", flow).status == "halted"
    host.answer(token_of(host), "now")
    assert host.resume("r", flow)["answer"] == "now"
    assert world.calls == ["a"]


def test_a_default_and_a_declined_approval_need_no_answer(
    world: World, host: Host, clock: ManualClock
) -> None:
    def body(ctx: Context) -> Any:
        first = yield waiting(wait.question("q", kind="text", timeout="1h", default="as usual"))
        return [first, (yield waiting(wait.approval("ok", timeout="1h"))).approved]

    flow = flow_of(world, body)
    host.run(flow, run_id="r")
    for _ in range(2):
        clock.advance("1h")
        result = host.resume("r", flow)
    assert result["answer"] == ["as usual", False]


def test_a_wait_spends_no_attempt(world: World, host: Host) -> None:
    seen = []

    def body(ctx: Context) -> Any:
        seen.append(ctx.attempt)
        said = yield waiting(Wait(kind="text"))
        if ctx.attempt == 1:
            raise ConnectionError("again")
        return said

    flow = flow_of(world, body, retry=Retry(1, first=0))
    host.run(flow, run_id="r")
    host.answer(token_of(host), "once")
    assert host.resume("r", flow)["answer"] == "once", "an answer is kept over attempts"
    assert seen == [1, 1, 2]


def test_a_node_that_waits_undeclared_is_refused_by_name(world: World, host: Host) -> None:
    for asked in (waiting(Wait(kind="text")), waiting(wait.approval("ok")), sleeping("1h")):

        def body(ctx: Context, asked: Asking = asked) -> Any:
            return (yield asked)

        assert "Declare it with @node(halts=True)" in error_of(host.run(world.flow(body)))


@pytest.mark.parametrize("what", [None, "approval", 3, Context])
def test_what_is_no_wait_is_refused_by_name(world: World, host: Host, what: Any) -> None:
    def body(ctx: Context) -> Any:
        return (yield waiting(what))

    assert "Give what everstep.wait makes" in error_of(host.run(flow_of(world, body)))


@pytest.mark.parametrize("name", ["a/b", "a@2", "a#1", "a=b", "$a", "na\udcffme"])
def test_a_wait_under_a_name_that_would_be_part_of_a_path_is_refused(
    world: World, host: Host, name: str
) -> None:
    def body(ctx: Context) -> Any:
        yield waiting(wait.signal(name))

    assert "BadRequest: node 'agent' asks for a step or a wait called" in error_of(
        host.run(flow_of(world, body), run_id="r")
    )
    assert host.history("r")


def test_catching_exceptions_does_not_keep_a_node_from_leaving(world: World, host: Host) -> None:
    @node(output="answer", halts=True)
    def agent(ctx: Context) -> str:
        try:
            return str(ctx.wait(Wait(kind="text")))
        except Exception:
            return "it was caught"

    flow = Flow("f", [agent])
    assert host.run(flow, run_id="r").status == "halted"


def test_catching_everything_fails_by_name(host: Host) -> None:
    @node(output="answer", halts=True)
    def sync_one(ctx: Context) -> str:
        try:
            return str(ctx.wait(Wait(kind="text")))
        except BaseException:
            return "it was caught"

    @node(output="answer", halts=True)
    async def async_one(ctx: Context) -> str:
        try:
            return str(await ctx.wait(Wait(kind="text")))
        except BaseException:
            return "it was caught"

    @node(output="answer", halts=True)
    def asks_on(ctx: Context) -> str:
        try:
            return str(ctx.wait(Wait(kind="text")))
        except BaseException:
            try:
                return str(ctx.step("look", int))
            except BaseException as error:
                raise ValueError("another") from error

    for number, agent in enumerate((sync_one, async_one, asks_on)):
        result = host.run(Flow("f", [agent]), run_id=f"r{number}")
        assert "Catch Exception, not BaseException" in error_of(result)
        assert host.waits(f"r{number}") == []


def test_what_a_node_raises_while_it_is_left_to_wait_is_named(host: Host) -> None:
    @node(output="answer", halts=True)
    def cleans_up(ctx: Context) -> str:
        try:
            return str(ctx.wait(Wait(kind="text")))
        finally:
            raise ValueError("the disk is full")

    @node(output="answer", halts=True)
    async def wraps_all(ctx: Context) -> str:
        try:
            return str(await ctx.wait(Wait(kind="text")))
        except BaseException as error:
            raise ValueError("the disk is full") from error

    for number, agent in enumerate((cleans_up, wraps_all)):
        result = host.run(Flow("f", [agent]), run_id=f"r{number}")
        assert "raised ValueError while it was left to wait: the disk is full." in error_of(result)
        assert result.error is not None
        assert "ValueError: the disk is full" in result.error.traceback
        assert __file__ in result.error.traceback


def test_returning_a_wait_after_waiting_inside_is_refused_by_name(world: World, host: Host) -> None:
    def body(ctx: Context) -> Any:
        yield waiting(wait.approval("ok"))
        return Wait(kind="text")

    flow = flow_of(world, body)
    host.run(flow, run_id="r")
    host.answer(token_of(host), YES)
    result = host.resume("r", flow)
    assert "returns a Wait" in error_of(result)
    assert host.waits("r") == []


def test_a_node_may_still_return_a_wait_after_calls(world: World, host: Host) -> None:
    def body(ctx: Context) -> Any:
        found = yield world.ask("look", "a")
        return Wait(kind="text", context=found)

    flow = flow_of(world, body)
    [opened] = host.run(flow, run_id="r").waits
    assert (opened.node, opened.context) == ("agent", "known of a")
    host.answer(opened.id, "fine")
    assert host.resume("r", flow)["answer"] == "fine"
    assert world.calls == ["a"]


# -- side by side -----------------------------------------------------------------------------------------


async def slow(n: int, made: list[int]) -> int:
    made.append(n)
    for _ in range(20):
        await asyncio.sleep(0)
    return n


def answered(host: Host, flow: Flow) -> Any:
    result = host.run(flow, run_id="r")
    while result.status == "halted":
        assert len(result.waits) == 1, "one wait a visit"
        host.answer(token_of(host), "yes")
        result = host.resume("r", flow)
    return result["answer"]


def test_calls_that_are_under_way_are_recorded_before_a_node_is_left(host: Host) -> None:
    made: list[int] = []

    @node(output="answer", halts=True)
    async def agent(ctx: Context) -> list[Any]:
        return await asyncio.gather(
            *(ctx.step("slow", slow, n, made, key=n) for n in range(3)), ctx.wait(Wait(kind="text"))
        )

    assert answered(host, Flow("f", [agent], durability="strong")) == [0, 1, 2, "yes"]
    assert made == [0, 1, 2]


def test_a_task_group_is_left_for_a_wait(host: Host) -> None:
    made: list[int] = []

    @node(output="answer", halts=True)
    async def agent(ctx: Context) -> list[Any]:
        async with asyncio.TaskGroup() as group:
            looks = [group.create_task(ctx.step("slow", slow, n, made, key=n)) for n in range(3)]
            said = await ctx.wait(Wait(kind="text"))
        return [*(look.result() for look in looks), said]

    assert answered(host, Flow("f", [agent], durability="strong")) == [0, 1, 2, "yes"]
    assert made == [0, 1, 2], "none had begun when the node was left"


def test_a_task_group_around_waits_is_left_for_each(host: Host) -> None:
    made: list[int] = []

    @node(output="answer", halts=True)
    async def agent(ctx: Context) -> list[Any]:
        async def one(n: int) -> Any:
            found = await ctx.step("slow", slow, n, made, key=n)
            return f"{found} {await ctx.wait(wait.question(f'q{n}', kind='text'))}"

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(n)) for n in range(3)]
        return [task.result() for task in tasks]

    assert answered(host, Flow("f", [agent], durability="strong")) == ["0 yes", "1 yes", "2 yes"]


def test_several_waits_at_once_are_opened_one_after_the_other(host: Host) -> None:
    @node(output="answer", halts=True)
    async def agent(ctx: Context) -> list[Any]:
        return await asyncio.gather(*(ctx.wait(wait.question(f"q{n}", kind="text")) for n in range(3)))

    assert answered(host, Flow("f", [agent], durability="strong")) == ["yes"] * 3
    assert [path for path, *_ in calls_of(host)] == ["agent/$q0", "agent/$q1", "agent/$q2"]


def test_a_task_that_has_not_begun_makes_no_call_once_the_node_is_left(host: Host) -> None:
    made: list[int] = []

    @node(output="answer", halts=True)
    async def agent(ctx: Context) -> list[Any]:
        task = asyncio.create_task(ctx.step("slow", slow, 1, made))
        said = await ctx.wait(Wait(kind="text"))
        return [said, await task]

    flow = Flow("f", [agent], durability="strong")
    assert host.run(flow, run_id="r").status == "halted"
    assert made == []
    host.answer(token_of(host), "yes")
    assert host.resume("r", flow)["answer"] == ["yes", 1]
    assert made == [1]


def test_other_nodes_go_on_while_one_waits_inside(host: Host) -> None:
    @node(output="said", halts=True)
    def agent(ctx: Context) -> str:
        return str(ctx.wait(Wait(kind="text")))

    @node(output="x")
    def beside() -> int:
        return 1

    @node(output="y")
    def then(x: int) -> int:
        return x + 1

    @node(output="all")
    def meet(said: str, y: int) -> str:
        return f"{said} {y}"

    flow = Flow("f", [agent, beside, then, meet])
    result = host.run(flow, run_id="r")
    assert result.status == "halted"
    assert host.state("r")["y"] == 2
    host.answer(token_of(host), "yes")
    assert host.resume("r", flow)["all"] == "yes 2"


# -- in every place ---------------------------------------------------------------------------------------


def test_items_loops_and_inner_flows_wait_in_their_own_places(host: Host) -> None:
    @node(name="ask", output="y", halts=True)
    def ask_for(x: int, ctx: Context) -> str:
        before = ctx.step("before", lambda: x * 10)
        return f"{before} {ctx.wait(wait.question('q', kind='text', context=x))}"

    @node(output="count", halts=True)
    def grow(count: int, ctx: Context) -> int:
        return count + int(ctx.wait(wait.question("more", kind="text")))

    @ifelse(when_true=END, when_false="grow")
    def is_enough(count: int) -> bool:
        return count >= 2

    flows: dict[str, tuple[Flow, dict[str, Any], str]] = {
        "items": (Flow("items", [ask_for.map_over("x")]), {"x": [1, 2, 3]}, "y"),
        "loops": (Flow("loops", [grow, is_enough], entry="grow"), {"count": 0}, "count"),
        "inner": (Flow("outer", [Flow("inner", [ask_for]).as_node()]), {"x": 1}, "y"),
    }
    places: dict[str, list[str]] = {}
    ends = {}
    for name, (flow, inputs, output) in flows.items():
        result = host.run(flow, inputs, run_id=name)
        places[name] = []
        while result.status == "halted":
            for opened in result.waits:
                places[name].append(opened.node)
                host.answer(opened.id, "1")
            result = host.resume(name, flow)
        ends[name] = result[output]
    assert ends == {"items": ["10 1", "20 1", "30 1"], "loops": 2, "inner": "10 1"}
    assert {name: sorted(found) for name, found in places.items()} == {
        "items": ["ask#0/$q", "ask#1/$q", "ask#2/$q"],
        "loops": ["grow/$more", "grow@2/$more"],
        "inner": ["inner/ask/$q"],
    }


def test_an_atomic_flow_has_no_place_to_wait(host: Host) -> None:
    @node(output="y", halts=True)
    def work(ctx: Context) -> str:
        return str(ctx.wait(Wait(kind="text")))

    with pytest.raises(EverstepError, match="may halt"):
        host.run(Flow("outer", [Flow("inner", [work]).as_node(durability="atomic")]))


def test_off_has_no_place_to_wait(world: World, host: Host) -> None:
    def body(ctx: Context) -> Any:
        return (yield waiting(Wait(kind="text")))

    with pytest.raises(EverstepError):
        host.run(flow_of(world, body, durability="off"))


def test_a_fork_goes_on_in_the_middle_and_waits_for_itself(world: World, host: Host) -> None:
    def body(ctx: Context) -> Any:
        found = yield world.ask("look", "a")
        said = yield waiting(wait.approval("ok"))
        return [found, said.approved, (yield world.ask("send", "b"))]

    flow = flow_of(world, body)
    host.run(flow, run_id="r")
    host.fork("r", fork_id="f")
    [own] = host.resume("f", flow).waits
    [parents] = host.waits("r")
    assert own.id != parents.id
    host.answer(parents.id, {"approved": True})
    assert host.resume("r", flow)["answer"] == ["known of a", True, "known of b"]
    assert host.resume("f", flow).status == "halted"
    host.answer(own.id, {"approved": False})
    assert host.resume("f", flow)["answer"] == ["known of a", False, "known of b"]
    assert world.calls == ["a", "b", "b"]


def test_a_fork_from_behind_an_answer_has_it(world: World, host: Host) -> None:
    def body(ctx: Context) -> Any:
        said = yield waiting(wait.approval("ok"))
        return [said.approved, (yield world.ask("send", "b"))]

    flow = flow_of(world, body)
    host.run(flow, run_id="r")
    host.answer(token_of(host), YES)
    host.resume("r", flow)
    at = next(r.sequence for r in host.history("r") for s in r.steps if s.path == "agent/$send")
    host.fork("r", at=at, fork_id="f")
    assert host.resume("f", flow)["answer"] == [True, "known of b"]
    assert world.calls == ["b"]


def test_a_cancelled_run_waits_no_more(world: World, host: Host) -> None:
    def body(ctx: Context) -> Any:
        return (yield waiting(wait.approval("ok")))

    flow = flow_of(world, body)
    host.run(flow, run_id="r")
    host.cancel("r")
    assert host.waits("r") == []
    assert host.info("r").status == "cancelled"


# -- other code -------------------------------------------------------------------------------------------


def test_what_was_a_wait_and_is_a_call_now_is_told_apart(world: World, host: Host) -> None:
    asked: list[Asking] = [waiting(wait.approval("ok"))]

    def body(ctx: Context) -> Any:
        found = yield asked[0]
        yield world.ask("end", "end")
        return found

    flow = flow_of(world, body)
    host.run(flow, run_id="r")
    host.answer(token_of(host), YES)
    world.dies_at = {"end"}
    with pytest.raises(KeyboardInterrupt):
        host.resume("r", flow)
    world.dies_at = set()
    for number, other in enumerate(
        (
            world.ask("ok", "a"),
            ask("ok", world.fn(int)),
            waiting(wait.question("ok", kind="text")),
        )
    ):
        host.fork("r", fork_id=f"f{number}")
        asked[0] = other
        assert error_of(host.resume(f"f{number}", flow)).startswith("StepChanged")
    host.fork("r", fork_id="again")
    asked[0] = world.ask("ok", "a", on_change="again")
    assert host.resume("again", flow)["answer"] == "known of a"


def test_what_was_a_call_and_is_a_wait_or_the_time_now_is_told_apart(world: World, host: Host) -> None:
    asked: list[Asking] = [ask(name, world.fn(int)) for name in ("ok", "now", "inbox-said")]

    def body(ctx: Context) -> Any:
        for one in asked:  # noqa: UP028  # a list takes nothing that is sent
            yield one
        yield world.ask("end", "end")

    flow = flow_of(world, body)
    world.dies_at = {"end"}
    die(host, flow)
    world.dies_at = set()

    def now(ctx: Context) -> Any:
        found = ctx.now()
        return found if world.mode == "sync" else asyncio.sleep(0, found)

    for number, other in enumerate((waiting(wait.approval("ok")), now, lambda ctx: ctx.inbox("said"))):
        host.fork("r", fork_id=f"f{number}")
        asked[:] = [other]
        assert error_of(host.resume(f"f{number}", flow)).startswith("StepChanged")


def test_a_wait_that_the_node_no_longer_asks_for_is_listed_as_such(world: World, host: Host) -> None:
    asks = [True]

    def body(ctx: Context) -> Any:
        if asks:
            yield waiting(wait.approval("ok"))
        return (yield world.ask("end", "end"))

    flow = flow_of(world, body)
    host.run(flow, run_id="r")
    host.answer(token_of(host), YES)
    asks.clear()
    assert host.resume("r", flow)["answer"] == "known of end"
    [*_, last] = steps_of(host, path="agent")
    assert last.unit is not None
    assert last.unit.unasked == ("$ok@1",)


def test_who_answered_is_on_record(world: World, host: Host) -> None:
    def body(ctx: Context) -> Any:
        return (yield waiting(wait.question("q", kind="text")))

    flow = flow_of(world, body)
    host.run(flow, run_id="r")
    host.answer(token_of(host), "yes", by="ada", comment="why not")
    host.resume("r", flow)
    [taken] = steps_of(host, path="agent/$q")
    assert taken.act is not None
    assert (taken.act.by, taken.act.comment) == ("ada", "why not")
    assert json.dumps(host.history("r")[-1].status.value) == '"completed"'
