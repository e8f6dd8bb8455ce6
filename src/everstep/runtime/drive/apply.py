"""The values of flows inside flows: what goes in when one is opened, what comes out when it ends.

`apply` takes one step into account. A live run and the fold of its records call it alike, so that they cannot
come to different values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import msgspec

from everstep.engine.fold import take
from everstep.engine.scope import OpenedVisit, Scope
from everstep.engine.state import RunState
from everstep.errors import EverstepError, LiftError, MapInputError, StateCorrupted
from everstep.graph.author.node import MapSpec
from everstep.graph.compile.plan import Child
from everstep.model.enums import OnError, Status, ValueForm
from everstep.model.items import ItemError
from everstep.model.records import (
    DEADLINE,
    FORK,
    RESULT,
    START,
    STREAM,
    UNDO,
    UNDOING,
    UNIT,
    WAIT,
    QueuedTask,
    StepRecord,
    StreamAt,
    Written,
    visit_path,
)
from everstep.on_demand import on_demand
from everstep.runtime.drive.values import Slot, ValueSpace, slot_of, split_name

if TYPE_CHECKING:
    from everstep.engine.forks import fork
    from everstep.engine.undo.stack import Undoing
else:
    Undoing = on_demand("everstep.engine.undo.stack:Undoing")
    fork = on_demand("everstep.engine.forks:fork")


TASK = "@task/"
"""What the names of a queued task's arguments begin with."""


def apply(state: RunState, space: ValueSpace, step: StepRecord, slots: Sequence[Slot]) -> None:
    """Take a step and the values it wrote into account."""
    if step.spent is not None or step.guards is not None:
        state.books.take(step)
    if step.undo is not None and step.path[0] != "@":
        _undo_of(state).note(step)
    elif state.undo is not None and step.path.endswith(UNDOING):
        _apply_undo(state, space, step, slots)
        return
    plan = state.plan
    i = plan.index.get(step.path)
    if i is not None and i not in plan.children:
        for slot in slots:
            space.accept(state, slot)
        if step.task is not None and step.status is Status.COMPLETED:
            space.drop(f"{TASK}{step.task}/")
        if step.ends:
            _drop_tasks(space, state, step.queued)
        at = state.streams.get(i) if state.streams else None
        units = units_prefix(state, i) if state.units and i in state.units else None
        take(state, i, step)
        if at is not None:
            _follow_stream(state, space, i, at)
        if units is not None:
            _follow_units(state, space, i, units)
        if step.status is Status.COMPLETED and not step.queued:
            state.total += 1
        else:
            state.count(step)
        if space.under_way and step.ends:
            drop_over(state, space)
        if state.waits or step.wait is not None:
            _follow_wait(state, space, i, step)
        return
    if step.path[0] == "@":
        for slot in slots:
            space.accept(state, slot)
        if step.path == FORK:
            _drop_requests(space, state.waits)
            for scope, i in state.places_of(tuple(step.again or ())):
                if i in scope.opened:
                    _give_up_visit(space, scope, i)
            fork(state, step)
            if space.under_way:
                drop_over(state, space)
            return
        gone = len(state.gone)
        if step.path in _ELSEWHERE or (step.path == DEADLINE and step.status is Status.FAILED):
            _go_elsewhere(state, space, step)
        else:
            state.evolve(step)
        _drop_requests(space, state.gone[gone:])
        return
    if "/$" in step.path and (place := state.locate_unit(step.path)) is not None:
        for slot in slots:
            if slot.written.name == RESULT:  # what its undo is given is read when it is undone
                space.place("", step.whole_name(RESULT), slot)
        gone = len(state.gone)
        state.evolve_unit(*place, step)
        if len(state.gone) > gone:
            _drop_requests(space, state.gone[gone:])
        return
    gone = len(state.gone)
    _apply_inside(state, space, step, slots)
    if len(state.gone) > gone:
        _drop_requests(space, state.gone[gone:])
    if space.under_way and (step.ends or step.status in (Status.FAILED, Status.CANCELLED)):
        drop_over(state, space)


