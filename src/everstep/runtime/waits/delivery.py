"""A message that lets a run go on: from a timer, a queue, a webhook or an operator. One function for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from everstep.errors import (
    AnswerInvalid,
    BadRequest,
    FlowChanged,
    FlowNotFound,
    LeaseConflict,
    NoRoom,
    RunNotFound,
    RunPaused,
    TokenInvalid,
    WaitNotFound,
)
from everstep.graph.author.flow import Flow
from everstep.model.acts import Act, act_of
from everstep.model.waits import WaitRow
from everstep.on_demand import on_demand
from everstep.ports.store import RunRow
from everstep.runtime.outcome import Outcome
from everstep.runtime.reader import gone_on, looks_like_uuid
from everstep.runtime.runs import Runs
from everstep.runtime.services import Services
from everstep.runtime.waits.answers import Answers, open_waits
from everstep.runtime.waits.tokens import looks_like_token

if TYPE_CHECKING:
    from everstep.runtime.operations.acting import audited
else:
    audited = on_demand("everstep.runtime.operations.acting:audited")

_KEYS = ("checkpoint_id", "token", "wait_id")
_WHO = ("by", "comment")
_SHAPES = (
    'Send {"checkpoint_id": ...}, {"token": ..., "answer": ...}, {"wait_id": ...} if its time is over, '
    'or {"wait_id": ..., "answer": ...}; each may say who sends it with "by" and "comment".'
)


class Delivered(NamedTuple):
    """What a message did: the run it was for, and what came of driving it, unless another process has it."""

    run_id: str
    outcome: Outcome | None
    waits: tuple[WaitRow, ...] = ()


class Message(NamedTuple):
    """What was delivered, as far as its form goes."""

    kind: str
    name: str
    run_id: str | None
    has_answer: bool
    answer: Any
    act: Act | None
    """Who sends it, and why, if the message says so itself."""


def read_message(message: object) -> Message:
    """Return what a message says, or raise `BadRequest`. Nothing is looked up, so nothing is used up."""
    if not isinstance(message, Mapping):
        raise BadRequest("the message is not an object.", fix=_SHAPES)
    given = [key for key in _KEYS if key in message]
    allowed = {*given, *_WHO, "run_id" if given == ["checkpoint_id"] else "answer"}
    if len(given) != 1 or not message.keys() <= allowed:
        raise BadRequest("the message does not say which wait or checkpoint it is for.", fix=_SHAPES)
    kind, name, run_id = given[0], message[given[0]], message.get("run_id")
    if not isinstance(name, str) or not (run_id is None or isinstance(run_id, str)):
        raise BadRequest(f"{kind} is not a text.", fix=_SHAPES)
    if kind == "token" and "answer" not in message:
        raise AnswerInvalid("the message has a token and no answer.", fix=_SHAPES)
    act = act_of(message.get("by"), message.get("comment"))
    return Message(kind, name, run_id, "answer" in message, message.get("answer"), act)


class Deliveries:
    """Takes messages in: settles what they settle, then drives their runs on."""

    def __init__(self, services: Services, runs: Runs, answers: Answers) -> None:
        self._services = services
        self._runs = runs
        self._answers = answers

    async def deliver(
        self, message: object, flows: Iterable[Flow], act: Act | None = None, *, drive: bool = True
    ) -> Delivered:
        """Check a message, settle its wait, and drive the run here if its flow is among these.

        Without `drive` the run is left to workers. Settling needs no lease. If another process has the run,
        or the flow is not known here, the answer is kept all the same, and the next owner of the run takes it
        in. A checkpoint alone settles nothing: then those two are errors.
        """
        act = act or read_message(message).act
        doing = self._deliver(message, flows, act, drive=drive)
        return await (
            audited(self._services, "deliver", act, doing)
            if act is not None or self._services.notes_unnamed
            else doing
        )

    async def _deliver(
        self, message: object, flows: Iterable[Flow], act: Act | None, *, drive: bool
    ) -> Delivered:
        read = read_message(message)
        if read.kind == "checkpoint_id":
            row = await self._at_checkpoint(read)
            flow = flow_of(row, flows)
            if flow is None:
                raise FlowNotFound(
                    f"run {row.run_id!r} belongs to flow {row.flow_id!r}, which is not loaded here.",
                    fix="Deliver it where that flow is loaded.",
                )
            if not drive:
                return await self._left(await self._runs.reopen(row.run_id, flow, act=act))
            return self._done(row, await self._runs.resume(row.run_id, flow, is_patient=False, act=act))
        wait = await self._settle(read, act)
        row = await self._runs.reader.row(wait.run_id)
        if row.status.is_final:
            return self._done(
                row, await self._runs.reader.recorded(row)
            )  # an answer reopens no run; an operator may
        flow = flow_of(row, flows)
        outcome: Outcome | None = None
        if flow is not None and drive:
            try:
                outcome = await self._runs.resume(row.run_id, flow, is_patient=False, reopens=False)
            except (LeaseConflict, FlowChanged, NoRoom, RunPaused):
                outcome = None  # its owner, or a worker with room and the flow it began with, takes it in
        if outcome is None:
            return await self._left(row)
        return self._done(row, outcome)

    async def _left(self, row: RunRow) -> Delivered:
        """Say of a run that is left to others what it waits for, or what it came to."""
        if row.status.is_final:
            return self._done(row, await self._runs.reader.recorded(row))
        return Delivered(row.run_id, None, tuple(await open_waits(self._services.store, row.run_id)))

    def _done(self, row: RunRow, outcome: Outcome) -> Delivered:
        return Delivered(row.run_id, outcome, outcome.waits)

    async def _settle(self, read: Message, act: Act | None) -> WaitRow:
        if read.kind == "token":
            if not looks_like_token(read.name):
                raise TokenInvalid("this is not a token.", fix="Use it as you got it.")
            return await self._answers.answer(read.name, read.answer, act)
        if not looks_like_uuid(read.name):
            raise WaitNotFound("this is not the id of a wait.", fix="Look with: everstep waits")
        if read.has_answer:
            return await self._answers.answer(read.name, read.answer, act)
        return await self._answers.fire(read.name, act)

    async def _at_checkpoint(self, read: Message) -> RunRow:
        """Return the run that stands at a checkpoint."""
        run_id = read.run_id
        if run_id is None:
            if not looks_like_uuid(read.name):
                raise RunNotFound("no checkpoint is called that.", fix="List them with everstep log.")
            return await self._runs.reader.named(read.name)
        row, sequence = await self._runs.reader.find(run_id, read.name)
        if sequence != row.checkpoints:
            raise gone_on(row, sequence)
        return row


def flow_of(row: RunRow, flows: Iterable[Flow]) -> Flow | None:
    """Return the flow of a run, if it is among these; one that changed since is found, and refused later."""
    named = [flow for flow in flows if flow.name == row.flow_id]
    exact = [flow for flow in named if flow.plan.hash == row.flow_hash]
    return next(iter(exact or named), None)
