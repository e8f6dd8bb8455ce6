"""`everstep report`: a flow drawn, with the part of it that survives a crash in colour."""

from __future__ import annotations

from pathlib import Path

import click

from everstep import report, validate
from everstep.cli.args.loading import load
from everstep.cli.args.options import command_line, json_option, store_option
from everstep.cli.commands.author.validate import host_for
from everstep.cli.commands.runs.pipelines import pipeline_options
from everstep.cli.view.rails import rails
from everstep.cli.view.text import count, one_line, write_json
from everstep.errors import BadRequest
from everstep.graph.draw.drawing import kind_of, to_dot, to_mermaid, to_svg
from everstep.results import DurabilityReport

SIGNS = {"durable": "●", "halts": "‖", "incompatible": "○", "unkept": "·", "join": "┴"}
COLOURS = {"durable": "green", "halts": "yellow", "incompatible": "red", "unkept": None, "join": None}


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
