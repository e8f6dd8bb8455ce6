"""A last record that says anything at all, hashed as it should be: a named error, or an answer.

No store writes such a thing; a program with an error might, or an attacker who knows how digests are made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import msgspec
import pytest

from everstep import Context, Flow, Host, node, wait
from everstep.codec.records import glance
from everstep.errors import EverstepError
from everstep.registry import Opened
from everstep.stores.memory import MemoryStore
from everstep.testing import ManualClock
from tests import inside_memory
from tests.keyframes import space_keyframes
from tests.unit.codec.fuzzing import IS_SOAK

TRIES = 3000 if IS_SOAK else 50
ODD: list[Any] = [
    *(
        None,
        True,
        0,
        1,
        -1,
        7,
        2**31,
        2**63,
        -(2**63),
        1.5,
        "",
        "a",
        "a#1",
        "over#0/part",
        "@inputs",
        "@fork",
    ),
    *(
        "@start",
        "completed",
        "halted",
        "running",
        "retrying",
        "failed",
        "whole",
        "append",
        "lifted",
        "x" * 50,
    ),
    *(b"", b"\x00" * 32, [], {}, ["a"], [["a", 1]], {"a": 1}, {"": {}}, {"a/b": {}}, [None], [{}]),
    *("/", "//", "#", "@", "a@b#c", "over#999999999", "over@2#1/part", "ask", {"ask": [2, "completed"]}),
]


@node(output="items")
def begin(x: int, ctx: Context) -> list[int]:
    ctx.channel.append("log", x)
    return [x, x + 1]


@node(output="part")
def part(item: int) -> int:
    return item * 2


@node(output="seen", replayable=True)
def collect(part: list[int], ctx: Context) -> Iterator[int]:
    ctx.channel.atomic_add("n", 1)
    yield from part


@node(output="end")
def end(ask: wait.ApprovalOutput, seen: list[int]) -> int:
    return sum(seen)


OVER = Flow("over", [part]).as_node().with_inputs(item="items").map_over("item")
FLOW = Flow("f", [begin, OVER, collect, wait.approval("ask"), end], durability="strong")


def chain_with(keyframes: bool) -> tuple[MemoryStore, ManualClock]:
    """A store with a finished run, with keyframes or without."""
    clock = ManualClock()
    store = MemoryStore(clock)
    with pytest.MonkeyPatch.context() as patch:
        if keyframes:
            space_keyframes(patch, lambda: 0)
        with Host(
            Opened(store, store.artifacts, "memory:"), clock=clock, encrypt=False, compress=False
        ) as host:
            host.run(FLOW, {"x": 1}, run_id="r")
            host.answer(host.waits("r")[0].id, {"approved": True})
            host.resume("r", FLOW)
    return store, clock


def twisted(header: Any, chance: Random) -> Any:
    """Return a header in which something somewhere is something else."""
    place: Any = header
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = chance.choice(keys)
        inner = place[key]
        if isinstance(inner, dict | list) and inner and chance.random() < 0.75:
            place = inner
            continue
        what = chance.randrange(4)
        if what == 0 and isinstance(place, dict) and key != "n":
            del place[key]
        elif what == 1 and isinstance(place, dict):
            place[chance.choice(["a", "over", "x", "v", "i", "h", "z", "w"])] = inner
        elif what == 2 and isinstance(inner, int) and not isinstance(inner, bool):
            place[key] = inner + chance.choice([-1, 1, 1000, 10**9])
        else:
            place[key] = chance.choice(ODD)
        return header


def looks(host: Host) -> list[Callable[[], object]]:
    def values() -> None:
        state = host.state("r")
        for name in state:
            try:
                state[name]
            except EverstepError:
                continue
        assert state.nodes is not None and state.queued is not None and state.opened is not None

    return [
        values,
        lambda: host.history("r"),
        lambda: host.checkpoints("r"),
        lambda: host.debug.diff("r", start=1),
        lambda: host.explain("r", FLOW),
        lambda: host.storage.verify(),
        lambda: host.fork("r", fork_id="fork"),
        lambda: host.state("fork"),
        lambda: host.resume("r", FLOW),
        lambda: host.resume("r", FLOW, start="begin"),
        lambda: host.cancel("r"),
    ]


@pytest.mark.parametrize("keyframes", [False, True])
def test_a_record_that_was_hashed_may_say_anything(keyframes: bool) -> None:
    chance = Random(11 if not IS_SOAK else None)
    store, clock = chain_with(keyframes)
    whole = inside_memory.records(store.data, "r")
    refused = 0
    for number in range(TRIES):
        seed = chance.randrange(10**9)
        try:
            refused += one_try(Random(seed), whole, store, clock)
        except Exception as error:
            raise AssertionError(f"try {number}, seed {seed}: {error!r}") from error
    assert refused > TRIES, "hardly anything was wrong with them"


def one_try(chance: Random, whole: list[Any], store: MemoryStore, clock: ManualClock) -> int:
    """Twist one record and look at it in every way; returns how often that was refused."""
    row, refused = inside_memory.row(store.data, "r"), 0
    count = chance.randrange(2, len(whole) + 1)
    seen = glance(whole[count - 1].body, "it")
    header = twisted(msgspec.msgpack.decode(seen.header), chance)
    raw = msgspec.msgpack.encode(header)
    before = glance(whole[count - 2].body, "it").digest
    digest = hashlib.sha256(before + whole[count - 1].checkpoint_id.encode() + raw).digest()
    kept = before if seen.record.keyframe else b""
    body = msgspec.msgpack.encode([2, digest, kept, raw, seen.payloads])
    row = msgspec.structs.replace(
        row, checkpoints=count, status=chance.choice([row.status, seen.record.status]), lease=None
    )
    records = [*whole[: count - 1], msgspec.structs.replace(whole[count - 1], body=body)]
    fresh = inside_memory.run_with(clock, store.data, row, records)
    with Host(Opened(fresh, fresh.artifacts, "memory:"), clock=clock, encrypt=False, compress=False) as host:
        for look in looks(host):
            try:
                look()
            except EverstepError:
                refused += 1
    return refused
