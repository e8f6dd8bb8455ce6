"""`file:` passes the whole suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from everstep.ports.store import Capabilities
from everstep.registry import open_store
from everstep.stores.objects.folder.mounts import Mount
from everstep.testing import ManualClock, StoreConformance, StoreKit


class TestFiles(StoreConformance):
    @pytest.fixture
    def store_kit(self, quick_folder: Path) -> StoreKit:
        clock = ManualClock()
        url = f"file://{quick_folder}/runs"
        return StoreKit(
            lambda: open_store(url, clock),
            clock,
            Capabilities(
                durable=True,
                single_writer=True,
                recodes=True,
                compares=True,
                takes_head=True,
                retains=True,
                restores=True,
                fences=True,
                has_inbox=True,
                has_labels=True,
                has_notices=True,
                pauses=True,
                has_children=True,
                limits=True,
                undoes=True,
                has_events=True,
                audits=True,
            ),
        )


@pytest.mark.soak
class TestNetworkFiles(StoreConformance):
    """The same where the folder is taken for a network mount: the clock is the file server's."""

    @pytest.fixture
    def store_kit(self, quick_folder: Path, monkeypatch: pytest.MonkeyPatch) -> StoreKit:
        monkeypatch.setattr("everstep.stores.objects.folder.bucket.mount_of", lambda path: Mount("nfs4"))
        clock = ManualClock()
        url = f"file://{quick_folder}/runs"
        return StoreKit(
            lambda: open_store(url, clock),
            clock,
            Capabilities(
                durable=True,
                single_writer=True,
                remote=True,
                recodes=True,
                compares=True,
                takes_head=True,
                retains=True,
                restores=True,
                fences=True,
                has_inbox=True,
                has_labels=True,
                has_notices=True,
                pauses=True,
                has_children=True,
                limits=True,
                undoes=True,
                has_events=True,
                audits=True,
            ),
            open_at=lambda other: open_store(url, other),
        )
