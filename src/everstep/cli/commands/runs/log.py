"""`everstep log`: the checkpoints of a run, or with `--graph` its forks as git draws branches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import click

from everstep import Host
from everstep.cli.args.options import find_run, json_option, load_option, looking_at, split_run, store_option
from everstep.cli.commands.runs.checkpoints import nodes_of
from everstep.cli.commands.runs.list import standing
from everstep.cli.live.following import write_followed
from everstep.cli.view.groups import Groups
from everstep.cli.view.lookup import PAGE, Lookup, Pages
from everstep.cli.view.pauses import held_back, pause_of
from everstep.cli.view.spooled import say_waiting, waiting, waiting_rows
from everstep.cli.view.step_line import said
from everstep.cli.view.table import Cell, Table, screen_width
from everstep.cli.view.text import (
    STATUS_COLOURS,
    act_said,
    clock_time,
    count,
    cut,
    duration,
    one_line,
    write_json,
    write_json_list,
)
from everstep.client.checkpoint_steps import RecordInfo
from everstep.client.documents import Family
from everstep.client.projection import Fold, Log, LogLine, in_full, inside
from everstep.codec.plain_json import Wire
from everstep.codec.wire import wire
from everstep.errors import BadRequest, EverstepError, RunNotFound
from everstep.graph.compile.plan import Plan
from everstep.model.address import item_of, map_of
from everstep.model.enums import Status, Trigger
from everstep.model.records import CheckpointRecord, StepRecord
from everstep.results import CheckpointInfo, RunInfo, RunState

NARROW = 90
"""On a terminal narrower than this, times are left out."""
NAMED = 10
"""How many failed items of a map get a line of their own unless all are wanted."""
SHOWN = 5
"""A stretch of more checkpoints than this is cut short in the middle."""
_PAGE = 1000


@click.command()
@click.argument("run", metavar="RUN[/PATH]")
@click.option("--last", metavar="N", type=click.IntRange(min=1), help="Only the last N checkpoints.")
@click.option("--all", "everything", is_flag=True, help=f"Every checkpoint, not only the last {PAGE}.")
@click.option("--full", is_flag=True, help="List every item of a map, too.")
@click.option("--follow", "-f", is_flag=True, help="Go on as it happens, with what nodes emit, to the end.")
@click.option("--graph", is_flag=True, help="Draw the run among its forks and those it comes from.")
@load_option
@store_option
@json_option
def log(
    run: str,
    last: int | None,
    everything: bool,
    full: bool,
    follow: bool,
    graph: bool,
    modules: tuple[str, ...],
    store: str | None,
    as_json: bool,
) -> None:
    """Show the checkpoints of a run in order: why each was taken, its steps, and what they did.

    The steps of an inner flow stand below it. Those of a map's items are counted in one line, and those that
    failed are named. With PATH, only the steps inside that flow or item. Of a long run the last checkpoints
    are shown, unless all are asked for.

    \b
    Example:
      everstep log A17
      everstep log A17 --json | jq '.checkpoints[].trigger'
      everstep log A17 --graph
      everstep log A17/rag --last 5
      everstep log A17 --follow
    """
    if follow and (graph or everything or full or last is not None):
        raise BadRequest("--follow shows events, not checkpoints.", fix="Leave the other options out.")
    if graph and (last is not None or "/" in run):
        raise BadRequest(
            "--graph draws whole runs.",
            fix="Leave out --last." if last is not None else "Leave out the path.",
        )
    if last is not None and everything:
        raise BadRequest("--last and --all exclude each other.", fix="Leave one of them out.")
    with looking_at(store, modules, as_json=as_json) as host:
        address = find_run(host, run)
        run_id, path = split_run(address)
        if follow:
            write_followed(host.follow(address), as_json=as_json)
            return
        if graph:
            _draw(host, run_id, as_json=as_json)
            return
        newest = last if everything or as_json else last or PAGE
        found = Pages(host, address, newest=newest)
        if as_json:
            head = {"run_id": run_id, **({"path": path} if path else {})}
            write_json_list(
                head, "checkpoints", _told(host, run_id, found), lambda: wire(waiting(host, run_id))
            )
            return
        if last is None and not everything:
            _say_what_is_left_out(found, address)
        _write(host, run_id, found, full=full or item_of(path) is not None, is_whole=not path)
        with contextlib.suppress(EverstepError):  # said above
            say_waiting(host, run_id, store)
        if not path and (pause := pause_of(host, host.info(run_id))) is not None:
            click.secho(held_back(run_id, pause, store), err=True, fg="yellow")


def _say_what_is_left_out(pages: Pages, address: str) -> None:
    for page in pages:
        earlier = page[0].sequence - 1 if len(page) == PAGE else 0
        if earlier:
            said = f"… {count(earlier, 'checkpoint')} before these: everstep log {address} --all"
            click.secho(said, dim=True)


def _told(host: Host, run_id: str, pages: Iterable[list[CheckpointRecord]]) -> Iterator[Wire]:
    lookup = Lookup(host, run_id, ())
    for page in pages:
        lookup.turn_to((step for record in page for step in record.steps), upto=page[-1].sequence)
        yield from (wire(RecordInfo.of(record, lookup)) for record in page)


def _write(
    host: Host, run_id: str, pages: Iterable[list[CheckpointRecord]], *, full: bool, is_whole: bool
) -> None:
    teller = LogRows(host.state(run_id).plan, Lookup(host, run_id, ()), Log(full=full), run_id)
    is_narrow = (screen_width() or NARROW) < NARROW
    head = ["#", "time", "trigger", "step", "took", "result"]
    table = Table(head[:1] + head[2:] if is_narrow else head)

    def write(rows: Sequence[list[Cell]]) -> None:
        table.write([row[:1] + row[2:] for row in rows] if is_narrow else rows)

    rows: list[list[Cell]] = []
    is_first = True
    for page in pages:
        if is_first and page and page[0].sequence > 1:
            with contextlib.suppress(RunNotFound):  # it was removed
                teller.begin(host.state(run_id, page[0].sequence - 1))
        elif not is_first:
            write(rows)
        rows, is_first = list(teller.page(page)), False
    rows += teller.rest()
    try:
        rows += waiting_rows(host, run_id) if is_whole else []
    except EverstepError as error:
        click.secho(f"what waits on this machine cannot be read: {one_line(str(error))}", err=True, fg="red")
    write(rows)


class LogRows:
    """Turns the pages of a log into rows, and knows what came before each."""

    def __init__(self, plan: Plan, lookup: Lookup, log: Log, run_id: str) -> None:
        self._lookup = lookup
        self._log = log
        self._groups = Groups(plan)
        self._run_id = run_id
        self._before: CheckpointRecord | None = None

    def begin(self, state: RunState) -> None:
        """Know how a run stood before the first step that is told of."""
        self._log.maps.begin(state.opened)
        self._groups.begin(state.nodes)

    def page(self, records: Sequence[CheckpointRecord]) -> Iterator[list[Cell]]:
        """Yield the rows of the next page."""
        steps = (s for r in records for s in r.steps if self._log.full or map_of(s.path) is None)
        self._lookup.turn_to(steps, upto=records[-1].sequence if records else None)
        for line in self._log.take(records):
            yield from self._with_head(line)

    def rest(self) -> Iterator[list[Cell]]:
        """Yield the rows of the line of items that is under way."""
        for line in self._log.rest():
            yield from self._with_head(line)

    def _with_head(self, line: LogLine | Fold) -> Iterator[list[Cell]]:
        record, before = line.first if isinstance(line, Fold) else line.record, self._before
        if record is not before and before and record.base is not None and record.trigger is Trigger.FORK:
            yield [*[Cell("")] * 5, Cell(f"↑ shared with {record.parent_run_id}", dim=True)]
        yield from self.rows(line, is_new=record is not before)
        self._before = line.last if isinstance(line, Fold) else record

    def rows(self, line: LogLine | Fold, *, is_new: bool) -> Iterator[list[Cell]]:
        """Return the row of a step; of a map's items, a row for all and one for each that failed."""
        if isinstance(line, LogLine):
            text = said(line.step, self._lookup, self._log.maps, self._groups.outcome(line.step))
            if line.record.trigger is Trigger.MIGRATION:
                text = _went_over(line.record)
            elif line.record.trigger is Trigger.TRIM:
                text = "every value as it was, to remove the checkpoints before it"
            if is_new and line.record.act is not None:
                text = "; ".join(filter(None, (text, act_said(line.record.act))))
            self._groups.take(line.step)
            head = self._head(line.record, str(line.record.sequence)) if is_new else [Cell("")] * 3
            yield [*head, *_cells(line.step, line.name, line.depth, text)]
            return
        yield [*self._fold_head(line, is_new=is_new), *_fold_cells(line)]
        failures = line.items.failures
        for step in failures[:NAMED]:
            text = said(step, self._lookup, self._log.maps)
            yield [*[Cell("")] * 3, *_cells(step, inside(step), line.depth, text)]
        if len(failures) > NAMED:
            more = ", ".join(map(inside, failures[NAMED:]))
            yield [*[Cell("")] * 3, Cell("  " * line.depth + "also failed"), Cell(""), Cell(more, "red")]

    def _head(self, record: CheckpointRecord, number: str) -> list[Cell]:
        return [
            Cell(number, dim=record.run_id != self._run_id),
            Cell(clock_time(record.created_at), dim=True),
            Cell(record.trigger.value, STATUS_COLOURS[record.status] if record.status.is_final else None),
        ]

    def _fold_head(self, fold: Fold, *, is_new: bool) -> list[Cell]:
        first, last = fold.first.sequence, fold.last.sequence
        span = str(first) if first == last else f"{first}–{last}"
        if is_new:
            return self._head(fold.first, span)
        return [Cell("" if first == last else span), Cell(""), Cell("")]


