"""`everstep rekey`."""

from __future__ import annotations

import click

from everstep.cli.args.options import find_run, json_option, open_host, store_option
from everstep.cli.view.text import count, write_json
from everstep.codec.wire import wire
from everstep.results import Rekeyed


@click.command()
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--dry-run", is_flag=True, help="Only say what would be encrypted.")
@store_option
@json_option
def rekey(run_id: str | None, dry_run: bool, store: str | None, as_json: bool) -> int:
    """Encrypt what is kept of a run, or of every run, with the key that is active now.

    Keys come from EVERSTEP_ENCRYPT_KEYS, or the file that EVERSTEP_ENCRYPT_KEYS_FILE names: the new one
    first, the old ones behind it. Values that were not encrypted are then, too. Digests stay, runs may be
    driven meanwhile, and what has the key already is passed by: if it was stopped, start it again.

    \b
    Examples:
      everstep rekey --dry-run
      everstep rekey
      everstep rekey A17 --json
    """
    with open_host(store, create=False) as host:
        name = find_run(host, run_id) if run_id is not None else None
        found = host.storage.rekey(name, dry_run=dry_run, on_run=None if as_json else _say)
    if as_json:
        write_json({"dry_run": dry_run, "runs": [wire(one) for one in found]})
        return 0
    changed = sum(one.has_changed for one in found)
    verb = "would be encrypted anew" if dry_run else "encrypted anew"
    click.echo(f"{count(len(found), 'run')}: {changed:,} {verb}")
    return 0


def _say(one: Rekeyed) -> None:
    if one.has_changed:
        what = ", ".join(
            count(number, noun)
            for number, noun in (
                (one.checkpoints, "checkpoint"),
                (one.artifacts, "artifact"),
                (one.waits, "wait"),
                (one.signals, "signal"),
                (one.emitted, "stream part"),
                (one.logs, "log"),
            )
            if number
        )
        click.echo(f"run {one.run_id}: {what}")
    if one.spooled:
        waiting = count(one.spooled, "checkpoint")
        said = f"run {one.run_id}: {waiting} on this machine, not yet in the store: everstep drain"
        click.secho(said, fg="yellow")
