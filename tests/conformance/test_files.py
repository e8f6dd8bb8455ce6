"""`file:` passes the whole suite."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.ports.store import Capabilities
from everstep.registry import open_store
from everstep.stores.objects.mounts import Mount
from everstep.testing import ManualClock, StoreConformance, StoreKit

MEMORY = Path("/dev/shm")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: ten thousand runs are some fifty thousand syncs on a disk."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="everstep-") as name:
        yield Path(name)


class TestFiles(StoreConformance):
    @pytest.fixture
    def store_kit(self, folder: Path) -> StoreKit:
        clock = ManualClock()
        url = f"file://{folder}/runs"
        return StoreKit(
            lambda: open_store(url, clock),
            clock,
            Capabilities(durable=True, single_writer=True, recodes=True, retains=True, restores=True),
        )


@pytest.mark.soak
class TestNetworkFiles(StoreConformance):
    """The same where the folder is taken for a network mount: the clock is the file server's."""

    @pytest.fixture
    def store_kit(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> StoreKit:
        monkeypatch.setattr("everstep.stores.objects.folder.mount_of", lambda path: Mount("nfs4"))
        clock = ManualClock()
        url = f"file://{folder}/runs"
        return StoreKit(
            lambda: open_store(url, clock),
            clock,
            Capabilities(
                durable=True, single_writer=True, remote=True, recodes=True, retains=True, restores=True
            ),
            open_at=lambda other: open_store(url, other),
        )
