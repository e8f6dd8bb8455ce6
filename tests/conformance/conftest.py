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
MANY_REQUESTS = {
    "test_a_chain_of_ten_thousand_records_comes_back_in_order",
    "test_a_flow_that_is_full_hides_no_other",
    "test_a_run_interrupted_at_any_write_comes_to_the_same_end",
    "test_an_erased_run_takes_along_what_only_it_names",
    "test_rules_leave_whole_runs_last_checkpoints_and_summaries",
    "test_whatever_another_client_writes_is_seen_as_a_change",
}
"""Tests with hundreds of requests that depend on no server: buckets in memory and in a folder pass them by
default on the same code, and the crash matrix interrupts runs on S3 at any write."""
MANY_WAITS = {
    "test_one_event_settles_a_thousand_waits_in_a_moment",
    "test_random_schedules_lose_no_signal_and_give_none_twice",
}
FOR_LATER = {"test_s3.py": CROWDS | MANY_REQUESTS | MANY_WAITS, "test_files.py": CROWDS}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    unknown = [name for name in CROWDS | MANY_REQUESTS | MANY_WAITS if not hasattr(StoreConformance, name)]
    assert not unknown, f"no test is called {', '.join(unknown)}"
    for item in items:
        if getattr(item, "originalname", "") in FOR_LATER.get(item.path.name, ()):
            item.add_marker(pytest.mark.soak)
