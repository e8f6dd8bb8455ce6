"""Runs and waits of a bucket in the order they came in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice

from everstep.errors import StateCorrupted
from everstep.model.commits import NO_LABELS, Labels, NoticeRow, NoticeState
from everstep.model.enums import Status
from everstep.model.waits import HadEvent, SignalRow, WaitRow, WaitStatus
from everstep.ports.notices import NoticeFilter
from everstep.ports.store import Counts, RunFilter, RunRow, WaitFilter
from everstep.stores.columns import EPOCH, to_time
from everstep.stores.objects import names
from everstep.stores.objects.claims import Claims
from everstep.stores.objects.drafts import index_of, names_of, started_of
from everstep.stores.objects.entries import SignalMark, Standing, WaitMark
from everstep.stores.objects.keeping import runs_with_notices
from everstep.stores.objects.lines import Lines
from everstep.stores.objects.logs import RunLine
from everstep.stores.objects.marks.marks import about, as_told

_PAGE = 1000
_CHUNK = 32
Look = Callable[[str], RunLine]
_OVER = (Status.COMPLETED, Status.CANCELLED)


class RunListing:
    """What is asked about many runs at once."""

    def __init__(self, lines: Lines, claims: Claims) -> None:
        self._lines = lines
        self._claims = claims
        self._has_names = False

    # -- runs ------------------------------------------------------------------

    def runs(self, wanted: RunFilter) -> list[RunRow]:
        """Return the runs that match, newest first."""
        after = self._place_of(wanted)
        if after is None:
            return []
        found: list[RunRow] = []
        for lines in self._pages(wanted, after):
            rows = self._lines.each(self._lines.row, lines)
            found += [row for row in rows if row is not None and wanted.matches(row)]
            if len(found) >= wanted.limit:
                break
        return found[: wanted.limit]

    def _place_of(self, wanted: RunFilter) -> str | None:
        """Return the name after which a listing goes on; none if there is no such run."""
        if wanted.before is None:
            return ""
        head = self._lines.fresh(wanted.before).head
        if head is None:
            return None
        return names.index_name(head.standing.order, head.standing.row.flow_id, wanted.before)

    def _pages(self, wanted: RunFilter, after: str) -> Iterator[list[RunLine]]:
        if wanted.run_id is not None:
            lines = [self._lines.fresh(wanted.run_id)]
            yield [line for line in lines if _index(line) > after]
        elif wanted.parent_run_id is not None:
            children = self._lines.bucket.names(names.child_prefix(wanted.parent_run_id))
            lines = self._fresh([names.read_child(name)[0] for name in children])
            yield sorted((line for line in lines if _index(line) > after), key=_index)
        elif wanted.started_by is not None:
            yield from self._started(wanted.started_by, after)
        else:
            mark = None if wanted.flow_id is None else names.flow_mark(wanted.flow_id)
            yield from self._by_index(after, mark)

    def _started(self, starter: str, after: str) -> Iterator[list[RunLine]]:
        """Return the runs that another one started, newest first; a name may lead nowhere."""
        prefix = names.started_prefix(starter)
        after = f"{prefix}{after.removeprefix(names.INDEX).partition('~')[0]}~~" if after else ""
        while page := self._lines.bucket.names(prefix, after=after, limit=_PAGE):
            after = page[-1]
            for k in range(0, len(page), _CHUNK):
                chunk = page[k : k + _CHUNK]
                lines = self._fresh([names.run_behind(name) for name in chunk])
                there = zip(lines, chunk, strict=True)
                yield [line for line, name in there if line.standing and started_of(line.standing) == name]
            if len(page) < _PAGE:
                return

    def _by_index(self, after: str, mark: str | None) -> Iterator[list[RunLine]]:
        is_first = not after
        while page := self._index_page(after, is_first=is_first):
            after, is_first = page[-1], False
            read = [(name, *names.read_index(name)) for name in page]
            wanted = [(name, run_id) for name, flow, run_id in read if mark in (None, flow)]
            for k in range(0, len(wanted), _CHUNK):
                chunk = wanted[k : k + _CHUNK]
                lines = self._lines.each(partial(self._listed, self._looking(len(chunk))), chunk)
                yield [line for line in lines if line is not None]
            if len(page) < _PAGE:
                return

    def _index_page(self, after: str, *, is_first: bool) -> list[str]:
        bucket = self._lines.bucket
        page = bucket.names(names.INDEX, after=after, limit=_PAGE)
        if is_first and not page and not self._has_names:
            self._restore_names()
            page = bucket.names(names.INDEX, limit=_PAGE)
        self._has_names = self._has_names or bool(page)
        return page

    def _restore_names(self) -> None:
        """Make the names anew that lead to runs, if they were all removed and the logs are there."""
        bucket = self._lines.bucket
        after = ""
        while found := bucket.names(names.RUNS, after=after, limit=1):
            run = found[0].split("/")[1]
            after = f"{names.RUNS}{run}/~"
            with suppress(StateCorrupted):
                line = self._lines.fresh(names.unquoted(run))
                if line.standing is not None:
                    bucket.mark(names_of(line.standing, self._lines.marks_of_waits(line)))

    def _listed(self, look: Look, item: tuple[str, str]) -> RunLine | None:
        """Return the run that a name leads to; one that cannot be read at all with as much as the name says.

        Who lost a race for an id, or died before it admitted, left a name that leads nowhere.
        """
        name, run_id = item
        try:
            line = look(run_id)
        except StateCorrupted as damage:
            lost = RunLine(run_id)
            lost.move(1, _unreadable(name, run_id, str(damage)))
            return lost
        return line if _index(line) == name else None

    def _fresh(self, run_ids: Sequence[str]) -> list[RunLine]:
        return self._lines.each(self._looking(len(run_ids)), run_ids)

    def _looking(self, many: int) -> Look:
        """Return how to look at so many runs."""
        return self._lines.fresh

    def all(self) -> Iterator[RunLine]:
        """Return every run, newest first."""
        for lines in self._by_index("", None):
            yield from (line for line in lines if line.standing is not None)

    def counts(self) -> Counts:
        """Count runs by status and open waits by kind."""
        runs: Counter[str] = Counter()
        waits: Counter[str] = Counter()
        for line in self.all():
            if line.standing is not None:
                runs[line.standing.row.status.value] += 1
                waits.update(m.kind for m in line.standing.waits if m.status is WaitStatus.OPEN)
        return Counts(runs=runs, waits=waits)

    def run_at(self, checkpoint_id: str) -> str | None:
        """Return the run whose newest record this is, if it can still go on."""
        for line in self.all():
            standing = line.standing
            if standing is not None and standing.head == checkpoint_id:
                return line.run_id if standing.row.status not in _OVER else None
        return None

    def older_flows(self, flow_id: str, flow_hash: str) -> list[str]:
        """Return the hashes known before this one that unfinished runs of the flow still have."""
        hashes = set()
        for line in self._claims.unfinished():
            standing = line.standing
            if standing is not None and standing.row.flow_id == flow_id and not standing.row.status.is_final:
                hashes.add(standing.row.flow_hash)
        known = self._lines.flow(flow_hash)
        found = []
        for other in hashes - {flow_hash}:
            flow = self._lines.flow(other)
            if flow is not None and known is not None and flow.order < known.order:
                found.append((flow.order, other))
        return [other for _, other in sorted(found)]

    # -- waits ------------------------------------------------------------------

    def line_of_wait(self, wait_id: str) -> RunLine | None:
        """Return the run that a wait belongs to."""
        for run_id in self._lines.runs_behind(names.wait_prefix(wait_id)):
            line = self._lines.fresh(run_id)
            if self._lines.mark_of(line, wait_id) is not None:
                return line
        return None

    def wait(self, wait_id: str) -> WaitRow | None:
        line = self.line_of_wait(wait_id)
        mark = None if line is None else self._lines.mark_of(line, wait_id)
        return None if line is None or mark is None else self._lines.wait(line, mark)

    def had_events(self, run_id: str) -> list[HadEvent]:
        """Return which events the nodes of a run had, by their paths."""
        return sorted(self._lines.marks(self._lines.fresh(run_id)).had())

    def labels(self, run_ids: Sequence[str]) -> dict[str, Labels]:
        """Return the labels of runs that have any."""
        standings = self._lines.each(lambda run_id: self._lines.fresh(run_id).standing, run_ids)
        return {
            run_id: found
            for run_id, standing in zip(run_ids, standings, strict=True)
            if standing is not None and not standing.gone
            if (found := Labels(standing.tags, standing.attributes, standing.undoing)) != NO_LABELS
        }

    def notices(self, wanted: NoticeFilter) -> list[NoticeRow]:
        """Return the notices that match, the newest first; for those that were sent, all runs are read."""
        if wanted.run_id is not None:
            lines = [self._lines.fresh(wanted.run_id)]
        elif wanted.state in (NoticeState.PENDING, NoticeState.DEAD):
            lines = self._fresh(list(runs_with_notices(self._lines, f"{names.NOTICES}~")))
        else:
            lines = list(self.all())
        rows = [
            row.changed(run_id=line.run_id)
            for line in lines
            if line.standing is not None and not line.standing.gone
            for row in line.standing.notices
        ]
        matching = sorted(filter(wanted.matches, rows), key=lambda row: row.number, reverse=True)
        return matching[: wanted.limit]

    def inbox(self, run_id: str, name: str | None, after: int, limit: int, is_taken: bool) -> list[SignalRow]:
        """Return signals of a run by their numbers."""
        line = self._lines.fresh(run_id)
        marks = self._lines.marks(line)
        found: Iterable[SignalMark]
        if is_taken:
            found = (mark for mark in marks.taken(after) if name is None or mark.about == about(name))
        else:
            found = marks.all_untaken(after) if name is None else marks.untaken(name, after)
        return [as_told(self._lines.signal(line, mark), mark) for mark in islice(found, limit)]

    def wait_of_token(self, token_hash: bytes) -> WaitRow | None:
        """Return the wait that a token belongs to."""
        token = names.short(token_hash)
        for run_id in self._lines.runs_behind(names.token_prefix(token)):
            line = self._lines.fresh(run_id)
            for mark in self._lines.marks_of_waits(line):
                if mark.token == token:
                    return self._lines.wait(line, mark)
        return None

    def waits(self, wanted: WaitFilter) -> list[WaitRow]:
        """Return the waits that match, the oldest first."""
        after = -1
        if wanted.after is not None:
            line = self.line_of_wait(wanted.after)
            mark = None if line is None else self._lines.mark_of(line, wanted.after)
            if mark is None:
                return []
            after = mark.number
        marked = [
            (mark.number, line, mark)
            for line in self._lines_with(wanted)
            for mark in self._lines.marks_of_waits(line, all_of_them=not wanted.leaves_out_closed)
            if mark.number > after
            and wanted.status in (None, mark.status)
            and wanted.kind in (None, mark.kind)
            and (mark.status is not WaitStatus.CLOSED or not wanted.is_unclosed)
            and (mark.status is WaitStatus.OPEN or not wanted.is_untold)
        ]
        marked.sort(key=lambda item: item[0])
        found: list[WaitRow] = []
        step = max(_CHUNK, min(wanted.limit, _PAGE))
        for k in range(0, len(marked), step):
            rows = self._lines.each(lambda item: self._row(wanted, *item[1:]), marked[k : k + step])
            found += [row for row in rows if row is not None and _is_wanted(row, wanted)]
            if len(found) >= wanted.limit:
                break
        return found[: wanted.limit]

    def _row(self, wanted: WaitFilter, line: RunLine, mark: WaitMark) -> WaitRow | None:
        """Return the row of a wait; one that is damaged hides no other."""
        try:
            return self._lines.wait(line, mark)
        except StateCorrupted:
            if wanted.run_id is not None:
                raise
            return None

    def _lines_with(self, wanted: WaitFilter) -> list[RunLine]:
        if wanted.run_id is not None:
            return [self._lines.fresh(wanted.run_id)]
        if wanted.is_untold or wanted.leaves_out_closed:
            lines = self._claims.unfinished()
            return self._fresh([line.run_id for line in lines])
        return list(self.all())


def _index(line: RunLine) -> str:
    """Return the name under which a run is listed; empty if it is not there."""
    standing = line.standing
    if standing is None:
        return ""
    return index_of(standing)


def _unreadable(name: str, run_id: str, why: str) -> Standing:
    """Return how a run stands of which nothing but its name can be read."""
    row = RunRow(
        run_id=run_id,
        flow_id="",
        flow_version="",
        flow_hash="",
        parent_run_id=None,
        status=Status.RUNNING,
        created_at=to_time(names.order_of(name)) or EPOCH,
        ended_at=None,
        checkpoints=1,
        lease=None,
        needs_repair=why,
    )
    return Standing(row=row, epoch=0, head="", order=names.order_of(name), claimed_at=1)


def _is_wanted(row: WaitRow, wanted: WaitFilter) -> bool:
    return (
        wanted.run_id in (None, row.run_id)
        and wanted.flow_id in (None, row.flow_id)
        and (row.is_untold or not wanted.is_untold)
    )
