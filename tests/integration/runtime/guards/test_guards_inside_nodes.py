"""Budgets and breakers in the middle of a node: they are asked before each of its durable calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everstep import AsyncContext, Breaker, Context, Flow, Host, Node, Retry, Status, node, parallel

pytestmark = pytest.mark.stores("sqlite")

YES = {"approved": True}


class Bank:
    """Something to call, which says how often it was."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def look(self, what: str) -> str:
        self.calls.append(what)
        return f"known of {what}"


def spending(bank: Bank, *, is_async: bool) -> Node:
    """Return a node that spends in one of its calls."""

    def work(ctx: Context) -> list[str]:
        def buy() -> str:
            ctx.spend(usd=5)
            return bank.look("goods")

        return [
            ctx.step("look", bank.look, "prices"),
            ctx.step("buy", buy),
            ctx.step("send", bank.look, "way"),
        ]

    async def work_soon(ctx: AsyncContext) -> list[str]:
        async def buy() -> str:
            await ctx.spend(usd=5)
            return bank.look("goods")

        found = await ctx.step("look", bank.look, "prices"), await ctx.step("buy", buy)
        return [*found, await ctx.step("send", bank.look, "way")]

    return Node(work_soon if is_async else work, name="work", output="found")


@pytest.mark.parametrize("is_async", [False, True])
def test_a_node_that_has_spent_the_budget_is_left_before_its_next_call_and_goes_on_there(
    host: Host, is_async: bool
) -> None:
    bank = Bank()
    flow = Flow("f", [spending(bank, is_async=is_async)], budgets={"usd": 3}, durability="strong")
    result = host.run(flow, run_id="r")
    [asked] = result.waits
    assert (asked.node, asked.context["spent"]) == ("work", "5")
    assert bank.calls == ["prices", "goods"]
    host.answer(asked.id, YES, by="ada")
    assert host.resume("r", flow)["found"] == ["known of prices", "known of goods", "known of way"]
    assert bank.calls == ["prices", "goods", "way"]
    assert str(host.state("r").guards.spent["usd"]) == "5"
    assert host.storage.verify("r")[0].is_sound


@pytest.mark.parametrize("is_async", [False, True])
def test_a_node_whose_budget_is_refused_fails_and_makes_no_further_call(host: Host, is_async: bool) -> None:
    bank = Bank()
    flow = Flow("f", [spending(bank, is_async=is_async)], budgets={"usd": 3}, durability="strong")
    [asked] = host.run(flow, run_id="r").waits
    host.answer(asked.id, {"approved": False})
    assert host.resume("r", flow).status is Status.FAILED
    assert bank.calls == ["prices", "goods"]


@pytest.mark.parametrize("is_async", [False, True])
def test_the_call_that_tries_a_breaker_is_not_held_up_by_itself(host: Host, is_async: bool) -> None:
    """It was asked about again at each of its durable calls if another node ran beside it."""
    bank = Bank()

    def check(ctx: Any) -> None:
        if ctx.attempt <= 2:
            raise ConnectionError("down")

    def pay(ctx: Context) -> str:
        check(ctx)
        found: str = ctx.step("pay", bank.look, "bill")
        return found

    async def pay_soon(ctx: AsyncContext) -> str:
        check(ctx)
        found: str = await ctx.step("pay", bank.look, "bill")
        return found

    @node(output="waited")
    async def beside() -> bool:
        for _ in range(500):
            if not bank.calls:
                await asyncio.sleep(0.001)
        return True

    retry = Retry(5, first=0, jitter=0)
    paying = Node(pay_soon if is_async else pay, name="pay", output="paid", retry=retry)
    rests = Breaker("bank", failures=2, nodes=["pay"], cooldown="1ms")
    flow = Flow("f", [parallel(paying, beside)], breakers=[rests], durability="strong")
    result = host.run(flow, run_id="r")
    assert result.status is Status.COMPLETED, result.waits
    assert bank.calls == ["bill"]
