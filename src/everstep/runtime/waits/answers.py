"""Looking at waits and settling them. That needs no lease of the run."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from everstep.codec.chain import Codecs
from everstep.codec.complaints import complaints, unasked
from everstep.codec.notes import ANSWER, DETAILS, close_note, fired_note, look_at_wait, open_wait
from everstep.errors import (
    AnswerInvalid,
    BadRequest,
    RunNotFound,
    StoreUnavailable,
    TokenInvalid,
    TokenUsed,
    WaitClosed,
    WaitNotFound,
    WaitSettled,
)
from everstep.model.acts import Act, AuditRow, act_of, as_kept
from everstep.model.address import find as find_address
from everstep.model.bundles import moved_to
from everstep.model.enums import Status
from everstep.model.records import TRACE
from everstep.model.shapes import understood
from everstep.model.waits import (
    DEADLINE_KIND,
    LISTENING,
    SETTLE,
    SIGNAL_KIND,
    UNSAID,
    SettledBy,
    TokenConfig,
    WaitChange,
    WaitRow,
    WaitStatus,
    child_in,
    signal_in,
)
from everstep.on_demand import on_demand
from everstep.ports.events import Wanted
from everstep.ports.store import CheckpointStore, WaitFilter
from everstep.runtime.outage.outbox import drain, waits_here
from everstep.runtime.outage.store_retry import patiently
from everstep.runtime.run_ids import check_run_id
from everstep.runtime.services import Services
from everstep.runtime.waits.announce import forget
from everstep.runtime.waits.settled import VOTING
from everstep.runtime.waits.tokens import Tokens, handle_of, hash_of, looks_like_token, too_late
from everstep.runtime.workers.lease_renewal import LeaseKeeper

if TYPE_CHECKING:
    from everstep.runtime.operations.acting import as_said, concerning, riding, written
    from everstep.runtime.waits import voting
else:
    voting = on_demand("everstep.runtime.waits.voting")
    as_said = on_demand("everstep.runtime.operations.acting:as_said")
    concerning = on_demand("everstep.runtime.operations.acting:concerning")
    riding = on_demand("everstep.runtime.operations.acting:riding")
    written = on_demand("everstep.runtime.operations.acting:written")

MAX_ANSWER = 1024 * 1024
"""Bytes of an answer as JSON."""

APPROVAL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "approver": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "comment": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["approved"],
    "additionalProperties": False,
}
_ACT = "act"
"""Where the details of a wait say who settled it."""
_SENT = "sent"
"""Where they say under which id the answer was sent, if it had one."""


class Found(NamedTuple):
    """A wait, and the hash of the token that led to it."""

    row: WaitRow
    token_hash: bytes | None


class Answers:
    """The waits of a host's runs, as outsiders and operators see them."""

    def __init__(self, services: Services, keeper: LeaseKeeper) -> None:
        self._services = services
        self._keeper = keeper

    async def find(self, token_or_id: str | None, *, brings: bool = True) -> Found:
        """Return the wait that a token or an id names.

        One whose opening still waits on this machine is brought to the store first, or only looked at.
        """
        if token_or_id is None:
            raise WaitNotFound(
                "no wait is named: this process does not know the token.", fix="Use the id of the wait."
            )
        here = self._here(token_or_id)
        if here is not None and not brings:
            return here
        if here is not None:
            await drain(self._services, here.row.run_id)
        if looks_like_token(token_or_id):
            row = await self._services.tokens.find(token_or_id)
            return Found(row, hash_of(token_or_id))
        # No store can be asked for half a surrogate pair, and no id holds what cannot be printed.
        is_id = isinstance(token_or_id, str) and token_or_id.isprintable()
        found = await self._services.store.wait(token_or_id) if is_id else None
        if found is None:
            name, fix = str(token_or_id)[:40], "Look with: everstep waits"
            if is_id and await self._services.store.run(token_or_id) is not None:
                fix = f"{name!r} is a run: answer one of host.waits({name!r}), by its id."
            raise WaitNotFound(f"there is no wait {name!r}.", fix=fix)
        return Found(found, None)

    def _here(self, token_or_id: str) -> Found | None:
        """Return the wait if its opening waits on this machine."""
        token_hash = hash_of(token_or_id) if looks_like_token(token_or_id) else None
        for row in waits_here(self._services):
            is_meant = row.wait_id == token_or_id if token_hash is None else row.token_hash == token_hash
            if is_meant:
                return Found(row, token_hash)
        return None

    async def answer(
        self, token_or_id: str | None, answer: Any, act: Act | None = None, *, sent_id: str | None = None
    ) -> WaitRow:
        """Check an answer and settle its wait with it, once; `act` says who gives it, and why.

        Under which id it was sent is noted in the wait: `was_sent`.
        """
        found = await self.find(token_or_id)
        row, token_hash = found
        audit = None
        if act is not None or self._services.notes_unnamed:
            concerning(act, row.run_id, row.wait_id)
            audit = riding(act, row.run_id, row.wait_id)
        if row.status is not WaitStatus.OPEN:
            return self._refuse(row, token_hash, is_answer=True)
        if row.kind in LISTENING:
            raise BadRequest(
                f"{row.path!r} waits for the {row.kind} {message_name(row)!r}, which is not answered.",
                fix="Send it with host.send, or: everstep send"
                if row.kind == SIGNAL_KIND
                else "Publish it with host.publish, or: everstep publish",
            )
        if row.kind == DEADLINE_KIND:
            raise BadRequest(
                f"{row.path!r} is the deadline of run {row.run_id!r}, which is not answered.",
                fix="Give it another one: resume the run with deadline=.",
            )
        if child_in(row.topic) is not None:
            raise BadRequest(
                f"{row.path!r} waits for the end of run {child_in(row.topic)!r}, which is not answered.",
                fix=f"Look at that run, or cancel it: everstep cancel {child_in(row.topic)}",
            )
        if answer is UNSAID:
            if row.kind != "timer":
                raise AnswerInvalid(f"{row.path!r} was given no answer.", fix="Give one, if need be None.")
            answer = None
        codecs, details = self._services.codecs, None
        plain = open_wait(codecs, row)
        if row.kind == "approval" and VOTING in plain.details and voting.has_votes(plain):
            return await self._vote(found, answer, act, sent_id)
        was_named = act is not None and act.by != ""
        said, act = signed(plain, checked(plain, answer), act)
        if act is not None and (audit is None or not was_named):
            # An approval that says itself who gives it is as good as one that is told so.
            audit = as_said(self._services, audit, "answer", act, row.run_id, row.wait_id)
        notes: dict[str, Any] = {_ACT: act, _SENT: sent_id}
        if self._services.tracing is not None:
            opened_in = trace_note(plain)
            notes[TRACE] = self._services.tracing.note_answer(row.run_id, row.path, row.kind, opened_in)
        if any(note is not None for note in notes.values()):
            said_of_it = {name: note for name, note in notes.items() if note is not None}
            noted = msgspec.json.encode({**msgspec.json.decode(plain.details), **said_of_it})
            details = close_note(codecs, row.wait_id, DETAILS, noted)
        encoded = close_note(codecs, row.wait_id, ANSWER, said)
        return await self._settle(row, SettledBy.ANSWER, encoded, token_hash, details, audit)

    async def _vote(self, found: Found, answer: Any, act: Act | None, sent_id: str | None) -> WaitRow:
        """Count a vote on an approval; the one that decides it settles its wait."""
        services, (row, token_hash) = self._services, found
        await check_is_here(services, row.run_id)
        if row.due_at is not None and row.due_at <= services.time.now():
            await services.store.fire(row.run_id)  # a vote that comes too late is none
            row = await services.store.wait(row.wait_id) or row
        while row.status is WaitStatus.OPEN:
            plain = open_wait(services.codecs, row)
            so_far = voting.voting_of(plain)
            assert so_far is not None
            if sent_id is not None and sent_id in so_far.sent:
                return row
            said, who = signed(plain, checked(voting.as_asked(plain), answer), act)
            now, is_link = services.time.now(), token_hash is not None
            counted = voting.count(plain, so_far, said, who, now, by_link=is_link, sent_id=sent_id)
            assert who is not None
            audit = (
                riding(act, row.run_id, row.wait_id)
                if act is not None or self._services.notes_unnamed
                else None
            )
            if act is None or not act.by:
                audit = as_said(services, audit, "answer", who, row.run_id, row.wait_id)
            try:
                if counted.answer is None:
                    return await self._keep_vote(row, counted.details, audit)
                noted = {**counted.details, _ACT: who} | ({} if sent_id is None else {_SENT: sent_id})
                details = close_note(services.codecs, row.wait_id, DETAILS, msgspec.json.encode(noted))
                last = close_note(services.codecs, row.wait_id, ANSWER, msgspec.json.encode(counted.answer))
                return await self._settle(
                    row, SettledBy.ANSWER, last, token_hash, details, audit, was=row.details
                )
            except VotedMeanwhile as changed:
                row = changed.row
        return self._refuse(row, token_hash, is_answer=True)

    async def _keep_vote(self, row: WaitRow, details: dict[str, Any], audit: AuditRow | None) -> WaitRow:
        """Keep a vote that decides nothing yet, or raise `VotedMeanwhile`."""
        closed = close_note(self._services.codecs, row.wait_id, DETAILS, msgspec.json.encode(details))
        row_of: dict[str, Any] = {} if audit is None else {"audit": audit}
        change = partial(
            self._services.store.change_wait,
            row.wait_id,
            WaitChange(details=closed),
            was=row.details,
            **row_of,
        )
        now = await patiently(self._services.clock, change)
        if now is None or now.details != closed:
            raise VotedMeanwhile(now or msgspec.structs.replace(row, status=WaitStatus.CLOSED))
        if audit is not None:
            written(audit)
        return now

    async def settle(
        self, run_id: str, step: str, *, done: Any, rerun: bool, skip: str = "", act: Act | None = None
    ) -> WaitRow:
        """Answer the wait in which an operator is asked what became of an effect, or of an undo."""
        if (done is not UNSAID) + bool(rerun) + bool(skip) != 1:
            raise BadRequest(
                f"{step!r} is settled with a value, or called again; an undo may be skipped.",
                fix="Give one of `done`, `rerun` and `skip`.",
            )
        said: dict[str, Any] = {"skip": skip} if skip else {"rerun": True} if rerun else {"done": done}
        run = await self._services.store.run(check_run_id(run_id))
        if run is None:
            raise RunNotFound(f"there is no run {run_id!r}.", fix="List them with: everstep runs")
        if self._services.spool.has(run_id):
            await drain(self._services, run_id)
        asked = [row for row in await open_waits(self._services.store, run_id) if row.kind == SETTLE]
        place = find_address([(row.path, row.visit) for row in asked], step)
        found = [row for row in asked if (row.path, row.visit) == place]
        if not found:
            known = sorted({row.path for row in asked if row.status is WaitStatus.OPEN})
            fix = f"It waits for {', '.join(known)}." if known else "Look with: everstep waits"
            if run.status is Status.RUNNING:
                # What became of its calls is found out by the next owner of a run whose process died.
                fix = (
                    "It is under way, or its process died: then it asks as soon as it is taken up again, "
                    f"by a worker or with: everstep resume {run_id}"
                )
            raise WaitNotFound(f"run {run_id!r} does not wait for anybody to settle {step!r}.", fix=fix)
        return await self.answer(found[0].wait_id, said, act)

    async def fire(self, wait_id: str, act: Act | None = None) -> WaitRow:
        """Settle a wait as its clock does: its time is over, if need be before it is.

        Who says so is kept only if it is before: from its due time on the clock itself settles it.
        """
        row, _ = await self.find(wait_id)
        if act is not None or self._services.notes_unnamed:
            concerning(act, row.run_id, row.wait_id)
        if row.status is not WaitStatus.OPEN:
            return self._refuse(row, None)
        if row.kind == DEADLINE_KIND:
            raise BadRequest(
                f"{row.path!r} is the deadline of run {row.run_id!r}, which the clock alone says is over.",
                fix=f"To end it now: everstep cancel {row.run_id}",
            )
        if row.due_at is None and row.kind != "timer":
            raise BadRequest(
                f"wait {row.wait_id} of run {row.run_id!r} has no time that could be over.",
                fix="Answer it, or cancel its run.",
            )
        audit = (
            riding(act, row.run_id, row.wait_id) if act is not None or self._services.notes_unnamed else None
        )
        noted = {} if act is None else {_ACT: act}
        while True:
            details = fired_note(self._services.codecs, row, noted)
            was = row.details if details is not None and _counts(self._services.codecs, row) else None
            try:
                return await self._settle(row, SettledBy.CLOCK, None, None, details, audit, was)
            except VotedMeanwhile as changed:
                row = changed.row

    async def _settle(
        self,
        row: WaitRow,
        by: SettledBy,
        answer: bytes | None,
        token_hash: bytes | None,
        details: bytes | None = None,
        audit: AuditRow | None = None,
        was: bytes | None = None,
    ) -> WaitRow:
        """Settle a wait, or say why not; with `was`, raise `VotedMeanwhile` if its details are others."""
        was_lost = False
        await check_is_here(self._services, row.run_id)
        row_of: dict[str, Any] = {} if audit is None else {"audit": audit}
        if was is not None:
            row_of["was"] = was

        async def settle() -> tuple[bool, WaitRow | None]:
            nonlocal was_lost
            try:
                return await self._services.store.settle(
                    row.wait_id, by=by, answer=answer, token_hash=token_hash, details=details, **row_of
                )
            except StoreUnavailable:
                was_lost = True
                raise

        is_ours, now = await patiently(self._services.clock, settle)
        # If the reply of an earlier try was lost, what the wait was settled with is this.
        is_same = was_lost and now is not None and (now.settled_by, now.answer) == (by, answer)
        if audit is not None:
            written(audit, is_done=is_ours or is_same)
        if now is None or not (is_ours or is_same or _is_over(now)):
            is_open = now is not None and now.status is WaitStatus.OPEN
            if now is not None and is_open and was not in (None, now.details):
                raise VotedMeanwhile(now)
            return self._refuse(now or row, token_hash)
        drive = self._keeper.drive_of(row.run_id)
        if drive is not None:
            drive.nudge()
        await forget(self._services, now)
        await self._services.ring(now.run_id, now.flow_id)
        return now if is_ours or is_same else self._refuse(now, token_hash, is_answer=by is SettledBy.ANSWER)

    def _refuse(self, row: WaitRow, token_hash: bytes | None, *, is_answer: bool = False) -> WaitRow:
        """Say why a wait takes no answer; a token for more than one use is told the first one instead."""
        if is_answer and row.settled_by is SettledBy.CLOCK:
            raise too_late(row)
        if token_hash is not None:
            if not row.single_use and row.settled_at is not None:
                return row
            if row.settled_at is not None:
                raise TokenUsed("this token was used already, or its wait was settled otherwise.")
        if row.status is WaitStatus.OPEN:
            raise TokenInvalid("this token was revoked, or replaced by a newer one, just now.")
        if row.settled_at is None:
            raise WaitClosed(
                f"wait {row.wait_id} of run {row.run_id!r} was closed: its run no longer wants an answer."
            )
        by = "its clock" if row.settled_by is SettledBy.CLOCK else "an answer"
        act = who_settled(look_at_wait(self._services.codecs, row))
        of = f" of {act.by!r}" if act is not None and act.by else ""
        raise WaitSettled(
            f"wait {row.wait_id} of run {row.run_id!r} was settled by {by}{of} "
            f"at {row.settled_at:%Y-%m-%d %H:%M:%S} UTC.",
            fix="What came first counts. To go on with another answer, fork the run from before the wait.",
        )

    async def reissue(
        self, token_or_id: str, config: TokenConfig, act: Act | None = None
    ) -> tuple[WaitRow, str]:
        """Make a new token for an open wait; the old one dies."""
        row, _ = await self.find(token_or_id)
        if act is not None or self._services.notes_unnamed:
            concerning(act, row.run_id, row.wait_id)
        if row.status is not WaitStatus.OPEN:
            self._refuse(row, None)
        handle = await handle_of(self._services.store, row)
        tokens = self._services.tokens
        audit = (
            riding(act, row.run_id, row.wait_id) if act is not None or self._services.notes_unnamed else None
        )
        if audit is not None and isinstance(tokens, Tokens):
            token = await tokens.create_token(handle, config, audit=audit)
            written(audit)
        else:
            token = await tokens.create_token(handle, config)
        return (await self.find(row.wait_id)).row, token

    async def revoke(self, token_or_id: str | None, act: Act | None = None) -> WaitRow:
        """Make the token of a wait worthless; the wait stays open."""
        row, _ = await self.find(token_or_id)
        change = WaitChange(token_hash=None)
        audit = (
            riding(act, row.run_id, row.wait_id) if act is not None or self._services.notes_unnamed else None
        )
        row_of: dict[str, Any] = {} if audit is None else {"audit": audit}
        now = await self._services.store.change_wait(row.wait_id, change, **row_of)
        if audit is not None:
            written(audit, is_done=now is not None and now.status is WaitStatus.OPEN)
        return row


