"""`everstep run` and `everstep resume`."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from everstep import Flow, Host, Status
from everstep.cli.args.inputs import gather_channel, gather_inputs
from everstep.cli.args.loading import UNWIRED, WaitServices, load, stdout_kept_clean
from everstep.cli.args.logs import begin_logs, log_options
from everstep.cli.args.options import (
    command_line,
    deadline_option,
    host_options,
    json_option,
    open_host,
    said_times,
    store_option,
    times_options,
    tokens_option,
    who,
    who_options,
    whole_run,
)
from everstep.cli.args.pipelines import pipeline_of, pipeline_options, said_again
from everstep.cli.commands.waits.ask import along, ask_option, asks, refuse_ask
from everstep.cli.failures import say
from everstep.cli.live.run_folder import FolderKeeper, refuse_run_dir, run_dir_option
from everstep.cli.live.watching import Watcher, choose_watcher
from everstep.cli.view.stages import context_of, said_last
from everstep.cli.view.table import wide
from everstep.cli.view.text import Unreadable, count, duration, ended_before, one_line, preview, write_json
from everstep.cli.view.waits import wait_json, wait_lines
from everstep.client.documents import RunDocument
from everstep.client.views import Values as InnerValues
from everstep.codec.wire import wire
from everstep.errors import BadRequest, EverstepError, RunNotFound
from everstep.model.enums import Trigger
from everstep.model.records import START
from everstep.on_demand import on_demand
from everstep.results import Fallback, RunInfo, RunResult, StartedRun
from everstep.runtime.events import Listener

if TYPE_CHECKING:
    from everstep.cli.args.labels import given_attributes, given_tags
    from everstep.cli.view.pauses import held_back, pause_of, paused_by, unpause_line
    from everstep.results import PauseInfo
else:
    given_attributes = on_demand("everstep.cli.args.labels:given_attributes")
    given_tags = on_demand("everstep.cli.args.labels:given_tags")
    held_back = on_demand("everstep.cli.view.pauses:held_back")
    pause_of = on_demand("everstep.cli.view.pauses:pause_of")
    paused_by = on_demand("everstep.cli.view.pauses:paused_by")
    unpause_line = on_demand("everstep.cli.view.pauses:unpause_line")

EXIT_CODES = {Status.COMPLETED: 0, Status.HALTED: 3}

quiet_option = click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
wait_option = click.option(
    "--wait", "stays", is_flag=True, help="If the run halts, stay with it and go on when it is answered."
)

_SHOWN = 20


@click.command()
@click.argument("flow", metavar="FILE.py[:FLOW]|FILE.dot")
@click.option(
    "--input", "-i", "pairs", metavar="NAME=VALUE", multiple=True, help="One input; repeat for more."
)
@click.option("--inputs-file", metavar="JSON", help="A file with a JSON object of inputs, or - for stdin.")
@click.option("--channel", metavar="KEY=VALUE", multiple=True, help="Begin with this in the channel.")
@click.option("--run-id", metavar="ID", help="Name the run. An unfinished run of that name goes on.")
@click.option("--start", "only_start", is_flag=True, help="Only accept the run; a worker drives it.")
@click.option("--priority", type=int, default=0, metavar="N", help="The higher, the sooner workers take it.")
@click.option("--group", metavar="NAME", help="Runs of one group take turns with those of others.")
@click.option("--tag", "tags", multiple=True, metavar="NAME[=VALUE]", help="Tag the run; repeat for more.")
@click.option(
    "--attribute", "attributes", multiple=True, metavar="NAME=VALUE", help="Let the run be found by this."
)
@times_options
@who_options
@pipeline_options
@run_dir_option
@wait_option
@ask_option
@tokens_option
@host_options
@store_option
@log_options
@json_option
@click.option("--all", "show_all", is_flag=True, help="Print the values that other steps read, too.")
@quiet_option
def run(
    flow: str,
    pairs: tuple[str, ...],
    inputs_file: str | None,
    channel: tuple[str, ...],
    run_id: str | None,
    only_start: bool,
    priority: int,
    group: str | None,
    tags: tuple[str, ...],
    attributes: tuple[str, ...],
    stays: bool,
    tokens: bool,
    key_file: str | None,
    base_url: str | None,
    store: str | None,
    as_json: bool,
    show_all: bool,
    quiet: bool,
) -> int:
    """Run a flow from a Python file, from a module as package.module:FLOW, or a pipeline in DOT.

    The result goes to stdout, progress to stderr. A value is text where the flow wants a str, a number where
    it wants a number, and otherwise JSON if it parses. FLOW may be left out if only one flow of the file is
    not inside another.

    A run that halts is left to wait, and the command exits with 3 and says how to answer. Whom the file names
    in `notifiers`, by alias, is told of it; `schedulers` are read alike.

    \b
    Examples:
      everstep run orders.py --input order_id=A17 --input 'items=["tea"]'
      everstep run orders.py --input order_id=A17 --start --after 2h --deadline 1d
      everstep run orders.py --input order_id=A17 --channel user=ann
      everstep run orders.py:refund --inputs-file refund.json --json | jq .values
      everstep run review.dot --backend shell:./agent.sh --allow-tools
    """
    if only_start and stays:
        raise BadRequest("--start returns at once, and --wait stays.", fix="Give one of them.")
    if only_start or stays:
        refuse_ask("--start" if only_start else "--wait")
    if only_start:
        refuse_run_dir()
    begin_logs(as_json=as_json)
    with stdout_kept_clean(as_json):
        definition, wired = load(flow)
        inputs = gather_inputs(definition, pairs, inputs_file)
        if inputs is not None or run_id is None:
            definition.check_inputs(inputs or {})
        about: dict[str, Any] = {
            "channel": gather_channel(definition, channel),
            "priority": priority,
            "group": group,
            "tags": given_tags(tags) if tags else (),
            "attributes": given_attributes(attributes) if attributes else None,
            **(who() | said_times()),
        }
        opening = Opening(store, key_file, base_url, wired)
        work: Work = lambda host: host.run(  # noqa: E731  a name for its type
            definition, inputs, run_id=run_id, wait=stays, **about
        )
        if only_start:
            accepted = accept(definition, inputs, opening, run_id=run_id, **about)
        else:
            outcome = execute(definition, flow, opening, work, run_id=run_id, quiet=quiet, stays=stays)
    if only_start:
        return accepted.say(store, as_json=as_json, quiet=quiet)
    if quiet and not as_json and run_id is None:
        click.echo(f"run {outcome.run_id}", err=True)
    return show_result(outcome, flow, store, as_json=as_json, show_all=show_all, quiet=quiet, tokens=tokens)


@click.command()
@click.argument("run_id", metavar="RUN|CHECKPOINT|TOKEN")
@click.argument("flow", metavar="FILE.py[:FLOW]|FILE.dot", required=False)
@click.option("--start", metavar="NODE", help="Begin at this node, whatever was due.")
@click.option("--fallback", is_flag=True, help="If it is damaged, go on from its newest valid checkpoint.")
@who_options
@click.option("--for-workers", is_flag=True, help="Reopen it and leave it to workers to drive.")
@deadline_option
@pipeline_options
@run_dir_option
@wait_option
@ask_option
@tokens_option
@host_options
@store_option
@log_options
@json_option
@click.option("--all", "show_all", is_flag=True, help="Print the values that other steps read, too.")
@quiet_option
def resume(
    run_id: str,
    flow: str | None,
    start: str | None,
    fallback: bool,
    for_workers: bool,
    stays: bool,
    tokens: bool,
    key_file: str | None,
    base_url: str | None,
    store: str | None,
    as_json: bool,
    show_all: bool,
    quiet: bool,
) -> int:
    """Continue a run that stopped, or reopen one that failed at the node that failed.

    Finished steps are not run again. A run that has completed is shown as it is. The file may be left out
    for a run that `everstep run` began: the store remembers where its flow was, and where the version was
    that it went over to. What a halted run waits for and was answered is taken in; what was not goes on
    waiting.

    A run can also be named by the id of its newest checkpoint, or by a token of one of its waits, which is
    not shown again. From a checkpoint that it has left behind only a fork goes on.

    A run whose newest checkpoints are damaged is refused. With --fallback it goes on from the newest valid
    one, as a fork of its own, and steps are listed whose effects may happen a second time.

    \b
    Examples:
      everstep resume A17
      everstep resume A17 --wait
      everstep resume A17 orders.py
      everstep resume A17 --start price
      everstep resume A17 --for-workers
    """
    if stays:
        refuse_ask("--wait")
    if for_workers and (stays or fallback):
        given = "--wait" if stays else "--fallback"
        raise BadRequest(f"--for-workers and {given} are both given.", fix="Give one of them.")
    if run_id.endswith(".py") or ".py:" in run_id:
        again = command_line("resume", flow or "RUN", run_id, store=store)
        raise BadRequest(f"{run_id!r} is not a run: the run id comes first.", fix=f"Write: {again}")
    with open_host(store, create=False) as host:
        run_id = _to_go_on(host, run_id)
        flow = flow or place_for(host, run_id, ["resume", run_id], store)
    begin_logs(as_json=as_json)
    with stdout_kept_clean(as_json):
        definition, wired = load(flow)
        opening = Opening(store, key_file, base_url, wired, create=False)
        signed = who() | said_times()
        work: Work = lambda host: host.resume(  # noqa: E731  a name for its type
            run_id, definition, start=start, wait=stays, fallback=fallback, **signed
        )
        if for_workers:
            with opening.host() as host:
                left = host.fleet.reopen(run_id, definition, start=start, **signed)
                pause = pause_of(host, left)
        else:
            outcome = execute(definition, flow, opening, work, run_id=run_id, quiet=quiet, stays=stays)
    if for_workers:
        return _left(left, pause, store, as_json=as_json, quiet=quiet)
    return show_result(outcome, flow, store, as_json=as_json, show_all=show_all, quiet=quiet, tokens=tokens)


def _to_go_on(host: Host, name: str) -> str:
    """Return the run that is to go on, by its id, its newest checkpoint, or a token of one of its waits."""
    try:
        return whole_run(host, name)
    except RunNotFound:
        if "/" in name:
            raise
        return host.find(name).run_id


def _left(info: RunInfo, pause: PauseInfo | None, store: str | None, *, as_json: bool, quiet: bool) -> int:
    """Say how a run stands that workers are to drive."""
    if as_json:
        write_json(wire(info))
    elif quiet:
        return 0
    elif pause is not None:
        click.echo(held_back(info.run_id, pause, store), err=True)
    else:
        what = "has ended" if info.status.is_final else "goes on when a worker drives it"
        click.echo(f"run {info.run_id} is {info.status.value}; it {what}", err=True)
    return 0


Work = Callable[[Host], RunResult]


class Opening(NamedTuple):
    """How the host of a drive is opened."""

    store: str | None
    key_file: str | None = None
    base_url: str | None = None
    wired: WaitServices = UNWIRED
    create: bool = True

    def host(self, on_event: Listener | None = None) -> Host:
        host = open_host(
            self.store,
            create=self.create,
            on_event=on_event,
            key_file=self.key_file,
            base_url=self.base_url,
            wired=self.wired,
        )
        host._host._services.looks_first = True  # a command drives but one run, and has seen nothing yet
        return host


class Accepted(NamedTuple):
    """A run that others are to drive."""

    info: RunInfo
    is_new: bool
    pause: PauseInfo | None

    def say(self, store: str | None, *, as_json: bool, quiet: bool) -> int:
        """Write its id on stdout and return the exit code."""
        info = self.info
        again = command_line("resume", info.run_id, store=store)
        if as_json:
            write_json({**wire(info), "is_new": self.is_new, "resume": again})
            return 0
        click.echo(info.run_id)
        if not self.is_new:
            click.echo(f"run {info.run_id} was accepted before; it is {info.status.value}", err=True)
        elif not quiet:
            goes_on = "" if self.pause is not None else f"; a worker drives it, or: {again}"
            if info.status is Status.HALTED:
                goes_on = "; it begins when its time comes"
            click.echo(f"run {info.run_id} is accepted{goes_on}", err=True)
        if isinstance(info, StartedRun) and info.replaced and not quiet:
            click.echo(f"it replaces {', '.join(info.replaced)}", err=True)
        if self.pause is not None and not quiet:
            click.echo(held_back(info.run_id, self.pause, store), err=True)
        return 0


def accept(
    flow: Flow,
    inputs: Mapping[str, Any] | None,
    opening: Opening,
    *,
    run_id: str | None,
    **about: Any,
) -> Accepted:
    """Accept a run without driving it."""
    with opening.host() as host:
        is_new = True
        if run_id is not None:
            with contextlib.suppress(RunNotFound):
                host.info(run_id)
                is_new = False
        info = host.start(flow, inputs, run_id=run_id, **about)
        is_new = is_new and not (isinstance(info, StartedRun) and info.joined)
        return Accepted(info, is_new, pause_of(host, info))


def remembered_place(host: Host, run_id: str) -> str | None:
    """Return where the version of its flow that a run goes by was when it was taken up, if it is known.

    A run that was imported names no code, nor does a fork of one.
    """
    info, last = host.info(run_id), None
    while True:
        at = info.adopted_at
        if at is not None and last is not None and at > last:  # after the fork that is asked about
            before = (c for c in host.checkpoints(info.run_id, last=last) if c.trigger is Trigger.MIGRATION)
            at = max((c.sequence for c in before if c.run_id == info.run_id), default=None)
        if at is not None or info.parent_run_id is None:
            break
        last = info.forked_at
        info = host.info(info.parent_run_id)
    found = host.checkpoints(info.run_id, first=at or 1, last=at or 1)
    place = (found[0].metadata or {}).get("source") if found else None
    if not isinstance(place, str) or host.transfer.was_imported(info.run_id):
        return None  # a bundle must not choose which code of this machine is loaded
    return place


def place_for(host: Host, run_id: str, command: Sequence[str], store: str | None) -> str:
    """Return where a run's flow was when it was taken up, or say how to name it in this command."""
    place = remembered_place(host, run_id)
    if place is not None:
        return place
    info = host.info(run_id)
    name = info.flow
    if host.transfer.was_imported(run_id):
        raise BadRequest(
            f"run {run_id!r} was imported, and an imported run names no code.",
            fix=f"Write: {command_line(*command, f'FILE.py:{name}', store=store)}",
        )
    raise BadRequest(
        f"the store does not know where version {info.flow_version} of flow {name!r}, by which run "
        f"{run_id!r} goes, is defined.",
        fix=f"Write: {command_line(*command, f'FILE.py:{name}', store=store)}",
    )


