"""The service in this process, as the tests talk to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple

import httpx

from everstep import AsyncHost, Flow, node, wait
from everstep.client.views import WaitInfo
from everstep.ports.durability import Notifier
from everstep.server.app import Application, create_app
from everstep.testing import ManualClock

TOKEN = "a-token-for-the-tests"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
KEY = "k" * 32
NO_SUCH_TOKEN = "et_" + "A" * 43
NO_SUCH_WAIT = "00000000-0000-4000-8000-000000000000"


@node(output="summary")
def summarise(amount: int, who: str = "Ann") -> dict[str, Any]:
    return {"amount": amount, "who": who, "items": ["train", "hotel"], "note": "<b>bold</b> & more"}


@node(output="verdict")
def conclude(decision: Any) -> str:
    return "paid" if decision.approved else "refused"


expense = Flow(
    "expense",
    [
        summarise,
        wait.approval("decision", context="summary", prompt="Pay this expense?", timeout="3d"),
        conclude,
    ],
)


@node(output="total")
def add(x: int, y: int = 1) -> int:
    return x + y


plain = Flow("plain", [add])
paid = Flow("paid", [wait.callback("payment", timeout="1h")])
ask_yes = Flow("ask_yes", [wait.question("sure", kind="yes_no", prompt="Are you sure?")])
ask_choice = Flow("ask_choice", [wait.question("colour", kind="choice", options=["red", "blue"])])
ask_text = Flow("ask_text", [wait.question("name", kind="text", prompt="Who are you?")])
ask_number = Flow("ask_number", [wait.question("age", kind="text", answer_type=int)])
cool_down = Flow("cool_down", [wait.timer("pause", duration="2d")])


@node(output="never")
def explode(x: int) -> int:
    raise RuntimeError("boom")


failing = Flow("failing", [explode])


@node(output="sent")
def ship(day: date, amount: Decimal) -> str:
    return f"{day} for {amount}"


asking = Flow("asking", [wait.question("name", kind="text")])
shipping = Flow("shipping", [ship, asking.as_node()])

FLOWS = [expense, plain, paid, ask_yes, ask_choice, ask_text, ask_number, cool_down, failing, shipping]


class Serving(NamedTuple):
    """A client, and the host behind the service it talks to."""

    client: httpx.AsyncClient
    host: AsyncHost
    app: Application
    clock: ManualClock

    async def halted(self, flow: Flow, **inputs: Any) -> WaitInfo:
        """Run a flow until it halts and return its first wait, with its token."""
        result = await self.host.run(flow, inputs)
        assert result.status == "halted"
        return result.waits[0]

    async def is_open(self, waiting: WaitInfo) -> bool:
        return (await self.host.wait(waiting.id)).status == "open"


@asynccontextmanager
async def serving(
    url: str = "memory:",
    *,
    token: str | None = TOKEN,
    headers: dict[str, str] | None = None,
    notifiers: Mapping[str, Notifier] | None = None,
    flows: Sequence[Flow] | None = None,
    **options: Any,
) -> AsyncIterator[Serving]:
    """Open a host and a service over it, and a client with the bearer token."""
    clock = ManualClock()
    async with AsyncHost(
        url, clock=clock, key=KEY, base_url="http://flows.test", notifiers=notifiers
    ) as host:
        app = create_app(host, FLOWS if flows is None else flows, token=token, **options)
        transport = httpx.ASGITransport(app, raise_app_exceptions=True)
        base = "http://localhost"
        async with httpx.AsyncClient(
            transport=transport, base_url=base, headers=BEARER if headers is None else headers
        ) as client:
            yield Serving(client, host, app, clock)


def served(**options: Any) -> Callable[[Callable[[Serving], Awaitable[None]]], Callable[[], None]]:
    """Turn a test that awaits into one that pytest calls, with a service of its own."""

    def wrap(test: Callable[[Serving], Awaitable[None]]) -> Callable[[], None]:
        async def main() -> None:
            async with serving(**options) as s:
                await test(s)

        def run() -> None:
            asyncio.run(main())

        run.__name__ = run.__qualname__ = test.__name__
        return run

    return wrap


def code_of(response: httpx.Response) -> tuple[int, str]:
    """Return the status of an error and its code."""
    return response.status_code, response.json()["code"]
