"""A folder in which one run cannot be read, or into which others put files of their own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from everstep import Flow, Host, node
from everstep.registry import open_store
from everstep.runtime.system import SystemClock


@node(output="y")
def double(x: int) -> int:
    return 2 * x


FLOW = Flow("doubled", [double])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def host(folder: Path) -> Iterator[Host]:
    with Host(f"file://{folder}") as first:
        for run_id in ("bad", "good"):
            first.start(FLOW, {"x": 1}, run_id=run_id)
    with Host(f"file://{folder}") as host:
        yield host


FOLDERS = (
    "live index waiting erased removals unfinished blobs/ab waits/ab tokens/ab children/bad runs/bad/log"
)


@pytest.mark.parametrize("stray", ["Thumbs.db", "0000000001.bak", "0000000001 (conflicted copy)", "notes~"])
def test_files_of_others_between_objects_are_passed_by(host: Host, folder: Path, stray: str) -> None:
    for name in FOLDERS.split():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / stray).write_bytes(b"not ours")
        os.utime(folder / name / stray, (0, 0))
    assert host.work([FLOW], until_idle=True).completed == 2
    assert host.waits() == [] and host.retention.removals() == []
    assert all(one.is_sound for one in host.storage.verify())
    assert host.retention.gc().problems == []
    host.retention.erase("bad")
    assert [info.run_id for info in host.runs()] == ["good"]
    assert all((folder / name / stray).exists() for name in FOLDERS.split())


@pytest.mark.parametrize("data", [b"", b"\x01\x02"], ids=["empty", "cut-off"])
def test_a_run_of_which_nothing_can_be_read_keeps_no_other_from_its_turn(
    host: Host, folder: Path, data: bytes
) -> None:
    [entry] = (folder / "runs/bad/log").iterdir()
    entry.write_bytes(data)
    assert host.work([FLOW], until_idle=True).completed == 1
    assert host.waits() == []
    assert [(one.run_id, one.is_sound) for one in host.storage.verify()] == [("good", True), ("bad", False)]
    assert "bad" in host.retention.gc().problems[0]


def test_a_lease_that_was_prolonged_and_cannot_be_read_stops_no_client(host: Host, folder: Path) -> None:
    store = open_store(f"file://{folder}", SystemClock()).store

    async def drive() -> None:
        lease = await store.lease("bad", owner="o", ttl=timedelta(0), process=None)
        await store.renew([lease], timedelta(minutes=5))

    asyncio.run(drive())
    [beat] = (folder / "beats/bad").iterdir()
    beat.write_bytes(b"")
    assert host.work([FLOW], until_idle=True).completed == 2


def test_an_owner_that_slept_while_a_run_was_moved_away_and_back_is_fenced(
    host: Host, folder: Path, tmp_path: Path
) -> None:
    store, away = open_store(f"file://{folder}", SystemClock()).store, f"file://{tmp_path}/away"
    asleep = asyncio.run(store.lease("good", owner="o", ttl=timedelta(0), process=None))
    assert host.transfer.copy(away, ["good"], move=True)[0].outcome == "moved"
    with Host(away) as there:
        assert there.transfer.copy(host.url, ["good"], move=True)[0].outcome == "moved"
    taken_over = asyncio.run(store.lease("good", owner="p", ttl=timedelta(minutes=1), process=None))
    assert taken_over.epoch > asleep.epoch