class Executed:
    """What a drive came to, read while its host was open."""

    def __init__(
        self,
        result: RunResult,
        seconds: float,
        read: Container[str],
        *,
        failed_at: str | None,
        folder: Path | None = None,
        pause: PauseInfo | None = None,
        undoing: str | None = None,
    ) -> None:
        self.run_id = result.run_id
        self.status = result.status
        self.error = result.error
        self.steps = result.steps
        self.waits = result.waits
        self.spooled = result.spooled
        self.is_paused = result.is_paused
        self.pause = pause
        """Of a run that was let go of as it is paused: since when, and who wanted it."""
        self.undoing = undoing
        """Of a run that has ended: what came of undoing what it did; none of one that undid nothing."""
        self.fallback = result.fallback
        self.values: dict[str, Any] = {name: _value(result, name) for name in result}
        self.seconds = seconds
        self.read = {name for name in self.values if name in read}
        """The values that some node reads, so that they are not what the run was for."""
        self.channel: dict[str, Any] = {}
        """What is in its channel; of a pipeline that is what its values are."""
        self.said: list[str] = []
        """The last lines of what the stage said that failed the pipeline."""
        self.failed_at = failed_at
        """If the run had ended before, so that nothing was run: the node that failed, or nothing."""
        self.folder = folder
        """Where it was written as a folder, if that was asked for."""

    @property
    def was_driven(self) -> bool:
        return self.failed_at is None


