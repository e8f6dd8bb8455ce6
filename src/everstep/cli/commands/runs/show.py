"""`everstep show`: a run at a glance, or one of its steps in full."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click

from everstep import Host, Status
from everstep.cli.args.options import find_run, json_option, load_option, looking_at, split_run, store_option
from everstep.cli.commands.runs.list import STATUS_COLOURS, origin, standing
from everstep.cli.commands.runs.log import NAMED
from everstep.cli.commands.runs.state import next_of, queued_json, task_lines
from everstep.cli.commands.runs.step import show_step, write_error
from everstep.cli.live.progress import chosen_of
from everstep.cli.view.groups import members_of
from everstep.cli.view.guards import guard_lines
from everstep.cli.view.lookup import Lookup
from everstep.cli.view.outline import is_beside_a_phase, node_at, outline
from everstep.cli.view.spooled import say_waiting, waiting_json
from everstep.cli.view.stages import of_interest
from everstep.cli.view.step_line import RESULT, scored
from everstep.cli.view.table import Cell, layout, screen_width
from everstep.cli.view.text import (
    act_said,
    count,
    duration,
    moment,
    one_line,
    write_json,
)
from everstep.cli.view.tree import Fold, base_of, name_of
from everstep.cli.view.waits import noun, settled, wait_json, wait_lines, waits_of
from everstep.client.plain_json import wire
from everstep.errors import EverstepError
from everstep.frontends.phases.places import GATES
from everstep.graph.author.joins import JoinNode
from everstep.graph.compile.plan import Plan
from everstep.model.address import map_of, plain_of
from everstep.model.enums import Trigger
from everstep.model.records import CHANNEL, CheckpointRecord, StepRecord
from everstep.model.waits import WaitOpened
from everstep.results import RunInfo, RunState

_GLYPHS = {
    Status.COMPLETED: "✓",
    Status.FAILED: "✗",
    Status.RETRYING: "↻",
    Status.RUNNING: "▶",
    Status.CANCELLED: "⊘",
    Status.HALTED: "‖",
}


@click.command()
@click.argument("run_id", metavar="RUN[/PATH]")
@click.argument("step", metavar="[STEP]", required=False)
@click.option("--full", is_flag=True, help="Show long values whole, and list every item of a map.")
@load_option
@store_option
@json_option
def show(
    run_id: str, step: str | None, full: bool, modules: tuple[str, ...], store: str | None, as_json: bool
) -> None:
    """Show a run, or one of its steps in full: what it read, what it wrote, why it failed.

    STEP is the number of a checkpoint, a node (its last visit), a visit such as draft@2, a node inside a flow
    such as rag/embed or rag@2/embed, or an item of a map such as check#7.

    \b
    Examples:
      everstep show A17
      everstep show A17 charge
      everstep show A17 rag@2/embed
      everstep show A17/rag@2/embed
    """
    with looking_at(store, modules, as_json=as_json) as host:
        run_id, path = split_run(find_run(host, run_id))
        step = "/".join(filter(None, (path, step))) or None
        if step is None:
            _show_run(host, run_id, store, whole=full, as_json=as_json)
            if not as_json:
                with contextlib.suppress(EverstepError):  # `log` and `verify` say what is wrong with them
                    say_waiting(host, run_id, store)
        else:
            show_step(host, run_id, step, whole=full, as_json=as_json)


_DONE = {
    Trigger.ADMISSION: "started",
    Trigger.RESUME: "resumed",
    Trigger.FORK: "forked",
    Trigger.CANCELLED: "cancelled",
}
"""What a person did with a checkpoint, by its trigger."""


class NodeLine:
    """What the records say of one node, over all visits to it and to the flows around it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.status: Status | None = None
        self.attempts = 0
        self.seconds = 0.0
        self.last: StepRecord | None = None
        self.was_opened = False
        """True for a flow whose steps are recorded."""
        self.items: int | None = None
        self.fold: Fold | None = None
        """The items of the last visit to a map."""
        self._visits: set[tuple[str, int]] = set()
        self.removed = 0
        """Visits whose steps were removed; a keyframe tells of them."""

    @property
    def visits(self) -> int:
        return len(self._visits) + self.removed

    @property
    def completed(self) -> int:
        return len(self.fold.completed) if self.fold is not None else 0

    @property
    def failed(self) -> int:
        return len(self.fold.failed) if self.fold is not None else 0

    def take(self, record: CheckpointRecord, step: StepRecord) -> None:
        """Take a step of the node itself."""
        self.status, self.last = step.status, step
        self._visits.add((step.path.rpartition("/")[0], step.visit))
        if step.status is Status.RUNNING:
            self.was_opened = self.was_opened or (
                step.key is None and step.stream is None and step.spent is None
            )
            if step.items is not None:
                self.items = step.items
                self.fold = Fold(record, base_of(step), 0, begins_record=False)
            return
        if step.status is Status.HALTED:
            return
        self.attempts += 1 if step.started_at is not None else 0
        if step.started_at is not None and step.ended_at is not None:
            self.seconds += (step.ended_at - step.started_at).total_seconds()


