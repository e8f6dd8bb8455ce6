"""`everstep log`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import click

from everstep import Host
from everstep.cli.args.options import find_run, json_option, load_option, looking_at, split_run, store_option
from everstep.cli.commands.runs.list import STATUS_COLOURS
from everstep.cli.view.family import draw, family_json, family_of, write_family
from everstep.cli.view.groups import Groups
from everstep.cli.view.lookup import Lookup
from everstep.cli.view.spooled import say_waiting, waiting_json, waiting_rows
from everstep.cli.view.step_line import said
from everstep.cli.view.table import Cell, screen_width, write_table
from everstep.cli.view.text import (
    act_said,
    clock_time,
    count,
    duration,
    one_line,
    write_json,
)
from everstep.client.checkpoint_steps import RecordInfo
from everstep.client.projection import Fold, Line, Tally, lines
from everstep.codec.wire import wire
from everstep.errors import BadRequest, EverstepError, RunNotFound
from everstep.graph.compile.plan import Plan
from everstep.model.address import item_of
from everstep.model.enums import Status, Trigger
from everstep.model.records import CheckpointRecord, StepRecord
from everstep.results import RunState

NARROW = 90
"""On a terminal narrower than this, times are left out."""
NAMED = 10
"""How many failed items of a map get a line of their own unless all are wanted."""


@click.command()
@click.argument("run", metavar="RUN[/PATH]")
@click.option("--last", metavar="N", type=click.IntRange(min=1), help="Only the last N checkpoints.")
@click.option("--full", is_flag=True, help="List every item of a map, too.")
@click.option("--graph", is_flag=True, help="Draw the run among its forks and those it comes from.")
@load_option
@store_option
@json_option
def log(
    run: str,
    last: int | None,
    full: bool,
    graph: bool,
    modules: tuple[str, ...],
    store: str | None,
    as_json: bool,
) -> None:
    """Show the checkpoints of a run in order: why each was taken, its steps, and what they did.

    The steps of an inner flow stand below it. Those of a map's items are counted in one line, and those that
    failed are named. With PATH, only the steps inside that flow or item.

    \b
    Example:
      everstep log A17
      everstep log A17 --json | jq '.checkpoints[].trigger'
      everstep log A17 --graph
      everstep log A17/rag --last 5
    """
    if graph and (last is not None or "/" in run):
        raise BadRequest(
            "--graph draws whole runs.",
            fix="Leave out --last." if last is not None else "Leave out the path.",
        )
    with looking_at(store, modules, as_json=as_json) as host:
        address = find_run(host, run)
        run_id, path = split_run(address)
        if graph:
            _draw(host, run_id, as_json=as_json)
            return
        records = host.history(address, count=last)
        if as_json:
            lookup = Lookup(host, run_id, (step for record in records for step in record.steps))
            told: dict[str, Any] = {"run_id": run_id, **({"path": path} if path else {})}
            told["checkpoints"] = [wire(RecordInfo.of(r, lookup)) for r in records]
            write_json({**told, **waiting_json(host, run_id)})
            return
        _write(host, run_id, records, full=full or item_of(path) is not None, is_whole=not path)
        with contextlib.suppress(EverstepError):  # said above
            say_waiting(host, run_id, store)


def _write(
    host: Host,
    run_id: str,
    records: Sequence[CheckpointRecord],
    *,
    full: bool,
    is_whole: bool,
) -> None:
    found = list(lines(records, full=full))
    shown = [step for line in found for step in _steps_of(line)]
    teller = Teller(host.state(run_id).plan, Lookup(host, run_id, shown), records, run_id)
    if records and records[0].sequence > 1:
        with contextlib.suppress(RunNotFound):  # it was removed
            teller.begin(host.state(run_id, records[0].sequence - 1))
    rows: list[list[Cell]] = []
    before: CheckpointRecord | None = None
    for line in found:
        record = line.first if isinstance(line, Fold) else line.record
        if record is not before and rows and record.base is not None and record.trigger is Trigger.FORK:
            shared = f"↑ shared with {record.parent_run_id}"
            rows.append([*[Cell("")] * 5, Cell(shared, dim=True)])
        rows += teller.rows(line, is_new=record is not before)
        before = line.last if isinstance(line, Fold) else record
    try:
        rows += waiting_rows(host, run_id) if is_whole else []
    except EverstepError as error:
        click.secho(f"what waits on this machine cannot be read: {one_line(str(error))}", err=True, fg="red")
    width = screen_width()
    head = ["#", "time", "trigger", "step", "took", "result"]
    if width is not None and width < NARROW:
        head.pop(1)
        for row in rows:
            row.pop(1)
    write_table(head, rows)


def _steps_of(line: Line | Fold) -> list[StepRecord]:
    return [line.step] if isinstance(line, Line) else []


class Teller:
    """Turns lines into rows, and knows what came before each."""

    def __init__(self, plan: Plan, lookup: Lookup, records: Sequence[CheckpointRecord], run_id: str) -> None:
        self._lookup = lookup
        self._tally = Tally(records)
        self._groups = Groups(plan)
        self._run_id = run_id

    def begin(self, state: RunState) -> None:
        """Know how a run stood before the first step that is told of."""
        self._tally.begin(state.opened)
        self._groups.begin(state.nodes)

    def pass_by(self, step: StepRecord) -> None:
        """Note a step that is not shown."""
        self._tally.take(step)
        self._groups.take(step)

    def rows(self, line: Line | Fold, *, is_new: bool) -> Iterator[list[Cell]]:
        """Return the row of a step; of a map's items, a row for all and one for each that failed."""
        if isinstance(line, Line):
            text = said(line.step, self._lookup, self._tally, self._groups.outcome(line.step))
            if line.record.trigger is Trigger.MIGRATION:
                text = _went_over(line.record)
            elif line.record.trigger is Trigger.TRIM:
                text = "every value as it was, to remove the checkpoints before it"
            if is_new and line.record.act is not None:
                text = "; ".join(filter(None, (text, act_said(line.record.act))))
            self.pass_by(line.step)
            head = self._head(line.record, str(line.record.sequence)) if is_new else [Cell("")] * 3
            yield [*head, *_cells(line, text)]
            return
        yield [*self._fold_head(line, is_new=is_new), *_fold_cells(line)]
        self._tally.count(line.path, line.failed, line.completed)
        for failure in line.failures[:NAMED]:
            yield [*[Cell("")] * 3, *_cells(failure, said(failure.step, self._lookup, self._tally))]
        if len(line.failures) > NAMED:
            more = ", ".join(failure.name for failure in line.failures[NAMED:])
            yield [*[Cell("")] * 3, Cell("  " * line.depth + "also failed"), Cell(""), Cell(more, "red")]

    def _head(self, record: CheckpointRecord, number: str) -> list[Cell]:
        return [
            Cell(number, dim=record.run_id != self._run_id),
            Cell(clock_time(record.created_at), dim=True),
            Cell(record.trigger.value, STATUS_COLOURS[record.status] if record.status.is_final else None),
        ]

    def _fold_head(self, fold: Fold, *, is_new: bool) -> list[Cell]:
        first, last = fold.first.sequence, fold.last.sequence
        if is_new:
            return self._head(fold.first, str(first) if first == last else f"{first}–{last}")
        return [Cell("" if first == last else f"–{last}"), Cell(""), Cell("")]


