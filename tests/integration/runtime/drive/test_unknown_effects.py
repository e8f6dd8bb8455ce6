"""Effects that were begun and never reported: rerun with their key, asked about, or left to an operator."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from click.testing import CliRunner

from everstep import END, Context, Done, Flow, Host, Retry, ifelse, node
from everstep.cli.commands.waits.answer import answer
from everstep.cli.commands.waits.settle import settle
from everstep.cli.view.waits import how_to_answer
from everstep.errors import AnswerInvalid, BadRequest, RunNotFound, WaitNotFound, WaitSettled
from everstep.graph.author.node import Node

pytestmark = pytest.mark.stores("sqlite")


class World:
    """What the effects changed, and how often they were asked for."""

    def __init__(self) -> None:
        self.charged: dict[str, str] = {}
        self.calls: list[str] = []
        self.probes: list[str] = []
        self.dies_before = self.dies_after = False


@pytest.fixture
def world() -> World:
    return World()


def charge(world: World, *, is_async: bool = False, **options: Any) -> Node:
    def work(amount: int, ctx: Context) -> str:
        world.calls.append(ctx.idempotency_key)
        if world.dies_before:
            raise KeyboardInterrupt
        world.charged[ctx.idempotency_key] = f"receipt-{amount}"
        if world.dies_after:
            raise KeyboardInterrupt
        return world.charged[ctx.idempotency_key]

    async def work_async(amount: int, ctx: Context) -> str:
        return work(amount, ctx)

    made = work_async if is_async else work
    return node(name="charge", output="receipt", effects="effectful", idempotency_key="auto", **options)(made)


@node(output="letter")
def thank(receipt: str) -> str:
    return f"thanks for {receipt}"


def flow_of(charge: Node) -> Flow:
    return Flow("order", [charge, thank])


def die(world: World, url: str, flow: Flow, when: str) -> None:
    """Begin a run whose process dies in the effect: before anything happened, or after."""
    world.dies_before, world.dies_after = when == "before", when == "after"
    with Host(url) as host, pytest.raises(KeyboardInterrupt):
        host.run(flow, {"amount": 7}, run_id="A")
    world.dies_before = world.dies_after = False


@pytest.mark.parametrize("when", ["before", "after"])
def test_by_default_it_is_called_again_with_its_key(world: World, url: str, when: str) -> None:
    flow = flow_of(charge(world))
    die(world, url, flow, when)
    with Host(url) as host:
        assert host.resume("A", flow)["letter"] == "thanks for receipt-7"
    assert len(world.calls) == 2
    assert len(set(world.calls)) == 1


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("asks_async", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_probe_says_whether_it_happened_and_only_if_not_is_it_called(
    world: World, url: str, when: str, asks_async: bool, is_async: bool
) -> None:
    def ask(idempotency_key: str, amount: int) -> Done | None:
        assert amount == 7
        world.probes.append(idempotency_key)
        found = world.charged.get(idempotency_key)
        return Done(found) if found is not None else None

    async def ask_async(idempotency_key: str, amount: int) -> Done | None:
        return ask(idempotency_key, amount)

    flow = flow_of(charge(world, is_async=is_async, probe=ask_async if asks_async else ask))
    die(world, url, flow, when)
    assert world.probes == [], "it is asked only about calls that never reported"
    with Host(url) as host:
        assert host.resume("A", flow)["letter"] == "thanks for receipt-7"
        assert host.run(flow, run_id="A")["letter"] == "thanks for receipt-7"
    assert world.probes == world.calls[:1]
    assert len(world.calls) == (2 if when == "before" else 1)


def test_it_stops_for_an_operator_who_knows_the_value(world: World, url: str) -> None:
    flow = flow_of(charge(world, on_unknown="stop"))
    die(world, url, flow, "after")
    with Host(url) as host:
        halted = host.resume("A", flow)
        assert halted.status == "halted"
        (asked,) = halted.waits
        assert (asked.kind, asked.node, asked.token) == ("settle", "charge", None)
        assert asked.context == {"node": "charge", "idempotency_key": world.calls[0], "attempt": 1}
        with pytest.raises(AnswerInvalid):
            host.waiting.settle("A", "charge", done=17)
        with pytest.raises(BadRequest):
            host.waiting.settle("A", "charge")
        with pytest.raises(BadRequest):
            host.waiting.settle("A", "charge", done="x", rerun=True)
        with pytest.raises(WaitNotFound, match="charge"):
            host.waiting.settle("A", "thank", rerun=True)
        with pytest.raises(RunNotFound, match="'B'"):
            host.waiting.settle("B", "charge", rerun=True)
        host.waiting.settle("A", "charge", done="receipt-by-hand")
        with pytest.raises(WaitSettled):
            host.waiting.settle("A", "charge", done="another")
        assert host.resume("A", flow)["letter"] == "thanks for receipt-by-hand"
        (*_, step) = [s for c in host.history("A") for s in c.steps if s.path == "charge"]
        assert step.started_at == step.ended_at, "how long a person thought about it is not how long it took"
        with pytest.raises(WaitNotFound):
            host.waiting.settle("A", "charge", rerun=True)
    assert len(world.calls) == 1


def test_it_stops_for_an_operator_who_has_it_made_again(world: World, url: str) -> None:
    flow = flow_of(charge(world, on_unknown="stop", retry=1))
    die(world, url, flow, "before")
    with Host(url) as host:
        assert host.resume("A", flow).status == "halted"
        host.waiting.settle("A", "charge", rerun=True)
        assert host.resume("A", flow)["letter"] == "thanks for receipt-7"
        (step,) = [
            s for c in host.history("A") for s in c.steps if (s.path, s.status) == ("charge", "completed")
        ]
        assert step.attempts == 1, "an attempt that never reported costs nothing"
    assert len(world.calls) == 2
    assert len(set(world.calls)) == 1


def test_it_asks_again_if_it_is_unknown_again(world: World, url: str) -> None:
    flow = flow_of(charge(world, on_unknown="stop"))
    die(world, url, flow, "before")
    with Host(url) as host:
        host.resume("A", flow)
        host.waiting.settle("A", "charge", rerun=True)
    world.dies_before = True
    with Host(url) as host, pytest.raises(KeyboardInterrupt):
        host.resume("A", flow)
    with Host(url) as host:
        assert host.resume("A", flow).status == "halted"
        assert len(host.waits("A", kind="settle")) == 1


def test_a_call_that_failed_has_reported(world: World, url: str) -> None:
    @node(output="receipt", effects="effectful", idempotency_key="auto", on_unknown="stop", retry=2)
    def charge(amount: int, ctx: Context) -> str:
        world.calls.append(ctx.idempotency_key)
        if ctx.attempt < 3:
            raise ConnectionError("try again")
        return "paid"

    with Host(url) as host:
        assert host.run(flow_of(charge), {"amount": 1}, run_id="A")["receipt"] == "paid"
    assert len(world.calls) == 3


@pytest.mark.parametrize("asks_async", [False, True])
@pytest.mark.parametrize("retry", [0, 2])
def test_a_probe_that_fails_says_nothing_and_is_asked_again(
    world: World, url: str, retry: int, asks_async: bool
) -> None:
    def ask(idempotency_key: str) -> Done | None:
        world.probes.append(idempotency_key)
        if len(world.probes) == 1:
            raise ConnectionError("the service is down")
        return Done(world.charged[idempotency_key])

    async def ask_async(idempotency_key: str) -> Done | None:
        return ask(idempotency_key)

    policy = Retry(retry, first=0, on=ConnectionError)
    flow = flow_of(charge(world, probe=ask_async if asks_async else ask, retry=policy))
    die(world, url, flow, "after")
    with Host(url) as host:
        result = host.resume("A", flow)
        if not retry:
            assert result.status == "failed"
            assert result.error is not None and result.error.code == "node.probe_failed"
            assert "the service is down" in result.error.message
            result = host.resume("A", flow)
        assert result["letter"] == "thanks for receipt-7"
    assert (len(world.calls), len(world.probes)) == (1, 2)


@pytest.mark.parametrize("keyframes", [False, True])
@pytest.mark.parametrize("how", ["stop", "probe"])
def test_a_call_that_took_too_long_has_not_reported(
    world: World, url: str, how: str, keyframes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if keyframes:
        monkeypatch.setattr("everstep.runtime.drive.chain_writer.KEYFRAME_BYTES", 1)

    async def work(amount: int, ctx: Context) -> str:
        world.calls.append(ctx.idempotency_key)
        await asyncio.Event().wait()
        return "never"

    def ask(idempotency_key: str) -> Done:
        world.probes.append(idempotency_key)
        return Done("found")

    options: dict[str, Any] = {"on_unknown": "stop"} if how == "stop" else {"probe": ask}
    slow = node(
        name="charge",
        output="receipt",
        effects="effectful",
        idempotency_key="auto",
        timeout=0.02,
        retry=Retry(1, first=0),
        **options,
    )(work)
    with Host(url) as host:
        result = host.run(flow_of(slow), {"amount": 7}, run_id="A")
        if how == "stop":
            assert result.status == "halted"
            host.waiting.settle("A", "charge", done="found")
            result = host.resume("A", flow_of(slow))
        assert result["receipt"] == "found"
    assert len(world.calls) == 1


def test_an_effect_stays_unknown_while_what_it_reads_cannot_be_made(world: World, url: str) -> None:
    @node(output="rate", persist="no")
    def look_up(amount: int) -> int:
        if world.calls and not world.probes:
            world.probes.append("")
            raise ConnectionError("no rates")
        return amount

    @node(output="receipt", effects="effectful", idempotency_key="auto", on_unknown="stop")
    def charge(rate: int) -> str:
        world.calls.append("")
        raise KeyboardInterrupt

    flow = Flow("order", [look_up, charge])
    with Host(url) as host, pytest.raises(KeyboardInterrupt):
        host.run(flow, {"amount": 7}, run_id="A")
    with Host(url) as host:
        assert host.resume("A", flow).status == "failed"
        assert host.resume("A", flow).status == "halted"
    assert len(world.calls) == 1


@dataclass
class Receipt:
    number: str
    sum: int


@pytest.mark.parametrize(
    ("returns", "output", "wrong", "right"),
    [
        (Receipt, "receipt", [{"number": "a"}, {"number": 1, "sum": 2}, None], {"number": "a", "sum": 2}),
        (list[Receipt], "receipt", [[1], {}], [{"number": "a", "sum": 2}]),
        (tuple[int, str], ("fee", "receipt"), [["a", 1], [1], {"fee": 1}, 5], [1, "a"]),
        (None, ("fee", "receipt"), [[1], [1, 2, 3], {"fee": 1}, 5], [1, "a"]),
    ],
)
def test_a_value_of_the_wrong_form_is_refused_before_it_settles_anything(
    url: str, returns: Any, output: Any, wrong: list[Any], right: Any
) -> None:
    def charge(amount: int) -> Any:
        raise KeyboardInterrupt

    charge.__annotations__["return"] = returns
    if returns is None:
        del charge.__annotations__["return"]
    asking = node(output=output, effects="effectful", idempotency_key="auto", on_unknown="stop")(charge)
    flow = Flow("order", [asking])
    with Host(url) as host:
        with pytest.raises(KeyboardInterrupt):
            host.run(flow, {"amount": 7}, run_id="A")
        host.resume("A", flow)
        for value in wrong:
            with pytest.raises(AnswerInvalid):
                host.waiting.settle("A", "charge", done=value)
        host.waiting.settle("A", "charge", done=right)
        assert host.resume("A", flow)["receipt"] in ("a", Receipt("a", 2), [Receipt("a", 2)])


def test_an_effect_stays_unknown_if_what_the_operator_said_cannot_be_used(world: World, url: str) -> None:
    flow = Flow("order", [charge(world, on_unknown="stop")])
    die(world, url, flow, "after")

    @node(output="receipt", effects="effectful", idempotency_key="auto", on_unknown="stop")
    def other(amount: int) -> list[int]:
        raise AssertionError("it was called again")

    changed = Flow("order", [other.with_name("charge")])
    with Host(url) as host:
        host.resume("A", flow)
        host.waiting.settle("A", "charge", done="text")
        assert host.resume("A", changed).status == "failed"
        assert host.resume("A", changed).status == "halted"


@pytest.mark.parametrize("rerun", [False, True])
def test_it_is_settled_though_its_node_would_not_stop_any_more(world: World, url: str, rerun: bool) -> None:
    flow, changed = flow_of(charge(world, on_unknown="stop")), flow_of(charge(world))
    die(world, url, flow, "before")
    with Host(url) as host:
        host.resume("A", flow)
        said: dict[str, Any] = {"rerun": True} if rerun else {"done": "by hand"}
        host.waiting.settle("A", "charge", **said)
        expected = "receipt-7" if rerun else "by hand"
        assert host.resume("A", changed)["letter"] == f"thanks for {expected}"
        assert [(s.path, s.status) for c in host.history("A") for s in c.steps if s.wait is not None] == [
            ("charge", "halted"),
            ("charge", "retrying" if rerun else "completed"),
        ]


def test_a_visit_of_a_loop_is_settled_by_its_address(url: str) -> None:
    calls: list[int] = []

    @node(output="x", effects="effectful", idempotency_key="auto", on_unknown="stop")
    def send(seed: int, ctx: Context) -> int:
        calls.append(ctx.visit)
        if calls == [1, 2]:
            raise KeyboardInterrupt
        return ctx.visit

    @ifelse(when_true=END, when_false="send")
    def is_enough(x: int) -> bool:
        return x >= 3

    flow = Flow("loop", [send, is_enough], entry="send")
    with Host(url) as host:
        with pytest.raises(KeyboardInterrupt):
            host.run(flow, {"seed": 1}, run_id="A")
        assert host.resume("A", flow).status == "halted"
        for wrong in ("send@1", "send@3", "send#2", "nowhere"):
            with pytest.raises(WaitNotFound):
                host.waiting.settle("A", wrong, done=2)
        host.waiting.settle("A", "send@2", done=2)
        assert host.resume("A", flow)["x"] == 3
    assert calls == [1, 2, 3]


@pytest.mark.parametrize("asks", ["probe", "operator"])
def test_explain_says_who_is_asked_first_and_that_nothing_is_repeated(
    world: World, url: str, asks: str
) -> None:
    options: dict[str, Any] = {"on_unknown": "stop"} if asks == "operator" else {"probe": lambda: Done("x")}
    flow = flow_of(charge(world, **options))
    with Host(url) as host:
        host.start(flow, {"amount": 7}, run_id="B")
        [step] = host.explain("B", flow).starts
        assert (step.asks, step.may_have_started) == (None, False)
    die(world, url, flow, "after")
    with Host(url) as host:
        told = host.explain("A", flow)
        [step] = told.starts
        assert (step.asks, step.may_have_started) == (asks, True)
        assert told.may_repeat == ()
        assert host.resume("A", flow).status == ("halted" if asks == "operator" else "completed")
    assert len(world.calls) == 1


@pytest.mark.parametrize("keeps_keys", [False, True])
def test_a_fork_with_other_keys_has_another_effect_and_one_with_the_same_asks(
    world: World, url: str, keeps_keys: bool
) -> None:
    flow = flow_of(charge(world, on_unknown="stop"))
    die(world, url, flow, "after")
    with Host(url) as host:
        host.resume("A", flow)
        host.fork("A", fork_id="B", keep_keys=keeps_keys)
        assert host.resume("B", flow).status == ("halted" if keeps_keys else "completed")
    assert len(set(world.calls)) == (1 if keeps_keys else 2)


def test_what_is_unknown_stays_so_across_a_keyframe(
    world: World, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everstep.runtime.drive.chain_writer.KEYFRAME_BYTES", 1)
    flow = flow_of(charge(world, on_unknown="stop"))
    die(world, url, flow, "after")
    with Host(url) as host:
        assert any(c.keyframe for c in host.history("A"))
        assert host.state("A").nodes["charge"].begun
        assert host.resume("A", flow).status == "halted"


def test_only_an_effectful_node_can_say_what_to_do_about_it() -> None:
    for options in ({"on_unknown": "stop"}, {"probe": lambda: None}):
        with pytest.raises(BadRequest, match="effectful"):
            node(output="x", **options)(lambda: 1)
    with pytest.raises(BadRequest, match="rerun or stop"):
        node(output="x", effects="effectful", on_unknown="ask")(lambda: 1)  # type: ignore[call-overload]
    with pytest.raises(BadRequest, match="probe"):
        node(output="x", effects="effectful", probe="ask")(lambda: 1)  # type: ignore[call-overload]


@pytest.mark.parametrize("said", [["--rerun"], ["--done", '"receipt-x"']])
def test_an_operator_settles_it_at_the_shell(world: World, url: str, said: list[str]) -> None:
    flow = flow_of(charge(world, on_unknown="stop"))
    die(world, url, flow, "before")
    with Host(url) as host:
        [asked] = host.resume("A", flow).waits
        how = f"everstep settle A charge@1 --done JSON --store {url}"
        assert how_to_answer(asked, url) == (how, "or --rerun")
    shell = CliRunner()
    wrong = shell.invoke(settle, ["A", "charge", "--store", url])
    assert wrong.exit_code != 0
    done = shell.invoke(settle, ["A", "charge", *said, "--store", url, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["status"] == "settled"
    twice = shell.invoke(settle, ["A", "charge@1", *said, "--store", url])
    assert isinstance(twice.exception, WaitSettled)
    with Host(url) as host:
        expected = "receipt-7" if said == ["--rerun"] else "receipt-x"
        assert host.resume("A", flow)["receipt"] == expected


@pytest.mark.parametrize("said", [{"rerun": True}, {"done": "by-hand"}])
def test_explain_says_what_was_settled_and_what_is_called_again(
    world: World, url: str, said: dict[str, Any]
) -> None:
    flow = flow_of(charge(world, on_unknown="stop"))
    die(world, url, flow, "after")
    with Host(url) as host:
        host.resume("A", flow)
        told = host.explain("A", flow)
        assert [(w.kind, w.outcome) for w in told.waits] == [("settle", None)]
        assert told.starts == told.pending == ()
        host.waiting.settle("A", "charge", **said)
        told = host.explain("A", flow)
        assert [w.outcome for w in told.waits] == list(said)
        again = [(p.path, p.key, p.asks) for p in told.may_repeat]
        assert again == ([("charge", world.calls[0], None)] if "rerun" in said else [])
        host.resume("A", flow)
    assert len(world.calls) == 1 + len(again)


def test_a_caller_that_settles_right_after_a_crash_is_told_to_let_the_run_ask_first(
    world: World, url: str
) -> None:
    flow = flow_of(charge(world, on_unknown="stop"))
    die(world, url, flow, "after")
    with Host(url) as host:
        with pytest.raises(WaitNotFound, match="everstep resume A"):
            host.waiting.settle("A", "charge", rerun=True)
        host.resume("A", flow)
        with pytest.raises(WaitNotFound, match="waits for charge"):
            host.waiting.settle("A", "thank", rerun=True)
        host.waiting.settle("A", "charge", rerun=True)


@pytest.mark.parametrize("words", [["yes"], ["--yes"], ["--approve"], ["17"], []])
def test_an_answer_of_another_kind_is_told_how_to_settle_it(world: World, url: str, words: list[str]) -> None:
    flow = flow_of(charge(world, on_unknown="stop"))
    die(world, url, flow, "before")
    with Host(url) as host:
        host.resume("A", flow)
    wrong = CliRunner().invoke(answer, ["A", *words, "--store", url])
    assert isinstance(wrong.exception, BadRequest)
    assert f"everstep settle A charge@1 --done JSON --store {url}, or --rerun" in str(wrong.exception)
    right = CliRunner().invoke(answer, ["A", '{"done": "by-hand"}', "--store", url])
    assert right.exit_code == 0, right.exception
    assert "done: 'by-hand'" in right.output


@pytest.mark.parametrize("value", [b"x", {1: 2}, Decimal("1.10"), (1, 2)], ids=repr)
def test_a_value_that_json_would_change_settles_nothing_unless_its_node_returns_such_values(
    url: str, value: Any
) -> None:
    def charge(amount: int) -> Any:
        raise KeyboardInterrupt

    def flow_of(returns: Any) -> Flow:
        charge.__annotations__["return"] = returns
        asking = node(output="receipt", effects="effectful", idempotency_key="auto", on_unknown="stop")
        return Flow("order", [asking(charge)])

    kinds = {bytes: bytes, dict: dict[int, int], Decimal: Decimal, tuple: tuple[int, int]}
    for run_id, returns in (("untyped", Any), ("typed", kinds[type(value)])):
        flow = flow_of(returns)
        with Host(url) as host:
            with pytest.raises(KeyboardInterrupt):
                host.run(flow, {"amount": 7}, run_id=run_id)
            host.resume(run_id, flow)
            if run_id == "untyped":
                with pytest.raises(AnswerInvalid, match="JSON would change"):
                    host.waiting.settle(run_id, "charge", done=value)
                assert [row.status for row in host.waits(run_id)] == ["open"]
            else:
                host.waiting.settle(run_id, "charge", done=value)
                assert host.resume(run_id, flow)["receipt"] == value