def _went_over(record: CheckpointRecord) -> str:
    """Say from which version of its flow a run went over to which, and by what rules."""
    about = record.metadata or {}
    before = about.get("from", {}).get("flow_version", "?")
    rules = ", ".join([*about.get("migrations", ()), *(f"starts {name}" for name in about.get("starts", ()))])
    return one_line(f"version {before} → {record.flow_version}" + (f": {rules}" if rules else ""))


def _cells(step: StepRecord, name: str, depth: int, text: str) -> list[Cell]:
    took = duration(step.ended_at - step.started_at) if step.ended_at and step.started_at else ""
    took = took if step.status is not Status.HALTED else ""
    is_quiet = step.status is Status.RUNNING or step.path == "@"
    is_odd = step.error is not None or step.status in (Status.CANCELLED, Status.HALTED)
    colour = STATUS_COLOURS[step.status] if is_odd else None
    is_step = step.path != "@"
    named = Cell("  " * depth + name, "cyan" if is_step else None, dim=not is_step)
    return [named, Cell(took, dim=True), Cell(text, colour, dim=is_quiet)]


def _fold_cells(fold: Fold) -> list[Cell]:
    took = duration(fold.ended - fold.began) if fold.ended and fold.began else ""
    counts = [
        f"{fold.items.completed:,} completed" if fold.items.completed else "",
        f"{len(fold.items.failed):,} failed" if fold.items.failed else "",
    ]
    text = ", ".join(part for part in counts if part) or count(fold.steps, "step")
    name = f"{in_full(fold.path)} items" if fold.undoes else "items"
    if fold.undone:
        text = f"{fold.undone:,} undone"
    return [Cell("  " * fold.depth + name, "cyan"), Cell(took, dim=True), Cell(text)]


