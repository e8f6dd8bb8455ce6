"""`everstep explain`."""

from __future__ import annotations

from typing import Any

import click

from everstep import Host
from everstep.cli.args.loading import load, stdout_kept_clean
from everstep.cli.args.options import find_run, json_option, open_host, split_run, store_option
from everstep.cli.args.pipelines import pipeline_options
from everstep.cli.commands.runs.run import place_for, remembered_place
from everstep.cli.commands.travel.compat import COLOURS, OF_ONE, warned
from everstep.cli.view.text import count, moment, one_line, times_said, write_json
from everstep.cli.view.waits import votes_said
from everstep.codec.wire import wire
from everstep.errors import FlowNotLoaded
from everstep.model.address import Address
from everstep.model.enums import Effects, Status
from everstep.results import Awaited, Compatibility, Explanation, Planned, Recorded, WaitStatus


@click.command()
@click.argument("run", metavar="RUN[/PATH]")
@click.argument("flow", metavar="[FILE.py[:FLOW]]", required=False)
@pipeline_options
@store_option
@json_option
def explain(run: str, flow: str | None, store: str | None, as_json: bool) -> int:
    """Say what a resume of a run would do: skip, start, try again, wait for, and miss. Nothing is run.

    The file may be left out for a run that `everstep run` began, and while a worker is alive that has its
    flow, as that is asked then. With PATH, what it would do inside that flow or item. Exits with 1 if a
    resume would be refused.

    \b
    Examples:
      everstep explain A17
      everstep explain A17 orders.py:next_version --json
    """
    with open_host(store, create=False) as host:
        address = find_run(host, run)
        run_id, path = split_run(address)
        host.info(address)  # says whether the run has that part, before code is loaded
        place = flow or remembered_place(host, run_id)
        told = _asked(host, address, store) if place is None else None
    if place is not None:
        with stdout_kept_clean(as_json):
            definition, wired = load(place, runs=False)
            with open_host(store, create=False, wired=wired) as host:
                told = host.explain(address, definition)
    assert told is not None
    if as_json:
        write_json({**wire(told), **({"path": path} if path else {})})
    else:
        write(told, path)
    return 1 if told.missing or told.paused or told.compat.verdict is not Compatibility.CONTINUES else 0


def _asked(host: Host, address: str, store: str | None) -> Explanation:
    """Ask a live worker; if none has the flow, say how to name it in this command."""
    try:
        return host.fleet.explain(address)
    except FlowNotLoaded:
        run_id, _ = split_run(address)
        place_for(host, run_id, ["explain", run_id], store)
        raise


def write(told: Explanation, path: str = "") -> None:
    """Write an explanation, perhaps of what lies at a path alone."""
    name = f"{told.run_id}/{path}" if path else told.run_id
    click.echo(f"run {click.style(name, bold=True)} of flow {told.flow}: {told.status.value}")
    verdict = told.compat.verdict.value
    if told.compat.verdict is not Compatibility.CONTINUES:
        click.secho(f"  {OF_ONE[verdict]}: {one_line(told.compat.reason)}", fg=COLOURS[verdict])
        click.echo(f"  {one_line(told.compat.fix)}")
    for text in told.missing:
        click.secho(f"  missing: {one_line(text)}", fg="red")
    if told.is_driven:
        click.secho("  another process drives it now; a resume would wait for that", fg="yellow")
    if told.paused:
        click.secho(f"  {told.paused}", fg="yellow")
    if told.untaken is not None:
        click.secho(f"  no live worker takes it: {told.untaken.text}", fg="yellow")
        click.echo(f"  {told.untaken.fix}")
    if told.spooled:
        what = "they become a fork" if told.becomes_fork else "a resume here writes them first"
        waits = count(told.spooled, "checkpoint")
        click.secho(f"  {waits} of it on this machine, not yet in the store; {what}", fg="yellow")
    for rule in told.compat.migrations:
        click.echo(f"  goes over by {rule}")
    for text in warned(told.compat):
        click.secho(f"  {text}", fg="yellow")
    if told.is_cancelling and not told.is_undoing:
        ends = "undoes what it did, and then ends it" if told.undoes else "only ends it"
        click.secho(f"  it was cancelled; a resume {ends}", fg="yellow")
    if told.is_undoing and not told.status.is_final:
        click.secho("  it undoes what it did; a resume goes on with that", fg="yellow")
    for name, text in times_said(told.begins_at, told.ends_at).items():
        click.echo(f"  {name}: {text}")
    if told.is_undoing and told.status.is_final and told.status is not Status.CANCELLED:
        click.echo("  what it did was undone; it goes forward no more")
    if told.status in (Status.COMPLETED, Status.CANCELLED):
        click.echo("  nothing is left to do")
    _section("skipped, as their outputs are recorded", [_skipped(step) for step in told.recorded])
    _section("called again, as their outputs were not kept", list(told.remade))
    first = "started at once" if told.untaken is None else "started first, once a worker takes it"
    _section(first, [_planned(step) for step in told.starts])
    _section("due after that", [_planned(step) for step in told.pending])
    _section("waits", [_waited(w) for w in told.waits])
    _section(_of_undo(told), list(told.undoes))
    if told.may_repeat:
        unsaid = sum(step.effects is Effects.UNDECLARED for step in told.may_repeat)
        if unsaid < len(told.may_repeat):
            effects = count(len(told.may_repeat) - unsaid, "effect")
            click.secho(f"  {effects} may happen a second time", fg="yellow")
        if unsaid:
            said = f"{count(unsaid, 'step')} without declared effects may run a second time"
            click.secho(f"  {said}", fg="yellow")
    if told.can_lose:
        click.secho(f"  a crash may cost: {told.can_lose}", dim=True)


