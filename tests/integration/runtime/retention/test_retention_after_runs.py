"""Retention after each run, where the store has little to spare or is about to be closed."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import msgspec
import pytest

from everstep import Flow, Host, Retention, node
from everstep.model.removal import Erasure
from everstep.registry import Opened
from everstep.runtime import after_run
from everstep.runtime.system import SystemClock
from everstep.stores.memory import MemoryStore


@node(output="y")
def double(x: int) -> int:
    return 2 * x


KEPT = Flow("double", [double])
SHORT = Flow("double", [double], retention=Retention(keep_last=1))


class Sparse(MemoryStore):
    """A store that counts what is erased, may be short of calls, and may take its time."""

    capabilities = msgspec.structs.replace(MemoryStore.capabilities, rationed=True)

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.is_used_up = False
        self.erased = 0
        self.began, self.may_go_on = threading.Event(), threading.Event()
        self.may_go_on.set()

    def is_short(self) -> bool:
        return self.is_used_up

    async def erase(self, *args: Any, **named: Any) -> Erasure:
        self.began.set()
        await asyncio.to_thread(self.may_go_on.wait, 20)
        self.erased += 1
        return await super().erase(*args, **named)


def five_runs(host: Host) -> None:
    for x in range(5):
        host.run(KEPT, {"x": x})


@pytest.mark.parametrize("is_used_up", [False, True])
def test_clean_up_after_a_run_leaves_the_last_calls_to_runs(is_used_up: bool) -> None:
    store = Sparse()
    with Host(Opened(store, None, "memory:")) as host:
        five_runs(host)
        store.is_used_up = is_used_up
        host.run(SHORT, {"x": 9})
    assert store.erased == (0 if is_used_up else 5)


def test_a_host_that_is_closed_cuts_clean_up_off_between_two_runs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = Sparse()
    store.may_go_on.clear()
    with Host(Opened(store, None, "memory:")) as host:
        five_runs(host)
        host.run(SHORT, {"x": 9})
        assert store.began.wait(20)
        monkeypatch.setattr(after_run, "PATIENCE", 0.2)
        stopping = threading.Timer(0.3, store.may_go_on.set)
        monkeypatch.setattr(after_run, "AT_LAST", 20.0)
        stopping.start()
    stopping.join()
    assert store.erased == 1
    assert "failed" not in caplog.text
