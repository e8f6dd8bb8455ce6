"""`everstep show`: a run at a glance, or one of its steps in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import click

from everstep import Host, RunInfo, RunState, Status
from everstep.cli.listing import STATUS_COLOURS, info_json, origin, standing
from everstep.cli.log import record_json, step_json, step_name
from everstep.cli.lookup import Lookup
from everstep.cli.options import find_run, json_option, load_option, looking_at, store_option
from everstep.cli.outline import outline, split_pending
from everstep.cli.plain import (
    clock_time,
    count,
    duration,
    error_json,
    full,
    moment,
    one_line,
    preview,
    printable,
    size,
    write_json,
)
from everstep.cli.progress import chosen_of
from everstep.cli.table import Cell, layout, screen_width, wide
from everstep.errors import RunNotFound
from everstep.model.records import FORK, INPUTS, CheckpointRecord, StepRecord

_GLYPHS = {
    Status.COMPLETED: "✓",
    Status.FAILED: "✗",
    Status.RETRYING: "↻",
    Status.RUNNING: "▶",
}


@click.command()
@click.argument("run_id", metavar="RUN")
@click.argument("step", metavar="[STEP]", required=False)
@load_option
@store_option
@json_option
def show(run_id: str, step: str | None, modules: tuple[str, ...], store: str | None, as_json: bool) -> None:
    """Show a run, or one of its steps in full: what it read, what it wrote, why it failed.

    STEP is the number of a checkpoint, a node (its last visit), or a visit such as draft@2.

    \b
    Examples:
      everstep show A17
      everstep show A17 charge
    """
    with looking_at(store, modules, as_json=as_json) as host:
        run_id = find_run(host, run_id)
        if step is None:
            _show_run(host, run_id, as_json=as_json)
        else:
            _show_step(host, run_id, step, as_json=as_json)


class NodeLine:
    """What the records say of one node: the fold of its steps, for reading."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.status: Status | None = None
        self.visits = 0
        self.attempts = 0
        self.seconds = 0.0
        self.last: StepRecord | None = None

    def take(self, step: StepRecord) -> None:
        self.status, self.last = step.status, step
        self.visits = max(self.visits, step.visit)
        if step.status is not Status.RUNNING:
            self.attempts += 1 if step.started_at is not None else 0
        if step.started_at is not None and step.ended_at is not None:
            self.seconds += (step.ended_at - step.started_at).total_seconds()


def fold(records: Sequence[CheckpointRecord], others: Sequence[str]) -> list[NodeLine]:
    """List the nodes in the order they first ran, then the others."""
    lines: dict[str, NodeLine] = {}
    for record in records:
        for step in record.steps:
            if not step.path.startswith("@"):
                lines.setdefault(step.path, NodeLine(step.path)).take(step)
    for name in others:
        lines.setdefault(name, NodeLine(name))
    return list(lines.values())


def _show_run(host: Host, run_id: str, *, as_json: bool) -> None:
    info, records = host.info(run_id), host.history(run_id)
    state = host.state(run_id)
    pending = () if info.status in (Status.COMPLETED, Status.CANCELLED) else state.frontier.pending
    coming, waiting = split_pending(state.plan, pending)
    nodes = fold(records, [*coming, *waiting, *(place.name for place in outline(state.plan))])
    if as_json:
        write_json(
            {
                **info_json(info),
                "steps": state.counters.steps,
                "pending": list(pending),
                "next": coming,
                "error": error_json(state.error),
                "nodes": [_node_json(line, line.name in pending) for line in nodes],
            }
        )
        return
    _write_head(info, state)
    for text in _node_lines(nodes, coming, waiting):
        click.echo(text)
    if state.error is not None:
        click.echo()
        write_error(state.error.code, f"{state.error.type}: {state.error.message}", state.error.traceback)


def _write_head(info: RunInfo, state: RunState) -> None:
    status = click.style(standing(info), fg=STATUS_COLOURS[info.status], bold=True)
    click.echo(f"{click.style(info.run_id, bold=True)}  {status}")
    ended = f", ended {moment(info.ended_at)}, took {duration(info.duration)}" if info.ended_at else ""
    lines = {
        "flow": f"{info.flow} (version {info.flow_version})",
        "started": f"{moment(info.created_at)}{ended}",
        "written": f"{count(state.counters.steps, 'step')} in {count(info.checkpoints, 'checkpoint')}",
    }
    if info.parent_run_id is not None:
        lines["forked"] = f"from {origin(info) or info.parent_run_id}"
    for name, text in lines.items():
        click.echo(f"  {click.style(name.ljust(9), dim=True)} {text}")