def _draw(host: Host, run_id: str, *, as_json: bool) -> None:
    family = family_of(host, run_id)
    if as_json:
        write_json(wire(Family.of(run_id, family)))
    else:
        write_family(draw(host, family), run_id)


class BranchLine(NamedTuple):
    """One line of the drawing: the branches to the left, and what stands beside them."""

    branches: str
    text: str = ""
    head: RunInfo | None = None
    """The run whose newest checkpoint this is."""


def family_of(host: Host, run_id: str) -> list[RunInfo]:
    """Return the run that it all began with, and every fork of it, parents before their forks."""
    first = host.info(run_id)
    while first.forked_at is not None and first.parent_run_id is not None:
        first = host.info(first.parent_run_id)
    found = [first]
    for run in found:
        found.extend(_forks(host, run.run_id))
    return found


def _forks(host: Host, run_id: str) -> Iterator[RunInfo]:
    last: str | None = None
    while True:
        page = host.runs(parent=run_id, limit=_PAGE, before=last)
        yield from (info for info in page if info.forked_at is not None)
        if len(page) < _PAGE:
            return
        last = page[-1].run_id


def draw(host: Host, family: Sequence[RunInfo]) -> list[BranchLine]:
    """Draw every run of a family; only the checkpoints that are shown are read."""
    drawn: dict[str, list[BranchLine]] = {}
    forks: dict[str, dict[int, list[RunInfo]]] = {run.run_id: {} for run in family}
    for run in family:
        if run.forked_at is not None and run.parent_run_id in forks:
            forks[run.parent_run_id].setdefault(run.forked_at, []).append(run)
    for run in reversed(family):
        drawn[run.run_id] = _draw_run(host, run, forks[run.run_id], drawn)
    return drawn[family[0].run_id]