def _of_undo(told: Explanation) -> str:
    """Say what becomes of the steps that can be undone."""
    if told.is_undoing or told.is_cancelling:
        return "still to be undone, the first one first"
    return "can be undone, the first one first" if told.status.is_final else "undone if it failed now"


def _section(title: str, lines: list[str]) -> None:
    if lines:
        click.echo(f"  {click.style(title, dim=True)}")
    for line in lines:
        click.echo(f"    {line}")


def _waited(wait: Awaited) -> str:
    effect = {"done": ": it happened", "rerun": ": to be called again", "skip": ": skipped"}.get(
        wait.outcome or "", ""
    )
    status = wait.outcome if wait.outcome and not effect else wait.status.value
    then = f"; then {', '.join(wait.then)}" if wait.then else ""
    votes = f", {votes_said(wait.voting)}" if wait.voting is not None else ""
    # Once it is settled, its node is among those that start, with its calls.
    calls = f", {_inside(wait.calls)}" if wait.calls and wait.status is WaitStatus.OPEN else ""
    return f"{wait.path}  {wait.kind}, {status}{effect}{votes}{_when(wait.due_at)}{then}{calls}"


def _inside(calls: tuple[str, ...]) -> str:
    names = ", ".join(calls[:3]) + (", …" if len(calls) > 3 else "")
    return f"{count(len(calls), 'call')} inside recorded ({names})"


def _skipped(step: Recorded) -> str:
    if step.items is not None:
        return f"{step.path}  {step.items} of {count(step.of_items or 0, 'item')}"
    visits = f" ({count(step.visits, 'visit')})" if step.visits > 1 else ""
    wrote = f"  {click.style(', '.join(step.outputs), dim=True)}" if step.outputs else ""
    status = "" if step.status is Status.COMPLETED else f"  {step.status.value}"
    return f"{step.path}{visits}{status}{wrote}"


def _planned(step: Planned) -> str:
    parts = [str(Address.of(step.path, step.visit))]
    if step.attempt > 1:
        parts.append(f"attempt {step.attempt}")
    if step.calls:
        parts.append(_inside(step.calls))
    if step.chunks:
        at = f", from cursor {step.cursor}" if step.cursor is not None else ""
        parts.append(f"goes on behind {count(step.chunks, 'chunk')}{at}")
    if step.only_chooses:
        parts.append("is not called again: its edge is chosen")
    if step.may_repeat:
        parts.append(click.style(f"may repeat ({step.effects.value})", fg="yellow"))
    if step.asks == "probe":
        parts.append(click.style("its probe is asked first whether it happened", fg="yellow"))
    elif step.asks == "operator":
        parts.append(click.style("stops: an operator is to say whether it happened", fg="yellow"))
    if step.key is not None:
        parts.append(click.style(f"key {step.key}", dim=True))
    return "  ".join(parts) + _when(step.not_before)


def _when(at: Any) -> str:
    return "" if at is None else f", {moment(at)}"
