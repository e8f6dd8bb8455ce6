"""`everstep report`: a flow drawn, with the part of it that survives a crash in colour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from everstep import report, validate
from everstep.cli.args.loading import load
from everstep.cli.args.options import command_line, json_option, store_option
from everstep.cli.args.pipelines import pipeline_options
from everstep.cli.commands.author.validate import host_for
from everstep.cli.view.text import count, one_line, write_json
from everstep.errors import BadRequest
from everstep.graph.draw.drawing import kind_of, to_dot, to_mermaid, to_svg
from everstep.graph.draw.layers import topological
from everstep.results import DurabilityReport

SIGNS = {"durable": "●", "halts": "‖", "incompatible": "○", "unkept": "·", "join": "┴"}
COLOURS = {"durable": "green", "halts": "yellow", "incompatible": "red", "unkept": None, "join": None}
MOST_RAILS = 24
"""Beyond that a picture on the terminal is unreadable; the nodes are listed without lines."""


@click.command("report")
@click.argument("flow", metavar="FILE.py[:FLOW]|FILE.dot")
@click.option("--dot", is_flag=True, help="Print the flow for Graphviz.")
@click.option("--mermaid", is_flag=True, help="Print the flow for Mermaid.")
@click.option("--svg", metavar="FILE", help="Draw the flow into an SVG file; - prints it.")
@pipeline_options
@store_option
@json_option
def command(flow: str, dot: bool, mermaid: bool, svg: str | None, store: str | None, as_json: bool) -> None:
    """Draw a flow and say how much of it survives a crash, and where a run can go on. Nothing runs.

    A node is durable (●), halts (‖), or cannot be checkpointed (○). The number before it is its segment:
    nodes that hang together, behind each of which a run could go on. A * marks nodes after which a checkpoint
    is certainly written.

    \b
    Examples:
      everstep report orders.py
      everstep report orders.py:flow --svg flow.svg
    """
    if sum((dot, mermaid, svg is not None, as_json)) > 1:
        raise BadRequest("several forms were asked for.", fix="Use one of --json, --dot, --mermaid, --svg.")
    loaded, wired = load(flow, runs=False)
    with host_for(store, wired) as host:
        found = report(loaded, host)
        wrong = len(validate(loaded, host).errors)
    if as_json:
        write_json(found.to_json())
    elif dot:
        click.echo(to_dot(found))
    elif mermaid:
        click.echo(to_mermaid(found))
    elif svg is not None:
        _write_svg(found, svg)
    else:
        _draw(found)
    if wrong:
        said = f"it cannot start: {count(wrong, 'error')}; see: {command_line('validate', flow, store=store)}"
        click.secho(said, fg="red", err=True)


def _write_svg(found: DurabilityReport, file: str) -> None:
    drawn = to_svg(found)
    if file == "-":
        click.echo(drawn)
        return
    try:
        Path(file).write_text(drawn + "\n", encoding="utf-8")
    except OSError as error:
        raise BadRequest(f"{file} cannot be written: {error.strerror}.", fix="Check the path.") from error
    click.echo(f"{file}: {found.headline}")


def _draw(found: DurabilityReport) -> None:
    click.echo(click.style(found.headline, bold=True))
    click.echo()
    drawn = rails([list(after) for after in found.leaves.after])
    back: dict[int, list[str]] = {}
    for u, v in drawn.back:
        back.setdefault(u, []).append(found.leaves.nodes[v].path)
    wide = len(str(len(found.resumable_segments)))
    for row in drawn.rows:
        if row.node is None:
            click.echo(f"  {' ' * wide}  {row.left}".rstrip())
            continue
        path = found.leaves.nodes[row.node].path
        kind = kind_of(found, row.node)
        segment = str(found.segment_of.get(path, "")).rjust(wide)
        mark = "*" if path in found.points else " "
        name = click.style(f"{SIGNS[kind]}{row.right[1:]}{path}", fg=COLOURS[kind])
        more = [one_line(found.reasons[path])] if path in found.reasons else []
        more += [f"↺ {', '.join(back[row.node])}"] if row.node in back else []
        said = click.style(f"  {'; '.join(more)}", dim=True) if more else ""
        click.echo(f"  {segment}{mark} {row.left}{name}{said}")
    if found.resumable_segments:
        click.echo()
    for k, segment_ in enumerate(found.resumable_segments, 1):
        where = "behind any of them"
        if segment_.points != segment_.nodes:
            where = f"behind {', '.join(segment_.points)}" if segment_.points else "only from its beginning"
        click.echo(f"  segment {k}: {count(len(segment_.nodes), 'node')}; a run goes on {where}")
    for line in found.guard_lines():
        click.echo(line)


class Row(NamedTuple):
    """A line of the drawing: rails, and a node in one of them if it is a node's line."""

    left: str
    node: int | None
    right: str


