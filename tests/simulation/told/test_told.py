"""Runs that fail, with a receiver that is down half of the time, while workers crash and runs are erased.

`EVERSTEP_SOAK=1` tries many more scripts, those that follow from `EVERSTEP_SEED`.
"""

from __future__ import annotations

from datetime import datetime

import pytest

from everstep.model.commits import NoticeRow
from everstep.runtime.waits.notices import send
from everstep.stores.objects import drafts
from everstep.testing.simulation.explore import Explorer
from tests.simulation.soaking import size, soak
from tests.simulation.stores import FAULTS
from tests.simulation.told.receivers import trial

SCRIPTS, SCHEDULES = size(soak=(400, 10), first=(4, 2))


@pytest.mark.slow
@pytest.mark.parametrize("store", ["local", "remote"])
def test_each_notice_comes_at_least_once_under_one_id_and_none_of_an_erased_run(store: str) -> None:
    assert soak("told", store, SCRIPTS, SCHEDULES)


def test_a_sender_that_gives_up_at_once_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def after_failure(row: NoticeRow, error: str, now: datetime) -> NoticeRow:
        return row.changed(due_at=None, error=error)

    monkeypatch.setattr(send, "after_failure", after_failure)
    assert "told" in _found()


def test_a_store_that_forgets_to_tell_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "status_told", lambda before, status: None)
    assert "told" in _found()


def _found() -> set[str]:
    """Return which promises some schedule breaks."""
    for seed in range(6):
        explorer = Explorer(trial(seed, "remote"), seed=seed, kinds=FAULTS["remote"])
        try:
            found = {broken.invariant for broken in explorer.whole.broken}
        finally:
            explorer.close()
        if found:
            return found
    return set()
