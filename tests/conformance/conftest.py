"""What of the suite takes long on a store of many objects: the soak tests have it there."""

from __future__ import annotations

import pytest

from everstep.testing import StoreConformance

CROWDS = {
    "test_a_crowd_keeps_no_other_waiting",
    "test_a_crowd_of_one_priority_hides_none_of_a_higher",
    "test_a_flow_with_many_groups_keeps_no_other_flow_waiting",
    "test_a_group_that_is_full_hides_no_other",
    "test_many_groups_that_are_full_hide_no_other",
    "test_ten_thousand_halted_runs_hide_none_that_is_due",
    "test_ten_thousand_waits_are_listed_and_settled",
}
"""Tests with thousands of runs. A bucket in memory passes them by default, on the same code."""
FOR_LATER = {"test_s3.py": CROWDS, "test_files.py": CROWDS}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    unknown = [name for name in CROWDS if not hasattr(StoreConformance, name)]
    assert not unknown, f"no test is called {', '.join(unknown)}"
    for item in items:
        if getattr(item, "originalname", "") in FOR_LATER.get(item.path.name, ()):
            item.add_marker(pytest.mark.soak)