def fold(records: Sequence[CheckpointRecord], others: Iterable[str]) -> list[NodeLine]:
    """List the nodes in the order they first ran, then the others; those inside a flow below it."""
    lines = _from_keyframe(records[0]) if records and records[0].keyframe else {}
    for record in records:
        if record.trigger is Trigger.MIGRATION:
            lines = _under_new_names(lines, (record.metadata or {}).get("migrations", ()))
        for step in record.steps:
            if step.path.startswith("@"):
                continue
            base = map_of(step.path)
            if base is None:
                path = plain_of(step.path)
                lines.setdefault(path, NodeLine(path)).take(record, step)
            elif (line := lines.get(plain_of(base))) is not None and line.fold is not None:
                line.fold.take(record, step)
    for name in others:
        outer = lines.get(name.rpartition("/")[0])
        if "/" not in name or (outer is not None and outer.was_opened and outer.items is None):
            lines.setdefault(name, NodeLine(name))
    return list(_nested(lines, ""))


def _from_keyframe(record: CheckpointRecord) -> dict[str, NodeLine]:
    """Return how nodes stood where what came before was removed; the keyframe's own steps follow."""
    lines: dict[str, NodeLine] = {}
    own = Counter(plain_of(step.path) for step in record.steps)
    for path, node in record.state.nodes.items() if record.state is not None else ():
        if "#" not in path and node.visits > own[plain_of(path)]:
            line = lines.setdefault(plain_of(path), NodeLine(plain_of(path)))
            line.status = node.status or Status.COMPLETED
            line.removed += node.visits - own[plain_of(path)]
    return lines


_MOVED = re.compile(r"(rename|drop)_node\('([^']+)'(?:, '([^']+)')?\)")


def _under_new_names(lines: dict[str, NodeLine], rules: Iterable[str]) -> dict[str, NodeLine]:
    """Call nodes what the flow that the run went over to calls them; what was dropped is not at work."""
    for old, new in ((found[2], found[3]) for rule in rules if (found := _MOVED.fullmatch(rule))):
        moved: dict[str, NodeLine] = {}
        for name, line in lines.items():
            if name == old or name.startswith(f"{old}/"):
                if new is not None:
                    place, slash, _ = old.rpartition("/")
                    line.name = place + slash + new.rpartition("/")[2] + name[len(old) :]
                elif line.status not in (Status.COMPLETED, Status.FAILED):
                    line.status = Status.CANCELLED
            moved[line.name] = line
        lines = moved
    return lines


def _nested(lines: dict[str, NodeLine], around: str) -> Iterator[NodeLine]:
    below: dict[str, list[NodeLine]] = {}
    for name, line in lines.items():
        below.setdefault(name.rpartition("/")[0], []).append(line)
    todo = list(reversed(below.get(around, [])))
    while todo:
        line = todo.pop()
        yield line
        todo += reversed(below.get(line.name, []))


