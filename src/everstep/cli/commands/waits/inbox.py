"""`everstep publish` and `everstep inbox`, and the value that a command line gives."""

from __future__ import annotations

import json
from typing import Any

import click

from everstep.cli.args.options import find_run, json_option, open_host, store_option, who, who_options
from everstep.cli.view.text import count, one_line, write_json
from everstep.codec.wire import wire
from everstep.errors import BadRequest
from everstep.results import SignalInfo


@click.command()
@click.argument("name", metavar="NAME")
@click.argument("words", metavar="[VALUE]", required=False)
@click.option("--text", metavar="TEXT", help="Publish this text, as it is.")
@click.option("--json-file", "file", metavar="FILE", help="Publish the JSON in this file, or - for stdin.")
@click.option("--id", "event_id", metavar="ID", help="No node of a run has this name and id twice.")
@click.option("--keep", metavar="SPAN", help="Waits that open later find it for so long, such as 1d.")
@who_options
@store_option
@json_option
def publish(
    name: str,
    words: str | None,
    text: str | None,
    file: str | None,
    event_id: str | None,
    keep: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Publish an event: every run that waits for one with these fields goes on.

    \b
    Examples:
      everstep publish paid '{"order": "A17"}'
      everstep publish paid '{"order": "A17"}' --id invoice-4711 --keep 1d
    """
    value = given_value(words, text, file)
    with open_host(store, create=False) as host:
        done = host.publish(name, value, id=event_id, keep=keep, **who())
    if as_json:
        write_json(wire(done))
    else:
        click.echo(f"{name} was published as {done.id}; {_met(done.settled, keep)}")


def _met(settled: int, keep: str | None) -> str:
    """Say how many go on with an event, and if none does, what becomes of it."""
    if settled:
        return f"{count(settled, 'wait')} {'goes' if settled == 1 else 'go'} on with it"
    later = "it is kept for those to come" if keep is not None else "--keep lets later ones find it"
    return f"no wait goes on with it; {later}"


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="At most so many."
)
@click.option("--after", type=click.IntRange(0), default=0, help="Go on after this number.")
@click.option("--drop", metavar="ID", help="Take this signal out of it unread.")
@who_options
@store_option
@json_option
def inbox(run_id: str, limit: int, after: int, drop: str | None, store: str | None, as_json: bool) -> None:
    """Show what was sent to a run and was not taken yet, the oldest first. Looking takes nothing.

    What fits nothing, and would stay there, is dropped by its id, while no process drives the run.

    \b
    Examples:
      everstep inbox A17
      everstep inbox A17 --drop click-1 --as ann --comment 'no text'
    """
    with open_host(store, create=False) as host:
        run_id = find_run(host, run_id)
        if drop is not None:
            dropped = host.drop_signal(run_id, drop, **who())
            if as_json:
                write_json({"run_id": run_id, "dropped": wire(dropped)})
            else:
                click.echo(f"dropped: {_line(dropped)}")
            return
        found = host.inbox(run_id, after=after, limit=limit)
    if as_json:
        following = found[-1].number if len(found) == limit else None
        write_json({"run_id": run_id, "signals": [wire(signal) for signal in found], "next": following})
        return
    for signal in found:
        click.echo(_line(signal))
    if not found:
        click.echo(f"the inbox of run {run_id} is empty")


def _line(signal: SignalInfo) -> str:
    said = signal.problem or json.dumps(signal.value, ensure_ascii=False)
    by = f" by {signal.act.by}" if signal.act is not None and signal.act.by else ""
    when = signal.sent_at.isoformat(sep=" ", timespec="seconds")[:19]
    return one_line(f"{signal.number}  {when}  {signal.id}  {signal.name}{by}: {said}")


def given_value(words: str | None, text: str | None, file: str | None) -> Any:
    """Return what is to be sent: JSON if it parses, or text."""
    given = [
        name for name, said in (("VALUE", words), ("--text", text), ("--json-file", file)) if said is not None
    ]
    if len(given) > 1:
        raise BadRequest(f"{' and '.join(given)} do not go together.", fix="Give one.")
    if file is not None:
        try:
            with click.open_file(file, encoding="utf-8") as opened:
                return json.load(opened)
        except RecursionError:
            raise _too_deep() from None
        except (OSError, ValueError) as error:
            raise BadRequest(f"cannot read JSON from {file}: {error}.", fix="Check the file.") from None
    if text is not None or words is None:
        return text
    return json_or_text(words)


def json_or_text(words: str) -> Any:
    """Return what words say as JSON, or the words."""
    try:
        return json.loads(words)
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        return words


def _too_deep() -> BadRequest:
    return BadRequest("the JSON is nested too deeply.", fix="Give something flatter.")
