"""`everstep state`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import click

from everstep import Host
from everstep.cli.args.options import find_place, json_option, load_option, looking_at, store_option
from everstep.cli.view.outline import gathered
from everstep.cli.view.spooled import say_waiting
from everstep.cli.view.step_line import so_far
from everstep.cli.view.table import screen_width, wide
from everstep.cli.view.text import Unreadable, count, is_cut, moment, one_line, preview, write_json
from everstep.cli.view.text import full as whole
from everstep.cli.view.waits import noun
from everstep.client.documents import StateDocument
from everstep.client.outline import next_of
from everstep.codec.wire import wire
from everstep.errors import BadRequest, EverstepError, RunNotFound, close_matches
from everstep.model.address import item_of, map_of, plain_of
from everstep.model.items import ItemError
from everstep.model.records import ATTRIBUTE, CHANNEL, STREAM, UNIT, WAIT, QueuedTask
from everstep.results import RunState

TASK = "@task/"
UNSEEN = (WAIT, STREAM, UNIT)
"""What the names of values begin with that are shown in words."""
ERROR = "@error"
"""The local name of what stands in the place of a failed item's outputs."""


@click.command()
@click.argument("run_id", metavar="RUN[@N][/PATH]")
@click.argument("words", metavar="[N] [NAME]", nargs=-1)
@click.option("--at", metavar="N", help="The checkpoint, by sequence or id. [default: the newest]")
@click.option("--full", is_flag=True, help="Show long values whole, and every item of a map.")
@load_option
@store_option
@json_option
def state(
    run_id: str,
    words: tuple[str, ...],
    at: str | None,
    full: bool,
    modules: tuple[str, ...],
    store: str | None,
    as_json: bool,
) -> None:
    """Show the values of a run as they were at one checkpoint, inputs included.

    Values inside a flow stand below it, then the channel, and the tasks still to come. NAME shows one value,
    those inside one flow or item, or the channel. With PATH, only what lies inside that flow or item; NAME is
    then looked for there.

    \b
    Example:
      everstep state A17 3
      everstep state A17@3
      everstep state A17 rag
      everstep state A17 check#7
      everstep state A17@3/check#7
      everstep state A17 channel
    """
    with looking_at(store, modules, as_json=as_json) as host:
        found, name = _find(host, run_id, list(words), at)
        names = [n for n in found if (name is None or is_within(n, name)) and not n.startswith(UNSEEN)]
        if name is not None and not names:
            _say_unknown(found, name)
        values = {n: read(found, n) for n in names if as_json or full or _is_shown(n, name)}
        if as_json:
            write_json(wire(StateDocument.of(found, values, partial(read, found))))
        else:
            _write(found, values, full=full, name=name)
            with contextlib.suppress(EverstepError):  # `log` and `verify` say what is wrong with them
                say_waiting(host, found.run_id, store)


def _find(host: Host, run: str, words: list[str], at: str | None) -> tuple[RunState, str | None]:
    """Tell the checkpoint and the name apart: a number is a checkpoint, and so is the id of one."""
    numbers = [word for word in words if word.isdecimal()]
    names = [word for word in words if not word.isdecimal()]
    if len(numbers) + (at is not None) > 1:
        raise BadRequest("the checkpoint is given twice.", fix=f"Write: everstep state {run} {numbers[0]}")
    if len(names) > 1:
        raise BadRequest(f"{names[1]!r} is one name too many.", fix=f"Write: everstep state {run} {names[0]}")
    run_id, place = find_place(host, run, at or next(iter(numbers), None))
    found = host.state(run_id, at=place)
    name, part = next(iter(names), None), found.part
    if part is not None and any(part.has_inside(known) for known in found):
        name = part.within(name or "")
    if name is not None and place is None and not any(is_within(n, name) for n in found):
        try:
            return host.state(run_id, at=name), None
        except RunNotFound:
            return found, name
    return found, name


