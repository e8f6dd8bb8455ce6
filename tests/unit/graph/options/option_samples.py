"""For every option that works somewhere: a part of a flow that uses it, and in which its effect shows.

A part reads `x` and gives `y`. Its nodes tell the life they are in what they do, and may be killed doing it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from everstep import (
    END,
    Breaker,
    Chunk,
    Context,
    Done,
    Durability,
    Flow,
    Limit,
    Node,
    Retry,
    Schedule,
    chain,
    ifelse,
    parallel,
    route,
    wait,
)
from everstep.graph.author.options import Of
from everstep.testing.killing import Crashed, Killer
from everstep.types import Registry

Seen = tuple[Any, ...]
AT_ONCE = Retry(1, first=0, jitter=0)
EFFECT: dict[str, Any] = {"effects": "effectful", "idempotency_key": "auto"}


BEHIND: Final = "before body after 1"
KILLS: Final = (None, "before body work 1", "after body work 1", BEHIND)


class Life:
    """What nodes did, over all the processes of one run."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.killer = Killer()
        self.dead: Killer | None = None
        self._keys: dict[Any, str] = {}

    @contextmanager
    def body(self, ctx: Context, *more: Any) -> Iterator[None]:
        """Surround the body of a node. A key shows only in whether it is the one of this visit."""
        if self.is_dead:
            raise Crashed("a dead process calls nothing")
        key = ctx.idempotency_key
        is_same = self._keys.setdefault((ctx.path, ctx.visit), key) == key
        self.seen.append((ctx.node, ctx.attempt, is_same, *more))
        try:
            with self.killer.body(ctx.node):
                yield
        except Crashed:
            self.dead = self.killer
            raise

    @property
    def is_dead(self) -> bool:
        """True if the process that runs now was killed."""
        return self.dead is self.killer

    def tell(self, *what: Any) -> None:
        if not self.is_dead:
            self.seen.append(what)


class Part(NamedTuple):
    """Nodes that read `x` and give `y`; the first of them comes first."""

    nodes: list[Any]
    head: str = "work"
    entry: tuple[str, ...] = ()
    """Where a loop inside it begins."""


class Sample(NamedTuple):
    """A part of a flow with an option, and what else is needed to see it."""

    make: Callable[[Life], Part]
    flow: Mapping[str, Any] = MappingProxyType({})
    """Options of the flow that the part is in."""
    outer: Mapping[str, Any] = MappingProxyType({})
    """Options of the flow that is run."""
    as_node: Mapping[str, Any] = MappingProxyType({})
    ends: bool = False
    """True if the run does not get past it."""
    modes: tuple[str, ...] = ("partial", "strong", "interval", "before_effects", "off")
    hears: bool = False
    """True if a person watches."""
    kills: tuple[str | None, ...] = KILLS
    """Where it is killed; not where luck decides what a dying process still does beside the node."""


def work(life: Life, act: Callable[[Context], Any] = lambda ctx: None, **options: Any) -> Node:
    """Return the node under test: it tells that it is called, acts, and gives one more than it reads."""

    def body(x: int, ctx: Context) -> int:
        with life.body(ctx):
            act(ctx)
            return x + 1

    return Node(body, **{"name": "work", "output": "y", **options})


def with_options(act: Callable[[Context], Any] = lambda ctx: None, **options: Any) -> Sample:
    return Sample(lambda life: Part([work(life, act, **options)]))


def fails_first(ctx: Context) -> None:
    if ctx.attempt == 1:
        raise RuntimeError("once more")


def slow(life: Life) -> Part:
    async def body(x: int, ctx: Context) -> int:
        with life.body(ctx):
            await asyncio.sleep(30 if ctx.attempt == 1 else 0)
            return x + 1

    return Part([Node(body, name="work", output="y", timeout=0.02, retry=AT_ONCE)])


def by_kwargs(life: Life) -> Part:
    def body(ctx: Context, **given: int) -> int:
        with life.body(ctx, sorted(given)):
            return given["x"] + 1

    return Part([Node(body, name="work", output="y", inputs=["x"])])


def round_and_round(life: Life, **options: Any) -> Part:
    """Return a loop that goes round until it is stopped."""

    def body(x: int, ctx: Context) -> int:
        with life.body(ctx, ctx.visit):
            return x + 1

    again = ifelse(when_true="work", when_false=END, name="again")(lambda y: True)
    return Part([Node(body, name="work", output="y", **options), again], entry=("work",))


