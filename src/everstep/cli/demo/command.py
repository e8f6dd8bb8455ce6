"""`everstep demo`: run a flow, kill its process with SIGKILL, go on in another, and check what happened."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import click

from everstep import Host, Status
from everstep.cli.args.options import command_line
from everstep.cli.demo.flow import SECONDS, WORLD, read_notes
from everstep.cli.view.text import chosen_of, count, duration, one_line
from everstep.errors import BadRequest, StoreError
from everstep.model.records import INPUTS

RUN, ORDER, CENTS = "order-A17", "A17", 4200
PACE = {"reserve": 0.35, "charge": 0.35, "invoice": 0.25, "pack": 0.5, "ship_express": 0.35, "notify": 0.25}
NEVER_DONE = 30.0
"""How long packing takes in the first process: it is killed long before."""

Line = dict[str, Any]


@click.command()
@click.option("--fast", is_flag=True, help="Without pauses.")
@click.option("--keep", metavar="DIR", help="Keep the files in this folder, and say what to try with them.")
def demo(fast: bool, keep: str | None) -> int:
    """Run a small order flow, kill its process half-way with SIGKILL, and watch another one go on.

    Everything is real: two processes, a SQLite file, kill -9. In the end the demo checks what it claims and
    exits with 1 if a finished step ran twice.

    \b
    Example:
      everstep demo --keep /tmp/demo
    """
    began = time.monotonic()
    with _folder(keep) as folder:
        os.environ[WORLD] = str(folder)
        story = Story(folder, fast=fast)
        story.introduce()
        before = story.first_process()
        after = story.second_process(before)
        checks = verify(before, after)
        story.conclude(checks, time.monotonic() - began)
        _suggest(story.store if keep is not None else None)
    return 0 if all(check.holds for check in checks) else 1


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="everstep-demo-") as name:
            yield Path(name)
        return
    folder = Path(keep).absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadRequest(f"{keep} is there already and is not an empty folder.", fix="Name a new folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make {keep}: {error.strerror}.", fix="Name another folder.") from error
    yield folder


class DemoState(NamedTuple):
    """The run and the world at one moment, read from the files alone."""

    status: Status
    done: dict[str, int]
    """How often each node has finished, by the records."""
    key: str
    """The key of the charge, by the records."""
    calls: list[Line]
    """Every call of a node, by either process."""
    bank: list[Line]
    """Every request the bank got."""
    pid: int
    """The process that has just ended."""

    @classmethod
    def read(cls, store: str, pid: int) -> DemoState:
        done: dict[str, int] = {}
        key = ""
        with Host(store, create=False) as host:
            for record in host.history(RUN):
                for step in record.steps:
                    if step.path != INPUTS and step.status is Status.COMPLETED:
                        done[step.path] = done.get(step.path, 0) + 1
                        key = step.key or key if step.path == "charge" else key
            status = host.info(RUN).status
        return cls(status, done, key, read_notes("calls.jsonl"), read_notes("bank.jsonl"), pid)


class Check(NamedTuple):
    """A claim, and whether it holds."""

    claim: str
    holds: bool


def verify(before: DemoState, after: DemoState) -> list[Check]:
    """Check the claims of the demo against the records, the calls and the bank's books."""
    again = [call["node"] for call in after.calls if call["pid"] == after.pid and call["node"] in before.done]
    twice = sorted({*again, *(name for name, times in after.done.items() if times > 1)})
    keys = {request["key"] for request in after.bank}
    payments = sum(1 for request in after.bank if request["took_money"])
    skipped = ", ".join(before.done)
    return [
        Check(f"the order was completed by process {after.pid}", after.status is Status.COMPLETED),
        Check(
            f"finished before the kill and not run again: {skipped}"
            if not twice
            else f"run again although finished: {', '.join(twice)}",
            bool(before.done) and not twice,
        ),
        Check(
            f"{count(len(after.bank), 'request')} to the bank, "
            f"{count(len(keys), 'idempotency key')}, {count(payments, 'payment')}",
            keys == {after.key} and payments == 1,
        ),
        Check("pack was under way when the process died, and ran again", _was_packing(before, after)),
    ]


def _was_packing(before: DemoState, after: DemoState) -> bool:
    pids = [call["pid"] for call in after.calls if call["node"] == "pack"]
    return "pack" not in before.done and pids == [before.pid, after.pid]


