"""Who is told when a guard asks a person."""

from __future__ import annotations

from typing import Any

import pytest

from everstep import Breaker, Budget, Context, Flow, Host, node
from everstep.errors import BadRequest, UnknownNotifier


@node(output="a")
def pay(ctx: Context) -> int:
    ctx.spend(usd="6")
    return 1


@node(output="b")
def go_on(a: int) -> int:
    return a


@node(output="c")
def fail() -> int:
    raise ValueError("no")


GUARDED: dict[str, dict[str, Any]] = {
    "budget": {"nodes": [pay, go_on], "budgets": [Budget("usd", "5", notify="desk")]},
    "breaker": {"nodes": [fail], "breakers": [Breaker("api", failures=1, notify=["desk"])]},
}


@pytest.mark.parametrize("guard", GUARDED)
def test_a_notifier_is_told_that_a_person_is_asked(guard: str) -> None:
    told: list[Any] = []
    with Host("memory:", notifiers={"desk": told.append}) as host:
        result = host.run(Flow("f", **GUARDED[guard]))
        if guard == "breaker":
            assert result.status == "failed"
            result = host.resume(result.run_id, Flow("f", **GUARDED[guard]))
        assert result.status == "halted" and len(told) == 1
        assert told[0].prompt == result.waits[0].prompt


@pytest.mark.parametrize("guard", GUARDED)
def test_a_notifier_that_the_host_lacks_is_named_before_the_run(guard: str) -> None:
    with Host("memory:") as host, pytest.raises(UnknownNotifier, match="desk"):
        host.run(Flow("f", **GUARDED[guard]))


@pytest.mark.parametrize("guard", GUARDED)
def test_who_is_told_is_part_of_the_ir(guard: str) -> None:
    flow = Flow("f", **GUARDED[guard])
    twin = Flow.from_ir(flow.to_ir(), flow.functions())
    assert (twin.budgets, twin.breakers) == (flow.budgets, flow.breakers)


@pytest.mark.parametrize("given", [3, [""], [1]])
def test_what_is_no_alias_is_refused(given: Any) -> None:
    with pytest.raises(BadRequest, match="notify"):
        Budget("usd", 5, notify=given)
    with pytest.raises(BadRequest, match="notify"):
        Breaker("api", failures=1, notify=given)
