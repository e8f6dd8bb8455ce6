"""Whether the service says that requests can be served while its store does, or does not, answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everstep.server import probe
from tests.integration.server.serving import Serving, serving
from tests.servers.proxy import proxy_before


async def ready(s: Serving) -> tuple[int, Any]:
    response = await s.client.get("/readyz", headers={"Authorization": ""})
    return response.status_code, response.json()


READY = (200, {"status": "ready", "reason": None})


def test_it_is_ready_while_its_store_answers(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PATIENCE", 0.5)

    async def main() -> None:
        with proxy_before(postgres_url) as (proxy, through):
            async with serving(through) as s:
                assert await ready(s) == READY
                proxy.is_down = True
                proxy.drop_all()
                assert await ready(s) == READY, "what was found out a moment ago"
                s.clock.advance(probe.FRESH)
                status, said = await ready(s)
                assert (status, said["status"]) == (503, "not ready")
                assert said["reason"] in ("store.slow", "store.unavailable")
                assert (await s.client.get("/healthz")).status_code == 200
                proxy.is_down = False
                s.clock.advance(probe.FRESH)
                assert await ready(s) == READY

    asyncio.run(main())


def test_however_many_ask_the_store_is_asked_once() -> None:
    async def main() -> None:
        async with serving("memory:") as s:
            asked = []
            store = s.host._services.store
            look = store.run

            async def counted(run_id: str) -> Any:
                asked.append(run_id)
                await asyncio.sleep(0.01)
                return await look(run_id)

            store.run = counted  # type: ignore[method-assign]
            assert await asyncio.gather(*(ready(s) for _ in range(20))) == [READY] * 20
            assert len(asked) == 1

    asyncio.run(main())


def test_a_service_that_stops_is_not_ready() -> None:
    async def main() -> None:
        async with serving("memory:") as s:
            s.app.service.stopping.set()
            assert await ready(s) == (503, {"status": "not ready", "reason": "stopping"})

    asyncio.run(main())
