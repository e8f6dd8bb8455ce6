"""Turns of a run: something is said to it, and it goes on until it waits for the next or has ended.

Saying comes first and is durable. Who drives the run then makes no difference: this process, or an owner that
has it already and is followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from everstep.engine.leases import seconds_left
from everstep.errors import (
    BadRequest,
    LeaseConflict,
    NoRoom,
    RunEnded,
    RunErased,
    RunNotFound,
    RunPaused,
    WaitNotFound,
    WaitSettled,
)
from everstep.graph.author.flow import Flow
from everstep.graph.author.node import Node
from everstep.graph.compile.plan import Plan
from everstep.model.acts import Act
from everstep.model.address import Address, plain_of, unvisited
from everstep.model.enums import Status
from everstep.model.leases import Lease
from everstep.model.records import RESULT
from everstep.model.waits import DEADLINE_KIND, LISTENING, SIGNAL_KIND, WaitRow, WaitStatus
from everstep.ports.store import RunRow, WaitFilter
from everstep.ports.system import uptime
from everstep.runtime.inputs import Given, check_same_flow
from everstep.runtime.operations.acting import first
from everstep.runtime.outage.outbox import drain
from everstep.runtime.outcome import Outcome
from everstep.runtime.preflight import preflight
from everstep.runtime.run_ids import check_run_id, missing_run
from everstep.runtime.runs import Runs
from everstep.runtime.services import Services
from everstep.runtime.waits.answers import Answers, message_name, open_waits, was_sent
from everstep.runtime.waits.fitting import check_fits
from everstep.runtime.waits.inbox import Inboxes, checked_name, ended

LOOK = 0.1
"""Seconds between two looks at whether the store was written to."""
PAGE = 1000


class Said(msgspec.Struct, frozen=True):
    """What is said to a run: a value under the name of a signal, or of a wait that it answers."""

    run_id: str
    name: str
    value: Any
    id: str | None = None
    """Given by the sender: the same one is said once."""
    act: Act | None = None


class Turns:
    """The turns that a host takes with its runs."""

    def __init__(self, services: Services, runs: Runs) -> None:
        self._services = services
        self._runs = runs
        self._answers = Answers(services, runs.keeper)
        self._inboxes = Inboxes(services, runs.keeper)

    async def take(self, said: Said, flow: Flow, inputs: Mapping[str, Any] | None) -> Outcome:
        """Say something to a run and drive it until it waits for the next or has ended.

        A run that is not there yet is started with `inputs`; one that is there goes on with its own.
        """
        flow = preflight(flow, self._services)
        checked_name(said.name)
        if said.id is not None:
            checked_name(said.id, "id")
        signal = _signal_for(flow, said.name)
        if signal is not None:
            check_fits(flow, signal, said.value)
        row = await self._run(said, flow, inputs)
        if self._services.spool.has(row.run_id):
            await drain(self._services, row.run_id)
        if signal is not None:
            await self._signal(said, signal)
        else:
            await self._say(said, flow)
        try:
            return await self._to_rest(said.run_id, flow)
        except RunPaused:
            return await self._told_paused(said.run_id)

    async def _told_paused(self, run_id: str) -> Outcome:
        """Return a run that takes in what was said when it goes on."""
        row = await self._runs.reader.row(run_id)
        waits = await open_waits(self._services.store, run_id)
        told = await self._runs.reader.recorded(row)
        return told._replace(waits=tuple(waits), paused=row.needs_repair or "")

    async def _run(self, said: Said, flow: Flow, inputs: Mapping[str, Any] | None) -> RunRow:
        row = await self._services.store.run(check_run_id(said.run_id))
        if row is None and inputs is None:
            missing = await missing_run(self._services.store, said.run_id)
            if isinstance(missing, RunErased):
                raise missing
            raise RunNotFound(
                f"there is no run {said.run_id!r} to send {said.name!r} to.",
                fix="Start it with the first one: give inputs={…}, those of the flow, or {} if it has none.",
            )
        if row is None:
            given = Given(inputs, act=said.act)
            with first():
                row = await self._runs.start(flow, given, said.run_id, compares_inputs=False)
        await check_same_flow(self._runs.reader, row, flow)
        return row

    # -- saying -------------------------------------------------------------------------------------------

    async def _say(self, said: Said, flow: Flow) -> None:
        """Answer the wait of that name, or send a signal if no wait of the flow is called that."""
        if said.id is not None and await self._was_answered(said, said.id):
            return
        wait = await self._open_wait(said)
        if wait is None and _may_ask(flow, said.name):
            # A signal of that name would never be taken: the run has to come to where it asks.
            rested = await self._to_rest(said.run_id, flow)
            wait = await self._open_wait(said)
            if wait is None:
                raise _asks_otherwise(said, rested)
        if wait is None:
            await self._signal(said, said.name)
        elif wait.kind == SIGNAL_KIND:
            await self._signal(said, message_name(wait))
        else:
            await self._answer(said, wait)

    async def _signal(self, said: Said, name: str) -> None:
        await self._inboxes.send(said.run_id, name, said.value, signal_id=said.id, act=said.act)

    async def _answer(self, said: Said, wait: WaitRow) -> None:
        try:
            await self._answers.answer(wait.wait_id, said.value, said.act, sent_id=said.id)
        except WaitSettled:
            # The same may have been said by another process a moment ago.
            now = await self._services.store.wait(wait.wait_id)
            if said.id is None or now is None or not was_sent(self._services.codecs, now, said.id):
                raise

    async def _open_wait(self, said: Said) -> WaitRow | None:
        """Return the open wait that a name is the path of; visits and items need not be written."""
        found = [
            row
            for row in await open_waits(self._services.store, said.run_id)
            if row.status is WaitStatus.OPEN and said.name in _names(row)
        ]
        exact = [row for row in found if row.path == said.name]
        if len(found) > 1 and len(exact) != 1:
            listed = ", ".join(str(Address.of(row.path, row.visit)) for row in found[:5])
            raise BadRequest(
                f"run {said.run_id!r} waits for {said.name!r} {len(found)} times.",
                fix=f"Name one: {listed}{', …' if len(found) > 5 else ''}",
            )
        return next(iter(exact or found), None)

    async def _was_answered(self, said: Said, sent_id: str) -> bool:
        """True if a wait of that name was answered with this id before, however long ago."""
        after: str | None = None
        while True:
            asked = WaitFilter(run_id=said.run_id, limit=PAGE, after=after)
            page = await self._services.store.waits(asked)
            may_be = (row for row in page if row.settled_at is not None or row.kind == "approval")
            named = (row for row in may_be if said.name in _names(row))
            if any(was_sent(self._services.codecs, row, sent_id) for row in named):
                return True
            if len(page) < PAGE:
                return False
            after = page[-1].wait_id

    # -- going on -----------------------------------------------------------------------------------------

    async def _to_rest(self, run_id: str, flow: Flow) -> Outcome:
        """Drive a run, or follow the owner that does, until it can do nothing more by itself."""
        outcome: Outcome | None = None
        tried: frozenset[str] | None = None
        while True:
            row, waits = await self._at_rest(await self._runs.reader.row(run_id))
            if waits is not None and (outcome is None or not _is_as_of(outcome, waits)):
                return (await self._runs.reader.recorded(row))._replace(waits=tuple(waits))
            if outcome is not None:
                if waits is not None or _ids(outcome.waits) == tried:
                    return outcome  # what two drives in a row did not take in is taken in by none
                tried = _ids(outcome.waits)
            try:
                outcome = await self._runs.resume(run_id, flow, is_patient=False, reopens=False)
            except LeaseConflict:
                outcome = None
                await self._follow(run_id)
            except NoRoom:
                outcome = None
                await self._services.system.pause(LOOK)
            # One that halted may have been taken up by another process since, with what was said here.
            if outcome is not None and (outcome.status is not Status.HALTED or outcome.spooled):
                return outcome

    async def _follow(self, run_id: str) -> None:
        """Return when a run has come to rest, or has no live owner. Its row is read after each change."""
        store, seen = self._services.store, None
        row = await self._runs.reader.row(run_id)
        while row.lease is not None and not self._is_free(row.lease):
            await self._services.system.pause(LOOK)
            changes = store.changes()
            if changes != seen:
                seen = changes
                row, waits = await self._at_rest(await self._runs.reader.row(run_id))
                if waits is not None:
                    return

    def _is_free(self, lease: Lease) -> bool:
        services = self._services
        here, now = services.processes.me(), services.time.now()
        left = seconds_left(lease, now=now, here=here, uptime=uptime(services.clock))
        return left <= 0 or (lease.process is not None and services.processes.is_gone(lease.process))

    async def _at_rest(self, row: RunRow) -> tuple[RunRow, list[WaitRow] | None]:
        """Return a run and what it waits for, if it can do nothing more by itself; else none for that."""
        while not row.status.is_final:
            if row.status is not Status.HALTED or row.stop_request is not None:
                return row, None
            now, waits = self._services.time.now(), await open_waits(self._services.store, row.run_id)
            before, row = row, await self._runs.reader.row(row.run_id)
            if row == before:  # else its waits may be those of another moment
                return row, None if any(wait.is_ripe(now) for wait in waits) else waits
        return row, []


def _ids(waits: Iterable[WaitRow]) -> frozenset[str]:
    return frozenset(wait.wait_id for wait in waits if wait.kind != DEADLINE_KIND)


def _is_as_of(outcome: Outcome, waits: Iterable[WaitRow]) -> bool:
    """True if what a drive came to is how the run stands; while it halted others may have gone on with it."""
    return _ids(waits) == _ids(outcome.waits) and _ids(waits) <= outcome.state.waits.keys()


def _names(row: WaitRow) -> tuple[str, ...]:
    """Return what a wait may be called: its path, as it is listed, and without visits and items."""
    if row.path[0] == "@":  # the wait is of the run, and not of a node
        return (row.path,)
    return row.path, str(Address.of(row.path, row.visit)), unvisited(row.path), plain_of(row.path)


def _signal_for(flow: Flow, name: str) -> str | None:
    """Return the signal that the flow itself says is meant by a name, or by the path of a wait for one."""
    if name in flow.inbox or name in _signals_of(flow.plan):
        return name
    node, is_inside = _node_at(flow.plan, name)
    return None if node is None or is_inside else _signal_of(node)


def _signals_of(plan: Plan) -> Iterator[str]:
    """Yield the signals that nodes of a flow wait for, those of flows inside it too."""
    for node in plan.nodes:
        if (signal := _signal_of(node)) is not None:
            yield signal
        if isinstance(node.inner, Plan):
            yield from _signals_of(node.inner)


def _signal_of(node: Any) -> str | None:
    is_listening = getattr(node, "kind", None) == SIGNAL_KIND
    return node.arguments.get("signal") if is_listening else None


def _may_ask(flow: Flow, name: str) -> bool:
    """True if a name is the path of a node that waits for answers, or may, or of a wait inside one."""
    node, _ = _node_at(flow.plan, name)
    return node is not None and node.halts and getattr(node, "kind", None) not in LISTENING


def _node_at(plan: Plan, path: str) -> tuple[Node | None, bool]:
    """Return the node that a path leads to, if any, and whether it leads on into that node."""
    address = Address.parse(path)
    names = address.names if address is not None else ()
    for depth, name in enumerate(names, 1):
        i = plan.index.get(name)
        if i is None:
            break
        node, rest = plan.nodes[i], names[depth:]
        if not rest or rest[0].startswith(RESULT):
            return node, bool(rest)
        if not isinstance(node.inner, Plan):
            break
        plan = node.inner
    return None, False


def _asks_otherwise(said: Said, rested: Outcome) -> WaitNotFound | RunEnded:
    if rested.status.is_final:
        return ended(said.run_id, rested.status)
    waits = ", ".join(dict.fromkeys(row.path for row in rested.waits if row.status is WaitStatus.OPEN))
    return WaitNotFound(
        f"run {said.run_id!r} does not wait for {said.name!r}.", fix=f"It waits for {waits or 'nothing'}."
    )