def unkept(life: Life) -> Part:
    def use(made: int, ctx: Context) -> int:
        with life.body(ctx):
            return made

    first = Node(lambda x: x, name="first", output="w")
    made = work(life, output="made", persist="no").with_inputs(x="w")
    return Part([first, made, Node(use, name="use", output="y")], "first")


def asking(life: Life, **options: Any) -> Part:
    def ask(x: int, ctx: Context) -> Any:
        with life.body(ctx):
            return wait.Wait(prompt=f"{x}?")

    return Part([Node(ask, name="work", output="y", halts=True, **options)])


def probed(life: Life) -> Part:
    def probe(x: int, idempotency_key: str) -> Done | None:
        life.tell("probed", x)
        return Done(x + 1)

    return Part([work(life, probe=probe, **EFFECT)])


def undone(life: Life) -> Part:
    def unwork(x: int, w: int) -> None:
        life.tell("undone", x, w)

    def fail(w: int) -> int:
        raise ValueError("no")

    return Part([work(life, output="w", undo=unwork), Node(fail, name="fail", output="y")])


def streaming(life: Life, **options: Any) -> Part:
    def read(x: int, ctx: Context) -> Iterator[Chunk[int]]:
        with life.body(ctx, ctx.cursor):
            for k in range(int(ctx.cursor or 0), 4):
                if k == 2 and ctx.attempt == 1 and options.get("retry"):
                    raise RuntimeError("broken off")
                yield Chunk(k, str(k + 1))

    total = Node(lambda parts, x: sum(parts) + x - 5, name="total", output="y")
    return Part([Node(read, name="work", output="parts", **options), total])


def ways() -> list[Node]:
    low = Node(lambda x: x + 1, name="low", output="y")
    return [low, Node(lambda x: -x, name="high", output="z")]


def gate(life: Life, act: Callable[[Context], Any] = lambda ctx: None, **options: Any) -> Part:
    """Return a gate that leads to the one of two nodes that gives `y`."""

    def choose(x: int, ctx: Context) -> str:
        with life.body(ctx):
            act(ctx)
            return "low"

    made = route("low", "high", **{"name": "work", **options})(choose)
    return Part(
        [made, Node(lambda x: x + 1, name="low", output="y"), Node(lambda x: -x, name="high", output="z")]
    )


def two_ways(life: Life) -> Part:
    def choose(x: int, ctx: Context) -> bool:
        with life.body(ctx):
            return True

    made = ifelse(when_true="low", when_false="high", name="work")(choose)
    return Part(
        [made, Node(lambda x: x + 1, name="low", output="y"), Node(lambda x: -x, name="high", output="z")]
    )


def several(life: Life) -> Part:
    def choose(x: int, ctx: Context) -> list[str]:
        with life.body(ctx):
            return ["low", "high"]

    made = route("low", "high", multi=True, name="work")(choose)
    add = Node(lambda p, q: p + q, name="add", output="y")
    return Part(
        [made, Node(lambda x: x, name="low", output="p"), Node(lambda x: 1, name="high", output="q"), add]
    )


def asking_gate(life: Life, **options: Any) -> Part:
    def ask(x: int, ctx: Context) -> Any:
        with life.body(ctx):
            return wait.Wait(prompt=f"{x}?")

    made = route("low", "high", halts=True, name="work", **options)(ask)
    return Part(
        [made, Node(lambda x: x + 1, name="low", output="y"), Node(lambda x: -x, name="high", output="z")]
    )


def going_over(*, fails: bool = False, mode: str = "zip", **options: Any) -> Sample:
    def make(life: Life) -> Part:
        def each(n: int, m: int, ctx: Context) -> int:
            with life.body(ctx, n, m):
                if fails and n == 2:
                    raise RuntimeError("no")
                return n * m

        work = Node(each, name="work", output="parts").map_over("n", "m", mode=mode, **options)
        lists = Node(lambda x: ([1, 2, 3], [x, x, x]), name="lists", output=("n", "m"))
        gather = Node(lambda parts: sum(p for p in parts if isinstance(p, int)), name="gather", output="y")
        return Part([lists, work, gather], "lists")

    return Sample(make, ends=fails and "on_error" not in options)


