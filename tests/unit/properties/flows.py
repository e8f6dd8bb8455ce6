"""Random flows of every shape.

Node bodies are functions of what they read. Where threads make an order visible, nothing depends on it: the
channel is only added and appended to (and its list compared in any order), keys that nodes set are their own,
a flow that ends early has one node at a time. Exceptions are a flow that fails while its other nodes run, and
the members of a `first_success` group: what is called off is a matter of luck, so no node reads what they
write and `Built.racy` names them.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

from hypothesis import strategies as st

from everstep import (
    END,
    Context,
    Durability,
    Flow,
    Node,
    Retry,
    at_least,
    chain,
    critical,
    ifelse,
    parallel,
    quorum,
    route,
    wait,
)
from everstep.graph.author.node_options import EffectsName
from everstep.graph.author.subflow import Subflow
from everstep.graph.author.wiring import Policy, PolicyKind, Wired
from everstep.model.enums import Flush, Mode, OnError

DURABILITIES: dict[str, Durability] = {
    "partial": Durability(),
    "strong": Durability(Mode.STRONG),
    "strong, all aside": Durability(Mode.STRONG, blob_threshold=1),
    "every 2": Durability(Mode.STRONG, interval=2),
    "every 3 or 1 s": Durability(Mode.STRONG, interval=(3, timedelta(seconds=1))),
    "before effects": Durability(Mode.STRONG, flush=Flush.BEFORE_EFFECTS),
}
ON_ERROR = (OnError.STOP, OnError.COLLECT, OnError.SKIP)
ALWAYS = 3
"""More than any remainder."""


@dataclass(frozen=True)
class Body:
    """What a node does besides working out a number."""

    failures: int = 0
    """So many attempts fail before one succeeds."""
    op: str | None = None
    """What it does to the channel."""
    effects: EffectsName = "undeclared"
    fatal: int | None = None
    """It fails for good if what it reads has this remainder, or always."""


@dataclass(frozen=True)
class Part:
    """One part of a flow. `reads` picks among the numbers that are there by then."""

    kind: str
    reads: tuple[int, ...]
    body: Body
    count: int
    """How many rounds, items, members or tasks."""
    variant: int
    """Which of the kind's varieties."""
    inner: Design | None = None


@dataclass(frozen=True)
class Design:
    """A flow: its parts in order, each reading what those before it write."""

    parts: tuple[Part, ...]
    is_chain: bool
    """True if each part reads what the part before it wrote, so that they run one after the other."""


@dataclass(frozen=True)
class Case:
    """A flow, how it is kept, and what it begins with."""

    design: Design
    durability: str
    x: int


class Log:
    """Which attempts one life began, and which nodes fail in it whatever they read."""

    def __init__(self, broken: int | None = None) -> None:
        self.begun: list[tuple[str, int, int]] = []
        self.broken = broken
        self._lock = threading.Lock()

    def note(self, ctx: Context, number: int) -> None:
        with self._lock:
            self.begun.append((ctx.path, ctx.visit, ctx.attempt))
        if number == self.broken:
            raise RuntimeError("broken")


def total(value: Any) -> int:
    """Return a number made of all numbers in a value."""
    if isinstance(value, (list, tuple)):
        return sum((k + 1) * total(item) for k, item in enumerate(value)) + len(value)
    return value if isinstance(value, int) else zlib.crc32(repr(value).encode())


@dataclass
class Scene:
    """The values that a flow under construction has so far."""

    numbers: list[str]
    lists: list[str]
    wired: list[Any] = field(default_factory=list)
    tasks: list[Node] = field(default_factory=list)
    is_chain: bool = False
    is_quiet: bool = False
    """True where nothing may touch the channel: it would be refused, or be a matter of luck."""
    is_sure: bool = True
    """False behind a part that may end the flow."""
    given: list[str] = field(default_factory=list)
    """What it writes on every path."""
    given_lists: list[str] = field(default_factory=list)

    def pick(self, k: int) -> str:
        return self.numbers[-1] if self.is_chain else self.numbers[k % len(self.numbers)]

    def gives(self, name: str) -> None:
        self.numbers.append(name)
        if self.is_sure:
            self.given.append(name)

    def gives_list(self, name: str) -> None:
        self.lists.append(name)
        if self.is_sure:
            self.given_lists.append(name)


