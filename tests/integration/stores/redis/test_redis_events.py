"""What a Redis keeps for waits for events: nothing once they are over."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from everstep import Flow, Host, wait
from everstep.ports.events import EventRow, EventStore
from everstep.registry import open_store
from everstep.runtime.system import SystemClock


@pytest.mark.parametrize("name", ["paid", "bezahlt é🙂"])
def test_topics_of_waits_that_are_over_are_gone(redis_url: str, name: str) -> None:
    flow = Flow("shop", [wait.event("paid", event=name, match={"order": "number"})])
    with Host(redis_url) as host:
        for number in range(3):
            host.run(flow, {"number": number}, run_id=f"r{number}")
        assert len(topics(redis_url, name)) == 1
        assert host.publish(name, {"order": 0}).settled == 1
        host.cancel("r1")
        assert len(topics(redis_url, name)) == 1
        host.cancel("r2")
        host.retention.erase("r2")
        assert topics(redis_url, name) == []


def topics(url: str, name: str) -> list[str]:
    async def ask() -> list[str]:
        clock = SystemClock()
        store = open_store(url, clock).store
        event = EventRow(event_id="e", name=name, value=b"", fields={}, published_at=clock.now())
        found = await cast("EventStore", store).keep_event(event)
        await store.close()
        return found

    return asyncio.run(ask())