def _undo_of(state: RunState) -> Undoing:
    """Return what a run has to undo."""
    if state.undo is None:
        state.undo = Undoing()
    return state.undo


_ELSEWHERE = (START, UNDO)
"""Marks with which a run goes on elsewhere than it stood."""


def _go_elsewhere(state: RunState, space: ValueSpace, step: StepRecord) -> None:
    """Begin a flow of the run anew at a node, begin to undo, or end as the deadline has come.

    Nothing of a run that undoes goes forward any more, and nothing that it waits for is wanted; of one whose
    time is over neither, until it is reopened and asks once more.
    """
    if step.path == UNDO:
        state.gone += state.waits
        state.forget_times()
        state.reopen()
        state.ask_again()
        _undo_of(state).begin(step)
    elif step.path == DEADLINE:
        state.gone += state.waits
        state.ask_again()
        state.evolve(step)
    else:
        for scope, _ in state.places_of(step.decision or ()):
            _give_up(space, scope)
        state.evolve(step)
    if space.under_way:
        drop_over(state, space)


def _apply_undo(state: RunState, space: ValueSpace, step: StepRecord, slots: Sequence[Slot]) -> None:
    """Take a step that undoes another into account."""
    scope = state.locate(step.path)[0]
    for slot in slots:
        space.accept(scope, slot)
    units = units_prefix(scope, 0) if 0 in scope.units else None
    gone = len(state.gone)
    assert state.undo is not None
    take(scope, 0, step)
    state.count(step)
    state.follow_wait(scope, 0, step)
    state.undo.after(step)
    if units is not None:
        _follow_units(scope, space, 0, units)
    _drop_requests(space, state.gone[gone:])


def _follow_stream(scope: Scope, space: ValueSpace, i: int, at: StreamAt) -> None:
    """Forget the chunks of a stream that has ended, or was begun anew."""
    now = scope.streams.get(i)
    if now is None or now.stream_id != at.stream_id:
        space.drop(f"{STREAM}{at.stream_id}/")


def units_prefix(scope: Scope, i: int) -> str:
    """Return what the names of the results begin with that a visit under way has of its durable calls."""
    return f"{UNIT}{visit_path(scope.path_of(i), scope.visits[i] + 1)}/"


def _follow_units(scope: Scope, space: ValueSpace, i: int, prefix: str) -> None:
    """Forget the results of calls that are to be made again, or of all if their visit is over."""
    units, area = scope.units.get(i), space.areas.get(prefix)
    if units is None or not units.at:
        space.drop(prefix)
    elif area is not None and len(area) > len(units.at):
        for name in [name for name in area if name not in units.at]:
            space.remove(prefix, name)


def drop_over(state: RunState, space: ValueSpace) -> None:
    """Forget what streams have given, and durable calls, in visits that are not taken up again."""
    going_on = {f"{STREAM}{at.stream_id}/" for scope in state.scopes() for at in scope.streams.values()}
    # A visit that has failed is counted already, and is the same one if the run is reopened.
    going_on |= {
        f"{UNIT}{visit_path(scope.path_of(i), scope.visits[i] + (scope.statuses[i] is not Status.FAILED))}/"
        for scope in state.scopes()
        for i in scope.units
    }
    for prefix in space.under_way - going_on:
        space.drop(prefix)


def _follow_wait(state: RunState, space: ValueSpace, i: int, step: StepRecord) -> None:
    gone = len(state.gone)
    state.follow_wait(state, i, step)
    _drop_requests(space, state.gone[gone:])


def _drop_requests(space: ValueSpace, waits: Iterable[str]) -> None:
    for wait_id in waits:
        space.drop(f"{WAIT}{wait_id}/")


