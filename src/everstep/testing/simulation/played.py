"""A flow as it is played in a simulated world: effects are doubles, and every call of a node is a point."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial, wraps
from inspect import isasyncgenfunction, isawaitable, iscoroutinefunction
from types import FrameType, GeneratorType
from typing import Any, Final

import msgspec

from everstep.engine.scope import Scope
from everstep.errors import BadRequest
from everstep.graph.author.context import Leave, Says
from everstep.graph.author.flow import Flow
from everstep.graph.author.node import Node
from everstep.graph.author.subflow import Subflow
from everstep.graph.compile.plan import Plan
from everstep.model.address import plain_of
from everstep.model.records import RESULT, UNDOING, visit_path
from everstep.runtime.drive.invoke import DOORS, Call
from everstep.runtime.drive.units.calls import Asked, is_async
from everstep.testing.simulation.faults import Fault
from everstep.testing.simulation.hub import SECOND, current_thread
from everstep.testing.simulation.ledger import Body, Spent
from everstep.testing.simulation.process import SimProcess

POSSIBLE = (Fault.CRASH, Fault.STALL, Fault.SLOW, Fault.POWER_CUT)
AFTERWARDS = (Fault.CRASH, Fault.STALL, Fault.POWER_CUT)
SLOW = 50 * SECOND
"""Seconds that a node takes that is slow: longer than any lease it has."""
WORK = 100
"""Microseconds that a node takes otherwise."""
LONGEST = 400
"""How much of what a node is given is shown; all of it is compared."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class _Itself:
    def __repr__(self) -> str:
        return "ITSELF"


ITSELF: Final = _Itself()
"""Stands among doubles for a node whose own function does nothing to the world."""