def grouped(**options: Any) -> Sample:
    def make(life: Life) -> Part:
        def fails(x: int, ctx: Context) -> int:
            with life.body(ctx):
                raise RuntimeError("no")

        good, bad = work(life, output="good"), Node(fails, name="bad", output="unused")
        both = parallel(good, bad, **{"policy": "best_effort", "name": "both", **options})
        first = Node(lambda x: None, name="first")
        return Part([chain(first, both, Node(lambda good: good, name="take", output="y"))], "first")

    return Sample(make)


def waiting(make: Callable[[], Any], then: Callable[..., int] = lambda work: 8) -> Sample:
    """Return a part that waits, and goes on with what the wait wrote."""

    def part(life: Life) -> Part:
        lead = Node(lambda x: {"n": x}, name="lead", output="about")
        return Part([chain(lead, make(), Node(then, name="then", output="y"))], "lead")

    return Sample(part, modes=("partial", "strong", "interval", "before_effects"))


def told(act: Callable[[Life, Context], Any], **options: Any) -> Sample:
    """Return a node that does something with its context."""
    return Sample(lambda life: Part([work(life, lambda ctx: act(life, ctx), **options)]))


def inside(act: Callable[[Life, Context], Any]) -> Sample:
    """Return a node that waits in the middle."""
    sample = told(act, halts=True)
    return sample._replace(modes=("partial", "strong", "interval", "before_effects"))


def rounds(life: Life, ctx: Context) -> None:
    life.tell("visit", ctx.visit)


def iterating(life: Life) -> Part:
    def body(x: int, ctx: Context) -> int:
        with life.body(ctx, x):
            if x < 9:
                ctx.next_iteration(x + 1)
            return x - 1

    return Part([Node(body, name="work", output="y")])


def tasked(life: Life) -> Part:
    def ask(x: int, ctx: Context) -> int:
        with life.body(ctx):
            ctx.next_task("extra", n=x)
            return x + 1

    return Part([Node(ask, name="work", output="y")])


def extra(life: Life) -> Node:
    def look(n: int, ctx: Context) -> int:
        with life.body(ctx, n):
            return n

    return Node(look, name="extra", output="found")


def channelled(life: Life) -> Part:
    def write(x: int, ctx: Context) -> int:
        with life.body(ctx):
            ctx.channel.append("log", x)
            return x

    def read(w: int, ctx: Context) -> int:
        life.tell("log", len(ctx.channel.get("log", [])) > 0)
        return w + 1

    return Part([Node(write, name="work", output="w"), Node(read, name="read", output="y")])


def filled(life: Life) -> Part:
    def body(x: int, seed: int, ctx: Context) -> int:
        with life.body(ctx, seed):
            return x + 1

    return Part([Node(body, name="work", output="y")])


def failing(life: Life) -> Part:
    def body(x: int, ctx: Context) -> int:
        with life.body(ctx):
            ctx.keeps_changes = True
            raise RuntimeError("for good")

    return Part([Node(body, name="work", output="y")])


KEYS = ("partial", "strong", "interval", "before_effects")
NODE: dict[tuple[str, str], Sample] = {
    ("name", ""): with_options(name="work"),
    ("output", ""): with_options(output="y"),
    ("inputs", ""): Sample(by_kwargs),
    ("effects", ""): with_options(effects="effectful", idempotency_key="auto"),
    ("determinism", ""): with_options(determinism="nondeterministic"),
    ("idempotency_key", '"auto"'): with_options(**EFFECT),
    ("idempotency_key", "a template"): with_options(effects="effectful", idempotency_key="k-{x}"),
    ("idempotency_key", "a function"): with_options(effects="effectful", idempotency_key=lambda x: f"k-{x}"),
    ("retry", ""): with_options(fails_first, retry=AT_ONCE),
    ("timeout", ""): Sample(slow),
    ("limit", ""): with_options(limit=Limit("api", running=1, rate="1000/1s")),
    ("max_visits", ""): Sample(lambda life: round_and_round(life, max_visits=2), ends=True),
    ("persist", '"inline", "ref"'): with_options(persist="ref"),
    ("persist", '"no"'): Sample(unkept),
    ("skip_on_resume", ""): with_options(skip_on_resume=True),
    ("requires", ""): Sample(lambda life: Part([work(life, requires=["gpu"])]), ends=True),
    ("identifier", ""): with_options(identifier="shop.work"),
    ("halts", ""): Sample(asking, modes=KEYS),
    ("answer_type", ""): Sample(lambda life: asking(life, answer_type=int), modes=KEYS),
    ("on_unknown", ""): with_options(on_unknown="stop", **EFFECT),
    ("probe", ""): Sample(probed),
    ("undo", ""): Sample(undone, ends=True, modes=KEYS),
    ("checkpointable", ""): Sample(
        lambda life: Part([work(life, checkpointable=False, reason="a socket")]), modes=("strong",), ends=True
    ),
    ("reason", ""): with_options(checkpointable=True, reason="none"),
    ("replayable", ""): Sample(partial(streaming, replayable=True), kills=(None, KILLS[1], BEHIND)),
    ("keep_every", ""): Sample(
        partial(streaming, replayable=True, keep_every=1, retry=AT_ONCE), kills=(None, KILLS[1], BEHIND)
    ),
    ("expensive", ""): with_options(expensive=True),
    ("destructive", ""): with_options(destructive=True),
}

