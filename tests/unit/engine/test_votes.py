"""Votes: which count, what they come to, and whether an answer is carried by them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from everstep import wait
from everstep.codec.complaints import complaints
from everstep.engine.settling import can_be_decided, check_carried, decided, refusal_of
from everstep.errors import BadRequest, StateCorrupted
from everstep.model.waits import Vote, VoteRefusal, Voting
from everstep.runtime.waits.open import CLOSED_BY_VOTES
from everstep.runtime.waits.voting import schema_of_vote

AT = datetime(2030, 1, 1, tzinfo=UTC)
ASKED: dict[str, Any] = {"approvers": ["ann", "bob", "cleo"], "quorum": 2}


def votes(text: str) -> tuple[Vote, ...]:
    """Return votes as they are written: `ann+ bob-`."""
    return tuple(Vote(by=one[:-1], approved=one[-1] == "+", at=AT) for one in text.split())


@pytest.mark.parametrize(
    ("said", "comes_to"),
    [("", None), ("ann+", None), ("ann+ bob+", True), ("ann-", False), ("ann+ bob-", False)],
)
def test_enough_approve_or_one_rejects(said: str, comes_to: bool | None) -> None:
    assert decided(2, votes(said)) is comes_to


@pytest.mark.parametrize(
    ("name", "by_link", "refusal"),
    [
        ("bob", False, None),
        ("bob", True, VoteRefusal.BY_LINK),
        ("eve", False, VoteRefusal.NOT_NAMED),
        ("cleo", False, VoteRefusal.STARTER),
        ("ann", False, VoteRefusal.TWICE),
        ("Bob", False, VoteRefusal.NOT_NAMED),
    ],
)
def test_who_may_vote(name: str, by_link: bool, refusal: VoteRefusal | None) -> None:
    voting = Voting(quorum=2, approvers=("ann", "bob", "cleo"), not_by=("cleo",), votes=votes("ann+"))
    assert refusal_of(voting, name, by_link=by_link) is refusal
    assert voting.left == ("bob",)


@pytest.mark.parametrize(
    "spelled", ["Jose\u0301", "JOSÉ", "\uff2aosé", "jos\u200bé", "José\u00a0", "\u2060José"]
)
def test_who_spells_the_name_in_another_way_is_the_same_person(spelled: str) -> None:
    voted = Voting(quorum=2, votes=votes("José+"))
    assert refusal_of(voted, spelled) is VoteRefusal.TWICE
    assert refusal_of(Voting(not_by=("José",)), spelled) is VoteRefusal.STARTER
    named = Voting(approvers=("bob", spelled), not_by=("José",))
    assert named.left == ("bob",)
    assert not can_be_decided(2, ["bob", spelled], ["José"])
    with pytest.raises(StateCorrupted, match="votes"):
        check_carried({"quorum": 2}, True, (*votes("José+"), Vote(by=spelled, approved=True, at=AT)), "w")
    with pytest.raises(BadRequest, match="there twice"):
        wait.approval("sign", approvers=["José", spelled.strip()])


def test_where_no_names_are_said_a_link_votes_and_anyone_is_left() -> None:
    voting = Voting(quorum=2)
    assert refusal_of(voting, "eve", by_link=True) is None
    assert voting.left is None


def test_who_started_the_run_does_not_decide_under_another_name_behind_a_link() -> None:
    voting = Voting(quorum=2, not_by=("cleo",))
    assert refusal_of(voting, "eve", by_link=True) is VoteRefusal.BY_LINK
    assert refusal_of(voting, "eve") is None
    assert refusal_of(voting, "cleo") is VoteRefusal.STARTER
    assert voting.left is None


def test_enough_have_to_be_left_without_who_started_it() -> None:
    assert can_be_decided(2, ["ann", "bob", "cleo"], ["cleo"]) and can_be_decided(9, None, ["cleo"])
    assert not can_be_decided(2, ["ann", "bob"], ["bob"])


@pytest.mark.parametrize(
    ("approved", "said"),
    [
        (True, ""),
        (True, "ann+"),
        (True, "ann+ ann+"),
        (True, "ann+ eve+"),
        (True, "ann+ bob-"),
        (False, "ann+ bob+"),
        (None, "ann+ bob+"),
    ],
)
def test_an_answer_that_its_votes_do_not_carry_is_refused(approved: bool | None, said: str) -> None:
    with pytest.raises(StateCorrupted, match="votes"):
        check_carried(ASKED, approved, votes(said), "wait w")


def test_an_answer_that_its_votes_carry_is_taken() -> None:
    check_carried(ASKED, True, votes("ann+ bob+"), "wait w")
    check_carried(ASKED, False, votes("ann+ bob-"), "wait w")
    check_carried({"not_by_starter": True}, True, votes("eve+"), "wait w")


def test_a_plain_answer_is_a_vote_and_does_not_settle_the_wait_by_itself() -> None:
    plain = {"approved": True, "approver": "ann"}
    assert complaints(plain, CLOSED_BY_VOTES) and not complaints(plain, schema_of_vote(CLOSED_BY_VOTES))
