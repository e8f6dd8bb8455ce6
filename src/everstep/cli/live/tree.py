"""The live tree: notes from the run's own thread, drawn by another, and at once while that costs little.
Apart, as only a terminal needs it and the library that draws it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import islice

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from everstep import Flow
from everstep.cli.live.progress import (
    How,
    attempt_of,
    describe,
    emitted_said,
    open_waits,
    recalled,
    resumed_at,
    way_of,
)
from everstep.cli.view.groups import members_of
from everstep.cli.view.outline import is_beside_a_phase, is_tolerated
from everstep.cli.view.text import chosen_of, cut, duration, one_line
from everstep.cli.view.waits import SHOWN, due_said, noun, present
from everstep.client.outline import node_at
from everstep.client.projection import Items, NodeLine, Projection, seconds_of
from everstep.graph.author.joins import JoinNode
from everstep.graph.compile.plan import Plan
from everstep.graph.draw.outline import outline
from everstep.model.address import map_of, plain_of
from everstep.model.enums import Status
from everstep.results import RunState
from everstep.runtime.events import Event

FRAMES_PER_SECOND = 12
FREE_DRAWING, SHARE_OF_DRAWING = 0.25, 0.05
"""The seconds that the run's own thread may draw, and the share of its time after that."""

_GLYPHS = {
    "waiting": ("·", "dim"),
    "running": ("▶", "cyan"),
    "done": ("✓", "green"),
    "before": ("–", "dim"),
    "failed": ("✗", "bold red"),
    "retrying": ("↻", "yellow"),
    "cancelled": ("⊘", "dim"),
    "halted": ("‖", "yellow"),
}
_STATES = {
    Status.RUNNING: "running",
    Status.COMPLETED: "done",
    Status.FAILED: "failed",
    Status.RETRYING: "retrying",
    Status.CANCELLED: "cancelled",
    Status.HALTED: "halted",
}
BAR = 20
"""How many characters the bar of a map takes."""


class TreeRow:
    """The place of one node in the tree, and what is known of it since the flow around it began."""

    __slots__ = ("began", "depth", "is_before", "kind", "name", "node", "note", "path")

    def __init__(self, path: str, depth: int, kind: str = "") -> None:
        self.path = path
        self.name = path.rpartition("/")[2]
        self.depth = depth
        self.kind = kind
        """What sort of node it is, where that is not plain to see."""
        self.began = 0.0
        self.reset()

    def reset(self) -> None:
        """Forget what happened: the flow around it begins anew."""
        self.node: NodeLine | None = None
        self.is_before = False
        """True if it was done before this process took the run up."""
        self.note = ""

    @property
    def state(self) -> str:
        if self.node is None or self.node.status is None:
            return "waiting"
        if self.is_before:
            return "before"
        last = self.node.last
        is_bad = last is not None and last.status is Status.COMPLETED and last.outcome == "fail"
        return "failed" if is_bad else _STATES[self.node.status]

    @property
    def visit(self) -> int:
        if self.node is None:
            return 0
        return self.node.visits if self.node.last is None else self.node.last.visit


def kind_of(plan: Plan, path: str) -> str:
    """Say what a join waits for, and which nodes run only when asked for."""
    node = node_at(plan, path)
    if isinstance(node, JoinNode):
        return members_of(node)
    return "task" if "/" not in path and plan.index[path] in plan.tasks else ""


