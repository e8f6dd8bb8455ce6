"""Guards where it gets narrow: other threads, odd amounts, breakers that others changed meanwhile."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everstep import Breaker, Budget, Context, Durability, Flow, Host, Retry, node
from everstep.engine import breaking
from everstep.errors import AnswerInvalid, StoreError
from everstep.model.budgets import plain
from everstep.testing import ManualClock
from tests.integration.runtime.outage.test_store_failures import DOWN, FULL, Flaky, Place

pytestmark = pytest.mark.stores("sqlite")


@pytest.mark.parametrize("budgets", [{}, {"usd": 10}])
def test_a_thread_of_an_async_node_may_spend(host: Host, budgets: dict[str, Any]) -> None:
    @node(output="done", timeout=20)
    async def helped(ctx: Context) -> int:
        await asyncio.to_thread(ctx.spend, usd="0.5")
        return 1

    run = host.run(Flow("helped", [helped], budgets=budgets))
    assert (run.status, str(run.guards.spent["usd"])) == ("completed", "0.5")


def test_shares_may_be_text_as_amounts_may(host: Host) -> None:
    @node(output="done")
    def spends(ctx: Context) -> int:
        ctx.spend(usd="4.50")
        raise ConnectionError("down")

    flow = Flow(
        "spends",
        [spends],
        budgets=[Budget("usd", 5, warn_at="0.8")],  # type: ignore[arg-type]
        breakers=[Breaker("api", error_rate="1.0", window=1)],  # type: ignore[arg-type]
    )
    run = host.run(flow, run_id="r")
    assert run.error is not None and "down" in run.error.message
    found = [record.trigger for record in host.history("r")]
    assert found[1:] == ["cost_threshold", "circuit_breaker", "failed"]


def test_an_error_rate_is_exact(host: Host) -> None:
    calls = iter([False] * 11 + [True] * 9)

    @node(output="out")
    def wobbly(n: int) -> int:
        if next(calls):
            return n
        raise ConnectionError("down")

    flow = Flow(
        "wobbly",
        [wobbly.map_over("n", on_error="collect", max_concurrency=1)],
        breakers=[Breaker("api", error_rate=0.55, window=20)],
    )
    run = host.run(flow, {"n": list(range(20))})
    assert run.guards.breakers["api"].reason == "11 of the last 20 calls failed"


@pytest.mark.parametrize("by", [1e300, 10**25])
def test_no_one_raises_a_budget_by_more_than_can_be_counted(host: Host, by: Any) -> None:
    @node(output="a")
    def spends(ctx: Context) -> int:
        ctx.spend(usd=5)
        return 1

    @node(output="b")
    def then(a: int) -> int:
        return a

    run = host.run(Flow("spends", [spends, then], budgets={"usd": 5}), run_id="r")
    with pytest.raises(AnswerInvalid, match="raise_by"):
        host.answer(run.waits[0].id, {"approved": True, "raise_by": by})


def _failing(is_up: list[bool]) -> Flow:
    @node(output="a")
    def call() -> int:
        if not is_up:
            raise ConnectionError("down")
        return 1

    return Flow("failing", [call], breakers=[Breaker("bank", failures=1, shared=True)])


def test_a_run_that_never_tried_is_told_why_a_shared_breaker_stands_open(host: Host) -> None:
    flow = _failing([])
    host.run(flow, run_id="first")
    run = host.run(flow, run_id="second")
    assert run.guards.breakers["bank"].state == "open"
    host.answer(run.waits[0].id, {"approved": False})
    run = host.resume("second", flow)
    assert run.error is not None and "is open: 1 call in a row failed" in run.error.message


def test_a_run_knows_that_others_closed_a_shared_breaker(host: Host) -> None:
    is_up: list[bool] = []
    flow = _failing(is_up)
    host.run(flow, run_id="r")
    run = host.resume("r", flow)
    host.fleet.reset_breaker("bank")
    is_up.append(True)
    host.answer(run.waits[0].id, {"approved": True})
    run = host.resume("r", flow)
    assert (run.status, run.guards.breakers["bank"].state) == ("completed", "closed")


def test_a_reset_forgets_what_a_closed_breaker_has_counted(host: Host) -> None:
    @node(output="a")
    def spends(ctx: Context) -> int:
        ctx.spend(usd=6)
        return 1

    flow = Flow("spends", [spends], breakers=[Breaker("bank", cost={"usd": 10}, shared=True)])
    host.run(flow)
    host.fleet.reset_breaker("bank")
    host.run(flow)
    assert host.fleet.breakers()["bank"].state == "closed"
    host.run(flow)
    assert host.fleet.breakers()["bank"].state == "open"


class _Unreachable(Flaky):
    """One that cannot be read while it is down, either."""

    async def run(self, run_id: str) -> Any:
        self._reach()
        return await super().run(run_id)


@pytest.mark.parametrize("trouble", [DOWN, FULL])
def test_with_best_effort_a_shared_breaker_waits_for_the_store(tmp_path: Path, trouble: StoreError) -> None:
    place, calls = Place(tmp_path), iter(range(9))
    place.store.__class__ = _Unreachable

    @node(output="a")
    def breaks() -> int:
        place.store.fails_with = trouble
        return 1

    @node(output="b", retry=Retry(3, first=0))
    def wobbles(a: int) -> int:
        if next(calls) < 2:
            raise ConnectionError("down")
        return a

    @node(output="c")
    def recovers(b: int) -> int:
        place.store.fails_with = None
        raise ConnectionError("down")

    flow = Flow(
        "wobbles",
        [breaks, wobbles, recovers],
        breakers=[Breaker("bank", failures=3, shared=True)],
        durability=Durability("strong", on_store_failure="best_effort"),
    )
    with place.host() as host:
        assert host.run(flow, run_id="A").status == "failed"
        assert host.fleet.breakers()["bank"].failures == 1, "the success in between was told as well"


def test_a_store_that_is_gone_for_a_moment_costs_no_failure(tmp_path: Path) -> None:
    place, left = Place(tmp_path), [3]
    place.store.__class__ = _Unreachable

    def reach() -> None:
        if left[0] and place.ran:
            left[0] -= 1
            raise DOWN

    place.store._reach = reach  # type: ignore[method-assign]

    @node(output="a")
    def fails() -> int:
        place.ran.append("fails")
        raise ConnectionError("down")

    flow = Flow("fails", [fails], breakers=[Breaker("bank", failures=1, shared=True)])
    with place.host() as host:
        assert host.run(flow, run_id="A").status == "failed"
        assert (left, host.fleet.breakers()["bank"].state) == ([0], "open")


@pytest.mark.parametrize("trouble", ["cancelled", "taken over"])
def test_what_befalls_the_run_of_a_shared_breaker_is_not_taken_for_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    url, clock, after, calls = f"sqlite:///{tmp_path}/runs.db", ManualClock(), breaking.after, [0]

    def interrupted(*args: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2:  # the first one only finds out whether there is anything to tell
            with Host(url, clock=clock) as other:
                if trouble == "cancelled":
                    assert other.cancel("breaker.bank") == "running"
                else:
                    clock.advance(timedelta(seconds=11))
                    other.fleet.reset_breaker("bank")
        return after(*args)

    @node(output="a")
    def fails() -> int:
        raise ConnectionError("down")

    flow = Flow("fails", [fails], breakers=[Breaker("bank", failures=5, shared=True)])
    with Host(url, clock=clock) as host:
        host.run(flow)
        monkeypatch.setattr(breaking, "after", interrupted)
        assert host.run(flow, run_id="r").status == "failed"
        assert host.run(flow, run_id="next").status == "failed"
        assert host.fleet.breakers()["bank"].failures == {"cancelled": 3, "taken over": 2}[trouble]


@pytest.mark.parametrize("budget", ["api", "usd"])
def test_what_has_three_letters_need_not_be_a_currency(host: Host, budget: str) -> None:
    @node(output="a")
    def spends(ctx: Context) -> int:
        ctx.spend(usd=1, gpu=3)
        return 1

    run = host.run(Flow("spends", [spends], budgets={budget: 9}))
    assert {name: int(amount) for name, amount in run.guards.spent.items()} == {"usd": 1, "gpu": 3}


def test_what_is_left_is_exact(host: Host) -> None:
    @node(output="a")
    def spends(ctx: Context) -> int:
        ctx.spend(usd="0.000000000000000001")
        return 1

    run = host.run(Flow("spends", [spends], budgets={"usd": "900000000000000000000000"}))
    assert plain(run.guards.budgets["usd"].left) == "899999999999999999999999.999999999999999999"


def test_one_approval_is_enough_however_much_was_spent(host: Host) -> None:
    @node(output="a")
    def spends(ctx: Context) -> int:
        ctx.spend(usd="50.10")
        return 1

    @node(output="b")
    def then(a: int) -> int:
        return a

    flow = Flow("spends", [spends, then], budgets={"usd": "5.00"})
    (wait,) = host.run(flow, run_id="r").waits
    assert wait.prompt == "50.10 of 5.00 usd are spent. May then start, with 50.00 more?"
    host.answer(wait.id, {"approved": True})
    run = host.resume("r", flow)
    assert (run.status, str(run.guards.budgets["usd"].limit)) == ("completed", "55.00")


def test_a_try_that_is_rejected_keeps_no_other_run_waiting() -> None:
    is_up = False
    clock = ManualClock()

    @node(output="receipt")
    def pay() -> str:
        if not is_up:
            raise ConnectionError("no route to the bank")
        return "paid"

    def guarded() -> Flow:
        return Flow("pay", [pay], breakers=[Breaker("bank", failures=1, cooldown="3s", shared=True)])

    with Host("memory:", clock=clock) as host:
        host.run(guarded(), run_id="first")
        asked = host.run(guarded(), run_id="asked")
        host.answer(asked.waits[0].id, {"approved": False})
        clock.advance(4)
        assert host.resume("asked", guarded()).status == "failed"
        assert host.fleet.breakers()["bank"].state == "open", "no one tries"
        is_up = True
        clock.advance(1)
        assert host.run(guarded(), run_id="next").status == "completed"
