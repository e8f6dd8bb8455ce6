"""`everstep`: the group of commands, and how each of them ends.

A command is imported when it is used, so that none pays for the imports of another.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

import click

import everstep
from everstep.cli.failures import report
from everstep.errors import close_matches


class Lazy(NamedTuple):
    """Where a command is, seen from this package, and its line in the list of commands."""

    module: str
    attribute: str
    summary: str


COMMANDS = {
    "demo": Lazy("demo.command", "demo", "Kill a small order flow half-way and watch it go on."),
    "run": Lazy("commands.runs.run", "run", "Run a flow from a Python file, or a pipeline in DOT."),
    "resume": Lazy("commands.runs.run", "resume", "Continue a run that stopped or failed."),
    "runs": Lazy("commands.runs.list", "runs", "List runs, newest first."),
    "count": Lazy("commands.runs.tag", "count", "Count runs by status, flow, tag or another field."),
    "durations": Lazy("commands.fleet.durations", "durations", "Say how long runs and their nodes take."),
    "bulk": Lazy("commands.fleet.bulk", "bulk", "Do something to all runs that a query asks for."),
    "schedule": Lazy("commands.fleet.schedule", "schedule", "Start runs again and again by the clock."),
    "tag": Lazy("commands.runs.tag", "tag", "Tag a run, so that it is found by that."),
    "waits": Lazy("commands.waits.waits", "waits", "List what runs wait for, the oldest first."),
    "answer": Lazy("commands.waits.answer", "answer", "Answer what a run waits for."),
    "send": Lazy("commands.runs.send", "send", "Send a signal to a run, or take a turn with it."),
    "chat": Lazy("commands.runs.chat", "chat", "Talk with a run, a line and a turn at a time."),
    "publish": Lazy("commands.waits.inbox", "publish", "Publish an event that runs wait for."),
    "inbox": Lazy("commands.waits.inbox", "inbox", "Show what was sent to a run and not taken yet."),
    "worker": Lazy("commands.fleet.worker", "worker", "Drive the runs of some flows whenever they are due."),
    "workers": Lazy("commands.fleet.workers", "workers", "List workers that are alive, and what they drive."),
    "validate": Lazy("commands.author.validate", "command", "Say what is wrong with a flow before it runs."),
    "report": Lazy("commands.author.report", "command", "Draw a flow, and what of it survives a crash."),
    "log": Lazy("commands.runs.log", "log", "Show the checkpoints of a run in order."),
    "show": Lazy("commands.runs.show", "show", "Show a run, or one of its steps in full."),
    "state": Lazy("commands.runs.state", "state", "Show the values of a run at one checkpoint."),
    "diff": Lazy("commands.travel.diff", "diff", "Compare two runs, or two checkpoints of one."),
    "bisect": Lazy("commands.travel.bisect", "bisect", "Find the first step at which two runs differ."),
    "replay": Lazy("commands.travel.replay", "replay", "Run one recorded step again, alone."),
    "checkpoints": Lazy("commands.runs.checkpoints", "checkpoints", "List the checkpoints of a run."),
    "fork": Lazy("commands.travel.fork", "fork", "Go on from a checkpoint of a run as another run."),
    "clean-up": Lazy("commands.runs.checkpoints", "clean_up", "Remove old checkpoints of a run."),
    "gc": Lazy("commands.store.gc", "command", "Remove what retention says, and what no run needs."),
    "pin": Lazy("commands.store.pin", "pin", "Keep a run, whatever retention says."),
    "unpin": Lazy("commands.store.pin", "unpin", "Let retention apply to a run again."),
    "ack": Lazy("commands.store.pin", "ack", "Note that the result of a run was taken."),
    "erase": Lazy("commands.store.pin", "erase", "Remove a run for good, with its artifacts."),
    "breakers": Lazy(
        "commands.fleet.breakers", "breakers", "List the breakers that runs share, or close one."
    ),
    "notices": Lazy("commands.waits.notices", "notices", "List what was told of runs, or send it again."),
    "settle": Lazy("commands.waits.settle", "settle", "Say what became of an effect that never reported."),
    "drain": Lazy("commands.fleet.drain", "drain", "Write spooled checkpoints to the store."),
    "verify": Lazy("commands.store.verify", "verify", "Check that what is kept is as it was written."),
    "rekey": Lazy("commands.store.rekey", "rekey", "Encrypt what is kept with the key that is active now."),
    "migrate-store": Lazy(
        "commands.store.migrate_store", "migrate_store", "Bring the tables of a store up to date."
    ),
    "after-restore": Lazy(
        "commands.store.after_restore", "after_restore", "Make a store safe that was put back from a backup."
    ),
    "export": Lazy("commands.store.export", "export", "Write a run into one file, to carry it elsewhere."),
    "import": Lazy("commands.store.export", "import_", "Put the runs of such a file into a store."),
    "copy": Lazy("commands.store.copy", "copy", "Copy or move runs from one store to another."),
    "compat": Lazy("commands.travel.compat", "compat", "Say which runs can go on with a changed flow."),
    "migrate": Lazy("commands.travel.compat", "migrate", "Take a run over to another version of its flow."),
    "explain": Lazy("commands.travel.explain", "explain", "Say what a resume would do, before it does."),
    "cancel": Lazy("commands.runs.cancel", "cancel", "Cancel a run."),
    "undo": Lazy("commands.runs.undo", "undo", "Undo what a run did, the last step first."),
    "pause": Lazy("commands.fleet.pause", "pause", "Pause a run, a flow or a group."),
    "unpause": Lazy("commands.fleet.pause", "unpause", "Let a run, a flow or a group go on."),
    "pauses": Lazy("commands.fleet.pause", "pauses", "List what is paused."),
    "limits": Lazy("commands.fleet.limits", "limits", "List what limits hold back, by key, and why."),
    "audit": Lazy("commands.fleet.audit", "audit", "Say who did what, to which run and when."),
    "serve": Lazy("commands.fleet.serve", "serve", "Serve runs, waits and answers over HTTP."),
    "console": Lazy("commands.fleet.console", "console", "Look at all runs in a browser, live."),
    "token": Lazy("commands.fleet.token", "token", "Make and list the tokens that a service knows."),
    "doctor": Lazy("commands.fleet.doctor", "doctor", "Say how a store is, and what it can lose."),
    "ir": Lazy("commands.author.ir", "ir", "Print a flow as JSON, without its functions."),
    "bench": Lazy("bench.command", "bench", "Measure what a durable step costs on this machine."),
}


MEANT = {
    **dict.fromkeys(("ls", "list", "ps"), "runs"),
    **dict.fromkeys(("logs", "history"), "log"),
    **dict.fromkeys(("status", "info", "describe"), "show"),
    "exec": "run",
    **dict.fromkeys(("start", "submit"), "run --start"),
    **dict.fromkeys(("wait", "pending", "approvals"), "waits"),
    **dict.fromkeys(("approve", "reject", "reply", "respond", "fire"), "answer"),
    **dict.fromkeys(("signal", "notify", "tell"), "send"),
    **dict.fromkeys(("alerts", "dead-letters", "letters", "notifications"), "notices"),
    **dict.fromkeys(("talk", "repl", "converse"), "chat"),
    **dict.fromkeys(("event", "emit", "trigger"), "publish"),
    **dict.fromkeys(("signals", "messages", "unread"), "inbox"),
    **dict.fromkeys(("continue", "retry"), "resume"),
    **dict.fromkeys(("stop", "kill", "abort"), "cancel"),
    **dict.fromkeys(("compensate", "rollback", "saga", "revert"), "undo"),
    **dict.fromkeys(("batch", "mass", "foreach"), "bulk"),
    **dict.fromkeys(("suspend", "freeze", "hold"), "pause"),
    **dict.fromkeys(("unsuspend", "go-on", "thaw"), "unpause"),
    **dict.fromkeys(("paused", "suspended"), "pauses"),
    **dict.fromkeys(("queue", "throttle", "concurrency"), "limits"),
    "compare": "diff",
    **dict.fromkeys(("check", "lint"), "validate"),
    **dict.fromkeys(("graph", "draw", "visualize", "coverage"), "report"),
    **dict.fromkeys(("compatible", "preflight"), "compat"),
    **dict.fromkeys(("upgrade", "adopt"), "migrate"),
    **dict.fromkeys(("plan", "preview", "why"), "explain"),
    "rerun": "replay",
    **dict.fromkeys(("fsck", "integrity"), "verify"),
    "branch": "fork",
    **dict.fromkeys(("backup", "dump", "bundle", "pack", "save"), "export"),
    **dict.fromkeys(("restore", "load", "unpack"), "import"),
    **dict.fromkeys(("move", "mv", "cp", "transfer", "sync"), "copy"),
    **dict.fromkeys(("trim", "cleanup"), "clean-up"),
    **dict.fromkeys(("prune", "retention", "sweep", "vacuum"), "gc"),
    **dict.fromkeys(("keep", "preserve", "protect"), "pin"),
    "unprotect": "unpin",
    "acknowledge": "ack",
    **dict.fromkeys(("delete", "rm", "remove", "purge"), "erase"),
    **dict.fromkeys(("work", "daemon", "agent"), "worker"),
    **dict.fromkeys(("fleet", "nodes", "top"), "workers"),
    **dict.fromkeys(("json", "to-ir"), "ir"),
    **dict.fromkeys(("health", "ping", "diagnose"), "doctor"),
    **dict.fromkeys(("rotate", "encrypt", "reencrypt"), "rekey"),
    **dict.fromkeys(("tokens", "login", "role", "roles"), "token"),
    **dict.fromkeys(("who", "acts", "trail"), "audit"),
    **dict.fromkeys(("ui", "web", "dashboard", "studio", "browser"), "console"),
    "help": "--help",
}
"""What people mean who come from other programs."""


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports them on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        command = getattr(import_module(f"{__package__}.{lazy.module}"), lazy.attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            meant = MEANT.get(args[0]) or next(iter(close_matches(args[0], COMMANDS)), "")
            if not meant:
                raise
            raise click.UsageError(f"{error.message} Did you mean {meant!r}?", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.summary) for name, lazy in COMMANDS.items()])


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(everstep.__version__, "--version", prog_name="everstep")
@click.option("--store", metavar="FILE|URL", envvar="EVERSTEP_STORE", hidden=True)
@click.pass_context
def cli(ctx: click.Context, store: str | None) -> None:
    """Durable graph flows: every step is a commit, so a run survives its process.

    \b
    Try it:
      everstep demo
      everstep run orders.py --input order_id=A17 --run-id A17
      everstep log A17

    Runs are kept in ./.everstep/runs.db unless --store or EVERSTEP_STORE names another place.

    Exit codes: 0 completed, 1 failed or cancelled, 2 wrong usage, 3 halted, 130 interrupted.
    """
    # Without this, click colours whatever is a terminal.
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with its code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a sign that a stream cannot show ends no command
    try:
        code: Any = cli.main(arguments, prog_name="everstep", standalone_mode=False)
    except click.Abort:
        code = 130
    except BrokenPipeError:
        # The reader of our output has closed it; Python would complain again when it flushes on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception as error:
        code = report(error, as_json="--json" in arguments)
    if argv is None:
        gc.freeze()  # Python would look through all that is loaded once more: a tenth of a short command
    sys.exit(code if isinstance(code, int) else 0)
