"""Flows that are sent signals and wait for events, by the process that drives them: it may die anywhere.

None is lost and none is taken twice: whatever happened, a run ends with what was sent, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from everstep import Context, Flow, Host, chain, node, parallel, route, wait
from everstep.errors import RunEnded
from everstep.inbox import append
from everstep.results import RunResult
from tests.acceptance.crash.flows.steps import Calls
from tests.acceptance.crash.scenarios import RUN, Bodies, Facts, Parts, Program, Scenario

Sends = Iterable[tuple[str, Any]]


def send_all(host: Host, sends: Sends) -> None:
    """Send signals under ids of their own, as one does who cannot know which of them came in before."""
    for number, (name, value) in enumerate(sends):
        with suppress(RunEnded):
            host.send(RUN, name, value, id=f"{name}-{number}", by="ada")


def sent_first(sends: Sends) -> Program:
    """Return a program that accepts the run, sends all, and drives it to its end."""

    def program(host: Host, flow: Flow, inputs: Facts) -> RunResult:
        host.start(flow, inputs, run_id=RUN)
        send_all(host, sends)
        return with_unread(host, host.resume(RUN, flow))

    return program


def sent_while_halted(sends: Sends, *, at_once: bool = False) -> Program:
    """Return a program that runs until something is waited for, and then sends the next signal, or all."""

    def program(host: Host, flow: Flow, inputs: Facts) -> RunResult:
        result = host.run(flow, inputs, run_id=RUN)
        for count in range(1, len(list(sends)) + 1):
            if result.status == "halted":
                send_all(host, list(sends)[: None if at_once else count])
                result = host.resume(RUN, flow)
        return with_unread(host, result)

    return program


def with_unread(host: Host, result: RunResult) -> RunResult:
    """Check what is left in the inbox, which a result does not tell of."""
    state = host.state(RUN)
    taken = [
        value for name in ("first", "second", "notes") if name in state for value in _listed(state[name])
    ]
    left = [signal.value for signal in host.inbox(RUN)]
    assert not {*map(str, left)} & {*map(str, taken)}, (left, taken)
    return result


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def published(*, keep: str | None) -> Program:
    """Return a program that publishes an event when the run waits for it, or before if it is kept."""

    def program(host: Host, flow: Flow, inputs: Facts) -> RunResult:
        if keep is not None:
            host.publish("paid", {"order": "A1", "amount": 5}, id="paid-1", keep=keep)
        result = host.run(flow, inputs, run_id=RUN)
        while result.status == "halted":
            if keep is None:
                host.publish("paid", {"order": "A1", "amount": 5}, id="paid-1")
            result = host.resume(RUN, flow)
        return result

    return program


def turns(says: Sends) -> Program:
    """Return a program that takes one turn after the other, each with an id, from the first call on."""

    def program(host: Host, flow: Flow, inputs: Facts) -> RunResult:
        for number, (name, value) in enumerate(says):
            result = host.send(RUN, name, value, id=str(number), by="ada", drive=flow, inputs=inputs)
        assert host.inbox(RUN) == []
        return result

    return program


def turning_parts(body: Bodies) -> Parts:
    """A conversation: each message has its effect once, and in the middle of one a person is asked."""

    @node(output="said", effects="effectful", idempotency_key="auto", halts=True)
    def reply(message: str, ctx: Context, said: list[Any] | None = None) -> list[Any]:
        ok = ctx.wait(wait.approval("ok")).approved if message == "ask" else None
        with body("reply", ctx):
            return [*(said or []), ok, message]

    @route("message", "close")
    def again(said: list[Any]) -> str:
        return "close" if said[-1] == "bye" else "message"

    @node(output="end")
    def close(said: list[Any]) -> list[Any]:
        with body("close"):
            return said

    return {"nodes": [chain(wait.signal("message"), reply, again), close], "entry": "message"}


def waiting_parts(body: Bodies) -> Parts:
    """Two waits for one name, an effect between them."""

    @node(output="draft")
    def write(text: list[str]) -> list[str]:
        with body("write"):
            return [*text, "written"]

    @node(output="sent", effects="effectful", idempotency_key="auto")
    def send(draft: list[str], first: Any, ctx: Context) -> list[Any]:
        with body("send", ctx):
            return [*draft, first]

    @node(output="end")
    def close(sent: list[Any], second: Any) -> list[Any]:
        with body("close"):
            return [*sent, second]

    first, second = wait.signal("first", signal="m"), wait.signal("second", signal="m")
    return [chain(write, first, send, second, close)]


def beside_parts(body: Bodies) -> Parts:
    """Two waits for one name that are open at the same time."""

    @node(output="draft")
    def write(text: list[str]) -> list[str]:
        with body("write"):
            return [*text, "written"]

    @node(output="end")
    def meet(first: Any, second: Any) -> list[Any]:
        with body("meet"):
            return sorted([first, second])

    return [chain(write, parallel(wait.signal("first", signal="m"), wait.signal("second", signal="m")), meet)]


def inbox_parts(body: Bodies) -> Parts:
    """Steps that read what is taken in before the first of them starts."""

    @node(output="seen", effects="effectful", idempotency_key="auto")
    def read(notes: list[Any], ctx: Context) -> list[Any]:
        with body("read", ctx):
            return list(notes)

    @node(output="end")
    def close(seen: list[Any], notes: list[Any]) -> list[Any]:
        with body("close"):
            return [seen, notes]

    return [chain(read, close)]


def event_parts(body: Bodies) -> Parts:
    """A wait for an event between two steps."""

    @node(output="order")
    def order(text: list[str]) -> str:
        with body("order"):
            return "A1"

    @node(output="receipt", effects="effectful", idempotency_key="auto")
    def close(paid: dict[str, Any], ctx: Context) -> str:
        with body("close", ctx):
            return f"{paid['amount']} paid"

    return [chain(order, wait.event("paid", match={"order": "order"}), close)]


def midway_parts(body: Bodies) -> Parts:
    """A signal that is waited for between two durable calls, and others that are taken between two more."""

    @node(output="found", halts=True)
    def agent(text: list[str], ctx: Context) -> list[Any]:
        with body("agent", ctx):
            calls = Calls(body, ctx)
            first = calls.look(text)
            said = ctx.wait(wait.signal("message", signal="m"))
            second = calls.look(said)
            notes = ctx.inbox("notes")
            return [first, second, calls.look(notes), ctx.inbox("notes"), calls.look("the end")]

    @node(output="end")
    def close(found: list[Any]) -> list[Any]:
        with body("close"):
            return [*found, "closed"]

    return [chain(agent, close)]


def leaving(program: Program, unread: list[Any]) -> Program:
    """Return a program after which this is unread."""

    def checked(host: Host, flow: Flow, inputs: Facts) -> RunResult:
        result = program(host, flow, inputs)
        assert [signal.value for signal in host.inbox(RUN)] == unread
        return result

    return checked


TEXT: Facts = {"text": ["new"]}
THREE = [("m", 0), ("m", 1), ("m", 2)]
NOTES = [("notes", 0), ("other", "x"), ("notes", 1), ("notes", 2)]
TALK = [("message", "ask"), ("reply/$ok", {"approved": True}), ("message", "bye")]
MIDWAY = [("notes", 0), ("other", "x"), ("notes", 1), ("m", "go")]
MIDWAY_SENT = leaving(sent_while_halted(MIDWAY, at_once=True), ["x"])
MIDWAY_THERE = leaving(sent_first([*MIDWAY, ("m", "late")]), ["x", "late"])
Made = Callable[[Bodies], Parts]

SIGNALLED = {
    "signals-sent-before": Scenario(waiting_parts, TEXT, "strong", program=sent_first(THREE)),
    "signals-sent-before-partial": Scenario(waiting_parts, TEXT, program=sent_first(THREE)),
    "signals-sent-while-halted": Scenario(waiting_parts, TEXT, "strong", program=sent_while_halted(THREE)),
    "signals-for-two-open-waits": Scenario(
        beside_parts, TEXT, program=sent_while_halted(THREE[:2], at_once=True)
    ),
    "signals-taken-into-a-value": Scenario(
        inbox_parts, {"notes": ["first"]}, program=sent_first(NOTES), inbox={"notes": append}
    ),
    "signals-between-steps": Scenario(midway_parts, TEXT, "strong", program=MIDWAY_SENT),
    "partial-signals-between-steps": Scenario(midway_parts, TEXT, program=MIDWAY_THERE),
    "turns": Scenario(turning_parts, {}, program=turns(TALK)),
    "event-published": Scenario(event_parts, TEXT, "strong", program=published(keep=None)),
    "event-kept": Scenario(event_parts, TEXT, program=published(keep="1d")),
}
