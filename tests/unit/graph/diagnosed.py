"""For every code: the smallest flow that raises it, and the nearest flow that does not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from everstep import END, Context, Flow, Node, migrate, node, route, validate, wait
from everstep.codec.values import Values
from everstep.model.enums import Mode
from everstep.results import Diagnostics
from everstep.types import Offers

ALL = Offers(
    frozenset({"checkpoint_store", "resume_scheduler", "resume_signal_source", "checkpoint_blob_store"}),
    frozenset({"", "cron"}),
    frozenset({"mail"}),
    objection=Values().objection,
)
"""A host that has everything."""
NONE = Offers(max_mode=Mode.OFF)


class Case(NamedTuple):
    """A flow with a fault, and one without it."""

    bad: Callable[[], Diagnostics]
    good: Callable[[], Diagnostics]


@node(output="a")
def first(x: int) -> int:
    return x


def lock() -> threading.Lock:
    return threading.Lock()


@node(output="b")
def second(a: int) -> int:
    return a


@node(output="sent", effects="effectful")
def send(a: int) -> int:
    return a


@node(output="sent", effects="effectful", idempotency_key="auto")
def send_once(a: int) -> int:
    return a


@node(output="rates", checkpointable=False, reason="holds open websocket")
def feed(x: int) -> int:
    return x


class Counter:
    @node(output="n")
    def count(self, x: int) -> int:
        return x


@node(output="parts")
def stream(x: int) -> Iterator[int]:
    yield x


def asking(x: int, ctx: Context) -> int:
    return x


def total(a: list[int]) -> int:
    return sum(a)


def wants_text(a: str) -> str:
    return a


@node(output="n")
def more(n: int) -> int:
    return n + 1


def gate(*targets: Any, name: str = "gate", source: str = "a", **options: Any) -> Node:
    made = route(*targets, name=name, inputs=[source], **options)
    return made(lambda **given: END)


def check(*nodes: Any, host: Offers | None = ALL, name: str = "f", **options: Any) -> Diagnostics:
    return validate(Flow.draft(name, list(nodes), **options), host)


def of(fn: Callable[..., Any], **options: Any) -> Node:
    return Node(fn, **options)


def rounds() -> list[Any]:
    """A gate behind a node that only the gate leads to."""
    again = of(lambda: None, name="again")
    decide = route("again", END, name="decide")(lambda: END)
    return [again >> decide]


def loop(*targets: str) -> tuple[Node, ...]:
    return more, gate(*targets, source="n")


def nested(times: int) -> Node:
    """Return a node with so many flows inside it."""
    flow = Flow("inner", [first])
    for _ in range(times - 1):
        flow = Flow("inner", [flow.as_node()])
    return flow.as_node()


NAP = wait.timer("nap", duration="1s")
ASKING = of(lambda: wait.Wait(), name="asking", halts=True)
ASK = Flow("inner", [wait.approval("ok")])
DROP = Flow("inner", [of(lambda: 1, name="drop", destructive=True)])
EXPENSIVE = Flow("inner", [of(lambda: 1, name="learn", expensive=True)])
NO = {"persist": "no"}

KEYED: dict[str, Any] = {"effects": "effectful", "idempotency_key": "auto"}
PAY = of(lambda a: a, name="pay", output="b", **KEYED)
CASES: dict[str, Case] = {
    "DAG-CKPT-001": Case(
        lambda: check(feed, durability="strong"),
        lambda: check(feed, durability="partial"),
    ),
    "DAG-CKPT-002": Case(
        lambda: check(NAP, durability="off"),
        lambda: check(NAP),
    ),
    "DAG-CKPT-003": Case(
        lambda: check(ASKING, host=NONE),
        lambda: check(ASKING),
    ),
    "DAG-CKPT-004": Case(
        lambda: check(first, send, durability="strong"),
        lambda: check(first, send_once, durability="strong"),
    ),
    "DAG-CKPT-005": Case(
        lambda: check(stream, durability="strong"),
        lambda: check(of(stream.fn, output="parts", replayable=True), durability="strong"),
    ),
    "flow.bad_key": Case(
        lambda: check(send_once.saying(idempotency_key="sent-{b}")),
        lambda: check(send_once.saying(idempotency_key="sent-{a}")),
    ),
    "flow.bad_probe": Case(
        lambda: check(of(send.fn, output="sent", probe=lambda b: None, **KEYED)),
        lambda: check(of(send.fn, output="sent", probe=lambda a: None, **KEYED)),
    ),
    "scheduler.unknown": Case(
        lambda: check(wait.timer("nap", duration="1s", scheduler="crom")),
        lambda: check(wait.timer("nap", duration="1s", scheduler="cron")),
    ),
    "notifier.unknown": Case(
        lambda: check(wait.approval("ok", notify="male")),
        lambda: check(wait.approval("ok", notify="mail")),
    ),
    "durability.no_blob_store": Case(
        lambda: check(of(first.fn, output="a", persist="ref"), host=ALL._replace(services=frozenset())),
        lambda: check(of(first.fn, output="a", persist="ref")),
    ),
    "value.not_storable": Case(
        lambda: check(of(lock, output="a")),
        lambda: check(of(lock, output="a", persist="no")),
    ),
    "profile.no_reason": Case(
        lambda: check(of(first.fn, output="a", checkpointable=False)),
        lambda: check(of(first.fn, output="a", checkpointable=False, reason="it is so")),
    ),
    "flow.unkeyed_effect": Case(
        lambda: check(first, send),
        lambda: check(first, send_once),
    ),
    "flow.inner_guards": Case(
        lambda: check(Flow("inner", [first], budgets={"usd": 1}).as_node()),
        lambda: check(Flow("inner", [first]).as_node(), budgets={"usd": 1}),
    ),
    "flow.rename_to_nothing": Case(
        lambda: check(first, migrations=[migrate.rename_node("one", "fist")]),
        lambda: check(
            first, migrations=[migrate.rename_node("one", "fist"), migrate.rename_node("fist", "first")]
        ),
    ),
    "flow.transient_effect": Case(
        lambda: check(of(first.fn, name="first", output="a", persist="no"), send_once),
        lambda: check(of(first.fn, name="first", output="a", persist="no", determinism="strict"), send_once),
    ),
    "flow.unmade_choice": Case(
        lambda: check(of(first.fn, output="a", determinism="nondeterministic", skip_on_resume=False)),
        lambda: check(
            of(first.fn, output="a", determinism="nondeterministic", skip_on_resume=False, persist="inline")
        ),
    ),
    "flow.no_start": Case(
        lambda: check(gate("two", END, name="one"), gate("one", END, name="two")),
        lambda: check(gate("two", END, name="one"), gate("one", END, name="two"), entry="one"),
    ),
    "flow.unreachable": Case(
        lambda: check(first, *rounds()),
        lambda: check(first, *rounds(), entry="again"),
    ),
    "flow.unasked_task": Case(
        lambda: check(first, tasks=[second]),
        lambda: check(of(asking, output="a"), tasks=[second]),
    ),
    "flow.no_exit": Case(
        lambda: check(*loop("more")),
        lambda: check(*loop("more", END)),
    ),
    "flow.unread_output": Case(
        lambda: check(of(lambda x: (x, x), name="two", output=("a", "spare")), second),
        lambda: check(first, second),
    ),
    "flow.bad_name": Case(lambda: check(first, name="a flow"), lambda: check(first, name="a_flow")),
    "flow.empty": Case(lambda: check(), lambda: check(first)),
    "flow.not_a_node": Case(lambda: check(first.fn), lambda: check(first)),
    "flow.duplicate_name": Case(
        lambda: check(first, second.with_name("first")), lambda: check(first, second)
    ),
    "flow.unknown_entry": Case(lambda: check(first, entry="fist"), lambda: check(first, entry="first")),
    "flow.unknown_profile": Case(
        lambda: check(first, profiles={"fist": {"replayable": True}}),
        lambda: check(first, profiles={"first": {"replayable": True}}),
    ),
    "flow.bad_parameter": Case(
        lambda: check(of(lambda *xs: xs, name="n")), lambda: check(of(lambda xs: xs, name="n"))
    ),
    "flow.unbound_method": Case(lambda: check(Counter.count), lambda: check(Counter().count)),
    "flow.bad_output": Case(
        lambda: check(of(first.fn, output="a b")), lambda: check(of(first.fn, output="a_b"))
    ),
    "flow.gate_output": Case(
        lambda: check(first, second, gate("second", END, output="c")),
        lambda: check(first, second, gate("second", END)),
    ),
    "flow.no_target": Case(lambda: check(first, gate()), lambda: check(first, gate(END))),
    "flow.unknown_target": Case(
        lambda: check(first, second, gate("secund", END)),
        lambda: check(first, second, gate("second", END)),
    ),
    "flow.endless_loop": Case(
        lambda: check(of(lambda n: n, name="more", output="n")), lambda: check(*loop("more", END))
    ),
    "flow.two_writers": Case(
        lambda: check(first, first.with_name("other")),
        lambda: check(first, first.with_name("other").with_outputs("c")),
    ),
    "flow.boundary_clash": Case(
        lambda: check(first, Flow("inner", [first]).as_node()),
        lambda: check(first, Flow("inner", [first]).as_node().with_outputs("c")),
    ),
    "flow.too_deep": Case(lambda: check(nested(51)), lambda: check(nested(50))),
    "flow.wired_task": Case(
        lambda: check(first >> second, tasks=[second]),
        lambda: check(first >> second),
    ),
    "flow.type_mismatch": Case(
        lambda: check(first, of(wants_text, output="text")),
        lambda: check(first, second),
    ),
    "flow.not_durable": Case(
        lambda: check(of(first.fn, output="a", skip_on_resume=True, **NO)),
        lambda: check(of(first.fn, output="a", **NO)),
    ),
    "flow.not_in_atomic": Case(
        lambda: check(EXPENSIVE.as_node(durability="atomic")), lambda: check(EXPENSIVE.as_node())
    ),
    "flow.shaky_effect": Case(
        lambda: check(Flow("inner", [first, send_once]).as_node(durability="atomic")),
        lambda: check(
            Flow("inner", [of(first.fn, output="a", effects="pure"), send_once]).as_node(durability="atomic")
        ),
    ),
    "flow.collected_error": Case(
        lambda: check(first.map_over("x", on_error="collect"), of(total, output="sum")),
        lambda: check(first.map_over("x", on_error="skip"), of(total, output="sum")),
    ),
    "flow.dropped_result": Case(lambda: check(of(total)), lambda: check(of(total, output="sum"))),
    "flow.idle_option": Case(
        lambda: check(of(first.fn, output="a", keep_every=3)),
        lambda: check(of(stream.fn, output="a", keep_every=3, replayable=True)),
    ),
    "flow.inner_option": Case(
        lambda: check(Flow("inner", [first], max_running=1).as_node()),
        lambda: check(Flow("inner", [first]).as_node(), max_running=1),
    ),
    "flow.channel_clash": Case(
        lambda: check(Flow("inner", [first], channel={"k": str}).as_node(), channel={"k": int}),
        lambda: check(Flow("inner", [first], channel={"k": int}).as_node(), channel={"k": int}),
    ),
    "flow.inner_durability": Case(
        lambda: check(Flow("inner", [first], durability="strong").as_node()),
        lambda: check(Flow("inner", [first], durability="strong").as_node(), durability="strong"),
    ),
    "flow.destructive_in_atomic": Case(
        lambda: check(DROP.as_node(durability="atomic")), lambda: check(DROP.as_node())
    ),
    "flow.undo_input": Case(
        lambda: check(of(first.fn, output="a", undo=lambda y: None)),
        lambda: check(of(first.fn, output="a", undo=lambda x, a: None)),
    ),
    "flow.undo_unkept": Case(
        lambda: check(of(first.fn, output="a", undo=lambda a: None), durability="off"),
        lambda: check(of(first.fn, output="a", undo=lambda a: None)),
    ),
    "flow.not_undone": Case(
        lambda: check(
            of(first.fn, output="a", undo=lambda a: None), PAY, of(lambda b: b, name="next", output="c")
        ),
        lambda: check(of(first.fn, output="a", undo=lambda a: None), PAY),
    ),
    "flow.wait_in_atomic": Case(
        lambda: check(ASK.as_node(durability="atomic")), lambda: check(ASK.as_node())
    ),
}