def _draw_run(
    host: Host, run: RunInfo, forks: dict[int, list[RunInfo]], drawn: dict[str, list[BranchLine]]
) -> list[BranchLine]:
    first, lines, last = (run.forked_at or 0) + 1, [], run.checkpoints
    for at in sorted(forks, reverse=True):
        lines += _stretch(host, run, at + 1, last)
        for fork in forks[at]:
            branch = drawn.pop(fork.run_id)
            if not lines:
                lines += branch
                continue
            lines += [BranchLine(f"| {line.branches}", line.text, line.head) for line in branch]
            lines.append(BranchLine("|/"))
        last = at
    return lines + _stretch(host, run, first, last)


def _stretch(host: Host, run: RunInfo, first: int, last: int) -> list[BranchLine]:
    """Draw checkpoints that lie in a row, the newest first; many of them by the two at each end."""
    if last - first < SHOWN:
        return [_line(info, run) for info in reversed(host.checkpoints(run.run_id, first=first, last=last))]
    newest = host.checkpoints(run.run_id, first=last - 1, last=last)
    oldest = host.checkpoints(run.run_id, first=first, last=first + 1)
    return [
        *(_line(info, run) for info in reversed(newest)),
        BranchLine(":", f"… {count(last - first - 3, 'checkpoint')} …"),
        *(_line(info, run) for info in reversed(oldest)),
    ]


def _line(info: CheckpointInfo, run: RunInfo) -> BranchLine:
    trigger = info.trigger.value if info.trigger is not None else "removed"
    nodes = nodes_of(info)
    text = f"{info.sequence}  {trigger}" + (f"  {nodes}" if nodes not in ("", trigger) else "")
    return BranchLine("*", text, run if info.sequence == run.checkpoints else None)


def write_family(lines: Sequence[BranchLine], run_id: str) -> None:
    """Write the drawing on stdout, with the run that was asked for in bold."""
    width = screen_width()
    for branches, text, head in lines:
        name = f"  ({head.run_id}, {standing(head)})" if head is not None else ""
        room = None if width is None else max(width - len(branches) - 1, 0)
        whole = text + name if room is None else cut(text + name, room)
        shown, label = whole[: len(text)], whole[len(text) :]
        if head is not None and label:
            label = click.style(label, fg=STATUS_COLOURS[head.status], bold=head.run_id == run_id or None)
        click.echo(f"{click.style(branches, fg='yellow')} {shown}{label}".rstrip())