def execute(
    flow: Flow,
    spec: str,
    opening: Opening,
    work: Work,
    *,
    run_id: str | None,
    quiet: bool,
    stays: bool = False,
) -> Executed:
    """Drive a run while its progress is shown. Ctrl-C ends the process with how to go on."""
    watcher = choose_watcher(flow, quiet=quiet, store=opening.store, stays=stays, is_plain=asks())
    keeper = FolderKeeper(flow)
    with opening.host(keeper.hearing(watcher)) as host:
        keeper.watch(host)
        began = time.monotonic()
        if run_id is not None:
            with contextlib.suppress(EverstepError):  # what is wrong with the run is said by the drive
                watcher.recall(partial(host.state, run_id))
        try:
            result = along(work, flow)(host)
        except KeyboardInterrupt:
            keeper.finish("")
            interrupted(watcher, spec, opening.store, stays=stays)
        except EverstepError:
            keeper.finish(watcher.run_id)
            raise
        finally:
            watcher.stop()
        seconds = time.monotonic() - began
        keeper.finish(result.run_id)
        failed_at = None if watcher.run_id else _failed_node(host, result)
        pause = pause_of(host, host.info(result.run_id)) if result.is_paused else None
        undoing = host.info(result.run_id).undoing if flow.plan.has_undo or result.error else None
        done = Executed(
            result,
            seconds,
            flow.plan.readers,
            failed_at=failed_at,
            folder=keeper.path,
            pause=pause,
            undoing=undoing if result.status.is_final else None,
        )
        if pipeline_of(flow) is not None:
            done.values = context_of(host, result.run_id)
            done.said = said_last(result)
        else:
            done.channel = {key: _value(result.channel, key) for key in result.channel}
        return done