def _node_lines(nodes: Sequence[NodeLine], coming: Sequence[str], waiting: Sequence[str]) -> list[str]:
    rows = []
    for line in nodes:
        place = "next" if line.name in coming else "waiting" if line.name in waiting else ""
        glyph, colour = "·", "bright_black"
        if line.status is not None and not (line.status is Status.COMPLETED and place):
            glyph, colour = _GLYPHS.get(line.status, "·"), STATUS_COLOURS[line.status]
        rows.append(
            [
                Cell(f"  {glyph}", colour),
                Cell(line.name),
                Cell(duration(line.seconds) if line.last is not None else "", dim=True),
                Cell(_note(line, place), dim=line.last is None and not place),
            ]
        )
    return layout(rows, screen_width())


def _note(line: NodeLine, place: str) -> str:
    if line.last is None:
        return place or "not reached"
    parts = []
    if line.visits > 1:
        parts.append(f"×{line.visits}")
    if line.attempts > line.visits:
        parts.append(count(line.attempts, "attempt"))
    if line.last.decision is not None:
        parts.append(f"→ {chosen_of(line.last.decision)}")
    if line.last.error is not None:
        parts.append(f"{line.last.error.type}: {one_line(line.last.error.message)}")
    elif line.last.writes:
        parts.append("writes " + ", ".join(w.name for w in line.last.writes))
    if place and line.status is not Status.FAILED:
        parts.append(place)
    return ", ".join(parts)


def _node_json(line: NodeLine, is_pending: bool) -> dict[str, Any]:
    last = line.last
    return {
        "node": line.name,
        "status": line.status.value if line.status is not None else None,
        "visits": line.visits,
        "attempts": line.attempts,
        "seconds": line.seconds,
        "decision": list(last.decision) if last is not None and last.decision is not None else None,
        "error": error_json(last.error) if last is not None else None,
        "is_pending": is_pending,
    }


# -- one step ---------------------------------------------------------------------------------------------

Found = list[tuple[CheckpointRecord, StepRecord]]


def find_steps(records: Sequence[CheckpointRecord], wanted: str) -> Found:
    """Return the steps that STEP means; of a node all attempts of one visit."""
    record = _checkpoint(records, wanted)
    if record is not None:
        return [(record, step) for step in record.steps]
    name, _, visit = wanted.partition("@")
    marked = f"@{wanted.removeprefix('@')}"
    if marked in (INPUTS, FORK) and (wanted == marked or not _has_node(records, wanted)):
        name, visit = marked, ""
    steps = [(record, step) for record in records for step in record.steps if step.path == name]
    if not steps or (visit and not visit.isdecimal()):
        return []
    number = int(visit) if visit else max(step.visit for _, step in steps)
    return [(record, step) for record, step in steps if step.visit == number]


def _checkpoint(records: Sequence[CheckpointRecord], wanted: str) -> CheckpointRecord | None:
    """Return the checkpoint of that number; the first ones may have been removed."""
    at = int(wanted) - records[0].sequence if wanted.isdecimal() and records else -1
    return records[at] if 0 <= at < len(records) else None


def _has_node(records: Sequence[CheckpointRecord], name: str) -> bool:
    return any(step.path == name for record in records for step in record.steps)


def _show_step(host: Host, run_id: str, wanted: str, *, as_json: bool) -> None:
    records = host.history(run_id)
    lookup = Lookup(host, run_id, records)
    checkpoint = _checkpoint(records, wanted)
    found = find_steps(records, wanted)
    if not found and checkpoint is None:
        _say_why_not(host.state(run_id), records, wanted)
    if as_json:
        steps = [
            {"checkpoint": record.sequence, **step_json(step, lookup), "inputs": _inputs(step, lookup)}
            for record, step in found
        ]
        shown = {"record": record_json(checkpoint, lookup)} if checkpoint is not None else {}
        write_json({"run_id": run_id, **shown, "steps": steps})
        return
    if checkpoint is not None:
        _write_record(checkpoint)
    for k, (record, step) in enumerate(found):
        if k or checkpoint is not None:
            click.echo()
        _write_step(record, step, lookup)


