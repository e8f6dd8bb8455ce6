"""What people find in a folder of runs: JSON that needs no everstep, and can be made again."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from everstep import END, Flow, Host, KeyRing, ifelse, node, wait
from everstep.errors import StateCorrupted
from everstep.model.removal import Erasure
from everstep.registry import open_store
from everstep.runtime.system import SystemClock
from everstep.stores.objects import scribe
from everstep.stores.objects.folder.bucket import Folder
from everstep.stores.objects.folder.readable import ReadableFolder
from everstep.stores.objects.readable import newest, read_index
from everstep.stores.objects.store import ObjectStore

REQUIRED = {"checkpoint_id", "run_id", "timestamp", "trigger", "phase", "sequence_number"}
LONG = "a longer text that no one should find in the clear" * 20


class Secret:
    """A class that JSON knows nothing of."""

    made = 0

    def __init__(self, text: str) -> None:
        self.text = text


@node(output="when")
def start(x: int) -> dict[str, Any]:
    return {"at": datetime(2026, 1, 2, tzinfo=UTC), "pair": (x, x + 1), "raw": b"\xff", "set": {1}}


@node(output="text")
def tell(when: dict[str, Any]) -> str:
    return LONG


FLOW = Flow("telling", [start, tell], durability="strong")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    return tmp_path / "store" / "checkpoints"


def read(path: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(path.read_text())
    return told


def run_once(url: str, run_id: str = "run-1", **options: Any) -> None:
    with Host(url, **options) as host:
        host.run(FLOW, {"x": 1}, run_id=run_id).raise_for_status()


def all_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


# -- what is in the files ----------------------------------------------------------------------------


def test_every_checkpoint_is_a_file_with_what_one_must_have(url: str, checkpoints: Path) -> None:
    run_once(url)
    assert sorted(all_files(checkpoints / "run-1")) == [
        *("cp_001_admission.json", "cp_002_step.json", "cp_003_completed.json", "index.json", "latest.json"),
    ]
    for number, name in enumerate(("cp_001_admission", "cp_002_step", "cp_003_completed"), start=1):
        told = read(checkpoints / "run-1" / f"{name}.json")
        assert told.keys() >= REQUIRED
        assert (told["run_id"], told["sequence_number"]) == ("run-1", number)
        assert datetime.fromisoformat(told["timestamp"]).tzinfo is not None
    with Host(url) as host:
        kept = host.history("run-1")
    index = read(checkpoints / "run-1" / "index.json")
    assert index["run_id"] == "run-1" and index["checkpoint_count"] == 3
    for row, record in zip(index["checkpoints"], kept, strict=True):
        told = read(checkpoints.parent / row["file_path"])
        assert row["sequence"] == record.sequence == told["sequence_number"]
        assert row["checkpoint_id"] == record.checkpoint_id == told["checkpoint_id"]
        assert row["trigger"] == record.trigger == told["trigger"]
        assert record.digest == told["digest"]
    latest = checkpoints / "run-1" / "latest.json"
    assert latest.read_bytes() == (checkpoints / "run-1" / "cp_003_completed.json").read_bytes()


def test_values_are_shown_as_json(url: str, checkpoints: Path) -> None:
    run_once(url)
    step = read(checkpoints / "run-1" / "cp_002_step.json")
    assert step["phase"] == "start"
    [written] = step["steps"][0]["writes"]
    assert written["value"]["at"] == {"$type": "datetime", "text": "2026-01-02T00:00:00+00:00"}
    assert written["value"]["pair"] == [1, 2]
    assert written["value"]["raw"] == {"$type": "bytes", "base64": "/w=="}
    assert read(checkpoints / "run-1" / "latest.json")["steps"][0]["writes"][0]["value"] == LONG


def test_values_are_shown_without_running_what_they_are_made_of(url: str, checkpoints: Path) -> None:
    def decode(text: str) -> Secret:
        Secret.made += 1
        return Secret(text)

    @node(output="secret")
    def make() -> Secret:
        return Secret("shown by its parts")

    with Host(url) as host:
        host.values.register(Secret, name="secret", encode=lambda secret: secret.text, decode=decode)
        flow = Flow("making", [make], durability="strong")
        before = Secret.made
        host.run(flow, run_id="run-1").raise_for_status()
        encoding = Secret.made - before
    told = read(checkpoints / "run-1" / "latest.json")["steps"][0]["writes"][0]["value"]
    assert told == {"$type": "secret", "value": "shown by its parts"}
    shutil.rmtree(checkpoints)
    made = Secret.made
    ReadableFolder(checkpoints.parent).scribe.rebuild("run-1")
    assert Secret.made == made and encoding <= 1


def test_encrypted_values_are_named_and_not_shown(url: str, checkpoints: Path) -> None:
    keys = KeyRing({"2026": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="})
    run_once(url, encrypt=keys, compress=True)
    told = read(checkpoints / "run-1" / "latest.json")["steps"][0]["writes"][0]["value"]
    assert told["$type"] == "encrypted" and told["key_id"] == "2026"
    for path in checkpoints.parent.rglob("*"):
        assert not path.is_file() or b"no one should find" not in path.read_bytes(), path


def test_compressed_values_are_shown(url: str, checkpoints: Path) -> None:
    run_once(url, compress=True)
    assert read(checkpoints / "run-1" / "latest.json")["steps"][0]["writes"][0]["value"] == LONG


def test_what_is_encrypted_later_does_not_stay_in_the_clear(url: str, checkpoints: Path) -> None:
    run_once(url)
    assert LONG in (checkpoints / "run-1" / "latest.json").read_text()
    keys = KeyRing({"2026": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="})
    with Host(url, encrypt=keys) as host:
        host.storage.rekey("run-1")
    for path in checkpoints.rglob("*.json"):
        assert "no one should find" not in path.read_text(), path
    assert read(checkpoints / "run-1" / "index.json")["checkpoint_count"] == 3


def test_a_run_that_was_removed_leaves_no_files(url: str, checkpoints: Path) -> None:
    run_once(url, "run-1")
    run_once(url, "run-2")
    with Host(url) as host:
        assert LONG in (checkpoints / "run-1" / "latest.json").read_text()
        head = host.info("run-1").checkpoints
    opened = open_store(url, SystemClock())
    assert isinstance(opened.store, ObjectStore)
    assert asyncio.run(opened.store.erase("run-1", head=head, reason="a test")) is Erasure.ERASED
    asyncio.run(opened.store.close())
    assert [path.name for path in checkpoints.iterdir() if path.is_dir()] == ["run-2"]
    assert not any("no one should find" in path.read_text() for path in checkpoints.glob("*.json"))


def test_checkpoints_that_were_cleaned_up_leave_no_files(url: str, checkpoints: Path) -> None:
    @node(output=("page", "round"))
    def write_page(round: int) -> tuple[str, int]:
        return f"{round}" * 5000, round + 1

    @ifelse(when_true="write_page", when_false=END)
    def again(round: int) -> bool:
        return round < 20

    with Host(url) as host:
        flow = Flow("book", [write_page, again], entry="write_page", durability="strong")
        host.run(flow, {"round": 0}, run_id="run-1").raise_for_status()
    with Host(url) as host:
        assert host.retention.clean_up("run-1", keep=1)
        kept = [info.sequence for info in host.checkpoints("run-1") if not info.is_trimmed]
    assert kept[0] > 1
    found = sorted(int(path.name[3:6]) for path in (checkpoints / "run-1").glob("cp_*"))
    assert found == kept
    assert [row["sequence"] for row in read(checkpoints / "run-1" / "index.json")["checkpoints"]] == kept


def test_a_run_called_like_a_file_of_ours_has_a_folder_of_its_own(url: str, checkpoints: Path) -> None:
    run_once(url, "preserved_runs.json")
    assert not (checkpoints / "preserved_runs.json").exists()
    [folder] = checkpoints.iterdir()
    assert read(folder / "latest.json")["run_id"] == "preserved_runs.json"
    assert newest(Folder(checkpoints.parent), "preserved_runs.json")["sequence_number"] == 3


# -- when they are written ---------------------------------------------------------------------------


def test_a_halted_run_is_told_of_while_its_host_is_open(url: str, checkpoints: Path) -> None:
    approve = wait.approval("approve", prompt="May it go on?")
    with Host(url) as host:
        host.run(Flow("asking", [approve], durability="strong"), run_id="run-1")
        for _ in range(200):
            if (checkpoints / "run-1" / "latest.json").exists():
                break
            threading.Event().wait(0.02)
        assert read(checkpoints / "run-1" / "latest.json")["status"] == "halted"


def test_a_resume_in_another_process_goes_on_with_the_files(url: str, checkpoints: Path) -> None:
    approve = wait.approval("approve", prompt="May it go on?")
    flow = Flow("asking", [approve], durability="strong")
    with Host(url) as host:
        [open_wait] = host.run(flow, run_id="run-1").waits
    with Host(url) as host:
        host.answer(open_wait.id, {"approved": True})
        host.resume("run-1", flow)
    index = read(checkpoints / "run-1" / "index.json")
    with Host(url) as host:
        assert [row["checkpoint_id"] for row in index["checkpoints"]] == [
            record.checkpoint_id for record in host.history("run-1")
        ]


def test_files_that_went_missing_are_made_again_by_a_resume(url: str, checkpoints: Path) -> None:
    approve = wait.approval("approve", prompt="May it go on?")
    flow = Flow("asking", [start, tell, approve], durability="strong")
    with Host(url) as host:
        [open_wait] = host.run(flow, {"x": 1}, run_id="run-1").waits
    before = all_files(checkpoints / "run-1")
    shutil.rmtree(checkpoints)
    with Host(url) as host:
        host.answer(open_wait.id, {"approved": True})
        host.resume("run-1", flow)
    after = all_files(checkpoints / "run-1")
    assert {name: after[name] for name in before if name.startswith("cp_")} == {
        name: data for name, data in before.items() if name.startswith("cp_")
    }
    assert read(checkpoints / "run-1" / "latest.json")["status"] == "completed"


def test_a_rebuild_gives_the_same_files(url: str, checkpoints: Path) -> None:
    run_once(url)
    before = all_files(checkpoints / "run-1")
    (checkpoints / "run-1" / "cp_002_step.json").write_text("{")
    (checkpoints / "run-1" / "cp_007_step.json").write_text("{}")
    (checkpoints / "run-1" / "latest.json").unlink()
    (checkpoints / "run-1" / "index.json").write_text("[]")
    folder = ReadableFolder(checkpoints.parent)
    folder.scribe.rebuild("run-1")
    assert all_files(checkpoints / "run-1") == before


def test_files_that_cannot_be_written_stop_no_run(
    url: str, checkpoints: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints.parent.mkdir(parents=True)
    checkpoints.write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING, "everstep"):
        run_once(url, "run-1")
        run_once(url, "run-2")
    assert len([r for r in caplog.records if "readable files not written" in r.message]) == 2
    checkpoints.unlink()
    with Host(url) as host:
        assert host.info("run-1").status == "completed"


def test_the_index_of_a_long_run_is_not_written_for_every_step(
    url: str, checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scribe, "LAG", 0.001)
    monkeypatch.setattr(scribe, "_SHARE", 10_000)
    written: list[str] = []
    write = Folder.write_soon

    def note(self: Folder, name: str, data: bytes) -> None:
        written.append(name.rpartition("/")[2])
        write(self, name, data)

    monkeypatch.setattr(Folder, "write_soon", note)

    @node(output="value")
    def step(previous: int) -> int:
        threading.Event().wait(0.003)
        return previous + 1

    nodes = [
        step.with_name(f"s{k}").with_inputs(previous=f"v{k}").with_outputs(f"v{k + 1}") for k in range(40)
    ]
    with Host(url) as host:
        host.run(Flow("long", nodes, durability="strong"), {"v0": 0}, run_id="run-1").raise_for_status()
    assert written.count("latest.json") > 5
    assert written.count("index.json") <= 3
    assert read(checkpoints / "run-1" / "index.json")["checkpoint_count"] == 41


def test_a_child_forked_while_others_hold_locks_goes_on(url: str, checkpoints: Path) -> None:
    folder = ReadableFolder(checkpoints.parent)
    with folder.scribe._lock, folder._lock, folder._marking, folder._handles._lock:
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            folder.mark(["live/a"])
            is_made = folder.create("runs/r/log/0000000001", b"x")
            folder.scribe.flush()
            os._exit(0 if is_made else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_an_owner_that_slept_does_not_put_an_older_view_over_a_newer_one(url: str, checkpoints: Path) -> None:
    run_once(url)
    latest = checkpoints / "run-1" / "latest.json"
    told = {**read(latest), "sequence_number": 99}
    latest.write_text(json.dumps(told))
    folder = ReadableFolder(checkpoints.parent)
    for name in folder.names("runs/run-1/log/"):
        found = folder.get(name)
        assert found is not None
        folder.scribe.note(name, found.data)
    folder.close()
    assert read(latest)["sequence_number"] == 99


# -- where the files are all there is ---------------------------------------------------------------


@pytest.fixture
def handed_over(url: str, checkpoints: Path, tmp_path: Path) -> Iterator[tuple[Folder, Path]]:
    """A copy of the files of one run, and nothing else."""
    run_once(url)
    shutil.copytree(checkpoints, tmp_path / "copy" / "checkpoints")
    yield Folder(tmp_path / "copy"), tmp_path / "copy" / "checkpoints" / "run-1"


def test_the_newest_checkpoint_is_found_by_latest_then_index_then_a_scan(
    handed_over: tuple[Folder, Path],
) -> None:
    folder, files = handed_over
    assert newest(folder, "run-1")["sequence_number"] == 3
    (files / "latest.json").unlink()
    assert newest(folder, "run-1")["sequence_number"] == 3
    (files / "cp_003_completed.json").write_text('{"half": ')
    assert newest(folder, "run-1")["sequence_number"] == 2
    (files / "index.json").unlink()
    assert newest(folder, "run-1")["sequence_number"] == 2
    for path in files.glob("cp_*"):
        path.write_bytes(b"\xff\x00")
    with pytest.raises(StateCorrupted, match="no checkpoint of run 'run-1'"):
        newest(folder, "run-1")


@pytest.mark.parametrize(
    "latest",
    [
        *("", "null", "[]", "{}", '"text"', "{", "\x00" * 100),
        json.dumps({**dict.fromkeys(REQUIRED, ""), "run_id": "another", "sequence_number": 9}),
        json.dumps({**dict.fromkeys(REQUIRED, ""), "run_id": "run-1", "sequence_number": "9"}),
    ],
)
def test_a_latest_that_is_none_is_passed_over(handed_over: tuple[Folder, Path], latest: str) -> None:
    folder, files = handed_over
    (files / "latest.json").write_text(latest)
    assert newest(folder, "run-1")["checkpoint_id"] == read(files / "cp_003_completed.json")["checkpoint_id"]


def test_an_index_leads_nowhere_else(handed_over: tuple[Folder, Path]) -> None:
    folder, files = handed_over
    (files / "latest.json").unlink()
    index = read(files / "index.json")
    outside = files.parent.parent.parent / "outside.json"
    outside.write_text((files / "cp_003_completed.json").read_text())
    index["checkpoints"][2]["file_path"] = "../outside.json"
    index["checkpoints"][2]["sequence"] = 50
    (files / "index.json").write_text(json.dumps(index))
    (files / "cp_003_completed.json").unlink()
    assert newest(folder, "run-1")["sequence_number"] == 2
    index["checkpoint_count"] = 7
    (files / "index.json").write_text(json.dumps(index))
    assert read_index(folder, "run-1") is None
