"""`everstep show RUN STEP`: one step in full, and what is inside it if it is a flow."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NoReturn

import click

from everstep import Host
from everstep.cli.commands.runs.log import LogRows
from everstep.cli.view.lookup import RECENT, Lookup, Pages
from everstep.cli.view.outline import gathered
from everstep.cli.view.step_line import call_of, request_of
from everstep.cli.view.table import Cell, Table, wide
from everstep.cli.view.text import (
    STATUS_COLOURS,
    act_said,
    chosen_of,
    clock_time,
    count,
    duration,
    extent,
    full,
    moment,
    one_line,
    preview,
    printable,
    size,
    write_json,
)
from everstep.cli.view.waits import noun, settled
from everstep.client.checkpoint_steps import RecordInfo, StepInfo, StepLogInfo
from everstep.client.outline import node_at, split_pending
from everstep.client.projection import Fold, Log, base_of, name_of
from everstep.codec.plain_json import Wire, jsonable
from everstep.codec.wire import wire
from everstep.errors import RunNotFound
from everstep.model.address import Address, Part, find, map_of, part_of, plain_of
from everstep.model.enums import Status, ValueForm
from everstep.model.records import (
    CHANNEL,
    FORK,
    INPUTS,
    STREAM,
    WAIT,
    CheckpointRecord,
    QueuedTask,
    StepRecord,
    Written,
)
from everstep.model.records import RESULT as CALL
from everstep.model.waits import WaitOpened
from everstep.results import RunState

Found = list[tuple[CheckpointRecord, StepRecord]]
SHOWN_NAMES = 12
MOST_LINES = 20
"""How many lines of a value are shown unless it is wanted whole."""


class Search:
    """What one reading of a run finds: which steps STEP means, and what there is if it means none."""

    def __init__(self, pages: Iterable[Sequence[CheckpointRecord]], wanted: str) -> None:
        self.wanted = wanted
        self.checkpoint: CheckpointRecord | None = None
        """The one that STEP is the number of."""
        self.first: CheckpointRecord | None = None
        self.last = 0
        self.names: dict[str, None] = {}
        """The nodes outside of maps that took steps."""
        self.items: dict[str, str] = {}
        """By the path of a node inside a map, the first step of it."""
        self.item: Part | None = None
        """The item that STEP means, if steps inside it were taken."""
        self._address = Address.parse(wanted)
        place = find(((step.path, step.visit) for step in self._passing(pages)), wanted)
        marked = f"@{wanted.removeprefix('@')}"
        if marked in (INPUTS, FORK) and (wanted == marked or place is None):
            place = (marked, 1)
        self.place = place
        """The path and the visit that it means, if it is no number."""

    def _passing(self, pages: Iterable[Sequence[CheckpointRecord]]) -> Iterator[StepRecord]:
        for record in (record for page in pages for record in page):
            self.first, self.last = self.first or record, record.sequence
            if self.wanted.isdecimal() and record.sequence == int(self.wanted):
                self.checkpoint = record
            for step in record.steps:
                if map_of(step.path) is not None:
                    self.items.setdefault(plain_of(step.path), step.path)
                    self._look_around(step)
                elif step.path[0] != "@":
                    self.names.setdefault(plain_of(step.path))
                yield step

    def _look_around(self, step: StepRecord) -> None:
        if self._address is not None and self._address.segments[-1].item is not None:
            self.item = part_of(self._address, step.path, step.visit) or self.item

    def inside(self, pages: Iterable[Sequence[CheckpointRecord]]) -> Found:
        """Return the steps inside the item that is meant."""
        steps = ((record, step) for page in pages for record in page for step in record.steps)
        item = self.item
        return [(r, step) for r, step in steps if item is not None and item.holds(step.path, step.visit)]

    def steps(self, pages: Iterable[Sequence[CheckpointRecord]]) -> Found:
        """Return the steps that are meant; of a node all attempts of one visit."""
        if self.checkpoint is not None:
            return [(self.checkpoint, step) for step in self.checkpoint.steps]
        steps = ((record, step) for page in pages for record in page for step in record.steps)
        return [(record, step) for record, step in steps if (step.path, step.visit) == self.place]


def show_step(host: Host, run_id: str, wanted: str, *, whole: bool, as_json: bool) -> None:
    """Show what STEP means: what it read, what it wrote, why it failed, what is inside."""
    pages = Pages(host, run_id) if whole else _pages_around(host, run_id, wanted)
    search = Search(pages, wanted)
    if search.checkpoint is None and search.place is None and search.item is None:
        pages = Pages(host, run_id)
        search = Search(pages, wanted)
    checkpoint, found = search.checkpoint, search.steps(pages)
    if not found and checkpoint is None:
        if search.item is None and _show_logs_alone(host, run_id, wanted, as_json=as_json):
            return
        if search.item is None:
            _say_why_not(host.state(run_id), search)
        if not as_json:
            item = StepRecord(path=search.item.path)
            click.echo(f"{click.style(name_of(item), bold=True)}  has not ended")
            _write_inside(host, run_id, pages, item, whole=whole)
            return
        found = search.inside(pages)
    places = {(step.path, step.visit) for _, step in found}
    logs = [log for log in host.debug.logs(run_id) if (log.node, log.visit) in places]
    lookup = Lookup(host, run_id, ())
    newest = max((record.sequence for record, _ in found), default=None)
    lookup.turn_to((step for _, step in found), with_reads=True, upto=newest)
    if as_json:
        steps = [
            Wire(
                wire(StepInfo.of(step, lookup)),
                checkpoint=record.sequence,
                inputs={name: jsonable(lookup.read(step, name)) for name in step.reads},
            )
            for record, step in found
        ]
        about = {"record": wire(RecordInfo.of(checkpoint, lookup))} if checkpoint is not None else {}
        told = {"logs": [wire(log) for log in logs]} if logs else {}
        write_json({"run_id": run_id, **about, "steps": steps, **told})
        return
    if checkpoint is not None:
        _write_record(checkpoint)
    asked = {step.task for _, step in found if step.task is not None}
    tasks = _tasks(pages, asked)
    if len(tasks) < len(asked):
        tasks = _tasks(Pages(host, run_id), asked)
    shown = [_only(record, [step]) for record, step in _without_opening(found)]
    shown = shown if checkpoint is None else [checkpoint]
    is_first = checkpoint is None
    log = Log(full=whole or checkpoint is None)
    teller = LogRows(host.state(run_id).plan, Lookup(host, run_id, ()), log, run_id)
    for line in chain(log.take(shown), log.rest()):
        if not is_first:
            click.echo()
        is_first = False
        if isinstance(line, Fold):
            line.depth = 0
            Table(()).write([_indented(row) for row in teller.rows(line, is_new=False)])
        elif line.step.path != "@":
            _write_step(line.record, line.step, lookup, tasks.get(line.step.task or 0), whole=whole)
    _write_logs(logs, whole=whole)
    if checkpoint is None:
        _write_inside(host, run_id, pages, found[-1][1], whole=whole)


def _show_logs_alone(host: Host, run_id: str, wanted: str, *, as_json: bool) -> bool:
    """Show what a step logged that has not reported, as its process died or goes on; false if nothing."""
    kept = host.debug.logs(run_id)
    place = find(((log.node, log.visit) for log in kept), wanted)
    logs = [log for log in kept if (log.node, log.visit) == place]
    if logs and as_json:
        write_json({"run_id": run_id, "steps": [], "logs": [wire(log) for log in logs]})
    elif logs:
        click.echo(f"{click.style(wanted, bold=True)}  has not reported")
        _write_logs(logs, whole=True)
    return bool(logs)


def _write_logs(logs: Sequence[StepLogInfo], *, whole: bool) -> None:
    """Write what attempts at steps logged and printed; of a long log only the last lines, unless `whole`."""
    lives = Counter((log.node, log.visit, log.attempt) for log in logs)
    for log in logs:
        lines = printable(log.text).splitlines()
        left = 0 if whole else max(0, len(lines) - MOST_LINES)
        head = f"attempt {log.attempt} of {name_of(StepRecord(path=log.node, visit=log.visit))}"
        if lives[log.node, log.visit, log.attempt] > 1:
            head += f", epoch {log.epoch}"
        click.echo(f"  {click.style('log'.ljust(9), dim=True)} {head}")
        if left:
            click.secho(f"    … {count(left, 'line')} before these; --full shows all", dim=True)
        for line in lines[left:]:
            click.echo(f"    {line}")


def _pages_around(host: Host, run_id: str, wanted: str) -> Pages:
    """Return the pages that what STEP means lies in, as far as the states of a long run tell.

    Attempts that failed long before the run was resumed may lie outside of them.
    """
    state, address = host.state(run_id), Address.parse(wanted)
    if state.sequence <= RECENT or address is None:
        return Pages(host, run_id)
    if wanted.isdecimal():
        return Pages(host, run_id, after=int(wanted) - 1, upto=int(wanted))
    name, visit = address.segments[0].name, address.segments[0].visit
    if name == INPUTS[1:] and name not in state.nodes:
        return Pages(host, run_id, upto=RECENT)
    if visit is None:
        visit = _ended(state, name) + _is_under_way(state, name)
    oldest = max(1, host.info(run_id).trimmed_before)
    last = oldest + bisect_left(
        range(oldest, state.sequence), visit, key=lambda at: _ended(host.state(run_id, at), name)
    )
    first = last - RECENT
    while first > oldest and _is_under_way(host.state(run_id, first), name):
        first -= last - first
    return Pages(host, run_id, after=max(0, first), upto=last)


def _ended(state: RunState, name: str) -> int:
    """Return how many visits to a node have ended for good; one that failed may go on."""
    node = state.nodes.get(name)
    return 0 if node is None else node.visits - (node.status is Status.FAILED)


def _is_under_way(state: RunState, name: str) -> bool:
    """True if a visit to a node has steps and has not ended for good."""
    node = state.nodes.get(name)
    return name in state.opened or (
        node is not None
        and (node.attempts > 0 or node.begun or node.status not in (None, Status.COMPLETED, Status.CANCELLED))
    )


def _tasks(pages: Iterable[Sequence[CheckpointRecord]], numbers: set[int]) -> dict[int, QueuedTask]:
    """Return queued tasks by number; what asked for them stands somewhere before."""
    if not numbers:
        return {}
    queued = (task for page in pages for record in page for step in record.steps for task in step.queued)
    return {task.number: task for task in queued if task.number in numbers}


def _without_opening(found: Found) -> Found:
    """Leave out that a flow began, once it has ended."""
    return [
        (record, step)
        for k, (record, step) in enumerate(found)
        if step.status is not Status.RUNNING or step.key is not None or k == len(found) - 1
    ]


def _say_why_not(state: RunState, search: Search) -> NoReturn:
    wanted, names, first = search.wanted, list(search.names), search.first
    numbers = f"{first.sequence} to {search.last}" if first is not None else "none"
    more = f", … ({len(names) - SHOWN_NAMES:,} more)" if len(names) > SHOWN_NAMES else ""
    if wanted.endswith("/") or "/@" in wanted:
        raise RunNotFound(
            f"run {state.run_id!r} has no step {wanted!r}.",
            fix="A shell takes $model for a variable: write calls inside a node in quotes, 'agent/$model'.",
        )
    fix = f"It has checkpoints {numbers} and steps of {', '.join(names[:SHOWN_NAMES]) or 'no node'}{more}."
    address = Address.parse(wanted)
    path = "" if address is None else "/".join(address.names)
    if address is None or node_at(state.plan, path) is None:
        raise RunNotFound(f"run {state.run_id!r} has no step {wanted!r}.", fix=fix)
    if path in search.items:  # the address lacks the item, or names one that is not there
        there = search.items[path]
        raise RunNotFound(
            f"{path} runs once for each item of {plain_of(map_of(there) or '')}.",
            fix=f"Name one, such as {there}.",
        )
    coming, waiting = split_pending(state.plan, () if state.status.is_final else state.frontier.pending)
    if path in map(plain_of, coming):
        raise RunNotFound(f"{wanted} has not reported yet; it is next.", fix=fix)
    if path in map(plain_of, waiting):
        raise RunNotFound(f"{wanted} has not run yet; it waits for {', '.join(gathered(coming))}.", fix=fix)
    if first is not None and first.keyframe and first.sequence > 1:
        raise RunNotFound(f"the steps before checkpoint {first.sequence} were removed.", fix=fix)
    raise RunNotFound(f"{wanted} was not reached.", fix=fix)


def _write_record(record: CheckpointRecord) -> None:
    click.secho(f"checkpoint {record.sequence}  {record.trigger.value}", bold=True)
    about = {
        "id": record.checkpoint_id,
        "written": moment(record.created_at),
        "status": record.status.value,
        "digest": record.digest,
    }
    if record.act is not None:
        about["act"] = act_said(record.act)
    if record.metadata:
        about["metadata"] = preview(record.metadata, wide())
    for name, text in about.items():
        click.echo(f"  {click.style(name.ljust(9), dim=True)} {text}")


def _write_step(
    record: CheckpointRecord, step: StepRecord, lookup: Lookup, task: QueuedTask | None, *, whole: bool
) -> None:
    status = click.style(step.status.value, fg=STATUS_COLOURS[step.status])
    attempt = f", attempt {step.attempts}" if step.attempts > 1 or step.started_at is not None else ""
    click.echo(f"{click.style(name_of(step), bold=True)}  {status}{attempt}, checkpoint {record.sequence}")
    for label, text in _facts(step, lookup).items():
        click.echo(f"  {click.style(label.ljust(9), dim=True)} {text}")
    if task is not None:
        click.echo(f"  {click.style('task'.ljust(9), dim=True)} {task.number}, asked for by {task.asked_by}")
        for name, value in lookup.arguments(task).items():
            write_value("given", name, 1, value, whole=whole)
    for name, version in step.reads.items():
        write_value("read", name, version, lookup.read(step, name), whole=whole)
    for write in step.writes:
        if write.name == CALL:
            _write_returned(step, write, lookup, whole=whole)
        elif not write.name.startswith(("@task/", WAIT, STREAM)):
            _write_written(step, write, lookup, whole=whole)
    if step.error is not None:
        write_error(step.error.code, f"{step.error.type}: {step.error.message}", step.error.traceback)


def _facts(step: StepRecord, lookup: Lookup) -> dict[str, str]:
    facts: dict[str, str] = {}
    is_over = step.status is not Status.HALTED
    if step.started_at is not None and step.ended_at is not None and is_over:
        took = duration(step.ended_at - step.started_at)
        facts["waited" if step.wait is not None else "ran"] = (
            f"{clock_time(step.started_at)} to {clock_time(step.ended_at)}, {took}"
        )
    if step.wait is not None:
        facts |= _waited(step, step.wait, lookup)
    if step.act is not None:
        facts["act"] = act_said(step.act)
    if step.items is not None:
        facts["over"] = count(step.items, "item")
    if step.key is not None:
        facts["key"] = printable(step.key)
    if step.decision is not None:
        facts["chose"] = chosen_of(step.decision)
    if step.retry_at is not None:
        facts["again at"] = clock_time(step.retry_at)
    if step.queued:
        facts["goes to" if step.goto else "queued"] = ", ".join(call_of(t, lookup) for t in step.queued)
    if step.ends:
        facts["ends"] = "its flow"
    return facts


def _waited(step: StepRecord, opened: WaitOpened, lookup: Lookup) -> dict[str, str]:
    """Return what a step waited for, and in what that ended."""
    wait = lookup.wait(opened.wait_id)
    if step.status is not Status.HALTED:
        return {"became": settled(wait)} if wait is not None and settled(wait) else {}
    facts = {"wait": opened.wait_id, "waits for": noun(opened.kind)}
    if opened.due_at is not None:
        facts["until"] = moment(opened.due_at)
    for name, value in request_of(step, lookup).items():
        if name not in ("notify", "single_use"):
            facts[name] = printable(value) if isinstance(value, str) else full(value, wide(), 12)
    return facts


def _write_returned(step: StepRecord, write: Written, lookup: Lookup, *, whole: bool) -> None:
    """Write what a durable call returned, or the answer to what a node waited for in its middle."""
    value, note = lookup.written(step, write), size(write.size)
    if step.wait is None:
        note += ", artifact" if write.artifact is not None else ""
        write_value("returned", "", 1, value, sign="", note=note, whole=whole)
    elif isinstance(value, dict) and value.get("answer") is not None:
        write_value("answer", "", 1, value["answer"], sign="", whole=whole)


def _write_written(step: StepRecord, write: Written, lookup: Lookup, *, whole: bool) -> None:
    is_channel = write.name.startswith(CHANNEL)
    verb, name = ("channel" if is_channel else "wrote"), write.name.removeprefix(CHANNEL)
    if write.form is ValueForm.DELETED:
        click.echo(f"  {click.style(verb.ljust(9), dim=True)} {name} deleted")
        return
    note = "" if write.form is ValueForm.LIFTED else size(write.size)
    note += ", artifact" if write.artifact is not None else ""
    note += f"its {write.source}" if write.source and write.source != write.name else ""
    added = lookup.added(step, write)
    if added is None:
        write_value(verb, name, write.version, lookup.written(step, write), note=note, whole=whole)
    else:
        sign = f"+ {count(len(added), 'item')}:"
        value = added[0] if len(added) == 1 else added
        write_value(verb, name, write.version, value, sign=sign, note=note, whole=whole)


def _write_inside(
    host: Host, run_id: str, pages: Iterable[Sequence[CheckpointRecord]], step: StepRecord, *, whole: bool
) -> None:
    """Write the steps inside a visit to a flow, or inside one item, one line each."""
    base = base_of(step)
    log = Log(full=whole or map_of(base) is not None, below=step)
    teller, table = LogRows(host.state(run_id).plan, Lookup(host, run_id, ()), log, run_id), Table(())
    rows: list[list[Cell]] = []
    is_first = True
    for page in pages:
        inner = [
            _only(record, steps)
            for record in page
            if (steps := [s for s in record.steps if s.path.startswith((f"{base}/", f"{base}#"))])
        ]
        if inner and is_first:
            click.secho("  inside", dim=True)
            is_first = False
        table.write(_outdented(rows))
        rows = list(teller.page(inner))
    table.write(_outdented([*rows, *teller.rest()]))


def _outdented(rows: Sequence[list[Cell]]) -> list[list[Cell]]:
    """Return what rows say of steps, with no more space before their names than between them."""
    least = min((len(row[3].text) - len(row[3].text.lstrip(" ")) for row in rows), default=0)
    return [_indented([*row[:3], row[3]._replace(text=row[3].text[least:]), *row[4:]]) for row in rows]


def _indented(row: Sequence[Cell]) -> list[Cell]:
    """Return a row of a log without its first columns, behind a little space."""
    return [Cell("  "), *row[3:]]


def _only(record: CheckpointRecord, steps: Sequence[StepRecord]) -> CheckpointRecord:
    """Return a record as if it held only these steps."""
    return CheckpointRecord(
        checkpoint_id=record.checkpoint_id,
        sequence=record.sequence,
        trigger=record.trigger,
        created_at=record.created_at,
        steps=tuple(steps),
        run_id=record.run_id,
    )


def write_value(
    verb: str, name: str, version: int, value: object, *, whole: bool, sign: str = "=", note: str = ""
) -> None:
    """Write one value of a step; of a long one the first lines unless it is wanted whole."""
    shown = full(value, wide(), 12)
    left = shown.count("\n") - MOST_LINES
    if left > 0 and not whole:
        told = f" of {held}" if (held := extent(value)) else ""
        more = f"… {count(left, 'more line')}{told}; --full shows all"
        shown = "\n".join(shown.split("\n")[: MOST_LINES + 1]) + f"\n{' ' * 12}{click.style(more, dim=True)}"
    extra = click.style(f"  [{note}]", dim=True) if note else ""
    mark = click.style(f" (version {version})", dim=True) if version > 1 else ""
    head = "  " + " ".join(filter(None, (click.style(verb.ljust(9), dim=True), f"{name}{mark}", sign)))
    click.echo(f"{head}{extra}{shown}" if shown.startswith("\n") else f"{head} {shown}{extra}")


def write_error(code: str, message: str, trace: str) -> None:
    """Write what a step raised, with the traceback of the user's code below."""
    click.echo(f"  {click.style(f'error [{code}]', fg='red', bold=True)} {one_line(message)}")
    for line in printable(trace).rstrip().splitlines():
        click.secho(f"    {line}", dim=True)
