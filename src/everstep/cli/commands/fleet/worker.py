"""`everstep worker`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click

from everstep import AsyncHost, Flow
from everstep.cli.args.loading import load_several, stdout_kept_clean
from everstep.cli.args.logs import begin_logs, finish, log_options
from everstep.cli.args.options import (
    channel_url,
    encryption_option,
    host_options,
    json_option,
    queue_url,
    read_key,
    say_if_new,
    store_option,
    url_of,
)
from everstep.cli.args.pipelines import pipeline_options
from everstep.cli.commands.fleet.metrics import TOKEN_VARIABLE, ScrapesListener, scrapes_listener
from everstep.cli.commands.fleet.opening import opened, patience_of, patience_option
from everstep.cli.view.pauses import paused_name, unpause_line, why_paused
from everstep.cli.view.text import STATUS_COLOURS, clock_time, count, duration, one_line
from everstep.cli.view.waits import noun
from everstep.client.surroundings import keys_here
from everstep.errors import BadRequest, StoreError
from everstep.model.durations import span_of
from everstep.model.enums import Status
from everstep.on_demand import on_demand
from everstep.runtime.events import Event
from everstep.runtime.workers.worker import Stats, Worker

if TYPE_CHECKING:
    from everstep.cli.commands.fleet.schedule import applied_line
else:
    applied_line = on_demand("everstep.cli.commands.fleet.schedule:applied_line")

log = logging.getLogger("everstep.worker")


@click.command()
@click.argument("places", metavar="FILE.py[:FLOW]...", nargs=-1)
@click.option("--flow", "more", metavar="FILE.py[:FLOW]", multiple=True, help="The same, as an option.")
@click.option(
    "--concurrency", type=click.IntRange(min=1), default=32, show_default=True, help="So many runs at once."
)
@click.option("--per-flow", "limits", metavar="NAME=N", multiple=True, help="So many at once of this flow.")
@click.option(
    "--grace",
    metavar="SPAN",
    default="30s",
    show_default=True,
    help="So long runs may go on after the first signal.",
)
@click.option(
    "--gc-every",
    metavar="SPAN",
    help="Clean up as often as this, one worker at a time, by the rules of runs.",
)
@click.option(
    "--audit-older-than", metavar="SPAN", help="With --gc-every, remove rows of the audit log, too: 365d."
)
@click.option(
    "--apply-schedules",
    is_flag=True,
    envvar="EVERSTEP_APPLY_SCHEDULES",
    help="First make schedules what the flows declare; see everstep schedule apply.",
)
@click.option("--once", is_flag=True, help="Work until nothing is due, then end.")
@patience_option
@click.option(
    "--metrics",
    "scrapes_at",
    metavar="[HOST:]PORT",
    help="Answer at /metrics, /healthz and /readyz; without HOST to this machine alone. 0 takes a free port.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    help=f"A file with the bearer token that who reads metrics must send. [default: {TOKEN_VARIABLE}]",
)
@host_options
@encryption_option
@pipeline_options
@store_option
@log_options
@json_option
def worker(
    places: tuple[str, ...],
    more: tuple[str, ...],
    concurrency: int,
    limits: tuple[str, ...],
    grace: str,
    gc_every: str | None,
    audit_older_than: str | None,
    apply_schedules: bool,
    once: bool,
    give_up_after: str | None,
    scrapes_at: str | None,
    token_file: str | None,
    key_file: str | None,
    base_url: str | None,
    encrypt_required: bool | None,
    store: str | None,
    as_json: bool,
) -> NoReturn:
    """Drive the runs of some flows whenever they are due, beside any number of other workers.

    Due are runs that were accepted, whose waits are answered or over, or whose owner died. Without :FLOW, all
    flows of a file are driven that are not inside another. A line tells of each run that is claimed, halts
    or ends; with --json, an object on a line of its own. Warnings and errors go to stderr. With --log-format
    json all of it goes there, and what nodes print, too, as a JSON object a line.

    The first Ctrl-C or SIGTERM lets runs end or halt for as long as --grace says and hands the others back;
    the second hands them all back.

    \b
    Examples:
      everstep worker orders.py refunds.py:refund --concurrency 8
      everstep worker orders.py --once
      everstep worker orders.py --metrics 9464
    """
    specs = [*places, *more]
    if not specs:
        raise BadRequest("a worker needs a flow to drive.", fix="Write: everstep worker FILE.py")
    is_logged = begin_logs(
        as_json=as_json, output=("stderr",) if as_json else ("stdout", "stderr"), is_service=True
    )
    teller = WorkerLines(sys.stdout, as_json=as_json, is_logged=is_logged and not as_json)
    scrapes = scrapes_listener(scrapes_at, token_file)
    with stdout_kept_clean(as_json):
        flows, wired = load_several(specs)
        say_if_new(store)
        make = partial(
            AsyncHost,
            url_of(store) if store else None,
            on_event=teller,
            key=read_key(key_file),
            base_url=base_url,
            notifiers=wired.notifiers,
            schedulers=wired.schedulers,
            channel=channel_url(),
            queue=queue_url(),
            encrypt=keys_here(encrypt_required),
            metrics=scrapes is not None,
        )
        patience = patience_of(give_up_after)
        host = opened(make, timedelta() if once and patience is None else patience)
        how: dict[str, Any] = {"concurrency": concurrency, "per_flow": _limits(limits)}
        how |= _spans(grace=grace, gc_every=gc_every, audit_older_than=audit_older_than)
        applies = _applying(teller) if apply_schedules else None
        code = asyncio.run(_work(host, flows, teller, how, scrapes, applies, store=store, once=once))
    finish()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a node's thread may never end, and its run was handed back


def _spans(**said: str | None) -> dict[str, Any]:
    """Return spans of time by the parameters that they are for, of the options of the same names."""
    given = {name: text for name, text in said.items() if text is not None}
    return {name: span_of(text, f"--{name.replace('_', '-')}") for name, text in given.items()}


def _limits(pairs: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for pair in pairs:
        name, _, number = pair.rpartition("=")
        if not name or not number.isdecimal():
            raise BadRequest(f"--per-flow {pair!r} is not NAME=N.", fix="Write --per-flow orders=2.")
        found[name] = int(number)
    return found


async def _work(
    host: AsyncHost,
    flows: Sequence[Flow],
    teller: WorkerLines,
    how: dict[str, Any],
    scrapes: ScrapesListener | None,
    applies: Callable[[AsyncHost, Sequence[Flow]], Awaitable[None]] | None,
    *,
    store: str | None,
    once: bool,
) -> int:
    """Work until there is nothing to do, or it is stopped; returns the exit code."""
    async with host:
        if applies is not None:
            await applies(host, flows)
        hand = host.worker(flows, **how)
        names = sorted({flow.name for flow in flows})
        teller.begin(host.url, names, how["concurrency"])
        with contextlib.suppress(BadRequest, StoreError):  # none can be paused there, or it is away
            for pause in await host.fleet.pauses(runs=False):
                if pause.flow is None or pause.flow in names:
                    said = f"{paused_name(pause)} is paused {why_paused(pause)}"
                    teller.note(f"{said}. Let it go on: {unpause_line(pause, store)}")
        answering = contextlib.nullcontext() if scrapes is None else scrapes.answering(host, hand)
        if scrapes is not None:
            teller.listening(scrapes.address)
        task = asyncio.ensure_future(hand.run(until_idle=once))
        stopping = Stopping(hand, task, teller)
        with stopping.heard(), answering:
            try:
                stats = await task
            except asyncio.CancelledError:
                stats = hand.stats
        teller.end(stats)
    return 130 if task.cancelled() else 0


def _applying(teller: WorkerLines) -> Callable[[AsyncHost, Sequence[Flow]], Awaitable[None]]:
    """Return what makes schedules what flows declare, and tells of those that were otherwise."""

    async def apply(host: AsyncHost, flows: Sequence[Flow]) -> None:
        for one in await host.schedules.apply(flows):
            if one.act != "none":
                teller.note(applied_line(one))

    return apply


class Stopping:
    """What signals do: the first lets runs end, the second hands them back, the third leaves."""

    def __init__(self, hand: Worker, task: asyncio.Task[Stats], teller: WorkerLines) -> None:
        self._hand = hand
        self._task = task
        self._teller = teller
        self._heard = 0

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """Take signals for a while."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._hear)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _hear(self) -> None:
        self._heard += 1
        if self._heard == 1:
            self._hand.stop()
            self._teller.note("stopping: runs under way may end or halt; once more to hand them back at once")
        elif self._heard == 2:
            self._task.cancel()
        else:
            os._exit(130)


