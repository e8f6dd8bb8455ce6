"""Hosts that clean up: what their rules remove is gone, and all else shows what it showed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from everstep import Durability, Flow, Host, Retention, Status, node
from everstep.errors import RunErased
from everstep.ports.retention import RetainingBlobStore, RetainingStore
from everstep.testing.conformance.kit import StoreKit, Suite

DAY = timedelta(days=1).total_seconds()


@node(output="page")
def fetch(text: str) -> str:
    return f"{text} " * 2000


@node(output="total_cost_usd")
def measure(page: str) -> float:
    return len(page) / 100


PAGES = Flow("pages", [fetch, measure], durability=Durability("strong", blob_threshold=2048))


class Keeping(Suite):
    """Only for stores that declare `retains`, with artifacts that can be listed."""

    @pytest.fixture
    def keeper(self, store_kit: StoreKit) -> Iterator[Host]:
        opened = store_kit.open()
        with Host(opened, clock=store_kit.clock) as host:
            if not isinstance(opened.store, RetainingStore):
                pytest.skip("it declares that nothing in it can be erased")
            assert isinstance(opened.blobs, RetainingBlobStore)
            for k in range(6):
                host.run(PAGES, {"text": f"text {k % 4}"}, run_id=f"run-{k}").raise_for_status()
                store_kit.clock.advance(60)
            yield host

    def test_rules_leave_whole_runs_last_checkpoints_and_summaries(
        self, keeper: Host, store_kit: StoreKit
    ) -> None:
        host = keeper
        host.retention.pin("run-0", "a lesson")
        host.fork("run-1", fork_id="fork")
        store_kit.clock.advance(2 * DAY)
        policy = Retention(whole=3, keep_last=5)
        dry = host.retention.gc(retention=policy, dry_run=True)
        found = host.retention.gc(retention=policy)
        assert found.runs == dry.runs and found.problems == []
        # The fork is the newest, so that of six runs and a fork five are kept, and what is needed.
        assert [(run.run_id, run.action) for run in found.runs] == [("run-3", "trim"), ("run-2", "trim")]
        assert [run.run_id for run in found.spared] == ["run-1"]
        host.cancel("fork")
        host.retention.unpin("run-0")
        assert host.retention.erase("fork").checkpoints == 2
        found = host.retention.gc(retention=Retention(whole=1, keep_last=2))
        assert [(run.run_id, run.action) for run in found.runs] == [
            ("run-4", "trim"),
            *((f"run-{k}", "erase") for k in (3, 2, 1, 0)),
        ]
        assert found.artifacts.removed == 2, "of four texts two are named by the runs that are left"
        assert [run.run_id for run in host.runs()] == ["run-5", "run-4"]
        assert [c.is_trimmed for c in host.checkpoints("run-4")] == [True, True, True, False]
        assert host.state("run-4")["page"] == "text 0 " * 2000
        assert host.run(PAGES, {"text": "text 0"}, run_id="run-4").status is Status.COMPLETED
        assert all(one.is_sound for one in host.storage.verify())
        left = {run.run_id: run.summary for run in host.retention.removed()}
        assert left.pop("fork") is None and sorted(left) == [f"run-{k}" for k in range(4)]
        for summary in left.values():
            assert summary is not None and (summary.phases_completed, summary.errors_count) == (2, 0)
            assert summary.total_cost_usd == 140
        assert sum(line.what == "run" for line in host.retention.removals()) == 5
        with pytest.raises(RunErased):
            host.run(PAGES, {"text": "text 0"}, run_id="run-0")
        assert host.retention.gc(retention=Retention(whole=1, keep_last=2)).has_removed is False

    def test_an_erased_run_takes_along_what_only_it_names(self, keeper: Host, store_kit: StoreKit) -> None:
        host = keeper
        store_kit.clock.advance(DAY)
        assert host.retention.erase("run-2").artifacts == 1
        assert host.retention.erase("run-0").artifacts == 0, "another run names the same bytes"
        assert host.state("run-4")["page"] == "text 0 " * 2000
        assert host.retention.erase("run-4").artifacts == 1
        assert host.retention.gc().artifacts.removed == 0
        assert {run.run_id for run in host.runs()} == {"run-1", "run-3", "run-5"}