GATE: dict[tuple[str, str], Sample] = {
    ("targets", ""): Sample(gate),
    ("when_true", ""): Sample(two_ways),
    ("when_false", ""): Sample(two_ways),
    ("multi", ""): Sample(several),
    **{
        (name, form): Sample(partial(gate, **options))
        for (name, form), options in {
            ("name", ""): {"name": "work"},
            ("effects", ""): EFFECT,
            ("determinism", ""): {"determinism": "nondeterministic"},
            ("idempotency_key", '"auto"'): EFFECT,
            ("idempotency_key", "a template"): {"effects": "effectful", "idempotency_key": "k-{x}"},
            ("idempotency_key", "a function"): {
                "effects": "effectful",
                "idempotency_key": lambda x: f"k-{x}",
            },
            ("retry", ""): {"act": fails_first, "retry": AT_ONCE},
            ("timeout", ""): {"timeout": 20.0},
            ("limit", ""): {"limit": Limit("api", running=1)},
            ("skip_on_resume", ""): {"skip_on_resume": True},
            ("identifier", ""): {"identifier": "shop.work"},
            ("on_unknown", ""): {"on_unknown": "stop", **EFFECT},
            ("reason", ""): {"checkpointable": True, "reason": "none"},
            ("replayable", ""): {"replayable": True},
            ("probe", ""): {"probe": lambda x: Done("low"), **EFFECT},
            ("expensive", ""): {"expensive": True},
            ("destructive", ""): {"destructive": True},
            ("undo", ""): {"undo": lambda x: None},
        }.items()
    },
    ("inputs", ""): Sample(gate),
    ("max_visits", ""): Sample(lambda life: round_and_round(life, max_visits=2), ends=True),
    ("halts", ""): Sample(asking_gate, modes=KEYS),
    ("answer_type", ""): Sample(lambda life: asking_gate(life, answer_type=str), modes=KEYS),
    ("requires", ""): Sample(lambda life: gate(life, requires=["gpu"]), ends=True),
    ("checkpointable", ""): Sample(
        lambda life: gate(life, checkpointable=False, reason="a socket"), modes=("partial",)
    ),
}


def plain(life: Life) -> Part:
    return Part([work(life)])


def two(life: Life) -> Part:
    return Part([work(life, output="m"), Node(lambda m: m, name="next", output="y")])


def wide(life: Life) -> Part:
    sides = [Node(lambda x, k=k: x + k, name=f"s{k}", output=f"v{k}", inputs=["x"]) for k in (1, 2)]
    return Part([*sides, work(life)])


