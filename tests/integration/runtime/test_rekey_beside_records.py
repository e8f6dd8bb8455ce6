"""Signals, what runs emit, and logs of steps are encrypted anew with the records of their run."""

from __future__ import annotations

from typing import Any

import pytest

from everstep import Context, Flow, Host, KeyRing, node, wait
from everstep.ports.live import BEGINNING
from everstep.registry import Opened
from everstep.results import Rekeyed
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.testing import ManualClock
from everstep.testing.killing import Crashed, Killer, crash, killing

OLD, NEW = {"2025": b"1" * 32}, {"2026": b"2" * 32}


@node(output="said")
def says(n: int, ctx: Context) -> int:
    print("a logged secret")
    ctx.emit("told", word="an emitted secret")
    return n


TALK = Flow("talk", [says, wait.signal("go")], streams=True, logs=True)


def begin(host: Host, run_id: str = "r") -> None:
    """Leave a run with one signal that a wait has got, one that is unread, one log and one batch."""
    host.run(TALK, {"n": 1}, run_id=run_id)
    host.send(run_id, "go", "a secret answer", id="s1")
    host.send(run_id, "later", "a secret for later", id="s2")


def beside(host: Host, run_id: str = "r") -> list[bytes]:
    """Return the bytes that a store keeps beside the records of a run."""
    services: Any = host._host._services
    ring = services.live.ring
    return [b.body for b in ring.read({run_id: BEGINNING}, 0.0)] + [k.body for k in ring.read_logs(run_id)]


def assert_readable(host: Host, run_id: str = "r") -> None:
    assert [(s.name, s.value) for s in host.inbox(run_id)] == [
        ("go", "a secret answer"),
        ("later", "a secret for later"),
    ]
    assert [log.text for log in host.debug.logs(run_id)] == ["a logged secret\n"]
    assert emitted(host, run_id) == [{"word": "an emitted secret"}]
    assert [w.answer for w in host.waits(run_id, status="settled")] == ["a secret answer"]


def emitted(host: Host, run_id: str) -> list[Any]:
    """Return what was emitted, to a reader that has come to the wait."""
    found = []
    for event in host.follow(run_id):
        if event.kind in ("emitted", "gap"):
            found.append(event.data.get("data", event.kind))
            break
    return found


@pytest.mark.servers
@pytest.mark.stores("sqlite", "postgres", "redis")
def test_nothing_beside_the_records_stays_under_the_old_key(url: str) -> None:
    with Host(url, encrypt=KeyRing(OLD)) as host:
        begin(host)
        assert len(beside(host)) == 2 and all(b"2025" in body for body in beside(host))
    with Host(url, encrypt=KeyRing({**NEW, **OLD})) as host:
        [tried] = host.storage.rekey(dry_run=True)
        assert (tried.signals, tried.emitted, tried.logs, tried.waits) == (2, 1, 1, 1)
        assert host.storage.rekey() == [tried]
        assert host.storage.rekey() == [Rekeyed(run_id="r")]
    with Host(url, encrypt=KeyRing(NEW)) as host:
        assert all(b"2026" in body and b"2025" not in body for body in beside(host))
        assert_readable(host)
        assert host.storage.rekey() == [Rekeyed(run_id="r")], "nothing asks for the key that is gone"
        assert host.resume("r", TALK)["go"] == "a secret answer"


def test_a_rekey_that_was_killed_between_any_two_writes_is_finished_by_the_next() -> None:
    at, is_killed, half = 0, True, set()
    while is_killed:
        at, is_killed = at + 1, False
        store = MemoryStore(ManualClock(), MemoryData())

        def opened(keys: dict[str, bytes], killer: Killer | None = None, store: MemoryStore = store) -> Host:
            given = killing(Opened(store, store.artifacts, "memory:"), by=killer or Killer())
            return Host(given, clock=ManualClock(), encrypt=KeyRing(keys))

        with opened(OLD) as host:
            begin(host)
        with opened({**NEW, **OLD}, Killer(at, act=crash)) as host:
            try:
                host.storage.rekey()
            except Crashed:
                is_killed = True
        with opened({**NEW, **OLD}) as host:
            assert_readable(host)
            [left] = host.storage.rekey()
            half.add((left.checkpoints > 0, left.signals, left.waits, left.emitted, left.logs))
        with opened(NEW) as host:
            assert_readable(host)
            assert host.storage.rekey() == [Rekeyed(run_id="r")]
            assert host.resume("r", TALK)["go"] == "a secret answer"
    assert half == {
        (True, 2, 1, 1, 1),
        (False, 2, 1, 1, 1),
        (False, 0, 1, 1, 1),
        (False, 0, 0, 1, 1),
        (False, 0, 0, 0, 1),
        (False, 0, 0, 0, 0),
    }
