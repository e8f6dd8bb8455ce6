"""`everstep export` and `everstep import`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everstep import AsyncHost, Host
from everstep.checkpoints import CheckpointManager
from everstep.cli.args.loading import load_flow
from everstep.cli.args.options import (
    command_line,
    find_place,
    json_option,
    open_host,
    say_if_new,
    store_option,
    who,
    who_option_by,
    whole_run,
)
from everstep.cli.live.counter import Meter
from everstep.cli.live.run_folder import text_of
from everstep.cli.view.text import count, size, write_json
from everstep.codec.plain_json import Wire
from everstep.codec.wire import wire
from everstep.errors import BadRequest
from everstep.on_demand import on_demand
from everstep.results import Exported, Imported
from everstep.types import LeaveOut

if TYPE_CHECKING:
    from everstep.server.console.file import run_file
else:
    run_file = on_demand("everstep.server.console.file:run_file")

FORMS = {
    "bundle": "bundle",
    **dict.fromkeys(("session", "003"), "session"),
    **dict.fromkeys(("phases", "004"), "phases"),
    **dict.fromkeys(("pipeline", "001"), "pipeline"),
    "folder": "folder",
    "html": "html",
}


@click.command()
@click.argument("run", metavar="RUN[@N]")
@click.argument("out", metavar="[OUT]", required=False)
@click.option("--without-secrets", is_flag=True, help="Leave out values named like secrets: *token*.")
@click.option("--leave-out", "patterns", metavar="NAME", multiple=True, help="Leave out values: 'client_*'.")
@click.option("--with-tokens", is_flag=True, help="Keep the hashes of tokens: links still answer waits.")
@click.option("--decrypt", is_flag=True, help="Write encrypted values in the clear.")
@click.option(
    "--flow", metavar="FILE.py[:FLOW]", help="Put the Flow IR of this flow, or its DOT text, there too."
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option(
    "--form",
    type=click.Choice(list(FORMS)),
    metavar="FORM",
    default="bundle",
    help="bundle (default), html (a page to look at), session (three files), folder, phases or pipeline "
    "(JSON of one checkpoint).",
)
@who_option_by
@store_option
@json_option
def export(
    run: str,
    out: str | None,
    without_secrets: bool,
    patterns: tuple[str, ...],
    with_tokens: bool,
    decrypt: bool,
    flow: str | None,
    force: bool,
    form: str,
    store: str | None,
    as_json: bool,
) -> int:
    """Write a run into one file, to carry it elsewhere: everstep import reads it back.

    The file holds the run's records, artifacts and waits, the structure of its flow, and the runs it was
    forked from. It is a plain ZIP that can be looked into. OUT is RUN.everstep if it is left out. Tokens that
    answer waits stay behind, and with --without-secrets values called like *password*, *token* or *api_key*;
    their digests stay, so the history can still be verified.

    \b
    Examples:
      everstep export A17
      everstep export A17 support-case.everstep --without-secrets --leave-out 'customer_*'
      everstep export A17 checkpoints/a17 --form session
      everstep export A17@3 a17.json --form phases
      everstep export A17 runs --form folder
      everstep export A17 A17.html --form html --without-secrets
    """
    form = FORMS[form]
    leaves = bool(without_secrets or patterns or decrypt)
    _check_form(form, leaves=leaves, with_tokens=with_tokens, flow=flow)
    with open_host(store, create=False) as host:
        if form in ("phases", "pipeline"):
            return _one(host, run, out, form, force)
        if "@" in run.partition("/")[0]:
            raise BadRequest(
                "a whole run is exported, not one of its checkpoints.",
                fix=f"Make that the end of a run first: everstep fork {run}",
            )
        run_id = whole_run(host, run)
        if form == "session":
            return _session(host, run_id, out, as_json)
        if form == "folder":
            return _folder(host, run_id, out, flow, as_json)
        policy = LeaveOut.secrets(*patterns) if without_secrets else LeaveOut(values=patterns)
        if form == "html":
            return _html(host.url, run_id, out, policy, decrypt=decrypt, force=force, as_json=as_json)
        with Meter("written", shows=not as_json) as meter:
            done = host.transfer.export(
                run_id,
                out or f"{run_id}.everstep",
                leave_out=LeaveOut(values=policy.values, tokens=not with_tokens),
                decrypt=decrypt,
                force=force,
                flow=load_flow(flow) if flow is not None else None,
                on_progress=meter,
                **who(),
            )
    if as_json:
        write_json(wire(done))
    else:
        _say_exported(done)
    return 0


def _check_form(form: str, *, leaves: bool, with_tokens: bool, flow: str | None) -> None:
    """Refuse options that a form does not take."""
    if form == "bundle":
        return
    if with_tokens or (leaves and form != "html") or (flow is not None and form != "folder"):
        takes = "neither --with-tokens nor --flow" if form == "html" else "none of these options"
        raise BadRequest(f"--form {form} takes {takes}.", fix="Leave them out, or write a bundle.")


def _one(host: Host, run: str, out: str | None, form: str, force: bool) -> int:
    run_id, at = find_place(host, run, None)
    text = json.dumps(host.transfer.checkpoint_as(run_id, form, at=at), indent=2, ensure_ascii=False) + "\n"
    if out is None or out == "-":
        sys.stdout.write(text)
        return 0
    if Path(out).exists() and not force:
        raise BadRequest(f"{out} is there already.", fix="Choose another name, or say --force.")
    Path(out).write_text(text, encoding="utf-8")
    click.echo(f"written: {out}")
    return 0


def _session(host: Host, run_id: str, out: str | None, as_json: bool) -> int:
    path, meta = CheckpointManager(host).create_checkpoint(run_id, out)
    if as_json:
        write_json({"path": path, "metadata": {n: getattr(meta, n) for n in meta.__struct_fields__}})
    else:
        click.echo(f"written: {path}.everstep, .state.json and .meta.json")
    return 0


def _folder(host: Host, run_id: str, out: str | None, flow: str | None, as_json: bool) -> int:
    text = text_of(load_flow(flow)) if flow is not None else None
    path = host.transfer.write_run_folder(run_id, out or "runs", pipeline=text)
    if as_json:
        write_json({"path": str(path)})
    else:
        click.echo(f"written: {path}")
    return 0


def _html(
    url: str, run_id: str, out: str | None, policy: LeaveOut, *, decrypt: bool, force: bool, as_json: bool
) -> int:
    """Write a run as a page that is looked at without a service."""
    path = Path(out or f"{run_id}.html")
    if path.exists() and not force:
        raise BadRequest(f"{path} is there already.", fix="Choose another name, or say --force.")

    async def made() -> Any:
        async with AsyncHost(url, create=False) as host:
            return await run_file(host, run_id, policy, decrypt=decrypt, **who())

    found = asyncio.run(made())
    path.write_text(found.text, encoding="utf-8")
    told = found.told
    if as_json:
        write_json(Wire(path=str(path), **wire(told)))
        return 0
    click.echo(f"written: {path} ({count(told.steps, 'step')}, {size(told.size)})")
    if told.left_out:
        click.echo(f"left out: {count(told.left_out, 'value')}")
    if told.cut_steps or told.cut_checkpoints:
        text = f"{count(told.cut_steps, 'step')} and {count(told.cut_checkpoints, 'checkpoint')}"
        click.secho(f"too large for one file: without {text}", err=True, fg="yellow")
    return 0


def _say_exported(done: Exported) -> None:
    runs = count(len(done.runs), "run")
    what = f"{runs}, {count(done.checkpoints, 'checkpoint')}, {count(done.artifacts, 'artifact')}"
    click.echo(f"written: {done.path} ({what}, {size(done.size)})")
    values = sorted({one.name for one in done.left_out if one.what == "value"})
    if values:
        click.echo(f"left out: {', '.join(values)}")
    tokens = sum(one.what == "token" for one in done.left_out)
    if tokens:
        click.echo(f"left out: {count(tokens, 'token')}; to make new ones: everstep answer WAIT --reissue")
    if done.keys:
        click.echo(f"encrypted with: {', '.join(done.keys)}; reading it after an import needs the key")
    if done.elsewhere:
        text = f"not in the file, as it is kept elsewhere: {', '.join(done.elsewhere)}"
        click.secho(text, err=True, fg="yellow")


@click.command("import")
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option("--value", "pairs", metavar="NAME=VALUE", multiple=True, help="Give back what was left out.")
@click.option("--live", is_flag=True, help="Let workers go on with an unfinished run at once.")
@click.option("--dry-run", is_flag=True, help="Only check the file, and say what would be imported.")
@click.option("--as", "other_id", hidden=True)
@who_option_by
@store_option
@json_option
def import_(
    path: str,
    pairs: tuple[str, ...],
    live: bool,
    dry_run: bool,
    other_id: str | None,
    store: str | None,
    as_json: bool,
) -> int:
    """Put the runs of a bundle into a store, where they keep their ids and their history.

    Everything is checked before anything is written: every digest, every artifact, every name. What is
    damaged, cut short or made up is refused. FILE may also be one of the three files of a session.

    Workers leave an unfinished run alone until you resume it, as it may still be driven where it comes from;
    --live lets them go on with it. A value that was left out is given back with --value, as JSON or text, and
    must be exactly the one that the run had.

    \b
    Examples:
      everstep import A17.everstep --dry-run
      everstep import A17.everstep --store elsewhere.db
      everstep import support-case.everstep --value 'api_key="hush"'
    """
    if other_id is not None:
        raise BadRequest(
            "a run keeps its id: it is part of what is hashed, and of its idempotency keys.",
            fix=f"Import it, then go on under another id: everstep fork RUN --as {other_id}",
        )
    if path.endswith((".state.json", ".meta.json", ".pkl")):
        return _import_session(path, store, as_json)
    if not as_json and not dry_run:
        say_if_new(store)
    with open_host(store, create=True) as host, Meter("read", shows=not as_json) as meter:
        how: dict[str, Any] = {"live": live, "dry_run": dry_run, "on_progress": meter, **who()}
        done = host.transfer.import_(path, values=_values(pairs), **how)
    if as_json:
        write_json(Wire(dry_run=dry_run, **wire(done)))
    else:
        _say_imported(done, dry_run, store)
    return 0


def _import_session(path: str, store: str | None, as_json: bool) -> int:
    with open_host(store, create=True) as host:
        info, meta = CheckpointManager(host).resume_from_checkpoint(path)
    if as_json:
        write_json({"run_id": info.run_id, "checkpoint_id": meta.checkpoint_id, "status": info.status.value})
    else:
        click.echo(f"imported: run {info.run_id} ({info.status.value})")
    return 0


def _values(pairs: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise BadRequest(f"--value {pair!r} is not NAME=VALUE.", fix="Write --value 'api_key=\"hush\"'.")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


def _say_imported(done: Imported, dry_run: bool, store: str | None) -> None:
    verb = "would be imported" if dry_run else "imported"
    for run in done.runs:
        if run.run_id in done.restored:
            why = "" if run.is_wanted else ", which came along"
            click.echo(
                f"{verb}: run {run.run_id} ({run.status}, {count(run.checkpoints, 'checkpoint')}){why}"
            )
        else:
            click.echo(f"there already: run {run.run_id}")
    missing = sorted({one.name for one in done.missing if one.what == "value"})
    if missing:
        click.secho(f"missing: {', '.join(missing)}; what needs them cannot go on", fg="yellow")
    if done.keys:
        click.secho(f"encrypted with: {', '.join(done.keys)}", fg="yellow")
    if done.elsewhere:
        click.secho(f"kept elsewhere, and not in the file: {', '.join(done.elsewhere)}", fg="yellow")
    for run_id in done.set_aside:
        again = command_line("resume", run_id, store=store)
        click.echo(f"  workers leave {run_id} alone; once no other store drives it: {again}")
