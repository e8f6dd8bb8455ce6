"""What a person sees while a run goes on: a live tree on a terminal, plain lines on a pipe, or nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Protocol

import click

from everstep import Flow
from everstep.cli.args.options import command_line
from everstep.cli.view.outline import is_tolerated, node_at
from everstep.cli.view.text import count, duration, moment, one_line
from everstep.cli.view.waits import due_in, noun, present, short
from everstep.model.address import Address, item_of, map_of, plain_of
from everstep.results import RunState
from everstep.runtime.events import Event


class Watcher(Protocol):
    """Hears of everything that happens, and knows which run it is about."""

    run_id: str
    """Empty until a run was started or resumed."""
    is_halted: bool
    """True while the run waits for answers and nothing else."""

    def __call__(self, event: Event) -> None: ...

    def recall(self, look: Callable[[], RunState]) -> None:
        """Take a look at what an earlier process has done."""

    def stop(self) -> None: ...


def choose_watcher(
    flow: Flow, *, quiet: bool, store: str | None = None, stays: bool = False, is_plain: bool = False
) -> Watcher:
    """Pick what suits where stderr goes; one that stays with a halted run says how to answer it.

    A plain one leaves the terminal to questions that are asked on it.
    """
    if quiet:
        return Silent()
    how = partial(how_to_settle, store) if stays else None
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not is_plain:
        from everstep.cli.live.tree import LiveTree

        return LiveTree(flow, how=how)
    return Lines(flow, how=how)


How = Callable[[Event], str]
"""Says how what a step waits for can be answered."""


class Silent:
    """Shows nothing."""

    def __init__(self) -> None:
        self.run_id = ""
        self.is_halted = False

    def __call__(self, event: Event) -> None:
        if event.kind in ("run_started", "run_resumed"):
            self.run_id = event.run_id
        self.is_halted = event.kind == "run_halted"

    def recall(self, look: Callable[[], RunState]) -> None:
        pass

    def stop(self) -> None:
        pass


class Lines(Silent):
    """One line on stderr for each step that ended or will be tried again; of a map, a few."""

    def __init__(self, flow: Flow, how: How | None = None) -> None:
        super().__init__()
        self._flow = flow
        self._how = how
        self._maps: dict[str, Fan] = {}
        self._open: dict[str, Event] = {}
        """What an earlier process has left waiting, by node, as far as nothing was heard of it."""

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        self._open.pop(event.node, None)
        if event.kind == "step_started" and "items" in event.data:
            self._maps[base_of(event)] = Fan(event.data["items"])
        base = map_of(event.node)
        if base is None:
            in_full = is_tolerated(self._flow.plan, plain_of(event.node))
            line = describe(event, attempt_of(event, self._flow), in_full=in_full)
        else:
            line = self._of_item(event, base)
        if line:
            click.echo(line, err=True)
        if event.kind == "step_halted":
            self._say_how(event)
        elif event.kind == "run_halted" and self._how is not None:
            for waiting in self._open.values():
                click.echo(describe(waiting), err=True)
                self._say_how(waiting)
            self._open.clear()

    def _say_how(self, event: Event) -> None:
        if self._how is not None:
            click.echo(f"      {self._how(event)}", err=True)

    def recall(self, look: Callable[[], RunState]) -> None:
        state = look()
        self._maps = open_maps(state)
        self._open = {event.node: event for event in open_waits(state)}

    def _of_item(self, event: Event, base: str) -> str:
        """Tell of an item that failed, and of a map's way at every tenth of it."""
        fan = self._maps.setdefault(base, Fan(0))
        before = fan.tenth
        fan.take(event)
        if event.kind == "step_failed" and (event.node != item_of(event.node) or fan.is_new_failure(event)):
            return f"  ✗ {event.node}  {one_line(event.data['error'])}"
        if fan.count >= MANY and before < fan.tenth < 10:
            return f"    {base}  {fan.said()}"
        return ""


MANY = 20
"""From so many items on, a map tells of its way."""


class Fan:
    """How far a map is."""

    __slots__ = ("_named", "count", "done", "failed", "waiting")

    def __init__(self, count: int) -> None:
        self.count = count
        self.done = 0
        self.failed = 0
        self.waiting: set[str] = set()
        """What waits for an answer inside its items."""
        self._named = ""

    def take(self, event: Event) -> None:
        """Count an item that has ended."""
        if event.kind == "step_halted":
            self.waiting.add(event.node)
        else:
            self.waiting.discard(event.node)
        if event.node != item_of(event.node):
            self._named = item_of(event.node) or "" if event.kind == "step_failed" else self._named
        elif event.kind == "step_completed":
            self.done += 1
        elif event.kind == "step_failed":
            self.failed += 1

    def is_new_failure(self, event: Event) -> bool:
        """False if a step inside the item has told of it already."""
        return self._named != event.node

    @property
    def tenth(self) -> int:
        return (self.done + self.failed) * 10 // self.count if self.count else 10

    def said(self) -> str:
        """Write `120 of 200 items, 2 failed, 3 waiting`."""
        failed = f", {self.failed:,} failed" if self.failed else ""
        waiting = f", {len(self.waiting):,} waiting" if self.waiting else ""
        return f"{self.done + self.failed:,} of {count(self.count, 'item')}{failed}{waiting}"


def open_maps(state: RunState) -> dict[str, Fan]:
    """Return how far the maps are that an earlier process left open, by visit."""
    found = {}
    for path, visit in state.opened.items():
        if visit.items is not None:
            fan = Fan(visit.items)
            fan.done, fan.failed = len(visit.done), len(visit.failed)
            found[path + (f"@{visit.visit}" if visit.visit > 1 else "")] = fan
    for event in open_waits(state):
        base = map_of(event.node)
        if base in found:
            found[base].waiting.add(event.node)
    return found