class VotedMeanwhile(Exception):
    """Another vote came first: what was made of the details of the wait is to be made again."""

    def __init__(self, row: WaitRow) -> None:
        super().__init__(row.wait_id)
        self.row = row


async def check_is_here(services: Services, run_id: str) -> None:
    """Raise if a run was moved: what is answered here does not reach it."""
    run = await services.store.run(run_id)
    if run is not None and (place := moved_to(run.needs_repair)) is not None:
        raise WaitClosed(
            f"run {run_id!r} was moved to {place}, and what is answered here does not reach it.",
            fix="Answer it there.",
        )


def _counts(codecs: Codecs, row: WaitRow) -> bool:
    """True of a wait with votes, which its details keep."""
    return row.kind == "approval" and voting.has_votes(open_wait(codecs, row))


def message_name(row: WaitRow) -> str:
    """Return the name of the signal or event that a wait is for, or the run whose end it is for."""
    wanted = Wanted.of(row.topic)
    return wanted.name if wanted is not None else signal_in(row.topic) or child_in(row.topic) or ""


def _is_over(row: WaitRow) -> bool:
    """True if its clock has settled it, perhaps just now in place of an answer, and its run is to go on."""
    return row.status is WaitStatus.SETTLED and row.settled_by is SettledBy.CLOCK


