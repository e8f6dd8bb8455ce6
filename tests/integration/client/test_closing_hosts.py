"""A host is closed while other threads drive runs with it, on a store that is only awaited."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

import pytest

from everstep import Flow, Host, node
from everstep.errors import BadRequest, HostClosed
from everstep.model.enums import Status
from everstep.ports.store import is_blocking
from everstep.registry import Opened
from everstep.runtime.system import SystemClock
from everstep.stores.memory import MemoryStore

LONGEST = 20
"""Seconds after which something hangs."""


class AwaitedStore:
    """A store that answers only who awaits it, and later."""

    def __init__(self) -> None:
        self._store = MemoryStore(SystemClock())

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_blocking"):
            raise AttributeError(name)
        found = getattr(self._store, name)
        return _later(found) if iscoroutinefunction(found) else found


def _later(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    async def asked(*given: Any, **named: Any) -> Any:
        await asyncio.sleep(0.001)
        return await call(*given, **named)

    return asked


class Begun:
    """Nodes that go on until they are let, and say that they have begun."""

    def __init__(self) -> None:
        self.count = threading.Semaphore(0)
        self.may_end = threading.Event()

    def flow(self, *, is_async: bool) -> Flow:
        @node(output="a", effects="effectful", idempotency_key="auto")
        async def wait_long(x: int) -> int:
            self.count.release()
            await asyncio.Event().wait()
            return x

        @node(output="a", effects="effectful", idempotency_key="auto")
        def hold(x: int) -> int:
            self.count.release()
            assert self.may_end.wait(LONGEST)
            return x

        return Flow("flow", [wait_long if is_async else hold], durability="strong")


@pytest.mark.parametrize("first", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("second", [True, False], ids=["async", "sync"])
def test_closing_ends_the_calls_of_other_threads_and_leaves_no_lease(first: bool, second: bool) -> None:
    store, begun, heard = AwaitedStore(), Begun(), dict[str, BaseException]()
    assert not is_blocking(store)
    opened: Any = Opened(store, store.artifacts, "memory:")
    host = Host(opened)

    def run(run_id: str, flow: Flow) -> None:
        try:
            host.run(flow, {"x": 1}, run_id=run_id)
        except BaseException as error:
            heard[run_id] = error

    threads = [
        threading.Thread(target=run, args=(run_id, begun.flow(is_async=is_async)), daemon=True)
        for run_id, is_async in (("first", first), ("second", second))
    ]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert begun.count.acquire(timeout=LONGEST)
    closing = threading.Thread(target=host.close, daemon=True)
    closing.start()
    while not _is_closed(host):
        continue
    begun.may_end.set()
    for thread in (closing, *threads):
        thread.join(LONGEST)
        assert not thread.is_alive(), f"{thread.name} hangs"
    assert {type(error) for error in heard.values()} <= {HostClosed}
    for run_id, is_async in (("first", first), ("second", second)):
        row = asyncio.run(store.run(run_id))
        assert row is not None and row.lease is None, "it can be resumed at once"
        # A sync node may have ended in time for its run to end, too.
        assert run_id in heard or (not is_async and row.status is Status.COMPLETED)


def _is_closed(host: Host) -> bool:
    try:
        host.runs()
    except BadRequest:
        return True
    return False
