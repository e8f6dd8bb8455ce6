"""Approvals that name who may decide, that several must give, or that are not for who started the run."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from everstep import Context, Flow, Host, KeyRing, Status, node, wait
from everstep.errors import (
    AnswerInvalid,
    AnswerTooLate,
    BadRequest,
    StateCorrupted,
    VotedAlready,
    VoteRefused,
    WaitSettled,
)
from everstep.model.acts import Verified
from everstep.results import VotingInfo, WaitInfo
from everstep.testing import ManualClock

pytestmark = pytest.mark.servers

YES, NO = {"approved": True}, {"approved": False}
BOARD = ["ann", "bob", "cleo"]
SIGN = Flow("signing", [wait.approval("sign", approvers=BOARD, quorum=2, timeout="1d")])


def asked(host: Host, flow: Flow = SIGN, run_id: str = "r", **given: Any) -> WaitInfo:
    """Run a flow until it waits for one thing, and return that."""
    [opened] = host.run(flow, run_id=run_id, **given).waits
    return opened


def shown(opened: WaitInfo) -> VotingInfo:
    assert opened.voting is not None
    return opened.voting


def test_so_many_of_those_who_are_named_must_approve(host: Host, clock: ManualClock) -> None:
    opened = asked(host)
    assert (shown(opened).quorum, shown(opened).approvers, shown(opened).left) == (2, BOARD, BOARD)
    first = host.answer(opened.id, YES, by="ann", comment="fine")
    assert (first.status, first.answer, shown(first).left) == ("open", None, ["bob", "cleo"])
    assert host.resume("r", SIGN).status is Status.HALTED
    clock.advance(60)
    last = host.answer(opened.id, YES, by="cleo")
    assert (last.status, last.act and last.act.by) == ("settled", "cleo")
    assert [(vote.by, vote.approved) for vote in shown(last).votes] == [("ann", True), ("cleo", True)]
    out = host.resume("r", SIGN)["sign"]
    assert (out.approved, out.approver) == (True, "cleo")
    assert [(vote.by, vote.comment, vote.how) for vote in out.votes] == [
        ("ann", "fine", "claimed"),
        ("cleo", "", "claimed"),
    ]
    assert out.votes[1].at - out.votes[0].at == timedelta(seconds=60)


def test_one_rejection_decides(host: Host) -> None:
    opened = asked(host)
    host.answer(opened.id, YES, by="ann")
    host.answer(opened.id, {"approved": False, "approver": "bob", "comment": "too much"})
    out = host.resume("r", SIGN)["sign"]
    assert (out.approved, out.approver, out.comment) == (False, "bob", "too much")
    assert [(vote.by, vote.approved) for vote in out.votes] == [("ann", True), ("bob", False)]
    with pytest.raises(WaitSettled):
        host.answer(opened.id, YES, by="cleo")


def test_a_name_votes_once_and_only_if_it_may(host: Host) -> None:
    opened = asked(host)
    host.answer(opened.id, YES, by="ann")
    with pytest.raises(VotedAlready, match="'ann' has voted"):
        host.answer(opened.id, NO, by="ann")
    with pytest.raises(VoteRefused, match="'eve' may not decide"):
        host.answer(opened.id, YES, by="eve")
    with pytest.raises(AnswerInvalid, match="by name"):
        host.answer(opened.id, YES)
    with pytest.raises(AnswerInvalid, match="approved"):
        host.answer(opened.id, {"sure": True}, by="bob")
    assert [vote.by for vote in shown(host.wait(opened.id)).votes] == ["ann"]


def test_a_link_decides_nothing_where_approvers_are_named(host: Host) -> None:
    opened = asked(host)
    with pytest.raises(VoteRefused, match="does not say who you are"):
        host.answer(opened.token, YES, by="ann")
    anyone = Flow("anyone", [wait.approval("sign", quorum=2)])
    opened = asked(host, anyone, "s")
    for name in ("ann", "bob"):
        host.answer(opened.token, YES, by=name)
    assert host.resume("s", anyone)["sign"].approved


def test_who_started_the_run_does_not_decide(host: Host) -> None:
    flow = Flow("f", [wait.approval("ok", not_by_starter=True)])
    opened = asked(host, flow, by="ann")
    assert shown(opened).not_by == ["ann"]
    with pytest.raises(VoteRefused, match="'ann' started run 'r'"):
        host.answer(opened.id, YES, by="ann")
    host.answer(opened.id, YES, by="bob")
    assert host.resume("r", flow)["ok"].approved


def test_who_forked_a_run_does_not_decide_there_either(host: Host) -> None:
    flow = Flow("f", [wait.approval("ok", quorum=2, not_by_starter=True)])
    opened = asked(host, flow, by="ann")
    host.answer(opened.id, YES, by="cleo")
    host.fork("r", fork_id="fork", by="bob")
    [again] = host.resume("fork", flow).waits
    assert (shown(again).not_by, shown(again).votes) == (["ann", "bob"], [])
    for name in ("ann", "bob"):
        with pytest.raises(VoteRefused):
            host.answer(again.id, YES, by=name)
    assert [vote.by for vote in shown(host.wait(opened.id)).votes] == ["cleo"]


def test_a_run_whose_starter_is_not_known_cannot_ask_for_another_person(host: Host) -> None:
    flow = Flow("f", [wait.approval("ok", not_by_starter=True)])
    result = host.run(flow, run_id="r")
    assert result.status is Status.FAILED
    assert result.error is not None and "is not known" in result.error.message


def test_a_quorum_that_the_starter_makes_impossible_is_refused_when_it_opens(host: Host) -> None:
    flow = Flow("f", [wait.approval("ok", approvers=["ann", "bob"], quorum=2, not_by_starter=True)])
    result = host.run(flow, run_id="r", by="ann")
    assert result.error is not None and "can never be decided" in result.error.message
    assert host.run(flow, run_id="s", by="cleo").status is Status.HALTED


def test_names_may_come_from_a_value_of_the_flow(host: Host) -> None:
    flow = Flow("f", [wait.approval("ok", approvers="managers")])
    [opened] = host.run(flow, {"managers": ["ann"]}, run_id="r").waits
    assert shown(opened).approvers == ["ann"]
    failed = host.run(flow, {"managers": []}, run_id="s")
    assert failed.error is not None and "approvers" in failed.error.message


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"quorum": 0}, "quorum is 0"),
        ({"quorum": True}, "quorum is True"),
        ({"quorum": 3, "approvers": ["ann", "bob"]}, "3 must approve, and there are 2"),
        ({"approvers": []}, "approvers are"),
        ({"approvers": ["ann", "ann"]}, "there twice"),
        ({"approvers": ["ann", ""]}, "an approver is"),
        ({"approvers": [" ann"]}, "an approver is"),
        ({"approvers": wait.literal("ann")}, "approvers are"),
        ({"not_by_starter": 1}, "not_by_starter"),
    ],
)
@pytest.mark.stores("memory")
def test_nonsense_is_found_when_the_node_is_made(given: dict[str, Any], wrong: str) -> None:
    with pytest.raises(BadRequest, match=wrong):
        wait.approval("ok", **given)


def test_votes_are_for_approvals_only(host: Host) -> None:
    @node(halts=True)
    def ask() -> wait.Wait:
        return wait.Wait(kind="choice", options=["a"], quorum=2)

    result = host.run(Flow("f", [ask]), run_id="r")
    assert result.error is not None and "wait.approval" in str(result.error.message) + str(result.error)


def test_a_wait_inside_a_node_counts_votes_too(host: Host) -> None:
    @node(output="said", halts=True)
    def agent(ctx: Context) -> list[str]:
        out = ctx.wait(wait.approval("sign", approvers=BOARD, quorum=2, not_by_starter=True))
        return [vote.by for vote in out.votes]

    flow = Flow("f", [agent])
    opened = asked(host, flow, by="bob")
    assert shown(opened).left == ["ann", "cleo"]
    for name in ("cleo", "ann"):
        host.answer(opened.id, YES, by=name)
    assert host.resume("r", flow)["said"] == ["cleo", "ann"]


def test_the_clock_rejects_and_says_who_had_voted(host: Host, clock: ManualClock) -> None:
    opened = asked(host)
    host.answer(opened.id, YES, by="ann")
    clock.advance(timedelta(days=1))
    with pytest.raises(AnswerTooLate):
        host.answer(opened.id, YES, by="bob")
    out = host.resume("r", SIGN)["sign"]
    assert (out.approved, out.comment, [vote.by for vote in out.votes]) == (False, "timed out", ["ann"])


def test_a_vote_that_comes_too_late_is_none_even_if_it_decides_nothing(
    host: Host, clock: ManualClock
) -> None:
    opened = asked(host)
    clock.advance(timedelta(days=1))
    with pytest.raises(AnswerTooLate):
        host.answer(opened.id, YES, by="ann")
    assert host.resume("r", SIGN)["sign"].votes == ()


def test_an_early_end_keeps_the_votes(host: Host) -> None:
    opened = asked(host)
    host.answer(opened.id, YES, by="ann")
    host.waiting.fire(opened.id, by="ops")
    assert [vote.by for vote in host.resume("r", SIGN)["sign"].votes] == ["ann"]


def test_another_token_keeps_the_votes(host: Host) -> None:
    opened = asked(host)
    host.answer(opened.id, YES, by="ann")
    host.waiting.reissue(opened.id, metadata={"for": "bob"})
    assert [vote.by for vote in shown(host.wait(opened.id)).votes] == ["ann"]


def test_votes_that_come_at_once_are_all_counted(url: str) -> None:
    people = [f"p{k}" for k in range(8)]
    flow = Flow("f", [wait.approval("ok", approvers=people, quorum=len(people))])
    with Host(url) as host:
        hosts = [host] * 4 if url == "memory:" else [Host(url) for _ in range(4)]
        opened = asked(host, flow)
        errors: list[Exception] = []

        def vote(k: int) -> None:
            for name in people[k::4]:
                try:
                    hosts[k].answer(opened.id, YES, by=name)
                except Exception as error:
                    errors.append(error)

        threads = [threading.Thread(target=vote, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        out = host.resume("r", flow)["ok"]
        assert out.approved and sorted(vote.by for vote in out.votes) == people
        for other in hosts:
            if other is not host:
                other.close()


def test_one_name_that_votes_at_two_places_at_once_is_counted_once(url: str) -> None:
    flow = Flow("f", [wait.approval("ok", approvers=["ann", "bob"], quorum=2)])
    with Host(url) as host:
        opened = asked(host, flow)
        refused: list[str] = []

        def vote() -> None:
            try:
                host.answer(opened.id, YES, by="ann")
            except VotedAlready as error:
                refused.append(error.code)

        threads = [threading.Thread(target=vote) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) == 5
        assert [vote.by for vote in shown(host.wait(opened.id)).votes] == ["ann"]


def test_who_a_token_names_is_authenticated(host: Host) -> None:
    opened = asked(host)
    host.answer(opened.id, YES, by=Verified("ann"))
    assert [vote.how for vote in shown(host.wait(opened.id)).votes] == ["authenticated"]


def test_each_vote_has_its_row_in_the_audit_log_also_if_it_was_refused(host: Host) -> None:
    opened = asked(host)
    host.answer(opened.id, YES, by="ann")
    for name, error in (("ann", VotedAlready), ("eve", VoteRefused)):
        with pytest.raises(error):
            host.answer(opened.id, YES, by=name)
    host.answer(opened.id, {"approved": True, "approver": "bob"})
    rows = [(row.by, row.outcome, row.code, row.run_id) for row in host.fleet.audit(act="answer")]
    assert rows == [
        ("ann", "done", "", "r"),
        ("ann", "refused", "vote.given", "r"),
        ("eve", "refused", "vote.refused", "r"),
        ("bob", "done", "", "r"),
    ]


def test_a_turn_with_the_same_id_votes_once(host: Host) -> None:
    host.run(SIGN, run_id="r")
    for _ in range(2):
        result = host.send("r", "sign", YES, id="m1", by="ann", drive=SIGN)
    assert [vote.by for vote in shown(result.waits[0]).votes] == ["ann"]
    for _ in range(2):
        result = host.send("r", "sign", YES, id="m2", by="bob", drive=SIGN)
    assert result["sign"].approved


@pytest.mark.stores("sqlite")
def test_votes_are_encrypted_and_encrypted_anew(url: str, tmp_path: Path) -> None:
    old, new = KeyRing({"old": b"o" * 32}), KeyRing({"new": b"n" * 32, "old": b"o" * 32})
    flow = Flow("f", [wait.approval("ok", approvers=["ann-the-first", "bob"], quorum=2)])
    with Host(url, encrypt=old) as host:
        opened = asked(host, flow)
        host.answer(opened.id, YES, by="ann-the-first", comment="between us")
    for file in tmp_path.iterdir():
        if file.is_file():
            assert b"between us" not in file.read_bytes()
    with Host(url, encrypt=new) as host:
        host.storage.rekey()
        [vote] = shown(host.wait(opened.id)).votes
        assert vote.comment == "between us"
        host.answer(opened.id, YES, by="bob")
        assert len(host.resume("r", flow)["ok"].votes) == 2


@pytest.fixture
def other(tmp_path: Path) -> Iterator[str]:
    yield f"file://{tmp_path}/others"


def test_votes_move_with_their_run(host: Host, other: str) -> None:
    opened = asked(host)
    host.answer(opened.id, YES, by="ann")
    host.transfer.copy(other, ["r"], move=True)
    with pytest.raises(Exception, match=r"moved|no wait"):
        host.answer(opened.id, YES, by="bob")
    with Host(other) as there:
        assert [vote.by for vote in shown(there.wait(opened.id)).votes] == ["ann"]
        there.answer(opened.id, YES, by="bob")
        assert there.resume("r", SIGN)["sign"].approved


@pytest.mark.stores("sqlite")
def test_what_the_store_was_made_to_say_does_not_decide(host: Host, url: str) -> None:
    opened = asked(host)
    host.answer(opened.id, YES, by="ann")

    with sqlite3.connect(url.removeprefix("sqlite:///")) as db:
        answer = msgspec.json.encode({"approved": True, "approver": "bob", "votes": []})
        db.execute(
            "UPDATE waits SET status = 'settled', settled_by = 'answer', settled_at = 1, answer = ?",
            (answer,),
        )
    with pytest.raises(StateCorrupted, match="votes that do not carry"):
        host.resume("r", SIGN)
