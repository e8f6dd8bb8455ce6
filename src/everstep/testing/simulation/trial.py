"""What is tried: how a world is set up, and what its end is compared with."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from everstep.client.sync import Host
from everstep.client.views import RunResult, WaitInfo
from everstep.errors import (
    BadRequest,
    EverstepError,
    LeaseConflict,
    LeaseLost,
    RunAbandoned,
    RunNotFound,
    StoreUnavailable,
    WaitSettled,
)
from everstep.graph.author.flow import Flow
from everstep.graph.compile.plan import deep_nodes
from everstep.model.address import plain_of
from everstep.model.enums import Status
from everstep.model.records import RESULT
from everstep.ports.durability import Notice
from everstep.testing.playing import say
from everstep.testing.simulation.checks import Broken, Judge, Kept, Reader, Told
from everstep.testing.simulation.faults import Decider
from everstep.testing.simulation.played import Doubles, played
from everstep.testing.simulation.world import Here, MakeStore, World

RUN = "A17"
MISUSE = 2
"""The exit code of errors that say what the caller has to do otherwise."""
_CHANCE = re.compile(r"datetime\.datetime\([^()]*\)|drift_ms=\d+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Times and fresh ids, which differ from life to life."""
_ENDED = (Status.COMPLETED, Status.CANCELLED, Status.FAILED)


class End(NamedTuple):
    """What a run came to, without what is a matter of time or chance."""

    status: Status
    steps: frozenset[tuple[str, int, Status]]
    digests: Mapping[str, bytes]
    values: Callable[[], dict[str, str]]
    error: str = ""


class Trial(Protocol):
    """Sets up worlds, and says what is wrong with one that is over."""

    def world(self, seed: int, decider: Decider) -> World:
        """Make a world with everything in it that is to happen."""

    def judge(self, world: World, reader: Reader, whole: Mapping[str, End] | None) -> list[Broken]:
        """Return what is broken, compared with what an uninterrupted world came to."""

    def ends(self, world: World, reader: Reader) -> dict[str, End]:
        """Return what the runs of a world came to."""


def ends_of(kept: Mapping[str, Kept]) -> dict[str, End]:
    """Return what each run came to."""
    return {run_id: _end_of(one) for run_id, one in kept.items()}


def _end_of(kept: Kept) -> End:
    steps = frozenset(
        [(step.path, step.visit, step.status) for _, step in kept.steps if step.status in _ENDED]
    )
    folded = kept.folded
    if folded is None:
        return End(kept.row.status, steps, {}, dict)
    error = (folded.error.message or folded.error.type) if folded.error is not None else ""
    return End(kept.row.status, steps, folded.digests(), lambda: _values(kept), error)


def _values(kept: Kept) -> dict[str, str]:
    assert kept.folded is not None
    space = kept.folded.space
    return {
        f"{prefix}{name}": _CHANCE.sub("?", repr(space.peek(name, prefix)))
        for prefix, area in space.areas.items()
        for name, slot in area.items()
        if not slot.is_transient and not prefix.startswith("@wait")
    }


def compared(found: Mapping[str, End], whole: Mapping[str, End]) -> Iterator[Broken]:
    """Yield in what runs came out otherwise than in an uninterrupted world."""
    for run_id, expected in whole.items():
        end = found.get(run_id)
        if end is None:
            yield Broken("result", f"run {run_id!r} was accepted, and is gone.")
        elif end.status is not expected.status:
            yield Broken("result", f"run {run_id!r} is {end.status.value}, not {expected.status.value}.")
        elif end.digests != expected.digests and (other := _other(end.values(), expected.values())):
            yield Broken("result", f"run {run_id!r} has another {other}.")
        elif end.steps != expected.steps:
            more, less = _told(end.steps - expected.steps), _told(expected.steps - end.steps)
            yield Broken("result", f"run {run_id!r} has other steps: {more} in place of {less}.")


def _told(steps: frozenset[tuple[str, int, Status]]) -> str:
    return str(sorted((path, visit, status.value) for path, visit, status in steps) or "none")


def _other(found: dict[str, str], expected: dict[str, str]) -> str:
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            return f"{name}: {found.get(name)}, not {expected.get(name)}"
    return ""


def check_answers(flow: Flow, answers: Mapping[str, Any]) -> None:
    """Raise for an answer that no node of the flow waits for, itself or because a guard holds it."""
    is_guarded = bool(flow.budgets or flow.breakers)
    known = {
        path.rpartition("/")[2]
        for path, node in deep_nodes(flow.plan)
        if node.halts or node.announces or is_guarded
    }
    # What is waited for inside a node, only the node knows.
    knows_more = any(node.halts and not node.is_built_in for _, node in deep_nodes(flow.plan))
    for name in answers:
        if plain_of(name).rpartition("/")[2] not in known and not knows_more:
            raise BadRequest(
                f"no node {name!r} of flow {flow.name!r} waits.",
                fix=f"There is {', '.join(sorted(known)) or 'none that does'}.",
            )