class Drawn(NamedTuple):
    """A graph as rows, and the edges that close its loops."""

    rows: list[Row]
    back: list[tuple[int, int]]


def rails(after: Sequence[Sequence[int]]) -> Drawn:
    """Draw a graph, given who follows each node."""
    order, forward, back = topological(after)
    rows: list[Row] = []
    lanes: list[int | None] = []
    """The node that each rail leads to."""
    for n in order:
        mine = [k for k, to in enumerate(lanes) if to == n]
        at = mine[0] if mine else _free(lanes)
        for k in mine[1:]:
            lanes[k] = None
        if len(mine) > 1:
            rows.append(Row(_bridge(lanes, at, dict.fromkeys(mine[1:], "┘")), None, ""))
        lanes[at] = n
        rows.append(Row(_rails(lanes[:at]), n, _rails([None, *lanes[at + 1 :]])))
        turns = _lead_on(lanes, at, forward[n])
        if turns:
            rows.append(Row(_bridge(lanes, at, turns), None, ""))
        while lanes and lanes[-1] is None:
            lanes.pop()
        if len(lanes) > MOST_RAILS:
            return Drawn([Row("", n, "") for n in order], back)
    return Drawn(rows, back)


def _lead_on(lanes: list[int | None], at: int, targets: Sequence[int]) -> dict[int, str]:
    """Let rails lead from a node to those that follow it; returns the rails it turns to, with their signs."""
    fresh = [t for t in targets if t not in lanes]
    known = [lanes.index(t) for t in targets if t in lanes]
    lanes[at] = fresh[0] if fresh else None
    turns = {k: "┤" if k > at else "├" for k in known}
    for t in fresh[1:]:
        k = _free(lanes, at + 1)
        lanes[k] = t
        turns[k] = "┐"
    return turns


def _free(lanes: list[int | None], start: int = 0) -> int:
    for k in range(start, len(lanes)):
        if lanes[k] is None:
            return k
    lanes.extend([None] * (max(start - len(lanes), 0) + 1))
    return len(lanes) - 1


def _rails(lanes: Sequence[int | None]) -> str:
    return "".join("  " if to is None else "│ " for to in lanes)


def _bridge(lanes: Sequence[int | None], at: int, turns: dict[int, str]) -> str:
    """Draw the lines between a node's rail and others that it comes from or turns to."""
    first, last = min(at, *turns), max(at, *turns)
    goes_on = lanes[at] is not None
    signs: list[str] = []
    for k in range(max(len(lanes), last + 1)):
        is_rail = k < len(lanes) and lanes[k] is not None
        if k == at:
            left, right = first < at, last > at
            sign = {(True, True): "┼┴", (True, False): "┤┘", (False, True): "├└"}[left, right][not goes_on]
        elif k in turns:
            sign = turns[k] if k in (first, last) else {"┐": "┬", "┘": "┴"}.get(turns[k], "┼")
        elif first < k < last:
            sign = "┼" if is_rail else "─"
        else:
            sign = "│" if is_rail else " "
        signs.append(sign + ("─" if first <= k < last else " "))
    return "".join(signs)