class Tagged(int):
    """A number that is written with a tag behind it, so that everything called after it has another name."""

    tag = ""

    def __format__(self, spec: str) -> str:
        return int.__format__(self, spec) + self.tag


class Built:
    """A flow made from a design; with a tag, everything in it has another name, and does the same."""

    def __init__(
        self,
        case: Case,
        log: Log | None = None,
        *,
        tag: str = "",
        more: Sequence[Node] = (),
    ) -> None:
        self.log = log or Log()
        self.racy: set[str] = set()
        self._count = 0
        self._tagged = type("Tagged", (Tagged,), {"tag": tag})
        self.fragile: list[int] = []
        """Numbers of nodes whose failure nothing tolerates."""
        self._is_tolerated = False
        self.flow = self._flow(case.design, "x", DURABILITIES[case.durability], more=more).flow

    # -- flows --------------------------------------------------------------------------------------------

    def _flow(
        self,
        design: Design,
        given: str,
        durability: Durability = DURABILITIES["partial"],
        *,
        is_quiet: bool = False,
        fatal: int | None = None,
        more: Sequence[Node] = (),
    ) -> Inner:
        always = fatal == ALWAYS
        scene = Scene([given], [], list(more), is_quiet=is_quiet or always)
        scene.is_chain = design.is_chain or (fatal is not None and not always)
        before = self._count
        if always:
            scene.wired.append(self.node(scene, [given], Body(fatal=fatal)))
        for part in design.parts:
            self.add(scene, part)
        if fatal is not None and not always:
            self._plain(scene, [scene.pick(-1)], Body(fatal=fatal))
        if always:
            self._leave_to_luck(before)
        name = f"f{int(self._next())}"
        flow = Flow(name, scene.wired, tasks=scene.tasks, durability=durability)
        return Inner(flow, scene.given, scene.given_lists)

    def add(self, scene: Scene, part: Part) -> None:
        """Add a part of a flow under construction."""
        PARTS[part.kind](self, scene, part)

    def _leave_to_luck(self, before: int) -> None:
        """How far the nodes made since then come is a matter of luck."""
        numbers = [self._tagged(n) for n in range(before + 1, self._count + 1)]
        self.racy |= {f"{c}{n}" for n in numbers for c in "nvsgbhijftw"}

    def _next(self) -> int:
        self._count += 1
        made: int = self._tagged(self._count)
        return made

    # -- nodes --------------------------------------------------------------------------------------------

    def node(
        self, scene: Scene, reads: list[str], body: Body, answer: Callable[[Context, int], Any] | None = None
    ) -> Node:
        """Return a node that writes a number, not yet in its place."""
        number, log = self._next(), self.log
        if not self._is_tolerated:
            self.fragile.append(number)
        op = None if scene.is_quiet else body.op

        def work(ctx: Context, **values: Any) -> Any:
            log.note(ctx, number)
            taken = (total(list(values.values())) * 31 + number) % 997
            touch(ctx, op, taken)
            for value in () if scene.is_quiet else values.values():
                if isinstance(value, list):
                    value.append(number)  # no other may see this, but for atomic flows
            if ctx.attempt <= body.failures:
                raise ConnectionError(f"attempt {ctx.attempt}")
            if body.fatal is not None and (body.fatal == ALWAYS or taken % 3 == body.fatal):
                raise ValueError(f"{taken} is too much")
            return taken if answer is None else answer(ctx, taken)

        return Node(
            work,
            name=f"n{number}",
            inputs=reads,
            output=f"v{number}",
            effects=body.effects,
            idempotency_key="auto" if body.effects == "effectful" else None,
            retry=Retry(3, first=1, jitter=0.5, on=ConnectionError),
        )

    def _plain(self, scene: Scene, reads: list[str], body: Body) -> Node:
        made = self.node(scene, list(dict.fromkeys(reads)), body)
        scene.wired.append(made)
        scene.gives(made.outputs[0])
        return made

    # -- parts --------------------------------------------------------------------------------------------

    def plain(self, scene: Scene, part: Part) -> None:
        reads = [scene.pick(k) for k in part.reads]
        if part.variant == 1 and scene.lists:
            reads.append(scene.lists[-1])
        self._plain(scene, reads, part.body)

    def spread(self, scene: Scene, part: Part) -> None:
        """A list, as long as chance wants it."""
        made = self._spread(scene, part)
        if scene.is_chain:
            self._plain(scene, [made], Body())

    def _spread(self, scene: Scene, part: Part) -> str:
        made = self.node(
            scene,
            [scene.pick(part.reads[0])],
            part.body,
            lambda _, taken: [taken + k for k in range(part.count)],
        )
        scene.wired.append(made)
        scene.gives_list(made.outputs[0])
        return made.outputs[0]

    def _list_for(self, scene: Scene, part: Part) -> str:
        """Return what a map goes over: in a chain a list of its own, or it would run beside other readers."""
        if scene.is_chain or not scene.lists:
            return self._spread(scene, part)
        return scene.lists[part.reads[0] % len(scene.lists)]

    def sub(self, scene: Scene, part: Part) -> None:
        assert part.inner is not None
        made, inner = self._subflow(scene, part, scene.pick(part.reads[0]))
        scene.wired.append(made)
        for name in inner.given:
            if name in made.outputs:
                scene.gives(name)
        for name in inner.given_lists:
            if name in made.outputs:
                scene.gives_list(name)
        if scene.is_chain:
            self._plain(scene, [inner.given[0]], Body())

    def _subflow(
        self, scene: Scene, part: Part, source: str, *, fatal: int | None = None
    ) -> tuple[Subflow, Inner]:
        assert part.inner is not None
        is_atomic = part.variant % 2 == 1
        inner = self._flow(part.inner, "x", is_quiet=scene.is_quiet or is_atomic, fatal=fatal)
        select = inner.given[:1] if part.variant == 4 else None
        made = inner.flow.as_node(
            name=f"s{self._next()}", durability="atomic" if is_atomic else "nested", select=select
        )
        first = inner.given[0]
        if part.variant == 2 or is_atomic:
            made = made.lift(*inner.given, *inner.given_lists)
        if part.variant == 3:
            made = made.lift(*inner.given, *inner.given_lists).with_outputs(**{first: f"{first}_out"})
            inner.given[0] = f"{first}_out"
        return made.with_inputs(x=source), inner

    def over(self, scene: Scene, part: Part) -> None:
        """A map over a plain node."""
        over, mode, source, second = self._lists(scene, part)
        on_error = ON_ERROR[part.variant % 3]
        body = Body(part.body.failures, part.body.op, part.body.effects)
        self._is_tolerated, was = self._is_tolerated or on_error is not OnError.STOP, self._is_tolerated
        if on_error is not OnError.STOP:
            body = Body(body.failures, body.op, body.effects, fatal=part.count % 3)
        made = self.node(scene, over, body).with_inputs(**dict(zip(over, (source, second), strict=False)))
        self._is_tolerated = was
        scene.wired.append(
            made.map_over(*over, mode=mode, on_error=on_error, max_concurrency=1 + part.variant)
        )
        scene.gives_list(made.outputs[0])
        if scene.is_chain:
            self._plain(scene, [made.outputs[0]], Body())

    def _lists(self, scene: Scene, part: Part) -> tuple[list[str], str, str, str]:
        source = self._list_for(scene, part)
        number = self._next()
        names, modes = [f"i{number}", f"j{number}"], ("zip", "product")
        if part.variant < 2:
            return names[:1], "zip", source, source
        return names, modes[part.variant % 2], source, source

    def over_sub(self, scene: Scene, part: Part) -> None:
        """A map over a flow."""
        source = self._list_for(scene, part)
        on_error = ON_ERROR[part.count % 3]
        self._is_tolerated, was = self._is_tolerated or on_error is not OnError.STOP, self._is_tolerated
        made, inner = self._subflow(
            scene, part, source, fatal=None if on_error is OnError.STOP else part.count % 3
        )
        self._is_tolerated = was
        made = made if part.variant == 3 else made.lift(*inner.given, *inner.given_lists)
        scene.wired.append(made.map_over("x", on_error=on_error, max_concurrency=1 + part.variant))
        for name in inner.given:
            if name in made.outputs:
                scene.gives_list(name)
        if scene.is_chain:
            self._plain(scene, [inner.given[0]], Body())

    def branch(self, scene: Scene, part: Part) -> None:
        """A gate between two nodes, or one that may choose both."""
        source = scene.pick(part.reads[0])
        one, two = self.node(scene, [source], part.body), self.node(scene, [source], Body())
        number, log = self._next(), self.log

        if part.variant % 2:
            two = two.with_outputs(one.outputs[0])

            def choose(ctx: Context, **values: int) -> str:
                log.note(ctx, 0)
                return (one, two)[total(list(values.values())) % 2].name

            scene.wired += [route(one, two, name=f"g{number}", inputs=[source])(choose), one, two]
            scene.gives(one.outputs[0])
            return

        def choose_some(ctx: Context, **values: int) -> list[str]:
            log.note(ctx, 0)
            taken = total(list(values.values())) % 3
            return [n.name for k, n in enumerate((one, two)) if taken in (k, 2)]

        def merge(ctx: Context, base: int, left: int | None = None, right: int | None = None) -> int:
            log.note(ctx, 0)
            return total([base, left or 0, right or 0]) % 997

        gate = route(one, two, END, multi=True, name=f"g{number}", inputs=[source])(choose_some)
        merged = Node(merge, name=f"n{number}", output=f"v{number}").with_inputs(
            base=source, left=one.outputs[0], right=two.outputs[0]
        )
        scene.wired += [gate, one, two, merged]
        scene.gives(merged.outputs[0])

    def loop(self, scene: Scene, part: Part) -> None:
        """A loop that a gate leads into, around a node, a flow or a map."""
        source, log, rounds = scene.pick(part.reads[0]), self.log, part.count
        first = self.node(scene, [source], part.body, lambda _, taken: [taken])
        number = self._next()
        acc, head = first.outputs[0], f"h{number}"

        def enter(ctx: Context, **values: Any) -> bool:
            log.note(ctx, 0)
            return True

        def grow(ctx: Context, **values: Any) -> list[int]:
            log.note(ctx, 0)
            return [*values[acc], ctx.visit * 7]

        def again(ctx: Context, **values: Any) -> bool:
            log.note(ctx, 0)
            return len(values[acc]) <= rounds

        scene.wired += [
            first,
            ifelse(when_true=head, when_false=END, name=f"b{number}", inputs=[source])(enter),
            Node(grow, name=head, inputs=[acc], output=acc),
        ]
        watched = [acc]
        if part.inner is not None:
            made, inner = self._around(scene, part, acc)
            scene.wired += made
            watched.append(inner)
        scene.wired.append(ifelse(when_true=head, when_false=END, name=f"g{number}", inputs=watched)(again))
        scene.gives_list(acc)
        self._plain(scene, watched, Body())

    def _around(self, scene: Scene, part: Part, acc: str) -> tuple[list[Any], str]:
        if part.variant == 4:
            made, inner = self._subflow(scene, part, acc)
            made = made.lift(*inner.given, *inner.given_lists)
            return [made.map_over("x", max_concurrency=2)], inner.given[0]
        number = self.node(scene, [acc], Body())
        made, inner = self._subflow(scene, part, number.outputs[0])
        return [number, made], inner.given[0]

    def group(self, scene: Scene, part: Part) -> None:
        """Members side by side under a policy, between two nodes."""
        source = scene.pick(part.reads[0])
        size = 2 + part.count % 2
        kind = ("strict", "best_effort", "critical", "at_least", "any", "quorum", "first_success")[
            (part.variant + part.reads[-1]) % 7
        ]
        if scene.is_chain:  # where nothing waits for the others, they run beside what follows
            kind = {"any": "strict", "quorum": "best_effort"}.get(kind, kind)
        is_racy = kind == "first_success"
        tolerates = kind not in ("strict", "any")
        is_quiet, scene.is_quiet = scene.is_quiet, scene.is_quiet or is_racy
        self._is_tolerated, was = self._is_tolerated or tolerates, self._is_tolerated
        before, failing = self._count, part.count % size if tolerates else -1
        members = [
            self._member(scene, part, source, k, ALWAYS if k == failing else None) for k in range(size)
        ]
        if is_racy:
            self._leave_to_luck(before)
        self._is_tolerated, scene.is_quiet = was, is_quiet
        start, after = self.node(scene, [source], Body()), self.node(scene, [source], part.body)
        scene.wired.append(chain(start, self._grouped(kind, members, part.count % size), after))
        scene.gives(start.outputs[0])
        scene.gives(after.outputs[0])

    def _grouped(self, kind: str, members: list[Wired], failing: int) -> Wired:
        name = f"j{self._next()}"
        if kind == "critical":
            return parallel(
                *members, policy=critical(*[m for k, m in enumerate(members) if k != failing]), name=name
            )
        if kind == "at_least":
            return parallel(*members, policy=at_least(len(members) - 1), name=name)
        if kind == "any":
            return parallel(*members, join="any", name=name)
        if kind == "quorum":
            return parallel(*members, policy=quorum(1), name=name)
        return parallel(*members, policy=Policy(cast(PolicyKind, kind)), name=name)

    def _member(self, scene: Scene, part: Part, source: str, k: int, fatal: int | None) -> Wired:
        if part.inner is not None and k == 0:
            return self._subflow(scene, part, source, fatal=fatal)[0]
        if k == 1 and part.count > 1:
            return chain(
                self.node(scene, [source], Body(op="append")), self.node(scene, [source], Body(fatal=fatal))
            )
        return self.node(scene, [source], Body(part.body.failures, part.body.op, fatal=fatal))

    def iterate(self, scene: Scene, part: Part) -> None:
        """A node that asks for itself again."""

        def answer(ctx: Context, taken: int) -> int:
            if ctx.visit < part.count:
                ctx.next_iteration(taken)
            return taken

        made = self.node(scene, [scene.pick(part.reads[0])], part.body, answer)
        scene.wired.append(made)
        scene.gives(made.outputs[0])

    def ask(self, scene: Scene, part: Part) -> None:
        """A node that asks for a task several times."""
        number, log = self._next(), self.log

        def task(ctx: Context, seed: int) -> int:
            log.note(ctx, 0)
            touch(ctx, None if scene.is_quiet else part.body.op, seed)
            return seed

        asked = Node(task, name=f"t{number}", output=f"w{number}").with_inputs(seed=f"seed{number}")

        def answer(ctx: Context, taken: int) -> int:
            for k in range(part.count):
                ctx.next_task(asked, seed=taken + k, priority=k % 2)
            return taken

        made = self.node(scene, [scene.pick(part.reads[0])], part.body, answer)
        scene.wired.append(made)
        scene.tasks.append(asked)
        scene.gives(made.outputs[0])
        if part.count:
            self._plain(scene, [made.outputs[0], asked.outputs[0]], Body())

    def wait(self, scene: Scene, part: Part) -> None:
        """A node that halts; what it writes but for the time is a number."""
        source = scene.pick(part.reads[0])
        if scene.is_quiet:
            self._plain(scene, [source], part.body)
            return
        if part.variant == 2:
            self._own_halt(scene, source, part)
            return
        number = self._next()
        name, output = f"n{number}", f"v{number}"
        if part.variant == 1:
            asked = wait.question(name, kind="text", answer_type=int, context=source, output=output)
        elif part.variant == 0:
            asked = wait.timer(name, duration=timedelta(hours=part.count), payload=source, output=output)
        elif part.variant == 3:
            asked = wait.callback(name, context=source, answer_type=int, output=output)
        else:
            asked = wait.approval(name, context=source, output=output)
        scene.wired.append(asked)
        if part.variant == 1:
            scene.gives(output)
            return
        log, reader = self.log, self._next()

        def unpack(ctx: Context, **values: Any) -> int:
            log.note(ctx, reader)
            return total([number_in(value) for value in values.values()]) % 997

        scene.wired.append(Node(unpack, name=f"n{reader}", inputs=[output], output=f"v{reader}"))
        scene.gives(f"v{reader}")

    def _own_halt(self, scene: Scene, source: str, part: Part) -> None:
        def answer(ctx: Context, taken: int) -> int | wait.Wait:
            return wait.Wait(context=taken) if taken % 3 else taken

        # A fork asks again, and what it then does to the channel comes on top.
        made = self.node(scene, [source], Body(part.body.failures, effects=part.body.effects), answer)
        made.halts = True
        scene.wired.append(made)
        scene.gives(made.outputs[0])

    def stop(self, scene: Scene, part: Part) -> None:
        """A node that may end its flow."""

        def answer(ctx: Context, taken: int) -> int:
            if taken % 2:
                ctx.terminate()
            return taken

        is_alone = scene.is_chain
        made = self.node(scene, [scene.pick(-1)], part.body, answer if is_alone else None)
        scene.wired.append(made)
        scene.gives(made.outputs[0])
        if is_alone:
            scene.is_sure = False