def _aliases(flow: Flow) -> list[str]:
    """Return the notifiers that the flow's waits name."""
    return list(dict.fromkeys(alias for _, node in deep_nodes(flow.plan) for alias in node.notifiers))


def _say_nothing(notice: Notice) -> None:
    """A notification is an effect, too, and this is its double."""


class FlowTrial:
    """One run of a flow in one process, which begins anew whenever it dies, and goes on with the run."""

    def __init__(
        self,
        flow: Flow,
        inputs: Mapping[str, Any] | None = None,
        *,
        channel: Mapping[str, Any] | None = None,
        doubles: Doubles | None = None,
        answers: Mapping[str, Any] | None = None,
        is_remote: bool = False,
        is_awaited: bool = False,
        make_store: MakeStore | None = None,
        is_chancy: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.flow = played(flow, doubles)
        self._inputs = inputs
        self._channel = channel
        self._answers = answers or {}
        self._is_remote, self._is_awaited = is_remote, is_awaited
        self._make_store = make_store
        self._is_chancy = is_chancy
        silent = dict.fromkeys(_aliases(flow), _say_nothing)
        self._options = {"notifiers": silent, **(options or {})}

    def world(self, seed: int, decider: Decider) -> World:
        world = World(
            seed,
            decider,
            is_remote=self._is_remote,
            is_awaited=self._is_awaited,
            make_store=self._make_store,
        )
        world.start("app", self._program)
        return world

    def _program(self, here: Here) -> None:
        """Run the flow, and again when the store was away, others have the run, or it was given up."""
        while True:
            try:
                self._run(here)
            except (StoreUnavailable, LeaseLost, LeaseConflict, RunAbandoned) as error:
                here.world.ledger.tell(f"{here.process.tag} hears: {error}")
                here.sleep(10)
            except EverstepError as error:
                if error.exit_code == MISUSE:
                    here.world.misuse = error
                raise
            else:
                return

    def _run(self, here: Here) -> None:
        with here.host(**self._options) as host:
            result = self._begin(here, host)
            in_vain = 0
            told: set[str] = set()
            while result.status is Status.HALTED and in_vain < 3:  # what waits for nothing is left so
                in_vain = 0 if self._answer(here, host, told) else in_vain + 1
                result = host.resume(RUN, self.flow)
            while result.spooled and here.process.machine.spooled:
                here.sleep(10)
                host.storage.drain()

    def _begin(self, here: Here, host: Host) -> RunResult:
        if here.life > 1:
            try:
                explanation = host.explain(RUN, self.flow)
            except EverstepError as error:
                if not isinstance(error, RunNotFound):
                    raise
            else:
                ledger = here.world.ledger
                here.world.explained.append(Told(ledger.tick(), here.process.tag, explanation))
                # A resume reopens what was given up, as people do, and what has failed, which is to stay so.
                if explanation.status is Status.ABANDONED or not explanation.status.is_final:
                    return host.resume(RUN, self.flow)
        return host.run(self.flow, self._inputs, run_id=RUN, channel=self._channel)

    def _answer(self, here: Here, host: Host, told: set[str]) -> bool:
        """Answer what is asked, or let the next due time come; false if nothing is waited for.

        `told` are waits that were sent a signal or an event, which is not always what they wait for.
        """
        waits = host.waits(RUN, limit=1000)
        for wait in waits:
            answer = None if wait.id in told else self._answer_to(wait)
            if answer is not None:
                here.sleep(5)
                with suppress(WaitSettled):  # the clock was first, or a process that died had answered it
                    say(host, wait, answer)
                if wait.listens_for:
                    told.add(wait.id)
                return True
        due = [wait.due_at for wait in waits if wait.due_at is not None]
        if not due and waits and waits[0].id in told:
            raise BadRequest(
                f"node {waits[0].node!r} waits for the {waits[0].kind} {waits[0].listens_for!r}, "
                "and what was given is not for it.",
                fix=f"Give what its match= asks for: answers={{{waits[0].node!r}: ...}}.",
            )
        if not due and waits:
            raise BadRequest(
                f"node {waits[0].node!r} waits for an answer, and the simulation has none.",
                fix=f"Give it: answers={{{waits[0].node!r}: ...}}.",
            )
        if due:
            left = min(due) - here.process.machine.now()
            here.sleep(max(left.total_seconds(), 5) + 0.001)  # by a clock that may be ahead of the store's
        return bool(waits)

    def _answer_to(self, wait: WaitInfo) -> Any:
        name = wait.node.rpartition("/")[2]
        answer = self._answers.get(wait.node, self._answers.get(name, self._answers.get(name.lstrip(RESULT))))
        if isinstance(answer, list):
            answer = answer[wait.visit - 1] if wait.visit <= len(answer) else None
        return answer(wait) if callable(answer) else answer

    def ends(self, world: World, reader: Reader) -> dict[str, End]:
        return ends_of(reader.kept(world))

    def judge(self, world: World, reader: Reader, whole: Mapping[str, End] | None) -> list[Broken]:
        judge = Judge(world, reader)
        broken = list(judge.all(world.explained))
        if whole is not None and not self._is_chancy:
            broken += compared(ends_of(judge.kept), whole)
        return broken
