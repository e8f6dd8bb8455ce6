"""Votes on an approval: what is kept of them in the details of its wait. Apart, as few approvals have any.

A vote is written by a compare-and-set on the details, so none is lost to another that comes at the same
time, and the one that decides settles the wait in the same act.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from everstep.codec.chain import Codecs
from everstep.codec.notes import open_wait
from everstep.engine.settling import can_be_decided, decided, refusal_of
from everstep.errors import (
    AnswerInvalid,
    BadRequest,
    EverstepError,
    ServiceMissing,
    VotedAlready,
    VoteRefused,
)
from everstep.graph.author.wait_options import Wait
from everstep.graph.author.waits import check_voters
from everstep.model.acts import Act, AuditRow
from everstep.model.shapes import understood
from everstep.model.waits import Vote, VoteRefusal, Voting, VotingInfo, WaitChange, WaitRow, WaitStatus
from everstep.ports.store import CheckpointStore
from everstep.runtime.lineage import Lineage

VOTING: Final = "voting"
"""What the details of a wait call its votes, and who may give them."""


class Counted(NamedTuple):
    """What a vote makes of its wait."""

    details: dict[str, Any]
    answer: dict[str, Any] | None
    """What settles the wait; none if more votes are needed."""


def read_voting(details: Mapping[str, Any]) -> Voting | None:
    """Return what the details of a wait say of its votes; none if it has none."""
    kept = details.get(VOTING)
    return None if kept is None else msgspec.convert(kept, understood(Voting))


def voting_of(row: WaitRow) -> Voting | None:
    """Return the votes of a wait that is not encrypted any more; none if it has none."""
    return read_voting(msgspec.json.decode(row.details))


def has_votes(row: WaitRow) -> bool:
    """True of a wait that keeps count of who says what. It is not encrypted any more."""
    return VOTING in msgspec.json.decode(row.details)


def votes_of(row: WaitRow) -> tuple[Vote, ...]:
    """Return who has voted on a wait that is not encrypted any more."""
    voting = voting_of(row)
    return () if voting is None else voting.votes


def with_voting(
    details: bytes, wait: Wait, store: CheckpointStore, starters: tuple[str, ...], path: str
) -> bytes:
    """Return the details of a wait that opens, with who may vote; raises if it could never be decided."""
    if wait.kind != "approval":
        raise BadRequest(
            f"{path!r} has approvers, a quorum or not_by_starter, and waits for {wait.kind!r}.",
            fix="Use wait.approval: nothing else counts votes.",
        )
    if not store.capabilities.compares:
        raise ServiceMissing(
            f"{path!r} counts votes, which this store does not.",
            fix="Use SQLite, PostgreSQL, Redis, files or a bucket.",
        )
    approvers = None if wait.approvers is None else tuple(wait.approvers)
    check_voters(path, wait.approvers, wait.quorum, wait.not_by_starter)
    if wait.not_by_starter and not starters:
        raise BadRequest(
            f"{path!r} is not for who started the run, and who that was is not known.",
            fix="Start it by name: host.run(..., by=), everstep run --as, or a token that has a name.",
        )
    not_by = starters if wait.not_by_starter else ()
    if not can_be_decided(wait.quorum, approvers, not_by):
        raise BadRequest(
            f"{path!r} can never be decided: {wait.quorum} of {', '.join(approvers or ())} must approve, and "
            f"{', '.join(not_by)} started the run.",
            fix="Name more approvers, or have another person start it.",
        )
    voting = Voting(quorum=wait.quorum, approvers=approvers, not_by=not_by)
    return msgspec.json.encode({**msgspec.json.decode(details), VOTING: voting})


async def starters_of(store: CheckpointStore, codecs: Codecs, run_id: str) -> tuple[str, ...]:
    """Return who started a run, and who forked it or what it comes from, as far as they are known."""
    row = await store.run(run_id)
    if row is None:
        return ()
    lineage, found = Lineage(store, codecs), dict[str, None]()
    async with aclosing(lineage.back(row)) as family:
        async for run in family:
            if run.trimmed_before > run.first:
                return ()  # its first record is a stub, so who started it is not known any more
            _, opened = await lineage.read(run, run.first)
            if opened.record.act is not None and opened.record.act.by:
                found[opened.record.act.by] = None
    return tuple(reversed(found))


def as_asked(plain: WaitRow) -> WaitRow:
    """Return a wait with what one vote must look like, not what settles it."""
    details = msgspec.json.decode(plain.details)
    return msgspec.structs.replace(
        plain, details=msgspec.json.encode({**details, "schema": schema_of_vote(details["schema"])})
    )


def shown_votes(details: dict[str, Any]) -> dict[str, Any]:
    """Return what is shown of a wait that has votes: these, and what one must look like."""
    return {"voting": info_of(details), "schema": schema_of_vote(details["schema"])}


def info_of(details: dict[str, Any]) -> VotingInfo | None:
    """Return what is shown of the votes on a wait; none if it has none."""
    voting = read_voting(details)
    if voting is None:
        return None
    return VotingInfo(
        quorum=voting.quorum,
        approvers=None if voting.approvers is None else list(voting.approvers),
        not_by=list(voting.not_by),
        votes=list(voting.votes),
        left=None if voting.left is None else list(voting.left),
    )


def schema_of_vote(schema: dict[str, Any]) -> dict[str, Any]:
    """Return what a vote must look like, of what settles an approval that has votes."""
    properties = {name: one for name, one in schema["properties"].items() if name != "votes"}
    return {**schema, "properties": properties, "required": ["approved"]}


def count(
    plain: WaitRow,
    voting: Voting,
    said: bytes,
    act: Act | None,
    now: datetime,
    *,
    by_link: bool,
    sent_id: str | None,
) -> Counted:
    """Return what a vote makes of its wait, or raise why it does not count."""
    if act is None or not act.by:
        raise AnswerInvalid(f"{plain.path!r} counts votes by name.", fix="Say who you are: by=, or --as.")
    refusal = refusal_of(voting, act.by, by_link=by_link)
    if refusal is not None:
        raise _refused(plain, voting, act.by, refusal)
    answer = msgspec.json.decode(said)
    vote = Vote(by=act.by, approved=answer["approved"], at=now, comment=act.comment, how=act.how)
    voting = voting.with_vote(vote, sent_id)
    details = {**msgspec.json.decode(plain.details), VOTING: voting}
    is_over = decided(voting.quorum, voting.votes) is not None
    return Counted(details, {**answer, "votes": voting.votes} if is_over else None)


def _refused(row: WaitRow, voting: Voting, name: str, refusal: VoteRefusal) -> EverstepError:
    of_run = {"run_id": row.run_id}
    match refusal:
        case VoteRefusal.BY_LINK:
            message = f"{row.path!r} is decided by {_listed(voting)}, and a link does not say who you are."
            fix = f"Answer it by name: everstep answer {row.wait_id}, or POST /waits/{row.wait_id}/answer."
        case VoteRefusal.NOT_NAMED:
            message = f"{name!r:.60} may not decide {row.path!r}."
            fix = f"It is decided by {_listed(voting)}."
        case VoteRefusal.STARTER:
            message = f"{name!r:.60} started run {row.run_id!r}, and may not decide {row.path!r}."
            fix = "Ask another person."
        case VoteRefusal.TWICE:
            message, fix = f"{name!r:.60} has voted on {row.path!r}.", "Each name votes once."
            return VotedAlready(message, fix=fix, **of_run)
    return VoteRefused(message, fix=fix, **of_run)


def _listed(voting: Voting) -> str:
    if voting.approvers is None and voting.not_by:
        return f"others than {', '.join(voting.not_by)}"
    return ", ".join(voting.approvers or ()) or "anyone with a name"


async def change_details(
    store: CheckpointStore,
    codecs: Codecs,
    row: WaitRow,
    make: Callable[[WaitRow], WaitChange],
    audit: AuditRow | None = None,
) -> WaitRow | None:
    """Change a wait that may have votes, and lose none that comes meanwhile; returns it as it is now."""
    more: dict[str, Any] = {} if audit is None else {"audit": audit}
    while True:
        change = make(row)
        if change.details is msgspec.UNSET or not has_votes(open_wait(codecs, row)):
            return await store.change_wait(row.wait_id, change, **more)
        now = await store.change_wait(row.wait_id, change, was=row.details, **more)
        if now is None or now.status is not WaitStatus.OPEN or now.details == change.details:
            return now
        row = now


async def bring_votes(codecs: Codecs, store: CheckpointStore, wait: WaitRow) -> None:
    """Give the same wait in another store the votes that it lacks there."""
    if wait.status is not WaitStatus.OPEN or not store.capabilities.compares:
        return
    plain = open_wait(codecs, wait)
    ours, there = voting_of(plain), await store.wait(wait.wait_id)
    while ours is not None and there is not None and there.status is WaitStatus.OPEN:
        theirs = voting_of(open_wait(codecs, there))
        if theirs is None or len(theirs.votes) >= len(ours.votes) or there.details == wait.details:
            return
        there = await store.change_wait(wait.wait_id, WaitChange(details=wait.details), was=there.details)
