"""Guards where it gets narrow: other threads, odd amounts, breakers that others changed meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everstep import Breaker, Budget, Context, Flow, Host, node


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with Host(f"sqlite:///{tmp_path / 'runs.db'}") as host:
        yield host


@pytest.mark.parametrize("budgets", [{}, {"usd": 10}])
def test_a_thread_of_an_async_node_may_spend(host: Host, budgets: dict[str, Any]) -> None:
    @node(output="done", timeout=20)
    async def helped(ctx: Context) -> int:
        await asyncio.to_thread(ctx.spend, usd="0.5")
        return 1

    run = host.run(Flow("helped", [helped], budgets=budgets))
    assert (run.status, str(run.guards.spent["usd"])) == ("completed", "0.5")