def _apply_inside(state: RunState, space: ValueSpace, step: StepRecord, slots: Sequence[Slot]) -> None:
    """Take a step of a flow inside the run into account, or one that opens or ends such a flow."""
    scope, i, item = state.locate(step.path)
    if item is not None:
        if step.status is Status.RUNNING:
            state.evolve_at(scope, i, item, step)
        else:
            _end_item(state, space, step, slots, scope, i, item)
        return
    if any(_adds_to_nothing(space, scope, slot.written) for slot in slots):
        _fill_item(space, scope)  # it adds to what the item began with, which no step has written
    for slot in slots:
        space.accept(scope, slot)
    if step.task is not None and step.status is Status.COMPLETED:
        space.drop(f"{TASK}{step.task}/")
    if step.ends:
        _drop_tasks(space, scope, step.queued)
    visit, at = scope.opened.get(i), scope.streams.get(i)
    units = units_prefix(scope, i) if i in scope.units else None
    state.evolve_at(scope, i, None, step)
    if at is not None:
        _follow_stream(scope, space, i, at)
    if units is not None:
        _follow_units(scope, space, i, units)
    if i in scope.plan.children:
        if step.status is Status.RUNNING:
            if step.undo is None:
                _fill(space, scope, i)
        elif i not in scope.opened and step.status is not Status.RETRYING:
            # The opening of an atomic flow is not recorded; what it gave is shown all the same.
            _leave(space, scope, i, visit or scope.visit_of(i, step))
    parent = scope.parent
    if parent is not None and parent.plan.children[scope.place].is_leaf:
        outer = parent.opened[scope.place]
        if scope.item not in outer.scopes:
            _tidy(space, parent.plan.children[scope.place], scope.prefix)
            if step.status is Status.FAILED:
                _note_error(space, scope.prefix, scope.item, step)


def _drop_tasks(space: ValueSpace, scope: Scope, queued: Sequence[QueuedTask]) -> None:
    for waiting in (queued, *scope.queue.values()):
        for task in waiting:
            space.drop(f"{TASK}{task.number}/")


def _give_up(space: ValueSpace, scope: Scope) -> None:
    """Forget what lies in the visits that are open, and what queued tasks would have been called with."""
    _drop_tasks(space, scope, ())
    for i in scope.opened:
        _give_up_visit(space, scope, i)


def _give_up_visit(space: ValueSpace, scope: Scope, i: int) -> None:
    visit = scope.opened[i]
    for inside in visit.scopes.values():
        _give_up(space, inside)
    for prefix in {f"{visit.base}/", *map(visit.prefix_of, range(visit.count))}:
        space.drop(prefix)
        drop_inside(space, scope.plan.children[i], prefix)
    space.lists.pop(f"{visit.base}/", None)


def loaded(
    state: RunState, space: ValueSpace, step: StepRecord, written: Written, payload: bytes | None
) -> Slot:
    """Return the slot of a write as it is read from a record. Version 0 is the next one."""
    if written.version == 0:
        prefix, name = split_name(written.name)
        known = space.areas.get(prefix, {}).get(name)
        version = 1 if known is None else known.written.version + 1
        return slot_of(msgspec.structs.replace(written, version=version), payload)
    if written.form is not ValueForm.LIFTED:
        return slot_of(written, payload)
    scope, i, _ = state.locate(step.path)
    return _lifted(space, scope, i, written.source, written)


def _end_item(
    state: RunState,
    space: ValueSpace,
    step: StepRecord,
    slots: Sequence[Slot],
    scope: Scope,
    i: int,
    item: int,
) -> None:
    visit, child = scope.opened[i], scope.plan.children[i]
    prefix = visit.prefix_of(item)
    if child.is_atomic:
        space.drop(prefix)
        drop_inside(space, child, prefix)
        if scope.is_hidden:
            space.hidden.add(prefix)
    for slot in slots:
        space.place(prefix, slot.written.name, slot)
    state.evolve_at(scope, i, item, step)
    if item not in visit.scopes:
        _tidy(space, child, prefix)
        if step.status is Status.FAILED:
            _note_error(space, prefix, item, step)


def _tidy(space: ValueSpace, child: Child, prefix: str) -> None:
    """Keep of an item that has ended only what is wanted of it."""
    area = space.areas.get(prefix)
    for name in (
        () if area is None else [n for n in area if n not in child.exports and n not in child.selected]
    ):
        space.remove(prefix, name)
    drop_inside(space, child, prefix)


# -- going in ---------------------------------------------------------------------------------------------


