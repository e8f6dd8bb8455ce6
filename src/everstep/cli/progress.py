"""What a person sees while a run goes on: a live tree on a terminal, plain lines on a pipe, or nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Protocol

import click

from everstep import Flow, RunState
from everstep.cli.plain import count, duration, one_line
from everstep.runtime.events import Event


class Watcher(Protocol):
    """Hears of everything that happens, and knows which run it is about."""

    run_id: str
    """Empty until a run was started or resumed."""

    def __call__(self, event: Event) -> None: ...

    def recall(self, look: Callable[[], RunState]) -> None:
        """Take a look at what an earlier process has done."""

    def stop(self) -> None: ...


def choose_watcher(flow: Flow, *, quiet: bool) -> Watcher:
    """Pick what suits where stderr goes."""
    if quiet:
        return Silent()
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from everstep.cli.live import LiveTree

        return LiveTree(flow)
    return Lines(flow)


class Silent:
    """Shows nothing."""

    def __init__(self) -> None:
        self.run_id = ""

    def __call__(self, event: Event) -> None:
        if event.kind in ("run_started", "run_resumed"):
            self.run_id = event.run_id

    def recall(self, look: Callable[[], RunState]) -> None:
        pass

    def stop(self) -> None:
        pass


class Lines(Silent):
    """One line on stderr for each step that finished, failed or will be tried again."""

    def __init__(self, flow: Flow) -> None:
        super().__init__()
        self._flow = flow

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        line = describe(event, attempt_of(event, self._flow))
        if line:
            click.echo(line, err=True)


def attempt_of(event: Event, flow: Flow) -> str:
    """Write which attempt of a step this was, and of how many: `attempt 2 of 4`."""
    if not event.node:
        return ""
    most = flow.plan.nodes[flow.plan.index[event.node]].retry.times + 1
    return f"attempt {event.attempt}" + (f" of {most}" if event.attempt <= most else "")


def describe(event: Event, attempt: str = "") -> str:
    """Say in one line what happened; empty for what is not worth a line."""
    data, step = event.data, step_name(event.node, event.visit)
    match event.kind:
        case "run_started":
            return f"run {event.run_id} of {data['flow']}"
        case "run_resumed":
            return f"run {event.run_id} of {data['flow']} {resumed_at(event)}"
        case "step_completed":
            tries = f"  ({attempt})" if event.attempt > 1 else ""
            chosen = f" → {chosen_of(data['decision'])}" if "decision" in data else ""
            return f"  ✓ {step}{chosen}  {duration(data['seconds'])}{tries}"
        case "step_retrying":
            return f"  ↻ {step}  {attempt} failed, will be tried again: {one_line(data['error'])}"
        case "step_failed":
            # The message follows in full when the run has ended.
            return f"  ✗ {step}  {one_line(data['error']).partition(':')[0]}"
    return ""


def resumed_at(event: Event) -> str:
    """Say where a resumed run goes on."""
    done = event.data["steps"]
    were = "was" if done == 1 else "were"
    return f"resumed at checkpoint {event.data['sequence']}, {count(done, 'step')} {were} already done"


def done_before(state: RunState) -> dict[str, int]:
    """Return the nodes whose last visit has ended well, each with how often it was visited."""
    names = dict.fromkeys(entry.node_alias for entry in state.frontier.completed)
    return {name: state.counters.visits.get(name, 1) for name in names}


def step_name(node: str, visit: int) -> str:
    """Write a step as people refer to it: `draft`, and `draft@2` for its second visit."""
    return f"{node}@{visit}" if visit > 1 else node


def chosen_of(decision: list[str] | tuple[str, ...]) -> str:
    """Write what a gate chose."""
    return ", ".join(decision) or "end"