class Story:
    """Starts the processes and tells what they do."""

    def __init__(self, folder: Path, *, fast: bool) -> None:
        self.store = f"sqlite:///{quote(str(folder / 'runs.db'))}"
        self._fast = fast

    def introduce(self) -> None:
        click.secho("everstep demo", bold=True)
        click.echo("An order flow with a flaky bank. Its process will be killed half-way with SIGKILL.\n")
        self._pause(0.6)

    def first_process(self) -> DemoState:
        """Drive the run until it packs and the invoice is on disk, then kill the process."""
        seen: set[str] = set()
        with self._start({"pack": NEVER_DONE}) as process:
            for line in self._lines(process):
                self._show(line)
                seen.add(f"{line['kind']} {line['node']}")
                # A checkpoint follows the steps it holds, so the invoice is on disk by now.
                if line["kind"] == "checkpoint" and {"step_completed invoice", "step_started pack"} <= seen:
                    self._pause(0.3)
                    process.send_signal(signal.SIGKILL)
                    break
            code = process.wait()
        if code != -signal.SIGKILL:
            raise StoreError(f"the first process of the demo ended by itself with code {code}.")
        before = DemoState.read(self.store, process.pid)
        click.secho(f"  ☠ kill -9 {process.pid}", fg="red", bold=True, nl=False)
        click.echo(f"  in the middle of pack. On disk: {', '.join(before.done)}.\n")
        self._pause(0.8)
        return before

    def second_process(self, before: DemoState) -> DemoState:
        """Go on with the run in another process, to its end."""
        with self._start({}) as process:
            for line in self._lines(process):
                if line["kind"] == "run_resumed":
                    click.echo(f"  from checkpoint {line['sequence']} of the file:")
                    for name in before.done:
                        click.secho(f"  – {name:<14}skipped, done before the kill", dim=True)
                        self._pause(0.12)
                self._show(line)
            process.wait()
        click.echo()
        return DemoState.read(self.store, process.pid)

    @contextmanager
    def _start(self, seconds: dict[str, float]) -> Iterator[subprocess.Popen[str]]:
        taking = seconds if self._fast else {**PACE, **seconds}
        command = [sys.executable, "-m", "everstep.cli.demo.worker", self.store, RUN, ORDER, str(CENTS)]
        environment = {**os.environ, SECONDS: json.dumps(taking)}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )
        click.secho(f"process {process.pid}", fg="cyan", bold=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _lines(self, process: subprocess.Popen[str]) -> Iterator[Line]:
        assert process.stdout is not None
        for text in process.stdout:
            yield json.loads(text)

    def _show(self, line: Line) -> None:
        node = f"{line['node']:<14}"
        match line["kind"]:
            case "step_started" if line["node"] == "pack":
                click.echo(f"  {click.style('▶', fg='cyan')} {node}packing …")
            case "step_completed":
                chosen = f"→ {chosen_of(line['decision'])}" if "decision" in line else ""
                again = f", attempt {line['attempt']} with the same key" if line["attempt"] > 1 else ""
                note = chosen or f"{duration(line['seconds'])}{again}"
                click.echo(f"  {click.style('✓', fg='green')} {node}{click.style(note, dim=True)}")
            case "step_retrying":
                error = one_line(line["error"])
                click.echo(
                    f"  {click.style('↻', fg='yellow')} {node}{click.style(error, fg='yellow')}; trying again"
                )
            case "step_failed":
                click.echo(f"  {click.style('✗', fg='red')} {node}{one_line(line['error'])}")

    def conclude(self, checks: list[Check], seconds: float) -> None:
        """Say which claims hold."""
        click.secho("checked against the files", fg="cyan", bold=True)
        for check in checks:
            good, bad = click.style("✓", fg="green"), click.style("✗ not true:", fg="red", bold=True)
            click.echo(f"  {good if check.holds else bad} {check.claim}")
            self._pause(0.15)
        if all(check.holds for check in checks):
            said = "No finished step was lost, and none ran twice."
            click.secho(f"\n{said} All of this took {duration(seconds)}.", bold=True)
        else:
            click.secho(f"\nThe demo failed after {duration(seconds)}.", fg="red", bold=True)

    def _pause(self, seconds: float) -> None:
        if not self._fast:
            time.sleep(seconds)


def _suggest(store: str | None) -> None:
    if store is None:
        again = command_line("demo", "--keep", "DIR", program=_program())
        click.echo(f"\nTo look at the records: {click.style(again, fg='cyan')}")
    else:
        click.echo("\nThe files are kept. Try:")
        for words in (["log", RUN], ["show", RUN, "charge"], ["state", RUN, "4"]):
            click.secho(f"  {command_line(*words, store=store, program=_program())}", fg="cyan")
    click.echo("Next: docs/tutorial.md")


def _program() -> list[str]:
    """Return how this everstep is called from a shell."""
    if shutil.which("everstep") is not None:
        return ["everstep"]
    started = Path(sys.argv[0])
    return [str(started)] if started.name == "everstep" else [sys.executable, "-m", "everstep"]
