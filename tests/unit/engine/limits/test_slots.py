"""Which runs are written down for a key, and what becomes of those that are found there."""

from __future__ import annotations

from random import Random

from everstep.engine.limits.slots import (
    GRACE,
    MOST,
    Standing,
    enter,
    key_alone,
    leave,
    push,
    rules_alone,
    stand_for,
    standing,
)
from everstep.model.leases import KeyLimit, Slot, slots_of

NONE: tuple[Slot, ...] = ()


def names(body: bytes | None) -> list[str]:
    return [slot.run_id for slot in slots_of(body)]


def test_who_comes_first_is_in_and_who_needs_it_free_is_not() -> None:
    body, entered = enter(None, "a", 1, NONE, needs_free=True)
    assert (entered.is_in, entered.others, names(body)) == (True, (), ["a"])
    again, refused = enter(body, "b", 2, NONE, needs_free=True)
    assert (refused.is_in, refused.others, again) == (False, (Slot("a", 1),), body)
    body, entered = enter(body, "b", 2, NONE, needs_free=False)
    assert (entered.is_in, entered.others, names(body)) == (True, (Slot("a", 1),), ["a", "b"])


def test_who_is_over_makes_room_but_not_if_it_was_written_down_anew() -> None:
    body, _ = enter(None, "a", 1, NONE, needs_free=True)
    assert enter(body, "b", 2, [Slot("a", 1)], needs_free=True)[1].is_in
    body = push(body, "a", 5)
    assert not enter(body, "b", 6, [Slot("a", 1)], needs_free=True)[1].is_in


def test_no_two_wait_for_each_other() -> None:
    chance, body = Random(1), None
    waits: dict[str, set[str]] = {}
    for at in range(200):
        name = chance.choice("abcdef")
        body, entered = enter(body, name, at, NONE, needs_free=False)
        waits[name] = {slot.run_id for slot in entered.others}
        assert not any(name in waits.get(other, ()) for other in waits[name])


def test_who_asks_again_keeps_its_place() -> None:
    body = None
    for at, name in enumerate("abc"):
        body, _ = enter(body, name, at, NONE, needs_free=False)
    body, entered = enter(body, "b", 9, NONE, needs_free=False)
    assert (names(body), [slot.run_id for slot in entered.others]) == (["a", "b", "c"], ["a"])
    assert slots_of(body)[1].at == 9


def test_what_was_not_admitted_is_struck_out() -> None:
    body, _ = enter(None, "a", 1, NONE, needs_free=True)
    assert leave(body, "other") == body
    assert leave(body, "a") is None
    assert leave(None, "a") is None


def test_of_very_many_the_newest_are_kept() -> None:
    body = None
    for number in range(MOST + 20):
        body = push(body, f"{number}", number)
    assert names(body) == [f"{number}" for number in range(20, MOST + 20)]


def test_a_run_may_stand_for_earlier_starts() -> None:
    body, _ = enter(None, "a", 5, NONE, needs_free=True)
    assert slots_of(stand_for(body, "a", 2)) == [Slot("a", 5, since=2)]
    assert slots_of(stand_for(body, "b", 2)) == slots_of(body)


def test_a_start_has_a_while_to_admit_its_run() -> None:
    slot = Slot("a", 100)
    said = [standing(slot, now, is_there=False, is_over=False) for now in (100, 100 + GRACE, 101 + GRACE)]
    assert said == [Standing.STARTING, Standing.STARTING, Standing.GIVEN_UP]
    assert standing(slot, 101 + GRACE, is_there=True, is_over=False) is Standing.UNFINISHED
    assert standing(slot, 0, is_there=False, is_over=True) is Standing.OVER


def test_the_group_of_a_run_says_which_key_it_has_alone() -> None:
    assert key_alone("tenant=eu,@customer=a%2Cb") == "@customer=a%2Cb"
    assert rules_alone("tenant=eu,@customer=ann") == [KeyLimit(name="@customer", alone=True)]
    for group in (None, "", "tenant=@eu", "a customer's own group @ home"):
        assert key_alone(group) is None
        assert rules_alone(group) == []
