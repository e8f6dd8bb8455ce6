"""The runs that were forked from one another, drawn as git draws branches: the newest on top."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click

from everstep import Host
from everstep.cli.commands.runs.checkpoints import nodes_of
from everstep.cli.commands.runs.list import STATUS_COLOURS, standing
from everstep.cli.view.table import screen_width
from everstep.cli.view.text import count, cut
from everstep.results import CheckpointInfo, RunInfo

SHOWN = 5
"""A stretch of more checkpoints than this is cut short in the middle."""
_PAGE = 1000


class Line(NamedTuple):
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


def draw(host: Host, family: Sequence[RunInfo]) -> list[Line]:
    """Draw every run of a family; only the checkpoints that are shown are read."""
    drawn: dict[str, list[Line]] = {}
    for run in reversed(family):
        forks: dict[int, list[RunInfo]] = {}
        for other in family:
            if other.parent_run_id == run.run_id and other.forked_at is not None:
                forks.setdefault(other.forked_at, []).append(other)
        drawn[run.run_id] = _draw_run(host, run, forks, drawn)
    return drawn[family[0].run_id]


def _draw_run(
    host: Host, run: RunInfo, forks: dict[int, list[RunInfo]], drawn: dict[str, list[Line]]
) -> list[Line]:
    first, lines, last = (run.forked_at or 0) + 1, [], run.checkpoints
    for at in sorted(forks, reverse=True):
        lines += _stretch(host, run, at + 1, last)
        for fork in forks[at]:
            branch = drawn.pop(fork.run_id)
            if not lines:
                lines += branch
                continue
            lines += [Line(f"| {line.branches}", line.text, line.head) for line in branch]
            lines.append(Line("|/"))
        last = at
    return lines + _stretch(host, run, first, last)


def _stretch(host: Host, run: RunInfo, first: int, last: int) -> list[Line]:
    """Draw checkpoints that lie in a row, the newest first; many of them by the two at each end."""
    if last - first < SHOWN:
        return [_line(info, run) for info in reversed(host.checkpoints(run.run_id, first=first, last=last))]
    newest = host.checkpoints(run.run_id, first=last - 1, last=last)
    oldest = host.checkpoints(run.run_id, first=first, last=first + 1)
    return [
        *(_line(info, run) for info in reversed(newest)),
        Line(":", f"… {count(last - first - 3, 'checkpoint')} …"),
        *(_line(info, run) for info in reversed(oldest)),
    ]


def _line(info: CheckpointInfo, run: RunInfo) -> Line:
    trigger = info.trigger.value if info.trigger is not None else "removed"
    nodes = nodes_of(info)
    text = f"{info.sequence}  {trigger}" + (f"  {nodes}" if nodes not in ("", trigger) else "")
    return Line("*", text, run if info.sequence == run.checkpoints else None)


def write_family(lines: Sequence[Line], run_id: str) -> None:
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


def family_json(family: Sequence[RunInfo]) -> list[dict[str, Any]]:
    """Return the runs of a family as JSON shows them."""
    return [
        {
            "run_id": run.run_id,
            "parent_run_id": run.parent_run_id,
            "forked_at": run.forked_at,
            "status": run.status.value,
            "checkpoints": run.checkpoints,
        }
        for run in family
    ]