def _show_run(host: Host, run_id: str, store: str | None, *, whole: bool, as_json: bool) -> None:
    info = host.info(run_id)
    if info.needs_repair is not None and not as_json:
        status = click.style(standing(info), fg="red" if info.is_damaged else None, bold=True)
        click.echo(f"{click.style(run_id, bold=True)}  {status}")
    records, state = host.history(run_id), host.state(run_id)
    pending = () if info.status in (Status.COMPLETED, Status.CANCELLED) else state.frontier.pending
    coming, waiting = next_of(state) if pending else ([], [])
    others = [*map(plain_of, (*coming, *waiting)), *(place.name for place in outline(state.plan))]
    nodes = fold(records, others)
    waits = waits_of(host, run_id)
    if as_json:
        due = set(map(plain_of, pending))
        write_json(
            {
                **wire(info),
                "steps": state.counters.steps,
                "pending": list(pending),
                "next": coming,
                "queued": queued_json(state),
                "waits": [wait_json(wait) for wait in waits],
                "error": wire(state.error),
                "guards": wire(state.guards),
                "spooled": len(waiting_json(host, run_id)["spooled"]),
                "nodes": [_node_json(line, line.name in due) for line in nodes],
                "acts": acts_json(records),
            }
        )
        return
    _write_head(info, state, records, is_known=info.needs_repair is not None)
    places = {plain_of(path): "waiting" for path in waiting} | {plain_of(path): "next" for path in coming}
    lookup = Lookup(host, run_id, ())
    for text in _node_lines(nodes, places, state.plan, lookup, whole=whole):
        click.echo(text)
    if waits:
        click.secho("waits for", dim=True)
    for text in wait_lines(waits, store):
        click.echo(text)
    for text in task_lines(state) if pending else ():
        click.echo(text)
    if state.error is not None:
        click.echo()
        write_error(state.error.code, f"{state.error.type}: {state.error.message}", state.error.traceback)


def acts_json(records: Sequence[CheckpointRecord]) -> list[dict[str, Any]]:
    """Return who did what to a run, in order, with the checkpoint that tells of it and the step, if any."""
    found: list[dict[str, Any]] = []
    for record in records:
        about = {"checkpoint": record.sequence, "trigger": record.trigger.value}
        if record.act is not None:
            found.append({**about, "step": None, **wire(record.act)})
        found += [
            {**about, "step": name_of(step), **wire(step.act)}
            for step in record.steps
            if step.act is not None
        ]
    return found


def _write_head(
    info: RunInfo, state: RunState, records: Sequence[CheckpointRecord], *, is_known: bool
) -> None:
    status = click.style(standing(info), fg=STATUS_COLOURS[info.status], bold=True)
    if not is_known:
        click.echo(f"{click.style(info.run_id, bold=True)}  {status}")
    ended = f", ended {moment(info.ended_at)}, took {duration(info.duration)}" if info.ended_at else ""
    lines = {
        "flow": f"{info.flow} (version {info.flow_version})",
        "started": moment(info.created_at),
        "written": f"{count(state.counters.steps, 'step')} in {count(info.checkpoints, 'checkpoint')}",
    }
    if info.parent_run_id is not None:
        lines["forked"] = f"from {origin(info) or info.parent_run_id}"
    for record in records:
        name = _DONE.get(record.trigger)
        if record.act is not None and name is not None:
            lines[name] = " ".join(filter(None, (lines.get(name, ""), act_said(record.act))))
    lines["started"] += ended
    if info.acked_at is not None:
        lines["result taken"] = moment(info.acked_at)
    if info.pinned is not None:
        lines["pinned"] = ", ".join(filter(None, (one_line(info.pinned), act_said(info.pinned_by))))
    if info.priority or info.group:
        group = f", group {one_line(info.group)}" if info.group else ""
        lines["priority"] = f"{info.priority}{group}"
    if info.needs_repair is not None:
        name, why = ("damaged", info.needs_repair) if info.is_damaged else info.needs_repair.split(": ", 1)
        lines[name] = f"{one_line(why).rstrip('.')}. Workers leave it alone until it is resumed."
    for name, text in (*lines.items(), *guard_lines(state.guards)):
        click.echo(f"  {click.style(name.ljust(9), dim=True)} {text}")


def _node_lines(
    nodes: Sequence[NodeLine], places: Mapping[str, str], plan: Plan, lookup: Lookup, *, whole: bool
) -> list[str]:
    rows = []
    for line in nodes:
        place = places.get(line.name, "")
        if line.last is None and not (place or line.removed) and is_beside_a_phase(plan, line.name):
            continue
        glyph, colour = "·", "bright_black"
        if line.status is not None and not (line.status is Status.COMPLETED and place):
            is_bad = line.last is not None and line.last.outcome == "fail"  # a stage that failed
            status = Status.FAILED if is_bad else line.status
            glyph, colour = _GLYPHS.get(status, "·"), STATUS_COLOURS[status]
        indent, name = "  " * line.name.count("/"), line.name.rpartition("/")[2]
        rows.append(
            [
                Cell(f"  {glyph}", colour),
                Cell(indent + name),
                Cell(duration(line.seconds) if line.seconds else "", dim=True),
                Cell(_note(line, place, plan, lookup), dim=line.last is None and not place),
            ]
        )
        rows += _failed_items(line, f"{indent}  ", whole=whole)
    return layout(rows, screen_width())


