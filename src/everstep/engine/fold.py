"""How a scope changes: `take` takes one recorded step into account, and looks at nothing but the step.

A live run and the fold of its records call it alike. The one change that is not part of the fold is
`Scope.begin`: which nodes this process has started, a crash forgets.
"""

from __future__ import annotations

from everstep.engine import meetings
from everstep.engine.scope import OpenUnits, Scope
from everstep.graph.compile.loops import bits
from everstep.model.enums import OnError, Status
from everstep.model.records import QueuedTask, StepRecord, UnitAt, UnitFacts
from everstep.model.waits import SETTLE

_UNDER_WAY = frozenset({Status.RUNNING, Status.RETRYING, Status.HALTED})
"""What a step says of a visit that goes on."""
_COMPLETED, _FAILED = Status.COMPLETED, Status.FAILED
# A member of an enum takes ten times as long to find in its class, and every step comes by here.
_NO_FACTS = UnitFacts()


def take(scope: Scope, i: int, step: StepRecord) -> None:
    """Take one recorded step of a node into account."""
    status = step.status
    if status is not _COMPLETED and status in _UNDER_WAY:
        _take_under_way(scope, i, step)
        return
    reads = step.reads
    scope.visits[i] = step.visit
    scope.statuses[i] = status
    scope.reads[i] = reads
    scope.attempts[i] = 0
    scope.steps += 1
    if step.unknown:
        scope.begun.add(i)
    elif scope.begun:
        scope.begun.discard(i)
    if scope.waiting:
        scope.waiting.pop(i, None)
    if scope.retry_at:
        scope.retry_at.pop(i, None)
    if status is _FAILED:
        if scope.units:
            _forget_units(scope, i, step)
        _fail(scope, i, step)
        return
    scope.running.discard(i)
    if scope.streams:
        scope.streams.pop(i, None)
    if scope.units:
        scope.units.pop(i, None)
    if scope.opened:
        scope.opened.pop(i, None)
    if step.key is not None:
        scope.keys.pop(i, None)
        scope.consumed[i] = step.key
    if status is not _COMPLETED:
        _leave(scope, i, step)
        return
    plan = scope.plan
    round_ = scope.due.pop(i, 0)
    scope.active &= ~(1 << i)
    for written in step.writes:
        if written.name[0] != "@":
            write(scope, written.name, written.version, round_, not step.goto)
    if plan.is_target[i] or step.decision is not None:
        _choose(scope, i, step, round_)
    if not plan.is_target[i]:
        versions = scope.versions
        for name in plan.watched[i]:
            if versions.get(name, 0) > reads.get(name, 0) and not meetings.is_left_out(scope, i, name):
                activate(scope, i, round_)  # what it read is no longer the newest
                break
    if plan.is_wired or scope.queue or step.queued or step.ends:
        _lead_on(scope, i, step, round_)


def _take_under_way(scope: Scope, i: int, step: StepRecord) -> None:
    """Take a step of a visit that goes on: it was announced, failed to be tried again, or waits."""
    if step.status is Status.RUNNING:
        if i in scope.plan.children:
            if step.undo is not None:
                scope.begun.add(i)  # an atomic flow that can be undone: its first effect is about to be made
            else:
                _open(scope, i, step)
        elif step.stream is not None:
            scope.streams[i] = step.stream
        elif step.spent is None:
            scope.keys[i] = step.key or ""
            scope.begun.add(i)
        return
    if step.unknown:
        scope.begun.add(i)
    elif scope.begun:
        scope.begun.discard(i)
    if step.status is Status.HALTED:
        halt(scope, i, step)
        return
    scope.attempts[i] = step.attempts
    scope.statuses[i] = step.status
    if scope.units and step.error is not None:
        _forget_units(scope, i, step)
    _note_retry(scope, i, step)
    scope.running.discard(i)
    scope.waiting.pop(i, None)


def take_unit(scope: Scope, i: int, name: str, step: StepRecord) -> None:
    """Take a durable call of a visit under way into account."""
    units = scope.units.get(i)
    if units is None:
        units = scope.units[i] = OpenUnits()
    if step.wait is not None:  # the answer that the node was left for: it is to be entered again
        scope.waiting.pop(i, None)
        scope.running.discard(i)
        scope.statuses[i] = _COMPLETED if scope.visits[i] else None
    facts = step.unit or _NO_FACTS
    label = f"{name}@{step.visit}"
    if label in units.at:
        del units.at[label]  # they stand in the order in which they ended
    units.at[label] = UnitAt(
        step.status,
        step.attempts,
        facts.arguments,
        facts.is_brief,
        step.error,
        step.retry_at,
        facts.behind,
        facts.asked,
    )


def _forget_units(scope: Scope, i: int, step: StepRecord) -> None:
    """An attempt has failed: the next makes the calls again that failed in it, or all if that is wanted."""
    units = scope.units.get(i)
    if units is None:
        return
    if step.unit is not None and step.unit.is_fresh:
        units.at.clear()
    else:
        units.at = {
            name: unit.of_an_attempt_before()
            for name, unit in units.at.items()
            if (unit.status is _COMPLETED and not unit.is_brief) or unit.status is Status.RUNNING
        }