def is_within(value: str, name: str) -> bool:
    """True if a value is the one of that name, or inside the flow, the item or the channel of that name."""
    if name in ("channel", "@channel"):
        return value.startswith(CHANNEL)
    bare = value.removeprefix(CHANNEL) if value.startswith(CHANNEL) else value
    if bare == name or value.startswith((f"{name}/", f"{name}#", f"{name}@")):
        return True
    return value[0] != "@" and (plain_of(value) == name or plain_of(value).startswith(f"{name}/"))


def _is_shown(value: str, name: str | None) -> bool:
    """False for what is inside an item of a map, unless the item was asked for or has failed."""
    if value.startswith(CHANNEL) or map_of(value) is None:
        return not value.startswith(TASK)
    asked = item_of(name or "")
    return value.endswith(f"/{ERROR}") or (asked is not None and item_of(value) == asked)


def _say_unknown(found: RunState, name: str) -> None:
    known = list(dict.fromkeys(plain_of(n) for n in found if n[0] != "@"))
    close = close_matches(name, [*known, *(n.partition("/")[0] for n in known)], n=1)
    guess = f" Did you mean {close[0]!r}?" if close else ""
    raise RunNotFound(
        f"run {found.run_id!r} has no value {name!r} at checkpoint {found.sequence}.{guess}",
        fix=f"It has {', '.join(known) or 'none'}.",
    )


def stream_lines(found: RunState) -> Iterator[str]:
    """Write how far the streams under way had come at that checkpoint."""
    coming = [(path, node.stream) for path, node in found.nodes.items() if node.stream is not None]
    if coming:
        yield click.style("streams", dim=True)
    for path, stream in coming:
        yield f"  {path}: {so_far(stream)}"


def asking_lines(found: RunState) -> Iterator[str]:
    """Write what was waited for at that checkpoint, each with its question."""
    asking = [(path, node.wait, node.since) for path, node in found.nodes.items() if node.wait is not None]
    if asking:
        yield click.style("waits for", dim=True)
    for path, wait, since in asking:
        request = read(found, f"{WAIT}{wait.wait_id}/request")
        prompt = one_line(str(request.get("prompt", ""))) if isinstance(request, dict) else ""
        until = f" until {moment(wait.due_at)}" if wait.due_at is not None else ""
        asked = f"  asked {moment(since)}" + (f"  {prompt}" if prompt else "")
        yield f"  {path}: {noun(wait.kind)}{until}" + click.style(asked, dim=True)


def _arguments(found: RunState, task: QueuedTask) -> dict[str, Any]:
    return {name: read(found, f"{TASK}{task.number}/{name}") for name in task.arguments}


def task_lines(found: RunState) -> Iterator[str]:
    """Write the tasks still to come, each as a call."""
    if found.queued:
        yield click.style("queued", dim=True)
    for task in found.queued:
        given = ", ".join(f"{name}={preview(value, 40)}" for name, value in _arguments(found, task).items())
        urgent = f", priority {task.priority}" if task.priority else ""
        yield f"  {task.node}({given})" + click.style(f"  asked for by {task.asked_by}{urgent}", dim=True)


class _Place(NamedTuple):
    """Where a value stands: the headings above it, and its name below them."""

    above: tuple[str, ...]
    name: str


def _place_of(value: str) -> _Place:
    if value.startswith(CHANNEL):
        return _Place(("channel",), value.removeprefix(CHANNEL))
    if value.startswith(ATTRIBUTE):
        return _Place(("attributes",), value.removeprefix(ATTRIBUTE))
    *outer, name = value.split("/")
    above: list[str] = []
    for segment in outer:
        head, mark, item = segment.partition("#")
        above += [head, f"#{item}"] if mark else [head]
    return _Place(tuple(above), name)


