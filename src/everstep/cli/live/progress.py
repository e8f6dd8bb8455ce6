"""What happens to a run in words, and the lines of them on a pipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import click

from everstep import Flow
from everstep.cli.view.outline import is_tolerated
from everstep.cli.view.text import chosen_of, count, duration, moment, one_line, size
from everstep.cli.view.waits import answering, due_in, noun, present
from everstep.client.outline import node_at
from everstep.client.projection import Items, Projection
from everstep.model.address import Address, map_of, plain_of
from everstep.results import RunState
from everstep.runtime.events import Event, step_event

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
        self._run = Projection()
        self._open: dict[str, Event] = {}
        """What an earlier process has left waiting, by node, as far as nothing was heard of it."""
        self._halting: list[Event] = []
        """Steps that wait, but perhaps not yet in the store."""
        self._chunks = ChunkLines(lambda line: click.echo(line, err=True))

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        if self._chunks.take(event):
            return
        self._open.pop(event.node, None)
        base = map_of(event.node)
        before = _tenth(self._run.maps.of(base)) if base is not None else 0
        is_news = self._run.hear(event)
        if base is None:
            in_full = is_tolerated(self._flow.plan, plain_of(event.node))
            line = describe(event, attempt_of(event.node, event.attempt, self._flow), in_full=in_full)
        else:
            line = self._of_item(event, base, before, is_news=is_news)
        if event.kind == "step_halted" and self._how is not None:
            self._halting.append(event)  # who reads how it is answered may answer it at once
            return
        if event.kind in ("checkpoint", "run_halted"):
            self._say_halted()
        if line:
            click.echo(line, err=True)
        if event.kind == "run_halted" and self._how is not None:
            for waiting in self._open.values():
                click.echo(describe(waiting), err=True)
                self._say_how(waiting)
            self._open.clear()

    def _say_halted(self) -> None:
        halting, self._halting = self._halting, []
        for event in halting:
            click.echo(describe(event, attempt_of(event.node, event.attempt, self._flow)), err=True)
            self._say_how(event)

    def _say_how(self, event: Event) -> None:
        if self._how is not None:
            click.echo(f"      {self._how(event)}", err=True)

    def recall(self, look: Callable[[], RunState]) -> None:
        state = look()
        self._run = recalled(state)
        self._open = {event.node: event for event in open_waits(state.run_id, self._run)}

    def _of_item(self, event: Event, base: str, before: int, *, is_news: bool) -> str:
        """Tell of an item that failed, and of a map's way at every tenth of it."""
        if is_news:
            return f"  ✗ {event.node}  {one_line(event.data['error'])}"
        items = self._run.maps.of(base)
        if items is not None and items.count >= MANY and before < _tenth(items) < 10:
            return f"    {base}  {way_of(items)}"
        return ""


class ChunkLines:
    """Chunks of streams as lines of text: small ones, such as tokens, share a line."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._step, self._text = "", ""

    def take(self, event: Event) -> bool:
        """Take a chunk, and return true; before anything else the line ends that was begun."""
        step = step_name(event.node, event.visit) if event.kind == "chunk" else ""
        if step != self._step:
            self.flush()
        if not step:
            return False
        chunk = event.data.get("chunk")
        self._step = step
        self._text += chunk if isinstance(chunk, str) else f"{one_line(str(chunk))} "
        while "\n" in self._text or len(self._text) > WIDE:
            line, _, rest = self._text.partition("\n")
            if len(line) > WIDE:
                line, rest = self._text[:WIDE], self._text[WIDE:]
            self._text = rest
            self._write(f"  … {step}  {one_line(line)}")
        return True

    def flush(self) -> None:
        """End the line that was begun."""
        if self._text.strip():
            self._write(f"  … {self._step}  {one_line(self._text)}")
        self._step, self._text = "", ""


WIDE = 100
"""How many characters of chunks go into a line."""
MANY = 20
"""From so many items on, a map tells of its way."""


def _tenth(items: Items | None) -> int:
    return items.ended * 10 // items.count if items is not None and items.count else 10


def way_of(items: Items) -> str:
    """Write how far a map is: `120 of 200 items, 2 failed, 3 waiting`."""
    failed = f", {len(items.failed):,} failed" if items.failed else ""
    waiting = f", {len(items.waiting):,} waiting" if items.waiting else ""
    return f"{items.ended:,} of {count(items.count, 'item')}{failed}{waiting}"


def recalled(state: RunState) -> Projection:
    """Return a run as an earlier process has left it."""
    found = Projection()
    found.begin(state.nodes, state.opened)
    return found


def open_waits(run_id: str, run: Projection) -> list[Event]:
    """Return what an earlier process has left waiting, as it would have been told."""
    halted = [visit.last for visit in run.under_way.values() if visit.is_waiting]
    return [step_event(run_id, step, present()) for step in halted]


def attempt_of(path: str, attempt: int, flow: Flow) -> str:
    """Write which attempt of a step this was, and of how many: `attempt 2 of 4`."""
    node = node_at(flow.plan, plain_of(path)) if path else None
    if node is None:
        return ""
    most = node.retry.times + 1
    return f"attempt {attempt}" + (f" of {most}" if attempt <= most else "")


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
        case "emitted" if data.get("name") != "heartbeat" or data.get("data"):
            return f"  · {step}  {emitted_said(data)}"
        case "gap":
            lost = count(data["lost"], "event") if "lost" in data else "live data"
            return f"  … {lost} missed" + (f": {one_line(data['reason'])}" if "reason" in data else "")
    return ""


def emitted_said(data: Mapping[str, Any]) -> str:
    """Write what a node emitted: `progress  done=3 of=10`."""
    if "omitted" in data:
        return f"{data.get('name', '')}  {size(data['omitted'])}, too large to be followed"
    told = "  ".join(f"{name}={one_line(str(value))}" for name, value in data.get("data", {}).items())
    return f"{one_line(data['name'])}  {told}".rstrip()


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
    wait, step = event.data["wait"], Address.of(event.node, event.visit)
    command, other = answering(wait["kind"], event.run_id, step, wait["id"], store)
    return f"{command}, or {other}" if wait["kind"] == "settle" else command


def resumed_at(event: Event) -> str:
    """Say where a resumed run goes on."""
    done, calls = event.data["steps"], event.data.get("calls", 0)
    there = [count(done, "step")] if done or not calls else []
    there += [f"{count(calls, 'call')} inside a node"] if calls else []
    were = "was" if done + calls == 1 else "were"
    told = f"resumed at checkpoint {event.data['sequence']}, {' and '.join(there)} {were} already done"
    phases = event.data.get("resume", {}).get("phases")
    if phases is None:
        return told
    cost = f", ${phases['cost']:,.2f} so far" if phases["cost"] else ""
    return f"{told}; on to {phases['point']}, {count(len(phases['completed']), 'phase')} completed{cost}"


def step_name(node: str, visit: int) -> str:
    """Write a step as people refer to it: `draft`, and `draft@2` for its second visit."""
    return f"{node}@{visit}" if visit > 1 else node