OTHER = Flow("other", [Node(lambda x: x, name="same", output="y", inputs=["x"])])
REGISTRY = Registry([{"id": "shop.work", "effects": "effectful", "idempotency": {"key": "auto"}}])
FLOW: dict[tuple[str, str], Sample] = {
    ("name", ""): Sample(plain, flow={}),
    ("nodes", ""): Sample(two),
    ("entry", ""): Sample(lambda life: round_and_round(life, max_visits=2), flow={"version": "2"}, ends=True),
    ("channel", ""): Sample(filled, flow={"channel": {"seed": int}}),
    ("tasks", ""): Sample(tasked, flow={"tasks": "extra"}),
    ("durability", "no more than the flow around it has"): Sample(
        plain, flow={"durability": "partial"}, modes=("partial",)
    ),
    ("durability", "more than that"): Sample(plain, flow={"durability": "strong"}, modes=("partial",)),
    ("durability", "its leases, times and limits"): Sample(
        plain, flow={"durability": Durability(lease_ttl=timedelta(seconds=7))}, modes=("partial",)
    ),
    ("version", ""): Sample(plain, flow={"version": "7"}),
    ("max_steps", ""): Sample(lambda life: round_and_round(life), flow={"max_steps": 5}, ends=True),
    ("max_visits", ""): Sample(lambda life: round_and_round(life), flow={"max_visits": 2}, ends=True),
    ("max_concurrency", ""): Sample(wide, flow={"max_concurrency": 1}),
    ("inbox", ""): Sample(plain, flow={"inbox": {"x": "replace"}}),
    ("plain_attributes", ""): Sample(plain, flow={"plain_attributes": ["customer"]}),
    ("registry", ""): Sample(
        lambda life: Part([work(life, identifier="shop.work")]), flow={"registry": REGISTRY}
    ),
    ("profiles", ""): Sample(
        plain, flow={"profiles": {"work": {"effects": "effectful", "idempotency": {"key": "auto"}}}}
    ),
    ("undo", ""): Sample(plain, flow={"undo": "failure"}),
    ("starts", ""): Sample(plain, flow={"starts": [OTHER]}),
    ("schedules", ""): Sample(plain, flow={"schedules": [Schedule("hourly", every="1h")]}),
    ("rules", ""): Sample(plain, flow={"rules": [lambda flow, host: []]}),
}

AS_NODE: dict[tuple[str, str], Sample] = {
    ("name", ""): Sample(plain, as_node={"name": "other"}),
    ("durability", ""): Sample(plain),
    ("select", "what is lifted"): Sample(plain, as_node={"select": ["y"]}),
    ("select", "what is not lifted"): Sample(two, as_node={"select": ["m"]}),
    ("undo", ""): Sample(plain, as_node={"undo": lambda x, y: None}, modes=KEYS),
}

MAP: dict[tuple[str, str], Sample] = {
    ("params", ""): going_over(),
    ("mode", ""): going_over(mode="product"),
    ("on_error", ""): going_over(fails=True, on_error="collect"),
    ("max_concurrency", ""): going_over(max_concurrency=1),
}

GROUP: dict[tuple[str, str], Sample] = {
    ("members", ""): grouped(),
    ("policy", ""): grouped(policy="best_effort"),
    ("join", ""): grouped(join="all"),
    ("name", ""): grouped(name="pair"),
}

WAIT: dict[tuple[str, str], Sample] = {
    ("name", ""): waiting(lambda: wait.approval("work")),
    ("output", ""): waiting(lambda: wait.approval("ask", output="work")),
    ("duration", ""): waiting(lambda: wait.timer("work", duration="1h")),
    ("until", ""): waiting(lambda: wait.timer("work", until="2020-01-01T00:00:00Z")),
    ("payload", ""): waiting(
        lambda: wait.timer("work", duration="1h", payload=5), lambda work: int(work.payload) + 3
    ),
    ("context", ""): waiting(lambda: wait.approval("work", context="about")),
    ("prompt", ""): waiting(lambda: wait.approval("work", prompt="Really?")),
    ("timeout", ""): waiting(lambda: wait.approval("work", timeout="1h")),
    ("token_ttl", ""): waiting(lambda: wait.callback("work", token_ttl="1h")),
    ("single_use", ""): waiting(lambda: wait.callback("work", single_use=False)),
    ("default", ""): waiting(lambda: wait.question("work", kind="text", default="a", timeout="1h")),
    ("answer_type", ""): waiting(lambda: wait.question("work", answer_type=int)),
    ("kind", ""): waiting(lambda: wait.question("work", kind="yes_no")),
    ("options", ""): waiting(lambda: wait.question("work", options=["a", "b"])),
    ("scheduler", ""): waiting(lambda: wait.timer("work", duration="1h", scheduler="elsewhere")),
    ("notify", ""): waiting(lambda: wait.approval("work", notify="desk")),
    ("remind", ""): waiting(lambda: wait.approval("work", notify="desk", remind="1d")),
    ("escalate", ""): waiting(lambda: wait.approval("work", escalate={"1d": "desk"})),
    ("signal", ""): waiting(lambda: wait.signal("work", signal="sent")),
    ("event", ""): waiting(lambda: wait.event("work", event="happened")),
    ("approvers", ""): waiting(lambda: wait.approval("work", approvers=["ann", "bob"])),
    ("quorum", ""): waiting(lambda: wait.approval("work", quorum=2)),
    ("not_by_starter", ""): waiting(lambda: wait.approval("work", not_by_starter=True)),
    ("match", ""): waiting(lambda: wait.event("work", event="happened", match={"about": wait.literal(5)})),
}

