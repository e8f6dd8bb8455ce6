"""`everstep fork`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from everstep import Host
from everstep.cli.args.inputs import read_value
from everstep.cli.args.options import (
    command_line,
    find_place,
    json_option,
    looking_at,
    split_run,
    store_option,
    who,
    who_option_by,
)
from everstep.cli.commands.runs.run import remembered_place
from everstep.cli.commands.runs.state import read
from everstep.cli.view.text import count, write_json
from everstep.codec.wire import wire
from everstep.errors import BadRequest
from everstep.model.address import unvisited
from everstep.model.records import CHANNEL
from everstep.results import ForkPreview, RunState

Pairs = tuple[str, ...]


@click.command()
@click.argument("run", metavar="RUN[@N][/PATH]")
@click.option("--at", metavar="N", help="The checkpoint, by sequence or id. [default: the newest]")
@click.option("--set", "values", metavar="NAME=VALUE", multiple=True, help="Edit a value; repeat for more.")
@click.option("--input", "-i", "inputs", metavar="NAME=VALUE", multiple=True, help="Edit an input.")
@click.option("--channel", metavar="KEY=VALUE", multiple=True, help="Edit an entry of the channel.")
@click.option("--as", "fork_id", metavar="ID", help="Name the fork. [default: a new UUID]")
@click.option("--choose-again", is_flag=True, help="Ask the gates whose choice is still to be acted on.")
@click.option("--keep-keys", is_flag=True, help="Use the idempotency keys of the original run again.")
@click.option("--dry-run", is_flag=True, help="Only say what would start first, and what would run again.")
@who_option_by
@store_option
@json_option
def fork(
    run: str,
    at: str | None,
    values: Pairs,
    inputs: Pairs,
    channel: Pairs,
    fork_id: str | None,
    choose_again: bool,
    keep_keys: bool,
    dry_run: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Make a run that goes on from a checkpoint of another, which stays as it is.

    Nothing is copied and nothing is run: `everstep resume` drives the fork. What read an edited value runs
    again, but nothing inside a flow that had ended. A value is text where it is text now, otherwise JSON if
    it parses. One inside a flow that was under way is named by the flow: rag/embedding, or check#7/cleaned
    for one item of a map. With PATH the whole run is forked, too, and --set names values inside that flow or
    item.

    \b
    Examples:
      everstep fork A17@3 --set 'score=0.9' --dry-run
      everstep fork A17@3 --set 'score=0.9' --as A17-b
      everstep fork A17@3 --set 'rag/embedding=[0.1, 0.2]'
      everstep fork A17@3/rag --set 'embedding=[0.1, 0.2]'
      everstep fork A17 --input model=large
    """
    with looking_at(store, as_json=as_json) as host:
        run_id, place = find_place(host, run, at)
        edits = EditOptions(host, run_id, place)
        edited: dict[str, Any] = {
            "inputs": edits.read("--input", inputs),
            "state": edits.read("--set", values),
            "channel": edits.read("--channel", channel),
        }
        if dry_run:
            _show(host.debug.preview_fork(run_id, at=place, choose_again=choose_again, **edited), as_json)
            return
        info = host.fork(
            run_id,
            at=place,
            **edited,
            fork_id=fork_id,
            keep_keys=keep_keys,
            choose_again=choose_again,
            **who(),
        )
        file = [] if remembered_place(host, info.run_id) else [f"FILE.py:{info.flow}"]
    again = command_line("resume", info.run_id, *file, store=store)
    if as_json:
        write_json({**wire(info), "resume": again})
        return
    click.echo(info.run_id)
    click.echo(f"forked from {info.parent_run_id}@{info.forked_at}; continue with: {again}", err=True)


def _show(told: ForkPreview, as_json: bool) -> None:
    if as_json:
        write_json(wire(told))
        return
    click.echo(f"would fork {told.run_id}@{told.at}; nothing was written")
    click.echo(f"  starts    {', '.join(told.starts) or 'nothing'}")
    if told.asks:
        click.echo(f"  asks      {', '.join(told.asks)}")
    if told.again:
        click.echo(f"  again     {', '.join(node.path for node in told.again)}")
    keyed = [node.path for node in told.again if node.had_key]
    if keyed:
        click.echo(f"  may do again what it did: {', '.join(keyed)}")
    click.echo(f"  keeps     what {count(told.kept, 'node')} wrote")


class EditOptions:
    """Reads NAME=VALUE with a view to what the run holds now."""

    def __init__(self, host: Host, run_id: str, at: int | str | None) -> None:
        self._host, self._at = host, at
        self._run_id, path = split_run(run_id)
        self._inside = f"{path}/" if path else ""
        self._present: RunState | None = None

    def read(self, option: str, pairs: Iterable[str]) -> dict[str, Any]:
        """Return the edits of one option."""
        edits: dict[str, Any] = {}
        for pair in pairs:
            name, equals, text = pair.partition("=")
            if not equals or not name:
                raise BadRequest(f"{option} {pair!r} is not NAME=VALUE.", fix=f"Write {option} count=3.")
            if name in edits:
                raise BadRequest(f"{option} {name} is given twice.", fix="Give it once.")
            known = self._inside + name if option == "--set" else name
            known = CHANNEL + name if option == "--channel" else known
            edits[name] = read_value(name, text, [str] if self._is_text(known) else [], option=option)
        return edits

    def _is_text(self, name: str) -> bool:
        if self._present is None:
            self._present = self._host.state(self._run_id, self._at)
        found = self._present
        names = [known for known in found if known == name or (name[0] != "@" and unvisited(known) == name)]
        return bool(names) and isinstance(read(found, names[-1]), str)
