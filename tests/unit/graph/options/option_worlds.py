"""Puts a part of a flow into a place, kills the processes that run it, and says what was seen."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any, Final

from everstep import Context, Durability, Flow, Host, Node, chain, ifelse, parallel
from everstep.client.views import WaitInfo
from everstep.errors import EverstepError
from everstep.graph.author.options import Place
from everstep.graph.compile.plan import deep_nodes
from everstep.registry import Opened
from everstep.results import Event, RunResult
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.testing.clock import ManualClock
from everstep.testing.killing import Crashed, Killer, crash, killing
from everstep.testing.playing import voter_of
from tests.unit.graph.options.option_samples import Life, Part, Sample, extra

RUN = "run-1"
LEASE = timedelta(seconds=30)
MODES: Final[dict[str, Any]] = {
    "partial": "partial",
    "strong": "strong",
    "interval": Durability("strong", interval=1000),
    "before_effects": Durability("strong", flush="before_effects"),
    "off": "off",
}
TELLING = frozenset({"expensive_op", "destructive_op", "manual", "circuit_breaker"})
"""Triggers that say that a person asked for a checkpoint."""


class Elsewhere:
    """A scheduler that leaves everything to others."""

    async def schedule_at(self, *_: Any, **__: Any) -> str:
        return "noted"

    async def schedule_after(self, *_: Any, **__: Any) -> str:
        return "noted"

    async def cancel(self, *_: Any, **__: Any) -> bool:
        return True

    async def status(self, *_: Any, **__: Any) -> str:
        return "pending"


SERVICES: Final[Any] = {"schedulers": {"elsewhere": Elsewhere()}, "notifiers": {"desk": lambda notice: None}}


def flow_in(place: Place, sample: Sample, life: Life, mode: str) -> tuple[Flow, dict[str, Any]]:
    """Return a flow with the part in this place, and what a run of it begins with."""
    part = sample.make(life)
    options = {"durability": MODES[mode], **sample.outer}
    after = _after(life)
    if place is Place.PLAIN:
        own = {**options, **_own(sample, life)}
        return Flow("f", [*part.nodes, after], entry=part.entry, **own), {"x": 7}
    if place in (Place.NESTED, Place.ATOMIC, Place.ITEM):
        inner = _inner(part, sample, life, "atomic" if place is Place.ATOMIC else "nested")
        if place is Place.ITEM:
            return Flow("f", [inner.map_over("x"), after], **options), {"x": [7]}
        return Flow("f", [inner, after], **options), {"x": 7}
    if place is Place.BRANCH:
        branches = [_inner(part, sample, life, "nested"), Flow("b2", [_idle("rest")]).as_node().lift()]
        fork = Flow("fork", branches, max_concurrency=4).as_node().lift("y")
        return Flow("f", [fork, after], **options), {"x": 7}
    if sample.flow or sample.as_node:
        inner = _inner(part, sample, life, "nested")
        part = Part([inner], inner.name)
    return (_joined if place is Place.JOIN else _looped)(part, sample, after, options), {"x": 7}


def _joined(part: Part, sample: Sample, after: Node, options: dict[str, Any]) -> Flow:
    head, *rest = part.nodes
    if not rest and isinstance(head, Node) and not head.is_gate and not sample.ends:
        group = parallel(head, _idle("rest"), policy="best_effort", name="meet")
        return Flow("f", [chain(group, after)], entry=part.entry, **options)
    group = parallel(_idle("left"), _idle("right"), policy="best_effort", name="meet")
    return Flow("f", [chain(group, head), *rest, after], entry=part.entry, **options)


def _looped(part: Part, sample: Sample, after: Node, options: dict[str, Any]) -> Flow:
    def once_more(y: int, ctx: Context) -> bool:
        return ctx.visit < 2

    gate = ifelse(when_true=part.head, when_false="after", name="once_more")(once_more)
    return Flow("f", [*part.nodes, gate, after], entry=part.head, **options)


def _inner(part: Part, sample: Sample, life: Life, durability: Any) -> Any:
    flow = Flow("inner", part.nodes, entry=part.entry, **_own(sample, life))
    return flow.as_node(durability=durability, **sample.as_node).lift("y")


def _own(sample: Sample, life: Life) -> dict[str, Any]:
    own = dict(sample.flow)
    return {**own, "tasks": [extra(life)]} if "tasks" in own else own


def _idle(name: str) -> Node:
    return Node(lambda: None, name=name)


def _after(life: Life) -> Node:
    def after(y: Any, ctx: Context) -> int:
        with life.body(ctx, y[0] if isinstance(y, list) else y):
            return 1

    return Node(after, name="after", output="done")


class World:
    """What outlives the processes of one run."""

    def __init__(self, life: Life, flow: Flow, inputs: dict[str, Any], *, hears: bool = False) -> None:
        self._listener = self._hear if hears else None
        self.clock = ManualClock(auto=True)
        self.data = MemoryData()
        self._life, self._flow, self._inputs = life, flow, inputs

    def _hear(self, event: Event) -> None:
        if event.kind == "emitted":
            self._life.tell("emitted", event.data["name"])

    def live(self, kill: str | None) -> None:
        """Run and resume until it is over; the first process dies at `kill`."""
        for process in range(5):
            self._life.killer = Killer(kill if process == 0 else None, act=crash)
            store = MemoryStore(self.clock, self.data)
            opened = killing(Opened(store, store.artifacts, "memory:"), by=self._life.killer)
            with Host(opened, clock=self.clock, on_event=self._listener, **SERVICES) as host:
                try:
                    self._drive(host)
                    return
                except Crashed:
                    self.clock.advance(LEASE * 2)
        raise AssertionError("it never ended")

    def _drive(self, host: Host) -> None:
        life = self._life
        try:
            result = host.run(self._flow, self._inputs, run_id=RUN, channel={"seed": 5}, by="zoe")
            while result.status == "halted":
                result = self._answer(host, result)
        except Crashed:
            raise
        except EverstepError as error:
            life.tell("refused", error.code)
            return
        if life.is_dead:  # nothing was written, so no one has noticed
            raise Crashed("the process is dead")
        life.tell(result.status.value, result.error.type if result.error else None)
        if self._flow.durability.mode != "off":
            records = host.history(RUN)
            life.tell("asked", sorted({str(r.trigger) for r in records} & TELLING))
            steps = [s for r in records for s in r.steps]
            life.tell("said", sorted({s.outcome for s in steps if s.outcome}))
            life.tell("spent", bool([s for s in steps if s.spent]))
            kept = [w.artifact is not None for s in steps for w in s.writes if w.name == "y" and w.size]
            life.tell("aside", any(kept))
            life.tell("log", len(host.channel(RUN).get("log", [])) > 0)

    def _answer(self, host: Host, result: RunResult) -> RunResult:
        for opened in host.waits(RUN):
            if opened.kind == "timer":
                due = opened.due_at or self.clock.now()
                self.clock.advance(max(due - self.clock.now(), timedelta(0)))
                host.waiting.fire(opened.id)
                continue
            self._life.tell("asked", opened.kind)
            if opened.kind == "signal":
                host.send(RUN, "sent", 8)
            elif opened.kind == "event":
                host.publish("happened", {"about": 5})
            elif opened.kind == "settle":
                host.waiting.settle(RUN, opened.node, done="low" if self._is_gate else 8)
            else:
                said = self._said(opened)
                host.answer(opened.id, said, by=voter_of(opened, said))
        return host.resume(RUN, self._flow)

    @property
    def _is_gate(self) -> bool:
        return any(n.name == "low" for _, n in deep_nodes(self._flow.plan))

    def _said(self, opened: WaitInfo) -> Any:
        said = {"approval": {"approved": True}, "yes_no": True, "choice": "a", "callback": 8, "text": "a"}
        if opened.kind == "text" and "integer" in repr(opened.schema):
            return 5
        return said.get(opened.kind, "low" if self._is_gate else 8)


def seen_in(place: Place, sample: Sample, mode: str, kill: str | None) -> Counter[Any]:
    """Return what was seen of a run with the part in this place, without the order."""
    life = Life()
    flow, inputs = flow_in(place, sample, life, mode)
    World(life, flow, inputs, hears=sample.hears).live(kill)
    return Counter(map(repr, life.seen))