class VisitDouble:
    """Gives what each visit of a node gave in a recorded run."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._given: dict[tuple[str, int], Any] = {}

    def add(self, path: str, visit: int, value: Any) -> None:
        """Say what a visit gives."""
        self._given[path, visit] = value

    def at(self, path: str, visit: int) -> Any:
        """Return what a visit gives; raises if the run has no record of it."""
        if (path, visit) not in self._given:
            raise BadRequest(
                f"run {self._run_id!r} has no record of what {path} gave at visit {visit}, and a simulation "
                "makes no effect for real.",
                fix=f"Give a double for it: doubles={{{plain_of(path)!r}: ...}}.",
            )
        return copy.deepcopy(self._given[path, visit])


OfCall = Callable[[str, str], Any]
"""Finds what stands in for a durable call, by the path of its node and its own name."""
Doubles = Mapping[str, Any] | _Itself
"""What stands in for the effects of a flow, by name or path: a function, or what it returns."""


def played(flow: Flow, doubles: Doubles | None = None) -> Flow:
    """Return the same flow with doubles in place of effects. Raises for effects that have none."""
    return _Cast(flow, {} if doubles is None else doubles).flow()


class _Cast:
    def __init__(self, flow: Flow, doubles: Doubles) -> None:
        self._flow = flow
        self._doubles = doubles
        self._used: set[str] = set()
        self._missing: list[str] = []
        self._effects: list[str] = []

    def flow(self) -> Flow:
        twin = copy.copy(self._flow)
        twin.plan = self._plan(self._flow.plan, "")
        twin.nodes = twin.plan.nodes
        twin.plays_undo = self._undo_of_call
        if self._missing:
            names = ", ".join(map(repr, self._missing))
            raise BadRequest(
                f"flow {self._flow.name!r} makes effects at {names}, and a simulation makes none for real.",
                fix=f"Say what stands in for them: doubles={{{self._missing[0]!r}: lambda **inputs: ...}}.",
            )
        doubles = {} if isinstance(self._doubles, _Itself) else self._doubles
        unknown = [
            name
            for name, double in doubles.items()
            if name not in self._used
            and not isinstance(double, VisitDouble)
            and RESULT not in name  # of a durable call, which only the node knows
        ]
        if unknown:
            raise BadRequest(
                f"flow {self._flow.name!r} has no node {unknown[0]!r} to double.",
                fix=f"Its effects are at {', '.join(self._effects) or 'none'}.",
            )
        return twin

    def _plan(self, plan: Plan, prefix: str) -> Plan:
        twin = copy.copy(plan)
        twin.nodes = tuple(self._node(node, prefix + node.name) for node in plan.nodes)
        twin.children = {
            i: msgspec.structs.replace(
                child, plan=self._plan(child.plan, prefix if child.is_leaf else f"{prefix}{plan.paths[i]}/")
            )
            for i, child in plan.children.items()
        }
        return twin

    def _node(self, node: Node, path: str) -> Node:
        undo = None if node.undo is None else self._node(node.undo, f"{path}/{UNDOING}")
        if isinstance(node, Subflow) or node.is_built_in:
            return node if undo is None else node._copy(undo=undo)
        is_effect = node.acts_in_call
        if is_effect and path not in self._effects:
            self._effects.append(path)
        fn: Callable[..., Any] = node.fn
        double = self._double(node, path)
        if double is None and is_effect:
            self._missing.append(path)
        elif isinstance(double, VisitDouble):
            fn = _visiting(double) if is_effect else fn  # of a recorded run only the effects are taken
        elif double is not None and double is not ITSELF:
            fn = double if callable(double) else _returning(double)
            if iscoroutinefunction(fn) and not node.is_async:
                raise BadRequest(
                    f"the double of {path!r} is async, and the node is not.", fix="Give it a plain function."
                )
        play = (_play_async if node.is_async else _play)(fn, is_effect, self._of_call)
        return node._copy(fn=wraps(node.fn)(play), undo=undo)

    def _of_call(self, path: str, name: str) -> Any:
        """Return what stands in for a durable call, as `search` or `agent/$search`, if anything does."""
        if isinstance(self._doubles, _Itself):
            return ITSELF
        plain = name.partition("=")[0]
        for known in (f"{plain_of(path)}/{plain}", plain, plain.removeprefix(RESULT)):
            if known in self._doubles:
                return self._doubles[known]
        return None

    def _undo_of_call(self, path: str, undo: Node) -> Node:
        """Return what stands in for what undoes a durable call, as `agent/$book/!undo` or `$book/!undo`."""
        plain = plain_of(path).partition("=")[0]
        names = [f"{name}/{UNDOING}" for name in (plain, plain.rpartition("/")[2])]
        double: Any = ITSELF
        if not isinstance(self._doubles, _Itself):
            double = next((self._doubles[name] for name in names if name in self._doubles), None)
        if double is None:
            error = BadRequest(
                f"step {plain!r} is undone by {undo.name!r}, and a simulation makes no effect for real.",
                fix=f"Say what stands in for it: doubles={{{names[1]!r}: lambda **given: ...}}.",
            )
            thread = current_thread()
            if thread is not None and isinstance(thread.owner, SimProcess):
                thread.owner.was_misused(error)
            raise error
        fn: Callable[..., Any] = undo.fn
        if isinstance(double, VisitDouble):
            fn = _visiting(double)
        elif double is not ITSELF:
            fn = double if callable(double) else _returning(double)
        play = (_play_async if undo.is_async else _play)(fn, True, self._of_call)
        return undo._copy(fn=wraps(undo.fn)(play))

    def _double(self, node: Node, path: str) -> Any:
        if isinstance(self._doubles, _Itself):
            return ITSELF
        for name in (path, node.name):
            if name in self._doubles:
                self._used.add(name)
                return self._doubles[name]
        return None


def _returning(value: Any) -> Callable[..., Any]:
    def double(**_: Any) -> Any:
        return copy.deepcopy(value)

    return double


def _visiting(double: VisitDouble) -> Callable[..., Any]:
    def visit(**_: Any) -> Any:
        call, thread = _call_of(sys._getframe(1)), current_thread()
        try:
            return double.at(call.path, call.visit)
        except BadRequest as error:
            if thread is not None and isinstance(thread.owner, SimProcess):
                thread.owner.was_misused(error)  # the run may tolerate it; the simulation does not
            raise

    return visit


def _call_of(frame: FrameType | None) -> Call:
    """Return the call that is made further down a stack."""
    while frame is not None and frame.f_code not in DOORS:
        frame = frame.f_back
    assert frame is not None, "only a flow calls its nodes"
    call: Call = frame.f_locals["call"]
    return call


def _play(fn: Callable[..., Any], is_effect: bool, of_call: OfCall) -> Callable[..., Any]:
    def play(**given: Any) -> Any:
        scene = _Scene.of(sys._getframe(1), given, is_effect, of_call)
        if scene is None:
            return fn(**given)
        if scene.begin():
            scene.wait(SLOW)
        scene.wait(WORK)
        try:
            returned = fn(**given)
        except Exception as error:
            scene.fail(error)
            raise
        except Leave:
            scene.end(is_left=True)
            raise
        if type(returned) is GeneratorType:
            return _stream(scene, returned)
        scene.end()
        return returned

    return play


def _stream(scene: _Scene, chunks: Iterator[Any]) -> Iterator[Any]:
    for chunk in chunks:
        yield chunk
        scene.reach("chunk", POSSIBLE)
    scene.end()


def _play_async(fn: Callable[..., Any], is_effect: bool, of_call: OfCall) -> Callable[..., Any]:
    def play(**given: Any) -> Any:
        scene = _Scene.of(sys._getframe(1), given, is_effect, of_call)
        if scene is None:
            return fn(**given)
        act = partial(fn, **given)
        return _stream_async(scene, act) if isasyncgenfunction(fn) else _awaited(scene, act)

    return play


async def _awaited(scene: _Scene, act: Callable[[], Any]) -> Any:
    await asyncio.sleep((SLOW if scene.begin() else WORK) / SECOND)
    try:
        returned = act()
        found = await returned if isawaitable(returned) else returned
    except Exception as error:
        scene.fail(error)
        raise
    except Leave:
        scene.end(is_left=True)
        raise
    scene.end()
    return found


async def _stream_async(scene: _Scene, act: Callable[[], AsyncIterator[Any]]) -> AsyncIterator[Any]:
    await asyncio.sleep((SLOW if scene.begin() else WORK) / SECOND)
    async for chunk in act():
        yield chunk
        scene.reach("chunk", POSSIBLE)
    scene.end()


class _Scene:
    """One call of a node, or of a durable call inside it, in a simulated world."""

    __slots__ = (
        *("_body", "_call", "_given", "_is_effect", "_key", "_number", "_of_call", "_path", "_process"),
        *("_visit", "_world"),
    )

    def __init__(
        self, process: SimProcess, call: Call, given: dict[str, Any], is_effect: bool, of_call: OfCall
    ) -> None:
        self._process = process
        self._world = process.world
        self._call = call
        self._given = given
        self._is_effect = is_effect
        self._of_call = of_call
        self._number = 0
        self._body: Body | None = None
        self._path, self._visit = call.path, call.visit
        self._key = call.context.idempotency_key if call.context is not None else call.key

    @classmethod
    def of(cls, frame: FrameType, given: dict[str, Any], is_effect: bool, of_call: OfCall) -> _Scene | None:
        """Return the call that a frame of the runtime makes; none outside of a world."""
        thread = current_thread() if frame.f_code in DOORS else None
        if thread is None:
            return None
        owner = thread.owner
        assert isinstance(owner, SimProcess)
        return cls(owner, frame.f_locals["call"], given, is_effect, of_call)

    def inside(self, units: Any, unit: Asked) -> Callable[..., Any]:
        """Return what plays a durable call of the node."""
        double = self._of_call(self._call.path, unit.name)
        if double is None and unit.options.is_effect:
            said = f"node {self._call.path!r} makes an effect in step {unit.label[1:]!r}"
            error = BadRequest(
                f"{said}, and a simulation makes none for real.",
                fix=f"Say what stands in for it: doubles={{{unit.name!r}: lambda *given: ...}}.",
            )
            self._process.was_misused(error)
            raise error
        fn = unit.fn if double is None or double is ITSELF else double
        if not callable(fn):
            fn = _giving(fn)
        given = {**{str(i): value for i, value in enumerate(unit.args)}, **unit.kwargs}
        scene = _Scene(self._process, self._call, given, unit.options.is_effect, self._of_call)
        scene._path = f"{visit_path(self._call.path, self._call.visit)}/{unit.name}"
        scene._visit, scene._key = unit.occurrence, units.key_of(unit.label)
        if is_async(unit.fn):
            return lambda *args, **kwargs: _awaited(scene, partial(fn, *args, **kwargs))
        return lambda *args, **kwargs: scene.play(partial(fn, *args, **kwargs))

    def play(self, act: Callable[[], Any]) -> Any:
        """Make a sync call."""
        if self.begin():
            self.wait(SLOW)
        self.wait(WORK)
        try:
            returned = act()
        except Exception as error:
            self.fail(error)
            raise
        self.end()
        return returned

    def begin(self) -> bool:
        """Come to the beginning of the call; true if it is to take long."""
        call, process, world = self._call, self._process, self._world
        path = self._path
        self._number = process.count(f"body {path}")
        is_slow = world.reach(process, f"before body {path} {self._number}", POSSIBLE) is Fault.SLOW
        run_id = self._run_id()
        owner = world.owner_of(run_id, process) if self._is_effect else None
        run = world.ledger.driven.get((process.tag, run_id))
        journal = None if run is None else run.journal
        epoch = 0 if journal is None or journal.lease is None else journal.lease.epoch
        self._body = Body(
            order=world.ledger.tick(),
            tag=process.tag,
            run_id=run_id,
            path=path,
            visit=self._visit,
            attempt=call.attempt,
            key=self._key,
            given=shown(self._given, call.node.context_param) if self._is_effect else "",
            is_effect=self._is_effect,
            is_sure=process.is_sure_of(run_id, epoch),
            owner=owner,
            beside=world.ledger.who_is_at((run_id, path, self._visit), process) if self._is_effect else None,
            behind=_behind(call),
            epoch=epoch,
            endures=journal is not None and journal.endures,
        )
        world.ledger.note_body(process, self._body)
        self._listen()
        return is_slow

    def _listen(self) -> None:
        """Hear of what the node spends, and of its durable calls."""
        context = self._call.context
        if context is not None and context._says is not None and not isinstance(context._says, _Heard):
            context._says = _Heard(context._says, self, context.run_id)

    def _run_id(self) -> str:
        root: Scope = self._call.scope
        while root.parent is not None:
            root = root.parent
        for host in self._process.hosts:
            for drive in host._services.driving:
                if drive._run.state is root:
                    run_id: str = drive._run.run_id
                    self._world.ledger.driven[self._process.tag, run_id] = drive._run
                    return run_id
        context = self._call.context
        return context.run_id if context is not None else "?"

    def wait(self, micros: int) -> None:
        self._world.hub.pass_time(micros)

    def reach(self, what: str, possible: tuple[Fault, ...]) -> None:
        process, path = self._process, self._call.path
        self._world.reach(process, f"after {what} {path} {process.count(f'{what} {path}')}", possible)

    def fail(self, error: Exception) -> None:
        """Come to the end of a call that raises."""
        said = f"{type(error).__name__}: {error}"
        self._world.ledger.tell(f"{self._call.path} in {self._process.tag} raises {said[:200]}")
        self.end()

    def end(self, *, is_left: bool = False) -> None:
        """Come to the end of the call."""
        assert self._body is not None
        self._world.ledger.note_ended(self._body, is_left=is_left)
        self._world.reach(self._process, f"after body {self._body.path} {self._number}", AFTERWARDS)


class _Heard:
    """What a node speaks through, in a world that listens."""

    def __init__(self, says: Says, scene: _Scene, run_id: str) -> None:
        self._says = says
        self._scene = scene
        self._ledger = scene._world.ledger
        self._run_id = run_id

    @property
    def units(self) -> Any:
        found = self._says.units
        found.plays = partial(self._scene.inside, found)
        return found

    def spend(self, amounts: dict[str, Any]) -> Any:
        ledger = self._ledger
        ledger.spends.append(Spent(self._run_id, dict(amounts), is_counted=False))
        spent = self._says.spend(amounts)
        note = partial(ledger.spends.append, Spent(self._run_id, dict(amounts), is_counted=True))
        if isinstance(spent._written, asyncio.Future):  # it counts once that is over
            spent._written.add_done_callback(lambda done: note() if _is_well(done) else None)
        else:
            note()
        return spent


def _giving(value: Any) -> Callable[..., Any]:
    def double(*_: Any, **__: Any) -> Any:
        return copy.deepcopy(value)

    return double


def _behind(call: Call) -> tuple[tuple[str, int], ...]:
    """Return the visits whose values a call was given, of plain nodes and atomic flows."""
    scope, plan = call.scope, call.scope.plan
    if scope.is_hidden:
        return ()  # nothing is kept inside
    return tuple(
        (scope.path_of(w), scope.visits[w])
        for name in call.reads
        for w in plan.writers.get(name, ())
        if scope.visits[w] and (w not in plan.children or plan.children[w].is_atomic)
    )


def _is_well(done: asyncio.Future[None]) -> bool:
    return not done.cancelled() and done.exception() is None


def shown(given: dict[str, Any], leave_out: str | None) -> str:
    """Return what a node is given as text, which is the same under any hash seed."""
    text = ", ".join(f"{name}={_plain(value)}" for name, value in given.items() if name != leave_out)
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}… ({hashlib.sha256(text.encode()).hexdigest()[:16]})"


def _plain(value: Any) -> str:
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(map(_plain, value))) + "}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_plain(k)}: {_plain(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}({', '.join(map(_plain, value))})"
    if isinstance(value, msgspec.Struct):
        return (
            f"{type(value).__name__}({', '.join(_plain(getattr(value, n)) for n in value.__struct_fields__)})"
        )
    if is_dataclass(value) and not isinstance(value, type):
        return f"{type(value).__name__}({', '.join(_plain(getattr(value, f.name)) for f in fields(value))})"
    return _ADDRESS.sub("", repr(value))