def _adds_to_nothing(space: ValueSpace, scope: Scope, written: Written) -> bool:
    is_own = written.form is ValueForm.APPEND and written.name[0] != "@"
    return is_own and written.name not in space.areas.get(scope.prefix, ())


def _fill_item(space: ValueSpace, scope: Scope) -> None:
    """Give an item what it begins with: a fold comes to one without anybody having opened it."""
    if scope.parent is not None:
        Lists(space).fill(scope)


def _fill(space: ValueSpace, scope: Scope, i: int) -> None:
    """Hand the inputs of a visit over, as they are when it opens."""
    _fill_item(space, scope)
    visit, around = scope.opened[i], space.area(scope.prefix)
    prefix = f"{visit.base}/"
    inside = space.area(prefix)
    brought = space.areas.get(f"{TASK}{visit.task}/", {}) if visit.task is not None else {}
    for p in scope.plan.nodes[i].params:
        if p.name in brought or (p.source in visit.reads and p.source in around):
            old = brought.get(p.name) or around[p.source]
            form = ValueForm.TRANSIENT if old.is_transient else ValueForm.WHOLE
            written = Written(p.name, 1, old.written.digest, old.written.size, form)
            slot = old.alias(written, moves_live=p.source in scope.plan.sole_reader and not brought)
            space.size += slot.cost
            inside[p.name] = slot
    if scope.is_hidden or (scope.plan.children[i].is_atomic and not visit.is_map):
        space.hidden.add(prefix)


class Lists:
    """What the open maps of a run go over, decoded once."""

    def __init__(self, space: ValueSpace) -> None:
        self._space = space
        self._known = space.lists

    def count(self, scope: Scope, i: int) -> int | None:
        """Return over how many items a node is about to go; none if it is no map."""
        over = scope.plan.children[i].over
        if over is None:
            return None
        node, space = scope.plan.nodes[i], self._space
        sources = {p.name: p.source for p in node.params}
        sizes: dict[str, int] = {}
        task = scope.task_of(i)
        for name in over.params:
            if task is not None and name in task.arguments:
                value = space.peek(name, f"{TASK}{task.number}/")
            else:
                value = space.peek(sources[name], scope.prefix)
            if not isinstance(value, (list, tuple)):
                raise MapInputError(
                    f"{scope.path_of(i)!r} goes over {sources[name]!r}, which is {type(value).__name__}.",
                    fix="Give a list, or drop it from map_over(...).",
                )
            sizes[sources[name]] = len(value)
        if over.mode == "product":
            return prod(sizes.values())
        if len(set(sizes.values())) > 1:
            told = ", ".join(f"{name} has {size}" for name, size in sizes.items())
            raise MapInputError(
                f"{scope.path_of(i)!r} goes over lists of different lengths: {told}.",
                fix='Make them equally long, or combine each with each: map_over(..., mode="product").',
            )
        return next(iter(sizes.values()))

    def read(self, scope: Scope, i: int) -> None:
        """Read what an open map goes over, so that no item that is opened from here on has to."""
        visit, over = scope.opened[i], scope.plan.children[i].over
        assert over is not None
        base = f"{visit.base}/"
        if base not in self._known:
            self._known[base] = tuple(self._space.peek(name, base) for name in over.params)

    def fill(self, scope: Scope) -> None:
        """Give an item of a map its inputs, unless it has them."""
        try:
            self._fill(scope)
        except (LookupError, TypeError, ZeroDivisionError) as error:
            # A map was opened over lists that hold the items; only other records than those say otherwise.
            said = f"item {scope.prefix[:-1]!r} is not in what its map goes over: {error!r}."
            raise StateCorrupted(said) from error

    def _fill(self, scope: Scope) -> None:
        parent = scope.parent
        assert parent is not None
        i, space = scope.place, self._space
        visit, over = parent.opened[i], parent.plan.children[i].over
        if over is None or not visit.is_map:
            return
        inside, base = space.area(scope.prefix), f"{visit.base}/"
        lists = self._known.get(base)
        if lists is None:
            lists = self._known[base] = tuple(space.peek(name, base) for name in over.params)
        position = _position(scope.item, [len(items) for items in lists], over.mode)
        for name, slot in space.areas[base].items():
            if name in inside or name not in scope.versions:
                continue
            if name in over.params:
                k = over.params.index(name)
                given = lists[k][position[k]]
                own = (
                    space.unkept(name, 1, given)
                    if scope.is_hidden or not space.keeps
                    else space.encoded(name, given)
                )
            else:
                own = slot.alias(slot.written, moves_live=False)
            inside[name] = own
            space.size += own.cost
        if scope.is_hidden:
            space.hidden.add(scope.prefix)

    def forget(self, visit: OpenedVisit) -> None:
        """A map has ended."""
        self._known.pop(f"{visit.base}/", None)