def _say_why_not(state: RunState, records: Sequence[CheckpointRecord], wanted: str) -> NoReturn:
    names = dict.fromkeys(s.path for r in records for s in r.steps if not s.path.startswith("@"))
    numbers = f"{records[0].sequence} to {records[-1].sequence}" if records else "none"
    fix = f"It has checkpoints {numbers} and steps of {', '.join(names) or 'no node'}."
    if wanted not in state.plan.index:
        raise RunNotFound(f"run {state.run_id!r} has no step {wanted!r}.", fix=fix)
    coming, waiting = split_pending(state.plan, () if state.status.is_final else state.frontier.pending)
    if wanted in coming:
        raise RunNotFound(f"{wanted} has not reported yet; it is next.", fix=fix)
    if wanted in waiting:
        raise RunNotFound(f"{wanted} has not run yet; it waits for {', '.join(coming)}.", fix=fix)
    raise RunNotFound(f"{wanted} was not reached.", fix=fix)


def _inputs(step: StepRecord, lookup: Lookup) -> dict[str, Any]:
    return {name: lookup.value(name, version) for name, version in step.reads.items()}


def _write_record(record: CheckpointRecord) -> None:
    click.secho(f"checkpoint {record.sequence}  {record.trigger.value}", bold=True)
    lines = {
        "id": record.checkpoint_id,
        "written": moment(record.created_at),
        "status": record.status.value,
        "digest": record.digest,
    }
    if record.metadata:
        lines["metadata"] = preview(record.metadata, wide())
    for name, text in lines.items():
        click.echo(f"  {click.style(name.ljust(9), dim=True)} {text}")


def _write_step(record: CheckpointRecord, step: StepRecord, lookup: Lookup) -> None:
    name = step_name(step)
    status = click.style(step.status.value, fg=STATUS_COLOURS[step.status])
    click.echo(
        f"{click.style(name, bold=True)}  {status}, attempt {step.attempts}, checkpoint {record.sequence}"
    )
    lines: dict[str, str] = {}
    if step.started_at is not None and step.ended_at is not None:
        took = duration(step.ended_at - step.started_at)
        lines["ran"] = f"{clock_time(step.started_at)} to {clock_time(step.ended_at)}, {took}"
    if step.key is not None:
        lines["key"] = printable(step.key)
    if step.decision is not None:
        lines["chose"] = chosen_of(step.decision)
    if step.retry_at is not None:
        lines["again at"] = clock_time(step.retry_at)
    for label, text in lines.items():
        click.echo(f"  {click.style(label.ljust(9), dim=True)} {text}")
    for value, version in step.reads.items():
        write_value("read", value, version, lookup.value(value, version))
    for w in step.writes:
        note = size(w.size) + (", artifact" if w.artifact is not None else "")
        added = lookup.added(w)
        if added is None:
            write_value("wrote", w.name, w.version, lookup.value(w.name, w.version), note=note)
        else:
            sign = f"+ {count(len(added), 'item')}:"
            write_value(
                "wrote", w.name, w.version, added[0] if len(added) == 1 else added, sign=sign, note=note
            )
    if step.error is not None:
        write_error(step.error.code, f"{step.error.type}: {step.error.message}", step.error.traceback)


def write_value(
    verb: str, name: str, version: int, value: object, *, sign: str = "=", note: str = ""
) -> None:
    """Write one value of a step, whole."""
    shown = full(value, wide(), 12)
    extra = click.style(f"  [{note}]", dim=True) if note else ""
    mark = click.style(f" (version {version})", dim=True) if version > 1 else ""
    head = f"  {click.style(verb.ljust(9), dim=True)} {name}{mark} {sign}"
    click.echo(f"{head}{extra}{shown}" if shown.startswith("\n") else f"{head} {shown}{extra}")


def write_error(code: str, message: str, trace: str) -> None:
    """Write what a step raised, with the traceback of the user's code below."""
    click.echo(f"  {click.style(f'error [{code}]', fg='red', bold=True)} {one_line(message)}")
    for line in printable(trace).rstrip().splitlines():
        click.secho(f"    {line}", dim=True)
