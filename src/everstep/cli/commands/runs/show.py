"""`everstep show`: a run at a glance, or one of its steps in full."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import click

from everstep import Host, Status
from everstep.cli.args.options import find_run, json_option, load_option, looking_at, split_run, store_option
from everstep.cli.commands.runs.list import origin, standing
from everstep.cli.commands.runs.log import NAMED
from everstep.cli.commands.runs.state import read, task_lines
from everstep.cli.commands.runs.step import show_step, write_error
from everstep.cli.view.groups import members_of
from everstep.cli.view.guards import guard_lines
from everstep.cli.view.labels import attributes_said, tags_said
from everstep.cli.view.lookup import RECENT, Lookup, Pages
from everstep.cli.view.outline import is_beside_a_phase
from everstep.cli.view.pauses import pause_of, paused_by, unpause_line
from everstep.cli.view.spooled import say_waiting
from everstep.cli.view.spooled import waiting as waiting_here
from everstep.cli.view.stages import of_interest
from everstep.cli.view.step_line import RESULT, scored
from everstep.cli.view.table import Cell, layout, screen_width
from everstep.cli.view.text import (
    STATUS_COLOURS,
    act_said,
    chosen_of,
    count,
    duration,
    moment,
    one_line,
    times_said,
    write_json,
)
from everstep.cli.view.waits import noun, settled, wait_json, wait_lines, waits_of
from everstep.client.documents import ShowDocument, queued_in
from everstep.client.outline import node_at, standing_of
from everstep.client.projection import Items, NodeLine, Projection, inside
from everstep.codec.wire import wire
from everstep.errors import EverstepError, RunNotFound
from everstep.frontends.phases.places import GATES
from everstep.graph.author.joins import JoinNode
from everstep.graph.compile.plan import Plan, deep_nodes
from everstep.graph.draw.outline import outline
from everstep.model.address import plain_of
from everstep.model.enums import Trigger
from everstep.model.records import CHANNEL, StepRecord
from everstep.model.waits import WaitOpened
from everstep.results import PauseInfo, RunInfo, RunState

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
@click.option(
    "--full",
    is_flag=True,
    help="Long values, every item of a map, and a long run: each whole.",
)
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


def _show_run(host: Host, run_id: str, store: str | None, *, whole: bool, as_json: bool) -> None:
    info = host.info(run_id)
    if info.needs_repair is not None and not as_json:
        status = click.style(standing(info), fg="red" if info.is_damaged else None, bold=True)
        click.echo(f"{click.style(run_id, bold=True)}  {status}")
    state = host.state(run_id)
    told, since = projected(host, run_id, state, whole=whole or as_json)
    stands = standing_of(told, state)
    nodes, pending, coming, waiting = stands
    waits = waits_of(host, run_id)
    if as_json:
        document = ShowDocument.with_more(
            info,
            steps=state.counters.steps,
            pending=pending,
            next=coming,
            queued=queued_in(state, partial(read, state)),
            waits=[wait_json(wait) for wait in waits],
            error=state.error,
            guards=state.guards,
            spooled=len(waiting_here(host, run_id).spooled),
            nodes=[line.info(is_pending=line.name in stands.due) for line in nodes],
            acts=told.acts,
            **state.times(),
        )
        write_json(wire(document))
        return
    _write_head(info, state, told, pause_of(host, info), store)
    if since:
        newest = f"the newest {count(info.checkpoints - since, 'checkpoint')}"
        _write_line("counted", f"attempts, times and who did what: of {newest}; of all with --full")
    places = {plain_of(path): "waiting" for path in waiting} | {plain_of(path): "next" for path in coming}
    lookup = Lookup(host, run_id, ())
    older = "its steps are older" if since else "its checkpoints were removed"
    for text in _node_lines(nodes, places, state.plan, lookup, older, whole=whole):
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


def projected(host: Host, run_id: str, state: RunState, *, whole: bool) -> tuple[Projection, int]:
    """Read a run page by page; no more than a page of its records is held.

    Unless it is wanted whole, of a long run only the newest checkpoints are read, and how it stood before
    them is known from its state. Also return the checkpoint behind which they begin, or 0.
    """
    told, count = Projection(), sum(1 for _ in deep_nodes(state.plan))
    since = 0 if whole else max(0, state.sequence - RECENT - 2 * count)
    if since:
        try:
            before = host.state(run_id, since)
        except RunNotFound:  # it was removed
            since = 0
        else:
            told.take(host.history(run_id, after=0, count=1))  # who started it
            order = {place.name: k for k, place in enumerate(outline(state.plan))}
            nodes = sorted(before.nodes.items(), key=lambda node: order.get(plain_of(node[0]), len(order)))
            told.begin(dict(nodes), before.opened)
            told.cursor = since
    for page in Pages(host, run_id, after=since):
        told.take(page)
    return told, since


def _write_head(
    info: RunInfo, state: RunState, told: Projection, pause: PauseInfo | None, store: str | None
) -> None:
    is_paused = pause is not None
    status = click.style(standing(info, is_paused=is_paused), fg=STATUS_COLOURS[info.status], bold=True)
    if info.needs_repair is None:  # else it was said before its records were read
        click.echo(f"{click.style(info.run_id, bold=True)}  {status}")
    ended = f", ended {moment(info.ended_at)}, took {duration(info.duration)}" if info.ended_at else ""
    lines = {
        "flow": f"{info.flow} (version {info.flow_version})",
        "started": moment(info.created_at),
        "written": f"{count(state.counters.steps, 'step')} in {count(info.checkpoints, 'checkpoint')}",
    }
    if info.parent_run_id is not None:
        lines["forked"] = f"from {origin(info) or info.parent_run_id}"
    if info.starter_run_id is not None:
        lines["child"] = f"of {info.starter_run_id}, started by {info.starter_node}"
    if info.undoing is not None:
        lines["undo"] = info.undoing
    lines |= times_said(state.begins_at, state.ends_at)
    for act in told.acts:
        name = _DONE.get(act.trigger)
        if act.step is None and name is not None:
            lines[name] = " ".join(filter(None, (lines.get(name, ""), act_said(act))))
    lines["started"] += ended
    if info.acked_at is not None:
        lines["result taken"] = moment(info.acked_at)
    if info.pinned is not None:
        lines["pinned"] = ", ".join(filter(None, (one_line(info.pinned), act_said(info.pinned_by))))
    if info.priority or info.group:
        group = f", group {one_line(info.group)}" if info.group else ""
        lines["priority"] = f"{info.priority}{group}"
    if info.tags:
        lines["tags"] = tags_said(info)
    if info.attributes:
        lines["attributes"] = attributes_said(info)
    if pause is not None:
        lines["paused"] = f"{paused_by(pause)}. Let it go on: {unpause_line(pause, store)}"
    if info.needs_repair is not None:
        name, why = ("damaged", info.needs_repair) if info.is_damaged else info.needs_repair.split(": ", 1)
        lines[name] = f"{one_line(why).rstrip('.')}. Workers leave it alone until it is resumed."
    for name, text in (*lines.items(), *guard_lines(state.guards)):
        _write_line(name, text)


def _write_line(name: str, text: str) -> None:
    click.echo(f"  {click.style(name.ljust(9), dim=True)} {text}")


def _node_lines(
    nodes: Sequence[NodeLine],
    places: Mapping[str, str],
    plan: Plan,
    lookup: Lookup,
    older: str,
    *,
    whole: bool,
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
                Cell(_note(line, place, plan, lookup, older), dim=line.last is None and not place),
            ]
        )
        rows += _failed_items(line, f"{indent}  ", whole=whole)
    return layout(rows, screen_width())


def _failed_items(line: NodeLine, indent: str, *, whole: bool) -> list[list[Cell]]:
    failures = line.items.lasting if line.items is not None else []
    shown = failures if whole else failures[:NAMED]
    rows = []
    for step in shown:
        took = duration(step.ended_at - step.started_at) if step.ended_at and step.started_at else ""
        error = f"{step.error.type}: {one_line(step.error.message)}" if step.error is not None else ""
        name = Cell(indent + inside(step))
        rows.append([Cell("  ✗", "red"), name, Cell(took, dim=True), Cell(error)])
    if len(shown) < len(failures):
        more = ", ".join(map(inside, failures[len(shown) :]))
        rows.append([Cell("  ✗", "red"), Cell(f"{indent}also"), Cell(""), Cell(more)])
    return rows


def _note(line: NodeLine, place: str, plan: Plan, lookup: Lookup, older: str) -> str:
    node = node_at(plan, line.name)
    kind = members_of(node) if isinstance(node, JoinNode) else ""
    if "/" not in line.name and plan.index.get(line.name) in plan.tasks:
        kind = "task"
    parts = [kind] if kind else []
    if line.last is None and line.removed:
        visits = f"×{line.removed}, " if line.removed > 1 else ""
        return ", ".join([*parts, place or f"{visits}{older}"])
    if line.last is None:
        return ", ".join([*parts, place or "not reached"])
    if line.visits > 1:
        parts.append(f"×{line.visits}")
    if line.attempts > line.visits:
        parts.append(count(line.attempts, "attempt"))
    if line.items is not None:
        parts.append(_items(line.items))
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


def _items(items: Items) -> str:
    failed = [f"{len(items.failed):,} failed"] if items.failed else []
    return f"{count(items.count, 'item')}: {' '.join([f'{items.completed:,} completed', *failed])}"


def _written(step: StepRecord) -> Iterator[str]:
    own = [w.name for w in step.writes if w.name[0] not in "@$" and not w.name.endswith(RESULT)]
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