def _write(found: RunState, values: dict[str, Any], *, full: bool, name: str | None) -> None:
    """Write what a run knew, and what came next."""
    steps = count(found.counters.steps, "step")
    where = f"/{found.part.base}" if found.part is not None else ""
    click.secho(
        f"run {found.run_id}{where} at checkpoint {found.sequence}: {found.status.value}, {steps}", dim=True
    )
    headings = _headings(found)
    known = _known_outside(found, values) if name is None and not full else set()
    above: Sequence[str] = ()
    for value_name in sorted(values, key=_Order(found)):
        place = _place_of(value_name)
        for depth, heading in enumerate(place.above):
            if place.above[: depth + 1] != tuple(above[: depth + 1]):
                note = headings.get(_joined(place.above[: depth + 1]), "")
                click.echo("  " * depth + click.style(heading, bold=True) + click.style(note, dim=True))
        above = place.above
        if value_name in known:
            click.echo("  " * len(above) + place.name + click.style(" as above", dim=True))
        else:
            _write_value(place, values[value_name], found.versions.get(value_name, 1), full=full)
    if name is None:
        for text in task_lines(found):
            click.echo(text)
        for text in (*stream_lines(found), *asking_lines(found)):
            click.echo(text)
        coming, waiting = next_of(found)
        for label, names in (("next", coming), ("waiting", waiting)):
            if names:
                click.secho(f"{label}: {', '.join(gathered(names))}", dim=True)
    if not full and any(is_cut(value, _room(len(n))) for n, value in values.items()):
        click.secho("Some values are cut; --full or --json shows all of them.", err=True, dim=True)


def _known_outside(found: RunState, values: Mapping[str, Any]) -> set[str]:
    """Return the values of inner flows that the flow around them has under the same name."""
    digests = found.digests
    known = set()
    for name in values:
        place = _place_of(name)
        if place.above and name[0] != "@" and name in digests:
            outer = "/".join([*name.split("/")[:-2], place.name])
            known |= {name} if digests.get(outer) == digests[name] else set()
    return known


class _Order:
    """The flow's own values first, then inner flows in the order they began, items by number, the channel."""

    def __init__(self, found: RunState) -> None:
        self._began: dict[tuple[str, ...], int] = {}
        for name in found:
            above = _place_of(name).above
            for depth in range(len(above)):
                self._began.setdefault(above[: depth + 1], len(self._began))

    def __call__(self, value: str) -> tuple[int, list[int]]:
        above = _place_of(value).above
        if value.startswith(CHANNEL):
            return 2, []
        ranks = [
            int(segment[1:]) if segment[0] == "#" else self._began[above[: depth + 1]]
            for depth, segment in enumerate(above)
        ]
        return (1 if above else 0), ranks


def _joined(above: Sequence[str]) -> str:
    return "/".join(above).replace("/#", "#")


def _headings(found: RunState) -> dict[str, str]:
    """Say of each open visit to a flow how far it is."""
    notes: dict[str, str] = {}
    for path, visit in found.opened.items():
        base = path + (f"@{visit.visit}" if visit.visit > 1 else "")
        if visit.items is None:
            notes[base] = "  under way"
        else:
            failed = f", {len(visit.failed):,} failed" if visit.failed else ""
            notes[base] = f"  {len(visit.done):,} of {count(visit.items, 'item')} completed{failed}"
    return notes


def _write_value(place: _Place, value: Any, version: int, *, full: bool) -> None:
    indent = "  " * len(place.above)
    room = _room(len(indent) + len(place.name))
    if place.name == ERROR and isinstance(value, ItemError):
        click.secho(f"{indent}✗ {value.type}: {one_line(value.message)}", fg="red")
        return
    mark = click.style(f" (version {version})", dim=True) if version > 1 else ""
    shown = whole(value, wide(), len(indent) + 2) if full else preview(value, room)
    text = f"{place.name}{mark} ={shown}" if shown.startswith("\n") else f"{place.name} = {shown}{mark}"
    click.echo(indent + text)


def _room(taken: int) -> int:
    """Return how many characters of a value fit beside its name, the size and the version."""
    width = screen_width()
    return 200 if width is None else max(width - taken - 30, 30)


def read(found: RunState, name: str) -> Any:
    """Return a value, or an `Unreadable` that says why not."""
    try:
        return found[name]
    except Exception as error:
        return Unreadable(error)