@dataclass
class Inner:
    """A flow for the inside of another, and what it gives on every path."""

    flow: Flow
    given: list[str]
    given_lists: list[str]


PARTS: dict[str, Callable[[Built, Scene, Part], Any]] = {
    "plain": Built.plain,
    "spread": Built.spread,
    "sub": Built.sub,
    "over": Built.over,
    "over_sub": Built.over_sub,
    "branch": Built.branch,
    "loop": Built.loop,
    "group": Built.group,
    "iterate": Built.iterate,
    "ask": Built.ask,
    "stop": Built.stop,
    "wait": Built.wait,
}
AWAKE = [kind for kind in PARTS if kind != "wait"]
NESTING = ("sub", "over_sub", "loop", "group")


def number_in(output: Any) -> int:
    """Return what a person answered, or a timer carried, without the time."""
    return int(output.approved if isinstance(output, wait.ApprovalOutput) else output.payload)


def touch(ctx: Context, op: str | None, taken: int) -> None:
    """Change the channel in a way that does not depend on who came first."""
    if op == "set":
        ctx.channel.set(f"{ctx.path}:{ctx.visit}", [taken])
    elif op == "append":
        ctx.channel.append("log", ctx.path)
    elif op == "prepend":
        ctx.channel.prepend("log", ctx.path)
    elif op == "add":
        ctx.channel.atomic_add("sum", taken)
    elif op == "delete":
        ctx.channel.delete("seed")