BREAKER: dict[tuple[str, str], Sample] = {
    ("nodes", ""): Sample(plain, outer={"breakers": [Breaker("b", nodes=["work"], failures=1)]}),
}


def second_try(life: Life, ctx: Context) -> None:
    life.tell(ctx.attempt)
    fails_first(ctx)


def outcome(life: Life, ctx: Context) -> None:
    ctx.outcome = "partial_success"


CONTEXT: dict[tuple[str, str], Sample] = {
    ("run_id", ""): told(lambda life, ctx: life.tell(ctx.run_id)),
    ("node", ""): told(lambda life, ctx: life.tell(ctx.node)),
    ("path", ""): told(lambda life, ctx: life.tell(ctx.path.rpartition("/")[2].partition("@")[0])),
    ("visit", ""): Sample(lambda life: Part([work(life, lambda ctx: life.tell(ctx.visit > 0))])),
    ("attempt", ""): told(second_try, retry=AT_ONCE),
    ("idempotency_key", ""): told(lambda life, ctx: life.tell(bool(ctx.idempotency_key))),
    ("is_resumed", ""): told(lambda life, ctx: life.tell(ctx.is_resumed)),
    ("breakers", ""): told(lambda life, ctx: life.tell(ctx.breakers)),
    ("emit", ""): told(lambda life, ctx: ctx.emit("word"))._replace(hears=True, kills=(None,)),
    ("heartbeat", ""): told(lambda life, ctx: ctx.heartbeat())._replace(hears=True, kills=(None,)),
    ("cancel", ""): Sample(lambda life: Part([work(life, lambda ctx: ctx.cancel("enough"))]), ends=True),
    ("terminate", ""): told(lambda life, ctx: None),
    ("next_task", ""): Sample(tasked, flow={"tasks": "extra"}),
    ("next_iteration", ""): Sample(iterating),
    ("cursor", ""): Sample(partial(streaming, replayable=True), kills=(None, KILLS[1], BEHIND)),
    ("channel", "to read"): told(lambda life, ctx: life.tell(ctx.channel.get("seed"))),
    ("channel", "to change"): Sample(channelled),
    ("keeps_changes", ""): Sample(failing, ends=True),
    ("checkpoint", ""): told(lambda life, ctx: ctx.checkpoint({"why": "now"})),
    ("spend", ""): told(lambda life, ctx: ctx.spend(usd=1) and None),
    ("outcome", ""): told(outcome),
    ("set_attribute", ""): told(lambda life, ctx: ctx.set_attribute("customer", "7")),
    ("step", ""): told(lambda life, ctx: life.tell(ctx.step("look", len, "abc"))),
    ("start", ""): told(lambda life, ctx: life.tell(ctx.start("other", {"x": 1}).flow))._replace(
        flow={"starts": [OTHER]}, modes=("partial", "strong", "interval", "before_effects")
    ),
    ("wait", ""): inside(lambda life, ctx: life.tell(ctx.wait(wait.approval("ok")).approved)),
    ("result", ""): inside(
        lambda life, ctx: life.tell(ctx.result(ctx.start("other", {"x": 1}))["y"])
    )._replace(flow={"starts": [OTHER]}, modes=("partial", "strong")),
    ("sleep", ""): inside(lambda life, ctx: ctx.sleep("1h")),
    ("inbox", ""): told(lambda life, ctx: life.tell(ctx.inbox("message"))),
    ("now", ""): told(lambda life, ctx: life.tell(ctx.now() is not None)),
    ("uuid", ""): told(lambda life, ctx: life.tell(len(str(ctx.uuid())))),
    ("random", ""): told(lambda life, ctx: life.tell(0 <= ctx.random() < 1)),
}

SAMPLES: dict[Of, dict[tuple[str, str], Sample]] = {
    Of.NODE: NODE,
    Of.GATE: GATE,
    Of.FLOW: FLOW,
    Of.AS_NODE: AS_NODE,
    Of.MAP: MAP,
    Of.GROUP: GROUP,
    Of.WAIT: WAIT,
    Of.BREAKER: BREAKER,
    Of.CONTEXT: CONTEXT,
}

__all__ = ["SAMPLES", "Flow", "Life", "Part", "Sample", "extra"]
