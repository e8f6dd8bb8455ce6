"""What a settled wait gives: to the node that waited, or at the place inside a node that did."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec

from everstep.codec.notes import Message
from everstep.codec.schema import shaped
from everstep.errors import WaitTimeout
from everstep.graph.author.node import Node
from everstep.graph.author.wait_options import IN_CHAIN, Wait
from everstep.graph.check.hints import UNKNOWN
from everstep.model.outputs import ApprovalOutput, CallbackOutput, TimerOutput
from everstep.model.waits import SettledBy, WaitRow
from everstep.on_demand import on_demand

if TYPE_CHECKING:
    from everstep.runtime.waits.voting import has_votes, votes_of
else:
    has_votes = on_demand("everstep.runtime.waits.voting:has_votes")
    votes_of = on_demand("everstep.runtime.waits.voting:votes_of")

VOTES: Final = "votes"
"""Who decided, where that was counted."""
VOTING: Final = b'"voting":{'
"""What the details of a wait that has votes hold; those of others may, in a text."""


def settlement_of(row: WaitRow, now: datetime, message: Message | None = None) -> dict[str, Any]:
    """Return how a wait was settled, by a signal or an event if there is one, as a value that can be kept.

    `now` is by the store's clock.
    """
    settled = {
        "kind": row.kind,
        "by_clock": row.settled_by is SettledBy.CLOCK,
        "answer": msgspec.json.decode(row.answer or b"null") if message is None else message.value,
        "settled_at": row.settled_at or now,
        "due_at": row.due_at,
        "taken_at": now,
    }
    if row.kind == "approval" and VOTING in row.details and has_votes(row):
        settled[VOTES] = votes_of(row)
    return settled


def output_of(
    settled: Mapping[str, Any], asked: Wait | Mapping[str, Any], path: str, answer_type: Any
) -> Any:
    """Return what a settled wait gives; raises `WaitTimeout` if its time was over and it has no default."""
    kind, at, due, taken_at = (settled[name] for name in ("kind", "settled_at", "due_at", "taken_at"))
    if isinstance(asked, Wait):  # what it said counts where no answer came
        asked = asked.said(IN_CHAIN) if kind == "timer" or settled["by_clock"] else {}
    if kind == "timer":
        late = (taken_at - (due or at)).total_seconds() * 1000
        return TimerOutput(asked.get("payload"), taken_at, max(0, round(late)) if settled["by_clock"] else 0)
    if settled["by_clock"]:
        error = too_late(settled, asked, path)
        if error is not None:
            raise error
        if kind == "approval":
            return ApprovalOutput(False, None, "timed out", at, settled.get(VOTES, ()))
        return CallbackOutput(asked["default"], at) if kind == "callback" else asked["default"]
    answer = settled["answer"]
    if kind == "approval":
        return ApprovalOutput(
            answer["approved"], answer.get("approver"), answer.get("comment"), at, settled.get(VOTES, ())
        )
    if answer_type is not None:
        answer = shaped(answer, answer_type)
    return CallbackOutput(answer, at) if kind == "callback" else answer


def too_late(settled: Mapping[str, Any], asked: Mapping[str, Any], path: str) -> WaitTimeout | None:
    """Return what a settled wait raises: its time was over, and nothing says what counts then."""
    due = settled["due_at"]
    if not settled["by_clock"] or settled["kind"] in ("timer", "approval") or "default" in asked:
        return None
    until = due.isoformat(timespec="seconds") if due is not None else "its time was over"
    return WaitTimeout(
        f"{path!r} waited until {until}, and no answer came.",
        fix="Resume the run to ask again, or declare a default= answer.",
    )


def answer_type_of(node: Node, *, is_inside: bool = False) -> Any:
    """Return what an answer to this node's wait must be, or none if anything will do.

    One that waits inside goes on with the answer, so what it returns says nothing of that.
    """
    if node.answer_type is not None:
        return node.answer_type
    if (
        is_inside
        or node.is_built_in
        or node.returns is UNKNOWN
        or node.returns in (Wait, None, type(None), Any)
    ):
        return None
    members = get_args(node.returns)
    if Wait in members:
        return reduce(or_, (m for m in members if m is not Wait))
    return node.returns
