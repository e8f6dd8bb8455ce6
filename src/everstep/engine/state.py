"""Where a run stands: the fold of its steps.

The run's own flow is the root scope; flows inside it are scopes below. A step is taken to the scope that its
path names, and `evolve` is the only thing that changes any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import repeat
from typing import TYPE_CHECKING

from everstep.engine.books import Books
from everstep.engine.fold import activate, admit, ask_again, clear, enter, reopen, take, take_unit, write
from everstep.engine.keys import names_in, path_of_keys
from everstep.engine.readiness import oldest, ready
from everstep.engine.scope import OpenedVisit, Scope
from everstep.errors import StateCorrupted
from everstep.graph.compile.plan import Plan
from everstep.model.enums import OnError, Status
from everstep.model.records import (
    DEADLINE,
    INBOX,
    INPUTS,
    START,
    UNDOING,
    Counters,
    FlowFrontier,
    FrontierEntry,
    IdempotencyState,
    StepRecord,
    unit_of,
)
from everstep.model.waits import WaitOpened

if TYPE_CHECKING:
    from everstep.engine.undo.stack import Undoing


class RunState(Scope):
    """The root scope, and what belongs to the run as a whole."""

    __slots__ = (
        "books",
        "deadline",
        "delay",
        "gone",
        "key_run",
        "restless",
        "task_count",
        "total",
        "undo",
        "waits",
    )

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.restless: dict[Scope, None] = {}
        """Inner scopes in which something may have become ready since they were last looked at.

        The root is always looked at. It is not in here, so that a run that is over is freed at once."""
        self.total = 0
        """Steps of all scopes, as far as they are kept."""
        self.task_count = 0
        """How many tasks were ever queued."""
        self.waits: dict[str, tuple[Scope, int]] = {}
        """What the run waits for, by the id of the wait."""
        self.gone: list[str] = []
        """Waits that are over, in this order; the writer of the next checkpoint empties it."""
        self.key_run: str | None = None
        """The fork whose id goes into keys; none while those of the first run are used."""
        self.books = Books()
        """What was spent, and how the guards stand."""
        self.undo: Undoing | None = None
        """What is undone if it fails or is cancelled; none if nothing that it did can be."""
        self.delay: WaitOpened | None = None
        """The wait for the time at which it begins, until that has come."""
        self.deadline: WaitOpened | None = None
        """The wait for the time at which it is ended, if it has one."""

    def evolve(self, step: StepRecord) -> None:
        """Take one recorded step into account."""
        i = self.plan.index.get(step.path)
        if i is not None:
            take(self, i, step)
            self.count(step)
            self.follow_wait(self, i, step)
        elif step.path[0] == "@":
            self._take_mark(step)
        elif "/$" in step.path and (place := self.locate_unit(step.path)) is not None:
            self.evolve_unit(*place, step)
        else:
            self.evolve_at(*self.locate(step.path), step)

    def count(self, step: StepRecord, *, is_kept: bool = True) -> None:
        """Count a step among all of the run."""
        status = step.status
        if is_kept and (status is Status.COMPLETED or status is Status.FAILED or status is Status.CANCELLED):
            self.total += 1
        if step.queued:
            self.task_count = max(self.task_count, max(q.number for q in step.queued))

    def follow_wait(self, scope: Scope, i: int, step: StepRecord) -> None:
        """Note what a step that was taken means for the waits of the run."""
        if step.status is Status.HALTED and step.wait is not None:
            self.waits[step.wait.wait_id] = (scope, i)
        elif self.waits:
            if step.wait is not None and self.waits.pop(step.wait.wait_id, None) is not None:
                self.gone.append(step.wait.wait_id)
            if step.ends or step.status is Status.FAILED or step.status is Status.CANCELLED:
                self._drop_over()

    def _drop_over(self) -> None:
        """Drop the waits that are no longer waited for."""
        over = [
            wait_id
            for wait_id, (scope, i) in self.waits.items()
            if not (i in scope.waiting and scope.awaits(i))
        ]
        for wait_id in over:
            del self.waits[wait_id]
        self.gone += over

    def ask_again(self) -> None:
        """Forget every wait, here and in the flows inside: the nodes that halted are to run once more."""
        for scope in self.scopes():
            ask_again(scope)
            self.stir(scope)
        self.waits.clear()

    def look_around(self) -> None:
        """Look at every flow that is open, and at none that a fold came through and that is gone."""
        self.restless = {}
        if self.opened:
            self.stir_all()

    def stir(self, scope: Scope) -> None:
        """Look at a scope again: something may have become ready in it."""
        if scope is not self:
            self.restless[scope] = None

    def stir_all(self) -> None:
        """Look at every open scope again."""
        for scope in self.scopes():
            self.stir(scope)

    def _take_mark(self, step: StepRecord) -> None:
        if step.path == INPUTS:
            admit(self, {w.name: w.version for w in step.writes if w.name[0] != "@"})
        elif step.path == START and step.wait is None:
            self._start_at(step.decision or ())
        elif step.wait is not None and step.path in (START, DEADLINE):
            self._take_time(step, step.wait)
        elif step.path == INBOX:
            for written in step.writes:
                write(self, written.name, written.version, 0, wakes=False)

    def _take_time(self, step: StepRecord, wait: WaitOpened) -> None:
        """The run is to begin, or to be ended, at a time; or that has come."""
        still = wait if step.status is Status.HALTED else None
        if still is None:
            self.gone.append(wait.wait_id)
        if step.path == START:
            self.delay = still
        else:
            self.deadline = still

    def forget_times(self) -> None:
        """Go on at once and without a deadline."""
        self.gone += [wait.wait_id for wait in (self.delay, self.deadline) if wait is not None]
        self.delay = self.deadline = None

    def evolve_at(self, scope: Scope, i: int, item: int | None, step: StepRecord) -> None:
        """Take a step at a place that was located into account."""
        self.count(step, is_kept=not scope.is_hidden)
        if item is not None:
            self._take_item(scope, i, item, step)
        else:
            take(scope, i, step)
            self.stir(scope)
            parent = scope.parent
            asks_again = scope.queue and step.status is Status.COMPLETED
            if parent is not None and parent.plan.children[scope.place].is_leaf and not asks_again:
                self._take_item(parent, scope.place, scope.item, step)
        if self.waits or step.wait is not None:
            self.follow_wait(scope, i, step)

    def _take_item(self, scope: Scope, i: int, item: int, step: StepRecord) -> None:
        """An item of a map has ended, or failed; or one is about to make effects that can be undone."""
        opened, over = scope.opened[i], scope.plan.children[i].over
        if step.status is Status.RUNNING:
            opened.begun |= {item}
            return
        if opened.begun:
            opened.begun -= {item}
        if step.status is Status.COMPLETED:
            opened.done.add(item)
        elif step.status is Status.FAILED and over is not None and over.on_error is not OnError.STOP:
            opened.failed.add(item)
            if over.on_error is OnError.FINISH and not scope.plan.children[i].is_atomic:
                return  # it stays open, to go on where it failed once the run is taken up again
        else:
            return
        gone = opened.scopes.pop(item, None)
        if gone is not None:
            self.restless.pop(gone, None)
        self.stir(scope)

    def _start_at(self, paths: tuple[str, ...]) -> None:
        places = self.places_of(paths)
        if self.delay is not None:
            self.gone.append(self.delay.wait_id)
            self.delay = None
        self.reopen()
        for scope in dict.fromkeys(scope for scope, _ in places):
            clear(scope)
        for scope, i in places:
            scope.chosen[i] += scope.plan.is_target[i]
            activate(scope, i, 0)
        self._drop_over()
        self.look_around()

    def places_of(self, paths: tuple[str, ...]) -> list[tuple[Scope, int]]:
        """Return the open scope and the number of each node that a run begins again at."""
        return [self.locate(path)[:2] for path in paths]

    # -- scopes -------------------------------------------------------------------------------------------

    def locate(self, path: str) -> tuple[Scope, int, int | None]:
        """Return the scope and number of the node that a path names; with the item, if it names an item.

        Inner scopes on the way are opened, as the visits around them are open already.
        """
        head, _, name = path.rpartition("/")
        if name == UNDOING:
            return self._hidden_node(path), 0, None
        scope = self.scope_at(head) if head else self
        i = scope.plan.index.get(name)
        if i is not None:
            return scope, i, None
        i, item = self._item_of(scope, name, path)
        if scope.plan.children[i].is_leaf:
            return enter(scope, i, item), 0, None
        return scope, i, item

    def _hidden_node(self, path: str) -> Scope:
        """Return the flow of the node that undoes something."""
        scope = None if self.undo is None else self.undo.scope
        if scope is None or scope.path_of(0) != path:
            raise StateCorrupted(f"the records have a step at {path!r}, and that is not to be undone there.")
        return scope

    def locate_unit(self, path: str) -> tuple[Scope, int, str] | None:
        """Return the scope and number of the node whose durable call a path names, and the call's own name.

        None of another path. The visit it names must be the one that is under way.
        """
        found = unit_of(path)
        if found is None:
            return None
        node, visit, name = found
        scope, i, item = self.locate(node)
        if item is not None or visit != scope.visits[i] + 1:
            raise StateCorrupted(f"the records have a call at {path!r}, and that visit is not under way.")
        return scope, i, name

    def evolve_unit(self, scope: Scope, i: int, name: str, step: StepRecord) -> None:
        """Take a durable call at a place that was located into account."""
        take_unit(scope, i, name, step)
        if step.wait is not None:
            self.follow_wait(scope, i, step)
            self.stir(scope)

    def scope_at(self, path: str) -> Scope:
        """Return the inner flow at a path such as `rag@2#7`."""
        scope: Scope = self
        for segment in path.split("/"):
            i, item = self._item_of(scope, segment, path)
            scope = enter(scope, i, item)
        return scope

    def _item_of(self, scope: Scope, segment: str, path: str) -> tuple[int, int]:
        address, _, item = segment.partition("#")
        name, _, visit = address.partition("@")
        i = scope.plan.index.get(name)
        opened = scope.opened.get(i) if i is not None else None
        if i is None or opened is None or opened.visit != int(visit or 1):
            raise StateCorrupted(f"the records have a step at {path!r}, which is not open there.")
        return i, int(item or 0)

    def scopes(self) -> Iterator[Scope]:
        """Yield every open scope, outer ones first."""
        todo: list[Scope] = [self]
        while todo:
            scope = todo.pop()
            yield scope
            for opened in scope.opened.values():
                todo.extend(opened.scopes.values())

    def startable(self, now: Callable[[], datetime]) -> list[tuple[Scope, int]]:
        """Return what may start, in all scopes that have changed; the time is asked for if a node pauses."""
        found: list[tuple[Scope, int]] = []
        if not self.restless:
            for i in ready(self, now() if self.retry_at else None):
                found.append((self, i))
            return found
        looked_at = (self, *self.restless)
        at = now() if any(scope.retry_at for scope in looked_at) else None
        for scope in looked_at:
            here = ready(scope, at)
            if here:
                found += zip(repeat(scope), here)
            elif not scope.retry_at and scope is not self:
                del self.restless[scope]
        return found

    def stuck(self) -> list[tuple[Scope, int]]:
        """Return what to run when nothing may start and nothing runs, as in loops that overlap."""
        if not (self.due or self.opened):
            return []
        return [(scope, i) for scope in self.scopes() for i in oldest(scope)]

    def fans(self) -> Iterator[tuple[Scope, int, OpenedVisit]]:
        """Yield every open map."""
        for scope in self.scopes():
            for i, opened in scope.opened.items():
                if opened.is_map:
                    yield scope, i, opened

    def next_retry(self) -> datetime | None:
        """Return when the earliest pause between attempts ends."""
        if self.undo is not None and self.undo.has_begun:
            return self.undo.next_retry(self.scopes())
        if not (self.retry_at or self.restless):
            return None
        scopes = (self, *self.restless)
        pauses = [min(s.retry_at.values()) for s in scopes if s.retry_at and s.error is None]
        return min(pauses, default=None)

    def done(self) -> Iterator[tuple[str, int]]:
        """Yield the path and the last visit of each node whose outcome a resume takes from the records."""
        for scope in self.scopes():
            for i, status in enumerate(scope.statuses) if not scope.is_hidden else ():
                if status is Status.COMPLETED:
                    yield scope.path_of(i), scope.visits[i]

    def next_due(self) -> datetime | None:
        """Return when the first of the waits that the run halts for is due."""
        halted = (step for scope in self.scopes() for step in scope.waiting.values())
        times = [s.wait.due_at for s in halted if s.wait and s.wait.due_at is not None]
        times += [one.due_at for one in (self.delay, self.deadline) if one is not None and one.due_at]
        return min(times, default=None)

    def forget(self, scope: Scope) -> None:
        """Stop looking at a scope and at those inside it."""
        self.restless.pop(scope, None)
        for opened in scope.opened.values():
            for inner in opened.scopes.values():
                self.forget(inner)

    def reopen(self) -> None:
        """Forget the failure, here and in the flows inside."""
        before = sum(scope.steps for scope in self.scopes())
        reopen(self)
        self.total -= before - sum(scope.steps for scope in self.scopes())
        self.stir_all()

    # -- views --------------------------------------------------------------------------------------------

    def frontier(self) -> FlowFrontier:
        """Say what is done and what comes next."""
        done: list[FrontierEntry] = []
        pending: list[str] = []
        for scope in self.scopes():
            if scope.is_hidden:
                continue
            path_of = self.plan.paths.__getitem__ if scope is self else scope.path_of
            done += [
                FrontierEntry(path_of(i), output)
                for i, status in enumerate(scope.statuses)
                if status is Status.COMPLETED
                for output in scope.plan.nodes[i].outputs or ("",)
            ]
            done += [
                FrontierEntry(path_of(i), output, stream.cursor or str(stream.chunks))
                for i, stream in scope.streams.items()
                for output in scope.plan.nodes[i].outputs
            ]
            pending += [path_of(i) for i in scope.due]
        return FlowFrontier(tuple(done), tuple(pending))

    def path_of_keys(self, path: str) -> str:
        """Return the path of a node inside an inner flow as its keys are made of it."""
        i, _ = self._item_of(self, path.partition("/")[0], path)
        names = names_in(self.keys.get(i))
        return path_of_keys(path, names) if names else path

    def idempotency(self) -> IdempotencyState:
        """Say which keys are used up and which are to be used again."""
        shown = [s for s in self.scopes() if not s.is_hidden]
        return IdempotencyState(
            consumed={s.path_of(i): [key] for s in shown for i, key in s.consumed.items()},
            pending={
                s.path_of(i): key for s in shown for i, key in s.keys.items() if i not in s.plan.children
            },
        )

    def counters(self) -> Counters:
        paths = self.plan.paths
        inner = [s for s in self.scopes() if s is not self and not s.is_hidden]
        visits = {paths[i]: n for i, n in enumerate(self.visits) if n}
        retries = {paths[i]: n for i, n in enumerate(self.attempts) if n}
        for scope in inner:
            visits.update((scope.path_of(i), n) for i, n in enumerate(scope.visits) if n)
            retries.update((scope.path_of(i), n) for i, n in enumerate(scope.attempts) if n)
        return Counters(self.total, visits, retries, dict(self.books.spent))
