"""The folders that artifacts lie in last as long as the artifacts do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from everstep import Flow, Host, node
from everstep.runtime.outage.spool import Spool
from everstep.runtime.system import SystemClock
from everstep.stores.artifacts import ArtifactFolder
from everstep.testing import ManualClock
from everstep.testing.conformance.kit import Chain


class Synced:
    """Which folders were synced, and what names they had by then."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._fsync = os.fsync
        self.names: dict[Path, set[str]] = {}
        patch.setattr(os, "fsync", self._note)

    def _note(self, file: int) -> None:
        self._fsync(file)
        path = Path(f"/proc/self/fd/{file}").readlink()
        if path.is_dir():
            self.names[path] = {entry.name for entry in path.iterdir()}

    def lasts(self, path: Path) -> bool:
        return path.name in self.names.get(path.parent, ())


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Synced:
    return Synced(monkeypatch)


def test_the_first_artifact_of_a_store_lasts_with_every_folder_above_it(
    tmp_path: Path, synced: Synced
) -> None:
    folder = tmp_path / "new" / "artifacts"
    ref = ArtifactFolder(folder, SystemClock()).put_checkpoint_blob(b"", b"data", content_type="text/plain")
    file = folder / ref.key
    assert [synced.lasts(path) for path in (file, file.parent, folder, folder.parent)] == [True] * 4


def test_folders_that_another_process_made_and_did_not_sync_are_synced(
    tmp_path: Path, synced: Synced
) -> None:
    folder = tmp_path / "artifacts"
    ref = ArtifactFolder(folder, SystemClock()).put_checkpoint_blob(b"", b"data", content_type="text/plain")
    synced.names.clear()
    again = ArtifactFolder(folder, SystemClock())
    again.put_checkpoint_blob(b"", b"data", content_type="text/plain")
    file = folder / ref.key
    assert synced.lasts(folder) and synced.lasts(file.parent)
    synced.names.clear()
    again.put_checkpoint_blob(b"", b"data", content_type="text/plain")
    assert set(synced.names) == {file.parent}  # once is enough


def test_a_run_with_a_large_value_syncs_the_folder_of_its_database(tmp_path: Path, synced: Synced) -> None:
    @node(output="text")
    def write() -> str:
        return "x" * 3_000_000

    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        host.run(Flow("f", [write], durability="strong"), run_id="r")
    (folder,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert synced.lasts(folder)


def test_a_new_database_lasts_with_the_folders_that_were_made_for_it(tmp_path: Path, synced: Synced) -> None:
    file = tmp_path / "a" / "b" / "runs.db"
    with Host(f"sqlite:///{file}"):
        pass
    assert synced.lasts(file.parent) and synced.lasts(file.parent.parent)


def test_a_new_spool_lasts_with_the_folders_that_were_made_for_it(tmp_path: Path, synced: Synced) -> None:
    spool = Spool(tmp_path / "a" / "spool")
    spool.add(Chain("r", ManualClock()).admission())
    assert synced.lasts(spool.folder) and synced.lasts(spool.folder.parent)