def _position(item: int, sizes: Sequence[int], mode: str) -> list[int]:
    if mode == "zip":
        return [item] * len(sizes)
    position = []
    for size in reversed(sizes):
        item, k = divmod(item, size)
        position.append(k)
    return position[::-1]


# -- coming out -------------------------------------------------------------------------------------------


def lift(space: ValueSpace, scope: Scope, i: int) -> tuple[Slot, ...]:
    """Return what an inner flow gives to the flow around it, to be recorded with the end of its visit."""
    child, visit = scope.plan.children[i], scope.opened[i]
    slots = []
    for inner, outer in child.exports.items():
        absent = _absent(space, visit, inner)
        if absent:
            if child.must_lift or (visit.is_map and len(absent) < len(visit.done)):
                where = ", ".join(f"item {k}" for k in absent[:3]) if visit.is_map else "it"
                raise LiftError(
                    f"{scope.path_of(i)!r} was to give {inner!r}, but {where} ended without writing it.",
                    fix="Write it on every path of the flow, or leave it out: .lift(...) of the others.",
                )
            continue
        known = space.area(scope.prefix).get(outer)
        version = 1 if known is None else known.written.version + 1
        written = Written(outer, version, b"", 0, ValueForm.LIFTED, None, inner)
        slots.append(_lifted(space, scope, i, inner, written))
    return tuple(slots)


def _absent(space: ValueSpace, visit: OpenedVisit, inner: str) -> list[int]:
    return [k for k in sorted(visit.done) if inner not in space.areas.get(visit.prefix_of(k), {})]


def _lifted(space: ValueSpace, scope: Scope, i: int, inner: str, written: Written) -> Slot:
    child, visit = scope.plan.children[i], scope.opened[i]
    if visit.is_map:
        gathered = _gathered(space, child, visit, inner, written)
        if scope.is_hidden:  # inside an atomic flow there are only objects
            return space.unkept(written.name, written.version, space.read(gathered))
        return gathered
    old = space.areas[visit.prefix_of(0)][inner]
    if old.is_transient:
        written = Written(written.name, written.version, b"", 0, ValueForm.TRANSIENT)
    elif not written.digest:
        written = _measured(written, old.digest(), old.written.size)
    return old.alias(written, moves_live=True)


def _gathered(space: ValueSpace, child: Child, visit: OpenedVisit, inner: str, written: Written) -> Slot:
    """Return the list of what the items wrote, in order."""
    over = child.over
    assert over is not None
    places = [k for k in range(visit.count) if k in visit.done or over.on_error is OnError.COLLECT]
    items = [space.areas[visit.prefix_of(k)][inner if k in visit.done else FAILED_ITEM] for k in places]
    if len(visit.done) < len(places):
        told = [
            item if k in visit.done else _with_input(space, over, visit, k, item)
            for k, item in zip(places, items, strict=True)
        ]
        # Records of 0.1.0 were made without the inputs of failed items; what they say must stay so.
        if not written.digest or _digest_of(told) == written.digest:
            items = told
    if not written.digest:
        written = _measured(written, _digest_of(items), sum(item.written.size for item in items))
    slot = slot_of(written, None)
    slot.items, slot.whole = items, None
    slot.cost = sum(item.cost for item in items)
    return slot


def _digest_of(items: Sequence[Slot]) -> bytes:
    return hashlib.sha256(b"".join(item.digest() for item in items)).digest()


