"""Nothing costs more than its budget: calls, allocations, statements, syncs, round trips, bytes, modules."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.budgets import counting
from tests.budgets.loads import PROGRAMS
from tests.budgets.meters import Allocations
from tests.budgets.ratchet import Budgets, Costs, check, read_parts, shown, told

SERVERS = {"postgres": "postgres_url", "redis": "redis_url", "s3": "s3_url"}


def is_within_budget(costs: Costs) -> None:
    """Fail with what is above its budget; on another Python than the budgets are for, only tell."""
    budgets = Budgets.read()
    here = ".".join(map(str, sys.version_info[:2]))
    if here != budgets.python:
        figures = "\n".join(shown(costs, budgets))
        pytest.skip(f"Budgets are for Python {budgets.python}; this is {here}:\n{figures}")
    troubles = check(costs, budgets, read_parts())
    if troubles:
        pytest.fail("\n\n".join(told(troubles)), pytrace=False)
    if not Allocations.IS_KNOWN:
        why = "Allocations are counted on x86_64 only: how many there are here is not known."
        pytest.fail(why) if os.environ.get("CI") == "true" else pytest.skip(why)


@pytest.mark.slow
@pytest.mark.parametrize("store", counting.ON)
def test_work_costs_no_more_than_its_budget(store: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(SERVERS[store]) if store in SERVERS else f"{store}:"
    is_within_budget(counting.costs_on(store, url))


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_loads_no_more_modules_than_its_budget(program: str, tmp_path: Path) -> None:
    is_within_budget(counting.loads_of(program, tmp_path))


def test_all_that_is_counted_has_a_budget_and_known_parts() -> None:
    budgets, known = Budgets.read(), read_parts()
    counted = {f"{work} on {store}" for store, works in counting.ON.items() for work in works}
    assert set(budgets.of) == set(known) == counted | set(PROGRAMS)
    assert {name: set(kinds) for name, kinds in budgets.of.items()} == {
        name: set(kinds) for name, kinds in known.items()
    }