def admit(scope: Scope, names: dict[str, int]) -> None:
    """Begin with these inputs."""
    # Several entries of one loop begin one after the other: each is a round of its own.
    heads = [i for i in scope.plan.entry if scope.plan.is_entry(i)]
    for round_, i in enumerate(heads):
        (scope.chosen if scope.plan.is_target[i] else scope.arrived)[i] += 1
        activate(scope, i, round_)
    for name, version in names.items():
        write(scope, name, version, 0)
    for i, count in enumerate(scope.missing):
        if count == 0 and not scope.plan.is_target[i] and not scope.plan.is_led[i]:
            activate(scope, i, 0)


def _open(scope: Scope, i: int, step: StepRecord) -> None:
    visit = scope.opened[i] = scope.visit_of(i, step)
    if step.task is not None:
        visit.task = step.task
        visit.given = next((q.arguments for q in scope.queue.get(i, ()) if q.number == step.task), ())
    scope.running.add(i)


def enter(around: Scope, i: int, item: int) -> Scope:
    """Return the scope of one item of an open visit, opened now unless it is."""
    opened, child = around.opened[i], around.plan.children[i]
    scope = opened.scopes.get(item)
    if scope is None:
        scope = Scope(child.plan, parent=around, place=i, item=item, prefix=opened.prefix_of(item))
        opened.scopes[item] = scope
        names = {
            p.name: 1
            for p in around.plan.nodes[i].params
            if p.source in opened.reads or p.name in opened.given
        }
        admit(scope, names)
    return scope


def _fail(scope: Scope, i: int, step: StepRecord) -> None:
    if i in scope.opened:
        if scope.plan.children[i].is_atomic and not scope.opened[i].is_map:
            scope.running.discard(i)
            del scope.opened[i]
    else:
        scope.running.discard(i)
    if meetings.tolerates(scope, i):
        _leave(scope, i, step)
    else:
        scope.error = step.error


def _leave(scope: Scope, i: int, step: StepRecord) -> None:
    """End a visit without output: a tolerated failure, or cancelled."""
    scope.begun.discard(i)
    if step.task is not None:
        _dequeue(scope, i, step.task)
    elif scope.plan.is_target[i] and scope.chosen[i]:
        scope.chosen[i] -= 1
    scope.arrived[i] = 0
    round_ = scope.due.pop(i, 0)
    scope.active &= ~(1 << i)
    scope.running.discard(i)
    scope.opened.pop(i, None)
    scope.streams.pop(i, None)
    scope.units.pop(i, None)
    scope.keys.pop(i, None)
    if scope.chosen[i] or i in scope.queue:
        activate(scope, i, round_)
    _meet(scope, i, round_)


def _choose(scope: Scope, i: int, step: StepRecord, round_: int) -> None:
    """Reach the nodes that a gate chose; a node that was chosen itself has used one choice up."""
    plan = scope.plan
    for target in step.decision or ():
        t = plan.index[target]
        scope.chosen[t] += 1
        activate(scope, t, _round_of_choice(scope, i, t, round_))
    if plan.is_target[i]:
        if step.task is None and scope.chosen[i] > 0:
            scope.chosen[i] -= 1
        if scope.chosen[i] > 0:
            activate(scope, i, _round_of_choice(scope, i, i, round_))


def _lead_on(scope: Scope, i: int, step: StepRecord, round_: int) -> None:
    """Reach the nodes that follow, unless this one asked for others instead."""
    plan = scope.plan
    scope.arrived[i] = 0
    if step.task is not None:
        _dequeue(scope, i, step.task)
    if not step.goto:
        for t in plan.follows.get(i, ()):
            scope.arrived[t] += 1
            # Reached without all its values it waits for them, and fails by name if they cannot come.
            if not plan.is_target[t] and t not in plan.meetings:
                activate(scope, t, round_)
    for task in step.queued:
        enqueue(scope, task, round_)
    if i in scope.queue:
        activate(scope, i, round_)
    if i in plan.meetings:
        meetings.go_on(scope, i)
    _meet(scope, i, round_)
    if step.ends:
        _end(scope)


def _meet(scope: Scope, i: int, round_: int) -> None:
    """Make the joins due that a node which has settled leads to."""
    for j in meetings.met_by(scope, i):
        activate(scope, j, round_)


def enqueue(scope: Scope, task: QueuedTask, round_: int = 0) -> None:
    """Note a visit that was asked for."""
    t = scope.plan.index[task.node]
    waiting = scope.queue.setdefault(t, [])
    waiting.append(task)
    waiting.sort(key=lambda q: (-q.priority, q.number))
    activate(scope, t, round_)


def _dequeue(scope: Scope, i: int, number: int) -> None:
    left = [q for q in scope.queue.get(i, ()) if q.number != number]
    if left:
        scope.queue[i] = left
    else:
        scope.queue.pop(i, None)


