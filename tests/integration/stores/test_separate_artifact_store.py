"""Records in one store, artifacts in another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from everstep import AsyncHost, Durability, Flow, Host, node, wait
from everstep.errors import BadRequest, StateCorrupted
from everstep.ports.retention import SHARED_MARK

WIDE = "wide " * 1000


@node(output="wide")
def widen(x: int) -> str:
    return WIDE


@node(output="length")
def measure(wide: str, ok: bool) -> int:
    return len(wide)


FLOW = Flow(
    "wide", [widen, wait.question("ok"), measure], durability=Durability("strong", blob_threshold=1024)
)


def files(folder: Path) -> int:
    """Count artifacts, apart from the one that says that others may be there."""
    return len([p for p in folder.rglob("*") if p.is_file() and p.read_bytes() != SHARED_MARK])


def halted(host: Host) -> None:
    assert host.run(FLOW, {"x": 1}, run_id="r").status == "halted"
    host.answer(host.waits("r")[0].id, True)


PLACES: dict[str, Callable[[Path], str]] = {
    "folder": lambda folder: f"file://{folder}/apart",
    "sqlite": lambda folder: f"sqlite:///{folder}/other.db",
}


@pytest.mark.parametrize("place", PLACES)
def test_artifacts_are_kept_and_found_elsewhere(tmp_path: Path, place: str) -> None:
    url, blobs = f"sqlite:///{tmp_path}/runs.db", PLACES[place](tmp_path)
    with Host(url, blobs=blobs) as host:
        halted(host)
    assert not (tmp_path / "runs.db.artifacts").exists()
    assert files(tmp_path / ("apart" if place == "folder" else "other.db.artifacts")) == 1
    assert not (tmp_path / "other.db").exists()
    with Host(url, blobs=blobs) as host:
        assert host.resume("r", FLOW)["length"] == len(WIDE)
        assert host.state("r")["wide"] == WIDE
    with Host(url) as host, pytest.raises(StateCorrupted, match="missing"):
        _ = host.state("r")["wide"]


def test_the_artifacts_of_a_postgres_serve_runs_in_a_file(tmp_path: Path, postgres_url: str) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url, blobs=postgres_url) as host:
        halted(host)
        assert host.resume("r", FLOW)["length"] == len(WIDE)
    assert files(tmp_path / "runs.db.artifacts") == 0
    with Host(url, blobs=postgres_url) as host:
        assert host.state("r")["wide"] == WIDE


def test_a_folder_serves_runs_in_a_postgres(tmp_path: Path, postgres_url: str) -> None:
    with Host(postgres_url, blobs=f"file://{tmp_path}/apart") as host:
        halted(host)
    assert files(tmp_path / "apart") == 1
    with Host(postgres_url, blobs=f"file://{tmp_path}/apart") as host:
        assert host.resume("r", FLOW)["length"] == len(WIDE)


def test_what_was_kept_beside_the_records_before_is_still_read(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        halted(host)
    with Host(url, blobs=f"file://{tmp_path}/apart") as host:
        assert host.resume("r", FLOW)["length"] == len(WIDE)


def test_the_environment_says_it_for_every_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERSTEP_BLOBS", f"file://{tmp_path}/apart")

    async def work() -> None:
        async with AsyncHost(f"sqlite:///{tmp_path}/runs.db") as host:
            assert (await host.run(FLOW, {"x": 1}, run_id="r")).status == "halted"

    asyncio.run(work())
    assert files(tmp_path / "apart") == 1


@pytest.mark.parametrize("wrong", ["none:", "file://", "file://elsewhere/x", "ftp://x/y", "nonsense"])
def test_a_place_that_keeps_no_artifacts_is_refused(wrong: str) -> None:
    with pytest.raises(BadRequest):
        Host("memory:", blobs=wrong)