class LiveTree:
    """Draws the nodes of a flow with their states, a few times a second."""

    def __init__(self, flow: Flow, console: Console | None = None, *, how: How | None = None) -> None:
        self.run_id = ""
        self.is_halted = False
        self._flow = flow
        self._run = Projection()
        self._how = how
        self._answers: dict[str, str] = {}
        """How what is waited for can be answered, by node."""
        self._lines = {
            place.name: TreeRow(place.name, place.depth, kind_of(flow.plan, place.name))
            for place in outline(flow.plan)
        }
        self._beside_phases = {path for path in self._lines if is_beside_a_phase(flow.plan, path)}
        self._inside: dict[str, list[TreeRow]] = {}
        """The lines below each flow, at any depth."""
        for path, line in self._lines.items():
            while "/" in path:
                path = path.rpartition("/")[0]
                self._inside.setdefault(path, []).append(line)
        self._width = max((2 * line.depth + len(line.name) for line in self._lines.values()), default=0)
        self._began = time.monotonic()
        self._ended = 0.0
        self._drawing = 0.0
        """How long the run has waited for its own thread to draw."""
        self._head = Text(flow.name, style="bold")
        self._tail = ""
        self._console = console or Console(stderr=True, highlight=False)
        self._live = Live(
            get_renderable=self.draw,
            console=self._console,
            refresh_per_second=FRAMES_PER_SECOND,
            # What a node prints goes above the tree, unless it goes to a file or a pipe.
            redirect_stdout=sys.stdout.isatty(),
        )

    def recall(self, look: Callable[[], RunState]) -> None:
        state = look()
        self._run = recalled(state)
        for path, line in self._lines.items():
            line.node = self._run.node(path)
            line.is_before = line.node is not None and line.node.status is Status.COMPLETED
            line.began = time.monotonic() if line.state == "running" else line.began
        for event in open_waits(state.run_id, self._run):
            self._note(event)

    def stop(self) -> None:
        if self._live.is_started:
            self._live.stop()

    def __call__(self, event: Event) -> None:
        """Note what happened. Called between steps, so it must stay cheap."""
        self._note(event)
        if not self._live.is_started:
            # Not before: a run that has ended tells nothing, and has no tree to show.
            self._began = time.monotonic()
            self._live.start()
            self._console.show_cursor(True)  # a process that is killed could not bring it back
        if event.kind == "step_completed" or (event.kind == "step_started" and self._has_effects(event.node)):
            self._draw_soon()

    def _has_effects(self, path: str) -> bool:
        # Drawing at its start counts as a step's time, which only what may have gone out is worth.
        node = node_at(self._flow.plan, plain_of(path))
        return node is not None and node.is_effectful

    def _draw_soon(self) -> None:
        """Draw at once, so that a kill leaves the truth on the screen, unless that has cost too much."""
        now = time.monotonic()
        if self._drawing < FREE_DRAWING + SHARE_OF_DRAWING * (now - self._began):
            self._live.refresh()
            self._drawing += time.monotonic() - now

    def _note(self, event: Event) -> None:
        kind = event.kind
        self.is_halted = kind == "run_halted"
        self._answers.pop(event.node, None)
        self._run.hear(event)
        if kind == "step_halted" and self._how is not None:
            self._answers[event.node] = self._how(event)
        if event.node:
            base = map_of(event.node)
            line = self._lines.get(plain_of(base or event.node))
            if line is None:
                return
            if base is not None:
                self._note_item(line, event)
            else:
                self._note_step(line, event)
        elif kind == "run_started":
            self.run_id = event.run_id
            self._head = Text.assemble((self._flow.name, "bold"), ("  run ", "dim"), event.run_id)
        elif kind == "run_resumed":
            self.run_id = event.run_id
            where = f" {resumed_at(event)}"
            self._head = Text.assemble(
                (self._flow.name, "bold"), ("  run ", "dim"), event.run_id, (where, "yellow")
            )
        elif kind == "lease_wait":
            self._tail = f"waiting for another owner's lease until {event.data['until'][11:19]} UTC"
        elif kind in ("budget_warned", "breaker_opened"):
            self._tail = describe(event).strip()
        elif kind == "run_ended":
            self._ended = time.monotonic()

    def _note_item(self, line: TreeRow, event: Event) -> None:
        line.node = self._run.node(line.path)
        if event.kind == "step_failed":
            line.note = f"{event.node.rpartition('/')[0] or event.node}: {event.data['error']}"
        elif event.kind == "step_retrying":
            line.note = f"{event.node} is tried again: {event.data.get('error', 'on request')}"

    def _note_step(self, line: TreeRow, event: Event) -> None:
        data = event.data
        if event.kind in ("chunk", "streamed", "emitted", "spent"):
            if event.kind == "chunk":
                line.note = one_line(str(data["chunk"]))
            elif event.kind == "emitted" and data.get("name", "heartbeat") != "heartbeat":
                line.note = emitted_said(data)
            return
        line.node, line.is_before, line.note = self._run.node(line.path), False, ""
        match event.kind:
            case "step_started":
                line.began = time.monotonic()
                for inner in self._inside.get(line.path, ()):
                    inner.reset()
            case "step_halted":
                line.note = f"waits for {noun(data['wait']['kind'])}"
            case "step_completed" if "decision" in data:
                line.note = f"→ {chosen_of(data['decision'])}"
            case "step_cancelled":
                line.note = "cancelled"
            case "step_retrying" | "step_failed":
                # A retry is mentioned nowhere else; what ends the run is told in full when it has ended.
                error = data.get("error", "it is called again")
                in_full = event.kind == "step_retrying" or is_tolerated(self._flow.plan, line.path)
                line.note = error if in_full else error.partition(":")[0]

    def draw(self) -> Group:
        """Return the tree as it is now."""
        now = time.monotonic()
        lines = self._visible()
        rows = [self._head, *(self._row(line, now, is_last=line is lines[-1]) for line in lines)]
        hidden = len(self._told()) - len(lines)
        if hidden:
            rows.append(Text(f"   … and {hidden:,} more nodes", style="dim"))
        if self._tail and not self._ended:
            rows.append(Text(self._tail, style="yellow"))
        if self.is_halted:
            rows += [
                Text.assemble((f"   {node}: ", "dim"), command)
                for node, command in islice(self._answers.items(), SHOWN)
            ]
        for row in rows:
            row.no_wrap, row.overflow = True, "ellipsis"
        return Group(*rows)

    def _told(self) -> list[TreeRow]:
        """Return the lines without those of gates of phases that were not reached."""
        lines = self._lines.values()
        return [line for line in lines if line.state != "waiting" or line.path not in self._beside_phases]

    def _visible(self) -> list[TreeRow]:
        """Choose what fits on the screen: what is under way first, then what ended last."""
        lines, room = self._told(), max(self._console.height - 6, 5)
        if len(lines) <= room:
            return lines
        urgency = {
            **dict.fromkeys(("running", "retrying", "failed", "halted"), 0),
            **dict.fromkeys(("done", "cancelled"), 1),
            "waiting": 2,
            "before": 3,
        }
        ranked = sorted(lines, key=lambda line: (urgency[line.state], -line.began))[:room]
        chosen = {line.path for line in ranked}
        return [line for line in lines if line.path in chosen]

    def _row(self, line: TreeRow, now: float, *, is_last: bool) -> Text:
        state, step = line.state, line.node.last if line.node is not None else None
        items = line.node.items if line.node is not None else None
        glyph, style = _GLYPHS[state]
        row = Text().append("└─ " if is_last else "├─ ", style="dim")
        row.append("  " * line.depth)
        row.append(f"{glyph} ", style=style)
        is_quiet = state in ("waiting", "before")
        row.append(line.name.ljust(self._width - 2 * line.depth + 2), style="dim" if is_quiet else "")
        if state == "running":
            row.append(duration(now - line.began).rjust(9), style="cyan")
        elif not is_quiet:
            seconds = seconds_of(step) if step is not None else None
            took = duration(seconds or 0.0) if state not in ("cancelled", "halted") else ""
            row.append(took.rjust(9), style="dim")
        elif state == "before":
            row.append("done before", style="dim")
        if items is not None and not is_quiet:
            row.append_text(self._bar(items, is_over=state != "running"))
        if line.visit > 1:
            row.append(f"  ×{line.visit}", style="magenta")
        if step is not None and step.attempts > 1 and not is_quiet:
            row.append(f"  {attempt_of(step.path, step.attempts, self._flow)}", style="yellow")
        if line.note:
            row.append(f"  {cut(one_line(line.note), 160)}", style=style if state != "done" else "dim")
        if step is not None and step.wait is not None and step.wait.due_at and state == "halted":
            row.append(f", {due_said(step.wait.due_at, present())}", style=style)
        if line.kind:
            row.append(f"  {line.kind}", style="dim")
        return row

    def _bar(self, items: Items, *, is_over: bool) -> Text:
        bar = Text("  ")
        if not is_over and self._console.width >= 60 + self._width:
            whole = max(items.count, 1)
            good, bad = BAR * items.completed // whole, -(-BAR * len(items.failed) // whole)
            good = min(good, BAR - bad)
            bar.append("━" * good, style="green").append("━" * bad, style="red")
            bar.append("━" * (BAR - good - bad), style="bright_black").append("  ")
        return bar.append(way_of(items), style="red" if items.failed else "")
