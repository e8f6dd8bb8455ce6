"""The live tree: notes from the run's own thread, drawn by another, and at once while that costs little."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from everstep import Flow, RunState
from everstep.cli.outline import outline
from everstep.cli.plain import cut, duration, one_line
from everstep.cli.progress import attempt_of, chosen_of, done_before, resumed_at
from everstep.model.enums import Effects
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
}


class Line:
    """What is known of one node."""

    __slots__ = ("attempt", "began", "depth", "name", "note", "seconds", "state", "visit")

    def __init__(self, name: str, depth: int) -> None:
        self.name = name
        self.depth = depth
        self.state = "waiting"
        self.visit = 0
        self.attempt = ""
        self.began = 0.0
        self.seconds = 0.0
        self.note = ""


class LiveTree:
    """Draws the nodes of a flow with their states, a few times a second."""

    def __init__(self, flow: Flow, console: Console | None = None) -> None:
        self.run_id = ""
        self._flow = flow
        self._lines = {place.name: Line(place.name, place.depth) for place in outline(flow.plan)}
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
        for name, visits in done_before(look()).items():
            if name in self._lines:
                self._lines[name].state, self._lines[name].visit = "before", visits

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

    def _has_effects(self, name: str) -> bool:
        # Drawing at its start counts as a step's time, which only what may have gone out is worth.
        plan = self._flow.plan
        return plan.nodes[plan.index[name]].effects is Effects.EFFECTFUL

    def _draw_soon(self) -> None:
        """Draw at once, so that a kill leaves the truth on the screen, unless that has cost too much."""
        now = time.monotonic()
        if self._drawing < FREE_DRAWING + SHARE_OF_DRAWING * (now - self._began):
            self._live.refresh()
            self._drawing += time.monotonic() - now

    def _note(self, event: Event) -> None:
        kind = event.kind
        if event.node:
            line = self._lines[event.node]
            if kind == "step_started":
                line.state, line.began, line.note = "running", time.monotonic(), ""
                line.visit = event.visit
                line.attempt = attempt_of(event, self._flow) if event.attempt > 1 else ""
            elif kind == "step_completed":
                line.state, line.seconds = "done", event.data["seconds"]
                decision = event.data.get("decision")
                line.note = "" if decision is None else f"→ {chosen_of(decision)}"
            elif kind == "chunk":
                line.note = one_line(str(event.data["chunk"]))
            else:
                line.state = "retrying" if kind == "step_retrying" else "failed"
                # A retry is mentioned nowhere else; a failure is told in full when the run has ended.
                error = event.data["error"]
                line.note = error if kind == "step_retrying" else error.partition(":")[0]
                line.seconds = event.data["seconds"]
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
        elif kind == "run_ended":
            self._ended = time.monotonic()

    def draw(self) -> Group:
        """Return the tree as it is now."""
        now = time.monotonic()
        lines = self._visible()
        rows = [self._head, *(self._row(line, now, is_last=line is lines[-1]) for line in lines)]
        hidden = len(self._lines) - len(lines)
        if hidden:
            rows.append(Text(f"   … and {hidden:,} more nodes", style="dim"))
        if self._tail and not self._ended:
            rows.append(Text(self._tail, style="yellow"))
        for row in rows:
            row.no_wrap, row.overflow = True, "ellipsis"
        return Group(*rows)

    def _visible(self) -> list[Line]:
        """Choose what fits on the screen: what is under way first, then what ended last."""
        lines, room = list(self._lines.values()), max(self._console.height - 6, 5)
        if len(lines) <= room:
            return lines
        urgency = {"running": 0, "retrying": 0, "failed": 0, "done": 1, "waiting": 2, "before": 3}
        ranked = sorted(lines, key=lambda line: (urgency[line.state], -line.began))[:room]
        chosen = {line.name for line in ranked}
        return [line for line in lines if line.name in chosen]

    def _row(self, line: Line, now: float, *, is_last: bool) -> Text:
        glyph, style = _GLYPHS[line.state]
        row = Text().append("└─ " if is_last else "├─ ", style="dim")
        row.append("  " * line.depth)
        row.append(f"{glyph} ", style=style)
        is_quiet = line.state in ("waiting", "before")
        row.append(line.name.ljust(self._width - 2 * line.depth + 2), style="dim" if is_quiet else "")
        if line.state == "running":
            row.append(duration(now - line.began).rjust(9), style="cyan")
        elif not is_quiet:
            row.append(duration(line.seconds).rjust(9), style="dim")
        elif line.state == "before":
            row.append("done before", style="dim")
        if line.visit > 1:
            row.append(f"  ×{line.visit}", style="magenta")
        if line.attempt:
            row.append(f"  {line.attempt}", style="yellow")
        if line.note:
            row.append(f"  {cut(one_line(line.note), 160)}", style=style if line.state != "done" else "dim")
        return row
