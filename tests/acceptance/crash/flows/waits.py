"""Flows that wait, answered by the process that drives them: each kind, in every shape, under every end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everstep import END, Context, Durability, Flow, Host, chain, ifelse, node, parallel, wait
from everstep.client.views import WaitInfo
from everstep.errors import AnswerTooLate
from everstep.graph.tells import Tell
from everstep.model.enums import Flush, Mode
from everstep.results import RunResult
from everstep.wait import Wait
from tests.acceptance.crash.flows.forks import CHILD, has
from tests.acceptance.crash.scenarios import AT_ONCE, RUN, Bodies, Facts, Parts, Program, Scenario, clock_of

YES = {"approved": True, "approver": "Ada", "comment": "fine"}
Reply = Callable[[WaitInfo], Any]
"""What is answered to a wait; none leaves it to the clock."""


def reply(opened: WaitInfo) -> Any:
    """Answer each kind with what it asks for."""
    plain = {
        "approval": YES,
        "callback": {"paid": opened.visit},
        "text": f"answer {opened.node}",
        "yes_no": True,
    }
    return plain.get(opened.kind, f"{opened.kind} {opened.visit}")


def answering(
    to: Reply = reply, *, one_by_one: bool = True, run: str = RUN, fires: tuple[str, ...] = ("timer",)
) -> Program:
    """Return a program that runs, answers what is open, one at a time or all at once, and resumes.

    The time of those kinds that it `fires` is over.
    """

    def program(host: Host, flow: Flow, inputs: Facts) -> RunResult:
        result = host.run(flow, inputs if run == RUN else None, run_id=run)
        while result.status == "halted":
            waits = sorted(host.waits(run, limit=1000), key=lambda w: (w.kind == "timer", w.node))
            for opened in waits[:1] if one_by_one else waits:
                if opened.kind in fires:
                    host.waiting.fire(opened.id)
                else:
                    # An approval says itself who gives it, and so does every scenario's.
                    who = {} if opened.kind == "approval" else {"by": "ada", "comment": opened.node}
                    host.answer(opened.id, to(opened), **who)
            result = host.resume(run, flow)
        return result

    return program


def fork_while_halted(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Fork a run that waits, and let both come to their ends with other answers."""
    answer = answering(lambda w: {"approved": w.run_id == RUN})
    if has(host, CHILD) is None:
        if not host.run(flow, inputs, run_id=RUN).waits:
            raise AssertionError("the run ended before it was forked")
        host.fork(RUN, fork_id=CHILD)
    answer(host, flow, inputs)
    return answering(lambda w: {"approved": w.run_id == RUN}, run=CHILD)(host, flow, inputs)