def open_waits(state: RunState) -> list[Event]:
    """Return what an earlier process has left waiting, as it would have been told."""
    return [
        Event(
            kind="step_halted",
            run_id=state.run_id,
            at=present(),
            node=path,
            visit=node.visits,
            data={
                "wait": {
                    "id": node.wait.wait_id,
                    "kind": node.wait.kind,
                    "due_at": node.wait.due_at.isoformat() if node.wait.due_at is not None else None,
                }
            },
        )
        for path, node in state.nodes.items()
        if node.wait is not None
    ]


def base_of(event: Event) -> str:
    """Return what the paths inside a visit begin with."""
    return event.node + (f"@{event.visit}" if event.visit > 1 else "")


def attempt_of(event: Event, flow: Flow) -> str:
    """Write which attempt of a step this was, and of how many: `attempt 2 of 4`."""
    node = node_at(flow.plan, plain_of(event.node)) if event.node else None
    if node is None:
        return ""
    most = node.retry.times + 1
    return f"attempt {event.attempt}" + (f" of {most}" if event.attempt <= most else "")


def describe(event: Event, attempt: str = "", *, in_full: bool = False) -> str:
    """Say in one line what happened; empty for what is not worth a line."""
    data, step = event.data, step_name(event.node, event.visit)
    took = duration(data["seconds"]) if "seconds" in data else ""
    match event.kind:
        case "run_started":
            return f"run {event.run_id} of {data['flow']}"
        case "run_resumed":
            return f"run {event.run_id} of {data['flow']} {resumed_at(event)}"
        case "step_started" if "items" in data:
            return f"  ▶ {step}  goes over {count(data['items'], 'item')}"
        case "step_completed":
            tries = f"  ({attempt})" if event.attempt > 1 else ""
            chosen = f" → {chosen_of(data['decision'])}" if "decision" in data else ""
            is_bad = data.get("outcome") == "fail"
            return f"  {'✗' if is_bad else '✓'} {step}{chosen}  {took}{tries}{'  failed' if is_bad else ''}"
        case "step_retrying" if "error" not in data:
            return f"  ↻ {step}  will be called again"
        case "step_retrying":
            return f"  ↻ {step}  {attempt} failed, will be tried again: {one_line(data['error'])}"
        case "step_failed":
            # The message of what ends a run follows when it has ended.
            error = one_line(data["error"])
            return f"  ✗ {step}  {error if in_full else error.partition(':')[0]}"
        case "step_cancelled":
            return f"  ⊘ {step}  cancelled"
        case "step_halted":
            return f"  ‖ {step}  {waits_for(event)}"
        case "budget_warned" | "breaker_opened":
            return f"  ! {news_said(data)}"
    return ""


def news_said(data: Mapping[str, Any]) -> str:
    """Say what guards have to tell: how much of budgets is spent, and which breakers opened."""
    spent = [f"{b['spent']} of {b['limit']} {name} spent" for name, b in data.get("budgets", {}).items()]
    tripped = [f"breaker {n} opens: {one_line(b['reason'])}" for n, b in data.get("breakers", {}).items()]
    return "; ".join([*spent, *tripped])


def waits_for(event: Event) -> str:
    """Say what a step that halted waits for, and until when: `waits for an approval until 13:48:06`."""
    wait = event.data["wait"]
    due = datetime.fromisoformat(wait["due_at"]) if wait["due_at"] is not None else None
    if due is None:
        return f"waits for {noun(wait['kind'])}"
    return f"waits for {noun(wait['kind'])} until {moment(due)}, {due_in(due, event.at)}"


def how_to_settle(store: str | None, event: Event) -> str:
    """Write the command that answers what a step waits for."""
    words = {"timer": ["--fire"], "approval": ["--approve"], "yes_no": ["--yes"], "confirm": ["--yes"]}
    wait = event.data["wait"]
    if wait["kind"] == "settle":
        step = str(Address.of(event.node, event.visit))
        return command_line("settle", event.run_id, step, "--done", "JSON", store=store) + ", or --rerun"
    return command_line("answer", short(wait["id"]), *words.get(wait["kind"], []), store=store)


def resumed_at(event: Event) -> str:
    """Say where a resumed run goes on."""
    done = event.data["steps"]
    were = "was" if done == 1 else "were"
    told = f"resumed at checkpoint {event.data['sequence']}, {count(done, 'step')} {were} already done"
    phases = event.data.get("resume", {}).get("phases")
    if phases is None:
        return told
    cost = f", ${phases['cost']:,.2f} so far" if phases["cost"] else ""
    return f"{told}; on to {phases['point']}, {count(len(phases['completed']), 'phase')} completed{cost}"


def done_before(state: RunState) -> dict[str, int]:
    """Return the nodes whose last visit has ended well, each with how often it was visited."""
    names = dict.fromkeys(
        entry.node_alias
        for entry in state.frontier.completed
        if entry.cursor is None and map_of(entry.node_alias) is None
    )
    return {plain_of(name): state.counters.visits.get(name, 1) for name in names}


def step_name(node: str, visit: int) -> str:
    """Write a step as people refer to it: `draft`, and `draft@2` for its second visit."""
    return f"{node}@{visit}" if visit > 1 else node


def chosen_of(decision: list[str] | tuple[str, ...]) -> str:
    """Write what a gate chose."""
    return ", ".join(decision) or "end"
