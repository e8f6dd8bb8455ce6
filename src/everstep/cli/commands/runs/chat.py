"""`everstep chat`: many turns with one run, typed at a terminal or read from a pipe.

Each turn is a `host.send(..., drive=flow)`: this only reads lines and writes what comes of them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TextIO

import click

from everstep import Flow, Host, Status
from everstep.cli.args.inputs import gather_inputs
from everstep.cli.args.loading import load, stdout_kept_clean
from everstep.cli.args.options import (
    command_line,
    host_options,
    json_option,
    store_option,
    who,
    who_options,
)
from everstep.cli.commands.runs.run import Opening
from everstep.cli.commands.waits.inbox import json_or_text
from everstep.cli.failures import say
from everstep.cli.live.progress import describe
from everstep.cli.view.lookup import Lookup
from everstep.cli.view.pauses import held_back, pause_of
from everstep.cli.view.text import jsonable, one_line, preview, printable
from everstep.cli.view.waits import wait_json, wait_lines
from everstep.codec.wire import wire
from everstep.errors import BadRequest, EverstepError, FlowChanged, RunEnded, RunNotFound
from everstep.graph.compile.plan import Plan
from everstep.model.records import RESULT as CALL
from everstep.model.waits import LONGEST_NAME, SIGNAL_KIND, Reducer
from everstep.results import RunResult, WaitInfo
from everstep.runtime.events import Event

with suppress(ImportError):  # it lets input() edit a line and remember the last ones; not on every platform
    import readline  # noqa: F401

PROMPT = "> "
TOLD = ("emitted", "step_retrying", "budget_warned", "breaker_opened", "gap")
"""Events that are worth a line between what is typed and its answer."""
WRONG_USAGE = 2
RECENT = 5
"""Checkpoints among the newest that have the last call of a turn."""
_NO_REPLIES = ("$now", "$uuid", "$random")
_TAKEN = "$inbox-"
"""What signals that a node takes are recorded under."""
_OVER = (Status.COMPLETED, Status.CANCELLED)
_STUCK = (Status.FAILED, Status.ABANDONED)


@click.command()
@click.argument("flow", metavar="FILE.py[:FLOW]")
@click.option("--signal", metavar="NAME", help="What is typed is sent as this. [default: the only one]")
@click.option("--run-id", metavar="ID", help="Name the run, or go on with an earlier conversation.")
@click.option(
    "--input", "-i", "pairs", metavar="NAME=VALUE", multiple=True, help="One input; repeat for more."
)
@click.option("--inputs-file", metavar="JSON", help="A file with a JSON object of inputs.")
@who_options
@host_options
@store_option
@json_option
def chat(
    flow: str,
    signal: str | None,
    run_id: str | None,
    pairs: tuple[str, ...],
    inputs_file: str | None,
    key_file: str | None,
    base_url: str | None,
    store: str | None,
    as_json: bool,
) -> int:
    """Talk with a run of a flow: a line is sent as a signal, and the run is driven to its next wait.

    What nodes yield and emit is shown as it comes, then what the turn has written. Ctrl-C stops a turn: what
    has finished is kept, and an empty line goes on with it. Ctrl-D leaves; --run-id comes back, also after
    this process was killed, and goes on with a turn that was not finished.

    The signal is the one that the flow waits for with wait.signal, or takes in with inbox=, or that its
    run turns out to wait for in the middle of a node; if there are several, --signal says which. Lines may
    come from a pipe. With --json, a line is JSON if it parses, else text, and each event is a line of JSON;
    a turn ends with the event `result`.

    Exit codes: 0 left or completed, 1 failed or cancelled, 2 a line was refused, 130 interrupted.

    \b
    Examples:
      everstep chat assistant.py
      everstep chat assistant.py --run-id A17 --as ann
      printf 'hello\\nbye\\n' | everstep chat assistant.py --json
    """
    if inputs_file == "-":
        raise BadRequest("stdin has what is said, so inputs cannot come from it.", fix="Name a file.")
    screen = Screen(sys.stdout, as_json=as_json)
    with stdout_kept_clean(as_json):
        definition, wired = load(flow)
        signal = chosen_signal(definition, signal)
        inputs = gather_inputs(definition, pairs, inputs_file)
        with Opening(store, key_file, base_url, wired).host(screen.hear) as host:
            talk = Talk(host, definition, signal, screen, Place(flow, store))
            return talk.hold(run_id, inputs)


def chosen_signal(flow: Flow, wanted: str | None) -> str | None:
    """Return the signal that what is typed is sent as; refuse a flow that listens for none.

    None if only the code of its nodes knows: its run is asked once it waits.
    """
    known = list(dict.fromkeys([*flow.inbox, *_waited_for(flow.plan)]))
    # A node may take signals by itself, under names that only its code knows.
    takes_others = any(node.halts and getattr(node, "kind", None) is None for node in flow.plan.nodes)
    if wanted is not None:
        if wanted in known or takes_others or wanted in flow.plan.index:
            if not 0 < len(wanted) <= LONGEST_NAME:
                fix = f"Give text of 1 to {LONGEST_NAME} characters."
                raise BadRequest(f"the name of a signal is {wanted!r:.60}.", fix=fix)
            return wanted
        fix = f"It listens for {', '.join(known)}." if known else _HOW_TO_LISTEN
        raise BadRequest(f"flow {flow.name!r} does not listen for {wanted!r}.", fix=fix)
    if len(known) == 1:
        return known[0]
    if known:
        listed = " or ".join(f"--signal {name}" for name in known)
        raise BadRequest(f"flow {flow.name!r} listens for {len(known)} signals.", fix=f"Give {listed}.")
    if takes_others:
        return None
    raise BadRequest(f"flow {flow.name!r} listens for nothing.", fix=_HOW_TO_LISTEN)


def waited_for_by(waits: Iterable[WaitInfo]) -> str:
    """Return the signal that a halted run waits for."""
    names = list(dict.fromkeys(wait.listens_for for wait in waits if wait.kind == SIGNAL_KIND))
    if len(names) == 1 and names[0] is not None:
        return names[0]
    listed = f"It waits for {' and '.join(map(str, names))}" if names else "It waits for none"
    raise BadRequest("the run does not say which signal is meant.", fix=f"{listed}: give --signal NAME.")


_HOW_TO_LISTEN = (
    'Let it wait for what is said: wait.signal("message"), or take it in: inbox={"messages": append}.'
)


def _waited_for(plan: Plan) -> Iterator[str]:
    for node in plan.nodes:
        if getattr(node, "kind", None) == SIGNAL_KIND:
            yield node.arguments["signal"]  # type: ignore[attr-defined]  # a wait has them
        if isinstance(node.inner, Plan):
            yield from _waited_for(node.inner)


def _token(event: Event) -> str | None:
    """Return the text of what a node emits as a token: `ctx.emit("token", text="wor")`."""
    if event.kind != "emitted" or event.data.get("name") != "token":
        return None
    text = event.data.get("data", {}).get("text")
    return printable(text) if isinstance(text, str) else None


class Place(NamedTuple):
    """Where the flow and its runs are, as the command line said it."""

    flow: str
    store: str | None


class Screen:
    """What is written of a conversation: text for people, or a line of JSON for each event."""

    def __init__(self, out: TextIO, *, as_json: bool) -> None:
        self._out = out
        self.as_json = as_json
        self.is_for_people = not as_json and sys.stdin.isatty() and out.isatty()
        self._written: dict[str, None] = {}
        """The nodes that have written in this turn, in order."""
        self._streamed: set[str] = set()
        self._speaks: tuple[str, int] | None = None
        """The visit whose chunks were written last."""
        self._called: tuple[str, int] | None = None
        """The durable call inside a node that ended last in this turn."""
        self.is_in_line = False
        """True if chunks have begun a line that is not ended."""

    def begin_turn(self) -> None:
        self._written, self._streamed, self._called = {}, set(), None

    def hear(self, event: Event) -> None:
        """Take an event of the run, from any thread."""
        if self.as_json:
            self._line(wire(event))
        elif event.kind == "chunk":
            self._chunk(event)
        elif event.kind == "step_completed":
            self._note_end(event)
        elif (token := _token(event)) is not None:
            self._say(event, token)
        elif event.kind in TOLD and (line := describe(event, f"attempt {event.attempt}")):
            self.note(line.strip())

    def _line(self, document: object) -> None:
        self._out.write(json.dumps(jsonable(document), allow_nan=False) + "\n")
        self._out.flush()

    def _note_end(self, event: Event) -> None:
        call = event.node.rpartition("/")[2]
        if call[:1] != CALL:
            self._written[event.node] = None
        elif not ("wait" in event.data or call in _NO_REPLIES or call.startswith(_TAKEN)):
            self._called = event.node, event.visit

    def _chunk(self, event: Event) -> None:
        chunk = event.data.get("chunk")
        self._say(event, printable(chunk) if isinstance(chunk, str) else f"{one_line(str(chunk))} ")

    def _say(self, event: Event, text: str) -> None:
        """Write a piece of what a node says, in one line with those before it."""
        if self._speaks != (event.node, event.visit):
            self.end_line()
            self._speaks = event.node, event.visit
        self._streamed.add(event.node)
        self.is_in_line = True
        self._out.write(text)
        self._out.flush()

    def end_line(self) -> None:
        """End the line that chunks have begun."""
        if self.is_in_line:
            self.is_in_line = False
            self._out.write("\n")
            self._out.flush()

    def note(self, text: str) -> None:
        """Say something that is not part of the conversation."""
        if not self.as_json:
            self.end_line()
            click.secho(text, err=True, dim=True)

    def refuse(self, error: EverstepError) -> None:
        if self.as_json:
            self._line({"error": error.to_wire()})
        else:
            self.end_line()
            say(error.code, error.message, error.fix, str(error.details.get("traceback", "")))

    def result(self, result: RunResult, flow: Flow, host: Host) -> None:
        """Show what a turn came to: what it has written, and what it waits for besides signals."""
        if self.as_json:
            data = {
                "status": result.status.value,
                "values": {name: result[name] for name in result},
                "waits": [wait_json(wait, with_token=False) for wait in result.waits],
                "error": wire(result.error),
            }
            self._line(wire(Event(kind="result", run_id=result.run_id, at=host.clock.now())) | {"data": data})
            return
        self.end_line()
        shown = [name for name in self._answers(flow.plan) if name in result]
        for name in shown:
            value = result[name]
            text = printable(value) if isinstance(value, str) else preview(value, 1000)
            click.echo(text if len(shown) == 1 else f"{name} = {text}", file=self._out)
        if not shown and not self._streamed and self._called is not None:
            self._show_call(*self._called, result.run_id, host)
        self._out.flush()

    def _show_call(self, path: str, visit: int, run_id: str, host: Host) -> None:
        """Show what the last durable call of a turn returned: a node that waits in its middle has written
        nothing yet."""
        for record in reversed(host.history(run_id, count=RECENT)):
            for step in record.steps:
                if (step.path, step.visit) == (path, visit) and step.writes:
                    value = Lookup(host, run_id, [step]).written(step, step.writes[0])
                    if value is not None:
                        click.echo(printable(value) if isinstance(value, str) else preview(value, 1000))
                    return

    def _answers(self, plan: Plan) -> list[str]:
        """Return the values this turn was for: what it wrote, was not shown yet and no other node reads.

        If others read all of it, that is all that was not shown; but nothing if the turn was heard.
        """
        nodes = [plan.nodes[plan.index[path]] for path in self._written if path in plan.index]
        spoken = [node for node in nodes if getattr(node, "kind", None) != SIGNAL_KIND]
        final = [name for node in spoken for name in node.outputs if name not in plan.readers]
        names = final if final or self._streamed else [name for node in spoken for name in node.outputs]
        shown = {name for node in spoken if node.name in self._streamed for name in node.outputs}
        return [name for name in dict.fromkeys(names) if name not in shown]


class Talk:
    """One conversation: lines come in, turns are taken, until it ends or the person leaves."""

    def __init__(self, host: Host, flow: Flow, signal: str | None, screen: Screen, place: Place) -> None:
        self._host = host
        self._flow = flow
        self._signal = signal
        self._screen = screen
        self._place = place
        self._run_id = ""
        self._status: Status | None = None
        """How the run stood after the last turn; none if that was stopped."""
        self._code = 0
        self._is_held = False
        """True if the run can take nothing that is said before something else has happened."""
        self._is_greeted = False
        self._is_refused = False
        """True if the run goes by another flow, so that this command cannot go on with it."""

    def hold(self, run_id: str | None, inputs: Mapping[str, Any] | None) -> int:
        """Take turns until the end, and return the exit code."""
        try:
            goes_on = self._open(run_id, inputs)
            while goes_on:
                goes_on = self._take_next()
        except KeyboardInterrupt:
            self._code = 130
        self._leave()
        return self._code

    def _take_next(self) -> bool:
        """Read what is said next and take a turn with it; false if there is no other."""
        try:
            line = self._next_line()
            return line is not None and self._take(line)
        except KeyboardInterrupt:
            if not self._screen.is_for_people:
                raise
            return True  # it came between a turn and the prompt

    def _open(self, run_id: str | None, inputs: Mapping[str, Any] | None) -> bool:
        """Begin the run, or find the one that goes on; a flow that waits may speak first.

        False if there can be no turn.
        """
        is_there = run_id is not None and self._is_there(run_id)
        given = inputs
        if not is_there:
            given = {**self._empty(), **(inputs or {})}
            self._flow.check_inputs(given)
        if self._signal in self._flow.inbox and not is_there:
            # Driven now, it would go past what is said first.
            self._run_id = self._host.start(self._flow, given, run_id=run_id, **who()).run_id
            self._status = Status.HALTED
            return True
        if is_there and self._status not in _OVER:
            self._greet()
        return self._turn(lambda: self._host.run(self._flow, given, run_id=run_id, **who()))

    def _is_there(self, run_id: str) -> bool:
        try:
            info = self._host.info(run_id)
        except RunNotFound:
            return False
        self._run_id, self._status = info.run_id, info.status
        return True

    def _greet(self) -> None:
        """Say once how to stop and leave, and why a run speaks before anything is typed."""
        if self._is_greeted or not self._screen.is_for_people:
            return
        self._is_greeted = True
        self._screen.note(f"run {self._run_id}: Ctrl-C stops a turn, Ctrl-D leaves")
        if self._status is Status.RUNNING or self._is_unheard():
            self._screen.note("the last turn was not finished; it goes on")

    def _is_unheard(self) -> bool:
        """True if something was said that the run has not taken, as a process died or was not there."""
        return any(signal.name == self._signal for signal in self._host.inbox(self._run_id))

    def _empty(self) -> dict[str, Any]:
        """Return what values that take in signals begin with."""
        inbox = self._flow.inbox.items()
        return {name: [] for name, how in inbox if how == Reducer.APPEND and self._flow.input_hints(name)}

    def _next_line(self) -> str | None:
        """Return what is typed; Ctrl-C at the prompt forgets the line, Ctrl-D ends."""
        if not self._screen.is_for_people:
            line = sys.stdin.readline()
            return line.rstrip("\r\n") if line else None
        self._greet()
        while True:
            try:
                return input(PROMPT)
            except KeyboardInterrupt:
                click.echo()
                self._screen.note("Ctrl-D leaves")
            except EOFError:
                click.echo()
                return None

    def _take(self, line: str) -> bool:
        """Take a turn with what was typed; false if there can be no other."""
        if not line.strip():
            is_their_turn = self._status is Status.HALTED and not self._is_held
            return is_their_turn or self._go_on()
        if self._status in _STUCK and not (self._go_on() and self._status is Status.HALTED):
            self._screen.note("what you said was not sent, as the run does not go on")
            return self._status not in _OVER
        value = json_or_text(line) if self._screen.as_json else line
        return self._turn(
            lambda: self._host.send(self._run_id, self._listening(), value, drive=self._flow, **who())
        )

    def _go_on(self) -> bool:
        """Go on with a turn that was stopped or has failed, or that waited for something else."""
        return self._turn(lambda: self._host.resume(self._run_id, self._flow, **who()))

    def _listening(self) -> str:
        if self._signal is None:
            self._signal = waited_for_by(self._host.waits(self._run_id))
        return self._signal

    def _turn(self, drive: Any) -> bool:
        self._screen.begin_turn()
        try:
            result: RunResult = drive()
            self._run_id, self._status = result.run_id, result.status
            self._screen.result(result, self._flow, self._host)
            return self._goes_on(result)
        except KeyboardInterrupt:
            return self._stopped()
        except EverstepError as error:
            return self._refused(error)

    def _stopped(self) -> bool:
        self._status = None
        if not self._screen.is_for_people or not self._run_id:
            raise KeyboardInterrupt
        click.echo(err=True)  # behind the ^C that the terminal shows
        self._screen.is_in_line = False
        self._screen.note("stopped; an empty line goes on with it, and so does what you say next")
        return True

    def _refused(self, error: EverstepError) -> bool:
        self._screen.refuse(error)
        self._code = error.exit_code
        self._is_refused = isinstance(error, FlowChanged)
        if isinstance(error, RunEnded):
            self._status = self._host.info(self._run_id).status  # another process has ended it
            return self._screen.is_for_people and self._status not in _OVER
        return bool(self._run_id) and not self._is_refused and error.exit_code == WRONG_USAGE

    def _goes_on(self, result: RunResult) -> bool:
        if result.status is Status.HALTED:
            self._tell_what_holds(result)
            self._code = 0 if self._screen.is_for_people else self._code
            return True
        if result.status is Status.COMPLETED:
            return False
        self._code = 1
        if result.error is not None and not self._screen.as_json:
            message = f"{result.error.type}: {result.error.message}"
            trace = result.error.traceback.rstrip().removesuffix(f"\n{message}")  # said below
            say(result.error.code, message, "", trace)
        if result.status in _STUCK and self._screen.is_for_people:
            self._screen.note("an empty line tries it again, and so does what you say next; Ctrl-D leaves")
            return True
        return False

    def _tell_what_holds(self, result: RunResult) -> None:
        """Say what a run waits for besides what is said here, or that it is paused."""
        others = [wait for wait in result.waits if wait.kind != SIGNAL_KIND]
        is_held_by_others = len(others) == len(result.waits) > 0
        self._is_held = result.is_paused or is_held_by_others
        if result.is_paused and (pause := pause_of(self._host, self._host.info(result.run_id))) is not None:
            self._screen.note(held_back(result.run_id, pause, self._place.store))
        for line in wait_lines(others, self._place.store, with_tokens=False):
            self._screen.note(line)
        if self._is_held and self._screen.is_for_people:
            self._screen.note("what you say is kept until then; an empty line looks whether it goes on")

    def _leave(self) -> None:
        if not self._run_id or self._is_refused:
            return
        again = command_line("chat", self._place.flow, "--run-id", self._run_id, store=self._place.store)
        if self._status is not None and self._status in _OVER:
            self._screen.note(f"run {self._run_id} {self._status.value}")
        elif self._status in _STUCK:
            if not self._screen.is_for_people:  # there, an empty line would do
                again = command_line("resume", self._run_id, store=self._place.store)
            self._screen.note(f"run {self._run_id} {self._status.value}; try it again with: {again}")
        else:
            self._screen.note(f"go on with: {again}")