def work(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Let a worker of this process drive the run; what a dead process still holds is resumed."""
    host.start(flow, inputs, run_id=RUN)
    while not host.info(RUN).status.is_final:
        if not host.work([flow], until_idle=True).claimed:
            host.resume(RUN, flow)
        for opened in host.waits(RUN):
            host.answer(opened.id, reply(opened))
    return host.resume(RUN, flow)


def cancel_while_halted(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Cancel a run that waits."""
    host.run(flow, inputs, run_id=RUN)
    host.cancel(RUN)
    return host.run(flow, inputs, run_id=RUN)


def reopen_after_a_time_out(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Let the first wait time out, reopen the failed run, and answer the second."""
    result = host.run(flow, inputs, run_id=RUN)
    while result.status in ("halted", "failed"):
        for opened in host.waits(RUN):
            seen = len(host.waits(RUN, status="closed"))
            host.waiting.fire(opened.id) if not seen else host.answer(opened.id, reply(opened))
        result = host.resume(RUN, flow)
    return result


def answer_late(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Answer when the time of the wait is over: the clock's answer is what counts."""
    result = host.run(flow, inputs, run_id=RUN)
    if result.status == "halted":
        clock_of(host).move_on()
        for opened in host.waits(RUN):
            try:
                host.answer(opened.id, YES)
            except AnswerTooLate:
                continue
            raise AssertionError("it counted, though its time was over")
        result = host.resume(RUN, flow)
    return result


def kinds_parts(*asked: Callable[[], Any]) -> Callable[[Bodies], Parts]:
    """A node before, waits one after the other, and an effect after them."""

    def parts(body: Bodies) -> Parts:
        @node(output="draft")
        def write(text: list[str]):
            with body("write"):
                text.append("written")
                return text

        waits = [make() for make in asked]

        @node(output="sent", effects="effectful", idempotency_key="auto")
        def send(draft: list[str], ctx: Context):
            with body("send", ctx):
                draft.append("sent")
                return draft

        return [chain(write, *waits, send)]

    return parts


def own_parts(body: Bodies) -> Parts:
    """A halt node of one's own, whose first attempt fails and which writes to the channel."""

    @node(output="paid", halts=True, effects="effectful", idempotency_key="auto", retry=AT_ONCE)
    def charge(text: list[str], ctx: Context):
        with body("charge", ctx):
            ctx.channel.append("asked", f"{ctx.attempt}")
            if ctx.attempt == 1:
                raise ConnectionError("the first attempt always fails")
            text.append("asked")
            return Wait(kind="text", context=text)

    @node(output="seen")
    def look(paid: str, text: list[str], ctx: Context):
        with body("look", ctx):
            return [paid, text, ctx.channel["asked"]]

    return [charge, look]


def nested_parts(body: Bodies) -> Parts:
    """Waits in a flow inside a flow, in a map of flows and in a mapped node, beside one another."""

    @node(output="name")
    def prepare(x: int, ctx: Context):
        with body("prepare", ctx):
            return f"item {x}"

    @node(output="done")
    def finish(q: str, name: str, ctx: Context):
        with body("finish", ctx):
            return f"{name}: {q}"

    item = Flow("item", [prepare, wait.question("q", kind="text", context="name"), finish])
    deep = Flow("deep", [wait.approval("ok", context="text")])
    outer = Flow("outer", [deep.as_node()]).as_node()

    @node(output="report")
    def report(done: list[str], ok: Any, ctx: Context):
        with body("report", ctx):
            return [done, ok.approved]

    return [item.as_node().lift("done").map_over("x", max_concurrency=1), outer.lift("ok"), report]


def loop_parts(body: Bodies) -> Parts:
    """A loop around an approval and a timer."""

    @node(output="draft")
    def write(text: list[str], ctx: Context):
        with body("write", ctx):
            return [*text, f"version {ctx.visit}"]

    ok, nap = wait.approval("ok", context="draft"), wait.timer("nap", duration="1h", payload="draft")

    @ifelse(when_true=END, when_false="write")
    def is_good(ok: Any, nap: Any, ctx: Context):
        with body("is_good", ctx):
            return ctx.visit == 2

    return {"nodes": [write, ok, nap, is_good], "entry": "write"}


def race_parts(body: Bodies) -> Parts:
    """A timer and an approval, of which the first is enough."""

    @node(output="begun")
    def begin(text: list[str], ctx: Context):
        with body("begin", ctx):
            return len(text)

    @node(output="end")
    def finish(begun: int, ctx: Context):
        with body("finish", ctx):
            return "done"

    nap, ok = wait.timer("nap", duration="30d"), wait.approval("ok")
    return [chain(begin, parallel(nap, ok, policy="first_success"), finish)]


def both_parts(body: Bodies) -> Parts:
    """A timer and an approval side by side, and an effect after each."""

    def effect(source: str):
        def send(ctx: Context, **values: Any):
            with body(f"after_{source}", ctx):
                return f"after {source}"

        return node(
            name=f"after_{source}",
            output=f"{source}_sent",
            inputs=[source],
            effects="effectful",
            idempotency_key="auto",
        )(send)

    waits = [wait.timer("nap", duration="1h"), wait.approval("ok", context="text")]
    return [*waits, effect("nap"), effect("ok")]


TEXT: Facts = {"text": ["a"]}
ITEMS: Facts = {"text": "words", "x": [1]}
EFFECTS = Durability(Mode.STRONG, flush=Flush.BEFORE_EFFECTS)
APPROVAL = kinds_parts(lambda: wait.approval("ok", context="draft", timeout="3d"))
CALLBACK = kinds_parts(lambda: wait.callback("paid", timeout="1h"))
TWO = kinds_parts(lambda: wait.approval("ok"), lambda: wait.timer("nap", duration="2d", payload="draft"))
EVERY = kinds_parts(
    lambda: wait.approval("ok", context="draft", timeout="3d"),
    lambda: wait.callback("paid", timeout="1h"),
    lambda: wait.timer("nap", duration="2d", payload="draft"),
    lambda: wait.question("q", kind="text", default="none", timeout="1h"),
)
LATE = kinds_parts(lambda: wait.approval("ok", context="draft", timeout="1h"))
NOTIFIED = kinds_parts(lambda: wait.approval("ok", notify="unknown"))
REMINDED = kinds_parts(lambda: wait.approval("ok", notify="unknown", remind="1d", escalate={"2d": "unknown"}))
TOLD = Tell("unknown", on=["halted", "completed", "failed"], overdue="30d")
FORKED = kinds_parts(lambda: wait.approval("ok"))
WAITING = {
    "waits": Scenario(EVERY, TEXT, "strong", program=answering()),
    "own-halt": Scenario(own_parts, TEXT, "strong", program=answering()),
    "waits-inside": Scenario(nested_parts, ITEMS, "strong", program=answering(), max_concurrency=1),
    "race-of-waits": Scenario(race_parts, TEXT, "strong", program=answering(), max_concurrency=1),
    "worked": Scenario(APPROVAL, TEXT, "strong", program=work),
    "notified": Scenario(NOTIFIED, TEXT, program=answering()),
    "told": Scenario(REMINDED, TEXT, program=answering(), notify=TOLD),
    "cancelled-wait": Scenario(APPROVAL, TEXT, program=cancel_while_halted),
    "answered-late": Scenario(LATE, TEXT, "strong", program=answer_late, moves_clock=True),
    "fork-of-a-wait": Scenario(FORKED, TEXT, program=fork_while_halted, runs=(RUN, CHILD)),
}
MORE_WAITING = {
    "timer-beside-approval": Scenario(both_parts, TEXT, program=answering(), max_concurrency=1),
    "partial-waits": Scenario(TWO, TEXT, program=answering()),
    "before-effects-waits": Scenario(TWO, TEXT, EFFECTS, program=answering()),
    "waits-in-a-loop": Scenario(loop_parts, TEXT, program=answering(one_by_one=False), max_concurrency=1),
    "timed-out": Scenario(CALLBACK, TEXT, "strong", program=reopen_after_a_time_out, reopens=True),
}
"""Those that `EVERSTEP_SOAK=1` adds; random flows that crash in memory are like them."""