class WorkerLines:
    """Tells of each run that is claimed, halts, ends or is let go of as it is paused, in a line."""

    def __init__(self, out: TextIO, *, as_json: bool, is_logged: bool = False) -> None:
        self._out = out
        self._as_json = as_json
        self._is_logged = is_logged
        self._runs: dict[str, tuple[str, datetime, list[str]]] = {}
        """Of the runs under way: the flow, when it was claimed, and what it came to wait for."""

    def begin(self, url: str, flows: Sequence[str], concurrency: int) -> None:
        """Say what this worker does."""
        self.note(f"driving {', '.join(flows)} ({concurrency} at once) on {url}")
        self.note("stop with Ctrl-C")

    def listening(self, address: str) -> None:
        """Say where metrics are."""
        if self._as_json:
            self._write_json({"event": "listening", "address": address})
        else:
            self.note(f"metrics at {address}/metrics")

    def note(self, text: str) -> None:
        """Say something that is about no run, on stderr."""
        if self._is_logged:
            log.info("%s", text)
        elif not self._as_json:
            click.secho(text, err=True, dim=True)

    def end(self, stats: Stats) -> None:
        """Say what was done in all."""
        done: dict[str, int] = {name: getattr(stats, name) for name in stats.__struct_fields__}
        if self._as_json:
            self._write_json({"event": "stopped", **done})
            return
        claimed = done.pop("claimed")
        parts = [f"{number} {name.replace('_', ' ')}" for name, number in done.items() if number]
        what = f": {', '.join(parts)}" if parts else ""
        self.note(f"worker claimed {count(claimed, 'run')}{what}")

    def __call__(self, event: Event) -> None:
        data = event.data
        flow, since, asked = self._runs.get(event.run_id, (data.get("flow", ""), event.at, []))
        match event.kind:
            case "run_resumed":
                self._runs[event.run_id] = (data["flow"], event.at, [])
                about = {"checkpoint": data["sequence"]}
                self._write(event, "claimed", data["flow"], about, f"from checkpoint {data['sequence']}")
            case "step_halted":
                asked.append(f"{event.node} ({noun(data['wait']['kind'])})")
            case "run_halted":
                self._runs.pop(event.run_id, None)
                about = {"waits": data["waits"], "seconds": (event.at - since).total_seconds()}
                said = (
                    f"waits for {', '.join(asked[:3])}" if asked else f"still {count(data['waits'], 'wait')}"
                )
                self._write(event, "halted", flow, about, said)
            case "run_paused":
                self._runs.pop(event.run_id, None)
                about = {"seconds": (event.at - since).total_seconds()}
                self._write(event, "paused", flow, about, "it, its flow or its group is paused")
            case "run_ended":
                self._runs.pop(event.run_id, None)
                about = {"error": data["error"], "seconds": (event.at - since).total_seconds()}
                said = one_line(data["error"] or "") or f"in {duration(event.at - since)}"
                self._write(event, data["status"], flow, about, said)

    def _write(self, event: Event, what: str, flow: str, about: dict[str, Any], said: str) -> None:
        if self._as_json:
            head = {"event": what, "at": event.at.isoformat(), "run_id": event.run_id, "flow": flow}
            self._write_json({**head, **about})
            return
        if self._is_logged:
            level = logging.WARNING if what in ("failed", "abandoned") else logging.INFO
            log.log(level, "run %s: %s %s", what, flow, said, extra={"run": event.run_id})
            return
        colour = {"claimed": "cyan", "paused": "yellow"}.get(what) or STATUS_COLOURS[Status(what)]
        time = click.style(clock_time(event.at), dim=True)
        line = f"{time}  {click.style(what.ljust(9), fg=colour)}  {event.run_id}  {flow}"
        click.echo(f"{line}  {said}".rstrip(), file=self._out)

    def _write_json(self, value: dict[str, Any]) -> None:
        self._out.write(json.dumps(value) + "\n")
        self._out.flush()