async def open_waits(store: CheckpointStore, run_id: str) -> list[WaitRow]:
    """Return what a run waits for, settled or not."""
    found: list[WaitRow] = []
    while True:
        after = found[-1].wait_id if found else None
        page = await store.waits(WaitFilter(run_id=run_id, is_unclosed=True, limit=1000, after=after))
        found += page
        if len(page) < 1000:
            return [row for row in found if row.status is not WaitStatus.CLOSED]


def as_json(value: Any, what: str = "an answer") -> bytes:
    """Return what is given to a run as JSON, or raise `AnswerInvalid`."""
    try:
        plain = msgspec.to_builtins(value, str_keys=True)
        json.dumps(plain, allow_nan=False)  # which would be null in what is kept
        encoded = msgspec.json.encode(plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise AnswerInvalid(f"{what} is JSON: {error}.", fix="Give text, numbers, lists, dicts.") from None
    if len(encoded) > MAX_ANSWER:
        raise AnswerInvalid(
            f"{what} of {len(encoded):,} bytes is too large.", fix="Send a reference instead."
        )
    return encoded


def checked(row: WaitRow, answer: Any) -> bytes:
    """Return an answer as JSON, or raise `AnswerInvalid` if the wait asks for another shape."""
    encoded = as_json(answer)
    plain = msgspec.json.decode(encoded)
    details = msgspec.json.decode(row.details)
    schema = details.get("schema")
    _check_kept(row.path, answer, plain, schema)
    if schema is None:
        return encoded
    wrong = complaints(plain, schema)
    if wrong:
        said = plain["answer"] if isinstance(plain, dict) and plain.keys() == {"answer"} else plain
        spelled = _spelled(said, details.get("spellings") or {})
        if spelled is not None:
            return msgspec.json.encode(spelled)
        is_wrapped = row.kind != "callback" and isinstance(plain, dict) and plain.keys() == {"answer"}
        if is_wrapped and not complaints(plain["answer"], schema):
            return msgspec.json.encode(plain["answer"])
        raise AnswerInvalid(
            f"{row.path!r} cannot take this answer: {'; '.join(wrong[:5])}.",
            fix=_shape(row.kind, schema),
            schema=schema,
        )
    return encoded


def signed(row: WaitRow, answer: bytes, act: Act | None) -> tuple[bytes, Act | None]:
    """Return an answer and who gives it. An approval says that itself, so both say the same."""
    if row.kind != "approval":
        return answer, act
    said = msgspec.json.decode(answer)
    name, why = said.get("approver"), said.get("comment")
    if act is None:
        return answer, act_of(name, why)
    for what, own, given in (("approver", name, act.by), ("comment", why, act.comment)):
        if own and given and own.strip() != given:
            raise AnswerInvalid(
                f"{row.path!r} was given two: {what} {own!r:.60} in the answer, {given!r:.60} beside it.",
                fix="Say it once: `approver` and `by` are the same, and so are both comments.",
            )
        if own or given:
            said[what] = own or given
    act = msgspec.structs.replace(act, by=act.by or (name or "").strip(), comment=act.comment or why or "")
    return msgspec.json.encode(said), act_of(act.by, act.comment, act.how)


def was_sent(codecs: Codecs, row: WaitRow, sent_id: str) -> bool:
    """True if the answer of a wait, or one of its votes, was sent under this id."""
    details = msgspec.json.decode(look_at_wait(codecs, row).details)
    return sent_id == details.get(_SENT) or sent_id in details.get("voting", {}).get("sent", ())


def trace_note(row: WaitRow) -> dict[str, str]:
    """Return what a wait says of a trace. It is not encrypted any more."""
    note = msgspec.json.decode(row.details).get(TRACE)
    return note if isinstance(note, dict) else {}


def who_settled(row: WaitRow) -> Act | None:
    """Return who settled a wait, and why, if that was said. The wait is not encrypted any more."""
    if row.settled_by is None:
        return None
    kept = msgspec.json.decode(row.details).get(_ACT)
    if kept is not None:
        with suppress(msgspec.ValidationError):
            return msgspec.convert(kept, understood(Act))
    if row.kind != "approval" or row.settled_by is not SettledBy.ANSWER or row.answer is None:
        return None
    said = msgspec.json.decode(row.answer)  # as earlier releases kept it
    return as_kept(said.get("approver"), said.get("comment")) if isinstance(said, dict) else None


def _check_kept(path: str, answer: Any, plain: Any, schema: Any) -> None:
    """Raise unless an answer comes back as it was given, or as what the wait asks for."""
    try:
        changed = unasked(answer, plain, schema)
    except RecursionError:
        raise AnswerInvalid("the answer is nested too deeply.", fix="Send a flatter one.") from None
    if changed is not None:
        where, kind = changed
        raise AnswerInvalid(
            f"{where} is of type `{kind.__name__}`, which JSON would change: {path!r} asks for no such.",
            fix="Give text, numbers, lists and dicts with text as keys, or declare the type of the answer.",
        )


def _spelled(answer: Any, spellings: dict[str, Any]) -> Any:
    """Return the option that an answer means in other words; none if it means none."""
    is_word = isinstance(answer, (str, int)) and not isinstance(answer, bool)
    return spellings.get(str(answer).strip().lower()) if is_word else None


def _shape(kind: str, schema: dict[str, Any]) -> str:
    if kind == "approval" and "raise_by" in schema["properties"]:
        return 'Send {"approved": true} or {"approved": false}, with "raise_by": "5.00" for another amount.'
    if kind == "approval":
        return 'Send {"approved": true} or {"approved": false}, with "approver" and "comment" if you like.'
    if kind == SETTLE and len(schema["oneOf"]) > 2:
        return (
            'Send {"done": null}, {"rerun": true} or {"skip": "WHY"}; at a shell: everstep settle RUN STEP.'
        )
    if kind == SETTLE:
        return 'Send {"done": VALUE} or {"rerun": true}; at a shell: everstep settle RUN STEP.'
    if "enum" in schema:
        return f"Send one of {msgspec.json.encode(schema['enum']).decode()}."
    return f"It must match {msgspec.json.encode(schema).decode()[:300]}."