def _failed_node(host: Host, result: RunResult) -> str:
    if result.status is not Status.FAILED:
        return ""
    failed = [
        step.path
        for record in host.history(result.run_id)
        for step in record.steps
        if step.status is Status.FAILED and step.error == result.error
    ]
    # A flow fails after the node inside it.
    return max(reversed(failed), key=lambda path: path.count("/"), default="")


def _other_values(outcome: Executed, store: str | None) -> str:
    """Name the other way on from a failure: a resume fails again where an input is to blame."""
    if outcome.status is not Status.FAILED:
        return ""
    return f", or with other values: {command_line('fork', outcome.run_id, store=store)} --input …"


def _anew(outcome: Executed, store: str | None) -> str:
    """Say how to go on from a run that was undone, which goes forward no more."""
    fork = command_line("fork", outcome.run_id, "--at", "1", store=store)
    if outcome.undoing == "declined":
        undo = command_line("undo", outcome.run_id, store=store)
        return f"A person said not to undo it. Undo it after all: {undo}. Begin anew as another run: {fork}"
    skipped = "" if outcome.undoing == "complete" else f" ({outcome.undoing})"
    return f"What it did was undone{skipped}. Begin anew as another run: {fork}, or with --input …"


def interrupted(watcher: Watcher, spec: str, store: str | None, *, stays: bool) -> NoReturn:
    """Say how to go on and leave at once, as records are safe and a node's thread may never end."""
    watcher.stop()
    wait = ["--wait"] if stays else []
    words = ["resume", watcher.run_id, spec, *wait, *said_again()] if watcher.run_id else []
    again = command_line(*words, store=store) if words else ""
    if watcher.is_halted:
        said = f"interrupted; run {watcher.run_id} stays halted and can be answered. Go on with: {again}"
    else:
        said = f"interrupted; continue with: {again}" if again else "interrupted before the run began"
    click.echo(said, err=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(130)


def show_result(
    outcome: Executed,
    spec: str,
    store: str | None,
    *,
    as_json: bool,
    show_all: bool,
    quiet: bool,
    tokens: bool = False,
    is_turn: bool = False,
) -> int:
    """Write the result on stdout and return the exit code of its status.

    Of a turn the values are what it was taken for, so they are shown of a run that halts, too.
    """
    error = outcome.error
    if as_json:
        more: dict[str, Any] = {"channel": outcome.channel} if outcome.channel else {}
        more |= {"run_folder": outcome.folder} if outcome.folder is not None else {}
        document = RunDocument(
            run_id=outcome.run_id,
            status=outcome.status,
            values=outcome.values,
            error=error,
            steps=outcome.steps,
            waits=[wait_json(wait, with_token=tokens) for wait in outcome.waits],
            spooled=outcome.spooled,
            paused=outcome.is_paused,
            fallback=outcome.fallback,
            **more,
        )
        write_json(wire(document))
    if not quiet and (outcome.was_driven or error is None):
        click.echo(summary(outcome, is_turn=is_turn), err=True)
    if outcome.folder is not None and not quiet:
        click.echo(f"run folder {outcome.folder}", err=True)
    if outcome.fallback is not None and not quiet:
        say_fallback(outcome.fallback)
    if outcome.spooled and not quiet:
        waiting = count(outcome.spooled, "checkpoint")
        said = f"{waiting} on this machine, not yet in the store: {command_line('drain', store=store)}"
        click.secho(said, err=True, fg="yellow")
    shows = outcome.status is Status.COMPLETED or (is_turn and outcome.status is Status.HALTED)
    if shows and not as_json:
        write_values(outcome, show_all=show_all, quiet=quiet)
    if outcome.status is Status.HALTED and not as_json:
        write_waits(outcome, store, quiet=quiet or outcome.is_paused, tokens=tokens)
    if outcome.is_paused and not quiet:
        say_paused(outcome, spec, store)
    for line in () if quiet or not outcome.was_driven else outcome.said:
        click.secho(f"  │ {line}", err=True, dim=True)
    if error is not None:
        again = command_line("resume", outcome.run_id, spec, *said_again(), store=store)
        message = f"{error.type}: {error.message}"
        if outcome.was_driven:
            trace = error.traceback.rstrip().removesuffix(f"\n{message}")  # said below
            on = f"Continue with: {again}{_other_values(outcome, store)}"
            say(error.code, message, on if outcome.undoing is None else _anew(outcome, store), trace)
        else:
            at = f", at {outcome.failed_at}" if outcome.failed_at else ""
            ended = f"run {outcome.run_id} {ended_before(outcome.status).replace('had ', '')}{at}: {message}"
            on = f"To try {outcome.failed_at or 'it'} again: {again}"
            on = on if outcome.undoing is None else _anew(outcome, store)
            say(error.code, f"{ended.rstrip('.')}. Nothing was run.", on)
    return 3 if outcome.is_paused else EXIT_CODES.get(outcome.status, 1)


def say_paused(outcome: Executed, spec: str, store: str | None) -> None:
    """Say on stderr that a run was paused, and how it goes on."""
    again = command_line("resume", outcome.run_id, spec, *said_again(), store=store)
    if outcome.pause is None:  # it was let go on since
        click.secho(f"it was paused, and may go on: {again}", err=True, fg="yellow")
        return
    lift = unpause_line(outcome.pause, store)
    said = f"paused {paused_by(outcome.pause)}; what had begun is recorded. Let it go on: {lift}"
    click.secho(said, err=True, fg="yellow")
    click.secho(f"then a worker goes on with it, or: {again}", err=True, dim=True)


def write_waits(outcome: Executed, store: str | None, *, quiet: bool, tokens: bool) -> None:
    """Write what a halted run waits for, and how it goes on."""
    for line in wait_lines(outcome.waits, store, with_tokens=tokens):
        click.echo(line)
    if not quiet:
        again = command_line("resume", outcome.run_id, *said_again(), store=store)
        click.secho(f"then a worker goes on with it, or: {again}", err=True, dim=True)


def write_values(outcome: Executed, *, show_all: bool, quiet: bool) -> None:
    """Write what the run was for: the values that no other step reads, or all if there are none."""
    flows = {name for name, value in outcome.values.items() if isinstance(value, InnerValues)}
    read = outcome.read | flows
    hidden = set() if show_all or len(read) == len(outcome.values) else read
    for name, value in outcome.values.items():
        if name not in hidden:
            write_named(name, value)
    if hidden and not quiet:
        others = hidden - flows
        left = [f"{count(len(others), 'value')} that other steps read"] if others else []
        left += [f"what is inside {', '.join(sorted(flows))}"] if flows else []
        click.secho(f"(and {', and '.join(left)}: --all)", err=True, dim=True)


def write_named(name: str, value: Any, depth: int = 0) -> None:
    """Write one value; those of an inner flow below its name."""
    indent = "  " * depth
    if not isinstance(value, InnerValues):
        click.echo(f"{indent}{name} = {preview(value, wide())}")
        return
    click.echo(f"{indent}{name}")
    for inner in value:
        write_named(inner, _value(value, inner), depth + 1)


def summary(outcome: Executed, *, is_turn: bool = False) -> str:
    """Say in one line how the run ended."""
    colour = {"completed": "green", "failed": "red"}.get(outcome.status.value, "yellow")
    word = "paused" if outcome.is_paused and outcome.status is Status.RUNNING else outcome.status.value
    status = click.style(word, fg=colour)
    if is_turn and not outcome.was_driven:  # another process drove it, or there was nothing new
        return f"run {outcome.run_id} {status}; nothing was left to run here"
    if not outcome.was_driven and any(wait.node == START for wait in outcome.waits):
        return f"run {outcome.run_id} {status}; it begins when its time comes"
    if not outcome.was_driven:
        said = ended_before(outcome.status).replace(outcome.status.value, status)
        anew = "" if outcome.status is Status.COMPLETED else ". Give another run id to start anew"
        return f"run {outcome.run_id} {said}; nothing was run{anew}"
    if outcome.undoing not in (None, "declined"):
        status += ", and what it did was undone"
    return f"run {outcome.run_id} {status}: {count(outcome.steps, 'step')} in {duration(outcome.seconds)}"


def _value(result: Mapping[str, Any], name: str) -> Any:
    try:
        return result[name]
    except Exception as error:
        return Unreadable(error)


def say_fallback(fallback: Fallback) -> None:
    """Say on stderr what was damaged, what goes on in its place, and what may be done twice."""
    click.secho(f"run {fallback.run_id} is damaged: {one_line(fallback.reason)}", err=True, fg="yellow")
    said = f"it goes on from checkpoint {fallback.at} as run {fallback.fork}"
    click.secho(said, err=True, fg="yellow")
    for step in fallback.may_repeat[:_SHOWN]:
        key = f", with the key {step.key}" if step.key else ""
        visit = f"@{step.visit}" if step.visit > 1 else ""
        click.echo(f"  {step.path}{visit} ({step.effects.value}) may be done twice{key}", err=True)
    if len(fallback.may_repeat) > _SHOWN:
        click.echo(f"  and {len(fallback.may_repeat) - _SHOWN} more: --json", err=True)
    if fallback.lost_signals:
        named = ", ".join(map(one_line, fallback.lost_signals[:_SHOWN]))
        click.echo(
            f"  signals taken behind it that cannot be read any more: {named}: send them again", err=True
        )
    if fallback.unread:
        numbers = ", ".join(map(str, fallback.unread[:_SHOWN]))
        click.echo(f"  what was done in checkpoint {numbers} cannot be read", err=True)