def _with_input(space: ValueSpace, over: MapSpec, visit: OpenedVisit, item: int, slot: Slot) -> Slot:
    """Return what stands in the place of a failed item, with what it was called with, if that can be kept."""
    base = f"{visit.base}/"
    try:
        lists = space.lists.get(base) or tuple(space.peek(name, base) for name in over.params)
        places = _position(item, [len(values) for values in lists], over.mode)
        given = {name: values[k] for name, values, k in zip(over.params, lists, places, strict=True)}
        told: ItemError = space.read(slot)
        value = given if len(given) > 1 else next(iter(given.values()))
        made = space.encoded(FAILED_ITEM, replace(told, input=value))
    except EverstepError:
        return slot
    return made if made.written.size <= _LARGEST_INPUT else slot


_LARGEST_INPUT = 64 * 1024
FAILED_ITEM = "@error"
"""The local name of what stands in the place of a failed item's outputs."""


def _measured(written: Written, digest: bytes, size: int) -> Written:
    return Written(written.name, written.version, digest, size, written.form, None, written.source)


def _note_error(space: ValueSpace, prefix: str, item: int, step: StepRecord) -> None:
    """Put an error in the place of what a failed item would have written."""
    assert step.error is not None
    slot = space.encoded(FAILED_ITEM, ItemError(item, step.error.type, step.error.message))
    space.area(prefix)[FAILED_ITEM] = slot
    space.size += slot.cost


def _leave(space: ValueSpace, scope: Scope, i: int, visit: OpenedVisit) -> None:
    """A visit has ended: keep of it what a result shows, and nothing of the visit before it."""
    child, base = scope.plan.children[i], f"{visit.base}/"
    if scope.statuses[i] is Status.COMPLETED and not child.is_atomic and not scope.is_hidden:
        around = space.area(scope.prefix)
        shown = {
            inner: _shown(space, child, visit, inner, around.get(child.exports.get(inner, "")))
            for inner in sorted(child.selected)
        }
    else:
        around = space.area(scope.prefix)
        shown = {
            inner: around[outer].alias(around[outer].written, moves_live=False)
            for inner, outer in child.exports.items()
            if inner in child.selected and outer in around and scope.statuses[i] is Status.COMPLETED
        }
    for k in range(visit.count) if visit.is_map else (0,):
        prefix = visit.prefix_of(k)
        if prefix != base:
            space.drop(prefix)
            if k in visit.scopes:  # nothing is left inside those that have ended
                drop_inside(space, child, prefix)
    space.drop(base)
    space.lists.pop(base, None)
    if child.is_atomic or scope.is_hidden:
        drop_inside(space, child, base)
    if visit.visit > 1:
        before = scope.prefix + scope.plan.paths[i] + (f"@{visit.visit - 1}" if visit.visit > 2 else "")
        space.drop(f"{before}/")
        drop_inside(space, child, f"{before}/")
    for inner, slot in shown.items():
        if slot is not None:
            space.place(base, inner, _named(slot, inner))
    if scope.is_hidden:
        space.hidden.add(base)


def _named(slot: Slot, name: str) -> Slot:
    written = slot.written
    form = written.form if slot.is_transient or slot.items is not None else ValueForm.WHOLE
    return slot.alias(Written(name, written.version, written.digest, written.size, form), moves_live=False)


def _shown(
    space: ValueSpace, child: Child, visit: OpenedVisit, inner: str, lifted: Slot | None
) -> Slot | None:
    """Return what a result shows of an inner value; the list of a map as it was lifted, if it was."""
    if _absent(space, visit, inner):
        return None
    digest, size = (lifted.written.digest, lifted.written.size) if lifted is not None else (b"", 0)
    written = Written(inner, 1, digest if visit.is_map else b"", size, ValueForm.LIFTED)
    if visit.is_map:
        return _gathered(space, child, visit, inner, written)
    return space.areas[visit.prefix_of(0)].get(inner)


def drop_inside(space: ValueSpace, child: Child, prefix: str) -> None:
    """Forget what was kept of the flows inside a flow that is done with."""
    if child.is_leaf or not child.plan.children:
        return
    for area in [a for a in space.areas if a.startswith(prefix) and a != prefix]:
        space.drop(area)
