"""A rate is a sliding log, compared with counting every span by hand."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from everstep.engine.limits.keys import KeyRoom, key_name, next_open
from everstep.engine.limits.rates import moment_at, noted, open_at, trimmed
from everstep.model.leases import KeyLimit, KeyState, Quota, group_of, keys_in

SECOND = 1_000_000
MINUTE = 60 * SECOND


def most_in_a_span(times: list[int], span: int) -> int:
    """Return how many lie in the fullest span, ends included."""
    return max((sum(at <= other <= at + span for other in times) for at in times), default=0)


@pytest.mark.parametrize("seed", range(20))
def test_no_span_has_more_than_the_rate_allows_and_none_waits_longer_than_it_must(seed: int) -> None:
    chance = random.Random(seed)
    limit = KeyLimit(name="k", starts=chance.randint(1, 7), span=timedelta(seconds=chance.randint(1, 60)))
    state, now, times = KeyState(), 10 * MINUTE, list[int]()
    span = limit.span // timedelta(microseconds=1)
    for _ in range(300):
        now += chance.choice([0, 1, SECOND, chance.randint(0, span)])
        until = open_at(state, limit, now)
        fits = most_in_a_span([*times, now], span) <= (limit.starts or 0)
        assert (until == 0) is fits
        if until:
            assert open_at(state, limit, until - 1) and not open_at(state, limit, until)
            now = until
        state = trimmed(state, limit, now)
        state.log.append((now, 1))
        times.append(now)
        assert len(state.log) <= (limit.starts or 0)
    assert most_in_a_span(times, span) == limit.starts


@pytest.mark.parametrize("seed", range(10))
def test_weights_are_counted_and_what_weighs_too_much_goes_alone(seed: int) -> None:
    chance = random.Random(seed)
    limit, state, now = KeyLimit(name="k", starts=100, span=timedelta(minutes=1)), KeyState(), MINUTE
    done: list[tuple[int, int]] = []
    for _ in range(200):
        weight = chance.choice([1, 10, 60, 100, 500])
        now = max(now + chance.randint(0, SECOND), open_at(state, limit, now, weight))
        assert open_at(state, limit, now, weight) == 0
        counted = sum(weighs for at, weighs in done if at >= now - MINUTE)
        assert counted + min(weight, 100) <= 100
        state.log.append((now, min(weight, 100)))
        done.append((now, min(weight, 100)))
        state = trimmed(state, limit, now)


def test_a_very_large_rate_keeps_few_times_and_is_never_exceeded() -> None:
    chance = random.Random(7)
    limit, state, now = KeyLimit(name="k", starts=1_000_000, span=timedelta(minutes=1)), KeyState(), MINUTE
    done: list[tuple[int, int]] = []
    for _ in range(5_000):
        weight = chance.randint(1, 2_000)
        now = max(now + chance.randint(0, SECOND // 50), open_at(state, limit, now, weight))
        assert open_at(state, limit, now, weight) == 0
        state = trimmed(state, limit, now)
        noted(state.log, limit, now, weight)
        done.append((now, weight))
        assert len(state.log) <= 1_002
        assert sum(weighs for at, weighs in done if at >= now - MINUTE) <= 1_000_000
    assert done[-1][0] - done[0][0] < 6 * MINUTE


def test_what_was_asked_to_wait_waits() -> None:
    limit = KeyLimit(name="k", running=3)
    assert open_at(KeyState(closed_until=5 * SECOND), limit, 4 * SECOND) == 5 * SECOND
    assert open_at(KeyState(closed_until=5 * SECOND), limit, 5 * SECOND) == 0


def test_a_group_says_its_keys_whatever_is_in_them() -> None:
    ugly = {"a": "x,y", "b": "1=2", "c": "50%2C", "d": ""}
    found = keys_in(group_of(ugly.items()))
    assert list(found) == ["a", "b", "c", "d"]
    assert len(set(found.values())) == 4
    assert keys_in("customer 7") == {} == keys_in("")


def test_keys_are_read_once_a_claim_and_not_at_all_while_they_are_known_to_be_full() -> None:
    quotas = {"f": Quota(limits=(KeyLimit(name="k", starts=1, span=timedelta(minutes=1)),))}
    asked: list[str] = []
    full: dict[str, int] = {}

    def read(key: str) -> KeyState:
        asked.append(key)
        return KeyState(log=[(MINUTE, 1)])

    for _ in range(2):
        room = KeyRoom(quotas, {}, read, MINUTE + SECOND, full, lambda run_id: False)
        assert [room.has("f", "k=a", starts=True) for _ in range(3)] == [False] * 3
        assert room.has("f", "k=a", starts=False)
    assert asked == [key_name("f", "k=a")]
    assert next_open(full, moment_at(MINUTE)) == moment_at(2 * MINUTE + 1)
