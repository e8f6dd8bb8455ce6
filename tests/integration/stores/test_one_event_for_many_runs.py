"""One event that a thousand runs wait for: all go on within a second, on each store that is one database.

The fastest of three counts: a machine that other programs keep busy says nothing about a store.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from everstep import AsyncHost, Flow, wait

pytestmark = [pytest.mark.stores("memory", "sqlite", "postgres", "redis"), pytest.mark.slow]
MANY = 1000
SECONDS = 1.0
waiting = Flow("waiting", [wait.event("paid", match={"order": "order"})])


def test_one_event_lets_a_thousand_runs_go_on_within_a_second(url: str) -> None:
    async def main() -> list[float]:
        took: list[float] = []
        async with AsyncHost(url) as host:
            for number in range(3):
                order = f"order-{number}"
                for first in range(0, MANY, 100):
                    ids = [f"{order}-{k}" for k in range(first, first + 100)]
                    await asyncio.gather(*(host.run(waiting, {"order": order}, run_id=i) for i in ids))
                began = time.monotonic()
                done = await host.publish("paid", {"order": order, "amount": 12}, id=order)
                took.append(time.monotonic() - began)
                assert done.settled == MANY
                assert (await host.resume(f"{order}-{MANY - 1}", waiting)).status == "completed"
                if took[-1] < SECONDS:
                    break
        return took

    took = asyncio.run(main())
    assert min(took) < SECONDS, took