def _failed_items(line: NodeLine, indent: str, *, whole: bool) -> list[list[Cell]]:
    failures = line.fold.lasting if line.fold is not None else []
    shown = failures if whole else failures[:NAMED]
    rows = []
    for failure in shown:
        step = failure.step
        took = duration(step.ended_at - step.started_at) if step.ended_at and step.started_at else ""
        error = f"{step.error.type}: {one_line(step.error.message)}" if step.error is not None else ""
        name = Cell(indent + failure.name)
        rows.append([Cell("  ✗", "red"), name, Cell(took, dim=True), Cell(error)])
    if len(shown) < len(failures):
        more = ", ".join(failure.name for failure in failures[len(shown) :])
        rows.append([Cell("  ✗", "red"), Cell(f"{indent}also"), Cell(""), Cell(more)])
    return rows


def _note(line: NodeLine, place: str, plan: Plan, lookup: Lookup) -> str:
    node = node_at(plan, line.name)
    kind = members_of(node) if isinstance(node, JoinNode) else ""
    if "/" not in line.name and plan.index.get(line.name) in plan.tasks:
        kind = "task"
    parts = [kind] if kind else []
    if line.last is None and line.removed:
        visits = f"×{line.removed}, " if line.removed > 1 else ""
        return ", ".join([*parts, place or f"{visits}its checkpoints were removed"])
    if line.last is None:
        return ", ".join([*parts, place or "not reached"])
    if line.visits > 1:
        parts.append(f"×{line.visits}")
    if line.attempts > line.visits:
        parts.append(count(line.attempts, "attempt"))
    if line.items is not None:
        parts.append(_items(line))
    if line.last.wait is not None:
        parts.append(_waited(line.last, line.last.wait, lookup))
    if line.last.decision is not None:
        parts.append(f"→ {chosen_of(line.last.decision)}")
        parts += [told] if (told := scored(line.last, lookup)) else []
    if line.last.error is not None:
        parts.append(f"{line.last.error.type}: {one_line(line.last.error.message)}")
    elif line.status is Status.CANCELLED:
        parts.append("cancelled")
    parts += _written(line.last)
    if place and line.status is not Status.FAILED:
        parts.append(place)
    return ", ".join(parts)


def _waited(step: StepRecord, opened: WaitOpened, lookup: Lookup) -> str:
    """Say what a node waits for, or what it was told."""
    if step.status is Status.HALTED:
        return f"waits for {noun(opened.kind)}"
    wait = lookup.wait(opened.wait_id)
    return settled(wait) if wait is not None else " ".join(filter(None, ("settled", act_said(step.act))))


def _items(line: NodeLine) -> str:
    parts = [f"{line.completed:,} completed"] + ([f"{line.failed:,} failed"] if line.failed else [])
    return f"{count(line.items or 0, 'item')}: {' '.join(parts)}"


def _written(step: StepRecord) -> Iterator[str]:
    own = [w.name for w in step.writes if w.name[0] != "@" and not w.name.endswith(RESULT)]
    changes = of_interest(step, (w for w in step.writes if w.name.startswith(CHANNEL)))
    keys = [w.name.removeprefix(CHANNEL) for w in changes]
    if step.decision is not None:
        keys = [key for key in keys if key != GATES]
    if own:
        yield f"writes {', '.join(own)}"
    if keys:
        yield f"channel {', '.join(dict.fromkeys(keys))}"
    if step.queued:
        yield f"{'goes to' if step.goto else 'queues'} {', '.join(task.node for task in step.queued)}"


def _node_json(line: NodeLine, is_pending: bool) -> dict[str, Any]:
    last = line.last
    items = None
    if line.items is not None:
        items = {"count": line.items, "completed": line.completed, "failed": line.failed}
    return {
        "node": line.name,
        "status": line.status.value if line.status is not None else None,
        "visits": line.visits,
        "attempts": line.attempts,
        "seconds": line.seconds,
        "items": items,
        "decision": list(last.decision) if last is not None and last.decision is not None else None,
        "error": wire(last.error) if last is not None else None,
        "act": wire(last.act) if last is not None else None,
        "is_pending": is_pending,
    }
