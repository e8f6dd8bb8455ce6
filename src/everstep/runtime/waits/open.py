"""The waits of one run under way: opening them, telling of them, taking their answers in. Apart from the
drive, which opens none unless a node asks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, get_args, get_origin

import msgspec

from everstep.codec.notes import DETAILS, Message, close_note, message_of, open_settled, sealed_due
from everstep.codec.schema import schema_of, shaped
from everstep.engine.settling import check_carried
from everstep.errors import AnswerInvalid, BadRequest, EverstepError, StateCorrupted
from everstep.graph.author.guards import BUDGET, GuardWait
from everstep.graph.author.node import Node
from everstep.graph.author.wait_options import IN_CHAIN, IN_ROW, NO_DEFAULT, VOTED, Wait
from everstep.graph.author.waits import check_options
from everstep.graph.check.hints import UNKNOWN
from everstep.model.acts import LONGEST_COMMENT
from everstep.model.durations import moment_of, span_of
from everstep.model.enums import ValueForm
from everstep.model.records import TRACE, WAIT, visit_path
from everstep.model.waits import (
    CHILD_KIND,
    EVENT_KIND,
    LISTENING,
    SETTLE,
    SIGNAL_KIND,
    SettledBy,
    WaitOpened,
    WaitRow,
    child_in,
    topic_of_signal,
)
from everstep.on_demand import on_demand
from everstep.ports.events import Wanted, fields_of, wanted_by
from everstep.runtime.drive.channel import ChannelDesk
from everstep.runtime.drive.context import RunContext
from everstep.runtime.drive.finish import draft_asked
from everstep.runtime.drive.invoke import Call
from everstep.runtime.drive.values import Slot
from everstep.runtime.guards.budgets import take_answer
from everstep.runtime.outage.store_retry import outage, patiently
from everstep.runtime.waits.announce import announce
from everstep.runtime.waits.answers import APPROVAL, trace_note, who_settled
from everstep.runtime.waits.inbox import check_has_inbox, checked_name
from everstep.runtime.waits.publish import check_has_events
from everstep.runtime.waits.settled import answer_type_of, output_of, settlement_of, too_late
from everstep.runtime.waits.tokens import hash_of

if TYPE_CHECKING:
    from everstep.runtime.drive.children.results import came_to, failure_of, look, topic_of
    from everstep.runtime.metrics.meter import Meter
    from everstep.runtime.waits.notices.told import tell_of_budget, tells_of_wait
    from everstep.runtime.waits.voting import starters_of, votes_of, with_voting
else:
    came_to = on_demand("everstep.runtime.drive.children.results:came_to")
    failure_of = on_demand("everstep.runtime.drive.children.results:failure_of")
    look = on_demand("everstep.runtime.drive.children.results:look")
    topic_of = on_demand("everstep.runtime.drive.children.results:topic_of")
    tell_of_budget = on_demand("everstep.runtime.waits.notices.told:tell_of_budget")
    tells_of_wait = on_demand("everstep.runtime.waits.notices.told:tells_of_wait")
    starters_of = on_demand("everstep.runtime.waits.voting:starters_of")
    votes_of = on_demand("everstep.runtime.waits.voting:votes_of")
    with_voting = on_demand("everstep.runtime.waits.voting:with_voting")

log = logging.getLogger("everstep")
LOOK = 1.0
_RAISE_BY = {
    "anyOf": [
        {"type": "string", "pattern": r"^[0-9]{1,24}(\.[0-9]{1,18})?$"},
        {"type": "number", "minimum": 0, "maximum": 10**24},
        {"type": "null"},
    ]
}
RAISING = {**APPROVAL, "properties": {**APPROVAL["properties"], "raise_by": _RAISE_BY}}
"""What an answer about a budget must look like."""
CLOSED_BY_VOTES = {
    **APPROVAL,
    "properties": {**APPROVAL["properties"], "votes": {"type": "array", "minItems": 1}},
    "required": ["approved", "votes"],
}
"""What settles an approval that has votes. A release that knows of none takes no plain answer for it."""


class DriveWaits:
    """What a drive knows of its waits besides where they stand."""

    def __init__(self, run: RunContext) -> None:
        self._services = run.services
        self._state = run.state
        self._space = run.space
        self._run_id = run.run_id
        self._flow = run.flow.name
        self.opened: list[WaitRow] = []
        """Rows that are still to be written."""
        self.tokens: dict[str, str] = {}
        """Tokens that this drive has made, by wait."""
        self._tasks: set[asyncio.Task[object]] = set()
        self._looked: float | None = None
        self._starters: tuple[str, ...] = ()
        """Who started the run or forked it, once a wait asks for that."""
        self._taken: set[str] = set()
        """Waits whose answers were taken in."""
        self._ended: dict[str, dict[str, Any]] = {}
        """By wait, what a run came to whose end was waited for."""
        self._journal = run.journal
        waiting = (scope.waiting[i].wait for scope, i in run.state.waits.values())
        if any(wait is not None and wait.kind in LISTENING for wait in waiting):
            run.journal.listens = True

    @property
    def looks_every(self) -> float:
        """Seconds between two looks for answers while other nodes run."""
        return LOOK

    async def learn_starters(self) -> None:
        """Find out who started the run, for a wait that is about to open and asks for that."""
        if not self._starters:
            act = self._journal.act  # of a run that is not in the store yet
            by = (act.by,) if act is not None and act.by else ()
            self._starters = (
                await starters_of(self._services.store, self._services.codecs, self._run_id) or by
            )

    # -- opening ------------------------------------------------------------------------------------------

    def open(self, call: Call, wait: Wait, desk: ChannelDesk) -> tuple[Slot, ...]:
        """Turn what a node returned into a wait; a node at fault gets the error as its own.

        What it did to the channel before counts already.
        """
        before, tells = len(self.opened), self._journal.tells
        is_left = call.units is not None and call.units.is_left
        is_done = call.context is not None and not is_left  # else it is done when the node is entered again
        done = draft_asked(call, self._space, self._state, desk) if is_done else ()
        try:
            if call.error is not None:
                return ()
            if call.queued or (is_done and call.context is not None and call.context.ends):
                raise BadRequest(
                    f"{call.path!r} waits, and asks for tasks or for the end of its flow.",
                    fix="Ask for that in a node that follows it.",
                )
            call.halt = self._opened(call, wait)
            return (*done, self._request(call.halt, wait))
        except Exception as error:  # what a node asks for may be anything, and its values too
            del self.opened[before:]
            self._journal.tells = tells
            call.halt, call.error = None, error
            return ()

    def _opened(self, call: Call, wait: Wait) -> WaitOpened:
        now, codecs = call.ended_at + self._services.time.ahead, self._services.codecs
        due_at = self._due_at(call, wait, now)
        scheduler = wait.scheduler or self._services.schedulers.default
        self._services.schedulers.of(scheduler)
        if wait.options is not None:
            check_options(call.path, wait.options)
        for alias in wait.notified:
            self._services.notifiers.of(alias)
        guard = wait.guard if isinstance(wait, GuardWait) else ""
        asking = call.units.leaving[1] if call.waits_at and not guard else call.node
        opened = WaitOpened(
            self._services.ids.new_id(), wait.kind, due_at, scheduler, guard, "" if guard else call.waits_at
        )
        path, visit = call.path, call.visit
        if opened.unit:
            name, _, occurrence = opened.unit.rpartition("@")
            path, visit = f"{visit_path(path, visit)}/{name}", int(occurrence)
        token = None
        topic = self._topic(wait) if wait.kind in LISTENING else None
        if wait.kind == CHILD_KIND:
            topic = topic_of(wait)
        if topic is None and wait.kind not in ("timer", SETTLE):
            token = self.tokens[opened.wait_id] = self._services.tokens.issue(opened.wait_id, 1)
        details = details_of(asking, wait, is_inside=bool(opened.unit))
        if wait.is_voted:
            details = with_voting(details, wait, self._services.store, self._starters, call.path)
        if self._journal.trace is not None:
            noted = {TRACE: {"drive": self._journal.trace.traceparent}}
            details = msgspec.json.encode(msgspec.json.decode(details) | noted)
        ttl = span_of(wait.token_ttl, "token_ttl") if wait.token_ttl is not None else None
        if wait.remind is not None or wait.escalate:
            self._journal.tells += tuple(tells_of_wait(self._services, wait, opened.wait_id, now))
        if guard.startswith(BUDGET):
            tell_of_budget(self._journal)
        if wait.tells:
            self._journal.tell(wait.tells)
        self.opened.append(
            WaitRow(
                wait_id=opened.wait_id,
                run_id=self._run_id,
                flow_id=self._flow,
                path=path,
                visit=visit,
                kind=wait.kind,
                opened_at=now,
                details=close_note(codecs, opened.wait_id, DETAILS, sealed_due(codecs, details, due_at)),
                due_at=due_at,
                scheduler=scheduler,
                notifies=bool(wait.notified),
                token_hash=hash_of(token) if token is not None else None,
                token_expires_at=now + ttl if ttl is not None else None,
                single_use=wait.single_use,
                topic=topic,
            )
        )
        return opened

    def _topic(self, wait: Wait) -> str:
        """Return what a wait listens for."""
        self._journal.listens = True
        if wait.kind == EVENT_KIND:
            check_has_events(self._services)
            return wanted_by(checked_name(wait.event, of="an event"), wait.match or {}).topic
        check_has_inbox(self._services)
        return topic_of_signal(checked_name(wait.signal))

    def _due_at(self, call: Call, wait: Wait, now: datetime) -> datetime | None:
        if wait.timeout is not None and wait.until is not None:
            raise BadRequest(f"{call.path!r} waits with both `timeout` and `until`.", fix="Give one of them.")
        if wait.until is not None:
            return moment_of(wait.until, f"until of {call.path!r}")
        if wait.timeout is None:
            return None
        try:
            return now + span_of(wait.timeout, f"time of {call.path!r}")
        except OverflowError:
            raise BadRequest(
                f"{call.path!r} waits for {wait.timeout}, past the end of the calendar.",
                fix="Wait less long.",
            ) from None

    def _request(self, opened: WaitOpened, wait: Wait) -> Slot:
        """Encode what was asked for, so that the chain alone says it."""
        return self._space.change(f"{WAIT}{opened.wait_id}/request", 1, wait.said(IN_CHAIN), ValueForm.WHOLE)

    def tell(self, rows: tuple[WaitRow, ...]) -> None:
        """Tell schedulers and notifiers of waits that are durable; `finish` waits for them."""
        for row in rows:
            if row.notifies or row.scheduler:
                self._begin(announce(self._services, row, self.tokens.get(row.wait_id)))
            if row.kind == CHILD_KIND:
                self._begin(look(self._services, row, self._nudged))

    def _begin(self, telling: Coroutine[Any, Any, object]) -> None:
        task = asyncio.ensure_future(telling)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _nudged(self, run_id: str) -> None:
        self.nudge()

    async def finish(self) -> None:
        """Wait until everybody was told."""
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def close(self) -> None:
        """Stop telling; what was not told is told by a sweep."""
        for task in self._tasks:
            task.cancel()

    # -- answers ------------------------------------------------------------------------------------------

    def nudge(self) -> None:
        """An answer may have come."""
        self._looked = None

    @property
    def is_nudged(self) -> bool:
        """True if an answer may have come since it last looked."""
        return self._looked is None

    def is_time(self) -> bool:
        """True if it is time to look for answers."""
        if self._looked is None:
            return True
        due = self.next_due()
        return self._services.clock.monotonic() - self._looked >= LOOK or (
            due is not None and due <= self._services.time.now()
        )

    def next_due(self) -> datetime | None:
        """Return when the next wait is due that the store keeps the time of."""
        open_ones = [place for wait_id, place in self._state.waits.items() if wait_id not in self._taken]
        waits = [scope.waiting[i].wait for scope, i in open_ones]
        return min((w.due_at for w in waits if w and w.due_at and not w.scheduler), default=None)

    async def answers(self, *, is_at_stake: bool) -> list[Call]:
        """Return the visits whose waits are settled, as calls that have returned.

        A store that is out of reach or full is waited for as long as this drive may, if work is at stake:
        effects under way, or what has finished. With nothing to lose, others may have the run meanwhile.
        """
        store = self._services.store
        self._looked = self._services.clock.monotonic()  # before it looks: a nudge meanwhile counts
        fire = partial(store.fire, self._run_id)
        if is_at_stake:
            rows = await self._journal.persist(fire)
        else:
            rows = await patiently(self._services.clock, fire, outage(store))
        now = self._services.clock.now()
        rows = [row for row in rows if row.wait_id in self._state.waits and row.wait_id not in self._taken]
        self._taken.update(row.wait_id for row in rows)
        for row in rows:
            if row.kind == CHILD_KIND and child_in(row.topic) is not None and row.answer is not None:
                said = msgspec.json.decode(open_settled(self._services.codecs, row, now).answer or b"{}")
                self._ended[row.wait_id] = await self._journal.persist(partial(came_to, self._services, said))
        if self._services.meter is not None:
            for row in rows:
                self._measure(self._services.meter, row, now + self._services.time.ahead)
        return [self._call(row, now) for row in rows]

    def _measure(self, meter: Meter, row: WaitRow, now: datetime) -> None:
        """Count how long after it was over a wait is taken in."""
        by_clock = row.settled_by is SettledBy.CLOCK
        since = row.due_at if by_clock else row.settled_at
        if since is not None:
            meter.went_on(self._flow, since, now, by_clock=by_clock)

    def _call(self, row: WaitRow, now: datetime) -> Call:
        row = open_settled(self._services.codecs, row, now + self._services.time.ahead)
        scope, i = self._state.waits[row.wait_id]
        step, node = scope.waiting[i], scope.plan.nodes[i]
        call = Call(scope, i, node, step.visit, scope.attempts[i] + 1, {}, step.reads)
        call.key, call.task, call.answers = step.key, step.task, step.wait
        call.act = who_settled(row)
        if self._journal.trace is not None:
            waited = (now + self._services.time.ahead - row.opened_at).total_seconds()
            self._journal.trace.settled(row.path, row.kind, trace_note(row), waited)
        call.started_at, call.ended_at = step.started_at or row.opened_at, now
        message = message_of(row)
        if message is not None and row.kind == EVENT_KIND:
            _check_event(row, message)
        if row.kind == "approval" and row.answer is not None:
            self._check_votes(row)
        try:
            if step.wait is not None and step.wait.guard:
                take_answer(call, row, step.wait.guard, self._state.books, now)
            elif row.kind == SETTLE:
                call.started_at = now  # how long its effect took is unknown
                _settle(call, row)
            else:
                if message is not None:
                    call.message = message.id if row.kind == SIGNAL_KIND else ""
                    call.act = message.act
                settled = settlement_of(row, now + self._services.time.ahead, message)
                if row.wait_id in self._ended:
                    settled["answer"] = self._ended.pop(row.wait_id)
                asked = self._space.peek("request", f"{WAIT}{row.wait_id}/")
                if step.wait is not None and step.wait.unit:
                    call.settled, call.late = settled, too_late(settled, asked, step.path)
                    if row.kind == CHILD_KIND and "outputs" not in (settled["answer"] or {}):
                        call.late = call.late or failure_of(settled, step.path)
                else:
                    call.returned = output_of(settled, asked, step.path, answer_type_of(node))
        except EverstepError as error:
            call.error = error
        except (KeyError, TypeError, AttributeError) as error:
            # It was checked when it was given, so it is not what was given.
            raise StateCorrupted(f"the answer of wait {row.wait_id} was altered: {error!r}.") from error
        return call

    def _check_votes(self, row: WaitRow) -> None:
        """Raise unless the votes on an approval carry its answer: rows can be altered by others."""
        asked = self._space.peek("request", f"{WAIT}{row.wait_id}/")
        if any(name in asked for name in VOTED):
            said = msgspec.json.decode(row.answer or b"{}").get("approved")
            check_carried(asked, said, votes_of(row), f"wait {row.wait_id} of run {row.run_id!r}")


def _settle(call: Call, row: WaitRow) -> None:
    """Take what an operator said of an effect: that it happened, with its value, or that it is to be made."""
    said = msgspec.json.decode(row.answer or b"{}")
    if "skip" in said:
        call.skipped = said["skip"]
        return
    if "done" not in said:
        call.is_again = True
        return
    call.returned = said["done"]
    if _has_known_result(call.node):
        try:
            call.returned = shaped(call.returned, call.node.returns)
        except AnswerInvalid as error:
            call.error = error


def _check_event(row: WaitRow, message: Message) -> None:
    """Raise unless an event is one that the wait is for: any that was published could be put in its place."""
    wanted, has = Wanted.of(row.topic), fields_of(message.value)
    if wanted is None or wanted.name != message.name or not wanted.hashes.items() <= has.items():
        raise StateCorrupted(f"wait {row.wait_id} was settled with an event that it is not for.")


def schema_for(node: Node, wait: Wait, *, is_inside: bool = False) -> dict[str, Any] | None:
    """Return the JSON Schema of an answer, or none if anything will do."""
    if wait.kind == "timer":
        return None
    if wait.kind == "approval":
        if wait.is_voted:
            return CLOSED_BY_VOTES
        return RAISING if isinstance(wait, GuardWait) and wait.guard.startswith(BUDGET) else APPROVAL
    if wait.kind == SETTLE:
        result = dict(_schema_of_result(node))
        parts = {"$defs": result.pop("$defs")} if "$defs" in result else {}
        ways = [_one("done", result), _one("rerun", {"const": True})]
        if isinstance(wait.context, dict) and "undoes" in wait.context:
            ways.append(_one("skip", {"type": "string", "minLength": 1, "maxLength": LONGEST_COMMENT}))
        return {"oneOf": ways, **parts}
    if wait.options is not None:
        return {"enum": _plain(list(wait.options))}
    kind = answer_type_of(node, is_inside=is_inside)
    return schema_of(kind) if kind is not None else None


def _one(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: schema},
        "required": [name],
        "additionalProperties": False,
    }


def _schema_of_result(node: Node) -> dict[str, Any]:
    known = schema_of(node.returns) if _has_known_result(node) else None
    if known is None and len(node.outputs) > 1:
        return {"type": "array", "minItems": len(node.outputs), "maxItems": len(node.outputs)}
    return known or {}


def _has_known_result(node: Node) -> bool:
    if node.is_gate or node.returns is UNKNOWN or not node.outputs:
        return False
    return len(node.outputs) == 1 or (
        get_origin(node.returns) is tuple and len(get_args(node.returns)) == len(node.outputs)
    )


def details_of(node: Node, wait: Wait, *, is_inside: bool = False) -> bytes:
    """Return what a store keeps beside a wait, for listing and answering it."""
    known = {name: _plain(given) for name, given in wait.said(IN_ROW).items()}
    known |= {"schema": schema_for(node, wait, is_inside=is_inside), "identifier": node.identifier}
    return msgspec.json.encode({name: kept for name, kept in known.items() if kept not in (None, "", [], {})})


def _plain(value: Any) -> Any:
    """Return a value as JSON can say it."""
    try:
        return msgspec.to_builtins(value, enc_hook=_spelled, str_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise AnswerInvalid(f"what a wait shows cannot be written as JSON: {error}.") from None


def _spelled(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else repr(value)


__all__ = ["NO_DEFAULT", "DriveWaits", "details_of", "schema_for"]