def bodies() -> st.SearchStrategy[Body]:
    return st.builds(
        Body,
        failures=st.sampled_from([0, 0, 0, 1, 2]),
        op=st.sampled_from([None, None, "set", "append", "prepend", "add", "delete"]),
        effects=st.sampled_from(["undeclared", "pure", "effectful"]),
    )


def parts(depth: int, kinds: list[str]) -> st.SearchStrategy[Part]:
    def part(kind: str) -> st.SearchStrategy[Part]:
        inside: st.SearchStrategy[Design | None] = st.none()
        if kind in NESTING and depth > 0:
            inside = designs(depth - 1, kinds)
            if kind in ("loop", "group"):
                inside = st.none() | inside
        return st.builds(
            Part,
            kind=st.just(kind),
            reads=st.lists(st.integers(0, 5), min_size=1, max_size=2).map(tuple),
            body=bodies(),
            count=st.integers(0, 3),
            variant=st.integers(0, 4),
            inner=inside,
        )

    allowed = kinds if depth > 0 else [k for k in kinds if k not in ("sub", "over_sub")]
    return st.sampled_from(allowed).flatmap(part)


def designs(depth: int, kinds: list[str]) -> st.SearchStrategy[Design]:
    first = st.builds(
        Part,
        kind=st.just("plain"),
        reads=st.just((0,)),
        body=bodies(),
        count=st.just(0),
        variant=st.just(0),
    )
    rest = st.lists(parts(depth, kinds), max_size=3 if depth > 0 else 2)
    both = st.tuples(first, rest).map(lambda two: (two[0], *two[1]))
    return st.builds(Design, parts=both, is_chain=st.booleans())


def cases(kinds: list[str] | None = None, durabilities: list[str] | None = None) -> st.SearchStrategy[Case]:
    return st.builds(
        Case,
        design=designs(2, kinds or AWAKE),
        durability=st.sampled_from(durabilities or list(DURABILITIES)),
        x=st.integers(0, 5),
    )