def _went_over(record: CheckpointRecord) -> str:
    """Say from which version of its flow a run went over to which, and by what rules."""
    about = record.metadata or {}
    before = about.get("from", {}).get("flow_version", "?")
    rules = ", ".join([*about.get("migrations", ()), *(f"starts {name}" for name in about.get("starts", ()))])
    return one_line(f"version {before} → {record.flow_version}" + (f": {rules}" if rules else ""))


def _cells(line: Line, text: str) -> list[Cell]:
    step = line.step
    took = duration(step.ended_at - step.started_at) if step.ended_at and step.started_at else ""
    took = took if step.status is not Status.HALTED else ""
    is_quiet = step.status is Status.RUNNING or step.path == "@"
    is_odd = step.error is not None or step.status in (Status.CANCELLED, Status.HALTED)
    colour = STATUS_COLOURS[step.status] if is_odd else None
    name = Cell("  " * line.depth + line.name, "cyan" if step.path != "@" else None, dim=step.path == "@")
    return [name, Cell(took, dim=True), Cell(text, colour, dim=is_quiet)]


def _fold_cells(fold: Fold) -> list[Cell]:
    took = duration(fold.ended - fold.began) if fold.ended and fold.began else ""
    counts = [
        f"{len(fold.completed):,} completed" if fold.completed else "",
        f"{len(fold.failed):,} failed" if fold.failed else "",
    ]
    text = ", ".join(part for part in counts if part) or count(fold.steps, "step")
    return [Cell("  " * fold.depth + "items", "cyan"), Cell(took, dim=True), Cell(text)]


def _draw(host: Host, run_id: str, *, as_json: bool) -> None:
    family = family_of(host, run_id)
    if as_json:
        write_json({"run_id": run_id, "runs": family_json(family)})
    else:
        write_family(draw(host, family), run_id)