def _end(scope: Scope) -> None:
    """Nothing more starts; what runs is still recorded if it ends.

    Which nodes this process runs is not part of the fold, so only inner flows that are open stay due.
    """
    scope.ended = True
    children = scope.plan.children
    scope.due = {
        i: r
        for i, r in scope.due.items()
        if i in scope.opened and (scope.opened[i].is_map or not children[i].is_atomic)
    }
    scope.active = 0
    for i in scope.due:
        scope.active |= 1 << i
    scope.queue.clear()
    scope.running -= scope.waiting.keys()
    scope.waiting.clear()
    scope.streams.clear()
    scope.units.clear()


def _round_of_choice(scope: Scope, gate: int, target: int, round_: int) -> int:
    """A gate that chooses the head of its own loop begins a new round; else the present one goes on.

    Two gates may begin rounds at the same time. Which is the earlier follows from the rounds they are in
    and their places in the flow, never from which of them was quicker.
    """
    members = scope.plan.loops.get(target)
    if members is None or not (members | 1 << target) >> gate & 1:
        return round_
    width = len(scope.visits) + 1
    return (round_ // width + 1) * width + gate


def write(scope: Scope, name: str, version: int, round_: int, wakes: bool = True) -> None:
    """Note a new version of a value, and wake its readers."""
    plan, missing = scope.plan, scope.missing
    if name not in scope.versions:
        for i in plan.needed_by.get(name, ()):
            missing[i] -= 1
            # Behind an early join, it may be the only thing that the node was still waiting for.
            if scope.arrived[i] and wakes and not (missing[i] or plan.is_target[i]):
                activate(scope, i, round_)
    scope.versions[name] = version
    if wakes:
        for i in plan.wakes.get(name, ()):
            if missing[i] or plan.is_target[i]:
                continue
            if not plan.is_led[i] or scope.arrived[i] or scope.visits[i]:
                activate(scope, i, round_)


def _note_retry(scope: Scope, i: int, step: StepRecord) -> None:
    if step.retry_at is not None:
        scope.retry_at[i] = step.retry_at
    if step.key is not None:
        scope.keys[i] = step.key


def activate(scope: Scope, i: int, round_: int) -> None:
    """Make a node due, unless the flow has ended."""
    if scope.ended:
        return
    due = scope.due
    if i not in due:
        due[i] = round_
        scope.active |= 1 << i
    elif round_ < due[i]:
        due[i] = round_


def take_back(scope: Scope, i: int) -> None:
    """Undo the end of a visit that failed."""
    scope.visits[i] -= 1
    scope.steps -= 1
    scope.statuses[i] = None


def clear(scope: Scope) -> None:
    """Forget what is due, waited for, or under way here; what was done stays."""
    ask_again(scope)
    scope.ended = False
    scope.due, scope.active, scope.queue = {}, 0, {}
    for under_way in (
        scope.opened,
        scope.running,
        scope.begun,
        scope.streams,
        scope.units,
        scope.won,
        scope.lost,
        scope.fired,
    ):
        under_way.clear()
    scope.chosen, scope.arrived = [0] * len(scope.chosen), [0] * len(scope.arrived)


def reopen(scope: Scope) -> None:
    """Forget the failure: its nodes are waiting again, with a fresh retry budget."""
    scope.error = None
    for i in tuple(scope.due):
        if scope.statuses[i] is Status.FAILED:
            take_back(scope, i)
            if i in scope.plan.meetings:
                _reopen_group(scope, i)
        scope.attempts[i] = 0
    scope.retry_at.clear()
    for i, opened in scope.opened.items():
        over = scope.plan.children[i].over
        if over is not None and over.on_error is OnError.FINISH:
            opened.failed.clear()
            opened.next = 0
        for inside in opened.scopes.values():
            reopen(inside)


def _reopen_group(scope: Scope, j: int) -> None:
    """A group that failed is tried again at the members that failed."""
    everyone = scope.plan.meetings[j].everyone
    for i in bits(everyone):
        if scope.statuses[i] is Status.FAILED and i not in scope.due:
            take_back(scope, i)
            activate(scope, i, 0)
            if i in scope.plan.meetings:
                _reopen_group(scope, i)
    scope.lost.pop(j, None)
    if scope.active & everyone:
        del scope.due[j]
        scope.active &= ~(1 << j)


def halt(scope: Scope, i: int, step: StepRecord) -> None:
    """A node waits for an answer; it is under way until that comes."""
    scope.statuses[i] = Status.HALTED
    scope.reads[i] = step.reads
    scope.waiting[i] = step
    scope.running.add(i)
    scope.retry_at.pop(i, None)
    if step.key is not None:
        scope.keys[i] = step.key


def ask_again(scope: Scope) -> None:
    """Forget what is waited for: the nodes that halted are to run once more."""
    for i, step in scope.waiting.items():
        scope.running.discard(i)
        if step.wait is not None and step.wait.kind == SETTLE:
            scope.begun.add(i)
        scope.statuses[i] = Status.COMPLETED if scope.visits[i] else None
    scope.waiting.clear()


def is_parked(scope: Scope) -> bool:
    """True if a flow only waits for answers."""
    if scope.busy:
        return False
    return bool(scope.waiting) or any(
        is_parked(inner) for visit in scope.opened.values() for inner in visit.scopes.values()
    )
